/* SPDX-License-Identifier: MIT */
/* Options of pawld by name: every one at its limits and one past them, files, defaults. L5 P3 P10.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/unit.h"
#include "loop/config.h"

static struct pawl_config config;
static char why[512];

static int setup(void **state)
{
    (void)state;
    pawl_config_init(&config);
    why[0] = '\0';
    return 0;
}

static void sizes_are_understood_to_the_last_byte(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } right[] = { { "0", 0 },
                  { "65536", 65536 },
                  { "1k", 1024 },
                  { "1K", 1024 },
                  { "1KiB", 1024 },
                  { "3MB", 3ull << 20 },
                  { "2GiB", 2ull << 30 },
                  { "1T", 1ull << 40 },
                  { "16B", 16 },
                  { "18446744073709551615", UINT64_MAX } };
    static const char *const wrong[] = { "",     "k",    "1X",        "1kk",
                                         "-1",   "+1",   " 1",        "1 ",
                                         "1KiX", "1.5G", "0x10",      "18446744073709551616",
                                         "1BB",  "1ki",  "99999999T", "17592186044416M" };
    uint64_t n;
    for (unsigned i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_true(pawl_config_size(right[i].text, &n));
        assert_true(n == right[i].value);
    }
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (pawl_config_size(wrong[i], &n))
            fail_msg("\"%s\" was taken", wrong[i]);
}

static void durations_need_a_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } right[] = { { "0", 0 },
                  { "250ms", 250000000 },
                  { "10s", 10000000000 },
                  { "7ns", 7 },
                  { "50us", 50000 },
                  { "5m", 300000000000 },
                  { "2h", 7200000000000 },
                  { "7d", 604800000000000 },
                  { "0s", 0 } };
    static const char *const wrong[] = { "", "1", "ms", "1 s", "1sec", "1.5s", "-1s", "213504d" };
    uint64_t n;
    for (unsigned i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_true(pawl_config_duration(right[i].text, &n));
        assert_true(n == right[i].value);
    }
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (pawl_config_duration(wrong[i], &n))
            fail_msg("\"%s\" was taken", wrong[i]);
}

static void every_option_has_inclusive_limits(void **state)
{
    (void)state;
    static const struct {
        const char *name, *least, *less, *most, *more;
    } rows[] = {
        { "spin", "0", "-1", "1s", "1000000001ns" },
        { "memory", "64MiB", "67108863", "1024T", "1025T" },
        { "max-log", "4MiB", "4194303", "1024T", "1025T" },
        { "segment-size", "1MiB", "1048575", "1GiB", "1073741825" },
        { "block-size", "64KiB", "65535", "1MiB", "1048577" },
        { "blocks-in-flight", "1", "0", "8", "9" },
        { "relaxed-window", "0", "", "10s", "10001ms" },
        { "session-grace", "0", "", "1h", "61m" },
        { "max-sessions", "1", "0", "65536", "65537" },
        { "max-queues", "1", "0", "65536", "65537" },
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *name = rows[i].name;
        assert_int_equal(pawl_config_set(&config, name, rows[i].least, why, sizeof why), 0);
        assert_int_equal(pawl_config_set(&config, name, rows[i].most, why, sizeof why), 0);
        assert_int_equal(pawl_config_set(&config, name, rows[i].less, why, sizeof why), -1);
        assert_non_null(strstr(why, name));
        assert_int_equal(pawl_config_set(&config, name, rows[i].more, why, sizeof why), -1);
        assert_non_null(strstr(why, name));
    }
    assert_int_equal(config.options.blocks_in_flight, 8);
    assert_int_equal(config.options.queues_max, 65536);
    assert_int_equal(config.options.session_grace_ns, 3600000000000);
}

static void none_is_told_from_the_default(void **state)
{
    (void)state;
    assert_int_equal(pawl_config_set(&config, "session-grace", "0", why, sizeof why), 0);
    assert_int_equal(config.options.session_grace_ns, 1);
    assert_int_equal(pawl_config_set(&config, "spin", "0", why, sizeof why), 0);
    assert_int_equal(config.options.spin_ns, 0);
}

static void unknown_options_and_kinds_are_named(void **state)
{
    (void)state;
    assert_int_equal(pawl_config_set(&config, "speed", "1", why, sizeof why), -1);
    assert_non_null(strstr(why, "speed"));
    assert_int_equal(pawl_config_set(&config, "io", "aio", why, sizeof why), -1);
    assert_non_null(strstr(why, "aio"));
    static const char *const kinds[] = { "auto", "uring", "posix" };
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pawl_config_set(&config, "io", kinds[i], why, sizeof why), 0);
        assert_int_equal(config.options.io, i);
    }
}

static char file_name[64];

static void write_file(const char *text)
{
    snprintf(file_name, sizeof file_name, "/tmp/pawl-unit-XXXXXX");
    int fd = mkstemp(file_name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static void a_file_has_the_options_names(void **state)
{
    (void)state;
    write_file(
        "# a comment\n\n  memory = 128MiB  \nspin=50us\n\tdir = /some/where else\nio = posix");
    int rc = pawl_config_file(&config, file_name, why, sizeof why);
    (void)unlink(file_name);
    if (rc != 0)
        fail_msg("%s", why);
    assert_int_equal(config.options.memory_bytes, 128 << 20);
    assert_int_equal(config.options.spin_ns, 50000);
    assert_int_equal(config.options.io, PAWLD_IO_POSIX);
    assert_string_equal(config.dir, "/some/where else");
}

static void a_wrong_line_is_named_with_its_number(void **state)
{
    (void)state;
    static const char *const wrong[] = { "\n\nspeed = 1\n", "\n\nmemory\n", "\n\nmemory = much\n" };
    for (unsigned i = 0; i < 3; i++) {
        write_file(wrong[i]);
        assert_int_equal(pawl_config_file(&config, file_name, why, sizeof why), -1);
        (void)unlink(file_name);
        assert_non_null(strstr(why, ":3: "));
        assert_non_null(strstr(why, file_name));
    }
    char *text = malloc(100001);
    memset(text, 'x', 100000);
    text[100000] = '\0';
    write_file(text);
    free(text);
    assert_int_equal(pawl_config_file(&config, file_name, why, sizeof why), -1);
    (void)unlink(file_name);
    assert_int_equal(pawl_config_file(&config, "/nowhere/at/all", why, sizeof why), -1);
}

static void the_directory_comes_from_the_environment_when_it_is_not_given(void **state)
{
    (void)state;
    (void)setenv("PAWL_DIR", "/by/env", 1);
    (void)setenv("PAWL_SOCKET", "/by/env.sock", 1);
    assert_int_equal(pawl_config_finish(&config, why, sizeof why), 0);
    assert_string_equal(config.options.dir, "/by/env");
    assert_string_equal(config.options.socket, "/by/env.sock");
    pawl_config_init(&config);
    assert_int_equal(pawl_config_set(&config, "dir", "/given", why, sizeof why), 0);
    assert_int_equal(pawl_config_finish(&config, why, sizeof why), 0);
    assert_string_equal(config.options.dir, "/given");
    assert_null(config.options.socket); /* its own */
    (void)unsetenv("PAWL_DIR");
    (void)unsetenv("PAWL_SOCKET");
    pawl_config_init(&config);
    assert_int_equal(pawl_config_finish(&config, why, sizeof why), 0);
    if (geteuid() == 0)
        assert_string_equal(config.options.dir, "/var/lib/pawl");
    assert_null(config.options.socket);
}

static void a_path_has_a_limit(void **state)
{
    (void)state;
    static char path[PAWL_CONFIG_PATH_BYTES + 1];
    memset(path, 'p', sizeof path - 1);
    assert_int_equal(pawl_config_set(&config, "dir", path, why, sizeof why), -1);
    path[PAWL_CONFIG_PATH_BYTES - 1] = '\0';
    assert_int_equal(pawl_config_set(&config, "dir", path, why, sizeof why), 0);
    assert_int_equal(pawl_config_set(&config, "socket", "", why, sizeof why), -1);
}

#define TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sizes_are_understood_to_the_last_byte),
        TEST(durations_need_a_unit),
        TEST(every_option_has_inclusive_limits),
        TEST(none_is_told_from_the_default),
        TEST(unknown_options_and_kinds_are_named),
        TEST(a_file_has_the_options_names),
        TEST(a_wrong_line_is_named_with_its_number),
        TEST(the_directory_comes_from_the_environment_when_it_is_not_given),
        TEST(a_path_has_a_limit),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
