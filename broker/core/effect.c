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

static void write_answer(const struct pawl_effect *e, void *out)
{
    const struct pawl_comp_answer a = {
        .bytes = sizeof a,
        .type = PAWL_COMP_ANSWER,
        .seq = e->seq,
        .value = e->value,
        .lsn = e->lsn,
        .result = e->result,
        .flags = e->flags,
    };
    memcpy(out, &a, sizeof a);
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

static void write_delivery(struct pawl_core *core, const struct pawl_effect *e, uint8_t *out,
                           uint64_t shift)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, e->message);
    struct pawl_comp_delivery d = {
        .bytes = e->bytes,
        .type = PAWL_COMP_DELIVERY,
        .priority = m->priority,
        .seq = e->seq,
        .message = m->id,
        .grant = e->value,
        .deadline = 1, /* over: the library does not hand it out */
        .sent_wall_ns = m->sent_wall,
        .acquired = m->acquired,
        .failed = (uint32_t)m->expired + m->nacked,
        .crashed = m->crashed,
        .expired = m->expired,
        .nacked = m->nacked,
        .body_bytes = m->body_bytes,
        .headers_bytes = m->headers_bytes,
        .key_bytes = m->key_bytes,
        .ordering_key_bytes = m->ordering_key_bytes,
    };
    uint32_t skip = m->flags & PAWL_MESSAGE_TTL ? 8 : 0;
    const struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    d.queue = q->id;
    d.mode = (uint8_t)q->options.mode;
    if (m->state == PAWL_STATE_ACKED && m->grant == e->value) {
        d.deadline = 0; /* at most once */
        d.sent_wall_ns = 0;
    } else if (m->state == PAWL_STATE_LEASED && m->grant == e->value) {
        struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
        d.random = l->random;
        d.lease_kind = l->kind;
        if (l->kind == PAWL_LEASE_HELD)
            d.deadline = UINT64_MAX;
        else {
            /* Time runs from now on. */
            l->deadline = pawl_add_sat(core->now.time, l->lease_ns);
            /* The shift wraps where pawl time is behind the boot clock, as in a new log. */
            d.deadline = l->deadline - shift;
        }
    }
    memcpy(out, &d, sizeof d);
    uint32_t bytes = e->bytes - (uint32_t)sizeof d;
    uint32_t have = pawl_core_message_payload_bytes(m) - skip;
    PAWL_ASSERT_REL(have, <=, bytes);
    if (have)
        memcpy(out + sizeof d, (uint8_t *)pawl_payload_at(&core->payload, m->payload) + skip, have);
    memset(out + sizeof d + have, 0, bytes - have);
}

void pawl_core_effect_write(struct pawl_core *core, const struct pawl_effect *effect, void *out,
                            uint64_t deadline_shift)
{
    switch (effect->type) {
    case PAWL_EFFECT_ANSWER:
        write_answer(effect, out);
        break;
    case PAWL_EFFECT_DATA:
        write_data(core, effect, out);
        break;
    default:
        write_delivery(core, effect, out, deadline_shift);
        break;
    }
}

static void delivery_done(struct pawl_core *core, const struct pawl_effect *e, bool published,
                          uint64_t position)
{
    struct pawl_core_message *m = pawl_core_message_at(core, e->message);
    pawl_core_message_unpin(core, e->message);
    if (m->state != PAWL_STATE_LEASED || m->grant != e->value)
        return;
    struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    if (l->position != PAWL_POSITION_PENDING)
        return;
    if (!published && l->kind != PAWL_LEASE_HELD)
        l->deadline = pawl_add_sat(core->now.time, l->lease_ns);
    pawl_core_message_timer(core, e->message);
    l->position = published ? position : PAWL_POSITION_NONE;
    if (published || l->session == 0 || l->seq == 0)
        return;
    /* Dropped with the rings it was for; if the lane has others by now, it goes there. */
    const struct pawl_core_session *s = pawl_core_session_at(core, l->session);
    struct pawl_core_lane *lane =
        s->lanes[l->lane] ? pawl_core_lane_at(core, s->lanes[l->lane]) : NULL;
    if (!lane || lane->handle == PAWL_NO_HANDLE || lane->handle == e->lane)
        return;
    l->position = PAWL_POSITION_AGAIN;
    if (!pawl_core_deliver_again(core, lane, l))
        lane->blocked = true;
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
    }
}
