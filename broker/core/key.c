/* SPDX-License-Identifier: MIT */
/* Dedup keys (G4): one message a key, in its window and while the message lives.
 *
 *   name     XXH3-128 of the key, seeded by the directory's secret and the queue it was sent to. A
 *            message that goes to another queue when it dies keeps the key where it was.
 *   payload  the block of a message with a key has a word of ours in front of the key: in memory
 *            the number of its entry, in a SEND or MESSAGE record the end of its window.
 *   lives    nothing of the key is in the log but what the message's own record says: there can be
 *            no message without its key, and no key of a live message that a copy forgot.
 *   ends     the entry keeps the last state, and needs that same record from then on: it gets the
 *            home that the message had. Copy-forward writes a KEY, always of a message that ended.
 *   window   whoever finds an entry compares its end with the clock. Over, and its message ended:
 *            there is no such key.
 *
 * A send that is checked holds its entry already, as one of message 0; undo takes it away again. So
 * two sends of one transaction with the same key meet. */
#include "core/core_inner.h"

static uint32_t word_offset(bool ttl) { return ttl ? 8 : 0; }

static uint64_t word_get(const struct pawl_core *core, uint32_t block, bool ttl)
{
    uint64_t word;
    memcpy(&word, (uint8_t *)pawl_payload_at(&core->payload, block) + word_offset(ttl), 8);
    return word;
}

static void word_set(const struct pawl_core *core, uint32_t block, bool ttl, uint64_t word)
{
    memcpy((uint8_t *)pawl_payload_at(&core->payload, block) + word_offset(ttl), &word, 8);
}

void pawl_core_key_name(const struct pawl_core *core, uint64_t queue, const void *key,
                        uint32_t bytes, uint64_t *id, uint64_t *id_high)
{
    struct pawl_hash128 h =
        pawl_hash128(key, bytes, core->options.hash_seed ^ pawl_hash_u64(queue));
    *id = h.low;
    *id_high = h.high;
}

uint64_t pawl_core_key_body(const struct pawl_core *core, const void *body, uint32_t bytes)
{
    return pawl_hash64(body, bytes, core->options.hash_seed);
}

/* --- of a message ---------------------------------------------------------------------------- */

uint32_t pawl_core_key_of(const struct pawl_core *core, const struct pawl_core_message *m)
{
    if (m->key_bytes == 0 || m->payload == 0)
        return 0;
    uint64_t n = word_get(core, m->payload, m->flags & PAWL_MESSAGE_TTL);
    if (n == 0)
        return 0;
    /* Its queue may be gone, and the entry another's by now. */
    const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, (uint32_t)n);
    return e->kind == PAWL_LEDGER_KEY && e->a == m->id ? (uint32_t)n : 0;
}

void pawl_core_key_word(const struct pawl_core *core, uint32_t block, bool ttl, uint64_t word)
{
    word_set(core, block, ttl, word);
}

uint8_t pawl_core_key_state(const struct pawl_core *core, const struct pawl_ledger_entry *e)
{
    if (e->result != PAWL_STATE_NONE)
        return (uint8_t)e->result;
    uint32_t n = e->a ? pawl_table_find(&core->messages_by_id, e->a) : 0;
    if (n == 0)
        return PAWL_STATE_NONE;
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    if (pawl_core_queue_at(core, m->queue)->gone)
        return PAWL_STATE_PURGED; /* it will be, and nobody sees it any more */
    if (pawl_core_message_expired(core, m))
        return PAWL_STATE_EXPIRED;
    bool due = m->state == PAWL_STATE_SCHEDULED && pawl_core_message_due(core, m) <= core->now.time;
    return due ? PAWL_STATE_READY : m->state;
}

void pawl_core_key_end(struct pawl_core *core, struct pawl_core_message *m, uint8_t state)
{
    uint32_t n = pawl_core_key_of(core, m);
    if (n == 0)
        return;
    pawl_core_key_word(core, m->payload, m->flags & PAWL_MESSAGE_TTL, 0);
    struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
    e->result = state;
    if ((core->started && e->c <= core->now.time) || pawl_core_queue_at(core, e->d)->gone) {
        pawl_core_ledger_remove(core, n);
        return;
    }
#ifdef PAWL_BUG_KEY_ENDS_WITH_MESSAGE
    pawl_core_ledger_remove(core, n);
    return;
#endif
    /* Any place in that segment. */
    if (m->home.segment)
        pawl_core_ledger_home(core, n,
                              ((uint64_t)(m->home.segment - 1) << core->segment_shift) + 1);
}

/* --- a send ---------------------------------------------------------------------------------- */

bool pawl_core_key_valid(const struct pawl_core *core, const struct pawl_ledger_entry *e)
{
    return core->now.time < e->c || !pawl_core_terminal(pawl_core_key_state(core, e));
}

int pawl_core_key_look(struct pawl_core *core, uint64_t id, uint64_t id_high, uint64_t body,
                       uint32_t *entry)
{
    *entry = pawl_core_ledger_find(core, PAWL_LEDGER_KEY, id, id_high);
    if (*entry == 0)
        return PAWL_OK;
    const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, *entry);
    if (!pawl_core_key_valid(core, e))
        return PAWL_OK;
#ifdef PAWL_BUG_WINDOW_PROLONGED
    pawl_ledger_at(&core->ledger, *entry)->c = core->now.time + 600 * PAWL_NS_S;
#endif
#ifdef PAWL_BUG_KEY_BODY_IGNORED
    body = e->b;
#endif
    if (e->b == body) {
        core->ledger.duplicates++;
        return PAWL_OK_DUPLICATE;
    }
    core->ledger.mismatches++;
    return PAWL_E_KEY_MISMATCH;
}

uint32_t pawl_core_key_hold(struct pawl_core *core, const struct pawl_core_queue *q, uint64_t id,
                            uint64_t id_high, uint64_t body, uint32_t over)
{
    /* What is over is there for nobody; it may be this very name. */
    if (over)
        pawl_core_ledger_remove(core, over);
    const struct pawl_ledger_entry e = {
        .id = id,
        .id_high = id_high,
        .b = body,
        .c = pawl_add_sat(core->now.time, q->dedup_window_ns),
        .d = q->number,
        .kind = PAWL_LEDGER_KEY,
    };
    return pawl_core_ledger_insert(core, &e);
}

void pawl_core_ahead(struct pawl_core *core, const void *record, uint32_t bytes)
{
    struct pawl_ledger *l = &core->ledger;
    if (l->ahead) /* of the record before this one; its bucket has come */
        pawl_table_prefetch_entry(&l->table, l->ahead);
    l->ahead = 0;
    struct pawl_cmd_send c;
    uint8_t key[PAWL_KEY_BYTES_MAX];
    if (bytes < sizeof c)
        return;
    memcpy(&c, record, sizeof c);
    uint32_t at = (uint32_t)sizeof c;
    at += c.flags & PAWL_SEND_TIMES ? (uint32_t)sizeof(struct pawl_cmd_send_times) : 0;
    if (c.head.type != PAWL_CMD_SEND || c.key_bytes == 0 || at + c.key_bytes > bytes)
        return;
    memcpy(key, (const uint8_t *)record + at, c.key_bytes);
    uint64_t high;
    pawl_core_key_name(core, c.queue, key, c.key_bytes, &l->ahead, &high);
    pawl_table_prefetch(&l->table, l->ahead);
}

/* --- replay ---------------------------------------------------------------------------------- */

static int put(struct pawl_core *core, struct pawl_ledger_entry *e, uint32_t *n)
{
    *n = pawl_core_ledger_find(core, PAWL_LEDGER_KEY, e->id, e->id_high);
    if (*n)
        pawl_core_ledger_remove(core, *n); /* over before the record that names it again */
    *n = pawl_core_ledger_insert(core, e);
    return *n ? 0 : -1;
}

int pawl_core_key_restore(struct pawl_core *core, uint64_t queue, uint64_t id, uint32_t block,
                          bool ttl, uint32_t key_bytes, uint32_t body_offset, uint32_t body_bytes)
{
    const uint8_t *p = pawl_payload_at(&core->payload, block);
    const struct pawl_core_queue *q = queue ? pawl_core_queue_known(core, queue) : NULL;
    struct pawl_ledger_entry e = { .a = id,
                                   .b = pawl_core_key_body(core, p + body_offset, body_bytes),
                                   .c = word_get(core, block, ttl),
                                   .kind = PAWL_LEDGER_KEY };
    word_set(core, block, ttl, 0);
    if (queue && !q)
        return -1;
    if (!q || q->gone)
        return 0; /* of a queue that is gone: nobody can send there */
    pawl_core_key_name(core, queue, p + word_offset(ttl) + 8, key_bytes, &e.id, &e.id_high);
    e.d = q->number;
    uint32_t n;
    if (put(core, &e, &n) != 0)
        return -1;
    word_set(core, block, ttl, n);
    return 0;
}

int pawl_core_key_fact(struct pawl_core *core, const struct pawl_key_rec *r, uint64_t lsn)
{
    const struct pawl_core_queue *q = pawl_core_queue_known(core, r->queue);
    if (!q)
        return -1;
    if (q->gone)
        return 0;
    struct pawl_ledger_entry e = {
        .id = r->id,
        .id_high = r->id_high,
        .a = r->message,
        .b = r->body,
        .c = r->end,
        .d = q->number,
        .result = (int16_t)r->state,
        .kind = PAWL_LEDGER_KEY,
    };
    uint32_t n;
    if (put(core, &e, &n) != 0)
        return -1;
    pawl_core_ledger_home(core, n, lsn);
    return 0;
}

/* --- copy-forward ---------------------------------------------------------------------------- */

bool pawl_core_key_needed(const struct pawl_core *core, const struct pawl_ledger_entry *e)
{
#ifdef PAWL_BUG_KEY_NOT_COPIED
    return false;
#endif
    return e->c > core->now.time && !pawl_core_queue_at(core, e->d)->gone;
}

void pawl_core_key_rec(const struct pawl_core *core, const struct pawl_ledger_entry *e,
                       struct pawl_key_rec *out)
{
    *out = (struct pawl_key_rec){
        .queue = pawl_core_queue_at(core, e->d)->id,
        .id = e->id,
        .id_high = e->id_high,
        .message = e->a,
        .body = e->b,
        .end = e->c,
        .state = (uint32_t)e->result,
    };
}
