/* SPDX-License-Identifier: MIT */
/* Commands: from a claim to an answer. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "abi/lane_id.h"
#include "base/clock.h"
#include "client/lane.h"

uint64_t pawl_now(struct pawl *lane)
{
    lane->now = pawl_clock_boot();
    return lane->now;
}

uint64_t pawl_now_coarse(struct pawl *lane)
{
    /* A fifth of the cost of the boot clock: the kernel's tick tells whether ours is stale. */
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    uint64_t coarse = (uint64_t)t.tv_sec * PAWL_NS_S + (uint64_t)t.tv_nsec;
    if (coarse != lane->coarse) {
        lane->coarse = coarse;
        lane->now = pawl_clock_boot();
    }
    return lane->now;
}

static struct pawl_op *op_at(struct pawl *lane, uint64_t ticket)
{
    return &lane->ops[ticket & lane->op_mask];
}

void pawl_op_oldest(struct pawl *lane)
{
    while (lane->oldest != lane->next && op_at(lane, lane->oldest)->state == PAWL_OP_FREE)
        lane->oldest++;
}

void pawl_op_id_of(const struct pawl *lane, uint64_t ticket, struct pawl_op_id *out)
{
    const struct pawl_lane_id id = {
        .session = lane->session_id,
        .seq = ticket - lane->base,
        .lane = lane->number,
    };
    if (ticket == lane->last_given)
        *out = lane->last_id;
    else
        pawl_lane_id_pack(&id, out);
}

bool pawl_op_left(struct pawl *lane)
{
    for (uint64_t t = lane->oldest; t != lane->next; t++) {
        const struct pawl_op *op = op_at(lane, t);
        if (op->state != PAWL_OP_FREE && pawl_cmd_identifiable(op->type))
            return true;
    }
    return false;
}

bool pawl_op_reclaim(struct pawl *lane)
{
    uint64_t head = pawl_load_acq_u64(&lane->comp_shm->sub_head);
    /* Between the last one and what we published. */
    if (head - lane->sub_head > lane->sub.published - lane->sub_head)
        return false;
    lane->sub_head = head;
#ifndef PAWL_BUG_SUB_REUSED_EARLY
    /* What the broker has read it may still have to read again from us, should it die before the
     * answer: the oldest open command and all behind it stay. */
    if (lane->oldest != lane->next) {
        uint64_t open = op_at(lane, lane->oldest)->position;
        if (open - lane->sub.head < head - lane->sub.head)
            head = open;
    }
#endif
    lane->sub.head = head;
    return true;
}

static bool has_room(struct pawl *lane, uint64_t bytes)
{
    if (lane->next - lane->oldest >= lane->window)
        return false;
    if (pawl_ring_room(&lane->sub) >= bytes)
        return true;
    if (!pawl_op_reclaim(lane)) {
        (void)pawl_lane_breach(lane, "it has read what was not written, or unread what it had");
        return false;
    }
    return pawl_ring_room(&lane->sub) >= bytes;
}

static uint32_t no_room(struct pawl *lane, uint64_t bytes) { return has_room(lane, bytes) ? 0 : 1; }

/* Has an answer the room to be collected? Counts the tickets that are open, too. */
static bool answers_have_room(const struct pawl *lane)
{
    return lane->answer_tail - lane->answer_head + lane->tickets_open <= lane->answer_mask;
}

static int make_room(struct pawl *lane, uint32_t bytes, uint64_t until)
{
    int rc;
    if (!lane->attached) {
        rc = pawl_lane_recover(lane, until);
        if (rc != PAWL_OK)
            return rc;
    }
    if (PAWL_UNLIKELY((uint64_t)bytes * 2 > lane->sub.size) &&
        lane->sub.size < PAWL_RING_BYTES_MAX) {
        rc = pawl_lane_enlarge(lane, (uint64_t)bytes * 2, 0, until);
        /* A ring that holds it at all will do where a larger one is not to be had. */
        if (rc != PAWL_OK && bytes > lane->sub.size)
            return rc;
        if (rc != PAWL_OK)
            lane->text[0] = '\0';
    }
    if (has_room(lane, bytes))
        return PAWL_OK;
    rc = pawl_drain(lane);
    if (rc != PAWL_OK || has_room(lane, bytes))
        return rc;
    return pawl_lane_wait(lane, no_room, bytes, until);
}

/* Told "unknown", answered since: its id must resolve when the window has forgotten it. Where there
 * is no room for that it is let go. */
static void keep_outcomes(struct pawl *lane)
{
    lane->keeps = 0;
    for (uint64_t t = lane->oldest; t != lane->next; t++) {
        if (op_at(lane, t)->state != PAWL_OP_KEEP)
            continue;
        struct pawl_cmd_one *c = pawl_op_claim_orphan(lane, PAWL_CMD_KEEP, sizeof *c);
        op_at(lane, t)->state = c ? PAWL_OP_KEPT : PAWL_OP_FREE;
        if (!c)
            continue;
        c->value = t - lane->base;
        op_at(lane, lane->next - 1)->keeps = (uint32_t)(lane->next - 1 - t);
    }
    pawl_op_oldest(lane);
}

void *pawl_op_claim(struct pawl *lane, uint16_t type, uint32_t bytes, enum pawl_op_kind kind,
                    uint64_t until, int *result)
{
    if (PAWL_UNLIKELY(lane->keeps != 0) && kind == PAWL_OP_TICKET)
        keep_outcomes(lane);
    bytes = (uint32_t)pawl_align_up(bytes, PAWL_RECORD_ALIGN);
    bool identified =
        PAWL_UNLIKELY(lane->identified) && kind == PAWL_OP_PLAIN && pawl_cmd_identifiable(type);
    if (identified)
        bytes += (uint32_t)sizeof lane->id;
    if (PAWL_UNLIKELY(!lane->attached || lane->next - lane->oldest >= lane->window ||
                      (uint64_t)bytes * 2 > lane->sub.size || pawl_ring_room(&lane->sub) < bytes)) {
        *result = make_room(lane, bytes, until);
        if (*result != PAWL_OK) {
            pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
            return NULL;
        }
    }
    if (kind == PAWL_OP_TICKET && PAWL_UNLIKELY(!answers_have_room(lane))) {
        *result = pawl_call_refuse(lane, PAWL_E_RESOURCE,
                                   "%u answers wait to be collected: call pawl_poll()",
                                   lane->answers_there);
        return NULL;
    }
    uint64_t position = lane->sub.tail;
    struct pawl_cmd *head = pawl_ring_claim(&lane->sub, bytes);
    if (PAWL_UNLIKELY(!head)) { /* make_room has seen to it */
        *result = PAWL_E_RESOURCE;
        return NULL;
    }
    uint64_t ticket = lane->next++;
    struct pawl_op *op = op_at(lane, ticket);
    op->ticket = ticket;
    op->position = position;
    op->bytes = bytes;
    op->type = type;
    op->state = PAWL_OP_OPEN;
    op->kind = (uint8_t)kind;
    lane->plain_open += kind == PAWL_OP_PLAIN;
    if (kind == PAWL_OP_PLAIN && pawl_cmd_identifiable(type))
        lane->last_ticket = ticket;
    lane->tickets_open += kind == PAWL_OP_TICKET;
    head->bytes = bytes;
    head->type = type;
    head->flags = identified ? PAWL_CMD_IDENTIFIED : 0;
    if (PAWL_UNLIKELY(identified)) {
        memcpy((uint8_t *)head + bytes - sizeof lane->id, &lane->id, sizeof lane->id);
        lane->id_used = true;
        lane->last_given = ticket;
        lane->last_id = lane->id;
    }
    head->seq = ticket - lane->base;
    head->deadline = until == UINT64_MAX ? 0 : until + (uint64_t)lane->clock_shift;
    head->open = (uint32_t)(ticket - lane->oldest);
    head->reserved = 0;
    return head;
}

void *pawl_op_claim_orphan(struct pawl *lane, uint16_t type, uint32_t bytes)
{
    int rc;
    bytes = (uint32_t)pawl_align_up(bytes, PAWL_RECORD_ALIGN);
    if (!lane->attached || (uint64_t)bytes * 2 > lane->sub.size || !has_room(lane, bytes))
        return NULL;
    return pawl_op_claim(lane, type, bytes, PAWL_OP_ORPHAN,
                         pawl_add_sat(pawl_now_coarse(lane), lane->timeout_ns), &rc);
}

bool pawl_op_answer(struct pawl *lane, uint64_t ticket, int32_t result, uint64_t value,
                    uint64_t lsn, uint32_t state)
{
    struct pawl_op *op = op_at(lane, ticket);
    if (PAWL_UNLIKELY(op->ticket != ticket || op->state != PAWL_OP_OPEN))
        return false;
    op->state = PAWL_OP_FREE;
    if (PAWL_UNLIKELY(op->kind == PAWL_OP_UNKNOWN)) {
        bool told = result != PAWL_E_OUTCOME_UNKNOWN && result != PAWL_E_BROKER_DOWN;
        if (told && lane->next - lane->oldest <= lane->window / 2) {
            op->state = PAWL_OP_KEEP;
            lane->keeps++;
        }
    } else if (PAWL_UNLIKELY(op->type == PAWL_CMD_KEEP)) {
        struct pawl_op *kept = op_at(lane, ticket - op->keeps);
        if (kept->state == PAWL_OP_KEPT)
            kept->state = PAWL_OP_FREE;
    } else if (op->kind == PAWL_OP_TICKET) {
        struct pawl_answer *a = &lane->answers[lane->answer_tail & lane->answer_mask];
        op->answer = (uint32_t)(lane->answer_tail & lane->answer_mask);
        a->ticket = ticket;
        a->result = result;
        a->state = state;
        a->value = value;
        a->lsn = result == PAWL_E_ALREADY_ACKED ? 0 : lsn; /* there it is a session */
        lane->answer_tail++;
        lane->answers_there++;
        lane->answers_read++;
        lane->tickets_open--;
        if (PAWL_UNLIKELY(result == PAWL_E_QUEUE_GONE))
            pawl_queue_doubt(lane);
    } else if (op->kind == PAWL_OP_PLAIN) {
        uint64_t i = ticket - lane->row_first;
        if (i < lane->row_count)
            lane->rows[i] =
                (struct pawl_row){ .value = value, .lsn = lsn, .result = result, .state = state };
        lane->plain_open--;
    }
    pawl_op_oldest(lane);
    return true;
}

int pawl_op_answered(struct pawl *lane, int32_t result, uint64_t value, uint32_t state,
                     pawl_ticket *ticket)
{
    if (PAWL_UNLIKELY(!answers_have_room(lane)))
        return pawl_call_refuse(lane, PAWL_E_RESOURCE,
                                "%u answers wait to be collected: call pawl_poll()",
                                lane->answers_there);
    struct pawl_answer *a = &lane->answers[lane->answer_tail & lane->answer_mask];
    *a = (struct pawl_answer){ .ticket = UINT64_C(1) << 63 | ++lane->own_tickets,
                               .result = result,
                               .state = state,
                               .value = value };
    lane->answer_tail++;
    lane->answers_there++;
    lane->answers_read++;
    if (ticket)
        *ticket = a->ticket;
    return PAWL_OK;
}

void pawl_op_rows(struct pawl *lane, struct pawl_row *rows, uint32_t count)
{
    if (PAWL_UNLIKELY(lane->keeps != 0))
        keep_outcomes(lane); /* now: the rows are for the tickets that come next */
    lane->rows = rows;
    lane->row_first = lane->next;
    lane->row_count = count;
}

void pawl_op_single(struct pawl *lane)
{
    lane->one = (struct pawl_row){ .result = PAWL_E_OUTCOME_UNKNOWN };
    pawl_op_rows(lane, &lane->one, 1);
}

void pawl_op_forsake(struct pawl *lane)
{
    for (uint64_t t = lane->oldest; lane->plain_open && t != lane->next; t++) {
        struct pawl_op *op = op_at(lane, t);
        if (op->state == PAWL_OP_OPEN && op->kind == PAWL_OP_PLAIN) {
            op->kind = pawl_cmd_identifiable(op->type) ? PAWL_OP_UNKNOWN : PAWL_OP_ORPHAN;
            lane->plain_open--;
        }
    }
    lane->row_count = 0;
}

static uint32_t plain_left(struct pawl *lane, uint64_t unused)
{
    (void)unused;
    return lane->plain_open;
}

int pawl_op_finish(struct pawl *lane, uint64_t until)
{
    int rc = pawl_lane_wait(lane, plain_left, 0, until);
    if (rc != PAWL_OK) {
        /* They were published: only the broker knows. Should it answer later, the answer is
         * dropped; should it die, they are submitted again, with a deadline that is over. */
        pawl_call_outcome(lane, PAWL_OUTCOME_UNKNOWN);
        pawl_op_forsake(lane);
        /* Else E_DEADLINE is put into the words of a broker that refused it as too late. */
        if (rc == PAWL_E_DEADLINE && lane->text[0] == '\0')
            (void)snprintf(lane->text, sizeof lane->text,
                           "the broker did not answer in the time of the call");
    }
    return rc;
}

int pawl_op_result(struct pawl *lane, uint64_t until, const char *subject)
{
    int rc = pawl_op_finish(lane, until);
    if (rc != PAWL_OK)
        return rc;
    return pawl_call_answered(lane, lane->one.result, lane->one.value, subject);
}
