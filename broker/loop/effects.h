/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_EFFECTS_H
#define PAWL_BROKER_EFFECTS_H

/* A first-in-first-out row of effects: a ring array in address space that is reserved for its bound
 * at the start and touched only as far as it ever grew. So pushing cannot fail half way through an
 * operation (L1): what could run out is refused when the broker starts. It doubles when full and
 * never shrinks. The bound is what completion rings can hold at all, since each effect has its room
 * reserved there before it is made. All O(1), doubling aside. */

#include <stdint.h>

#include "base/assert.h"
#include "core/core.h"

struct pawl_effects {
    struct pawl_effect *slots; /* `bound` of them are reserved */
    uint32_t head, count;
    uint32_t capacity, bound; /* powers of two */
};

#define PAWL_EFFECTS_CAPACITY_FIRST 4096u

/* bound is rounded up to a power of two, at most 2^26. 0, or -ENOMEM: no such address space. */
int pawl_effects_init(struct pawl_effects *row, uint64_t bound);
void pawl_effects_fini(struct pawl_effects *row);
void pawl_effects_grow(struct pawl_effects *row);

/* A new one behind the others, for the caller to fill in; stays where it is until the next push. */
static inline struct pawl_effect *pawl_effects_push(struct pawl_effects *row)
{
    if (row->count == row->capacity)
        pawl_effects_grow(row);
    return &row->slots[(row->head + row->count++) & (row->capacity - 1)];
}

/* The oldest; requires count > 0. Stays where it is until it is popped, over pushes and growth. */
static inline const struct pawl_effect *pawl_effects_first(const struct pawl_effects *row)
{
    return &row->slots[row->head];
}

static inline void pawl_effects_pop(struct pawl_effects *row)
{
    row->count--;
    /* An empty row begins anew, where its memory is hot. */
    row->head = row->count == 0 ? 0 : (row->head + 1) & (row->capacity - 1);
}

#endif
