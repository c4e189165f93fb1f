/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_SEND_H
#define PAWL_TOOLS_SEND_H

/* The two halves of `pawl send`: cmd_send.c has the options and the single message, cmd_lines.c the
 * stream of lines. */

#include "cli.h"

/* What of a line is its dedup key. */
enum cli_key_from { CLI_KEY_NONE, CLI_KEY_HASH, CLI_KEY_NUMBER, CLI_KEY_FIELD };

struct cli_lines {
    const char *queue;
    struct pawl_send_options send; /* of each line; without a wait for room: see wait_room_ns */
    uint64_t from;                 /* number of the first line to send, from 1 */
    uint64_t wait_room_ns;         /* PAWL_UNLIMITED: no end */
    uint32_t window;               /* lines in flight */
    enum cli_key_from key_from;
    uint32_t field;         /* CLI_KEY_FIELD: which, from 1 */
    char separator;         /* of fields */
    const char *key_prefix; /* in front of each key, and a colon; NULL: none */
};

/* The key of a line, at most PAWL_KEY_BYTES_MAX bytes. 0: it has none, and *why says so. */
size_t cli_line_key(const struct cli_lines *lines, uint64_t number, const char *text, size_t bytes,
                    char key[PAWL_KEY_BYTES_MAX + 1], const char **why);
int cli_send_lines(struct cli *cli, const struct cli_lines *lines);

#endif
