/* SPDX-License-Identifier: MIT */
/* Look: scan, one, peek, metrics. What does not fit into one answer is asked for in parts; each
 * part is true at its own moment. */
#include <string.h>

#include "base/clock.h"
#include "client/data.h"
#include "client/lane.h"

/* Runs one command of fixed form against a queue by name, asking the name again once if it was
 * dropped and made anew. fill() writes behind the head; the queue's number stands first there. */
struct question {
    uint16_t type;
    uint32_t bytes;
    uint64_t body[4]; /* behind the queue's number */
};

static int ask(struct pawl *lane, const char *queue, const struct question *question)
{
    struct pawl_queue_ref *q;
    int rc = PAWL_OK;
    for (int tries = 0; tries < 2; tries++) {
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        rc = pawl_queue_find(lane, queue, until, &q);
        if (rc != PAWL_OK)
            return rc;
        lane->data_bytes = 0;
        pawl_op_single(lane);
        uint8_t *c =
            pawl_op_claim(lane, question->type, question->bytes, PAWL_OP_PLAIN, until, &rc);
        if (!c)
            return rc;
        memcpy(c + sizeof(struct pawl_cmd), &q->id, 8);
        memcpy(c + sizeof(struct pawl_cmd) + 8, question->body,
               question->bytes - sizeof(struct pawl_cmd) - 8);
        rc = pawl_op_result(lane, until, queue);
        if (rc == PAWL_E_NOT_FOUND) /* the queue is there: what was asked of it is not */
            rc = pawl_call_refuse(lane, rc, "no such message in queue %s, or not yours to see",
                                  queue);
        if (rc != PAWL_E_QUEUE_GONE)
            return rc;
        pawl_queue_doubt_last(lane);
    }
    return rc;
}

static struct question message_question(uint16_t type, uint64_t id, uint64_t offset)
{
    struct question q = { .type = type, .bytes = sizeof(struct pawl_cmd_message) };
    q.body[0] = id;
    q.body[1] = offset;
    return q;
}

static struct question scan_question(uint64_t after_id, uint32_t mask, uint32_t max)
{
    struct question q = { .type = PAWL_CMD_SCAN, .bytes = sizeof(struct pawl_cmd_scan) };
    uint32_t pair[2] = { mask, max };
    q.body[0] = after_id;
    memcpy(&q.body[1], pair, sizeof pair);
    return q;
}

/* The i-th record of the present data. */
static struct pawl_record record_at(const struct pawl *lane, uint32_t i)
{
    struct pawl_record r;
    memcpy(&r, lane->data + (size_t)i * sizeof r, sizeof r);
    r.reason[sizeof r.reason - 1] = '\0';
    return r;
}

static int scan(struct pawl *lane, const char *queue, uint64_t after_id, uint32_t mask,
                struct pawl_record *out, uint32_t max)
{
    size_t size = out->size;
    uint32_t n = 0;
    while (n < max) {
        struct question q = scan_question(after_id, mask, max - n);
        int rc = ask(lane, queue, &q);
        if (rc < 0)
            return rc;
        uint32_t got = lane->data_bytes / (uint32_t)sizeof *out;
        if (lane->data_bytes % sizeof *out != 0 || got > max - n)
            return pawl_lane_breach(lane, "a scan of another size");
        if (got == 0)
            break;
        for (uint32_t i = 0; i < got; i++, n++) {
            struct pawl_record r = record_at(lane, i);
            if (r.id <= after_id)
                return pawl_lane_breach(lane, "a scan out of order");
            after_id = r.id;
            r.size = size;
            pawl_data_give(&r, sizeof r, (uint8_t *)out + n * size, size);
        }
    }
    return (int)n;
}

int pawl_query_scan(struct pawl *lane, const char *queue, uint64_t after_id, uint32_t state_mask,
                    struct pawl_record *out, uint32_t max)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || max == 0 || max > PAWL_BATCH_MAX || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "out, its size and max (1..1024) are needed");
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK)
        rc = scan(lane, queue, after_id, state_mask, out, max);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_query_one(struct pawl *lane, const char *queue, uint64_t id, struct pawl_record *out)
{
    struct pawl_record r = { .size = sizeof r };
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "size is not set");
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK && id == 0)
        rc = pawl_call_refuse(lane, PAWL_E_NOT_FOUND, "no message has the id 0");
    if (rc == PAWL_OK)
        rc = scan(lane, queue, id - 1, UINT32_MAX, &r, 1);
    if (rc >= 0 && (rc == 0 || r.id != id)) {
        /* Never there, or forgotten? The broker tells on a question for this very message. */
        struct question q = message_question(PAWL_CMD_PEEK, id, 0);
        rc = ask(lane, queue, &q);
        if (rc >= 0 || rc == PAWL_E_STATE || rc == PAWL_E_PERM)
            rc = pawl_call_refuse(lane, PAWL_E_NOT_FOUND, "no such message in queue %s", queue);
    } else if (rc >= 0) {
        size_t size = out->size;
        r.size = size;
        pawl_data_give(&r, sizeof r, out, size);
        rc = PAWL_OK;
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* Piece after piece, of the body or, by flags, the result. */
static int peek(struct pawl *lane, const char *queue, uint64_t id, uint32_t flags, void *body,
                size_t bytes, size_t *have)
{
    uint64_t offset = 0, all = 0;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!body && bytes)
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "there is no place for the bytes");
    else
        rc = pawl_data_prepare(lane);
    while (rc == PAWL_OK) {
        struct question q = message_question(PAWL_CMD_PEEK, id, offset);
        q.body[2] = flags;
        rc = ask(lane, queue, &q);
        if (rc < 0)
            break;
        rc = PAWL_OK;
        all = lane->one.value;
        uint64_t want = pawl_min_u64(all, bytes);
        uint64_t n = pawl_min_u64(lane->data_bytes, want > offset ? want - offset : 0);
        if (n)
            memcpy((uint8_t *)body + offset, lane->data, n);
        offset += n;
        if (offset >= want)
            break;
        if (n == 0)
            rc = pawl_lane_breach(lane, "a body that ends early");
    }
    if (rc == PAWL_OK && have)
        *have = all;
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_peek(struct pawl *lane, const char *queue, uint64_t id, void *body, size_t bytes,
              size_t *have)
{
    return peek(lane, queue, id, 0, body, bytes, have);
}

int pawl_query_result(struct pawl *lane, const char *queue, uint64_t id, void *result, size_t bytes,
                      size_t *have)
{
    return peek(lane, queue, id, PAWL_PEEK_RESULT, result, bytes, have);
}

int pawl_metrics(struct pawl *lane, char *text, size_t bytes)
{
    uint64_t offset = 0, all = 0;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!text && bytes)
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "text is NULL");
    else
        rc = pawl_data_prepare(lane);
    while (rc == PAWL_OK) {
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        lane->data_bytes = 0;
        pawl_op_single(lane);
        struct pawl_cmd_one *c =
            pawl_op_claim(lane, PAWL_CMD_METRICS, sizeof *c, PAWL_OP_PLAIN, until, &rc);
        if (!c)
            break;
        c->value = offset;
        rc = pawl_op_result(lane, until, NULL);
        if (rc < 0)
            break;
        rc = PAWL_OK;
        /* The text is made anew for each part and may have changed its length: the last one counts.
         */
        all = lane->one.value;
        uint64_t room = bytes > offset + 1 ? bytes - offset - 1 : 0;
        uint64_t n = pawl_min_u64(lane->data_bytes, room);
        if (n)
            memcpy(text + offset, lane->data, n);
        offset += n;
        if (n == 0 || offset >= all)
            break;
    }
    if (rc == PAWL_OK && bytes)
        text[offset < bytes ? offset : bytes - 1] = '\0';
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc != PAWL_OK ? rc : all > INT32_MAX ? INT32_MAX : (int)all);
}
