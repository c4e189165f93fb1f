/* SPDX-License-Identifier: MIT */
/* Idempotent operations through a real broker that is killed under its clients: the work of a key
 * is given to one process, everybody else is told the result byte for byte (B20-B23, A07), and who
 * dies in the middle leaves his progress and a lower fencing number. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/harness.h"

static struct harness_broker broker;

enum { CLIENTS = 5, KEYS = 400, KILLS = 6 };

static struct shared {
    uint32_t stop;
    uint64_t steps[CLIENTS];
    uint64_t done[CLIENTS];
    uint32_t executions[KEYS];
    uint64_t fence[KEYS];  /* what the outside system saw last */
    uint64_t result[KEYS]; /* what it did */
} * shared;

static size_t key_of(char *key, size_t size, uint32_t n)
{
    return (size_t)snprintf(key, size, "order-%u", n);
}

/* The outside system: takes no number below one that it has seen. */
static uint64_t execute(uint32_t n, uint64_t fence, uint32_t client)
{
    harness_check(fence > __atomic_exchange_n(&shared->fence[n], fence, __ATOMIC_SEQ_CST));
    __atomic_fetch_add(&shared->executions[n], 1, __ATOMIC_SEQ_CST);
    uint64_t result = fence << 8 | client;
    __atomic_store_n(&shared->result[n], result, __ATOMIC_SEQ_CST);
    return result;
}

static void once(struct pawl *lane, uint32_t n, uint32_t client)
{
    char key[32];
    size_t bytes = key_of(key, sizeof key, n);
    struct pawl_idem it = PAWL_IDEM_INIT;
    uint64_t result = 0;
    harness_check_rc(pawl_idem_begin(lane, "orders", key, bytes, pawl_idem_hash(key, bytes), 0,
                                     &result, sizeof result, &it),
                     PAWL_OK);
    if (it.state == PAWL_IDEM_FIRST) {
        harness_check(it.attempts == 0);
        result = execute(n, it.token.grant, client);
        harness_check_rc(pawl_idem_complete(lane, &it.token, (int32_t)n, &result, sizeof result, 0),
                         PAWL_OK);
        shared->done[client]++;
    } else if (it.state == PAWL_IDEM_DONE) {
        harness_check(it.code == (int32_t)n && it.bytes == sizeof result && it.lsn != 0);
        harness_check(result == __atomic_load_n(&shared->result[n], __ATOMIC_SEQ_CST));
    } else {
        harness_check(it.state == PAWL_IDEM_IN_PROGRESS && it.owner_pid != (uint32_t)getpid());
    }
}

static int live(void *arg)
{
    uint32_t client = (uint32_t)(uintptr_t)arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_prng prng = harness_prng(client);
    while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
        once(lane, (uint32_t)(pawl_prng_next(&prng) % KEYS), client);
        __atomic_fetch_add(&shared->steps[client], 1, __ATOMIC_RELAXED);
    }
    for (uint32_t n = 0; n < KEYS; n++)
        once(lane, n, client);
    pawl_close(lane);
    return 0;
}

static void the_work_of_a_key_is_done_once(void)
{
    pid_t pids[CLIENTS];
    struct pawl *lane = harness_open(&broker);
    shared = harness_shared(sizeof *shared);
    harness_check_rc(pawl_table_create(lane, "orders", NULL), PAWL_OK);
    for (uint32_t i = 0; i < CLIENTS; i++)
        pids[i] = harness_fork(live, (void *)(uintptr_t)i);
    for (int round = 0; round < KILLS; round++) {
        harness_step("clients, kill %d", round);
        for (int i = 0; i < CLIENTS; i++) {
            uint64_t before = __atomic_load_n(&shared->steps[i], __ATOMIC_RELAXED);
            harness_until(__atomic_load_n(&shared->steps[i], __ATOMIC_RELAXED) >= before + 5);
        }
        harness_broker_kill(&broker);
        harness_broker_start(&broker);
    }
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
    uint64_t steps = 0, done = 0;
    for (int i = 0; i < CLIENTS; i++) {
        harness_check(harness_wait(pids[i]) == 0);
        steps += shared->steps[i];
        done += shared->done[i];
    }
    for (uint32_t n = 0; n < KEYS; n++) {
        harness_check(shared->executions[n] == 1);
        once(lane, n, 0); /* none is left to be done */
    }
    harness_check(done == KEYS);
    pawl_close(lane);
    printf("once: %llu begins of %d keys over %d kills\n", (unsigned long long)steps, KEYS, KILLS);
}

/* --- death of the owner ---------------------------------------------------------------------- */

static int die_at_work(void *arg)
{
    uint64_t *fence = arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_idem it = PAWL_IDEM_INIT;
    harness_check_rc(
        pawl_idem_begin(lane, "orders", "transfer", 8, 1, 3600 * PAWL_NS_S, NULL, 0, &it), PAWL_OK);
    harness_check(it.state == PAWL_IDEM_FIRST);
    harness_check_rc(pawl_idem_progress(lane, &it.token, "debited", 7, 0), PAWL_OK);
    *fence = it.token.grant;
    (void)raise(SIGKILL);
    return 1;
}

static void who_dies_leaves_his_progress(void)
{
    harness_step("owner dies");
    struct pawl *lane = harness_open(&broker);
    uint64_t *fence = harness_shared(2 * sizeof *fence), last = 0;
    char progress[16];
    struct pawl_idem it = PAWL_IDEM_INIT;
    for (uint32_t n = 0; n < 2; n++) {
        harness_check(harness_wait(harness_fork(die_at_work, fence)) == 128 + SIGKILL);
        harness_check(*fence > last);
        last = *fence;
        if (n == 1)
            harness_broker_restart(&broker);
        do {
            harness_check_rc(pawl_idem_get(lane, "orders", "transfer", 8, NULL, 0, &it), PAWL_OK);
        } while (it.state == PAWL_IDEM_IN_PROGRESS);
        harness_check(it.state == PAWL_IDEM_ABANDONED && it.attempts == n + 1);
    }
    harness_check_rc(
        pawl_idem_begin(lane, "orders", "transfer", 8, 1, 0, progress, sizeof progress, &it),
        PAWL_OK);
    harness_check(it.state == PAWL_IDEM_FIRST && it.attempts == 2 && it.token.grant > last);
    harness_check(it.bytes == 7 && memcmp(progress, "debited", 7) == 0);
    harness_check_rc(pawl_idem_complete(lane, &it.token, 3, "no cover", 8, PAWL_IDEM_FINAL_FAIL),
                     PAWL_OK);
    harness_check_rc(pawl_idem_complete(lane, &it.token, 3, "no cover", 8, PAWL_IDEM_FINAL_FAIL),
                     PAWL_OK_DUPLICATE);
    harness_check_rc(pawl_idem_begin(lane, "orders", "transfer", 8, 2, 0, NULL, 0, &it),
                     PAWL_E_IDEM_MISMATCH);
    harness_check(it.param_hash == 1);
    harness_check_rc(pawl_idem_begin(lane, "orders", "transfer", 8, 1, 0, NULL, 0, &it), PAWL_OK);
    harness_check(it.state == PAWL_IDEM_FAILED && it.code == 3 && it.bytes == 8);
    pawl_close(lane);
}

/* --- results, transactions ------------------------------------------------------------------- */

static void a_large_result_is_the_same_bytes(void)
{
    harness_step("large results");
    struct pawl *lane = harness_open(&broker);
    uint8_t *result = malloc(PAWL_IDEM_RESULT_BYTES_MAX),
            *back = malloc(PAWL_IDEM_RESULT_BYTES_MAX);
    harness_check(result && back);
    struct pawl_prng prng = harness_prng(99);
    /* 12 MiB through a log of segments of 1 MiB: the first ones are copied forward. */
    for (uint32_t i = 0; i < 200; i++) {
        struct pawl_idem it = PAWL_IDEM_INIT;
        harness_check_rc(pawl_idem_begin(lane, "orders", &i, sizeof i, 1, 0, NULL, 0, &it),
                         PAWL_OK);
        for (uint32_t j = 0; i == 0 && j < PAWL_IDEM_RESULT_BYTES_MAX; j++)
            result[j] = (uint8_t)pawl_prng_next(&prng);
        harness_check_rc(pawl_idem_complete(lane, &it.token, 0, result,
                                            i % 20 ? 1000 : PAWL_IDEM_RESULT_BYTES_MAX, 0),
                         PAWL_OK);
    }
    for (int round = 0; round < 2; round++) {
        struct pawl_idem it = PAWL_IDEM_INIT;
        uint32_t i = 0;
        harness_check_rc(pawl_idem_begin(lane, "orders", &i, sizeof i, 1, 0, back,
                                         PAWL_IDEM_RESULT_BYTES_MAX, &it),
                         PAWL_OK);
        harness_check(it.state == PAWL_IDEM_DONE && it.bytes == PAWL_IDEM_RESULT_BYTES_MAX);
        harness_check(memcmp(back, result, PAWL_IDEM_RESULT_BYTES_MAX) == 0);
        harness_broker_restart(&broker);
    }
    free(result);
    free(back);
    pawl_close(lane);
}

static void completed_with_the_acknowledgement(void)
{
    harness_step("transaction");
    struct pawl *lane = harness_open(&broker);
    struct pawl_idem it = PAWL_IDEM_INIT;
    struct pawl_txn *txn;
    harness_check_rc(pawl_queue_create(lane, "in", NULL), PAWL_OK);
    harness_check_rc(pawl_queue_create(lane, "out", NULL), PAWL_OK);
    (void)harness_send(lane, "in", "work");
    struct pawl_token token = harness_receive(lane, "in", 5 * PAWL_NS_S, "work");
    harness_check_rc(pawl_idem_begin(lane, "orders", "txn", 3, 1, 0, NULL, 0, &it), PAWL_OK);
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_ack(txn, &token, 0), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, "out", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_txn_idem_complete(txn, &it.token, 0, "made", 4, 0), PAWL_OK);
    harness_check_rc(pawl_txn_commit(txn, NULL), PAWL_OK);
    harness_broker_restart(&broker);
    char back[8];
    harness_check_rc(pawl_idem_get(lane, "orders", "txn", 3, back, sizeof back, &it), PAWL_OK);
    harness_check(it.state == PAWL_IDEM_DONE && it.bytes == 4 && memcmp(back, "made", 4) == 0);
    harness_check_rc(pawl_ack(lane, &token, 0), PAWL_E_ALREADY_ACKED);
    /* Refused as a whole. */
    harness_check_rc(pawl_idem_begin(lane, "orders", "txn2", 4, 1, 0, NULL, 0, &it), PAWL_OK);
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_idem_complete(txn, &it.token, 0, NULL, 0, 0), PAWL_OK);
    harness_check_rc(pawl_txn_ack(txn, &token, 0), PAWL_OK);
    harness_check_rc(pawl_txn_commit(txn, NULL), PAWL_E_ALREADY_ACKED);
    harness_check_rc(pawl_idem_abandon(lane, &it.token), PAWL_OK);
    harness_check_rc(pawl_idem_complete(lane, &it.token, 0, NULL, 0, 0), PAWL_E_LEASE_LOST);
    /* Under an id of the caller, which a begin leaves alone. */
    struct pawl_op_id id;
    struct pawl_resolved r = { .size = sizeof r };
    pawl_op_id_new(&id);
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_idem_begin(lane, "orders", "txn2", 4, 1, 0, NULL, 0, &it), PAWL_OK);
    harness_check(it.state == PAWL_IDEM_FIRST && it.attempts == 1);
    harness_check_rc(pawl_idem_complete(lane, &it.token, 0, NULL, 0, 0), PAWL_OK);
    harness_check_rc(pawl_resolve(lane, &id, 0, &r), PAWL_OK);
    harness_check(r.state == PAWL_RESOLVED_COMMITTED);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("idem_test", 180);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    the_work_of_a_key_is_done_once();
    who_dies_leaves_his_progress();
    a_large_result_is_the_same_bytes();
    completed_with_the_acknowledgement();
    harness_broker_stop(&broker);
    return 0;
}
