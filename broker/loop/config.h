/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_CONFIG_H
#define PAWL_BROKER_CONFIG_H

/* Options of pawld(8) by name, from the command line and from a file with the same names:
 *
 *     # comment
 *     memory = 2GiB
 *     spin   = 50us
 *
 * Sizes are bytes with an optional k, M, G, T (also KiB, MB, ...: all powers of 1,024); durations
 * need a unit: ns us ms s m h d; 0 needs none. What is not understood to its last byte is refused.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pawld.h"

#define PAWL_CONFIG_PATH_BYTES 4096

struct pawl_config {
    struct pawld_options options; /* dir and socket point into this struct */
    char dir[PAWL_CONFIG_PATH_BYTES];
    char socket[PAWL_CONFIG_PATH_BYTES];
    bool dir_of_home; /* nobody named it: it is the default below $XDG_STATE_HOME or $HOME */
};

void pawl_config_init(struct pawl_config *config);
/* One option. 0, or -1 with the reason in why[bytes]. */
int pawl_config_set(struct pawl_config *config, const char *name, const char *value, char *why,
                    size_t bytes) __attribute__((warn_unused_result));
/* All options of a file; -1 names file and line. */
int pawl_config_file(struct pawl_config *config, const char *path, char *why, size_t bytes)
    __attribute__((warn_unused_result));
/* What was not given: directory and socket by environment and user. */
int pawl_config_finish(struct pawl_config *config, char *why, size_t bytes)
    __attribute__((warn_unused_result));

bool pawl_config_size(const char *text, uint64_t *out);
bool pawl_config_duration(const char *text, uint64_t *out);

#endif
