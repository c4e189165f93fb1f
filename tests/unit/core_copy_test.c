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

static struct world *begin(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    w->q = core_create(&w->a, "orders", PAWL_DURABLE);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

/* One message in each state a message can be in, with all that can hang on it. */
static void one_of_each(struct world *w, uint64_t ids[9], struct core_delivery *held)
{
    static const char header[] = "\x01\x01\x00hv";
    const struct core_send_options plain = { .priority = 3, .headers = header, .headers_bytes = 5 };
    const struct core_send_options ttl = { .priority = 3, .ttl_ns = 3600 * PAWL_NS_S };
    const struct core_send_options late = { .priority = 3, .delay_ns = 3600 * PAWL_NS_S };
    struct core_delivery d;
    ids[0] = core_send_with(&w->a, w->q, "dead", &plain).value;
    d = core_receive(&w->b, w->q);
    (void)core_settle(&w->b, PAWL_CMD_REJECT, &d, 0, 0, "reason of death");
    ids[1] = core_send_with(&w->a, w->q, "acked", &plain).value;
    d = core_receive(&w->b, w->q);
    (void)core_ack(&w->b, &d);
    ids[2] = core_send_with(&w->a, w->q, "nacked", &plain).value;
    d = core_receive(&w->b, w->q);
    (void)core_settle(&w->b, PAWL_CMD_NACK, &d, 3600 * PAWL_NS_S, 0, "try later");
    ids[3] = core_send_with(&w->a, w->q, "leased", &ttl).value;
    *held = core_receive(&w->b, w->q);
    ids[4] = core_send_with(&w->a, w->q, "released", &plain).value;
    d = core_receive(&w->b, w->q);
    (void)core_settle(&w->b, PAWL_CMD_RELEASE, &d, 0, 0, NULL);
    ids[5] = core_send_with(&w->a, w->q, "late", &late).value;
    ids[6] = core_send_with(&w->a, w->q, "ttl", &ttl).value;
    ids[7] = core_send_with(&w->a, w->q, "cancelled", &late).value;
    (void)core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, ids[7], 0);
    ids[8] = core_send_with(&w->a, w->q, "", &plain).value;
}

static void check_each(struct world *w, const uint64_t ids[9])
{
    static const uint8_t states[] = { PAWL_STATE_DEAD,   PAWL_STATE_ACKED,     PAWL_STATE_SCHEDULED,
                                      PAWL_STATE_LEASED, PAWL_STATE_READY,     PAWL_STATE_SCHEDULED,
                                      PAWL_STATE_READY,  PAWL_STATE_CANCELLED, PAWL_STATE_READY };
    for (uint32_t i = 0; i < 9; i++) {
        struct pawl_record r = core_query(&w->a, w->q, ids[i]);
        assert_int_equal(r.state, states[i]);
        assert_int_equal(r.priority, 3);
        if (i == 0)
            assert_string_equal(r.reason, "reason of death");
        if (i == 2)
            assert_string_equal(r.reason, "try later");
    }
}

static void a_copy_changes_nothing(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t ids[9];
    struct core_delivery held;
    one_of_each(w, ids, &held);
    check_each(w, ids);
    uint64_t digest = pawl_core_digest(w->s.core);
    for (uint32_t i = 0; i < 3; i++) {
        core_copy_all(&w->s);
        pawl_core_verify(w->s.core);
        assert_int_equal(pawl_core_digest(w->s.core), digest);
        core_check(&w->s);
        check_each(w, ids);
    }
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_int_equal(core_client_resume(&w->b, held.d.grant, 0), PAWL_OK);
    check_each(w, ids);
    assert_int_equal(core_ack(&w->b, &held).result, PAWL_OK);
    end(w);
}

/* A lease of an earlier start of the machine is void. It is copied before there was room to say so,
 * and the blocks that tell of that start are gone: it stays void. */
static void a_void_lease_stays_so(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = core_send(&w->a, w->q, "x").value;
    struct core_delivery d =
        core_receive_kind(&w->b, w->q, PAWL_LEASE_DETACHED, 3600 * PAWL_NS_S, 0);
    core_restart(&w->s, false);
    core_copy_all(&w->s);
    pawl_core_verify(w->s.core);
    core_restart(&w->s, true); /* no block of another boot is left */
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    assert_int_equal(core_query(&w->a, w->q, id).state, PAWL_STATE_READY);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_E_LEASE_LOST);
    d = core_receive(&w->b, w->q);
    assert_int_equal(d.d.message, id);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    end(w);
}

/* A refusal has written nothing: after a crash its command is decided anew, whatever the answer
 * told of others. */
static void a_refusal_is_not_copied(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)core_send(&w->a, w->q, "x");
    struct core_delivery d = core_receive(&w->b, w->q);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    struct pawl_cmd_settle again = {
        .head.type = PAWL_CMD_ACK, .message = d.d.message, .grant = d.d.grant, .random = d.d.random
    };
    w->b.hold = true;
    assert_int_equal(core_take(&w->b, &again, sizeof again, NULL, 0), PAWL_OK);
    uint64_t seq = again.head.seq;
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, PAWL_E_ALREADY_ACKED);
    core_copy_all(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->b, d.d.grant, 0), PAWL_OK);
    core_pass(&w->s, 3600 * PAWL_NS_S);
    core_turn(&w->s);
    again.head.flags = PAWL_CMD_RESUBMIT;
    assert_int_equal(core_take(&w->b, &again, sizeof again, NULL, 0), PAWL_OK);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->b, seq).result, PAWL_E_FORGOTTEN);
    end(w);
}

static void copies_take_no_more_than_was_counted_as_live(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t ids[9];
    struct core_delivery held;
    for (uint32_t i = 0; i < 20; i++)
        one_of_each(w, ids, &held);
    uint64_t live = pawl_core_live(w->s.core);
    core_copy_all(&w->s);
    uint64_t start = w->s.appended & ~(w->s.options.segment_bytes - 1);
    assert_true(w->s.appended - start <= live);
    assert_int_equal(pawl_core_live(w->s.core), live);
    end(w);
}

static void a_copy_keeps_to_its_budget_and_to_the_room(void **state)
{
    (void)state;
    struct world *w = begin();
    for (uint32_t i = 0; i < 200; i++)
        (void)core_send(&w->a, w->q, "0123456789");
    uint64_t segment = w->s.appended / w->s.options.segment_bytes;
    w->s.appended = (segment + 1) * w->s.options.segment_bytes;
    uint64_t before = w->s.appended;
    assert_false(pawl_core_copy(w->s.core, segment, 1000, w->s.now));
    assert_in_range(w->s.appended - before, 1, 1400); /* the last one may go over it */
    w->s.metered = true;
    w->s.room = 100;
    before = w->s.appended;
    assert_false(pawl_core_copy(w->s.core, segment, 1u << 20, w->s.now));
    assert_int_equal(w->s.appended, before);
    w->s.room = 1u << 30;
    assert_true(pawl_core_copy(w->s.core, segment, 1u << 30, w->s.now));
    assert_true(pawl_core_copy(w->s.core, segment, 1u << 30, w->s.now)); /* nothing is left */
    core_release(&w->s, segment);
    w->s.metered = false;
    end(w);
}

static void records_between_copy_and_release_count_on_both_sides(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_delivery d[40];
    for (uint32_t i = 0; i < 40; i++)
        (void)core_send(&w->a, w->q, "0123456789");
    for (uint32_t i = 0; i < 40; i++)
        d[i] = core_receive(&w->b, w->q);
    uint64_t segment = w->s.appended / w->s.options.segment_bytes;
    w->s.appended = (segment + 1) * w->s.options.segment_bytes;
    bool done = false;
    for (uint32_t i = 0; i < 40; i++) {
        done = pawl_core_copy(w->s.core, segment, 200, w->s.now);
        if (i % 3 == 0)
            assert_int_equal(core_ack(&w->b, &d[i]).result, PAWL_OK);
        else if (i % 3 == 1)
            assert_int_equal(core_settle(&w->b, PAWL_CMD_NACK, &d[i], 0, 0, "why").result, PAWL_OK);
        core_check(&w->s);
    }
    while (!done)
        done = pawl_core_copy(w->s.core, segment, 200, w->s.now);
    core_check(&w->s);
    core_release(&w->s, segment);
    end(w);
}

static void tombstones_are_carried_for_their_time_and_no_longer(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)core_send(&w->a, w->q, "x");
    struct core_delivery d = core_receive(&w->b, w->q);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    core_copy_all(&w->s);
    core_copy_all(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->b, d.d.grant, 0), PAWL_OK);
    struct core_answer a = core_ack(&w->b, &d);
    assert_int_equal(a.result, PAWL_E_ALREADY_ACKED);
    assert_int_equal((uint32_t)a.value, 1008);
    core_pass(&w->s, 601 * PAWL_NS_S);
    core_turn(&w->s);
    uint64_t live = pawl_core_live(w->s.core);
    core_copy_all(&w->s);
    assert_int_equal(pawl_core_live(w->s.core), live);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_E_FORGOTTEN);
    end(w);
}

static void ended_sessions_and_dropped_queues_leave_nothing_behind(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t live = 0;
    for (uint32_t i = 0; i < 20; i++) {
        struct core_client c;
        core_client_open(&w->s, &c, 9);
        uint64_t q = core_create(&c, "mine", PAWL_DURABLE);
        (void)core_send(&c, q, "x");
        (void)core_receive(&c, q);
        if (i % 2)
            core_copy_all(&w->s);
        assert_int_equal(core_queue_command(&c, PAWL_CMD_QUEUE_DROP, "mine", NULL).result, PAWL_OK);
        if (i % 3)
            core_copy_all(&w->s);
        pawl_core_session_end(w->s.core, c.session, PAWL_END_CLOSED, w->s.now);
        core_turn(&w->s);
        core_check(&w->s);
        core_pass(&w->s, 700 * PAWL_NS_S);
        core_turn(&w->s);
        core_turn(&w->s);
        if (i == 0)
            live = pawl_core_live(w->s.core);
        assert_int_equal(pawl_core_live(w->s.core), live);
    }
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_changes_nothing),
        cmocka_unit_test(a_refusal_is_not_copied),
        cmocka_unit_test(a_void_lease_stays_so),
        cmocka_unit_test(copies_take_no_more_than_was_counted_as_live),
        cmocka_unit_test(a_copy_keeps_to_its_budget_and_to_the_room),
        cmocka_unit_test(records_between_copy_and_release_count_on_both_sides),
        cmocka_unit_test(tombstones_are_carried_for_their_time_and_no_longer),
        cmocka_unit_test(ended_sessions_and_dropped_queues_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
