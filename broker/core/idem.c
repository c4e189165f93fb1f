/* SPDX-License-Identifier: MIT */
/* IDEM: begin, complete, abandon, progress, read; replay and fact of an entry. */
#include "core/idem.h"

#include "core/core_inner.h"

struct pawl_core_idem *pawl_core_idem_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->idems, n, sizeof(struct pawl_core_idem));
}

static struct pawl_core_idem *at(const struct pawl_core *core, uint32_t n)
{
    return pawl_core_idem_at(core, n);
}

/* --- entries --------------------------------------------------------------------------------- */

static uint32_t find(const struct pawl_core *core, uint64_t id, uint64_t id_high)
{
    uint32_t n = pawl_table_find(&core->idems_by_id, id);
    while (n && at(core, n)->id_high != id_high)
        n = pawl_table_find_next(&core->idems_by_id, n);
    return n;
}

/* 0: no memory. */
static uint32_t make(struct pawl_core *core, struct pawl_core_queue *table, uint64_t id,
                     uint64_t id_high)
{
    uint32_t n = pawl_pool_take(&core->idems);
    if (n == 0)
        return 0;
    struct pawl_core_idem *e = at(core, n);
    e->id = id;
    e->id_high = id_high;
    e->table = table->number;
    pawl_table_insert(&core->idems_by_id, id, n);
    table->idems++;
    return n;
}

static void leave_session(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_idem *e = at(core, n);
    if (e->session == 0)
        return;
    struct pawl_core_session *s = pawl_core_session_at(core, e->session);
    if (e->prev)
        at(core, e->prev)->next = e->next;
    else
        s->idems_first = e->next;
    if (e->next)
        at(core, e->next)->prev = e->prev;
    s->idems_count--;
    e->session = e->next = e->prev = 0;
}

static void enter_session(struct pawl_core *core, uint32_t n, uint64_t id)
{
    struct pawl_core_session *s = pawl_core_session_make(core, id);
    if (!s) {
        core->damaged = true; /* no memory: only a replay meets one that is not there */
        return;
    }
    struct pawl_core_idem *e = at(core, n);
    e->session = s->number;
    e->prev = 0;
    e->next = s->idems_first;
    if (e->next)
        at(core, e->next)->prev = n;
    s->idems_first = n;
    s->idems_count++;
}

uint32_t pawl_core_idem_fact_bytes(const struct pawl_core *core, uint32_t n)
{
    return (uint32_t)sizeof(struct pawl_idem_rec) + at(core, n)->bytes;
}

static uint64_t live_bytes(const struct pawl_core *core, uint32_t n)
{
    return at(core, n)->state == PAWL_IDEM_NONE
               ? 0
               : pawl_core_idem_fact_bytes(core, n) + PAWL_RECORD_HEAD;
}

static void give_block(struct pawl_core *core, uint32_t block, uint32_t bytes)
{
    if (block)
        pawl_payload_give(&core->payload, block, bytes);
}

void pawl_core_idem_free(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_idem *e = at(core, n);
    core->live -= live_bytes(core, n);
    leave_session(core, n);
    pawl_timer_destroy(&core->wheel, e->timer);
    pawl_core_home_set(core, PAWL_KIND_IDEM, n, 0);
    pawl_table_remove(&core->idems_by_id, e->id, n);
    pawl_core_queue_at(core, e->table)->idems--;
    give_block(core, e->block, e->bytes);
    e->table = 0;
    e->state = PAWL_IDEM_NONE;
    pawl_pool_give(&core->idems, n);
}

static bool over(const struct pawl_core *core, const struct pawl_core_idem *e)
{
    return e->end <= core->now.time;
}

static bool worked_on(const struct pawl_core *core, const struct pawl_core_idem *e)
{
    return e->state == PAWL_IDEM_IN_PROGRESS && !over(core, e);
}

/* --- record and apply ------------------------------------------------------------------------ */

/* As it is: what changes is written over it. */
static struct pawl_idem_rec record_of(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    struct pawl_idem_rec r = {
        .op.extra = e->bytes,
        .table = pawl_core_queue_at(core, e->table)->id,
        .id = e->id,
        .id_high = e->id_high,
        .hash = e->hash,
        .grant = e->grant,
        .random = e->random,
        .since = e->since,
        .end = e->end,
        .lease_ns = e->lease_ns,
        .retain_ns = e->retain_ns,
        .lsn = e->lsn,
        .seq = e->seq,
        .code = e->code,
        .attempts = e->attempts,
        .pid = e->pid,
        .uid = e->uid,
        .lane = e->lane,
        .state = e->state,
    };
    if (e->session)
        r.session = pawl_core_session_at(core, e->session)->id;
    return r;
}

/* The entry becomes what the record says; block holds the bytes behind it. */
static void apply(struct pawl_core *core, uint32_t n, const struct pawl_idem_rec *r, uint32_t block,
                  uint64_t lsn)
{
    struct pawl_core_idem *e = at(core, n);
    core->live -= live_bytes(core, n);
    leave_session(core, n);
    if (e->block != block)
        give_block(core, e->block, e->bytes);
    e->hash = r->hash;
    e->grant = r->grant;
    e->random = r->random;
    e->since = r->since;
    e->end = r->end;
    e->lease_ns = r->lease_ns;
    e->retain_ns = r->retain_ns;
    e->seq = r->seq;
    e->block = block;
    e->bytes = r->op.extra;
    e->attempts = r->attempts;
    e->pid = r->pid;
    e->uid = r->uid;
    e->code = r->code;
    e->lane = r->lane;
    e->state = r->state;
    e->lsn = 0;
    if (e->state == PAWL_IDEM_DONE || e->state == PAWL_IDEM_FAILED)
        e->lsn = r->lsn ? r->lsn : lsn;
    if (e->state == PAWL_IDEM_IN_PROGRESS && r->session)
        enter_session(core, n, r->session);
    core->live += live_bytes(core, n);
    pawl_core_home_set(core, PAWL_KIND_IDEM, n, lsn);
    if (core->started)
        pawl_timer_arm(&core->wheel, e->timer, e->end);
}

static uint64_t append(struct pawl_core *core, const struct pawl_idem_rec *r, uint32_t block)
{
    uint64_t lsn;
    uint8_t *out =
        pawl_core_append(core, PAWL_RECORD_IDEM, (uint32_t)sizeof *r + r->op.extra, &lsn);
    memcpy(out, r, sizeof *r);
    if (r->op.extra)
        memcpy(out + sizeof *r, pawl_payload_at(&core->payload, block), r->op.extra);
    return lsn;
}

static uint64_t write_record(struct pawl_core *core, uint32_t n, struct pawl_idem_rec *r,
                             uint32_t block, const struct pawl_op_rec *op)
{
    uint32_t extra = r->op.extra;
    if (op)
        r->op = *op;
    r->op.extra = extra;
    uint64_t lsn = append(core, r, block);
    apply(core, n, r, block, lsn);
    return lsn;
}

/* What was kept of the work stays: the next one is told. */
static void abandon_rec(const struct pawl_core *core, struct pawl_idem_rec *r)
{
    r->state = PAWL_IDEM_ABANDONED;
    r->session = 0;
    r->since = core->now.time;
    r->end = pawl_add_sat(core->now.time, r->retain_ns);
}

static uint64_t abandon(struct pawl_core *core, uint32_t n, const struct pawl_op_rec *op)
{
    struct pawl_idem_rec r = record_of(core, n);
    abandon_rec(core, &r);
    return write_record(core, n, &r, at(core, n)->block, op);
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
    *value = worked_on(core, e) ? e->pid : 0;
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
    return worked_on(core, e) ? PAWL_OK : PAWL_E_LEASE_LOST;
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
    return find(t->core, *id, *id_high);
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
    if (n == 0)
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
        return abandon(core, p->n, op);
    struct pawl_idem_rec r = record_of(core, p->n);
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
    return write_record(core, p->n, &r, p->block, op);
}

void pawl_core_idem_undo(struct pawl_idem_plan *p)
{
    struct pawl_core *core = p->take->core;
    if (p->n == 0)
        return;
    at(core, p->n)->planned = false;
    give_block(core, p->block, p->bytes);
    p->n = 0;
}

/* --- answers with what is known -------------------------------------------------------------- */

static uint64_t left_ns(const struct pawl_core *core, const struct pawl_core_idem *e)
{
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
    pawl_core_lane_answer_data(core, t->lane, t->seq, block, (uint32_t)(sizeof d + have), e->grant,
                               wait);
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
        n = make(core, table, id, id_high);
        PAWL_ASSERT(n != 0);
        at(core, n)->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_IDEM, n);
        PAWL_ASSERT(at(core, n)->timer != 0);
    }
    struct pawl_op_rec op;
    pawl_core_lane_log(core, t->lane);
    pawl_core_lane_op(core, t->lane, t->seq, &op);
    struct pawl_idem_rec r = record_of(core, n);
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
    (void)write_record(core, n, &r, at(core, n)->block, &op);
    answer(t, n, PAWL_IDEM_FIRST, 0, block, data);
}

static void begin(struct pawl_take *t, struct pawl_core_queue *table)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    uint64_t id, id_high;
    uint32_t n = find_key(t, &id, &id_high);
    if (n && at(core, n)->state != PAWL_IDEM_IN_PROGRESS && over(core, at(core, n))) {
        pawl_core_idem_free(core, n); /* its timer is late */
        n = 0;
    }
    const struct pawl_core_idem *e = n ? at(core, n) : NULL;
    if (e && e->hash != c->hash) {
        pawl_core_take_answer(t, PAWL_E_IDEM_MISMATCH, e->hash, pawl_core_appended(core));
        return;
    }
    if (e && worked_on(core, e)) {
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

static void read_key(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_idem *c = t->fixed;
    uint64_t id, id_high;
    uint32_t n = find_key(t, &id, &id_high);
    const struct pawl_core_idem *e = n ? at(core, n) : NULL;
    uint8_t state = e ? e->state : PAWL_IDEM_NONE;
    if (e && over(core, e)) {
        state = state == PAWL_IDEM_IN_PROGRESS ? PAWL_IDEM_ABANDONED : PAWL_IDEM_NONE;
    }
    if (state == PAWL_IDEM_NONE)
        pawl_core_take_answer(t, PAWL_OK_MISSING, 0, pawl_core_appended(core));
    else if (c->grant && c->grant != e->grant)
        pawl_core_take_answer(t, PAWL_E_CONFLICT, 0, pawl_core_appended(core));
    else
        tell(t, n, state, c->offset);
}

/* Refused since its time is over, which no timer has said yet: it is said now, before the owner is
 * told, or he would have his full time again after a crash. */
static void say_over(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    uint64_t id, id_high;
    uint32_t n = find_key(t, &id, &id_high);
    const struct pawl_core_idem *e = n ? at(core, n) : NULL;
    if (!e || e->state != PAWL_IDEM_IN_PROGRESS || !over(core, e))
        return;
    pawl_core_lane_log(core, t->lane);
    (void)abandon(core, n, NULL);
}

static void take_plan(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_idem_plan p;
    int result = pawl_core_idem_check(t, &p);
#ifndef PAWL_BUG_IDEM_OVER_UNSAID
    if (result == PAWL_E_LEASE_LOST)
        say_over(t);
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

/* --- log ------------------------------------------------------------------------------------- */

int pawl_core_idem_replay(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    const struct pawl_idem_rec *r = &v->idem;
    struct pawl_core_queue *table = pawl_core_queue_known(core, r->table);
    if (!table)
        return -1;
    pawl_core_window_apply(core, &v->op, PAWL_OK, 0, lsn,
                           r->flags & PAWL_RECORD_BEGUN ? PAWL_WINDOW_TOUCH : PAWL_WINDOW_SET);
    uint32_t n = find(core, r->id, r->id_high);
    if (n && at(core, n)->table != table->number)
        return -1; /* the table is part of the name */
    if (n == 0)
        n = make(core, table, r->id, r->id_high);
    uint32_t bytes = r->op.extra, block = bytes ? pawl_payload_take(&core->payload, bytes) : 0;
    if (n == 0 || (bytes && block == 0))
        return -1;
    if (bytes)
        memcpy(pawl_payload_at(&core->payload, block), v->rest, bytes);
    apply(core, n, r, block, lsn);
    return 0;
}

void pawl_core_idem_fact(struct pawl_core *core, uint32_t n)
{
    struct pawl_idem_rec r = record_of(core, n);
    pawl_core_home_set(core, PAWL_KIND_IDEM, n, append(core, &r, at(core, n)->block));
}

/* --- time, ends ------------------------------------------------------------------------------ */

int pawl_core_idem_start(struct pawl_core *core)
{
    for (uint32_t n = 1; n < core->idems.never_used; n++) {
        struct pawl_core_idem *e = at(core, n);
        if (e->state == PAWL_IDEM_NONE)
            continue;
        if (pawl_core_queue_at(core, e->table)->options.mode != PAWL_TABLE)
            return -1;
        if (e->state == PAWL_IDEM_IN_PROGRESS) {
            e->end = pawl_add_sat(core->now.time, e->lease_ns);
        } else if (over(core, e)) {
            pawl_core_idem_free(core, n);
            continue;
        }
        e->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_IDEM, n);
        if (e->timer == 0)
            return -1;
        pawl_timer_arm(&core->wheel, e->timer, e->end);
    }
    return 0;
}

void pawl_core_idem_timer(struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    if (pawl_core_queue_at(core, e->table)->gone)
        return;
    if (e->state != PAWL_IDEM_IN_PROGRESS)
        pawl_core_idem_free(core, n);
    else if (pawl_core_has_room(core, PAWL_IDEM_ROOM))
        (void)abandon(core, n, NULL);
    else /* until then the deadline itself refuses its owner */
        pawl_timer_arm(&core->wheel, e->timer, core->now.time + 100 * PAWL_NS_MS);
}

void pawl_core_idem_session_end(struct pawl_core *core, struct pawl_core_session *s, uint64_t time)
{
#ifdef PAWL_BUG_IDEM_DEAD_OWNER
    for (uint32_t n = s->idems_first; n; n = s->idems_first)
        leave_session(core, n);
#endif
    while (s->idems_first) {
        uint32_t n = s->idems_first;
        struct pawl_core_idem *e = at(core, n);
        leave_session(core, n);
        e->state = PAWL_IDEM_ABANDONED;
        e->since = time;
        e->end = pawl_add_sat(time, e->retain_ns);
        if (core->started)
            pawl_timer_arm(&core->wheel, e->timer, e->end);
    }
}

void pawl_core_idem_lane_gone(struct pawl_core *core, const struct pawl_core_session *s,
                              uint32_t lane)
{
    for (uint32_t n = s->idems_first; n; n = at(core, n)->next)
        if (at(core, n)->lane == lane)
            at(core, n)->seq = 0;
}

bool pawl_core_idem_sweep(struct pawl_core *core, struct pawl_core_queue *table, uint32_t *budget)
{
    while (table->idems && *budget > 0) {
        if (++table->sweep_at >= core->idems.never_used)
            table->sweep_at = 1;
        --*budget;
        if (at(core, table->sweep_at)->table == table->number)
            pawl_core_idem_free(core, table->sweep_at);
    }
    return table->idems == 0;
}

/* --- digest and invariants ------------------------------------------------------------------- */

static uint64_t digest_one(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    const struct pawl_core_queue *table = pawl_core_queue_at(core, e->table);
    bool open = e->state == PAWL_IDEM_IN_PROGRESS;
    if (table->gone || (!open && over(core, e)))
        return 0;
    const uint64_t words[] = {
        e->id,
        e->id_high,
        table->id,
        e->hash,
        e->grant,
        e->random,
        e->since,
        open ? 0 : e->end,
        e->lease_ns,
        e->retain_ns,
        e->lsn,
        e->session ? pawl_core_session_at(core, e->session)->id : 0,
        (uint64_t)e->pid << 32 | e->uid,
        (uint64_t)(uint32_t)e->code << 32 | e->attempts,
        e->state,
        e->bytes ? pawl_hash64(pawl_payload_at(&core->payload, e->block), e->bytes, 1) : 0,
    };
    return pawl_hash64(words, sizeof words, core->options.hash_seed);
}

uint64_t pawl_core_idem_digest(const struct pawl_core *core)
{
    uint64_t sum = 0;
    for (uint32_t n = 1; n < core->idems.never_used; n++)
        if (at(core, n)->state != PAWL_IDEM_NONE)
            sum += digest_one(core, n);
    return sum;
}

static void verify_one(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    PAWL_ASSERT_REL(find(core, e->id, e->id_high), ==, n);
    PAWL_ASSERT_REL((e->block != 0), ==, (e->bytes != 0));
    PAWL_ASSERT_REL(e->attempts, >, 0);
    PAWL_ASSERT(!e->planned);
    PAWL_ASSERT(e->session == 0 || e->state == PAWL_IDEM_IN_PROGRESS);
    PAWL_ASSERT(e->home.segment != 0 || pawl_core_queue_at(core, e->table)->gone);
    PAWL_ASSERT(!core->started || pawl_core_queue_at(core, e->table)->gone ||
                pawl_timer_armed(&core->wheel, e->timer));
}

uint64_t pawl_core_idem_verify(const struct pawl_core *core)
{
    uint64_t live = 0, count = 0, owned = 0, in_tables = 0, in_sessions = 0;
    for (uint32_t n = 1; n < core->idems.never_used; n++) {
        if (at(core, n)->state == PAWL_IDEM_NONE)
            continue;
        verify_one(core, n);
        live += live_bytes(core, n);
        owned += at(core, n)->session != 0;
        count++;
    }
    for (uint32_t n = 1; n < core->queues.never_used; n++)
        if (pawl_core_queue_at(core, n)->number == n)
            in_tables += pawl_core_queue_at(core, n)->idems;
    for (uint32_t i = 1; i < core->sessions.never_used; i++) {
        const struct pawl_core_session *s = pawl_core_session_at(core, i);
        uint32_t in_list = 0;
        if (s->number != i)
            continue;
        for (uint32_t n = s->idems_first; n; n = at(core, n)->next, in_list++)
            PAWL_ASSERT_REL(at(core, n)->session, ==, i);
        PAWL_ASSERT_REL(in_list, ==, s->idems_count);
        in_sessions += in_list;
    }
    PAWL_ASSERT_REL(count, ==, core->idems.used);
    PAWL_ASSERT_REL(count, ==, core->idems_by_id.entries);
    PAWL_ASSERT_REL(count, ==, in_tables);
    PAWL_ASSERT_REL(owned, ==, in_sessions);
    return live;
}
