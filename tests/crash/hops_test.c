/* SPDX-License-Identifier: MIT */
/* Each operation that changes something, killed at each hop of its way (semantics 3): the process
 * on that side ends there by SIGKILL, the operation is tried again, and its effect is there exactly
 * once. A09.
 *
 *   a client dies  another process tries again under the same id
 *   a broker dies  the library submits it again by itself and answers what is definite; then
 * another process tries again under the same id and is told that it was done before. And the same
 * without an id, where what the library does must be enough
 *
 * Needs a build with -DPAWL_KILL_POINTS (make check-hops); without it there is nothing to test. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/harness.h"

#ifdef PAWL_KILL_POINTS

#define LEASE (600 * PAWL_NS_S)
#define LONGER (3600 * PAWL_NS_S)

enum verb {
    SEND,
    SEND_KEY,
    ACK,
    NACK,
    RELEASE,
    REJECT,
    DEFER,
    RENEW,
    ACK_ID,
    CANCEL,
    RESTORE,
    CREATE,
    ALTER,
    DROP,
    PAUSE,
    RESUME,
    PURGE,
    PUT,
    ADD,
    DELETE,
    RESERVE,
    POST,
    VOID,
    COMMIT,
    FENCE,
    VERBS
};
static const char *const verbs[VERBS] = { "send",    "send with key", "ack",   "nack",   "release",
                                          "reject",  "defer",         "renew", "ack id", "cancel",
                                          "restore", "create",        "alter", "drop",   "pause",
                                          "resume",  "purge",         "put",   "add",    "delete",
                                          "reserve", "post",          "void",  "commit", "fence" };

enum expect { NOTHING_YET, DONE_BEFORE, EITHER };
static const struct hop {
    const char *name;
    bool client;
    enum expect again; /* what the first try of another process finds, when a client died */
} hops[] = {
    { "client-before-submit", true, NOTHING_YET },   { "client-after-submit", true, EITHER },
    { "broker-before-dequeue", false, DONE_BEFORE }, { "broker-after-apply", false, DONE_BEFORE },
    { "broker-after-write", false, DONE_BEFORE },    { "broker-after-sync", false, DONE_BEFORE },
    { "broker-before-publish", false, DONE_BEFORE }, { "client-before-read", true, DONE_BEFORE },
};
#define HOPS (sizeof hops / sizeof hops[0])

/* One combination; shared with the process that begins it. */
struct run {
    enum verb verb;
    const struct hop *hop;
    bool bare; /* without an id: the library's submitting again is all there is */
    char queue[32], table[32];
    struct pawl_op_id op;
    uint8_t reservation[16];
    struct pawl_token token;
    uint64_t id; /* of the message that the operation is about */
    int result;
    uint64_t value;
};

static struct harness_broker broker;
static const char *kill_file;

/* --- an operation ---------------------------------------------------------------------------- */

static bool of_table(enum verb v) { return v >= PUT && v <= COMMIT; }
static bool has_queue(enum verb v) { return v != CREATE && (v < PUT || v >= COMMIT); }
/* PURGE has no id, FENCE is about one. */
static bool may_have_id(enum verb v) { return v != PURGE && v != FENCE; }
static bool has_id(const struct run *r) { return !r->bare && may_have_id(r->verb); }

static struct pawl_queue_options queue_options(uint64_t max_messages)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_messages = max_messages;
    return o;
}

static int commit(struct pawl *lane, struct run *r)
{
    struct pawl_txn *txn;
    struct pawl_committed c = { .size = sizeof c };
    harness_check_rc(pawl_txn_begin(lane, r->bare ? NULL : &r->op, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_ack(txn, &r->token, 0), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, r->queue, "next", 4, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_txn_add(txn, r->table, "k", 1, 5, INT64_MIN, INT64_MAX), PAWL_OK);
    int rc = pawl_txn_commit(txn, &c);
    r->value = c.first_id;
    return rc;
}

static int fence(struct pawl *lane, struct run *r)
{
    struct pawl_resolved out = { .size = sizeof out };
    int rc = pawl_resolve(lane, &r->op, PAWL_RESOLVE_FENCE, &out);
    r->value = out.state;
    return rc;
}

static int send(struct pawl *lane, struct run *r)
{
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    struct pawl_sent sent = { 0 };
    if (r->verb == SEND_KEY) {
        o.key = "once";
        o.key_bytes = 4;
    }
    int rc = pawl_send(lane, r->queue, "body", 4, &o, &sent);
    r->value = sent.id;
    return rc;
}

static int do_queue(struct pawl *lane, struct run *r)
{
    const struct pawl_queue_options plain = queue_options(0), other = queue_options(77);
    switch (r->verb) {
    case CREATE:
        return pawl_queue_create(lane, r->queue, &plain);
    case ALTER:
        return pawl_queue_alter(lane, r->queue, &other);
    case DROP:
        return pawl_queue_drop(lane, r->queue);
    case PAUSE:
        return pawl_queue_pause(lane, r->queue);
    case RESUME:
        return pawl_queue_resume(lane, r->queue);
    default:
        return pawl_queue_purge(lane, r->queue, &r->value);
    }
}

static int do_table(struct pawl *lane, struct run *r)
{
    switch (r->verb) {
    case PUT:
        return pawl_state_put(lane, r->table, "k", 1, "v", 1, 0, NULL);
    case ADD:
        return pawl_state_add(lane, r->table, "k", 1, 5, INT64_MIN, INT64_MAX, NULL);
    case DELETE:
        return pawl_state_delete(lane, r->table, "k", 1, PAWL_ANY);
    case RESERVE:
        return pawl_reserve(lane, r->table, r->reservation, "k", 1, 10, 0, NULL);
    case POST:
        return pawl_post(lane, r->table, r->reservation, 0);
    default:
        return pawl_void(lane, r->table, r->reservation);
    }
}

static int do_message(struct pawl *lane, struct run *r)
{
    switch (r->verb) {
    case ACK:
        return pawl_ack(lane, &r->token, 0);
    case NACK:
        return pawl_nack(lane, &r->token, 0, "no");
    case RELEASE:
        return pawl_release(lane, &r->token);
    case REJECT:
        return pawl_reject(lane, &r->token, "no");
    case DEFER:
        return pawl_defer(lane, &r->token, 0, NULL);
    case RENEW:
        return pawl_renew(lane, &r->token, LONGER);
    case ACK_ID:
        return pawl_ack_id(lane, r->queue, r->id, 0);
    case CANCEL:
        return pawl_cancel(lane, r->queue, r->id);
    default:
        return pawl_restore(lane, r->queue, r->id);
    }
}

static int act(struct pawl *lane, struct run *r)
{
    r->value = 0;
    if (r->verb == COMMIT)
        return commit(lane, r);
    if (r->verb == FENCE)
        return fence(lane, r);
    if (has_id(r))
        harness_check_rc(pawl_op_id_next(lane, &r->op), PAWL_OK);
    if (r->verb == SEND || r->verb == SEND_KEY)
        return send(lane, r);
    if (r->verb >= CREATE && r->verb <= PURGE)
        return do_queue(lane, r);
    return of_table(r->verb) ? do_table(lane, r) : do_message(lane, r);
}

/* --- before ---------------------------------------------------------------------------------- */

/* In nobody's hands that could die: whoever has the token may settle it. */
static void take_one(struct pawl *lane, struct run *r)
{
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.wait_ns = 20 * PAWL_NS_S;
    o.lease_ns = LEASE;
    o.lease_kind = PAWL_LEASE_DETACHED;
    r->id = harness_send(lane, r->queue, "work");
    harness_check_rc(pawl_receive(lane, r->queue, &o, &m), PAWL_OK);
    harness_check(m.id == r->id);
    r->token = m.token;
}

static void prepare_table(struct pawl *lane, struct run *r)
{
    harness_check_rc(pawl_table_create(lane, r->table, NULL), PAWL_OK);
    if (r->verb == DELETE)
        harness_check_rc(pawl_state_put(lane, r->table, "k", 1, "v", 1, 0, NULL), PAWL_OK);
    if (r->verb >= RESERVE && r->verb <= VOID)
        harness_check_rc(pawl_state_put_number(lane, r->table, "k", 1, 100, 0, NULL), PAWL_OK);
    if (r->verb == POST || r->verb == VOID)
        harness_check_rc(pawl_reserve(lane, r->table, r->reservation, "k", 1, 10, 0, NULL),
                         PAWL_OK);
}

static void prepare(struct pawl *lane, struct run *r)
{
    pawl_op_id_new(&r->op);
    memcpy(r->reservation, r->op.bytes, sizeof r->reservation);
    if (of_table(r->verb))
        prepare_table(lane, r);
    if (has_queue(r->verb))
        harness_queue(lane, r->queue, PAWL_DURABLE, 0);
    if ((r->verb >= ACK && r->verb <= RENEW) || r->verb == RESTORE || r->verb == COMMIT)
        take_one(lane, r);
    if (r->verb == RESTORE)
        harness_check_rc(pawl_reject(lane, &r->token, "for now"), PAWL_OK);
    if (r->verb == ACK_ID || r->verb == CANCEL)
        r->id = harness_send(lane, r->queue, "work");
    if (r->verb == RESUME)
        harness_check_rc(pawl_queue_pause(lane, r->queue), PAWL_OK);
    for (int i = 0; r->verb == PURGE && i < 3; i++)
        (void)harness_send(lane, r->queue, "work");
}

/* --- after ----------------------------------------------------------------------------------- */

static uint32_t messages(struct pawl *lane, const struct run *r, uint32_t state)
{
    struct pawl_record out[8];
    for (int i = 0; i < 8; i++)
        out[i].size = sizeof out[i];
    uint32_t mask = state ? 1u << state : 0x1feu;
    int n = pawl_query_scan(lane, r->queue, 0, mask, out, 8);
    harness_check(n >= 0);
    return (uint32_t)n;
}

static void check_message(struct pawl *lane, const struct run *r)
{
    struct pawl_record m = { .size = sizeof m };
    harness_check(messages(lane, r, 0) == 1);
    harness_check_rc(pawl_query_one(lane, r->queue, r->id, &m), PAWL_OK);
    bool waits = m.state == PAWL_STATE_READY || m.state == PAWL_STATE_SCHEDULED;
    bool untouched = m.nacked == 0 && m.failed == 0 && m.deferred == 0;
    switch (r->verb) {
    case ACK:
    case ACK_ID:
        harness_check(m.state == PAWL_STATE_ACKED);
        break;
    case NACK:
        harness_check(waits && m.nacked == 1 && m.failed == 1 && m.acquired == 1);
        break;
    case RELEASE:
        harness_check(waits && untouched && m.acquired == 1);
        break;
    case REJECT:
        harness_check(m.state == PAWL_STATE_DEAD && m.dead_reason == PAWL_DEAD_REJECTED);
        break;
    case DEFER:
        harness_check(waits && m.deferred == 1 && m.failed == 0);
        break;
    case RENEW:
        harness_check(m.state == PAWL_STATE_LEASED && m.lease_left_ns > LEASE);
        break;
    case CANCEL:
        harness_check(m.state == PAWL_STATE_CANCELLED);
        break;
    default: /* RESTORE */
        harness_check(m.state == PAWL_STATE_READY && untouched && m.acquired == 0);
        break;
    }
}

static void check_queue(struct pawl *lane, const struct run *r)
{
    struct pawl_queue_stat s = { .size = sizeof s };
    harness_check_rc(pawl_queue_stat(lane, r->queue, &s),
                     r->verb == DROP ? PAWL_E_NOT_FOUND : PAWL_OK);
    if (r->verb == ALTER)
        harness_check(s.options.max_messages == 77);
    if (r->verb == PAUSE || r->verb == RESUME)
        harness_check((s.paused != 0) == (r->verb == PAUSE));
    if (r->verb == PURGE)
        harness_check(messages(lane, r, 0) == 3 && messages(lane, r, PAWL_STATE_PURGED) == 3);
}

static void check_table(struct pawl *lane, const struct run *r)
{
    struct pawl_value v = { .size = sizeof v };
    char byte = 0;
    harness_check_rc(pawl_state_get(lane, r->table, "k", 1, &byte, 1, &v),
                     r->verb == DELETE ? PAWL_OK_MISSING : PAWL_OK);
    if (r->verb == PUT)
        harness_check(v.kind == PAWL_VALUE_BYTES && byte == 'v');
    if (r->verb == ADD || r->verb == COMMIT)
        harness_check(v.number == 5);
    if (r->verb == RESERVE)
        harness_check(v.number == 90 && v.reserved == 10 && v.posted == 0);
    if (r->verb == POST)
        harness_check(v.number == 90 && v.reserved == 0 && v.posted == 10);
    if (r->verb == VOID)
        harness_check(v.number == 100 && v.reserved == 0 && v.posted == 0);
}

/* Its effect is there, once. */
static void check_effect(struct pawl *lane, struct run *r)
{
    if (r->verb == SEND || r->verb == SEND_KEY) {
        struct pawl_record m = { .size = sizeof m };
        harness_check(messages(lane, r, 0) == 1);
        harness_check_rc(pawl_query_one(lane, r->queue, r->value, &m), PAWL_OK);
    } else if (r->verb == FENCE) {
        harness_check_rc(pawl_op_id_next(lane, &r->op), PAWL_OK);
        harness_check_rc(pawl_send(lane, r->queue, "late", 4, NULL, NULL), PAWL_E_OP_FENCED);
        harness_check(messages(lane, r, 0) == 0);
    } else if (r->verb == COMMIT) {
        harness_check(messages(lane, r, 0) == 2 && messages(lane, r, PAWL_STATE_ACKED) == 1 &&
                      messages(lane, r, PAWL_STATE_READY) == 1);
        check_table(lane, r);
    } else if (r->verb >= CREATE && r->verb <= PURGE) {
        check_queue(lane, r);
    } else if (of_table(r->verb)) {
        check_table(lane, r);
    } else {
        check_message(lane, r);
    }
}

/* --- one combination ------------------------------------------------------------------------- */

static void arm(const char *name)
{
    char *temporary = harness_text("%s.new", kill_file);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t bytes = strlen(name);
    harness_check(fd >= 0 && write(fd, name, bytes) == (ssize_t)bytes && close(fd) == 0);
    harness_check(rename(temporary, kill_file) == 0);
}

/* So that nothing is asked on the way of the operation itself. */
static void know_names(struct pawl *lane, struct run *r)
{
    if (has_queue(r->verb))
        (void)messages(lane, r, 0);
    if (of_table(r->verb))
        harness_check(pawl_state_get(lane, r->table, "other", 5, NULL, 0, NULL) >= 0);
}

static int begin(void *arg)
{
    struct run *r = arg;
    struct pawl *lane = harness_open(&broker);
    know_names(lane, r);
    arm(r->hop->name);
    r->result = act(lane, r);
    pawl_close(lane);
    return 0;
}

static bool done(const struct run *r, int rc, bool before)
{
    if (r->verb == FENCE)
        return rc == PAWL_OK && r->value == PAWL_RESOLVED_NEVER_SEEN;
    if (r->verb == PURGE)
        return rc == PAWL_OK && r->value == (before ? 0u : 3u);
    return rc == (before ? PAWL_OK_DUPLICATE : PAWL_OK);
}

static void one(struct pawl *lane, struct run *r)
{
    prepare(lane, r);
    pid_t pid = harness_fork(begin, r);
    if (r->hop->client) {
        harness_check(harness_wait(pid) == 128 + SIGKILL);
    } else {
        harness_check(harness_wait(broker.pid) == 128 + SIGKILL);
        broker.pid = 0;
        harness_broker_start(&broker);
        harness_check(harness_wait(pid) == 0);
        harness_check(done(r, r->result, false) || done(r, r->result, true));
    }
    harness_check(access(kill_file, F_OK) != 0);
    if (r->bare) {
        harness_check(done(r, r->result, false));
        check_effect(lane, r);
        return;
    }
    enum expect again = r->hop->again;
    int rc = act(lane, r);
    if (!done(r, rc, true) && !done(r, rc, false))
        harness_fail("again: %s (%s)", pawl_strname(rc), pawl_last_text(lane));
    if (again != EITHER && !done(r, rc, again == DONE_BEFORE))
        harness_fail("again: %s value %llu", pawl_strname(rc), (unsigned long long)r->value);
    uint64_t value = r->value;
    rc = act(lane, r);
    if (!done(r, rc, true) || (has_id(r) && r->value != value))
        harness_fail("a third time: %s (%s)", pawl_strname(rc), pawl_last_text(lane));
    check_effect(lane, r);
}

int main(void)
{
    harness_begin("hops_test", 280);
    kill_file = harness_text("%s/kill", harness_dir());
    harness_check(setenv("PAWL_KILL_FILE", kill_file, 1) == 0);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    struct pawl *lane = harness_open(&broker);
    struct run *r = harness_shared(sizeof *r);
    uint32_t with = 0, without = 0;
    for (uint32_t n = 0; n < 2 * VERBS * HOPS; n++) {
        uint32_t verb = n / (2 * HOPS), hop = n / 2 % HOPS;
        bool bare = n % 2 != 0;
        if (bare && (hops[hop].client || !may_have_id((enum verb)verb)))
            continue;
        harness_step("%s%s, %s", verbs[verb], bare ? " without an id" : "", hops[hop].name);
        memset(r, 0, sizeof *r);
        r->verb = (enum verb)verb;
        r->hop = &hops[hop];
        r->bare = bare;
        snprintf(r->queue, sizeof r->queue, "q-%u", n);
        snprintf(r->table, sizeof r->table, "t-%u", n);
        one(lane, r);
        *(bare ? &without : &with) += 1;
    }
    pawl_close(lane);
    harness_broker_stop(&broker);
    printf(
        "%u combinations: %u operations, each killed at %u hops, and %u without an id, killed at "
        "the broker's; each done exactly once\n",
        with + without, (unsigned)VERBS, (unsigned)HOPS, without);
    return 0;
}

#else
int main(void)
{
    harness_begin("hops_test", 60);
    harness_skip("no kill points in this build: make check-hops");
}
#endif
