/* SPDX-License-Identifier: MIT */
/* pawl_fd(): one descriptor for programs with an event loop of their own.
 *
 * It is an epoll descriptor with three things in it: the lane's watch socket, the socket to the
 * broker, and a timer. A program's poller watches a file description and not a number, so the
 * sockets may be replaced after a re-attach while the descriptor in the program's hands stays.
 *
 *   arm     poll or receive found nothing: announce (kind FD), look again
 *   renew   another call of the lane withdrew the announcement or read something: announce again,
 *           or let the timer fire at once
 *   disarm  the next poll or receive: withdraw, empty the watch socket, look at the other one
 * While there is no broker the timer fires every 50 ms, so that the program calls and the call
 * tries again. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/lane.h"
#include "client/session.h"

#define RETRY_NS (50 * PAWL_NS_MS)

/* --- the two descriptors of a lane ----------------------------------------------------------- */

static int watch_locked(struct pawl *lane, uint64_t until)
{
    struct pawl_session *s = lane->session;
    struct pawl_attach_watch ask = { .type = PAWL_ATTACH_WATCH, .lane = lane->number };
    struct pawl_attach_watch_ok ok;
    int fd = -1;
    if (lane->attachment != s->attachment)
        return PAWL_E_BROKER_DOWN;
    int rc = pawl_session_exchange(s, &ask, sizeof ask, &ok, sizeof ok, &fd, 1, until);
    if (rc != PAWL_OK)
        return rc;
    if (ok.type != PAWL_ATTACH_WATCH_OK || ok.result != PAWL_OK || fd < 0) {
        if (fd >= 0)
            (void)close(fd);
        return ok.result < 0 ? ok.result : PAWL_E_PROTOCOL;
    }
    /* A number of our own: another lane that attaches again closes the session's. */
    int control = fcntl(s->socket, F_DUPFD_CLOEXEC, 0);
    if (control < 0) {
        (void)close(fd);
        return PAWL_E_RESOURCE;
    }
    lane->watch = fd;
    lane->control = control;
    return PAWL_OK;
}

int pawl_lane_watch(struct pawl *lane, uint64_t until)
{
    if (lane->watch >= 0)
        return PAWL_OK;
    if (!pawl_session_lock(lane->session, until))
        return PAWL_E_BROKER_DOWN;
    int rc = watch_locked(lane, until);
    pawl_session_unlock(lane->session);
    return rc;
}

void pawl_lane_unwatch(struct pawl *lane)
{
    if (lane->watch >= 0)
        (void)close(lane->watch);
    if (lane->control >= 0)
        (void)close(lane->control);
    lane->watch = lane->control = -1;
}

/* --- the descriptor of the program ----------------------------------------------------------- */

static int add(int epoll, int fd, uint32_t events)
{
    struct epoll_event e = { .events = events, .data = { .fd = fd } };
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

/* The timer: fires after ns; 0: never. */
static void set_timer(const struct pawl *lane, uint64_t ns)
{
    struct itimerspec t = { .it_value = { .tv_sec = (time_t)(ns / PAWL_NS_S),
                                          .tv_nsec = (long)(ns % PAWL_NS_S) } };
    (void)timerfd_settime(lane->timer_fd, 0, &t, NULL);
}

void pawl_fd_rewatch(struct pawl *lane)
{
    if (pawl_lane_watch(lane, pawl_now(lane) + lane->timeout_ns) != PAWL_OK ||
        add(lane->events_fd, lane->watch, EPOLLIN) != 0 ||
        add(lane->events_fd, lane->control, EPOLLRDHUP) != 0) {
        /* Without them nothing would fire: look again soon, and once more try. */
        pawl_lane_unwatch(lane);
        set_timer(lane, RETRY_NS);
    }
}

void pawl_fd_close(struct pawl *lane)
{
    if (lane->events_fd >= 0)
        (void)close(lane->events_fd);
    if (lane->timer_fd >= 0)
        (void)close(lane->timer_fd);
    lane->events_fd = lane->timer_fd = -1;
    lane->armed = false;
    lane->armed_number = 0;
}

int pawl_fd(struct pawl *lane)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (lane->events_fd >= 0)
        return pawl_call_leave(lane, lane->events_fd);
    lane->events_fd = epoll_create1(EPOLL_CLOEXEC);
    lane->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (lane->events_fd < 0 || lane->timer_fd < 0 ||
        add(lane->events_fd, lane->timer_fd, EPOLLIN) != 0) {
        rc = pawl_call_refuse(lane, PAWL_E_RESOURCE, "no descriptor: %s", strerror(errno));
        pawl_fd_close(lane);
        return pawl_call_leave(lane, rc);
    }
    if (lane->attached)
        pawl_fd_rewatch(lane);
    /* Nobody has looked yet: the first wait returns at once, and the look arms it. */
    set_timer(lane, 1);
    return pawl_call_leave(lane, lane->events_fd);
}

/* --- arm, disarm, renew ---------------------------------------------------------------------- */

static bool announce(struct pawl *lane)
{
    pawl_drain_release(lane, true);
    lane->wait_number = (lane->wait_number + 1) & 0x3fffffff;
    lane->armed_number = lane->wait_number + 1; /* not 0 */
    pawl_wait_announce(lane->sub_shm, lane->events + 1, lane->wait_number, PAWL_WAIT_FD);
    return pawl_load_seq_u64(&lane->comp_shm->tail) == lane->comp.tail &&
           pawl_load_acq_u32(&lane->comp_shm->state) != PAWL_LANE_CLOSED;
}

/* Something lies in the lane that the program has not asked for and was not told of. */
static bool untold(struct pawl *lane)
{
    bool yes = (lane->news_queues && lane->deliveries_read != lane->deliveries_told) ||
               (lane->answers_there && lane->answers_read != lane->answers_told);
    lane->deliveries_told = lane->deliveries_read;
    lane->answers_told = lane->answers_read;
    return yes;
}

bool pawl_fd_arm(struct pawl *lane)
{
    if (lane->events_fd < 0)
        return true;
    lane->armed = true;
    if (!lane->attached || lane->watch < 0) {
        set_timer(lane, RETRY_NS);
        return true;
    }
    if (announce(lane)) {
        if (untold(lane))
            set_timer(lane, 1);
        return true;
    }
    pawl_wait_withdraw(lane->sub_shm);
    lane->armed_number = 0;
    if (pawl_load_acq_u32(&lane->comp_shm->state) == PAWL_LANE_CLOSED) {
        set_timer(lane, 1); /* come back: the next call finds out */
        return true;
    }
    lane->armed = false;
    return false;
}

void pawl_fd_arm_late(struct pawl *lane)
{
    if (lane->events_fd >= 0 && !lane->armed && !pawl_fd_arm(lane)) {
        lane->armed = true;
        set_timer(lane, 1);
    }
}

void pawl_fd_disarm(struct pawl *lane)
{
    char bytes[64];
    if (lane->events_fd < 0 || !lane->armed)
        return;
    lane->armed = false;
    lane->armed_number = 0;
    set_timer(lane, 0);
    if (!lane->attached)
        return;
    pawl_wait_withdraw(lane->sub_shm);
    if (lane->watch < 0) {
        pawl_fd_rewatch(lane);
        return;
    }
    while (recv(lane->watch, bytes, sizeof bytes, MSG_DONTWAIT) == (ssize_t)sizeof bytes)
        ;
    struct pollfd p = { .fd = lane->control, .events = POLLRDHUP };
    if (poll(&p, 1, 0) != 0 || pawl_load_acq_u32(&lane->comp_shm->state) == PAWL_LANE_CLOSED)
        (void)pawl_lane_alive(lane);
}

void pawl_fd_renew(struct pawl *lane)
{
    if (lane->events_fd < 0 || !lane->armed)
        return;
    if (!lane->attached || lane->watch < 0)
        set_timer(lane, RETRY_NS);
    else if (untold(lane) || (lane->armed_number == 0 && !announce(lane)))
        set_timer(lane, 1);
}
