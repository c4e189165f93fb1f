/* SPDX-License-Identifier: MIT */
/* txn: consume, compute, produce as one: a transaction of an acknowledgement, three sends and two
 * writes of a table.
 *
 * Each client feeds itself: of the three messages that it sends, one goes into its own queue and is
 * the next that it receives, two go into a queue that is emptied outside the timing. It commits one
 * transaction at a time, so that its latency is that of one group record and one flush; the rate of
 * sixteen clients shows what they share of it. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/atomic.h"

#define CLIENTS_MAX 16u

struct txn_run {
    const struct bench *b;
    struct bench_broker broker;
    uint32_t ready, go, stop;
    uint32_t number; /* the next child's, set before it is forked */
    uint32_t mode;
    struct {
        uint64_t commits __attribute__((aligned(PAWL_LINE)));
        struct pawl_histogram h;
    } of[CLIENTS_MAX];
};

struct one {
    const char *own, *key;
    struct pawl_token token;
    const uint8_t *body;
    size_t bytes;
};

/* ack + 3 sends + 2 writes. */
static int fill(struct pawl_txn *txn, const struct one *o)
{
    int rc = pawl_txn_ack(txn, &o->token, 0);
    if (rc == PAWL_OK)
        rc = pawl_txn_send(txn, o->own, o->body, o->bytes, NULL, NULL);
    for (int i = 0; i < 2 && rc == PAWL_OK; i++)
        rc = pawl_txn_send(txn, "out", o->body, o->bytes, NULL, NULL);
    if (rc == PAWL_OK)
        rc = pawl_txn_add(txn, "state", o->key, strlen(o->key), 1, INT64_MIN, INT64_MAX);
    if (rc == PAWL_OK)
        rc = pawl_txn_put(txn, "state", "last", 4, o->body, o->bytes, PAWL_ANY);
    return rc;
}

static void commit_one(struct pawl *lane, const struct one *o)
{
    struct pawl_txn *txn;
    bench_must(lane, pawl_txn_begin(lane, NULL, &txn), "begin");
    bench_must(lane, fill(txn, o), "steps");
    bench_must(lane, pawl_txn_commit(txn, NULL), "commit");
}

static void client_child(void *arg)
{
    struct txn_run *run = arg;
    uint32_t me = run->number;
    char own[32], key[32];
    uint8_t body[64];
    struct pawl *lane = bench_client(&run->broker, NULL);
    snprintf(own, sizeof(own), "in-%u", me);
    snprintf(key, sizeof(key), "count-%u", me);
    memset(body, 0x5a, sizeof(body));
    bench_queue(lane, own, run->mode);
    struct one o = { .own = own, .key = key, .body = body, .bytes = sizeof(body) };
    bench_must(lane, pawl_send(lane, own, body, sizeof(body), NULL, NULL), "send");
    pawl_histogram_init(&run->of[me].h);
    pawl_add_seq_u32(&run->ready, 1);
    while (pawl_load_acq_u32(&run->stop) == 0) {
        struct pawl_message m;
        bench_must(lane, pawl_receive(lane, own, NULL, &m), "receive");
        o.token = m.token;
        uint64_t start = bench_now();
        commit_one(lane, &o);
        if (pawl_load_acq_u32(&run->go) != 0) {
            pawl_histogram_add(&run->of[me].h, bench_now() - start);
            pawl_store_rel_u64(&run->of[me].commits, run->of[me].commits + 1);
        }
    }
    pawl_close(lane);
}

static double one_repeat(const struct bench *b, struct txn_run *run, uint32_t clients,
                         struct pawl_histogram *h)
{
    struct bench_broker_options bo = { .core = b->broker_core };
    bench_broker_start(b, &run->broker, &bo);
    struct pawl *lane = bench_client(&run->broker, NULL);
    bench_queue(lane, "out", run->mode);
    bench_must(lane, pawl_table_create(lane, "state", NULL), "table");
    pid_t child[CLIENTS_MAX];
    for (run->number = 0; run->number < clients; run->number++) {
        child[run->number] = bench_spawn(b->client_core, client_child, run);
        bench_await(&run->ready, run->number + 1, "clients");
    }
    bench_pause((uint64_t)(b->seconds * 0.2e9)); /* warm-up */
    bench_must(lane, pawl_queue_purge(lane, "out", NULL), "purge");
    uint64_t start = bench_now();
    pawl_store_rel_u32(&run->go, 1);
    bench_pause((uint64_t)(b->seconds * 1e9));
    uint64_t commits = 0;
    for (uint32_t i = 0; i < clients; i++)
        commits += pawl_load_acq_u64(&run->of[i].commits);
    double rate = (double)commits * 1e9 / (double)(bench_now() - start);
    pawl_store_rel_u32(&run->stop, 1);
    for (uint32_t i = 0; i < clients; i++) {
        bench_join(child[i], "client");
        pawl_histogram_merge(h, &run->of[i].h);
    }
    pawl_close(lane);
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
    return rate;
}

static void measure(const struct bench *b, const char *name, uint32_t mode, uint32_t clients)
{
    struct bench_result rate, latency;
    bench_result_init(&rate, "txn", "txn/s", "%s_%u_clients", name, clients);
    bench_result_init(&latency, "txn", "us", "%s_%u_clients_latency", name, clients);
    struct bench_repeats r = { 0 };
    struct pawl_histogram *h = malloc(sizeof(*h));
    if (h == NULL)
        bench_fail("no memory");
    while (bench_wanted(b, "txn", rate.name) && bench_repeat_next(b, &r)) {
        struct txn_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->mode = mode;
        pawl_histogram_init(h);
        double value = one_repeat(b, run, clients, h);
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

/* Tables are durable, so every one of these waits for the disk; memory queues only spare it the
 * bodies. */
void bench_txn(const struct bench *b)
{
    measure(b, "durable", PAWL_DURABLE, 1);
    measure(b, "durable", PAWL_DURABLE, CLIENTS_MAX);
    measure(b, "memory_queues", PAWL_MEMORY, CLIENTS_MAX);
}
