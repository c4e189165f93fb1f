/* SPDX-License-Identifier: MIT */
/* Tables: put, delete, add, get, scan; reservations. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "client/data.h"
#include "client/lane.h"

#define GET_TRIES 16 /* a value that is written all the time while its parts are read */

/* A command of a table: the fixed part, in which the table's number stands behind the head, and up
 * to two strings. */
struct call {
    const void *fixed;
    uint16_t type;
    uint32_t fixed_bytes;
    const void *part[2];
    size_t part_bytes[2];
};

static void fill(uint8_t *out, const struct call *c, uint64_t table)
{
    const size_t head = sizeof(struct pawl_cmd);
    memcpy(out + head, (const uint8_t *)c->fixed + head, c->fixed_bytes - head);
    memcpy(out + head, &table, sizeof table);
    out += c->fixed_bytes;
    size_t bytes = c->part_bytes[0] + c->part_bytes[1];
    if (bytes & 7)
        memset(out + (bytes & ~(size_t)7), 0, 8);
    if (c->part_bytes[0])
        memcpy(out, c->part[0], c->part_bytes[0]);
    if (c->part_bytes[1])
        memcpy(out + c->part_bytes[0], c->part[1], c->part_bytes[1]);
}

/* Runs it, asking the name again once if the table was dropped and made anew. */
static int run(struct pawl *lane, const char *table, const struct call *c)
{
    struct pawl_queue_ref *q;
    int rc = PAWL_OK;
    for (int tries = 0; tries < 2; tries++) {
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        rc = pawl_queue_find(lane, table, until, &q);
        if (rc != PAWL_OK)
            return rc;
        lane->data_bytes = 0;
        pawl_op_single(lane);
        size_t bytes = c->fixed_bytes + c->part_bytes[0] + c->part_bytes[1];
        uint8_t *out = pawl_op_claim(lane, c->type, (uint32_t)bytes, PAWL_OP_PLAIN, until, &rc);
        if (!out)
            return rc;
        fill(out, c, q->id);
        rc = pawl_op_finish(lane, until);
        if (rc != PAWL_OK)
            return rc;
        rc = lane->one.result;
        if (rc != PAWL_E_QUEUE_GONE)
            break;
        pawl_queue_doubt_last(lane);
    }
    return rc;
}

/* The same as a step of a transaction; read: an assertion of what was read. */
static int step(struct pawl_txn *txn, const char *table, const struct call *c, bool read)
{
    struct pawl *lane = pawl_txn_lane(txn);
    struct pawl_queue_ref *q;
    int rc = pawl_queue_find(lane, table, pawl_add_sat(pawl_now(lane), lane->timeout_ns), &q);
    if (rc != PAWL_OK)
        return rc;
    size_t bytes = c->fixed_bytes + c->part_bytes[0] + c->part_bytes[1];
    uint8_t *out = pawl_txn_claim(txn, c->type, (uint32_t)bytes, read, &rc);
    if (out)
        fill(out, c, q->id);
    return rc;
}

/* The words for a refusal that means something else here than for a message. */
static int answered(struct pawl *lane, int rc, const char *table)
{
    uint64_t value = lane->one.value;
    if (lane->text[0] == '\0' && rc == PAWL_E_PRECONDITION)
        return pawl_call_refuse(lane, rc, "what was found is %" PRId64, (int64_t)value);
    if (lane->text[0] == '\0' && rc == PAWL_E_STATE)
        return pawl_call_refuse(lane, rc,
                                "the key holds the other kind of value, or is reserved from");
    if (lane->text[0] == '\0' && rc == PAWL_E_RES_SHORT)
        return pawl_call_refuse(lane, rc, "%" PRIu64 " are left", value);
    if (lane->text[0] == '\0' && rc == PAWL_E_RES_DIFFERENT_AMOUNT)
        return pawl_call_refuse(lane, rc, "its amount is %" PRIu64, value);
    if (lane->text[0] == '\0' && rc == PAWL_E_RES_ALREADY_POSTED)
        return pawl_call_refuse(lane, rc, "%" PRIu64 " were posted", value);
    return pawl_call_answered(lane, rc, value, table);
}

static int key_wrong(struct pawl *lane, const void *key, size_t bytes)
{
    if (key && bytes >= 1 && bytes <= PAWL_KEY_BYTES_MAX)
        return PAWL_OK;
    return pawl_call_refuse(lane, PAWL_E_INVALID, "a key has 1 to %u bytes", PAWL_KEY_BYTES_MAX);
}

/* --- tables ---------------------------------------------------------------------------------- */

int pawl_table_create(struct pawl *lane, const char *table,
                      const struct pawl_queue_options *options)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    if (!pawl_options_copy(&o, options, sizeof o))
        return pawl_call_invalid(lane, "size of the options is none");
    o.size = sizeof o;
    o.mode = PAWL_TABLE;
    return pawl_queue_create(lane, table, &o);
}

int pawl_table_drop(struct pawl *lane, const char *table) { return pawl_queue_drop(lane, table); }

/* --- writes ---------------------------------------------------------------------------------- */

static int arguments(struct pawl *lane, const void *key, size_t key_bytes, const void *value,
                     size_t bytes)
{
    int rc = key_wrong(lane, key, key_bytes);
    if (rc == PAWL_OK && bytes > PAWL_STATE_BYTES_MAX)
        rc = pawl_call_refuse(lane, PAWL_E_TOO_BIG, "at most %u bytes are allowed here",
                              PAWL_STATE_BYTES_MAX);
    if (rc == PAWL_OK && bytes && !value)
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "value is NULL");
    return rc;
}

static struct call call_of(struct pawl_cmd_state *m, const void *key, size_t key_bytes,
                           const void *value, size_t bytes)
{
    m->key_bytes = (uint8_t)key_bytes;
    m->value_bytes = (uint32_t)bytes;
    return (struct call){ .fixed = m,
                          .type = PAWL_CMD_STATE,
                          .fixed_bytes = sizeof *m,
                          .part = { key, value },
                          .part_bytes = { key_bytes, bytes } };
}

/* found (may be NULL) gets the value of an answer, of E_PRECONDITION too. */
static int write_key(struct pawl *lane, const char *table, struct pawl_cmd_state *m,
                     const void *key, size_t key_bytes, const void *value, size_t bytes,
                     uint64_t *found)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    rc = arguments(lane, key, key_bytes, value, bytes);
    if (rc == PAWL_OK) {
        const struct call c = call_of(m, key, key_bytes, value, bytes);
        lane->one.value = 0;
        rc = run(lane, table, &c);
        if (found && (rc >= 0 || rc == PAWL_E_PRECONDITION))
            *found = lane->one.value;
        rc = answered(lane, rc, table);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_state_put(struct pawl *lane, const char *table, const void *key, size_t key_bytes,
                   const void *value, size_t bytes, uint64_t expect, uint64_t *version)
{
    struct pawl_cmd_state m = { .expect = expect, .op = PAWL_TABLE_PUT };
    return write_key(lane, table, &m, key, key_bytes, value, bytes, version);
}

int pawl_state_put_number(struct pawl *lane, const char *table, const void *key, size_t key_bytes,
                          int64_t number, uint64_t expect, uint64_t *version)
{
    struct pawl_cmd_state m = { .expect = expect, .op = PAWL_TABLE_PUT };
    m.flags = PAWL_TABLE_AS_NUMBER;
    return write_key(lane, table, &m, key, key_bytes, &number, sizeof number, version);
}

int pawl_state_delete(struct pawl *lane, const char *table, const void *key, size_t key_bytes,
                      uint64_t expect)
{
    struct pawl_cmd_state m = { .expect = expect, .op = PAWL_TABLE_DELETE };
    return write_key(lane, table, &m, key, key_bytes, NULL, 0, NULL);
}

int pawl_state_add(struct pawl *lane, const char *table, const void *key, size_t key_bytes,
                   int64_t number, int64_t min, int64_t max, int64_t *now)
{
    struct pawl_cmd_state m = { .expect = PAWL_ANY, .op = PAWL_TABLE_ADD };
    m.number = number;
    m.min = min;
    m.max = max;
    uint64_t found = 0;
    int rc = write_key(lane, table, &m, key, key_bytes, NULL, 0, &found);
    if (now && (rc >= 0 || rc == PAWL_E_PRECONDITION))
        *now = (int64_t)found;
    return rc;
}

/* --- reads ----------------------------------------------------------------------------------- */

static struct pawl_value value_of(const struct pawl_state_data *d)
{
    return (struct pawl_value){ .size = sizeof(struct pawl_value),
                                .version = d->version,
                                .kind = d->kind,
                                .bytes = d->value_bytes,
                                .number = d->number,
                                .reserved = d->reserved,
                                .posted = d->posted };
}

/* One try: all parts of one version. */
static int get(struct pawl *lane, const char *table, const void *key, size_t key_bytes, void *value,
               size_t bytes, struct pawl_value *v)
{
    struct pawl_cmd_state_scan m = { .op = PAWL_TABLE_GET };
    m.key_bytes = (uint8_t)key_bytes;
    const struct call c = { .fixed = &m,
                            .type = PAWL_CMD_STATE_SCAN,
                            .fixed_bytes = sizeof m,
                            .part = { key, NULL },
                            .part_bytes = { key_bytes, 0 } };
    for (;;) {
        struct pawl_state_data d;
        int rc = run(lane, table, &c);
        if (rc != PAWL_OK)
            return rc;
        if (lane->data_bytes < sizeof d)
            return pawl_lane_breach(lane, "a value without its head");
        memcpy(&d, lane->data, sizeof d);
        if (d.value_bytes > PAWL_STATE_BYTES_MAX)
            return pawl_lane_breach(lane, "a value longer than values are");
        uint32_t have = lane->data_bytes - (uint32_t)sizeof d;
        *v = value_of(&d);
        if (v->kind == PAWL_VALUE_NUMBER)
            return PAWL_OK;
        uint64_t want = pawl_min_u64(v->bytes, bytes);
        uint64_t n = pawl_min_u64(have, want > m.offset ? want - m.offset : 0);
        if (n)
            memcpy((uint8_t *)value + m.offset, lane->data + sizeof d, n);
        m.offset += (uint32_t)n;
        m.version = d.version;
        if (m.offset >= want)
            return PAWL_OK;
        if (n == 0)
            return pawl_lane_breach(lane, "a value that ends early");
    }
}

/* Tries until all parts are of one version; *v of that, version 0 for none. */
static int get_whole(struct pawl *lane, const char *table, const void *key, size_t key_bytes,
                     void *value, size_t bytes, struct pawl_value *out, struct pawl_value *v)
{
    int rc = key_wrong(lane, key, key_bytes);
    if (rc == PAWL_OK && ((bytes && !value) || (out && !pawl_data_size_valid(out->size))))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "value is NULL, or size is not set");
    if (rc == PAWL_OK)
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK) {
        rc = PAWL_E_CONFLICT;
        for (int i = 0; i < GET_TRIES && rc == PAWL_E_CONFLICT; i++)
            rc = get(lane, table, key, key_bytes, value, bytes, v);
        rc = answered(lane, rc, table);
    }
    if (rc >= 0 && out) {
        size_t size = out->size;
        v->size = size;
        pawl_data_give(v, sizeof *v, out, size);
    }
    return rc;
}

int pawl_state_get(struct pawl *lane, const char *table, const void *key, size_t key_bytes,
                   void *value, size_t bytes, struct pawl_value *out)
{
    struct pawl_value v = PAWL_VALUE_INIT;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    rc = get_whole(lane, table, key, key_bytes, value, bytes, out, &v);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* The items of the present data, behind those that there are. Negative: a breach. */
static int take_page(struct pawl *lane, struct pawl_state_item *last, uint8_t *out, size_t size,
                     uint32_t max)
{
    const uint8_t *at = lane->data;
    uint32_t left = lane->data_bytes, n = 0;
    while (left) {
        struct pawl_state_data d;
        if (left < sizeof d || n == max)
            return pawl_lane_breach(lane, "a page of another size");
        memcpy(&d, at, sizeof d);
        uint32_t bytes = (uint32_t)pawl_align_up(sizeof d + d.key_bytes, 8);
        if (d.key_bytes == 0 || bytes > left)
            return pawl_lane_breach(lane, "a page of another size");
        memset(last, 0, sizeof *last);
        last->size = size;
        last->value = value_of(&d);
        last->key_bytes = d.key_bytes;
        memcpy(last->key, at + sizeof d, d.key_bytes);
        pawl_data_give(last, sizeof *last, out + n * size, size);
        at += bytes;
        left -= bytes;
        n++;
    }
    return (int)n;
}

static int scan(struct pawl *lane, const char *table, const void *prefix, size_t prefix_bytes,
                const void *after, size_t after_bytes, struct pawl_state_item *out, uint32_t max)
{
    size_t size = out->size;
    struct pawl_state_item last;
    uint32_t n = 0;
    while (n < max) {
        struct pawl_cmd_state_scan m = { .op = PAWL_TABLE_PAGE, .max = max - n };
        m.key_bytes = (uint8_t)prefix_bytes;
        m.after_bytes = (uint8_t)after_bytes;
        const struct call c = { .fixed = &m,
                                .type = PAWL_CMD_STATE_SCAN,
                                .fixed_bytes = sizeof m,
                                .part = { prefix, after },
                                .part_bytes = { prefix_bytes, after_bytes } };
        int rc = run(lane, table, &c);
        if (rc < 0)
            return answered(lane, rc, table);
        rc = take_page(lane, &last, (uint8_t *)out + n * size, size, max - n);
        if (rc <= 0)
            return rc < 0 ? rc : (int)n;
        n += (uint32_t)rc;
        after = last.key;
        after_bytes = last.key_bytes;
    }
    return (int)n;
}

int pawl_state_scan(struct pawl *lane, const char *table, const void *prefix, size_t prefix_bytes,
                    const void *after, size_t after_bytes, struct pawl_state_item *out,
                    uint32_t max)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || max == 0 || max > PAWL_STATE_PAGE_MAX || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "out, its size and max (1..1024) are needed");
    else if (prefix_bytes > PAWL_KEY_BYTES_MAX || after_bytes > PAWL_KEY_BYTES_MAX ||
             (prefix_bytes && !prefix) || (after_bytes && !after))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "a key has at most %u bytes",
                              PAWL_KEY_BYTES_MAX);
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK)
        rc = scan(lane, table, prefix, prefix_bytes, after, after_bytes, out, max);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- reservations ---------------------------------------------------------------------------- */

/* What is wrong with the arguments, or OK and the call. */
static int move_call(struct pawl *lane, struct pawl_cmd_reserve *m, const uint8_t *id,
                     const void *key, size_t key_bytes, struct call *c)
{
    if (!id)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "id is NULL");
    if (m->op == PAWL_RESERVE_TAKE && (m->amount == 0 || m->amount > INT64_MAX))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "amount is 1 to INT64_MAX");
    if (m->ttl_ns > PAWL_DELAY_NS_MAX)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "ttl_ns is at most 10 years");
    int rc = m->op == PAWL_RESERVE_TAKE ? key_wrong(lane, key, key_bytes) : PAWL_OK;
    memcpy(m->id, id, sizeof m->id);
    m->key_bytes = (uint8_t)key_bytes;
    *c = (struct call){ .fixed = m,
                        .type = PAWL_CMD_RESERVE,
                        .fixed_bytes = sizeof *m,
                        .part = { key, NULL },
                        .part_bytes = { key_bytes, 0 } };
    return rc;
}

static int move(struct pawl *lane, const char *table, struct pawl_cmd_reserve *m, const uint8_t *id,
                const void *key, size_t key_bytes, uint64_t *left)
{
    struct call c;
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    rc = move_call(lane, m, id, key, key_bytes, &c);
    if (rc == PAWL_OK) {
        lane->one.value = 0;
        rc = run(lane, table, &c);
        if (left && (rc >= 0 || rc == PAWL_E_RES_SHORT))
            *left = lane->one.value;
        rc = answered(lane, rc, table);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_reserve(struct pawl *lane, const char *table, const uint8_t id[16], const void *key,
                 size_t key_bytes, uint64_t amount, uint64_t ttl_ns, uint64_t *left)
{
    struct pawl_cmd_reserve m = { .op = PAWL_RESERVE_TAKE, .amount = amount, .ttl_ns = ttl_ns };
    return move(lane, table, &m, id, key, key_bytes, left);
}

int pawl_post(struct pawl *lane, const char *table, const uint8_t id[16], uint64_t amount)
{
    struct pawl_cmd_reserve m = { .op = PAWL_RESERVE_POST, .amount = amount };
    return move(lane, table, &m, id, NULL, 0, NULL);
}

int pawl_void(struct pawl *lane, const char *table, const uint8_t id[16])
{
    struct pawl_cmd_reserve m = { .op = PAWL_RESERVE_VOID };
    return move(lane, table, &m, id, NULL, 0, NULL);
}

int pawl_reservation_get(struct pawl *lane, const char *table, const uint8_t id[16],
                         struct pawl_reservation *out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    struct pawl_cmd_state_scan m = { .op = PAWL_TABLE_RESERVATION, .key_bytes = 16 };
    const struct call c = { .fixed = &m,
                            .type = PAWL_CMD_STATE_SCAN,
                            .fixed_bytes = sizeof m,
                            .part = { id, NULL },
                            .part_bytes = { 16, 0 } };
    if (!id || !out || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "id is NULL, or size is not set");
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK) {
        rc = run(lane, table, &c);
        rc = answered(lane, rc, table);
    }
    struct pawl_reservation_data d;
    if (rc == PAWL_OK && lane->data_bytes != sizeof d)
        rc = pawl_lane_breach(lane, "a reservation of another size");
    if (rc == PAWL_OK)
        memcpy(&d, lane->data, sizeof d);
    if (rc == PAWL_OK && d.key_bytes > PAWL_KEY_BYTES_MAX)
        rc = pawl_lane_breach(lane, "a key longer than keys are");
    if (rc == PAWL_OK) {
        struct pawl_reservation r = { .size = out->size,
                                      .state = d.state,
                                      .key_bytes = d.key_bytes,
                                      .amount = d.amount,
                                      .posted = d.posted,
                                      .left_ns = d.left_ns };
        memcpy(r.key, d.key, PAWL_KEY_BYTES_MAX);
        pawl_data_give(&r, sizeof r, out, out->size);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- steps of transactions ------------------------------------------------------------------- */

static int key_step(struct pawl_txn *txn, const char *table, struct pawl_cmd_state *m,
                    const void *key, size_t key_bytes, const void *value, size_t bytes)
{
    int rc = pawl_txn_enter(txn);
    if (rc != PAWL_OK)
        return rc;
    rc = arguments(pawl_txn_lane(txn), key, key_bytes, value, bytes);
    if (rc == PAWL_OK) {
        const struct call c = call_of(m, key, key_bytes, value, bytes);
        rc = step(txn, table, &c, false);
    }
    return pawl_txn_leave(txn, rc);
}

int pawl_txn_put(struct pawl_txn *txn, const char *table, const void *key, size_t key_bytes,
                 const void *value, size_t bytes, uint64_t expect)
{
    struct pawl_cmd_state m = { .expect = expect, .op = PAWL_TABLE_PUT };
    return key_step(txn, table, &m, key, key_bytes, value, bytes);
}

int pawl_txn_put_number(struct pawl_txn *txn, const char *table, const void *key, size_t key_bytes,
                        int64_t number, uint64_t expect)
{
    struct pawl_cmd_state m = { .expect = expect, .op = PAWL_TABLE_PUT };
    m.flags = PAWL_TABLE_AS_NUMBER;
    return key_step(txn, table, &m, key, key_bytes, &number, sizeof number);
}

int pawl_txn_delete(struct pawl_txn *txn, const char *table, const void *key, size_t key_bytes,
                    uint64_t expect)
{
    struct pawl_cmd_state m = { .expect = expect, .op = PAWL_TABLE_DELETE };
    return key_step(txn, table, &m, key, key_bytes, NULL, 0);
}

int pawl_txn_add(struct pawl_txn *txn, const char *table, const void *key, size_t key_bytes,
                 int64_t number, int64_t min, int64_t max)
{
    struct pawl_cmd_state m = { .expect = PAWL_ANY, .op = PAWL_TABLE_ADD };
    m.number = number;
    m.min = min;
    m.max = max;
    return key_step(txn, table, &m, key, key_bytes, NULL, 0);
}

int pawl_txn_assert_version(struct pawl_txn *txn, const char *table, const void *key,
                            size_t key_bytes, uint64_t version)
{
    struct pawl_cmd_state m = { .expect = version, .op = PAWL_TABLE_IS_VERSION };
    return key_step(txn, table, &m, key, key_bytes, NULL, 0);
}

int pawl_txn_assert_exists(struct pawl_txn *txn, const char *table, const void *key,
                           size_t key_bytes)
{
    struct pawl_cmd_state m = { .expect = PAWL_ANY, .op = PAWL_TABLE_EXISTS };
    return key_step(txn, table, &m, key, key_bytes, NULL, 0);
}

int pawl_txn_assert_absent(struct pawl_txn *txn, const char *table, const void *key,
                           size_t key_bytes)
{
    struct pawl_cmd_state m = { .expect = PAWL_ANY, .op = PAWL_TABLE_ABSENT };
    return key_step(txn, table, &m, key, key_bytes, NULL, 0);
}

int pawl_txn_assert_ge(struct pawl_txn *txn, const char *table, const void *key, size_t key_bytes,
                       int64_t number)
{
    struct pawl_cmd_state m = { .expect = PAWL_ANY, .op = PAWL_TABLE_GE };
    m.number = number;
    return key_step(txn, table, &m, key, key_bytes, NULL, 0);
}

int pawl_txn_get(struct pawl_txn *txn, const char *table, const void *key, size_t key_bytes,
                 void *value, size_t bytes, struct pawl_value *out)
{
    struct pawl_value v = PAWL_VALUE_INIT;
    int rc = pawl_txn_enter(txn);
    if (rc != PAWL_OK)
        return rc;
    struct pawl *lane = pawl_txn_lane(txn);
    int got = get_whole(lane, table, key, key_bytes, value, bytes, out, &v);
    rc = got < 0 ? got : PAWL_OK;
    if (rc == PAWL_OK) {
        struct pawl_cmd_state m = { .expect = got == PAWL_OK_MISSING ? 0 : v.version,
                                    .op = PAWL_TABLE_IS_VERSION,
                                    .flags = PAWL_TABLE_WAS_READ };
        const struct call c = call_of(&m, key, key_bytes, NULL, 0);
        rc = step(txn, table, &c, true);
    }
    return pawl_txn_leave(txn, rc == PAWL_OK ? got : rc);
}

static int move_step(struct pawl_txn *txn, const char *table, struct pawl_cmd_reserve *m,
                     const uint8_t *id, const void *key, size_t key_bytes)
{
    struct call c;
    int rc = pawl_txn_enter(txn);
    if (rc != PAWL_OK)
        return rc;
    rc = move_call(pawl_txn_lane(txn), m, id, key, key_bytes, &c);
    if (rc == PAWL_OK)
        rc = step(txn, table, &c, false);
    return pawl_txn_leave(txn, rc);
}

int pawl_txn_reserve(struct pawl_txn *txn, const char *table, const uint8_t id[16], const void *key,
                     size_t key_bytes, uint64_t amount, uint64_t ttl_ns)
{
    struct pawl_cmd_reserve m = { .op = PAWL_RESERVE_TAKE, .amount = amount, .ttl_ns = ttl_ns };
    return move_step(txn, table, &m, id, key, key_bytes);
}

int pawl_txn_post(struct pawl_txn *txn, const char *table, const uint8_t id[16], uint64_t amount)
{
    struct pawl_cmd_reserve m = { .op = PAWL_RESERVE_POST, .amount = amount };
    return move_step(txn, table, &m, id, NULL, 0);
}

int pawl_txn_void(struct pawl_txn *txn, const char *table, const uint8_t id[16])
{
    struct pawl_cmd_reserve m = { .op = PAWL_RESERVE_VOID };
    return move_step(txn, table, &m, id, NULL, 0);
}
