/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_SEND_H
#define PAWL_TOOLS_SEND_H

/* The two halves of `pawl send`: cmd_send.c has the options and the single message, cmd_lines.c the
 * stream of lines. */

#include "cli.h"

struct cli_lines {
    const char *queue;
    struct pawl_send_options send; /* of each line; without a wait for room: see wait_room_ns */
    uint64_t from;                 /* number of the first line to send, from 1 */
    uint64_t wait_room_ns;         /* PAWL_UNLIMITED: no end */
    uint32_t window;               /* lines in flight */
};

int cli_send_lines(struct cli *cli, const struct cli_lines *lines);

#endif
