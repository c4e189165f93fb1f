/* SPDX-License-Identifier: MIT */
/* Hops: one message to and fro between two processes, then a stream of them. The way is from before
 * the send until the message is in the other's hand. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

extern const struct peer_hop hop_pawl, hop_direct, hop_direct_asleep, hop_mq, hop_unix, hop_pipe,
    hop_zmq, hop_nng, hop_boost, hop_boost_spin, hop_iceoryx;

/* pawl first: it is measured again before each of the others. */
static const struct peer_hop *const hops[] = { &hop_pawl,       &hop_direct, &hop_direct_asleep,
                                               &hop_mq,         &hop_unix,   &hop_pipe,
                                               &hop_zmq,        &hop_nng,    &hop_boost,
                                               &hop_boost_spin, &hop_iceoryx };
#define HOPS (sizeof(hops) / sizeof(hops[0]))

struct hop_run {
    const struct bench *b;
    const struct peer_hop *hop;
    const char *dir;
    bool streams;
    struct pawl_histogram way;
    double rate[2]; /* 64 B, 1 KiB */
};

enum { TURN, LAST };

/* body: moment, kind, whether it counts */
static void first_child(void *arg)
{
    struct hop_run *run = arg;
    uint64_t body[PEER_BODY_MAX / 8] = { 0 };
    void *h = run->hop->open(run->dir, 0);
    uint64_t warm = bench_now() + (uint64_t)(run->b->seconds * 0.2e9);
    uint64_t end = warm + (uint64_t)(run->b->seconds * 1e9);
    for (bool last = false; !last;) {
        uint64_t now = bench_now();
        last = now >= end;
        body[0] = now;
        body[1] = last ? LAST : TURN;
        body[2] = now >= warm;
        run->hop->send(h, body, 64);
        run->hop->receive(h, body, 64);
    }
    for (int i = 0; i < 2 && run->streams; i++) {
        end = bench_now() + (uint64_t)(run->b->seconds * 1e9);
        body[1] = TURN;
        for (uint32_t n = 0; n % 64 != 0 || bench_now() < end; n++)
            run->hop->send(h, body, i == 0 ? 64 : 1024);
        body[1] = LAST;
        run->hop->send(h, body, i == 0 ? 64 : 1024);
        run->hop->receive(h, body, 64); /* the other side is through */
    }
    run->hop->close(h);
}

static void second_child(void *arg)
{
    struct hop_run *run = arg;
    uint64_t body[PEER_BODY_MAX / 8];
    void *h = run->hop->open(run->dir, 1);
    do {
        run->hop->receive(h, body, 64);
        uint64_t now = bench_now();
        if (body[2] != 0)
            pawl_histogram_add(&run->way, now - body[0]);
        run->hop->send(h, body, 64);
    } while (body[1] != LAST);
    for (int i = 0; i < 2 && run->streams; i++) {
        uint64_t n = 0, start = 0;
        do {
            run->hop->receive(h, body, i == 0 ? 64 : 1024);
            if (n++ == 0)
                start = bench_now();
        } while (body[1] != LAST);
        run->rate[i] = (double)(n - 1) * 1e9 / (double)(bench_now() - start);
        run->hop->send(h, body, 64);
    }
    run->hop->close(h);
}

static void measure(struct hop_run *run, bool one_core)
{
    const struct bench *b = run->b;
    char dir[BENCH_PATH_BYTES + 32];
    peers_dir(b, dir, sizeof(dir));
    run->dir = dir;
    run->streams = !one_core;
    pawl_histogram_init(&run->way);
    int first = one_core ? b->client_core : b->broker_core, second = b->client_core;
    /* The broker has a core; its two clients share the other one. */
    int server = one_core ? b->client_core : b->broker_core;
    if (run->hop == &hop_pawl)
        first = second;
    if (run->hop->prepare != NULL)
        run->hop->prepare(dir, server);
    pid_t b_side = bench_spawn(second, second_child, run);
    pid_t a_side = bench_spawn(first, first_child, run);
    bench_join(a_side, run->hop->name);
    bench_join(b_side, run->hop->name);
    if (run->hop->done != NULL)
        run->hop->done(dir);
    bench_tree_remove(dir);
}

struct hop_results {
    struct bench_result way, one_core, rate[2], pawl;
};

static void results_init(struct hop_results *r, const struct peer_hop *hop)
{
    char slug[48];
    peers_slug(hop->name, slug, sizeof(slug));
    if (hop->idle[0] == 's')
        snprintf(slug + strlen(slug), sizeof(slug) - strlen(slug), "_spin");
    bench_result_init(&r->way, "peers", "us", "hop_%s", slug);
    bench_result_init(&r->one_core, "peers", "us", "hop_%s_one_core", slug);
    bench_result_init(&r->rate[0], "peers", "messages/s", "hop_%s_64", slug);
    bench_result_init(&r->rate[1], "peers", "messages/s", "hop_%s_1024", slug);
    bench_result_init(&r->pawl, "peers", "us", "hop_pawl_beside_%s", slug);
    r->one_core.cores = 1;
}

static void one_hop(const struct bench *b, const struct peer_hop *hop, struct hop_results *r,
                    struct hop_run *run)
{
    run->b = b;
    if (hop != &hop_pawl) {
        run->hop = &hop_pawl;
        measure(run, false);
        bench_result_histogram(&r->pawl, &run->way, 1000);
    }
    run->hop = hop;
    if (b->cores >= 2 || hop->idle[0] == 'a') {
        measure(run, false);
        bench_result_histogram(&r->way, &run->way, 1000);
        bench_result_value(&r->rate[0], run->rate[0]);
        bench_result_value(&r->rate[1], run->rate[1]);
    }
    if (hop->idle[0] == 'a') {
        measure(run, true);
        bench_result_histogram(&r->one_core, &run->way, 1000);
    }
}

static void row(FILE *to, const struct peer_hop *hop, struct hop_results *r)
{
    char v[64] = "", a[16], c[16];
    if (r->way.repeats == 0)
        return;
    if (hop->version != NULL)
        hop->version(v, sizeof(v));
    uint32_t n = r->way.repeats;
    fprintf(to, "| %s %s | %s | %.2f | %.2f | %.1f | %.0f |", hop->name, v, hop->idle,
            bench_median(r->way.p50, n), bench_median(r->way.p99, n), bench_median(r->way.p999, n),
            bench_median(r->way.max, n));
    if (r->one_core.repeats > 0)
        fprintf(to, " %.2f |", bench_median(r->one_core.p50, n));
    else
        fprintf(to, " |");
    fprintf(to, " %s | %s |", peers_figure(bench_median(r->rate[0].value, n), a),
            peers_figure(bench_median(r->rate[1].value, n), c));
    if (r->pawl.repeats > 0)
        fprintf(to, " %.2f |\n", bench_median(r->pawl.p50, n));
    else
        fprintf(to, " |\n");
}

void peers_hops(const struct bench *b, FILE *to)
{
    static struct hop_results r[HOPS];
    struct hop_run *run = bench_share(sizeof(*run));
    for (size_t i = 0; i < HOPS; i++)
        results_init(&r[i], hops[i]);
    for (uint32_t k = 0; k < b->repeats; k++)
        for (size_t i = 0; i < HOPS; i++)
            if (bench_wanted(b, "peers", r[i].way.name))
                one_hop(b, hops[i], &r[i], run);
    fprintf(to, "\n## One hop between two processes\n\n"
                "64 B; us; none but pawl leases or acknowledges. Two cores, in the last column of "
                "latencies one.\n\n"
                "| system | waiting | p50 | p99 | p99.9 | max | p50, one core | 64 B/s | 1 KiB/s | "
                "pawl p50 beside it |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < HOPS; i++) {
        row(to, hops[i], &r[i]);
        bench_result_print(b, &r[i].way);
        bench_result_print(b, &r[i].one_core);
        bench_result_print(b, &r[i].rate[0]);
        bench_result_print(b, &r[i].rate[1]);
        bench_result_print(b, &r[i].pawl);
    }
    bench_unshare(run, sizeof(*run));
}
