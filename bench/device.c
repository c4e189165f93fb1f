/* SPDX-License-Identifier: MIT */
/* The disk as the broker's log could use it at best: 4 KiB blocks appended to a file that was
 * filled with zeros, O_DIRECT with O_DSYNC, through io_uring with one write in flight; by plain
 * pwrite where there is no io_uring. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEVICE_FILE_BYTES (64u << 20)

struct bench_device {
    struct io_uring ring;
    bool plain; /* no io_uring here */
    int fd;
    uint32_t block_bytes;
    uint64_t offset;
    uint8_t *block;
};

static void fill(int fd, uint8_t *zeros, uint32_t bytes)
{
    memset(zeros, 0, bytes);
    for (uint64_t at = 0; at < DEVICE_FILE_BYTES; at += bytes)
        if (pwrite(fd, zeros, bytes, (off_t)at) != (ssize_t)bytes)
            bench_fail("cannot fill the file of the bare device: %s", strerror(errno));
    if (fsync(fd) != 0)
        bench_fail("cannot flush the file of the bare device: %s", strerror(errno));
}

struct bench_device *bench_device_open(const char *dir, uint32_t block_bytes)
{
    char path[BENCH_PATH_BYTES + 16];
    struct bench_device *d = calloc(1, sizeof(*d));
    enum { FILL_BYTES = 1 << 20 };
    uint8_t *zeros = aligned_alloc(4096, FILL_BYTES);
    if (d == NULL || zeros == NULL || (d->block = aligned_alloc(4096, block_bytes)) == NULL)
        bench_fail("no memory");
    snprintf(path, sizeof(path), "%s/device", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_fail("%s: %s", path, strerror(errno));
    fill(fd, zeros, FILL_BYTES);
    close(fd);
    free(zeros);
    d->fd = open(path, O_RDWR | O_DIRECT | O_DSYNC | O_CLOEXEC);
    if (d->fd < 0)
        bench_fail("%s: no O_DIRECT here (%s): take --dir on a real disk", path, strerror(errno));
    unlink(path);
    memset(d->block, 0x5a, block_bytes);
    d->block_bytes = block_bytes;
    /* The same set-up as limits.md: what the broker's own ring can have. Old kernels: plain. */
    int rc =
        io_uring_queue_init(8, &d->ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (rc == -EINVAL)
        rc = io_uring_queue_init(8, &d->ring, 0);
    d->plain = rc < 0;
    return d;
}

void bench_device_close(struct bench_device *d)
{
    if (!d->plain)
        io_uring_queue_exit(&d->ring);
    close(d->fd);
    free(d->block);
    free(d);
}

static int one_write(struct bench_device *d, bool spin)
{
    uint64_t offset = d->offset;
    d->offset = (offset + d->block_bytes) % DEVICE_FILE_BYTES;
    if (d->plain) {
        ssize_t n = pwrite(d->fd, d->block, d->block_bytes, (off_t)offset);
        return n < 0 ? -errno : (int)n;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);
    struct io_uring_cqe *cqe = NULL;
    io_uring_prep_write(sqe, d->fd, d->block, d->block_bytes, offset);
    if (!spin) {
        io_uring_submit_and_wait(&d->ring, 1);
        io_uring_wait_cqe(&d->ring, &cqe);
    } else {
        io_uring_submit(&d->ring);
        /* A yield in every turn: a tight loop keeps the kernel's worker, which ends a direct write
         * with flush, from this core until the next tick. */
        while (io_uring_get_events(&d->ring), io_uring_peek_cqe(&d->ring, &cqe) != 0)
            sched_yield();
    }
    int result = cqe->res;
    io_uring_cqe_seen(&d->ring, cqe);
    return result;
}

void bench_device_run(struct bench_device *d, bool spin, uint32_t warm, uint32_t n,
                      struct pawl_histogram *h)
{
    for (uint32_t i = 0; i < warm + n; i++) {
        uint64_t start = bench_now();
        int rc = one_write(d, spin);
        uint64_t took = bench_now() - start;
        if (rc != (int)d->block_bytes)
            bench_fail("a write of the bare device failed: %s", strerror(rc < 0 ? -rc : EIO));
        if (i >= warm)
            pawl_histogram_add(h, took);
    }
}
