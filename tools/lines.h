/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_LINES_H
#define PAWL_TOOLS_LINES_H

/* Lines from a descriptor, never blocking unless asked to: the sender has answers to look after
 * while a pipe is quiet. A line is what stands before a newline; what stands behind the last one
 * is a line too, unless it is nothing. Holds at most one line and 256 KiB. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_line { CLI_LINE_HERE, CLI_LINE_NOT_YET, CLI_LINE_END, CLI_LINE_TOO_LONG, CLI_LINE_FAILED };

struct cli_reader {
    int fd;
    char *buffer;
    size_t space, at, end; /* unread bytes: buffer[at..end) */
    size_t looked;         /* bytes from `at` that hold no newline */
    size_t line_max;
    bool over; /* the descriptor has ended */
    int error; /* errno of CLI_LINE_FAILED */
};

void cli_reader_init(struct cli_reader *reader, int fd, size_t line_max);
void cli_reader_fini(struct cli_reader *reader);
/* wait_ms: how long to wait for bytes, -1 no end (a signal ends it: NOT_YET). The line is valid
 * until the next call. */
enum cli_line cli_reader_next(struct cli_reader *reader, int wait_ms, const char **line,
                              size_t *bytes);

#endif
