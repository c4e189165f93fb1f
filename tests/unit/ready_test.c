/* SPDX-License-Identifier: MIT */
/* Order of ready messages (G9) against a plain array. */
#include <unistd.h>

#include "base/prng.h"
#include "core/ready.h"
#include "lib/budget.h"
#include "lib/unit.h"

#define MESSAGES 500u

/* A walk meets each message once. */
static void walk(const struct pawl_ready *ready, struct pawl_pool *pool, uint32_t count)
{
    uint32_t seen = 0;
    uint64_t sum = 0, expected = 0;
    for (uint32_t n = pawl_ready_walk(ready, pool, 0); n; n = pawl_ready_walk(ready, pool, n)) {
        struct pawl_core_message *m = pawl_pool_at(pool, n);
        assert_int_equal(m->sent_wall, 0);
        m->sent_wall = 1;
        sum += m->id;
        seen++;
        assert_true(seen <= count);
    }
    assert_int_equal(seen, count);
    for (uint32_t n = 1; n < pool->never_used; n++) {
        struct pawl_core_message *m = pawl_pool_at(pool, n);
        expected += m->sent_wall ? m->id : 0;
        m->sent_wall = 0;
    }
    assert_int_equal(sum, expected);
}

static void the_smallest_place_leaves_first(void **state)
{
    (void)state;
    struct pawl_prng prng = { test_seed("ready") };
    struct test_budget budget;
    test_budget_init(&budget, UINT64_MAX);
    struct pawl_pool pool;
    assert_int_equal(pawl_pool_init(&pool, &budget.budget, sizeof(struct pawl_core_message), 12),
                     0);
    struct pawl_ready ready = { 0 };
    uint32_t in[MESSAGES], count = 0;
    uint64_t id = 0;
    for (int step = 0; step < 60000; step++) {
        uint64_t act = pawl_prng_below(&prng, 8);
        if (count < MESSAGES && act < 4) {
            uint32_t n = pawl_pool_take(&pool);
            struct pawl_core_message *m = pawl_pool_at(&pool, n);
            m->id = ++id;
            m->place = act == 0 ? pawl_prng_below(&prng, id + 1) : id; /* some were given back */
            pawl_ready_insert(&ready, &pool, n);
            in[count++] = n;
        } else if (count > 0) {
            uint32_t best = 0;
            for (uint32_t i = 1; i < count; i++) {
                struct pawl_core_message *a = pawl_pool_at(&pool, in[i]);
                struct pawl_core_message *b = pawl_pool_at(&pool, in[best]);
                if (a->place < b->place || (a->place == b->place && a->id < b->id))
                    best = i;
            }
            assert_int_equal(pawl_ready_first(&ready, &pool), in[best]);
            uint32_t out = act < 7 ? best : (uint32_t)pawl_prng_below(&prng, count);
            pawl_ready_remove(&ready, &pool, in[out]);
            pawl_pool_give(&pool, in[out]);
            in[out] = in[--count];
        }
        assert_int_equal(ready.count, count);
        if (step % 64 == 0)
            walk(&ready, &pool, count);
    }
    pawl_pool_fini(&pool);
    assert_int_equal(budget.mapped, 0);
}

int main(void)
{
    alarm(60);
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_smallest_place_leaves_first) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
