/* SPDX-License-Identifier: MIT */
/* DIRECT, LOCKED and DETACH of abi/attach.h.
 *
 *   - DIRECT with nothing -> a lane is TAKEN for the session, its number and the memory go out
 *   - LOCKED -> the life byte is asked, the holder written down, the lane LIVE: in this order, so
 *     that a broker that dies anywhere here leaves no lane that works and is not known
 *   - DIRECT with incarnation and lane -> the lane, whose byte is held, is this session's from now
 *   - DETACH -> as a death, without waiting for one
 * Failures: no right, no such queue, no lane, no memory -> the code; the memory of the client is an
 * older one -> E_QUEUE_GONE, he lets it go and asks anew; it is awaited and he has it -> GIVE; and
 * he has it not -> LATER. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "session/direct_inner.h"
#include "session/session.h"

#define RIGHTS 6u /* receive 4, send 2 */

static void refuse(struct pawl_attach_direct_ok *ok, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void refuse(struct pawl_attach_direct_ok *ok, int result, const char *format, ...)
{
    va_list args;
    ok->result = result;
    va_start(args, format);
    vsnprintf(ok->text, sizeof ok->text, format, args);
    va_end(args);
}

/* --- descriptors of strangers ---------------------------------------------------------------- */

static void *close_apart(void *fd)
{
    (void)close((int)(intptr_t)fd);
    return NULL;
}

/* What is no memory file may belong to a file system that lets a close wait for its owner: not
 * here. Where no thread can be had it stays open; its session is closed for it anyway. */
static void close_strange(int fd)
{
    pthread_t thread;
    pthread_attr_t a;
    if (pthread_attr_init(&a) != 0)
        return;
    if (pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED) == 0)
        (void)!pthread_create(&thread, &a, close_apart, (void *)(intptr_t)fd);
    (void)pthread_attr_destroy(&a);
}

/* --- DIRECT ---------------------------------------------------------------------------------- */

static void describe(const struct pawl_direct_queue *q, struct pawl_attach_direct_ok *ok)
{
    ok->incarnation = q->facts.incarnation;
    ok->bytes = q->facts.bytes;
    ok->lease_ns = (uint64_t)q->shape.lease_ms * 1000000;
    ok->hold_ns = (uint64_t)q->shape.lease_ms_max * 1000000;
    ok->retry_ns = q->options.retry_count ? q->options.retry_ns[0] : 0;
    ok->slots = q->shape.capacity;
    ok->body_bytes = q->shape.body_bytes;
    ok->attempts = q->shape.attempts_max;
}

/* The queue, if this session may have it now; NULL: the answer says why not. */
static struct pawl_direct_queue *queue_for(struct pawl_directs *set, struct pawl_session *s,
                                           const struct pawl_attach_direct *ask,
                                           struct pawl_attach_direct_ok *ok)
{
    if ((ask->rights & ~RIGHTS) != 0 || ask->rights == 0) {
        refuse(ok, PAWL_E_INVALID, "rights are receive 4, send 2, or both");
        return NULL;
    }
    int rc = pawl_core_direct_allows(set->core, &s->peer, ask->queue, ask->rights);
    if (rc != PAWL_OK) {
        refuse(ok, rc, "%s", pawl_strerror(rc));
        return NULL;
    }
    struct pawl_direct_queue *q = pawl_directs_find(set, ask->queue);
    if (!q || q->visible >= set->durable) {
        ok->flags = PAWL_DIRECT_LATER;
        refuse(ok, PAWL_E_PAUSED, "the queue is just being made");
        return NULL;
    }
    return q;
}

static void offer_lane(struct pawl_direct_queue *q, struct pawl_session *s,
                       const struct pawl_attach_direct *ask, struct pawl_attach_direct_ok *ok,
                       int *give)
{
    uint8_t session[16] = { 0 };
    uint64_t id = pawl_core_session_id(s->core);
    memcpy(session, &id, sizeof id);
    int lane = pawl_direct_lane_take(q->broker, session);
    if (lane < 0) {
        refuse(ok, lane, "all %u lanes of direct queue %s are in use", q->shape.lanes, q->name);
        return;
    }
    q->owners[lane] = (struct pawl_direct_owner){
        .session = id, .pid = s->peer.pid, .start_time = s->peer.start_time, .held = true
    };
    q->held++;
    if (q->life_at == UINT64_MAX)
        q->life_at = 0;
    if (s->peer.pid == (uint32_t)getpid())
        q->shared = true;
    describe(q, ok);
    ok->lane = (uint32_t)lane;
    if (ask->incarnation != q->facts.incarnation)
        *give = q->fd;
}

/* A lane that the process has from before, by another session or an earlier broker. */
static void take_lane(struct pawl_directs *set, struct pawl_direct_queue *q, struct pawl_session *s,
                      const struct pawl_attach_direct *ask, struct pawl_attach_direct_ok *ok)
{
    uint64_t id = pawl_core_session_id(s->core);
    uint32_t n = ask->lane;
    if (n > q->shape.lanes || !q->owners[n].held ||
        pawl_direct_lane_status(q->broker, n) != PAWL_DIRECT_LANE_LIVE ||
        pawl_direct_life_held(q->fd, n) != 1) {
        refuse(ok, PAWL_E_QUEUE_GONE, "lane %u of direct queue %s is over", n, q->name);
        return;
    }
    struct pawl_direct_owner *o = &q->owners[n];
    const struct pawl_session *other =
        o->session ? pawl_sessions_by_id(set->sessions, o->session) : NULL;
    if (other && other != s) {
        refuse(ok, PAWL_E_PERM, "lane %u of direct queue %s is another session's", n, q->name);
        return;
    }
    *o = (struct pawl_direct_owner){
        .session = id, .pid = s->peer.pid, .start_time = s->peer.start_time, .held = true
    };
    pawl_direct_queue_note(set, q, n);
    describe(q, ok);
    ok->lane = n;
}

/* False: it is not, or not yet. *fd is -1 once it was taken. */
static bool take_back(struct pawl_directs *set, struct pawl_direct_queue *q,
                      const struct pawl_session *s, const struct pawl_attach_direct *ask, int *fd,
                      struct pawl_attach_direct_ok *ok)
{
    if (ask->incarnation != q->facts.incarnation) {
        /* Its DETACH may have come to nobody. */
        pawl_direct_queue_disown(set, q, s->peer.pid, s->peer.start_time);
        ok->flags = PAWL_DIRECT_LATER;
        refuse(ok, PAWL_E_PAUSED,
               "the memory of direct queue %s is with a process that has not come back to this "
               "broker",
               q->name);
        return false;
    }
    if (*fd < 0) {
        ok->flags = PAWL_DIRECT_GIVE;
        refuse(ok, PAWL_E_PAUSED, "give the memory");
        return false;
    }
    int rc = pawl_direct_memory_prove(*fd, &q->facts);
    if (rc != 0) {
        refuse(ok, PAWL_E_PERM, "that is not the memory of direct queue %s", q->name);
        return false;
    }
    rc = pawl_direct_queue_take_back(set, q, *fd);
    if (rc != PAWL_OK) {
        refuse(ok, rc, "the memory of direct queue %s cannot be served: %s", q->name,
               pawl_strerror(rc));
        return false;
    }
    *fd = -1;
    return true;
}

static void attach(struct pawl_directs *set, struct pawl_session *s,
                   const struct pawl_attach_direct *ask, int *fd, struct pawl_attach_direct_ok *ok,
                   int *give)
{
    struct pawl_direct_queue *q = queue_for(set, s, ask, ok);
    if (!q)
        return;
    if (q->where == PAWL_DIRECT_PLACE_AWAITED && !take_back(set, q, s, ask, fd, ok))
        return;
    if (ask->incarnation != 0 &&
        (q->where == PAWL_DIRECT_PLACE_EMPTY || ask->incarnation != q->facts.incarnation)) {
        refuse(ok, PAWL_E_QUEUE_GONE, "that memory of direct queue %s is over", q->name);
        return;
    }
    if (q->where == PAWL_DIRECT_PLACE_EMPTY) {
        int rc = pawl_direct_queue_make(set, q);
        if (rc != PAWL_OK) {
            refuse(ok, rc, "no memory for direct queue %s: %s", q->name, pawl_strerror(rc));
            return;
        }
    }
    if (ask->lane != 0)
        take_lane(set, q, s, ask, ok);
    else
        offer_lane(q, s, ask, ok, give);
}

bool pawl_directs_attach(struct pawl_directs *set, struct pawl_session *session,
                         const struct pawl_attach_direct *ask, int fd,
                         struct pawl_attach_direct_ok *ok, int *give, const char **why)
{
    *give = -1;
    set->due = 0; /* what comes here may have something to do at once */
    bool strange = fd >= 0 && fcntl(fd, F_GET_SEALS) < 0;
    if (!strange)
        attach(set, session, ask, &fd, ok, give);
    if (strange) {
        close_strange(fd);
        *why = "it sent a descriptor that is no memory";
        return false;
    }
    if (fd >= 0)
        (void)close(fd);
    return true;
}

/* --- LOCKED and DETACH ----------------------------------------------------------------------- */

/* The lane that the packet names, if it is this session's. */
static struct pawl_direct_queue *lane_of(struct pawl_directs *set, const struct pawl_session *s,
                                         const struct pawl_attach_direct *ask)
{
    struct pawl_direct_queue *q = pawl_directs_find(set, ask->queue);
    if (!q || q->where != PAWL_DIRECT_PLACE_HERE || ask->lane == 0 || ask->lane > q->shape.lanes ||
        !q->owners[ask->lane].held || q->owners[ask->lane].session != pawl_core_session_id(s->core))
        return NULL;
    return q;
}

void pawl_directs_locked(struct pawl_directs *set, struct pawl_session *session,
                         const struct pawl_attach_direct *ask, struct pawl_attach_direct_ok *ok)
{
    struct pawl_direct_queue *q = lane_of(set, session, ask);
    if (!q) {
        refuse(ok, PAWL_E_QUEUE_GONE, "no such lane was offered");
        return;
    }
    if (pawl_direct_life_held(q->fd, ask->lane) != 1) {
        pawl_direct_lane_over(set, q, ask->lane);
        refuse(ok, PAWL_E_STATE, "nobody holds the life byte of lane %u", ask->lane);
        return;
    }
    pawl_direct_queue_note(set, q, ask->lane);
    pawl_direct_lane_live(q->broker, ask->lane);
    if (q->sweep_at == UINT64_MAX)
        q->sweep_at = set->boot;
    set->due = 0;
    describe(q, ok);
    ok->lane = ask->lane;
}

void pawl_directs_detach(struct pawl_directs *set, struct pawl_session *session,
                         const struct pawl_attach_direct *ask)
{
    struct pawl_direct_queue *q = lane_of(set, session, ask);
    if (q)
        pawl_direct_lane_over(set, q, ask->lane);
}
