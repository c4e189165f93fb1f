/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_SESSION_DIRECT_H
#define PAWL_BROKER_SESSION_DIRECT_H

/* Direct queues as the broker serves them: their memory, who has a lane in it, and the sweep. The
 * algorithm is abi/direct.h; what is durable of a queue (name, options, rights) is in the core.
 *
 *            create                       last holder gone while no broker was there
 *   (core) ─────────► HERE ◄───┐   AWAITED ────────────────────────► EMPTY
 *                      │       │ a holder gives it back, and it is it   │ somebody attaches:
 *                      │       └──── AWAITED ◄── start, a holder lives  │ new memory, new
 * incarnation └── drop: closed for its holders                 └──► HERE
 *
 * Trust. The memory is written by clients: of it the broker believes nothing, has its own copy of
 * all constants, and abi/direct.c bounds every index and walk. Who holds which lane is in private
 * memory here and in DIR/direct (session/direct_memory.h); the lanes' status words are for those
 * who read the memory.
 *
 * Death. A lane is over when its session's pidfd has fired, or when nobody holds its life byte:
 * looked at LIFE_LOOK_NS apart for every lane, so that it needs no session. The end of a socket
 * says nothing, as everywhere.
 *
 * A restart. The memory is where it was, in the hands of those who have it mapped. Until one of
 * them comes, the queue is AWAITED: others are told to ask again. When none of the processes that
 * DIR/direct names lives any more, the memory is gone with what was in it: the queue is EMPTY, and
 * has another incarnation from the next attach on.
 *
 * In one process with its clients (libpawld), closing the memory's descriptor would drop their life
 * bytes: so it is left open where a client of our own process has a lane. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/attach.h"
#include "abi/direct.h"
#include "base/list.h"
#include "core/core.h"
#include "session/direct_memory.h"

struct pawl_session;
struct pawl_sessions;

enum pawl_direct_place {
    PAWL_DIRECT_PLACE_EMPTY,
    PAWL_DIRECT_PLACE_AWAITED,
    PAWL_DIRECT_PLACE_HERE
};

/* Whose a lane is. */
struct pawl_direct_owner {
    uint64_t session;    /* 0: nobody's, or that of a session which has not come back yet */
    uint64_t start_time; /* with pid: of the process */
    uint32_t pid;
    bool held; /* TAKEN or LIVE */
};

struct pawl_direct_queue {
    struct pawl_list place; /* in directs->queues */
    uint64_t id;
    char name[PAWL_NAME_BYTES_MAX + 1];
    struct pawl_queue_options options;
    enum pawl_direct_place where;
    bool dropped;
    bool shared;      /* a client of this very process has had a lane: the descriptor stays open */
    uint64_t visible; /* to be shown when the log is durable beyond it */
    struct pawl_direct_facts facts;
    struct pawl_direct_shape shape;
    uint64_t given_up; /* AWAITED: boot time at which holders that cannot be seen count as gone */

    /* HERE */
    int fd;
    void *memory;
    struct pawl_direct_broker *broker;
    void *private;                    /* of the broker's half */
    uint64_t idle_turns;              /* slots swept since nobody has a lane */
    struct pawl_direct_owner *owners; /* [shape.lanes + 1] */
    uint32_t held;                    /* lanes that are TAKEN or LIVE */
    uint32_t life_next;               /* lane whose byte is looked at next */
    uint64_t sweep_at, life_at;       /* boot clock; UINT64_MAX: nothing to do */
};

struct pawl_directs {
    struct pawl_list queues;
    struct pawl_core *core;
    struct pawl_sessions *sessions;
    int dir; /* DIR/direct; -1: none could be made, and queues do not survive a restart */
    uint8_t boot_id[16];
    uint64_t broker_epoch;
    uint64_t incarnations; /* given by this broker */
    uint64_t boot;         /* clock of this turn */
    uint64_t durable;      /* of the log */
    uint64_t due;          /* no queue has anything to do before; 0: to be looked for */
    uint32_t awaited;      /* queues; while there are any, a client may send a descriptor */
    uint64_t (*random)(void *ctx);
    void *random_ctx;
};

/* The caller fills sessions, boot_id, broker_epoch, random, random_ctx in a zeroed struct first.
 * directory: DIR. Finds what the core knows of direct queues, and says to it who serves them. */
void pawl_directs_start(struct pawl_directs *set, struct pawl_core *core, int directory,
                        uint64_t boot);
/* The memory stays with those who have it. */
void pawl_directs_stop(struct pawl_directs *set);
/* A bounded share of what is due. durable: of the log. Returns how much there was to do. */
uint32_t pawl_directs_turn(struct pawl_directs *set, uint64_t boot, uint64_t durable);
/* Boot time of the next thing to do; UINT64_MAX: none. */
uint64_t pawl_directs_next(const struct pawl_directs *set);

/* DIRECT, with a descriptor or -1, which is closed here. Fills the answer; *give: the memory's
 * descriptor to be sent with it, not to be closed; -1: none. False: a breach, *why says what. */
bool pawl_directs_attach(struct pawl_directs *set, struct pawl_session *session,
                         const struct pawl_attach_direct *ask, int fd,
                         struct pawl_attach_direct_ok *ok, int *give, const char **why);
void pawl_directs_locked(struct pawl_directs *set, struct pawl_session *session,
                         const struct pawl_attach_direct *ask, struct pawl_attach_direct_ok *ok);
void pawl_directs_detach(struct pawl_directs *set, struct pawl_session *session,
                         const struct pawl_attach_direct *ask);
/* Its process is proven dead. */
void pawl_directs_session_dead(struct pawl_directs *set, uint64_t session);

#endif
