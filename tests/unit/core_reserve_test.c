/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "core/core_inner.h"
#include "lib/core_state.h"

#define DAY (24ull * 3600 * PAWL_NS_S)

struct world {
    struct core_shell s;
    struct core_client a;
    uint64_t t;
};

static struct world *begin(int64_t stock)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    w->t = core_create(&w->a, "stock", PAWL_TABLE);
    assert_int_equal(core_add(&w->a, w->t, "n", stock, 0, INT64_MAX).result, PAWL_OK);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static void expect(struct core_answer a, int result, uint64_t value)
{
    assert_int_equal(a.result, result);
    assert_int_equal(a.value, value);
}

static void counts_are(struct world *w, int64_t available, int64_t reserved, int64_t posted)
{
    struct core_value v = core_get(&w->a, w->t, "n");
    assert_int_equal(v.result, PAWL_OK);
    assert_true(v.head.number == available);
    assert_true(v.head.reserved == reserved);
    assert_true(v.head.posted == posted);
}

static void restart(struct world *w)
{
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
}

static void what_is_reserved_is_posted_or_goes_back(void **state)
{
    (void)state;
    struct world *w = begin(10);
    expect(core_reserve(&w->a, w->t, 1, "n", 4, 0), PAWL_OK, 6);
    expect(core_reserve(&w->a, w->t, 2, "n", 6, 0), PAWL_OK, 0);
    expect(core_reserve(&w->a, w->t, 3, "n", 1, 0), PAWL_E_RES_SHORT, 0);
    counts_are(w, 0, 10, 0);
    expect(core_post(&w->a, w->t, 1, 0), PAWL_OK, 0);
    counts_are(w, 0, 6, 4);
    expect(core_void(&w->a, w->t, 2), PAWL_OK, 6);
    counts_are(w, 6, 0, 4);
    expect(core_reserve(&w->a, w->t, 4, "n", 6, 0), PAWL_OK, 0);
    expect(core_post(&w->a, w->t, 4, 5), PAWL_OK, 1);
    counts_are(w, 1, 0, 9);
    restart(w);
    counts_are(w, 1, 0, 9);
    end(w);
}

static void a_repeat_gets_a_code_of_its_own(void **state)
{
    (void)state;
    struct world *w = begin(100);
    (void)core_add(&w->a, w->t, "m", 100, 0, 100);
    for (uint64_t id = 1; id <= 4; id++)
        (void)core_reserve(&w->a, w->t, id, "n", 10, id == 4 ? PAWL_NS_S : 0);
    expect(core_reserve(&w->a, w->t, 1, "n", 10, 0), PAWL_OK_DUPLICATE, 60);
    expect(core_reserve(&w->a, w->t, 1, "n", 11, 0), PAWL_E_RES_DIFFERENT_AMOUNT, 10);
    expect(core_reserve(&w->a, w->t, 1, "m", 10, 0), PAWL_E_RES_DIFFERENT_AMOUNT, 10);
    expect(core_post(&w->a, w->t, 1, 11), PAWL_E_RES_DIFFERENT_AMOUNT, 10);
    (void)core_post(&w->a, w->t, 2, 7);
    (void)core_void(&w->a, w->t, 3);
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    for (uint32_t i = 0; i < 3; i++) {
        expect(core_post(&w->a, w->t, 2, 0), PAWL_E_RES_ALREADY_POSTED, 7);
        expect(core_post(&w->a, w->t, 2, 7), PAWL_E_RES_ALREADY_POSTED, 7);
        expect(core_post(&w->a, w->t, 2, 6), PAWL_E_RES_DIFFERENT_AMOUNT, 7);
        expect(core_void(&w->a, w->t, 2), PAWL_E_RES_ALREADY_POSTED, 7);
        expect(core_reserve(&w->a, w->t, 2, "n", 10, 0), PAWL_E_RES_ALREADY_POSTED, 7);
        expect(core_void(&w->a, w->t, 3), PAWL_E_RES_ALREADY_VOIDED, 0);
        expect(core_post(&w->a, w->t, 3, 0), PAWL_E_RES_ALREADY_VOIDED, 0);
        expect(core_void(&w->a, w->t, 4), PAWL_E_RES_EXPIRED, 0);
        expect(core_post(&w->a, w->t, 4, 0), PAWL_E_RES_EXPIRED, 0);
        expect(core_post(&w->a, w->t, 5, 0), PAWL_E_RES_NOT_FOUND, 0);
        counts_are(w, 83, 10, 7);
        if (i == 0)
            restart(w);
        else
            core_copy_all(&w->s);
    }
    end(w);
}

static void it_expires_at_its_time_and_not_before(void **state)
{
    (void)state;
    struct world *w = begin(10);
    struct pawl_reservation_data d;
    (void)core_reserve(&w->a, w->t, 1, "n", 4, 10 * PAWL_NS_S);
    core_pass(&w->s, 10 * PAWL_NS_S - 5 * PAWL_NS_MS);
    core_turn(&w->s);
    expect(core_reservation(&w->a, w->t, 1, &d), PAWL_OK, PAWL_RESERVATION_OPEN);
    assert_in_range(d.left_ns, 1, 5 * PAWL_NS_MS);
    assert_memory_equal(d.key, "n", 1);
    counts_are(w, 6, 4, 0);
    core_pass(&w->s, 10 * PAWL_NS_MS);
    core_turn(&w->s);
    expect(core_reservation(&w->a, w->t, 1, &d), PAWL_OK, PAWL_RESERVATION_EXPIRED);
    assert_int_equal(d.amount, 4);
    counts_are(w, 10, 0, 0);
    end(w);
}

static void one_that_was_due_while_no_broker_ran_expires_after_the_start(void **state)
{
    (void)state;
    struct world *w = begin(10);
    (void)core_reserve(&w->a, w->t, 1, "n", 4, 10 * PAWL_NS_S);
    (void)core_reserve(&w->a, w->t, 2, "n", 4, 1000 * PAWL_NS_S);
    core_copy_all(&w->s);
    core_pass(&w->s, 20 * PAWL_NS_S);
    restart(w);
    core_turn(&w->s);
    counts_are(w, 6, 4, 0);
    expect(core_post(&w->a, w->t, 1, 0), PAWL_E_RES_EXPIRED, 0);
    expect(core_post(&w->a, w->t, 2, 0), PAWL_OK, 6);
    end(w);
}

static void finished_ones_are_remembered_for_a_day(void **state)
{
    (void)state;
    struct world *w = begin(10);
    (void)core_reserve(&w->a, w->t, 1, "n", 4, 0);
    (void)core_post(&w->a, w->t, 1, 0);
    core_pass(&w->s, DAY - PAWL_NS_S);
    core_turn(&w->s);
    core_copy_all(&w->s);
    expect(core_post(&w->a, w->t, 1, 0), PAWL_E_RES_ALREADY_POSTED, 4);
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    expect(core_post(&w->a, w->t, 1, 0), PAWL_E_RES_NOT_FOUND, 0);
    assert_int_equal(w->s.core->reservations.used, 0);
    restart(w); /* the log still has it */
    expect(core_post(&w->a, w->t, 1, 0), PAWL_E_RES_NOT_FOUND, 0);
    counts_are(w, 6, 0, 4);
    end(w);
}

static void a_number_that_is_reserved_from_is_not_taken_away(void **state)
{
    (void)state;
    struct world *w = begin(10);
    (void)core_reserve(&w->a, w->t, 1, "n", 4, 0);
    assert_int_equal(core_delete(&w->a, w->t, "n").result, PAWL_E_STATE);
    assert_int_equal(core_put(&w->a, w->t, "n", "x").result, PAWL_E_STATE);
    expect(core_add(&w->a, w->t, "n", -7, INT64_MIN, INT64_MAX), PAWL_E_PRECONDITION, 6);
    expect(core_add(&w->a, w->t, "n", -6, INT64_MIN, INT64_MAX), PAWL_OK, 0);
    expect(core_add(&w->a, w->t, "n", INT64_MAX, 0, INT64_MAX), PAWL_E_PRECONDITION, 0);
    (void)core_void(&w->a, w->t, 1);
    counts_are(w, 4, 0, 0);
    assert_int_equal(core_delete(&w->a, w->t, "n").result, PAWL_OK);
    expect(core_reserve(&w->a, w->t, 2, "n", 1, 0), PAWL_E_RES_NOT_FOUND, 0);
    (void)core_put(&w->a, w->t, "n", "12345678");
    expect(core_reserve(&w->a, w->t, 2, "n", 1, 0), PAWL_E_STATE, 0);
    assert_int_equal(core_reserve(&w->a, w->t, 2, "n", 0, 0).result, PAWL_E_INVALID);
    end(w);
}

/* At the limit what is over goes, the oldest first; what is open never does, and is refused by
 * name. */
static void the_limit_counts_open_and_remembered_ones(void **state)
{
    (void)state;
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    struct pawl_core_options o = core_options();
    o.memory_bytes = 64ull << 20;
    o.segment_bytes = 1 << 20;
    o.reservations_max = 8;
    assert_int_equal(PAWL_RESERVATIONS_MAX, 1000000);
    core_init_options(&w->s, &o);
    core_client_open(&w->s, &w->a, 7);
    w->t = core_create(&w->a, "stock", PAWL_TABLE);
    assert_int_equal(core_add(&w->a, w->t, "n", 100, 0, INT64_MAX).result, PAWL_OK);
    for (uint64_t id = 1; id <= 8; id++)
        assert_int_equal(core_reserve(&w->a, w->t, id, "n", 1, 0).result, PAWL_OK);
    for (int life = 0; life < 2; life++) {
        expect(core_reserve(&w->a, w->t, 9, "n", 1, 0), PAWL_E_QUOTA, PAWL_LIMIT_RESERVATIONS);
        expect(core_reserve(&w->a, w->t, 8, "n", 1, 0), PAWL_OK_DUPLICATE, 92); /* no new one */
        counts_are(w, 92, 8, 0);
        restart(w);
    }
    expect(core_post(&w->a, w->t, 3, 0), PAWL_OK, 92);
    expect(core_void(&w->a, w->t, 2), PAWL_OK, 93);
    assert_int_equal(core_post(&w->a, w->t, 3, 0).result, PAWL_E_RES_ALREADY_POSTED);
    expect(core_reserve(&w->a, w->t, 9, "n", 1, 0), PAWL_OK, 92); /* 3 was over first: it goes */
    assert_int_equal(core_post(&w->a, w->t, 3, 0).result, PAWL_E_RES_NOT_FOUND);
    assert_int_equal(core_void(&w->a, w->t, 2).result, PAWL_E_RES_ALREADY_VOIDED);
    expect(core_reserve(&w->a, w->t, 10, "n", 1, 0), PAWL_OK, 91);
    assert_int_equal(core_void(&w->a, w->t, 2).result, PAWL_E_RES_NOT_FOUND);
    expect(core_reserve(&w->a, w->t, 11, "n", 1, 0), PAWL_E_QUOTA, PAWL_LIMIT_RESERVATIONS);
    counts_are(w, 91, 8, 1);
    core_copy_all(&w->s);
    restart(w);
    expect(core_reserve(&w->a, w->t, 11, "n", 1, 0), PAWL_E_QUOTA, PAWL_LIMIT_RESERVATIONS);
    counts_are(w, 91, 8, 1);
    end(w);
}

static void ids_are_those_of_one_table(void **state)
{
    (void)state;
    struct world *w = begin(10);
    uint64_t other = core_create(&w->a, "other", PAWL_TABLE);
    (void)core_add(&w->a, other, "n", 5, 0, 5);
    expect(core_reserve(&w->a, w->t, 1, "n", 4, 0), PAWL_OK, 6);
    expect(core_reserve(&w->a, other, 1, "n", 5, 0), PAWL_OK, 0);
    expect(core_void(&w->a, other, 1), PAWL_OK, 5);
    expect(core_post(&w->a, w->t, 1, 0), PAWL_OK, 6);
    end(w);
}

/* The broker dies while a dropped table is being swept: its numbers were not copied forward any
 * more, a reservation of one still stands in the log. */
static void half_of_a_dropped_table_is_no_damage(void **state)
{
    (void)state;
    struct world *w = begin(10);
    (void)core_reserve(&w->a, w->t, 1, "n", 4, PAWL_NS_S);
    core_copy_all(&w->s);
    struct core_record *fact = NULL;
    for (uint32_t i = 0; i < w->s.record_count; i++)
        if (w->s.records[i].body && w->s.records[i].type == PAWL_RECORD_STATE)
            fact = &w->s.records[i];
    assert_non_null(fact);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_DROP, "stock", NULL).result, PAWL_OK);
    free(fact->body); /* as if its segment had been released */
    fact->body = NULL;
    core_restart(&w->s, true);
    pawl_core_verify(w->s.core);
    core_turn(&w->s);
    core_turn(&w->s);
    assert_int_equal(w->s.core->cells.used, 0);
    assert_int_equal(w->s.core->reservations.used, 0);
    end(w);
}

/* Many random moves, a model of four numbers, restarts and copies between. */
static void nothing_is_lost_or_made_by_any_row_of_moves(void **state)
{
    (void)state;
    struct world *w = begin(1000);
    struct pawl_prng r = { 77 };
    int64_t granted = 1000, posted = 0;
    uint64_t amount[64] = { 0 }, id = 0, ids[64] = { 0 };
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t slot = (uint32_t)pawl_prng_below(&r, 64);
        if (amount[slot] == 0) {
            uint64_t n = 1 + pawl_prng_below(&r, 60);
            ids[slot] = ++id;
            if (core_reserve(&w->a, w->t, id, "n", n, 0).result == PAWL_OK)
                amount[slot] = n;
        } else if (pawl_prng_below(&r, 3) == 0) {
            assert_int_equal(core_void(&w->a, w->t, ids[slot]).result, PAWL_OK);
            amount[slot] = 0;
        } else {
            uint64_t m = 1 + pawl_prng_below(&r, amount[slot]);
            assert_int_equal(core_post(&w->a, w->t, ids[slot], m).result, PAWL_OK);
            posted += (int64_t)m;
            amount[slot] = 0;
            if (core_add(&w->a, w->t, "n", (int64_t)m, 0, INT64_MAX).result == PAWL_OK)
                granted += (int64_t)m;
        }
        if (i % 500 == 100)
            core_copy_all(&w->s);
        if (i % 500 == 300)
            restart(w);
        if (i % 100 == 99) {
            int64_t open = 0;
            for (uint32_t k = 0; k < 64; k++)
                open += (int64_t)amount[k];
            counts_are(w, granted - open - posted, open, posted);
            pawl_core_verify(w->s.core);
        }
    }
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_reserved_is_posted_or_goes_back),
        cmocka_unit_test(a_repeat_gets_a_code_of_its_own),
        cmocka_unit_test(it_expires_at_its_time_and_not_before),
        cmocka_unit_test(one_that_was_due_while_no_broker_ran_expires_after_the_start),
        cmocka_unit_test(finished_ones_are_remembered_for_a_day),
        cmocka_unit_test(a_number_that_is_reserved_from_is_not_taken_away),
        cmocka_unit_test(the_limit_counts_open_and_remembered_ones),
        cmocka_unit_test(ids_are_those_of_one_table),
        cmocka_unit_test(half_of_a_dropped_table_is_no_damage),
        cmocka_unit_test(nothing_is_lost_or_made_by_any_row_of_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
