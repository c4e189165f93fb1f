/* SPDX-License-Identifier: MIT */
/* Idempotent operations: begin, complete, progress, abandon, get. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "client/data.h"
#include "client/lane.h"

#define HASH_SEED 0x6964656du
#define GET_TRIES 16 /* a key that is begun anew all the time while its parts are read */

uint64_t pawl_idem_hash(const void *parameters, size_t bytes)
{
    return pawl_hash64(parameters, bytes, HASH_SEED);
}

/* --- commands -------------------------------------------------------------------------------- */

static uint32_t command_bytes(const struct pawl_cmd_idem *m)
{
    return (uint32_t)sizeof *m + m->key_bytes + m->bytes;
}

/* All but the head, which is there. */
static void fill(void *out, const struct pawl_cmd_idem *m, const void *key, const void *bytes)
{
    const size_t head = sizeof m->head;
    uint8_t *at = (uint8_t *)out + sizeof *m;
    size_t all = (size_t)m->key_bytes + m->bytes;
    memcpy((uint8_t *)out + head, (const uint8_t *)m + head, sizeof *m - head);
    if (all & 7)
        memset(at + (all & ~(size_t)7), 0, 8);
    memcpy(at, key, m->key_bytes);
    if (m->bytes)
        memcpy(at + m->key_bytes, bytes, m->bytes);
}

/* Runs it as it is; the result of the broker. */
static int run(struct pawl *lane, const struct pawl_cmd_idem *m, const void *key, const void *bytes,
               uint64_t until)
{
    int rc;
    lane->data_bytes = 0;
    pawl_op_single(lane);
    void *out = pawl_op_claim(lane, PAWL_CMD_IDEM, command_bytes(m), PAWL_OP_PLAIN, until, &rc);
    if (!out)
        return rc;
    fill(out, m, key, bytes);
    rc = pawl_op_finish(lane, until);
    return rc != PAWL_OK ? rc : lane->one.result;
}

/* The same in a scope by its name, which is asked again once if it was dropped and made anew. */
static int run_named(struct pawl *lane, const char *scope, struct pawl_cmd_idem *m, const void *key)
{
    struct pawl_queue_ref *q;
    int rc = PAWL_OK;
    for (int tries = 0; tries < 2; tries++) {
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        rc = pawl_queue_find(lane, scope, until, &q);
        if (rc != PAWL_OK)
            return rc;
        m->table = q->id;
        rc = run(lane, m, key, NULL, until);
        if (rc != PAWL_E_QUEUE_GONE)
            break;
        pawl_queue_doubt_last(lane);
    }
    return rc;
}

/* The words for a refusal that means something else here than for a message. */
static int answered(struct pawl *lane, int rc, const char *scope)
{
    uint64_t value = lane->one.value;
    if (lane->text[0] == '\0' && rc == PAWL_E_NOT_FOUND && !scope)
        return pawl_call_refuse(lane, rc, "nothing was begun under this key, or it is forgotten");
    if (lane->text[0] == '\0' && rc == PAWL_E_STATE)
        return pawl_call_refuse(lane, rc, "it was completed by this token, with another result");
    if (lane->text[0] == '\0' && rc == PAWL_E_LEASE_LOST && value)
        return pawl_call_refuse(lane, rc, "process %" PRIu64 " has the key now", value);
    if (lane->text[0] == '\0' && rc == PAWL_E_LEASE_LOST)
        return pawl_call_refuse(lane, rc, "the lease of the key is over");
    return pawl_call_answered(lane, rc, value, scope);
}

static int key_wrong(struct pawl *lane, const void *key, size_t bytes)
{
    if (key && bytes >= 1 && bytes <= PAWL_KEY_BYTES_MAX)
        return PAWL_OK;
    return pawl_call_refuse(lane, PAWL_E_INVALID, "a key has 1 to %u bytes", PAWL_KEY_BYTES_MAX);
}

/* --- begin, get ------------------------------------------------------------------------------ */

struct reading {
    const char *scope;
    const void *key;
    size_t key_bytes;
    uint8_t *to;
    size_t room, have;
    struct pawl_idem it;
};

static int take(struct pawl *lane, struct reading *r, uint64_t scope)
{
    struct pawl_idem_data d;
    if (lane->data_bytes < sizeof d)
        return pawl_lane_breach(lane, "an operation without its head");
    memcpy(&d, lane->data, sizeof d);
    r->it.state = d.state;
    r->it.code = d.code;
    r->it.attempts = d.attempts;
    r->it.owner_pid = d.pid;
    r->it.bytes = d.bytes;
    r->it.left_ns = d.left_ns;
    r->it.age_ns = d.age_ns;
    r->it.lsn = d.lsn;
    r->it.param_hash = d.hash;
    r->it.token.grant = d.grant;
    if (d.state == PAWL_IDEM_FIRST) {
        r->it.token.random = d.random;
        r->it.token.scope = scope;
        r->it.token.key_bytes = (uint32_t)r->key_bytes;
        memcpy(r->it.token.key, r->key, r->key_bytes);
    }
    size_t want = pawl_min_u64(d.bytes, r->room);
    size_t n = pawl_min_u64(lane->data_bytes - sizeof d, want - pawl_min_u64(r->have, want));
    if (n)
        memcpy(r->to + r->have, lane->data + sizeof d, n);
    r->have += n;
    if (r->have < want && n == 0)
        return pawl_lane_breach(lane, "a result that ends early");
    return PAWL_OK;
}

/* What did not fit into the first answer: of the same grant, so of the same bytes. */
static int rest(struct pawl *lane, struct reading *r)
{
    size_t want = pawl_min_u64(r->it.bytes, r->room);
    while (r->have < want) {
        struct pawl_cmd_idem m = { .op = PAWL_IDEM_OP_READ, .grant = r->it.token.grant };
        uint64_t first = r->it.token.grant;
        m.key_bytes = (uint8_t)r->key_bytes;
        m.offset = (uint32_t)r->have;
        int rc = run_named(lane, r->scope, &m, r->key);
        if (rc == PAWL_OK)
            rc = take(lane, r, m.table);
        if (rc == PAWL_OK_MISSING || (rc == PAWL_OK && r->it.token.grant != first))
            rc = PAWL_E_CONFLICT;
        if (rc != PAWL_OK)
            return rc;
    }
    return PAWL_OK;
}

static int read_all(struct pawl *lane, struct reading *r, struct pawl_cmd_idem *m)
{
    int rc = PAWL_E_CONFLICT;
    m->key_bytes = (uint8_t)r->key_bytes;
    for (int i = 0; i < GET_TRIES && rc == PAWL_E_CONFLICT; i++) {
        r->have = 0;
        rc = run_named(lane, r->scope, m, r->key);
        if (rc == PAWL_OK)
            rc = take(lane, r, m->table);
        if (rc == PAWL_OK)
            rc = rest(lane, r);
    }
    return rc;
}

static int look(struct pawl *lane, struct reading *r, struct pawl_cmd_idem *m,
                struct pawl_idem *out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    /* Answers with data have no outcome that an id could keep: it stays for the next call. */
    bool identified = lane->identified;
    lane->identified = false;
    rc = key_wrong(lane, r->key, r->key_bytes);
    if (rc == PAWL_OK && ((r->room && !r->to) || !out || !pawl_data_size_valid(out->size)))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "result or out is NULL, or size is not set");
    if (rc == PAWL_OK)
        rc = pawl_data_prepare(lane);
    bool asked = rc == PAWL_OK;
    if (asked) {
        lane->one.value = 0;
        rc = read_all(lane, r, m);
        if (rc == PAWL_E_IDEM_MISMATCH)
            r->it.param_hash = lane->one.value;
        rc = answered(lane, rc, r->scope);
    }
    if (asked && (rc >= 0 || rc == PAWL_E_IDEM_MISMATCH)) {
        size_t size = out->size;
        r->it.size = size;
        if (r->it.state != PAWL_IDEM_FIRST)
            memset(&r->it.token, 0, sizeof r->it.token);
        pawl_data_give(&r->it, sizeof r->it, out, size);
    }
    lane->identified = identified;
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_idem_begin(struct pawl *lane, const char *scope, const void *key, size_t key_bytes,
                    uint64_t param_hash, uint64_t lease_ns, void *result, size_t bytes,
                    struct pawl_idem *out)
{
    struct reading r = { scope, key, key_bytes, result, bytes, 0, { 0 } };
    struct pawl_cmd_idem m = { .op = PAWL_IDEM_OP_BEGIN, .hash = param_hash };
    m.lease_ns = lease_ns;
    return look(lane, &r, &m, out);
}

int pawl_idem_get(struct pawl *lane, const char *scope, const void *key, size_t key_bytes,
                  void *result, size_t bytes, struct pawl_idem *out)
{
    struct reading r = { scope, key, key_bytes, result, bytes, 0, { 0 } };
    struct pawl_cmd_idem m = { .op = PAWL_IDEM_OP_READ };
    return look(lane, &r, &m, out);
}

/* --- by token -------------------------------------------------------------------------------- */

static int arguments(struct pawl *lane, const struct pawl_idem_token *token, const void *bytes,
                     size_t count, size_t most)
{
    if (!token || token->grant == 0 || token->key_bytes < 1 ||
        token->key_bytes > PAWL_KEY_BYTES_MAX)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "this token is of no begin");
    if (count > most)
        return pawl_call_refuse(lane, PAWL_E_TOO_BIG, "at most %zu bytes are allowed here", most);
    if (count && !bytes)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "bytes are NULL");
    return PAWL_OK;
}

static struct pawl_cmd_idem command(const struct pawl_idem_token *token, uint8_t op, size_t bytes)
{
    struct pawl_cmd_idem m = { .op = op, .table = token->scope, .grant = token->grant };
    m.random = token->random;
    m.key_bytes = (uint8_t)token->key_bytes;
    m.bytes = (uint32_t)bytes;
    return m;
}

static int by_token(struct pawl *lane, const struct pawl_idem_token *token,
                    const struct pawl_cmd_idem *m, const void *bytes)
{
    lane->one.value = 0;
    int rc = run(lane, m, token->key, bytes, pawl_add_sat(pawl_now(lane), lane->timeout_ns));
    return answered(lane, rc, NULL);
}

int pawl_idem_complete(struct pawl *lane, const struct pawl_idem_token *token, int32_t code,
                       const void *result, size_t bytes, uint32_t flags)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    rc = arguments(lane, token, result, bytes, PAWL_IDEM_RESULT_BYTES_MAX);
    if (rc == PAWL_OK && (flags & ~PAWL_IDEM_FINAL_FAIL))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "flags has unknown bits");
    if (rc == PAWL_OK) {
        struct pawl_cmd_idem m = command(token, PAWL_IDEM_OP_COMPLETE, bytes);
        m.code = code;
        m.flags = (uint16_t)flags;
        rc = by_token(lane, token, &m, result);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_idem_progress(struct pawl *lane, const struct pawl_idem_token *token, const void *progress,
                       size_t bytes, uint64_t lease_ns)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    rc = arguments(lane, token, progress, bytes, PAWL_IDEM_PROGRESS_BYTES_MAX);
    if (rc == PAWL_OK) {
        struct pawl_cmd_idem m = command(token, PAWL_IDEM_OP_PROGRESS, bytes);
        m.lease_ns = lease_ns;
        rc = by_token(lane, token, &m, progress);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_idem_abandon(struct pawl *lane, const struct pawl_idem_token *token)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    rc = arguments(lane, token, NULL, 0, 0);
    if (rc == PAWL_OK) {
        struct pawl_cmd_idem m = command(token, PAWL_IDEM_OP_ABANDON, 0);
        rc = by_token(lane, token, &m, NULL);
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- as a step ------------------------------------------------------------------------------- */

static int complete_step(struct pawl_txn *txn, const struct pawl_idem_token *token, int32_t code,
                         const void *result, size_t bytes, uint32_t flags)
{
    struct pawl *lane = pawl_txn_lane(txn);
    int rc = arguments(lane, token, result, bytes, PAWL_IDEM_RESULT_BYTES_MAX);
    if (rc == PAWL_OK && (flags & ~PAWL_IDEM_FINAL_FAIL))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "flags has unknown bits");
    if (rc != PAWL_OK)
        return rc;
    struct pawl_cmd_idem m = command(token, PAWL_IDEM_OP_COMPLETE, bytes);
    m.code = code;
    m.flags = (uint16_t)flags;
    void *out = pawl_txn_claim(txn, PAWL_CMD_IDEM, command_bytes(&m), false, &rc);
    if (out)
        fill(out, &m, token->key, result);
    return rc;
}

int pawl_txn_idem_complete(struct pawl_txn *txn, const struct pawl_idem_token *token, int32_t code,
                           const void *result, size_t bytes, uint32_t flags)
{
    int rc = pawl_txn_enter(txn);
    if (rc != PAWL_OK)
        return rc;
    return pawl_txn_leave(txn, complete_step(txn, token, code, result, bytes, flags));
}
