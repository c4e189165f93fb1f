/* SPDX-License-Identifier: MIT */
/* The real kinds of io: every claim of io.h, on uring and on posix alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "io/op.h"
#include "lib/log_rig.h"

enum kind { URING, POSIX };

static struct pawl_io *make_io(enum kind kind)
{
    char why[256];
    struct pawl_io *io = kind == URING ? pawl_io_uring_create(why) : pawl_io_posix_create(why);
    if (!io)
        print_message("skip: %s\n", why);
    return io;
}

#define BOTH(name)                            \
    static void name##_on_uring(void **state) \
    {                                         \
        struct pawl_io *io = make_io(URING);  \
        if (!io)                              \
            skip();                           \
        name(io);                             \
        io->ops->destroy(io);                 \
    }                                         \
    static void name##_on_posix(void **state) \
    {                                         \
        struct pawl_io *io = make_io(POSIX);  \
        assert_non_null(io);                  \
        name(io);                             \
        io->ops->destroy(io);                 \
    }

struct call {
    struct pawl_io_op op;
    int result;
    unsigned times;
};
static void called(struct pawl_io_op *op, int result)
{
    struct call *c = PAWL_CONTAINER(op, struct call, op);
    c->result = result;
    c->times++;
}

static int wait_for(struct pawl_io *io, struct call *call)
{
    while (call->times == 0)
        if (io->ops->wait(io, UINT64_MAX) < 0)
            return -1000;
    return call->result;
}

/* --- files ----------------------------------------------------------------------------------- */

static void a_read_brings_what_there_is_and_blocks_nobody(void **state)
{
    (void)state;
    struct pawl_io *io = make_io(URING);
    if (!io)
        skip();
    char path[64];
    bool direct;
    int dir = rig_dir_make(path);
    uint8_t *page = aligned_alloc(4096, 8192), *back = aligned_alloc(4096, 16384);
    memset(page, 0x5a, 8192);
    int fd = io->ops->file_open(io, dir, "f", O_RDWR | O_CREAT, 0600, true, &direct);
    assert_true(fd >= 0);
    struct call w = { .op.done = called };
    io->ops->write(io, &w.op, fd, page, 8192, 0, true);
    assert_int_equal(wait_for(io, &w), 0);
    struct call whole = { .op.done = called }, part = { .op.done = called };
    struct call past = { .op.done = called }, wrong = { .op.done = called };
    io->ops->read(io, &whole.op, fd, back, 8192, 0);
    assert_int_equal(whole.times, 0); /* never inside the submitting call */
    assert_int_equal(wait_for(io, &whole), 8192);
    assert_memory_equal(back, page, 8192);
    io->ops->read(io, &part.op, fd, back, 16384, 4096);
    assert_int_equal(wait_for(io, &part), 4096);
    io->ops->read(io, &past.op, fd, back, 4096, 65536);
    assert_int_equal(wait_for(io, &past), 0);
    io->ops->read(io, &wrong.op, dir, back, 4096, 0);
    assert_int_equal(wait_for(io, &wrong), -EISDIR);
    assert_false(whole.op.busy || part.op.busy || past.op.busy || wrong.op.busy);
    io->ops->file_close(io, fd);
    free(page);
    free(back);
    close(dir);
    rig_dir_remove(path);
    io->ops->destroy(io);
}

static void writes_flushes_and_opens(struct pawl_io *io)
{
    char path[64];
    int dir = rig_dir_make(path);
    uint8_t *page = aligned_alloc(4096, 8192), *back = aligned_alloc(4096, 8192);
    memset(page, 0x5a, 8192);
    struct call open = { .op.done = called };
    io->ops->open(io, &open.op, dir, "f", O_RDWR | O_CREAT, 0600, true);
    assert_int_equal(open.times, 0); /* never inside the submitting call */
    int fd = wait_for(io, &open);
    assert_true(fd >= 0);
    struct call w = { .op.done = called }, f = { .op.done = called }, d = { .op.done = called };
    io->ops->write(io, &w.op, fd, page, 8192, 4096, true);
    assert_true(w.op.busy);
    assert_int_equal(w.times, 0);
    assert_int_equal(wait_for(io, &w), 0);
    assert_false(w.op.busy);
    io->ops->flush(io, &f.op, fd);
    assert_int_equal(wait_for(io, &f), 0);
    io->ops->flush(io, &d.op, dir);
    assert_int_equal(wait_for(io, &d), 0);
    assert_int_equal(io->ops->file_size(io, fd), 12288);
    assert_int_equal(io->ops->file_read(io, fd, back, 8192, 4096), 8192);
    assert_memory_equal(back, page, 8192);
    assert_int_equal(io->ops->file_read(io, fd, back, 8192, 8192), 4096); /* past the end */
    assert_int_equal(io->ops->file_read(io, fd, back, 8192, 65536), 0);
    assert_int_equal(io->ops->file_flush(io, fd), 0);
    io->ops->file_close(io, fd);

    struct call absent = { .op.done = called };
    io->ops->open(io, &absent.op, dir, "none", O_RDWR, 0, true);
    assert_int_equal(wait_for(io, &absent), -ENOENT);
    bool direct;
    assert_int_equal(io->ops->file_open(io, dir, "none", O_RDWR, 0, true, &direct), -ENOENT);
    assert_int_equal(io->ops->file_rename(io, dir, "f", "g"), 0);
    assert_int_equal(io->ops->file_rename(io, dir, "f", "g"), -ENOENT);
    assert_int_equal(io->ops->file_unlink(io, dir, "g"), 0);
    assert_int_equal(io->ops->file_unlink(io, dir, "g"), -ENOENT);
    free(page);
    free(back);
    close(dir);
    rig_dir_remove(path);
}
BOTH(writes_flushes_and_opens)

static void refuses_what_is_no_file(struct pawl_io *io)
{
    char path[64];
    int dir = rig_dir_make(path);
    bool direct;
    assert_int_equal(symlinkat("/etc/passwd", dir, "link"), 0);
    assert_int_equal(mkfifoat(dir, "pipe", 0600), 0);
    assert_int_equal(io->ops->file_open(io, dir, "link", O_RDWR, 0, false, &direct), -ELOOP);
    assert_int_equal(io->ops->file_open(io, dir, "pipe", O_RDWR, 0, false, &direct), -EINVAL);
    struct call link = { .op.done = called }, pipe = { .op.done = called };
    io->ops->open(io, &link.op, dir, "link", O_RDWR, 0, true);
    assert_int_equal(wait_for(io, &link), -ELOOP);
    io->ops->open(io, &pipe.op, dir, "pipe", O_RDWR, 0, true);
    assert_int_equal(wait_for(io, &pipe), -EINVAL);
    close(dir);
    rig_dir_remove(path);
}
BOTH(refuses_what_is_no_file)

/* U4, B-W14: far more than a submission queue holds. */
static void finishes_more_than_the_ring_holds(struct pawl_io *io)
{
    enum { COUNT = 500 };
    char path[64];
    int dir = rig_dir_make(path);
    bool direct;
    int fd = io->ops->file_open(io, dir, "f", O_RDWR | O_CREAT, 0600, true, &direct);
    assert_true(fd >= 0);
    uint8_t *pages = aligned_alloc(4096, COUNT * 4096);
    struct call *c = calloc(COUNT, sizeof *c);
    for (unsigned i = 0; i < COUNT; i++) {
        memset(pages + i * 4096, (int)i, 4096);
        c[i].op.done = called;
        io->ops->write(io, &c[i].op, fd, pages + i * 4096, 4096, i * 4096, i % 16 == 0);
    }
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(wait_for(io, &c[i]), 0);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(c[i].times, 1);
    uint8_t *back = aligned_alloc(4096, COUNT * 4096);
    assert_int_equal(io->ops->file_read(io, fd, back, COUNT * 4096, 0), COUNT * 4096);
    assert_memory_equal(back, pages, COUNT * 4096);
    free(back);
    free(pages);
    free(c);
    io->ops->file_close(io, fd);
    close(dir);
    rig_dir_remove(path);
}
BOTH(finishes_more_than_the_ring_holds)

/* U1, B-W16: the kernel takes a part and then refuses. Forked, since the limit stays. */
static void short_write_is_no_success(enum kind kind)
{
    char path[64];
    int dir = rig_dir_make(path);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = { 10000, 10000 };
        alarm(20);
        signal(SIGXFSZ, SIG_IGN);
        struct pawl_io *io = make_io(kind);
        bool direct;
        if (!io)
            _exit(77);
        int fd = io->ops->file_open(io, dir, "f", O_RDWR | O_CREAT, 0600, false, &direct);
        uint8_t *pages = aligned_alloc(4096, 16384);
        memset(pages, 1, 16384);
        struct call w = { .op.done = called };
        if (fd < 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(2);
        io->ops->write(io, &w.op, fd, pages, 16384, 0, true);
        _exit(wait_for(io, &w) < 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(dir);
    rig_dir_remove(path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
static void short_write_is_no_success_on_uring(void **state) { short_write_is_no_success(URING); }
static void short_write_is_no_success_on_posix(void **state) { short_write_is_no_success(POSIX); }

/* --- results of calls ------------------------------------------------------------------------ */

static void begin_write(struct pawl_io_op *op, bool durable)
{
    static const _Alignas(4096) uint8_t data[16384];
    *op = (struct pawl_io_op){ .done = called };
    pawl_op_init_write(op, 3, data, sizeof data, 0, durable, true);
}

/* U3, B-W15: no errno at any step is ever taken for success, or gone on with for ever. */
static void every_errno_ends_in_an_error(void **state)
{
    for (int error = 1; error <= 133; error++) {
        for (unsigned how = 0; how < 4; how++) {
            struct pawl_io_op op;
            bool no_dsync = false, over = false;
            int result = 12345;
            if (how < 2)
                begin_write(&op, how == 1);
            else
                op = (struct pawl_io_op){ .done = called };
            if (how == 2)
                pawl_op_init_flush(&op, 3);
            if (how == 3)
                pawl_op_init_open(&op, 3, "x", 0, 0, true);
            unsigned calls = 0;
            while (!over && calls < 1000) {
                over = pawl_op_step(&op, -error, &result, &no_dsync);
                calls++;
            }
            assert_true(over);
            assert_int_equal(result, -error);
            if (error != EAGAIN && error != EINTR && error != EOPNOTSUPP && error != EINVAL)
                assert_int_equal(calls, 1);
        }
    }
}

static void a_few_retries_are_free(void **state)
{
    static const int errors[] = { -EAGAIN, -EINTR };
    for (unsigned e = 0; e < 2; e++) {
        for (unsigned times = 1; times <= 3; times += 2) {
            struct pawl_io_op op;
            bool no_dsync = false;
            int result = 1;
            begin_write(&op, true);
            for (unsigned i = 0; i < times; i++)
                assert_false(pawl_op_step(&op, errors[e], &result, &no_dsync));
            assert_true(pawl_op_step(&op, 16384, &result, &no_dsync));
            assert_int_equal(result, 0);
        }
    }
}

/* U1: every count that a write can return, then the rest: over only when every byte was taken. */
static void short_counts_are_gone_on_with(void **state)
{
    for (int count = 1; count < 16384; count++) {
        struct pawl_io_op op;
        bool no_dsync = false;
        int result = 1;
        begin_write(&op, true);
        assert_false(pawl_op_step(&op, count, &result, &no_dsync));
        assert_true(op.finished <= (size_t)count);
        assert_int_equal(op.finished % 4096, 0);
        assert_true((size_t)count - op.finished < 4096);
        assert_true(pawl_op_step(&op, (int)(16384 - op.finished), &result, &no_dsync));
        assert_int_equal(result, 0);
    }
    struct pawl_io_op op;
    bool no_dsync = false;
    int result = 1;
    begin_write(&op, true);
    assert_true(pawl_op_step(&op, 0, &result, &no_dsync)); /* takes nothing, says nothing */
    assert_int_equal(result, -EIO);
    begin_write(&op, true);
    assert_true(pawl_op_step(&op, 16385, &result, &no_dsync));
    assert_true(result < 0);
    begin_write(&op, true);
    unsigned calls = 0;
    while (!pawl_op_step(&op, 100, &result, &no_dsync) && ++calls < 1000)
        ;
    assert_true(calls < 1000); /* never a whole page: given up */
    assert_true(result < 0);
}

/* Where the file system does not know RWF_DSYNC, a flush follows the last byte, never comes before.
 */
static void flush_follows_where_dsync_is_unknown(void **state)
{
    struct pawl_io_op op;
    bool no_dsync = false;
    int result = 1;
    begin_write(&op, true);
    assert_int_equal(op.kind, PAWL_OP_WRITE_DURABLE);
    assert_false(pawl_op_step(&op, -EOPNOTSUPP, &result, &no_dsync));
    assert_true(no_dsync);
    assert_int_equal(op.kind, PAWL_OP_WRITE_FLUSH);
    assert_false(pawl_op_step(&op, 4096, &result, &no_dsync));
    assert_int_equal(op.kind, PAWL_OP_WRITE_FLUSH);
    assert_false(pawl_op_step(&op, 12288, &result, &no_dsync));
    assert_int_equal(op.kind, PAWL_OP_FLUSH_AFTER);
    assert_true(pawl_op_step(&op, -EIO, &result, &no_dsync));
    assert_int_equal(result, -EIO);
}

/* --- readiness ------------------------------------------------------------------------------- */

struct seen {
    struct pawl_io_watch watch;
    unsigned times;
    uint32_t events;
    struct pawl_io *io;
    struct seen *removes;
};
static void ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct seen *s = PAWL_CONTAINER(watch, struct seen, watch);
    s->times++;
    s->events |= events;
    if (s->removes && s->removes->watch.armed)
        s->io->ops->watch_remove(s->io, &s->removes->watch);
}
static void ring_bell(int fd)
{
    uint64_t one = 1;
    assert_int_equal(write(fd, &one, sizeof one), sizeof one);
}

static void watches_report_edges(struct pawl_io *io)
{
    struct seen s = { .watch = { .ready = ready, .events = EPOLLIN } };
    s.watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_int_equal(io->ops->watch_add(io, &s.watch), 0);
    assert_int_equal(io->ops->watch_add(io, &s.watch), -EALREADY);
    assert_int_equal(io->ops->wait(io, 0), 0);
    for (unsigned n = 1; n <= 5; n++) {
        ring_bell(s.watch.fd); /* never read: still each write is an edge */
        while (s.times < n)
            assert_true(io->ops->wait(io, UINT64_MAX) >= 0);
        assert_true(s.events & EPOLLIN);
        assert_int_equal(io->ops->wait(io, 1000000), 0); /* and no edge comes twice */
    }
    io->ops->watch_remove(io, &s.watch);
    assert_false(s.watch.armed);
    ring_bell(s.watch.fd);
    assert_int_equal(io->ops->wait(io, 1000000), 0);
    assert_int_equal(s.times, 5);
    /* Armed again while it is ready: reported. */
    assert_int_equal(io->ops->watch_add(io, &s.watch), 0);
    while (s.times < 6)
        assert_true(io->ops->wait(io, UINT64_MAX) >= 0);
    io->ops->watch_remove(io, &s.watch);
    close(s.watch.fd);
}
BOTH(watches_report_edges)

static void watches_see_the_other_side_close(struct pawl_io *io)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct seen s = { .watch = { .ready = ready, .events = EPOLLIN | EPOLLRDHUP, .fd = pair[0] } };
    assert_int_equal(io->ops->watch_add(io, &s.watch), 0);
    close(pair[1]);
    while (!(s.events & EPOLLHUP))
        assert_true(io->ops->wait(io, UINT64_MAX) >= 0);
    io->ops->watch_remove(io, &s.watch);
    close(pair[0]);
}
BOTH(watches_see_the_other_side_close)

/* The other side must see a close at once, though a poll was armed on the descriptor. */
static void removed_watch_lets_go_of_its_file(struct pawl_io *io)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct seen s = { .watch = { .ready = ready, .events = EPOLLIN, .fd = pair[0] } };
    assert_int_equal(io->ops->watch_add(io, &s.watch), 0);
    assert_int_equal(io->ops->wait(io, 0), 0);
    io->ops->watch_remove(io, &s.watch);
    close(pair[0]);
    assert_int_equal(io->ops->wait(io, 0), 0);
    char c;
    assert_int_equal(read(pair[1], &c, 1), 0); /* end of file, and no hang */
    close(pair[1]);
}
BOTH(removed_watch_lets_go_of_its_file)

/* Two are ready in one wait; the first removes the second. */
static void removed_watch_is_not_called(struct pawl_io *io)
{
    struct seen s[2] = { 0 };
    for (unsigned i = 0; i < 2; i++) {
        s[i] = (struct seen){ .watch = { .ready = ready, .events = EPOLLIN },
                              .io = io,
                              .removes = &s[1 - i] };
        s[i].watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        assert_int_equal(io->ops->watch_add(io, &s[i].watch), 0);
    }
    ring_bell(s[0].watch.fd);
    ring_bell(s[1].watch.fd);
    while (s[0].times + s[1].times == 0)
        assert_true(io->ops->wait(io, UINT64_MAX) >= 0);
    assert_int_equal(io->ops->wait(io, 1000000), 0);
    assert_int_equal(s[0].times + s[1].times, 1);
    for (unsigned i = 0; i < 2; i++) {
        if (s[i].watch.armed)
            io->ops->watch_remove(io, &s[i].watch);
        close(s[i].watch.fd);
    }
}
BOTH(removed_watch_is_not_called)

/* ... nor is another one that took its place in the table meanwhile. */
static struct seen *newcomer;
static void replace(struct pawl_io_watch *watch, uint32_t events)
{
    struct seen *s = PAWL_CONTAINER(watch, struct seen, watch);
    s->times++;
    if (s->removes && s->removes->watch.armed && !newcomer->watch.armed) {
        s->io->ops->watch_remove(s->io, &s->removes->watch);
        assert_int_equal(s->io->ops->watch_add(s->io, &newcomer->watch), 0);
    }
}

static void newcomer_is_not_called_for_the_removed(struct pawl_io *io)
{
    struct seen s[2] = { 0 }, late = { .watch = { .ready = ready, .events = EPOLLIN } };
    late.watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    newcomer = &late;
    for (unsigned i = 0; i < 2; i++) {
        s[i] = (struct seen){ .watch = { .ready = replace, .events = EPOLLIN },
                              .io = io,
                              .removes = &s[1 - i] };
        s[i].watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        assert_int_equal(io->ops->watch_add(io, &s[i].watch), 0);
    }
    ring_bell(s[0].watch.fd);
    ring_bell(s[1].watch.fd);
    while (s[0].times + s[1].times == 0)
        assert_true(io->ops->wait(io, UINT64_MAX) >= 0);
    assert_int_equal(io->ops->wait(io, 1000000), 0);
    assert_int_equal(s[0].times + s[1].times, 1);
    assert_int_equal(late.times, 0);
    ring_bell(late.watch.fd);
    while (late.times == 0)
        assert_true(io->ops->wait(io, UINT64_MAX) >= 0);
    for (unsigned i = 0; i < 2; i++) {
        if (s[i].watch.armed)
            io->ops->watch_remove(io, &s[i].watch);
        close(s[i].watch.fd);
    }
    io->ops->watch_remove(io, &late.watch);
    close(late.watch.fd);
}
BOTH(newcomer_is_not_called_for_the_removed)

/* U5, B-W17: more edges at once than the completion queue holds. */
static void burst_of_edges_loses_none(struct pawl_io *io)
{
    enum { WANT = 6000 };
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    unsigned count = 0;
    struct seen *s = calloc(WANT, sizeof *s);
    for (; count < WANT; count++) {
        s[count].watch = (struct pawl_io_watch){ .ready = ready, .events = EPOLLIN };
        s[count].watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (s[count].watch.fd < 0)
            break;
        assert_int_equal(io->ops->watch_add(io, &s[count].watch), 0);
    }
    if (count < 4200)
        print_message("only %u descriptors: less than the queue\n", count);
    for (unsigned round = 1; round <= 2; round++) {
        for (unsigned i = 0; i < count; i++)
            ring_bell(s[i].watch.fd);
        for (unsigned i = 0; i < count; i++)
            while (s[i].times < round)
                assert_true(io->ops->wait(io, UINT64_MAX) >= 0);
    }
    for (unsigned i = 0; i < count; i++) {
        io->ops->watch_remove(io, &s[i].watch);
        close(s[i].watch.fd);
    }
    free(s);
}
BOTH(burst_of_edges_loses_none)

/* --- waiting --------------------------------------------------------------------------------- */

static void waits_no_less_than_asked(struct pawl_io *io)
{
    /* A signal may end a wait early, and the kernel's clean-up after an earlier ring is one. */
    unsigned whole = 0;
    for (unsigned i = 0; i < 5; i++) {
        uint64_t from = pawl_clock_boot();
        assert_int_equal(io->ops->wait(io, 3000000), 0);
        whole += pawl_clock_boot() - from >= 3000000;
    }
    assert_true(whole >= 3);
    assert_int_equal(io->ops->wait(io, 0), 0);
}
BOTH(waits_no_less_than_asked)

static void nothing(int signal) {}

static void signal_ends_a_wait(struct pawl_io *io)
{
    struct sigaction act = { .sa_handler = nothing };
    assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
    sigset_t block, old;
    sigemptyset(&block);
    /* Pending when the wait begins; its default is to be taken during the wait. */
    sigaddset(&block, SIGALRM);
    sigprocmask(SIG_BLOCK, &block, &old);
    struct itimerspec in = { .it_value = { .tv_nsec = 2000000 },
                             .it_interval = { .tv_nsec = 2000000 } };
    timer_t timer;
    struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &ev, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &in, NULL), 0);
    assert_int_equal(io->ops->wait(io, UINT64_MAX), 0);
    timer_delete(timer);
    sigprocmask(SIG_SETMASK, &old, NULL);
}
BOTH(signal_ends_a_wait)

struct moved {
    struct pawl_io *io;
    struct seen seen;
    int dir, result;
};
static void *move_main(void *arg)
{
    struct moved *m = arg;
    static const _Alignas(4096) uint8_t page[4096];
    uint64_t one = 1;
    bool direct;
    m->result = -1;
    if (write(m->seen.watch.fd, &one, sizeof one) != sizeof one)
        return NULL;
    while (m->seen.times == 0)
        if ((m->result = m->io->ops->wait(m->io, UINT64_MAX)) < 0)
            return NULL;
    int fd = m->io->ops->file_open(m->io, m->dir, "f", O_RDWR | O_CREAT, 0600, true, &direct);
    struct call w = { .op.done = called };
    m->io->ops->write(m->io, &w.op, fd, page, sizeof page, 0, true);
    m->result = wait_for(m->io, &w);
    close(fd);
    return NULL;
}

/* Made and used in one thread, run in another: with all its watches. */
static void moves_to_another_thread(struct pawl_io *io)
{
    char path[64];
    struct moved m = { .io = io,
                       .seen = { .watch = { .ready = ready, .events = EPOLLIN } },
                       .dir = rig_dir_make(path) };
    m.seen.watch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_int_equal(io->ops->watch_add(io, &m.seen.watch), 0);
    assert_int_equal(io->ops->wait(io, 0), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, move_main, &m), 0);
    pthread_join(thread, NULL);
    assert_int_equal(m.result, 0);
    /* And back; a bell that has rung is reported again where it is armed anew. */
    assert_true(io->ops->wait(io, 0) >= 0);
    io->ops->watch_remove(io, &m.seen.watch);
    close(m.seen.watch.fd);
    close(m.dir);
    rig_dir_remove(path);
}
BOTH(moves_to_another_thread)

/* --- what there is ---------------------------------------------------------------------------- */

/* U7: io_uring forbidden or unknown, as containers do it. Forked, since a filter stays. */
static int auto_under_filter(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = PAWL_COUNT(code), .filter = code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 77;
    char text[256];
    if (pawl_io_uring_create(text) != NULL)
        return 2;
    struct pawl_io *io = pawl_io_auto_create(text);
    if (!io || strcmp(io->ops->name, "posix") != 0)
        return 3;
    if (!strstr(text, "no io_uring") || !strstr(text, "posix"))
        return 4;
    io->ops->destroy(io);
    return 0;
}

static void falls_back_where_uring_is_forbidden(void **state)
{
    static const int errors[] = { EPERM, ENOSYS, ENOMEM, EACCES };
    for (unsigned i = 0; i < PAWL_COUNT(errors); i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(auto_under_filter(errors[i]));
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            print_message("skip: no seccomp here\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void old_kernels_are_refused(void **state)
{
    assert_true(pawl_io_uring_kernel_ok("6.18.44-fc"));
    assert_true(pawl_io_uring_kernel_ok("5.15.0"));
    assert_false(pawl_io_uring_kernel_ok("5.14.9"));
    assert_false(pawl_io_uring_kernel_ok("4.19"));
    assert_false(pawl_io_uring_kernel_ok("what"));
}

#define TWO(name) cmocka_unit_test(name##_on_uring), cmocka_unit_test(name##_on_posix)

int main(void)
{
    alarm(300);
    const struct CMUnitTest tests[] = {
        TWO(writes_flushes_and_opens),
        TWO(refuses_what_is_no_file),
        TWO(finishes_more_than_the_ring_holds),
        TWO(short_write_is_no_success),
        cmocka_unit_test(a_read_brings_what_there_is_and_blocks_nobody),
        cmocka_unit_test(every_errno_ends_in_an_error),
        cmocka_unit_test(a_few_retries_are_free),
        cmocka_unit_test(short_counts_are_gone_on_with),
        cmocka_unit_test(flush_follows_where_dsync_is_unknown),
        TWO(watches_report_edges),
        TWO(watches_see_the_other_side_close),
        TWO(removed_watch_lets_go_of_its_file),
        TWO(removed_watch_is_not_called),
        TWO(newcomer_is_not_called_for_the_removed),
        TWO(burst_of_edges_loses_none),
        TWO(waits_no_less_than_asked),
        TWO(signal_ends_a_wait),
        TWO(moves_to_another_thread),
        cmocka_unit_test(falls_back_where_uring_is_forbidden),
        cmocka_unit_test(old_kernels_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
