/* SPDX-License-Identifier: MIT */
/* The ledger alone: names of 128 bits, room and limits, when entries go, what they cost. */
#include <string.h>

#include "base/prng.h"
#include "core/core_inner.h"
#include "lib/budget.h"
#include "lib/core_shell.h"
#include "lib/unit.h"

static struct pawl_ledger_entry key(uint64_t id, uint64_t id_high, uint64_t end)
{
    return (struct pawl_ledger_entry){ .id = id,
                                       .id_high = id_high,
                                       .a = id * 3,
                                       .c = end,
                                       .result = PAWL_STATE_ACKED,
                                       .kind = PAWL_LEDGER_KEY };
}

static struct pawl_ledger_entry op(uint64_t id, uint64_t id_high, uint64_t accepted_ns)
{
    return (struct pawl_ledger_entry){ .id = id,
                                       .id_high = id_high,
                                       .a = id * 3,
                                       .d = (uint32_t)(accepted_ns / PAWL_NS_S),
                                       .kind = PAWL_LEDGER_OP };
}

static uint32_t put(struct pawl_core *core, struct pawl_ledger_entry e)
{
    assert_int_equal(pawl_core_ledger_ready(core, e.kind, 1), PAWL_LIMIT_NONE);
    uint32_t n = pawl_core_ledger_insert(core, &e);
    assert_int_not_equal(n, 0);
    return n;
}

static const struct pawl_core_options plain = {
    .memory_bytes = 1ull << 30,
    .segment_bytes = 1u << 16,
    .epoch = 1,
    .hash_seed = 7,
    .session_grace_ns = 60 * PAWL_NS_S,
    .sessions_max = 64,
    .queues_max = 64,
    .admin_uid = 500,
};

static void what_is_put_is_found_until_it_is_removed(void **state)
{
    (void)state;
    struct core_shell s;
    core_init(&s);
    uint32_t a = put(s.core, key(1, 2, s.now.time + PAWL_NS_S));
    uint32_t b = put(s.core, op(1, 2, s.now.time));
    assert_int_not_equal(a, b);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, 1, 2), a);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_OP, 1, 2), b);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, 2, 1), 0);
    uint64_t id, id_high;
    pawl_core_ledger_name(s.core, pawl_ledger_at(&s.core->ledger, b), &id, &id_high);
    assert_true(id == 1 && id_high == 2);
    pawl_core_verify(s.core);
    pawl_core_ledger_remove(s.core, a);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, 1, 2), 0);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_OP, 1, 2), b);
    pawl_core_verify(s.core);
    core_fini(&s);
}

static void names_are_told_apart_by_all_of_their_bits(void **state)
{
    (void)state;
    struct core_shell s;
    core_init(&s);
    uint32_t n[64];
    for (uint64_t i = 0; i < 64; i++)
        n[i] = put(s.core, key(99, i, s.now.time + PAWL_NS_S));
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, 99, i), n[i]);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, 99, 64), 0);
    for (uint64_t i = 1; i < 64; i += 2)
        pawl_core_ledger_remove(s.core, n[i]);
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, 99, i), i % 2 ? 0 : n[i]);
    pawl_core_verify(s.core);
    core_fini(&s);
}

/* Longest chain of the index. */
static uint32_t longest(const struct pawl_core *core)
{
    const struct pawl_table *t = &core->ledger.table;
    uint32_t most = 0;
    for (uint64_t b = 0; b < t->buckets; b++) {
        uint32_t length = 0;
        for (uint32_t n = t->segments[b >> 16][b & 65535]; n != 0;
             n = pawl_ledger_at(&core->ledger, n)->chain)
            length++;
        most = length > most ? length : most;
    }
    return most;
}

static void ids_that_a_client_makes_up_do_not_meet(void **state)
{
    (void)state;
    struct core_shell s;
    core_init(&s);
    for (uint64_t i = 1; i <= 20000; i++) {
        (void)put(s.core, op(7, i << 16, s.now.time));          /* equal low halves */
        (void)put(s.core, op(i << 40, 7ull << 32, s.now.time)); /* equal but for high bits */
    }
    assert_true(longest(s.core) < 64);
    core_fini(&s);
}

static void a_million_entries_are_found_and_cost_eighty_bytes_at_most(void **state)
{
    (void)state;
    struct core_shell s;
    core_init_options(&s, &plain);
    enum { N = 1000000 };
    uint64_t before = s.core->budget.used;
    struct pawl_prng p = { 42 };
    for (uint32_t i = 0; i < N; i++) {
        uint64_t low = pawl_prng_next(&p);
        (void)put(s.core, key(low, ~low, s.now.time + PAWL_NS_S + i));
    }
    /* Pages for names of segments and chunks are there from the start. */
    uint64_t used = s.core->budget.used - before;
    print_message("%.1f bytes an entry\n", (double)used / N);
    assert_true(used <= 80ull * N);
    p.state = 42;
    for (uint32_t i = 0; i < N; i++) {
        uint64_t low = pawl_prng_next(&p);
        uint32_t n = pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, low, ~low);
        assert_int_not_equal(n, 0);
        assert_true(pawl_ledger_at(&s.core->ledger, n)->a == low * 3);
    }
    assert_true(longest(s.core) < 32);
    pawl_core_verify(s.core);
    core_fini(&s);
}

static void keys_are_refused_above_the_limit_and_operations_forgotten(void **state)
{
    (void)state;
    struct pawl_core_options o = plain;
    o.ledger_max = 100;
    struct core_shell s;
    core_init_options(&s, &o);
    for (uint64_t i = 1; i <= 100; i++) {
        (void)put(s.core, key(i, 0, s.now.time + PAWL_NS_S));
        (void)put(s.core, op(i, i << 16, s.now.time + i * 10 * PAWL_NS_S));
    }
    assert_int_equal(pawl_core_ledger_ready(s.core, PAWL_LEDGER_KEY, 1), PAWL_LIMIT_LEDGER);
    assert_int_equal(s.core->ledger.horizon, 0);
    assert_int_equal(pawl_core_ledger_ready(s.core, PAWL_LEDGER_OP, 3), PAWL_LIMIT_NONE);
    assert_int_equal(s.core->ledger.horizon, 3);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_OP, 3, 3 << 16), 0);
    assert_int_not_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_OP, 4, 4 << 16), 0);
    assert_int_equal(s.core->ledger.count[PAWL_LEDGER_KEY], 100);
    pawl_core_verify(s.core);
    core_fini(&s);
}

static void without_memory_keys_are_refused_and_operations_make_room(void **state)
{
    (void)state;
    struct core_shell s;
    core_init_options(&s, &plain);
    uint64_t i = 1;
    for (; i <= 3000; i++)
        (void)put(s.core, op(i, i << 16, s.now.time + i * 10 * PAWL_NS_S));
    s.core->budget.limit = s.core->budget.used;
    while (pawl_core_ledger_ready(s.core, PAWL_LEDGER_KEY, 1) == 0)
        (void)put(s.core, key(++i, 1, s.now.time + PAWL_NS_S));
    assert_int_equal(pawl_core_ledger_ready(s.core, PAWL_LEDGER_KEY, 1), PAWL_LIMIT_MEMORY);
    assert_int_equal(s.core->ledger.horizon, 0);
    assert_int_equal(pawl_core_ledger_ready(s.core, PAWL_LEDGER_OP, 2), 0);
    assert_int_equal(s.core->ledger.horizon, 2);
    pawl_core_verify(s.core);
    core_fini(&s);
}

static void entries_go_in_order_of_their_ends(void **state)
{
    (void)state;
    struct core_shell s;
    core_init_options(&s, &plain);
    enum { N = 2000 };
    struct pawl_prng p = { test_seed("ledger") };
    uint64_t ends[N];
    for (uint64_t i = 0; i < N; i++) {
        ends[i] = s.now.time + 1 + pawl_prng_below(&p, 2000 * PAWL_NS_S);
        (void)put(s.core, key(i + 1, i, ends[i]));
    }
    for (int step = 0; step < 210; step++) {
        core_pass(&s, 10 * PAWL_NS_S);
        core_turn(&s);
        for (uint64_t i = 0; i < N; i++) {
            bool there = pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, i + 1, i) != 0;
            if (ends[i] > s.now.time)
                assert_true(there); /* never early */
            if (ends[i] + 3 * PAWL_NS_S < s.now.time)
                assert_false(there); /* a day of the calendar and a tick late at most */
        }
        pawl_core_verify(s.core);
    }
    assert_int_equal(s.core->ledger.count[PAWL_LEDGER_KEY], 0);
    core_fini(&s);
}

static void operations_go_after_their_retention(void **state)
{
    (void)state;
    struct core_shell s;
    core_init_options(&s, &plain);
    for (uint64_t i = 1; i <= 1000; i++) {
        (void)put(s.core, op(i, i << 16, s.now.time));
        core_pass(&s, PAWL_NS_S);
    }
    core_pass(&s, PAWL_OP_RETENTION_NS_DEFAULT - 501 * PAWL_NS_S);
    core_turn(&s);
    assert_in_range(s.core->ledger.count[PAWL_LEDGER_OP], 500, 520);
    assert_int_not_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_OP, 501, 501 << 16), 0);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_OP, 480, 480 << 16), 0);
    /* no wall clock that is set back takes one of them for new */
    assert_in_range(s.core->ledger.horizon, 480, 500);
    assert_int_equal(s.core->horizon_said, s.core->ledger.horizon);
    core_pass(&s, 600 * PAWL_NS_S);
    core_turn(&s);
    assert_int_equal(s.core->ledger.count[PAWL_LEDGER_OP], 0);
    core_fini(&s);
}

static void a_key_of_a_message_that_lives_outlasts_its_window(void **state)
{
    (void)state;
    struct core_shell s;
    core_init(&s);
    struct pawl_ledger_entry e = key(5, 6, s.now.time + PAWL_NS_S);
    e.result = PAWL_STATE_NONE;
    uint32_t n = put(s.core, e);
    core_pass(&s, 1000 * PAWL_NS_S);
    core_turn(&s);
    assert_int_equal(pawl_core_ledger_find(s.core, PAWL_LEDGER_KEY, 5, 6), n);
    assert_int_equal(pawl_ledger_at(&s.core->ledger, n)->flags & PAWL_LEDGER_LISTED, 0);
    pawl_core_verify(s.core);
    pawl_core_ledger_remove(s.core, n);
    pawl_core_verify(s.core);
    core_fini(&s);
}

static void many_that_end_at_once_go_in_pieces(void **state)
{
    (void)state;
    struct core_shell s;
    core_init_options(&s, &plain);
    for (uint64_t i = 1; i <= 5000; i++)
        (void)put(s.core, key(i, i, s.now.time + 5 * PAWL_NS_S));
    core_pass(&s, 10 * PAWL_NS_S);
    (void)pawl_core_tick(s.core, s.now, 4);
    assert_true(s.core->ledger.count[PAWL_LEDGER_KEY] >= 5000 - 4 * 256);
    for (int i = 0; i < 100 && s.core->ledger.count[PAWL_LEDGER_KEY]; i++) {
        core_pass(&s, 2 * PAWL_NS_MS);
        core_turn(&s);
    }
    assert_int_equal(s.core->ledger.count[PAWL_LEDGER_KEY], 0);
    core_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_found_until_it_is_removed),
        cmocka_unit_test(names_are_told_apart_by_all_of_their_bits),
        cmocka_unit_test(ids_that_a_client_makes_up_do_not_meet),
        cmocka_unit_test(a_million_entries_are_found_and_cost_eighty_bytes_at_most),
        cmocka_unit_test(keys_are_refused_above_the_limit_and_operations_forgotten),
        cmocka_unit_test(without_memory_keys_are_refused_and_operations_make_room),
        cmocka_unit_test(entries_go_in_order_of_their_ends),
        cmocka_unit_test(operations_go_after_their_retention),
        cmocka_unit_test(a_key_of_a_message_that_lives_outlasts_its_window),
        cmocka_unit_test(many_that_end_at_once_go_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
