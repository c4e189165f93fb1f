/* SPDX-License-Identifier: MIT */
/* Send: the record is built where the broker reads it, so a body is copied once on our side.
 *
 * Refusals are answered at once. Two are looked at again here: E_QUEUE_GONE (the number was
 * remembered from before a drop: nothing was done, the name is asked again, once) and, for a sender
 * who gave time, E_FULL. Each try is a new command; a refused one leaves no trace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "client/direct.h"
#include "client/headers.h"
#include "client/lane.h"

#define ROOM_NS_MIN PAWL_NS_MS
#define ROOM_NS_MAX (50 * PAWL_NS_MS)

static const struct pawl_send_options plain_options = PAWL_SEND_OPTIONS_INIT;

/* Also one without its length: taken for no key at all, every repeat would be another message. */
static bool key_wrong(const void *key, uint32_t bytes)
{
#ifdef PAWL_BUG_KEY_WITHOUT_LENGTH
    return bytes > PAWL_KEY_BYTES_MAX || (!key && bytes);
#endif
    return bytes > PAWL_KEY_BYTES_MAX || !key != !bytes;
}

/* Checks the arguments of one message and sizes its record. */
int pawl_send_plan(struct pawl *lane, struct pawl_send_plan *p, const void *body, size_t bytes,
                   const struct pawl_send_options *options)
{
    p->o = plain_options;
    p->times = false;
    p->headers_bytes = 0;
    if (PAWL_UNLIKELY(bytes > PAWL_MESSAGE_BYTES_MAX))
        return pawl_call_refuse(lane, PAWL_E_TOO_BIG, "a message has at most %u bytes",
                                PAWL_MESSAGE_BYTES_MAX);
    if (PAWL_UNLIKELY(!body && bytes))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "body is NULL");
    p->body_bytes = (uint32_t)bytes;
    p->bytes = (uint32_t)sizeof(struct pawl_cmd_send) + p->body_bytes;
    if (!options)
        return PAWL_OK;
    if (!pawl_options_copy(&p->o, options, sizeof p->o))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "size of the options is none");
    if (p->o.priority >= PAWL_PRIORITIES)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "priority is 0..7");
    if (key_wrong(p->o.key, p->o.key_bytes))
        return pawl_call_refuse(lane, PAWL_E_INVALID,
                                "a key has 1..255 bytes: set both key and key_bytes, or neither");
    if (key_wrong(p->o.ordering_key, p->o.ordering_key_bytes))
        return pawl_call_refuse(lane, PAWL_E_INVALID,
                                "an ordering key has 1..255 bytes: set both ordering_key and "
                                "ordering_key_bytes, or neither");
    if (p->o.delay_ns > PAWL_DELAY_NS_MAX)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "delay_ns is at most 10 years");
    if (p->o.delay_ns && p->o.at_wall_ns)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "delay_ns or at_wall_ns, not both");
    int headers = pawl_headers_bytes(p->o.headers, p->o.header_count);
    if (headers < 0)
        return pawl_call_refuse(lane, PAWL_E_INVALID,
                                "a header has a name of 1..254 bytes and a value; all together "
                                "have at most %u",
                                PAWL_HEADERS_BYTES_MAX);
    p->headers_bytes = (uint32_t)headers;
    p->times = p->o.delay_ns || p->o.at_wall_ns || p->o.ttl_ns;
    p->bytes += p->headers_bytes + p->o.key_bytes + p->o.ordering_key_bytes +
                (p->times ? (uint32_t)sizeof(struct pawl_cmd_send_times) : 0);
    return PAWL_OK;
}

void pawl_send_fill(struct pawl_cmd_send *c, const struct pawl_send_plan *p, uint64_t queue,
                    const void *body)
{
    uint8_t *at = (uint8_t *)(c + 1);
    c->queue = queue;
    c->body_bytes = p->body_bytes;
    c->headers_bytes = (uint16_t)p->headers_bytes;
    c->key_bytes = (uint8_t)p->o.key_bytes;
    c->ordering_key_bytes = (uint8_t)p->o.ordering_key_bytes;
    c->priority = (uint8_t)p->o.priority;
    c->flags = p->times ? PAWL_SEND_TIMES : 0;
    memset(c->reserved, 0, sizeof c->reserved);
    if (p->times) {
        struct pawl_cmd_send_times t = { .delay_ns = p->o.delay_ns,
                                         .at_wall_ns = p->o.at_wall_ns,
                                         .ttl_ns = p->o.ttl_ns };
        memcpy(at, &t, sizeof t);
        at += sizeof t;
    }
    if (p->o.key_bytes)
        memcpy(at, p->o.key, p->o.key_bytes);
    at += p->o.key_bytes;
    if (p->o.ordering_key_bytes)
        memcpy(at, p->o.ordering_key, p->o.ordering_key_bytes);
    at += p->o.ordering_key_bytes;
    pawl_headers_encode(p->o.headers, p->o.header_count, at);
    at += p->headers_bytes;
    if (p->body_bytes)
        memcpy(at, body, p->body_bytes);
    at += p->body_bytes;
    memset(at, 0, (uint8_t *)c + pawl_align_up(p->bytes, PAWL_RECORD_ALIGN) - at);
}

static int submit(struct pawl *lane, const struct pawl_send_plan *p, uint64_t queue,
                  const void *body, enum pawl_op_kind kind, uint64_t until)
{
    int rc;
    struct pawl_cmd_send *c = pawl_op_claim(lane, PAWL_CMD_SEND, p->bytes, kind, until, &rc);
    if (!c)
        return rc;
    pawl_send_fill(c, p, queue, body);
    return PAWL_OK;
}

/* Sleeps before another try; false if there is no time for one. */
static bool wait_for_room(struct pawl *lane, uint64_t *pause, uint64_t until)
{
    uint64_t now = pawl_now(lane);
    if (now >= until)
        return false;
    uint64_t ns = pawl_min_u64(*pause, until - now);
    (void)nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL);
    *pause = pawl_min_u64(*pause * 2, ROOM_NS_MAX);
    return true;
}

/* --- one ------------------------------------------------------------------------------------- */

static int direct_once(struct pawl *lane, struct pawl_queue_ref *q, const struct pawl_send_plan *p,
                       const void *body)
{
    struct pawl_sent sent = { 0 };
    int rc = pawl_direct_call_send(lane, q, p, body, &sent);
    lane->one = (struct pawl_row){ .value = sent.id, .state = sent.state };
    return rc;
}

static int send_once(struct pawl *lane, const char *queue, const struct pawl_send_plan *p,
                     const void *body)
{
    struct pawl_queue_ref *q;
    uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
    int rc = pawl_queue_find_to_use(lane, queue, until, &q);
    if (rc != PAWL_OK)
        return rc;
    if (q->mode == PAWL_DIRECT)
        return direct_once(lane, q, p, body);
    pawl_op_single(lane);
    rc = submit(lane, p, q->id, body, PAWL_OP_PLAIN, until);
    if (rc != PAWL_OK)
        return rc;
    return pawl_op_result(lane, until, queue);
}

static int send_until(struct pawl *lane, const char *queue, const struct pawl_send_plan *p,
                      const void *body)
{
    uint64_t pause = ROOM_NS_MIN, room_until = 0;
    bool asked_again = false;
    for (;;) {
        int rc = send_once(lane, queue, p, body);
        if (rc == PAWL_E_QUEUE_GONE && !asked_again) {
            asked_again = true;
            pawl_queue_doubt_last(lane);
        } else if (rc == PAWL_E_FULL && p->o.wait_room_ns && !lane->outcome_set) {
            if (!room_until)
                room_until = pawl_add_sat(pawl_now(lane), p->o.wait_room_ns);
            if (!wait_for_room(lane, &pause, room_until))
                return rc;
        } else {
            return rc;
        }
        lane->text[0] = '\0';
        lane->outcome_set = false;
    }
}

static void sent_of(struct pawl_sent *out, const struct pawl_row *row)
{
    out->result = row->result;
    out->lsn = row->lsn;
    out->id = row->result >= 0 || row->result == PAWL_E_KEY_MISMATCH ? row->value : 0;
    out->state = row->state;
}

int pawl_send(struct pawl *lane, const char *queue, const void *body, size_t bytes,
              const struct pawl_send_options *options, struct pawl_sent *out)
{
    struct pawl_send_plan p;
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    struct pawl_queue_ref *q = lane->last_ref;
    if (q && q->use && !options && queue && q->generation == lane->names &&
        strcmp(q->name, queue) == 0) {
        rc = pawl_direct_call_send_plain(lane, q, body, bytes, out);
        if (PAWL_LIKELY(rc == PAWL_OK))
            return pawl_call_leave(lane, rc);
        if (rc != PAWL_E_QUEUE_GONE) {
            if (out)
                *out = (struct pawl_sent){ .result = rc };
            return pawl_call_leave(lane, rc);
        }
        pawl_queue_doubt_last(lane);
        lane->text[0] = '\0';
        lane->outcome_set = false;
    }
    lane->one = (struct pawl_row){ .result = PAWL_E_INVALID };
    rc = pawl_send_plan(lane, &p, body, bytes, options);
    if (rc == PAWL_OK)
        rc = send_until(lane, queue, &p, body);
    if (out) {
        lane->one.result = rc;
        sent_of(out, &lane->one);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- many ------------------------------------------------------------------------------------ */

#define NO_ANSWER INT32_MIN

/* The rows of a batch, all without an answer. */
static struct pawl_row *batch_rows(struct pawl *lane, uint32_t n)
{
    if (!lane->batch)
        lane->batch = calloc(PAWL_BATCH_MAX, sizeof *lane->batch);
    for (uint32_t i = 0; lane->batch && i < n; i++)
        lane->batch[i] = (struct pawl_row){ .result = NO_ANSWER };
    return lane->batch;
}

/* Submits items in one row and waits. rows: what became of each. submitted: how far it came. */
static int run_batch(struct pawl *lane, uint64_t queue, const struct pawl_item *items, uint32_t n,
                     struct pawl_row *rows, uint32_t *submitted, uint64_t until)
{
    struct pawl_send_plan p;
    int rc = PAWL_OK;
    uint32_t i;
    pawl_op_rows(lane, rows, n);
    for (i = 0; i < n && rc == PAWL_OK; i++) {
        rc = pawl_send_plan(lane, &p, items[i].body, items[i].bytes, items[i].options);
        if (rc == PAWL_OK)
            rc = submit(lane, &p, queue, items[i].body, PAWL_OP_PLAIN, until);
        if (rc != PAWL_OK)
            break;
    }
    *submitted = i;
    lane->outcome_set = false;
    int end = pawl_op_finish(lane, until);
    return end != PAWL_OK ? end : rc;
}

static bool is_ok(int32_t result) { return result >= 0; }

/* Returns OK or the first other outcome of a row; outcome of the call: that of this item. */
static int sum_up(struct pawl *lane, const struct pawl_sent *out, uint32_t n, const char *queue)
{
    for (uint32_t i = 0; i < n; i++)
        if (!is_ok(out[i].result)) {
            if (!lane->outcome_set)
                (void)pawl_call_answered(lane, out[i].result, out[i].id, queue);
            return out[i].result;
        }
    return PAWL_OK;
}

/* Nothing is wrong with the items, and none has options. */
static bool are_plain(const struct pawl_item *items, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (items[i].options || items[i].bytes > PAWL_MESSAGE_BYTES_MAX ||
            (!items[i].body && items[i].bytes))
            return false;
    return true;
}

int pawl_send_batch(struct pawl *lane, const char *queue, const struct pawl_item *items, uint32_t n,
                    struct pawl_sent *out)
{
    struct pawl_queue_ref *q;
    struct pawl_send_plan p;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!items || !out || n == 0 || n > PAWL_BATCH_MAX)
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_INVALID, "1..1024 items, and room for results"));
    if (lane->identified)
        return pawl_call_leave(lane, pawl_identity_refuse(lane));
    q = lane->last_ref;
    if (q && q->use && queue && q->generation == lane->names && strcmp(q->name, queue) == 0 &&
        are_plain(items, n)) {
        rc = pawl_direct_call_send_batch(lane, q, items, n, out);
        if (PAWL_LIKELY(rc != PAWL_E_QUEUE_GONE))
            return pawl_call_leave(lane, rc);
        pawl_queue_doubt_last(lane);
        if (out[0].result == PAWL_OK)
            return pawl_call_leave(lane, rc);
        lane->text[0] = '\0'; /* the name may be another queue's by now */
        lane->outcome_set = false;
    }
    struct pawl_row *rows = batch_rows(lane, n);
    if (!rows)
        return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory"));
    /* All arguments first: a mistake in one refuses the row before anything is sent. */
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct pawl_sent){ .result = PAWL_E_INVALID };
    for (uint32_t i = 0; i < n; i++) {
        rc = pawl_send_plan(lane, &p, items[i].body, items[i].bytes, items[i].options);
        if (rc != PAWL_OK)
            return pawl_call_leave(lane, out[i].result = rc);
    }
    uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
    rc = pawl_queue_find_to_use(lane, queue, until, &q);
    if (rc != PAWL_OK) {
        for (uint32_t i = 0; i < n; i++)
            out[i].result = rc;
        return pawl_call_leave(lane, rc);
    }
    if (q->mode == PAWL_DIRECT) {
        rc = pawl_direct_call_send_batch(lane, q, items, n, out);
        if (rc == PAWL_E_QUEUE_GONE)
            pawl_queue_doubt_last(lane);
        return pawl_call_leave(lane, rc);
    }
    uint32_t submitted;
    rc = run_batch(lane, q->id, items, n, rows, &submitted, until);
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].result == NO_ANSWER)
            rows[i] = (struct pawl_row){ .result = rc };
        sent_of(&out[i], &rows[i]);
        if (!is_ok(out[i].result))
            out[i].id = rows[i].value; /* for the text; cleared below */
    }
    /* The items that may have another try get it one by one. */
    for (uint32_t i = 0; rc == PAWL_OK && i < submitted; i++) {
        bool again =
            out[i].result == PAWL_E_QUEUE_GONE ||
            (out[i].result == PAWL_E_FULL && items[i].options &&
             items[i].options->size >= offsetof(struct pawl_send_options, wait_room_ns) + 8 &&
             items[i].options->wait_room_ns);
        if (!again)
            continue;
        if (out[i].result == PAWL_E_QUEUE_GONE)
            pawl_queue_doubt_last(lane);
        (void)pawl_send_plan(lane, &p, items[i].body, items[i].bytes, items[i].options);
        lane->one = (struct pawl_row){ .result = NO_ANSWER };
        lane->one.result = send_until(lane, queue, &p, items[i].body);
        sent_of(&out[i], &lane->one);
        lane->text[0] = '\0';
        lane->outcome_set = false;
    }
    rc = sum_up(lane, out, n, queue);
    for (uint32_t i = 0; i < n; i++)
        if (!is_ok(out[i].result) && out[i].result != PAWL_E_KEY_MISMATCH)
            out[i].id = 0;
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- later ----------------------------------------------------------------------------------- */

int pawl_submit_send(struct pawl *lane, const char *queue, const void *body, size_t bytes,
                     const struct pawl_send_options *options, pawl_ticket *ticket)
{
    struct pawl_send_plan p;
    struct pawl_queue_ref *q;
    int rc = pawl_call_enter(lane);
    if (PAWL_UNLIKELY(rc != PAWL_OK))
        return rc;
    rc = pawl_send_plan(lane, &p, body, bytes, options);
    uint64_t until = pawl_add_sat(pawl_now_coarse(lane), lane->timeout_ns);
    if (PAWL_LIKELY(rc == PAWL_OK))
        rc = pawl_queue_find_to_use(lane, queue, until, &q);
    if (PAWL_UNLIKELY(rc == PAWL_OK && q->mode == PAWL_DIRECT)) {
        struct pawl_sent sent = { 0 };
        int32_t result = pawl_direct_call_send(lane, q, &p, body, &sent);
        rc = pawl_op_answered(lane, result, sent.id, sent.state, ticket);
        if (rc == PAWL_OK)
            lane->text[0] = '\0';
        lane->outcome_set = lane->outcome_set && rc != PAWL_OK;
    } else if (PAWL_LIKELY(rc == PAWL_OK)) {
        rc = submit(lane, &p, q->id, body, PAWL_OP_TICKET, until);
        if (PAWL_LIKELY(rc == PAWL_OK) && ticket)
            *ticket = lane->next - 1;
    }
    if (PAWL_UNLIKELY(lane->armed))
        pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}
