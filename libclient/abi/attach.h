/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_ATTACH_H
#define PAWL_ABI_ATTACH_H

/* What passes over the socket (AF_UNIX, SOCK_SEQPACKET, one packet a message). The socket carries
 * the attach, the lanes' descriptors and, by its end, the end of the session; never an operation.
 *
 *   client                               broker
 *   HELLO  (new, or session + secret) →
 *                                      ← WELCOME (result; session, secret, epoch; clock)
 *   LANE   (new, or number to resume) →
 *                                      ← LANE_OK (result; number) + 3 descriptors:
 *                                        submission memfd, completion memfd, bell eventfd
 *   WATCH  (lane)                     →
 *                                      ← WATCH_OK (result) + 1 descriptor: a socket that gets a
 * byte when the lane has news and waits with PAWL_WAIT_FD
 *   CLOSE  (lane; no answer)          →
 *   DIRECT (queue, rights; memory and lane that it has already) →
 *                                      ← DIRECT_OK (result; lane, incarnation) + 1 descriptor if
 *                                        it has not that memory: the memfd of the queue
 *   LOCKED (queue, lane: its life byte is locked) →
 *                                      ← DIRECT_OK: the lane is LIVE and may be used
 *   DETACH (queue, lane; no answer)   →
 *   BYE    (clean end of the session) → closes
 *
 * The broker takes no descriptor from a client but one: the memory of a direct queue that its
 * predecessor made and that it waits for (DIRECT with PAWL_DIRECT_GIVEN, asked for by
 * PAWL_DIRECT_GIVE). Why a socket and not an eventfd for WATCH: its file
 * description is shared with the client, who could clear O_NONBLOCK and fill the counter, and the
 * broker's write would block for ever; MSG_DONTWAIT belongs to the call and not to the description.
 * The bell is the other way round: the broker polls it edge-triggered and never reads it.
 *
 * A message of another size, magic or version is answered with WELCOME and the result E_ABI, text
 * naming both versions, then closed. A handshake has 2 s. */

#include <stdint.h>

enum pawl_attach_type {
    PAWL_ATTACH_HELLO = 1,
    PAWL_ATTACH_WELCOME = 2,
    PAWL_ATTACH_LANE = 3,
    PAWL_ATTACH_LANE_OK = 4,
    PAWL_ATTACH_WATCH = 5,
    PAWL_ATTACH_WATCH_OK = 6,
    PAWL_ATTACH_BYE = 7,
    PAWL_ATTACH_CLOSE = 8, /* struct pawl_attach_watch: this lane alone, its number is free */
    PAWL_ATTACH_DIRECT = 9,
    PAWL_ATTACH_DIRECT_OK = 10,
    PAWL_ATTACH_LOCKED = 11, /* struct pawl_attach_direct */
    PAWL_ATTACH_DETACH = 12, /* struct pawl_attach_direct: out of all calls, the lock is off */
};

#define PAWL_ATTACH_LABEL_BYTES 64
#define PAWL_ATTACH_TEXT_BYTES 256

struct pawl_attach_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t type;
    uint64_t fingerprint;
    uint64_t session; /* 0: new */
    uint64_t epoch;   /* the one held, when resuming */
    uint8_t secret[16];
    uint32_t flags;
    uint32_t reserved;
    char label[PAWL_ATTACH_LABEL_BYTES];
};

/* No session that this broker found in its log can have ended yet: its session_grace is not over.
 * So a session of the broker just before, unknown here, has never had a record in this log, and
 * nothing of it was applied: its client may submit everything again under a new one. */
#define PAWL_WELCOME_YOUNG 1u

struct pawl_attach_welcome {
    uint64_t magic;
    uint32_t version;
    uint32_t type;
    uint64_t fingerprint;
    int32_t result;
    uint32_t pid; /* of the broker, for display */
    uint64_t session, epoch;
    uint8_t secret[16];
    uint64_t broker_epoch;
    uint64_t clock; /* broker's boot clock at this moment: the client keeps the difference (C6) */
    uint8_t log_id[16];
    uint32_t resumed; /* 1: the session was known */
    uint32_t flags;   /* PAWL_WELCOME_... */
    char broker_version[32];
    char io[16];
    char text[PAWL_ATTACH_TEXT_BYTES]; /* for a refusal: what and what to do */
};

#define PAWL_LANE_NEW 0xffffffffu

/* lane: a number to resume after a re-attach, or to replace by one with larger rings (the lane must
 * be idle but for open commands, which are submitted again). The grants are the highest that the
 * client has read from the lane's completion ring, of durable and of relaxed queues: leases of this
 * lane with a higher one are delivered again. */
struct pawl_attach_lane {
    uint32_t type;
    uint32_t lane;
    uint32_t sub_bytes, comp_bytes, window;
    uint32_t reserved;
    uint64_t grant_durable, grant_relaxed;
    uint64_t open_seq; /* oldest seq still open; next_seq if none */
    uint64_t next_seq; /* the next new one; 1 for a new lane */
};

struct pawl_attach_lane_ok {
    uint32_t type;
    int32_t result;
    uint32_t lane;
    uint32_t sub_bytes, comp_bytes, window;
    uint64_t needed, available; /* for E_RESOURCE and E_QUOTA */
    char text[PAWL_ATTACH_TEXT_BYTES];
};

struct pawl_attach_watch {
    uint32_t type;
    uint32_t lane;
};
struct pawl_attach_watch_ok {
    uint32_t type;
    int32_t result;
    uint32_t lane;
    uint32_t reserved;
};
struct pawl_attach_bye {
    uint32_t type;
    uint32_t flags; /* PAWL_BYE_... */
};
#define PAWL_BYE_LEFT 1u /* calls are open whose outcome the program never had */

#define PAWL_DIRECT_GIVEN 1u /* flags of DIRECT: the memory comes with this packet */
#define PAWL_DIRECT_GIVE 1u  /* flags of DIRECT_OK: ask again, and give the memory */
#define PAWL_DIRECT_LATER 2u /* ask again in a moment */

/* incarnation: of the memory of this queue that the process has mapped; 0: none. lane: the one that
 * it has in that memory, its life byte locked, and takes to this session; 0: a new one. */
struct pawl_attach_direct {
    uint32_t type;
    uint32_t flags;
    uint64_t queue, incarnation;
    uint32_t lane;
    uint32_t rights; /* receive 4, send 2: what it is going to do */
};

/* What the client must find in the memory, beside what it needs to work with it. */
struct pawl_attach_direct_ok {
    uint32_t type;
    int32_t result;
    uint64_t queue, incarnation;
    uint32_t lane;
    uint32_t flags;
    uint64_t bytes; /* of the memory */
    uint64_t lease_ns, hold_ns, retry_ns;
    uint32_t slots, body_bytes, attempts, reserved;
    char text[PAWL_ATTACH_TEXT_BYTES];
};

_Static_assert(sizeof(struct pawl_attach_hello) == 128, "layout");
_Static_assert(sizeof(struct pawl_attach_welcome) == 408, "layout");
_Static_assert(sizeof(struct pawl_attach_lane) == 56, "layout");
_Static_assert(sizeof(struct pawl_attach_lane_ok) == 296, "layout");
_Static_assert(sizeof(struct pawl_attach_direct) == 32, "layout");
_Static_assert(sizeof(struct pawl_attach_direct_ok) == 336, "layout");

#endif
