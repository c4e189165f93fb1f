/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOOP_H
#define PAWL_BROKER_LOOP_H

/* The broker's one thread: a turn, and what it does between turns.
 *
 * A turn
 *   1 io         what the kernel has: writes done, bells, sockets, exits; waits there if it may
 *   2 clock      read once
 *   3 publish    effects whose record is durable now
 *   4 sessions   accept, attach, end
 *   5 timers     a bounded number; direct queues: a share of their sweep
 *   6 intake     commands of the active lanes, a fair share each
 *   7 settle     pump, copy-forward, seal (engine.h)
 *   8 outbox     one store a lane, then wake those who wait
 *
 * After an empty turn: look again for spin_ns, yielding each time (trap 1: a tight loop starves the
 * kernel's worker that ends our own write); while a write is in flight for SPIN_WRITE_NS, be that
 * more or less, if spinning is allowed at all. Then yield once and look; then announce to the
 * active lanes, look, and sleep in the io until the next deadline. An idle lane costs nothing at
 * all: it is in no list. */

#include "loop/engine.h"
#include "loop/intake.h"
#include "loop/outbox.h"
#include "session/direct.h"
#include "session/session.h"

struct pawl_loop {
    struct pawl_io *io;
    struct pawl_engine *engine;
    struct pawl_lanes lanes;
    struct pawl_sessions sessions;
    struct pawl_directs directs;
    struct pawl_outbox outbox;
    struct pawl_intake intake;
    uint64_t spin_ns;
    uint64_t boot;    /* clock of this turn */
    uint64_t busy_at; /* clock of the last turn that had anything to do */
    bool yielded;     /* since then */
    bool more;        /* the last turn knows of more work */
    uint64_t turns;
    uint32_t io_errors; /* of pawl_io_wait(), one after the other */
    int io_error;       /* the last one */
};

/* One turn; waits in the io for up to timeout_ns. True: it had something to do. */
bool pawl_loop_turn(struct pawl_loop *loop, uint64_t timeout_ns);

/* Turns until *stop is not 0 or the log fails; returns a pawld_result (OK, LOG_FAILED). */
int pawl_loop_run(struct pawl_loop *loop, const uint32_t *stop);

#endif
