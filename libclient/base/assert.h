/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BASE_ASSERT_H
#define PAWL_BASE_ASSERT_H

/* Assertions about our own truth: on in every build, since a broker that has lost its invariants
 * must stop before it writes them to disk. Never used on words of the other side: those are
 * checked. The client library does not use it at all: it lives in somebody else's program. */

#include <stdint.h>

_Noreturn void pawl_assert_fail(const char *file, int line, const char *expression, uint64_t a,
                                uint64_t b);

#define PAWL_ASSERT(e) \
    ((void)(__builtin_expect(!!(e), 1) || (pawl_assert_fail(__FILE__, __LINE__, #e, 0, 0), 0)))
/* The same with the two values that were compared. */
#define PAWL_ASSERT_REL(a, op, b)                                                   \
    ((void)(__builtin_expect(!!((a)op(b)), 1) ||                                    \
            (pawl_assert_fail(__FILE__, __LINE__, #a " " #op " " #b, (uint64_t)(a), \
                              (uint64_t)(b)),                                       \
             0)))
/* Costly checks: only with -DPAWL_VERIFY. */
#ifdef PAWL_VERIFY
#define PAWL_VERIFY_ASSERT(e) PAWL_ASSERT(e)
#else
#define PAWL_VERIFY_ASSERT(e) ((void)0)
#endif

#endif
