/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_ENGINE_INNER_H
#define PAWL_BROKER_ENGINE_INNER_H

/* What engine.c and settle.c share, and nobody else. */

#include "loop/effects.h"
#include "loop/engine.h"

struct pawl_engine {
    struct pawl_io *io;
    struct pawl_log *log;
    struct pawl_core *core;
    struct pawl_engine_lanes lanes;
    struct pawl_core_options core_options;
    struct pawl_log_info *info; /* only while opening */
    bool replay_failed;         /* no memory for the core: not damage */

    /* Effects that may go out, and those that wait for the disk; see engine.c for their order. */
    struct pawl_effects ready, waiting;
    uint32_t *lane_waiting; /* a lane: how many of `waiting` are its own */

    /* The clock of this turn. pawl time = boot + shift. */
    struct pawl_now now;
    uint64_t boot, shift;

    uint64_t relaxed_window_ns;
    uint64_t segment_bytes;
    uint64_t block_bytes, record_bytes_max;
    uint32_t in_flight_max;

    uint64_t records, blocks; /* counted for pawl_engine_counts() */
    uint64_t want_lsn;        /* the newest position that somebody waits for */
    uint64_t sealed;          /* appended at the last seal: what is beyond lies in the open block */
    uint64_t open_since;      /* boot time of the first record in the open block */
    uint64_t active_at;       /* boot time when the log was last seen at work */
    uint64_t progress;        /* see pawl_engine_progress() */
    uint64_t durable_was;     /* at the last publish */
    uint64_t room_was;        /* at the end of the last settle */
    bool starved;             /* something found no room since the last seal */
    bool seal_blocked;        /* the log would not take the last one */

    /* copy-forward */
    uint64_t settled;    /* appended at the end of the last settle */
    uint64_t release_at; /* release the oldest segment when the log is durable up to here; 0: not */
    uint64_t reserve;    /* bytes of the open block that only copy-forward may take */
    uint64_t copied;     /* bytes that copies have appended since the start */
    /* The last round of early copies: its last segment; other bytes and live bytes when it began.
     */
    uint64_t early_until, early_others, early_live;
    bool copying;  /* inside pawl_core_copy() */
    bool squeezed; /* what is free is for copies alone */

    uint32_t refusing; /* enum pawl_limit that the core was told */
    bool hold_sends;   /* growing, and not yet far enough for more sends */
};

/* Room as commands, timers and the pump see it. */
uint64_t pawl_engine_room(const struct pawl_engine *engine);
/* Writes out all of `ready`; returns how many. */
uint32_t pawl_engine_flush(struct pawl_engine *engine);
/* Seals the open block if the policy says so; see settle.c. */
void pawl_engine_seal(struct pawl_engine *engine, bool at_once);

#endif
