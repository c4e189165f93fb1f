/* SPDX-License-Identifier: MIT */
/* The acknowledgement that nearly all are: by token, of a delivery that was published, while its
 * lease is in force, of a message without TTL, order, progress or result.
 *
 * It ends as in settle.c and message.c, with the same record and the same state after it, but in
 * one go: nothing is asked twice, and of a memory queue no record is made only to be applied.
 * Whatever is not of that kind, also every refusal, is left to settle.c before anything was
 * touched. That recovery comes to the same by the general way is what the simulator compares. */
#include "core/core_inner.h"
#include "core/hot.h"

struct ack {
    struct pawl_core *core;
    struct pawl_take *take;
    struct pawl_core_message *message;
    struct pawl_core_lease *lease;
    struct pawl_core_queue *queue;
    uint32_t n;
    uint64_t forget;
};

/* False: for settle.c. */
static inline bool simple(struct ack *a)
{
    struct pawl_core *core = a->core;
    const struct pawl_cmd_settle *c = a->take->fixed;
    if (c->text_bytes || core->group.wanted || core->watches.used || c->message == 0)
        return false;
    a->n = pawl_table_find(&core->messages_by_id, c->message);
    if (a->n == 0)
        return false;
    struct pawl_core_message *m = a->message = pawl_core_message_at(core, a->n);
    /* The flags: no TTL, no order, no delivery on its way. */
    if (m->state != PAWL_STATE_LEASED || m->grant != c->grant || m->flags || m->timer ||
        m->lease == 0)
        return false;
    const struct pawl_core_lease *l = a->lease = pawl_core_lease_at(core, m->lease);
    a->queue = pawl_core_queue_at(core, m->queue);
#ifdef PAWL_BUG_SIMPLE_ACK_ANY_TOKEN
    if (l->random != c->random)
        return !a->queue->gone;
#endif
    return l->random == c->random && l->uid == a->take->session->peer.uid && !l->reason &&
           !l->progress && !a->queue->gone && pawl_hot_lease_current(core, m);
}

/* Made where it belongs; nothing else is appended meanwhile. */
static inline uint64_t record(const struct ack *a)
{
    struct pawl_core *core = a->core;
    const struct pawl_take *t = a->take;
    const struct pawl_core_message *m = a->message;
    uint64_t lsn, open = t->seq > t->lane->oldest ? t->seq - t->lane->oldest : 0;
    pawl_core_lane_log(core, t->lane);
    struct pawl_end_rec *r = pawl_core_append(core, PAWL_RECORD_END, sizeof *r, &lsn);
    r->op.session = t->session->id;
    r->op.seq = t->seq;
    r->op.lane = (uint16_t)t->lane->lane;
    r->op.open = (uint16_t)pawl_min_u64(open, UINT16_MAX);
    r->op.extra = t->session->peer.pid;
    r->queue = a->queue->id;
    r->message = m->id;
    r->forget = a->forget;
    r->grant = m->grant;
    r->uid = a->lease->uid;
    r->acquired = m->acquired;
    r->expired = m->expired;
    r->nacked = m->nacked;
    r->crashed = m->crashed;
    r->deferred = m->deferred;
    r->state = PAWL_STATE_ACKED;
    r->priority = m->priority;
    r->flags = 0;
    r->dead_reason = m->dead_reason;
    r->wall = core->now.wall;
    return lsn;
}

/* The lease ends: out of its lists, its credit back, its entry free. */
static inline void lease_ends(const struct ack *a)
{
    struct pawl_core *core = a->core;
    struct pawl_core_queue *q = a->queue;
    pawl_hot_list_remove(core, &q->leased, a->message);
    core->leases_current--;
    if (a->lease->row)
        pawl_hot_ends_leave(core, a->lease);
    if (q->waiting_first)
        pawl_core_queue_wake(core, q); /* one less in flight */
    pawl_hot_credit_back(core, a->lease);
    pawl_hot_lease_unlink(core, a->message->lease);
    a->lease->message = 0;
    pawl_pool_give(&core->leases, a->message->lease);
}

static inline void tombstone(const struct ack *a)
{
    struct pawl_core *core = a->core;
    const struct pawl_take *t = a->take;
    struct pawl_core_message *m = a->message;
    uint32_t bytes = pawl_core_message_content_bytes(m), pid = t->session->peer.pid;
    a->queue->bytes -= bytes;
    if (m->key_bytes) /* while payload and home are there */
        pawl_core_key_end(core, m, PAWL_STATE_ACKED);
    pawl_payload_give(&core->payload, m->payload, bytes + pawl_core_message_own_bytes(m));
    m->state = PAWL_STATE_ACKED;
    m->sent_wall = a->forget;
    m->place = core->now.wall;
    m->payload = m->child = 0;
    m->timer = a->lease->uid;
    m->lease = pid;
    pawl_hot_ended_by(m, t->session->id, (uint16_t)t->lane->lane, t->seq, pid);
    pawl_hot_list_push(core, &a->queue->done, a->n, m);
    core->tombstones++;
    core->messages_live--;
}

bool pawl_core_ack_simple(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct ack a = { .core = core, .take = t };
    if (!simple(&a))
        return false;
    struct pawl_core_queue *q = a.queue;
    bool logged = pawl_core_queue_logged(q);
    uint64_t lsn = 0, live = 0;
    a.forget = pawl_add_sat(core->now.time, q->retention_ns);
    if (logged) {
        lsn = record(&a);
        live = pawl_core_message_live_bytes(core, a.message);
    }
    q->counters.acked++;
    core->acks++;
    lease_ends(&a);
    tombstone(&a);
    if (logged)
        core->live += PAWL_END_ROOM - live;
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, a.n, lsn);
    pawl_core_queue_done_timer(core, q);
    pawl_core_lane_answer(core, t->lane, t->seq, PAWL_OK, 0, lsn, pawl_core_queue_wait(core, q), 0);
    return true;
}
