/* SPDX-License-Identifier: MIT */
/* The leases that a lane's program has, for who asks for help with them: which end soon, and a
 * thread that renews them.
 *
 *   - a table by grant number: in at hand-over, out when the message is settled or its lease is
 *     over; only kept after pawl_lease_help(), one branch else
 *   - the thread has a lane of its own (a token works from any), so that it never waits for the
 *     program nor the program for it; it renews at a third of the lease
 *   - what a transaction settles is not seen here: the thread learns it from its first refusal, and
 *     else the deadline ends it
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "client/lane.h"

#define SLOTS_FIRST 64u
#define ROW 64u             /* renewed with one flush */
#define LOOK_NS PAWL_NS_S   /* the thread looks at least as often: suspend stops its clock */
#define HELPER_NS PAWL_NS_S /* so long one of its calls, and so a close, may wait for a broker */

struct held {
    struct pawl_token token; /* grant 0: free */
    uint64_t deadline, span; /* our boot clock; span: from the last grant or renewal to deadline */
    uint64_t lease_ns;       /* to ask for; 0: the queue's */
    uint64_t renew_at;
};

struct pawl_held {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    struct pawl *lane; /* whose leases these are */
    bool renews, running, stop;
    struct held *slots;
    uint32_t mask, count;
};

/* --- table ----------------------------------------------------------------------------------- */

static uint32_t home_of(const struct pawl_held *h, uint64_t grant)
{
    return (uint32_t)(grant * 0x9e3779b97f4a7c15ull >> 32) & h->mask;
}

/* The grant alone names it but for direct queues, of which two may give the same. */
static struct held *find(struct pawl_held *h, const struct pawl_token *token)
{
    uint64_t grant = token->grant;
    uint32_t at = home_of(h, grant);
    while (h->slots[at].token.grant != 0 &&
           (h->slots[at].token.grant != grant || h->slots[at].token.random != token->random))
        at = (at + 1) & h->mask;
    return &h->slots[at];
}

/* Those behind it in its run move up, so that no search ends early. */
static void drop(struct pawl_held *h, struct held *e)
{
    uint32_t hole = (uint32_t)(e - h->slots), at = hole;
    h->count--;
    for (;;) {
        at = (at + 1) & h->mask;
        if (h->slots[at].token.grant == 0)
            break;
        uint32_t home = home_of(h, h->slots[at].token.grant);
        if (((at - home) & h->mask) < ((at - hole) & h->mask))
            continue;
        h->slots[hole] = h->slots[at];
        hole = at;
    }
    h->slots[hole].token.grant = 0;
}

static bool grow(struct pawl_held *h)
{
    struct held *old = h->slots;
    uint32_t slots = h->mask + 1;
    struct held *larger = calloc((size_t)slots * 2, sizeof *larger);
    if (!larger)
        return false;
    h->slots = larger;
    h->mask = slots * 2 - 1;
    for (uint32_t i = 0; i < slots; i++)
        if (old[i].token.grant)
            *find(h, &old[i].token) = old[i];
    free(old);
    return true;
}

static void set_times(struct held *e, uint64_t now, uint64_t span)
{
    e->span = span;
    e->deadline = pawl_add_sat(now, span);
    e->renew_at = pawl_add_sat(now, span / 3);
}

/* --- what the lane's calls say --------------------------------------------------------------- */

void pawl_held_add(struct pawl *lane, const struct pawl_message *m, uint64_t lease_ns, uint64_t now)
{
    struct pawl_held *h = lane->held;
    if (m->deadline_ns == 0 || m->deadline_ns == UINT64_MAX || m->token.grant == 0)
        return; /* at most once, or held: no time ends it */
    pthread_mutex_lock(&h->lock);
    /* Without memory it has no help, as without pawl_lease_help(). */
    if (h->count < h->mask / 2 || grow(h)) {
        struct held *e = find(h, &m->token);
        h->count += e->token.grant == 0;
        e->token = m->token;
        e->lease_ns = lease_ns;
        set_times(e, now, m->lease_left_ns);
        e->deadline = m->deadline_ns;
        pthread_cond_signal(&h->wake);
    }
    pthread_mutex_unlock(&h->lock);
}

void pawl_held_settled(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                       uint64_t lease_ns, int result)
{
    struct pawl_held *h = lane->held;
    /* Not done, or nobody knows: it is ours still. */
    if (result < 0 && pawl_advice(result) != PAWL_ADVICE_PERMANENT)
        return;
    pthread_mutex_lock(&h->lock);
    struct held *e = find(h, token);
    if (e->token.grant && type == PAWL_CMD_RENEW && result >= 0) {
        e->lease_ns = lease_ns;
        set_times(e, lane->now, lease_ns); /* when it was asked for: never later than it is */
    } else if (e->token.grant && type == PAWL_CMD_RENEW &&
               (result == PAWL_E_HOLD_CAP || result == PAWL_E_INVALID)) {
        e->renew_at = UINT64_MAX; /* it goes on to its end */
    } else if (e->token.grant) {
        drop(h, e);
    }
    pthread_mutex_unlock(&h->lock);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* Those of one length that are due, at most a row; and when the next is. */
static uint32_t due(struct pawl_held *h, uint64_t now, struct pawl_token *row, uint64_t *lease_ns,
                    uint64_t *next)
{
    uint32_t n = 0;
    *next = UINT64_MAX;
    for (uint32_t i = 0; i <= h->mask && h->count; i++) {
        struct held *e = &h->slots[i];
        if (e->token.grant == 0 || e->renew_at == UINT64_MAX)
            continue;
        if (e->renew_at <= now && n < ROW && (n == 0 || e->lease_ns == *lease_ns)) {
            *lease_ns = e->lease_ns;
            row[n++] = e->token;
        } else if (e->renew_at < *next) {
            *next = e->renew_at;
        }
    }
    return n;
}

static void note(struct pawl_held *h, const struct pawl_token *token, uint64_t asked, int result)
{
    struct held *e = find(h, token);
    if (e->token.grant == 0)
        return; /* settled meanwhile */
    if (result >= 0)
        set_times(e, asked, e->span);
    else if (result == PAWL_E_HOLD_CAP || result == PAWL_E_INVALID)
        e->renew_at = UINT64_MAX;
    else if (pawl_advice(result) == PAWL_ADVICE_PERMANENT)
        drop(h, e);
    else
        e->renew_at = asked + e->span / 12; /* no broker now: again, soon */
}

static void wait_until(struct pawl_held *h, uint64_t now, uint64_t next)
{
    uint64_t ns = pawl_min_u64(next > now ? next - now : 0, LOOK_NS);
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / PAWL_NS_S);
    t.tv_nsec = (long)(ns % PAWL_NS_S);
    if (h->count == 0)
        (void)pthread_cond_wait(&h->wake, &h->lock);
    else
        (void)pthread_cond_timedwait(&h->wake, &h->lock, &t);
}

static void *renew(void *arg)
{
    struct pawl_held *h = arg;
    struct pawl *own = NULL;
    struct pawl_token row[ROW];
    int32_t results[ROW];
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        uint64_t now = pawl_clock_boot(), next, lease_ns = 0;
        uint32_t n = due(h, now, row, &lease_ns, &next);
        if (n == 0) {
            wait_until(h, now, next);
            continue;
        }
        pthread_mutex_unlock(&h->lock);
        int rc = own ? PAWL_OK : pawl_lane_open(h->lane, &own);
        if (rc == PAWL_OK) {
            own->timeout_ns = pawl_min_u64(own->timeout_ns, HELPER_NS);
#ifndef PAWL_BUG_HELP_IDLE
            (void)pawl_held_renew(own, row, n, lease_ns, results);
#else
            memset(results, 0, sizeof results);
#endif
        }
        pthread_mutex_lock(&h->lock);
        for (uint32_t i = 0; i < n; i++)
            note(h, &row[i], now, rc == PAWL_OK ? results[i] : PAWL_E_BROKER_DOWN);
    }
    pthread_mutex_unlock(&h->lock);
    pawl_close(own);
    return NULL;
}

/* The program's signals are for its own threads. */
static int start(struct pawl_held *h)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&h->thread, NULL, renew, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    h->running = rc == 0;
    return rc == 0 ? PAWL_OK : PAWL_E_RESOURCE;
}

static void stop(struct pawl_held *h)
{
    if (!h->running)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
    (void)pthread_join(h->thread, NULL);
    h->running = h->stop = false;
}

/* --- calls ----------------------------------------------------------------------------------- */

void pawl_held_free(struct pawl *lane, bool forked)
{
    struct pawl_held *h = lane->held;
    if (!h)
        return;
    lane->held = NULL;
    if (!forked) { /* in a child there is no thread, and its lock may be taken for ever */
        stop(h);
        pthread_cond_destroy(&h->wake);
        pthread_mutex_destroy(&h->lock);
    }
    free(h->slots);
    free(h);
}

static struct pawl_held *make(struct pawl *lane)
{
    pthread_condattr_t monotonic;
    struct pawl_held *h = calloc(1, sizeof *h);
    if (h)
        h->slots = calloc(SLOTS_FIRST, sizeof *h->slots);
    if (!h || !h->slots) {
        free(h);
        return NULL;
    }
    h->mask = SLOTS_FIRST - 1;
    h->lane = lane;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&h->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return h;
}

int pawl_lease_help(struct pawl *lane, uint32_t flags)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (flags & ~(PAWL_LEASE_HELP_SOON | PAWL_LEASE_HELP_RENEW))
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_INVALID, "flags holds an unknown bit"));
    if (flags && !lane->held)
        lane->held = make(lane);
    bool renews = flags & PAWL_LEASE_HELP_RENEW;
    if (flags && !lane->held)
        rc = PAWL_E_RESOURCE;
    else if (flags == 0)
        pawl_held_free(lane, false);
    else if (renews && !lane->held->running)
        rc = start(lane->held);
    else if (!renews)
        stop(lane->held);
    if (rc != PAWL_OK)
        rc = pawl_call_refuse(lane, rc, "no memory or no thread for it");
    return pawl_call_leave(lane, rc);
}

static void forget_ended(struct pawl_held *h, uint64_t now)
{
    for (uint32_t i = 0; i <= h->mask; i++)
        while (h->slots[i].token.grant && h->slots[i].deadline <= now)
            drop(h, &h->slots[i]); /* another may have come here */
}

int pawl_lease_soon(struct pawl *lane, struct pawl_lease_left *out, uint32_t max)
{
    uint32_t n = 0;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    struct pawl_held *h = lane->held;
    if (!h || !out || max == 0 || max > PAWL_BATCH_MAX)
        return pawl_call_leave(lane, pawl_call_refuse(lane, h ? PAWL_E_INVALID : PAWL_E_MISUSE,
                                                      h ? "out and max (1..1024) are needed"
                                                        : "call pawl_lease_help() before"));
    uint64_t now = pawl_now(lane);
    pthread_mutex_lock(&h->lock);
    forget_ended(h, now);
    for (uint32_t i = 0; i <= h->mask && n < max; i++) {
        const struct held *e = &h->slots[i];
#ifdef PAWL_BUG_SOON_EARLY
        if (e->token.grant)
#else
        if (e->token.grant && e->deadline - now <= e->span / 5)
#endif
            out[n++] = (struct pawl_lease_left){ e->token, e->deadline - now };
    }
    pthread_mutex_unlock(&h->lock);
    return pawl_call_leave(lane, (int)n);
}
