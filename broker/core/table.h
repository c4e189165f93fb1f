/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_TABLE_H
#define PAWL_CORE_TABLE_H

/* Finds the pool number of an object by its 64-bit id. Linear hashing (Litwin 1980) with chains
 * through the objects: the table grows by one bucket at a time, as entries come, so no operation
 * ever pauses to move all of it. Four bytes a bucket and four in the object (its chain word). About
 * one entry a bucket. */

#include "core/pool.h"

struct pawl_table {
    struct pawl_budget *budget;
    struct pawl_pool *pool; /* of the objects */
    uint32_t id_offset;     /* of u64 id in an object */
    uint32_t chain_offset;  /* of u32 chain word in an object */
    uint32_t **segments;    /* of buckets */
    uint64_t buckets;       /* in use */
    uint64_t round;         /* power of two: buckets at the start of this round of splits */
    uint64_t entries;
    uint64_t secret; /* not 0: ids are not counters, and may be another's choice. Set after init */
};

int pawl_table_init(struct pawl_table *table, struct pawl_budget *budget, struct pawl_pool *pool,
                    uint32_t id_offset, uint32_t chain_offset);
void pawl_table_fini(struct pawl_table *table);
uint32_t pawl_table_find(const struct pawl_table *table, uint64_t id); /* 0: none */
/* The next one with the id of this one. 0: none. For ids that are halves of hashes: the caller
 * compares the other half. */
uint32_t pawl_table_find_next(const struct pawl_table *table, uint32_t number);
/* Cannot fail: where a bucket cannot be had the chains get longer. An id that is in it already is
 * found by pawl_table_find_next(). */
void pawl_table_insert(struct pawl_table *table, uint64_t id, uint32_t number);
void pawl_table_remove(struct pawl_table *table, uint64_t id, uint32_t number);
/* Starts fetching the bucket of an id that will be looked up soon. */
void pawl_table_prefetch(const struct pawl_table *table, uint64_t id);
/* Later, when the bucket has come: its first entry. */
void pawl_table_prefetch_entry(const struct pawl_table *table, uint64_t id);

#endif
