/* SPDX-License-Identifier: MIT */
/* The log on real file systems that fail: a disk that gives EIO once its backing is full (S1, and
 * what fsyncgate is about: the kernel reports it once and goes on as if nothing were), and one that
 * is full and gets room again (L3). Needs root, mount and a loop device: else skipped. All mounts
 * are in a namespace of its own and end with it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/log_rig.h"

static char base[64];

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
    char command[512];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    size_t n = strlen(command);
    snprintf(command + n, sizeof command - n, " >/dev/null 2>&1");
    int rc = system(command);
    return rc == 0;
}

static int skip(const char *why)
{
    printf("skip: %s\n", why);
    return 77;
}

static struct pawl_io *make_io(unsigned kind)
{
    char why[256];
    return kind == 0 ? pawl_io_uring_create(why) : pawl_io_posix_create(why);
}

#define CHECK(e)                                                           \
    do {                                                                   \
        if (!(e)) {                                                        \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #e); \
            return 1;                                                      \
        }                                                                  \
    } while (0)

/* ext4 on a loop device on a tmpfs that is smaller than the disk says it is. */
static int failing_disk(unsigned kind)
{
    if (!run("mkdir -p %s/small %s/disk && mount -t tmpfs -o size=24m none %s/small", base, base,
             base) ||
        !run("truncate -s 64M %s/small/disk && mkfs.ext4 -q -F %s/small/disk", base, base) ||
        !run("mount -o loop %s/small/disk %s/disk", base, base))
        return skip("no loop device or ext4 here");
    char path[128];
    snprintf(path, sizeof path, "%s/disk", base);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct pawl_io *io = make_io(kind);
    if (!io)
        return skip("no io_uring here");
    struct log_rig rig;
    rig_init(&rig, io, dir);
    rig.options.segment_bytes = 1 << 20;
    rig.options.max_bytes = 60 << 20;
    CHECK(rig_open(&rig) == PAWL_LOG_OK);
    /* Until the backing is full. The kernel calls that ENOSPC or EIO, and the file system may go
     * read-only on the way; so growth stops or the log fails, and both must be safe. */
    unsigned idle = 0;
    while (!pawl_log_failed(rig.log) && idle < 300 && rig.next < 20000) {
        idle = rig_append(&rig, 15000) ? 0 : idle + 1;
        rig_seal(&rig);
        CHECK(rig_turn(&rig) >= 0);
    }
    CHECK(pawl_log_failed(rig.log) || pawl_log_disk_full(rig.log));
    printf("%s: %" PRIu64 " acknowledged, %" PRIu64 " bytes of segments, then: %s\n", io->ops->name,
           rig.acked, pawl_log_existing(rig.log),
           pawl_log_failed(rig.log) ? pawl_log_failure(rig.log) : "disk full");
    CHECK(rig.acked > 100);
    /* What exists can be used again, or the log fails: it never pretends. */
    for (unsigned i = 0; i < 300 && !pawl_log_failed(rig.log); i++) {
        if (pawl_log_oldest_segment(rig.log) + 1 < pawl_log_newest_segment(rig.log))
            pawl_log_release_oldest(rig.log);
        (void)rig_append(&rig, 15000);
        rig_seal(&rig);
        CHECK(rig_turn(&rig) >= 0);
    }
    if (pawl_log_failed(rig.log)) {
        uint64_t durable = pawl_log_durable(rig.log), before = rig.acked;
        for (unsigned i = 0; i < 10; i++) {
            rig_seal(&rig);
            CHECK(rig_turn(&rig) >= 0);
        }
        CHECK(pawl_log_durable(rig.log) == durable && rig.acked == before);
    }
    uint64_t acked = rig.acked;
    rig_close(&rig);
    /* What is on the disk holds all of it, though no cache was dropped (S2). The file system has
     * gone read-only by itself, so look only. */
    rig.options.read_only = true;
    if (rig_open(&rig) != PAWL_LOG_OK) {
        fprintf(stderr, "not opened: %s\n", rig.text);
        return 1;
    }
    const char *missing = rig_missing(&rig, acked);
    if (missing) {
        fprintf(stderr, "%s\n", missing);
        return 1;
    }
    rig_fini(&rig);
    io->ops->destroy(io);
    close(dir);
    return 0;
}

static int full_disk(unsigned kind)
{
    if (!run("mkdir -p %s/full && mount -t tmpfs -o size=600k none %s/full", base, base))
        return skip("no tmpfs can be mounted here");
    char path[128];
    snprintf(path, sizeof path, "%s/full", base);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct pawl_io *io = make_io(kind);
    if (!io)
        return skip("no io_uring here");
    struct log_rig rig;
    rig_init(&rig, io, dir);
    rig.options.max_bytes = 4 << 20;
    CHECK(rig_open(&rig) == PAWL_LOG_OK);
    pawl_log_want(rig.log, 2 << 20);
    for (unsigned i = 0; i < 2000 && !pawl_log_disk_full(rig.log); i++) {
        (void)io->ops->wait(io, 1000000);
        pawl_log_tend(rig.log, rig.boot_ns += 1000000);
    }
    CHECK(pawl_log_disk_full(rig.log) && !pawl_log_failed(rig.log));
    uint64_t existing = pawl_log_existing(rig.log);
    CHECK(existing >= 4 * 65536 && existing <= 600 * 1024);
    for (unsigned i = 0; i < 60; i++) {
        CHECK(rig_fill(&rig, 4, 3000, 2));
        while (pawl_log_oldest_segment(rig.log) < pawl_log_newest_segment(rig.log))
            pawl_log_release_oldest(rig.log);
    }
    CHECK(pawl_log_existing(rig.log) == existing);
    uint64_t acked = rig.acked;
    rig_close(&rig);
    CHECK(rig_open(&rig) == PAWL_LOG_OK); /* a start on a full disk */
    CHECK(rig_missing(&rig, acked) == NULL);
    CHECK(rig_fill(&rig, 10, 3000, 2));
    CHECK(run("mount -o remount,size=8m %s/full", base));
    pawl_log_want(rig.log, 2 << 20);
    for (unsigned i = 0; i < 20000 && pawl_log_existing(rig.log) < 2 << 20; i++) {
        (void)io->ops->wait(io, 100000);
        pawl_log_tend(rig.log, rig.boot_ns += 10000000);
    }
    CHECK(pawl_log_existing(rig.log) >= 2 << 20);
    CHECK(!pawl_log_disk_full(rig.log));
    CHECK(rig_fill(&rig, 100, 3000, 10));
    rig_fini(&rig);
    io->ops->destroy(io);
    close(dir);
    return 0;
}

/* Each case in a child with mounts of its own; exit codes only. */
static int in_child(int (*test)(unsigned kind), unsigned kind)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(120);
        int rc = 77;
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
            printf("skip: no mounts of our own here: %s\n", strerror(errno));
        else
            rc = test(kind);
        fflush(stdout);
        _exit(rc);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 1;
    return WEXITSTATUS(status);
}

int main(void)
{
    alarm(600);
    snprintf(base, sizeof base, "/tmp/pawl-disk-XXXXXX");
    if (!mkdtemp(base))
        return 1;
    int worst = 0, skipped = 0;
    for (unsigned kind = 0; kind < 2; kind++) {
        int (*const tests[])(unsigned) = { failing_disk, full_disk };
        for (unsigned i = 0; i < 2; i++) {
            int rc = in_child(tests[i], kind);
            skipped += rc == 77;
            if (rc != 0 && rc != 77) {
                fprintf(stderr, "kind %u, test %u: failed\n", kind, i);
                worst = 1;
            }
        }
    }
    (void)run("rm -rf %s", base);
    return worst ? 1 : skipped == 4 ? 77 : 0;
}
