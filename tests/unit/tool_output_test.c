/* SPDX-License-Identifier: MIT */
/* Tables, base64 and JSON as the command line prints them. stdout goes to a file for the while. */
#include "../../libclient/base/clock.c"
#include "../../tools/output.c"
#include "../../tools/units.c"

#include <setjmp.h>
#include <unistd.h>

#include <cmocka.h>

static struct cli plain, terminal = { .out_terminal = true };
static char printed[4096];

/* What print(ctx) writes to stdout. */
static const char *capture(void (*print)(const void *ctx), const void *ctx)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_true(dup2(fileno(f), STDOUT_FILENO) >= 0);
    print(ctx);
    fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    rewind(f);
    printed[fread(printed, 1, sizeof printed - 1, f)] = '\0';
    fclose(f);
    return printed;
}

static void print_table(const void *cli)
{
    static const char *const heads[] = { "NAME", ">BYTES", ">AGE", "NOTE" };
    struct cli_table t;
    cli_table_init(&t, cli, heads, 4);
    cli_table_add(&t, "a");
    cli_table_size(&t, cli, 1536);
    cli_table_age(&t, cli, 1500 * PAWL_NS_MS);
    cli_table_add(&t, "x y");
    cli_table_add(&t, "gr\xc3\xbc\xc3\x9f"
                      "e");
    cli_table_size(&t, cli, 7);
    cli_table_age(&t, cli, 0);
    cli_table_add(&t, "%s", "");
    cli_table_flush(&t);
    cli_table_add(&t, "b");
    cli_table_number(&t, cli, 1234567);
    cli_table_age(&t, cli, 61 * PAWL_NS_S);
    cli_table_add(&t, "z");
    cli_table_flush(&t);
    cli_table_fini(&t);
}

static void a_table_is_plain_and_exact_off_a_terminal(void **state)
{
    assert_string_equal(capture(print_table, &plain), "NAME   BYTES   AGE  NOTE\n"
                                                      "a       1536  1500  x y\n"
                                                      "gr\xc3\xbc\xc3\x9f"
                                                      "e      7     -  \n"
                                                      "b      1234567  61000  z\n");
}

static void a_table_has_units_on_a_terminal(void **state)
{
    assert_string_equal(capture(print_table, &terminal),
                        "\033[1mNAME     BYTES   AGE  NOTE\n\033[0m"
                        "a      1.5 KiB  1.5s  x y\n"
                        "gr\xc3\xbc\xc3\x9f"
                        "e      7 B     -  \n"
                        "b      1,234,567  1m1s  z\n");
}

static void base64_is_that_of_the_standard(void **state)
{
    static const struct {
        const char *in;
        size_t n;
        const char *out;
    } rows[] = { { "", 0, "" },        { "f", 1, "Zg==" },        { "fo", 2, "Zm8=" },
                 { "foo", 3, "Zm9v" }, { "foob", 4, "Zm9vYg==" }, { "\xff\x00\xfe", 3, "/wD+" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = cli_base64(rows[i].in, rows[i].n);
        assert_string_equal(text, rows[i].out);
        free(text);
    }
}

static void print_json(const void *ctx)
{
    json_t *j = json_object();
    (void)ctx;
    cli_json_bytes(j, "body", "a\0\"\n", 4);
    cli_json_bytes(j, "key", "\xff", 1);
    cli_json_bytes(j, "empty", NULL, 0);
    cli_json_number(j, "limit", PAWL_UNLIMITED);
    cli_json_number(j, "id", 1099511627777);
    cli_json_time(j, "sent", 1801375200250000001);
    cli_json_time(j, "never", 0);
    cli_json_print(j);
}

static void json_holds_any_bytes_on_one_line(void **state)
{
    assert_string_equal(capture(print_json, NULL),
                        "{\"body\":\"a\\u0000\\\"\\n\",\"key_base64\":\"/w==\",\"empty\":\"\","
                        "\"limit\":null,\"id\":1099511627777,"
                        "\"sent\":\"2027-01-31T06:00:00.250000001Z\",\"never\":null}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_plain_and_exact_off_a_terminal),
        cmocka_unit_test(a_table_has_units_on_a_terminal),
        cmocka_unit_test(base64_is_that_of_the_standard),
        cmocka_unit_test(json_holds_any_bytes_on_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
