/* SPDX-License-Identifier: MIT */
/* Core, log and the two rows of effects between decision and publication.
 *
 * Order of effects (G9, G11, trap 5 of the measured path). An effect goes
 *   - into `waiting` if the log is not durable beyond its wait_lsn, or if an earlier effect of its
 *     lane still stands there: so those of one lane that wait at all go out in the order in which
 *     they were made;
 *   - into `ready` otherwise, which is written out before `waiting` is looked at. wait_lsn 0
 *     (relaxed, memory) always goes there and may so overtake what waits: core.h allows it.
 * `waiting` is served from its head only. Its wait_lsn grow but for memory queues, whose older ones
 * then wait a little longer than they must: never shorter.
 *
 * Neither row is written out from inside the core, which would otherwise be asked to write a
 * delivery in the middle of the decision that made it. An answer is not of the core any more: one
 * that would go into an empty `ready` is written at once. The client sees it when the turn's
 * completions are published, as it would have (not after a failed write: G8). */
#include "loop/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/hash.h"
#include "loop/engine_inner.h"

#define DRAIN_STEP_NS 50000000ull
#define DRAIN_STEPS 200
#define FIRST_RECORDS_MAX 4096u
#define TIMER_ROOM_MIN 4096u /* more than any record of one timer */

/* --- what the core asks for ------------------------------------------------------------------ */

static uint64_t port_room(void *ctx) { return pawl_engine_room(ctx); }

static void *port_append(void *ctx, uint16_t type, uint32_t bytes, uint64_t *lsn)
{
    struct pawl_engine *e = ctx;
    if (!pawl_log_pending(e->log))
        e->open_since = e->boot;
    e->active_at = e->boot;
    e->records++;
    return pawl_log_append(e->log, type, bytes, lsn);
}

static uint64_t port_appended(void *ctx)
{
    const struct pawl_engine *e = ctx;
    return pawl_log_appended(e->log);
}

static uint64_t port_random(void *ctx)
{
    struct pawl_engine *e = ctx;
    return e->lanes.random(e->lanes.ctx);
}

static bool port_reserve(void *ctx, uint32_t lane, uint32_t bytes)
{
    struct pawl_engine *e = ctx;
    return e->lanes.reserve(e->lanes.ctx, lane, bytes);
}

static bool may_go_out(const struct pawl_engine *e, uint32_t lane, uint64_t wait_lsn)
{
#ifdef PAWL_BUG_PUBLISH_EARLY
    return true;
#endif
    return wait_lsn == 0 || (wait_lsn < pawl_log_durable(e->log)
#ifndef PAWL_BUG_EFFECT_ORDER
                             && e->lane_waiting[lane] == 0
#endif
                            );
}

static struct pawl_effect *port_effect(void *ctx, uint32_t lane, uint64_t wait_lsn)
{
    struct pawl_engine *e = ctx;
    PAWL_ASSERT_REL(lane, <, PAWL_ENGINE_LANES_MAX);
    struct pawl_effects *row = &e->ready;
    if (!may_go_out(e, lane, wait_lsn)) {
        row = &e->waiting;
        e->lane_waiting[lane]++;
        e->want_lsn = pawl_max_u64(e->want_lsn, wait_lsn);
    }
    struct pawl_effect *effect = pawl_effects_push(row);
    effect->wait_lsn = wait_lsn;
    effect->lane = lane;
    return effect;
}

static bool port_answer(void *ctx, uint32_t lane, uint64_t wait_lsn,
                        const struct pawl_core_answer *answer)
{
    const struct pawl_engine *e = ctx;
    PAWL_ASSERT_REL(lane, <, PAWL_ENGINE_LANES_MAX);
#ifndef PAWL_BUG_ANSWER_PASSES_READY
    if (e->ready.count != 0)
        return false;
#endif
    if (!may_go_out(e, lane, wait_lsn))
        return false;
    e->lanes.answer(e->lanes.ctx, lane, wait_lsn, answer);
    return true;
}

static void *port_memory_map(void *ctx, size_t bytes)
{
    (void)ctx;
    /* No reserve: the pools ask for the address space of all that they could ever hold. */
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_DONTDUMP); /* payloads stay out of core dumps (P9) */
    return p;
}

static void port_memory_unmap(void *ctx, void *p, size_t bytes)
{
    (void)ctx;
    (void)munmap(p, bytes);
}

static void port_memory_touch(void *ctx, void *p, size_t bytes)
{
    (void)ctx;
    /* Where it fails (memory is short, a limit of the group) the pages come by faults, or not, as
     * they would have. */
    (void)madvise(p, bytes, MADV_POPULATE_WRITE);
}

/* --- open and close -------------------------------------------------------------------------- */

/* The core must know the size of a segment, which an existing log says for itself: so the core is
 * made with the first record, or after the log was opened without any. */
static int core_ensure(struct pawl_engine *e)
{
    if (e->core)
        return 0;
    const struct pawl_core_port port = {
        .ctx = e,
        .room = port_room,
        .append = port_append,
        .appended = port_appended,
        .random = port_random,
        .reserve = port_reserve,
        .effect = port_effect,
        .answer = port_answer,
        .memory_map = port_memory_map,
        .memory_unmap = port_memory_unmap,
        .memory_touch = port_memory_touch,
    };
    PAWL_ASSERT(pawl_is_pow2(e->info->segment_bytes));
    e->core_options.segment_bytes = e->info->segment_bytes;
    /* A send may stand behind the records that make its session known. */
    PAWL_ASSERT_REL(e->info->record_bytes_max, >, FIRST_RECORDS_MAX);
    e->core_options.record_bytes_max = e->info->record_bytes_max - FIRST_RECORDS_MAX;
    /* Names of dedup keys are hashes under it: it is the same in every life of this log. */
    if (e->core_options.hash_seed == 0)
        e->core_options.hash_seed = pawl_hash64(e->info->log_id, sizeof e->info->log_id, 1);
    e->core = pawl_core_create(&e->core_options, &port);
    return e->core ? 0 : -ENOMEM;
}

static int replay(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    struct pawl_engine *e = ctx;
    if (core_ensure(e) != 0) {
        e->replay_failed = true;
        return -1;
    }
    return pawl_core_replay(e->core, lsn, type, body, bytes);
}

static void engine_free(struct pawl_engine *e)
{
    if (e->core)
        pawl_core_destroy(e->core);
    pawl_effects_fini(&e->ready);
    pawl_effects_fini(&e->waiting);
    if (e->lane_waiting)
        (void)munmap(e->lane_waiting, PAWL_ENGINE_LANES_MAX * sizeof *e->lane_waiting);
    free(e);
}

static struct pawl_engine *engine_new(struct pawl_io *io, const struct pawl_engine_options *options,
                                      const struct pawl_engine_lanes *lanes)
{
    struct pawl_engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    uint64_t bound = options->effects_max ? options->effects_max : options->core.memory_bytes / 40;
    void *counts = mmap(NULL, PAWL_ENGINE_LANES_MAX * sizeof *e->lane_waiting,
                        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (counts != MAP_FAILED)
        e->lane_waiting = counts;
    if (!e->lane_waiting || pawl_effects_init(&e->ready, bound) != 0 ||
        pawl_effects_init(&e->waiting, bound) != 0) {
        engine_free(e);
        return NULL;
    }
    e->io = io;
    e->lanes = *lanes;
    e->core_options = options->core;
    e->relaxed_window_ns = options->relaxed_window_ns;
    e->block_bytes = options->log.block_bytes;
    e->in_flight_max = options->log.in_flight_max;
    e->boot = options->log.boot_ns;
    e->now.wall = options->log.wall_ns;
    return e;
}

int pawl_engine_open(struct pawl_io *io, const struct pawl_engine_options *options,
                     const struct pawl_engine_lanes *lanes, struct pawl_engine **out,
                     struct pawl_log_info *info, char text[PAWL_LOG_TEXT_BYTES])
{
    *out = NULL;
    struct pawl_engine *e = engine_new(io, options, lanes);
    if (!e) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "no address space for %llu bytes of memory",
                 (unsigned long long)options->core.memory_bytes);
        return PAWL_LOG_CANNOT;
    }
    e->info = info;
    int rc = pawl_log_open(io, &options->log, replay, e, &e->log, info, text);
    if (rc != PAWL_LOG_OK) {
        if (e->replay_failed) {
            snprintf(text, PAWL_LOG_TEXT_BYTES, "no memory for the core");
            rc = PAWL_LOG_CANNOT;
        }
        engine_free(e);
        return rc;
    }
    e->segment_bytes = info->segment_bytes;
    e->record_bytes_max = info->record_bytes_max;
    e->now.time = info->time_ns;
    e->shift = info->time_ns - options->log.boot_ns; /* wraps below zero; only ever added back */
    e->sealed = e->settled = pawl_log_appended(e->log);
    e->active_at = e->boot;
    if (core_ensure(e) == 0)
        pawl_core_booted(e->core, info->boot_epoch);
    if (!e->core) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "no memory for the core");
        rc = PAWL_LOG_CANNOT;
    } else if (pawl_core_start(e->core, e->now, info->epoch, info->same_boot) != 0) {
        snprintf(text, PAWL_LOG_TEXT_BYTES,
                 "the log names a queue or a session that it never defines");
        rc = PAWL_LOG_DAMAGE;
    }
    e->info = NULL;
    e->room_was = pawl_engine_room(e);
    if (rc != PAWL_LOG_OK) {
        pawl_log_close(e->log);
        engine_free(e);
        return rc;
    }
    *out = e;
    return PAWL_LOG_OK;
}

bool pawl_engine_quiesce(struct pawl_engine *engine)
{
    struct pawl_engine *e = engine;
    /* The bound is for a full disk, which may stay full for ever. */
    for (int idle = 0; idle < DRAIN_STEPS && !pawl_log_failed(e->log);) {
        (void)pawl_engine_publish(e);
        pawl_engine_seal(e, true);
        if (!pawl_log_pending(e->log) && pawl_log_in_flight(e->log) == 0) {
            (void)pawl_engine_publish(e);
            return !pawl_log_failed(e->log);
        }
        pawl_log_tend(e->log, e->boot);
        int n = e->io->ops->wait(e->io, DRAIN_STEP_NS);
        if (n < 0 && n != -EINTR)
            return false;
        if (n > 0) {
            idle = 0;
        } else {
            idle++;
            /* Nothing happened for as long; there is no clock here. All clocks, or the next start
             * would find pawl time behind, or count these steps twice after a reboot (C3). */
            uint64_t step = n == 0 ? DRAIN_STEP_NS : 0;
            e->boot += step;
            e->now.time += step;
            e->now.wall += step;
        }
    }
    return false;
}

/* The marker waits for the head of a segment that was just begun, or for the next segment. */
static bool mark_clean(struct pawl_engine *e)
{
    for (int idle = 0; idle < DRAIN_STEPS && pawl_engine_quiesce(e);) {
        pawl_log_mark(e->log, true, e->now.time, e->boot, e->now.wall);
        if (pawl_log_in_flight(e->log) > 0)
            return true;
        pawl_log_tend(e->log, e->boot);
        int n = e->io->ops->wait(e->io, DRAIN_STEP_NS);
        if (n < 0 && n != -EINTR)
            return false;
        idle = n > 0 ? 0 : idle + 1;
    }
    return false;
}

static void drop_all(struct pawl_engine *e, struct pawl_effects *row)
{
    for (; row->count > 0; pawl_effects_pop(row)) {
        const struct pawl_effect *effect = pawl_effects_first(row);
        if (effect->type != PAWL_EFFECT_ANSWER)
            pawl_core_effect_done(e->core, effect, false, 0);
    }
}

int pawl_engine_close(struct pawl_engine *engine, bool clean)
{
    struct pawl_engine *e = engine;
    int rc = PAWL_LOG_OK;
    if (clean) {
        if (!mark_clean(e) || !pawl_engine_quiesce(e))
            rc = PAWL_LOG_FAILED;
    }
    drop_all(e, &e->ready);
    drop_all(e, &e->waiting);
    pawl_log_close(e->log);
    engine_free(e);
    return rc;
}

/* --- turn ------------------------------------------------------------------------------------ */

struct pawl_core *pawl_engine_core(struct pawl_engine *engine) { return engine->core; }
struct pawl_log *pawl_engine_log(struct pawl_engine *engine) { return engine->log; }
uint64_t pawl_engine_shift(const struct pawl_engine *engine) { return engine->shift; }
bool pawl_engine_failed(const struct pawl_engine *engine) { return pawl_log_failed(engine->log); }
uint64_t pawl_engine_progress(const struct pawl_engine *engine) { return engine->progress; }

void pawl_engine_counts(const struct pawl_engine *engine, uint64_t *records, uint64_t *blocks)
{
    *records = engine->records;
    *blocks = engine->blocks;
}

uint32_t pawl_engine_waiting(const struct pawl_engine *engine)
{
    return engine->waiting.count + engine->ready.count;
}

bool pawl_engine_lane_idle(const struct pawl_engine *engine, uint32_t lane)
{
    PAWL_ASSERT_REL(lane, <, PAWL_ENGINE_LANES_MAX);
    return engine->ready.count == 0 && engine->lane_waiting[lane] == 0;
}

struct pawl_now pawl_engine_now(struct pawl_engine *engine, uint64_t boot_ns, uint64_t wall_ns)
{
    /* The boot clock never goes back; a caller that mixes threads could still hand in an old one.
     */
    if (boot_ns > engine->boot) {
        engine->boot = boot_ns;
        engine->now.time = boot_ns + engine->shift;
    }
    engine->now.wall = wall_ns;
    pawl_core_clock(engine->core, engine->now);
    return engine->now;
}

uint64_t pawl_engine_room(const struct pawl_engine *engine)
{
    if (engine->squeezed && !engine->copying)
        return 0;
    uint64_t room = pawl_log_room(engine->log);
    /* An empty block is nobody's: a record that needs all of one must find it some time. */
    if (engine->copying || engine->reserve == 0 || !pawl_log_pending(engine->log))
        return room;
    return room > engine->reserve ? room - engine->reserve : 0;
}

uint64_t pawl_engine_free(const struct pawl_engine *engine)
{
    /* Where some command would be treated otherwise than by its need alone, each is looked at. */
    if (pawl_log_failed(engine->log) || engine->refusing != PAWL_LIMIT_NONE || engine->hold_sends)
        return 0;
    return pawl_min_u64(pawl_engine_room(engine), engine->block_bytes);
}

bool pawl_engine_admits(struct pawl_engine *engine, const struct pawl_cmd *head)
{
    if (pawl_log_failed(engine->log))
        return false;
    /* What will be refused needs no room, and must not stand in the way of an ack (L4). */
    if (engine->refusing != PAWL_LIMIT_NONE && head->type == PAWL_CMD_SEND)
        return true;
    /* What is larger than any record is refused by the core, for want of a place to put it. */
    uint64_t need = pawl_min_u64(pawl_core_need(head), engine->record_bytes_max);
    bool fits = pawl_engine_room(engine) >= need ||
                (need > engine->block_bytes && pawl_log_admit(engine->log, need));
    if (fits && !(engine->hold_sends && head->type == PAWL_CMD_SEND))
        return true;
    engine->starved = true;
    return false;
}

static void write_out(struct pawl_engine *e, const struct pawl_effect *effect)
{
    e->lanes.write(e->lanes.ctx, effect);
}

uint32_t pawl_engine_flush(struct pawl_engine *engine)
{
    uint32_t n = 0;
    for (; engine->ready.count > 0; pawl_effects_pop(&engine->ready), n++)
        write_out(engine, pawl_effects_first(&engine->ready));
    return n;
}

uint32_t pawl_engine_publish(struct pawl_engine *engine)
{
    /* G8: after a failed write nothing more goes out, not even what needed no disk. */
    if (pawl_log_failed(engine->log))
        return 0;
    uint64_t durable = pawl_log_durable(engine->log);
    if (durable != engine->durable_was) {
        engine->durable_was = durable;
        engine->active_at = engine->boot;
        engine->progress++;
        engine->starved = false;
    }
    uint32_t n = pawl_engine_flush(engine);
    struct pawl_effects *row = &engine->waiting;
    for (; row->count > 0 && pawl_effects_first(row)->wait_lsn < durable; n++) {
        const struct pawl_effect *effect = pawl_effects_first(row);
        engine->lane_waiting[effect->lane]--;
        write_out(engine, effect);
        pawl_effects_pop(row);
    }
    return n;
}

bool pawl_engine_timers(struct pawl_engine *engine, uint32_t budget)
{
    if (pawl_log_failed(engine->log))
        return false;
    bool more = pawl_core_tick(engine->core, engine->now, budget);
    if (more && pawl_engine_room(engine) < TIMER_ROOM_MIN) {
        engine->starved = true; /* the disk will wake us, a second look would not help */
        return false;
    }
    return more;
}
