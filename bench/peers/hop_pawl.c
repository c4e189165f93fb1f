/* SPDX-License-Identifier: MIT */
/* pawl as a hop: memory queues through the broker, each message leased and acknowledged. */
#include <stdlib.h>
#include <string.h>

#include "../bench.h"
#include "peer.h"
#include "peers.h"

#define WINDOW 1024u

struct end {
    struct pawl *lane;
    const char *out, *in;
    uint32_t open; /* without an answer yet */
    struct pawl_message m[256];
    uint32_t at, count;
};

static struct bench_broker broker;

static void version(char *out, size_t bytes) { snprintf(out, bytes, "%s", PAWL_VERSION); }

static void prepare(const char *dir, int core)
{
    (void)dir;
    struct bench_broker_options o = { .core = core, .memory = "4G" };
    bench_broker_start(peer_bench, &broker, &o);
    struct pawl *lane = bench_client(&broker, NULL);
    bench_queue(lane, "way0", PAWL_MEMORY);
    bench_queue(lane, "way1", PAWL_MEMORY);
    pawl_close(lane);
}

static void *open_end(const char *dir, int end)
{
    (void)dir;
    struct end *e = calloc(1, sizeof(*e));
    struct bench_client_options o = { .prefetch = 512, .window = WINDOW };
    if (e == NULL)
        bench_fail("no memory");
    e->lane = bench_client(&broker, &o);
    e->out = end == 0 ? "way0" : "way1";
    e->in = end == 0 ? "way1" : "way0";
    return e;
}

static void answers(struct end *e, uint32_t least)
{
    struct pawl_answer a[256];
    int n = bench_must(e->lane, pawl_poll(e->lane, a, 256, least, 30 * PAWL_NS_S), "poll");
    for (int i = 0; i < n; i++)
        bench_must(e->lane, a[i].result, "an answer");
    e->open -= (uint32_t)n;
}

static void send_one(void *h, const void *body, size_t n)
{
    struct end *e = h;
    pawl_ticket ticket;
    if (e->open >= WINDOW - 1)
        answers(e, 256);
    bench_must(e->lane, pawl_submit_send(e->lane, e->out, body, n, NULL, &ticket), "send");
    /* A wake-up for many, unless the other side waits for this very one. */
    if (++e->open % 64 == 1)
        bench_must(e->lane, pawl_flush(e->lane), "flush");
}

static void receive_one(void *h, void *body, size_t n)
{
    struct end *e = h;
    pawl_ticket ticket;
    if (e->at == e->count) {
        struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
        wait.wait_ns = 30 * PAWL_NS_S;
        if (e->open > WINDOW / 2)
            answers(e, 256);
        else
            answers(e, 0);
        e->at = 0;
        if (bench_must(e->lane, pawl_receive_batch(e->lane, &e->in, 1, &wait, e->m, 256, &e->count),
                       "receive") != PAWL_OK)
            bench_fail("no message within 30 s");
    }
    const struct pawl_message *m = &e->m[e->at++];
    if (m->bytes != n)
        bench_fail("pawl: a message of %zu bytes", m->bytes);
    memcpy(body, m->body, n);
    bench_must(e->lane, pawl_submit_ack(e->lane, &m->token, 0, &ticket), "ack");
    e->open++;
}

static void close_end(void *h)
{
    struct end *e = h;
    while (e->open > 0)
        answers(e, 1);
    pawl_close(e->lane);
    free(e);
}

static void done(const char *dir)
{
    (void)dir;
    bench_broker_stop(&broker);
    bench_broker_remove(&broker);
}

const struct peer_hop hop_pawl = {
    "pawl, memory queue", "asleep",  version, prepare, open_end, send_one,
    receive_one,          close_end, done
};
