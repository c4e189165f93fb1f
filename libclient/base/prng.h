/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BASE_PRNG_H
#define PAWL_BASE_PRNG_H

/* A small seeded generator (splitmix64) for tests, jitter and the simulator. Never for secrets:
 * those come from getrandom(2). */

#include <stdint.h>

struct pawl_prng {
    uint64_t state;
};

static inline uint64_t pawl_prng_next(struct pawl_prng *p)
{
    uint64_t z = (p->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
/* 0 <= result < below; below > 0. The bias of the multiply is under 2^-32 for below < 2^32. */
static inline uint64_t pawl_prng_below(struct pawl_prng *p, uint64_t below)
{
    return (uint64_t)(((unsigned __int128)pawl_prng_next(p) * below) >> 64);
}

#endif
