/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* A lane as the broker's loop and the client's library keep it together, without the memory: what
 * is in the rings stands in arrays, room is counted in bytes. The rules are those of abi/command.h:
 * a command is taken only when its answer has room, a delivery has its room reserved before it is
 * granted, open commands are submitted again in order after a re-attach. */

struct sim_lane *sim_lane_create(struct sim *w, struct sim_client *client)
{
    static const uint32_t rings[] = { 65536, 65536, 131072, 262144 };
    struct sim_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        abort();
    lane->client = client;
    lane->uid = w->lane_count + 1;
    lane->number = PAWL_LANE_NEW;
    lane->window = PAWL_WINDOW_MIN;
    lane->comp_bytes = rings[sim_below(w, PAWL_COUNT(rings))];
    lane->next_seq = 1;
    client->lanes[client->lane_count++] = lane;
    return lane;
}

void sim_lane_lose_ring(struct sim_lane *lane)
{
    for (uint32_t i = 0; i < lane->ring_count; i++)
        free(lane->ring[i].data);
    lane->ring_count = 0;
    lane->tail = lane->head = 0;
    lane->answers_reserved = lane->deliveries_reserved = 0;
    lane->reserve_count = 0;
}

void sim_lane_destroy(struct sim_lane *lane)
{
    sim_lane_lose_ring(lane);
    free(lane->open);
    free(lane->ring);
    free(lane->reserves);
    free(lane->held);
    free(lane);
}

static uint64_t oldest_open(const struct sim_lane *lane)
{
    return lane->open_count ? lane->open[0]->seq : lane->next_seq;
}

/* A new lane, or the same one again at this broker; its open commands go in again. */
void sim_lane_open(struct sim *w, struct sim_lane *lane)
{
    struct pawl_attach_lane resume = {
        .type = PAWL_ATTACH_LANE,
        .lane = lane->number,
        .sub_bytes = 65536,
        .comp_bytes = lane->comp_bytes,
        .window = lane->window,
        .grant_durable = lane->grant_durable,
        .grant_relaxed = lane->grant_relaxed,
        .open_seq = oldest_open(lane),
        .next_seq = lane->next_seq,
    };
    w->lanes = sim_grow(w->lanes, &w->lane_capacity, w->lane_count, sizeof *w->lanes);
    lane->handle = w->lane_count;
    w->lanes[w->lane_count++] = lane;
    lane->submit = 0;
    for (uint32_t i = 0; i < lane->open_count; i++) {
        struct sim_op *op = lane->open[i];
        op->state = SIM_OP_QUEUED;
        op->resubmit = true;
        op->interrupted = true;
        op->delivered_now = 0;
    }
    sim_note(w, "lane open client %u lane %u uid %u handle %u open %u", lane->client->number,
             lane->number, lane->uid, lane->handle, lane->open_count);
    int rc = pawl_core_lane_open(pawl_engine_core(w->engine), lane->client->core, lane->number,
                                 lane->window, &resume, lane->handle, w->now, &lane->core);
    SIM_CHECK(w, rc == PAWL_OK, "lane open of client %u gave %d", lane->client->number, rc);
    uint32_t number = pawl_core_lane_number(lane->core);
    SIM_CHECK(w, lane->number == PAWL_LANE_NEW || lane->number == number, "lane %u resumed as %u",
              lane->number, number);
    lane->number = number;
    sim_model_lane_back(w, lane);
}

/* The broker's side of it is gone; the client may come back with it. */
void sim_lane_close(struct sim *w, struct sim_lane *lane)
{
    if (lane->core == NULL)
        return;
    sim_model_lane_gone(w, lane);
    pawl_core_lane_close(pawl_engine_core(w->engine), lane->core, w->now);
    lane->core = NULL;
    sim_model_wrote(w);
}

struct sim_op *sim_op_create(struct sim *w, struct sim_lane *lane, uint16_t type, uint32_t fixed,
                             uint32_t variable)
{
    struct sim_op *op = calloc(1, sizeof *op);
    uint32_t bytes = (uint32_t)pawl_align_up(fixed + variable, 8);
    uint8_t *command = calloc(1, bytes);
    if (op == NULL || command == NULL)
        abort();
    w->ops = sim_grow(w->ops, &w->op_capacity, w->op_count, sizeof *w->ops);
    w->ops[w->op_count++] = op;
    op->number = w->op_count;
    op->type = type;
    op->lane = lane;
    op->command = command;
    op->bytes = bytes;
    struct pawl_cmd head = { .bytes = bytes, .type = type };
    memcpy(command, &head, sizeof head);
    return op;
}

void sim_lane_submit(struct sim *w, struct sim_lane *lane, struct sim_op *op)
{
    lane->open = sim_grow(lane->open, &lane->open_capacity, lane->open_count, sizeof *lane->open);
    op->seq = lane->next_seq++;
    op->state = SIM_OP_QUEUED;
    lane->open[lane->open_count++] = op;
}

static uint64_t room(const struct sim_lane *lane)
{
    return lane->comp_bytes - (lane->tail - lane->head) - lane->answers_reserved -
           lane->deliveries_reserved;
}

static uint32_t answer_bytes(uint16_t type)
{
    return (uint32_t)pawl_align_up(pawl_core_answer_bytes(type), 8);
}

bool sim_lane_take(struct sim *w, struct sim_lane *lane)
{
    if (lane->core == NULL || lane->submit >= lane->open_count)
        return false;
    struct sim_op *op = lane->open[lane->submit];
    struct pawl_cmd head;
    memcpy(&head, op->command, sizeof head);
    head.seq = op->seq;
    head.flags =
        (uint16_t)((head.flags & PAWL_CMD_IDENTIFIED) | (op->resubmit ? PAWL_CMD_RESUBMIT : 0));
    head.open = (uint32_t)(op->seq - oldest_open(lane));
    memcpy(op->command, &head, sizeof head);
    uint32_t answer = answer_bytes(op->type);
    if (room(lane) < answer || !pawl_engine_admits(w->engine, &head))
        return false;
    uint32_t fixed_bytes = pawl_core_fixed_bytes(op->type);
    SIM_CHECK(w, fixed_bytes >= sizeof head && fixed_bytes <= op->bytes,
              "fixed part of %s is %u of %u", sim_type_name(op->type), fixed_bytes, op->bytes);
    uint8_t *fixed = malloc(fixed_bytes);
    uint8_t *variable = malloc(op->bytes - fixed_bytes + 1);
    if (fixed == NULL || variable == NULL)
        abort();
    memcpy(fixed, op->command, fixed_bytes);
    memcpy(variable, op->command + fixed_bytes, op->bytes - fixed_bytes);
    if (head.deadline != 0) {
        head.deadline += pawl_engine_shift(w->engine);
        memcpy(fixed, &head, sizeof head);
    }
    w->index++;
    op->index = w->index;
    op->time = w->now.time;
    op->time_min = op->takes ? pawl_min_u64(op->time_min, op->time) : op->time;
    op->fired_min = op->takes ? pawl_min_u64(op->fired_min, w->fired) : w->fired;
    op->time_max = pawl_max_u64(op->time_max, op->time);
    if (op->takes++ == 0) {
        op->first_index = w->index;
        op->first_crashes = w->crashes;
        op->first_epoch = w->epoch;
        op->first_time = w->now.time;
        w->totals->operations++;
    }
    op->state = SIM_OP_TAKEN;
    lane->submit++;
    lane->answers_reserved += answer;
    sim_note(w, "take op %u %s lane %u seq %" PRIu64 "%s m%u", op->number, sim_type_name(op->type),
             lane->uid, op->seq, op->resubmit ? " again" : "",
             op->message ? op->message->number : 0);
    sim_model_take(w, op);
    int rc = pawl_core_take(pawl_engine_core(w->engine), lane->core, fixed, variable,
                            op->bytes - fixed_bytes, w->now);
    SIM_CHECK(w, rc == PAWL_OK, "op %u %s: a correct command was called a breach: %d", op->number,
              sim_type_name(op->type), rc);
    /* what is not kept by the core is gone now, as the client's slot would be */
    memset(fixed, 0xdb, fixed_bytes);
    memset(variable, 0xdb, op->bytes - fixed_bytes);
    free(fixed);
    free(variable);
    sim_model_wrote(w);
    return true;
}

bool sim_lane_reserve(struct sim *w, uint32_t handle, uint32_t bytes)
{
    SIM_CHECK(w, handle < w->lane_count, "room asked in lane handle %u, never given", handle);
    struct sim_lane *lane = w->lanes[handle];
    if (lane == NULL || lane->handle != handle)
        return false;
    SIM_CHECK(w, bytes % 8 == 0 && bytes >= sizeof(struct pawl_comp_delivery),
              "room of %u bytes for a delivery", bytes);
    if (lane->core == NULL && lane->closed)
        return false;
    if (room(lane) < bytes + 2048) { /* answers need some of it */
        lane->starved = true;
        return false;
    }
    lane->deliveries_reserved += bytes;
    sim_model_reserve(w, lane, bytes);
    return true;
}

static struct sim_op *find_open(struct sim_lane *lane, uint64_t seq)
{
    for (uint32_t i = 0; i < lane->open_count; i++)
        if (lane->open[i]->seq == seq)
            return lane->open[i];
    return NULL;
}

static void show_answer(struct sim *w, struct sim_lane *lane, const uint8_t *data, uint32_t bytes)
{
    struct pawl_comp_answer a;
    memcpy(&a, data, sizeof a);
    const void *more = NULL;
    uint32_t more_bytes = 0, state = 0;
    if (a.type == PAWL_COMP_DATA) {
        struct pawl_comp_data d;
        memcpy(&d, data, sizeof d);
        more = data + sizeof d;
        more_bytes = d.data_bytes;
        SIM_CHECK(w, sizeof d + pawl_align_up(more_bytes, 8) == bytes, "data of %u in %u bytes",
                  more_bytes, bytes);
    } else {
        SIM_CHECK(w, a.count_minus_1 == 0 && bytes == sizeof a, "an answer of %u bytes", bytes);
        state = a.flags >> PAWL_ANSWER_STATE_SHIFT & PAWL_ANSWER_STATE_MASK;
    }
    struct sim_op *op = find_open(lane, a.seq);
    SIM_CHECK(w, op != NULL, "G6: an answer for seq %" PRIu64 " of lane %u, which is not open",
              a.seq, lane->uid);
    SIM_CHECK(w, op->state == SIM_OP_TAKEN, "G6: a second answer for op %u", op->number);
    uint32_t reserved = answer_bytes(op->type);
    SIM_CHECK(w, bytes <= reserved, "answer of op %u has %u bytes, room for %u", op->number, bytes,
              reserved);
    lane->answers_reserved -= reserved;
    sim_model_answer(w, op, a.result, a.value, a.lsn, state, more, more_bytes);
    op->state = SIM_OP_SHOWN;
}

void sim_lane_write(struct sim *w, const struct pawl_effect *effect)
{
    struct pawl_core *core = pawl_engine_core(w->engine);
    SIM_CHECK(w, effect->lane < w->lane_count, "effect for lane handle %u, never given",
              effect->lane);
    struct sim_lane *lane = w->lanes[effect->lane];
    if (lane == NULL || lane->handle != effect->lane || lane->core == NULL) {
        if (effect->type != PAWL_EFFECT_ANSWER)
            pawl_core_effect_done(core, effect, false, 0);
        return;
    }
    SIM_CHECK(w, effect->bytes % 8 == 0 && effect->bytes >= 8, "effect of %u bytes", effect->bytes);
    SIM_CHECK(
        w, effect->wait_lsn == 0 || pawl_log_durable(pawl_engine_log(w->engine)) > effect->wait_lsn,
        "G11: an effect leaves before its record is durable");
    lane->ring = sim_grow(lane->ring, &lane->ring_capacity, lane->ring_count, sizeof *lane->ring);
    struct sim_record *record = &lane->ring[lane->ring_count++];
    record->data = calloc(1, effect->bytes);
    if (record->data == NULL)
        abort();
    record->bytes = effect->bytes;
    pawl_core_effect_write(core, effect, record->data, pawl_engine_shift(w->engine));
    w->index++;
    uint32_t bytes;
    uint16_t type;
    memcpy(&bytes, record->data, 4);
    memcpy(&type, record->data + 4, 2);
    SIM_CHECK(w, bytes == effect->bytes, "record says %u bytes, effect %u", bytes, effect->bytes);
    lane->tail += bytes;
    record->end = lane->tail;
    uint64_t position = lane->tail;
    if (type == PAWL_COMP_DELIVERY) {
        lane->deliveries_reserved -= bytes;
        sim_model_delivery(w, lane, (const struct pawl_comp_delivery *)(const void *)record->data);
    } else {
        SIM_CHECK(w, type == PAWL_COMP_ANSWER || type == PAWL_COMP_DATA, "record of type %u", type);
        show_answer(w, lane, record->data, bytes);
    }
    SIM_CHECK(w, lane->tail - lane->head <= lane->comp_bytes, "completion ring overrun");
    pawl_core_effect_done(core, effect, true, position);
}

void sim_op_close(struct sim *w, struct sim_op *op)
{
    struct sim_lane *lane = op->lane;
    if (op->state == SIM_OP_CLOSED)
        return;
    op->state = SIM_OP_CLOSED;
    for (uint32_t i = 0; i < lane->open_count; i++)
        if (lane->open[i] == op) {
            memmove(&lane->open[i], &lane->open[i + 1],
                    (lane->open_count - i - 1) * sizeof *lane->open);
            lane->open_count--;
            if (lane->submit > i)
                lane->submit--;
            break;
        }
    sim_model_close(w, op);
}

static void read_delivery(struct sim *w, struct sim_lane *lane, const uint8_t *data)
{
    struct pawl_comp_delivery d;
    memcpy(&d, data, sizeof d);
    uint64_t *highest = d.mode == PAWL_DURABLE ? &lane->grant_durable : &lane->grant_relaxed;
    SIM_CHECK(w, d.grant > *highest, "grant %" PRIx64 " read after %" PRIx64 " on lane %u", d.grant,
              *highest, lane->uid);
    *highest = d.grant;
    if (d.deadline <= 1)
        return;
    lane->held = sim_grow(lane->held, &lane->held_capacity, lane->held_count, sizeof *lane->held);
    struct sim_held *held = &lane->held[lane->held_count++];
    memset(held, 0, sizeof *held);
    held->message = sim_map_get(w->ids, d.message);
    held->token = (struct pawl_token){ d.message, d.grant, d.random };
    held->deadline = d.deadline == UINT64_MAX ? UINT64_MAX : d.deadline + w->shift;
    held->uid = lane->client->uid;
    held->kind = d.lease_kind;
}

bool sim_lane_read(struct sim *w, struct sim_lane *lane)
{
    if (lane->ring_count == 0)
        return false;
    struct sim_record record = lane->ring[0];
    memmove(lane->ring, lane->ring + 1, --lane->ring_count * sizeof *lane->ring);
    lane->head = record.end;
    uint16_t type;
    memcpy(&type, record.data + 4, 2);
    if (type == PAWL_COMP_DELIVERY) {
        read_delivery(w, lane, record.data);
    } else {
        struct pawl_comp_answer a;
        memcpy(&a, record.data, sizeof a);
        struct sim_op *op = find_open(lane, a.seq);
        SIM_CHECK(w, op != NULL && op->state == SIM_OP_SHOWN, "answer of a closed operation");
        if (lane->receive == op && (op->type == PAWL_CMD_RECEIVE || a.result != PAWL_OK))
            lane->receive = NULL;
        if (op->type == PAWL_CMD_STOP && op->target->type == PAWL_CMD_SUBSCRIBE &&
            lane->receive == op->target)
            lane->receive = NULL; /* not before: both are submitted again after a crash */
        sim_op_close(w, op);
    }
    free(record.data);
    return true;
}
