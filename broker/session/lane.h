/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LANE_H
#define PAWL_BROKER_LANE_H

/* The broker's end of lanes: their rings, their place in the loop, the memory they take.
 *
 *                       bell, new
 *             ┌──────────────────────────► ACTIVE: looked at each turn
 *     IDLE: bell announced   ◄─────────────  no work for PAWL_LANE_EMPTY_TURNS, or the loop sleeps,
 *       │                                    or a command waits for completion room
 *       └── close ──► ZOMBIE ◄── close ──┘
 *                        │  nothing of it waits in the engine any more
 *                        ▼
 *                      free: the handle may name another lane
 *
 * Completion ring. Room is promised before it is used: each taken command has its answer's room
 * (promised_answers), each delivery that the core reserved its own (promised_deliveries). With
 * `used` = bytes claimed and not yet released by the client:
 *   a delivery is promised only if used + promised_deliveries + it <= size / 2
 *   a command is taken only if promised_answers + its answer <= size / 2
 *                          and used + both promises + its answer <= size
 * So both promises always fit, and deliveries never take the half that answers need (trap 4).
 *
 * Everything that a client writes is read through abi/ and checked. Memory: a lane counts with both
 * its regions against bytes_max until it is freed, zombies too, which also bounds the effects that
 * wait in the engine. Single-threaded, like all of the broker. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/region.h"
#include "abi/ring.h"
#include "base/list.h"
#include "core/core.h"
#include "io/io.h"

#define PAWL_LANE_EMPTY_TURNS 64u
#define PAWL_LANE_DATA_MAX 16u /* commands with a data answer that one lane has open */

struct pawl_lanes;
struct pawl_session;

struct pawl_lane {
    struct pawl_list place;      /* ACTIVE: in lanes->active; ZOMBIE: in lanes->zombies */
    struct pawl_list dirty;      /* in lanes->dirty while it has something to publish */
    struct pawl_list stale;      /* in lanes->stale while durable_lsn is behind its last lsn */
    struct pawl_list of_session; /* in session->lanes */
    struct pawl_lanes *set;
    struct pawl_session *session;   /* NULL: zombie */
    struct pawl_core_lane *core;    /* NULL while it is being opened, and for a zombie */
    const struct pawl_sub_shm *sub; /* NULL: zombie */
    struct pawl_comp_shm *comp;
    uint32_t handle, number;

    struct pawl_ring_consumer in;
    uint64_t released;    /* what comp->sub_head holds */
    uint32_t empty_turns; /* since it had work */
    bool active;
    bool blocked;           /* its next command waits for completion room */
    uint64_t room_wanted;   /* bytes of a delivery that found no room; 0: none */
    uint32_t announcements; /* number of the next value of comp->bell */

    struct pawl_ring_producer out;
    struct pawl_comp_answer *run; /* the last answer claimed, while unpublished: may grow */
    uint64_t events;
    uint64_t promised_answers, promised_deliveries;
    uint64_t lsn;    /* highest of the answers written */
    uint32_t served; /* the announced wait that was last woken */
    uint32_t data_count;
    struct pawl_lane_data {
        uint64_t seq;
        uint32_t bytes;
    } data[PAWL_LANE_DATA_MAX]; /* open commands whose answer is larger than PAWL_COMP_ANSWER */

    struct pawl_region sub_region, comp_region;
    uint64_t bytes; /* counted in lanes->bytes */
    int bell_fd, watch_fd;
    struct pawl_io_watch bell;
};

struct pawl_lanes {
    struct pawl_io *io;
    struct pawl_core *core;
    struct pawl_lane **table; /* by handle */
    uint32_t *free_handles;
    uint32_t free_count, capacity, open_count, active_count;
    struct pawl_list active, dirty, stale, zombies;
    uint64_t bytes, bytes_max;
    uint64_t wakes, bells;
};

int pawl_lanes_init(struct pawl_lanes *set, struct pawl_io *io, uint64_t bytes_max);
/* Requires that no lane is open; zombies are freed. */
void pawl_lanes_fini(struct pawl_lanes *set);

/* What the two regions of a lane take of bytes_max. */
uint64_t pawl_lane_cost(uint64_t sub_bytes, uint64_t comp_bytes);

/* Makes the regions, the bell and a handle. The lane is in no list yet and the core does not know
 * it. fds[0..1] get the descriptors of submission and completion region, which the caller closes
 * after sending; the bell's is lane->bell_fd. 0 or -errno: -EDQUOT when bytes_max is met, -ENFILE
 * when no handle is left. */
int pawl_lane_create(struct pawl_lanes *set, uint32_t sub_bytes, uint32_t comp_bytes,
                     struct pawl_lane **out, int fds[2]) __attribute__((warn_unused_result));

/* Says to the client that it is over (reason: a PAWL_E_ code, or 0), wakes him, unmaps. The lane
 * becomes a zombie; the core must have been told before. */
void pawl_lane_close(struct pawl_lane *lane, int32_t reason);

/* The zombie is free now. */
void pawl_lane_free(struct pawl_lane *lane);

static inline struct pawl_lane *pawl_lanes_find(const struct pawl_lanes *set, uint32_t handle)
{
    return set->table[handle];
}

/* Into the active set; nothing if it is there, or a zombie. */
void pawl_lane_activate(struct pawl_lane *lane);
/* Out of it without an announcement. */
void pawl_lane_deactivate(struct pawl_lane *lane);
/* Announces the bell and looks once more (abi/wake.h, S1 S2). True: nothing there, out of the
 * active set. False: it has work, or room that it waited for, and stays. */
bool pawl_lane_rest(struct pawl_lane *lane);

static inline void pawl_lane_mark_dirty(struct pawl_lane *lane)
{
    if (pawl_list_empty(&lane->dirty))
        pawl_list_push_back(&lane->set->dirty, &lane->dirty);
}

/* Wakes the client, whose announced wait is of this kind (PAWL_WAIT_...). */
void pawl_lane_wake(struct pawl_lane *lane, uint32_t kind);

#endif
