/* SPDX-License-Identifier: MIT */
#include "core/core_inner.h"
#include "core/hot.h"

uint32_t pawl_core_message_payload_bytes(const struct pawl_core_message *m)
{
    return pawl_core_message_own_bytes(m) + pawl_core_message_content_bytes(m);
}

uint64_t pawl_core_message_ttl_end(const struct pawl_core *core, const struct pawl_core_message *m)
{
    uint64_t end = UINT64_MAX;
    if (m->flags & PAWL_MESSAGE_TTL)
        memcpy(&end, pawl_payload_at(&core->payload, m->payload), sizeof end);
    return end;
}

bool pawl_core_message_expired(const struct pawl_core *core, const struct pawl_core_message *m)
{
#ifdef PAWL_BUG_TTL_BY_TIMER
    return false;
#endif
    return (m->state == PAWL_STATE_READY || m->state == PAWL_STATE_SCHEDULED) &&
           pawl_core_message_ttl_end(core, m) <= core->now.time;
}

uint64_t pawl_core_message_due(const struct pawl_core *core, const struct pawl_core_message *m)
{
    return m->lease ? pawl_core_lease_at(core, m->lease)->deadline : m->place;
}

bool pawl_core_message_logged(const struct pawl_core *core, const struct pawl_core_message *m)
{
    return pawl_core_queue_logged(pawl_core_queue_at(core, m->queue));
}

uint64_t pawl_core_message_live_bytes(const struct pawl_core *core,
                                      const struct pawl_core_message *m)
{
    if (!pawl_core_message_logged(core, m))
        return 0;
    if (pawl_core_terminal(m->state))
        return PAWL_END_ROOM + pawl_core_result_bytes(core, m);
    /* The reason is counted at its largest only while there can be one. */
    uint64_t reason = m->nacked || m->dead_reason ? PAWL_REASON_BYTES_MAX : 0;
    if (m->lease)
        reason += pawl_core_lease_at(core, m->lease)->progress_bytes;
    uint64_t bytes = sizeof(struct pawl_message_rec) + PAWL_RECORD_HEAD + reason +
                     pawl_core_message_payload_bytes(m);
    /* Its end must not need more than its life: then the key has a fact of its own. */
    return m->key_bytes ? pawl_max_u64(bytes + 8, PAWL_END_ROOM + PAWL_KEY_LIVE) : bytes;
}

/* --- lists ----------------------------------------------------------------------------------- */

/* A table and not a switch: it is asked four times in the life of a message. */
static inline struct pawl_core_list *list_of(struct pawl_core_queue *q, uint8_t state)
{
    static const uint16_t offsets[PAWL_STATE_PURGED + 1] = {
        [PAWL_STATE_SCHEDULED] = offsetof(struct pawl_core_queue, scheduled),
        [PAWL_STATE_LEASED] = offsetof(struct pawl_core_queue, leased),
        [PAWL_STATE_DEAD] = offsetof(struct pawl_core_queue, dead),
        [PAWL_STATE_ACKED] = offsetof(struct pawl_core_queue, done),
        [PAWL_STATE_EXPIRED] = offsetof(struct pawl_core_queue, done),
        [PAWL_STATE_CANCELLED] = offsetof(struct pawl_core_queue, done),
        [PAWL_STATE_PURGED] = offsetof(struct pawl_core_queue, done),
    };
    PAWL_ASSERT_REL(offsets[state], !=, 0);
    return (struct pawl_core_list *)(void *)((char *)q + offsets[state]);
}

/* key: entry of its ordering key, 0 for most. */
static inline void leave(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                         struct pawl_core_message *m, uint32_t key)
{
    if (PAWL_UNLIKELY(key))
        pawl_core_order_leave(core, q, n, key);
    if (m->state != PAWL_STATE_READY) {
        pawl_hot_list_remove(core, list_of(q, m->state), m);
        core->tombstones -= pawl_core_terminal(m->state);
        if (m->state == PAWL_STATE_LEASED) {
            core->leases_current--;
            struct pawl_core_lease *l = m->lease ? pawl_core_lease_at(core, m->lease) : NULL;
            if (l && l->row)
                pawl_core_ends_leave(core, l);
        }
        return;
    }
    if (PAWL_UNLIKELY(key))
        return;
    q->ready_count--;
    if (m->flags & PAWL_MESSAGE_CHOSEN)
        m->flags &= (uint8_t)~PAWL_MESSAGE_CHOSEN;
    else
        pawl_core_ready_remove(core, q, n);
}

void pawl_core_ready_remove(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n)
{
    uint8_t level = pawl_core_message_at(core, n)->priority;
    pawl_ready_remove(&q->ready[level], &core->messages, n);
    if (q->ready[level].count == 0)
        q->levels &= (uint8_t) ~(1u << level);
}

void pawl_core_ready_insert(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n)
{
    uint8_t level = pawl_core_message_at(core, n)->priority;
    pawl_ready_insert(&q->ready[level], &core->messages, n);
    q->levels |= (uint8_t)(1u << level);
    if (q->waiting_first)
        pawl_core_queue_wake(core, q);
}

static inline void enter(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                         struct pawl_core_message *m, uint32_t key)
{
    if (PAWL_UNLIKELY(key))
        pawl_core_order_enter(core, q, n, key);
    if (m->state == PAWL_STATE_READY) {
        if (PAWL_UNLIKELY(key))
            return;
        q->ready_count++;
        pawl_core_ready_insert(core, q, n);
        return;
    }
    pawl_hot_list_push(core, list_of(q, m->state), n, m);
    core->leases_current += m->state == PAWL_STATE_LEASED;
    core->tombstones += pawl_core_terminal(m->state);
}

static void own_timer(struct pawl_core *core, uint32_t n, uint64_t due)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    /* Those that decide have made sure of one: see the callers of pawl_core_timers_ready. */
    if (m->timer == 0) {
        m->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_MESSAGE, n);
        PAWL_ASSERT(m->timer != 0);
    }
    pawl_timer_arm(&core->wheel, m->timer, due);
}

/* True: it needs no timer of its own until *due. */
static inline bool lease_timer(struct pawl_core *core, const struct pawl_core_message *m,
                               uint64_t *due)
{
    struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    if (l->row)
        pawl_core_ends_leave(core, l);
    if (m->timer)
        pawl_timer_cancel(&core->wheel, m->timer);
    *due = l->deadline;
    /* The time of a lease runs from its publication, which comes here again. */
    if (l->position == PAWL_POSITION_PENDING)
        return true;
#ifdef PAWL_BUG_TTL_ENDS_LEASE
    *due = pawl_min_u64(*due, pawl_core_message_ttl_end(core, m));
#endif
    return *due != UINT64_MAX && pawl_core_ends_enter(core, m->lease, *due);
}

void pawl_core_message_timer(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    if (!core->started || pawl_core_terminal(m->state))
        return;
    if (m->state == PAWL_STATE_READY && !(m->flags & PAWL_MESSAGE_TTL) && m->timer == 0)
        return; /* most */
    uint64_t due = UINT64_MAX;
    if (m->state == PAWL_STATE_LEASED) {
        if (lease_timer(core, m, &due))
            return;
    } else if (m->state == PAWL_STATE_SCHEDULED) {
        due = pawl_min_u64(pawl_core_message_due(core, m), pawl_core_message_ttl_end(core, m));
    } else if (m->state == PAWL_STATE_READY) {
        due = pawl_core_message_ttl_end(core, m);
    }
    if (due == UINT64_MAX) {
        pawl_timer_destroy(&core->wheel, m->timer);
        m->timer = 0;
        return;
    }
    own_timer(core, n, due);
}

void pawl_core_message_timer_now(struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_lease *l = m->lease ? pawl_core_lease_at(core, m->lease) : NULL;
    if (l && l->row)
        pawl_core_ends_leave(core, l);
    own_timer(core, n, core->now.time);
}

void pawl_core_message_move(struct pawl_core *core, uint32_t n, uint8_t state)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    uint8_t old = m->state;
    uint32_t key = m->flags & PAWL_MESSAGE_ORDERED ? pawl_core_order_make(core, m) : 0;
    if (old == PAWL_STATE_NONE)
        core->messages_live++;
    else
        leave(core, q, n, m, key);
    m->state = state;
    enter(core, q, n, m, key);
    if (PAWL_UNLIKELY(key))
        pawl_core_order_settle(core, q, key);
    if (old == PAWL_STATE_LEASED && q->waiting_first)
        pawl_core_queue_wake(core, q); /* one less in flight */
    pawl_core_message_timer(core, n);
    pawl_core_watched(core, m, state);
}

/* Also out of the order of its key: the next one may go. */
static void leave_for_good(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                           struct pawl_core_message *m)
{
    uint32_t key = m->flags & PAWL_MESSAGE_ORDERED ? pawl_core_order_find(core, m) : 0;
    leave(core, q, n, m, key);
    if (PAWL_LIKELY(key == 0))
        return;
    m->flags &= (uint8_t)~PAWL_MESSAGE_ORDERED;
    pawl_core_order_settle(core, q, key);
}

void pawl_core_message_detach(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    leave_for_good(core, pawl_core_queue_at(core, m->queue), n, m);
    m->state = PAWL_STATE_NONE;
    core->messages_live--;
}

/* --- results --------------------------------------------------------------------------------- */

uint32_t pawl_core_result_block(struct pawl_core *core, const void *result, uint32_t bytes)
{
    uint32_t block = pawl_payload_take(&core->payload, sizeof bytes + bytes);
    if (block == 0)
        return 0;
    uint8_t *to = pawl_payload_at(&core->payload, block);
    memcpy(to, &bytes, sizeof bytes);
    memcpy(to + sizeof bytes, result, bytes);
    return block;
}

uint32_t pawl_core_result_of(const struct pawl_core *core, uint32_t block, const uint8_t **result)
{
    uint32_t bytes = 0;
    if (block == 0)
        return 0;
    const uint8_t *at = pawl_payload_at(&core->payload, block);
    memcpy(&bytes, at, sizeof bytes);
    if (result)
        *result = at + sizeof bytes;
    return bytes;
}

void pawl_core_result_give(struct pawl_core *core, uint32_t block)
{
    if (block)
        pawl_payload_give(&core->payload, block,
                          (uint32_t)sizeof(uint32_t) + pawl_core_result_of(core, block, NULL));
}

void pawl_core_result_keep(struct pawl_core *core, struct pawl_core_message *m, uint32_t block)
{
    uint64_t before = pawl_core_message_live_bytes(core, m);
    m->child = block;
    core->live += pawl_core_message_live_bytes(core, m) - before;
    core->result_bytes += pawl_core_result_bytes(core, m);
}

void pawl_core_result_drop(struct pawl_core *core, struct pawl_core_message *m)
{
    uint64_t before = pawl_core_message_live_bytes(core, m);
    core->result_bytes -= pawl_core_result_bytes(core, m);
    pawl_core_result_give(core, m->child);
    m->child = 0;
    core->live += pawl_core_message_live_bytes(core, m) - before;
}

/* --- ends ------------------------------------------------------------------------------------ */

static void payload_free(struct pawl_core *core, struct pawl_core_message *m)
{
    pawl_payload_give(&core->payload, m->payload, pawl_core_message_payload_bytes(m));
    m->payload = 0;
    m->flags &= (uint8_t)~PAWL_MESSAGE_TTL;
}

void pawl_core_message_end(struct pawl_core *core, uint32_t n, uint8_t state, uint64_t forget,
                           uint32_t pid, uint32_t uid)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    uint64_t before = 0;
    if (m->state == PAWL_STATE_NONE) {
        core->messages_live++; /* balanced below: a tombstone is not live */
    } else {
        before = pawl_core_message_live_bytes(core, m);
        q->bytes -= pawl_core_message_content_bytes(m);
        leave_for_good(core, q, n, m);
        if (m->state == PAWL_STATE_LEASED && q->waiting_first)
            pawl_core_queue_wake(core, q);
    }
    if (m->lease) {
        pawl_core_lease_over(core, pawl_core_lease_at(core, m->lease));
        pawl_core_lease_free(core, m->lease);
    }
    if (m->key_bytes)
        pawl_core_key_end(core, m, state);
    pawl_timer_destroy(&core->wheel, m->timer);
    m->state = state;
    m->sent_wall = forget;
    m->place = m->child = 0;
    m->lease = pid;
    m->timer = uid;
    m->flags &= (uint8_t)~PAWL_MESSAGE_BY; /* the same bit as ORDERED, which has left */
    if (!(m->flags & PAWL_MESSAGE_PINS) && m->payload)
        payload_free(core, m);
    enter(core, q, n, m, 0);
    pawl_core_watched(core, m, state);
    core->messages_live--;
    core->live += pawl_core_message_live_bytes(core, m) - before;
    pawl_core_queue_done_timer(core, q);
}

void pawl_core_message_forget(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    pawl_core_watched(core, m, PAWL_STATE_NONE);
    if (pawl_core_terminal(m->state))
        pawl_core_result_drop(core, m);
    if (pawl_core_terminal(m->state) && (m->flags & PAWL_MESSAGE_BY))
        m->payload = m->flags = 0;
    core->live -= pawl_core_message_live_bytes(core, m);
    leave_for_good(core, q, n, m);
    if (!pawl_core_terminal(m->state)) {
        if (m->key_bytes)
            pawl_core_key_end(core, m, PAWL_STATE_PURGED); /* its queue is gone */
        core->messages_live--;
        q->bytes -= pawl_core_message_content_bytes(m);
        if (m->lease) {
            pawl_core_lease_over(core, pawl_core_lease_at(core, m->lease));
            pawl_core_lease_free(core, m->lease);
        }
        pawl_timer_destroy(&core->wheel, m->timer);
    }
    m->lease = m->timer = 0;
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, 0);
    pawl_table_remove(&core->messages_by_id, m->id, n);
    m->state = PAWL_STATE_NONE;
    PAWL_ASSERT_REL(m->flags & PAWL_MESSAGE_PINS, ==, 0);
    if (m->payload)
        payload_free(core, m);
    pawl_pool_give(&core->messages, n);
}

void pawl_core_message_unpin(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    PAWL_ASSERT_REL(m->flags & PAWL_MESSAGE_PINS, !=, 0);
    m->flags = (uint8_t)(m->flags - PAWL_MESSAGE_PIN);
    if (m->flags & PAWL_MESSAGE_PINS)
        return;
    if (pawl_core_terminal(m->state) && m->payload) {
        payload_free(core, m);
    } else if (m->state == PAWL_STATE_READY) {
        /* One with too many pins was passed over. */
        pawl_core_queue_wake(core, pawl_core_queue_at(core, m->queue));
    }
}
