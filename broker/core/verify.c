/* SPDX-License-Identifier: MIT */
/* The digest of all durable state, and the invariants recounted. */
#include "core/core_inner.h"

/* --- digest ---------------------------------------------------------------------------------- */

static uint64_t digest_message(const struct pawl_core *core, const struct pawl_core_message *m)
{
    const struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    uint64_t now = core->now.time;
    if (pawl_core_terminal(m->state)) {
        if (m->sent_wall <= now)
            return 0; /* may be forgotten at any time */
        const uint8_t *result = NULL;
        uint32_t bytes = pawl_core_result_of(core, m->child, &result);
        uint64_t hash = bytes ? pawl_hash64(result, bytes, 1) : 0;
        const uint64_t words[] = { hash,       m->place,    m->id,        q->id,
                                   m->state,   m->grant,    m->sent_wall, pawl_core_ended_pid(m),
                                   m->timer,   m->acquired, m->expired,   m->nacked,
                                   m->crashed, m->deferred, m->priority };
        return pawl_hash64(words, sizeof words, core->options.hash_seed);
    }
    uint8_t state = m->state;
    uint64_t due = state == PAWL_STATE_SCHEDULED ? pawl_core_message_due(core, m) : 0;
    if (state == PAWL_STATE_SCHEDULED && due <= now) {
        state = PAWL_STATE_READY; /* there is no record of that */
        due = 0;
    }
    uint32_t skip = pawl_core_message_own_bytes(m);
    uint32_t bytes = pawl_core_message_payload_bytes(m);
    const uint8_t *payload = bytes ? pawl_payload_at(&core->payload, m->payload) : NULL;
    uint64_t random = 0, hold_end = 0, lease_ns = 0, holder = 0, seq = 0, progress = 0;
    bool key_free = false;
    if (m->lease) {
        const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
        random = l->random;
        hold_end = l->hold_end;
        lease_ns = l->lease_ns;
        holder = (uint64_t)l->uid << 32 | (uint32_t)l->pid;
        seq = state == PAWL_STATE_LEASED ? l->seq : 0;
        key_free = state == PAWL_STATE_SCHEDULED && (l->flags & PAWL_LEASE_KEY_FREE);
        if (l->progress)
            progress =
                pawl_hash64(pawl_payload_at(&core->payload, l->progress), l->progress_bytes, 1);
    }
    const uint64_t words[] = { m->id,
                               q->id,
                               state,
                               m->place,
                               m->grant,
                               m->sent_wall,
                               due,
                               pawl_core_message_ttl_end(core, m),
                               random,
                               hold_end,
                               lease_ns,
                               holder,
                               seq,
                               progress,
                               key_free,
                               m->acquired,
                               m->expired,
                               m->nacked,
                               m->crashed,
                               m->deferred,
                               m->dead_reason,
                               m->priority,
                               pawl_hash64(payload + skip, bytes - skip, 1) };
    return pawl_hash64(words, sizeof words, core->options.hash_seed);
}

static uint64_t digest_queue(struct pawl_core *core, const struct pawl_core_queue *q)
{
    struct pawl_queue_rec r;
    pawl_core_queue_fact(core, q, &r);
    r.time = 0;
    if (!pawl_core_queue_logged(q)) {
        r.place = 0;
        memset(&r.counters, 0, sizeof r.counters);
    }
    return pawl_hash64(&r, sizeof r, core->options.hash_seed);
}

static uint64_t digest_session(const struct pawl_core *core, const struct pawl_core_session *s)
{
    uint64_t words[4] = { s->id, s->peer.uid, 0, 0 };
    memcpy(words + 2, s->secret, sizeof s->secret);
    return pawl_hash64(words, sizeof words, core->options.hash_seed);
}

static uint64_t digest_entry(const struct pawl_core *core, const struct pawl_ledger_entry *e)
{
    bool key = e->kind == PAWL_LEDGER_KEY;
    const struct pawl_core_queue *q = key ? pawl_core_queue_at(core, e->d) : NULL;
    if (q && (q->gone || !pawl_core_queue_logged(q)))
        return 0;
    uint8_t state = key ? pawl_core_key_state(core, e) : (uint8_t)e->result;
    bool lives = key && !pawl_core_terminal(state);
    if (lives)
        state = PAWL_STATE_NONE;
    if (!lives &&
        (pawl_core_ledger_end(core, e) <= core->now.time || (e->flags & PAWL_LEDGER_KEPT)))
        return 0; /* may be forgotten at any time */
    uint64_t id, id_high;
    pawl_core_ledger_name(core, e, &id, &id_high);
    bool of_lane = pawl_ledger_of_lane(e);
    if (e->kind == PAWL_LEDGER_OP &&
        (of_lane ? e->d < core->left_horizon_said : id_high >> 16 <= core->horizon_said))
        return 0; /* forgotten for want of room, or not; the log may know it still */
    const uint64_t words[] = {
        id, id_high, e->a, e->b, e->c, q ? q->id : e->d, key ? state : (uint64_t)e->result, e->kind
    };
    return pawl_hash64(words, sizeof words, core->options.hash_seed);
}

uint64_t pawl_core_digest(const struct pawl_core *core)
{
    uint64_t sum = core->horizon_said + core->left_horizon_said;
    for (uint32_t n = 1; n < core->messages.never_used; n++) {
        const struct pawl_core_message *m = pawl_core_message_at(core, n);
        if (m->state == PAWL_STATE_NONE)
            continue;
        const struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
        if (!q->gone && pawl_core_queue_logged(q))
            sum += digest_message(core, m);
    }
    for (uint32_t n = 1; n < core->queues.never_used; n++) {
        const struct pawl_core_queue *q = pawl_core_queue_at(core, n);
        if (q->number == n && !q->gone)
            sum += digest_queue((struct pawl_core *)(uintptr_t)core, q);
    }
    for (uint32_t n = 1; n < core->sessions.never_used; n++) {
        const struct pawl_core_session *s = pawl_core_session_at(core, n);
        if (s->number == n && s->home.segment && s->state != PAWL_SESSION_ENDING)
            sum += digest_session(core, s);
    }
    for (uint32_t n = 1; n < core->ledger.pool.never_used; n++) {
        const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
        if (e->kind != PAWL_LEDGER_NONE)
            sum += digest_entry(core, e);
    }
    return sum + pawl_core_state_digest(core) + pawl_core_idem_digest(core);
}

/* --- invariants ------------------------------------------------------------------------------ */

struct recount {
    uint64_t messages, leases, live, done;
    uint64_t ready, ordered, holders; /* by message */
    uint64_t in_ready, behind;        /* by where they stand */
    uint64_t by_queue_bytes;
    uint64_t in_rows; /* leases in the rows of ends.c */
};

static void verify_message(const struct pawl_core *core, uint32_t n, struct recount *r)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    const struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    PAWL_ASSERT_REL(q->number, ==, m->queue);
    PAWL_ASSERT_REL(pawl_table_find(&core->messages_by_id, m->id), ==, n);
    PAWL_ASSERT(!(m->flags & PAWL_MESSAGE_CHOSEN));
    r->live += pawl_core_message_live_bytes(core, m);
    PAWL_ASSERT_REL(m->home.segment != 0, ==, pawl_core_queue_logged(q));
    if (pawl_core_terminal(m->state)) {
        r->done++;
        PAWL_ASSERT(m->payload == 0 || (m->flags & (PAWL_MESSAGE_PINS | PAWL_MESSAGE_BY)));
        return;
    }
    r->messages++;
    r->ready += m->state == PAWL_STATE_READY;
    if (m->flags & PAWL_MESSAGE_ORDERED) {
        r->ordered++;
        PAWL_ASSERT_REL(pawl_core_order_find(core, m), !=, 0);
    }
    if (m->lease && (pawl_core_lease_at(core, m->lease)->flags & PAWL_LEASE_HOLDS_KEY)) {
        r->holders++;
        PAWL_ASSERT(m->flags & PAWL_MESSAGE_ORDERED);
        PAWL_ASSERT(m->state == PAWL_STATE_LEASED || m->state == PAWL_STATE_SCHEDULED);
    }
    r->by_queue_bytes += pawl_core_message_content_bytes(m);
    r->leases += m->state == PAWL_STATE_LEASED;
    if (m->lease)
        PAWL_ASSERT_REL(pawl_core_lease_at(core, m->lease)->message, ==, n);
    if (m->state == PAWL_STATE_LEASED)
        PAWL_ASSERT_REL(m->lease, !=, 0);
    else if (m->lease)
        PAWL_ASSERT_REL(pawl_core_lease_at(core, m->lease)->session, ==, 0);
    bool timed = m->state == PAWL_STATE_SCHEDULED ||
                 (m->state == PAWL_STATE_READY && (m->flags & PAWL_MESSAGE_TTL));
    if (core->started && !q->gone) {
        bool armed = m->timer != 0 && pawl_timer_armed(&core->wheel, m->timer);
        if (m->state == PAWL_STATE_LEASED) {
            const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
            PAWL_ASSERT_REL(armed + (l->row != 0) + (l->position == PAWL_POSITION_PENDING), >=, 1);
            PAWL_ASSERT(!armed || l->row == 0);
            r->in_rows += l->row != 0;
        } else {
            PAWL_ASSERT_REL(m->timer != 0, ==, timed);
            PAWL_ASSERT_REL(armed, ==, timed);
        }
    }
}

/* A row's timer comes no later than the end of any of it. Queues that are gone keep no time. */
static void verify_ends(const struct pawl_core *core, const struct recount *r)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < PAWL_ENDS_ROWS; i++) {
        const struct pawl_core_ends *row = &core->ends[i];
        uint64_t end = 0;
        uint32_t last = 0;
        for (uint32_t n = row->first; n != 0; n = pawl_core_lease_at(core, n)->row_next) {
            const struct pawl_core_lease *l = pawl_core_lease_at(core, n);
            const struct pawl_core_message *m = pawl_core_message_at(core, l->message);
            PAWL_ASSERT_REL(l->row, ==, i + 1);
            PAWL_ASSERT_REL(l->row_prev, ==, last);
            PAWL_ASSERT_REL(l->end, >=, end);
            PAWL_ASSERT(m->lease == n && m->state == PAWL_STATE_LEASED);
            PAWL_ASSERT(n != row->first || (pawl_timer_armed(&core->wheel, row->timer) &&
                                            pawl_timer_due(&core->wheel, row->timer) <= l->end));
            count += !pawl_core_queue_at(core, m->queue)->gone;
            end = l->end;
            last = n;
        }
        PAWL_ASSERT_REL(row->last, ==, last);
    }
    PAWL_ASSERT_REL(count, ==, r->in_rows);
}

/* One ready message of a key stands where it belongs, all others behind it. */
static void verify_orders(const struct pawl_core *core, struct recount *r)
{
    uint64_t messages = 0, holders = 0;
    for (uint32_t k = 1; k < core->orders.never_used; k++) {
        const struct pawl_core_order *key = pawl_core_order_at(core, k);
        if (key->messages == 0)
            continue;
        messages += key->messages;
        holders += key->holders;
        r->behind += key->rest.count;
        if (key->head == 0) {
            PAWL_ASSERT_REL(key->rest.count, ==, 0);
            continue;
        }
        const struct pawl_core_message *m = pawl_core_message_at(core, key->head);
        PAWL_ASSERT_REL(m->state, ==, PAWL_STATE_READY);
        PAWL_ASSERT_REL(pawl_core_order_find(core, m), ==, k);
        PAWL_ASSERT_REL(key->blocked, ==, (key->holders > 0));
        uint32_t first = pawl_ready_first(&key->rest, &core->messages);
        PAWL_ASSERT(first == 0 || pawl_ready_before(m, pawl_core_message_at(core, first)));
    }
    PAWL_ASSERT_REL(messages, ==, r->ordered);
    PAWL_ASSERT_REL(holders, ==, r->holders);
}

static uint64_t verify_queue(const struct pawl_core *core, const struct pawl_core_queue *q,
                             struct recount *r)
{
    uint32_t ready = q->blocked.count;
    for (uint32_t i = 0; i < PAWL_PRIORITIES; i++) {
        ready += q->ready[i].count;
        PAWL_ASSERT_REL((q->levels >> i & 1), ==, (q->ready[i].count != 0));
    }
    PAWL_ASSERT_REL(ready, <=, q->ready_count);
    r->in_ready += ready;
    PAWL_ASSERT_REL(pawl_table_find(&core->queues_by_id, q->id), ==, q->number);
    PAWL_ASSERT_REL(q->in_names, ==, (q->known && !q->gone));
    return pawl_core_queue_live(q);
}

static uint64_t verify_session(const struct pawl_core *core, const struct pawl_core_session *s)
{
    uint64_t live = s->home.segment ? sizeof(struct pawl_session_rec) + PAWL_RECORD_HEAD : 0;
    uint32_t count = 0;
    uint64_t last = 0;
    for (uint32_t n = s->leases_first; n != 0; n = pawl_core_lease_at(core, n)->next) {
        const struct pawl_core_lease *l = pawl_core_lease_at(core, n);
        uint64_t grant = pawl_core_message_at(core, l->message)->grant;
        PAWL_ASSERT_REL(l->session, ==, s->number);
        PAWL_ASSERT_REL(grant, >, last);
        last = grant;
        count++;
    }
    PAWL_ASSERT_REL(count, ==, s->leases_count);
    for (uint32_t i = 0; i < PAWL_LANES_MAX; i++) {
        if (s->lanes[i] == 0)
            continue;
        const struct pawl_core_lane *lane = pawl_core_lane_at(core, s->lanes[i]);
        PAWL_ASSERT_REL(lane->lane, ==, i);
        PAWL_ASSERT_REL(lane->session, ==, s->number);
        if (lane->home.segment)
            live += pawl_core_lane_live_bytes(lane);
    }
    return live;
}

/* The key of a live message is its own, and needs no record; of one that ended, another. */
static void verify_key(const struct pawl_core *core, uint32_t n, const struct pawl_ledger_entry *e)
{
    const struct pawl_core_queue *q = pawl_core_queue_at(core, e->d);
    PAWL_ASSERT_REL(q->number, ==, e->d);
    PAWL_ASSERT_REL(e->a, !=, 0);
    if (q->gone)
        return;
    if (e->result != PAWL_STATE_NONE) {
        PAWL_ASSERT_REL(e->home.segment != 0, ==, pawl_core_queue_logged(q));
        return;
    }
    PAWL_ASSERT_REL(e->home.segment, ==, 0);
    uint32_t m = pawl_table_find(&core->messages_by_id, e->a);
    PAWL_ASSERT_REL(m, !=, 0);
    PAWL_ASSERT_REL(pawl_core_key_of(core, pawl_core_message_at(core, m)), ==, n);
}

static uint64_t verify_ledger(const struct pawl_core *core)
{
    const struct pawl_ledger *l = &core->ledger;
    uint64_t live = 0, count[PAWL_LEDGER_KINDS] = { 0 }, all = 0;
    for (uint32_t n = 1; n < l->pool.never_used; n++) {
        const struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
        if (e->kind == PAWL_LEDGER_NONE)
            continue;
        PAWL_ASSERT_REL(e->kind, <, PAWL_LEDGER_KINDS);
        uint64_t id, id_high;
        pawl_core_ledger_name(core, e, &id, &id_high);
        PAWL_ASSERT_REL(pawl_core_ledger_find(core, e->kind, id, id_high), ==, n);
        bool lives = e->kind == PAWL_LEDGER_KEY && e->result == PAWL_STATE_NONE;
        PAWL_ASSERT(!l->started || lives || (e->flags & PAWL_LEDGER_LISTED));
        if (e->kind == PAWL_LEDGER_KEY && e->d)
            verify_key(core, n, e);
        count[e->kind]++;
        all++;
        live += e->home.segment ? pawl_core_ledger_fact_bytes(core, e) : 0;
    }
    for (enum pawl_ledger_kind kind = 0; kind < PAWL_LEDGER_KINDS; kind++)
        PAWL_ASSERT_REL(count[kind], ==, l->count[kind]);
    PAWL_ASSERT_REL(l->table.entries, ==, all);
    PAWL_ASSERT_REL(l->pool.used, ==, all);
    return live;
}

void pawl_core_verify(const struct pawl_core *core)
{
    struct recount r = { 0 };
    uint64_t in_queues = 0, bytes = 0, done = 0;
    for (uint32_t n = 1; n < core->messages.never_used; n++)
        if (pawl_core_message_at(core, n)->state != PAWL_STATE_NONE)
            verify_message(core, n, &r);
    for (uint32_t n = 1; n < core->queues.never_used; n++) {
        const struct pawl_core_queue *q = pawl_core_queue_at(core, n);
        if (q->number != n)
            continue;
        in_queues += verify_queue(core, q, &r);
        bytes += q->bytes;
        done += q->done.count;
        r.live += q->known ? PAWL_QUEUE_LIVE : 0;
    }
    for (uint32_t n = 1; n < core->sessions.never_used; n++)
        if (pawl_core_session_at(core, n)->number == n)
            r.live += verify_session(core, pawl_core_session_at(core, n));
    r.live += verify_ledger(core);
    verify_orders(core, &r);
    verify_ends(core, &r);
    PAWL_ASSERT_REL(r.in_ready + r.behind, ==, r.ready);
    r.live += pawl_core_state_verify(core);
    r.live += pawl_core_idem_verify(core);
    pawl_core_watch_verify(core);
    PAWL_ASSERT_REL(r.messages, ==, core->messages_live);
    PAWL_ASSERT_REL(r.messages, ==, in_queues);
    PAWL_ASSERT_REL(r.done, ==, done);
    PAWL_ASSERT_REL(r.done, ==, core->tombstones);
    PAWL_ASSERT_REL(r.by_queue_bytes, ==, bytes);
    PAWL_ASSERT_REL(r.leases, ==, core->leases_current);
    r.live += core->horizon_home.segment ? PAWL_OUTCOME_LIVE : 0;
    PAWL_ASSERT_REL(r.live, ==, core->live);
    PAWL_ASSERT_REL(core->messages_by_id.entries, ==, r.messages + r.done);
}
