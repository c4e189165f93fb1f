/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_RING_H
#define PAWL_ABI_RING_H

/* The lane's ring of variable-size records: one producer, one consumer, used for both directions by
 * both processes.
 *
 * 1 Contract. What was published is read once, whole, in order; what was not is never seen.
 * 2 Roles. One producer thread, one consumer thread, in different processes; neither trusts the
 * other. 3 Picture.   head ≤ published ≤ tail ≤ head + size; record = u32 bytes (multiple of 8, own
 * size included), then whatever the record is. The data area is mapped twice, so no wrap. 4 Words.
 * tail_shm: written by the producer. head_shm: written by the consumer. Both in bytes. 5
 * Operations. claim: (1) room by the cached head, (2) else load head_shm, (3) hand out memory at
 *    tail, tail += bytes (private). publish: (4) store tail_shm — linearises all claims since the
 * last. next: (1) load tail_shm if the cached one is used up, check it, (2) read the size word
 * once, check it, (3) hand out. release: (4) store head_shm — from here the producer may reuse the
 * bytes. 6 Ordering. site             order    partner                 what breaks if weaker
 *    publish 4        seq_cst  next 1 (acquire)        torn record; and with a load of the bell:
 * lost wake-up (abi/wake.h), hence not just release claim 2          acquire  release 4 (release)
 * producer overwrites what is being read release 4        release  claim 2                 the same
 * 7 Progress. Wait-free: no loop in any operation.
 * 8 Death. Producer between claim and publish: nothing is visible. After publish: the records are
 * whole. Consumer between next and release: the producer sees a full ring and stops; nobody waits
 * for it. 9 Wrap. Positions have 64 bits and are compared as differences; tests start near 2^32,
 * 2^63 and 2^64. 10 Hostile words. tail - head > size, a size word below 8, not a multiple of 8 or
 * beyond tail: BREACH. The size is read once; what lies behind it the caller copies before he
 * checks it (M7). Tests: unit/ring_test, unit/ring_explore_test, unit/ring_thread_test,
 * fuzz/ring_fuzz. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/atomic.h"

#define PAWL_RECORD_ALIGN 8u

struct pawl_ring_producer {
    uint8_t *data;
    uint64_t size;      /* power of two */
    uint64_t tail;      /* end of what was claimed */
    uint64_t published; /* what tail_shm holds */
    uint64_t head;      /* last head seen or allowed */
    uint64_t *tail_shm;
    const uint64_t *head_shm;
};

struct pawl_ring_consumer {
    const uint8_t *data;
    uint64_t size;
    uint64_t next; /* read up to here */
    uint64_t tail; /* last tail seen */
    const uint64_t *tail_shm;
    uint64_t *head_shm;
};

enum pawl_ring_result { PAWL_RING_RECORD, PAWL_RING_EMPTY, PAWL_RING_BREACH };

static inline uint64_t pawl_ring_room(const struct pawl_ring_producer *r)
{
    return r->size - (r->tail - r->head);
}

/* Looks again at how far the consumer is. A head that is not between the old one and tail is
 * ignored and reported: false means breach. */
static inline bool pawl_ring_refresh(struct pawl_ring_producer *r)
{
    uint64_t head = pawl_load_acq_u64(r->head_shm);
#ifndef PAWL_BUG_HEAD_UNCHECKED
    if (r->tail - head > r->size || head - r->head > r->size)
        return false;
#endif
    r->head = head;
    return true;
}

/* Memory for a record of `bytes` (multiple of 8) behind what was claimed before, or NULL for no
 * room by the cached head. Visible only after publish. The caller writes its size word. */
static inline void *pawl_ring_claim(struct pawl_ring_producer *r, uint32_t bytes)
{
    if (pawl_ring_room(r) < bytes)
        return NULL;
    void *p = r->data + (r->tail & (r->size - 1));
    r->tail += bytes;
#ifdef PAWL_BUG_PUBLISH_BEFORE_WRITE
    r->published = r->tail;
    pawl_store_seq_u64(r->tail_shm, r->tail);
#endif
    return p;
}

/* Takes the newest claim back, before it is published. */
static inline void pawl_ring_abandon(struct pawl_ring_producer *r, uint32_t bytes)
{
    r->tail -= bytes;
}

/* All claims since the last publish become visible with one store. True if there were any. */
static inline bool pawl_ring_publish(struct pawl_ring_producer *r)
{
    if (r->published == r->tail)
        return false;
    r->published = r->tail;
#ifdef PAWL_BUG_PUBLISH_RELAXED
    pawl_store_rlx_u64(r->tail_shm, r->tail);
#elif defined(PAWL_BUG_PUBLISH_RELEASE)
    pawl_store_rel_u64(r->tail_shm, r->tail);
#else
    pawl_store_seq_u64(r->tail_shm, r->tail);
#endif
    return true;
}

/* The next record. *record stays valid until release passes it; its bytes beyond the size word may
 * change at any time if the producer is hostile. */
static inline enum pawl_ring_result pawl_ring_next(struct pawl_ring_consumer *r,
                                                   const void **record, uint32_t *bytes)
{
    if (r->next == r->tail) {
        uint64_t tail = pawl_load_acq_u64(r->tail_shm);
        if (tail == r->tail)
            return PAWL_RING_EMPTY;
        /* next, not head: what is not yet released counts as used, but next >= head, so this is the
         * weaker of the two bounds; the data is inside the mapping either way. */
        if (tail - r->next > r->size)
            return PAWL_RING_BREACH;
        r->tail = tail;
    }
    const uint8_t *p = r->data + (r->next & (r->size - 1));
    uint32_t n = pawl_load_rlx_u32((const uint32_t *)(const void *)p);
    if (n < PAWL_RECORD_ALIGN || n % PAWL_RECORD_ALIGN != 0 || n > r->tail - r->next)
        return PAWL_RING_BREACH;
    *record = p;
    *bytes = n;
    r->next += n;
    return PAWL_RING_RECORD;
}

/* All up to `position` (<= next) may be reused by the producer. */
static inline void pawl_ring_release(struct pawl_ring_consumer *r, uint64_t position)
{
    pawl_store_rel_u64(r->head_shm, position);
}
/* The same where the producer may have announced that it waits for room (PAWL_BELL_ROOM). */
static inline void pawl_ring_release_seq(struct pawl_ring_consumer *r, uint64_t position)
{
#ifdef PAWL_BUG_ROOM_RELEASE
    pawl_store_rel_u64(r->head_shm, position);
#else
    pawl_store_seq_u64(r->head_shm, position);
#endif
}

#endif
