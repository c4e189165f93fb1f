/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_CORE_H
#define PAWL_BROKER_CORE_H

/* The pure core: all queue state and every decision about it. Commands and time in, one record and
 * effects out. No I/O, no clock, no randomness of its own, no system header beyond the freestanding
 * ones and string: the same core runs in the broker, in recovery (records in) and in the simulator.
 *
 * A decision has two halves. decide_x(command) checks and fills a record; apply_x(record) changes
 * the state. Live: decide, encode into the log block, apply. Recovery: decode, apply. So what is
 * replayed is what was done, and a replay decides nothing.
 *
 * Time is pawl time (log.h): it never goes back, over restarts and reboots too.
 *
 * Publication (G11). Every effect carries wait_lsn: the shell publishes it when the log is durable
 * beyond it, in the order of emission for effects with wait_lsn > 0 of one lane. Durable things:
 * all that was appended so far. Relaxed: 0 (once the queue's creation is durable). Memory: the last
 * durable record that touched the queue. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/attach.h"
#include "abi/command.h"

struct pawl_core;
struct pawl_core_session;
struct pawl_core_lane;

struct pawl_now {
    uint64_t time; /* pawl time */
    uint64_t wall; /* for display and `at` */
};

enum pawl_effect_type { PAWL_EFFECT_ANSWER, PAWL_EFFECT_DATA, PAWL_EFFECT_DELIVERY };

struct pawl_effect {
    uint64_t wait_lsn;
    uint32_t lane;    /* the shell's handle */
    uint32_t message; /* DELIVERY: pool index, pinned until pawl_core_effect_done; DATA: of the idem
                         whose lease begins with it, 0 none */
    uint64_t seq;
    uint64_t value; /* DELIVERY: grant number */
    uint64_t lsn;
    int32_t result;
    uint8_t type;
    uint8_t flags; /* PAWL_ANSWER_... */
    uint16_t reserved;
    uint32_t bytes; /* of the completion record */
    uint32_t data;  /* DATA: the core's buffer number, until pawl_core_effect_done */
};

/* An answer without data, as it stands in a window and goes to the client. */
struct pawl_core_answer {
    uint64_t seq, value, lsn;
    int32_t result;
    uint8_t flags; /* PAWL_ANSWER_... */
};

/* What the core asks of its shell. */
struct pawl_core_port {
    void *ctx;
    uint64_t (*room)(void *ctx); /* pawl_log_room */
    void *(*append)(void *ctx, uint16_t type, uint32_t bytes, uint64_t *lsn);
    uint64_t (*appended)(void *ctx); /* pawl_log_appended: wait_lsn of what writes nothing */
    uint64_t (*random)(void *ctx);   /* 64 unpredictable bits (getrandom, buffered) */
    /* Room for a delivery of `bytes` in the lane's completion ring, kept until it is published or
     * dropped. False: not now; pawl_core_lane_room() will be called when there is some. */
    bool (*reserve)(void *ctx, uint32_t lane, uint32_t bytes);
    /* A new effect of this lane, behind all others, with lane and wait_lsn filled in; its other
     * words are anybody's. The core fills in all of them before it asks for anything else. In
     * place: an effect that is copied as soon as it was written waits for its own stores. */
    struct pawl_effect *(*effect)(void *ctx, uint32_t lane, uint64_t wait_lsn);
    /* An answer that has nothing to wait for goes out at once: true. False: it is to be an effect.
     * Most of memory mode; a third of the work of an answer is the row that it would stand in.
     * NULL: all are effects. */
    bool (*answer)(void *ctx, uint32_t lane, uint64_t wait_lsn,
                   const struct pawl_core_answer *answer);
    void *(*memory_map)(void *ctx, size_t bytes); /* zeroed pages for the pools, or NULL; never
                                                     unmapped before destroy */
    void (*memory_unmap)(void *ctx, void *p, size_t bytes);
    /* Of what was mapped, these pages are about to be written. A hint; NULL: none. */
    void (*memory_touch)(void *ctx, void *p, size_t bytes);
};

struct pawl_core_options {
    uint64_t memory_bytes;  /* budget of pools and payloads */
    uint64_t segment_bytes; /* of the log, power of two: to know the segment of an lsn */
    uint64_t epoch;         /* of this opening: ids given from now on carry it on top */
    uint64_t hash_seed;
    uint64_t session_grace_ns;
    uint32_t sessions_max, queues_max;
    uint32_t admin_uid;        /* the broker's own */
    uint32_t record_bytes_max; /* of the log: a send that needs more is E_TOO_BIG; 0: no limit */
    uint64_t ledger_max;       /* entries of each kind; 0: 10,000,000 */
    uint32_t reservations_max; /* open and remembered; 0: PAWL_RESERVATIONS_MAX, 1,000,000 */
};

/* Makes an empty core. NULL if the first pools cannot be had. Give it all records with
 * pawl_core_replay(), then call pawl_core_start() once. */
struct pawl_core *pawl_core_create(const struct pawl_core_options *options,
                                   const struct pawl_core_port *port);
void pawl_core_destroy(struct pawl_core *core);

/* Applies one record. Non-zero: it makes no sense after those before it (damage). */
int pawl_core_replay(struct pawl_core *core, uint64_t lsn, uint16_t type, const void *body,
                     uint32_t bytes);
/* Before pawl_core_start(): the machine was started anew in this epoch, so what earlier ones leased
 * is void and their sessions are over, though a broker of this boot may have begun to say so and
 * died. 0: not that anybody knows. */
void pawl_core_booted(struct pawl_core *core, uint64_t epoch);
/* Recovery is over. epoch: the new one. Leases get their full time again; after a reboot they are
 * void. Sessions are DETACHED until they come back. Non-zero: something referred to was never
 * defined (damage). */
int pawl_core_start(struct pawl_core *core, struct pawl_now now, uint64_t epoch, bool same_boot);

/* --- sessions and lanes ---------------------------------------------------------------------- */

struct pawl_core_peer {
    uint32_t uid, gid, pid;
    uint64_t start_time; /* of the process, 0 unknown: with pid proves identity over a restart */
    char label[64];
};

/* New session. E_QUOTA when the table is full; a live session is never evicted. Enters the log with
 * its first record. */
int pawl_core_session_open(struct pawl_core *core, const struct pawl_core_peer *peer,
                           struct pawl_now now, struct pawl_core_session **out);
/* The same session again, with its secret: epoch + 1, the older holder is fenced (its lanes closed
 * by the shell). E_OUTCOME_UNKNOWN: no such session; E_PERM: wrong secret or uid. */
int pawl_core_session_resume(struct pawl_core *core, uint64_t id, const uint8_t secret[16],
                             const struct pawl_core_peer *peer, struct pawl_now now,
                             struct pawl_core_session **out);
/* The socket is lost: its lanes lose their handles, as if each were closed, but a waiting RECEIVE
 * is kept. */
void pawl_core_session_detach(struct pawl_core *core, struct pawl_core_session *session,
                              struct pawl_now now);
/* CLOSED: clean, nothing is open; LEFT: clean, but for calls whose outcome its program never had.
 */
enum pawl_core_end {
    PAWL_END_CLOSED,
    PAWL_END_DEAD,
    PAWL_END_BREACH,
    PAWL_END_GRACE,
    PAWL_END_LEFT
};
/* Its waiting receives end, its process and held leases end as the log has room (pawl_core_pump).
 * For DEAD, messages published below the lane's `taken` count as crashed. The session is gone for
 * the shell. */
void pawl_core_session_end(struct pawl_core *core, struct pawl_core_session *session,
                           enum pawl_core_end why, struct pawl_now now);
uint64_t pawl_core_session_id(const struct pawl_core_session *session);
uint64_t pawl_core_session_epoch(const struct pawl_core_session *session);
const uint8_t *pawl_core_session_secret(const struct pawl_core_session *session);
const struct pawl_core_peer *pawl_core_session_peer(const struct pawl_core_session *session);
/* The recovered and the attached ones, for the shell to prove the dead: calls each(). */
void pawl_core_session_each(struct pawl_core *core,
                            void (*each)(void *ctx, struct pawl_core_session *s), void *ctx);

/* number PAWL_LANE_NEW: the lowest free one, that is never used or closed by its client since the
 * session was attached last. A number in use, or one that lost its rings: the window stays, a
 * waiting RECEIVE goes on waiting, a SUBSCRIBE has ended with the old rings; deliveries of its
 * leases with a grant above those given are emitted again, those that are on their way to the old
 * handle as soon as they are dropped. handle: what effects name from now on. */
int pawl_core_lane_open(struct pawl_core *core, struct pawl_core_session *session, uint32_t number,
                        uint32_t window, const struct pawl_attach_lane *resume, uint32_t handle,
                        struct pawl_now now, struct pawl_core_lane **out);
uint32_t pawl_core_lane_number(const struct pawl_core_lane *lane);
/* The shell's end of it is gone: waiting receives end, nothing more is emitted. Its window is kept,
 * since the client may come back with this number. */
void pawl_core_lane_close(struct pawl_core *core, struct pawl_core_lane *lane, struct pawl_now now);
/* There is room again for deliveries that reserve() refused. */
void pawl_core_lane_room(struct pawl_core *core, struct pawl_core_lane *lane);
/* What the client had taken, asked before pawl_core_session_end(DEAD). */
void pawl_core_lane_taken(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t position);

/* --- commands -------------------------------------------------------------------------------- */

/* Bytes of completion room that a command of this type must have before it is taken. */
uint32_t pawl_core_answer_bytes(uint16_t type);
/* Upper bound of the log room that taking it needs (its own record, heads included). head: private
 * copy. */
uint64_t pawl_core_need(const struct pawl_cmd *head);
/* Size of the fixed part to copy before pawl_core_take; 0: unknown type. */
uint32_t pawl_core_fixed_bytes(uint16_t type);
/* Decides one command. fixed: private copy of its first pawl_core_fixed_bytes(), aligned to 8,
 * head.deadline already in pawl time. variable: the rest, in memory that the client may be
 * changing: read exactly once. OK, or E_PROTOCOL: malformed, nothing was done, close the session.
 * Never blocks, never calls back into the shell but through the port. Emits exactly one answer, now
 * or later. */
int pawl_core_take(struct pawl_core *core, struct pawl_core_lane *lane, const void *fixed,
                   const void *variable, uint32_t variable_bytes, struct pawl_now now);
/* A hint: this record will perhaps be the next but one to be taken. What deciding it looks at is
 * fetched into the cache. Reads it where the client may be changing it, believes none of it and
 * does nothing that shows. */
void pawl_core_ahead(struct pawl_core *core, const void *record, uint32_t bytes);
/* Refuse what needs new room with E_FULL and this enum pawl_limit; 0: take again. */
void pawl_core_refuse_sends(struct pawl_core *core, uint32_t limit);
/* Outcomes of op-ids may have this many bytes of the log: where there are more, the oldest go
 * before their day (the horizon says so) as new ones come. What takes no room of a send, such as a
 * fence, is never refused for a full log; without this it would take what acks need (G2). */
void pawl_core_limit_outcomes(struct pawl_core *core, uint64_t bytes);
uint64_t pawl_core_outcome_bytes(const struct pawl_core *core);
/* Newest time (of ids, ms) whose outcome was forgotten before its day; 0: none was. */
uint64_t pawl_core_forgotten_early_ms(const struct pawl_core *core);

/* --- turn ------------------------------------------------------------------------------------ */

/* The clock was read. Before effects are written out: the time of a lease runs from then (G12), not
 * from the last turn, which may be as long ago as the disk is slow. */
void pawl_core_clock(struct pawl_core *core, struct pawl_now now);

/* Hands ready messages to those who wait, releases what ended sessions held; stops at the log's
 * room. True: there is more to do as soon as there is room. */
bool pawl_core_pump(struct pawl_core *core, struct pawl_now now);
/* Fires up to `budget` due timers; fewer when room is short. True: more are due. */
bool pawl_core_tick(struct pawl_core *core, struct pawl_now now, uint32_t budget);
/* Pawl time of the next timer, never later than its true time; UINT64_MAX: none. */
uint64_t pawl_core_next(const struct pawl_core *core);

/* Writes the completion record (effect->bytes of it) of an effect that is due. deadline_shift is
 * subtracted from pawl time to give the broker's boot clock. */
void pawl_core_effect_write(struct pawl_core *core, const struct pawl_effect *effect, void *out,
                            uint64_t deadline_shift);
/* After it was written at `position` (its end) of the lane's completion ring, or dropped (published
 * false). Each effect of type DATA or DELIVERY exactly once. */
void pawl_core_effect_done(struct pawl_core *core, const struct pawl_effect *effect, bool published,
                           uint64_t position);

/* --- direct queues --------------------------------------------------------------------------- */

/* The memory of direct queues is the shell's. The core keeps name, options and rights, and asks it
 * here. Members that are NULL: this shell has no direct queues, and their mode is
 * E_NOT_SUPPORTED. */
struct pawl_core_direct {
    void *ctx;
    /* OK: there is memory for it. Else the queue is not made: E_FULL, E_RESOURCE, .... */
    int (*create)(void *ctx, uint64_t id, const char *name,
                  const struct pawl_queue_options *options);
    /* It was made, altered or dropped (gone); to be shown to nobody before wait_lsn is durable. */
    void (*changed)(void *ctx, uint64_t id, bool gone, uint64_t wait_lsn);
    /* Fills in what is known of its messages. */
    void (*stat)(void *ctx, uint64_t id, struct pawl_queue_stat *out);
    /* Messages with an id above `after` and a state of the mask, in order of id: how many. */
    uint32_t (*scan)(void *ctx, uint64_t id, uint64_t after, uint32_t state_mask,
                     struct pawl_record *out, uint32_t max);
    int (*restore)(void *ctx, uint64_t id, uint64_t message);
};
void pawl_core_set_direct(struct pawl_core *core, const struct pawl_core_direct *direct);
void pawl_core_direct_each(const struct pawl_core *core,
                           void (*each)(void *ctx, uint64_t id, const char *name,
                                        const struct pawl_queue_options *options),
                           void *ctx);
/* May this peer do all of `rights` (receive 4, send 2, query 1) on the direct queue? OK, E_PERM,
 * E_NOT_FOUND, E_QUEUE_GONE, E_NOT_SUPPORTED (another kind of queue). */
int pawl_core_direct_allows(const struct pawl_core *core, const struct pawl_core_peer *peer,
                            uint64_t id, uint32_t rights);

/* --- copy-forward ---------------------------------------------------------------------------- */

/* Bytes of log that all live facts would take, heads included. */
uint64_t pawl_core_live(const struct pawl_core *core);
/* Appends facts of what lives in this segment, up to `budget` bytes or the log's room. True: none
 * is left (the segment may be released once all appended so far is durable). */
bool pawl_core_copy(struct pawl_core *core, uint64_t segment, uint64_t budget, struct pawl_now now);

/* --- inspect --------------------------------------------------------------------------------- */

struct pawl_core_stats {
    uint64_t messages, memory_bytes, sessions, queues, leases, timers;
    uint64_t sends, deliveries, acks, refused;
};
void pawl_core_stats(const struct pawl_core *core, struct pawl_core_stats *out);
/* "name value\n" lines of the core; returns the length, as snprintf. */
size_t pawl_core_metrics(const struct pawl_core *core, char *text, size_t bytes);
/* A hash over all durable state (ids, states, places, counters, outcomes), independent of pool
 * order: equal before and after recovery. */
uint64_t pawl_core_digest(const struct pawl_core *core);
/* Recounts everything and checks every invariant; for tests and verify builds. */
void pawl_core_verify(const struct pawl_core *core);

#endif
