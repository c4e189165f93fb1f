/* SPDX-License-Identifier: MIT */
/* Lanes: create, open, close. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/direct.h"
#include "client/lane.h"
#include "client/session.h"
#include "client/text.h"

#define GIVE_BACK_NS (100 * PAWL_NS_MS)

struct pawl *pawl_client_lane_create(struct pawl_session *session)
{
    const struct pawl_options *o = &session->options;
    struct pawl *lane = calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    uint64_t slots = 64;
    while (slots < o->window)
        slots *= 2;
    lane->ops = calloc(slots, sizeof *lane->ops);
    lane->answers = calloc(2 * slots, sizeof *lane->answers);
    lane->names_table = calloc(PAWL_REF_BUCKETS, sizeof *lane->names_table);
    lane->ids_table = calloc(PAWL_REF_BUCKETS, sizeof *lane->ids_table);
    lane->op_mask = slots - 1;
    lane->answer_mask = 2 * slots - 1;
    lane->process = session->process;
    lane->process_mark = session->process_mark;
    lane->session = session;
    lane->bell = lane->watch = lane->control = lane->events_fd = lane->timer_fd = -1;
    lane->next = lane->oldest = lane->published = 1;
    lane->number = PAWL_LANE_NEW;
    lane->window = o->window;
    lane->timeout_ns = o->timeout_ns;
    lane->spin_ns = o->spin_ns;
    lane->prefetch = o->prefetch;
    lane->sub_bytes = lane->comp_bytes = o->ring_bytes;
    lane->outcome = PAWL_OUTCOME_APPLIED;
    if (!lane->ops || !lane->answers || !lane->names_table || !lane->ids_table) {
        pawl_lane_destroy(lane, true);
        return NULL;
    }
    return lane;
}

void pawl_lane_destroy(struct pawl *lane, bool unmap)
{
    struct pawl_mapping *next;
    if (lane->mapping) {
        lane->mapping->next = lane->retired;
        lane->retired = lane->mapping;
    }
    for (struct pawl_mapping *m = lane->retired; m; m = next) {
        next = m->next;
        /* In a forked child these addresses are not ours: the regions were not inherited and
         * something else may lie there by now. */
        if (unmap) {
            pawl_region_unmap(&m->sub);
            pawl_region_unmap(&m->comp);
        }
        free(m);
    }
    pawl_fd_close(lane);
    pawl_lane_unwatch(lane);
    if (lane->bell >= 0)
        (void)close(lane->bell);
    pawl_held_free(lane, !unmap);
    pawl_queues_free(lane);
    pawl_txn_forget(lane->txn);
    free(lane->ops);
    free(lane->answers);
    free(lane->entries);
    free(lane->batch);
    free(lane->data);
    free(lane);
}

/* --- open ------------------------------------------------------------------------------------ */

static int check_options(struct pawl_options *o, char *text, size_t bytes)
{
    const char *wrong = NULL;
    if (!o->timeout_ns)
        o->timeout_ns = 10 * PAWL_NS_S;
    if (!o->window)
        o->window = PAWL_WINDOW_DEFAULT;
    if (!o->ring_bytes)
        o->ring_bytes = PAWL_RING_BYTES_DEFAULT;
    if (o->window < PAWL_WINDOW_MIN || o->window > PAWL_WINDOW_MAX)
        wrong = "window must be 64..65536";
    else if (!pawl_is_pow2(o->ring_bytes) || o->ring_bytes < PAWL_RING_BYTES_MIN ||
             o->ring_bytes > PAWL_RING_BYTES_MAX)
        wrong = "ring_bytes must be a power of two, 65536..67108864";
    else if (o->prefetch > o->window)
        wrong = "prefetch must be at most window";
    else if (o->flags & ~PAWL_OPEN_NO_WAIT)
        wrong = "flags holds an unknown bit";
    else if (o->label && strlen(o->label) >= PAWL_ATTACH_LABEL_BYTES)
        wrong = "label must have at most 63 bytes";
    if (!wrong)
        return PAWL_OK;
    (void)snprintf(text, bytes, "%s", wrong);
    return PAWL_E_INVALID;
}

/* What pawl_open() answers for the last failed attempt: nothing was submitted, so the code of the
 * attempt itself is right. */
static int attach_first(struct pawl *lane, bool wait)
{
    uint64_t until = pawl_add_sat(pawl_clock_boot(), lane->timeout_ns), pause = PAWL_NS_MS;
    for (;;) {
        int rc = pawl_lane_bind(lane, lane->sub_bytes, lane->comp_bytes, until);
        if (rc != PAWL_E_BROKER_DOWN || !wait || pawl_clock_boot() + pause >= until)
            return rc;
        (void)usleep((useconds_t)(pause / 1000));
        pause = pawl_min_u64(pause * 2, 50 * PAWL_NS_MS);
    }
}

int pawl_open(const struct pawl_options *options, struct pawl **out)
{
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl_session *session;
    char text[PAWL_ATTACH_TEXT_BYTES * 2] = "";
    pawl_thread_text("");
    if (!out) {
        pawl_thread_text("out is NULL: it gets the lane");
        return PAWL_E_INVALID;
    }
    *out = NULL;
    if (!pawl_options_copy(&o, options, sizeof o)) {
        pawl_thread_text("size of the options is none");
        return PAWL_E_INVALID;
    }
    int rc = check_options(&o, text, sizeof text);
    if (rc == PAWL_OK)
        rc = pawl_session_create(&o, &session, text);
    if (rc != PAWL_OK) {
        pawl_thread_text(text);
        return rc;
    }
    session->references = 1;
    struct pawl *lane = pawl_client_lane_create(session);
    rc = lane ? attach_first(lane, !(o.flags & PAWL_OPEN_NO_WAIT)) : PAWL_E_RESOURCE;
    if (rc != PAWL_OK) {
        pawl_thread_text(lane ? lane->text : "no memory for a lane");
        if (lane)
            pawl_lane_destroy(lane, true);
        pawl_session_destroy(session, true);
        return rc;
    }
    lane->text[0] = '\0';
    *out = lane;
    return PAWL_OK;
}

/* A lane is entered here by another thread than its own, perhaps during a call: so only what never
 * changes is read, and the rest is the session's. */
int pawl_lane_open(struct pawl *lane, struct pawl **out)
{
    pawl_thread_text("");
    if (out)
        *out = NULL;
    if (!lane || !out) {
        pawl_thread_text(lane ? "out is NULL: it gets the new lane"
                              : "the lane is NULL: the first one comes from pawl_open()");
        return PAWL_E_INVALID;
    }
    if (pawl_load_rlx_u64(lane->process) != lane->process_mark) {
        pawl_thread_refused(lane, PAWL_FORKED_TEXT);
        return PAWL_E_FORKED;
    }
    struct pawl_session *session = lane->session;
    (void)pawl_add_seq_u32(&session->references, 1);
    struct pawl *other = pawl_client_lane_create(session);
    int rc = other ? attach_first(other, true) : PAWL_E_RESOURCE;
    if (rc != PAWL_OK) {
        pawl_thread_text(other ? other->text : "no memory for a lane");
        if (other)
            pawl_lane_destroy(other, true);
        (void)pawl_add_seq_u32(&session->references, UINT32_MAX);
        return rc;
    }
    other->text[0] = '\0';
    *out = other;
    return PAWL_OK;
}

/* --- close ----------------------------------------------------------------------------------- */

static uint32_t anything_open(struct pawl *lane, uint64_t unused)
{
    (void)unused;
    return lane->oldest != lane->next;
}

/* The end of a lane whose session goes on. What it has of messages goes back; for that there is a
 * moment, and what is not back by then comes back when its lease ends. */
static void close_one(struct pawl *lane, struct pawl_session *session)
{
    uint64_t now = pawl_now(lane);
    if (lane->attached && !lane->fatal && pawl_receive_abandon(lane)) {
        pawl_lane_publish(lane);
        (void)pawl_lane_wait(lane, anything_open, 0, now + GIVE_BACK_NS);
    }
    if (!pawl_session_lock(session, pawl_add_sat(now, lane->timeout_ns)))
        return;
    session->seq_floor = pawl_max_u64(session->seq_floor, lane->next - lane->base);
    if (lane->attached && lane->attachment == session->attachment && session->socket >= 0) {
        struct pawl_attach_watch c = { .type = PAWL_ATTACH_CLOSE, .lane = lane->number };
        if (send(session->socket, &c, sizeof c, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof c)
            pawl_session_drop(session); /* it does not read: the end of the socket says the same */
    }
    pawl_session_unlock(session);
}

void pawl_close(struct pawl *lane)
{
    if (!lane)
        return;
    struct pawl_session *session = lane->session;
    bool forked = pawl_load_rlx_u64(lane->process) != lane->process_mark;
    /* A call runs in it: to free it would be worse than to keep it. */
    if (!forked && pawl_swap_u32(&lane->busy, 1) != 0)
        return;
    pawl_held_free(lane, forked); /* its thread has a lane of the session, too */
    pawl_uses_end(lane, forked);
    /* The last lane ends the session instead. Two threads that close at once may both close their
     * own first: no harm. Our reference keeps the session until the lane is gone. */
    if (!forked && pawl_load_seq_u32(&session->references) > 1)
        close_one(lane, session);
    if (!forked && pawl_op_left(lane))
        (void)pawl_swap_u32(&session->left, 1);
    pawl_lane_destroy(lane, !forked);
    if (pawl_add_seq_u32(&session->references, UINT32_MAX) == 0)
        pawl_session_destroy(session, !forked);
}

/* --- inspect --------------------------------------------------------------------------------- */

int pawl_info(struct pawl *lane, struct pawl_broker_info *out)
{
    struct pawl_broker_info i = { .size = sizeof i };
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || out->size < sizeof out->size || out->size > 65536)
        return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_INVALID, "size is not set"));
    if (lane->comp_shm)
        i.durable_lsn = pawl_load_acq_u64(&lane->comp_shm->durable_lsn);
    i.reattached = lane->reattached;
    struct pawl_session *s = lane->session;
    if (!pawl_session_lock(s, pawl_add_sat(pawl_now(lane), lane->timeout_ns)))
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_BROKER_DOWN, "another lane is attaching"));
    i.session = s->id;
    i.broker_epoch = s->broker_epoch;
    i.pid = s->broker_pid;
    (void)snprintf(i.version, sizeof i.version, "%s", s->broker_version);
    (void)snprintf(i.io, sizeof i.io, "%s", s->io);
    pawl_session_unlock(s);
    size_t size = out->size;
    memset(out, 0, size);
    memcpy(out, &i, size < sizeof i ? size : sizeof i);
    out->size = size;
    return pawl_call_leave(lane, PAWL_OK);
}
