/* SPDX-License-Identifier: MIT */
/* S14 and the cost of a flush, as figures: prints, checks what was recovered, bounds no time. A
 * small log by default; PAWL_SPEED_MIB=1024 for the measured one, with TMPDIR on the disk in
 * question. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/log_rig.h"

#define SAMPLES_MAX 5000u

static uint64_t sample[SAMPLES_MAX];

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_samples(const char *what, unsigned count)
{
    qsort(sample, count, sizeof sample[0], by_value);
    printf("%-34s p50 %.1f us, p99 %.1f us, of %u\n", what, (double)sample[count / 2] / 1e3,
           (double)sample[count * 99 / 100] / 1e3, count);
}

struct counted {
    uint64_t records, bytes;
};
static int count(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    struct counted *c = ctx;
    c->records++;
    c->bytes += bytes;
    return 0;
}

static bool turn(struct pawl_io *io, struct pawl_log *log)
{
    int rc = io->ops->wait(io, 0);
    if (rc == 0)
        sched_yield(); /* a tight spin starves the disk's completion */
    pawl_log_tend(log, pawl_clock_boot());
    return rc >= 0 && !pawl_log_failed(log);
}

static struct pawl_log *open_log(struct pawl_io *io, int dir, uint64_t bytes, struct counted *seen,
                                 struct pawl_log_info *info)
{
    struct pawl_log_options o = { .dir = dir,
                                  .segment_bytes = bytes >= 1ull << 29 ? 64 << 20 : 4 << 20,
                                  .max_bytes = bytes * 2 + (256 << 20),
                                  .block_bytes = 256 << 10,
                                  .in_flight_max = 2,
                                  .record_bytes_max = 1 << 20,
                                  .boot_ns = pawl_clock_boot(),
                                  .wall_ns = pawl_clock_wall() };
    struct pawl_log *log;
    char text[PAWL_LOG_TEXT_BYTES];
    *seen = (struct counted){ 0 };
    if (pawl_log_open(io, &o, count, seen, &log, info, text) != PAWL_LOG_OK) {
        fprintf(stderr, "%s\n", text);
        return NULL;
    }
    return log;
}

/* Full blocks of small records, two in flight. Returns how many records; 0: failed. */
static uint64_t fill(struct pawl_io *io, struct pawl_log *log, uint64_t bytes)
{
    uint64_t records = 0, lsn, from = pawl_clock_boot(), first = pawl_log_appended(log);
    uint64_t in_append = 0;
    while (pawl_log_appended(log) - first < bytes) {
        uint64_t start = pawl_clock_boot();
        for (unsigned i = 0; i < 64 && pawl_log_room(log) >= 200 + PAWL_LOG_RECORD_HEAD; i++) {
            *(uint64_t *)pawl_log_append(log, 1, 200, &lsn) = records;
            records++;
        }
        in_append += pawl_clock_boot() - start;
        if (pawl_log_room(log) < 200 + PAWL_LOG_RECORD_HEAD) {
            pawl_log_seal(log, start, start, 1);
            if (!turn(io, log))
                return 0;
        }
    }
    do
        pawl_log_seal(log, 1, 1, 1);
    while (turn(io, log) && (pawl_log_pending(log) || pawl_log_in_flight(log)));
    uint64_t took = pawl_clock_boot() - from;
    printf("%-34s %.0f MB/s; append %.1f ns a record of 200 bytes\n", "fill, 256 KiB blocks",
           (double)bytes * 1e3 / (double)took, (double)in_append / (double)records);
    return records;
}

/* One small record a flush, one in flight. */
static bool flush_one_by_one(struct pawl_io *io, struct pawl_log *log, unsigned times)
{
    uint64_t lsn;
    for (unsigned i = 0; i < times; i++) {
        while (pawl_log_room(log) < 300)
            if (!turn(io, log))
                return false;
        uint64_t start = pawl_clock_boot();
        memset(pawl_log_append(log, 1, 200, &lsn), 1, 200);
        pawl_log_seal(log, start, start, 1);
        while (pawl_log_durable(log) <= lsn)
            if (!turn(io, log))
                return false;
        sample[i] = pawl_clock_boot() - start;
    }
    print_samples(io->ops->name[0] == 'u' ? "log, 200 B, one in flight, uring"
                                          : "log, 200 B, one in flight, posix",
                  times);
    return true;
}

struct bare {
    struct pawl_io_op op;
    int result;
};
static void bare_done(struct pawl_io_op *op, int result)
{
    ((struct bare *)(void *)op)->result = result;
}

/* The device alone: 4 KiB into a file of zeros, the same way. */
static bool bare_device(struct pawl_io *io, int dir, unsigned times)
{
    bool direct;
    uint8_t *page = aligned_alloc(4096, 1 << 20);
    struct bare b = { .op.done = bare_done, .result = -1 };
    int fd = io->ops->file_open(io, dir, "bare", O_RDWR | O_CREAT, 0600, true, &direct);
    if (fd < 0 || !page)
        return false;
    memset(page, 0, 1 << 20);
    for (unsigned i = 0; i <= times / 256; i++) {
        io->ops->write(io, &b.op, fd, page, 1 << 20, (uint64_t)i << 20, false);
        while (b.op.busy)
            if (io->ops->wait(io, UINT64_MAX) < 0)
                return false;
    }
    if (io->ops->file_flush(io, fd) != 0)
        return false;
    for (unsigned i = 0; i < times; i++) {
        uint64_t start = pawl_clock_boot();
        io->ops->write(io, &b.op, fd, page, 4096, (uint64_t)i * 4096, true);
        while (b.op.busy) {
            int rc = io->ops->wait(io, 0);
            if (rc < 0)
                return false;
            if (rc == 0)
                sched_yield();
        }
        sample[i] = pawl_clock_boot() - start;
        if (b.result != 0)
            return false;
    }
    io->ops->file_close(io, fd);
    free(page);
    print_samples(direct ? "bare, 4 KiB, one in flight, direct" : "bare, 4 KiB, buffered", times);
    return true;
}

static bool recover(struct pawl_io *io, int dir, uint64_t bytes, uint64_t records)
{
    struct counted seen;
    struct pawl_log_info info;
    uint64_t from = pawl_clock_boot();
    struct pawl_log *log = open_log(io, dir, bytes, &seen, &info);
    uint64_t took = pawl_clock_boot() - from;
    if (!log)
        return false;
    printf("%-34s %.0f MB/s: %" PRIu64 " records, %" PRIu64 " bytes of log in %.3f s\n", "recovery",
           (double)info.tail * 1e3 / (double)took, seen.records, info.tail, (double)took / 1e9);
    pawl_log_close(log);
    return seen.records == records;
}

int main(void)
{
    alarm(600);
    const char *s = getenv("PAWL_SPEED_MIB");
    uint64_t bytes = (s ? strtoull(s, NULL, 0) : 16) << 20;
    unsigned times = s ? SAMPLES_MAX : 50;
    char path[64], why[256];
    int dir = rig_dir_make(path);
    bool good = dir >= 0;
    uint64_t records = 0;
    for (unsigned kind = 0; kind < 2 && good; kind++) {
        struct pawl_io *io = kind == 0 ? pawl_io_uring_create(why) : pawl_io_posix_create(why);
        if (!io) {
            printf("skip: %s\n", why);
            continue;
        }
        struct counted seen;
        struct pawl_log_info info;
        good = bare_device(io, dir, times);
        struct pawl_log *log = good ? open_log(io, dir, bytes, &seen, &info) : NULL;
        good = log != NULL && seen.records == records;
        if (good)
            good = flush_one_by_one(io, log, times) && bare_device(io, dir, times);
        records += times;
        if (good && kind == 0) {
            uint64_t filled = fill(io, log, bytes);
            good = filled > 0;
            records += filled;
        }
        pawl_log_close(log);
        good = good && recover(io, dir, bytes, records);
        io->ops->destroy(io);
    }
    close(dir);
    rig_dir_remove(path);
    if (!good)
        fprintf(stderr, "failed\n");
    return good ? 0 : 1;
}
