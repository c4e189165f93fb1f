/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_IO_H
#define PAWL_BROKER_IO_H

/* All the system that the broker touches at run time, behind one small table, so that the same log
 * and loop run on io_uring, on plain calls with a thread, on a recorded disk and on a simulated
 * one.
 *
 * Kinds:  uring      one ring for disk and readiness (io_uring.c, the only place with liburing)
 *         posix      epoll, and one thread for pwritev2/fdatasync; same promises
 *         recording  wraps another and writes down every storage operation, for crash images
 *         simulated  files in memory with unflushed sectors, faults by seed; no readiness
 *
 * One thread owns an io. Calls marked [start] block and are used at start, stop and recovery alone.
 * Results are byte counts or -errno, as the kernel gives them; short writes are finished inside. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pawl_io;

/* One asynchronous operation; owned by the caller, who keeps it and its buffer until done is
 * called, in a later pawl_io_wait() (never inside the submitting call). */
struct pawl_io_op {
    void (*done)(struct pawl_io_op *op, int result);
    /* inner: */
    uint64_t offset;
    const uint8_t *data;
    size_t bytes, finished;
    int fd;
    uint8_t kind, retries;
    bool busy;
    bool is_direct; /* of an open: O_DIRECT was had */
    struct pawl_io_op *next;
};

/* Readiness of a descriptor: edge-triggered, stays armed until removed. */
struct pawl_io_watch {
    void (*ready)(struct pawl_io_watch *watch, uint32_t events); /* EPOLLIN, EPOLLHUP, ... */
    int fd;
    uint32_t events;
    bool armed;
    uint32_t slot; /* inner */
};

struct pawl_io_ops {
    const char *name;
    void (*destroy)(struct pawl_io *io);

    /* [start] open relative to a directory, O_CLOEXEC | O_NOFOLLOW added; direct: try O_DIRECT and
     * say in *is_direct. Returns a descriptor or -errno. */
    int (*file_open)(struct pawl_io *io, int dir, const char *name, int flags, unsigned mode,
                     bool direct, bool *is_direct);
    void (*file_close)(struct pawl_io *io, int fd);
    /* [start] all bytes or -errno; past the end: the count that there is */
    int64_t (*file_read)(struct pawl_io *io, int fd, void *buffer, size_t bytes, uint64_t offset);
    int64_t (*file_size)(struct pawl_io *io, int fd);
    int (*file_flush)(struct pawl_io *io, int fd);                                     /* [start] */
    int (*file_rename)(struct pawl_io *io, int dir, const char *from, const char *to); /* [start] */
    int (*file_unlink)(struct pawl_io *io, int dir, const char *name);                 /* [start] */
    /* [start] names in a directory, '.' and '..' left out; calls `each` until it returns non-zero
     */
    int (*dir_list)(struct pawl_io *io, int dir, int (*each)(void *ctx, const char *name),
                    void *ctx);

    /* All of data at offset. durable: done only when it is on stable storage (RWF_DSYNC, or a flush
     * after it). Buffers, offset and bytes are multiples of 4096. result 0 or -errno. */
    void (*write)(struct pawl_io *io, struct pawl_io_op *op, int fd, const void *data, size_t bytes,
                  uint64_t offset, bool durable);
    void (*flush)(struct pawl_io *io, struct pawl_io_op *op, int fd);
    /* file_open without blocking: result is the descriptor or -errno; name is kept until done. */
    void (*open)(struct pawl_io *io, struct pawl_io_op *op, int dir, const char *name, int flags,
                 unsigned mode, bool direct);

    /* file_read without blocking; result is the count, which may be less than bytes, or -errno.
     * NULL where a kind does not have it: it only lets recovery go on while the disk reads. */
    void (*read)(struct pawl_io *io, struct pawl_io_op *op, int fd, void *buffer, size_t bytes,
                 uint64_t offset);

    int (*watch_add)(struct pawl_io *io, struct pawl_io_watch *watch);
    void (*watch_remove)(struct pawl_io *io, struct pawl_io_watch *watch);

    /* Hands over what was submitted, runs the done and ready functions of what has completed, and
     * waits up to timeout_ns (0: not; UINT64_MAX: no end) if nothing had. Returns how many ran (0
     * also when a signal ended the wait), or -errno. */
    int (*wait)(struct pawl_io *io, uint64_t timeout_ns);
};

struct pawl_io {
    const struct pawl_io_ops *ops;
};

/* One thread at a time: it may change (made and used for recovery in one, run in another) while no
 * operation is in flight.
 *
 * text (256 bytes) says what was chosen and why. Return NULL with a text if it cannot be had. */
struct pawl_io *pawl_io_uring_create(char *text);
struct pawl_io *pawl_io_posix_create(char *text);
/* uring if a probe of ring, write with RWF_DSYNC and poll works, else posix. */
struct pawl_io *pawl_io_auto_create(char *text);

#endif
