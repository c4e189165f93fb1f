/* SPDX-License-Identifier: MIT */
#include "direct_end.h"

#include <sched.h>
#include <stdlib.h>

#include "abi/atomic.h"

#define SPIN_NS (10 * PAWL_NS_S)

static const char *const queue_names[2] = { "there", "back" };

static void make_api(struct bench_direct *d, uint32_t capacity)
{
    const struct bench *b = d->b;
    struct bench_broker_options o = { .core = b->broker_core };
    bench_broker_start(b, &d->broker, &o);
    struct pawl *lane = bench_client(&d->broker, NULL);
    for (uint32_t i = 0; i < d->queues; i++) {
        struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
        q.mode = PAWL_DIRECT;
        q.max_messages = capacity;
        q.max_message_bytes = d->body_bytes;
        q.lease_ns = 600 * PAWL_NS_S;
        bench_must(lane, pawl_queue_create(lane, queue_names[i], &q), "create a direct queue");
    }
    pawl_close(lane);
}

void bench_direct_make(struct bench_direct *d, uint32_t capacity)
{
    if (d->api) {
        make_api(d, capacity);
        return;
    }
    for (uint32_t i = 0; i < d->queues; i++)
        bench_ring_make(&d->ring[i], capacity, d->body_bytes);
}

void bench_direct_free(struct bench_direct *d)
{
    if (d->api) {
        bench_broker_stop(&d->broker);
        bench_broker_remove(&d->broker);
        return;
    }
    for (uint32_t i = 0; i < d->queues; i++)
        bench_ring_free(&d->ring[i]);
}

struct bench_end *bench_end_open(const struct bench_direct *d, uint32_t way, uint32_t number,
                                 const struct bench_end *other)
{
    struct bench_end *e = calloc(1, sizeof(*e));
    size_t stride = (d->body_bytes + 127u) / 64u * 64u;
    uint8_t *bytes = aligned_alloc(64, 2 * BENCH_END_BATCH_MAX * stride);
    if (e == NULL || bytes == NULL)
        bench_fail("no memory");
    memset(bytes, 0x5a, 2 * BENCH_END_BATCH_MAX * stride);
    e->d = d;
    e->queue = queue_names[way];
    if (d->api && other != NULL) {
        e->lane = other->lane;
    } else if (d->api) {
        struct bench_client_options o = { .spin_ns = d->asleep ? 0 : SPIN_NS };
        e->lane = bench_client(&d->broker, &o);
    } else {
        e->ring = bench_ring_lane(&d->ring[way], number);
    }
    for (uint32_t i = 0; i < BENCH_END_BATCH_MAX; i++, bytes += 2 * stride) {
        e->out[i] = (uint64_t *)(void *)bytes;
        e->items[i] = (struct pawl_item){ .body = bytes, .bytes = d->body_bytes };
        e->bodies[i] = (struct pawl_direct_body){ .data = bytes, .length = d->body_bytes };
        e->deliveries[i].body = bytes + stride;
    }
    return e;
}

void bench_end_close(struct bench_end *e)
{
    if (e->d->api)
        pawl_close(e->lane);
}

static void relax(const struct bench_end *e)
{
    if (e->d->yields)
        sched_yield();
    else
        pawl_cpu_relax();
}

/* How many of items from..n-1 were sent; 0: no room. */
static uint32_t send_api(struct bench_end *e, uint32_t from, uint32_t n)
{
    if (n - from == 1) {
        int rc = pawl_send(e->lane, e->queue, e->items[from].body, e->items[from].bytes, NULL,
                           &e->results[0]);
        return rc != PAWL_E_FULL && bench_must(e->lane, rc, "direct send") == PAWL_OK;
    }
    int rc = pawl_send_batch(e->lane, e->queue, e->items + from, n - from, e->results);
    if (rc != PAWL_E_FULL) {
        bench_must(e->lane, rc, "direct send");
        return n - from;
    }
    uint32_t sent = 0;
    while (sent < n - from && e->results[sent].result == PAWL_OK)
        sent++;
    return sent;
}

static uint32_t send_ring(struct bench_end *e, uint32_t from, uint32_t n)
{
    int rc = pawl_direct_send(e->ring, e->bodies + from, n - from, NULL);
    if (rc < 0 && rc != PAWL_E_FULL)
        bench_fail("direct send: %s", pawl_strname(rc));
    return rc < 0 ? 0 : (uint32_t)rc;
}

void bench_end_send(struct bench_end *e, uint32_t n)
{
    for (uint32_t sent = 0, more; sent < n; sent += more) {
        more = e->d->api ? send_api(e, sent, n) : send_ring(e, sent, n);
        if (more == 0)
            relax(e);
    }
}

static void look_api(struct bench_end *e, uint32_t max, uint64_t wait_ns)
{
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    int rc;
    o.wait_ns = wait_ns;
    if (max == 1) {
        rc = bench_must(e->lane, pawl_receive(e->lane, e->queue, &o, e->messages), "receive");
        e->taken = rc == PAWL_OK;
    } else {
        bench_must(e->lane,
                   pawl_receive_batch(e->lane, &e->queue, 1, &o, e->messages, max, &e->taken),
                   "receive");
    }
    for (uint32_t i = 0; i < e->taken; i++) {
        if (e->messages[i].bytes != e->d->body_bytes)
            bench_fail("direct: a message of %zu bytes", e->messages[i].bytes);
        e->in[i] = e->messages[i].body;
        e->tokens[i] = e->messages[i].token;
    }
}

static void look_ring(struct bench_end *e, uint32_t max)
{
    int rc = pawl_direct_receive(e->ring, e->deliveries, max, PAWL_DIRECT_COPY);
    if (rc < 0)
        bench_fail("direct receive: %s", pawl_strname(rc));
    e->taken = (uint32_t)rc;
    for (uint32_t i = 0; i < e->taken; i++)
        e->in[i] = e->deliveries[i].body;
}

uint32_t bench_end_look(struct bench_end *e, uint32_t max)
{
    if (e->d->api)
        look_api(e, max, 0);
    else
        look_ring(e, max);
    if (e->taken == 0)
        relax(e);
    return e->taken;
}

static void wait_ring(struct bench_end *e)
{
    uint32_t *gate = &e->ring->q.shm->readers;
    for (look_ring(e, 1); e->taken == 0; look_ring(e, 1)) {
        if (!e->d->asleep) {
            while (!pawl_direct_poll(e->ring))
                relax(e);
            continue;
        }
        uint32_t kept = pawl_direct_gate_prepare(gate);
        look_ring(e, 1);
        if (e->taken == 1)
            return;
        pawl_direct_gate_wait(gate, kept, PAWL_DIRECT_SLEEP_NS_MAX);
    }
}

void bench_end_wait(struct bench_end *e)
{
    if (!e->d->api) {
        wait_ring(e);
        return;
    }
    look_api(e, 1, 30 * PAWL_NS_S);
    if (e->taken == 0)
        bench_fail("direct: no message within 30 s");
}

void bench_end_ack(struct bench_end *e)
{
    if (e->d->api && e->taken == 1) {
        bench_must(e->lane, pawl_ack(e->lane, &e->tokens[0], 0), "direct ack");
    } else if (e->d->api && e->taken > 1) {
        bench_must(e->lane, pawl_ack_batch(e->lane, e->tokens, e->taken, 0, NULL), "direct ack");
    } else {
        for (uint32_t i = 0; i < e->taken; i++) {
            int rc = pawl_direct_ack(e->ring, &e->deliveries[i].token);
            if (rc != PAWL_OK)
                bench_fail("direct ack: %s", pawl_strname(rc));
        }
    }
    e->taken = 0;
}
