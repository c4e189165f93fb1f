/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_WAKE_H
#define PAWL_ABI_WAKE_H

/* Sleeping and waking on a lane, both ways. The one place with the store-then-load shape: all four
 * accesses are seq_cst, since with anything weaker each side may miss the other's store (the SB
 * litmus test) and a sleeper stays with data in its ring.
 *
 *    sleeper                                   waker
 *    S1 announce (store waiting / bell)        W1 publish (store tail)
 *    S2 look once more (load tail)             W2 read the announcement
 *    S3 sleep                                  W3 wake
 * In the single order of seq_cst either S1 < W2: the waker sees the announcement; or W2 < S1, hence
 * W1 < S2: the sleeper sees the data.
 *
 * Client waits for broker. S1 stores wait_for, then waiting = number|kind. S3 is FUTEX_WAIT
 * (shared) on comp->wake with the value read before S1, or poll on the lane's descriptor. W2 is one
 * load a lane and turn, after the turn's last store; the wake goes out only if events >= wait_for,
 * and never twice for one value of `waiting`. After waking the client stores waiting = 0.
 *
 * Broker waits for client. S1 stores bell = number|bits for a lane that leaves the active set, S2
 * looks at its tail (and room) again. W2: the client loads bell after each publish (bit SUBMIT) or
 * release (bit ROOM) and writes the lane's eventfd, never twice for one value of `bell`.
 *
 * A wake is a hint (N4): every wait has a back-stop and looks at its predicate again. A hostile
 * announcement costs the other side one futile system call a turn.
 * Tests: unit/wake_explore_test, unit/ring_thread_test. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/atomic.h"
#include "abi/layout.h"

/* S1 of the client. */
static inline void pawl_wait_announce(struct pawl_sub_shm *sub, uint64_t wait_for, uint32_t number,
                                      uint32_t kind)
{
    pawl_store_rlx_u64(&sub->wait_for, wait_for);
#ifdef PAWL_BUG_ANNOUNCE_RELEASE
    pawl_store_rel_u32(&sub->waiting, (number << 2) | kind);
#else
    pawl_store_seq_u32(&sub->waiting, (number << 2) | kind);
#endif
}
static inline void pawl_wait_withdraw(struct pawl_sub_shm *sub)
{
    pawl_store_rlx_u32(&sub->waiting, 0);
}

/* W2 of the broker: the announcement to serve now (kind in the low bits), or 0. `served` is the
 * last one that was woken. wait_for is read after waiting and belongs to it or to a later
 * announcement, which then sees the published tail in its S2. */
static inline uint32_t pawl_wait_pending(const struct pawl_sub_shm *sub, uint64_t events,
                                         uint32_t served)
{
    uint32_t w = pawl_load_seq_u32(&sub->waiting);
    if (w == 0 || w == served)
        return 0;
    return (int64_t)(events - pawl_load_rlx_u64(&sub->wait_for)) >= 0 ? w : 0;
}

/* W2 of the client: must the bell be rung for `bit`? `*rung` is the last value answered. */
static inline bool pawl_bell_pending(const struct pawl_comp_shm *comp, uint32_t bit, uint32_t *rung)
{
    uint32_t b = pawl_load_seq_u32(&comp->bell);
    if ((b & bit) == 0 || b == *rung)
        return false;
    *rung = b;
    return true;
}

#endif
