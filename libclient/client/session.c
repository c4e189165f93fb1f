/* SPDX-License-Identifier: MIT */
/* The socket: connect, handshake, exchange, notice its end.
 *
 * Attach:
 *   - connect to the path (non-blocking: a full backlog is a broker that is not there yet)
 *   - HELLO with nothing, or with session, epoch and secret
 *   - WELCOME: resumed, or made new; the broker's clock gives the shift for deadlines
 * Failures: nobody listens -> E_BROKER_DOWN, text says what to start; another version -> E_ABI,
 * both named; the session is not known (the log was wiped or replaced) -> a second HELLO for a new
 * one; somebody else holds it -> E_EPOCH, for ever; a silent or babbling peer -> the socket is
 * closed. */
#include "client/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "abi/layout.h"
#include "base/bits.h"
#include "base/clock.h"

#define HANDSHAKE_NS (2 * PAWL_NS_S)
#define LOCK_NAP_NS 200000

/* --- fork ------------------------------------------------------------------------------------ */

/* A forked child finds this page zeroed. A child that opens lanes of its own writes the next mark,
 * which it counted in ordinary memory and which differs from that of every lane it inherited. */
static uint64_t *process_page;
static uint64_t process_marks;
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;

const uint64_t *pawl_process_page(uint64_t *mark)
{
    /* Held for a few instructions, and in a child of a fork at that very moment for ever: so the
     * lock is tried, with an end. */
    for (int i = 0; pthread_mutex_trylock(&process_lock) != 0; i++) {
        if (i == 1000)
            return NULL;
        (void)nanosleep(&(struct timespec){ .tv_nsec = LOCK_NAP_NS }, NULL);
    }
    if (!process_page) {
        void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED && madvise(p, 4096, MADV_WIPEONFORK) == 0)
            process_page = p;
        else if (p != MAP_FAILED)
            (void)munmap(p, 4096);
    }
    if (process_page && pawl_load_rlx_u64(process_page) == 0)
        pawl_store_rlx_u64(process_page, ++process_marks);
    if (process_page)
        *mark = pawl_load_rlx_u64(process_page);
    const uint64_t *page = process_page;
    pthread_mutex_unlock(&process_lock);
    return page;
}

/* --- lock ------------------------------------------------------------------------------------ */

bool pawl_session_lock(struct pawl_session *session, uint64_t until)
{
    /* Contended only while a lane attaches. Not a timed lock: those count wall time, or are
     * unknown to the thread sanitizer. */
    while (pthread_mutex_trylock(&session->lock) != 0) {
        if (pawl_clock_boot() >= until)
            return false;
        (void)nanosleep(&(struct timespec){ .tv_nsec = LOCK_NAP_NS }, NULL);
    }
    return true;
}

void pawl_session_unlock(struct pawl_session *session) { pthread_mutex_unlock(&session->lock); }

/* --- create and destroy ---------------------------------------------------------------------- */

/* An empty text where one is given is a mistake of a script, as in --dir "$UNSET": the default in
 * its place would be another broker than the one that was meant. */
static const char *empty_name(const struct pawl_options *o)
{
    const char *env;
    if (o->socket)
        return *o->socket ? NULL : "socket is empty: name the broker's socket, or give NULL";
    if (o->dir)
        return *o->dir ? NULL : "dir is empty: name the broker's directory, or give NULL";
    if ((env = getenv("PAWL_SOCKET")) && !*env)
        return "PAWL_SOCKET is set and empty: unset it, or let it name the broker's socket";
    if (!env && (env = getenv("PAWL_DIR")) && !*env)
        return "PAWL_DIR is set and empty: unset it, or let it name the broker's directory";
    return NULL;
}

static int default_dir(char *out, size_t bytes)
{
    const char *s = getenv("PAWL_DIR");
    int n;
    if (s)
        n = snprintf(out, bytes, "%s", s);
    else if (geteuid() == 0)
        n = snprintf(out, bytes, "/var/lib/pawl");
    else if ((s = getenv("XDG_STATE_HOME")) && *s)
        n = snprintf(out, bytes, "%s/pawl", s);
    else if ((s = getenv("HOME")) && *s)
        n = snprintf(out, bytes, "%s/.local/state/pawl", s);
    else
        return -1;
    return n >= 0 && (size_t)n < bytes ? 0 : -1;
}

static int find_path(struct pawl_session *s, const struct pawl_options *o)
{
    const char *path = o->socket;
    if (!path && !o->dir)
        path = getenv("PAWL_SOCKET");
    if (path) {
        int n = snprintf(s->path, sizeof s->path, "%s", path);
        if (o->dir)
            (void)snprintf(s->dir, sizeof s->dir, "%s", o->dir);
        return n >= 0 && (size_t)n < sizeof s->path ? 0 : -1;
    }
    if (o->dir) {
        int n = snprintf(s->dir, sizeof s->dir, "%s", o->dir);
        if (n < 0 || (size_t)n >= sizeof s->dir)
            return -1;
    } else if (default_dir(s->dir, sizeof s->dir) != 0) {
        return -1;
    }
    int n = snprintf(s->path, sizeof s->path, "%s/pawl.sock", s->dir);
    return n >= 0 && (size_t)n < sizeof s->path ? 0 : -1;
}

int pawl_session_create(const struct pawl_options *options, struct pawl_session **out,
                        char text[PAWL_ATTACH_TEXT_BYTES * 2])
{
    *out = NULL;
    struct pawl_session *s = calloc(1, sizeof *s);
    if (!s)
        return PAWL_E_RESOURCE;
    s->socket = -1;
    s->options = *options;
    s->options.dir = s->options.socket = s->options.label = NULL;
    if (options->label)
        (void)snprintf(s->label, sizeof s->label, "%s", options->label);
    s->process = pawl_process_page(&s->process_mark);
    if (!s->process) {
        free(s);
        return PAWL_E_RESOURCE;
    }
    const char *empty = empty_name(options);
    if (empty) {
        (void)snprintf(text, PAWL_ATTACH_TEXT_BYTES * 2, "%s", empty);
        free(s);
        return PAWL_E_INVALID;
    }
    if (find_path(s, options) != 0) {
        (void)snprintf(text, PAWL_ATTACH_TEXT_BYTES * 2,
                       "the path of the socket must have at most %d bytes (and $HOME or a "
                       "directory must be given)",
                       PAWL_SOCKET_PATH_BYTES - 1);
        free(s);
        return PAWL_E_INVALID;
    }
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return PAWL_E_RESOURCE;
    }
    *out = s;
    return PAWL_OK;
}

void pawl_session_destroy(struct pawl_session *session, bool say_bye)
{
    if (session->socket >= 0) {
        struct pawl_attach_bye bye = { .type = PAWL_ATTACH_BYE,
                                       .flags =
                                           pawl_load_seq_u32(&session->left) ? PAWL_BYE_LEFT : 0 };
        /* Best effort: without it the broker sees the end of the socket. */
        if (say_bye)
            (void)send(session->socket, &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)close(session->socket);
    }
    /* In a forked child the lock may be held by a thread that is not there. */
    if (say_bye)
        (void)pthread_mutex_destroy(&session->lock);
    free(session);
}

/* --- socket ---------------------------------------------------------------------------------- */

void pawl_session_drop(struct pawl_session *session)
{
    if (session->socket >= 0)
        (void)close(session->socket);
    session->socket = -1;
}

void pawl_session_down_text(const struct pawl_session *session, char *text, size_t bytes)
{
    char named[PAWL_SOCKET_PATH_BYTES + 32] = "";
    size_t d = strlen(session->dir);
    bool usual = d > 0 && strncmp(session->path, session->dir, d) == 0 &&
                 strcmp(session->path + d, "/pawl.sock") == 0;
    if (!usual)
        (void)snprintf(named, sizeof named, " --socket %s", session->path);
    (void)snprintf(text, bytes, "no broker at %s: start one with `pawld --dir %s%s`", session->path,
                   d ? session->dir : "DIR", named);
}

/* Waits until fd is ready for `events`. 0, or -1 past `until`. */
static int ready(int fd, short events, uint64_t until)
{
    for (;;) {
        uint64_t now = pawl_clock_boot();
        uint64_t left = until > now ? until - now : 0;
        struct timespec t = { .tv_sec = (time_t)(left / PAWL_NS_S),
                              .tv_nsec = (long)(left % PAWL_NS_S) };
        struct pollfd p = { .fd = fd, .events = events };
        int n = ppoll(&p, 1, &t, NULL);
        if (n > 0)
            return 0;
        if (n == 0 && left == 0)
            return -1;
        if (n < 0 && errno != EINTR)
            return -1;
    }
}

static void close_fds(int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
        fds[i] = -1;
    }
}

/* One packet of exactly `bytes` with exactly want_fds descriptors, or with none. Returns the number
 * of bytes of the packet, 0: end, -1: error, time over or something else than that. */
static ssize_t take_packet(int fd, void *out, size_t bytes, int *fds, unsigned want_fds,
                           uint64_t until)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct iovec v = { .iov_base = out, .iov_len = bytes };
    struct msghdr m = { .msg_iov = &v,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof control.bytes };
    ssize_t n;
    for (unsigned i = 0; i < want_fds; i++)
        fds[i] = -1;
    do {
        if (ready(fd, POLLIN, until) != 0)
            return -1;
        n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0)
        return errno == ECONNRESET ? 0 : -1;
    unsigned got = 0, surplus = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int got_fd;
            memcpy(&got_fd, CMSG_DATA(c) + i * sizeof(int), sizeof got_fd);
            if (got < want_fds) {
                fds[got++] = got_fd;
            } else {
                (void)close(got_fd);
                surplus++;
            }
        }
    }
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || surplus || (got && got < want_fds)) {
        close_fds(fds, want_fds);
        return -1;
    }
    return n;
}

/* 0 sent; -1 the peer is gone or does not read. give: a descriptor with it, or -1. */
static int give_packet(int fd, const void *packet, size_t bytes, int give, uint64_t until)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct iovec v = { .iov_base = (void *)(uintptr_t)packet, .iov_len = bytes };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    if (give >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof give);
        memcpy(CMSG_DATA(c), &give, sizeof give);
    }
    for (;;) {
        ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == (ssize_t)bytes)
            return 0;
        if (n >= 0 || (errno != EAGAIN && errno != EINTR) || ready(fd, POLLOUT, until) != 0)
            return -1;
    }
}

int pawl_session_exchange_with(struct pawl_session *session, const void *ask, size_t ask_bytes,
                               int give, void *answer, size_t answer_bytes, int *fds,
                               unsigned want_fds, uint64_t until)
{
    /* A reply that comes after we gave up would answer the next question: so the socket goes. */
    uint64_t limit = pawl_min_u64(pawl_max_u64(until, pawl_clock_boot() + 50 * PAWL_NS_MS),
                                  pawl_clock_boot() + HANDSHAKE_NS);
    if (session->socket < 0)
        return PAWL_E_BROKER_DOWN;
    if (give_packet(session->socket, ask, ask_bytes, give, limit) != 0 ||
        take_packet(session->socket, answer, answer_bytes, fds, want_fds, limit) !=
            (ssize_t)answer_bytes) {
        close_fds(fds, want_fds);
        pawl_session_drop(session);
        (void)snprintf(session->text, sizeof session->text,
                       "the broker at %s ended the connection or does not answer", session->path);
        return PAWL_E_BROKER_DOWN;
    }
    return PAWL_OK;
}

int pawl_session_exchange(struct pawl_session *session, const void *ask, size_t ask_bytes,
                          void *answer, size_t answer_bytes, int *fds, unsigned want_fds,
                          uint64_t until)
{
    return pawl_session_exchange_with(session, ask, ask_bytes, -1, answer, answer_bytes, fds,
                                      want_fds, until);
}

void pawl_session_tell(struct pawl_session *session, const void *packet, size_t bytes)
{
    if (session->socket >= 0 &&
        send(session->socket, packet, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)bytes)
        pawl_session_drop(session);
}

bool pawl_session_alive(struct pawl_session *session)
{
    if (session->socket < 0)
        return false;
    struct pollfd p = { .fd = session->socket, .events = POLLIN | POLLRDHUP };
    if (poll(&p, 1, 0) == 0)
        return true;
    /* The broker says nothing of its own accord: whatever is here is the end or a breach. */
    pawl_session_drop(session);
    return false;
}

/* --- attach ---------------------------------------------------------------------------------- */

static int connect_socket(struct pawl_session *s)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, s->path, sizeof s->path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        (void)snprintf(s->text, sizeof s->text, "no descriptor for a socket: %s", strerror(errno));
        return PAWL_E_RESOURCE;
    }
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
        s->socket = fd;
        return PAWL_OK;
    }
    int error = errno;
    (void)close(fd);
    if (error == EACCES || error == EPERM) {
        (void)snprintf(s->text, sizeof s->text,
                       "no permission to connect to %s: the broker's directory and socket are for "
                       "its user and group",
                       s->path);
        return PAWL_E_PERM;
    }
    if (error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == ENOTDIR ||
        error == EINTR) {
        pawl_session_down_text(s, s->text, sizeof s->text);
    } else {
        (void)snprintf(s->text, sizeof s->text, "cannot connect to %s: %s", s->path,
                       strerror(error));
    }
    return PAWL_E_BROKER_DOWN;
}

static int check_welcome(struct pawl_session *s, struct pawl_attach_welcome *w)
{
    w->text[sizeof w->text - 1] = '\0';
    w->broker_version[sizeof w->broker_version - 1] = '\0';
    w->io[sizeof w->io - 1] = '\0';
    if (w->magic != PAWL_ABI_MAGIC || w->type != PAWL_ATTACH_WELCOME) {
        (void)snprintf(s->text, sizeof s->text, "what listens at %s is not a broker of pawl",
                       s->path);
        return PAWL_E_ABI;
    }
    if (w->version != PAWL_ABI_VERSION || w->fingerprint != pawl_layout_fingerprint()) {
        (void)snprintf(s->text, sizeof s->text,
                       "library %s speaks layout %u/%016llx, the broker %s speaks %u/%016llx: use "
                       "builds of one version",
                       PAWL_VERSION, PAWL_ABI_VERSION,
                       (unsigned long long)pawl_layout_fingerprint(), w->broker_version, w->version,
                       (unsigned long long)w->fingerprint);
        return PAWL_E_ABI;
    }
    if (w->result > 0) {
        (void)snprintf(s->text, sizeof s->text, "the broker's welcome holds the answer %d",
                       w->result);
        return PAWL_E_PROTOCOL;
    }
    if (w->result < 0)
        (void)snprintf(s->text, sizeof s->text, "%s", w->text);
    return w->result;
}

/* One connection and HELLO. session 0: a new one. */
static int greet(struct pawl_session *s, uint64_t session, uint64_t until,
                 struct pawl_attach_welcome *w)
{
    int rc = connect_socket(s);
    if (rc != PAWL_OK)
        return rc;
    struct pawl_attach_hello h = { .magic = PAWL_ABI_MAGIC,
                                   .version = PAWL_ABI_VERSION,
                                   .type = PAWL_ATTACH_HELLO,
                                   .fingerprint = pawl_layout_fingerprint(),
                                   .session = session };
    if (session) {
        s->resumes++;
        h.epoch = s->epoch;
        memcpy(h.secret, s->secret, sizeof h.secret);
    }
    memcpy(h.label, s->label, sizeof h.label);
    memset(w, 0, sizeof *w);
    uint64_t before = pawl_clock_boot();
    rc = pawl_session_exchange(s, &h, sizeof h, w, sizeof *w, NULL, 0, until);
    if (rc != PAWL_OK)
        return rc;
    rc = check_welcome(s, w);
    if (rc != PAWL_OK) {
        pawl_session_drop(s);
        return rc;
    }
    /* The broker read its clock between our two readings: the middle is off by half of that at
     * most. Where both run on one clock, that is the true answer: take it without the error. */
    uint64_t after = pawl_clock_boot();
    if (w->clock >= before && w->clock <= after)
        s->clock_shift = 0;
    else
        s->clock_shift = (int64_t)(w->clock - (before + (after - before) / 2));
    return PAWL_OK;
}

int pawl_session_attach(struct pawl_session *session, uint64_t until)
{
    struct pawl_attach_welcome w;
    if (session->fatal)
        return session->fatal;
    if (session->socket >= 0)
        return PAWL_OK;
    int rc = greet(session, session->id, until, &w);
    bool young = false;
    if (rc == PAWL_E_OUTCOME_UNKNOWN && session->id) {
        /* It was attached when the last broker ended, the next one is this, and this one has ended
         * no session that it found: so there was none to find. */
        young = (w.flags & PAWL_WELCOME_YOUNG) && !session->resumed &&
                w.broker_epoch == session->broker_epoch + 1;
        rc = greet(session, 0, until, &w);
        w.resumed = 0;
    }
    if (rc == PAWL_E_EPOCH || (rc == PAWL_E_PERM && session->id && session->attachment)) {
        /* E_PERM after a connect that was allowed: the secret is not the one it knows. */
        if (rc == PAWL_E_EPOCH)
            session->fatal = rc;
        return rc;
    }
    if (rc != PAWL_OK)
        return rc;
    if (w.session == 0) {
        pawl_session_drop(session);
        (void)snprintf(session->text, sizeof session->text, "the broker gave a session without id");
        return PAWL_E_PROTOCOL;
    }
    if (!w.resumed || w.session != session->id) {
        session->incarnation++;
        session->same_log = memcmp(session->log_id, w.log_id, sizeof w.log_id) == 0;
        session->unrecorded = young && session->same_log;
        session->resumed = false;
    } else {
        session->resumed = true;
    }
    memcpy(session->log_id, w.log_id, sizeof session->log_id);
    session->id = w.session;
    session->epoch = w.epoch;
    memcpy(session->secret, w.secret, sizeof session->secret);
    session->broker_epoch = w.broker_epoch;
    session->broker_pid = w.pid;
    (void)snprintf(session->broker_version, sizeof session->broker_version, "%s", w.broker_version);
    (void)snprintf(session->io, sizeof session->io, "%s", w.io);
    pawl_store_rel_u32(&session->attachment, session->attachment + 1);
    session->text[0] = '\0';
    return PAWL_OK;
}
