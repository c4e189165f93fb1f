/* SPDX-License-Identifier: MIT */
/* timers: many delayed messages. One tenth of them falls due at one instant, the rest hours later.
 * While they wait, and while the storm is delivered, live traffic flows through another queue on a
 * fixed schedule; its latency counts from when a message was to be sent, so a stall is not hidden
 * (no coordinated omission).
 *
 * Lateness of a storm message: from the instant it was due until a consumer has it in hand. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "abi/atomic.h"
#include "fill.h"

#define LIVE_RATE 2000u /* messages a second */
#define BATCH 256u
#define SETTLE_S 5u

enum live_phase { LIVE_WARM, LIVE_QUIET, LIVE_STORM, LIVE_PHASES };

struct timers_run {
    const struct bench *b;
    struct bench_broker broker;
    enum pawl_mode mode;
    uint64_t count, storm;
    uint64_t due_wall; /* of the storm */
    uint64_t insert_ns;
    double rss, said; /* bytes a message */
    uint32_t ready, phase, stop;
    uint64_t received, last_late_ns, early;
    struct pawl_histogram late;
    struct pawl_histogram live[LIVE_PHASES];
};

static void delay_of(void *ctx, uint64_t i, struct pawl_send_options *o)
{
    const struct timers_run *run = ctx;
    /* Every tenth is of the storm, so both kinds lie mixed in memory and log. */
    bool storm = i % 10 == 0;
    o->at_wall_ns = storm ? run->due_wall : 0;
    o->delay_ns = storm ? 0 : (3600 + i * 2654435761u % 86400) * PAWL_NS_S + i % 1000000000;
}

static void insert_child(void *arg)
{
    struct timers_run *run = arg;
    struct bench_client_options o = { .ring_bytes = 1 << 20 };
    struct pawl *lane = bench_client(&run->broker, &o);
    bench_queue(lane, "storm", run->mode);
    bench_queue(lane, "live", run->mode);
    double rss = (double)bench_rss_bytes(run->broker.pid);
    double said = bench_metric(lane, "pawl_memory_bytes");
    struct bench_fill f = { .queue = "storm",
                            .body_bytes = 64,
                            .window = 1024,
                            .count = run->count,
                            .lsn_max = UINT64_MAX,
                            .options = delay_of,
                            .ctx = run };
    bench_fill(lane, &f);
    run->insert_ns = f.took_ns;
    run->rss = ((double)bench_rss_bytes(run->broker.pid) - rss) / (double)run->count;
    run->said = (bench_metric(lane, "pawl_memory_bytes") - said) / (double)run->count;
    if (bench_wall() >= run->due_wall)
        bench_fail("inserting took longer than the storm was away: give it a smaller --delayed");
    pawl_close(lane);
}

static void storm_child(void *arg)
{
    struct timers_run *run = arg;
    struct bench_client_options o = { .prefetch = run->b->credit, .ring_bytes = 1 << 20 };
    struct pawl *lane = bench_client(&run->broker, &o);
    const char *queue = "storm";
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message *m = calloc(BATCH, sizeof(*m));
    struct pawl_answer answers[BATCH];
    if (m == NULL)
        bench_fail("no memory");
    wait.wait_ns = PAWL_NS_S;
    pawl_add_seq_u32(&run->ready, 1);
    uint64_t received = 0;
    while (received < run->storm) {
        uint32_t count = 0;
        bench_must(lane, pawl_receive_batch(lane, &queue, 1, &wait, m, BATCH, &count), "receive");
        uint64_t now = bench_wall();
        for (uint32_t i = 0; i < count; i++) {
            pawl_ticket ticket;
            run->early += now < run->due_wall;
            pawl_histogram_add(&run->late, now < run->due_wall ? 0 : now - run->due_wall);
            bench_must(lane, pawl_submit_ack(lane, &m[i].token, 0, &ticket), "ack");
        }
        received += count;
        run->last_late_ns = now - run->due_wall;
        pawl_store_rel_u64(&run->received, received);
        int n;
        while ((n = bench_must(lane, pawl_poll(lane, answers, BATCH, 0, 0), "poll")) > 0)
            for (int i = 0; i < n; i++)
                bench_must(lane, answers[i].result, "answer to an ack");
    }
    pawl_close(lane);
    free(m);
}

static void live_send_child(void *arg)
{
    struct timers_run *run = arg;
    struct pawl *lane = bench_client(&run->broker, NULL);
    uint64_t body[8] = { 0 };
    struct pawl_answer answers[BATCH];
    uint64_t due = bench_now();
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        uint64_t now = bench_now();
        if (now < due) {
            bench_pause(due - now);
            continue;
        }
        body[0] = due;
        pawl_ticket ticket;
        bench_must(lane, pawl_submit_send(lane, "live", body, sizeof(body), NULL, &ticket), "send");
        bench_must(lane, pawl_poll(lane, answers, BATCH, 0, 0), "poll");
        due += PAWL_NS_S / LIVE_RATE;
    }
    body[0] = 0; /* the last one: the receiver may go */
    struct pawl_sent sent;
    bench_must(lane, pawl_send(lane, "live", body, sizeof(body), NULL, &sent), "send");
    pawl_close(lane);
}

static void live_receive_child(void *arg)
{
    struct timers_run *run = arg;
    struct bench_client_options o = { .prefetch = 64 };
    struct pawl *lane = bench_client(&run->broker, &o);
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_answer answers[BATCH];
    wait.wait_ns = PAWL_NS_S;
    pawl_add_seq_u32(&run->ready, 1);
    for (;;) {
        struct pawl_message m;
        if (bench_must(lane, pawl_receive(lane, "live", &wait, &m), "receive") != PAWL_OK)
            continue;
        uint64_t now = bench_now(), due = *(const uint64_t *)m.body;
        pawl_ticket ticket;
        bench_must(lane, pawl_submit_ack(lane, &m.token, 0, &ticket), "ack");
        if (due == 0)
            break;
        pawl_histogram_add(&run->live[pawl_load_acq_u32(&run->phase)], now - due);
        bench_must(lane, pawl_poll(lane, answers, BATCH, 0, 0), "poll");
    }
    pawl_close(lane);
}

static void timers_repeat(struct timers_run *run)
{
    const struct bench *b = run->b;
    struct bench_broker_options o = { .core = b->broker_core, .memory = "12G", .max_log = "24G" };
    bench_broker_start(b, &run->broker, &o);
    pawl_histogram_init(&run->late);
    for (uint32_t i = 0; i < LIVE_PHASES; i++)
        pawl_histogram_init(&run->live[i]);
    /* Away far enough for insertion at 200,000 a second, the quiet phase and some to spare. */
    uint64_t wait_s = b->small ? 3 : 20 + run->count / 200000;
    run->due_wall = bench_wall() + wait_s * PAWL_NS_S;
    bench_join(bench_spawn(b->client_core, insert_child, run), "filler");
    pid_t storm = bench_spawn(b->client_core, storm_child, run);
    pid_t receive = bench_spawn(-1, live_receive_child, run);
    pid_t send = bench_spawn(-1, live_send_child, run);
    bench_await(&run->ready, 3, "storm and live clients");
    bench_pause(PAWL_NS_S / 5);
    /* Quiet: until just before the storm, at most SETTLE_S. */
    uint64_t now = bench_wall(), quiet = SETTLE_S * PAWL_NS_S;
    if (now + quiet + PAWL_NS_S / 20 < run->due_wall)
        bench_pause(run->due_wall - now - quiet - PAWL_NS_S / 20);
    pawl_store_rel_u32(&run->phase, LIVE_QUIET);
    now = bench_wall();
    if (now < run->due_wall)
        bench_pause(run->due_wall - now);
    pawl_store_rel_u32(&run->phase, LIVE_STORM);
    bench_join(storm, "storm consumer");
    pawl_store_rel_u32(&run->phase, LIVE_WARM);
    pawl_store_rel_u32(&run->stop, 1);
    bench_join(send, "live producer");
    bench_join(receive, "live consumer");
    if (run->early > 0)
        bench_fail("%llu delayed messages came early", (unsigned long long)run->early);
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
}

static void timers_case(const struct bench *b, const char *name, enum pawl_mode mode)
{
    struct bench_result insert, memory, said, late, all, quiet, live;
    bench_result_init(&insert, "timers", "messages/s", "insert_%s", name);
    bench_result_init(&memory, "timers", "bytes", "resident_a_message_%s", name);
    bench_result_init(&said, "timers", "bytes", "said_a_message_%s", name);
    bench_result_init(&late, "timers", "ms", "storm_lateness_%s", name);
    bench_result_init(&all, "timers", "s", "storm_all_delivered_%s", name);
    bench_result_init(&quiet, "timers", "us", "live_before_%s", name);
    bench_result_init(&live, "timers", "us", "live_in_storm_%s", name);
    if (b->delayed >= 10000000)
        bench_result_aim(&all, "value", BENCH_AT_MOST, 2);
    bench_result_note(&insert, "%llu delayed, %llu due at once", (unsigned long long)b->delayed,
                      (unsigned long long)(b->delayed + 9) / 10);
    bench_result_note(&live, "%u a second on a schedule", LIVE_RATE);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "timers", name) && bench_repeat_next(b, &r)) {
        struct timers_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->mode = mode;
        run->count = b->delayed;
        run->storm = (b->delayed + 9) / 10;
        timers_repeat(run);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&insert, (double)run->count * 1e9 / (double)run->insert_ns);
            bench_result_value(&memory, run->rss);
            bench_result_value(&said, run->said);
            bench_result_histogram(&late, &run->late, 1e6);
            bench_result_value(&all, (double)run->last_late_ns / 1e9);
            bench_result_histogram(&quiet, &run->live[LIVE_QUIET], 1000);
            bench_result_histogram(&live, &run->live[LIVE_STORM], 1000);
        }
        bench_unshare(run, sizeof(*run));
    }
    struct bench_result *each[] = { &insert, &memory, &said, &late, &all, &quiet, &live };
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        each[i]->far = r.far;
        bench_result_print(b, each[i]);
    }
}

void bench_timers(const struct bench *b)
{
    timers_case(b, "durable", PAWL_DURABLE);
    timers_case(b, "memory", PAWL_MEMORY);
}
