/* SPDX-License-Identifier: MIT */
/* The timing wheel against an oracle that knows every due time: N6, C4. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/prng.h"
#include "core/wheel.h"
#include "lib/budget.h"
#include "lib/unit.h"

#define TICK (1ull << PAWL_TICK_SHIFT)
#define TIMERS 2000u

static struct test_budget budget;

static void nothing_fires_early_and_all_fires_by_the_next_tick(void **state)
{
    (void)state;
    struct pawl_prng prng = { test_seed("wheel") };
    for (int round = 0; round < 30; round++) {
        struct pawl_wheel w;
        test_budget_init(&budget, UINT64_MAX);
        uint64_t now = round % 3 == 0 ? 0 : pawl_prng_below(&prng, 1ull << (20 + round));
        assert_int_equal(pawl_wheel_init(&w, &budget.budget, now), 0);
        uint32_t timers[TIMERS];
        uint64_t due[TIMERS]; /* 0: not armed */
        memset(due, 0, sizeof due);
        for (uint32_t i = 0; i < TIMERS; i++)
            timers[i] = pawl_timer_create(&w, 7, i);
        for (int step = 0; step < 4000; step++) {
            uint32_t i = (uint32_t)pawl_prng_below(&prng, TIMERS);
            uint64_t act = pawl_prng_below(&prng, 10);
            if (act < 6) {
                uint64_t far = 1ull << pawl_prng_below(&prng, 62);
                due[i] = now + 1 + pawl_prng_below(&prng, far);
                pawl_timer_arm(&w, timers[i], due[i]);
            } else if (act < 7) {
                pawl_timer_cancel(&w, timers[i]);
                due[i] = 0;
            } else {
                uint64_t next = pawl_wheel_next(&w);
                uint64_t far = 1ull << pawl_prng_below(&prng, 44);
                uint64_t to = now + pawl_prng_below(&prng, far);
                if (next != UINT64_MAX && next > now && act == 9)
                    to = next;
                now = to;
                uint32_t budget_left;
                do {
                    budget_left = 1 + (uint32_t)pawl_prng_below(&prng, 50);
                    uint32_t t;
                    while ((t = pawl_wheel_fire(&w, now, &budget_left)) != 0) {
                        uint32_t owner = pawl_timer_at(&w, t)->owner;
                        assert_int_equal(timers[owner], t);
                        assert_true(due[owner] != 0);
                        assert_true(due[owner] <= now);
                        assert_false(pawl_timer_armed(&w, t));
                        due[owner] = 0;
                    }
                } while (pawl_wheel_behind(&w, now));
                uint64_t earliest = UINT64_MAX;
                for (uint32_t j = 0; j < TIMERS; j++) {
                    if (due[j] == 0)
                        continue;
                    assert_true(due[j] + TICK > now); /* else it should have fired */
                    if (due[j] < earliest)
                        earliest = due[j];
                }
                uint64_t wake = pawl_wheel_next(&w);
                if (earliest == UINT64_MAX)
                    assert_true(wake == UINT64_MAX);
                else
                    assert_true(wake < earliest + TICK && wake > now);
            }
        }
        pawl_wheel_fini(&w);
        assert_int_equal(budget.mapped, 0);
    }
}

static void equality_is_due_and_one_nanosecond_more_is_not(void **state)
{
    (void)state;
    struct pawl_wheel w;
    test_budget_init(&budget, UINT64_MAX);
    assert_int_equal(pawl_wheel_init(&w, &budget.budget, 0), 0);
    uint32_t t = pawl_timer_create(&w, 1, 1), left = 100;
    pawl_timer_arm(&w, t, 5 * TICK);
    assert_int_equal(pawl_wheel_fire(&w, 5 * TICK - 1, &left), 0);
    assert_int_equal(pawl_wheel_fire(&w, 5 * TICK, &left), t);
    pawl_timer_arm(&w, t, 7 * TICK + 1); /* rounds up to 8 */
    assert_int_equal(pawl_wheel_fire(&w, 8 * TICK - 1, &left), 0);
    assert_int_equal(pawl_wheel_fire(&w, 8 * TICK, &left), t);
    pawl_timer_arm(&w, t, UINT64_MAX);
    assert_int_equal(pawl_wheel_fire(&w, 1ull << 62, &left), 0);
    pawl_wheel_fini(&w);
}

static void a_million_in_one_tick_fire_in_pieces(void **state)
{
    (void)state;
    struct pawl_wheel w;
    test_budget_init(&budget, UINT64_MAX);
    assert_int_equal(pawl_wheel_init(&w, &budget.budget, 0), 0);
    const uint32_t many = 1000000;
    for (uint32_t i = 0; i < many; i++)
        pawl_timer_arm(&w, pawl_timer_create(&w, 1, i), 100000 * TICK);
    uint32_t late = pawl_timer_create(&w, 2, 0);
    uint32_t fired = 0, turns = 0;
    uint64_t now = 100000 * TICK;
    while (pawl_wheel_behind(&w, now)) {
        uint32_t left = 1000, t;
        while ((t = pawl_wheel_fire(&w, now, &left)) != 0)
            fired += pawl_timer_at(&w, t)->kind == 1;
        turns++;
    }
    assert_int_equal(fired, many);
    assert_true(turns >= many / 1000);
    assert_false(pawl_timer_armed(&w, late));
    pawl_wheel_fini(&w);
}

int main(void)
{
    alarm(120);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equality_is_due_and_one_nanosecond_more_is_not),
        cmocka_unit_test(nothing_fires_early_and_all_fires_by_the_next_tick),
        cmocka_unit_test(a_million_in_one_tick_fire_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
