/* SPDX-License-Identifier: MIT */
/* Operations under an id of their caller, and what became of them (semantics 1).
 *
 *   - seen before: the outcome is in the ledger; nothing is decided again
 *   - else the command is decided as any other. If it writes a record, that and the outcome are one
 *     GROUP; if it writes none (a final refusal, a memory queue) the outcome is a record of its own
 *   - a refusal that passes, or misuse: no trace
 *   - the answer is held back until its outcome is appended, and waits for that
 *
 * There is no moment at which the effect is in the log and the outcome is not, or the ledger says
 * what the log does not: the ledger entry is made by the same apply, live and in recovery.
 *
 * Forgetting: the oldest go after a day, or when the ledger is full. The horizon, the newest id
 * time forgotten, is in the log before they are gone, so an id at or below it is never taken for
 * new. */
#include "abi/lane_id.h"
#include "core/core_inner.h"

#define AHEAD_MS 60000u

/* Numbers of the 16 bytes as they are written: the first 48 bits are the time in ms. */
static uint64_t half(const struct pawl_op_id *id, uint32_t at)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < 8; i++)
        n = n << 8 | id->bytes[at + i];
    return n;
}

static void unhalf(uint64_t n, uint8_t *out)
{
    for (uint32_t i = 8; i-- > 0; n >>= 8)
        out[i] = (uint8_t)n;
}

static uint64_t id_ms(const struct pawl_op_id *id) { return half(id, 0) >> 16; }

uint32_t pawl_core_outcome_find(const struct pawl_core *core, const struct pawl_op_id *id)
{
    return pawl_core_ledger_find(core, PAWL_LEDGER_OP, half(id, 8), half(id, 0));
}

/* --- what a refusal leaves ------------------------------------------------------------------- */

/* Final: the same id gets the same answer for ever. Else it passes, or is misuse. */
static bool final(int result)
{
    switch (result) {
    case PAWL_E_PRECONDITION:
    case PAWL_E_CONFLICT:
    case PAWL_E_LEASE_LOST:
    case PAWL_E_ALREADY_ACKED:
    case PAWL_E_STATE:
    case PAWL_E_NOT_FOUND:
    case PAWL_E_HOLD_CAP:
    case PAWL_E_KEY_MISMATCH:
    case PAWL_E_IDEM_MISMATCH:
    case PAWL_E_RES_ALREADY_POSTED:
    case PAWL_E_RES_ALREADY_VOIDED:
    case PAWL_E_RES_EXPIRED:
    case PAWL_E_RES_NOT_FOUND:
    case PAWL_E_RES_DIFFERENT_AMOUNT:
    case PAWL_E_RES_SHORT:
        return true;
    default:
        return result >= 0;
    }
}

static void horizon_moved(struct pawl_core *core, uint64_t lsn)
{
    core->horizon_said = core->ledger.horizon;
    core->left_horizon_said = core->ledger.left_horizon;
    if (core->horizon_home.segment == 0)
        core->live += PAWL_OUTCOME_LIVE;
    pawl_core_home_move(core, PAWL_KIND_HORIZON, &core->horizon_home, 1, lsn);
}

/* --- outcomes -------------------------------------------------------------------------------- */

void pawl_core_outcome_apply(struct pawl_core *core, const struct pawl_outcome_rec *r, uint64_t lsn)
{
    struct pawl_ledger *l = &core->ledger;
    const struct pawl_ledger_entry new = {
        .id = half(&r->id, 8),
        .id_high = half(&r->id, 0),
        .a = r->value,
        .b = (r->hash & PAWL_OUTCOME_HASH) | (uint16_t)r->detail,
        .c = r->lsn ? r->lsn : lsn,
        .d = (uint32_t)(r->time / PAWL_NS_S),
        .result = (int16_t)r->result,
        .kind = PAWL_LEDGER_OP,
        .flags = r->detail & PAWL_OUTCOME_STEP ? PAWL_LEDGER_STEP : 0,
    };
#ifdef PAWL_BUG_HORIZONS_BY_NO_ID
    if (new.id == 0 && new.id_high == 0 && r->value) {
#else
    if (r->detail & PAWL_OUTCOME_HORIZONS) {
#endif
        l->horizon = pawl_max_u64(l->horizon, r->horizon_ms);
        l->left_horizon = pawl_max_u64(l->left_horizon, r->value);
        horizon_moved(core, lsn);
        return;
    }
    if (new.id == 0 && new.id_high == 0)
        return;
    uint32_t n = pawl_core_ledger_find(core, PAWL_LEDGER_OP, new.id, new.id_high);
    /* Said again at the end of its session, which may have been begun before a crash, too. */
    if (n && pawl_ledger_of_lane(&new)) {
        pawl_core_ledger_remove(core, n);
        n = 0;
    }
    if (n == 0)
        n = pawl_core_ledger_insert(core, &new);
    if (n == 0)
        core->damaged = true; /* no memory: live, the one who decides has made sure */
    else
        pawl_core_ledger_home(core, n, lsn);
}

void pawl_core_outcome_fact(const struct pawl_core *core, uint32_t n, struct pawl_outcome_rec *out)
{
    const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
    *out = (struct pawl_outcome_rec){
        .hash = e->b & PAWL_OUTCOME_HASH,
        .detail = (uint16_t)e->b | (e->flags & PAWL_LEDGER_STEP ? PAWL_OUTCOME_STEP : 0),
        .value = e->a,
        .lsn = e->c,
        .time = e->d * PAWL_NS_S,
        .result = e->result,
    };
    uint64_t id, id_high;
    pawl_core_ledger_name(core, e, &id, &id_high);
    unhalf(id_high, out->id.bytes);
    unhalf(id, out->id.bytes + 8);
}

/* --- the horizon ----------------------------------------------------------------------------- */

/* What is a day old went by the clocks alone (keep_for_wall() in ledger.c), and no id of that age
 * is taken for new: dated at most a minute ahead it was accepted a day ago at the latest. What went
 * before, for want of room, is said in the log. */
uint64_t pawl_core_horizon_ms(const struct pawl_core *core)
{
    uint64_t day_ms = core->ledger.op_retention_ns / PAWL_NS_MS,
             now_ms = core->now.wall / PAWL_NS_MS;
    uint64_t aged = now_ms + AHEAD_MS > day_ms ? now_ms + AHEAD_MS - day_ms : 0;
    return pawl_max_u64(core->ledger.horizon, aged);
}

bool pawl_core_horizon_say(struct pawl_core *core)
{
    if (core->ledger.horizon == core->horizon_said &&
        core->ledger.left_horizon == core->left_horizon_said)
        return true;
    return pawl_core_horizon_copy(core);
}

bool pawl_core_horizon_copy(struct pawl_core *core)
{
    if (!pawl_core_has_room(core, PAWL_OUTCOME_LIVE))
        return false;
    const struct pawl_outcome_rec r = { .horizon_ms = core->ledger.horizon,
                                        .value = core->ledger.left_horizon,
                                        .detail = PAWL_OUTCOME_HORIZONS };
    uint64_t lsn;
    memcpy(core->port.append(core->port.ctx, PAWL_RECORD_OUTCOME, sizeof r, &lsn), &r, sizeof r);
    horizon_moved(core, lsn);
    return true;
}

/* --- a command under an id ------------------------------------------------------------------- */

static void answer(struct pawl_take *t, int result, uint64_t value, uint64_t lsn)
{
    pawl_core_lane_answer(t->core, t->lane, t->seq, result, value, lsn, pawl_core_appended(t->core),
                          0);
}

/* Of a transaction refused the answer names its step, and in `lsn` what that found. */
static bool names_step(const struct pawl_take *t, int result)
{
    return t->type == PAWL_CMD_TXN && result < 0;
}

/* Everything but its deadline and its seq, under the directory's secret. The client may change it
 * while we look: then he has cheated himself. */
static uint64_t hash_of(const struct pawl_take *t)
{
    uint64_t seed = t->core->options.hash_seed ^ t->type;
    uint32_t fixed = pawl_core_fixed_bytes(t->type) - (uint32_t)sizeof(struct pawl_cmd);
    seed = pawl_hash64((const uint8_t *)t->fixed + sizeof(struct pawl_cmd), fixed, seed);
    return t->variable_bytes ? pawl_hash64(t->variable, t->variable_bytes, seed) : seed;
}

static void repeat(struct pawl_take *t, uint32_t n, uint64_t hash)
{
    const struct pawl_ledger_entry *e = pawl_ledger_at(&t->core->ledger, n);
    uint16_t detail = (uint16_t)e->b;
    int result = e->result == PAWL_OK ? PAWL_OK_DUPLICATE : e->result;
    if (e->result == PAWL_E_OP_FENCED)
        answer(t, PAWL_E_OP_FENCED, 0, e->c);
    else if ((e->b ^ hash) & PAWL_OUTCOME_HASH)
        answer(t, PAWL_E_OPID_MISMATCH, 0, 0);
#ifndef PAWL_BUG_REPEAT_WITHOUT_FOUND
    else if (e->flags & PAWL_LEDGER_STEP)
        answer(t, result, detail, e->a);
#endif
    else
        pawl_core_lane_answer(t->core, t->lane, t->seq, result, e->a, e->result >= 0 ? e->c : 0,
                              pawl_core_appended(t->core), (uint8_t)detail);
}

/* May an id that is not in the ledger be taken for new? */
static int fresh(struct pawl_core *core, const struct pawl_op_id *id)
{
    uint64_t ms = id_ms(id);
    if (id->bytes[6] >> 4 != 7 || id->bytes[8] >> 6 != 2 ||
        ms > core->now.wall / PAWL_NS_MS + AHEAD_MS)
        return PAWL_E_INVALID;
#ifdef PAWL_BUG_HORIZON_IGNORED
    return PAWL_OK;
#endif
    return ms <= pawl_core_horizon_ms(core) ? PAWL_E_FORGOTTEN : PAWL_OK;
}

/* Room for one more entry: where there is none the oldest go, never the operation. */
static bool ready(struct pawl_core *core)
{
    return pawl_core_ledger_ready(core, PAWL_LEDGER_OP, 1) == PAWL_LIMIT_NONE &&
           pawl_core_horizon_say(core);
}

/* The record of an outcome, into the open group if there is one. Returns its lsn. */
uint64_t pawl_core_outcome_group(struct pawl_take *t, const struct pawl_op_id *id, uint64_t hash,
                                 int result, uint64_t value, uint32_t detail)
{
    struct pawl_core *core = t->core;
    struct pawl_outcome_rec r = {
        .hash = hash,
        .value = value,
        .time = core->now.time,
        .result = result,
        .detail = detail,
    };
    if (id)
        r.id = *id;
    pawl_core_lane_log(core, t->lane);
    /* A RESOLVE is a question: asked again it is answered anew. */
    if (t->type != PAWL_CMD_RESOLVE)
        pawl_core_lane_op(core, t->lane, t->seq, &r.op);
    uint64_t lsn = core->group.lsn;
    if (core->group.open) {
        pawl_core_group_close(core, &r);
    } else {
        core->group.wanted = false;
        memcpy(pawl_core_append(core, PAWL_RECORD_OUTCOME, sizeof r, &lsn), &r, sizeof r);
    }
    pawl_core_outcome_apply(core, &r, lsn);
    return lsn;
}

static void finish(struct pawl_take *t, uint64_t hash)
{
    struct pawl_core *core = t->core;
    const struct pawl_core_operation *op = &core->operation;
    uint64_t lsn = op->lsn;
    if (core->group.open || final(op->result)) {
        bool step = names_step(t, op->result);
        uint64_t own =
            pawl_core_outcome_group(t, &t->id, hash, op->result, step ? lsn : op->value,
                                    step ? PAWL_OUTCOME_STEP | (uint32_t)op->value : op->flags);
        if (lsn == 0 && !step)
            lsn = own;
    }
    core->group.wanted = false;
    uint64_t wait = pawl_core_appended(core);
#ifdef PAWL_BUG_OUTCOME_NOT_WAITED
    wait = op->wait_lsn;
#endif
    pawl_core_lane_answer(core, t->lane, t->seq, op->result, op->value, lsn, wait, op->flags);
}

int pawl_core_identity_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    uint64_t hash = hash_of(t);
    uint32_t n = pawl_core_outcome_find(core, &t->id);
    if (n != 0) {
        repeat(t, n, hash);
        return PAWL_OK;
    }
    int result = fresh(core, &t->id);
    if (result == PAWL_OK && !ready(core)) {
        answer(t, PAWL_E_FULL, core->refuse ? core->refuse : PAWL_LIMIT_MEMORY, 0);
        return PAWL_OK;
    }
    if (result != PAWL_OK) {
        answer(t, result, 0, 0);
        return PAWL_OK;
    }
    core->operation = (struct pawl_core_operation){ .lane = t->lane, .seq = t->seq };
    core->group.wanted = true;
    result = pawl_core_dispatch(t);
    core->operation.lane = NULL;
    if (result != PAWL_OK) {
        core->group.wanted = false;
        return result;
    }
    PAWL_ASSERT(core->operation.answered); /* those that may answer later are not allowed an id */
    finish(t, hash);
    return PAWL_OK;
}

/* --- RESOLVE --------------------------------------------------------------------------------- */

/* Wall time of a second of pawl time, by what both clocks show now. */
uint64_t pawl_core_outcome_wall_ms(const struct pawl_core *core, const struct pawl_ledger_entry *e)
{
    uint64_t age = core->now.time - pawl_min_u64(core->now.time, e->d * PAWL_NS_S);
    return (core->now.wall > age ? core->now.wall - age : 0) / PAWL_NS_MS;
}

static void resolved(struct pawl_take *t, const struct pawl_comp_resolved *r)
{
    uint8_t *data;
    uint32_t block = pawl_core_data_buffer(t->core, sizeof *r, &data);
    if (block == 0) {
        answer(t, PAWL_E_RESOURCE, 0, 0);
        return;
    }
    memcpy(data, r, sizeof *r);
    pawl_core_lane_answer_data(t->core, t->lane, t->seq, block, sizeof *r, 0,
                               pawl_core_appended(t->core));
}

void pawl_core_resolve_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_resolve *c = t->fixed;
    if (c->flags & ~PAWL_RESOLVE_FENCE) {
        answer(t, PAWL_E_INVALID, 0, 0);
        return;
    }
    struct pawl_comp_resolved r = { .state = PAWL_RESOLVED_NEVER_SEEN };
    if (pawl_op_id_of_lane(&c->id)) {
        int result = pawl_core_left_resolve(t, &c->id, (c->flags & PAWL_RESOLVE_FENCE) != 0, &r);
        r.horizon_wall_ms = pawl_core_horizon_ms(core);
        if (result == PAWL_OK)
            resolved(t, &r);
        else
            answer(t, result, 0, 0);
        return;
    }
    uint32_t n = pawl_core_outcome_find(core, &c->id);
    int known = n ? PAWL_OK : fresh(core, &c->id);
    if (n) {
        const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
        r.result = e->result;
        r.value = e->flags & PAWL_LEDGER_STEP ? (uint16_t)e->b : e->a;
        r.lsn = e->c;
        r.decided_wall_ms = pawl_core_outcome_wall_ms(core, e);
        if (e->result != PAWL_E_OP_FENCED)
            r.state = e->result >= 0 ? PAWL_RESOLVED_COMMITTED : PAWL_RESOLVED_ABORTED;
    } else if (known == PAWL_E_FORGOTTEN) {
        r.state = PAWL_RESOLVED_FORGOTTEN;
    } else if (known != PAWL_OK) {
        answer(t, known, 0, 0);
        return;
    } else if (c->flags & PAWL_RESOLVE_FENCE) {
        if (!ready(core)) {
            answer(t, PAWL_E_FULL, core->refuse ? core->refuse : PAWL_LIMIT_MEMORY, 0);
            return;
        }
        /* From now on it is refused: said in the log before the asker hears of it. */
#ifndef PAWL_BUG_FENCE_UNSAID
        (void)pawl_core_outcome_group(t, &c->id, 0, PAWL_E_OP_FENCED, 0, 0);
#endif
        r.result = PAWL_E_OP_FENCED;
    }
    r.horizon_wall_ms = pawl_core_horizon_ms(core);
    resolved(t, &r);
}
