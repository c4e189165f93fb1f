/* SPDX-License-Identifier: MIT */
/* abi/wake.h over abi/ring.h under every interleaving, every delay of stores and every death: the
 * three sleeps of a lane. Nobody may be left asleep with something to do. */
#define PAWL_ATOMIC_STEP

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "abi/ring.h"
#include "abi/wake.h"
#include "lib/explore.h"
#include "lib/unit.h"

#define MESSAGES 3u
#define RECORD 8u
#define SIZE 16u

static struct {
    struct pawl_sub_shm sub;
    struct pawl_comp_shm comp;
    uint64_t data[SIZE / 8];
    uint32_t bell_count; /* the eventfd: counts, is never read, and is polled for changes */
    uint32_t unused;
} shared;

static unsigned want_first; /* events that the client waits for at first */
static unsigned batch;

struct end {
    uint32_t done, count;
};

static struct pawl_ring_producer producer_of(uint64_t *tail, const uint64_t *head)
{
    return (struct pawl_ring_producer){
        .data = (uint8_t *)shared.data, .size = SIZE, .tail_shm = tail, .head_shm = head
    };
}
static struct pawl_ring_consumer consumer_of(const uint64_t *tail, uint64_t *head)
{
    return (struct pawl_ring_consumer){
        .data = (const uint8_t *)shared.data, .size = SIZE, .tail_shm = tail, .head_shm = head
    };
}

static void put(void *record, unsigned i)
{
    pawl_store_rlx_u32(record, RECORD);
    pawl_store_rlx_u32((uint32_t *)record + 1, i + 1);
}

/* Reads one record; false: none there. */
static bool take(struct pawl_ring_consumer *r, struct end *e)
{
    const void *record;
    uint32_t bytes;
    enum pawl_ring_result got = pawl_ring_next(r, &record, &bytes);
    if (got == PAWL_RING_BREACH)
        explore_fail("a breach where nobody was hostile");
    if (got == PAWL_RING_EMPTY)
        return false;
    if (bytes != RECORD || pawl_load_rlx_u32((const uint32_t *)record + 1) != e->count + 1)
        explore_fail("out of order, doubled, torn or invented");
    e->count++;
    return true;
}

/* --- the client sleeps on its futex ---------------------------------------------------------- */

static void broker_completes(void *out)
{
    struct end *e = out;
    struct pawl_ring_producer r = producer_of(&shared.comp.tail, &shared.sub.comp_head);
    uint32_t served = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        void *record;
        while (!(record = pawl_ring_claim(&r, RECORD))) {
            if (!pawl_ring_refresh(&r))
                explore_fail("the broker sees a head that cannot be");
            if (pawl_ring_room(&r) < RECORD && !explore_await_u64(&shared.sub.comp_head, r.head))
                return;
        }
        put(record, i);
        if ((i + 1) % batch != 0 && i + 1 != MESSAGES)
            continue;
        pawl_store_rlx_u64(&shared.comp.events, i + 1);
        pawl_ring_publish(&r);
        uint32_t w = pawl_wait_pending(&shared.sub, i + 1, served);
        if (w) {
            served = w;
            (void)pawl_add_seq_u32(&shared.comp.wake, 1);
            explore_wake(&shared.comp.wake);
        }
    }
    e->done = 1;
}

static void client_waits(void *out)
{
    struct end *e = out;
    struct pawl_ring_consumer r = consumer_of(&shared.comp.tail, &shared.sub.comp_head);
    uint32_t number = 0;
    while (e->count < MESSAGES) {
        if (take(&r, e))
            continue;
        pawl_ring_release(&r, r.next);
        uint32_t left = MESSAGES - e->count;
        uint32_t want = e->count == 0 && want_first < left ? want_first : 1;
        uint32_t wake = pawl_load_acq_u32(&shared.comp.wake);
        pawl_wait_announce(&shared.sub, e->count + want, ++number, PAWL_WAIT_FUTEX);
        bool quiet = pawl_load_seq_u64(&shared.comp.tail) == r.tail;
#ifdef PAWL_BUG_NO_SECOND_LOOK
        quiet = true;
#endif
        if (quiet && !explore_wait(&shared.comp.wake, wake)) {
            /* The back-stop: the broker is dead. What it published is still read. */
            while (take(&r, e))
                ;
            return;
        }
        pawl_wait_withdraw(&shared.sub);
    }
    e->done = 1;
}

/* --- the broker sleeps on the bell ----------------------------------------------------------- */

static void client_submits(void *out)
{
    struct end *e = out;
    struct pawl_ring_producer r = producer_of(&shared.sub.tail, &shared.comp.sub_head);
    uint32_t rung = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        void *record;
        while (!(record = pawl_ring_claim(&r, RECORD))) {
            if (!pawl_ring_refresh(&r))
                explore_fail("the client sees a head that cannot be");
            if (pawl_ring_room(&r) < RECORD && !explore_await_u64(&shared.comp.sub_head, r.head))
                return;
        }
        put(record, i);
        pawl_ring_publish(&r);
        if (pawl_bell_pending(&shared.comp, PAWL_BELL_SUBMIT, &rung)) {
            (void)pawl_add_seq_u32(&shared.bell_count, 1);
            explore_wake(&shared.bell_count);
        }
    }
    e->done = 1;
}

static void broker_idles(void *out)
{
    struct end *e = out;
    struct pawl_ring_consumer r = consumer_of(&shared.sub.tail, &shared.comp.sub_head);
    uint32_t number = 0;
    while (e->count < MESSAGES) {
        if (take(&r, e)) {
            pawl_ring_release(&r, r.next);
            continue;
        }
        uint32_t seen = pawl_load_acq_u32(&shared.bell_count);
        number += PAWL_BELL_STEP;
        pawl_store_seq_u32(&shared.comp.bell, number | PAWL_BELL_SUBMIT);
        if (pawl_load_seq_u64(&shared.sub.tail) == r.tail &&
            !explore_wait(&shared.bell_count, seen)) {
            while (take(&r, e))
                ;
            return;
        }
        pawl_store_rlx_u32(&shared.comp.bell, 0);
    }
    e->done = 1;
}

/* --- the broker sleeps for room in the completion ring --------------------------------------- */

static void broker_needs_room(void *out)
{
    struct end *e = out;
    struct pawl_ring_producer r = producer_of(&shared.comp.tail, &shared.sub.comp_head);
    uint32_t number = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        void *record;
        while (!(record = pawl_ring_claim(&r, RECORD))) {
            uint32_t seen = pawl_load_acq_u32(&shared.bell_count);
            number += PAWL_BELL_STEP;
            pawl_store_seq_u32(&shared.comp.bell, number | PAWL_BELL_ROOM);
            if (pawl_load_seq_u64(&shared.sub.comp_head) == r.head &&
                !explore_wait(&shared.bell_count, seen))
                return;
            pawl_store_rlx_u32(&shared.comp.bell, 0);
            if (!pawl_ring_refresh(&r))
                explore_fail("the broker sees a head that cannot be");
        }
        put(record, i);
        pawl_ring_publish(&r);
    }
    e->done = 1;
}

static void client_frees_room(void *out)
{
    struct end *e = out;
    struct pawl_ring_consumer r = consumer_of(&shared.comp.tail, &shared.sub.comp_head);
    uint32_t rung = 0;
    while (e->count < MESSAGES) {
        if (!take(&r, e)) {
            if (!explore_await_u64(&shared.comp.tail, r.tail))
                return;
            continue;
        }
        pawl_ring_release_seq(&r, r.next);
        if (pawl_bell_pending(&shared.comp, PAWL_BELL_ROOM, &rung)) {
            (void)pawl_add_seq_u32(&shared.bell_count, 1);
            explore_wake(&shared.bell_count);
        }
    }
    e->done = 1;
}

/* --- run ------------------------------------------------------------------------------------- */

/* consumer: which of the actors reads. */
static const char *check_reader(const struct explore_end *end, unsigned reader, uint64_t tail)
{
    const struct end *e[2] = { end->out[0], end->out[1] };
    for (unsigned i = 0; i < 2; i++)
        if (end->status[i] == EXPLORE_SLEEPS)
            return "somebody is left asleep";
    bool died = end->status[0] == EXPLORE_DEAD || end->status[1] == EXPLORE_DEAD;
    if (!died && (!e[0]->done || !e[1]->done || e[reader]->count != MESSAGES))
        return "lost";
    if (end->status[reader] == EXPLORE_DONE && e[reader]->count * RECORD != tail)
        return "published, and not read";
    return NULL;
}

static uint64_t word_at(const void *arena, const void *word)
{
    uint64_t v;
    memcpy(&v, (const uint8_t *)arena + ((const uint8_t *)word - (const uint8_t *)&shared),
           sizeof v);
    return v;
}
static const char *check_completions(const struct explore_end *end)
{
    return check_reader(end, 1, word_at(end->arena, &shared.comp.tail));
}
static const char *check_submissions(const struct explore_end *end)
{
    return check_reader(end, 1, word_at(end->arena, &shared.sub.tail));
}

static void run(const char *name, void (*writer)(void *), void (*reader)(void *),
                const char *(*check)(const struct explore_end *), unsigned kills)
{
    static struct explore_result result;
    struct explore_options o = { .name = name,
                                 .arena = &shared,
                                 .arena_bytes = sizeof shared,
                                 .actor_count = 2,
                                 .actors = { writer, reader },
                                 .kills = kills,
                                 .states_max = 20000000,
                                 .check = check };
    memset(&shared, 0, sizeof shared);
    explore(&o, &result);
    print_message("%s, deaths %u: %llu states, %llu steps, %llu ends, depth %u, %llu sleeps, %llu "
                  "wakes, %llu delayed stores, %llu deaths\n",
                  name, kills, (unsigned long long)result.states, (unsigned long long)result.steps,
                  (unsigned long long)result.ends, result.depth, (unsigned long long)result.sleeps,
                  (unsigned long long)result.wakes, (unsigned long long)result.delayed,
                  (unsigned long long)result.deaths);
    if (result.failure)
        print_message("%s", result.trace);
    assert_null(result.failure);
    assert_true(result.complete);
    assert_true(result.ends > 0 && result.sleeps > 0 && result.wakes > 0 && result.delayed > 0);
    assert_true(kills == 0 || result.deaths > 0);
}

static void a_client_never_sleeps_over_an_answer(void **state)
{
    (void)state;
    for (batch = 1; batch <= 2; batch++)
        for (want_first = 1; want_first <= 2; want_first++) {
            run("client waits", broker_completes, client_waits, check_completions, 0);
            run("client waits", broker_completes, client_waits, check_completions, 2);
        }
}

static void the_broker_never_sleeps_over_a_command(void **state)
{
    (void)state;
    run("broker idles", client_submits, broker_idles, check_submissions, 0);
    run("broker idles", client_submits, broker_idles, check_submissions, 2);
}

static void the_broker_never_sleeps_over_room(void **state)
{
    (void)state;
    run("broker needs room", broker_needs_room, client_frees_room, check_completions, 0);
    run("broker needs room", broker_needs_room, client_frees_room, check_completions, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_never_sleeps_over_an_answer),
        cmocka_unit_test(the_broker_never_sleeps_over_a_command),
        cmocka_unit_test(the_broker_never_sleeps_over_room),
    };
    (void)alarm(240);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
