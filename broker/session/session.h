/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_SESSION_H
#define PAWL_BROKER_SESSION_H

/* Connections and the sessions that they carry: who may attach, who lives, who is closed and why.
 *
 *   GREETING ── HELLO taken ──► ATTACHED ── socket ends ──► LINGERING ── PAWL_LINGER_NS ──► gone,
 *      │ 2 s, refusal              │                            │                core: DETACHED;
 *      ▼                           │ BYE: core: end CLOSED      │                its pidfd stays as
 *     gone                         │ breach: end BREACH         │                an orphan
 *                                  │ taken over by a resume     │
 *                                  ▼                            ▼
 *                                 gone  ◄── pidfd: core: end DEAD
 *
 * Death is the pidfd, never the socket (M12): at the end of a process its socket goes a moment
 * before its pidfd tells, hence LINGERING: the lanes stay mapped, so that what the program had
 * taken can still be read. Without a pidfd (a kernel before 5.3) the end of the socket is death.
 *
 * An orphan is the pidfd of a detached session, or of one that was recovered from the log: if its
 * process dies before it comes back, the session ends at once. The core itself ends what is not
 * back within its grace.
 *
 * Readiness is noted inside pawl_io_wait() and served in pawl_sessions_serve(), when the turn's
 * clock is known. All under the limits of struct pawl_session_limits; refusals say what to do. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/attach.h"
#include "base/list.h"
#include "core/core.h"
#include "io/io.h"
#include "session/lane.h"
#include "session/listener.h"

#define PAWL_HANDSHAKE_NS 2000000000ull
#define PAWL_LINGER_NS 50000000ull
#define PAWL_LANES_A_TURN 16u     /* made: each costs the pages of its rings */
#define PAWL_GREETING_MAX 256u    /* connections without HELLO, all together */
#define PAWL_GREETING_UID_MAX 64u /* of one uid */

enum pawl_session_state {
    PAWL_SESSION_GREETING,
    PAWL_SESSION_ATTACHED,
    PAWL_SESSION_LINGERING,
};

struct pawl_session {
    struct pawl_list place;   /* in sessions->all */
    struct pawl_list timer;   /* in sessions->greeting or ->lingering, by deadline */
    struct pawl_list pending; /* in sessions->pending: something to look at */
    struct pawl_list doomed;  /* in sessions->doomed */
    struct pawl_sessions *set;
    struct pawl_core_session *core; /* NULL while GREETING */
    struct pawl_core_peer peer;
    struct pawl_list lanes; /* by lane->of_session */
    uint32_t lane_count;
    enum pawl_session_state state;
    uint64_t deadline; /* boot clock; GREETING and LINGERING */
    bool left;         /* PAWL_BYE_LEFT */
    int32_t doom;      /* PAWL_E_ code that it is to be closed with; 0: none */
    const char *why;   /* for the line about it; a literal */
    bool readable, exited;
    int fd, pidfd;
    struct pawl_io_watch socket_watch, pid_watch;
};

/* One process that has left sessions behind. */
struct pawl_orphan {
    struct pawl_list place; /* in sessions->orphans, by deadline */
    struct pawl_list pending;
    struct pawl_sessions *set;
    uint64_t session; /* this one; 0: all detached ones of the process below */
    uint32_t pid;
    uint64_t start_time;
    uint64_t deadline; /* boot clock: the grace of its last one is over, the core has ended them */
    int pidfd;
    struct pawl_io_watch watch;
};

struct pawl_directs;

struct pawl_session_limits {
    uint32_t sessions_max;
    uint32_t sessions_uid_max; /* of one uid, but for admin_uid and root */
    uint32_t files_max;        /* descriptors that clients may use, all together (L2) */
    uint64_t grace_ns;         /* as the core has it */
    uint32_t admin_uid;
    bool no_new; /* the broker is stopping */
};

struct pawl_sessions {
    struct pawl_io *io;
    struct pawl_core *core;
    struct pawl_lanes *lanes;
    struct pawl_session_limits limits;
    struct pawl_directs *directs; /* NULL: no direct queues here */
    struct pawl_listener *listener;
    struct pawl_io_watch listen_watch;
    bool accept_pending;
    int spare_fd; /* given up for a moment to refuse one more politely */
    struct pawl_list all, greeting, lingering, pending, doomed;
    struct pawl_list orphans, orphans_pending;
    uint32_t count, greeting_count; /* connections; of them without HELLO */
    uint32_t files;                 /* descriptors held for connections and lanes */
    uint32_t lanes_left;            /* that may still be made in this turn */
    uint64_t broker_epoch;
    uint8_t log_id[16];
    char io_name[16];
    struct pawl_now now;    /* of the turn */
    uint64_t boot, started; /* boot clock: of the turn; of the first one */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};

/* The caller fills io, core, lanes, limits, listener, broker_epoch, log_id, io_name, say, say_ctx
 * in a zeroed struct first. Recovered sessions whose process is proven dead are ended, those whose
 * process lives are watched; same_boot false: all are dead. 0 or -errno. */
int pawl_sessions_start(struct pawl_sessions *set, struct pawl_now now, uint64_t boot,
                        bool same_boot) __attribute__((warn_unused_result));
/* Closes all connections, telling the lanes why. The core is not told: its sessions stay in the log
 * as they are, for the next broker. */
void pawl_sessions_stop(struct pawl_sessions *set, int32_t reason);

/* Accepts, reads, ends what must end. Returns how much there was to do. */
uint32_t pawl_sessions_serve(struct pawl_sessions *set, struct pawl_now now, uint64_t boot);
/* Boot time of the next deadline; UINT64_MAX: none. */
uint64_t pawl_sessions_next(const struct pawl_sessions *set);

/* The session is closed with this result at the next serve; its lanes are not drained meanwhile. */
void pawl_session_doom(struct pawl_session *session, int32_t result, const char *why);

/* --- between the files of this folder -------------------------------------------------------- */

/* One packet and the descriptor that came with it, or -1; closes that. False: the connection is to
 * be closed now (doom has been set, or it is gone). */
bool pawl_attach_packet(struct pawl_session *session, const void *packet, size_t bytes, int fd);
/* A WELCOME that refuses; text may be NULL. */
void pawl_attach_refuse(struct pawl_session *session, int32_t result, const char *text);
/* The connection that carries this session id, or NULL. */
struct pawl_session *pawl_sessions_by_id(struct pawl_sessions *set, uint64_t id);
/* Something is to be looked at in the next serve. */
static inline void pawl_session_note(struct pawl_session *session)
{
    if (pawl_list_empty(&session->pending))
        pawl_list_push_back(&session->set->pending, &session->pending);
}
/* accept.c */
int pawl_sessions_listen(struct pawl_sessions *set);
uint32_t pawl_sessions_accept(struct pawl_sessions *set);
bool pawl_sessions_files_left(const struct pawl_sessions *set, uint32_t more);
/* orphan.c. create takes the pidfd over; without memory or a watch the session just lasts its
 * grace. died ends all sessions of that process that are detached. */
void pawl_orphan_create(struct pawl_sessions *set, uint64_t id, const struct pawl_core_peer *peer,
                        int pidfd);
void pawl_orphan_died(struct pawl_orphan *orphan);
void pawl_orphan_free(struct pawl_orphan *orphan);
/* Ends recovered sessions of dead processes, watches those of living ones. 0 or -ENOMEM. */
int pawl_orphans_judge(struct pawl_sessions *set, bool same_boot);
/* Takes the connection away. The core's session, if any, must have been ended or detached. */
void pawl_session_free(struct pawl_session *session, int32_t reason);
void pawl_session_close_lane(struct pawl_lane *lane, int32_t reason);
uint32_t pawl_sessions_of_uid(const struct pawl_sessions *set, uint32_t uid);
void pawl_sessions_say(struct pawl_sessions *set, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
