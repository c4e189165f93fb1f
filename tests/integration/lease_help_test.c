/* SPDX-License-Identifier: MIT */
/* Help with leases: renewal by a thread while the program is busy, over a kill of the broker and up
 * to max_hold; which ones end soon; many at once (semantics 2). */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/harness.h"

static struct harness_broker broker;

static uint64_t stalled; /* the longest that this machine let nobody run */

static void busy(uint64_t ns)
{
    uint64_t last = harness_clock(), end = last + ns;
    while (last < end) {
        harness_pause();
        uint64_t now = harness_clock();
        stalled = now - last > stalled ? now - last : stalled;
        last = now;
    }
}

static void a_busy_program_keeps_its_leases(void)
{
    harness_step("busy");
    struct pawl *lane = harness_open(&broker), *other = harness_open(&broker);
    harness_queue(lane, "busy", PAWL_DURABLE, 2 * PAWL_NS_S);
    harness_check_rc(pawl_lease_help(lane, PAWL_LEASE_HELP_RENEW), PAWL_OK);
    (void)harness_send(lane, "busy", "one");
    (void)harness_send(lane, "busy", "two");
    struct pawl_token one = harness_receive(lane, "busy", 0, "one");
    struct pawl_token two = harness_receive(lane, "busy", 0, "two");
    busy(3 * PAWL_NS_S);
    harness_broker_restart(&broker);
    busy(3 * PAWL_NS_S);
    struct pawl_queue_stat s = harness_stat(other, "busy");
    if (stalled > PAWL_NS_S / 4) {
        printf("busy: the machine stood still for %.1f s: nothing to be seen\n",
               (double)stalled / 1e9);
        pawl_close(lane);
        pawl_close(other);
        return;
    }
    harness_check(s.leased == 2 && s.expired_leases == 0);
    harness_check_rc(pawl_ack(lane, &one, 0), PAWL_OK);
    harness_check_rc(pawl_nack(lane, &two, 0, "no"), PAWL_OK);
    two = harness_receive(other, "busy", 30 * PAWL_NS_S, "two"); /* not renewed: not that lane's */
    harness_until(harness_stat(other, "busy").expired_leases == 1);
    pawl_close(lane);
    pawl_close(other);
}

static void renewal_ends_at_max_hold(void)
{
    harness_step("max_hold");
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.lease_ns = PAWL_NS_S;
    o.max_hold_ns = 2 * PAWL_NS_S;
    harness_check_rc(pawl_queue_create(lane, "cap", &o), PAWL_OK);
    harness_check_rc(pawl_lease_help(lane, PAWL_LEASE_HELP_RENEW), PAWL_OK);
    (void)harness_send(lane, "cap", "one");
    struct pawl_token one = harness_receive(lane, "cap", 0, "one");
    harness_until(harness_stat(lane, "cap").expired_leases == 1);
    harness_check_rc(pawl_ack(lane, &one, 0), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_lease_help(lane, 0), PAWL_OK);
    pawl_close(lane);
}

static void those_that_end_soon_are_told(void)
{
    harness_step("soon");
    struct pawl_lease_left left[4];
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "soon", PAWL_DURABLE, 4 * PAWL_NS_S);
    harness_check_rc(pawl_lease_soon(lane, left, 4), PAWL_E_MISUSE);
    harness_check_rc(pawl_lease_help(lane, 8), PAWL_E_INVALID);
    harness_check_rc(pawl_lease_help(lane, PAWL_LEASE_HELP_SOON), PAWL_OK);
    harness_check_rc(pawl_lease_soon(lane, left, 0), PAWL_E_INVALID);
    for (int round = 0; round < 5; round++) {
        (void)harness_send(lane, "soon", "one");
        struct pawl_token one = harness_receive(lane, "soon", 0, "one");
        uint64_t start = harness_clock();
        int n = pawl_lease_soon(lane, left, 4);
        harness_check(n == 0 || harness_clock() - start > 2 * PAWL_NS_S);
        while ((n = pawl_lease_soon(lane, left, 4)) == 0 && harness_clock() - start < 5 * PAWL_NS_S)
            harness_pause();
        bool missed = n == 0; /* this machine slept through the last fifth */
        if (!missed) {
            harness_check(n == 1 && memcmp(&left[0].token, &one, sizeof one) == 0);
            harness_check(left[0].left_ns > 0 && left[0].left_ns <= 4 * PAWL_NS_S / 5);
            int rc = pawl_renew(lane, &one, 3600 * PAWL_NS_S);
            missed = rc == PAWL_E_LEASE_LOST;
            harness_check(missed || rc == PAWL_OK);
        }
        if (missed) {
            harness_check_rc(pawl_queue_purge(lane, "soon", NULL), PAWL_OK);
            continue;
        }
        harness_check(pawl_lease_soon(lane, left, 4) == 0);
        harness_check_rc(pawl_ack(lane, &one, 0), PAWL_OK);
        break;
    }
    pawl_close(lane);
}

static void many_are_renewed_at_once(void)
{
    enum { MANY = 300 };
    harness_step("many");
    struct pawl_token t[MANY + 1];
    int32_t results[MANY + 1];
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "many", PAWL_DURABLE, 60 * PAWL_NS_S);
    harness_check_rc(pawl_lease_help(lane, PAWL_LEASE_HELP_SOON), PAWL_OK);
    for (int i = 0; i < MANY; i++)
        (void)harness_send(lane, "many", "x");
    for (int i = 0; i < MANY; i++)
        t[i] = harness_receive(lane, "many", 0, "x");
    t[MANY] = (struct pawl_token){ t[0].message, t[0].grant, t[0].random + 1 };
    harness_check_rc(pawl_renew_batch(lane, t, MANY, 0, results), PAWL_E_INVALID);
    harness_check_rc(pawl_renew_batch(lane, t, MANY + 1, 3600 * PAWL_NS_S, results),
                     PAWL_E_NOT_FOUND);
    for (int i = 0; i < MANY; i++)
        harness_check(results[i] == PAWL_OK);
    harness_check(results[MANY] == PAWL_E_NOT_FOUND);
    harness_broker_restart(&broker);
    harness_check_rc(pawl_ack_batch(lane, t, MANY, 0, results), PAWL_OK);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("lease_help_test", 180);
    harness_broker_init(&broker, harness_text("%s/broker", harness_dir()));
    harness_broker_start(&broker);
    many_are_renewed_at_once();
    those_that_end_soon_are_told();
    a_busy_program_keeps_its_leases();
    renewal_ends_at_max_hold();
    harness_broker_stop(&broker);
    return 0;
}
