/* SPDX-License-Identifier: MIT */
/* Waiting for the broker.
 *
 * Happy path of pawl_lane_wait:
 *   - publish what is claimed; ring the bell if the broker has announced sleep
 *   - read the ring; enough there: done
 *   - look on for spin_ns, yielding in every turn: a tight loop starves the kernel's worker that
 *     completes the disk write we wait for; then yield once more
 *   - announce, look, sleep (abi/wake.h)
 * Sleep is a futex wait of 20 ms, then one of 100 ms: after each the socket is looked at. A wait
 * that goes on takes the lane's watch socket and sleeps on that and on the socket to the
 * broker together, with a long time-out: so a thousand idle lanes cost nothing, and the end of the
 * broker shows at once.
 * Failures:
 *   the broker is gone (end of the socket, lane closed) -> what it published is read, then
 *     pawl_lane_recover() until the end of the wait
 *   the lane was closed for a breach or taken over      -> fatal
 *   deliveries in the program's hands fill the ring     -> new rings, the old ones stay mapped */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/kill.h"
#include "client/lane.h"
#include "client/session.h"

#define SLICE_FIRST_NS (20 * PAWL_NS_MS)
#define SLICE_NS (100 * PAWL_NS_MS)
#define SLICE_PINNED_NS (10 * PAWL_NS_MS)
#define LONG_SLEEP_NS (30 * PAWL_NS_S)
#define WATCH_WORTH_NS PAWL_NS_S /* a shorter rest is slept through in slices */
#define QUICK_NS (20 * PAWL_NS_MS)

void pawl_lane_publish(struct pawl *lane)
{
    if (lane->attached && lane->sub.published != lane->sub.tail)
        PAWL_KILL_POINT("client-before-submit");
    if (!lane->attached || !pawl_ring_publish(&lane->sub))
        return;
    PAWL_KILL_POINT("client-after-submit");
    lane->published = lane->next;
    if (pawl_bell_pending(lane->comp_shm, PAWL_BELL_SUBMIT, &lane->rung))
        (void)eventfd_write(lane->bell, 1);
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){ .tv_sec = (time_t)(ns / PAWL_NS_S),
                              .tv_nsec = (long)(ns % PAWL_NS_S) };
}

/* Not private: the waker is another process, and our mapping is read-only. */
static void futex_wait(const uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = timespec_of(ns);
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static void poll_wait(struct pawl *lane, uint64_t ns)
{
    struct timespec t = timespec_of(ns);
    struct pollfd p[2] = { { .fd = lane->watch, .events = POLLIN },
                           { .fd = lane->control, .events = POLLRDHUP } };
    (void)ppoll(p, 2, &t, NULL);
}

/* Takes the bytes that woke us; there may be a late one of an older wait. */
static void empty_watch(const struct pawl *lane)
{
    char bytes[64];
    while (recv(lane->watch, bytes, sizeof bytes, MSG_DONTWAIT) == (ssize_t)sizeof bytes)
        ;
}

/* A resume fences what the session had before. Ours, by another lane of this session, is no reason
 * to give up; a resume that was not ours is. */
static bool fenced_by_us(struct pawl *lane)
{
    struct pawl_session *s = lane->session;
    if (!pawl_session_lock(s, pawl_now(lane) + lane->timeout_ns))
        return true;
    bool ours = s->resumes != lane->resumes;
    pawl_session_unlock(s);
    return ours;
}

/* The lane was closed by the broker: what it published before is true. */
static int closed(struct pawl *lane)
{
    int32_t reason = (int32_t)pawl_load_rlx_u32((const uint32_t *)&lane->comp_shm->reason);
    int rc = pawl_drain(lane);
    if (rc == PAWL_E_PROTOCOL)
        return rc;
    pawl_lane_detach(lane);
    if (reason == PAWL_E_PROTOCOL || (reason == PAWL_E_EPOCH && !fenced_by_us(lane))) {
        lane->fatal = reason;
        (void)snprintf(lane->text, sizeof lane->text, "%s",
                       reason == PAWL_E_EPOCH
                           ? "another process has taken over this session"
                           : "the broker closed the lane for what it read in it");
        return reason;
    }
    lane->down_reason = reason;
    return PAWL_OK;
}

/* Nothing moves, because deliveries that the program still has, or that wait for a receive on
 * another queue, keep the room that the broker needs? It says so: with the bell on ROOM alone a
 * command of ours waits for room, with ROOM besides a delivery does. */
static bool ring_is_pinned(const struct pawl *lane)
{
    if (lane->mapping->pins == 0 || lane->retired_count >= PAWL_RETIRED_MAX)
        return false;
    uint32_t bell = pawl_load_acq_u32(&lane->comp_shm->bell);
    return (bell & PAWL_BELL_ROOM) && (lane->for_delivery || !(bell & PAWL_BELL_SUBMIT));
}

/* One announced sleep. Returns OK (look again) or a fatal code. */
static int sleep_once(struct pawl *lane, uint32_t want, bool first, uint64_t now, uint64_t until)
{
    bool on_fds = lane->slow && lane->watch >= 0;
    bool pinned = false;
    uint64_t limit = on_fds ? LONG_SLEEP_NS : first ? SLICE_FIRST_NS : SLICE_NS;
    uint32_t wake = pawl_load_acq_u32(&lane->comp_shm->wake);
    pawl_drain_release(lane, true);
    if (ring_is_pinned(lane)) {
        pinned = true;
        limit = SLICE_PINNED_NS;
    }
    lane->wait_number = (lane->wait_number + 1) & 0x3fffffff;
    lane->armed_number = 0;
    pawl_wait_announce(lane->sub_shm, lane->events + want, lane->wait_number,
                       on_fds ? PAWL_WAIT_FD : PAWL_WAIT_FUTEX);
    bool quiet = pawl_load_seq_u64(&lane->comp_shm->tail) == lane->comp.tail;
#ifdef PAWL_BUG_NO_SECOND_LOOK
    quiet = true;
#endif
    uint32_t state = pawl_load_acq_u32(&lane->comp_shm->state);
    if (quiet && state != PAWL_LANE_CLOSED) {
        uint64_t ns = pawl_min_u64(until - now, limit);
        if (on_fds)
            poll_wait(lane, ns);
        else
            futex_wait(&lane->comp_shm->wake, wake, ns);
    }
    pawl_wait_withdraw(lane->sub_shm);
    if (on_fds)
        empty_watch(lane);
    if (state == PAWL_LANE_CLOSED)
        return closed(lane);
    if (pawl_load_acq_u64(&lane->comp_shm->tail) != lane->comp.tail)
        return PAWL_OK;
    /* Woken for nothing, or the slice is over: is anybody there? */
    if (on_fds || pawl_now(lane) - now >= limit) {
        if (!pawl_lane_alive(lane))
            return PAWL_OK;
        if (pinned)
            (void)pawl_lane_enlarge(lane, 0, lane->comp.size, until);
        else if (!first && until - now > WATCH_WORTH_NS &&
                 (lane->watch >= 0 || pawl_lane_watch(lane, until) == PAWL_OK))
            lane->slow = true;
    }
    return PAWL_OK;
}

int pawl_lane_wait(struct pawl *lane, pawl_goal missing, uint64_t argument, uint64_t until)
{
    uint64_t start = 0;
    bool yielded = false;
    for (;;) {
        int rc;
        if (lane->fatal)
            return lane->fatal;
        if (!lane->attached) {
            rc = pawl_lane_recover(lane, until);
            if (rc != PAWL_OK)
                return rc;
        }
        pawl_lane_publish(lane);
        rc = pawl_drain(lane);
        if (rc != PAWL_OK)
            return rc;
        uint32_t left = missing(lane, argument);
        if (left == 0) {
            if (lane->slow && start && pawl_now(lane) - start < QUICK_NS)
                lane->slow = false;
            return PAWL_OK;
        }
        if (!lane->attached)
            continue;
        uint64_t now = pawl_now(lane);
        if (now >= until)
            return PAWL_E_DEADLINE;
        if (!start)
            start = now;
        if (now - start < lane->spin_ns || !yielded) {
            yielded = true;
            (void)sched_yield();
            continue;
        }
        rc = sleep_once(lane, (left + 1) / 2, now - start < SLICE_FIRST_NS, now, until);
        if (rc != PAWL_OK)
            return rc;
    }
}
