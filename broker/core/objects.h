/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_OBJECTS_H
#define PAWL_CORE_OBJECTS_H

/* The objects of the core: what it remembers, and where. Their fields are for the files of core/
 * alone, which ask each other through core_inner.h. */

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
#define PAWL_PID_BITS 22u /* PID_MAX_LIMIT of the kernel */
#define PAWL_PID_MASK ((1u << PAWL_PID_BITS) - 1)
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
    bool leaves; /* its end: outcomes are being written (left.c), this far */
    uint32_t left_lane;
    uint64_t left_seq, left_time;
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
    uint32_t sends_to;    /* queue of its last send, as a hint */
    uint32_t watches;     /* first of those (watch.c) */
    /* what is left to be shown of a QUERY (lookup.c) */
    uint32_t query_block, query_count;
    uint64_t query_queue, query_lsn;
    /* a long value of a table that is being read (state_scan.c) */
    uint64_t value_version;
    uint32_t value_block, value_bytes;
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
    struct pawl_core_direct direct; /* all NULL: none */
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
    uint64_t left_horizon_said;
    struct pawl_home horizon_home;
    uint64_t sends, deliveries, acks, refused;
    bool damaged; /* a replay ran out of memory or met what cannot be */
};

/* A command while it is decided. */
struct pawl_take {
    struct pawl_core *core;
    struct pawl_core_lane *lane;
    struct pawl_core_session *session;
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

#endif
