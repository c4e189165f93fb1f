/* SPDX-License-Identifier: MIT */
/* durable: how much one send that waits for the disk costs above the disk itself.
 *
 * Two processes take turns within each repeat: the client sends one message at a time through the
 * broker, then the bare device writes blocks alone, some hundreds each, so that both see the same
 * phases of the machine. The bare device runs on the broker's core, and the other core is kept in
 * the same state for both: where the client spins it goes on spinning, with yields, while the
 * device has its turn; where the client sleeps, that core sleeps in both. */
#include "bench.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/atomic.h"

#define SPIN_NS (300ull * 1000)          /* the broker's: longer than a write takes */
#define CLIENT_SPIN_NS (20ull * 1000000) /* the client's: longer than any ordinary answer */

enum turn { TURN_CLIENT, TURN_DEVICE, TURN_END };

struct durable_run {
    const struct bench *b;
    struct bench_broker broker;
    uint32_t body_bytes, rounds, sends, warm;
    bool client_spins, device_spins;
    uint32_t turn __attribute__((aligned(PAWL_LINE)));
    struct pawl_histogram send __attribute__((aligned(PAWL_LINE)));
    struct pawl_histogram device;
};

static void turn_give(struct durable_run *run, enum turn turn)
{
    pawl_store_rel_u32(&run->turn, turn);
    syscall(SYS_futex, &run->turn, FUTEX_WAKE, 2, NULL, NULL, 0);
}

/* Returns the turn that is not the other one. */
static uint32_t turn_await(struct durable_run *run, enum turn other, bool spin)
{
    uint32_t turn;
    while ((turn = pawl_load_acq_u32(&run->turn)) == other) {
        if (spin)
            sched_yield();
        else
            syscall(SYS_futex, &run->turn, FUTEX_WAIT, other, NULL, NULL, 0);
    }
    return turn;
}

static void send_some(struct durable_run *run, struct pawl *lane, const uint8_t *body)
{
    for (uint32_t i = 0; i < run->warm + run->sends; i++) {
        struct pawl_sent sent;
        uint64_t start = bench_now();
        int rc = pawl_send(lane, "durable", body, run->body_bytes, NULL, &sent);
        uint64_t took = bench_now() - start;
        bench_must(lane, rc, "send");
        if (i >= run->warm)
            pawl_histogram_add(&run->send, took);
    }
    /* Outside the timing: so that no live row of old sends grows, which nobody would have. */
    bench_must(lane, pawl_queue_purge(lane, "durable", NULL), "purge");
}

static void client_child(void *arg)
{
    struct durable_run *run = arg;
    uint8_t *body = malloc(run->body_bytes);
    if (body == NULL)
        bench_fail("no memory");
    memset(body, 0x5a, run->body_bytes);
    struct bench_client_options o = { .spin_ns = run->client_spins ? CLIENT_SPIN_NS : 0 };
    struct pawl *lane = bench_client(&run->broker, &o);
    bench_queue(lane, "durable", PAWL_DURABLE);
    for (uint32_t round = 0; round < run->rounds; round++) {
        turn_await(run, TURN_DEVICE, run->client_spins);
        send_some(run, lane, body);
        turn_give(run, TURN_DEVICE);
    }
    turn_await(run, TURN_DEVICE, run->client_spins);
    turn_give(run, TURN_END);
    pawl_close(lane);
    free(body);
}

static void device_child(void *arg)
{
    struct durable_run *run = arg;
    struct bench_device *d = bench_device_open(run->broker.dir, 4096);
    while (turn_await(run, TURN_CLIENT, false) != TURN_END) {
        bench_device_run(d, run->device_spins, run->warm, run->sends, &run->device);
        turn_give(run, TURN_CLIENT);
    }
    bench_device_close(d);
}

struct placing {
    const char *name;
    int broker_core, client_core;
    bool client_spins, broker_spins;
    double aim_ratio, aim_us; /* 0: none */
};

static void one_repeat(const struct bench *b, const struct placing *p, struct durable_run *run)
{
    struct bench_broker_options o = { .core = p->broker_core,
                                      .spin_ns = p->broker_spins ? SPIN_NS : 0 };
    bench_broker_start(b, &run->broker, &o);
    pid_t device = bench_spawn(p->broker_core, device_child, run);
    pid_t client = bench_spawn(p->client_core, client_child, run);
    bench_join(client, "client");
    bench_join(device, "bare device");
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
}

static void one_at_a_time(const struct bench *b, const struct placing *p, uint32_t body_bytes)
{
    struct bench_result send, device, ratio;
    bench_result_init(&send, "durable", "us", "send_%u_%s", body_bytes, p->name);
    bench_result_init(&device, "durable", "us", "device_beside_%u_%s", body_bytes, p->name);
    bench_result_init(&ratio, "durable", "ratio of p50", "ratio_%u_%s", body_bytes, p->name);
    send.cores = device.cores = ratio.cores = p->broker_core == p->client_core ? 1 : 2;
    if (p->aim_us > 0 && body_bytes == 64)
        bench_result_aim(&send, "p50", BENCH_AT_MOST, p->aim_us);
    if (p->aim_ratio > 0)
        bench_result_aim(&ratio, "value", BENCH_AT_MOST, p->aim_ratio);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "durable", send.name) && bench_repeat_next(b, &r)) {
        struct durable_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->body_bytes = body_bytes;
        run->rounds = b->small ? 2 : 20;
        run->sends = b->small ? 100 : 500;
        run->warm = b->small ? 10 : 50;
        run->client_spins = p->client_spins;
        run->device_spins = p->broker_spins;
        run->turn = TURN_DEVICE; /* its file is filled before anybody sends beside that */
        pawl_histogram_init(&run->send);
        pawl_histogram_init(&run->device);
        one_repeat(b, p, run);
        if (bench_repeat_keep(b, &r)) {
            bench_result_histogram(&send, &run->send, 1000);
            bench_result_histogram(&device, &run->device, 1000);
            bench_result_value(&ratio, (double)pawl_histogram_percentile(&run->send, 0.5) /
                                           (double)pawl_histogram_percentile(&run->device, 0.5));
        }
        bench_unshare(run, sizeof(*run));
    }
    send.far = device.far = ratio.far = r.far;
    bench_result_print(b, &send);
    bench_result_print(b, &device);
    bench_result_print(b, &ratio);
}

/* --- many producers -------------------------------------------------------------------------- */

#define PRODUCERS 16u

struct producers_run {
    const struct bench *b;
    struct bench_broker broker;
    uint32_t ready, go, stop;
    uint32_t number; /* the next child's, set before it is forked */
    struct {
        uint64_t sends __attribute__((aligned(PAWL_LINE)));
        struct pawl_histogram h;
    } of[PRODUCERS];
};

static void producer_child(void *arg)
{
    struct producers_run *run = arg;
    uint32_t me = run->number;
    struct pawl *lane = bench_client(&run->broker, NULL);
    uint8_t body[64];
    memset(body, 0x5a, sizeof(body));
    pawl_histogram_init(&run->of[me].h);
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        struct pawl_sent sent;
        uint64_t start = bench_now();
        bench_must(lane, pawl_send(lane, "many", body, sizeof(body), NULL, &sent), "send");
        if (pawl_load_acq_u32(&run->go) != 0) {
            pawl_histogram_add(&run->of[me].h, bench_now() - start);
            pawl_store_rel_u64(&run->of[me].sends, run->of[me].sends + 1);
        }
    }
    pawl_close(lane);
}

static void producers_repeat(const struct bench *b, struct producers_run *run, int broker_core,
                             int client_core, double *rate, struct pawl_histogram *h)
{
    struct bench_broker_options o = { .core = broker_core };
    bench_broker_start(b, &run->broker, &o);
    struct pawl *lane = bench_client(&run->broker, NULL);
    bench_queue(lane, "many", PAWL_DURABLE);
    pid_t child[PRODUCERS];
    for (run->number = 0; run->number < PRODUCERS; run->number++) {
        child[run->number] = bench_spawn(client_core, producer_child, run);
        bench_await(&run->ready, run->number + 1, "producers");
    }
    bench_pause((uint64_t)(b->seconds * 0.2e9)); /* warm-up */
    uint64_t start = bench_now();
    pawl_store_rel_u32(&run->go, 1);
    bench_pause((uint64_t)(b->seconds * 1e9));
    uint64_t sends = 0;
    for (uint32_t i = 0; i < PRODUCERS; i++)
        sends += pawl_load_acq_u64(&run->of[i].sends);
    *rate = (double)sends * 1e9 / (double)(bench_now() - start);
    pawl_store_rel_u32(&run->stop, 1);
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        bench_join(child[i], "producer");
        pawl_histogram_merge(h, &run->of[i].h);
    }
    pawl_close(lane);
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
}

static void producers(const struct bench *b, const char *name, int broker_core, int client_core,
                      double aim)
{
    struct bench_result rate, latency;
    bench_result_init(&rate, "durable", "sends/s", "16_producers_%s", name);
    bench_result_init(&latency, "durable", "us", "16_producers_%s_latency", name);
    if (aim > 0)
        bench_result_aim(&rate, "value", BENCH_AT_LEAST, aim);
    struct bench_repeats r = { 0 };
    struct pawl_histogram *h = malloc(sizeof(*h));
    if (h == NULL)
        bench_fail("no memory");
    while (bench_wanted(b, "durable", rate.name) && bench_repeat_next(b, &r)) {
        struct producers_run *run = bench_share(sizeof(*run));
        double value = 0;
        run->b = b;
        pawl_histogram_init(h);
        producers_repeat(b, run, broker_core, client_core, &value, h);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&rate, value);
            bench_result_histogram(&latency, h, 1000);
        }
        bench_unshare(run, sizeof(*run));
    }
    free(h);
    rate.far = latency.far = r.far;
    bench_result_print(b, &rate);
    bench_result_print(b, &latency);
}

void bench_durable(const struct bench *b)
{
    int on = b->broker_core, other = b->client_core;
    const struct placing placings[] = {
        { "spin_two_cores", on, other, true, true, 1.1, 0 },
        { "spin_two_cores_swapped", other, on, true, true, 1.1, 0 },
        { "asleep_one_core", on, on, false, false, 0, 115 },
        { "asleep_one_core_other", other, other, false, false, 0, 0 },
        { "asleep_two_cores", on, other, false, false, 0, 0 },
        { "asleep_two_cores_broker_spins", on, other, false, true, 0, 138 },
        { "asleep_unpinned", -1, -1, false, false, 0, 0 },
    };
    for (size_t i = 0; i < sizeof(placings) / sizeof(placings[0]); i++) {
        const struct placing *p = &placings[i];
        if (b->cores < 2 && p->broker_core != p->client_core)
            continue;
        one_at_a_time(b, p, 64);
        if (i == 0)
            one_at_a_time(b, p, 1024);
    }
    producers(b, "pinned", on, other, 50000);
    producers(b, "unpinned", -1, -1, 50000);
}
