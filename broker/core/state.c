/* SPDX-License-Identifier: MIT */
/* STATE: put, delete, add, assertions; check, commit, undo; replay and fact of a cell. */
#include "core/core_inner.h"

struct step {
    struct pawl_core *core;
    struct pawl_core_queue *table;
    const struct pawl_cmd_state *cmd;
    struct pawl_state_plan *plan;
    struct pawl_key key;
    uint32_t n; /* cell, 0: absent */
};

/* --- cells ----------------------------------------------------------------------------------- */

struct pawl_cell *pawl_cell_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->cells, n, sizeof(struct pawl_cell));
}

bool pawl_core_counts_hold(const struct pawl_counts *c)
{
    int64_t sum;
    if (c->reserved < 0 || c->posted < 0)
        return false;
    if ((c->reserved > 0 || c->posted > 0) && c->available < 0)
        return false;
    return !__builtin_add_overflow(c->available, c->reserved, &sum) &&
           !__builtin_add_overflow(sum, c->posted, &sum) && sum == c->granted;
}

uint32_t pawl_core_cell_fact_bytes(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_cell *cell = pawl_cell_at(core, n);
    return (uint32_t)sizeof(struct pawl_state_rec) + cell->key_bytes + cell->value_bytes;
}

/* Of a cell that is in its table. */
static uint64_t live_bytes(const struct pawl_core *core, uint32_t n)
{
    return pawl_core_cell_fact_bytes(core, n) + PAWL_RECORD_HEAD;
}

void pawl_core_cell_set(struct pawl_core *core, uint32_t n, uint8_t kind, uint32_t block,
                        uint32_t bytes, const struct pawl_counts *counts, uint64_t version)
{
    struct pawl_cell *cell = pawl_cell_at(core, n);
    struct pawl_core_queue *table = pawl_core_queue_at(core, cell->table);
    PAWL_ASSERT(pawl_core_counts_hold(counts));
    if (cell->kind != PAWL_VALUE_NONE)
        core->live -= live_bytes(core, n);
    table->state_bytes -= pawl_cell_content(cell);
    cell->kind = kind;
    cell->value = block;
    cell->value_bytes = bytes;
    cell->counts = *counts;
    cell->version = version;
    table->state_bytes += pawl_cell_content(cell);
    if (cell->kind != PAWL_VALUE_NONE)
        core->live += live_bytes(core, n);
}

/* Out of its table; what undo or give find stays. */
static void cell_out(struct pawl_core *core, uint32_t n)
{
    if (pawl_cell_at(core, n)->kind != PAWL_VALUE_NONE)
        core->live -= live_bytes(core, n);
    pawl_cell_unlink(core, n);
}

void pawl_core_cell_free(struct pawl_core *core, uint32_t n)
{
    cell_out(core, n);
    pawl_cell_give(core, n);
}

/* --- check ----------------------------------------------------------------------------------- */

struct pawl_core_queue *pawl_core_table_for(struct pawl_core *core,
                                            const struct pawl_core_peer *peer, uint64_t id,
                                            uint32_t right, int *result)
{
    struct pawl_core_queue *table = pawl_core_queue_of(core, peer, id, right, result);
    if (!table || table->options.mode == PAWL_TABLE)
        return table;
    *result = PAWL_E_NOT_SUPPORTED;
    return NULL;
}

static uint64_t value_bytes_max(const struct pawl_core *core, const struct pawl_core_queue *table)
{
    uint64_t most = pawl_min_u64(table->message_bytes_max, PAWL_STATE_BYTES_MAX);
    uint64_t record = core->options.record_bytes_max;
    uint64_t other = sizeof(struct pawl_state_rec) + PAWL_KEY_BYTES_MAX;
    return record ? pawl_min_u64(most, record > other ? record - other : 0) : most;
}

static int words_valid(struct step *s)
{
    const struct pawl_cmd_state *c = s->cmd;
    if (c->key_bytes == 0 || (c->flags & ~(PAWL_TABLE_AS_NUMBER | PAWL_TABLE_WAS_READ)) ||
        ((c->flags & PAWL_TABLE_WAS_READ) && c->op != PAWL_TABLE_IS_VERSION) ||
        ((c->flags & PAWL_TABLE_AS_NUMBER) &&
         (c->op != PAWL_TABLE_PUT || c->value_bytes != sizeof(int64_t))) ||
        (c->value_bytes != 0 && c->op != PAWL_TABLE_PUT))
        return PAWL_E_INVALID;
    s->plan->value = value_bytes_max(s->core, s->table);
    return c->value_bytes > s->plan->value ? PAWL_E_TOO_BIG : PAWL_OK;
}

static uint64_t version_of(const struct step *s)
{
    return s->n ? pawl_cell_at(s->core, s->n)->version : 0;
}

/* What it was is noted, what it becomes is set, in the plan and in the cell. */
static void change(struct step *s, uint8_t kind, uint32_t block, uint32_t bytes,
                   const struct pawl_counts *counts)
{
    struct pawl_state_plan *p = s->plan;
    const struct pawl_cell *cell = pawl_cell_at(s->core, s->n);
    p->writes = true;
    p->cell = s->n;
    p->old_kind = cell->kind;
    p->old_block = cell->value;
    p->old_bytes = cell->value_bytes;
    p->old_counts = cell->counts;
    p->old_version = cell->version;
    p->kind = kind;
    p->block = block;
    p->bytes = bytes;
    p->counts = *counts;
    p->version = pawl_core_new_id(s->core);
    pawl_core_cell_set(s->core, s->n, kind, block, bytes, counts, p->version);
}

/* May the table have `bytes` in place of what the key has? */
static int limits(struct step *s, uint64_t bytes)
{
    const struct pawl_core_queue *t = s->table;
    uint64_t had = s->n ? pawl_cell_content(pawl_cell_at(s->core, s->n)) : 0;
    uint64_t now = s->key.count + bytes;
    uint64_t limit = 0;
    if (s->core->refuse)
        limit = s->core->refuse;
    else if (s->n == 0 && t->keys >= t->messages_max)
        limit = PAWL_LIMIT_QUEUE_MESSAGES;
    else if (now > had && t->state_bytes - had + now > t->bytes_max)
        limit = PAWL_LIMIT_QUEUE_BYTES;
    s->plan->value = limit;
    return limit ? PAWL_E_FULL : PAWL_OK;
}

static int make_cell(struct step *s)
{
    if (s->n)
        return PAWL_OK;
    s->n = pawl_cell_make(s->core, s->table, s->key);
    s->plan->value = PAWL_LIMIT_MEMORY;
    s->plan->created = s->n != 0;
    return s->n ? PAWL_OK : PAWL_E_FULL;
}

static int put(struct step *s, const uint8_t *value)
{
    struct pawl_core *core = s->core;
    uint32_t bytes = s->cmd->value_bytes, block = 0;
    bool number = s->cmd->flags & PAWL_TABLE_AS_NUMBER;
    if (s->n && pawl_cell_at(core, s->n)->open)
        return PAWL_E_STATE; /* what is reserved would have nothing to go back to */
    int result = limits(s, bytes);
    if (result != PAWL_OK)
        return result;
    struct pawl_counts counts = { 0 };
    if (number) {
        memcpy(&counts.available, value, sizeof counts.available);
        counts.granted = counts.available;
    } else if (bytes) {
        block = pawl_payload_take(&core->payload, bytes);
        s->plan->value = PAWL_LIMIT_MEMORY;
        if (block == 0)
            return PAWL_E_FULL;
        memcpy(pawl_payload_at(&core->payload, block), value, bytes);
    }
    result = make_cell(s);
    if (result != PAWL_OK) {
        if (block)
            pawl_payload_give(&core->payload, block, bytes);
        return result;
    }
    change(s, number ? PAWL_VALUE_NUMBER : PAWL_VALUE_BYTES, block, number ? 0 : bytes, &counts);
    s->plan->value = s->plan->version;
    return PAWL_OK;
}

static int add(struct step *s)
{
    const struct pawl_cell *cell = s->n ? pawl_cell_at(s->core, s->n) : NULL;
    struct pawl_counts counts = { 0 };
    if (cell && cell->kind != PAWL_VALUE_NUMBER)
        return PAWL_E_STATE;
    if (cell)
        counts = cell->counts;
    s->plan->value = (uint64_t)counts.available;
    if (__builtin_add_overflow(counts.available, s->cmd->number, &counts.available) ||
        __builtin_add_overflow(counts.granted, s->cmd->number, &counts.granted) ||
#ifdef PAWL_BUG_ADD_UNBOUNDED
        counts.available > s->cmd->max ||
#else
        counts.available < s->cmd->min || counts.available > s->cmd->max ||
#endif
        !pawl_core_counts_hold(&counts))
        return PAWL_E_PRECONDITION;
    int result = limits(s, sizeof(int64_t));
    if (result == PAWL_OK)
        result = make_cell(s);
    if (result != PAWL_OK)
        return result;
    change(s, PAWL_VALUE_NUMBER, 0, 0, &counts);
    s->plan->value = (uint64_t)counts.available;
    return PAWL_OK;
}

static int delete (struct step *s)
{
    struct pawl_core *core = s->core;
    if (s->n == 0)
        return PAWL_OK_MISSING;
    if (pawl_cell_at(core, s->n)->open)
        return PAWL_E_STATE;
    s->plan->writes = s->plan->deleted = true;
    s->plan->cell = s->n;
    s->plan->version = pawl_core_new_id(core);
    cell_out(core, s->n);
    s->plan->value = 0;
    return PAWL_OK;
}

static int assertion(struct step *s)
{
    const struct pawl_cell *cell = s->n ? pawl_cell_at(s->core, s->n) : NULL;
    s->plan->value = version_of(s);
    bool holds = false;
    switch (s->cmd->op) {
    case PAWL_TABLE_IS_VERSION:
        holds = version_of(s) == s->cmd->expect;
        if (!holds && (s->cmd->flags & PAWL_TABLE_WAS_READ))
            return PAWL_E_CONFLICT;
        break;
    case PAWL_TABLE_EXISTS:
        holds = cell != NULL;
        break;
    case PAWL_TABLE_ABSENT:
        holds = cell == NULL;
        break;
    default:
        s->plan->value = 0;
        if (cell && cell->kind == PAWL_VALUE_NUMBER) {
            s->plan->value = (uint64_t)cell->counts.available;
            holds = cell->counts.available >= s->cmd->number;
        }
        break;
    }
    return holds ? PAWL_OK : PAWL_E_PRECONDITION;
}

int pawl_core_state_check(struct pawl_core *core, const struct pawl_core_peer *peer,
                          const struct pawl_cmd_state *cmd, const uint8_t *variable,
                          struct pawl_state_plan *plan)
{
    struct step s = { .core = core, .cmd = cmd, .plan = plan };
    memset(plan, 0, sizeof *plan);
    if (cmd->op < PAWL_TABLE_PUT || cmd->op >= PAWL_TABLE_OPS)
        return PAWL_E_INVALID;
    bool writes = cmd->op <= PAWL_TABLE_ADD;
    int result;
    s.table = pawl_core_table_for(core, peer, cmd->table,
                                  writes ? PAWL_RIGHT_SEND : PAWL_RIGHT_RECEIVE, &result);
    if (s.table)
        result = words_valid(&s);
    if (result != PAWL_OK)
        return result;
    uint8_t key[PAWL_KEY_BYTES_MAX];
    memcpy(key, variable, cmd->key_bytes);
    s.key = (struct pawl_key){ key, cmd->key_bytes };
    s.n = pawl_cell_find(core, s.table, s.key);
    if (!writes)
        return assertion(&s);
    plan->value = version_of(&s);
#ifndef PAWL_BUG_CAS_IGNORED
    if (cmd->expect != UINT64_MAX && cmd->expect != plan->value)
        return PAWL_E_PRECONDITION;
#endif
    if (cmd->op == PAWL_TABLE_PUT)
        return put(&s, variable + cmd->key_bytes);
    return cmd->op == PAWL_TABLE_ADD ? add(&s) : delete (&s);
}

/* --- commit, undo ---------------------------------------------------------------------------- */

static uint64_t write_record(struct pawl_core *core, const struct pawl_state_plan *p,
                             const struct pawl_op_rec *op)
{
    const struct pawl_cell *cell = pawl_cell_at(core, p->cell);
    const struct pawl_core_queue *table = pawl_core_queue_at(core, cell->table);
    struct pawl_state_rec r = {
        .table = table->id,
        .version = p->version,
        .result = p->value,
        .counts = p->counts,
        .kind = p->kind,
        .key_bytes = cell->key_bytes,
    };
    if (op)
        r.op = *op;
    r.op.extra = p->bytes;
    uint64_t lsn;
    uint8_t *out = pawl_core_append(core, PAWL_RECORD_STATE,
                                    (uint32_t)sizeof r + cell->key_bytes + p->bytes, &lsn);
    memcpy(out, &r, sizeof r);
    memcpy(out + sizeof r, pawl_payload_at(&core->payload, cell->key), cell->key_bytes);
    if (p->bytes)
        memcpy(out + sizeof r + cell->key_bytes, pawl_payload_at(&core->payload, p->block),
               p->bytes);
    return lsn;
}

uint32_t pawl_core_state_bytes(const struct pawl_core *core, const struct pawl_state_plan *p)
{
    if (!p->writes)
        return 0;
    uint32_t key = p->cell ? pawl_cell_at(core, p->cell)->key_bytes : 0;
    return p->reservation ? (uint32_t)sizeof(struct pawl_reservation_rec) + key
                          : (uint32_t)sizeof(struct pawl_state_rec) + key + p->bytes;
}

uint64_t pawl_core_state_commit(struct pawl_core *core, struct pawl_state_plan *p,
                                const struct pawl_op_rec *op)
{
    if (!p->writes)
        return 0;
    if (p->reservation)
        return pawl_core_reserve_commit(core, p, op);
    uint64_t lsn = write_record(core, p, op);
    if (p->deleted) {
        pawl_cell_give(core, p->cell);
    } else {
        if (p->old_block)
            pawl_payload_give(&core->payload, p->old_block, p->old_bytes);
        pawl_core_home_set(core, PAWL_KIND_STATE, p->cell, lsn);
    }
    p->writes = false;
    return lsn;
}

void pawl_core_state_undo(struct pawl_core *core, struct pawl_state_plan *p)
{
    if (!p->writes)
        return;
    p->writes = false;
    if (p->reservation) {
        pawl_core_reserve_undo(core, p);
        return;
    }
    if (p->deleted) {
        pawl_cell_link(core, p->cell);
        core->live += live_bytes(core, p->cell);
        return;
    }
    if (p->created) {
        pawl_core_cell_free(core, p->cell);
        return;
    }
    if (p->block)
        pawl_payload_give(&core->payload, p->block, p->bytes);
    pawl_core_cell_set(core, p->cell, p->old_kind, p->old_block, p->old_bytes, &p->old_counts,
                       p->old_version);
}

/* --- alone ----------------------------------------------------------------------------------- */

uint64_t pawl_core_state_need(const struct pawl_cmd *head)
{
    if (head->type == PAWL_CMD_STATE)
        return sizeof(struct pawl_state_rec) + PAWL_RECORD_HEAD + 8 + head->bytes;
    return PAWL_EXPIRE_ROOM;
}

bool pawl_core_state_fits(uint16_t type, const void *fixed, uint32_t variable_bytes)
{
    uint64_t bytes;
    if (type == PAWL_CMD_STATE) {
        const struct pawl_cmd_state *c = fixed;
        bytes = (uint64_t)c->key_bytes + c->value_bytes;
    } else if (type == PAWL_CMD_STATE_SCAN) {
        const struct pawl_cmd_state_scan *c = fixed;
        bytes = (uint64_t)c->key_bytes + c->after_bytes;
    } else {
        const struct pawl_cmd_reserve *c = fixed;
        bytes = c->key_bytes;
    }
    return bytes <= variable_bytes && variable_bytes - bytes < 8;
}

void pawl_core_state_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_state_plan plan;
    int result =
        t->type == PAWL_CMD_STATE
            ? pawl_core_state_check(core, &t->session->peer, t->fixed, t->variable, &plan)
            : pawl_core_reserve_check(core, &t->session->peer, t->fixed, t->variable, &plan);
    if (!plan.writes) {
        pawl_core_take_answer(t, result, plan.value, pawl_core_appended(core));
        return;
    }
    struct pawl_op_rec op;
    uint64_t value = plan.value;
    pawl_core_lane_log(core, t->lane);
    pawl_core_lane_op(core, t->lane, t->seq, &op);
    uint64_t lsn = pawl_core_state_commit(core, &plan, &op);
    pawl_core_lane_answer(core, t->lane, t->seq, PAWL_OK, value, lsn, pawl_core_appended(core), 0);
}

/* --- log ------------------------------------------------------------------------------------- */

int pawl_core_state_replay(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    const struct pawl_state_rec *r = &v->state;
    struct pawl_core_queue *table = pawl_core_queue_known(core, r->table);
    static const struct pawl_counts none;
    if (!table || !pawl_core_counts_hold(&r->counts) ||
        (r->kind != PAWL_VALUE_NUMBER && memcmp(&r->counts, &none, sizeof none) != 0))
        return -1;
    pawl_core_window_apply(core, &v->op, PAWL_OK, r->result, lsn, PAWL_WINDOW_SET);
    struct pawl_key key = { v->rest, r->key_bytes };
    uint32_t n = pawl_cell_find(core, table, key);
    if (n && pawl_cell_at(core, n)->open && r->kind != PAWL_VALUE_NUMBER)
        return -1; /* it was refused then */
    if (r->kind == PAWL_VALUE_NONE) {
        if (n)
            pawl_core_cell_free(core, n);
        return 0;
    }
    uint32_t bytes = r->op.extra, block = 0;
    if (n == 0)
        n = pawl_cell_make(core, table, key);
    if (bytes)
        block = pawl_payload_take(&core->payload, bytes);
    if (n == 0 || (bytes && block == 0))
        return -1;
    struct pawl_cell *cell = pawl_cell_at(core, n);
    uint32_t old = cell->value, old_bytes = cell->value_bytes;
    if (bytes)
        memcpy(pawl_payload_at(&core->payload, block), v->rest + r->key_bytes, bytes);
    pawl_core_cell_set(core, n, r->kind, block, bytes, &r->counts, r->version);
    if (old)
        pawl_payload_give(&core->payload, old, old_bytes);
    pawl_core_home_set(core, PAWL_KIND_STATE, n, lsn);
    return 0;
}

void pawl_core_cell_fact(struct pawl_core *core, uint32_t n)
{
    const struct pawl_cell *cell = pawl_cell_at(core, n);
    const struct pawl_state_plan p = {
        .cell = n,
        .version = cell->version,
        .counts = cell->counts,
        .kind = cell->kind,
        .block = cell->value,
        .bytes = cell->value_bytes,
    };
    pawl_core_home_set(core, PAWL_KIND_STATE, n, write_record(core, &p, NULL));
}
