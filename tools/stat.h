/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_STAT_H
#define PAWL_TOOLS_STAT_H

/* Queues and metrics as list, stat, top, explain and doctor read them. */

#include "cli.h"

const char *cli_mode_name(uint32_t mode);

/* Why dead messages of a queue with these options stay there though they should be forwarded:
 * "no such queue", ...; NULL: they should not, or nothing is known against it. Asks the broker. */
const char *cli_forward_trouble(struct cli *cli, const struct pawl_queue_options *options);

/* Calls each() for all queues that may be queried, in order of name, until it returns an exit code.
 * CLI_GO, that exit code, or the one of a refusal. */
typedef int cli_queue_each(void *ctx, const struct pawl_queue_stat *stat);
int cli_queues_each(struct cli *cli, cli_queue_each *each, void *ctx);

/* All of it, for the caller to free; NULL after a complaint. */
char *cli_metrics_text(struct cli *cli);

#endif
