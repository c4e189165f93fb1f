/* SPDX-License-Identifier: MIT */
#include "session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bits.h"
#include "session/peer.h"

#define PACKETS_A_TURN 8u /* of one connection */
#define ACCEPTS_A_TURN 64u
#define PACKET_BYTES 512u /* larger than any message of the client */

void pawl_sessions_say(struct pawl_sessions *set, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    set->say(set->say_ctx, line);
}

/* --- notes of what is ready; inside pawl_io_wait() ------------------------------------------- */

static void note(struct pawl_session *session)
{
    if (pawl_list_empty(&session->pending))
        pawl_list_push_back(&session->set->pending, &session->pending);
}

static void socket_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_session *s = PAWL_CONTAINER(watch, struct pawl_session, socket_watch);
    (void)events; /* what it is, the next recv tells */
    s->readable = true;
    note(s);
}

static void pid_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_session *s = PAWL_CONTAINER(watch, struct pawl_session, pid_watch);
    (void)events;
    s->exited = true;
    note(s);
}

static void orphan_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_orphan *o = PAWL_CONTAINER(watch, struct pawl_orphan, watch);
    (void)events;
    if (pawl_list_empty(&o->pending))
        pawl_list_push_back(&o->set->orphans_pending, &o->pending);
}

static void listen_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_sessions *set = PAWL_CONTAINER(watch, struct pawl_sessions, listen_watch);
    (void)events;
    set->accept_pending = true;
}

/* --- orphans --------------------------------------------------------------------------------- */

static void orphan_free(struct pawl_orphan *orphan)
{
    struct pawl_sessions *set = orphan->set;
    set->io->ops->watch_remove(set->io, &orphan->watch);
    (void)close(orphan->pidfd);
    pawl_list_remove(&orphan->place);
    pawl_list_remove(&orphan->pending);
    set->files--;
    free(orphan);
}

/* Takes the pidfd over. Without memory or room for a watch the session just lasts its grace. */
static void orphan_new(struct pawl_sessions *set, uint64_t id, int pidfd)
{
    struct pawl_orphan *o = calloc(1, sizeof *o);
    if (!o) {
        (void)close(pidfd);
        return;
    }
    o->set = set;
    o->session = id;
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
            orphan_free(o);
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
static void orphan_died(struct pawl_sessions *set, struct pawl_orphan *orphan)
{
    struct found f = { .id = orphan->session };
    orphan_free(orphan);
    pawl_core_session_each(set->core, match, &f);
    if (f.session)
        pawl_core_session_end(set->core, f.session, PAWL_END_DEAD, set->now);
}

/* --- connections ----------------------------------------------------------------------------- */

struct pawl_session *pawl_sessions_by_id(struct pawl_sessions *set, uint64_t id)
{
    for (struct pawl_list *l = set->all.next; l != &set->all; l = l->next) {
        struct pawl_session *s = PAWL_CONTAINER(l, struct pawl_session, place);
        if (s->core && pawl_core_session_id(s->core) == id)
            return s;
    }
    return NULL;
}

uint32_t pawl_sessions_of_uid(const struct pawl_sessions *set, uint32_t uid)
{
    uint32_t n = 0;
    for (struct pawl_list *l = set->all.next; l != &set->all; l = l->next)
        n += PAWL_CONTAINER(l, struct pawl_session, place)->peer.uid == uid;
    return n;
}

void pawl_session_close_lane(struct pawl_lane *lane, int32_t reason)
{
    lane->session->lane_count--;
    lane->session->set->files -= lane->watch_fd >= 0 ? 2 : 1;
    pawl_lane_close(lane, reason);
}

void pawl_session_free(struct pawl_session *session, int32_t reason)
{
    struct pawl_sessions *set = session->set;
    while (!pawl_list_empty(&session->lanes))
        pawl_session_close_lane(PAWL_CONTAINER(session->lanes.next, struct pawl_lane, of_session),
                                reason);
    set->io->ops->watch_remove(set->io, &session->socket_watch);
    if (session->pidfd >= 0) {
        set->io->ops->watch_remove(set->io, &session->pid_watch);
        (void)close(session->pidfd);
        set->files--;
    }
    (void)close(session->fd);
    set->files--;
    set->count--;
    if (session->state == PAWL_SESSION_GREETING)
        set->greeting_count--;
    pawl_list_remove(&session->place);
    pawl_list_remove(&session->timer);
    pawl_list_remove(&session->pending);
    pawl_list_remove(&session->doomed);
    free(session);
}

static void end(struct pawl_session *session, enum pawl_core_end how, int32_t reason)
{
    struct pawl_sessions *set = session->set;
    if (session->core) {
        for (struct pawl_list *l = session->lanes.next; l != &session->lanes; l = l->next) {
            struct pawl_lane *lane = PAWL_CONTAINER(l, struct pawl_lane, of_session);
            pawl_core_lane_taken(set->core, lane->core, pawl_load_acq_u64(&lane->sub->taken));
        }
#ifndef PAWL_BUG_DEAD_KEPT
        pawl_core_session_end(set->core, session->core, how, set->now);
#endif
        session->core = NULL;
    }
    pawl_session_free(session, reason);
}

static void detach(struct pawl_session *session)
{
    struct pawl_sessions *set = session->set;
    uint64_t id = pawl_core_session_id(session->core);
    for (struct pawl_list *l = session->lanes.next; l != &session->lanes; l = l->next) {
        struct pawl_lane *lane = PAWL_CONTAINER(l, struct pawl_lane, of_session);
        pawl_core_lane_taken(set->core, lane->core, pawl_load_acq_u64(&lane->sub->taken));
        pawl_core_lane_close(set->core, lane->core, set->now);
    }
    pawl_core_session_detach(set->core, session->core, set->now);
    session->core = NULL;
    if (session->pidfd >= 0) {
        set->io->ops->watch_remove(set->io, &session->pid_watch);
        set->files--;
        orphan_new(set, id, session->pidfd);
        session->pidfd = -1;
    }
    pawl_session_free(session, PAWL_E_BROKER_DOWN);
}

void pawl_session_doom(struct pawl_session *session, int32_t result, const char *why)
{
    if (session->doom != 0)
        return;
    session->doom = result;
    session->why = why;
    for (struct pawl_list *l = session->lanes.next; l != &session->lanes; l = l->next)
        pawl_lane_deactivate(PAWL_CONTAINER(l, struct pawl_lane, of_session));
    pawl_list_push_back(&session->set->doomed, &session->doomed);
}

/* Labels come from clients: nothing of them may move a terminal or forge a line. */
static const char *printable(const char *label, char out[PAWL_ATTACH_LABEL_BYTES])
{
    size_t i = 0;
    for (; label[i] != '\0' && i + 1 < PAWL_ATTACH_LABEL_BYTES; i++)
        out[i] = label[i] >= ' ' && label[i] <= '~' ? label[i] : '?';
    out[i] = '\0';
    return out;
}

static void bury_doomed(struct pawl_sessions *set)
{
    while (!pawl_list_empty(&set->doomed)) {
        struct pawl_session *s = PAWL_CONTAINER(set->doomed.next, struct pawl_session, doomed);
        char label[PAWL_ATTACH_LABEL_BYTES];
        if (s->doom == PAWL_E_PROTOCOL)
            pawl_sessions_say(set,
                              "closed a client for a breach of the protocol: %s (pid %u, uid "
                              "%u, label \"%s\")",
                              s->why, s->peer.pid, s->peer.uid, printable(s->peer.label, label));
        end(s, PAWL_END_BREACH, s->doom);
    }
}

/* The other end of the socket is gone. False: so is the session. */
static bool socket_ended(struct pawl_session *session)
{
    if (session->state == PAWL_SESSION_GREETING || session->pidfd < 0 || session->exited ||
        pawl_peer_exited(session->pidfd)) {
        end(session, PAWL_END_DEAD, PAWL_E_BROKER_DOWN);
        return false;
    }
    if (session->state == PAWL_SESSION_ATTACHED) {
        session->state = PAWL_SESSION_LINGERING;
        session->deadline = session->set->boot + PAWL_LINGER_NS;
        pawl_list_push_back(&session->set->lingering, &session->timer);
    }
    return true;
}

/* Unread packets make the close a reset, and the client would see that before our answer. */
static void discard(int fd)
{
    char bytes[PACKET_BYTES];
    for (int i = 0; i < 16; i++)
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC) <= 0)
            return;
}

/* Reads up to PACKETS_A_TURN packets. False: the session is gone. */
static bool serve_socket(struct pawl_session *session)
{
    for (uint32_t i = 0; i < PACKETS_A_TURN; i++) {
        uint64_t packet[PACKET_BYTES / 8];
        struct iovec v = { .iov_base = packet, .iov_len = sizeof packet };
        /* No room for control messages: the kernel drops what descriptors come and says so. */
        struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
        ssize_t n = recvmsg(session->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            session->readable = false;
            return true;
        }
        if (n <= 0) {
            session->readable = false;
            return socket_ended(session);
        }
        if ((m.msg_flags & MSG_CTRUNC) != 0) {
            pawl_session_doom(session, PAWL_E_PROTOCOL, "it sent a descriptor");
            return true;
        }
        size_t bytes = (m.msg_flags & MSG_TRUNC) != 0 ? PACKET_BYTES + 1 : (size_t)n;
        if (!pawl_attach_packet(session, packet, bytes)) {
            if (session->doom != 0)
                return true;
            discard(session->fd);
            end(session, PAWL_END_CLOSED, 0);
            return false;
        }
    }
    note(session); /* there may be more: the edge has passed */
    return true;
}

static void serve_session(struct pawl_session *session)
{
    if (session->doom != 0)
        return;
    /* The socket first: a BYE that was sent before the end is a clean end. But one round only: a
     * child that holds the socket could write for ever. */
    bool exited = session->exited;
    if (session->readable && !serve_socket(session))
        return;
    if (exited && session->doom == 0)
        end(session, PAWL_END_DEAD, PAWL_E_BROKER_DOWN);
}

/* --- accepting ------------------------------------------------------------------------------- */

static bool files_left(const struct pawl_sessions *set, uint32_t more)
{
    return set->files + more + PAWL_FILES_RESERVE <= set->limits.files_max;
}

/* The oldest greeting connection of all, or of one uid, makes room. */
static void drop_oldest_greeting(struct pawl_sessions *set, uint32_t uid, bool any)
{
    for (struct pawl_list *l = set->greeting.next; l != &set->greeting; l = l->next) {
        struct pawl_session *s = PAWL_CONTAINER(l, struct pawl_session, timer);
        if (any || s->peer.uid == uid) {
            pawl_session_free(s, 0);
            return;
        }
    }
}

static uint32_t greeting_of_uid(const struct pawl_sessions *set, uint32_t uid)
{
    uint32_t n = 0;
    for (struct pawl_list *l = set->greeting.next; l != &set->greeting; l = l->next)
        n += PAWL_CONTAINER(l, struct pawl_session, timer)->peer.uid == uid;
    return n;
}

static void take_connection(struct pawl_sessions *set, int fd)
{
    struct pawl_session *s = calloc(1, sizeof *s);
    if (!s || pawl_peer_identify(fd, &s->peer, &s->pidfd) != 0) {
        free(s);
        (void)close(fd);
        return;
    }
    if (greeting_of_uid(set, s->peer.uid) >= PAWL_GREETING_UID_MAX)
        drop_oldest_greeting(set, s->peer.uid, false);
    else if (set->greeting_count >= PAWL_GREETING_MAX)
        drop_oldest_greeting(set, 0, true);
    s->set = set;
    s->fd = fd;
    s->state = PAWL_SESSION_GREETING;
    s->deadline = set->boot + PAWL_HANDSHAKE_NS;
    s->readable = true;
    pawl_list_init(&s->lanes);
    pawl_list_init(&s->pending);
    pawl_list_init(&s->doomed);
    s->socket_watch =
        (struct pawl_io_watch){ .ready = socket_ready, .fd = fd, .events = EPOLLIN | EPOLLRDHUP };
    s->pid_watch = (struct pawl_io_watch){ .ready = pid_ready, .fd = s->pidfd, .events = EPOLLIN };
    int rc = set->io->ops->watch_add(set->io, &s->socket_watch);
    if (rc == 0 && s->pidfd >= 0) {
        rc = set->io->ops->watch_add(set->io, &s->pid_watch);
        if (rc != 0)
            set->io->ops->watch_remove(set->io, &s->socket_watch);
    }
    if (rc != 0) {
        if (s->pidfd >= 0)
            (void)close(s->pidfd);
        (void)close(fd);
        free(s);
        return;
    }
    set->files += s->pidfd >= 0 ? 2 : 1;
    set->count++;
    set->greeting_count++;
    pawl_list_push_back(&set->all, &s->place);
    pawl_list_push_back(&set->greeting, &s->timer);
    note(s); /* HELLO has often come already */
}

/* No descriptor is left for one more: the spare one is given up for as long as it takes to close
 * the newcomer, who would else stay in the backlog and wake us for ever. */
static bool refuse_with_spare(struct pawl_sessions *set)
{
    if (set->spare_fd < 0)
        return false;
    (void)close(set->spare_fd);
    int fd = accept4(set->listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        (void)close(fd);
    set->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

static uint32_t accept_some(struct pawl_sessions *set)
{
    for (uint32_t i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(set->listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && refuse_with_spare(set))
            continue;
        if (fd < 0) {
            set->accept_pending = false;
            return i;
        }
        if (!files_left(set, 2)) {
            (void)close(fd);
            continue;
        }
        take_connection(set, fd);
    }
    return ACCEPTS_A_TURN;
}

/* --- turn ------------------------------------------------------------------------------------ */

static uint32_t expire(struct pawl_sessions *set)
{
    uint32_t n = 0;
    for (; !pawl_list_empty(&set->greeting); n++) {
        struct pawl_session *s = PAWL_CONTAINER(set->greeting.next, struct pawl_session, timer);
        if (s->deadline > set->boot)
            break;
        pawl_session_free(s, 0);
    }
    for (; !pawl_list_empty(&set->lingering); n++) {
        struct pawl_session *s = PAWL_CONTAINER(set->lingering.next, struct pawl_session, timer);
        if (s->deadline > set->boot)
            break;
        if (pawl_peer_exited(s->pidfd))
            end(s, PAWL_END_DEAD, PAWL_E_BROKER_DOWN);
        else
            detach(s);
    }
    return n;
}

uint32_t pawl_sessions_serve(struct pawl_sessions *set, struct pawl_now now, uint64_t boot)
{
    uint32_t n = 0;
    set->now = now;
    set->boot = boot;
    if (set->accept_pending)
        n += accept_some(set);
    /* Only what stands here now: what asks for another round comes next turn. */
    struct pawl_list round;
    pawl_list_init(&round);
    while (!pawl_list_empty(&set->pending)) {
        struct pawl_list *l = set->pending.next;
        pawl_list_remove(l);
        pawl_list_push_back(&round, l);
    }
    for (; !pawl_list_empty(&round); n++) {
        struct pawl_session *s = PAWL_CONTAINER(round.next, struct pawl_session, pending);
        pawl_list_remove(&s->pending);
        serve_session(s);
    }
    for (; !pawl_list_empty(&set->orphans_pending); n++)
        orphan_died(set, PAWL_CONTAINER(set->orphans_pending.next, struct pawl_orphan, pending));
    n += expire(set);
    bury_doomed(set);
    return n + (pawl_list_empty(&set->pending) ? 0 : 1);
}

uint64_t pawl_sessions_next(const struct pawl_sessions *set)
{
    uint64_t next = UINT64_MAX;
    if (!pawl_list_empty(&set->greeting))
        next = PAWL_CONTAINER(set->greeting.next, struct pawl_session, timer)->deadline;
    if (!pawl_list_empty(&set->lingering))
        next = pawl_min_u64(
            next, PAWL_CONTAINER(set->lingering.next, struct pawl_session, timer)->deadline);
    return next;
}

/* --- start and stop -------------------------------------------------------------------------- */

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
    if (fate == PAWL_PEER_ALIVE && files_left(r->set, 1)) {
        orphan_new(r->set, id, pidfd);
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

static int judge_recovered(struct pawl_sessions *set, bool same_boot)
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

int pawl_sessions_start(struct pawl_sessions *set, struct pawl_now now, uint64_t boot,
                        bool same_boot)
{
    pawl_list_init(&set->all);
    pawl_list_init(&set->greeting);
    pawl_list_init(&set->lingering);
    pawl_list_init(&set->pending);
    pawl_list_init(&set->doomed);
    pawl_list_init(&set->orphans);
    pawl_list_init(&set->orphans_pending);
    set->now = now;
    set->boot = boot;
    set->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int rc = judge_recovered(set, same_boot);
    if (rc != 0)
        return rc;
    set->listen_watch =
        (struct pawl_io_watch){ .ready = listen_ready, .fd = set->listener->fd, .events = EPOLLIN };
    set->accept_pending = true; /* what came between bind and now has made its edge */
    return set->io->ops->watch_add(set->io, &set->listen_watch);
}

void pawl_sessions_stop(struct pawl_sessions *set, int32_t reason)
{
    if (set->listen_watch.armed)
        set->io->ops->watch_remove(set->io, &set->listen_watch);
    while (!pawl_list_empty(&set->all))
        pawl_session_free(PAWL_CONTAINER(set->all.next, struct pawl_session, place), reason);
    while (!pawl_list_empty(&set->orphans))
        orphan_free(PAWL_CONTAINER(set->orphans.next, struct pawl_orphan, place));
    if (set->spare_fd >= 0)
        (void)close(set->spare_fd);
    set->spare_fd = -1;
}
