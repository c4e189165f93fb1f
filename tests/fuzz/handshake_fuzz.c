/* SPDX-License-Identifier: MIT */
/* The broker's reading of its socket against any packets (M17, M20, P8, P10, G7). The input is a
 * little program for up to three connections: packets of any bytes and size, right ones with
 * patched fields, descriptors, ends, new attempts to resume. Real sockets, the real core on the
 * simulated disk. Whatever comes: no crash, no assertion; no descriptor, lane or byte of lane
 * memory is left when all are gone; and an honest client attaches afterwards.
 *
 * Without libFuzzer it replays its corpus and a number of random inputs. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/prng.h"
#include "lib/fuzz_main.h"
#include "lib/loop_rig.h"

#define CLIENTS 3u
#define OPS_MAX 64u
#define INPUTS_A_RIG 500u

static struct loop_rig rig;
static struct pawl_io *watcher;
static struct pawl_sessions set;
static struct pawl_listener listener;
static char root[64], path[96];
static bool standing;
static uint64_t used;
static struct {
    int fd;
    struct pawl_attach_welcome welcome;
} client[CLIENTS];
static struct {
    uint64_t welcomes, refusals, lanes, resumed, breaches;
} reached;

static void need(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "handshake_fuzz: %s\n", what);
    abort();
}

static void say(void *ctx, const char *line)
{
    (void)ctx;
    reached.breaches += strstr(line, "breach") != NULL;
}

/* --- the broker ------------------------------------------------------------------------------ */

static void end(void)
{
    if (!standing)
        return;
    pawl_sessions_stop(&set, PAWL_E_BROKER_DOWN);
    loop_rig_turn(&rig, 1000);
    pawl_listener_close(&listener, 1);
    watcher->ops->destroy(watcher);
    loop_rig_fini(&rig);
    (void)rmdir(root);
    standing = false;
}

static void begin(void)
{
    char text[512];
    if (standing && used++ < INPUTS_A_RIG)
        return;
    end();
    loop_rig_init(&rig, 7);
    watcher = pawl_io_posix_create(text);
    snprintf(root, sizeof root, "/tmp/pawl-fuzz-XXXXXX");
    need(watcher != NULL && mkdtemp(root) != NULL, "no io or no directory");
    snprintf(path, sizeof path, "%s/s", root);
    need(pawl_listener_open(path, &listener, text, sizeof text) == 0, text);
    memset(&set, 0, sizeof set);
    set.io = watcher;
    set.core = pawl_engine_core(rig.engine);
    set.lanes = &rig.lanes;
    set.listener = &listener;
    set.limits = (struct pawl_session_limits){ .sessions_max = 32,
                                               .sessions_uid_max = 32,
                                               .files_max = 200,
                                               .grace_ns = 1000000000,
                                               .admin_uid = geteuid() };
    set.say = say;
    rig.lanes.bytes_max = 8u << 20;
    struct pawl_now now = pawl_engine_now(rig.engine, rig.boot, rig.boot);
    need(pawl_sessions_start(&set, now, rig.boot, true) == 0, "the sessions do not start");
    standing = true;
    used = 0;
}

static void serve(uint64_t step_ns)
{
    for (int i = 0; i < 3; i++) {
        (void)watcher->ops->wait(watcher, 0);
        loop_rig_turn(&rig, step_ns);
        struct pawl_now now = pawl_engine_now(rig.engine, rig.boot, rig.boot);
        (void)pawl_sessions_serve(&set, now, rig.boot);
    }
}

/* --- the clients ----------------------------------------------------------------------------- */

static const uint8_t *at, *last;

static uint64_t number(unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes && at < last; i++)
        v |= (uint64_t)*at++ << (8 * i);
    return v;
}

static int connect_to(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* Reads all that the broker said; every descriptor is closed. */
static void listen_to(unsigned i)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control;
    uint64_t packet[128];
    for (;;) {
        struct iovec v = { .iov_base = packet, .iov_len = sizeof packet };
        struct msghdr m = { .msg_iov = &v,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes };
        ssize_t n = recvmsg(client[i].fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n <= 0)
            return;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            int fds[8];
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(fds, CMSG_DATA(c), count * sizeof(int));
            for (size_t k = 0; k < count; k++)
                (void)close(fds[k]);
        }
        const struct pawl_attach_welcome *w = (const void *)packet;
        const struct pawl_attach_lane_ok *ok = (const void *)packet;
        if (n == sizeof *w && w->result == PAWL_OK) {
            memcpy(&client[i].welcome, w, sizeof *w);
            reached.welcomes++;
            reached.resumed += w->resumed;
        } else if (n == sizeof *w) {
            need(w->text[0] != '\0', "a refusal without a reason");
            reached.refusals++;
        } else if (n == sizeof *ok) {
            reached.lanes += ok->result == PAWL_OK;
        }
    }
}

static void give(unsigned i, const void *packet, size_t bytes)
{
    (void)send(client[i].fd, packet, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void patch(void *packet, size_t bytes)
{
    for (uint64_t n = number(1) % 8; n > 4; n--) /* mostly not at all */
        ((uint8_t *)packet)[number(2) % bytes] = (uint8_t)number(1);
}

static void give_hello(unsigned i, bool again)
{
    struct pawl_attach_hello h = { .magic = PAWL_ABI_MAGIC,
                                   .version = PAWL_ABI_VERSION,
                                   .type = PAWL_ATTACH_HELLO,
                                   .fingerprint = pawl_layout_fingerprint() };
    if (again) {
        const struct pawl_attach_welcome *w = &client[number(1) % CLIENTS].welcome;
        h.session = w->session;
        h.epoch = w->epoch;
        memcpy(h.secret, w->secret, sizeof h.secret);
    }
    patch(&h, sizeof h);
    give(i, &h, sizeof h);
}

static void give_lane(unsigned i)
{
    struct pawl_attach_lane a = {
        .type = PAWL_ATTACH_LANE,
        .lane = number(1) % 4 ? PAWL_LANE_NEW : (uint32_t)number(1) % 4,
        .sub_bytes = PAWL_RING_BYTES_MIN << number(1) % 6,
        .comp_bytes = PAWL_RING_BYTES_MIN << number(1) % 6,
        .window = (uint32_t)(PAWL_WINDOW_MIN + number(2)),
        .open_seq = 1,
        .next_seq = 1 + number(1) % 2,
    };
    patch(&a, sizeof a);
    give(i, &a, sizeof a);
}

static void give_one(unsigned i, uint32_t type)
{
    struct pawl_attach_watch w = { .type = type, .lane = (uint32_t)number(1) % 4 };
    patch(&w, sizeof w);
    give(i, &w, sizeof w);
}

static void give_raw(unsigned i)
{
    uint8_t bytes[700];
    size_t n = number(2) % sizeof bytes;
    for (size_t k = 0; k < n; k++)
        bytes[k] = k < 64 ? (uint8_t)number(1) : (uint8_t)k;
    give(i, bytes, n);
}

static void give_descriptor(unsigned i)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct pawl_attach_bye bye = { .type = (uint32_t)number(1) % 10 };
    struct iovec v = { .iov_base = &bye, .iov_len = sizeof bye };
    memset(&control, 0, sizeof control);
    struct msghdr m = { .msg_iov = &v,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof control.bytes };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(4 * sizeof(int));
    for (int k = 0; k < 4; k++)
        memcpy(CMSG_DATA(c) + (size_t)k * sizeof(int), &client[i].fd, sizeof(int));
    (void)sendmsg(client[i].fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void step(void)
{
    unsigned i = (unsigned)number(1);
    uint64_t op = i / CLIENTS;
    i %= CLIENTS;
    if (client[i].fd < 0)
        client[i].fd = connect_to();
    if (client[i].fd < 0)
        return;
    switch (op % 16) {
    case 0:
    case 1:
    case 2:
        give_hello(i, false);
        break;
    case 3:
        give_hello(i, true);
        break;
    case 4:
    case 5:
    case 6:
        give_lane(i);
        break;
    case 7:
        give_one(i, PAWL_ATTACH_WATCH);
        break;
    case 8:
        give_one(i, PAWL_ATTACH_CLOSE);
        break;
    case 9: {
        struct pawl_attach_bye bye = { .type = PAWL_ATTACH_BYE };
        give(i, &bye, sizeof bye);
        break;
    }
    case 10:
        give_raw(i);
        break;
    case 11:
        give_descriptor(i);
        break;
    case 12:
        (void)close(client[i].fd);
        client[i].fd = -1;
        break;
    case 13:
        serve(number(4));
        break;
    default:
        serve(1000);
        for (unsigned k = 0; k < CLIENTS; k++)
            if (client[k].fd >= 0)
                listen_to(k);
    }
}

/* --- afterwards ------------------------------------------------------------------------------ */

static void all_gone(void)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (client[i].fd >= 0)
            (void)close(client[i].fd);
        client[i].fd = -1;
    }
    /* past the hello's time, the linger, and the grace of what was only detached */
    for (int i = 0; i < 200 && (set.count > 0 || set.files > 0 || rig.lanes.open_count > 0); i++)
        serve(100000000);
    need(set.count == 0, "a connection is left");
    need(set.files == 0, "a descriptor is left");
    need(rig.lanes.open_count == 0 && rig.lanes.bytes == 0, "a lane is left");
}

static void honest_attach(void)
{
    uint64_t welcomes = reached.welcomes, lanes = reached.lanes;
    struct pawl_attach_bye bye = { .type = PAWL_ATTACH_BYE };
    at = last; /* no patches */
    client[0].fd = connect_to();
    need(client[0].fd >= 0, "an honest client cannot connect");
    give_hello(0, false);
    struct pawl_attach_lane a = { .type = PAWL_ATTACH_LANE,
                                  .lane = PAWL_LANE_NEW,
                                  .sub_bytes = PAWL_RING_BYTES_MIN,
                                  .comp_bytes = PAWL_RING_BYTES_MIN,
                                  .window = PAWL_WINDOW_MIN,
                                  .open_seq = 1,
                                  .next_seq = 1 };
    give(0, &a, sizeof a);
    for (int i = 0; i < 100 && reached.lanes == lanes; i++) {
        serve(1000);
        listen_to(0);
    }
    need(reached.welcomes == welcomes + 1 && reached.lanes == lanes + 1,
         "an honest client does not get in");
    give(0, &bye, sizeof bye);
    all_gone();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    memset(client, 0, sizeof client);
    for (unsigned i = 0; i < CLIENTS; i++)
        client[i].fd = -1;
    at = data;
    last = data + size;
    for (unsigned i = 0; i < OPS_MAX && at < last; i++)
        step();
    serve(1000);
    all_gone();
    honest_attach();
    if (used % 16 == 0)
        pawl_core_verify(pawl_engine_core(rig.engine));
    return 0;
}

#ifndef PAWL_FUZZ
static void random_input(struct pawl_prng *prng, uint8_t *data, size_t *size)
{
    *size = 1 + pawl_prng_below(prng, 150);
    for (size_t i = 0; i < *size; i++)
        data[i] = (uint8_t)pawl_prng_next(prng);
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = fuzz_main(argc, argv, "handshake_fuzz", 1000, random_input);
    end();
    printf("%" PRIu64 " welcomes, %" PRIu64 " of them again, %" PRIu64 " refusals, %" PRIu64
           " lanes, %" PRIu64 " breaches\n",
           reached.welcomes, reached.resumed, reached.refusals, reached.lanes, reached.breaches);
    need(rc != 0 || (reached.welcomes && reached.resumed && reached.refusals && reached.lanes &&
                     reached.breaches),
         "the inputs do not reach everything");
    return rc;
}
#endif
