/* SPDX-License-Identifier: MIT */
/* The broker dies and comes back, at every command, before and after it decided it: every call gets
 * its one definite answer, and nothing is done twice or lost (G6). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "base/clock.h"
#include "base/prng.h"
#include "lib/peer.h"
#include "lib/unit.h"
#include "pawl.h"

/* --- a broker that is started again whenever it dies ----------------------------------------- */

static struct keeper {
    struct peer_log *log;
    struct peer_options first, later;
    struct peer *peer;
    pthread_t thread;
    uint32_t stop, deaths;
    uint64_t pause_us;
    bool forget; /* after the first death the log is another one */
    const char *failure;
} keeper;

static void *keep(void *unused)
{
    (void)unused;
    while (peer_wait(keeper.peer)) {
        const char *why = peer_kill(keeper.peer);
        if (!keeper.failure)
            keeper.failure = why;
        (void)pawl_add_seq_u32(&keeper.deaths, 1);
        if (keeper.pause_us)
            usleep((useconds_t)keeper.pause_us);
        if (keeper.forget)
            keeper.log->session_known = false;
        keeper.peer = peer_start(peer_dir(), keeper.log, &keeper.later);
    }
    return NULL;
}

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

static const struct peer_options plain;
static const struct pawl_options defaults;

static void begin(struct peer_options first, struct peer_options later, struct pawl_options o)
{
    uint64_t pause = keeper.pause_us;
    bool forget = keeper.forget;
    memset(&keeper, 0, sizeof keeper);
    keeper.pause_us = pause;
    keeper.forget = forget;
    keeper.first = first;
    keeper.later = later;
    keeper.log = peer_log_create();
    keeper.peer = peer_start(peer_dir(), keeper.log, &keeper.first);
    lane = open_with(o);
    assert_int_equal(pthread_create(&keeper.thread, NULL, keep, NULL), 0);
}

/* Both sides end; from here on the log may be looked at. A peer that lives is told by its socket:
 * nobody is attached any more and the next connection says so. */
static void stop(void)
{
    pawl_close(lane);
    lane = NULL;
    peer_retire(peer_dir());
    assert_int_equal(pthread_join(keeper.thread, NULL), 0);
    const char *why = peer_kill(keeper.peer);
    if (!keeper.failure)
        keeper.failure = why;
    if (keeper.failure)
        fail_msg("the peer says: %s", keeper.failure);
}

static void end(void)
{
    peer_log_destroy(keeper.log);
    keeper.pause_us = 0;
    keeper.forget = false;
}

static uint32_t live_messages(uint8_t state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < keeper.log->message_count; i++)
        n += keeper.log->messages[i].state == state;
    return n;
}

/* --- plain calls ----------------------------------------------------------------------------- */

/* create, then sends, receives and acks, one at a time. Returns the number of commands. */
static void plain_work(void)
{
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    struct pawl_sent sent;
    r.wait_ns = 5 * PAWL_NS_S;
    assert_true(pawl_queue_create(lane, "q", NULL) >= 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pawl_send(lane, "q", &i, 4, NULL, &sent), PAWL_OK);
        assert_int_equal(sent.id, i + 1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_OK);
        assert_int_equal(*(const uint32_t *)m.body, i);
        assert_int_equal(m.acquired, 1);
        assert_int_equal(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
}

static void plain_calls_survive_a_death_at_every_command(void **state)
{
    (void)state;
    for (unsigned decided = 0; decided < 2; decided++)
        for (uint64_t at = 1; at <= 14; at++) {
            begin((struct peer_options){ .die_at = at, .die_decided = decided }, plain, defaults);
            plain_work();
            struct pawl_broker_info info = { .size = sizeof info };
            assert_int_equal(pawl_info(lane, &info), PAWL_OK);
            assert_int_equal(info.reattached, 1);
            stop();
            assert_int_equal(keeper.deaths, 1);
            assert_int_equal(keeper.log->message_count, 4);
            assert_int_equal(live_messages(PAWL_STATE_ACKED), 4);
            assert_true(keeper.log->resubmitted > 0);
            end();
        }
}

static void and_with_prefetch(void **state)
{
    (void)state;
    for (unsigned decided = 0; decided < 2; decided++)
        for (uint64_t at = 1; at <= 12; at++) {
            begin((struct peer_options){ .die_at = at, .die_decided = decided }, plain,
                  (struct pawl_options){ .prefetch = 3 });
            plain_work();
            stop();
            assert_int_equal(keeper.log->message_count, 4);
            assert_int_equal(live_messages(PAWL_STATE_ACKED), 4);
            end();
        }
}

/* --- many in flight -------------------------------------------------------------------------- */

/* Every broker dies after some commands, until enough of them have: the work goes on across. */
static void tickets_survive_many_deaths(void **state)
{
    (void)state;
    const char *s = getenv("PAWL_SEED");
    struct pawl_prng prng = { s ? strtoull(s, NULL, 0) : (uint64_t)getpid() };
    print_message("seed: PAWL_SEED=%llu\n", (unsigned long long)prng.state);
    for (int round = 0; round < 6; round++) {
        begin((struct peer_options){ .die_at = 20 + pawl_prng_below(&prng, 50),
                                     .die_decided = round & 1 },
              (struct peer_options){ .die_at = 700 + pawl_prng_below(&prng, 300),
                                     .die_decided = round & 2 },
              (struct pawl_options){ .window = 256, .ring_bytes = PAWL_RING_BYTES_MIN });
        assert_true(pawl_queue_create(lane, "q", NULL) >= 0);
        enum { N = 3000 };
        static uint64_t ids[N];
        static pawl_ticket tickets[N];
        uint32_t answered = 0, acks = 0;
        memset(ids, 0, sizeof ids);
        for (uint32_t i = 0; i < N || answered < N;) {
            struct pawl_answer a[64];
            for (unsigned k = 0; k < 40 && i < N; k++, i++)
                assert_int_equal(pawl_submit_send(lane, "q", &i, 4, NULL, &tickets[i]), PAWL_OK);
            int n = pawl_poll(lane, a, 64, 1, 5 * PAWL_NS_S);
            assert_true(n > 0);
            for (int k = 0; k < n; k++, answered++) {
                assert_int_equal(a[k].result, PAWL_OK);
                uint32_t which = (uint32_t)(a[k].ticket - tickets[0]);
                assert_true(which < N && ids[which] == 0);
                ids[which] = a[k].value;
            }
        }
        /* Take them all out again; the broker dies meanwhile, too. */
        const char *const q = "q";
        struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
        r.wait_ns = 2 * PAWL_NS_S;
        uint32_t count;
        while (acks < N) {
            struct pawl_message m[50];
            struct pawl_token t[50];
            assert_int_equal(pawl_receive_batch(lane, &q, 1, &r, m, 50, &count), PAWL_OK);
            for (uint32_t k = 0; k < count; k++) {
                assert_int_equal(*(const uint32_t *)m[k].body, acks + k);
                assert_int_equal(m[k].acquired, 1);
                t[k] = m[k].token;
            }
            assert_int_equal(pawl_ack_batch(lane, t, count, 0, NULL), PAWL_OK);
            acks += count;
        }
        stop();
        assert_true(keeper.deaths >= 3);
        assert_int_equal(keeper.log->message_count, N);
        assert_int_equal(live_messages(PAWL_STATE_ACKED), N);
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(*(const uint32_t *)(const void *)keeper.log->messages[ids[i] - 1].body,
                             i);
        end();
    }
}

/* --- what is open stays in our memory --------------------------------------------------------- */

/* Reads everything, answers all but the first send, and dies when nothing more comes: by then a
 * library that counts what is read as free has written over that first one. */
static bool hold_the_first(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, void *ctx)
{
    uint64_t *first = ctx;
    (void)p;
    (void)l;
    if (c->type != PAWL_CMD_SEND)
        return false;
    if (*first == 0)
        *first = c->seq;
    return c->seq == *first;
}

static struct peer *second;
static void *replace_later(void *arg)
{
    struct peer *peer = arg;
    struct peer_log *log = peer->log;
    /* Longer than the submitter needs to fill the ring; if not, the test sees less, not wrong. */
    usleep(200000);
    const char *why = peer_kill(peer);
    second = peer_start(peer_dir(), log, &plain);
    return (void *)(uintptr_t)why;
}

static void an_open_command_is_not_overwritten(void **state)
{
    (void)state;
    enum { N = 200, BYTES = 1000 };
    static uint8_t body[BYTES];
    static struct pawl_answer a[N];
    uint64_t first = 0;
    struct peer_options o = { .hook = hold_the_first, .ctx = &first };
    struct peer_log *log = peer_log_create();
    struct peer *peer = peer_start(peer_dir(), log, &o);
    struct pawl *l =
        open_with((struct pawl_options){ .ring_bytes = PAWL_RING_BYTES_MIN, .window = 1024 });
    assert_int_equal(pawl_queue_create(l, "q", NULL), PAWL_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, replace_later, peer), 0);
    /* A ring of 64 KiB holds some 60 of these: the next one waits for the answer of the first,
     * which the second peer gives. */
    for (uint32_t i = 0; i < N; i++) {
        memset(body, (int)i, sizeof body);
        assert_int_equal(pawl_submit_send(l, "q", body, sizeof body, NULL, NULL), PAWL_OK);
    }
    assert_int_equal(pawl_poll(l, a, N, N, 10 * PAWL_NS_S), N);
    void *why;
    assert_int_equal(pthread_join(thread, &why), 0);
    if (why)
        fail_msg("the peer says: %s", (const char *)why);
    pawl_close(l);
    assert_null(peer_kill(second));
    assert_true(first != 0);
    assert_int_equal(log->message_count, N);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(a[i].result, PAWL_OK);
        const struct peer_message *m = &log->messages[a[i].value - 1];
        assert_int_equal(m->body_bytes, BYTES);
        memset(body, (int)(a[i].ticket - first), sizeof body);
        assert_memory_equal(m->body, body, BYTES);
    }
    peer_log_destroy(log);
}

/* --- several lanes --------------------------------------------------------------------------- */

static void *lane_work(void *arg)
{
    struct pawl *mine = arg;
    for (uint32_t i = 0; i < 200; i++)
        if (pawl_send(mine, "q", &i, 4, NULL, NULL) != PAWL_OK)
            return (void *)pawl_last_text(mine);
    return NULL;
}

static void all_lanes_come_back(void **state)
{
    (void)state;
    begin((struct peer_options){ .die_at = 100 }, (struct peer_options){ .die_at = 300 }, defaults);
    assert_true(pawl_queue_create(lane, "q", NULL) >= 0);
    struct pawl *lanes[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pawl_lane_open(lane, &lanes[i]), PAWL_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, lane_work, lanes[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *why;
        assert_int_equal(pthread_join(threads[i], &why), 0);
        if (why)
            fail_msg("lane %d: %s", i, (const char *)why);
        pawl_close(lanes[i]);
    }
    stop();
    assert_true(keeper.deaths >= 2);
    assert_int_equal(keeper.log->message_count, 800);
    end();
}

/* --- a wait that outlasts the broker --------------------------------------------------------- */

static void *send_later(void *arg)
{
    struct pawl *mine = arg;
    while (pawl_load_acq_u32(&keeper.deaths) == 0)
        usleep(1000);
    int rc = pawl_send(mine, "q", "x", 1, NULL, NULL);
    return rc == PAWL_OK ? NULL : (void *)(uintptr_t)pawl_strname(rc);
}

static bool die_while_waiting(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c,
                              void *ctx)
{
    (void)l;
    (void)ctx;
    if (c->type == PAWL_CMD_RECEIVE)
        p->dead = true;
    return p->dead;
}

static void a_receive_waits_on_across_a_death(void **state)
{
    (void)state;
    keeper.pause_us = 30000;
    begin((struct peer_options){ .hook = die_while_waiting }, plain, defaults);
    assert_true(pawl_queue_create(lane, "q", NULL) >= 0);
    pthread_t thread;
    struct pawl *other;
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    void *why;
    r.wait_ns = PAWL_UNLIMITED;
    assert_int_equal(pawl_lane_open(lane, &other), PAWL_OK);
    assert_int_equal(pthread_create(&thread, NULL, send_later, other), 0);
    assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_OK);
    assert_memory_equal(m.body, "x", 1);
    assert_int_equal(pthread_join(thread, &why), 0);
    if (why)
        fail_msg("the sender got %s", (const char *)why);
    pawl_close(other);
    stop();
    assert_int_equal(keeper.deaths, 1);
    end();
}

/* --- no broker, another broker --------------------------------------------------------------- */

static void without_a_new_broker_calls_end_and_say_unknown(void **state)
{
    (void)state;
    struct peer_log *log = peer_log_create();
    struct peer *peer = peer_start(peer_dir(), log, NULL);
    struct pawl *l = open_with((struct pawl_options){ .timeout_ns = 200 * PAWL_NS_MS });
    assert_int_equal(pawl_queue_create(l, "q", NULL), PAWL_OK);
    assert_int_equal(pawl_send(l, "q", "1", 1, NULL, NULL), PAWL_OK);
    pawl_ticket t;
    assert_int_equal(pawl_submit_send(l, "q", "2", 1, NULL, &t), PAWL_OK);
    assert_null(peer_kill(peer));
    /* The lane does not know yet: this one is submitted, to nobody. */
    assert_int_equal(pawl_send(l, "q", "3", 1, NULL, NULL), PAWL_E_BROKER_DOWN);
    assert_int_equal(pawl_last_outcome(l), PAWL_OUTCOME_UNKNOWN);
    assert_non_null(strstr(pawl_last_text(l), "pawld --dir"));
    /* Now it does: this one is not. */
    assert_int_equal(pawl_send(l, "q", "4", 1, NULL, NULL), PAWL_E_BROKER_DOWN);
    assert_int_equal(pawl_last_outcome(l), PAWL_OUTCOME_NOT_APPLIED);
    struct pawl_answer a;
    assert_int_equal(pawl_wait(l, t, 20 * PAWL_NS_MS, &a), PAWL_E_BROKER_DOWN);
    /* A broker comes: what was open is submitted again. Number 3 is refused by its deadline, the
     * ticket is as old and ends in the same way; nobody is told a lie. */
    peer = peer_start(peer_dir(), log, NULL);
    assert_int_equal(pawl_wait(l, t, 5 * PAWL_NS_S, &a), PAWL_OK);
    assert_true(a.result == PAWL_OK || a.result == PAWL_E_DEADLINE);
    assert_int_equal(pawl_send(l, "q", "5", 1, NULL, NULL), PAWL_OK);
    pawl_close(l);
    assert_null(peer_kill(peer));
    uint32_t n = 0;
    for (uint32_t i = 0; i < log->message_count; i++) {
        char c = (char)log->messages[i].body[0];
        assert_true(c == '1' || c == '5' || (c == '2' && a.result == PAWL_OK));
        n++;
    }
    assert_int_equal(n, a.result == PAWL_OK ? 3 : 2);
    peer_log_destroy(log);
}

static void a_broker_that_does_not_know_us_makes_open_calls_unknown(void **state)
{
    (void)state;
    keeper.forget = true;
    begin((struct peer_options){ .die_at = 4 }, plain, (struct pawl_options){ .prefetch = 2 });
    assert_true(pawl_queue_create(lane, "q", NULL) >= 0);
    assert_int_equal(pawl_send(lane, "q", "1", 1, NULL, NULL), PAWL_OK);
    /* Command 4: dies undecided, and the next broker has never heard of us. */
    assert_int_equal(pawl_send(lane, "q", "2", 1, NULL, NULL), PAWL_E_OUTCOME_UNKNOWN);
    assert_int_equal(pawl_last_outcome(lane), PAWL_OUTCOME_UNKNOWN);
    /* The lane goes on as a new session, with seqs from 1 and tickets that go on. */
    pawl_ticket t;
    struct pawl_answer a;
    assert_int_equal(pawl_submit_send(lane, "q", "3", 1, NULL, &t), PAWL_OK);
    assert_true(t > 4);
    assert_int_equal(pawl_wait(lane, t, PAWL_NS_S, &a), PAWL_OK);
    assert_int_equal(a.result, PAWL_OK);
    struct pawl_message m;
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    r.wait_ns = PAWL_NS_S;
    assert_int_equal(pawl_receive(lane, "q", &r, &m), PAWL_OK);
    assert_int_equal(*(const char *)m.body, '1');
    stop();
    assert_int_equal(keeper.log->session, 2);
    assert_int_equal(keeper.log->message_count, 2);
    end();
}

/* The session never came into the log, and the next broker can tell. */
static void a_session_without_a_record_is_begun_again(void **state)
{
    (void)state;
    for (uint64_t at = 2; at <= 6; at++) {
        keeper.forget = true;
        begin((struct peer_options){ .die_at = at }, (struct peer_options){ .young = true },
              defaults);
        /* What the peer did is in its log all the same; a real one would have taken the session
         * back with it. So only what it did not decide is asked of it here. */
        pawl_ticket t[4];
        struct pawl_answer a[4];
        int rc = pawl_queue_create(lane, "q", NULL);
        assert_true(rc >= 0);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(pawl_submit_send(lane, "q", &i, 4, NULL, &t[i]), PAWL_OK);
        uint32_t n = 0;
        while (n < 4) {
            int got = pawl_poll(lane, a + n, 4 - n, 4 - n, 5 * PAWL_NS_S);
            assert_true(got > 0);
            n += (uint32_t)got;
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(a[i].ticket, t[i]);
            assert_int_equal(a[i].result, PAWL_OK);
        }
        stop();
        assert_int_equal(keeper.deaths, 1);
        assert_int_equal(keeper.log->session, 2);
        /* The peer had answered nothing of these when it died, but for at > 3 done some. */
        assert_true(keeper.log->message_count >= 4);
        end();
    }
}

/* Questions may be asked of any broker, by name; by number only of the same log. */
static void questions_are_asked_again(void **state)
{
    (void)state;
    for (uint8_t other = 0; other < 2; other++) {
        keeper.forget = true;
        begin((struct peer_options){ .die_at = 2 }, (struct peer_options){ .log_id = other },
              defaults);
        assert_int_equal(pawl_queue_create(lane, "q", NULL), PAWL_OK);
        char text[16];
        assert_int_equal(pawl_metrics(lane, text, sizeof text), 6);
        stop();
        assert_int_equal(keeper.deaths, 1);
        end();
        keeper.forget = true;
        begin((struct peer_options){ .die_at = 3 }, (struct peer_options){ .log_id = other },
              defaults);
        assert_int_equal(pawl_queue_create(lane, "q", NULL), PAWL_OK);
        struct pawl_message m;
        assert_int_equal(pawl_receive(lane, "q", NULL, &m),
                         other ? PAWL_E_OUTCOME_UNKNOWN : PAWL_OK_EMPTY);
        stop();
        assert_int_equal(keeper.deaths, 1);
        end();
    }
}

/* --- what was published is true -------------------------------------------------------------- */

static bool publish_and_die(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c,
                            void *ctx)
{
    (void)ctx;
    if (c->type != PAWL_CMD_SEND)
        return false;
    /* Answered, but forgotten: the next broker's log does not have it. Only the ring tells. */
    peer_answer(p, l, c->seq, PAWL_OK, 4711, 42);
    peer_publish(p, l);
    p->dead = true;
    return true;
}

static void an_answer_published_before_the_death_counts(void **state)
{
    (void)state;
    begin((struct peer_options){ .hook = publish_and_die, .no_wake = true }, plain, defaults);
    assert_true(pawl_queue_create(lane, "q", NULL) >= 0);
    struct pawl_sent sent;
    assert_int_equal(pawl_send(lane, "q", "1", 1, NULL, &sent), PAWL_OK);
    assert_int_equal(sent.id, 4711);
    assert_int_equal(pawl_send(lane, "q", "2", 1, NULL, &sent), PAWL_OK);
    stop();
    assert_int_equal(keeper.log->message_count, 1);
    end();
}

static bool close_lane(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, void *ctx)
{
    (void)c;
    peer_close_lane(p, l, *(int32_t *)ctx);
    return true;
}

static void a_lane_closed_for_good_says_why(void **state)
{
    (void)state;
    static const int32_t reasons[2] = { PAWL_E_PROTOCOL, PAWL_E_EPOCH };
    for (int i = 0; i < 2; i++) {
        struct peer_log *log = peer_log_create();
        struct peer_options o = { .hook = close_lane, .ctx = (void *)(uintptr_t)&reasons[i] };
        struct peer *peer = peer_start(peer_dir(), log, &o);
        struct pawl *l = open_with(defaults);
        assert_int_equal(pawl_queue_create(l, "q", NULL), reasons[i]);
        assert_int_equal(pawl_last_outcome(l), PAWL_OUTCOME_UNKNOWN);
        assert_int_equal(pawl_send(l, "q", "1", 1, NULL, NULL), reasons[i]);
        assert_int_equal(pawl_last_outcome(l), PAWL_OUTCOME_NOT_APPLIED);
        pawl_close(l);
        assert_null(peer_kill(peer));
        peer_log_destroy(log);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_calls_survive_a_death_at_every_command),
        cmocka_unit_test(and_with_prefetch),
        cmocka_unit_test(tickets_survive_many_deaths),
        cmocka_unit_test(an_open_command_is_not_overwritten),
        cmocka_unit_test(all_lanes_come_back),
        cmocka_unit_test(a_receive_waits_on_across_a_death),
        cmocka_unit_test(without_a_new_broker_calls_end_and_say_unknown),
        cmocka_unit_test(a_broker_that_does_not_know_us_makes_open_calls_unknown),
        cmocka_unit_test(a_session_without_a_record_is_begun_again),
        cmocka_unit_test(questions_are_asked_again),
        cmocka_unit_test(an_answer_published_before_the_death_counts),
        cmocka_unit_test(a_lane_closed_for_good_says_why),
    };
    (void)alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
