/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_POOL_H
#define PAWL_CORE_POOL_H

/* A pool of equal entries named by u32 numbers, 0 being none. One stretch of address space that
 * never moves, touched as far as it is used and charged to the shared memory budget by the chunk;
 * reuses the entry freed last, which is the warmest. Taking an entry is O(1) and fails only where a
 * chunk is over the budget, so pawl_pool_ready() before an operation makes the rest of it safe
 * (L1). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"

/* What the pools of one core share: where pages come from and how many may be had. */
struct pawl_budget {
    void *(*map)(void *ctx, size_t bytes);
    void (*unmap)(void *ctx, void *p, size_t bytes);
    void *ctx;
    uint64_t used, limit; /* bytes; while recovery loads what was accepted, limit is UINT64_MAX */
    /* Of what is mapped, these pages are about to be written: they may all be brought now. NULL:
     * they come one by one, each by a fault, which costs a microsecond and more on a virtual
     * machine: a sixth of a life that leaves something behind. */
    void (*touch)(void *ctx, void *p, size_t bytes);
};
/* `touched` of the bytes behind base have been; the next that are needed end at `need`, and there
 * are `bytes`. Returns what has been after this. It doubles, so that a small pool stays small. */
size_t pawl_budget_touch(const struct pawl_budget *budget, void *base, size_t touched, size_t need,
                         size_t bytes);
void *pawl_budget_map(struct pawl_budget *budget, size_t bytes); /* NULL: over the limit, or none */
void pawl_budget_unmap(struct pawl_budget *budget, void *p, size_t bytes);

#define PAWL_POOL_CHUNKS 4096u

struct pawl_pool {
    struct pawl_budget *budget;
    uint8_t *base;        /* address space for PAWL_POOL_CHUNKS chunks, not part of the budget */
    uint32_t entry_bytes; /* multiple of 8 */
    uint32_t chunk_shift; /* entries a chunk, as power of two */
    uint32_t chunk_count;
    uint32_t free_first; /* chained through the first four bytes of free entries */
    uint32_t never_used; /* first number never given out */
    size_t touched;      /* bytes whose pages are there */
    uint32_t used;
};

/* entry_bytes a multiple of 8, at least 8. 0, or -1: no memory. */
int pawl_pool_init(struct pawl_pool *pool, struct pawl_budget *budget, uint32_t entry_bytes,
                   uint32_t chunk_shift);
void pawl_pool_fini(struct pawl_pool *pool);

static inline void *pawl_pool_at(const struct pawl_pool *pool, uint32_t number)
{
    return pool->base + (size_t)number * pool->entry_bytes;
}
/* The same where the size is a constant of the caller, the one that the pool was made with: no
 * multiplication and one load less, and a life looks up more than fifty entries. */
static inline void *pawl_pool_entry(const struct pawl_pool *pool, uint32_t number,
                                    uint32_t entry_bytes)
{
    return pool->base + (size_t)number * entry_bytes;
}
/* True: the next `count` takes cannot fail. Grows if need be. */
bool pawl_pool_ready(struct pawl_pool *pool, uint32_t count);
/* A zeroed entry, or 0: no memory. */
uint32_t pawl_pool_take(struct pawl_pool *pool);
void pawl_pool_give(struct pawl_pool *pool, uint32_t number);
/* As take, for a caller that writes all of the entry, or 0: none is free that was used before. */
static inline uint32_t pawl_pool_take_used(struct pawl_pool *pool)
{
    uint32_t number = pool->free_first;
    if (number) {
        pool->free_first = *(const uint32_t *)pawl_pool_at(pool, number);
        pool->used++;
    }
    return number;
}

#endif
