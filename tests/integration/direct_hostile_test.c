/* SPDX-License-Identifier: MIT */
/* Who may attach to a direct queue writes whatever he likes into its memory, and punches holes into
 * it: the broker, other queues and other direct queues go on untouched, and the calls of those who
 * share that memory come back (G7; direct-queue.md 10). A breach of the socket's messages closes
 * who sent it and nobody else. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "abi/attach.h"
#include "client/direct.h"
#include "lib/harness.h"
#include "lib/raw.h"

static struct harness_broker broker;

static struct shared {
    uint64_t writes, calls;
    uint32_t stop;
} * shared;

static void make(struct pawl *lane, const char *name)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_DIRECT;
    o.max_messages = 64;
    o.max_message_bytes = 100;
    o.lease_ns = 50 * PAWL_NS_MS; /* the sweep is busy */
    harness_check_rc(pawl_queue_create(lane, name, &o), PAWL_OK);
}

/* A word that an attacker would choose. */
static uint64_t evil(struct pawl_prng *prng, uint64_t old)
{
    switch (pawl_prng_below(prng, 6)) {
    case 0:
        return pawl_prng_next(prng);
    case 1:
        return 0;
    case 2:
        return UINT64_MAX;
    case 3:
        return old ^ UINT64_C(1) << pawl_prng_below(prng, 64);
    case 4:
        return old + pawl_prng_below(prng, 5) - 2;
    default:
        return pawl_prng_below(prng, 6) | pawl_prng_below(prng, 4096) << 3 |
               pawl_prng_below(prng, 1024) << 15 | pawl_prng_below(prng, 1000) << 25;
    }
}

static int scribbler(void *unused)
{
    (void)unused;
    struct pawl *lane = harness_open(&broker);
    struct pawl_prng prng = harness_prng((uint64_t)getpid());
    (void)!pawl_send(lane, "victim", "x", 1, NULL, NULL);
    harness_check(lane->uses);
    const struct pawl_memory *m = lane->uses->memory;
    uint64_t *words = m->map, count = m->bytes / 8;
    for (uint64_t i = 0; !pawl_load_acq_u32(&shared->stop); i++) {
        /* Mostly where words are: the first pages, and the head of a slot. */
        uint64_t at =
            pawl_prng_below(&prng, 3) ? pawl_prng_below(&prng, 512) : pawl_prng_below(&prng, count);
        pawl_store_rlx_u64(&words[at], evil(&prng, pawl_load_rlx_u64(&words[at])));
        if (i % 100000 == 99999) {
            off_t page = (off_t)pawl_prng_below(&prng, m->bytes / 4096) * 4096;
            (void)fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page, 4096);
        }
        if (i % 1024 == 0)
            (void)__atomic_add_fetch(&shared->writes, 1024, __ATOMIC_RELAXED);
        if (i % 65536 == 0)
            harness_pause();
    }
    pawl_close(lane);
    return 0;
}

/* Calls on that queue: whatever they answer, they answer. */
static int victim(void *unused)
{
    (void)unused;
    struct pawl *lane = harness_open(&broker);
    const char *queue = "victim";
    struct pawl_message m[4];
    uint32_t count;
    while (!pawl_load_acq_u32(&shared->stop)) {
        (void)!pawl_send(lane, "victim", "body", 4, NULL, NULL);
        int rc = pawl_receive_batch(lane, &queue, 1, NULL, m, 4, &count);
        for (uint32_t i = 0; rc == PAWL_OK && i < count; i++) {
            harness_check(m[i].bytes <= 100);
            (void)!(i % 2 ? pawl_nack(lane, &m[i].token, 0, NULL) : pawl_ack(lane, &m[i].token, 0));
        }
        (void)__atomic_add_fetch(&shared->calls, 1, __ATOMIC_RELAXED);
    }
    pawl_close(lane);
    return 0;
}

static void others_go_on(struct pawl *lane, int round)
{
    char text[32];
    snprintf(text, sizeof text, "round %d", round);
    (void)harness_send(lane, "durable", text);
    (void)harness_send(lane, "direct", text);
    struct pawl_token t = harness_receive(lane, "durable", 10 * PAWL_NS_S, text);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    t = harness_receive(lane, "direct", 10 * PAWL_NS_S, text);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    struct pawl_queue_stat s = harness_stat(lane, "direct");
    harness_check(s.ready == 0 && s.leased == 0 && s.damaged == 0);
    (void)harness_stat(lane, "victim");
    struct pawl_record r[8] = { { .size = sizeof r[0] } };
    harness_check(pawl_query_scan(lane, "victim", 0, 1u << PAWL_STATE_DEAD, r, 8) >= 0);
}

static void hostile_words(void)
{
    uint64_t rounds = harness_number("PAWL_HOSTILE_ROUNDS", 150);
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "durable", PAWL_DURABLE, 0);
    make(lane, "direct");
    make(lane, "victim");
    pid_t pids[] = { harness_fork(scribbler, NULL), harness_fork(victim, NULL),
                     harness_fork(victim, NULL) };
    for (uint64_t i = 0; i < rounds; i++) {
        harness_step("hostile words, round %d", (int)i);
        others_go_on(lane, (int)i);
        harness_pause();
    }
    harness_step("hostile words, progress");
    uint64_t writes = shared->writes, calls = shared->calls;
    harness_until(shared->writes >= writes + 200000 && shared->calls >= calls + 50);
    /* The next broker takes the very same memory back, and lives, too. */
    harness_step("hostile words, restart");
    harness_broker_restart(&broker);
    for (int i = 0; i < 20; i++)
        others_go_on(lane, i);
    pawl_store_rel_u32(&shared->stop, 1);
    for (int i = 0; i < 3; i++)
        harness_check(harness_wait(pids[i]) == 0);
    printf("direct_hostile_test: %llu words written, %llu rounds of calls came back\n",
           (unsigned long long)shared->writes, (unsigned long long)shared->calls);
    harness_check_rc(pawl_queue_drop(lane, "victim"), PAWL_OK);
    make(lane, "victim");
    (void)harness_send(lane, "victim", "new");
    struct pawl_token t = harness_receive(lane, "victim", 0, "new");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
}

/* --- hostile packets ------------------------------------------------------------------------- */

static int ask(int socket, struct pawl_attach_direct a, struct pawl_attach_direct_ok *ok)
{
    harness_check(send(socket, &a, sizeof a, MSG_NOSIGNAL) == (ssize_t)sizeof a);
    ssize_t n = recv(socket, ok, sizeof *ok, 0);
    return n == (ssize_t)sizeof *ok ? ok->result : PAWL_E_PROTOCOL;
}

static void hostile_packets(void)
{
    harness_step("hostile packets");
    struct pawl *lane = harness_open(&broker);
    struct pawl_attach_direct_ok ok;
    struct raw_lane rings;
    make(lane, "packets");
    (void)harness_send(lane, "packets", "x");
    struct pawl_queue_stat s = harness_stat(lane, "packets"), d = harness_stat(lane, "durable");
    int socket = raw_attach(&broker, &rings);
    struct pawl_attach_direct a = { .type = PAWL_ATTACH_DIRECT, .queue = s.id, .rights = 6 };
    a.rights = 0;
    harness_check_rc(ask(socket, a, &ok), PAWL_E_INVALID);
    a.rights = 8;
    harness_check_rc(ask(socket, a, &ok), PAWL_E_INVALID);
    a.rights = 6;
    a.queue = d.id;
    harness_check_rc(ask(socket, a, &ok), PAWL_E_NOT_SUPPORTED);
    a.queue = 12345;
    harness_check(ask(socket, a, &ok) < 0);
    a.queue = s.id;
    a.incarnation = s.incarnation + 1;
    harness_check_rc(ask(socket, a, &ok), PAWL_E_QUEUE_GONE);
    /* Another's lane, one that is none, one far beyond all. */
    a.incarnation = s.incarnation;
    for (uint32_t n = 1; n < 4; n++) {
        a.lane = n;
        harness_check(ask(socket, a, &ok) < 0);
    }
    a.lane = UINT32_MAX;
    harness_check_rc(ask(socket, a, &ok), PAWL_E_QUEUE_GONE);
    a.type = PAWL_ATTACH_LOCKED;
    harness_check_rc(ask(socket, a, &ok), PAWL_E_QUEUE_GONE);
    /* A lane that was offered, and whose byte nobody locks, is not used. */
    a.type = PAWL_ATTACH_DIRECT;
    a.lane = 0;
    harness_check_rc(ask(socket, a, &ok), PAWL_OK);
    a.type = PAWL_ATTACH_LOCKED;
    a.lane = ok.lane;
    harness_check_rc(ask(socket, a, &ok), PAWL_E_STATE);
    a.type = PAWL_ATTACH_DETACH;
    a.lane = 1; /* the library's */
    harness_check(send(socket, &a, sizeof a, 0) == (ssize_t)sizeof a);
    struct pawl_token t = harness_receive(lane, "packets", 0, "x");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    raw_lane_close(&rings);
    (void)close(socket);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("direct_hostile_test", 240);
    shared = harness_shared(sizeof *shared);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    hostile_words();
    hostile_packets();
    harness_broker_stop(&broker);
    return 0;
}
