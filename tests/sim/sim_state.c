/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_state.h"

/* See sim_state.h. */

/* --- sets ------------------------------------------------------------------------------------ */

void sim_thing_add(struct sim_state_set *set, const struct sim_state_way *way)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (memcmp(&set->ways[i], way, sizeof *way) == 0)
            return;
    set->ways = sim_grow(set->ways, &set->capacity, set->count, sizeof *set->ways);
    set->ways[set->count++] = *way;
}

void sim_thing_replace(struct sim_state_set *set, struct sim_state_set *by)
{
    free(set->ways);
    *set = *by;
}

void sim_thing_drop(struct sim_thing *t, uint32_t i)
{
    free(t->stands[i].set.ways);
    memmove(&t->stands[i], &t->stands[i + 1], (t->stand_count - i - 1) * sizeof *t->stands);
    t->stand_count--;
}

void sim_thing_push(struct sim_state *s, struct sim_thing *t)
{
    s->moved = true;
    t->stands = sim_grow(t->stands, &t->stand_capacity, t->stand_count, sizeof *t->stands);
    struct sim_state_stand *next = &t->stands[t->stand_count];
    memset(next, 0, sizeof *next);
    next->pos = SIM_NEVER;
    for (uint32_t i = 0; t->stand_count && i < current(t)->count; i++)
        sim_thing_add(&next->set, &current(t)->ways[i]);
    t->stand_count++;
}

struct sim_state_pred *sim_thing_find_pred(struct sim_state_way *way, uint32_t op)
{
    for (uint32_t i = 0; i < PREDS; i++)
        if (way->preds[i].op == op)
            return &way->preds[i];
    return NULL;
}

/* In order of operations, so that two of the same meaning are the same bytes. */
void sim_thing_set_pred(struct sim *w, struct sim_state_way *way, const struct sim_state_pred *p)
{
    SIM_CHECK(w, way->preds[PREDS - 1].op == 0, "more open operations than the model holds");
    way->preds[PREDS - 1] = *p;
    for (uint32_t i = PREDS - 1;
         i > 0 && (way->preds[i - 1].op == 0 || way->preds[i - 1].op > way->preds[i].op); i--) {
        struct sim_state_pred swap = way->preds[i];
        way->preds[i] = way->preds[i - 1];
        way->preds[i - 1] = swap;
    }
}

void sim_thing_clear_pred(struct sim_state_way *way, struct sim_state_pred *p)
{
    uint32_t i = (uint32_t)(p - way->preds);
    memmove(&way->preds[i], &way->preds[i + 1], (PREDS - i - 1) * sizeof *p);
    memset(&way->preds[PREDS - 1], 0, sizeof *p);
}

static void dump(const struct sim_thing *t)
{
    fprintf(stderr, "--- %s, %u stands:\n", t->name, t->stand_count);
    for (uint32_t s = 0; s < t->stand_count; s++) {
        fprintf(stderr, "  pos %" PRIu64 ":\n", t->stands[s].pos);
        for (uint32_t i = 0; i < t->stands[s].set.count; i++) {
            const struct sim_state_way *way = &t->stands[s].set.ways[i];
            fprintf(stderr, "    write %u state %u number %" PRId64 " end %" PRIu64, way->write,
                    way->state, way->number, way->end);
            if (t->idem)
                fprintf(stderr, " late %" PRIu64 " hash %u said %" PRId64, way->late, way->hash,
                        way->posted);
            for (uint32_t p = 0; p < PREDS && way->preds[p].op; p++)
                fprintf(stderr, " [op %u %s check %u found %u number %" PRId64 "%s]",
                        way->preds[p].op, pawl_strname(way->preds[p].result), way->preds[p].check,
                        way->preds[p].found, way->preds[p].number,
                        way->preds[p].record ? " in log" : "");
            fprintf(stderr, "\n");
        }
    }
}

/* --- the contract ---------------------------------------------------------------------------- */

static void decide_write(const struct sim_state_way *is, struct sim_state_way *to,
                         struct sim_op *op, const struct pawl_cmd_state *c,
                         struct sim_state_pred *p)
{
    bool fits = c->expect == UINT64_MAX ||
                (c->expect == 0 ? is->write == 0 : is->write == op->expect_write);
    p->check = CHECK_VERSION;
    p->found = is->write;
    if (!fits) {
        p->result = PAWL_E_PRECONDITION;
        return;
    }
    if (c->op == PAWL_TABLE_PUT) {
        to->write = p->found = op->number;
        to->state = c->flags & PAWL_TABLE_AS_NUMBER ? PAWL_VALUE_NUMBER : PAWL_VALUE_BYTES;
        to->number = c->flags & PAWL_TABLE_AS_NUMBER ? op->number : 0;
        p->record = true;
        return;
    }
    p->check = CHECK_ZERO;
    p->found = 0;
    if (is->write == 0)
        p->result = PAWL_OK_MISSING;
    p->record = is->write != 0;
    to->write = to->state = 0;
    to->number = 0;
}

static void decide_add(const struct sim_state_way *is, struct sim_state_way *to, struct sim_op *op,
                       const struct pawl_cmd_state *c, struct sim_state_pred *p)
{
    int64_t sum = is->number + c->number;
    p->check = CHECK_NUMBER;
    p->number = is->number;
    if (is->state == PAWL_VALUE_BYTES) {
        p->result = PAWL_E_STATE;
        p->check = CHECK_ANY;
    } else if (sum < c->min || sum > c->max) {
        p->result = PAWL_E_PRECONDITION;
    } else {
        to->write = op->number;
        to->state = PAWL_VALUE_NUMBER;
        to->number = p->number = sum;
        p->record = true;
    }
}

static void decide_assert(const struct sim_state_way *is, const struct pawl_cmd_state *c,
                          struct sim_state_pred *p)
{
    bool holds = c->op == PAWL_TABLE_EXISTS ? is->write != 0 : is->write == 0;
    p->check = CHECK_VERSION;
    p->found = is->write;
    if (c->op == PAWL_TABLE_GE) {
        bool number = is->state == PAWL_VALUE_NUMBER;
        holds = number && is->number >= c->number;
        p->check = CHECK_NUMBER;
        p->number = number ? is->number : 0;
    }
    p->result = holds ? PAWL_OK : PAWL_E_PRECONDITION;
}

static int32_t result_over(uint8_t state)
{
    return state == PAWL_RESERVATION_POSTED   ? PAWL_E_RES_ALREADY_POSTED
           : state == PAWL_RESERVATION_VOIDED ? PAWL_E_RES_ALREADY_VOIDED
                                              : PAWL_E_RES_EXPIRED;
}

static void decide_move(struct sim *w, const struct sim_thing *t, const struct sim_state_way *is,
                        struct sim_state_way *to, struct sim_op *op,
                        const struct pawl_cmd_reserve *c, struct sim_state_pred *p)
{
    p->check = CHECK_ANY;
    if (c->op == PAWL_RESERVE_TAKE) {
        if (is->state == PAWL_RESERVATION_OPEN) {
            p->result = PAWL_OK_DUPLICATE;
        } else if (is->state != PAWL_RESERVATION_NONE) {
            p->result = result_over(is->state);
        } else {
            to->write = op->number;
            to->state = PAWL_RESERVATION_OPEN;
            to->end = c->ttl_ns ? w->now.time + c->ttl_ns : SIM_NEVER;
            p->record = true;
        }
        return;
    }
    bool post = c->op == PAWL_RESERVE_POST;
    int64_t amount = c->amount ? (int64_t)c->amount : t->amount;
    if (is->state == PAWL_RESERVATION_NONE) {
        p->result = PAWL_E_RES_NOT_FOUND;
    } else if (post && is->state == PAWL_RESERVATION_POSTED && c->amount && amount != is->posted) {
        p->result = PAWL_E_RES_DIFFERENT_AMOUNT;
    } else if (is->state != PAWL_RESERVATION_OPEN) {
        p->result = result_over(is->state);
    } else {
        to->state = post ? PAWL_RESERVATION_POSTED : PAWL_RESERVATION_VOIDED;
        to->posted = post ? amount : 0;
        to->number = is->number + to->posted;
        to->end = w->now.time;
        p->record = true;
    }
}

static void decide(struct sim *w, struct sim_thing *t, const struct sim_state_way *is,
                   struct sim_op *op, struct sim_state_set *out)
{
    struct sim_state_way to = *is;
    struct sim_state_pred p;
    bool may_be_full = false;
    memset(&p, 0, sizeof p);
    p.op = op->number;
    if (op->type == PAWL_CMD_STATE) {
        struct pawl_cmd_state c;
        memcpy(&c, op->command, sizeof c);
        may_be_full = c.op == PAWL_TABLE_PUT || c.op == PAWL_TABLE_ADD;
        if (c.op == PAWL_TABLE_ADD)
            decide_add(is, &to, op, &c, &p);
        else if (c.op <= PAWL_TABLE_DELETE)
            decide_write(is, &to, op, &c, &p);
        else
            decide_assert(is, &c, &p);
    } else if (op->type == PAWL_CMD_STATE_SCAN) {
        p.check = CHECK_DATA;
        p.found = is->write;
        p.number = is->state;
        if (!t->id && is->write == 0 && op->thing)
            p.result = PAWL_OK_MISSING;
        if (t->id && is->state == PAWL_RESERVATION_NONE)
            p.result = PAWL_E_RES_NOT_FOUND;
    } else {
        struct pawl_cmd_reserve c;
        memcpy(&c, op->command, sizeof c);
        may_be_full = c.op == PAWL_RESERVE_TAKE;
        decide_move(w, t, is, &to, op, &c, &p);
    }
    sim_thing_set_pred(w, &to, &p);
    sim_thing_add(out, &to);
    if (!may_be_full)
        return;
    /* Refused for want of memory, log or disk: what the sends' model knows of those is not asked.
     */
    struct sim_state_way full = *is;
    p = (struct sim_state_pred){ .op = op->number, .result = PAWL_E_FULL, .check = CHECK_ANY };
    sim_thing_set_pred(w, &full, &p);
    sim_thing_add(out, &full);
}

/* One that has been over for a day may be forgotten. */
static bool forgotten(const struct sim *w, const struct sim_thing *t,
                      const struct sim_state_way *is, struct sim_state_way *none)
{
    *none = *is;
    none->state = PAWL_RESERVATION_NONE; /* what it took stays away */
    none->write = 0;
    none->posted = 0;
    none->end = 0;
    return t->id && is->state > PAWL_RESERVATION_OPEN && w->now.time >= is->end + KEEP_NS;
}

static void take(struct sim *w, struct sim_thing *t, struct sim_op *op)
{
    if (t->idem) {
        sim_idem_take(w, t, op);
        return;
    }
    sim_thing_push(w->state, t);
    struct sim_state_set *set = current(t), out = { 0 };
    for (uint32_t i = 0; i < set->count; i++) {
        struct sim_state_way way = set->ways[i], none;
        struct sim_state_pred *p = sim_thing_find_pred(&way, op->number);
        if (p && p->record) {
            sim_thing_add(&out, &way); /* the lane's window answers */
            continue;
        }
        if (p) {
            sim_thing_add(&out, &way); /* so may a refusal be, while the broker lives */
            sim_thing_clear_pred(&way, p);
        }
        decide(w, t, &way, op, &out);
        if (forgotten(w, t, &way, &none))
            decide(w, t, &none, op, &out);
    }
    sim_thing_replace(set, &out);
}

/* --- what shows ------------------------------------------------------------------------------ */

struct shown {
    int32_t result;
    uint64_t value;
    const uint8_t *data; /* of one key: struct pawl_state_data and the value */
    uint32_t bytes;
};

/* The version belongs to this write and to no other, and fits those that are known of the key. */
static bool version_fits(const struct sim *w, const struct sim_thing *t, uint32_t write,
                         uint64_t version)
{
    if (write == 0)
        return version == 0;
    struct sim_op *op = w->ops[write - 1], *owner = sim_map_get(w->state->versions, version);
    if (version == 0 || (owner && owner != op) || (op->version && op->version != version))
        return false;
    for (uint32_t i = 0; i < t->known_count && !op->version; i++) {
        const struct sim_state_known *k = &t->known[i];
        if ((k->last < op->first_index && k->version > version) ||
            (op->index < k->first && version > k->version))
            return false;
    }
    return true;
}

static void learn(struct sim *w, struct sim_thing *t, uint32_t write, uint64_t version)
{
    struct sim_op *op = w->ops[write - 1];
    if (op->version)
        return;
    op->version = version;
    sim_map_put(w->state->versions, version, op);
    t->known = sim_grow(t->known, &t->known_capacity, t->known_count, sizeof *t->known);
    t->known[t->known_count++] = (struct sim_state_known){ op->first_index, op->index, version };
    t->last = write;
}

static bool value_fits(const struct sim *w, const struct sim_state_way *way, const struct shown *a)
{
    struct pawl_state_data d;
    memcpy(&d, a->data, sizeof d);
    if (d.kind != way->state || d.reserved != 0 || d.posted != 0)
        return false;
    if (d.kind == PAWL_VALUE_NUMBER)
        return d.number == way->number;
    const struct sim_op *op = w->ops[way->write - 1];
    struct pawl_cmd_state c;
    memcpy(&c, op->command, sizeof c);
    if (d.value_bytes != c.value_bytes)
        return false;
    /* a page has no values */
    return a->bytes == sizeof d ||
           (a->bytes == sizeof d + c.value_bytes &&
            memcmp(a->data + sizeof d, op->command + sizeof c + c.key_bytes, c.value_bytes) == 0);
}

static bool fits(const struct sim *w, const struct sim_thing *t, struct sim_state_way *way,
                 const struct sim_op *op, const struct shown *a)
{
    const struct sim_state_pred *p = sim_thing_find_pred(way, op->number);
    if (!p || p->result != a->result)
        return false;
    switch (p->check) {
    case CHECK_ZERO:
        return a->value == 0;
    case CHECK_VERSION:
        return version_fits(w, t, p->found, a->value);
    case CHECK_NUMBER:
        return a->value == (uint64_t)p->number;
    case CHECK_ANY:
        return true;
    default:
        break;
    }
    if (t->idem)
        return sim_idem_fits(w, t, p, a->data, a->bytes);
    if (t->id && a->result == PAWL_OK)
        return a->value == (uint64_t)p->number; /* the state */
    if (a->result != PAWL_OK)
        return true;
    if (p->found == 0)
        return !a->data; /* in a page it is not there */
    if (!a->data)
        return false;
    struct pawl_state_data d;
    memcpy(&d, a->data, sizeof d);
    /* The way may have changed since: what was found is asked of the write itself. */
    struct sim_state_way then = *way;
    if (then.write != p->found)
        return version_fits(w, t, p->found, d.version);
    return version_fits(w, t, p->found, d.version) && value_fits(w, &then, a);
}

static void filter(struct sim *w, struct sim_thing *t, const struct sim_op *op,
                   const struct shown *a)
{
    uint32_t found = 0, said = 0;
    uint64_t version = 0;
    for (uint32_t s = t->stand_count; s-- > 0;) {
        struct sim_state_set *set = &t->stands[s].set, kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++) {
            struct sim_state_way way = set->ways[i];
            if (!fits(w, t, &way, op, a))
                continue;
            const struct sim_state_pred *p = sim_thing_find_pred(&way, op->number);
            if (!t->id && (p->check == CHECK_VERSION || (p->check == CHECK_DATA && a->data)))
                found = found == 0 || found == p->found ? p->found : AMBIGUOUS;
            said = said == 0 || said == p->said ? p->said : AMBIGUOUS;
            sim_thing_add(&kept, &way);
        }
        if (kept.count == 0 && s + 1 == t->stand_count) {
            dump(t);
            if (a->data && t->idem) {
                struct pawl_idem_data d;
                memcpy(&d, a->data, sizeof d);
                fprintf(stderr,
                        "shown: state %u hash %" PRIx64 " grant %" PRIx64 " random %" PRIx64
                        " attempts %u pid %u lsn %" PRIu64 " bytes %u\n",
                        d.state, d.hash, d.grant, d.random, d.attempts, d.pid, d.lsn, d.bytes);
            } else if (a->data && !t->id) {
                struct pawl_state_data d;
                memcpy(&d, a->data, sizeof d);
                fprintf(stderr, "shown: version %" PRIx64 " kind %u number %" PRId64 " bytes %u\n",
                        d.version, d.kind, d.number, d.value_bytes);
            }
            for (uint32_t i = 0; i < t->known_count; i++)
                fprintf(stderr,
                        "known: decided at %" PRIu64 " to %" PRIu64 ", version %" PRIx64 "\n",
                        t->known[i].first, t->known[i].last, t->known[i].version);
            sim_fail(w, "%s: op %u %s answered %s value %" PRIx64 ", which no way allows", t->name,
                     op->number, sim_type_name(op->type), pawl_strname(a->result), a->value);
        }
        if (kept.count == 0)
            sim_thing_drop(t, s);
        else
            sim_thing_replace(set, &kept);
    }
    if (t->idem) {
        if (a->data)
            sim_idem_learn(w, t, found, said, a->data);
        return;
    }
    version = a->value;
    if (op->type == PAWL_CMD_STATE_SCAN && a->data)
        memcpy(&version, a->data, sizeof version);
    if (found && found != AMBIGUOUS && version)
        learn(w, t, found, version);
}

/* A page: each key that is there, once, in order, and nothing else. */
static void answer_page(struct sim *w, struct sim_op *op, const uint8_t *data, uint32_t bytes,
                        uint64_t count)
{
    const uint8_t *at[KEYS] = { NULL };
    uint32_t next = 0;
    for (uint64_t n = 0; n < count; n++) {
        struct pawl_state_data d;
        SIM_CHECK(w, bytes >= sizeof d, "a page that ends early");
        memcpy(&d, data, sizeof d);
        uint32_t all = (uint32_t)pawl_align_up(sizeof d + d.key_bytes, 8);
        SIM_CHECK(w, d.key_bytes == 2 && bytes >= all && data[sizeof d] == 'k',
                  "a key that nobody wrote");
        uint32_t k = (uint32_t)data[sizeof d + 1] - '0';
        SIM_CHECK(w, k >= next && k < KEYS, "a page out of order");
        at[k] = data;
        next = k + 1;
        data += all;
        bytes -= all;
    }
    SIM_CHECK(w, bytes == 0, "a page with %u bytes too many", bytes);
    for (uint32_t k = 0; k < KEYS; k++) {
        const struct shown a = { .result = PAWL_OK,
                                 .data = at[k],
                                 .bytes = sizeof(struct pawl_state_data) };
        filter(w, &w->state->keys[k], op, &a);
    }
}

/* --- the stock ------------------------------------------------------------------------------- */

/* What all reservations may have of it, now. */
static void sums(struct sim_state *s, struct sim_range *reserved, struct sim_range *posted)
{
    memset(reserved, 0, sizeof *reserved);
    memset(posted, 0, sizeof *posted);
    for (uint32_t i = 0; i < s->count; i++) {
        struct sim_thing *t = s->reservations[i];
        struct sim_range r = { SIM_NEVER, 0 }, p = { SIM_NEVER, 0 };
        for (uint32_t j = 0; j < current(t)->count; j++) {
            const struct sim_state_way *way = &current(t)->ways[j];
            uint64_t open = way->state == PAWL_RESERVATION_OPEN ? (uint64_t)t->amount : 0;
            r.min = pawl_min_u64(r.min, open);
            r.max = pawl_max_u64(r.max, open);
            p.min = pawl_min_u64(p.min, (uint64_t)way->number);
            p.max = pawl_max_u64(p.max, (uint64_t)way->number);
        }
        reserved->min += r.min;
        reserved->max += r.max;
        posted->min += p.min;
        posted->max += p.max;
    }
}

static void answer_stock(struct sim *w, const struct sim_op *op, int32_t result,
                         const uint8_t *data, uint32_t bytes)
{
    struct sim_state *s = w->state;
    if (op->type == PAWL_CMD_STATE) {
        SIM_CHECK(w,
                  (result == PAWL_OK && (!s->stocked || op->resubmit)) ||
                      result == PAWL_E_PRECONDITION || result == PAWL_E_FULL,
                  "G11: the stock, which was there, is made again: %s", pawl_strname(result));
        s->stocked = s->stocked || result != PAWL_E_FULL;
        return;
    }
    SIM_CHECK(w,
              result == (s->stocked ? PAWL_OK : result) &&
                  (result == PAWL_OK || result == PAWL_OK_MISSING),
              "the stock is asked for and answers %s", pawl_strname(result));
    if (result != PAWL_OK)
        return;
    struct pawl_state_data d;
    SIM_CHECK(w, bytes == sizeof d, "a number of %u bytes", bytes);
    memcpy(&d, data, sizeof d);
    s->stocked = true;
    SIM_CHECK(w, d.number >= 0 && d.reserved >= 0 && d.posted >= 0, "B41: less than nothing");
    SIM_CHECK(w, d.number + d.reserved + d.posted == STOCK,
              "B41: %" PRId64 " available, %" PRId64 " reserved and %" PRId64 " posted of %d",
              d.number, d.reserved, d.posted, STOCK);
    SIM_CHECK(w,
              (uint64_t)d.reserved >= op->counts->live.min &&
                  (uint64_t)d.reserved <= op->counts->live.max &&
                  (uint64_t)d.posted >= op->counts->bytes.min &&
                  (uint64_t)d.posted <= op->counts->bytes.max,
              "B41: %" PRId64 " reserved, may be %" PRIu64 " to %" PRIu64 "; %" PRId64
              " posted, may be %" PRIu64 " to %" PRIu64,
              d.reserved, op->counts->live.min, op->counts->live.max, d.posted,
              op->counts->bytes.min, op->counts->bytes.max);
}

/* --- hooks ----------------------------------------------------------------------------------- */

static struct sim_thing *thing_at(struct sim_state *s, uint32_t i)
{
    return i < KEYS           ? &s->keys[i]
           : i < KEYS + IDEMS ? &s->idems[i - KEYS]
                              : s->reservations[i - KEYS - IDEMS];
}
#define EACH_THING(s, t)                                        \
    for (uint32_t i_ = 0; i_ < KEYS + IDEMS + (s)->count; i_++) \
        for (struct sim_thing *t = thing_at(s, i_); t; t = NULL)

bool sim_state_names(const struct sim_op *op)
{
    return op->type == PAWL_CMD_STATE || op->type == PAWL_CMD_STATE_SCAN ||
           op->type == PAWL_CMD_RESERVE || op->type == PAWL_CMD_IDEM;
}

void sim_state_take(struct sim *w, struct sim_op *op)
{
    struct sim_thing *t = op->thing;
    if (t)
        sim_note(w, "op %u is of %s", op->number, t->name);
    if (t)
        take(w, t, op);
    else if (op->counts)
        sums(w->state, &op->counts->live, &op->counts->bytes);
    else if (op->type == PAWL_CMD_STATE_SCAN)
        for (uint32_t k = 0; k < KEYS; k++)
            take(w, &w->state->keys[k], op);
}

void sim_state_answer(struct sim *w, struct sim_op *op, int32_t result, uint64_t value,
                      uint64_t lsn, const void *data, uint32_t bytes)
{
    if (result == PAWL_OK && lsn != 0)
        SIM_CHECK(w, lsn < pawl_log_durable(pawl_engine_log(w->engine)),
                  "G8: op %u acknowledged at %" PRIu64 ", durable %" PRIu64, op->number, lsn,
                  pawl_log_durable(pawl_engine_log(w->engine)));
    const struct shown a = { result, value, data, bytes };
    if (op->thing) {
        filter(w, op->thing, op, &a);
    } else if (op->type == PAWL_CMD_STATE_SCAN && !op->counts) {
        SIM_CHECK(w, result == PAWL_OK, "a page answered %s", pawl_strname(result));
        answer_page(w, op, data, bytes, value);
    } else {
        answer_stock(w, op, result, data, bytes);
    }
}

static void forget_op(struct sim_thing *t, uint32_t op)
{
    for (uint32_t s = 0; s < t->stand_count; s++) {
        struct sim_state_set *set = &t->stands[s].set, kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++) {
            struct sim_state_way way = set->ways[i];
            struct sim_state_pred *p = sim_thing_find_pred(&way, op);
            if (p)
                sim_thing_clear_pred(&way, p);
            sim_thing_add(&kept, &way);
        }
        sim_thing_replace(set, &kept);
    }
}

void sim_state_close(struct sim *w, struct sim_op *op)
{
    struct sim_state *s = w->state;
    struct sim_thing *t = op->thing;
    if (s->stocking == op)
        s->stocking = NULL;
    if (t) {
        t->open_ops--;
        forget_op(t, op->number);
    } else if (op->type == PAWL_CMD_STATE_SCAN && !op->counts) {
        for (uint32_t k = 0; k < KEYS; k++) {
            s->keys[k].open_ops--;
            forget_op(&s->keys[k], op->number);
        }
    }
}

/* The broker does not know its session: then it was not done. */
void sim_state_lost(struct sim *w, struct sim_op *op)
{
    struct sim_thing *t = op->thing;
    for (uint32_t s = t ? t->stand_count : 0; s-- > 0;) {
        struct sim_state_set *set = &t->stands[s].set, kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++) {
            struct sim_state_pred *p = sim_thing_find_pred(&set->ways[i], op->number);
            if (!p || !p->record)
                sim_thing_add(&kept, &set->ways[i]);
        }
        SIM_CHECK(w, kept.count || s + 1 < t->stand_count,
                  "%s: the session of op %u is unknown, and it was done", t->name, op->number);
        if (kept.count == 0)
            sim_thing_drop(t, s);
        else
            sim_thing_replace(set, &kept);
    }
}

void sim_state_wrote(struct sim *w)
{
    if (!w->state || !w->state->moved)
        return;
    w->state->moved = false;
    uint64_t pos = pawl_log_appended(pawl_engine_log(w->engine));
    EACH_THING(w->state, t)
    for (uint32_t j = t->stand_count; j-- > 0 && t->stands[j].pos == SIM_NEVER;)
        t->stands[j].pos = pos;
}

void sim_state_durable(struct sim *w, uint64_t durable)
{
    if (!w->state)
        return;
    EACH_THING(w->state, t)
    while (t->stand_count > 1 && t->stands[1].pos < durable && t->stands[1].pos != 0)
        sim_thing_drop(t, 0);
}

/* What ends by its time, may end from now on. */
void sim_state_time(struct sim *w)
{
    if (!w->state)
        return;
    EACH_THING(w->state, t)
    for (uint32_t i = 0, n = t->id ? current(t)->count : 0; i < n; i++) {
        struct sim_state_way way = current(t)->ways[i];
        if (way.state != PAWL_RESERVATION_OPEN || w->now.time < way.end)
            continue;
        way.state = PAWL_RESERVATION_EXPIRED;
        sim_thing_add(current(t), &way);
    }
}

/* Nothing that was due is left. */
void sim_state_timers(struct sim *w)
{
    if (!w->state)
        return;
    EACH_THING(w->state, t)
    {
        bool late = false;
        for (uint32_t i = 0; t->id && i < current(t)->count; i++)
            late = late || (current(t)->ways[i].state == PAWL_RESERVATION_OPEN &&
                            w->now.time >= pawl_add_sat(current(t)->ways[i].end, SIM_TICK));
        if (!late)
            continue;
        sim_thing_push(w->state, t);
        struct sim_state_set *set = current(t), kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++)
            if (set->ways[i].state != PAWL_RESERVATION_OPEN ||
                w->now.time < pawl_add_sat(set->ways[i].end, SIM_TICK))
                sim_thing_add(&kept, &set->ways[i]);
        sim_thing_replace(set, &kept);
    }
}

void sim_state_crash(struct sim *w)
{
    if (!w->state)
        return;
    EACH_THING(w->state, t)
    {
        struct sim_state_set all = { 0 };
        for (uint32_t s = 0; s < t->stand_count; s++)
            for (uint32_t i = 0; i < t->stands[s].set.count; i++) {
                struct sim_state_way way = t->stands[s].set.ways[i];
                for (uint32_t p = PREDS; p-- > 0;)
                    if (way.preds[p].op && !way.preds[p].record)
                        sim_thing_clear_pred(&way, &way.preds[p]);
                if (t->idem)
                    sim_idem_crash(&way);
                sim_thing_add(&all, &way);
            }
        while (t->stand_count > 1)
            sim_thing_drop(t, 0);
        sim_thing_replace(current(t), &all);
        t->stands[0].pos = 0;
    }
    sim_state_time(w);
}

void sim_state_stopped(struct sim *w)
{
    if (!w->state)
        return;
    EACH_THING(w->state, t)
    while (t->stand_count > 1)
        sim_thing_drop(t, 0);
}
