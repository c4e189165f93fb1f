/* SPDX-License-Identifier: MIT */
/* A direct queue over the death of the broker: its clients go on without one, the next broker takes
 * the queue back from them, knows who died meanwhile, waits for a holder that is stopped, takes no
 * other memory for it, and says so when it is gone. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "abi/attach.h"
#include "abi/direct.h"
#include "base/clock.h"
#include "lib/harness.h"
#include "lib/raw.h"

enum { PRODUCERS = 2, CONSUMERS = 2, WORKERS = PRODUCERS + CONSUMERS, NUMBERS_MAX = 1 << 22 };

static struct harness_broker broker;

static struct flow {
    uint32_t stop;
    uint64_t sent[PRODUCERS], received[CONSUMERS];
    uint8_t seen[PRODUCERS][NUMBERS_MAX / 8]; /* acknowledged */
    uint64_t twice;
} * flow;

static void make(struct pawl *lane, const char *name)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_DIRECT;
    o.max_messages = 256;
    o.max_message_bytes = 32;
    harness_check_rc(pawl_queue_create(lane, name, &o), PAWL_OK);
}

static int producer(void *arg)
{
    uint32_t number = (uint32_t)(uintptr_t)arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    o.wait_room_ns = 100 * PAWL_NS_MS;
    for (uint64_t i = 0; i < NUMBERS_MAX && !pawl_load_acq_u32(&flow->stop);) {
        uint64_t body[2] = { number, i };
        int rc = pawl_send(lane, "flow", body, sizeof body, &o, NULL);
        if (rc == PAWL_E_FULL)
            continue;
        harness_check_rc(rc, PAWL_OK);
        i++;
        pawl_store_rel_u64(&flow->sent[number], i);
        if (i % 64 == 0)
            usleep(1000);
    }
    pawl_close(lane);
    return 0;
}

static int consumer(void *arg)
{
    uint32_t number = (uint32_t)(uintptr_t)arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.wait_ns = 100 * PAWL_NS_MS;
    for (;;) {
        uint64_t body[2];
        int rc = pawl_receive(lane, "flow", &o, &m);
        if (rc == PAWL_OK_EMPTY && pawl_load_acq_u32(&flow->stop) == 2)
            break;
        if (rc == PAWL_OK_EMPTY)
            continue;
        harness_check_rc(rc, PAWL_OK);
        harness_check(m.bytes == sizeof body);
        memcpy(body, m.body, sizeof body);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
        uint8_t bit = (uint8_t)(1u << body[1] % 8);
        uint8_t old = __atomic_fetch_or(&flow->seen[body[0]][body[1] / 8], bit, __ATOMIC_RELAXED);
        if (old & bit)
            __atomic_add_fetch(&flow->twice, 1, __ATOMIC_RELAXED);
        pawl_store_rel_u64(&flow->received[number], flow->received[number] + 1);
    }
    pawl_close(lane);
    return 0;
}

static uint64_t received(void)
{
    uint64_t n = 0;
    for (int i = 0; i < CONSUMERS; i++)
        n += pawl_load_acq_u64(&flow->received[i]);
    return n;
}

/* Until so many more have gone through. */
static void goes_on(uint64_t messages)
{
    uint64_t from = received();
    harness_until(received() >= from + messages);
}

static void clients_go_on(void)
{
    pid_t pids[WORKERS];
    uint64_t rounds = harness_number("PAWL_DIRECT_RESTARTS", 8);
    struct pawl *lane = harness_open(&broker);
    make(lane, "flow");
    uint64_t incarnation = harness_stat(lane, "flow").incarnation;
    pawl_close(lane);
    for (uint32_t i = 0; i < WORKERS; i++)
        pids[i] = harness_fork(i < PRODUCERS ? producer : consumer,
                               (void *)(uintptr_t)(i < PRODUCERS ? i : i - PRODUCERS));
    goes_on(1000);
    for (uint64_t round = 0; round < rounds; round++) {
        harness_step("clients go on, round %d", (int)round);
        harness_broker_kill(&broker);
        goes_on(500); /* there is none */
        harness_broker_start(&broker);
        goes_on(200);
        lane = harness_open(&broker);
        harness_until(harness_stat(lane, "flow").attached == WORKERS);
        struct pawl_queue_stat s = harness_stat(lane, "flow");
        harness_check(s.incarnation == incarnation && s.damaged == 0);
        pawl_close(lane);
    }
    pawl_store_rel_u32(&flow->stop, 1);
    for (int i = 0; i < PRODUCERS; i++)
        harness_check(harness_wait(pids[i]) == 0);
    pawl_store_rel_u32(&flow->stop, 2);
    for (int i = PRODUCERS; i < WORKERS; i++)
        harness_check(harness_wait(pids[i]) == 0);
    harness_check(flow->twice == 0);
    for (int p = 0; p < PRODUCERS; p++)
        for (uint64_t i = 0; i < flow->sent[p]; i++)
            harness_check(flow->seen[p][i / 8] >> i % 8 & 1);
    printf("direct_restart_test: %llu messages over %llu restarts\n",
           (unsigned long long)received(), (unsigned long long)rounds);
}

/* --- who dies while there is no broker ------------------------------------------------------- */

static uint32_t *ready;

static int leaseholder(void *arg)
{
    const char *queue = arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    o.lease_kind = PAWL_LEASE_HELD;
    harness_check_rc(pawl_receive(lane, queue, &o, &m), PAWL_OK);
    (void)pawl_add_seq_u32(ready, 1);
    for (;;)
        pause();
}

static pid_t holds(const char *queue)
{
    uint32_t before = pawl_load_acq_u32(ready);
    pid_t pid = harness_fork(leaseholder, (void *)(uintptr_t)queue);
    harness_until(pawl_load_acq_u32(ready) == before + 1);
    return pid;
}

static void a_death_while_it_was_down(void)
{
    harness_step("a death while it was down");
    struct pawl *lane = harness_open(&broker);
    make(lane, "death");
    (void)harness_send(lane, "death", "x");
    pid_t pid = holds("death");
    harness_broker_kill(&broker);
    harness_signal(pid, SIGKILL);
    (void)harness_wait(pid);
    struct pawl_message m;
    harness_check_rc(pawl_receive(lane, "death", NULL, &m), PAWL_OK_EMPTY);
    harness_broker_start(&broker);
    /* This process gives the queue back, whatever it does; the other's lane is found dead. */
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    o.wait_ns = PAWL_UNLIMITED;
    harness_check_rc(pawl_receive(lane, "death", &o, &m), PAWL_OK);
    harness_check(m.acquired == 2);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    pawl_close(lane);
}

static void the_last_holder_is_gone(void)
{
    harness_step("the last holder is gone");
    struct pawl *lane = harness_open(&broker);
    make(lane, "last");
    (void)harness_send(lane, "last", "x");
    (void)harness_send(lane, "last", "y");
    pid_t pid = holds("last");
    uint64_t incarnation = harness_stat(lane, "last").incarnation;
    pawl_close(lane);
    harness_broker_kill(&broker);
    harness_signal(pid, SIGKILL);
    (void)harness_wait(pid);
    harness_broker_start(&broker);
    lane = harness_open(&broker);
    struct pawl_queue_stat s = harness_stat(lane, "last");
    harness_check(s.ready == 0 && s.leased == 0);
    harness_check(s.incarnation == 0 || s.incarnation == incarnation);
    struct pawl_message m;
    harness_check_rc(pawl_receive(lane, "last", NULL, &m), PAWL_OK_EMPTY);
    s = harness_stat(lane, "last");
    harness_check(s.incarnation > incarnation && s.attached == 1);
    (void)harness_send(lane, "last", "z");
    struct pawl_token t = harness_receive(lane, "last", 0, "z");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
}

/* --- a holder that is stopped, and others who would be it ------------------------------------ */

/* DIRECT over a raw session; the result. */
static int ask(int socket, uint64_t queue, uint64_t incarnation, int fd, uint32_t *flags)
{
    struct pawl_attach_direct a = { .type = PAWL_ATTACH_DIRECT,
                                    .flags = fd >= 0 ? PAWL_DIRECT_GIVEN : 0,
                                    .queue = queue,
                                    .incarnation = incarnation,
                                    .rights = 6 };
    struct pawl_attach_direct_ok ok = { .result = 1 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct iovec v = { .iov_base = &a, .iov_len = sizeof a };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    harness_check(sendmsg(socket, &m, 0) == (ssize_t)sizeof a);
    ssize_t n = recv(socket, &ok, sizeof ok, 0);
    if (n <= 0)
        return PAWL_E_PROTOCOL; /* closed */
    harness_check(n == (ssize_t)sizeof ok && ok.type == PAWL_ATTACH_DIRECT_OK);
    *flags = ok.flags;
    return ok.result;
}

static int sealed(uint64_t bytes, int seals)
{
    int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    harness_check(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    harness_check(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void a_stopped_holder(void)
{
    harness_step("a stopped holder");
    struct pawl *lane = harness_open(&broker);
    make(lane, "stopped");
    (void)harness_send(lane, "stopped", "kept");
    (void)harness_send(lane, "stopped", "held");
    pid_t pid = holds("stopped");
    struct pawl_queue_stat s = harness_stat(lane, "stopped");
    pawl_close(lane);
    harness_freeze(pid);
    harness_broker_restart(&broker);
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl_message m;
    o.timeout_ns = 300 * PAWL_NS_MS;
    lane = harness_open_with(&broker, &o);
    harness_check_rc(pawl_receive(lane, "stopped", NULL, &m), PAWL_E_PAUSED);

    /* Other memory is not it: of the right size and seals, without seals, of another kind. */
    struct pawl_direct_shape shape = { .capacity = 256,
                                       .body_bytes = 32,
                                       .lanes = 256,
                                       .attempts_max = 16,
                                       .lease_ms = 10000,
                                       .lease_ms_max = 43200000 };
    uint64_t bytes = pawl_direct_bytes(&shape);
    int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, fds[3], pipes[2];
    fds[0] = sealed(bytes, all);
    fds[1] = sealed(bytes, F_SEAL_SHRINK);
    fds[2] = sealed(bytes / 2, all);
    harness_check(pipe(pipes) == 0);
    uint32_t flags = 0;
    struct raw_lane rings;
    int r = raw_attach(&broker, &rings);
    harness_check_rc(ask(r, s.id, s.incarnation + 1, -1, &flags), PAWL_E_PAUSED);
    harness_check(flags == PAWL_DIRECT_LATER);
    harness_check_rc(ask(r, s.id, s.incarnation, -1, &flags), PAWL_E_PAUSED);
    harness_check(flags == PAWL_DIRECT_GIVE);
    for (int i = 0; i < 3; i++)
        harness_check_rc(ask(r, s.id, s.incarnation, fds[i], &flags), PAWL_E_PERM);
    harness_check_rc(ask(r, s.id, s.incarnation, pipes[0], &flags), PAWL_E_PROTOCOL);
    raw_lane_close(&rings);
    (void)close(r);
    for (int i = 0; i < 3; i++)
        (void)close(fds[i]);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    harness_check(harness_stat(lane, "stopped").incarnation == s.incarnation);

    harness_signal(pid, SIGCONT);
    o.timeout_ns = 60 * PAWL_NS_S;
    pawl_close(lane);
    lane = harness_open_with(&broker, &o);
    struct pawl_token t = harness_receive(lane, "stopped", 0, "held");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    harness_signal(pid, SIGKILL);
    (void)harness_wait(pid);
    t = harness_receive(lane, "stopped", PAWL_UNLIMITED, "kept"); /* the holder had leased it */
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("direct_restart_test", 300);
    flow = harness_shared(sizeof *flow);
    ready = harness_shared(sizeof *ready);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    clients_go_on();
    a_death_while_it_was_down();
    the_last_holder_is_gone();
    a_stopped_holder();
    harness_broker_stop(&broker);
    return 0;
}
