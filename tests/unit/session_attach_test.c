/* SPDX-License-Identifier: MIT */
/* Connections with real sockets, processes and pidfds, against a core that is played: the
 * handshake, its refusals and limits, death, and what only looks like it. M4 M11-M14 M17 M20 M22 P5
 * P8 L2. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "lib/unit.h"
#include "session/session.h"

#define RING PAWL_RING_BYTES_MIN
#define MS 1000000ull

/* --- the core that is played ----------------------------------------------------------------- */

struct pawl_core_session {
    uint64_t id, epoch;
    uint8_t secret[16];
    struct pawl_core_peer peer;
    int ended; /* enum pawl_core_end + 1; 0: not */
    bool detached, fenced;
    uint64_t taken;
};
struct pawl_core_lane {
    uint32_t number, handle;
    bool closed;
};

#define MANY 400
static struct pawl_core_session table[MANY];
static uint32_t table_count;
static struct pawl_core_lane lane_table[2000];
static uint32_t lane_count;
static int open_result;

int pawl_core_session_open(struct pawl_core *core, const struct pawl_core_peer *peer,
                           struct pawl_now now, struct pawl_core_session **out)
{
    (void)core, (void)now;
    if (open_result != PAWL_OK)
        return open_result;
    assert_true(table_count < MANY);
    struct pawl_core_session *s = &table[table_count];
    *s = (struct pawl_core_session){ .id = 100 + table_count, .epoch = 1, .peer = *peer };
    memset(s->secret, 0x40 + (int)table_count, sizeof s->secret);
    table_count++;
    *out = s;
    return PAWL_OK;
}
int pawl_core_session_resume(struct pawl_core *core, uint64_t id, const uint8_t secret[16],
                             const struct pawl_core_peer *peer, struct pawl_now now,
                             struct pawl_core_session **out)
{
    (void)core, (void)now;
    for (uint32_t i = 0; i < table_count; i++) {
        struct pawl_core_session *s = &table[i];
        if (s->id != id || s->ended)
            continue;
        if (memcmp(secret, s->secret, 16) != 0 || peer->uid != s->peer.uid)
            return PAWL_E_PERM;
        s->epoch++;
        s->detached = false;
        *out = s;
        return PAWL_OK;
    }
    return PAWL_E_OUTCOME_UNKNOWN;
}
void pawl_core_session_detach(struct pawl_core *core, struct pawl_core_session *s,
                              struct pawl_now now)
{
    (void)core, (void)now;
    assert_int_equal(s->ended, 0);
    s->detached = true;
}
void pawl_core_session_end(struct pawl_core *core, struct pawl_core_session *s,
                           enum pawl_core_end why, struct pawl_now now)
{
    (void)core, (void)now;
    assert_int_equal(s->ended, 0);
    s->ended = (int)why + 1;
}
uint64_t pawl_core_session_id(const struct pawl_core_session *s) { return s->id; }
uint64_t pawl_core_session_epoch(const struct pawl_core_session *s) { return s->epoch; }
const uint8_t *pawl_core_session_secret(const struct pawl_core_session *s) { return s->secret; }
const struct pawl_core_peer *pawl_core_session_peer(const struct pawl_core_session *s)
{
    return &s->peer;
}
void pawl_core_session_each(struct pawl_core *core,
                            void (*each)(void *ctx, struct pawl_core_session *s), void *ctx)
{
    (void)core;
    for (uint32_t i = 0; i < table_count; i++)
        if (!table[i].ended)
            each(ctx, &table[i]);
}
int pawl_core_lane_open(struct pawl_core *core, struct pawl_core_session *s, uint32_t number,
                        uint32_t window, const struct pawl_attach_lane *resume, uint32_t handle,
                        struct pawl_now now, struct pawl_core_lane **out)
{
    (void)core, (void)s, (void)window, (void)resume, (void)now;
    struct pawl_core_lane *l = &lane_table[lane_count++];
    *l = (struct pawl_core_lane){ .number = number == PAWL_LANE_NEW ? lane_count - 1 : number,
                                  .handle = handle };
    *out = l;
    return PAWL_OK;
}
uint32_t pawl_core_lane_number(const struct pawl_core_lane *lane) { return lane->number; }
void pawl_core_lane_close(struct pawl_core *core, struct pawl_core_lane *lane, struct pawl_now now)
{
    (void)core, (void)now;
    assert_false(lane->closed);
    lane->closed = true;
}
void pawl_core_set_direct(struct pawl_core *core, const struct pawl_core_direct *direct) {}
void pawl_core_direct_each(const struct pawl_core *core,
                           void (*each)(void *ctx, uint64_t id, const char *name,
                                        const struct pawl_queue_options *options),
                           void *ctx)
{
}
int pawl_core_direct_allows(const struct pawl_core *core, const struct pawl_core_peer *peer,
                            uint64_t id, uint32_t rights)
{
    return PAWL_E_NOT_FOUND;
}
void pawl_core_lane_taken(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t position)
{
    (void)core, (void)lane;
    table[0].taken = position;
}

/* --- the broker's side ----------------------------------------------------------------------- */

static struct pawl_sessions set;
static struct pawl_lanes lanes;
static struct pawl_listener listener;
static char root[64], path[96];
static uint64_t boot;
static uint32_t lines;
static char last_line[512];

static void say(void *ctx, const char *line)
{
    (void)ctx;
    lines++;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void serve_once(void)
{
    assert_true(set.io->ops->wait(set.io, MS) >= 0);
    (void)pawl_sessions_serve(&set, (struct pawl_now){ boot, boot }, boot);
    while (!pawl_list_empty(&lanes.zombies))
        pawl_lane_free(PAWL_CONTAINER(lanes.zombies.next, struct pawl_lane, place));
}

/* Serves until something holds; the alarm of the program bounds it. */
#define SERVE_UNTIL(e)    \
    do {                  \
        while (!(e))      \
            serve_once(); \
    } while (0)

static void start(bool same_boot)
{
    char why[512], text[256];
    memset(&set, 0, sizeof set);
    set.io = pawl_io_posix_create(text);
    assert_non_null(set.io);
    assert_int_equal(pawl_lanes_init(&lanes, set.io, 32ull << 20), 0);
    if (pawl_listener_open(path, &listener, why, sizeof why) != 0)
        fail_msg("%s", why);
    set.lanes = &lanes;
    set.listener = &listener;
    set.limits = (struct pawl_session_limits){ .sessions_max = 300,
                                               .sessions_uid_max = 150,
                                               .files_max = 4096,
                                               .grace_ns = 60000 * MS,
                                               .admin_uid = geteuid() };
    set.broker_epoch = 9;
    snprintf(set.io_name, sizeof set.io_name, "posix");
    set.say = say;
    boot = pawl_clock_boot();
    assert_int_equal(pawl_sessions_start(&set, (struct pawl_now){ boot, boot }, boot, same_boot),
                     0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/pawl-unit-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(path, sizeof path, "%s/s", root);
    table_count = lane_count = lines = 0;
    open_result = PAWL_OK;
    start(true);
    return 0;
}

static void stop(void)
{
    pawl_sessions_stop(&set, PAWL_E_BROKER_DOWN);
    pawl_lanes_fini(&lanes);
    pawl_listener_close(&listener, 1);
    set.io->ops->destroy(set.io);
}

static int teardown(void **state)
{
    (void)state;
    stop();
    assert_int_equal(set.files, 0);
    assert_int_equal(set.count, 0);
    assert_int_equal(lanes.bytes, 0);
    return rmdir(root);
}

static unsigned open_files(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

/* --- the client's side ----------------------------------------------------------------------- */

static int connect_to(const char *where)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, where, strlen(where));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        return -1;
    return fd;
}

static struct pawl_attach_hello hello(void)
{
    return (struct pawl_attach_hello){ .magic = PAWL_ABI_MAGIC,
                                       .version = PAWL_ABI_VERSION,
                                       .type = PAWL_ATTACH_HELLO,
                                       .fingerprint = pawl_layout_fingerprint(),
                                       .label = "a test" };
}

static void give(int fd, const void *packet, size_t bytes)
{
    assert_int_equal(send(fd, packet, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

static bool readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, 0) > 0;
}

/* The next packet: its bytes; 0: end; with the descriptors that came. */
static ssize_t take(int fd, void *out, size_t bytes, int fds[3])
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
    SERVE_UNTIL(readable(fd));
    ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    if (fds)
        fds[0] = fds[1] = fds[2] = -1;
    for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c)) {
        assert_non_null(fds);
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    }
    return n < 0 && errno == ECONNRESET ? 0 : n;
}

static struct pawl_attach_welcome greet_with(int fd, const struct pawl_attach_hello *h)
{
    struct pawl_attach_welcome w;
    give(fd, h, sizeof *h);
    assert_int_equal(take(fd, &w, sizeof w, NULL), sizeof w);
    return w;
}

static int attach(struct pawl_attach_welcome *out)
{
    struct pawl_attach_hello h = hello();
    int fd = connect_to(path);
    assert_true(fd >= 0);
    struct pawl_attach_welcome w = greet_with(fd, &h);
    assert_int_equal(w.result, PAWL_OK);
    if (out)
        *out = w;
    return fd;
}

static bool ended(int fd)
{
    char byte;
    return take(fd, &byte, 1, NULL) == 0;
}

static struct pawl_attach_lane ask_lane(void)
{
    return (struct pawl_attach_lane){ .type = PAWL_ATTACH_LANE,
                                      .lane = PAWL_LANE_NEW,
                                      .sub_bytes = RING,
                                      .comp_bytes = RING,
                                      .window = PAWL_WINDOW_MIN,
                                      .open_seq = 1,
                                      .next_seq = 1 };
}

static struct pawl_attach_lane_ok open_lane(int fd, const struct pawl_attach_lane *ask, int fds[3])
{
    struct pawl_attach_lane_ok ok;
    give(fd, ask, sizeof *ask);
    assert_int_equal(take(fd, &ok, sizeof ok, fds), sizeof ok);
    return ok;
}

static void close_three(int fds[3])
{
    for (int i = 0; i < 3; i++)
        (void)close(fds[i]);
}

/* --- handshake ------------------------------------------------------------------------------- */

static void a_hello_is_welcomed(void **state)
{
    (void)state;
    struct pawl_attach_welcome w;
    int fd = attach(&w);
    assert_int_equal(w.magic, PAWL_ABI_MAGIC);
    assert_int_equal(w.fingerprint, pawl_layout_fingerprint());
    assert_int_equal(w.session, 100);
    assert_int_equal(w.epoch, 1);
    assert_memory_equal(w.secret, table[0].secret, 16);
    assert_int_equal(w.pid, (uint32_t)getpid());
    assert_int_equal(w.broker_epoch, 9);
    assert_string_equal(w.io, "posix");
    assert_string_equal(w.broker_version, PAWL_VERSION);
    assert_int_equal(w.resumed, 0);
    assert_true(w.clock <= pawl_clock_boot());
    assert_string_equal(table[0].peer.label, "a test");
    assert_int_equal(table[0].peer.uid, geteuid());
    assert_int_equal(table[0].peer.pid, (uint32_t)getpid());
    assert_true(table[0].peer.start_time != 0);
    (void)close(fd);
}

static void another_layout_is_refused_naming_both(void **state)
{
    (void)state;
    char ours[32], theirs[32];
    snprintf(ours, sizeof ours, "%016llx", (unsigned long long)pawl_layout_fingerprint());
    for (int what = 0; what < 6; what++) {
        struct pawl_attach_hello h = hello();
        struct pawl_attach_welcome w;
        uint8_t longer[sizeof h + 8] = { 0 };
        size_t bytes = sizeof h;
        if (what == 0)
            h.magic ^= 1;
        else if (what == 1)
            h.version = 77;
        else if (what == 2)
            h.fingerprint ^= 1;
        else if (what == 3)
            h.type = PAWL_ATTACH_LANE;
        else if (what == 4)
            bytes = 24; /* an older, shorter one */
        else
            bytes = sizeof longer;
        memcpy(longer, &h, sizeof h);
        snprintf(theirs, sizeof theirs, "%016llx", (unsigned long long)h.fingerprint);
        int fd = connect_to(path);
        give(fd, longer, bytes);
        assert_int_equal(take(fd, &w, sizeof w, NULL), sizeof w);
        assert_int_equal(w.result, PAWL_E_ABI);
        assert_int_equal(w.version, PAWL_ABI_VERSION);
        assert_non_null(strstr(w.text, ours));
        assert_non_null(strstr(w.text, theirs));
        if (what == 1)
            assert_non_null(strstr(w.text, "version 77"));
        assert_true(ended(fd));
        (void)close(fd);
    }
    assert_int_equal(table_count, 0);
}

static void a_refusal_is_read_even_by_those_who_have_written_more(void **state)
{
    (void)state;
    struct pawl_attach_hello h = hello();
    struct pawl_attach_lane ask = ask_lane();
    struct pawl_attach_welcome w;
    h.fingerprint = 1;
    int fd = connect_to(path);
    give(fd, &h, sizeof h);
    give(fd, &ask, sizeof ask);
    give(fd, &ask, sizeof ask);
    assert_int_equal(take(fd, &w, sizeof w, NULL), sizeof w);
    assert_int_equal(w.result, PAWL_E_ABI);
    (void)close(fd);
}

static void who_says_nothing_is_closed_after_two_seconds(void **state)
{
    (void)state;
    int fd = connect_to(path);
    SERVE_UNTIL(set.count == 1);
    assert_int_equal(pawl_sessions_next(&set), boot + 2000 * MS);
    boot += 2000 * MS - 1;
    serve_once();
    assert_int_equal(set.count, 1);
    boot += 1;
    serve_once();
    assert_int_equal(set.count, 0);
    assert_true(ended(fd));
    assert_int_equal(pawl_sessions_next(&set), UINT64_MAX);
    (void)close(fd);
}

static void silent_connections_of_one_user_push_out_only_each_other(void **state)
{
    (void)state;
    int fds[PAWL_GREETING_UID_MAX + 10];
    for (unsigned i = 0; i < PAWL_COUNT(fds); i++) {
        fds[i] = connect_to(path);
        assert_true(fds[i] >= 0);
        SERVE_UNTIL(set.count == (i < PAWL_GREETING_UID_MAX ? i + 1 : PAWL_GREETING_UID_MAX) &&
                    !readable(listener.fd));
    }
    assert_int_equal(set.greeting_count, PAWL_GREETING_UID_MAX);
    assert_true(ended(fds[0])); /* the oldest went */
    int fd = attach(NULL);      /* and one that speaks gets in */
    (void)close(fd);
    for (unsigned i = 0; i < PAWL_COUNT(fds); i++)
        (void)close(fds[i]);
}

static void descriptors_from_a_client_are_not_taken(void **state)
{
    (void)state;
    unsigned before = open_files();
    for (int round = 0; round < 50; round++) {
        int fd = connect_to(path);
        struct pawl_attach_hello h = hello();
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(200 * sizeof(int))];
        } control;
        memset(&control, 0, sizeof control);
        struct iovec v = { .iov_base = &h, .iov_len = sizeof h };
        struct msghdr m = { .msg_iov = &v,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes };
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(200 * sizeof(int));
        for (int i = 0; i < 200; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &fd, sizeof fd);
        assert_int_equal(sendmsg(fd, &m, MSG_NOSIGNAL), sizeof h);
        assert_true(ended(fd));
        (void)close(fd);
    }
    assert_int_equal(table_count, 0);
    assert_int_equal(open_files(), before);
    assert_non_null(strstr(last_line, "descriptor"));
}

static void a_label_cannot_forge_a_line(void **state)
{
    (void)state;
    struct pawl_attach_hello h = hello();
    memset(h.label, '\n', sizeof h.label); /* and no end */
    h.label[0] = '\033';
    int fd = connect_to(path);
    (void)greet_with(fd, &h);
    give(fd, "junk", 4);
    assert_true(ended(fd));
    assert_null(strchr(last_line, '\n'));
    assert_null(strchr(last_line, '\033'));
    (void)close(fd);
}

/* --- limits ---------------------------------------------------------------------------------- */

static void a_full_table_says_so(void **state)
{
    (void)state;
    set.limits.sessions_max = 2;
    int a = attach(NULL), b = attach(NULL), c = connect_to(path);
    struct pawl_attach_hello h = hello();
    struct pawl_attach_welcome w = greet_with(c, &h);
    assert_int_equal(w.result, PAWL_E_QUOTA);
    assert_non_null(strstr(w.text, "2 sessions"));
    assert_true(ended(c));
    (void)close(a);
    boot += 0;
    SERVE_UNTIL(set.lingering.next != &set.lingering);
    boot += PAWL_LINGER_NS;
    SERVE_UNTIL(set.count == 1);
    (void)close(c);
    c = attach(NULL); /* there is room again */
    (void)close(b);
    (void)close(c);
}

static void one_user_cannot_have_all_sessions(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    set.limits.sessions_uid_max = 1;
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(chmod(path, 0666), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct pawl_attach_hello h = hello();
        struct pawl_attach_welcome w = { .result = 1 };
        if (setgid(4242) != 0 || setuid(4242) != 0)
            _exit(2);
        int first = connect_to(path), second;
        if (send(first, &h, sizeof h, 0) < 0)
            _exit(3);
        struct pollfd p = { .fd = first, .events = POLLIN };
        (void)poll(&p, 1, -1);
        if (recv(first, &w, sizeof w, 0) < 0 || w.result != PAWL_OK)
            _exit(4);
        second = connect_to(path);
        if (send(second, &h, sizeof h, 0) < 0)
            _exit(5);
        p.fd = second;
        (void)poll(&p, 1, -1);
        if (recv(second, &w, sizeof w, 0) < 0)
            _exit(6);
        _exit(w.result == PAWL_E_QUOTA && strstr(w.text, "4242") ? 0 : 7);
    }
    int status = 0;
    SERVE_UNTIL(waitpid(pid, &status, WNOHANG) == pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(table[0].peer.uid, 4242);
}

static void descriptors_are_kept_back(void **state)
{
    (void)state;
    set.limits.files_max = 7;
    int a = attach(NULL), c = connect_to(path);
    struct pawl_attach_hello h = hello();
    struct pawl_attach_welcome w = greet_with(c, &h);
    assert_int_equal(w.result, PAWL_E_QUOTA);
    assert_non_null(strstr(w.text, "descriptors"));
    (void)close(c);
    struct pawl_attach_lane ask = ask_lane();
    int fds[3];
    assert_int_equal(open_lane(a, &ask, fds).result, PAWL_OK);
    close_three(fds);
    assert_int_equal(open_lane(a, &ask, fds).result, PAWL_E_QUOTA);
    (void)close(a);
}

static void a_core_that_refuses_is_quoted(void **state)
{
    (void)state;
    open_result = PAWL_E_QUOTA;
    int fd = connect_to(path);
    struct pawl_attach_hello h = hello();
    struct pawl_attach_welcome w = greet_with(fd, &h);
    assert_int_equal(w.result, PAWL_E_QUOTA);
    assert_true(w.text[0] != '\0');
    assert_true(ended(fd));
    (void)close(fd);
}

/* --- lanes ----------------------------------------------------------------------------------- */

static void a_lane_comes_with_sealed_memory_and_a_complete_header(void **state)
{
    (void)state;
    int fds[3], fd = attach(NULL);
    struct pawl_attach_lane ask = ask_lane();
    ask.comp_bytes = RING * 4;
    struct pawl_attach_lane_ok ok = open_lane(fd, &ask, fds);
    assert_int_equal(ok.result, PAWL_OK);
    assert_int_equal(ok.lane, 0);
    assert_int_equal(ok.comp_bytes, RING * 4);
    assert_int_equal(pawl_region_verify(fds[0], PAWL_REGION_SUB, RING), 0);
    assert_int_equal(pawl_region_verify(fds[1], PAWL_REGION_COMP, RING * 4), 0);
    struct pawl_region comp;
    assert_int_equal(pawl_region_map(fds[1], RING * 4, 0, &comp), 0);
    const struct pawl_comp_shm *h = comp.header;
    assert_int_equal(h->magic, PAWL_ABI_MAGIC);
    assert_int_equal(h->version, PAWL_ABI_VERSION);
    assert_int_equal(h->fingerprint, pawl_layout_fingerprint());
    assert_int_equal(h->session, 100);
    assert_int_equal(h->broker_epoch, 9);
    assert_int_equal(h->sub_bytes, RING);
    assert_int_equal(h->comp_bytes, RING * 4);
    assert_int_equal(pawl_load_acq_u32(&h->state), PAWL_LANE_OPEN);
    assert_int_equal(lanes.active_count, 1);
    pawl_region_unmap(&comp);
    close_three(fds);
    (void)close(fd);
}

static void sizes_of_a_lane_are_checked(void **state)
{
    (void)state;
    int fds[3], fd = attach(NULL);
    for (int what = 0; what < 8; what++) {
        struct pawl_attach_lane ask = ask_lane();
        if (what == 0)
            ask.sub_bytes = RING + 1;
        else if (what == 1)
            ask.comp_bytes = RING / 2;
        else if (what == 2)
            ask.comp_bytes = PAWL_RING_BYTES_MAX * 2u;
        else if (what == 3)
            ask.sub_bytes = 0;
        else if (what == 4)
            ask.window = PAWL_WINDOW_MIN - 1;
        else if (what == 5)
            ask.window = PAWL_WINDOW_MAX + 1;
        else if (what == 6)
            ask.lane = PAWL_LANES_MAX;
        else
            ask.lane = PAWL_LANE_NEW - 1;
        struct pawl_attach_lane_ok ok = open_lane(fd, &ask, fds);
        assert_int_equal(ok.result, PAWL_E_INVALID);
        assert_true(ok.text[0] != '\0');
        assert_int_equal(fds[0], -1);
    }
    struct pawl_attach_lane right = ask_lane();
    assert_int_equal(open_lane(fd, &right, fds).result, PAWL_OK); /* the session goes on */
    close_three(fds);
    (void)close(fd);
}

static void a_lane_beyond_the_memory_says_what_is_needed(void **state)
{
    (void)state;
    int fds[3], fd = attach(NULL);
    struct pawl_attach_lane ask = ask_lane();
    ask.sub_bytes = ask.comp_bytes = 32u << 20;
    struct pawl_attach_lane_ok ok = open_lane(fd, &ask, fds);
    assert_int_equal(ok.result, PAWL_E_QUOTA);
    assert_int_equal(ok.needed, pawl_lane_cost(32u << 20, 32u << 20));
    assert_int_equal(ok.available, 32u << 20);
    assert_non_null(strstr(ok.text, "--memory"));
    (void)close(fd);
}

static void a_session_has_256_lanes_and_no_more(void **state)
{
    (void)state;
    int fds[3], fd = attach(NULL);
    lanes.bytes_max = 1ull << 30;
    struct pawl_attach_lane ask = ask_lane();
    for (uint32_t i = 0; i < PAWL_LANES_MAX; i++) {
        assert_int_equal(open_lane(fd, &ask, fds).result, PAWL_OK);
        close_three(fds);
    }
    assert_int_equal(open_lane(fd, &ask, fds).result, PAWL_E_QUOTA);
    struct pawl_attach_watch one = { .type = PAWL_ATTACH_CLOSE, .lane = 17 };
    give(fd, &one, sizeof one);
    assert_int_equal(open_lane(fd, &ask, fds).result, PAWL_OK);
    assert_true(lane_table[17].closed);
    close_three(fds);
    (void)close(fd);
}

static void a_lane_gets_larger_rings_under_its_number(void **state)
{
    (void)state;
    int fds[3], fd = attach(NULL);
    struct pawl_attach_lane ask = ask_lane();
    struct pawl_attach_lane_ok ok = open_lane(fd, &ask, fds);
    close_three(fds);
    ask.lane = ok.lane;
    ask.comp_bytes = RING * 2;
    ok = open_lane(fd, &ask, fds);
    assert_int_equal(ok.result, PAWL_OK);
    assert_int_equal(ok.lane, ask.lane);
    assert_false(lane_table[0].closed); /* a waiting receive goes on */
    assert_int_equal(lanes.open_count, 1);
    ask.comp_bytes = 16u << 20; /* that cannot be had: the old rings stay */
    ask.sub_bytes = 32u << 20;
    assert_int_equal(open_lane(fd, &ask, fds + 0).result, PAWL_E_QUOTA);
    assert_int_equal(lanes.open_count, 1);
    assert_int_equal(lanes.active_count, 1);
    close_three(fds);
    (void)close(fd);
}

static void a_watch_is_a_socket_that_gets_a_byte(void **state)
{
    (void)state;
    int fds[3], fd = attach(NULL);
    struct pawl_attach_lane ask = ask_lane();
    uint32_t number = open_lane(fd, &ask, fds).lane;
    close_three(fds);
    for (int round = 0; round < 3; round++) {
        struct pawl_attach_watch w = { .type = PAWL_ATTACH_WATCH, .lane = number };
        struct pawl_attach_watch_ok ok;
        give(fd, &w, sizeof w);
        assert_int_equal(take(fd, &ok, sizeof ok, fds), sizeof ok);
        assert_int_equal(ok.result, PAWL_OK);
        pawl_lane_wake(PAWL_CONTAINER(lanes.active.next, struct pawl_lane, place), PAWL_WAIT_FD);
        char bytes[8];
        assert_int_equal(recv(fds[0], bytes, sizeof bytes, 0), 1);
        (void)close(fds[0]);
    }
    struct pawl_attach_watch wrong = { .type = PAWL_ATTACH_WATCH, .lane = 99 };
    struct pawl_attach_watch_ok ok;
    give(fd, &wrong, sizeof wrong);
    assert_int_equal(take(fd, &ok, sizeof ok, fds), sizeof ok);
    assert_int_equal(ok.result, PAWL_E_NOT_FOUND);
    (void)close(fd);
}

/* --- the end --------------------------------------------------------------------------------- */

static void bye_is_a_clean_end(void **state)
{
    (void)state;
    int fd = attach(NULL);
    struct pawl_attach_bye bye = { .type = PAWL_ATTACH_BYE };
    give(fd, &bye, sizeof bye);
    assert_true(ended(fd));
    assert_int_equal(table[0].ended, PAWL_END_CLOSED + 1);
    (void)close(fd);
}

static void malformed_messages_are_a_breach(void **state)
{
    (void)state;
    struct pawl_attach_hello h = hello();
    struct pawl_attach_lane lane = ask_lane();
    uint8_t longer[sizeof lane + 8] = { 0 };
    memcpy(longer, &lane, sizeof lane);
    static const uint32_t unknown[2] = { 99, 0 };
    static const uint8_t large[20000];
    const struct {
        const void *bytes;
        size_t count;
    } wrong[] = { { &h, sizeof h },
                  { &lane, sizeof lane - 8 },
                  { longer, sizeof longer },
                  { unknown, 8 },
                  { unknown, 2 },
                  { large, 511 },
                  { large, sizeof large },
                  { &(uint32_t){ PAWL_ATTACH_BYE }, 4 } };
    for (unsigned i = 0; i < PAWL_COUNT(wrong); i++) {
        int fd = attach(NULL);
        give(fd, wrong[i].bytes, wrong[i].count);
        assert_true(ended(fd));
        assert_int_equal(table[i].ended, PAWL_END_BREACH + 1);
        (void)close(fd);
    }
}

static void the_end_of_the_socket_alone_detaches(void **state)
{
    (void)state;
    int fds[3], fd = attach(NULL);
    struct pawl_attach_lane ask = ask_lane();
    (void)open_lane(fd, &ask, fds);
    (void)close(fd);
    SERVE_UNTIL(set.lingering.next != &set.lingering);
    assert_int_equal(table[0].detached, 0);
    boot += PAWL_LINGER_NS;
    serve_once();
    assert_true(table[0].detached);
    assert_false(lane_table[0].closed); /* it may come back to it */
    assert_int_equal(set.count, 0);
    close_three(fds);
}

/* A client process that attaches, opens a lane, says so, and waits for its death. holder: it leaves
 * a child that keeps the socket. */
static pid_t client_process(bool holder, bool closes, int *said)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct pawl_attach_hello h = hello();
        struct pawl_attach_welcome w;
        struct pawl_attach_lane ask = ask_lane();
        struct pawl_attach_lane_ok ok;
        int fd = connect_to(path);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (send(fd, &h, sizeof h, 0) < 0 || poll(&p, 1, -1) < 0 ||
            recv(fd, &w, sizeof w, 0) != sizeof w || send(fd, &ask, sizeof ask, 0) < 0 ||
            poll(&p, 1, -1) < 0 || recv(fd, &ok, sizeof ok, 0) != sizeof ok)
            _exit(1);
        if (holder && fork() == 0) {
            (void)signal(SIGALRM, SIG_DFL);
            (void)alarm(60);
            pause();
            _exit(0);
        }
        if (closes)
            (void)close(fd);
        if (write(pipes[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    (void)close(pipes[1]);
    SERVE_UNTIL(readable(pipes[0]));
    *said = pipes[0];
    return pid;
}

static void a_killed_process_ends_at_once(void **state)
{
    (void)state;
    int said;
    pid_t pid = client_process(false, false, &said);
    assert_int_equal(kill(pid, SIGKILL), 0);
    SERVE_UNTIL(table[0].ended);
    assert_int_equal(table[0].ended, PAWL_END_DEAD + 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(said);
}

static void a_child_that_holds_the_socket_does_not_keep_its_parent_alive(void **state)
{
    (void)state;
    int said;
    pid_t pid = client_process(true, false, &said);
    assert_int_equal(kill(pid, SIGKILL), 0);
    SERVE_UNTIL(table[0].ended);
    assert_int_equal(table[0].ended, PAWL_END_DEAD + 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(said);
}

static void a_stopped_process_is_not_dead(void **state)
{
    (void)state;
    int said;
    pid_t pid = client_process(false, false, &said);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    for (int i = 0; i < 20; i++) {
        boot += 1000 * MS;
        serve_once();
    }
    assert_int_equal(table[0].ended, 0);
    assert_false(table[0].detached);
    assert_int_equal(kill(pid, SIGKILL), 0);
    SERVE_UNTIL(table[0].ended);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(said);
}

static void a_detached_process_that_dies_ends_its_sessions(void **state)
{
    (void)state;
    int said, own = attach(NULL);
    pid_t pid = client_process(false, true, &said);
    SERVE_UNTIL(set.lingering.next != &set.lingering);
    boot += PAWL_LINGER_NS;
    SERVE_UNTIL(table[1].detached);
    table[2] = table[1]; /* another that it left */
    table[2].id = 102;
    table_count = 3;
    for (int i = 0; i < 5; i++)
        serve_once();
    assert_int_equal(table[1].ended, 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    SERVE_UNTIL(table[1].ended && table[2].ended);
    assert_int_equal(table[1].ended, PAWL_END_DEAD + 1);
    assert_int_equal(table[2].ended, PAWL_END_DEAD + 1);
    assert_int_equal(table[0].ended, 0); /* another process */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(said);
    (void)close(own);
}

/* --- resume ---------------------------------------------------------------------------------- */

static struct pawl_attach_hello hello_again(const struct pawl_attach_welcome *w)
{
    struct pawl_attach_hello h = hello();
    h.session = w->session;
    h.epoch = w->epoch;
    memcpy(h.secret, w->secret, sizeof h.secret);
    return h;
}

static void a_resumed_session_fences_the_older_holder(void **state)
{
    (void)state;
    struct pawl_attach_welcome w;
    int fds[3], fd = attach(&w);
    struct pawl_attach_lane ask = ask_lane();
    (void)open_lane(fd, &ask, fds);
    struct pawl_region comp;
    assert_int_equal(pawl_region_map(fds[1], RING, 0, &comp), 0);
    struct pawl_attach_hello h = hello_again(&w);
    int second = connect_to(path);
    struct pawl_attach_welcome again = greet_with(second, &h);
    assert_int_equal(again.result, PAWL_OK);
    assert_int_equal(again.resumed, 1);
    assert_int_equal(again.session, w.session);
    assert_int_equal(again.epoch, w.epoch + 1);
    assert_true(ended(fd));
    const struct pawl_comp_shm *header = comp.header;
    assert_int_equal(pawl_load_acq_u32(&header->state), PAWL_LANE_CLOSED);
    assert_int_equal(header->reason, PAWL_E_EPOCH);
    assert_int_equal(table[0].ended, 0); /* the session lives */
    pawl_region_unmap(&comp);
    close_three(fds);
    (void)close(fd);
    (void)close(second);
}

static void a_wrong_secret_and_an_unknown_session_are_told_apart(void **state)
{
    (void)state;
    struct pawl_attach_welcome w;
    int fd = attach(&w);
    struct pawl_attach_hello h = hello_again(&w);
    h.secret[3] ^= 1;
    int second = connect_to(path);
    assert_int_equal(greet_with(second, &h).result, PAWL_E_PERM);
    assert_true(ended(second));
    (void)close(second);
    h = hello_again(&w);
    h.session = 5;
    second = connect_to(path);
    assert_int_equal(greet_with(second, &h).result, PAWL_E_OUTCOME_UNKNOWN);
    (void)close(second);
    assert_int_equal(set.count - set.greeting_count, 1); /* the holder was not disturbed */
    (void)close(fd);
}

static void sessions_of_one_process_share_a_watch(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        int fd = attach(NULL);
        (void)close(fd);
        SERVE_UNTIL(set.lingering.next != &set.lingering);
        boot += PAWL_LINGER_NS;
        SERVE_UNTIL(table[i].detached);
    }
    assert_int_equal(set.files, 1);
}

static void an_orphan_is_forgotten_after_its_grace(void **state)
{
    (void)state;
    int fd = attach(NULL);
    (void)close(fd);
    SERVE_UNTIL(set.lingering.next != &set.lingering);
    boot += PAWL_LINGER_NS;
    SERVE_UNTIL(table[0].detached);
    assert_int_equal(pawl_sessions_next(&set), boot + 60000 * MS);
    boot += 60000 * MS;
    serve_once();
    assert_true(pawl_list_empty(&set.orphans));
    assert_int_equal(set.files, 0);
    assert_int_equal(table[0].ended, 0); /* that is the core's to do */
}

/* --- recovery -------------------------------------------------------------------------------- */

static void recovered_sessions_of_dead_processes_are_ended(void **state)
{
    (void)state;
    struct pawl_attach_welcome w;
    int fd = attach(&w);
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    stop();
    (void)close(fd);
    /* four in the log: ours; one whose pid is free; one whose pid is another process now; one of
     * which nothing is known */
    table_count = 4;
    for (uint32_t i = 1; i < 4; i++) {
        table[i] = table[0];
        table[i].id = 100 + i;
    }
    table[1].peer.pid = (uint32_t)gone;
    table[2].peer.start_time ^= 1;
    table[3].peer.start_time = 0;
    start(true);
    assert_int_equal(table[0].ended, 0);
    assert_int_equal(table[1].ended, PAWL_END_DEAD + 1);
    assert_int_equal(table[2].ended, PAWL_END_DEAD + 1);
    assert_int_equal(table[3].ended, 0);
}

static void after_a_reboot_all_are_dead(void **state)
{
    (void)state;
    int fd = attach(NULL);
    stop();
    (void)close(fd);
    start(false);
    assert_int_equal(table[0].ended, PAWL_END_DEAD + 1);
}

static void a_thousand_lives_leave_nothing_behind(void **state)
{
    (void)state;
    unsigned before = open_files();
    for (int i = 0; i < 300; i++) {
        int fds[3], fd = attach(NULL);
        struct pawl_attach_lane ask = ask_lane();
        assert_int_equal(open_lane(fd, &ask, fds).result, PAWL_OK);
        close_three(fds);
        struct pawl_attach_bye bye = { .type = PAWL_ATTACH_BYE };
        if (i % 2 == 0)
            give(fd, &bye, sizeof bye);
        else
            give(fd, "x", 1);
        assert_true(ended(fd));
        (void)close(fd);
    }
    assert_int_equal(set.count, 0);
    assert_int_equal(open_files(), before);
    assert_int_equal(lanes.bytes, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_hello_is_welcomed),
        TEST(another_layout_is_refused_naming_both),
        TEST(a_refusal_is_read_even_by_those_who_have_written_more),
        TEST(who_says_nothing_is_closed_after_two_seconds),
        TEST(silent_connections_of_one_user_push_out_only_each_other),
        TEST(descriptors_from_a_client_are_not_taken),
        TEST(a_label_cannot_forge_a_line),
        TEST(a_full_table_says_so),
        TEST(one_user_cannot_have_all_sessions),
        TEST(descriptors_are_kept_back),
        TEST(a_core_that_refuses_is_quoted),
        TEST(a_lane_comes_with_sealed_memory_and_a_complete_header),
        TEST(sizes_of_a_lane_are_checked),
        TEST(a_lane_beyond_the_memory_says_what_is_needed),
        TEST(a_session_has_256_lanes_and_no_more),
        TEST(a_lane_gets_larger_rings_under_its_number),
        TEST(a_watch_is_a_socket_that_gets_a_byte),
        TEST(bye_is_a_clean_end),
        TEST(malformed_messages_are_a_breach),
        TEST(the_end_of_the_socket_alone_detaches),
        TEST(a_killed_process_ends_at_once),
        TEST(a_child_that_holds_the_socket_does_not_keep_its_parent_alive),
        TEST(a_stopped_process_is_not_dead),
        TEST(a_detached_process_that_dies_ends_its_sessions),
        TEST(a_resumed_session_fences_the_older_holder),
        TEST(a_wrong_secret_and_an_unknown_session_are_told_apart),
        TEST(sessions_of_one_process_share_a_watch),
        TEST(an_orphan_is_forgotten_after_its_grace),
        TEST(recovered_sessions_of_dead_processes_are_ended),
        TEST(after_a_reboot_all_are_dead),
        TEST(a_thousand_lives_leave_nothing_behind),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
