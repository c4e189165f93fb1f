/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* Operations under an id of their caller (semantics 1) and transactions (semantics 4), from the
 * contract alone.
 *
 * A unit is what happens once or never: one command under an id, or a transaction of 1 to 6 with or
 * without one. Each of its commands is a step, about one message. What brings it to the broker is a
 * carrier; a unit with an id has many, of all sessions, also when the first was answered or its
 * client died.
 *
 * A way of a message says under SIM_UNIT | step what stands in the log for this step: done, refused
 * for good, or fenced. It stays as long as the unit is kept, so that a later carrier does nothing
 * to such a way, and its answer must be the first one's. A refusal that passes stands under the
 * number of its carrier and goes with it.
 *
 * Of a transaction each step may be done, refused itself, or left alone because another one was
 * (SIM_OTHER). Whatever shows of one message throws out ways of it; when all that are left say that
 * it was done, or that it was not, the others are told (sim_unit_notice): all or none. */

#define STEPS_MAX 6u
#define UNITS_MAX 24u
#define CARRIERS_MAX 2u /* open at once */
#define AGE_MAX 1500u   /* operations; then nobody repeats it any more */
#define RETENTION (24 * SIM_HOUR)
#define AHEAD_MS 60000u

struct sim_unit {
    struct pawl_op_id id;
    bool has_id, transaction, done, telling;
    bool past;  /* at its last decision: a later id may have been forgotten for its age, so this too
                 */
    bool early; /* the same, and it or a later one for want of room */
    uint32_t number; /* of its first step */
    uint16_t type;
    struct sim_op *steps[STEPS_MAX];
    uint32_t count, open, repeats, repeats_max;
    uint64_t time_min; /* of its first decision */
    uint64_t lsn;      /* as the first answer said; 0: not known */
};

static const uint64_t finals = SIM_BIT(PAWL_OK) | SIM_BIT(PAWL_OK_DUPLICATE) |
                               SIM_BIT(PAWL_OK_MISSING) | SIM_BIT(PAWL_E_LEASE_LOST) |
                               SIM_BIT(PAWL_E_ALREADY_ACKED) | SIM_BIT(PAWL_E_STATE) |
                               SIM_BIT(PAWL_E_NOT_FOUND) | SIM_BIT(PAWL_E_HOLD_CAP);

static uint32_t key_of(const struct sim_op *step) { return SIM_UNIT | step->number; }

static struct sim_pred *find(const struct sim_way *way, uint32_t op)
{
    return sim_pred_find((struct sim_way *)(uintptr_t)way, op);
}

/* --- decisions ------------------------------------------------------------------------------- */

void sim_unit_yield(struct sim *w, struct sim_set *out, const struct sim_way *way,
                    const struct sim_op *step, uint64_t mask, bool any, uint64_t value, bool record)
{
    const struct sim_op *carrier = step->carrier;
    struct sim_pred p = { .any = any, .value = value, .by = carrier->number };
    uint64_t kept = record ? mask : carrier->unit->has_id ? mask & finals : 0;
    if (kept != 0) {
        p.op = key_of(step);
        p.record = true;
        p.mask = kept;
        sim_rules_yield(w, out, *way, &p);
    }
    if (mask & ~kept) {
        p.op = carrier->number;
        p.record = false;
        p.mask = mask & ~kept;
        sim_rules_yield(w, out, *way, &p);
    }
}

static uint64_t id_ms(const struct pawl_op_id *id)
{
    uint64_t ms = 0;
    for (uint32_t i = 0; i < 6; i++)
        ms = ms << 8 | id->bytes[i];
    return ms;
}

/* What an id that is not known is answered, before anything is looked at. */
static int32_t unknown(const struct sim *w, const struct sim_unit *u)
{
    uint64_t ms = id_ms(&u->id), now = w->now.wall / SIM_MS;
    if (!u->has_id)
        return PAWL_OK;
    if (ms > now + AHEAD_MS)
        return PAWL_E_INVALID;
    return ms + RETENTION / SIM_MS <= now + AHEAD_MS ? PAWL_E_FORGOTTEN : PAWL_OK;
}

/* May what the log says of it be forgotten by now? Its age does that. */
static bool may_be_forgotten(const struct sim *w, uint64_t time_min)
{
    return time_min != 0 && w->now.time >= time_min + RETENTION;
}

/* So does want of room, and the horizon that is published says so. That it does so only where there
 * is none is a unit test's to show: the model does not count. */
static bool forgotten_early(const struct sim *w, const struct sim_unit *u)
{
    return u->has_id && id_ms(&u->id) <= pawl_core_forgotten_early_ms(pawl_engine_core(w->engine));
}

static void look_at_clocks(struct sim *w, struct sim_unit *u)
{
    u->early = forgotten_early(w, u);
    u->past = u->early;
    if (!u->has_id)
        return;
    if (u->time_min == 0) {
        w->used = sim_grow(w->used, &w->used_capacity, w->used_count, sizeof *w->used);
        w->used[w->used_count++] = (struct sim_used){ id_ms(&u->id), w->now.time };
        u->time_min = w->now.time;
    }
    for (uint32_t i = 0; i < w->used_count && !u->past; i++)
        u->past = w->used[i].ms >= id_ms(&u->id) && may_be_forgotten(w, w->used[i].time_min);
}

static void yield_passing(struct sim *w, struct sim_set *out, const struct sim_way *way,
                          uint32_t op, uint64_t mask)
{
    const struct sim_pred p = { .op = op, .any = true, .mask = mask, .by = op };
    sim_rules_yield(w, out, *way, &p);
}

/* What is answered before anything is looked at. False: that is all that can be. */
static bool goes_on(struct sim *w, const struct sim_way *way, const struct sim_op *step,
                    uint32_t op, const struct sim_unit *u, struct sim_set *out)
{
    bool known = find(way, key_of(step)) != NULL;
    int32_t refused = unknown(w, u);
    if (known)
        sim_set_add(w, out, way);
    bool lost = !known || u->early || may_be_forgotten(w, u->time_min);
    if (refused != PAWL_OK && lost)
        yield_passing(w, out, way, op, SIM_BIT(refused));
    else if (u->past && lost)
        yield_passing(w, out, way, op, SIM_BIT(PAWL_E_FORGOTTEN));
    return !known && refused == PAWL_OK;
}

bool sim_unit_known(struct sim *w, const struct sim_way *way, const struct sim_op *step,
                    struct sim_set *out)
{
    return !goes_on(w, way, step, step->carrier->number, step->carrier->unit, out);
}

void sim_unit_others(struct sim *w, const struct sim_way *way, const struct sim_op *step,
                     struct sim_set *out)
{
    const struct sim_unit *u = step->carrier->unit;
    if (!u->transaction)
        return;
    uint32_t carrier = step->carrier->number;
    struct sim_pred p = {
        .op = key_of(step), .record = true, .any = true, .mask = SIM_OTHER_FINAL, .by = carrier
    };
    if (u->has_id)
        sim_rules_yield(w, out, *way, &p);
    yield_passing(w, out, way, carrier, SIM_OTHER | (u->has_id ? 0 : SIM_OTHER_FINAL));
}

/* One more decision on this step: times and counts as of a command of its own. */
static void step_taken(struct sim *w, struct sim_op *step, struct sim_op *carrier)
{
    step->carrier = carrier;
    step->lane = carrier->lane;
    step->index = carrier->index;
    step->time = carrier->time;
    step->time_min = step->takes ? pawl_min_u64(step->time_min, step->time) : step->time;
    step->fired_min = step->takes ? pawl_min_u64(step->fired_min, w->fired) : w->fired;
    step->time_max = pawl_max_u64(step->time_max, step->time);
    if (step->takes++ > 0)
        return;
    step->first_index = w->index;
    step->first_crashes = w->crashes;
    step->first_epoch = w->epoch;
    step->queue->sends_taken += step->type == PAWL_CMD_SEND ? 1 : 0;
    step->queue->acks_taken += step->type == PAWL_CMD_ACK || step->type == PAWL_CMD_ACK_ID ? 1 : 0;
}

static void resolve_way(struct sim *w, const struct sim_way *way, const struct sim_op *step,
                        const struct sim_op *op, struct sim_set *out)
{
    if (!goes_on(w, way, step, op->number, op->unit, out))
        return;
    const struct sim_pred fence = { .op = key_of(step),
                                    .record = true,
                                    .any = true,
                                    .mask = SIM_BIT(PAWL_E_OP_FENCED),
                                    .by = op->number };
    if (op->fences)
        sim_rules_yield(w, out, *way, &fence);
    else
        yield_passing(w, out, way, op->number, SIM_BIT(PAWL_OK));
}

static void resolve_take(struct sim *w, struct sim_op *op)
{
    for (uint32_t s = 0; s < op->unit->count; s++) {
        struct sim_op *step = op->unit->steps[s];
        struct sim_message *m = step->message;
        sim_model_push(w, m);
        struct sim_set *set = sim_current(m), out = { 0 };
        for (uint32_t i = 0; i < set->count; i++) {
            struct sim_way way = set->ways[i];
            struct sim_pred *p = find(&way, op->number);
            if (p != NULL) { /* decided before: it may say so again */
                sim_set_add(w, &out, &way);
                memset(p, 0, sizeof *p);
            }
            resolve_way(w, &way, step, op, &out);
        }
        free(set->ways);
        *set = out;
    }
}

void sim_unit_take(struct sim *w, struct sim_op *op)
{
    struct sim_unit *u = op->unit;
    look_at_clocks(w, u);
    if (op->type == PAWL_CMD_RESOLVE) {
        resolve_take(w, op);
        return;
    }
    for (uint32_t s = 0; s < u->count; s++) {
        step_taken(w, u->steps[s], op);
        sim_model_decide(w, u->steps[s]->message, u->steps[s]);
    }
}

/* --- what shows ------------------------------------------------------------------------------ */

enum what { SHOWS_DONE, SHOWS_REFUSED, SHOWS_OTHER, SHOWS_FENCED, SHOWS_PASSING };

struct shows {
    const struct sim_op *op, *step; /* op: the carrier, or the RESOLVE */
    enum what what;
    int32_t result;
    uint64_t value;
    bool any; /* the value is not said */
    bool fresh, twice;
};

static bool keep_done(const struct shows *s, const struct sim_pred *p, const struct sim_way *way)
{
    if (p == NULL || !p->record || (p->mask & SIM_BIT(s->result)) == 0)
        return false;
    if (s->op->type != PAWL_CMD_RESOLVE) {
        bool own = p->by == s->op->number;
        if (own ? s->twice && !s->op->resubmit : s->fresh)
            return false;
    }
    if (s->step->type != PAWL_CMD_SEND || s->any)
        return true;
    return s->value >> 40 == p->epoch && (way->id == 0 || way->id == s->value) &&
           (p->any || p->value == s->value);
}

static bool keep_shown(void *ctx, const struct sim_way *way)
{
    const struct shows *s = ctx;
    const struct sim_pred *p = find(way, key_of(s->step)), *own = find(way, s->op->number);
    uint64_t bit = SIM_BIT(s->result);
    /* A refusal that passes may have stayed in the window of its lane, over a crash too. */
    if (s->what != SHOWS_DONE && s->what != SHOWS_FENCED && (bit & finals) == 0 &&
        s->op->resubmit && s->op->type != PAWL_CMD_RESOLVE && (p == NULL || p->by != s->op->number))
        return true;
    switch (s->what) {
    case SHOWS_DONE:
        return keep_done(s, p, way);
    case SHOWS_FENCED:
        return p != NULL && (p->mask & SIM_BIT(PAWL_E_OP_FENCED)) != 0;
    case SHOWS_OTHER:
        return (p != NULL && (p->mask & SIM_OTHER_FINAL) != 0 && (bit & finals) != 0) ||
               (own != NULL && (own->mask & (SIM_OTHER | SIM_OTHER_FINAL)) != 0);
    case SHOWS_REFUSED:
        if (p != NULL && (p->mask & bit & finals) != 0)
            return s->any || p->any || p->value == s->value;
        return own != NULL && (own->mask & bit) != 0 &&
               (s->any || own->any || own->value == s->value);
    default:
        return own != NULL && (own->mask & bit) != 0;
    }
}

/* From now on it is exactly this. */
static void narrow(struct sim_message *m, const struct shows *s)
{
    if (s->what != SHOWS_DONE && s->what != SHOWS_REFUSED)
        return;
    for (uint32_t i = 0; i < m->stand_count; i++)
        for (uint32_t j = 0; j < m->stands[i].set.count; j++) {
            struct sim_pred *p = find(&m->stands[i].set.ways[j], key_of(s->step));
            if (p == NULL || (p->mask & SIM_BIT(s->result) & finals) == 0)
                continue;
            p->mask = SIM_BIT(s->result);
            if (s->step->type == PAWL_CMD_SEND && !s->any)
                p->any = false, p->value = s->value;
        }
}

static void show(struct sim *w, struct shows *s, const char *what)
{
    struct sim_message *m = s->step->message;
    char text[128];
    snprintf(text, sizeof text, "op %u of u%u shows: %s %s", s->op->number, s->op->unit->number,
             what, pawl_strname(s->result));
    sim_model_filter(w, m, keep_shown, s, text);
    narrow(m, s);
}

static void counted(struct sim_op *step)
{
    if (step->counted)
        return;
    step->counted = true;
    step->queue->sends_shown += step->type == PAWL_CMD_SEND ? 1 : 0;
    step->queue->acks_shown += step->type == PAWL_CMD_ACK || step->type == PAWL_CMD_ACK_ID ? 1 : 0;
}

/* All of it was done; value: id of its first message, the others follow. */
static void show_done(struct sim *w, const struct sim_op *op, uint64_t value, uint64_t lsn,
                      bool fresh, bool twice)
{
    struct sim_unit *u = op->unit;
    SIM_CHECK(w, u->lsn == 0 || u->lsn == lsn,
              "u%u: done at %" PRIu64 ", and now at %" PRIu64 " (op %u)", u->number, u->lsn, lsn,
              op->number);
    u->lsn = lsn;
    for (uint32_t i = 0; i < u->count; i++) {
        struct sim_op *step = u->steps[i];
        bool send = step->type == PAWL_CMD_SEND;
        struct shows s = { .op = op,
                           .step = step,
                           .what = SHOWS_DONE,
                           .value = value,
                           .fresh = fresh,
                           .twice = twice };
        show(w, &s, "done");
        if (send)
            sim_model_learn(w, step->message, value++);
        counted(step);
    }
    u->done = true;
}

/* number: of the step that was refused, from 1; 0: none. */
static void show_refused(struct sim *w, const struct sim_op *op, int32_t result, uint64_t number,
                         uint64_t found, bool any)
{
    struct sim_unit *u = op->unit;
    SIM_CHECK(w, number <= u->count, "op %u: step %" PRIu64 " of %u was refused", op->number,
              number, u->count);
    SIM_CHECK(w, number != 0 || result == PAWL_E_FULL, "op %u of u%u refused with %s, no step was",
              op->number, u->number, pawl_strname(result));
    for (uint32_t i = 0; i < u->count; i++) {
        struct sim_op *step = u->steps[i];
        struct shows s = { .op = op, .step = step, .result = result, .value = found, .any = any };
        s.what = i + 1 == number ? SHOWS_REFUSED : SHOWS_OTHER;
        if (result == PAWL_E_ALREADY_ACKED)
            s.value = (uint32_t)found; /* the upper half says when */
        show(w, &s, "refused");
        if (i + 1 == number && result == PAWL_E_FULL && !any)
            SIM_CHECK(w, found < 64 && (step->limits >> found & 1),
                      "G10: step %" PRIu64 " of u%u: limit %" PRIu64 " is not met", number,
                      u->number, found);
    }
}

static void show_all(struct sim *w, const struct sim_op *op, enum what what, int32_t result,
                     const char *text)
{
    for (uint32_t i = 0; i < op->unit->count; i++) {
        struct shows s = { .op = op, .step = op->unit->steps[i], .what = what, .result = result };
        show(w, &s, text);
    }
}

static void answer_resolve(struct sim *w, struct sim_op *op, int32_t result, const void *data,
                           uint32_t bytes)
{
    struct sim_unit *u = op->unit;
    struct pawl_comp_resolved r;
    w->totals->units_resolved++;
    if (result == PAWL_E_INVALID || result == PAWL_E_RESOURCE) {
        if (result == PAWL_E_INVALID)
            show_all(w, op, SHOWS_PASSING, result, "asked");
        return;
    }
    SIM_CHECK(w, result == PAWL_OK && bytes >= sizeof r, "resolve op %u answered %s, %u bytes",
              op->number, pawl_strname(result), bytes);
    memcpy(&r, data, sizeof r);
    sim_note(w, "u%u is %u %s value %" PRIx64 " lsn %" PRIu64, u->number, r.state,
             pawl_strname(r.result), r.value, r.lsn);
    switch (r.state) {
    case PAWL_RESOLVED_COMMITTED:
        if (r.result == PAWL_OK)
            show_done(w, op, r.value, r.lsn, false, false);
        else
            show_refused(w, op, r.result, 1, r.value, true);
        w->totals->units_known++;
        break;
    case PAWL_RESOLVED_ABORTED:
        show_refused(w, op, r.result, u->transaction ? r.value : 1, r.value, u->transaction);
        break;
    case PAWL_RESOLVED_FORGOTTEN:
        show_all(w, op, SHOWS_PASSING, PAWL_E_FORGOTTEN, "asked");
        break;
    default:
        if (r.result == PAWL_E_OP_FENCED) {
            show_all(w, op, SHOWS_FENCED, r.result, "fenced");
            w->totals->units_fenced++;
        } else {
            SIM_CHECK(w, !op->fences, "resolve op %u: no fence was made", op->number);
            show_all(w, op, SHOWS_PASSING, PAWL_OK, "never seen");
        }
        break;
    }
}

void sim_unit_answer(struct sim *w, struct sim_op *op, int32_t result, uint64_t value, uint64_t lsn,
                     const void *data, uint32_t bytes)
{
    struct sim_unit *u = op->unit;
    if (op->type == PAWL_CMD_RESOLVE) {
        answer_resolve(w, op, result, data, bytes);
        return;
    }
    w->totals->units_repeated += result == PAWL_OK_DUPLICATE ? 1 : 0;
    switch (result) {
    case PAWL_OK:
    case PAWL_OK_DUPLICATE:
        show_done(w, op, value, lsn, result == PAWL_OK, result == PAWL_OK_DUPLICATE);
        break;
    case PAWL_E_OP_FENCED:
        show_all(w, op, SHOWS_FENCED, result, "fenced");
        break;
    case PAWL_E_FORGOTTEN: /* the id itself, or what a step names */
    case PAWL_E_INVALID:
        if (u->transaction && value != 0)
            show_refused(w, op, result, value, lsn, true);
        else
            show_all(w, op, SHOWS_PASSING, result, "refused");
        break;
    default:
        if (u->transaction)
            show_refused(w, op, result, value, lsn, lsn == 0 || op->resubmit);
        else
            show_refused(w, op, result, 1, value, false);
        break;
    }
}

/* --- all or none ----------------------------------------------------------------------------- */

/* 1: every way of every stand says done; -1: none does; 0: open. */
static int standing(const struct sim_message *m, const struct sim_op *step)
{
    uint32_t done = 0, all = 0;
    for (uint32_t i = 0; i < m->stand_count; i++)
        for (uint32_t j = 0; j < m->stands[i].set.count; j++) {
            const struct sim_pred *p = find(&m->stands[i].set.ways[j], key_of(step));
            done += p != NULL && (p->mask & SIM_BIT(PAWL_OK)) != 0 ? 1 : 0;
            all++;
        }
    return done == all ? 1 : done == 0 ? -1 : 0;
}

struct told {
    const struct sim_op *step;
    bool done;
};

static bool keep_told(void *ctx, const struct sim_way *way)
{
    const struct told *t = ctx;
    const struct sim_pred *p = find(way, key_of(t->step));
    return (p != NULL && (p->mask & SIM_BIT(PAWL_OK)) != 0) == t->done;
}

void sim_unit_notice(struct sim *w, struct sim_message *m)
{
    struct sim_unit *u = m->unit;
    if (!u->transaction || u->telling || u->count < 2)
        return;
    int is = 0;
    for (uint32_t i = 0; i < u->count; i++)
        if (u->steps[i]->message == m)
            is = standing(m, u->steps[i]);
    if (is == 0)
        return;
    u->telling = true;
    for (uint32_t i = 0; i < u->count; i++) {
        struct told t = { u->steps[i], is > 0 };
        struct sim_message *other = u->steps[i]->message;
        if (other == m || standing(other, u->steps[i]) == is)
            continue;
        char text[96];
        snprintf(text, sizeof text, "m%u shows that u%u was %s", m->number, u->number,
                 is > 0 ? "done" : "not done");
        sim_model_filter(w, other, keep_told, &t, text);
    }
    u->telling = false;
}

/* --- ends ------------------------------------------------------------------------------------ */

void sim_unit_close(struct sim *w, struct sim_op *op)
{
    op->unit->open--;
    for (uint32_t i = 0; i < op->unit->count; i++) {
        sim_model_forget(w, op->unit->steps[i]->message, op->number);
        if (op->unit->steps[i]->carrier == op)
            op->unit->steps[i]->lane = NULL;
    }
}

static bool keep_not_by(void *ctx, const struct sim_way *way)
{
    const struct shows *s = ctx;
    const struct sim_pred *p = find(way, key_of(s->step));
    return p == NULL || p->by != s->op->number;
}

void sim_unit_lost(struct sim *w, struct sim_op *op)
{
    if (op->state != SIM_OP_TAKEN || op->type == PAWL_CMD_RESOLVE)
        return;
    for (uint32_t i = 0; i < op->unit->count; i++) {
        struct shows s = { .op = op, .step = op->unit->steps[i] };
        sim_model_filter(w, s.step->message, keep_not_by, &s,
                         "the session is unknown, so this unit was not done by it");
    }
}

/* Nobody repeats it or asks for it any more. */
static void retire(struct sim *w, struct sim_unit *u)
{
    for (uint32_t i = 0; i < u->count; i++) {
        struct sim_op *step = u->steps[i];
        step->message->unit = NULL;
        step->carrier = NULL;
        step->state = SIM_OP_CLOSED;
        sim_model_forget(w, step->message, key_of(step));
    }
    free(u);
}

void sim_unit_turn(struct sim *w)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->unit_count; i++) {
        struct sim_unit *u = w->units[i];
        bool old = w->op_count - u->number > AGE_MAX || u->repeats >= u->repeats_max ||
                   (!u->has_id && u->done) || w->liveness;
        if (u->open == 0 && old)
            retire(w, u);
        else
            w->units[kept++] = u;
    }
    w->unit_count = kept;
}

void sim_unit_free(struct sim *w)
{
    for (uint32_t i = 0; i < w->unit_count; i++)
        free(w->units[i]);
    free(w->units);
    free(w->used);
}

/* --- clients --------------------------------------------------------------------------------- */

static void id_new(struct sim *w, struct pawl_op_id *id)
{
    uint64_t ms = sim_wall(w) / SIM_MS;
    if (sim_one_in(w, 30))
        ms += 40000 + sim_below(w, 40000);
    if (sim_one_in(w, 30))
        ms -= RETENTION / SIM_MS - 30000 - sim_below(w, 60000);
    for (uint32_t i = 0; i < sizeof id->bytes; i++)
        id->bytes[i] = i < 6 ? (uint8_t)(ms >> (40 - 8 * i)) : (uint8_t)sim_below(w, 256);
    id->bytes[6] = (uint8_t)(0x70 | (id->bytes[6] & 15));
    id->bytes[8] = (uint8_t)(0x80 | (id->bytes[8] & 63));
}

/* What goes into the ring: the step, or the row of them; the id at the end. */
static void carry(struct sim *w, struct sim_lane *lane, struct sim_unit *u)
{
    uint32_t fixed = u->transaction ? sizeof(struct pawl_cmd_txn) : 0, bytes = fixed;
    for (uint32_t i = 0; i < u->count; i++)
        bytes += u->steps[i]->bytes;
    uint32_t id_bytes = u->has_id ? (uint32_t)sizeof u->id : 0;
    struct sim_op *op = sim_op_create(w, lane, u->type, 0, bytes + id_bytes);
    if (u->transaction) {
        struct pawl_cmd_txn c;
        memcpy(&c, op->command, sizeof c);
        c.count = u->count;
        memcpy(op->command, &c, sizeof c);
    }
    uint8_t *at = op->command + fixed;
    for (uint32_t i = 0; i < u->count; i++) {
        memcpy(at, u->steps[i]->command, u->steps[i]->bytes);
        at += u->steps[i]->bytes;
    }
    memcpy(at, &u->id, id_bytes);
    struct pawl_cmd head;
    memcpy(&head, op->command, sizeof head);
    head.bytes = op->bytes;
    head.type = u->type;
    head.flags = u->has_id ? PAWL_CMD_IDENTIFIED : 0;
    memcpy(op->command, &head, sizeof head);
    op->unit = u;
    u->open++;
    sim_note(w, "op %u carries u%u", op->number, u->number);
    sim_lane_submit(w, lane, op);
}

static void ask(struct sim *w, struct sim_lane *lane, struct sim_unit *u)
{
    struct sim_op *op =
        sim_op_create(w, lane, PAWL_CMD_RESOLVE, sizeof(struct pawl_cmd_resolve), 0);
    struct pawl_cmd_resolve c;
    memcpy(&c, op->command, sizeof c);
    c.id = u->id;
    op->fences = sim_one_in(w, 2);
    c.flags = op->fences ? PAWL_RESOLVE_FENCE : 0;
    memcpy(op->command, &c, sizeof c);
    op->unit = u;
    u->open++;
    sim_note(w, "op %u asks for u%u%s", op->number, u->number, op->fences ? ", fences" : "");
    sim_lane_submit(w, lane, op);
}

/* Something that is in this lane's hands, or anybody's message. */
static struct sim_op *some_step(struct sim *w, struct sim_lane *lane)
{
    static const uint16_t settles[] = { PAWL_CMD_ACK,     PAWL_CMD_ACK,    PAWL_CMD_NACK,
                                        PAWL_CMD_RELEASE, PAWL_CMD_REJECT, PAWL_CMD_DEFER };
    if (lane->held_count > 0 && sim_one_in(w, 2)) {
        uint32_t i = (uint32_t)sim_below(w, lane->held_count);
        struct sim_held held = lane->held[i];
        struct sim_message *m = held.message;
        if (m == NULL || m->unit != NULL || m->gone || m->queue->options.mode != PAWL_DURABLE)
            return NULL;
        lane->held[i] = lane->held[--lane->held_count];
        return sim_make_settle(w, lane, &held, settles[sim_below(w, PAWL_COUNT(settles))]);
    }
    if (w->message_count > 0 && sim_one_in(w, 4)) {
        struct sim_message *m = w->messages[sim_below(w, w->message_count)];
        if (m->unit != NULL || m->gone || m->id == 0 || m->queue->options.mode != PAWL_DURABLE)
            return NULL;
        return sim_make_message(w, lane, m, sim_one_in(w, 2) ? PAWL_CMD_CANCEL : PAWL_CMD_ACK_ID);
    }
    return sim_make_send(w, lane);
}

static void no_flags(struct sim_op *step)
{
    struct pawl_cmd_settle c;
    struct pawl_cmd_message m;
    if (step->type == PAWL_CMD_ACK) {
        memcpy(&c, step->command, sizeof c);
        c.flags &= ~PAWL_ACK_IGNORE_MISSING;
        memcpy(step->command, &c, sizeof c);
    } else if (step->type == PAWL_CMD_ACK_ID) {
        memcpy(&m, step->command, sizeof m);
        m.flags &= ~PAWL_ACK_IGNORE_MISSING;
        memcpy(step->command, &m, sizeof m);
    }
}

static bool add_step(struct sim *w, struct sim_lane *lane, struct sim_unit *u)
{
    struct sim_op *step = some_step(w, lane);
    if (step == NULL)
        return false;
    step->lane = NULL;
    if (u->transaction)
        no_flags(step); /* what is missing would be no refusal, and no effect */
    step->message->unit = u;
    u->steps[u->count++] = step;
    return true;
}

static void begin(struct sim *w, struct sim_lane *lane)
{
    struct sim_unit *u = calloc(1, sizeof *u);
    if (u == NULL)
        abort();
    u->transaction = sim_one_in(w, 2);
    u->has_id = !u->transaction || !sim_one_in(w, 3);
    u->repeats_max = (uint32_t)sim_below(w, 6);
    uint32_t want = u->transaction ? 1 + (uint32_t)sim_below(w, STEPS_MAX) : 1;
    for (uint32_t tries = 2 * want; tries > 0 && u->count < want; tries--)
        (void)add_step(w, lane, u);
    if (u->count == 0) {
        free(u);
        return;
    }
    u->type = u->transaction ? PAWL_CMD_TXN : u->steps[0]->type;
    u->number = u->steps[0]->number;
    if (u->has_id)
        id_new(w, &u->id);
    w->units = sim_grow(w->units, &w->unit_capacity, w->unit_count, sizeof *w->units);
    w->units[w->unit_count++] = u;
    w->totals->units++;
    carry(w, lane, u);
}

void sim_unit_act(struct sim *w, struct sim_lane *lane)
{
    if (w->unit_count < UNITS_MAX && (w->unit_count == 0 || sim_one_in(w, 2))) {
        begin(w, lane);
        return;
    }
    if (w->unit_count == 0)
        return;
    struct sim_unit *u = w->units[sim_below(w, w->unit_count)];
    if (!u->has_id || u->open >= CARRIERS_MAX || u->repeats >= u->repeats_max)
        return;
    u->repeats++;
    if (sim_one_in(w, 3))
        ask(w, lane, u);
    else
        carry(w, lane, u);
}
