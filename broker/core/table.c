/* SPDX-License-Identifier: MIT */
#include "core/table.h"

#include <string.h>

#include "base/hash.h"

#define SEGMENT_SHIFT 16 /* buckets a segment: 256 KiB */
#define SEGMENTS 32768u  /* two thousand million buckets */
#define BUCKETS_FIRST 1024u

/* Ids are counters with an epoch on top: the counter alone spreads them perfectly and neighbours in
 * time are neighbours in memory. Nobody but the broker chooses them, so there is no flood to fear.
 * Where others do, a secret has its say. */
static uint64_t spread(const struct pawl_table *table, uint64_t id)
{
    if (table->secret)
        return pawl_hash_u64(id ^ table->secret);
    return id ^ (id >> 40) * 0x9e3779b97f4a7c15ull;
}

static uint32_t *id_chain(const struct pawl_table *table, uint32_t number, uint64_t *id)
{
    uint8_t *object = pawl_pool_at(table->pool, number);
    memcpy(id, object + table->id_offset, sizeof *id);
    return (uint32_t *)(void *)(object + table->chain_offset);
}

static uint32_t *bucket(const struct pawl_table *table, uint64_t b)
{
    return &table->segments[b >> SEGMENT_SHIFT][b & ((1u << SEGMENT_SHIFT) - 1)];
}

static uint32_t *bucket_of(const struct pawl_table *table, uint64_t id)
{
    uint64_t h = spread(table, id), b = h & (2 * table->round - 1);
    return bucket(table, b < table->buckets ? b : h & (table->round - 1));
}

static bool segment_ready(struct pawl_table *table, uint64_t b)
{
    uint64_t s = b >> SEGMENT_SHIFT;
    if (s >= SEGMENTS)
        return false;
    if (!table->segments[s])
        table->segments[s] = pawl_budget_map(table->budget, sizeof(uint32_t) << SEGMENT_SHIFT);
    return table->segments[s] != NULL;
}

int pawl_table_init(struct pawl_table *table, struct pawl_budget *budget, struct pawl_pool *pool,
                    uint32_t id_offset, uint32_t chain_offset)
{
    memset(table, 0, sizeof *table);
    table->budget = budget;
    table->pool = pool;
    table->id_offset = id_offset;
    table->chain_offset = chain_offset;
    table->buckets = table->round = BUCKETS_FIRST;
    table->segments = pawl_budget_map(budget, SEGMENTS * sizeof *table->segments);
    if (!table->segments)
        return -1;
    return segment_ready(table, 0) ? 0 : -1;
}

void pawl_table_fini(struct pawl_table *table)
{
    if (!table->segments)
        return;
    for (uint64_t s = 0; s < SEGMENTS && table->segments[s]; s++)
        pawl_budget_unmap(table->budget, table->segments[s], sizeof(uint32_t) << SEGMENT_SHIFT);
    pawl_budget_unmap(table->budget, table->segments, SEGMENTS * sizeof *table->segments);
    memset(table, 0, sizeof *table);
}

#define SPLIT_AHEAD 8u

static void entry_prefetch(const struct pawl_table *table, uint32_t number)
{
    if (number)
        __builtin_prefetch((uint8_t *)pawl_pool_at(table->pool, number) + table->id_offset);
}

/* Buckets are split in their order: the first entry of one that will be in some insertions, and the
 * second of one that will be sooner, can be had by then. */
static void split_prefetch(const struct pawl_table *table)
{
    uint64_t b = table->buckets - table->round;
    if (b + 2 * SPLIT_AHEAD >= table->round)
        return;
    entry_prefetch(table, *bucket(table, b + 2 * SPLIT_AHEAD));
    uint32_t first = *bucket(table, b + SPLIT_AHEAD);
    uint64_t id;
    if (first)
        entry_prefetch(table, *id_chain(table, first, &id));
}

/* Bucket `buckets - round` gives what belongs into the new bucket `buckets`. */
static void split(struct pawl_table *table)
{
    if (!segment_ready(table, table->buckets))
        return;
    split_prefetch(table);
    uint32_t *from = bucket(table, table->buckets - table->round);
    uint32_t *to = bucket(table, table->buckets);
    uint64_t mask = 2 * table->round - 1;
    for (uint32_t number = *from; number;) {
        uint64_t id;
        uint32_t *chain = id_chain(table, number, &id), next = *chain;
        if ((spread(table, id) & mask) == table->buckets) {
            *from = next;
            *chain = *to;
            *to = number;
        } else {
            from = chain;
        }
        number = next;
    }
    if (++table->buckets == 2 * table->round)
        table->round *= 2;
    /* What the next split will look at has been touched by nobody for long: a miss that would cost
     * as much as a tenth of a life. */
    const uint8_t *next = pawl_pool_at(table->pool, *bucket(table, table->buckets - table->round));
    __builtin_prefetch(next + table->id_offset);
    __builtin_prefetch(next + table->chain_offset);
}

static uint32_t find_in_chain(const struct pawl_table *table, uint32_t number, uint64_t id)
{
    while (number) {
        uint64_t other;
        const uint32_t *chain = id_chain(table, number, &other);
        if (other == id)
            return number;
        number = *chain;
    }
    return 0;
}

uint32_t pawl_table_find(const struct pawl_table *table, uint64_t id)
{
    return find_in_chain(table, *bucket_of(table, id), id);
}

uint32_t pawl_table_find_next(const struct pawl_table *table, uint32_t number)
{
    uint64_t id;
    uint32_t next = *id_chain(table, number, &id);
    return find_in_chain(table, next, id);
}

void pawl_table_insert(struct pawl_table *table, uint64_t id, uint32_t number)
{
    if (table->entries++ >= table->buckets)
        split(table);
    uint64_t own;
    uint32_t *chain = id_chain(table, number, &own), *first = bucket_of(table, id);
    PAWL_ASSERT_REL(own, ==, id);
    *chain = *first;
    *first = number;
}

void pawl_table_remove(struct pawl_table *table, uint64_t id, uint32_t number)
{
    uint32_t *link = bucket_of(table, id);
    for (;;) {
        PAWL_ASSERT(*link != 0);
        uint64_t other;
        uint32_t *chain = id_chain(table, *link, &other);
        if (*link == number) {
            *link = *chain;
            *chain = 0;
            table->entries--;
            return;
        }
        link = chain;
    }
}

void pawl_table_prefetch_entry(const struct pawl_table *table, uint64_t id)
{
    entry_prefetch(table, *bucket_of(table, id));
}

void pawl_table_prefetch(const struct pawl_table *table, uint64_t id)
{
    __builtin_prefetch(bucket_of(table, id));
}
