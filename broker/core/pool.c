/* SPDX-License-Identifier: MIT */
#include "core/pool.h"

#include <string.h>

void *pawl_budget_map(struct pawl_budget *budget, size_t bytes)
{
    if (bytes > budget->limit || budget->used > budget->limit - bytes)
        return NULL;
    void *p = budget->map(budget->ctx, bytes);
    if (p)
        budget->used += bytes;
    return p;
}

void pawl_budget_unmap(struct pawl_budget *budget, void *p, size_t bytes)
{
    PAWL_ASSERT_REL(budget->used, >=, bytes);
    budget->used -= bytes;
    budget->unmap(budget->ctx, p, bytes);
}

#define TOUCH_MIN 16384u
#define TOUCH_MAX 262144u

size_t pawl_budget_touch(const struct pawl_budget *budget, void *base, size_t touched, size_t need,
                         size_t bytes)
{
    size_t more = touched < TOUCH_MIN ? TOUCH_MIN : touched > TOUCH_MAX ? TOUCH_MAX : touched;
    size_t end = touched + (more & ~(size_t)(TOUCH_MIN - 1));
    if (end < need)
        end = (need + TOUCH_MIN - 1) & ~(size_t)(TOUCH_MIN - 1);
    if (end > bytes)
        end = bytes;
    if (budget->touch)
        budget->touch(budget->ctx, (uint8_t *)base + touched, end - touched);
    return end;
}

static size_t chunk_bytes(const struct pawl_pool *pool)
{
    return (size_t)pool->entry_bytes << pool->chunk_shift;
}

int pawl_pool_init(struct pawl_pool *pool, struct pawl_budget *budget, uint32_t entry_bytes,
                   uint32_t chunk_shift)
{
    PAWL_ASSERT(entry_bytes >= 8 && entry_bytes % 8 == 0);
    memset(pool, 0, sizeof *pool);
    pool->budget = budget;
    pool->entry_bytes = entry_bytes;
    pool->chunk_shift = chunk_shift;
    pool->never_used = 1; /* 0 means none */
    pool->base = budget->map(budget->ctx, PAWL_POOL_CHUNKS * chunk_bytes(pool));
    return pool->base ? 0 : -1;
}

void pawl_pool_fini(struct pawl_pool *pool)
{
    if (!pool->base)
        return;
    uint64_t charged = pool->chunk_count * (uint64_t)chunk_bytes(pool);
    PAWL_ASSERT_REL(pool->budget->used, >=, charged);
    pool->budget->used -= charged;
    pool->budget->unmap(pool->budget->ctx, pool->base, PAWL_POOL_CHUNKS * chunk_bytes(pool));
    memset(pool, 0, sizeof *pool);
}

/* Nothing is mapped, only charged: the pages come as they are touched. */
static bool grow(struct pawl_pool *pool)
{
    struct pawl_budget *budget = pool->budget;
    size_t bytes = chunk_bytes(pool);
    if (pool->chunk_count == PAWL_POOL_CHUNKS || bytes > budget->limit ||
        budget->used > budget->limit - bytes)
        return false;
    budget->used += bytes;
    pool->chunk_count++;
    return true;
}

bool pawl_pool_ready(struct pawl_pool *pool, uint32_t count)
{
    while (((uint64_t)pool->chunk_count << pool->chunk_shift) < (uint64_t)pool->used + 1 + count)
        if (!grow(pool))
            return false;
    return true;
}

uint32_t pawl_pool_take(struct pawl_pool *pool)
{
    uint32_t number = pool->free_first;
    if (number) {
        uint32_t *entry = pawl_pool_at(pool, number);
        pool->free_first = *entry;
        memset(entry, 0, pool->entry_bytes);
    } else {
        /* Pages come zeroed. */
        if (pool->never_used >= (uint64_t)pool->chunk_count << pool->chunk_shift && !grow(pool))
            return 0;
        number = pool->never_used++;
        size_t need = (size_t)pool->never_used * pool->entry_bytes;
        if (need > pool->touched)
            pool->touched = pawl_budget_touch(pool->budget, pool->base, pool->touched, need,
                                              pool->chunk_count * chunk_bytes(pool));
    }
    pool->used++;
    return number;
}

void pawl_pool_give(struct pawl_pool *pool, uint32_t number)
{
    PAWL_ASSERT(number > 0 && number < pool->never_used);
    PAWL_ASSERT_REL(pool->used, >, 0);
    *(uint32_t *)pawl_pool_at(pool, number) = pool->free_first;
    pool->free_first = number;
    pool->used--;
}
