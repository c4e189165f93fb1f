/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_RECORD_H
#define PAWL_TOOLS_RECORD_H

/* Records of the log in words, for `pawl log dump`. Secrets of sessions and the random part of
 * tokens are left out: a dump is made to be shown around. */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/record.h"

/* "SEND"; "TYPE 99" is NULL. */
const char *cli_record_type(uint16_t type);
/* An object with the members of the record; bodies: the body of a message, too. */
json_t *cli_record_members(const struct pawl_record_view *record, bool bodies);
/* Is the message one that this record is about? */
bool cli_record_names(const struct pawl_record_view *record, uint64_t message);

#endif
