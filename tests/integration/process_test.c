/* SPDX-License-Identifier: MIT */
/* Life and death of client processes: a dead one's leases are free at once, a stopped one is not
 * dead, a forked child harms nothing (hazards M10-M13, Q2; semantics 2). */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/harness.h"

#define HOURS_12 PAWL_LEASE_NS_MAX
#define LONG_WAIT (30 * PAWL_NS_S)

static struct harness_broker broker;
static struct pawl *lane; /* of the test program */

/* What a consumer process is told and what it tells. */
struct consumer {
    const char *queue;
    uint32_t kind;
    uint64_t lease_ns;
    uint32_t prefetch;
    bool leave_child; /* forks a child that keeps all descriptors open */
    int hold[2];      /* the child ends when the test closes the write end */
    uint32_t ready;   /* 1: it holds the message */
    uint32_t go;      /* the test wants it to ack */
    int result;       /* of that */
    struct pawl_token token;
};

static void keep_open_in_a_child(const struct consumer *c)
{
    char byte;
    pid_t pid = fork();
    harness_check(pid >= 0);
    if (pid != 0)
        return;
    close(c->hold[1]);
    while (read(c->hold[0], &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static int consume(void *arg)
{
    struct consumer *c = arg;
    struct pawl_options open = PAWL_OPTIONS_INIT;
    open.timeout_ns = LONG_WAIT;
    open.prefetch = c->prefetch;
    struct pawl *own = harness_open_with(&broker, &open);
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    options.wait_ns = LONG_WAIT;
    options.lease_ns = c->lease_ns;
    options.lease_kind = c->kind;
    harness_check_rc(pawl_receive(own, c->queue, &options, &m), PAWL_OK);
    c->token = m.token;
    if (c->leave_child)
        keep_open_in_a_child(c);
    __atomic_store_n(&c->ready, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&c->go, __ATOMIC_ACQUIRE))
        harness_pause();
    c->result = pawl_ack(own, &c->token, 0);
    __atomic_store_n(&c->ready, 2, __ATOMIC_RELEASE);
    pawl_close(own);
    return 0;
}

static pid_t start(struct consumer *c)
{
    c->ready = c->go = 0;
    pid_t pid = harness_fork(consume, c);
    harness_until(__atomic_load_n(&c->ready, __ATOMIC_ACQUIRE) == 1);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    harness_signal(pid, SIGKILL);
    harness_check(harness_wait(pid) == 128 + SIGKILL);
}

static struct pawl_message take(const char *queue)
{
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    options.wait_ns = LONG_WAIT;
    harness_check_rc(pawl_receive(lane, queue, &options, &m), PAWL_OK);
    return m;
}

/* M12: a lease of twelve hours comes back long before, though a forked child keeps the socket and
 * the rings of the dead process open. */
static void dead_client_with_a_living_child(struct consumer *c)
{
    uint64_t worst = 0;
    *c = (struct consumer){ .queue = "death", .lease_ns = HOURS_12, .leave_child = true };
    harness_queue(lane, "death", PAWL_DURABLE, HOURS_12);
    harness_check(pipe(c->hold) == 0);
    for (int i = 0; i < 20; i++) {
        harness_step("death %d", i);
        uint64_t id = harness_send(lane, "death", "mortal");
        pid_t pid = start(c);
        uint64_t begin = harness_clock();
        kill_and_wait(pid);
        struct pawl_message m = take("death");
        uint64_t ns = harness_clock() - begin;
        worst = ns > worst ? ns : worst;
        harness_check(m.id == id && m.token.grant > c->token.grant);
        harness_check(m.crashed == 1 && m.failed == 0 && m.acquired == 2);
        harness_check_rc(pawl_ack(lane, &c->token, 0), PAWL_E_LEASE_LOST);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    close(c->hold[0]);
    close(c->hold[1]);
    printf("a killed consumer's message at the next one: %.2f ms at worst of 20\n", worst / 1e6);
}

static void held_lease_ends_with_its_process(struct consumer *c)
{
    harness_step("held");
    *c = (struct consumer){ .queue = "held", .kind = PAWL_LEASE_HELD };
    harness_queue(lane, "held", PAWL_DURABLE, 50 * PAWL_NS_MS);
    uint64_t id = harness_send(lane, "held", "held");
    pid_t pid = start(c);
    /* Held means no time-out: after several times the queue's lease it is still his. */
    uint64_t until = harness_clock() + 300 * PAWL_NS_MS;
    harness_until(harness_clock() > until);
    harness_check(harness_stat(lane, "held").leased == 1);
    kill_and_wait(pid);
    struct pawl_message m = take("held");
    harness_check(m.id == id);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
}

/* The CLI's kind: another process settles what a dead one took. */
static void detached_lease_survives_its_process(struct consumer *c)
{
    harness_step("detached");
    *c =
        (struct consumer){ .queue = "detached", .kind = PAWL_LEASE_DETACHED, .lease_ns = HOURS_12 };
    harness_queue(lane, "detached", PAWL_DURABLE, 0);
    (void)harness_send(lane, "detached", "detached");
    pid_t pid = start(c);
    kill_and_wait(pid);
    char text[PAWL_TOKEN_TEXT_BYTES];
    struct pawl_token token;
    pawl_token_format(&c->token, text);
    harness_check_rc(pawl_token_parse(text, &token), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &token, 0), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &token, 0), PAWL_E_ALREADY_ACKED);
}

/* Q2, M10: a stopped process is not dead: its lease lasts to its end, and afterwards its token is
 * worthless though it goes on as if nothing had been. */
static void stopped_client_loses_its_lease_by_time(struct consumer *c)
{
    for (int i = 0; i < 3; i++) {
        harness_step("stopped %d", i);
        *c = (struct consumer){ .queue = "stopped", .lease_ns = 400 * PAWL_NS_MS };
        harness_queue(lane, "stopped", PAWL_DURABLE, 400 * PAWL_NS_MS);
        uint64_t id = harness_send(lane, "stopped", "mutex");
        uint64_t begin = harness_clock();
        pid_t pid = start(c);
        harness_freeze(pid);
        __atomic_store_n(&c->go, 1, __ATOMIC_RELEASE);
        struct pawl_message m = take("stopped");
        /* Not before the lease was over: from before it was granted at the earliest. */
        harness_check(harness_clock() - begin >= 400 * PAWL_NS_MS);
        harness_check(m.id == id && m.expired == 1 && m.failed == 1 && m.crashed == 0);
        harness_check(m.token.grant > c->token.grant);
        if (i == 1) /* before the stopped one wakes, or after it */
            harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
        harness_signal(pid, SIGCONT);
        harness_check(harness_wait(pid) == 0);
        harness_check_rc(c->result, i == 1 ? PAWL_E_ALREADY_ACKED : PAWL_E_LEASE_LOST);
        if (i != 1)
            harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
}

/* C7: the broker itself was stopped. What is over when it goes on is over, though the ack came into
 * the ring in time: it was not decided in time. */
static void stopped_broker_judges_by_the_deadline(void)
{
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    struct pawl_answer a;
    pawl_ticket ticket;
    harness_step("broker stopped");
    harness_queue(lane, "c7", PAWL_DURABLE, 0);
    (void)harness_send(lane, "c7", "late");
    o.lease_ns = 300 * PAWL_NS_MS;
    harness_check_rc(pawl_receive(lane, "c7", &o, &m), PAWL_OK);
    harness_freeze(broker.pid);
    harness_check_rc(pawl_submit_ack(lane, &m.token, 0, &ticket), PAWL_OK);
    harness_check_rc(pawl_flush(lane), PAWL_OK);
    bool in_time = pawl_clock_boot() < m.deadline_ns;
    harness_until(pawl_clock_boot() > m.deadline_ns + 50 * PAWL_NS_MS);
    harness_signal(broker.pid, SIGCONT);
    harness_check_rc(pawl_wait(lane, ticket, LONG_WAIT, &a), PAWL_OK);
    if (in_time) /* else a busy machine has spoilt the question */
        harness_check_rc(a.result, PAWL_E_LEASE_LOST);
    m = take("c7");
    harness_check(m.expired == 1 && m.acquired == 2);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
}

/* Only what the program took counts as crashed; what was merely prefetched is given back. */
static void prefetched_messages_are_not_counted(struct consumer *c)
{
    harness_step("prefetched");
    *c = (struct consumer){ .queue = "prefetched", .lease_ns = HOURS_12, .prefetch = 8 };
    harness_queue(lane, "prefetched", PAWL_DURABLE, HOURS_12);
    for (int i = 0; i < 8; i++)
        (void)harness_send(lane, "prefetched", "message");
    pid_t pid = start(c);
    kill_and_wait(pid);
    unsigned crashed = 0;
    for (int i = 0; i < 8; i++) {
        struct pawl_message m = take("prefetched");
        crashed += m.crashed;
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    harness_check(crashed == 1);
}

/* L8: a message that kills whoever takes it is dead after max_crashed, and says why. */
static void poison_ends_up_dead(struct consumer *c)
{
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    struct pawl_record record = { .size = sizeof record };
    harness_step("poison");
    q.max_crashed = 2;
    harness_check_rc(pawl_queue_create(lane, "poison", &q), PAWL_OK);
    uint64_t id = harness_send(lane, "poison", "poison");
    for (int i = 0; i < 2; i++) {
        *c = (struct consumer){ .queue = "poison", .lease_ns = HOURS_12 };
        kill_and_wait(start(c));
        harness_until(harness_stat(lane, "poison").leased == 0);
        if (i == 0)
            harness_broker_restart(&broker); /* the count is in the log */
    }
    harness_until(harness_stat(lane, "poison").dead == 1);
    harness_check_rc(pawl_query_one(lane, "poison", id, &record), PAWL_OK);
    harness_check(record.state == PAWL_STATE_DEAD && record.crashed == 2);
    harness_check(record.dead_reason == PAWL_DEAD_CRASHED);
    harness_check_rc(pawl_restore(lane, "poison", id), PAWL_OK);
    struct pawl_message m = take("poison");
    harness_check(m.id == id && m.crashed == 0);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
}

static void closing_gives_back_at_once(void)
{
    harness_step("close");
    harness_queue(lane, "close", PAWL_DURABLE, HOURS_12);
    uint64_t id = harness_send(lane, "close", "x");
    struct pawl *other = harness_open(&broker);
    struct pawl_token t = harness_receive(other, "close", LONG_WAIT, "x");
    pawl_close(other);
    struct pawl_message m = take("close");
    harness_check(m.id == id && m.crashed == 0);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
}

/* Millions of attaches leave nothing: B-M12, M22, M23, in small. */
static int attach_and_die(void *arg)
{
    (void)arg;
    struct pawl *own = harness_open(&broker);
    (void)harness_send(own, "attach", "a");
    (void)harness_receive(own, "attach", LONG_WAIT, "a");
    raise(SIGKILL);
    pawl_close(own);
    return 0;
}

static void dead_clients_leave_nothing(void)
{
    harness_step("attach");
    harness_queue(lane, "attach", PAWL_MEMORY, HOURS_12);
    uint64_t fds = 0;
    for (int i = 0; i < 60; i++) {
        harness_check(harness_wait(harness_fork(attach_and_die, NULL)) == 128 + SIGKILL);
        harness_until(harness_stat(lane, "attach").leased == 0);
        if (i == 9)
            fds = harness_fds(broker.pid);
    }
    harness_until(harness_fds(broker.pid) <= fds);
    harness_check(harness_stat(lane, "attach").ready > 0);
}

int main(void)
{
    harness_begin("process_test", 120);
    struct consumer *c = harness_shared(sizeof *c);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    lane = harness_open(&broker);
    dead_client_with_a_living_child(c);
    held_lease_ends_with_its_process(c);
    detached_lease_survives_its_process(c);
    stopped_client_loses_its_lease_by_time(c);
    stopped_broker_judges_by_the_deadline();
    prefetched_messages_are_not_counted(c);
    poison_ends_up_dead(c);
    closing_gives_back_at_once();
    dead_clients_leave_nothing();
    pawl_close(lane);
    harness_broker_stop(&broker);
    return 0;
}
