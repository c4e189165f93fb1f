/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* Keeps the sets of ways (sim_model.h) up to date with what happens and what shows. */

#define BODY_MAGIC 0x6c776170u

/* --- sets ------------------------------------------------------------------------------------ */

static void set_copy(struct sim *w, struct sim_set *to, const struct sim_set *from)
{
    to->count = 0;
    for (uint32_t i = 0; i < from->count; i++) {
        to->ways = sim_grow(to->ways, &to->capacity, to->count, sizeof *to->ways);
        to->ways[to->count++] = from->ways[i];
    }
}

static void set_replace(struct sim_set *set, struct sim_set *by)
{
    free(set->ways);
    *set = *by;
}

static void drop_stand(struct sim_message *m, uint32_t i)
{
    free(m->stands[i].set.ways);
    memmove(&m->stands[i], &m->stands[i + 1], (m->stand_count - i - 1) * sizeof *m->stands);
    m->stand_count--;
}

/* Those of which something can still happen by itself stand in a list of their own; the rest is
 * looked at only when it is named. */
static void activate(struct sim *w, struct sim_message *m)
{
    if (m->active)
        return;
    m->active = true;
    w->active = sim_grow(w->active, &w->active_capacity, w->active_count, sizeof *w->active);
    w->active[w->active_count++] = m;
}

static bool at_rest(const struct sim_message *m)
{
    if (m->gone)
        return true;
    if (m->stand_count > 1 || m->open_ops > 0 || m->moved || m->unit != NULL)
        return false;
    const struct sim_set *set = &m->stands[0].set;
    for (uint32_t i = 0; i < set->count; i++)
        if (sim_rules_live(set->ways[i].state) || set->ways[i].reserve != 0)
            return false;
    return true;
}

static void deactivate(struct sim *w)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        m->active = !at_rest(m);
        if (m->active)
            w->active[kept++] = m;
    }
    w->active_count = kept;
}

/* A decision follows: what stands now may come back by a crash. */
void sim_model_push(struct sim *w, struct sim_message *m)
{
    m->changed = w->index;
    m->moved = w->moved = true;
    activate(w, m);
    if (m->queue->options.mode == PAWL_MEMORY)
        return;
    m->stands = sim_grow(m->stands, &m->stand_capacity, m->stand_count, sizeof *m->stands);
    struct sim_stand *next = &m->stands[m->stand_count];
    memset(next, 0, sizeof *next);
    set_copy(w, &next->set, &m->stands[m->stand_count - 1].set);
    next->index = w->index;
    next->pos = SIM_NEVER;
    m->stand_count++;
}

static void way_print(const struct sim_way *way)
{
    fprintf(stderr,
            "    %s id %" PRIx64 " from %" PRIu64 " to %" PRIu64 " grant %" PRIx64
            " reserve %" PRIu64 " client %u lane %u kind %u%s acquired %u failed %u crashed %u "
            "expired %u nacked %u deferred %u ttl %" PRIu64 " epoch %u",
            pawl_state_name(way->state), way->id, way->from, way->to, way->grant, way->reserve,
            way->client, way->lane, way->kind, way->over ? " over" : "", way->acquired, way->failed,
            way->crashed, way->expired, way->nacked, way->deferred, way->ttl_end, way->epoch);
    for (uint32_t i = 0; i < SIM_PREDS; i++)
        if (way->preds[i].op != 0)
            fprintf(stderr, " [op %u mask %" PRIx64 " value %s%" PRIu64 "%s]", way->preds[i].op,
                    way->preds[i].mask, way->preds[i].any ? "any " : "", way->preds[i].value,
                    way->preds[i].record ? " in log" : "");
    fprintf(stderr, "\n");
}

void sim_way_print(const struct sim_way *ways, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        way_print(&ways[i]);
}

void sim_model_dump(struct sim *w, const struct sim_message *m)
{
    fprintf(stderr, "--- message m%u id %" PRIx64 " queue %s priority %u, %u stands:\n", m->number,
            m->id, m->queue->name, m->priority, m->stand_count);
    for (uint32_t i = 0; i < m->stand_count; i++) {
        fprintf(stderr, "  since %" PRIu64 " pos %" PRIu64 ":\n", m->stands[i].index,
                m->stands[i].pos);
        for (uint32_t j = 0; j < m->stands[i].set.count; j++)
            way_print(&m->stands[i].set.ways[j]);
    }
}

static void derive_again(struct sim *w, struct sim_message *m);

void sim_model_filter(struct sim *w, struct sim_message *m, sim_keep *keep, void *ctx,
                      const char *what)
{
    bool durable = m->queue->options.mode == PAWL_DURABLE;
    if (m->queue->options.mode == PAWL_RELAXED)
        sim_model_push(w, m); /* what shows may still be taken back */
    for (uint32_t i = m->stand_count; i-- > 0;) {
        bool newest = i + 1 == m->stand_count;
        if (!newest && !durable)
            break;
        struct sim_set *set = &m->stands[i].set, kept = { 0 };
        for (uint32_t j = 0; j < set->count; j++)
            if (keep(ctx, &set->ways[j]))
                sim_set_add(w, &kept, &set->ways[j]);
        if (kept.count == 0 && newest) {
            sim_model_dump(w, m);
            sim_fail(w, "m%u: %s, which no way allows", m->number, what);
        }
        if (kept.count == 0) {
            free(kept.ways);
            drop_stand(m, i);
        } else {
            set_replace(set, &kept);
        }
    }
    m->changed = w->index;
    derive_again(w, m);
    if (m->unit != NULL)
        sim_unit_notice(w, m);
}

void sim_model_watch(struct sim *w)
{
    static int64_t watched = -2;
    static uint64_t was;
    if (watched == -2) {
        const char *text = getenv("PAWL_WATCH");
        watched = text != NULL ? atoll(text) : -1;
    }
    if (watched < 0)
        return;
    for (uint32_t i = 0; i < w->message_count; i++) {
        const struct sim_message *m = w->messages[i];
        if (m->number != watched)
            continue;
        uint64_t now = m->stand_count;
        for (uint32_t s = 0; s < m->stand_count; s++)
            now = pawl_hash64(m->stands[s].set.ways,
                              m->stands[s].set.count * sizeof(struct sim_way), now);
        if (now != was)
            sim_model_dump(w, m);
        was = now;
    }
}

/* --- sends ----------------------------------------------------------------------------------- */

void sim_body_fill(uint8_t *body, uint32_t bytes, uint32_t number)
{
    struct pawl_prng prng = { number * 0x9e3779b97f4a7c15ull };
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t word = pawl_prng_next(&prng);
        memcpy(body + i, &word, pawl_min_u64(8, bytes - i));
    }
    uint32_t head[2] = { BODY_MAGIC, number };
    if (bytes >= sizeof head)
        memcpy(body, head, sizeof head);
}

static void q_add(struct sim_message *m)
{
    struct sim_queue *q = m->queue;
    q->messages =
        sim_grow(q->messages, &q->message_capacity, q->message_count, sizeof *q->messages);
    q->messages[q->message_count++] = m;
}

struct sim_message *sim_model_send(struct sim *w, struct sim_op *op, uint8_t priority,
                                   uint32_t delivery_bytes)
{
    struct sim_message *m = calloc(1, sizeof *m);
    if (m == NULL)
        abort();
    w->messages =
        sim_grow(w->messages, &w->message_capacity, w->message_count, sizeof *w->messages);
    w->messages[w->message_count++] = m;
    m->number = m->body_of = op->number;
    m->queue = op->queue;
    m->send = op;
    m->priority = priority;
    m->bytes = delivery_bytes;
    m->stands = sim_grow(NULL, &m->stand_capacity, 0, sizeof *m->stands);
    memset(&m->stands[0], 0, sizeof m->stands[0]);
    m->stand_count = 1;
    struct sim_way none;
    memset(&none, 0, sizeof none);
    none.state = PAWL_STATE_NONE;
    sim_set_add(w, &m->stands[0].set, &none);
    op->message = m;
    q_add(m);
    activate(w, m);
    w->totals->messages++;
    return m;
}

/* --- commands -------------------------------------------------------------------------------- */

void sim_model_decide(struct sim *w, struct sim_message *m, struct sim_op *op)
{
    sim_model_push(w, m);
    struct sim_set *set = sim_current(m), out = { 0 };
    for (uint32_t i = 0; i < set->count; i++) {
        struct sim_way way = set->ways[i];
        struct sim_pred *p =
            sim_pred_find(&way, op->carrier != NULL ? op->carrier->number : op->number);
        if (p != NULL && p->record) {
            sim_set_add(w, &out, &way); /* the lane's window answers */
            continue;
        }
        if (p != NULL) {
            sim_set_add(w, &out, &way); /* so may a refusal be, while the broker lives */
            memset(p, 0, sizeof *p);
        }
        if (op->carrier != NULL && sim_unit_known(w, &way, op, &out))
            continue;
        sim_rules_decide(w, m, &way, op, &out);
        if (op->carrier != NULL)
            sim_unit_others(w, &way, op, &out);
    }
    if (out.count == 0) {
        sim_model_dump(w, m);
        sim_fail(w, "the model has no rule for %s of m%u", sim_type_name(op->type), m->number);
    }
    set_replace(set, &out);
    derive_again(w, m);
}

static void count_take(const struct sim_op *op)
{
    if (op->takes > 1)
        return;
    if (op->type == PAWL_CMD_SEND)
        op->queue->sends_taken++;
    if (op->type == PAWL_CMD_ACK || op->type == PAWL_CMD_ACK_ID)
        op->queue->acks_taken++;
}

void sim_model_take(struct sim *w, struct sim_op *op)
{
    if (op->unit != NULL) {
        sim_unit_take(w, op);
        return;
    }
    count_take(op);
    switch (op->type) {
    case PAWL_CMD_STATE:
    case PAWL_CMD_STATE_SCAN:
    case PAWL_CMD_RESERVE:
    case PAWL_CMD_IDEM:
        sim_state_take(w, op);
        break;
    case PAWL_CMD_SEND:
    case PAWL_CMD_ACK:
    case PAWL_CMD_NACK:
    case PAWL_CMD_RELEASE:
    case PAWL_CMD_REJECT:
    case PAWL_CMD_DEFER:
    case PAWL_CMD_RENEW:
    case PAWL_CMD_ACK_ID:
    case PAWL_CMD_CANCEL:
    case PAWL_CMD_RESTORE:
    case PAWL_CMD_PEEK:
        if (op->message != NULL && !op->message->dropped)
            sim_model_decide(w, op->message, op);
        break;
    case PAWL_CMD_QUEUE_PURGE:
        sim_counts_take(w, op->queue, op->counts);
        for (uint32_t i = 0; i < w->message_count; i++)
            if (w->messages[i]->queue == op->queue && !w->messages[i]->gone)
                sim_model_decide(w, w->messages[i], op);
        break;
    case PAWL_CMD_QUEUE_STAT:
        sim_counts_take(w, op->queue, op->counts);
        break;
    case PAWL_CMD_QUEUE_PAUSE:
    case PAWL_CMD_QUEUE_RESUME:
        op->queue->paused_index = 0;
        op->queue->maybe_paused = op->queue->ever_paused = true;
        break;
    default:
        break;
    }
}

void sim_model_wrote(struct sim *w)
{
    if (w->engine == NULL)
        return;
    sim_state_wrote(w);
    if (!w->moved)
        return;
    w->moved = false;
    uint64_t pos = pawl_log_appended(pawl_engine_log(w->engine));
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (!m->moved)
            continue;
        m->moved = false;
        for (uint32_t j = m->stand_count; j-- > 0 && m->stands[j].pos == SIM_NEVER;)
            m->stands[j].pos = pos;
    }
}

/* What the log calls durable can no longer be taken back. */
void sim_model_durable(struct sim *w)
{
    uint64_t durable = pawl_log_durable(pawl_engine_log(w->engine));
    sim_state_durable(w, durable);
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        while (m->stand_count > 1 && m->stands[1].pos < durable && m->stands[1].pos != 0)
            drop_stand(m, 0);
    }
}

/* --- grants and deliveries ------------------------------------------------------------------- */

static bool waits_on(const struct sim_lane *lane, const struct sim_queue *q)
{
    const struct sim_op *r = lane->receive;
    if (r == NULL || r->state == SIM_OP_QUEUED)
        return false;
    if (r->state != SIM_OP_TAKEN && r->type != PAWL_CMD_SUBSCRIBE)
        return false;
    for (uint32_t i = 0; i < r->queue_count; i++)
        if (r->queues[i] == q)
            return true;
    return false;
}

void sim_model_reserve(struct sim *w, struct sim_lane *lane, uint32_t bytes)
{
    uint64_t index = ++w->index;
    lane->reserves = sim_grow(lane->reserves, &lane->reserve_capacity, lane->reserve_count,
                              sizeof *lane->reserves);
    lane->reserves[lane->reserve_count++] = (struct sim_reserve){ index, bytes };
    sim_note(w, "reserve lane %u bytes %u", lane->uid, bytes);
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m->gone || m->bytes != bytes || !waits_on(lane, m->queue))
            continue;
        struct sim_set *set = sim_current(m);
        for (uint32_t j = 0, n = set->count; j < n; j++) {
            struct sim_way next, way = set->ways[j];
            if (!sim_rules_grant(w, m, &way, lane->receive, &next))
                continue;
            next.reserve = index;
            sim_set_add(w, set, &next);
            m->changed = index;
        }
    }
}

struct shown {
    const struct pawl_comp_delivery *d;
    uint64_t reserve; /* the room that it was granted for; SIM_GRANT_LOST: no room fits */
    bool lost;        /* it may be a grant that was lost on its way, now shown again */
    uint32_t lane;
};

static bool fits(const struct pawl_comp_delivery *d, const struct sim_way *way)
{
    if (way->id != 0 ? way->id != d->message : d->message >> 40 != way->epoch)
        return false;
    /* deadline 0: at most once; 1: over before it was shown, the library drops it */
    if (d->deadline > 1 ? way->state != PAWL_STATE_LEASED
                        : d->deadline == 0 && way->state == PAWL_STATE_LEASED)
        return false;
    if (d->deadline > 1 && (way->wall != d->sent_wall_ns || way->kind != d->lease_kind))
        return false;
    if (way->seq != d->seq || way->grant_epoch != d->grant >> 40)
        return false;
    return way->acquired == d->acquired && way->failed == d->failed && way->crashed == d->crashed &&
           way->expired == d->expired && way->nacked == d->nacked;
}

static bool keep_shown(void *ctx, const struct sim_way *way)
{
    const struct shown *s = ctx;
    return (way->reserve == s->reserve || (s->lost && way->reserve == SIM_GRANT_LOST)) &&
           way->lane == s->lane && fits(s->d, way);
}

static bool keep_again(void *ctx, const struct sim_way *way)
{
    const struct shown *s = ctx;
    return way->grant == s->d->grant && way->reserve == 0;
}

/* The room `index` went to `m`: nobody else got it. */
static void settle_room(struct sim *w, struct sim_lane *lane, uint64_t index, uint32_t bytes,
                        const struct sim_message *to)
{
    uint64_t other = 0;
    for (uint32_t i = 0; i < lane->reserve_count && other == 0; i++)
        if (lane->reserves[i].bytes == bytes && lane->reserves[i].index > index)
            other = lane->reserves[i].index;
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m == to || m->gone || m->bytes != bytes)
            continue;
        for (uint32_t s = m->stand_count; s-- > 0;) {
            struct sim_set *set = &m->stands[s].set, kept = { 0 };
            bool any = false;
            for (uint32_t j = 0; j < set->count; j++)
                any = any || set->ways[j].reserve == index;
            if (!any)
                continue;
            for (uint32_t j = 0; j < set->count; j++) {
                struct sim_way way = set->ways[j];
                if (way.reserve == index && other == 0)
                    continue;
                if (way.reserve == index)
                    way.reserve = other;
                sim_set_add(w, &kept, &way);
            }
            if (kept.count == 0 && s + 1 == m->stand_count) {
                sim_model_dump(w, m);
                sim_fail(w,
                         "m%u must have been granted by reservation %" PRIu64 ", which went to m%u",
                         m->number, index, to->number);
            }
            if (kept.count == 0) {
                free(kept.ways);
                drop_stand(m, s);
            } else {
                set_replace(set, &kept);
            }
            m->changed = w->index;
        }
    }
}

static struct sim_message *check_content(struct sim *w, const struct sim_lane *lane,
                                         const struct pawl_comp_delivery *d)
{
    const uint8_t *key = (const uint8_t *)(d + 1);
    const uint8_t *body = key + d->key_bytes + d->ordering_key_bytes + d->headers_bytes;
    uint64_t all = sizeof *d + d->key_bytes + d->ordering_key_bytes + d->headers_bytes +
                   (uint64_t)d->body_bytes;
    SIM_CHECK(w, pawl_align_up(all, 8) == d->bytes, "delivery of %u bytes holds %" PRIu64, d->bytes,
              all);
    uint32_t head[2] = { 0 };
    if (d->body_bytes >= sizeof head)
        memcpy(head, body, sizeof head);
    SIM_CHECK(w, head[0] == BODY_MAGIC && head[1] >= 1 && head[1] <= w->op_count,
              "G1: delivered bytes that nobody sent");
    uint32_t number = head[1];
    if (d->key_bytes != 0 && d->headers_bytes == SIM_KEY_HEADER_BYTES)
        memcpy(&number, body - 4, sizeof number);
    SIM_CHECK(w, number >= 1 && number <= w->op_count, "G1: delivered headers that nobody sent");
    const struct sim_op *send = w->ops[number - 1];
    struct sim_message *m = send->message;
    SIM_CHECK(w, send->type == PAWL_CMD_SEND && m != NULL, "delivered bytes of no send");
    uint8_t *want = malloc(m->body_bytes + 8);
    if (want == NULL)
        abort();
    sim_body_fill(want, m->body_bytes, m->body_of);
    SIM_CHECK(w, d->body_bytes == m->body_bytes && memcmp(want, body, m->body_bytes) == 0,
              "G1: m%u: the body is torn", m->number);
    free(want);
    SIM_CHECK(w,
              d->priority == m->priority && d->key_bytes == m->key_bytes &&
                  d->ordering_key_bytes == m->ordering_key_bytes &&
                  d->headers_bytes == m->headers_bytes,
              "m%u: delivered with other options than sent", m->number);
    const struct sim_op *s = m->send;
    uint32_t fixed = sizeof(struct pawl_cmd_send);
    struct pawl_cmd_send c;
    memcpy(&c, s->command, sizeof c);
    if (c.flags & PAWL_SEND_TIMES)
        fixed += sizeof(struct pawl_cmd_send_times);
    SIM_CHECK(w, memcmp(s->command + fixed, key, all - sizeof *d) == 0,
              "m%u: delivered with other keys or headers than sent", m->number);
    SIM_CHECK(w, d->queue == c.queue, "m%u: from queue %" PRIx64 ", sent to %" PRIx64, m->number,
              d->queue, c.queue);
    SIM_CHECK(w, d->mode == m->queue->options.mode, "m%u: delivered with mode %u", m->number,
              d->mode);
    (void)lane;
    return m;
}

void sim_model_learn(struct sim *w, struct sim_message *m, uint64_t id)
{
    struct sim_message *other = sim_map_get(w->ids, id);
    SIM_CHECK(w, other == NULL || other == m, "ids: %" PRIx64 " given to m%u and m%u", id,
              other ? other->number : 0, m->number);
    SIM_CHECK(w, id >> 40 <= w->epoch && (id & ((1ull << 40) - 1)) != 0,
              "id %" PRIx64 " in epoch %" PRIu64, id, w->epoch);
    if (m->id != 0 && m->id != id)
        SIM_CHECK(w, m->queue->options.mode != PAWL_DURABLE,
                  "G6: m%u was made twice: %" PRIx64 " and %" PRIx64, m->number, m->id, id);
    m->id = id;
    sim_map_put(w->ids, id, m);
    for (uint32_t i = 0; i < m->stand_count; i++)
        for (uint32_t j = 0; j < m->stands[i].set.count; j++) {
            struct sim_way *way = &m->stands[i].set.ways[j];
            if (way->id == 0 && way->state != PAWL_STATE_NONE && way->epoch == id >> 40)
                way->id = id;
        }
}

/* A delivery that was over when it showed had no token. A crash that takes back the end of its
 * lease brings it again, with one. */
static void learn_token(struct sim *w, const struct pawl_comp_delivery *d)
{
    struct sim_held *token = sim_map_get(w->grants, d->grant);
    if (token != NULL && token->token.random == 0)
        token->token.random = d->random;
}

static void learn_grant(struct sim *w, struct sim_message *m, const struct sim_lane *lane,
                        const struct pawl_comp_delivery *d)
{
    SIM_CHECK(w, d->grant >> 40 <= w->epoch, "grant %" PRIx64 " in epoch %" PRIu64, d->grant,
              w->epoch);
    SIM_CHECK(w, d->grant > m->shown_grant, "m%u: grant %" PRIx64 " after %" PRIx64, m->number,
              d->grant, m->shown_grant);
    SIM_CHECK(w, sim_map_get(w->grants, d->grant) == NULL, "grant number %" PRIx64 " given twice",
              d->grant);
    struct sim_held *token = calloc(1, sizeof *token);
    if (token == NULL)
        abort();
    token->message = m;
    token->token = (struct pawl_token){ d->message, d->grant, d->random };
    token->uid = lane->client->uid;
    sim_map_put(w->grants, d->grant, token);
    m->shown_grant = d->grant;
}

/* The end of a lease counts from its publication, which is now (G12). */
static void set_deadline(struct sim *w, struct sim_message *m, struct sim_way *way,
                         const struct pawl_comp_delivery *d)
{
    if (way->state != PAWL_STATE_LEASED || d->deadline == 1)
        return;
    SIM_CHECK(w, d->lease_kind == way->kind, "m%u: lease of kind %u, wanted %u", m->number,
              d->lease_kind, way->kind);
    SIM_CHECK(w, d->deadline != 0, "m%u: taken at most once without asking", m->number);
    if (way->kind == PAWL_LEASE_HELD) {
        SIM_CHECK(w, d->deadline == SIM_NEVER, "m%u: a held lease with an end", m->number);
        way->from = way->cap_min;
        way->to = SIM_NEVER;
    } else {
        uint64_t end = d->deadline + pawl_engine_shift(w->engine);
        SIM_CHECK(w, end >= w->now.time + way->lease_ns,
                  "G12: m%u: lease of %" PRIu64 " ns, published with %" PRId64 " left", m->number,
                  way->lease_ns, (int64_t)(end - w->now.time));
        way->from = way->to = end;
    }
    way->cap_max = w->now.time + way->hold_ns;
    if (!way->ended)
        way->over = false; /* its time has begun anew, though the first one had run out unseen */
}

/* A lease in force was shown: none of what would have followed its end has happened. */
static void keep_leased(struct sim *w, struct sim_message *m)
{
    struct sim_set *set = sim_current(m);
    uint32_t count = 0;
    for (uint32_t j = 0; j < set->count; j++)
        if (set->ways[j].state == PAWL_STATE_LEASED)
            set->ways[count++] = set->ways[j];
    SIM_CHECK(w, count > 0, "m%u: a lease that had ended was delivered again", m->number);
    set->count = count;
}

/* Limits of what may be under lease: of the queue, and of a standing receive its credit. */
static void check_leased(struct sim *w, const struct sim_queue *q, const struct sim_lane *lane,
                         uint64_t seq)
{
    uint64_t of_queue = 0, of_receive = 0;
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m->gone || !sim_model_surely(m, PAWL_STATE_LEASED))
            continue;
        of_queue += m->queue == q ? 1 : 0;
        of_receive += m->shown_handle == lane->handle && m->shown_seq == seq &&
                              sim_current(m)->ways[0].reserve == 0
                          ? 1
                          : 0;
    }
    SIM_CHECK(w, q->options.max_inflight == 0 || of_queue <= q->options.max_inflight,
              "G10: %" PRIu64 " messages of %s under lease, %u allowed", of_queue, q->name,
              q->options.max_inflight);
    const struct sim_op *r = lane->receive;
    SIM_CHECK(w, r == NULL || r->seq != seq || of_receive <= r->max,
              "a receive of %u holds %" PRIu64, r ? r->max : 0, of_receive);
}

/* Takes a room of that size back. */
static bool room_of(struct sim_lane *lane, uint32_t bytes)
{
    for (uint32_t i = 0; i < lane->reserve_count; i++)
        if (lane->reserves[i].bytes == bytes) {
            memmove(&lane->reserves[i], &lane->reserves[i + 1],
                    (lane->reserve_count - i - 1) * sizeof *lane->reserves);
            lane->reserve_count--;
            return true;
        }
    return false;
}

/* Of all ways that are left: the latest moment from which it surely was ready, and the earliest and
 * the latest place. */
static void order_grant(struct sim *w, struct sim_message *m, uint64_t index)
{
    const struct sim_set *set = sim_current(m);
    struct sim_way early = set->ways[0], late = set->ways[0];
    for (uint32_t j = 1; j < set->count; j++) {
        const struct sim_way *way = &set->ways[j];
        late.ready_index = late.ready_index == 0 || way->ready_index == 0
                               ? 0
                               : pawl_max_u64(late.ready_index, way->ready_index);
        if (way->place_index != late.place_index)
            early.place_index = late.place_index = 0;
        early.place_time = pawl_min_u64(early.place_time, way->place_time);
        late.place_time = pawl_max_u64(late.place_time, way->place_time);
    }
    sim_order_grant(w, m, &early, &late, index);
}

/* It was granted before its queue was dropped. */
static void delivery_dropped(struct sim *w, struct sim_lane *lane, struct sim_message *m,
                             const struct pawl_comp_delivery *d)
{
    SIM_CHECK(w, m->queue->dropping != NULL || d->deadline == 1,
              "m%u: delivered though its queue was dropped", m->number);
    uint64_t room = 0;
    for (uint32_t i = 0; i < lane->reserve_count && room == 0; i++)
        if (lane->reserves[i].bytes == d->bytes)
            room = lane->reserves[i].index;
    SIM_CHECK(w, room_of(lane, d->bytes), "m%u: delivered without room reserved for it", m->number);
    settle_room(w, lane, room, d->bytes, m);
    sim_map_put(w->ids, d->message, m);
    if (lane->receive != NULL && lane->receive->seq == d->seq) {
        lane->receive->delivered++;
        lane->receive->delivered_now++;
    }
}

void sim_model_delivery(struct sim *w, struct sim_lane *lane, const struct pawl_comp_delivery *d)
{
    struct sim_message *m = check_content(w, lane, d);
    w->totals->deliveries++;
    sim_note(w,
             "deliver m%u id %" PRIx64 " grant %" PRIx64 " lane %u seq %" PRIu64
             " acquired %u end %" PRIx64,
             m->number, d->message, d->grant, lane->uid, d->seq, d->acquired, d->deadline);
    SIM_CHECK(w,
              (d->deadline == 0) == (lane->receive != NULL && lane->receive->seq == d->seq &&
                                     lane->receive->amo) ||
                  lane->receive == NULL || lane->receive->seq != d->seq,
              "m%u: delivered in the other mode of receipt", m->number);
    if (m->dropped) {
        delivery_dropped(w, lane, m, d);
        return;
    }
    struct shown s = { .d = d, .lane = lane->uid };
    struct sim_set *set = sim_current(m);
    bool again = false;
    for (uint32_t i = 0; i < set->count; i++) {
        const struct sim_way *way = &set->ways[i];
        if (d->deadline == 1 && way->state == PAWL_STATE_LEASED && !way->over)
            continue; /* only what has ended since is shown as over */
        if (way->grant == d->grant && way->reserve == 0)
            again = true;
        if (way->reserve == 0 || way->lane != lane->uid || !fits(d, way))
            continue;
        if (way->reserve == SIM_GRANT_LOST)
            s.lost = true;
        else if (s.reserve == 0 || way->reserve < s.reserve)
            s.reserve = way->reserve;
    }
    if (s.reserve == 0 && s.lost)
        s.reserve = SIM_GRANT_LOST;
    uint64_t room = 0;
    for (uint32_t i = 0; i < lane->reserve_count; i++)
        if (lane->reserves[i].bytes == d->bytes &&
            (again || s.lost || lane->reserves[i].index == s.reserve)) {
            room = lane->reserves[i].index;
            memmove(&lane->reserves[i], &lane->reserves[i + 1],
                    (lane->reserve_count - i - 1) * sizeof *lane->reserves);
            lane->reserve_count--;
            break;
        }
    if (!again && s.reserve == 0 && d->deadline == 1 && room_of(lane, d->bytes)) {
        sim_note(w, "over before it was shown");
        return;
    }
    if (!again && s.reserve == 0) {
        sim_model_dump(w, m);
        sim_fail(w,
                 "m%u: delivered, which no way allows (acquired %u failed %u crashed %u expired "
                 "%u nacked %u)",
                 m->number, d->acquired, d->failed, d->crashed, d->expired, d->nacked);
    }
    SIM_CHECK(w, room != 0, "m%u: delivered without room reserved for it", m->number);
    settle_room(w, lane, room, d->bytes, m);
    if (again) {
        sim_model_filter(w, m, keep_again, &s, "a lease was delivered again");
        learn_token(w, d);
    } else {
        sim_model_filter(w, m, keep_shown, &s, "delivered");
        learn_grant(w, m, lane, d);
        m->queue->deliveries_shown++;
        m->queue->acks_shown += d->deadline == 0 ? 1 : 0;
        sim_model_learn(w, m, d->message);
        sim_key_made(w, m);
        if (!s.lost)
            order_grant(w, m, s.reserve);
    }
    for (uint32_t i = 0; i < m->stand_count; i++)
        for (uint32_t j = 0; j < m->stands[i].set.count; j++) {
            struct sim_way *way = &m->stands[i].set.ways[j];
            if (!again && !keep_shown(&s, way))
                continue; /* an older stand of a relaxed queue */
            if (again && way->grant != d->grant)
                continue;
            way->reserve = 0;
            way->unread = false;
            way->grant = d->grant;
            if (!way->ended)
                way->end_why = 0;
            set_deadline(w, m, way, d);
        }
    if (d->deadline > 1)
        keep_leased(w, m);
    derive_again(w, m); /* one that was held up may be over at once */
    m->shown_handle = lane->handle;
    m->shown_end = lane->tail;
    m->shown_seq = d->seq;
    m->changed = w->index;
    if (m->queue->options.mode == PAWL_DURABLE)
        lane->client->known = true;
    check_leased(w, m->queue, lane, d->seq);
    if (lane->receive != NULL && lane->receive->seq == d->seq) {
        lane->receive->delivered++;
        lane->receive->delivered_now++;
        SIM_CHECK(w,
                  lane->receive->type == PAWL_CMD_SUBSCRIBE ||
                      lane->receive->delivered_now <= lane->receive->max,
                  "receive of %u got %u", lane->receive->max, lane->receive->delivered);
    }
}

/* --- answers --------------------------------------------------------------------------------- */

struct answer {
    struct sim_op *op;
    int32_t result;
    uint64_t value;
    bool durable;
};

static bool keep_answer(void *ctx, const struct sim_way *way)
{
    const struct answer *a = ctx;
    struct sim_pred *p = sim_pred_find((struct sim_way *)(uintptr_t)way, a->op->number);
    if (p == NULL)
        return false;
    uint64_t bit = SIM_BIT(a->result);
    if (a->result == PAWL_OK_DUPLICATE && p->record && a->op->resubmit &&
        a->op->type != PAWL_CMD_SEND)
        bit = SIM_BIT(PAWL_OK);
    /* Of an acknowledgement by another the upper half says when. */
    uint64_t value = a->result == PAWL_E_ALREADY_ACKED ? (uint32_t)a->value : a->value;
    if ((p->mask & bit) == 0 || (!p->any && p->value != value))
        return false;
    if (a->op->type == PAWL_CMD_SEND && a->result == PAWL_OK)
        return a->value >> 40 == p->epoch && (way->id == 0 || way->id == a->value);
    return true;
}

/* What a crash kept of the log is a prefix of what was decided. */
static void check_prefix(struct sim *w, const struct sim_op *op, uint64_t value)
{
    if (op->takes < 2 || op->first_crashes + 1 != w->crashes ||
        op->queue->options.mode == PAWL_MEMORY)
        return;
    if (value >> 40 < w->epoch)
        w->kept_max = pawl_max_u64(w->kept_max, op->first_index);
    else if (op->sure) /* it was not refused at first */
        w->lost_min = pawl_min_u64(w->lost_min, op->first_index);
    SIM_CHECK(w, w->kept_max < w->lost_min,
              "G11: the crash kept a send decided at %" PRIu64 " and lost one of %" PRIu64,
              w->kept_max, w->lost_min);
}

static void answer_message(struct sim *w, struct sim_op *op, int32_t result, uint64_t value,
                           uint32_t state)
{
    struct answer a = { op, result, value, false };
    char what[96];
    snprintf(what, sizeof what, "op %u %s answered %s value %" PRIx64, op->number,
             sim_type_name(op->type), pawl_strname(result), value);
    sim_model_filter(w, op->message, keep_answer, &a, what);
    if (result == PAWL_OK && !op->counted) {
        op->counted = true;
        op->queue->sends_shown += op->type == PAWL_CMD_SEND ? 1 : 0;
        op->queue->acks_shown += op->type == PAWL_CMD_ACK || op->type == PAWL_CMD_ACK_ID ? 1 : 0;
    }
    if (op->type != PAWL_CMD_SEND)
        return;
    if (result == PAWL_OK) {
        sim_model_learn(w, op->message, value);
        check_prefix(w, op, value);
        sim_key_made(w, op->message);
    } else if (result == PAWL_OK_DUPLICATE || result == PAWL_E_KEY_MISMATCH) {
        sim_key_repeated(w, op, result, value, state);
    } else if (result == PAWL_E_FULL) {
        SIM_CHECK(w, value < 64 && (op->limits >> value & 1),
                  "G10: m%u was refused for limit %" PRIu64 ", which is not met (may: %" PRIx64 ")",
                  op->message->number, value, op->limits);
    }
}

static void answer_receive(struct sim *w, struct sim_op *op, int32_t result, uint64_t value)
{
    bool timed_out =
        op->stopped || op->interrupted || w->now.time >= pawl_add_sat(op->time, op->wait_ns);
    switch (result) {
    case PAWL_OK:
        if (op->type == PAWL_CMD_SUBSCRIBE)
            break;
        SIM_CHECK(w, value >= 1 && value <= op->max, "receive of %u ends with %" PRIu64, op->max,
                  value);
        SIM_CHECK(w, op->interrupted ? value >= op->delivered_now : value == op->delivered,
                  "receive op %u ends with %" PRIu64 ", delivered %u", op->number, value,
                  op->delivered);
        break;
    case PAWL_OK_EMPTY:
        SIM_CHECK(w, (op->interrupted ? op->delivered_now : op->delivered) == 0,
                  "receive op %u: empty after %u deliveries", op->number, op->delivered);
        SIM_CHECK(w, timed_out, "G12: receive op %u: empty before its time", op->number);
        break;
    case PAWL_E_QUEUE_GONE:
        SIM_CHECK(w, op->stale, "receive op %u: QUEUE_GONE, none is", op->number);
        break;
    case PAWL_E_PAUSED: {
        bool paused = op->interrupted || op->stale;
        for (uint32_t i = 0; i < op->queue_count; i++)
            paused = paused || op->queues[i]->maybe_paused;
        SIM_CHECK(w, paused, "receive op %u: PAUSED, no queue is", op->number);
        break;
    }
    case PAWL_E_INFLIGHT_LIMIT: {
        bool met = false;
        for (uint32_t i = 0; i < op->queue_count; i++)
            met = met || op->queues[i]->options.max_inflight != 0;
        SIM_CHECK(w, met, "receive op %u: INFLIGHT_LIMIT, no queue has one", op->number);
        break;
    }
    default:
        sim_fail(w, "receive op %u answered %s", op->number, pawl_strname(result));
    }
}

static bool names(const struct sim_op *op, const struct sim_queue *q)
{
    for (uint32_t i = 0; i < op->queue_count; i++)
        if (op->queues[i] == q)
            return true;
    return op->queue == q;
}

static void queue_begins(struct sim_queue *q, uint64_t id)
{
    q->id = q->id_max = id;
    q->paused_index = q->deliveries = q->exceptions = 0;
    q->sends_taken = q->acks_taken = q->sends_shown = q->acks_shown = q->deliveries_shown = 0;
    q->maybe_paused = q->ever_paused = q->inspected = false;
    q->inspect_after = 0;
    q->grant_count = 0;
}

static void answer_drop(struct sim *w, struct sim_op *op, int32_t result)
{
    struct sim_queue *q = op->queue;
    /* Answered, not yet read when the broker stopped: the lane's window says it again. */
    if (op->takes > 1 && q->dropping == NULL && q->dropped_by == op && result == PAWL_OK)
        return;
    SIM_CHECK(w, q->dropping == op, "a DROP that was given up is answered");
    SIM_CHECK(w, result == PAWL_OK || (result == PAWL_E_NOT_FOUND && op->mask == 1),
              "drop of %s answered %s", q->name, pawl_strname(result));
    q->dropping = NULL;
    q->dropped_by = op;
    q->dropped_index = w->index;
    for (uint32_t i = 0; i < w->op_count && op->takes == 1; i++) {
        const struct sim_op *r = w->ops[i];
        if (r->type == PAWL_CMD_RECEIVE && r->state == SIM_OP_TAKEN && r->lane->core != NULL &&
            r->index < op->index && names(r, q))
            sim_fail(w, "receive op %u still waits on %s, which was dropped", r->number, q->name);
    }
}

/* Of what was asked of a queue that has been dropped since; once that has shown, nothing is done
 * any more. */
static void answer_stale(struct sim *w, const struct sim_op *op, int32_t result)
{
    const struct sim_queue *q = op->queue;
    bool after = q->dropping == NULL && op->first_index > q->dropped_index;
    uint64_t mask = SIM_BIT(PAWL_E_QUEUE_GONE) | SIM_BIT(PAWL_E_NOT_FOUND) |
                    SIM_BIT(PAWL_E_FORGOTTEN) | SIM_BIT(PAWL_E_DEADLINE);
    if (op->type == PAWL_CMD_ACK || op->type == PAWL_CMD_ACK_ID)
        mask |= SIM_BIT(PAWL_OK_MISSING);
    SIM_CHECK(w, !after || (mask & SIM_BIT(result)), "op %u %s of the dropped queue %s answered %s",
              op->number, sim_type_name(op->type), q->name, pawl_strname(result));
}

static void answer_other(struct sim *w, struct sim_op *op, int32_t result, uint64_t value,
                         const void *data, uint32_t bytes)
{
    struct sim_queue *q = op->queue;
    switch (op->type) {
    case PAWL_CMD_QUEUE_CREATE:
        SIM_CHECK(w, result == PAWL_OK || result == PAWL_OK_DUPLICATE || result == PAWL_E_EXISTS,
                  "create answered %s", pawl_strname(result));
        SIM_CHECK(w, (result == PAWL_E_EXISTS) == (op->mask == 1), "create with %s options: %s",
                  op->mask == 1 ? "other" : "the same", pawl_strname(result));
        if (result == PAWL_E_EXISTS)
            break;
        SIM_CHECK(w, result != PAWL_OK || q->id == 0 || op->resubmit,
                  "G11: queue %s was made before, and now again", q->name);
        /* fallthrough */
    case PAWL_CMD_QUEUE_FIND:
        if (result < 0) {
            SIM_CHECK(w, result == PAWL_E_NOT_FOUND && q->id == 0, "find of %s: %s", q->name,
                      pawl_strname(result));
            break;
        }
        SIM_CHECK(w, value != 0 && (q->id == 0 || q->id == value),
                  "G11: queue %s was %" PRIu64 ", is %" PRIu64, q->name, q->id, value);
        SIM_CHECK(w, q->id != 0 || value > q->id_max,
                  "G11: queue %s, which was dropped, is there again as %" PRIx64, q->name, value);
        if (q->id == 0)
            queue_begins(q, value);
        break;
    case PAWL_CMD_QUEUE_DROP:
        answer_drop(w, op, result);
        break;
    case PAWL_CMD_QUEUE_PAUSE:
    case PAWL_CMD_QUEUE_RESUME:
        SIM_CHECK(w, result == PAWL_OK, "%s answered %s", sim_type_name(op->type),
                  pawl_strname(result));
        q->maybe_paused = op->type == PAWL_CMD_QUEUE_PAUSE;
        q->paused_index = q->maybe_paused ? op->index : 0;
        break;
    case PAWL_CMD_QUEUE_STAT:
        SIM_CHECK(w, result == PAWL_OK, "stat answered %s", pawl_strname(result));
        sim_order_stat(w, op, data, bytes);
        break;
    case PAWL_CMD_SCAN:
        SIM_CHECK(w, result == PAWL_OK || result == PAWL_OK_EMPTY, "scan answered %s",
                  pawl_strname(result));
        sim_order_scan(w, op, data, bytes, value);
        break;
    case PAWL_CMD_QUEUE_LIST:
    case PAWL_CMD_METRICS:
        SIM_CHECK(w, result == PAWL_OK || result == PAWL_OK_EMPTY, "%s answered %s",
                  sim_type_name(op->type), pawl_strname(result));
        break;
    case PAWL_CMD_STOP:
        SIM_CHECK(w, result == PAWL_OK || result == PAWL_E_NOT_FOUND || result == PAWL_E_STATE,
                  "stop answered %s", pawl_strname(result));
        break;
    default:
        break;
    }
}

/* All that was there when it was first decided is gone now, this way or another. */
static void answer_purge(struct sim *w, struct sim_op *op, uint64_t value)
{
    uint64_t most = 0;
    for (uint32_t s = PAWL_STATE_SCHEDULED; s <= PAWL_STATE_DEAD; s++)
        most += op->counts->by_state[s].max;
    SIM_CHECK(w, op->takes > 1 || value <= most, "purge of %" PRIu64 ", there were %" PRIu64, value,
              most);
    for (uint32_t i = 0; i < w->message_count; i++) {
        struct sim_message *m = w->messages[i];
        if (m->gone || m->queue != op->queue || m->send->takes == 0)
            continue;
        /* Decided before it was sent, or sent again, it has not met what that made. */
        bool before = m->send->first_index < op->first_index;
        bool again = op->takes > 1 && m->send->index > op->first_index;
        for (uint32_t s = m->stand_count; s-- > 0;) {
            struct sim_set *set = &m->stands[s].set, kept = { 0 };
            if (s + 1 < m->stand_count && m->queue->options.mode != PAWL_DURABLE)
                break;
            for (uint32_t j = 0; j < set->count; j++) {
                struct sim_way way = set->ways[j];
                struct sim_pred *p = sim_pred_find(&way, op->number);
                if (p != NULL && sim_rules_live(way.state)) {
                    if (!before || (again && way.epoch >= op->first_epoch))
                        sim_set_add(w, &kept, &way);
                    sim_rules_purge(w, &way, op->first_time);
                }
                sim_set_add(w, &kept, &way);
            }
            set_replace(set, &kept);
        }
        m->changed = w->index;
    }
}

void sim_model_answer(struct sim *w, struct sim_op *op, int32_t result, uint64_t value,
                      uint64_t lsn, uint32_t state, const void *data, uint32_t bytes)
{
    sim_note(w, "answer op %u %s lane %u %s value %" PRIx64 " lsn %" PRIu64, op->number,
             sim_type_name(op->type), op->lane->uid, pawl_strname(result), value, lsn);
    w->totals->answers++;
    SIM_CHECK(w, result >= -99 && result <= 27, "result %d", result);
    w->totals->results[100 + result]++;
    bool settles = op->type >= PAWL_CMD_ACK && op->type <= PAWL_CMD_CANCEL;
    SIM_CHECK(w,
              !settles ||
                  (result != PAWL_E_FULL && result != PAWL_E_QUOTA && result != PAWL_E_RESOURCE),
              "G10: %s refused with %s", sim_type_name(op->type), pawl_strname(result));
    if (result == PAWL_OK && op->queue != NULL && op->queue->options.mode == PAWL_DURABLE &&
        lsn != 0)
        SIM_CHECK(w, lsn < pawl_log_durable(pawl_engine_log(w->engine)),
                  "G8: op %u acknowledged at %" PRIu64 ", durable %" PRIu64, op->number, lsn,
                  pawl_log_durable(pawl_engine_log(w->engine)));
    if (result == PAWL_OK && lsn != 0 && lsn < pawl_log_durable(pawl_engine_log(w->engine))) {
        op->lane->client->known = true;
        if (!op->resubmit)
            op->lane->client->epoch_logged = op->lane->client->epoch;
        if (!op->resubmit)
            w->pawl_seen = pawl_max_u64(w->pawl_seen, op->time);
    }
    struct pawl_cmd head;
    memcpy(&head, op->command, sizeof head);
    if (result == PAWL_E_DEADLINE)
        SIM_CHECK(w, head.deadline != 0, "op %u: DEADLINE, it has none", op->number);
    bool receives = op->type == PAWL_CMD_RECEIVE || op->type == PAWL_CMD_SUBSCRIBE;
    bool stale = op->stale || (op->message != NULL && op->message->dropped);
    if (stale && op->type == PAWL_CMD_SEND && result == PAWL_OK)
        sim_map_put(w->ids, value, op->message);
    if (sim_state_names(op)) {
        sim_state_answer(w, op, result, value, lsn, data, bytes);
    } else if (op->unit != NULL) {
        sim_unit_answer(w, op, result, value, lsn, data, bytes);
    } else if (stale && !receives && op->type != PAWL_CMD_QUEUE_DROP) {
        answer_stale(w, op, result);
    } else if (op->type == PAWL_CMD_QUEUE_PURGE) {
        SIM_CHECK(w, result == PAWL_OK, "purge answered %s", pawl_strname(result));
        answer_purge(w, op, value);
    } else if (receives) {
        answer_receive(w, op, result, value);
    } else if (op->message != NULL) {
        answer_message(w, op, result, value, state);
    } else {
        answer_other(w, op, result, value, data, bytes);
    }
    op->result = result;
    op->value = value;
    op->lsn = lsn;
}

static bool no_pred(struct sim_way *way, uint32_t op)
{
    struct sim_pred *p = sim_pred_find(way, op);
    if (p == NULL)
        return false;
    memset(p, 0, sizeof *p);
    return true;
}

void sim_model_forget(struct sim *w, struct sim_message *m, uint32_t op)
{
    bool nothing = true;
    for (uint32_t i = 0; i < m->stand_count; i++) {
        struct sim_set *set = &m->stands[i].set, kept = { 0 };
        for (uint32_t j = 0; j < set->count; j++) {
            struct sim_way way = set->ways[j];
            (void)no_pred(&way, op);
            sim_set_add(w, &kept, &way);
            nothing = nothing && way.state == PAWL_STATE_NONE;
        }
        set_replace(set, &kept);
    }
    /* nothing came of it and nothing can any more */
    if (nothing && m->send->state == SIM_OP_CLOSED && m->id == 0)
        m->gone = true;
}

void sim_model_close(struct sim *w, struct sim_op *op)
{
    if (op->unit != NULL) {
        sim_unit_close(w, op);
    } else if (op->type == PAWL_CMD_QUEUE_PURGE) {
        for (uint32_t i = 0; i < w->message_count; i++)
            if (w->messages[i]->queue == op->queue && !w->messages[i]->gone)
                sim_model_forget(w, w->messages[i], op->number);
    } else if (op->message != NULL) {
        if (op->message->open_ops > 0)
            op->message->open_ops--;
        sim_model_forget(w, op->message, op->number);
    }
    if (sim_state_names(op))
        sim_state_close(w, op);
    if (op->queue != NULL && op->queue->pausing == op)
        op->queue->pausing = NULL;
    if (op->lane->receive == op && op->type == PAWL_CMD_RECEIVE)
        op->lane->receive = NULL;
}

static bool keep_undone(void *ctx, const struct sim_way *way)
{
    const struct sim_op *op = ctx;
    struct sim_pred *p = sim_pred_find((struct sim_way *)(uintptr_t)way, op->number);
    return p == NULL || !p->record;
}

void sim_model_lost(struct sim *w, struct sim_op *op)
{
    if (sim_state_names(op) && op->state == SIM_OP_TAKEN)
        sim_state_lost(w, op);
    if (op->unit != NULL) {
        sim_unit_lost(w, op);
        return;
    }
    if (op->message != NULL && !op->message->dropped && op->type != PAWL_CMD_QUEUE_PURGE &&
        op->state == SIM_OP_TAKEN)
        sim_model_filter(w, op->message, keep_undone, op,
                         "the session is unknown, so this operation was lost");
}

/* --- drops ----------------------------------------------------------------------------------- */

void sim_model_drop(struct sim *w, struct sim_queue *q)
{
    for (uint32_t i = 0; i < q->message_count; i++)
        q->messages[i]->gone = q->messages[i]->dropped = true;
    q->message_count = 0;
    q->id = 0;
    for (uint32_t i = 0; i < w->op_count; i++)
        if (w->ops[i]->state != SIM_OP_CLOSED && names(w->ops[i], q))
            w->ops[i]->stale = true;
}

/* --- time ------------------------------------------------------------------------------------ */

/* Is a purge under way that may end it at any moment? */
static const struct sim_op *coming(const struct sim *w, const struct sim_way *way)
{
    for (uint32_t i = 0; i < SIM_PREDS; i++)
        if (way->preds[i].op != 0 && way->preds[i].coming)
            return w->ops[way->preds[i].op - 1];
    return NULL;
}

/* A purge that is not answered yet may take it at any moment, also one that was seen since. */
static void derive_purge(struct sim *w, struct sim_set *set)
{
    for (uint32_t j = 0, count = set->count; j < count; j++) {
        struct sim_way way = set->ways[j];
        const struct sim_op *purge = coming(w, &way);
        if (purge == NULL || !sim_rules_live(way.state))
            continue;
        sim_rules_purge(w, &way, purge->first_time);
        sim_set_add(w, set, &way);
    }
}

/* Leases that are over make ways of what follows. */
static void derive(struct sim *w, struct sim_message *m)
{
    uint64_t now = w->now.time;
    struct sim_set *set = sim_current(m);
    uint32_t count = set->count;
    for (uint32_t j = 0; j < set->count; j++) {
        const struct sim_way *is = &set->ways[j];
        bool leased = is->state == PAWL_STATE_LEASED && (is->end_why != 0 || now >= is->from);
        if (!leased && !(is->state == PAWL_STATE_READY && now >= is->ttl_end))
            continue;
        struct sim_way way = *is;
        if (way.state == PAWL_STATE_LEASED && way.end_why != 0 && !way.released) {
            set->ways[j].released = true;
            sim_rules_release(w, m, &way, (enum pawl_core_end)(way.end_why - 1),
                              (enum sim_taken)way.end_taken, set);
        }
        if (way.state == PAWL_STATE_LEASED && now >= way.from) {
            set->ways[j].over = now >= way.to;
            set->ways[j].lapsed = true;
            if (!way.lapsed)
                sim_rules_expire(w, m, &way, set);
        } else if (way.state == PAWL_STATE_READY && now >= way.ttl_end) {
            way.state = PAWL_STATE_EXPIRED;
            /* A message that was given back or restored when that was over already ends then. */
            bool later = way.from > way.ttl_end && way.from <= now;
            way.from = way.to = later ? way.from : way.ttl_end;
            way.ready_index = 0;
            way.fresh = false;
            way.fresh_at = 0;
            sim_set_add(w, set, &way);
        }
    }
    if (set->count != count)
        m->changed = w->index;
}

/* What was thrown out, or had not heard this answer, may still come. */
static void derive_again(struct sim *w, struct sim_message *m)
{
    struct sim_set *set = sim_current(m);
    for (uint32_t j = 0; j < set->count; j++)
        set->ways[j].lapsed = set->ways[j].released = false;
    derive_purge(w, set);
    derive(w, m);
}

/* What ends by its time, may end from now on. */
void sim_model_time(struct sim *w)
{
    sim_state_time(w);
    deactivate(w);
    for (uint32_t i = 0; i < w->active_count; i++)
        if (!w->active[i]->gone)
            derive(w, w->active[i]);
}

static bool timely(struct sim *w, struct sim_way *way)
{
    uint64_t now = w->now.time;
    if (way->state == PAWL_STATE_LEASED && way->reserve == 0 &&
        now >= pawl_add_sat(way->to, SIM_TICK))
        return false;
    return way->state != PAWL_STATE_READY || now < pawl_add_sat(way->ttl_end, SIM_TICK);
}

/* Nothing that was due is left. */
void sim_model_timers(struct sim *w)
{
    w->fired = w->now.time;
    sim_state_timers(w);
    uint64_t now = w->now.time;
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m->gone)
            continue;
        struct sim_set *set = sim_current(m);
        bool moves = false;
        for (uint32_t j = 0; j < set->count; j++)
            moves = moves || !timely(w, &set->ways[j]) ||
                    (set->ways[j].fresh && now >= pawl_add_sat(set->ways[j].fresh_at, SIM_TICK)) ||
                    (set->ways[j].state == PAWL_STATE_READY && set->ways[j].ready_index == 0 &&
                     now >= pawl_add_sat(set->ways[j].to, SIM_TICK));
        if (!moves)
            continue;
        sim_model_push(w, m);
        struct sim_set kept = { 0 };
        set = sim_current(m);
        for (uint32_t j = 0; j < set->count; j++) {
            struct sim_way way = set->ways[j];
            if (!timely(w, &way))
                continue;
            if (way.fresh && now >= pawl_add_sat(way.fresh_at, SIM_TICK)) {
                way.fresh = false;
                way.fresh_at = 0;
                way.to = now + way.step_ns + way.step_ns / 10;
            }
            if (way.state == PAWL_STATE_READY && way.ready_index == 0 &&
                now >= pawl_add_sat(way.to, SIM_TICK))
                way.ready_index = w->index;
            sim_set_add(w, &kept, &way);
        }
        set_replace(set, &kept);
        derive_again(w, m);
    }
}

/* All leases of ended sessions have been given back. */
void sim_model_pumped(struct sim *w)
{
    w->ends_pending = false;
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        struct sim_set *set = sim_current(m), kept = { 0 };
        bool any = false;
        for (uint32_t j = 0; j < set->count && !m->gone; j++)
            any = any || set->ways[j].ended ||
                  (set->ways[j].fresh && set->ways[j].fresh_at == SIM_NEVER);
        if (!any)
            continue;
        sim_model_push(w, m);
        set = sim_current(m);
        for (uint32_t j = 0; j < set->count; j++)
            if (!set->ways[j].ended) {
                struct sim_way way = set->ways[j];
                if (way.fresh && way.fresh_at == SIM_NEVER) {
                    way.fresh = false;
                    way.fresh_at = 0;
                    way.to = w->now.time + way.step_ns;
                }
                sim_set_add(w, &kept, &way);
            }
        set_replace(set, &kept);
    }
}

uint64_t sim_model_next(struct sim *w, const struct sim_message **which)
{
    uint64_t next = SIM_NEVER;
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m->gone || sim_current(m)->count != 1)
            continue;
        const struct sim_way *way = &sim_current(m)->ways[0];
        uint64_t due = SIM_NEVER;
        if (way->state == PAWL_STATE_LEASED && way->from == way->to)
            due = way->to;
        if (way->state == PAWL_STATE_READY && way->from > w->now.time)
            due = way->to;
        if (way->state == PAWL_STATE_READY)
            due = pawl_min_u64(due, way->ttl_end);
        if (due < next) {
            next = due;
            *which = m;
        }
    }
    return next;
}

/* --- ends of clients ------------------------------------------------------------------------- */

void sim_model_session_end(struct sim *w, struct sim_client *client, enum pawl_core_end why,
                           bool attached)
{
    for (uint32_t l = 0; l < client->lane_count; l++)
        sim_model_lane_gone(w, client->lanes[l]);
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m->gone)
            continue;
        struct sim_set *set = sim_current(m);
        for (uint32_t j = 0; j < set->count; j++) {
            struct sim_way *ended = &set->ways[j];
            if (ended->state != PAWL_STATE_LEASED || ended->client != client->number ||
                ended->kind == PAWL_LEASE_DETACHED)
                continue;
            enum sim_taken taken = SIM_PERHAPS_TAKEN;
            if (ended->reserve != 0)
                taken = SIM_NOT_TAKEN;
            else if (attached)
                for (uint32_t l = 0; l < client->lane_count; l++)
                    if (client->lanes[l]->handle == m->shown_handle)
                        taken = m->shown_end <= client->lanes[l]->head ? SIM_TAKEN : SIM_NOT_TAKEN;
            ended->end_why = (uint8_t)(why + 1);
            ended->end_taken = (uint8_t)taken;
            ended->end_at = w->now.time;
            ended->released = false;
            if (why != PAWL_END_GRACE)
                ended->over = ended->ended = w->ends_pending = true;
            else /* its timer may be late, and the client be back before */
                ended->from = pawl_min_u64(ended->from, w->now.time);
        }
        derive(w, m);
    }
    for (uint32_t l = 0; l < client->lane_count; l++)
        client->lanes[l]->reserve_count = 0;
}

/* It was not too late: the session is not over. */
void sim_model_session_back(struct sim *w, const struct sim_client *client)
{
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_set *set = sim_current(w->active[i]);
        for (uint32_t j = 0; j < set->count; j++)
            if (set->ways[j].client == client->number && set->ways[j].end_why == PAWL_END_GRACE + 1)
                set->ways[j].end_why = 0;
    }
}

/* Deliveries of this lane that nobody saw: granted, and lost on the way. */
void sim_model_lane_gone(struct sim *w, struct sim_lane *lane)
{
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        for (uint32_t s = 0; s < m->stand_count; s++) {
            struct sim_set *set = &m->stands[s].set, kept = { 0 };
            bool any = false;
            for (uint32_t j = 0; j < set->count; j++)
                any = any ||
                      (set->ways[j].lane == lane->uid && (set->ways[j].reserve > SIM_GRANT_LOST ||
                                                          (set->ways[j].unread && lane->closed)));
            if (!any)
                continue;
            for (uint32_t j = 0; j < set->count; j++) {
                struct sim_way way = set->ways[j];
                /* It was on its way to the client again, who closed before that: as never shown. */
                if (way.unread && lane->closed && way.state == PAWL_STATE_LEASED &&
                    way.lane == lane->uid) {
                    struct sim_way back = way;
                    back.end_at = w->now.time;
                    sim_rules_release(w, m, &back, PAWL_END_CLOSED, SIM_NOT_TAKEN, &kept);
                }
                if (way.reserve > SIM_GRANT_LOST && way.lane == lane->uid) {
                    way.reserve = SIM_GRANT_LOST;
                    if (way.state == PAWL_STATE_LEASED)
                        way.from = way.kind == PAWL_LEASE_HELD ? way.cap_min : w->now.time;
                    if (way.state == PAWL_STATE_LEASED) {
                        way.end_at = w->now.time;
                        sim_rules_release(w, m, &way, PAWL_END_CLOSED, SIM_NOT_TAKEN, &kept);
                        if (lane->closed) { /* at any moment from now on */
                            way.end_why = PAWL_END_CLOSED + 1;
                            way.end_taken = SIM_NOT_TAKEN;
                            way.released = true;
                        } else {
                            way.end_at = 0;
                        }
                    }
                }
                sim_set_add(w, &kept, &way);
            }
            set_replace(set, &kept);
            m->changed = w->index;
        }
    }
    lane->reserve_count = 0;
}

void sim_model_lane_back(struct sim *w, const struct sim_lane *lane)
{
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        uint64_t read =
            m->queue->options.mode == PAWL_DURABLE ? lane->grant_durable : lane->grant_relaxed;
        for (uint32_t s = 0; s < m->stand_count; s++)
            for (uint32_t j = 0; j < m->stands[s].set.count; j++) {
                struct sim_way *way = &m->stands[s].set.ways[j];
                /* its time begins anew when that is published */
                if (way->state == PAWL_STATE_LEASED && way->lane == lane->uid &&
                    way->reserve == 0 && way->grant > read) {
                    way->to = SIM_NEVER;
                    way->unread = true;
                }
            }
    }
}

/* --- crash ----------------------------------------------------------------------------------- */

static void after_crash(struct sim *w, struct sim_message *m, struct sim_way *way)
{
    for (uint32_t p = 0; p < SIM_PREDS; p++)
        if (!way->preds[p].record)
            memset(&way->preds[p], 0, sizeof way->preds[p]);
    if (way->reserve != 0)
        way->reserve = SIM_GRANT_LOST;
    if (way->fresh && way->fresh_at == SIM_NEVER)
        way->fresh = false, way->fresh_at = 0;
    way->ready_index = 0; /* what was due is due again, at the first timers */
    way->over = way->lapsed = way->ended = way->released = false;
    way->end_why = way->end_taken = 0;
    way->end_at = 0;
    if (m->queue->options.mode == PAWL_MEMORY) {
        memset(way, 0, sizeof *way);
        way->state = PAWL_STATE_NONE;
    }
}

void sim_model_stopped(struct sim *w)
{
    sim_state_stopped(w);
    for (uint32_t i = 0; i < w->message_count; i++)
        while (w->messages[i]->stand_count > 1)
            drop_stand(w->messages[i], 0);
}

void sim_model_crash(struct sim *w)
{
    sim_state_crash(w);
    for (uint32_t i = 0; i < w->message_count; i++) {
        struct sim_message *m = w->messages[i];
        if (m->gone)
            continue;
        struct sim_set all = { 0 };
        for (uint32_t s = 0; s < m->stand_count; s++)
            for (uint32_t j = 0; j < m->stands[s].set.count; j++) {
                struct sim_way way = m->stands[s].set.ways[j];
                after_crash(w, m, &way);
                sim_set_add(w, &all, &way);
            }
        while (m->stand_count > 1)
            drop_stand(m, 0);
        set_replace(sim_current(m), &all);
        activate(w, m);
        m->stands[0].index = w->index;
        m->stands[0].pos = 0;
        m->moved = false;
        m->changed = w->index;
    }
    for (uint32_t i = 0; i < w->lane_count; i++)
        w->lanes[i]->reserve_count = 0;
    for (uint32_t i = 0; i < w->options.queues; i++) {
        struct sim_queue *q = &w->queues[i];
        if (q->options.mode == PAWL_DURABLE || !q->ever_paused)
            continue;
        q->paused_index = 0;
        q->maybe_paused = true;
    }
}

/* Leases stay and get their full time again; after a reboot they are void, uncounted. */
void sim_model_restart(struct sim *w, bool same_boot)
{
    uint64_t now = w->now.time;
    if (!same_boot)
        w->void_below = w->epoch;
    for (uint32_t i = 0; i < w->message_count; i++) {
        struct sim_message *m = w->messages[i];
        if (m->gone)
            continue;
        struct sim_set *set = sim_current(m), kept = { 0 };
        for (uint32_t j = 0; j < set->count; j++) {
            struct sim_way way = set->ways[j];
            if (way.state == PAWL_STATE_LEASED && way.grant_epoch < w->void_below) {
                way.over = way.ended = w->ends_pending = true;
                way.end_why = PAWL_END_CLOSED + 1;
                way.end_taken = SIM_NOT_TAKEN;
                way.end_at = now;
                way.from = way.to = SIM_NEVER;
            } else if (way.state == PAWL_STATE_LEASED) {
                uint64_t renewed = way.renew_ns ? way.renew_ns : way.lease_ns;
                way.from = now + pawl_min_u64(way.lease_ns, renewed);
                way.to = now + pawl_max_u64(way.lease_ns, renewed);
                if (way.kind == PAWL_LEASE_HELD)
                    way.from = way.cap_min;
                if (way.reserve != 0 || way.kind == PAWL_LEASE_HELD)
                    way.to = SIM_NEVER;
                way.cap_max = SIM_NEVER;
            }
            sim_set_add(w, &kept, &way);
        }
        set_replace(set, &kept);
        derive(w, m);
    }
}

/* --- the end --------------------------------------------------------------------------------- */

bool sim_model_settled(const struct sim_message *m)
{
    const struct sim_set *set = &m->stands[m->stand_count - 1].set;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->ways[i].state != PAWL_STATE_NONE && !sim_rules_terminal(set->ways[i].state))
            return false;
    return true;
}

bool sim_model_surely(const struct sim_message *m, uint8_t state)
{
    const struct sim_set *set = &m->stands[m->stand_count - 1].set;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->ways[i].state != state)
            return false;
    return true;
}

const char *sim_model_left(struct sim *w, char text[256])
{
    uint32_t left = 0;
    struct sim_message *first = NULL;
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m->gone || sim_model_settled(m))
            continue;
        left++;
        first = first ? first : m;
    }
    if (left == 0)
        return NULL;
    snprintf(text, 256, "%u messages, the first m%u in queue %s as %s", left, first->number,
             first->queue->name, pawl_state_name(sim_current(first)->ways[0].state));
    return text;
}

void sim_model_unseen(struct sim *w)
{
    for (uint32_t i = 0; i < w->active_count; i++) {
        struct sim_message *m = w->active[i];
        if (m->gone || sim_current(m)->count != 1)
            continue;
        const struct sim_way *way = &sim_current(m)->ways[0];
        /* others come back by their time */
        if (way->state != PAWL_STATE_LEASED || way->over || way->reserve == 0 ||
            way->kind != PAWL_LEASE_HELD)
            continue;
        for (uint32_t l = 0; l < w->lane_count; l++) {
            const struct sim_lane *lane = w->lanes[l];
            if (lane->uid == way->lane && lane->core != NULL && !lane->closed) {
                sim_model_dump(w, m);
                sim_fail(w, "m%u is leased to lane %u, which was never told", m->number, lane->uid);
            }
        }
    }
}

void sim_model_free(struct sim *w)
{
    for (uint32_t i = 0; i < w->message_count; i++) {
        struct sim_message *m = w->messages[i];
        while (m->stand_count > 0)
            drop_stand(m, m->stand_count - 1);
        free(m->stands);
        free(m);
    }
    sim_unit_free(w);
    free(w->messages);
    free(w->active);
}
