/* SPDX-License-Identifier: MIT */
/* Several threads of a process, each with a lane of its own, on one broker in the same process, so
 * that the thread sanitizer sees both sides; and a lane that two threads use at once says so. */
#include <stdatomic.h>
#include <string.h>

#include "lib/embed.h"
#include "lib/harness.h"

enum { THREADS = 4, EACH = 400 };

static struct pawl *first; /* the lane of the main thread */
static atomic_uint acked, failed, started;
static atomic_bool stop;

static void *produce(void *arg)
{
    uint32_t index = *(uint32_t *)arg;
    struct pawl *lane;
    if (pawl_lane_open(first, &lane) != PAWL_OK) {
        atomic_fetch_add(&failed, 1);
        return NULL;
    }
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t body[2] = { index, i };
        pawl_ticket ticket;
        int rc = i % 2 ? pawl_send(lane, "lanes", body, sizeof body, NULL, NULL)
                       : pawl_submit_send(lane, "lanes", body, sizeof body, NULL, &ticket);
        if (rc != PAWL_OK)
            atomic_fetch_add(&failed, 1);
        struct pawl_answer a;
        if (i % 2 == 0 &&
            (pawl_wait(lane, ticket, 30 * PAWL_NS_S, &a) != PAWL_OK || a.result != PAWL_OK))
            atomic_fetch_add(&failed, 1);
    }
    pawl_close(lane);
    return NULL;
}

static void *consume(void *arg)
{
    atomic_uchar(*seen)[EACH] = arg;
    struct pawl *lane;
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    o.wait_ns = 50 * PAWL_NS_MS;
    if (pawl_lane_open(first, &lane) != PAWL_OK) {
        atomic_fetch_add(&failed, 1);
        return NULL;
    }
    while (!atomic_load(&stop)) {
        struct pawl_message m;
        uint32_t body[2];
        int rc = pawl_receive(lane, "lanes", &o, &m);
        if (rc == PAWL_OK_EMPTY)
            continue;
        if (rc != PAWL_OK || m.bytes != sizeof body) {
            atomic_fetch_add(&failed, 1);
            break;
        }
        memcpy(body, m.body, sizeof body);
        if (body[0] >= THREADS || body[1] >= EACH || pawl_ack(lane, &m.token, 0) != PAWL_OK ||
            atomic_fetch_add(&seen[body[0]][body[1]], 1) != 0)
            atomic_fetch_add(&failed, 1);
        atomic_fetch_add(&acked, 1);
    }
    pawl_close(lane);
    return NULL;
}

static void a_lane_for_each_thread(uint32_t mode)
{
    static atomic_uchar seen[THREADS][EACH];
    pthread_t producers[THREADS], consumers[2];
    uint32_t index[THREADS];
    memset(seen, 0, sizeof seen);
    atomic_store(&acked, 0);
    atomic_store(&stop, false);
    harness_queue(first, "lanes", mode, 0);
    for (int i = 0; i < 2; i++)
        harness_check(pthread_create(&consumers[i], NULL, consume, seen) == 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        index[i] = i;
        harness_check(pthread_create(&producers[i], NULL, produce, &index[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(producers[i], NULL);
    harness_until(atomic_load(&acked) == THREADS * EACH || atomic_load(&failed) != 0);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(consumers[i], NULL);
    harness_check(atomic_load(&failed) == 0);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < EACH; k++)
            harness_check(seen[i][k] == 1);
    harness_check_rc(pawl_queue_drop(first, "lanes"), PAWL_OK);
}

static void *wait_in_it(void *arg)
{
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.wait_ns = 60 * PAWL_NS_S;
    atomic_store(&started, 1);
    int rc = pawl_receive(arg, "misuse", &o, &m);
    if (rc != PAWL_OK || m.bytes != 4 || pawl_ack(arg, &m.token, 0) != PAWL_OK)
        atomic_fetch_add(&failed, 1);
    return NULL;
}

/* B-M07: two threads in one lane: the second is told, the first does not notice. */
static void misuse_is_named(void)
{
    struct pawl *shared;
    pthread_t thread;
    harness_step("misuse");
    harness_queue(first, "misuse", PAWL_DURABLE, 0);
    harness_check_rc(pawl_lane_open(first, &shared), PAWL_OK);
    harness_check(pthread_create(&thread, NULL, wait_in_it, shared) == 0);
    harness_until(harness_stat(first, "misuse").waiting == 1);
    struct pawl_token token = { 1, 2, 3 };
    struct pawl_answer a;
    harness_check_rc(pawl_send(shared, "misuse", "x", 1, NULL, NULL), PAWL_E_MISUSE);
    harness_check(strstr(pawl_last_text(shared), "pawl_lane_open()") != NULL);
    harness_check(pawl_last_outcome(shared) == PAWL_OUTCOME_NOT_APPLIED);
    harness_check_rc(pawl_ack(shared, &token, 0), PAWL_E_MISUSE);
    harness_check_rc(pawl_flush(shared), PAWL_E_MISUSE);
    harness_check_rc(pawl_poll(shared, &a, 1, 0, 0), PAWL_E_MISUSE);
    (void)harness_send(first, "misuse", "wake");
    pthread_join(thread, NULL);
    harness_check(atomic_load(&failed) == 0);
    /* the text of the refusal goes with the next failure */
    harness_check_rc(pawl_send(shared, "misuse-none", "x", 1, NULL, NULL), PAWL_E_NOT_FOUND);
    harness_check(strstr(pawl_last_text(shared), "misuse-none") != NULL);
    pawl_close(shared);
}

/* The last lane ends the session, whichever that is. */
static void any_lane_may_be_the_last(const char *dir)
{
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl *a, *b, *c;
    harness_step("last lane");
    o.dir = dir;
    harness_check_rc(pawl_open(&o, &a), PAWL_OK);
    harness_check_rc(pawl_lane_open(a, &b), PAWL_OK);
    pawl_close(a);
    harness_queue(b, "last", PAWL_DURABLE, PAWL_LEASE_NS_MAX);
    harness_check_rc(pawl_lane_open(b, &c), PAWL_OK);
    (void)harness_send(c, "last", "x");
    (void)harness_receive(c, "last", 0, "x");
    pawl_close(c);
    pawl_close(b);
    struct pawl_token t = harness_receive(first, "last", 10 * PAWL_NS_S, "x");
    harness_check_rc(pawl_ack(first, &t, 0), PAWL_OK);
}

int main(void)
{
    struct embed e;
    struct pawld_options o = PAWLD_OPTIONS_INIT;
    struct pawl_options client = PAWL_OPTIONS_INIT;
    char dir[200];
    harness_begin("lanes_test", 90);
    snprintf(dir, sizeof dir, "%s/d", harness_dir());
    o.dir = client.dir = dir;
    embed_start(&e, o);
    harness_check_rc(pawl_open(&client, &first), PAWL_OK);
    harness_step("durable");
    a_lane_for_each_thread(PAWL_DURABLE);
    harness_step("memory");
    a_lane_for_each_thread(PAWL_MEMORY);
    misuse_is_named();
    any_lane_may_be_the_last(dir);
    pawl_close(first);
    embed_stop(&e);
    return 0;
}
