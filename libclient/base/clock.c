/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;
    /* Cannot fail for these two ids on the kernels we run on (5.15 and later). */
    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t pawl_clock_boot(void) { return read_clock(CLOCK_BOOTTIME); }
uint64_t pawl_clock_wall(void) { return read_clock(CLOCK_REALTIME); }
