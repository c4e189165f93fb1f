/* SPDX-License-Identifier: MIT */
/* Options of a command: what is taken, what is complained of, what help prints. Complaints go to a
 * pipe in place of stderr. */
#include "../../tools/args.c"
#include "../../tools/units.c"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static char complaint[512];

int cli_misused(const struct cli *cli, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(complaint, sizeof complaint, format, args);
    va_end(args);
    return CLI_USAGE;
}
int cli_version(struct cli *cli) { return CLI_DONE; }
int cli_help(struct cli *cli) { return CLI_DONE; }

static const struct cli_command command = {
    .name = "probe", .args = "Q [options]", .summary = "look", .example = "pawl probe q"
};

struct values {
    bool flag, delay_given;
    const char *text;
    uint64_t delay, wait, size, number;
    uint32_t number32, perm;
    struct cli_list list;
};

static int parse_line(struct values *v, struct cli *cli, char *line)
{
    static char *argv[32];
    int argc = 0;
    const struct cli_option options[] = {
        { "flag", CLI_FLAG, &v->flag, NULL, "", NULL },
        { "text", CLI_TEXT, &v->text, "T", "", NULL },
        { "delay", CLI_DURATION, &v->delay, "D", "", &v->delay_given },
        { "wait", CLI_WAIT, &v->wait, "D", "", NULL },
        { "size", CLI_SIZE, &v->size, "S", "", NULL },
        { "number", CLI_NUMBER, &v->number, "N", "", NULL },
        { "small", CLI_NUMBER32, &v->number32, "N", "", NULL },
        { "perm", CLI_PERM, &v->perm, "P", "", NULL },
        { "id", CLI_LIST, &v->list, "ID", "", NULL },
        { "max-bytes", CLI_SIZE, &v->size, "S", "", NULL },
        { "max-messages", CLI_SIZE, &v->size, "S", "", NULL },
    };
    for (char *word; (word = strsep(&line, " ")) != NULL;)
        argv[argc++] = word;
    argv[argc] = NULL;
    *cli = (struct cli){ .command = &command, .argc = argc, .argv = argv };
    complaint[0] = '\0';
    return cli_args(cli, options, sizeof options / sizeof options[0], 1, 2);
}

static void options_and_arguments_may_be_mixed(void **state)
{
    struct values v = { 0 };
    struct cli cli;
    char line[] = "probe q --flag --text=hi --delay 1m30s --wait inf x --size 8M --number 7 "
                  "--small 9 --perm 640 --id 1 --id 2";
    assert_int_equal(parse_line(&v, &cli, line), CLI_GO);
    assert_int_equal(cli.argc, 2);
    assert_string_equal(cli.argv[0], "q");
    assert_string_equal(cli.argv[1], "x");
    assert_true(v.flag && v.delay_given);
    assert_string_equal(v.text, "hi");
    assert_int_equal(v.delay, 90 * PAWL_NS_S);
    assert_true(v.wait == PAWL_UNLIMITED);
    assert_int_equal(v.size, 8u << 20);
    assert_int_equal(v.number, 7);
    assert_int_equal(v.number32, 9);
    assert_int_equal(v.perm, 0640);
    assert_int_equal(v.list.n, 2);
    assert_string_equal(v.list.v[1], "2");
    cli_list_fini(&v.list);
}

static void two_dashes_end_the_options(void **state)
{
    struct values v = { 0 };
    struct cli cli;
    char line[] = "probe q -- --flag";
    assert_int_equal(parse_line(&v, &cli, line), CLI_GO);
    assert_int_equal(cli.argc, 2);
    assert_string_equal(cli.argv[1], "--flag");
    assert_false(v.flag);
}

static void the_globals_are_known_everywhere(void **state)
{
    struct values v = { 0 };
    struct cli cli;
    char line[] = "probe --dir /d q --json --timeout 3s --socket /s";
    assert_int_equal(parse_line(&v, &cli, line), CLI_GO);
    assert_string_equal(cli.dir, "/d");
    assert_string_equal(cli.socket, "/s");
    assert_true(cli.json && cli.timeout_given);
    assert_int_equal(cli.timeout_ns, 3 * PAWL_NS_S);
}

static void every_mistake_has_its_sentence(void **state)
{
    static const struct {
        const char *line, *sentence;
    } rows[] = {
        { "probe", "something is missing; usage: pawl probe Q [options]" },
        { "probe a b c", "\"c\" is too much; usage: pawl probe Q [options]" },
        { "probe q --dleay 1s", "unknown option --dleay; did you mean --delay?" },
        { "probe q --xyzzy", "unknown option --xyzzy" },
        { "probe q --flag=1", "--flag takes no value" },
        { "probe q --delay", "--delay needs a value" },
        { "probe q --max-", "--max- may be several options: write it out" },
        { "probe q --delay 5", "--delay: \"5\" is no duration; such are 250ms, 10s, 5m, 2h, 7d" },
        { "probe q --delay inf",
          "--delay: \"inf\" is no duration; such are 250ms, 10s, 5m, 2h, 7d" },
        { "probe q --wait x",
          "--wait: \"x\" is no duration; such are 250ms, 10s, 5m, 2h, 7d, inf" },
        { "probe q --size 1x", "--size: \"1x\" is no size; such are 4096, 64k, 8M, 1G" },
        { "probe q --number -1", "--number: \"-1\" is no number" },
        { "probe q --small 4294967296", "--small: 4294967296 is too large" },
        { "probe q --perm 1777", "--perm: \"1777\" is not 0 to 0777 in octal" },
        { "probe q -x", "unknown option -x (a text that begins with - goes behind --)" },
    };
    for (size_t i = 0; i < PAWL_COUNT(rows); i++) {
        struct values v = { 0 };
        struct cli cli;
        char line[128];
        snprintf(line, sizeof line, "%s", rows[i].line);
        int rc = parse_line(&v, &cli, line);
        if (rc != CLI_USAGE || strcmp(complaint, rows[i].sentence) != 0)
            fail_msg("%s: %d \"%s\"", rows[i].line, rc, complaint);
    }
}

static const char *some_name(size_t i)
{
    static const char *const names[] = { "send", "receive", "reject", "list", "log list" };
    return i < PAWL_COUNT(names) ? names[i] : NULL;
}

static void the_nearest_name_is_found(void **state)
{
    assert_string_equal(cli_nearest("snd", some_name), "send");
    assert_string_equal(cli_nearest("sned", some_name), "send");
    assert_string_equal(cli_nearest("recieve", some_name), "receive");
    assert_string_equal(cli_nearest("rec", some_name), "receive");
    assert_string_equal(cli_nearest("lst", some_name), "list");
    assert_null(cli_nearest("xyzzy", some_name));
    assert_null(cli_nearest("zz", some_name));
}

static void ids_are_numbers(void **state)
{
    struct cli cli = { .command = &command };
    struct cli_list ids = { 0 };
    cli_list_add(&ids, "1099511627777");
    cli_list_add(&ids, "0x10");
    assert_int_equal(cli_ids_check(&cli, &ids), CLI_GO);
    assert_int_equal(cli_id(ids.v[0]), 1099511627777);
    assert_int_equal(cli_id(ids.v[1]), 16);
    cli_list_add(&ids, "12,13");
    assert_int_equal(cli_ids_check(&cli, &ids), CLI_USAGE);
    cli_list_fini(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_arguments_may_be_mixed),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(the_globals_are_known_everywhere),
        cmocka_unit_test(every_mistake_has_its_sentence),
        cmocka_unit_test(the_nearest_name_is_found),
        cmocka_unit_test(ids_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
