/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* Dedup keys (G4) over many messages, from semantics 2 alone.
 *
 * Whether a send makes a message or is told of the first one depends on messages of which not all
 * is known at once. So a send with a key may do either (sim_rules.c), and each thing that shows is
 * held against what must be true then:
 *
 *   made       no other message of this key that surely exists was made before and still lives, or
 *              had its window when this one was decided
 *   repeated   the first one is of this queue and key, of this body or of another as the answer
 *              says; it exists (for ever, on a durable queue); it may still have lived or had its
 *              window; the state is one that it may have had */

static uint64_t window(const struct sim_queue *q)
{
    return q->options.dedup_window_ns ? q->options.dedup_window_ns : 600 * SIM_S;
}

static bool surely_exists(const struct sim_message *m)
{
    const struct sim_set *set = &m->stands[m->stand_count - 1].set;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->ways[i].state == PAWL_STATE_NONE)
            return false;
    return m->id != 0 && !m->gone && set->count > 0;
}

static bool surely_lives(const struct sim_message *m)
{
    const struct sim_set *set = &m->stands[m->stand_count - 1].set;
    for (uint32_t i = 0; i < set->count; i++)
        if (!sim_rules_live(set->ways[i].state))
            return false;
    return set->count > 0;
}

/* Did it surely end before this time? */
static bool surely_ended(const struct sim_message *m, uint64_t time)
{
    const struct sim_set *set = &m->stands[m->stand_count - 1].set;
    for (uint32_t i = 0; i < set->count; i++) {
        const struct sim_way *way = &set->ways[i];
        /* One that was leased or dead beyond its TTL ended when that did, which nobody has kept. */
        bool later = way->state == PAWL_STATE_EXPIRED && (way->acquired != 0 || way->grant != 0);
        if (!sim_rules_terminal(way->state) || way->to >= time || later)
            return false;
    }
    return set->count > 0;
}

static bool may_be(const struct sim_message *m, uint32_t state)
{
    for (uint32_t s = 0; s < m->stand_count; s++)
        for (uint32_t i = 0; i < m->stands[s].set.count; i++)
            if (m->stands[s].set.ways[i].state == state)
                return true;
    return false;
}

struct sim_message *sim_key_first(struct sim *w, const struct sim_queue *q, uint8_t key)
{
    /* Mostly one that is known to be there: what was refused or repeated itself is no first one. */
    bool any = sim_one_in(w, 4);
    for (uint32_t i = q->message_count; i-- > 0;) {
        struct sim_message *m = q->messages[i];
        if (m->key == key && !m->gone && (any || m->id != 0))
            return m;
    }
    return NULL;
}

void sim_key_made(struct sim *w, struct sim_message *m)
{
    if (m->key == 0 || m->dropped)
        return;
    for (uint32_t i = 0; i < m->queue->message_count; i++) {
        struct sim_message *f = m->queue->messages[i];
        if (f == m || f->key != m->key || !surely_exists(f) || !surely_exists(m))
            continue;
        struct sim_message *old = f->id < m->id ? f : m, *new = f->id < m->id ? m : f;
        /* Not before its first decision was it accepted, and the other not after its last. */
        uint64_t end = pawl_add_sat(old->send->time_min, window(m->queue));
        bool in_window = new->send->time_max < end;
        if (in_window || surely_lives(old))
            sim_model_dump(w, old);
        SIM_CHECK(w, !in_window, "G4: m%u was made, %" PRIu64 " ns before the window of m%u ends",
                  new->number, end - new->send->time_max, old->number);
        SIM_CHECK(w, !surely_lives(old), "G4: m%u was made while m%u lives", new->number,
                  old->number);
        w->totals->keys_again++;
    }
}

static bool keep_existing(void *ctx, const struct sim_way *way)
{
    (void)ctx;
    return way->state != PAWL_STATE_NONE;
}

/* The one that the answer names. NULL: more than one may be meant. */
static struct sim_message *find(struct sim *w, struct sim_op *op, uint64_t id, bool same_body)
{
    struct sim_message *m = op->message, *found = sim_map_get(w->ids, id);
    if (found != NULL)
        return found;
    uint32_t many = 0;
    for (uint32_t i = 0; i < m->queue->message_count; i++) {
        struct sim_message *f = m->queue->messages[i];
        if (f == m || f->key != m->key || f->gone || f->send->takes == 0 || f->id != 0 ||
            (f->body_of == m->body_of) != same_body)
            continue;
        found = f;
        many++;
    }
    SIM_CHECK(w, many > 0, "G4: op %u of m%u is told of %" PRIx64 ", which nobody sent", op->number,
              m->number, id);
    return many == 1 ? found : NULL;
}

void sim_key_repeated(struct sim *w, struct sim_op *op, int32_t result, uint64_t id, uint32_t state)
{
    struct sim_message *m = op->message;
    bool same = result == PAWL_OK_DUPLICATE;
    SIM_CHECK(w, m->key != 0 && id != 0, "op %u answered %s, it has no key", op->number,
              pawl_strname(result));
    w->totals->keys_repeated++;
    w->totals->keys_other += !same;
    struct sim_message *f = find(w, op, id, same);
    if (f == NULL)
        return;
    SIM_CHECK(w, f != m && f->queue == m->queue && f->key == m->key && !f->dropped,
              "G4: op %u of m%u is told of m%u, which has another key", op->number, m->number,
              f->number);
    SIM_CHECK(w, (f->body_of == m->body_of) == same, "G4: op %u of m%u: %s, of m%u", op->number,
              m->number, pawl_strname(result), f->number);
    if (f->id == 0)
        sim_model_learn(w, f, id);
    SIM_CHECK(w, f->id == id, "G4: m%u is %" PRIx64 ", not %" PRIx64, f->number, f->id, id);
    sim_model_filter(w, f, keep_existing, NULL, "a repeat was told of it");
    uint64_t end = pawl_add_sat(f->send->time_max, window(m->queue));
    bool ended = surely_ended(f, pawl_min_u64(op->time_min, op->fired_min));
    bool good = state >= PAWL_STATE_ACKED ? may_be(f, state) : state != PAWL_STATE_NONE && !ended;
    if (!good || (op->time_min >= end && ended))
        sim_model_dump(w, f);
    SIM_CHECK(w, op->time_min < end || !ended,
              "G4: op %u of m%u is told of m%u, whose window was over", op->number, m->number,
              f->number);
    SIM_CHECK(w, good, "G4: op %u is told that m%u is %s", op->number, f->number,
              pawl_state_name(state));
}
