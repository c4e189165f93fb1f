/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_DIRECT_END_H
#define PAWL_BENCH_DIRECT_END_H

/* One process's end of a direct queue: through the public calls with a broker beside, or through
 * the functions of abi/direct.h alone ("ring"). Every call fails the benchmark where the queue
 * refuses. */

#include "abi/direct.h"
#include "bench.h"
#include "direct_ring.h"

#define BENCH_END_BATCH_MAX 64u

/* The two sides' common ground, before the fork: two queues, there and back. */
struct bench_direct {
    const struct bench *b;
    bool api, asleep, yields;
    uint32_t queues, body_bytes;
    struct bench_ring ring[2];
    struct bench_broker broker;
};
void bench_direct_make(struct bench_direct *d, uint32_t capacity);
void bench_direct_free(struct bench_direct *d);

struct bench_end {
    const struct bench_direct *d;
    /* public */
    struct pawl *lane;
    const char *queue;
    struct pawl_item items[BENCH_END_BATCH_MAX];
    struct pawl_sent results[BENCH_END_BATCH_MAX];
    struct pawl_message messages[BENCH_END_BATCH_MAX];
    struct pawl_token tokens[BENCH_END_BATCH_MAX];
    /* ring */
    struct pawl_direct_lane *ring;
    struct pawl_direct_body bodies[BENCH_END_BATCH_MAX];
    struct pawl_direct_delivery deliveries[BENCH_END_BATCH_MAX];
    /* both */
    uint64_t *out[BENCH_END_BATCH_MAX];      /* bodies to be sent, to be written by the caller */
    const uint64_t *in[BENCH_END_BATCH_MAX]; /* bodies of what was taken */
    uint32_t taken;
};

/* The end of queue `way` with lane `number`; `other`: an end of this process, or NULL. */
struct bench_end *bench_end_open(const struct bench_direct *d, uint32_t way, uint32_t number,
                                 const struct bench_end *other);
/* Sends the first n of `out`, waiting for room. */
void bench_end_send(struct bench_end *e, uint32_t n);
/* Leases 0..max messages without waiting, into `in`. */
uint32_t bench_end_look(struct bench_end *e, uint32_t max);
/* Leases one, waiting for it: asleep or spinning as the run says. */
void bench_end_wait(struct bench_end *e);
/* Acknowledges all that was taken. */
void bench_end_ack(struct bench_end *e);
void bench_end_close(struct bench_end *e); /* closes the lane, which `other` shares */

#endif
