/* SPDX-License-Identifier: MIT */
/* Queues with leases and acknowledgements. A life is: sent and answered, leased, acknowledged.
 *
 * In turn: one client, one message after the other. In batches: a producer and a consumer, each
 * batch sent, taken and acknowledged by the peer's best means, of 64, 256 or 1,024 messages,
 * whatever was fastest in the first round. Durable besides: one send at a time, and 16 producers
 * with one send each. The server has one core, the clients the other. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "abi/atomic.h"
#include "peers.h"

extern const struct peer_queue queue_pawl, queue_redis, queue_beanstalkd, queue_nats,
    queue_rabbitmq, queue_rabbitmq_quorum, queue_postgres, queue_sqlite;

/* pawl first: it is measured again before each of the others. */
static const struct peer_queue *const queues[] = {
    &queue_pawl,     &queue_redis,           &queue_beanstalkd, &queue_nats,
    &queue_rabbitmq, &queue_rabbitmq_quorum, &queue_postgres,   &queue_sqlite,
};
#define QUEUES (sizeof(queues) / sizeof(queues[0]))
#define MANY 16u

enum figure { IN_TURN, BATCH_64, BATCH_1024, ONE_SEND, MANY_SENDS, FIGURES };
static const char *const figure_names[FIGURES] = { "in_turn", "batch_64", "batch_1024", "send",
                                                   "16_producers" };
static const char *const figure_words[FIGURES] = { "lives one after the other",
                                                   "lives in batches, 64 B",
                                                   "lives in batches, 1 KiB", "p50 of one send",
                                                   "16 producers" };

struct queue_run {
    const struct bench *b;
    const struct peer_queue *q;
    const char *dir;
    bool durable;
    uint32_t body_bytes, batch;
    double seconds;
    uint32_t ready, go, stop, number;
    uint64_t sent __attribute__((aligned(PAWL_LINE)));
    uint64_t acked __attribute__((aligned(PAWL_LINE)));
    uint64_t count, took_ns;
    uint64_t sends[MANY];
    struct pawl_histogram h;
};

/* --- the work -------------------------------------------------------------------------------- */

static uint64_t span(const struct queue_run *run, double share)
{
    return (uint64_t)(run->seconds * share * 1e9);
}

static void turn_child(void *arg)
{
    struct queue_run *run = arg;
    char body[PEER_BODY_MAX];
    memset(body, 'x', sizeof(body));
    void *h = run->q->open(run->dir, run->durable);
    uint64_t warm = bench_now() + span(run, 0.2), start = 0, now = bench_now(), end = UINT64_MAX;
    while (now < end) {
        run->q->send(h, body, 64, 1);
        while (run->q->take(h, 1) == 0)
            ;
        run->q->ack(h);
        now = bench_now();
        if (start != 0) {
            run->count++;
        } else if (now >= warm) {
            start = now;
            end = now + span(run, 1);
        }
    }
    run->took_ns = now - start;
    run->q->close(h);
}

static void send_child(void *arg)
{
    struct queue_run *run = arg;
    char body[PEER_BODY_MAX];
    memset(body, 'x', sizeof(body));
    void *h = run->q->open(run->dir, run->durable);
    uint64_t warm = bench_now() + span(run, 0.2), end = warm + span(run, 1), now;
    do {
        uint64_t before = bench_now();
        run->q->send(h, body, 64, 1);
        now = bench_now();
        if (before >= warm)
            pawl_histogram_add(&run->h, now - before);
    } while (now < end || run->h.count == 0);
    run->q->close(h);
}

static void many_child(void *arg)
{
    struct queue_run *run = arg;
    uint32_t me = run->number;
    char body[PEER_BODY_MAX];
    memset(body, 'x', sizeof(body));
    void *h = run->q->open(run->dir, run->durable);
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        run->q->send(h, body, 64, 1);
        if (pawl_load_acq_u32(&run->go) != 0)
            pawl_store_rel_u64(&run->sends[me], run->sends[me] + 1);
    }
    run->q->close(h);
}

static void producer_child(void *arg)
{
    struct queue_run *run = arg;
    char body[PEER_BODY_MAX];
    memset(body, 'x', sizeof(body));
    void *h = run->q->open(run->dir, run->durable);
    uint64_t sent = 0;
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        /* Nothing else holds a producer of a queue in memory. */
        if (sent - pawl_load_acq_u64(&run->acked) > 4ull * run->batch) {
            bench_pause(50000);
            continue;
        }
        run->q->send(h, body, run->body_bytes, run->batch);
        sent += run->batch;
        pawl_store_rel_u64(&run->sent, sent);
    }
    run->q->close(h);
    pawl_store_rel_u32(&run->stop, 2);
}

static void consumer_child(void *arg)
{
    struct queue_run *run = arg;
    void *h = run->q->open(run->dir, run->durable);
    pawl_add_seq_u32(&run->ready, 1);
    /* To the last one: the next measurement begins with an empty queue. */
    while (pawl_load_acq_u32(&run->stop) < 2 || run->acked < pawl_load_acq_u64(&run->sent)) {
        uint32_t n = run->q->take(h, run->batch);
        if (n == 0)
            continue;
        run->q->ack(h);
        pawl_store_rel_u64(&run->acked, run->acked + n);
    }
    run->q->close(h);
}

static double batches(struct queue_run *run, uint32_t body_bytes, uint32_t batch, double seconds)
{
    run->body_bytes = body_bytes;
    run->batch = batch;
    run->ready = run->stop = 0;
    run->sent = run->acked = 0;
    pid_t to = bench_spawn(run->b->client_core, consumer_child, run);
    pid_t from = bench_spawn(run->b->client_core, producer_child, run);
    bench_await(&run->ready, 2, run->q->name);
    bench_pause((uint64_t)(seconds * 0.2e9));
    uint64_t begin = pawl_load_acq_u64(&run->acked), start = bench_now();
    bench_pause((uint64_t)(seconds * 1e9));
    double rate =
        (double)(pawl_load_acq_u64(&run->acked) - begin) * 1e9 / (double)(bench_now() - start);
    pawl_store_rel_u32(&run->stop, 1);
    bench_join(from, run->q->name);
    bench_join(to, run->q->name);
    return rate;
}

static double many_sends(struct queue_run *run)
{
    pid_t child[MANY];
    run->ready = run->go = run->stop = 0;
    memset(run->sends, 0, sizeof(run->sends));
    for (run->number = 0; run->number < MANY; run->number++) {
        child[run->number] = bench_spawn(run->b->client_core, many_child, run);
        bench_await(&run->ready, run->number + 1, run->q->name);
    }
    bench_pause(span(run, 0.2));
    uint64_t start = bench_now(), all = 0;
    pawl_store_rel_u32(&run->go, 1);
    bench_pause(span(run, 1));
    for (uint32_t i = 0; i < MANY; i++)
        all += pawl_load_acq_u64(&run->sends[i]);
    double rate = (double)all * 1e9 / (double)(bench_now() - start);
    pawl_store_rel_u32(&run->stop, 1);
    for (uint32_t i = 0; i < MANY; i++)
        bench_join(child[i], run->q->name);
    return rate;
}

/* --- one peer -------------------------------------------------------------------------------- */

struct queue_results {
    struct bench_result r[2][FIGURES], of_pawl[2][FIGURES];
    uint32_t batch[2];
    bool absent;
};

/* figures: of this round, p50 for ONE_SEND; 0: not measured. */
static void measure(struct queue_run *run, bool durable, uint32_t *batch, double figures[FIGURES])
{
    static const uint32_t sizes[] = { 64, 256, 1024 };
    char dir[BENCH_PATH_BYTES + 32];
    peers_dir(run->b, dir, sizeof(dir));
    run->dir = dir;
    run->durable = durable;
    run->seconds = run->b->seconds;
    run->count = 0;
    pawl_histogram_init(&run->h);
    memset(figures, 0, FIGURES * sizeof(figures[0]));
    run->q->start(dir, durable, run->b->broker_core);
    bench_join(bench_spawn(run->b->client_core, turn_child, run), run->q->name);
    figures[IN_TURN] = (double)run->count * 1e9 / (double)run->took_ns;
    double best = 0;
    for (int i = 0; i < 3 && *batch == 0; i++) {
        double rate = batches(run, 64, sizes[i], run->seconds * 0.4);
        if (rate > best * 1.03) {
            best = rate;
            run->number = sizes[i];
        }
    }
    if (*batch == 0)
        *batch = best > 0 ? run->number : 64;
    figures[BATCH_64] = batches(run, 64, *batch, run->seconds);
    figures[BATCH_1024] = batches(run, 1024, *batch, run->seconds);
    if (durable) {
        bench_join(bench_spawn(run->b->client_core, send_child, run), run->q->name);
        figures[ONE_SEND] = (double)pawl_histogram_percentile(&run->h, 0.5) / 1000;
        figures[MANY_SENDS] = many_sends(run);
    }
    run->q->stop();
    bench_tree_remove(dir);
}

static void keep(struct queue_results *r, bool durable, const double figures[FIGURES],
                 const struct pawl_histogram *h)
{
    for (int i = 0; i < FIGURES; i++) {
        if (i == ONE_SEND && durable)
            bench_result_histogram(&r->r[durable][i], h, 1000);
        else if (i != ONE_SEND && figures[i] > 0)
            bench_result_value(&r->r[durable][i], figures[i]);
    }
}

/* How many times better than pawl just before it. */
static void compare(struct queue_results *r, bool durable, const double pawl[FIGURES],
                    const double figures[FIGURES])
{
    for (int i = 0; i < FIGURES; i++)
        if (figures[i] > 0 && pawl[i] > 0)
            bench_result_value(&r->of_pawl[durable][i],
                               i == ONE_SEND ? pawl[i] / figures[i] : figures[i] / pawl[i]);
}

static void one_queue(const struct bench *b, const struct peer_queue *q, struct queue_results *r,
                      struct queue_results *of_pawl, struct queue_run *run)
{
    double pawl[FIGURES], figures[FIGURES];
    run->b = b;
    for (int durable = 0; durable < 2; durable++) {
        if (!(durable ? q->has_durable : q->has_volatile))
            continue;
        run->q = &queue_pawl;
        measure(run, durable, &of_pawl->batch[durable], pawl);
        keep(of_pawl, durable, pawl, &run->h);
        run->q = q;
        measure(run, durable, &r->batch[durable], figures);
        keep(r, durable, figures, &run->h);
        compare(r, durable, pawl, figures);
    }
}

/* --- tables ---------------------------------------------------------------------------------- */

static const char *cell(const struct bench_result *r, char out[16])
{
    if (r->repeats == 0)
        return "";
    return peers_figure(bench_median(r->value, r->repeats), out);
}

static const char *title(const struct peer_queue *q, char out[128])
{
    char v[64] = "";
    if (q->version != NULL)
        q->version(v, sizeof(v));
    snprintf(out, 128, "%s %s", q->name, v);
    return out;
}

static void table_volatile(FILE *to, struct queue_results *all)
{
    char a[16], c[16], d[16], name[128];
    fprintf(to, "\n## Send, lease, acknowledge; nothing on disk\n\nLives a second.\n\n"
                "| system | one after the other | best batches, 64 B | 1 KiB | batch | in batches "
                "of 64 B, of pawl just before |\n|---|--:|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < QUEUES; i++) {
        struct bench_result *r = all[i].r[0], *of = &all[i].of_pawl[0][BATCH_64];
        if (r[IN_TURN].repeats == 0)
            continue;
        fprintf(to, "| %s | %s | %s | %s | %u |", title(queues[i], name), cell(&r[IN_TURN], a),
                cell(&r[BATCH_64], c), cell(&r[BATCH_1024], d), all[i].batch[0]);
        if (of->repeats > 0)
            fprintf(to, " %.2f |\n", bench_median(of->value, of->repeats));
        else
            fprintf(to, " |\n");
    }
}

static void table_durable(FILE *to, struct queue_results *all)
{
    char a[16], c[16], d[16], e[16], name[128];
    fprintf(to,
            "\n## The same, flushed before the answer as strictly as each can\n\n"
            "One send at a time in us, 64 B; 16 producers in sends a second; batches in lives a "
            "second.\n\n| system | send p50 | p99 | p99.9 | max | 16 producers | one life after "
            "the other | best batches, 64 B | 1 KiB | batch | what its durable means |\n"
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < QUEUES; i++) {
        struct bench_result *r = all[i].r[1], *s = &r[ONE_SEND];
        if (r[IN_TURN].repeats == 0)
            continue;
        uint32_t n = s->repeats;
        fprintf(to, "| %s | %.0f | %.0f | %.0f | %.0f | %s | %s | %s | %s | %u | %s |\n",
                title(queues[i], name), bench_median(s->p50, n), bench_median(s->p99, n),
                bench_median(s->p999, n), bench_median(s->max, n), cell(&r[MANY_SENDS], a),
                cell(&r[IN_TURN], e), cell(&r[BATCH_64], c), cell(&r[BATCH_1024], d),
                all[i].batch[1], queues[i]->real);
    }
}

static void where_pawl_loses(FILE *to, struct queue_results *all)
{
    uint32_t n = 0;
    fprintf(to, "\n## Where pawl loses\n\nWherever another one was better than pawl just before "
                "it, in the median of the rounds:\n\n");
    for (size_t i = 1; i < QUEUES; i++) {
        for (int durable = 0; durable < 2; durable++) {
            for (int f = 0; f < FIGURES; f++) {
                struct bench_result *of = &all[i].of_pawl[durable][f];
                double times = bench_median(of->value, of->repeats);
                if (of->repeats == 0 || times <= 1)
                    continue;
                fprintf(to, "- %s, %s, %s: %.2f times pawl\n", queues[i]->name,
                        durable ? "durable" : "volatile", figure_words[f], times);
                n++;
            }
        }
    }
    if (n == 0)
        fprintf(to, "- nowhere in this run\n");
    fprintf(to, "\nHow each was run:\n\n");
    for (size_t i = 0; i < QUEUES; i++)
        if (all[i].r[0][IN_TURN].repeats > 0 || all[i].r[1][IN_TURN].repeats > 0)
            fprintf(to, "- %s: %s\n", queues[i]->name, queues[i]->settings);
}

static void results_init(struct queue_results *all, const struct peer_queue *q)
{
    char slug[48];
    peers_slug(q->name, slug, sizeof(slug));
    for (int d = 0; d < 2; d++) {
        const char *kind = d ? "durable" : "volatile";
        for (int f = 0; f < FIGURES; f++) {
            const char *unit = f == ONE_SEND ? "us" : f == MANY_SENDS ? "sends/s" : "lives/s";
            bench_result_init(&all->r[d][f], "peers", unit, "queue_%s_%s_%s", slug, kind,
                              figure_names[f]);
            bench_result_init(&all->of_pawl[d][f], "peers", "times pawl", "queue_%s_%s_%s_of_pawl",
                              slug, kind, figure_names[f]);
        }
    }
}

void peers_queues(const struct bench *b, FILE *to)
{
    static struct queue_results all[QUEUES];
    struct queue_run *run = bench_share(sizeof(*run));
    for (size_t i = 0; i < QUEUES; i++)
        results_init(&all[i], queues[i]);
    for (uint32_t k = 0; k < b->repeats; k++)
        for (size_t i = 1; i < QUEUES; i++)
            if (bench_wanted(b, "peers", all[i].r[0][IN_TURN].name) ||
                bench_wanted(b, "peers", all[i].r[1][IN_TURN].name))
                one_queue(b, queues[i], &all[i], &all[0], run);
    table_volatile(to, all);
    table_durable(to, all);
    where_pawl_loses(to, all);
    for (size_t i = 0; i < QUEUES; i++)
        for (int d = 0; d < 2; d++)
            for (int f = 0; f < FIGURES; f++) {
                bench_result_print(b, &all[i].r[d][f]);
                bench_result_print(b, &all[i].of_pawl[d][f]);
            }
    bench_unshare(run, sizeof(*run));
}
