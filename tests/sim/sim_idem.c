/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <string.h>

#include "sim/sim_state.h"

/* Idempotent operations (semantics 9): what a begin, a completion, progress, an end or a look may
 * make of one key, and what may be told. A key is a thing as the others (sim_state.h): ways,
 * stands.
 *
 * Every decision that makes a record has a number of its own, its *deed*: who began (grant, token),
 * who completed (position, result), who left progress. So a begin that was lost in a crash and is
 * decided again is another deed, with another grant, while one that survived is the same.
 *
 * A lease is known between two times. Not before way.end is it over, while its owner lives; from
 * way.late on it surely is: known once the answer was published, and no more after a crash, which
 * lets it begin again. Between them, and when its owner may have died, both are allowed. */

#define RETAIN_NS SIM_IDEM_RETAIN_NS

static uint64_t below(struct sim_state *s, uint64_t n) { return pawl_prng_below(&s->rng, n); }
static bool one_in(struct sim_state *s, uint64_t n) { return below(s, n) == 0; }

static struct pawl_cmd_idem command(const struct sim_op *op)
{
    struct pawl_cmd_idem c;
    memcpy(&c, op->command, sizeof c);
    return c;
}

static struct sim_deed *deed(const struct sim *w, uint32_t n) { return &w->state->deeds[n - 1]; }

static uint32_t deed_new(struct sim *w, struct sim_op *op)
{
    struct sim_state *s = w->state;
    const struct sim_client *c = op->lane->client;
    s->deeds = sim_grow(s->deeds, &s->deed_capacity, s->deed_count, sizeof *s->deeds);
    s->deeds[s->deed_count++] = (struct sim_deed){ .op = op->number,
                                                   .epoch = w->epoch,
                                                   .client = c->number,
                                                   .uid = c->uid,
                                                   .pid = c->pid,
                                                   .session = c->session };
    return s->deed_count;
}

/* Its process is there, in the session that began. */
static bool owner_lives(const struct sim *w, uint32_t n)
{
    const struct sim_deed *d = deed(w, n);
    for (uint32_t i = 0; i < w->client_count; i++) {
        const struct sim_client *c = w->clients[i];
        if (c->number == d->client)
            return c->alive && c->core != NULL && c->session == d->session && !c->graced;
    }
    return false;
}

/* --- the contract ---------------------------------------------------------------------------- */

struct asked {
    struct sim *w;
    struct sim_op *op;
    struct pawl_cmd_idem c;
    struct sim_state_set *out;
    uint32_t deed;                   /* of this decision, should it make a record */
    const struct sim_state_way *was; /* before what the time may have made of it */
};

static void outcome(const struct asked *a, const struct sim_state_way *to, struct sim_state_pred *p)
{
    struct sim_state_way way = *to;
    p->op = a->op->number;
    sim_thing_set_pred(a->w, &way, p);
    sim_thing_add(a->out, &way);
}

static void refused(const struct asked *a, const struct sim_state_way *is, int32_t result,
                    int64_t number)
{
    struct sim_state_pred p;
    memset(&p, 0, sizeof p);
    p.result = result;
    p.check = result == PAWL_E_IDEM_MISMATCH ? CHECK_NUMBER : CHECK_ANY;
    p.number = number;
    /* These two do not tell that a lease is over, or the key forgotten: a crash may undo that. */
    outcome(a, result == PAWL_E_FULL || result == PAWL_E_IDEM_MISMATCH ? a->was : is, &p);
}

/* With what is known; a broker short of memory may refuse that. */
static void told(const struct asked *a, const struct sim_state_way *is, uint8_t state, bool record)
{
    struct sim_state_pred p;
    memset(&p, 0, sizeof p);
    p.check = CHECK_DATA;
    p.number = state;
    p.hash = is->hash;
    p.found = is->write;
    p.said = (uint32_t)is->posted;
    p.attempts = (uint32_t)is->number - (state == PAWL_IDEM_FIRST);
    p.record = record;
    outcome(a, is, &p);
    if (!record)
        refused(a, is, PAWL_E_FULL, 0);
}

static void first(const struct asked *a, const struct sim_state_way *is)
{
    struct sim_state_way to = *is;
    to.hash = (uint8_t)a->c.hash;
    to.state = PAWL_IDEM_IN_PROGRESS;
    to.write = a->deed;
    to.number++;
    to.since = a->w->now.time;
    to.end = a->w->now.time + a->c.lease_ns;
    to.late = SIM_NEVER;
    told(a, &to, PAWL_IDEM_FIRST, true);
    refused(a, is, PAWL_E_FULL, 0);
}

static void begin(const struct asked *a, const struct sim_state_way *is)
{
    if (is->state == PAWL_IDEM_NONE) {
        first(a, is);
    } else if (is->hash != a->c.hash) {
        refused(a, is, PAWL_E_IDEM_MISMATCH, is->hash);
    } else if (is->state == PAWL_IDEM_ABANDONED) {
        first(a, is);
    } else if (is->state == PAWL_IDEM_IN_PROGRESS && deed(a->w, is->write)->op == a->op->number) {
        struct sim_state_way to = *is; /* it was begun by this: told again, its time begins again */
        to.late = SIM_NEVER;
        told(a, &to, PAWL_IDEM_FIRST, true);
        refused(a, is, PAWL_E_FULL, 0);
    } else {
        told(a, is, is->state, false);
    }
}

static bool same_end(const struct sim *w, uint32_t said, const struct asked *a)
{
    if (a->c.op != PAWL_IDEM_OP_COMPLETE)
        return false;
    const struct sim_op *before = w->ops[deed(w, said)->op - 1];
    struct pawl_cmd_idem b = command(before);
    return b.code == a->c.code && b.flags == a->c.flags && b.bytes == a->c.bytes &&
           memcmp(before->command + sizeof b + b.key_bytes, a->op->command + sizeof b + b.key_bytes,
                  b.bytes) == 0;
}

static void settle(const struct asked *a, const struct sim_state_way *is)
{
    const struct sim_op *op = a->op;
    bool done = is->state == PAWL_IDEM_DONE || is->state == PAWL_IDEM_FAILED;
    if (is->state == PAWL_IDEM_NONE) {
        refused(a, is, PAWL_E_NOT_FOUND, 0);
    } else if (is->write != op->expect_write ||
               deed(a->w, is->write)->uid != op->lane->client->uid) {
        refused(a, is, PAWL_E_LEASE_LOST, 0);
    } else if (done) {
        bool same = same_end(a->w, (uint32_t)is->posted, a);
        refused(a, is, same ? PAWL_OK_DUPLICATE : PAWL_E_STATE, 0);
    } else if (is->state == PAWL_IDEM_ABANDONED) {
        refused(a, is, PAWL_E_LEASE_LOST, 0);
    } else {
        struct sim_state_way to = *is;
        struct sim_state_pred p;
        memset(&p, 0, sizeof p);
        p.check = CHECK_ZERO;
        p.record = true;
        uint64_t now = a->w->now.time;
        if (a->c.op == PAWL_IDEM_OP_PROGRESS) {
            uint64_t lease = command(a->w->ops[deed(a->w, is->write)->op - 1]).lease_ns;
            to.posted = a->deed;
            to.end = now + lease;
            to.late = is->late == SIM_NEVER ? SIM_NEVER : now + lease;
        } else {
            to.state = a->c.op == PAWL_IDEM_OP_ABANDON ? PAWL_IDEM_ABANDONED
                       : a->c.flags                    ? PAWL_IDEM_FAILED
                                                       : PAWL_IDEM_DONE;
            to.posted = a->c.op == PAWL_IDEM_OP_ABANDON ? to.posted : a->deed;
            to.end = to.late = now + RETAIN_NS;
        }
        outcome(a, &to, &p);
        if (a->c.bytes > 256) /* less is taken when sends are refused (semantics 9, G10) */
            refused(a, is, PAWL_E_FULL, 0);
    }
}

static void decide(const struct asked *a, const struct sim_state_way *is)
{
    if (a->c.op == PAWL_IDEM_OP_BEGIN)
        begin(a, is);
    else if (a->c.op != PAWL_IDEM_OP_READ)
        settle(a, is);
    else if (is->state == PAWL_IDEM_NONE)
        refused(a, is, PAWL_OK_MISSING, 0);
    else
        told(a, is, is->state, false);
}

/* What the time, or the end of its owner, may have made of it. */
static void decide_now(struct asked *a, const struct sim_state_way *is)
{
    a->was = is;
    const struct sim *w = a->w;
    struct sim_state_way other = *is;
    if (is->state == PAWL_IDEM_NONE) {
        decide(a, is);
        return;
    }
    /* To look, one may be told that it is in progress, with no time left, where the log has no room
     * to say that it is over. */
    if (w->now.time < is->late ||
        (a->c.op == PAWL_IDEM_OP_READ && is->state == PAWL_IDEM_IN_PROGRESS))
        decide(a, is);
    if (is->state == PAWL_IDEM_IN_PROGRESS) {
        if (w->now.time < is->end && owner_lives(w, is->write))
            return;
        other.state = PAWL_IDEM_ABANDONED;
        other.end = is->since + RETAIN_NS;
        other.late = SIM_NEVER;
        decide(a, &other);
        if (w->now.time < other.end)
            return;
    }
    if (w->now.time < other.end)
        return;
    struct sim_state_way none;
    memset(&none, 0, sizeof none);
    memcpy(none.preds, is->preds, sizeof none.preds);
    decide(a, &none);
}

void sim_idem_take(struct sim *w, struct sim_thing *t, struct sim_op *op)
{
    struct sim_state_set *set, out = { 0 };
    struct asked a = { w, op, command(op), &out, 0, NULL };
    if (a.c.op != PAWL_IDEM_OP_READ)
        a.deed = deed_new(w, op);
    sim_thing_push(w->state, t);
    set = current(t);
    for (uint32_t i = 0; i < set->count; i++) {
        struct sim_state_way way = set->ways[i];
        struct sim_state_pred *p = sim_thing_find_pred(&way, op->number);
        bool settled = p && p->record && a.c.op != PAWL_IDEM_OP_BEGIN;
        if (p)
            sim_thing_add(&out, &way); /* the lane's window answers */
        if (settled)
            continue;
        if (p)
            sim_thing_clear_pred(&way, p);
        decide_now(&a, &way);
    }
    sim_thing_replace(set, &out);
}

void sim_idem_crash(struct sim_state_way *way)
{
    if (way->state == PAWL_IDEM_IN_PROGRESS)
        way->late = SIM_NEVER;
}

/* --- what shows ------------------------------------------------------------------------------ */

static bool bytes_fit(const struct sim *w, const struct pawl_idem_data *d, const uint8_t *bytes,
                      uint32_t said)
{
    if (said == 0)
        return d->bytes == 0 && d->code == 0;
    const struct sim_op *op = w->ops[deed(w, said)->op - 1];
    struct pawl_cmd_idem c = command(op);
    return d->bytes == c.bytes && (c.op == PAWL_IDEM_OP_PROGRESS || d->code == c.code) &&
           memcmp(bytes, op->command + sizeof c + c.key_bytes, c.bytes) == 0;
}

/* Grants of one key grow from owner to owner. */
static bool grant_fits(const struct sim *w, const struct sim_thing *t, uint32_t n, uint64_t grant)
{
    const struct sim_deed *d = deed(w, n);
    if (d->grant)
        return d->grant == grant;
    if (grant >> 40 != d->epoch)
        return false; /* of another life of the broker: another decision of the same begin */
    for (uint32_t i = 0; i < w->state->deed_count; i++) {
        const struct sim_deed *o = &w->state->deeds[i];
        if (o->grant && w->ops[o->op - 1]->thing == t &&
            (i + 1 < n ? o->grant >= grant : o->grant <= grant))
            return false;
    }
    return true;
}

bool sim_idem_fits(const struct sim *w, const struct sim_thing *t, const struct sim_state_pred *p,
                   const uint8_t *data, uint32_t bytes)
{
    struct pawl_idem_data d;
    if (!data || bytes < sizeof d)
        return false;
    memcpy(&d, data, sizeof d);
    const struct sim_deed *owner = deed(w, p->found);
    bool done = d.state == PAWL_IDEM_DONE || d.state == PAWL_IDEM_FAILED;
    if (d.state != (uint64_t)p->number || d.hash != p->hash || d.attempts != p->attempts ||
        d.pid != owner->pid || bytes != sizeof d + d.bytes || !grant_fits(w, t, p->found, d.grant))
        return false;
    if (d.state == PAWL_IDEM_FIRST ? owner->random && owner->random != d.random : d.random != 0)
        return false;
    if (done && deed(w, p->said)->lsn && deed(w, p->said)->lsn != d.lsn)
        return false;
    return (d.lsn != 0) == done && bytes_fit(w, &d, data + sizeof d, p->said);
}

/* Of the ways that are left: the owner, or AMBIGUOUS; the completion that was told. */
void sim_idem_learn(struct sim *w, struct sim_thing *t, uint32_t owner, uint32_t said,
                    const uint8_t *data)
{
    struct pawl_idem_data d;
    memcpy(&d, data, sizeof d);
    sim_note(w, "%s is %u of grant %" PRIx64 ", %u attempts", t->name, d.state, d.grant,
             d.attempts);
    w->totals->idem_told[d.state]++;
    if (owner == 0 || owner == AMBIGUOUS)
        return;
    struct sim_deed *o = deed(w, owner);
    o->grant = d.grant;
    if (d.state == PAWL_IDEM_FIRST) {
        o->random = d.random;
        t->last = owner;
        struct sim_state_set *set = current(t);
        uint64_t late = w->now.time + command(w->ops[o->op - 1]).lease_ns + SIM_TICK;
        for (uint32_t i = 0; i < set->count; i++)
            if (set->ways[i].state == PAWL_IDEM_IN_PROGRESS && set->ways[i].write == owner)
                set->ways[i].late = late;
    }
    if (d.lsn && said && said != AMBIGUOUS)
        deed(w, said)->lsn = d.lsn;
}

/* --- clients --------------------------------------------------------------------------------- */

static void submit(struct sim *w, struct sim_lane *lane, struct sim_thing *t,
                   const struct pawl_cmd_idem *c, uint32_t token)
{
    uint8_t words[3 + 600] = "i";
    memcpy(words, t->name, 2);
    sim_body_fill(words + 2, c->bytes, w->op_count + 1);
    struct sim_op *op =
        sim_state_submit(w, lane, t, PAWL_CMD_IDEM, c, sizeof *c, words, 2 + c->bytes);
    op->expect_write = token;
}

void sim_idem_act(struct sim *w, struct sim_lane *lane, struct sim_thing *t)
{
    static const uint64_t leases[] = { SIM_MS, 100 * SIM_MS, SIM_S, 10 * SIM_S, 60 * SIM_S };
    struct sim_state *s = w->state;
    struct pawl_cmd_idem c = { .table = s->table.id, .key_bytes = 2 };
    uint64_t dice = below(s, 20);
    uint32_t token = t->last;
    if (token && one_in(s, 6)) /* somebody's who had it before, or another key's */
        token = 1 + (uint32_t)below(s, s->deed_count);
    if (token && deed(w, token)->random == 0)
        token = 0;
    if (dice < 9 || token == 0) {
        c.op = dice < 16 ? PAWL_IDEM_OP_BEGIN : PAWL_IDEM_OP_READ;
        c.hash = c.op == PAWL_IDEM_OP_READ ? 0 : one_in(s, 12) ? 2 : 1;
        c.lease_ns = c.op == PAWL_IDEM_OP_READ ? 0 : leases[below(s, PAWL_COUNT(leases))];
        submit(w, lane, t, &c, 0);
        return;
    }
    c.op = dice < 11   ? PAWL_IDEM_OP_READ
           : dice < 16 ? PAWL_IDEM_OP_COMPLETE
           : dice < 18 ? PAWL_IDEM_OP_PROGRESS
                       : PAWL_IDEM_OP_ABANDON;
    if (c.op != PAWL_IDEM_OP_READ) {
        c.grant = deed(w, token)->grant;
        c.random = deed(w, token)->random;
    }
    if (c.op == PAWL_IDEM_OP_COMPLETE || c.op == PAWL_IDEM_OP_PROGRESS)
        c.bytes = (uint32_t)below(s, one_in(s, 4) ? 600 : 100);
    if (c.op == PAWL_IDEM_OP_COMPLETE) {
        c.code = (int32_t)below(s, 1000) - 500;
        c.flags = one_in(s, 6) ? PAWL_IDEM_FINAL_FAIL : 0;
    }
    submit(w, lane, t, &c, token);
}
