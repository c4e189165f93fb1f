/* SPDX-License-Identifier: MIT */
/* Processes whose session is in the log without a connection: watched until they come back, die, or
 * their grace is over. At the start of the broker each recovered session is judged once.
 *
 * One descriptor a process, not a session: a program that lives long may lose many. Where a process
 * cannot be named (another pid namespace) each session has its own. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/bits.h"
#include "session/peer.h"
#include "session/session.h"

static void orphan_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_orphan *o = PAWL_CONTAINER(watch, struct pawl_orphan, watch);
    (void)events;
    if (pawl_list_empty(&o->pending))
        pawl_list_push_back(&o->set->orphans_pending, &o->pending);
}

void pawl_orphan_free(struct pawl_orphan *orphan)
{
    struct pawl_sessions *set = orphan->set;
    set->io->ops->watch_remove(set->io, &orphan->watch);
    (void)close(orphan->pidfd);
    pawl_list_remove(&orphan->place);
    pawl_list_remove(&orphan->pending);
    set->files--;
    free(orphan);
}

static bool nameable(const struct pawl_core_peer *peer)
{
    return peer->pid != 0 && peer->start_time != 0;
}

static struct pawl_orphan *find(const struct pawl_sessions *set, const struct pawl_core_peer *peer)
{
    for (struct pawl_list *l = set->orphans.next; l != &set->orphans; l = l->next) {
        struct pawl_orphan *o = PAWL_CONTAINER(l, struct pawl_orphan, place);
        if (o->session == 0 && o->pid == peer->pid && o->start_time == peer->start_time)
            return o;
    }
    return NULL;
}

void pawl_orphan_create(struct pawl_sessions *set, uint64_t id, const struct pawl_core_peer *peer,
                        int pidfd)
{
    struct pawl_orphan *o = nameable(peer) ? find(set, peer) : NULL;
    if (o) {
        /* The youngest has the last deadline: so it stands at the end of the row. */
        (void)close(pidfd);
        o->deadline = pawl_add_sat(set->boot, set->limits.grace_ns);
        pawl_list_remove(&o->place);
        pawl_list_push_back(&set->orphans, &o->place);
        return;
    }
    o = calloc(1, sizeof *o);
    if (!o) {
        (void)close(pidfd);
        return;
    }
    o->set = set;
    o->session = nameable(peer) ? 0 : id;
    o->pid = peer->pid;
    o->start_time = peer->start_time;
    o->deadline = pawl_add_sat(set->boot, set->limits.grace_ns);
    o->pidfd = pidfd;
    o->watch = (struct pawl_io_watch){ .ready = orphan_ready, .fd = pidfd, .events = EPOLLIN };
    pawl_list_init(&o->pending);
    if (set->io->ops->watch_add(set->io, &o->watch) != 0) {
        (void)close(pidfd);
        free(o);
        return;
    }
    set->files++;
    pawl_list_push_back(&set->orphans, &o->place);
}

/* --- the core's sessions, by what is known of their process ---------------------------------- */

/* Ids first, ends afterwards: the walk over the core's sessions must not lose its footing. */
struct dead {
    struct pawl_sessions *set;
    const struct pawl_orphan *orphan; /* judge for this one; NULL: judge all */
    bool same_boot;
    uint64_t *ids;
    uint32_t count, max;
    bool no_memory;
};

static void add(struct dead *d, uint64_t id)
{
    if (d->count == d->max) {
        uint32_t more = d->max ? d->max * 2 : 64;
        uint64_t *ids = realloc(d->ids, more * sizeof *ids);
        if (!ids) {
            d->no_memory = true; /* the others last their grace */
            return;
        }
        d->ids = ids;
        d->max = more;
    }
    d->ids[d->count++] = id;
}

struct found {
    uint64_t id;
    struct pawl_core_session *session;
};

static void match(void *ctx, struct pawl_core_session *session)
{
    struct found *f = ctx;
    if (pawl_core_session_id(session) == f->id)
        f->session = session;
}

static void end_all(struct dead *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        struct found f = { .id = d->ids[i] };
        pawl_core_session_each(d->set->core, match, &f);
        if (f.session)
            pawl_core_session_end(d->set->core, f.session, PAWL_END_DEAD, d->set->now);
    }
    free(d->ids);
}

/* Those that are attached have a pidfd of their own. */
static void left_by(void *ctx, struct pawl_core_session *session)
{
    struct dead *d = ctx;
    const struct pawl_core_peer *peer = pawl_core_session_peer(session);
    uint64_t id = pawl_core_session_id(session);
    bool its = d->orphan->session != 0
                   ? id == d->orphan->session
                   : peer->pid == d->orphan->pid && peer->start_time == d->orphan->start_time;
    if (its && !pawl_sessions_by_id(d->set, id))
        add(d, id);
}

void pawl_orphan_died(struct pawl_orphan *orphan)
{
    struct dead d = { .set = orphan->set, .orphan = orphan };
    pawl_core_session_each(orphan->set->core, left_by, &d);
    pawl_orphan_free(orphan);
    end_all(&d);
}

static void judge(void *ctx, struct pawl_core_session *session)
{
    struct dead *d = ctx;
    const struct pawl_core_peer *peer = pawl_core_session_peer(session);
    int pidfd = -1;
    enum pawl_peer_fate fate = PAWL_PEER_DEAD;
    if (d->same_boot)
        fate = pawl_peer_find(peer->pid, peer->start_time, &pidfd);
    if (fate == PAWL_PEER_DEAD)
        add(d, pawl_core_session_id(session));
    else if (fate == PAWL_PEER_ALIVE && pawl_sessions_files_left(d->set, 1))
        pawl_orphan_create(d->set, pawl_core_session_id(session), peer, pidfd);
    else if (fate == PAWL_PEER_ALIVE)
        (void)close(pidfd);
}

int pawl_orphans_judge(struct pawl_sessions *set, bool same_boot)
{
    struct dead d = { .set = set, .same_boot = same_boot };
    pawl_core_session_each(set->core, judge, &d);
    end_all(&d);
    return d.no_memory ? -ENOMEM : 0;
}
