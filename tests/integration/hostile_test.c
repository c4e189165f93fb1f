/* SPDX-License-Identifier: MIT */
/* A hostile client of the permitted group writes what it likes where it can, while an honest one
 * works (G7; hazards M3, M5-M8, M17, P6, P8). Whatever it does: the broker lives, the honest client
 * goes on, and in the end nothing is left of it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/raw.h"

static struct harness_broker broker;
static uint64_t *honest_lives; /* shared: messages that the honest client has seen through */

static int honest(void *arg)
{
    uint32_t *stop = arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    options.wait_ns = 30 * PAWL_NS_S;
    for (uint64_t i = 0; !__atomic_load_n(stop, __ATOMIC_RELAXED); i++) {
        struct pawl_message m;
        struct pawl_sent sent;
        uint64_t body[16];
        for (unsigned k = 0; k < 16; k++)
            body[k] = i * (k + 1);
        harness_check_rc(pawl_send(lane, "honest", body, sizeof body, NULL, &sent), PAWL_OK);
        /* A bit turned in the other's commands can make one that is his right: a send to here. */
        do {
            harness_check_rc(pawl_receive(lane, "honest", &options, &m), PAWL_OK);
            if (m.id != sent.id)
                harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
        } while (m.id != sent.id);
        harness_check(m.bytes == sizeof body);
        harness_check(memcmp(m.body, body, sizeof body) == 0);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
        __atomic_fetch_add(honest_lives, 1, __ATOMIC_RELAXED);
    }
    pawl_close(lane);
    return 0;
}

/* The session that misbehaved must be closed for a breach. */
static void must_be_closed(struct raw_lane *lane, int socket)
{
    int reason = raw_closed(lane);
    if (reason != PAWL_E_PROTOCOL)
        harness_fail("closed with %s", pawl_strname(reason));
    struct pollfd p = { .fd = socket, .events = POLLIN };
    harness_check(poll(&p, 1, -1) == 1); /* and so is its socket */
    raw_lane_close(lane);
    close(socket);
}

/* --- positions and sizes (M8) ---------------------------------------------------------------- */

static void broken_positions(uint64_t number)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    uint64_t queue = raw_queue(&lane, "honest");
    uint64_t tail = lane.out.tail, size = lane.out.size;
    (void)queue;
    const uint64_t tails[] = { tail + size + 8, tail - 8, UINT64_MAX,         1ull << 63,
                               tail + 2 * size, tail + 4, tail + size * 2 + 3 };
    memset(lane.sub.data, 0xff, size); /* whatever is read there is nonsense as well */
    raw_publish(&lane, tails[number % 7]);
    must_be_closed(&lane, fd);
}

static void broken_sizes(uint64_t number)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    const uint32_t sizes[] = {
        0, 1, 7, 8, 12, 16, 24, 48, 1u << 31, UINT32_MAX, 0xfffffff8u, 65536
    };
    struct pawl_cmd c = { .bytes = sizes[number % 12], .type = PAWL_CMD_SEND, .seq = 1 };
    memcpy(raw_place(&lane), &c, sizeof c);
    raw_publish(&lane, lane.out.tail + 32);
    must_be_closed(&lane, fd);
}

static void broken_completion_head(uint64_t number)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    (void)raw_queue(&lane, "honest");
    struct pawl_sub_shm *sub = lane.sub.header;
    const uint64_t heads[] = { UINT64_MAX, lane.in.next + 8, 1ull << 62, lane.in.next - 8 };
    pawl_store_seq_u64(&sub->comp_head, heads[number % 4]);
    pawl_store_seq_u64(&sub->taken, heads[(number + 1) % 4]);
    /* A head that cannot be is ignored or a breach; both leave the others alone. */
    bool closed = false;
    uint64_t seq = raw_find(&lane, "honest");
    int rc = raw_answer_or_close(&lane, seq, NULL, NULL, &closed);
    harness_check(closed ? rc == PAWL_E_PROTOCOL : rc == PAWL_OK);
    raw_lane_close(&lane);
    close(fd);
}

/* --- commands (M8, P10) ---------------------------------------------------------------------- */

static void random_commands(struct pawl_prng *prng)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    bool closed = false;
    uint64_t honest_queue = raw_queue(&lane, "honest");
    for (int i = 0; i < 50 && !closed; i++) {
        uint64_t words[64];
        uint32_t bytes = 32 + 8 * (uint32_t)pawl_prng_below(prng, 56);
        for (unsigned k = 0; k < 64; k++)
            words[k] =
                pawl_prng_below(prng, 3) == 0 ? pawl_prng_next(prng) : pawl_prng_below(prng, 300);
        struct pawl_cmd *head = (struct pawl_cmd *)words;
        head->type = (uint16_t)pawl_prng_below(prng, PAWL_CMD_TYPES + 2);
        head->flags = (uint16_t)pawl_prng_below(prng, 2);
        head->deadline = 0;
        head->open = 0;
        for (unsigned k = 4; k < 64; k++)
            words[k] += words[k] == honest_queue ? 1000 : 0; /* where it has every right */
        if (!raw_submit(&lane, words, bytes))
            break;
        if (head->type == PAWL_CMD_RECEIVE || head->type == PAWL_CMD_SUBSCRIBE)
            continue; /* may wait for ever, as asked */
        (void)raw_answer_or_close(&lane, lane.seq, NULL, NULL, &closed);
    }
    raw_lane_close(&lane);
    close(fd);
}

/* Lengths inside a send that do not add up to its record. */
static void broken_sends(uint64_t number)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    struct {
        struct pawl_cmd_send c;
        uint8_t rest[72];
    } r = { .c = { .head = { .type = PAWL_CMD_SEND },
                   .queue = raw_queue(&lane, "hostile"),
                   .body_bytes = 64,
                   .priority = 4 } };
    switch (number % 6) {
    case 0:
        r.c.body_bytes = UINT32_MAX;
        break;
    case 1:
        r.c.body_bytes = 1000;
        break;
    case 2:
        r.c.headers_bytes = UINT16_MAX;
        break;
    case 3:
        r.c.key_bytes = r.c.ordering_key_bytes = 255;
        break;
    case 4:
        r.c.body_bytes = UINT32_MAX - 7;
        r.c.headers_bytes = 72;
        break;
    default:
        r.c.priority = 200;
        r.c.flags = 0xff;
        r.c.body_bytes = 0;
        break;
    }
    harness_check(raw_submit(&lane, &r, sizeof r));
    bool closed;
    int rc = raw_answer_or_close(&lane, lane.seq, NULL, NULL, &closed);
    /* Broken form is a breach, a value out of range a refusal. */
    harness_check(rc < 0);
    if (closed)
        harness_check_rc(rc, PAWL_E_PROTOCOL);
    raw_lane_close(&lane);
    close(fd);
}

static void broken_sequence(uint64_t number)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    const uint64_t jumps[] = { 0, 1, UINT64_MAX, 1000000 };
    (void)raw_queue(&lane, "hostile");
    lane.seq = jumps[number % 4] - 1; /* raw_submit adds one */
    struct pawl_cmd_queue c = { .head = { .type = PAWL_CMD_QUEUE_FIND }, .name = "hostile" };
    harness_check(raw_submit(&lane, &c, sizeof c));
    bool closed;
    int rc = raw_answer_or_close(&lane, lane.seq, NULL, NULL, &closed);
    harness_check(closed ? rc == PAWL_E_PROTOCOL : true);
    raw_lane_close(&lane);
    close(fd);
}

/* P6: nobody settles what he was not given. */
static void guessed_tokens(struct pawl_prng *prng)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    uint64_t queue = raw_queue(&lane, "tokens"), id = 0, count = 0;
    struct pawl_comp_delivery d = { 0 };
    harness_check_rc(raw_answer(&lane, raw_send(&lane, queue, "x", 1), &id, NULL), PAWL_OK);
    harness_check_rc(raw_answer(&lane, raw_receive(&lane, queue, 1), &count, &d), PAWL_OK);
    harness_check(count == 1);
    for (int i = 0; i < 20; i++) {
        struct pawl_cmd_settle s = { .head = { .type = PAWL_CMD_ACK },
                                     .message = i % 2 ? d.message : d.message + 1,
                                     .grant = i % 3 ? d.grant : d.grant + 1,
                                     .random = pawl_prng_next(prng) };
        harness_check(raw_submit(&lane, &s, sizeof s));
        int rc = raw_answer(&lane, lane.seq, NULL, NULL);
        /* Of somebody's message that is done, nothing but that is left. */
        if (rc != PAWL_E_NOT_FOUND && rc != PAWL_E_LEASE_LOST && rc != PAWL_E_FORGOTTEN &&
            (i % 2 || rc != PAWL_E_ALREADY_ACKED))
            harness_fail("a guessed token: %s", pawl_strname(rc));
    }
    struct pawl_cmd_settle s = {
        .head = { .type = PAWL_CMD_ACK }, .message = d.message, .grant = d.grant, .random = d.random
    };
    harness_check(raw_submit(&lane, &s, sizeof s));
    harness_check_rc(raw_answer(&lane, lane.seq, NULL, NULL), PAWL_OK);
    raw_lane_close(&lane);
    close(fd);
}

/* --- memory (M3, M5, M6, M7) ----------------------------------------------------------------- */

static void seals_hold(void)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    char path[64];
    harness_check(ftruncate(lane.sub_fd, 0) != 0 && ftruncate(lane.comp_fd, 0) != 0);
    harness_check(ftruncate(lane.sub_fd, 1 << 26) != 0 && ftruncate(lane.comp_fd, 1 << 26) != 0);
    harness_check(fcntl(lane.sub_fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    harness_check(fcntl(lane.comp_fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    harness_check(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, lane.comp_fd, 0) ==
                  MAP_FAILED);
    void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, lane.comp_fd, 0);
    harness_check(p != MAP_FAILED && mprotect(p, 4096, PROT_READ | PROT_WRITE) != 0);
    munmap(p, 4096);
    harness_check(pwrite(lane.comp_fd, "x", 1, 0) < 0);
    harness_check(fallocate(lane.comp_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) !=
                  0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", lane.comp_fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        harness_check(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
        harness_check(pwrite(again, "x", 1, 0) < 0);
        close(again);
    }
    harness_check_rc(raw_answer(&lane, raw_find(&lane, "hostile"), NULL, NULL), PAWL_OK);
    raw_lane_close(&lane);
    close(fd);
}

/* Holes in the client's own region while the broker reads it. */
static int punch(void *arg)
{
    struct pawl_prng *prng = arg;
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    uint64_t queue = raw_queue(&lane, "hostile");
    bool closed = false;
    for (int i = 0; i < 400 && !closed; i++) {
        uint8_t body[1024] = { 1 };
        harness_check(raw_send(&lane, queue, body, sizeof body) > 0);
        off_t at = 4096 * (off_t)pawl_prng_below(prng, 1 + lane.sub.data_bytes / 4096);
        harness_check(
            fallocate(lane.sub_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096) == 0);
        (void)raw_answer_or_close(&lane, lane.seq, NULL, NULL, &closed);
    }
    raw_lane_close(&lane);
    close(fd);
    return 0;
}

/* M7: what is published changes while the broker looks at it. A second process flips bytes in the
 * data area as fast as it can; the first publishes correct sends. */
static _Noreturn void flipper(int sub_fd, uint64_t data_bytes)
{
    struct pawl_region sub;
    struct pawl_prng prng = { .state = 1 };
    alarm(60);
    if (pawl_region_map(sub_fd, data_bytes, PAWL_REGION_WRITE, &sub) != 0)
        _exit(3);
    const struct pawl_sub_shm *words = sub.header;
    for (;;) {
        /* About where the broker reads: up to half a kilobyte before and behind the tail. */
        uint64_t r = pawl_prng_next(&prng);
        uint64_t at = pawl_load_acq_u64(&words->tail) + data_bytes - 512 + r % 1024;
        uint64_t *word = (uint64_t *)(void *)(sub.data + (at & (data_bytes - 1) & ~7ull));
        __atomic_fetch_xor(word, 1ull << (r >> 58), __ATOMIC_RELAXED);
    }
}

static int flip(void *arg)
{
    (void)arg;
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    uint64_t queue = raw_queue(&lane, "hostile");
    fflush(stdout);
    pid_t other = fork(); /* the mapping is not inherited: it makes its own */
    harness_check(other >= 0);
    if (other == 0)
        flipper(lane.sub_fd, lane.sub.data_bytes);
    bool closed = false;
    for (int i = 0; i < 20000 && !closed; i++) {
        uint8_t record[120] = { 0 };
        struct pawl_cmd_send c = {
            .head = { .type = PAWL_CMD_SEND }, .queue = queue, .body_bytes = 64, .priority = 4
        };
        memcpy(record, &c, sizeof c);
        if (!raw_submit(&lane, record, sizeof record))
            harness_pause();
        const struct pawl_comp_shm *comp = lane.comp.header;
        closed = pawl_load_acq_u32(&comp->state) == PAWL_LANE_CLOSED;
        struct pawl_sub_shm *sub = lane.sub.header;
        pawl_store_seq_u64(&sub->comp_head, pawl_load_acq_u64(&comp->tail)); /* read unseen */
    }
    kill(other, SIGKILL);
    (void)harness_wait(other);
    raw_lane_close(&lane);
    close(fd);
    return 0;
}

/* All words that a client may write, at random, at once. */
static void scribble(struct pawl_prng *prng)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    (void)raw_queue(&lane, "hostile");
    for (int i = 0; i < 20; i++) {
        uint64_t *words = lane.sub.header;
        for (unsigned k = 0; k < 4096 / 8; k++)
            pawl_store_rlx_u64(&words[k], pawl_prng_below(prng, 2) ? pawl_prng_next(prng) : 0);
        raw_ring_bell(&lane);
        harness_pause();
    }
    raw_lane_close(&lane);
    close(fd);
}

/* A client that never reads: its completions wait in its own bounded space. */
static void never_reads(void)
{
    struct raw_lane lane;
    int fd = raw_attach(&broker, &lane);
    uint64_t queue = raw_queue(&lane, "hostile");
    for (int i = 0; i < 4000; i++) {
        uint8_t record[128] = { 0 };
        struct pawl_cmd_send c = { .head = { .type = PAWL_CMD_SEND, .bytes = 120 },
                                   .queue = queue,
                                   .body_bytes = 64,
                                   .priority = 4 };
        memcpy(record, &c, sizeof c);
        int tries = 0;
        while (!raw_submit(&lane, record, 120) && tries++ < 20)
            harness_pause();
        if (tries > 20)
            break; /* it takes no more commands for want of room for their answers */
    }
    raw_lane_close(&lane);
    close(fd);
}

/* --- socket (M17, P8) ------------------------------------------------------------------------ */

static void junk_on_the_socket(struct pawl_prng *prng)
{
    for (int i = 0; i < 30; i++) {
        uint8_t packet[512];
        struct pawl_attach_welcome w;
        int fd = raw_connect(&broker);
        harness_check(fd >= 0);
        size_t bytes = pawl_prng_below(prng, sizeof packet);
        for (unsigned k = 0; k < sizeof packet; k++)
            packet[k] = (uint8_t)pawl_prng_next(prng);
        struct pawl_attach_hello hello = raw_hello();
        if (i % 2)
            memcpy(packet, &hello, bytes < sizeof hello ? bytes : sizeof hello);
        if (i % 4 == 1)
            bytes = sizeof hello;
        if (raw_welcome(fd, packet, bytes, &w) && w.result == PAWL_OK) {
            /* A greeting that happened to be right; now the lanes are wrong. */
            struct raw_lane lane;
            struct pawl_attach_lane r = raw_lane_request();
            switch (pawl_prng_below(prng, 4)) {
            case 0:
                r.sub_bytes = (uint32_t)pawl_prng_next(prng);
                break;
            case 1:
                r.comp_bytes = 0;
                break;
            case 2:
                r.window = (uint32_t)pawl_prng_next(prng) | 0x80000000u;
                break;
            default:
                r.lane = (uint32_t)pawl_prng_below(prng, 300);
                break;
            }
            int rc = raw_lane_open(fd, r, &lane);
            if (rc == PAWL_OK)
                raw_lane_close(&lane);
        }
        close(fd);
    }
}

/* The broker takes no descriptor: those that come are closed. */
static void descriptors_are_not_kept(void)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(200 * sizeof(int))];
    } control = { 0 };
    struct pawl_attach_hello hello = raw_hello();
    struct iovec iov = { .iov_base = &hello, .iov_len = sizeof hello };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    for (int i = 0; i < 20; i++) {
        int fds[200];
        int fd = raw_connect(&broker);
        harness_check(fd >= 0);
        for (unsigned k = 0; k < 200; k++)
            fds[k] = fd;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fds);
        memcpy(CMSG_DATA(c), fds, sizeof fds);
        harness_check(sendmsg(fd, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof hello);
        char answer[512];
        harness_check(recv(fd, answer, sizeof answer, 0) >= 0);
        close(fd);
    }
}

/* Who connects and says nothing is shown the door; he holds nothing up meanwhile. */
static void silent_connections(void)
{
    enum { SILENT = 50 };
    int fds[SILENT];
    char byte;
    for (int i = 0; i < SILENT; i++)
        harness_check((fds[i] = raw_connect(&broker)) >= 0);
    for (int i = 0; i < SILENT; i++) {
        /* It may be told why before the end. */
        while (recv(fds[i], &byte, 1, 0) > 0)
            ;
        close(fds[i]);
    }
}

static void too_many_lanes(void)
{
    struct pawl_attach_hello hello = raw_hello();
    struct pawl_attach_welcome w;
    int fd = raw_connect(&broker), rc = PAWL_OK, n = 0;
    harness_check(fd >= 0 && raw_welcome(fd, &hello, sizeof hello, &w) && w.result == PAWL_OK);
    while (rc == PAWL_OK && n <= (int)PAWL_LANES_MAX) {
        struct raw_lane lane;
        rc = raw_lane_open(fd, raw_lane_request(), &lane);
        if (rc == PAWL_OK)
            raw_lane_close(&lane);
        n += rc == PAWL_OK;
    }
    if (rc != PAWL_E_QUOTA || n != (int)PAWL_LANES_MAX)
        harness_fail("%d lanes, then %s", n, pawl_strname(rc));
    close(fd);
}

/* --------------------------------------------------------------------------------------------- */

static void goes_on(const char *what)
{
    uint64_t before = __atomic_load_n(honest_lives, __ATOMIC_RELAXED);
    harness_step("%s: the honest client goes on", what);
    harness_until(__atomic_load_n(honest_lives, __ATOMIC_RELAXED) > before + 3);
}

int main(void)
{
    harness_begin("hostile_test", 180);
    uint64_t rounds = harness_number("PAWL_HOSTILE_ROUNDS", 12);
    struct pawl_prng prng = harness_prng(1);
    honest_lives = harness_shared(4096);
    uint32_t *stop = harness_shared(4096);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.max_messages = 1000; /* what hostile sends fill is theirs */
    harness_check_rc(pawl_queue_create(lane, "hostile", &q), PAWL_OK);
    harness_queue(lane, "tokens", PAWL_DURABLE, PAWL_LEASE_NS_MAX);
    harness_queue(lane, "honest", PAWL_DURABLE, 0);
    pid_t pid = harness_fork(honest, stop);
    goes_on("before");
    uint64_t fds = harness_fds(broker.pid);

    harness_step("seals");
    seals_hold();
    goes_on("seals");
    for (uint64_t i = 0; i < rounds; i++) {
        harness_step("positions %llu", (unsigned long long)i);
        broken_positions(i);
        broken_sizes(i);
        broken_completion_head(i);
        broken_sends(i);
        broken_sequence(i);
        goes_on("positions and sizes");
        harness_step("commands %llu", (unsigned long long)i);
        random_commands(&prng);
        guessed_tokens(&prng);
        goes_on("commands");
        harness_step("memory %llu", (unsigned long long)i);
        scribble(&prng);
        never_reads();
        harness_check(harness_wait(harness_fork(punch, &prng)) == 0);
        harness_check(harness_wait(harness_fork(flip, NULL)) == 0);
        goes_on("memory");
        harness_step("socket %llu", (unsigned long long)i);
        junk_on_the_socket(&prng);
        descriptors_are_not_kept();
        goes_on("socket");
        pawl_prng_next(&prng);
    }
    harness_step("lanes");
    too_many_lanes();
    harness_step("silent");
    silent_connections();
    goes_on("silent");

    __atomic_store_n(stop, 1, __ATOMIC_RELAXED);
    harness_check(harness_wait(pid) == 0);
    harness_step("nothing is left");
    harness_until(harness_fds(broker.pid) <= fds);
    uint64_t dropped;
    harness_check_rc(pawl_queue_purge(lane, "hostile", &dropped), PAWL_OK);
    pawl_close(lane);
    harness_broker_stop(&broker);
    printf("%llu honest lives meanwhile\n", (unsigned long long)*honest_lives);
    return 0;
}
