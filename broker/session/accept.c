/* SPDX-License-Identifier: MIT */
/* New connections: taken, bounded, refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "session/peer.h"
#include "session/session.h"

#define ACCEPTS_A_TURN 64u

/* --- notes of what is ready; inside pawl_io_wait() ------------------------------------------- */

static void socket_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_session *s = PAWL_CONTAINER(watch, struct pawl_session, socket_watch);
    (void)events; /* what it is, the next recv tells */
    s->readable = true;
    pawl_session_note(s);
}

static void pid_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_session *s = PAWL_CONTAINER(watch, struct pawl_session, pid_watch);
    (void)events;
    s->exited = true;
    pawl_session_note(s);
}

static void listen_ready(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_sessions *set = PAWL_CONTAINER(watch, struct pawl_sessions, listen_watch);
    (void)events;
    set->accept_pending = true;
}

/* --- accepting ------------------------------------------------------------------------------- */

bool pawl_sessions_files_left(const struct pawl_sessions *set, uint32_t more)
{
    return set->files + more <= set->limits.files_max;
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
    pawl_session_note(s); /* HELLO has often come already */
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

uint32_t pawl_sessions_accept(struct pawl_sessions *set)
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
        if (!pawl_sessions_files_left(set, 2)) {
            (void)close(fd);
            continue;
        }
        take_connection(set, fd);
    }
    return ACCEPTS_A_TURN;
}

int pawl_sessions_listen(struct pawl_sessions *set)
{
    set->listen_watch =
        (struct pawl_io_watch){ .ready = listen_ready, .fd = set->listener->fd, .events = EPOLLIN };
    set->accept_pending = true; /* what came between bind and now has made its edge */
    return set->io->ops->watch_add(set->io, &set->listen_watch);
}
