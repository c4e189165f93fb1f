/* SPDX-License-Identifier: MIT */
/* death: a consumer that holds a message is killed with SIGKILL; how long until another consumer,
 * asleep in its receive, has the message in hand. Counted from just before kill(2), so the end of
 * the process in the kernel is in it. */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/atomic.h"

struct death_run {
    const struct bench *b;
    struct bench_broker broker;
    enum pawl_mode mode;
    uint32_t rounds;
    uint32_t held;     /* victims that hold their message */
    uint32_t armed;    /* rounds the heir may wait in */
    uint32_t got;      /* rounds in which the heir has the message */
    uint32_t heir_pid; /* to see that it sleeps */
    uint64_t got_at;
    struct pawl_histogram h;
};

static void heir_child(void *arg)
{
    struct death_run *run = arg;
    struct pawl *lane = bench_client(&run->broker, NULL);
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    wait.wait_ns = 30 * PAWL_NS_S;
    for (uint32_t round = 1; round <= run->rounds; round++) {
        while (pawl_load_acq_u32(&run->armed) < round)
            bench_pause(100000);
        struct pawl_message m;
        if (bench_must(lane, pawl_receive(lane, "death", &wait, &m), "receive") != PAWL_OK)
            bench_fail("the message of the dead was not delivered again within 30 s");
        uint64_t now = bench_now();
        if (m.acquired != 2)
            bench_fail("the heir has a message of attempt %u", m.acquired);
        run->got_at = now;
        bench_must(lane, pawl_ack(lane, &m.token, 0), "ack");
        pawl_store_rel_u32(&run->got, round);
    }
    pawl_close(lane);
}

static void victim_child(void *arg)
{
    struct death_run *run = arg;
    struct pawl *lane = bench_client(&run->broker, NULL);
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    wait.wait_ns = 30 * PAWL_NS_S;
    if (bench_must(lane, pawl_receive(lane, "death", &wait, &m), "receive") != PAWL_OK)
        bench_fail("the victim got no message");
    pawl_add_seq_u32(&run->held, 1);
    for (;;)
        pause();
}

static void death_repeat(struct death_run *run)
{
    const struct bench *b = run->b;
    struct bench_broker_options o = { .core = b->broker_core };
    bench_broker_start(b, &run->broker, &o);
    struct pawl *lane = bench_client(&run->broker, NULL);
    bench_queue(lane, "death", run->mode);
    pid_t heir = bench_spawn(b->client_core, heir_child, run);
    for (uint32_t round = 1; round <= run->rounds; round++) {
        uint64_t body = round;
        struct pawl_sent sent;
        bench_must(lane, pawl_send(lane, "death", &body, sizeof(body), NULL, &sent), "send");
        pid_t victim = bench_spawn(b->client_core, victim_child, run);
        bench_await(&run->held, round, "victim");
        pawl_store_rel_u32(&run->armed, round);
        bench_pause(2000000); /* the heir lies down */
        uint64_t start = bench_now();
        kill(victim, SIGKILL);
        while (waitpid(victim, NULL, 0) < 0 && errno == EINTR)
            ;
        bench_await(&run->got, round, "heir");
        pawl_histogram_add(&run->h, run->got_at - start);
    }
    bench_join(heir, "heir");
    pawl_close(lane);
    bench_broker_stop(&run->broker);
    bench_broker_remove(&run->broker);
}

static void death_case(const struct bench *b, const char *name, enum pawl_mode mode)
{
    struct bench_result again;
    bench_result_init(&again, "death", "us", "redelivery_%s", name);
    bench_result_aim(&again, "p99", BENCH_AT_MOST, 1000);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "death", again.name) && bench_repeat_next(b, &r)) {
        struct death_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->mode = mode;
        run->rounds = b->small ? 10 : 500;
        pawl_histogram_init(&run->h);
        death_repeat(run);
        if (bench_repeat_keep(b, &r))
            bench_result_histogram(&again, &run->h, 1000);
        bench_unshare(run, sizeof(*run));
    }
    again.far = r.far;
    bench_result_print(b, &again);
}

void bench_death(const struct bench *b)
{
    death_case(b, "durable", PAWL_DURABLE);
    death_case(b, "memory", PAWL_MEMORY);
}
