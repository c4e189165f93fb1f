/* SPDX-License-Identifier: MIT */
/* Op-ids and transactions through the library and a real broker, which is killed between the two.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/harness.h"

static struct harness_broker broker;

static uint64_t ready(struct pawl *lane, const char *queue)
{
    return harness_stat(lane, queue).ready;
}

/* Another process knows the id alone, and so does one after a crash of the broker. */
static void an_outcome_is_known_to_whoever_has_the_id(void)
{
    harness_step("outcome");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    struct pawl_op_id id, unused;
    struct pawl_sent first, again;
    struct pawl_resolved r = { .size = sizeof r };
    pawl_op_id_new(&id);
    pawl_op_id_new(&unused);
    harness_queue(lane, "ops", PAWL_DURABLE, 0);
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_send(lane, "ops", "x", 1, NULL, &first), PAWL_OK);
    /* It was for that one call. */
    harness_check_rc(pawl_send(lane, "ops", "x", 1, NULL, &again), PAWL_OK);
    harness_check(again.id != first.id);
    for (int life = 0; life < 2; life++) {
        harness_check_rc(pawl_op_id_next(other, &id), PAWL_OK);
        harness_check_rc(pawl_send(other, "ops", "x", 1, NULL, &again), PAWL_OK_DUPLICATE);
        harness_check(again.id == first.id && again.lsn == first.lsn);
        harness_check_rc(pawl_resolve(other, &id, 0, &r), PAWL_OK);
        harness_check(r.state == PAWL_RESOLVED_COMMITTED && r.value == first.id);
        harness_check_rc(pawl_resolve(other, &unused, life ? PAWL_RESOLVE_FENCE : 0, &r), PAWL_OK);
        harness_check(r.state == PAWL_RESOLVED_NEVER_SEEN);
        harness_broker_restart(&broker);
    }
    harness_check_rc(pawl_op_id_next(lane, &unused), PAWL_OK);
    harness_check_rc(pawl_send(lane, "ops", "y", 1, NULL, NULL), PAWL_E_OP_FENCED);
    harness_check(strstr(pawl_last_text(lane), "fence") != NULL);
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_send(lane, "ops", "y", 1, NULL, NULL), PAWL_E_OPID_MISMATCH);
    struct pawl_item items[2] = { { "a", 1, NULL }, { "b", 1, NULL } };
    struct pawl_sent sent[2];
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_send_batch(lane, "ops", items, 2, sent), PAWL_E_INVALID);
    harness_check(ready(lane, "ops") == 2);
    char text[PAWL_OP_ID_TEXT_BYTES];
    struct pawl_op_id parsed;
    pawl_op_id_format(&id, text);
    harness_check_rc(pawl_op_id_parse(text, &parsed), PAWL_OK);
    harness_check(memcmp(&parsed, &id, sizeof id) == 0);
    harness_check_rc(pawl_op_id_parse("0192f0c1-8a2b-7c3d-9e4f", &parsed), PAWL_E_INVALID);
    harness_check_rc(pawl_op_id_parse("", &parsed), PAWL_E_INVALID);
    pawl_close(lane);
    pawl_close(other);
}

/* A call that fails before it is submitted does not leave its id to the next one, whose outcome
 * would then be taken for its own. */
static void an_id_is_for_one_call(void)
{
    harness_step("one call");
    struct pawl *lane = harness_open(&broker);
    struct pawl_token none = { 1, 1, 1 };
    struct pawl_resolved r = { .size = sizeof r };
    struct pawl_op_id id;
    pawl_op_id_new(&id);
    harness_queue(lane, "one", PAWL_DURABLE, 0);
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_send(lane, "none", "x", 1, NULL, NULL), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_send(lane, "one", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_state_add(lane, "one", NULL, 0, 1, 0, 1, NULL), PAWL_E_INVALID);
    harness_check_rc(pawl_send(lane, "one", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check_rc(pawl_nack(lane, &none, PAWL_DELAY_NS_MAX + 1, NULL), PAWL_E_INVALID);
    harness_check_rc(pawl_send(lane, "one", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_resolve(lane, &id, 0, &r), PAWL_OK);
    harness_check(r.state == PAWL_RESOLVED_NEVER_SEEN);
    /* A call that changes nothing does not use it. */
    harness_check_rc(pawl_op_id_next(lane, &id), PAWL_OK);
    harness_check(ready(lane, "one") == 3);
    harness_check_rc(pawl_send(lane, "one", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_resolve(lane, &id, 0, &r), PAWL_OK);
    harness_check(r.state == PAWL_RESOLVED_COMMITTED);
    pawl_close(lane);
}

/* Of a broker that does not answer nothing is known, and nothing is said. */
static void no_answer_is_unknown_until_it_is_asked_for(void)
{
    harness_step("no answer");
    struct pawl_options options = PAWL_OPTIONS_INIT;
    options.timeout_ns = 200 * PAWL_NS_MS;
    struct pawl *slow = harness_open_with(&broker, &options), *lane = harness_open(&broker);
    struct pawl_resolved r = PAWL_RESOLVED_INIT;
    struct pawl_value v = PAWL_VALUE_INIT;
    struct pawl_op_id id;
    pawl_op_id_new(&id);
    harness_check_rc(pawl_table_create(lane, "numbers", NULL), PAWL_OK);
    harness_check_rc(pawl_state_add(slow, "numbers", "n", 1, 1, 0, 9, NULL), PAWL_OK);
    harness_signal(broker.pid, SIGSTOP);
    harness_check_rc(pawl_op_id_next(slow, &id), PAWL_OK);
    harness_check_rc(pawl_state_add(slow, "numbers", "n", 1, 1, 0, 9, NULL), PAWL_E_DEADLINE);
    harness_check(pawl_last_outcome(slow) == PAWL_OUTCOME_UNKNOWN);
    harness_check(strstr(pawl_last_text(slow), "did not answer") != NULL);
    harness_signal(broker.pid, SIGCONT);
    harness_check_rc(pawl_resolve(lane, &id, PAWL_RESOLVE_FENCE, &r), PAWL_OK);
    harness_check_rc(pawl_state_get(lane, "numbers", "n", 1, NULL, 0, &v), PAWL_OK);
    harness_check(v.number == (r.state == PAWL_RESOLVED_COMMITTED ? 2 : 1));
    pawl_close(slow);
    pawl_close(lane);
}

static void a_transaction_is_all_or_nothing(void)
{
    harness_step("transaction");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "in", PAWL_DURABLE, 0);
    harness_queue(lane, "out", PAWL_DURABLE, 0);
    struct pawl_committed c = { .size = sizeof c };
    struct pawl_txn *txn, *second;
    struct pawl_op_id id;
    pawl_op_id_new(&id);
    (void)harness_send(lane, "in", "work");
    struct pawl_token token = harness_receive(lane, "in", 5 * PAWL_NS_S, "work");

    harness_check_rc(pawl_txn_begin(lane, &id, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_begin(lane, NULL, &second), PAWL_E_MISUSE);
    harness_check_rc(pawl_txn_ack(txn, &token, 0), PAWL_OK);
    for (int i = 0; i < 100; i++)
        harness_check_rc(pawl_txn_send(txn, "out", "some result", 11, NULL, NULL), PAWL_OK);
    harness_check(ready(lane, "out") == 0); /* nobody knows of it yet */
    harness_check_rc(pawl_txn_commit(txn, &c), PAWL_OK);
    harness_check(c.first_id != 0 && c.sends == 100 && c.lsn != 0);
    harness_check(ready(lane, "out") == 100);
    struct pawl_record r = { .size = sizeof r };
    harness_check_rc(pawl_query_one(lane, "out", c.first_id + 99, &r), PAWL_OK);

    /* The same again, by who does not know that it is done. */
    harness_broker_restart(&broker);
    uint64_t first = c.first_id;
    harness_check_rc(pawl_txn_begin(lane, &id, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_ack(txn, &token, 0), PAWL_OK);
    for (int i = 0; i < 100; i++)
        harness_check_rc(pawl_txn_send(txn, "out", "some result", 11, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_txn_commit(txn, &c), PAWL_OK_DUPLICATE);
    harness_check(c.first_id == first && ready(lane, "out") == 100);

    /* One refused step, one poisoned handle, one dropped: nothing. */
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, "out", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_txn_ack(txn, &token, 0), PAWL_OK);
    harness_check_rc(pawl_txn_commit(txn, &c), PAWL_E_ALREADY_ACKED);
    harness_check(c.failed_step == 2 && c.found != 0);
    harness_check(strncmp(pawl_last_text(lane), "step 2: process ", 16) == 0);
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, "out", "x", 1, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, "no such queue", "x", 1, NULL, NULL), PAWL_E_INVALID);
    harness_check_rc(pawl_txn_send(txn, "out", "x", 1, NULL, NULL), PAWL_E_TXN_POISONED);
    harness_check_rc(pawl_txn_commit(txn, &c), PAWL_E_TXN_POISONED);
    pawl_txn_rollback(txn);
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_send(txn, "out", "x", 1, NULL, NULL), PAWL_OK);
    pawl_txn_rollback(txn);
    harness_check(ready(lane, "out") == 100);
    pawl_close(lane);
}

/* A body larger than the lane's rings: they grow. */
static void a_large_transaction_finds_room(void)
{
    enum { BYTES = 900000, STEPS = 8 };
    harness_step("large");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "large", PAWL_DURABLE, 0);
    uint8_t *body = malloc(BYTES);
    harness_check(body != NULL);
    memset(body, 7, BYTES);
    struct pawl_committed c = { .size = sizeof c };
    struct pawl_txn *txn;
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    for (int i = 0; i < STEPS; i++)
        harness_check_rc(pawl_txn_send(txn, "large", body, BYTES, NULL, NULL), PAWL_OK);
    int rc = pawl_txn_commit(txn, &c);
    harness_check(rc == PAWL_OK || rc == PAWL_E_TOO_BIG);
    harness_check(ready(lane, "large") == (rc == PAWL_OK ? STEPS : 0));
    free(body);
    pawl_close(lane);
}

struct job {
    struct pawl *lane;
    struct pawl_token token;
    int calls, misuse;
};

static int work(struct pawl_txn *txn, void *ctx)
{
    struct job *job = ctx;
    job->calls++;
    job->misuse = pawl_send(job->lane, "out", "x", 1, NULL, NULL);
    int rc = pawl_txn_ack(txn, &job->token, 0);
    return rc != PAWL_OK ? rc : pawl_txn_send(txn, "out", "y", 1, NULL, NULL);
}

static int give_up(struct pawl_txn *txn, void *ctx)
{
    (void)ctx;
    harness_check_rc(pawl_txn_send(txn, "out", "z", 1, NULL, NULL), PAWL_OK);
    return PAWL_E_STATE;
}

static void a_function_runs_once_for_a_transaction(void)
{
    harness_step("run");
    struct pawl *lane = harness_open(&broker);
    uint64_t before = ready(lane, "out");
    struct job job = { .lane = lane };
    struct pawl_committed c = { .size = sizeof c };
    (void)harness_send(lane, "in", "work");
    job.token = harness_receive(lane, "in", 5 * PAWL_NS_S, "work");
    harness_check_rc(pawl_txn_run(lane, work, &job, 0, &c), PAWL_OK);
    harness_check(job.calls == 1 && job.misuse == PAWL_E_MISUSE && c.first_id != 0);
    harness_check_rc(pawl_txn_run(lane, give_up, NULL, 0, &c), PAWL_E_STATE);
    harness_check_rc(pawl_txn_run(lane, work, &job, 0, &c), PAWL_E_ALREADY_ACKED);
    harness_check(job.calls == 2);
    harness_check(ready(lane, "out") == before + 1);
    pawl_close(lane);
}

struct transfer {
    struct pawl *other;
    int calls;
    bool disturb;
};

static int transfer(struct pawl_txn *txn, void *ctx)
{
    struct transfer *t = ctx;
    struct pawl_value v = PAWL_VALUE_INIT;
    int rc = pawl_txn_get(txn, "accounts", "a", 1, NULL, 0, &v);
    /* Somebody else writes what was read, once. */
    if (t->calls++ == 0 && t->disturb)
        harness_check_rc(
            pawl_state_add(t->other, "accounts", "a", 1, 100, INT64_MIN, INT64_MAX, NULL), PAWL_OK);
    if (rc == PAWL_OK)
        rc = pawl_txn_put_number(txn, "accounts", "a", 1, v.number - 10, PAWL_ANY);
    if (rc == PAWL_OK)
        rc = pawl_txn_add(txn, "accounts", "b", 1, 10, INT64_MIN, INT64_MAX);
    return rc;
}

static int64_t account(struct pawl *lane, const char *name)
{
    struct pawl_value v = PAWL_VALUE_INIT;
    harness_check(pawl_state_get(lane, "accounts", name, 1, NULL, 0, &v) >= 0);
    return v.number;
}

static void what_was_read_still_holds_at_the_commit(void)
{
    harness_step("tables");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    struct pawl_committed c = { .size = sizeof c };
    struct pawl_txn *txn;
    harness_check_rc(pawl_table_create(lane, "accounts", NULL), PAWL_OK);
    harness_check_rc(pawl_state_put_number(lane, "accounts", "a", 1, 50, 0, NULL), PAWL_OK);
    struct transfer quiet = { .other = other }, disturbed = { .other = other, .disturb = true };
    harness_check_rc(pawl_txn_run(lane, transfer, &quiet, 0, &c), PAWL_OK);
    harness_check(quiet.calls == 1 && account(lane, "a") == 40 && account(lane, "b") == 10);
    harness_check_rc(pawl_txn_run(lane, transfer, &disturbed, 0, &c), PAWL_OK);
    harness_check(disturbed.calls == 2 && account(lane, "a") == 130 && account(lane, "b") == 20);
    disturbed.calls = 0;
    harness_check_rc(pawl_txn_run(lane, transfer, &disturbed, 1, &c), PAWL_E_CONFLICT);
    harness_check(c.failed_step == 0 && account(lane, "a") == 230 && account(lane, "b") == 20);
    harness_broker_restart(&broker);
    harness_check(account(lane, "a") == 230 && account(lane, "b") == 20);

    /* An assertion that fails names its step and what it found. */
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_get(txn, "accounts", "none", 4, NULL, 0, NULL), PAWL_OK_MISSING);
    harness_check_rc(pawl_txn_add(txn, "accounts", "a", 1, 1, INT64_MIN, INT64_MAX), PAWL_OK);
    harness_check_rc(pawl_txn_assert_ge(txn, "accounts", "a", 1, 232), PAWL_OK);
    harness_check_rc(pawl_txn_commit(txn, &c), PAWL_E_PRECONDITION);
    harness_check(c.failed_step == 2 && c.found == 231 && account(lane, "a") == 230);
    pawl_close(lane);
    pawl_close(other);
}

/* What a worker leaves stands or falls with what it has made: the progress of a part, the result at
 * the end. */
static void steps_bring_progress_and_results(void)
{
    harness_step("progress and result");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "long", PAWL_DURABLE, 0);
    harness_check_rc(pawl_table_create(lane, "parts", NULL), PAWL_OK);
    uint64_t id = harness_send(lane, "long", "work");
    struct pawl_token token = harness_receive(lane, "long", 5 * PAWL_NS_S, "work");
    struct pawl_defer_options half = PAWL_DEFER_OPTIONS_INIT;
    half.progress = "half";
    half.progress_bytes = 4;
    struct pawl_message m;
    struct pawl_txn *txn;
    for (int refused = 1; refused >= 0; refused--) {
        harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
        harness_check_rc(pawl_txn_add(txn, "parts", "n", 1, 1, 0, 9), PAWL_OK);
        harness_check_rc(pawl_txn_defer(txn, &token, 0, &half), PAWL_OK);
        if (refused)
            harness_check_rc(pawl_txn_assert_exists(txn, "parts", "none", 4), PAWL_OK);
        harness_check_rc(pawl_txn_commit(txn, NULL), refused ? PAWL_E_PRECONDITION : PAWL_OK);
    }
    harness_broker_restart(&broker);
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    options.wait_ns = 5 * PAWL_NS_S;
    harness_check_rc(pawl_receive(lane, "long", &options, &m), PAWL_OK);
    harness_check(m.id == id && m.progress_bytes == 4 && memcmp(m.progress, "half", 4) == 0);
    char result[8] = "";
    size_t have = 0;
    for (int refused = 1; refused >= 0; refused--) {
        harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
        harness_check_rc(pawl_txn_ack_result(txn, &m.token, 0, "made", 4), PAWL_OK);
        harness_check_rc(pawl_txn_add(txn, "parts", "n", 1, 1, 0, refused ? 1 : 9), PAWL_OK);
        harness_check_rc(pawl_txn_commit(txn, NULL), refused ? PAWL_E_PRECONDITION : PAWL_OK);
        harness_check_rc(pawl_query_result(lane, "long", id, result, sizeof result, &have),
                         refused ? PAWL_E_STATE : PAWL_OK);
    }
    harness_check(have == 4 && memcmp(result, "made", 4) == 0);
    harness_broker_restart(&broker);
    harness_check_rc(pawl_query_result(lane, "long", id, result, sizeof result, &have), PAWL_OK);
    harness_check(have == 4 && memcmp(result, "made", 4) == 0);
    /* A step that is too large poisons it here. */
    static const char large[PAWL_RESULT_BYTES_MAX + 1];
    harness_check_rc(pawl_txn_begin(lane, NULL, &txn), PAWL_OK);
    harness_check_rc(pawl_txn_ack_result(txn, &m.token, 0, large, sizeof large), PAWL_E_INVALID);
    harness_check_rc(pawl_txn_commit(txn, NULL), PAWL_E_TXN_POISONED);
    pawl_txn_rollback(txn);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("txn_test", 120);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    an_outcome_is_known_to_whoever_has_the_id();
    an_id_is_for_one_call();
    no_answer_is_unknown_until_it_is_asked_for();
    a_transaction_is_all_or_nothing();
    a_large_transaction_finds_room();
    a_function_runs_once_for_a_transaction();
    what_was_read_still_holds_at_the_commit();
    steps_bring_progress_and_results();
    harness_broker_stop(&broker);
    return 0;
}
