/* SPDX-License-Identifier: MIT */
/* Slabs of 1 MiB, each cut into blocks of one class. A slab with free blocks stands on the list of
 * its class, the one freed into last in front. One that is empty goes to a row of empty slabs for
 * any class; beyond a few it is given back. Blocks above 256 KiB are slabs of their own of any
 * size.
 *
 *   name of a block = slab number * 32768 + offset in the slab / 32      slab numbers start at 1 */
#include "core/payload.h"

#include <string.h>

#define SLAB_BYTES (1u << 20)
#define UNIT PAWL_PAYLOAD_UNIT
#define UNITS_A_SLAB PAWL_PAYLOAD_UNITS_A_SLAB
#define SLABS_MAX (UINT32_MAX / UNITS_A_SLAB)
#define SMALL_MAX (256u * 1024)
#define CLASS_LARGE 0xffffu
#define EMPTY_MAX 8u

_Static_assert(SLAB_BYTES == UNIT * UNITS_A_SLAB, "a slab");

struct inner {
    struct pawl_slab *slabs;
    uint32_t partial[PAWL_PAYLOAD_CLASSES];
    uint32_t never_used;   /* slab numbers */
    uint32_t free_numbers; /* chained through next: numbers without memory */
    uint32_t empty;        /* chained through next: slabs with memory and no block */
    uint32_t empty_count;
};

static size_t slabs_bytes(void) { return (size_t)(SLABS_MAX + 1) * sizeof(struct pawl_slab); }

/* Multiples of 32 up to 128, then four steps a power of two. */
static unsigned class_of(uint32_t bytes)
{
    if (bytes <= 128)
        return (bytes + UNIT - 1) / UNIT - 1;
    unsigned top = 31u - (unsigned)__builtin_clz(bytes - 1); /* 2^top < bytes <= 2^(top+1) */
    unsigned step = (bytes - 1 - (1u << top)) >> (top - 2);
    return 4 + (top - 7) * 4 + step;
}

static uint32_t class_bytes(unsigned class)
{
    if (class < 4)
        return (class + 1) * UNIT;
    unsigned top = 7 + (class - 4) / 4, step = (class - 4) % 4;
    return (1u << top) + ((step + 1) << (top - 2));
}

int pawl_payload_init(struct pawl_payload *payload, struct pawl_budget *budget)
{
    memset(payload, 0, sizeof *payload);
    payload->budget = budget;
    struct inner *p = pawl_budget_map(budget, sizeof *p);
    if (!p)
        return -1;
    payload->inner = p;
    /* Address space, touched as far as it is used: not part of the budget. */
    p->slabs = budget->map(budget->ctx, slabs_bytes());
    if (!p->slabs) {
        pawl_payload_fini(payload);
        return -1;
    }
    payload->slabs = p->slabs;
    p->never_used = 1;
    return 0;
}

static uint32_t large_bytes(uint32_t bytes) { return (bytes + 4095u) & ~4095u; }

void pawl_payload_fini(struct pawl_payload *payload)
{
    struct inner *p = payload->inner;
    if (!p)
        return;
    for (uint32_t i = 1; p->slabs && i < p->never_used; i++) {
        struct pawl_slab *s = &p->slabs[i];
        if (s->base)
            pawl_budget_unmap(payload->budget, s->base,
                              s->class == CLASS_LARGE ? s->never_used : SLAB_BYTES);
    }
    if (p->slabs)
        payload->budget->unmap(payload->budget->ctx, p->slabs, slabs_bytes());
    pawl_budget_unmap(payload->budget, p, sizeof *p);
    memset(payload, 0, sizeof *payload);
}

static uint32_t slab_number(struct inner *p)
{
    uint32_t n = p->free_numbers;
    if (n) {
        p->free_numbers = p->slabs[n].next;
        return n;
    }
    return p->never_used <= SLABS_MAX ? p->never_used++ : 0;
}

static void number_give(struct inner *p, uint32_t n)
{
    memset(&p->slabs[n], 0, sizeof p->slabs[n]);
    p->slabs[n].next = p->free_numbers;
    p->free_numbers = n;
}

/* A slab with memory and no blocks; 0: no memory. */
static uint32_t slab_take(struct pawl_payload *payload, size_t bytes)
{
    struct inner *p = payload->inner;
    if (bytes == SLAB_BYTES && p->empty) {
        uint32_t n = p->empty;
        p->empty = p->slabs[n].next;
        p->slabs[n].next = 0;
        p->empty_count--;
        return n;
    }
    uint32_t n = slab_number(p);
    if (n == 0)
        return 0;
    p->slabs[n].base = pawl_budget_map(payload->budget, bytes);
    if (!p->slabs[n].base) {
        number_give(p, n);
        return 0;
    }
    return n;
}

static void list_add(struct inner *p, uint32_t n)
{
    struct pawl_slab *s = &p->slabs[n];
    s->prev = 0;
    s->next = p->partial[s->class];
    if (s->next)
        p->slabs[s->next].prev = n;
    p->partial[s->class] = n;
    s->listed = 1;
}

static void list_drop(struct inner *p, uint32_t n)
{
    struct pawl_slab *s = &p->slabs[n];
    if (s->prev)
        p->slabs[s->prev].next = s->next;
    else
        p->partial[s->class] = s->next;
    if (s->next)
        p->slabs[s->next].prev = s->prev;
    s->next = s->prev = 0;
    s->listed = 0;
}

static uint32_t large_take(struct pawl_payload *payload, uint32_t bytes)
{
    struct inner *p = payload->inner;
    uint32_t n = slab_take(payload, large_bytes(bytes));
    if (n == 0)
        return 0;
    p->slabs[n].class = CLASS_LARGE;
    p->slabs[n].never_used = large_bytes(bytes);
    payload->bytes += large_bytes(bytes);
    return n * UNITS_A_SLAB;
}

uint32_t pawl_payload_take(struct pawl_payload *payload, uint32_t bytes)
{
    struct inner *p = payload->inner;
    if (bytes == 0)
        return 0;
    if (bytes > SMALL_MAX)
        return large_take(payload, bytes);
    unsigned class = class_of(bytes);
    uint32_t size = class_bytes(class), n = p->partial[class];
    if (n == 0) {
        n = slab_take(payload, SLAB_BYTES);
        if (n == 0)
            return 0;
        p->slabs[n].class = (uint16_t) class;
        list_add(p, n);
    }
    struct pawl_slab *s = &p->slabs[n];
    uint32_t offset;
    if (s->free_first) {
        offset = (s->free_first - 1) * UNIT;
        memcpy(&s->free_first, s->base + offset, sizeof s->free_first);
    } else {
        offset = s->never_used;
        s->never_used += size;
        if (s->never_used > s->touched)
            s->touched = (uint32_t)pawl_budget_touch(payload->budget, s->base, s->touched,
                                                     s->never_used, SLAB_BYTES);
    }
    s->used++;
    if (s->free_first == 0 && s->never_used + size > SLAB_BYTES)
        list_drop(p, n);
    payload->bytes += size;
    return n * UNITS_A_SLAB + offset / UNIT;
}

static void slab_empty(struct pawl_payload *payload, uint32_t n)
{
    struct inner *p = payload->inner;
    struct pawl_slab *s = &p->slabs[n];
    /* The last one of its class stays, so that one message going in and out does not map pages. */
    if (s->next == 0 && s->prev == 0)
        return;
    list_drop(p, n);
    if (p->empty_count < EMPTY_MAX) {
        uint8_t *base = s->base;
        uint32_t touched = s->touched;
        memset(s, 0, sizeof *s);
        s->base = base;
        s->touched = touched;
        s->next = p->empty;
        p->empty = n;
        p->empty_count++;
        return;
    }
    pawl_budget_unmap(payload->budget, s->base, SLAB_BYTES);
    number_give(p, n);
}

void pawl_payload_give(struct pawl_payload *payload, uint32_t block, uint32_t bytes)
{
    struct inner *p = payload->inner;
    if (block == 0)
        return;
    uint32_t n = block / UNITS_A_SLAB, unit = block % UNITS_A_SLAB;
    struct pawl_slab *s = &p->slabs[n];
    PAWL_ASSERT(n < p->never_used && s->base);
    if (s->class == CLASS_LARGE) {
        PAWL_ASSERT_REL(large_bytes(bytes), ==, s->never_used);
        payload->bytes -= s->never_used;
        pawl_budget_unmap(payload->budget, s->base, s->never_used);
        number_give(p, n);
        return;
    }
    PAWL_ASSERT_REL(class_of(bytes), ==, s->class);
    memcpy(s->base + (size_t)unit * UNIT, &s->free_first, sizeof s->free_first);
    s->free_first = unit + 1;
    s->used--;
    payload->bytes -= class_bytes(s->class);
    if (!s->listed)
        list_add(p, n);
    if (s->used == 0)
        slab_empty(payload, n);
}
