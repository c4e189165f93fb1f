/* SPDX-License-Identifier: MIT */
/* Time and faults of the simulated io; the bytes are in sim_disk.c. */
#include "io/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"
#include "io/op.h"
#include "io/sim_disk.h"

#define HANDLES_MAX 4096
#define FD_FIRST 0x6000
#define FLIGHTS_MAX 256
#define KINDS 6
#define MILLION 1000000u

struct flight {
    struct pawl_io_op *op;
    uint64_t due, order;
    uint32_t kind; /* enum pawl_io_sim_kind */
    uint32_t file;
    bool dir, durable, split, stuck;
    int error;
};

struct sim {
    struct pawl_io io;
    struct sim_disk disk;
    struct pawl_prng prng;
    uint64_t now, order;
    struct flight flight[FLIGHTS_MAX];
    uint32_t flight_count;
    uint32_t handle[HANDLES_MAX]; /* file + 1; 0: free */
    bool dead;
    struct pawl_io_sim_faults faults;
    uint64_t operations[KINDS];
    struct {
        uint32_t kinds;
        uint64_t left;
        int error;
        bool for_ever;
    } at;
    struct pawl_io_sim_counts counts;
};

static struct sim *of(const struct pawl_io *io)
{
    return PAWL_CONTAINER((struct pawl_io *)(uintptr_t)io, struct sim, io);
}

static bool chance(struct sim *s, uint32_t ppm)
{
    return ppm > 0 && pawl_prng_below(&s->prng, MILLION) < ppm;
}

/* --- handles --------------------------------------------------------------------------------- */

static int handle_new(struct sim *s, uint32_t file)
{
    for (int i = 0; i < HANDLES_MAX; i++) {
        if (s->handle[i] == 0) {
            s->handle[i] = file + 1;
            return FD_FIRST + i;
        }
    }
    return -EMFILE;
}

static uint32_t file_of(struct sim *s, int fd)
{
    PAWL_ASSERT(fd >= FD_FIRST && fd < FD_FIRST + HANDLES_MAX);
    PAWL_ASSERT(s->handle[fd - FD_FIRST] != 0);
    return s->handle[fd - FD_FIRST] - 1;
}

/* --- faults ---------------------------------------------------------------------------------- */

/* Counts one operation; what befalls it: 0, -errno, or PAWL_IO_SIM_STUCK. */
static int befalls(struct sim *s, uint32_t kind)
{
    s->operations[__builtin_ctz(kind)]++;
    if (s->dead)
        return -EIO;
    if (!(s->at.kinds & kind) || s->at.left == 0)
        return 0;
    if (s->at.left > 1) {
        s->at.left--;
        return 0;
    }
    if (!s->at.for_ever)
        s->at.left = 0;
    return s->at.error;
}

static int befalls_now(struct sim *s, uint32_t kind)
{
    int error = befalls(s, kind);
    if (error)
        s->counts.errors++;
    return error == PAWL_IO_SIM_STUCK ? -EIO : error;
}

/* --- blocking calls -------------------------------------------------------------------------- */

static int sim_open(struct pawl_io *io, int dir, const char *name, int flags, unsigned mode,
                    bool direct, bool *is_direct)
{
    struct sim *s = of(io);
    int rc = befalls_now(s, PAWL_IO_SIM_OPEN);
    if (rc)
        return rc;
    PAWL_ASSERT_REL(dir, ==, PAWL_IO_SIM_DIR);
    *is_direct = direct;
    rc = sim_disk_open(&s->disk, name, flags);
    return rc < 0 ? rc : handle_new(s, (uint32_t)rc);
}

static void sim_close(struct pawl_io *io, int fd)
{
    struct sim *s = of(io);
    if (s->handle[fd - FD_FIRST] == 0 && s->dead)
        return;
    (void)file_of(s, fd);
    s->handle[fd - FD_FIRST] = 0;
}

static int64_t sim_read(struct pawl_io *io, int fd, void *buffer, size_t bytes, uint64_t offset)
{
    struct sim *s = of(io);
    int rc = befalls_now(s, PAWL_IO_SIM_READ);
    return rc ? rc : sim_disk_read(&s->disk, file_of(s, fd), buffer, bytes, offset);
}

static int64_t sim_size(struct pawl_io *io, int fd)
{
    struct sim *s = of(io);
    return s->dead ? -EIO : (int64_t)s->disk.file[file_of(s, fd)].seen_bytes;
}

static void do_flush(struct sim *s, bool dir, uint32_t file)
{
    s->counts.flushes++;
    if (dir)
        sim_disk_flush_names(&s->disk);
    else
        sim_disk_flush(&s->disk, file);
}

static int sim_flush_now(struct pawl_io *io, int fd)
{
    struct sim *s = of(io);
    bool dir = fd == PAWL_IO_SIM_DIR;
    int rc = befalls_now(s, PAWL_IO_SIM_FLUSH);
    if (rc == 0)
        do_flush(s, dir, dir ? 0 : file_of(s, fd));
    else if (!s->dead && !dir)
        sim_disk_flush_failed(&s->disk, file_of(s, fd), &s->prng.state);
    return rc;
}

static int sim_rename(struct pawl_io *io, int dir, const char *from, const char *to)
{
    int rc = befalls_now(of(io), PAWL_IO_SIM_RENAME);
    return rc ? rc : sim_disk_rename(&of(io)->disk, from, to);
}

static int sim_unlink(struct pawl_io *io, int dir, const char *name)
{
    int rc = befalls_now(of(io), PAWL_IO_SIM_UNLINK);
    return rc ? rc : sim_disk_unlink(&of(io)->disk, name);
}

static int sim_list(struct pawl_io *io, int dir, int (*each)(void *ctx, const char *name),
                    void *ctx)
{
    struct sim *s = of(io);
    if (s->dead)
        return -EIO;
    int rc = 0;
    for (uint32_t i = 0; i < s->disk.seen.count && rc == 0; i++)
        rc = each(ctx, s->disk.seen.entry[i].name);
    return rc;
}

/* --- operations in flight -------------------------------------------------------------------- */

static uint64_t latency(struct sim *s)
{
    if (chance(s, s->faults.slow_ppm)) {
        s->counts.slow++;
        return s->faults.slow_ns;
    }
    uint64_t span = s->faults.latency_ns_max - s->faults.latency_ns_min;
    return s->faults.latency_ns_min + pawl_prng_below(&s->prng, span + 1);
}

static void submit(struct sim *s, struct pawl_io_op *op, struct flight f)
{
    PAWL_ASSERT_REL(s->flight_count, <, FLIGHTS_MAX);
    f.op = op;
    f.order = s->order++;
    f.error = befalls(s, f.kind);
    if (f.error == PAWL_IO_SIM_STUCK || (f.error == 0 && chance(s, s->faults.stuck_ppm))) {
        f.stuck = true;
        f.error = 0;
    } else if (f.error == 0 && f.kind != PAWL_IO_SIM_OPEN && chance(s, s->faults.error_ppm)) {
        f.error = s->faults.error;
    }
    f.split = f.kind == PAWL_IO_SIM_WRITE && chance(s, s->faults.split_ppm);
    f.due = f.stuck ? UINT64_MAX : s->now + latency(s);
    s->counts.stuck += f.stuck;
    s->counts.errors += f.error != 0;
    s->flight[s->flight_count++] = f;
}

static void sim_write(struct pawl_io *io, struct pawl_io_op *op, int fd, const void *data,
                      size_t bytes, uint64_t offset, bool durable)
{
    pawl_op_init_write(op, fd, data, bytes, offset, durable, true);
    submit(of(io), op,
           (struct flight){
               .kind = PAWL_IO_SIM_WRITE, .file = file_of(of(io), fd), .durable = durable });
}

static void sim_flush(struct pawl_io *io, struct pawl_io_op *op, int fd)
{
    pawl_op_init_flush(op, fd);
    bool dir = fd == PAWL_IO_SIM_DIR;
    submit(of(io), op,
           (struct flight){
               .kind = PAWL_IO_SIM_FLUSH, .dir = dir, .file = dir ? 0 : file_of(of(io), fd) });
}

static void sim_open_later(struct pawl_io *io, struct pawl_io_op *op, int dir, const char *name,
                           int flags, unsigned mode, bool direct)
{
    pawl_op_init_open(op, dir, name, flags, mode, direct);
    submit(of(io), op, (struct flight){ .kind = PAWL_IO_SIM_OPEN });
}

static uint64_t some_pages(struct sim *s, uint64_t bytes)
{
    return pawl_prng_below(&s->prng, bytes / 4096 + 1) * 4096;
}

static int run_write(struct sim *s, struct flight *f)
{
    struct pawl_io_op *op = f->op;
    if (f->error) {
        (void)sim_disk_write(&s->disk, f->file, op->data, some_pages(s, op->bytes), op->offset);
        return f->error;
    }
    s->counts.writes++;
    s->counts.bytes += op->bytes;
    int rc = sim_disk_write(&s->disk, f->file, op->data, op->bytes, op->offset);
    if (rc == -ENOSPC)
        s->counts.full++;
    else if (f->durable)
        sim_disk_flush_range(&s->disk, f->file, op->offset, op->bytes);
    return rc;
}

static int run_flight(struct sim *s, struct flight *f)
{
    if (s->dead)
        return -EIO;
    switch (f->kind) {
    case PAWL_IO_SIM_WRITE:
        return run_write(s, f);
    case PAWL_IO_SIM_FLUSH:
        if (f->error == 0)
            do_flush(s, f->dir, f->file);
        else if (!f->dir)
            sim_disk_flush_failed(&s->disk, f->file, &s->prng.state);
        return f->error;
    default: {
        if (f->error)
            return f->error;
        int rc = sim_disk_open(&s->disk, (const char *)f->op->data, (int)f->op->offset);
        return rc < 0 ? rc : handle_new(s, (uint32_t)rc);
    }
    }
}

/* The one that is due first, of those due by `until`; NULL: none. */
static struct flight *first_due(struct sim *s, uint64_t until)
{
    struct flight *first = NULL;
    for (uint32_t i = 0; i < s->flight_count; i++) {
        struct flight *f = &s->flight[i];
        if (f->due <= until && f->due != UINT64_MAX &&
            (!first || f->due < first->due || (f->due == first->due && f->order < first->order)))
            first = f;
    }
    return first;
}

static void finish(struct sim *s, struct flight *f)
{
    struct flight over = *f;
    for (uint32_t i = 0; i < s->flight_count; i++) {
        if (s->flight[i].order < over.order) {
            s->counts.reordered++;
            break;
        }
    }
    int result = run_flight(s, &over);
    *f = s->flight[--s->flight_count];
    over.op->busy = false;
    over.op->done(over.op, result);
}

/* A short write: a part of it is there, the rest comes later. */
static bool split(struct sim *s, struct flight *f)
{
    if (!f->split || f->error)
        return false;
    f->split = false;
    s->counts.split++;
    (void)sim_disk_write(&s->disk, f->file, f->op->data, some_pages(s, f->op->bytes),
                         f->op->offset);
    f->due = s->now + latency(s);
    return true;
}

static int wait_dead(struct sim *s)
{
    int ran = 0;
    while (s->flight_count > 0) {
        s->flight[0].due = 0;
        finish(s, &s->flight[0]);
        ran++;
    }
    return ran;
}

/* Nobody can wait for these any more, so their buffers may go: they happen now, or not at all. */
static void forget(struct sim *s)
{
    while (s->flight_count > 0) {
        struct flight *f = &s->flight[--s->flight_count];
        if (f->kind == PAWL_IO_SIM_WRITE)
            (void)sim_disk_write(&s->disk, f->file, f->op->data, some_pages(s, f->op->bytes),
                                 f->op->offset);
    }
}

static int sim_wait(struct pawl_io *io, uint64_t timeout_ns)
{
    struct sim *s = of(io);
    if (s->dead && s->flight_count > 0)
        return wait_dead(s);
    int ran = 0;
    uint64_t until = pawl_add_sat(s->now, timeout_ns);
    for (;;) {
        struct flight *f = first_due(s, ran ? s->now : until);
        if (!f)
            break;
        s->now = pawl_max_u64(s->now, f->due);
        if (split(s, f))
            continue;
        finish(s, f);
        ran++;
    }
    if (ran == 0 && timeout_ns == UINT64_MAX) {
        forget(s);
        return -EDEADLK;
    }
    if (ran == 0)
        s->now = until;
    return ran;
}

static int sim_watch_add(struct pawl_io *io, struct pawl_io_watch *watch) { return -EOPNOTSUPP; }
static void sim_watch_remove(struct pawl_io *io, struct pawl_io_watch *watch) {}

static void sim_destroy(struct pawl_io *io)
{
    sim_disk_fini(&of(io)->disk);
    free(of(io));
}

static const struct pawl_io_ops sim_ops = {
    .name = "simulated",
    .destroy = sim_destroy,
    .file_open = sim_open,
    .file_close = sim_close,
    .file_read = sim_read,
    .file_size = sim_size,
    .file_flush = sim_flush_now,
    .file_rename = sim_rename,
    .file_unlink = sim_unlink,
    .dir_list = sim_list,
    .write = sim_write,
    .flush = sim_flush,
    .open = sim_open_later,
    .watch_add = sim_watch_add,
    .watch_remove = sim_watch_remove,
    .wait = sim_wait,
};

static struct sim *sim_new(uint64_t seed)
{
    struct sim *s = calloc(1, sizeof *s);
    PAWL_ASSERT(s != NULL);
    s->io.ops = &sim_ops;
    s->prng.state = seed;
    s->faults.latency_ns_min = 50000;
    s->faults.latency_ns_max = 150000;
    return s;
}

struct pawl_io *pawl_io_sim_create(uint64_t seed)
{
    struct sim *s = sim_new(seed);
    sim_disk_init(&s->disk);
    return &s->io;
}

struct pawl_io *pawl_io_sim_clone(const struct pawl_io *io, uint64_t seed)
{
    struct sim *s = sim_new(seed);
    sim_disk_copy(&s->disk, &of(io)->disk);
    s->now = of(io)->now;
    return &s->io;
}

/* --- for the simulator ----------------------------------------------------------------------- */

uint64_t pawl_io_sim_now(const struct pawl_io *io) { return of(io)->now; }
void pawl_io_sim_set_now(struct pawl_io *io, uint64_t now_ns)
{
    of(io)->now = pawl_max_u64(of(io)->now, now_ns);
}

uint64_t pawl_io_sim_next(const struct pawl_io *io)
{
    const struct flight *f = first_due(of(io), UINT64_MAX);
    return f ? f->due : UINT64_MAX;
}

void pawl_io_sim_set_faults(struct pawl_io *io, const struct pawl_io_sim_faults *faults)
{
    PAWL_ASSERT_REL(faults->latency_ns_min, <=, faults->latency_ns_max);
    PAWL_ASSERT(faults->error_ppm == 0 || faults->error < 0);
    of(io)->faults = *faults;
}

void pawl_io_sim_set_capacity(struct pawl_io *io, uint64_t bytes) { of(io)->disk.capacity = bytes; }

void pawl_io_sim_fail_at(struct pawl_io *io, uint32_t kinds, uint64_t nth, int error, bool for_ever)
{
    PAWL_ASSERT(nth == 0 || error < 0 || error == PAWL_IO_SIM_STUCK);
    struct sim *s = of(io);
    s->at.kinds = kinds;
    s->at.left = nth;
    s->at.error = error;
    s->at.for_ever = for_ever;
}

uint64_t pawl_io_sim_operations(const struct pawl_io *io, uint32_t kinds)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < KINDS; i++)
        if (kinds & (1u << i))
            sum += of(io)->operations[i];
    return sum;
}

void pawl_io_sim_counts(const struct pawl_io *io, struct pawl_io_sim_counts *out)
{
    *out = of(io)->counts;
}

/* --- crashes --------------------------------------------------------------------------------- */

/* What is in flight may have happened in part: it becomes unflushed bytes. */
static void land_all(struct sim *s)
{
    for (uint32_t i = 0; i < s->flight_count; i++) {
        struct flight *f = &s->flight[i];
        if (f->kind == PAWL_IO_SIM_WRITE)
            (void)sim_disk_write(&s->disk, f->file, f->op->data, f->op->bytes, f->op->offset);
    }
}

void pawl_io_sim_crash_by(struct pawl_io *io, const struct pawl_io_sim_choice *choice)
{
    struct sim *s = of(io);
    PAWL_ASSERT(!s->dead);
    land_all(s);
    sim_disk_crash(&s->disk, choice, pawl_prng_next(&s->prng), &s->counts);
    s->counts.crashes++;
    s->dead = true;
}

struct by_chance {
    struct pawl_prng prng;
    uint32_t keep_ppm, zero_ppm, garbage_ppm;
};

static enum pawl_io_sim_fate sector_by_chance(void *ctx, uint64_t index)
{
    struct by_chance *c = ctx;
    uint64_t n = pawl_prng_below(&c->prng, MILLION);
    if (n < c->zero_ppm)
        return PAWL_IO_SIM_ZERO;
    if (n < (uint64_t)c->zero_ppm + c->garbage_ppm)
        return PAWL_IO_SIM_GARBAGE;
    return pawl_prng_below(&c->prng, MILLION) < c->keep_ppm ? PAWL_IO_SIM_KEEP : PAWL_IO_SIM_OLD;
}

static bool name_by_chance(void *ctx, uint64_t index)
{
    return pawl_prng_below(&((struct by_chance *)ctx)->prng, 2);
}

void pawl_io_sim_crash(struct pawl_io *io, uint64_t seed)
{
    struct sim *s = of(io);
    struct by_chance c = { .prng = { seed },
                           .zero_ppm = s->faults.zero_ppm,
                           .garbage_ppm = s->faults.garbage_ppm };
    /* Nearly nothing, nearly all, or anything between: each finds other mistakes. */
    static const uint32_t keep[] = { 0, 50000, 500000, 500000, 950000, MILLION };
    c.keep_ppm = keep[pawl_prng_below(&c.prng, PAWL_COUNT(keep))];
    struct pawl_io_sim_choice choice = { .ctx = &c,
                                         .sector = sector_by_chance,
                                         .name = name_by_chance };
    pawl_io_sim_crash_by(io, &choice);
}

void pawl_io_sim_kill(struct pawl_io *io, uint64_t seed)
{
    struct sim *s = of(io);
    PAWL_ASSERT(!s->dead);
    struct pawl_prng prng = { seed };
    for (uint32_t i = 0; i < s->flight_count; i++) {
        struct flight *f = &s->flight[i];
        if (f->kind != PAWL_IO_SIM_WRITE)
            continue;
        uint64_t sectors = f->op->bytes / SIM_SECTOR;
        uint64_t how = pawl_prng_below(&prng, 3); /* none, all, or some sectors */
        for (uint64_t n = 0; n < sectors; n++)
            if (how == 1 || (how == 2 && pawl_prng_below(&prng, 2)))
                (void)sim_disk_write(&s->disk, f->file, f->op->data + n * SIM_SECTOR, SIM_SECTOR,
                                     f->op->offset + n * SIM_SECTOR);
    }
    s->counts.kills++;
    s->dead = true;
}

uint64_t pawl_io_sim_unflushed(const struct pawl_io *io)
{
    struct sim *s = of(io);
    /* Those in flight count once, even where the sector is unflushed already. */
    uint64_t count = sim_disk_unflushed(&s->disk);
    for (uint32_t i = 0; i < s->flight_count; i++) {
        const struct flight *f = &s->flight[i];
        if (f->kind != PAWL_IO_SIM_WRITE)
            continue;
        const struct sim_file *file = &s->disk.file[f->file];
        for (uint64_t at = f->op->offset; at < f->op->offset + f->op->bytes; at += SIM_SECTOR)
            count += at >= file->capacity || !file->unflushed[at / SIM_SECTOR];
    }
    return count;
}

void pawl_io_sim_restart(struct pawl_io *io)
{
    struct sim *s = of(io);
    PAWL_ASSERT(s->dead);
    /* The log must have been closed: it would hear of these from a disk that knows nothing of
     * them. */
    PAWL_ASSERT_REL(s->flight_count, ==, 0);
    memset(s->handle, 0, sizeof s->handle);
    s->dead = false;
    s->at.left = 0;
}

void pawl_io_sim_do_create(struct pawl_io *io, const char *name)
{
    int file = sim_disk_open(&of(io)->disk, name, O_CREAT | O_EXCL);
    PAWL_ASSERT(file >= 0);
}
void pawl_io_sim_do_write(struct pawl_io *io, uint32_t file, const void *data, uint64_t bytes,
                          uint64_t offset)
{
    int rc = sim_disk_write(&of(io)->disk, file, data, bytes, offset);
    PAWL_ASSERT_REL(rc, ==, 0);
}
void pawl_io_sim_do_flush(struct pawl_io *io, uint32_t file, uint64_t offset, uint64_t bytes)
{
    sim_disk_flush_range(&of(io)->disk, file, offset, bytes);
}
void pawl_io_sim_do_flush_names(struct pawl_io *io) { sim_disk_flush_names(&of(io)->disk); }

/* --- bytes ----------------------------------------------------------------------------------- */

uint64_t pawl_io_sim_digest(const struct pawl_io *io) { return sim_disk_digest(&of(io)->disk); }

uint8_t *pawl_io_sim_file(struct pawl_io *io, const char *name, uint64_t *bytes)
{
    struct sim *s = of(io);
    int file = sim_disk_open(&s->disk, name, 0);
    if (file < 0)
        return NULL;
    return sim_disk_lend(&s->disk, (uint32_t)file, bytes);
}

void pawl_io_sim_put(struct pawl_io *io, const char *name, const void *data, uint64_t bytes)
{
    struct sim *s = of(io);
    (void)sim_disk_unlink(&s->disk, name); /* it need not have been there */
    if (data) {
        int file = sim_disk_open(&s->disk, name, O_CREAT);
        uint64_t capacity = s->disk.capacity;
        s->disk.capacity = UINT64_MAX;
        (void)sim_disk_write(&s->disk, (uint32_t)file, data, bytes, 0);
        s->disk.capacity = capacity;
        sim_disk_flush(&s->disk, (uint32_t)file);
    }
    sim_disk_flush_names(&s->disk);
}
