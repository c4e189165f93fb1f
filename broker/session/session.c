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
#include "session/direct.h"
#include "session/peer.h"

#define PACKETS_A_TURN 8u /* of one connection */
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

static void close_socket(struct pawl_session *session)
{
    struct pawl_sessions *set = session->set;
    if (session->fd < 0)
        return;
    set->io->ops->watch_remove(set->io, &session->socket_watch);
    (void)close(session->fd);
    session->fd = -1;
    set->files--;
}

void pawl_session_free(struct pawl_session *session, int32_t reason)
{
    struct pawl_sessions *set = session->set;
    while (!pawl_list_empty(&session->lanes))
        pawl_session_close_lane(PAWL_CONTAINER(session->lanes.next, struct pawl_lane, of_session),
                                reason);
    close_socket(session);
    if (session->pidfd >= 0) {
        set->io->ops->watch_remove(set->io, &session->pid_watch);
        (void)close(session->pidfd);
        set->files--;
    }
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
        if (how == PAWL_END_DEAD && set->directs)
            pawl_directs_session_dead(set->directs, pawl_core_session_id(session->core));
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
    }
    pawl_core_session_detach(set->core, session->core, set->now);
    session->core = NULL;
    if (session->pidfd >= 0) {
        set->io->ops->watch_remove(set->io, &session->pid_watch);
        set->files--;
        pawl_orphan_create(set, id, &session->peer, session->pidfd);
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
        close_socket(session);
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

/* One packet, and the descriptor with it where somebody may have to give one: else there is no room
 * for control messages, and the kernel drops what descriptors come and says so. */
static ssize_t take_packet(const struct pawl_session *session, void *packet, int *fd,
                           struct msghdr *m)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec v = { .iov_base = packet, .iov_len = PACKET_BYTES };
    const struct pawl_directs *directs = session->set->directs;
    *m = (struct msghdr){ .msg_iov = &v, .msg_iovlen = 1 };
    *fd = -1;
    if (directs && directs->awaited > 0 && session->state == PAWL_SESSION_ATTACHED) {
        m->msg_control = control.bytes;
        m->msg_controllen = sizeof control.bytes;
    }
    ssize_t n = recvmsg(session->fd, m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n >= 0 && m->msg_control)
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
                c->cmsg_len == CMSG_LEN(sizeof(int)))
                memcpy(fd, CMSG_DATA(c), sizeof *fd);
    m->msg_control = NULL;
    m->msg_iov = NULL;
    return n;
}

/* Reads up to PACKETS_A_TURN packets. False: the session is gone. */
static bool serve_socket(struct pawl_session *session)
{
    for (uint32_t i = 0; i < PACKETS_A_TURN && session->set->lanes_left > 0; i++) {
        uint64_t packet[PACKET_BYTES / 8];
        struct msghdr m;
        int fd;
        ssize_t n = take_packet(session, packet, &fd, &m);
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
            if (fd >= 0)
                (void)close(fd);
            pawl_session_doom(session, PAWL_E_PROTOCOL, "it sent a descriptor");
            return true;
        }
        size_t bytes = (m.msg_flags & MSG_TRUNC) != 0 ? PACKET_BYTES + 1 : (size_t)n;
        if (!pawl_attach_packet(session, packet, bytes, fd)) {
            if (session->doom != 0)
                return true;
            discard(session->fd);
            end(session, session->left ? PAWL_END_LEFT : PAWL_END_CLOSED, 0);
            return false;
        }
    }
    pawl_session_note(session); /* there may be more: the edge has passed */
    return true;
}

static void serve_session(struct pawl_session *session)
{
    if (session->doom != 0)
        return;
    /* The socket first: a BYE that was sent before the end is a clean end. But one round only: a
     * child that holds the socket could write for ever. */
    bool exited = session->exited;
    if (session->readable && session->fd >= 0 && !serve_socket(session))
        return;
    if (exited && session->doom == 0)
        end(session, PAWL_END_DEAD, PAWL_E_BROKER_DOWN);
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
    for (; !pawl_list_empty(&set->orphans); n++) {
        struct pawl_orphan *o = PAWL_CONTAINER(set->orphans.next, struct pawl_orphan, place);
        if (o->deadline > set->boot)
            break;
        pawl_orphan_free(o);
    }
    return n;
}

uint32_t pawl_sessions_serve(struct pawl_sessions *set, struct pawl_now now, uint64_t boot)
{
    uint32_t n = 0;
    set->now = now;
    set->boot = boot;
    set->lanes_left = PAWL_LANES_A_TURN;
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
        pawl_orphan_died(PAWL_CONTAINER(set->orphans_pending.next, struct pawl_orphan, pending));
    n += expire(set);
    bury_doomed(set);
    /* Behind those who have gone: their descriptors are free for those who come. */
    if (set->accept_pending)
        n += pawl_sessions_accept(set);
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
    if (!pawl_list_empty(&set->orphans))
        next = pawl_min_u64(next,
                            PAWL_CONTAINER(set->orphans.next, struct pawl_orphan, place)->deadline);
    return next;
}

/* --- start and stop -------------------------------------------------------------------------- */

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
    set->boot = set->started = boot;
    set->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int rc = pawl_orphans_judge(set, same_boot);
    if (rc != 0)
        return rc;
    return pawl_sessions_listen(set);
}

void pawl_sessions_stop(struct pawl_sessions *set, int32_t reason)
{
    if (set->listen_watch.armed)
        set->io->ops->watch_remove(set->io, &set->listen_watch);
    while (!pawl_list_empty(&set->all))
        pawl_session_free(PAWL_CONTAINER(set->all.next, struct pawl_session, place), reason);
    while (!pawl_list_empty(&set->orphans))
        pawl_orphan_free(PAWL_CONTAINER(set->orphans.next, struct pawl_orphan, place));
    if (set->spare_fd >= 0)
        (void)close(set->spare_fd);
    set->spare_fd = -1;
}
