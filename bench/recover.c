/* SPDX-License-Identifier: MIT */
/* recover: how long a broker needs to be there again. A log of the wanted size, all of it live, is
 * made through a broker, which is then killed with SIGKILL; each repeat opens it in a process of
 * its own through the library, as pawld does, and asks the broker what it found: every message that
 * was answered must be there. Beside it the same files are just read, with O_DIRECT, 1 MiB at a
 * time: the disk's own limit. */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fill.h"
#include "pawld.h"

struct recover_run {
    const struct bench *b;
    struct bench_broker broker;
    uint32_t body_bytes;
    uint64_t sent;
    uint64_t open_ns, recovery_ns, bytes, records, messages;
    uint64_t read_bytes, read_ns;
};

static void fill_child(void *arg)
{
    struct recover_run *run = arg;
    struct bench_client_options o = { .ring_bytes = 1 << 20 };
    struct pawl *lane = bench_client(&run->broker, &o);
    bench_queue(lane, "recover", PAWL_DURABLE);
    struct bench_fill f = { .queue = "recover",
                            .body_bytes = run->body_bytes,
                            .window = 1024,
                            .count = UINT64_MAX,
                            .lsn_max = run->b->recover_bytes };
    bench_fill(lane, &f);
    run->sent = f.sent;
    pawl_close(lane);
}

static void say_nothing(void *ctx, const char *line) { (void)ctx, (void)line; }

static void open_child(void *arg)
{
    struct recover_run *run = arg;
    struct pawld_options o = PAWLD_OPTIONS_INIT;
    struct pawld_stats stats = { .size = sizeof(stats) };
    struct pawld *broker;
    char why[PAWLD_TEXT_BYTES];
    o.dir = run->broker.dir;
    o.memory_bytes = 12ull << 30;
    o.max_log_bytes = 5 * run->b->recover_bytes + (1ull << 30);
    o.say = say_nothing;
    uint64_t start = bench_now();
    if (pawld_create(&o, &broker, why) != PAWLD_OK)
        bench_fail("recovery: %s", why);
    run->open_ns = bench_now() - start;
    pawld_stats(broker, &stats);
    run->recovery_ns = stats.recovery_ns;
    run->bytes = stats.recovered_bytes;
    run->records = stats.recovered_records;
    run->messages = stats.messages;
    pawld_destroy(broker);
}

static void read_file(struct recover_run *run, int dir, const char *name, uint8_t *buffer,
                      size_t bytes)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        return; /* not a file to be read so; the segments are */
    uint64_t start = bench_now();
    ssize_t n;
    while (run->read_bytes < run->b->recover_bytes && (n = read(fd, buffer, bytes)) > 0)
        run->read_bytes += (uint64_t)n;
    run->read_ns += bench_now() - start;
    close(fd);
}

static void read_child(void *arg)
{
    struct recover_run *run = arg;
    enum { BYTES = 1 << 20 };
    char path[sizeof(run->broker.dir) + 8];
    snprintf(path, sizeof(path), "%s/log", run->broker.dir);
    uint8_t *buffer = aligned_alloc(4096, BYTES);
    DIR *d = opendir(path);
    if (buffer == NULL || d == NULL)
        bench_fail("%s: %s", path, strerror(errno));
    struct dirent *e;
    while ((e = readdir(d)) != NULL)
        if (strstr(e->d_name, ".seg") != NULL)
            read_file(run, dirfd(d), e->d_name, buffer, BYTES);
    closedir(d);
    free(buffer);
}

static void recover_case(const struct bench *b, uint32_t body_bytes)
{
    struct bench_result seconds, rate, records, disk;
    bench_result_init(&seconds, "recover", "s", "open_%u", body_bytes);
    bench_result_init(&rate, "recover", "MB/s", "log_%u", body_bytes);
    bench_result_init(&records, "recover", "records/s", "records_%u", body_bytes);
    bench_result_init(&disk, "recover", "MB/s", "bare_read_%u", body_bytes);
    seconds.cores = rate.cores = records.cores = disk.cores = 1;
    if (!b->small)
        bench_result_aim(&rate, "value", BENCH_AT_LEAST, 500);
    if (!bench_wanted(b, "recover", rate.name) && !bench_wanted(b, "recover", seconds.name))
        return;
    struct recover_run *run = bench_share(sizeof(*run));
    char max_log[32];
    run->b = b;
    run->body_bytes = body_bytes;
    snprintf(max_log, sizeof(max_log), "%lluM",
             (unsigned long long)((5 * b->recover_bytes + (1ull << 30)) >> 20));
    struct bench_broker_options o = { .core = b->broker_core, .memory = "12G", .max_log = max_log };
    bench_broker_start(b, &run->broker, &o);
    bench_join(bench_spawn(b->client_core, fill_child, run), "filler");
    bench_broker_kill(&run->broker);
    struct bench_repeats r = { 0 };
    while (bench_repeat_next(b, &r)) {
        run->read_bytes = run->read_ns = 0;
        bench_join(bench_spawn(b->broker_core, read_child, run), "reader");
        bench_join(bench_spawn(b->broker_core, open_child, run), "recovery");
        if (run->messages != run->sent)
            bench_fail("recovery found %llu of %llu messages", (unsigned long long)run->messages,
                       (unsigned long long)run->sent);
        if (!bench_repeat_keep(b, &r))
            continue;
        bench_result_value(&seconds, (double)run->open_ns / 1e9);
        bench_result_value(&rate, (double)run->bytes * 1e3 / (double)run->open_ns);
        bench_result_value(&records, (double)run->records * 1e9 / (double)run->open_ns);
        bench_result_value(&disk, (double)run->read_bytes * 1e3 / (double)run->read_ns);
    }
    bench_result_note(&seconds, "%llu MiB, %llu messages, %.3f s of it recovery",
                      (unsigned long long)(run->bytes >> 20), (unsigned long long)run->messages,
                      (double)run->recovery_ns / 1e9);
    seconds.far = rate.far = records.far = disk.far = r.far;
    bench_result_print(b, &seconds);
    bench_result_print(b, &rate);
    bench_result_print(b, &records);
    bench_result_print(b, &disk);
    bench_broker_remove(&run->broker);
    bench_unshare(run, sizeof(*run));
}

void bench_recover(const struct bench *b)
{
    recover_case(b, 1024);
    recover_case(b, 64);
}
