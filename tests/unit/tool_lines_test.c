/* SPDX-License-Identifier: MIT */
/* Lines of a descriptor: whole, in pieces, without an end, too long. */
#include "../../tools/lines.c"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

struct pipe_end {
    int in, out;
};

static struct pipe_end open_pipe(void)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    return (struct pipe_end){ fds[0], fds[1] };
}

static void put(struct pipe_end p, const char *text, size_t n)
{
    assert_int_equal(write(p.out, text, n), n);
}

static void expect(struct cli_reader *r, const char *text, size_t n)
{
    const char *line;
    size_t bytes;
    assert_int_equal(cli_reader_next(r, 0, &line, &bytes), CLI_LINE_HERE);
    assert_int_equal(bytes, n);
    assert_memory_equal(line, text, n);
}

static void lines_come_as_they_are(void **state)
{
    struct pipe_end p = open_pipe();
    struct cli_reader r;
    const char *line;
    size_t bytes;
    cli_reader_init(&r, p.in, 100);
    put(p, "one\n\nthr\0e\r\nlast", 16);
    close(p.out);
    expect(&r, "one", 3);
    expect(&r, "", 0);
    expect(&r, "thr\0e\r", 6);
    expect(&r, "last", 4);
    assert_int_equal(cli_reader_next(&r, 0, &line, &bytes), CLI_LINE_END);
    assert_int_equal(cli_reader_next(&r, 0, &line, &bytes), CLI_LINE_END);
    cli_reader_fini(&r);
    close(p.in);
}

static void nothing_behind_the_last_newline_is_no_line(void **state)
{
    struct pipe_end p = open_pipe();
    struct cli_reader r;
    const char *line;
    size_t bytes;
    cli_reader_init(&r, p.in, 100);
    put(p, "a\n", 2);
    close(p.out);
    expect(&r, "a", 1);
    assert_int_equal(cli_reader_next(&r, 0, &line, &bytes), CLI_LINE_END);
    cli_reader_fini(&r);
    close(p.in);
}

static void half_a_line_is_not_there_yet(void **state)
{
    struct pipe_end p = open_pipe();
    struct cli_reader r;
    const char *line;
    size_t bytes;
    cli_reader_init(&r, p.in, 100);
    assert_int_equal(cli_reader_next(&r, 0, &line, &bytes), CLI_LINE_NOT_YET);
    put(p, "ha", 2);
    assert_int_equal(cli_reader_next(&r, 0, &line, &bytes), CLI_LINE_NOT_YET);
    put(p, "lf\nx", 4);
    expect(&r, "half", 4);
    assert_int_equal(cli_reader_next(&r, 0, &line, &bytes), CLI_LINE_NOT_YET);
    close(p.out);
    expect(&r, "x", 1);
    cli_reader_fini(&r);
    close(p.in);
}

static void a_line_at_the_limit_is_taken_and_one_more_byte_is_not(void **state)
{
    const char *line;
    size_t bytes;
    for (size_t extra = 0; extra < 2; extra++) {
        struct pipe_end p = open_pipe();
        struct cli_reader r;
        char text[103];
        memset(text, 'x', sizeof text);
        text[100 + extra] = '\n';
        cli_reader_init(&r, p.in, 100);
        put(p, text, 101 + extra);
        if (extra == 0)
            expect(&r, text, 100);
        else
            assert_int_equal(cli_reader_next(&r, 0, &line, &bytes), CLI_LINE_TOO_LONG);
        cli_reader_fini(&r);
        close(p.in);
        close(p.out);
    }
}

/* Larger than any read and than the first buffer. */
static void long_lines_are_put_together(void **state)
{
    FILE *f = tmpfile();
    struct cli_reader r;
    const size_t n = 1000003;
    char *text = malloc(n + 1);
    assert_non_null(f);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + i % 23);
    text[n] = '\n';
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fwrite(text, 1, n + 1, f), n + 1);
        fputs("short\n", f);
    }
    fflush(f);
    rewind(f);
    cli_reader_init(&r, fileno(f), n);
    for (int i = 0; i < 3; i++) {
        expect(&r, text, n);
        expect(&r, "short", 5);
    }
    cli_reader_fini(&r);
    free(text);
    fclose(f);
}

static void a_failed_read_is_told(void **state)
{
    struct cli_reader r;
    const char *line;
    size_t bytes;
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    cli_reader_init(&r, directory, 100);
    assert_int_equal(cli_reader_next(&r, -1, &line, &bytes), CLI_LINE_FAILED);
    assert_int_equal(r.error, EISDIR);
    close(directory);
    cli_reader_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_as_they_are),
        cmocka_unit_test(nothing_behind_the_last_newline_is_no_line),
        cmocka_unit_test(half_a_line_is_not_there_yet),
        cmocka_unit_test(a_line_at_the_limit_is_taken_and_one_more_byte_is_not),
        cmocka_unit_test(long_lines_are_put_together),
        cmocka_unit_test(a_failed_read_is_told),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
