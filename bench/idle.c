/* SPDX-License-Identifier: MIT */
/* idle: what a broker and many clients that have nothing to do cost together. The clients sit in a
 * receive without end. They are given some seconds to lie down (the library looks more often in the
 * first second of a wait), then the processor time of all is read twice. */
#include "bench.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "abi/atomic.h"

struct idle_run {
    const struct bench *b;
    struct bench_broker broker;
    uint32_t ready;
};

static void idle_child(void *arg)
{
    struct idle_run *run = arg;
    struct bench_client_options o = { .ring_bytes = 64 << 10 };
    struct pawl *lane = bench_client(&run->broker, &o);
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    wait.wait_ns = PAWL_UNLIMITED;
    pawl_add_seq_u32(&run->ready, 1);
    bench_must(lane, pawl_receive(lane, "idle", &wait, &m), "receive");
    bench_fail("an idle client got a message");
}

static uint64_t cpu_of(const pid_t *pids, uint32_t n)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < n; i++)
        all += bench_cpu_ns(pids[i]);
    return all;
}

static void idle_repeat(struct idle_run *run, pid_t *pids, uint32_t n, double *broker,
                        double *clients, double *resident)
{
    const struct bench *b = run->b;
    struct bench_broker_options o = { .core = b->broker_core };
    bench_broker_start(b, &run->broker, &o);
    struct pawl *lane = bench_client(&run->broker, NULL);
    bench_queue(lane, "idle", PAWL_DURABLE);
    pawl_close(lane);
    double rss = (double)bench_rss_bytes(run->broker.pid);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = bench_spawn(-1, idle_child, run);
        if (i % 50 == 49)
            bench_await(&run->ready, i - 20, "idle clients");
    }
    bench_await(&run->ready, n, "idle clients");
    bench_pause(b->small ? PAWL_NS_S / 2 : 4 * PAWL_NS_S);
    uint64_t start = bench_now(), broker_cpu = bench_cpu_ns(run->broker.pid);
    uint64_t clients_cpu = cpu_of(pids, n);
    bench_pause(b->small ? PAWL_NS_S / 2 : 10 * PAWL_NS_S);
    broker_cpu = bench_cpu_ns(run->broker.pid) - broker_cpu;
    clients_cpu = cpu_of(pids, n) - clients_cpu;
    double took = (double)(bench_now() - start);
    *broker = (double)broker_cpu * 100 / took;
    *clients = (double)clients_cpu * 100 / took;
    *resident = ((double)bench_rss_bytes(run->broker.pid) - rss) / n / 1024;
    for (uint32_t i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
    for (uint32_t i = 0; i < n; i++)
        waitpid(pids[i], NULL, 0);
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
}

void bench_idle(const struct bench *b)
{
    uint32_t n = b->small ? 30 : 1000;
    struct bench_result together, broker, clients, resident;
    bench_result_init(&together, "idle", "% of a core", "broker_and_%u_clients", n);
    bench_result_init(&broker, "idle", "% of a core", "broker_with_%u_clients", n);
    bench_result_init(&clients, "idle", "% of a core", "%u_clients", n);
    bench_result_init(&resident, "idle", "KiB", "broker_resident_a_client_64k_rings");
    if (!b->small)
        bench_result_aim(&together, "value", BENCH_AT_MOST, 1);
    struct bench_repeats r = { 0 };
    pid_t *pids = calloc(n, sizeof(*pids));
    if (pids == NULL)
        bench_fail("no memory");
    while (bench_wanted(b, "idle", together.name) && bench_repeat_next(b, &r)) {
        struct idle_run *run = bench_share(sizeof(*run));
        double of_broker, of_clients, kib;
        run->b = b;
        idle_repeat(run, pids, n, &of_broker, &of_clients, &kib);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&together, of_broker + of_clients);
            bench_result_value(&broker, of_broker);
            bench_result_value(&clients, of_clients);
            bench_result_value(&resident, kib);
        }
        bench_unshare(run, sizeof(*run));
    }
    free(pids);
    together.far = broker.far = clients.far = resident.far = r.far;
    bench_result_print(b, &together);
    bench_result_print(b, &broker);
    bench_result_print(b, &clients);
    bench_result_print(b, &resident);
}
