/* SPDX-License-Identifier: MIT */
/* Copy-forward: whatever has its home in the oldest segment is written anew, in full, and moves. */
#include "core/core_inner.h"

uint64_t pawl_core_live(const struct pawl_core *core) { return core->live; }

static bool fits(const struct pawl_core *core, uint64_t bytes, uint64_t *budget)
{
    bytes += PAWL_RECORD_HEAD;
    if (*budget == 0 || !pawl_core_has_room(core, bytes))
        return false;
    *budget -= pawl_min_u64(*budget, bytes); /* the last one may go over it */
    return true;
}

static bool copy_tombstone(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_end_rec r;
    const uint8_t *result = NULL;
    uint32_t result_bytes = pawl_core_result_of(core, m->child, &result);
#ifdef PAWL_BUG_RESULT_NOT_COPIED
    result_bytes = 0;
#endif
    if (!fits(core, sizeof r + result_bytes, budget))
        return false;
    pawl_core_end_fact(core, m, &r);
    r.flags = PAWL_RECORD_COPY;
    r.forget = m->sent_wall;
#ifndef PAWL_BUG_ENDED_BY_NOT_COPIED
    if (!pawl_core_ended_op(m, &r.op))
#endif
        r.op.extra = pawl_core_ended_pid(m);
    r.uid = m->timer;
    uint64_t lsn;
    uint8_t *out = pawl_core_append(core, PAWL_RECORD_END, (uint32_t)sizeof r + result_bytes, &lsn);
    memcpy(out, &r, sizeof r);
    if (result_bytes)
        memcpy(out + sizeof r, result, result_bytes);
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, lsn);
    return true;
}

static void lease_fact(const struct pawl_core *core, const struct pawl_core_message *m,
                       struct pawl_message_rec *r)
{
    const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    r->leased = 1;
    r->random = l->random;
    r->due = l->deadline;
    r->lease_ns = l->lease_ns;
    r->hold_end = l->hold_end;
    r->seq = l->seq;
    r->uid = l->uid;
    r->pid = l->pid;
    r->lane = l->lane;
    r->kind = l->kind;
    r->reason_bytes = l->reason_bytes;
#ifndef PAWL_BUG_PROGRESS_NOT_COPIED
    r->progress_bytes = l->progress_bytes;
#endif
    if (l->flags & PAWL_LEASE_KEY_FREE)
        r->flags |= PAWL_RECORD_KEY_FREE;
    if (m->state != PAWL_STATE_LEASED || l->session == 0)
        return;
    const struct pawl_core_session *s = pawl_core_session_at(core, l->session);
    /* One that ends is defined by its END, which may stand before this fact. */
    r->session = s->state == PAWL_SESSION_ENDING && s->end_logged ? 0 : s->id;
}

static bool copy_message(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    /* What a dropped queue still holds must not get a fact behind the drop. */
    if (q->gone && !pawl_core_terminal(m->state)) {
        pawl_core_sweep_message(core, q, n);
        return true;
    }
#ifdef PAWL_BUG_TOMBSTONE_NOT_COPIED
    if (pawl_core_terminal(m->state)) {
        pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, 0);
        return true;
    }
#endif
    if (pawl_core_terminal(m->state))
        return copy_tombstone(core, n, budget);
#ifndef PAWL_BUG_VOID_COPIED
    /* A lease of an earlier start of the machine, which had no room yet to be given back. With this
     * segment may go what tells of that start, and then nothing would say that it is void. */
    if (m->state == PAWL_STATE_LEASED && m->grant >> PAWL_EPOCH_SHIFT < core->void_below) {
        if (*budget == 0 || !pawl_core_has_room(core, pawl_core_message_live_bytes(core, m)))
            return false;
        pawl_core_lease_void(core, n);
    }
#endif
    bool keyed = m->flags & PAWL_MESSAGE_ORDERED;
#ifdef PAWL_BUG_ORDER_NOT_COPIED
    keyed = false;
#endif
    struct pawl_message_rec r = {
        .queue = pawl_core_queue_at(core, m->queue)->id,
        .id = m->id,
        .place = m->place,
        .sent_wall = m->sent_wall,
        .grant = m->grant,
        .body_bytes = m->body_bytes,
        .headers_bytes = m->headers_bytes,
        .key_bytes = m->key_bytes,
        .ordering_key_bytes = m->ordering_key_bytes,
        .state = m->state,
        .priority = m->priority,
        .flags = (uint8_t)((m->flags & PAWL_MESSAGE_TTL ? PAWL_RECORD_TTL : 0) |
                           (keyed ? PAWL_RECORD_ORDERED : 0)),
        .dead_reason = m->dead_reason,
        .acquired = m->acquired,
        .expired = m->expired,
        .nacked = m->nacked,
        .crashed = m->crashed,
        .deferred = m->deferred,
    };
    uint32_t reason = 0, progress = 0;
    if (m->lease) {
        lease_fact(core, m, &r);
        reason = pawl_core_lease_at(core, m->lease)->reason;
        progress = pawl_core_lease_at(core, m->lease)->progress;
    }
    uint32_t payload = pawl_core_message_payload_bytes(m);
    uint64_t key_queue = 0;
    uint32_t key = pawl_core_key_of(core, m);
#ifdef PAWL_BUG_KEY_NOT_IN_FACT
    key = 0;
#endif
    if (key)
        key_queue = pawl_core_queue_at(core, pawl_ledger_at(&core->ledger, key)->d)->id;
    uint32_t tail = pawl_record_message_tail(&r);
    uint32_t bytes = (uint32_t)sizeof r + payload + r.reason_bytes + r.progress_bytes + tail;
    if (!fits(core, bytes, budget))
        return false;
    uint64_t lsn;
    uint8_t *out = pawl_core_append(core, PAWL_RECORD_MESSAGE, bytes, &lsn);
    memcpy(out, &r, sizeof r);
    if (payload)
        memcpy(out + sizeof r, pawl_payload_at(&core->payload, m->payload), payload);
    if (m->key_bytes) {
        uint64_t end = key ? pawl_ledger_at(&core->ledger, key)->c : 0;
        memcpy(out + sizeof r + (m->flags & PAWL_MESSAGE_TTL ? 8 : 0), &end, sizeof end);
    }
    if (reason)
        memcpy(out + sizeof r + payload, pawl_payload_at(&core->payload, reason), r.reason_bytes);
    if (r.progress_bytes)
        memcpy(out + sizeof r + payload + r.reason_bytes, pawl_payload_at(&core->payload, progress),
               r.progress_bytes);
    if (tail)
        memcpy(out + bytes - tail, &key_queue, tail);
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, lsn);
    return true;
}

static bool copy_queue(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    struct pawl_queue_rec r;
    if (!fits(core, sizeof r, budget))
        return false;
    pawl_core_queue_fact(core, pawl_core_queue_at(core, n), &r);
    uint64_t lsn;
    memcpy(pawl_core_append(core, PAWL_RECORD_QUEUE, sizeof r, &lsn), &r, sizeof r);
    pawl_core_home_set(core, PAWL_KIND_QUEUE, n, lsn);
    return true;
}

static bool copy_session(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    struct pawl_core_session *s = pawl_core_session_at(core, n);
    struct pawl_session_rec r;
    if (!fits(core, sizeof r, budget))
        return false;
    pawl_core_session_fact(s, &r);
    r.state = s->state == PAWL_SESSION_ENDING && s->end_logged;
    uint64_t lsn;
    memcpy(pawl_core_append(core, PAWL_RECORD_SESSION, sizeof r, &lsn), &r, sizeof r);
    pawl_core_home_set(core, PAWL_KIND_SESSION, n, lsn);
    return true;
}

static bool kept(const struct pawl_core_lane *lane, const struct pawl_window_entry *e, uint64_t seq)
{
    bool done = (e->state == PAWL_WINDOW_DONE || e->state == PAWL_WINDOW_QUERY) && e->lsn != 0;
#ifndef PAWL_BUG_REFUSAL_COPIED
    done = done && e->result >= 0; /* of a refusal lsn is something else: who has acknowledged it */
#endif
    return seq >= lane->oldest && e->seq == seq && (done || (e->flags & PAWL_WINDOW_HALF) != 0);
}

/* A large window goes in pieces; what was answered since a piece was written has a record of its
 * own in a newer segment. */
static bool copy_lane(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    struct pawl_core_lane *lane = pawl_core_lane_at(core, n);
    uint64_t span = lane->window_mask + 1;
    uint64_t seq = pawl_max_u64(lane->oldest, lane->copied);
    if (lane->seq_max >= span)
        seq = pawl_max_u64(seq, lane->seq_max - span + 1);
    uint64_t lsn;
    do {
        struct pawl_window_rec w[PAWL_WINDOW_PIECE];
        struct pawl_lane_rec r = {
            .session = pawl_core_session_at(core, lane->session)->id,
            .lane = lane->lane,
            .window = lane->window,
            .seq_max = lane->seq_max,
            .oldest = lane->oldest,
        };
        for (; seq <= lane->seq_max && r.count < PAWL_WINDOW_PIECE; seq++) {
            const struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, seq);
            if (kept(lane, e, seq))
                w[r.count++] = (struct pawl_window_rec){
                    e->seq, e->value, e->lsn, e->result,
                    e->flags | (e->state == PAWL_WINDOW_QUERY ? PAWL_WINDOW_REC_ASKED : 0)
                };
        }
        uint32_t bytes = r.count * (uint32_t)sizeof w[0];
        if (!fits(core, sizeof r + bytes, budget))
            return false;
        uint8_t *out = pawl_core_append(core, PAWL_RECORD_LANE, (uint32_t)sizeof r + bytes, &lsn);
        memcpy(out, &r, sizeof r);
        if (bytes)
            memcpy(out + sizeof r, w, bytes);
        lane->copied = seq;
    } while (seq <= lane->seq_max);
    lane->copied = 0;
    pawl_core_home_set(core, PAWL_KIND_LANE, n, lsn);
    return true;
}

/* What a dropped table still holds must not get a fact behind the drop. */
static bool table_gone(const struct pawl_core *core, uint32_t table)
{
    return pawl_core_queue_at(core, table)->gone;
}

static bool copy_cell(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    uint32_t table = pawl_cell_at(core, n)->table;
    if (table_gone(core, table)) {
        /* Reservations hold on to their cells: they go first, and the cell with the sweep. */
        pawl_core_home_set(core, PAWL_KIND_STATE, n, 0);
        return true;
    }
    if (!fits(core, pawl_core_cell_fact_bytes(core, n), budget))
        return false;
#ifdef PAWL_BUG_STATE_NOT_COPIED
    pawl_core_home_set(core, PAWL_KIND_STATE, n, 0);
#else
    pawl_core_cell_fact(core, n);
#endif
    return true;
}

static bool copy_reservation(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    if (table_gone(core, pawl_core_reservation_at(core, n)->table)) {
        pawl_core_home_set(core, PAWL_KIND_RESERVATION, n, 0);
        return true;
    }
    if (!fits(core, pawl_core_reservation_fact_bytes(core, n), budget))
        return false;
    pawl_core_reservation_fact(core, n);
    return true;
}

static bool copy_idem(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    if (table_gone(core, pawl_core_idem_at(core, n)->table)) {
        pawl_core_home_set(core, PAWL_KIND_IDEM, n, 0);
        return true;
    }
    if (!fits(core, pawl_core_idem_fact_bytes(core, n), budget))
        return false;
#ifdef PAWL_BUG_IDEM_NOT_COPIED
    pawl_core_home_set(core, PAWL_KIND_IDEM, n, 0);
#else
    pawl_core_idem_fact(core, n);
#endif
    return true;
}

static bool copy_key(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    struct pawl_key_rec r;
    const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
    if (!pawl_core_key_needed(core, e)) {
        pawl_core_ledger_remove(core, n);
        return true;
    }
    if (!fits(core, sizeof r, budget))
        return false;
    pawl_core_key_rec(core, e, &r);
    uint64_t lsn;
    memcpy(pawl_core_append(core, PAWL_RECORD_KEY, sizeof r, &lsn), &r, sizeof r);
    pawl_core_ledger_home(core, n, lsn);
    return true;
}

static bool copy_outcome(struct pawl_core *core, uint32_t n, uint64_t *budget)
{
    struct pawl_outcome_rec r;
    if (!fits(core, sizeof r, budget))
        return false;
    pawl_core_outcome_fact(core, n, &r);
    uint64_t lsn;
#ifdef PAWL_BUG_OUTCOME_NOT_COPIED
    pawl_core_ledger_home(core, n, 0);
    return true;
#endif
    memcpy(pawl_core_append(core, PAWL_RECORD_OUTCOME, sizeof r, &lsn), &r, sizeof r);
    pawl_core_ledger_home(core, n, lsn);
    return true;
}

static bool copy_one(struct pawl_core *core, enum pawl_core_kind kind, uint32_t n, uint64_t *budget)
{
    switch (kind) {
    case PAWL_KIND_MESSAGE:
        return copy_message(core, n, budget);
    case PAWL_KIND_QUEUE:
        return copy_queue(core, n, budget);
    case PAWL_KIND_SESSION:
        return copy_session(core, n, budget);
    case PAWL_KIND_STATE:
        return copy_cell(core, n, budget);
    case PAWL_KIND_RESERVATION:
        return copy_reservation(core, n, budget);
    case PAWL_KIND_IDEM:
        return copy_idem(core, n, budget);
    case PAWL_KIND_LEDGER:
        return pawl_ledger_at(&core->ledger, n)->kind == PAWL_LEDGER_OP
                   ? copy_outcome(core, n, budget)
                   : copy_key(core, n, budget);
    case PAWL_KIND_HORIZON:
        return fits(core, sizeof(struct pawl_outcome_rec), budget) && pawl_core_horizon_copy(core);
    default:
        return copy_lane(core, n, budget);
    }
}

bool pawl_core_copy(struct pawl_core *core, uint64_t segment, uint64_t budget, struct pawl_now now)
{
    pawl_core_set_now(core, now);
    if (!pawl_core_horizon_say(core))
        return false;
    /* Copies into the very segment would never end; the shell does not ask for its newest. */
    PAWL_ASSERT_REL(pawl_core_appended(core) >> core->segment_shift, !=, segment);
    struct pawl_core_home_slot *slot = pawl_core_home_slot(core, segment);
    for (enum pawl_core_kind kind = 0; slot && kind < PAWL_KINDS; kind++) {
        while (slot->first[kind])
            if (!copy_one(core, kind, slot->first[kind], &budget))
                return false;
        slot = pawl_core_home_slot(core, segment);
    }
    return true;
}
