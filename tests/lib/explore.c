/* SPDX-License-Identifier: MIT */
#define PAWL_ATOMIC_STEP
#include "lib/explore.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/atomic.h"
#include "base/hash.h"

#define STEPS_MAX 160
#define BUFFER_MAX 12
#define DEPTH_MAX 400

enum step_kind {
    STEP_NONE,
    STEP_LOAD,
    STEP_STORE,
    STEP_ADD,
    STEP_SWAP,
    STEP_WAIT,
    STEP_WAKE,
    STEP_AWAIT
};

struct step {
    uint64_t value;
    uint16_t offset;
    uint8_t kind, bytes, order, reserved[3];
};

struct actor {
    uint64_t seen; /* hash of the history */
    struct step next;
    struct step buffer[BUFFER_MAX];
    uint8_t status, steps, buffered, reserved[5];
};

/* What is hashed: everything that the future depends on. */
struct state {
    struct actor actors[EXPLORE_ACTORS_MAX];
    uint8_t deaths, reserved[7];
    uint8_t arena[EXPLORE_ARENA_BYTES_MAX];
};

static struct {
    const struct explore_options *o;
    struct explore_result *r;
    uint64_t history[EXPLORE_ACTORS_MAX][STEPS_MAX];
    uint8_t out[EXPLORE_ACTORS_MAX][EXPLORE_OUT_BYTES];
    /* the actor that runs */
    unsigned current, at, have;
    struct step pending;
    jmp_buf leave;
    const char *failure;
    /* seen states */
    uint64_t *set, set_mask, set_count;
    /* the way here */
    char way[DEPTH_MAX][72];
    unsigned depth;
} x;

/* --- inside an actor ------------------------------------------------------------------------- */

_Noreturn void explore_fail(const char *why)
{
    x.failure = why;
    longjmp(x.leave, 2);
}

static uint64_t access_word(enum step_kind kind, const void *p, unsigned bytes, uint64_t value,
                            int order)
{
    if (x.at < x.have)
        return x.history[x.current][x.at++];
    size_t offset = (size_t)((const uint8_t *)p - (const uint8_t *)x.o->arena);
    if (offset + bytes > x.o->arena_bytes || offset % bytes != 0)
        explore_fail("an access outside the arena");
    x.pending = (struct step){ .kind = (uint8_t)kind,
                               .offset = (uint16_t)offset,
                               .bytes = (uint8_t)bytes,
                               .value = value,
                               .order = (uint8_t)order };
    longjmp(x.leave, 1);
}

uint64_t pawl_step_load(const void *p, unsigned bytes, enum pawl_step_order order)
{
    return access_word(STEP_LOAD, p, bytes, 0, order);
}
void pawl_step_store(void *p, uint64_t v, unsigned bytes, enum pawl_step_order order)
{
    (void)access_word(STEP_STORE, p, bytes, v, order);
}
uint64_t pawl_step_add(void *p, uint64_t v, unsigned bytes)
{
    return access_word(STEP_ADD, p, bytes, v, PAWL_STEP_SEQ);
}
uint64_t pawl_step_swap(void *p, uint64_t v, unsigned bytes)
{
    return access_word(STEP_SWAP, p, bytes, v, PAWL_STEP_SEQ);
}
bool explore_wait(const uint32_t *word, uint32_t value)
{
    return access_word(STEP_WAIT, word, 4, value, PAWL_STEP_SEQ) != 0;
}
void explore_wake(const uint32_t *word) { (void)access_word(STEP_WAKE, word, 4, 0, PAWL_STEP_SEQ); }
bool explore_await_u64(const uint64_t *word, uint64_t value)
{
    return access_word(STEP_AWAIT, word, 8, value, PAWL_STEP_SEQ) != 0;
}

/* --- one actor, one step --------------------------------------------------------------------- */

/* Runs actor i up to its first access that is not in its history. */
static void run_actor(struct state *s, unsigned i)
{
    struct actor *a = &s->actors[i];
    x.current = i;
    x.at = 0;
    x.have = a->steps;
    memset(x.out[i], 0, sizeof x.out[i]);
    memset(&a->next, 0, sizeof a->next);
    switch (setjmp(x.leave)) {
    case 0:
        x.o->actors[i](x.out[i]);
        a->status = EXPLORE_DONE;
        break;
    case 1:
        a->next = x.pending;
        break;
    default:
        break; /* x.failure is set */
    }
}

static void remember(struct state *s, unsigned i, uint64_t value)
{
    struct actor *a = &s->actors[i];
    if (a->steps == STEPS_MAX) {
        x.failure = "an actor takes too many steps";
        return;
    }
    x.history[i][a->steps++] = value;
    a->seen = pawl_hash_u64(a->seen * 31 + value + 1) + a->steps;
    a->status = EXPLORE_RUNS;
    run_actor(s, i);
}

static uint64_t read_arena(const struct state *s, unsigned offset, unsigned bytes)
{
    uint64_t v = 0;
    memcpy(&v, s->arena + offset, bytes);
    return v;
}
static void write_arena(struct state *s, const struct step *w)
{
    memcpy(s->arena + w->offset, &w->value, w->bytes);
}

static uint64_t read_word(const struct state *s, const struct actor *a, const struct step *w)
{
    for (unsigned k = a->buffered; k-- > 0;) {
        const struct step *b = &a->buffer[k];
        if (b->offset == w->offset && b->bytes == w->bytes)
            return b->value;
        if (b->offset < w->offset + w->bytes && w->offset < b->offset + b->bytes)
            x.failure = "a load of a part of a buffered store";
    }
    return read_arena(s, w->offset, w->bytes);
}

static void take_out(struct state *s, struct actor *a, unsigned k)
{
    write_arena(s, &a->buffer[k]);
    a->buffered--;
    memmove(&a->buffer[k], &a->buffer[k + 1], (a->buffered - k) * sizeof a->buffer[0]);
    memset(&a->buffer[a->buffered], 0, sizeof a->buffer[0]);
}

static void empty_buffer(struct state *s, struct actor *a)
{
    while (a->buffered)
        take_out(s, a, 0);
}

/* May entry k come out now? */
static bool may_leave(const struct actor *a, unsigned k)
{
    if (a->buffer[k].order != PAWL_STEP_RLX)
        return k == 0;
    for (unsigned j = 0; j < k; j++)
        if (a->buffer[j].offset < a->buffer[k].offset + a->buffer[k].bytes &&
            a->buffer[k].offset < a->buffer[j].offset + a->buffer[j].bytes)
            return false;
    return true;
}

static void wake_sleepers(struct state *s, unsigned offset)
{
    for (unsigned i = 0; i < x.o->actor_count; i++) {
        struct actor *a = &s->actors[i];
        if (a->status == EXPLORE_SLEEPS && a->next.kind == STEP_WAIT && a->next.offset == offset) {
            x.r->wakes++;
            remember(s, i, 1);
        }
    }
}

/* Performs the pending access of actor i. */
static void step_actor(struct state *s, unsigned i)
{
    struct actor *a = &s->actors[i];
    struct step w = a->next;
    uint64_t v = 0;
    switch (w.kind) {
    case STEP_LOAD:
        v = read_word(s, a, &w);
        break;
    case STEP_STORE:
        if (w.order == PAWL_STEP_SEQ || x.o->strong) {
            empty_buffer(s, a);
            write_arena(s, &w);
        } else if (a->buffered == BUFFER_MAX) {
            x.failure = "a store buffer is full: make the test smaller";
        } else {
            a->buffer[a->buffered++] = w;
        }
        break;
    case STEP_ADD:
    case STEP_SWAP:
        empty_buffer(s, a);
        v = read_arena(s, w.offset, w.bytes);
        w.value = w.kind == STEP_ADD ? v + w.value : w.value;
        v = w.kind == STEP_ADD ? w.value : v;
        write_arena(s, &w);
        break;
    case STEP_WAIT:
    case STEP_AWAIT:
        empty_buffer(s, a);
        if (read_arena(s, w.offset, w.bytes) == w.value) {
            a->status = EXPLORE_SLEEPS;
            x.r->sleeps++;
            return;
        }
        v = 1;
        break;
    case STEP_WAKE:
        empty_buffer(s, a);
        wake_sleepers(s, w.offset);
        break;
    default:
        x.failure = "an actor without a step";
        return;
    }
    remember(s, i, v);
}

/* --- all of them ----------------------------------------------------------------------------- */

static bool seen_before(const struct state *s)
{
    struct pawl_hash128 h =
        pawl_hash128(s, offsetof(struct state, arena) + x.o->arena_bytes, 0x9e3779b9u);
    uint64_t key = (h.low ^ (h.high << 1)) | 1;
    if (2 * (x.set_count + 1) > x.set_mask) {
        uint64_t old_mask = x.set_mask, *old = x.set;
        x.set_mask = 2 * old_mask + 1;
        x.set = calloc(x.set_mask + 1, sizeof *x.set);
        if (!x.set) {
            fprintf(stderr, "explore: no memory for %" PRIu64 " states\n", x.set_count);
            exit(1);
        }
        for (uint64_t i = 0; i <= old_mask; i++)
            if (old[i])
                for (uint64_t k = old[i] >> 1;; k++)
                    if (!x.set[k & x.set_mask]) {
                        x.set[k & x.set_mask] = old[i];
                        break;
                    }
        free(old);
    }
    for (uint64_t k = key >> 1;; k++) {
        uint64_t *slot = &x.set[k & x.set_mask];
        if (*slot == key)
            return true;
        if (!*slot) {
            *slot = key;
            x.set_count++;
            return false;
        }
    }
}

static void explain(void)
{
    size_t at = 0;
    for (unsigned d = 0; d < x.depth && at < sizeof x.r->trace; d++)
        at += (size_t)snprintf(x.r->trace + at, sizeof x.r->trace - at, "%s\n", x.way[d]);
    x.r->failure = x.failure;
}

static void visit(const struct state *s);

/* Goes to a next state and explores what follows. The histories need no way back: a branch writes
 * behind the steps of the state it started from, never into them. */
static void enter(const struct state *after)
{
    if (x.depth + 1 >= DEPTH_MAX)
        x.failure = "too deep";
    x.depth++;
    if (x.depth > x.r->depth)
        x.r->depth = x.depth;
    x.r->steps++;
    if (x.failure)
        explain();
    else if (!seen_before(after))
        visit(after);
    x.depth--;
}

static const char *const kind_names[] = { "none", "load", "store", "add",
                                          "swap", "wait", "wake",  "await" };
static const char order_names[] = "xarS";

static void say(const char *what, unsigned i, const struct step *w)
{
    snprintf(x.way[x.depth], sizeof x.way[0], "actor %u %s %s%c @%u/%u %" PRIx64, i, what,
             kind_names[w->kind], order_names[w->order], w->offset, w->bytes, w->value);
}

static void try_steps(const struct state *s, unsigned i, bool *moved)
{
    const struct actor *a = &s->actors[i];
    struct state n;
    bool peer_died = s->deaths != 0;
    if (a->status == EXPLORE_RUNS) {
        n = *s;
        say("does", i, &a->next);
        step_actor(&n, i);
        *moved = true;
        enter(&n);
    } else if (a->status == EXPLORE_SLEEPS) {
        bool changed = a->next.kind == STEP_AWAIT &&
                       read_arena(s, a->next.offset, a->next.bytes) != a->next.value;
        if (changed || peer_died) {
            n = *s;
            say(changed ? "sees" : "gives up", i, &a->next);
            remember(&n, i, changed);
            *moved = true;
            enter(&n);
        }
    }
}

static void try_buffer(const struct state *s, unsigned i, bool *moved)
{
    for (unsigned k = 0; k < s->actors[i].buffered && !x.failure; k++) {
        if (!may_leave(&s->actors[i], k))
            continue;
        struct state n = *s;
        say("shows", i, &s->actors[i].buffer[k]);
        take_out(&n, &n.actors[i], k);
        x.r->delayed++;
        *moved = true;
        enter(&n);
    }
}

static void try_death(const struct state *s, unsigned i)
{
    const struct actor *a = &s->actors[i];
    if (s->deaths >= x.o->kills || a->status == EXPLORE_DEAD || a->status == EXPLORE_DONE)
        return;
    struct state n = *s;
    say("dies before", i, &a->next);
    n.actors[i].status = EXPLORE_DEAD;
    n.deaths++;
    x.r->deaths++;
    enter(&n);
}

static void at_end(const struct state *s)
{
    struct explore_end end = { .arena = s->arena };
    x.r->ends++;
    for (unsigned i = 0; i < x.o->actor_count; i++) {
        struct state n = *s;
        uint8_t status = s->actors[i].status;
        run_actor(&n, i); /* for its out */
        end.status[i] = (enum explore_status)status;
        end.out[i] = x.out[i];
    }
    if (!x.failure)
        x.failure = x.o->check(&end);
    if (x.failure)
        explain();
}

static void visit(const struct state *s)
{
    bool moved = false;
    if (x.r->failure)
        return;
    if (++x.r->states > x.o->states_max) {
        x.r->complete = false;
        return;
    }
    for (unsigned i = 0; i < x.o->actor_count && !x.failure; i++)
        try_steps(s, i, &moved);
    for (unsigned i = 0; i < x.o->actor_count && !x.failure; i++)
        try_buffer(s, i, &moved);
    for (unsigned i = 0; i < x.o->actor_count && !x.failure; i++)
        try_death(s, i);
    if (!moved && !x.failure)
        at_end(s);
}

void explore(const struct explore_options *options, struct explore_result *result)
{
    static struct state first;
    memset(&x, 0, sizeof x);
    memset(&first, 0, sizeof first);
    memset(result, 0, sizeof *result);
    if (options->arena_bytes > EXPLORE_ARENA_BYTES_MAX ||
        options->actor_count > EXPLORE_ACTORS_MAX) {
        result->failure = "options out of range";
        return;
    }
    x.o = options;
    x.r = result;
    x.set_mask = (1u << 16) - 1;
    x.set = calloc(x.set_mask + 1, sizeof *x.set);
    result->complete = true;
    memcpy(first.arena, options->arena, options->arena_bytes);
    for (unsigned i = 0; i < options->actor_count && !x.failure; i++)
        run_actor(&first, i);
    if (x.failure)
        explain();
    else if (!seen_before(&first))
        visit(&first);
    free(x.set);
}
