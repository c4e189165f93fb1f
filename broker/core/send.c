/* SPDX-License-Identifier: MIT */
/* SEND.
 *
 *   - the fixed part is ours; the queue, the rights, the sizes and the limits are checked
 *   - the variable part is copied once, out of memory that the client may be changing, into a
 *     payload block; only there are the headers looked at
 *   - with a key: whether it was used, and with which body, is looked at there, too, before any
 *     limit: a repeat needs no room
 *   - id and place; SEND record, its payload from that block; apply; answer
 *   - refused: the block is given back, nothing else was touched
 */
#include "core/core_inner.h"

static int look(struct pawl_core_send *s)
{
    const struct pawl_take *t = s->take;
    struct pawl_core *core = t->core;
    int result;
    s->queue = pawl_core_queue_for(s->take, s->cmd->queue, PAWL_RIGHT_SEND, &result);
    if (!s->queue)
        return result;
    s->ordered = pawl_core_order_applies(s->queue, s->cmd->ordering_key_bytes);
    if (s->cmd->priority >= PAWL_PRIORITIES || (s->cmd->flags & ~PAWL_SEND_TIMES))
        return PAWL_E_INVALID;
    if (s->cmd->headers_bytes > PAWL_HEADERS_BYTES_MAX) {
        s->value = PAWL_HEADERS_BYTES_MAX;
        return PAWL_E_TOO_BIG;
    }
    uint64_t ttl = s->queue->options.ttl_ns, delay = 0;
    if (s->skip) {
        ttl = s->times.ttl_ns ? s->times.ttl_ns : ttl;
        delay = s->times.delay_ns;
        if (s->times.at_wall_ns)
            delay = s->times.at_wall_ns > core->now.wall ? s->times.at_wall_ns - core->now.wall : 0;
    }
    if (delay > PAWL_DELAY_NS_MAX || ttl > PAWL_DELAY_NS_MAX)
        return PAWL_E_INVALID;
    s->due = delay ? pawl_add_sat(core->now.time, delay) : 0;
    s->ttl_end = ttl ? pawl_add_sat(core->now.time, ttl) : UINT64_MAX;
    uint64_t most = s->queue->message_bytes_max;
    /* The fact of it is its largest record, and must fit too. */
    uint64_t other = sizeof(struct pawl_message_rec) + 24 + PAWL_REASON_BYTES_MAX +
                     PAWL_PROGRESS_BYTES_MAX + s->cmd->key_bytes + s->cmd->ordering_key_bytes +
                     s->cmd->headers_bytes;
    uint64_t record = core->options.record_bytes_max;
    if (record && pawl_core_queue_logged(s->queue))
        most = pawl_min_u64(most, record > other ? record - other : 0);
    if (s->cmd->body_bytes > most) {
        s->value = most;
        return PAWL_E_TOO_BIG;
    }
    return PAWL_OK;
}

static int limits(struct pawl_core_send *s)
{
    const struct pawl_core *core = s->take->core;
    const struct pawl_core_queue *q = s->queue;
    if (core->refuse && pawl_core_queue_logged(q))
        s->value = core->refuse;
    else if (pawl_core_queue_live(q) + q->checked >= q->messages_max)
        s->value = PAWL_LIMIT_QUEUE_MESSAGES;
    else if (q->bytes + q->checked_bytes + s->bytes > q->bytes_max)
        s->value = PAWL_LIMIT_QUEUE_BYTES;
    return s->value ? PAWL_E_FULL : PAWL_OK;
}

/* Each: u8 name bytes, u16 value bytes, name, value. */
static bool headers_valid(const uint8_t *p, uint32_t bytes)
{
    while (bytes > 0) {
        if (bytes < 3 || p[0] == 0)
            return false;
        uint32_t one = 3u + p[0] + p[1] + ((uint32_t)p[2] << 8);
        if (one > bytes)
            return false;
        p += one;
        bytes -= one;
    }
    return true;
}

/* The one copy. False: no memory. */
static bool copy(struct pawl_core_send *s)
{
    struct pawl_core *core = s->take->core;
    bool timed = s->ttl_end != UINT64_MAX;
    s->own = (timed ? 8 : 0) + (s->cmd->key_bytes ? 8 : 0);
    if (s->own + s->bytes == 0)
        return true;
    s->block = pawl_payload_take(&core->payload, s->own + s->bytes);
    if (s->block == 0)
        return false;
    uint8_t *to = pawl_payload_at(&core->payload, s->block);
    if (timed)
        memcpy(to, &s->ttl_end, 8);
    if (s->cmd->key_bytes)
        pawl_core_key_word(core, s->block, timed, 0);
    memcpy(to + s->own, s->take->variable + s->skip, s->bytes);
    return true;
}

static const uint8_t *content(const struct pawl_core_send *s)
{
    return (uint8_t *)pawl_payload_at(&s->take->core->payload, s->block) + s->own;
}

uint32_t pawl_core_send_apply(struct pawl_core *core, const struct pawl_send_rec *r,
                              struct pawl_core_queue *q, uint32_t block, uint64_t lsn)
{
    uint32_t n = pawl_pool_take(&core->messages);
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    m->id = r->id;
    m->place = r->place;
    m->sent_wall = r->sent_wall;
    m->queue = q->number;
    m->payload = block;
    m->body_bytes = r->op.extra;
    m->headers_bytes = r->headers_bytes;
    m->key_bytes = r->key_bytes;
    m->ordering_key_bytes = r->ordering_key_bytes;
    m->priority = r->priority;
    m->flags = pawl_core_message_flags(r->flags);
    pawl_table_insert(&core->messages_by_id, m->id, n);
    q->bytes += pawl_core_message_content_bytes(m);
    q->counters.sent++;
    bool scheduled = r->flags & PAWL_RECORD_SCHEDULED;
    if (!scheduled)
        q->place = pawl_max_u64(q->place, r->place);
    pawl_core_message_move(core, n, scheduled ? PAWL_STATE_SCHEDULED : PAWL_STATE_READY);
    core->live += pawl_core_message_live_bytes(core, m);
    pawl_core_home_set(core, PAWL_KIND_MESSAGE, n, lsn);
    return n;
}

uint32_t pawl_core_send_bytes(const struct pawl_core_send *s)
{
    return pawl_core_queue_logged(s->queue)
               ? (uint32_t)sizeof(struct pawl_send_rec) + s->own + s->bytes
               : 0;
}

uint64_t pawl_core_send_commit(struct pawl_core_send *s, uint64_t *lsn)
{
    struct pawl_take *t = s->take;
    struct pawl_core *core = t->core;
    struct pawl_core_queue *q = s->queue;
    struct pawl_send_rec r = {
        .queue = q->id,
        .id = pawl_core_new_id(core),
        .place = s->due ? s->due : pawl_max_u64(core->now.time, q->place + 1),
        .sent_wall = core->now.wall,
        .headers_bytes = s->cmd->headers_bytes,
        .key_bytes = s->cmd->key_bytes,
        .ordering_key_bytes = s->cmd->ordering_key_bytes,
        .priority = s->cmd->priority,
        .flags = (uint8_t)((s->ttl_end != UINT64_MAX ? PAWL_RECORD_TTL : 0) |
                           (s->due ? PAWL_RECORD_SCHEDULED : 0) |
                           (s->ordered ? PAWL_RECORD_ORDERED : 0)),
    };
    r.op.extra = s->cmd->body_bytes;
    *lsn = 0;
    bool timed = s->ttl_end != UINT64_MAX;
    if (s->key)
        pawl_ledger_at(&core->ledger, s->key)->a = r.id;
    if (pawl_core_queue_logged(q)) {
        pawl_core_lane_log(core, t->lane);
        pawl_core_lane_op(core, t->lane, t->seq, &r.op);
        r.op.extra = s->cmd->body_bytes;
        uint8_t *out = pawl_core_append(core, PAWL_RECORD_SEND, pawl_core_send_bytes(s), lsn);
        memcpy(out, &r, sizeof r);
        if (s->own + s->bytes)
            memcpy(out + sizeof r, pawl_payload_at(&core->payload, s->block), s->own + s->bytes);
        if (s->key)
            memcpy(out + sizeof r + (timed ? 8 : 0), &pawl_ledger_at(&core->ledger, s->key)->c, 8);
    }
    (void)pawl_core_send_apply(core, &r, q, s->block, *lsn);
    core->sends++;
    return r.id;
}

void pawl_core_send_undo(struct pawl_core_send *s)
{
#ifndef PAWL_BUG_KEY_OF_REFUSED
    if (s->key && s->block) /* held, not that of the first one */
        pawl_core_ledger_remove(s->take->core, s->key);
#endif
    if (s->block)
        pawl_payload_give(&s->take->core->payload, s->block, s->own + s->bytes);
    s->block = s->key = 0;
}

uint64_t pawl_core_send_first(const struct pawl_core_send *s)
{
    return s->value ? s->value : pawl_ledger_at(&s->take->core->ledger, s->key)->a;
}

uint8_t pawl_core_send_flags(const struct pawl_core_send *s, int result)
{
    if (result == PAWL_OK)
        return PAWL_ANSWER_VALUES_RUN;
    return (uint8_t)(s->state << PAWL_ANSWER_STATE_SHIFT);
}

/* How many messages, timers and entries of keys are to be had beside those of the sends that are
 * checked already and not yet committed. */
static bool memory_for(struct pawl_core_send *s, uint32_t beside)
{
    struct pawl_core *core = s->take->core;
    bool timed = s->due || s->ttl_end != UINT64_MAX;
    /* Where memory is short the oldest tombstones go first, never a send. */
    while (!pawl_pool_ready(&core->messages, beside + 1))
        if (!pawl_core_forget_oldest(core, s->queue))
            return false;
    return (!timed || pawl_core_timers_ready(core, beside + 1)) &&
           (!s->ordered || pawl_pool_ready(&core->orders, beside + 1));
}

/* --- keys ------------------------------------------------------------------------------------ */

struct name {
    uint64_t id, id_high, body;
    uint32_t over; /* an entry of this name that counts no more */
};

/* All of it is hashed once, in our own copy, and what a look-up needs is on its way. */
static void key_hash(struct pawl_core_send *s, struct name *name)
{
    struct pawl_core *core = s->take->core;
    const uint8_t *p = content(s);
    pawl_core_key_name(core, s->queue->id, p, s->cmd->key_bytes, &name->id, &name->id_high);
    pawl_core_ledger_prefetch(core, PAWL_LEDGER_KEY, name->id, name->id_high);
    name->body = pawl_core_key_body(core, p + s->bytes - s->cmd->body_bytes, s->cmd->body_bytes);
}

/* Was the key used? */
static int key_look(struct pawl_core_send *s, struct name *name)
{
    struct pawl_core *core = s->take->core;
    int result = pawl_core_key_look(core, name->id, name->id_high, name->body, &name->over);
    if (result == PAWL_OK)
        return result;
    const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, name->over);
    s->value = e->a;
    s->state = pawl_core_key_state(core, e);
    pawl_core_send_undo(s);
    s->key = name->over; /* for pawl_core_send_first() */
    return result;
}

static int key_hold(struct pawl_core_send *s, const struct name *name)
{
    struct pawl_core *core = s->take->core;
    uint32_t limit = pawl_core_ledger_ready(core, PAWL_LEDGER_KEY, 1);
    /* One that is over gives its place. */
    if (limit && !name->over) {
        s->value = limit;
        return limit == PAWL_LIMIT_LEDGER ? PAWL_E_QUOTA : PAWL_E_FULL;
    }
    s->key = pawl_core_key_hold(core, s->queue, name->id, name->id_high, name->body, name->over);
    pawl_core_key_word(core, s->block, s->ttl_end != UINT64_MAX, s->key);
    return PAWL_OK;
}

/* --- a send ---------------------------------------------------------------------------------- */

static void begin(struct pawl_core_send *s, struct pawl_take *t)
{
    s->take = t;
    s->cmd = t->fixed;
    s->queue = NULL;
    s->skip = s->own = s->block = s->key = 0;
    s->state = PAWL_STATE_NONE;
    s->value = 0;
    if (s->cmd->flags & PAWL_SEND_TIMES) {
        s->skip = sizeof s->times;
        memcpy(&s->times, t->variable, sizeof s->times);
    }
    s->bytes = (uint32_t)s->cmd->key_bytes + s->cmd->ordering_key_bytes + s->cmd->headers_bytes +
               s->cmd->body_bytes;
}

/* All but what a key says. */
static int room(struct pawl_core_send *s, uint32_t beside)
{
    int result = limits(s);
    if (result != PAWL_OK)
        return result;
    if (!memory_for(s, beside) || (s->block == 0 && !copy(s))) {
        s->value = PAWL_LIMIT_MEMORY;
        return PAWL_E_FULL;
    }
    const uint8_t *headers = NULL;
    if (s->block)
        headers = content(s) + s->cmd->key_bytes + s->cmd->ordering_key_bytes;
    return headers_valid(headers, s->cmd->headers_bytes) ? PAWL_OK : PAWL_E_INVALID;
}

int pawl_core_send_check(struct pawl_take *t, uint32_t beside, struct pawl_core_send *s)
{
    struct name name = { .over = 0 };
    begin(s, t);
    int result = look(s);
    if (result != PAWL_OK)
        return result;
    if (s->cmd->key_bytes) {
        if (!copy(s)) {
            s->value = PAWL_LIMIT_MEMORY;
            return PAWL_E_FULL;
        }
        key_hash(s, &name);
    }
    result = room(s, beside);
    if (s->cmd->key_bytes) {
        /* A repeat needs no room. */
        int used = key_look(s, &name);
        if (used != PAWL_OK)
            return used;
        if (result == PAWL_OK)
            result = key_hold(s, &name);
    }
    if (result != PAWL_OK)
        pawl_core_send_undo(s);
    return result;
}

void pawl_core_send_take(struct pawl_take *t)
{
    if (pawl_core_send_simple(t))
        return;
    struct pawl_core *core = t->core;
    struct pawl_core_send s;
    uint64_t lsn = 0, value;
    int result = pawl_core_send_check(t, 0, &s);
    if (result == PAWL_OK)
        value = pawl_core_send_commit(&s, &lsn);
    else
        value = s.value;
    /* Of a session that only repeats the log would never hear, and could not tell after a crash
     * whether what it left open was done. Sends that are refused are taken without room. */
    if (s.state != PAWL_STATE_NONE && !t->lane->logged && pawl_core_queue_logged(s.queue) &&
        core->refuse == 0 && pawl_core_has_room(core, PAWL_FIRST_RECORDS))
        pawl_core_lane_log(core, t->lane);
    core->refused += result < 0;
    uint64_t wait = s.queue ? pawl_core_queue_wait(core, s.queue) : pawl_core_appended(core);
#ifdef PAWL_BUG_DUPLICATE_EARLY
    if (result == PAWL_OK_DUPLICATE)
        wait = 0;
#endif
    pawl_core_lane_answer(core, t->lane, t->seq, result, value, lsn, wait,
                          pawl_core_send_flags(&s, result));
}
