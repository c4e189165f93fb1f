/* SPDX-License-Identifier: MIT */
/* pawl: a memory queue, or a durable one. */
#include <stdlib.h>

#include "peers.h"

struct client {
    struct pawl *lane;
    struct pawl_message *m;
    uint32_t count;
};

static struct bench_broker broker;

static void version(char *out, size_t bytes) { snprintf(out, bytes, "%s", PAWL_VERSION); }

static void start(const char *dir, bool durable, int core)
{
    (void)dir;
    struct bench_broker_options o = { .core = core, .memory = "4G" };
    bench_broker_start(peer_bench, &broker, &o);
    struct pawl *lane = bench_client(&broker, NULL);
    bench_queue(lane, "q", durable ? PAWL_DURABLE : PAWL_MEMORY);
    pawl_close(lane);
}

static void *open_client(const char *dir, bool durable)
{
    (void)dir, (void)durable;
    struct client *c = calloc(1, sizeof(*c));
    struct bench_client_options o = { .window = 2048,
                                      .prefetch = PEER_BATCH_MAX,
                                      .ring_bytes = 1 << 20 };
    if (c == NULL || (c->m = calloc(PEER_BATCH_MAX, sizeof(*c->m))) == NULL)
        bench_fail("no memory");
    c->lane = bench_client(&broker, &o);
    return c;
}

static void answers(struct client *c, uint32_t n)
{
    struct pawl_answer a[256];
    while (n > 0) {
        uint32_t want = n < 256 ? n : 256;
        int got = bench_must(c->lane, pawl_poll(c->lane, a, 256, want, 30 * PAWL_NS_S), "poll");
        for (int i = 0; i < got; i++)
            bench_must(c->lane, a[i].result, "an answer");
        n -= (uint32_t)got;
    }
}

static void send_some(void *h, const void *body, size_t bytes, uint32_t n)
{
    struct client *c = h;
    pawl_ticket ticket;
    for (uint32_t i = 0; i < n; i++)
        bench_must(c->lane, pawl_submit_send(c->lane, "q", body, bytes, NULL, &ticket), "send");
    answers(c, n);
}

static uint32_t take(void *h, uint32_t max)
{
    struct client *c = h;
    const char *queue = "q";
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    wait.wait_ns = PAWL_NS_S;
    bench_must(c->lane, pawl_receive_batch(c->lane, &queue, 1, &wait, c->m, max, &c->count),
               "receive");
    return c->count;
}

static void ack(void *h)
{
    struct client *c = h;
    pawl_ticket ticket;
    for (uint32_t i = 0; i < c->count; i++)
        bench_must(c->lane, pawl_submit_ack(c->lane, &c->m[i].token, 0, &ticket), "ack");
    answers(c, c->count);
}

static void close_client(void *h)
{
    struct client *c = h;
    pawl_close(c->lane);
    free(c->m);
    free(c);
}

static void stop(void)
{
    bench_broker_stop(&broker);
    bench_broker_remove(&broker);
}

const struct peer_queue queue_pawl = {
    .name = "pawl",
    .has_volatile = true,
    .has_durable = true,
    .real = "O_DSYNC write before each answer and each delivery, shared by all that is pending",
    .settings = "memory queue; durable queue. Shared rings, prefetch 1,024, ring of 1 MiB",
    .version = version,
    .start = start,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};
