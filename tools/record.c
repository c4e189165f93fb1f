/* SPDX-License-Identifier: MIT */
#include "record.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "output.h"
#include "query.h"
#include "stat.h"

const char *cli_record_type(uint16_t type)
{
    static const char *const names[] = {
        NULL,      "SESSION", "SESSION_END", "LANE",        "QUEUE", "SEND",    "GRANT",
        "RENEW",   "BACK",    "END",         "RESTORE",     "PURGE", "MESSAGE", "GROUP",
        "OUTCOME", "KEY",     "STATE",       "RESERVATION", "IDEM",
    };
    return type < PAWL_COUNT(names) ? names[type] : NULL;
}

static void number(json_t *j, const char *name, uint64_t n) { cli_json_number(j, name, n); }
static void word(json_t *j, const char *name, const char *text)
{
    json_object_set_new(j, name, json_string(text));
}
static void state(json_t *j, uint32_t s) { word(j, "state", pawl_state_name(s)); }

/* Whose command made it. */
static void operation(json_t *j, const struct pawl_op_rec *op)
{
    if (op->session == 0)
        return;
    number(j, "session", op->session);
    number(j, "lane", op->lane);
    number(j, "seq", op->seq);
}

static uint64_t u64_at(const uint8_t *p)
{
    uint64_t n;
    memcpy(&n, p, sizeof n);
    return n;
}

static void numbers(json_t *j, const char *name, const uint8_t *p, uint32_t count, size_t step)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer((json_int_t)u64_at(p + i * step)));
    json_object_set_new(j, name, array);
}

/* [u64 ttl end] key, ordering key, headers, body: the decoder has checked that they fit. */
static void payload(json_t *j, const uint8_t *p, bool ttl, uint32_t key, uint32_t ordering,
                    uint32_t headers, uint32_t body, bool bodies)
{
    if (ttl) {
        number(j, "ttl_end_ns", u64_at(p));
        p += 8;
    }
    if (key) {
        number(j, "key_end_ns", u64_at(p));
        p += 8;
        cli_json_bytes(j, "key", p, key);
    }
    p += key;
    if (ordering)
        cli_json_bytes(j, "ordering_key", p, ordering);
    p += ordering + headers;
    number(j, "headers_bytes", headers);
    number(j, "bytes", body);
    if (bodies)
        cli_json_bytes(j, "body", p, body);
}

static void counts(json_t *j, const struct pawl_counts *c)
{
    json_object_set_new(j, "number", json_integer((json_int_t)c->available));
    json_object_set_new(j, "reserved", json_integer((json_int_t)c->reserved));
    json_object_set_new(j, "posted", json_integer((json_int_t)c->posted));
}

static void table_key(json_t *j, const struct pawl_record_view *v, bool bodies)
{
    const struct pawl_state_rec *r = &v->state;
    static const char *const kinds[] = { "deleted", "bytes", "number" };
    number(j, "table", r->table);
    cli_json_bytes(j, "key", v->rest, r->key_bytes);
    word(j, "kind", kinds[r->kind]);
    number(j, "version", r->version);
    if (r->kind == PAWL_VALUE_NUMBER)
        counts(j, &r->counts);
    if (r->kind == PAWL_VALUE_BYTES)
        number(j, "bytes", r->op.extra);
    if (r->kind == PAWL_VALUE_BYTES && bodies)
        cli_json_bytes(j, "value", v->rest + r->key_bytes, r->op.extra);
}

static void reservation(json_t *j, const struct pawl_record_view *v)
{
    const struct pawl_reservation_rec *r = &v->reservation;
    static const char *const states[] = { "none", "open", "posted", "voided", "expired" };
    char id[33];
    for (size_t i = 0; i < sizeof r->id; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", r->id[i]);
    bool copy = r->op.extra & PAWL_RECORD_COPY;
    number(j, "table", r->table);
    word(j, "id", id);
    word(j, "state", states[r->state]);
    number(j, "amount", r->amount);
    number(j, "posted_of_it", r->posted);
    number(j, "end_ns", r->end);
    json_object_set_new(j, "copy", json_boolean(copy));
    if (r->key_bytes)
        cli_json_bytes(j, "key", v->rest, r->key_bytes);
    if (copy)
        return;
    number(j, "version", r->version);
    counts(j, &r->counts);
}

static void session(json_t *j, const struct pawl_session_rec *r)
{
    number(j, "session", r->id);
    number(j, "epoch", r->epoch);
    number(j, "uid", r->uid);
    number(j, "pid", r->pid);
    cli_json_bytes(j, "label", r->label, strnlen(r->label, sizeof r->label));
}

static void queue(json_t *j, const struct pawl_queue_rec *r)
{
    number(j, "queue", r->id);
    cli_json_bytes(j, "name", r->name, strnlen(r->name, sizeof r->name));
    word(j, "mode", cli_mode_name(r->options.mode));
    json_object_set_new(j, "paused", json_boolean(r->op.extra & PAWL_QUEUE_PAUSED));
    json_object_set_new(j, "dropped", json_boolean(r->op.extra & PAWL_QUEUE_GONE));
}

static void sent(json_t *j, const struct pawl_record_view *v, bool bodies)
{
    const struct pawl_send_rec *r = &v->send;
    number(j, "queue", r->queue);
    number(j, "id", r->id);
    state(j, r->flags & PAWL_RECORD_SCHEDULED ? PAWL_STATE_SCHEDULED : PAWL_STATE_READY);
    number(j, "place_ns", r->place);
    number(j, "priority", r->priority);
    cli_json_time(j, "sent", r->sent_wall);
    payload(j, v->rest, r->flags & PAWL_RECORD_TTL, r->key_bytes, r->ordering_key_bytes,
            r->headers_bytes, r->op.extra, bodies);
}

static void message(json_t *j, const struct pawl_record_view *v, bool bodies)
{
    const struct pawl_message_rec *r = &v->message;
    number(j, "queue", r->queue);
    number(j, "id", r->id);
    state(j, r->state);
    number(j, "place_ns", r->place);
    number(j, "priority", r->priority);
    cli_json_time(j, "sent", r->sent_wall);
    number(j, "grant", r->grant);
    number(j, "acquired", r->acquired);
    number(j, "nacked", r->nacked);
    number(j, "expired", r->expired);
    number(j, "crashed", r->crashed);
    number(j, "deferred", r->deferred);
    if (r->state == PAWL_STATE_DEAD)
        word(j, "dead_reason", cli_dead_reason_name(r->dead_reason));
    payload(j, v->rest, r->flags & PAWL_RECORD_TTL, r->key_bytes, r->ordering_key_bytes,
            r->headers_bytes, r->body_bytes, bodies);
    if (r->reason_bytes)
        cli_json_bytes(j, "reason", v->rest + pawl_record_message_payload(r), r->reason_bytes);
    if (r->progress_bytes && bodies)
        cli_json_bytes(j, "progress", v->rest + pawl_record_message_payload(r) + r->reason_bytes,
                       r->progress_bytes);
}

static void granted(json_t *j, const struct pawl_record_view *v)
{
    number(j, "queue", v->grant.queue);
    number(j, "grant", v->grant.grant);
    number(j, "lease_ns", v->grant.lease_ns);
    number(j, "pid", v->grant.pid);
    numbers(j, "ids", v->rest, v->grant.op.extra, sizeof(struct pawl_granted_rec));
}

static void back(json_t *j, const struct pawl_record_view *v, bool bodies)
{
    static const char *const causes[] = { "nacked",  "expired",  "released",
                                          "crashed", "rejected", "deferred" };
    const struct pawl_back_rec *r = &v->back;
    number(j, "queue", r->queue);
    number(j, "id", r->message);
    state(j, r->state);
    word(j, "cause", r->cause < PAWL_COUNT(causes) ? causes[r->cause] : "unknown");
    if (r->state == PAWL_STATE_SCHEDULED)
        number(j, "due_ns", r->due);
    if (r->forward)
        number(j, "forward", r->forward);
    if (r->reason_bytes)
        cli_json_bytes(j, "reason", v->rest, r->reason_bytes);
    if (r->progress_bytes && bodies)
        cli_json_bytes(j, "progress", v->rest + r->reason_bytes, r->progress_bytes);
}

static void outcome(json_t *j, const struct pawl_outcome_rec *r)
{
    char id[PAWL_OP_ID_TEXT_BYTES];
    pawl_op_id_format(&r->id, id);
    static const struct pawl_op_id none;
    if (memcmp(&r->id, &none, sizeof none) != 0)
        word(j, "op", id);
    word(j, "result", pawl_strname(r->result));
    number(j, "value", r->value);
    if (r->horizon_ms)
        number(j, "horizon_ms", r->horizon_ms);
}

static void idem(json_t *j, const struct pawl_record_view *v, bool bodies)
{
    static const char *const states[] = { "none",      "first", "in progress",
                                          "abandoned", "done",  "failed" };
    const struct pawl_idem_rec *r = &v->idem;
    number(j, "scope", r->table);
    word(j, "state", r->state < PAWL_COUNT(states) ? states[r->state] : "unknown");
    number(j, "grant", r->grant);
    number(j, "attempts", r->attempts);
    number(j, "pid", r->pid);
    json_object_set_new(j, "code", json_integer(r->code));
    number(j, "bytes", r->op.extra);
    if (bodies && r->op.extra)
        cli_json_bytes(j, "result", v->rest, r->op.extra);
}

/* Its parts, each as a record of its own. */
static void group(json_t *j, const struct pawl_record_view *v, bool bodies)
{
    const uint8_t *at = v->rest, *body;
    uint32_t left = v->rest_bytes, bytes;
    uint16_t type;
    json_t *parts = json_array();
    while (pawl_record_sub(&at, &left, &type, &body, &bytes) > 0) {
        struct pawl_record_view part;
        if (pawl_record_decode(&part, type, body, bytes) != 0)
            break;
        json_t *one = cli_record_members(&part, bodies);
        word(one, "type", cli_record_type(type));
        json_array_append_new(parts, one);
    }
    json_object_set_new(j, "parts", parts);
}

json_t *cli_record_members(const struct pawl_record_view *v, bool bodies)
{
    json_t *j = json_object();
    switch (v->type) {
    case PAWL_RECORD_SESSION:
        session(j, &v->session);
        return j;
    case PAWL_RECORD_SESSION_END:
        number(j, "session", v->session_end.id);
        return j;
    case PAWL_RECORD_LANE:
        number(j, "session", v->lane.session);
        number(j, "lane", v->lane.lane);
        number(j, "seq_max", v->lane.seq_max);
        number(j, "outcomes", v->lane.count);
        return j;
    case PAWL_RECORD_MESSAGE:
        message(j, v, bodies);
        return j;
    case PAWL_RECORD_QUEUE:
        queue(j, &v->queue);
        break;
    case PAWL_RECORD_SEND:
        sent(j, v, bodies);
        break;
    case PAWL_RECORD_GRANT:
        granted(j, v);
        break;
    case PAWL_RECORD_RENEW:
        number(j, "queue", v->renew.queue);
        number(j, "id", v->renew.message);
        number(j, "grant", v->renew.grant);
        number(j, "lease_ns", v->renew.lease_ns);
        break;
    case PAWL_RECORD_BACK:
        back(j, v, bodies);
        break;
    case PAWL_RECORD_END:
        number(j, "queue", v->end.queue);
        number(j, "id", v->end.message);
        state(j, v->end.state);
        json_object_set_new(j, "copy", json_boolean(v->end.flags & PAWL_RECORD_COPY));
        break;
    case PAWL_RECORD_KEY:
        number(j, "queue", v->key.queue);
        number(j, "id", v->key.message);
        state(j, (uint8_t)v->key.state);
        number(j, "key_end_ns", v->key.end);
        return j;
    case PAWL_RECORD_RESTORE:
        number(j, "queue", v->restore.queue);
        number(j, "id", v->restore.message);
        break;
    case PAWL_RECORD_PURGE:
        number(j, "queue", v->purge.queue);
        numbers(j, "ids", v->rest, v->purge.op.extra, sizeof(uint64_t));
        break;
    case PAWL_RECORD_STATE:
        table_key(j, v, bodies);
        break;
    case PAWL_RECORD_RESERVATION:
        reservation(j, v);
        break;
    case PAWL_RECORD_GROUP:
        group(j, v, bodies);
        return j;
    case PAWL_RECORD_OUTCOME:
        outcome(j, &v->outcome);
        break;
    case PAWL_RECORD_IDEM:
        idem(j, v, bodies);
        break;
    default:
        return j;
    }
    operation(j, &v->op);
    return j;
}

static bool among(const uint8_t *p, uint32_t count, size_t step, uint64_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (u64_at(p + i * step) == id)
            return true;
    return false;
}

static bool group_names(const struct pawl_record_view *v, uint64_t id)
{
    const uint8_t *at = v->rest, *body;
    uint32_t left = v->rest_bytes, bytes;
    uint16_t type;
    while (pawl_record_sub(&at, &left, &type, &body, &bytes) > 0) {
        struct pawl_record_view part;
        if (pawl_record_decode(&part, type, body, bytes) == 0 && cli_record_names(&part, id))
            return true;
    }
    return false;
}

bool cli_record_names(const struct pawl_record_view *v, uint64_t id)
{
    switch (v->type) {
    case PAWL_RECORD_SEND:
        return v->send.id == id;
    case PAWL_RECORD_MESSAGE:
        return v->message.id == id;
    case PAWL_RECORD_KEY:
        return v->key.message == id;
    case PAWL_RECORD_RENEW:
        return v->renew.message == id;
    case PAWL_RECORD_BACK:
        return v->back.message == id;
    case PAWL_RECORD_END:
        return v->end.message == id;
    case PAWL_RECORD_RESTORE:
        return v->restore.message == id;
    case PAWL_RECORD_GRANT:
        return among(v->rest, v->grant.op.extra, sizeof(struct pawl_granted_rec), id);
    case PAWL_RECORD_PURGE:
        return among(v->rest, v->purge.op.extra, sizeof(uint64_t), id);
    case PAWL_RECORD_GROUP:
        return group_names(v, id);
    default:
        return false;
    }
}
