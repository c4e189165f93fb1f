/* SPDX-License-Identifier: MIT */
/* Many messages at once, in pieces: purge, drop, and the forgetting of tombstones.
 *
 *   purge     all that the queue held when the command was taken (ids up to its last one), in PURGE
 *             records that name up to PIECE messages each; nothing is delivered meanwhile; answered
 *             with the last piece, which says that it is. A crash between leaves some purged, and
 *             the window says how far it got: submitted again, the command takes the rest of what
 *             there was at first. What has expired by the clock ends as such and is not counted.
 *   drop      the QUEUE record says all. What the queue holds is freed afterwards without records:
 *             nobody can see it any more. A message under lease becomes a tombstone, for its token.
 *   forget    a timer a queue, at the time of the oldest tombstone; and at once above the limit
 */
#include "core/core_inner.h"

#define PIECE 256u
#define PIECES_A_TURN 64u
#define FORGET_A_TURN 256u
#define PINNED_LOOK_NS (100 * PAWL_NS_MS)

/* --- purge ----------------------------------------------------------------------------------- */

struct piece {
    uint64_t ids[PIECE];
    uint32_t expired[PIECE]; /* numbers */
    uint32_t count, expired_count;
    uint64_t id_max;
};

static bool whole(const struct piece *p) { return p->count < PIECE && p->expired_count < PIECE; }

static void add(struct pawl_core *core, struct piece *p, uint32_t n)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    if (m->id > p->id_max)
        return;
#ifndef PAWL_BUG_PURGE_EXPIRED
    if (pawl_core_message_expired(core, m)) {
        p->expired[p->expired_count++] = n;
        return;
    }
#endif
    p->ids[p->count++] = m->id;
}

static void gather_list(struct pawl_core *core, struct piece *p, const struct pawl_core_list *l)
{
    for (uint32_t n = l->first; n != 0 && whole(p); n = pawl_core_message_at(core, n)->next)
        add(core, p, n);
}

static void gather_order(struct pawl_core *core, struct piece *p, uint32_t head)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, head);
    if (!(m->flags & PAWL_MESSAGE_ORDERED))
        return;
    const struct pawl_ready *rest = &pawl_core_order_at(core, pawl_core_order_find(core, m))->rest;
    uint32_t n = pawl_ready_walk(rest, &core->messages, 0);
    for (; n != 0 && whole(p); n = pawl_ready_walk(rest, &core->messages, n))
        add(core, p, n);
}

/* Those that stand there, and behind each the others of its key. */
static void gather_ready(struct pawl_core *core, struct piece *p, const struct pawl_ready *ready)
{
    uint32_t n = pawl_ready_walk(ready, &core->messages, 0);
    for (; n != 0 && whole(p); n = pawl_ready_walk(ready, &core->messages, n)) {
        add(core, p, n);
        gather_order(core, p, n);
    }
}

void pawl_core_purge_apply(struct pawl_core *core, struct pawl_core_queue *q, const void *ids,
                           uint32_t count, uint64_t forget)
{
    q->counters.purged += count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id;
        memcpy(&id, (const uint8_t *)ids + i * sizeof id, sizeof id);
        uint32_t n = pawl_table_find(&core->messages_by_id, id);
        struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
        if (!m || pawl_core_terminal(m->state))
            continue;
        uint32_t uid = m->lease ? pawl_core_lease_at(core, m->lease)->uid : 0;
        pawl_core_message_end(core, n, PAWL_STATE_PURGED, forget, 0, uid);
    }
}

static void append(struct pawl_core *core, struct pawl_core_purge *job, const struct piece *p,
                   uint64_t forget)
{
    bool last = whole(p);
#ifdef PAWL_BUG_PURGE_HALF_DONE
    last = true;
#endif
    struct pawl_purge_rec r = { .queue = pawl_core_queue_at(core, job->queue)->id,
                                .forget = forget,
                                .total = job->total,
                                .id_max = last ? 0 : job->id_max };
    if (job->lane) {
        struct pawl_core_lane *lane = pawl_core_lane_at(core, job->lane);
        pawl_core_lane_log(core, lane);
        pawl_core_lane_op(core, lane, job->seq, &r.op);
    }
    r.op.extra = p->count;
    uint32_t ids_bytes = p->count * (uint32_t)sizeof p->ids[0];
    uint8_t *out =
        pawl_core_append(core, PAWL_RECORD_PURGE, (uint32_t)sizeof r + ids_bytes, &job->lsn);
    memcpy(out, &r, sizeof r);
    memcpy(out + sizeof r, p->ids, ids_bytes);
}

enum purge_result { PURGE_DONE, PURGE_NO_ROOM, PURGE_LATER };

/* Their time to live is over though their timers have not fired: who looked was told EXPIRED, so
 * that is what they are, and not purged. */
static enum purge_result expire(struct pawl_core *core, const struct piece *p, bool logged)
{
    for (uint32_t i = 0; i < p->expired_count; i++) {
        if (logged && !pawl_core_has_room(core, PAWL_EXPIRE_ROOM))
            return PURGE_NO_ROOM;
        (void)pawl_core_end_message(core, p->expired[i], PAWL_STATE_EXPIRED, NULL, 0);
    }
    return PURGE_LATER;
}

/* LATER: there may be more. */
static enum purge_result purge_piece(struct pawl_core *core, struct pawl_core_purge *job)
{
    struct pawl_core_queue *q = pawl_core_queue_at(core, job->queue);
    struct piece p = { .id_max = job->id_max };
    bool logged = pawl_core_queue_logged(q);
    if (logged && !pawl_core_has_room(core, PAWL_FIRST_RECORDS + sizeof(struct pawl_purge_rec) +
                                                sizeof p.ids + PAWL_RECORD_HEAD))
        return PURGE_NO_ROOM;
    gather_list(core, &p, &q->leased);
    gather_list(core, &p, &q->scheduled);
    gather_list(core, &p, &q->dead);
    for (uint32_t i = 0; i < PAWL_PRIORITIES; i++)
        gather_ready(core, &p, &q->ready[i]);
    gather_ready(core, &p, &q->blocked);
    if (p.expired_count)
        return expire(core, &p, logged);
    job->total += p.count;
    if (job->total == 0)
        return PURGE_DONE;
    uint64_t forget = pawl_add_sat(core->now.time, q->retention_ns);
    if (logged)
        append(core, job, &p, forget);
    pawl_core_purge_apply(core, q, p.ids, p.count, forget);
    /* The record has ids alone: the tombstones still need those that made the messages, and keep
     * their homes. */
    return whole(&p) ? PURGE_DONE : PURGE_LATER;
}

/* It goes on later: a copy of the window must not lose how far it has got. */
static enum purge_result pause_job(struct pawl_core *core, const struct pawl_core_purge *job,
                                   enum purge_result why)
{
    if (job->lane == 0)
        return why;
    struct pawl_core_lane *lane = pawl_core_lane_at(core, job->lane);
    struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, job->seq);
    *e = (struct pawl_window_entry){ .seq = job->seq, .state = PAWL_WINDOW_PENDING };
    if (job->total > 0 && pawl_core_queue_logged(pawl_core_queue_at(core, job->queue))) {
        e->value = job->total;
        e->lsn = job->id_max;
        e->flags = PAWL_WINDOW_HALF;
    }
    return why;
}

/* As far as one turn goes; done: it is answered. */
static enum purge_result purge_run(struct pawl_core *core, struct pawl_core_purge *job)
{
    struct pawl_core_queue *q = pawl_core_queue_at(core, job->queue);
    int result = q->gone ? PAWL_E_QUEUE_GONE : PAWL_OK;
    for (uint32_t i = 0; result == PAWL_OK; i++) {
        enum purge_result r = i < PIECES_A_TURN ? purge_piece(core, job) : PURGE_LATER;
        if (r == PURGE_DONE)
            break;
        if (r == PURGE_NO_ROOM || i == PIECES_A_TURN)
            return pause_job(core, job, r);
    }
    q->purging--;
    uint64_t total = result == PAWL_OK ? job->total : 0;
    bool away = job->away;
#ifdef PAWL_BUG_ANSWER_UNASKED
    away = false;
#endif
    if (job->lane && away)
        pawl_core_lane_remember(core, pawl_core_lane_at(core, job->lane), job->seq, result, total,
                                job->lsn, 0);
    else if (job->lane)
        pawl_core_lane_answer(core, pawl_core_lane_at(core, job->lane), job->seq, result, total,
                              job->lsn, pawl_core_queue_wait(core, q), 0);
    pawl_core_queue_wake(core, q);
    return PURGE_DONE;
}

void pawl_core_purge_begin(struct pawl_take *t, struct pawl_core_queue *q)
{
    struct pawl_core *core = t->core;
    struct pawl_core_purge job = {
        .seq = t->seq,
        .id_max = core->options.epoch << PAWL_EPOCH_SHIFT | core->next_id,
        .lane = t->lane->number,
        .queue = q->number,
    };
    const struct pawl_window_entry *e = pawl_core_lane_entry(core, t->lane, t->seq);
    if (e->seq == t->seq && e->state == PAWL_WINDOW_NONE && (e->flags & PAWL_WINDOW_HALF)) {
        job.total = e->value;
        job.id_max = e->lsn;
    }
    pawl_core_memory_open(core);
    uint32_t n = pawl_pool_take(&core->purges);
    pawl_core_memory_close(core);
    if (n == 0) {
        pawl_core_take_answer(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY, pawl_core_appended(core));
        return;
    }
    q->purging++;
    enum purge_result r = purge_run(core, &job);
    if (r == PURGE_DONE) {
        pawl_pool_give(&core->purges, n);
        return;
    }
    if (r == PURGE_LATER)
        pawl_core_again(core);
    *(struct pawl_core_purge *)pawl_pool_at(&core->purges, n) = job;
    if (core->purges_last)
        ((struct pawl_core_purge *)pawl_pool_at(&core->purges, core->purges_last))->next = n;
    else
        core->purges_first = n;
    core->purges_last = n;
}

bool pawl_core_purge_pump(struct pawl_core *core)
{
    while (core->purges_first) {
        uint32_t n = core->purges_first;
        struct pawl_core_purge *job = pawl_pool_at(&core->purges, n);
        enum purge_result r = purge_run(core, job);
        if (r == PURGE_LATER)
            pawl_core_again(core);
        if (r != PURGE_DONE)
            return r == PURGE_NO_ROOM;
        core->purges_first = job->next;
        if (core->purges_first == 0)
            core->purges_last = 0;
        pawl_pool_give(&core->purges, n);
    }
    return false;
}

void pawl_core_purge_away(struct pawl_core *core, uint32_t lane)
{
    for (uint32_t n = core->purges_first; n != 0;) {
        struct pawl_core_purge *job = pawl_pool_at(&core->purges, n);
        job->away = job->away || job->lane == lane;
        n = job->next;
    }
}

void pawl_core_purge_asked(struct pawl_core *core, const struct pawl_core_lane *lane, uint64_t seq)
{
    for (uint32_t n = core->purges_first; n != 0;) {
        struct pawl_core_purge *job = pawl_pool_at(&core->purges, n);
        if (job->lane == lane->number && job->seq == seq)
            job->away = false;
        n = job->next;
    }
}

/* --- drop ------------------------------------------------------------------------------------ */

static void queue_free(struct pawl_core *core, struct pawl_core_queue *q)
{
    pawl_core_queue_name_remove(core, q);
    pawl_timer_destroy(&core->wheel, q->timer);
    pawl_core_home_set(core, PAWL_KIND_QUEUE, q->number, 0);
    if (q->known)
        core->live -= PAWL_QUEUE_LIVE;
    uint32_t n = q->number;
    pawl_table_remove(&core->queues_by_id, q->id, n);
    q->number = 0;
    pawl_pool_give(&core->queues, n);
}

/* A gone queue ends when nothing names it any more. */
static void free_if_done(struct pawl_core *core, struct pawl_core_queue *q)
{
    if (q->gone && !q->sweeping && q->done.count == 0)
        queue_free(core, q);
}

static uint32_t next_to_sweep(struct pawl_core *core, struct pawl_core_queue *q)
{
    if (q->leased.first)
        return q->leased.first;
    if (q->scheduled.first)
        return q->scheduled.first;
    if (q->dead.first)
        return q->dead.first;
    if (q->levels == 0)
        return 0;
    return pawl_ready_first(&q->ready[__builtin_ctz(q->levels)], &core->messages);
}

void pawl_core_sweep_message(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    /* A token is to be judged by it, or a delivery on its way needs it. */
    if (m->state == PAWL_STATE_LEASED || (m->flags & PAWL_MESSAGE_PINS))
        pawl_core_message_end(core, n, PAWL_STATE_PURGED,
                              pawl_add_sat(q->gone_time, q->retention_ns), 0,
                              m->lease ? pawl_core_lease_at(core, m->lease)->uid : 0);
    else
        pawl_core_message_forget(core, n);
}

static uint32_t sweep_queue(struct pawl_core *core, struct pawl_core_queue *q, uint32_t budget)
{
    uint32_t n;
    while (budget > 0 && (n = next_to_sweep(core, q)) != 0) {
        budget--;
        pawl_core_sweep_message(core, q, n);
    }
    bool empty = pawl_core_state_sweep(core, q, &budget);
    if (empty && budget > 0 && !q->active && q->purging == 0 && q->dedup_keys == 0) {
        q->sweeping = false;
        core->sweeping--;
        free_if_done(core, q);
    }
    return budget;
}

bool pawl_core_sweep(struct pawl_core *core, uint32_t budget)
{
    bool keys = false;
    for (uint32_t n = 1; n < core->queues.never_used && core->sweeping > 0 && budget > 0; n++) {
        struct pawl_core_queue *q = pawl_core_queue_at(core, n);
        if (q->number != n || !q->sweeping)
            continue;
        budget = sweep_queue(core, q, budget);
        keys = keys || (q->number == n && q->dedup_keys > 0);
    }
    /* Entries are looked at one beside the other, much faster than messages are freed. */
    if (keys)
        (void)pawl_core_ledger_sweep(core, 16 * budget);
    return core->sweeping > 0;
}

/* --- tombstones ------------------------------------------------------------------------------ */

bool pawl_core_forget_oldest(struct pawl_core *core, struct pawl_core_queue *q)
{
    if (q->done.first == 0 || pawl_core_message_at(core, q->done.first)->flags & PAWL_MESSAGE_PINS)
        return false;
    pawl_core_message_forget(core, q->done.first);
    /* The next one is as cold, and its turn comes with the next message that ends. */
    const char *next = (const char *)pawl_core_message_at(core, q->done.first);
    __builtin_prefetch(next);
    __builtin_prefetch(next + 64);
    return true;
}

void pawl_core_queue_done_timer(struct pawl_core *core, struct pawl_core_queue *q)
{
    while ((q->done.count > PAWL_TOMBSTONES_MAX || core->tombstones > core->tombstones_max ||
            core->result_bytes > core->tombstones_max * sizeof(struct pawl_core_message)) &&
           pawl_core_forget_oldest(core, q))
        ;
    if (!core->started || q->done.first == 0 || pawl_timer_armed(&core->wheel, q->timer))
        return;
    const struct pawl_core_message *m = pawl_core_message_at(core, q->done.first);
    uint64_t again = m->flags & PAWL_MESSAGE_PINS ? core->now.time + PINNED_LOOK_NS : 0;
    pawl_timer_arm(&core->wheel, q->timer, pawl_max_u64(m->sent_wall, again));
}

void pawl_core_queue_timer(struct pawl_core *core, uint32_t number)
{
    struct pawl_core_queue *q = pawl_core_queue_at(core, number);
    for (uint32_t i = 0; i < FORGET_A_TURN && q->done.first; i++) {
        if (pawl_core_message_at(core, q->done.first)->sent_wall > core->now.time ||
            !pawl_core_forget_oldest(core, q))
            break;
    }
    pawl_core_queue_done_timer(core, q);
    free_if_done(core, q);
}

void pawl_core_queue_drop_placeholder(struct pawl_core *core, struct pawl_core_queue *q)
{
    while (q->done.first)
        pawl_core_message_forget(core, q->done.first);
    queue_free(core, q);
}
