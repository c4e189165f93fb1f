/* SPDX-License-Identifier: MIT */
/* Rings for a lane: first ones, larger ones, and new ones after the broker died.
 *
 * Bind, under the session's lock:
 *   - attached? else one attempt (session.c)
 *   - read what the old completion ring still holds: what was published is true
 *   - the session is new to this broker: what was submitted and may be in a log is answered
 *     E_OUTCOME_UNKNOWN, questions are asked again, what waits was leased to a session that is
 * gone; the lane goes on as a new one from seq 1
 *   - LANE: number, the highest grants read, which seqs are open; three descriptors come back
 *   - check size, seals and header of what came, map it
 *   - copy every open command into the new ring under its old seq, marked RESUBMIT if a broker can
 *     have seen it; publish
 *   - the old completion ring stays mapped while deliveries in it are not released
 * If any step fails the lane stays detached with its old rings, and the next attempt starts over.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/lane.h"
#include "client/session.h"

#define PAUSE_NS_MIN PAWL_NS_MS
#define PAUSE_NS_MAX (50 * PAWL_NS_MS)
#define SLICE_LOCK_NS (10 * PAWL_NS_MS)

/* --- mappings -------------------------------------------------------------------------------- */

static void mapping_free(struct pawl_mapping *m)
{
    pawl_region_unmap(&m->sub);
    pawl_region_unmap(&m->comp);
    free(m);
}

void pawl_mapping_sweep(struct pawl *lane)
{
    struct pawl_mapping **at = &lane->retired;
    while (*at) {
        struct pawl_mapping *m = *at;
        if (m->pins != 0) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        lane->retired_count--;
        mapping_free(m);
    }
}

static bool header_fits(const struct pawl_comp_shm *h, const struct pawl_session *s,
                        const struct pawl_attach_lane_ok *ok)
{
    return pawl_load_acq_u64(&h->magic) == PAWL_ABI_MAGIC && h->version == PAWL_ABI_VERSION &&
           h->fingerprint == pawl_layout_fingerprint() && h->lane == ok->lane &&
           h->session == s->id && h->sub_bytes == ok->sub_bytes && h->comp_bytes == ok->comp_bytes;
}

static int map_rings(struct pawl *lane, const struct pawl_attach_lane_ok *ok, const int fds[3],
                     struct pawl_mapping **out)
{
    struct pawl_mapping *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return PAWL_E_RESOURCE;
    int rc = pawl_region_verify(fds[0], PAWL_REGION_SUB, ok->sub_bytes);
    if (rc == 0)
        rc = pawl_region_verify(fds[1], PAWL_REGION_COMP, ok->comp_bytes);
    if (rc != 0) {
        (void)snprintf(lane->text, sizeof lane->text,
                       "the broker's memory for a lane has not the size or the seals it must have");
        free(m);
        return PAWL_E_PROTOCOL;
    }
    rc = pawl_region_map(fds[0], ok->sub_bytes, PAWL_REGION_WRITE | PAWL_REGION_POPULATE, &m->sub);
    if (rc == 0)
        rc = pawl_region_map(fds[1], ok->comp_bytes, PAWL_REGION_POPULATE, &m->comp);
    if (rc != 0) {
        (void)snprintf(lane->text, sizeof lane->text, "cannot map the lane: %s", strerror(-rc));
        mapping_free(m);
        return PAWL_E_RESOURCE;
    }
    if (!header_fits(m->comp.header, lane->session, ok)) {
        (void)snprintf(lane->text, sizeof lane->text,
                       "the header of the lane's memory is not that of this lane");
        mapping_free(m);
        return PAWL_E_PROTOCOL;
    }
    *out = m;
    return PAWL_OK;
}

/* --- open commands --------------------------------------------------------------------------- */

/* May this open command be submitted to a broker that does not know us, although another one may
 * have applied it? Questions may, and so may requests for messages: what an older log granted is
 * over with it. By number only if the numbers of the queues are those of the same log. */
static bool may_ask_again(const struct pawl *lane, const struct pawl_op *op)
{
    if (op->kind == PAWL_OP_ORPHAN)
        return false;
    switch (op->type) {
    case PAWL_CMD_QUEUE_FIND:
    case PAWL_CMD_QUEUE_STAT:
    case PAWL_CMD_QUEUE_LIST:
    case PAWL_CMD_METRICS:
        return true;
    case PAWL_CMD_RECEIVE:
    case PAWL_CMD_SUBSCRIBE:
    case PAWL_CMD_SCAN:
    case PAWL_CMD_PEEK:
    case PAWL_CMD_QUERY:
    case PAWL_CMD_WAIT:
    case PAWL_CMD_STATE_SCAN:
        return lane->session->same_log;
    default:
        return false;
    }
}

/* This broker does not know our session. */
static void begin_anew(struct pawl *lane)
{
    const struct pawl_session *s = lane->session;
    /* A lane that missed an incarnation knows of the last one only. */
    if (lane->last_ticket && lane->last_ticket != lane->last_given) {
        pawl_op_id_of(lane, lane->last_ticket, &lane->last_id);
        lane->last_given = lane->last_ticket;
    }
    bool nothing_done = s->unrecorded && lane->incarnation + 1 == s->incarnation;
    for (uint64_t t = lane->oldest; t != lane->next && t < lane->published; t++) {
        struct pawl_op *op = &lane->ops[t & lane->op_mask];
        if (op->state == PAWL_OP_KEEP || op->state == PAWL_OP_KEPT)
            op->state = PAWL_OP_FREE; /* who kept it does not know us */
        if (op->state != PAWL_OP_OPEN || may_ask_again(lane, op) ||
            (nothing_done && op->type != PAWL_CMD_STOP))
            continue;
        (void)pawl_op_answer(lane, t, PAWL_E_OUTCOME_UNKNOWN, 0, 0, 0);
    }
    pawl_entries_drop(lane);
    if (!s->same_log)
        pawl_queue_doubt(lane);
    lane->number = PAWL_LANE_NEW;
    lane->grant_durable = lane->grant_relaxed = 0;
    pawl_op_oldest(lane);
    lane->incarnation = s->incarnation;
}

/* Requests that nobody waits for any more are not repeated: a message granted to one would lie
 * about until its lease ends. (What was granted to it before comes again by its grant.) Effects are
 * repeated: their outcome is to be known, although not by us. */
static bool is_idle_request(const struct pawl_op *op)
{
    return op->kind == PAWL_OP_ORPHAN &&
           (op->type == PAWL_CMD_RECEIVE || op->type == PAWL_CMD_SUBSCRIBE ||
            op->type == PAWL_CMD_STOP || op->type == PAWL_CMD_QUEUE_FIND ||
            op->type == PAWL_CMD_WAIT);
}

/* What a command says of time is put right for the new broker. */
static void adjust_times(struct pawl *lane, struct pawl_cmd *head, int64_t shift)
{
    if (head->deadline)
        head->deadline += (uint64_t)(shift - lane->clock_shift);
    if (head->type == PAWL_CMD_RECEIVE) {
        struct pawl_cmd_receive *r = (void *)head;
        uint64_t now = pawl_clock_boot();
        if (r->wait_ns != UINT64_MAX && r->wait_ns != 0)
            r->wait_ns = lane->receive_until > now ? lane->receive_until - now : 0;
    }
    if (head->type == PAWL_CMD_WAIT && head->deadline) {
        struct pawl_cmd_wait *w = (void *)head;
        uint64_t now = pawl_clock_boot();
        uint64_t end =
            head->deadline - (uint64_t)shift - lane->timeout_ns; /* as lookup.c made it */
        if (w->wait_ns != 0)
            w->wait_ns = end > now ? pawl_min_u64(w->wait_ns, end - now) : 0;
    }
}

/* Copies the open commands from the old ring into the new one. */
static bool copy_open(struct pawl *lane, const uint8_t *from, uint64_t from_size,
                      struct pawl_ring_producer *to, int64_t shift)
{
    for (uint64_t t = lane->oldest; t != lane->next; t++) {
        struct pawl_op *op = &lane->ops[t & lane->op_mask];
        if (op->state == PAWL_OP_OPEN && is_idle_request(op))
            (void)pawl_op_answer(lane, t, PAWL_E_BROKER_DOWN, 0, 0, 0);
        if (op->state != PAWL_OP_OPEN) {
            op->position = to->tail;
            continue;
        }
        uint64_t position = to->tail;
        struct pawl_cmd *head = pawl_ring_claim(to, op->bytes);
        if (!head)
            return false;
        memcpy(head, from + (op->position & (from_size - 1)), op->bytes);
        head->bytes = op->bytes; /* the old ring could be written by the broker, too */
        head->type = op->type;
#ifdef PAWL_BUG_RESUBMIT_NEW_SEQ
        head->seq = lane->next - lane->base;
#else
        head->seq = t - lane->base;
#endif
        head->flags = (uint16_t)((head->flags & PAWL_CMD_IDENTIFIED) |
                                 (t < lane->published ? PAWL_CMD_RESUBMIT : 0));
        head->open = (uint32_t)(t - lane->oldest);
        adjust_times(lane, head, shift);
        op->position = position;
    }
    return true;
}

/* The new rings become the lane's. */
static void take_over(struct pawl *lane, struct pawl_mapping *m, struct pawl_ring_producer sub,
                      int bell)
{
    struct pawl_session *s = lane->session;
    struct pawl_mapping *old = lane->mapping;
    if (old) {
        pawl_region_unmap(&old->sub);
        old->next = lane->retired;
        lane->retired = old;
        lane->retired_count++;
    }
    if (lane->bell >= 0)
        (void)close(lane->bell);
    lane->bell = bell;
    lane->mapping = m;
    lane->sub_shm = m->sub.header;
    lane->comp_shm = m->comp.header;
    lane->sub = sub;
    lane->sub_head = 0;
    lane->comp = (struct pawl_ring_consumer){ .data = m->comp.data,
                                              .size = m->comp.data_bytes,
                                              .tail_shm = &lane->comp_shm->tail,
                                              .head_shm = &lane->sub_shm->comp_head };
    lane->entry_release = lane->entry_tail;
    lane->released = 0;
    lane->taken = 0;
    lane->events = 0;
    lane->armed_number = 0;
    lane->rung = 0;
    lane->binding++;
    lane->attachment = s->attachment;
    lane->resumes = s->resumes;
    lane->clock_shift = s->clock_shift;
    lane->attached = true;
    lane->slow = false;
    lane->down_reason = 0;
    pawl_mapping_sweep(lane);
    pawl_lane_unwatch(lane);
    pawl_lane_publish(lane);
    /* Open commands were published by an earlier binding, or are now. */
    lane->published = lane->next;
}

static int bind_locked(struct pawl *lane, uint32_t sub_bytes, uint32_t comp_bytes, uint64_t until)
{
    struct pawl_session *s = lane->session;
    int rc = pawl_session_attach(s, until);
    if (rc != PAWL_OK) {
        if (rc == PAWL_E_EPOCH)
            lane->fatal = rc;
        (void)snprintf(lane->text, sizeof lane->text, "%s", s->text);
        return rc;
    }
    rc = pawl_drain(lane);
    if (rc != PAWL_OK)
        return rc;
    if (lane->incarnation != s->incarnation)
        begin_anew(lane);
    /* A number that another lane of ours had goes on above it: an id is for one operation. */
    if (lane->number == PAWL_LANE_NEW)
        lane->base = lane->oldest - 1 - s->seq_floor;
    struct pawl_attach_lane ask = { .type = PAWL_ATTACH_LANE,
                                    .lane = lane->number,
                                    .sub_bytes = sub_bytes,
                                    .comp_bytes = comp_bytes,
                                    .window = lane->window,
                                    .grant_durable = lane->grant_durable,
                                    .grant_relaxed = lane->grant_relaxed,
                                    .open_seq = lane->oldest - lane->base,
                                    .next_seq = lane->next - lane->base };
    struct pawl_attach_lane_ok ok;
    int fds[3] = { -1, -1, -1 };
    struct pawl_mapping *m = NULL;
    rc = pawl_session_exchange(s, &ask, sizeof ask, &ok, sizeof ok, fds, 3, until);
    if (rc != PAWL_OK) {
        (void)snprintf(lane->text, sizeof lane->text, "%s", s->text);
        return rc;
    }
    ok.text[sizeof ok.text - 1] = '\0';
    if (ok.type != PAWL_ATTACH_LANE_OK || (ok.result == PAWL_OK && fds[2] < 0) || ok.result > 0) {
        (void)snprintf(lane->text, sizeof lane->text, "the broker's answer to LANE is none");
        rc = PAWL_E_PROTOCOL;
        goto close_fds;
    }
    if (ok.result != PAWL_OK) {
        (void)snprintf(lane->text, sizeof lane->text, "%s", ok.text);
        rc = ok.result;
        goto close_fds;
    }
    if (ok.sub_bytes != sub_bytes || ok.comp_bytes != comp_bytes ||
        (lane->number != PAWL_LANE_NEW && ok.lane != lane->number)) {
        (void)snprintf(lane->text, sizeof lane->text,
                       "the broker gave another lane than asked for");
        rc = PAWL_E_PROTOCOL;
        goto close_fds;
    }
    rc = map_rings(lane, &ok, fds, &m);
    if (rc != PAWL_OK)
        goto close_fds;
    struct pawl_sub_shm *sub_shm = m->sub.header;
    const struct pawl_comp_shm *comp_shm = m->comp.header;
    struct pawl_ring_producer sub = { .data = m->sub.data,
                                      .size = m->sub.data_bytes,
                                      .tail_shm = &sub_shm->tail,
                                      .head_shm = &comp_shm->sub_head };
    if (lane->mapping && !copy_open(lane, lane->mapping->sub.data, lane->mapping->sub.data_bytes,
                                    &sub, s->clock_shift)) {
        mapping_free(m);
        rc = PAWL_E_RESOURCE;
        goto close_fds;
    }
    lane->number = ok.lane;
    lane->session_id = s->id;
    lane->sub_bytes = sub_bytes;
    lane->comp_bytes = comp_bytes;
    take_over(lane, m, sub, fds[2]);
    fds[2] = -1;
    rc = PAWL_OK;

close_fds:
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    if (rc == PAWL_E_PROTOCOL)
        pawl_session_drop(s);
    return rc;
}

int pawl_lane_bind(struct pawl *lane, uint32_t sub_bytes, uint32_t comp_bytes, uint64_t until)
{
    if (!pawl_session_lock(lane->session, until)) {
        (void)snprintf(lane->text, sizeof lane->text, "another lane is attaching");
        return PAWL_E_BROKER_DOWN;
    }
    int rc = bind_locked(lane, sub_bytes, comp_bytes, until);
    pawl_session_unlock(lane->session);
    if (rc == PAWL_OK && lane->events_fd >= 0)
        pawl_fd_rewatch(lane);
    return rc;
}

/* --- detach and recover ---------------------------------------------------------------------- */

void pawl_lane_detach(struct pawl *lane)
{
    lane->attached = false;
    pawl_lane_unwatch(lane);
}

bool pawl_lane_alive(struct pawl *lane)
{
    if (!pawl_session_lock(lane->session, pawl_clock_boot() + SLICE_LOCK_NS))
        return true; /* somebody attaches; the next look will tell */
    bool alive = lane->attachment == lane->session->attachment && pawl_session_alive(lane->session);
    pawl_session_unlock(lane->session);
    if (!alive) {
        (void)pawl_drain(lane);
        if (lane->attached)
            pawl_lane_detach(lane);
    }
    return alive;
}

/* What a call answers that found no broker in its time. The code of the last attempt would say
 * that nothing was done, which is not known of a submitted call. */
static int give_up(struct pawl *lane, int last)
{
    if (last == PAWL_E_EPOCH || lane->fatal)
        return lane->fatal ? lane->fatal : last;
    if (lane->down_reason == PAWL_E_WAL_FAILED)
        return PAWL_E_WAL_FAILED;
    return PAWL_E_BROKER_DOWN;
}

int pawl_lane_recover(struct pawl *lane, uint64_t until)
{
    uint64_t pause = PAUSE_NS_MIN;
    /* A receive may wait longer than that for a message, but not for a broker. */
    until = pawl_min_u64(until, pawl_add_sat(pawl_now(lane), lane->timeout_ns));
    for (;;) {
        int rc = pawl_lane_bind(lane, lane->sub_bytes, lane->comp_bytes, until);
        if (rc == PAWL_OK) {
            lane->reattached++;
            lane->text[0] = '\0';
            return PAWL_OK;
        }
        uint64_t now = pawl_now(lane);
        if (lane->fatal || rc == PAWL_E_ABI || rc == PAWL_E_PERM || now >= until)
            return give_up(lane, rc);
        uint64_t ns = pawl_min_u64(pause, until - now);
        (void)nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL);
        pause = pawl_min_u64(pause * 2, PAUSE_NS_MAX);
    }
}

int pawl_lane_enlarge(struct pawl *lane, uint64_t sub_bytes, uint64_t comp_bytes, uint64_t until)
{
    uint32_t sub = lane->sub_bytes, comp = lane->comp_bytes;
    while (sub < sub_bytes && sub < PAWL_RING_BYTES_MAX)
        sub *= 2;
    while (comp < comp_bytes && comp < PAWL_RING_BYTES_MAX)
        comp *= 2;
    pawl_lane_publish(lane);
    int rc = pawl_lane_bind(lane, sub, comp, until);
    if (rc == PAWL_E_BROKER_DOWN) {
        /* Gone meanwhile: come back at the size that is wanted. */
        pawl_lane_detach(lane);
        lane->sub_bytes = sub;
        lane->comp_bytes = comp;
        rc = pawl_lane_recover(lane, until);
    }
    return rc;
}
