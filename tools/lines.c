/* SPDX-License-Identifier: MIT */
#include "lines.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 262144u

void cli_reader_init(struct cli_reader *reader, int fd, size_t line_max)
{
    *reader = (struct cli_reader){ .fd = fd, .line_max = line_max };
}

void cli_reader_fini(struct cli_reader *reader)
{
    free(reader->buffer);
    reader->buffer = NULL;
}

/* Room for another read behind `end`. */
static bool make_room(struct cli_reader *r)
{
    if (r->at > 0) {
        memmove(r->buffer, r->buffer + r->at, r->end - r->at);
        r->end -= r->at;
        r->at = 0;
    }
    if (r->buffer && r->space - r->end >= READ_BYTES / 4)
        return true;
    size_t space = r->space ? r->space * 2 : READ_BYTES;
    char *buffer = realloc(r->buffer, space);
    if (!buffer)
        return false;
    r->buffer = buffer;
    r->space = space;
    return true;
}

static enum cli_line fill(struct cli_reader *r, int wait_ms)
{
    struct pollfd p = { .fd = r->fd, .events = POLLIN };
    int ready = poll(&p, 1, wait_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR))
        return CLI_LINE_NOT_YET;
    if (!make_room(r)) {
        r->error = ENOMEM;
        return CLI_LINE_FAILED;
    }
    ssize_t n = read(r->fd, r->buffer + r->end, r->space - r->end);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return CLI_LINE_NOT_YET;
    if (n < 0) {
        r->error = errno;
        return CLI_LINE_FAILED;
    }
    r->over = n == 0;
    r->end += (size_t)n;
    return CLI_LINE_HERE;
}

enum cli_line cli_reader_next(struct cli_reader *reader, int wait_ms, const char **line,
                              size_t *bytes)
{
    for (;;) {
        size_t have = reader->end - reader->at;
        char *from = reader->buffer ? reader->buffer + reader->at : NULL;
        char *newline = have > reader->looked
                            ? memchr(from + reader->looked, '\n', have - reader->looked)
                            : NULL;
        size_t length = newline ? (size_t)(newline - from) : have;
        if (length > reader->line_max)
            return CLI_LINE_TOO_LONG;
        bool last = reader->over && have > 0;
#ifdef PAWL_BUG_CLI_LAST_LINE_LOST
        last = false;
#endif
        if (newline || last) {
            *line = from;
            *bytes = length;
            reader->at += length + (newline ? 1 : 0);
            reader->looked = 0;
            return CLI_LINE_HERE;
        }
        if (reader->over)
            return CLI_LINE_END;
        reader->looked = have;
        enum cli_line got = fill(reader, wait_ms);
        if (got != CLI_LINE_HERE)
            return got;
    }
}
