/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t q;
};

static struct world *begin(uint32_t mode)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    w->q = core_create(&w->a, "orders", mode);
    (void)core_send(&w->b, w->q, "x");
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static void expiry_counts_as_a_failure_and_takes_the_ladder(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    for (uint32_t i = 1; i <= 2; i++) {
        struct core_delivery d = core_receive_kind(&w->a, w->q, 0, PAWL_NS_S, 0);
        assert_true(d.there);
        core_pass(&w->s, PAWL_NS_S - 1);
        core_turn(&w->s);
        assert_int_equal(core_query(&w->a, w->q, d.d.message).state, PAWL_STATE_LEASED);
        core_pass(&w->s, 3 * PAWL_NS_MS);
        core_turn(&w->s);
        struct pawl_record r = core_query(&w->a, w->q, d.d.message);
        assert_int_equal(r.expired, i);
        assert_int_equal(r.failed, i);
        /* the default ladder: at once, then 1 s */
        assert_int_equal(r.state, i == 1 ? PAWL_STATE_READY : PAWL_STATE_SCHEDULED);
        core_check(&w->s);
    }
    assert_int_equal(core_stat(&w->a, "orders").expired_leases, 2);
    end(w);
}

static void expiry_ends_in_dead_at_the_limit(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_MEMORY);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_MEMORY;
    o.max_failed = 1;
    uint64_t q = core_create_with(&w->a, "one", &o);
    uint64_t id = core_send(&w->a, q, "x").value;
    (void)core_receive(&w->a, q);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT + 2 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(core_query(&w->a, q, id).state, PAWL_STATE_DEAD);
    end(w);
}

static void time_runs_from_publication(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, 0, 0);
    core_pass(&w->s, 3 * PAWL_LEASE_NS_DEFAULT); /* the disk is slow */
    while (pawl_core_tick(w->s.core, w->s.now, 100))
        ;
    core_publish(&w->s);
    struct core_delivery d = core_delivered(&w->a);
    assert_true(d.there);
    assert_int_equal(d.d.deadline, w->s.now.time + PAWL_LEASE_NS_DEFAULT);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT - 1);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    end(w);
}

static void held_leases_end_with_their_process_or_at_the_cap(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_hold_ns = 3600 * PAWL_NS_S;
    o.perm = 0777;
    uint64_t q = core_create_with(&w->a, "held", &o);
    (void)core_send(&w->a, q, "x");
    struct core_delivery d = core_receive_kind(&w->a, q, PAWL_LEASE_HELD, 0, 0);
    assert_int_equal(d.d.deadline, UINT64_MAX);
    core_pass(&w->s, 3599 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(core_query(&w->a, q, d.d.message).state, PAWL_STATE_LEASED);
    core_check(&w->s);
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(core_query(&w->a, q, d.d.message).expired, 1);
    d = core_receive_kind(&w->a, q, PAWL_LEASE_HELD, 0, 0);
    pawl_core_session_end(w->s.core, w->a.session, PAWL_END_CLOSED, w->s.now);
    core_turn(&w->s);
    d = core_receive(&w->b, q);
    assert_true(d.there);
    assert_int_equal(d.d.acquired, 3);
    assert_int_equal(d.d.failed, 1);
    end(w);
}

static void detached_leases_outlive_their_process(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = core_receive_kind(&w->a, w->q, PAWL_LEASE_DETACHED, 0, 0);
    pawl_core_session_end(w->s.core, w->a.session, PAWL_END_DEAD, w->s.now);
    core_turn(&w->s);
    core_check(&w->s);
    assert_false(core_receive(&w->b, w->q).there);
    core_restart(&w->s, true);
    struct core_client cli;
    core_client_open(&w->s, &cli, 7);
    core_turn(&w->s);
    core_copy_all(&w->s);
    assert_int_equal(core_ack(&cli, &d).result, PAWL_OK);
    end(w);
}

static void death_frees_at_once_and_counts_only_what_was_taken(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->b, w->q, "y");
    (void)core_send(&w->b, w->q, "z");
    struct core_delivery taken = core_receive(&w->a, w->q);
    uint64_t position = w->s.position[w->a.handle];
    struct core_delivery prefetched = core_receive(&w->a, w->q);
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, 0, 0); /* never published */
    pawl_core_lane_taken(w->s.core, w->a.lane, position);
    pawl_core_session_end(w->s.core, w->a.session, PAWL_END_DEAD, w->s.now);
    core_turn(&w->s);
    core_check(&w->s);
    struct core_delivery d[3];
    for (uint32_t i = 0; i < 3; i++) {
        d[i] = core_receive(&w->b, w->q);
        assert_true(d[i].there);
        assert_int_equal(d[i].d.failed, 0);
        assert_int_equal(d[i].d.crashed, d[i].d.message == taken.d.message);
    }
    assert_int_equal(d[1].d.message, prefetched.d.message);
    assert_int_equal(core_stat(&w->b, "orders").crashed, 1);
    end(w);
}

static void a_message_that_kills_backs_off_and_dies(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    for (uint32_t i = 1; i <= 5; i++) {
        struct core_client c;
        core_client_open(&w->s, &c, 9);
        struct core_delivery d = core_receive(&c, w->q);
        assert_true(d.there);
        assert_int_equal(d.d.crashed, i - 1);
        pawl_core_lane_taken(w->s.core, c.lane, w->s.position[c.handle]);
        pawl_core_session_end(w->s.core, c.session, PAWL_END_DEAD, w->s.now);
        core_turn(&w->s);
        struct pawl_record r = core_query(&w->b, w->q, d.d.message);
        if (i == 1)
            assert_int_equal(r.state, PAWL_STATE_READY);
        if (i >= 2 && i < 5) {
            assert_int_equal(r.state, PAWL_STATE_SCHEDULED);
            assert_int_equal(r.due_in_ns, PAWL_NS_S << (i - 2));
        }
        if (i == 5) {
            assert_int_equal(r.state, PAWL_STATE_DEAD);
            assert_int_equal(r.dead_reason, PAWL_DEAD_CRASHED);
        }
        core_check(&w->s);
        core_pass(&w->s, 10 * PAWL_NS_S);
        core_turn(&w->s);
    }
    end(w);
}

static void releases_of_the_dead_wait_for_room(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    for (uint32_t i = 1; i < 50; i++)
        (void)core_send(&w->b, w->q, "x");
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 50, 0, 0);
    core_turn(&w->s);
    struct core_delivery d = core_delivered(&w->a);
    struct core_client other;
    core_client_open(&w->s, &other, 7);
    w->s.metered = true;
    w->s.room = 1000;
    pawl_core_session_end(w->s.core, w->a.session, PAWL_END_DEAD, w->s.now);
    /* over at once, whatever the log has room for */
    struct pawl_cmd_settle ack = { .head.type = PAWL_CMD_ACK, .message = d.d.message };
    ack.grant = d.d.grant;
    ack.random = d.d.random;
    assert_int_equal(core_take(&other, &ack, sizeof ack, NULL, 0), PAWL_OK);
    uint32_t rounds = 0;
    while (pawl_core_pump(w->s.core, w->s.now)) {
        assert_true(++rounds < 100);
        pawl_core_verify(w->s.core);
        w->s.room = 1000;
    }
    assert_true(rounds > 3);
    w->s.room = 1u << 30;
    core_turn(&w->s);
    assert_int_equal(core_answer(&other, ack.head.seq).result, PAWL_E_LEASE_LOST);
    assert_int_equal(core_stat(&w->b, "orders").ready, 50);
    w->s.metered = false;
    end(w);
}

static void leases_have_their_full_time_again_after_a_restart(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = core_receive(&w->a, w->q);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT - 1);
    core_restart(&w->s, true);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT - 1);
    core_turn(&w->s);
    assert_int_equal(core_client_resume(&w->a, d.d.grant, 0), PAWL_OK);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    end(w);
}

static void a_new_start_of_the_machine_voids_them(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->b, w->q, "y");
    struct core_delivery d = core_receive(&w->a, w->q);
    struct core_delivery e = core_receive_kind(&w->a, w->q, PAWL_LEASE_DETACHED, 0, 0);
    core_restart(&w->s, false);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_E_OUTCOME_UNKNOWN);
    struct core_client c;
    core_client_open(&w->s, &c, 7);
    assert_int_equal(core_ack(&c, &d).result, PAWL_E_LEASE_LOST); /* though nothing ran yet */
    assert_int_equal(core_ack(&c, &e).result, PAWL_E_LEASE_LOST);
    struct core_delivery f = core_receive(&c, w->q);
    assert_int_equal(f.d.message, d.d.message);
    assert_int_equal(f.d.failed, 0);
    assert_int_equal(f.d.crashed, 0);
    core_check(&w->s);
    end(w);
}

static void leases_of_a_memory_queue_die_with_the_broker(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_MEMORY);
    struct core_delivery d = core_receive(&w->a, w->q);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK); /* it made the queue */
    assert_int_equal(core_stat(&w->a, "orders").ready, 0);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_E_FORGOTTEN);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expiry_counts_as_a_failure_and_takes_the_ladder),
        cmocka_unit_test(expiry_ends_in_dead_at_the_limit),
        cmocka_unit_test(time_runs_from_publication),
        cmocka_unit_test(held_leases_end_with_their_process_or_at_the_cap),
        cmocka_unit_test(detached_leases_outlive_their_process),
        cmocka_unit_test(death_frees_at_once_and_counts_only_what_was_taken),
        cmocka_unit_test(a_message_that_kills_backs_off_and_dies),
        cmocka_unit_test(releases_of_the_dead_wait_for_room),
        cmocka_unit_test(leases_have_their_full_time_again_after_a_restart),
        cmocka_unit_test(a_new_start_of_the_machine_voids_them),
        cmocka_unit_test(leases_of_a_memory_queue_die_with_the_broker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
