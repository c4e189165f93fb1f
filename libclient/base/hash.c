/* SPDX-License-Identifier: MIT */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pawl_hash64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

struct pawl_hash128 pawl_hash128(const void *data, size_t bytes, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(data, bytes, seed);
    return (struct pawl_hash128){ .low = h.low64, .high = h.high64 };
}
