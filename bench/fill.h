/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_FILL_H
#define PAWL_BENCH_FILL_H

/* Puts many messages into a queue, `window` in flight, and waits for all answers. */

#include "bench.h"

struct bench_fill {
    const char *queue;
    uint32_t body_bytes, window;
    uint64_t count;   /* stop after so many */
    uint64_t lsn_max; /* or when the log has come so far; UINT64_MAX: never */
    /* Sets the options of message number i; NULL: none. */
    void (*options)(void *ctx, uint64_t i, struct pawl_send_options *o);
    void *ctx;
    /* out: */
    uint64_t sent, lsn, took_ns;
};

/* Fails the benchmark if a send is refused. */
void bench_fill(struct pawl *lane, struct bench_fill *f);

#endif
