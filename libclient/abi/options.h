/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_OPTIONS_H
#define PAWL_ABI_OPTIONS_H

/* Names and options of a queue: what the library refuses with a sentence and the broker, who trusts
 * no library, refuses again. One table, so that the two cannot come to differ. Pure. */

#include <stdbool.h>

#include "pawl.h"

/* 1..127 of [A-Za-z0-9._:/-] and a NUL. Reads no more than 128 bytes; NULL is no name. */
bool pawl_name_valid(const char *name);

#define PAWL_NAME_TEXT "the name of a queue is 1..127 of [A-Za-z0-9._:/-]"

/* What is wrong with the options of the queue `name`: a sentence that names the member and its
 * range. NULL: nothing. dead_forward may lack its NUL. Whether the broker has the mode at all is
 * for it to say. */
const char *pawl_queue_options_wrong(const struct pawl_queue_options *options, const char *name);

/* The same of what is in its range, but which a queue of this mode has not: E_NOT_SUPPORTED. */
const char *pawl_queue_options_unsupported(const struct pawl_queue_options *options);

#endif
