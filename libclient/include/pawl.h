/* SPDX-License-Identifier: MIT */
#ifndef PAWL_H
#define PAWL_H

/* libpawl: the client of pawl, a message broker for the processes of one host.
 *
 * A `struct pawl` is a *lane*: a pair of private rings between this process and the broker, used by
 * one thread at a time. pawl_open() attaches the process (a *session*) and gives its first lane;
 * pawl_lane_open() gives another thread its own lane of the same session.
 *
 * Results. Every call returns PAWL_OK (0), a positive answer (PAWL_OK_...), or a negative code of
 * the closed list below; nothing is left in errno. pawl_outcome_class() tells whether the operation
 * took effect, pawl_advice() what to do next: neither is to be guessed from the number.
 *
 * Time. Durations are nanoseconds in uint64_t. Wall times are nanoseconds since 1970 (UTC). Leases
 * and delays run on the broker's boot clock, which counts suspend and ignores wall clock changes.
 *
 * Structs passed in begin with `size`: set it to sizeof the struct, or use the _INIT macro, so that
 * the library can grow without a new ABI. A NULL options pointer means all defaults.
 *
 * Threads. A lane used by a second thread while a call is running returns PAWL_E_MISUSE. In a
 * forked child every call returns PAWL_E_FORKED and pawl_close() only unmaps. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PAWL_API __attribute__((visibility("default")))
#define PAWL_CHECK __attribute__((warn_unused_result))
#else
#define PAWL_API
#define PAWL_CHECK
#endif

#define PAWL_VERSION_MAJOR 0
#define PAWL_VERSION_MINOR 1
#define PAWL_VERSION_PATCH 0
#define PAWL_VERSION "0.1.0"

#define PAWL_NS_MS 1000000ull
#define PAWL_NS_S 1000000000ull

/* Limits. All are inclusive. */
#define PAWL_NAME_BYTES_MAX 127u      /* queue and table names: 1..127 of [A-Za-z0-9._:/-] */
#define PAWL_KEY_BYTES_MAX 255u       /* dedup and ordering keys */
#define PAWL_HEADERS_BYTES_MAX 16384u /* all headers of one message, encoded */
#define PAWL_MESSAGE_BYTES_DEFAULT 1048576u
#define PAWL_MESSAGE_BYTES_MAX 16777216u
#define PAWL_BATCH_MAX 1024u
#define PAWL_PRIORITIES 8u /* 0 lowest .. 7 highest; default 4 */
#define PAWL_PRIORITY_DEFAULT 4u
#define PAWL_LEASE_NS_MIN 1000000ull                 /* 1 ms */
#define PAWL_LEASE_NS_MAX (12ull * 3600 * PAWL_NS_S) /* 12 h */
#define PAWL_LEASE_NS_DEFAULT (10ull * PAWL_NS_S)
#define PAWL_DELAY_NS_MAX (3653ull * 86400 * PAWL_NS_S) /* 10 years */
#define PAWL_RETRY_STEPS_MAX 64u
#define PAWL_REASON_BYTES_MAX 255u
#define PAWL_RESULT_BYTES_MAX 4096u
#define PAWL_PROGRESS_BYTES_MAX 4096u
#define PAWL_STATE_BYTES_MAX 65536u /* the value of one key of a table */
#define PAWL_STATE_PAGE_MAX 1024u   /* keys of one scan */

/* Of a direct queue: max_messages (a power of two), max_message_bytes, max_failed. */
#define PAWL_DIRECT_MESSAGES_MIN 64u
#define PAWL_DIRECT_MESSAGES_MAX 1048576u
#define PAWL_DIRECT_MESSAGES_DEFAULT 1024u
#define PAWL_DIRECT_MESSAGE_BYTES_MAX 1048576u
#define PAWL_DIRECT_MESSAGE_BYTES_DEFAULT 1024u
#define PAWL_DIRECT_FAILED_MAX 1023u

/* The closed list of results. X(name, value, outcome, advice, text) */
#define PAWL_RESULTS(X)                                                                            \
    X(OK, 0, APPLIED, NONE, "done")                                                                \
    X(OK_DUPLICATE, 1, APPLIED, NONE, "done before by this very operation or key")                 \
    X(OK_EMPTY, 2, APPLIED, NONE, "nothing there in the time given")                               \
    X(OK_MISSING, 3, APPLIED, NONE, "nothing there to settle, as the caller allowed")              \
    X(E_FULL, -1, NOT_APPLIED, RETRY_SAME_ID, "a limit of messages, bytes, memory or log is met")  \
    X(E_QUOTA, -2, NOT_APPLIED, RETRY_SAME_ID, "a quota is met")                                   \
    X(E_INFLIGHT_LIMIT, -3, NOT_APPLIED, RETRY_SAME_ID, "too many messages under lease")           \
    X(E_PAUSED, -4, NOT_APPLIED, RETRY_SAME_ID, "the queue is paused")                             \
    X(E_RESOURCE, -5, NOT_APPLIED, RETRY_SAME_ID, "memory or descriptors of this process ran out") \
    X(E_PRECONDITION, -10, NOT_APPLIED, PERMANENT, "an assertion did not hold")                    \
    X(E_CONFLICT, -11, NOT_APPLIED, RETRY_NEW_ID, "something read has changed meanwhile")          \
    X(E_LEASE_LOST, -12, NOT_APPLIED, PERMANENT, "the lease is over; drop the work")               \
    X(E_ALREADY_ACKED, -13, NOT_APPLIED, PERMANENT, "another operation acknowledged the message")  \
    X(E_STATE, -14, NOT_APPLIED, PERMANENT, "the message is in a state that does not allow this")  \
    X(E_NOT_FOUND, -15, NOT_APPLIED, PERMANENT, "no such thing, or not yours to see")              \
    X(E_HOLD_CAP, -16, NOT_APPLIED, PERMANENT, "the lease has been held as long as it may be")     \
    X(E_KEY_MISMATCH, -17, NOT_APPLIED, PERMANENT, "the key was used with another payload")        \
    X(E_IDEM_MISMATCH, -18, NOT_APPLIED, PERMANENT, "the key was used with other parameters")      \
    X(E_RES_ALREADY_POSTED, -19, NOT_APPLIED, PERMANENT, "the reservation was posted")             \
    X(E_RES_ALREADY_VOIDED, -20, NOT_APPLIED, PERMANENT, "the reservation was voided")             \
    X(E_RES_EXPIRED, -21, NOT_APPLIED, PERMANENT, "the time of the reservation is over")           \
    X(E_RES_NOT_FOUND, -22, NOT_APPLIED, PERMANENT, "no such reservation, or long over")           \
    X(E_RES_DIFFERENT_AMOUNT, -23, NOT_APPLIED, PERMANENT,                                         \
      "the reservation has another amount or key")                                                 \
    X(E_RES_SHORT, -24, NOT_APPLIED, PERMANENT, "too little is left to reserve")                   \
    X(E_INVALID, -30, NOT_APPLIED, PERMANENT, "an argument is out of its range")                   \
    X(E_TOO_BIG, -31, NOT_APPLIED, PERMANENT, "larger than the limit")                             \
    X(E_PERM, -32, NOT_APPLIED, PERMANENT, "no right to do this")                                  \
    X(E_EXISTS, -33, NOT_APPLIED, PERMANENT, "exists with other options")                          \
    X(E_QUEUE_GONE, -34, NOT_APPLIED, PERMANENT, "the queue was dropped")                          \
    X(E_NOT_SUPPORTED, -35, NOT_APPLIED, PERMANENT,                                                \
      "this version or kind of queue has no such thing")                                           \
    X(E_OPID_MISMATCH, -36, NOT_APPLIED, PERMANENT, "the id was used for another operation")       \
    X(E_TXN_POISONED, -37, NOT_APPLIED, PERMANENT, "a step failed: the transaction cannot commit") \
    X(E_TXN_TIMEOUT, -38, NOT_APPLIED, PERMANENT, "the transaction is older than its limit")       \
    X(E_MISUSE, -39, NOT_APPLIED, PERMANENT, "two threads in one lane, or a call out of place")    \
    X(E_FORKED, -40, NOT_APPLIED, PERMANENT, "this handle belongs to the parent process")          \
    X(E_ABI, -41, NOT_APPLIED, PERMANENT, "library and broker differ in version or layout")        \
    X(E_DEADLINE, -50, UNKNOWN, RESOLVE, "the time of the call is over")                           \
    X(E_BROKER_DOWN, -51, UNKNOWN, RESOLVE, "no broker answers")                                   \
    X(E_OUTCOME_UNKNOWN, -52, UNKNOWN, RESOLVE, "this log does not know the session")              \
    X(E_FORGOTTEN, -53, UNKNOWN, PERMANENT, "older than what is kept; never applied again")        \
    X(E_OP_FENCED, -54, NOT_APPLIED, PERMANENT, "resolved with a fence before it arrived")         \
    X(E_WAL_FAILED, -55, UNKNOWN, RESOLVE, "a write of the log failed; the broker has stopped")    \
    X(E_QUEUE_DAMAGED, -56, UNKNOWN, FATAL, "the memory of a direct queue is damaged")             \
    X(E_EPOCH, -57, UNKNOWN, FATAL, "the session was taken over by a newer attach")                \
    X(E_PROTOCOL, -58, UNKNOWN, FATAL, "closed for a breach of the protocol")

enum pawl_result {
#define PAWL_X(name, value, outcome, advice, text) PAWL_##name = (value),
    PAWL_RESULTS(PAWL_X)
#undef PAWL_X
};

enum pawl_outcome { PAWL_OUTCOME_APPLIED, PAWL_OUTCOME_NOT_APPLIED, PAWL_OUTCOME_UNKNOWN };
enum pawl_advice {
    PAWL_ADVICE_NONE,
    PAWL_ADVICE_PERMANENT,
    PAWL_ADVICE_RETRY_SAME_ID,
    PAWL_ADVICE_RETRY_NEW_ID,
    PAWL_ADVICE_RESOLVE,
    PAWL_ADVICE_FATAL
};

/* The name of a result ("PAWL_E_FULL") and a sentence for it. Never NULL. Any thread. */
PAWL_API const char *pawl_strname(int result);
PAWL_API const char *pawl_strerror(int result);
/* E_BROKER_DOWN is UNKNOWN by class; a call that was never submitted answers NOT_APPLIED through
 * pawl_last_outcome(), which is exact for the last call of the lane. */
PAWL_API enum pawl_outcome pawl_outcome_class(int result);
PAWL_API enum pawl_advice pawl_advice(int result);

/* --- attach ---------------------------------------------------------------------------------- */

struct pawl; /* a lane */

struct pawl_options {
    size_t size;
    const char *dir;     /* instance, not ""; NULL: $PAWL_DIR, else the default of pawl(1) */
    const char *socket;  /* not ""; NULL: $PAWL_SOCKET if dir is NULL, else DIR/pawl.sock */
    const char *label;   /* shown to operators; at most 63 bytes; not an identity */
    uint64_t timeout_ns; /* how long any call may wait for the broker; default 10 s */
    uint64_t spin_ns;    /* look this long (yielding) before sleeping; default 0 */
    uint32_t window;     /* open operations a lane, 64..65,536; default 1,024 */
    uint32_t ring_bytes; /* each way, power of two, 64 KiB..64 MiB; default 256 KiB */
    uint32_t prefetch;   /* deliveries held ready by a receive loop, 0..window; default 0 */
    uint32_t flags;      /* PAWL_OPEN_... */
};
#define PAWL_OPTIONS_INIT                   \
    {                                       \
        .size = sizeof(struct pawl_options) \
    }
#define PAWL_OPEN_NO_WAIT 1u /* a broker that is not there is E_BROKER_DOWN at once */

/* Attaches this process and opens its first lane. Waits up to timeout_ns for a broker.
 * Returns OK; E_BROKER_DOWN (no broker: pawl_last_text(NULL) says what to start); E_ABI, E_PERM,
 * E_INVALID, E_RESOURCE, E_QUOTA. On error *out is NULL and nothing is left behind. */
PAWL_API PAWL_CHECK int pawl_open(const struct pawl_options *options, struct pawl **out);

/* Another lane of the same session, for another thread. May be called from any thread. */
PAWL_API PAWL_CHECK int pawl_lane_open(struct pawl *lane, struct pawl **out);

/* Closes a lane; the last one ends the session, and its process leases with it. NULL is allowed. */
PAWL_API void pawl_close(struct pawl *lane);

/* A descriptor for poll/epoll that becomes readable when answers or deliveries wait in this lane.
 * After it fires call pawl_poll() or pawl_receive_batch() until they answer OK_EMPTY, then wait
 * again. Owned by the lane. Returns the descriptor (>= 0) or a negative result. */
PAWL_API PAWL_CHECK int pawl_fd(struct pawl *lane);

/* What the last failed call of this lane (of this thread, for NULL) wanted to add to its code:
 * which limit, which value, what to do. "" if nothing. Valid until the next call. After E_MISUSE
 * and E_FORKED, where the lane is another's, each thread is told its own. */
PAWL_API const char *pawl_last_text(const struct pawl *lane);
PAWL_API enum pawl_outcome pawl_last_outcome(const struct pawl *lane);

struct pawl_broker_info {
    size_t size;
    uint64_t session;      /* id of this session */
    uint64_t broker_epoch; /* grows with each start of the broker */
    uint64_t durable_lsn;  /* read without a call */
    uint32_t pid;          /* of the broker, for display */
    uint32_t reattached;   /* how often this lane found a new broker */
    char version[32];
    char io[16]; /* "uring", "posix" */
};
PAWL_API PAWL_CHECK int pawl_info(struct pawl *lane, struct pawl_broker_info *out);

/* --- queues ---------------------------------------------------------------------------------- */

enum pawl_mode {
    PAWL_DURABLE = 0,
    PAWL_RELAXED = 1,
    PAWL_MEMORY = 2,
    PAWL_DIRECT = 3,
    PAWL_TABLE = 4 /* a table of state: pawl_table_create() */
};

#define PAWL_UNLIMITED UINT64_MAX
#define PAWL_KEEP UINT32_MAX /* owner, group, perm: leave as it is (default at create) */

/* What 0 means stands with each member: the default, or no limit. PAWL_QUEUE_OPTIONS_INIT gives all
 * defaults; the least that a limit can be is 1. */
struct pawl_queue_options {
    size_t size;
    uint32_t mode;               /* enum pawl_mode; 0: durable; cannot be altered */
    uint32_t max_failed;         /* failed attempts before DEAD, at most 65,535; 0: no limit;
                                    PAWL_KEEP: 16 */
    uint32_t max_crashed;        /* at most 255; 0: no limit; PAWL_KEEP: 5 */
    uint32_t retry_count;        /* steps used of retry_ns; 0: 0, 1 s, 5 s, 30 s, 2 min, 10 min */
    uint64_t lease_ns;           /* 1 ms to 12 h; 0: 10 s */
    uint64_t max_hold_ns;        /* at most 10 years; 0: 12 h */
    uint64_t ttl_ns;             /* at most 10 years; 0: no end */
    uint64_t done_retention_ns;  /* how long a message is remembered after its end, at most 90 days;
                                    0: 10 min; 1 ns: not at all */
    uint64_t dedup_window_ns;    /* how long a dedup key is remembered after its message was
                                    accepted, at most 7 days; and while that lives; 0: 10 min */
    uint64_t max_messages;       /* 0: no limit of its own */
    uint64_t max_bytes;          /* 0: no limit of its own */
    uint32_t max_message_bytes;  /* at most 16 MiB; 0: 1 MiB */
    uint32_t max_inflight;       /* messages under lease; 0: 65,536 */
    uint32_t owner, group, perm; /* uid, gid, 9 bits rwx = receive 4, send 2, query 1; 0 is root and
                                    no rights; PAWL_KEEP: creator, its group, 0770 */
    uint32_t flags;              /* PAWL_QUEUE_...; cannot be altered */
    uint64_t retry_ns[PAWL_RETRY_STEPS_MAX];    /* each at most 10 years; 0: at once */
    char dead_forward[PAWL_NAME_BYTES_MAX + 1]; /* dead messages go there, as one record, if it is
                                                   there; not the queue itself, nor one whose dead
                                                   come back to it, or that is E_INVALID; "": they
                                                   stay */
};
#define PAWL_QUEUE_ORDERED 1u /* messages without an ordering key share one */
#define PAWL_QUEUE_OPTIONS_INIT                                                             \
    {                                                                                       \
        .size = sizeof(struct pawl_queue_options), .max_failed = PAWL_KEEP,                 \
        .max_crashed = PAWL_KEEP, .owner = PAWL_KEEP, .group = PAWL_KEEP, .perm = PAWL_KEEP \
    }

/* Durable on return in every mode. Again with the same options: OK_DUPLICATE; with others:
 * E_EXISTS. */
PAWL_API PAWL_CHECK int pawl_queue_create(struct pawl *lane, const char *name,
                                          const struct pawl_queue_options *options);
/* Replaces all options but mode and flags: another one of these is E_INVALID. */
PAWL_API PAWL_CHECK int pawl_queue_alter(struct pawl *lane, const char *name,
                                         const struct pawl_queue_options *options);
PAWL_API PAWL_CHECK int pawl_queue_drop(struct pawl *lane, const char *name);
PAWL_API PAWL_CHECK int pawl_queue_pause(struct pawl *lane, const char *name);
PAWL_API PAWL_CHECK int pawl_queue_resume(struct pawl *lane, const char *name);
/* Takes every message of the queue to PURGED; *count (may be NULL) gets how many. */
PAWL_API PAWL_CHECK int pawl_queue_purge(struct pawl *lane, const char *name, uint64_t *count);

struct pawl_queue_stat {
    size_t size;
    char name[PAWL_NAME_BYTES_MAX + 1];
    uint64_t id;
    struct pawl_queue_options options;
    uint32_t paused;
    uint32_t waiting;                              /* receives that wait */
    uint64_t ready, scheduled, leased, dead, done; /* messages by state; done: remembered */
    uint64_t bytes;                                /* payload bytes of live messages */
    uint64_t sent, delivered, acked, nacked, expired_leases, crashed, released, expired, cancelled,
        purged;
    uint64_t oldest_ready_ns; /* age of the oldest ready message */
    /* Of a direct queue. */
    uint64_t incarnation; /* of its memory; another one: all that it held before is gone. 0: none
                             is there, it is made for the next who attaches */
    uint32_t attached;    /* lanes that use it */
    uint32_t damaged;     /* words that no correct client wrote, seen so far */
};
PAWL_API PAWL_CHECK int pawl_queue_stat(struct pawl *lane, const char *name,
                                        struct pawl_queue_stat *out);
/* Queues that the caller may query, in order of name, those after `after` ("" or NULL: first).
 * Returns the number written (0: no more) or a negative result. */
PAWL_API PAWL_CHECK int pawl_queue_list(struct pawl *lane, const char *after,
                                        struct pawl_queue_stat *out, uint32_t max);

/* --- send ------------------------------------------------------------------------------------ */

struct pawl_header {
    const char *name, *value;
};

struct pawl_send_options {
    size_t size;
    const void *key;          /* dedup key, 1..255 bytes, with key_bytes; NULL and 0: none */
    const void *ordering_key; /* one message of a key at a time, in order; NULL: none, unless the
                                 queue is PAWL_QUEUE_ORDERED */
    uint32_t key_bytes, ordering_key_bytes;
    uint64_t delay_ns;   /* 0..10 y */
    uint64_t at_wall_ns; /* instead of delay_ns; becomes a delay when it is decided */
    uint64_t ttl_ns;     /* 0: the queue's */
    const struct pawl_header *headers;
    uint32_t header_count;
    uint32_t priority;     /* 0..7 */
    uint64_t wait_room_ns; /* how long to wait for room after E_FULL; 0: not */
};
#define PAWL_SEND_OPTIONS_INIT                                                      \
    {                                                                               \
        .size = sizeof(struct pawl_send_options), .priority = PAWL_PRIORITY_DEFAULT \
    }

struct pawl_sent {
    uint64_t id;    /* of the message; of the first one for OK_DUPLICATE and E_KEY_MISMATCH */
    uint64_t lsn;   /* position of the record; 0 on a memory queue */
    uint32_t state; /* enum pawl_state of the first one, for these two */
    int32_t result; /* batch form: the outcome of this item */
};

/* One message. OK: on a durable queue it is on disk. With a key: at most one message of it is made
 * in the queue's dedup window (from when it was accepted) and while that message lives, whoever
 * sends; the others get OK_DUPLICATE with its id and state, or E_KEY_MISMATCH if their body is
 * another one (headers and times are not compared); after a restart, an acknowledgement or a purge
 * as well. E_QUOTA: the broker remembers as many keys as it may. Refused at once, never parked:
 * E_FULL, E_TOO_BIG, E_NOT_FOUND (no such queue), E_PERM, E_INVALID. May block for up to the lane's
 * timeout. */
PAWL_API PAWL_CHECK int pawl_send(struct pawl *lane, const char *queue, const void *body,
                                  size_t bytes, const struct pawl_send_options *options,
                                  struct pawl_sent *out);

struct pawl_item {
    const void *body;
    size_t bytes;
    const struct pawl_send_options *options;
};
/* A row of separate sends that share the way: out[i].result is the outcome of item i. Returns OK if
 * all are OK or OK_DUPLICATE, else the first other outcome. n is 1..1,024. */
PAWL_API PAWL_CHECK int pawl_send_batch(struct pawl *lane, const char *queue,
                                        const struct pawl_item *items, uint32_t n,
                                        struct pawl_sent *out);

/* READY or SCHEDULED -> CANCELLED. E_STATE, E_NOT_FOUND, E_FORGOTTEN. */
PAWL_API PAWL_CHECK int pawl_cancel(struct pawl *lane, const char *queue, uint64_t id);
/* The same of the message that was sent to the queue with this dedup key of 1..255 bytes, as long
 * as the key is remembered. E_NOT_FOUND: no such key, or no longer. */
PAWL_API PAWL_CHECK int pawl_cancel_key(struct pawl *lane, const char *queue, const void *key,
                                        size_t key_bytes);

/* --- receive --------------------------------------------------------------------------------- */

/* Names a delivery. `message` finds it, `grant` grows with every grant and across crashes (hand it
 * to outside systems as fencing number), `random` cannot be guessed. Works from any session of the
 * uid. */
struct pawl_token {
    uint64_t message, grant, random;
};

enum pawl_state {
    PAWL_STATE_NONE,
    PAWL_STATE_SCHEDULED,
    PAWL_STATE_READY,
    PAWL_STATE_LEASED,
    PAWL_STATE_DEAD,
    PAWL_STATE_ACKED,
    PAWL_STATE_EXPIRED,
    PAWL_STATE_CANCELLED,
    PAWL_STATE_PURGED
};
enum pawl_dead_reason { PAWL_DEAD_NONE, PAWL_DEAD_FAILED, PAWL_DEAD_CRASHED, PAWL_DEAD_REJECTED };
PAWL_API const char *pawl_state_name(uint32_t state);

#define PAWL_LEASE_PROCESS 0u  /* ends by time, or at once when the process dies */
#define PAWL_LEASE_HELD 1u     /* no time-out; ends with the process or at max_hold */
#define PAWL_LEASE_DETACHED 2u /* ends by time only, so that another process may settle */

struct pawl_receive_options {
    size_t size;
    uint64_t wait_ns;    /* 0: look once; PAWL_UNLIMITED: no end */
    uint64_t lease_ns;   /* 0: the queue's */
    uint32_t lease_kind; /* PAWL_LEASE_... */
    uint32_t flags;      /* PAWL_RECEIVE_... */
};
#define PAWL_RECEIVE_OPTIONS_INIT                   \
    {                                               \
        .size = sizeof(struct pawl_receive_options) \
    }
#define PAWL_RECEIVE_AT_MOST_ONCE \
    1u /* grant and ack are one record, durable before the body is shown */

#define PAWL_RECEIVE_IN_PLACE \
    2u /* direct queues: the body is read in the queue itself, until it is settled: below */

struct pawl_message {
    struct pawl_token token;
    uint64_t id;
    const void *body; /* this and the pointers below: valid until the next receive of the lane */
    size_t bytes;
    const char *queue;
    const void *key;
    const void *ordering_key;
    const void *headers; /* encoded; read with pawl_message_header() */
    uint32_t key_bytes, ordering_key_bytes, headers_bytes;
    uint32_t priority;
    uint64_t lease_left_ns; /* at hand-over; 0 for at-most-once, PAWL_UNLIMITED for held */
    uint64_t deadline_ns;   /* CLOCK_BOOTTIME of this process */
    uint64_t sent_wall_ns;
    uint32_t acquired, failed, crashed, expired,
        nacked; /* attempts so far; acquired counts this one */
    uint32_t lease_kind;
    uint32_t progress_bytes;
    const void *progress; /* what its last pawl_defer() with progress left; NULL: nothing, or at
                             most once. Valid as body */
};

/* Up to one message; OK, or OK_EMPTY after wait_ns. With opened prefetch the next message is often
 * a read of the ring. The library never hands out a delivery whose lease is over. */
PAWL_API PAWL_CHECK int pawl_receive(struct pawl *lane, const char *queue,
                                     const struct pawl_receive_options *options,
                                     struct pawl_message *out);
/* Up to max messages from up to 16 queues. *count gets how many; waits only for the first.
 * E_QUEUE_GONE: one of the queues was dropped. */
PAWL_API PAWL_CHECK int pawl_receive_batch(struct pawl *lane, const char *const *queues,
                                           uint32_t queue_count,
                                           const struct pawl_receive_options *options,
                                           struct pawl_message *out, uint32_t max, uint32_t *count);
/* The i-th header (from 0): OK, or OK_EMPTY past the last. */
PAWL_API PAWL_CHECK int pawl_message_header(const struct pawl_message *message, uint32_t i,
                                            struct pawl_header *out);

/* --- settle ---------------------------------------------------------------------------------- */

#define PAWL_ACK_IF_UNCLAIMED \
    1u /* also after the lease ended, while nobody else has had the message */
#define PAWL_ACK_IGNORE_MISSING 2u /* OK_MISSING instead of E_STATE, E_NOT_FOUND, E_FORGOTTEN */

/* The one acknowledgement. OK; OK_DUPLICATE (this very call, resubmitted); E_ALREADY_ACKED: the
 * text says whether this process did it by another call, or which one did and when;
 * pawl_record.done_by names the call; E_LEASE_LOST; E_STATE; E_NOT_FOUND; E_FORGOTTEN. On a durable
 * queue OK means on disk. */
PAWL_API PAWL_CHECK int pawl_ack(struct pawl *lane, const struct pawl_token *token, uint32_t flags);
/* The same with a result of 0..4,096 bytes, kept with the finished message as long as it is
 * remembered: pawl_query_result(). In the same record as the acknowledgement. E_FULL: no room for
 * the result; an ack without one always has some. */
PAWL_API PAWL_CHECK int pawl_ack_result(struct pawl *lane, const struct pawl_token *token,
                                        uint32_t flags, const void *result, size_t bytes);
/* results[i] (may be NULL) is the outcome of tokens[i]; returns as pawl_send_batch. n is 1..1,024.
 */
PAWL_API PAWL_CHECK int pawl_ack_batch(struct pawl *lane, const struct pawl_token *tokens,
                                       uint32_t n, uint32_t flags, int32_t *results);
/* Acknowledges a scheduled or ready message that nobody holds. */
PAWL_API PAWL_CHECK int pawl_ack_id(struct pawl *lane, const char *queue, uint64_t id,
                                    uint32_t flags);
/* The same by dedup key, as pawl_cancel_key(). */
PAWL_API PAWL_CHECK int pawl_ack_key(struct pawl *lane, const char *queue, const void *key,
                                     size_t key_bytes, uint32_t flags);

#define PAWL_DELAY_LADDER UINT64_MAX /* nack: take the queue's retry ladder */
/* Failed: counted, back after the ladder or after delay_ns, or DEAD at the limit. */
PAWL_API PAWL_CHECK int pawl_nack(struct pawl *lane, const struct pawl_token *token,
                                  uint64_t delay_ns, const char *reason);
/* Given back untouched: not counted as failed, ready at its old place. */
PAWL_API PAWL_CHECK int pawl_release(struct pawl *lane, const struct pawl_token *token);
/* Dead at once, with a reason. */
PAWL_API PAWL_CHECK int pawl_reject(struct pawl *lane, const struct pawl_token *token,
                                    const char *reason);
struct pawl_defer_options {
    size_t size;
    const void *progress;    /* for whoever receives the message next; NULL: what it has stays */
    uint32_t progress_bytes; /* 0..4,096 */
    uint32_t flags;          /* PAWL_DEFER_... */
};
#define PAWL_DEFER_OPTIONS_INIT                   \
    {                                             \
        .size = sizeof(struct pawl_defer_options) \
    }
#define PAWL_DEFER_FREE_KEY 1u /* others of its ordering key need not wait for it */
/* End of the lease and scheduled again after delay_ns (0..10 y) under the same id, as one record;
 * not counted as failed. The old token still acks with PAWL_ACK_IF_UNCLAIMED until another has the
 * message. E_FULL: no memory for the progress; without it there is always room. */
PAWL_API PAWL_CHECK int pawl_defer(struct pawl *lane, const struct pawl_token *token,
                                   uint64_t delay_ns, const struct pawl_defer_options *options);
/* New end = now + lease_ns (may shorten). E_LEASE_LOST, E_HOLD_CAP. */
PAWL_API PAWL_CHECK int pawl_renew(struct pawl *lane, const struct pawl_token *token,
                                   uint64_t lease_ns);

/* The same of a row: results[i] (may be NULL) is the outcome of tokens[i]; returns as
 * pawl_ack_batch. n is 1..1,024. */
PAWL_API PAWL_CHECK int pawl_renew_batch(struct pawl *lane, const struct pawl_token *tokens,
                                         uint32_t n, uint64_t lease_ns, int32_t *results);

/* Help with the leases of what this lane hands out from now on; 0: none any more (the default).
 * Held ones and at-most-once need none. SOON keeps their deadlines, for pawl_lease_soon(). RENEW
 * also renews them: a thread with a lane of its own does so at a third of the lease, until it is
 * settled or max_hold is met; the program may be busy meanwhile, and pawl_close() ends it. What a
 * transaction settles leaves only when its lease is over, or the thread is refused. E_RESOURCE: no
 * memory or no thread. */
#define PAWL_LEASE_HELP_SOON 1u
#define PAWL_LEASE_HELP_RENEW 2u
PAWL_API PAWL_CHECK int pawl_lease_help(struct pawl *lane, uint32_t flags);
struct pawl_lease_left {
    struct pawl_token token;
    uint64_t left_ns;
};
/* Which of them have a fifth of their time left or less, by what the library knows, without asking
 * the broker. Returns how many were written (at most max, 1..1,024), or a negative result: E_MISUSE
 * without pawl_lease_help(). */
PAWL_API PAWL_CHECK int pawl_lease_soon(struct pawl *lane, struct pawl_lease_left *out,
                                        uint32_t max);

/* 48 hexadecimal digits and a NUL, for logs, scripts and the CLI. */
#define PAWL_TOKEN_TEXT_BYTES 49
PAWL_API void pawl_token_format(const struct pawl_token *token, char text[PAWL_TOKEN_TEXT_BYTES]);
PAWL_API PAWL_CHECK int pawl_token_parse(const char *text, struct pawl_token *out);

/* --- direct queues --------------------------------------------------------------------------- */

/* A queue of mode PAWL_DIRECT goes from process to process through shared memory, without the
 * broker on the way. pawl_send(), pawl_send_batch(), pawl_receive(), pawl_receive_batch() (of this
 * queue alone), pawl_ack(), pawl_nack(), pawl_release(), pawl_renew() and the rows of these work on
 * it as they stand above, with these differences:
 *
 * - Options at create: max_messages (slots: a power of two, 64 to 1,048,576; 0: 1,024),
 *   max_message_bytes (at most 1 MiB; 0: 1,024), lease_ns, max_hold_ns, max_failed (of all
 *   attempts, at most 1,023), one retry_ns (of a nack; at most 18 hours), owner, group, perm. The
 *   memory is made whole at create: E_FULL if there is none. Only owner, group and perm can be
 *   altered.
 * - A slot is in use from send until ack. E_FULL: none is free that the order lets be used.
 * - Nothing is on disk. A message survives every process but those that hold the memory: the broker
 *   and its clients. When the last of them is gone the queue is empty, which
 *   pawl_queue_stat.incarnation shows. While no broker runs all calls go on, but no lease ends by
 *   time or death and nobody new attaches.
 * - A lease ends by time at most a sweep of the broker late (an eighth of it, at most 1 s). Every
 *   delivery counts as an attempt; a release does too. ack answers OK or E_LEASE_LOST.
 * - Only the process that received a message can settle it, from any lane.
 * - Messages given back, or late because their producer was stopped while it sent, are received
 *   before others.
 * - Each lane of the program that uses the queue has a lane of the queue, of which there are 256 to
 *   4,094 (as many as slots).
 * - E_NOT_SUPPORTED: keys, ordering keys, headers, delays, priorities and a time to live of a send;
 *   several queues in one receive; PAWL_LEASE_DETACHED; PAWL_ACK_IF_UNCLAIMED, results, reasons;
 *   defer, reject, cancel, ack by id, peek, query but pawl_query_scan() of the dead; purge, pause;
 *   ids of operations, transactions. What is submitted is done at once.
 * - pawl_fd(): after a receive that did not wait and answered OK_EMPTY the descriptor fires when
 *   something comes, within a second if its sender died meanwhile; a thread of the library sleeps
 *   for it.
 * - Who may attach (send or receive) can write the whole memory, and so harm this queue, but
 *   nothing else: E_QUEUE_DAMAGED.
 *
 * The library has a thread while direct queues are used: it gives the queue to the next broker when
 * one was restarted. pawl_receive() spins for pawl_options.spin_ns, then sleeps. */

#define PAWL_PLACES_MAX 256u

/* Bodies written in place. Takes up to n places of a direct queue and returns how many (1..n), or
 * E_FULL, E_MISUSE (places of this lane are open in it), E_NOT_SUPPORTED (another kind of queue)
 * and what pawl_send() has. places[i] is memory of *bytes (may be NULL) bytes, the largest body,
 * valid until it is published or abandoned; they become messages in order, the first by the first
 * pawl_place_publish(). Until the last is published or abandoned this lane sends nothing else to
 * the queue, and its places pin their slots; receivers pass them. A process that dies leaves
 * nothing of what it had not published. */
PAWL_API PAWL_CHECK int pawl_place_reserve(struct pawl *lane, const char *queue, uint32_t n,
                                           void **places, size_t *bytes);
/* The next place is a message of `bytes`, sent when this returns OK. E_TOO_BIG: nothing was done.
 * E_MISUSE: none is open. */
PAWL_API PAWL_CHECK int pawl_place_publish(struct pawl *lane, const char *queue, size_t bytes,
                                           struct pawl_sent *out);
/* The next place is given up. OK, E_MISUSE. */
PAWL_API PAWL_CHECK int pawl_place_abandon(struct pawl *lane, const char *queue);
/* Bodies read in place: with PAWL_RECEIVE_IN_PLACE body points into the queue, and is the message's
 * as long as the lease is held: until it is settled, or ends. Whoever may have outlived his lease
 * asks afterwards whether what he read was the message. OK, E_LEASE_LOST. An ack that answers OK
 * says the same. */
PAWL_API PAWL_CHECK int pawl_lease_holds(struct pawl *lane, const struct pawl_token *token);

/* --- look and repair ------------------------------------------------------------------------- */

struct pawl_op_id { /* of an operation, see below */
    uint8_t bytes[16];
};

struct pawl_record {
    size_t size;
    uint64_t id;
    uint32_t state, priority;
    uint64_t created_wall_ns, due_in_ns, lease_left_ns;
    uint32_t acquired, failed, crashed, expired, nacked, deferred;
    uint32_t dead_reason;
    uint32_t holder_pid;
    uint64_t bytes;
    char reason[PAWL_REASON_BYTES_MAX + 1];
    uint64_t done_wall_ns; /* when it was acknowledged, or ended otherwise; 0: not known */
    uint32_t result_bytes; /* of what it was acknowledged with: pawl_query_result() */
    uint32_t reserved;
    struct pawl_op_id done_by; /* the call that acknowledged or cancelled it, by the id that the
                                  library made for it (pawl_last_id()); all zero: not known */
};
/* Messages of a queue with id > after_id and a state of the mask (1u << enum pawl_state), in id
 * order. Returns the number written (at most max, at most 1,024; 0: no more) or a negative result.
 */
PAWL_API PAWL_CHECK int pawl_query_scan(struct pawl *lane, const char *queue, uint64_t after_id,
                                        uint32_t state_mask, struct pawl_record *out, uint32_t max);
PAWL_API PAWL_CHECK int pawl_query_one(struct pawl *lane, const char *queue, uint64_t id,
                                       struct pawl_record *out);
/* Up to 1,024 messages of one queue, in the order of `ids`, all as they were at one moment: the
 * position *lsn (may be NULL). results[i] (may be NULL) is OK, E_NOT_FOUND, or E_FORGOTTEN: there
 * was such a number once, and here it is not (any more). One that is another queue's answers as one
 * that is unknown. out[i] is filled if it is OK; all have out[0].size. Returns how many are OK, or
 * a negative result. E_CONFLICT: the lane lost its rings again and again meanwhile. */
PAWL_API PAWL_CHECK int pawl_query_batch(struct pawl *lane, const char *queue, const uint64_t *ids,
                                         uint32_t n, struct pawl_record *out, int32_t *results,
                                         uint64_t *lsn);
/* The message that was sent with this dedup key, as long as the key is remembered. Where the
 * message itself is forgotten only its id and state are known. OK; E_NOT_FOUND. */
PAWL_API PAWL_CHECK int pawl_query_key(struct pawl *lane, const char *queue, const void *key,
                                       size_t key_bytes, struct pawl_record *out);
/* What else is known of one message. */
struct pawl_record_more {
    size_t size;
    uint64_t grant;    /* of its newest delivery; 0: never delivered. A token with another one is
                          not the newest */
    uint64_t lease_ns; /* LEASED: the length of the lease */
    uint64_t hold_left_ns;                  /* LEASED: renewals may go on for so long */
    uint64_t ttl_left_ns;                   /* alive: until it expires; PAWL_UNLIMITED: no end */
    uint64_t session;                       /* LEASED: whose; 0: of no session (a detached lease) */
    uint32_t holder_uid;                    /* LEASED, or of its last holder */
    uint32_t lease_kind;                    /* LEASED: PAWL_LEASE_... */
    uint32_t key_bytes, ordering_key_bytes; /* alive */
    char queue[PAWL_NAME_BYTES_MAX + 1];    /* that it is in now */
    char label[64];                         /* of the session */
    uint8_t key[PAWL_KEY_BYTES_MAX + 1];    /* dedup key */
    uint8_t ordering_key[PAWL_KEY_BYTES_MAX + 1];
};
#define PAWL_RECORD_MORE_INIT                   \
    {                                           \
        .size = sizeof(struct pawl_record_more) \
    }
/* The message with this id, whichever queue it is in: of a token (.message), of a sent one, of one
 * that was forwarded. more may be NULL. Wants the query right of its queue; E_NOT_FOUND,
 * E_FORGOTTEN as pawl_query_batch(). Not of direct queues. */
PAWL_API PAWL_CHECK int pawl_query_message(struct pawl *lane, uint64_t id, struct pawl_record *out,
                                           struct pawl_record_more *more);

/* A session: one pawl_open() of a process. */
struct pawl_session_record {
    size_t size;
    uint64_t id;
    uint64_t epoch;       /* grows with each attach */
    uint64_t detached_ns; /* how long it has had no socket; 0: it has one */
    uint32_t pid, uid, gid;
    uint32_t ending; /* 1: it is over, and its leases are being given back */
    uint32_t lanes;
    uint32_t leases; /* messages that it has */
    uint32_t idems;  /* idempotent operations that it works on */
    uint32_t waits;  /* its receives that wait */
    char label[64];
};
#define PAWL_SESSION_RECORD_INIT                   \
    {                                              \
        .size = sizeof(struct pawl_session_record) \
    }
/* The session with this id (pawl_info(), pawl_record_more, the id of an operation of its): of the
 * same user, or asked by the broker's. E_NOT_FOUND: there is none, or it has ended. */
PAWL_API PAWL_CHECK int pawl_query_session(struct pawl *lane, uint64_t id,
                                           struct pawl_session_record *out);
/* Waits until the message gets into a state of the mask (1u << enum pawl_state), without polling.
 * OK: *out; its state is the one that was met, though the message may be on its way to another.
 * OK_EMPTY after wait_ns (0: looks once). E_STATE: it has ended in another state, and stays there.
 * E_NOT_FOUND, E_FORGOTTEN; E_QUEUE_GONE; E_QUOTA: 1,024 waits of this process are open. Goes on
 * over a restart of the broker; what was met and left again while it was down is not seen. */
PAWL_API PAWL_CHECK int pawl_query_wait(struct pawl *lane, const char *queue, uint64_t id,
                                        uint32_t state_mask, uint64_t wait_ns,
                                        struct pawl_record *out);
/* What a message that is over was acknowledged with; copies up to bytes, *have gets its full size,
 * 0 for none. E_STATE: the message lives. Kept for the queue's done_retention_ns; where results
 * take more than a quarter of --memory the oldest tombstones of the queue go before. */
PAWL_API PAWL_CHECK int pawl_query_result(struct pawl *lane, const char *queue, uint64_t id,
                                          void *result, size_t bytes, size_t *have);
/* The body of a live message, without taking it; copies up to bytes, *have gets its full size. */
PAWL_API PAWL_CHECK int pawl_peek(struct pawl *lane, const char *queue, uint64_t id, void *body,
                                  size_t bytes, size_t *have);
/* DEAD -> READY at its old place: acquired, failed (expired, nacked), crashed and deferred from
 * zero, dead_reason none. Kept: id, times, keys and the last reason that a receiver gave. E_STATE:
 * it is not DEAD. Durable on return as an ack is. */
PAWL_API PAWL_CHECK int pawl_restore(struct pawl *lane, const char *queue, uint64_t id);

/* Counters and gauges of the broker as "name value\n" text. Copies up to bytes, NUL-terminated;
 * returns the full length or a negative result. */
PAWL_API PAWL_CHECK int pawl_metrics(struct pawl *lane, char *text, size_t bytes);

/* --- tables ---------------------------------------------------------------------------------- */

/* A table holds keys (1..255 bytes, any) with a value each: up to 64 KiB of bytes, or a number
 * (int64_t). A write is durable on return, and a read shows only what is durable. Each write of a
 * key gives it a new version, larger than any before it, which is never given again, after a delete
 * either.
 *
 * Tables share names, rights (read 4, write 2, query 1), limits (max_messages: keys; max_bytes: of
 * keys and values; max_message_bytes: of a value, at most 64 KiB) and calls with queues:
 * pawl_queue_alter, _stat (ready: keys; done: operations), _list and _drop take them too. Messages
 * go to queues only and state to tables only: E_NOT_SUPPORTED. Where sends are refused for want of
 * memory, log or disk, so are put, add and reserve; delete, post and void still work.
 *
 * All calls below: E_NOT_FOUND (no such table), E_PERM, E_NOT_SUPPORTED, E_INVALID, E_QUEUE_GONE,
 * and what pawl_send() has of a broker that does not answer. A call that was submitted is submitted
 * again to a broker that was restarted, and is done once. */

#define PAWL_ANY UINT64_MAX /* expect: whatever version the key has, none too */

enum pawl_value_kind { PAWL_VALUE_NONE, PAWL_VALUE_BYTES, PAWL_VALUE_NUMBER };

struct pawl_value {
    size_t size;
    uint64_t version; /* 0: no such key */
    uint32_t kind;    /* enum pawl_value_kind */
    uint32_t bytes;   /* of BYTES: all of it, however much was copied */
    int64_t number;   /* of NUMBER: what is available */
    int64_t reserved, posted;
};
#define PAWL_VALUE_INIT                   \
    {                                     \
        .size = sizeof(struct pawl_value) \
    }

/* mode of the options is not read: it is PAWL_TABLE. NULL: all defaults. As pawl_queue_create(). */
PAWL_API PAWL_CHECK int pawl_table_create(struct pawl *lane, const char *table,
                                          const struct pawl_queue_options *options);
PAWL_API PAWL_CHECK int pawl_table_drop(struct pawl *lane, const char *table);

/* Copies up to `bytes` of the value (may be 0 with NULL) and fills *out (may be NULL). A long value
 * is all of one version, however often it is written meanwhile. OK; OK_MISSING: no such key;
 * E_CONFLICT: it changed all the time while its parts were read, and the broker had no memory to
 * keep it for that time. */
PAWL_API PAWL_CHECK int pawl_state_get(struct pawl *lane, const char *table, const void *key,
                                       size_t key_bytes, void *value, size_t bytes,
                                       struct pawl_value *out);
/* Sets the value. expect: the version that the key must have; 0: there must be no such key;
 * PAWL_ANY. OK: *version (may be NULL) is the new one. E_PRECONDITION: *version is the one that it
 * has. E_STATE: reservations of it are open. E_FULL, E_TOO_BIG. */
PAWL_API PAWL_CHECK int pawl_state_put(struct pawl *lane, const char *table, const void *key,
                                       size_t key_bytes, const void *value, size_t bytes,
                                       uint64_t expect, uint64_t *version);
/* The same with a number; what was posted of an older one is forgotten. */
PAWL_API PAWL_CHECK int pawl_state_put_number(struct pawl *lane, const char *table, const void *key,
                                              size_t key_bytes, int64_t number, uint64_t expect,
                                              uint64_t *version);
/* OK; OK_MISSING: there was none; E_PRECONDITION; E_STATE: reservations of it are open. */
PAWL_API PAWL_CHECK int pawl_state_delete(struct pawl *lane, const char *table, const void *key,
                                          size_t key_bytes, uint64_t expect);
/* Adds to a number; a key that is not there is 0. The sum must be min..max (INT64_MIN and
 * INT64_MAX: no bounds) and, once something is reserved or posted of it, not below 0. OK: *now (may
 * be NULL) is the sum. E_PRECONDITION: it would be out of bounds, nothing changed, *now is the
 * number as it is. E_STATE: it is bytes. E_FULL. */
PAWL_API PAWL_CHECK int pawl_state_add(struct pawl *lane, const char *table, const void *key,
                                       size_t key_bytes, int64_t number, int64_t min, int64_t max,
                                       int64_t *now);

struct pawl_state_item {
    size_t size;
    struct pawl_value value; /* what pawl_state_get() tells of it, without the bytes */
    uint32_t key_bytes;
    uint32_t reserved;
    uint8_t key[PAWL_KEY_BYTES_MAX + 1]; /* and a NUL */
};
/* Keys that begin with `prefix` (0 bytes: all) and come after the key `after` (0 bytes: from the
 * first), in order of their bytes. Returns the number written (at most max, at most 1,024; 0: no
 * more) or a negative result. The last key is the cursor of the next call. What is there all the
 * time is seen exactly once, what changes meanwhile in its older or newer state. */
PAWL_API PAWL_CHECK int pawl_state_scan(struct pawl *lane, const char *table, const void *prefix,
                                        size_t prefix_bytes, const void *after, size_t after_bytes,
                                        struct pawl_state_item *out, uint32_t max);

/* --- reservations ---------------------------------------------------------------------------- */

/* A number of a table is a stock that can be reserved from. It is made and refilled by
 * pawl_state_add() (or put_number); what is added is available. Then, each of these in one step:
 *
 *   pawl_reserve   amount: available -> reserved          pawl_void, or the end of its time: back
 *   pawl_post      amount: reserved -> posted; less than all: the rest goes back
 *
 * available >= 0, reserved >= 0, and available + reserved + posted is what was added, always. The
 * id (16 bytes, unique in the table, best random) is the caller's. A reservation that is over is
 * remembered for 24 h (of all tables the last 1,000,000), and a call that comes too late or again
 * is told what became of it. */

enum pawl_reservation_state {
    PAWL_RESERVATION_NONE,
    PAWL_RESERVATION_OPEN,
    PAWL_RESERVATION_POSTED,
    PAWL_RESERVATION_VOIDED,
    PAWL_RESERVATION_EXPIRED
};

/* amount: 1..INT64_MAX. ttl_ns: 0 (no end) to 10 years. OK and OK_DUPLICATE (it is open, with this
 * key and amount): *left (may be NULL) is what is available now. E_RES_SHORT: *left is what there
 * is. E_RES_DIFFERENT_AMOUNT: the id is used with another amount or key. E_RES_ALREADY_POSTED,
 * E_RES_ALREADY_VOIDED, E_RES_EXPIRED: it was, and is over. E_RES_NOT_FOUND: no such key. E_STATE:
 * the key holds bytes. E_FULL, E_QUOTA (1,000,000 open). */
PAWL_API PAWL_CHECK int pawl_reserve(struct pawl *lane, const char *table, const uint8_t id[16],
                                     const void *key, size_t key_bytes, uint64_t amount,
                                     uint64_t ttl_ns, uint64_t *left);
/* amount 0: all of it. OK; E_RES_ALREADY_POSTED (with this amount, or 0 was asked);
 * E_RES_DIFFERENT_AMOUNT (more than is reserved; posted with another one); E_RES_ALREADY_VOIDED;
 * E_RES_EXPIRED; E_RES_NOT_FOUND. */
PAWL_API PAWL_CHECK int pawl_post(struct pawl *lane, const char *table, const uint8_t id[16],
                                  uint64_t amount);
/* OK; E_RES_ALREADY_VOIDED; E_RES_ALREADY_POSTED; E_RES_EXPIRED; E_RES_NOT_FOUND. */
PAWL_API PAWL_CHECK int pawl_void(struct pawl *lane, const char *table, const uint8_t id[16]);

struct pawl_reservation {
    size_t size;
    uint32_t state; /* enum pawl_reservation_state */
    uint32_t key_bytes;
    uint64_t amount, posted;
    uint64_t left_ns; /* OPEN: until it expires, 0 for no end; else until it is forgotten */
    uint8_t key[PAWL_KEY_BYTES_MAX + 1]; /* of an open one, and a NUL */
};
/* OK; E_RES_NOT_FOUND. */
PAWL_API PAWL_CHECK int pawl_reservation_get(struct pawl *lane, const char *table,
                                             const uint8_t id[16], struct pawl_reservation *out);

/* --- idempotent operations ------------------------------------------------------------------- */

/* Work that a repeat must not do again: its result is kept under a key, and every later call with
 * the key is given it, byte for byte. A scope holds keys (1..255 bytes) and is a table:
 * pawl_table_create() makes it, its write right is for begin and complete, its read right for
 * pawl_idem_get(). Of its options count lease_ns (of begin; 10 s), done_retention_ns (24 h unless
 * set, at most 90 days) and max_messages (keys remembered).
 *
 *   begin -> FIRST: do the work, then complete. The key is this process's until the lease is over.
 *         -> IN_PROGRESS: somebody else is at it
 *         -> DONE, FAILED: the result
 *
 * An owner that dies, abandons the key, or whose lease ends, loses it: the next begin is FIRST and
 * is told how many tried before (attempts) and what the last one left with pawl_idem_progress(). It
 * must then find out itself, at the outside system, what was done already. token.grant grows with
 * every owner, over crashes of the broker too: hand it to outside systems as fencing number. */

#define PAWL_IDEM_RESULT_BYTES_MAX 65536u
#define PAWL_IDEM_PROGRESS_BYTES_MAX 1024u
/* complete: it failed for good, and begin answers FAILED from now on */
#define PAWL_IDEM_FINAL_FAIL 1u

enum pawl_idem_state {
    PAWL_IDEM_NONE,
    PAWL_IDEM_FIRST,
    PAWL_IDEM_IN_PROGRESS,
    PAWL_IDEM_ABANDONED,
    PAWL_IDEM_DONE,
    PAWL_IDEM_FAILED
};

/* Works from any lane and session of the same user. */
struct pawl_idem_token {
    uint64_t grant, random;
    uint64_t scope; /* number of the table */
    uint32_t key_bytes;
    uint8_t key[PAWL_KEY_BYTES_MAX + 1];
};

struct pawl_idem {
    size_t size;
    uint32_t state;     /* enum pawl_idem_state */
    int32_t code;       /* DONE, FAILED: as completed */
    uint32_t attempts;  /* owners so far; FIRST: before this one */
    uint32_t owner_pid; /* the newest owner's */
    uint32_t bytes;     /* all of the result (DONE, FAILED) or progress, however much was copied */
    uint32_t reserved;
    uint64_t left_ns;             /* FIRST, IN_PROGRESS: of the lease; else until it is forgotten */
    uint64_t age_ns;              /* how long it is in its state */
    uint64_t lsn;                 /* DONE, FAILED: position of the completion */
    uint64_t param_hash;          /* of the first call */
    struct pawl_idem_token token; /* FIRST */
};
#define PAWL_IDEM_INIT                   \
    {                                    \
        .size = sizeof(struct pawl_idem) \
    }

/* param_hash: of everything that makes two calls the same one (pawl_idem_hash(), or your own);
 * E_IDEM_MISMATCH: the key was begun with another one, which is out->param_hash. lease_ns: 1 ms to
 * 12 h, 0: the scope's; it counts from the publication of the answer. Copies up to `bytes` of the
 * result or progress into `result` (may be NULL with 0). E_QUOTA: the scope has as many keys as it
 * may have. E_FULL. Durable on return, whatever is told. After an unknown outcome (E_DEADLINE,
 * E_BROKER_DOWN) the key may be this process's until the lease ends. */
PAWL_API PAWL_CHECK int pawl_idem_begin(struct pawl *lane, const char *scope, const void *key,
                                        size_t key_bytes, uint64_t param_hash, uint64_t lease_ns,
                                        void *result, size_t bytes, struct pawl_idem *out);
/* The work is done: code and result (up to 64 KiB) are what every later begin is told. flags:
 * PAWL_IDEM_FINAL_FAIL or 0. OK; OK_DUPLICATE: it was completed so before, by this token; E_STATE:
 * completed otherwise by this token; E_LEASE_LOST: the lease is over or another has the key;
 * E_NOT_FOUND: no such key (any more); E_TOO_BIG; E_FULL. */
PAWL_API PAWL_CHECK int pawl_idem_complete(struct pawl *lane, const struct pawl_idem_token *token,
                                           int32_t code, const void *result, size_t bytes,
                                           uint32_t flags);
/* Keeps up to 1,024 bytes for whoever has to go on, and renews the lease: it ends lease_ns from now
 * (0: as at begin). Refused as complete. */
PAWL_API PAWL_CHECK int pawl_idem_progress(struct pawl *lane, const struct pawl_idem_token *token,
                                           const void *progress, size_t bytes, uint64_t lease_ns);
/* Gives the key up: the next begin is FIRST. Refused as complete. */
PAWL_API PAWL_CHECK int pawl_idem_abandon(struct pawl *lane, const struct pawl_idem_token *token);
/* What is known of the key, without beginning anything. OK_MISSING: nothing. */
PAWL_API PAWL_CHECK int pawl_idem_get(struct pawl *lane, const char *scope, const void *key,
                                      size_t key_bytes, void *result, size_t bytes,
                                      struct pawl_idem *out);
/* A hash of 64 bits (XXH3) for param_hash. Pure, the same in every process and version. */
PAWL_API uint64_t pawl_idem_hash(const void *parameters, size_t bytes);

typedef uint64_t pawl_ticket; /* of a submitted call, see below */

/* --- operation ids --------------------------------------------------------------------------- */

/* A number for one operation, made and stored by its caller before the operation is sent, so that
 * its outcome can be asked for later: by another process, after a crash of this one, after a
 * reboot. In the form of a UUID version 7 (RFC 9562): the first 48 bits are the time in
 * milliseconds. */
/* A new one, from the wall clock and random bits. Any thread. */
PAWL_API void pawl_op_id_new(struct pawl_op_id *out);
#define PAWL_OP_ID_TEXT_BYTES 37 /* 8-4-4-4-12 hexadecimal digits and a NUL */
PAWL_API void pawl_op_id_format(const struct pawl_op_id *id, char text[PAWL_OP_ID_TEXT_BYTES]);
PAWL_API PAWL_CHECK int pawl_op_id_parse(const char *text, struct pawl_op_id *out);

/* The next call of this lane that changes something (a single send, a settling, cancel, restore,
 * the queue calls but purge, a write of a table, a reservation, what settles an idempotency token)
 * carries this id, and ends it for the lane, also if it fails before it is submitted: give it again
 * with each try. Batches and submits carry none. The outcome and the effect are one record, kept
 * for 24 hours, of at most 10 million operations and in at most an eighth of the log (--max-log):
 * beyond that the oldest go, and pawl_resolved.horizon_wall_ns says up to where. The same call
 * again, from whatever process, answers OK_DUPLICATE with what the first one was told (id, number,
 * version) and changes nothing; another call under it: E_OPID_MISMATCH. A refusal that is final
 * (E_LEASE_LOST, E_STATE, ...) is an outcome too; one that passes (E_FULL, E_PAUSED, ...) leaves no
 * trace. Such a call waits for the disk on any kind of queue. Dated more than a minute ahead:
 * E_INVALID. Older than what is kept: E_FORGOTTEN. */
PAWL_API PAWL_CHECK int pawl_op_id_next(struct pawl *lane, const struct pawl_op_id *id);

/* The id of the last command of the last call of this lane that changes something: the one that its
 * caller gave, or else the one that the library made, in the form of a UUID version 8. For whoever
 * is told "unknown", to be asked about with pawl_resolve(), by this process or another one of the
 * same user. OK_MISSING: that call submitted nothing. */
PAWL_API PAWL_CHECK int pawl_last_id(const struct pawl *lane, struct pawl_op_id *out);
/* The same of a submitted call. It may be written down before pawl_flush() lets the broker see the
 * call. OK_MISSING: the lane has no such ticket, or its session is a new one since. */
PAWL_API PAWL_CHECK int pawl_ticket_id(struct pawl *lane, pawl_ticket ticket,
                                       struct pawl_op_id *out);

enum pawl_resolved_state {
    /* With FENCE: and never will be; without: so far. The id of a library whose session is over: it
     * did nothing (it never came, or was refused without a trace), and never will. */
    PAWL_RESOLVED_NEVER_SEEN,
    PAWL_RESOLVED_COMMITTED,
    PAWL_RESOLVED_ABORTED,  /* refused for good: result */
    PAWL_RESOLVED_FORGOTTEN /* not newer than the horizon: it may have been done */
};
struct pawl_resolved {
    size_t size;
    uint32_t state; /* enum pawl_resolved_state */
    int32_t result; /* what the operation was answered */
    uint64_t value; /* id of the message sent, number of the queue, first id of a transaction */
    uint64_t lsn;   /* position of its record */
    uint64_t horizon_wall_ns; /* ids up to this time may be forgotten */
    uint64_t decided_wall_ns; /* COMMITTED, ABORTED: when, to the second; 0: its session lives */
};
#define PAWL_RESOLVED_INIT                   \
    {                                        \
        .size = sizeof(struct pawl_resolved) \
    }
#define PAWL_RESOLVE_FENCE \
    1u /* not seen: from now on it is refused, E_OP_FENCED; durable on return */
/* What became of the operation. OK and *out, always of durable state. Any process may ask: who
 * knows the id may know the outcome.
 *
 * An id that the library made (pawl_last_id()): asked by the same user or the broker's, for others
 * it is FORGOTTEN. While its session lives it resolves as long as it or an earlier call of its lane
 * is open; a fence is E_STATE if it was not seen, since only its own process could keep it from
 * coming. For 24 hours (or as many as ids of callers are kept) resolve those whose caller was told
 * "unknown", and all that were open when their session ended, by death, by time, or by a
 * pawl_close() that left them open. All other ids of ended sessions are FORGOTTEN; so are these
 * where the log or the memory was full. */
PAWL_API PAWL_CHECK int pawl_resolve(struct pawl *lane, const struct pawl_op_id *id, uint32_t flags,
                                     struct pawl_resolved *out);

/* --- transactions ---------------------------------------------------------------------------- */

/* Several steps that happen together or not at all, as one record. They are collected in this
 * process; the broker knows nothing before commit, and a transaction that is dropped or whose
 * process dies has done nothing. At most 4,096 steps and 16 MiB; older than 5 s: E_TXN_TIMEOUT. A
 * step that fails here poisons it: every later call and the commit answer E_TXN_POISONED, until a
 * rollback. A transaction belongs to its lane and its thread, one at a time a lane. */
struct pawl_txn;
#define PAWL_TXN_STEPS_MAX 4096u
#define PAWL_TXN_AGE_NS_MAX (5 * PAWL_NS_S)

/* id: of the whole, for pawl_resolve(), or NULL. */
PAWL_API PAWL_CHECK int pawl_txn_begin(struct pawl *lane, const struct pawl_op_id *id,
                                       struct pawl_txn **out);
/* As the calls of the same name. Their refusals come with the commit, but for what can be told
 * here (E_INVALID, E_TOO_BIG, E_NOT_FOUND of a queue's name). *step (may be NULL): its number. */
PAWL_API PAWL_CHECK int pawl_txn_send(struct pawl_txn *txn, const char *queue, const void *body,
                                      size_t bytes, const struct pawl_send_options *options,
                                      uint32_t *step);
PAWL_API PAWL_CHECK int pawl_txn_ack(struct pawl_txn *txn, const struct pawl_token *token,
                                     uint32_t flags);
/* With a result that is kept with the finished message, as pawl_ack_result(). */
PAWL_API PAWL_CHECK int pawl_txn_ack_result(struct pawl_txn *txn, const struct pawl_token *token,
                                            uint32_t flags, const void *result, size_t bytes);
/* The message comes again after the delay, with the progress, as pawl_defer(): together with what
 * this part of the work has made. */
PAWL_API PAWL_CHECK int pawl_txn_defer(struct pawl_txn *txn, const struct pawl_token *token,
                                       uint64_t delay_ns, const struct pawl_defer_options *options);
PAWL_API PAWL_CHECK int pawl_txn_nack(struct pawl_txn *txn, const struct pawl_token *token,
                                      uint64_t delay_ns, const char *reason);
PAWL_API PAWL_CHECK int pawl_txn_cancel(struct pawl_txn *txn, const char *queue, uint64_t id);
/* Steps of tables; each sees what those before it wrote. */
PAWL_API PAWL_CHECK int pawl_txn_put(struct pawl_txn *txn, const char *table, const void *key,
                                     size_t key_bytes, const void *value, size_t bytes,
                                     uint64_t expect);
PAWL_API PAWL_CHECK int pawl_txn_put_number(struct pawl_txn *txn, const char *table,
                                            const void *key, size_t key_bytes, int64_t number,
                                            uint64_t expect);
PAWL_API PAWL_CHECK int pawl_txn_delete(struct pawl_txn *txn, const char *table, const void *key,
                                        size_t key_bytes, uint64_t expect);
PAWL_API PAWL_CHECK int pawl_txn_add(struct pawl_txn *txn, const char *table, const void *key,
                                     size_t key_bytes, int64_t number, int64_t min, int64_t max);
PAWL_API PAWL_CHECK int pawl_txn_reserve(struct pawl_txn *txn, const char *table,
                                         const uint8_t id[16], const void *key, size_t key_bytes,
                                         uint64_t amount, uint64_t ttl_ns);
PAWL_API PAWL_CHECK int pawl_txn_post(struct pawl_txn *txn, const char *table, const uint8_t id[16],
                                      uint64_t amount);
PAWL_API PAWL_CHECK int pawl_txn_void(struct pawl_txn *txn, const char *table,
                                      const uint8_t id[16]);
/* Assertions: one that does not hold refuses the whole, E_PRECONDITION; `found` is the version, or
 * the number, that there is. version 0: no such key. */
PAWL_API PAWL_CHECK int pawl_txn_assert_version(struct pawl_txn *txn, const char *table,
                                                const void *key, size_t key_bytes,
                                                uint64_t version);
PAWL_API PAWL_CHECK int pawl_txn_assert_exists(struct pawl_txn *txn, const char *table,
                                               const void *key, size_t key_bytes);
PAWL_API PAWL_CHECK int pawl_txn_assert_absent(struct pawl_txn *txn, const char *table,
                                               const void *key, size_t key_bytes);
PAWL_API PAWL_CHECK int pawl_txn_assert_ge(struct pawl_txn *txn, const char *table, const void *key,
                                           size_t key_bytes, int64_t number);
/* As pawl_state_get(), now, of what is committed: what this transaction wrote is not in it. If the
 * key has another version when it commits, that answers E_CONFLICT. Counts as a step. */
PAWL_API PAWL_CHECK int pawl_txn_get(struct pawl_txn *txn, const char *table, const void *key,
                                     size_t key_bytes, void *value, size_t bytes,
                                     struct pawl_value *out);

/* pawl_idem_complete() as a step: with the acknowledgement, the sends and the state of the work. */
PAWL_API PAWL_CHECK int pawl_txn_idem_complete(struct pawl_txn *txn,
                                               const struct pawl_idem_token *token, int32_t code,
                                               const void *result, size_t bytes, uint32_t flags);

struct pawl_committed {
    size_t size;
    uint64_t lsn;
    uint64_t first_id;    /* of the messages sent; 0: none */
    uint32_t sends;       /* the n-th send (from 0) has first_id + n, but for repeated keys */
    uint32_t failed_step; /* of a refusal: which step, from 1; 0: none in particular */
    uint64_t found;       /* of a refusal: what the step met, as its own call would tell */
};
#define PAWL_COMMITTED_INIT                   \
    {                                         \
        .size = sizeof(struct pawl_committed) \
    }
/* All or none. OK: on disk if any part is durable. OK_DUPLICATE: this id was committed before. A
 * refused step: its code, and nothing was done; a repeat under the id is told the same, *out too;
 * E_CONFLICT: something read has changed, do it again under a new id. The transaction is over after
 * any answer but E_TXN_POISONED and is freed. *out may be NULL. */
PAWL_API PAWL_CHECK int pawl_txn_commit(struct pawl_txn *txn, struct pawl_committed *out);
/* Nothing of it happens; frees it. NULL is allowed. */
PAWL_API void pawl_txn_rollback(struct pawl_txn *txn);

/* fn fills the transaction and returns OK, or anything else to give it up (which is then the
 * answer). It is called again only after a definite E_CONFLICT, under a new id, at most `tries`
 * times (0: 16). After an unknown outcome the operation is resolved by its id, fn is never called
 * again. Inside fn, other calls on the lane are E_MISUSE. */
typedef int (*pawl_txn_fn)(struct pawl_txn *txn, void *ctx);
PAWL_API PAWL_CHECK int pawl_txn_run(struct pawl *lane, pawl_txn_fn fn, void *ctx, uint32_t tries,
                                     struct pawl_committed *out);

/* --- asynchronous ---------------------------------------------------------------------------- */

/* A submitted call; its number is unique in the lane. At most `window` may be open: one more waits
 * for room inside submit. Nothing is visible to the broker before pawl_flush(), pawl_wait(),
 * pawl_poll() or any plain call, so that many can share one publish. */
struct pawl_answer {
    pawl_ticket ticket;
    int32_t result;
    uint32_t state; /* of a send: enum pawl_state of the first one of its key, see pawl_sent */
    uint64_t value; /* message id of a send */
    uint64_t lsn;
};
PAWL_API PAWL_CHECK int pawl_submit_send(struct pawl *lane, const char *queue, const void *body,
                                         size_t bytes, const struct pawl_send_options *options,
                                         pawl_ticket *ticket);
PAWL_API PAWL_CHECK int pawl_submit_ack(struct pawl *lane, const struct pawl_token *token,
                                        uint32_t flags, pawl_ticket *ticket);
PAWL_API PAWL_CHECK int pawl_flush(struct pawl *lane);
/* Waits for one. E_DEADLINE after timeout_ns: the call stays open and may be waited for again. */
PAWL_API PAWL_CHECK int pawl_wait(struct pawl *lane, pawl_ticket ticket, uint64_t timeout_ns,
                                  struct pawl_answer *out);
/* Takes up to max answers that are there, waiting up to timeout_ns for at least `least` of them.
 * Returns their number, or a negative result. */
PAWL_API PAWL_CHECK int pawl_poll(struct pawl *lane, struct pawl_answer *out, uint32_t max,
                                  uint32_t least, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
