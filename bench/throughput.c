/* SPDX-License-Identifier: MIT */
/* throughput: full lives a second - a message is sent, received under a lease, acknowledged, and
 * the answer to its acknowledgement has come back.
 *
 * Many in flight: one producer process, one consumer process. The producer keeps `window` sends
 * open; the consumer holds up to `credit` deliveries and acknowledges each by itself. Every body
 * carries its number, which the consumer checks: wrong order, loss or a changed byte fails the run.
 * The lag (sent and not yet acknowledged) has a limit, since nothing else holds a producer of a
 * memory queue: it would fill the pool within a fraction of a second.
 *
 * In turn: one process does send, receive, ack one after another, on the broker's core. */
#include "bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/atomic.h"

struct lives_case {
    const char *name;
    enum pawl_mode mode;
    uint32_t body_bytes, ring_bytes;
    uint64_t lag_max, backlog;
    double aim;
    bool keys; /* a dedup key each, remembered for a second */
};

struct lives_run {
    const struct bench *b;
    const struct lives_case *c;
    struct bench_broker broker;
    uint32_t ready, stop, consume, filled;
    uint64_t sent __attribute__((aligned(PAWL_LINE)));  /* producer */
    uint64_t acked __attribute__((aligned(PAWL_LINE))); /* consumer */
    uint64_t received;
    /* Time from before the send to the delivery in the consumer's hand, of one in 64. */
    struct pawl_histogram h;
    uint32_t measure;
};

#define BODY_BYTES_MAX 1024u
#define BATCH 256u

static struct bench_client_options client_options(const struct lives_run *run, uint32_t prefetch)
{
    struct bench_client_options o = { .window = run->b->window,
                                      .ring_bytes = run->c->ring_bytes,
                                      .prefetch = prefetch };
    return o;
}

static void producer_child(void *arg)
{
    struct lives_run *run = arg;
    struct bench_client_options o = client_options(run, 0);
    struct pawl *lane = bench_client(&run->broker, &o);
    uint64_t body[BODY_BYTES_MAX / 8];
    struct pawl_answer *answers = calloc(run->b->window, sizeof(*answers));
    uint64_t sent = 0, answered = 0;
    uint32_t last = run->c->body_bytes / 8 - 1;
    if (answers == NULL)
        bench_fail("no memory");
    memset(body, 0x5a, sizeof(body));
    uint64_t key[2] = { 0, 0x79656b };
    struct pawl_send_options keyed = PAWL_SEND_OPTIONS_INIT;
    keyed.key = key;
    keyed.key_bytes = sizeof(key);
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        uint64_t held = pawl_load_acq_u64(&run->acked);
        uint64_t most = held + run->c->lag_max;
        while (sent - answered < run->b->window && sent < most) {
            body[0] = sent;
            body[1] = sent % 64 == 0 ? bench_now() : 0;
            body[last] = ~sent;
            pawl_ticket ticket;
            key[0] = sent;
            bench_must(lane,
                       pawl_submit_send(lane, "lives", body, run->c->body_bytes,
                                        run->c->keys ? &keyed : NULL, &ticket),
                       "send");
            sent++;
        }
        pawl_store_rlx_u64(&run->sent, sent);
        if (run->c->backlog > 0 && sent >= run->c->backlog)
            pawl_store_rel_u32(&run->filled, 1);
        uint64_t open = sent - answered;
        if (open == 0) {
            sched_yield(); /* the lag is at its limit: the consumer has the word */
            continue;
        }
        /* Half of what is open, so that the other half keeps the broker busy meanwhile. */
        int n = bench_must(
            lane,
            pawl_poll(lane, answers, run->b->window, (uint32_t)(open + 1) / 2, 30 * PAWL_NS_S),
            "poll");
        for (int i = 0; i < n; i++)
            bench_must(lane, answers[i].result, "answer to a send");
        answered += (uint64_t)n;
        /* The lag is at its limit and all else is answered: give the core to the consumer, who may
         * be on it. */
        if (sent >= most)
            sched_yield();
    }
    /* What is open is left open: the broker is thrown away. */
    pawl_close(lane);
    free(answers);
}

/* Takes what answers there are; returns how many. */
static uint32_t take_answers(struct pawl *lane, uint32_t least)
{
    struct pawl_answer answers[BATCH];
    uint32_t all = 0;
    for (;;) {
        int n = bench_must(lane, pawl_poll(lane, answers, BATCH, least, 30 * PAWL_NS_S), "poll");
        for (int i = 0; i < n; i++)
            bench_must(lane, answers[i].result, "answer to an ack");
        all += (uint32_t)n;
        if (n < (int)BATCH)
            return all;
        least = 0;
    }
}

static void consumer_child(void *arg)
{
    struct lives_run *run = arg;
    struct bench_client_options o = client_options(run, run->b->credit);
    struct pawl *lane = bench_client(&run->broker, &o);
    const char *queue = "lives";
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message *m = calloc(BATCH, sizeof(*m));
    if (m == NULL)
        bench_fail("no memory");
    wait.wait_ns = PAWL_NS_S / 10;
    uint64_t next = 0;
    uint32_t words = run->c->body_bytes / 8;
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->consume) == 0)
        bench_pause(1000000);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        uint32_t count = 0;
        bench_must(lane, pawl_receive_batch(lane, &queue, 1, &wait, m, BATCH, &count), "receive");
        bool measure = pawl_load_acq_u32(&run->measure) != 0;
        for (uint32_t i = 0; i < count; i++, next++) {
            const uint64_t *body = m[i].body;
            if (m[i].bytes != run->c->body_bytes || body[0] != next || body[words - 1] != ~next)
                bench_fail("message %llu came where %llu was due",
                           (unsigned long long)(m[i].bytes >= 8 ? body[0] : 0),
                           (unsigned long long)next);
            if (measure && body[1] != 0)
                pawl_histogram_add(&run->h, bench_now() - body[1]);
            pawl_ticket ticket;
            bench_must(lane, pawl_submit_ack(lane, &m[i].token, 0, &ticket), "ack");
        }
        uint32_t n = take_answers(lane, 0);
        pawl_store_rel_u64(&run->acked, run->acked + n);
    }
    pawl_close(lane);
    free(m);
}

struct lives_figures {
    double rate, broker_ns, clients_ns, broker_share, lag;
};

#define SLICE_NS 20000000ull
#define SLICES_MAX 4096u

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* What a tenth of the slices stay below: nearly the cost on a quiet machine, also where others use
 * the cores and the caches now and then. */
static double quiet_tenth(double *slices, uint32_t n)
{
    qsort(slices, n, sizeof(*slices), compare_double);
    return n == 0 ? 0 : slices[n / 10];
}

/* Looks at lives and processor time in slices of 20 ms. pids: broker, producer, consumer. */
static void watch(const struct lives_run *run, const pid_t pids[3], struct lives_figures *out)
{
    static double of_broker[SLICES_MAX], of_clients[SLICES_MAX];
    uint64_t first[3], last[3], lag = 0, looks = 0;
    uint32_t n = 0;
    for (int i = 0; i < 3; i++)
        first[i] = last[i] = bench_cpu_ns(pids[i]);
    uint64_t begin = pawl_load_acq_u64(&run->acked), acked = begin, start = bench_now();
    uint64_t end = start + (uint64_t)(run->b->seconds * 1e9), now;
    do {
        bench_pause(SLICE_NS);
        uint64_t done = pawl_load_acq_u64(&run->acked) - acked, spent[3];
        acked += done;
        for (int i = 0; i < 3; i++) {
            uint64_t cpu = bench_cpu_ns(pids[i]);
            spent[i] = cpu - last[i];
            last[i] = cpu;
        }
        lag += pawl_load_rlx_u64(&run->sent) - acked;
        looks++;
        if (done > 0 && n < SLICES_MAX) {
            of_broker[n] = (double)spent[0] / (double)done;
            of_clients[n++] = (double)(spent[1] + spent[2]) / (double)done;
        }
        now = bench_now();
        /* Where nothing has moved yet, on a machine at its limit, a little longer. */
    } while (now < end || (acked == begin && now < end + 5000000000ull));
    out->rate = (double)(acked - begin) * 1e9 / (double)(now - start);
    out->broker_share = (double)(last[0] - first[0]) / (double)(now - start);
    out->broker_ns = quiet_tenth(of_broker, n);
    out->clients_ns = quiet_tenth(of_clients, n);
    out->lag = (double)lag / (double)looks;
}

static void lives_repeat(struct lives_run *run, struct lives_figures *out)
{
    const struct bench *b = run->b;
    struct bench_broker_options o = { .core = b->broker_core, .memory = "4G" };
    bench_broker_start(b, &run->broker, &o);
    struct pawl *lane = bench_client(&run->broker, NULL);
    bench_queue_window(lane, "lives", run->c->mode, PAWL_NS_S);
    pid_t consumer = bench_spawn(b->client_core, consumer_child, run);
    pid_t producer = bench_spawn(b->client_core, producer_child, run);
    bench_await(&run->ready, 2, "producer and consumer");
    if (run->c->backlog > 0)
        bench_await(&run->filled, 1, "backlog");
    pawl_store_rel_u32(&run->consume, 1);
    bench_pause((uint64_t)(b->seconds * 0.3e9)); /* warm-up */
    pawl_store_rel_u32(&run->measure, 1);
    const pid_t pids[] = { run->broker.pid, producer, consumer };
    watch(run, pids, out);
    pawl_store_rel_u32(&run->stop, 1);
    bench_join(producer, "producer");
    bench_join(consumer, "consumer");
    pawl_close(lane);
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
}

double bench_lives_rate(const struct bench *b, enum pawl_mode mode, bool keys)
{
    const struct lives_case c = { "lives", mode, 64,  256 << 10, b->small ? 20000 : 1000000,
                                  0,       0,    keys };
    struct lives_figures f = { 0 };
    struct lives_run *run = bench_share(sizeof(*run));
    run->b = b;
    run->c = &c;
    pawl_histogram_init(&run->h);
    lives_repeat(run, &f);
    bench_unshare(run, sizeof(*run));
    return f.rate;
}

static void lives(const struct bench *b, const struct lives_case *c)
{
    struct bench_result rate, cost, clients, way;
    bench_result_init(&rate, "throughput", "lives/s", "%s", c->name);
    bench_result_init(&cost, "throughput", "ns", "%s_broker_cpu_a_life", c->name);
    bench_result_init(&clients, "throughput", "ns", "%s_clients_cpu_a_life", c->name);
    bench_result_init(&way, "throughput", "us", "%s_send_to_receive", c->name);
    if (c->aim > 0)
        bench_result_aim(&rate, "value", BENCH_AT_LEAST, c->aim);
    struct bench_repeats r = { 0 };
    struct lives_figures f = { 0 };
    while (bench_wanted(b, "throughput", c->name) && bench_repeat_next(b, &r)) {
        struct lives_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->c = c;
        pawl_histogram_init(&run->h);
        lives_repeat(run, &f);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&rate, f.rate);
            bench_result_value(&cost, f.broker_ns);
            bench_result_value(&clients, f.clients_ns);
            bench_result_histogram(&way, &run->h, 1000);
            bench_result_note(&rate, "mean lag %.0f, broker busy %.0f %%", f.lag,
                              f.broker_share * 100);
        }
        bench_unshare(run, sizeof(*run));
    }
    rate.far = cost.far = clients.far = way.far = r.far;
    bench_result_print(b, &rate);
    bench_result_print(b, &cost);
    bench_result_print(b, &clients);
    bench_result_print(b, &way);
}

/* --- in turn --------------------------------------------------------------------------------- */

struct turn_run {
    const struct bench *b;
    struct bench_broker broker;
    enum pawl_mode mode;
    uint32_t prefetch;
    uint64_t lives, took_ns;
    struct pawl_histogram h;
};

static void turn_child(void *arg)
{
    struct turn_run *run = arg;
    struct bench_client_options o = { .prefetch = run->prefetch };
    struct pawl *lane = bench_client(&run->broker, &o);
    bench_queue(lane, "turn", run->mode);
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    wait.wait_ns = 10 * PAWL_NS_S;
    uint64_t body[8] = { 0 };
    uint64_t warm = bench_now() + (uint64_t)(run->b->seconds * 0.2e9);
    uint64_t start = 0, now = bench_now(), end = UINT64_MAX;
    for (uint64_t i = 0; now < end; i++) {
        struct pawl_sent sent;
        struct pawl_message m;
        uint64_t before = now;
        body[0] = i;
        bench_must(lane, pawl_send(lane, "turn", body, sizeof(body), NULL, &sent), "send");
        if (bench_must(lane, pawl_receive(lane, "turn", &wait, &m), "receive") != PAWL_OK ||
            m.id != sent.id || m.bytes != sizeof(body) || *(const uint64_t *)m.body != i)
            bench_fail("another message than the one just sent");
        bench_must(lane, pawl_ack(lane, &m.token, 0), "ack");
        now = bench_now();
        if (start != 0) {
            run->lives++;
            pawl_histogram_add(&run->h, now - before);
        } else if (now >= warm) {
            start = now;
            end = start + (uint64_t)(run->b->seconds * 1e9);
        }
    }
    run->took_ns = now - start;
    pawl_close(lane);
}

static void in_turn(const struct bench *b, const char *name, enum pawl_mode mode, uint32_t prefetch,
                    int client_core, double aim)
{
    struct bench_result rate, life;
    bench_result_init(&rate, "throughput", "lives/s", "%s", name);
    bench_result_init(&life, "throughput", "us", "%s_life", name);
    rate.cores = life.cores = client_core == b->broker_core ? 1 : 2;
    if (aim > 0)
        bench_result_aim(&rate, "value", BENCH_AT_LEAST, aim);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "throughput", name) && bench_repeat_next(b, &r)) {
        struct turn_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->mode = mode;
        run->prefetch = prefetch;
        pawl_histogram_init(&run->h);
        struct bench_broker_options o = { .core = b->broker_core };
        bench_broker_start(b, &run->broker, &o);
        bench_join(bench_spawn(client_core, turn_child, run), "client");
        bench_broker_stop(&run->broker);
        bench_broker_remove(&run->broker);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&rate, (double)run->lives * 1e9 / (double)run->took_ns);
            bench_result_histogram(&life, &run->h, 1000);
        }
        bench_unshare(run, sizeof(*run));
    }
    rate.far = life.far = r.far;
    bench_result_print(b, &rate);
    bench_result_print(b, &life);
}

void bench_throughput(const struct bench *b)
{
    uint64_t some = b->small ? 20000 : 1000000;
    const struct lives_case cases[] = {
        { "durable_64", PAWL_DURABLE, 64, 256 << 10, some, 0, 2000000, false },
        { "durable_1024", PAWL_DURABLE, 1024, 256 << 10, some, 0, 0, false },
        { "durable_1024_ring_1m", PAWL_DURABLE, 1024, 1 << 20, some, 0, 600000, false },
        { "relaxed_64", PAWL_RELAXED, 64, 256 << 10, some, 0, 0, false },
        { "memory_64", PAWL_MEMORY, 64, 256 << 10, some, 0, 3000000, false },
        { "memory_64_backlog", PAWL_MEMORY, 64, 256 << 10, some, some / 2, 0, false },
        { "memory_64_short", PAWL_MEMORY, 64, 256 << 10, 4096, 0, 6000000, false },
        { "memory_64_short_ring_1m", PAWL_MEMORY, 64, 1 << 20, 4096, 0, 0, false },
        { "memory_1024_short", PAWL_MEMORY, 1024, 256 << 10, 4096, 0, 0, false },
        { "memory_1024_short_ring_1m", PAWL_MEMORY, 1024, 1 << 20, 4096, 0, 1500000, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        lives(b, &cases[i]);
    in_turn(b, "in_turn_memory_one_core", PAWL_MEMORY, 0, b->broker_core, 75000);
    in_turn(b, "in_turn_memory_one_core_prefetch", PAWL_MEMORY, 16, b->broker_core, 100000);
    in_turn(b, "in_turn_durable_one_core", PAWL_DURABLE, 0, b->broker_core, 0);
    bench_direct_throughput(b);
    if (b->cores >= 2)
        in_turn(b, "in_turn_memory_two_cores", PAWL_MEMORY, 0, b->client_core, 0);
}
