/* SPDX-License-Identifier: MIT */
/* The command line's numbers: what is taken, what is refused, and that what is shown exactly is
 * taken back. */
#include "../../tools/units.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static void durations_are_taken(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } rows[] = {
        { "0", 0 },
        { "0s", 0 },
        { "1ns", 1 },
        { "7us", 7000 },
        { "250ms", 250000000 },
        { "10s", 10 * NS_S },
        { "5m", 300 * NS_S },
        { "2h", 7200 * NS_S },
        { "7d", 7 * 86400 * NS_S },
        { "1h30m", 5400 * NS_S },
        { "1.5s", 1500000000 },
        { "0.25ms", 250000 },
        { "1m0.5s", 60500000000 },
        { "213503d", 213503ull * 86400 * NS_S },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t ns = 99;
        if (!cli_duration_parse(rows[i].text, &ns) || ns != rows[i].ns)
            fail_msg("%s gave %llu", rows[i].text, (unsigned long long)ns);
    }
}

static void durations_are_refused(void **state)
{
    static const char *const rows[] = {
        "",      "5",      "s",    "5x",  "-5s", "5 s",   " 5s", "5s ",     "1.s",
        ".5s",   "1.5.2s", "1e3s", "5ss", "10S", "0.5ns", "+5s", "213504d", "99999999999999999999s",
        "1h-5m", "inf"
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t ns;
        if (cli_duration_parse(rows[i], &ns))
            fail_msg("\"%s\" was taken as %llu", rows[i], (unsigned long long)ns);
    }
}

static void sizes_are_taken_and_refused(void **state)
{
    uint64_t b;
    assert_true(cli_size_parse("0", &b) && b == 0);
    assert_true(cli_size_parse("4096", &b) && b == 4096);
    assert_true(cli_size_parse("64k", &b) && b == 65536);
    assert_true(cli_size_parse("64K", &b) && b == 65536);
    assert_true(cli_size_parse("64KiB", &b) && b == 65536);
    assert_true(cli_size_parse("8M", &b) && b == 8u << 20);
    assert_true(cli_size_parse("1GB", &b) && b == 1u << 30);
    assert_true(cli_size_parse("1.5k", &b) && b == 1536);
    assert_true(cli_size_parse("12B", &b) && b == 12);
    assert_true(cli_size_parse("16383P", &b) && b == 16383ull << 50);
    static const char *const bad[] = {
        "", "k", "-1", "1.0001k", "8m", "1i", "1kk", "16384P", "1 M"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (cli_size_parse(bad[i], &b))
            fail_msg("\"%s\" was taken", bad[i]);
}

static void numbers_and_permissions(void **state)
{
    uint64_t n;
    uint32_t perm;
    assert_true(cli_number_parse("0", &n) && n == 0);
    assert_true(cli_number_parse("18446744073709551615", &n) && n == UINT64_MAX);
    assert_true(cli_number_parse("0xFf", &n) && n == 255);
    assert_false(cli_number_parse("18446744073709551616", &n));
    assert_false(cli_number_parse("", &n));
    assert_false(cli_number_parse("0x", &n));
    assert_false(cli_number_parse("12a", &n));
    assert_false(cli_number_parse("-1", &n));
    assert_true(cli_perm_parse("0660", &perm) && perm == 0660);
    assert_true(cli_perm_parse("777", &perm) && perm == 0777);
    assert_false(cli_perm_parse("1000", &perm));
    assert_false(cli_perm_parse("8", &perm));
    assert_false(cli_perm_parse("", &perm));
    assert_false(cli_perm_parse("rwx", &perm));
}

static void times_are_taken(void **state)
{
    uint64_t wall, delay;
    assert_true(cli_time_parse("+5m", &wall, &delay) && wall == 0 && delay == 300 * NS_S);
    assert_true(cli_time_parse("1970-01-01T00:00:01Z", &wall, &delay) && wall == NS_S);
    assert_true(cli_time_parse("2000-02-29T12:00:00Z", &wall, &delay) && wall == 951825600 * NS_S);
    assert_true(cli_time_parse("2027-01-31 08:00:00.25+02:00", &wall, &delay));
    assert_int_equal(wall, 1801375200ull * NS_S + 250000000);
    assert_true(cli_time_parse("2027-01-31t08:00:00-01:30", &wall, &delay));
    assert_int_equal(wall, 1801387800ull * NS_S);
    static const char *const bad[] = {
        "",
        "+",
        "now",
        "2027-01-31",
        "2027-01-31T08:00Z",
        "2027-01-31T08:00:00",
        "2027-02-29T08:00:00Z",
        "2027-13-01T08:00:00Z",
        "2027-00-10T08:00:00Z",
        "2027-01-31T24:00:00Z",
        "1969-12-31T23:59:59Z",
        "2263-01-01T00:00:00Z",
        "2027-01-31T08:00:00.Z",
        "2027-01-31T08:00:00Z ",
        "2027-01-31T08:00:00+0200",
        "-5m",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (cli_time_parse(bad[i], &wall, &delay))
            fail_msg("\"%s\" was taken", bad[i]);
}

/* The C library is the independent witness of the calendar. */
static void every_day_agrees_with_the_c_library(void **state)
{
    for (int64_t day = 1; day < 106000; day += 7) {
        time_t t = (time_t)(day * 86400 + day % 86400);
        struct tm tm;
        char expected[80], text[CLI_UNIT_TEXT_BYTES];
        gmtime_r(&t, &tm);
        strftime(expected, sizeof expected, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
        assert_string_equal(cli_time_format((uint64_t)t * NS_S, text), expected);
        uint64_t wall, delay;
        assert_true(cli_time_parse(text, &wall, &delay));
        assert_int_equal(wall, (uint64_t)t * NS_S);
    }
}

static void exact_durations_are_taken_back(void **state)
{
    static const uint64_t rows[] = { 0,           1,         999,          1000,
                                     1500,        90 * NS_S, 86400 * NS_S, 86401 * NS_S,
                                     12345678901, UINT64_MAX };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[CLI_UNIT_TEXT_BYTES];
        uint64_t ns;
        assert_true(cli_duration_parse(cli_duration_format(rows[i], text), &ns));
        assert_int_equal(ns, rows[i]);
    }
}

static void what_people_read(void **state)
{
    char t[CLI_UNIT_TEXT_BYTES];
    assert_string_equal(cli_duration_human(0, t), "0");
    assert_string_equal(cli_duration_human(850000, t), "850us");
    assert_string_equal(cli_duration_human(1540000, t), "1.5ms");
    assert_string_equal(cli_duration_human(59900000000, t), "59.9s");
    assert_string_equal(cli_duration_human(192 * NS_S, t), "3m12s");
    assert_string_equal(cli_duration_human(7200 * NS_S, t), "2h");
    assert_string_equal(cli_duration_human(90000 * NS_S, t), "1d1h");
    assert_string_equal(cli_size_human(812, t), "812 B");
    assert_string_equal(cli_size_human(1536, t), "1.5 KiB");
    assert_string_equal(cli_size_human(64u << 20, t), "64 MiB");
    assert_string_equal(cli_size_human(UINT64_MAX, t), "16383 PiB");
    assert_string_equal(cli_number_human(0, t), "0");
    assert_string_equal(cli_number_human(999, t), "999");
    assert_string_equal(cli_number_human(1234567, t), "1,234,567");
    assert_string_equal(cli_time_format(0, t), "-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_taken),
        cmocka_unit_test(durations_are_refused),
        cmocka_unit_test(sizes_are_taken_and_refused),
        cmocka_unit_test(numbers_and_permissions),
        cmocka_unit_test(times_are_taken),
        cmocka_unit_test(every_day_agrees_with_the_c_library),
        cmocka_unit_test(exact_durations_are_taken_back),
        cmocka_unit_test(what_people_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
