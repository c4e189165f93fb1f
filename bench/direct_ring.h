/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_DIRECT_RING_H
#define PAWL_BENCH_DIRECT_RING_H

/* A direct queue in a memfd, for processes that are forked after it was made. */

#include "abi/direct.h"

#define BENCH_RING_LANES 8u

struct bench_ring {
    void *memory;
    uint64_t bytes;
    struct pawl_direct q;
};

/* Lanes 1..BENCH_RING_LANES may all be used, one process each. Leases last ten minutes. */
void bench_ring_make(struct bench_ring *r, uint32_t capacity, uint32_t body_bytes);
void bench_ring_free(struct bench_ring *r);
struct pawl_direct_lane *bench_ring_lane(const struct bench_ring *r, uint32_t number);

#endif
