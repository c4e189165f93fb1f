/* SPDX-License-Identifier: MIT */
/* The calls of the library against a peer in the same process: what goes out, what comes back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/peer.h"
#include "lib/unit.h"
#include "pawl.h"

static struct peer_log *the_log;
static struct peer *peer;
static struct pawl *lane;

static struct pawl *open_with(struct pawl_options o)
{
    struct pawl *l = NULL;
    o.size = sizeof o;
    o.dir = peer_dir();
    int rc = pawl_open(&o, &l);
    if (rc != PAWL_OK)
        fail_msg("pawl_open: %s: %s", pawl_strname(rc), pawl_last_text(NULL));
    return l;
}

static void begin(const struct peer_options *p, struct pawl_options o)
{
    the_log = peer_log_create();
    peer = peer_start(peer_dir(), the_log, p);
    lane = open_with(o);
    assert_int_equal(pawl_queue_create(lane, "q", NULL), PAWL_OK);
}

/* Both sides end; from here on the log may be looked at. */
static void stop(void)
{
    pawl_close(lane);
    lane = NULL;
    const char *why = peer_kill(peer);
    peer = NULL;
    if (why)
        fail_msg("the peer says: %s", why);
}

static void end(void)
{
    if (peer)
        stop();
    peer_log_destroy(the_log);
}

/* Numbers that a hook and the test share. */
static uint32_t shared_get(const uint32_t *n) { return pawl_load_acq_u32(n); }
static void shared_set(uint32_t *n, uint32_t v) { pawl_store_rel_u32(n, v); }

static const struct pawl_options defaults;

/* --- send, receive, settle ------------------------------------------------------------------- */

static void a_message_goes_out_and_comes_back(void **state)
{
    (void)state;
    begin(NULL, defaults);
    const struct pawl_header headers[2] = { { "a", "1" }, { "b", "" } };
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    o.key = "k";
    o.key_bytes = 1;
    o.ordering_key = "order";
    o.ordering_key_bytes = 5;
    o.headers = headers;
    o.header_count = 2;
    o.priority = 6;
    o.ttl_ns = 5 * PAWL_NS_S;
    struct pawl_sent sent;
    assert_int_equal(pawl_send(lane, "q", "body", 4, &o, &sent), PAWL_OK);
    assert_int_equal(sent.id, 1);
    assert_true(sent.lsn > 0);
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_APPLIED);
    struct pawl_message m;
    assert_int_equal(pawl_receive(lane, "q", NULL, &m), PAWL_OK);
    assert_int_equal(m.id, 1);
    assert_int_equal(m.bytes, 4);
    assert_memory_equal(m.body, "body", 4);
    assert_int_equal(m.key_bytes, 1);
    assert_memory_equal(m.key, "k", 1);
    assert_int_equal(m.ordering_key_bytes, 5);
    assert_memory_equal(m.ordering_key, "order", 5);
    assert_int_equal(m.priority, 6);
    assert_string_equal(m.queue, "q");
    assert_int_equal(m.acquired, 1);
    assert_true(m.lease_left_ns > 9 * PAWL_NS_S && m.lease_left_ns <= 10 * PAWL_NS_S);
    struct pawl_header h;
    assert_int_equal(pawl_message_header(&m, 1, &h), PAWL_OK);
    assert_string_equal(h.name, "b");
    assert_string_equal(h.value, "");
    assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_OK);
    assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_E_ALREADY_ACKED);
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_NOT_APPLIED);
    assert_int_equal(pawl_receive(lane, "q", NULL, &m), PAWL_OK_EMPTY);
    end();
}

static void every_size_comes_back_whole(void **state)
{
    (void)state;
    begin(NULL, defaults);
    uint8_t *body = malloc(1 << 20);
    assert_non_null(body);
    for (size_t i = 0; i < 1 << 20; i++)
        body[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t n = 0; n < 600; n += n < 70 ? 1 : 37) {
        struct pawl_message m;
        assert_int_equal(pawl_send(lane, "q", body, n, NULL, NULL), PAWL_OK);
        assert_int_equal(pawl_receive(lane, "q", NULL, &m), PAWL_OK);
        assert_int_equal(m.bytes, n);
        assert_memory_equal(m.body, body, n);
        assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    free(body);
    end();
}

static bool too_big_once(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, void *ctx)
{
    uint32_t *answered = ctx;
    /* What the real broker says of a delivery that does not fit into the ring. */
    if (c->type != PAWL_CMD_RECEIVE || l->out.size >= (1u << 21))
        return false;
    peer_answer(p, l, c->seq, PAWL_E_TOO_BIG, 1u << 21, 0);
    shared_set(answered, shared_get(answered) + 1);
    return true;
}

static void a_message_larger_than_the_ring_makes_a_larger_lane(void **state)
{
    (void)state;
    uint32_t answered = 0;
    struct peer_options p = { .hook = too_big_once, .ctx = &answered };
    begin(&p, (struct pawl_options){ .ring_bytes = PAWL_RING_BYTES_MIN });
    size_t n = 1 << 20;
    uint8_t *body = malloc(n);
    assert_non_null(body);
    for (size_t i = 0; i < n; i++)
        body[i] = (uint8_t)(i * 13);
    pawl_ticket t[3];
    for (int i = 0; i < 3; i++) /* open commands of the small lane are submitted again */
        assert_int_equal(pawl_submit_send(lane, "q", "small", 5, NULL, &t[i]), PAWL_OK);
    assert_int_equal(pawl_send(lane, "q", body, n, NULL, NULL), PAWL_OK);
    struct pawl_answer a[4];
    assert_int_equal(pawl_poll(lane, a, 4, 3, PAWL_NS_S), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(a[i].result, PAWL_OK);
    struct pawl_message m[4];
    const char *const q = "q";
    uint32_t count;
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    r.wait_ns = PAWL_NS_S;
    assert_int_equal(pawl_receive_batch(lane, &q, 1, &r, m, 4, &count), PAWL_OK);
    assert_int_equal(count, 4);
    assert_int_equal(m[3].bytes, n);
    assert_memory_equal(m[3].body, body, n);
    assert_int_equal(shared_get(&answered), 1);
    stop();
    assert_int_equal(the_log->message_count, 4);
    free(body);
    end();
}

static void a_batch_answers_each_item(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .window = 64 });
    static struct pawl_item items[PAWL_BATCH_MAX];
    static struct pawl_sent sent[PAWL_BATCH_MAX];
    static struct pawl_message m[PAWL_BATCH_MAX];
    static struct pawl_token tokens[PAWL_BATCH_MAX];
    static int32_t results[PAWL_BATCH_MAX];
    static uint32_t bodies[PAWL_BATCH_MAX];
    for (uint32_t i = 0; i < PAWL_BATCH_MAX; i++) {
        bodies[i] = i;
        items[i] = (struct pawl_item){ &bodies[i], sizeof bodies[i], NULL };
    }
    /* 1,024 in a lane whose window holds 64 */
    assert_int_equal(pawl_send_batch(lane, "q", items, PAWL_BATCH_MAX, sent), PAWL_OK);
    for (uint32_t i = 0; i < PAWL_BATCH_MAX; i++) {
        assert_int_equal(sent[i].result, PAWL_OK);
        assert_int_equal(sent[i].id, i + 1);
    }
    const char *const q = "q";
    uint32_t got = 0, count;
    while (got < PAWL_BATCH_MAX) {
        assert_int_equal(
            pawl_receive_batch(lane, &q, 1, NULL, m + got, PAWL_BATCH_MAX - got, &count), PAWL_OK);
        for (uint32_t i = 0; i < count; i++, got++) {
            assert_memory_equal(m[got].body, &bodies[got], 4);
            tokens[got] = m[got].token;
        }
    }
    tokens[7].random++;
    assert_int_equal(pawl_ack_batch(lane, tokens, PAWL_BATCH_MAX, 0, results), PAWL_E_NOT_FOUND);
    for (uint32_t i = 0; i < PAWL_BATCH_MAX; i++)
        assert_int_equal(results[i], i == 7 ? PAWL_E_NOT_FOUND : PAWL_OK);
    /* limits */
    assert_int_equal(pawl_send_batch(lane, "q", items, 0, sent), PAWL_E_INVALID);
    assert_int_equal(pawl_send_batch(lane, "q", items, PAWL_BATCH_MAX + 1, sent), PAWL_E_INVALID);
    assert_int_equal(pawl_ack_batch(lane, tokens, PAWL_BATCH_MAX + 1, 0, results), PAWL_E_INVALID);
    end();
}

static void what_was_received_stays_until_the_next_receive(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .ring_bytes = PAWL_RING_BYTES_MIN });
    char body[20000];
    memset(body, 'x', sizeof body);
    struct pawl_message m;
    assert_int_equal(pawl_send(lane, "q", body, sizeof body, NULL, NULL), PAWL_OK);
    assert_int_equal(pawl_receive(lane, "q", NULL, &m), PAWL_OK);
    /* More answers than the ring holds go past it while it is in our hands. */
    for (int i = 0; i < 4000; i++)
        assert_int_equal(pawl_send(lane, "q", "y", 1, NULL, NULL), PAWL_OK);
    assert_int_equal(m.bytes, sizeof body);
    assert_memory_equal(m.body, body, sizeof body);
    struct pawl_broker_info info = { .size = sizeof info };
    assert_int_equal(pawl_info(lane, &info), PAWL_OK);
    assert_string_equal(info.version, "peer");
    assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_OK);
    assert_int_equal(pawl_receive(lane, "q", NULL, &m), PAWL_OK);
    assert_int_equal(m.bytes, 1);
    end();
}

static void several_queues_are_received_together(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .prefetch = 8 });
    assert_int_equal(pawl_queue_create(lane, "r", NULL), PAWL_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pawl_send(lane, i % 2 ? "q" : "r", &"012345"[i], 1, NULL, NULL), PAWL_OK);
    const char *const queues[2] = { "r", "q" };
    struct pawl_message m[8];
    uint32_t count, r = 0, q = 0;
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    o.wait_ns = PAWL_NS_S;
    while (r + q < 6) {
        assert_int_equal(pawl_receive_batch(lane, queues, 2, &o, m, 8, &count), PAWL_OK);
        for (uint32_t i = 0; i < count; i++) {
            if (strcmp(m[i].queue, "q") == 0)
                assert_int_equal(*(const char *)m[i].body, "135"[q++]);
            else
                assert_int_equal(*(const char *)m[i].body, "024"[r++]);
            assert_int_equal(pawl_ack(lane, &m[i].token, 0), PAWL_OK);
        }
    }
    assert_int_equal(r, 3);
    const char *const twice[2] = { "q", "q" };
    assert_int_equal(pawl_receive_batch(lane, twice, 2, &o, m, 8, &count), PAWL_E_INVALID);
    end();
}

/* --- prefetch -------------------------------------------------------------------------------- */

static void prefetched_messages_are_read_from_the_ring(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .prefetch = 16 });
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(pawl_send(lane, "q", &i, 4, NULL, NULL), PAWL_OK);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    o.wait_ns = PAWL_NS_S;
    struct pawl_message m;
    assert_int_equal(pawl_receive(lane, "q", &o, &m), PAWL_OK);
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(*(const uint32_t *)m.body, i);
        assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_OK);
        if (i < 63)
            assert_int_equal(pawl_receive(lane, "q", &o, &m), PAWL_OK);
    }
    /* One SUBSCRIBE in all, and no RECEIVE: create, 64 sends, find, subscribe, 64 acks. */
    stop();
    assert_int_equal(the_log->applied, 1 + 64 + 1 + 1 + 64);
    end();
}

static void more_in_hand_than_prefetched_is_still_served(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .prefetch = 2 });
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m[8];
    o.wait_ns = PAWL_NS_S;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pawl_send(lane, "q", "x", 1, NULL, NULL), PAWL_OK);
    struct pawl_token t[8];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pawl_receive(lane, "q", &o, &m[i]), PAWL_OK);
        t[i] = m[i].token;
    }
    assert_int_equal(pawl_ack_batch(lane, t, 8, 0, NULL), PAWL_OK);
    o.wait_ns = 0;
    assert_int_equal(pawl_receive(lane, "q", &o, &m[0]), PAWL_OK_EMPTY);
    end();
}

static void an_ended_lease_is_never_handed_out(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .prefetch = 4 });
    for (int i = 0; i < 3; i++)
        assert_int_equal(pawl_send(lane, "q", &"abc"[i], 1, NULL, NULL), PAWL_OK);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.wait_ns = PAWL_NS_S;
    o.lease_ns = 30 * PAWL_NS_MS;
    assert_int_equal(pawl_receive(lane, "q", &o, &m), PAWL_OK);
    assert_int_equal(*(const char *)m.body, 'a');
    assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_OK);
    /* The other two lie in the ring; their leases run out there. */
    uint64_t until = pawl_clock_boot() + 40 * PAWL_NS_MS;
    while (pawl_clock_boot() < until)
        usleep(1000);
    for (int i = 0; i < 2; i++) {
        uint64_t before = pawl_clock_boot();
        assert_int_equal(pawl_receive(lane, "q", &o, &m), PAWL_OK);
        assert_true(m.deadline_ns > before);
        assert_true(m.lease_left_ns > 0 && m.lease_left_ns <= o.lease_ns);
        assert_true(m.acquired >= 2);
        assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    end();
}

static void at_most_once_and_leased_are_kept_apart(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .prefetch = 4 });
    for (int i = 0; i < 6; i++)
        assert_int_equal(pawl_send(lane, "q", &"abcdef"[i], 1, NULL, NULL), PAWL_OK);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.wait_ns = PAWL_NS_S;
    assert_int_equal(pawl_receive(lane, "q", &o, &m), PAWL_OK);
    assert_true(m.lease_left_ns > 0);
    o.flags = PAWL_RECEIVE_AT_MOST_ONCE;
    /* What was prefetched under a lease went back, so this one is the next in order or later. */
    assert_int_equal(pawl_receive(lane, "q", &o, &m), PAWL_OK);
    assert_int_equal(m.lease_left_ns, 0);
    assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_E_ALREADY_ACKED);
    o.flags = 0;
    assert_int_equal(pawl_receive(lane, "q", &o, &m), PAWL_OK);
    assert_true(m.lease_left_ns > 0);
    end();
}

/* --- tickets --------------------------------------------------------------------------------- */

static void tickets_come_in_order_of_arrival(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .window = 64 });
    pawl_ticket t[200];
    struct pawl_answer a[200];
    uint32_t n = 0;
    for (uint32_t i = 0; i < 120; i++) /* more than the window: submit waits for answers */
        assert_int_equal(pawl_submit_send(lane, "q", &i, 4, NULL, &t[i]), PAWL_OK);
    while (n < 120) {
        int got = pawl_poll(lane, a + n, 200 - n, 1, PAWL_NS_S);
        assert_true(got > 0);
        n += (uint32_t)got;
    }
    for (uint32_t i = 0; i < 120; i++) {
        assert_int_equal(a[i].ticket, t[i]);
        assert_int_equal(a[i].result, PAWL_OK);
        assert_int_equal(a[i].value, i + 1);
    }
    assert_int_equal(pawl_poll(lane, a, 10, 1, PAWL_NS_S), 0); /* none open: no wait */
    end();
}

static void a_ticket_can_be_waited_for_out_of_turn(void **state)
{
    (void)state;
    begin(NULL, defaults);
    pawl_ticket t[4];
    struct pawl_answer a[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pawl_submit_send(lane, "q", "x", 1, NULL, &t[i]), PAWL_OK);
    assert_int_equal(pawl_wait(lane, t[2], PAWL_NS_S, &a[0]), PAWL_OK);
    assert_int_equal(a[0].ticket, t[2]);
    assert_int_equal(pawl_wait(lane, t[2], PAWL_NS_S, &a[0]), PAWL_E_INVALID);
    assert_int_equal(pawl_wait(lane, 999999, PAWL_NS_S, &a[0]), PAWL_E_INVALID);
    assert_int_equal(pawl_poll(lane, a, 4, 3, PAWL_NS_S), 3);
    assert_int_equal(a[0].ticket, t[0]);
    assert_int_equal(a[1].ticket, t[1]);
    assert_int_equal(a[2].ticket, t[3]);
    end();
}

static void answers_that_nobody_collects_are_bounded(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .window = 64 });
    int rc = PAWL_OK;
    uint32_t n = 0;
    while (rc == PAWL_OK && n < 10000) {
        rc = pawl_submit_send(lane, "q", "x", 1, NULL, NULL);
        n += rc == PAWL_OK;
    }
    assert_int_equal(rc, PAWL_E_RESOURCE);
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_NOT_APPLIED);
    assert_non_null(strstr(pawl_last_text(lane), "pawl_poll"));
    assert_true(n >= 64);
    /* Plain calls are not held up by that. */
    assert_int_equal(pawl_send(lane, "q", "y", 1, NULL, NULL), PAWL_OK);
    struct pawl_answer a[200];
    assert_int_equal(pawl_poll(lane, a, 200, n, PAWL_NS_S), n);
    assert_int_equal(pawl_submit_send(lane, "q", "x", 1, NULL, NULL), PAWL_OK);
    end();
}

static bool swallow_sends(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, void *ctx)
{
    (void)p;
    (void)l;
    uint32_t *count = ctx;
    shared_set(count, shared_get(count) + (c->type == PAWL_CMD_SEND));
    return c->type == PAWL_CMD_SEND;
}

static void a_submit_is_visible_with_the_flush_only(void **state)
{
    (void)state;
    uint32_t count = 0;
    struct peer_options p = { .hook = swallow_sends, .ctx = &count };
    begin(&p, defaults);
    pawl_ticket t;
    assert_int_equal(pawl_submit_send(lane, "q", "x", 1, NULL, &t), PAWL_OK);
    assert_int_equal(shared_get(&count), 0); /* the last answer that we read was that of the name */
    assert_int_equal(pawl_flush(lane), PAWL_OK);
    assert_int_equal(pawl_wait(lane, t, 20 * PAWL_NS_MS, NULL), PAWL_E_DEADLINE);
    stop();
    assert_int_equal(count, 1);
    end();
}

/* --- time ------------------------------------------------------------------------------------ */

static void a_call_without_answer_ends_and_says_unknown(void **state)
{
    (void)state;
    uint32_t count = 0;
    struct peer_options p = { .hook = swallow_sends, .ctx = &count };
    begin(&p, (struct pawl_options){ .timeout_ns = 300 * PAWL_NS_MS });
    uint64_t before = pawl_clock_boot();
    assert_int_equal(pawl_send(lane, "q", "x", 1, NULL, NULL), PAWL_E_DEADLINE);
    assert_true(pawl_clock_boot() - before >= 300 * PAWL_NS_MS);
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_UNKNOWN);
    /* The lane goes on. */
    assert_int_equal(pawl_queue_create(lane, "r", NULL), PAWL_OK);
    end();
}

static bool late(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, void *ctx)
{
    (void)ctx;
    if (c->type != PAWL_CMD_SEND)
        return false;
    peer_answer(p, l, c->seq, PAWL_E_DEADLINE, 0, 0);
    return true;
}

static void what_the_broker_refused_as_late_was_not_done(void **state)
{
    (void)state;
    struct peer_options p = { .hook = late };
    begin(&p, defaults);
    assert_int_equal(pawl_send(lane, "q", "x", 1, NULL, NULL), PAWL_E_DEADLINE);
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_NOT_APPLIED);
    end();
}

static void a_lost_wake_is_made_good_by_the_back_stop(void **state)
{
    (void)state;
    struct peer_options p = { .no_wake = true };
    begin(&p, defaults);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pawl_send(lane, "q", "x", 1, NULL, NULL), PAWL_OK);
    end();
}

static void a_long_wait_ends_with_the_message(void **state)
{
    (void)state;
    begin(NULL, defaults);
    struct pawl_options o = defaults;
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    /* Long enough for the lane to go over to its watch socket, and twice. */
    r.wait_ns = 300 * PAWL_NS_MS;
    for (int i = 0; i < 2; i++) {
        uint64_t before = pawl_clock_boot();
        assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_OK_EMPTY);
        assert_true(pawl_clock_boot() - before >= r.wait_ns);
    }
    pid_t child = fork();
    if (child == 0) {
        struct pawl *mine = NULL;
        o.size = sizeof o;
        o.dir = peer_dir();
        int rc = pawl_open(&o, &mine);
        usleep(150000);
        if (rc == PAWL_OK)
            rc = pawl_send(mine, "q", "x", 1, NULL, NULL);
        _exit(rc == PAWL_OK ? 0 : 1);
    }
    r.wait_ns = PAWL_UNLIMITED;
    /* The peer knows one session: the child's opening made ours unknown, but nothing is asked of
     * it while it lives, and messages are its own. */
    assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_OK);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    end();
}

/* --- refusals -------------------------------------------------------------------------------- */

static bool full_first(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, void *ctx)
{
    uint32_t *left = ctx;
    if (c->type != PAWL_CMD_SEND || shared_get(left) == 0)
        return false;
    shared_set(left, shared_get(left) - 1);
    peer_answer(p, l, c->seq, PAWL_E_FULL, PAWL_LIMIT_MEMORY, 0);
    return true;
}

static void a_full_queue_is_waited_for_if_asked(void **state)
{
    (void)state;
    uint32_t left = 1;
    struct peer_options p = { .hook = full_first, .ctx = &left };
    begin(&p, defaults);
    assert_int_equal(pawl_send(lane, "q", "x", 1, NULL, NULL), PAWL_E_FULL);
    assert_non_null(strstr(pawl_last_text(lane), "--memory"));
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_NOT_APPLIED);
    shared_set(&left, 5);
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    o.wait_room_ns = 5 * PAWL_NS_S;
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_OK);
    assert_string_equal(pawl_last_text(lane), "");
    assert_int_equal(shared_get(&left), 0);
    shared_set(&left, UINT32_MAX);
    o.wait_room_ns = 20 * PAWL_NS_MS;
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_FULL);
    end();
}

static void a_queue_made_anew_is_found_again(void **state)
{
    (void)state;
    begin(NULL, defaults);
    struct pawl *other = NULL;
    assert_int_equal(pawl_lane_open(lane, &other), PAWL_OK);
    assert_int_equal(pawl_send(lane, "q", "1", 1, NULL, NULL), PAWL_OK);
    assert_int_equal(pawl_queue_drop(other, "q"), PAWL_OK);
    assert_int_equal(pawl_queue_create(other, "q", NULL), PAWL_OK);
    assert_int_equal(pawl_send(lane, "q", "2", 1, NULL, NULL), PAWL_OK);
    assert_int_equal(pawl_queue_drop(other, "q"), PAWL_OK);
    assert_int_equal(pawl_send(lane, "q", "3", 1, NULL, NULL), PAWL_E_NOT_FOUND);
    assert_non_null(strstr(pawl_last_text(lane), "pawl create q"));
    pawl_close(other);
    stop();
    assert_int_equal(the_log->messages[1].queue, 2);
    end();
}

static void arguments_are_checked_before_anything_is_sent(void **state)
{
    (void)state;
    begin(NULL, defaults);
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_token t = { 1, 2, 3 };
    struct pawl_message m;
    char reason[PAWL_REASON_BYTES_MAX + 2];
    memset(reason, 'r', sizeof reason);
    reason[PAWL_REASON_BYTES_MAX + 1] = '\0';
    assert_int_equal(pawl_send(lane, "no such name", "x", 1, NULL, NULL), PAWL_E_INVALID);
    assert_int_equal(pawl_send(lane, NULL, "x", 1, NULL, NULL), PAWL_E_INVALID);
    assert_int_equal(pawl_send(lane, "q", NULL, 1, NULL, NULL), PAWL_E_INVALID);
    assert_int_equal(pawl_send(lane, "q", "x", PAWL_MESSAGE_BYTES_MAX + 1ull, NULL, NULL),
                     PAWL_E_TOO_BIG);
    o.priority = 8;
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_INVALID);
    o.priority = 0;
    o.delay_ns = PAWL_DELAY_NS_MAX + 1;
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_INVALID);
    o.delay_ns = 0;
    o.key = "k";
    o.key_bytes = 256;
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_INVALID);
    o.key_bytes = 0; /* forgotten: not the same as no key */
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_INVALID);
    assert_non_null(strstr(pawl_last_text(lane), "key_bytes"));
    o.key = NULL;
    o.key_bytes = 1;
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_INVALID);
    o.key_bytes = 0;
    o.ordering_key = "k";
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_INVALID);
    o.ordering_key = NULL;
    o.size = 0;
    assert_int_equal(pawl_send(lane, "q", "x", 1, &o, NULL), PAWL_E_INVALID);
    r.lease_ns = PAWL_LEASE_NS_MIN - 1;
    assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_E_INVALID);
    r.lease_ns = PAWL_LEASE_NS_MAX + 1;
    assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_E_INVALID);
    r.lease_ns = 0;
    r.lease_kind = 3;
    assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_E_INVALID);
    assert_int_equal(pawl_ack(lane, NULL, 0), PAWL_E_INVALID);
    assert_int_equal(pawl_ack(lane, &t, 0x80), PAWL_E_INVALID);
    assert_int_equal(pawl_nack(lane, &t, 0, reason), PAWL_E_INVALID);
    assert_int_equal(pawl_renew(lane, &t, 0), PAWL_E_INVALID);
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_NOT_APPLIED);
    reason[PAWL_REASON_BYTES_MAX] = '\0';
    assert_int_equal(pawl_nack(lane, &t, 0, reason), PAWL_E_NOT_FOUND);
    assert_non_null(strstr(pawl_last_text(lane), "no delivery has this token"));
    stop();
    assert_int_equal(the_log->applied, 2); /* the create and that nack */
    end();
}

static void data_is_put_together(void **state)
{
    (void)state;
    begin(NULL, defaults);
    char text[64];
    assert_int_equal(pawl_metrics(lane, text, sizeof text), 6);
    assert_string_equal(text, "abc 1\n");
    assert_int_equal(pawl_metrics(lane, text, 4), 6);
    assert_string_equal(text, "abc");
    assert_int_equal(pawl_metrics(lane, NULL, 0), 6);
    end();
}

/* --- open and close -------------------------------------------------------------------------- */

static void without_a_broker_it_says_what_to_start(void **state)
{
    (void)state;
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl *l = (void *)1;
    o.dir = peer_dir();
    o.flags = PAWL_OPEN_NO_WAIT;
    assert_int_equal(pawl_open(&o, &l), PAWL_E_BROKER_DOWN);
    assert_null(l);
    char want[200];
    snprintf(want, sizeof want, "`pawld --dir %s`", peer_dir());
    assert_non_null(strstr(pawl_last_text(NULL), want));
    o.flags = 0;
    o.timeout_ns = 30 * PAWL_NS_MS;
    uint64_t before = pawl_clock_boot();
    assert_int_equal(pawl_open(&o, &l), PAWL_E_BROKER_DOWN);
    assert_true(pawl_clock_boot() - before >= 10 * PAWL_NS_MS);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    struct pawl *l;
    char path[120];
    memset(path, 'p', sizeof path);
    path[108] = '\0';
#define REFUSED(...)                                                           \
    do {                                                                       \
        struct pawl_options o = { .size = sizeof o, .dir = "/", __VA_ARGS__ }; \
        assert_int_equal(pawl_open(&o, &l), PAWL_E_INVALID);                   \
        assert_string_not_equal(pawl_last_text(NULL), "");                     \
    } while (0)
    REFUSED(.window = 63);
    REFUSED(.window = 65537);
    REFUSED(.ring_bytes = 32768);
    REFUSED(.ring_bytes = 100000);
    REFUSED(.ring_bytes = 1u << 27);
    REFUSED(.prefetch = 1025);
    REFUSED(.flags = 2);
    REFUSED(.socket = path);
    REFUSED(.label = "0123456789012345678901234567890123456789012345678901234567890123");
    struct pawl_options none = { .size = 0 };
    assert_int_equal(pawl_open(&none, &l), PAWL_E_INVALID);
    assert_int_equal(pawl_open(NULL, NULL), PAWL_E_INVALID);
    assert_string_not_equal(pawl_last_text(NULL), "");
    REFUSED(.socket = "");
    struct pawl_options nowhere = { .size = sizeof nowhere, .dir = "" };
    assert_int_equal(pawl_open(&nowhere, &l), PAWL_E_INVALID);
    assert_non_null(strstr(pawl_last_text(NULL), "dir is empty"));
    static const char *const variables[] = { "PAWL_DIR", "PAWL_SOCKET" };
    struct pawl_options defaulted = { .size = sizeof defaulted, .flags = PAWL_OPEN_NO_WAIT };
    for (int i = 0; i < 2; i++) {
        (void)unsetenv(variables[!i]);
        (void)setenv(variables[i], "", 1);
        assert_int_equal(pawl_open(&defaulted, &l), PAWL_E_INVALID);
        assert_non_null(strstr(pawl_last_text(NULL), variables[i]));
        (void)unsetenv(variables[i]);
    }
    l = (void *)1;
    assert_int_equal(pawl_lane_open(NULL, &l), PAWL_E_INVALID);
    assert_null(l);
    assert_non_null(strstr(pawl_last_text(NULL), "pawl_open()"));
    struct pawl_token token;
    assert_int_equal(pawl_token_parse(NULL, &token), PAWL_E_INVALID);
    assert_non_null(strstr(pawl_last_text(NULL), "text and out"));
    assert_int_equal(pawl_token_parse("123", &token), PAWL_E_INVALID);
    assert_non_null(strstr(pawl_last_text(NULL), "48 hexadecimal digits, as pawl_token_format()"));
    path[107] = '\0'; /* this one is allowed; nobody listens there */
    struct pawl_options o = { .size = sizeof o, .socket = path, .flags = PAWL_OPEN_NO_WAIT };
    assert_int_equal(pawl_open(&o, &l), PAWL_E_BROKER_DOWN);
}

static void another_version_is_named(void **state)
{
    (void)state;
    struct peer_options p = { .version = 7 };
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl *l;
    the_log = peer_log_create();
    peer = peer_start(peer_dir(), the_log, &p);
    o.dir = peer_dir();
    assert_int_equal(pawl_open(&o, &l), PAWL_E_ABI);
    assert_non_null(strstr(pawl_last_text(NULL), "7/"));
    assert_non_null(strstr(pawl_last_text(NULL), PAWL_VERSION));
    assert_null(peer_kill(peer));
    peer_log_destroy(the_log);
}

static void lanes_share_a_session_and_come_and_go(void **state)
{
    (void)state;
    begin(NULL, defaults);
    for (int round = 0; round < 5; round++) {
        struct pawl *more[PEER_LANES - 1];
        for (unsigned i = 0; i < PEER_LANES - 1; i++)
            assert_int_equal(pawl_lane_open(lane, &more[i]), PAWL_OK);
        struct pawl *one_too_many;
        assert_int_equal(pawl_lane_open(lane, &one_too_many), PAWL_E_QUOTA);
        assert_null(one_too_many);
        for (unsigned i = 0; i < PEER_LANES - 1; i++) {
            struct pawl_broker_info info = { .size = sizeof info };
            assert_int_equal(pawl_send(more[i], "q", "x", 1, NULL, NULL), PAWL_OK);
            assert_int_equal(pawl_info(more[i], &info), PAWL_OK);
            assert_int_equal(info.session, 1);
            pawl_close(more[i]);
        }
    }
    assert_int_equal(pawl_send(lane, "q", "x", 1, NULL, NULL), PAWL_OK);
    pawl_close(NULL);
    end();
}

static void a_closed_lane_gives_back_what_it_held_ready(void **state)
{
    (void)state;
    begin(NULL, (struct pawl_options){ .prefetch = 8 });
    struct pawl *other;
    struct pawl_message m;
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    r.wait_ns = PAWL_NS_S;
    assert_int_equal(pawl_lane_open(lane, &other), PAWL_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pawl_send(lane, "q", &"abcd"[i], 1, NULL, NULL), PAWL_OK);
    assert_int_equal(pawl_receive(other, "q", &r, &m), PAWL_OK);
    assert_int_equal(pawl_ack(other, &m.token, 0), PAWL_OK);
    pawl_close(other);
    /* b, c and d waited in the other's ring; no lease has to end first. */
    for (int i = 1; i < 4; i++) {
        assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_OK);
        assert_int_equal(*(const char *)m.body, "abcd"[i]);
    }
    end();
}

static void a_forked_child_is_told(void **state)
{
    (void)state;
    begin(NULL, defaults);
    int fd = pawl_fd(lane);
    assert_true(fd >= 0);
    pid_t child = fork();
    if (child == 0) {
        /* No assertion in a child: the number says what was wrong. */
        struct pawl_message m;
        struct pawl_answer a;
        struct pawl_broker_info info = { .size = sizeof info };
        struct pawl *other;
        if (pawl_send(lane, "q", "x", 1, NULL, NULL) != PAWL_E_FORKED)
            _exit(1);
        if (!strstr(pawl_last_text(lane), "pawl_open()") || pawl_last_text(NULL)[0] == '\0' ||
            pawl_last_outcome(lane) != PAWL_OUTCOME_NOT_APPLIED)
            _exit(8);
        if (pawl_receive(lane, "q", NULL, &m) != PAWL_E_FORKED)
            _exit(2);
        if (pawl_poll(lane, &a, 1, 0, 0) != PAWL_E_FORKED || pawl_flush(lane) != PAWL_E_FORKED)
            _exit(3);
        if (pawl_info(lane, &info) != PAWL_E_FORKED || pawl_fd(lane) != PAWL_E_FORKED)
            _exit(4);
        if (pawl_lane_open(lane, &other) != PAWL_E_FORKED ||
            !strstr(pawl_last_text(lane), "pawl_open()"))
            _exit(5);
        pawl_close(lane);
        /* A session of the child's own works. */
        struct pawl_options o = PAWL_OPTIONS_INIT;
        o.dir = peer_dir();
        struct pawl *mine;
        if (pawl_open(&o, &mine) != PAWL_OK)
            _exit(6);
        if (pawl_send(mine, "q", "child", 5, NULL, NULL) != PAWL_OK)
            _exit(7);
        pawl_close(mine);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(pawl_send(lane, "q", "x", 1, NULL, NULL), PAWL_OK);
    end();
}

static void results_have_names(void **state)
{
    (void)state;
    assert_string_equal(pawl_strname(PAWL_E_FULL), "PAWL_E_FULL");
    assert_int_equal(pawl_outcome_class(PAWL_E_DEADLINE), PAWL_OUTCOME_UNKNOWN);
    assert_int_equal(pawl_advice(PAWL_E_FULL), PAWL_ADVICE_RETRY_SAME_ID);
    assert_non_null(pawl_strerror(12345));
    assert_int_equal(pawl_send(NULL, "q", "x", 1, NULL, NULL), PAWL_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_goes_out_and_comes_back),
        cmocka_unit_test(every_size_comes_back_whole),
        cmocka_unit_test(a_message_larger_than_the_ring_makes_a_larger_lane),
        cmocka_unit_test(a_batch_answers_each_item),
        cmocka_unit_test(what_was_received_stays_until_the_next_receive),
        cmocka_unit_test(several_queues_are_received_together),
        cmocka_unit_test(prefetched_messages_are_read_from_the_ring),
        cmocka_unit_test(more_in_hand_than_prefetched_is_still_served),
        cmocka_unit_test(an_ended_lease_is_never_handed_out),
        cmocka_unit_test(at_most_once_and_leased_are_kept_apart),
        cmocka_unit_test(tickets_come_in_order_of_arrival),
        cmocka_unit_test(a_ticket_can_be_waited_for_out_of_turn),
        cmocka_unit_test(answers_that_nobody_collects_are_bounded),
        cmocka_unit_test(a_submit_is_visible_with_the_flush_only),
        cmocka_unit_test(a_call_without_answer_ends_and_says_unknown),
        cmocka_unit_test(what_the_broker_refused_as_late_was_not_done),
        cmocka_unit_test(a_lost_wake_is_made_good_by_the_back_stop),
        cmocka_unit_test(a_long_wait_ends_with_the_message),
        cmocka_unit_test(a_full_queue_is_waited_for_if_asked),
        cmocka_unit_test(a_queue_made_anew_is_found_again),
        cmocka_unit_test(arguments_are_checked_before_anything_is_sent),
        cmocka_unit_test(data_is_put_together),
        cmocka_unit_test(without_a_broker_it_says_what_to_start),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(lanes_share_a_session_and_come_and_go),
        cmocka_unit_test(a_closed_lane_gives_back_what_it_held_ready),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(results_have_names),
    };
    (void)alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
