/* SPDX-License-Identifier: MIT */
/* A direct queue under SIGKILL and SIGSTOP of its producers and consumers at random, and of the
 * broker, with an account in memory that all of them share (D1 to D4, D8, G2, G3, G7):
 *
 *   - what a send returned OK for is acknowledged once in the end; what a producer was sending when
 *     it was killed is there once or not at all
 *   - each grant of a message has a higher delivery number than the one before: no two leases
 *   - of all acknowledgements of a message one answers OK
 *   - while one of them is stopped the others go on; so they do while there is no broker
 *
 * Each life of a producer has streams with numbers of their own. Short in `make check`;
 * PAWL_DIRECT_KILLS, PAWL_DIRECT_STOPS, PAWL_DIRECT_BROKER_KILLS set the long cut. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "lib/harness.h"

enum {
    PRODUCERS = 3,
    CONSUMERS = 3,
    WORKERS = PRODUCERS + CONSUMERS,
    STREAM_MESSAGES = 4096,
};

struct stream {
    uint32_t sent;                  /* that pawl_send() returned OK for */
    uint8_t state[STREAM_MESSAGES]; /* ACKED, MAYBE */
    uint16_t delivery[STREAM_MESSAGES];
};
#define ACKED 1u
#define MAYBE 2u /* its consumer was killed within the acknowledgement */

static struct account {
    uint32_t stop; /* 1 producers, 2 consumers too */
    uint32_t streams, streams_max;
    uint64_t received, nacked, twice, regranted;
    uint64_t acking[CONSUMERS]; /* stream and number, + 1; 0: none */
    struct stream stream[];
} * account;

static struct harness_broker broker;
static pid_t pids[WORKERS];

/* --- workers --------------------------------------------------------------------------------- */

/* One message. Returns as pawl_send(). */
static int send_one(struct pawl *lane, const uint32_t body[4], bool in_place)
{
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    void *place;
    o.wait_room_ns = 50 * PAWL_NS_MS;
    if (!in_place)
        return pawl_send(lane, "kill", body, 16, &o, NULL);
    int rc = pawl_place_reserve(lane, "kill", 1, &place, NULL);
    if (rc != 1)
        return rc;
    memcpy(place, body, 16);
    return pawl_place_publish(lane, "kill", 16, NULL);
}

static void send_stream(struct pawl *lane, struct pawl_prng *prng, uint32_t s)
{
    struct stream *stream = &account->stream[s];
    for (uint32_t i = 0; i < STREAM_MESSAGES && pawl_load_acq_u32(&account->stop) == 0;) {
        const uint32_t body[4] = { s, i, ~s, ~i };
        int rc = send_one(lane, body, pawl_prng_below(prng, 4) == 0);
        if (rc == PAWL_E_FULL)
            continue;
        if (rc != PAWL_OK)
            harness_fail("send: %s: %s", pawl_strname(rc), pawl_last_text(lane));
        pawl_store_rel_u32(&stream->sent, ++i);
        if (i % 16 == 0)
            usleep(500); /* not all of the memory for the account in a moment */
    }
}

static int producer(void *unused)
{
    (void)unused;
    struct pawl *lane = harness_open(&broker);
    struct pawl_prng prng = harness_prng((uint64_t)getpid());
    while (pawl_load_acq_u32(&account->stop) == 0) {
        uint32_t s = pawl_add_seq_u32(&account->streams, 1) - 1;
        harness_check(s < account->streams_max);
        send_stream(lane, &prng, s);
    }
    pawl_close(lane);
    return 0;
}

/* Is it one of those that were sent, whole, with a new delivery number? */
static void look(const uint32_t body[4], uint64_t grant)
{
    harness_check(body[0] == ~body[2] && body[1] == ~body[3]);
    harness_check(body[0] < account->streams_max && body[1] < STREAM_MESSAGES);
    uint16_t *at = &account->stream[body[0]].delivery[body[1]], d = (uint16_t)(grant & 1023);
    uint16_t old = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    do {
        if (old >= d) {
            __atomic_add_fetch(&account->regranted, 1, __ATOMIC_RELAXED);
            return;
        }
    } while (!__atomic_compare_exchange_n(at, &old, d, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

static void settle(struct pawl *lane, uint32_t number, const struct pawl_message *m, bool nack)
{
    uint32_t body[4];
    harness_check(m->bytes == sizeof body);
    memcpy(body, m->body, sizeof body);
    look(body, m->token.grant);
    if (nack) {
        harness_check_rc(pawl_nack(lane, &m->token, 0, NULL), PAWL_OK);
        __atomic_add_fetch(&account->nacked, 1, __ATOMIC_RELAXED);
        return;
    }
    uint64_t *acking = &account->acking[number];
    pawl_store_seq_u64(acking, ((uint64_t)body[0] << 32 | body[1]) + 1);
    harness_check_rc(pawl_ack(lane, &m->token, 0), PAWL_OK); /* leases are long: none can end */
    uint8_t old = __atomic_fetch_or(&account->stream[body[0]].state[body[1]], (uint8_t)ACKED,
                                    __ATOMIC_SEQ_CST);
    pawl_store_seq_u64(acking, 0);
    if (old & ACKED)
        __atomic_add_fetch(&account->twice, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&account->received, 1, __ATOMIC_RELAXED);
}

static int consumer(void *arg)
{
    uint32_t worker = (uint32_t)(uintptr_t)arg;
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_prng prng = harness_prng(getpid());
    struct pawl_message m[8];
    const char *queue = "kill";
    uint32_t count;
    o.wait_ns = 20 * PAWL_NS_MS;
    while (pawl_load_acq_u32(&account->stop) < 2) {
        uint32_t max = 1 + (uint32_t)pawl_prng_below(&prng, 8);
        o.flags = pawl_prng_below(&prng, 4) == 0 ? PAWL_RECEIVE_IN_PLACE : 0;
        int rc = pawl_receive_batch(lane, &queue, 1, &o, m, max, &count);
        if (rc < 0)
            harness_fail("receive: %s: %s", pawl_strname(rc), pawl_last_text(lane));
        for (uint32_t i = 0; i < count; i++)
            settle(lane, worker - PRODUCERS, &m[i], pawl_prng_below(&prng, 16) == 0);
    }
    pawl_close(lane);
    return 0;
}

/* --- the test -------------------------------------------------------------------------------- */

static void begin_life(uint32_t worker)
{
    pids[worker] =
        harness_fork(worker < PRODUCERS ? producer : consumer, (void *)(uintptr_t)worker);
}

static void end_life(uint32_t worker)
{
    harness_signal(pids[worker], SIGKILL);
    harness_check(harness_wait(pids[worker]) == 128 + SIGKILL);
    if (worker < PRODUCERS)
        return;
    uint64_t at = account->acking[worker - PRODUCERS];
    account->acking[worker - PRODUCERS] = 0;
    if (at != 0)
        account->stream[(at - 1) >> 32].state[(uint32_t)(at - 1)] |= MAYBE;
}

static void goes_on(uint64_t messages)
{
    uint64_t from = pawl_load_acq_u64(&account->received);
    harness_until(pawl_load_acq_u64(&account->received) >= from + messages);
}

static uint64_t check_account(void)
{
    uint64_t lost = 0, sent = 0;
    for (uint32_t s = 0; s < account->streams; s++) {
        const struct stream *stream = &account->stream[s];
        sent += stream->sent;
        for (uint32_t i = 0; i < stream->sent; i++)
            lost += stream->state[i] == 0;
        /* Behind the last that returned there is at most the one that was being sent. */
        for (uint32_t i = stream->sent + 1; i < STREAM_MESSAGES; i++)
            harness_check(stream->state[i] == 0);
    }
    printf(
        "direct_kill_test: %u streams, %llu sent, %llu acknowledged, %llu given back, %llu lost, "
        "%llu acknowledged twice, %llu granted twice\n",
        account->streams, (unsigned long long)sent, (unsigned long long)account->received,
        (unsigned long long)account->nacked, (unsigned long long)lost,
        (unsigned long long)account->twice, (unsigned long long)account->regranted);
    harness_check(lost == 0 && account->twice == 0 && account->regranted == 0);
    return sent;
}

/* The broker is killed, the others go on, another one comes. */
static void kill_broker(struct pawl *lane, struct pawl_prng *prng)
{
    harness_broker_kill(&broker);
    if (pawl_prng_below(prng, 2) == 0) {
        uint32_t worker = (uint32_t)pawl_prng_below(prng, WORKERS);
        end_life(worker); /* while nobody can see it */
        harness_broker_start(&broker);
        begin_life(worker);
    } else {
        harness_broker_start(&broker);
    }
    /* Were all who hold the memory killed before one has given it back, it would be gone. */
    harness_until(harness_stat(lane, "kill").attached > 0);
}

static void stop_one(struct pawl_prng *prng)
{
    uint32_t worker = (uint32_t)pawl_prng_below(prng, WORKERS);
    harness_freeze(pids[worker]);
    goes_on(50);
    harness_signal(pids[worker], SIGCONT);
}

int main(void)
{
    uint64_t kills = harness_number("PAWL_DIRECT_KILLS", 60);
    uint64_t stops = harness_number("PAWL_DIRECT_STOPS", 20);
    uint64_t broker_kills = harness_number("PAWL_DIRECT_BROKER_KILLS", 4);
    uint64_t all = kills + stops + broker_kills;
    harness_begin("direct_kill_test", 180 + (unsigned)all);
    uint32_t streams = (uint32_t)(2 * all) + 4096;
    account = harness_shared(sizeof *account + streams * sizeof account->stream[0]);
    account->streams_max = streams;
    struct pawl_prng prng = harness_prng(1);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_DIRECT;
    o.max_messages = 256;
    o.max_message_bytes = 16;
    o.max_failed = PAWL_DIRECT_FAILED_MAX;
    o.lease_ns = 3600 * PAWL_NS_S;
    harness_check_rc(pawl_queue_create(lane, "kill", &o), PAWL_OK);
    uint64_t incarnation = harness_stat(lane, "kill").incarnation;
    /* This process is one of those who hold the memory: workers may be killed faster than new ones
     * attach, and a broker killed at such a moment would leave it to nobody. */
    void *place;
    harness_check(pawl_place_reserve(lane, "kill", 1, &place, NULL) == 1);
    harness_check_rc(pawl_place_abandon(lane, "kill"), PAWL_OK);
    for (uint32_t i = 0; i < WORKERS; i++)
        begin_life(i);
    goes_on(100);
    for (uint64_t done = 0; kills + stops + broker_kills > 0; done++) {
        uint64_t n = pawl_prng_below(&prng, kills + stops + broker_kills);
        harness_step("action %llu of %llu", (unsigned long long)done, (unsigned long long)all);
        usleep((useconds_t)pawl_prng_below(&prng, 4000));
        if (n < kills) {
            uint32_t worker = (uint32_t)pawl_prng_below(&prng, WORKERS);
            end_life(worker);
            begin_life(worker);
            kills--;
        } else if (n < kills + stops) {
            stop_one(&prng);
            stops--;
        } else {
            kill_broker(lane, &prng);
            broker_kills--;
        }
    }
    harness_step("drain");
    pawl_store_rel_u32(&account->stop, 1);
    for (uint32_t i = 0; i < PRODUCERS; i++)
        harness_check(harness_wait(pids[i]) == 0);
    struct pawl_queue_stat s;
    do {
        harness_pause();
        s = harness_stat(lane, "kill");
    } while (s.ready + s.leased + s.scheduled > 0 || s.attached > CONSUMERS + 1);
    pawl_store_rel_u32(&account->stop, 2);
    for (uint32_t i = PRODUCERS; i < WORKERS; i++)
        harness_check(harness_wait(pids[i]) == 0);
    harness_check(s.incarnation == incarnation);
    harness_check(s.dead == 0);
    harness_check(s.damaged == 0);
    harness_check(check_account() > 0);
    /* All slots are free again: a full lap, and another. */
    for (int lap = 0; lap < 2; lap++) {
        for (int i = 0; i < 256; i++)
            harness_check_rc(pawl_send(lane, "kill", "x", 1, NULL, NULL), PAWL_OK);
        harness_check_rc(pawl_send(lane, "kill", "x", 1, NULL, NULL), PAWL_E_FULL);
        for (int i = 0; i < 256; i++) {
            struct pawl_token t = harness_receive(lane, "kill", 0, "x");
            harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
        }
    }
    pawl_close(lane);
    harness_broker_stop(&broker);
    return 0;
}
