/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* What programs do with their lanes: send, receive, settle in all ways, settle what is not theirs
 * any more, forget, die, come back. One of them is the operator's: it makes queues, pauses, purges,
 * looks. When the faults are over, all of them only drain. */

#define OPEN_OPS_MAX 3u

static uint64_t any_of(struct sim *w, const uint64_t *choices, size_t count)
{
    return choices[sim_below(w, count)];
}
#define PICK(w, ...)                               \
    any_of((w), (const uint64_t[]){ __VA_ARGS__ }, \
           sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

/* --- commands -------------------------------------------------------------------------------- */

static void put_deadline(struct sim *w, struct sim_op *op)
{
    if (w->liveness || !sim_one_in(w, 12))
        return;
    struct pawl_cmd head;
    memcpy(&head, op->command, sizeof head);
    head.deadline = sim_boot(w) + PICK(w, 1, 100000, SIM_MS, 100 * SIM_MS, 10 * SIM_S);
    memcpy(op->command, &head, sizeof head);
}

static struct sim_queue *some_queue(struct sim *w)
{
    struct sim_queue *q = &w->queues[sim_below(w, w->options.queues)];
    return q->id != 0 ? q : NULL;
}

/* Has another message of this queue that nobody outside knows this size? A scan could not tell them
 * apart, should both senders be gone: neither could be restored at the end. */
static bool size_taken(const struct sim_queue *q, uint32_t body)
{
    for (uint32_t i = 0; i < q->message_count; i++) {
        const struct sim_message *m = q->messages[i];
        if (!m->gone && m->id == 0 && m->body_bytes == body)
            return true;
    }
    return false;
}

/* A send, not yet submitted. NULL: no queue. plain: without a dedup key, and small. */
static struct sim_op *make_send(struct sim *w, struct sim_lane *lane, struct sim_queue *q,
                                bool plain)
{
    if (q == NULL)
        return NULL;
    struct pawl_cmd_send_times times = { 0 };
    if (sim_one_in(w, 4))
        times.delay_ns = PICK(w, 1, SIM_MS, 100 * SIM_MS, 10 * SIM_S, SIM_HOUR);
    if (sim_one_in(w, 12)) {
        times.delay_ns = 0;
        times.at_wall_ns = sim_wall(w) + PICK(w, 1, SIM_S, 60 * SIM_S);
    }
    if (sim_one_in(w, 10))
        times.ttl_ns = PICK(w, SIM_MS, SIM_S, 60 * SIM_S);
    bool timed = times.delay_ns || times.at_wall_ns || times.ttl_ns || sim_one_in(w, 16);
    uint8_t headers[32];
    uint32_t headers_bytes = 0;
    if (sim_one_in(w, 5)) {
        const uint16_t value = (uint16_t)sim_below(w, 20);
        headers[0] = 4;
        memcpy(headers + 1, &value, 2);
        memcpy(headers + 3, "kind", 4);
        memset(headers + 7, 'v', value);
        headers_bytes = 7u + value;
    }
    uint8_t key = !plain && sim_one_in(w, 4) ? (uint8_t)('1' + sim_below(w, 3)) : 0;
    const struct sim_message *first = key ? sim_key_first(w, q, key) : NULL;
    if (key)
        headers_bytes = SIM_KEY_HEADER_BYTES;
    uint8_t ordering_key = sim_one_in(w, 3) ? (uint8_t)('a' + sim_below(w, 3)) : 0;
    uint32_t key_bytes = ordering_key != 0;
    uint32_t body =
        8 + (uint32_t)sim_below(w, !plain && sim_one_in(w, 8) ? w->options.body_max : 400);
    if (first != NULL && !sim_one_in(w, 4)) {
        body = first->body_bytes - 1;
        ordering_key = first->ordering_key;
        key_bytes = first->ordering_key_bytes;
    } else {
        first = NULL;
    }
    uint32_t record, tries = 64;
    /* The size tells the mode, so that rooms reserved in one lane can be told apart. */
    do {
        body++;
        tries--;
        record = (uint32_t)pawl_align_up(
            sizeof(struct pawl_comp_delivery) + (key != 0) + key_bytes + headers_bytes + body, 8);
    } while (record / 8 % 3 != q->options.mode || (!first && tries && size_taken(q, body)));
    uint32_t fixed = sizeof(struct pawl_cmd_send) + (timed ? (uint32_t)sizeof times : 0);
    struct sim_op *op =
        sim_op_create(w, lane, PAWL_CMD_SEND, fixed, (key != 0) + key_bytes + headers_bytes + body);
    struct pawl_cmd_send c;
    memcpy(&c, op->command, sizeof c);
    c.queue = q->id;
    c.body_bytes = body;
    c.headers_bytes = (uint16_t)headers_bytes;
    c.key_bytes = key != 0;
    c.ordering_key_bytes = (uint8_t)key_bytes;
    c.priority = (uint8_t)(sim_one_in(w, 4) ? sim_below(w, 8) : PAWL_PRIORITY_DEFAULT);
    c.flags = timed ? PAWL_SEND_TIMES : 0;
    memcpy(op->command, &c, sizeof c);
    uint8_t *p = op->command + sizeof c;
    if (timed) {
        memcpy(p, &times, sizeof times);
        p += sizeof times;
    }
    if (key)
        *p++ = key;
    if (key_bytes)
        *p++ = ordering_key;
    if (key) {
        memcpy(headers, "\x04\x04\x00kind", 7);
        memcpy(headers + 7, &op->number, 4);
    }
    memcpy(p, headers, headers_bytes);
    sim_body_fill(p + headers_bytes, body, first ? first->body_of : op->number);
    op->queue = q;
    struct sim_message *m = sim_model_send(w, op, c.priority, record);
    m->body_bytes = body;
    m->headers_bytes = (uint16_t)headers_bytes;
    m->ordering_key_bytes = (uint8_t)key_bytes;
    m->ordering_key = ordering_key;
    m->key = key;
    m->key_bytes = key != 0;
    m->body_of = first ? first->body_of : op->number;
    m->delay_ns = times.delay_ns;
    m->at_wall_ns = times.at_wall_ns;
    m->ttl_ns = times.ttl_ns;
    return op;
}

static void submit_send(struct sim *w, struct sim_lane *lane)
{
    struct sim_op *op = make_send(w, lane, some_queue(w), false);
    if (op == NULL)
        return;
    op->message->open_ops++;
    put_deadline(w, op);
    sim_lane_submit(w, lane, op);
}

struct sim_op *sim_make_send(struct sim *w, struct sim_lane *lane)
{
    struct sim_queue *q = some_queue(w);
    return q != NULL && q->options.mode == PAWL_DURABLE ? make_send(w, lane, q, true) : NULL;
}

static void submit_receive(struct sim *w, struct sim_lane *lane)
{
    bool standing = sim_one_in(w, 3) || w->liveness;
    struct sim_queue *queues[PAWL_QUEUES_A_RECEIVE_MAX];
    uint32_t count = 0;
    uint32_t first =
        w->liveness ? w->index % w->options.queues : (uint32_t)sim_below(w, w->options.queues);
    uint32_t want = standing ? 1 : 1 + (uint32_t)sim_below(w, w->options.queues);
    for (uint32_t i = 0; i < w->options.queues && count < want; i++) {
        struct sim_queue *q = &w->queues[(first + i) % w->options.queues];
        if (q->id != 0)
            queues[count++] = q;
    }
    if (count == 0)
        return;
    if (w->liveness) {
        /* one receive on everything, so that nothing is left out; a standing one where that is all
         * the same, with a credit that must come back for the queue to drain */
        standing = w->options.queues == 1;
        count = 0;
        for (uint32_t i = 0; i < w->options.queues; i++)
            if (w->queues[i].id != 0)
                queues[count++] = &w->queues[i];
        if (count == 0)
            return;
    }
    struct sim_op *op = sim_op_create(w, lane, standing ? PAWL_CMD_SUBSCRIBE : PAWL_CMD_RECEIVE,
                                      sizeof(struct pawl_cmd_receive), count * 8);
    struct pawl_cmd_receive c;
    memcpy(&c, op->command, sizeof c);
    c.max = (uint32_t)PICK(w, 1, 1, 2, 8, 64);
    c.wait_ns = PICK(w, 0, SIM_MS, SIM_S, 60 * SIM_S, UINT64_MAX);
    c.lease_ns = PICK(w, 0, 0, 10 * SIM_MS, SIM_S, 60 * SIM_S);
    c.lease_kind = (uint8_t)PICK(w, PAWL_LEASE_PROCESS, PAWL_LEASE_PROCESS, PAWL_LEASE_HELD,
                                 PAWL_LEASE_DETACHED);
    c.flags = !standing && sim_one_in(w, 8) ? PAWL_RECEIVE_AT_MOST_ONCE : 0;
    if (w->liveness) {
        c.wait_ns = SIM_HOUR;
        c.lease_ns = 60 * SIM_S;
        c.lease_kind = PAWL_LEASE_PROCESS;
        c.flags = 0;
        c.max = standing ? 2 : 16;
    }
    c.queue_count = (uint8_t)count;
    memcpy(op->command, &c, sizeof c);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(op->command + sizeof c + i * 8, &queues[i]->id, 8);
        op->queues[i] = queues[i];
    }
    op->queue_count = count;
    op->max = c.max;
    op->wait_ns = c.wait_ns;
    op->lease_ns = c.lease_ns;
    op->lease_kind = c.lease_kind;
    op->amo = c.flags != 0;
    lane->receive = op;
    sim_lane_submit(w, lane, op);
}

static void submit_stop(struct sim *w, struct sim_lane *lane)
{
    struct sim_op *target = lane->receive;
    if (target == NULL || target->stopped || target->state == SIM_OP_QUEUED)
        return;
    struct sim_op *op = sim_op_create(w, lane, PAWL_CMD_STOP, sizeof(struct pawl_cmd_one), 0);
    struct pawl_cmd_one c;
    memcpy(&c, op->command, sizeof c);
    c.value = target->seq;
    memcpy(op->command, &c, sizeof c);
    op->target = target;
    target->stopped = true;
    sim_lane_submit(w, lane, op);
}

struct sim_op *sim_make_settle(struct sim *w, struct sim_lane *lane, const struct sim_held *held,
                               uint16_t type)
{
    struct sim_message *m = held->message;
    if (type == PAWL_CMD_RENEW && held->kind == PAWL_LEASE_HELD)
        type = PAWL_CMD_ACK;
    static const char reason[] = "no good today";
    uint32_t text = type == PAWL_CMD_NACK || type == PAWL_CMD_REJECT
                        ? (uint32_t)sim_below(w, sizeof reason)
                        : 0;
    struct sim_op *op = sim_op_create(w, lane, type, sizeof(struct pawl_cmd_settle), text);
    struct pawl_cmd_settle c;
    memcpy(&c, op->command, sizeof c);
    c.message = held->token.message;
    c.grant = held->token.grant;
    c.random = held->token.random;
    c.text_bytes = text;
    if (type == PAWL_CMD_NACK)
        c.time_ns = sim_one_in(w, 3) ? PICK(w, 0, SIM_MS, SIM_S) : PAWL_DELAY_LADDER;
    if (type == PAWL_CMD_DEFER)
        c.time_ns = PICK(w, 0, SIM_MS, SIM_S, 100 * SIM_S);
    if (type == PAWL_CMD_RENEW)
        c.time_ns = PICK(w, SIM_MS, SIM_S, 60 * SIM_S, SIM_HOUR);
    if (type == PAWL_CMD_ACK)
        c.flags = (sim_one_in(w, 4) ? PAWL_ACK_IF_UNCLAIMED : 0) |
                  (sim_one_in(w, 6) ? PAWL_ACK_IGNORE_MISSING : 0);
    memcpy(op->command, &c, sizeof c);
    memcpy(op->command + sizeof c, reason, text);
    op->message = m;
    op->queue = m->queue;
    return op;
}

static bool submit_settle(struct sim *w, struct sim_lane *lane, const struct sim_held *held,
                          uint16_t type)
{
    struct sim_message *m = held->message;
    if (m == NULL || m->open_ops >= OPEN_OPS_MAX)
        return false;
    struct sim_op *op = sim_make_settle(w, lane, held, type);
    m->open_ops++;
    put_deadline(w, op);
    sim_lane_submit(w, lane, op);
    return true;
}

struct sim_op *sim_make_message(struct sim *w, struct sim_lane *lane, struct sim_message *m,
                                uint16_t type)
{
    struct sim_op *op = sim_op_create(w, lane, type, sizeof(struct pawl_cmd_message), 0);
    struct pawl_cmd_message c;
    memcpy(&c, op->command, sizeof c);
    c.queue = m->queue->id;
    c.id = m->id;
    if (type == PAWL_CMD_ACK_ID && sim_one_in(w, 4))
        c.flags = PAWL_ACK_IGNORE_MISSING;
    memcpy(op->command, &c, sizeof c);
    op->message = m;
    op->queue = m->queue;
    return op;
}

static void submit_message(struct sim *w, struct sim_lane *lane, struct sim_message *m,
                           uint16_t type)
{
    if (m->open_ops >= OPEN_OPS_MAX || m->id == 0 || m->gone)
        return;
    struct sim_op *op = sim_make_message(w, lane, m, type);
    m->open_ops++;
    sim_lane_submit(w, lane, op);
}

static struct sim_op *submit_queue(struct sim *w, struct sim_lane *lane, struct sim_queue *q,
                                   uint16_t type)
{
    struct sim_op *op = sim_op_create(w, lane, type, sizeof(struct pawl_cmd_queue), 0);
    struct pawl_cmd_queue c;
    memcpy(&c, op->command, sizeof c);
    snprintf(c.name, sizeof c.name, "%s", q->name);
    if (type == PAWL_CMD_QUEUE_CREATE) {
        c.has_options = 1;
        c.options = q->options;
        if (q->id != 0 && sim_one_in(w, 2)) {
            c.options.lease_ns = 77 * SIM_S;
            op->mask = 1; /* others */
        }
    }
    memcpy(op->command, &c, sizeof c);
    op->queue = q;
    if (type == PAWL_CMD_QUEUE_STAT || type == PAWL_CMD_QUEUE_PURGE) {
        op->counts = calloc(1, sizeof *op->counts);
        if (op->counts == NULL)
            abort();
    }
    if (type == PAWL_CMD_QUEUE_PAUSE || type == PAWL_CMD_QUEUE_RESUME)
        q->pausing = op;
    sim_lane_submit(w, lane, op);
    return op;
}

/* Its life ends with this; the next begins with the answer of a CREATE. */
static void submit_drop(struct sim *w, struct sim_lane *lane, struct sim_queue *q)
{
    bool again = q->dropping != NULL;
    if (!again)
        sim_model_drop(w, q);
    q->dropping = submit_queue(w, lane, q, PAWL_CMD_QUEUE_DROP);
    q->dropping->mask = again ? 1 : 0; /* it may have been done */
}

static void submit_scan(struct sim *w, struct sim_lane *lane, struct sim_queue *q, bool inspects)
{
    struct sim_op *op = sim_op_create(w, lane, PAWL_CMD_SCAN, sizeof(struct pawl_cmd_scan), 0);
    struct pawl_cmd_scan c;
    memcpy(&c, op->command, sizeof c);
    c.queue = q->id;
    c.state_mask = 0x1fe;
    c.max = (uint32_t)PICK(w, 5, 32, 1024);
    if (sim_one_in(w, 2))
        c.state_mask = 1u << PAWL_STATE_SCHEDULED | 1u << PAWL_STATE_READY |
                       1u << PAWL_STATE_LEASED | 1u << PAWL_STATE_DEAD;
    if (!w->liveness && !inspects && sim_one_in(w, 3))
        c.state_mask = 1u << (1 + sim_below(w, PAWL_STATE_PURGED));
    op->inspects = inspects;
    if (inspects) {
        c.max = 1024;
        c.state_mask = 0x1fe;
        c.after_id = q->inspect_after;
    } else if (w->liveness)
        c.max = 1024;
    else if (w->message_count != 0 && sim_one_in(w, 2))
        c.after_id = w->messages[sim_below(w, w->message_count)]->id;
    memcpy(op->command, &c, sizeof c);
    op->queue = q;
    op->after = c.after_id;
    op->mask = c.state_mask;
    op->max = c.max;
    sim_lane_submit(w, lane, op);
}

/* --- what a consumer does with what it holds ------------------------------------------------- */

static void remember(struct sim *w, const struct sim_held *held)
{
    w->remembered[w->remembered_count++ % PAWL_COUNT(w->remembered)] = *held;
}

static void settle_held(struct sim *w, struct sim_lane *lane)
{
    uint32_t i = (uint32_t)sim_below(w, lane->held_count);
    struct sim_held held = lane->held[i];
    uint16_t type = PAWL_CMD_ACK;
    uint64_t dice = w->liveness ? 0 : sim_below(w, 100);
    bool keep = false;
    if (dice >= 60 && dice < 70)
        type = PAWL_CMD_NACK;
    else if (dice < 75 && dice >= 70)
        type = PAWL_CMD_RELEASE;
    else if (dice < 78 && dice >= 75)
        type = PAWL_CMD_REJECT;
    else if (dice < 83 && dice >= 78)
        type = PAWL_CMD_DEFER;
    else if (dice < 92 && dice >= 83)
        type = PAWL_CMD_RENEW;
    keep = type == PAWL_CMD_RENEW;
    if (dice < 92) {
        if (!submit_settle(w, lane, &held, type))
            return;
    }
    if (dice >= 92 || sim_one_in(w, 3))
        remember(w, &held);
    if (!keep) /* the rest is forgotten: it runs out */
        lane->held[i] = lane->held[--lane->held_count];
}

static void misuse(struct sim *w, struct sim_lane *lane)
{
    static const uint16_t types[] = { PAWL_CMD_ACK,   PAWL_CMD_ACK,    PAWL_CMD_NACK,
                                      PAWL_CMD_RENEW, PAWL_CMD_REJECT, PAWL_CMD_RELEASE,
                                      PAWL_CMD_DEFER };
    if (w->remembered_count == 0)
        return;
    uint32_t count = (uint32_t)pawl_min_u64(w->remembered_count, PAWL_COUNT(w->remembered));
    struct sim_held held = w->remembered[sim_below(w, count)];
    if (sim_one_in(w, 10))
        held.token.random ^= 1;
    else if (sim_one_in(w, 20))
        held.token.grant++;
    (void)submit_settle(w, lane, &held, types[sim_below(w, PAWL_COUNT(types))]);
}

static void look_at(struct sim *w, struct sim_lane *lane)
{
    static const uint16_t types[] = { PAWL_CMD_CANCEL, PAWL_CMD_CANCEL, PAWL_CMD_ACK_ID,
                                      PAWL_CMD_RESTORE, PAWL_CMD_PEEK };
    if (w->message_count == 0)
        return;
    struct sim_message *m = w->messages[sim_below(w, w->message_count)];
    submit_message(w, lane, m, types[sim_below(w, PAWL_COUNT(types))]);
}

static uint64_t window_left(const struct sim_lane *lane)
{
    uint64_t used = lane->open_count == 0 ? 0 : lane->next_seq - lane->open[0]->seq;
    return lane->window - pawl_min_u64(used, lane->window);
}

/* The last place of the window is kept for the stop of a receive that waits: one that waits for
 * ever and is the oldest of a full window could not be ended, and nothing more could be said. */
static bool has_window(const struct sim_lane *lane)
{
    return window_left(lane) > (lane->receive != NULL ? 1 : 0);
}

static void act_lane(struct sim *w, struct sim_lane *lane)
{
    if (lane->closed || lane->core == NULL || window_left(lane) == 0)
        return;
    if (!has_window(lane)) {
        submit_stop(w, lane);
    } else if (lane->receive == NULL && (w->liveness || sim_one_in(w, 4))) {
        submit_receive(w, lane);
    } else if (w->liveness) {
        if (lane->receive->number <= w->safety_ops)
            submit_stop(w, lane); /* it may wait on some queues only */
        while (lane->held_count > 0 && has_window(lane)) {
            uint32_t before = lane->held_count;
            settle_held(w, lane);
            if (lane->held_count == before)
                break;
        }
    } else if (w->options.units && sim_one_in(w, 3)) {
        sim_unit_act(w, lane);
    } else if (lane->held_count > 0 && sim_one_in(w, 2)) {
        settle_held(w, lane);
    } else if (sim_one_in(w, 12)) {
        misuse(w, lane);
    } else if (sim_one_in(w, 12)) {
        look_at(w, lane);
    } else if (sim_one_in(w, 20)) {
        submit_stop(w, lane);
    } else if (!sim_one_in(w, 3)) {
        submit_send(w, lane);
    }
}

void sim_client_read(struct sim *w, struct sim_client *client, bool all)
{
    for (uint32_t i = 0; i < client->lane_count; i++) {
        struct sim_lane *lane = client->lanes[i];
        uint64_t most = all ? UINT64_MAX : 1 + sim_below(w, 16);
        bool some = false;
        while (most-- > 0 && sim_lane_read(w, lane))
            some = true;
        if (some && lane->core != NULL && w->engine != NULL && lane->starved) {
            lane->starved = false;
            pawl_core_lane_room(pawl_engine_core(w->engine), lane->core);
        }
    }
}

void sim_client_act(struct sim *w, struct sim_client *client)
{
    uint64_t now = pawl_io_sim_now(w->io);
    if (!client->alive || now < client->frozen_until || (w->inspecting && !client->admin))
        return;
    if (client->core == NULL) {
        if (client->back_at <= now || w->liveness)
            sim_client_attach(w, client);
        return;
    }
    if (now >= client->lazy_until)
        sim_client_read(w, client, w->liveness);
    if (client->admin) {
        sim_admin_act(w, client);
        return;
    }
    if (!w->liveness) {
        struct sim_lane *lane = client->lanes[0];
        if (lane->core != NULL && !lane->closed && has_window(lane))
            sim_state_act(w, lane);
    }
    for (uint32_t n = w->options.load / 4; n > 0; n--)
        act_lane(w, client->lanes[sim_below(w, client->lane_count)]);
    for (uint32_t i = 0; i < client->lane_count && (w->liveness || sim_one_in(w, 4)); i++)
        act_lane(w, client->lanes[i]);
}

/* --- the operator ---------------------------------------------------------------------------- */

static void admin_drain(struct sim *w, struct sim_lane *lane)
{
    for (uint32_t i = 0; i < w->options.queues && has_window(lane); i++) {
        struct sim_queue *q = &w->queues[i];
        if (q->id != 0 && q->maybe_paused && q->pausing == NULL)
            (void)submit_queue(w, lane, q, PAWL_CMD_QUEUE_RESUME);
    }
    for (uint32_t i = 0; i < w->active_count && has_window(lane); i++) {
        struct sim_message *m = w->active[i];
        if (!m->gone && m->id != 0 && m->open_ops == 0 && sim_model_surely(m, PAWL_STATE_DEAD))
            submit_message(w, lane, m, PAWL_CMD_RESTORE);
    }
    struct sim_queue *q = some_queue(w);
    if (q != NULL && lane->open_count < 8 && sim_one_in(w, 8))
        submit_scan(w, lane, q, false);
}

/* Everything that a start has recovered, or that has become too uncertain, is compared with what it
 * may be. */
static void inspect(struct sim *w, struct sim_lane *lane)
{
    for (uint32_t i = 0; i < lane->open_count; i++)
        if (lane->open[i]->inspects)
            return;
    for (uint32_t i = 0; i < w->options.queues; i++)
        if (w->queues[i].id != 0 && !w->queues[i].inspected) {
            submit_scan(w, lane, &w->queues[i], true);
            return;
        }
    w->inspecting = false;
    for (uint32_t i = 0; i < w->options.queues && w->look; i++) {
        w->queues[i].inspected = false;
        w->queues[i].inspect_after = 0;
    }
    w->look = false;
}

void sim_admin_act(struct sim *w, struct sim_client *client)
{
    struct sim_lane *lane = client->lanes[0];
    sim_unit_turn(w);
    if (lane->core == NULL || !has_window(lane))
        return;
    inspect(w, lane);
    if (w->inspecting)
        return;
    for (uint32_t i = 0; i < w->options.queues; i++) {
        struct sim_queue *q = &w->queues[i];
        if (q->dropping != NULL && q->dropping->state == SIM_OP_CLOSED)
            submit_drop(w, lane, q); /* nobody was told what became of it */
        else if (q->id == 0 && q->creating == NULL && q->dropping == NULL)
            q->creating = submit_queue(w, lane, q, PAWL_CMD_QUEUE_CREATE);
        else if (q->creating != NULL && q->creating->state == SIM_OP_CLOSED)
            q->creating = NULL;
    }
    struct sim_queue *table = sim_state_wants_table(w);
    if (table != NULL)
        table->creating = submit_queue(w, lane, table, PAWL_CMD_QUEUE_CREATE);
    if (w->liveness) {
        admin_drain(w, lane);
        if (has_window(lane))
            sim_state_look(w, lane);
        return;
    }
    struct sim_queue *q = some_queue(w);
    if (q == NULL || lane->open_count > 16)
        return;
    switch (sim_below(w, 40)) {
    case 0:
    case 1:
    case 2:
    case 3:
        submit_scan(w, lane, q, false);
        break;
    case 4:
    case 5:
        (void)submit_queue(w, lane, q, PAWL_CMD_QUEUE_STAT);
        break;
    case 6:
        if (q->pausing == NULL)
            (void)submit_queue(w, lane, q, PAWL_CMD_QUEUE_PAUSE);
        break;
    case 7:
    case 8:
    case 9:
        if (q->pausing == NULL && q->maybe_paused)
            (void)submit_queue(w, lane, q, PAWL_CMD_QUEUE_RESUME);
        break;
    case 10:
        if (sim_one_in(w, 6))
            (void)submit_queue(w, lane, q, PAWL_CMD_QUEUE_PURGE);
        break;
    case 11:
        (void)submit_queue(w, lane, q, PAWL_CMD_QUEUE_FIND);
        break;
    case 12:
        /* No drop meanwhile: decided again after a crash it would come behind that. */
        if (q->creating == NULL)
            q->creating = submit_queue(w, lane, q, PAWL_CMD_QUEUE_CREATE);
        break;
    case 13:
        (void)submit_queue(w, lane, q, PAWL_CMD_QUEUE_LIST);
        break;
    case 15:
        if (w->options.drops && q->pausing == NULL && q->creating == NULL && sim_one_in(w, 4))
            submit_drop(w, lane, q);
        break;
    case 14: {
        struct sim_op *op =
            sim_op_create(w, lane, PAWL_CMD_METRICS, sizeof(struct pawl_cmd_one), 0);
        sim_lane_submit(w, lane, op);
        break;
    }
    default:
        break;
    }
}

/* --- life ------------------------------------------------------------------------------------ */

struct sim_client *sim_client_create(struct sim *w, uint32_t uid, bool admin)
{
    struct sim_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        abort();
    w->clients = sim_grow(w->clients, &w->client_capacity, w->client_count, sizeof *w->clients);
    w->clients[w->client_count++] = client;
    client->number = w->client_count;
    client->pid = 1000 + client->number;
    client->uid = uid;
    client->alive = true;
    client->admin = admin;
    return client;
}

static void lanes_new(struct sim *w, struct sim_client *client)
{
    uint32_t count = client->admin ? 1 : 1 + (uint32_t)sim_below(w, w->options.lanes);
    for (uint32_t i = 0; i < count; i++)
        sim_lane_open(w, sim_lane_create(w, client));
}

/* The broker does not know the session any more. */
static void session_lost(struct sim *w, struct sim_client *client)
{
    bool grace_over = client->graced || w->now.time >= client->detached_at + w->options.grace_ns;
    SIM_CHECK(w, !client->known || grace_over,
              "G6: session %" PRIu64 " of client %u, whose answers were durable, is unknown",
              client->session, client->number);
    sim_note(w, "session of client %u lost%s", client->number, grace_over ? " by grace" : "");
    if (grace_over)
        sim_fault_happened(w, SIM_GRACE);
    sim_model_session_end(w, client, PAWL_END_GRACE, false);
    for (uint32_t i = 0; i < client->lane_count; i++) {
        struct sim_lane *lane = client->lanes[i];
        for (uint32_t j = 0; j < lane->open_count && !grace_over; j++)
            sim_model_lost(w, lane->open[j]);
        while (lane->open_count > 0)
            sim_op_close(w, lane->open[lane->open_count - 1]);
    }
    client->alive = false;
}

void sim_client_attach(struct sim *w, struct sim_client *client)
{
    struct pawl_core *core = pawl_engine_core(w->engine);
    struct pawl_core_peer peer = {
        .uid = client->uid, .gid = 100, .pid = client->pid, .start_time = 7 + client->number
    };
    snprintf(peer.label, sizeof peer.label, "client %u", client->number);
    bool fresh = client->session == 0;
    int rc;
    if (fresh)
        rc = pawl_core_session_open(core, &peer, w->now, &client->core);
    else
        rc = pawl_core_session_resume(core, client->session, client->secret, &peer, w->now,
                                      &client->core);
    sim_note(w, "attach client %u session %" PRIu64 ": %s", client->number, client->session,
             pawl_strname(rc));
    if (!fresh && rc == PAWL_E_OUTCOME_UNKNOWN) {
        client->core = NULL;
        session_lost(w, client);
        return;
    }
    SIM_CHECK(w, rc == PAWL_OK, "client %u attaches: %s", client->number, pawl_strname(rc));
    uint64_t epoch = pawl_core_session_epoch(client->core);
    /* An epoch enters the log with the first record under it. */
    SIM_CHECK(w, fresh || epoch > client->epoch_logged, "session epoch %" PRIu64 " after %" PRIu64,
              epoch, client->epoch_logged);
    client->epoch = epoch;
    client->detached = client->graced = false;
    if (fresh) {
        client->session = pawl_core_session_id(client->core);
        memcpy(client->secret, pawl_core_session_secret(client->core), sizeof client->secret);
        lanes_new(w, client);
    } else {
        SIM_CHECK(w, client->session == pawl_core_session_id(client->core), "another session");
        sim_model_session_back(w, client);
        for (uint32_t i = 0; i < client->lane_count; i++)
            if (!client->lanes[i]->closed)
                sim_lane_open(w, client->lanes[i]);
    }
    sim_model_wrote(w);
}

static void lane_detached(struct sim_lane *lane)
{
    lane->core = NULL;
    lane->starved = false;
    sim_lane_lose_ring(lane);
    if (lane->receive != NULL && lane->receive->state == SIM_OP_CLOSED)
        lane->receive = NULL; /* a standing one ends with its attachment */
}

/* What the client's library does when its broker or its socket is gone: it may still read what is
 * in its rings, then waits. */
static void lanes_detached(struct sim *w, struct sim_client *client)
{
    sim_client_read(w, client, sim_one_in(w, 2));
    for (uint32_t i = 0; i < client->lane_count; i++)
        lane_detached(client->lanes[i]);
    client->core = NULL;
    client->detached_at = w->now.time;
}

void sim_client_broker_gone(struct sim *w, struct sim_client *client)
{
    lanes_detached(w, client);
    client->back_at = 0;
    client->detached = false;
}

void sim_client_detach(struct sim *w, struct sim_client *client, bool for_long)
{
    struct pawl_core *core = pawl_engine_core(w->engine);
    for (uint32_t i = 0; i < client->lane_count; i++) {
        struct sim_lane *lane = client->lanes[i];
        if (lane->core == NULL)
            continue;
        pawl_core_lane_taken(core, lane->core, lane->head);
        sim_model_lane_gone(w, lane);
    }
    pawl_core_session_detach(core, client->core, w->now);
    sim_model_wrote(w);
    lanes_detached(w, client);
    client->detached = true;
    client->back_at = pawl_io_sim_now(w->io) + PICK(w, 0, SIM_MS, 100 * SIM_MS);
    if (for_long)
        client->back_at = pawl_io_sim_now(w->io) + 2 * w->options.grace_ns;
    sim_note(w, "detach client %u", client->number);
}

/* What the old rings still hold is lost with them, read or not, and the same lane goes on. */
void sim_client_resize_lane(struct sim *w, struct sim_client *client, struct sim_lane *lane)
{
    for (uint64_t left = sim_one_in(w, 2) ? UINT64_MAX : sim_below(w, 16); left > 0; left--)
        if (!sim_lane_read(w, lane))
            break;
    sim_model_lane_gone(w, lane);
    lane_detached(lane);
    lane->comp_bytes = (uint32_t)pawl_min_u64(2ull * lane->comp_bytes, 1u << 20);
    sim_note(w, "resize lane %u of client %u to %u", lane->uid, client->number, lane->comp_bytes);
    sim_lane_open(w, lane);
    sim_model_wrote(w);
}

void sim_client_close_lane(struct sim *w, struct sim_client *client, struct sim_lane *lane)
{
    sim_note(w, "close lane %u of client %u", lane->uid, client->number);
    lane->closed = true;
    sim_lane_close(w, lane);
    lane->receive = NULL;
    while (lane->open_count > 0)
        sim_op_close(w, lane->open[lane->open_count - 1]);
    sim_lane_lose_ring(lane);
}

struct found {
    uint64_t id;
    struct pawl_core_session *session;
};

static void match(void *ctx, struct pawl_core_session *session)
{
    struct found *f = ctx;
    if (pawl_core_session_id(session) == f->id)
        f->session = session;
}

void sim_client_end(struct sim *w, struct sim_client *client, enum pawl_core_end why)
{
    struct pawl_core *core = pawl_engine_core(w->engine);
    bool attached = client->core != NULL;
    sim_note(w, "end client %u why %d", client->number, (int)why);
    client->alive = false;
    for (uint32_t i = 0; i < client->lane_count && attached; i++)
        if (client->lanes[i]->core != NULL)
            pawl_core_lane_taken(core, client->lanes[i]->core, client->lanes[i]->head);
    if (client->session != 0)
        sim_model_session_end(w, client, why, attached);
    struct pawl_core_session *session = client->core;
    if (!attached && client->session != 0) {
        struct found f = { client->session, NULL };
        pawl_core_session_each(core, match, &f);
        session = f.session;
    }
    for (uint32_t i = 0; i < client->lane_count; i++) {
        struct sim_lane *lane = client->lanes[i];
        lane->core = NULL;
        lane->receive = NULL;
        while (lane->open_count > 0)
            sim_op_close(w, lane->open[lane->open_count - 1]);
        sim_lane_lose_ring(lane);
        lane->held_count = 0;
    }
    client->core = NULL;
    if (session != NULL)
        pawl_core_session_end(core, session, why, w->now);
    sim_model_wrote(w);
}

/* A command that no correct library writes: its lengths do not fit. */
void sim_client_breach(struct sim *w, struct sim_client *client)
{
    struct sim_lane *lane = client->lanes[0];
    if (lane->core == NULL)
        return;
    struct pawl_cmd_send c = { 0 };
    uint8_t variable[16] = { 0 };
    c.head.bytes = sizeof c + sizeof variable;
    c.head.type = PAWL_CMD_SEND;
    c.head.seq = lane->next_seq + 1;
    c.queue = w->queues[0].id;
    c.priority = (uint8_t)(sim_one_in(w, 2) ? 200 : 1);
    c.body_bytes = (uint32_t)PICK(w, 17, 0xffffffff, 0x80000000, 1000);
    int rc = pawl_core_take(pawl_engine_core(w->engine), lane->core, &c, variable, sizeof variable,
                            w->now);
    SIM_CHECK(w, rc == PAWL_E_PROTOCOL, "a command with wrong lengths was taken: %d", rc);
    sim_client_end(w, client, PAWL_END_BREACH);
}

void sim_client_destroy(struct sim *w, struct sim_client *client)
{
    for (uint32_t i = 0; i < client->lane_count; i++)
        sim_lane_destroy(client->lanes[i]);
    free(client);
    (void)w;
}
