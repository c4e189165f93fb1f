/* SPDX-License-Identifier: MIT */
/* Transactions: a row of commands collected here and sent as one.
 *
 *   begin     memory in this process; the lane knows the one that is open
 *   a step    is encoded as its own call would encode it, behind the others; what can be told here
 *             to be wrong poisons the whole
 *   commit    the row goes into one command, so it is published by one store; the answer is of the
 *             whole. From then on the handle is gone
 *   run       begin, the caller's function, commit; again after E_CONFLICT alone
 *
 * While a caller's function runs inside pawl_txn_run() the lane is held as by a call: whatever else
 * he calls on it answers E_MISUSE. The steps themselves know that and do not enter. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/data.h"
#include "client/direct.h"
#include "client/lane.h"

#define ROW_BYTES_MAX (16u << 20)
#define ROW_BYTES_FIRST 4096u
#define TRIES_DEFAULT 16u

struct row {
    uint8_t *bytes;
    uint32_t used, capacity, count;
};

struct pawl_txn {
    struct pawl *lane;
    uint64_t begun;
    struct row reads, steps; /* reads come first, whatever was written since */
    uint32_t sends;
    struct pawl_op_id id;
    bool identified;
    bool poisoned;
    bool running; /* inside pawl_txn_run() */
};

/* --- frame ----------------------------------------------------------------------------------- */

/* Inside pawl_txn_run() the lane is held already. */
static int enter(struct pawl_txn *txn)
{
    if (!txn)
        return pawl_call_enter(NULL);
    struct pawl *lane = txn->lane;
    if (!txn->running)
        return pawl_call_enter(lane);
    lane->text[0] = '\0';
    lane->outcome_set = false;
    return PAWL_OK;
}

static int poisoned(struct pawl_txn *txn)
{
    return pawl_call_refuse(txn->lane, PAWL_E_TXN_POISONED,
                            "an earlier step failed: nothing of this transaction can be committed, "
                            "roll it back");
}

int pawl_txn_leave(struct pawl_txn *txn, int result)
{
    struct pawl *lane = txn->lane;
    if (result < 0)
        txn->poisoned = true;
    if (txn->running)
        return result;
    return pawl_call_leave(lane, result);
}

int pawl_txn_enter(struct pawl_txn *txn)
{
    int rc = enter(txn);
    if (rc == PAWL_OK && txn->poisoned)
        rc = pawl_txn_leave(txn, poisoned(txn));
    return rc;
}

void pawl_txn_forget(struct pawl_txn *txn)
{
    if (!txn)
        return;
    free(txn->reads.bytes);
    free(txn->steps.bytes);
    free(txn);
}

static void end(struct pawl_txn *txn)
{
    txn->lane->txn = NULL;
    pawl_txn_forget(txn);
}

/* --- begin, rollback ------------------------------------------------------------------------- */

static int begin(struct pawl *lane, const struct pawl_op_id *id, struct pawl_txn **out)
{
    if (lane->txn)
        return pawl_call_refuse(lane, PAWL_E_MISUSE,
                                "this lane has an open transaction: commit it or roll it back");
    struct pawl_txn *txn = calloc(1, sizeof *txn);
    if (!txn)
        return pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory");
    txn->lane = lane;
    txn->begun = pawl_now(lane);
    if (id) {
        txn->id = *id;
        txn->identified = true;
    }
    lane->txn = txn;
    *out = txn;
    return PAWL_OK;
}

int pawl_txn_begin(struct pawl *lane, const struct pawl_op_id *id, struct pawl_txn **out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out)
        return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_INVALID, "out is NULL"));
    *out = NULL;
    return pawl_call_leave(lane, begin(lane, id, out));
}

void pawl_txn_rollback(struct pawl_txn *txn)
{
    /* Inside its own function the one who runs it ends it. */
    if (txn && txn->running)
        txn->poisoned = true;
    else if (txn)
        end(txn);
}

/* --- steps ----------------------------------------------------------------------------------- */

static bool grow(struct row *row, uint32_t bytes)
{
    uint32_t capacity = row->capacity ? row->capacity : ROW_BYTES_FIRST;
    while (capacity - row->used < bytes)
        capacity *= 2;
    if (capacity == row->capacity)
        return true;
    uint8_t *p = realloc(row->bytes, capacity);
    if (!p)
        return false;
    row->bytes = p;
    row->capacity = capacity;
    return true;
}

void *pawl_txn_claim(struct pawl_txn *txn, uint16_t type, uint32_t bytes, bool read, int *result)
{
    struct pawl *lane = txn->lane;
    struct row *row = read ? &txn->reads : &txn->steps;
    bytes = (uint32_t)pawl_align_up(bytes, PAWL_RECORD_ALIGN);
    if (txn->reads.count + txn->steps.count == PAWL_TXN_STEPS_MAX ||
        bytes > ROW_BYTES_MAX - txn->reads.used - txn->steps.used) {
        *result = pawl_call_refuse(lane, PAWL_E_TOO_BIG,
                                   "a transaction has at most %u steps and %u bytes",
                                   PAWL_TXN_STEPS_MAX, ROW_BYTES_MAX);
        return NULL;
    }
    if (!grow(row, bytes)) {
        *result = pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory");
        return NULL;
    }
    struct pawl_cmd *head = (struct pawl_cmd *)(void *)(row->bytes + row->used);
    memset(head, 0, sizeof *head);
    head->bytes = bytes;
    head->type = type;
    row->used += bytes;
    row->count++;
    *result = PAWL_OK;
    return head;
}

struct pawl *pawl_txn_lane(const struct pawl_txn *txn) { return txn->lane; }

static int find(struct pawl_txn *txn, const char *queue, struct pawl_queue_ref **out)
{
    struct pawl *lane = txn->lane;
    return pawl_queue_find(lane, queue, pawl_add_sat(pawl_now(lane), lane->timeout_ns), out);
}

static int send(struct pawl_txn *txn, const char *queue, const void *body, size_t bytes,
                const struct pawl_send_options *options, uint32_t *step)
{
    struct pawl_send_plan p;
    struct pawl_queue_ref *q;
    int rc = pawl_send_plan(txn->lane, &p, body, bytes, options);
    if (rc == PAWL_OK)
        rc = find(txn, queue, &q);
    struct pawl_cmd_send *c =
        rc == PAWL_OK ? pawl_txn_claim(txn, PAWL_CMD_SEND, p.bytes, false, &rc) : NULL;
    if (!c)
        return rc;
    pawl_send_fill(c, &p, q->id, body);
    txn->sends++;
    if (step)
        *step = txn->steps.count;
    return PAWL_OK;
}

int pawl_txn_send(struct pawl_txn *txn, const char *queue, const void *body, size_t bytes,
                  const struct pawl_send_options *options, uint32_t *step)
{
    int rc = pawl_txn_enter(txn);
    return rc != PAWL_OK ? rc : pawl_txn_leave(txn, send(txn, queue, body, bytes, options, step));
}

static int settle(struct pawl_txn *txn, uint16_t type, const struct pawl_token *token,
                  uint64_t time_ns, uint32_t flags, const void *text, size_t text_bytes)
{
    int rc = pawl_settle_arguments(txn->lane, type, token, flags, text, text_bytes);
    if (rc == PAWL_OK && pawl_token_is_direct(token))
        rc = pawl_call_refuse(txn->lane, PAWL_E_NOT_SUPPORTED,
                              "a direct queue has no transactions: settle this one by itself");
#ifdef PAWL_BUG_TXN_BLOB_DROPPED
    text_bytes = 0;
#endif
    if (rc == PAWL_OK && time_ns != PAWL_DELAY_LADDER && time_ns > PAWL_DELAY_NS_MAX)
        rc = pawl_call_refuse(txn->lane, PAWL_E_INVALID, "delay_ns is at most 10 years");
    struct pawl_cmd_settle *c =
        rc == PAWL_OK ? pawl_txn_claim(txn, type, pawl_settle_bytes(text_bytes), false, &rc) : NULL;
    if (c)
        pawl_settle_fill(c, token, time_ns, flags, text, text_bytes);
    return rc;
}

int pawl_txn_ack(struct pawl_txn *txn, const struct pawl_token *token, uint32_t flags)
{
    return pawl_txn_ack_result(txn, token, flags, NULL, 0);
}

int pawl_txn_ack_result(struct pawl_txn *txn, const struct pawl_token *token, uint32_t flags,
                        const void *result, size_t bytes)
{
    int rc = pawl_txn_enter(txn);
    if (rc != PAWL_OK)
        return rc;
    return pawl_txn_leave(txn, settle(txn, PAWL_CMD_ACK, token, 0, flags, result, bytes));
}

int pawl_txn_defer(struct pawl_txn *txn, const struct pawl_token *token, uint64_t delay_ns,
                   const struct pawl_defer_options *options)
{
    struct pawl_defer_options o = PAWL_DEFER_OPTIONS_INIT;
    int rc = pawl_txn_enter(txn);
    if (rc != PAWL_OK)
        return rc;
    if (options && !pawl_options_copy(&o, options, sizeof o))
        rc = pawl_call_refuse(txn->lane, PAWL_E_INVALID, "size of the options is none");
    else if (delay_ns > PAWL_DELAY_NS_MAX)
        rc = pawl_call_refuse(txn->lane, PAWL_E_INVALID, "delay_ns is at most 10 years");
    else
        rc = settle(txn, PAWL_CMD_DEFER, token, delay_ns, o.flags, o.progress, o.progress_bytes);
    return pawl_txn_leave(txn, rc);
}

int pawl_txn_nack(struct pawl_txn *txn, const struct pawl_token *token, uint64_t delay_ns,
                  const char *reason)
{
    int rc = pawl_txn_enter(txn);
    return rc != PAWL_OK ? rc
                         : pawl_txn_leave(txn, settle(txn, PAWL_CMD_NACK, token, delay_ns, 0,
                                                      reason, reason ? strlen(reason) : 0));
}

static int cancel(struct pawl_txn *txn, const char *queue, uint64_t id)
{
    struct pawl_queue_ref *q;
    int rc = find(txn, queue, &q);
    struct pawl_cmd_message *c =
        rc == PAWL_OK ? pawl_txn_claim(txn, PAWL_CMD_CANCEL, sizeof *c, false, &rc) : NULL;
    if (!c)
        return rc;
    c->queue = q->id;
    c->id = id;
    c->offset = 0;
    c->flags = c->reserved = 0;
    return PAWL_OK;
}

int pawl_txn_cancel(struct pawl_txn *txn, const char *queue, uint64_t id)
{
    int rc = pawl_txn_enter(txn);
    return rc != PAWL_OK ? rc : pawl_txn_leave(txn, cancel(txn, queue, id));
}

/* --- commit ---------------------------------------------------------------------------------- */

static void committed(const struct pawl_txn *txn, int rc, struct pawl_committed *out)
{
    if (!out)
        return;
    const struct pawl_row *row = &txn->lane->one;
    struct pawl_committed c = { .size = out->size, .sends = txn->sends };
    if (rc >= 0) {
        c.lsn = row->lsn;
        c.first_id = row->value;
    } else if (row->result == rc) {
        uint64_t reads = txn->reads.count;
        c.failed_step = row->value > reads ? (uint32_t)(row->value - reads) : 0;
        c.found = row->lsn;
    }
    pawl_data_give(&c, sizeof c, out, out->size);
}

/* The words for it. The value of such an answer is the number of the step; what its own call would
 * have as its value stands where else the position does. */
static int refused(struct pawl_txn *txn, int rc)
{
    struct pawl *lane = txn->lane;
    char text[PAWL_LANE_TEXT_BYTES];
    uint64_t step = lane->one.value, reads = txn->reads.count;
    rc = pawl_call_answered(lane, rc, lane->one.lsn, NULL);
    if (rc >= 0 || step <= reads)
        return rc;
    memcpy(text, lane->text, sizeof text);
    int n = snprintf(lane->text, sizeof lane->text, "step %" PRIu64, step - reads);
    if (text[0] && n > 0)
        (void)snprintf(lane->text + n, sizeof lane->text - (size_t)n, ": %.400s", text);
    return rc;
}

static int submit(struct pawl_txn *txn)
{
    struct pawl *lane = txn->lane;
    int rc;
    uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
    if (txn->identified) {
        lane->id = txn->id;
        lane->identified = true;
    }
    pawl_op_single(lane);
    const struct row *reads = &txn->reads, *steps = &txn->steps;
    uint32_t bytes = (uint32_t)sizeof(struct pawl_cmd_txn) + reads->used + steps->used;
    struct pawl_cmd_txn *c = pawl_op_claim(lane, PAWL_CMD_TXN, bytes, PAWL_OP_PLAIN, until, &rc);
    if (!c)
        return rc;
    c->count = reads->count + steps->count;
    c->reserved = 0;
    uint8_t *at = (uint8_t *)(c + 1);
    if (reads->used)
        memcpy(at, reads->bytes, reads->used);
    if (steps->used)
        memcpy(at + reads->used, steps->bytes, steps->used);
    rc = pawl_op_finish(lane, until);
    if (rc != PAWL_OK)
        return rc;
    rc = lane->one.result;
    if (rc == PAWL_E_QUEUE_GONE)
        pawl_queue_doubt(lane);
    return refused(txn, rc);
}

static int commit(struct pawl_txn *txn, struct pawl_committed *out)
{
    struct pawl *lane = txn->lane;
    if (txn->poisoned)
        return poisoned(txn);
    if (out && !pawl_data_size_valid(out->size))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "size of the result is none");
    lane->one = (struct pawl_row){ .result = PAWL_OK };
    if (pawl_now(lane) - txn->begun > PAWL_TXN_AGE_NS_MAX)
        return pawl_call_refuse(lane, PAWL_E_TXN_TIMEOUT,
                                "begun more than 5 s ago: what it was based on is old");
    int rc = txn->reads.count + txn->steps.count == 0 ? PAWL_OK : submit(txn);
    lane->identified = lane->id_used = false;
    committed(txn, rc, out);
    return rc;
}

int pawl_txn_commit(struct pawl_txn *txn, struct pawl_committed *out)
{
    int rc = enter(txn);
    if (rc != PAWL_OK)
        return rc;
    struct pawl *lane = txn->lane;
    lane->id_used = lane->identified;
    if (txn->running)
        return pawl_txn_leave(txn, pawl_call_refuse(lane, PAWL_E_MISUSE,
                                                    "pawl_txn_run() commits: return OK instead"));
    rc = commit(txn, out);
    if (rc != PAWL_E_TXN_POISONED)
        end(txn);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- run ------------------------------------------------------------------------------------- */

/* The answer was lost: what became of it is asked under its id, within one more time of a call. It
 * is fenced, so that it cannot happen after we have said that it did not. */
static int resolve(struct pawl *lane, const struct pawl_op_id *id, int rc,
                   struct pawl_committed *out)
{
    struct pawl_resolved r = { .size = sizeof r };
    char text[PAWL_LANE_TEXT_BYTES];
    memcpy(text, lane->text, sizeof text);
    pawl_store_rel_u32(&lane->busy, 0);
    int asked = pawl_resolve(lane, id, PAWL_RESOLVE_FENCE, &r);
    (void)pawl_swap_u32(&lane->busy, 1);
    memcpy(lane->text, text, sizeof text);
    lane->outcome_set = false;
    if (asked != PAWL_OK || r.state == PAWL_RESOLVED_FORGOTTEN)
        return rc;
    if (r.state == PAWL_RESOLVED_COMMITTED && out) {
        struct pawl_committed c = { .size = out->size, .lsn = r.lsn, .first_id = r.value };
        pawl_data_give(&c, sizeof c, out, out->size);
    }
    if (r.state == PAWL_RESOLVED_COMMITTED)
        return PAWL_OK;
    if (r.state == PAWL_RESOLVED_ABORTED)
        return r.result;
    pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
    return rc;
}

static int run_once(struct pawl *lane, pawl_txn_fn fn, void *ctx, struct pawl_committed *out)
{
    struct pawl_op_id id;
    struct pawl_txn *txn;
    pawl_op_id_new(&id);
    int rc = begin(lane, &id, &txn);
    if (rc != PAWL_OK)
        return rc;
    txn->running = true;
    rc = fn(txn, ctx);
    if (rc == PAWL_OK)
        rc = commit(txn, out);
    else
        pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
    bool unknown = rc < 0 && !lane->outcome_set && pawl_outcome_class(rc) == PAWL_OUTCOME_UNKNOWN;
    unknown = unknown || (lane->outcome_set && lane->outcome == PAWL_OUTCOME_UNKNOWN);
    end(txn);
    return unknown ? resolve(lane, &id, rc, out) : rc;
}

int pawl_txn_run(struct pawl *lane, pawl_txn_fn fn, void *ctx, uint32_t tries,
                 struct pawl_committed *out)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!fn)
        return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_INVALID, "fn is NULL"));
    tries = tries ? tries : TRIES_DEFAULT;
    for (uint32_t i = 0; i < tries; i++) {
        lane->text[0] = '\0';
        lane->outcome_set = false;
        rc = run_once(lane, fn, ctx, out);
        if (rc != PAWL_E_CONFLICT)
            break;
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}
