/* SPDX-License-Identifier: MIT */
/* What each mode keeps over a clean stop and over a kill (design.md's table of modes; B-W21), and
 * that a delay is never early (G12). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lib/harness.h"

static struct harness_broker broker;

static void fill(struct pawl *lane, const char *queue, int n)
{
    char text[32];
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s %d", queue, i);
        (void)harness_send(lane, queue, text);
    }
}

static void drain(struct pawl *lane, const char *queue, int from, int to)
{
    char text[32];
    for (int i = from; i < to; i++) {
        snprintf(text, sizeof text, "%s %d", queue, i);
        struct pawl_token t = harness_receive(lane, queue, 10 * PAWL_NS_S, text);
        harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    }
}

static uint32_t mode_of(struct pawl *lane, const char *queue)
{
    return harness_stat(lane, queue).options.mode;
}

static void clean_stop(void)
{
    harness_step("clean stop");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "durable", PAWL_DURABLE, 0);
    harness_queue(lane, "relaxed", PAWL_RELAXED, 0);
    harness_queue(lane, "memory", PAWL_MEMORY, 0);
    fill(lane, "durable", 50);
    fill(lane, "relaxed", 50);
    fill(lane, "memory", 50);
    drain(lane, "durable", 0, 10);
    drain(lane, "relaxed", 0, 10);
    drain(lane, "memory", 0, 10);
    harness_broker_stop(&broker);
    harness_broker_start(&broker);
    harness_check(mode_of(lane, "durable") == PAWL_DURABLE);
    harness_check(mode_of(lane, "relaxed") == PAWL_RELAXED);
    harness_check(mode_of(lane, "memory") == PAWL_MEMORY);
    drain(lane, "durable", 10, 50);
    drain(lane, "relaxed", 10, 50);
    harness_check(harness_stat(lane, "memory").ready == 0);
    /* Acked before the stop is acked after it: nothing rises again. */
    harness_check(harness_stat(lane, "durable").ready + harness_stat(lane, "relaxed").ready == 0);
    fill(lane, "memory", 3);
    drain(lane, "memory", 0, 3);
    pawl_close(lane);
}

/* A crash takes back a suffix: if one message of a relaxed queue survived, all before it did, and
 * everything older than the window did. */
static void kill_of_a_relaxed_queue(void)
{
    for (int round = 0; round < 5; round++) {
        harness_step("relaxed, round %d", round);
        struct pawl *lane = harness_open(&broker);
        harness_queue(lane, "suffix", PAWL_RELAXED, 0);
        fill(lane, "suffix", 100);
        /* A durable send makes all that was appended before it durable too. */
        harness_queue(lane, "durable", PAWL_DURABLE, 0);
        fill(lane, "durable", 1);
        uint64_t sure = harness_stat(lane, "suffix").ready;
        harness_check(sure == 100);
        fill(lane, "suffix", 100);
        pawl_close(lane);
        harness_broker_restart(&broker);
        lane = harness_open(&broker);
        int left = (int)harness_stat(lane, "suffix").ready;
        harness_check(left >= 100 && left <= 200);
        drain(lane, "suffix", 0, 100);
        drain(lane, "suffix", 0, left - 100); /* the second hundred from its beginning */
        drain(lane, "durable", 0, 1);
        pawl_close(lane);
    }
}

static void kill_of_a_memory_queue(void)
{
    harness_step("memory");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "gone", PAWL_MEMORY, 0);
    fill(lane, "gone", 100);
    struct pawl_token t = harness_receive(lane, "gone", 0, "gone 0");
    harness_broker_restart(&broker);
    harness_check(harness_stat(lane, "gone").ready + harness_stat(lane, "gone").leased == 0);
    int rc = pawl_ack(lane, &t, 0);
    harness_check(rc == PAWL_E_FORGOTTEN || rc == PAWL_E_NOT_FOUND);
    fill(lane, "gone", 1);
    t = harness_receive(lane, "gone", 0, "gone 0");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void delays_are_never_early(void)
{
    enum { N = 300 };
    static uint64_t due[N];
    struct pawl_prng prng = harness_prng(7);
    harness_step("delays");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "delays", PAWL_DURABLE, 0);
    for (uint32_t i = 0; i < N; i++) {
        struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
        o.delay_ns = (1 + pawl_prng_below(&prng, 400)) * PAWL_NS_MS;
        /* Decided after this moment, so due no sooner than this. */
        due[i] = pawl_clock_boot() + o.delay_ns;
        harness_check_rc(pawl_send(lane, "delays", &i, sizeof i, &o, NULL), PAWL_OK);
        if (i == N / 2)
            harness_broker_restart(&broker);
    }
    uint64_t late = 0, seen[N];
    for (uint32_t n = 0; n < N; n++) {
        struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
        struct pawl_message m;
        uint32_t i;
        o.wait_ns = 10 * PAWL_NS_S;
        harness_check_rc(pawl_receive(lane, "delays", &o, &m), PAWL_OK);
        uint64_t now = pawl_clock_boot();
        memcpy(&i, m.body, sizeof i);
        harness_check(m.bytes == sizeof i && i < N && due[i] != 0);
        if (now < due[i])
            harness_fail("message %u came %.3f ms early", i, (double)(due[i] - now) / 1e6);
        late = now - due[i] > late ? now - due[i] : late;
        seen[n] = i;
        due[i] = 0;
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    qsort(seen, N, sizeof seen[0], compare);
    for (uint32_t i = 0; i < N; i++)
        harness_check(seen[i] == i);
    printf("%d delays, latest %.1f ms behind\n", N, (double)late / 1e6);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("modes_test", 120);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    clean_stop();
    kill_of_a_relaxed_queue();
    kill_of_a_memory_queue();
    delays_are_never_early();
    harness_broker_stop(&broker);
    return 0;
}
