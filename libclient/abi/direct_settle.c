/* SPDX-License-Identifier: MIT */
/* Ack, nack and renew on a direct queue: DIRECT.md 5.5. Each is one CAS of the state word from a
 * value that names the caller's lease; nothing else can end it twice. */
#include "abi/direct.h"

#include "base/bits.h"
#include "pawl.h"

/* Step 1: is this the token's lease? *w: the word. */
static bool is_held(const struct pawl_direct *q, const struct pawl_direct_token *token, uint64_t *w)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, token->position);
    *w = pawl_load_acq_u64(&slot->word);
    unsigned status = pawl_direct_word_status(*w);
#ifdef PAWL_BUG_DIRECT_ACK_ANY_OWNER
    return status == PAWL_DIRECT_LEASED || status == PAWL_DIRECT_TIMED;
#endif
    return (status == PAWL_DIRECT_LEASED || status == PAWL_DIRECT_TIMED) &&
           pawl_direct_word_owner(*w) == token->owner &&
           pawl_direct_word_delivery(*w) == token->delivery &&
           pawl_load_rlx_u64(&slot->position) == token->position;
}

bool pawl_direct_holds(const struct pawl_direct_lane *lane, const struct pawl_direct_token *token)
{
    /* What was read of the body stays before the look at the word. */
    pawl_fence_acq();
    uint64_t w;
    return is_held(&lane->q, token, &w);
}

int pawl_direct_ack(struct pawl_direct_lane *lane, const struct pawl_direct_token *token)
{
    const struct pawl_direct *q = &lane->q;
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, token->position);
    uint64_t w;
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        if (PAWL_UNLIKELY(!is_held(q, token, &w)))
            return PAWL_E_LEASE_LOST;
        uint64_t free = pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, pawl_direct_word_lap(w));
        if (PAWL_LIKELY(pawl_cas_seq_u64(&slot->word, &w, free))) {
            pawl_direct_gate_wake(&q->shm->writers, 1);
            return PAWL_OK;
        }
    }
    return PAWL_E_QUEUE_DAMAGED;
}

static uint64_t lease_of(const struct pawl_direct *q, uint64_t position, uint64_t owner,
                         uint64_t delivery, uint64_t ms)
{
    uint64_t lap = pawl_direct_lap(q, position) & 0xffff;
    return owner << 52 | delivery << 42 | lap << 26 | ms;
}

/* Steps of a renewal or of a delay: the lease word first, then the state word. 1: done, 0: over,
 * -1: again. */
static int set_lease(struct pawl_direct_lane *lane, const struct pawl_direct_token *token,
                     uint64_t lease, uint64_t owner, uint64_t delivery)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&lane->q, token->position);
    uint64_t old = pawl_load_rlx_u64(&slot->lease), w;
    if (!is_held(&lane->q, token, &w))
        return 0;
    if (!pawl_cas_u64(&slot->lease, &old, lease))
        return -1;
    /* LEASED, also if it is LEASED already: a broker that read the word before must fail. */
    while (!pawl_cas_u64(
        &slot->word, &w,
        pawl_direct_word(PAWL_DIRECT_LEASED, owner, delivery, pawl_direct_word_lap(w))))
        if (!is_held(&lane->q, token, &w))
            return 0;
    return 1;
}

int pawl_direct_renew(struct pawl_direct_lane *lane, const struct pawl_direct_token *token,
                      uint32_t lease_ms)
{
    if (lease_ms == 0 || lease_ms > PAWL_DIRECT_LEASE_ALIVE)
        return PAWL_E_INVALID;
    uint64_t lease = lease_of(&lane->q, token->position, token->owner, token->delivery, lease_ms);
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        int rc = set_lease(lane, token, lease, token->owner, token->delivery);
        if (rc >= 0)
            return rc ? PAWL_OK : PAWL_E_LEASE_LOST;
    }
    return PAWL_E_QUEUE_DAMAGED;
}

/* Was this the last attempt that the queue allows? Requires the slot to be held by the asker. */
static bool is_last(const struct pawl_direct *q, uint64_t position, uint64_t delivery)
{
    uint64_t base = pawl_load_rlx_u64(&pawl_direct_slot(q, position)->meta) >> 48;
    uint64_t max = q->shape.attempts_max ? q->shape.attempts_max : PAWL_DIRECT_DELIVERY_MAX;
    return delivery >= PAWL_DIRECT_DELIVERY_MAX || delivery - base >= max;
}

/* Given back at once, or DEAD. */
static int give_back(struct pawl_direct_lane *lane, const struct pawl_direct_token *token,
                     bool last)
{
    const struct pawl_direct *q = &lane->q;
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, token->position);
    uint64_t w;
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        if (!is_held(q, token, &w))
            return PAWL_E_LEASE_LOST;
        uint64_t lap = pawl_direct_word_lap(w);
        uint64_t next = last ? pawl_direct_word(PAWL_DIRECT_DEAD, 0, token->delivery, lap)
                             : pawl_direct_word(PAWL_DIRECT_READY, 0, token->delivery + 1u, lap);
        if (!pawl_cas_seq_u64(&slot->word, &w, next))
            continue;
        if (!last) {
            pawl_direct_mark(q, token->position);
            pawl_direct_gate_wake(&q->shm->readers, 1);
        }
        return PAWL_OK;
    }
    return PAWL_E_QUEUE_DAMAGED;
}

int pawl_direct_nack(struct pawl_direct_lane *lane, const struct pawl_direct_token *token,
                     uint32_t delay_ms, bool *dead)
{
    const struct pawl_direct *q = &lane->q;
    if (delay_ms > PAWL_DIRECT_LEASE_MS_MAX)
        return PAWL_E_INVALID;
    /* Read before we know that we hold it: if we do, base stands still. */
    bool last = is_last(q, token->position, token->delivery);
    if (dead)
        *dead = last;
    if (last || delay_ms == 0)
        return give_back(lane, token, last);
    /* The queue holds it from now on, counted already; the broker's timer makes it ready. */
    uint64_t d = token->delivery + 1u;
    uint64_t lease = lease_of(q, token->position, PAWL_DIRECT_OWNER_QUEUE, d, delay_ms);
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        int rc = set_lease(lane, token, lease, PAWL_DIRECT_OWNER_QUEUE, d);
        if (rc >= 0)
            return rc ? PAWL_OK : PAWL_E_LEASE_LOST;
    }
    return PAWL_E_QUEUE_DAMAGED;
}
