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

/* The same command again under its seq. */
static struct core_answer again(struct core_client *c, uint64_t seq, uint64_t queue)
{
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = queue, .body_bytes = 8 };
    m.head.seq = seq;
    m.head.flags = PAWL_CMD_RESUBMIT;
    assert_int_equal(core_take(c, &m, sizeof m, "12345678", 8), PAWL_OK);
    core_turn(c->shell);
    return core_answer(c, seq);
}

static void the_log_answers_what_it_knows(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    w->a.hold = true;
    w->a.oldest = w->a.next_seq;
    struct core_answer sent[20];
    for (uint32_t i = 0; i < 20; i++)
        sent[i] = core_send(&w->a, w->q, "12345678");
    uint32_t records = w->s.record_count;
    for (uint32_t restarts = 0; restarts < 3; restarts++) {
        core_restart(&w->s, true);
        assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
        if (restarts == 1)
            core_copy_all(&w->s); /* windows are copied forward, too */
        for (uint32_t i = 0; i < 20; i++) {
            struct core_answer a = again(&w->a, sent[i].seq, w->q);
            assert_int_equal(a.result, PAWL_OK);
            assert_int_equal(a.value, sent[i].value);
            assert_int_equal(a.lsn, sent[i].lsn);
        }
        assert_int_equal(core_stat(&w->a, "orders").ready, 20);
    }
    assert_true(w->s.record_count >= records);
    end(w);
}

static void what_the_log_does_not_know_is_decided_now(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    w->a.hold = true;
    (void)core_send(&w->a, w->q, "first");
    uint32_t records = w->s.record_count;
    struct core_answer lost = core_send(&w->a, w->q, "12345678");
    core_cut(&w->s, records);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    struct core_answer a = again(&w->a, lost.seq, w->q);
    assert_int_equal(a.result, PAWL_OK);
    assert_int_not_equal(a.value, lost.value); /* a number taken back is not given again */
    assert_int_equal(core_stat(&w->a, "orders").ready, 2);
    end(w);
}

static void refusals_are_not_in_the_log_and_are_decided_anew(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    w->a.hold = true;
    pawl_core_refuse_sends(w->s.core, PAWL_LIMIT_LOG);
    struct core_answer refused = core_send(&w->a, w->q, "12345678");
    assert_int_equal(refused.result, PAWL_E_FULL);
    pawl_core_refuse_sends(w->s.core, 0);
    struct core_answer later = core_send(&w->a, w->q, "later");
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_int_equal(again(&w->a, refused.seq, w->q).result, PAWL_OK);
    assert_int_equal(again(&w->a, later.seq, w->q).value, later.value);
    end(w);
}

static void the_same_broker_answers_from_memory(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_MEMORY);
    w->a.hold = true;
    struct core_answer sent = core_send(&w->a, w->q, "12345678");
    pawl_core_refuse_sends(w->s.core, 0);
    struct core_answer bad = core_send(&w->a, 12345, "12345678");
    assert_int_equal(bad.result, PAWL_E_NOT_FOUND);
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_int_equal(again(&w->a, sent.seq, w->q).value, sent.value);
    assert_int_equal(again(&w->a, bad.seq, w->q).result, PAWL_E_NOT_FOUND);
    assert_int_equal(core_stat(&w->a, "orders").ready, 1);
    end(w);
}

static void closed_operations_get_no_answer(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_answer sent = core_send(&w->a, w->q, "12345678");
    (void)core_send(&w->a, w->q, "next"); /* says that the one before is closed */
    assert_int_equal(again(&w->a, sent.seq, w->q).result, CORE_NONE);
    assert_int_equal(core_stat(&w->a, "orders").ready, 2);
    end(w);
}

static void a_pending_receive_waits_in_new_rings_when_it_comes_from_them(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, PAWL_UNLIMITED, 0);
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    (void)core_send(&w->b, w->q, "x"); /* nobody is there to get it */
    assert_int_equal(core_stat(&w->b, "orders").ready, 1);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    core_turn(&w->s);
    /* Its client has not asked again, and may have given it up. */
    assert_false(core_delivered(&w->a).there);
    assert_int_equal(core_answer(&w->a, seq).result, CORE_NONE);
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .head.seq = seq };
    r.head.flags = PAWL_CMD_RESUBMIT;
    r.max = r.queue_count = 1;
    assert_int_equal(core_take(&w->a, &r, sizeof r, &w->q, 8), PAWL_OK);
    core_turn(&w->s);
    assert_true(core_delivered(&w->a).there);
    assert_int_equal(core_answer(&w->a, seq).value, 1);
    end(w);
}

/* A purge of so many that the log has no room for all of it: the rest goes on by itself. */
#define PURGED 3000u
static void purge_stands_still(struct world *w, struct pawl_cmd_queue *c)
{
    for (uint32_t i = 0; i < PURGED; i++)
        (void)core_send(&w->b, w->q, "x");
    *c = (struct pawl_cmd_queue){ .head.type = PAWL_CMD_QUEUE_PURGE, .name = "orders" };
    w->s.room = pawl_core_need(&c->head);
    w->s.metered = true;
    assert_int_equal(core_take(&w->a, c, sizeof *c, NULL, 0), PAWL_OK);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->a, c->head.seq).result, CORE_NONE);
    w->s.metered = false;
}

static void an_answer_waits_until_its_command_comes_from_the_new_rings(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t room = w->s.room;
    struct pawl_cmd_queue c;
    purge_stands_still(w, &c);
    uint64_t seq = c.head.seq;
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    w->a.oldest = seq;
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    w->a.hold = true;
    (void)core_stat(&w->a, "orders"); /* a later seq says nothing of this one */
    w->s.room = room;
    core_turn(&w->s);
    assert_int_equal(core_stat(&w->b, "orders").ready, 0);
    assert_int_equal(core_answer(&w->a, seq).result, CORE_NONE); /* no room was promised */
    c.head.seq = seq;
    c.head.flags = PAWL_CMD_RESUBMIT;
    assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_OK);
    core_turn(&w->s);
    struct core_answer a = core_answer(&w->a, seq);
    assert_int_equal(a.result, PAWL_OK);
    assert_int_equal(a.value, PURGED);
    assert_int_equal(core_answer(&w->a, seq).result, CORE_NONE); /* once */
    end(w);
}

/* Some pieces are in the log: what was there at first goes, what came meanwhile stays. */
static void a_purge_cut_by_a_crash_takes_the_rest(void **state)
{
    (void)state;
    for (uint32_t copies = 0; copies < 2; copies++) {
        struct world *w = begin(PAWL_DURABLE);
        uint64_t room = w->s.room;
        struct pawl_cmd_queue c;
        purge_stands_still(w, &c);
        w->a.oldest = c.head.seq;
        w->s.room = pawl_core_need(&c.head); /* not enough for the next piece, too */
        w->s.metered = true;
        (void)core_send(&w->b, w->q, "later");
        w->s.metered = false;
        core_restart(&w->s, true);
        w->s.room = room;
        if (copies)
            core_copy_all(&w->s);
        assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
        assert_int_equal(core_client_resume(&w->b, 0, 0), PAWL_OK);
        uint64_t left = core_stat(&w->b, "orders").ready;
        assert_true(left > 1 && left <= PURGED);
        c.head.flags = PAWL_CMD_RESUBMIT;
        assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_OK);
        core_turn(&w->s);
        struct core_answer a = core_answer(&w->a, c.head.seq);
        assert_int_equal(a.result, PAWL_OK);
        assert_int_equal(a.value, PURGED);
        assert_string_equal(core_receive(&w->b, w->q).body, "later");
        core_restart(&w->s, true);
        if (copies)
            core_copy_all(&w->s);
        assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
        assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_OK);
        core_turn(&w->s);
        assert_int_equal(core_answer(&w->a, c.head.seq).value, PURGED);
        end(w);
    }
}

static void a_purge_of_a_closed_lane_does_not_answer_the_next_one(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t room = w->s.room;
    struct pawl_cmd_queue c;
    purge_stands_still(w, &c);
    uint64_t seq = c.head.seq;
    pawl_core_lane_close(w->s.core, w->a.lane, w->s.now);
    const struct pawl_attach_lane given = { .comp_bytes = 65536, .open_seq = 1, .next_seq = 1 };
    assert_int_equal(pawl_core_lane_open(w->s.core, w->a.session, PAWL_LANE_NEW, 64, &given,
                                         w->a.handle, w->s.now, &w->a.lane),
                     PAWL_OK);
    assert_int_equal(pawl_core_lane_number(w->a.lane), w->a.number);
    w->a.next_seq = w->a.oldest = 1;
    w->a.hold = true;
    w->s.room = room;
    for (uint64_t s = 1; s < seq; s++) /* up to its seq, none of which is answered by it */
        assert_int_equal(core_send(&w->a, w->q, "x").seq, s);
    core_forget_events(&w->s);
    struct core_answer sent = core_send(&w->a, w->q, "12345678");
    assert_int_equal(sent.seq, seq);
    assert_int_equal(sent.result, PAWL_OK);
    assert_int_equal(core_answer(&w->a, seq).result, CORE_NONE);
    assert_int_equal(again(&w->a, seq, w->q).value, sent.value);
    end(w);
}

static void deliveries_not_read_come_again(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 3; way++) {
        struct world *w = begin(PAWL_DURABLE);
        for (uint32_t i = 0; i < 3; i++)
            (void)core_send(&w->b, w->q, "x");
        uint64_t seq = core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 3, 0, 0);
        core_turn(&w->s);
        struct core_delivery first = core_delivered(&w->a);
        struct core_delivery second = core_delivered(&w->a);
        if (way == 0) {
            core_restart(&w->s, true);
        } else if (way == 1) {
            core_copy_all(&w->s);
            core_restart(&w->s, true);
        } else {
            pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
        }
        assert_int_equal(core_client_resume(&w->a, first.d.grant, 0), PAWL_OK);
        struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .head.seq = seq };
        r.head.flags = PAWL_CMD_RESUBMIT;
        r.max = 3;
        r.queue_count = 1;
        assert_int_equal(core_take(&w->a, &r, sizeof r, &w->q, 8), PAWL_OK);
        core_turn(&w->s);
        for (uint32_t i = 0; i < 2; i++) {
            struct core_delivery d = core_delivered(&w->a);
            assert_true(d.there);
            assert_int_equal(d.d.seq, seq);
            assert_int_equal(d.d.grant, second.d.grant + i);
            assert_int_equal(d.d.random == second.d.random, i == 0);
            assert_int_equal(d.d.acquired, 1); /* the same delivery */
        }
        assert_false(core_delivered(&w->a).there);
        assert_int_equal(core_answer(&w->a, seq).value, 3);
        assert_int_equal(core_ack(&w->a, &first).result, PAWL_OK);
        end(w);
    }
}

static void deliveries_dropped_with_their_rings_go_to_the_new_ones(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->b, w->q, "x");
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, 0, 0);
    assert_int_equal(w->s.effect_count, 2); /* delivery and answer, not published */
    struct pawl_effect old = w->s.effects[0];
    assert_int_equal(old.type, PAWL_EFFECT_DELIVERY);
    w->s.effect_count = 0;
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_int_equal(w->s.effect_count, 1); /* at once, before any newer grant */
    pawl_core_effect_done(w->s.core, &old, false, 0);
    assert_int_equal(w->s.effect_count, 1); /* and once */
    core_turn(&w->s);
    struct core_delivery d = core_delivered(&w->a);
    assert_true(d.there);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    end(w);
}

static void a_lease_that_ended_with_its_rings_gone_has_a_timer(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->b, w->q, "x");
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, 0, PAWL_LEASE_HELD);
    struct pawl_effect old = w->s.effects[0];
    assert_int_equal(old.type, PAWL_EFFECT_DELIVERY);
    w->s.effect_count = 0;
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    core_pass(&w->s, 13ull * 3600 * PAWL_NS_S); /* asleep, beyond max_hold */
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    pawl_core_effect_done(w->s.core, &old, false, 0);
    pawl_core_verify(w->s.core);
    core_turn(&w->s);
    assert_false(core_delivered(&w->a).there);
    assert_true(core_receive(&w->b, w->q).there);
    end(w);
}

static void what_a_closed_lane_never_showed_is_released(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->b, w->q, "x");
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, 0, PAWL_LEASE_HELD);
    struct pawl_effect old = w->s.effects[0];
    assert_int_equal(old.type, PAWL_EFFECT_DELIVERY);
    w->s.effect_count = 0;
    pawl_core_lane_close(w->s.core, w->a.lane, w->s.now);
    pawl_core_effect_done(w->s.core, &old, false, 0);
    core_pass(&w->s, 2 * PAWL_NS_MS);
    core_turn(&w->s);
    struct core_delivery d = core_receive(&w->b, w->q);
    assert_true(d.there);
    assert_int_equal(d.d.failed, 0);
    end(w);
}

static void credit_is_counted_again_after_a_restart(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->a, PAWL_CMD_SUBSCRIBE, w->q, 2, 0, 0);
    for (uint32_t i = 0; i < 3; i++)
        (void)core_send(&w->b, w->q, "x");
    struct core_delivery first = core_delivered(&w->a), second = core_delivered(&w->a);
    assert_true(second.there);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, second.d.grant, 0), PAWL_OK);
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_SUBSCRIBE, .head.seq = seq };
    r.head.flags = PAWL_CMD_RESUBMIT;
    r.max = 2;
    r.queue_count = 1;
    assert_int_equal(core_take(&w->a, &r, sizeof r, &w->q, 8), PAWL_OK);
    core_turn(&w->s);
    assert_false(core_delivered(&w->a).there);
    assert_int_equal(core_ack(&w->a, &first).result, PAWL_OK);
    assert_true(core_delivered(&w->a).there);
    end(w);
}

static void a_session_comes_back_only_with_its_secret(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->a, w->q, "x");
    uint64_t epoch = pawl_core_session_epoch(w->a.session);
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    w->a.secret[3] ^= 1;
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_E_PERM);
    w->a.secret[3] ^= 1;
    w->a.uid = 8;
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_E_PERM);
    w->a.uid = 7;
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_true(pawl_core_session_epoch(w->a.session) > epoch);
    epoch = pawl_core_session_epoch(w->a.session);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_true(pawl_core_session_epoch(w->a.session) > epoch);
    w->a.session_id++;
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_E_OUTCOME_UNKNOWN);
    w->a.session_id--;
    end(w);
}

static void a_detached_session_ends_after_its_grace(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->b, w->q, "x");
    assert_true(core_receive_kind(&w->a, w->q, PAWL_LEASE_HELD, 0, 0).there);
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    core_pass(&w->s, 60 * PAWL_NS_S - 1);
    core_turn(&w->s);
    assert_int_equal(core_stat(&w->b, "orders").leased, 1);
    core_pass(&w->s, 2 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(core_stat(&w->b, "orders").ready, 1);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_E_OUTCOME_UNKNOWN);
    end(w);
}

static void the_table_is_never_cleared_for_a_newcomer(void **state)
{
    (void)state;
    struct core_shell s;
    core_init(&s);
    const struct pawl_core_peer peer = { .uid = 7 };
    struct pawl_core_session *session = NULL, *first = NULL;
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(pawl_core_session_open(s.core, &peer, s.now, &session), PAWL_OK);
        first = first ? first : session;
    }
    assert_int_equal(pawl_core_session_open(s.core, &peer, s.now, &session), PAWL_E_QUOTA);
    assert_null(session);
    pawl_core_session_end(s.core, first, PAWL_END_CLOSED, s.now);
    core_turn(&s);
    assert_int_equal(pawl_core_session_open(s.core, &peer, s.now, &session), PAWL_OK);
    core_end(&s);
}

static struct pawl_core_lane *lane_of(struct world *w, uint32_t number)
{
    struct pawl_core_lane *lane = NULL;
    const struct pawl_attach_lane given = { .comp_bytes = 65536, .open_seq = 1, .next_seq = 1 };
    int rc = pawl_core_lane_open(w->s.core, w->a.session, number, 64, &given, 30, w->s.now, &lane);
    return rc == PAWL_OK ? lane : NULL;
}

static void lanes_are_numbered_and_limited(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_core_lane *lanes[256] = { w->a.lane };
    for (uint32_t i = 1; i < 256; i++) {
        lanes[i] = lane_of(w, PAWL_LANE_NEW);
        assert_non_null(lanes[i]);
        assert_int_equal(pawl_core_lane_number(lanes[i]), i);
    }
    assert_null(lane_of(w, PAWL_LANE_NEW));
    assert_null(lane_of(w, 256));
    pawl_core_lane_close(w->s.core, lanes[17], w->s.now);
    struct pawl_core_lane *lane = lane_of(w, PAWL_LANE_NEW); /* closed by its client: free */
    assert_non_null(lane);
    assert_int_equal(pawl_core_lane_number(lane), 17);
    /* but one that lost its rings with the socket is kept for its client */
    pawl_core_lane_close(w->s.core, lanes[18], w->s.now);
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_null(lane_of(w, PAWL_LANE_NEW));
    assert_non_null(lane_of(w, 18));
    end(w);
}

static void a_number_given_again_begins_anew(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    for (uint32_t i = 0; i < 5; i++)
        (void)core_send(&w->a, w->q, "12345678");
    pawl_core_lane_close(w->s.core, w->a.lane, w->s.now);
    const struct pawl_attach_lane given = { .comp_bytes = 65536, .open_seq = 1, .next_seq = 1 };
    assert_int_equal(pawl_core_lane_open(w->s.core, w->a.session, PAWL_LANE_NEW, 64, &given,
                                         w->a.handle, w->s.now, &w->a.lane),
                     PAWL_OK);
    assert_int_equal(pawl_core_lane_number(w->a.lane), w->a.number);
    w->a.next_seq = w->a.oldest = 1;
    w->a.hold = true;
    struct core_answer sent = core_send(&w->a, w->q, "12345678");
    assert_int_equal(sent.seq, 1);
    core_copy_all(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_int_equal(again(&w->a, 1, w->q).value, sent.value);
    assert_int_equal(again(&w->a, 2, w->q).result, PAWL_OK); /* a new one, not the old lane's */
    w->a.next_seq = 3;
    assert_int_equal(core_stat(&w->a, "orders").ready, 7);
    end(w);
}

static void a_large_window_survives(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    w->a.window = 5000;
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    w->a.hold = true;
    w->a.oldest = w->a.next_seq;
    uint64_t first = w->a.next_seq;
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(core_send(&w->a, w->q, "12345678").result, PAWL_OK);
    struct pawl_cmd_one c = { .head.type = PAWL_CMD_METRICS, .head.seq = w->a.next_seq };
    assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_E_PROTOCOL); /* one too many */
    core_copy_all(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    for (uint32_t i = 0; i < 5000; i += 7)
        assert_int_equal(again(&w->a, first + i, w->q).result, PAWL_OK);
    w->a.oldest = w->a.next_seq;
    assert_int_equal(core_stat(&w->a, "orders").ready, 5000);
    end(w);
}

static uint32_t seen;
static void see(void *ctx, struct pawl_core_session *s)
{
    (void)ctx;
    seen += pawl_core_session_peer(s)->uid;
}
static void each_calls_for_all_that_live(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    (void)core_send(&w->b, w->q, "x");
    core_restart(&w->s, true);
    seen = 0;
    pawl_core_session_each(w->s.core, see, NULL);
    assert_int_equal(seen, 15);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_answers_what_it_knows),
        cmocka_unit_test(what_the_log_does_not_know_is_decided_now),
        cmocka_unit_test(refusals_are_not_in_the_log_and_are_decided_anew),
        cmocka_unit_test(the_same_broker_answers_from_memory),
        cmocka_unit_test(closed_operations_get_no_answer),
        cmocka_unit_test(a_pending_receive_waits_in_new_rings_when_it_comes_from_them),
        cmocka_unit_test(an_answer_waits_until_its_command_comes_from_the_new_rings),
        cmocka_unit_test(a_purge_cut_by_a_crash_takes_the_rest),
        cmocka_unit_test(a_purge_of_a_closed_lane_does_not_answer_the_next_one),
        cmocka_unit_test(deliveries_not_read_come_again),
        cmocka_unit_test(deliveries_dropped_with_their_rings_go_to_the_new_ones),
        cmocka_unit_test(a_lease_that_ended_with_its_rings_gone_has_a_timer),
        cmocka_unit_test(what_a_closed_lane_never_showed_is_released),
        cmocka_unit_test(credit_is_counted_again_after_a_restart),
        cmocka_unit_test(a_session_comes_back_only_with_its_secret),
        cmocka_unit_test(a_detached_session_ends_after_its_grace),
        cmocka_unit_test(the_table_is_never_cleared_for_a_newcomer),
        cmocka_unit_test(lanes_are_numbered_and_limited),
        cmocka_unit_test(a_number_given_again_begins_anew),
        cmocka_unit_test(a_large_window_survives),
        cmocka_unit_test(each_calls_for_all_that_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
