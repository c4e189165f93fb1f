/* SPDX-License-Identifier: MIT */
/* Settle: ack, nack, release, reject, defer, renew; by token or, for one that nobody holds, by id.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/direct.h"
#include "client/lane.h"

#define ACK_FLAGS (PAWL_ACK_IF_UNCLAIMED | PAWL_ACK_IGNORE_MISSING)
#define NO_ANSWER INT32_MIN

uint32_t pawl_settle_bytes(size_t text_bytes)
{
    return (uint32_t)(sizeof(struct pawl_cmd_settle) + text_bytes);
}

void pawl_settle_fill(struct pawl_cmd_settle *c, const struct pawl_token *token, uint64_t time_ns,
                      uint32_t flags, const char *text, size_t text_bytes)
{
    c->message = token->message;
    c->grant = token->grant;
    c->random = token->random;
    c->time_ns = time_ns;
    c->flags = flags;
    c->text_bytes = (uint32_t)text_bytes;
    if (text_bytes) {
        memset((uint8_t *)(c + 1) + (text_bytes & ~(size_t)7), 0, 8 * ((text_bytes & 7) != 0));
        memcpy(c + 1, text, text_bytes);
    }
}

static int submit(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                  uint64_t time_ns, uint32_t flags, const char *text, size_t text_bytes,
                  enum pawl_op_kind kind, uint64_t until)
{
    int rc;
    struct pawl_cmd_settle *c =
        pawl_op_claim(lane, type, pawl_settle_bytes(text_bytes), kind, until, &rc);
    if (PAWL_UNLIKELY(!c))
        return rc;
    pawl_settle_fill(c, token, time_ns, flags, text, text_bytes);
    return PAWL_OK;
}

/* What each type may bring along. */
static const struct {
    uint32_t flags, text_bytes_max;
    const char *text;
} kinds[] = {
    [PAWL_CMD_ACK] = { ACK_FLAGS, PAWL_RESULT_BYTES_MAX, "a result has at most 4096 bytes" },
    [PAWL_CMD_NACK] = { 0, PAWL_REASON_BYTES_MAX, "a reason has at most 255 bytes" },
    [PAWL_CMD_REJECT] = { 0, PAWL_REASON_BYTES_MAX, "a reason has at most 255 bytes" },
    [PAWL_CMD_DEFER] = { PAWL_DEFER_FREE_KEY, PAWL_PROGRESS_BYTES_MAX,
                         "progress has at most 4096 bytes" },
    [PAWL_CMD_RENEW] = { 0, 0, "" },
};

/* What is wrong with the arguments, or OK. */
int pawl_settle_arguments(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                          uint32_t flags, const void *text, size_t text_bytes)
{
    if (!token)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "token is NULL");
    if (flags & ~kinds[type].flags)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "flags holds an unknown bit");
    if (!text && text_bytes)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "the bytes are NULL");
    if (text_bytes > kinds[type].text_bytes_max)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "%s", kinds[type].text);
    return PAWL_OK;
}

static int settle(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                  uint64_t time_ns, uint32_t flags, const void *text, size_t text_bytes)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    rc = pawl_settle_arguments(lane, type, token, flags, text, text_bytes);
    if (rc == PAWL_OK && pawl_token_is_direct(token)) {
        rc = pawl_direct_call_settle(lane, type, token, time_ns, flags, text_bytes);
        if (PAWL_UNLIKELY(lane->held))
            pawl_held_settled(lane, type, token, time_ns, rc);
        return pawl_call_leave(lane, rc);
    }
    if (rc == PAWL_OK) {
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        pawl_op_single(lane);
        rc = submit(lane, type, token, time_ns, flags, text, text_bytes, PAWL_OP_PLAIN, until);
        if (rc == PAWL_OK)
            rc = pawl_op_result(lane, until, NULL);
        if (PAWL_UNLIKELY(lane->held))
            pawl_held_settled(lane, type, token, time_ns, rc);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_ack(struct pawl *lane, const struct pawl_token *token, uint32_t flags)
{
    if (token && flags == 0 && pawl_token_is_direct(token)) {
        int rc = pawl_call_enter_change(lane);
        if (PAWL_UNLIKELY(rc != PAWL_OK))
            return rc;
        rc = pawl_direct_call_ack(lane, token);
        if (PAWL_UNLIKELY(lane->held))
            pawl_held_settled(lane, PAWL_CMD_ACK, token, 0, rc);
        return pawl_call_leave(lane, rc);
    }
    return settle(lane, PAWL_CMD_ACK, token, 0, flags, NULL, 0);
}

int pawl_ack_result(struct pawl *lane, const struct pawl_token *token, uint32_t flags,
                    const void *result, size_t bytes)
{
    return settle(lane, PAWL_CMD_ACK, token, 0, flags, result, bytes);
}

int pawl_nack(struct pawl *lane, const struct pawl_token *token, uint64_t delay_ns,
              const char *reason)
{
    if (delay_ns != PAWL_DELAY_LADDER && delay_ns > PAWL_DELAY_NS_MAX)
        return pawl_call_invalid(lane, "delay_ns is at most 10 years");
    return settle(lane, PAWL_CMD_NACK, token, delay_ns, 0, reason, reason ? strlen(reason) : 0);
}

int pawl_release(struct pawl *lane, const struct pawl_token *token)
{
    return settle(lane, PAWL_CMD_RELEASE, token, 0, 0, NULL, 0);
}

int pawl_reject(struct pawl *lane, const struct pawl_token *token, const char *reason)
{
    return settle(lane, PAWL_CMD_REJECT, token, 0, 0, reason, reason ? strlen(reason) : 0);
}

int pawl_defer(struct pawl *lane, const struct pawl_token *token, uint64_t delay_ns,
               const struct pawl_defer_options *options)
{
    struct pawl_defer_options o = PAWL_DEFER_OPTIONS_INIT;
    if (options && !pawl_options_copy(&o, options, sizeof o))
        return pawl_call_invalid(lane, "size of the options is none");
    if (delay_ns > PAWL_DELAY_NS_MAX)
        return pawl_call_invalid(lane, "delay_ns is at most 10 years");
    return settle(lane, PAWL_CMD_DEFER, token, delay_ns, o.flags, o.progress, o.progress_bytes);
}

int pawl_renew(struct pawl *lane, const struct pawl_token *token, uint64_t lease_ns)
{
    if (lease_ns < PAWL_LEASE_NS_MIN || lease_ns > PAWL_LEASE_NS_MAX)
        return pawl_call_invalid(lane, "a lease is 1 ms to 12 h");
    return settle(lane, PAWL_CMD_RENEW, token, lease_ns, 0, NULL, 0);
}

/* A row of tokens of direct queues; one of another kind among them is refused. */
static int settle_direct(struct pawl *lane, uint16_t type, const struct pawl_token *tokens,
                         uint32_t n, uint64_t time_ns, uint32_t flags, int32_t *results)
{
    int first = PAWL_OK;
    for (uint32_t i = 0; i < n; i++) {
        int rc = PAWL_LIKELY(pawl_token_is_direct(&tokens[i]))
                     ? pawl_direct_call_settle(lane, type, &tokens[i], time_ns, flags, 0)
                     : pawl_call_refuse(lane, PAWL_E_INVALID,
                                        "tokens of direct and of other queues in one row");
        if (results)
            results[i] = rc;
        if (PAWL_UNLIKELY(lane->held))
            pawl_held_settled(lane, type, &tokens[i], time_ns, rc);
        if (first == PAWL_OK && rc < 0)
            first = rc;
    }
    return first;
}

/* A row of settlings of one type, each with its own outcome. */
static int settle_batch(struct pawl *lane, uint16_t type, const struct pawl_token *tokens,
                        uint32_t n, uint64_t time_ns, uint32_t flags, int32_t *results)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!tokens || n == 0 || n > PAWL_BATCH_MAX || (flags & ~kinds[type].flags))
        return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_INVALID,
                                                      "1..1024 tokens and flags that are known"));
    if (lane->identified)
        return pawl_call_leave(lane, pawl_identity_refuse(lane));
    if (pawl_token_is_direct(&tokens[0]))
        return pawl_call_leave(lane, settle_direct(lane, type, tokens, n, time_ns, flags, results));
    if (!lane->batch)
        lane->batch = calloc(PAWL_BATCH_MAX, sizeof *lane->batch);
    if (!lane->batch)
        return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory"));
    struct pawl_row *rows = lane->batch;
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct pawl_row){ .result = NO_ANSWER };
    uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
    pawl_op_rows(lane, rows, n);
    for (uint32_t i = 0; i < n && rc == PAWL_OK; i++)
        rc = submit(lane, type, &tokens[i], time_ns, flags, NULL, 0, PAWL_OP_PLAIN, until);
    lane->outcome_set = false;
    int end = pawl_op_finish(lane, until);
    if (end != PAWL_OK)
        rc = end;
    int first = PAWL_OK;
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].result == NO_ANSWER)
            rows[i].result = rc;
        if (results)
            results[i] = rows[i].result;
        if (PAWL_UNLIKELY(lane->held))
            pawl_held_settled(lane, type, &tokens[i], time_ns, rows[i].result);
        if (first == PAWL_OK && rows[i].result < 0) {
            first = rows[i].result;
            if (!lane->outcome_set)
                (void)pawl_call_answered(lane, first, rows[i].value, NULL);
        }
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, first);
}

int pawl_ack_batch(struct pawl *lane, const struct pawl_token *tokens, uint32_t n, uint32_t flags,
                   int32_t *results)
{
    return settle_batch(lane, PAWL_CMD_ACK, tokens, n, 0, flags, results);
}

int pawl_held_renew(struct pawl *lane, const struct pawl_token *tokens, uint32_t n,
                    uint64_t lease_ns, int32_t *results)
{
    return settle_batch(lane, PAWL_CMD_RENEW, tokens, n, lease_ns, 0, results);
}

int pawl_renew_batch(struct pawl *lane, const struct pawl_token *tokens, uint32_t n,
                     uint64_t lease_ns, int32_t *results)
{
    if (lease_ns < PAWL_LEASE_NS_MIN || lease_ns > PAWL_LEASE_NS_MAX)
        return pawl_call_invalid(lane, "a lease is 1 ms to 12 h");
    return settle_batch(lane, PAWL_CMD_RENEW, tokens, n, lease_ns, 0, results);
}

int pawl_submit_ack(struct pawl *lane, const struct pawl_token *token, uint32_t flags,
                    pawl_ticket *ticket)
{
    int rc = pawl_call_enter(lane);
    if (PAWL_UNLIKELY(rc != PAWL_OK))
        return rc;
    if (PAWL_UNLIKELY(!token || (flags & ~ACK_FLAGS)))
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_INVALID, "a token and flags that are known"));
    if (PAWL_UNLIKELY(pawl_token_is_direct(token))) {
        int32_t result = pawl_direct_call_settle(lane, PAWL_CMD_ACK, token, 0, flags, 0);
        if (PAWL_UNLIKELY(lane->held))
            pawl_held_settled(lane, PAWL_CMD_ACK, token, 0, result);
        rc = pawl_op_answered(lane, result, 0, 0, ticket);
        if (rc == PAWL_OK)
            lane->text[0] = '\0';
        lane->outcome_set = lane->outcome_set && rc != PAWL_OK;
        return pawl_call_leave(lane, rc);
    }
    uint64_t until = pawl_add_sat(pawl_now_coarse(lane), lane->timeout_ns);
    rc = submit(lane, PAWL_CMD_ACK, token, 0, flags, NULL, 0, PAWL_OP_TICKET, until);
    if (PAWL_UNLIKELY(lane->held) && rc == PAWL_OK)
        pawl_held_settled(lane, PAWL_CMD_ACK, token, 0, PAWL_OK);
    if (PAWL_LIKELY(rc == PAWL_OK) && ticket)
        *ticket = lane->next - 1;
    if (PAWL_UNLIKELY(lane->armed))
        pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- by id ----------------------------------------------------------------------------------- */

/* key NULL: the message with this id. */
static int by_id(struct pawl *lane, uint16_t type, const char *queue, uint64_t id, const void *key,
                 size_t key_bytes, uint32_t flags)
{
    struct pawl_queue_ref *q;
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    if (flags & ~ACK_FLAGS)
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_INVALID, "flags holds an unknown bit"));
    size_t padded = (size_t)pawl_align_up(key_bytes, 8);
    for (int tries = 0; tries < 2; tries++) {
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        rc = pawl_queue_find(lane, queue, until, &q);
        if (rc != PAWL_OK)
            break;
        pawl_op_single(lane);
        struct pawl_cmd_message *c =
            pawl_op_claim(lane, type, (uint32_t)(sizeof *c + padded), PAWL_OP_PLAIN, until, &rc);
        if (!c)
            break;
        c->queue = q->id;
        c->id = id;
        c->offset = key_bytes;
        c->flags = flags | (key ? PAWL_BY_KEY : 0);
        c->reserved = 0;
        if (key) {
            memset((uint8_t *)(c + 1) + padded - 8, 0, 8);
            memcpy(c + 1, key, key_bytes);
        }
        rc = pawl_op_result(lane, until, queue);
        if (rc == PAWL_E_NOT_FOUND && key)
            rc = pawl_call_refuse(lane, rc,
                                  "no message with this key in queue %s, or its window is over, or "
                                  "not yours to see",
                                  queue);
        else if (rc == PAWL_E_NOT_FOUND) /* the queue is there */
            rc = pawl_call_refuse(lane, rc, "no such message in queue %s, or not yours to see",
                                  queue);
        if (rc != PAWL_E_QUEUE_GONE)
            break;
        pawl_queue_doubt_last(lane);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_ack_id(struct pawl *lane, const char *queue, uint64_t id, uint32_t flags)
{
    return by_id(lane, PAWL_CMD_ACK_ID, queue, id, NULL, 0, flags);
}
int pawl_cancel(struct pawl *lane, const char *queue, uint64_t id)
{
    return by_id(lane, PAWL_CMD_CANCEL, queue, id, NULL, 0, 0);
}
int pawl_restore(struct pawl *lane, const char *queue, uint64_t id)
{
    return by_id(lane, PAWL_CMD_RESTORE, queue, id, NULL, 0, 0);
}

static bool key_fits(const void *key, size_t key_bytes)
{
    return key && key_bytes >= 1 && key_bytes <= PAWL_KEY_BYTES_MAX;
}

int pawl_ack_key(struct pawl *lane, const char *queue, const void *key, size_t key_bytes,
                 uint32_t flags)
{
    if (!key_fits(key, key_bytes))
        return pawl_call_invalid(lane, "a key has 1 to 255 bytes");
    return by_id(lane, PAWL_CMD_ACK_ID, queue, 0, key, key_bytes, flags);
}
int pawl_cancel_key(struct pawl *lane, const char *queue, const void *key, size_t key_bytes)
{
    if (!key_fits(key, key_bytes))
        return pawl_call_invalid(lane, "a key has 1 to 255 bytes");
    return by_id(lane, PAWL_CMD_CANCEL, queue, 0, key, key_bytes, 0);
}
