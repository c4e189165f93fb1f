/* SPDX-License-Identifier: MIT */
/* direct: queues that go from process to process without the broker. Two pinned processes; all of a
 * life is in the figures: sent (copied in), leased (copied out), acknowledged. Both sides spin
 * unless a case says asleep. Cases with "ring" in their name use the functions of abi/direct.h over
 * a memfd; the others the public calls, with a broker that sweeps beside them.
 *
 * In the same repeat the way of one cache line is measured, and a bare ring that moves the same
 * bytes and neither leases nor acknowledges: the machine's phases change the figures by factors,
 * their ratios less. */
#include "bench.h"

#include <sched.h>
#include <stdlib.h>

#include "abi/atomic.h"
#include "direct_end.h"
#include "schedule.h"

#define LANES BENCH_RING_LANES

struct direct_run {
    const struct bench *b;
    struct bench_direct d;
    uint32_t batch, producers, consumers;
    uint32_t number;      /* the next child's, set before it is forked */
    uint64_t interval_ns; /* on a schedule */
    uint32_t ready __attribute__((aligned(PAWL_LINE)));
    uint32_t go, stop, holding;
    struct {
        uint64_t sent __attribute__((aligned(PAWL_LINE)));
        uint64_t taken __attribute__((aligned(PAWL_LINE)));
        uint64_t sum;        /* of the numbers taken or sent */
        uint64_t longest_ns; /* between two receives that took something */
    } of[LANES];
    struct pawl_histogram way __attribute__((aligned(PAWL_LINE)));
    struct pawl_histogram late;
};

/* --- latency --------------------------------------------------------------------------------- */

static void ping_child(void *arg)
{
    struct direct_run *run = arg;
    struct bench_end *out = bench_end_open(&run->d, 0, 1, NULL);
    struct bench_end *in = bench_end_open(&run->d, 1, 1, out);
    uint64_t *body = out->out[0];
    uint64_t warm = bench_now() + (uint64_t)(run->b->seconds * 0.2e9);
    uint64_t end = warm + (uint64_t)(run->b->seconds * 1e9);
    do {
        body[0] = bench_now();
        body[1] = body[0] >= warm;
        bench_end_send(out, 1);
        bench_end_wait(in);
        bench_end_ack(in);
    } while (body[0] < end);
    body[0] = 0; /* the last one */
    bench_end_send(out, 1);
    bench_end_close(out);
}

static void pong_child(void *arg)
{
    struct direct_run *run = arg;
    struct bench_end *in = bench_end_open(&run->d, 0, 2, NULL);
    struct bench_end *out = bench_end_open(&run->d, 1, 2, in);
    for (;;) {
        bench_end_wait(in);
        uint64_t sent = in->in[0][0];
        bool counts = in->in[0][1] != 0;
        bench_end_ack(in);
        uint64_t now = bench_now();
        if (sent == 0)
            break;
        if (counts)
            pawl_histogram_add(&run->way, now - sent);
        bench_end_send(out, 1);
    }
    bench_end_close(in);
}

static void schedule_child(void *arg)
{
    struct direct_run *run = arg;
    struct bench_end *out = bench_end_open(&run->d, 0, 1, NULL);
    uint64_t *body = out->out[0];
    struct bench_schedule when;
    body[0] = 1; /* the first use attaches to the queue */
    body[1] = 0;
    bench_end_send(out, 1);
    bench_schedule_init(&when, bench_now() + PAWL_NS_MS, run->interval_ns, run->b->seconds);
    while (!bench_schedule_over(&when)) {
        uint64_t now = bench_now(), due;
        if (!bench_schedule_take(&when, now, &due)) {
            pawl_cpu_relax();
            continue;
        }
        body[0] = due;
        body[1] = due >= when.warm;
        bench_end_send(out, 1);
        if (body[1] != 0)
            pawl_histogram_add(&run->late, now - due);
    }
    body[0] = 0;
    bench_end_send(out, 1);
    bench_end_close(out);
}

static void hand_child(void *arg)
{
    struct direct_run *run = arg;
    struct bench_end *in = bench_end_open(&run->d, 0, 2, NULL);
    for (;;) {
        bench_end_wait(in);
        uint64_t sent = in->in[0][0];
        bool counts = in->in[0][1] != 0;
        bench_end_ack(in);
        uint64_t now = bench_now();
        if (sent == 0)
            break;
        if (counts)
            pawl_histogram_add(&run->way, now - sent);
    }
    bench_end_close(in);
}

static struct direct_run *run_new(const struct bench *b, bool api, bool asleep, uint32_t capacity,
                                  uint32_t body_bytes, uint32_t queues)
{
    struct direct_run *run = bench_share(sizeof(*run));
    run->b = b;
    run->d = (struct bench_direct){
        .b = b, .api = api, .asleep = asleep, .queues = queues, .body_bytes = body_bytes
    };
    bench_direct_make(&run->d, capacity);
    pawl_histogram_init(&run->way);
    pawl_histogram_init(&run->late);
    return run;
}

static void run_free(struct direct_run *run)
{
    bench_direct_free(&run->d);
    bench_unshare(run, sizeof(*run));
}

static void two(struct direct_run *run, void (*first)(void *), void (*second)(void *))
{
    pid_t b_side = bench_spawn(bench_core(1), second, run);
    pid_t a_side = bench_spawn(bench_core(0), first, run);
    bench_join(a_side, "direct sender");
    bench_join(b_side, "direct receiver");
}

static void latency_case(const struct bench *b, bool api, bool asleep)
{
    struct bench_result way, line, ratio;
    char name[48], size[16] = "";
    if (b->body_bytes != 64)
        snprintf(size, sizeof(size), "_%u", b->body_bytes);
    snprintf(name, sizeof(name), "direct_%sone_way%s%s", api ? "" : "ring_", size,
             asleep ? "_asleep" : "");
    bench_result_init(&way, "latency", asleep ? "us" : "ns", "%s", name);
    bench_result_init(&line, "latency", "ns", "line_beside_%s", name);
    bench_result_init(&ratio, "latency", "ratio of p50", "%s_of_line", name);
    bench_result_note(&way, "from before the send to after the ack, one reading of the clock");
    if (!asleep && b->body_bytes == 64)
        bench_result_aim(&ratio, "value", BENCH_AT_MOST, 2);
    struct pawl_histogram *h = malloc(sizeof(*h));
    struct bench_repeats r = { 0 };
    while (h != NULL && bench_wanted(b, "latency", way.name) && bench_repeat_next(b, &r)) {
        struct direct_run *run = run_new(b, api, asleep, 256, b->body_bytes, 2);
        bench_line_way(b, h);
        two(run, ping_child, pong_child);
        if (bench_repeat_keep(b, &r)) {
            bench_result_histogram(&way, &run->way, asleep ? 1000 : 1);
            bench_result_histogram(&line, h, 1);
            bench_result_value(&ratio, (double)pawl_histogram_percentile(&run->way, 0.5) /
                                           (double)pawl_histogram_percentile(h, 0.5));
        }
        run_free(run);
    }
    free(h);
    way.far = line.far = ratio.far = r.far;
    bench_result_print(b, &way);
    bench_result_print(b, &line);
    bench_result_print(b, &ratio);
}

static void latency_schedule(const struct bench *b, uint64_t rate)
{
    struct bench_result way, late;
    char size[16] = "";
    if (b->body_bytes != 64)
        snprintf(size, sizeof(size), "_%u", b->body_bytes);
    bench_result_init(&way, "latency", "ns", "direct_schedule_%llu%s", (unsigned long long)rate,
                      size);
    bench_result_init(&late, "latency", "ns", "direct_schedule_%llu%s_sender_late",
                      (unsigned long long)rate, size);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "latency", way.name) && bench_repeat_next(b, &r)) {
        struct direct_run *run = run_new(b, true, false, 1024, b->body_bytes, 1);
        run->interval_ns = rate > PAWL_NS_S ? 1 : PAWL_NS_S / rate;
        two(run, schedule_child, hand_child);
        if (bench_repeat_keep(b, &r)) {
            bench_result_histogram(&way, &run->way, 1);
            bench_result_histogram(&late, &run->late, 1);
        }
        run_free(run);
    }
    way.far = late.far = r.far;
    bench_result_print(b, &way);
    bench_result_print(b, &late);
}

void bench_direct_latency(const struct bench *b)
{
    if (b->cores < 2) {
        bench_say(b, "NEEDS_CORES: direct_one_way spins on 2 cores, here is one: left out");
        return;
    }
    latency_case(b, true, false);
    latency_case(b, true, true);
    latency_case(b, false, false);
    if (b->rate > 0) {
        latency_schedule(b, b->rate);
    } else {
        latency_schedule(b, 100000);
        latency_schedule(b, 1000000);
    }
}

/* --- throughput ------------------------------------------------------------------------------ */

/* Numbers each producer's messages; the number says the producer, too. */
static void producer_child(void *arg)
{
    struct direct_run *run = arg;
    uint32_t me = run->number, last = run->d.body_bytes / 8 - 1;
    struct bench_end *e = bench_end_open(&run->d, 0, me + 1, NULL);
    uint64_t next = 0, sum = 0;
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->go) == 0)
        sched_yield();
    while (pawl_load_acq_u32(&run->stop) == 0) {
        for (uint32_t i = 0; i < run->batch; i++, next++) {
            e->out[i][0] = next << 8 | me;
            e->out[i][last] = ~e->out[i][0];
            sum += e->out[i][0];
        }
        bench_end_send(e, run->batch);
    }
    run->of[me].sum = sum;
    pawl_store_rel_u64(&run->of[me].sent, next);
    bench_end_close(e);
}

/* One consumer gets each producer's messages in the order sent, nothing torn. */
static void check(const struct direct_run *run, const uint64_t *body, uint64_t *seen)
{
    uint32_t from = (uint32_t)(body[0] & 0xff);
    if (from >= run->producers || body[run->d.body_bytes / 8 - 1] != ~body[0] ||
        body[0] >> 8 < seen[from])
        bench_fail("direct: message %llu of producer %u came where %llu was due",
                   (unsigned long long)(body[0] >> 8), from,
                   (unsigned long long)seen[from % LANES]);
    seen[from] = (body[0] >> 8) + 1;
}

static void consumer_child(void *arg)
{
    struct direct_run *run = arg;
    uint32_t me = run->number;
    struct bench_end *e = bench_end_open(&run->d, 0, me + 1, NULL);
    uint64_t seen[LANES] = { 0 }, taken = 0, sum = 0, longest = 0, last_look = 0;
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) < 2) {
        uint32_t n = bench_end_look(e, run->batch);
        for (uint32_t i = 0; i < n; i++) {
            check(run, e->in[i], seen);
            sum += e->in[i][0];
        }
        if (n == 0)
            continue;
        bench_end_ack(e);
        /* The clock at times only: it costs as much as a life. */
        if ((taken ^ (taken + n)) >> 10 != 0) {
            uint64_t now = bench_now();
            longest = last_look != 0 && now - last_look > longest ? now - last_look : longest;
            last_look = now;
        }
        taken += n;
        pawl_store_rel_u64(&run->of[me].taken, taken);
    }
    run->of[me].sum = sum;
    run->of[me].longest_ns = longest;
    bench_end_close(e);
}

/* Leases one message, and holds it till the end. */
static void holder_child(void *arg)
{
    struct direct_run *run = arg;
    uint32_t me = run->number;
    struct bench_end *e = bench_end_open(&run->d, 0, me + 1, NULL);
    pawl_add_seq_u32(&run->ready, 1);
    while (bench_end_look(e, 1) == 0)
        sched_yield();
    run->of[me].sum = e->in[0][0];
    pawl_store_rel_u32(&run->holding, 1);
    while (pawl_load_acq_u32(&run->stop) == 0)
        bench_pause(10000000);
    bench_end_ack(e);
    pawl_store_rel_u64(&run->of[me].taken, 1);
    bench_end_close(e);
}

static uint64_t sum_of(const struct direct_run *run, uint32_t from, uint32_t n, bool taken)
{
    uint64_t all = 0;
    for (uint32_t i = from; i < from + n; i++)
        all += pawl_load_acq_u64(taken ? &run->of[i].taken : &run->of[i].sent);
    return all;
}

/* Nothing lost, nothing twice: as many, with the same sum. */
static void check_all(const struct direct_run *run, uint32_t lanes)
{
    uint64_t sent = 0, taken = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        if (i < run->producers)
            sent += run->of[i].sum;
        else
            taken += run->of[i].sum;
    }
    if (sent != taken)
        bench_fail("direct: as many messages came as were sent, but not the same");
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Rate of the whole time, and what a tenth of all slices exceeds: nearly that of a quiet machine,
 * also where others use the cores now and then. */
static double watch(struct direct_run *run, double *quiet)
{
    enum { SLICES = 4096 };
    static double slice[SLICES];
    uint32_t from = run->producers, n = run->consumers, slices = 0;
    uint64_t begin = sum_of(run, from, n, true), last = begin, start = bench_now(), at = start;
    uint64_t end = start + (uint64_t)(run->b->seconds * 1e9);
    while (at < end || last == begin) {
        bench_pause(20000000);
        uint64_t taken = sum_of(run, from, n, true), now = bench_now();
        if (slices < SLICES)
            slice[slices++] = (double)(taken - last) * 1e9 / (double)(now - at);
        last = taken;
        at = now;
    }
    qsort(slice, slices, sizeof(slice[0]), compare_double);
    double rate = (double)(last - begin) * 1e9 / (double)(at - start);
    /* On a crowded machine most slices may be empty. */
    double tenth = slice[slices - 1 - slices / 10];
    *quiet = tenth > rate ? tenth : rate;
    return rate;
}

struct direct_figures {
    double rate, quiet, longest_ms;
};

static void run_lives(struct direct_run *run, bool held, struct direct_figures *out)
{
    const struct bench *b = run->b;
    uint32_t n = run->producers, m = run->consumers, lanes = n + m + held;
    pid_t child[LANES];
    run->d.yields = lanes - held > b->cores;
    for (run->number = 0; run->number < lanes; run->number++) {
        bool holder = run->number == n + m;
        uint32_t core = run->number < n ? 0 : 1;
        if (b->cores >= n + m)
            core = run->number % (n + m);
        child[run->number] = bench_spawn(bench_core(holder ? 0 : core),
                                         run->number < n ? producer_child
                                         : holder        ? holder_child
                                                         : consumer_child,
                                         run);
        bench_await(&run->ready, run->number + 1, "direct");
    }
    pawl_store_rel_u32(&run->go, 1);
    if (held)
        bench_await(&run->holding, 1, "holder of a lease");
    bench_pause((uint64_t)(b->seconds * 0.2e9));
    out->rate = watch(run, &out->quiet);
    pawl_store_rel_u32(&run->stop, 1);
    for (uint32_t i = 0; i < n; i++)
        bench_join(child[i], "direct producer");
    if (held)
        bench_join(child[n + m], "holder of a lease");
    uint64_t sent = sum_of(run, 0, n, false), end = bench_now() + 30 * PAWL_NS_S;
    while (sum_of(run, n, m + held, true) < sent && bench_now() < end)
        bench_pause(1000000);
    if (sum_of(run, n, m + held, true) != sent)
        bench_fail("direct: %llu messages were sent and %llu came", (unsigned long long)sent,
                   (unsigned long long)sum_of(run, n, m + held, true));
    pawl_store_rel_u32(&run->stop, 2);
    out->longest_ms = 0;
    for (uint32_t i = n; i < n + m; i++) {
        bench_join(child[i], "direct consumer");
        double ms = (double)run->of[i].longest_ns / 1e6;
        out->longest_ms = ms > out->longest_ms ? ms : out->longest_ms;
    }
    check_all(run, lanes);
}

struct direct_case {
    const char *name;
    bool api;
    uint32_t body_bytes, capacity, batch, clients; /* as many producers as consumers */
    double aim;
};

static void measure(const struct bench *b, const struct direct_case *c, bool held,
                    struct direct_figures *out)
{
    struct direct_run *run = run_new(b, c->api, false, c->capacity, c->body_bytes, 1);
    run->batch = c->batch;
    run->producers = run->consumers = c->clients;
    run_lives(run, held, out);
    run_free(run);
}

/* The bare ring gets as much memory as the slots have, up to a power of two. */
static uint64_t bare_bytes(const struct direct_case *c)
{
    uint64_t bytes = 65536, want = (uint64_t)c->capacity * (32 + c->body_bytes);
    while (bytes < want)
        bytes *= 2;
    return bytes;
}

static void throughput_case(const struct bench *b, const struct direct_case *c)
{
    struct bench_result rate, bare, ratio, lines, pause;
    bench_result_init(&rate, "throughput", "lives/s", "%s", c->name);
    bench_result_init(&bare, "throughput", "messages/s", "%s_bare_ring", c->name);
    bench_result_init(&ratio, "throughput", "of the bare ring", "%s_ratio", c->name);
    bench_result_init(&lines, "throughput", "ways of a line a life", "%s_lines", c->name);
    bench_result_init(&pause, "throughput", "ms", "%s_longest_pause", c->name);
    rate.cores = bare.cores = ratio.cores = lines.cores = pause.cores = 2 * c->clients;
    if (c->aim > 0)
        bench_result_aim(&rate, "value", BENCH_AT_LEAST, c->aim);
    struct pawl_histogram *h = malloc(sizeof(*h));
    struct bench_repeats r = { 0 };
    while (h != NULL && bench_wanted(b, "throughput", c->name) && bench_repeat_next(b, &r)) {
        struct direct_figures f;
        double plain = 0;
        bench_line_way(b, h);
        if (c->clients == 1)
            plain = bench_bare_ring(b, c->body_bytes, c->batch, bare_bytes(c));
        measure(b, c, false, &f);
        if (!bench_repeat_keep(b, &r))
            continue;
        double line = (double)pawl_histogram_percentile(h, 0.5);
        bench_result_value(&rate, f.rate);
        bench_result_value(&lines, 1e9 / f.rate / line);
        if (plain > 0) {
            bench_result_value(&bare, plain);
            bench_result_value(&ratio, f.rate / plain);
        }
        bench_result_value(&pause, f.longest_ms);
        bench_result_note(&rate, "a line takes %.0f ns one way", line);
    }
    free(h);
    rate.far = bare.far = ratio.far = lines.far = pause.far = r.far;
    bench_result_print(b, &rate);
    bench_result_print(b, &bare);
    bench_result_print(b, &ratio);
    bench_result_print(b, &lines);
    bench_result_print(b, &pause);
}

/* One consumer holds a lease throughout; the others go on. --seconds 60: for a minute. */
static void held_case(const struct bench *b)
{
    const struct direct_case c = { "direct_64_lease_held", true, 64, 1024, 1, 1, 0 };
    struct bench_result kept;
    bench_result_init(&kept, "throughput", "%", "%s", c.name);
    bench_result_aim(&kept, "value", BENCH_AT_LEAST, 80);
    bench_result_note(&kept,
                      "rate while one lease is held for %.1f s, of that without; quiet tenths",
                      b->seconds);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "throughput", c.name) && bench_repeat_next(b, &r)) {
        struct direct_figures without, with;
        measure(b, &c, false, &without);
        measure(b, &c, true, &with);
        if (bench_repeat_keep(b, &r))
            bench_result_value(&kept, 100 * with.quiet / without.quiet);
    }
    kept.far = r.far;
    bench_result_print(b, &kept);
}

void bench_direct_throughput(const struct bench *b)
{
    static const struct direct_case cases[] = {
        { "direct_64_single", true, 64, 1024, 1, 1, 15e6 },
        { "direct_64_batch_32", true, 64, 1024, 32, 1, 0 },
        { "direct_64_batch_32_1m", true, 64, 8192, 32, 1, 0 },
        { "direct_64_batch_32_4m", true, 64, 32768, 32, 1, 0 },
        { "direct_64_batch_32_8m", true, 64, 65536, 32, 1, 60e6 },
        { "direct_1024_single", true, 1024, 1024, 1, 1, 6e6 },
        { "direct_1024_batch_32", true, 1024, 1024, 32, 1, 0 },
        { "direct_1024_batch_32_8m", true, 1024, 8192, 32, 1, 24e6 },
        { "direct_64_2x2", true, 64, 1024, 1, 2, 0 },
        { "direct_ring_64_single", false, 64, 1024, 1, 1, 15e6 },
        { "direct_ring_64_batch_32_8m", false, 64, 65536, 32, 1, 60e6 },
        { "direct_ring_1024_single", false, 1024, 1024, 1, 1, 6e6 },
        { "direct_ring_1024_batch_32_8m", false, 1024, 8192, 32, 1, 24e6 },
    };
    if (b->cores < 2) {
        bench_say(b, "NEEDS_CORES: direct queues spin on 2 cores, here is one: left out");
        return;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        throughput_case(b, &cases[i]);
    held_case(b);
}
