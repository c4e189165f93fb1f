/* SPDX-License-Identifier: MIT */
/* Pools, payload blocks and the id table: bounds, reuse, and what running out leaves behind (L1).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/prng.h"
#include "core/message.h"
#include "core/payload.h"
#include "core/pool.h"
#include "core/table.h"
#include "lib/budget.h"
#include "lib/unit.h"

static void a_pool_ends_at_its_budget_and_goes_on_after_a_give(void **state)
{
    (void)state;
    struct test_budget b;
    test_budget_init(&b, 2 * 64 * 16);
    struct pawl_pool pool;
    assert_int_equal(pawl_pool_init(&pool, &b.budget, 64, 4), 0);
    uint32_t n[31];
    for (int i = 0; i < 31; i++) {
        n[i] = pawl_pool_take(&pool);
        assert_true(n[i] != 0);
        memset(pawl_pool_at(&pool, n[i]), 0xee, 64);
    }
    assert_int_equal(pawl_pool_take(&pool), 0);
    assert_false(pawl_pool_ready(&pool, 1));
    pawl_pool_give(&pool, n[7]);
    assert_true(pawl_pool_ready(&pool, 1));
    uint32_t again = pawl_pool_take(&pool);
    assert_int_equal(again, n[7]);
    static const uint8_t zero[64];
    assert_memory_equal(pawl_pool_at(&pool, again), zero, 64);
    pawl_pool_fini(&pool);
    assert_int_equal(b.mapped, 0);
    assert_int_equal(b.budget.used, 0);
}

static void payload_blocks_never_overlap(void **state)
{
    (void)state;
    struct pawl_prng prng = { test_seed("payload") };
    struct test_budget b;
    test_budget_init(&b, 512u << 20);
    struct pawl_payload p;
    assert_int_equal(pawl_payload_init(&p, &b.budget), 0);
    enum { BLOCKS = 300 };
    struct {
        uint32_t name, bytes;
        uint8_t fill;
    } k[BLOCKS];
    memset(k, 0, sizeof k);
    for (int step = 0; step < 30000; step++) {
        int i = (int)pawl_prng_below(&prng, BLOCKS);
        if (k[i].name) {
            const uint8_t *at = pawl_payload_at(&p, k[i].name);
            assert_int_equal(at[0], k[i].fill);
            assert_int_equal(at[k[i].bytes / 2], k[i].fill);
            assert_int_equal(at[k[i].bytes - 1], k[i].fill);
            pawl_payload_give(&p, k[i].name, k[i].bytes);
            k[i].name = 0;
        } else {
            uint64_t top =
                pawl_prng_below(&prng, 300) == 0 ? 17u << 20 : 1u << pawl_prng_below(&prng, 19);
            k[i].bytes = 1 + (uint32_t)pawl_prng_below(&prng, top);
            k[i].fill = (uint8_t)pawl_prng_next(&prng);
            k[i].name = pawl_payload_take(&p, k[i].bytes);
            assert_true(k[i].name != 0);
            memset(pawl_payload_at(&p, k[i].name), k[i].fill, k[i].bytes);
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        pawl_payload_give(&p, k[i].name, k[i].bytes);
    assert_int_equal(p.bytes, 0);
    assert_int_equal(pawl_payload_take(&p, 0), 0);
    pawl_payload_fini(&p);
    assert_int_equal(b.mapped, 0);
}

static void payload_refuses_at_the_budget_and_serves_others_from_freed_slabs(void **state)
{
    (void)state;
    struct test_budget b;
    test_budget_init(&b, 6u << 20);
    struct pawl_payload p;
    assert_int_equal(pawl_payload_init(&p, &b.budget), 0);
    static uint32_t k[400000];
    uint32_t n = 0;
    while ((k[n] = pawl_payload_take(&p, 64)) != 0)
        n++;
    assert_true(n > 50000);
    while (n > 0)
        pawl_payload_give(&p, k[--n], 64);
    while ((k[n] = pawl_payload_take(&p, 1000)) != 0)
        n++;
    assert_true(n > 3000); /* memory that class 64 gave back */
    pawl_payload_fini(&p);
    assert_int_equal(b.mapped, 0);
}

static void the_table_finds_what_is_in_it_while_it_grows(void **state)
{
    (void)state;
    struct pawl_prng prng = { test_seed("table") };
    struct test_budget b;
    test_budget_init(&b, UINT64_MAX);
    struct pawl_pool pool;
    struct pawl_table table;
    assert_int_equal(pawl_pool_init(&pool, &b.budget, sizeof(struct pawl_core_message), 12), 0);
    assert_int_equal(pawl_table_init(&table, &b.budget, &pool,
                                     offsetof(struct pawl_core_message, id),
                                     offsetof(struct pawl_core_message, chain)),
                     0);
    enum { IDS = 200000 };
    static uint32_t at[IDS];
    memset(at, 0, sizeof at);
    for (int step = 0; step < 600000; step++) {
        uint32_t i = (uint32_t)pawl_prng_below(&prng, IDS);
        uint64_t id = ((uint64_t)(i % 3) << 40) + i + 1;
        assert_int_equal(pawl_table_find(&table, id), at[i]);
        if (at[i] && step % 3 == 0) {
            pawl_table_remove(&table, id, at[i]);
            pawl_pool_give(&pool, at[i]);
            at[i] = 0;
        } else if (!at[i]) {
            if (step % 1000 == 0)
                b.fail_after = 0; /* a bucket that cannot be had is no failure */
            at[i] = pawl_pool_ready(&pool, 1) ? pawl_pool_take(&pool) : 0;
            if (at[i]) {
                ((struct pawl_core_message *)pawl_pool_at(&pool, at[i]))->id = id;
                pawl_table_insert(&table, id, at[i]);
            }
            b.fail_after = UINT64_MAX;
        }
    }
    pawl_table_fini(&table);
    pawl_pool_fini(&pool);
    assert_int_equal(b.mapped, 0);
}

static void the_table_tells_equal_ids_apart_by_a_walk(void **state)
{
    (void)state;
    struct test_budget b;
    test_budget_init(&b, 512u << 20);
    struct pawl_pool pool;
    struct pawl_table table;
    assert_int_equal(pawl_pool_init(&pool, &b.budget, sizeof(struct pawl_core_message), 12), 0);
    assert_int_equal(pawl_table_init(&table, &b.budget, &pool,
                                     offsetof(struct pawl_core_message, id),
                                     offsetof(struct pawl_core_message, chain)),
                     0);
    uint32_t at[6];
    for (uint32_t i = 0; i < 6; i++) {
        at[i] = pawl_pool_take(&pool);
        /* 5 and 5 + 1024 share a bucket, and two have each. */
        uint64_t id = i % 3 == 2 ? 6 : 5 + 1024 * (i % 3);
        ((struct pawl_core_message *)pawl_pool_at(&pool, at[i]))->id = id;
        pawl_table_insert(&table, id, at[i]);
    }
    uint32_t one = pawl_table_find(&table, 5);
    uint32_t two = pawl_table_find_next(&table, one);
    assert_true(one == at[0] || one == at[3]);
    assert_int_equal(one + two, at[0] + at[3]);
    assert_int_equal(pawl_table_find_next(&table, two), 0);
    pawl_table_remove(&table, 5, one);
    assert_int_equal(pawl_table_find(&table, 5), two);
    assert_int_equal(pawl_table_find_next(&table, two), 0);
    pawl_table_fini(&table);
    pawl_pool_fini(&pool);
}

int main(void)
{
    alarm(120);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_ends_at_its_budget_and_goes_on_after_a_give),
        cmocka_unit_test(payload_blocks_never_overlap),
        cmocka_unit_test(payload_refuses_at_the_budget_and_serves_others_from_freed_slabs),
        cmocka_unit_test(the_table_finds_what_is_in_it_while_it_grows),
        cmocka_unit_test(the_table_tells_equal_ids_apart_by_a_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
