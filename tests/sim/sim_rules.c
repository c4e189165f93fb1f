/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* The contract, one message and one decision at a time: semantics 1 (results), 2 (states, leases,
 * ladder, death), 3 (the table of acknowledgements), design G10 and G12. Nothing here was taken
 * from the broker's code. Where the contract leaves a choice, each choice is a way. */

#define WAYS_MANY 60u /* time to look */
#define WAYS_MAX 4000u

bool sim_rules_terminal(uint8_t state)
{
    return state == PAWL_STATE_ACKED || state == PAWL_STATE_EXPIRED ||
           state == PAWL_STATE_CANCELLED || state == PAWL_STATE_PURGED;
}

uint64_t sim_rules_retention(const struct sim_queue *q)
{
    return q->options.done_retention_ns ? q->options.done_retention_ns : 600 * SIM_S;
}

static uint64_t max_hold(const struct sim_queue *q)
{
    return q->options.max_hold_ns ? q->options.max_hold_ns : 12 * SIM_HOUR;
}

uint64_t sim_rules_lease(const struct sim_queue *q, uint64_t lease_ns)
{
    uint64_t lease = lease_ns ? lease_ns : q->options.lease_ns;
    lease = lease ? lease : PAWL_LEASE_NS_DEFAULT;
    return pawl_min_u64(lease, max_hold(q));
}

static uint32_t max_failed(const struct sim_queue *q)
{
    return q->options.max_failed == PAWL_KEEP ? 16 : q->options.max_failed;
}

static uint32_t max_crashed(const struct sim_queue *q)
{
    return q->options.max_crashed == PAWL_KEEP ? 5 : q->options.max_crashed;
}

static uint64_t ladder(const struct sim_queue *q, uint32_t failed)
{
    static const uint64_t standard[] = { 0, 1, 5, 30, 120, 600 };
    uint32_t step = failed - 1;
    if (q->options.retry_count != 0)
        return q->options
            .retry_ns[step < q->options.retry_count ? step : q->options.retry_count - 1];
    return standard[step < 6 ? step : 5] * SIM_S;
}

/* Two that differ only in when they became ready: one that became it between, and surely was it
 * since the later moment. */
static bool merge(struct sim_way *old, const struct sim_way *way)
{
    if (old->fresh || way->fresh)
        return false;
    bool ready = old->state == PAWL_STATE_READY;
    struct sim_way a = *old, b = *way;
    a.ready_index = b.ready_index = a.step_ns = b.step_ns = 0;
    if (ready)
        a.from = b.from = a.to = b.to = 0;
    if (memcmp(&a, &b, sizeof a) != 0)
        return false;
    if (ready) {
        old->from = pawl_min_u64(old->from, way->from);
        old->to = pawl_max_u64(old->to, way->to);
    }
    old->step_ns = 0;
    old->ready_index = old->ready_index == 0 || way->ready_index == 0
                           ? 0
                           : pawl_max_u64(old->ready_index, way->ready_index);
    return true;
}

/* What most ways differ in, looked at first. */
static bool alike(const struct sim_way *a, const struct sim_way *b)
{
    return a->state == b->state && a->acquired == b->acquired && a->reserve == b->reserve &&
           a->grant == b->grant && a->failed == b->failed;
}

void sim_set_add(struct sim *w, struct sim_set *set, const struct sim_way *way)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (alike(&set->ways[i], way) &&
            (memcmp(&set->ways[i], way, sizeof *way) == 0 || merge(&set->ways[i], way)))
            return;
    set->ways = sim_grow(set->ways, &set->capacity, set->count, sizeof *set->ways);
    set->ways[set->count++] = *way;
    if (set->count > WAYS_MANY)
        w->look = true;
    if (set->count > WAYS_MAX) {
        sim_way_print(set->ways, set->count);
        sim_fail(w, "the model lost track: too many ways");
    }
}

struct sim_pred *sim_pred_find(struct sim_way *way, uint32_t op)
{
    for (uint32_t i = 0; i < SIM_PREDS; i++)
        if (way->preds[i].op == op)
            return &way->preds[i];
    return NULL;
}

/* Adds the way with this answer. mask: results; value: exact unless any. */
void sim_rules_yield(struct sim *w, struct sim_set *out, struct sim_way way,
                     const struct sim_pred *pred)
{
    struct sim_pred *p = sim_pred_find(&way, pred->op);
    if (p == NULL)
        p = sim_pred_find(&way, 0);
    SIM_CHECK(w, p != NULL, "the model has no room for one more open operation");
    memset(p, 0, sizeof *p);
    p->op = pred->op;
    p->record = pred->record;
    p->any = pred->any;
    p->epoch = (uint32_t)w->epoch;
    p->by = pred->by;
    p->mask = pred->mask;
    p->value = pred->any ? 0 : pred->value;
    sim_set_add(w, out, &way);
}

static void yield(struct sim *w, struct sim_set *out, struct sim_way way, const struct sim_op *op,
                  uint64_t mask, bool any, uint64_t value, bool record)
{
    if (op->carrier != NULL) {
        sim_unit_yield(w, out, &way, op, mask, any, value, record);
        return;
    }
    const struct sim_pred p = {
        .op = op->number, .record = record, .any = any, .mask = mask, .value = value
    };
    sim_rules_yield(w, out, way, &p);
}

static void refuse(struct sim *w, struct sim_set *out, const struct sim_way *way,
                   const struct sim_op *op, uint64_t mask, bool any, uint64_t value)
{
    yield(w, out, *way, op, mask, any, value, false);
}

static void end_lease(struct sim_way *way)
{
    way->over = way->lapsed = way->ended = way->released = false;
    way->end_why = way->end_taken = 0;
    way->end_at = 0;
    way->kind = 0;
    if (way->reserve == 0) /* else it may still be shown, by that lane */
        way->client = way->lane = 0;
    way->pid = 0;
    way->lease_ns = way->renew_ns = 0;
    way->cap_min = way->cap_max = way->hold_ns = 0;
}

static void make_terminal(struct sim *w, struct sim_way *way, uint8_t state)
{
    end_lease(way);
    way->state = state;
    way->from = w->now.time;
    way->to = w->now.time;
    way->ready_index = way->step_ns = 0;
    way->fresh = false;
    way->fresh_at = 0;
}

static void make_dead(struct sim *w, struct sim_way *way, uint8_t reason)
{
    make_terminal(w, way, PAWL_STATE_DEAD);
    way->reason = reason;
}

/* Ready between from and to. */
static void make_ready(struct sim *w, struct sim_way *way, uint64_t from, uint64_t to)
{
    end_lease(way);
    if (way->reserve != 0) { /* and nobody was told */
        way->grant = way->reserve = way->client = way->lane = 0;
        way->seq = way->grant_epoch = 0;
    }
    way->state = PAWL_STATE_READY;
    way->from = from;
    way->to = to;
    way->step_ns = 0;
    way->fresh = false;
    way->fresh_at = 0;
    way->ready_index = to <= w->now.time ? w->index : 0;
}

/* --- ends of leases -------------------------------------------------------------------------- */

void sim_rules_expire(struct sim *w, struct sim_message *m, const struct sim_way *way,
                      struct sim_set *out)
{
    struct sim_way next = *way;
    uint64_t end = way->from;
    next.expired++;
    next.failed++;
    uint32_t most = max_failed(m->queue);
    if (most != 0 && next.failed >= most) {
        make_dead(w, &next, PAWL_DEAD_FAILED);
        next.from = next.to = end;
    } else {
        uint64_t step = ladder(m->queue, next.failed);
        make_ready(w, &next, end + step, SIM_NEVER);
        next.step_ns = step;
        next.fresh = way->to != SIM_NEVER;
        next.fresh_at = next.fresh ? way->to : 0;
    }
    sim_set_add(w, out, &next);
    if (way->kind == PAWL_LEASE_HELD || way->reserve != 0) {
        /* a lease whose holder is gone or never was told goes back uncounted */
        next = *way;
        make_ready(w, &next, end, SIM_NEVER);
        next.fresh = way->to != SIM_NEVER;
        next.fresh_at = next.fresh ? way->to : 0;
        sim_set_add(w, out, &next);
    }
}

/* When the broker has given back what the session held, it is certain how late that was. */
static void when_pumped(struct sim_way *way, const struct sim_way *lease, uint64_t step)
{
    if (!lease->ended)
        return;
    way->fresh = true;
    way->fresh_at = SIM_NEVER;
    way->step_ns = step;
}

void sim_rules_release(struct sim *w, struct sim_message *m, const struct sim_way *way,
                       enum pawl_core_end why, enum sim_taken taken, struct sim_set *out)
{
    struct sim_way next = *way;
    if (why != PAWL_END_DEAD || taken != SIM_TAKEN) {
        make_ready(w, &next, way->end_at, SIM_NEVER);
        when_pumped(&next, way, 0);
        sim_set_add(w, out, &next);
    }
    if (why != PAWL_END_DEAD || taken == SIM_NOT_TAKEN)
        return;
    next = *way;
    next.crashed++;
    uint32_t most = max_crashed(m->queue);
    if (most != 0 && next.crashed >= most) {
        make_dead(w, &next, PAWL_DEAD_CRASHED);
        next.from = next.to = way->end_at;
    } else {
        uint64_t step = next.crashed < 2 ? 0 : SIM_S << (next.crashed - 2);
        make_ready(w, &next, way->end_at + step, SIM_NEVER);
        when_pumped(&next, way, step);
    }
    sim_set_add(w, out, &next);
}

/* --- grant ----------------------------------------------------------------------------------- */

bool sim_rules_grant(struct sim *w, struct sim_message *m, const struct sim_way *way,
                     const struct sim_op *receive, struct sim_way *out)
{
    if (way->state != PAWL_STATE_READY || way->from > w->now.time || way->ttl_end <= w->now.time)
        return false;
    *out = *way;
    out->acquired++;
    out->grant = 0;
    out->seq = receive->seq;
    out->grant_epoch = w->epoch;
    out->client = receive->lane->client->number;
    out->pid = receive->lane->client->pid;
    out->lane = receive->lane->uid;
    out->fresh = false;
    out->fresh_at = 0;
    if (receive->amo) {
        make_terminal(w, out, PAWL_STATE_ACKED);
        out->pid = receive->lane->client->pid;
        out->lane = receive->lane->uid;
        out->client = receive->lane->client->number;
        return true;
    }
    out->state = PAWL_STATE_LEASED;
    out->kind = receive->lease_kind;
    out->lease_ns = sim_rules_lease(m->queue, receive->lease_ns);
    out->from = SIM_NEVER;
    out->to = SIM_NEVER;
    out->step_ns = 0;
    out->hold_ns = max_hold(m->queue);
    out->cap_min = w->now.time + out->hold_ns;
    out->cap_max = SIM_NEVER;
    return true;
}

/* --- commands -------------------------------------------------------------------------------- */

static void decide_send(struct sim *w, struct sim_message *m, const struct sim_way *way,
                        struct sim_op *op, struct sim_set *out)
{
    bool must = false;
    uint32_t payload = m->body_bytes + m->headers_bytes + m->key_bytes + m->ordering_key_bytes;
    uint64_t limits = sim_limits(w, m->queue, m->body_bytes, payload, &must);
    if (op->takes == 1)
        op->sure = limits == 0 && m->key == 0;
    if (m->key != 0) /* sim_key.c looks at it when it shows */
        refuse(w, out, way, op, SIM_BIT(PAWL_OK_DUPLICATE) | SIM_BIT(PAWL_E_KEY_MISMATCH), true, 0);
    op->limits |= limits; /* an earlier refusal may be answered again */
    if (limits != 0)
        refuse(w, out, way, op, SIM_BIT(PAWL_E_FULL), true, 0);
    if (must)
        return;
    struct sim_way next = *way;
    uint64_t delay = m->delay_ns;
    if (m->at_wall_ns != 0)
        delay = m->at_wall_ns > w->now.wall ? m->at_wall_ns - w->now.wall : 0;
    uint64_t ttl = m->ttl_ns ? m->ttl_ns : m->queue->options.ttl_ns;
    make_ready(w, &next, w->now.time + delay, w->now.time + delay);
    next.epoch = (uint32_t)w->epoch;
    next.wall = w->now.wall;
    next.ttl_end = ttl ? pawl_add_sat(w->now.time, ttl) : SIM_NEVER;
    next.place_time = next.from;
    next.place_index = delay == 0 ? w->index : 0;
    yield(w, out, next, op, SIM_BIT(PAWL_OK), true, 0, true);
}

/* What a settled, unknown or forgotten message answers. True: it did. */
static bool decide_gone(struct sim *w, struct sim_message *m, const struct sim_way *way,
                        struct sim_op *op, struct sim_set *out, uint32_t flags, uint64_t others)
{
    uint64_t unknown = SIM_BIT(PAWL_E_FORGOTTEN) | SIM_BIT(PAWL_E_NOT_FOUND);
    uint64_t forgotten = SIM_BIT(PAWL_E_FORGOTTEN);
    uint64_t state = SIM_BIT(PAWL_E_STATE);
    bool ignore = (flags & PAWL_ACK_IGNORE_MISSING) != 0;
    if (ignore)
        unknown = forgotten = state = SIM_BIT(PAWL_OK_MISSING);
    if (way->state == PAWL_STATE_NONE) {
        refuse(w, out, way, op, unknown, true, 0);
        return true;
    }
    if (sim_rules_terminal(way->state) &&
        w->now.time >= pawl_add_sat(way->from, sim_rules_retention(m->queue)))
        refuse(w, out, way, op, forgotten, true, 0);
    if (way->state == PAWL_STATE_ACKED) {
        if (op->type == PAWL_CMD_ACK || op->type == PAWL_CMD_ACK_ID)
            refuse(w, out, way, op, SIM_BIT(PAWL_E_ALREADY_ACKED), false, way->pid);
        else
            refuse(w, out, way, op, others | SIM_BIT(PAWL_E_ALREADY_ACKED) | state, true, 0);
        return true;
    }
    if (sim_rules_terminal(way->state) ||
        (way->state == PAWL_STATE_DEAD && op->type != PAWL_CMD_RESTORE)) {
        refuse(w, out, way, op, state, ignore, way->state);
        if (ignore)
            return true;
        return true;
    }
    return false;
}

/* The lease that this way shows ends as the command says. */
static void settle(struct sim *w, struct sim_message *m, const struct sim_way *way,
                   struct sim_op *op, const struct pawl_cmd_settle *c, struct sim_set *out)
{
    struct sim_way next = *way;
    uint64_t now = w->now.time;
    switch (op->type) {
    case PAWL_CMD_ACK:
        make_terminal(w, &next, PAWL_STATE_ACKED);
        next.pid = op->lane->client->pid;
        break;
    case PAWL_CMD_NACK: {
        next.nacked++;
        next.failed++;
        uint32_t most = max_failed(m->queue);
        if (most != 0 && next.failed >= most) {
            make_dead(w, &next, PAWL_DEAD_FAILED);
        } else if (c->time_ns == PAWL_DELAY_LADDER) {
            uint64_t step = ladder(m->queue, next.failed);
            make_ready(w, &next, now + step, now + step + step / 10);
        } else {
            make_ready(w, &next, now + c->time_ns, now + c->time_ns);
        }
        break;
    }
    case PAWL_CMD_RELEASE:
        make_ready(w, &next, now, now);
        break;
    case PAWL_CMD_REJECT:
        make_dead(w, &next, PAWL_DEAD_REJECTED);
        break;
    case PAWL_CMD_DEFER:
        next.deferred++;
        make_ready(w, &next, now + c->time_ns, now + c->time_ns);
        break;
    default: /* RENEW */
        if (now + c->time_ns > way->cap_min)
            refuse(w, out, way, op, SIM_BIT(PAWL_E_HOLD_CAP), true, 0);
        if (way->cap_max != SIM_NEVER && now + c->time_ns > way->cap_max)
            return;
        next.from = next.to = now + c->time_ns;
        next.renew_ns = c->time_ns;
        break;
    }
    yield(w, out, next, op, SIM_BIT(PAWL_OK), true, 0, true);
}

static void decide_settle(struct sim *w, struct sim_message *m, const struct sim_way *way,
                          struct sim_op *op, struct sim_set *out)
{
    struct pawl_cmd_settle c;
    memcpy(&c, op->command, sizeof c);
    bool ignore = (c.flags & PAWL_ACK_IGNORE_MISSING) != 0;
    uint64_t lost = SIM_BIT(PAWL_E_LEASE_LOST);
    /* a token that was never given for this message, or to another user */
    struct sim_held *known = sim_map_get(w->grants, c.grant);
    if (known == NULL || known->token.random != c.random || known->uid != op->lane->client->uid) {
        /* whatever it is told, nothing happens */
        uint64_t mask = lost | SIM_BIT(PAWL_E_NOT_FOUND) | SIM_BIT(PAWL_E_FORGOTTEN) |
                        SIM_BIT(PAWL_E_ALREADY_ACKED) | SIM_BIT(PAWL_E_STATE);
        if (ignore)
            mask = lost | SIM_BIT(PAWL_E_ALREADY_ACKED) | SIM_BIT(PAWL_OK_MISSING);
        refuse(w, out, way, op, mask, true, 0);
        return;
    }
    if (way->state != PAWL_STATE_NONE && way->id != c.message) {
        struct sim_way none = *way;
        none.state = PAWL_STATE_NONE;
        struct sim_set answers = { 0 };
        (void)decide_gone(w, m, &none, op, &answers, c.flags, lost);
        for (uint32_t i = 0; i < answers.count; i++) {
            answers.ways[i].state = way->state;
            sim_set_add(w, out, &answers.ways[i]);
        }
        free(answers.ways);
        return;
    }
    if (m->queue->options.mode != PAWL_DURABLE && c.grant >> 40 < w->epoch && c.grant != way->grant)
        refuse(w, out, way, op, ignore ? SIM_BIT(PAWL_OK_MISSING) : SIM_BIT(PAWL_E_NOT_FOUND), true,
               0); /* a crash took the grant back */
    if (decide_gone(w, m, way, op, out, c.flags, lost))
        return;
    uint64_t now = w->now.time;
    bool unclaimed = op->type == PAWL_CMD_ACK && (c.flags & PAWL_ACK_IF_UNCLAIMED) != 0;
    if (way->state == PAWL_STATE_READY) {
        if (unclaimed && way->grant == c.grant)
            settle(w, m, way, op, &c, out);
        else
            refuse(w, out, way, op, lost, false, 0);
        if (way->ttl_end <= now) /* its timer may not have fired yet */
            refuse(w, out, way, op, ignore ? SIM_BIT(PAWL_OK_MISSING) : SIM_BIT(PAWL_E_STATE), true,
                   0);
        return;
    }
    /* LEASED */
    bool current = way->grant == c.grant && way->reserve == 0;
    if (!current) {
        /* somebody else has it, though his time may be over */
        bool may_be_over = way->over || now >= way->from;
        refuse(w, out, way, op, lost, may_be_over, way->pid);
        return;
    }
    if (!way->over && now < way->to)
        settle(w, m, way, op, &c, out);
    if (way->over || now >= way->from) {
        if (unclaimed)
            settle(w, m, way, op, &c, out);
        else
            refuse(w, out, way, op, lost, true, 0);
    }
}

static void decide_message(struct sim *w, struct sim_message *m, const struct sim_way *way,
                           struct sim_op *op, struct sim_set *out)
{
    struct pawl_cmd_message c;
    memcpy(&c, op->command, sizeof c);
    if (op->type == PAWL_CMD_PEEK) {
        uint64_t mask = SIM_BIT(PAWL_E_FORGOTTEN) | SIM_BIT(PAWL_E_NOT_FOUND);
        if (way->id == c.id) {
            if (way->state == PAWL_STATE_READY || way->state == PAWL_STATE_LEASED ||
                way->state == PAWL_STATE_DEAD)
                mask = SIM_BIT(PAWL_OK);
            else if (way->state != PAWL_STATE_NONE)
                mask |= SIM_BIT(PAWL_E_STATE) | SIM_BIT(PAWL_E_ALREADY_ACKED);
            if (way->ttl_end <= w->now.time)
                mask |= SIM_BIT(PAWL_E_STATE);
        }
        refuse(w, out, way, op, mask, true, 0);
        return;
    }
    struct sim_way none = *way;
    if (way->id != c.id)
        none.state = PAWL_STATE_NONE;
    if (none.state == PAWL_STATE_NONE) {
        uint64_t mask = SIM_BIT(PAWL_E_FORGOTTEN) | SIM_BIT(PAWL_E_NOT_FOUND);
        if (c.flags & PAWL_ACK_IGNORE_MISSING)
            mask = SIM_BIT(PAWL_OK_MISSING);
        refuse(w, out, way, op, mask, true, 0);
        return;
    }
    if (decide_gone(w, m, way, op, out, c.flags, 0))
        return;
    struct sim_way next = *way;
    bool ignore = (c.flags & PAWL_ACK_IGNORE_MISSING) != 0;
    bool over = way->state == PAWL_STATE_LEASED && (way->over || w->now.time >= way->from);
    bool waits = way->state == PAWL_STATE_READY || over;
    if (op->type == PAWL_CMD_RESTORE) {
        if (way->state == PAWL_STATE_DEAD) {
            make_ready(w, &next, w->now.time, w->now.time);
            next.reason = 0;
            next.acquired = next.failed = next.expired = next.nacked = 0;
            next.crashed = next.deferred = 0;
            yield(w, out, next, op, SIM_BIT(PAWL_OK), true, 0, true);
        } else {
            refuse(w, out, way, op, SIM_BIT(PAWL_E_STATE), true, 0);
        }
        return;
    }
    if (waits) {
        make_terminal(w, &next,
                      op->type == PAWL_CMD_CANCEL ? PAWL_STATE_CANCELLED : PAWL_STATE_ACKED);
        if (op->type == PAWL_CMD_ACK_ID)
            next.pid = op->lane->client->pid;
        yield(w, out, next, op, SIM_BIT(PAWL_OK), true, 0, true);
    }
    if (way->state == PAWL_STATE_LEASED || way->ttl_end <= w->now.time) {
        uint64_t mask = ignore ? SIM_BIT(PAWL_OK_MISSING) : SIM_BIT(PAWL_E_STATE);
        if (op->type == PAWL_CMD_ACK_ID && way->state == PAWL_STATE_LEASED)
            mask |= SIM_BIT(PAWL_E_LEASE_LOST);
        refuse(w, out, way, op, mask, true, 0);
    }
}

/* A purge of many messages takes its time: until its answer each of them may still be there. */
static void decide_purge(struct sim *w, struct sim_message *m, const struct sim_way *way,
                         struct sim_op *op, struct sim_set *out)
{
    if (!sim_rules_live(way->state)) {
        sim_set_add(w, out, way);
        return;
    }
    struct sim_set coming = { 0 };
    yield(w, &coming, *way, op, 0, true, 0, false);
    coming.ways[0].preds[sim_pred_find(&coming.ways[0], op->number) - coming.ways[0].preds].coming =
        true;
    sim_set_add(w, out, &coming.ways[0]); /* and what makes of it PURGED is derived */
    free(coming.ways);
}

bool sim_rules_live(uint8_t state)
{
    return state == PAWL_STATE_READY || state == PAWL_STATE_LEASED || state == PAWL_STATE_DEAD;
}

void sim_rules_purge(struct sim *w, struct sim_way *way, uint64_t since)
{
    make_terminal(w, way, PAWL_STATE_PURGED);
    way->from = since;
}

void sim_rules_decide(struct sim *w, struct sim_message *m, const struct sim_way *way,
                      struct sim_op *op, struct sim_set *out)
{
    struct pawl_cmd head;
    memcpy(&head, op->command, sizeof head);
    if (head.deadline != 0 && w->now_boot >= head.deadline) {
        refuse(w, out, way, op, SIM_BIT(PAWL_E_DEADLINE), true, 0);
        return;
    }
    switch (op->type) {
    case PAWL_CMD_SEND:
        decide_send(w, m, way, op, out);
        break;
    case PAWL_CMD_QUEUE_PURGE:
        decide_purge(w, m, way, op, out);
        break;
    case PAWL_CMD_CANCEL:
    case PAWL_CMD_RESTORE:
    case PAWL_CMD_ACK_ID:
    case PAWL_CMD_PEEK:
        decide_message(w, m, way, op, out);
        break;
    default:
        decide_settle(w, m, way, op, out);
        break;
    }
}
