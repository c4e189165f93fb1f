/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_PEER_H
#define PAWL_TESTS_PEER_H

/* A broker made of the abi headers alone, in a thread of the test: small, obedient and, where a
 * test says so, hostile. It answers the handshake, keeps queues, leases and lane windows in a
 * `peer_log` that survives its death, and lets a test take any command into its own hands. It keeps
 * no disk, no limits, no timers but the lease's end at the next look, and serves eight lanes. What
 * it does is what FORMAT.md and semantics.md 1-3 say of a broker seen from a lane, so that the
 * library is tested without the real one, and against one that lies.
 *
 * It sleeps as a broker does: the bell is announced, the tail looked at again, then it waits on the
 * eventfd. If it finds commands after a wait of two seconds, a bell was lost: `missed_bells`. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/attach.h"
#include "abi/command.h"
#include "abi/region.h"
#include "abi/ring.h"
#include "abi/wake.h"

#define PEER_LANES 8u
#define PEER_WINDOW 4096u
#define PEER_QUEUES 4u
#define PEER_MESSAGES 16384u
#define PEER_CONNECTIONS 8u

struct peer_answer {
    uint64_t seq, value, lsn;
    int32_t result;
    uint16_t type;
};

struct peer_message {
    uint64_t id, queue, grant, deadline;
    uint8_t *body; /* key, ordering key, headers, body: as they came */
    uint32_t variable_bytes, body_bytes, acquired;
    uint16_t headers_bytes;
    uint8_t key_bytes, ordering_key_bytes, priority, state; /* enum pawl_state */
    uint8_t lane, lease_kind;
    uint64_t seq; /* of the RECEIVE or SUBSCRIBE that got it */
};

/* What survives. Touch it only while no peer runs on it, or from a hook. */
struct peer_log {
    uint64_t session, epoch, broker_epoch;
    uint8_t secret[16];
    bool session_known;
    struct peer_window {
        bool used; /* the number is a lane's, attached or to come back */
        struct peer_answer answers[PEER_WINDOW]; /* by seq */
    } windows[PEER_LANES];
    char queues[PEER_QUEUES][PAWL_NAME_BYTES_MAX + 1];
    uint64_t queue_ids[PEER_QUEUES];
    struct peer_message messages[PEER_MESSAGES];
    uint32_t message_count;
    uint64_t next_queue, grants, lsn;
    uint64_t applied, resubmitted, repeated; /* commands: decided, marked RESUBMIT, known already */
};

struct peer_lane {
    bool open;
    uint32_t number, window;
    int connection, bell, watch;
    struct pawl_region sub, comp;
    struct pawl_ring_consumer in;
    struct pawl_ring_producer out;
    uint64_t events;
    uint32_t served, announcements;
    bool keep_head; /* a hook has written sub_head and wants it to stay */
    struct peer_standing {
        uint64_t seq, queue, lease_ns, until; /* until: boot clock; RECEIVE */
        uint32_t max, held;                   /* SUBSCRIBE: credit; RECEIVE: most */
        uint8_t kind, flags;
        bool used, receive;
    } standing[8];
};

struct peer;
/* Called before a command is decided. True: it was dealt with (or shall be forgotten). */
typedef bool (*peer_hook)(struct peer *peer, struct peer_lane *lane, const struct pawl_cmd *command,
                          void *ctx);

struct peer_options {
    peer_hook hook;
    void *ctx;
    /* The n-th command from now (0: none): the peer dies at once, before or after it decided it. */
    uint64_t die_at;
    bool die_decided;
    bool no_wake;        /* never wakes a client: for the back-stop */
    bool unsealed;       /* lanes without their seals */
    int32_t lane_result; /* answer to LANE instead of OK */
    uint32_t version;    /* 0: the right one */
    bool silent;         /* accepts and says nothing */
    bool young;          /* says that it can have ended no session */
    uint8_t log_id;      /* of the log that it claims to have */
};

struct peer {
    struct peer_log *log;
    struct peer_options o;
    char path[108];
    int listener, stop;
    int connections[PEER_CONNECTIONS];
    uint32_t connection_count;
    struct peer_lane lanes[PEER_LANES];
    pthread_t thread;
    bool dead, retired, joined;
    uint64_t commands, missed_bells, wakes;
    const char *failure; /* what the client did wrong; a literal */
};

/* Makes a directory for the socket; the text lives as long as the program. */
const char *peer_dir(void);
struct peer_log *peer_log_create(void);
void peer_log_destroy(struct peer_log *log);
/* Listens at DIR/pawl.sock. Never fails: it ends the program. */
struct peer *peer_start(const char *dir, struct peer_log *log, const struct peer_options *options);
/* SIGKILL, so far as the client can tell: sockets close, nothing is said. Returns what it had found
 * wrong, NULL for nothing. */
const char *peer_kill(struct peer *peer);
/* Waits for its end. True: it died of itself (die_at, a hook); false: peer_retire(). Either way it
 * is still to be given to peer_kill(). */
bool peer_wait(struct peer *peer);
/* Tells whatever peer listens there that it was the last one. */
void peer_retire(const char *dir);

/* --- for hooks (in the peer's thread) -------------------------------------------------------- */

void peer_answer(struct peer *peer, struct peer_lane *lane, uint64_t seq, int32_t result,
                 uint64_t value, uint64_t lsn);
/* An answer for `count` commands. */
void peer_answer_run(struct peer *peer, struct peer_lane *lane, uint64_t seq, uint32_t count,
                     int32_t result, uint64_t value);
void peer_data(struct peer *peer, struct peer_lane *lane, uint64_t seq, int32_t result,
               uint64_t value, const void *data, uint32_t bytes);
/* Any bytes as a record. */
void peer_raw(struct peer *peer, struct peer_lane *lane, const void *record, uint32_t bytes);
void peer_publish(struct peer *peer, struct peer_lane *lane);
/* Leases the next ready message of the queue to the lane and delivers it. False: none ready. */
bool peer_deliver(struct peer *peer, struct peer_lane *lane, uint64_t seq, uint64_t queue,
                  uint64_t lease_ns);
void peer_close_lane(struct peer *peer, struct peer_lane *lane, int32_t reason);

#endif
