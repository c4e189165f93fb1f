/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_MESSAGE_H
#define PAWL_CORE_MESSAGE_H

/* One message as the core keeps it: 96 bytes, and 4 of the table, whatever its state.
 *
 * next, prev, child: in READY the list or heap of its (queue, priority) (core/ready.h); in
 * SCHEDULED, LEASED and DEAD a list of its queue by state; as a tombstone the queue's row of the
 * done, oldest first. home: the list of the log segment that holds the oldest record it still needs
 * (copy-forward).
 *
 * lease: the newest lease. In LEASED it is current; afterwards it is kept until the next grant or
 * the end, so that a late token can be judged and may still ack a message nobody has had since. It
 * also holds the due time of a message that was given back with a delay.
 *
 * A message of an ordering key finds the entry of it by a hash, and needs no word for that
 * (order.c).
 *
 * payload: a block of [u64 pawl time of the TTL, if PAWL_MESSAGE_TTL] [u64 ledger entry of its key,
 * if it has one] key, ordering key, headers, body.
 *
 * A terminal message is a tombstone: payload and lease are given back and some words change their
 * meaning: sent_wall = pawl time at which it may be forgotten, lease = pid that acknowledged it,
 * timer = uid of the last holder, place = wall time of its end (0: not known), child = payload
 * block of [u32 bytes] the result it was acknowledged with (0: none). With PAWL_MESSAGE_BY the
 * words of the payload that is gone name the operation that ended it: payload and the lower 24 bits
 * of body_bytes its session, the upper 8 its lane, headers_bytes to ordering_key_bytes and the
 * upper 10 bits of lease its seq. */

#include <stdint.h>

struct pawl_home {
    uint32_t next, prev;
    uint32_t segment; /* low 32 bits of its number + 1; 0: none */
};

#define PAWL_MESSAGES_SHIFT 12u /* entries a chunk of their pool, as power of two */

struct pawl_core_message {
    uint64_t id;        /* 0 */
    uint64_t place;     /* order in the queue, kept for ever; SCHEDULED first time: when due */
    uint64_t grant;     /* number of the newest grant; 0: never delivered */
    uint64_t sent_wall; /* ns */
    uint32_t chain;     /* of the id table */
    uint32_t next, prev, child; /* links */
    struct pawl_home home;
    uint32_t queue; /* pool number */
    uint32_t lease; /* pool number */
    uint32_t timer; /* of the lease, delay or TTL: whichever its state lets come next; 0: none */
    uint32_t payload;
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
#define PAWL_MESSAGE_TTL 1u      /* the payload block begins with the end of its time to live */
#define PAWL_MESSAGE_RETURNED 2u /* in the heap of ready.h, not in the list */
#define PAWL_MESSAGE_ORDERED 8u  /* alive and in order with others: order.c */
#define PAWL_MESSAGE_BY 8u       /* a tombstone: the operation that ended it is known */
#define PAWL_MESSAGE_CHOSEN 4u   /* taken out of READY for a grant that is being decided */
/* Upper four bits: how many deliveries that are not yet published need payload and entry. */
#define PAWL_MESSAGE_PIN 16u
#define PAWL_MESSAGE_PINS 240u

_Static_assert(sizeof(struct pawl_core_message) == 96, "two and a half lines for the index");

#endif
