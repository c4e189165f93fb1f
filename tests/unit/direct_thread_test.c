/* SPDX-License-Identifier: MIT */
/* The direct queue with real threads: producers and consumers that send and receive one by one, in
 * rows and in place, nack, delay and let leases lapse, beside a broker that sweeps without pause.
 * Every message arrives and is acknowledged once, whole. Positions begin near 2^32, 2^63 and 2^64,
 * and N near its wrap. Also under the thread sanitizer, which sees both sides of every access. */

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/direct.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/prng.h"
#include "lib/unit.h"
#include "pawl.h"

#define PRODUCERS 2u
#define CONSUMERS 2u
#define BODY 96u
#define ROW 16u

static struct rig {
    struct pawl_direct q;
    void *memory;
    uint64_t messages; /* of one producer */
    uint64_t seed;
    uint8_t *acked; /* by producer and number */
    uint64_t done;  /* acknowledged in all */
    uint64_t lost;  /* leases that ended under a consumer */
    uint32_t stop;
} rig;

struct body {
    uint64_t producer, number, hash;
    uint8_t fill[BODY - 24];
};

static uint32_t length_of(uint64_t number) { return 24 + (uint32_t)(number * 7 % (BODY - 23)); }

static void make(struct body *b, uint64_t producer, uint64_t number)
{
    memset(b, 0, sizeof *b);
    b->producer = producer;
    b->number = number;
    for (uint32_t i = 0; i < length_of(number) - 24; i++)
        b->fill[i] = (uint8_t)(number + i);
    b->hash = pawl_hash64(b->fill, length_of(number) - 24, number);
}

static bool is_whole(const struct body *b, uint32_t length)
{
    return b->producer < PRODUCERS && b->number < rig.messages && length == length_of(b->number) &&
           b->hash == pawl_hash64(b->fill, length - 24, b->number);
}

static void sleep_at(uint32_t *gate, uint32_t kept) { pawl_direct_gate_wait(gate, kept, 5000000); }

static void *producer(void *argument)
{
    uint64_t me = (uint64_t)(uintptr_t)argument, next = 0;
    struct pawl_prng prng = { rig.seed + me };
    struct pawl_direct_lane lane;
    static _Thread_local struct body bodies[ROW];
    if (pawl_direct_lane_init(&lane, &rig.q, (uint32_t)me + 1) != PAWL_OK)
        return (void *)"no lane";
    while (next < rig.messages) {
        uint32_t row = 1 + (uint32_t)pawl_prng_below(&prng, ROW);
        struct pawl_direct_body b[ROW];
        if (row > rig.messages - next)
            row = (uint32_t)(rig.messages - next);
        for (uint32_t k = 0; k < row; k++) {
            make(&bodies[k], me, next + k);
            b[k] = (struct pawl_direct_body){ &bodies[k], length_of(next + k), 7 };
        }
        int sent = pawl_direct_send(&lane, b, row, NULL);
        if (sent == PAWL_E_FULL) {
            uint32_t kept = pawl_direct_gate_prepare(&rig.q.shm->writers);
            sent = pawl_direct_send(&lane, b, row, NULL);
            if (sent == PAWL_E_FULL)
                sleep_at(&rig.q.shm->writers, kept);
        }
        if (sent < 0 && sent != PAWL_E_FULL)
            return (void *)"a send that fails";
        next += sent > 0 ? (uint64_t)sent : 0;
    }
    return NULL;
}

/* Settles one delivery; false: something is wrong. */
static bool settle(struct pawl_direct_lane *lane, const struct pawl_direct_delivery *d,
                   const struct body *b, struct pawl_prng *prng)
{
    uint64_t dice = pawl_prng_below(prng, 200);
    int rc;
    if (dice == 0)
        return true; /* left to the broker's timer */
    if (dice < 4) {
        rc = pawl_direct_nack(lane, &d->token, dice == 1 ? 2 : 0, NULL);
    } else {
        if (dice < 8 && pawl_direct_renew(lane, &d->token, 1000) == PAWL_E_QUEUE_DAMAGED)
            return false;
        rc = pawl_direct_ack(lane, &d->token);
        if (rc == PAWL_OK) {
            uint8_t *once = &rig.acked[b->producer * rig.messages + b->number];
            uint32_t *word = (uint32_t *)(void *)(once - ((uintptr_t)once & 3));
            uint32_t bit = 1u << (8 * ((uintptr_t)once & 3));
            if ((pawl_add_seq_u32(word, bit) / bit & 0xff) != 1)
                return false;
            (void)pawl_add_seq_u32((uint32_t *)(void *)&rig.done, 1);
        }
    }
    if (rc == PAWL_E_LEASE_LOST)
        (void)pawl_add_seq_u32((uint32_t *)(void *)&rig.lost, 1);
    return rc == PAWL_OK || rc == PAWL_E_LEASE_LOST;
}

static bool finished(void)
{
    return pawl_load_acq_u32((uint32_t *)(void *)&rig.done) == PRODUCERS * rig.messages;
}

static const char *consume(struct pawl_direct_lane *lane, struct pawl_prng *prng, int *got)
{
    static _Thread_local struct body bodies[ROW];
    struct pawl_direct_delivery d[ROW];
    uint32_t row = 1 + (uint32_t)pawl_prng_below(prng, ROW);
    for (uint32_t k = 0; k < row; k++)
        d[k].body = &bodies[k];
    lane->copy_first_max = pawl_prng_below(prng, 2) ? BODY : 0;
    bool in_place = pawl_prng_below(prng, 4) == 0;
    *got = pawl_direct_receive(lane, d, row, in_place ? PAWL_DIRECT_IN_PLACE : PAWL_DIRECT_COPY);
    if (*got < 0)
        return "a receive that fails";
    for (int k = 0; k < *got; k++) {
        struct body *b = &bodies[k];
        if (in_place) {
            pawl_copy_out(b, d[k].body, d[k].length);
            if (!pawl_direct_holds(lane, &d[k].token))
                continue; /* the lease ended: whatever was read is nobody's */
        }
        if (!is_whole(b, d[k].length) || d[k].flags != 7)
            return "a message that is torn or invented";
        if (!settle(lane, &d[k], b, prng))
            return "a message acknowledged twice, or a settle that fails";
    }
    return NULL;
}

static void *consumer(void *argument)
{
    uint64_t me = (uint64_t)(uintptr_t)argument;
    struct pawl_prng prng = { rig.seed + 100 + me };
    struct pawl_direct_lane lane;
    const char *why = NULL;
    if (pawl_direct_lane_init(&lane, &rig.q, PRODUCERS + (uint32_t)me + 1) != PAWL_OK)
        return (void *)"no lane";
    while (!why && !finished()) {
        int got;
        why = consume(&lane, &prng, &got);
        if (why || got > 0)
            continue;
        uint32_t kept = pawl_direct_gate_prepare(&rig.q.shm->readers);
        why = consume(&lane, &prng, &got);
        if (!why && got == 0)
            sleep_at(&rig.q.shm->readers, kept);
    }
    return (void *)(uintptr_t)why;
}

static uint64_t boot(void *context)
{
    (void)context;
    return pawl_clock_boot();
}

static void *broker(void *argument)
{
    struct pawl_direct_broker *b = argument;
    while (!pawl_load_acq_u32(&rig.stop)) {
        (void)pawl_direct_sweep(b, 16);
        (void)sched_yield();
    }
    return NULL;
}

static void open_rig(uint64_t first, struct pawl_direct_broker *b, void **private)
{
    struct pawl_direct_shape shape = { .capacity = 64,
                                       .body_bytes = BODY,
                                       .lanes = 8,
                                       .lease_ms = 20,
                                       .lease_ms_max = 2000,
                                       .first = first };
    static const uint8_t session[16] = { 1 };
    assert_int_equal(pawl_direct_shape_check(&shape), PAWL_OK);
    uint64_t bytes = pawl_direct_bytes(&shape);
    rig.memory = aligned_alloc(4096, bytes);
    assert_non_null(rig.memory);
    memset(rig.memory, 0, bytes);
    pawl_direct_init(rig.memory, &shape);
    assert_int_equal(pawl_direct_open(&rig.q, rig.memory, bytes, &shape), PAWL_OK);
    *private = calloc(1, pawl_direct_broker_bytes(&shape));
    pawl_direct_broker_init(b, &rig.q, *private, 1, boot, NULL);
    for (uint32_t n = 1; n <= PRODUCERS + CONSUMERS; n++) {
        assert_int_equal(pawl_direct_lane_take(b, session), n);
        pawl_direct_lane_live(b, n);
    }
}

static void play(uint64_t first, uint64_t messages, uint64_t seed)
{
    pthread_t threads[PRODUCERS + CONSUMERS + 1];
    struct pawl_direct_broker b;
    void *private, *why;
    memset(&rig, 0, sizeof rig);
    rig.messages = messages;
    rig.seed = seed;
    rig.acked = aligned_alloc(64, (PRODUCERS * messages + 63) / 64 * 64);
    memset(rig.acked, 0, (PRODUCERS * messages + 63) / 64 * 64);
    open_rig(first, &b, &private);
    for (uintptr_t n = 0; n < PRODUCERS; n++)
        assert_int_equal(pthread_create(&threads[n], NULL, producer, (void *)n), 0);
    for (uintptr_t n = 0; n < CONSUMERS; n++)
        assert_int_equal(pthread_create(&threads[PRODUCERS + n], NULL, consumer, (void *)n), 0);
    assert_int_equal(pthread_create(&threads[PRODUCERS + CONSUMERS], NULL, broker, &b), 0);
    for (unsigned n = 0; n < PRODUCERS + CONSUMERS; n++) {
        assert_int_equal(pthread_join(threads[n], &why), 0);
        if (why)
            fail_msg("%s", (const char *)why);
    }
    pawl_store_rel_u32(&rig.stop, 1);
    assert_int_equal(pthread_join(threads[PRODUCERS + CONSUMERS], &why), 0);
    for (uint64_t n = 0; n < PRODUCERS * messages; n++)
        assert_int_equal(rig.acked[n], 1);
    /* All is acknowledged: every slot is free once the dead are swept up. */
    for (uint32_t n = 1; n <= PRODUCERS + CONSUMERS; n++)
        pawl_direct_lane_dead(&b, n);
    while (pawl_direct_sweep_pending(&b))
        (void)pawl_direct_sweep(&b, 64);
    (void)pawl_direct_sweep(&b, 64);
    for (uint64_t i = 0; i <= rig.q.mask; i++)
        assert_int_equal(pawl_direct_word_status(pawl_direct_slot(&rig.q, i)->word),
                         PAWL_DIRECT_EMPTY);
    print_message(
        "from %016llx: %llu messages, %llu leases lost, %llu expired, %llu marked again\n",
        (unsigned long long)first, (unsigned long long)(PRODUCERS * messages),
        (unsigned long long)rig.lost, (unsigned long long)b.counts.expired,
        (unsigned long long)b.counts.remarked);
    assert_true(b.counts.expired > 0);
    free(private);
    free(rig.memory);
    free(rig.acked);
}

static void every_message_is_acknowledged_once(void **state)
{
    (void)state;
    const char *s = getenv("PAWL_SEED"), *r = getenv("PAWL_ROUNDS");
    uint64_t seed = s ? strtoull(s, NULL, 0) : (uint64_t)getpid() * 2654435761u;
    uint64_t messages = r ? strtoull(r, NULL, 0) : 20000;
    print_message("seed: PAWL_SEED=%llu\n", (unsigned long long)seed);
    play(0, messages, seed);
    play((UINT64_C(1) << 32) - 1000, messages, seed + 1);
    play((UINT64_C(1) << 63) - 1000, messages, seed + 2);
    play(UINT64_MAX - 1000, messages, seed + 3);
    play((UINT64_C(1) << 45) - 1000, messages, seed + 4); /* laps of 39 bits, 64 slots */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_message_is_acknowledged_once) };
    (void)alarm(240);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
