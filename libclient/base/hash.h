/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BASE_HASH_H
#define PAWL_BASE_HASH_H

/* XXH3 behind two functions, so that only hash.c includes xxhash. Not a MAC: seeds keep an honest
 * table from being flooded and an old block from looking new, they do not resist forgery. */

#include <stddef.h>
#include <stdint.h>

struct pawl_hash128 {
    uint64_t low, high;
};

uint64_t pawl_hash64(const void *data, size_t bytes, uint64_t seed);
struct pawl_hash128 pawl_hash128(const void *data, size_t bytes, uint64_t seed);

/* A finaliser for integer keys (splitmix64, Steele, Lea and Flood 2014): every input bit reaches
 * all output bits, so tables may be indexed by the low ones. */
static inline uint64_t pawl_hash_u64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

#endif
