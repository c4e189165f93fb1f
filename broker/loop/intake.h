/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_INTAKE_H
#define PAWL_BROKER_INTAKE_H

/* From the submission rings to the core. Every byte in them belongs to a client who may be writing
 * it at this moment, so:
 *
 *   - the size of a record is read once, by pawl_ring_next(), and that number alone is used
 *   - the head is copied, then judged; then the rest of the fixed part is copied behind it: no byte
 *     is read twice (M7)
 *   - the variable part the core copies once and judges in its copy
 *
 * A command is taken when its answer has room and the log has; else its lane waits where it stands,
 * in order, for its own client (session/lane.h) or with all others for the disk. */

#include "loop/engine.h"
#include "loop/outbox.h"
#include "session/session.h"

#define PAWL_INTAKE_LANE_SHARE 128u  /* commands of a lane and turn */
#define PAWL_INTAKE_TURN_SHARE 4096u /* of all lanes */

struct pawl_intake {
    struct pawl_lanes *lanes;
    struct pawl_engine *engine;
    struct pawl_core *core;
    bool log_blocked;      /* a command found no room in the log ... */
    uint64_t blocked_when; /* ... at this progress of the engine */
    uint64_t taken;        /* commands, since the start */
    bool ahead;            /* the last command had a key: the next will have one, too */
    uint64_t free;         /* log bytes of this drain that need not be asked for one by one */
    struct pawl_intake_type {
        uint32_t fixed_bytes;  /* 0: no such type */
        uint32_t answer_bytes; /* room for its answer */
        uint32_t need;         /* log bytes, at most, for a record of no length ... */
        bool grows;            /* ... plus its length */
        bool exact;            /* takes no more, even if there is room */
    } types[PAWL_CMD_TYPES];
};

void pawl_intake_init(struct pawl_intake *intake, struct pawl_lanes *lanes,
                      struct pawl_engine *engine);

/* Drains the active lanes, the one first whose turn it is; lets those rest that have been empty for
 * long. Returns how many commands were taken; *more: some lane certainly holds others that could be
 * taken at once. */
uint32_t pawl_intake_drain(struct pawl_intake *intake, struct pawl_now now, bool *more);

/* One lane, up to `share` commands. A breach dooms its session. */
uint32_t pawl_intake_lane(struct pawl_intake *intake, struct pawl_lane *lane, struct pawl_now now,
                          uint32_t share);

/* Announces all active lanes. True: none has work, the loop may sleep. */
bool pawl_intake_rest(struct pawl_intake *intake);

#endif
