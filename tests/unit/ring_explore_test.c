/* SPDX-License-Identifier: MIT */
/* abi/ring.h under every interleaving, every delay of stores and every death: one producer, one
 * consumer, three messages through a ring that holds two. */
#define PAWL_ATOMIC_STEP

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "abi/ring.h"
#include "lib/explore.h"
#include "lib/unit.h"

#define MESSAGES_MAX 5u
#define RECORD 16u
#define SIZE 32u

/* tail, head and data as two processes share them; writers stand apart as in abi/layout.h does not
 * matter here. */
static struct {
    uint64_t tail, head;
    uint8_t data[SIZE];
} shared;

static uint64_t start; /* position where the ring begins */
static unsigned messages;
static unsigned batch; /* messages a publish */
static unsigned hold;  /* messages read before a release */

struct produced {
    uint32_t published;
};
struct consumed {
    uint32_t count, breach;
    uint64_t bytes[MESSAGES_MAX + 1];
};

static uint64_t content(unsigned i) { return 0xabcd000000000000ull + (i + 1) * 0x1111ull; }

static void producer(void *out)
{
    struct produced *p = out;
    struct pawl_ring_producer r = { .data = shared.data,
                                    .size = SIZE,
                                    .tail = start,
                                    .published = start,
                                    .head = start,
                                    .tail_shm = &shared.tail,
                                    .head_shm = &shared.head };
    for (unsigned i = 0; i < messages; i++) {
        uint8_t *record;
        while (!(record = pawl_ring_claim(&r, RECORD))) {
            pawl_ring_publish(&r);
            if (!pawl_ring_refresh(&r))
                explore_fail("the producer sees a head that cannot be");
            if (pawl_ring_room(&r) < RECORD && !explore_await_u64(&shared.head, r.head))
                return;
        }
        pawl_store_rlx_u32((uint32_t *)(void *)record, RECORD);
        pawl_store_rlx_u32((uint32_t *)(void *)(record + 4), i + 1);
        pawl_store_rlx_u64((uint64_t *)(void *)(record + 8), content(i));
        if ((i + 1) % batch == 0)
            pawl_ring_publish(&r);
    }
    pawl_ring_publish(&r);
    p->published = messages;
}

static void consumer(void *out)
{
    struct consumed *c = out;
    struct pawl_ring_consumer r = { .data = shared.data,
                                    .size = SIZE,
                                    .next = start,
                                    .tail = start,
                                    .tail_shm = &shared.tail,
                                    .head_shm = &shared.head };
    while (c->count < messages) {
        const void *record;
        uint32_t bytes;
        enum pawl_ring_result got = pawl_ring_next(&r, &record, &bytes);
        if (got == PAWL_RING_BREACH) {
            c->breach = 1;
            return;
        }
        if (got == PAWL_RING_EMPTY) {
            pawl_ring_release(&r, r.next);
            if (!explore_await_u64(&shared.tail, r.tail))
                return;
            continue;
        }
        uint32_t number = pawl_load_rlx_u32((const uint32_t *)record + 1);
        uint64_t bytes_of = pawl_load_rlx_u64((const uint64_t *)record + 1);
        if (bytes != RECORD || number != c->count + 1)
            explore_fail("out of order, doubled or invented");
        if (bytes_of != content(c->count))
            explore_fail("torn: a message whose bytes are not there yet, or no longer");
        c->bytes[c->count++] = bytes_of;
        if (c->count % hold == 0)
            pawl_ring_release(&r, r.next);
    }
}

static const char *check(const struct explore_end *end)
{
    const struct produced *p = end->out[0];
    const struct consumed *c = end->out[1];
    bool died = end->status[0] == EXPLORE_DEAD || end->status[1] == EXPLORE_DEAD;
    if (c->breach)
        return "a breach where nobody was hostile";
    if (end->status[0] == EXPLORE_SLEEPS || end->status[1] == EXPLORE_SLEEPS)
        return "somebody waits for ever";
    if (!died && (p->published != messages || c->count != messages))
        return "lost";
    /* Without the consumer's death: what was published is read. */
    uint64_t tail;
    memcpy(&tail, end->arena, sizeof tail);
    if (end->status[1] == EXPLORE_DONE && c->count != (tail - start) / RECORD)
        return "published, and not read";
    return NULL;
}

static void run(unsigned count, uint64_t position, unsigned per_publish, unsigned per_release,
                unsigned kills)
{
    static struct explore_result result;
    struct explore_options o = { .name = "ring",
                                 .arena = &shared,
                                 .arena_bytes = sizeof shared,
                                 .actor_count = 2,
                                 .actors = { producer, consumer },
                                 .kills = kills,
                                 .states_max = 20000000,
                                 .check = check };
    memset(&shared, 0, sizeof shared);
    shared.tail = shared.head = start = position;
    messages = count;
    batch = per_publish;
    hold = per_release;
    explore(&o, &result);
    print_message("%u messages from %016llx, publish by %u, release by %u, deaths %u: %llu states, "
                  "%llu steps, "
                  "%llu ends, depth %u, %llu delayed stores, %llu deaths\n",
                  count, (unsigned long long)position, per_publish, per_release, kills,
                  (unsigned long long)result.states, (unsigned long long)result.steps,
                  (unsigned long long)result.ends, result.depth, (unsigned long long)result.delayed,
                  (unsigned long long)result.deaths);
    if (result.failure)
        print_message("%s", result.trace);
    assert_null(result.failure);
    assert_true(result.complete);
    assert_true(result.ends > 0 && result.sleeps > 0 && result.delayed > 0);
    assert_true(kills == 0 || result.deaths > 0);
}

static void every_message_is_read_once_whole_in_order(void **state)
{
    (void)state;
    run(3, 0, 1, 1, 0);
    run(3, 0, 2, 1, 0);
    run(3, 0, 3, 2, 0);
    run(5, 0, 1, 1, 0);
    run(5, 0, 2, 2, 0);
}

static void positions_wrap(void **state)
{
    (void)state;
    run(3, 0xfffffff0ull, 1, 1, 0);
    run(3, 0x7ffffffffffffff0ull, 1, 1, 0);
    run(3, 0xfffffffffffffff0ull, 1, 1, 0);
}

static void a_death_leaves_whole_messages_or_none(void **state)
{
    (void)state;
    run(3, 0, 1, 1, 1);
    run(3, 0xfffffffffffffff0ull, 2, 1, 1);
    run(3, 0, 1, 1, 2);
    run(5, 0, 1, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_is_read_once_whole_in_order),
        cmocka_unit_test(positions_wrap),
        cmocka_unit_test(a_death_leaves_whole_messages_or_none),
    };
    (void)alarm(240);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
