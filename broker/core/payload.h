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

struct pawl_payload {
    struct pawl_budget *budget;
    void *inner;    /* payload.c */
    uint64_t bytes; /* of blocks in use, rounded to their class */
};

int pawl_payload_init(struct pawl_payload *payload, struct pawl_budget *budget);
void pawl_payload_fini(struct pawl_payload *payload);
/* A block of at least `bytes` (0..17 MiB; 0 gives 0), or 0 for bytes > 0: no memory. */
uint32_t pawl_payload_take(struct pawl_payload *payload, uint32_t bytes);
/* bytes: what was asked for. */
void pawl_payload_give(struct pawl_payload *payload, uint32_t block, uint32_t bytes);
void *pawl_payload_at(const struct pawl_payload *payload, uint32_t block);

#endif
