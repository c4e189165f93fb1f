/* SPDX-License-Identifier: MIT */
/* The send that nearly all are: without headers, times and order, to a queue that has room; with a
 * key only if nobody has used it yet.
 *
 * It does what send.c does, with the same record and the same state after it, but checks and does
 * in one go: nothing is looked up twice, the record is made where it belongs, and of a memory queue
 * none is made. Whatever is not of that kind, also every refusal, is left to send.c before anything
 * was touched. */
#include "core/core_inner.h"
#include "core/hot.h"

/* The largest record that may be made of it, beside its body. */
#define FACT_BYTES \
    (sizeof(struct pawl_message_rec) + 24 + PAWL_REASON_BYTES_MAX + PAWL_PROGRESS_BYTES_MAX)

/* Mostly the one that this lane sent to before. NULL: for send.c. */
static inline struct pawl_core_queue *queue_of(const struct pawl_take *t, uint64_t id)
{
    struct pawl_core *core = t->core;
    uint32_t n = t->lane->sends_to;
    struct pawl_core_queue *q = pawl_core_queue_at(core, n);
    if (n == 0 || q->number != n || q->id != id) {
        n = id ? pawl_table_find(&core->queues_by_id, id) : 0;
        if (n == 0)
            return NULL;
        t->lane->sends_to = n;
        q = pawl_core_queue_at(core, n);
    }
    const struct pawl_core_peer *peer = &t->session->peer;
    bool may = !q->gone && q->options.mode != PAWL_TABLE && q->options.mode != PAWL_DIRECT &&
               pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_SEND);
    return may ? q : NULL;
}

/* bytes: with its key. */
static inline bool fits(const struct pawl_core *core, const struct pawl_core_queue *q,
                        const struct pawl_cmd_send *c, uint32_t bytes)
{
#ifdef PAWL_BUG_SIMPLE_SEND_PAST_LIMIT
    if (pawl_core_queue_live(q) >= q->messages_max)
        return true;
#endif
    if (q->options.ttl_ns || (q->options.flags & PAWL_QUEUE_ORDERED) ||
        c->body_bytes > q->message_bytes_max ||
        pawl_core_queue_live(q) + q->checked >= q->messages_max ||
        q->bytes + q->checked_bytes + bytes > q->bytes_max)
        return false;
    uint64_t record = core->options.record_bytes_max;
    return !pawl_core_queue_logged(q) ||
           (core->refuse == 0 && (record == 0 || bytes + FACT_BYTES <= record));
}

/* Made where it belongs; nothing else is appended meanwhile. */
static inline uint64_t record(const struct pawl_take *t, const struct pawl_core_queue *q,
                              const struct pawl_core_message *m, uint32_t key)
{
    struct pawl_core *core = t->core;
    uint64_t lsn, open = t->seq > t->lane->oldest ? t->seq - t->lane->oldest : 0;
    pawl_core_lane_log(core, t->lane);
    uint32_t bytes = pawl_core_message_payload_bytes(m);
    struct pawl_send_rec *r =
        pawl_core_append(core, PAWL_RECORD_SEND, (uint32_t)sizeof *r + bytes, &lsn);
    r->op.session = t->session->id;
    r->op.seq = t->seq;
    r->op.lane = (uint16_t)t->lane->lane;
    r->op.open = (uint16_t)pawl_min_u64(open, UINT16_MAX);
    r->op.extra = m->body_bytes;
    r->queue = q->id;
    r->id = m->id;
    r->place = m->place;
    r->sent_wall = m->sent_wall;
    r->headers_bytes = 0;
    r->key_bytes = m->key_bytes;
    r->ordering_key_bytes = 0;
    r->priority = m->priority;
    r->flags = 0;
    r->reserved[0] = r->reserved[1] = 0;
    if (m->payload)
        memcpy(r + 1, pawl_payload_at(&core->payload, m->payload), bytes);
#ifndef PAWL_BUG_SIMPLE_KEY_NO_WINDOW
    if (key) /* our word: there the end of its window */
        memcpy(r + 1, &pawl_ledger_at(&core->ledger, key)->c, 8);
#endif
    return lsn;
}

/* The newest of all, so it is the last of its level, but for what was forwarded. */
static inline void ready(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                         struct pawl_core_message *m)
{
    m->state = PAWL_STATE_READY;
    core->messages_live++;
    q->ready_count++;
    pawl_core_ready_insert(core, q, n);
    pawl_core_watched(core, m, PAWL_STATE_READY);
}

/* The one copy, with room for our word in front of a key. False: no memory. */
static inline bool copy(const struct pawl_take *t, const struct pawl_cmd_send *c, uint32_t bytes,
                        uint32_t *block)
{
    struct pawl_payload *p = &t->core->payload;
    uint32_t own = c->key_bytes ? 8 : 0;
    *block = 0;
    if (bytes == 0)
        return true;
    *block = pawl_payload_take(p, own + bytes);
    if (*block)
        memcpy((uint8_t *)pawl_payload_at(p, *block) + own, t->variable, bytes);
    return *block != 0;
}

/* The entry of its key, held; 0: somebody has used the key, or there is no room for it. */
static uint32_t hold(struct pawl_core *core, const struct pawl_core_queue *q,
                     const struct pawl_cmd_send *c, uint32_t block)
{
    const uint8_t *key = (const uint8_t *)pawl_payload_at(&core->payload, block) + 8;
    uint64_t id, high;
    pawl_core_key_name(core, q->id, key, c->key_bytes, &id, &high);
    pawl_core_ledger_prefetch(core, PAWL_LEDGER_KEY, id, high);
    uint64_t body = pawl_core_key_body(core, key + c->key_bytes, c->body_bytes);
    if (pawl_core_ledger_find(core, PAWL_LEDGER_KEY, id, high) != 0 ||
        pawl_core_ledger_ready(core, PAWL_LEDGER_KEY, 1) != PAWL_LIMIT_NONE)
        return 0;
    uint32_t n = pawl_core_key_hold(core, q, id, high, body, 0);
    pawl_core_key_word(core, block, false, n);
    return n;
}

static inline void fill(struct pawl_core *core, struct pawl_core_queue *q,
                        const struct pawl_cmd_send *c, uint32_t block, struct pawl_core_message *m)
{
    m->id = pawl_core_new_id(core);
    m->place = q->place = pawl_max_u64(core->now.time, q->place + 1);
    m->sent_wall = core->now.wall;
    m->queue = q->number;
    m->payload = block;
    m->body_bytes = c->body_bytes;
    m->key_bytes = c->key_bytes;
    m->priority = c->priority;
}

bool pawl_core_send_simple(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_send *c = t->fixed;
    if (c->flags || c->ordering_key_bytes || c->headers_bytes || c->priority >= PAWL_PRIORITIES ||
        core->group.wanted)
        return false;
    struct pawl_core_queue *q = queue_of(t, c->queue);
    uint32_t block, key = 0, bytes = c->body_bytes + c->key_bytes;
    if (!q || !fits(core, q, c, bytes) || !pawl_pool_ready(&core->messages, 1) ||
        !copy(t, c, bytes, &block))
        return false;
    if (c->key_bytes) {
        key = hold(core, q, c, block);
        if (key == 0) {
            pawl_payload_give(&core->payload, block, 8 + bytes);
            return false;
        }
    }
    uint32_t n = pawl_pool_take(&core->messages);
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    fill(core, q, c, block, m);
    if (key)
        pawl_ledger_at(&core->ledger, key)->a = m->id;
    uint64_t lsn = 0;
    if (pawl_core_queue_logged(q)) {
        lsn = record(t, q, m, key);
        core->live += pawl_core_message_live_bytes(core, m);
    }
    pawl_table_insert(&core->messages_by_id, m->id, n);
    q->bytes += bytes;
    q->counters.sent++;
    core->sends++;
    ready(core, q, n, m);
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, lsn);
    pawl_core_lane_answer(core, t->lane, t->seq, PAWL_OK, m->id, lsn, pawl_core_queue_wait(core, q),
                          PAWL_ANSWER_VALUES_RUN);
    return true;
}
