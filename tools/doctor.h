/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_DOCTOR_H
#define PAWL_TOOLS_DOCTOR_H

/* The checks of `pawl doctor`. Each says one line: what it looked at, how that is, and for warn and
 * bad what to do. warn: it works, but slower, or smaller, or not for ever. bad: a broker cannot run
 * or cannot keep its promises. */

#include <sys/types.h>

#include "cli.h"

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_BAD };

struct doctor {
    struct cli *cli;
    const char *dir;
    pid_t broker; /* 0: none answers */
    unsigned count[3];
};

/* cure: NULL for DOCTOR_OK. */
void doctor_say(struct doctor *doctor, enum doctor_level level, const char *subject,
                const char *cure, const char *format, ...) __attribute__((format(printf, 5, 6)));

void doctor_machine(struct doctor *doctor); /* kernel, io, limits, memory */
void doctor_disk(struct doctor *doctor);    /* the directory and what it lies on */

#endif
