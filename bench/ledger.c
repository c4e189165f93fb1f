/* SPDX-License-Identifier: MIT */
/* ledger: what it costs to remember dedup keys. The structure alone first, in one thread: memory an
 * entry, a look-up as it grows, the longest single insertion (it grows by one bucket at a time, so
 * there is none that moves everything; what is left is the kernel's page faults and whoever else
 * wants the core). Then lives with a key each beside lives without, in turn, so that both meet the
 * same phases of the machine. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"
#include "core/core_inner.h"

#define LOOKUPS 200000u
#define SIZES 4u

struct ledger_run {
    const struct bench *b;
    uint64_t count;
    double bytes, insert_ns;
    double hit_ns[SIZES], miss_ns[SIZES]; /* at 10,000, 100,000, ... */
    struct pawl_histogram insert;
};

/* Processor time of this thread: whoever else wants the core is not the table's fault. */
static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * PAWL_NS_S + (uint64_t)t.tv_nsec;
}

static void *map(void *ctx, size_t bytes)
{
    (void)ctx;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void unmap(void *ctx, void *p, size_t bytes)
{
    (void)ctx;
    munmap(p, bytes);
}

static struct pawl_core *make_core(uint64_t count)
{
    const struct pawl_core_options o = { .memory_bytes = 8ull << 30,
                                         .segment_bytes = 1 << 20,
                                         .epoch = 1,
                                         .hash_seed = 7,
                                         .sessions_max = 16,
                                         .queues_max = 16,
                                         .ledger_max = count };
    const struct pawl_core_port port = { .memory_map = map, .memory_unmap = unmap };
    struct pawl_core *core = pawl_core_create(&o, &port);
    const struct pawl_now now = { 3600 * PAWL_NS_S, 3600 * PAWL_NS_S };
    if (core == NULL || pawl_core_start(core, now, 1, true) != 0)
        bench_fail("no memory");
    return core;
}

static struct pawl_ledger_entry entry_of(uint64_t i)
{
    return (struct pawl_ledger_entry){ .id = pawl_hash_u64(i),
                                       .id_high = pawl_hash_u64(~i),
                                       .a = i,
                                       .c = 3601 * PAWL_NS_S + i % 600 * PAWL_NS_S,
                                       .result = PAWL_STATE_ACKED,
                                       .kind = PAWL_LEDGER_KEY };
}

/* ns a look-up of random names from `from` on, `span` of them. */
static double look(struct pawl_core *core, uint64_t from, uint64_t span, bool there)
{
    struct pawl_prng prng = { 1 };
    uint64_t found = 0, start = bench_now();
    for (uint32_t i = 0; i < LOOKUPS; i++) {
        struct pawl_ledger_entry e = entry_of(from + pawl_prng_below(&prng, span));
        found += pawl_core_ledger_find(core, PAWL_LEDGER_KEY, e.id, e.id_high) != 0;
    }
    uint64_t took = bench_now() - start;
    if (found != (there ? LOOKUPS : 0))
        bench_fail("a key that was put in was not found, or one that was not");
    return (double)took / LOOKUPS;
}

static void ledger_child(void *arg)
{
    struct ledger_run *run = arg;
    struct pawl_core *core = make_core(run->count);
    uint64_t rss = bench_rss_bytes(getpid()), spent = 0, size = 10000;
    uint32_t sizes = 0;
    for (uint64_t i = 0; i < run->count; i++) {
        const struct pawl_ledger_entry e = entry_of(i);
        uint64_t start = thread_ns();
        if (pawl_core_ledger_ready(core, PAWL_LEDGER_KEY, 1) != 0 ||
            pawl_core_ledger_insert(core, &e) == 0)
            bench_fail("the ledger is full");
        uint64_t took = thread_ns() - start;
        pawl_histogram_add(&run->insert, took);
        spent += took;
        if (i + 1 == size && sizes < SIZES) {
            run->hit_ns[sizes] = look(core, 0, size, true);
            run->miss_ns[sizes++] = look(core, run->count, size, false);
            size *= 10;
        }
    }
    run->insert_ns = (double)spent / (double)run->count;
    run->bytes = (double)(bench_rss_bytes(getpid()) - rss) / (double)run->count;
    pawl_core_destroy(core);
}

static void alone(const struct bench *b)
{
    static const char *const sizes[SIZES] = { "10k", "100k", "1m", "10m" };
    uint64_t count = b->small ? 100000 : 10000000;
    struct bench_result bytes, insert, rate, hit[SIZES], miss[SIZES];
    bench_result_init(&bytes, "ledger", "bytes", "resident_an_entry");
    bench_result_init(&insert, "ledger", "us", "insert");
    bench_result_init(&rate, "ledger", "ns", "insert_mean");
    bytes.cores = insert.cores = rate.cores = 1;
    bench_result_note(&bytes, "%llu entries", (unsigned long long)count);
    bench_result_note(&insert,
                      "each by itself, processor time, the clock's in it; page faults too");
    if (!b->small)
        bench_result_aim(&bytes, "value", BENCH_AT_MOST, 80);
    for (uint32_t i = 0; i < SIZES; i++) {
        bench_result_init(&hit[i], "ledger", "ns", "found_of_%s", sizes[i]);
        bench_result_init(&miss[i], "ledger", "ns", "missing_of_%s", sizes[i]);
    }
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "ledger", "alone") && bench_repeat_next(b, &r)) {
        struct ledger_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->count = count;
        pawl_histogram_init(&run->insert);
        bench_join(bench_spawn(b->broker_core, ledger_child, run), "ledger");
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&bytes, run->bytes);
            bench_result_value(&rate, run->insert_ns);
            bench_result_histogram(&insert, &run->insert, 1000);
            for (uint32_t i = 0; i < SIZES && run->hit_ns[i] > 0; i++) {
                bench_result_value(&hit[i], run->hit_ns[i]);
                bench_result_value(&miss[i], run->miss_ns[i]);
            }
        }
        bench_unshare(run, sizeof(*run));
    }
    bench_result_print(b, &bytes);
    bench_result_print(b, &insert);
    bench_result_print(b, &rate);
    for (uint32_t i = 0; i < SIZES; i++) {
        bench_result_print(b, &hit[i]);
        bench_result_print(b, &miss[i]);
    }
}

static void beside(const struct bench *b, const char *name, enum pawl_mode mode)
{
    struct bench_result with, without, kept, cost, cost_with;
    bench_result_init(&without, "ledger", "lives/s", "lives_%s", name);
    bench_result_init(&with, "ledger", "lives/s", "lives_%s_keys", name);
    bench_result_init(&kept, "ledger", "%", "rate_kept_%s", name);
    bench_result_init(&cost, "ledger", "ns", "path_%s", name);
    bench_result_init(&cost_with, "ledger", "ns", "path_%s_keys", name);
    if (!b->small)
        bench_result_aim(&kept, "value", BENCH_AT_LEAST, 80);
    bench_result_note(&kept, "with a dedup key of 16 bytes each, of what is done without");
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "ledger", name) && bench_repeat_next(b, &r)) {
        double plain = bench_lives_rate(b, mode, false), keyed = bench_lives_rate(b, mode, true);
        double ns = bench_path_life(b, mode, 64, 0, false);
        double ns_keyed = bench_path_life(b, mode, 64, 0, true);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&without, plain);
            bench_result_value(&with, keyed);
            bench_result_value(&kept, 100 * keyed / plain);
            bench_result_value(&cost, ns);
            bench_result_value(&cost_with, ns_keyed);
        }
    }
    struct bench_result *each[] = { &without, &with, &kept, &cost, &cost_with };
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        each[i]->far = r.far;
        bench_result_print(b, each[i]);
    }
}

void bench_ledger(const struct bench *b)
{
    alone(b);
    beside(b, "durable_64", PAWL_DURABLE);
    beside(b, "memory_64", PAWL_MEMORY);
}
