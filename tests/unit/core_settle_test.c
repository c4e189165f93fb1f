/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "abi/lane_id.h"
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

static struct core_delivery leased(struct world *w)
{
    (void)core_send(&w->a, w->q, "x");
    struct core_delivery d = core_receive(&w->a, w->q);
    assert_true(d.there);
    return d;
}

static void expect(struct core_answer a, int result, uint64_t value)
{
    assert_int_equal(a.result, result);
    if (result == PAWL_E_ALREADY_ACKED) { /* the upper half says when */
        assert_true(a.value >> 32 >= CORE_WALL / PAWL_NS_S);
        a.value = (uint32_t)a.value;
    }
    assert_int_equal(a.value, value);
}

static void one_ack_wins(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w);
    struct core_answer a = core_ack(&w->a, &d);
    expect(a, PAWL_OK, 0);
    assert_int_not_equal(a.lsn, 0);
    expect(core_ack(&w->a, &d), PAWL_E_ALREADY_ACKED, 1007); /* pid of who did */
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, d.d.grant, 0), PAWL_OK);
    expect(core_ack(&w->a, &d), PAWL_E_ALREADY_ACKED, 1007);
    end(w);
}

/* Who ended a message: its process, its session, and the very operation, as long as the tombstone.
 */
static void the_end_of_a_message_names_its_operation(void **state)
{
    (void)state;
    for (uint32_t mode = PAWL_DURABLE; mode <= PAWL_MEMORY; mode++) {
        struct world *w = begin(mode);
        struct core_delivery d = leased(w);
        uint64_t cancelled = core_send(&w->b, w->q, "y").value, seqs[2];
        w->a.next_seq += 7;
        seqs[0] = w->a.next_seq;
        expect(core_ack(&w->a, &d), PAWL_OK, 0);
        seqs[1] = w->a.next_seq;
        expect(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, cancelled, 0), PAWL_OK, 0);
        for (int life = 0; life < (mode == PAWL_MEMORY ? 1 : 3); life++) {
            assert_int_equal(core_ack(&w->a, &d).lsn, w->a.session_id);
            assert_int_equal(core_by_id(&w->b, PAWL_CMD_ACK_ID, w->q, d.d.message, 0).lsn,
                             w->a.session_id);
            for (int i = 0; i < 2; i++) {
                struct pawl_record r = core_query(&w->b, w->q, i == 0 ? d.d.message : cancelled);
                struct pawl_lane_id by = pawl_lane_id_unpack(&r.done_by);
                assert_true(pawl_op_id_of_lane(&r.done_by));
                assert_int_equal(by.session, w->a.session_id);
                assert_int_equal(by.lane, w->a.number);
                assert_int_equal(by.seq, seqs[i]);
                assert_int_equal(r.holder_pid, 1007);
            }
            if (mode == PAWL_MEMORY)
                break;
            if (life == 0)
                core_copy_all(&w->s);
            core_restart(&w->s, true);
            assert_int_equal(core_client_resume(&w->a, d.d.grant, 0), PAWL_OK);
            core_client_open(&w->s, &w->b, 7);
        }
        end(w);
    }
}

static void a_token_is_compared_in_full(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w), wrong = d;
    wrong.d.random ^= 1;
    expect(core_ack(&w->a, &wrong), PAWL_E_NOT_FOUND, 0);
    wrong = d;
    wrong.d.grant++;
    expect(core_ack(&w->a, &wrong), PAWL_E_NOT_FOUND, 0);
    wrong = d;
    wrong.d.grant = 0;
    expect(core_ack(&w->a, &wrong), PAWL_E_NOT_FOUND, 0);
    wrong = d;
    wrong.d.message++;
    expect(core_ack(&w->a, &wrong), PAWL_E_NOT_FOUND, 0); /* not given yet */
    expect(core_ack(&w->b, &d), PAWL_E_NOT_FOUND, 0);     /* another uid's */
    struct core_client other;
    core_client_open(&w->s, &other, 7); /* another session of the uid may */
    expect(core_ack(&other, &d), PAWL_OK, 0);
    expect(core_ack(&w->b, &d), PAWL_E_NOT_FOUND, 0); /* and a stranger learns nothing after */
    end(w);
}

static void a_lost_lease_tells_who_has_it(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.lease_ns = PAWL_NS_S;
    o.perm = 0777;
    uint64_t q = core_create_with(&w->a, "short", &o);
    (void)core_send(&w->a, q, "x");
    struct core_delivery d = core_receive(&w->a, q);
    core_pass(&w->s, PAWL_NS_S); /* at the deadline it is over, fired or not */
    expect(core_ack(&w->a, &d), PAWL_E_LEASE_LOST, 0);
    core_pass(&w->s, 2 * PAWL_NS_MS);
    core_turn(&w->s);
    expect(core_ack(&w->a, &d), PAWL_E_LEASE_LOST, 0);
    struct core_delivery e = core_receive(&w->b, q);
    assert_true(e.there);
    assert_true(e.d.grant > d.d.grant);
    assert_int_equal(e.d.message, d.d.message);
    expect(core_ack(&w->a, &d), PAWL_E_LEASE_LOST, 1008);
    expect(core_settle(&w->a, PAWL_CMD_ACK, &d, 0, PAWL_ACK_IF_UNCLAIMED, NULL), PAWL_E_LEASE_LOST,
           1008);
    expect(core_ack(&w->b, &e), PAWL_OK, 0);
    expect(core_ack(&w->a, &d), PAWL_E_ALREADY_ACKED, 1008);
    end(w);
}

static void a_lease_is_in_force_until_its_very_end(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w);
    assert_int_equal(d.d.deadline, w->s.now.time + PAWL_LEASE_NS_DEFAULT);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT - 1);
    expect(core_ack(&w->a, &d), PAWL_OK, 0);
    end(w);
}

static void unclaimed_messages_can_still_be_acked(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    for (uint32_t i = 0; i < 3; i++) {
        struct core_delivery d = leased(w);
        if (i == 0) {
            core_pass(&w->s, PAWL_LEASE_NS_DEFAULT + 2 * PAWL_NS_MS);
            core_turn(&w->s);
        } else {
            uint16_t type = i == 1 ? PAWL_CMD_DEFER : PAWL_CMD_NACK;
            expect(core_settle(&w->a, type, &d, PAWL_NS_S, 0, NULL), PAWL_OK, 0);
        }
        expect(core_ack(&w->a, &d), PAWL_E_LEASE_LOST, 0);
        core_check(&w->s);
        if (i == 2) { /* also after a restart */
            core_restart(&w->s, true);
            assert_int_equal(core_client_resume(&w->a, d.d.grant, 0), PAWL_OK);
            assert_int_equal(core_client_resume(&w->b, 0, 0), PAWL_E_OUTCOME_UNKNOWN);
        }
        struct core_delivery wrong = d;
        wrong.d.random++;
        expect(core_settle(&w->a, PAWL_CMD_ACK, &wrong, 0, PAWL_ACK_IF_UNCLAIMED, NULL),
               PAWL_E_NOT_FOUND, 0);
        expect(core_settle(&w->a, PAWL_CMD_ACK, &d, 0, PAWL_ACK_IF_UNCLAIMED, NULL), PAWL_OK, 0);
        assert_false(core_receive(&w->a, w->q).there);
    }
    end(w);
}

static void terminal_states_are_named(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w);
    expect(core_settle(&w->a, PAWL_CMD_REJECT, &d, 0, 0, "bad"), PAWL_OK, 0);
    expect(core_ack(&w->a, &d), PAWL_E_STATE, PAWL_STATE_DEAD);
    expect(core_settle(&w->a, PAWL_CMD_ACK, &d, 0, PAWL_ACK_IGNORE_MISSING, NULL), PAWL_OK_MISSING,
           0);
    d = leased(w);
    expect(core_settle(&w->a, PAWL_CMD_RELEASE, &d, 0, 0, NULL), PAWL_OK, 0);
    expect(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, d.d.message, 0), PAWL_OK, 0);
    expect(core_ack(&w->a, &d), PAWL_E_STATE, PAWL_STATE_CANCELLED);
    end(w);
}

static void forgotten_is_not_never_existed(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.done_retention_ns = PAWL_NS_S;
    uint64_t q = core_create_with(&w->a, "brief", &o);
    (void)core_send(&w->a, q, "x");
    struct core_delivery d = core_receive(&w->a, q);
    expect(core_ack(&w->a, &d), PAWL_OK, 0);
    core_pass(&w->s, PAWL_NS_S - 1);
    core_turn(&w->s);
    expect(core_ack(&w->a, &d), PAWL_E_ALREADY_ACKED, 1007);
    core_pass(&w->s, 3 * PAWL_NS_MS);
    core_turn(&w->s);
    expect(core_ack(&w->a, &d), PAWL_E_FORGOTTEN, 0);
    expect(core_settle(&w->a, PAWL_CMD_ACK, &d, 0, PAWL_ACK_IGNORE_MISSING, NULL), PAWL_OK_MISSING,
           0);
    assert_int_equal(core_stat(&w->a, "brief").done, 0);
    struct core_delivery never = d;
    never.d.message += 1000;
    expect(core_ack(&w->a, &never), PAWL_E_NOT_FOUND, 0);
    core_restart(&w->s, true); /* nor after a restart, when the counter begins anew */
    assert_int_equal(core_client_resume(&w->a, d.d.grant, 0), PAWL_OK);
    core_turn(&w->s);
    core_pass(&w->s, PAWL_NS_S);
    core_turn(&w->s);
    expect(core_ack(&w->a, &d), PAWL_E_FORGOTTEN, 0);
    end(w);
}

static void a_nack_climbs_the_ladder_and_dies_at_the_limit(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_failed = 3;
    o.retry_count = 2;
    o.retry_ns[0] = 0;
    o.retry_ns[1] = 10 * PAWL_NS_S;
    uint64_t q = core_create_with(&w->a, "steps", &o);
    (void)core_send(&w->a, q, "x");
    struct core_delivery d = core_receive(&w->a, q);
    expect(core_settle(&w->a, PAWL_CMD_NACK, &d, UINT64_MAX, 0, "first"), PAWL_OK, 0);
    assert_string_equal(core_query(&w->a, q, d.d.message).reason, "first");
    d = core_receive(&w->a, q); /* at once */
    assert_int_equal(d.d.nacked, 1);
    assert_int_equal(d.d.failed, 1);
    expect(core_settle(&w->a, PAWL_CMD_NACK, &d, UINT64_MAX, 0, NULL), PAWL_OK, 0);
    struct pawl_record r = core_query(&w->a, q, d.d.message);
    assert_int_equal(r.state, PAWL_STATE_SCHEDULED);
    assert_in_range(r.due_in_ns, 10 * PAWL_NS_S, 11 * PAWL_NS_S); /* up to a tenth later */
    core_check(&w->s);
    core_pass(&w->s, 10 * PAWL_NS_S - 1);
    core_turn(&w->s);
    assert_false(core_receive(&w->a, q).there);
    core_pass(&w->s, PAWL_NS_S + 3 * PAWL_NS_MS);
    core_turn(&w->s);
    d = core_receive(&w->a, q);
    assert_true(d.there);
    expect(core_settle(&w->a, PAWL_CMD_NACK, &d, UINT64_MAX, 0, "third"), PAWL_OK, 0);
    r = core_query(&w->a, q, d.d.message);
    assert_int_equal(r.state, PAWL_STATE_DEAD);
    assert_int_equal(r.dead_reason, PAWL_DEAD_FAILED);
    assert_string_equal(r.reason, "third");
    core_copy_all(&w->s);
    assert_string_equal(core_query(&w->a, q, d.d.message).reason, "third");
    end(w);
}

static void a_nack_may_name_its_delay(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w);
    expect(core_settle(&w->a, PAWL_CMD_NACK, &d, PAWL_DELAY_NS_MAX + 1, 0, NULL), PAWL_E_INVALID,
           0);
    expect(core_settle(&w->a, PAWL_CMD_NACK, &d, 5 * PAWL_NS_S, 0, NULL), PAWL_OK, 0);
    assert_int_equal(core_query(&w->a, w->q, d.d.message).due_in_ns, 5 * PAWL_NS_S);
    end(w);
}

static void a_redelivered_message_goes_before_newer_ones(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->a, w->q, "1");
    (void)core_send(&w->a, w->q, "2");
    struct core_delivery one = core_receive(&w->a, w->q), two = core_receive(&w->a, w->q);
    (void)core_send(&w->a, w->q, "3");
    expect(core_settle(&w->a, PAWL_CMD_RELEASE, &two, 0, 0, NULL), PAWL_OK, 0);
    expect(core_settle(&w->a, PAWL_CMD_NACK, &one, 0, 0, NULL), PAWL_OK, 0);
    core_check(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, two.d.grant, 0), PAWL_OK);
    static const char *expected[] = { "1", "2", "3" };
    for (uint32_t i = 0; i < 3; i++)
        assert_string_equal(core_receive(&w->a, w->q).body, expected[i]);
    end(w);
}

static void a_release_counts_nothing_but_the_delivery(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w);
    expect(core_settle(&w->a, PAWL_CMD_RELEASE, &d, 0, 0, NULL), PAWL_OK, 0);
    d = core_receive(&w->a, w->q);
    assert_int_equal(d.d.acquired, 2);
    assert_int_equal(d.d.failed, 0);
    assert_int_equal(d.d.crashed, 0);
    end(w);
}

static void a_deferred_message_comes_back_later_uncounted(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w);
    expect(core_settle(&w->a, PAWL_CMD_DEFER, &d, 7 * PAWL_NS_S, 0, NULL), PAWL_OK, 0);
    struct pawl_record r = core_query(&w->a, w->q, d.d.message);
    assert_int_equal(r.state, PAWL_STATE_SCHEDULED);
    assert_int_equal(r.deferred, 1);
    assert_int_equal(r.failed, 0);
    core_pass(&w->s, 7 * PAWL_NS_S + 2 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_true(core_receive(&w->a, w->q).there);
    end(w);
}

static void a_renewal_counts_from_now_up_to_the_cap(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_hold_ns = 30 * PAWL_NS_S;
    uint64_t q = core_create_with(&w->a, "capped", &o);
    (void)core_send(&w->a, q, "x");
    struct core_delivery d = core_receive(&w->a, q);
    core_pass(&w->s, 9 * PAWL_NS_S);
    expect(core_settle(&w->a, PAWL_CMD_RENEW, &d, 10 * PAWL_NS_S, 0, NULL), PAWL_OK, 0);
    core_pass(&w->s, 9 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(core_query(&w->a, q, d.d.message).lease_left_ns, PAWL_NS_S);
    expect(core_settle(&w->a, PAWL_CMD_RENEW, &d, 13 * PAWL_NS_S, 0, NULL), PAWL_E_HOLD_CAP, 0);
    expect(core_settle(&w->a, PAWL_CMD_RENEW, &d, 12 * PAWL_NS_S, 0, NULL), PAWL_OK, 0);
    core_check(&w->s);
    expect(core_settle(&w->a, PAWL_CMD_RENEW, &d, PAWL_NS_MS, 0, NULL), PAWL_OK, 0); /* shorter */
    core_pass(&w->s, PAWL_NS_MS);
    expect(core_settle(&w->a, PAWL_CMD_RENEW, &d, PAWL_NS_S, 0, NULL), PAWL_E_LEASE_LOST, 0);
    end(w);
}

static void by_id_takes_what_nobody_holds(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t ready = core_send(&w->a, w->q, "r").value;
    const struct core_send_options o = { .delay_ns = PAWL_NS_S };
    uint64_t scheduled = core_send_with(&w->a, w->q, "s", &o).value;
    expect(core_by_id(&w->a, PAWL_CMD_ACK_ID, w->q, ready, 0), PAWL_OK, 0);
    expect(core_by_id(&w->a, PAWL_CMD_ACK_ID, w->q, ready, 0), PAWL_E_ALREADY_ACKED, 1007);
    expect(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, ready, 0), PAWL_E_STATE, PAWL_STATE_ACKED);
    expect(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, scheduled, 0), PAWL_OK, 0);
    struct core_delivery d = leased(w);
    expect(core_by_id(&w->a, PAWL_CMD_ACK_ID, w->q, d.d.message, 0), PAWL_E_STATE,
           PAWL_STATE_LEASED);
    expect(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, d.d.message, 0), PAWL_E_STATE,
           PAWL_STATE_LEASED);
    expect(core_by_id(&w->a, PAWL_CMD_ACK_ID, w->q, 12345, 0), PAWL_E_NOT_FOUND, 0);
    expect(core_by_id(&w->a, PAWL_CMD_ACK_ID, w->q, 12345, PAWL_ACK_IGNORE_MISSING),
           PAWL_OK_MISSING, 0);
    uint64_t other = core_create(&w->a, "other", PAWL_DURABLE);
    expect(core_by_id(&w->a, PAWL_CMD_CANCEL, other, d.d.message, 0), PAWL_E_NOT_FOUND, 0);
    end(w);
}

static void the_dead_can_be_restored(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = leased(w);
    expect(core_by_id(&w->a, PAWL_CMD_RESTORE, w->q, d.d.message, 0), PAWL_E_STATE,
           PAWL_STATE_LEASED);
    expect(core_settle(&w->a, PAWL_CMD_REJECT, &d, 0, 0, "no good"), PAWL_OK, 0);
    assert_int_equal(core_stat(&w->a, "orders").dead, 1);
    struct pawl_record r = core_query(&w->a, w->q, d.d.message);
    assert_string_equal(r.reason, "no good");
    assert_int_equal(r.dead_reason, PAWL_DEAD_REJECTED);
    core_check(&w->s);
    expect(core_by_id(&w->a, PAWL_CMD_RESTORE, w->q, d.d.message, 0), PAWL_OK, 0);
    r = core_query(&w->a, w->q, d.d.message);
    assert_int_equal(r.state, PAWL_STATE_READY);
    assert_int_equal(r.acquired, 0);
    assert_int_equal(r.dead_reason, PAWL_DEAD_NONE);
    assert_string_equal(r.reason, "no good"); /* history */
    core_check(&w->s);
    d = core_receive(&w->a, w->q);
    assert_true(d.there);
    assert_int_equal(d.d.failed, 0);
    assert_int_equal(d.d.acquired, 1);
    end(w);
}

static void the_dead_may_go_to_another_queue(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    strcpy(o.dead_forward, "graves");
    uint64_t q = core_create_with(&w->a, "work", &o);
    o = (struct pawl_queue_options)PAWL_QUEUE_OPTIONS_INIT;
    o.max_messages = 1;
    uint64_t graves = core_create_with(&w->a, "graves", &o);
    (void)core_send(&w->a, q, "1");
    (void)core_send(&w->a, q, "2");
    struct core_delivery d = core_receive(&w->a, q);
    uint32_t before = w->s.record_count;
    expect(core_settle(&w->a, PAWL_CMD_REJECT, &d, 0, 0, NULL), PAWL_OK, 0);
    assert_int_equal(w->s.record_count, before + 1);
    core_check(&w->s);
    d = core_receive(&w->a, q);
    expect(core_settle(&w->a, PAWL_CMD_REJECT, &d, 0, 0, NULL), PAWL_OK, 0); /* no room there */
    assert_int_equal(core_query(&w->a, q, d.d.message).state, PAWL_STATE_DEAD);
    struct core_delivery e = core_receive(&w->a, graves);
    assert_string_equal(e.body, "1");
    assert_int_equal(e.d.acquired, 1); /* it starts anew */
    assert_int_equal(e.d.queue, graves);
    core_copy_all(&w->s);
    end(w);
}

/* The clock ends a time to live, not the timer: a repeat of its key is told EXPIRED from then on,
 * so nobody may cancel or acknowledge it any more. */
static void a_time_to_live_is_over_before_its_timer_says_so(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    const struct core_send_options o = { .ttl_ns = PAWL_NS_S, .priority = 4 };
    uint64_t id = core_send_with(&w->a, w->q, "x", &o).value;
    uint64_t other = core_send_with(&w->a, w->q, "y", &o).value;
    core_pass(&w->s, PAWL_NS_S);
    expect(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, id, 0), PAWL_E_STATE, PAWL_STATE_EXPIRED);
    core_restart(&w->s, true);
    core_client_open(&w->s, &w->a, 7);
    expect(core_by_id(&w->a, PAWL_CMD_ACK_ID, w->q, other, 0), PAWL_E_STATE, PAWL_STATE_EXPIRED);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_ack_wins),
        cmocka_unit_test(the_end_of_a_message_names_its_operation),
        cmocka_unit_test(a_token_is_compared_in_full),
        cmocka_unit_test(a_lost_lease_tells_who_has_it),
        cmocka_unit_test(a_lease_is_in_force_until_its_very_end),
        cmocka_unit_test(unclaimed_messages_can_still_be_acked),
        cmocka_unit_test(terminal_states_are_named),
        cmocka_unit_test(forgotten_is_not_never_existed),
        cmocka_unit_test(a_nack_climbs_the_ladder_and_dies_at_the_limit),
        cmocka_unit_test(a_nack_may_name_its_delay),
        cmocka_unit_test(a_redelivered_message_goes_before_newer_ones),
        cmocka_unit_test(a_release_counts_nothing_but_the_delivery),
        cmocka_unit_test(a_deferred_message_comes_back_later_uncounted),
        cmocka_unit_test(a_renewal_counts_from_now_up_to_the_cap),
        cmocka_unit_test(by_id_takes_what_nobody_holds),
        cmocka_unit_test(the_dead_can_be_restored),
        cmocka_unit_test(the_dead_may_go_to_another_queue),
        cmocka_unit_test(a_time_to_live_is_over_before_its_timer_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
