/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_UNIT_H
#define PAWL_TESTS_UNIT_H

/* cmocka with what it needs before it, in the order it needs. */

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
