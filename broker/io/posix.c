/* SPDX-License-Identifier: MIT */
/* The posix kind: epoll for readiness, and one thread, "pawld-io", that makes the blocking calls.
 *
 * Two rows go between the threads under one lock: what is to be done, and what is done; an eventfd
 * in the epoll set says that the second is no longer empty. The thread touches nothing of an
 * operation but between taking it from the first row and putting it on the second. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "base/assert.h"
#include "base/bits.h"
#include "io/op.h"

#define EVENTS 128
#define KEY_DONE UINT64_MAX /* epoll key of the eventfd; those of watches are below 2^62 */

struct row {
    struct pawl_io_op *first, **end;
};

struct posix {
    struct pawl_io io;
    struct pawl_watch_table watches;
    int epoll, done_fd;
    uint32_t in_flight; /* the owner's count */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under lock: */
    struct row asked, done;
    bool stop;
    /* the thread's own, but read by the owner when it submits: a hint, either value is right */
    uint32_t no_dsync; /* both threads: pawl_load_rlx_u32 */
};

static void row_init(struct row *row)
{
    row->first = NULL;
    row->end = &row->first;
}
static void row_push(struct row *row, struct pawl_io_op *op)
{
    op->next = NULL;
    *row->end = op;
    row->end = &op->next;
}
static struct pawl_io_op *row_take_all(struct row *row)
{
    struct pawl_io_op *all = row->first;
    row_init(row);
    return all;
}

static struct posix *of(struct pawl_io *io) { return PAWL_CONTAINER(io, struct posix, io); }

/* --- the thread ------------------------------------------------------------------------------ */

static int call(struct pawl_io_op *op)
{
    ssize_t rc;
    switch (op->kind) {
    case PAWL_OP_WRITE_DURABLE:
    case PAWL_OP_WRITE:
    case PAWL_OP_WRITE_FLUSH: {
        size_t left = op->bytes - op->finished;
        struct iovec v = { .iov_base = (void *)(uintptr_t)(op->data + op->finished),
                           .iov_len = pawl_min_u64(left, 1u << 30) };
        rc = pwritev2(op->fd, &v, 1, (off_t)(op->offset + op->finished),
                      op->kind == PAWL_OP_WRITE_DURABLE ? RWF_DSYNC : 0);
        break;
    }
    case PAWL_OP_FLUSH_AFTER:
        rc = fdatasync(op->fd);
        break;
    case PAWL_OP_FLUSH:
        rc = fsync(op->fd);
        break;
    case PAWL_OP_OPEN:
        rc = openat(op->fd, (const char *)op->data,
                    (int)op->offset | (op->is_direct ? O_DIRECT : 0), (mode_t)op->bytes);
        break;
    default:
        PAWL_ASSERT(!"an operation of no kind");
        return -EINVAL;
    }
    return rc < 0 ? -errno : (int)rc;
}

static int run(struct posix *p, struct pawl_io_op *op)
{
    int result = 0;
    bool no_dsync = false;
    while (!pawl_op_step(op, call(op), &result, &no_dsync))
        ;
    if (no_dsync)
        pawl_store_rlx_u32(&p->no_dsync, 1);
    return result;
}

static void *thread_main(void *arg)
{
    struct posix *p = arg;
    pthread_setname_np(pthread_self(), "pawld-io");
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->asked.first && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        struct pawl_io_op *op = p->asked.first;
        if (!op)
            break; /* stopped, and all is done */
        p->asked.first = op->next;
        if (!p->asked.first)
            p->asked.end = &p->asked.first;
        pthread_mutex_unlock(&p->lock);

        int result = run(p, op);

        pthread_mutex_lock(&p->lock);
        op->finished = (size_t)(ssize_t)result; /* carries the result over */
        bool first = !p->done.first;
        row_push(&p->done, op);
        if (first) {
            uint64_t one = 1;
            /* Cannot fail: the counter is far from its end. */
            PAWL_ASSERT(write(p->done_fd, &one, sizeof one) == sizeof one);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* --- the owner's side ------------------------------------------------------------------------ */

static void submit(struct posix *p, struct pawl_io_op *op)
{
    p->in_flight++;
    pthread_mutex_lock(&p->lock);
    row_push(&p->asked, op);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

static void posix_write(struct pawl_io *io, struct pawl_io_op *op, int fd, const void *data,
                        size_t bytes, uint64_t offset, bool durable)
{
    struct posix *p = of(io);
    pawl_op_init_write(op, fd, data, bytes, offset, durable, !pawl_load_rlx_u32(&p->no_dsync));
    submit(p, op);
}

static void posix_flush(struct pawl_io *io, struct pawl_io_op *op, int fd)
{
    pawl_op_init_flush(op, fd);
    submit(of(io), op);
}

static void posix_open(struct pawl_io *io, struct pawl_io_op *op, int dir, const char *name,
                       int flags, unsigned mode, bool direct)
{
    pawl_op_init_open(op, dir, name, flags, mode, direct);
    submit(of(io), op);
}

static int posix_watch_add(struct pawl_io *io, struct pawl_io_watch *watch)
{
    struct posix *p = of(io);
    int rc = pawl_watch_table_add(&p->watches, watch);
    if (rc)
        return rc;
    struct epoll_event e = { .events = watch->events | EPOLLET,
                             .data.u64 = pawl_watch_table_key(&p->watches, watch->slot) };
    if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, watch->fd, &e) < 0) {
        rc = -errno;
        pawl_watch_table_remove(&p->watches, watch);
    }
    return rc;
}

static void posix_watch_remove(struct pawl_io *io, struct pawl_io_watch *watch)
{
    struct posix *p = of(io);
    /* EBADF or ENOENT if the caller has closed it: then it has left the set by itself. */
    (void)epoll_ctl(p->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    pawl_watch_table_remove(&p->watches, watch);
}

static int reap(struct posix *p)
{
    uint64_t count;
    /* Before the row is taken, so that what is put on it later raises it again. */
    if (read(p->done_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return -errno;
    pthread_mutex_lock(&p->lock);
    struct pawl_io_op *op = row_take_all(&p->done);
    pthread_mutex_unlock(&p->lock);
    int ran = 0;
    while (op) {
        struct pawl_io_op *next = op->next;
        PAWL_ASSERT(op->busy && p->in_flight > 0);
        p->in_flight--;
        op->busy = false;
        op->done(op, (int)(ssize_t)op->finished);
        ran++;
        op = next;
    }
    return ran;
}

static int epoll_wait_ns(int epoll, struct epoll_event *events, uint64_t timeout_ns)
{
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
                           .tv_nsec = (long)(timeout_ns % 1000000000u) };
    int n = epoll_pwait2(epoll, events, EVENTS, timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
    if (n < 0 && (errno == ENOSYS || errno == EPERM)) { /* before 5.11, or filtered */
        uint64_t ms = timeout_ns == UINT64_MAX ? 0 : (timeout_ns + 999999u) / 1000000u;
        n = epoll_wait(epoll, events, EVENTS,
                       timeout_ns == UINT64_MAX ? -1 : (int)pawl_min_u64(ms, 3600000u));
    }
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    return n;
}

static int posix_wait(struct pawl_io *io, uint64_t timeout_ns)
{
    struct posix *p = of(io);
    struct epoll_event events[EVENTS];
    int n = epoll_wait_ns(p->epoll, events, timeout_ns);
    if (n < 0)
        return n;
    int ran = 0;
    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 == KEY_DONE) {
            int rc = reap(p);
            if (rc < 0)
                return rc;
            ran += rc;
            continue;
        }
        struct pawl_io_watch *w = pawl_watch_table_find(&p->watches, events[i].data.u64);
        if (w) {
            w->ready(w, events[i].events);
            ran++;
        }
    }
    return ran;
}

static void posix_destroy(struct pawl_io *io)
{
    struct posix *p = of(io);
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    close(p->done_fd);
    close(p->epoll);
    pawl_watch_table_fini(&p->watches);
    free(p);
}

static const struct pawl_io_ops posix_ops = {
    .name = "posix",
    .destroy = posix_destroy,
    .file_open = pawl_file_open,
    .file_close = pawl_file_close,
    .file_read = pawl_file_read,
    .file_size = pawl_file_size,
    .file_flush = pawl_file_flush,
    .file_rename = pawl_file_rename,
    .file_unlink = pawl_file_unlink,
    .dir_list = pawl_file_list,
    .write = posix_write,
    .flush = posix_flush,
    .open = posix_open,
    .watch_add = posix_watch_add,
    .watch_remove = posix_watch_remove,
    .wait = posix_wait,
};

static int start_thread(struct posix *p)
{
    sigset_t all, old;
    sigfillset(&all);
    /* The thread takes no signals: they belong to the program that embeds us. */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&p->thread, NULL, thread_main, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

struct pawl_io *pawl_io_posix_create(char *text)
{
    struct posix *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(text, 256, "no memory");
        return NULL;
    }
    p->io.ops = &posix_ops;
    pawl_watch_table_init(&p->watches);
    row_init(&p->asked);
    row_init(&p->done);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    const char *what = "epoll_create1";
    p->done_fd = -1;
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll < 0)
        goto fail;
    what = "eventfd";
    p->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->done_fd < 0)
        goto fail;
    what = "epoll_ctl";
    struct epoll_event e = { .events = EPOLLIN, .data.u64 = KEY_DONE };
    if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->done_fd, &e) < 0)
        goto fail;
    what = "pthread_create";
    int rc = start_thread(p);
    if (rc) {
        errno = rc;
        goto fail;
    }
    snprintf(text, 256, "posix: epoll, and one thread for the disk");
    return &p->io;

fail:
    snprintf(text, 256, "%s: %s", what, strerror(errno));
    if (p->done_fd >= 0)
        close(p->done_fd);
    if (p->epoll >= 0)
        close(p->epoll);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}
