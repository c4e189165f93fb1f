/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_SIGNALS_H
#define PAWL_TOOLS_SIGNALS_H

/* SIGINT and SIGTERM for the commands that run long: the first asks to finish, a second one ends
 * the program. Waits of such a command are cut into slices of CLI_SLICE_NS so that it looks. */

#include <stdbool.h>

#define CLI_SLICE_NS (250 * PAWL_NS_MS)

void cli_stop_on_signals(void);
bool cli_stopped(void);

#endif
