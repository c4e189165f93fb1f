/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "units.h"

static void *must(void *p)
{
    if (!p) {
        fputs("pawl: out of memory\n", stderr);
        exit(CLI_REFUSED);
    }
    return p;
}

/* --- tables ---------------------------------------------------------------------------------- */

static bool right(const struct cli_table *t, size_t column) { return t->heads[column][0] == '>'; }
static const char *head(const struct cli_table *t, size_t column)
{
    return t->heads[column] + (right(t, column) ? 1 : 0);
}

void cli_table_init(struct cli_table *table, const struct cli *cli, const char *const *heads,
                    size_t columns)
{
    memset(table, 0, sizeof *table);
    table->heads = heads;
    table->columns = columns;
    table->bold = cli->out_terminal;
    for (size_t i = 0; i < columns; i++)
        table->width[i] = strlen(head(table, i));
}

/* Columns that a terminal gives to a UTF-8 text, near enough: one for each character. */
static size_t shown(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void cli_table_add(struct cli_table *table, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    must(text);
    if (table->cell_count == table->cell_space) {
        table->cell_space = table->cell_space ? table->cell_space * 2 : 256;
        table->cells = must(realloc(table->cells, table->cell_space * sizeof *table->cells));
    }
    size_t column = table->cell_count % table->columns;
    if (shown(text) > table->width[column])
        table->width[column] = shown(text);
    table->cells[table->cell_count++] = text;
}

static void print_cell(const struct cli_table *t, size_t column, const char *text)
{
    size_t pad = t->width[column] - shown(text);
    if (right(t, column))
        printf("%*s", (int)pad, "");
    fputs(text, stdout);
    if (column + 1 == t->columns) {
        putchar('\n');
        return;
    }
    printf("%*s", (int)(right(t, column) ? 2 : pad + 2), "");
}

void cli_table_flush(struct cli_table *table)
{
    if (!table->begun) {
        if (table->bold)
            fputs("\033[1m", stdout);
        for (size_t i = 0; i < table->columns; i++)
            print_cell(table, i, head(table, i));
        if (table->bold)
            fputs("\033[0m", stdout);
        table->begun = true;
    }
    for (size_t i = 0; i < table->cell_count; i++) {
        print_cell(table, i % table->columns, table->cells[i]);
        free(table->cells[i]);
    }
    table->cell_count = 0;
}

void cli_table_fini(struct cli_table *table)
{
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    memset(table, 0, sizeof *table);
}

void cli_table_size(struct cli_table *table, const struct cli *cli, uint64_t bytes)
{
    char text[CLI_UNIT_TEXT_BYTES];
    if (cli->out_terminal)
        cli_table_add(table, "%s", cli_size_human(bytes, text));
    else
        cli_table_add(table, "%llu", (unsigned long long)bytes);
}

void cli_table_number(struct cli_table *table, const struct cli *cli, uint64_t number)
{
    char text[CLI_UNIT_TEXT_BYTES];
    if (cli->out_terminal)
        cli_table_add(table, "%s", cli_number_human(number, text));
    else
        cli_table_add(table, "%llu", (unsigned long long)number);
}

void cli_table_age(struct cli_table *table, const struct cli *cli, uint64_t ns)
{
    char text[CLI_UNIT_TEXT_BYTES];
    if (ns == 0)
        cli_table_add(table, "-");
    else if (cli->out_terminal)
        cli_table_add(table, "%s", cli_duration_human(ns, text));
    else /* one unit, unsaid: awk takes 900ms and 1500ms for texts, and compares them as such */
        cli_table_add(table, "%llu", (unsigned long long)(ns / 1000000));
}

/* --- JSON ------------------------------------------------------------------------------------ */

void cli_json_print(json_t *object)
{
    must(object);
    if (json_dumpf(object, stdout, JSON_COMPACT) != 0 && !ferror(stdout)) {
        fputs("pawl: out of memory\n", stderr);
        exit(CLI_REFUSED);
    }
    putchar('\n');
    json_decref(object);
}

char *cli_base64(const void *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *in = bytes;
    char *text = must(malloc((count + 2) / 3 * 4 + 1));
    char *out = text;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t group = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                         (left > 2 ? in[i + 2] : 0);
        *out++ = digits[group >> 18];
        *out++ = digits[group >> 12 & 63];
        *out++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[group & 63] : '=';
    }
    *out = '\0';
    return text;
}

void cli_json_bytes(json_t *object, const char *name, const void *bytes, size_t count)
{
    json_t *text = json_stringn(count ? bytes : "", count); /* NULL if it is not UTF-8 */
    if (text) {
        json_object_set_new(object, name, text);
        return;
    }
    char key[80];
    char *base64 = cli_base64(bytes, count);
    snprintf(key, sizeof key, "%s_base64", name);
    json_object_set_new(object, key, must(json_string(base64)));
    free(base64);
}

void cli_json_number(json_t *object, const char *name, uint64_t number)
{
    json_object_set_new(object, name,
                        number > INT64_MAX ? json_null() : json_integer((json_int_t)number));
}

void cli_json_time(json_t *object, const char *name, uint64_t wall_ns)
{
    char text[CLI_UNIT_TEXT_BYTES];
    if (wall_ns == 0) {
        json_object_set_new(object, name, json_null());
        return;
    }
    cli_time_format(wall_ns, text);
    snprintf(strchr(text, '.'), 16, ".%09uZ", (unsigned)(wall_ns % 1000000000));
    json_object_set_new(object, name, json_string(text));
}

/* --- news and progress ----------------------------------------------------------------------- */

void cli_say(const struct cli *cli, const char *format, ...)
{
    va_list args;
    if (cli->json)
        return;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

bool cli_flush(void) { return fflush(stdout) == 0 && !ferror(stdout); }

void cli_progress_init(struct cli_progress *progress, const struct cli *cli)
{
    *progress = (struct cli_progress){ .on = cli->err_terminal };
}

bool cli_progress_due(struct cli_progress *progress)
{
    if (!progress->on)
        return false;
    uint64_t now = pawl_clock_boot();
    if (now < progress->next_ns)
        return false;
    progress->next_ns = now + 100 * PAWL_NS_MS;
    return true;
}

void cli_progress_show(struct cli_progress *progress, const char *format, ...)
{
    va_list args;
    fputc('\r', stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\033[K", stderr);
    fflush(stderr);
    progress->shown = true;
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
