/* SPDX-License-Identifier: MIT */
/* RESERVE: take, post, void, and the end by time; replay and fact of a reservation.
 *
 *   NONE --RESERVE--> OPEN --POST--> POSTED
 *                       │ --VOID--> VOIDED
 *                       └-- timer --> EXPIRED          finished ones: forgotten after 24 h
 *
 * Until its timer has fired an OPEN one is in force, however late that is: what decides is the
 * record, not the clock. */
#include "core/core_inner.h"

#define KEY_SEED 0x6b6579u /* not secret: whoever makes two keys meet confuses himself alone */
#define FORGET_A_TURN 256u

struct pawl_core_reservation *pawl_core_reservation_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->reservations, n, sizeof(struct pawl_core_reservation));
}

/* --- index ----------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct pawl_core *core, uint64_t table, const uint8_t id[16])
{
    uint8_t bytes[24];
    memcpy(bytes, &table, 8);
    memcpy(bytes + 8, id, 16);
    return pawl_hash64(bytes, sizeof bytes, core->options.hash_seed) | 1;
}

uint32_t pawl_core_reservation_find(const struct pawl_core *core,
                                    const struct pawl_core_queue *table, const uint8_t id[16])
{
    uint64_t hash = hash_of(core, table->id, id);
    uint32_t n = pawl_table_find(&core->reservations_by_id, hash);
    while (n) {
        const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
        if (r->hash == hash && r->table == table->number && memcmp(r->id, id, 16) == 0)
            return n;
        n = r->chain;
    }
    return 0;
}

/* 0: no memory. */
static uint32_t make(struct pawl_core *core, struct pawl_core_queue *table, const uint8_t id[16])
{
    if (!pawl_pool_ready(&core->reservations, 1))
        return 0;
    uint32_t n = pawl_pool_take(&core->reservations);
    struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    r->hash = hash_of(core, table->id, id);
    r->table = table->number;
    memcpy(r->id, id, sizeof r->id);
    pawl_table_insert(&core->reservations_by_id, r->hash, n);
    table->reservations++;
    return n;
}

/* --- the row of the finished ----------------------------------------------------------------- */

static void row_timer(struct pawl_core *core)
{
    if (core->started && core->finished_first && !pawl_timer_armed(&core->wheel, core->forget))
        pawl_timer_arm(&core->wheel, core->forget,
                       pawl_core_reservation_at(core, core->finished_first)->end);
}

static void row_push(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    r->prev = core->finished_last;
    r->next = 0;
    if (r->prev)
        pawl_core_reservation_at(core, r->prev)->next = n;
    else
        core->finished_first = n;
    core->finished_last = n;
    r->in_row = true;
    row_timer(core);
}

static void row_remove(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    if (!r->in_row)
        return;
    if (r->prev)
        pawl_core_reservation_at(core, r->prev)->next = r->next;
    else
        core->finished_first = r->next;
    if (r->next)
        pawl_core_reservation_at(core, r->next)->prev = r->prev;
    else
        core->finished_last = r->prev;
    r->in_row = false;
}

void pawl_core_reservations_timer(struct pawl_core *core)
{
    for (uint32_t i = 0; i < FORGET_A_TURN && core->finished_first; i++) {
        if (pawl_core_reservation_at(core, core->finished_first)->end > core->now.time)
            break;
        pawl_core_reservation_free(core, core->finished_first);
    }
    row_timer(core);
}

/* --- state ----------------------------------------------------------------------------------- */

uint32_t pawl_core_reservation_fact_bytes(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    uint32_t key = r->cell ? pawl_cell_at(core, r->cell)->key_bytes : 0;
    return (uint32_t)sizeof(struct pawl_reservation_rec) + key;
}

static uint64_t live_bytes(const struct pawl_core *core, uint32_t n)
{
    return pawl_core_reservation_fact_bytes(core, n) + PAWL_RECORD_HEAD;
}

/* cell: OPEN; else 0. */
static void set(struct pawl_core *core, uint32_t n, uint8_t state, uint64_t posted, uint64_t end,
                uint32_t cell)
{
    struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    if (r->state != PAWL_RESERVATION_NONE)
        core->live -= live_bytes(core, n);
    if (r->cell)
        pawl_cell_at(core, r->cell)->open--;
    r->state = state;
    r->posted = posted;
    r->end = end;
    r->cell = cell;
    if (cell)
        pawl_cell_at(core, cell)->open++;
    if (r->state != PAWL_RESERVATION_NONE)
        core->live += live_bytes(core, n);
}

void pawl_core_reservation_free(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    set(core, n, PAWL_RESERVATION_NONE, 0, 0, 0);
    row_remove(core, n);
    pawl_timer_destroy(&core->wheel, r->timer);
    pawl_core_home_set(core, PAWL_KIND_RESERVATION, n, 0);
    pawl_table_remove(&core->reservations_by_id, r->hash, n);
    pawl_core_queue_at(core, r->table)->reservations--;
    r->table = 0;
    pawl_pool_give(&core->reservations, n);
}

uint32_t pawl_core_reservation_current(struct pawl_core *core, const struct pawl_core_queue *table,
                                       const uint8_t id[16])
{
    uint32_t n = pawl_core_reservation_find(core, table, id);
    const struct pawl_core_reservation *r = n ? pawl_core_reservation_at(core, n) : NULL;
#ifdef PAWL_BUG_RESERVATION_BACK
    return n;
#endif
    if (!r || r->state == PAWL_RESERVATION_OPEN || r->end > core->now.time)
        return n;
    pawl_core_reservation_free(core, n);
    return 0;
}

/* --- check ----------------------------------------------------------------------------------- */

struct step {
    struct pawl_core *core;
    struct pawl_core_queue *table;
    const struct pawl_cmd_reserve *cmd;
    struct pawl_state_plan *plan;
    uint32_t n; /* reservation; 0: none */
};

/* What a reservation that is over says to all that want it. */
static int over(struct step *s)
{
    const struct pawl_core_reservation *r = pawl_core_reservation_at(s->core, s->n);
    s->plan->value = r->posted;
    switch (r->state) {
    case PAWL_RESERVATION_POSTED:
        return PAWL_E_RES_ALREADY_POSTED;
    case PAWL_RESERVATION_VOIDED:
        return PAWL_E_RES_ALREADY_VOIDED;
    default:
        return PAWL_E_RES_EXPIRED;
    }
}

/* The cell gets new counts, the reservation a new state: both are noted in the plan. */
static void change(struct step *s, uint32_t n, const struct pawl_counts *counts, uint8_t state)
{
    struct pawl_core *core = s->core;
    struct pawl_state_plan *p = s->plan;
    const struct pawl_cell *cell = pawl_cell_at(core, n);
    p->writes = true;
    p->cell = n;
    p->kind = p->old_kind = PAWL_VALUE_NUMBER;
    p->old_counts = cell->counts;
    p->old_version = cell->version;
    p->counts = *counts;
    p->version = pawl_core_new_id(core);
    p->reservation = s->n;
    p->reservation_state = state;
    p->old_end = pawl_core_reservation_at(core, s->n)->end;
    pawl_core_cell_set(core, n, PAWL_VALUE_NUMBER, 0, 0, counts, p->version);
    set(core, s->n, state, p->posted, p->end, state == PAWL_RESERVATION_OPEN ? n : 0);
    p->value = (uint64_t)counts->available;
}

/* Entry and timer of a new one. */
static uint64_t limit(const struct pawl_core *core)
{
    uint32_t max = core->options.reservations_max;
#ifdef PAWL_BUG_RESERVATIONS_UNLIMITED
    return UINT32_MAX;
#endif
    return max ? max : PAWL_RESERVATIONS_MAX;
}

/* At the limit those that are over make room, the oldest first; open ones never do. */
static int make_room(struct step *s)
{
    struct pawl_core *core = s->core;
    s->plan->value = PAWL_LIMIT_RESERVATIONS;
    if (core->reservations.used >= limit(core)) {
        if (core->finished_first == 0)
            return PAWL_E_QUOTA;
        pawl_core_reservation_free(core, core->finished_first);
    }
    s->plan->value = PAWL_LIMIT_MEMORY;
    uint32_t timer = 0;
    if (s->cmd->ttl_ns && pawl_core_timers_ready(core, 1)) /* those of leases are not for it */
        timer = pawl_timer_create(&core->wheel, PAWL_TIMER_RESERVATION, 0);
    s->n = s->cmd->ttl_ns && timer == 0 ? 0 : make(core, s->table, s->cmd->id);
    if (s->n == 0) {
        pawl_timer_destroy(&core->wheel, timer);
        return PAWL_E_FULL;
    }
    if (timer)
        pawl_timer_at(&core->wheel, timer)->owner = s->n;
    pawl_core_reservation_at(core, s->n)->timer = timer;
    s->plan->created = true;
    return PAWL_OK;
}

static int take(struct step *s, const uint8_t *variable)
{
    struct pawl_core *core = s->core;
    const struct pawl_cmd_reserve *c = s->cmd;
    uint8_t bytes[PAWL_KEY_BYTES_MAX];
    if (c->amount == 0 || c->amount > INT64_MAX || c->ttl_ns > PAWL_DELAY_NS_MAX ||
        c->key_bytes == 0)
        return PAWL_E_INVALID;
    memcpy(bytes, variable, c->key_bytes);
    struct pawl_key key = { bytes, c->key_bytes };
    uint64_t key_hash = pawl_hash64(bytes, c->key_bytes, KEY_SEED);
    uint32_t n = pawl_cell_find(core, s->table, key);
    if (s->n) {
        const struct pawl_core_reservation *r = pawl_core_reservation_at(core, s->n);
        s->plan->value = r->amount;
        if (r->amount != c->amount || r->key_hash != key_hash)
            return PAWL_E_RES_DIFFERENT_AMOUNT;
        if (r->state != PAWL_RESERVATION_OPEN)
            return over(s);
        s->plan->value = (uint64_t)pawl_cell_at(core, r->cell)->counts.available;
        return PAWL_OK_DUPLICATE;
    }
    if (n == 0)
        return PAWL_E_RES_NOT_FOUND;
    struct pawl_counts counts = pawl_cell_at(core, n)->counts;
    if (pawl_cell_at(core, n)->kind != PAWL_VALUE_NUMBER)
        return PAWL_E_STATE;
    s->plan->value = (uint64_t)counts.available;
#ifdef PAWL_BUG_RESERVE_TOO_MUCH
    if (counts.available < 1 || counts.available + 1 < (int64_t)c->amount)
        return PAWL_E_RES_SHORT;
#else
    if (counts.available < (int64_t)c->amount)
        return PAWL_E_RES_SHORT;
#endif
    s->plan->value = core->refuse;
    if (core->refuse)
        return PAWL_E_FULL;
    int result = make_room(s);
    if (result != PAWL_OK)
        return result;
    struct pawl_core_reservation *r = pawl_core_reservation_at(core, s->n);
    r->amount = c->amount;
    r->key_hash = key_hash;
    counts.available -= (int64_t)c->amount;
    counts.reserved += (int64_t)c->amount;
    s->plan->end = c->ttl_ns ? pawl_add_sat(core->now.time, c->ttl_ns) : 0;
    change(s, n, &counts, PAWL_RESERVATION_OPEN);
    return PAWL_OK;
}

/* `posted` of it stays away, the rest goes back. */
static void finish(struct step *s, uint64_t posted, uint8_t state)
{
    const struct pawl_core_reservation *r = pawl_core_reservation_at(s->core, s->n);
    struct pawl_counts counts = pawl_cell_at(s->core, r->cell)->counts;
    counts.reserved -= (int64_t)r->amount;
    counts.posted += (int64_t)posted;
#ifdef PAWL_BUG_POST_REST_LOST
    counts.granted -= (int64_t)(r->amount - posted) * (state == PAWL_RESERVATION_POSTED);
    counts.available += state == PAWL_RESERVATION_POSTED ? 0 : (int64_t)r->amount;
#else
    counts.available += (int64_t)(r->amount - posted);
#endif
    s->plan->posted = posted;
    s->plan->end = pawl_add_sat(s->core->now.time, PAWL_RESERVATION_KEEP_NS);
    change(s, r->cell, &counts, state);
}

static int post_or_void(struct step *s)
{
    bool post = s->cmd->op == PAWL_RESERVE_POST;
    if (s->n == 0)
        return PAWL_E_RES_NOT_FOUND;
    const struct pawl_core_reservation *r = pawl_core_reservation_at(s->core, s->n);
    uint64_t amount = s->cmd->amount ? s->cmd->amount : r->amount;
    if (post && r->state == PAWL_RESERVATION_POSTED && amount != r->posted && s->cmd->amount) {
        s->plan->value = r->posted;
        return PAWL_E_RES_DIFFERENT_AMOUNT;
    }
    if (r->state != PAWL_RESERVATION_OPEN)
        return over(s);
    s->plan->value = r->amount;
    if (post && amount > r->amount)
        return PAWL_E_RES_DIFFERENT_AMOUNT;
    finish(s, post ? amount : 0, post ? PAWL_RESERVATION_POSTED : PAWL_RESERVATION_VOIDED);
    return PAWL_OK;
}

int pawl_core_reserve_check(struct pawl_core *core, const struct pawl_core_peer *peer,
                            const struct pawl_cmd_reserve *cmd, const uint8_t *variable,
                            struct pawl_state_plan *plan)
{
    struct step s = { .core = core, .cmd = cmd, .plan = plan };
    memset(plan, 0, sizeof *plan);
    if (cmd->op < PAWL_RESERVE_TAKE || cmd->op >= PAWL_RESERVE_OPS)
        return PAWL_E_INVALID;
    int result;
    s.table = pawl_core_table_for(core, peer, cmd->table, PAWL_RIGHT_SEND, &result);
    if (!s.table)
        return result;
    s.n = pawl_core_reservation_current(core, s.table, cmd->id);
    return cmd->op == PAWL_RESERVE_TAKE ? take(&s, variable) : post_or_void(&s);
}

/* --- commit, undo ---------------------------------------------------------------------------- */

static uint64_t write_record(struct pawl_core *core, const struct pawl_state_plan *p,
                             const struct pawl_op_rec *op, uint32_t flags)
{
    const struct pawl_core_reservation *r = pawl_core_reservation_at(core, p->reservation);
    const struct pawl_cell *cell = p->cell ? pawl_cell_at(core, p->cell) : NULL;
    struct pawl_reservation_rec rec = {
        .table = pawl_core_queue_at(core, r->table)->id,
        .version = p->version,
        .counts = p->counts,
        .amount = r->amount,
        .posted = p->posted,
        .end = p->end,
        .key_hash = r->key_hash,
        .state = p->reservation_state,
        .key_bytes = cell ? cell->key_bytes : 0,
    };
    memcpy(rec.id, r->id, sizeof rec.id);
    if (op)
        rec.op = *op;
    rec.op.extra = flags;
    uint64_t lsn;
    uint8_t *out =
        pawl_core_append(core, PAWL_RECORD_RESERVATION, (uint32_t)sizeof rec + rec.key_bytes, &lsn);
    memcpy(out, &rec, sizeof rec);
    if (cell)
        memcpy(out + sizeof rec, pawl_payload_at(&core->payload, cell->key), cell->key_bytes);
    return lsn;
}

uint64_t pawl_core_reserve_commit(struct pawl_core *core, struct pawl_state_plan *p,
                                  const struct pawl_op_rec *op)
{
    struct pawl_core_reservation *r = pawl_core_reservation_at(core, p->reservation);
    uint64_t lsn = write_record(core, p, op, 0);
    p->writes = false;
    pawl_core_home_set(core, PAWL_KIND_STATE, p->cell, lsn);
    pawl_core_home_set(core, PAWL_KIND_RESERVATION, p->reservation, lsn);
    if (p->reservation_state == PAWL_RESERVATION_OPEN) {
        if (r->timer)
            pawl_timer_arm(&core->wheel, r->timer, p->end);
        return lsn;
    }
    pawl_timer_destroy(&core->wheel, r->timer);
    r->timer = 0;
    row_push(core, p->reservation);
    return lsn;
}

void pawl_core_reserve_undo(struct pawl_core *core, struct pawl_state_plan *p)
{
    if (p->created)
        pawl_core_reservation_free(core, p->reservation);
    else
        set(core, p->reservation, PAWL_RESERVATION_OPEN, 0, p->old_end, p->cell);
    pawl_core_cell_set(core, p->cell, PAWL_VALUE_NUMBER, 0, 0, &p->old_counts, p->old_version);
}

void pawl_core_reservation_timer(struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    struct pawl_core_queue *table = pawl_core_queue_at(core, r->table);
    if (table->gone || r->state != PAWL_RESERVATION_OPEN)
        return;
    struct pawl_state_plan plan;
    memset(&plan, 0, sizeof plan);
    struct step s = { .core = core, .table = table, .plan = &plan, .n = n };
    finish(&s, 0, PAWL_RESERVATION_EXPIRED);
    (void)pawl_core_reserve_commit(core, &plan, NULL);
}

/* --- log ------------------------------------------------------------------------------------- */

static int replay_cell(struct pawl_core *core, struct pawl_core_queue *table,
                       const struct pawl_record_view *v, uint64_t lsn, uint32_t *out)
{
    const struct pawl_reservation_rec *r = &v->reservation;
    struct pawl_key key = { v->rest, r->key_bytes };
    uint32_t n = pawl_cell_find(core, table, key);
    if (n == 0)
        n = pawl_cell_make(core, table, key);
    if (n == 0)
        return -1;
    *out = n;
    if (r->op.extra & PAWL_RECORD_COPY)
        return 0;
    if (pawl_cell_at(core, n)->value)
        return -1; /* bytes: nothing was reserved from those */
    pawl_core_cell_set(core, n, PAWL_VALUE_NUMBER, 0, 0, &r->counts, r->version);
    pawl_core_home_set(core, PAWL_KIND_STATE, n, lsn);
    return 0;
}

int pawl_core_reservation_replay(struct pawl_core *core, const struct pawl_record_view *v,
                                 uint64_t lsn)
{
    const struct pawl_reservation_rec *r = &v->reservation;
    struct pawl_core_queue *table = pawl_core_queue_known(core, r->table);
    if (!table || !pawl_core_counts_hold(&r->counts))
        return -1;
    pawl_core_window_apply(core, &v->op, PAWL_OK, (uint64_t)r->counts.available, lsn,
                           PAWL_WINDOW_SET);
    uint32_t cell = 0;
    if (r->key_bytes && replay_cell(core, table, v, lsn, &cell) != 0)
        return -1;
    bool open = r->state == PAWL_RESERVATION_OPEN;
    uint32_t n = pawl_core_reservation_find(core, table, r->id);
    if (n && open && pawl_core_reservation_at(core, n)->state != PAWL_RESERVATION_OPEN) {
        pawl_core_reservation_free(core, n); /* it was forgotten, and the id taken again */
        n = 0;
    }
    if (n == 0)
        n = make(core, table, r->id);
    if (n == 0)
        return -1;
    struct pawl_core_reservation *to = pawl_core_reservation_at(core, n);
    to->amount = r->amount;
    to->key_hash = r->key_hash;
    set(core, n, r->state, r->posted, r->end, open ? cell : 0);
    if (!open && !to->in_row)
        row_push(core, n);
    pawl_core_home_set(core, PAWL_KIND_RESERVATION, n, lsn);
    if (core->reservations.used > limit(core) && core->finished_first)
        pawl_core_reservation_free(core, core->finished_first);
    return 0;
}

void pawl_core_reservation_fact(struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    const struct pawl_state_plan p = {
        .reservation = n,
        .reservation_state = r->state,
        .cell = r->cell,
        .posted = r->posted,
        .end = r->end,
    };
    uint64_t lsn = write_record(core, &p, NULL, PAWL_RECORD_COPY);
    pawl_core_home_set(core, PAWL_KIND_RESERVATION, n, lsn);
}

/* --- start, sweep ---------------------------------------------------------------------------- */

/* Of a table that is gone anything may be missing: it was not copied forward any more when the
 * broker died, and goes with the sweep. */
bool pawl_cell_stands(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_cell *cell = pawl_cell_at(core, n);
#ifdef PAWL_BUG_GONE_TABLE_COUNTS
    return cell->priority != 0;
#endif
    return cell->priority && !pawl_core_queue_at(core, cell->table)->gone;
}

/* What the open ones have is what their numbers say is reserved: -1 where not. Each takes its
 * amount out of its cell, which leaves nothing, and puts it back. */
static int amounts_fit(struct pawl_core *core)
{
    int rc = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t n = 1; n < core->reservations.never_used; n++) {
            const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
            if (r->table == 0 || r->state != PAWL_RESERVATION_OPEN)
                continue;
            struct pawl_counts *c = &pawl_cell_at(core, r->cell)->counts;
            uint64_t amount = pass ? r->amount : 0 - r->amount;
            c->reserved = (int64_t)((uint64_t)c->reserved + amount);
        }
        for (uint32_t n = 1; pass == 0 && n < core->cells.never_used; n++)
            if (pawl_cell_stands(core, n) && pawl_cell_at(core, n)->counts.reserved != 0)
                rc = -1;
    }
    return rc;
}

int pawl_core_state_start(struct pawl_core *core)
{
    if (amounts_fit(core) != 0)
        return -1;
    core->forget = pawl_timer_create(&core->wheel, PAWL_TIMER_RESERVATIONS, 0);
    if (core->forget == 0)
        return -1;
    for (uint32_t n = 1; n < core->cells.never_used; n++) {
        const struct pawl_cell *cell = pawl_cell_at(core, n);
        if (pawl_cell_stands(core, n) &&
            (cell->kind == PAWL_VALUE_NONE ||
             pawl_core_queue_at(core, cell->table)->options.mode != PAWL_TABLE))
            return -1;
    }
    for (uint32_t n = 1; n < core->reservations.never_used; n++) {
        struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
        if (r->table == 0 || r->state != PAWL_RESERVATION_OPEN || r->end == 0)
            continue;
        r->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_RESERVATION, n);
        if (r->timer == 0)
            return -1;
        pawl_timer_arm(&core->wheel, r->timer, r->end);
    }
    row_timer(core);
    return 0;
}

bool pawl_core_state_sweep(struct pawl_core *core, struct pawl_core_queue *table, uint32_t *budget)
{
    if (!pawl_core_idem_sweep(core, table, budget))
        return false;
    while (table->reservations && *budget > 0) {
        if (++table->sweep_at >= core->reservations.never_used)
            table->sweep_at = 1;
        --*budget;
        if (pawl_core_reservation_at(core, table->sweep_at)->table == table->number)
            pawl_core_reservation_free(core, table->sweep_at);
    }
    while (table->root && *budget > 0 && table->reservations == 0) {
        --*budget;
        pawl_core_cell_free(core, table->root);
    }
    return table->reservations == 0 && table->root == 0;
}
