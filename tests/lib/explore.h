/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_EXPLORE_H
#define PAWL_TESTS_EXPLORE_H

/* The interleaving explorer: runs two or three actors through every order of their accesses to
 * shared memory, with every delay of their stores and with deaths at every step, and looks at every
 * state once.
 *
 * An actor is a function that touches shared memory (the arena) only through abi/atomic.h, compiled
 * with PAWL_ATOMIC_STEP, and is otherwise deterministic. To take its next step the explorer runs it
 * from the start, answers the accesses it has made before from its history, and leaves it with
 * longjmp at the first new one; that one is then performed or left pending. So there are no stacks
 * to save, and the state of an actor is the row of values it has seen.
 *
 * Memory. Each actor has a store buffer. A relaxed or release store goes in there and comes out
 * into the arena at any later time: before or after stores to other places, but never before one to
 * its own place, and a release store not before any earlier store of the actor. A sequentially
 * consistent store, a read-modify-write, and a system call (wait, wake) empty the buffer first. An
 * actor sees its own stores at once. That is weaker than TSO (it lets relaxed stores pass each
 * other). What it does not model: loads that are performed early, hence no missing acquire.
 *
 * Deaths. With kills > 0 any actor may stop for ever between any two steps; what is in its buffer
 * still comes out. A stopped process that goes on later is an interleaving like any other. Who
 * waits for something that can no longer come is woken by the back-stop (EXPLORE_GONE) only if
 * somebody has died: without a death nobody may be left asleep, and the caller's check sees it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_ACTORS_MAX 3
#define EXPLORE_OUT_BYTES 128
#define EXPLORE_ARENA_BYTES_MAX 2048

enum explore_status { EXPLORE_RUNS, EXPLORE_SLEEPS, EXPLORE_DEAD, EXPLORE_DONE };

struct explore_end {
    enum explore_status status[EXPLORE_ACTORS_MAX];
    const void *out[EXPLORE_ACTORS_MAX]; /* what each actor has written to its `out` so far */
    const void *arena;
};

struct explore_options {
    const char *name;
    void *arena; /* in its first state; accesses outside it are a failure */
    size_t arena_bytes;
    unsigned actor_count;
    void (*actors[EXPLORE_ACTORS_MAX])(void *out); /* out: zeroed, EXPLORE_OUT_BYTES */
    bool strong;                                   /* no store buffers */
    unsigned kills;                                /* deaths in one run */
    uint64_t states_max;
    /* Called where nothing can move any more; NULL: fine, else what is wrong. */
    const char *(*check)(const struct explore_end *end);
};

struct explore_result {
    uint64_t states, ends, steps;
    unsigned depth;
    uint64_t sleeps, wakes, deaths, delayed; /* transitions: each kind must have happened */
    bool complete;                           /* all states seen, none left for states_max */
    const char *failure;                     /* NULL: none */
    char trace[8192];                        /* how the failure came about */
};

void explore(const struct explore_options *options, struct explore_result *result);

/* --- for actors ------------------------------------------------------------------------------ */

/* The futex: sleeps if the word still has this value. False: the peer is gone (back-stop). */
bool explore_wait(const uint32_t *word, uint32_t value);
void explore_wake(const uint32_t *word);
/* A fair spin: goes on when the word has another value. False: the peer is gone. */
bool explore_await_u64(const uint64_t *word, uint64_t value);
/* This must not happen. */
_Noreturn void explore_fail(const char *why);

#endif
