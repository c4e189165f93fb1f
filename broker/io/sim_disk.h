/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_IO_SIM_DISK_H
#define PAWL_BROKER_IO_SIM_DISK_H

/* The disk of the simulated io, without time or faults: one directory of files, each twice: as
 * reads see it and as the platter has it. A sector is unflushed where the two may differ. Changes
 * of names wait in a row until the directory is flushed. */

#include "io/sim.h"

#define SIM_SECTOR 512u
#define SIM_NAME 32u

struct sim_file {
    uint8_t *seen, *disk;
    uint8_t *unflushed; /* a byte a sector */
    uint64_t seen_bytes, disk_bytes, capacity;
    bool lent; /* somebody may be changing `seen`: it is copied to `disk` before the next use */
};
struct sim_name {
    char name[SIM_NAME];
    uint32_t file;
};
struct sim_names {
    struct sim_name *entry;
    uint32_t count, capacity;
};
enum sim_change_kind { SIM_CREATE, SIM_RENAME, SIM_UNLINK };
struct sim_change {
    enum sim_change_kind kind;
    char name[SIM_NAME], to[SIM_NAME];
    uint32_t file;
};
struct sim_disk {
    struct sim_file *file; /* never removed, so that numbers stay good */
    uint32_t file_count, file_capacity;
    struct sim_names seen, disk;
    struct sim_change *change;
    uint32_t change_count, change_capacity;
    uint64_t capacity; /* bytes of all files together */
};

void sim_disk_init(struct sim_disk *disk);
void sim_disk_fini(struct sim_disk *disk);
void sim_disk_copy(struct sim_disk *to, const struct sim_disk *from);
/* File number, or -errno. */
int sim_disk_open(struct sim_disk *disk, const char *name, int flags);
int64_t sim_disk_read(const struct sim_disk *disk, uint32_t file, void *buffer, uint64_t bytes,
                      uint64_t offset);
/* 0, or -ENOSPC after a part. */
int sim_disk_write(struct sim_disk *disk, uint32_t file, const void *data, uint64_t bytes,
                   uint64_t offset);
void sim_disk_flush_range(struct sim_disk *disk, uint32_t file, uint64_t offset, uint64_t bytes);
void sim_disk_flush(struct sim_disk *disk, uint32_t file);
/* A flush that failed: each unflushed sector got to the platter or is gone, and reads, which go
 * past the cache, see which. */
void sim_disk_flush_failed(struct sim_disk *disk, uint32_t file, uint64_t *random);
void sim_disk_flush_names(struct sim_disk *disk);
int sim_disk_rename(struct sim_disk *disk, const char *from, const char *to);
int sim_disk_unlink(struct sim_disk *disk, const char *name);
uint64_t sim_disk_unflushed(const struct sim_disk *disk);
void sim_disk_crash(struct sim_disk *disk, const struct pawl_io_sim_choice *choice, uint64_t random,
                    struct pawl_io_sim_counts *counts);
/* The bytes that reads see, all flushed, to be changed by the caller. */
uint8_t *sim_disk_lend(struct sim_disk *disk, uint32_t file, uint64_t *bytes);
uint64_t sim_disk_used(const struct sim_disk *disk);
uint64_t sim_disk_digest(const struct sim_disk *disk);

#endif
