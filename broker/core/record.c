/* SPDX-License-Identifier: MIT */
#include "core/record.h"

#include <string.h>

#include "abi/layout.h"
#include "base/bits.h"

#define SEQ_LIMIT (1ull << 62) /* so that counting on never wraps */

static const uint16_t fixed_bytes[] = {
    [PAWL_RECORD_SESSION] = sizeof(struct pawl_session_rec),
    [PAWL_RECORD_SESSION_END] = sizeof(struct pawl_session_end_rec),
    [PAWL_RECORD_LANE] = sizeof(struct pawl_lane_rec),
    [PAWL_RECORD_QUEUE] = sizeof(struct pawl_queue_rec),
    [PAWL_RECORD_SEND] = sizeof(struct pawl_send_rec),
    [PAWL_RECORD_GRANT] = sizeof(struct pawl_grant_rec),
    [PAWL_RECORD_RENEW] = sizeof(struct pawl_renew_rec),
    [PAWL_RECORD_BACK] = sizeof(struct pawl_back_rec),
    [PAWL_RECORD_END] = sizeof(struct pawl_end_rec),
    [PAWL_RECORD_RESTORE] = sizeof(struct pawl_restore_rec),
    [PAWL_RECORD_PURGE] = sizeof(struct pawl_purge_rec),
    [PAWL_RECORD_MESSAGE] = sizeof(struct pawl_message_rec),
    [PAWL_RECORD_STATE] = sizeof(struct pawl_state_rec),
    [PAWL_RECORD_RESERVATION] = sizeof(struct pawl_reservation_rec),
    [PAWL_RECORD_KEY] = sizeof(struct pawl_key_rec),
    [PAWL_RECORD_GROUP] = sizeof(struct pawl_sub_rec), /* at least one */
    [PAWL_RECORD_OUTCOME] = sizeof(struct pawl_outcome_rec),
    [PAWL_RECORD_IDEM] = sizeof(struct pawl_idem_rec),
};

static bool terminal(uint8_t state)
{
    return state >= PAWL_STATE_ACKED && state <= PAWL_STATE_PURGED;
}

static bool live(uint8_t state)
{
    return state >= PAWL_STATE_SCHEDULED && state <= PAWL_STATE_DEAD;
}

static bool op_fits(const struct pawl_op_rec *op)
{
    return op->lane < PAWL_LANES_MAX &&
           (op->session == 0 || (op->seq > op->open && op->seq < SEQ_LIMIT));
}

static bool payload_fits(uint32_t body, uint16_t headers, uint8_t priority)
{
    return body <= PAWL_MESSAGE_BYTES_MAX && headers <= PAWL_HEADERS_BYTES_MAX &&
           priority < PAWL_PRIORITIES;
}

static bool lane_fits(const struct pawl_record_view *v)
{
    const struct pawl_lane_rec *r = &v->lane;
    return r->lane < PAWL_LANES_MAX && r->window >= 1 && r->window <= PAWL_WINDOW_MAX &&
           r->count <= PAWL_WINDOW_PIECE && r->oldest >= 1 && r->seq_max < SEQ_LIMIT &&
           r->oldest < SEQ_LIMIT && r->session != 0 &&
           v->rest_bytes == r->count * sizeof(struct pawl_window_rec);
}

static bool queue_fits(const struct pawl_queue_rec *r)
{
    const struct pawl_queue_options *o = &r->options;
    return op_fits(&r->op) && r->id != 0 && pawl_name_valid(r->name) && o->mode <= PAWL_TABLE &&
           o->retry_count <= PAWL_RETRY_STEPS_MAX &&
           (o->dead_forward[0] == 0 || pawl_name_valid(o->dead_forward)) &&
           o->max_message_bytes <= PAWL_MESSAGE_BYTES_MAX;
}

static bool message_fits(const struct pawl_record_view *v)
{
    const struct pawl_message_rec *r = &v->message;
    return r->id != 0 && payload_fits(r->body_bytes, r->headers_bytes, r->priority) &&
           live(r->state) && r->lane < PAWL_LANES_MAX && r->kind <= PAWL_LEASE_DETACHED &&
           r->dead_reason <= PAWL_DEAD_REJECTED &&
           (r->state != PAWL_STATE_LEASED || (r->leased && r->grant != 0)) &&
           r->progress_bytes <= PAWL_PROGRESS_BYTES_MAX &&
           v->rest_bytes == pawl_record_message_payload(r) + r->reason_bytes + r->progress_bytes +
                                pawl_record_message_tail(r);
}

static bool state_fits(const struct pawl_record_view *v)
{
    const struct pawl_state_rec *r = &v->state;
    return op_fits(&r->op) && r->table != 0 && r->key_bytes != 0 && r->kind <= PAWL_VALUE_NUMBER &&
           r->op.extra <= PAWL_STATE_BYTES_MAX &&
           (r->kind == PAWL_VALUE_BYTES || r->op.extra == 0) &&
           v->rest_bytes == r->key_bytes + r->op.extra;
}

static bool reservation_fits(const struct pawl_record_view *v)
{
    const struct pawl_reservation_rec *r = &v->reservation;
    bool copy = r->op.extra & PAWL_RECORD_COPY;
    bool open = r->state == PAWL_RESERVATION_OPEN;
    return op_fits(&r->op) && r->table != 0 && r->state >= PAWL_RESERVATION_OPEN &&
           r->state <= PAWL_RESERVATION_EXPIRED && r->amount != 0 && r->amount <= INT64_MAX &&
           r->posted <= r->amount && (r->key_bytes == 0) == (copy && !open) &&
           v->rest_bytes == r->key_bytes;
}

static bool idem_fits(const struct pawl_record_view *v)
{
    const struct pawl_idem_rec *r = &v->idem;
    bool ended = r->state == PAWL_IDEM_DONE || r->state == PAWL_IDEM_FAILED;
    return op_fits(&r->op) && r->table != 0 && r->grant != 0 && r->attempts != 0 &&
           r->lane < PAWL_LANES_MAX && r->state >= PAWL_IDEM_IN_PROGRESS &&
           r->state <= PAWL_IDEM_FAILED && (r->session == 0 || r->state == PAWL_IDEM_IN_PROGRESS) &&
           r->op.extra <= (ended ? PAWL_IDEM_RESULT_BYTES_MAX : PAWL_IDEM_PROGRESS_BYTES_MAX) &&
           v->rest_bytes == r->op.extra;
}

static bool fits(const struct pawl_record_view *v)
{
    switch (v->type) {
    case PAWL_RECORD_SESSION:
        return v->rest_bytes == 0 && v->session.id != 0 && v->session.label[63] == 0;
    case PAWL_RECORD_SESSION_END:
        return v->rest_bytes == 0 && v->session_end.id != 0;
    case PAWL_RECORD_LANE:
        return lane_fits(v);
    case PAWL_RECORD_QUEUE:
        return v->rest_bytes == 0 && queue_fits(&v->queue);
    case PAWL_RECORD_SEND:
        return op_fits(&v->op) && v->send.id != 0 &&
               payload_fits(v->op.extra, v->send.headers_bytes, v->send.priority) &&
               v->rest_bytes == pawl_record_send_payload(&v->send);
    case PAWL_RECORD_GRANT:
        return op_fits(&v->op) && v->op.extra <= PAWL_BATCH_MAX && v->grant.grant != 0 &&
               v->grant.kind <= PAWL_LEASE_DETACHED &&
               v->rest_bytes == v->op.extra * sizeof(struct pawl_granted_rec);
    case PAWL_RECORD_RENEW:
        return op_fits(&v->op) && v->rest_bytes == 0;
    case PAWL_RECORD_BACK:
        return op_fits(&v->op) && live(v->back.state) && v->back.state != PAWL_STATE_LEASED &&
               v->back.cause < PAWL_BACK_CAUSES && v->back.dead_reason <= PAWL_DEAD_REJECTED &&
               (v->back.forward == 0 || v->back.state == PAWL_STATE_READY) &&
               v->back.progress_bytes <= PAWL_PROGRESS_BYTES_MAX &&
               v->rest_bytes == (uint32_t)v->back.reason_bytes + v->back.progress_bytes;
    case PAWL_RECORD_END:
        return op_fits(&v->op) && terminal(v->end.state) && v->end.message != 0 &&
               v->end.priority < PAWL_PRIORITIES && v->rest_bytes <= PAWL_RESULT_BYTES_MAX;
    case PAWL_RECORD_RESTORE:
        return op_fits(&v->op) && v->rest_bytes == 0;
    case PAWL_RECORD_PURGE:
        return op_fits(&v->op) && v->op.extra <= PAWL_BATCH_MAX &&
               v->rest_bytes == v->op.extra * sizeof(uint64_t);
    case PAWL_RECORD_MESSAGE:
        return message_fits(v);
    case PAWL_RECORD_STATE:
        return state_fits(v);
    case PAWL_RECORD_RESERVATION:
        return reservation_fits(v);
    case PAWL_RECORD_KEY:
        return v->rest_bytes == 0 && v->key.queue != 0 && terminal((uint8_t)v->key.state) &&
               v->key.state <= UINT8_MAX;
    case PAWL_RECORD_IDEM:
        return idem_fits(v);
    case PAWL_RECORD_OUTCOME:
        return op_fits(&v->op) && v->rest_bytes == 0;
    default:
        return false;
    }
}

int pawl_record_decode(struct pawl_record_view *out, uint16_t type, const void *body,
                       uint32_t bytes)
{
    if (type >= sizeof fixed_bytes / sizeof fixed_bytes[0] || fixed_bytes[type] == 0 ||
        bytes < fixed_bytes[type])
        return -1;
    out->type = type;
    if (type == PAWL_RECORD_GROUP) {
        out->rest = body;
        out->rest_bytes = bytes;
        return bytes % 8 == 0 ? 0 : -1;
    }
    memcpy((uint8_t *)out + offsetof(struct pawl_record_view, op), body, fixed_bytes[type]);
    out->rest = (const uint8_t *)body + fixed_bytes[type];
    out->rest_bytes = bytes - fixed_bytes[type];
    return fits(out) ? 0 : -1;
}

int pawl_record_sub(const uint8_t **at, uint32_t *left, uint16_t *type, const uint8_t **body,
                    uint32_t *bytes)
{
    struct pawl_sub_rec head;
    if (*left == 0)
        return 0;
    if (*left < sizeof head)
        return -1;
    memcpy(&head, *at, sizeof head);
    uint32_t room = *left - (uint32_t)sizeof head;
    if (head.type == PAWL_RECORD_GROUP || head.bytes > room || pawl_align_up(head.bytes, 8) > room)
        return -1;
    *type = head.type;
    *body = *at + sizeof head;
    *bytes = head.bytes;
    uint32_t whole = (uint32_t)(sizeof head + pawl_align_up(head.bytes, 8));
    *at += whole;
    *left -= whole;
    return 1;
}
