/* SPDX-License-Identifier: MIT */
/* Recovery: records in, then start.
 *
 *   - a record of a known message moves it as it did then; of an unknown one it only counts and
 *     fills the window: a fact or an END that says all must follow
 *   - a fact overwrites what is known of its object
 *   - queues and sessions that a record names before their fact are placeholders; start() finds
 *     those that nothing has defined
 *   - timers are armed by start() alone: until then nothing has a clock
 */
#include "core/core_inner.h"

static int memory_out(struct pawl_core *core)
{
    core->damaged = true;
    return -1;
}

static uint32_t find_message(const struct pawl_core *core, uint64_t id)
{
    return id ? pawl_table_find(&core->messages_by_id, id) : 0;
}

/* --- sessions and lanes ---------------------------------------------------------------------- */

static int session(struct pawl_core *core, const struct pawl_session_rec *r, uint64_t lsn)
{
    struct pawl_core_session *s = pawl_core_session_make(core, r->id);
    if (!s)
        return memory_out(core);
    if (s->home.segment == 0)
        core->live += sizeof *r + PAWL_RECORD_HEAD;
    s->known = s->logged = true;
    s->epoch = r->epoch;
    memcpy(s->secret, r->secret, sizeof s->secret);
    s->peer.uid = r->uid;
    s->peer.gid = r->gid;
    s->peer.pid = r->pid;
    s->peer.start_time = r->start_time;
    memcpy(s->peer.label, r->label, sizeof s->peer.label);
    if (r->state == 1 && s->state != PAWL_SESSION_ENDING)
        pawl_core_session_end_apply(core, s, 0); /* nothing has it any more, the END is older */
    pawl_core_home_set(core, PAWL_KIND_SESSION, s->number, lsn);
    return 0;
}

static int session_end(struct pawl_core *core, const struct pawl_session_end_rec *r)
{
    uint32_t n = pawl_table_find(&core->sessions_by_id, r->id);
    if (n == 0)
        return 0; /* nothing of it is left in the log */
    struct pawl_core_session *s = pawl_core_session_at(core, n);
    s->known = true;
    pawl_core_session_end_apply(core, s, r->time);
    if (s->leases_count == 0)
        pawl_core_session_free(core, s);
    return 0;
}

static int lane(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    const struct pawl_lane_rec *r = &v->lane;
    struct pawl_core_session *s = pawl_core_session_make(core, r->session);
    struct pawl_core_lane *l = NULL;
    if (s)
        l = s->lanes[r->lane] ? pawl_core_lane_at(core, s->lanes[r->lane])
                              : pawl_core_lane_make(core, s, r->lane);
    if (!l || pawl_core_lane_window(core, l, r->window) != 0)
        return memory_out(core);
    if (l->home.segment == 0)
        core->live += pawl_core_lane_live_bytes(l);
    l->known = l->logged = true;
    if (r->flags & PAWL_LANE_RESET) {
        l->seq_max = l->oldest = 0;
        pawl_core_lane_clear(core, l);
        pawl_core_idem_lane_gone(core, s, r->lane);
    }
    l->seq_max = pawl_max_u64(l->seq_max, r->seq_max);
    l->oldest = pawl_max_u64(l->oldest, r->oldest);
    for (uint32_t i = 0; i < r->count; i++) {
        struct pawl_window_rec w;
        memcpy(&w, v->rest + i * sizeof w, sizeof w);
        *pawl_core_lane_entry(core, l, w.seq) = (struct pawl_window_entry){
            .seq = w.seq,
            .value = w.value,
            .lsn = w.lsn,
            .result = w.result,
            .state = w.flags & PAWL_WINDOW_REC_ASKED ? PAWL_WINDOW_QUERY
                     : w.flags & PAWL_WINDOW_HALF    ? PAWL_WINDOW_NONE
                                                     : PAWL_WINDOW_DONE,
            .flags = (uint8_t)w.flags,
        };
    }
    pawl_core_home_set(core, PAWL_KIND_LANE, l->number, lsn);
    return 0;
}

/* --- messages -------------------------------------------------------------------------------- */

/* A block with the payload, or 0 for none. */
static int take_payload(struct pawl_core *core, const uint8_t *from, uint32_t bytes,
                        uint32_t *block)
{
    *block = bytes ? pawl_payload_take(&core->payload, bytes) : 0;
    if (bytes && *block == 0)
        return memory_out(core);
    if (bytes)
        memcpy(pawl_payload_at(&core->payload, *block), from, bytes);
    return 0;
}

static int send(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    struct pawl_core_queue *q = pawl_core_queue_known(core, v->send.queue);
    if (!q)
        return -1;
    pawl_core_window_apply(core, &v->op, PAWL_OK, v->send.id, lsn, PAWL_WINDOW_SET);
    if (find_message(core, v->send.id) != 0)
        return -1; /* an id is given once */
    uint32_t block;
    if (!pawl_pool_ready(&core->messages, 1))
        return memory_out(core);
    if (take_payload(core, v->rest, v->rest_bytes, &block) != 0)
        return -1;
    const struct pawl_send_rec *r = &v->send;
    if (r->key_bytes &&
        pawl_core_key_restore(core, q->id, r->id, block, r->flags & PAWL_RECORD_TTL, r->key_bytes,
                              v->rest_bytes - r->op.extra, r->op.extra) != 0)
        return memory_out(core);
    (void)pawl_core_send_apply(core, &v->send, q, block, lsn);
    return 0;
}

static int grant(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    const struct pawl_grant_rec *r = &v->grant;
    struct pawl_core_queue *q = pawl_core_queue_known(core, r->queue);
    if (!q)
        return -1;
    pawl_core_window_apply(core, &v->op, PAWL_OK, v->op.extra, lsn,
                           r->flags & PAWL_RECORD_STANDING ? PAWL_WINDOW_TOUCH : PAWL_WINDOW_ADD);
    uint32_t s = v->op.session ? pawl_table_find(&core->sessions_by_id, v->op.session) : 0;
    q->counters.delivered += v->op.extra;
    for (uint32_t i = 0; i < v->op.extra; i++) {
        struct pawl_granted_rec one;
        memcpy(&one, v->rest + i * sizeof one, sizeof one);
        uint32_t n = find_message(core, one.message);
        if (n != 0 && !pawl_core_terminal(pawl_core_message_at(core, n)->state))
            pawl_core_grant_apply(core, n, r, r->grant + i, one.random, s, 0);
    }
    return 0;
}

static int back(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    struct pawl_core_queue *q = pawl_core_queue_known(core, v->back.queue);
    if (!q)
        return -1;
    pawl_core_window_apply(core, &v->op, PAWL_OK, 0, lsn, PAWL_WINDOW_SET);
    uint32_t progress = 0;
    if (v->back.progress_bytes &&
        take_payload(core, v->rest + v->back.reason_bytes, v->back.progress_bytes, &progress) != 0)
        return -1;
    pawl_core_back_apply(core, &v->back, v->rest, progress, q, find_message(core, v->back.message));
    return 0;
}

/* A message of which only its end is known. */
static uint32_t make_tombstone(struct pawl_core *core, const struct pawl_end_rec *r,
                               struct pawl_core_queue *q)
{
    uint32_t n = pawl_pool_take(&core->messages);
    if (n == 0)
        return 0;
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    m->id = r->message;
    m->queue = q->number;
    m->priority = r->priority;
    pawl_table_insert(&core->messages_by_id, m->id, n);
    return n;
}

static int end(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    struct pawl_core_queue *q = pawl_core_queue_known(core, v->end.queue);
    if (!q)
        return -1;
    bool amo = v->end.flags & PAWL_RECORD_AMO;
    enum pawl_window_use use = amo ? PAWL_WINDOW_ADD : PAWL_WINDOW_SET;
    if (v->end.flags & PAWL_RECORD_STANDING)
        use = PAWL_WINDOW_TOUCH;
    if (!(v->end.flags & PAWL_RECORD_COPY)) /* a copy only tells whose it was */
        pawl_core_window_apply(core, &v->op, PAWL_OK, amo ? 1 : 0, lsn, use);
    uint32_t n = find_message(core, v->end.message);
    if (n == 0)
        n = make_tombstone(core, &v->end, q);
    if (n == 0)
        return memory_out(core);
    uint32_t result = 0;
    if (v->rest_bytes)
        result = pawl_core_result_block(core, v->rest, v->rest_bytes);
    if (v->rest_bytes && result == 0)
        return memory_out(core);
    pawl_core_end_apply(core, &v->end, result, q, n, lsn);
    return 0;
}

static int purge(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    struct pawl_core_queue *q = pawl_core_queue_known(core, v->purge.queue);
    if (!q)
        return -1;
    bool more = v->purge.id_max != 0;
    pawl_core_window_apply(core, &v->op, PAWL_OK, v->purge.total, more ? v->purge.id_max : lsn,
                           more ? PAWL_WINDOW_GOES_ON : PAWL_WINDOW_SET);
    pawl_core_purge_apply(core, q, v->rest, v->op.extra, v->purge.forget);
    return 0;
}

/* --- the fact of a message ------------------------------------------------------------------- */

static int fact_lease(struct pawl_core *core, struct pawl_core_message *m, uint32_t n,
                      const struct pawl_message_rec *r, const uint8_t *reason)
{
    uint32_t number = pawl_pool_take(&core->leases);
    if (number == 0)
        return memory_out(core);
    struct pawl_core_lease *l = pawl_core_lease_at(core, number);
    m->lease = number;
    l->message = n;
    l->random = r->random;
    l->deadline = r->due;
    l->lease_ns = r->lease_ns;
    l->hold_end = r->hold_end;
    l->position = PAWL_POSITION_NONE;
    l->seq = r->seq;
    l->uid = r->uid;
    l->pid = r->pid;
    l->lane = r->lane;
    l->kind = r->kind;
    if (r->reason_bytes) {
        uint32_t block;
        if (take_payload(core, reason, r->reason_bytes, &block) != 0)
            return -1;
        l->reason = block;
        l->reason_bytes = r->reason_bytes;
    }
    if (r->flags & PAWL_RECORD_KEY_FREE)
        l->flags |= PAWL_LEASE_KEY_FREE;
    if (r->progress_bytes) {
        if (take_payload(core, reason + r->reason_bytes, r->progress_bytes, &l->progress) != 0)
            return -1;
        l->progress_bytes = r->progress_bytes;
    }
    if (r->state == PAWL_STATE_LEASED && r->session) {
        struct pawl_core_session *s = pawl_core_session_make(core, r->session);
        if (!s)
            return memory_out(core);
        pawl_core_lease_link(core, number, s->number);
    }
    return 0;
}

static int fact(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    const struct pawl_message_rec *r = &v->message;
    struct pawl_core_queue *q = pawl_core_queue_known(core, r->queue);
    if (!q)
        return -1;
    uint32_t n = find_message(core, r->id);
    if (n != 0) {
        struct pawl_core_message *old = pawl_core_message_at(core, n);
        if (pawl_core_key_of(core, old)) /* no end of it: the entry is made anew below */
            pawl_core_key_word(core, old->payload, old->flags & PAWL_MESSAGE_TTL, 0);
        pawl_core_message_forget(core, n);
    }
    uint32_t block;
    n = pawl_pool_take(&core->messages);
    if (n == 0)
        return memory_out(core);
    uint32_t payload = pawl_record_message_payload(r);
    if (take_payload(core, v->rest, payload, &block) != 0)
        return -1;
    if (r->key_bytes) {
        uint64_t queue;
        memcpy(&queue, v->rest + v->rest_bytes - sizeof queue, sizeof queue);
        if (pawl_core_key_restore(core, queue, r->id, block, r->flags & PAWL_RECORD_TTL,
                                  r->key_bytes, payload - r->body_bytes, r->body_bytes) != 0)
            return memory_out(core);
    }
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    m->id = r->id;
    m->place = r->place;
    m->grant = r->grant;
    m->sent_wall = r->sent_wall;
    m->queue = q->number;
    m->payload = block;
    m->body_bytes = r->body_bytes;
    m->headers_bytes = r->headers_bytes;
    m->key_bytes = r->key_bytes;
    m->ordering_key_bytes = r->ordering_key_bytes;
    m->priority = r->priority;
    m->flags = pawl_core_message_flags(r->flags);
    m->dead_reason = r->dead_reason;
    m->acquired = r->acquired;
    m->expired = r->expired;
    m->nacked = r->nacked;
    m->crashed = r->crashed;
    m->deferred = r->deferred;
    pawl_table_insert(&core->messages_by_id, m->id, n);
    if (r->leased && fact_lease(core, m, n, r, v->rest + payload) != 0)
        return -1;
    q->bytes += pawl_core_message_content_bytes(m);
    pawl_core_message_move(core, n, r->state);
    core->live += pawl_core_message_live_bytes(core, m);
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, lsn);
    return 0;
}

/* --- one record ------------------------------------------------------------------------------ */

static int group(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    const uint8_t *at = v->rest, *body;
    uint32_t left = v->rest_bytes, bytes;
    uint16_t type;
    int rc;
    while ((rc = pawl_record_sub(&at, &left, &type, &body, &bytes)) > 0) {
#ifdef PAWL_BUG_GROUP_REPLAYED_HALF
        if (type != PAWL_RECORD_OUTCOME && at - v->rest > 2 * bytes && left > 2 * bytes)
            continue;
#endif
        if (pawl_core_replay(core, lsn, type, body, bytes) != 0)
            return -1;
    }
    return rc;
}

int pawl_core_replay(struct pawl_core *core, uint64_t lsn, uint16_t type, const void *body,
                     uint32_t bytes)
{
    PAWL_ASSERT(!core->started);
    struct pawl_record_view v;
    if (pawl_record_decode(&v, type, body, bytes) != 0)
        return -1;
    int rc = 0;
    switch (type) {
    case PAWL_RECORD_SESSION:
        rc = session(core, &v.session, lsn);
        break;
    case PAWL_RECORD_SESSION_END:
        rc = session_end(core, &v.session_end);
        break;
    case PAWL_RECORD_LANE:
        rc = lane(core, &v, lsn);
        break;
    case PAWL_RECORD_QUEUE:
        pawl_core_window_apply(core, &v.op, (int)v.queue.result, v.queue.id, lsn, PAWL_WINDOW_SET);
        pawl_core_queue_apply(core, &v.queue, lsn);
        break;
    case PAWL_RECORD_SEND:
        rc = send(core, &v, lsn);
        break;
    case PAWL_RECORD_GRANT:
        rc = grant(core, &v, lsn);
        break;
    case PAWL_RECORD_RENEW:
        pawl_core_window_apply(core, &v.op, PAWL_OK, 0, lsn, PAWL_WINDOW_SET);
        pawl_core_renew_apply(core, &v.renew, find_message(core, v.renew.message));
        break;
    case PAWL_RECORD_BACK:
        rc = back(core, &v, lsn);
        break;
    case PAWL_RECORD_END:
        rc = end(core, &v, lsn);
        break;
    case PAWL_RECORD_RESTORE:
        pawl_core_window_apply(core, &v.op, PAWL_OK, 0, lsn, PAWL_WINDOW_SET);
        pawl_core_restore_apply(core, find_message(core, v.restore.message));
        break;
    case PAWL_RECORD_PURGE:
        rc = purge(core, &v, lsn);
        break;
    case PAWL_RECORD_STATE:
        rc = pawl_core_state_replay(core, &v, lsn);
        break;
    case PAWL_RECORD_RESERVATION:
        rc = pawl_core_reservation_replay(core, &v, lsn);
        break;
    case PAWL_RECORD_IDEM:
        rc = pawl_core_idem_replay(core, &v, lsn);
        break;
    case PAWL_RECORD_KEY:
        if (pawl_core_key_fact(core, &v.key, lsn) != 0)
            rc = memory_out(core);
        break;
    case PAWL_RECORD_GROUP:
        rc = group(core, &v, lsn);
        break;
    case PAWL_RECORD_OUTCOME:
        if (v.outcome.detail & PAWL_OUTCOME_STEP)
            pawl_core_window_apply(core, &v.op, v.outcome.result, (uint16_t)v.outcome.detail,
                                   v.outcome.value, PAWL_WINDOW_SET);
        else
            pawl_core_window_apply(core, &v.op, v.outcome.result, v.outcome.value, lsn,
                                   PAWL_WINDOW_SET);
        pawl_core_outcome_apply(core, &v.outcome, lsn);
        break;
    default:
        rc = fact(core, &v, lsn);
        break;
    }
    return rc != 0 || core->damaged ? -1 : 0;
}

/* --- start ----------------------------------------------------------------------------------- */

/* 0, or -1: something was named and never defined. */
static int resolve(struct pawl_core *core)
{
    bool keys = false;
    for (uint32_t n = 1; n < core->queues.never_used; n++) {
        struct pawl_core_queue *q = pawl_core_queue_at(core, n);
        if (q->number == n && !q->known && q->dedup_keys)
            q->gone = keys = true;
    }
    if (keys)
        (void)pawl_core_ledger_sweep(core, UINT32_MAX);
    for (uint32_t n = 1; n < core->queues.never_used; n++) {
        struct pawl_core_queue *q = pawl_core_queue_at(core, n);
        if (q->number != n || q->known)
            continue;
        if (pawl_core_queue_live(q) != 0 || q->root != 0 || q->reservations != 0 || q->idems != 0)
            return -1;
        pawl_core_queue_drop_placeholder(core, q); /* dropped long ago, tombstones and all */
    }
    for (uint32_t n = 1; n < core->sessions.never_used; n++) {
        struct pawl_core_session *s = pawl_core_session_at(core, n);
        if (s->number != n)
            continue;
        if (!s->known)
            return -1;
        /* Of one that ends the windows are gone: only its leases were still to be given back. */
        for (uint32_t i = 0; i < PAWL_LANES_MAX && s->state != PAWL_SESSION_ENDING; i++)
            if (s->lanes[i] && !pawl_core_lane_at(core, s->lanes[i])->known)
                return -1;
    }
    return 0;
}

/* Leases have their full time again, and every message the timer that its state asks for. */
static void arm_messages(struct pawl_core *core)
{
    for (uint32_t n = 1; n < core->messages.never_used; n++) {
        struct pawl_core_message *m = pawl_core_message_at(core, n);
        if (m->state == PAWL_STATE_NONE || pawl_core_terminal(m->state))
            continue;
        if (m->state == PAWL_STATE_LEASED) {
            struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
            l->deadline = l->kind == PAWL_LEASE_HELD ? l->hold_end
                                                     : pawl_add_sat(core->now.time, l->lease_ns);
        }
        pawl_core_message_timer(core, n);
    }
}

/* Facts may have put the leases of a session into another order. */
static void sort_leases(struct pawl_core *core, struct pawl_core_session *s)
{
    uint32_t sorted = 0; /* newest first, through next; then turned round by linking again */
    uint32_t waiting = s->leases_first;
    s->leases_first = s->leases_last = s->leases_count = 0;
    while (waiting) {
        uint32_t n = waiting;
        struct pawl_core_lease *l = pawl_core_lease_at(core, n);
        waiting = l->next;
        uint64_t grant = pawl_core_message_at(core, l->message)->grant;
        uint32_t *at = &sorted;
        while (*at) {
            struct pawl_core_lease *other = pawl_core_lease_at(core, *at);
            if (pawl_core_message_at(core, other->message)->grant < grant)
                break;
            at = &other->next;
        }
        l->next = *at;
        *at = n;
    }
    uint32_t ordered = 0;
    while (sorted) {
        uint32_t n = sorted;
        sorted = pawl_core_lease_at(core, n)->next;
        pawl_core_lease_at(core, n)->next = ordered;
        ordered = n;
    }
    while (ordered) {
        uint32_t n = ordered;
        ordered = pawl_core_lease_at(core, n)->next;
        pawl_core_lease_link(core, n, s->number);
    }
}

static void start_sessions(struct pawl_core *core)
{
    for (uint32_t n = 1; n < core->sessions.never_used; n++) {
        struct pawl_core_session *s = pawl_core_session_at(core, n);
        if (s->number != n)
            continue;
        sort_leases(core, s);
        s->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_SESSION, n);
        PAWL_ASSERT_REL(s->timer, !=, 0);
        if (s->state == PAWL_SESSION_ENDING) {
            s->ending_next = core->ending_first;
            core->ending_first = n;
        } else if (s->id >> PAWL_EPOCH_SHIFT < core->void_below) {
            pawl_core_session_end(core, s, PAWL_END_GRACE, core->now);
        } else {
            /* It may have been resumed since without a record of that. */
            s->epoch = pawl_max_u64(s->epoch, core->options.epoch << 32);
            s->detached_at = core->now.time;
            pawl_timer_arm(&core->wheel, s->timer,
                           pawl_add_sat(core->now.time, core->options.session_grace_ns));
        }
    }
}

void pawl_core_booted(struct pawl_core *core, uint64_t epoch)
{
    PAWL_ASSERT(!core->started);
#ifndef PAWL_BUG_BOOT_FORGOTTEN
    core->void_below = epoch;
#endif
}

int pawl_core_start(struct pawl_core *core, struct pawl_now now, uint64_t epoch, bool same_boot)
{
    PAWL_ASSERT(!core->started);
    if (core->damaged || resolve(core) != 0)
        return -1;
    core->now = now;
    core->options.epoch = epoch;
    core->started = true;
    core->wheel.tick = now.time >> PAWL_TICK_SHIFT; /* nothing is armed yet */
    core->budget.limit = UINT64_MAX;
    core->again = pawl_timer_create(&core->wheel, PAWL_TIMER_AGAIN, 0);
    if (core->again == 0 || pawl_core_ends_start(core) != 0)
        return -1;
    arm_messages(core);
    if (pawl_core_ledger_start(core) != 0 || pawl_core_state_start(core) != 0 ||
        pawl_core_idem_start(core) != 0)
        return -1;
    for (uint32_t n = 1; n < core->queues.never_used; n++)
        if (pawl_core_queue_at(core, n)->number == n)
            pawl_core_queue_done_timer(core, pawl_core_queue_at(core, n));
    if (!same_boot)
        core->void_below = epoch;
    start_sessions(core);
    core->void_queue = 1;
    if (!pawl_core_timers_ready(core, 0))
        return -1;
    core->budget.limit = core->memory_sends;
    return 0;
}
