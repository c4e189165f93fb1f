/* SPDX-License-Identifier: MIT */
/* IDEM: the command: check, commit, undo; begin, read. */
#include "core/core_inner.h"

static struct pawl_core_idem *at(const struct pawl_core *core, uint32_t n)
{
    return pawl_core_idem_at(core, n);
}

/* --- check, commit, undo --------------------------------------------------------------------- */

static uint64_t bytes_max(const struct pawl_core *core)
{
    uint64_t record = core->options.record_bytes_max, other = sizeof(struct pawl_idem_rec);
    uint64_t most = PAWL_IDEM_RESULT_BYTES_MAX;
    return record ? pawl_min_u64(most, record > other ? record - other : 0) : most;
}

static int words_valid(const struct pawl_core *core, const struct pawl_cmd_idem *c, uint64_t *value)
{
    bool complete = c->op == PAWL_IDEM_OP_COMPLETE, progress = c->op == PAWL_IDEM_OP_PROGRESS;
    if (c->key_bytes == 0 || (c->flags & ~(complete ? PAWL_IDEM_FINAL_FAIL : 0u)) ||
        (c->bytes && !complete && !progress) ||
        (c->lease_ns && (c->lease_ns < PAWL_LEASE_NS_MIN || c->lease_ns > PAWL_LEASE_NS_MAX)))
        return PAWL_E_INVALID;
    *value = progress ? PAWL_IDEM_PROGRESS_BYTES_MAX : bytes_max(core);
    return c->bytes > *value ? PAWL_E_TOO_BIG : PAWL_OK;
}

/* Has he who asks the work in his hands? OK_DUPLICATE: he had, and has said this before. */
static int holds(const struct pawl_take *t, const struct pawl_core_idem *e, uint64_t *value)
{
    const struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    *value = pawl_core_idem_worked_on(core, e) ? e->pid : 0;
#ifndef PAWL_BUG_IDEM_OLD_OWNER
    if (e->grant != c->grant || e->random != c->random || e->uid != t->session->peer.uid)
        return PAWL_E_LEASE_LOST;
#endif
    if (e->state == PAWL_IDEM_DONE || e->state == PAWL_IDEM_FAILED) {
        bool same =
            c->op == PAWL_IDEM_OP_COMPLETE && c->code == e->code && c->bytes == e->bytes &&
            (c->flags != 0) == (e->state == PAWL_IDEM_FAILED) &&
            (c->bytes == 0 || memcmp(t->variable + c->key_bytes,
                                     pawl_payload_at(&core->payload, e->block), c->bytes) == 0);
        return same ? PAWL_OK_DUPLICATE : PAWL_E_STATE;
    }
#ifdef PAWL_BUG_IDEM_LATE_COMPLETE
    return e->state == PAWL_IDEM_IN_PROGRESS ? PAWL_OK : PAWL_E_LEASE_LOST;
#endif
    return pawl_core_idem_worked_on(core, e) ? PAWL_OK : PAWL_E_LEASE_LOST;
}

static int take_bytes(struct pawl_take *t, struct pawl_idem_plan *p)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    bool small = c->bytes <= PAWL_IDEM_SMALL_BYTES;
    p->value = core->refuse;
    if (core->refuse && !small)
        return PAWL_E_FULL;
    p->value = PAWL_LIMIT_MEMORY;
    if (small) /* the work is done: to say so must go on */
        pawl_core_memory_open(core);
    p->block = c->bytes ? pawl_payload_take(&core->payload, c->bytes) : 0;
    if (small)
        pawl_core_memory_close(core);
    if (c->bytes && p->block == 0)
        return PAWL_E_FULL;
    if (c->bytes)
        memcpy(pawl_payload_at(&core->payload, p->block), t->variable + c->key_bytes, c->bytes);
    p->bytes = c->bytes;
    return PAWL_OK;
}

static struct pawl_core_queue *scope_of(struct pawl_take *t, uint32_t right, int *result)
{
    const struct pawl_cmd_idem *c = t->fixed;
    return pawl_core_table_for(t->core, &t->session->peer, c->table, right, result);
}

static uint32_t find_key(const struct pawl_take *t, uint64_t *id, uint64_t *id_high)
{
    const struct pawl_cmd_idem *c = t->fixed;
    uint8_t key[PAWL_KEY_BYTES_MAX];
    memcpy(key, t->variable, c->key_bytes);
    pawl_core_key_name(t->core, c->table, key, c->key_bytes, id, id_high);
    return pawl_core_idem_find(t->core, *id, *id_high);
}

/* Its timer may be late: what was forgotten to one caller is so to all. */
static bool forgotten(const struct pawl_core *core, uint32_t n)
{
    return at(core, n)->state != PAWL_IDEM_IN_PROGRESS && pawl_core_idem_over(core, at(core, n));
}

int pawl_core_idem_check(struct pawl_take *t, struct pawl_idem_plan *p)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    *p = (struct pawl_idem_plan){ .take = t, .lease_ns = c->lease_ns, .code = c->code };
    if (c->op < PAWL_IDEM_OP_COMPLETE || c->op > PAWL_IDEM_OP_PROGRESS)
        return PAWL_E_INVALID;
    int result;
    if (!scope_of(t, PAWL_RIGHT_SEND, &result))
        return result;
    result = words_valid(core, c, &p->value);
    if (result != PAWL_OK)
        return result;
    p->value = 0;
    uint64_t id, id_high;
    uint32_t n = find_key(t, &id, &id_high);
#ifdef PAWL_BUG_IDEM_FORGOTTEN_HALF
    if (n == 0)
#else
    if (n == 0 || forgotten(core, n))
#endif
        return PAWL_E_NOT_FOUND;
    if (at(core, n)->planned)
        return PAWL_E_INVALID; /* two steps of one transaction */
    result = holds(t, at(core, n), &p->value);
    if (result == PAWL_OK && c->op != PAWL_IDEM_OP_ABANDON)
        result = take_bytes(t, p);
    if (result != PAWL_OK)
        return result;
    p->n = n;
    p->value = 0;
    at(core, n)->planned = true;
    if (c->op == PAWL_IDEM_OP_ABANDON)
        p->state = PAWL_IDEM_ABANDONED;
    else if (c->op == PAWL_IDEM_OP_PROGRESS)
        p->state = PAWL_IDEM_IN_PROGRESS;
    else
        p->state = c->flags & PAWL_IDEM_FINAL_FAIL ? PAWL_IDEM_FAILED : PAWL_IDEM_DONE;
    return PAWL_OK;
}

uint32_t pawl_core_idem_bytes(const struct pawl_idem_plan *p)
{
    if (p->n == 0)
        return 0;
    uint32_t bytes = p->state == PAWL_IDEM_ABANDONED ? at(p->take->core, p->n)->bytes : p->bytes;
    return (uint32_t)sizeof(struct pawl_idem_rec) + bytes;
}

uint64_t pawl_core_idem_commit(struct pawl_idem_plan *p, const struct pawl_op_rec *op)
{
    struct pawl_core *core = p->take->core;
    if (p->n == 0)
        return 0;
    at(core, p->n)->planned = false;
    if (p->state == PAWL_IDEM_ABANDONED)
        return pawl_core_idem_abandon(core, p->n, op);
    struct pawl_idem_rec r = pawl_core_idem_record(core, p->n);
    r.op.extra = p->bytes;
    r.state = p->state;
    if (p->state == PAWL_IDEM_IN_PROGRESS) {
        r.lease_ns = p->lease_ns ? p->lease_ns : r.lease_ns;
        r.end = pawl_add_sat(core->now.time, r.lease_ns);
    } else {
        r.session = r.lsn = 0;
        r.code = p->code;
        r.since = core->now.time;
        r.end = pawl_add_sat(core->now.time, r.retain_ns);
    }
    return pawl_core_idem_write(core, p->n, &r, p->block, op);
}

void pawl_core_idem_undo(struct pawl_idem_plan *p)
{
    struct pawl_core *core = p->take->core;
    if (p->n == 0)
        return;
    at(core, p->n)->planned = false;
    pawl_core_idem_give(core, p->block, p->bytes);
    p->n = 0;
}

/* --- answers with what is known -------------------------------------------------------------- */

static uint64_t left_ns(const struct pawl_core *core, const struct pawl_core_idem *e)
{
    if (e->pending)
        return e->lease_ns; /* its time has not begun */
    return e->end > core->now.time ? e->end - core->now.time : 0;
}

/* Room for an answer about this entry (0: one that is to be made), taken before anything is done.
 */
static uint8_t *buffer(struct pawl_take *t, uint32_t n, uint64_t offset, uint32_t *block)
{
    uint64_t have = n ? at(t->core, n)->bytes : 0;
    have = have > offset ? have - offset : 0;
    have = pawl_min_u64(have, PAWL_DATA_BYTES_MAX - sizeof(struct pawl_idem_data));
    uint8_t *data = NULL;
    *block =
        pawl_core_data_buffer(t->core, (uint32_t)(sizeof(struct pawl_idem_data) + have), &data);
    if (*block == 0)
        pawl_core_take_answer(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY, pawl_core_appended(t->core));
    return data;
}

static void answer(struct pawl_take *t, uint32_t n, uint8_t state, uint64_t offset, uint32_t block,
                   uint8_t *data)
{
    struct pawl_core *core = t->core;
    const struct pawl_core_idem *e = at(core, n);
    bool first = state == PAWL_IDEM_FIRST;
    const struct pawl_idem_data d = {
        .hash = e->hash,
        .grant = e->grant,
        .random = first ? e->random : 0,
        .lsn = e->lsn,
        .left_ns = left_ns(core, e),
        .age_ns = core->now.time - e->since,
        .state = state,
        .code = e->code,
        .attempts = first ? e->attempts - 1 : e->attempts,
        .pid = e->pid,
        .bytes = e->bytes,
    };
    uint64_t have = e->bytes > offset ? e->bytes - offset : 0;
    have = pawl_min_u64(have, PAWL_DATA_BYTES_MAX - sizeof d);
    memcpy(data, &d, sizeof d);
    if (have)
        memcpy(data + sizeof d, (uint8_t *)pawl_payload_at(&core->payload, e->block) + offset,
               have);
    uint64_t wait = pawl_core_appended(core);
#ifdef PAWL_BUG_IDEM_TOLD_EARLY
    wait = 0;
#endif
    if (first)
        pawl_core_idem_pending(core, n);
    pawl_core_lane_answer_first(core, t->lane, t->seq, block, (uint32_t)(sizeof d + have), e->grant,
                                wait, first ? n : 0);
}

static void tell(struct pawl_take *t, uint32_t n, uint8_t state, uint64_t offset)
{
    uint32_t block;
    uint8_t *data = buffer(t, n, offset, &block);
    if (data)
        answer(t, n, state, offset, block, data);
}

/* --- begin ----------------------------------------------------------------------------------- */

/* Submitted again, and what it did is in the log. */
static bool own(const struct pawl_take *t, const struct pawl_core_idem *e)
{
    return (t->flags & PAWL_CMD_RESUBMIT) && e->session == t->session->number &&
           e->lane == t->lane->lane && e->seq == t->seq;
}

/* A limit that is met, or 0; and memory for what begin() makes. */
static uint32_t limit_met(struct pawl_take *t, const struct pawl_core_queue *table, uint32_t n,
                          int *result)
{
    struct pawl_core *core = t->core;
    *result = PAWL_E_FULL;
    if (core->refuse)
        return core->refuse;
    if (n == 0 && (!pawl_pool_ready(&core->idems, 1) || !pawl_core_timers_ready(core, 1)))
        return PAWL_LIMIT_MEMORY;
    *result = PAWL_E_QUOTA;
    if (n == 0 && table->idems >= table->messages_max)
        return PAWL_LIMIT_QUEUE_MESSAGES;
    if ((n == 0 && core->idems.used >= PAWL_IDEMS_MAX) ||
        t->session->idems_count >= PAWL_IDEMS_A_SESSION_MAX)
        return PAWL_LIMIT_LEDGER;
    return PAWL_LIMIT_NONE;
}

static void first(struct pawl_take *t, struct pawl_core_queue *table, uint32_t n, uint64_t id,
                  uint64_t id_high)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    uint32_t block;
    uint8_t *data = buffer(t, n, 0, &block);
    if (!data)
        return;
    if (n == 0) {
        n = pawl_core_idem_make(core, table, id, id_high);
        PAWL_ASSERT(n != 0);
        at(core, n)->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_IDEM, n);
        PAWL_ASSERT(at(core, n)->timer != 0);
    }
    struct pawl_op_rec op;
    pawl_core_lane_log(core, t->lane);
    pawl_core_lane_op(core, t->lane, t->seq, &op);
    struct pawl_idem_rec r = pawl_core_idem_record(core, n);
    r.hash = c->hash;
    r.grant = core->options.epoch << PAWL_EPOCH_SHIFT | ++core->next_grant;
    r.random = core->port.random(core->port.ctx);
    r.since = core->now.time;
    r.lease_ns = c->lease_ns ? c->lease_ns : table->lease_ns;
    r.retain_ns = table->retention_ns;
    r.end = pawl_add_sat(core->now.time, r.lease_ns);
    r.session = t->session->id;
    r.seq = t->seq;
    r.lane = (uint16_t)t->lane->lane;
    r.pid = t->session->peer.pid;
    r.uid = t->session->peer.uid;
    r.state = PAWL_IDEM_IN_PROGRESS;
    r.flags = PAWL_RECORD_BEGUN;
    r.attempts++;
    uint64_t lsn = pawl_core_idem_write(core, n, &r, at(core, n)->block, &op);
    answer(t, n, PAWL_IDEM_FIRST, 0, block, data);
    pawl_core_lane_entry(core, t->lane, t->seq)->lsn = lsn;
}

static void begin(struct pawl_take *t, struct pawl_core_queue *table)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    uint64_t id, id_high;
    uint32_t n = find_key(t, &id, &id_high);
    if (n && forgotten(core, n)) {
        pawl_core_idem_free(core, n);
        n = 0;
    }
    const struct pawl_core_idem *e = n ? at(core, n) : NULL;
    if (e && e->hash != c->hash) {
        pawl_core_take_answer(t, PAWL_E_IDEM_MISMATCH, e->hash, pawl_core_appended(core));
        return;
    }
    if (e && pawl_core_idem_worked_on(core, e)) {
        tell(t, n, own(t, e) ? PAWL_IDEM_FIRST : PAWL_IDEM_IN_PROGRESS, 0);
        return;
    }
    if (e && (e->state == PAWL_IDEM_DONE || e->state == PAWL_IDEM_FAILED)) {
        tell(t, n, e->state, 0);
        return;
    }
    int result;
    uint32_t limit = limit_met(t, table, n, &result);
    if (limit)
        pawl_core_take_answer(t, result, limit, pawl_core_appended(core));
    else
        first(t, table, n, id, id_high);
}

/* --- alone ----------------------------------------------------------------------------------- */

bool pawl_core_idem_fits(const struct pawl_cmd_idem *c, uint32_t variable_bytes)
{
    uint64_t bytes = (uint64_t)c->key_bytes + c->bytes;
    return bytes <= variable_bytes && variable_bytes - bytes < 8;
}

/* Its time is over, which no timer has said yet: it is said now, before anybody is told, or the
 * owner would have his full time again after a crash. */
static void say_over(struct pawl_take *t, uint32_t n)
{
    struct pawl_core *core = t->core;
    const struct pawl_core_idem *e = at(core, n);
    if (e->state != PAWL_IDEM_IN_PROGRESS || !pawl_core_idem_over(core, e))
        return;
    pawl_core_lane_log(core, t->lane);
    (void)pawl_core_idem_abandon(core, n, NULL);
}

static void read_key(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    uint64_t id, id_high;
    uint32_t n = find_key(t, &id, &id_high);
    if (n == 0 || forgotten(core, n)) {
        pawl_core_take_answer(t, PAWL_OK_MISSING, 0, pawl_core_appended(core));
        return;
    }
#ifndef PAWL_BUG_IDEM_READ_UNSAID
    if (pawl_core_has_room(core, PAWL_IDEM_ROOM)) /* else it is told as in progress, with no time */
        say_over(t, n);
    uint8_t state = at(core, n)->state;
#else
    uint8_t state =
        pawl_core_idem_over(core, at(core, n)) ? PAWL_IDEM_ABANDONED : at(core, n)->state;
#endif
    if (c->grant && c->grant != at(core, n)->grant)
        pawl_core_take_answer(t, PAWL_E_CONFLICT, 0, pawl_core_appended(core));
    else
        tell(t, n, state, c->offset);
}

static void take_plan(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_idem_plan p;
    int result = pawl_core_idem_check(t, &p);
#ifndef PAWL_BUG_IDEM_OVER_UNSAID
    uint64_t id, id_high;
    uint32_t n = result == PAWL_E_LEASE_LOST ? find_key(t, &id, &id_high) : 0;
    if (n)
        say_over(t, n);
#endif
    if (p.n == 0) {
        pawl_core_take_answer(t, result, p.value, pawl_core_appended(core));
        return;
    }
    struct pawl_op_rec op;
    pawl_core_lane_log(core, t->lane);
    pawl_core_lane_op(core, t->lane, t->seq, &op);
    uint64_t lsn = pawl_core_idem_commit(&p, &op);
    pawl_core_lane_answer(core, t->lane, t->seq, PAWL_OK, 0, lsn, pawl_core_appended(core), 0);
}

void pawl_core_idem_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    if (c->op != PAWL_IDEM_OP_BEGIN && c->op != PAWL_IDEM_OP_READ) {
        take_plan(t);
        return;
    }
    bool begins = c->op == PAWL_IDEM_OP_BEGIN;
    int result;
    uint64_t value = 0;
    struct pawl_core_queue *table =
        scope_of(t, begins ? PAWL_RIGHT_SEND : PAWL_RIGHT_RECEIVE, &result);
    if (!table && !begins && result == PAWL_E_PERM) /* who may begin is told what came of it */
        table = scope_of(t, PAWL_RIGHT_SEND, &result);
    if (table)
        result = words_valid(core, c, &value);
    /* Answers with data have no outcome that an op-id could keep. */
    if (result == PAWL_OK && core->operation.lane)
        result = PAWL_E_INVALID;
    if (result != PAWL_OK)
        pawl_core_take_answer(t, result, value, pawl_core_appended(core));
    else if (begins)
        begin(t, table);
    else
        read_key(t);
}
