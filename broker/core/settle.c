/* SPDX-License-Identifier: MIT */
/* By token: ACK, NACK, RELEASE, REJECT, DEFER, RENEW. And the one END of a message.
 *
 * What a token meets, and what it is told (semantics 3):
 *
 *   message not here: its id was given once      E_FORGOTTEN      else E_NOT_FOUND
 *   queue dropped                                E_QUEUE_GONE
 *   grant newer than any, wrong random,
 *     another uid's                              E_NOT_FOUND
 *   ACKED                                        E_ALREADY_ACKED, pid that did, time
 *   EXPIRED, CANCELLED, PURGED, DEAD             E_STATE, the state
 *   an older grant, the message leased           E_LEASE_LOST, pid of the holder
 *   an older grant, the message not leased       E_LEASE_LOST, 0
 *   the newest grant, its lease over, nobody has had it since
 *                                                E_LEASE_LOST, 0; an ACK with IF_UNCLAIMED is taken
 *   the newest grant, its lease in force         done
 */
#include "core/core_inner.h"
#include "core/hot.h"

/* --- end ------------------------------------------------------------------------------------- */

void pawl_core_ended_by(struct pawl_core_message *m, const struct pawl_op_rec *op)
{
    pawl_hot_ended_by(m, op->session, op->lane, op->seq, op->extra);
}

bool pawl_core_ended_op(const struct pawl_core_message *m, struct pawl_op_rec *out)
{
    if (!(m->flags & PAWL_MESSAGE_BY))
        return false;
    *out = (struct pawl_op_rec){
        .session = (uint64_t)(m->body_bytes & 0xffffff) << 32 | m->payload,
        .lane = (uint16_t)(m->body_bytes >> 24),
        .seq = (uint64_t)(m->lease >> PAWL_PID_BITS) << 32 | (uint32_t)m->ordering_key_bytes << 24 |
               (uint32_t)m->key_bytes << 16 | m->headers_bytes,
        .extra = m->lease & PAWL_PID_MASK,
    };
    return true;
}

uint64_t pawl_core_acked_session(const struct pawl_core_message *m)
{
    struct pawl_op_rec op;
    return m->state == PAWL_STATE_ACKED && pawl_core_ended_op(m, &op) ? op.session : 0;
}

void pawl_core_end_apply(struct pawl_core *core, const struct pawl_end_rec *r, uint32_t result,
                         struct pawl_core_queue *q, uint32_t n, uint64_t lsn)
{
    if (!(r->flags & PAWL_RECORD_COPY)) {
        switch (r->state) {
        case PAWL_STATE_ACKED:
            q->counters.acked++;
            break;
        case PAWL_STATE_EXPIRED:
            q->counters.expired++;
            break;
        case PAWL_STATE_CANCELLED:
            q->counters.cancelled++;
            break;
        default:
            q->counters.purged++;
            break;
        }
        if (r->flags & PAWL_RECORD_AMO)
            q->counters.delivered++;
    }
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    if (pawl_core_terminal(m->state)) {
        /* The same fact again, from copy-forward. */
        if (m->flags & PAWL_MESSAGE_BY)
            m->payload = m->flags = 0;
        m->state = r->state;
        m->sent_wall = r->forget;
        m->lease = r->op.extra;
        m->timer = r->uid;
        pawl_core_result_drop(core, m);
    } else {
        pawl_core_message_end(core, n, r->state, r->forget, r->op.extra, r->uid);
    }
    m->grant = r->grant;
    m->acquired = r->acquired;
    m->expired = r->expired;
    m->nacked = r->nacked;
    m->crashed = r->crashed;
    m->deferred = r->deferred;
    m->priority = r->priority;
    m->dead_reason = r->dead_reason;
    /* The END says all that a tombstone needs; above a million the oldest goes at once. */
    if (m->state != r->state) {
        pawl_core_result_give(core, result);
        return;
    }
    m->place = r->wall;
    if (!(r->flags & PAWL_RECORD_AMO))
        pawl_core_ended_by(m, &r->op);
    if (result)
        pawl_core_result_keep(core, m, result);
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, lsn);
    if (result)
        pawl_core_queue_done_timer(core, q); /* it may be one too many */
}

void pawl_core_end_fact(const struct pawl_core *core, const struct pawl_core_message *m,
                        struct pawl_end_rec *out)
{
    *out = (struct pawl_end_rec){
        .queue = pawl_core_queue_at(core, m->queue)->id,
        .message = m->id,
        .grant = m->grant,
        .acquired = m->acquired,
        .expired = m->expired,
        .nacked = m->nacked,
        .crashed = m->crashed,
        .deferred = m->deferred,
        .state = m->state,
        .priority = m->priority,
        .dead_reason = m->dead_reason,
        .wall = pawl_core_terminal(m->state) ? m->place : core->now.wall,
    };
}

/* Field by field: it was written a moment ago, and a wider load would wait for those stores. */
static inline void copy_operation(const struct pawl_op_rec *op, struct pawl_op_rec *out)
{
#define APART() __asm__ __volatile__("" ::: "memory")
    out->session = op->session;
    APART();
    out->seq = op->seq;
    APART();
    out->lane = op->lane;
    APART();
    out->open = op->open;
    APART();
    out->extra = op->extra;
#undef APART
}

uint64_t pawl_core_end_message(struct pawl_core *core, uint32_t n, uint8_t state,
                               const struct pawl_op_rec *op, uint8_t flags)
{
    return pawl_core_end_with(core, n, state, op, flags, 0);
}

uint64_t pawl_core_end_with(struct pawl_core *core, uint32_t n, uint8_t state,
                            const struct pawl_op_rec *op, uint8_t flags, uint32_t result)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    struct pawl_end_rec unlogged, *r = &unlogged;
    uint64_t lsn = 0;
    if (pawl_core_queue_logged(q)) { /* made where it belongs; nothing else is appended meanwhile */
        const uint8_t *bytes = NULL;
        uint32_t count = pawl_core_result_of(core, result, &bytes);
        r = pawl_core_append(core, PAWL_RECORD_END, (uint32_t)sizeof *r + count, &lsn);
        if (count)
            memcpy(r + 1, bytes, count);
    }
    pawl_core_end_fact(core, m, r);
    if (op)
        copy_operation(op, &r->op);
    r->state = state;
    r->flags = flags;
    r->forget = pawl_add_sat(core->now.time, q->retention_ns);
    if (m->lease)
        r->uid = pawl_core_lease_at(core, m->lease)->uid;
    pawl_core_end_apply(core, r, result, q, n, lsn);
    return lsn;
}

/* --- judging a token ------------------------------------------------------------------------- */

/* The token is of this message's newest grant, and its holder's uid asks. */
static bool token_fits(const struct pawl_core_settle *s)
{
    const struct pawl_core *core = s->take->core;
    const struct pawl_core_message *m = s->message;
    uint32_t uid = s->take->session->peer.uid;
    if (pawl_core_terminal(m->state))
        return m->timer == uid; /* the random is gone with the lease */
    if (m->lease == 0)
        return false;
    const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
#ifdef PAWL_BUG_ACK_WITHOUT_TOKEN
    return l->uid == uid;
#else
    return l->uid == uid && l->random == s->cmd->random;
#endif
}

static int judge(struct pawl_core_settle *s)
{
    const struct pawl_core *core = s->take->core;
    const struct pawl_core_peer *peer = &s->take->session->peer;
    uint64_t id = s->cmd->message;
    s->n = id ? pawl_table_find(&core->messages_by_id, id) : 0;
    if (s->n == 0)
        return pawl_core_id_given(core, id) ? PAWL_E_FORGOTTEN : PAWL_E_NOT_FOUND;
    struct pawl_core_message *m = s->message = pawl_core_message_at(core, s->n);
    s->queue = pawl_core_queue_at(core, m->queue);
    /* Of an older grant nothing is kept to compare: then the queue's right decides who may know. */
    bool newest = s->cmd->grant == m->grant;
    bool may_know = newest ? token_fits(s)
                           : s->cmd->grant < m->grant && s->cmd->grant != 0 &&
                                 pawl_core_queue_allows(core, s->queue, peer->uid, peer->gid,
                                                        PAWL_RIGHT_RECEIVE);
    if (!may_know || m->grant == 0)
        return PAWL_E_NOT_FOUND;
    if (s->queue->gone)
        return PAWL_E_QUEUE_GONE;
    if (m->state == PAWL_STATE_ACKED) {
        s->value = pawl_core_acked_value(m);
        s->acked_by = pawl_core_acked_session(m);
        return PAWL_E_ALREADY_ACKED;
    }
    if (pawl_core_message_expired(core, m)) {
        s->value = PAWL_STATE_EXPIRED;
        return PAWL_E_STATE;
    }
    if (pawl_core_terminal(m->state) || m->state == PAWL_STATE_DEAD) {
        s->value = m->state;
        return PAWL_E_STATE;
    }
    bool current = pawl_core_lease_current(core, m);
    if (newest && current)
        return PAWL_OK;
    if (current)
        s->value = pawl_core_lease_at(core, m->lease)->pid;
    return PAWL_E_LEASE_LOST;
}

/* --- commands -------------------------------------------------------------------------------- */

static void operation(const struct pawl_core_settle *s, struct pawl_op_rec *op)
{
    pawl_core_lane_op(s->take->core, s->take->lane, s->take->seq, op);
    op->extra = s->take->session->peer.pid;
    if (pawl_core_queue_logged(s->queue))
        pawl_core_lane_log(s->take->core, s->take->lane);
}

void pawl_core_renew_apply(struct pawl_core *core, const struct pawl_renew_rec *r, uint32_t n)
{
    const struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
    if (!m || m->state != PAWL_STATE_LEASED || m->grant != r->grant)
        return;
    struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    l->lease_ns = r->lease_ns;
    if (l->kind != PAWL_LEASE_HELD)
        l->deadline = pawl_add_sat(core->now.time, r->lease_ns);
    pawl_core_message_timer(core, n);
}

static uint64_t renewal(const struct pawl_core_settle *s)
{
    return s->cmd->time_ns ? s->cmd->time_ns : s->queue->lease_ns;
}

static int renew_allowed(const struct pawl_core_settle *s)
{
    const struct pawl_core *core = s->take->core;
    const struct pawl_core_lease *l = pawl_core_lease_at(core, s->message->lease);
    uint64_t lease_ns = renewal(s);
    if (lease_ns < PAWL_LEASE_NS_MIN || lease_ns > PAWL_LEASE_NS_MAX)
        return PAWL_E_INVALID;
    return pawl_add_sat(core->now.time, lease_ns) > l->hold_end ? PAWL_E_HOLD_CAP : PAWL_OK;
}

static uint64_t renew(const struct pawl_core_settle *s)
{
    struct pawl_core *core = s->take->core;
    struct pawl_renew_rec r = {
        .queue = s->queue->id,
        .message = s->message->id,
        .lease_ns = renewal(s),
        .grant = s->message->grant,
    };
    operation(s, &r.op);
    uint64_t lsn = 0;
    if (pawl_core_queue_logged(s->queue))
        memcpy(pawl_core_append(core, PAWL_RECORD_RENEW, sizeof r, &lsn), &r, sizeof r);
    pawl_core_renew_apply(core, &r, s->n);
    return lsn;
}

/* The one copy of a blob, out of memory that the client may be changing. What a worker leaves is
 * no part of what must go on: it has no share in the reserves of memory and log. */
static int take_blob(struct pawl_core_settle *s)
{
    struct pawl_core *core = s->take->core;
    uint32_t bytes = s->cmd->text_bytes;
    if (bytes == 0)
        return PAWL_OK;
    s->value = pawl_core_queue_logged(s->queue) ? core->refuse : 0;
#ifdef PAWL_BUG_RESULT_IN_THE_RESERVE
    s->value = 0;
#endif
    if (s->value)
        return PAWL_E_FULL;
    if (s->take->type == PAWL_CMD_ACK) {
        s->blob = pawl_core_result_block(core, s->take->variable, bytes);
    } else {
        s->blob = pawl_payload_take(&core->payload, bytes);
        if (s->blob)
            memcpy(pawl_payload_at(&core->payload, s->blob), s->take->variable, bytes);
    }
    if (s->blob == 0) {
        s->value = PAWL_LIMIT_MEMORY;
        return PAWL_E_FULL;
    }
    s->blob_bytes = bytes;
    return PAWL_OK;
}

void pawl_core_settle_undo(struct pawl_core_settle *s)
{
    if (s->blob && s->take->type == PAWL_CMD_ACK)
        pawl_core_result_give(s->take->core, s->blob);
    else if (s->blob)
        pawl_payload_give(&s->take->core->payload, s->blob, s->blob_bytes);
    s->blob = s->blob_bytes = 0;
}

static uint64_t defer(const struct pawl_core_settle *s)
{
    struct pawl_op_rec op;
    operation(s, &op);
    return pawl_core_lease_defer(s->take->core, s->n, &op, s->cmd->time_ns,
                                 s->cmd->flags & PAWL_DEFER_FREE_KEY, s->blob, s->blob_bytes);
}

static uint64_t back(const struct pawl_core_settle *s, enum pawl_back_cause cause)
{
    struct pawl_op_rec op;
    operation(s, &op);
    return pawl_core_lease_back(s->take->core, s->n, cause, &op, s->cmd->time_ns, s->reason,
                                s->reason_bytes);
}

/* --- check, commit --------------------------------------------------------------------------- */

/* ACK only: an OK of a lease that is over, or of what is not there. */
static int ack_allowed(struct pawl_core_settle *s, int result)
{
    bool missing =
        result == PAWL_E_STATE || result == PAWL_E_NOT_FOUND || result == PAWL_E_FORGOTTEN;
    if (missing && (s->cmd->flags & PAWL_ACK_IGNORE_MISSING)) {
        s->value = 0;
        return PAWL_OK_MISSING;
    }
    if (result == PAWL_E_LEASE_LOST && (s->cmd->flags & PAWL_ACK_IF_UNCLAIMED) &&
        s->cmd->grant == s->message->grant && s->message->lease != 0) {
        s->value = 0;
        return PAWL_OK;
    }
    return result;
}

int pawl_core_settle_check(struct pawl_take *t, struct pawl_core_settle *s)
{
    s->take = t; /* not all at once: the reason need not be cleared for each ack */
    s->cmd = t->fixed;
    s->message = NULL;
    s->queue = NULL;
    s->value = s->acked_by = 0;
    s->reason_bytes = s->blob = s->blob_bytes = 0;
    bool ladder = t->type == PAWL_CMD_NACK && s->cmd->time_ns == PAWL_DELAY_LADDER;
    bool delays = t->type == PAWL_CMD_NACK || t->type == PAWL_CMD_DEFER;
    if (delays && !ladder && s->cmd->time_ns > PAWL_DELAY_NS_MAX)
        return PAWL_E_INVALID;
    if (t->type == PAWL_CMD_DEFER && (s->cmd->flags & ~PAWL_DEFER_FREE_KEY))
        return PAWL_E_INVALID;
    int result = judge(s);
    if (t->type == PAWL_CMD_ACK) {
        result = ack_allowed(s, result);
        return result == PAWL_OK ? take_blob(s) : result;
    }
    if (result == PAWL_OK && t->type == PAWL_CMD_RENEW)
        return renew_allowed(s);
    if (result == PAWL_OK && t->type == PAWL_CMD_DEFER)
        return take_blob(s);
    if (result == PAWL_OK && (t->type == PAWL_CMD_NACK || t->type == PAWL_CMD_REJECT)) {
        s->reason_bytes = s->cmd->text_bytes;
        if (s->reason_bytes)
            memcpy(s->reason, t->variable, s->reason_bytes);
    }
    return result;
}

uint32_t pawl_core_settle_bytes(const struct pawl_core_settle *s)
{
    if (!pawl_core_queue_logged(s->queue))
        return 0;
    if (s->take->type == PAWL_CMD_ACK)
        return (uint32_t)sizeof(struct pawl_end_rec) + s->blob_bytes;
    if (s->take->type == PAWL_CMD_RENEW)
        return sizeof(struct pawl_renew_rec);
    return (uint32_t)sizeof(struct pawl_back_rec) + s->reason_bytes + s->blob_bytes;
}

uint64_t pawl_core_settle_commit(struct pawl_core_settle *s)
{
    struct pawl_op_rec op;
    switch (s->take->type) {
    case PAWL_CMD_ACK:
        operation(s, &op);
        s->take->core->acks++;
        return pawl_core_end_with(s->take->core, s->n, PAWL_STATE_ACKED, &op, 0, s->blob);
    case PAWL_CMD_NACK:
        return back(s, PAWL_BACK_NACK);
    case PAWL_CMD_RELEASE:
        return back(s, PAWL_BACK_RELEASED);
    case PAWL_CMD_REJECT:
        return back(s, PAWL_BACK_REJECTED);
    case PAWL_CMD_DEFER:
        return defer(s);
    default:
        return renew(s);
    }
}

void pawl_core_settle_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    if (t->type == PAWL_CMD_ACK && pawl_core_ack_simple(t))
        return;
    struct pawl_core_settle s;
    int result = pawl_core_settle_check(t, &s);
    uint64_t lsn = result == PAWL_OK ? pawl_core_settle_commit(&s) : s.acked_by;
    uint64_t wait = s.queue ? pawl_core_queue_wait(core, s.queue) : pawl_core_appended(core);
    pawl_core_lane_answer(core, t->lane, t->seq, result, s.value, lsn, wait, 0);
}
