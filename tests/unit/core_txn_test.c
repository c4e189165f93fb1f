/* SPDX-License-Identifier: MIT */
/* Transactions: all steps or none, as one record. */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "core/core_inner.h"
#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t in, out, volatile_out;
    uint8_t row[65536];
    uint32_t bytes, count;
};

static struct world *begin(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0777;
    w->in = core_create_with(&w->a, "in", &o);
    o.max_messages = 3;
    w->out = core_create_with(&w->a, "out", &o);
    w->volatile_out = core_create(&w->a, "volatile", PAWL_MEMORY);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static void add(struct world *w, void *command, uint32_t fixed, const char *variable)
{
    uint32_t bytes = variable ? (uint32_t)pawl_align_up(strlen(variable), 8) : 0;
    struct pawl_cmd *head = command;
    head->bytes = fixed + bytes;
    assert_true(w->bytes + head->bytes <= sizeof w->row);
    memcpy(w->row + w->bytes, command, fixed);
    memset(w->row + w->bytes + fixed, 0, bytes);
    if (variable)
        memcpy(w->row + w->bytes + fixed, variable, strlen(variable));
    w->bytes += head->bytes;
    w->count++;
}

static void add_send(struct world *w, uint64_t queue, const char *body)
{
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = queue, .priority = 4 };
    m.body_bytes = (uint32_t)strlen(body);
    add(w, &m, sizeof m, body);
}

static void add_settle(struct world *w, uint16_t type, const struct core_delivery *d,
                       const char *reason)
{
    struct pawl_cmd_settle m = {
        .head.type = type,
        .message = d->d.message,
        .grant = d->d.grant,
        .random = d->d.random,
        .text_bytes = reason ? (uint32_t)strlen(reason) : 0,
    };
    add(w, &m, sizeof m, reason);
}

static void add_by_id(struct world *w, uint16_t type, uint64_t queue, uint64_t id)
{
    struct pawl_cmd_message m = { .head.type = type, .queue = queue, .id = id };
    add(w, &m, sizeof m, NULL);
}

static void add_state(struct world *w, uint64_t table, uint8_t op, const char *key, int64_t number)
{
    struct pawl_cmd_state m = {
        .head.type = PAWL_CMD_STATE,
        .table = table,
        .expect = UINT64_MAX,
        .number = number,
        .min = INT64_MIN,
        .max = INT64_MAX,
        .op = op,
        .key_bytes = (uint8_t)strlen(key),
    };
    add(w, &m, sizeof m, key);
}

static struct pawl_cmd_txn command(struct world *w)
{
    struct pawl_cmd_txn c = { .head.type = PAWL_CMD_TXN, .count = w->count };
    return c;
}

static struct core_answer run(struct world *w, struct core_client *c, const struct pawl_op_id *id)
{
    struct pawl_cmd_txn x = command(w);
    if (id) {
        x.head.flags = PAWL_CMD_IDENTIFIED;
        memcpy(w->row + w->bytes, id, sizeof *id);
    }
    uint32_t bytes = w->bytes + (id ? (uint32_t)sizeof *id : 0);
    return core_call(c, &x, sizeof x, w->row, bytes);
}

static void clear(struct world *w) { w->bytes = w->count = 0; }

static struct core_delivery leased(struct world *w)
{
    assert_int_equal(core_send(&w->a, w->in, "work").result, PAWL_OK);
    struct core_delivery d = core_receive(&w->a, w->in);
    assert_true(d.there);
    return d;
}

static struct pawl_op_id new_id(struct world *w)
{
    static uint8_t n;
    struct pawl_op_id id = { { 0 } };
    uint64_t ms = w->s.now.wall / PAWL_NS_MS;
    for (int i = 0; i < 6; i++)
        id.bytes[i] = (uint8_t)(ms >> (40 - 8 * i));
    id.bytes[6] = 0x70;
    id.bytes[8] = 0x80;
    id.bytes[15] = ++n;
    return id;
}

static uint64_t ready(struct world *w, const char *queue) { return core_stat(&w->b, queue).ready; }

static void all_steps_are_one_record(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_delivery d = leased(w), e = leased(w);
    add_settle(w, PAWL_CMD_ACK, &d, NULL);
    add_settle(w, PAWL_CMD_NACK, &e, "later");
    add_send(w, w->out, "one");
    add_send(w, w->out, "two and more than eight bytes");
    uint32_t before = w->s.record_count;
    struct core_answer a = run(w, &w->a, NULL);
    assert_int_equal(a.result, PAWL_OK);
    assert_int_equal(w->s.record_count, before + 1);
    assert_int_equal(core_query(&w->a, w->out, a.value).state, PAWL_STATE_READY);
    assert_int_equal(core_query(&w->a, w->out, a.value + 1).state, PAWL_STATE_READY);
    assert_int_equal(core_query(&w->a, w->in, d.d.message).state, PAWL_STATE_ACKED);
    struct pawl_record r = core_query(&w->a, w->in, e.d.message);
    assert_int_equal(r.state, PAWL_STATE_READY); /* the first step of the ladder is none */
    assert_string_equal(r.reason, "later");
    core_restart(&w->s, true);
    core_client_open(&w->s, &w->b, 7);
    assert_int_equal(ready(w, "out"), 2);
    assert_int_equal(core_stat(&w->b, "in").done, 1);
    end(w);
}

static void a_refused_step_refuses_all(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_delivery d = leased(w), e = leased(w);
    assert_int_equal(core_ack(&w->a, &e).result, PAWL_OK);
    uint64_t digest = pawl_core_digest(w->s.core);
    add_send(w, w->out, "one");
    add_settle(w, PAWL_CMD_ACK, &d, NULL);
    add_settle(w, PAWL_CMD_ACK, &e, NULL);
    add_send(w, w->out, "two");
    uint32_t before = w->s.record_count;
    struct core_answer a = run(w, &w->a, NULL);
    assert_int_equal(a.result, PAWL_E_ALREADY_ACKED);
    assert_int_equal(a.value, 3);            /* which step */
    assert_int_equal((uint32_t)a.lsn, 1007); /* what it met: the pid that acked */
    assert_int_equal(w->s.record_count, before);
    assert_true(pawl_core_digest(w->s.core) == digest);
    pawl_core_verify(w->s.core);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    end(w);
}

/* What a step adds the next ones see, and nothing of it stays after a refusal. */
static void limits_hold_within_a_transaction(void **state)
{
    (void)state;
    struct world *w = begin();
    for (int i = 0; i < 4; i++)
        add_send(w, w->out, "x");
    struct core_answer a = run(w, &w->a, NULL);
    assert_int_equal(a.result, PAWL_E_FULL);
    assert_int_equal(a.value, 4);
    assert_int_equal(a.lsn, PAWL_LIMIT_QUEUE_MESSAGES);
    clear(w);
    for (int i = 0; i < 3; i++)
        add_send(w, w->out, "x");
    assert_int_equal(run(w, &w->a, NULL).result, PAWL_OK);
    assert_int_equal(ready(w, "out"), 3);
    clear(w);
    add_send(w, w->out, "x");
    assert_int_equal(run(w, &w->a, NULL).result, PAWL_E_FULL);
    end(w);
}

static void a_message_stands_in_one_step(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_delivery d = leased(w);
    add_settle(w, PAWL_CMD_ACK, &d, NULL);
    add_settle(w, PAWL_CMD_NACK, &d, NULL);
    struct core_answer a = run(w, &w->a, NULL);
    assert_int_equal(a.result, PAWL_E_INVALID);
    assert_int_equal(a.value, 2);
    uint64_t id = core_send(&w->a, w->out, "y").value;
    clear(w);
    add_by_id(w, PAWL_CMD_CANCEL, w->out, id);
    add_by_id(w, PAWL_CMD_ACK_ID, w->out, id);
    a = run(w, &w->a, NULL);
    assert_int_equal(a.result, PAWL_E_INVALID);
    assert_int_equal(a.value, 2);
    clear(w);
    add_by_id(w, PAWL_CMD_CANCEL, w->out, id);
    add_settle(w, PAWL_CMD_ACK, &d, NULL);
    assert_int_equal(run(w, &w->a, NULL).result, PAWL_OK);
    assert_int_equal(core_query(&w->a, w->out, id).state, PAWL_STATE_CANCELLED);
    end(w);
}

/* A second commit of the same id, after a crash too, answers as the first: its own effect is never
 * doubled and the acks of the first are not met by the second. */
static void a_second_commit_answers_as_the_first(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_delivery d = leased(w);
    struct pawl_op_id id = new_id(w);
    add_settle(w, PAWL_CMD_ACK, &d, NULL);
    add_send(w, w->out, "one");
    struct core_answer a = run(w, &w->a, &id);
    assert_int_equal(a.result, PAWL_OK);
    for (int i = 0; i < 3; i++) {
        struct core_answer again = run(w, &w->a, &id);
        assert_int_equal(again.result, PAWL_OK_DUPLICATE);
        assert_int_equal(again.value, a.value);
        assert_int_equal(again.lsn, a.lsn);
        if (i == 1)
            core_copy_all(&w->s);
        core_restart(&w->s, true);
        core_client_open(&w->s, &w->a, 7);
    }
    core_client_open(&w->s, &w->b, 7);
    assert_int_equal(ready(w, "out"), 1);
    end(w);
}

/* The answer of a lane's own transaction is in its window, whole, though its parts say other things
 * of the same operation. */
/* Its record ends with an outcome that names nobody. That says nothing of what was forgotten. */
static void a_transaction_without_an_id_moves_no_horizon(void **state)
{
    (void)state;
    struct world *w = begin();
    add_send(w, w->out, "one");
    assert_int_equal(run(w, &w->a, NULL).result, PAWL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w->s.core->ledger.horizon, 0);
        assert_int_equal(w->s.core->ledger.left_horizon, 0);
        assert_int_equal(w->s.core->horizon_home.segment, 0);
        core_restart(&w->s, true);
    }
    end(w);
}

static void a_resumed_lane_gets_the_answer_of_the_whole(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_delivery d = leased(w);
    add_send(w, w->out, "one");
    add_send(w, w->out, "two");
    add_settle(w, PAWL_CMD_ACK, &d, NULL);
    struct pawl_cmd_txn x = command(w);
    w->a.hold = true;
    assert_int_equal(core_take(&w->a, &x, sizeof x, w->row, w->bytes), PAWL_OK);
    uint64_t seq = x.head.seq;
    core_restart(&w->s, true); /* nobody has read it */
    assert_int_equal(core_client_resume(&w->a, d.d.grant, 0), PAWL_OK);
    x.head.flags = PAWL_CMD_RESUBMIT;
    assert_int_equal(core_take(&w->a, &x, sizeof x, w->row, w->bytes), PAWL_OK);
    core_turn(&w->s);
    struct core_answer a = core_answer(&w->a, seq);
    assert_int_equal(a.result, PAWL_OK);
    assert_int_equal(core_query(&w->a, w->out, a.value).state, PAWL_STATE_READY);
    assert_int_equal(core_query(&w->a, w->out, a.value + 1).state, PAWL_STATE_READY);
    core_client_open(&w->s, &w->b, 7);
    assert_int_equal(ready(w, "out"), 2);
    end(w);
}

/* A memory queue's part is seen only when the durable part is on disk, and so are later answers of
 * that queue. */
static void nobody_sees_a_part_before_the_record(void **state)
{
    (void)state;
    struct world *w = begin();
    core_turn(&w->s);
    uint64_t wait_seq =
        core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->in, 1, PAWL_NS_S, PAWL_LEASE_PROCESS);
    (void)wait_seq;
    core_turn(&w->s);
    add_send(w, w->volatile_out, "m");
    add_send(w, w->out, "d");
    struct pawl_cmd_txn x = command(w);
    assert_int_equal(core_take(&w->a, &x, sizeof x, w->row, w->bytes), PAWL_OK);
    assert_int_equal(w->s.effect_count, 1);
    assert_true(w->s.effects[0].wait_lsn >= w->s.appended);
    uint64_t wait = w->s.effects[0].wait_lsn;
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = w->volatile_out };
    assert_int_equal(core_take(&w->a, &m, sizeof m, NULL, 0), PAWL_OK);
    assert_int_equal(w->s.effect_count, 2);
    assert_true(w->s.effects[1].wait_lsn >= wait);
    core_turn(&w->s);
    end(w);
}

static int64_t number_of(struct world *w, uint64_t table, const char *key)
{
    struct pawl_cmd_state_scan m = {
        .head.type = PAWL_CMD_STATE_SCAN,
        .table = table,
        .op = PAWL_TABLE_GET,
        .key_bytes = (uint8_t)strlen(key),
    };
    char padded[16] = { 0 };
    memcpy(padded, key, strlen(key));
    struct core_answer a =
        core_call(&w->a, &m, sizeof m, padded, (uint32_t)pawl_align_up(strlen(key), 8));
    struct pawl_state_data d;
    if (a.result != PAWL_OK)
        return -1;
    memcpy(&d, a.data, sizeof d);
    return d.number;
}

/* Acks and counts together: the counter is exact. Two additions to one key see each other. */
static void steps_of_a_table_see_those_before(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t table = core_create(&w->a, "counters", PAWL_TABLE);
    struct core_delivery d = leased(w), e = leased(w);
    add_settle(w, PAWL_CMD_ACK, &d, NULL);
    add_state(w, table, PAWL_TABLE_ADD, "n", 1);
    add_settle(w, PAWL_CMD_ACK, &e, NULL);
    add_state(w, table, PAWL_TABLE_ADD, "n", 1);
    add_state(w, table, PAWL_TABLE_GE, "n", 2);
    assert_int_equal(run(w, &w->a, NULL).result, PAWL_OK);
    assert_int_equal(number_of(w, table, "n"), 2);
    uint64_t digest = pawl_core_digest(w->s.core);
    clear(w);
    add_state(w, table, PAWL_TABLE_ADD, "n", 5);
    add_state(w, table, PAWL_TABLE_DELETE, "n", 0);
    add_state(w, table, PAWL_TABLE_ADD, "n", 7);
    add_state(w, table, PAWL_TABLE_ADD, "m", 7);
    add_state(w, table, PAWL_TABLE_GE, "n", 8);
    struct core_answer a = run(w, &w->a, NULL);
    assert_int_equal(a.result, PAWL_E_PRECONDITION);
    assert_int_equal(a.value, 5);
    assert_int_equal(a.lsn, 7); /* what was found */
    assert_true(pawl_core_digest(w->s.core) == digest);
    pawl_core_verify(w->s.core);
    core_restart(&w->s, true);
    core_client_open(&w->s, &w->a, 7);
    assert_int_equal(number_of(w, table, "n"), 2);
    assert_int_equal(number_of(w, table, "m"), -1);
    end(w);
}

/* Which step, and what it met: the same for ever, from any process, and for the lane's own window.
 */
static void a_second_refusal_says_what_the_first_did(void **state)
{
    (void)state;
    for (int64_t found = 0; found < 6; found += 5) {
        struct world *w = begin();
        uint64_t table = core_create(&w->a, "counters", PAWL_TABLE);
        add_state(w, table, PAWL_TABLE_ADD, "n", found);
        assert_int_equal(run(w, &w->a, NULL).result, PAWL_OK);
        clear(w);
        struct pawl_op_id id = new_id(w);
        add_send(w, w->out, "one");
        add_state(w, table, PAWL_TABLE_GE, "n", 9);
        struct pawl_cmd_txn x = command(w);
        w->a.hold = true;
        struct core_answer a = run(w, &w->a, &id);
        uint64_t seq = a.seq;
        for (int i = 0; i < 4; i++) {
            assert_int_equal(a.result, PAWL_E_PRECONDITION);
            assert_int_equal(a.value, 2);
            assert_int_equal(a.lsn, found);
            if (i == 1)
                core_copy_all(&w->s);
            if (i == 2) { /* nobody has read the first answer: it comes once more */
                core_restart(&w->s, true);
                assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
                x.head.flags = PAWL_CMD_RESUBMIT | PAWL_CMD_IDENTIFIED;
                x.head.seq = seq;
                assert_int_equal(
                    core_take(&w->a, &x, sizeof x, w->row, w->bytes + (uint32_t)sizeof id),
                    PAWL_OK);
                core_turn(&w->s);
                a = core_answer(&w->a, seq);
            } else {
                core_client_open(&w->s, &w->b, 7);
                a = run(w, &w->b, &id);
            }
        }
        struct pawl_cmd_resolve m = { .head.type = PAWL_CMD_RESOLVE, .id = id };
        struct core_answer asked = core_call(&w->b, &m, sizeof m, NULL, 0);
        struct pawl_comp_resolved r;
        memcpy(&r, asked.data, sizeof r);
        assert_int_equal(r.state, PAWL_RESOLVED_ABORTED);
        assert_int_equal(r.value, 2);
        end(w);
    }
}

static void a_malformed_row_is_a_breach(void **state)
{
    (void)state;
    struct world *w = begin();
    struct pawl_cmd_txn x;
    add_send(w, w->out, "one");
    struct pawl_cmd *head = (struct pawl_cmd *)(void *)w->row;
    const uint32_t bytes = head->bytes;
    const struct {
        uint32_t bytes, type, count;
    } cases[] = {
        { bytes + 8, PAWL_CMD_SEND, 1 },
        { bytes - 8, PAWL_CMD_SEND, 1 },
        { bytes - 1, PAWL_CMD_SEND, 1 },
        { 0, PAWL_CMD_SEND, 1 },
        { bytes, PAWL_CMD_TXN, 1 },
        { bytes, PAWL_CMD_RECEIVE, 1 },
        { bytes, PAWL_CMD_RESTORE, 1 },
        { bytes, PAWL_CMD_SEND, 0 },
        { bytes, PAWL_CMD_SEND, 2 },
        { bytes, PAWL_CMD_SEND, 4097 },
        { bytes, 0xffff, 1 },
    };
    for (size_t i = 0; i < PAWL_COUNT(cases); i++) {
        head->bytes = cases[i].bytes;
        head->type = (uint16_t)cases[i].type;
        x = command(w);
        x.count = cases[i].count;
        assert_int_equal(core_take(&w->a, &x, sizeof x, w->row, w->bytes), PAWL_E_PROTOCOL);
    }
    pawl_core_verify(w->s.core);
    end(w);
}

static void as_many_steps_as_allowed(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t many = core_create(&w->a, "many", PAWL_DURABLE);
    uint32_t one = sizeof(struct pawl_cmd_send);
    uint8_t *row = calloc(PAWL_TXN_STEPS_MAX, one);
    assert_non_null(row);
    for (uint32_t i = 0; i < PAWL_TXN_STEPS_MAX; i++) {
        struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = many };
        m.head.bytes = one;
        memcpy(row + i * one, &m, one);
    }
    struct pawl_cmd_txn x = { .head.type = PAWL_CMD_TXN, .count = PAWL_TXN_STEPS_MAX };
    assert_int_equal(core_call(&w->a, &x, sizeof x, row, PAWL_TXN_STEPS_MAX * one).result, PAWL_OK);
    assert_int_equal(core_stat(&w->a, "many").ready, PAWL_TXN_STEPS_MAX);
    free(row);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_steps_are_one_record),
        cmocka_unit_test(a_refused_step_refuses_all),
        cmocka_unit_test(limits_hold_within_a_transaction),
        cmocka_unit_test(a_message_stands_in_one_step),
        cmocka_unit_test(a_second_commit_answers_as_the_first),
        cmocka_unit_test(a_second_refusal_says_what_the_first_did),
        cmocka_unit_test(a_transaction_without_an_id_moves_no_horizon),
        cmocka_unit_test(a_resumed_lane_gets_the_answer_of_the_whole),
        cmocka_unit_test(nobody_sees_a_part_before_the_record),
        cmocka_unit_test(steps_of_a_table_see_those_before),
        cmocka_unit_test(a_malformed_row_is_a_breach),
        cmocka_unit_test(as_many_steps_as_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
