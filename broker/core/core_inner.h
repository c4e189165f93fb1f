/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_INNER_H
#define PAWL_CORE_INNER_H

/* The objects of the core and what its files ask of each other. Nobody outside core/ includes it.
 *
 *   core.c     create, destroy, the dispatcher, timers, room
 *   queue.c    queues: options, rights, names, states of messages as lists
 *   ledger.[ch]  what is remembered   key.c  dedup keys of messages
 *   order.c    ordering keys
 *   send.c     receive.c   settle.c (by token)   repair.c (by id)   lease.c (ends of leases)
 *   ends.c     rows of leases by when they end
 *   group.c    several records as one   identity.c  op-ids and outcomes   txn.c  transactions
 *   session.c  sessions and their ends   lane.c  lanes, windows, answers
 *   replay.c   records in, start         copy.c  copy-forward
 *   idem.[ch]  idempotent operations
 *   state.h    tables: cell.c (keys in order), state.c, reserve.c, state_scan.c
 *   lookup.c   records by id and key   watch.c  waiting for the state of a message
 *   effect.c   bytes of completions      inspect.c, query.c  stat, list, scan, peek, metrics
 *   verify.c   digest and invariants
 *
 * States of a message and who moves it (message.c, pawl_core_message_move alone):
 *
 *   SCHEDULED --due--> READY --grant--> LEASED --nack, expiry, release, death--> READY | SCHEDULED
 *   LEASED --limit, reject--> DEAD --restore--> READY
 *   LEASED, READY, SCHEDULED --ack, ttl, cancel, purge--> tombstone --retention--> nothing */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi/layout.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/hash.h"
#include "core/core.h"
#include "core/idem.h"
#include "core/ledger.h"
#include "core/message.h"
#include "core/payload.h"
#include "core/pool.h"
#include "core/ready.h"
#include "core/record.h"
#include "core/state.h"
#include "core/table.h"
#include "core/wheel.h"
#include "pawl.h"

#define PAWL_EPOCH_SHIFT 40
#define PAWL_NO_HANDLE UINT32_MAX
#define PAWL_QUEUES_MAX 65536u
#define PAWL_QUEUE_LIVE (sizeof(struct pawl_queue_rec) + PAWL_RECORD_HEAD)
#define PAWL_TOMBSTONES_MAX 1000000u /* a queue */
#define PAWL_WAITERS_A_SESSION_MAX 1024u
#define PAWL_RETENTION_NS_DEFAULT (600 * PAWL_NS_S)
#define PAWL_DEDUP_WINDOW_NS_DEFAULT (600 * PAWL_NS_S)
#define PAWL_GRANT_BATCH 32u       /* messages one GRANT record holds at most */
#define PAWL_LOWEST_EVERY_MASK 31u /* one delivery in 32 goes to the lowest level that waits */

/* Kinds of owners of timers. */
enum pawl_core_timer {
    PAWL_TIMER_MESSAGE = 1,
    PAWL_TIMER_WAITER,
    PAWL_TIMER_SESSION,
    PAWL_TIMER_QUEUE,
    PAWL_TIMER_AGAIN,
    PAWL_TIMER_ENDS,
    PAWL_TIMER_LEDGER,
    PAWL_TIMER_RESERVATION,
    PAWL_TIMER_RESERVATIONS,
    PAWL_TIMER_IDEM,
    PAWL_TIMER_WATCH
};

/* Kinds of objects with a home segment. */
enum pawl_core_kind {
    PAWL_KIND_MESSAGE,
    PAWL_KIND_QUEUE,
    PAWL_KIND_SESSION,
    PAWL_KIND_LANE,
    PAWL_KIND_LEDGER,
    PAWL_KIND_STATE,
    PAWL_KIND_RESERVATION,
    PAWL_KIND_HORIZON, /* one */
    PAWL_KIND_IDEM,
    PAWL_KINDS
};

/* A list of messages through next and prev; ends are 0. */
struct pawl_core_list {
    uint32_t first, last, count;
};

struct pawl_core_lease {
    uint64_t random;
    uint64_t deadline; /* LEASED: when it is over; after it: when the message is due */
    uint64_t lease_ns, hold_end;
    uint64_t position; /* of the delivery in the lane's ring; PAWL_POSITION_... */
    uint64_t seq;      /* of the RECEIVE or SUBSCRIBE */
    uint32_t message;
    uint32_t session;    /* pool number; 0: none, or no longer */
    uint32_t next, prev; /* leases of the session, by grant; while LEASED */
    uint32_t waiter;     /* whose credit it uses; the waiter may be another by now (seq tells) */
    uint32_t uid, pid;
    uint32_t reason; /* payload block of the last nack's or reject's reason; 0: none */
    uint16_t lane;
    uint8_t kind;
    uint8_t reason_bytes;
    uint8_t flags; /* PAWL_LEASE_HOLDS_KEY, _KEY_FREE */
    uint8_t row;   /* + 1; 0: none, the message has a timer of its own, or its time has not begun */
    uint16_t progress_bytes;
    uint32_t progress; /* payload block: what a defer left for the next one who gets the message */
    uint32_t reserved;
    uint32_t row_next, row_prev; /* those that end no earlier, no later */
    uint64_t end;                /* its place in the row; the deadline may be later by now */
};
/* Leases of one length, by when they end: ends.c. */
#define PAWL_ENDS_ROWS 8u
struct pawl_core_ends {
    uint64_t length; /* ns */
    uint32_t first, last;
    uint32_t timer; /* armed no later than the first one ends */
};
#define PAWL_LEASE_HOLDS_KEY 1u /* others of its ordering key wait for this message */
#define PAWL_LEASE_KEY_FREE 2u  /* SCHEDULED: they need not, says the one who deferred it */
/* The time of a lease runs from its publication: until then its timer does not end it. */
#define PAWL_POSITION_PENDING 0u
#define PAWL_POSITION_BACK \
    (UINT64_MAX - 2) /* never shown, and its lane is closed: to be released */
#define PAWL_POSITION_AGAIN (UINT64_MAX - 1) /* to be emitted again as the ring has room */
#define PAWL_POSITION_NONE UINT64_MAX        /* dropped, or published by an earlier broker */

struct pawl_core_queue {
    uint64_t id; /* 0 */
    uint32_t chain;
    struct pawl_home home;
    bool known; /* false: a placeholder that a later record must define */
    bool paused, gone, active, sweeping;
    uint8_t levels; /* bit map of priorities with ready messages */
    bool in_names;
    uint32_t number;   /* of itself */
    uint32_t purging;  /* purges at work: nothing is delivered */
    uint32_t turn;     /* deliveries, for the lowest level's share */
    uint64_t place;    /* last one given */
    uint64_t wait_lsn; /* what a relaxed or memory answer waits for: its own creation */
    uint64_t gone_time;
    /* options with the defaults put in */
    uint64_t lease_ns, hold_ns, retention_ns, dedup_window_ns, messages_max, bytes_max;
    uint64_t dedup_keys; /* entries of the ledger that name it */
    uint32_t message_bytes_max, inflight_max, failed_max, crashed_max;
    struct pawl_ready ready[PAWL_PRIORITIES];
    struct pawl_ready blocked; /* the first ready message of each ordering key that is held */
    uint32_t ready_count;      /* all that are READY, those behind others of their key too */
    struct pawl_core_list scheduled, leased, dead, done;
    uint64_t bytes;
    uint64_t checked_bytes;               /* of sends of a transaction that is being checked */
    uint32_t checked;                     /* how many */
    uint32_t waiting_first, waiting_last; /* waiter * 16 + slot, of those that can take now */
    uint32_t waiting_count;               /* all that name it, served now or not */
    uint32_t active_next;
    uint32_t timer; /* of the oldest tombstone */
    struct pawl_queue_counters counters;
    /* of a table (state.h) */
    uint32_t root; /* cell */
    uint32_t keys, reservations;
    uint32_t idems;    /* of it as a scope (idem.h) */
    uint32_t sweep_at; /* reservation or idem where the sweep of a gone table has got to */
    uint64_t state_bytes;
    char name[PAWL_NAME_BYTES_MAX + 1];
    struct pawl_queue_options options; /* as given */
};

/* An ordering key of a queue: see order.c. */
struct pawl_core_order {
    uint64_t id, id_high; /* XXH3-128 of queue and key */
    uint32_t chain;
    uint32_t messages;      /* of it that live; 0: the entry is free */
    uint32_t holders;       /* of these: leased, or waiting for their retry */
    uint32_t head;          /* the ready one with the smallest place; 0: none is ready */
    struct pawl_ready rest; /* the other ready ones */
    bool blocked;           /* head stands in the queue's `blocked`, else in READY */
    uint8_t reserved[7];
};

enum pawl_core_session_state { PAWL_SESSION_LIVE = 1, PAWL_SESSION_DETACHED, PAWL_SESSION_ENDING };

struct pawl_core_session {
    uint64_t id; /* 0 */
    uint32_t chain;
    struct pawl_home home;
    bool known, logged, end_logged;
    uint8_t state, why;
    uint32_t number;
    uint64_t epoch;
    uint64_t detached_at;
    uint8_t secret[16];
    struct pawl_core_peer peer;
    uint32_t leases_first, leases_last, leases_count; /* current ones */
    uint32_t idems_first, idems_count;                /* what it works on (idem.h) */
    uint32_t timer;                                   /* of the grace */
    uint32_t ending_next;
    uint32_t lanes_count, waiters_count, watches_count;
    uint32_t lanes[PAWL_LANES_MAX]; /* pool numbers */
};

struct pawl_window_entry {
    uint64_t seq, value, lsn;
    int32_t result;
    uint8_t state; /* PAWL_WINDOW_... */
    uint8_t flags; /* PAWL_ANSWER_... */
    uint8_t reserved[2];
};
enum pawl_window_state {
    PAWL_WINDOW_NONE,    /* not taken, or not known any more */
    PAWL_WINDOW_PENDING, /* its answer will come */
    PAWL_WINDOW_DONE,
    PAWL_WINDOW_QUERY /* answered with data: asked anew */
};
/* In flags, of what has no answer yet: a purge of which some pieces are in the log; value is its
 * total so far, lsn the last id that it takes. */
#define PAWL_WINDOW_HALF 0x80u

struct pawl_core_lane {
    uint64_t id; /* 0: session pool number << 8 | number + 1; for no table, to tell used entries */
    struct pawl_home home;
    bool known, logged, blocked;
    bool resends;    /* a lease of it may be PAWL_POSITION_AGAIN: only then are they walked over */
    uint32_t number; /* of itself in the pool */
    uint32_t lane;   /* 0..255 */
    uint32_t session;
    uint32_t handle; /* PAWL_NO_HANDLE: none, nothing is emitted */
    uint32_t comp_bytes;
    uint64_t opened_epoch; /* session epoch when it was opened last */
    uint64_t taken;
    uint64_t seq_max, oldest;
    uint64_t copied;      /* copy-forward has got so far with its window */
    uint32_t window_mask; /* entries - 1 */
    uint32_t window;      /* as asked for */
    uint32_t entries;     /* payload block */
    uint32_t waiters;     /* first of its waiters */
    uint32_t watches;     /* first of those (watch.c) */
    /* what is left to be shown of a QUERY (lookup.c) */
    uint32_t query_block, query_count;
    uint64_t query_queue, query_lsn;
};

struct pawl_core_waiter {
    uint64_t seq; /* 0 */
    uint64_t end; /* pawl time */
    uint64_t lease_ns;
    uint32_t lane;       /* pool number */
    uint32_t number;     /* of itself */
    uint32_t next, prev; /* of the lane */
    uint32_t timer;
    uint32_t max;  /* RECEIVE: messages; SUBSCRIBE: credit */
    uint32_t have; /* given, or leased */
    int32_t end_result;
    uint32_t session, lane_number; /* whose it is, to know its leases */
    uint8_t kind, flags, queue_count;
    bool standing, linked, once, in_lane;
    uint8_t reserved[1];
    uint32_t too_big;       /* value of an E_TOO_BIG: ring bytes that its next delivery needs */
    uint64_t wait_lsn, lsn; /* of its answer */
    uint32_t queue[PAWL_QUEUES_A_RECEIVE_MAX]; /* pool numbers */
    struct {
        uint32_t next, prev; /* waiter * 16 + slot */
    } link[PAWL_QUEUES_A_RECEIVE_MAX];
};

/* A WAIT that has no answer yet: watch.c. */
struct pawl_core_watch {
    uint64_t id; /* of the message */
    uint32_t chain;
    uint32_t number; /* of itself */
    uint64_t seq;
    uint32_t lane, session, queue; /* pool numbers */
    uint32_t next, prev;           /* of the lane */
    uint32_t fired_next;
    uint32_t timer;
    uint32_t mask;
    int32_t end_result;
    uint8_t seen; /* state that it got into */
    bool fired;   /* to be answered in this turn */
    uint8_t reserved[2];
};
#define PAWL_WATCHES_SHIFT 7u
#define PAWL_WATCHES_A_SESSION_MAX 1024u

/* Lists of objects by home segment. */
struct pawl_core_home_slot {
    uint32_t first[PAWL_KINDS];
    uint32_t segment; /* low bits + 1; 0: unused */
    uint32_t count;
};
#define PAWL_HOME_SLOTS (1u << 18)

/* Work in pieces: a purge. */
struct pawl_core_purge {
    uint64_t seq, id_max, total, lsn;
    uint32_t lane; /* pool number; 0: its lane is gone */
    uint32_t queue;
    uint32_t next;
    bool away; /* the rings that it came from are gone, and it has not come from others yet */
};

/* A SCAN that needs a pass, and what the last pass left. */
struct pawl_core_scan {
    uint64_t seq, after, queue_id;
    uint32_t lane; /* pool number; 0: its lane is gone */
    uint32_t queue, mask, max;
    uint32_t position; /* next message of the pass; 0: not begun */
    uint32_t found;
    uint32_t next;
    uint32_t reserved;
};
struct pawl_core_kept {
    uint64_t queue; /* id; 0: nothing is kept */
    uint64_t after; /* last id shown of it: only the page behind that may be had from here */
    uint32_t lane;  /* only to whom it was shown */
    uint32_t mask, count;
};
#define PAWL_CORE_SCAN_BYTES 32768u

/* A GROUP record that is being filled (group.c). */
struct pawl_core_group {
    uint8_t *at;   /* the next part */
    uint32_t left; /* bytes */
    bool wanted;   /* what is appended goes into it: it is open, or opens with the first record */
    bool open;
    uint64_t lsn;
};

/* The command under an op-id that is being decided: its answer waits here for the outcome's record.
 * lane NULL: none. */
struct pawl_core_operation {
    const struct pawl_core_lane *lane;
    uint64_t seq, value, lsn, wait_lsn;
    int32_t result;
    uint8_t flags;
    bool answered;
};

struct pawl_core {
    struct pawl_core_options options;
    struct pawl_core_port port;
    struct pawl_budget budget;
    uint64_t memory_sends; /* budget for sends: the rest is for what must go on */
    struct pawl_now now;   /* newest seen */
    bool started;
    uint32_t segment_shift;
    uint32_t refuse; /* enum pawl_limit for sends */
    uint64_t next_id, next_grant;
    uint64_t void_below; /* grants of epochs below are void: the machine was started anew */
    uint32_t void_queue; /* pool number where looking for them goes on */
    struct pawl_pool messages, queues, leases, sessions, lanes, waiters, purges, scans, orders;
    struct pawl_table messages_by_id, queues_by_id, sessions_by_id, orders_by_id;
    struct pawl_pool cells, reservations;
    struct pawl_table reservations_by_id;
    struct pawl_pool watches;
    struct pawl_table watches_by_message;
    uint32_t watches_fired;
    struct pawl_pool idems;
    struct pawl_table idems_by_id;
    struct pawl_payload payload;
    struct pawl_ledger ledger;
    struct pawl_wheel wheel;
    uint32_t *names; /* queues in order of name */
    uint32_t names_count;
    struct pawl_core_home_slot *homes;
    uint32_t active_first, active_last; /* queues to serve */
    uint32_t ending_first;              /* sessions */
    uint32_t purges_first, purges_last;
    uint32_t scans_first, scans_last;
    uint64_t *scan_ids;
    struct pawl_core_kept kept;
    uint32_t finished_first, finished_last; /* reservations that are over, oldest first */
    uint32_t forget;                        /* timer of the first of them */
    struct pawl_core_ends ends[PAWL_ENDS_ROWS];
    uint32_t ends_used; /* row of the last lease */
    uint32_t again;     /* timer: work in pieces that waits for nothing goes on next turn */
    uint32_t sweeping;  /* gone queues that still hold something */
    uint64_t live;
    uint64_t messages_live, tombstones;
    uint64_t tombstones_max; /* of all queues: a quarter of the memory */
    uint64_t leases_current;
    uint64_t result_bytes; /* that tombstones keep: a quarter of the memory at most */
    struct pawl_core_group group;
    struct pawl_core_operation operation;
    uint64_t horizon_said; /* what of the ledger's horizon is in the log */
    struct pawl_home horizon_home;
    uint64_t sends, deliveries, acks, refused;
    bool damaged; /* a replay ran out of memory or met what cannot be */
};

/* A command while it is decided. */
struct pawl_take {
    struct pawl_core *core;
    struct pawl_core_lane *lane;
    struct pawl_core_session *session;
    struct pawl_now now;
    uint64_t seq;
    uint16_t type;
    uint16_t flags;
    uint32_t open;
    uint64_t deadline;
    struct pawl_op_id id; /* with PAWL_CMD_IDENTIFIED */
    const void *fixed;
    const uint8_t *variable;
    uint32_t variable_bytes;
};

/* --- pools ----------------------------------------------------------------------------------- */

/* Entries a chunk, as powers of two. */
#define PAWL_QUEUES_SHIFT 4u
#define PAWL_LEASES_SHIFT 10u
#define PAWL_SESSIONS_SHIFT 5u
#define PAWL_LANES_SHIFT 8u
#define PAWL_WAITERS_SHIFT 7u
#define PAWL_ORDERS_SHIFT 13u

static inline struct pawl_core_message *pawl_core_message_at(const struct pawl_core *core,
                                                             uint32_t n)
{
    return pawl_pool_entry(&core->messages, n, sizeof(struct pawl_core_message));
}
static inline struct pawl_core_queue *pawl_core_queue_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->queues, n, sizeof(struct pawl_core_queue));
}
static inline struct pawl_core_lease *pawl_core_lease_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->leases, n, sizeof(struct pawl_core_lease));
}
static inline struct pawl_core_session *pawl_core_session_at(const struct pawl_core *core,
                                                             uint32_t n)
{
    return pawl_pool_entry(&core->sessions, n, sizeof(struct pawl_core_session));
}
static inline struct pawl_core_lane *pawl_core_lane_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->lanes, n, sizeof(struct pawl_core_lane));
}
static inline struct pawl_core_waiter *pawl_core_waiter_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->waiters, n, sizeof(struct pawl_core_waiter));
}
static inline struct pawl_core_order *pawl_core_order_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->orders, n, sizeof(struct pawl_core_order));
}
static inline bool pawl_core_terminal(uint8_t state) { return state >= PAWL_STATE_ACKED; }
static inline uint64_t pawl_core_new_id(struct pawl_core *core)
{
    return core->options.epoch << PAWL_EPOCH_SHIFT | ++core->next_id;
}
/* Was this number ever given? Of an older epoch only its form is known. */
bool pawl_core_id_given(const struct pawl_core *core, uint64_t id);

/* --- core.c ---------------------------------------------------------------------------------- */

/* Room for what must go on when sends are refused: brackets every allocation that is not a send's.
 */
static inline void pawl_core_memory_open(struct pawl_core *core)
{
    if (core->started)
        core->budget.limit = core->options.memory_bytes;
}
static inline void pawl_core_memory_close(struct pawl_core *core)
{
    if (core->started)
        core->budget.limit = core->memory_sends;
}
void *pawl_core_group_append(struct pawl_core *core, uint16_t type, uint32_t bytes, uint64_t *lsn);
static inline void *pawl_core_append(struct pawl_core *core, uint16_t type, uint32_t bytes,
                                     uint64_t *lsn)
{
    if (PAWL_UNLIKELY(core->group.wanted))
        return pawl_core_group_append(core, type, bytes, lsn);
    return core->port.append(core->port.ctx, type, bytes, lsn);
}
static inline uint64_t pawl_core_appended(const struct pawl_core *core)
{
    return core->port.appended(core->port.ctx);
}
static inline bool pawl_core_has_room(const struct pawl_core *core, uint64_t bytes)
{
    return core->port.room(core->port.ctx) >= bytes;
}
static inline void pawl_core_set_now(struct pawl_core *core, struct pawl_now now)
{
    if (now.time > core->now.time)
        core->now.time = now.time;
    core->now.wall = now.wall;
}
/* Log room for SESSION and LANE in front of a lane's first record. */
#define PAWL_FIRST_RECORDS \
    (sizeof(struct pawl_session_rec) + sizeof(struct pawl_lane_rec) + 2 * PAWL_RECORD_HEAD)

int pawl_core_dispatch(struct pawl_take *t);
/* Is the variable part as long as the fixed part says? */
bool pawl_core_variable_fits(const struct pawl_take *t);

/* --- group.c, identity.c, txn.c -------------------------------------------------------------- */

/* What a record of this size takes in a group. */
static inline uint32_t pawl_core_group_part(uint32_t bytes)
{
    return (uint32_t)(sizeof(struct pawl_sub_rec) + pawl_align_up(bytes, 8));
}
#define PAWL_OUTCOME_PART \
    ((uint32_t)(sizeof(struct pawl_sub_rec) + sizeof(struct pawl_outcome_rec)))
#define PAWL_OUTCOME_LIVE (sizeof(struct pawl_outcome_rec) + PAWL_RECORD_HEAD)
/* bytes: of all parts but the outcome. */
void pawl_core_group_open(struct pawl_core *core, uint32_t bytes);
void pawl_core_group_close(struct pawl_core *core, const struct pawl_outcome_rec *outcome);
int pawl_core_identity_take(struct pawl_take *t);
void pawl_core_resolve_take(struct pawl_take *t);
/* Writes an outcome, as the end of the open group if there is one, and applies it. id NULL: it only
 * tells the window what the whole was answered. Returns its lsn. */
uint64_t pawl_core_outcome_group(struct pawl_take *t, const struct pawl_op_id *id, uint64_t hash,
                                 int result, uint64_t value);
void pawl_core_outcome_apply(struct pawl_core *core, const struct pawl_outcome_rec *rec,
                             uint64_t lsn);
void pawl_core_outcome_fact(const struct pawl_core *core, uint32_t n, struct pawl_outcome_rec *out);
/* Ids up to this time are never taken for new. */
uint64_t pawl_core_horizon_ms(const struct pawl_core *core);
/* The horizon moved when entries made room: says so in the log. False: no room there; until it is
 * said nothing may be copied forward. */
bool pawl_core_horizon_say(struct pawl_core *core);
bool pawl_core_horizon_copy(struct pawl_core *core);
int pawl_core_txn_take(struct pawl_take *t);

/* --- home.c: segments ------------------------------------------------------------------------ */

void pawl_core_home_move(struct pawl_core *core, enum pawl_core_kind kind, struct pawl_home *home,
                         uint32_t number, uint64_t lsn);
struct pawl_home *pawl_core_home_of(const struct pawl_core *core, enum pawl_core_kind kind,
                                    uint32_t number);
/* lsn 0: none, as all of a memory queue. */
static inline void pawl_core_home_set(struct pawl_core *core, enum pawl_core_kind kind,
                                      uint32_t number, uint64_t lsn)
{
    struct pawl_home *home = kind == PAWL_KIND_MESSAGE ? &pawl_core_message_at(core, number)->home
                                                       : pawl_core_home_of(core, kind, number);
    if (lsn != 0 || home->segment != 0)
        pawl_core_home_move(core, kind, home, number, lsn);
}
/* NULL: nothing lives there. */
struct pawl_core_home_slot *pawl_core_home_slot(const struct pawl_core *core, uint64_t segment);

/* --- message.c ------------------------------------------------------------------------------- */

uint32_t pawl_core_message_payload_bytes(const struct pawl_core_message *m); /* of the block */
static inline uint32_t pawl_core_message_own_bytes(const struct pawl_core_message *m)
{
    return (m->flags & PAWL_MESSAGE_TTL ? 8u : 0u) + (m->key_bytes ? 8u : 0u);
}
/* What the client sent of it, which is what counts against the queue's limit. */
static inline uint32_t pawl_core_message_content_bytes(const struct pawl_core_message *m)
{
    return (uint32_t)m->key_bytes + m->ordering_key_bytes + m->headers_bytes + m->body_bytes;
}
uint64_t pawl_core_message_ttl_end(const struct pawl_core *core, const struct pawl_core_message *m);
uint64_t pawl_core_message_due(const struct pawl_core *core, const struct pawl_core_message *m);
bool pawl_core_message_logged(const struct pawl_core *core, const struct pawl_core_message *m);
/* Those of its record that stay with it. */
static inline uint8_t pawl_core_message_flags(uint8_t record_flags)
{
    return (uint8_t)((record_flags & PAWL_RECORD_TTL ? PAWL_MESSAGE_TTL : 0) |
                     (record_flags & PAWL_RECORD_ORDERED ? PAWL_MESSAGE_ORDERED : 0));
}
/* From its state to another one: lists, counts, timer. The caller has set place, lease and the
 * like before. NONE as the old state: it is new. */
void pawl_core_message_move(struct pawl_core *core, uint32_t number, uint8_t state);
/* Out of the list of its state, which the next move must not look for: state is NONE after. */
void pawl_core_message_detach(struct pawl_core *core, uint32_t number);
/* (Re)arms or gives back its timer as the state asks; a lease stands in a row instead. */
void pawl_core_message_timer(struct pawl_core *core, uint32_t number);
/* Fires at the next turn, whatever the state says. */
void pawl_core_message_timer_now(struct pawl_core *core, uint32_t number);
/* Payload and lease are given back, state is terminal. */
void pawl_core_message_end(struct pawl_core *core, uint32_t number, uint8_t state, uint64_t forget,
                           uint32_t pid, uint32_t uid);
/* Out of every list and table. */
void pawl_core_message_forget(struct pawl_core *core, uint32_t number);
/* Into READY and out of it, as for a grant that is being decided: CHOSEN is the caller's. Counts
 * levels, not ready_count, and wakes who waits. */
void pawl_core_ready_insert(struct pawl_core *core, struct pawl_core_queue *q, uint32_t number);
void pawl_core_ready_remove(struct pawl_core *core, struct pawl_core_queue *q, uint32_t number);
void pawl_core_message_unpin(struct pawl_core *core, uint32_t number);
/* Bytes of log that its fact takes. */
uint64_t pawl_core_message_live_bytes(const struct pawl_core *core,
                                      const struct pawl_core_message *m);

/* --- order.c -----------------------------------------------------------------------------------
 */

/* The entry of a message that is ORDERED; 0: none, and for make: no memory, which only a replay may
 * meet. */
uint32_t pawl_core_order_find(const struct pawl_core *core, const struct pawl_core_message *m);
uint32_t pawl_core_order_make(struct pawl_core *core, struct pawl_core_message *m);
bool pawl_core_order_ready(struct pawl_core *core); /* the next make cannot fail */
/* Message n out of what its state says, and into it. Then settle, once it has left and entered: the
 * entry of a key without messages is gone after it. */
void pawl_core_order_leave(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                           uint32_t k);
void pawl_core_order_enter(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                           uint32_t k);
void pawl_core_order_settle(struct pawl_core *core, struct pawl_core_queue *q, uint32_t k);
/* Is a message with such a key, sent to q, in order with others? */
static inline bool pawl_core_order_applies(const struct pawl_core_queue *q,
                                           uint8_t ordering_key_bytes)
{
    return ordering_key_bytes != 0 || (q->options.flags & PAWL_QUEUE_ORDERED) != 0;
}

/* --- ends.c ---------------------------------------------------------------------------------- */

int pawl_core_ends_start(struct pawl_core *core); /* non-zero: no memory */
/* False: no row takes it, it needs a timer of its own. */
bool pawl_core_ends_enter(struct pawl_core *core, uint32_t lease, uint64_t end);
void pawl_core_ends_leave(struct pawl_core *core, struct pawl_core_lease *lease); /* row != 0 */
/* A row's timer fired: the message whose lease may be over, out of the row; 0: none yet. */
uint32_t pawl_core_ends_timer(struct pawl_core *core, uint32_t row);
/* The next `count` timers can be had, and still one for each message that is leased: it may need
 * one when it is given back with a delay, where nothing may fail. */
static inline bool pawl_core_timers_ready(struct pawl_core *core, uint32_t count)
{
    return pawl_pool_ready(&core->wheel.timers, count + (uint32_t)core->leases_current);
}

/* --- lease.c --------------------------------------------------------------------------------- */

/* The lease is over for its session and waiter (credit); the entry stays with the message. */
void pawl_core_lease_over(struct pawl_core *core, struct pawl_core_lease *lease);
void pawl_core_lease_free(struct pawl_core *core, uint32_t number);
void pawl_core_lease_link(struct pawl_core *core, uint32_t number, uint32_t session);
void pawl_core_lease_unlink(struct pawl_core *core, uint32_t number);
/* Is it in force at core->now? */
bool pawl_core_lease_current(const struct pawl_core *core, const struct pawl_core_message *m);
/* Ends it, message lives on. op NULL: not by a command. delay: UINT64_MAX ladder. Returns the lsn
 * of the record, 0 for none. Needs PAWL_BACK_ROOM. */
#define PAWL_BACK_ROOM (sizeof(struct pawl_back_rec) + PAWL_REASON_BYTES_MAX + PAWL_RECORD_HEAD + 8)
uint64_t pawl_core_lease_back(struct pawl_core *core, uint32_t message, enum pawl_back_cause cause,
                              const struct pawl_op_rec *op, uint64_t delay, const uint8_t *reason,
                              uint32_t reason_bytes);
/* The same for a defer. progress: a block with this many bytes, which becomes the message's; 0:
 * none. Needs PAWL_PROGRESS_BYTES_MAX more. */
uint64_t pawl_core_lease_defer(struct pawl_core *core, uint32_t message,
                               const struct pawl_op_rec *op, uint64_t delay, bool key_free,
                               uint32_t progress, uint32_t progress_bytes);
/* n 0: the message is not known (any more). progress is given back if nobody is to have it. */
void pawl_core_back_apply(struct pawl_core *core, const struct pawl_back_rec *rec,
                          const uint8_t *reason, uint32_t progress, struct pawl_core_queue *q,
                          uint32_t n);
/* The lease is over by time: as above, as an expiry. */
void pawl_core_lease_timer(struct pawl_core *core, uint32_t message);
/* A result in a block of its own; 0: no memory. Bytes of it, and where it lies (may be NULL). */
uint32_t pawl_core_result_block(struct pawl_core *core, const void *result, uint32_t bytes);
uint32_t pawl_core_result_of(const struct pawl_core *core, uint32_t block, const uint8_t **result);
void pawl_core_result_give(struct pawl_core *core, uint32_t block);
/* The tombstone m has this one from now on; has none any more. */
void pawl_core_result_keep(struct pawl_core *core, struct pawl_core_message *m, uint32_t block);
void pawl_core_result_drop(struct pawl_core *core, struct pawl_core_message *m);
static inline uint32_t pawl_core_result_bytes(const struct pawl_core *core,
                                              const struct pawl_core_message *m)
{
    return PAWL_LIKELY(m->child == 0) ? 0 : pawl_core_result_of(core, m->child, NULL);
}
/* Who acknowledged it and when: value of an E_ALREADY_ACKED. */
static inline uint64_t pawl_core_acked_value(const struct pawl_core_message *m)
{
    return m->place / PAWL_NS_S << 32 | m->lease;
}
/* Writes and applies an END. result: a block that becomes the message's; 0: none. */
#define PAWL_END_ROOM (sizeof(struct pawl_end_rec) + PAWL_RECORD_HEAD)
uint64_t pawl_core_end_message(struct pawl_core *core, uint32_t message, uint8_t state,
                               const struct pawl_op_rec *op, uint8_t flags);
uint64_t pawl_core_end_with(struct pawl_core *core, uint32_t message, uint8_t state,
                            const struct pawl_op_rec *op, uint8_t flags, uint32_t result);

/* --- queue.c --------------------------------------------------------------------------------- */

uint32_t pawl_core_queue_find_name(const struct pawl_core *core, const char *name); /* 0: none */
uint32_t pawl_core_queue_make(struct pawl_core *core, uint64_t id); /* 0: no memory */
/* The queue with this id, made as a placeholder if a replay has not seen it yet. NULL: no memory.
 */
struct pawl_core_queue *pawl_core_queue_known(struct pawl_core *core, uint64_t id);
void pawl_core_queue_set_options(struct pawl_core_queue *q, const struct pawl_queue_options *o);
/* May this peer do it? right: 4 receive, 2 send, 1 query. */
#define PAWL_RIGHT_RECEIVE 4u
#define PAWL_RIGHT_SEND 2u
#define PAWL_RIGHT_QUERY 1u
bool pawl_core_queue_allows(const struct pawl_core *core, const struct pawl_core_queue *q,
                            uint32_t uid, uint32_t gid, uint32_t right);
bool pawl_core_queue_admin(const struct pawl_core *core, const struct pawl_core_queue *q,
                           uint32_t uid);
/* The queue or table with this id, checked for the right; or *result. */
struct pawl_core_queue *pawl_core_queue_of(const struct pawl_core *core,
                                           const struct pawl_core_peer *peer, uint64_t id,
                                           uint32_t right, int *result);
/* The queue of a command; a table is E_NOT_SUPPORTED. */
struct pawl_core_queue *pawl_core_queue_for(struct pawl_take *t, uint64_t id, uint32_t right,
                                            int *result);
static inline bool pawl_core_queue_logged(const struct pawl_core_queue *q)
{
    return q->options.mode != PAWL_MEMORY;
}
static inline uint64_t pawl_core_queue_live(const struct pawl_core_queue *q)
{
    return (uint64_t)q->ready_count + q->scheduled.count + q->leased.count + q->dead.count;
}
/* What an effect of this queue waits for, now that its record (if any) is appended. */
static inline uint64_t pawl_core_queue_wait(const struct pawl_core *core,
                                            const struct pawl_core_queue *q)
{
    return q->options.mode == PAWL_DURABLE ? pawl_core_appended(core) : q->wait_lsn;
}
bool pawl_core_queue_sees(const struct pawl_core *core, const struct pawl_core_queue *q,
                          const struct pawl_core_peer *peer);
/* Position in names of the first one after this name. */
uint32_t pawl_core_queue_after(const struct pawl_core *core, const char *name);
void pawl_core_queue_name_remove(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_queue_take(struct pawl_take *t);
void pawl_core_queue_fact(struct pawl_core *core, const struct pawl_core_queue *q,
                          struct pawl_queue_rec *out);
void pawl_core_queue_apply(struct pawl_core *core, const struct pawl_queue_rec *rec, uint64_t lsn);

/* --- purge.c --------------------------------------------------------------------------------- */

/* Frees what gone queues hold; true: there is more. */
void pawl_core_sweep_message(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n);
bool pawl_core_sweep(struct pawl_core *core, uint32_t budget);
void pawl_core_purge_begin(struct pawl_take *t, struct pawl_core_queue *q);
/* True: it waits for room in the log. */
bool pawl_core_purge_pump(struct pawl_core *core);
/* The rings of this lane are gone. Its client has submitted this one again from new ones. */
void pawl_core_purge_away(struct pawl_core *core, uint32_t lane);
void pawl_core_purge_asked(struct pawl_core *core, const struct pawl_core_lane *lane, uint64_t seq);
void pawl_core_again(struct pawl_core *core);
/* ids: u64 each, wherever they lie in a record. */
void pawl_core_purge_apply(struct pawl_core *core, struct pawl_core_queue *q, const void *ids,
                           uint32_t count, uint64_t forget);
/* Nothing but tombstones names a queue that is long gone. */
void pawl_core_queue_drop_placeholder(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_queue_timer(struct pawl_core *core, uint32_t number);
/* Gives up the oldest tombstone of the queue; false: none, or a delivery needs it still. */
bool pawl_core_forget_oldest(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_queue_done_timer(struct pawl_core *core, struct pawl_core_queue *q);

/* --- receive.c ------------------------------------------------------------------------------- */

void pawl_core_receive_take(struct pawl_take *t);
void pawl_core_receive_stop(struct pawl_take *t);
/* Serves it in the next pump if it can be served. */
void pawl_core_queue_wake(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_waiter_link(struct pawl_core *core, struct pawl_core_waiter *w);
void pawl_core_waiter_unlink(struct pawl_core *core, struct pawl_core_waiter *w);
/* The queue is gone: E_QUEUE_GONE to all that name it. */
void pawl_core_waiters_gone(struct pawl_core *core, const struct pawl_core_queue *q);
/* Ends a waiting receive with this result; a RECEIVE is answered. */
void pawl_core_waiter_end(struct pawl_core *core, struct pawl_core_waiter *w, int result);
void pawl_core_waiter_drop(struct pawl_core *core, struct pawl_core_waiter *w);
void pawl_core_waiter_timer(struct pawl_core *core, uint32_t number);
bool pawl_core_receive_pump(struct pawl_core *core);

/* --- grant.c --------------------------------------------------------------------------------- */

enum pawl_served {
    PAWL_SERVED,        /* as far as there was something, and it may have more */
    PAWL_SERVE_NOTHING, /* this queue can give nothing now */
    PAWL_SERVE_NO_ROOM, /* in the log */
    PAWL_SERVE_BLOCKED, /* its ring is full */
    PAWL_SERVE_TOO_BIG  /* its ring is too small */
};
static inline bool pawl_core_queue_serves(const struct pawl_core_queue *q)
{
    return q->levels != 0 && !q->paused && !q->gone && q->purging == 0 &&
           q->leased.count < q->inflight_max;
}
enum pawl_served pawl_core_serve(struct pawl_core *core, struct pawl_core_waiter *w,
                                 struct pawl_core_queue *q);
/* False: no room in the ring. */
bool pawl_core_deliver_again(struct pawl_core *core, struct pawl_core_lane *lane,
                             struct pawl_core_lease *lease);
void pawl_core_grant_apply(struct pawl_core *core, uint32_t message,
                           const struct pawl_grant_rec *rec, uint64_t grant, uint64_t random,
                           uint32_t session, uint32_t waiter);

/* --- key.c ----------------------------------------------------------------------------------- */

#define PAWL_KEY_LIVE (sizeof(struct pawl_key_rec) + PAWL_RECORD_HEAD)
void pawl_core_key_name(const struct pawl_core *core, uint64_t queue, const void *key,
                        uint32_t bytes, uint64_t *id, uint64_t *id_high);
uint64_t pawl_core_key_body(const struct pawl_core *core, const void *body, uint32_t bytes);
/* The entry of a message; 0: it has no key, or its queue is gone. */
uint32_t pawl_core_key_of(const struct pawl_core *core, const struct pawl_core_message *m);
void pawl_core_key_word(const struct pawl_core *core, uint32_t block, bool ttl, uint64_t word);
uint8_t pawl_core_key_state(const struct pawl_core *core, const struct pawl_ledger_entry *e);
/* Of a message that becomes terminal or vanishes; while it still has payload and home. */
void pawl_core_key_end(struct pawl_core *core, struct pawl_core_message *m, uint8_t state);
/* Is there such a key, now? */
bool pawl_core_key_valid(const struct pawl_core *core, const struct pawl_ledger_entry *e);
/* OK: free, with *entry that of one that is over, or 0. OK_DUPLICATE, E_KEY_MISMATCH: used. */
int pawl_core_key_look(struct pawl_core *core, uint64_t id, uint64_t id_high, uint64_t body,
                       uint32_t *entry);
/* Takes it, after a pawl_core_ledger_ready(). over: what look left. */
uint32_t pawl_core_key_hold(struct pawl_core *core, const struct pawl_core_queue *q, uint64_t id,
                            uint64_t id_high, uint64_t body, uint32_t over);
/* Replay: makes the entry of a message in this block, as its record has it. 0, or -1: no memory. */
int pawl_core_key_restore(struct pawl_core *core, uint64_t queue, uint64_t id, uint32_t block,
                          bool ttl, uint32_t key_bytes, uint32_t body_offset, uint32_t body_bytes);
int pawl_core_key_fact(struct pawl_core *core, const struct pawl_key_rec *rec, uint64_t lsn);
bool pawl_core_key_needed(const struct pawl_core *core, const struct pawl_ledger_entry *e);
void pawl_core_key_rec(const struct pawl_core *core, const struct pawl_ledger_entry *e,
                       struct pawl_key_rec *out);

/* --- send.c, settle.c, repair.c, query.c ----------------------------------------------------- */

/* A send, judged. check reserves and copies, changes nothing that anybody sees; then either commit,
 * which cannot fail and returns the id, or undo. OK_DUPLICATE: the key was used, nothing is to be
 * done, neither commit nor undo is needed; value is the first one's id, or 0 where that is a send
 * of the same row that is not committed yet (pawl_core_send_first() tells after it is), state its
 * state. E_KEY_MISMATCH: the same, as a refusal. beside: sends that are checked and not yet
 * committed; what they will add to the queue stands in its `checked` and `checked_bytes`, which the
 * caller keeps. value: of a refusal. */
struct pawl_core_send {
    struct pawl_take *take;
    const struct pawl_cmd_send *cmd;
    struct pawl_core_queue *queue;
    struct pawl_cmd_send_times times;
    uint64_t due; /* 0: now */
    uint64_t ttl_end;
    uint64_t value;
    uint32_t skip;  /* bytes of times in front of the variable part */
    uint32_t bytes; /* of the client's part of the payload */
    uint32_t own;   /* bytes of ours in front of it, in the block */
    uint32_t block;
    uint32_t key;  /* ledger entry: held by this send, or that of the first one */
    uint8_t state; /* of the first one */
    bool ordered;  /* with others of its key */
};
int pawl_core_send_check(struct pawl_take *t, uint32_t beside, struct pawl_core_send *out);
uint32_t pawl_core_send_bytes(const struct pawl_core_send *send);
uint64_t pawl_core_send_commit(struct pawl_core_send *send, uint64_t *lsn);
void pawl_core_send_undo(struct pawl_core_send *send);
/* After all commits of the row: the id that an OK_DUPLICATE of it answers. */
uint64_t pawl_core_send_first(const struct pawl_core_send *send);
/* PAWL_ANSWER_... of an answer to it. */
uint8_t pawl_core_send_flags(const struct pawl_core_send *send, int result);
void pawl_core_send_take(struct pawl_take *t);
uint32_t pawl_core_send_apply(struct pawl_core *core, const struct pawl_send_rec *rec,
                              struct pawl_core_queue *q, uint32_t block, uint64_t lsn);
/* Makes or overwrites the tombstone of message n, which exists. */
void pawl_core_end_apply(struct pawl_core *core, const struct pawl_end_rec *rec, uint32_t result,
                         struct pawl_core_queue *q, uint32_t n, uint64_t lsn);
void pawl_core_end_fact(const struct pawl_core *core, const struct pawl_core_message *m,
                        struct pawl_end_rec *out);
void pawl_core_renew_apply(struct pawl_core *core, const struct pawl_renew_rec *rec, uint32_t n);
/* A settling by token, judged. check looks and changes nothing; commit does it and returns the lsn
 * of its record, 0 for none; bytes: what that record takes. Only after an OK of check, with nothing
 * else between them that names the same message. value: of a refusal. */
struct pawl_core_settle {
    struct pawl_take *take;
    const struct pawl_cmd_settle *cmd;
    struct pawl_core_message *message;
    struct pawl_core_queue *queue;
    uint64_t value;
    uint32_t n; /* message */
    uint32_t reason_bytes;
    uint32_t blob, blob_bytes; /* DEFER: progress, ACK: result, in a payload block; 0: none */
    uint8_t reason[PAWL_REASON_BYTES_MAX + 1];
};
/* Gives back what check took; for one that is not to be committed. */
void pawl_core_settle_undo(struct pawl_core_settle *settle);
int pawl_core_settle_check(struct pawl_take *t, struct pawl_core_settle *out);
uint32_t pawl_core_settle_bytes(const struct pawl_core_settle *settle);
uint64_t pawl_core_settle_commit(struct pawl_core_settle *settle);
void pawl_core_settle_take(struct pawl_take *t);
void pawl_core_restore_apply(struct pawl_core *core, uint32_t n);
/* By id: the same three. */
struct pawl_core_repair {
    struct pawl_take *take;
    struct pawl_cmd_message cmd;
    struct pawl_core_queue *queue;
    uint64_t value;
    uint32_t n;
};
int pawl_core_repair_check(struct pawl_take *t, struct pawl_core_repair *out);
uint32_t pawl_core_repair_bytes(const struct pawl_core_repair *repair);
uint64_t pawl_core_repair_commit(struct pawl_core_repair *repair);
void pawl_core_repair_take(struct pawl_take *t);
void pawl_core_query_take(struct pawl_take *t);

/* --- lookup.c, watch.c ----------------------------------------------------------------------- */

void pawl_core_lookup_take(struct pawl_take *t);
bool pawl_core_lookup_fits(const struct pawl_cmd_query *c, uint32_t variable_bytes);
/* What is kept of an answer is given back. */
void pawl_core_lookup_drop(struct pawl_core *core, struct pawl_core_lane *lane);
void pawl_core_record_fill(const struct pawl_core *core, const struct pawl_core_message *m,
                           struct pawl_record *r);
struct pawl_core_watch *pawl_core_watch_at(const struct pawl_core *core, uint32_t n);
void pawl_core_watch_take(struct pawl_take *t);
/* The message has got into this state; NONE: it is forgotten. */
void pawl_core_watch_seen(struct pawl_core *core, const struct pawl_core_message *m, uint8_t state);
static inline void pawl_core_watched(struct pawl_core *core, const struct pawl_core_message *m,
                                     uint8_t state)
{
    if (PAWL_UNLIKELY(core->watches.used != 0))
        pawl_core_watch_seen(core, m, state);
}
void pawl_core_watches_gone(struct pawl_core *core, const struct pawl_core_queue *q);
void pawl_core_watches_drop(struct pawl_core *core, struct pawl_core_lane *lane);
void pawl_core_watch_timer(struct pawl_core *core, uint32_t n);
void pawl_core_watch_pump(struct pawl_core *core);
void pawl_core_watch_verify(const struct pawl_core *core);

/* --- scan.c ---------------------------------------------------------------------------------- */

void pawl_core_scan_take(struct pawl_take *t);
void pawl_core_scan_pump(struct pawl_core *core);
void pawl_core_scan_lane_gone(struct pawl_core *core, uint32_t lane);

/* --- session.c, lane.c ----------------------------------------------------------------------- */

struct pawl_core_session *pawl_core_session_make(struct pawl_core *core, uint64_t id);
bool pawl_core_session_pump(struct pawl_core *core);
void pawl_core_session_timer(struct pawl_core *core, uint32_t number);
void pawl_core_session_end_apply(struct pawl_core *core, struct pawl_core_session *s,
                                 uint64_t time);
void pawl_core_session_free(struct pawl_core *core, struct pawl_core_session *s);
void pawl_core_session_fact(const struct pawl_core_session *s, struct pawl_session_rec *out);
struct pawl_core_lane *pawl_core_lane_make(struct pawl_core *core, struct pawl_core_session *s,
                                           uint32_t number);
/* Its rings are gone. Those who wait end without an answer: the client submits them again. */
void pawl_core_lane_hold(struct pawl_core *core, struct pawl_core_lane *lane);
/* The log need not keep its window any more. */
void pawl_core_lane_unlog(struct pawl_core *core, struct pawl_core_lane *lane);
void pawl_core_lane_free(struct pawl_core *core, struct pawl_core_lane *lane);
int pawl_core_lane_window(struct pawl_core *core, struct pawl_core_lane *lane, uint32_t window);
struct pawl_window_entry *pawl_core_lane_entry(struct pawl_core *core, struct pawl_core_lane *lane,
                                               uint64_t seq);
/* Writes SESSION and LANE if the log has not seen them. Before each record of a lane's command. */
void pawl_core_lane_log(struct pawl_core *core, struct pawl_core_lane *lane);
uint64_t pawl_core_lane_live_bytes(const struct pawl_core_lane *lane);
void pawl_core_lane_op(const struct pawl_core *core, const struct pawl_core_lane *lane,
                       uint64_t seq, struct pawl_op_rec *out);
/* The one way an answer goes out: into the window and to the lane's handle. */
void pawl_core_lane_answer(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                           int result, uint64_t value, uint64_t lsn, uint64_t wait_lsn,
                           uint8_t flags);
/* Only into the window, for the command to find when it comes again. */
void pawl_core_lane_remember(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                             int result, uint64_t value, uint64_t lsn, uint8_t flags);
/* A refusal or an answer that wrote nothing. */
void pawl_core_take_answer(struct pawl_take *t, int result, uint64_t value, uint64_t wait_lsn);
/* An answer with data: block as pawl_core_data_buffer() gave it. */
void pawl_core_lane_answer_data(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                                uint32_t block, uint32_t bytes, uint64_t value, uint64_t wait_lsn);
void pawl_core_lane_clear(struct pawl_core *core, struct pawl_core_lane *lane);
/* What a record in the log says of a window: the answer, a part of it, or only that the command was
 * taken. */
/* GOES_ON: a piece of a purge, with more to follow; lsn is then its last id. */
enum pawl_window_use { PAWL_WINDOW_SET, PAWL_WINDOW_ADD, PAWL_WINDOW_TOUCH, PAWL_WINDOW_GOES_ON };
void pawl_core_window_apply(struct pawl_core *core, const struct pawl_op_rec *op, int result,
                            uint64_t value, uint64_t lsn, enum pawl_window_use use);
/* 0: no memory. bytes <= PAWL_DATA_BYTES_MAX; shrink says how many it became. */
void pawl_core_data_shrink(struct pawl_core *core, uint32_t block, uint32_t bytes);
uint32_t pawl_core_data_buffer(struct pawl_core *core, uint32_t bytes, uint8_t **data);

/* --- metrics.c ------------------------------------------------------------------------------- */

/* Writes the part of a text from `skip` on, as much as there is room for, and counts all of it. */
struct pawl_core_text {
    char *out;
    uint64_t bytes, skip, length;
};
/* peer NULL: all queues; else those it may query. */
void pawl_core_metrics_text(const struct pawl_core *core, struct pawl_core_text *text,
                            const struct pawl_core_peer *peer);

#endif
