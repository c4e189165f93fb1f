/* SPDX-License-Identifier: MIT */
/* What operations leave that have no id of their caller (semantics 1).
 *
 * While their session lives their outcomes are in the window of their lane, as long as it or an
 * earlier one is open. Into the ledger, under the id of abi/lane_id.h, go
 *
 *   KEEP      one whose caller was told "unknown", as soon as its answer is there
 *   the end   all that is still open when the session ends, but for a clean end that left nothing
 *             open; and a *line* for each lane (seq PAWL_LANE_SEQ_MAX): how far the lane had got.
 *             What is above the line was never decided and never will be; what is open below it and
 *             has no entry has done nothing
 *
 *   entry  id                    a (value)  b (hash)  c (lsn)     result
 *   one    session, lane, seq    its value  uid << 16 its lsn     its result; E_OUTCOME_UNKNOWN: it
 *                                                                 was a question, or goes on
 *   line   session, lane, max    seq_max    uid << 16 oldest      OK
 *
 * A refusal wrote no record and is no outcome here: it has done nothing, and so says the line.
 *
 * They are written before the SESSION_END, which takes the windows away: a crash in between leaves
 * the session as it was, and its end is begun anew. The lines come last, in one record with the
 * END: whoever finds a line knows that the session can not come back and do what the line says is
 * not done. All of one end have the same time, and go together when they are old; where room is
 * wanted, `left_horizon` is the newest time that was forgotten, and what has no entry is told
 * nothing of by a line that is not newer.
 *
 * Where sends are refused for want of room nothing is left: a dead consumer's messages come first,
 * and FORGOTTEN is no lie. */
#include "abi/lane_id.h"
#include "core/core_inner.h"

#define SEQS_A_TURN 1024u

static void name(uint64_t session, uint32_t lane, uint64_t seq, struct pawl_op_id *out)
{
    const struct pawl_lane_id id = { .session = session, .seq = seq, .lane = lane };
    pawl_lane_id_pack(&id, out);
}

static struct pawl_outcome_rec outcome(const struct pawl_core_session *s, uint32_t lane,
                                       uint64_t seq, uint64_t time, int result, uint64_t value)
{
    struct pawl_outcome_rec r = {
        .hash = (uint64_t)s->peer.uid << 16,
        .value = value,
        .time = time,
        .result = result,
    };
    name(s->id, lane, seq, &r.id);
    return r;
}

static void write(struct pawl_core *core, const struct pawl_core_session *s, uint32_t lane,
                  const struct pawl_window_entry *e, uint64_t time, int result)
{
    struct pawl_outcome_rec r = outcome(s, lane, e->seq, time, result, e->value);
    uint64_t own;
    r.lsn = e->lsn;
    memcpy(pawl_core_append(core, PAWL_RECORD_OUTCOME, sizeof r, &own), &r, sizeof r);
    pawl_core_outcome_apply(core, &r, own);
}

/* --- what is known of one -------------------------------------------------------------------- */

/* Of a window entry that is this one's: is there an outcome to be told? */
static bool outcome_of(const struct pawl_window_entry *e, int *result)
{
    bool asked = e->state == PAWL_WINDOW_QUERY && e->lsn == 0;
    bool goes_on = e->state == PAWL_WINDOW_PENDING || (e->flags & PAWL_WINDOW_HALF);
    *result = asked || goes_on ? PAWL_E_OUTCOME_UNKNOWN : e->result;
    return e->state != PAWL_WINDOW_NONE || (e->flags & PAWL_WINDOW_HALF);
}

/* A refusal is no record, and decided anew if the broker dies and its process comes back: nobody
 * but that process may be told of it. */
static bool stands(const struct pawl_window_entry *e, int *result)
{
    return outcome_of(e, result) && (*result >= 0 || *result == PAWL_E_OUTCOME_UNKNOWN);
}

void pawl_core_keep_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_one *c = t->fixed;
    uint64_t seq = c->value;
    const struct pawl_window_entry *e = pawl_core_lane_entry(core, t->lane, seq);
    int result, found;
    if (seq == 0 || seq >= t->seq) {
        pawl_core_take_answer(t, PAWL_E_INVALID, 0, pawl_core_appended(core));
        return;
    }
    bool there = seq >= t->lane->oldest && e->seq == seq && outcome_of(e, &found);
    result = there ? PAWL_OK : PAWL_OK_MISSING;
    if (there && pawl_core_ledger_ready(core, PAWL_LEDGER_OP, 1) != PAWL_LIMIT_NONE)
        result = PAWL_E_FULL;
    if (there && result == PAWL_OK && !pawl_core_horizon_say(core))
        result = PAWL_E_FULL;
    if (result == PAWL_OK) {
        pawl_core_lane_log(core, t->lane);
        write(core, t->session, t->lane->lane, e, core->now.time, found);
    }
    pawl_core_take_answer(t, result, result == PAWL_E_FULL ? PAWL_LIMIT_MEMORY : 0,
                          pawl_core_appended(core));
}

/* --- the end of a session -------------------------------------------------------------------- */

/* A clean end says by itself that nothing is open, and a session that never was in the log and is
 * not known to have asked for anything has nothing to say. */
static bool leaves(const struct pawl_core *core, const struct pawl_core_session *s)
{
#ifdef PAWL_BUG_NOTHING_LEFT
    return false;
#endif
    return s->why != PAWL_END_CLOSED && s->lanes_count != 0 && core->refuse == 0;
}

static uint64_t first_open(const struct pawl_core_lane *lane)
{
    uint64_t span = (uint64_t)lane->window_mask + 1;
    return lane->seq_max >= span ? pawl_max_u64(lane->oldest, lane->seq_max - span + 1)
                                 : lane->oldest;
}

/* The outcomes of one lane. False: no room, or enough for this turn. */
static bool leave_lane(struct pawl_core *core, struct pawl_core_session *s,
                       struct pawl_core_lane *lane, uint32_t *budget)
{
    uint64_t seq = pawl_max_u64(first_open(lane), s->left_seq);
    for (; seq <= lane->seq_max; seq++) {
        const struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, seq);
        int result;
        s->left_seq = seq;
        if (*budget == 0 || !pawl_core_has_room(core, 2 * PAWL_OUTCOME_LIVE))
            return false;
        (*budget)--;
        if (e->seq != seq || !stands(e, &result))
            continue;
        if (pawl_core_ledger_ready(core, PAWL_LEDGER_OP, 1) != PAWL_LIMIT_NONE ||
            !pawl_core_horizon_say(core))
            continue;
        write(core, s, lane->lane, e, s->left_time, result);
    }
    s->left_seq = 0;
    return true;
}

/* False: more is to be done, with room, in another turn. */
bool pawl_core_left_write(struct pawl_core *core, struct pawl_core_session *s)
{
    if (!leaves(core, s)) {
        s->left_lane = 0;
        s->leaves = false;
        return true;
    }
    if (!s->leaves) {
        s->leaves = true;
        s->left_time = core->now.time;
        s->left_lane = 0;
        s->left_seq = 0;
    }
    uint32_t budget = SEQS_A_TURN;
    for (; s->left_lane < PAWL_LANES_MAX; s->left_lane++) {
        uint32_t n = s->lanes[s->left_lane];
        if (n && pawl_core_lane_at(core, n)->entries &&
            !leave_lane(core, s, pawl_core_lane_at(core, n), &budget)) {
            if (budget == 0)
                pawl_core_again(core);
            return false;
        }
    }
    return true;
}

/* Room for the lines in the ledger. False: there is none, and there will be no lines. */
static bool lines_ready(struct pawl_core *core, const struct pawl_core_session *s)
{
    return pawl_core_ledger_ready(core, PAWL_LEDGER_OP, s->lanes_count) == PAWL_LIMIT_NONE &&
           pawl_core_horizon_say(core);
}

uint64_t pawl_core_left_room(const struct pawl_core_session *s)
{
    uint64_t line = pawl_core_group_part(sizeof(struct pawl_outcome_rec)) + PAWL_RECORD_HEAD;
    return s->leaves ? PAWL_OUTCOME_LIVE + (s->lanes_count + 1) * line : 0;
}

/* With what is appended between begin and end, the lines are one record. A session that was never
 * in the log cannot come back after a crash: its lines may stand alone. */
void pawl_core_left_begin(struct pawl_core *core, struct pawl_core_session *s, uint32_t bytes)
{
    if (s->leaves && !lines_ready(core, s))
        s->leaves = false;
    if (s->leaves && bytes)
        pawl_core_group_open(core, pawl_core_group_part(bytes) +
                                       (s->lanes_count - 1) * PAWL_OUTCOME_PART);
}

void pawl_core_left_end(struct pawl_core *core, struct pawl_core_session *s)
{
    uint32_t left = s->leaves ? s->lanes_count : 0;
    for (uint32_t i = 0; left > 0 && i < PAWL_LANES_MAX; i++) {
        if (s->lanes[i] == 0)
            continue;
        const struct pawl_core_lane *lane = pawl_core_lane_at(core, s->lanes[i]);
        struct pawl_outcome_rec r =
            outcome(s, i, PAWL_LANE_SEQ_MAX, s->left_time, PAWL_OK, lane->seq_max);
        r.lsn = first_open(lane);
        uint64_t lsn = core->group.lsn;
        if (--left == 0 && core->group.open)
            pawl_core_group_close(core, &r);
        else
            memcpy(pawl_core_append(core, PAWL_RECORD_OUTCOME, sizeof r, &lsn), &r, sizeof r);
        pawl_core_outcome_apply(core, &r, lsn);
    }
    s->leaves = false;
}

/* --- questions ------------------------------------------------------------------------------- */

/* The window of a session that has not ended. */
static void resolve_open(struct pawl_core *core, const struct pawl_core_session *s,
                         const struct pawl_lane_id *id, struct pawl_comp_resolved *r)
{
    struct pawl_core_lane *lane =
        s->lanes[id->lane] ? pawl_core_lane_at(core, s->lanes[id->lane]) : NULL;
    int result;
    if (!lane || !lane->entries || id->seq > lane->seq_max)
        return; /* so far */
    if (id->seq < first_open(lane)) {
        r->state = PAWL_RESOLVED_FORGOTTEN;
        return;
    }
    const struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, id->seq);
    if (e->seq != id->seq || !stands(e, &result) || result == PAWL_E_OUTCOME_UNKNOWN)
        return;
    r->state = result >= 0 ? PAWL_RESOLVED_COMMITTED : PAWL_RESOLVED_ABORTED;
    r->result = result;
    r->value = e->value;
    r->lsn = e->lsn;
}

static const struct pawl_ledger_entry *entry_of(const struct pawl_core *core,
                                                const struct pawl_lane_id *from, uint64_t seq)
{
    struct pawl_op_id id;
    name(from->session, from->lane, seq, &id);
    uint32_t n = pawl_core_outcome_find(core, &id);
    const struct pawl_ledger_entry *e = n ? pawl_ledger_at(&core->ledger, n) : NULL;
    return e && pawl_core_ledger_end(core, e) > core->now.time ? e : NULL;
}

/* What its line says of one that has no entry. */
static uint32_t by_line(const struct pawl_core *core, const struct pawl_ledger_entry *line,
                        uint64_t seq)
{
    if (seq > line->a)
        return PAWL_RESOLVED_NEVER_SEEN;
#ifndef PAWL_BUG_LINE_TOO_SURE
    if (seq < line->c || line->d < core->ledger.left_horizon)
        return PAWL_RESOLVED_FORGOTTEN;
#endif
    return PAWL_RESOLVED_NEVER_SEEN;
}

static void resolve_entry(const struct pawl_core *core, const struct pawl_ledger_entry *e,
                          struct pawl_comp_resolved *r)
{
    if (e->result == PAWL_E_OUTCOME_UNKNOWN) {
        r->state = PAWL_RESOLVED_FORGOTTEN;
        return;
    }
    r->state = e->result >= 0 ? PAWL_RESOLVED_COMMITTED : PAWL_RESOLVED_ABORTED;
    r->result = e->result;
    r->value = e->a;
    r->lsn = e->c;
    r->decided_wall_ms = pawl_core_outcome_wall_ms(core, e);
}

/* Ids of lanes can be guessed: only who made the operation is told, and the owner of the broker. */
static bool may_know(const struct pawl_take *t, uint64_t uid)
{
    uint32_t asks = t->session->peer.uid;
    return asks == uid || asks == 0 || asks == t->core->options.admin_uid;
}

int pawl_core_left_resolve(struct pawl_take *t, const struct pawl_op_id *op, bool fence,
                           struct pawl_comp_resolved *r)
{
    struct pawl_core *core = t->core;
    const struct pawl_lane_id id = pawl_lane_id_unpack(op);
    if (id.session == 0 || id.seq == 0 || id.seq == PAWL_LANE_SEQ_MAX)
        return PAWL_E_INVALID;
    r->state = PAWL_RESOLVED_FORGOTTEN;
    const struct pawl_ledger_entry *e = entry_of(core, &id, id.seq);
    if (e && may_know(t, e->b >> 16)) {
        resolve_entry(core, e, r);
        return PAWL_OK;
    }
    const struct pawl_ledger_entry *line = entry_of(core, &id, PAWL_LANE_SEQ_MAX);
    if (line) {
        if (may_know(t, line->b >> 16))
            r->state = by_line(core, line, id.seq);
        return PAWL_OK;
    }
    uint32_t n = pawl_table_find(&core->sessions_by_id, id.session);
    const struct pawl_core_session *s = n ? pawl_core_session_at(core, n) : NULL;
    if (!s || !may_know(t, s->peer.uid) || s->end_logged)
        return PAWL_OK;
    r->state = PAWL_RESOLVED_NEVER_SEEN;
    resolve_open(core, s, &id, r);
    /* It may still come, and only its own process can say that it will not. */
    return fence && r->state == PAWL_RESOLVED_NEVER_SEEN ? PAWL_E_STATE : PAWL_OK;
}
