/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_INTERLEAVE_H
#define PAWL_TESTS_INTERLEAVE_H

/* The second explorer: whole operations of the real source, up to seven actors, every access to
 * shared memory a step, every order of the steps, deaths and stops before any of them. Included
 * once by a test program, which defines PAWL_ATOMIC_STEP and includes the sources under test; it
 * defines the pawl_step_ functions. (lib/explore.h models delayed stores; this one is sequentially
 * consistent and much faster, since an actor's private memory is kept at the end of each operation
 * and only the operation under way is run again to take a step.)
 *
 * An actor is a row of operations on its private memory. To take its next step the operation is run
 * from its start on the private memory as it was then, answered from its history, and left with
 * longjmp at its first new access. The state is: shared memory, the watcher's memory (what the test
 * knows: who holds what), and for each actor its private memory and its history since.
 *
 * States are kept as 64-bit hashes. With `preemptions` >= 0 only schedules with at most so many
 * switches away from an actor that could have gone on. */

#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/atomic.h"
#include "base/hash.h"

#define IL_ACTORS_MAX 7
#define IL_SHARED_MAX 4096
#define IL_WATCH_MAX 1536
#define IL_PRIVATE_MAX 1536
#define IL_HISTORY_MAX 200
#define IL_DEPTH_MAX 1200
#define IL_BOUNDLESS (-1)

enum il_kind { IL_LOAD, IL_STORE, IL_CAS, IL_ADD, IL_OR, IL_WAIT, IL_WAKE, IL_CHOOSE };
enum il_status { IL_IDLE, IL_RUNS, IL_SLEEPS, IL_DONE, IL_DEAD, IL_STOPPED };

struct il_step {
    enum il_kind kind;
    uint32_t offset, bytes;
    uint64_t value, expected;
};

struct il_world {
    void *shared, *watch, *private[IL_ACTORS_MAX];
    uint32_t shared_bytes, watch_bytes, private_bytes;
    unsigned actors;
    int kills, stops, preemptions;
    uint64_t states_max;
    /* Runs one whole operation of the actor on its private memory. */
    void (*run)(unsigned actor);
    /* May the actor begin its next operation now? done: it has none left. By the watcher's memory
     * and *private, outside of steps. */
    bool (*may_begin)(unsigned actor, bool *done);
    void (*begins)(unsigned actor); /* before its first step */
    void (*ended)(unsigned actor);  /* *private is as the operation left it */
    void (*died)(unsigned actor);
    /* A step has been done: `found` was there before. Shared and watcher memory are in place. */
    void (*stepped)(unsigned actor, const struct il_step *step, uint64_t found);
    unsigned (*choices)(unsigned actor, unsigned kind);
    /* 0: a step like any other. 1: done at once, nobody else can tell. 2..: accesses of one kind to
     * the same group in a row are one step. */
    unsigned (*group)(uint32_t offset);
    uint64_t (*digest)(void); /* of shared and watcher memory */
    void (*at_end)(void);     /* nothing moves any more; steps are done at once */
};

static struct {
    uint64_t states, steps, ends, deaths, stops, repeats, wakes;
    unsigned depth;
    bool complete;
    const char *failure;
} il_result;

struct il_actor {
    enum il_status status;
    bool begun, has_step;
    uint32_t steps;
    struct il_step next;
    uint64_t history[IL_HISTORY_MAX];
    uint8_t private[IL_PRIVATE_MAX];
};

struct il_state {
    uint8_t shared[IL_SHARED_MAX], watch[IL_WATCH_MAX];
    int kills, stops, preemptions, current;
    struct il_actor actors[IL_ACTORS_MAX];
};

static struct {
    struct il_world w;
    bool direct; /* steps are done at once */
    unsigned current;
    uint32_t at, have;
    const uint64_t *answers;
    struct il_step pending;
    jmp_buf leave;
    struct il_state *stack; /* [IL_DEPTH_MAX] */
    char (*way)[80];
    unsigned depth;
    uint64_t *set, set_mask, set_count;
} il;

static void il_fail(const char *why)
{
    if (!il_result.failure)
        il_result.failure = why;
}

/* --- steps ----------------------------------------------------------------------------------- */

static uint64_t il_do(unsigned actor, const struct il_step *s)
{
    uint64_t found = 0, next;
    uint8_t *p = (uint8_t *)il.w.shared + s->offset;
    if (s->kind == IL_CHOOSE || s->kind == IL_WAIT || s->kind == IL_WAKE) {
        if (il.w.stepped)
            il.w.stepped(actor, s, s->value);
        return s->value;
    }
    memcpy(&found, p, s->bytes);
    next = s->kind == IL_STORE ? s->value
           : s->kind == IL_CAS ? (found == s->expected ? s->value : found)
           : s->kind == IL_ADD ? found + s->value
           : s->kind == IL_OR  ? found | s->value
                               : found;
    if (s->kind != IL_LOAD)
        memcpy(p, &next, s->bytes);
    if (il.w.stepped)
        il.w.stepped(actor, s, found);
    return s->kind == IL_ADD ? next : found;
}

static uint64_t il_access(enum il_kind kind, const void *p, unsigned bytes, uint64_t value,
                          uint64_t expected)
{
    struct il_step s = { .kind = kind, .bytes = bytes, .value = value, .expected = expected };
    if (kind != IL_CHOOSE)
        s.offset = (uint32_t)((const uint8_t *)p - (const uint8_t *)il.w.shared);
    if (kind != IL_CHOOSE && s.offset + bytes > il.w.shared_bytes) {
        il_fail("an access outside the shared memory");
        if (il.direct)
            abort();
        longjmp(il.leave, 2);
    }
    if (il.direct)
        return kind == IL_WAKE ? 0 : il_do(il.current, &s);
    if (il.at < il.have)
        return il.answers[il.at++];
    il.pending = s;
    longjmp(il.leave, 1);
}

uint64_t pawl_step_load(const void *p, unsigned bytes, enum pawl_step_order order)
{
    (void)order;
    return il_access(IL_LOAD, p, bytes, 0, 0);
}
void pawl_step_store(void *p, uint64_t v, unsigned bytes, enum pawl_step_order order)
{
    (void)order;
    (void)il_access(IL_STORE, p, bytes, v, 0);
}
uint64_t pawl_step_add(void *p, uint64_t v, unsigned bytes)
{
    return il_access(IL_ADD, p, bytes, v, 0);
}
uint64_t pawl_step_or(void *p, uint64_t v, unsigned bytes)
{
    return il_access(IL_OR, p, bytes, v, 0);
}
uint64_t pawl_step_cas(void *p, uint64_t expected, uint64_t v, unsigned bytes)
{
    return il_access(IL_CAS, p, bytes, v, expected);
}
uint64_t pawl_step_swap(void *p, uint64_t v, unsigned bytes);
uint64_t pawl_step_swap(void *p, uint64_t v, unsigned bytes)
{
    (void)p;
    (void)v;
    (void)bytes;
    abort(); /* nothing under test swaps */
}
void pawl_step_wait(uint32_t *word, uint32_t value) { (void)il_access(IL_WAIT, word, 4, value, 0); }
uint32_t pawl_step_wake(uint32_t *word, uint32_t count)
{
    return (uint32_t)il_access(IL_WAKE, word, 4, count, 0);
}
/* For operations: a number below choices(actor, kind), each explored. */
static inline unsigned il_choose(unsigned kind)
{
    return (unsigned)il_access(IL_CHOOSE, NULL, 0, 0, kind);
}

/* --- states ---------------------------------------------------------------------------------- */

static struct il_state *il_top(void) { return &il.stack[il.depth]; }

static void il_copy(struct il_state *to, const struct il_state *from)
{
    memcpy(to->shared, from->shared, il.w.shared_bytes);
    memcpy(to->watch, from->watch, il.w.watch_bytes);
    to->kills = from->kills;
    to->stops = from->stops;
    to->preemptions = from->preemptions;
    to->current = from->current;
    for (unsigned i = 0; i < il.w.actors; i++) {
        const struct il_actor *a = &from->actors[i];
        struct il_actor *b = &to->actors[i];
        b->status = a->status;
        b->begun = a->begun;
        b->has_step = a->has_step;
        b->steps = a->steps;
        b->next = a->next;
        memcpy(b->history, a->history, a->steps * sizeof a->history[0]);
        memcpy(b->private, a->private, il.w.private_bytes);
    }
}

static void il_in(const struct il_state *s)
{
    memcpy(il.w.shared, s->shared, il.w.shared_bytes);
    memcpy(il.w.watch, s->watch, il.w.watch_bytes);
}
static void il_out(struct il_state *s)
{
    memcpy(s->shared, il.w.shared, il.w.shared_bytes);
    memcpy(s->watch, il.w.watch, il.w.watch_bytes);
}

static bool il_seen(const struct il_state *s)
{
    uint64_t h = il.w.digest();
    for (unsigned i = 0; i < il.w.actors; i++) {
        const struct il_actor *a = &s->actors[i];
        h = pawl_hash64(a->private, il.w.private_bytes, h + a->status);
        h = pawl_hash64(a->history, a->steps * sizeof a->history[0], h + a->begun);
    }
    int rest[4] = { s->kills, s->stops, s->preemptions,
                    s->preemptions == IL_BOUNDLESS ? 0 : s->current };
    uint64_t key = pawl_hash64(rest, sizeof rest, h) | 1;
    if (2 * (il.set_count + 1) > il.set_mask) {
        uint64_t old_mask = il.set_mask, *old = il.set;
        il.set_mask = 2 * old_mask + 1;
        il.set = calloc(il.set_mask + 1, sizeof *il.set);
        if (!il.set)
            abort();
        for (uint64_t n = 0; n <= old_mask; n++) {
            uint64_t k = old[n] >> 1;
            while (old[n] && il.set[k & il.set_mask])
                k++;
            if (old[n])
                il.set[k & il.set_mask] = old[n];
        }
        free(old);
    }
    for (uint64_t k = key >> 1;; k++) {
        uint64_t *slot = &il.set[k & il.set_mask];
        if (*slot == key)
            return true;
        if (*slot == 0) {
            *slot = key;
            il.set_count++;
            return false;
        }
    }
}

/* --- actors ---------------------------------------------------------------------------------- */

/* Runs the actor's operation up to its next new access; true: there is one; false: it ended. */
static bool il_run(struct il_actor *a, unsigned i)
{
    memcpy(il.w.private[i], a -> private, il.w.private_bytes);
    il.current = i;
    il.at = 0;
    il.have = a->steps;
    il.answers = a->history;
    int left = setjmp(il.leave);
    if (left == 0) {
        il.w.run(i);
        memcpy(a->private, il.w.private[i], il.w.private_bytes);
        return false;
    }
    if (left == 1)
        a->next = il.pending;
    return left == 1;
}

static void il_remember(struct il_actor *a, uint64_t value)
{
    if (a->steps == IL_HISTORY_MAX) {
        il_fail("an operation takes too many steps: it does not end");
        return;
    }
    a->history[a->steps++] = value;
}

/* Brings the actor to its next step, ending operations and beginning others. Shared and watcher
 * memory are in place. */
static void il_settle(struct il_state *s, unsigned i)
{
    struct il_actor *a = &s->actors[i];
    while (!il_result.failure) {
        bool done = false;
        if (a->status == IL_IDLE) {
            memcpy(il.w.private[i], a -> private, il.w.private_bytes);
            if (!il.w.may_begin(i, &done)) {
                a->status = done ? IL_DONE : IL_IDLE;
                return;
            }
            a->status = IL_RUNS;
            a->begun = false;
        }
        if (il_run(a, i)) {
            unsigned g = a->next.kind <= IL_OR ? il.w.group(a->next.offset) : 0;
            if (g != 1) {
                a->has_step = true;
                return;
            }
            il_remember(a, il_do(i, &a->next));
            continue;
        }
        if (il_result.failure)
            return;
        if (!a->begun)
            il.w.begins(i);
        il.w.ended(i);
        memcpy(a->private, il.w.private[i], il.w.private_bytes);
        a->steps = 0;
        a->status = IL_IDLE;
    }
}

static void il_visit(void);

/* The state on top is new: look at it unless it was seen. */
static void il_enter(const char *what, unsigned i)
{
    struct il_state *s = il_top();
    const struct il_step *n = &s[-1].actors[i].next;
    snprintf(il.way[il.depth], sizeof il.way[0], "%s %u: kind %d @%u %" PRIx64 " (%" PRIx64 ")",
             what, i, (int)n->kind, n->offset, n->value, n->expected);
    il_result.steps++;
    if (il.depth > il_result.depth)
        il_result.depth = il.depth;
    if (il_result.failure) {
        printf("%s; the way there:\n", il_result.failure);
        for (unsigned d = 1; d <= il.depth; d++)
            printf("  %s\n", il.way[d]);
        return;
    }
    if (il_seen(s))
        il_result.repeats++;
    else
        il_visit();
}

static struct il_state *il_push(void)
{
    if (il.depth + 1 >= IL_DEPTH_MAX) {
        fprintf(stderr, "interleave: too deep\n");
        abort();
    }
    il_copy(&il.stack[il.depth + 1], &il.stack[il.depth]);
    il.depth++;
    il_in(il_top());
    return il_top();
}

/* Does the pending step of actor i in the state on top with the given answer (wait, wake and choose
 * only). */
static void il_advance(unsigned i, uint64_t answer)
{
    struct il_state *s = il_top();
    struct il_actor *a = &s->actors[i];
    struct il_step step = a->next;
    if (!a->begun) {
        memcpy(il.w.private[i], a -> private, il.w.private_bytes);
        il.w.begins(i);
        a->begun = true;
    }
    a->has_step = false;
    if (step.kind == IL_CHOOSE || step.kind == IL_WAIT || step.kind == IL_WAKE)
        step.value = answer;
    uint64_t got = il_do(i, &step);
    il_remember(a, got);
    il_settle(s, i);
    unsigned g = step.kind <= IL_STORE ? il.w.group(step.offset) : 0;
    while (!il_result.failure && g > 1 && a->status == IL_RUNS && a->has_step && a->begun &&
           a->steps > 0 && a->next.kind == step.kind && il.w.group(a->next.offset) == g) {
        step = a->next;
        a->has_step = false;
        il_remember(a, il_do(i, &step));
        il_settle(s, i);
    }
    s->current = (int)i;
    il_out(s);
}

static void il_wake(unsigned i)
{
    const struct il_step step = il_top()->actors[i].next;
    unsigned sleepers[IL_ACTORS_MAX], count = 0;
    for (unsigned k = 0; k < il.w.actors; k++) {
        const struct il_actor *a = &il_top()->actors[k];
        if (a->status == IL_SLEEPS && a->next.offset == step.offset)
            sleepers[count++] = k;
    }
    bool all = step.value >= count;
    /* Which one the kernel wakes is open. */
    for (unsigned first = 0; first < (all ? 1 : count) && !il_result.failure; first++) {
        struct il_state *s = il_push();
        unsigned woken = all ? count : (unsigned)step.value;
        for (unsigned k = 0; k < woken; k++) {
            struct il_actor *a = &s->actors[sleepers[(first + k) % count]];
            a->status = IL_RUNS;
            a->has_step = false;
            il_remember(a, 1);
            il_settle(s, sleepers[(first + k) % count]);
            il_result.wakes++;
        }
        il_advance(i, woken);
        il_enter("wakes", i);
        il.depth--;
    }
}

static void il_step_actor(unsigned i)
{
    const struct il_step step = il_top()->actors[i].next;
    if (step.kind == IL_WAKE) {
        il_wake(i);
        return;
    }
    unsigned count = 1;
    if (step.kind == IL_CHOOSE) {
        il_in(il_top());
        count = il.w.choices(i, (unsigned)step.expected);
    }
    for (unsigned c = 0; c < count && !il_result.failure; c++) {
        struct il_state *s = il_push();
        uint64_t now = 0;
        memcpy(&now, s->shared + step.offset, step.bytes);
        if (step.kind == IL_WAIT && now == step.value) {
            s->actors[i].status = IL_SLEEPS;
            s->current = (int)i;
        } else {
            il_advance(i, c);
        }
        il_enter("steps", i);
        il.depth--;
    }
}

/* Actors that waited for something the watcher knows may begin now. */
static void il_rouse(struct il_state *s)
{
    il_in(s);
    for (unsigned i = 0; i < il.w.actors; i++)
        if (s->actors[i].status == IL_IDLE)
            il_settle(s, i);
    il_out(s);
}

static bool il_could(const struct il_state *s, int i)
{
    return i >= 0 && s->actors[i].status == IL_RUNS && s->actors[i].has_step;
}

static void il_strike(unsigned i, enum il_status how)
{
    enum il_status status = il_top()->actors[i].status;
    if (status != IL_RUNS && status != IL_SLEEPS)
        return;
    struct il_state *s = il_push();
    s->actors[i].status = how;
    /* What it would have done next is of no interest any more. */
    s->actors[i].has_step = false;
    s->actors[i].steps = 0;
    if (how == IL_DEAD) {
        s->kills--;
        il_result.deaths++;
        il.w.died(i);
        il_out(s);
    } else {
        s->stops--;
        il_result.stops++;
    }
    il_enter(how == IL_DEAD ? "dies" : "stops", i);
    il.depth--;
}

static void il_visit(void)
{
    struct il_state *s = il_top();
    if (il_result.states >= il.w.states_max) {
        il_result.complete = false;
        return;
    }
    il_result.states++;
    il_rouse(s);
    bool moved = false;
    int before = s->current;
    bool could = il_could(s, before);
    for (unsigned i = 0; i < il.w.actors && !il_result.failure; i++) {
        if (!il_could(s, (int)i))
            continue;
        moved = true;
        if (s->preemptions != IL_BOUNDLESS && could && (int)i != before) {
            if (s->preemptions == 0)
                continue;
            s->preemptions--;
            il_step_actor(i);
            s->preemptions++;
            continue;
        }
        il_step_actor(i);
    }
    for (unsigned i = 0; i < il.w.actors && !il_result.failure; i++) {
        if (s->kills > 0)
            il_strike(i, IL_DEAD);
        if (s->stops > 0 && !il_result.failure)
            il_strike(i, IL_STOPPED);
    }
    if (!moved && !il_result.failure) {
        il_result.ends++;
        il_in(s);
        for (unsigned i = 0; i < il.w.actors; i++)
            memcpy(il.w.private[i], s -> actors[i].private, il.w.private_bytes);
        il.direct = true;
        il.w.at_end();
        il.direct = false;
        if (il_result.failure) {
            printf("%s; the way there:\n", il_result.failure);
            for (unsigned d = 1; d <= il.depth; d++)
                printf("  %s\n", il.way[d]);
        }
    }
}

static enum il_status il_status_of(unsigned actor) { return il_top()->actors[actor].status; }

static void interleave(const struct il_world *world)
{
    if (world->shared_bytes > IL_SHARED_MAX || world->watch_bytes > IL_WATCH_MAX ||
        world->private_bytes > IL_PRIVATE_MAX || world->actors > IL_ACTORS_MAX)
        abort();
    memset(&il_result, 0, sizeof il_result);
    memset(&il, 0, sizeof il);
    il.w = *world;
    il.stack = calloc(IL_DEPTH_MAX, sizeof *il.stack);
    il.way = calloc(IL_DEPTH_MAX, sizeof *il.way);
    il.set_mask = (1u << 18) - 1;
    il.set = calloc(il.set_mask + 1, sizeof *il.set);
    if (!il.stack || !il.way || !il.set)
        abort();
    il_result.complete = true;
    struct il_state *s = il_top();
    s->kills = world->kills;
    s->stops = world->stops;
    s->preemptions = world->preemptions;
    s->current = -1;
    for (unsigned i = 0; i < world->actors; i++)
        memcpy(s->actors[i].private, world->private[i], world -> private_bytes);
    il_out(s);
    il_rouse(s);
    if (!il_result.failure && !il_seen(s))
        il_visit();
    free(il.stack);
    free(il.way);
    free(il.set);
}

#endif
