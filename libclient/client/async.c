/* SPDX-License-Identifier: MIT */
/* Tickets: answers that are collected later. An answer that has come lies in the row `answers`, in
 * order of arrival; one taken out of turn by pawl_wait() leaves a hole that is skipped. */
#include <string.h>

#include "client/lane.h"
#include "client/session.h"

int pawl_flush(struct pawl *lane)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!lane->attached) {
        rc = pawl_lane_recover(lane, pawl_add_sat(pawl_now(lane), lane->timeout_ns));
        if (rc != PAWL_OK)
            pawl_call_outcome(lane, PAWL_OUTCOME_UNKNOWN);
    }
    pawl_lane_publish(lane);
    return pawl_call_leave(lane, rc);
}

static struct pawl_answer *answer_at(struct pawl *lane, uint64_t i)
{
    return &lane->answers[i & lane->answer_mask];
}

static void skip_holes(struct pawl *lane)
{
    while (lane->answer_head != lane->answer_tail &&
           answer_at(lane, lane->answer_head)->ticket == 0)
        lane->answer_head++;
}

/* The answer of this ticket, if it is here. */
static struct pawl_answer *find_answer(struct pawl *lane, pawl_ticket ticket)
{
    const struct pawl_op *op = &lane->ops[ticket & lane->op_mask];
    if (op->ticket == ticket && op->state == PAWL_OP_FREE && op->kind == PAWL_OP_TICKET &&
        lane->answers[op->answer].ticket == ticket)
        return &lane->answers[op->answer];
    for (uint64_t i = lane->answer_head; i != lane->answer_tail; i++)
        if (answer_at(lane, i)->ticket == ticket)
            return answer_at(lane, i);
    return NULL;
}

static bool ticket_open(struct pawl *lane, pawl_ticket ticket)
{
    const struct pawl_op *op = &lane->ops[ticket & lane->op_mask];
    return op->ticket == ticket && op->state == PAWL_OP_OPEN && op->kind == PAWL_OP_TICKET;
}

static uint32_t ticket_left(struct pawl *lane, uint64_t ticket)
{
    return ticket_open(lane, ticket) ? 1 : 0;
}

int pawl_wait(struct pawl *lane, pawl_ticket ticket, uint64_t timeout_ns, struct pawl_answer *out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    pawl_lane_publish(lane);
    if (ticket_open(lane, ticket))
        rc = pawl_lane_wait(lane, ticket_left, ticket, pawl_add_sat(pawl_now(lane), timeout_ns));
    struct pawl_answer *a = rc == PAWL_OK ? find_answer(lane, ticket) : NULL;
    if (rc == PAWL_OK && !a)
        rc = pawl_call_refuse(lane, PAWL_E_INVALID,
                              "no such ticket is open (or its answer was collected already)");
    if (a) {
        if (out)
            *out = *a;
        a->ticket = 0;
        lane->answers_there--;
        skip_holes(lane);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

static uint32_t answers_left(struct pawl *lane, uint64_t least)
{
    /* No more than what is open can come. */
    uint64_t want = pawl_min_u64(least, (uint64_t)lane->answers_there + lane->tickets_open);
    return want > lane->answers_there ? (uint32_t)(want - lane->answers_there) : 0;
}

static uint32_t collect(struct pawl *lane, struct pawl_answer *out, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && lane->answer_head != lane->answer_tail) {
        const struct pawl_answer *a = answer_at(lane, lane->answer_head++);
        if (a->ticket != 0)
            out[n++] = *a;
    }
    lane->answers_there -= n;
    return n;
}

int pawl_poll(struct pawl *lane, struct pawl_answer *out, uint32_t max, uint32_t least,
              uint64_t timeout_ns)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || max == 0 || max > INT32_MAX || least > max)
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_INVALID, "least <= max, 1 <= max and out needed"));
    pawl_fd_disarm(lane);
    do {
        /* Answers that are here are given, whatever became of the broker. */
        if (lane->answers_there < max || lane->sub.published != lane->sub.tail)
            rc = pawl_lane_wait(lane, answers_left, least,
                                timeout_ns ? pawl_add_sat(pawl_now(lane), timeout_ns) : 0);
        if (rc == PAWL_E_DEADLINE || (rc < 0 && lane->answers_there && !lane->fatal))
            rc = PAWL_OK;
        /* Without a wait asked for, a broker that is away is no news: the calls stay open. */
        if (rc == PAWL_E_BROKER_DOWN && timeout_ns == 0)
            rc = PAWL_OK;
        if (rc == PAWL_OK)
            rc = (int)collect(lane, out, max);
    } while (rc == 0 && !pawl_fd_arm(lane));
    return pawl_call_leave(lane, rc);
}
