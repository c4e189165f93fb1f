/* SPDX-License-Identifier: MIT */
/* The bytes of completions, written when they are due; and what is true after that. */
#include "core/core_inner.h"

/* A data buffer begins with its length, so that it can be given back by its number alone. */
uint32_t pawl_core_data_buffer(struct pawl_core *core, uint32_t bytes, uint8_t **data)
{
    PAWL_ASSERT_REL(bytes, <=, PAWL_DATA_BYTES_MAX);
    pawl_core_memory_open(core);
    uint32_t block = pawl_payload_take(&core->payload, 8 + bytes);
    pawl_core_memory_close(core);
    if (block == 0)
        return 0;
    uint8_t *p = pawl_payload_at(&core->payload, block);
    uint32_t lengths[2] = { bytes, bytes };
    memcpy(p, lengths, sizeof lengths);
    *data = p + 8;
    return block;
}

void pawl_core_data_shrink(struct pawl_core *core, uint32_t block, uint32_t bytes)
{
    uint8_t *p = pawl_payload_at(&core->payload, block);
    memcpy(p + 4, &bytes, 4);
}

/* Written in place: the ring is aligned, and a struct that is built elsewhere and copied waits for
 * its own stores. */
static void write_answer(const struct pawl_effect *e, struct pawl_comp_answer *a)
{
    a->bytes = sizeof *a;
    a->type = PAWL_COMP_ANSWER;
    a->count_minus_1 = 0;
    a->seq = e->seq;
    a->value = e->value;
    a->lsn = e->lsn;
    a->result = e->result;
    a->flags = e->flags;
}

static void write_data(const struct pawl_core *core, const struct pawl_effect *e, uint8_t *out)
{
    const uint8_t *p = pawl_payload_at(&core->payload, e->data);
    uint32_t bytes;
    memcpy(&bytes, p + 4, sizeof bytes);
    PAWL_ASSERT_REL(sizeof(struct pawl_comp_data) + bytes, <=, e->bytes);
    const struct pawl_comp_data d = {
        .bytes = e->bytes,
        .type = PAWL_COMP_DATA,
        .seq = e->seq,
        .value = e->value,
        .lsn = e->lsn,
        .result = e->result,
        .data_bytes = bytes,
    };
    memcpy(out, &d, sizeof d);
    memcpy(out + sizeof d, p + 8, bytes);
    memset(out + sizeof d + bytes, 0, e->bytes - sizeof d - bytes);
}

/* Token and deadline: of a lease in force, of an at-most-once delivery, or of one that is over. */
static void write_lease(struct pawl_core *core, const struct pawl_core_message *m,
                        struct pawl_comp_delivery *d, uint64_t shift)
{
    d->random = 0;
    d->lease_kind = 0;
    d->deadline = 1; /* over: the library does not hand it out */
    d->sent_wall_ns = m->sent_wall;
    if (m->grant != d->grant)
        return;
    if (m->state == PAWL_STATE_ACKED) {
        d->deadline = 0; /* at most once */
        d->sent_wall_ns = 0;
    } else if (m->state == PAWL_STATE_LEASED) {
        struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
        d->random = l->random;
        d->lease_kind = l->kind;
        d->deadline = UINT64_MAX;
        if (l->kind == PAWL_LEASE_HELD)
            return;
        /* Time runs from now on. */
        l->deadline = pawl_add_sat(core->now.time, l->lease_ns);
        /* The shift wraps where pawl time is behind the boot clock, as in a new log. */
        d->deadline = l->deadline - shift;
    }
}

/* Of the lease that this delivery is of: until it is over its progress stays, so there is room. */
static uint32_t write_progress(const struct pawl_core *core, const struct pawl_core_message *m,
                               struct pawl_comp_delivery *d, uint8_t *out, uint32_t room)
{
    if (m->state != PAWL_STATE_LEASED || m->grant != d->grant)
        return 0;
    const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    if (l->progress_bytes == 0)
        return 0;
    PAWL_ASSERT_REL(l->progress_bytes, <=, room);
    memcpy(out, pawl_payload_at(&core->payload, l->progress), l->progress_bytes);
    d->progress_bytes = l->progress_bytes;
    return l->progress_bytes;
}

static void write_delivery(struct pawl_core *core, const struct pawl_effect *e,
                           struct pawl_comp_delivery *d, uint64_t shift)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, e->message);
    const struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    d->bytes = e->bytes;
    d->type = PAWL_COMP_DELIVERY;
    d->priority = m->priority;
    d->seq = e->seq;
    d->queue = q->id;
    d->message = m->id;
    d->grant = e->value;
    d->acquired = m->acquired;
    d->failed = (uint32_t)m->expired + m->nacked;
    d->crashed = m->crashed;
    d->expired = m->expired;
    d->nacked = m->nacked;
    d->body_bytes = m->body_bytes;
    d->headers_bytes = m->headers_bytes;
    d->key_bytes = m->key_bytes;
    d->ordering_key_bytes = m->ordering_key_bytes;
    d->mode = (uint8_t)q->options.mode;
    d->reserved = 0;
    d->progress_bytes = 0;
    write_lease(core, m, d, shift);
    uint8_t *out = (uint8_t *)(d + 1);
    uint32_t bytes = e->bytes - (uint32_t)sizeof *d;
    uint32_t have = pawl_core_message_content_bytes(m);
    PAWL_ASSERT_REL(have, <=, bytes);
    if (have) {
        uint32_t skip = pawl_core_message_own_bytes(m);
        memcpy(out, (uint8_t *)pawl_payload_at(&core->payload, m->payload) + skip, have);
    }
    have += write_progress(core, m, d, out + have, bytes - have);
    memset(out + have, 0, bytes - have);
}

void pawl_core_effect_write(struct pawl_core *core, const struct pawl_effect *effect, void *out,
                            uint64_t deadline_shift)
{
    switch (effect->type) {
    case PAWL_EFFECT_ANSWER:
        write_answer(effect, out);
        break;
    case PAWL_EFFECT_DATA:
        if (PAWL_UNLIKELY(effect->message != 0))
            pawl_core_idem_published(
                core, effect->message, effect->value,
                (void *)((uint8_t *)pawl_payload_at(&core->payload, effect->data) + 8));
        write_data(core, effect, out);
        break;
    default:
        write_delivery(core, effect, out, deadline_shift);
        break;
    }
}

/* Dropped with the rings it was for; the lane has others by now, and it is on its way there. */
static bool emitted_again(const struct pawl_core *core, const struct pawl_core_lease *l,
                          uint32_t handle)
{
    if (l->session == 0)
        return false;
    const struct pawl_core_session *s = pawl_core_session_at(core, l->session);
    const struct pawl_core_lane *lane =
        s->lanes[l->lane] ? pawl_core_lane_at(core, s->lanes[l->lane]) : NULL;
    return lane && lane->handle != PAWL_NO_HANDLE && lane->handle != handle;
}

/* Its client has closed the lane, so nobody will ever see this delivery: it need not wait for the
 * end of the lease. */
static bool lane_closed(const struct pawl_core *core, const struct pawl_core_lease *l)
{
    if (l->session == 0)
        return false;
    const struct pawl_core_session *s = pawl_core_session_at(core, l->session);
    if (s->state != PAWL_SESSION_LIVE || s->lanes[l->lane] == 0)
        return false;
    const struct pawl_core_lane *lane = pawl_core_lane_at(core, s->lanes[l->lane]);
    return lane->handle == PAWL_NO_HANDLE && lane->opened_epoch == s->epoch;
}

static void delivery_done(struct pawl_core *core, const struct pawl_effect *e, bool published,
                          uint64_t position)
{
    struct pawl_core_message *m = pawl_core_message_at(core, e->message);
    pawl_core_message_unpin(core, e->message);
    if (m->state != PAWL_STATE_LEASED || m->grant != e->value)
        return;
    struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    if (l->position != PAWL_POSITION_PENDING || (!published && emitted_again(core, l, e->lane)))
        return;
    if (!published && l->kind != PAWL_LEASE_HELD)
        l->deadline = pawl_add_sat(core->now.time, l->lease_ns);
    l->position = published ? position : PAWL_POSITION_NONE;
    /* Most have no timer yet, and find a row. */
    bool plain =
        m->timer == 0 && l->row == 0 && !(m->flags & PAWL_MESSAGE_TTL) && l->deadline != UINT64_MAX;
    if (!plain || !pawl_core_ends_enter(core, m->lease, l->deadline))
        pawl_core_message_timer(core, e->message);
    if (!published && lane_closed(core, l)) {
        l->position = PAWL_POSITION_BACK;
        pawl_core_message_timer_now(core, e->message); /* does it when there is room */
    }
}

void pawl_core_effect_done(struct pawl_core *core, const struct pawl_effect *effect, bool published,
                           uint64_t position)
{
    if (effect->type == PAWL_EFFECT_DELIVERY) {
        delivery_done(core, effect, published, position);
    } else if (effect->type == PAWL_EFFECT_DATA) {
        const uint8_t *p = pawl_payload_at(&core->payload, effect->data);
        uint32_t bytes;
        memcpy(&bytes, p, sizeof bytes);
        pawl_payload_give(&core->payload, effect->data, 8 + bytes);
        if (PAWL_UNLIKELY(effect->message != 0) && !published)
            pawl_core_idem_dropped(core, effect->message, effect->value);
    }
}
