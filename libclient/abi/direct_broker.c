/* SPDX-License-Identifier: MIT */
/* The broker's part in a direct queue: DIRECT.md 5.6. One sweep visits slot after slot and does
 * everything there: times leases and ends them, gives back what the dead held, frees what the dead
 * reserved, marks what should be marked, counts. It needs no memory of who died when: a lane that
 * is DEAD is finished when every slot was visited once since.
 *
 * No word of the memory is trusted: indices are masked, lanes are looked up in the broker's own
 * copy, what makes no sense is counted as strange and left alone. Every change is a CAS or a bit
 * set that may be repeated, so that death between any two lines needs nothing else. */
#include "abi/direct.h"

#include "base/bits.h"
#include "pawl.h"

/* What one call of the sweep reads once, before the slots: older is safe. */
struct sight {
    uint64_t tail, head, now;
    uint64_t given_back;
};

uint64_t pawl_direct_broker_bytes(const struct pawl_direct_shape *s)
{
    return (s->lanes + UINT64_C(1)) * sizeof(struct pawl_direct_broker_lane) +
           s->capacity * sizeof(uint64_t);
}

static void note_dead(struct pawl_direct_broker *b, uint32_t number)
{
    b->lanes[number].status = PAWL_DIRECT_LANE_DEAD;
    b->lanes[number].until = b->visited + b->q.mask + 1;
    b->dead_lanes++;
}

void pawl_direct_broker_init(struct pawl_direct_broker *b, const struct pawl_direct *q,
                             void *memory, uint64_t epoch, uint64_t (*clock)(void *), void *context)
{
    memset(b, 0, sizeof *b);
    memset(memory, 0, pawl_direct_broker_bytes(&q->shape));
    b->q = *q;
    b->deadlines = memory;
    b->lanes = (struct pawl_direct_broker_lane *)(void *)(b->deadlines + q->shape.capacity);
    b->clock = clock;
    b->context = context;
    b->lease_ms_min = b->turn_ms_min = q->shape.lease_ms;
    for (uint32_t n = 1; n <= q->shape.lanes; n++) {
        struct pawl_direct_broker_lane *lane = &b->lanes[n];
        uint32_t status = pawl_load_acq_u32(&q->lanes[n].status);
        lane->generation = pawl_load_rlx_u32(&q->lanes[n].generation);
        if (status == PAWL_DIRECT_LANE_VACANT)
            continue;
        b->live_top = n;
        /* What is neither LIVE nor DEAD is treated as LIVE: only a proof kills. */
        lane->status = PAWL_DIRECT_LANE_LIVE;
        if (status == PAWL_DIRECT_LANE_DEAD)
            note_dead(b, n);
    }
    pawl_store_rlx_u64(&q->shm->broker_epoch, epoch);
}

/* --- lanes ----------------------------------------------------------------------------------- */

int pawl_direct_lane_take(struct pawl_direct_broker *b, const uint8_t session[16])
{
    for (uint32_t n = 1; n <= b->q.shape.lanes; n++) {
        if (b->lanes[n].status != PAWL_DIRECT_LANE_VACANT)
            continue;
        struct pawl_direct_lane_shm *lane = &b->q.lanes[n];
        pawl_store_rlx_u64(&lane->announcement, 0);
        pawl_store_rlx_u32(&lane->generation, b->lanes[n].generation);
        pawl_copy_in(lane->session, session, sizeof lane->session);
        b->lanes[n].status = PAWL_DIRECT_LANE_TAKEN;
        if (n > b->live_top)
            b->live_top = n;
        return (int)n;
    }
    return PAWL_E_QUOTA;
}

void pawl_direct_lane_live(struct pawl_direct_broker *b, uint32_t number)
{
    if (pawl_direct_lane_status(b, number) != PAWL_DIRECT_LANE_TAKEN)
        return;
    b->lanes[number].status = PAWL_DIRECT_LANE_LIVE;
    pawl_store_rel_u32(&b->q.lanes[number].status, PAWL_DIRECT_LANE_LIVE);
}

void pawl_direct_lane_dead(struct pawl_direct_broker *b, uint32_t number)
{
    uint8_t status = pawl_direct_lane_status(b, number);
    if (status != PAWL_DIRECT_LANE_LIVE && status != PAWL_DIRECT_LANE_TAKEN)
        return;
    /* Step 1: in the memory first, so that the next broker goes on if this one dies. */
    pawl_store_rel_u32(&b->q.lanes[number].status, PAWL_DIRECT_LANE_DEAD);
    note_dead(b, number);
    b->counts.died++;
}

uint8_t pawl_direct_lane_status(const struct pawl_direct_broker *b, uint32_t number)
{
    return number >= 1 && number <= b->q.shape.lanes ? b->lanes[number].status
                                                     : PAWL_DIRECT_LANE_VACANT;
}

uint64_t pawl_direct_sweep_pending(const struct pawl_direct_broker *b)
{
    uint64_t most = 0;
    for (uint32_t n = 1; b->dead_lanes && n <= b->live_top; n++)
        if (b->lanes[n].status == PAWL_DIRECT_LANE_DEAD && b->lanes[n].until > b->visited + most)
            most = b->lanes[n].until - b->visited;
    return most;
}

/* Steps 5 to 7 of the lanes whose last slot was visited. */
static void finish_dead(struct pawl_direct_broker *b)
{
    bool any = false;
    for (uint32_t n = 1; n <= b->live_top; n++) {
        struct pawl_direct_broker_lane *lane = &b->lanes[n];
        if (lane->status != PAWL_DIRECT_LANE_DEAD || lane->until > b->visited)
            continue;
        struct pawl_direct_lane_shm *shm = &b->q.lanes[n];
        pawl_store_rel_u64(&shm->announcement, 0);
        pawl_store_rlx_u32(&shm->generation, ++lane->generation);
        pawl_store_rel_u32(&shm->status, PAWL_DIRECT_LANE_VACANT);
        lane->status = PAWL_DIRECT_LANE_VACANT;
        b->dead_lanes--;
        any = true;
    }
    while (b->live_top && b->lanes[b->live_top].status == PAWL_DIRECT_LANE_VACANT)
        b->live_top--;
    if (any) {
        /* It may have died between its last change and its wake. */
        pawl_direct_gate_wake_all(&b->q.shm->readers);
        pawl_direct_gate_wake_all(&b->q.shm->writers);
    }
}

/* --- one slot -------------------------------------------------------------------------------- */

/* Marks a message that a death or a stop has left unmarked. */
static void mark_again(struct pawl_direct_broker *b, uint64_t i)
{
    pawl_direct_mark(&b->q, i);
    pawl_direct_gate_wake(&b->q.shm->readers, 1);
}

static void check_mark(struct pawl_direct_broker *b, uint64_t i, const struct sight *s)
{
    const struct pawl_direct *q = &b->q;
    b->turn.ready++;
    uint64_t position = pawl_load_rlx_u64(&pawl_direct_slot(q, i)->position);
    if ((int64_t)(position - s->head) >= 0)
        return; /* the walk will meet it */
    uint64_t marks = pawl_load_acq_u64(&q->marks[i >> 5]);
    uint64_t look = pawl_load_acq_u64(&q->shm->look);
    bool set = (marks >> (i & 31) & 1) && (look >> (i >> 5 >> q->look_shift) & 1);
    /* After a death (a lane's, or that of the broker before us) also where the bits are set: they
     * may be old ones, and who read them before this message was READY may still clear them. */
    bool sure = b->dead_lanes == 0 && b->visited > q->mask;
    if (set && sure)
        return;
#ifndef PAWL_BUG_DIRECT_NO_REMARK
    mark_again(b, i);
    b->counts.remarked += !set;
#else
    (void)set;
    (void)sure;
#endif
}

/* Does the announcement cover the place? Positions in 52 bits. */
static bool covers(const struct pawl_direct *q, uint64_t announcement, uint64_t place, bool any_lap)
{
    uint64_t count = announcement & 0xfff, from = announcement >> 12;
    if (any_lap)
        return count > ((place - from) & q->mask);
    return ((place << 12) - (from << 12)) >> 12 < count;
}

static bool is_announced(const struct pawl_direct_broker *b, uint64_t place, bool any_lap)
{
#ifdef PAWL_BUG_DIRECT_REPAIR_BLIND
    return false;
#endif
    for (uint32_t n = 1; n <= b->live_top; n++)
        if ((b->lanes[n].status == PAWL_DIRECT_LANE_LIVE ||
             b->lanes[n].status == PAWL_DIRECT_LANE_TAKEN) &&
            covers(&b->q, pawl_load_acq_u64(&b->q.lanes[n].announcement), place, any_lap))
            return true;
    return false;
}

/* EMPTY or HELD: a reservation that no living lane announces is over. tail was read, then the word,
 * then the announcements; the CAS is on that same word. In this order it is exact (5.6). */
static void repair(struct pawl_direct_broker *b, uint64_t i, uint64_t w, const struct sight *s)
{
    const struct pawl_direct *q = &b->q;
    bool held = pawl_direct_word_status(w) == PAWL_DIRECT_HELD;
    uint64_t lap_tail = pawl_direct_lap(q, s->tail);
    uint64_t lap = lap_tail + (uint64_t)pawl_direct_lap_past(w, lap_tail);
    uint64_t skips = held ? pawl_direct_word_skips(w) : 0;
    if (held)
        lap -= 1 + skips;
    uint64_t place = lap << q->shift | i;
    if (!held &&
        (w != pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, lap) || (int64_t)(s->tail - place) <= 0)) {
        /* Free. EMPTY with owner or delivery was written by nobody of us. */
        b->turn.strange += (w >> 3 & PAWL_DIRECT_SKIPS_MAX) != 0;
        return;
    }
    if (is_announced(b, place, skips == PAWL_DIRECT_SKIPS_MAX)) {
        b->turn.pinned++;
        return;
    }
    uint64_t next = held ? pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, pawl_direct_word_lap(w))
                         : w + PAWL_DIRECT_LAP_ONE;
    /* Failed: published, passed or skipped meanwhile; the next turn sees what it is then. */
    if (pawl_cas_u64(&pawl_direct_slot(q, i)->word, &w, next)) {
        b->counts.repaired++;
        pawl_direct_gate_wake(&q->shm->writers, 1);
    }
}

/* The word that ends the lease in w: READY for the next delivery, or DEAD. What the queue itself
 * held was counted when it was given back. */
static uint64_t ended_word(const struct pawl_direct *q, uint64_t i, uint64_t w)
{
    uint64_t d = pawl_direct_word_delivery(w), lap = pawl_direct_word_lap(w);
    if (pawl_direct_word_owner(w) == PAWL_DIRECT_OWNER_QUEUE)
        return pawl_direct_word(PAWL_DIRECT_READY, 0, d, lap);
    uint64_t base = pawl_load_rlx_u64(&pawl_direct_slot(q, i)->meta) >> 48;
    uint64_t max = q->shape.attempts_max ? q->shape.attempts_max : PAWL_DIRECT_DELIVERY_MAX;
    if (d >= PAWL_DIRECT_DELIVERY_MAX || d - base >= max)
        return pawl_direct_word(PAWL_DIRECT_DEAD, 0, d, lap);
    return pawl_direct_word(PAWL_DIRECT_READY, 0, d + 1, lap);
}

/* Ends the lease in w as long as only its N moves. */
static bool end_lease(struct pawl_direct_broker *b, uint64_t i, uint64_t w, struct sight *s)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&b->q, i);
    const uint64_t same = PAWL_DIRECT_LAP_ONE - 1;
    for (uint32_t tries = 0; tries < PAWL_DIRECT_RETRIES_MAX; tries++) {
        uint64_t found = w, next = ended_word(&b->q, i, w);
        if (pawl_cas_seq_u64(&slot->word, &found, next)) {
            b->deadlines[i] = 0;
            s->given_back++;
            if (pawl_direct_word_status(next) == PAWL_DIRECT_READY)
                mark_again(b, i);
            return true;
        }
        if ((found & same) != (w & same))
            return false; /* settled or renewed */
        w = found;
    }
    return false;
}

/* How long the lease in w lasts, by the lease word if that belongs to it. */
static uint64_t lease_ms(const struct pawl_direct *q, uint64_t i, uint64_t w)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, i);
    uint64_t lease = pawl_load_rlx_u64(&slot->lease);
    uint64_t position = pawl_load_rlx_u64(&slot->position);
    uint32_t owner = pawl_direct_word_owner(w);
    if (lease >> 52 != owner || (lease >> 42 & 0x3ff) != pawl_direct_word_delivery(w) ||
        (lease >> 26 & 0xffff) != (pawl_direct_lap(q, position) & 0xffff))
        return q->shape.lease_ms;
    uint64_t ms = lease & PAWL_DIRECT_LEASE_ALIVE;
    return owner == PAWL_DIRECT_OWNER_QUEUE ? ms : pawl_min_u64(ms, q->shape.lease_ms_max);
}

/* LEASED or TIMED by who lives, or by the queue. */
static void time_lease(struct pawl_direct_broker *b, uint64_t i, uint64_t w, struct sight *s)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&b->q, i);
    bool timed = pawl_direct_word_status(w) == PAWL_DIRECT_TIMED;
    b->turn.leased += pawl_direct_word_owner(w) != PAWL_DIRECT_OWNER_QUEUE;
    b->turn.delayed += pawl_direct_word_owner(w) == PAWL_DIRECT_OWNER_QUEUE;
    if (timed && b->deadlines[i] != 0) {
        if (s->now > b->deadlines[i] && end_lease(b, i, w, s))
            b->counts.expired++;
        return;
    }
#ifdef PAWL_BUG_DIRECT_EXPIRE_UNTIMED
    /* times a lease without saying so in the word: a renewal goes unseen */
    if (b->deadlines[i] != 0) {
        if (s->now > b->deadlines[i] && end_lease(b, i, w, s))
            b->counts.expired++;
        return;
    }
    timed = true;
#endif
    uint64_t next = w - PAWL_DIRECT_LEASED + PAWL_DIRECT_TIMED;
    if (!timed && !pawl_cas_u64(&slot->word, &w, next))
        return; /* settled, renewed or skipped meanwhile: next turn */
    /* TIMED first, then the time, then the clock: a lease that began or was renewed before TIMED
     * ends later than that long after. */
    uint64_t ms = lease_ms(&b->q, i, w);
    b->turn_ms_min = pawl_min_u64(b->turn_ms_min, ms);
    b->deadlines[i] = pawl_add_sat(b->clock(b->context), ms * 1000000u);
    b->counts.timed++;
}

static void visit_held(struct pawl_direct_broker *b, uint64_t i, uint64_t w, struct sight *s)
{
    uint32_t owner = pawl_direct_word_owner(w);
    if (owner == PAWL_DIRECT_OWNER_QUEUE) {
        time_lease(b, i, w, s);
        return;
    }
    switch (pawl_direct_lane_status(b, owner)) {
    case PAWL_DIRECT_LANE_LIVE:
    case PAWL_DIRECT_LANE_TAKEN:
        time_lease(b, i, w, s);
        break;
    case PAWL_DIRECT_LANE_DEAD:
        /* Only the broker's own turn and skips change it now. */
        if (end_lease(b, i, w, s))
            b->counts.released++;
        break;
    default:
        b->turn.strange++; /* a lane that nobody has */
    }
}

static void visit(struct pawl_direct_broker *b, uint64_t i, struct sight *s)
{
    uint64_t w = pawl_load_acq_u64(&pawl_direct_slot(&b->q, i)->word);
    switch (pawl_direct_word_status(w)) {
    case PAWL_DIRECT_EMPTY:
    case PAWL_DIRECT_HELD:
        repair(b, i, w, s);
        break;
    case PAWL_DIRECT_READY:
        check_mark(b, i, s);
        break;
    case PAWL_DIRECT_LEASED:
    case PAWL_DIRECT_TIMED:
        visit_held(b, i, w, s);
        break;
    case PAWL_DIRECT_DEAD:
        b->turn.dead++;
        break;
    default:
        b->turn.strange++;
    }
}

/* --- the sweep ------------------------------------------------------------------------------- */

static void end_turn(struct pawl_direct_broker *b)
{
    b->counts.ready = b->turn.ready;
    b->counts.leased = b->turn.leased;
    b->counts.delayed = b->turn.delayed;
    b->counts.dead = b->turn.dead;
    b->counts.pinned = b->turn.pinned;
    b->counts.strange = b->turn.strange;
    memset(&b->turn, 0, sizeof b->turn);
    b->lease_ms_min = b->turn_ms_min;
    b->turn_ms_min = b->q.shape.lease_ms;
    b->counts.sweeps++;
    pawl_store_rlx_u64(&b->q.shm->sweeps, b->counts.sweeps);
}

uint64_t pawl_direct_sweep(struct pawl_direct_broker *b, uint64_t slots)
{
    struct sight s = { .now = b->clock(b->context) };
    s.tail = pawl_load_acq_u64(&b->q.shm->tail);
    s.head = pawl_load_acq_u64(&b->q.shm->head);
    slots = pawl_min_u64(slots, b->q.mask + 1);
    for (; slots > 0; slots--) {
        visit(b, b->visited & b->q.mask, &s);
        b->visited++;
        if ((b->visited & b->q.mask) == 0)
            end_turn(b);
    }
    if (b->dead_lanes)
        finish_dead(b);
    return s.given_back;
}

uint64_t pawl_direct_sweep_ms(const struct pawl_direct_broker *b)
{
    uint64_t ms = pawl_min_u64(b->lease_ms_min, b->turn_ms_min) / 8;
    return ms < 1 ? 1 : ms > 1000 ? 1000 : ms;
}

/* --- dead messages --------------------------------------------------------------------------- */

int pawl_direct_dead_next(struct pawl_direct_broker *b, uint64_t *at, uint32_t bytes,
                          struct pawl_direct_delivery *out)
{
    for (; *at <= b->q.mask; (*at)++) {
        struct pawl_direct_slot_shm *slot = pawl_direct_slot(&b->q, *at);
        uint64_t w = pawl_load_acq_u64(&slot->word);
        if (pawl_direct_word_status(w) != PAWL_DIRECT_DEAD)
            continue;
        uint64_t meta = pawl_load_rlx_u64(&slot->meta);
        uint32_t length = (uint32_t)pawl_min_u64((uint32_t)meta, b->q.shape.body_bytes);
        uint64_t d = pawl_direct_word_delivery(w);
        out->length = length;
        out->flags = (uint16_t)(meta >> 32);
        out->attempt = (uint16_t)(d - (meta >> 48));
        out->token = (struct pawl_direct_token){ .position = pawl_load_rlx_u64(&slot->position),
                                                 .delivery = (uint16_t)d };
        if (out->body)
            pawl_copy_out(out->body, slot->body, pawl_min_u64(length, bytes));
        return 1;
    }
    return 0;
}

/* The DEAD word of this message, or 0. */
static uint64_t dead_word(const struct pawl_direct *q, uint64_t position)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, position);
    uint64_t w = pawl_load_acq_u64(&slot->word);
    return pawl_direct_word_status(w) == PAWL_DIRECT_DEAD &&
                   pawl_load_rlx_u64(&slot->position) == position
               ? w
               : 0;
}

int pawl_direct_dead_restore(struct pawl_direct_broker *b, uint64_t position)
{
    struct pawl_direct_slot_shm *slot = pawl_direct_slot(&b->q, position);
    uint64_t w;
    while ((w = dead_word(&b->q, position)) != 0) {
        uint64_t d = pawl_direct_word_delivery(w), lap = pawl_direct_word_lap(w);
        if (d >= PAWL_DIRECT_DELIVERY_MAX)
            return PAWL_E_NOT_SUPPORTED;
        /* base = d: attempts count anew, numbers go on, and no old token fits. Nobody but us
         * changes it while DEAD; if we die here it is DEAD still. */
        uint64_t meta = pawl_load_rlx_u64(&slot->meta) & ((UINT64_C(1) << 48) - 1);
        pawl_store_rlx_u64(&slot->meta, meta | d << 48);
        if (pawl_cas_seq_u64(&slot->word, &w, pawl_direct_word(PAWL_DIRECT_READY, 0, d + 1, lap))) {
            mark_again(b, position & b->q.mask);
            return PAWL_OK;
        }
    }
    return PAWL_E_STATE;
}

int pawl_direct_dead_purge(struct pawl_direct_broker *b, uint64_t position)
{
    uint64_t w;
    while ((w = dead_word(&b->q, position)) != 0)
        if (pawl_cas_seq_u64(&pawl_direct_slot(&b->q, position)->word, &w,
                             pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, pawl_direct_word_lap(w)))) {
            pawl_direct_gate_wake(&b->q.shm->writers, 1);
            return PAWL_OK;
        }
    return PAWL_E_STATE;
}
