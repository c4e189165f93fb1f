/* SPDX-License-Identifier: MIT */
/* pawl_fd in a program's own event loop: epoll over lanes of several sessions, asynchronous calls,
 * through a restart of the broker. */
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/harness.h"

enum { LANES = 4, MESSAGES = 2000 };

static struct harness_broker broker;

struct side {
    struct pawl *lane;
    int fd;
    uint32_t sent, answered, received, acks_open;
};

static void submit(struct side *s)
{
    while (s->sent < MESSAGES && s->sent - s->answered < 100) {
        pawl_ticket t;
        harness_check_rc(pawl_submit_send(s->lane, "fd", &s->sent, sizeof s->sent, NULL, &t),
                         PAWL_OK);
        s->sent++;
    }
    harness_check_rc(pawl_flush(s->lane), PAWL_OK);
}

/* All that is there: answers and messages, until both say that there is nothing more. */
static void take_all(struct side *s)
{
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    const char *queue = "fd";
    for (;;) {
        struct pawl_answer a[64];
        struct pawl_message m[64];
        uint32_t count = 0;
        int n = pawl_poll(s->lane, a, 64, 0, 0);
        harness_check(n >= 0);
        for (int i = 0; i < n; i++) {
            harness_check(a[i].result == PAWL_OK || a[i].result == PAWL_OK_DUPLICATE);
            /* Sends and acks are told apart by what they carry: an ack has no id. */
            if (a[i].value != 0)
                s->answered++;
            else
                s->acks_open--;
        }
        int rc = pawl_receive_batch(s->lane, &queue, 1, &o, m, 64, &count);
        harness_check(rc == PAWL_OK || rc == PAWL_OK_EMPTY);
        for (uint32_t i = 0; i < count; i++) {
            pawl_ticket t;
            harness_check_rc(pawl_submit_ack(s->lane, &m[i].token, 0, &t), PAWL_OK);
            s->received++;
            s->acks_open++;
        }
        if (n == 0 && count == 0)
            return;
    }
}

int main(void)
{
    struct side sides[LANES] = { 0 };
    harness_begin("fd_test", 90);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    int ep = epoll_create1(EPOLL_CLOEXEC);
    harness_check(ep >= 0);
    for (int i = 0; i < LANES; i++) {
        struct pawl_options o = PAWL_OPTIONS_INIT;
        o.prefetch = 32;
        sides[i].lane = harness_open_with(&broker, &o);
        if (i == 0)
            harness_queue(sides[0].lane, "fd", PAWL_DURABLE, PAWL_LEASE_NS_MAX);
        sides[i].fd = pawl_fd(sides[i].lane);
        if (sides[i].fd < 0)
            harness_fail("pawl_fd: %s", pawl_strname(sides[i].fd));
        harness_check(pawl_fd(sides[i].lane) == sides[i].fd);
        struct epoll_event e = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
        harness_check(epoll_ctl(ep, EPOLL_CTL_ADD, sides[i].fd, &e) == 0);
    }
    harness_step("load");
    uint32_t received = 0, restarts = 0, wakes = 0;
    for (int i = 0; i < LANES; i++) {
        submit(&sides[i]);
        take_all(&sides[i]);
    }
    while (received < LANES * MESSAGES) {
        struct epoll_event e[LANES];
        int n = epoll_wait(ep, e, LANES, 5000);
        if (n == 0)
            harness_fail("five seconds without an event: %u of %u received", received,
                         LANES * MESSAGES);
        for (int i = 0; i < n; i++, wakes++) {
            struct side *s = &sides[e[i].data.u32];
            take_all(s);
            submit(s);
            take_all(s); /* before the next wait, as pawl.h says */
        }
        received = 0;
        for (int i = 0; i < LANES; i++)
            received += sides[i].received;
        if (restarts < 2 && received > (restarts + 1) * LANES * MESSAGES / 3) {
            harness_step("restart %u", restarts);
            harness_broker_restart(&broker);
            restarts++;
        }
    }
    harness_step("the last answers");
    for (int i = 0; i < LANES; i++)
        while (sides[i].acks_open > 0 || sides[i].answered < sides[i].sent) {
            struct epoll_event e;
            harness_check(epoll_wait(ep, &e, 1, 5000) > 0);
            for (int k = 0; k < LANES; k++)
                take_all(&sides[k]);
        }
    struct pawl_queue_stat stat = harness_stat(sides[0].lane, "fd");
    harness_check(stat.ready == 0 && stat.leased == 0 && restarts == 2);
    printf("%u messages, %u events\n", received, wakes);
    for (int i = 0; i < LANES; i++)
        pawl_close(sides[i].lane);
    close(ep);
    harness_broker_stop(&broker);
    return 0;
}
