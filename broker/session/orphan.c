/* SPDX-License-Identifier: MIT */
/* Processes whose session is in the log without a connection: watched until they come back, die, or
 * their grace is over. At the start of the broker each recovered session is judged once. */
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

void pawl_orphan_create(struct pawl_sessions *set, uint64_t id, int pidfd)
{
    struct pawl_orphan *o = calloc(1, sizeof *o);
    if (!o) {
        (void)close(pidfd);
        return;
    }
    o->set = set;
    o->session = id;
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

void pawl_sessions_forget_orphan(struct pawl_sessions *set, uint64_t id)
{
    struct pawl_list *next;
    for (struct pawl_list *l = set->orphans.next; l != &set->orphans; l = next) {
        struct pawl_orphan *o = PAWL_CONTAINER(l, struct pawl_orphan, place);
        next = l->next;
        if (o->session == id)
            pawl_orphan_free(o);
    }
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

/* A detached session may have ended by its grace meanwhile: so it is looked up, which is O(n) and
 * happens once a death. */
void pawl_orphan_died(struct pawl_orphan *orphan)
{
    struct pawl_sessions *set = orphan->set;
    struct found f = { .id = orphan->session };
    pawl_orphan_free(orphan);
    pawl_core_session_each(set->core, match, &f);
    if (f.session)
        pawl_core_session_end(set->core, f.session, PAWL_END_DEAD, set->now);
}

/* --- recovery -------------------------------------------------------------------------------- */

struct recovered {
    struct pawl_sessions *set;
    bool same_boot;
    uint64_t *dead;
    uint32_t dead_count, dead_max;
    bool no_memory;
};

static void judge(void *ctx, struct pawl_core_session *session)
{
    struct recovered *r = ctx;
    const struct pawl_core_peer *peer = pawl_core_session_peer(session);
    uint64_t id = pawl_core_session_id(session);
    int pidfd = -1;
    enum pawl_peer_fate fate = PAWL_PEER_DEAD;
    if (r->same_boot)
        fate = pawl_peer_find(peer->pid, peer->start_time, &pidfd);
    if (fate == PAWL_PEER_ALIVE && pawl_sessions_files_left(r->set, 1)) {
        pawl_orphan_create(r->set, id, pidfd);
    } else if (fate == PAWL_PEER_ALIVE) {
        (void)close(pidfd);
    } else if (fate == PAWL_PEER_DEAD) {
        if (r->dead_count == r->dead_max) {
            uint32_t more = r->dead_max ? r->dead_max * 2 : 64;
            uint64_t *dead = realloc(r->dead, more * sizeof *dead);
            if (!dead) {
                r->no_memory = true;
                return;
            }
            r->dead = dead;
            r->dead_max = more;
        }
        r->dead[r->dead_count++] = id;
    }
}

int pawl_orphans_judge(struct pawl_sessions *set, bool same_boot)
{
    struct recovered r = { .set = set, .same_boot = same_boot };
    pawl_core_session_each(set->core, judge, &r);
    /* Ended after the walk, which must not lose its footing. */
    for (uint32_t i = 0; i < r.dead_count; i++) {
        struct found f = { .id = r.dead[i] };
        pawl_core_session_each(set->core, match, &f);
        if (f.session)
            pawl_core_session_end(set->core, f.session, PAWL_END_DEAD, set->now);
    }
    free(r.dead);
    return r.no_memory ? -ENOMEM : 0;
}
