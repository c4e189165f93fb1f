/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_HOT_H
#define PAWL_CORE_HOT_H

/* Pieces that each life of a message goes through several times, in the middle of its caller: a
 * call is a fifth of what they cost. Each stands here once, whoever uses it. */

#include "core/core_inner.h"

#define PAWL_HOT static inline __attribute__((always_inline))

/* --- lists of messages ----------------------------------------------------------------------- */

PAWL_HOT void pawl_hot_list_push(struct pawl_core *core, struct pawl_core_list *l, uint32_t n,
                                 struct pawl_core_message *m)
{
    m->next = 0;
    m->prev = l->last;
    if (l->last)
        pawl_core_message_at(core, l->last)->next = n;
    else
        l->first = n;
    l->last = n;
    l->count++;
}

PAWL_HOT void pawl_hot_list_remove(struct pawl_core *core, struct pawl_core_list *l,
                                   struct pawl_core_message *m)
{
    if (m->prev)
        pawl_core_message_at(core, m->prev)->next = m->next;
    else
        l->first = m->next;
    if (m->next)
        pawl_core_message_at(core, m->next)->prev = m->prev;
    else
        l->last = m->prev;
    m->next = m->prev = 0;
    l->count--;
}

/* --- leases ---------------------------------------------------------------------------------- */

PAWL_HOT void pawl_hot_lease_link(struct pawl_core *core, uint32_t n, uint32_t session)
{
    struct pawl_core_lease *l = pawl_core_lease_at(core, n);
    l->session = session;
    l->next = l->prev = 0;
    if (session == 0)
        return;
    struct pawl_core_session *s = pawl_core_session_at(core, session);
    l->prev = s->leases_last;
    if (l->prev)
        pawl_core_lease_at(core, l->prev)->next = n;
    else
        s->leases_first = n;
    s->leases_last = n;
    s->leases_count++;
}

PAWL_HOT void pawl_hot_lease_unlink(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_lease *l = pawl_core_lease_at(core, n);
    if (l->session == 0)
        return;
    struct pawl_core_session *s = pawl_core_session_at(core, l->session);
    if (l->prev)
        pawl_core_lease_at(core, l->prev)->next = l->next;
    else
        s->leases_first = l->next;
    if (l->next)
        pawl_core_lease_at(core, l->next)->prev = l->prev;
    else
        s->leases_last = l->prev;
    s->leases_count--;
    l->session = l->next = l->prev = 0;
}

PAWL_HOT void pawl_hot_credit_back(struct pawl_core *core, struct pawl_core_lease *l)
{
    if (l->waiter == 0)
        return;
    struct pawl_core_waiter *w = pawl_core_waiter_at(core, l->waiter);
    uint32_t n = l->waiter;
    l->waiter = 0;
    if (w->number != n || !w->standing || w->seq != l->seq || w->lane_number != l->lane ||
        w->session != l->session || w->have == 0)
        return; /* it has ended and another has its place */
#ifdef PAWL_BUG_CREDIT_LOST
    return;
#endif
    w->have--;
    if (!w->linked)
        pawl_core_waiter_link(core, w);
}

PAWL_HOT bool pawl_hot_lease_current(const struct pawl_core *core,
                                     const struct pawl_core_message *m)
{
    if (m->state != PAWL_STATE_LEASED || m->grant >> PAWL_EPOCH_SHIFT < core->void_below)
        return false;
    const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    /* Over with its session, though the record of that waits for room. */
    if (l->session && l->kind != PAWL_LEASE_DETACHED &&
        pawl_core_session_at(core, l->session)->state == PAWL_SESSION_ENDING)
        return false;
    if (l->position == PAWL_POSITION_PENDING)
        return true; /* its time has not begun */
#ifdef PAWL_BUG_LEASE_EARLY
    return core->now.time + PAWL_NS_MS < l->deadline;
#else
    return core->now.time < l->deadline;
#endif
}

PAWL_HOT void pawl_hot_ends_leave(struct pawl_core *core, struct pawl_core_lease *l)
{
    struct pawl_core_ends *row = &core->ends[l->row - 1];
    if (l->row_prev)
        pawl_core_lease_at(core, l->row_prev)->row_next = l->row_next;
    else
        row->first = l->row_next;
    if (l->row_next)
        pawl_core_lease_at(core, l->row_next)->row_prev = l->row_prev;
    else
        row->last = l->row_prev;
    l->row = 0;
}

/* --- tombstones ------------------------------------------------------------------------------ */

/* Words that a payload had, whose block is given back. One that is not (a delivery is on its way,
 * as of every at-most-once receive) keeps them. */
PAWL_HOT void pawl_hot_ended_by(struct pawl_core_message *m, uint64_t session, uint16_t lane,
                                uint64_t seq, uint32_t extra)
{
    bool fits = session >> 56 == 0 && seq >> (64 - PAWL_PID_BITS) == 0 && extra <= PAWL_PID_MASK;
    if (session == 0 || !fits || m->payload || (m->flags & PAWL_MESSAGE_PINS))
        return;
    uint32_t low = (uint32_t)seq;
    m->flags = PAWL_MESSAGE_BY;
    m->payload = (uint32_t)session;
    m->body_bytes = (uint32_t)(session >> 32) | (uint32_t)lane << 24;
    m->headers_bytes = (uint16_t)low;
    m->key_bytes = (uint8_t)(low >> 16);
    m->ordering_key_bytes = (uint8_t)(low >> 24);
    m->lease = extra | (uint32_t)(seq >> 32) << PAWL_PID_BITS;
}

#endif
