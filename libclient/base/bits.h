/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BASE_BITS_H
#define PAWL_BASE_BITS_H

/* Alignment and powers of two. All arguments unsigned; `to` is a power of two. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint64_t pawl_align_up(uint64_t n, uint64_t to) { return (n + to - 1) & ~(to - 1); }
static inline bool pawl_is_pow2(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }
static inline uint64_t pawl_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t pawl_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
/* a + b, or UINT64_MAX where that overflows: durations added to instants must never wrap (C5). */
static inline uint64_t pawl_add_sat(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

#define PAWL_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define PAWL_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PAWL_LIKELY(x) __builtin_expect(!!(x), 1)
#define PAWL_UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
