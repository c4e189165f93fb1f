/* SPDX-License-Identifier: MIT */
/* RECEIVE, SUBSCRIBE, STOP: those who wait.
 *
 *   - RECEIVE: looks at its queues in order; what is there is granted at once and the answer
 *     follows. Nothing there: a waiter stands in the line of each queue until one message is
 *     granted, its time is over, or it is stopped.
 *   - SUBSCRIBE: a standing waiter; `have` counts what is leased under it, the credit is `max`. At
 *     its credit it leaves the lines; the end of one of its leases brings it back.
 *   - a waiter whose ring is full leaves the lines too, until pawl_core_lane_room()
 *   - so all who stand in a line can be served: pump serves queues that have both messages and a
 *     line, in the order in which they came to have them
 *
 * Nothing of this is logged: after a restart the client submits it again.
 */
#include "core/core_inner.h"

#define CREDIT_MAX 65536u
#define BLOCKED_LOOK_NS PAWL_NS_MS

static uint32_t node(const struct pawl_core_waiter *w, uint32_t slot)
{
    return w->number * PAWL_QUEUES_A_RECEIVE_MAX + slot;
}

/* --- lines ----------------------------------------------------------------------------------- */

void pawl_core_queue_wake(struct pawl_core *core, struct pawl_core_queue *q)
{
    if (q->active || q->waiting_first == 0 || !pawl_core_queue_serves(q))
        return;
    q->active = true;
    q->active_next = 0;
    if (core->active_last)
        pawl_core_queue_at(core, core->active_last)->active_next = q->number;
    else
        core->active_first = q->number;
    core->active_last = q->number;
}

static uint32_t *next_of(struct pawl_core *core, uint32_t at)
{
    return &pawl_core_waiter_at(core, at / PAWL_QUEUES_A_RECEIVE_MAX)
                ->link[at % PAWL_QUEUES_A_RECEIVE_MAX]
                .next;
}
static uint32_t *prev_of(struct pawl_core *core, uint32_t at)
{
    return &pawl_core_waiter_at(core, at / PAWL_QUEUES_A_RECEIVE_MAX)
                ->link[at % PAWL_QUEUES_A_RECEIVE_MAX]
                .prev;
}

static void line_push(struct pawl_core *core, struct pawl_core_queue *q, uint32_t at)
{
    *next_of(core, at) = 0;
    *prev_of(core, at) = q->waiting_last;
    if (q->waiting_last)
        *next_of(core, q->waiting_last) = at;
    else
        q->waiting_first = at;
    q->waiting_last = at;
}

static void line_remove(struct pawl_core *core, struct pawl_core_queue *q, uint32_t at)
{
    uint32_t next = *next_of(core, at), prev = *prev_of(core, at);
    if (prev)
        *next_of(core, prev) = next;
    else
        q->waiting_first = next;
    if (next)
        *prev_of(core, next) = prev;
    else
        q->waiting_last = prev;
}

void pawl_core_waiter_link(struct pawl_core *core, struct pawl_core_waiter *w)
{
    const struct pawl_core_lane *lane = pawl_core_lane_at(core, w->lane);
    if (w->linked || lane->blocked || lane->handle == PAWL_NO_HANDLE || w->have >= w->max)
        return;
    w->linked = true;
    for (uint32_t i = 0; i < w->queue_count; i++) {
        struct pawl_core_queue *q = pawl_core_queue_at(core, w->queue[i]);
        line_push(core, q, node(w, i));
        pawl_core_queue_wake(core, q);
    }
}

void pawl_core_waiter_unlink(struct pawl_core *core, struct pawl_core_waiter *w)
{
    if (!w->linked)
        return;
    w->linked = false;
    for (uint32_t i = 0; i < w->queue_count; i++)
        line_remove(core, pawl_core_queue_at(core, w->queue[i]), node(w, i));
}

/* --- ends ------------------------------------------------------------------------------------ */

static void waiter_free(struct pawl_core *core, struct pawl_core_waiter *w)
{
    pawl_core_waiter_unlink(core, w);
    if (w->in_lane) {
        struct pawl_core_lane *lane = pawl_core_lane_at(core, w->lane);
        if (w->prev)
            pawl_core_waiter_at(core, w->prev)->next = w->next;
        else
            lane->waiters = w->next;
        if (w->next)
            pawl_core_waiter_at(core, w->next)->prev = w->prev;
        for (uint32_t i = 0; i < w->queue_count; i++)
            pawl_core_queue_at(core, w->queue[i])->waiting_count--;
        pawl_core_session_at(core, w->session)->waiters_count--;
    }
    pawl_timer_destroy(&core->wheel, w->timer);
    uint32_t n = w->number;
    w->number = 0;
    pawl_pool_give(&core->waiters, n);
}

void pawl_core_waiter_drop(struct pawl_core *core, struct pawl_core_waiter *w)
{
    struct pawl_window_entry *e =
        pawl_core_lane_entry(core, pawl_core_lane_at(core, w->lane), w->seq);
    if (e->seq == w->seq)
        e->state = PAWL_WINDOW_NONE; /* submitted again, it is a new one */
    waiter_free(core, w);
}

void pawl_core_waiter_end(struct pawl_core *core, struct pawl_core_waiter *w, int result)
{
    uint64_t value = 0;
    if (result == PAWL_E_TOO_BIG)
        value = w->too_big;
    else if (result == PAWL_E_INFLIGHT_LIMIT)
        value = PAWL_LIMIT_QUEUE_INFLIGHT;
    if (w->have > 0 && !w->standing) {
        result = PAWL_OK;
        value = w->have;
    }
    uint64_t wait = w->wait_lsn;
    if (result != PAWL_OK)
        for (uint32_t i = 0; i < w->queue_count; i++)
            wait = pawl_max_u64(wait,
                                pawl_core_queue_wait(core, pawl_core_queue_at(core, w->queue[i])));
    if (!w->standing)
        pawl_core_lane_answer(core, pawl_core_lane_at(core, w->lane), w->seq, result, value, w->lsn,
                              wait, 0);
    waiter_free(core, w);
}

void pawl_core_waiters_gone(struct pawl_core *core, const struct pawl_core_queue *q)
{
    for (uint32_t n = 1; n < core->waiters.never_used && q->waiting_count > 0; n++) {
        struct pawl_core_waiter *w = pawl_core_waiter_at(core, n);
        if (w->number != n)
            continue;
        for (uint32_t i = 0; i < w->queue_count; i++) {
            if (w->queue[i] != q->number)
                continue;
            pawl_core_waiter_end(core, w, PAWL_E_QUEUE_GONE);
            break;
        }
    }
}

/* Why a RECEIVE that does not wait gets nothing. */
static int empty_reason(const struct pawl_core *core, const struct pawl_core_waiter *w)
{
    bool paused = true, limit = false;
    for (uint32_t i = 0; i < w->queue_count; i++) {
        const struct pawl_core_queue *q = pawl_core_queue_at(core, w->queue[i]);
        paused = paused && q->paused;
        limit = limit || (!q->paused && q->levels != 0 && q->leased.count >= q->inflight_max);
    }
    return paused ? PAWL_E_PAUSED : limit ? PAWL_E_INFLIGHT_LIMIT : PAWL_OK_EMPTY;
}

static void end_empty(struct pawl_core *core, struct pawl_core_waiter *w)
{
    pawl_core_waiter_end(core, w, w->once ? empty_reason(core, w) : w->end_result);
}

void pawl_core_waiter_timer(struct pawl_core *core, uint32_t number)
{
    struct pawl_core_waiter *w = pawl_core_waiter_at(core, number);
    bool looked = w->linked;
    for (uint32_t i = 0; i < w->queue_count; i++)
        looked = looked && !pawl_core_queue_serves(pawl_core_queue_at(core, w->queue[i]));
    if (w->once && !looked) {
        /* Its ring is full, or the log: it has not been told the truth yet. */
        pawl_timer_arm(&core->wheel, w->timer, core->now.time + BLOCKED_LOOK_NS);
        return;
    }
    end_empty(core, w);
}

/* --- commands -------------------------------------------------------------------------------- */

static int check(const struct pawl_cmd_receive *c, bool standing)
{
    if (c->lease_kind > PAWL_LEASE_DETACHED || (c->flags & ~PAWL_RECEIVE_AT_MOST_ONCE) ||
        c->max == 0 || c->max > (standing ? CREDIT_MAX : PAWL_BATCH_MAX) ||
        (c->lease_ns && (c->lease_ns < PAWL_LEASE_NS_MIN || c->lease_ns > PAWL_LEASE_NS_MAX)))
        return PAWL_E_INVALID;
    return PAWL_OK;
}

static int find_queues(struct pawl_take *t, const struct pawl_cmd_receive *c,
                       struct pawl_core_waiter *w)
{
    uint64_t ids[PAWL_QUEUES_A_RECEIVE_MAX];
    memcpy(ids, t->variable, c->queue_count * sizeof ids[0]);
    for (uint32_t i = 0; i < c->queue_count; i++) {
        int result;
        struct pawl_core_queue *q = pawl_core_queue_for(t, ids[i], PAWL_RIGHT_RECEIVE, &result);
        if (!q)
            return result;
        bool twice = false;
        for (uint32_t k = 0; k < w->queue_count; k++)
            twice = twice || w->queue[k] == q->number;
        if (!twice)
            w->queue[w->queue_count++] = q->number;
    }
    return PAWL_OK;
}

/* The credit of leases that a restart or a lost socket left under this seq. */
static void take_leases_over(struct pawl_take *t, struct pawl_core_waiter *w)
{
    struct pawl_core *core = t->core;
    for (uint32_t n = t->session->leases_first; n != 0; n = pawl_core_lease_at(core, n)->next) {
        struct pawl_core_lease *l = pawl_core_lease_at(core, n);
        if (l->lane == t->lane->lane && l->seq == t->seq) {
            l->waiter = w->number;
            w->have++;
        }
    }
}

static void enter_lane(struct pawl_core *core, struct pawl_core_lane *lane,
                       struct pawl_core_waiter *w)
{
    w->in_lane = true;
    pawl_core_session_at(core, w->session)->waiters_count++;
    w->prev = 0;
    w->next = lane->waiters;
    if (w->next)
        pawl_core_waiter_at(core, w->next)->prev = w->number;
    lane->waiters = w->number;
    for (uint32_t i = 0; i < w->queue_count; i++)
        pawl_core_queue_at(core, w->queue[i])->waiting_count++;
}

static void stand(struct pawl_take *t, struct pawl_core_waiter *w)
{
    struct pawl_core *core = t->core;
    enter_lane(core, t->lane, w);
    if (t->flags & PAWL_CMD_RESUBMIT)
        take_leases_over(t, w);
    uint64_t wait = pawl_core_queue_wait(core, pawl_core_queue_at(core, w->queue[0]));
    pawl_core_lane_answer(core, t->lane, t->seq, PAWL_OK, 0, 0, wait, 0);
    pawl_core_waiter_link(core, w);
}

/* Serves it from all its queues. True: it is over. */
static bool look(struct pawl_core *core, struct pawl_core_waiter *w, bool *short_of_room)
{
    *short_of_room = false;
    for (uint32_t i = 0; i < w->queue_count && w->have < w->max; i++) {
        enum pawl_served s = pawl_core_serve(core, w, pawl_core_queue_at(core, w->queue[i]));
        if (s == PAWL_SERVE_TOO_BIG && w->have == 0) {
            pawl_core_waiter_end(core, w, PAWL_E_TOO_BIG);
            return true;
        }
        *short_of_room = *short_of_room || s == PAWL_SERVE_NO_ROOM;
        if (s == PAWL_SERVE_BLOCKED)
            break;
    }
    if (w->have == 0)
        return false;
    pawl_core_waiter_end(core, w, PAWL_OK);
    return true;
}

static void receive(struct pawl_take *t, const struct pawl_cmd_receive *c,
                    struct pawl_core_waiter *w)
{
    struct pawl_core *core = t->core;
    bool short_of_room = false;
    if (!t->lane->blocked && look(core, w, &short_of_room))
        return;
    w->once = c->wait_ns == 0;
    if (w->once && !t->lane->blocked && !short_of_room) {
        end_empty(core, w);
        return;
    }
    uint64_t end = pawl_add_sat(core->now.time, c->wait_ns);
    w->end_result = PAWL_OK_EMPTY;
    if (t->deadline && t->deadline < end) {
        end = t->deadline;
        w->end_result = PAWL_E_DEADLINE;
    }
    w->end = w->once ? UINT64_MAX : end;
    if (end != UINT64_MAX) {
        w->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_WAITER, w->number);
        PAWL_ASSERT_REL(w->timer, !=, 0);
        pawl_timer_arm(&core->wheel, w->timer, end);
    }
    *pawl_core_lane_entry(core, t->lane, t->seq) =
        (struct pawl_window_entry){ .seq = t->seq, .state = PAWL_WINDOW_PENDING };
    enter_lane(core, t->lane, w);
    pawl_core_waiter_link(core, w);
}

void pawl_core_receive_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_cmd_receive c;
    memcpy(&c, t->fixed, sizeof c);
    bool standing = t->type == PAWL_CMD_SUBSCRIBE;
    int result = check(&c, standing);
    if (result != PAWL_OK) {
        pawl_core_take_answer(t, result, 0, 0);
        return;
    }
    if (t->session->waiters_count >= PAWL_WAITERS_A_SESSION_MAX) {
        pawl_core_take_answer(t, PAWL_E_QUOTA, PAWL_LIMIT_SESSIONS, 0);
        return;
    }
    pawl_core_memory_open(core);
    uint32_t n = 0;
    if (pawl_core_timers_ready(core, 1))
        n = pawl_pool_take(&core->waiters);
    pawl_core_memory_close(core);
    if (n == 0) {
        pawl_core_take_answer(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY, 0);
        return;
    }
    struct pawl_core_waiter *w = pawl_core_waiter_at(core, n);
    w->seq = t->seq;
    w->number = n;
    w->lane = t->lane->number;
    w->session = t->session->number;
    w->lane_number = t->lane->lane;
    w->lease_ns = c.lease_ns;
    w->max = c.max;
    w->kind = c.lease_kind;
    w->flags = c.flags;
    w->standing = standing;
    w->end = UINT64_MAX;
    result = find_queues(t, &c, w);
    if (result != PAWL_OK) {
        waiter_free(core, w);
        pawl_core_take_answer(t, result, 0, pawl_core_appended(core));
        return;
    }
    if (standing)
        stand(t, w);
    else
        receive(t, &c, w);
}

void pawl_core_receive_stop(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_cmd_one c;
    memcpy(&c, t->fixed, sizeof c);
    int result = PAWL_E_NOT_FOUND;
    for (uint32_t n = t->lane->waiters; n != 0; n = pawl_core_waiter_at(core, n)->next) {
        struct pawl_core_waiter *w = pawl_core_waiter_at(core, n);
        if (w->seq != c.value)
            continue;
        pawl_core_waiter_end(core, w, PAWL_OK_EMPTY);
        result = PAWL_OK;
        break;
    }
    pawl_core_take_answer(t, result, 0, pawl_core_appended(core));
}

/* --- pump ------------------------------------------------------------------------------------ */

/* False: no room in the log. */
static bool serve_line(struct pawl_core *core, struct pawl_core_queue *q)
{
    while (q->waiting_first && pawl_core_queue_serves(q)) {
        uint32_t at = q->waiting_first;
        struct pawl_core_waiter *w = pawl_core_waiter_at(core, at / PAWL_QUEUES_A_RECEIVE_MAX);
        if (w->end <= core->now.time) {
            end_empty(core, w);
            continue;
        }
        enum pawl_served s = pawl_core_serve(core, w, q);
        if (!w->standing && w->have > 0) {
            pawl_core_waiter_end(core, w, PAWL_OK);
        } else if (s == PAWL_SERVE_TOO_BIG) {
            /* A standing one is quiet: the client asks beside it and learns the size. */
            if (w->standing)
                pawl_core_waiter_unlink(core, w);
            else
                pawl_core_waiter_end(core, w, PAWL_E_TOO_BIG);
        } else if (w->have >= w->max) {
            pawl_core_waiter_unlink(core, w);
        } else if (w->linked && w->standing && s == PAWL_SERVED) {
            line_remove(core, q, at);
            line_push(core, q, at);
        }
        if (s == PAWL_SERVE_NO_ROOM)
            return false;
        if (s == PAWL_SERVE_NOTHING)
            return true;
    }
    return true;
}

bool pawl_core_receive_pump(struct pawl_core *core)
{
    while (core->active_first) {
        uint32_t n = core->active_first;
        struct pawl_core_queue *q = pawl_core_queue_at(core, n);
        if (!serve_line(core, q))
            return true;
        core->active_first = q->active_next;
        if (core->active_first == 0)
            core->active_last = 0;
        q->active = false;
    }
    return false;
}
