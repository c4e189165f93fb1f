/* SPDX-License-Identifier: MIT */
/* Lanes in threads, and two threads in one lane. For the thread sanitizer above all: library and
 * peer are threads of one process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "lib/peer.h"
#include "lib/unit.h"
#include "pawl.h"

static struct peer_log *the_log;
static struct peer *peer;
static struct pawl *lane;

static void begin(uint32_t prefetch)
{
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.dir = peer_dir();
    o.prefetch = prefetch;
    the_log = peer_log_create();
    peer = peer_start(peer_dir(), the_log, NULL);
    assert_int_equal(pawl_open(&o, &lane), PAWL_OK);
    assert_int_equal(pawl_queue_create(lane, "q", NULL), PAWL_OK);
}

static void stop(void)
{
    pawl_close(lane);
    const char *why = peer_kill(peer);
    if (why)
        fail_msg("the peer says: %s", why);
}

/* --- a lane each ----------------------------------------------------------------------------- */

#define SENDERS 3
#define EACH 500u

static uint32_t received;

static void *sender(void *unused)
{
    struct pawl *mine;
    (void)unused;
    if (pawl_lane_open(lane, &mine) != PAWL_OK)
        return (void *)"no lane for a sender";
    for (uint32_t i = 0; i < EACH; i++) {
        int rc = i % 2 ? pawl_send(mine, "q", &i, 4, NULL, NULL)
                       : pawl_submit_send(mine, "q", &i, 4, NULL, NULL);
        if (rc != PAWL_OK)
            return (void *)(uintptr_t)pawl_strname(rc);
    }
    struct pawl_answer a[EACH];
    uint32_t n = 0;
    while (n < EACH / 2) {
        int rc = pawl_poll(mine, a, EACH, 1, 5 * PAWL_NS_S);
        if (rc <= 0)
            return (void *)"an answer does not come";
        n += (uint32_t)rc;
    }
    pawl_close(mine);
    return NULL;
}

static void *receiver(void *unused)
{
    struct pawl *mine;
    struct pawl_message m;
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    (void)unused;
    r.wait_ns = 20 * PAWL_NS_MS;
    if (pawl_lane_open(lane, &mine) != PAWL_OK)
        return (void *)"no lane for a receiver";
    while (pawl_load_acq_u32(&received) < SENDERS * EACH) {
        int rc = pawl_receive(mine, "q", &r, &m);
        if (rc == PAWL_OK) {
            if ((rc = pawl_ack(mine, &m.token, 0)) == PAWL_OK)
                (void)pawl_add_seq_u32(&received, 1);
        }
        if (rc < 0)
            return (void *)(uintptr_t)pawl_strname(rc);
    }
    pawl_close(mine);
    return NULL;
}

static void play(uint32_t prefetch)
{
    pthread_t threads[SENDERS + 2];
    begin(prefetch);
    pawl_store_rel_u32(&received, 0);
    for (int i = 0; i < SENDERS + 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < SENDERS ? sender : receiver, NULL),
                         0);
    for (int i = 0; i < SENDERS + 2; i++) {
        void *why;
        assert_int_equal(pthread_join(threads[i], &why), 0);
        if (why)
            fail_msg("thread %d: %s", i, (const char *)why);
    }
    stop();
    assert_int_equal(the_log->message_count, SENDERS * EACH);
    for (uint32_t i = 0; i < the_log->message_count; i++) {
        assert_int_equal(the_log->messages[i].state, PAWL_STATE_ACKED);
        assert_int_equal(the_log->messages[i].acquired, 1);
    }
    peer_log_destroy(the_log);
}

static void threads_with_a_lane_each_share_a_session(void **state)
{
    (void)state;
    play(0);
}

static void and_with_prefetch(void **state)
{
    (void)state;
    play(8);
}

/* --- two in one ------------------------------------------------------------------------------ */

static uint32_t done, misused, wrong;

static void *intruder(void *unused)
{
    (void)unused;
    while (!pawl_load_acq_u32(&done)) {
        int rc = pawl_queue_create(lane, "q", NULL);
        if (rc == PAWL_E_MISUSE)
            (void)pawl_add_seq_u32(&misused, 1);
        else if (rc != PAWL_OK_DUPLICATE)
            (void)pawl_add_seq_u32(&wrong, 1);
    }
    return NULL;
}

static void a_second_thread_in_a_lane_is_told(void **state)
{
    (void)state;
    pthread_t thread;
    begin(0);
    assert_int_equal(pthread_create(&thread, NULL, intruder, NULL), 0);
    uint32_t asked = 0;
    /* Either of the two is told, whoever comes second; the watchdog ends it if neither ever is. */
    while (pawl_load_acq_u32(&misused) < 20 || asked < 200) {
        int rc = pawl_queue_create(lane, "q", NULL);
        if (rc == PAWL_OK_DUPLICATE) {
            asked++;
        } else {
            assert_int_equal(rc, PAWL_E_MISUSE);
            (void)pawl_add_seq_u32(&misused, 1);
        }
    }
    pawl_store_rel_u32(&done, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pawl_load_acq_u32(&wrong), 0);
    stop();
    peer_log_destroy(the_log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_with_a_lane_each_share_a_session),
        cmocka_unit_test(and_with_prefetch),
        cmocka_unit_test(a_second_thread_in_a_lane_is_told),
    };
    (void)alarm(200);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
