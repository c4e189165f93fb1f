/* SPDX-License-Identifier: MIT */
/* The exact counter: consumers acknowledge a message and add one to a number in one transaction,
 * while the broker and consumers are killed. However often either dies, wherever, the number is
 * that of the messages. And the same for operations under ids that are tried again until their
 * outcome is known: each has one effect. Short in `make check`; PAWL_COUNTER_SECONDS and
 * PAWL_RETRIED set the long cut. G1, G3, G6. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/harness.h"

enum { PRODUCERS = 4, CONSUMERS = 4 };

static struct harness_broker broker;
static struct {
    uint64_t sent[PRODUCERS]; /* known to be in the queue */
    uint64_t done;            /* operations whose outcome is known */
    uint32_t stop;
} * shared;

static bool stopped(void) { return __atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST) != 0; }

/* --- the counter ----------------------------------------------------------------------------- */

static int produce(void *arg)
{
    uint64_t *sent = arg;
    struct pawl *lane = harness_open(&broker);
    while (!stopped()) {
        harness_check_rc(pawl_send(lane, "work", sent, sizeof *sent, NULL, NULL), PAWL_OK);
        __atomic_fetch_add(sent, 1, __ATOMIC_SEQ_CST);
    }
    pawl_close(lane);
    return 0;
}

static int count_one(struct pawl_txn *txn, void *ctx)
{
    int rc = pawl_txn_ack(txn, ctx, 0);
    if (rc == PAWL_OK)
        rc = pawl_txn_add(txn, "counters", "done", 4, 1, INT64_MIN, INT64_MAX);
    return rc;
}

/* Until it is killed, or nothing has come for a while after the end. */
static int consume(void *arg)
{
    (void)arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    o.wait_ns = 200 * PAWL_NS_MS;
    for (;;) {
        struct pawl_message m;
        int rc = pawl_receive(lane, "work", &o, &m);
        if (rc == PAWL_OK_EMPTY && stopped())
            break;
        if (rc == PAWL_OK_EMPTY)
            continue;
        harness_check_rc(rc, PAWL_OK);
        struct pawl_token token = m.token;
        rc = pawl_txn_run(lane, count_one, &token, 0, NULL);
        /* Another has it, or had it: then it is counted there. Nothing else can be. */
        if (rc != PAWL_E_LEASE_LOST && rc != PAWL_E_ALREADY_ACKED)
            harness_check_rc(rc, PAWL_OK);
    }
    pawl_close(lane);
    return 0;
}

static void the_counter_is_exact(uint64_t seconds)
{
    harness_step("counter");
    struct pawl_prng prng = harness_prng(1);
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "work", PAWL_DURABLE, PAWL_NS_S);
    struct pawl_queue_options unlimited = PAWL_QUEUE_OPTIONS_INIT;
    unlimited.lease_ns = PAWL_NS_S;
    unlimited.max_failed = unlimited.max_crashed = 0;
    harness_check_rc(pawl_queue_alter(lane, "work", &unlimited), PAWL_OK);
    harness_check_rc(pawl_table_create(lane, "counters", NULL), PAWL_OK);
    pid_t producers[PRODUCERS], consumers[CONSUMERS];
    for (int i = 0; i < PRODUCERS; i++)
        producers[i] = harness_fork(produce, &shared->sent[i]);
    for (int i = 0; i < CONSUMERS; i++)
        consumers[i] = harness_fork(consume, NULL);
    uint64_t end = harness_clock() + seconds * PAWL_NS_S;
    uint32_t broker_kills = 0, consumer_kills = 0;
    while (harness_clock() < end) {
        usleep((useconds_t)pawl_prng_below(&prng, 300000));
        if (pawl_prng_below(&prng, 3) == 0) {
            harness_broker_restart(&broker);
            broker_kills++;
            continue;
        }
        uint64_t i = pawl_prng_below(&prng, CONSUMERS);
        harness_signal(consumers[i], SIGKILL);
        harness_check(harness_wait(consumers[i]) == 128 + SIGKILL);
        consumers[i] = harness_fork(consume, NULL);
        consumer_kills++;
    }
    __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
    uint64_t sent = 0;
    for (int i = 0; i < PRODUCERS; i++) {
        harness_check(harness_wait(producers[i]) == 0);
        sent += shared->sent[i];
    }
    /* One consumer stays until nothing is left: leases of the dead, retries. */
    for (int i = 0; i < CONSUMERS; i++)
        harness_check(harness_wait(consumers[i]) == 0);
    for (;;) {
        struct pawl_queue_stat s = harness_stat(lane, "work");
        if (s.ready + s.leased + s.scheduled == 0) {
            harness_check(s.dead == 0);
            break;
        }
        harness_check(consume(NULL) == 0);
    }
    struct pawl_value v = PAWL_VALUE_INIT;
    harness_check_rc(pawl_state_get(lane, "counters", "done", 4, NULL, 0, &v), PAWL_OK);
    printf("counter: %" PRIu64 " messages, counted %" PRId64
           ", over %u kills of the broker and %u of "
           "consumers\n",
           sent, v.number, broker_kills, consumer_kills);
    harness_check((uint64_t)v.number == sent);
    harness_check(broker_kills > 0 && consumer_kills > 0);
    pawl_close(lane);
}

/* --- operations that are tried again --------------------------------------------------------- */

/* Each operation adds one, under an id, by a process that may die at any moment: its successor
 * tries the same id again, as one does who finds it in his own table. What it is up to is in shared
 * memory. */
struct task {
    struct pawl_op_id id;
    uint64_t number, target; /* operations known to be done; this many with the one begun */
    uint64_t tries;
    uint32_t begun;
};

static struct task *tasks;
static uint64_t wanted;

static int retry(void *arg)
{
    struct task *t = arg;
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.timeout_ns = 300 * PAWL_NS_MS; /* so that outcomes are lost, too */
    struct pawl *lane = harness_open_with(&broker, &o);
    while (__atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) < wanted) {
        if (!t->begun) {
            pawl_op_id_new(&t->id);
            t->target = t->number + 1;
            __atomic_store_n(&t->begun, 1, __ATOMIC_SEQ_CST);
        }
        t->tries++;
        harness_check_rc(pawl_op_id_next(lane, &t->id), PAWL_OK);
        int rc = pawl_state_add(lane, "effects", "n", 1, 1, INT64_MIN, INT64_MAX, NULL);
        /* Half of them lose the first answer and ask for it again. */
        if (rc == PAWL_OK && (t->id.bytes[15] & 1)) {
            harness_check_rc(pawl_op_id_next(lane, &t->id), PAWL_OK);
            rc = pawl_state_add(lane, "effects", "n", 1, 1, INT64_MIN, INT64_MAX, NULL);
            if (rc == PAWL_OK)
                harness_fail("an operation was done twice");
        }
        if (rc < 0 && pawl_outcome_class(rc) == PAWL_OUTCOME_UNKNOWN)
            continue; /* the same again */
        harness_check(rc == PAWL_OK || rc == PAWL_OK_DUPLICATE);
        /* Dying between these two, the next one tries it again and notes the same. */
        __atomic_store_n(&t->number, t->target, __ATOMIC_SEQ_CST);
        __atomic_store_n(&t->begun, 0, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(&shared->done, 1, __ATOMIC_SEQ_CST);
    }
    pawl_close(lane);
    return 0;
}

static void every_operation_has_one_effect(uint64_t operations)
{
    enum { WORKERS = 4 };
    harness_step("operations");
    struct pawl_prng prng = harness_prng(2);
    struct pawl *lane = harness_open(&broker);
    harness_check_rc(pawl_table_create(lane, "effects", NULL), PAWL_OK);
    tasks = harness_shared(WORKERS * sizeof *tasks);
    wanted = operations;
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = harness_fork(retry, &tasks[i]);
    uint32_t broker_kills = 0, worker_kills = 0;
    while (__atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) < wanted) {
        usleep((useconds_t)pawl_prng_below(&prng, 150000));
        if (pawl_prng_below(&prng, 3) == 0) {
            harness_broker_restart(&broker);
            broker_kills++;
            continue;
        }
        uint64_t i = pawl_prng_below(&prng, WORKERS);
        harness_signal(workers[i], SIGKILL);
        int code = harness_wait(workers[i]);
        workers[i] = 0;
        if (code != 128 + SIGKILL) {
            harness_check(code == 0); /* it had just ended: all is done */
            break;
        }
        workers[i] = harness_fork(retry, &tasks[i]);
        worker_kills++;
    }
    for (int i = 0; i < WORKERS; i++)
        harness_check(workers[i] == 0 || harness_wait(workers[i]) == 0);
    /* One that was begun and whose process died: its outcome is asked for, and is definite. */
    uint64_t known = 0, tries = 0, open_committed = 0;
    for (int i = 0; i < WORKERS; i++) {
        known += tasks[i].number;
        tries += tasks[i].tries;
        struct pawl_resolved r = { .size = sizeof r };
        if (!tasks[i].begun || tasks[i].number == tasks[i].target)
            continue;
        harness_check_rc(pawl_resolve(lane, &tasks[i].id, PAWL_RESOLVE_FENCE, &r), PAWL_OK);
        harness_check(r.state == PAWL_RESOLVED_COMMITTED || r.state == PAWL_RESOLVED_NEVER_SEEN);
        open_committed += r.state == PAWL_RESOLVED_COMMITTED;
    }
    struct pawl_value v = PAWL_VALUE_INIT;
    harness_check_rc(pawl_state_get(lane, "effects", "n", 1, NULL, 0, &v), PAWL_OK);
    printf("operations: %" PRIu64 " known, %" PRIu64 " tries, effects %" PRId64
           ", over %u kills of the broker and %u of workers\n",
           known, tries, v.number, broker_kills, worker_kills);
    harness_check((uint64_t)v.number == known + open_committed);
    pawl_close(lane);
}

int main(void)
{
    uint64_t seconds = harness_number("PAWL_COUNTER_SECONDS", 6);
    uint64_t retried = harness_number("PAWL_RETRIED", 2000);
    harness_begin("counter_test", 180 + (unsigned)(seconds * 3 + retried / 50));
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    shared = harness_shared(sizeof *shared);
    the_counter_is_exact(seconds);
    every_operation_has_one_effect(retried);
    harness_broker_stop(&broker);
    return 0;
}
