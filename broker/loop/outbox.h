/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_OUTBOX_H
#define PAWL_BROKER_OUTBOX_H

/* From effects to the completion rings: promise of room, writing, one publish a lane and turn, one
 * wake-up a lane and turn. session/lane.h has the arithmetic of promises.
 *
 * Life of an effect here: reserve (deliveries) or the take of its command (answers) has promised
 * the room → write claims it and fills it, and merges an answer into the one before where it
 * continues it → publish makes all claims of the turn visible with one store, and wakes. */

#include "loop/engine.h"
#include "session/lane.h"

struct pawl_outbox {
    struct pawl_lanes *lanes;
    struct pawl_engine *engine;
    uint64_t durable; /* as it was at the last publish */
};

/* Those of struct pawl_engine_lanes; ctx is the outbox. */
bool pawl_outbox_reserve(void *ctx, uint32_t handle, uint32_t bytes);
void pawl_outbox_write(void *ctx, const struct pawl_effect *effect);
void pawl_outbox_answer(void *ctx, uint32_t handle, uint64_t wait_lsn,
                        const struct pawl_core_answer *answer);

/* Promises the room for the answer of one command (its seq is kept if the answer may be large).
 * False: not now; the lane must wait until its client frees room or its own answers go out. */
bool pawl_outbox_promise(struct pawl_lane *lane, uint64_t seq, uint32_t bytes);

/* The same of an answer without data, as far as is known without asking the client's word. */
static inline bool pawl_outbox_promise_answer(struct pawl_lane *lane)
{
    uint64_t bytes = lane->promised_answers + sizeof(struct pawl_comp_answer);
#ifndef PAWL_BUG_PROMISE_PAST_HALF
    if (bytes > lane->out.size / 2)
        return false;
#endif
    if (lane->out.tail - lane->out.head + bytes + lane->promised_deliveries > lane->out.size)
        return false;
    lane->promised_answers = bytes;
    return true;
}

/* True: a delivery that found no room would find it now; asks the client's word. */
bool pawl_outbox_has_room(struct pawl_lane *lane);

/* The end of a turn: all dirty lanes. Returns how many were published. */
uint32_t pawl_outbox_publish(struct pawl_outbox *outbox);

#endif
