/* SPDX-License-Identifier: MIT */
/* POSIX message queues, one each way. */
#include <errno.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

struct mq {
    mqd_t out, in;
};

static mqd_t open_one(int way, int flags)
{
    char name[64];
    struct mq_attr a = { .mq_maxmsg = 10, .mq_msgsize = PEER_BODY_MAX }; /* 10: what all may have */
    peer_name(way, name, sizeof(name));
    mqd_t q = mq_open(name, flags | O_CLOEXEC, 0600, &a);
    if (q == (mqd_t)-1)
        bench_fail("POSIX mq: %s", strerror(errno));
    return q;
}

static void done(const char *dir)
{
    (void)dir;
    char name[64];
    for (int way = 0; way < 2; way++) {
        peer_name(way, name, sizeof(name));
        mq_unlink(name);
    }
}

static void prepare(const char *dir, int core)
{
    (void)core;
    done(dir);
    for (int way = 0; way < 2; way++)
        mq_close(open_one(way, O_CREAT | O_RDWR));
}

static void *open_end(const char *dir, int end)
{
    (void)dir;
    struct mq *q = malloc(sizeof(*q));
    if (q == NULL)
        bench_fail("no memory");
    q->out = open_one(end, O_WRONLY);
    q->in = open_one(1 - end, O_RDONLY);
    return q;
}

static void send_one(void *h, const void *body, size_t n)
{
    struct mq *q = h;
    if (mq_send(q->out, body, n, 0) != 0)
        bench_fail("mq_send: %s", strerror(errno));
}

static void receive_one(void *h, void *body, size_t n)
{
    struct mq *q = h;
    char all[PEER_BODY_MAX];
    if (mq_receive(q->in, all, sizeof(all), NULL) != (ssize_t)n)
        bench_fail("mq_receive: %s", strerror(errno));
    memcpy(body, all, n);
}

static void close_end(void *h)
{
    struct mq *q = h;
    mq_close(q->out);
    mq_close(q->in);
    free(q);
}

const struct peer_hop hop_mq = { "POSIX mq", "asleep",    NULL,      prepare, open_end,
                                 send_one,   receive_one, close_end, done };
