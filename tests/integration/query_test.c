/* SPDX-License-Identifier: MIT */
/* Records of many messages at one moment, by key, and waiting for what becomes of a message,
 * through a real broker that is killed meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "lib/harness.h"

static struct harness_broker broker;

static void a_batch_is_one_moment_under_writers(void)
{
    harness_step("batch");
    enum { N = PAWL_BATCH_MAX };
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    static uint64_t ids[N];
    static struct pawl_record out[N];
    static int32_t results[N];
    harness_check_rc(pawl_queue_create(lane, "batch", NULL), PAWL_OK);
    for (int i = 0; i < N; i++)
        ids[i] = harness_send(lane, "batch", "x");
    out[0].size = sizeof out[0];
    uint64_t lsn = 0, last = 0;
    /* They are acknowledged from the first to the last: at one moment those that are over stand in
     * front of those that are not. */
    for (int i = 0; i < N; i++) {
        harness_check_rc(pawl_ack_id(other, "batch", ids[i], 0), PAWL_OK);
        if (i % 64 != 5)
            continue;
        out[0].size = sizeof out[0];
        harness_check(pawl_query_batch(lane, "batch", ids, N, out, results, &lsn) == N);
        harness_check(lsn > last);
        last = lsn;
        for (int j = 0; j < N; j++)
            harness_check(results[j] == PAWL_OK && out[j].id == ids[j] &&
                          out[j].state == (j <= i ? PAWL_STATE_ACKED : PAWL_STATE_READY));
    }
    uint64_t some[3] = { ids[7], 1, ids[8] };
    out[0].size = sizeof out[0];
    harness_check(pawl_query_batch(lane, "batch", some, 3, out, results, NULL) == 2);
    harness_check(results[1] == PAWL_E_NOT_FOUND && out[1].id == 1);
    harness_broker_restart(&broker);
    out[0].size = sizeof out[0];
    harness_check(pawl_query_batch(lane, "batch", ids, N, out, results, &lsn) == N);
    harness_check(out[N - 1].state == PAWL_STATE_ACKED);
    pawl_close(other);
    pawl_close(lane);
}

static void a_message_is_found_by_its_key(void)
{
    harness_step("key");
    struct pawl *lane = harness_open(&broker);
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    struct pawl_record r = { .size = sizeof r };
    struct pawl_sent sent;
    o.key = "order-17";
    o.key_bytes = 8;
    harness_check_rc(pawl_send(lane, "batch", "x", 1, &o, &sent), PAWL_OK);
    for (int i = 0; i < 2; i++) {
        harness_check_rc(pawl_query_key(lane, "batch", "order-17", 8, &r), PAWL_OK);
        harness_check(r.id == sent.id && r.state == PAWL_STATE_READY);
        harness_check_rc(pawl_query_key(lane, "batch", "order-18", 8, &r), PAWL_E_NOT_FOUND);
        harness_broker_restart(&broker);
    }
    pawl_close(lane);
}

struct job {
    uint64_t id;
    uint32_t waiting;
};

static int waits(void *arg)
{
    struct job *job = arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_record r = { .size = sizeof r };
    harness_check_rc(
        pawl_query_wait(lane, "waited", job->id, 1u << PAWL_STATE_DEAD, 20 * PAWL_NS_MS, &r),
        PAWL_OK_EMPTY);
    __atomic_fetch_add(&job->waiting, 1, __ATOMIC_SEQ_CST);
    harness_check_rc(
        pawl_query_wait(lane, "waited", job->id, 1u << PAWL_STATE_ACKED, 600 * PAWL_NS_S, &r),
        PAWL_OK);
    harness_check(r.state == PAWL_STATE_ACKED && r.id == job->id);
    harness_check_rc(
        pawl_query_wait(lane, "waited", job->id, 1u << PAWL_STATE_DEAD, 600 * PAWL_NS_S, &r),
        PAWL_E_STATE);
    pawl_close(lane);
    return 0;
}

static void who_waits_is_told_though_the_broker_died(void)
{
    harness_step("wait");
    enum { WAITERS = 4 };
    struct job *job = harness_shared(sizeof *job);
    struct pawl *lane = harness_open(&broker);
    pid_t pids[WAITERS];
    harness_check_rc(pawl_queue_create(lane, "waited", NULL), PAWL_OK);
    job->id = harness_send(lane, "waited", "work");
    for (int i = 0; i < WAITERS; i++)
        pids[i] = harness_fork(waits, job);
    harness_until(__atomic_load_n(&job->waiting, __ATOMIC_SEQ_CST) == WAITERS);
    harness_broker_restart(&broker);
    struct pawl_token token = harness_receive(lane, "waited", 5 * PAWL_NS_S, "work");
    harness_broker_restart(&broker);
    harness_check_rc(pawl_ack(lane, &token, 0), PAWL_OK);
    for (int i = 0; i < WAITERS; i++)
        harness_check(harness_wait(pids[i]) == 0);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("query_test", 120);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    a_batch_is_one_moment_under_writers();
    a_message_is_found_by_its_key();
    who_waits_is_told_though_the_broker_died();
    harness_broker_stop(&broker);
    return 0;
}
