/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_HISTOGRAM_H
#define PAWL_BENCH_HISTOGRAM_H

/* A log-linear histogram of 64-bit values: exact below 256, above that each power of two is cut
 * into 128 equal buckets, so that a percentile is at most 1/128 (0.8 %) above the true value.
 * Minimum, maximum and sum are exact. 58 KiB, no pointers: it may lie in memory that processes
 * share, one writer at a time. Adding is O(1), a percentile O(buckets).
 * Tests: unit/bench_histogram_test. */

#include <stdint.h>
#include <string.h>

#define PAWL_HISTOGRAM_BITS 7u
#define PAWL_HISTOGRAM_BUCKETS ((64u - PAWL_HISTOGRAM_BITS + 1u) << PAWL_HISTOGRAM_BITS)

struct pawl_histogram {
    uint64_t count, min, max;
    double sum;
    uint64_t bucket[PAWL_HISTOGRAM_BUCKETS];
};

static inline void pawl_histogram_init(struct pawl_histogram *h)
{
    memset(h, 0, sizeof(*h));
    h->min = UINT64_MAX;
}

/* The bucket of a value: its highest 8 bits, and how far they were shifted. Growing and without
 * gaps. */
static inline uint32_t pawl_histogram_index(uint64_t value)
{
    if (value < (2u << PAWL_HISTOGRAM_BITS))
        return (uint32_t)value;
    uint32_t shift = 63u - PAWL_HISTOGRAM_BITS - (uint32_t)__builtin_clzll(value);
    return (shift << PAWL_HISTOGRAM_BITS) + (uint32_t)(value >> shift);
}

/* The highest value that falls into a bucket. */
static inline uint64_t pawl_histogram_highest(uint32_t index)
{
    if (index < (2u << PAWL_HISTOGRAM_BITS))
        return index;
    uint32_t shift = (index >> PAWL_HISTOGRAM_BITS) - 1u;
    uint64_t top = index - (shift << PAWL_HISTOGRAM_BITS);
    return ((top + 1u) << shift) - 1u; /* wraps to UINT64_MAX in the last bucket, as it should */
}

static inline void pawl_histogram_add(struct pawl_histogram *h, uint64_t value)
{
    h->bucket[pawl_histogram_index(value)]++;
    h->count++;
    h->sum += (double)value;
    if (value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
}

static inline void pawl_histogram_merge(struct pawl_histogram *into,
                                        const struct pawl_histogram *from)
{
    for (uint32_t i = 0; i < PAWL_HISTOGRAM_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
    into->count += from->count;
    into->sum += from->sum;
    if (from->min < into->min)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
}

/* The smallest recorded value (within a bucket) that at least `share` (0..1) of all values do not
 * exceed. 0 if nothing was recorded. */
static inline uint64_t pawl_histogram_percentile(const struct pawl_histogram *h, double share)
{
    if (h->count == 0)
        return 0;
    double exact = share * (double)h->count;
    uint64_t rank = (uint64_t)exact;
#ifndef PAWL_BUG_HISTOGRAM_RANK
    if ((double)rank < exact)
        rank++;
#endif
    if (rank < 1)
        rank = 1;
    if (rank > h->count)
        rank = h->count;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < PAWL_HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank) {
            uint64_t value = pawl_histogram_highest(i);
            return value > h->max ? h->max : value < h->min ? h->min : value;
        }
    }
    return h->max;
}

static inline double pawl_histogram_mean(const struct pawl_histogram *h)
{
    return h->count == 0 ? 0 : h->sum / (double)h->count;
}

#endif
