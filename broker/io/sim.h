/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_IO_SIM_H
#define PAWL_BROKER_IO_SIM_H

/* The simulated kind of io: one directory of files in memory, whose every 512-byte sector is either
 * flushed or not, with faults and delays from a seed. No threads, no clock but its own, no
 * readiness (watch_add returns -EOPNOTSUPP). Same seed and same calls give the same run.
 *
 * Time: pawl_io_sim_now() is the only clock. wait(timeout) jumps to the next completion that is due
 * within the timeout, or else forward by the whole timeout; wait(0) runs only what is due now. A
 * wait without end and with nothing to come returns -EDEADLK, and what was stuck is forgotten: done
 * is never called, the buffer is not looked at again.
 *
 * Life of a write: submitted → (due) its bytes are taken from the caller's buffer and become
 * visible to reads → done is called. What is visible is unflushed, sector by sector, until a
 * durable write or a flush of that file has covered it. Creating, renaming and unlinking are
 * unflushed until the directory is flushed.
 *
 * A crash: call pawl_io_sim_crash() or _kill() while the log still lives: the files become what a
 * disk would hold. From then on every operation fails with -EIO (those in flight too, at the next
 * wait), so that the log can be closed; then pawl_io_sim_restart() brings the disk back. */

#include "io/io.h"

/* Give this as pawl_log_options.dir. */
#define PAWL_IO_SIM_DIR 0x5a00

struct pawl_io *pawl_io_sim_create(uint64_t seed);
/* Destroy with io->ops->destroy(io). */

uint64_t pawl_io_sim_now(const struct pawl_io *io);
/* Moves the clock on; runs nothing. now never goes back. */
void pawl_io_sim_set_now(struct pawl_io *io, uint64_t now_ns);
/* When the next operation in flight will be done; UINT64_MAX: none (or only stuck ones). */
uint64_t pawl_io_sim_next(const struct pawl_io *io);

/* --- faults ---------------------------------------------------------------------------------- */

struct pawl_io_sim_faults {
    uint64_t latency_ns_min, latency_ns_max; /* of a write or flush; even, so completions reorder */
    uint64_t slow_ns;                        /* ... of one in a million × slow_ppm instead */
    uint32_t slow_ppm;
    uint32_t split_ppm; /* a short write, finished inside: two pieces at two times */
    uint32_t stuck_ppm; /* never completes (until crash) */
    uint32_t error_ppm; /* a write or flush fails with `error`, having written any part of it */
    int error;          /* -EIO, ... */
    /* What a crash does to an unflushed sector: kept, or the old content, else (of a million): */
    uint32_t zero_ppm, garbage_ppm;
};
/* All zero at first, but latency 50–150 µs. Applies to what is submitted from now on. */
void pawl_io_sim_set_faults(struct pawl_io *io, const struct pawl_io_sim_faults *faults);
/* Bytes that all files may hold together; a write that needs more gets -ENOSPC after a part.
 * UINT64_MAX (at first): no end. */
void pawl_io_sim_set_capacity(struct pawl_io *io, uint64_t bytes);

enum pawl_io_sim_kind {
    PAWL_IO_SIM_WRITE = 1,
    PAWL_IO_SIM_FLUSH = 2,
    PAWL_IO_SIM_OPEN = 4,
    PAWL_IO_SIM_READ = 8,
    PAWL_IO_SIM_RENAME = 16,
    PAWL_IO_SIM_UNLINK = 32,
    PAWL_IO_SIM_ALL = 63
};
/* What the operation that is hit gets. */
#define PAWL_IO_SIM_STUCK 1 /* never completes; of a blocking call: -EIO */
/* The nth (1: the next) operation of these kinds gets `error` (-errno or PAWL_IO_SIM_STUCK); for
 * ever: all after it too. nth 0: no more. */
void pawl_io_sim_fail_at(struct pawl_io *io, uint32_t kinds, uint64_t nth, int error,
                         bool for_ever);
/* Counts operations of these kinds since creation: to know how far N has to go. */
uint64_t pawl_io_sim_operations(const struct pawl_io *io, uint32_t kinds);

/* What happened, so that a run can prove that its faults were real. */
struct pawl_io_sim_counts {
    uint64_t writes, flushes, bytes, reordered, slow, split, stuck, errors, full;
    uint64_t crashes, kills;
    uint64_t sectors_kept, sectors_lost, sectors_zeroed, sectors_garbage; /* by crashes */
    uint64_t names_kept, names_lost;
};
void pawl_io_sim_counts(const struct pawl_io *io, struct pawl_io_sim_counts *out);

/* --- crashes --------------------------------------------------------------------------------- */

/* Power loss: each unflushed sector (of writes in flight too) is kept, lost or spoiled; any of the
 * unflushed changes of names survive. */
void pawl_io_sim_crash(struct pawl_io *io, uint64_t seed);
/* kill -9: what was completed stays visible (and unflushed), what is in flight happened or not. */
void pawl_io_sim_kill(struct pawl_io *io, uint64_t seed);

/* The same with every choice made by the caller, for the enumeration of images. */
enum pawl_io_sim_fate { PAWL_IO_SIM_KEEP, PAWL_IO_SIM_OLD, PAWL_IO_SIM_ZERO, PAWL_IO_SIM_GARBAGE };
struct pawl_io_sim_choice {
    void *ctx;
    /* index counts the unflushed sectors of all files in order */
    enum pawl_io_sim_fate (*sector)(void *ctx, uint64_t index);
    /* does this unflushed change of a name survive? In any mixture: a directory need not keep their
     * order. */
    bool (*name)(void *ctx, uint64_t index);
};
void pawl_io_sim_crash_by(struct pawl_io *io, const struct pawl_io_sim_choice *choice);
uint64_t pawl_io_sim_unflushed(const struct pawl_io *io); /* sectors, those in flight included */

void pawl_io_sim_restart(struct pawl_io *io);
/* A copy of the files as they are now, flushed and unflushed, with a clock and faults of its own.
 */
struct pawl_io *pawl_io_sim_clone(const struct pawl_io *io, uint64_t seed);

/* Operations put on the disk directly, outside of time: to build an image from a recording. file:
 * by order of creation. */
void pawl_io_sim_do_create(struct pawl_io *io, const char *name);
void pawl_io_sim_do_write(struct pawl_io *io, uint32_t file, const void *data, uint64_t bytes,
                          uint64_t offset);
void pawl_io_sim_do_flush(struct pawl_io *io, uint32_t file, uint64_t offset, uint64_t bytes);
void pawl_io_sim_do_flush_names(struct pawl_io *io);

/* --- bytes ----------------------------------------------------------------------------------- */

uint64_t pawl_io_sim_digest(const struct pawl_io *io); /* of all names and visible bytes */
/* The visible bytes, to look at or to damage; NULL: no such file. Valid until the next write. What
 * is changed there counts as flushed. */
uint8_t *pawl_io_sim_file(struct pawl_io *io, const char *name, uint64_t *bytes);
/* Replaces or makes a file, flushed; data NULL removes it. */
void pawl_io_sim_put(struct pawl_io *io, const char *name, const void *data, uint64_t bytes);

#endif
