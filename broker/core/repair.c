/* SPDX-License-Identifier: MIT */
/* By id or dedup key, without a token: ACK_ID and CANCEL of what nobody holds, RESTORE of the dead.
 */
#include "core/core_inner.h"

/* The message that was sent with the key; 0: no such key, or none that is remembered. */
static uint64_t id_of_key(const struct pawl_core_repair *r)
{
    const struct pawl_core *core = r->take->core;
    uint8_t key[PAWL_KEY_BYTES_MAX];
    uint32_t bytes = (uint32_t)r->cmd.offset;
    uint64_t id, id_high;
    memcpy(key, r->take->variable, bytes);
    pawl_core_key_name(core, r->queue->id, key, bytes, &id, &id_high);
    uint32_t n = pawl_core_ledger_find(core, PAWL_LEDGER_KEY, id, id_high);
    const struct pawl_ledger_entry *e = n ? pawl_ledger_at(&core->ledger, n) : NULL;
    return e && pawl_core_key_valid(core, e) ? e->a : 0;
}

static int find(struct pawl_core_repair *r, uint32_t right)
{
    const struct pawl_core *core = r->take->core;
    int result;
    r->queue = pawl_core_queue_for(r->take, r->cmd.queue, right, &result);
    if (!r->queue)
        return result;
    if (r->cmd.flags & PAWL_BY_KEY)
        r->cmd.id = id_of_key(r);
    uint64_t id = r->cmd.id;
    r->n = id ? pawl_table_find(&core->messages_by_id, id) : 0;
    if (r->n == 0)
        return pawl_core_id_given(core, id) ? PAWL_E_FORGOTTEN : PAWL_E_NOT_FOUND;
    return pawl_core_message_at(core, r->n)->queue == r->queue->number ? PAWL_OK : PAWL_E_NOT_FOUND;
}

static int end_allowed(struct pawl_core_repair *r)
{
    const struct pawl_core *core = r->take->core;
    const struct pawl_core_message *m = pawl_core_message_at(core, r->n);
    if (pawl_core_message_expired(core, m)) {
        r->value = PAWL_STATE_EXPIRED;
        return PAWL_E_STATE;
    }
    bool held = pawl_core_lease_current(core, m);
    if (m->state == PAWL_STATE_READY || m->state == PAWL_STATE_SCHEDULED ||
        (m->state == PAWL_STATE_LEASED && !held))
        return PAWL_OK;
    r->value = m->state;
    if (m->state == PAWL_STATE_ACKED && r->take->type == PAWL_CMD_ACK_ID) {
        r->value = pawl_core_acked_value(m);
        return PAWL_E_ALREADY_ACKED;
    }
    return PAWL_E_STATE;
}

/* As if it had just been sent, to its old place: what was counted of its attempts is gone, the last
 * reason that a receiver gave stays with its lease. */
void pawl_core_restore_apply(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
    if (!m || m->state != PAWL_STATE_DEAD)
        return;
    uint64_t before = pawl_core_message_live_bytes(core, m);
#ifndef PAWL_BUG_RESTORE_KEEPS_COUNTERS
    m->acquired = m->expired = m->nacked = 0;
    m->crashed = m->deferred = 0;
#endif
    m->dead_reason = PAWL_DEAD_NONE;
    pawl_core_message_move(core, n, PAWL_STATE_READY);
    core->live += pawl_core_message_live_bytes(core, m) - before;
}

static uint64_t restore(const struct pawl_core_repair *r, const struct pawl_op_rec *op)
{
    struct pawl_core *core = r->take->core;
    const struct pawl_restore_rec rec = {
        .op = *op,
        .queue = r->queue->id,
        .message = r->cmd.id,
    };
    uint64_t lsn = 0;
    if (pawl_core_queue_logged(r->queue))
        memcpy(pawl_core_append(core, PAWL_RECORD_RESTORE, sizeof rec, &lsn), &rec, sizeof rec);
    pawl_core_restore_apply(core, r->n);
    return lsn;
}

/* A restored message may have a TTL, and needs a timer then. */
static bool memory_for(struct pawl_core *core)
{
    pawl_core_memory_open(core);
    bool ready = pawl_core_timers_ready(core, 1);
    pawl_core_memory_close(core);
    return ready;
}

int pawl_core_repair_check(struct pawl_take *t, struct pawl_core_repair *r)
{
    *r = (struct pawl_core_repair){ .take = t };
    memcpy(&r->cmd, t->fixed, sizeof r->cmd);
    int result = find(r, t->type == PAWL_CMD_CANCEL ? PAWL_RIGHT_SEND : PAWL_RIGHT_RECEIVE);
    if (result == PAWL_OK && t->type == PAWL_CMD_RESTORE) {
        r->value = pawl_core_message_at(t->core, r->n)->state;
        result = r->value == PAWL_STATE_DEAD ? PAWL_OK : PAWL_E_STATE;
        if (result == PAWL_OK && !memory_for(t->core)) {
            r->value = PAWL_LIMIT_MEMORY;
            result = PAWL_E_FULL;
        }
    } else if (result == PAWL_OK) {
        result = end_allowed(r);
    }
    bool missing =
        result == PAWL_E_STATE || result == PAWL_E_NOT_FOUND || result == PAWL_E_FORGOTTEN;
    if (t->type == PAWL_CMD_ACK_ID && missing && (r->cmd.flags & PAWL_ACK_IGNORE_MISSING)) {
        result = PAWL_OK_MISSING;
        r->value = 0;
    }
    return result;
}

uint32_t pawl_core_repair_bytes(const struct pawl_core_repair *r)
{
    if (!pawl_core_queue_logged(r->queue))
        return 0;
    return r->take->type == PAWL_CMD_RESTORE ? sizeof(struct pawl_restore_rec)
                                             : sizeof(struct pawl_end_rec);
}

uint64_t pawl_core_repair_commit(struct pawl_core_repair *r)
{
    struct pawl_take *t = r->take;
    struct pawl_core *core = t->core;
    struct pawl_op_rec op;
    if (pawl_core_queue_logged(r->queue))
        pawl_core_lane_log(core, t->lane);
    pawl_core_lane_op(core, t->lane, t->seq, &op);
    if (t->type == PAWL_CMD_RESTORE)
        return restore(r, &op);
    op.extra = t->session->peer.pid;
    if (t->type == PAWL_CMD_CANCEL)
        return pawl_core_end_message(core, r->n, PAWL_STATE_CANCELLED, &op, 0);
    core->acks++;
    return pawl_core_end_message(core, r->n, PAWL_STATE_ACKED, &op, 0);
}

void pawl_core_repair_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_core_repair r;
    if (pawl_core_direct_restore(t))
        return;
    int result = pawl_core_repair_check(t, &r);
    uint64_t value = result == PAWL_OK ? 0 : r.value;
    uint64_t lsn = result == PAWL_OK ? pawl_core_repair_commit(&r) : 0;
    if (result == PAWL_E_ALREADY_ACKED)
        lsn = pawl_core_acked_session(pawl_core_message_at(core, r.n));
    uint64_t wait = r.queue ? pawl_core_queue_wait(core, r.queue) : pawl_core_appended(core);
    pawl_core_lane_answer(core, t->lane, t->seq, result, value, lsn, wait, 0);
}
