/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* Tables and reservations: what clients ask of them, and what the contract allows as an answer.
 *
 * A key or a reservation is a *thing*. As a message has (sim_model.h), it has a row of stands, each
 * a set of ways in which it may stand; a decision turns each way into those that are allowed, with
 * the answer that goes with it; what shows throws out the ways that it contradicts, in older stands
 * too, since it proves its decision durable. A crash makes one set of all stands.
 *
 * A key's way is the write that it shows: the number of the operation, 0 for no key. Versions are
 * not predicted: the first that shows of a write is that write's for ever, no other write's, and of
 * one key they grow in the order of the decisions. The stock, which reservations are taken from, is
 * checked by sums: available + reserved + posted is constant, and each is what the reservations may
 * stand for. Every third seed has a table: the others run as without. */

#define KEYS 5u
#define STOCK 1000000
#define PREDS 6u
#define OPEN_MAX 3u
#define AMBIGUOUS UINT32_MAX /* two ways are left that found different writes */
#define KEEP_NS (24 * SIM_HOUR)

enum check { CHECK_ZERO, CHECK_VERSION, CHECK_NUMBER, CHECK_DATA, CHECK_ANY };

/* What an operation must answer if this way is true. */
struct pred {
    uint32_t op; /* 0: free */
    int32_t result;
    uint8_t check; /* enum check: of the value */
    bool record;   /* it is in the log */
    uint16_t pad;
    uint32_t found; /* VERSION, DATA: of this write */
    int64_t number; /* NUMBER, DATA of a number */
};

struct way {
    uint32_t write; /* key: operation whose value it has; reservation: its RESERVE */
    uint8_t state;  /* key: enum pawl_value_kind; reservation: enum pawl_reservation_state */
    uint8_t pad[3];
    int64_t number; /* key; reservation: what was posted */
    uint64_t end;   /* reservation OPEN: of its time, SIM_NEVER; over: since, at the earliest */
    struct pred preds[PREDS];
};

struct set {
    struct way *ways;
    uint32_t count, capacity;
};
struct stand {
    struct set set;
    uint64_t pos; /* of the log behind the decision; SIM_NEVER: not known yet */
};
/* Of a write: between which moments it was decided (submitted again after a crash, it may have been
 * done the first time), and the version that was shown. */
struct known {
    uint64_t first, last, version;
};

struct thing {
    char name[8];
    uint64_t id;    /* of a reservation; 0: a key */
    int64_t amount; /* of a reservation */
    struct stand *stands;
    uint32_t stand_count, stand_capacity, open_ops;
    uint32_t last; /* key: a write whose version has shown, for compare and set */
    struct known *known;
    uint32_t known_count, known_capacity;
};

struct sim_state {
    struct pawl_prng rng;
    struct sim_queue table;
    struct thing keys[KEYS];
    struct thing **reservations;
    uint32_t count, capacity;
    struct sim_map *versions; /* version -> sim_op */
    bool stocked;             /* the stock has shown */
    bool moved;               /* a stand was made that does not know its place yet */
    struct sim_op *stocking;
};

static uint64_t below(struct sim_state *s, uint64_t n) { return pawl_prng_below(&s->rng, n); }
static bool one_in(struct sim_state *s, uint64_t n) { return below(s, n) == 0; }

/* --- sets ------------------------------------------------------------------------------------ */

static struct set *current(struct thing *t) { return &t->stands[t->stand_count - 1].set; }

static void add(struct set *set, const struct way *way)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (memcmp(&set->ways[i], way, sizeof *way) == 0)
            return;
    set->ways = sim_grow(set->ways, &set->capacity, set->count, sizeof *set->ways);
    set->ways[set->count++] = *way;
}

static void replace(struct set *set, struct set *by)
{
    free(set->ways);
    *set = *by;
}

static void drop_stand(struct thing *t, uint32_t i)
{
    free(t->stands[i].set.ways);
    memmove(&t->stands[i], &t->stands[i + 1], (t->stand_count - i - 1) * sizeof *t->stands);
    t->stand_count--;
}

static void push(struct sim_state *s, struct thing *t)
{
    s->moved = true;
    t->stands = sim_grow(t->stands, &t->stand_capacity, t->stand_count, sizeof *t->stands);
    struct stand *next = &t->stands[t->stand_count];
    memset(next, 0, sizeof *next);
    next->pos = SIM_NEVER;
    for (uint32_t i = 0; t->stand_count && i < current(t)->count; i++)
        add(&next->set, &current(t)->ways[i]);
    t->stand_count++;
}

static struct pred *find_pred(struct way *way, uint32_t op)
{
    for (uint32_t i = 0; i < PREDS; i++)
        if (way->preds[i].op == op)
            return &way->preds[i];
    return NULL;
}

/* In order of operations, so that two of the same meaning are the same bytes. */
static void set_pred(struct sim *w, struct way *way, const struct pred *p)
{
    SIM_CHECK(w, way->preds[PREDS - 1].op == 0, "more open operations than the model holds");
    way->preds[PREDS - 1] = *p;
    for (uint32_t i = PREDS - 1;
         i > 0 && (way->preds[i - 1].op == 0 || way->preds[i - 1].op > way->preds[i].op); i--) {
        struct pred swap = way->preds[i];
        way->preds[i] = way->preds[i - 1];
        way->preds[i - 1] = swap;
    }
}

static void clear_pred(struct way *way, struct pred *p)
{
    uint32_t i = (uint32_t)(p - way->preds);
    memmove(&way->preds[i], &way->preds[i + 1], (PREDS - i - 1) * sizeof *p);
    memset(&way->preds[PREDS - 1], 0, sizeof *p);
}

static void dump(const struct thing *t)
{
    fprintf(stderr, "--- %s, %u stands:\n", t->name, t->stand_count);
    for (uint32_t s = 0; s < t->stand_count; s++) {
        fprintf(stderr, "  pos %" PRIu64 ":\n", t->stands[s].pos);
        for (uint32_t i = 0; i < t->stands[s].set.count; i++) {
            const struct way *way = &t->stands[s].set.ways[i];
            fprintf(stderr, "    write %u state %u number %" PRId64 " end %" PRIu64, way->write,
                    way->state, way->number, way->end);
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

static void decide_write(const struct way *is, struct way *to, struct sim_op *op,
                         const struct pawl_cmd_state *c, struct pred *p)
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

static void decide_add(const struct way *is, struct way *to, struct sim_op *op,
                       const struct pawl_cmd_state *c, struct pred *p)
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

static void decide_assert(const struct way *is, const struct pawl_cmd_state *c, struct pred *p)
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

static void decide_move(struct sim *w, const struct thing *t, const struct way *is, struct way *to,
                        struct sim_op *op, const struct pawl_cmd_reserve *c, struct pred *p)
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
    } else if (post && is->state == PAWL_RESERVATION_POSTED && c->amount && amount != is->number) {
        p->result = PAWL_E_RES_DIFFERENT_AMOUNT;
    } else if (is->state != PAWL_RESERVATION_OPEN) {
        p->result = result_over(is->state);
    } else {
        to->state = post ? PAWL_RESERVATION_POSTED : PAWL_RESERVATION_VOIDED;
        to->number = is->number + (post ? amount : 0);
        to->end = w->now.time;
        p->record = true;
    }
}

static void decide(struct sim *w, struct thing *t, const struct way *is, struct sim_op *op,
                   struct set *out)
{
    struct way to = *is;
    struct pred p;
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
    set_pred(w, &to, &p);
    add(out, &to);
    if (!may_be_full)
        return;
    /* Refused for want of memory, log or disk: what the sends' model knows of those is not asked.
     */
    struct way full = *is;
    p = (struct pred){ .op = op->number, .result = PAWL_E_FULL, .check = CHECK_ANY };
    set_pred(w, &full, &p);
    add(out, &full);
}

/* One that has been over for a day may be forgotten. */
static bool forgotten(const struct sim *w, const struct thing *t, const struct way *is,
                      struct way *none)
{
    *none = *is;
    none->state = PAWL_RESERVATION_NONE; /* what it took stays away */
    none->write = 0;
    none->end = 0;
    return t->id && is->state > PAWL_RESERVATION_OPEN && w->now.time >= is->end + KEEP_NS;
}

static void take(struct sim *w, struct thing *t, struct sim_op *op)
{
    push(w->state, t);
    struct set *set = current(t), out = { 0 };
    for (uint32_t i = 0; i < set->count; i++) {
        struct way way = set->ways[i], none;
        struct pred *p = find_pred(&way, op->number);
        if (p && p->record) {
            add(&out, &way); /* the lane's window answers */
            continue;
        }
        if (p) {
            add(&out, &way); /* so may a refusal be, while the broker lives */
            clear_pred(&way, p);
        }
        decide(w, t, &way, op, &out);
        if (forgotten(w, t, &way, &none))
            decide(w, t, &none, op, &out);
    }
    replace(set, &out);
}

/* --- what shows ------------------------------------------------------------------------------ */

struct shown {
    int32_t result;
    uint64_t value;
    const uint8_t *data; /* of one key: struct pawl_state_data and the value */
    uint32_t bytes;
};

/* The version belongs to this write and to no other, and fits those that are known of the key. */
static bool version_fits(const struct sim *w, const struct thing *t, uint32_t write,
                         uint64_t version)
{
    if (write == 0)
        return version == 0;
    struct sim_op *op = w->ops[write - 1], *owner = sim_map_get(w->state->versions, version);
    if (version == 0 || (owner && owner != op) || (op->version && op->version != version))
        return false;
    for (uint32_t i = 0; i < t->known_count && !op->version; i++) {
        const struct known *k = &t->known[i];
        if ((k->last < op->first_index && k->version > version) ||
            (op->index < k->first && version > k->version))
            return false;
    }
    return true;
}

static void learn(struct sim *w, struct thing *t, uint32_t write, uint64_t version)
{
    struct sim_op *op = w->ops[write - 1];
    if (op->version)
        return;
    op->version = version;
    sim_map_put(w->state->versions, version, op);
    t->known = sim_grow(t->known, &t->known_capacity, t->known_count, sizeof *t->known);
    t->known[t->known_count++] = (struct known){ op->first_index, op->index, version };
    t->last = write;
}

static bool value_fits(const struct sim *w, const struct way *way, const struct shown *a)
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

static bool fits(const struct sim *w, const struct thing *t, struct way *way,
                 const struct sim_op *op, const struct shown *a)
{
    const struct pred *p = find_pred(way, op->number);
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
    struct way then = *way;
    if (then.write != p->found)
        return version_fits(w, t, p->found, d.version);
    return version_fits(w, t, p->found, d.version) && value_fits(w, &then, a);
}

static void filter(struct sim *w, struct thing *t, const struct sim_op *op, const struct shown *a)
{
    uint32_t found = 0;
    uint64_t version = 0;
    for (uint32_t s = t->stand_count; s-- > 0;) {
        struct set *set = &t->stands[s].set, kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++) {
            struct way way = set->ways[i];
            if (!fits(w, t, &way, op, a))
                continue;
            const struct pred *p = find_pred(&way, op->number);
            if (!t->id && (p->check == CHECK_VERSION || (p->check == CHECK_DATA && a->data)))
                found = found == 0 || found == p->found ? p->found : AMBIGUOUS;
            add(&kept, &way);
        }
        if (kept.count == 0 && s + 1 == t->stand_count) {
            dump(t);
            if (a->data && !t->id) {
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
            drop_stand(t, s);
        else
            replace(set, &kept);
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
        struct thing *t = s->reservations[i];
        struct sim_range r = { SIM_NEVER, 0 }, p = { SIM_NEVER, 0 };
        for (uint32_t j = 0; j < current(t)->count; j++) {
            const struct way *way = &current(t)->ways[j];
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

#define EACH_THING(s, t)                                                                     \
    for (uint32_t i_ = 0; i_ < KEYS + (s)->count; i_++)                                      \
        for (struct thing *t = i_ < KEYS ? &(s)->keys[i_] : (s)->reservations[i_ - KEYS]; t; \
             t = NULL)

bool sim_state_names(const struct sim_op *op)
{
    return op->type == PAWL_CMD_STATE || op->type == PAWL_CMD_STATE_SCAN ||
           op->type == PAWL_CMD_RESERVE;
}

void sim_state_take(struct sim *w, struct sim_op *op)
{
    struct thing *t = op->thing;
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

static void forget_op(struct thing *t, uint32_t op)
{
    for (uint32_t s = 0; s < t->stand_count; s++) {
        struct set *set = &t->stands[s].set, kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++) {
            struct way way = set->ways[i];
            struct pred *p = find_pred(&way, op);
            if (p)
                clear_pred(&way, p);
            add(&kept, &way);
        }
        replace(set, &kept);
    }
}

void sim_state_close(struct sim *w, struct sim_op *op)
{
    struct sim_state *s = w->state;
    struct thing *t = op->thing;
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
    struct thing *t = op->thing;
    for (uint32_t s = t ? t->stand_count : 0; s-- > 0;) {
        struct set *set = &t->stands[s].set, kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++) {
            struct pred *p = find_pred(&set->ways[i], op->number);
            if (!p || !p->record)
                add(&kept, &set->ways[i]);
        }
        SIM_CHECK(w, kept.count || s + 1 < t->stand_count,
                  "%s: the session of op %u is unknown, and it was done", t->name, op->number);
        if (kept.count == 0)
            drop_stand(t, s);
        else
            replace(set, &kept);
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
        drop_stand(t, 0);
}

/* What ends by its time, may end from now on. */
void sim_state_time(struct sim *w)
{
    if (!w->state)
        return;
    EACH_THING(w->state, t)
    for (uint32_t i = 0, n = t->id ? current(t)->count : 0; i < n; i++) {
        struct way way = current(t)->ways[i];
        if (way.state != PAWL_RESERVATION_OPEN || w->now.time < way.end)
            continue;
        way.state = PAWL_RESERVATION_EXPIRED;
        add(current(t), &way);
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
        push(w->state, t);
        struct set *set = current(t), kept = { 0 };
        for (uint32_t i = 0; i < set->count; i++)
            if (set->ways[i].state != PAWL_RESERVATION_OPEN ||
                w->now.time < pawl_add_sat(set->ways[i].end, SIM_TICK))
                add(&kept, &set->ways[i]);
        replace(set, &kept);
    }
}

void sim_state_crash(struct sim *w)
{
    if (!w->state)
        return;
    EACH_THING(w->state, t)
    {
        struct set all = { 0 };
        for (uint32_t s = 0; s < t->stand_count; s++)
            for (uint32_t i = 0; i < t->stands[s].set.count; i++) {
                struct way way = t->stands[s].set.ways[i];
                for (uint32_t p = PREDS; p-- > 0;)
                    if (way.preds[p].op && !way.preds[p].record)
                        clear_pred(&way, &way.preds[p]);
                add(&all, &way);
            }
        while (t->stand_count > 1)
            drop_stand(t, 0);
        replace(current(t), &all);
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
        drop_stand(t, 0);
}

/* --- what clients ask ------------------------------------------------------------------------ */

static struct sim_op *submit(struct sim *w, struct sim_lane *lane, struct thing *t, uint16_t type,
                             const void *fixed, uint32_t fixed_bytes, const void *variable,
                             uint32_t bytes)
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

static void submit_write(struct sim *w, struct sim_lane *lane, struct thing *t)
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
    struct sim_op *op = submit(w, lane, t, PAWL_CMD_STATE, &c, sizeof c, words, 2 + c.value_bytes);
    op->expect_write = expect_write;
}

static void submit_read(struct sim *w, struct sim_lane *lane, struct thing *t)
{
    struct pawl_cmd_state_scan c = { .table = w->state->table.id };
    c.op = t->id ? PAWL_TABLE_RESERVATION : PAWL_TABLE_GET;
    uint8_t id[16] = { 0 };
    memcpy(id, &t->id, sizeof t->id);
    c.key_bytes = t->id ? 16 : 2;
    (void)submit(w, lane, t, PAWL_CMD_STATE_SCAN, &c, sizeof c,
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
    (void)submit(w, lane, NULL, PAWL_CMD_STATE_SCAN, &c, sizeof c, "k", 1);
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
        return submit(w, lane, NULL, PAWL_CMD_STATE, &c, sizeof c, words, sizeof words);
    }
    struct pawl_cmd_state_scan c = { .table = s->table.id, .op = PAWL_TABLE_GET, .key_bytes = 5 };
    struct sim_op *op = submit(w, lane, NULL, PAWL_CMD_STATE_SCAN, &c, sizeof c, "stock", 5);
    op->counts = calloc(1, sizeof *op->counts);
    if (!op->counts)
        abort();
    return op;
}

static struct thing *new_reservation(struct sim *w)
{
    struct sim_state *s = w->state;
    struct thing *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    s->reservations = sim_grow(s->reservations, &s->capacity, s->count, sizeof *s->reservations);
    s->reservations[s->count++] = t;
    t->id = s->count;
    snprintf(t->name, sizeof t->name, "r%u", s->count % 100000);
    t->amount = 1 + (int64_t)below(s, 20);
    push(s, t);
    struct way none;
    memset(&none, 0, sizeof none);
    add(current(t), &none);
    t->stands[0].pos = 0;
    return t;
}

static void submit_move(struct sim *w, struct sim_lane *lane, struct thing *t, uint8_t what)
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
    (void)submit(w, lane, t, PAWL_CMD_RESERVE, &c, sizeof c, "stock", c.key_bytes);
}

void sim_state_act(struct sim *w, struct sim_lane *lane)
{
    struct sim_state *s = w->state;
    if (!s || s->table.id == 0 || !one_in(s, 3))
        return;
    struct thing *key = &s->keys[below(s, KEYS)];
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
        struct thing *t = s->reservations[s->count - 1 - below(s, newest)];
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
    snprintf(s->table.name, sizeof s->table.name, "table");
    for (uint32_t k = 0; k < KEYS; k++) {
        struct way none;
        memset(&none, 0, sizeof none);
        snprintf(s->keys[k].name, sizeof s->keys[k].name, "k%u", k);
        push(s, &s->keys[k]);
        add(current(&s->keys[k]), &none);
        s->keys[k].stands[0].pos = 0;
    }
}

static void thing_free(struct thing *t)
{
    while (t->stand_count > 0)
        drop_stand(t, t->stand_count - 1);
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
    for (uint32_t i = 0; i < s->count; i++) {
        thing_free(s->reservations[i]);
        free(s->reservations[i]);
    }
    free(s->reservations);
    sim_map_destroy(s->versions, NULL);
    free(s);
}
