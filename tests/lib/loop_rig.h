/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_LIB_LOOP_RIG_H
#define PAWL_TESTS_LIB_LOOP_RIG_H

/* The broker without sockets, threads and a clock: engine, core, log on the simulated disk, lanes,
 * intake and outbox as in the loop, and clients that write their rings in the same process. For
 * what must be run a million times: fuzzing, and measuring the path of a command. Fails by ending
 * the program. */

#include "abi/region.h"
#include "abi/ring.h"
#include "loop/intake.h"
#include "loop/outbox.h"
#include "session/session.h"

struct loop_rig {
    struct pawl_io *io;  /* the disk */
    struct pawl_io bell; /* for lanes: watches that never fire */
    struct pawl_engine *engine;
    struct pawl_lanes lanes;
    struct pawl_outbox outbox;
    struct pawl_intake intake;
    struct pawl_sessions sessions; /* only what dooming a session needs */
    uint64_t boot;
    uint64_t random;
};

/* One session with one lane, and the other end of its rings. */
struct loop_client {
    struct loop_rig *rig;
    struct pawl_session session;
    struct pawl_lane *lane;
    struct pawl_region sub_region, comp_region;
    struct pawl_sub_shm *sub;
    const struct pawl_comp_shm *comp;
    struct pawl_ring_producer out;
    struct pawl_ring_consumer in;
    uint64_t seq;
};

void loop_rig_init(struct loop_rig *rig, uint64_t seed);
void loop_rig_fini(struct loop_rig *rig); /* after all its clients */
/* One turn, step_ns after the last: io, publish, timers, intake, settle, outbox. */
void loop_rig_turn(struct loop_rig *rig, uint64_t step_ns);

/* uid is its gid too; 0 may do everything. */
void loop_client_open(struct loop_rig *rig, struct loop_client *client, uint32_t ring_bytes,
                      uint32_t window, uint32_t uid);
/* Ends the session as the broker would: of a breach if it was doomed, else by death. */
void loop_client_close(struct loop_client *client);
bool loop_client_doomed(const struct loop_client *client);
/* Room for a command with its head filled in, or NULL; visible after loop_client_publish(). */
void *loop_client_claim(struct loop_client *client, uint16_t type, uint32_t bytes);
void loop_client_publish(struct loop_client *client);
/* The next completion, or NULL; its memory is free at the next call. */
const void *loop_client_next(struct loop_client *client);
/* Turns until seq is answered; its result, *value its value. Completions before it are dropped. */
int loop_client_answer(struct loop_client *client, uint64_t seq, uint64_t *value);
/* Makes a queue; its number. */
uint64_t loop_client_queue(struct loop_client *client, const char *name, uint32_t mode,
                           uint32_t perm);

#endif
