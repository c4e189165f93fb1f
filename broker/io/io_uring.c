/* SPDX-License-Identifier: MIT */
/* The uring kind: one ring for disk and readiness. The only place with liburing.
 *
 * Happy path of a write: an entry is taken from the submission queue and filled; the next wait()
 * submits it and waits in one system call; its completion goes through pawl_op_step(), which either
 * asks for another call or ends it.
 *
 * - The submission queue is full, or OPS_MAX operations are in the ring: the operation waits in
 *   `pending`, in order, and goes in at a later wait (U4).
 * - The completion queue holds OPS_MAX and as many again for readiness. Polls can post more than
 *   that; the kernel then keeps them aside and ends the multishot, and we arm it anew, which
 *   reports what is ready by then (U5). A completion that is lost (EBADR) ends the wait with an
 *   error, and so the log.
 * - EAGAIN, EBUSY, EINTR of the system call itself: what is there is taken, then again, a bounded
 *   number of times without progress (U6).
 * - Another thread than the last one waits: a ring with a single issuer refuses it, so the ring is
 *   made anew with all its watches. Only while nothing is in flight. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/clock.h"
#include "io/op.h"

#define SQ_ENTRIES 64u
#define CQ_ENTRIES 4096u
#define OPS_MAX 64u
#define ENTER_FAILURES_MAX 1000u

/* The low bits of user_data: operations are pointers, aligned to 8. */
#define TAG_MASK 3u
#define TAG_OP 0u
#define TAG_WATCH 1u
#define TAG_NOBODY 2u

#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1u << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1u << 13)
#endif

struct uring {
    struct pawl_io io;
    struct io_uring ring;
    struct pawl_watch_table watches;
    struct pawl_io_op *pending, **pending_end;
    uint32_t in_ring, in_flight; /* in_flight counts the pending ones too */
    uint32_t enter_failures;
    pid_t owner;
    bool no_dsync;
};

static struct uring *of(struct pawl_io *io) { return PAWL_CONTAINER(io, struct uring, io); }

/* --- the ring -------------------------------------------------------------------------------- */

static pid_t own_tid(void)
{
    static _Thread_local pid_t tid;
    if (!tid)
        tid = gettid();
    return tid;
}

static int ring_init(struct uring *u)
{
    /* Newest first: deferred task work measured 8 % better one write at a time (broker-path). */
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        0,
    };
    int rc = -EINVAL;
    for (unsigned small = 0; small < 2; small++) {
        for (unsigned i = 0; i < PAWL_COUNT(flags); i++) {
            struct io_uring_params params = {
                .flags = flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
                .cq_entries = small ? 2 * OPS_MAX : CQ_ENTRIES,
            };
            rc = io_uring_queue_init_params(small ? 16 : SQ_ENTRIES, &u->ring, &params);
            if (rc == 0) {
                u->owner = own_tid();
                /* Both only help: the first saves a look-up a call, the second is for a program
                 * that embeds us and forks. */
                (void)io_uring_register_ring_fd(&u->ring);
                (void)io_uring_ring_dontfork(&u->ring);
                return 0;
            }
            if (rc != -EINVAL)
                break;
        }
        if (rc != -ENOMEM) /* the locked-memory limit of older kernels (U8) */
            break;
    }
    return rc;
}

/* An entry, submitting what is queued if there is none; NULL only if the kernel takes nothing. */
static struct io_uring_sqe *sqe_get(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (sqe)
        return sqe;
    if (io_uring_submit(&u->ring) < 0)
        return NULL;
    return io_uring_get_sqe(&u->ring);
}

static void sqe_fill(struct io_uring_sqe *sqe, struct pawl_io_op *op)
{
    switch (op->kind) {
    case PAWL_OP_WRITE:
    case PAWL_OP_WRITE_DURABLE:
    case PAWL_OP_WRITE_FLUSH: {
        size_t left = op->bytes - op->finished;
        io_uring_prep_write(sqe, op->fd, op->data + op->finished,
                            (unsigned)pawl_min_u64(left, 1u << 30), op->offset + op->finished);
        if (op->kind == PAWL_OP_WRITE_DURABLE)
            sqe->rw_flags = RWF_DSYNC;
        break;
    }
    case PAWL_OP_FLUSH_AFTER:
        io_uring_prep_fsync(sqe, op->fd, IORING_FSYNC_DATASYNC);
        break;
    case PAWL_OP_FLUSH:
        io_uring_prep_fsync(sqe, op->fd, 0);
        break;
    case PAWL_OP_OPEN:
        io_uring_prep_openat(sqe, op->fd, (const char *)op->data,
                             (int)op->offset | (op->is_direct ? O_DIRECT : 0), (mode_t)op->bytes);
        break;
    case PAWL_OP_READ:
        io_uring_prep_read(sqe, op->fd, (void *)(uintptr_t)op->data,
                           (unsigned)pawl_min_u64(op->bytes, 1u << 30), op->offset);
        break;
    default:
        PAWL_ASSERT(!"an operation of no kind");
    }
    io_uring_sqe_set_data(sqe, op);
}

static bool put(struct uring *u, struct pawl_io_op *op)
{
    if (u->in_ring >= OPS_MAX)
        return false;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (!sqe)
        return false;
    sqe_fill(sqe, op);
    u->in_ring++;
    return true;
}

static void queue(struct uring *u, struct pawl_io_op *op)
{
    if (!u->pending && put(u, op))
        return;
    op->next = NULL;
    *u->pending_end = op;
    u->pending_end = &op->next;
}

static void queue_pending(struct uring *u)
{
    while (u->pending) {
        struct pawl_io_op *op = u->pending, *next = op->next;
        if (!put(u, op))
            return;
        u->pending = next;
        if (!next)
            u->pending_end = &u->pending;
    }
}

/* --- operations ------------------------------------------------------------------------------ */

static void uring_write(struct pawl_io *io, struct pawl_io_op *op, int fd, const void *data,
                        size_t bytes, uint64_t offset, bool durable)
{
    struct uring *u = of(io);
    PAWL_ASSERT(((uintptr_t)op & TAG_MASK) == 0);
    pawl_op_init_write(op, fd, data, bytes, offset, durable, !u->no_dsync);
    u->in_flight++;
    queue(u, op);
}

static void uring_flush(struct pawl_io *io, struct pawl_io_op *op, int fd)
{
    struct uring *u = of(io);
    pawl_op_init_flush(op, fd);
    u->in_flight++;
    queue(u, op);
}

static void uring_open(struct pawl_io *io, struct pawl_io_op *op, int dir, const char *name,
                       int flags, unsigned mode, bool direct)
{
    struct uring *u = of(io);
    pawl_op_init_open(op, dir, name, flags, mode, direct);
    u->in_flight++;
    queue(u, op);
}

static void uring_read(struct pawl_io *io, struct pawl_io_op *op, int fd, void *buffer,
                       size_t bytes, uint64_t offset)
{
    struct uring *u = of(io);
    PAWL_ASSERT(((uintptr_t)op & TAG_MASK) == 0);
    pawl_op_init_read(op, fd, buffer, bytes, offset);
    u->in_flight++;
    queue(u, op);
}

static int op_completed(struct uring *u, struct pawl_io_op *op, int called)
{
    PAWL_ASSERT(op->busy && u->in_ring > 0 && u->in_flight > 0);
    u->in_ring--;
    int result = 0;
    if (!pawl_op_step(op, called, &result, &u->no_dsync)) {
        queue(u, op);
        return 0;
    }
    u->in_flight--;
    op->busy = false;
    op->done(op, result);
    return 1;
}

/* --- readiness ------------------------------------------------------------------------------- */

static int arm(struct uring *u, struct pawl_io_watch *watch)
{
    struct io_uring_sqe *sqe = sqe_get(u);
    if (!sqe)
        return -EBUSY;
    /* Multishot and, without IORING_POLL_ADD_LEVEL, on edges. */
    io_uring_prep_poll_multishot(sqe, watch->fd, watch->events);
    sqe->user_data = pawl_watch_table_key(&u->watches, watch->slot) << 2 | TAG_WATCH;
    return 0;
}

static int uring_watch_add(struct pawl_io *io, struct pawl_io_watch *watch)
{
    struct uring *u = of(io);
    int rc = pawl_watch_table_add(&u->watches, watch);
    if (rc)
        return rc;
    rc = arm(u, watch);
    if (rc) {
        pawl_watch_table_remove(&u->watches, watch);
        return rc;
    }
    /* At once: the caller may close the descriptor before the next wait, and its number may be
     * another's by then. If the kernel is too busy, wait() submits it. */
    if (own_tid() == u->owner)
        (void)io_uring_submit(&u->ring);
    return 0;
}

static void uring_watch_remove(struct pawl_io *io, struct pawl_io_watch *watch)
{
    struct uring *u = of(io);
    struct io_uring_sqe *sqe = sqe_get(u);
    if (sqe) {
        /* Not POLL_REMOVE: that fails while an event of the same poll is under way, and the poll
         * would hold the file open for ever. */
        io_uring_prep_cancel64(sqe, pawl_watch_table_key(&u->watches, watch->slot) << 2 | TAG_WATCH,
                               0);
        sqe->user_data = TAG_NOBODY;
        /* At once: the poll holds the file open, and the other side waits to see it closed. */
        if (own_tid() == u->owner)
            (void)io_uring_submit(&u->ring);
    }
    pawl_watch_table_remove(&u->watches, watch);
}

static int watch_completed(struct uring *u, const struct io_uring_cqe *cqe)
{
    struct pawl_io_watch *watch = pawl_watch_table_find(&u->watches, cqe->user_data >> 2);
    if (!watch)
        return 0; /* removed meanwhile */
    if (!(cqe->flags & IORING_CQE_F_MORE) && cqe->res >= 0) {
        int rc = arm(u, watch);
        if (rc)
            return rc;
    }
    watch->ready(watch, cqe->res >= 0 ? (uint32_t)cqe->res : EPOLLERR);
    return 1;
}

/* --- waiting --------------------------------------------------------------------------------- */

static int adopt(struct uring *u)
{
    if (u->in_flight)
        return -EBUSY;
    io_uring_queue_exit(&u->ring);
    int rc = ring_init(u);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < u->watches.count; i++) {
        if (u->watches.slots[i].watch) {
            rc = arm(u, u->watches.slots[i].watch);
            if (rc)
                return rc;
        }
    }
    return 0;
}

/* One system call, or none if there is nothing to hand over and nothing can have come. */
static int enter(struct uring *u, uint64_t timeout_ns)
{
    unsigned flags = pawl_load_rlx_u32(u->ring.sq.kflags);
    bool kernel_has = flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
    if (timeout_ns == 0 || io_uring_cq_ready(&u->ring) || kernel_has) {
        if (!kernel_has && io_uring_sq_ready(&u->ring) == 0)
            return 0;
        return io_uring_submit_and_get_events(&u->ring);
    }
    struct io_uring_cqe *cqe;
    struct __kernel_timespec ts = { .tv_sec = (long long)(timeout_ns / 1000000000u),
                                    .tv_nsec = (long long)(timeout_ns % 1000000000u) };
    return io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1,
                                            timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
}

static int reap(struct uring *u)
{
    int ran = 0;
    for (unsigned left = io_uring_cq_ready(&u->ring); left > 0; left--) {
        unsigned head = *u->ring.cq.khead;
        struct io_uring_cqe cqe = u->ring.cq.cqes[head & *u->ring.cq.kring_mask];
        io_uring_cq_advance(&u->ring, 1);
        int rc = 0;
        switch (cqe.user_data & TAG_MASK) {
        case TAG_OP:
            rc = op_completed(u, (struct pawl_io_op *)(uintptr_t)cqe.user_data, cqe.res);
            break;
        case TAG_WATCH:
            rc = watch_completed(u, &cqe);
            break;
        default:
            break;
        }
        if (rc < 0)
            return rc;
        ran += rc;
    }
    return ran;
}

static int turn(struct uring *u, uint64_t timeout_ns, bool *again)
{
    *again = false;
    queue_pending(u);
    int rc = enter(u, timeout_ns);
    int ran = reap(u);
    if (ran < 0)
        return ran;
    if (rc < 0 && rc != -ETIME && rc != -EINTR) {
        if (rc != -EAGAIN && rc != -EBUSY && rc != -ENOMEM)
            return rc;
        if (ran == 0 && ++u->enter_failures > ENTER_FAILURES_MAX)
            return rc;
        if (ran == 0)
            (void)poll(NULL, 0, 1); /* memory is short: let the kernel find some */
        return ran;
    }
    u->enter_failures = 0;
    /* Woken by what concerns nobody: a removed watch, a part of a write. */
    *again = rc >= 0 && ran == 0;
    return ran;
}

static int uring_wait(struct pawl_io *io, uint64_t timeout_ns)
{
    struct uring *u = of(io);
    if (PAWL_UNLIKELY(u->owner != own_tid())) {
        int rc = adopt(u);
        if (rc)
            return rc;
    }
    bool again;
    int ran = turn(u, timeout_ns, &again);
    if (PAWL_LIKELY(!again || timeout_ns == 0))
        return ran;
    uint64_t end = pawl_add_sat(pawl_clock_boot(), timeout_ns);
    while (again) {
        uint64_t now = pawl_clock_boot();
        if (now >= end)
            break;
        ran = turn(u, end == UINT64_MAX ? end : end - now, &again);
    }
    return ran;
}

/* --- life ------------------------------------------------------------------------------------ */

static void uring_destroy(struct pawl_io *io)
{
    struct uring *u = of(io);
    io_uring_queue_exit(&u->ring);
    pawl_watch_table_fini(&u->watches);
    free(u);
}

static const struct pawl_io_ops uring_ops = {
    .name = "uring",
    .destroy = uring_destroy,
    .file_open = pawl_file_open,
    .file_close = pawl_file_close,
    .file_read = pawl_file_read,
    .file_size = pawl_file_size,
    .file_flush = pawl_file_flush,
    .file_rename = pawl_file_rename,
    .file_unlink = pawl_file_unlink,
    .dir_list = pawl_file_list,
    .write = uring_write,
    .flush = uring_flush,
    .open = uring_open,
    .read = uring_read,
    .watch_add = uring_watch_add,
    .watch_remove = uring_watch_remove,
    .wait = uring_wait,
};

static int probe_opcodes(struct uring *u, const char **what)
{
    static const int needed[] = { IORING_OP_WRITE,  IORING_OP_READ,     IORING_OP_FSYNC,
                                  IORING_OP_OPENAT, IORING_OP_POLL_ADD, IORING_OP_POLL_REMOVE };
    *what = "the operations we need";
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
    if (!probe)
        return -EOPNOTSUPP;
    int rc = 0;
    for (unsigned i = 0; i < PAWL_COUNT(needed); i++)
        if (!io_uring_opcode_supported(probe, needed[i]))
            rc = -EOPNOTSUPP;
    io_uring_free_probe(probe);
    if (rc == 0 && (u->ring.features & (IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG)) !=
                       (IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG))
        rc = -EOPNOTSUPP;
    return rc;
}

struct probe {
    struct pawl_io_op op;
    struct pawl_io_watch watch;
    int result;
    unsigned wrote, edges;
};
static void probe_wrote(struct pawl_io_op *op, int result)
{
    struct probe *p = PAWL_CONTAINER(op, struct probe, op);
    p->result = result;
    p->wrote++;
}
static void probe_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct probe *p = PAWL_CONTAINER(watch, struct probe, watch);
    if (events & EPOLLIN)
        p->edges++;
}

/* A durable write to a file in memory, and an eventfd that is written twice and never read: the two
 * things that the broker lives on. */
static int probe_work(struct uring *u, const char **what)
{
    static const _Alignas(4096) uint8_t zeros[4096];
    struct probe p = { .op.done = probe_wrote,
                       .watch = { .ready = probe_ready, .events = EPOLLIN } };
    int file = memfd_create("pawl-probe", MFD_CLOEXEC);
    p.watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = file < 0 || p.watch.fd < 0 ? -errno : 0;
    *what = "a write with RWF_DSYNC";
    if (rc == 0) {
        uring_write(&u->io, &p.op, file, zeros, sizeof zeros, 0, true);
        for (int i = 0; i < 100 && !p.wrote && rc >= 0; i++)
            rc = uring_wait(&u->io, 10000000);
        rc = rc < 0 ? rc : p.wrote ? p.result : -ETIME;
    }
    if (rc == 0) {
        *what = "a poll that stays armed";
        rc = uring_watch_add(&u->io, &p.watch);
        for (unsigned n = 1; n <= 2 && rc == 0; n++) {
            uint64_t one = 1;
            rc = write(p.watch.fd, &one, sizeof one) == sizeof one ? 0 : -errno;
            for (int i = 0; i < 100 && p.edges < n && rc >= 0; i++)
                rc = uring_wait(&u->io, 10000000);
            rc = rc < 0 ? rc : p.edges >= n ? 0 : -ETIME;
        }
        if (p.watch.armed)
            uring_watch_remove(&u->io, &p.watch);
    }
    if (file >= 0)
        close(file);
    if (p.watch.fd >= 0)
        close(p.watch.fd);
    return rc;
}

/* 5.15 is the floor: before it polls are not multishot on edges, and writes hang or give EAGAIN
 * (U14). */
bool pawl_io_uring_kernel_ok(const char *release)
{
    unsigned major = 0, minor = 0;
    if (sscanf(release, "%u.%u", &major, &minor) != 2)
        return false;
    return major > 5 || (major == 5 && minor >= 15);
}

static void explain(char *text, const char *what, int rc)
{
    const char *cure = "";
    if (rc == -EPERM || rc == -EACCES)
        cure = " (forbidden by a seccomp filter or kernel.io_uring_disabled)";
    else if (rc == -ENOSYS)
        cure = " (the kernel has none)";
    else if (rc == -ENOMEM)
        cure = " (raise the locked-memory limit, ulimit -l)";
    snprintf(text, 256, "no io_uring: %s: %s%s", what, strerror(-rc), cure);
}

struct pawl_io *pawl_io_uring_create(char *text)
{
    struct utsname name;
    if (uname(&name) == 0 && !pawl_io_uring_kernel_ok(name.release)) {
        snprintf(text, 256, "no io_uring: kernel %.64s is older than 5.15", name.release);
        return NULL;
    }
    struct uring *u = calloc(1, sizeof *u);
    if (!u) {
        snprintf(text, 256, "no io_uring: no memory");
        return NULL;
    }
    u->io.ops = &uring_ops;
    u->pending_end = &u->pending;
    pawl_watch_table_init(&u->watches);
    const char *what = "setup";
    int rc = ring_init(u);
    if (rc) {
        explain(text, what, rc);
        pawl_watch_table_fini(&u->watches);
        free(u);
        return NULL;
    }
    rc = probe_opcodes(u, &what);
    if (rc == 0)
        rc = probe_work(u, &what);
    if (rc) {
        explain(text, what, rc);
        uring_destroy(&u->io);
        return NULL;
    }
    snprintf(text, 256, "io_uring: %u entries%s", u->ring.sq.ring_entries,
             u->ring.flags & IORING_SETUP_DEFER_TASKRUN ? ", deferred task work" : "");
    return &u->io;
}

struct pawl_io *pawl_io_auto_create(char *text)
{
    struct pawl_io *io = pawl_io_uring_create(text);
    if (io)
        return io;
    char why[256], posix[256];
    snprintf(why, sizeof why, "%.150s", text);
    io = pawl_io_posix_create(posix);
    snprintf(text, 256, "%.160s; %.90s", why, posix);
    return io;
}
