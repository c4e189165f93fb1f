/* SPDX-License-Identifier: MIT */
/* Clients live through the end of their broker: what is under way gets one definite outcome, leases
 * stay under their tokens, nobody has to start again (G6; semantics 1 and 2; B-M08, M24). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/harness.h"

static struct harness_broker broker;

/* --- ten clients through five restarts ---------------------------------------------------------
 */

enum { CLIENTS = 10 };

struct client {
    uint32_t index;
    uint64_t lives;
    uint32_t reattached;
};

struct shared {
    uint32_t stop;
    struct client clients[CLIENTS];
};
static struct shared *shared;

static int live(void *arg)
{
    struct client *c = arg;
    char queue[16];
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    options.wait_ns = 60 * PAWL_NS_S;
    snprintf(queue, sizeof queue, "client-%u", c->index);
    harness_queue(lane, queue, PAWL_DURABLE, 0);
    while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
        char text[40];
        snprintf(text, sizeof text, "%u-%llu", c->index, (unsigned long long)c->lives);
        uint64_t id = harness_send(lane, queue, text);
        struct pawl_message m;
        harness_check_rc(pawl_receive(lane, queue, &options, &m), PAWL_OK);
        /* In a queue of its own with one message under way there is nothing else to see. */
        harness_check(m.id == id && m.bytes == strlen(text) && memcmp(m.body, text, m.bytes) == 0);
        int rc = pawl_ack(lane, &m.token, 0);
        harness_check(rc == PAWL_OK || rc == PAWL_OK_DUPLICATE);
        __atomic_fetch_add(&c->lives, 1, __ATOMIC_RELAXED);
    }
    struct pawl_broker_info info = { .size = sizeof info };
    harness_check_rc(pawl_info(lane, &info), PAWL_OK);
    c->reattached = info.reattached;
    pawl_close(lane);
    return 0;
}

static void ten_clients(void)
{
    pid_t pids[CLIENTS];
    shared = harness_shared(sizeof *shared);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        shared->clients[i].index = i;
        pids[i] = harness_fork(live, &shared->clients[i]);
    }
    for (int round = 0; round < 6; round++) {
        harness_step("ten clients, round %d", round);
        for (int i = 0; i < CLIENTS; i++) {
            uint64_t *lives = &shared->clients[i].lives, before = __atomic_load_n(lives, 0);
            harness_until(__atomic_load_n(lives, __ATOMIC_RELAXED) >= before + 3);
        }
        if (round == 5)
            break;
        if (round % 2)
            harness_broker_stop(&broker);
        else
            harness_broker_kill(&broker);
        harness_broker_start(&broker);
    }
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
    uint64_t lives = 0;
    for (int i = 0; i < CLIENTS; i++) {
        harness_check(harness_wait(pids[i]) == 0);
        harness_check(shared->clients[i].reattached == 5);
        lives += shared->clients[i].lives;
    }
    printf("ten clients: %llu lives over five restarts\n", (unsigned long long)lives);
}

/* --- leases, places, counters ------------------------------------------------------------------
 */

static void leases_stay_under_their_tokens(void)
{
    harness_step("leases");
    struct pawl *a = harness_open(&broker), *b = harness_open(&broker);
    harness_queue(a, "leases", PAWL_DURABLE, PAWL_LEASE_NS_MAX);
    const char *text[] = { "one", "two", "three", "four", "five" };
    struct pawl_token t[5];
    for (int i = 0; i < 5; i++)
        (void)harness_send(a, "leases", text[i]);
    for (int i = 0; i < 4; i++)
        t[i] = harness_receive(a, "leases", 0, text[i]);
    harness_broker_restart(&broker);
    /* b sees only what nobody holds, in its place. */
    t[4] = harness_receive(b, "leases", 30 * PAWL_NS_S, "five");
    harness_check(t[4].grant > t[3].grant); /* over a crash as well */
    struct pawl_queue_stat s = harness_stat(b, "leases");
    harness_check(s.leased == 5 && s.ready == 0);
    harness_check_rc(pawl_ack(a, &t[0], 0), PAWL_OK);
    harness_check_rc(pawl_ack(b, &t[1], 0), PAWL_OK); /* from any session of the uid */
    harness_broker_restart(&broker);
    harness_check_rc(pawl_ack(a, &t[0], 0), PAWL_E_ALREADY_ACKED);
    harness_check_rc(pawl_renew(a, &t[2], PAWL_NS_S), PAWL_OK);
    harness_check_rc(pawl_release(a, &t[3]), PAWL_OK);
    struct pawl_token again = harness_receive(b, "leases", 30 * PAWL_NS_S, "four");
    harness_check(again.message == t[3].message && again.grant > t[4].grant);
    harness_check_rc(pawl_ack(a, &t[3], 0), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_ack(b, &again, 0), PAWL_OK);
    harness_check_rc(pawl_nack(a, &t[2], 0, "not today"), PAWL_OK);
    pawl_close(a);
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    options.wait_ns = 30 * PAWL_NS_S;
    harness_check_rc(pawl_receive(b, "leases", &options, &m), PAWL_OK);
    harness_check(m.bytes == 5 && memcmp(m.body, "three", 5) == 0);
    harness_check(m.nacked == 1 && m.failed == 1 && m.acquired == 2 && m.crashed == 0);
    harness_check_rc(pawl_ack(b, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_ack(b, &t[4], 0), PAWL_OK);
    pawl_close(b);
}

/* A receiver that was waiting when the broker died gets what is sent to the next one. */
static int wait_for_it(void *arg)
{
    uint32_t *waiting = arg;
    struct pawl *lane = harness_open(&broker);
    __atomic_store_n(waiting, 1, __ATOMIC_RELEASE);
    struct pawl_token t = harness_receive(lane, "waiting", 60 * PAWL_NS_S, "at last");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
    return 0;
}

static void waiting_receives_go_on(void)
{
    harness_step("waiting");
    uint32_t *waiting = harness_shared(4096);
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "waiting", PAWL_DURABLE, 0);
    pid_t pid = harness_fork(wait_for_it, waiting);
    harness_until(__atomic_load_n(waiting, __ATOMIC_ACQUIRE) == 1 &&
                  harness_stat(lane, "waiting").waiting == 1);
    harness_broker_restart(&broker);
    (void)harness_send(lane, "waiting", "at last");
    harness_check(harness_wait(pid) == 0);
    pawl_close(lane);
}

/* --- a broker that stays away ------------------------------------------------------------------
 */

enum { WAITERS = 40 };

static int wait_in_vain(void *arg)
{
    uint32_t *waiting = arg;
    struct pawl_options open = PAWL_OPTIONS_INIT;
    open.timeout_ns = 300 * PAWL_NS_MS;
    struct pawl *lane = harness_open_with(&broker, &open);
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    options.wait_ns = PAWL_UNLIMITED;
    __atomic_fetch_add(waiting, 1, __ATOMIC_SEQ_CST);
    harness_check_rc(pawl_receive(lane, "vain", &options, &m), PAWL_E_BROKER_DOWN);
    struct pawl_sent sent;
    int rc = pawl_send(lane, "vain", "x", 1, NULL, &sent);
    harness_check_rc(rc, PAWL_E_BROKER_DOWN);
    /* It could not be submitted, so it is certain that nothing of it exists. */
    harness_check(pawl_last_outcome(lane) == PAWL_OUTCOME_NOT_APPLIED ||
                  pawl_last_outcome(lane) == PAWL_OUTCOME_UNKNOWN);
    harness_check(pawl_last_text(lane)[0] != '\0');
    __atomic_fetch_add(waiting, 1, __ATOMIC_SEQ_CST);
    /* And the same lane works as soon as there is a broker again. */
    do /* DEADLINE: it is back, and a loaded disk takes longer than this lane waits */
        rc = pawl_send(lane, "vain", "x", 1, NULL, &sent);
    while (rc == PAWL_E_BROKER_DOWN || rc == PAWL_E_DEADLINE);
    harness_check_rc(rc, PAWL_OK);
    pawl_close(lane);
    return 0;
}

static void broker_that_stays_away(void)
{
    pid_t pids[WAITERS];
    harness_step("away");
    uint32_t *waiting = harness_shared(4096);
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "vain", PAWL_DURABLE, 0);
    for (int i = 0; i < WAITERS; i++)
        pids[i] = harness_fork(wait_in_vain, waiting);
    harness_until(harness_stat(lane, "vain").waiting == WAITERS);
    harness_broker_kill(&broker);
    harness_step("away: all return");
    harness_until(__atomic_load_n(waiting, __ATOMIC_SEQ_CST) == 2 * WAITERS);
    harness_broker_start(&broker);
    for (int i = 0; i < WAITERS; i++)
        harness_check(harness_wait(pids[i]) == 0);
    harness_check(harness_stat(lane, "vain").ready >= WAITERS);
    pawl_close(lane);
    /* Nobody home at all. */
    harness_broker_stop(&broker);
    struct pawl_options open = PAWL_OPTIONS_INIT;
    open.dir = broker.dir;
    open.flags = PAWL_OPEN_NO_WAIT;
    harness_check_rc(pawl_open(&open, &lane), PAWL_E_BROKER_DOWN);
    harness_check(lane == NULL && strstr(pawl_last_text(NULL), "pawld") != NULL);
    harness_broker_start(&broker);
}

int main(void)
{
    harness_begin("restart_test", 120);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    ten_clients();
    leases_stay_under_their_tokens();
    waiting_receives_go_on();
    broker_that_stays_away();
    harness_broker_stop(&broker);
    return 0;
}
