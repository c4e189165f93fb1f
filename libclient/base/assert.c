/* SPDX-License-Identifier: MIT */
#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pawl.h"

_Noreturn void pawl_assert_fail(const char *file, int line, const char *expression, uint64_t a,
                                uint64_t b)
{
    fprintf(stderr, "pawl %s: assertion failed at %s:%d: %s (%" PRIu64 ", %" PRIu64 ")\n",
            PAWL_VERSION, file, line, expression, a, b);
    abort();
}
