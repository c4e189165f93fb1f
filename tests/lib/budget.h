/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_BUDGET_H
#define PAWL_TESTS_BUDGET_H

/* A budget of plain memory for tests of the core's structures; fail_after counts down the maps that
 * succeed (UINT64_MAX: all). */

#include "core/pool.h"

struct test_budget {
    struct pawl_budget budget;
    uint64_t fail_after, mapped;
};
void test_budget_init(struct test_budget *budget, uint64_t limit);

/* PAWL_SEED from the environment, else from the clock; printed, so that a failing run can be had
 * again. */
uint64_t test_seed(const char *name);

#endif
