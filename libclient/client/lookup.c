/* SPDX-License-Identifier: MIT */
/* Records of messages by id and by key; waiting for the state of one. */
#include <string.h>

#include "base/clock.h"
#include "client/data.h"
#include "client/lane.h"

#define BATCH_TRIES 16 /* what was kept of an answer is gone with the rings it was for */

/* Runs one command, asking the name of the queue again once if it was dropped and made anew. The
 * queue's number stands behind the head of the fixed part. */
static int run(struct pawl *lane, const char *queue, uint16_t type, const void *fixed,
               uint32_t fixed_bytes, const void *variable, uint32_t bytes, uint64_t wait_ns)
{
    const size_t head = sizeof(struct pawl_cmd);
    struct pawl_queue_ref *q;
    int rc = PAWL_OK;
    for (int tries = 0; tries < 2; tries++) {
        uint64_t now = pawl_now(lane);
        rc = pawl_queue_find(lane, queue, pawl_add_sat(now, lane->timeout_ns), &q);
        if (rc != PAWL_OK)
            return rc;
        if (q->mode == PAWL_DIRECT) /* nothing would be found, whatever is in it */
            return pawl_call_refuse(lane, PAWL_E_NOT_SUPPORTED,
                                    "%s is a direct queue: the broker sees the dead ones of its "
                                    "messages, by pawl_scan() and `pawl dead`",
                                    queue);
        uint64_t until = pawl_add_sat(pawl_add_sat(now, wait_ns), lane->timeout_ns);
        lane->data_bytes = 0;
        pawl_op_single(lane);
        uint8_t *out = pawl_op_claim(lane, type, fixed_bytes + bytes, PAWL_OP_PLAIN, until, &rc);
        if (!out)
            return rc;
        memcpy(out + head, (const uint8_t *)fixed + head, fixed_bytes - head);
        memcpy(out + head, &q->id, sizeof q->id);
        if (bytes & 7)
            memset(out + fixed_bytes + (bytes & ~7u), 0, 8);
        if (bytes)
            memcpy(out + fixed_bytes, variable, bytes);
        rc = pawl_op_result(lane, until, queue);
        if (rc != PAWL_E_QUEUE_GONE)
            return rc;
        pawl_queue_doubt_last(lane);
    }
    return rc;
}

static int not_found(struct pawl *lane, int rc, const char *queue)
{
    if (rc == PAWL_E_NOT_FOUND)
        return pawl_call_refuse(lane, rc, "no such message in queue %s, or not yours to see",
                                queue);
    return rc;
}

static void give(const struct pawl_record *from, void *to, size_t size)
{
    struct pawl_record r = *from;
    r.size = size;
    r.reason[sizeof r.reason - 1] = '\0';
    pawl_data_give(&r, sizeof r, to, size);
}

/* --- batch ----------------------------------------------------------------------------------- */

struct batch {
    const uint64_t *ids;
    uint32_t n, have;
    struct pawl_record *out;
    size_t size;
    int32_t *results;
    uint64_t lsn;
    int ok;
};

/* The items of the present data, behind those that there are. */
static int take(struct pawl *lane, struct batch *b)
{
    struct pawl_query_data d;
    const uint8_t *at = lane->data + sizeof d;
    if (lane->data_bytes < sizeof d)
        return pawl_lane_breach(lane, "records without their head");
    memcpy(&d, lane->data, sizeof d);
    uint32_t bytes = lane->data_bytes - (uint32_t)sizeof d;
    uint32_t count = bytes / (uint32_t)sizeof(struct pawl_query_item);
    if (bytes % sizeof(struct pawl_query_item) != 0 || count == 0 || d.from != b->have ||
        d.count != b->n || count > b->n - b->have || (b->have && d.lsn != b->lsn))
        return pawl_lane_breach(lane, "records that were not asked for");
    b->lsn = d.lsn;
    for (uint32_t i = 0; i < count; i++, b->have++, at += sizeof(struct pawl_query_item)) {
        struct pawl_query_item item;
        memcpy(&item, at, sizeof item);
        give(&item.record, (uint8_t *)b->out + b->have * b->size, b->size);
        if (b->results)
            b->results[b->have] = item.result;
        b->ok += item.result == PAWL_OK;
    }
    return PAWL_OK;
}

static int read_all(struct pawl *lane, const char *queue, struct batch *b)
{
    struct pawl_cmd_query m = { .kind = PAWL_QUERY_IDS, .count = b->n };
    int rc = run(lane, queue, PAWL_CMD_QUERY, &m, sizeof m, b->ids, b->n * 8, 0);
    if (rc == PAWL_OK)
        rc = take(lane, b);
    while (rc == PAWL_OK && b->have < b->n) {
        struct pawl_cmd_query more = { .kind = PAWL_QUERY_MORE, .lsn = b->lsn, .from = b->have };
        rc = run(lane, queue, PAWL_CMD_QUERY, &more, sizeof more, NULL, 0, 0);
        if (rc == PAWL_OK)
            rc = take(lane, b);
    }
    return rc;
}

int pawl_query_batch(struct pawl *lane, const char *queue, const uint64_t *ids, uint32_t n,
                     struct pawl_record *out, int32_t *results, uint64_t *lsn)
{
    struct batch b = { .ids = ids, .n = n, .out = out, .results = results };
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!ids || !out || n == 0 || n > PAWL_BATCH_MAX || !pawl_data_size_valid(out->size))
        rc =
            pawl_call_refuse(lane, PAWL_E_INVALID, "ids, out, its size and n (1..1024) are needed");
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK) {
        b.size = out->size;
        rc = PAWL_E_CONFLICT;
        for (int i = 0; i < BATCH_TRIES && rc == PAWL_E_CONFLICT; i++) {
            b.have = 0;
            b.ok = 0;
            lane->text[0] = '\0';
            rc = read_all(lane, queue, &b);
        }
    }
    if (rc == PAWL_OK && lsn)
        *lsn = b.lsn;
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc == PAWL_OK ? b.ok : rc);
}

int pawl_query_key(struct pawl *lane, const char *queue, const void *key, size_t key_bytes,
                   struct pawl_record *out)
{
    struct batch b = { .n = 1, .out = out };
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "size is not set");
    else if (!key || key_bytes < 1 || key_bytes > PAWL_KEY_BYTES_MAX)
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "a key has 1 to %u bytes", PAWL_KEY_BYTES_MAX);
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK) {
        struct pawl_cmd_query m = { .kind = PAWL_QUERY_KEY, .count = (uint32_t)key_bytes };
        b.size = out->size;
        rc = run(lane, queue, PAWL_CMD_QUERY, &m, sizeof m, key, m.count, 0);
        rc = rc == PAWL_OK ? take(lane, &b) : not_found(lane, rc, queue);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- one, wherever it is --------------------------------------------------------------------- */

/* The data behind the head, of exactly `bytes`. */
static int ask_one(struct pawl *lane, uint32_t kind, uint64_t id, void *out, uint32_t bytes)
{
    int rc = pawl_data_prepare(lane);
    if (rc != PAWL_OK)
        return rc;
    uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
    lane->data_bytes = 0;
    pawl_op_single(lane);
    struct pawl_cmd_query *c =
        pawl_op_claim(lane, PAWL_CMD_QUERY, sizeof *c + 8, PAWL_OP_PLAIN, until, &rc);
    if (!c)
        return rc;
    memset((uint8_t *)c + sizeof c->head, 0, sizeof *c - sizeof c->head);
    c->kind = kind;
    c->count = 1;
    memcpy(c + 1, &id, sizeof id);
    rc = pawl_op_result(lane, until, NULL);
    if (rc != PAWL_OK)
        return rc;
    if (lane->data_bytes != sizeof(struct pawl_query_data) + bytes)
        return pawl_lane_breach(lane, "a record of another size");
    memcpy(out, lane->data + sizeof(struct pawl_query_data), bytes);
    return PAWL_OK;
}

static int one_message(struct pawl *lane, uint64_t id, struct pawl_record *out,
                       struct pawl_record_more *more)
{
    struct {
        struct pawl_query_item item;
        struct pawl_record_more more;
    } all;
    int rc = ask_one(lane, PAWL_QUERY_MESSAGE, id, &all, sizeof all);
    if (rc == PAWL_E_NOT_FOUND)
        return pawl_call_refuse(lane, rc, "no message has this id");
    if (rc == PAWL_E_FORGOTTEN)
        return pawl_call_refuse(lane, rc,
                                "no message has this id any more, or it is not yours to see");
    if (rc != PAWL_OK)
        return rc;
    give(&all.item.record, out, out->size);
    if (more) {
        size_t size = more->size;
        all.more.size = size;
        all.more.queue[sizeof all.more.queue - 1] = all.more.label[sizeof all.more.label - 1] =
            '\0';
        pawl_data_give(&all.more, sizeof all.more, more, size);
    }
    return PAWL_OK;
}

int pawl_query_message(struct pawl *lane, uint64_t id, struct pawl_record *out,
                       struct pawl_record_more *more)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || !pawl_data_size_valid(out->size) || (more && !pawl_data_size_valid(more->size)))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "size is not set");
    else
        rc = one_message(lane, id, out, more);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_query_session(struct pawl *lane, uint64_t id, struct pawl_session_record *out)
{
    struct pawl_session_record r;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "size is not set");
    else
        rc = ask_one(lane, PAWL_QUERY_SESSION, id, &r, sizeof r);
    if (rc == PAWL_E_NOT_FOUND)
        rc = pawl_call_refuse(lane, rc, "no such session, or it has ended, or is another user's");
    if (rc == PAWL_OK) {
        size_t size = out->size;
        r.size = size;
        r.label[sizeof r.label - 1] = '\0';
        pawl_data_give(&r, sizeof r, out, size);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- wait ------------------------------------------------------------------------------------ */

int pawl_query_wait(struct pawl *lane, const char *queue, uint64_t id, uint32_t state_mask,
                    uint64_t wait_ns, struct pawl_record *out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (out && !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "size is not set");
    else if (state_mask == 0)
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "state_mask names no state");
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK) {
        struct pawl_cmd_wait m = { .id = id, .wait_ns = wait_ns, .state_mask = state_mask };
        rc = run(lane, queue, PAWL_CMD_WAIT, &m, sizeof m, NULL, 0, wait_ns);
        rc = not_found(lane, rc, queue);
    }
    if (rc == PAWL_OK && lane->data_bytes != sizeof *out) {
        rc = pawl_lane_breach(lane, "a record of another size");
    } else if (rc == PAWL_OK && out) {
        struct pawl_record r;
        memcpy(&r, lane->data, sizeof r);
        give(&r, out, out->size);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}
