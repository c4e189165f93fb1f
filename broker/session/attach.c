/* SPDX-License-Identifier: MIT */
/* The messages of abi/attach.h as the broker answers them.
 *
 *   - HELLO: version and fingerprint agree, limits allow → the core makes or resumes the session
 *     → WELCOME
 *   - LANE: sizes are right, memory allows → regions, rings and bell are made; the core opens or
 *     resumes the lane; the completion region's header is complete → LANE_OK with 3 descriptors
 *   - WATCH → a socket pair, one end goes to the client
 *   - DIRECT, LOCKED, DETACH → session/direct_attach.c
 *   - CLOSE → that lane ends;  BYE → the session ends, clean
 * Failures: another layout, a limit, an unknown session or a wrong secret → WELCOME with the result
 * and what to do, then closed. A lane that cannot be had → LANE_OK with the result, the session
 * goes on. Anything malformed or out of place → breach. A client that does not read its answers →
 * closed. Resumed while the old connection still stands → the old one is fenced with E_EPOCH. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/clock.h"
#include "session/direct.h"
#include "session/session.h"

#define WATCH_BUFFER_BYTES 4096 /* the kernel's smallest will do: one byte says it all */

/* Never blocks; a seqpacket is sent whole or not at all. */
static bool give(struct pawl_session *s, const void *packet, size_t bytes, const int *fds,
                 unsigned fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec v = { .iov_base = (void *)(uintptr_t)packet, .iov_len = bytes };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    if (fd_count > 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
    }
    return sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool breach(struct pawl_session *s, const char *why)
{
    pawl_session_doom(s, PAWL_E_PROTOCOL, why);
    return false;
}

/* --- HELLO ----------------------------------------------------------------------------------- */

static struct pawl_attach_welcome welcome(const struct pawl_session *s, int32_t result)
{
    struct pawl_attach_welcome w = { .magic = PAWL_ABI_MAGIC,
                                     .version = PAWL_ABI_VERSION,
                                     .type = PAWL_ATTACH_WELCOME,
                                     .fingerprint = pawl_layout_fingerprint(),
                                     .result = result,
                                     .pid = (uint32_t)getpid(),
                                     .broker_epoch = s->set->broker_epoch,
                                     .clock = pawl_clock_boot() };
    if (w.clock - s->set->started < s->set->limits.grace_ns)
        w.flags |= PAWL_WELCOME_YOUNG;
    memcpy(w.log_id, s->set->log_id, sizeof w.log_id);
    memcpy(w.broker_version, PAWL_VERSION, sizeof PAWL_VERSION);
    memcpy(w.io, s->set->io_name, sizeof w.io);
    return w;
}

void pawl_attach_refuse(struct pawl_session *session, int32_t result, const char *text)
{
    struct pawl_attach_welcome w = welcome(session, result);
    if (text)
        snprintf(w.text, sizeof w.text, "%s", text);
    (void)give(session, &w, sizeof w, NULL, 0);
}

static bool layout_agrees(struct pawl_session *s, const struct pawl_attach_hello *h, size_t bytes)
{
    char text[PAWL_ATTACH_TEXT_BYTES];
    bool whole = bytes == sizeof *h;
    if (whole && h->magic == PAWL_ABI_MAGIC && h->version == PAWL_ABI_VERSION &&
        h->type == PAWL_ATTACH_HELLO && h->fingerprint == pawl_layout_fingerprint())
        return true;
    /* What is not there is named as 0: a shorter message may come from another version too. */
    uint32_t version = bytes >= 12 ? h->version : 0;
    uint64_t fingerprint = bytes >= 24 ? h->fingerprint : 0;
    snprintf(text, sizeof text,
             "the broker (pawl %s) speaks version %u, layout %016llx; the library speaks version "
             "%u, layout %016llx: install both from one release",
             PAWL_VERSION, PAWL_ABI_VERSION, (unsigned long long)pawl_layout_fingerprint(), version,
             (unsigned long long)fingerprint);
    pawl_attach_refuse(s, PAWL_E_ABI, text);
    return false;
}

static bool within_limits(struct pawl_session *s)
{
    struct pawl_sessions *set = s->set;
    char text[PAWL_ATTACH_TEXT_BYTES];
    uint32_t attached = set->count - set->greeting_count;
    bool privileged = s->peer.uid == 0 || s->peer.uid == set->limits.admin_uid;
    /* Counts this connection too. */
    uint32_t of_uid = privileged ? 0 : pawl_sessions_of_uid(set, s->peer.uid) - 1;
    if (set->limits.no_new) {
        pawl_attach_refuse(s, PAWL_E_BROKER_DOWN, "the broker is stopping");
        return false;
    }
    if (attached >= set->limits.sessions_max) {
        snprintf(text, sizeof text, "all %u sessions are in use: close some",
                 set->limits.sessions_max);
        pawl_attach_refuse(s, PAWL_E_QUOTA, text);
        return false;
    }
    if (of_uid >= set->limits.sessions_uid_max) {
        snprintf(text, sizeof text, "uid %u has all the %u sessions that one user may have",
                 s->peer.uid, set->limits.sessions_uid_max);
        pawl_attach_refuse(s, PAWL_E_QUOTA, text);
        return false;
    }
    /* A lane that follows takes up to five, three of them for a moment. */
    if (!pawl_sessions_files_left(set, 5)) {
        snprintf(text, sizeof text,
                 "the broker has no descriptors left (%u are for clients): raise its limit "
                 "(ulimit -n, LimitNOFILE)",
                 set->limits.files_max);
        pawl_attach_refuse(s, PAWL_E_QUOTA, text);
        return false;
    }
    return true;
}

/* The older holder of a session that has just been resumed: the core has taken it from him. */
static void fence(struct pawl_session *old)
{
    old->core = NULL;
    pawl_session_free(old, PAWL_E_EPOCH);
}

static bool enter_core(struct pawl_session *s, const struct pawl_attach_hello *h)
{
    struct pawl_sessions *set = s->set;
    struct pawl_core_session *core = NULL;
    int rc;
    memcpy(s->peer.label, h->label, sizeof s->peer.label);
    s->peer.label[sizeof s->peer.label - 1] = '\0';
    struct pawl_session *old = h->session ? pawl_sessions_by_id(set, h->session) : NULL;
    if (h->session == 0)
        rc = pawl_core_session_open(set->core, &s->peer, set->now, &core);
    else
        rc = pawl_core_session_resume(set->core, h->session, h->secret, &s->peer, set->now, &core);
    if (rc != PAWL_OK) {
        pawl_attach_refuse(s, rc,
                           rc == PAWL_E_OUTCOME_UNKNOWN
                               ? "this broker's log does not know the session"
                           : rc == PAWL_E_PERM  ? "the session belongs to somebody else"
                           : rc == PAWL_E_QUOTA ? "the table of sessions is full"
                                                : pawl_strerror(rc));
        return false;
    }
    if (old)
        fence(old);
    s->core = core;
    s->state = PAWL_SESSION_ATTACHED;
    set->greeting_count--;
    pawl_list_remove(&s->timer);
    return true;
}

static bool take_hello(struct pawl_session *s, const struct pawl_attach_hello *h, size_t bytes)
{
    if (!layout_agrees(s, h, bytes) || !within_limits(s) || !enter_core(s, h))
        return false;
    struct pawl_attach_welcome w = welcome(s, PAWL_OK);
    w.session = pawl_core_session_id(s->core);
    w.epoch = pawl_core_session_epoch(s->core);
    memcpy(w.secret, pawl_core_session_secret(s->core), sizeof w.secret);
    w.resumed = h->session != 0;
    if (!give(s, &w, sizeof w, NULL, 0))
        return breach(s, "it does not read its welcome");
    return true;
}

/* --- LANE ------------------------------------------------------------------------------------ */

static struct pawl_lane *lane_by_number(const struct pawl_session *s, uint32_t number)
{
    for (struct pawl_list *l = s->lanes.next; l != &s->lanes; l = l->next) {
        struct pawl_lane *lane = PAWL_CONTAINER(l, struct pawl_lane, of_session);
        if (lane->number == number)
            return lane;
    }
    return NULL;
}

static bool refuse_lane(struct pawl_session *s, const struct pawl_attach_lane *ask, int32_t result,
                        uint64_t needed, uint64_t available, const char *text)
{
    struct pawl_attach_lane_ok ok = { .type = PAWL_ATTACH_LANE_OK,
                                      .result = result,
                                      .lane = ask->lane,
                                      .needed = needed,
                                      .available = available };
    snprintf(ok.text, sizeof ok.text, "%s", text);
    if (!give(s, &ok, sizeof ok, NULL, 0))
        return breach(s, "it does not read its answers");
    return true;
}

static bool ring_valid(uint32_t bytes)
{
    return pawl_is_pow2(bytes) && bytes >= PAWL_RING_BYTES_MIN && bytes <= PAWL_RING_BYTES_MAX;
}

/* Everything the client reads before it trusts the region; complete before it is sent (M21). */
static void write_header(struct pawl_lane *lane, const struct pawl_session *s, uint32_t window)
{
    struct pawl_comp_shm *comp = lane->comp;
    comp->magic = PAWL_ABI_MAGIC;
    comp->version = PAWL_ABI_VERSION;
    comp->lane = lane->number;
    comp->fingerprint = pawl_layout_fingerprint();
    comp->session = pawl_core_session_id(s->core);
    comp->session_epoch = pawl_core_session_epoch(s->core);
    comp->broker_epoch = s->set->broker_epoch;
    comp->sub_bytes = (uint32_t)lane->in.size;
    comp->comp_bytes = (uint32_t)lane->out.size;
    comp->window = window;
    pawl_store_rel_u32(&comp->state, PAWL_LANE_OPEN);
}

static bool lane_failed(struct pawl_session *s, const struct pawl_attach_lane *ask, int rc,
                        uint64_t cost)
{
    char text[PAWL_ATTACH_TEXT_BYTES];
    const struct pawl_lanes *lanes = s->set->lanes;
    if (rc == -EDQUOT) {
        snprintf(text, sizeof text,
                 "the memory for lanes is in use: %llu bytes are needed, %llu of %llu are free; "
                 "raise --memory of the broker",
                 (unsigned long long)cost, (unsigned long long)(lanes->bytes_max - lanes->bytes),
                 (unsigned long long)lanes->bytes_max);
        return refuse_lane(s, ask, PAWL_E_QUOTA, cost, lanes->bytes_max - lanes->bytes, text);
    }
    snprintf(text, sizeof text, "the broker cannot make a lane of %llu bytes: %s",
             (unsigned long long)cost, strerror(-rc));
    return refuse_lane(s, ask, PAWL_E_RESOURCE, cost, 0, text);
}

static bool open_lane(struct pawl_session *s, const struct pawl_attach_lane *ask)
{
    struct pawl_sessions *set = s->set;
    struct pawl_lane *lane;
    int fds[3];
    uint64_t cost = pawl_lane_cost(ask->sub_bytes, ask->comp_bytes);
    set->lanes_left--;
    int rc = pawl_lane_create(set->lanes, ask->sub_bytes, ask->comp_bytes, &lane, fds);
    if (rc != 0)
        return lane_failed(s, ask, rc, cost);
    struct pawl_lane *old = ask->lane == PAWL_LANE_NEW ? NULL : lane_by_number(s, ask->lane);
    lane->session = s;
    lane->number = PAWL_LANE_NEW;
    pawl_list_push_back(&s->lanes, &lane->of_session);
    s->lane_count++;
    set->files++;
    /* The core may promise and emit in here already: deliveries of its leases again. */
    rc = pawl_core_lane_open(set->core, s->core, ask->lane, ask->window, ask, lane->handle,
                             set->now, &lane->core);
    if (rc != PAWL_OK) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        pawl_session_close_lane(lane, rc);
        return refuse_lane(s, ask, rc, 0, 0, pawl_strerror(rc));
    }
    lane->number = pawl_core_lane_number(lane->core);
    if (old) {
        /* The core's lane has moved to the new rings; what waits for the old ones is dropped, and
         * the client submits again what it has no answer to. */
        old->core = NULL;
        pawl_session_close_lane(old, 0);
    }
    write_header(lane, s, ask->window);
    struct pawl_attach_lane_ok ok = { .type = PAWL_ATTACH_LANE_OK,
                                      .result = PAWL_OK,
                                      .lane = lane->number,
                                      .sub_bytes = ask->sub_bytes,
                                      .comp_bytes = ask->comp_bytes,
                                      .window = ask->window };
    fds[2] = lane->bell_fd;
    bool sent = give(s, &ok, sizeof ok, fds, 3);
    (void)close(fds[0]);
    (void)close(fds[1]);
    if (!sent)
        return breach(s, "it does not read its answers");
    pawl_lane_activate(lane);
    return true;
}

static bool take_lane(struct pawl_session *s, const struct pawl_attach_lane *ask)
{
    if (!ring_valid(ask->sub_bytes) || !ring_valid(ask->comp_bytes) ||
        ask->window < PAWL_WINDOW_MIN || ask->window > PAWL_WINDOW_MAX)
        return refuse_lane(s, ask, PAWL_E_INVALID, 0, 0,
                           "a ring has a power of two of 64 KiB to 64 MiB, a window 64 to 65,536");
    if (ask->lane != PAWL_LANE_NEW && ask->lane >= PAWL_LANES_MAX)
        return refuse_lane(s, ask, PAWL_E_INVALID, 0, 0, "there is no lane of this number");
    bool replaces = ask->lane != PAWL_LANE_NEW && lane_by_number(s, ask->lane);
    if (!replaces && s->lane_count >= PAWL_LANES_MAX)
        return refuse_lane(s, ask, PAWL_E_QUOTA, PAWL_LANES_MAX + 1, PAWL_LANES_MAX,
                           "a session has at most 256 lanes");
    if (!pawl_sessions_files_left(s->set, 5))
        return refuse_lane(
            s, ask, PAWL_E_QUOTA, s->set->files + 5, s->set->limits.files_max,
            "the broker has no descriptors left: raise its limit (ulimit -n, LimitNOFILE)");
    return open_lane(s, ask);
}

/* --- WATCH, CLOSE, BYE ----------------------------------------------------------------------- */

static bool take_watch(struct pawl_session *s, const struct pawl_attach_watch *ask)
{
    struct pawl_attach_watch_ok ok = { .type = PAWL_ATTACH_WATCH_OK, .lane = ask->lane };
    struct pawl_lane *lane = lane_by_number(s, ask->lane);
    int ends[2] = { -1, -1 };
    if (!lane)
        ok.result = PAWL_E_NOT_FOUND;
    else if (!pawl_sessions_files_left(s->set, 2))
        ok.result = PAWL_E_QUOTA;
    else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        ok.result = PAWL_E_RESOURCE;
    if (ok.result != PAWL_OK)
        return give(s, &ok, sizeof ok, NULL, 0) || breach(s, "it does not read its answers");
    /* What the client writes there nobody would ever read. */
    int bytes = WATCH_BUFFER_BYTES;
    (void)shutdown(ends[0], SHUT_RD);
    (void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    bool sent = give(s, &ok, sizeof ok, &ends[1], 1);
    (void)close(ends[1]);
    if (lane->watch_fd >= 0)
        (void)close(lane->watch_fd);
    else
        s->set->files++;
    lane->watch_fd = ends[0];
    return sent || breach(s, "it does not read its answers");
}

static bool take_close(struct pawl_session *s, const struct pawl_attach_watch *ask)
{
    struct pawl_lane *lane = lane_by_number(s, ask->lane);
    if (!lane)
        return breach(s, "it closes a lane that it has not");
    pawl_core_lane_close(s->set->core, lane->core, s->set->now);
    pawl_session_close_lane(lane, 0);
    return true;
}

/* --- DIRECT ---------------------------------------------------------------------------------- */

static bool take_direct(struct pawl_session *s, const struct pawl_attach_direct *ask, int fd)
{
    struct pawl_directs *directs = s->set->directs;
    struct pawl_attach_direct_ok ok = { .type = PAWL_ATTACH_DIRECT_OK,
                                        .queue = ask->queue,
                                        .result = PAWL_OK };
    const char *why = "";
    int give_fd = -1;
    if (!directs) {
        ok.result = PAWL_E_NOT_SUPPORTED;
        if (fd >= 0)
            (void)close(fd);
    } else if (ask->type == PAWL_ATTACH_DIRECT) {
        if (!pawl_directs_attach(directs, s, ask, fd, &ok, &give_fd, &why))
            return breach(s, why);
    } else {
        if (fd >= 0)
            (void)close(fd);
        if (ask->type == PAWL_ATTACH_DETACH) {
            pawl_directs_detach(directs, s, ask);
            return true;
        }
        pawl_directs_locked(directs, s, ask, &ok);
    }
    return give(s, &ok, sizeof ok, &give_fd, give_fd >= 0) ||
           breach(s, "it does not read its answers");
}

static bool is_direct(uint32_t type)
{
    return type == PAWL_ATTACH_DIRECT || type == PAWL_ATTACH_LOCKED || type == PAWL_ATTACH_DETACH;
}

bool pawl_attach_packet(struct pawl_session *session, const void *packet, size_t bytes, int fd)
{
    const uint32_t *type = packet;
    if (session->state == PAWL_SESSION_ATTACHED && bytes == sizeof(struct pawl_attach_direct) &&
        is_direct(*type))
        return take_direct(session, packet, fd);
    if (fd >= 0) {
        (void)close(fd);
        return breach(session, "it sent a descriptor");
    }
    if (session->state == PAWL_SESSION_GREETING)
        return take_hello(session, packet, bytes);
    if (session->state != PAWL_SESSION_ATTACHED)
        return breach(session, "a message behind the end");
    if (bytes < sizeof *type)
        return breach(session, "a message without a type");
    switch (*type) {
    case PAWL_ATTACH_LANE:
        if (bytes == sizeof(struct pawl_attach_lane))
            return take_lane(session, packet);
        break;
    case PAWL_ATTACH_WATCH:
        if (bytes == sizeof(struct pawl_attach_watch))
            return take_watch(session, packet);
        break;
    case PAWL_ATTACH_CLOSE:
        if (bytes == sizeof(struct pawl_attach_watch))
            return take_close(session, packet);
        break;
    case PAWL_ATTACH_BYE:
        if (bytes != sizeof(struct pawl_attach_bye))
            break;
        session->left = ((const struct pawl_attach_bye *)packet)->flags & PAWL_BYE_LEFT;
        return false; /* a clean end */
    default:
        break;
    }
    return breach(session, "a message of unknown type or another size");
}
