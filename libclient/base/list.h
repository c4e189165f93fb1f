/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BASE_LIST_H
#define PAWL_BASE_LIST_H

/* An intrusive doubly linked ring with a head. A node that is on no list points to itself. */

#include <stdbool.h>

struct pawl_list {
    struct pawl_list *next, *prev;
};

static inline void pawl_list_init(struct pawl_list *l) { l->next = l->prev = l; }
static inline bool pawl_list_empty(const struct pawl_list *l) { return l->next == l; }
static inline void pawl_list_push_back(struct pawl_list *l, struct pawl_list *n)
{
    n->prev = l->prev;
    n->next = l;
    l->prev->next = n;
    l->prev = n;
}
static inline void pawl_list_push_front(struct pawl_list *l, struct pawl_list *n)
{
    n->next = l->next;
    n->prev = l;
    l->next->prev = n;
    l->next = n;
}
static inline void pawl_list_remove(struct pawl_list *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
    pawl_list_init(n);
}

#endif
