/* SPDX-License-Identifier: MIT */
/* Unix sockets (SOCK_SEQPACKET) and pipes: descriptors made before the fork. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer.h"

static int ends[2][2]; /* of each end: the one it reads, the one it writes */

struct fds {
    int in, out;
};

static void prepare_unix(const char *dir, int core)
{
    (void)dir, (void)core;
    int s[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) != 0)
        bench_fail("socketpair: %s", strerror(errno));
    ends[0][0] = ends[0][1] = s[0];
    ends[1][0] = ends[1][1] = s[1];
}

static void prepare_pipe(const char *dir, int core)
{
    (void)dir, (void)core;
    int a[2], b[2];
    if (pipe(a) != 0 || pipe(b) != 0)
        bench_fail("pipe: %s", strerror(errno));
    ends[0][0] = b[0];
    ends[0][1] = a[1];
    ends[1][0] = a[0];
    ends[1][1] = b[1];
}

static void *open_end(const char *dir, int end)
{
    (void)dir;
    struct fds *f = malloc(sizeof(*f));
    if (f == NULL)
        bench_fail("no memory");
    f->in = ends[end][0];
    f->out = ends[end][1];
    return f;
}

static void send_one(void *h, const void *body, size_t n)
{
    struct fds *f = h;
    if (write(f->out, body, n) != (ssize_t)n) /* up to PIPE_BUF a pipe takes it whole */
        bench_fail("write: %s", strerror(errno));
}

static void receive_one(void *h, void *body, size_t n)
{
    struct fds *f = h;
    for (size_t at = 0; at < n;) {
        ssize_t got = read(f->in, (char *)body + at, n - at);
        if (got <= 0)
            bench_fail("read: %s", got == 0 ? "end" : strerror(errno));
        at += (size_t)got;
    }
}

static void close_end(void *h) { free(h); }

static void done(const char *dir)
{
    (void)dir;
    close(ends[0][0]);
    close(ends[1][0]);
    if (ends[0][1] != ends[0][0]) {
        close(ends[0][1]);
        close(ends[1][1]);
    }
}

const struct peer_hop hop_unix = { "Unix socket", "asleep",    NULL,      prepare_unix, open_end,
                                   send_one,      receive_one, close_end, done };
const struct peer_hop hop_pipe = { "pipe",   "asleep",    NULL,      prepare_pipe, open_end,
                                   send_one, receive_one, close_end, done };
