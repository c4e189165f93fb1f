/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_state.h"

/* What clients ask of the table, and the life of its model. The choices come from a generator of
 * their own, so that a seed without a table runs as it did. */

static uint64_t below(struct sim_state *s, uint64_t n) { return pawl_prng_below(&s->rng, n); }
static bool one_in(struct sim_state *s, uint64_t n) { return below(s, n) == 0; }

/* --- what clients ask ------------------------------------------------------------------------ */

struct sim_op *sim_state_submit(struct sim *w, struct sim_lane *lane, struct sim_thing *t,
                                uint16_t type, const void *fixed, uint32_t fixed_bytes,
                                const void *variable, uint32_t bytes)
{
    struct sim_op *op = sim_op_create(w, lane, type, fixed_bytes, bytes);
    const size_t head = sizeof(struct pawl_cmd);
    memcpy(op->command + head, (const uint8_t *)fixed + head, fixed_bytes - head);
    if (bytes)
        memcpy(op->command + fixed_bytes, variable, bytes);
    op->thing = t;
    if (t)
        t->open_ops++;
    sim_lane_submit(w, lane, op);
    return op;
}

static void submit_write(struct sim *w, struct sim_lane *lane, struct sim_thing *t)
{
    struct sim_state *s = w->state;
    static const uint8_t ops[] = { PAWL_TABLE_PUT,    PAWL_TABLE_PUT, PAWL_TABLE_PUT,
                                   PAWL_TABLE_DELETE, PAWL_TABLE_ADD, PAWL_TABLE_ADD,
                                   PAWL_TABLE_ADD,    PAWL_TABLE_GE,  PAWL_TABLE_EXISTS,
                                   PAWL_TABLE_ABSENT };
    uint8_t words[2 + 512];
    struct pawl_cmd_state c = { .table = s->table.id, .expect = UINT64_MAX, .key_bytes = 2 };
    c.op = ops[below(s, sizeof ops)];
    c.number = c.op == PAWL_TABLE_GE ? (int64_t)below(s, 20) : (int64_t)below(s, 11) - 5;
    c.min = one_in(s, 2) ? 0 : -1000;
    c.max = one_in(s, 2) ? 10 : 1000000;
    uint32_t expect_write = 0;
    if (c.op <= PAWL_TABLE_DELETE && one_in(s, 2)) {
        expect_write = one_in(s, 3) ? 0 : t->last;
        c.expect = expect_write ? w->ops[expect_write - 1]->version : 0;
    }
    memcpy(words, t->name, 2);
    int64_t number = w->op_count + 1; /* of this operation: so a value tells its write */
    if (c.op == PAWL_TABLE_PUT && one_in(s, 3)) {
        c.flags = PAWL_TABLE_AS_NUMBER;
        c.value_bytes = sizeof number;
        memcpy(words + 2, &number, sizeof number);
    } else if (c.op == PAWL_TABLE_PUT) {
        c.value_bytes = (uint32_t)below(s, 512);
        sim_body_fill(words + 2, c.value_bytes, (uint32_t)number);
    }
    struct sim_op *op =
        sim_state_submit(w, lane, t, PAWL_CMD_STATE, &c, sizeof c, words, 2 + c.value_bytes);
    op->expect_write = expect_write;
}

static void submit_read(struct sim *w, struct sim_lane *lane, struct sim_thing *t)
{
    struct pawl_cmd_state_scan c = { .table = w->state->table.id };
    c.op = t->id ? PAWL_TABLE_RESERVATION : PAWL_TABLE_GET;
    uint8_t id[16] = { 0 };
    memcpy(id, &t->id, sizeof t->id);
    c.key_bytes = t->id ? 16 : 2;
    (void)sim_state_submit(w, lane, t, PAWL_CMD_STATE_SCAN, &c, sizeof c,
                           t->id ? (const void *)id : (const void *)t->name, c.key_bytes);
}

static void submit_page(struct sim *w, struct sim_lane *lane)
{
    struct sim_state *s = w->state;
    for (uint32_t k = 0; k < KEYS; k++)
        if (s->keys[k].open_ops >= OPEN_MAX)
            return;
    struct pawl_cmd_state_scan c = { .table = s->table.id, .max = 100, .op = PAWL_TABLE_PAGE };
    c.key_bytes = 1;
    (void)sim_state_submit(w, lane, NULL, PAWL_CMD_STATE_SCAN, &c, sizeof c, "k", 1);
    for (uint32_t k = 0; k < KEYS; k++)
        s->keys[k].open_ops++;
}

static struct sim_op *submit_stock(struct sim *w, struct sim_lane *lane)
{
    struct sim_state *s = w->state;
    if (!s->stocked) {
        const int64_t number = STOCK;
        uint8_t words[5 + sizeof number] = "stock";
        memcpy(words + 5, &number, sizeof number);
        struct pawl_cmd_state c = { .table = s->table.id, .op = PAWL_TABLE_PUT, .key_bytes = 5 };
        c.flags = PAWL_TABLE_AS_NUMBER;
        c.value_bytes = sizeof number;
        return sim_state_submit(w, lane, NULL, PAWL_CMD_STATE, &c, sizeof c, words, sizeof words);
    }
    struct pawl_cmd_state_scan c = { .table = s->table.id, .op = PAWL_TABLE_GET, .key_bytes = 5 };
    struct sim_op *op =
        sim_state_submit(w, lane, NULL, PAWL_CMD_STATE_SCAN, &c, sizeof c, "stock", 5);
    op->counts = calloc(1, sizeof *op->counts);
    if (!op->counts)
        abort();
    return op;
}

static struct sim_thing *new_reservation(struct sim *w)
{
    struct sim_state *s = w->state;
    struct sim_thing *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    s->reservations = sim_grow(s->reservations, &s->capacity, s->count, sizeof *s->reservations);
    s->reservations[s->count++] = t;
    t->id = s->count;
    snprintf(t->name, sizeof t->name, "r%u", s->count % 100000);
    t->amount = 1 + (int64_t)below(s, 20);
    sim_thing_push(s, t);
    struct sim_state_way none;
    memset(&none, 0, sizeof none);
    sim_thing_add(current(t), &none);
    t->stands[0].pos = 0;
    return t;
}

static void submit_move(struct sim *w, struct sim_lane *lane, struct sim_thing *t, uint8_t what)
{
    static const uint64_t ttls[] = { 0, SIM_MS, 100 * SIM_MS, SIM_S, 60 * SIM_S };
    struct sim_state *s = w->state;
    struct pawl_cmd_reserve c = { .table = s->table.id, .op = what };
    memcpy(c.id, &t->id, sizeof t->id);
    if (what == PAWL_RESERVE_TAKE) {
        c.amount = (uint64_t)t->amount;
        c.ttl_ns = ttls[t->id % PAWL_COUNT(ttls)];
        c.key_bytes = 5;
    } else if (what == PAWL_RESERVE_POST && one_in(s, 2)) {
        c.amount = 1 + below(s, (uint64_t)t->amount);
    }
    (void)sim_state_submit(w, lane, t, PAWL_CMD_RESERVE, &c, sizeof c, "stock", c.key_bytes);
}

void sim_state_act(struct sim *w, struct sim_lane *lane)
{
    struct sim_state *s = w->state;
    if (!s || s->table.id == 0)
        return;
    struct sim_thing *idem = &s->idems[below(s, IDEMS)];
    if (one_in(s, 6) && idem->open_ops < OPEN_MAX)
        sim_idem_act(w, lane, idem);
    if (!one_in(s, 3))
        return;
    struct sim_thing *key = &s->keys[below(s, KEYS)];
    uint64_t dice = below(s, 20);
    if (dice < 7 && key->open_ops < OPEN_MAX) {
        submit_write(w, lane, key);
    } else if (dice < 9 && key->open_ops < OPEN_MAX) {
        submit_read(w, lane, key);
    } else if (dice == 9) {
        submit_page(w, lane);
    } else if (dice == 10 && !s->stocking) {
        s->stocking = submit_stock(w, lane);
    } else if (dice < 13 && s->stocked && s->count < 400) {
        submit_move(w, lane, new_reservation(w), PAWL_RESERVE_TAKE);
    } else if (s->count) {
        uint64_t newest = pawl_min_u64(s->count, 8);
        struct sim_thing *t = s->reservations[s->count - 1 - below(s, newest)];
        if (t->open_ops >= OPEN_MAX)
            return;
        if (dice < 15)
            submit_move(w, lane, t, PAWL_RESERVE_POST);
        else if (dice < 17)
            submit_move(w, lane, t, PAWL_RESERVE_VOID);
        else if (dice < 18)
            submit_move(w, lane, t, PAWL_RESERVE_TAKE);
        else
            submit_read(w, lane, t);
    }
}

/* The operator makes the table, and looks at all of it when the faults are over. */
struct sim_queue *sim_state_wants_table(struct sim *w)
{
    struct sim_state *s = w->state;
    if (s && s->table.creating && s->table.creating->state == SIM_OP_CLOSED)
        s->table.creating = NULL;
    return s && s->table.id == 0 && !s->table.creating ? &s->table : NULL;
}

void sim_state_look(struct sim *w, struct sim_lane *lane)
{
    struct sim_state *s = w->state;
    if (!s || s->table.id == 0 || lane->open_count > 4)
        return;
    if (!s->stocking)
        s->stocking = submit_stock(w, lane);
    submit_page(w, lane);
}

/* --- life ------------------------------------------------------------------------------------ */

void sim_state_begin(struct sim *w)
{
    if (pawl_hash_u64(w->seed ^ 0x7461626c65ull) % 3 != 0)
        return;
    struct sim_state *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    w->state = s;
    s->rng.state = pawl_hash_u64(w->seed + 99);
    s->versions = sim_map_create();
    s->table.options = (struct pawl_queue_options)PAWL_QUEUE_OPTIONS_INIT;
    s->table.options.mode = PAWL_TABLE;
    s->table.options.perm = 0777;
    s->table.options.done_retention_ns = SIM_IDEM_RETAIN_NS;
    snprintf(s->table.name, sizeof s->table.name, "table");
    for (uint32_t k = 0; k < KEYS + IDEMS; k++) {
        bool idem = k >= KEYS;
        struct sim_thing *t = idem ? &s->idems[k - KEYS] : &s->keys[k];
        struct sim_state_way none;
        memset(&none, 0, sizeof none);
        t->idem = idem;
        snprintf(t->name, sizeof t->name, "%c%u", idem ? 'i' : 'k', idem ? k - KEYS : k);
        sim_thing_push(s, t);
        sim_thing_add(current(t), &none);
        t->stands[0].pos = 0;
    }
}

static void thing_free(struct sim_thing *t)
{
    while (t->stand_count > 0)
        sim_thing_drop(t, t->stand_count - 1);
    free(t->stands);
    free(t->known);
}

void sim_state_free(struct sim *w)
{
    struct sim_state *s = w->state;
    if (!s)
        return;
    for (uint32_t k = 0; k < KEYS; k++)
        thing_free(&s->keys[k]);
    for (uint32_t k = 0; k < IDEMS; k++)
        thing_free(&s->idems[k]);
    for (uint32_t i = 0; i < s->count; i++) {
        thing_free(s->reservations[i]);
        free(s->reservations[i]);
    }
    free(s->reservations);
    free(s->deeds);
    sim_map_destroy(s->versions, NULL);
    free(s);
}
