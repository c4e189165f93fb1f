/* SPDX-License-Identifier: MIT */
/* The completion ring. Every word of it is the broker's: a record is copied before it is believed,
 * and what makes no sense ends the lane with E_PROTOCOL, never the program.
 *
 * Release. The ring may be reused below the oldest delivery that is not yet released by the program
 * (deliveries are handed out where they lie), and below what is read if there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/kill.h"
#include "client/lane.h"
#include "client/session.h"

#define ENTRIES_FIRST 256u
#define ENTRIES_MAX (1u << 21)

int pawl_lane_breach(struct pawl *lane, const char *what)
{
    lane->fatal = PAWL_E_PROTOCOL;
    pawl_lane_detach(lane);
    pawl_op_forsake(lane);
    (void)snprintf(lane->text, sizeof lane->text, "the broker broke the protocol: %s", what);
    return PAWL_E_PROTOCOL;
}

/* --- deliveries ------------------------------------------------------------------------------ */

static bool grow_entries(struct pawl *lane)
{
    uint64_t bytes = lane->entries ? (lane->entry_mask + 1) * 2 : ENTRIES_FIRST;
    if (bytes > ENTRIES_MAX)
        return false;
    struct pawl_entry *e = calloc(bytes, sizeof *e);
    if (!e)
        return false;
    for (uint64_t i = lane->entry_head; i != lane->entry_tail; i++)
        e[i & (bytes - 1)] = *pawl_entry_at(lane, i);
    free(lane->entries);
    lane->entries = e;
    lane->entry_mask = bytes - 1;
    return true;
}

void pawl_entry_free(struct pawl *lane, struct pawl_entry *entry)
{
    if (entry->state == PAWL_ENTRY_HANDED)
        lane->handed--;
    entry->state = PAWL_ENTRY_FREE;
    entry->mapping->pins--;
    while (lane->entry_head != lane->entry_tail &&
           pawl_entry_at(lane, lane->entry_head)->state == PAWL_ENTRY_FREE)
        lane->entry_head++;
    if (lane->entry_release - lane->entry_head > lane->entry_tail - lane->entry_head)
        lane->entry_release = lane->entry_head;
    while (lane->entry_release != lane->entry_tail &&
           pawl_entry_at(lane, lane->entry_release)->state == PAWL_ENTRY_FREE)
        lane->entry_release++;
}

void pawl_entries_reclaim(struct pawl *lane)
{
    for (uint64_t i = lane->entry_head; lane->handed && i != lane->entry_tail; i++) {
        struct pawl_entry *e = pawl_entry_at(lane, i);
        if (e->state == PAWL_ENTRY_HANDED)
            pawl_entry_free(lane, e);
    }
    if (PAWL_UNLIKELY(lane->retired != NULL))
        pawl_mapping_sweep(lane);
}

void pawl_entries_drop(struct pawl *lane)
{
    for (uint64_t i = lane->entry_head; i != lane->entry_tail; i++) {
        struct pawl_entry *e = pawl_entry_at(lane, i);
        if (e->state != PAWL_ENTRY_WAITING)
            continue;
        for (int l = 0; l < 2; l++)
            e->queue->lines[l] = (struct pawl_line){ PAWL_NO_ENTRY, PAWL_NO_ENTRY, 0 };
        pawl_entry_free(lane, e);
    }
}

static int take_delivery(struct pawl *lane, const uint8_t *record, uint32_t bytes)
{
    struct pawl_comp_delivery d;
    if (bytes < sizeof d)
        return pawl_lane_breach(lane, "a delivery is shorter than its head");
    memcpy(&d, record, sizeof d);
    if (lane->entry_tail - lane->entry_head > lane->entry_mask || !lane->entries) {
        if (!grow_entries(lane)) {
            lane->comp.next -= bytes; /* stays in the ring until there is memory */
            (void)snprintf(lane->text, sizeof lane->text, "no memory for another delivery");
            return PAWL_E_RESOURCE;
        }
    }
    struct pawl_queue_ref *q = lane->last_delivery;
    if (!q || q->id != d.queue) {
        q = d.queue == PAWL_NO_QUEUE ? NULL : pawl_queue_by_id(lane, d.queue);
        if (!q && d.queue == PAWL_NO_QUEUE)
            return pawl_lane_breach(lane, "a delivery names no queue");
        if (!q) {
            lane->comp.next -= bytes;
            (void)snprintf(lane->text, sizeof lane->text, "no memory for another queue");
            return PAWL_E_RESOURCE;
        }
        lane->last_delivery = q;
    }
    uint64_t index = lane->entry_tail++;
    struct pawl_entry *e = pawl_entry_at(lane, index);
    *e = (struct pawl_entry){ .record = record,
                              .mapping = lane->mapping,
                              .queue = q,
                              .position = lane->comp.next - bytes,
                              .next = PAWL_NO_ENTRY,
                              .bytes = bytes,
                              .state = PAWL_ENTRY_WAITING };
    lane->mapping->pins++;
    struct pawl_line *line = &q->lines[d.deadline == 0];
    if (line->first == PAWL_NO_ENTRY)
        line->first = index;
    else
        pawl_entry_at(lane, line->last)->next = index;
    line->last = index;
    line->waiting++;
    lane->deliveries_read++;
    lane->news_queues += !q->news;
    q->news = true;
    lane->events++;
    uint64_t *highest = d.mode == PAWL_DURABLE ? &lane->grant_durable : &lane->grant_relaxed;
    if (d.grant > *highest)
        *highest = d.grant;
    return PAWL_OK;
}

/* --- answers --------------------------------------------------------------------------------- */

static int take_answer(struct pawl *lane, const uint8_t *record, uint32_t bytes)
{
    struct pawl_comp_answer a;
    if (bytes < sizeof a)
        return pawl_lane_breach(lane, "an answer is too short");
    memcpy(&a, record, sizeof a);
    uint32_t count = a.count_minus_1 + 1u;
    uint64_t step = (a.flags & PAWL_ANSWER_VALUES_RUN) ? 1 : 0;
    uint32_t state = a.flags >> PAWL_ANSWER_STATE_SHIFT & PAWL_ANSWER_STATE_MASK;
    uint64_t ticket = a.seq + lane->base;
    for (uint32_t i = 0; i < count; i++, a.value += step)
        if (PAWL_UNLIKELY(!pawl_op_answer(lane, ticket + i, a.result, a.value, a.lsn, state)))
            return pawl_lane_breach(lane, "an answer to what was not asked");
    lane->events += count;
    return PAWL_OK;
}

static int take_data(struct pawl *lane, const uint8_t *record, uint32_t bytes)
{
    struct pawl_comp_data d;
    if (bytes < sizeof d)
        return pawl_lane_breach(lane, "an answer with data is too short");
    memcpy(&d, record, sizeof d);
    if (d.data_bytes > bytes - sizeof d || d.data_bytes > PAWL_DATA_BYTES_MAX)
        return pawl_lane_breach(lane, "an answer's data is longer than its record");
    uint64_t ticket = d.seq + lane->base;
    const struct pawl_op *op = &lane->ops[ticket & lane->op_mask];
    bool wanted = op->ticket == ticket && op->state == PAWL_OP_OPEN && op->kind == PAWL_OP_PLAIN;
    if (wanted && d.result < 0) {
        size_t n = pawl_min_u64(d.data_bytes, sizeof lane->text - 1);
        memcpy(lane->text, record + sizeof d, n);
        lane->text[n] = '\0';
    } else if (wanted && lane->data) {
        memcpy(lane->data, record + sizeof d, d.data_bytes);
        lane->data_bytes = d.data_bytes;
    }
    if (!pawl_op_answer(lane, ticket, d.result, d.value, d.lsn, 0))
        return pawl_lane_breach(lane, "an answer to what was not asked");
    lane->events++;
    return PAWL_OK;
}

int pawl_drain(struct pawl *lane)
{
    const void *record;
    uint32_t bytes;
    int rc = PAWL_OK;
    if (!lane->comp_shm)
        return PAWL_OK;
    for (;;) {
        enum pawl_ring_result r = pawl_ring_next(&lane->comp, &record, &bytes);
        if (r == PAWL_RING_EMPTY)
            break;
        if (PAWL_UNLIKELY(r == PAWL_RING_BREACH))
            return pawl_lane_breach(lane, "a word of the completion ring is out of its range");
        PAWL_KILL_POINT("client-before-read");
        uint32_t word = pawl_load_rlx_u32((const uint32_t *)record + 1);
        switch (word & 0xffff) {
        case PAWL_COMP_ANSWER:
            rc = take_answer(lane, record, bytes);
            break;
        case PAWL_COMP_DELIVERY:
            rc = take_delivery(lane, record, bytes);
            break;
        case PAWL_COMP_DATA:
            rc = take_data(lane, record, bytes);
            break;
        default:
            return pawl_lane_breach(lane, "a completion of unknown type");
        }
        if (PAWL_UNLIKELY(rc != PAWL_OK))
            return rc;
    }
    pawl_drain_release(lane, false);
    return PAWL_OK;
}

void pawl_drain_release(struct pawl *lane, bool always)
{
    if (!lane->attached)
        return;
    uint64_t to = lane->entry_release != lane->entry_tail
                      ? pawl_entry_at(lane, lane->entry_release)->position
                      : lane->comp.next;
    uint64_t more = to - lane->released;
    if (more == 0 || (!always && more < lane->comp.size / 8))
        return;
    lane->released = to;
    pawl_ring_release_seq(&lane->comp, to);
    if (pawl_bell_pending(lane->comp_shm, PAWL_BELL_ROOM, &lane->rung))
        (void)eventfd_write(lane->bell, 1);
}
