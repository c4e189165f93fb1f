/* SPDX-License-Identifier: MIT */
/* After fork the child's copy of a lane is dead: every call says E_FORKED, closing it and ending by
 * exit() do nothing to the parent (hazards M13). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/harness.h"

static struct harness_broker broker;
static struct pawl *lane;
static struct pawl_token token;

static int child(void *arg)
{
    struct pawl_message m;
    struct pawl_sent sent;
    struct pawl_item item = { .body = "x", .bytes = 1 };
    struct pawl_queue_stat stat = { .size = sizeof stat };
    struct pawl_record record = { .size = sizeof record };
    struct pawl_broker_info info = { .size = sizeof info };
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_answer answer;
    struct pawl *other = NULL;
    const char *queue = "fork";
    pawl_ticket ticket = 1;
    uint64_t count;
    uint32_t n;
    int32_t result;
    size_t have;
    char text[64];
    options.wait_ns = PAWL_UNLIMITED;
    const int results[] = {
        pawl_lane_open(lane, &other),
        pawl_fd(lane),
        pawl_info(lane, &info),
        pawl_queue_create(lane, "other", NULL),
        pawl_queue_alter(lane, queue, NULL),
        pawl_queue_drop(lane, queue),
        pawl_queue_pause(lane, queue),
        pawl_queue_resume(lane, queue),
        pawl_queue_purge(lane, queue, &count),
        pawl_queue_stat(lane, queue, &stat),
        pawl_queue_list(lane, NULL, &stat, 1),
        pawl_send(lane, queue, "x", 1, NULL, &sent),
        pawl_send_batch(lane, queue, &item, 1, &sent),
        pawl_cancel(lane, queue, 1),
        pawl_receive(lane, queue, &options, &m),
        pawl_receive_batch(lane, &queue, 1, &options, &m, 1, &n),
        pawl_ack(lane, &token, 0),
        pawl_ack_batch(lane, &token, 1, 0, &result),
        pawl_ack_id(lane, queue, 1, 0),
        pawl_nack(lane, &token, 0, "no"),
        pawl_release(lane, &token),
        pawl_reject(lane, &token, "no"),
        pawl_defer(lane, &token, 0, NULL),
        pawl_renew(lane, &token, PAWL_NS_S),
        pawl_query_scan(lane, queue, 0, ~0u, &record, 1),
        pawl_query_one(lane, queue, 1, &record),
        pawl_peek(lane, queue, 1, text, sizeof text, &have),
        pawl_restore(lane, queue, 1),
        pawl_metrics(lane, text, sizeof text),
        pawl_submit_send(lane, queue, "x", 1, NULL, &ticket),
        pawl_submit_ack(lane, &token, 0, &ticket),
        pawl_flush(lane),
        pawl_wait(lane, ticket, PAWL_NS_S, &answer),
        pawl_poll(lane, &answer, 1, 1, PAWL_NS_S),
    };
    for (unsigned i = 0; i < sizeof results / sizeof results[0]; i++)
        if (results[i] != PAWL_E_FORKED)
            harness_fail("call %u in a forked child: %s", i, pawl_strname(results[i]));
    harness_check(other == NULL);
    if (arg != NULL)
        pawl_close(lane);
    /* A child may well have a lane of its own. */
    struct pawl *own = harness_open(&broker);
    (void)harness_stat(own, queue);
    pawl_close(own);
    exit(0); /* runs exit handlers, as a program would that knows nothing of this */
}

int main(void)
{
    harness_begin("fork_test", 60);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    lane = harness_open(&broker);
    harness_queue(lane, "fork", PAWL_DURABLE, PAWL_LEASE_NS_MAX);
    (void)harness_send(lane, "fork", "mine");
    token = harness_receive(lane, "fork", 0, "mine");
    pawl_ticket ticket;
    harness_check_rc(pawl_submit_send(lane, "fork", "open", 4, NULL, &ticket), PAWL_OK);

    harness_check(harness_wait(harness_fork(child, NULL)) == 0);
    harness_check(harness_wait(harness_fork(child, &broker)) == 0);

    /* The parent has lost neither its session nor its lease, nor what it had under way. */
    struct pawl_answer answer;
    harness_check_rc(pawl_wait(lane, ticket, 30 * PAWL_NS_S, &answer), PAWL_OK);
    harness_check_rc(answer.result, PAWL_OK);
    harness_check(harness_stat(lane, "fork").leased == 1);
    harness_check_rc(pawl_ack(lane, &token, 0), PAWL_OK);
    struct pawl_token t = harness_receive(lane, "fork", PAWL_NS_S, "open");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
    harness_broker_stop(&broker);
    return 0;
}
