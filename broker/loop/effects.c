/* SPDX-License-Identifier: MIT */
#include "loop/effects.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"

#define BOUND_MAX (1u << 26)

int pawl_effects_init(struct pawl_effects *row, uint64_t bound)
{
    memset(row, 0, sizeof *row);
    uint32_t slots = PAWL_EFFECTS_CAPACITY_FIRST;
    while (slots < bound && slots < BOUND_MAX)
        slots *= 2;
    void *p = mmap(NULL, (size_t)slots * sizeof *row->slots, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    /* Ids and counters only, but what is never needed in a dump need not swell it. */
    (void)madvise(p, (size_t)slots * sizeof *row->slots, MADV_DONTDUMP);
    row->slots = p;
    row->capacity = PAWL_EFFECTS_CAPACITY_FIRST;
    row->bound = slots;
    return 0;
}

void pawl_effects_fini(struct pawl_effects *row)
{
    if (row->slots)
        (void)munmap(row->slots, (size_t)row->bound * sizeof *row->slots);
    memset(row, 0, sizeof *row);
}

void pawl_effects_grow(struct pawl_effects *row)
{
    PAWL_ASSERT_REL(row->count, ==, row->capacity);
    PAWL_ASSERT_REL(row->capacity, <, row->bound);
    /* The full ring is [head, capacity) then [0, head): the second part goes behind the first. */
    memcpy(row->slots + row->capacity, row->slots, (size_t)row->head * sizeof *row->slots);
    row->capacity *= 2;
}
