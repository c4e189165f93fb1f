/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_POOL_H
#define PAWL_CORE_POOL_H

/* A pool of equal entries named by u32 numbers, 0 being none. Grows in chunks that never move,
 * under the shared memory budget; reuses the entry freed last, which is the warmest. Taking an
 * entry is O(1) and fails only where a chunk cannot be had, so pawl_pool_ready() before an
 * operation makes the rest of it safe (L1). */

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
};
void *pawl_budget_map(struct pawl_budget *budget, size_t bytes); /* NULL: over the limit, or none */
void pawl_budget_unmap(struct pawl_budget *budget, void *p, size_t bytes);

#define PAWL_POOL_CHUNKS 4096u

struct pawl_pool {
    struct pawl_budget *budget;
    void **chunks;        /* address space for PAWL_POOL_CHUNKS pointers */
    uint32_t entry_bytes; /* multiple of 8 */
    uint32_t chunk_shift; /* entries a chunk, as power of two */
    uint32_t chunk_count;
    uint32_t free_first; /* chained through the first four bytes of free entries */
    uint32_t never_used; /* first number never given out */
    uint32_t used;
};

/* entry_bytes a multiple of 8, at least 8. 0, or -1: no memory. */
int pawl_pool_init(struct pawl_pool *pool, struct pawl_budget *budget, uint32_t entry_bytes,
                   uint32_t chunk_shift);
void pawl_pool_fini(struct pawl_pool *pool);

static inline void *pawl_pool_at(const struct pawl_pool *pool, uint32_t number)
{
    uint8_t *chunk = pool->chunks[number >> pool->chunk_shift];
    return chunk + (size_t)(number & ((1u << pool->chunk_shift) - 1)) * pool->entry_bytes;
}
/* The same where size and shift are constants of the caller, those that the pool was made with: a
 * third of the instructions, and looking up an entry is a fifth of all that a life costs. */
static inline void *pawl_pool_entry(const struct pawl_pool *pool, uint32_t number,
                                    uint32_t entry_bytes, uint32_t chunk_shift)
{
    uint8_t *chunk = pool->chunks[number >> chunk_shift];
    return chunk + (size_t)(number & ((1u << chunk_shift) - 1)) * entry_bytes;
}
/* True: the next `count` (at most one chunk) takes cannot fail. Grows if need be. */
bool pawl_pool_ready(struct pawl_pool *pool, uint32_t count);
/* A zeroed entry, or 0: no memory. */
uint32_t pawl_pool_take(struct pawl_pool *pool);
void pawl_pool_give(struct pawl_pool *pool, uint32_t number);

#endif
