/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_MESSAGE_H
#define PAWL_CORE_MESSAGE_H

/* One message as the core keeps it: 96 bytes, and 4 of the table, whatever its state.
 *
 * links: in READY the list or heap of its (queue, priority) (core/ready.h); in SCHEDULED, LEASED
 * and DEAD a list of its queue by state; as a tombstone the queue's row of the done, oldest first.
 * home: the list of the log segment that holds the oldest record it still needs (copy-forward). */

#include <stdint.h>

struct pawl_core_message {
    uint64_t id;    /* 0 */
    uint64_t place; /* READY, LEASED: order in the queue; SCHEDULED: when it is due (pawl time) */
    uint64_t grant; /* number of the newest grant; 0: never delivered */
    uint64_t sent_wall;                  /* ns; tombstone: pawl time at which it may be forgotten */
    uint32_t chain;                      /* of the id table */
    uint32_t next, prev, child;          /* links */
    uint32_t home_next, home_prev, home; /* home: segment number (low 32 bits) */
    uint32_t queue;                      /* pool number */
    uint32_t lease;   /* LEASED: pool number; DEAD: payload block of the reason */
    uint32_t timer;   /* of the delay, or of the TTL; 0: none */
    uint32_t payload; /* block: key, ordering key, headers, body */
    uint32_t body_bytes;
    uint16_t headers_bytes;
    uint8_t key_bytes, ordering_key_bytes;
    uint8_t state; /* enum pawl_state */
    uint8_t priority;
    uint8_t flags; /* PAWL_MESSAGE_... */
    uint8_t dead_reason;
    uint16_t acquired, expired, nacked; /* counters stop at their largest value */
    uint8_t crashed, deferred;
};
#define PAWL_MESSAGE_PINNED 1u   /* a delivery that is not yet published needs the payload */
#define PAWL_MESSAGE_RETURNED 2u /* in the heap of ready.h, not in the list */

_Static_assert(sizeof(struct pawl_core_message) == 96, "two and a half lines for the index");

#endif
