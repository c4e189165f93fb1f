/* SPDX-License-Identifier: MIT */
/* The memory of a direct queue: its shape, its making, its opening. */
#include "abi/direct.h"

#include "base/bits.h"
#include "base/hash.h"
#include "pawl.h"

struct extent {
    uint64_t lanes, marks, slots, bytes; /* offsets, and the whole */
    uint32_t stride, mark_words;
};

static struct extent extent_of(const struct pawl_direct_shape *s)
{
    struct extent e;
    e.stride =
        (uint32_t)pawl_align_up(sizeof(struct pawl_direct_slot_shm) + (uint64_t)s->body_bytes, 64);
    e.mark_words = s->capacity < 32 ? 1 : s->capacity / 32;
    e.lanes = sizeof(struct pawl_direct_shm);
    e.marks = e.lanes + (s->lanes + UINT64_C(1)) * sizeof(struct pawl_direct_lane_shm);
    e.slots = pawl_align_up(e.marks + e.mark_words * UINT64_C(8), PAWL_LINE);
    e.bytes = pawl_align_up(e.slots + (uint64_t)s->capacity * e.stride, 4096);
    return e;
}

int pawl_direct_shape_check(const struct pawl_direct_shape *s)
{
    if (!pawl_is_pow2(s->capacity) || s->capacity < PAWL_DIRECT_CAPACITY_MIN ||
        s->capacity > PAWL_DIRECT_CAPACITY_MAX || s->body_bytes > PAWL_DIRECT_BODY_MAX ||
        s->lanes < 1 || s->lanes > PAWL_DIRECT_LANES_MAX ||
        s->attempts_max > PAWL_DIRECT_DELIVERY_MAX || s->lease_ms < 1 ||
        s->lease_ms > s->lease_ms_max || s->lease_ms_max > PAWL_DIRECT_LEASE_MS_MAX)
        return PAWL_E_INVALID;
    return extent_of(s).bytes > PAWL_DIRECT_BYTES_MAX ? PAWL_E_TOO_BIG : PAWL_OK;
}

uint64_t pawl_direct_bytes(const struct pawl_direct_shape *shape) { return extent_of(shape).bytes; }

#define F(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)
static const uint64_t facts[] = {
    PAWL_DIRECT_MAGIC,
    PAWL_DIRECT_VERSION,
    PAWL_DIRECT_OWNER_QUEUE,
    PAWL_DIRECT_RANGE_MAX,
    PAWL_DIRECT_DELIVERY_MAX,
    PAWL_DIRECT_LEASE_ALIVE,
    PAWL_DIRECT_LAP_SHIFT,
    PAWL_DIRECT_EMPTY,
    PAWL_DIRECT_HELD,
    PAWL_DIRECT_READY,
    PAWL_DIRECT_LEASED,
    PAWL_DIRECT_TIMED,
    PAWL_DIRECT_DEAD,
    PAWL_DIRECT_OPEN,
    PAWL_DIRECT_CLOSED,
    PAWL_LINE,
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
    sizeof(struct pawl_direct_shm),
    F(pawl_direct_shm, shape),
    F(pawl_direct_shm, tail),
    F(pawl_direct_shm, head),
    F(pawl_direct_shm, look),
    F(pawl_direct_shm, readers),
    F(pawl_direct_shm, writers),
    F(pawl_direct_shm, state),
    F(pawl_direct_shm, reason),
    F(pawl_direct_shm, broker_epoch),
    F(pawl_direct_shm, sweeps),
    F(pawl_direct_shape, capacity),
    F(pawl_direct_shape, body_bytes),
    F(pawl_direct_shape, lanes),
    F(pawl_direct_shape, attempts_max),
    F(pawl_direct_shape, lease_ms),
    F(pawl_direct_shape, lease_ms_max),
    F(pawl_direct_shape, id),
    F(pawl_direct_shape, first),
    sizeof(struct pawl_direct_lane_shm),
    F(pawl_direct_lane_shm, status),
    F(pawl_direct_lane_shm, generation),
    F(pawl_direct_lane_shm, announcement),
    F(pawl_direct_lane_shm, session),
    F(pawl_direct_slot_shm, word),
    F(pawl_direct_slot_shm, lease),
    F(pawl_direct_slot_shm, position),
    F(pawl_direct_slot_shm, meta),
    offsetof(struct pawl_direct_slot_shm, body),
};
#undef F

uint64_t pawl_direct_fingerprint(void) { return pawl_hash64(facts, sizeof facts, 0); }

/* Plain stores of what nobody else has yet would do; the words keep their one way in. */
void pawl_direct_init(void *memory, const struct pawl_direct_shape *shape)
{
    struct pawl_direct_shm *shm = memory;
    struct extent e = extent_of(shape);
    uint32_t shift = (uint32_t)__builtin_ctz(shape->capacity);
    uint64_t lap = shape->first >> shift, into = shape->first & (shape->capacity - 1);

    shm->magic = PAWL_DIRECT_MAGIC;
    shm->version = PAWL_DIRECT_VERSION;
    shm->fingerprint = pawl_direct_fingerprint();
    shm->shape = *shape;
    shm->tail = shm->head = shape->first;
    for (uint64_t i = 0; i < shape->capacity; i++) {
        struct pawl_direct_slot_shm *slot =
            (struct pawl_direct_slot_shm *)(void *)((char *)memory + e.slots + i * e.stride);
        slot->word = pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, lap + (i < into));
    }
}

int pawl_direct_open(struct pawl_direct *q, void *memory, uint64_t bytes,
                     const struct pawl_direct_shape *expected)
{
    struct pawl_direct_shm *shm = memory;
    if (bytes < sizeof *shm || shm->magic != PAWL_DIRECT_MAGIC)
        return PAWL_E_QUEUE_DAMAGED;
    if (shm->version != PAWL_DIRECT_VERSION || shm->fingerprint != pawl_direct_fingerprint())
        return PAWL_E_ABI;
    /* A copy first: the memory may say something else at a second look (M7). */
    struct pawl_direct_shape shape;
    pawl_copy_out(&shape, &shm->shape, sizeof shape);
    if (expected && memcmp(&shape, expected, sizeof shape) != 0)
        return PAWL_E_QUEUE_DAMAGED;
    if (expected)
        shape = *expected;
    if (pawl_direct_shape_check(&shape) != PAWL_OK || pawl_direct_bytes(&shape) != bytes)
        return PAWL_E_QUEUE_DAMAGED;
    struct extent e = extent_of(&shape);
    uint32_t shift = (uint32_t)__builtin_ctz(e.mark_words);
    *q = (struct pawl_direct){
        .shm = shm,
        .lanes = (struct pawl_direct_lane_shm *)(void *)((char *)memory + e.lanes),
        .marks = (uint64_t *)(void *)((char *)memory + e.marks),
        .slots = (uint8_t *)memory + e.slots,
        .mask = shape.capacity - 1,
        .shift = (uint32_t)__builtin_ctz(shape.capacity),
        .stride = e.stride,
        .mark_words = e.mark_words,
        .look_shift = shift > 5 ? shift - 5 : 0,
        .shape = shape,
    };
    return PAWL_OK;
}

int pawl_direct_state(const struct pawl_direct *q)
{
    if (pawl_load_acq_u32(&q->shm->state) != PAWL_DIRECT_CLOSED)
        return PAWL_OK;
    int32_t reason = (int32_t)pawl_load_rlx_u32((const uint32_t *)(const void *)&q->shm->reason);
    return reason < 0 ? reason : PAWL_E_QUEUE_GONE;
}

void pawl_direct_close(struct pawl_direct *q, int reason)
{
    pawl_store_rlx_u32((uint32_t *)(void *)&q->shm->reason, (uint32_t)reason);
    pawl_store_rel_u32(&q->shm->state, PAWL_DIRECT_CLOSED);
    pawl_direct_gate_wake_all(&q->shm->readers);
    pawl_direct_gate_wake_all(&q->shm->writers);
}

int pawl_direct_lane_init(struct pawl_direct_lane *lane, const struct pawl_direct *q,
                          uint32_t number)
{
    if (number < 1 || number > q->shape.lanes)
        return PAWL_E_INVALID;
    memset(lane, 0, sizeof *lane);
    lane->q = *q;
    lane->owner = number;
    lane->announcement = &q->lanes[number].announcement;
    lane->head = pawl_load_acq_u64(&q->shm->head);
    lane->resume = lane->known = lane->ask = lane->head;
    lane->ready = ~UINT64_C(0);
    lane->patience = PAWL_DIRECT_PATIENCE;
    lane->copy_first_max = PAWL_DIRECT_COPY_FIRST_MAX;
    return PAWL_OK;
}
