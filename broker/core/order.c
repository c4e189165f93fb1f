/* SPDX-License-Identifier: MIT */
/* Ordering keys: of the messages of a key one is with a receiver at a time, in order of place.
 *
 *   - an entry a key and queue, as long as a message of it lives; in memory alone: recovery makes
 *     it anew from the messages
 *   - a message *holds* its key while it is leased and while it waits for its retry; a deferred one
 *     may have let go of it
 *   - of the ready ones the smallest place is the head: it stands in READY, where receivers find
 *     it, or, while the key is held, in the queue's `blocked`, where only counts and purges look;
 *     the others are in the entry's `rest`
 *   - each move of a message ends with pawl_core_order_settle(), which makes the above true again
 *
 * A live core has one holder at most. A replay may count more: that a retry became due has no
 * record, so one that was granted since is beside one that seems to wait. */
#include "core/core_inner.h"

static struct pawl_hash128 hash(const struct pawl_core *core, const struct pawl_core_message *m)
{
    uint8_t text[8 + PAWL_KEY_BYTES_MAX];
    uint64_t queue = pawl_core_queue_at(core, m->queue)->id;
    memcpy(text, &queue, sizeof queue);
    if (m->ordering_key_bytes) {
        const uint8_t *p = pawl_payload_at(&core->payload, m->payload);
        p += pawl_core_message_own_bytes(m) + m->key_bytes;
        memcpy(text + 8, p, m->ordering_key_bytes);
    }
    return pawl_hash128(text, 8u + m->ordering_key_bytes, core->options.hash_seed);
}

static uint32_t find(const struct pawl_core *core, struct pawl_hash128 h)
{
    uint32_t n = pawl_table_find(&core->orders_by_id, h.low);
    while (n != 0 && pawl_core_order_at(core, n)->id_high != h.high)
        n = pawl_table_find_next(&core->orders_by_id, n);
    return n;
}

uint32_t pawl_core_order_find(const struct pawl_core *core, const struct pawl_core_message *m)
{
    return find(core, hash(core, m));
}

uint32_t pawl_core_order_make(struct pawl_core *core, struct pawl_core_message *m)
{
    struct pawl_hash128 h = hash(core, m);
    uint32_t n = find(core, h);
    if (n != 0)
        return n;
    n = pawl_pool_take(&core->orders);
    if (n == 0) {
        PAWL_ASSERT(!core->started); /* the one who decides has made sure */
        core->damaged = true;
        m->flags &= (uint8_t)~PAWL_MESSAGE_ORDERED;
        return 0;
    }
    struct pawl_core_order *key = pawl_core_order_at(core, n);
    key->id = h.low;
    key->id_high = h.high;
    pawl_table_insert(&core->orders_by_id, h.low, n);
    return n;
}

bool pawl_core_order_ready(struct pawl_core *core)
{
    pawl_core_memory_open(core);
    bool ready = pawl_pool_ready(&core->orders, 1);
    pawl_core_memory_close(core);
    return ready;
}

/* --- head ------------------------------------------------------------------------------------ */

static void head_out(struct pawl_core *core, struct pawl_core_queue *q, struct pawl_core_order *key)
{
    if (key->blocked)
        pawl_ready_remove(&q->blocked, &core->messages, key->head);
    else
        pawl_core_ready_remove(core, q, key->head);
    key->head = 0;
}

static void head_in(struct pawl_core *core, struct pawl_core_queue *q, struct pawl_core_order *key,
                    uint32_t n)
{
    key->head = n;
    key->blocked = key->holders > 0;
    if (key->blocked)
        pawl_ready_insert(&q->blocked, &core->messages, n);
    else
        pawl_core_ready_insert(core, q, n);
}

void pawl_core_order_settle(struct pawl_core *core, struct pawl_core_queue *q, uint32_t k)
{
    struct pawl_core_order *key = pawl_core_order_at(core, k);
    if (key->messages == 0) {
        pawl_table_remove(&core->orders_by_id, key->id, k);
        pawl_pool_give(&core->orders, k);
        return;
    }
    uint32_t first = pawl_ready_first(&key->rest, &core->messages), head = key->head;
    if (head != 0) {
        const struct pawl_core_message *m = pawl_core_message_at(core, head);
        bool earlier = first != 0 && pawl_ready_before(pawl_core_message_at(core, first), m);
#ifdef PAWL_BUG_ORDER_HEAD_STAYS
        earlier = false;
#endif
        if (!earlier && key->blocked == (key->holders > 0))
            return;
        head_out(core, q, key);
        if (!earlier) {
            head_in(core, q, key, head);
            return;
        }
        pawl_ready_insert(&key->rest, &core->messages, head);
    }
    if (first == 0)
        return;
    pawl_ready_remove(&key->rest, &core->messages, first);
    head_in(core, q, key, first);
}

/* --- moves ----------------------------------------------------------------------------------- */

void pawl_core_order_leave(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                           uint32_t k)
{
    struct pawl_core_order *key = pawl_core_order_at(core, k);
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    key->messages--;
    if (m->state != PAWL_STATE_READY) {
        struct pawl_core_lease *l = m->lease ? pawl_core_lease_at(core, m->lease) : NULL;
        if (l && (l->flags & PAWL_LEASE_HOLDS_KEY)) {
            l->flags &= (uint8_t)~PAWL_LEASE_HOLDS_KEY;
            key->holders--;
        }
        return;
    }
    q->ready_count--;
    if (key->head != n) {
        pawl_ready_remove(&key->rest, &core->messages, n);
    } else if (m->flags & PAWL_MESSAGE_CHOSEN) {
        m->flags &= (uint8_t)~PAWL_MESSAGE_CHOSEN;
        key->head = 0;
    } else {
        head_out(core, q, key);
    }
}

void pawl_core_order_enter(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                           uint32_t k)
{
    struct pawl_core_order *key = pawl_core_order_at(core, k);
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    key->messages++;
    if (m->state == PAWL_STATE_READY) {
        q->ready_count++;
        pawl_ready_insert(&key->rest, &core->messages, n);
        return;
    }
    struct pawl_core_lease *l = m->lease ? pawl_core_lease_at(core, m->lease) : NULL;
    bool retry = l && m->state == PAWL_STATE_SCHEDULED && !(l->flags & PAWL_LEASE_KEY_FREE);
#ifdef PAWL_BUG_ORDER_FREE_IN_BACKOFF
    retry = false;
#endif
#ifdef PAWL_BUG_ORDER_NOT_HELD
    l = NULL;
#endif
    if (l && (m->state == PAWL_STATE_LEASED || retry)) {
        l->flags |= PAWL_LEASE_HOLDS_KEY;
        key->holders++;
    }
}
