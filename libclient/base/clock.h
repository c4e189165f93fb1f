/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BASE_CLOCK_H
#define PAWL_BASE_CLOCK_H

/* Clocks, in nanoseconds. boot: CLOCK_BOOTTIME, counts suspend and never goes back (G12, C2). wall:
 * CLOCK_REALTIME, for display and `at` times only. */

#include <stdint.h>

uint64_t pawl_clock_boot(void);
uint64_t pawl_clock_wall(void);

#endif
