/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CLIENT_DIRECT_H
#define PAWL_CLIENT_DIRECT_H

/* Direct queues in the library: the memory that the process has of them, and the uses that its
 * lanes make of it. A message goes through abi/direct.h alone; the broker is asked at the first use
 * of a queue by a lane, and told at the last.
 *
 *   memory  one a queue and process, shared by all its lanes of all its sessions: mapping,
 *           descriptor, identity. Closed by its last use, descriptor last: to close any descriptor
 *           of a file drops all record locks that the process has on it, which are the life bytes.
 *   use     one a queue and lane of the program: a lane of the queue, with its number and its lock.
 *
 * A thread of the process, the guard, looks at the sockets of the sessions that have uses, and
 * where one has ended attaches the session again and gives the queue back to the new broker:
 * whatever the program does meanwhile. It has all signals blocked, holds no lock of a lane, and
 * ends with the last use.
 *
 * Locks: the registry's, then a session's. The registry's is never taken on the way of a message.
 * In a forked child the registry is another one, empty: what the parent had is not its own. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/direct.h"
#include "client/lane.h"

struct pawl_session;
struct pawl_use;
struct pawl_use_watch;

struct pawl_memory {
    struct pawl_memory *next;
    uint8_t log_id[16]; /* of the broker: queue numbers are its */
    uint64_t queue; /* 0: an older incarnation. Lanes read it without the registry's lock: atomic */
    uint64_t incarnation;
    uint64_t tag; /* names it in tokens: 52 bits */
    int fd, spare_fds[8];
    uint32_t spare_count;
    void *map;
    uint64_t bytes;
    uint32_t uses;
    struct pawl_direct view;
    uint64_t lease_ns, hold_ns, retry_ns;
};

struct pawl_use {
    struct pawl_use *next;    /* of the lane */
    struct pawl_use *by_list; /* of the registry: what the guard sees */
    struct pawl_memory *memory;
    struct pawl_session *session;
    uint32_t number;     /* in the queue */
    uint32_t rights;     /* asked for: receive 4, send 2 */
    uint32_t attachment; /* of the session, when the broker last knew of it; registry's lock */
    uint32_t over;       /* E_QUEUE_GONE and the like: this use has no queue any more; atomic */
    char name[PAWL_NAME_BYTES_MAX + 1]; /* of the queue, while places are open */
    uint32_t places;                    /* of the open reservation, not yet published or given up */
    bool full;                          /* the last send found no room */
    bool in_place;                      /* something was received in place */
    uint8_t *bodies;                    /* of the last receive */
    uint64_t bodies_bytes;
    struct pawl_use_watch *watch; /* for pawl_fd(): direct_fd.c */
    struct pawl_direct_lane lane;
};

#define PAWL_USE_RECEIVE 4u
#define PAWL_USE_SEND 2u

/* The lane's use of the queue, with these rights, made if there is none. OK; E_PERM, E_QUEUE_GONE,
 * E_FULL, E_QUOTA, E_RESOURCE, E_BROKER_DOWN; E_PAUSED: its memory is with others who have not come
 * back. The text says why. */
int pawl_use_get(struct pawl *lane, struct pawl_queue_ref *q, uint32_t rights, uint64_t until,
                 struct pawl_use **out);
/* The same of the memory that a token names, of whatever lane of the process. E_NOT_FOUND: the
 * process has none such. */
int pawl_use_of_token(struct pawl *lane, const struct pawl_token *token, uint64_t until,
                      struct pawl_use **out);
/* The lane's uses end: clean, or in a child of a fork, where they are nobody's. */
void pawl_uses_end(struct pawl *lane, bool forked);
/* Its queue is gone. It is found no more, and ends at once or at a later sweep: the program may
 * still read what it received by it. */
void pawl_use_over(struct pawl *lane, struct pawl_use *use);
/* Ends the uses that are over, but for those that were read in place, which end with the lane: how
 * long the program looks there is not known. received: of what was received, the bodies need not
 * stay any longer. */
void pawl_uses_sweep_over(struct pawl *lane, bool received);
static inline void pawl_uses_sweep(struct pawl *lane, bool received)
{
    if (PAWL_UNLIKELY(lane->uses_over))
        pawl_uses_sweep_over(lane, received);
}

/* False: the queue was dropped, or this use has no part in it any more. One load of a line that is
 * written once a sweep. */
static inline bool pawl_use_served(const struct pawl_use *use)
{
#ifdef PAWL_BUG_DIRECT_SERVED_UNASKED
    return pawl_load_rlx_u32(&use->over) == 0;
#endif
    return pawl_load_rlx_u32(&use->over) == 0 &&
           pawl_load_acq_u32(&use->lane.q.shm->state) != PAWL_DIRECT_CLOSED;
}

static inline bool pawl_token_is_direct(const struct pawl_token *token)
{
    return (token->message & PAWL_DIRECT_ID) != 0;
}
static inline uint64_t pawl_token_tag(const struct pawl_token *token)
{
    return token->random & ((UINT64_C(1) << 52) - 1);
}

/* direct_fd.c, for a lane with pawl_fd(). clear: before a look. arm: the look found nothing, after
 * the gate of readers was prepared and gave `kept`: the descriptor fires when something comes, or
 * the queue is over. OK, E_RESOURCE. */
void pawl_use_watch_clear(struct pawl_use *use);
int pawl_use_watch_arm(struct pawl *lane, struct pawl_use *use, uint32_t kept);
void pawl_use_watch_stop(struct pawl_use *use);

/* direct_call.c: the calls of pawl.h, inside enter and leave. */
int pawl_direct_call_send(struct pawl *lane, struct pawl_queue_ref *q,
                          const struct pawl_send_plan *plan, const void *body,
                          struct pawl_sent *out);
/* The same without options. */
int pawl_direct_call_send_plain(struct pawl *lane, struct pawl_queue_ref *q, const void *body,
                                size_t bytes, struct pawl_sent *out);
/* Requires items whose plan is right. */
int pawl_direct_call_send_batch(struct pawl *lane, struct pawl_queue_ref *q,
                                const struct pawl_item *items, uint32_t n, struct pawl_sent *out);
/* Returns how many, 0 for none in time, or a negative result. */
int pawl_direct_call_receive(struct pawl *lane, struct pawl_queue_ref *q,
                             const struct pawl_receive_options *o, struct pawl_message *out,
                             uint32_t max);
int pawl_direct_call_ack(struct pawl *lane, const struct pawl_token *token);
int pawl_direct_call_settle(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                            uint64_t time_ns, uint32_t flags, size_t text_bytes);

#endif
