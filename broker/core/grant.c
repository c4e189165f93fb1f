/* SPDX-License-Identifier: MIT */
/* Giving messages to one that waits.
 *
 *   - choose the next ready messages of a queue, up to a batch: strict priority, one in 32 from the
 *     lowest level; a ring must have room for each
 *   - one GRANT record for all of them; apply; a delivery each. At most once: one END record each,
 *     grant and acknowledgement at once
 *   - no log room, no ring room, no memory: nothing is chosen, or less
 */
#include "core/core_inner.h"
#include "core/hot.h"

/* once: at most, so without the progress, which ends with the lease. */
static uint32_t delivery_bytes(const struct pawl_core *core, const struct pawl_core_message *m,
                               bool once)
{
    uint32_t bytes = m->key_bytes + m->ordering_key_bytes + (uint32_t)m->headers_bytes;
    if (m->lease && !once)
        bytes += pawl_core_lease_at(core, m->lease)->progress_bytes;
    return (uint32_t)pawl_align_up(sizeof(struct pawl_comp_delivery) + bytes + m->body_bytes, 8);
}

static uint32_t pick(const struct pawl_core *core, const struct pawl_core_queue *q)
{
    uint32_t level = 31u - (uint32_t)__builtin_clz(q->levels);
#ifndef PAWL_BUG_LOWEST_STARVED
    if (((q->turn + 1) & PAWL_LOWEST_EVERY_MASK) == 0)
        level = (uint32_t)__builtin_ctz(q->levels);
#endif
    return pawl_ready_first(&q->ready[level], &core->messages);
}

/* Never 0: the deliveries of a lane leave in the order of their grants, also where one queue's wait
 * is over and another's is not. The client tells with one number which of them it has seen. */
static uint64_t delivery_wait(const struct pawl_core *core, const struct pawl_core_queue *q)
{
    uint64_t wait = pawl_core_queue_wait(core, q);
#ifdef PAWL_BUG_DELIVERY_OVERTAKES
    return wait;
#endif
    return wait ? wait : 1;
}

static void deliver(struct pawl_core *core, struct pawl_core_lane *lane, uint32_t n, uint64_t seq,
                    uint64_t wait_lsn, uint64_t lsn)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    m->flags = (uint8_t)(m->flags + PAWL_MESSAGE_PIN);
    core->deliveries++;
    struct pawl_effect *e = core->port.effect(core->port.ctx, lane->handle, wait_lsn);
    e->message = n;
    e->seq = seq;
    e->value = m->grant;
    e->lsn = lsn;
    e->result = 0;
    e->type = PAWL_EFFECT_DELIVERY;
    e->flags = 0;
    e->reserved = 0;
    e->bytes = delivery_bytes(core, m, pawl_core_terminal(m->state));
    e->data = 0;
}

/* --- apply ----------------------------------------------------------------------------------- */

void pawl_core_grant_apply(struct pawl_core *core, uint32_t n, const struct pawl_grant_rec *r,
                           uint64_t grant, uint64_t random, uint32_t session, uint32_t waiter)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    uint32_t number = m->lease;
    bool fresh = number == 0;
    if (fresh) {
        number = pawl_pool_take(&core->leases);
        if (number == 0) {
            PAWL_ASSERT(!core->started); /* the one who decides has made sure */
            core->damaged = true;
            return;
        }
    }
    struct pawl_core_lease *l = pawl_core_lease_at(core, number);
    if (m->state == PAWL_STATE_LEASED)
        pawl_core_lease_over(core, l); /* a replay that has not seen the end: a fact follows */
    /* A fresh entry is not looked at: its zeros are hardly written yet. */
    if (!fresh && l->reason)
        pawl_payload_give(&core->payload, l->reason, l->reason_bytes);
    *l = (struct pawl_core_lease){
        .flags = fresh ? 0 : l->flags & PAWL_LEASE_HOLDS_KEY,
        .progress = fresh ? 0 : l->progress,
        .progress_bytes = fresh ? 0 : l->progress_bytes,
        .random = random,
        .lease_ns = r->lease_ns,
        .hold_end = r->hold_end,
        .deadline =
            r->kind == PAWL_LEASE_HELD ? r->hold_end : pawl_add_sat(core->now.time, r->lease_ns),
        .position = core->started ? PAWL_POSITION_PENDING : PAWL_POSITION_NONE,
        .seq = r->op.seq,
        .message = n,
        .waiter = waiter,
        .uid = r->uid,
        .pid = r->pid,
        .lane = r->op.lane,
        .kind = r->kind,
    };
    m->lease = number;
    m->grant = grant;
#ifndef PAWL_BUG_GRANT_NOT_COUNTED
    if (m->acquired < UINT16_MAX)
        m->acquired++;
#endif
    pawl_core_lease_link(core, number, session);
    pawl_core_message_move(core, n, PAWL_STATE_LEASED);
}

/* The same, of a message that was never given back and has nothing but its place in READY, which is
 * what most are: a new lease, whose time has not begun, and so no timer. False: nothing was done.
 */
static inline bool grant_simple(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                                const struct pawl_grant_rec *r, uint64_t grant, uint64_t random,
                                uint32_t session, uint32_t waiter)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    if ((m->flags & ~PAWL_MESSAGE_PINS) != PAWL_MESSAGE_CHOSEN || m->lease || m->timer ||
        core->watches.used)
        return false;
    uint32_t number = pawl_pool_take_used(&core->leases);
    if (number == 0)
        number = pawl_pool_take(&core->leases);
    PAWL_ASSERT(number != 0); /* serve has made sure */
    struct pawl_core_lease *l = pawl_core_lease_at(core, number);
    *l = (struct pawl_core_lease){
        .random = random,
        .lease_ns = r->lease_ns,
        .hold_end = r->hold_end,
        .deadline =
            r->kind == PAWL_LEASE_HELD ? r->hold_end : pawl_add_sat(core->now.time, r->lease_ns),
        .position = PAWL_POSITION_PENDING,
        .seq = r->op.seq,
        .message = n,
        .waiter = waiter,
        .uid = r->uid,
        .pid = r->pid,
        .lane = r->op.lane,
        .kind = r->kind,
    };
    m->lease = number;
    m->grant = grant;
#ifndef PAWL_BUG_GRANT_NOT_COUNTED
    if (m->acquired < UINT16_MAX)
        m->acquired++;
#endif
#ifndef PAWL_BUG_SIMPLE_GRANT_NOT_LINKED
    pawl_hot_lease_link(core, number, session);
#endif
    m->flags &= (uint8_t)~PAWL_MESSAGE_CHOSEN;
    q->ready_count--;
    m->state = PAWL_STATE_LEASED;
    pawl_hot_list_push(core, &q->leased, n, m);
    core->leases_current++;
    return true;
}

/* --- choose ---------------------------------------------------------------------------------- */

static uint64_t room_for(const struct pawl_core_waiter *w, uint32_t count)
{
    if (w->flags & PAWL_RECEIVE_AT_MOST_ONCE)
        return PAWL_FIRST_RECORDS + count * PAWL_END_ROOM;
    return PAWL_FIRST_RECORDS + sizeof(struct pawl_grant_rec) + PAWL_RECORD_HEAD +
           count * sizeof(struct pawl_granted_rec);
}

/* Its time to live is over though its timer has not fired. False: no room to say so beside what is
 * kept for the grant. */
static bool expire(struct pawl_core *core, uint32_t n, uint64_t kept)
{
    if (!pawl_core_has_room(core, PAWL_END_ROOM + kept))
        return false;
    (void)pawl_core_end_message(core, n, PAWL_STATE_EXPIRED, NULL, 0);
    return true;
}

/* The ring has no room: the lane's waiters step aside until it has. */
static void block(struct pawl_core *core, struct pawl_core_lane *lane)
{
    lane->blocked = true;
    for (uint32_t n = lane->waiters; n != 0; n = pawl_core_waiter_at(core, n)->next)
        pawl_core_waiter_unlink(core, pawl_core_waiter_at(core, n));
}

static uint32_t choose(struct pawl_core *core, struct pawl_core_waiter *w,
                       struct pawl_core_queue *q, uint32_t want, uint32_t chosen[PAWL_GRANT_BATCH],
                       enum pawl_served *why)
{
    struct pawl_core_lane *lane = pawl_core_lane_at(core, w->lane);
    uint32_t count = 0;
    *why = PAWL_SERVED;
    while (count < want && q->levels) {
        uint32_t n = pick(core, q);
        struct pawl_core_message *m = pawl_core_message_at(core, n);
        if ((m->flags & PAWL_MESSAGE_TTL) && pawl_core_message_ttl_end(core, m) <= core->now.time) {
            if (expire(core, n, room_for(w, want)))
                continue;
            *why = PAWL_SERVE_NO_ROOM;
            break;
        }
        if ((m->flags & PAWL_MESSAGE_PINS) == PAWL_MESSAGE_PINS) {
            *why = PAWL_SERVE_NOTHING;
            break;
        }
        uint32_t bytes = delivery_bytes(core, m, w->flags & PAWL_RECEIVE_AT_MOST_ONCE);
        if (bytes > lane->comp_bytes / 2) {
            w->too_big = 2 * bytes;
            *why = PAWL_SERVE_TOO_BIG;
            break;
        }
        if (!core->port.reserve(core->port.ctx, lane->handle, bytes)) {
            block(core, lane);
            *why = PAWL_SERVE_BLOCKED;
            break;
        }
        pawl_core_ready_remove(core, q, n);
        m->flags |= PAWL_MESSAGE_CHOSEN;
        q->turn++;
        chosen[count++] = n;
    }
    return count;
}

/* --- record, apply, deliver ------------------------------------------------------------------ */

static void grant(struct pawl_core *core, struct pawl_core_waiter *w, struct pawl_core_queue *q,
                  const uint32_t *chosen, uint32_t count)
{
    struct pawl_core_lane *lane = pawl_core_lane_at(core, w->lane);
    const struct pawl_core_session *s = pawl_core_session_at(core, lane->session);
    uint64_t lease_ns = pawl_min_u64(w->lease_ns ? w->lease_ns : q->lease_ns, q->hold_ns);
    struct pawl_grant_rec r = {
        .queue = q->id,
        .grant = core->options.epoch << PAWL_EPOCH_SHIFT | (core->next_grant + 1),
        .lease_ns = w->kind == PAWL_LEASE_HELD ? q->hold_ns : lease_ns,
        .hold_end = pawl_add_sat(core->now.time, q->hold_ns),
        .uid = s->peer.uid,
        .pid = s->peer.pid,
        .kind = w->kind,
        .flags = w->standing ? PAWL_RECORD_STANDING : 0,
    };
    core->next_grant += count;
    struct pawl_granted_rec *out, granted[PAWL_GRANT_BATCH];
    out = granted;
    uint64_t lsn = 0;
    bool logged = pawl_core_queue_logged(q);
    if (logged)
        pawl_core_lane_log(core, lane);
    pawl_core_lane_op(core, lane, w->seq, &r.op);
    r.op.extra = count;
    for (uint32_t i = 0; i < count; i++)
        out[i] = (struct pawl_granted_rec){ pawl_core_message_at(core, chosen[i])->id,
                                            core->port.random(core->port.ctx) };
    if (logged) {
        uint32_t bytes = count * (uint32_t)sizeof granted[0];
        uint8_t *to = pawl_core_append(core, PAWL_RECORD_GRANT, (uint32_t)sizeof r + bytes, &lsn);
        memcpy(to, &r, sizeof r);
        memcpy(to + sizeof r, granted, bytes);
    }
    uint64_t wait = delivery_wait(core, q);
    q->counters.delivered += count;
    uint32_t waiter = w->standing ? w->number : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!grant_simple(core, q, chosen[i], &r, r.grant + i, granted[i].random, lane->session,
                          waiter))
            pawl_core_grant_apply(core, chosen[i], &r, r.grant + i, granted[i].random,
                                  lane->session, waiter);
        deliver(core, lane, chosen[i], w->seq, wait, lsn);
    }
    w->have += count;
    w->wait_lsn = pawl_max_u64(w->wait_lsn, wait);
    w->lsn = pawl_max_u64(w->lsn, lsn);
}

static void grant_at_most_once(struct pawl_core *core, struct pawl_core_waiter *w,
                               struct pawl_core_queue *q, const uint32_t *chosen, uint32_t count)
{
    struct pawl_core_lane *lane = pawl_core_lane_at(core, w->lane);
    const struct pawl_core_session *s = pawl_core_session_at(core, lane->session);
    uint8_t flags = PAWL_RECORD_AMO | (w->standing ? PAWL_RECORD_STANDING : 0);
    for (uint32_t i = 0; i < count; i++) {
        struct pawl_core_message *m = pawl_core_message_at(core, chosen[i]);
        struct pawl_op_rec op;
        if (pawl_core_queue_logged(q))
            pawl_core_lane_log(core, lane);
        pawl_core_lane_op(core, lane, w->seq, &op);
        op.extra = s->peer.pid;
        m->grant = core->options.epoch << PAWL_EPOCH_SHIFT | ++core->next_grant;
        if (m->acquired < UINT16_MAX)
            m->acquired++;
        m->flags = (uint8_t)(m->flags + PAWL_MESSAGE_PIN); /* over the end, for the body */
        uint64_t lsn = pawl_core_end_message(core, chosen[i], PAWL_STATE_ACKED, &op, flags);
        /* Also of a relaxed queue: a crash must not bring back what was shown. */
        uint64_t wait =
            pawl_core_queue_logged(q) ? pawl_core_appended(core) : delivery_wait(core, q);
#ifdef PAWL_BUG_ONCE_SHOWN_EARLY
        wait = pawl_core_queue_wait(core, q);
#endif
        deliver(core, lane, chosen[i], w->seq, wait, lsn);
        m->flags = (uint8_t)(m->flags - PAWL_MESSAGE_PIN);
        w->wait_lsn = pawl_max_u64(w->wait_lsn, wait);
        w->lsn = pawl_max_u64(w->lsn, lsn);
    }
    if (!w->standing)
        w->have += count; /* a standing one holds nothing: its ring alone bounds it */
}

enum pawl_served pawl_core_serve(struct pawl_core *core, struct pawl_core_waiter *w,
                                 struct pawl_core_queue *q)
{
    uint32_t chosen[PAWL_GRANT_BATCH];
    while (w->have < w->max && pawl_core_queue_serves(q)) {
        uint32_t want = (uint32_t)pawl_min_u64(w->max - w->have, PAWL_GRANT_BATCH);
        want = (uint32_t)pawl_min_u64(want, q->ready_count);
        want = (uint32_t)pawl_min_u64(want, q->inflight_max - q->leased.count);
        if (pawl_core_queue_logged(q) && !pawl_core_has_room(core, room_for(w, want)))
            return PAWL_SERVE_NO_ROOM;
        pawl_core_memory_open(core);
        bool ready = pawl_pool_ready(&core->leases, want) && pawl_core_timers_ready(core, want);
        pawl_core_memory_close(core);
        if (!ready)
            return PAWL_SERVE_NOTHING;
        enum pawl_served why;
        uint32_t count = choose(core, w, q, want, chosen, &why);
        if (count > 0 && (w->flags & PAWL_RECEIVE_AT_MOST_ONCE))
            grant_at_most_once(core, w, q, chosen, count);
        else if (count > 0)
            grant(core, w, q, chosen, count);
        if (why != PAWL_SERVED)
            return why;
        if (w->standing)
            break; /* the next one's turn */
    }
    return PAWL_SERVED;
}

/* --- again ----------------------------------------------------------------------------------- */

bool pawl_core_deliver_again(struct pawl_core *core, struct pawl_core_lane *lane,
                             struct pawl_core_lease *l)
{
    struct pawl_core_message *m = pawl_core_message_at(core, l->message);
    uint32_t bytes = delivery_bytes(core, m, false);
    if ((m->flags & PAWL_MESSAGE_PINS) == PAWL_MESSAGE_PINS || bytes > lane->comp_bytes / 2 ||
        !pawl_core_lease_current(core, m)) {
        l->position = PAWL_POSITION_NONE; /* it comes back when the lease is over */
        return true;
    }
    if (!core->port.reserve(core->port.ctx, lane->handle, bytes))
        return false;
    l->position = PAWL_POSITION_PENDING;
    const struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    deliver(core, lane, l->message, l->seq, delivery_wait(core, q), 0);
    return true;
}
