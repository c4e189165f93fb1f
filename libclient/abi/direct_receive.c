/* SPDX-License-Identifier: MIT */
/* Receiving from a direct queue: DIRECT.md 5.3. Walk from head to the first undecided position,
 * then look for marked messages that lie before it, then claim with one CAS. A message is never
 * without an owner: the CAS that takes it names its lane. */
#include "abi/direct.h"

#include "base/bits.h"
#include "pawl.h"

enum walk { WALK_END, WALK_READY, WALK_AGAIN };

/* Is anything ready behind p, whose producer is writing? Requires p < t <= p + C. */
static bool ready_behind(const struct pawl_direct *q, uint64_t p, uint64_t t)
{
    for (p++; p != t; p++) {
        uint64_t w = pawl_load_acq_u64(&pawl_direct_slot(q, p)->word);
        if (pawl_direct_word_status(w) == PAWL_DIRECT_READY &&
            pawl_direct_lap_past(w, pawl_direct_lap(q, p)) == 1)
            return true;
    }
    return false;
}

/* p is reserved and not published, and others wait behind it: a little patience, then it is passed;
 * its producer will find HELD and mark. */
static void pass(struct pawl_direct_lane *lane, struct pawl_direct_slot_shm *slot, uint64_t w)
{
    uint64_t held = pawl_direct_word(PAWL_DIRECT_HELD, 0, 0, pawl_direct_word_lap(w) + 1);
    for (uint32_t n = 0; n < lane->patience; n++) {
        if (pawl_load_rlx_u64(&slot->word) != w)
            return;
        pawl_cpu_relax();
    }
    if (pawl_cas_u64(&slot->word, &w, held))
        lane->counts.passes++;
}

/* Steps 2 and 3: moves *p to the first position that is ready or undecided. */
static enum walk walk(struct pawl_direct_lane *lane, uint64_t *p, uint64_t *word)
{
    const struct pawl_direct *q = &lane->q;
    uint64_t left = q->mask + 1 + PAWL_DIRECT_RANGE_MAX;
    for (; left > 0; left--) {
        struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, *p);
        uint64_t w = pawl_load_acq_u64(&slot->word), lap = pawl_direct_lap(q, *p);
        int64_t past = pawl_direct_lap_past(w, lap);
        *word = w;
        if (PAWL_LIKELY(past > 0)) {
            if (past == 1 && pawl_direct_word_status(w) == PAWL_DIRECT_READY)
                return WALK_READY;
            (*p)++;
            continue;
        }
        uint64_t t = pawl_load_acq_u64(&q->shm->tail);
        int64_t ahead = (int64_t)(t - *p);
        if (ahead <= 0)
            return ahead < -(int64_t)PAWL_DIRECT_RANGE_MAX ? WALK_AGAIN : WALK_END;
        if (ahead > (int64_t)q->mask + 1)
            continue; /* no longer undecided, or tail lies */
        if (past == 0 && w == pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, lap)) {
            if (!ready_behind(q, *p, t))
                return WALK_END;
            pass(lane, slot, w);
        }
        /* In use with N = L and tail beyond it: skipped between the two loads. Read again. */
    }
    return WALK_AGAIN;
}

/* Step 5: takes the message seen under READY word w at position p's slot. False: it is somebody
 * else's, or was lost again before the copy was made. */
static bool claim(struct pawl_direct_lane *lane, uint64_t p, uint64_t w,
                  struct pawl_direct_delivery *out, enum pawl_direct_how how)
{
    const struct pawl_direct *q = &lane->q;
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, p);
    uint64_t meta = pawl_load_rlx_u64(&slot->meta);
    uint32_t length = (uint32_t)meta;
    uint32_t d = pawl_direct_word_delivery(w);
    if (PAWL_UNLIKELY(length > q->shape.body_bytes))
        length = q->shape.body_bytes;
    out->length = length;
    out->flags = (uint16_t)(meta >> 32);
    out->attempt = (uint16_t)(d - (meta >> 48));
    out->token.position = pawl_load_rlx_u64(&slot->position);
    out->token.owner = (uint16_t)lane->owner;
    out->token.delivery = (uint16_t)d;

    uint64_t found = w;
    uint64_t mine = pawl_direct_word(PAWL_DIRECT_LEASED, lane->owner, d, pawl_direct_word_lap(w));
    if (how == PAWL_DIRECT_COPY && length <= lane->copy_first_max) {
        /* A READY slot does not change without its word changing: if the CAS finds w, all that was
         * read is the message's. It releases too, so that the reads stay before it. */
        pawl_copy_out(out->body, slot->body, length);
        return pawl_cas_u64(&slot->word, &found, mine);
    }
    if (!pawl_cas_u64(&slot->word, &found, mine))
        return false;
    if (how == PAWL_DIRECT_IN_PLACE) {
        out->body = slot->body;
        return true;
    }
    pawl_copy_out(out->body, slot->body, length);
#ifdef PAWL_BUG_DIRECT_NO_SECOND_LOOK
    return true;
#endif
    if (pawl_direct_holds(lane, &out->token))
        return true;
    lane->counts.lost++;
    return false;
}

/* Steps 2 to 6 once. 1: a message was taken; 0: there is none; -1: others were faster, again; -2:
 * the words make no sense, or everything has changed during the walk. */
static int take(struct pawl_direct_lane *lane, uint64_t *p, struct pawl_direct_delivery *out,
                enum pawl_direct_how how)
{
    const struct pawl_direct *q = &lane->q;
    uint64_t w, m, mw;
    enum walk found = walk(lane, p, &w);
    if (PAWL_UNLIKELY(found == WALK_AGAIN))
        return -2;
    /* Only now, after the candidate was seen: what was marked before it was sent is seen here. */
    bool marked = (uint32_t)pawl_load_acq_u64(&q->shm->look) != 0;
    if (PAWL_UNLIKELY(marked) && pawl_direct_find(q, *p, &m, &mw)) {
        if (!claim(lane, m, mw, out, how))
            return -1;
        pawl_direct_unmark(q, m);
        return 1;
    }
    if (found == WALK_END) {
        lane->resume = *p;
        lane->ready = w;
        return 0;
    }
    if (PAWL_UNLIKELY(!claim(lane, *p, w, out, how)))
        return -1;
    if (PAWL_UNLIKELY(marked))
        pawl_direct_unmark(q, *p);
    (*p)++;
    return 1;
}

/* Of single messages: asks for the lines of the slots that follow p, so that several are under way
 * from the sender's core at a time, where each claim alone would wait for its own. Only well below
 * tail: the others are being written, or will be. Tail is read anew where what is known of it is
 * used up, and not more than once in so many messages: its line is the senders'. */
static void look_ahead(struct pawl_direct_lane *lane, uint64_t p)
{
#ifndef PAWL_ATOMIC_STEP /* it decides nothing: to explore it would only cost */
    const struct pawl_direct *q = &lane->q;
    uint64_t ahead = p + PAWL_DIRECT_AHEAD;
    if (PAWL_LIKELY((int64_t)(lane->known - ahead) > 0)) {
        pawl_direct_ahead(q, ahead);
        return;
    }
    if ((int64_t)(lane->ask - p) > 0)
        return;
    lane->known = pawl_load_rlx_u64(&q->shm->tail) - PAWL_DIRECT_APART;
    lane->ask = ahead;
    for (uint64_t n = p + 1; n <= ahead && (int64_t)(lane->known - n) > 0; n++)
        pawl_direct_ahead(q, n);
#endif
}

int pawl_direct_receive(struct pawl_direct_lane *lane, struct pawl_direct_delivery *out,
                        uint32_t count, enum pawl_direct_how how)
{
    const struct pawl_direct *q = &lane->q;
    if (PAWL_UNLIKELY(count == 0))
        return PAWL_E_INVALID;
    uint64_t start = pawl_load_acq_u64(&q->shm->head), p = start;
    uint32_t got = 0, failed = 0;
    while (got < count) {
        int rc = take(lane, &p, &out[got], how);
        if (PAWL_LIKELY(rc > 0)) {
            got++;
            if (count == 1)
                look_ahead(lane, p);
        } else if (rc == 0) {
            break;
        } else {
            /* A walk in vain is long: 64 of them are enough. */
            lane->counts.retries++;
            failed += rc == -1 ? 1 : PAWL_DIRECT_RETRIES_MAX / 64;
            if (failed >= PAWL_DIRECT_RETRIES_MAX)
                return got ? (int)got : PAWL_E_QUEUE_DAMAGED;
            if (rc == -2)
                start = p = pawl_load_acq_u64(&q->shm->head); /* it was old */
        }
    }
    /* Everything from start to p was seen decided. That another was faster does not matter: head is
     * a hint. */
    if (p != start)
        (void)pawl_cas_u64(&q->shm->head, &start, p);
    return (int)got;
}

bool pawl_direct_poll(struct pawl_direct_lane *lane)
{
    const struct pawl_direct *q = &lane->q;
    return pawl_load_rlx_u64(&pawl_direct_slot(q, lane->resume)->word) != lane->ready ||
           (uint32_t)pawl_load_rlx_u64(&q->shm->look) != 0;
}
