/* SPDX-License-Identifier: MIT */
/* What pawl-bench says of its repeats: medians, the JSON line, the refusal on too few cores, and
 * the program it gives to gnuplot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../bench/bench.h"
#include "../../bench/schedule.h"

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    abort();
}

/* What a function prints on stdout. */
static char printed[16384];
static void capture(const struct bench *b, struct bench_result *r)
{
    fflush(stdout);
    FILE *f = tmpfile();
    assert_non_null(f);
    int was = dup(STDOUT_FILENO);
    dup2(fileno(f), STDOUT_FILENO);
    bench_result_print(b, r);
    fflush(stdout);
    dup2(was, STDOUT_FILENO);
    close(was);
    rewind(f);
    size_t n = fread(printed, 1, sizeof(printed) - 1, f);
    printed[n] = 0;
    fclose(f);
}

static double number_of(const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *p = strstr(printed, quoted);
    assert_non_null(p);
    return strtod(p + strlen(quoted), NULL);
}

/* A repeat whose n values are base + 1 .. base + n. */
static void add_repeat(struct bench_result *r, uint64_t base, uint64_t n)
{
    static struct pawl_histogram h;
    pawl_histogram_init(&h);
    for (uint64_t v = 1; v <= n; v++)
        pawl_histogram_add(&h, base + v);
    bench_result_histogram(r, &h, 1);
}

static void a_median_is_the_lower_middle(void **state)
{
    (void)state;
    const double odd[] = { 5, 1, 9 }, even[] = { 4, 1, 3, 2 }, one[] = { 7 };
    assert_true(bench_median(odd, 3) == 5);
    assert_true(bench_median(even, 4) == 2);
    assert_true(bench_median(one, 1) == 7);
    assert_true(bench_median(one, 0) == 0);
    assert_true(odd[0] == 5); /* sorted a copy */
}

static void percentiles_are_the_median_of_repeats_and_max_the_worst(void **state)
{
    (void)state;
    struct bench b = { .json = true, .cores = 2 };
    struct bench_result r;
    bench_result_init(&r, "latency", "ns", "case_%u", 64);
    add_repeat(&r, 0, 100);
    add_repeat(&r, 100, 100);
    add_repeat(&r, 20, 100);
    capture(&b, &r);
    assert_non_null(
        strstr(printed, "{\"bench\":\"latency\",\"case\":\"case_64\",\"unit\":\"ns\","));
    assert_true(number_of("p50") == 70);
    assert_true(number_of("p99") == 119);
    assert_true(number_of("p999") == 120);
    assert_true(number_of("p9999") == 120);
    assert_true(number_of("max") == 200);
    assert_true(number_of("p50_min") == 50 && number_of("p50_max") == 150);
    assert_true(number_of("samples") == 100 && number_of("repeats") == 3);
    assert_null(strstr(printed, "refused"));
    assert_true(strchr(printed, '\n') == printed + strlen(printed) - 1); /* one line */
}

static void a_rate_has_value_min_and_max(void **state)
{
    (void)state;
    struct bench b = { .json = true, .cores = 2 };
    struct bench_result r;
    bench_result_init(&r, "throughput", "lives/s", "x");
    bench_result_value(&r, 30);
    bench_result_value(&r, 10);
    bench_result_value(&r, 20);
    bench_result_aim(&r, "value", BENCH_AT_LEAST, 15);
    capture(&b, &r);
    assert_true(number_of("value") == 20 && number_of("min") == 10 && number_of("max") == 30);
    assert_true(number_of("aim") == 15);
}

static void nothing_is_concluded_from_too_few_cores(void **state)
{
    (void)state;
    struct bench b = { .cores = 1 };
    struct bench_result r;
    bench_result_init(&r, "throughput", "lives/s", "x");
    bench_result_value(&r, 20);
    bench_result_aim(&r, "value", BENCH_AT_LEAST, 15);
    capture(&b, &r);
    assert_non_null(strstr(printed, "NEEDS_CORES: 2, has 1: no conclusion"));
    assert_null(strstr(printed, "met"));
    b.json = true;
    capture(&b, &r);
    assert_non_null(
        strstr(printed, "\"refused\":\"NEEDS_CORES\",\"needs_cores\":2,\"has_cores\":1"));
    bench_result_cores(&r, 1);
    b.json = false;
    capture(&b, &r);
    assert_null(strstr(printed, "NEEDS_CORES"));
    assert_non_null(strstr(printed, ": met"));
}

static void a_picture_needs_a_suffix_and_gnuplot(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof(path), "%s", getenv("PATH"));
    assert_non_null(strstr(bench_plot_check("x.pdf"), "PLOT_SUFFIX"));
    assert_non_null(strstr(bench_plot_check("a.svg/x"), "PLOT_SUFFIX"));
    assert_non_null(strstr(bench_plot_check("x"), "PLOT_SUFFIX"));
    setenv("PATH", "/nonexistent:/also-not", 1);
    assert_non_null(strstr(bench_plot_check("x.svg"), "PLOT_NO_GNUPLOT"));
    assert_non_null(strstr(bench_plot_check("x.png"), "PLOT_NO_GNUPLOT"));
    setenv("PATH", path, 1);
}

static void the_picture_shows_curves_and_rates_only(void **state)
{
    (void)state;
    struct bench b = { .json = false, .cores = 2, .plot = "x.svg" };
    struct bench_result r;
    bench_result_init(&r, "latency", "ns", "way");
    add_repeat(&r, 1000, 1000);
    capture(&b, &r);
    bench_result_init(&r, "throughput", "lives/s", "rate");
    bench_result_value(&r, 20);
    bench_result_value(&r, 40);
    capture(&b, &r);
    bench_result_init(&r, "memory", "bytes", "no picture of bytes");
    bench_result_value(&r, 20);
    capture(&b, &r);
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_int_equal(bench_plot_script(f, "x.svg"), 2);
    fclose(f);
    assert_non_null(strstr(text, "set terminal svg"));
    assert_non_null(strstr(text, "set output 'x.svg'"));
    assert_non_null(strstr(text, "title 'latency way'"));
    assert_non_null(strstr(text, "\n1000 2\nEOD")); /* the last point: the maximum, in us */
    assert_non_null(strstr(text, "\"throughput rate\" 20 20 40\n"));
    assert_null(strstr(text, "no picture of bytes"));
    free(text);
}

/* A sender that was held up for 300 of 1,000 intervals: each message counts from its own moment. */
static void a_late_sender_leaves_nothing_out(void **state)
{
    (void)state;
    struct bench_schedule s;
    uint64_t due, n = 0, late = 0, longest = 0;
    bench_schedule_init(&s, 1000000, 1000, 0.001);
    assert_true(s.warm == 1200000 && s.end == 2200000);
    assert_false(bench_schedule_take(&s, 999999, &due));
    for (uint64_t now = 1000000; !bench_schedule_over(&s); now += 100) {
        if (now > 1500000 && now < 1800000)
            continue;
        while (bench_schedule_take(&s, now, &due)) {
            assert_true(due == 1000000 + 1000 * n);
            n++;
            late += now - due > 100000;
            longest = now - due > longest ? now - due : longest;
        }
    }
    assert_int_equal(n, 1200);
    assert_int_equal(late, 199);
    assert_int_equal(longest, 299000);
    assert_false(bench_schedule_take(&s, UINT64_MAX, &due));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_median_is_the_lower_middle),
        cmocka_unit_test(percentiles_are_the_median_of_repeats_and_max_the_worst),
        cmocka_unit_test(a_rate_has_value_min_and_max),
        cmocka_unit_test(nothing_is_concluded_from_too_few_cores),
        cmocka_unit_test(a_late_sender_leaves_nothing_out),
        cmocka_unit_test(a_picture_needs_a_suffix_and_gnuplot),
        cmocka_unit_test(the_picture_shows_curves_and_rates_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
