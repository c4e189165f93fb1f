/* SPDX-License-Identifier: MIT */
/* The histogram of pawl-bench: a percentile is what a sorted list would say, within a bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../bench/histogram.h"
#include "base/prng.h"

static struct pawl_histogram h, g;

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void every_value_lies_in_its_bucket(void **state)
{
    (void)state;
    for (uint32_t bit = 0; bit < 64; bit++) {
        for (int d = -3; d <= 3; d++) {
            uint64_t v = (1ull << bit) + (uint64_t)(int64_t)d;
            uint32_t i = pawl_histogram_index(v);
            assert_true(i < PAWL_HISTOGRAM_BUCKETS);
            assert_true(pawl_histogram_highest(i) >= v);
            if (i > 0)
                assert_true(pawl_histogram_highest(i - 1) < v);
        }
    }
    assert_int_equal(pawl_histogram_index(UINT64_MAX), PAWL_HISTOGRAM_BUCKETS - 1);
    assert_true(pawl_histogram_highest(PAWL_HISTOGRAM_BUCKETS - 1) == UINT64_MAX);
}

static void buckets_have_no_gaps(void **state)
{
    (void)state;
    for (uint32_t i = 0; i + 1 < PAWL_HISTOGRAM_BUCKETS; i++) {
        uint64_t high = pawl_histogram_highest(i);
        assert_int_equal(pawl_histogram_index(high), i);
        assert_int_equal(pawl_histogram_index(high + 1), i + 1);
    }
}

static void small_values_are_exact(void **state)
{
    (void)state;
    pawl_histogram_init(&h);
    for (uint64_t v = 1; v <= 100; v++)
        pawl_histogram_add(&h, v);
    assert_int_equal(pawl_histogram_percentile(&h, 0.5), 50);
    assert_int_equal(pawl_histogram_percentile(&h, 0.99), 99);
    assert_int_equal(pawl_histogram_percentile(&h, 0.991), 100);
    assert_int_equal(pawl_histogram_percentile(&h, 0), 1);
    assert_int_equal(pawl_histogram_percentile(&h, 1), 100);
    assert_true(pawl_histogram_mean(&h) == 50.5);
}

static void an_empty_one_answers_zero_and_one_value_is_every_percentile(void **state)
{
    (void)state;
    pawl_histogram_init(&h);
    assert_int_equal(pawl_histogram_percentile(&h, 0.5), 0);
    assert_true(pawl_histogram_mean(&h) == 0);
    pawl_histogram_add(&h, 123456789);
    assert_int_equal(pawl_histogram_percentile(&h, 0.0001), 123456789);
    assert_int_equal(pawl_histogram_percentile(&h, 0.9999), 123456789);
    assert_int_equal(h.min, 123456789);
    assert_int_equal(h.max, 123456789);
}

static void percentiles_agree_with_a_sorted_list(void **state)
{
    (void)state;
    const char *given = getenv("PAWL_SEED");
    struct pawl_prng p = { .state = given ? strtoull(given, NULL, 0) : 7 };
    printf("seed %llu (PAWL_SEED)\n", (unsigned long long)p.state);
    enum { N = 20011 };
    uint64_t *list = malloc(N * sizeof(*list));
    assert_non_null(list);
    pawl_histogram_init(&h);
    for (uint32_t i = 0; i < N; i++) {
        list[i] = pawl_prng_next(&p) >> (pawl_prng_next(&p) % 64);
        pawl_histogram_add(&h, list[i]);
    }
    qsort(list, N, sizeof(*list), compare);
    const double shares[] = { 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 };
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        double exact = shares[i] * N;
        uint64_t rank = (uint64_t)exact;
        rank += (double)rank < exact;
        uint64_t truth = list[rank - 1], have = pawl_histogram_percentile(&h, shares[i]);
        assert_true(have >= truth);
        assert_true(have - truth <= truth / 128);
    }
    assert_true(h.min == list[0]);
    assert_true(h.max == list[N - 1]);
    free(list);
}

static void merging_two_is_adding_all_to_one(void **state)
{
    (void)state;
    static struct pawl_histogram both;
    struct pawl_prng p = { .state = 3 };
    pawl_histogram_init(&h);
    pawl_histogram_init(&g);
    pawl_histogram_init(&both);
    for (uint32_t i = 0; i < 5000; i++) {
        uint64_t v = pawl_prng_below(&p, 1000000);
        pawl_histogram_add(i % 3 ? &h : &g, v);
        pawl_histogram_add(&both, v);
    }
    pawl_histogram_merge(&h, &g);
    assert_int_equal(h.count, both.count);
    assert_true(h.sum == both.sum && h.min == both.min && h.max == both.max);
    assert_memory_equal(h.bucket, both.bucket, sizeof(h.bucket));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_lies_in_its_bucket),
        cmocka_unit_test(buckets_have_no_gaps),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(an_empty_one_answers_zero_and_one_value_is_every_percentile),
        cmocka_unit_test(percentiles_agree_with_a_sorted_list),
        cmocka_unit_test(merging_two_is_adding_all_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
