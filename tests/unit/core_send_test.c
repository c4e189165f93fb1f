/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client c;
    uint64_t q;
};

static struct world *begin(uint32_t mode)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->c, 7);
    w->q = core_create(&w->c, "orders", mode);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static void a_message_goes_through_and_is_gone(void **state)
{
    (void)state;
    static const uint32_t modes[] = { PAWL_DURABLE, PAWL_RELAXED, PAWL_MEMORY };
    for (uint32_t i = 0; i < 3; i++) {
        struct world *w = begin(modes[i]);
        struct core_answer a = core_send(&w->c, w->q, "hello");
        assert_int_equal(a.result, PAWL_OK);
        assert_int_equal(a.lsn == 0, modes[i] == PAWL_MEMORY);
        struct core_delivery d = core_receive(&w->c, w->q);
        assert_true(d.there);
        assert_string_equal(d.body, "hello");
        assert_int_equal(d.d.message, a.value);
        assert_int_equal(d.d.acquired, 1);
        assert_int_equal(d.d.mode, modes[i]);
        assert_int_equal(d.d.queue, w->q);
        core_check(&w->s);
        assert_int_equal(core_ack(&w->c, &d).result, PAWL_OK);
        assert_false(core_receive(&w->c, w->q).there);
        struct pawl_queue_stat st = core_stat(&w->c, "orders");
        assert_int_equal(st.done, 1);
        assert_int_equal(st.bytes, 0);
        assert_int_equal(st.sent, 1);
        assert_int_equal(st.delivered, 1);
        assert_int_equal(st.acked, 1);
        end(w);
    }
}

static void answers_wait_for_their_records(void **state)
{
    (void)state;
    static const uint32_t modes[] = { PAWL_DURABLE, PAWL_RELAXED, PAWL_MEMORY };
    for (uint32_t i = 0; i < 3; i++) {
        struct world *w = begin(modes[i]);
        uint64_t created = w->s.appended;
        (void)core_send(&w->c, w->q, "a");
        const struct pawl_effect *e = &w->s.events[w->s.event_count - 1].effect;
        if (modes[i] == PAWL_DURABLE)
            assert_int_equal(e->wait_lsn, w->s.appended);
        else
            assert_int_equal(e->wait_lsn, created); /* of the queue's creation */
        end(w);
    }
}

static void order_is_that_of_the_sends_within_a_priority(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    static const char *bodies[] = { "low 1", "high 1", "low 2", "high 2" };
    for (uint32_t i = 0; i < 4; i++) {
        const struct core_send_options o = { .priority = i % 2 ? 7 : 1 };
        (void)core_send_with(&w->c, w->q, bodies[i], &o);
    }
    static const char *expected[] = { "high 1", "high 2", "low 1", "low 2" };
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(core_receive(&w->c, w->q).body, expected[i]);
    end(w);
}

static void one_delivery_in_32_goes_to_the_lowest_level(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_MEMORY);
    const struct core_send_options high = { .priority = 7 }, low = { .priority = 0 };
    for (uint32_t i = 0; i < 100; i++)
        (void)core_send_with(&w->c, w->q, "high", &high);
    for (uint32_t i = 0; i < 5; i++)
        (void)core_send_with(&w->c, w->q, "low", &low);
    uint32_t lows = 0;
    for (uint32_t i = 1; i <= 96; i++) {
        bool is_low = strcmp(core_receive(&w->c, w->q).body, "low") == 0;
        lows += is_low;
        assert_int_equal(is_low, i % 32 == 0);
    }
    assert_int_equal(lows, 3);
    end(w);
}

static void a_delay_never_ends_early_and_gives_the_place(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    const struct core_send_options o = { .delay_ns = 50 * PAWL_NS_MS };
    struct core_answer a = core_send_with(&w->c, w->q, "late", &o);
    assert_int_equal(core_query(&w->c, w->q, a.value).state, PAWL_STATE_SCHEDULED);
    core_pass(&w->s, 50 * PAWL_NS_MS - 1);
    core_turn(&w->s);
    assert_false(core_receive(&w->c, w->q).there);
    (void)core_send(&w->c, w->q, "before"); /* ready before the delayed one is due */
    core_check(&w->s);
    core_pass(&w->s, 3 * PAWL_NS_MS);
    core_turn(&w->s);
    (void)core_send(&w->c, w->q, "after");
    core_check(&w->s);
    const struct core_send_options same = { .priority = 0 };
    (void)same;
    assert_string_equal(core_receive(&w->c, w->q).body, "before");
    assert_string_equal(core_receive(&w->c, w->q).body, "after");
    assert_string_equal(core_receive(&w->c, w->q).body, "late"); /* sent with priority 0 */
    end(w);
}

static void at_becomes_a_delay_when_decided(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    const struct core_send_options o = { .at_wall_ns = CORE_WALL + PAWL_NS_S };
    (void)core_send_with(&w->c, w->q, "at", &o);
    const struct core_send_options past = { .at_wall_ns = CORE_WALL - PAWL_NS_S };
    (void)core_send_with(&w->c, w->q, "past", &past);
    assert_string_equal(core_receive(&w->c, w->q).body, "past");
    w->s.now.wall += 100 * PAWL_NS_S; /* a jump of the wall clock moves nothing */
    core_turn(&w->s);
    assert_false(core_receive(&w->c, w->q).there);
    core_pass(&w->s, PAWL_NS_S + 2 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_string_equal(core_receive(&w->c, w->q).body, "at");
    end(w);
}

static void ttl_ends_what_nobody_has(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    const struct core_send_options o = { .ttl_ns = PAWL_NS_S };
    struct core_answer ready = core_send_with(&w->c, w->q, "a", &o);
    const struct core_send_options both = { .ttl_ns = PAWL_NS_S, .delay_ns = 2 * PAWL_NS_S };
    struct core_answer scheduled = core_send_with(&w->c, w->q, "b", &both);
    core_pass(&w->s, PAWL_NS_S - 1);
    core_turn(&w->s);
    assert_int_equal(core_query(&w->c, w->q, ready.value).state, PAWL_STATE_READY);
    core_pass(&w->s, 2 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(core_query(&w->c, w->q, ready.value).state, PAWL_STATE_EXPIRED);
    assert_int_equal(core_query(&w->c, w->q, scheduled.value).state, PAWL_STATE_EXPIRED);
    assert_int_equal(core_stat(&w->c, "orders").expired, 2);
    end(w);
}

static void ttl_lets_a_lease_be_finished_first(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    const struct core_send_options o = { .ttl_ns = PAWL_NS_S };
    struct core_answer a = core_send_with(&w->c, w->q, "a", &o);
    struct core_delivery d = core_receive(&w->c, w->q);
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(core_query(&w->c, w->q, a.value).state, PAWL_STATE_LEASED);
    assert_int_equal(core_settle(&w->c, PAWL_CMD_RELEASE, &d, 0, 0, NULL).result, PAWL_OK);
    /* ready again for a moment, and nobody gets it */
    assert_false(core_receive(&w->c, w->q).there);
    assert_int_equal(core_query(&w->c, w->q, a.value).state, PAWL_STATE_EXPIRED);
    end(w);
}

static void headers_come_back_and_wrong_ones_are_refused(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    static const char good[] = "\x02\x03\x00kvval";
    struct core_send_options o = { .headers = good, .headers_bytes = 8 };
    assert_int_equal(core_send_with(&w->c, w->q, "body", &o).result, PAWL_OK);
    struct core_delivery d = core_receive(&w->c, w->q);
    assert_int_equal(d.d.headers_bytes, 8);
    assert_string_equal(d.body, "body");
    uint64_t bytes = core_stat(&w->c, "orders").bytes;
    static const char *const bad[] = { "\x00\x03\x00val.", "\x02\x09\x00kvval", "\x02\x03" };
    static const uint16_t lengths[] = { 7, 8, 2 };
    for (uint32_t i = 0; i < 3; i++) {
        o = (struct core_send_options){ .headers = bad[i], .headers_bytes = lengths[i] };
        assert_int_equal(core_send_with(&w->c, w->q, "body", &o).result, PAWL_E_INVALID);
    }
    assert_int_equal(core_stat(&w->c, "orders").bytes, bytes);
    end(w);
}

static void arguments_out_of_range_are_refused(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_send_options o = { .priority = 8 };
    assert_int_equal(core_send_with(&w->c, w->q, "x", &o).result, PAWL_E_INVALID);
    o = (struct core_send_options){ .delay_ns = PAWL_DELAY_NS_MAX + 1 };
    assert_int_equal(core_send_with(&w->c, w->q, "x", &o).result, PAWL_E_INVALID);
    o = (struct core_send_options){ .delay_ns = PAWL_DELAY_NS_MAX };
    assert_int_equal(core_send_with(&w->c, w->q, "x", &o).result, PAWL_OK);
    o = (struct core_send_options){ .ttl_ns = PAWL_DELAY_NS_MAX + 1 };
    assert_int_equal(core_send_with(&w->c, w->q, "x", &o).result, PAWL_E_INVALID);
    end(w);
}

static void limits_are_inclusive_and_name_themselves(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_messages = 2;
    o.max_bytes = 10;
    o.max_message_bytes = 8;
    uint64_t q = core_create_with(&w->c, "small", &o);
    struct core_answer a = core_send(&w->c, q, "123456789");
    assert_int_equal(a.result, PAWL_E_TOO_BIG);
    assert_int_equal(a.value, 8);
    assert_int_equal(core_send(&w->c, q, "12345678").result, PAWL_OK);
    a = core_send(&w->c, q, "123");
    assert_int_equal(a.result, PAWL_E_FULL);
    assert_int_equal(a.value, PAWL_LIMIT_QUEUE_BYTES);
    assert_int_equal(core_send(&w->c, q, "12").result, PAWL_OK);
    a = core_send(&w->c, q, "");
    assert_int_equal(a.result, PAWL_E_FULL);
    assert_int_equal(a.value, PAWL_LIMIT_QUEUE_MESSAGES);
    struct core_delivery d = core_receive(&w->c, q);
    assert_int_equal(core_send(&w->c, q, "").result, PAWL_E_FULL); /* leased ones count */
    assert_int_equal(core_ack(&w->c, &d).result, PAWL_OK);
    assert_int_equal(core_send(&w->c, q, "").result, PAWL_OK);
    end(w);
}

static void the_log_full_refuses_sends_and_nothing_else(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t memory = core_create(&w->c, "memory", PAWL_MEMORY);
    (void)core_send(&w->c, w->q, "a");
    pawl_core_refuse_sends(w->s.core, PAWL_LIMIT_DISK);
    struct core_answer a = core_send(&w->c, w->q, "b");
    assert_int_equal(a.result, PAWL_E_FULL);
    assert_int_equal(a.value, PAWL_LIMIT_DISK);
    assert_int_equal(core_send(&w->c, memory, "b").result, PAWL_OK); /* needs no log */
    struct core_delivery d = core_receive(&w->c, w->q);
    assert_int_equal(core_ack(&w->c, &d).result, PAWL_OK);
    pawl_core_refuse_sends(w->s.core, 0);
    assert_int_equal(core_send(&w->c, w->q, "b").result, PAWL_OK);
    end(w);
}

static void memory_full_refuses_sends_and_the_rest_goes_on(void **state)
{
    (void)state;
    struct core_shell s;
    struct core_client c;
    const struct pawl_core_options o = {
        .memory_bytes = 64u << 20,
        .segment_bytes = 1u << 26,
        .epoch = 1,
        .session_grace_ns = PAWL_NS_S,
        .sessions_max = 8,
        .queues_max = 8,
    };
    core_init_options(&s, &o);
    core_client_open(&s, &c, 7);
    uint64_t q = core_create(&c, "q", PAWL_MEMORY);
    static char body[4001];
    memset(body, 'x', 4000);
    uint64_t sent = 0;
    struct core_answer a;
    while ((a = core_send(&c, q, body)).result == PAWL_OK)
        sent++;
    assert_int_equal(a.result, PAWL_E_FULL);
    assert_int_equal(a.value, PAWL_LIMIT_MEMORY);
    assert_true(sent > 10000);
    for (uint32_t i = 0; i < 1000; i++) {
        struct core_delivery d = core_receive(&c, q);
        assert_true(d.there);
        assert_int_equal(core_ack(&c, &d).result, PAWL_OK);
    }
    assert_int_equal(core_send(&c, q, body).result, PAWL_OK);
    core_end(&s);
}

static void tombstones_never_stand_in_the_way_of_a_send(void **state)
{
    (void)state;
    struct core_shell s;
    struct core_client c;
    const struct pawl_core_options o = {
        .memory_bytes = 24u << 20,
        .segment_bytes = 1u << 26,
        .epoch = 1,
        .session_grace_ns = PAWL_NS_S,
        .sessions_max = 8,
        .queues_max = 8,
    };
    core_init_options(&s, &o);
    core_client_open(&s, &c, 7);
    uint64_t q = core_create(&c, "q", PAWL_MEMORY);
    for (uint32_t i = 0; i < 200000; i++) {
        assert_int_equal(core_send(&c, q, "x").result, PAWL_OK);
        (void)core_receive_kind(&c, q, PAWL_LEASE_PROCESS, 0, PAWL_RECEIVE_AT_MOST_ONCE);
        if (i % 1000 == 0)
            core_forget_events(&s);
    }
    assert_in_range(core_stat(&c, "q").done, 10000, 100000);
    core_end(&s);
}

static void a_record_larger_than_the_log_takes_is_too_big(void **state)
{
    (void)state;
    struct core_shell s;
    struct core_client c;
    const struct pawl_core_options o = {
        .memory_bytes = 64u << 20,
        .segment_bytes = 1u << 20,
        .epoch = 1,
        .sessions_max = 8,
        .queues_max = 8,
        .record_bytes_max = 6144,
    };
    core_init_options(&s, &o);
    core_client_open(&s, &c, 7);
    uint64_t q = core_create(&c, "q", PAWL_DURABLE);
    char body[6144];
    memset(body, 'x', sizeof body);
    body[6000] = 0;
    struct core_answer a = core_send(&c, q, body);
    assert_int_equal(a.result, PAWL_E_TOO_BIG);
    assert_true(a.value > 0 && a.value < 6000);
    body[a.value] = 0;
    assert_int_equal(core_send(&c, q, body).result, PAWL_OK);
    core_copy_all(&s); /* its fact, the larger record, fits as well */
    for (uint32_t i = 0; i < s.record_count; i++)
        assert_true(s.records[i].bytes <= 6144 || s.records[i].type == 4);
    core_end(&s);
}

static void malformed_commands_are_a_breach(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint8_t variable[64] = { 0 };
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = w->q, .body_bytes = 100 };
    assert_int_equal(core_take(&w->c, &m, sizeof m, variable, 64), PAWL_E_PROTOCOL);
    m.body_bytes = 40; /* too much padding */
    m.head.seq = 0;
    assert_int_equal(core_take(&w->c, &m, sizeof m, variable, 64), PAWL_E_PROTOCOL);
    m.body_bytes = 64;
    m.head.seq = 1; /* again, without saying so */
    assert_int_equal(core_take(&w->c, &m, sizeof m, variable, 64), PAWL_E_PROTOCOL);
    m.flags = PAWL_SEND_TIMES;
    m.body_bytes = 60; /* times and body do not fit */
    m.head.seq = 0;
    assert_int_equal(core_take(&w->c, &m, sizeof m, variable, 64), PAWL_E_PROTOCOL);
    struct pawl_cmd unknown = { .type = PAWL_CMD_TYPES };
    assert_int_equal(core_take(&w->c, &unknown, sizeof unknown, NULL, 0), PAWL_E_PROTOCOL);
    assert_int_equal(pawl_core_fixed_bytes(PAWL_CMD_TYPES), 0);
    struct pawl_cmd_one metrics = { .head.type = PAWL_CMD_METRICS };
    assert_int_equal(core_take(&w->c, &metrics, sizeof metrics, variable, 8), PAWL_E_PROTOCOL);
    w->c.next_seq += 5;
    metrics = (struct pawl_cmd_one){ .head.type = PAWL_CMD_METRICS, .head.seq = w->c.next_seq };
    metrics.head.bytes = sizeof metrics;
    metrics.head.open = 1024; /* more than the window keeps */
    assert_int_equal(pawl_core_take(w->s.core, w->c.lane, &metrics, NULL, 0, w->s.now),
                     PAWL_E_PROTOCOL);
    end(w);
}

static void a_command_is_never_decided_at_its_deadline(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = w->q, .body_bytes = 8 };
    m.head.deadline = w->s.now.time;
    assert_int_equal(core_call(&w->c, &m, sizeof m, "12345678", 8).result, PAWL_E_DEADLINE);
    m.head.seq = 0;
    m.head.deadline = w->s.now.time + 1;
    assert_int_equal(core_call(&w->c, &m, sizeof m, "12345678", 8).result, PAWL_OK);
    assert_int_equal(core_stat(&w->c, "orders").ready, 1);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_goes_through_and_is_gone),
        cmocka_unit_test(answers_wait_for_their_records),
        cmocka_unit_test(order_is_that_of_the_sends_within_a_priority),
        cmocka_unit_test(one_delivery_in_32_goes_to_the_lowest_level),
        cmocka_unit_test(a_delay_never_ends_early_and_gives_the_place),
        cmocka_unit_test(at_becomes_a_delay_when_decided),
        cmocka_unit_test(ttl_ends_what_nobody_has),
        cmocka_unit_test(ttl_lets_a_lease_be_finished_first),
        cmocka_unit_test(headers_come_back_and_wrong_ones_are_refused),
        cmocka_unit_test(arguments_out_of_range_are_refused),
        cmocka_unit_test(limits_are_inclusive_and_name_themselves),
        cmocka_unit_test(the_log_full_refuses_sends_and_nothing_else),
        cmocka_unit_test(memory_full_refuses_sends_and_the_rest_goes_on),
        cmocka_unit_test(tombstones_never_stand_in_the_way_of_a_send),
        cmocka_unit_test(a_record_larger_than_the_log_takes_is_too_big),
        cmocka_unit_test(malformed_commands_are_a_breach),
        cmocka_unit_test(a_command_is_never_decided_at_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
