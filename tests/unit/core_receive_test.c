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
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static uint32_t deliveries(struct core_client *c)
{
    uint32_t n = 0;
    while (core_delivered(c).there)
        n++;
    return n;
}

static void a_receive_takes_what_is_there_up_to_its_maximum(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    for (uint32_t i = 0; i < 100; i++)
        (void)core_send(&w->a, w->q, "x");
    uint64_t seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 70, 0, 0);
    core_turn(&w->s);
    assert_int_equal(deliveries(&w->a), 70);
    assert_int_equal(core_answer(&w->a, seq).value, 70);
    core_check(&w->s);
    seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1024, PAWL_UNLIMITED, 0);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->a, seq).value, 30);
    assert_int_equal(deliveries(&w->a), 30);
    end(w);
}

static void deliveries_stand_before_their_answer_and_in_order_of_grants(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    for (uint32_t i = 0; i < 100; i++)
        (void)core_send(&w->a, w->q, "x");
    uint32_t before = w->s.event_count;
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 100, 0, 0);
    core_turn(&w->s);
    uint64_t last = 0;
    for (uint32_t i = before; i < before + 100; i++) {
        assert_int_equal(w->s.events[i].effect.type, PAWL_EFFECT_DELIVERY);
        assert_true(w->s.events[i].effect.value > last);
        assert_true(w->s.events[i].effect.wait_lsn > w->s.events[i].effect.lsn);
        last = w->s.events[i].effect.value;
    }
    assert_int_equal(w->s.events[before + 100].effect.type, PAWL_EFFECT_ANSWER);
    assert_int_equal(w->s.events[before + 100].effect.wait_lsn, w->s.appended);
    end(w);
}

static void one_that_waits_gets_the_next_message(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 10, PAWL_NS_S, 0);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, CORE_NONE);
    assert_int_equal(core_stat(&w->a, "orders").waiting, 1);
    (void)core_send(&w->a, w->q, "x");
    assert_int_equal(core_answer(&w->b, seq).value, 1);
    assert_true(core_delivered(&w->b).there);
    assert_int_equal(core_stat(&w->a, "orders").waiting, 0);
    end(w);
}

static void waiting_ends_with_its_time_not_before(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 10, PAWL_NS_S, 0);
    core_pass(&w->s, PAWL_NS_S - 1);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, CORE_NONE);
    assert_true(pawl_core_next(w->s.core) <= w->s.now.time + 2 * PAWL_NS_MS);
    core_pass(&w->s, 2 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, PAWL_OK_EMPTY);
    (void)core_send(&w->a, w->q, "x");
    assert_false(core_delivered(&w->b).there);
    end(w);
}

static void several_queues_serve_one_receive(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t queues[3] = { w->q, core_create(&w->a, "second", PAWL_RELAXED),
                           core_create(&w->a, "third", PAWL_MEMORY) };
    for (uint32_t i = 0; i < 3; i++)
        (void)core_send(&w->a, queues[i], "x");
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .max = 10, .queue_count = 3 };
    struct core_answer a = core_call(&w->b, &r, sizeof r, queues, sizeof queues);
    assert_int_equal(a.value, 3);
    assert_int_equal(deliveries(&w->b), 3);
    r.head.seq = 0;
    r.wait_ns = PAWL_NS_S;
    w->b.hold = true;
    assert_int_equal(core_take(&w->b, &r, sizeof r, queues, sizeof queues), PAWL_OK);
    (void)core_send(&w->a, queues[2], "y");
    assert_int_equal(core_answer(&w->b, r.head.seq).value, 1);
    assert_string_equal(core_delivered(&w->b).body, "y");
    for (uint32_t i = 0; i < 3; i++) /* it left all lines */
        (void)core_send(&w->a, queues[i], "z");
    assert_false(core_delivered(&w->b).there);
    end(w);
}

static void those_who_wait_take_turns(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t first = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, PAWL_NS_S, 0);
    uint64_t second = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 1, PAWL_NS_S, 0);
    struct core_client sender;
    core_client_open(&w->s, &sender, 9);
    (void)core_send(&sender, w->q, "1");
    assert_int_equal(core_answer(&w->a, first).value, 1);
    assert_int_equal(core_answer(&w->b, second).result, CORE_NONE);
    (void)core_send(&sender, w->q, "2");
    assert_int_equal(core_answer(&w->b, second).value, 1);
    end(w);
}

static void credit_bounds_what_a_subscription_holds(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_SUBSCRIBE, w->q, 3, 0, 0);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, PAWL_OK);
    for (uint32_t i = 0; i < 5; i++)
        (void)core_send(&w->a, w->q, "x");
    struct core_delivery d[3];
    for (uint32_t i = 0; i < 3; i++) {
        d[i] = core_delivered(&w->b);
        assert_true(d[i].there);
        assert_int_equal(d[i].d.seq, seq);
    }
    assert_false(core_delivered(&w->b).there);
    assert_int_equal(core_ack(&w->b, &d[1]).result, PAWL_OK);
    assert_true(core_delivered(&w->b).there);
    assert_false(core_delivered(&w->b).there);
    assert_int_equal(core_settle(&w->b, PAWL_CMD_REJECT, &d[0], 0, 0, "no").result, PAWL_OK);
    assert_true(core_delivered(&w->b).there);
    struct pawl_cmd_one stop = { .head.type = PAWL_CMD_STOP, .value = seq };
    assert_int_equal(core_call(&w->b, &stop, sizeof stop, NULL, 0).result, PAWL_OK);
    (void)core_send(&w->a, w->q, "x");
    assert_int_equal(core_ack(&w->b, &d[2]).result, PAWL_OK);
    assert_false(core_delivered(&w->b).there);
    end(w);
}

static void an_expired_lease_gives_its_credit_back(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_receive_submit(&w->b, PAWL_CMD_SUBSCRIBE, w->q, 1, 0, 0);
    (void)core_send(&w->a, w->q, "x");
    assert_true(core_delivered(&w->b).there);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT + 2 * PAWL_NS_MS);
    core_turn(&w->s);
    struct core_delivery again = core_delivered(&w->b);
    assert_true(again.there);
    assert_int_equal(again.d.expired, 1);
    end(w);
}

static void subscriptions_share_a_queue(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_receive_submit(&w->a, PAWL_CMD_SUBSCRIBE, w->q, 1000, 0, 0);
    (void)core_receive_submit(&w->b, PAWL_CMD_SUBSCRIBE, w->q, 1000, 0, 0);
    struct core_client sender;
    core_client_open(&w->s, &sender, 9);
    for (uint32_t i = 0; i < 100; i++)
        (void)core_send(&sender, w->q, "x");
    uint32_t a = deliveries(&w->a), b = deliveries(&w->b);
    assert_int_equal(a, 50);
    assert_int_equal(b, 50);
    end(w);
}

static void stop_ends_a_waiting_receive(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 1, PAWL_UNLIMITED, 0);
    struct pawl_cmd_one stop = { .head.type = PAWL_CMD_STOP, .value = seq };
    assert_int_equal(core_call(&w->b, &stop, sizeof stop, NULL, 0).result, PAWL_OK);
    assert_int_equal(core_answer(&w->b, seq).result, PAWL_OK_EMPTY);
    stop.head.seq = 0;
    assert_int_equal(core_call(&w->b, &stop, sizeof stop, NULL, 0).result, PAWL_E_NOT_FOUND);
    end(w);
}

static void a_paused_queue_delivers_nothing(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->a, w->q, "x");
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_PAUSE, "orders", NULL).result,
                     PAWL_OK);
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .max = 1, .queue_count = 1 };
    assert_int_equal(core_call(&w->b, &r, sizeof r, &w->q, 8).result, PAWL_E_PAUSED);
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 1, PAWL_UNLIMITED, 0);
    assert_int_equal(core_send(&w->a, w->q, "y").result, PAWL_OK);
    assert_int_equal(core_answer(&w->b, seq).result, CORE_NONE);
    core_check(&w->s);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_RESUME, "orders", NULL).result,
                     PAWL_OK);
    assert_int_equal(core_answer(&w->b, seq).value, 1);
    end(w);
}

static void the_limit_in_flight_holds_back_and_names_itself(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_inflight = 2;
    uint64_t q = core_create_with(&w->a, "narrow", &o);
    for (uint32_t i = 0; i < 4; i++)
        (void)core_send(&w->a, q, "x");
    uint64_t seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, q, 10, 0, 0);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->a, seq).value, 2);
    struct core_delivery d = core_delivered(&w->a);
    seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, q, 10, 0, 0);
    core_turn(&w->s);
    struct core_answer a = core_answer(&w->a, seq);
    assert_int_equal(a.result, PAWL_E_INFLIGHT_LIMIT);
    assert_int_equal(a.value, PAWL_LIMIT_QUEUE_INFLIGHT);
    seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, q, 10, PAWL_NS_S, 0);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->a, seq).result, CORE_NONE); /* one that waits just waits */
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    assert_int_equal(core_answer(&w->a, seq).value, 1);
    end(w);
}

static void a_full_ring_holds_deliveries_back(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    w->s.free_bytes[w->b.handle] = 250; /* two deliveries */
    for (uint32_t i = 0; i < 5; i++)
        (void)core_send(&w->a, w->q, "x");
    (void)core_receive_submit(&w->b, PAWL_CMD_SUBSCRIBE, w->q, 100, 0, 0);
    w->s.free_bytes[w->b.handle] = 250;
    core_turn(&w->s);
    w->s.free_bytes[w->b.handle] = 0;
    assert_int_equal(deliveries(&w->b), 2);
    core_turn(&w->s);
    assert_int_equal(core_stat(&w->a, "orders").ready, 3);
    assert_int_equal(deliveries(&w->b), 0);
    w->s.free_bytes[w->b.handle] = 1u << 20;
    pawl_core_lane_room(w->s.core, w->b.lane);
    core_turn(&w->s);
    assert_int_equal(deliveries(&w->b), 3);
    end(w);
}

static void a_receive_that_does_not_wait_waits_for_its_ring(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->a, w->q, "x");
    w->s.free_bytes[w->b.handle] = 0;
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 10, 0, 0);
    core_turn(&w->s);
    core_pass(&w->s, 100 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, CORE_NONE);
    w->s.free_bytes[w->b.handle] = 1u << 20;
    pawl_core_lane_room(w->s.core, w->b.lane);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).value, 1);
    /* and if another took it meanwhile, it learns that there is nothing */
    (void)core_send(&w->a, w->q, "y");
    w->s.free_bytes[w->b.handle] = 0;
    seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 10, 0, 0);
    core_turn(&w->s);
    assert_true(core_receive(&w->a, w->q).there);
    w->s.free_bytes[w->b.handle] = 1u << 20;
    pawl_core_lane_room(w->s.core, w->b.lane);
    core_pass(&w->s, 10 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, PAWL_OK_EMPTY);
    end(w);
}

static void no_room_in_the_log_holds_grants_back(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 10, PAWL_UNLIMITED, 0);
    w->s.metered = true;
    const struct core_send_options o = { .priority = 4 };
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = w->q };
    m.head.bytes = sizeof m;
    w->s.room = pawl_core_need(&m.head);
    assert_int_equal(core_send_with(&w->a, w->q, "", &o).result, PAWL_OK);
    assert_true(pawl_core_pump(w->s.core, w->s.now)); /* it says so */
    assert_int_equal(core_answer(&w->b, seq).result, CORE_NONE);
    w->s.room = 65536;
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).value, 1);
    w->s.metered = false;
    end(w);
}

static void what_cannot_fit_its_ring_is_named(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_client small;
    core_client_open(&w->s, &small, 9);
    small.comp_bytes = 256;
    assert_int_equal(core_client_resume(&small, 0, 0), PAWL_OK);
    (void)core_send(&w->a, w->q, "0123456789012345678901234567890123456789");
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .max = 1, .queue_count = 1 };
    struct core_answer a = core_call(&small, &r, sizeof r, &w->q, 8);
    assert_int_equal(a.result, PAWL_E_TOO_BIG);
    assert_int_equal(a.value, 2 * (96 + 40));
    small.comp_bytes = (uint32_t)a.value;
    assert_int_equal(core_client_resume(&small, 0, 0), PAWL_OK);
    r.head.seq = 0;
    assert_int_equal(core_call(&small, &r, sizeof r, &w->q, 8).result, PAWL_OK);
    end(w);
}

static void at_most_once_is_acknowledged_with_its_grant(void **state)
{
    (void)state;
    static const uint32_t modes[] = { PAWL_DURABLE, PAWL_RELAXED, PAWL_MEMORY };
    for (uint32_t i = 0; i < 3; i++) {
        struct world *w = begin(modes[i]);
        struct core_answer sent = core_send(&w->a, w->q, "once");
        uint32_t before = w->s.record_count;
        struct core_delivery d =
            core_receive_kind(&w->a, w->q, PAWL_LEASE_PROCESS, 0, PAWL_RECEIVE_AT_MOST_ONCE);
        assert_string_equal(d.body, "once");
        assert_int_equal(d.d.deadline, 0);
        assert_int_equal(w->s.record_count - before, modes[i] == PAWL_MEMORY ? 0 : 1);
        if (modes[i] != PAWL_MEMORY) /* shown only when the disk has it, on a relaxed queue too */
            assert_int_equal(w->s.events[w->s.event_count - 2].effect.wait_lsn, w->s.appended);
        assert_int_equal(core_query(&w->a, w->q, sent.value).state, PAWL_STATE_ACKED);
        struct pawl_queue_stat st = core_stat(&w->a, "orders");
        assert_int_equal(st.delivered, 1);
        assert_int_equal(st.acked, 1);
        assert_int_equal(st.leased, 0);
        end(w);
    }
}

static void a_session_may_wait_only_so_often(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    w->a.window = 4096;
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    uint64_t seq = 0;
    for (uint32_t i = 0; i < 1025; i++) {
        assert_int_equal(core_answer(&w->a, seq).result, CORE_NONE);
        seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, PAWL_UNLIMITED, 0);
        core_turn(&w->s);
    }
    assert_int_equal(core_answer(&w->a, seq).result, PAWL_E_QUOTA);
    end(w);
}

static void rights_are_those_of_a_file(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0751; /* others may query */
    uint64_t q = core_create_with(&w->a, "mine", &o);
    assert_int_equal(core_send(&w->b, q, "x").result, PAWL_E_PERM);
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .max = 1, .queue_count = 1 };
    assert_int_equal(core_call(&w->b, &r, sizeof r, &q, 8).result, PAWL_E_PERM);
    assert_int_equal(core_queue_command(&w->b, PAWL_CMD_QUEUE_STAT, "mine", NULL).result, PAWL_OK);
    assert_int_equal(core_queue_command(&w->b, PAWL_CMD_QUEUE_DROP, "mine", NULL).result,
                     PAWL_E_PERM);
    o.perm = 0700;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "mine", &o).result, PAWL_OK);
    /* and what one may not see at all does not exist */
    assert_int_equal(core_send(&w->b, q, "x").result, PAWL_E_NOT_FOUND);
    assert_int_equal(core_queue_command(&w->b, PAWL_CMD_QUEUE_FIND, "mine", NULL).result,
                     PAWL_E_NOT_FOUND);
    struct core_client root, admin;
    core_client_open(&w->s, &root, CORE_ROOT);
    core_client_open(&w->s, &admin, 500);
    assert_int_equal(core_send(&root, q, "x").result, PAWL_OK);
    assert_int_equal(core_send(&admin, q, "x").result, PAWL_OK);
    end(w);
}

static void arguments_out_of_range_are_refused(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_cmd_receive good = { .head.type = PAWL_CMD_RECEIVE, .max = 1, .queue_count = 1 };
    for (uint32_t i = 0; i < 6; i++) {
        struct pawl_cmd_receive r = good;
        if (i == 0)
            r.max = 0;
        else if (i == 1)
            r.max = 1025;
        else if (i == 2)
            r.lease_kind = 3;
        else if (i == 3)
            r.lease_ns = PAWL_LEASE_NS_MIN - 1;
        else if (i == 4)
            r.lease_ns = PAWL_LEASE_NS_MAX + 1;
        else
            r.flags = 2;
        assert_int_equal(core_call(&w->a, &r, sizeof r, &w->q, 8).result, PAWL_E_INVALID);
    }
    good.queue_count = 0;
    assert_int_equal(core_take(&w->a, &good, sizeof good, NULL, 0), PAWL_E_PROTOCOL);
    good.queue_count = 17;
    good.head.seq = 0;
    uint64_t many[17] = { 0 };
    assert_int_equal(core_take(&w->a, &good, sizeof good, many, sizeof many), PAWL_E_PROTOCOL);
    good.queue_count = 1;
    good.head.seq = 0;
    assert_int_equal(core_call(&w->a, &good, sizeof good, many, 8).result, PAWL_E_NOT_FOUND);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_takes_what_is_there_up_to_its_maximum),
        cmocka_unit_test(deliveries_stand_before_their_answer_and_in_order_of_grants),
        cmocka_unit_test(one_that_waits_gets_the_next_message),
        cmocka_unit_test(waiting_ends_with_its_time_not_before),
        cmocka_unit_test(several_queues_serve_one_receive),
        cmocka_unit_test(those_who_wait_take_turns),
        cmocka_unit_test(credit_bounds_what_a_subscription_holds),
        cmocka_unit_test(an_expired_lease_gives_its_credit_back),
        cmocka_unit_test(subscriptions_share_a_queue),
        cmocka_unit_test(stop_ends_a_waiting_receive),
        cmocka_unit_test(a_paused_queue_delivers_nothing),
        cmocka_unit_test(the_limit_in_flight_holds_back_and_names_itself),
        cmocka_unit_test(a_full_ring_holds_deliveries_back),
        cmocka_unit_test(a_receive_that_does_not_wait_waits_for_its_ring),
        cmocka_unit_test(no_room_in_the_log_holds_grants_back),
        cmocka_unit_test(what_cannot_fit_its_ring_is_named),
        cmocka_unit_test(at_most_once_is_acknowledged_with_its_grant),
        cmocka_unit_test(a_session_may_wait_only_so_often),
        cmocka_unit_test(rights_are_those_of_a_file),
        cmocka_unit_test(arguments_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
