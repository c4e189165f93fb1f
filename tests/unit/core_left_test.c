/* SPDX-License-Identifier: MIT */
/* Operations without an id of their caller: what another process learns of them, while their
 * session lives and after its end (semantics 1). */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "abi/lane_id.h"
#include "core/core_inner.h"
#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client a, b; /* of one user; a ends */
    uint64_t q;
};

static struct world *begin_with(uint64_t ledger_max)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    struct pawl_core_options o = core_options();
    o.memory_bytes = 64ull << 20;
    o.segment_bytes = 1 << 20;
    o.ledger_max = ledger_max;
    o.admin_uid = 99;
    core_init_options(&w->s, &o);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 7);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.perm = 0777;
    w->q = core_create_with(&w->b, "orders", &q);
    return w;
}

static struct world *begin(void) { return begin_with(0); }

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static struct pawl_op_id id_of(const struct core_client *c, uint64_t seq)
{
    const struct pawl_lane_id id = { .session = c->session_id, .seq = seq, .lane = c->number };
    struct pawl_op_id out;
    pawl_lane_id_pack(&id, &out);
    return out;
}

static struct pawl_comp_resolved resolve(struct core_client *asks, const struct core_client *c,
                                         uint64_t seq, uint32_t flags)
{
    struct pawl_cmd_resolve m = { .head.type = PAWL_CMD_RESOLVE, .flags = flags };
    m.id = id_of(c, seq);
    struct core_answer a = core_call(asks, &m, sizeof m, NULL, 0);
    struct pawl_comp_resolved r = { .state = UINT32_MAX, .result = a.result };
    if (a.result == PAWL_OK) {
        assert_int_equal(a.bytes, sizeof r);
        memcpy(&r, a.data, sizeof r);
    }
    return r;
}

#define STATE(asks, c, seq) resolve(asks, c, seq, 0).state

/* Submits a send that nobody sees the answer of: it stays open. */
static uint64_t send_open(struct core_client *c, uint64_t queue, const char *body)
{
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = queue, .priority = 4 };
    uint8_t padded[64] = { 0 };
    m.body_bytes = (uint32_t)strlen(body);
    memcpy(padded, body, m.body_bytes);
    c->hold = true;
    uint64_t seq = c->next_seq;
    assert_int_equal(core_take(c, &m, sizeof m, padded, (uint32_t)pawl_align_up(m.body_bytes, 8)),
                     PAWL_OK);
    return seq;
}

static uint64_t keep(struct core_client *c, uint64_t seq)
{
    struct pawl_cmd_one m = { .head.type = PAWL_CMD_KEEP, .value = seq };
    return (uint64_t)core_call(c, &m, sizeof m, NULL, 0).result;
}

static void die(struct world *w, struct core_client *c)
{
    pawl_core_session_end(w->s.core, c->session, PAWL_END_DEAD, w->s.now);
    core_turn(&w->s);
}

static void ids_are_written_and_read(void **state)
{
    (void)state;
    const struct pawl_lane_id given[] = { { 1, 1, 0 },
                                          { UINT64_MAX, PAWL_LANE_SEQ_MAX, 255 },
                                          { 0x0123456789abcdefull, 0x2aaaaaaaaaaaaull, 0x5a } };
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        struct pawl_op_id id;
        pawl_lane_id_pack(&given[i], &id);
        assert_true(pawl_op_id_of_lane(&id));
        struct pawl_lane_id back = pawl_lane_id_unpack(&id);
        assert_int_equal(back.session, given[i].session);
        assert_int_equal(back.seq, given[i].seq);
        assert_int_equal(back.lane, given[i].lane);
    }
}

static void while_its_session_lives_the_window_tells(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t answered = w->a.next_seq;
    (void)core_send(&w->a, w->q, "1");
    (void)core_send(&w->a, w->q, "2"); /* says that the first one is answered */
    uint64_t open = send_open(&w->a, w->q, "3");
    core_turn(&w->s);
    assert_int_equal(STATE(&w->b, &w->a, answered), PAWL_RESOLVED_FORGOTTEN);
    struct pawl_comp_resolved r = resolve(&w->b, &w->a, open, PAWL_RESOLVE_FENCE);
    assert_int_equal(r.state, PAWL_RESOLVED_COMMITTED);
    assert_int_not_equal(r.value, 0);
    assert_int_not_equal(r.lsn, 0);
    /* It may come yet: only its own process could say that it will not. */
    assert_int_equal(STATE(&w->b, &w->a, open + 1), PAWL_RESOLVED_NEVER_SEEN);
    assert_int_equal(resolve(&w->b, &w->a, open + 1, PAWL_RESOLVE_FENCE).result, PAWL_E_STATE);
    end(w);
}

/* lives: over a restart of the broker, and copy-forward. */
static void check_left(struct world *w, uint64_t answered, uint64_t open, uint64_t id,
                       uint64_t refused)
{
    struct pawl_comp_resolved r = resolve(&w->b, &w->a, open, 0);
    assert_int_equal(r.state, PAWL_RESOLVED_COMMITTED);
    assert_int_equal(r.result, PAWL_OK);
    assert_int_equal(r.value, id);
    assert_int_equal(STATE(&w->b, &w->a, answered), PAWL_RESOLVED_FORGOTTEN);
    assert_int_equal(STATE(&w->b, &w->a, refused), PAWL_RESOLVED_NEVER_SEEN);
    assert_int_equal(resolve(&w->b, &w->a, refused + 1, PAWL_RESOLVE_FENCE).state,
                     PAWL_RESOLVED_NEVER_SEEN);
}

static void what_is_open_at_the_end_resolves_for_a_day(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t answered = w->a.next_seq;
    (void)core_send(&w->a, w->q, "1");
    (void)core_send(&w->a, w->q, "2");
    uint64_t open = send_open(&w->a, w->q, "3");
    uint64_t refused = send_open(&w->a, w->q + 1000, "to no queue");
    core_turn(&w->s);
    uint64_t id = core_answer(&w->a, open).value;
    die(w, &w->a);
    check_left(w, answered, open, id, refused);
    core_check(&w->s);
    for (int life = 0; life < 2; life++) {
        core_restart(&w->s, life == 0);
        core_client_open(&w->s, &w->b, 7);
        check_left(w, answered, open, id, refused);
        if (life == 0)
            core_copy_all(&w->s);
    }
    core_pass(&w->s, 86400 * PAWL_NS_S + 20 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(STATE(&w->b, &w->a, open), PAWL_RESOLVED_FORGOTTEN);
    assert_int_equal(STATE(&w->b, &w->a, refused + 1), PAWL_RESOLVED_FORGOTTEN);
    end(w);
}

static void a_broker_that_dies_first_knows_it_too(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)core_send(&w->a, w->q, "1");
    uint64_t open = send_open(&w->a, w->q, "2");
    core_turn(&w->s);
    uint64_t id = core_answer(&w->a, open).value;
    core_restart(&w->s, false); /* the machine: every session of before is over */
    core_turn(&w->s);
    core_client_open(&w->s, &w->b, 7);
    struct pawl_comp_resolved r = resolve(&w->b, &w->a, open, 0);
    assert_int_equal(r.state, PAWL_RESOLVED_COMMITTED);
    assert_int_equal(r.value, id);
    assert_int_equal(STATE(&w->b, &w->a, open + 1), PAWL_RESOLVED_NEVER_SEEN);
    end(w);
}

/* A crash at any place of the end: nobody is ever told "not done" of what comes to be done. */
static void an_end_that_a_crash_cuts_is_begun_anew(void **state)
{
    (void)state;
    for (uint32_t lost = 0; lost < 4; lost++) {
        struct world *w = begin();
        uint64_t first = send_open(&w->a, w->q, "1");
        uint64_t second = send_open(&w->a, w->q, "2");
        core_turn(&w->s);
        uint32_t before = w->s.record_count;
        die(w, &w->a);
        uint32_t records = w->s.record_count - before;
        assert_int_equal(records, 3); /* two outcomes; the line with the END */
        core_cut(&w->s, before + records - pawl_min_u64(lost, records));
        core_restart(&w->s, true);
        core_client_open(&w->s, &w->b, 7);
        bool over = lost == 0;
        assert_int_equal(STATE(&w->b, &w->a, first), PAWL_RESOLVED_COMMITTED);
        assert_int_equal(STATE(&w->b, &w->a, second), PAWL_RESOLVED_COMMITTED);
        struct pawl_comp_resolved r = resolve(&w->b, &w->a, second + 1, PAWL_RESOLVE_FENCE);
        assert_int_equal(over ? (int)r.state : r.result,
                         over ? PAWL_RESOLVED_NEVER_SEEN : PAWL_E_STATE);
        if (!over) { /* its process was only slow */
            assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
            uint64_t third = send_open(&w->a, w->q, "3");
            core_turn(&w->s);
            assert_int_equal(STATE(&w->b, &w->a, third), PAWL_RESOLVED_COMMITTED);
            die(w, &w->a);
            assert_int_equal(STATE(&w->b, &w->a, first), PAWL_RESOLVED_COMMITTED);
            assert_int_equal(STATE(&w->b, &w->a, third), PAWL_RESOLVED_COMMITTED);
            assert_int_equal(STATE(&w->b, &w->a, third + 1), PAWL_RESOLVED_NEVER_SEEN);
        }
        end(w);
    }
}

static void a_clean_end_leaves_only_what_is_open(void **state)
{
    (void)state;
    for (int open = 0; open < 2; open++) {
        struct world *w = begin();
        uint64_t seq = send_open(&w->a, w->q, "1");
        core_turn(&w->s);
        uint64_t had = w->s.core->ledger.count[PAWL_LEDGER_OP];
        pawl_core_session_end(w->s.core, w->a.session, open ? PAWL_END_LEFT : PAWL_END_CLOSED,
                              w->s.now);
        core_turn(&w->s);
        assert_int_equal(w->s.core->ledger.count[PAWL_LEDGER_OP] - had, open ? 2 : 0);
        assert_int_equal(STATE(&w->b, &w->a, seq),
                         open ? PAWL_RESOLVED_COMMITTED : PAWL_RESOLVED_FORGOTTEN);
        end(w);
    }
}

static void what_is_kept_outlives_its_window(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t seq = send_open(&w->a, w->q, "1");
    core_turn(&w->s);
    uint64_t id = core_answer(&w->a, seq).value;
    assert_int_equal(keep(&w->a, seq), PAWL_OK);
    assert_int_equal(keep(&w->a, seq), PAWL_OK); /* and again: the same */
    assert_int_equal((int)keep(&w->a, w->a.next_seq + 5), PAWL_E_INVALID);
    w->a.hold = false;
    w->a.oldest = w->a.next_seq;
    (void)core_send(&w->a, w->q, "2");
    (void)core_send(&w->a, w->q, "3");
    struct pawl_comp_resolved r = resolve(&w->b, &w->a, seq, 0);
    assert_int_equal(r.state, PAWL_RESOLVED_COMMITTED);
    assert_int_equal(r.value, id);
    assert_int_equal((int)keep(&w->a, seq), PAWL_OK_MISSING);
    pawl_core_session_end(w->s.core, w->a.session, PAWL_END_CLOSED, w->s.now);
    core_turn(&w->s);
    assert_int_equal(STATE(&w->b, &w->a, seq), PAWL_RESOLVED_COMMITTED);
    end(w);
}

static void only_its_user_is_told(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_client other, owner;
    core_client_open(&w->s, &other, 8);
    core_client_open(&w->s, &owner, 99);
    uint64_t seq = send_open(&w->a, w->q, "1");
    core_turn(&w->s);
    for (int ended = 0; ended < 2; ended++) {
        assert_int_equal(STATE(&other, &w->a, seq), PAWL_RESOLVED_FORGOTTEN);
        assert_int_equal(STATE(&other, &w->a, seq + 1), PAWL_RESOLVED_FORGOTTEN);
        assert_int_equal(STATE(&owner, &w->a, seq), PAWL_RESOLVED_COMMITTED);
        if (!ended)
            die(w, &w->a);
    }
    end(w);
}

/* Room for few: what has gone is forgotten, and never said to be not done. */
static void for_want_of_room_it_is_forgotten(void **state)
{
    (void)state;
    struct world *w = begin_with(4);
    uint64_t first = send_open(&w->a, w->q, "1");
    for (int i = 0; i < 7; i++)
        (void)send_open(&w->a, w->q, "more");
    core_turn(&w->s);
    die(w, &w->a);
    assert_int_equal(w->s.core->ledger.count[PAWL_LEDGER_OP], 4);
    for (int life = 0; life < 2; life++) {
        assert_int_equal(STATE(&w->b, &w->a, first), PAWL_RESOLVED_FORGOTTEN);
        assert_int_equal(STATE(&w->b, &w->a, first + 7), PAWL_RESOLVED_COMMITTED);
        assert_int_equal(STATE(&w->b, &w->a, first + 8), PAWL_RESOLVED_NEVER_SEEN);
        core_copy_all(&w->s);
        core_restart(&w->s, true);
        core_client_open(&w->s, &w->b, 7);
    }
    end(w);
}

/* A large window is written in pieces, and where the log is short in more of them. */
static void a_large_end_goes_in_pieces(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t first = send_open(&w->a, w->q, "1");
    for (int i = 0; i < 200; i++)
        (void)send_open(&w->a, w->q, "more");
    core_turn(&w->s);
    w->s.metered = true;
    w->s.room = 1000;
    pawl_core_session_end(w->s.core, w->a.session, PAWL_END_DEAD, w->s.now);
    for (int i = 0; i < 100 && w->s.core->ending_first; i++) {
        core_turn(&w->s);
        w->s.room = 1000;
    }
    assert_int_equal(w->s.core->ending_first, 0);
    w->s.metered = false;
    w->s.room = UINT64_MAX;
    for (uint64_t i = 0; i < 201; i += 40)
        assert_int_equal(STATE(&w->b, &w->a, first + i), PAWL_RESOLVED_COMMITTED);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_written_and_read),
        cmocka_unit_test(while_its_session_lives_the_window_tells),
        cmocka_unit_test(what_is_open_at_the_end_resolves_for_a_day),
        cmocka_unit_test(a_broker_that_dies_first_knows_it_too),
        cmocka_unit_test(an_end_that_a_crash_cuts_is_begun_anew),
        cmocka_unit_test(a_clean_end_leaves_only_what_is_open),
        cmocka_unit_test(what_is_kept_outlives_its_window),
        cmocka_unit_test(only_its_user_is_told),
        cmocka_unit_test(for_want_of_room_it_is_forgotten),
        cmocka_unit_test(a_large_end_goes_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
