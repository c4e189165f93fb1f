/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_OUTPUT_H
#define PAWL_TOOLS_OUTPUT_H

/* What commands print: tables, JSON lines, single news, a progress line. On a terminal numbers get
 * units and headings are bold; else a column of numbers holds nothing but counts, bytes or whole
 * milliseconds, and columns have the same order, so that awk can read it. Words for people (notes,
 * reasons) have units everywhere. Nothing here is for stderr but the progress line. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"

/* --- tables ---------------------------------------------------------------------------------- */

#define CLI_COLUMNS_MAX 16u

struct cli_table {
    const char *const *heads; /* a head that begins with '>' is a column of numbers */
    size_t columns;
    size_t width[CLI_COLUMNS_MAX];
    char **cells; /* rows * columns */
    size_t cell_count, cell_space;
    bool bold, begun;
};
void cli_table_init(struct cli_table *table, const struct cli *cli, const char *const *heads,
                    size_t columns);
/* The next cell, from left to right, row after row. */
void cli_table_add(struct cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints the rows collected so far; the heads the first time. */
void cli_table_flush(struct cli_table *table);
void cli_table_fini(struct cli_table *table);

/* Cells: with units on a terminal, exact else; an age is whole milliseconds then, "-" is none. */
void cli_table_size(struct cli_table *table, const struct cli *cli, uint64_t bytes);
void cli_table_number(struct cli_table *table, const struct cli *cli, uint64_t number);
void cli_table_age(struct cli_table *table, const struct cli *cli, uint64_t ns);

/* --- JSON ------------------------------------------------------------------------------------ */

/* One line; takes the object over. */
void cli_json_print(json_t *object);
/* The text under `name`, or base64 under name_base64 where it is not UTF-8. */
void cli_json_bytes(json_t *object, const char *name, const void *bytes, size_t count);
/* An integer; null for PAWL_UNLIMITED. */
void cli_json_number(json_t *object, const char *name, uint64_t number);
/* RFC 3339 with nanoseconds; null for 0. */
void cli_json_time(json_t *object, const char *name, uint64_t wall_ns);
/* For the caller to free. */
char *cli_base64(const void *bytes, size_t count);

/* --- news and progress ----------------------------------------------------------------------- */

/* One line of what was done, unless --json speaks. */
void cli_say(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* stdout is through to the kernel. False: it is not, errno says why. */
bool cli_flush(void);

/* A line on stderr that is written over, on a terminal only, at most ten times a second. */
struct cli_progress {
    bool on, shown;
    uint64_t next_ns;
};
void cli_progress_init(struct cli_progress *progress, const struct cli *cli);
/* True: it is time for a new line, say it with cli_progress_show(). */
bool cli_progress_due(struct cli_progress *progress);
void cli_progress_show(struct cli_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes the line away. */
void cli_progress_end(struct cli_progress *progress);

#endif
