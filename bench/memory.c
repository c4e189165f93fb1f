/* SPDX-License-Identifier: MIT */
/* memory: what a waiting message costs the broker. Two figures that check each other: how much the
 * process has grown in the kernel's eyes, and what the broker itself says. The index is what is
 * left when the bytes of the bodies are taken off. */
#include "bench.h"

#include "fill.h"

struct memory_run {
    const struct bench *b;
    struct bench_broker broker;
    enum pawl_mode mode;
    uint32_t body_bytes;
    uint64_t count;
    double rss, said;
};

static void memory_child(void *arg)
{
    struct memory_run *run = arg;
    struct bench_client_options o = { .ring_bytes = 1 << 20 };
    struct pawl *lane = bench_client(&run->broker, &o);
    bench_queue(lane, "memory", run->mode);
    /* Some first, so that what is paid once - rings, buffers, first pools - is not counted. */
    struct bench_fill f = { .queue = "memory",
                            .body_bytes = run->body_bytes,
                            .window = 1024,
                            .count = run->count / 10,
                            .lsn_max = UINT64_MAX };
    bench_fill(lane, &f);
    double rss = (double)bench_rss_bytes(run->broker.pid);
    double said = bench_metric(lane, "pawl_memory_bytes");
    f.count = run->count;
    bench_fill(lane, &f);
    run->rss = ((double)bench_rss_bytes(run->broker.pid) - rss) / (double)run->count;
    double now = bench_metric(lane, "pawl_memory_bytes");
    run->said = said < 0 || now < 0 ? -1 : (now - said) / (double)run->count;
    pawl_close(lane);
}

static void memory_case(const struct bench *b, const char *name, enum pawl_mode mode,
                        uint32_t body_bytes)
{
    struct bench_result index, all, said;
    bench_result_init(&index, "memory", "bytes", "index_%s_%u", name, body_bytes);
    bench_result_init(&all, "memory", "bytes", "resident_%s_%u", name, body_bytes);
    bench_result_init(&said, "memory", "bytes", "said_%s_%u", name, body_bytes);
    index.cores = all.cores = said.cores = 1;
    if (!b->small)
        bench_result_aim(&index, "value", BENCH_AT_MOST, 128);
    bench_result_note(&index, "resident growth without the bodies");
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "memory", index.name) && bench_repeat_next(b, &r)) {
        struct memory_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->mode = mode;
        run->body_bytes = body_bytes;
        run->count = b->small ? 20000 : 1000000;
        struct bench_broker_options o = { .core = b->broker_core, .memory = "8G" };
        bench_broker_start(b, &run->broker, &o);
        bench_join(bench_spawn(b->client_core, memory_child, run), "filler");
        bench_broker_stop(&run->broker);
        bench_broker_remove(&run->broker);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&index, run->rss - body_bytes);
            bench_result_value(&all, run->rss);
            if (run->said >= 0)
                bench_result_value(&said, run->said);
        }
        bench_unshare(run, sizeof(*run));
    }
    index.far = all.far = said.far = r.far;
    bench_result_print(b, &index);
    bench_result_print(b, &all);
    bench_result_print(b, &said);
}

void bench_memory(const struct bench *b)
{
    memory_case(b, "memory", PAWL_MEMORY, 8);
    memory_case(b, "durable", PAWL_DURABLE, 8);
    memory_case(b, "durable", PAWL_DURABLE, 64);
    memory_case(b, "durable", PAWL_DURABLE, 1024);
}
