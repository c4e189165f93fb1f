/* SPDX-License-Identifier: MIT */
/* Operations without an id of their caller: what another process learns of them when theirs is dead
 * or was told "unknown". */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"

#define SENDS 40

static struct harness_broker broker;

struct notes {
    struct pawl_op_id ids[SENDS]; /* written before the broker can see the call */
    uint64_t count;
    uint64_t dies_at;
};
static struct notes *notes;

/* Submits sends without looking at an answer, notes the id of each, and is killed among them. */
static int sender(void *arg)
{
    (void)arg;
    struct pawl *lane = harness_open(&broker);
    for (uint64_t i = 0; i < SENDS; i++) {
        pawl_ticket ticket;
        harness_check_rc(pawl_submit_send(lane, "left", &i, sizeof i, NULL, &ticket), PAWL_OK);
        harness_check_rc(pawl_ticket_id(lane, ticket, &notes->ids[i]), PAWL_OK);
        notes->count = i + 1;
        if (i % 4 == 3)
            harness_check_rc(pawl_flush(lane), PAWL_OK);
        if (i == notes->dies_at)
            (void)raise(SIGKILL);
    }
    return 1;
}

/* Every id of the dead one has a definite outcome, and it is the one that the queue shows. */
static void a_dead_process_leaves_its_outcomes(uint32_t round)
{
    harness_step("dead process, round %u", round);
    struct pawl *lane = harness_open(&broker);
    uint64_t before = harness_stat(lane, "left").sent, committed = 0;
    struct pawl_resolved r = PAWL_RESOLVED_INIT;
    memset(notes, 0, sizeof *notes);
    notes->dies_at = round * 7 % SENDS;
    harness_check(harness_wait(harness_fork(sender, NULL)) == 128 + SIGKILL);
    bool restarted = round % 3 == 1;
    if (restarted)
        harness_broker_restart(&broker);
    for (uint64_t i = 0; i < notes->count; i++) {
        int rc;
        harness_until((rc = pawl_resolve(lane, &notes->ids[i], PAWL_RESOLVE_FENCE, &r)) !=
                      PAWL_E_STATE); /* its death is still to be noticed */
        harness_check_rc(rc, PAWL_OK);
        /* The broker died before it had written anything of that session: then this log does not
         * know it, and nothing was done. */
        if (restarted && i == 0 && r.state == PAWL_RESOLVED_FORGOTTEN)
            break;
        if (r.state == PAWL_RESOLVED_FORGOTTEN || r.state == PAWL_RESOLVED_ABORTED)
            harness_fail("call %llu of %llu: state %u, %s", (unsigned long long)i,
                         (unsigned long long)notes->count, r.state, pawl_strname(r.result));
        if (r.state != PAWL_RESOLVED_COMMITTED)
            continue;
        struct pawl_record record = { .size = sizeof record };
        harness_check_rc(pawl_query_one(lane, "left", r.value, &record), PAWL_OK);
        committed++;
    }
    harness_check(harness_stat(lane, "left").sent - before == committed);
    if (round % 3 == 2) {
        harness_broker_restart(&broker);
        harness_check_rc(pawl_resolve(lane, &notes->ids[0], 0, &r), PAWL_OK);
        harness_check(r.state != PAWL_RESOLVED_FORGOTTEN);
    }
    pawl_close(lane);
}

/* Its caller was told "unknown" and lives on: the id is kept. */
static void an_unknown_answer_is_kept(void)
{
    harness_step("unknown");
    struct pawl_options options = PAWL_OPTIONS_INIT;
    options.timeout_ns = 300 * PAWL_NS_MS;
    struct pawl *slow = harness_open_with(&broker, &options), *lane = harness_open(&broker);
    struct pawl_resolved r = PAWL_RESOLVED_INIT;
    struct pawl_op_id id, none;
    harness_check_rc(pawl_last_id(slow, &none), PAWL_OK_MISSING);
    harness_check_rc(pawl_send(slow, "left", "1", 1, NULL, NULL), PAWL_OK);
    harness_freeze(broker.pid);
    harness_check_rc(pawl_send(slow, "left", "2", 1, NULL, NULL), PAWL_E_DEADLINE);
    harness_check(pawl_last_outcome(slow) == PAWL_OUTCOME_UNKNOWN);
    harness_check_rc(pawl_last_id(slow, &id), PAWL_OK);
    harness_signal(broker.pid, SIGCONT);
    uint64_t sent = harness_stat(lane, "left").sent;
    for (int i = 0; i < 5; i++) /* its window goes on */
        harness_check_rc(pawl_send(slow, "left", "more", 4, NULL, NULL), PAWL_OK);
    for (int life = 0; life < 3; life++) {
        harness_check_rc(pawl_resolve(lane, &id, 0, &r), PAWL_OK);
        /* The command carried its deadline: it was done in time, or refused. */
        harness_check(r.state == PAWL_RESOLVED_COMMITTED || r.state == PAWL_RESOLVED_ABORTED);
        harness_check(r.state != PAWL_RESOLVED_ABORTED || r.result == PAWL_E_DEADLINE);
        if (life == 0)
            pawl_close(slow);
        else
            harness_broker_restart(&broker);
    }
    harness_check(harness_stat(lane, "left").sent == sent + 5);
    pawl_close(lane);
}

/* A name that is not looked up in time: nothing was sent, and that is known. */
static void a_call_whose_queue_is_not_found_is_not_applied(void)
{
    harness_step("lookup");
    struct pawl_options options = PAWL_OPTIONS_INIT;
    options.timeout_ns = 200 * PAWL_NS_MS;
    struct pawl *slow = harness_open_with(&broker, &options);
    struct pawl_op_id id;
    struct pawl_txn *txn;
    harness_freeze(broker.pid);
    harness_check_rc(pawl_send(slow, "left", "1", 1, NULL, NULL), PAWL_E_DEADLINE);
    harness_check(pawl_last_outcome(slow) == PAWL_OUTCOME_NOT_APPLIED);
    harness_check_rc(pawl_last_id(slow, &id), PAWL_OK_MISSING);
    harness_check_rc(pawl_txn_begin(slow, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, "left", "1", 1, NULL, NULL), PAWL_E_DEADLINE);
    harness_check(pawl_last_outcome(slow) == PAWL_OUTCOME_NOT_APPLIED);
    pawl_txn_rollback(txn);
    harness_signal(broker.pid, SIGCONT);
    pawl_close(slow);
}

/* A lane that is closed and opened again has the same number, but never the same ids. */
static void an_id_is_never_used_again(void)
{
    harness_step("lanes that come and go");
    struct pawl *first = harness_open(&broker), *lane = NULL;
    struct pawl_op_id ids[6];
    for (int i = 0; i < 6; i++) {
        harness_check_rc(pawl_lane_open(first, &lane), PAWL_OK);
        for (int n = 0; n <= i % 3; n++)
            harness_check_rc(pawl_send(lane, "left", "x", 1, NULL, NULL), PAWL_OK);
        harness_check_rc(pawl_last_id(lane, &ids[i]), PAWL_OK);
        for (int n = 0; n < i; n++)
            harness_check(memcmp(&ids[n], &ids[i], sizeof ids[n]) != 0);
        pawl_close(lane);
    }
    pawl_close(first);
}

/* An end that leaves calls open is no clean one. */
static void a_close_with_open_calls_leaves_them(void)
{
    harness_step("close");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    struct pawl_resolved r = PAWL_RESOLVED_INIT;
    struct pawl_op_id id, answered;
    pawl_ticket ticket;
    harness_check_rc(pawl_send(lane, "left", "1", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_last_id(lane, &answered), PAWL_OK);
    harness_check_rc(pawl_submit_send(lane, "left", "2", 1, NULL, &ticket), PAWL_OK);
    harness_check_rc(pawl_ticket_id(lane, ticket, &id), PAWL_OK);
    harness_check_rc(pawl_ticket_id(lane, ticket + 1, &id), PAWL_OK_MISSING);
    harness_check_rc(pawl_flush(lane), PAWL_OK);
    pawl_close(lane);
    int rc;
    harness_until((rc = pawl_resolve(other, &id, PAWL_RESOLVE_FENCE, &r)) != PAWL_E_STATE);
    harness_check_rc(rc, PAWL_OK);
    harness_check(r.state == PAWL_RESOLVED_COMMITTED || r.state == PAWL_RESOLVED_NEVER_SEEN);
    /* That its answer was read the broker knows from the next command, if it has seen that. */
    harness_check_rc(pawl_resolve(other, &answered, 0, &r), PAWL_OK);
    harness_check(r.state == PAWL_RESOLVED_FORGOTTEN || r.state == PAWL_RESOLVED_COMMITTED);
    pawl_close(other);
}

/* A refused acknowledgement tells whose came first, and the message by which call. */
static void an_acknowledgement_names_its_call(void)
{
    harness_step("acknowledged");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    struct pawl_record r = { .size = sizeof r };
    struct pawl_resolved resolved = PAWL_RESOLVED_INIT;
    struct pawl_op_id id;
    harness_queue(lane, "acks", PAWL_DURABLE, 0);
    uint64_t message = harness_send(lane, "acks", "x");
    struct pawl_token token = harness_receive(lane, "acks", 5 * PAWL_NS_S, "x");
    harness_check_rc(pawl_ack(lane, &token, 0), PAWL_OK);
    harness_check_rc(pawl_last_id(lane, &id), PAWL_OK);
    for (int life = 0; life < 2; life++) {
        harness_check_rc(pawl_query_one(other, "acks", message, &r), PAWL_OK);
        harness_check(memcmp(&r.done_by, &id, sizeof id) == 0);
        harness_check_rc(pawl_ack(lane, &token, 0), PAWL_E_ALREADY_ACKED);
        harness_check(strstr(pawl_last_text(lane), "this process") != NULL);
        harness_check_rc(pawl_ack(other, &token, 0), PAWL_E_ALREADY_ACKED);
        harness_check(strstr(pawl_last_text(other), "this process") == NULL);
        harness_broker_restart(&broker);
    }
    harness_check_rc(pawl_resolve(other, &r.done_by, 0, &resolved), PAWL_OK);
    pawl_close(lane);
    pawl_close(other);
}

int main(void)
{
    harness_begin("left", 120);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    notes = harness_shared(sizeof *notes);
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "left", PAWL_DURABLE, 0);
    pawl_close(lane);
    for (uint32_t round = 1; round <= 12; round++)
        a_dead_process_leaves_its_outcomes(round);
    an_unknown_answer_is_kept();
    a_call_whose_queue_is_not_found_is_not_applied();
    an_id_is_never_used_again();
    a_close_with_open_calls_leaves_them();
    an_acknowledgement_names_its_call();
    harness_broker_stop(&broker);
    return 0;
}
