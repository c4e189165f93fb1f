/* SPDX-License-Identifier: MIT */
#include "lib/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

static void *map(void *ctx, size_t bytes)
{
    struct test_budget *b = ctx;
    if (b->fail_after == 0)
        return NULL;
    if (b->fail_after != UINT64_MAX)
        b->fail_after--;
    /* Pages and no heap: a pool asks for far more than it will touch. */
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    b->mapped += bytes;
    return p;
}

static void unmap(void *ctx, void *p, size_t bytes)
{
    struct test_budget *b = ctx;
    b->mapped -= bytes;
    if (munmap(p, bytes) != 0)
        abort();
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
