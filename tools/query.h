/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_QUERY_H
#define PAWL_TOOLS_QUERY_H

/* Records of messages as query, peek, dead, restore and explain read and show them. */

#include <jansson.h>

#include "args.h"
#include "cli.h"

#define CLI_STATES_ALL 0xffffffffu
#define CLI_STATES_LIVE                                                              \
    (1u << PAWL_STATE_SCHEDULED | 1u << PAWL_STATE_READY | 1u << PAWL_STATE_LEASED | \
     1u << PAWL_STATE_DEAD)

/* "ready", "READY,leased", "live", "all". */
bool cli_states_parse(const char *text, uint32_t *mask);
const char *cli_dead_reason_name(uint32_t reason);
json_t *cli_record_json(const struct pawl_record *record);
/* With the result, which is asked for if the record says that there is one. */
json_t *cli_record_json_full(struct cli *cli, const char *queue, const struct pawl_record *record);
/* What it was acknowledged with, up to PAWL_RESULT_BYTES_MAX; returns how many bytes, 0: none. */
size_t cli_result(struct cli *cli, const char *queue, const struct pawl_record *record,
                  uint8_t *result);

/* Calls each() for the messages of a queue in the states of the mask, in order of id, until it
 * returns something else than CLI_GO. CLI_GO, that, or the code of a refusal. */
typedef int cli_record_each(void *ctx, const struct pawl_record *record);
int cli_records_each(struct cli *cli, const char *queue, uint32_t mask, cli_record_each *each,
                     void *ctx);
/* The same for ids given, in their order; those that are not found are said and make the worst code
 * CLI_REFUSED, the others still come. */
int cli_records_by_id(struct cli *cli, const char *queue, const struct cli_list *ids,
                      cli_record_each *each, void *ctx);
/* The same for dedup keys. */
int cli_records_by_key(struct cli *cli, const char *queue, const struct cli_list *keys,
                       cli_record_each *each, void *ctx);

#endif
