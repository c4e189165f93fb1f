/* SPDX-License-Identifier: MIT */
#include "io/sim_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/hash.h"
#include "base/prng.h"

/* A simulator without memory has nothing to say. */
static void *grown(void *p, uint64_t bytes)
{
    p = realloc(p, bytes);
    PAWL_ASSERT(p != NULL);
    return p;
}

void sim_disk_init(struct sim_disk *disk) { *disk = (struct sim_disk){ .capacity = UINT64_MAX }; }

void sim_disk_fini(struct sim_disk *disk)
{
    for (uint32_t i = 0; i < disk->file_count; i++) {
        free(disk->file[i].seen);
        free(disk->file[i].disk);
        free(disk->file[i].unflushed);
    }
    free(disk->file);
    free(disk->seen.entry);
    free(disk->disk.entry);
    free(disk->change);
}

static void take_back(struct sim_file *f);

static void *copy_of(const void *from, uint64_t bytes)
{
    void *p = grown(NULL, bytes ? bytes : 1);
    if (bytes)
        memcpy(p, from, bytes);
    return p;
}

static void names_copy(struct sim_names *to, const struct sim_names *from)
{
    to->entry = copy_of(from->entry, from->count * sizeof *from->entry);
    to->count = to->capacity = from->count;
}

void sim_disk_copy(struct sim_disk *to, const struct sim_disk *from)
{
    *to = *from;
    to->file = copy_of(from->file, from->file_count * sizeof *from->file);
    to->file_capacity = from->file_count;
    for (uint32_t i = 0; i < from->file_count; i++) {
        struct sim_file *f = &from->file[i];
        take_back(f);
        to->file[i].seen = copy_of(f->seen, f->capacity);
        to->file[i].disk = copy_of(f->disk, f->capacity);
        to->file[i].unflushed = copy_of(f->unflushed, f->capacity / SIM_SECTOR);
    }
    names_copy(&to->seen, &from->seen);
    names_copy(&to->disk, &from->disk);
    to->change = copy_of(from->change, from->change_count * sizeof *from->change);
    to->change_capacity = from->change_count;
}

/* --- names ----------------------------------------------------------------------------------- */

static struct sim_name *names_find(const struct sim_names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++)
        if (strcmp(names->entry[i].name, name) == 0)
            return &names->entry[i];
    return NULL;
}

static void names_remove(struct sim_names *names, const char *name)
{
    struct sim_name *n = names_find(names, name);
    if (n)
        *n = names->entry[--names->count];
}

static void names_put(struct sim_names *names, const char *name, uint32_t file)
{
    names_remove(names, name);
    if (names->count == names->capacity) {
        names->capacity = names->capacity ? names->capacity * 2 : 16;
        names->entry = grown(names->entry, names->capacity * sizeof *names->entry);
    }
    struct sim_name *n = &names->entry[names->count++];
    snprintf(n->name, sizeof n->name, "%s", name);
    n->file = file;
}

static void apply(struct sim_names *names, const struct sim_change *c)
{
    struct sim_name *n;
    switch (c->kind) {
    case SIM_CREATE:
        names_put(names, c->name, c->file);
        break;
    case SIM_RENAME:
        n = names_find(names, c->name);
        if (n) {
            uint32_t file = n->file;
            names_remove(names, c->name);
            names_put(names, c->to, file);
        }
        break;
    case SIM_UNLINK:
        names_remove(names, c->name);
        break;
    }
}

static void change(struct sim_disk *disk, enum sim_change_kind kind, const char *name,
                   const char *to, uint32_t file)
{
    if (disk->change_count == disk->change_capacity) {
        disk->change_capacity = disk->change_capacity ? disk->change_capacity * 2 : 16;
        disk->change = grown(disk->change, disk->change_capacity * sizeof *disk->change);
    }
    struct sim_change *c = &disk->change[disk->change_count++];
    *c = (struct sim_change){ .kind = kind, .file = file };
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->to, sizeof c->to, "%s", to);
    apply(&disk->seen, c);
}

int sim_disk_open(struct sim_disk *disk, const char *name, int flags)
{
    PAWL_ASSERT(strlen(name) < SIM_NAME);
    struct sim_name *n = names_find(&disk->seen, name);
    if (n)
        return (flags & O_CREAT) && (flags & O_EXCL) ? -EEXIST : (int)n->file;
    if (!(flags & O_CREAT))
        return -ENOENT;
    if (disk->file_count == disk->file_capacity) {
        disk->file_capacity = disk->file_capacity ? disk->file_capacity * 2 : 16;
        disk->file = grown(disk->file, disk->file_capacity * sizeof *disk->file);
    }
    uint32_t file = disk->file_count++;
    disk->file[file] = (struct sim_file){ 0 };
    change(disk, SIM_CREATE, name, "", file);
    return (int)file;
}

int sim_disk_rename(struct sim_disk *disk, const char *from, const char *to)
{
    struct sim_name *n = names_find(&disk->seen, from);
    if (!n)
        return -ENOENT;
    change(disk, SIM_RENAME, from, to, n->file);
    return 0;
}

int sim_disk_unlink(struct sim_disk *disk, const char *name)
{
    struct sim_name *n = names_find(&disk->seen, name);
    if (!n)
        return -ENOENT;
    change(disk, SIM_UNLINK, name, "", n->file);
    return 0;
}

void sim_disk_flush_names(struct sim_disk *disk)
{
    for (uint32_t i = 0; i < disk->change_count; i++)
        apply(&disk->disk, &disk->change[i]);
    disk->change_count = 0;
}

/* --- bytes ----------------------------------------------------------------------------------- */

static struct sim_file *file_of(const struct sim_disk *disk, uint32_t file)
{
    PAWL_ASSERT_REL(file, <, disk->file_count);
    return &disk->file[file];
}

int64_t sim_disk_read(const struct sim_disk *disk, uint32_t file, void *buffer, uint64_t bytes,
                      uint64_t offset)
{
    struct sim_file *f = file_of(disk, file);
    if (offset >= f->seen_bytes)
        return 0;
    uint64_t n = pawl_min_u64(bytes, f->seen_bytes - offset);
    memcpy(buffer, f->seen + offset, n);
    return (int64_t)n;
}

uint64_t sim_disk_used(const struct sim_disk *disk)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < disk->seen.count; i++)
        used += file_of(disk, disk->seen.entry[i].file)->seen_bytes;
    return used;
}

static void take_back(struct sim_file *f)
{
    if (f->lent && f->capacity > 0)
        memcpy(f->disk, f->seen, f->capacity);
    f->lent = false;
}

uint8_t *sim_disk_lend(struct sim_disk *disk, uint32_t file, uint64_t *bytes)
{
    struct sim_file *f = file_of(disk, file);
    take_back(f);
    sim_disk_flush(disk, file);
    f->lent = true;
    *bytes = f->seen_bytes;
    return f->seen;
}

static void reach(struct sim_file *f, uint64_t end)
{
    if (end <= f->capacity)
        return;
    uint64_t capacity = f->capacity ? f->capacity : 4096;
    while (capacity < end)
        capacity *= 2;
    f->seen = grown(f->seen, capacity);
    f->disk = grown(f->disk, capacity);
    f->unflushed = grown(f->unflushed, capacity / SIM_SECTOR);
    memset(f->seen + f->capacity, 0, capacity - f->capacity);
    memset(f->disk + f->capacity, 0, capacity - f->capacity);
    memset(f->unflushed + f->capacity / SIM_SECTOR, 0, (capacity - f->capacity) / SIM_SECTOR);
    f->capacity = capacity;
}

int sim_disk_write(struct sim_disk *disk, uint32_t file, const void *data, uint64_t bytes,
                   uint64_t offset)
{
    struct sim_file *f = file_of(disk, file);
    take_back(f);
    int rc = 0;
    uint64_t end = offset + bytes;
    if (end > f->seen_bytes && disk->capacity != UINT64_MAX) {
        uint64_t used = sim_disk_used(disk);
        uint64_t left = used < disk->capacity ? disk->capacity - used : 0;
        if (end - f->seen_bytes > left) {
            end = pawl_max_u64(offset, (f->seen_bytes + left) & ~(uint64_t)(SIM_SECTOR - 1));
            rc = -ENOSPC;
        }
    }
    if (end <= offset)
        return rc;
    reach(f, end);
    memcpy(f->seen + offset, data, end - offset);
    f->seen_bytes = pawl_max_u64(f->seen_bytes, end);
    memset(f->unflushed + offset / SIM_SECTOR, 1,
           (end + SIM_SECTOR - 1) / SIM_SECTOR - offset / SIM_SECTOR);
    return rc;
}

void sim_disk_flush_range(struct sim_disk *disk, uint32_t file, uint64_t offset, uint64_t bytes)
{
    struct sim_file *f = file_of(disk, file);
    take_back(f);
    uint64_t end = pawl_min_u64(offset + bytes, f->seen_bytes);
    if (end <= offset)
        return;
    memcpy(f->disk + offset, f->seen + offset, end - offset);
    memset(f->unflushed + offset / SIM_SECTOR, 0,
           (end + SIM_SECTOR - 1) / SIM_SECTOR - offset / SIM_SECTOR);
    f->disk_bytes = pawl_max_u64(f->disk_bytes, end);
}

void sim_disk_flush(struct sim_disk *disk, uint32_t file)
{
    sim_disk_flush_range(disk, file, 0, UINT64_MAX / 2);
}

void sim_disk_flush_failed(struct sim_disk *disk, uint32_t file, uint64_t *random)
{
    struct sim_file *f = file_of(disk, file);
    take_back(f);
    struct pawl_prng prng = { *random };
    for (uint64_t s = 0; s < f->capacity / SIM_SECTOR; s++) {
        if (!f->unflushed[s])
            continue;
        uint8_t *seen = f->seen + s * SIM_SECTOR, *old = f->disk + s * SIM_SECTOR;
        if (pawl_prng_below(&prng, 2))
            memcpy(old, seen, SIM_SECTOR);
        else
            memcpy(seen, old, SIM_SECTOR);
        f->unflushed[s] = 0;
    }
    f->disk_bytes = f->seen_bytes;
    *random = prng.state;
}

uint64_t sim_disk_unflushed(const struct sim_disk *disk)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < disk->file_count; i++)
        for (uint64_t s = 0; s < disk->file[i].capacity / SIM_SECTOR; s++)
            count += disk->file[i].unflushed[s];
    return count;
}

/* --- crash ----------------------------------------------------------------------------------- */

static void crash_file(struct sim_file *f, const struct pawl_io_sim_choice *choice,
                       struct pawl_prng *prng, uint64_t *index, struct pawl_io_sim_counts *counts)
{
    take_back(f);
    uint64_t bytes = f->disk_bytes;
    for (uint64_t s = 0; s < f->capacity / SIM_SECTOR; s++) {
        if (!f->unflushed[s])
            continue;
        f->unflushed[s] = 0;
        uint8_t *disk = f->disk + s * SIM_SECTOR;
        switch (choice->sector(choice->ctx, (*index)++)) {
        case PAWL_IO_SIM_OLD:
            counts->sectors_lost++;
            continue;
        case PAWL_IO_SIM_KEEP:
            memcpy(disk, f->seen + s * SIM_SECTOR, SIM_SECTOR);
            counts->sectors_kept++;
            break;
        case PAWL_IO_SIM_ZERO:
            memset(disk, 0, SIM_SECTOR);
            counts->sectors_zeroed++;
            break;
        case PAWL_IO_SIM_GARBAGE:
            for (unsigned i = 0; i < SIM_SECTOR; i += 8) {
                uint64_t word = pawl_prng_next(prng);
                memcpy(disk + i, &word, sizeof word);
            }
            counts->sectors_garbage++;
            break;
        }
        /* Something of the grown part is there, so the size is too. */
        bytes = pawl_max_u64(bytes, pawl_min_u64((s + 1) * SIM_SECTOR, f->seen_bytes));
    }
    /* Or the size alone: a file may grow before its data arrives. */
    if (bytes < f->seen_bytes && pawl_prng_below(prng, 2))
        bytes = f->seen_bytes;
    f->disk_bytes = f->seen_bytes = bytes;
    if (f->capacity > 0) {
        memset(f->disk + bytes, 0, f->capacity - bytes);
        memcpy(f->seen, f->disk, f->capacity);
    }
}

void sim_disk_crash(struct sim_disk *disk, const struct pawl_io_sim_choice *choice, uint64_t random,
                    struct pawl_io_sim_counts *counts)
{
    struct pawl_prng prng = { random };
    uint64_t index = 0;
    for (uint32_t i = 0; i < disk->change_count; i++) {
        if (choice->name(choice->ctx, i)) {
            apply(&disk->disk, &disk->change[i]);
            counts->names_kept++;
        } else {
            counts->names_lost++;
        }
    }
    disk->change_count = 0;
    free(disk->seen.entry);
    names_copy(&disk->seen, &disk->disk);
    for (uint32_t i = 0; i < disk->file_count; i++)
        crash_file(&disk->file[i], choice, &prng, &index, counts);
}

uint64_t sim_disk_digest(const struct sim_disk *disk)
{
    uint64_t sum = 0; /* of hashes, so that the order of names does not count */
    for (uint32_t i = 0; i < disk->seen.count; i++) {
        const struct sim_name *n = &disk->seen.entry[i];
        const struct sim_file *f = file_of(disk, n->file);
        sum += pawl_hash64(f->seen, f->seen_bytes, pawl_hash64(n->name, strlen(n->name), 7));
    }
    return sum;
}
