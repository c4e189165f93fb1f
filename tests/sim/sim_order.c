/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* What is said of many messages at once: order (G9), limits and counts (G10), scans. */

/* --- order ----------------------------------------------------------------------------------- */

/* Certainly a before b in the order of a queue. Between a delayed message and another the clock
 * decides, and close calls are left alone: the broker reads it once a turn. */
static bool before(const struct sim_way *a, uint64_t b_time, uint64_t b_index)
{
    if (a->place_index != 0 && b_index != 0)
        return a->place_index < b_index;
    return a->place_time + SIM_MS < b_time;
}

/* Of every 32 deliveries one goes to the lowest level that waits: level 0 is that, if it does. */
static void starved(struct sim *w, const struct sim_message *m, uint64_t ready_index,
                    uint64_t index)
{
    const struct sim_queue *q = m->queue;
    uint64_t all = 0, lowest = 0;
    if (m->priority != 0 || ready_index == 0 || m->ordering_key != 0)
        return;
    for (uint32_t i = 0; i < q->grant_count; i++) {
        const struct sim_grant *g = &q->grants[i];
        if (g->index <= ready_index || g->index >= index)
            continue;
        all++;
        lowest += g->priority == 0 ? 1 : 0;
    }
    SIM_CHECK(w, all <= 32 * (lowest + 2 + w->crashes),
              "G9: m%u of the lowest level waited for %" PRIu64 " deliveries, %" PRIu64
              " of its level",
              m->number, all, lowest);
}

/* Is this the only thing that can be, and has it been so since before `index`: the message is with
 * a receiver, or waits for its retry? */
static bool holds_key(struct sim *w, struct sim_message *m, uint64_t index)
{
    if (m->gone || m->dropped || m->changed >= index)
        return false;
    const struct sim_set *set = sim_current(m);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct sim_way *way = &set->ways[i];
        bool leased = way->state == PAWL_STATE_LEASED && !way->over && !way->ended &&
                      (way->reserve == 0 || way->reserve < index) && way->to > w->now.time;
        bool retry = way->state == PAWL_STATE_READY && way->acquired > 0 && way->from > w->now.time;
        if (!leased && !retry)
            return false;
    }
    return set->count > 0;
}

static bool same_key(const struct sim_message *a, const struct sim_message *b)
{
    return a->ordering_key != 0 && a->ordering_key == b->ordering_key;
}

/* Nobody has another message of its ordering key. */
static void alone(struct sim *w, const struct sim_message *m, uint64_t index)
{
    const struct sim_queue *q = m->queue;
    for (uint32_t i = 0; i < q->message_count && m->ordering_key != 0; i++) {
        struct sim_message *other = q->messages[i];
        if (other == m || !same_key(m, other) || !holds_key(w, other, index))
            continue;
        sim_model_dump(w, other);
        sim_fail(w, "G9: m%u was granted at %" PRIu64 " beside m%u of its ordering key", m->number,
                 index, other->number);
    }
    if (m->ordering_key != 0)
        w->totals->ordered++;
}

/* m was granted by the reservation `index`; it has been ready since late->ready_index. Nothing that
 * stands behind it may have been granted between. */
void sim_order_grant(struct sim *w, struct sim_message *m, const struct sim_way *early,
                     const struct sim_way *late, uint64_t index)
{
    struct sim_queue *q = m->queue;
    SIM_CHECK(w, q->paused_index == 0 || index < q->paused_index,
              "m%u: granted at %" PRIu64 " while queue %s was paused", m->number, index, q->name);
    alone(w, m, index);
    for (uint32_t i = q->grant_count; i-- > 0 && late->ready_index != 0;) {
        struct sim_grant *g = &q->grants[i];
        if (g->index >= index || g->index <= late->ready_index)
            continue;
        /* One of a key may have been ready in vain; but in its key it is in order, whatever the
         * priorities. */
        if (m->ordering_key != 0 && !same_key(m, g->message))
            continue;
        if (g->priority == m->priority || same_key(m, g->message))
            SIM_CHECK(w, !before(late, g->place_time, g->place_index),
                      "G9: m%u was ready since %" PRIu64
                      ", yet m%u behind it went first at %" PRIu64,
                      m->number, late->ready_index, g->message->number, g->index);
        if (g->priority < m->priority && !g->counted && m->ordering_key == 0) {
            sim_note(w,
                     "m%u of priority %u, ready since %" PRIu64 ", was behind m%u of priority "
                     "%u granted at %" PRIu64,
                     m->number, m->priority, late->ready_index, g->message->number, g->priority,
                     g->index);
            g->counted = true;
            q->exceptions++;
        }
    }
    q->deliveries++;
    starved(w, m, late->ready_index, index);
    SIM_CHECK(w, q->exceptions <= q->deliveries / 32 + 2 + w->crashes,
              "G9: queue %s: %" PRIu64 " of %" PRIu64 " deliveries went to a lower priority",
              q->name, q->exceptions, q->deliveries);
    q->grants = sim_grow(q->grants, &q->grant_capacity, q->grant_count, sizeof *q->grants);
    q->grants[q->grant_count++] = (struct sim_grant){ .index = index,
                                                      .place_time = early->place_time,
                                                      .place_index = early->place_index,
                                                      .message = m,
                                                      .priority = m->priority };
    if (q->grant_count > 4096) {
        memmove(q->grants, q->grants + 2048, 2048 * sizeof *q->grants);
        q->grant_count -= 2048;
    }
}

/* --- counts ---------------------------------------------------------------------------------- */

static void add(struct sim_range *range, bool always, bool ever, uint64_t n)
{
    range->min += always ? n : 0;
    range->max += ever ? n : 0;
}

static void count_live(const struct sim_message *m, struct sim_counts *out)
{
    const struct sim_set *set = &m->stands[m->stand_count - 1].set;
    uint32_t alive = 0;
    for (uint32_t j = 0; j < set->count; j++)
        alive += sim_rules_live(set->ways[j].state) ? 1 : 0;
    add(&out->live, alive == set->count, alive != 0, 1);
    out->bytes.min += alive == set->count ? m->body_bytes : 0;
    out->bytes.max +=
        alive != 0 ? m->body_bytes + m->headers_bytes + m->key_bytes + m->ordering_key_bytes + 8
                   : 0;
}

void sim_counts_take(struct sim *w, const struct sim_queue *q, struct sim_counts *out)
{
    memset(out, 0, sizeof *out);
    out->sent = q->sends_shown;
    out->acked = q->acks_shown;
    out->delivered = q->deliveries_shown;
    for (uint32_t i = 0; i < q->message_count; i++) {
        struct sim_message *m = q->messages[i];
        if (m->gone)
            continue;
        const struct sim_set *set = sim_current(m);
        uint32_t by_state[PAWL_STATE_PURGED + 1] = { 0 };
        for (uint32_t j = 0; j < set->count; j++)
            by_state[set->ways[j].state]++;
        for (uint32_t s = 1; s <= PAWL_STATE_PURGED; s++)
            add(&out->by_state[s], by_state[s] == set->count, by_state[s] != 0, 1);
        count_live(m, out);
    }
}

/* Upper bounds of what all messages, remembered ones too, may take of memory and log. */
static void used(struct sim *w, uint64_t *memory, uint64_t *log)
{
    *memory = w->used_memory;
    *log = w->used_log;
    if (w->index < w->used_index + 200 && w->used_index != 0)
        return; /* the limits are met by thousands, not by one */
    *memory = *log = 0;
    for (uint32_t i = 0; i < w->message_count; i++) {
        struct sim_message *m = w->messages[i];
        if (m->gone && !m->dropped)
            continue;
        bool alive = false, any = false;
        const struct sim_set *set = sim_current(m);
        for (uint32_t j = 0; j < set->count; j++) {
            alive = alive || sim_rules_live(set->ways[j].state);
            any = any || set->ways[j].state != PAWL_STATE_NONE;
        }
        *memory += any ? 256 : 0;
        *memory += alive ? 2ull * m->bytes : 0;
        *log += any ? 256 : 0;
        *log += alive ? m->bytes + 256 : 0;
    }
    *log += w->client_count * (512 + SIM_LANES_MAX * 64 * 64ull) + 65536;
    w->used_memory = *memory;
    w->used_log = *log;
    w->used_index = w->index + 1;
}

uint64_t sim_limits(struct sim *w, const struct sim_queue *q, uint32_t body, uint32_t payload,
                    bool *must)
{
    uint64_t may = 0, memory, log;
    *must = false;
    if (q->options.max_messages != 0 || q->options.max_bytes != 0) {
        struct sim_counts c = { 0 };
        for (uint32_t i = 0; i < w->active_count; i++) /* those at rest do not live */
            if (w->active[i]->queue == q && !w->active[i]->gone)
                count_live(w->active[i], &c);
        uint64_t most = q->options.max_messages;
        if (most != 0 && c.live.max >= most)
            may |= 1ull << PAWL_LIMIT_QUEUE_MESSAGES;
        if (most != 0 && c.live.min >= most)
            *must = true;
        most = q->options.max_bytes;
        if (most != 0 && c.bytes.max + payload > most)
            may |= 1ull << PAWL_LIMIT_QUEUE_BYTES;
        if (most != 0 && c.bytes.min + body > most)
            *must = true;
    }
    used(w, &memory, &log);
    if (memory > w->options.memory_bytes / 4)
        may |= 1ull << PAWL_LIMIT_MEMORY;
    if (2 * log + 3 * w->options.segment_bytes > w->options.max_log_bytes)
        may |= 1ull << PAWL_LIMIT_LOG;
    if (w->disk_was_full)
        may |= 1ull << PAWL_LIMIT_LOG | 1ull << PAWL_LIMIT_DISK;
    return may;
}

static void within(struct sim *w, const struct sim_op *op, const char *what, uint64_t is,
                   struct sim_range range)
{
    SIM_CHECK(w, is >= range.min && is <= range.max,
              "stat op %u of %s: %" PRIu64 " %s, should be %" PRIu64 " to %" PRIu64, op->number,
              op->queue->name, is, what, range.min, range.max);
}

void sim_order_stat(struct sim *w, struct sim_op *op, const void *data, uint32_t bytes)
{
    struct pawl_queue_stat stat;
    SIM_CHECK(w, data != NULL && bytes >= sizeof stat, "stat of %u bytes", bytes);
    memcpy(&stat, data, sizeof stat);
    struct sim_counts *c = op->counts;
    within(w, op, "ready or scheduled", stat.ready + stat.scheduled, c->by_state[PAWL_STATE_READY]);
    within(w, op, "leased", stat.leased, c->by_state[PAWL_STATE_LEASED]);
    within(w, op, "dead", stat.dead, c->by_state[PAWL_STATE_DEAD]);
    within(w, op, "payload bytes", stat.bytes, c->bytes);
    uint64_t done = 0;
    for (uint32_t s = PAWL_STATE_ACKED; s <= PAWL_STATE_PURGED; s++)
        done += c->by_state[s].max;
    SIM_CHECK(w, stat.done <= done, "stat of %s: %" PRIu64 " remembered, at most %" PRIu64 " ended",
              op->queue->name, stat.done, done);
    if (op->queue->options.mode == PAWL_DURABLE) {
        const struct sim_queue *q = op->queue;
        within(w, op, "sent", stat.sent, (struct sim_range){ c->sent, q->sends_taken });
        within(w, op, "delivered", stat.delivered, (struct sim_range){ c->delivered, UINT64_MAX });
        within(w, op, "acknowledged", stat.acked,
               (struct sim_range){ c->acked, q->acks_taken + stat.delivered });
    }
    SIM_CHECK(w, strcmp(stat.name, op->queue->name) == 0 && stat.id == op->queue->id,
              "stat of %s is about %.40s", op->queue->name, stat.name);
}

/* --- scan ------------------------------------------------------------------------------------ */

struct shows {
    struct sim *w;
    struct sim_message *m;
    const struct pawl_record *r;
    uint64_t time;
};

static bool keep_scanned(void *ctx, const struct sim_way *way)
{
    const struct shows *s = ctx;
    const struct pawl_record *r = s->r;
    if (way->id != 0 && way->id != r->id)
        return false;
    if (r->acquired != way->acquired || r->failed != way->failed || r->crashed != way->crashed ||
        r->expired != way->expired || r->nacked != way->nacked || r->deferred != way->deferred)
        return false;
    switch (way->state) {
    case PAWL_STATE_READY:
        if (r->state == PAWL_STATE_SCHEDULED)
            /* decided at some moment since it was taken */
            return r->due_in_ns == 0 ? s->w->now.time >= way->from
                                     : s->w->now.time + r->due_in_ns >= way->from &&
                                           s->time + r->due_in_ns <= way->to;
        return r->state == PAWL_STATE_READY && s->w->now.time >= way->from;
    case PAWL_STATE_LEASED:
        return r->state == PAWL_STATE_LEASED && r->holder_pid == way->pid;
    case PAWL_STATE_DEAD:
        return r->state == PAWL_STATE_DEAD && r->dead_reason == way->reason;
    case PAWL_STATE_NONE:
        return false;
    default:
        return r->state == way->state;
    }
}

static bool may_be(const struct sim_message *m, const struct pawl_record *r)
{
    bool over = sim_rules_terminal((uint8_t)r->state);
    bool known = m->id != 0 && m->queue->options.mode == PAWL_DURABLE; /* others may get another */
    if (known || m->gone || m->priority != r->priority || (!over && m->body_bytes != r->bytes))
        return false;
    const struct sim_set *set = &m->stands[m->stand_count - 1].set;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->ways[i].state != PAWL_STATE_NONE && set->ways[i].id == 0 &&
            set->ways[i].epoch == r->id >> 40 && (over || set->ways[i].wall == r->created_wall_ns))
            return true;
    return false;
}

/* An id that no answer has told: one of the sends that are open, or whose sender is gone. If it can
 * be but one, the id is known from here on. */
static struct sim_message *scan_guess(struct sim *w, struct sim_op *op, const struct pawl_record *r)
{
    struct sim_message *found = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->queue->message_count; i++)
        if (may_be(op->queue->messages[i], r)) {
            found = op->queue->messages[i];
            count++;
        }
    for (uint32_t i = 0; count == 0 && i < w->message_count; i++)
        if (w->messages[i]->queue == op->queue && w->messages[i]->body_bytes == r->bytes)
            sim_model_dump(w, w->messages[i]);
    SIM_CHECK(w, count > 0,
              "scan of %s shows %" PRIx64 " %s priority %u bytes %" PRIu64 " sent %" PRIu64
              ", which nobody sent",
              op->queue->name, r->id, pawl_state_name(r->state), r->priority, r->bytes,
              r->created_wall_ns);
    if (count > 1 || sim_rules_terminal((uint8_t)r->state))
        return NULL;
    sim_model_learn(w, found, r->id);
    return found;
}

/* False: a message whose id nobody outside knows yet. */
static bool scan_found(struct sim *w, struct sim_op *op, const struct pawl_record *r)
{
    struct sim_message *m = sim_map_get(w->ids, r->id);
    if (m == NULL)
        m = scan_guess(w, op, r);
    if (m == NULL)
        return false;
    SIM_CHECK(w, !m->dropped, "scan of %s shows m%u of the queue that was dropped", op->queue->name,
              m->number);
    SIM_CHECK(w, m->queue == op->queue, "scan of %s shows m%u of %s", op->queue->name, m->number,
              m->queue->name);
    if (m->changed >= op->index)
        return true;
    struct shows s = { w, m, r, op->time };
    char what[200];
    snprintf(what, sizeof what,
             "scan shows it %s, acquired %u failed %u crashed %u expired %u nacked %u deferred %u, "
             "due in %" PRIu64 ", pid %u",
             pawl_state_name(r->state), r->acquired, r->failed, r->crashed, r->expired, r->nacked,
             r->deferred, r->due_in_ns, r->holder_pid);
    sim_model_filter(w, m, keep_scanned, &s, what);
    struct sim_set *set = sim_current(m);
    if (set->count == 1 && set->ways[0].state == PAWL_STATE_READY && r->due_in_ns != 0) {
        set->ways[0].from = pawl_max_u64(set->ways[0].from, op->time + r->due_in_ns);
        set->ways[0].to = pawl_min_u64(set->ways[0].to, w->now.time + r->due_in_ns);
    }
    m->changed = op->index - 1; /* nothing has moved, it is only known better */
    return true;
}

struct absent {
    struct sim *w;
    struct sim_message *m;
    struct sim_op *op;
    bool whole; /* there is nothing at all */
};

/* Would this way be missing from a page that asks for these states? */
static bool keep_absent(void *ctx, const struct sim_way *way)
{
    const struct absent *a = ctx;
    uint32_t states = 1u << way->state;
    if (way->state == PAWL_STATE_NONE || (!a->whole && way->id != a->m->id))
        return true;
    if (way->state == PAWL_STATE_READY)
        states |= 1u << PAWL_STATE_SCHEDULED;
    if ((states & a->op->mask) != states)
        return true;
    return sim_rules_terminal(way->state) &&
           a->op->time >= pawl_add_sat(way->from, sim_rules_retention(a->m->queue));
}

/* What was there in the range of a page must be on it. */
static void scan_missing(struct sim *w, struct sim_op *op, const struct pawl_record *rows,
                         uint64_t count, uint64_t last, bool all_known)
{
    bool whole = op->after == 0 && count == 0 && all_known;
    for (uint32_t i = 0; i < op->queue->message_count; i++) {
        struct sim_message *m = op->queue->messages[i];
        if (m->gone || m->changed >= op->index)
            continue;
        if (!whole && (m->id == 0 || m->id <= op->after || m->id > last))
            continue;
        bool found = false;
        for (uint64_t k = 0; k < count && !found && m->id != 0; k++)
            found = rows[k].id == m->id;
        struct absent a = { w, m, op, whole };
        uint64_t changed = m->changed;
        if (!found)
            sim_model_filter(w, m, keep_absent, &a, "G1: it is missing from a scan");
        m->changed = changed;
    }
}

void sim_order_scan(struct sim *w, struct sim_op *op, const void *data, uint32_t bytes,
                    uint64_t count)
{
    uint64_t rows_count = bytes / sizeof(struct pawl_record);
    struct pawl_record *rows = malloc(bytes + 1);
    if (rows == NULL)
        abort();
    if (bytes != 0)
        memcpy(rows, data, bytes);
    SIM_CHECK(w, rows_count * sizeof *rows == bytes, "scan of %u bytes", bytes);
    w->totals->scans++;
    bool all_known = true;
    /* A page is complete up to its last row; only an empty one says that there is no more. */
    uint64_t last = rows_count > 0 ? rows[rows_count - 1].id : UINT64_MAX;
    for (uint64_t i = 0; i < rows_count; i++) {
        SIM_CHECK(w, rows[i].id > (i ? rows[i - 1].id : op->after), "scan of %s is out of order",
                  op->queue->name);
        SIM_CHECK(w, 1u << rows[i].state & op->mask, "scan of %s shows state %u, not asked for",
                  op->queue->name, rows[i].state);
        all_known = scan_found(w, op, &rows[i]) && all_known;
    }
    scan_missing(w, op, rows, rows_count, last, all_known);
    if (op->inspects) {
        op->queue->inspected = last == UINT64_MAX;
        op->queue->inspect_after = last;
    }
    free(rows);
}
