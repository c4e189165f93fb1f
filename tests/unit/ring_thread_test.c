/* SPDX-License-Identifier: MIT */
/* Ring and wake with two real threads and real sleeping: a client and a broker play ping-pong in
 * rows of random length, each sleeping whenever it finds nothing. A lost wake-up stands still until
 * the watchdog. Also under the thread sanitizer, which sees both sides here since they are threads
 * of one process on one mapping. */

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/region.h"
#include "abi/ring.h"
#include "abi/wake.h"
#include "base/prng.h"
#include "lib/unit.h"

#define SIZE PAWL_RING_BYTES_MIN

static struct rig {
    struct pawl_region sub, comp;
    int bell;
    uint64_t rounds, seed;
    uint64_t client_sleeps, broker_sleeps, wakes, bells;
} rig;

static struct pawl_sub_shm *sub(void) { return rig.sub.header; }
static struct pawl_comp_shm *comp(void) { return rig.comp.header; }

static void region_open(struct pawl_region *r)
{
    int fd = memfd_create("ring", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)pawl_region_file_bytes(SIZE)), 0);
    assert_int_equal(pawl_region_map(fd, SIZE, PAWL_REGION_WRITE, r), 0);
    (void)close(fd);
}

/* A pause of 0..2 us by looking at nothing, or a yield: the gaps in which wake-ups get lost. */
static void gap(struct pawl_prng *prng)
{
    uint64_t n = pawl_prng_below(prng, 400);
    if (n < 20)
        (void)sched_yield();
    for (uint64_t i = 0; i < n; i++)
        pawl_cpu_relax();
}

/* --- broker: echoes each command as an answer ------------------------------------------------ */

static bool broker_sleep(const struct pawl_ring_consumer *in, uint32_t *number, uint64_t *seen)
{
    *number += PAWL_BELL_STEP;
    pawl_store_seq_u32(&comp()->bell, *number | PAWL_BELL_SUBMIT | PAWL_BELL_ROOM);
    if (pawl_load_seq_u64(&sub()->tail) != in->tail) {
        pawl_store_rlx_u32(&comp()->bell, 0);
        return true;
    }
    struct pollfd p = { .fd = rig.bell, .events = POLLIN };
    rig.broker_sleeps++;
    int n = poll(&p, 1, 60000);
    eventfd_t count = 0;
    if (n == 1)
        (void)eventfd_read(rig.bell, &count);
    *seen += count;
    pawl_store_rlx_u32(&comp()->bell, 0);
    return n == 1;
}

static void *broker(void *unused)
{
    (void)unused;
    struct pawl_prng prng = { rig.seed + 1 };
    struct pawl_ring_consumer in = {
        .data = rig.sub.data, .size = SIZE, .tail_shm = &sub()->tail, .head_shm = &comp()->sub_head
    };
    struct pawl_ring_producer out = { .data = rig.comp.data,
                                      .size = SIZE,
                                      .tail_shm = &comp()->tail,
                                      .head_shm = &sub()->comp_head };
    uint64_t events = 0, seen = 0;
    uint32_t served = 0, number = 0;
    while (events < rig.rounds) {
        const void *record;
        uint32_t n;
        enum pawl_ring_result got = pawl_ring_next(&in, &record, &n);
        if (got == PAWL_RING_BREACH)
            return (void *)"the broker met a breach";
        if (got == PAWL_RING_EMPTY) {
            pawl_ring_release(&in, in.next);
            if (pawl_ring_publish(&out))
                gap(&prng);
            uint32_t w = pawl_wait_pending(sub(), events, served);
            if (w) {
                served = w;
                (void)pawl_add_seq_u32(&comp()->wake, 1);
                (void)syscall(SYS_futex, &comp()->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
                rig.wakes++;
            }
            if (pawl_load_acq_u64(&sub()->tail) == in.tail && !broker_sleep(&in, &number, &seen))
                return (void *)"the broker slept over a command";
            continue;
        }
        void *answer;
        while (!(answer = pawl_ring_claim(&out, n))) {
            /* Room always comes: the client reads before it sleeps. */
            pawl_ring_publish(&out);
            if (!pawl_ring_refresh(&out))
                return (void *)"the broker met a head that cannot be";
            (void)sched_yield();
        }
        memcpy(answer, record, n);
        events++;
        pawl_store_rlx_u64(&comp()->events, events);
        if (pawl_prng_below(&prng, 8) == 0)
            gap(&prng);
    }
    pawl_ring_publish(&out);
    uint32_t w = pawl_wait_pending(sub(), events, served);
    if (w) {
        (void)pawl_add_seq_u32(&comp()->wake, 1);
        (void)syscall(SYS_futex, &comp()->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    return NULL;
}

/* --- client ---------------------------------------------------------------------------------- */

static void ring_bell(uint32_t bit, uint32_t *rung)
{
    if (pawl_bell_pending(comp(), bit, rung)) {
        rig.bells++;
        assert_int_equal(eventfd_write(rig.bell, 1), 0);
    }
}

static void client_sleep(const struct pawl_ring_consumer *in, uint64_t want, uint32_t *number)
{
    uint32_t wake = pawl_load_acq_u32(&comp()->wake);
    *number = (*number + 1) & 0x3fffffff;
    pawl_wait_announce(sub(), want, *number, PAWL_WAIT_FUTEX);
    if (pawl_load_seq_u64(&comp()->tail) == in->tail) {
        rig.client_sleeps++;
        (void)syscall(SYS_futex, &comp()->wake, FUTEX_WAIT, wake, NULL, NULL, 0);
    }
    pawl_wait_withdraw(sub());
}

static void play(uint64_t rounds, uint64_t seed)
{
    pthread_t thread;
    memset(&rig, 0, sizeof rig);
    region_open(&rig.sub);
    region_open(&rig.comp);
    rig.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rig.rounds = rounds;
    rig.seed = seed;
    assert_int_equal(pthread_create(&thread, NULL, broker, NULL), 0);

    struct pawl_prng prng = { seed };
    struct pawl_ring_producer out = {
        .data = rig.sub.data, .size = SIZE, .tail_shm = &sub()->tail, .head_shm = &comp()->sub_head
    };
    struct pawl_ring_consumer in = { .data = rig.comp.data,
                                     .size = SIZE,
                                     .tail_shm = &comp()->tail,
                                     .head_shm = &sub()->comp_head };
    uint64_t sent = 0, got = 0;
    uint32_t rung = 0, number = 0;
    while (got < rounds) {
        uint64_t row = 1 + pawl_prng_below(&prng, pawl_prng_below(&prng, 4) ? 3 : 200);
        for (uint64_t i = 0; i < row && sent < rounds; i++) {
            uint32_t n = 16 + 8 * (uint32_t)pawl_prng_below(&prng, 30);
            uint64_t *w = pawl_ring_claim(&out, n);
            if (!w) {
                assert_true(pawl_ring_refresh(&out));
                break;
            }
            w[0] = n;
            for (uint32_t k = 1; k < n / 8; k++)
                w[k] = sent;
            sent++;
        }
        if (pawl_ring_publish(&out))
            ring_bell(PAWL_BELL_SUBMIT, &rung);
        gap(&prng);
        uint64_t until =
            sent - got > 1 && pawl_prng_below(&prng, 2) ? got + (sent - got + 1) / 2 : sent;
        while (got < until) {
            const void *record = NULL;
            uint32_t n = 0;
            enum pawl_ring_result r = pawl_ring_next(&in, &record, &n);
            assert_int_not_equal(r, PAWL_RING_BREACH);
            if (r == PAWL_RING_EMPTY) {
                pawl_ring_release_seq(&in, in.next);
                ring_bell(PAWL_BELL_ROOM, &rung);
                client_sleep(&in, until, &number);
                continue;
            }
            for (uint32_t k = 1; k < n / 8; k++)
                assert_int_equal(((const uint64_t *)record)[k], got);
            got++;
        }
        pawl_ring_release_seq(&in, in.next);
        ring_bell(PAWL_BELL_ROOM, &rung);
    }
    void *why;
    assert_int_equal(pthread_join(thread, &why), 0);
    if (why)
        fail_msg("%s", (const char *)why);
    print_message("%llu round trips, client slept %llu, broker %llu, wakes %llu, bells %llu\n",
                  (unsigned long long)rounds, (unsigned long long)rig.client_sleeps,
                  (unsigned long long)rig.broker_sleeps, (unsigned long long)rig.wakes,
                  (unsigned long long)rig.bells);
    assert_true(rig.client_sleeps > 0 && rig.broker_sleeps > 0);
    (void)close(rig.bell);
    pawl_region_unmap(&rig.sub);
    pawl_region_unmap(&rig.comp);
}

static void nobody_sleeps_over_news(void **state)
{
    (void)state;
    const char *s = getenv("PAWL_SEED"), *r = getenv("PAWL_ROUNDS");
    uint64_t seed = s ? strtoull(s, NULL, 0) : (uint64_t)getpid() * 2654435761u;
    print_message("seed: PAWL_SEED=%llu\n", (unsigned long long)seed);
    play(r ? strtoull(r, NULL, 0) : 300000, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(nobody_sleeps_over_news) };
    (void)alarm(200);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
