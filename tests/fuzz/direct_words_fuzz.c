/* SPDX-License-Identifier: MIT */
/* Hostile words in the memory of a direct queue (direct-queue.md 10). The input is a row of steps:
 * writes to any word, which another who may attach could make, between the calls of two lanes and
 * of the broker. Whatever is written: every call comes back, no byte outside the memory is touched
 * (the sanitizer's to see), no length is beyond a body's, what is handed out in place lies in the
 * memory, and after a new beginning the broker still serves.
 *
 * A step: 1 byte what; a write has 2 bytes of where and 8 of what. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/direct.h"
#include "lib/fuzz_main.h"
#include "pawl.h"

#define BODY 40u
#define LANES 4u

/* What was reached: inputs that reach none of it prove nothing. */
static struct {
    uint64_t writes, sent, received, settled, damaged, swept, dead;
} reached;

static struct rig {
    uint8_t *memory;
    uint64_t bytes;
    void *private;
    struct pawl_direct q;
    struct pawl_direct_broker broker;
    struct pawl_direct_lane lanes[2];
    struct pawl_direct_token tokens[8];
    uint8_t bodies[4][BODY];
    uint64_t now;
    uint32_t open; /* places of lane 0 */
} rig;

static const struct pawl_direct_shape shape = { .capacity = 64,
                                                .body_bytes = BODY,
                                                .lanes = LANES,
                                                .attempts_max = 3,
                                                .lease_ms = 10,
                                                .lease_ms_max = 1000,
                                                .id = 7 };

static void need(bool true_of_it, const char *what)
{
    if (true_of_it)
        return;
    fprintf(stderr, "direct_words_fuzz: %s\n", what);
    abort();
}

static uint64_t clock_of(void *context) { return ((struct rig *)context)->now; }

static void serve(void)
{
    memset(rig.private, 0, pawl_direct_broker_bytes(&shape));
    pawl_direct_broker_init(&rig.broker, &rig.q, rig.private, 1, clock_of, &rig);
}

static void begin(void)
{
    rig.bytes = pawl_direct_bytes(&shape);
    rig.memory = aligned_alloc(128, rig.bytes);
    rig.private = calloc(1, pawl_direct_broker_bytes(&shape));
    need(rig.memory && rig.private, "no memory");
    memset(rig.memory, 0, rig.bytes);
    rig.now = 1000000000;
    rig.open = 0;
    memset(rig.tokens, 0, sizeof rig.tokens);
    pawl_direct_init(rig.memory, &shape);
    need(pawl_direct_open(&rig.q, rig.memory, rig.bytes, &shape) == PAWL_OK, "open");
    serve();
    uint8_t session[16] = { 1 };
    for (int i = 0; i < 2; i++) {
        int n = pawl_direct_lane_take(&rig.broker, session);
        need(n > 0, "a lane");
        pawl_direct_lane_live(&rig.broker, (uint32_t)n);
        need(pawl_direct_lane_init(&rig.lanes[i], &rig.q, (uint32_t)n) == PAWL_OK, "lane");
    }
}

static uint64_t take(const uint8_t **at, const uint8_t *end, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n && *at < end; i++)
        v |= (uint64_t) * (*at)++ << (8 * i);
    return v;
}

/* --- steps ----------------------------------------------------------------------------------- */

static void write_word(const uint8_t **at, const uint8_t *end)
{
    uint64_t where = take(at, end, 2), what = take(at, end, 8);
    uint64_t *words = (uint64_t *)(void *)rig.memory;
    words[where % (rig.bytes / 8)] = what;
    reached.writes++;
}

static void note(int rc)
{
    reached.damaged += rc == PAWL_E_QUEUE_DAMAGED;
    need(rc <= (int)PAWL_DIRECT_BATCH_MAX, "a result that is none");
}

static void send(struct pawl_direct_lane *lane, unsigned n)
{
    struct pawl_direct_body b[4];
    for (unsigned i = 0; i < 4; i++)
        b[i] = (struct pawl_direct_body){ .data = rig.bodies[i], .length = i * 10 };
    int rc = pawl_direct_send(lane, b, 1 + n % 4, NULL);
    note(rc);
    reached.sent += rc > 0;
}

static void in_steps(unsigned n)
{
    struct pawl_direct_lane *lane = &rig.lanes[0];
    if (rig.open == 0) {
        int rc = pawl_direct_reserve(lane, 1 + n % 8);
        note(rc);
        rig.open = rc > 0 ? (uint32_t)rc : 0;
        return;
    }
    uint8_t *place = pawl_direct_place(lane);
    if (place) {
        need(place >= rig.memory && place + BODY <= rig.memory + rig.bytes, "a place outside");
        memset(place, 'p', BODY);
    }
    note(n % 3 ? pawl_direct_publish(lane, n % (BODY + 1), 0, NULL) : pawl_direct_abandon(lane));
    rig.open--;
}

static void receive(struct pawl_direct_lane *lane, unsigned n)
{
    static uint8_t into[4][BODY];
    struct pawl_direct_delivery d[4];
    bool in_place = n & 1;
    for (int i = 0; i < 4; i++)
        d[i].body = in_place ? NULL : into[i];
    int rc = pawl_direct_receive(lane, d, 1 + n / 2 % 4,
                                 in_place ? PAWL_DIRECT_IN_PLACE : PAWL_DIRECT_COPY);
    note(rc);
    for (int i = 0; i < rc; i++) {
        need(d[i].length <= BODY, "a length beyond the body");
        const uint8_t *body = d[i].body;
        need(!in_place || (body >= rig.memory && body + BODY <= rig.memory + rig.bytes),
             "a body outside");
        rig.tokens[(n + (unsigned)i) % 8] = d[i].token;
        reached.received++;
    }
}

static void settle(struct pawl_direct_lane *lane, unsigned n)
{
    const struct pawl_direct_token *t = &rig.tokens[n % 8];
    int rc;
    switch (n / 8 % 5) {
    case 0:
        rc = pawl_direct_nack(lane, t, n % 16, NULL);
        break;
    case 1:
        rc = pawl_direct_renew(lane, t, 1 + n);
        break;
    case 2:
        (void)pawl_direct_holds(lane, t);
        return;
    default:
        rc = pawl_direct_ack(lane, t);
        break;
    }
    note(rc);
    reached.settled += rc == PAWL_OK;
}

static void the_dead(unsigned n)
{
    uint64_t slot = n % 64;
    uint8_t body[BODY];
    struct pawl_direct_delivery d = { .body = body };
    if (pawl_direct_dead_next(&rig.broker, &slot, BODY, &d) != 1)
        return;
    need(slot < 64 && d.length <= BODY, "a dead message that cannot be");
    reached.dead++;
    (void)(n & 1 ? pawl_direct_dead_restore(&rig.broker, d.token.position)
                 : pawl_direct_dead_purge(&rig.broker, d.token.position));
}

static void sweep(unsigned n)
{
    rig.now += (uint64_t)n * 1000000;
    (void)pawl_direct_sweep(&rig.broker, 1 + n % 64);
    need(pawl_direct_sweep_ms(&rig.broker) <= 1000, "a sweep too slow");
    reached.swept++;
    if (n % 64 == 63)
        serve(); /* a new broker */
    else if (n % 64 == 62)
        pawl_direct_lane_dead(&rig.broker, 1 + n % LANES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    begin();
    while (at < end) {
        unsigned what = (unsigned)take(&at, end, 1), n = (unsigned)take(&at, end, 1);
        struct pawl_direct_lane *lane = &rig.lanes[n >> 7];
        switch (what % 8) {
        case 0:
        case 1:
            write_word(&at, end);
            break;
        case 2:
            if (rig.open == 0 || lane != &rig.lanes[0])
                send(lane, n);
            break;
        case 3:
            receive(lane, n);
            break;
        case 4:
            settle(lane, n);
            break;
        case 5:
            sweep(n);
            break;
        case 6:
            in_steps(n);
            break;
        default:
            the_dead(n);
            (void)pawl_direct_poll(lane);
            (void)pawl_direct_state(&rig.q);
            break;
        }
    }
    for (int i = 0; i < 3; i++) {
        rig.now += 2000000000;
        (void)pawl_direct_sweep(&rig.broker, 64);
    }
    free(rig.memory);
    free(rig.private);
    return 0;
}

#ifndef PAWL_FUZZ
static void random_input(struct pawl_prng *prng, uint8_t *data, size_t *size)
{
    *size = 1 + pawl_prng_below(prng, 800);
    for (size_t i = 0; i < *size; i++)
        data[i] = (uint8_t)pawl_prng_next(prng);
    /* Often without a hostile word in the first half, so that there is something to be spoiled. */
    if (pawl_prng_below(prng, 2))
        for (size_t i = 0; i < *size / 2; i += 2)
            data[i] = (uint8_t)(2 + pawl_prng_below(prng, 6));
}

int main(int argc, char **argv)
{
    int rc = fuzz_main(argc, argv, "direct_words_fuzz", 1500, random_input);
    printf("%" PRIu64 " words, %" PRIu64 " sends, %" PRIu64 " received, %" PRIu64
           " settled, %" PRIu64 " times damaged, %" PRIu64 " sweeps, %" PRIu64 " dead\n",
           reached.writes, reached.sent, reached.received, reached.settled, reached.damaged,
           reached.swept, reached.dead);
    need(reached.writes && reached.sent && reached.received && reached.settled && reached.damaged &&
             reached.swept && reached.dead,
         "the inputs reach nothing");
    return rc;
}
#endif
