/* SPDX-License-Identifier: MIT */
/* WAIT: answered when a message gets into one of some states, or cannot any more.
 *
 * A watch stands with its lane and is found by the message's id. Whoever moves a message tells
 * (pawl_core_watch_seen), which only notes the state and puts the watch into a row: he may be in
 * the middle of something. The pump answers, in the same turn, with the record as it is then and
 * the state as it was noted, so that one that passes quickly is not missed.
 *
 * Watches are no part of what is durable: after a restart, or with new rings, the client submits
 * its WAIT again. */
#include "core/core_inner.h"

#define ANSWERS_A_TURN 1024u

struct pawl_core_watch *pawl_core_watch_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->watches, n, sizeof(struct pawl_core_watch));
}

static struct pawl_core_watch *at(const struct pawl_core *core, uint32_t n)
{
    return pawl_core_watch_at(core, n);
}

/* --- the row of those to answer -------------------------------------------------------------- */

static void fire(struct pawl_core *core, struct pawl_core_watch *w, uint8_t seen)
{
    w->fired = true;
    w->seen = seen;
    w->fired_next = core->watches_fired;
    core->watches_fired = w->number;
}

static void unfire(struct pawl_core *core, struct pawl_core_watch *w)
{
    uint32_t *link = &core->watches_fired;
    if (!w->fired)
        return;
    while (*link != w->number) /* it is emptied in each turn */
        link = &at(core, *link)->fired_next;
    *link = w->fired_next;
    w->fired = false;
}

static void watch_free(struct pawl_core *core, struct pawl_core_watch *w)
{
    struct pawl_core_lane *lane = pawl_core_lane_at(core, w->lane);
    unfire(core, w);
    if (w->prev)
        at(core, w->prev)->next = w->next;
    else
        lane->watches = w->next;
    if (w->next)
        at(core, w->next)->prev = w->prev;
    pawl_core_session_at(core, w->session)->watches_count--;
    pawl_timer_destroy(&core->wheel, w->timer);
    uint32_t n = w->number;
    pawl_table_remove(&core->watches_by_message, w->id, n);
    w->number = 0;
    pawl_pool_give(&core->watches, n);
}

/* --- answers --------------------------------------------------------------------------------- */

static void refuse(struct pawl_core *core, struct pawl_core_watch *w, int result, uint64_t value)
{
    pawl_core_lane_answer(core, pawl_core_lane_at(core, w->lane), w->seq, result, value, 0,
                          pawl_core_appended(core), 0);
    watch_free(core, w);
}

static bool answer(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq, uint64_t id,
                   uint32_t queue, uint8_t state)
{
    uint8_t *data;
    struct pawl_record r = { .size = sizeof r, .id = id };
    uint32_t block = pawl_core_data_buffer(core, sizeof r, &data);
    if (block == 0)
        return false;
    uint32_t n = pawl_table_find(&core->messages_by_id, id);
    if (n && pawl_core_message_at(core, n)->queue == queue)
        pawl_core_record_fill(core, pawl_core_message_at(core, n), &r);
    r.state = state;
    memcpy(data, &r, sizeof r);
    uint64_t wait = pawl_core_appended(core);
#ifdef PAWL_BUG_WATCH_TOLD_EARLY
    wait = 0;
#endif
    pawl_core_lane_answer_data(core, lane, seq, block, sizeof r, state, wait);
    return true;
}

static void finish(struct pawl_core *core, struct pawl_core_watch *w)
{
    if (w->mask >> w->seen & 1) {
        if (answer(core, pawl_core_lane_at(core, w->lane), w->seq, w->id, w->queue, w->seen))
            watch_free(core, w);
        else
            refuse(core, w, PAWL_E_FULL, PAWL_LIMIT_MEMORY);
    } else if (pawl_core_terminal(w->seen)) {
        refuse(core, w, PAWL_E_STATE, w->seen); /* it will never be otherwise */
    } else {
        refuse(core, w, PAWL_E_FORGOTTEN, 0);
    }
}

void pawl_core_watch_pump(struct pawl_core *core)
{
    for (uint32_t i = 0; core->watches_fired && i < ANSWERS_A_TURN; i++)
        finish(core, at(core, core->watches_fired));
    if (core->watches_fired)
        pawl_core_again(core);
}

/* --- what happens ---------------------------------------------------------------------------- */

void pawl_core_watch_seen(struct pawl_core *core, const struct pawl_core_message *m, uint8_t state)
{
    uint32_t n = pawl_table_find(&core->watches_by_message, m->id);
    for (; n; n = pawl_table_find_next(&core->watches_by_message, n)) {
        struct pawl_core_watch *w = at(core, n);
        uint8_t seen = state;
        if (w->queue != m->queue) /* dead here, ready where it was forwarded to */
            seen = w->mask >> PAWL_STATE_DEAD & 1 ? PAWL_STATE_DEAD : PAWL_STATE_NONE;
#ifdef PAWL_BUG_WATCH_MISSES_LEASE
        if (seen == PAWL_STATE_LEASED)
            continue;
#endif
        if (!w->fired &&
            (seen == PAWL_STATE_NONE || w->mask >> seen & 1 || pawl_core_terminal(seen)))
            fire(core, w, seen);
    }
}

void pawl_core_watches_gone(struct pawl_core *core, const struct pawl_core_queue *q)
{
    for (uint32_t n = 1; core->watches.used && n < core->watches.never_used; n++)
        if (at(core, n)->number == n && at(core, n)->queue == q->number)
            refuse(core, at(core, n), PAWL_E_QUEUE_GONE, 0);
}

void pawl_core_watch_timer(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_watch *w = at(core, n);
    if (w->fired)
        finish(core, w);
    else
        refuse(core, w, w->end_result, 0);
}

void pawl_core_watches_drop(struct pawl_core *core, struct pawl_core_lane *lane)
{
    while (lane->watches) {
        struct pawl_core_watch *w = at(core, lane->watches);
        struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, w->seq);
        if (e->seq == w->seq)
            e->state = PAWL_WINDOW_NONE; /* submitted again, it is a new one */
        watch_free(core, w);
    }
}

/* --- the command ----------------------------------------------------------------------------- */

static void stand(struct pawl_take *t, const struct pawl_core_queue *q)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_wait *c = t->fixed;
    uint64_t end = pawl_add_sat(core->now.time, c->wait_ns);
    bool late = t->deadline && t->deadline < end;
    uint32_t n = pawl_pool_take(&core->watches);
    struct pawl_core_watch *w = at(core, n);
    w->id = c->id;
    w->number = n;
    w->seq = t->seq;
    w->lane = t->lane->number;
    w->session = t->session->number;
    w->queue = q->number;
    w->mask = c->state_mask;
    w->end_result = late ? PAWL_E_DEADLINE : PAWL_OK_EMPTY;
    end = late ? t->deadline : end;
    if (end != UINT64_MAX) {
        w->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_WATCH, n);
        PAWL_ASSERT_REL(w->timer, !=, 0);
        pawl_timer_arm(&core->wheel, w->timer, end);
    }
    pawl_table_insert(&core->watches_by_message, w->id, n);
    w->next = t->lane->watches;
    if (w->next)
        at(core, w->next)->prev = n;
    t->lane->watches = n;
    t->session->watches_count++;
    *pawl_core_lane_entry(core, t->lane, t->seq) =
        (struct pawl_window_entry){ .seq = t->seq, .state = PAWL_WINDOW_PENDING };
}

void pawl_core_watch_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_wait *c = t->fixed;
    int result;
    uint64_t value = 0;
    const struct pawl_core_queue *q = pawl_core_queue_for(t, c->queue, PAWL_RIGHT_QUERY, &result);
    uint32_t n = q && c->id ? pawl_table_find(&core->messages_by_id, c->id) : 0;
    const struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
    if (m && m->queue != q->number)
        m = NULL;
    if (q && c->state_mask == 0) {
        result = PAWL_E_INVALID;
    } else if (q && !m) {
        result = pawl_core_id_given(core, c->id) ? PAWL_E_FORGOTTEN : PAWL_E_NOT_FOUND;
    } else if (q && (c->state_mask >> m->state & 1)) {
        if (answer(core, t->lane, t->seq, c->id, q->number, m->state))
            return;
        result = PAWL_E_FULL;
        value = PAWL_LIMIT_MEMORY;
    } else if (q && pawl_core_terminal(m->state)) {
        result = PAWL_E_STATE;
        value = m->state;
    } else if (q && c->wait_ns == 0) {
        result = PAWL_OK_EMPTY;
    } else if (q && t->session->watches_count >= PAWL_WATCHES_A_SESSION_MAX) {
        result = PAWL_E_QUOTA;
        value = PAWL_LIMIT_SESSIONS;
    } else if (q && (!pawl_pool_ready(&core->watches, 1) || !pawl_core_timers_ready(core, 1))) {
        result = PAWL_E_FULL;
        value = PAWL_LIMIT_MEMORY;
    } else if (q) {
        stand(t, q);
        return;
    }
    pawl_core_take_answer(t, result, value, pawl_core_appended(core));
}

void pawl_core_watch_verify(const struct pawl_core *core)
{
    uint64_t count = 0, by_session = 0;
    for (uint32_t n = 1; n < core->watches.never_used; n++) {
        const struct pawl_core_watch *w = at(core, n);
        if (w->number != n)
            continue;
        count++;
        PAWL_ASSERT_REL(pawl_core_lane_at(core, w->lane)->number, ==, w->lane);
        PAWL_ASSERT(w->fired || pawl_table_find(&core->messages_by_id, w->id) != 0);
    }
    for (uint32_t n = 1; n < core->sessions.never_used; n++)
        if (pawl_core_session_at(core, n)->number == n)
            by_session += pawl_core_session_at(core, n)->watches_count;
    PAWL_ASSERT_REL(count, ==, core->watches.used);
    PAWL_ASSERT_REL(count, ==, by_session);
    PAWL_ASSERT_REL(count, ==, core->watches_by_message.entries);
}
