/* SPDX-License-Identifier: MIT */
/* Sending on a direct queue: DIRECT.md 5.1 and 5.2, whose steps are numbered here.
 *
 *   1 read tail and a head that serves · 2 is anything free? · 3 note free slots, skip those in use
 *   4 announce · 5 move tail: the places are ours · 6 write · 7 publish: the message takes effect
 *   8 clear the announcement, wake readers
 *
 * Death before 5 leaves at most places skipped; from 5 on a reservation that the broker repairs
 * since no living lane announces it; after 7 a message. */
#include "abi/direct.h"

#include "base/bits.h"
#include "pawl.h"

static void clear_announcement(struct pawl_direct_lane *lane)
{
    pawl_store_rel_u64(lane->announcement, 0);
}

/* 5.2. *moved: head has become greater than lane->head. Requires t read from tail. */
static bool make_room(struct pawl_direct_lane *lane, uint64_t t)
{
    const struct pawl_direct *q = &lane->q;
    uint64_t start = pawl_load_acq_u64(&q->shm->head), h = start;
    for (uint64_t left = q->mask + 1; left > 0; left--) {
        struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, h);
        uint64_t w = pawl_load_acq_u64(&slot->word), lap = pawl_direct_lap(q, h);
        int64_t past = pawl_direct_lap_past(w, lap);
        if (past == 0 && w == pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, lap) &&
            (int64_t)(t - h) > 0) {
            /* Reserved, and its producer has not published: passed, so that he stops nobody. */
            if (pawl_cas_u64(&slot->word, &w, pawl_direct_word(PAWL_DIRECT_HELD, 0, 0, lap + 1))) {
                lane->counts.passes++;
                h++;
            }
            continue;
        }
        if (past <= 0 || (past == 1 && pawl_direct_word_status(w) == PAWL_DIRECT_READY))
            break;
        h++;
    }
    uint64_t found = start;
    if (h != start && !pawl_cas_u64(&q->shm->head, &found, h))
        h = found;
    /* What serves others as a bound must have been in the word: never the private h of a walk whose
     * CAS failed (I2). */
    bool moved = (int64_t)(h - lane->head) > 0;
    lane->head = h;
    return moved;
}

static bool is_free(const struct pawl_direct *q, uint64_t p)
{
    return pawl_load_acq_u64(&pawl_direct_slot(q, p)->word) ==
           pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, pawl_direct_lap(q, p));
}

/* Step 3: notes up to `count` free slots in [t, end). Returns how many. */
static uint32_t note(struct pawl_direct_lane *lane, uint64_t t, uint64_t end, uint32_t count)
{
    const struct pawl_direct *q = &lane->q;
    uint32_t noted = 0, failed = 0;
    uint64_t p = t;
    while (p != end && noted < count) {
        struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, p);
        uint64_t lap = pawl_direct_lap(q, p), w = pawl_load_acq_u64(&slot->word);
        int64_t past = pawl_direct_lap_past(w, lap);
        if (past > 0) {
            p++;
        } else if (past < 0) {
            break; /* an old t; or words that make no sense, which the bound on retries ends */
        } else if (w == pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, lap)) {
            lane->notes[noted++] = (uint16_t)(p++ - t);
        } else {
            uint64_t next = w + PAWL_DIRECT_LAP_ONE;
            if (pawl_direct_word_status(w) == PAWL_DIRECT_HELD &&
                pawl_direct_word_skips(w) < PAWL_DIRECT_SKIPS_MAX)
                next += UINT64_C(1) << 3;
#ifdef PAWL_BUG_DIRECT_SKIP_UNMARKED
            /* passes over the slot in use without deciding its place */
            (void)next;
            p++;
#else
            if (pawl_cas_u64(&slot->word, &w, next)) {
                lane->counts.skips++;
                p++;
            } else if (++failed > PAWL_DIRECT_RETRIES_MAX) {
                break;
            }
#endif
        }
    }
    if (PAWL_UNLIKELY(p == end && noted == 0)) {
        /* More slots in use in a row than one reservation may span: all of them are decided now,
         * and tail goes over them with nothing reserved. */
        uint64_t found = t;
        (void)pawl_cas_u64(&q->shm->tail, &found, end);
    }
    return noted;
}

/* The message of one lap before is still there and was never granted, and is no late one behind
 * head: that is FULL, told without taking head's line from the receivers. */
static bool is_full(const struct pawl_direct *q, uint64_t t)
{
    return pawl_load_acq_u64(&pawl_direct_slot(q, t)->word) ==
               pawl_direct_word(PAWL_DIRECT_READY, 0, 1, pawl_direct_lap(q, t)) &&
           (uint32_t)pawl_load_acq_u64(&q->shm->look) == 0;
}

/* Steps 1 to 3: places from *t on. Returns how many were noted, 0 to start over, or an error. */
static int look_for_places(struct pawl_direct_lane *lane, uint32_t count, uint64_t *t)
{
    const struct pawl_direct *q = &lane->q;
    int64_t capacity = (int64_t)q->mask + 1;
    *t = pawl_load_acq_u64(&q->shm->tail);
    int64_t used = (int64_t)(*t - lane->head);
    if (PAWL_UNLIKELY(used == capacity) && is_full(q, *t))
        return PAWL_E_FULL;
    if (PAWL_UNLIKELY(used >= capacity)) {
        lane->head = pawl_load_acq_u64(&q->shm->head);
        used = (int64_t)(*t - lane->head);
        if (used >= capacity)
            return make_room(lane, *t) ? 0 : used > capacity ? PAWL_E_QUEUE_DAMAGED : PAWL_E_FULL;
    }
    if (PAWL_UNLIKELY(used < -(int64_t)PAWL_DIRECT_RANGE_MAX))
        return 0; /* t is old: tail has gone on behind a newer head */
    uint64_t end = (used > 0 ? lane->head : *t) + (uint64_t)capacity;
    uint64_t p = *t;
    while (p != end && !is_free(q, p))
        p++;
    if (PAWL_UNLIKELY(p == end))
        return used <= 0 ? PAWL_E_FULL : make_room(lane, *t) ? 0 : PAWL_E_FULL;
    if (end - *t > PAWL_DIRECT_RANGE_MAX)
        end = *t + PAWL_DIRECT_RANGE_MAX;
    return (int)note(lane, *t, end, count);
}

/* Steps 4 and 5: the places noted in [t, t + range) are ours. */
static bool move_tail(struct pawl_direct_lane *lane, uint64_t t, uint64_t range, uint32_t noted)
{
    uint64_t found = t;
#ifndef PAWL_BUG_DIRECT_ANNOUNCE_LATE
    /* Before tail moves: whoever sees tail beyond a place finds its owner (I5). The CAS releases
     * it. */
    pawl_store_rlx_u64(lane->announcement, pawl_direct_announce(t, range));
#endif
    if (PAWL_UNLIKELY(!pawl_cas_u64(&lane->q.shm->tail, &found, t + range))) {
        lane->counts.retries++;
        return false;
    }
#ifdef PAWL_BUG_DIRECT_ANNOUNCE_LATE
    pawl_store_rlx_u64(lane->announcement, pawl_direct_announce(t, range));
#endif
    lane->from = t;
    lane->noted = noted;
    lane->at = lane->published = 0;
    return true;
}

int pawl_direct_reserve(struct pawl_direct_lane *lane, uint32_t count)
{
    if (PAWL_UNLIKELY(count == 0))
        return PAWL_E_INVALID;
    if (PAWL_UNLIKELY(lane->at != lane->noted))
        return PAWL_E_MISUSE;
    if (count > PAWL_DIRECT_BATCH_MAX)
        count = PAWL_DIRECT_BATCH_MAX;
    int rc = 0;
    bool announced = false;
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        uint64_t t;
        rc = look_for_places(lane, count, &t);
        if (PAWL_UNLIKELY(rc < 0))
            break;
        if (PAWL_UNLIKELY(rc == 0)) {
            lane->counts.retries++;
            continue;
        }
        if (PAWL_LIKELY(move_tail(lane, t, lane->notes[rc - 1] + UINT64_C(1), (uint32_t)rc)))
            return rc;
        announced = true;
    }
    /* What was announced lost the race for tail: from here on we announce nothing. */
    if (announced)
        clear_announcement(lane);
    return rc < 0 ? rc : PAWL_E_QUEUE_DAMAGED;
}

/* The usual case of one message: the slot at tail is free. False: the long way. */
static bool reserve_next(struct pawl_direct_lane *lane)
{
    const struct pawl_direct *q = &lane->q;
    uint64_t t = pawl_load_acq_u64(&q->shm->tail);
    int64_t used = (int64_t)(t - lane->head);
    if (used > (int64_t)q->mask || used < -(int64_t)PAWL_DIRECT_RANGE_MAX || !is_free(q, t) ||
        lane->at != lane->noted)
        return false;
    lane->notes[0] = 0;
    if (PAWL_LIKELY(move_tail(lane, t, 1, 1)))
        return true;
    clear_announcement(lane);
    return false;
}

void *pawl_direct_place_at(struct pawl_direct_lane *lane, uint32_t index)
{
    if (index >= lane->noted)
        return NULL;
    return pawl_direct_slot(&lane->q, lane->from + lane->notes[index])->body;
}

void *pawl_direct_place(struct pawl_direct_lane *lane)
{
    return pawl_direct_place_at(lane, lane->at);
}

/* Step 8, after the last place. */
static void end_reservation(struct pawl_direct_lane *lane)
{
    clear_announcement(lane);
    uint32_t published = lane->published;
    lane->noted = lane->at = lane->published = 0;
    if (PAWL_LIKELY(published))
        pawl_direct_gate_wake(&lane->q.shm->readers, published);
}

/* Step 7 where a walker has passed the place: HELD, and only N and k move below us. */
static int publish_late(struct pawl_direct_lane *lane, uint64_t p, uint64_t w)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&lane->q, p);
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        if (pawl_direct_word_status(w) != PAWL_DIRECT_HELD)
            break;
        if (!pawl_cas_seq_u64(&slot->word, &w,
                              pawl_direct_word(PAWL_DIRECT_READY, 0, 1, pawl_direct_word_lap(w))))
            continue;
        lane->counts.lates++;
#ifndef PAWL_BUG_DIRECT_LATE_UNMARKED
        /* The walkers are beyond it. Before send returns, so that D5.2 and D5.3 hold. */
        pawl_direct_mark(&lane->q, p);
#endif
        return PAWL_OK;
    }
    return PAWL_E_QUEUE_DAMAGED;
}

static int publish(struct pawl_direct_lane *lane, uint64_t p)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&lane->q, p);
    uint64_t lap = pawl_direct_lap(&lane->q, p);
    uint64_t w = pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, lap);
#ifdef PAWL_BUG_DIRECT_PUBLISH_STORE
    pawl_store_seq_u64(&slot->word, pawl_direct_word(PAWL_DIRECT_READY, 0, 1, lap + 1));
    return PAWL_OK;
#endif
    if (PAWL_LIKELY(
            pawl_cas_seq_u64(&slot->word, &w, pawl_direct_word(PAWL_DIRECT_READY, 0, 1, lap + 1))))
        return PAWL_OK;
    return publish_late(lane, p, w);
}

/* Of single messages: asks for the lines of a slot that will be written soon, if it is beyond
 * what readers may still be about; a row has its own lines under way at once without that. */
static void look_beyond(const struct pawl_direct_lane *lane, uint64_t p)
{
    uint64_t ahead = p + PAWL_DIRECT_AHEAD;
    if ((int64_t)(lane->head + lane->q.mask - PAWL_DIRECT_AHEAD - ahead) > 0)
        pawl_direct_ahead(&lane->q, ahead);
}

/* Steps 6 (but for the body) and 7 of the next place, and 8 after the last. */
static int finish_place(struct pawl_direct_lane *lane, uint32_t length, uint16_t flags,
                        uint64_t *position)
{
    uint64_t p = lane->from + lane->notes[lane->at];
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&lane->q, p);
    pawl_store_rlx_u64(&slot->position, p);
    pawl_store_rlx_u64(&slot->meta, length | (uint64_t)flags << 32);
    int rc = publish(lane, p);
    if (lane->noted == 1)
        look_beyond(lane, p);
    if (position)
        *position = p;
    lane->at++;
    lane->published += rc == PAWL_OK;
    if (lane->at == lane->noted)
        end_reservation(lane);
    return rc;
}

int pawl_direct_publish(struct pawl_direct_lane *lane, uint32_t length, uint16_t flags,
                        uint64_t *position)
{
    if (lane->at == lane->noted)
        return PAWL_E_MISUSE;
    if (length > lane->q.shape.body_bytes)
        return PAWL_E_TOO_BIG;
    return finish_place(lane, length, flags, position);
}

/* What repair does for the dead (5.6) the owner may do for himself at any time: nobody else takes
 * the slot out of EMPTY below tail or HELD. */
int pawl_direct_abandon(struct pawl_direct_lane *lane)
{
    if (lane->at == lane->noted)
        return PAWL_E_MISUSE;
    uint64_t p = lane->from + lane->notes[lane->at], lap = pawl_direct_lap(&lane->q, p);
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&lane->q, p);
    uint64_t w = pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, lap);
    bool done = pawl_cas_u64(&slot->word, &w, w + PAWL_DIRECT_LAP_ONE);
    for (uint32_t tries = 0;
         !done && tries < PAWL_DIRECT_RETRIES_MAX && pawl_direct_word_status(w) == PAWL_DIRECT_HELD;
         tries++)
        done = pawl_cas_u64(&slot->word, &w,
                            pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, pawl_direct_word_lap(w)));
    lane->at++;
    if (lane->at == lane->noted)
        end_reservation(lane);
    return done ? PAWL_OK : PAWL_E_QUEUE_DAMAGED;
}

/* Copies and publishes what the open reservation has places for. Returns how many, or an error,
 * with all that is left of it abandoned. */
static int fill_places(struct pawl_direct_lane *lane, const struct pawl_direct_body *bodies,
                       uint64_t *positions)
{
    uint32_t places = lane->noted;
    for (uint32_t k = 0; k < places; k++) {
        const struct pawl_direct_body *b = &bodies[k];
        pawl_copy_in(pawl_direct_slot(&lane->q, lane->from + lane->notes[k])->body, b->data,
                     b->length);
        int rc = finish_place(lane, b->length, b->flags, positions ? &positions[k] : NULL);
        if (PAWL_UNLIKELY(rc < 0)) {
            while (lane->at != lane->noted)
                (void)pawl_direct_abandon(lane);
            return rc;
        }
    }
    return (int)places;
}

int pawl_direct_send(struct pawl_direct_lane *lane, const struct pawl_direct_body *bodies,
                     uint32_t count, uint64_t *positions)
{
    for (uint32_t k = 0; k < count; k++)
        if (PAWL_UNLIKELY(bodies[k].length > lane->q.shape.body_bytes))
            return PAWL_E_TOO_BIG;
    if (PAWL_LIKELY(count == 1 && reserve_next(lane)))
        return fill_places(lane, bodies, positions);
    uint32_t sent = 0;
    int rc = PAWL_E_INVALID;
    do {
        rc = pawl_direct_reserve(lane, count - sent);
        if (PAWL_UNLIKELY(rc < 0))
            break;
        rc = fill_places(lane, bodies + sent, positions ? positions + sent : NULL);
        if (PAWL_UNLIKELY(rc < 0))
            return rc;
        sent += (uint32_t)rc;
    } while (sent < count);
    return sent ? (int)sent : rc;
}
