/* SPDX-License-Identifier: MIT */
/* Operations under an id of their caller: outcomes, repeats, fences, what is forgotten. */
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
    uint64_t q;
    uint32_t ids;
};

static struct world *begin_with(uint32_t mode, uint64_t ledger_max)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    struct pawl_core_options o = core_options();
    o.memory_bytes = 64ull << 20;
    o.segment_bytes = 1 << 20;
    o.ledger_max = ledger_max;
    core_init_options(&w->s, &o);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.mode = mode;
    q.perm = 0777;
    w->q = core_create_with(&w->a, "orders", &q);
    return w;
}

static struct world *begin(uint32_t mode) { return begin_with(mode, 0); }

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

/* As pawl_op_id_new() makes them, at this wall time. */
static struct pawl_op_id id_at(struct world *w, uint64_t ms)
{
    struct pawl_op_id id = { { 0 } };
    for (int i = 0; i < 6; i++)
        id.bytes[i] = (uint8_t)(ms >> (40 - 8 * i));
    id.bytes[6] = 0x70;
    id.bytes[8] = 0x80;
    uint32_t n = ++w->ids;
    memcpy(id.bytes + 12, &n, sizeof n);
    return id;
}

static struct pawl_op_id new_id(struct world *w) { return id_at(w, w->s.now.wall / PAWL_NS_MS); }

/* Any command with an id at its end. */
static struct core_answer call(struct core_client *c, void *command, uint32_t fixed,
                               const void *variable, uint32_t bytes, const struct pawl_op_id *id)
{
    uint8_t row[4096];
    assert_true(bytes + sizeof *id <= sizeof row);
    if (bytes)
        memcpy(row, variable, bytes);
    memcpy(row + bytes, id, sizeof *id);
    ((struct pawl_cmd *)command)->flags |= PAWL_CMD_IDENTIFIED;
    return core_call(c, command, fixed, row, bytes + (uint32_t)sizeof *id);
}

static struct core_answer send_under(struct core_client *c, uint64_t queue, const char *body,
                                     const struct pawl_op_id *id)
{
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = queue, .priority = 4 };
    uint8_t padded[64] = { 0 };
    m.body_bytes = (uint32_t)strlen(body);
    memcpy(padded, body, m.body_bytes);
    return call(c, &m, sizeof m, padded, (uint32_t)pawl_align_up(m.body_bytes, 8), id);
}

static struct core_answer ack_under(struct core_client *c, const struct core_delivery *d,
                                    const struct pawl_op_id *id)
{
    struct pawl_cmd_settle m = {
        .head.type = PAWL_CMD_ACK,
        .message = d->d.message,
        .grant = d->d.grant,
        .random = d->d.random,
    };
    return call(c, &m, sizeof m, NULL, 0, id);
}

static struct pawl_comp_resolved resolve(struct core_client *c, const struct pawl_op_id *id,
                                         uint32_t flags)
{
    struct pawl_cmd_resolve m = { .head.type = PAWL_CMD_RESOLVE, .id = *id, .flags = flags };
    struct core_answer a = core_call(c, &m, sizeof m, NULL, 0);
    struct pawl_comp_resolved r;
    assert_int_equal(a.result, PAWL_OK);
    assert_int_equal(a.bytes, sizeof r);
    memcpy(&r, a.data, sizeof r);
    return r;
}

static void expect_state(struct pawl_comp_resolved r, uint32_t state, int result)
{
    assert_int_equal(r.state, state);
    assert_int_equal(r.result, result);
}

static void a_repeat_gets_the_first_answer(void **state)
{
    (void)state;
    for (uint32_t mode = PAWL_DURABLE; mode <= PAWL_MEMORY; mode++) {
        struct world *w = begin(mode);
        struct pawl_op_id id = new_id(w);
        struct core_answer first = send_under(&w->a, w->q, "x", &id);
        assert_int_equal(first.result, PAWL_OK);
        assert_int_not_equal(first.lsn, 0);
        for (int i = 0; i < 2; i++) {
            struct core_answer again = send_under(i ? &w->b : &w->a, w->q, "x", &id);
            assert_int_equal(again.result, PAWL_OK_DUPLICATE);
            assert_int_equal(again.value, first.value);
            assert_int_equal(again.lsn, first.lsn);
        }
        assert_int_equal(core_stat(&w->a, "orders").ready, 1);
        struct pawl_comp_resolved r = resolve(&w->b, &id, PAWL_RESOLVE_FENCE);
        expect_state(r, PAWL_RESOLVED_COMMITTED, PAWL_OK);
        assert_int_equal(r.value, first.value);
        assert_int_equal(r.lsn, first.lsn);
        end(w);
    }
}

/* Effect and outcome are one record: whatever of the log is there, both are or neither is. */
static void effect_and_outcome_stand_or_fall_together(void **state)
{
    (void)state;
    for (uint32_t lost = 0; lost < 2; lost++) {
        struct world *w = begin(PAWL_DURABLE);
        struct pawl_op_id id = new_id(w);
        uint32_t before = w->s.record_count;
        (void)core_send(&w->a, w->q, "first"); /* the lane's own records */
        before = w->s.record_count;
        (void)send_under(&w->a, w->q, "x", &id);
        assert_int_equal(w->s.record_count, before + 1);
        if (lost)
            core_cut(&w->s, before);
        core_restart(&w->s, true);
        core_client_open(&w->s, &w->b, 8);
        struct pawl_comp_resolved r = resolve(&w->b, &id, 0);
        expect_state(r, lost ? PAWL_RESOLVED_NEVER_SEEN : PAWL_RESOLVED_COMMITTED, PAWL_OK);
        struct core_answer again = send_under(&w->b, w->q, "x", &id);
        assert_int_equal(again.result, lost ? PAWL_OK : PAWL_OK_DUPLICATE);
        assert_int_equal(core_stat(&w->b, "orders").ready, 2);
        end(w);
    }
}

/* What nobody may hear before it is on disk: here of a memory queue, whose own answers wait for
 * nothing. */
static void an_answer_waits_for_its_outcome(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_MEMORY);
    core_turn(&w->s);
    struct pawl_op_id id = new_id(w);
    uint8_t row[8 + sizeof id] = "x";
    memcpy(row + 8, &id, sizeof id);
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = w->q, .body_bytes = 1 };
    m.head.flags = PAWL_CMD_IDENTIFIED;
    assert_int_equal(core_take(&w->a, &m, sizeof m, row, sizeof row), PAWL_OK);
    assert_int_equal(w->s.effect_count, 1);
    assert_true(w->s.effects[0].wait_lsn >= w->s.appended);
    end(w);
}

static void final_refusals_are_outcomes_and_others_leave_no_trace(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->a, w->q, "x");
    struct core_delivery d = core_receive(&w->a, w->q);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    struct pawl_op_id refused = new_id(w), full = new_id(w), gone = new_id(w);
    struct core_answer a = ack_under(&w->a, &d, &refused);
    assert_int_equal(a.result, PAWL_E_ALREADY_ACKED);
    assert_int_equal((uint32_t)a.value, 1007);
    a = ack_under(&w->a, &d, &refused);
    assert_int_equal(a.result, PAWL_E_ALREADY_ACKED);
    assert_int_equal((uint32_t)a.value, 1007);
    expect_state(resolve(&w->a, &refused, 0), PAWL_RESOLVED_ABORTED, PAWL_E_ALREADY_ACKED);
    pawl_core_refuse_sends(w->s.core, PAWL_LIMIT_DISK);
    assert_int_equal(send_under(&w->a, w->q, "x", &full).result, PAWL_E_FULL);
    expect_state(resolve(&w->a, &full, 0), PAWL_RESOLVED_NEVER_SEEN, 0);
    pawl_core_refuse_sends(w->s.core, PAWL_LIMIT_NONE);
    assert_int_equal(send_under(&w->a, w->q, "x", &full).result, PAWL_OK);
    assert_int_equal(send_under(&w->a, d.d.message, "x", &gone).result, PAWL_E_QUEUE_GONE);
    expect_state(resolve(&w->a, &gone, 0), PAWL_RESOLVED_NEVER_SEEN, 0);
    core_restart(&w->s, true);
    core_client_open(&w->s, &w->a, 7);
    expect_state(resolve(&w->a, &refused, 0), PAWL_RESOLVED_ABORTED, PAWL_E_ALREADY_ACKED);
    expect_state(resolve(&w->a, &full, 0), PAWL_RESOLVED_COMMITTED, PAWL_OK);
    end(w);
}

static void one_id_is_one_operation(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_op_id id = new_id(w);
    assert_int_equal(send_under(&w->a, w->q, "x", &id).result, PAWL_OK);
    assert_int_equal(send_under(&w->a, w->q, "y", &id).result, PAWL_E_OPID_MISMATCH);
    struct core_delivery d = core_receive(&w->a, w->q);
    assert_int_equal(ack_under(&w->a, &d, &id).result, PAWL_E_OPID_MISMATCH);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    end(w);
}

static void a_fence_holds_over_restarts_and_copies(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_op_id id = new_id(w), other = new_id(w);
    expect_state(resolve(&w->b, &id, 0), PAWL_RESOLVED_NEVER_SEEN, 0);
    expect_state(resolve(&w->b, &id, PAWL_RESOLVE_FENCE), PAWL_RESOLVED_NEVER_SEEN,
                 PAWL_E_OP_FENCED);
    assert_int_equal(send_under(&w->a, w->q, "x", &id).result, PAWL_E_OP_FENCED);
    struct core_answer sent = send_under(&w->a, w->q, "x", &other);
    for (int i = 0; i < 2; i++) {
        core_copy_all(&w->s);
        core_restart(&w->s, i == 0);
        core_client_open(&w->s, &w->a, 7);
        assert_int_equal(send_under(&w->a, w->q, "x", &id).result, PAWL_E_OP_FENCED);
        struct core_answer again = send_under(&w->a, w->q, "x", &other);
        assert_int_equal(again.result, PAWL_OK_DUPLICATE);
        assert_int_equal(again.value, sent.value);
        assert_int_equal(again.lsn, sent.lsn); /* of the first record, not of a copy */
    }
    end(w);
}

static void ids_have_a_form_and_a_time(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t now = w->s.now.wall / PAWL_NS_MS, day = 86400 * 1000;
    struct pawl_op_id id = new_id(w);
    id.bytes[6] = 0x40;
    assert_int_equal(send_under(&w->a, w->q, "x", &id).result, PAWL_E_INVALID);
    const struct {
        uint64_t ms;
        int result;
    } cases[] = {
        { now + 60000, PAWL_OK },
        { now + 60001, PAWL_E_INVALID },
        { now - day + 60001, PAWL_OK },
        { now - day + 60000, PAWL_E_FORGOTTEN },
    };
    for (size_t i = 0; i < PAWL_COUNT(cases); i++) {
        id = id_at(w, cases[i].ms);
        assert_int_equal(send_under(&w->a, w->q, "x", &id).result, cases[i].result);
    }
    expect_state(resolve(&w->a, &id, PAWL_RESOLVE_FENCE), PAWL_RESOLVED_FORGOTTEN, 0);
    end(w);
}

/* The ledger holds three: the fourth makes the first one forgotten, which is never taken for new,
 * whatever restarts and copies come between. */
static void what_was_forgotten_early_is_never_done_again(void **state)
{
    (void)state;
    struct world *w = begin_with(PAWL_DURABLE, 3);
    struct pawl_op_id ids[4];
    for (int i = 0; i < 4; i++) {
        core_pass(&w->s, PAWL_NS_S * 10);
        ids[i] = new_id(w);
        assert_int_equal(send_under(&w->a, w->q, "x", &ids[i]).result, PAWL_OK);
    }
    for (int i = 0; i < 3; i++) {
        /* A replay may find its record still: then it is known again. */
        struct pawl_comp_resolved r = resolve(&w->a, &ids[0], PAWL_RESOLVE_FENCE);
        bool again = i > 0 && r.state == PAWL_RESOLVED_COMMITTED;
        expect_state(r, again ? PAWL_RESOLVED_COMMITTED : PAWL_RESOLVED_FORGOTTEN, 0);
        assert_int_equal(send_under(&w->a, w->q, "x", &ids[0]).result,
                         again ? PAWL_OK_DUPLICATE : PAWL_E_FORGOTTEN);
        assert_int_equal(send_under(&w->a, w->q, "x", &ids[1]).result, PAWL_OK_DUPLICATE);
        if (i == 1)
            core_copy_all(&w->s);
        core_restart(&w->s, true);
        core_client_open(&w->s, &w->a, 7);
    }
    assert_int_equal(core_stat(&w->a, "orders").ready, 4);
    end(w);
}

/* Fences come though sends are refused: what they leave may not fill the log. */
static void outcomes_keep_to_their_share_of_the_log(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_op_id ids[400];
    for (int i = 0; i < 400; i++) {
        core_pass(&w->s, PAWL_NS_S);
        ids[i] = new_id(w);
        expect_state(resolve(&w->a, &ids[i], PAWL_RESOLVE_FENCE), PAWL_RESOLVED_NEVER_SEEN,
                     PAWL_E_OP_FENCED);
    }
    uint64_t all = pawl_core_outcome_bytes(w->s.core);
    assert_int_equal(pawl_core_forgotten_early_ms(w->s.core), 0);
    pawl_core_limit_outcomes(w->s.core, all / 4); /* the log has stopped growing */
    for (int i = 0; i < 10; i++) {
        core_pass(&w->s, PAWL_NS_S);
        struct pawl_op_id id = new_id(w);
        expect_state(resolve(&w->a, &id, PAWL_RESOLVE_FENCE), PAWL_RESOLVED_NEVER_SEEN,
                     PAWL_E_OP_FENCED);
        assert_true(i != 0 || pawl_core_outcome_bytes(w->s.core) > all / 2); /* not all at once */
    }
    assert_int_equal(pawl_core_outcome_bytes(w->s.core), all / 4);
    expect_state(resolve(&w->a, &ids[0], 0), PAWL_RESOLVED_FORGOTTEN, 0);
    assert_int_equal(send_under(&w->a, w->q, "x", &ids[0]).result, PAWL_E_FORGOTTEN);
    expect_state(resolve(&w->a, &ids[399], 0), PAWL_RESOLVED_NEVER_SEEN, PAWL_E_OP_FENCED);
    end(w);
}

static void an_outcome_is_kept_for_a_day(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_op_id id = new_id(w);
    assert_int_equal(send_under(&w->a, w->q, "x", &id).result, PAWL_OK);
    core_pass(&w->s, 86390 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(send_under(&w->a, w->q, "x", &id).result, PAWL_OK_DUPLICATE);
    core_pass(&w->s, 120 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(send_under(&w->a, w->q, "x", &id).result, PAWL_E_FORGOTTEN);
    assert_int_equal(w->s.core->ledger.count[PAWL_LEDGER_OP], 0);
    end(w);
}

/* A purge works in pieces and answers later: an id that it cannot have is a breach. */
static void only_what_is_one_record_may_have_an_id(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_op_id id = new_id(w);
    struct pawl_cmd_one m = { .head.type = PAWL_CMD_METRICS, .head.flags = PAWL_CMD_IDENTIFIED };
    assert_int_equal(core_take(&w->a, &m, sizeof m, &id, sizeof id), PAWL_E_PROTOCOL);
    struct pawl_cmd_queue p = { .head.type = PAWL_CMD_QUEUE_PURGE };
    p.head.flags = PAWL_CMD_IDENTIFIED;
    memcpy(p.name, "orders", 6);
    assert_int_equal(core_take(&w->a, &p, sizeof p, &id, sizeof id), PAWL_E_PROTOCOL);
    struct pawl_cmd_queue c = { .head.type = PAWL_CMD_QUEUE_CREATE };
    memcpy(c.name, "more", 4);
    assert_int_equal(call(&w->a, &c, sizeof c, NULL, 0, &id).result, PAWL_OK);
    c.head.seq = 0;
    assert_int_equal(call(&w->a, &c, sizeof c, NULL, 0, &id).result, PAWL_OK_DUPLICATE);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeat_gets_the_first_answer),
        cmocka_unit_test(effect_and_outcome_stand_or_fall_together),
        cmocka_unit_test(an_answer_waits_for_its_outcome),
        cmocka_unit_test(final_refusals_are_outcomes_and_others_leave_no_trace),
        cmocka_unit_test(one_id_is_one_operation),
        cmocka_unit_test(a_fence_holds_over_restarts_and_copies),
        cmocka_unit_test(ids_have_a_form_and_a_time),
        cmocka_unit_test(what_was_forgotten_early_is_never_done_again),
        cmocka_unit_test(outcomes_keep_to_their_share_of_the_log),
        cmocka_unit_test(an_outcome_is_kept_for_a_day),
        cmocka_unit_test(only_what_is_one_record_may_have_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
