/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_RECORD_H
#define PAWL_CORE_RECORD_H

/* What the core writes into the log, and reads back. Little endian, no gaps, reserved bytes zero.
 * A record is one decision (or, for the *facts*, the full state of one object, written anew by
 * copy-forward): everything its apply function needs stands in it, so that a replay decides
 * nothing and no option matters to it.
 *
 *   type         bytes                  says
 *   SESSION      120                    fact: who a session is
 *   SESSION_END  24                     it ended; its leases follow one by one
 *   LANE         40 + 32 an entry       fact: window of a lane
 *   QUEUE        264 + options          fact, and decision of create, alter, pause, resume, drop
 *   SEND         64 [+ 8] + payload     a message
 *   GRANT        72 + 16 a message      leases given to one receive
 *   RENEW        56
 *   BACK         80 + reason + progress a lease ended and the message lives on: nack, release, ...
 *   END          80 + result            a message became terminal: ack, cancel, ...; also the fact
 *                                       of a tombstone
 *   RESTORE      40                     dead -> ready
 *   PURGE        48 + 8 a message
 *   MESSAGE      128 [+ 8] + payload + reason + progress [+ 8]
 *                                       fact: a message that is not terminal
 *   KEY          56                     fact: the dedup key of a message that ended
 *   STATE        88 + key + value    fact, and decision of put, add, delete of a key of a table
 *   RESERVATION  128 + key           fact, and decision of reserve, post, void, expiry: with the
 *                                    number that it is taken from
 *   IDEM         152 + bytes            fact, and decision of begin, complete, abandon, progress,
 *                                    end of a lease: one key of a scope
 *   GROUP        records                several that happen together: {u16 type, u16 0, u32 bytes},
 *                                       body, zeros to a multiple of 8, one after the other
 *   OUTCOME      88                     fact, and decision: what became of an operation under an id
 *                                       of its caller
 *
 * Those made by a command of a lane begin with struct pawl_op_rec: {session, lane, seq} is the
 * identity of the operation and `open` says which older ones the window may forget. session 0: not
 * made by a command.
 *
 * Decoding trusts nothing: the log hands out only records whose block verified, but a fuzzer feeds
 * the decoders, and a file that was made to verify must not reach undefined behaviour. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/options.h"
#include "pawl.h"

enum pawl_record_type {
    PAWL_RECORD_SESSION = 1,
    PAWL_RECORD_SESSION_END = 2,
    PAWL_RECORD_LANE = 3,
    PAWL_RECORD_QUEUE = 4,
    PAWL_RECORD_SEND = 5,
    PAWL_RECORD_GRANT = 6,
    PAWL_RECORD_RENEW = 7,
    PAWL_RECORD_BACK = 8,
    PAWL_RECORD_END = 9,
    PAWL_RECORD_RESTORE = 10,
    PAWL_RECORD_PURGE = 11,
    PAWL_RECORD_MESSAGE = 12,
    PAWL_RECORD_STATE = 16,
    PAWL_RECORD_RESERVATION = 17,
    PAWL_RECORD_KEY = 15,
    PAWL_RECORD_GROUP = 13,
    PAWL_RECORD_OUTCOME = 14,
    PAWL_RECORD_IDEM = 18,
};

struct pawl_op_rec {
    uint64_t session; /* 0: none */
    uint64_t seq;
    uint16_t lane;
    uint16_t open;  /* seq - oldest open */
    uint32_t extra; /* a word of the record that found room here */
};

struct pawl_session_rec {
    uint64_t id, epoch;
    uint8_t secret[16];
    uint32_t uid, gid, pid, state; /* state: 0 lives, 1 ends */
    uint64_t start_time;
    char label[64];
};

struct pawl_session_end_rec {
    uint64_t id;
    uint64_t time;
    uint64_t why;
};

struct pawl_window_rec {
    uint64_t seq, value, lsn;
    int32_t result;
    uint32_t flags; /* of the answer; PAWL_WINDOW_REC_... */
};
#define PAWL_WINDOW_REC_ASKED 256u /* answered with data: asked anew */
struct pawl_lane_rec {
    uint64_t session;
    uint32_t lane, window;
    uint64_t seq_max, oldest;
    uint32_t count;
    uint32_t flags; /* PAWL_LANE_RESET: another lane has the number, nothing before this counts */
    /* struct pawl_window_rec[count], at most PAWL_WINDOW_PIECE; more follow in more of these */
};
#define PAWL_LANE_RESET 1u
#define PAWL_WINDOW_PIECE 1024u

struct pawl_queue_counters {
    uint64_t sent, delivered, acked, nacked, expired_leases, crashed, released, expired, cancelled,
        purged;
};
struct pawl_queue_rec {
    struct pawl_op_rec op; /* extra: PAWL_QUEUE_... */
    uint64_t id;
    uint64_t time;  /* when this was decided; of a drop, when its tombstones begin to age */
    uint64_t place; /* last one given */
    int64_t result; /* of the command, for the window */
    struct pawl_queue_counters counters;
    char name[PAWL_NAME_BYTES_MAX + 1];
    struct pawl_queue_options options;
};
#define PAWL_QUEUE_PAUSED 1u
#define PAWL_QUEUE_GONE 2u

/* Then: [u64 ttl end] [u64 end of the key's window, if there is a key] key, ordering key, headers,
 * body. */
struct pawl_send_rec {
    struct pawl_op_rec op; /* extra: body bytes */
    uint64_t queue, id, place, sent_wall;
    uint16_t headers_bytes;
    uint8_t key_bytes, ordering_key_bytes;
    uint8_t priority;
    uint8_t flags; /* PAWL_RECORD_... */
    uint8_t reserved[2];
};
#define PAWL_RECORD_TTL 1u
#define PAWL_RECORD_SCHEDULED 2u /* place is when it is due */
#define PAWL_RECORD_COPY 4u      /* END: the fact of a tombstone, counted before */
#define PAWL_RECORD_AMO 8u       /* END: at-most-once receive, a delivery too */
#define PAWL_RECORD_STANDING 16u /* for a SUBSCRIBE, which this does not answer */
#define PAWL_RECORD_KEY_FREE 64u /* deferred, and others of its ordering key need not wait */
#define PAWL_RECORD_ORDERED 32u  /* in order with others of its key, or of its queue without one */

struct pawl_granted_rec {
    uint64_t message, random;
};
struct pawl_grant_rec {
    struct pawl_op_rec op; /* extra: count */
    uint64_t queue;
    uint64_t grant; /* of the first message; then one more each */
    uint64_t lease_ns, hold_end;
    uint32_t uid, pid;
    uint8_t kind;
    uint8_t flags; /* PAWL_RECORD_STANDING */
    uint8_t reserved[6];
    /* struct pawl_granted_rec[count] */
};

struct pawl_renew_rec {
    struct pawl_op_rec op;
    uint64_t queue, message;
    uint64_t lease_ns;
    uint64_t grant;
};

/* Then: reason, progress. */
struct pawl_back_rec {
    struct pawl_op_rec op; /* extra: pid of who did it, 0 the broker */
    uint64_t queue, message;
    uint64_t due;     /* SCHEDULED */
    uint64_t forward; /* queue it moves to, made dead by this; 0: none */
    uint64_t place;   /* in the forward queue */
    uint16_t acquired, expired, nacked;
    uint8_t crashed, deferred;
    uint8_t state; /* READY, SCHEDULED, DEAD */
    uint8_t dead_reason;
    uint8_t cause; /* enum pawl_back_cause */
    uint8_t reason_bytes;
    uint8_t flags; /* ORDERED: in the forward queue; KEY_FREE */
    uint8_t reserved;
    uint16_t progress_bytes;
};
enum pawl_back_cause {
    PAWL_BACK_NACK,
    PAWL_BACK_EXPIRED,
    PAWL_BACK_RELEASED,
    PAWL_BACK_CRASHED,
    PAWL_BACK_REJECTED,
    PAWL_BACK_DEFERRED,
    PAWL_BACK_CAUSES
};

/* Then: result, of one that was acknowledged with one. */
struct pawl_end_rec {
    struct pawl_op_rec
        op; /* extra: pid of who acknowledged or cancelled it; a COPY: only who it was */
    uint64_t queue, message;
    uint64_t forget; /* pawl time */
    uint64_t grant;  /* newest one of the message; AMO: that of this delivery */
    uint32_t uid;    /* of its last holder */
    uint16_t acquired, expired, nacked;
    uint8_t crashed, deferred;
    uint8_t state; /* ACKED, EXPIRED, CANCELLED, PURGED */
    uint8_t priority;
    uint8_t flags; /* COPY, AMO */
    uint8_t dead_reason;
    uint64_t wall; /* when, for display */
};

struct pawl_restore_rec {
    struct pawl_op_rec op;
    uint64_t queue, message;
};

struct pawl_purge_rec {
    struct pawl_op_rec op; /* extra: count here */
    uint64_t queue;
    uint64_t forget;
    uint64_t total;  /* of the command so far, these included */
    uint64_t id_max; /* more follow, up to this id; 0: this is the last piece */
    /* u64 message[count] */
};

/* Then: payload as of a SEND, reason, progress, [u64 queue that the key was sent to, if there is a
 * key; 0: that one is gone]. */
struct pawl_message_rec {
    uint64_t queue, id, place, sent_wall;
    uint64_t grant, random, due;
    uint64_t lease_ns, hold_end;
    uint64_t session, seq; /* of a current lease; 0: none */
    uint32_t uid, pid;
    uint32_t body_bytes;
    uint16_t lane;
    uint16_t headers_bytes;
    uint8_t key_bytes, ordering_key_bytes;
    uint8_t state;
    uint8_t priority;
    uint8_t flags; /* TTL, ORDERED, KEY_FREE */
    uint8_t dead_reason;
    uint8_t kind;
    uint8_t reason_bytes;
    uint16_t acquired, expired, nacked;
    uint8_t crashed, deferred;
    uint8_t leased; /* random to hold_end, uid, pid are those of a lease, current or past */
    uint8_t reserved;
    uint16_t progress_bytes;
    uint8_t reserved2[4];
};

/* A number of a table: available + reserved + posted = granted. */
struct pawl_counts {
    int64_t available, reserved, posted, granted;
};

/* Then: key, value (op.extra bytes). */
struct pawl_state_rec {
    struct pawl_op_rec op; /* extra: value bytes */
    uint64_t table, version;
    uint64_t result;           /* value of the answer, for the window */
    struct pawl_counts counts; /* NUMBER; else zero */
    uint8_t kind;              /* enum pawl_value_kind; NONE: deleted */
    uint8_t key_bytes;
    uint8_t reserved[6];
};

/* Then: key; none in a COPY of a finished one. */
struct pawl_reservation_rec {
    struct pawl_op_rec op; /* extra: PAWL_RECORD_COPY: says nothing of the cell */
    uint64_t table;
    uint8_t id[16];
    uint64_t version;          /* of the cell, from now on */
    struct pawl_counts counts; /* of the cell, from now on */
    uint64_t amount, posted;
    uint64_t end; /* pawl time; OPEN: of expiry, 0 none; else of forgetting */
    uint64_t key_hash;
    uint8_t state; /* enum pawl_reservation_state */
    uint8_t key_bytes;
    uint8_t reserved[6];
};

struct pawl_key_rec {
    uint64_t queue;
    uint64_t id, id_high; /* hash of queue and key, under the directory's secret */
    uint64_t message;     /* 0: none */
    uint64_t body;        /* hash */
    uint64_t end;         /* of the window, pawl time */
    uint32_t state;       /* that the message ended in */
    uint32_t reserved;
};

/* Then: result, or progress. All of the entry, as it is from now on. */
struct pawl_idem_rec {
    struct pawl_op_rec op; /* extra: bytes that follow */
    uint64_t table;
    uint64_t id, id_high; /* hash of table and key, under the directory's secret */
    uint64_t hash;        /* of the parameters */
    uint64_t grant, random;
    uint64_t since; /* pawl time of its state */
    uint64_t end;   /* pawl time; IN_PROGRESS: of the lease; else of forgetting */
    uint64_t lease_ns, retain_ns;
    uint64_t lsn;          /* DONE, FAILED: 0: of this record; a copy: of the completion */
    uint64_t session, seq; /* IN_PROGRESS: who works on it, and his BEGIN */
    int32_t code;
    uint32_t attempts; /* owners so far */
    uint32_t pid, uid;
    uint16_t lane;
    uint8_t state; /* enum pawl_idem_state */
    uint8_t flags; /* PAWL_RECORD_BEGUN */
    uint32_t reserved;
};
#define PAWL_RECORD_BEGUN 1u /* by a BEGIN, whose answer the entry itself holds */

_Static_assert(sizeof(struct pawl_idem_rec) == 152, "no gaps");
_Static_assert(sizeof(struct pawl_op_rec) == 24, "no gaps");
_Static_assert(sizeof(struct pawl_state_rec) == 88, "no gaps");
_Static_assert(sizeof(struct pawl_reservation_rec) == 128, "no gaps");
/* In front of each record of a GROUP. */
struct pawl_sub_rec {
    uint16_t type, reserved;
    uint32_t bytes; /* of its body, without the zeros behind it */
};

struct pawl_outcome_rec {
    struct pawl_op_rec op; /* session 0: stands beside the record of the effect, or is a copy */
    struct pawl_op_id id;  /* all zero: it has none, but its lane's window */
    uint64_t hash;         /* of the command; of an id of a lane: its uid; see PAWL_OUTCOME_HASH */
    uint64_t value; /* of the answer; of a transaction refused: what its step found. HORIZONS: s of
                       pawl time; ids of lanes left before may be forgotten */
    uint64_t lsn;   /* 0: of this record; a copy: of the first */
    uint64_t time;  /* pawl time when it was decided */
    uint64_t horizon_ms; /* HORIZONS: wall time; ids up to it may be forgotten */
    int32_t result;
    uint32_t detail; /* flags of the answer; or PAWL_OUTCOME_STEP + step of a transaction refused;
                        or PAWL_OUTCOME_HORIZONS */
};
#define PAWL_OUTCOME_STEP 65536u
#define PAWL_OUTCOME_HORIZONS 131072u /* it says the horizons, and no outcome */
#define PAWL_OUTCOME_HASH \
    (~0xffffull) /* what counts of a hash: `detail` has the rest of its word */

_Static_assert(sizeof(struct pawl_outcome_rec) == 88, "no gaps");
_Static_assert(sizeof(struct pawl_session_rec) == 120, "no gaps");
_Static_assert(sizeof(struct pawl_lane_rec) == 40, "no gaps");
_Static_assert(sizeof(struct pawl_window_rec) == 32, "no gaps");
_Static_assert(sizeof(struct pawl_send_rec) == 64, "no gaps");
_Static_assert(sizeof(struct pawl_grant_rec) == 72, "no gaps");
_Static_assert(sizeof(struct pawl_renew_rec) == 56, "no gaps");
_Static_assert(sizeof(struct pawl_back_rec) == 80, "no gaps");
_Static_assert(sizeof(struct pawl_end_rec) == 80, "no gaps");
_Static_assert(sizeof(struct pawl_restore_rec) == 40, "no gaps");
_Static_assert(sizeof(struct pawl_purge_rec) == 56, "no gaps");
_Static_assert(sizeof(struct pawl_message_rec) == 128, "no gaps");
_Static_assert(sizeof(struct pawl_key_rec) == 56, "no gaps");
_Static_assert(sizeof(struct pawl_queue_rec) ==
                   24 + 32 + 80 + PAWL_NAME_BYTES_MAX + 1 + sizeof(struct pawl_queue_options),
               "no gaps");

/* What a log record takes beyond its body, at most. */
#define PAWL_RECORD_HEAD 16u

/* A decoded record: the fixed part, copied to where it is aligned, and the rest where it lies. */
struct pawl_record_view {
    uint16_t type;
    union {
        struct pawl_op_rec op; /* of all that have one */
        struct pawl_session_rec session;
        struct pawl_session_end_rec session_end;
        struct pawl_lane_rec lane;
        struct pawl_queue_rec queue;
        struct pawl_send_rec send;
        struct pawl_grant_rec grant;
        struct pawl_renew_rec renew;
        struct pawl_back_rec back;
        struct pawl_end_rec end;
        struct pawl_restore_rec restore;
        struct pawl_purge_rec purge;
        struct pawl_message_rec message;
        struct pawl_state_rec state;
        struct pawl_reservation_rec reservation;
        struct pawl_key_rec key;
        struct pawl_outcome_rec outcome;
        struct pawl_idem_rec idem;
    };
    const uint8_t *rest;
    uint32_t rest_bytes;
};

/* Checks sizes and ranges, so that apply need not. 0, or -1: no such record. */
int pawl_record_decode(struct pawl_record_view *out, uint16_t type, const void *body,
                       uint32_t bytes);
/* The next record of a GROUP, whose rest begins as *at, *left: 1 and the record; 0: no more; -1:
 * damage. */
int pawl_record_sub(const uint8_t **at, uint32_t *left, uint16_t *type, const uint8_t **body,
                    uint32_t *bytes);
/* Words of ours in front of what the client sent. */
static inline uint32_t pawl_record_own_bytes(uint8_t flags, uint8_t key_bytes)
{
    return (flags & PAWL_RECORD_TTL ? 8u : 0u) + (key_bytes ? 8u : 0u);
}
/* Bytes of the payload block: what follows a SEND, or a MESSAGE without its reason. */
static inline uint32_t pawl_record_send_payload(const struct pawl_send_rec *r)
{
    return pawl_record_own_bytes(r->flags, r->key_bytes) + r->key_bytes + r->ordering_key_bytes +
           r->headers_bytes + r->op.extra;
}
static inline uint32_t pawl_record_message_payload(const struct pawl_message_rec *r)
{
    return pawl_record_own_bytes(r->flags, r->key_bytes) + r->key_bytes + r->ordering_key_bytes +
           r->headers_bytes + r->body_bytes;
}
/* What follows the reason of a MESSAGE. */
static inline uint32_t pawl_record_message_tail(const struct pawl_message_rec *r)
{
    return r->key_bytes ? 8u : 0u;
}

#endif
