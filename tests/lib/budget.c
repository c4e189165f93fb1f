/* SPDX-License-Identifier: MIT */
#include "lib/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static void *map(void *ctx, size_t bytes)
{
    struct test_budget *b = ctx;
    if (b->fail_after == 0)
        return NULL;
    if (b->fail_after != UINT64_MAX)
        b->fail_after--;
    void *p = calloc(1, bytes);
    if (p)
        b->mapped += bytes;
    return p;
}

static void unmap(void *ctx, void *p, size_t bytes)
{
    struct test_budget *b = ctx;
    b->mapped -= bytes;
    free(p);
}

void test_budget_init(struct test_budget *budget, uint64_t limit)
{
    memset(budget, 0, sizeof *budget);
    budget->budget =
        (struct pawl_budget){ .map = map, .unmap = unmap, .ctx = budget, .limit = limit };
    budget->fail_after = UINT64_MAX;
}

uint64_t test_seed(const char *name)
{
    const char *text = getenv("PAWL_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : pawl_clock_boot();
    printf("%s: PAWL_SEED=%" PRIu64 "\n", name, seed);
    return seed;
}
