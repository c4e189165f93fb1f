/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_ENGINE_H
#define PAWL_BROKER_ENGINE_H

/* Core, log and the row of effects that wait for the disk, as one machine without lanes, sockets or
 * clocks. The loop drives it with real lanes, the simulator with its own; so what the simulator
 * proves is what the broker runs.
 *
 * Its turn, called by the owner in this order:
 *   pawl_io_wait()            completions of writes (log.h)
 *   pawl_engine_publish()     effects whose record is durable go out, in order
 *   pawl_engine_timers()      a bounded number of due timers
 *   pawl_core_take() ...      commands, each after pawl_engine_admits()
 *   pawl_engine_settle()      pump, copy-forward, segment work, seal, marker when idle
 */

#include "core/core.h"
#include "log/log.h"

struct pawl_engine;

/* Where effects go. write: claim effect->bytes in the lane's completion ring (for ANSWER the owner
 * may merge it into the last one), fill it with pawl_core_effect_write(), then call
 * pawl_core_effect_done(). A lane that is gone drops it. Never called from inside the core: effects
 * that need not wait stand in a row of their own until the next publish or settle, but for answers
 * with nothing before them in it.
 *
 * Handles of lanes are numbers below PAWL_ENGINE_LANES_MAX, best small ones; one is given to
 * another lane only when pawl_engine_lane_idle() says that nothing waits for the old one. */
#define PAWL_ENGINE_LANES_MAX (1u << 20)
struct pawl_engine_lanes {
    void *ctx;
    bool (*reserve)(void *ctx, uint32_t lane, uint32_t bytes);
    void (*write)(void *ctx, const struct pawl_effect *effect);
    /* As write of an ANSWER, from inside the core: it may not call back into it. */
    void (*answer)(void *ctx, uint32_t lane, uint64_t wait_lsn,
                   const struct pawl_core_answer *answer);
    uint64_t (*random)(void *ctx);
};

struct pawl_engine_options {
    struct pawl_log_options log;
    struct pawl_core_options core;
    uint64_t relaxed_window_ns;
    /* Bound of effects that wait, that is of what completion rings can have reserved; 0: a fortieth
     * of core.memory_bytes, forty being the smallest completion. */
    uint64_t effects_max;
};

/* Opens log and core and recovers. Result and text as pawl_log_open(). */
int pawl_engine_open(struct pawl_io *io, const struct pawl_engine_options *options,
                     const struct pawl_engine_lanes *lanes, struct pawl_engine **out,
                     struct pawl_log_info *info, char text[PAWL_LOG_TEXT_BYTES]);
/* Brings to disk all that was appended and publishes all that waited for it. False: the log failed,
 * or made no progress for 10 s. Blocks [stop]. */
bool pawl_engine_quiesce(struct pawl_engine *engine);
/* clean: quiesces and writes the clean marker. Returns a pawl_log_result. What still waits is
 * dropped. */
int pawl_engine_close(struct pawl_engine *engine, bool clean);

struct pawl_core *pawl_engine_core(struct pawl_engine *engine);
struct pawl_log *pawl_engine_log(struct pawl_engine *engine);
/* boot clock -> now; keeps the difference of pawl time and boot time. */
struct pawl_now pawl_engine_now(struct pawl_engine *engine, uint64_t boot_ns, uint64_t wall_ns);
uint64_t pawl_engine_shift(const struct pawl_engine *engine); /* pawl time - boot time */

/* May this command be decided now (room in the open block)? False: park the lane until the disk
 * moves. */
bool pawl_engine_admits(struct pawl_engine *engine, const struct pawl_cmd *head);
/* Log bytes that commands may need together, from now to the next settle, without being asked for
 * one by one. 0: ask. */
uint64_t pawl_engine_free(const struct pawl_engine *engine);
/* Returns how many effects went out. */
uint32_t pawl_engine_publish(struct pawl_engine *engine);
bool pawl_engine_timers(struct pawl_engine *engine, uint32_t budget);
/* True: there is more that could be done at once (call again before sleeping). */
bool pawl_engine_settle(struct pawl_engine *engine);
/* Boot time at which the engine wants its next turn, UINT64_MAX: none. */
uint64_t pawl_engine_next(const struct pawl_engine *engine);
bool pawl_engine_failed(const struct pawl_engine *engine);
/* How many effects wait. */
uint32_t pawl_engine_waiting(const struct pawl_engine *engine);
/* Nothing that names this lane waits: its handle may be given to another. */
bool pawl_engine_lane_idle(const struct pawl_engine *engine, uint32_t lane);
/* Since the opening: records appended, blocks sealed. */
void pawl_engine_counts(const struct pawl_engine *engine, uint64_t *records, uint64_t *blocks);
/* A number that has changed when pawl_engine_admits() may answer otherwise than before. */
uint64_t pawl_engine_progress(const struct pawl_engine *engine);

#endif
