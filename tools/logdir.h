/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_LOGDIR_H
#define PAWL_TOOLS_LOGDIR_H

/* A log opened for looking: what log list, verify and dump begin with. */

#include <limits.h>

#include "cli.h"
#include "io/io.h"
#include "log/inspect.h"

struct cli_logdir {
    char path[PATH_MAX + 8];
    int dir;
    struct pawl_io *io;
    struct pawl_inspect *inspect;
};

/* That of the argument, else of the directory in force. CLI_GO, or the exit code; close it in both
 * cases. */
int cli_logdir_open(struct cli_logdir *logdir, const struct cli *cli);
void cli_logdir_close(struct cli_logdir *logdir);
/* CLI_GO if it is whole; else it is said on stderr where it is not. */
int cli_logdir_verify(const struct cli_logdir *logdir, const struct cli *cli);

#endif
