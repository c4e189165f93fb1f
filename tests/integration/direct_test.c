/* SPDX-License-Identifier: MIT */
/* Direct queues from end to end: options, what they do as other queues do, what they refuse by
 * name, rights, two processes, in place, leases, attempts, the dead, drop. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/harness.h"

static struct harness_broker broker;

static struct pawl_queue_options direct(uint64_t slots, uint32_t bytes)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_DIRECT;
    o.max_messages = slots;
    o.max_message_bytes = bytes;
    return o;
}

static void make(struct pawl *lane, const char *name, uint64_t slots, uint32_t bytes)
{
    struct pawl_queue_options o = direct(slots, bytes);
    harness_check_rc(pawl_queue_create(lane, name, &o), PAWL_OK);
}

static struct pawl_message take(struct pawl *lane, const char *queue, uint64_t wait_ns)
{
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.wait_ns = wait_ns;
    harness_check_rc(pawl_receive(lane, queue, &o, &m), PAWL_OK);
    return m;
}

/* --- options --------------------------------------------------------------------------------- */

static void options_are_checked(void)
{
    harness_step("options");
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options o = direct(100, 0);
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_INVALID);
    o = direct(32, 0);
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_INVALID);
    o = direct(2 * PAWL_DIRECT_MESSAGES_MAX, 0);
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_INVALID);
    o = direct(64, PAWL_DIRECT_MESSAGE_BYTES_MAX + 1);
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_INVALID);
    o = direct(64, 0);
    o.max_failed = PAWL_DIRECT_FAILED_MAX + 1;
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_INVALID);
    o = direct(64, 0);
    o.flags = PAWL_QUEUE_ORDERED;
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_NOT_SUPPORTED);
    o = direct(64, 0);
    o.ttl_ns = PAWL_NS_S;
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_NOT_SUPPORTED);
    o = direct(64, 0);
    strcpy(o.dead_forward, "other");
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_NOT_SUPPORTED);
    /* Memory that is not there is refused at create, and leaves nothing behind. */
    o = direct(PAWL_DIRECT_MESSAGES_MAX, PAWL_DIRECT_MESSAGE_BYTES_MAX);
    harness_check(pawl_queue_create(lane, "bad", &o) < 0);
    o = direct(131072, 65536);
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_FULL);
    o = direct(0, 0);
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_OK);
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_OK_DUPLICATE);
    struct pawl_queue_stat s = harness_stat(lane, "bad");
    harness_check(s.options.mode == PAWL_DIRECT && s.options.max_messages == 1024);
    harness_check(s.options.max_message_bytes == 1024 && s.options.max_failed == 16);
    harness_check(s.incarnation != 0 && s.attached == 0 && s.damaged == 0);
    o.max_messages = 2048;
    harness_check_rc(pawl_queue_create(lane, "bad", &o), PAWL_E_EXISTS);
    harness_check_rc(pawl_queue_alter(lane, "bad", &o), PAWL_E_NOT_SUPPORTED);
    o.max_messages = 1024;
    o.perm = 0700;
    harness_check_rc(pawl_queue_alter(lane, "bad", &o), PAWL_OK);
    harness_check(harness_stat(lane, "bad").options.perm == 0700);
    harness_check_rc(pawl_queue_drop(lane, "bad"), PAWL_OK);
    pawl_close(lane);
}

/* --- one process ----------------------------------------------------------------------------- */

static void send_receive_ack(void)
{
    harness_step("send, receive, ack");
    struct pawl *lane = harness_open(&broker);
    make(lane, "one", 64, 64);
    struct pawl_sent sent[2];
    harness_check_rc(pawl_send(lane, "one", "first", 5, NULL, &sent[0]), PAWL_OK);
    harness_check_rc(pawl_send(lane, "one", "second", 6, NULL, &sent[1]), PAWL_OK);
    harness_check(sent[0].id < sent[1].id && sent[0].state == PAWL_STATE_READY);
    harness_check_rc(pawl_send(lane, "one", NULL, 0, NULL, NULL), PAWL_OK);
    char large[65] = { 0 };
    harness_check_rc(pawl_send(lane, "one", large, 65, NULL, NULL), PAWL_E_TOO_BIG);
    harness_check(pawl_last_outcome(lane) == PAWL_OUTCOME_NOT_APPLIED);

    struct pawl_message m = take(lane, "one", 0);
    harness_check(m.bytes == 5 && memcmp(m.body, "first", 5) == 0 && m.acquired == 1);
    harness_check(m.id == sent[0].id && strcmp(m.queue, "one") == 0);
    harness_check(m.lease_left_ns == 10 * PAWL_NS_S);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_nack(lane, &m.token, 0, NULL), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_renew(lane, &m.token, PAWL_NS_S), PAWL_E_LEASE_LOST);

    struct pawl_queue_stat s = harness_stat(lane, "one");
    harness_check(s.ready == 2 && s.leased == 0 && s.attached == 1);
    /* Given back goes first, with the next number; its old token is over. */
    m = take(lane, "one", 0);
    harness_check(m.bytes == 6 && m.id == sent[1].id);
    struct pawl_token old = m.token;
    harness_check_rc(pawl_nack(lane, &m.token, 0, NULL), PAWL_OK);
    m = take(lane, "one", 0);
    harness_check(m.id == sent[1].id && m.acquired == 2 && m.token.grant > old.grant);
    harness_check_rc(pawl_ack(lane, &old, 0), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_release(lane, &m.token), PAWL_OK);
    m = take(lane, "one", 0);
    harness_check(m.id == sent[1].id);
    harness_check_rc(pawl_renew(lane, &m.token, PAWL_NS_S), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    m = take(lane, "one", 0);
    harness_check(m.bytes == 0);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_receive(lane, "one", NULL, &m), PAWL_OK_EMPTY);
    pawl_close(lane);
    lane = harness_open(&broker);
    harness_until(harness_stat(lane, "one").attached == 0); /* clean detach */
    pawl_close(lane);
}

static void rows(void)
{
    enum { N = 200 };
    static struct pawl_item items[N];
    static struct pawl_sent sent[N];
    static struct pawl_message got[N];
    static struct pawl_token tokens[N];
    static int32_t results[N];
    static uint32_t numbers[N];
    uint32_t count, all = 0;
    harness_step("rows");
    struct pawl *lane = harness_open(&broker);
    make(lane, "rows", 128, 16);
    for (uint32_t i = 0; i < N; i++) {
        numbers[i] = i;
        items[i] = (struct pawl_item){ .body = &numbers[i], .bytes = 4 };
    }
    /* 128 places for 200: the first 128 are sent, the rest is told E_FULL. */
    harness_check_rc(pawl_send_batch(lane, "rows", items, N, sent), PAWL_E_FULL);
    for (uint32_t i = 0; i < N; i++)
        harness_check(sent[i].result == (i < 128 ? PAWL_OK : PAWL_E_FULL));
    for (uint32_t i = 1; i < 128; i++)
        harness_check(sent[i].id > sent[i - 1].id);
    const char *name = "rows";
    while (all < 128) {
        harness_check_rc(pawl_receive_batch(lane, &name, 1, NULL, got, N, &count), PAWL_OK);
        for (uint32_t i = 0; i < count; i++, all++) {
            harness_check(memcmp(got[i].body, &all, 4) == 0 && got[i].id == sent[all].id);
            tokens[i] = got[i].token;
        }
        harness_check_rc(pawl_renew_batch(lane, tokens, count, 5 * PAWL_NS_S, results), PAWL_OK);
        harness_check_rc(pawl_ack_batch(lane, tokens, count, 0, results), PAWL_OK);
        harness_check_rc(pawl_ack_batch(lane, tokens, count, 0, results), PAWL_E_LEASE_LOST);
    }
    harness_check_rc(pawl_receive_batch(lane, &name, 1, NULL, got, N, &count), PAWL_OK_EMPTY);
    harness_check(count == 0);
    pawl_close(lane);
}

static void on_the_descriptor(void)
{
    harness_step("descriptor");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    struct pawl_message m;
    make(lane, "fd", 64, 16);
    struct pollfd p = { .fd = pawl_fd(lane), .events = POLLIN };
    harness_check(p.fd >= 0);
    for (int i = 0; i < 20; i++) {
        /* Nothing there: armed. Then something comes, before the program waits or while it does. */
        int rc = pawl_receive(lane, "fd", NULL, &m);
        harness_check_rc(rc, PAWL_OK_EMPTY);
        (void)harness_send(other, "fd", "x");
        do {
            harness_check(poll(&p, 1, -1) == 1);
            rc = pawl_receive(lane, "fd", NULL, &m);
            harness_check(rc == PAWL_OK || rc == PAWL_OK_EMPTY);
        } while (rc == PAWL_OK_EMPTY);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    /* While nothing comes it stays quiet, beyond the back-stop of a second, and then still fires.
     */
    harness_check_rc(pawl_receive(lane, "fd", NULL, &m), PAWL_OK_EMPTY);
    harness_check(poll(&p, 1, 1500) == 0);
    (void)harness_send(other, "fd", "x");
    harness_check(poll(&p, 1, -1) == 1);
    harness_check_rc(pawl_receive(lane, "fd", NULL, &m), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    pawl_close(lane);
    pawl_close(other);
}

static void submitted(void)
{
    harness_step("submitted");
    struct pawl *lane = harness_open(&broker);
    pawl_ticket tickets[3];
    struct pawl_answer answers[4];
    make(lane, "submit", 64, 16);
    harness_check_rc(pawl_submit_send(lane, "submit", "a", 1, NULL, &tickets[0]), PAWL_OK);
    harness_check_rc(pawl_submit_send(lane, "submit", "b", 1, NULL, &tickets[1]), PAWL_OK);
    harness_check(pawl_poll(lane, answers, 4, 2, 0) == 2);
    for (int i = 0; i < 2; i++)
        harness_check(answers[i].ticket == tickets[i] && answers[i].result == PAWL_OK);
    harness_check(answers[0].value < answers[1].value);
    struct pawl_message m = take(lane, "submit", 0);
    harness_check(m.id == answers[0].value);
    harness_check_rc(pawl_submit_ack(lane, &m.token, 0, &tickets[0]), PAWL_OK);
    harness_check_rc(pawl_submit_ack(lane, &m.token, 0, &tickets[1]), PAWL_OK);
    harness_check_rc(pawl_wait(lane, tickets[1], 0, &answers[1]), PAWL_OK);
    harness_check_rc(pawl_wait(lane, tickets[0], 0, &answers[0]), PAWL_OK);
    harness_check(answers[0].result == PAWL_OK && answers[1].result == PAWL_E_LEASE_LOST);
    pawl_close(lane);
}

static void refused_by_name(void)
{
    harness_step("refusals");
    struct pawl *lane = harness_open(&broker);
    struct pawl_message m;
    make(lane, "refuse", 64, 64);
    harness_queue(lane, "other", PAWL_DURABLE, 0);
    struct pawl_send_options plain = PAWL_SEND_OPTIONS_INIT, o = plain;
    o.key = "k";
    o.key_bytes = 1;
    harness_check_rc(pawl_send(lane, "refuse", "x", 1, &o, NULL), PAWL_E_NOT_SUPPORTED);
    harness_check(strstr(pawl_last_text(lane), "dedup keys"));
    o = plain;
    o.delay_ns = 1;
    harness_check_rc(pawl_send(lane, "refuse", "x", 1, &o, NULL), PAWL_E_NOT_SUPPORTED);
    o = plain;
    o.priority = 7;
    harness_check_rc(pawl_send(lane, "refuse", "x", 1, &o, NULL), PAWL_E_NOT_SUPPORTED);
    struct pawl_item item = { .body = "x", .bytes = 1, .options = &o };
    struct pawl_sent sent;
    harness_check_rc(pawl_send_batch(lane, "refuse", &item, 1, &sent), PAWL_E_NOT_SUPPORTED);
    harness_check(sent.result == PAWL_E_NOT_SUPPORTED && sent.id == 0);
    struct pawl_op_id id;
    pawl_op_id_new(&id);
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_send(lane, "refuse", "x", 1, NULL, NULL), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_receive(lane, "refuse", NULL, &m), PAWL_OK_EMPTY); /* none of them is */

    harness_check_rc(pawl_send(lane, "refuse", "x", 1, NULL, NULL), PAWL_OK);
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    r.lease_kind = PAWL_LEASE_DETACHED;
    harness_check_rc(pawl_receive(lane, "refuse", &r, &m), PAWL_E_NOT_SUPPORTED);
    const char *both[] = { "refuse", "other" };
    uint32_t count;
    harness_check_rc(pawl_receive_batch(lane, both, 2, NULL, &m, 1, &count), PAWL_E_NOT_SUPPORTED);
    r = (struct pawl_receive_options)PAWL_RECEIVE_OPTIONS_INIT;
    r.flags = PAWL_RECEIVE_IN_PLACE;
    harness_check_rc(pawl_receive(lane, "other", &r, &m), PAWL_E_NOT_SUPPORTED);
    m = take(lane, "refuse", 0);
    harness_check_rc(pawl_nack(lane, &m.token, 0, "why"), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_reject(lane, &m.token, NULL), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_defer(lane, &m.token, 0, NULL), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_ack_result(lane, &m.token, 0, "r", 1), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_ack(lane, &m.token, PAWL_ACK_IF_UNCLAIMED), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_cancel(lane, "refuse", m.id), PAWL_E_NOT_SUPPORTED);
    struct pawl_txn *settles;
    harness_check_rc(pawl_txn_begin(lane, NULL, &settles), PAWL_OK);
    harness_check_rc(pawl_txn_ack(settles, &m.token, 0), PAWL_E_NOT_SUPPORTED);
    harness_check(strstr(pawl_last_text(lane), "no transactions"));
    pawl_txn_rollback(settles);
    struct pawl_record record = { .size = sizeof record };
    harness_check_rc(pawl_query_key(lane, "refuse", "k", 1, &record), PAWL_E_NOT_SUPPORTED);
    int32_t found;
    harness_check_rc(pawl_query_batch(lane, "refuse", &m.id, 1, &record, &found, NULL),
                     PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_queue_purge(lane, "refuse", NULL), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_queue_pause(lane, "refuse"), PAWL_E_NOT_SUPPORTED);
    struct pawl_txn *txn;
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, "refuse", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_txn_commit(txn, NULL), PAWL_E_NOT_SUPPORTED);
    void *place;
    harness_check_rc(pawl_place_reserve(lane, "other", 1, &place, NULL), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    pawl_close(lane);
}

static void in_place(void)
{
    harness_step("in place");
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    struct pawl_sent sent;
    void *places[4];
    size_t bytes;
    make(lane, "place", 64, 4096);
    harness_check_rc(pawl_place_publish(lane, "place", 1, NULL), PAWL_E_MISUSE);
    harness_check(pawl_place_reserve(lane, "place", 4, places, &bytes) == 4 && bytes == 4096);
    harness_check_rc(pawl_send(lane, "place", "x", 1, NULL, NULL), PAWL_E_MISUSE);
    harness_check_rc(pawl_place_reserve(lane, "place", 1, places, NULL), PAWL_E_MISUSE);
    for (int i = 0; i < 4; i++)
        memset(places[i], 'a' + i, 4096);
    harness_check_rc(pawl_place_publish(lane, "place", 4097, NULL), PAWL_E_TOO_BIG);
    harness_check_rc(pawl_place_publish(lane, "place", 4096, &sent), PAWL_OK);
    harness_check_rc(pawl_place_abandon(lane, "place"), PAWL_OK);
    harness_check_rc(pawl_place_publish(lane, "place", 10, NULL), PAWL_OK);
    o.flags = PAWL_RECEIVE_IN_PLACE;
    harness_check_rc(pawl_receive(lane, "place", &o, &m), PAWL_OK);
    harness_check(m.body == places[0] && m.bytes == 4096 && m.id == sent.id);
    harness_check(((const char *)m.body)[4095] == 'a');
    harness_check_rc(pawl_lease_holds(lane, &m.token), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_lease_holds(lane, &m.token), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_receive(lane, "place", &o, &m), PAWL_OK);
    harness_check(m.body == places[2] && m.bytes == 10);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    /* A lane that closes gives up what it had reserved. */
    pawl_close(lane);
    lane = harness_open(&broker);
    harness_check_rc(pawl_receive(lane, "place", &o, &m), PAWL_OK_EMPTY);
    for (int i = 0; i < 64; i++)
        harness_check_rc(pawl_send(lane, "place", "y", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_send(lane, "place", "y", 1, NULL, NULL), PAWL_E_FULL);
    pawl_close(lane);
}

/* --- time and attempts ----------------------------------------------------------------------- */

static void leases_end_by_time(void)
{
    harness_step("leases");
    struct pawl *lane = harness_open(&broker);
    make(lane, "lease", 64, 64);
    harness_check_rc(pawl_send(lane, "lease", "x", 1, NULL, NULL), PAWL_OK);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m, again;
    o.lease_ns = 300 * PAWL_NS_MS;
    uint64_t from = pawl_clock_boot();
    harness_check_rc(pawl_receive(lane, "lease", &o, &m), PAWL_OK);
    o.wait_ns = PAWL_UNLIMITED; /* woken by the end of the lease, by nobody else */
    harness_check_rc(pawl_receive(lane, "lease", &o, &again), PAWL_OK);
    harness_check(pawl_clock_boot() - from >= 300 * PAWL_NS_MS); /* never early */
    harness_check(again.id == m.id && again.acquired == 2);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_ack(lane, &again.token, 0), PAWL_OK);
    harness_check(harness_stat(lane, "lease").expired_leases == 1);
    /* At most once: nobody will see it again. */
    harness_check_rc(pawl_send(lane, "lease", "x", 1, NULL, NULL), PAWL_OK);
    o = (struct pawl_receive_options)PAWL_RECEIVE_OPTIONS_INIT;
    o.flags = PAWL_RECEIVE_AT_MOST_ONCE;
    harness_check_rc(pawl_receive(lane, "lease", &o, &m), PAWL_OK);
    harness_check(m.bytes == 1 && harness_stat(lane, "lease").leased == 0);
    /* A nack with a delay is not early. */
    harness_check_rc(pawl_send(lane, "lease", "x", 1, NULL, NULL), PAWL_OK);
    m = take(lane, "lease", 0);
    from = pawl_clock_boot();
    harness_check_rc(pawl_nack(lane, &m.token, 200 * PAWL_NS_MS, NULL), PAWL_OK);
    harness_check(harness_stat(lane, "lease").scheduled == 1);
    m = take(lane, "lease", PAWL_UNLIMITED);
    harness_check(pawl_clock_boot() - from >= 200 * PAWL_NS_MS);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    pawl_close(lane);
}

static void the_dead(void)
{
    harness_step("the dead");
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options o = direct(64, 64);
    struct pawl_record r[4] = { { .size = sizeof r[0] } };
    struct pawl_message m;
    uint64_t ids[2];
    o.max_failed = 2;
    harness_check_rc(pawl_queue_create(lane, "dead", &o), PAWL_OK);
    for (int i = 0; i < 2; i++) {
        ids[i] = harness_send(lane, "dead", "poison");
        for (int k = 0; k < 2; k++) {
            m = take(lane, "dead", 0);
            harness_check_rc(pawl_nack(lane, &m.token, 0, NULL), PAWL_OK);
        }
        harness_check_rc(pawl_receive(lane, "dead", NULL, &m), PAWL_OK_EMPTY);
    }
    harness_check(harness_stat(lane, "dead").dead == 2);
    uint32_t mask = 1u << PAWL_STATE_DEAD;
    harness_check(pawl_query_scan(lane, "dead", 0, mask, r, 4) == 2);
    harness_check(r[0].id == ids[0] && r[1].id == ids[1] && r[0].state == PAWL_STATE_DEAD);
    harness_check(r[0].bytes == 6 && r[0].dead_reason == PAWL_DEAD_FAILED);
    r[0] = (struct pawl_record){ .size = sizeof r[0] };
    harness_check(pawl_query_scan(lane, "dead", ids[0], mask, r, 1) == 1 && r[0].id == ids[1]);
    harness_check_rc(pawl_restore(lane, "dead", ids[1]), PAWL_OK);
    harness_check_rc(pawl_restore(lane, "dead", ids[1]), PAWL_E_STATE);
    harness_check_rc(pawl_restore(lane, "dead", 7), PAWL_E_NOT_FOUND);
    m = take(lane, "dead", 0);
    harness_check(m.id == ids[1] && m.acquired == 1);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_check(harness_stat(lane, "dead").dead == 1);
    pawl_close(lane);
}

/* --- two processes --------------------------------------------------------------------------- */

enum { FLOW = 20000 };

static int consumer(void *unused)
{
    struct pawl *lane = harness_open(&broker);
    (void)unused;
    for (uint32_t i = 0; i < FLOW; i++) {
        struct pawl_message m = take(lane, "flow", PAWL_UNLIMITED);
        harness_check(m.bytes == 4 && memcmp(m.body, &i, 4) == 0); /* in order, each once */
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    pawl_close(lane);
    return 0;
}

static void two_processes(void)
{
    harness_step("two processes");
    struct pawl *lane = harness_open(&broker);
    make(lane, "flow", 64, 16);
    pid_t pid = harness_fork(consumer, NULL);
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    o.wait_room_ns = PAWL_UNLIMITED;
    for (uint32_t i = 0; i < FLOW; i++)
        harness_check_rc(pawl_send(lane, "flow", &i, 4, &o, NULL), PAWL_OK);
    harness_check(harness_wait(pid) == 0);
    struct pawl_queue_stat s = harness_stat(lane, "flow");
    harness_check(s.ready == 0 && s.leased == 0 && s.damaged == 0);
    pawl_close(lane);
}

static int holder(void *unused)
{
    (void)unused;
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.lease_kind = PAWL_LEASE_HELD;
    o.wait_ns = PAWL_UNLIMITED;
    harness_check_rc(pawl_receive(lane, "death", &o, &m), PAWL_OK);
    harness_check(m.lease_left_ns == PAWL_UNLIMITED);
    for (;;)
        pause();
}

static void a_death_gives_back(void)
{
    harness_step("death");
    struct pawl *lane = harness_open(&broker);
    make(lane, "death", 64, 16);
    (void)harness_send(lane, "death", "x");
    pid_t pid = harness_fork(holder, NULL);
    harness_until(harness_stat(lane, "death").leased == 1);
    struct pawl_message m;
    harness_check_rc(pawl_receive(lane, "death", NULL, &m), PAWL_OK_EMPTY);
    harness_signal(pid, SIGKILL);
    (void)harness_wait(pid);
    m = take(lane, "death", PAWL_UNLIMITED);
    harness_check(m.acquired == 2);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_until(harness_stat(lane, "death").attached == 1);
    pawl_close(lane);
}

static void lanes_of_one_process(void)
{
    harness_step("lanes");
    struct pawl *a = harness_open(&broker), *b, *other = harness_open(&broker);
    harness_check_rc(pawl_lane_open(a, &b), PAWL_OK);
    make(a, "lanes", 64, 16);
    (void)harness_send(a, "lanes", "x");
    struct pawl_message m = take(b, "lanes", 0);
    harness_check(harness_stat(a, "lanes").attached == 2);
    /* Any lane of the process may settle, one that never used the queue, too. */
    harness_check_rc(pawl_ack(other, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_ack(b, &m.token, 0), PAWL_E_LEASE_LOST);
    pawl_close(b);
    harness_until(harness_stat(a, "lanes").attached == 2);
    /* What one lane has not settled comes back when it closes: as a death. */
    (void)harness_send(a, "lanes", "y");
    m = take(other, "lanes", 0);
    pawl_close(other);
    m = take(a, "lanes", PAWL_UNLIMITED);
    harness_check_rc(pawl_ack(a, &m.token, 0), PAWL_OK);
    pawl_close(a);
}

static int stranger(void *unused)
{
    (void)unused;
    struct pawl_message m;
    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 77;
    struct pawl *lane = harness_open(&broker);
    harness_check_rc(pawl_send(lane, "rights", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_receive(lane, "rights", NULL, &m), PAWL_E_PERM);
    harness_check_rc(pawl_send(lane, "hidden", "x", 1, NULL, NULL), PAWL_E_NOT_FOUND);
    pawl_close(lane);
    return 0;
}

static void rights(void)
{
    harness_step("rights");
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options o = direct(64, 16);
    o.perm = 0772;
    harness_check_rc(pawl_queue_create(lane, "rights", &o), PAWL_OK);
    o.perm = 0770;
    harness_check_rc(pawl_queue_create(lane, "hidden", &o), PAWL_OK);
    if (geteuid() == 0) { /* to become another */
        char path[256];
        snprintf(path, sizeof path, "%s/pawl.sock", broker.dir);
        harness_check(chmod(path, 0666) == 0 && chmod(broker.dir, 0755) == 0);
        snprintf(path, sizeof path, "%s/..", broker.dir);
        harness_check(chmod(path, 0755) == 0);
        int code = harness_wait(harness_fork(stranger, NULL));
        harness_check(code == 0 || code == 77);
        if (code == 0)
            harness_check(harness_stat(lane, "rights").ready == 1);
    }
    pawl_close(lane);
}

static void dropped(void)
{
    harness_step("drop");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    make(lane, "drop", 64, 16);
    (void)harness_send(lane, "drop", "x");
    struct pawl_message m = take(lane, "drop", 0);
    harness_check_rc(pawl_queue_drop(other, "drop"), PAWL_OK);
    /* Who waits is told. */
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    o.wait_ns = 30 * PAWL_NS_S;
    int rc = pawl_receive(lane, "drop", &o, &m);
    harness_check(rc == PAWL_E_QUEUE_GONE || rc == PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_receive(lane, "drop", NULL, &m), PAWL_E_NOT_FOUND);
    /* Another one of this name is another one. */
    make(other, "drop", 64, 16);
    (void)harness_send(lane, "drop", "new");
    m = take(other, "drop", 0);
    harness_check(m.bytes == 3);
    harness_check_rc(pawl_ack(other, &m.token, 0), PAWL_OK);
    pawl_close(lane);
    pawl_close(other);
}

/* Who goes on with what he knew of a queue is told, whatever he calls, and never puts a message
 * into memory that nobody looks at any more. */
static void dropped_unseen(void)
{
    harness_step("drop, unseen by a producer");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    void *place[2];
    size_t bytes;
    make(lane, "unseen", 64, 16);
    (void)harness_send(lane, "unseen", "x");
    (void)harness_send(lane, "unseen", "in place");
    m = take(lane, "unseen", 0);
    const char *copied = m.body;
    struct pawl_message read;
    o.flags = PAWL_RECEIVE_IN_PLACE;
    harness_check_rc(pawl_receive(lane, "unseen", &o, &read), PAWL_OK);
    harness_check_rc(pawl_place_reserve(lane, "unseen", 2, place, &bytes), 2);
    harness_check_rc(pawl_queue_drop(other, "unseen"), PAWL_OK);

    harness_check_rc(pawl_ack(lane, &read.token, 0), PAWL_E_QUEUE_GONE);
    harness_check_rc(pawl_lease_holds(lane, &read.token), PAWL_E_QUEUE_GONE);
    harness_check_rc(pawl_nack(lane, &read.token, 0, NULL), PAWL_E_QUEUE_GONE);
    harness_check_rc(pawl_place_publish(lane, "unseen", 1, NULL), PAWL_E_QUEUE_GONE);
    harness_check_rc(pawl_send(lane, "unseen", "y", 1, NULL, NULL), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_place_publish(lane, "unseen", 1, NULL), PAWL_E_QUEUE_GONE);
    harness_check_rc(pawl_place_publish(lane, "unseen", 1, NULL), PAWL_E_MISUSE);
    /* What was received before is still there to be read. */
    harness_check(memcmp(read.body, "in place", read.bytes) == 0);
    harness_check(m.bytes == 1 && *copied == 'x');

    /* A queue of that name again: sends find it, each kind of them. */
    const struct pawl_item rows[2] = { { .body = "2", .bytes = 1 }, { .body = "3", .bytes = 1 } };
    struct pawl_sent sent[2];
    for (int kind = 0; kind < 4; kind++) {
        make(other, "unseen", 64, 16);
        (void)harness_send(lane, "unseen", "1");
        harness_check_rc(pawl_queue_drop(other, "unseen"), PAWL_OK);
        make(other, "unseen", 64, 16);
        struct pawl_send_options with = PAWL_SEND_OPTIONS_INIT;
        if (kind == 0)
            harness_check_rc(pawl_send(lane, "unseen", "2", 1, NULL, NULL), PAWL_OK);
        if (kind == 1)
            harness_check_rc(pawl_send(lane, "unseen", "2", 1, &with, NULL), PAWL_OK);
        if (kind == 2)
            harness_check_rc(pawl_send_batch(lane, "unseen", rows, 2, sent), PAWL_OK);
        if (kind == 3) {
            harness_check_rc(pawl_place_reserve(lane, "unseen", 1, place, &bytes), 1);
            memcpy(place[0], "2", 1);
            harness_check_rc(pawl_place_publish(lane, "unseen", 1, NULL), PAWL_OK);
        }
        m = take(other, "unseen", 0);
        harness_check(m.bytes == 1 && *(const char *)m.body == '2');
        harness_check_rc(pawl_ack(other, &m.token, 0), PAWL_OK);
        harness_check_rc(pawl_queue_drop(other, "unseen"), PAWL_OK);
    }
    pawl_close(lane);
    pawl_close(other);
}

int main(void)
{
    harness_begin("direct_test", 240);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    options_are_checked();
    send_receive_ack();
    rows();
    submitted();
    on_the_descriptor();
    refused_by_name();
    in_place();
    leases_end_by_time();
    the_dead();
    two_processes();
    a_death_gives_back();
    lanes_of_one_process();
    rights();
    dropped();
    dropped_unseen();
    harness_broker_stop(&broker);
    return 0;
}
