/* SPDX-License-Identifier: MIT */
/* pawl_fd() in an event loop: it fires for every piece of news, across a death of the broker too,
 * and stays the same descriptor. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "base/clock.h"
#include "lib/peer.h"
#include "lib/unit.h"
#include "pawl.h"

static struct peer_log *the_log;
static struct peer *peer;
static struct pawl *lane, *other;
static int epoll = -1;

static void begin(uint32_t prefetch)
{
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.dir = peer_dir();
    o.prefetch = prefetch;
    the_log = peer_log_create();
    peer = peer_start(peer_dir(), the_log, NULL);
    assert_int_equal(pawl_open(&o, &lane), PAWL_OK);
    assert_int_equal(pawl_queue_create(lane, "q", NULL), PAWL_OK);
    assert_int_equal(pawl_lane_open(lane, &other), PAWL_OK);
    int fd = pawl_fd(lane);
    assert_true(fd >= 0);
    assert_int_equal(pawl_fd(lane), fd);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = { .events = EPOLLIN };
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e), 0);
}

static void end(void)
{
    (void)close(epoll);
    pawl_close(other);
    pawl_close(lane);
    const char *why = peer_kill(peer);
    peer_log_destroy(the_log);
    if (why)
        fail_msg("the peer says: %s", why);
}

/* Waits as a program would: only on the descriptor, so a lost wake-up stands until the watchdog. */
static void wait_for_news(void)
{
    struct epoll_event e;
    int n;
    do
        n = epoll_wait(epoll, &e, 1, -1);
    while (n < 0);
}

static bool is_quiet(void)
{
    struct epoll_event e;
    return epoll_wait(epoll, &e, 1, 0) == 0;
}

/* Takes what there is of q, acknowledges it, until OK_EMPTY. */
static uint32_t take_all(void)
{
    const char *const q = "q";
    struct pawl_message m[16];
    uint32_t count, n = 0;
    int rc;
    while ((rc = pawl_receive_batch(lane, &q, 1, NULL, m, 16, &count)) == PAWL_OK)
        for (uint32_t i = 0; i < count; i++, n++)
            assert_int_equal(pawl_submit_ack(lane, &m[i].token, 0, NULL), PAWL_OK);
    assert_int_equal(rc, PAWL_OK_EMPTY);
    return n;
}

static void it_fires_for_deliveries(void **state)
{
    (void)state;
    begin(8);
    wait_for_news(); /* the first look is asked for at once */
    assert_int_equal(take_all(), 0);
    for (uint32_t round = 0; round < 50; round++) {
        uint32_t sent = 1 + round % 20, got = 0;
        for (uint32_t i = 0; i < sent; i++)
            assert_int_equal(pawl_send(other, "q", "x", 1, NULL, NULL), PAWL_OK);
        while (got < sent) {
            struct pawl_answer a[32];
            wait_for_news();
            /* Acks go out with the poll and bring the credit for more. */
            uint32_t n = take_all();
            got += n;
            int rc;
            while ((rc = pawl_poll(lane, a, 32, 0, 0)) > 0)
                for (int i = 0; i < rc; i++)
                    assert_int_equal(a[i].result, PAWL_OK);
            assert_int_equal(rc, 0);
        }
    }
    end();
}

static void it_fires_without_prefetch_too(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(take_all(), 0);
    assert_int_equal(pawl_send(other, "q", "x", 1, NULL, NULL), PAWL_OK);
    uint32_t n = 0;
    while (n == 0) {
        wait_for_news();
        n = take_all();
    }
    assert_int_equal(n, 1);
    end();
}

static void it_fires_for_answers(void **state)
{
    (void)state;
    begin(0);
    for (uint32_t round = 0; round < 100; round++) {
        struct pawl_answer a[8];
        pawl_ticket t[4];
        uint32_t n = 0;
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(pawl_submit_send(lane, "q", "x", 1, NULL, &t[i]), PAWL_OK);
        while (n < 4) {
            int rc;
            while ((rc = pawl_poll(lane, a, 8, 0, 0)) > 0)
                n += (uint32_t)rc;
            assert_int_equal(rc, 0);
            if (n < 4)
                wait_for_news();
        }
    }
    end();
}

static void it_is_quiet_when_there_is_nothing(void **state)
{
    (void)state;
    begin(4);
    struct pawl_answer a;
    /* Bytes of older wake-ups may fire once; after a few looks it stays quiet. */
    for (int i = 0; i < 20 && !is_quiet(); i++)
        assert_int_equal(take_all(), 0);
    assert_true(is_quiet());
    assert_int_equal(pawl_poll(lane, &a, 1, 0, 0), 0);
    assert_true(is_quiet());
    end();
}

static void another_call_in_between_loses_nothing(void **state)
{
    (void)state;
    begin(8);
    for (int round = 0; round < 30; round++) {
        assert_int_equal(take_all(), 0);
        /* Armed; a plain call reads the ring and with it the delivery. */
        assert_int_equal(pawl_send(other, "q", "x", 1, NULL, NULL), PAWL_OK);
        assert_true(pawl_queue_create(lane, "q", NULL) >= 0);
        uint32_t n = 0;
        while (n == 0) {
            wait_for_news();
            n = take_all();
        }
        assert_int_equal(n, 1);
        struct pawl_answer a;
        pawl_ticket t;
        assert_int_equal(pawl_submit_send(lane, "r/none", "x", 1, NULL, &t), PAWL_E_NOT_FOUND);
        while (pawl_poll(lane, &a, 1, 1, PAWL_NS_S) > 0)
            ;
    }
    end();
}

static void it_outlives_the_broker(void **state)
{
    (void)state;
    begin(8);
    assert_int_equal(take_all(), 0);
    for (int round = 0; round < 3; round++) {
        const char *why = peer_kill(peer);
        assert_null(why);
        /* The end of the broker is news; until another comes, looks find nothing. */
        wait_for_news();
        assert_int_equal(pawl_poll(lane, &(struct pawl_answer){ 0 }, 1, 0, 0), 0);
        wait_for_news();
        assert_int_equal(pawl_poll(lane, &(struct pawl_answer){ 0 }, 1, 0, 0), 0);
        peer = peer_start(peer_dir(), the_log, NULL);
        assert_int_equal(pawl_send(other, "q", "x", 1, NULL, NULL), PAWL_OK);
        uint32_t n = 0;
        while (n == 0) {
            wait_for_news();
            n = take_all();
        }
        assert_int_equal(n, 1);
        struct pawl_answer a;
        assert_int_equal(pawl_poll(lane, &a, 1, 1, 5 * PAWL_NS_S), 1);
    }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_fires_for_deliveries),
        cmocka_unit_test(it_fires_without_prefetch_too),
        cmocka_unit_test(it_fires_for_answers),
        cmocka_unit_test(it_is_quiet_when_there_is_nothing),
        cmocka_unit_test(another_call_in_between_loses_nothing),
        cmocka_unit_test(it_outlives_the_broker),
    };
    (void)alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
