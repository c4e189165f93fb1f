/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_COMMAND_H
#define PAWL_ABI_COMMAND_H

/* The records of the two rings of a lane. Little endian, every record a multiple of 8 bytes,
 * reserved fields written zero and ignored. FORMAT.md draws them.
 *
 * Commands (client -> broker). Each begins with struct pawl_cmd. `seq` starts at 1 and grows by one
 * for each command of the lane; {session, lane, seq} is the identity of the operation. After a
 * re-attach the client submits every command that is still open again, in order of seq, under its
 * old seq: the broker answers what its log knows and applies what it does not. That is the whole
 * protocol of recovery.
 *
 * Completions (broker -> client). An answer carries the seq of its command. Answers may come in
 * another order than their commands; deliveries of one lane come in the order of their grants,
 * durable and relaxed ones each. */

#include <stddef.h>
#include <stdint.h>

#include "pawl.h"

/* --- commands -------------------------------------------------------------------------------- */

/* Ids of messages of direct queues: their position under this bit, which no id of the broker has.
 */
#define PAWL_DIRECT_ID (1ull << 62)

enum pawl_cmd_type {
    PAWL_CMD_NONE = 0,
    PAWL_CMD_SEND = 1,      /* struct pawl_cmd_send */
    PAWL_CMD_RECEIVE = 2,   /* struct pawl_cmd_receive + u64 queue[queue_count] */
    PAWL_CMD_SUBSCRIBE = 3, /* struct pawl_cmd_receive: standing, max = credit; answered at once */
    PAWL_CMD_STOP = 4,      /* struct pawl_cmd_one: value = seq of a RECEIVE or SUBSCRIBE to end */
    PAWL_CMD_ACK = 5,       /* struct pawl_cmd_settle, all of these */
    PAWL_CMD_NACK = 6,
    PAWL_CMD_RELEASE = 7,
    PAWL_CMD_REJECT = 8,
    PAWL_CMD_DEFER = 9,
    PAWL_CMD_RENEW = 10,
    PAWL_CMD_ACK_ID = 11,       /* struct pawl_cmd_message: queue and id */
    PAWL_CMD_CANCEL = 12,       /* struct pawl_cmd_message */
    PAWL_CMD_RESTORE = 13,      /* struct pawl_cmd_message */
    PAWL_CMD_QUEUE_FIND = 14,   /* struct pawl_cmd_queue: name -> value = queue number */
    PAWL_CMD_QUEUE_CREATE = 15, /* struct pawl_cmd_queue */
    PAWL_CMD_QUEUE_ALTER = 16,
    PAWL_CMD_QUEUE_DROP = 17,
    PAWL_CMD_QUEUE_PAUSE = 18,
    PAWL_CMD_QUEUE_RESUME = 19,
    PAWL_CMD_QUEUE_PURGE = 20, /* value = how many */
    PAWL_CMD_QUEUE_STAT = 21,  /* data = struct pawl_queue_stat */
    PAWL_CMD_QUEUE_LIST = 22,  /* name = after; max; data = struct pawl_queue_stat[] */
    PAWL_CMD_SCAN = 23,        /* struct pawl_cmd_scan; data = struct pawl_record[] */
    PAWL_CMD_PEEK = 24, /* struct pawl_cmd_message; data = bytes at offset; value = all bytes */
    PAWL_CMD_METRICS =
        25, /* struct pawl_cmd_one: value = offset; data = text from there, value = all */
    PAWL_CMD_TXN = 26,        /* struct pawl_cmd_txn + commands */
    PAWL_CMD_RESOLVE = 27,    /* struct pawl_cmd_resolve; data = struct pawl_comp_resolved */
    PAWL_CMD_STATE = 28,      /* struct pawl_cmd_state: a write or an assertion */
    PAWL_CMD_STATE_SCAN = 29, /* struct pawl_cmd_state_scan: reads; each answers with data */
    PAWL_CMD_RESERVE = 30,    /* struct pawl_cmd_reserve: reserve, post, void */
    PAWL_CMD_IDEM = 31,       /* struct pawl_cmd_idem */
    PAWL_CMD_QUERY = 32,      /* struct pawl_cmd_query; data = struct pawl_query_data + items */
    PAWL_CMD_WAIT = 33,       /* struct pawl_cmd_wait; data = struct pawl_record; value = state */
    PAWL_CMD_KEEP =
        34, /* struct pawl_cmd_one: value = seq of a command of this lane that is
               answered and open still: its caller was told "unknown", so its outcome is
               to be remembered under its id (lane_id.h). OK_MISSING: it has left none */
    PAWL_CMD_TYPES
};

/* pawl_cmd.flags */
#define PAWL_CMD_RESUBMIT 1u /* was submitted to an earlier attachment under the same seq */
#define PAWL_CMD_IDENTIFIED                                               \
    2u /* struct pawl_op_id is the end of the record: the caller's own id \
        */

/* May a command of this type carry an id of its caller? Those that are one record of the log. */
static inline int pawl_cmd_identifiable(uint16_t type)
{
    return type == PAWL_CMD_SEND || (type >= PAWL_CMD_ACK && type <= PAWL_CMD_RESTORE) ||
           (type >= PAWL_CMD_QUEUE_CREATE && type <= PAWL_CMD_QUEUE_RESUME) ||
           type == PAWL_CMD_TXN || type == PAWL_CMD_STATE || type == PAWL_CMD_RESERVE ||
           type == PAWL_CMD_IDEM; /* but its BEGIN and READ: E_INVALID */
}

struct pawl_cmd {
    uint32_t bytes; /* of the record, this included; multiple of 8 */
    uint16_t type;
    uint16_t flags;
    uint64_t seq;
    uint64_t deadline; /* broker's boot clock; never decided at or after it. 0: none */
    uint32_t open; /* seq - oldest seq of the lane without an answer: what the window must keep */
    uint32_t reserved;
};

/* pawl_cmd_send.flags */
#define PAWL_SEND_TIMES 1u /* struct pawl_cmd_send_times stands before the variable part */

/* Variable part, without gaps: key, ordering key, headers, body; then zeros up to a multiple of 8.
 * Headers are encoded as u8 name bytes (1..255), u16 value bytes, name, value, one after the other.
 */
struct pawl_cmd_send {
    struct pawl_cmd head;
    uint64_t queue;
    uint32_t body_bytes;
    uint16_t headers_bytes;
    uint8_t key_bytes, ordering_key_bytes;
    uint8_t priority;
    uint8_t flags;
    uint16_t reserved[3];
};
struct pawl_cmd_send_times {
    uint64_t delay_ns;
    uint64_t at_wall_ns; /* 0: delay_ns counts */
    uint64_t ttl_ns;     /* 0: the queue's */
};

#define PAWL_QUEUES_A_RECEIVE_MAX 16u
struct pawl_cmd_receive {
    struct pawl_cmd head;
    uint64_t wait_ns;    /* 0: look once; UINT64_MAX: no end */
    uint64_t lease_ns;   /* 0: the queue's */
    uint32_t max;        /* messages, 1..1,024; SUBSCRIBE: credit, 1..65,536 */
    uint8_t lease_kind;  /* PAWL_LEASE_... */
    uint8_t flags;       /* PAWL_RECEIVE_... */
    uint8_t queue_count; /* 1..16; SUBSCRIBE: 1 */
    uint8_t reserved;
    /* u64 queue[queue_count] */
};

struct pawl_cmd_settle {
    struct pawl_cmd head;
    uint64_t message, grant, random;
    uint64_t time_ns;    /* NACK and DEFER: delay (UINT64_MAX: ladder); RENEW: lease */
    uint32_t flags;      /* ACK: PAWL_ACK_...; DEFER: PAWL_DEFER_... */
    uint32_t text_bytes; /* NACK, REJECT: reason, 0..255; DEFER: progress, ACK: result, 0..4,096 */
};

struct pawl_cmd_message {
    struct pawl_cmd head;
    uint64_t queue, id;
    uint64_t offset; /* PEEK; with PAWL_BY_KEY bytes of the key, 1..255 */
    uint32_t flags;  /* ACK_ID: PAWL_ACK_...; PEEK: PAWL_PEEK_...; ACK_ID, CANCEL: PAWL_BY_KEY */
    uint32_t reserved;
};
#define PAWL_BY_KEY 256u /* no id: the dedup key follows, zeros up to a multiple of 8 */

#define PAWL_PEEK_RESULT 1u /* not the body of a live one, but the result of one that is over */

struct pawl_cmd_one {
    struct pawl_cmd head;
    uint64_t value;
};

struct pawl_cmd_scan {
    struct pawl_cmd head;
    uint64_t queue, after_id;
    uint32_t state_mask, max;
};

struct pawl_cmd_queue {
    struct pawl_cmd head;
    uint32_t max;         /* QUEUE_LIST */
    uint32_t has_options; /* CREATE, ALTER */
    char name[PAWL_NAME_BYTES_MAX + 1];
    struct pawl_queue_options options;
};

/* --- tables: broker/core/state.h says what each does ----------------------------------------- */

enum pawl_table_op {
    PAWL_TABLE_PUT = 1,        /* value; OK: value = the new version */
    PAWL_TABLE_DELETE = 2,     /* OK, or OK_MISSING */
    PAWL_TABLE_ADD = 3,        /* number is added; OK: value = the number now */
    PAWL_TABLE_IS_VERSION = 4, /* assertions; of IS_VERSION `expect` is the version, 0: absent */
    PAWL_TABLE_EXISTS = 5,
    PAWL_TABLE_ABSENT = 6,
    PAWL_TABLE_GE = 7, /* it is a number, and at least `number` */
    PAWL_TABLE_OPS
};

/* pawl_cmd_state.flags */
#define PAWL_TABLE_AS_NUMBER 1u /* PUT: the value is 8 bytes, a number */
#define PAWL_TABLE_WAS_READ 2u  /* IS_VERSION: refused it is E_CONFLICT: read, and changed since */

/* Variable part, without gaps: key, value; then zeros up to a multiple of 8. */
struct pawl_cmd_state {
    struct pawl_cmd head;
    uint64_t table;
    uint64_t expect;      /* PUT, DELETE, ADD: version that the key must have; 0: must be absent;
                             UINT64_MAX: any */
    int64_t number;       /* ADD, GE */
    int64_t min, max;     /* ADD: bounds of the result; INT64_MIN, INT64_MAX: none */
    uint32_t value_bytes; /* PUT */
    uint8_t op;           /* enum pawl_table_op */
    uint8_t key_bytes;    /* 1..255 */
    uint16_t flags;
};

enum pawl_table_scan_op {
    PAWL_TABLE_GET = 1,  /* key; data = struct pawl_state_data + value from offset; value = version;
                            OK_MISSING without data */
    PAWL_TABLE_PAGE = 2, /* key = prefix; data = row of struct pawl_state_data + key, each filled up
                            to a multiple of 8; value = their number */
    PAWL_TABLE_RESERVATION = 3, /* key = id; data = struct pawl_reservation_data */
    PAWL_TABLE_SCAN_OPS
};

/* Variable part: key or prefix, then (PAGE) the key after which to go on; zeros up to 8. */
struct pawl_cmd_state_scan {
    struct pawl_cmd head;
    uint64_t table;
    uint64_t version; /* GET: a later part; E_CONFLICT when it is another by now. 0: any */
    uint32_t offset;  /* GET */
    uint32_t max;     /* PAGE: 1..1,024 */
    uint8_t op;       /* enum pawl_table_scan_op */
    uint8_t key_bytes;
    uint8_t after_bytes;
    uint8_t reserved[5];
};

struct pawl_state_data {
    uint64_t version;
    int64_t number, reserved, posted; /* of a number */
    uint32_t value_bytes;             /* all of it; 8 of a number, which has no bytes here */
    uint8_t kind;                     /* enum pawl_value_kind */
    uint8_t key_bytes;                /* PAGE */
    uint16_t zero;
};

enum pawl_reserve_op {
    PAWL_RESERVE_TAKE = 1, /* key; OK: value = what is left */
    PAWL_RESERVE_POST = 2, /* amount 0: all */
    PAWL_RESERVE_VOID = 3,
    PAWL_RESERVE_OPS
};

struct pawl_cmd_reserve {
    struct pawl_cmd head;
    uint64_t table;
    uint8_t id[16];
    uint64_t amount; /* TAKE: 1..INT64_MAX */
    uint64_t ttl_ns; /* TAKE; 0: no end */
    uint8_t op;      /* enum pawl_reserve_op */
    uint8_t key_bytes;
    uint8_t reserved[6];
    /* TAKE: key, zeros up to a multiple of 8 */
};

struct pawl_reservation_data {
    uint64_t amount, posted;
    uint64_t left_ns; /* OPEN: until it expires, 0 for no end; else until it is forgotten */
    uint32_t state;   /* enum pawl_reservation_state */
    uint32_t key_bytes;
    uint8_t key[PAWL_KEY_BYTES_MAX + 1]; /* of an open one */
};

/* --- idempotent operations: broker/core/idem.h ----------------------------------------------- */

enum pawl_idem_op {
    PAWL_IDEM_OP_BEGIN = 1, /* data = struct pawl_idem_data + what there is from 0; value = grant;
                               E_IDEM_MISMATCH: value = hash of the first one */
    PAWL_IDEM_OP_COMPLETE = 2,
    PAWL_IDEM_OP_ABANDON = 3,
    PAWL_IDEM_OP_PROGRESS = 4, /* bytes; renews the lease */
    PAWL_IDEM_OP_READ = 5, /* changes nothing; data as of BEGIN, from offset; OK_MISSING without;
                              E_CONFLICT: it has another grant than the one asked for */
    PAWL_IDEM_OPS
};

/* Variable part, without gaps: key, bytes; then zeros up to a multiple of 8. */
struct pawl_cmd_idem {
    struct pawl_cmd head;
    uint64_t table;
    uint64_t hash;          /* BEGIN: of the parameters */
    uint64_t lease_ns;      /* BEGIN: 0: the table's; PROGRESS: 0: as before */
    uint64_t grant, random; /* COMPLETE, ABANDON, PROGRESS: token; READ: grant, or 0 for any */
    int32_t code;           /* COMPLETE */
    uint32_t bytes;         /* COMPLETE: result; PROGRESS */
    uint32_t offset;        /* READ */
    uint8_t op;             /* enum pawl_idem_op */
    uint8_t key_bytes;      /* 1..255 */
    uint16_t flags;         /* COMPLETE: PAWL_IDEM_FINAL_FAIL */
};

struct pawl_idem_data {
    uint64_t hash;
    uint64_t grant, random; /* random: of FIRST */
    uint64_t lsn;           /* DONE, FAILED: of the completion */
    uint64_t left_ns;       /* FIRST, IN_PROGRESS: of the lease; else until it is forgotten */
    uint64_t age_ns;        /* how long it is in its state */
    uint32_t state;         /* enum pawl_idem_state */
    int32_t code;
    uint32_t attempts; /* owners so far; FIRST: before this one */
    uint32_t pid;      /* of the newest owner */
    uint32_t bytes;    /* all of the result or progress */
    uint32_t reserved;
};

/* --- records of messages: broker/core/lookup.c, watch.c -------------------------------------- */

enum pawl_query_kind {
    PAWL_QUERY_IDS = 1,  /* u64 id[count] */
    PAWL_QUERY_KEY = 2,  /* the dedup key, count bytes, zeros up to a multiple of 8 */
    PAWL_QUERY_MORE = 3, /* of an answer to IDS, from `from`; E_CONFLICT: it is gone, begin anew */
    PAWL_QUERY_MESSAGE = 4, /* u64 id, queue 0: wherever it is; data = struct pawl_query_data, item,
                               struct pawl_record_more */
    PAWL_QUERY_SESSION = 5  /* u64 id, queue 0; data = ..., struct pawl_session_record */
};
struct pawl_cmd_query {
    struct pawl_cmd head;
    uint64_t queue;
    uint64_t lsn;   /* MORE: of the answer */
    uint32_t count; /* IDS: 1..1,024; KEY: 1..255; MESSAGE, SESSION: 1 */
    uint32_t from;  /* MORE */
    uint32_t kind;  /* enum pawl_query_kind */
    uint32_t reserved;
};
struct pawl_query_item {
    int32_t result; /* OK; E_NOT_FOUND, E_FORGOTTEN: of the record only the id is set */
    uint32_t reserved;
    struct pawl_record record;
};
struct pawl_query_data {
    uint64_t lsn;         /* all items are true at it */
    uint32_t count, from; /* of all items; the first one here */
    /* struct pawl_query_item[] */
};

struct pawl_cmd_wait {
    struct pawl_cmd head;
    uint64_t queue, id;
    uint64_t wait_ns;    /* 0: look once; OK_EMPTY after it */
    uint32_t state_mask; /* 1 << enum pawl_state */
    uint32_t reserved;
};

/* All or none, as one record. Followed by `count` commands as they would stand in the ring (types
 * SEND, ACK to DEFER, ACK_ID, CANCEL, STATE, RESERVE, IDEM COMPLETE), of whose heads only bytes and
 * type are read. Answer: OK, value = id of the first message sent, the others follow it by one
 * each, in order of their sends; a refusal: value = number of the command that was refused, from 1,
 * lsn = what it would have had as its value. */
struct pawl_cmd_txn {
    struct pawl_cmd head;
    uint32_t count; /* 1..4,096 */
    uint32_t reserved;
};

struct pawl_cmd_resolve {
    struct pawl_cmd head;
    struct pawl_op_id id;
    uint32_t flags; /* PAWL_RESOLVE_... */
    uint32_t reserved;
};
struct pawl_comp_resolved {
    uint32_t state; /* enum pawl_resolved_state */
    int32_t result; /* of the operation */
    uint64_t value, lsn;
    uint64_t horizon_wall_ms, decided_wall_ms;
};

/* Larger than any command that the largest message allows. */
#define PAWL_CMD_BYTES_MAX (PAWL_MESSAGE_BYTES_MAX + PAWL_HEADERS_BYTES_MAX + 1024u)

/* What met its limit: value of an answer E_FULL, E_QUOTA or E_INFLIGHT_LIMIT. */
enum pawl_limit {
    PAWL_LIMIT_NONE,
    PAWL_LIMIT_QUEUE_MESSAGES,
    PAWL_LIMIT_QUEUE_BYTES,
    PAWL_LIMIT_QUEUE_INFLIGHT,
    PAWL_LIMIT_MEMORY, /* --memory */
    PAWL_LIMIT_LOG,    /* --max-log */
    PAWL_LIMIT_DISK,   /* the disk is full */
    PAWL_LIMIT_QUEUES,
    PAWL_LIMIT_SESSIONS,
    PAWL_LIMIT_LANES,
    PAWL_LIMIT_UID,
    PAWL_LIMIT_LEDGER,
    PAWL_LIMIT_RESERVATIONS,
};

/* Value of an E_INVALID of QUEUE_CREATE and QUEUE_ALTER; 0: an argument is out of its range. */
#define PAWL_INVALID_CIRCLE 1u /* dead_forward leads back to the queue */

/* What `value` of an answer holds:
 *   SEND OK: id; OK_DUPLICATE, E_KEY_MISMATCH: id of the first one · RECEIVE OK: deliveries ·
 * QUEUE_FIND, QUEUE_CREATE OK: queue number · PURGE OK: count E_FULL, E_QUOTA, E_INFLIGHT_LIMIT:
 * enum pawl_limit · E_STATE: enum pawl_state E_LEASE_LOST: pid of the holder, 0 if nobody holds it
 * · E_ALREADY_ACKED: pid that acked, and in the upper half when (s since 1970); lsn: its session ·
 * E_TOO_BIG: the limit in bytes; of a RECEIVE: ring bytes that the next delivery needs (the library
 * opens a larger lane and asks again) · STATE, RESERVE: as said with them; E_PRECONDITION: the
 * version or number found; E_RES_...: what was posted or is left · else 0 */

/* --- completions ----------------------------------------------------------------------------- */

enum pawl_comp_type {
    PAWL_COMP_NONE = 0,
    PAWL_COMP_ANSWER = 1,   /* struct pawl_comp_answer, a run of equal answers */
    PAWL_COMP_DATA = 2,     /* struct pawl_comp_data + bytes: an answer with a body */
    PAWL_COMP_DELIVERY = 3, /* struct pawl_comp_delivery + variable part */
};

/* Answers of `count` commands seq, seq+1, ...: all with this result and lsn, values value, value+1,
 * ... (of a send: the id; else 0 and not counted up). The broker merges what it can. */
struct pawl_comp_answer {
    uint32_t bytes;
    uint16_t type;
    uint16_t count_minus_1;
    uint64_t seq;
    uint64_t value;
    uint64_t lsn;
    int32_t result;
    uint32_t flags; /* PAWL_ANSWER_... */
};
#define PAWL_ANSWER_VALUES_RUN 1u /* value counts up with seq */
/* SEND OK_DUPLICATE, E_KEY_MISMATCH: enum pawl_state of the first one above these bits. */
#define PAWL_ANSWER_STATE_SHIFT 4
#define PAWL_ANSWER_STATE_MASK 15u

/* Also used for a refusal that has something to add: data is then text. */
struct pawl_comp_data {
    uint32_t bytes;
    uint16_t type;
    uint16_t reserved;
    uint64_t seq;
    uint64_t value;
    uint64_t lsn;
    int32_t result;
    uint32_t data_bytes;
    /* data */
};
#define PAWL_DATA_BYTES_MAX 16384u /* of one answer: bounds the room a command reserves */

/* A granted message. Followed without gaps by key, ordering key, headers, body, progress. seq: of
 * the RECEIVE or SUBSCRIBE that it belongs to. A RECEIVE ends with an ANSWER behind its deliveries
 * whose value is their number (OK), or OK_EMPTY. */
struct pawl_comp_delivery {
    uint32_t bytes;
    uint16_t type;
    uint8_t lease_kind;
    uint8_t priority;
    uint64_t seq;
    uint64_t queue;
    uint64_t message, grant, random;
    uint64_t deadline; /* broker's boot clock; UINT64_MAX: held; 0: at most once, already acked */
    uint64_t sent_wall_ns;
    uint32_t acquired, failed, crashed, expired, nacked;
    uint32_t body_bytes;
    uint16_t headers_bytes;
    uint8_t key_bytes, ordering_key_bytes;
    uint8_t mode; /* enum pawl_mode of the queue */
    uint8_t reserved;
    uint16_t progress_bytes;
};

_Static_assert(sizeof(struct pawl_cmd) == 32, "layout");
_Static_assert(sizeof(struct pawl_cmd_send) == 56, "layout");
_Static_assert(sizeof(struct pawl_cmd_send_times) == 24, "layout");
_Static_assert(sizeof(struct pawl_cmd_receive) == 56, "layout");
_Static_assert(sizeof(struct pawl_cmd_settle) == 72, "layout");
_Static_assert(sizeof(struct pawl_cmd_message) == 64, "layout");
_Static_assert(sizeof(struct pawl_cmd_one) == 40, "layout");
_Static_assert(sizeof(struct pawl_cmd_scan) == 56, "layout");
_Static_assert(sizeof(struct pawl_cmd_state) == 80, "layout");
_Static_assert(sizeof(struct pawl_cmd_state_scan) == 64, "layout");
_Static_assert(sizeof(struct pawl_cmd_reserve) == 80, "layout");
_Static_assert(sizeof(struct pawl_state_data) == 40, "layout");
_Static_assert(sizeof(struct pawl_reservation_data) == 288, "layout");
_Static_assert(sizeof(struct pawl_cmd_txn) == 40, "layout");
_Static_assert(sizeof(struct pawl_cmd_resolve) == 56, "layout");
_Static_assert(sizeof(struct pawl_comp_resolved) == 40, "layout");
_Static_assert(sizeof(struct pawl_cmd_idem) == 88, "layout");
_Static_assert(sizeof(struct pawl_idem_data) == 72, "layout");
_Static_assert(sizeof(struct pawl_cmd_query) == 64, "layout");
_Static_assert(sizeof(struct pawl_cmd_wait) == 64, "layout");
_Static_assert(sizeof(struct pawl_query_data) == 16, "layout");
_Static_assert(sizeof(struct pawl_comp_answer) == 40, "layout");
_Static_assert(sizeof(struct pawl_comp_data) == 40, "layout");
_Static_assert(sizeof(struct pawl_comp_delivery) == 96, "layout");
_Static_assert(sizeof(struct pawl_queue_options) % 8 == 0, "layout");
_Static_assert(sizeof(struct pawl_cmd_queue) % 8 == 0, "layout");

#endif
