/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_LAYOUT_H
#define PAWL_ABI_LAYOUT_H

/* The two shared regions of a lane. FORMAT.md draws them with the rules of validity.
 *
 *   submission region (client writes)            completion region (broker writes)
 *   0     struct pawl_sub_shm   4 KiB            0     struct pawl_comp_shm   4 KiB
 *   4096  data, power of two                     4096  data, power of two
 *
 * Both are memfds made by the broker, allocated whole (M1) and sealed against resizing (M3); the
 * completion region also against any new writable mapping (F_SEAL_FUTURE_WRITE, M5), after the
 * broker has its own. The client verifies the seals. Each side maps the data area twice in a row,
 * so a record is always contiguous and no wrap case exists.
 *
 * Positions are 64-bit byte counts that only grow; they are masked at use alone. The reader of a
 * position treats `tail - head > size` as a breach of the protocol, never as a number to work with.
 */

#include <stddef.h>
#include <stdint.h>

#include "abi/atomic.h"

#define PAWL_ABI_MAGIC 0x314c574150ull /* "PAWL1" */
#define PAWL_ABI_VERSION 1u
#define PAWL_REGION_HEADER_BYTES 4096u
#define PAWL_RING_BYTES_MIN 65536u
#define PAWL_RING_BYTES_MAX 67108864u
#define PAWL_RING_BYTES_DEFAULT 262144u
#define PAWL_WINDOW_MIN 64u
#define PAWL_WINDOW_MAX 65536u
#define PAWL_WINDOW_DEFAULT 1024u
#define PAWL_LANES_MAX 256u /* a session */

struct pawl_sub_shm {
    /* client: end of what it has published in the submission ring. 0: nothing. Never lowered. */
    uint64_t tail;
    uint8_t pad0[PAWL_LINE - 8];
    /* client: all of the completion ring below this position may be reused. Never lowered. */
    uint64_t comp_head;
    /* client: deliveries below this position were handed to the program; at least comp_head. The
     * broker reads it at the death of the client alone, to tell what crashed it from what was
     * merely prefetched. */
    uint64_t taken;
    uint8_t pad1[PAWL_LINE - 16];
    /* client: the announced wait (abi/wake.h). waiting: 0 nobody waits; else bits 0-1 the kind, the
     * rest a number that differs from wait to wait. wait_for: count of events it waits for. */
    uint64_t wait_for;
    uint32_t waiting;
    uint8_t pad2[PAWL_LINE - 12];
};

#define PAWL_WAIT_KIND_MASK 3u
#define PAWL_WAIT_FUTEX 1u
#define PAWL_WAIT_FD 2u

struct pawl_comp_shm {
    /* constants, complete before the descriptor is sent (M21) */
    uint64_t magic;
    uint32_t version;
    uint32_t lane;
    uint64_t fingerprint;
    uint64_t session;
    uint64_t session_epoch;
    uint64_t broker_epoch;
    uint32_t sub_bytes, comp_bytes; /* of the data areas */
    uint32_t window;
    uint32_t reserved;
    uint8_t pad0[2 * PAWL_LINE - 64];
    /* broker: end of what it has published in the completion ring, and how many events (answers and
     * deliveries; a run counts each) that makes in all. events is stored before tail. */
    uint64_t tail;
    uint64_t events;
    uint8_t pad1[PAWL_LINE - 16];
    /* broker: all of the submission ring below this position has been read. */
    uint64_t sub_head;
    uint8_t pad2[PAWL_LINE - 8];
    /* broker: when to ring (abi/wake.h). 0: never. bit 0: after a publish; bit 1: after freeing
     * completion room; the rest a number that differs from announcement to announcement. */
    uint32_t bell;
    uint8_t pad3[PAWL_LINE - 4];
    /* broker: the futex word of the client; one more for each wake-up. */
    uint32_t wake;
    uint8_t pad4[PAWL_LINE - 4];
    /* broker: position of the log that is on disk; and whether this broker still serves the lane.
     */
    uint64_t durable_lsn;
    uint32_t state; /* enum pawl_lane_state */
    int32_t reason; /* with PAWL_LANE_CLOSED: a PAWL_E_ code */
    uint8_t pad5[PAWL_LINE - 16];
};

#define PAWL_BELL_SUBMIT 1u
#define PAWL_BELL_ROOM 2u
#define PAWL_BELL_STEP 4u

enum pawl_lane_state { PAWL_LANE_OPEN = 1, PAWL_LANE_STOPPING = 2, PAWL_LANE_CLOSED = 3 };

_Static_assert(offsetof(struct pawl_sub_shm, comp_head) == 128, "layout");
_Static_assert(offsetof(struct pawl_sub_shm, wait_for) == 256, "layout");
_Static_assert(offsetof(struct pawl_sub_shm, waiting) == 264, "layout");
_Static_assert(sizeof(struct pawl_sub_shm) == 384, "layout");
_Static_assert(offsetof(struct pawl_comp_shm, tail) == 256, "layout");
_Static_assert(offsetof(struct pawl_comp_shm, events) == 264, "layout");
_Static_assert(offsetof(struct pawl_comp_shm, sub_head) == 384, "layout");
_Static_assert(offsetof(struct pawl_comp_shm, bell) == 512, "layout");
_Static_assert(offsetof(struct pawl_comp_shm, wake) == 640, "layout");
_Static_assert(offsetof(struct pawl_comp_shm, durable_lsn) == 768, "layout");
_Static_assert(sizeof(struct pawl_comp_shm) == 896, "layout");
_Static_assert(sizeof(struct pawl_comp_shm) <= PAWL_REGION_HEADER_BYTES, "layout");

/* A number over all offsets and sizes both sides must share; exchanged at attach (M20, B-P08).
 * Defined in abi/layout.c. */
uint64_t pawl_layout_fingerprint(void);

#endif
