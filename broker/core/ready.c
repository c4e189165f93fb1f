/* SPDX-License-Identifier: MIT */
#include "core/ready.h"

#include "base/assert.h"

/* In the heap: child = first child; next = right sibling; prev = left sibling, or the parent for a
 * first child; all 0 where there is none. In the list: next and prev. */

static struct pawl_core_message *at(const struct pawl_pool *messages, uint32_t m)
{
    return pawl_pool_entry(messages, m, sizeof(struct pawl_core_message));
}

/* The smaller root becomes the parent; both have no siblings. */
static uint32_t merge(struct pawl_pool *messages, uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0)
        return a ? a : b;
    struct pawl_core_message *ma = at(messages, a), *mb = at(messages, b);
    if (pawl_ready_before(mb, ma)) {
        uint32_t swap = a;
        a = b;
        b = swap;
        struct pawl_core_message *m = ma;
        ma = mb;
        mb = m;
    }
    mb->next = ma->child;
    mb->prev = a;
    if (ma->child)
        at(messages, ma->child)->prev = b;
    ma->child = b;
    ma->next = ma->prev = 0;
    return a;
}

/* Two passes: pairs from left to right, stacked through `next`, then from right to left. */
static uint32_t merge_siblings(struct pawl_pool *messages, uint32_t first)
{
    uint32_t stack = 0;
    while (first) {
        uint32_t a = first, b = at(messages, a)->next;
        first = b ? at(messages, b)->next : 0;
        at(messages, a)->next = at(messages, a)->prev = 0;
        if (b)
            at(messages, b)->next = at(messages, b)->prev = 0;
        uint32_t pair = merge(messages, a, b);
        at(messages, pair)->next = stack;
        stack = pair;
    }
    uint32_t root = 0;
    while (stack) {
        uint32_t pair = stack;
        stack = at(messages, pair)->next;
        at(messages, pair)->next = 0;
        root = merge(messages, root, pair);
    }
    return root;
}

void pawl_ready_insert(struct pawl_ready *ready, struct pawl_pool *messages, uint32_t message)
{
    struct pawl_core_message *m = at(messages, message);
    m->next = m->prev = m->child = 0;
    ready->count++;
#ifndef PAWL_BUG_READY_ORDER
    if (ready->last && pawl_ready_before(m, at(messages, ready->last))) {
        m->flags |= PAWL_MESSAGE_RETURNED;
        ready->root = merge(messages, ready->root, message);
        return;
    }
#endif
    m->flags &= (uint8_t)~PAWL_MESSAGE_RETURNED;
    m->prev = ready->last;
    if (ready->last)
        at(messages, ready->last)->next = message;
    else
        ready->first = message;
    ready->last = message;
}

static void heap_remove(struct pawl_ready *ready, struct pawl_pool *messages, uint32_t message)
{
    struct pawl_core_message *m = at(messages, message);
    if (message != ready->root) {
        struct pawl_core_message *left = at(messages, m->prev);
        if (left->child == message)
            left->child = m->next;
        else
            left->next = m->next;
        if (m->next)
            at(messages, m->next)->prev = m->prev;
    }
    uint32_t children = merge_siblings(messages, m->child);
    ready->root = message == ready->root ? children : merge(messages, ready->root, children);
}

void pawl_ready_remove(struct pawl_ready *ready, struct pawl_pool *messages, uint32_t message)
{
    struct pawl_core_message *m = at(messages, message);
    PAWL_ASSERT_REL(ready->count, >, 0);
    ready->count--;
    if (m->flags & PAWL_MESSAGE_RETURNED) {
        heap_remove(ready, messages, message);
        m->flags &= (uint8_t)~PAWL_MESSAGE_RETURNED;
    } else {
        if (m->prev)
            at(messages, m->prev)->next = m->next;
        else
            ready->first = m->next;
        if (m->next)
            at(messages, m->next)->prev = m->prev;
        else
            ready->last = m->prev;
    }
    m->next = m->prev = m->child = 0;
}

uint32_t pawl_ready_first(const struct pawl_ready *ready, const struct pawl_pool *messages)
{
    if (ready->root == 0 || ready->first == 0)
        return ready->root ? ready->root : ready->first;
    return pawl_ready_before(at(messages, ready->root), at(messages, ready->first)) ? ready->root
                                                                                    : ready->first;
}

uint32_t pawl_ready_walk(const struct pawl_ready *ready, const struct pawl_pool *messages,
                         uint32_t message)
{
    if (message == 0)
        return ready->first ? ready->first : ready->root;
    const struct pawl_core_message *m = at(messages, message);
    if (!(m->flags & PAWL_MESSAGE_RETURNED))
        return m->next ? m->next : ready->root;
    if (m->child)
        return m->child;
    /* Up to the nearest one with a sibling on its right. */
    while (message != ready->root && m->next == 0) {
        uint32_t left = m->prev;
        while (at(messages, left)->child != message) {
            message = left;
            left = at(messages, left)->prev;
        }
        message = left;
        m = at(messages, message);
    }
    return message == ready->root ? 0 : m->next;
}
