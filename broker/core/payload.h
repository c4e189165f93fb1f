/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_PAYLOAD_H
#define PAWL_CORE_PAYLOAD_H

/* The bytes of messages: blocks of size classes (four a power of two from 32 bytes, so at most a
 * quarter is wasted), cut from chunks under the memory budget and reused last in, first out. A
 * block is named by a u32: its offset in units of 32 bytes, so 128 GiB can be named. 0: none.
 * Blocks above 256 KiB are pages of their own chunk class and given back to the system when freed.
 */

#include "core/pool.h"

#define PAWL_PAYLOAD_CLASSES 64u

#define PAWL_PAYLOAD_UNIT 32u
#define PAWL_PAYLOAD_UNITS_A_SLAB 32768u

struct pawl_slab {
    uint8_t *base;
    uint32_t next, prev; /* of the class's list, or of free slab numbers */
    uint32_t free_first; /* offset / UNIT + 1 of a free block, chained inside; 0: none */
    uint32_t never_used; /* bytes cut so far */
    uint32_t used;       /* blocks */
    uint32_t touched;    /* bytes whose pages are there */
    uint16_t class;
    uint16_t listed;
};

struct pawl_payload {
    struct pawl_budget *budget;
    void *inner;             /* payload.c */
    struct pawl_slab *slabs; /* address space for all that there can be; they do not move */
    uint64_t bytes;          /* of blocks in use, rounded to their class */
};

int pawl_payload_init(struct pawl_payload *payload, struct pawl_budget *budget);
void pawl_payload_fini(struct pawl_payload *payload);
/* A block of at least `bytes` (0..17 MiB; 0 gives 0), or 0 for bytes > 0: no memory. */
uint32_t pawl_payload_take(struct pawl_payload *payload, uint32_t bytes);
/* bytes: what was asked for. */
void pawl_payload_give(struct pawl_payload *payload, uint32_t block, uint32_t bytes);
static inline void *pawl_payload_at(const struct pawl_payload *payload, uint32_t block)
{
    return payload->slabs[block / PAWL_PAYLOAD_UNITS_A_SLAB].base +
           (size_t)(block % PAWL_PAYLOAD_UNITS_A_SLAB) * PAWL_PAYLOAD_UNIT;
}

#endif
