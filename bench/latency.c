/* SPDX-License-Identifier: MIT */
/* latency: how long a message is on its way.
 *
 * One at a time: two processes play a message to and fro through two queues. Each message is
 * leased and acknowledged; the acknowledgement goes with the message back. `one_way` is from before
 * the send until the message is in the other's hand, `round_trip` until the answer is in the
 * sender's.
 *
 * On a schedule: producers send at moments that were fixed beforehand, whatever happens to the
 * messages before, and the latency counts from that moment: one that had to wait because its sender
 * was held up has waited all the same (no coordinated omission). `_sender_late` is the sender's own
 * share: from the moment until it handed the message over. */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "abi/atomic.h"
#include "schedule.h"

#define BATCH 256u
#define SPIN_NS (300ull * 1000) /* both sides: longer than a write takes */

static const char *mode_name(enum pawl_mode mode)
{
    return mode == PAWL_DURABLE ? "durable" : mode == PAWL_RELAXED ? "relaxed" : "memory";
}

/* Where things run, and what they do while they have nothing to do. */
struct placing {
    const char *suffix;
    int broker_core, client_core;
    bool spin;
};

struct latency_run {
    const struct bench *b;
    const struct placing *p;
    enum pawl_mode mode;
    struct bench_broker broker;
    uint32_t number; /* the next child's, set before it is forked */
    uint32_t ready, go, stop;
    uint64_t interval_ns; /* of one producer */
    uint64_t sent, received, took_ns;
    struct {
        struct pawl_histogram way, other; /* one writer each */
    } of[BENCH_PROCESSES_MAX];
};

/* With more cores than two the clients have all but the broker's. */
static int core_of(const struct latency_run *run, uint32_t client)
{
    const struct bench *b = run->b;
    if (run->p->client_core < 0 || b->cores <= 2)
        return run->p->client_core;
    uint32_t skip = 0;
    while (skip < b->cores && bench_core(skip) != run->p->broker_core)
        skip++;
    uint32_t i = client % (b->cores - 1);
    return bench_core(i >= skip ? i + 1 : i);
}

static struct pawl *open_client(const struct latency_run *run, uint32_t prefetch)
{
    struct bench_client_options o = { .spin_ns = run->p->spin ? SPIN_NS : 0, .prefetch = prefetch };
    return bench_client(&run->broker, &o);
}

/* The first eight bytes are the moment, the rest is there to be carried. */
static uint64_t *body_of(const struct latency_run *run)
{
    uint64_t *body = calloc(1, run->b->body_bytes + 8u);
    if (body == NULL)
        bench_fail("no memory");
    memset(body, 0x5a, run->b->body_bytes);
    return body;
}

/* Takes the answers that are there; returns how many. */
static uint64_t drain(struct pawl *lane)
{
    struct pawl_answer answers[BATCH];
    uint64_t all = 0;
    int n;
    do {
        n = bench_must(lane, pawl_poll(lane, answers, BATCH, 0, 0), "poll");
        for (int i = 0; i < n; i++)
            bench_must(lane, answers[i].result, "an answer");
        all += (uint64_t)n;
    } while (n == (int)BATCH);
    return all;
}

static void drain_all(struct pawl *lane, uint64_t open)
{
    while (open > 0) {
        struct pawl_answer a;
        if (bench_must(lane, pawl_poll(lane, &a, 1, 1, 60 * PAWL_NS_S), "poll") != 1)
            bench_fail("no answer within a minute");
        bench_must(lane, a.result, "an answer");
        open--;
    }
}

static void take(struct pawl *lane, const char *queue, struct pawl_message *m)
{
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    pawl_ticket ticket;
    wait.wait_ns = 30 * PAWL_NS_S;
    if (bench_must(lane, pawl_receive(lane, queue, &wait, m), "receive") != PAWL_OK)
        bench_fail("no message within 30 s");
    bench_must(lane, pawl_submit_ack(lane, &m->token, 0, &ticket), "ack");
}

/* --- one at a time --------------------------------------------------------------------------- */

static void pair_names(uint32_t i, char ping[16], char pong[16])
{
    snprintf(ping, 16, "ping%u", i);
    snprintf(pong, 16, "pong%u", i);
}

static void ping_child(void *arg)
{
    struct latency_run *run = arg;
    uint32_t me = run->number;
    struct pawl_histogram *trip = &run->of[me].other;
    struct pawl *lane = open_client(run, 0);
    uint64_t *body = body_of(run);
    char ping[16], pong[16];
    pair_names(me, ping, pong);
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->go) == 0)
        bench_pause(1000000);
    uint64_t warm = bench_now() + (uint64_t)(run->b->seconds * 0.2e9), now;
    uint64_t end = warm + (uint64_t)(run->b->seconds * 1e9);
    struct pawl_message m;
    struct pawl_sent sent;
    do {
        uint64_t before = bench_now();
        body[0] = before;
        body[1] = before >= warm;
        bench_must(lane, pawl_send(lane, ping, body, run->b->body_bytes, NULL, &sent), "send");
        take(lane, pong, &m);
        now = bench_now();
        if (before >= warm)
            pawl_histogram_add(trip, now - before);
        drain(lane);
    } while (now < end);
    body[0] = 0; /* the last one */
    bench_must(lane, pawl_send(lane, ping, body, run->b->body_bytes, NULL, &sent), "send");
    pawl_close(lane);
    free(body);
}

static void pong_child(void *arg)
{
    struct latency_run *run = arg;
    uint32_t me = run->number;
    struct pawl *lane = open_client(run, 0);
    uint64_t *body = body_of(run);
    char ping[16], pong[16];
    pair_names(me, ping, pong);
    pawl_add_seq_u32(&run->ready, 1);
    for (;;) {
        struct pawl_message m;
        struct pawl_sent sent;
        take(lane, ping, &m);
        uint64_t now = bench_now();
        const uint64_t *got = m.body;
        if (m.bytes != run->b->body_bytes)
            bench_fail("a message of %zu bytes came where %u were sent", m.bytes,
                       run->b->body_bytes);
        if (got[0] == 0)
            break;
        if (got[1] != 0)
            pawl_histogram_add(&run->of[me].way, now - got[0]);
        bench_must(lane, pawl_send(lane, pong, body, run->b->body_bytes, NULL, &sent), "send");
        drain(lane);
    }
    pawl_close(lane);
    free(body);
}

static void start_broker(struct latency_run *run)
{
    struct bench_broker_options o = { .core = run->p->broker_core,
                                      .spin_ns = run->p->spin ? SPIN_NS : 0,
                                      .memory = "4G" };
    bench_broker_start(run->b, &run->broker, &o);
}

static void stop_broker(struct latency_run *run)
{
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
}

static void pairs_repeat(struct latency_run *run)
{
    uint32_t n = run->b->processes;
    pid_t ping[BENCH_PROCESSES_MAX], pong[BENCH_PROCESSES_MAX];
    char a[16], c[16];
    start_broker(run);
    struct pawl *lane = bench_client(&run->broker, NULL);
    for (uint32_t i = 0; i < n; i++) {
        pair_names(i, a, c);
        bench_queue(lane, a, run->mode);
        bench_queue(lane, c, run->mode);
    }
    pawl_close(lane);
    for (uint32_t i = 0; i < n; i++) {
        run->number = i;
        pong[i] = bench_spawn(core_of(run, 2 * i), pong_child, run);
        ping[i] = bench_spawn(core_of(run, 2 * i + 1), ping_child, run);
        bench_await(&run->ready, 2 * i + 2, "pairs");
    }
    pawl_store_rel_u32(&run->go, 1);
    for (uint32_t i = 0; i < n; i++) {
        bench_join(ping[i], "sender");
        bench_join(pong[i], "answerer");
    }
    stop_broker(run);
}

/* --- on a schedule --------------------------------------------------------------------------- */

static void wait_until(const struct latency_run *run, uint64_t due)
{
    if (run->p->spin) {
        sched_yield();
        return;
    }
    struct timespec t = { .tv_sec = (time_t)(due / 1000000000ull),
                          .tv_nsec = (long)(due % 1000000000ull) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void schedule_child(void *arg)
{
    struct latency_run *run = arg;
    const struct bench *b = run->b;
    uint32_t me = run->number;
    struct pawl_histogram *late = &run->of[me].other;
    struct pawl *lane = open_client(run, 0);
    uint64_t *body = body_of(run);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* the kernel's 50 us of grace are not the broker's */
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->go) == 0)
        bench_pause(1000000);
    struct bench_schedule when;
    uint64_t offset = run->interval_ns * me / b->processes, sent = 0, answered = 0;
    bench_schedule_init(&when, bench_now() + offset, run->interval_ns, b->seconds);
    while (!bench_schedule_over(&when)) {
        uint64_t now = bench_now(), due;
        if (now < when.due) {
            answered += drain(lane);
            wait_until(run, when.due);
            continue;
        }
        /* All that is due, then one wake-up for them together; a full window waits in the call. */
        for (uint32_t i = 0; i < BATCH && bench_schedule_take(&when, now, &due); i++) {
            pawl_ticket ticket;
            body[0] = due;
            body[1] = due >= when.warm;
            bench_must(lane, pawl_submit_send(lane, "open", body, b->body_bytes, NULL, &ticket),
                       "send");
            sent++;
            if (body[1] != 0)
                pawl_histogram_add(late, now - due);
        }
        bench_must(lane, pawl_flush(lane), "flush");
        answered += drain(lane);
    }
    if (me == 0)
        run->took_ns = bench_now() - when.warm;
    drain_all(lane, sent - answered); /* what closes before its answer may not have been sent */
    __atomic_add_fetch(&run->sent, sent, __ATOMIC_SEQ_CST);
    pawl_close(lane);
    free(body);
}

static void hand_child(void *arg)
{
    struct latency_run *run = arg;
    struct pawl_histogram *way = &run->of[run->number].way;
    struct pawl *lane = open_client(run, run->b->credit);
    const char *queue = "open";
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message *m = calloc(BATCH, sizeof(*m));
    if (m == NULL)
        bench_fail("no memory");
    wait.wait_ns = PAWL_NS_S / 10;
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        uint32_t count = 0;
        bench_must(lane, pawl_receive_batch(lane, &queue, 1, &wait, m, BATCH, &count), "receive");
        uint64_t now = bench_now();
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t *got = m[i].body;
            pawl_ticket ticket;
            if (got[1] != 0)
                pawl_histogram_add(way, now - got[0]);
            bench_must(lane, pawl_submit_ack(lane, &m[i].token, 0, &ticket), "ack");
        }
        bench_must(lane, pawl_flush(lane), "flush");
        drain(lane);
        __atomic_add_fetch(&run->received, count, __ATOMIC_SEQ_CST);
    }
    pawl_close(lane);
    free(m);
}

static void schedule_repeat(struct latency_run *run)
{
    uint32_t n = run->b->processes;
    pid_t from[BENCH_PROCESSES_MAX], to[BENCH_PROCESSES_MAX];
    start_broker(run);
    struct pawl *lane = bench_client(&run->broker, NULL);
    bench_queue(lane, "open", run->mode);
    pawl_close(lane);
    for (uint32_t i = 0; i < n; i++) {
        run->number = i;
        to[i] = bench_spawn(core_of(run, 2 * i), hand_child, run);
        from[i] = bench_spawn(core_of(run, 2 * i + 1), schedule_child, run);
        bench_await(&run->ready, 2 * i + 2, "producers and consumers");
    }
    pawl_store_rel_u32(&run->go, 1);
    for (uint32_t i = 0; i < n; i++)
        bench_join(from[i], "producer");
    uint64_t end = bench_now() + 60 * PAWL_NS_S;
    while (pawl_load_acq_u64(&run->received) < run->sent && bench_now() < end)
        bench_pause(10000000);
    pawl_store_rel_u32(&run->stop, 1);
    for (uint32_t i = 0; i < n; i++)
        bench_join(to[i], "consumer");
    if (run->received != run->sent)
        bench_fail("%llu messages were sent and %llu came", (unsigned long long)run->sent,
                   (unsigned long long)run->received);
    stop_broker(run);
}

/* --- cases ----------------------------------------------------------------------------------- */

static void name_case(char out[64], const struct bench *b, const char *mode, const char *what,
                      const char *suffix)
{
    char size[16] = "", pairs[16] = "";
    if (b->body_bytes != 64)
        snprintf(size, sizeof(size), "_%u", b->body_bytes);
    if (b->processes != 1)
        snprintf(pairs, sizeof(pairs), "_x%u", b->processes);
    snprintf(out, 64, "%s_%s%s%s%s", mode, what, size, pairs, suffix);
}

static struct latency_run *run_new(const struct bench *b, const struct placing *p,
                                   enum pawl_mode mode)
{
    struct latency_run *run = bench_share(sizeof(*run));
    run->b = b;
    run->p = p;
    run->mode = mode;
    for (uint32_t i = 0; i < b->processes; i++) {
        pawl_histogram_init(&run->of[i].way);
        pawl_histogram_init(&run->of[i].other);
    }
    return run;
}

/* The two histograms of all clients, each together. */
static void collect(const struct latency_run *run, struct bench_result *way,
                    struct bench_result *other)
{
    struct pawl_histogram *h = calloc(2, sizeof(*h));
    if (h == NULL)
        bench_fail("no memory");
    pawl_histogram_init(&h[0]);
    pawl_histogram_init(&h[1]);
    for (uint32_t i = 0; i < run->b->processes; i++) {
        pawl_histogram_merge(&h[0], &run->of[i].way);
        pawl_histogram_merge(&h[1], &run->of[i].other);
    }
    bench_result_histogram(way, &h[0], 1000);
    bench_result_histogram(other, &h[1], 1000);
    free(h);
}

/* Spinning needs a core for each that spins; asleep two are enough for the hops to be real. */
static uint32_t cores_needed(const struct bench *b, const struct placing *p)
{
    return p->spin ? 1 + 2 * b->processes : 2;
}

static void one_at_a_time(const struct bench *b, const struct placing *p, enum pawl_mode mode)
{
    struct bench_result way, trip;
    char name[64];
    name_case(name, b, mode_name(mode), "one_way", p->suffix);
    bench_result_init(&way, "latency", "us", "%s", name);
    name_case(name, b, mode_name(mode), "round_trip", p->suffix);
    bench_result_init(&trip, "latency", "us", "%s", name);
    way.cores = trip.cores = cores_needed(b, p);
    struct bench_repeats r = { 0 };
    while ((bench_wanted(b, "latency", way.name) || bench_wanted(b, "latency", trip.name)) &&
           bench_repeat_next(b, &r)) {
        struct latency_run *run = run_new(b, p, mode);
        pairs_repeat(run);
        if (bench_repeat_keep(b, &r))
            collect(run, &way, &trip);
        bench_unshare(run, sizeof(*run));
    }
    way.far = trip.far = r.far;
    bench_result_print(b, &way);
    bench_result_print(b, &trip);
}

static void on_schedule(const struct bench *b, const struct placing *p, enum pawl_mode mode,
                        uint64_t rate)
{
    struct bench_result way, late;
    char name[64], what[40];
    snprintf(what, sizeof(what), "schedule_%llu", (unsigned long long)rate);
    name_case(name, b, mode_name(mode), what, p->suffix);
    bench_result_init(&way, "latency", "us", "%s", name);
    bench_result_init(&late, "latency", "us", "%s_sender_late", name);
    way.cores = late.cores = cores_needed(b, p);
    struct bench_repeats r = { 0 };
    double least = 0;
    while (bench_wanted(b, "latency", way.name) && bench_repeat_next(b, &r)) {
        struct latency_run *run = run_new(b, p, mode);
        run->interval_ns = PAWL_NS_S * b->processes / rate;
        schedule_repeat(run);
        double had = b->seconds * 1e9 / (double)run->took_ns;
        if (bench_repeat_keep(b, &r)) {
            collect(run, &way, &late);
            least = least == 0 || had < least ? had : least;
        }
        bench_unshare(run, sizeof(*run));
    }
    if (least < 0.98)
        bench_result_note(&way, "overload: as slow as %.0f %% of the wanted rate", 100 * least);
    way.far = late.far = r.far;
    bench_result_print(b, &way);
    bench_result_print(b, &late);
}

void bench_latency(const struct bench *b)
{
    static const uint64_t usual[] = { 1000, 10000, 50000 };
    const struct placing placings[] = {
        { "", b->broker_core, b->client_core, false },
        { "_spin", b->broker_core, b->client_core, true },
        { "_unpinned", -1, -1, false },
    };
    if ((b->modes & 1u << PAWL_DIRECT) != 0)
        bench_direct_latency(b);
    static const enum pawl_mode modes[] = { PAWL_DURABLE, PAWL_RELAXED, PAWL_MEMORY };
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if ((b->modes & 1u << modes[i]) == 0)
            continue;
        for (size_t k = 0; k < sizeof(placings) / sizeof(placings[0]); k++) {
            if (b->cores < 2 && placings[k].spin) {
                bench_say(b, "NEEDS_CORES: %s%s spins on %u cores, here is one: left out",
                          mode_name(modes[i]), placings[k].suffix, cores_needed(b, &placings[k]));
                continue;
            }
            one_at_a_time(b, &placings[k], modes[i]);
            for (size_t j = 0; b->rate == 0 && j < (b->small ? 1 : 3); j++)
                on_schedule(b, &placings[k], modes[i], usual[j]);
            if (b->rate > 0)
                on_schedule(b, &placings[k], modes[i], b->rate);
        }
    }
}
