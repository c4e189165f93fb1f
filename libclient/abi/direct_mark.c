/* SPDX-License-Identifier: MIT */
/* Marks of a direct queue: DIRECT.md 5.4. How messages are found that lie below head. Two levels,
 * each word with a version in its upper half that every marker raises: a clearer that has missed a
 * mark fails. A stale mark costs a look, never a message. */
#include "abi/direct.h"

#define LOW(word) ((uint32_t)(word))

static void set_bit(uint64_t *word, uint32_t bit)
{
    uint64_t w = pawl_load_rlx_u64(word);
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        uint64_t next = (w + (UINT64_C(1) << 32)) | UINT64_C(1) << bit;
#if defined(PAWL_BUG_DIRECT_MARK_NO_VERSION)
        next = w | UINT64_C(1) << bit;
#endif
        if (pawl_cas_u64(word, &w, next))
            return;
    }
    /* Only hostility comes here. The sweep marks again. */
}

void pawl_direct_mark(const struct pawl_direct *q, uint64_t position)
{
    uint64_t i = position & q->mask;
    set_bit(&q->marks[i >> 5], (uint32_t)(i & 31));
    /* After the mark word: who sees the bit here finds the one there. */
    set_bit(&q->shm->look, (uint32_t)(i >> 5 >> q->look_shift));
}

void pawl_direct_unmark(const struct pawl_direct *q, uint64_t position)
{
    uint64_t i = position & q->mask, bit = UINT64_C(1) << (i & 31);
    uint64_t m = pawl_load_acq_u64(&q->marks[i >> 5]);
    if ((m & bit) == 0)
        return;
#ifndef PAWL_BUG_DIRECT_UNMARK_UNSEEN
    if (pawl_direct_word_status(pawl_load_acq_u64(&pawl_direct_slot(q, position)->word)) ==
        PAWL_DIRECT_READY)
        return; /* given back, and marked, since we claimed it */
#endif
    (void)pawl_cas_u64(&q->marks[i >> 5], &m, m & ~bit);
}

struct search {
    const struct pawl_direct *q;
    uint64_t below;    /* only messages before this position */
    uint64_t position; /* the best, and its word */
    uint64_t word;
    uint32_t seen;
    bool any;
};

/* One marked slot. False: not READY, the mark is stale. */
static bool look_at_slot(struct search *s, uint64_t i)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(s->q, i);
    uint64_t w = pawl_load_acq_u64(&slot->word);
    if (pawl_direct_word_status(w) != PAWL_DIRECT_READY)
        return false;
    uint64_t position = pawl_load_rlx_u64(&slot->position);
#ifndef PAWL_BUG_DIRECT_MARKED_AHEAD
    if ((int64_t)(position - s->below) >= 0)
        return true; /* the walk will meet it; taken here it would overtake */
#endif
    s->seen++;
    if (!s->any || (int64_t)(position - s->position) < 0) {
        s->any = true;
        s->position = position;
        s->word = w;
    }
    return true;
}

/* The slots of mark word `at` whose bits are in `which`. True: the whole word was read as zero. */
static bool look_at_marks(struct search *s, uint64_t at, uint32_t which)
{
    uint64_t m = pawl_load_acq_u64(&s->q->marks[at]);
    bool zero = LOW(m) == 0, fresh = true;
    for (uint32_t bits = LOW(m) & which; bits && s->seen < PAWL_DIRECT_MARKED_MAX;
         bits &= bits - 1) {
        uint32_t bit = (uint32_t)__builtin_ctz(bits);
        if (look_at_slot(s, at << 5 | bit) || !fresh)
            continue;
        /* m was read before the slot was seen not READY: whoever marked since changed it. */
        uint64_t found = m, next = m & ~(UINT64_C(1) << bit);
        fresh = pawl_cas_u64(&s->q->marks[at], &found, next);
        m = next;
    }
    return zero;
}

bool pawl_direct_find(const struct pawl_direct *q, uint64_t p, uint64_t *position, uint64_t *word)
{
    struct search s = { .q = q, .below = p };
    uint64_t look = pawl_load_acq_u64(&q->shm->look);
    uint32_t unseen = LOW(look); /* bits of look under which nothing was marked so far */
    uint64_t first = (p & q->mask) >> 5;
    uint32_t upper = UINT32_MAX << (p & q->mask & 31);
    /* In ring order from p on: the word that p is in comes first with its upper bits, and last with
     * the others. */
    for (uint64_t n = 0; n <= q->mark_words && s.seen < PAWL_DIRECT_MARKED_MAX; n++) {
        uint64_t at = (first + n) & (q->mark_words - 1);
        uint32_t g = (uint32_t)(at >> q->look_shift);
        if ((LOW(look) >> g & 1) == 0)
            continue;
        uint32_t which = n == 0 ? upper : n == q->mark_words ? ~upper : UINT32_MAX;
        if (!look_at_marks(&s, at, which))
            unseen &= ~(UINT32_C(1) << g);
    }
    /* look was read before the words under it were seen zero. */
    if (unseen && s.seen < PAWL_DIRECT_MARKED_MAX)
        (void)pawl_cas_u64(&q->shm->look, &look, look & ~(uint64_t)unseen);
    *position = s.position;
    *word = s.word;
    return s.any;
}
