/* SPDX-License-Identifier: MIT */
/* Sleeping and waking of the direct queue under every interleaving and every death: the real source
 * of the gate between producers that add to a count and consumers that take from it. Nobody may be
 * left asleep with something to take, unless somebody died: then the back-stop of a second is what
 * wakes him. Which sleeper the kernel wakes is left open. */
#define PAWL_ATOMIC_STEP

#include "lib/interleave.h"

#include "abi/direct_gate.c"
#include "base/bits.h"
#include "lib/unit.h"

#define ACTORS 4u

static struct {
    uint64_t count; /* messages there */
    uint32_t gate, reserved;
} shared;
static struct {
    uint32_t sent, taken, dead;
} watch;
static struct private { uint32_t left, row, producer, slept; }
mem[ACTORS];

static bool take(void)
{
    uint64_t n = pawl_load_seq_u64(&shared.count);
    while (n > 0)
        if (pawl_cas_seq_u64(&shared.count, &n, n - 1))
            return true;
    return false;
}

static void run(unsigned actor)
{
    struct private *m = &mem[actor];
    if (m->producer) {
        for (uint32_t k = 0; k < m->row; k++) {
            uint64_t n = pawl_load_seq_u64(&shared.count);
            while (!pawl_cas_seq_u64(&shared.count, &n, n + 1))
                ;
        }
        pawl_direct_gate_wake(&shared.gate, m->row);
        m->left -= m->row;
        return;
    }
    while (!take()) {
        uint32_t kept = pawl_direct_gate_prepare(&shared.gate);
        if (take())
            break;
        pawl_direct_gate_wait(&shared.gate, kept, PAWL_DIRECT_SLEEP_NS_MAX);
    }
    m->left--;
}

static bool may_begin(unsigned actor, bool *done)
{
    *done = mem[actor].left == 0;
    return !*done;
}
static void begins(unsigned actor) { (void)actor; }
static void ended(unsigned actor)
{
    if (!mem[actor].producer)
        watch.taken++;
}
static void died(unsigned actor)
{
    (void)actor;
    watch.dead++;
}
static void stepped(unsigned actor, const struct il_step *s, uint64_t found)
{
    if (s->kind == IL_CAS && s->offset == 0 && found == s->expected && mem[actor].producer)
        watch.sent++;
}
static unsigned group(uint32_t offset)
{
    (void)offset;
    return 0;
}
static uint64_t digest(void)
{
    return pawl_hash64(&watch, sizeof watch, pawl_hash64(&shared, sizeof shared, 1));
}
static void at_end(void)
{
    for (unsigned i = 0; i < ACTORS; i++)
        if (il_status_of(i) == IL_SLEEPS && shared.count > 0 && watch.dead == 0)
            il_fail("a sleeper is left with a message");
}

static void explore_gate(uint32_t producers, uint32_t messages, uint32_t row, uint32_t takes,
                         int kills, int preemptions)
{
    struct il_world w = { .shared = &shared,
                          .watch = &watch,
                          .shared_bytes = sizeof shared,
                          .watch_bytes = sizeof watch,
                          .private_bytes = sizeof mem[0],
                          .actors = ACTORS,
                          .kills = kills,
                          .preemptions = preemptions,
                          .states_max = 20000000,
                          .run = run,
                          .may_begin = may_begin,
                          .begins = begins,
                          .ended = ended,
                          .died = died,
                          .stepped = stepped,
                          .group = group,
                          .digest = digest,
                          .at_end = at_end };
    memset(&shared, 0, sizeof shared);
    memset(&watch, 0, sizeof watch);
    memset(mem, 0, sizeof mem);
    for (unsigned i = 0; i < ACTORS; i++) {
        mem[i].producer = i < 2;
        mem[i].row = row;
        mem[i].left = i >= 2 ? takes : i < producers ? messages : 0;
        w.private[i] = &mem[i];
    }
    interleave(&w);
    print_message("%u x %u in rows of %u, 2 x %u, %d deaths: %llu states, %llu ends, %llu woken\n",
                  producers, messages, row, takes, kills, (unsigned long long)il_result.states,
                  (unsigned long long)il_result.ends, (unsigned long long)il_result.wakes);
    assert_null(il_result.failure);
    assert_true(il_result.complete && il_result.ends > 0 && il_result.wakes > 0);
}

static void nobody_sleeps_over_a_message(void **state)
{
    (void)state;
    explore_gate(1, 2, 1, 1, 0, IL_BOUNDLESS);
    explore_gate(1, 2, 2, 1, 0, IL_BOUNDLESS);
    explore_gate(2, 1, 1, 1, 0, IL_BOUNDLESS);
    explore_gate(2, 1, 1, 1, 1, IL_BOUNDLESS);
    explore_gate(1, 4, 2, 2, 0, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(nobody_sleeps_over_a_message) };
    (void)alarm(240);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
