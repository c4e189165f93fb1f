/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BASE_KILL_H
#define PAWL_BASE_KILL_H

/* Named points at which a process kills itself, for tests: built with -DPAWL_KILL_POINTS. Without
 * it they are nothing, and no binary knows their names.
 *
 * PAWL_KILL_AT=name     SIGKILL at the first passage of this point
 * PAWL_KILL_AT=name:n   ... at the n-th passage since the process began
 * PAWL_KILL_FILE=path   the same text is looked for in a file, at each passage, so that a process
 *                       can be told while it runs; the file is removed before the end, so that its
 *                       successor lives */

#ifdef PAWL_KILL_POINTS
#include <stdbool.h>

bool pawl_kill_due(const char *name); /* counts the passage */
_Noreturn void pawl_kill_now(void);
/* `last` is done before it is killed. */
#define PAWL_KILL_POINT_WITH(name, last) \
    do {                                 \
        if (pawl_kill_due(name)) {       \
            last;                        \
            pawl_kill_now();             \
        }                                \
    } while (0)
#else
#define PAWL_KILL_POINT_WITH(name, last) ((void)0)
#endif
#define PAWL_KILL_POINT(name) PAWL_KILL_POINT_WITH(name, (void)0)

#endif
