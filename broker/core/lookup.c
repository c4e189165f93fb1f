/* SPDX-License-Identifier: MIT */
/* QUERY: records of messages by id, up to 1,024 at once, or by dedup key.
 *
 * All are looked up in one turn, so they are true at one lsn. What does not fit into one answer is
 * kept with the lane, as it was then, until it has been asked for: one such copy a lane, gone with
 * its rings or the next question. Who asks for more of a copy that is gone begins anew.
 *
 * An id that is unknown and one that is another queue's answer the same. */
#include "core/core_inner.h"

#define ITEMS_AN_ANSWER                                                  \
    ((uint32_t)((PAWL_DATA_BYTES_MAX - sizeof(struct pawl_query_data)) / \
                sizeof(struct pawl_query_item)))

static uint32_t items_bytes(uint32_t count)
{
    return count * (uint32_t)sizeof(struct pawl_query_item);
}

void pawl_core_lookup_drop(struct pawl_core *core, struct pawl_core_lane *lane)
{
    if (lane->query_block)
        pawl_payload_give(&core->payload, lane->query_block, items_bytes(lane->query_count));
    lane->query_block = 0;
}

bool pawl_core_lookup_fits(const struct pawl_cmd_query *c, uint32_t variable_bytes)
{
    if (c->kind == PAWL_QUERY_IDS)
        return c->count >= 1 && c->count <= PAWL_BATCH_MAX &&
               variable_bytes == c->count * sizeof(uint64_t);
    if (c->kind == PAWL_QUERY_KEY)
        return c->count >= 1 && c->count <= PAWL_KEY_BYTES_MAX && variable_bytes >= c->count &&
               variable_bytes - c->count < 8;
    if (c->kind == PAWL_QUERY_MESSAGE || c->kind == PAWL_QUERY_SESSION)
        return c->count == 1 && variable_bytes == sizeof(uint64_t);
    return c->kind == PAWL_QUERY_MORE && variable_bytes == 0;
}

/* --- items ----------------------------------------------------------------------------------- */

static void by_id(const struct pawl_core *core, const struct pawl_core_queue *q, uint64_t id,
                  struct pawl_query_item *out)
{
    memset(out, 0, sizeof *out);
    uint32_t n = id ? pawl_table_find(&core->messages_by_id, id) : 0;
    const struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
#ifndef PAWL_BUG_QUERY_OTHER_QUEUE
    if (m && m->queue != q->number)
        m = NULL;
#endif
    if (m) {
        pawl_core_record_fill(core, m, &out->record);
        return;
    }
    out->record.size = sizeof out->record;
    out->record.id = id;
    out->result = pawl_core_id_given(core, id) ? PAWL_E_FORGOTTEN : PAWL_E_NOT_FOUND;
}

/* A key outlives the record of its message: then its id and how it ended are known. */
static void by_key(const struct pawl_core *core, const struct pawl_core_queue *q,
                   const uint8_t *key, uint32_t bytes, struct pawl_query_item *out)
{
    uint64_t id, id_high;
    pawl_core_key_name(core, q->id, key, bytes, &id, &id_high);
    uint32_t n = pawl_core_ledger_find(core, PAWL_LEDGER_KEY, id, id_high);
    const struct pawl_ledger_entry *e = n ? pawl_ledger_at(&core->ledger, n) : NULL;
    memset(out, 0, sizeof *out);
    out->record.size = sizeof out->record;
    out->result = PAWL_E_NOT_FOUND;
    if (!e || !pawl_core_key_valid(core, e))
        return;
    by_id(core, q, e->a, out);
    if (out->result != PAWL_OK) {
        out->result = PAWL_OK;
        out->record.state = pawl_core_key_state(core, e);
    }
}

/* --- answers --------------------------------------------------------------------------------- */

static void refuse(struct pawl_take *t, int result, uint64_t value)
{
    pawl_core_take_answer(t, result, value, pawl_core_appended(t->core));
}

/* Items of `all` from here on, as many as fit. Returns how many, 0: no memory, and it is said. */
static uint32_t show(struct pawl_take *t, const struct pawl_query_item *all, uint32_t count,
                     uint32_t from, uint64_t lsn)
{
    uint32_t some = (uint32_t)pawl_min_u64(count - from, ITEMS_AN_ANSWER), block;
    uint8_t *data;
    uint32_t bytes = (uint32_t)sizeof(struct pawl_query_data) + items_bytes(some);
    block = pawl_core_data_buffer(t->core, bytes, &data);
    if (block == 0) {
        refuse(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY);
        return 0;
    }
    const struct pawl_query_data d = { .lsn = lsn, .count = count, .from = from };
    memcpy(data, &d, sizeof d);
    memcpy(data + sizeof d, all + from, items_bytes(some));
    uint64_t wait = pawl_core_appended(t->core);
#ifdef PAWL_BUG_QUERY_EARLY
    wait = 0;
#endif
    pawl_core_lane_answer_data(t->core, t->lane, t->seq, block, bytes, count, wait);
    return some;
}

static void more(struct pawl_take *t, const struct pawl_core_queue *q)
{
    struct pawl_core *core = t->core;
    struct pawl_core_lane *lane = t->lane;
    const struct pawl_cmd_query *c = t->fixed;
    if (lane->query_block == 0 || lane->query_lsn != c->lsn || lane->query_queue != q->id ||
        c->from >= lane->query_count) {
        refuse(t, PAWL_E_CONFLICT, 0);
        return;
    }
    const struct pawl_query_item *all = pawl_payload_at(&core->payload, lane->query_block);
    uint32_t some = show(t, all, lane->query_count, c->from, c->lsn);
    if (c->from + some == lane->query_count)
        pawl_core_lookup_drop(core, lane);
}

static void ids(struct pawl_take *t, const struct pawl_core_queue *q)
{
    struct pawl_core *core = t->core;
    struct pawl_core_lane *lane = t->lane;
    const struct pawl_cmd_query *c = t->fixed;
    pawl_core_lookup_drop(core, lane);
    uint32_t block = pawl_payload_take(&core->payload, items_bytes(c->count));
    if (block == 0) {
        refuse(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY);
        return;
    }
    struct pawl_query_item *all = pawl_payload_at(&core->payload, block);
    for (uint32_t i = 0; i < c->count; i++) {
        uint64_t id;
        memcpy(&id, t->variable + i * sizeof id, sizeof id);
        by_id(core, q, id, &all[i]);
    }
    lane->query_block = block;
    lane->query_count = c->count;
    lane->query_queue = q->id;
    lane->query_lsn = pawl_core_appended(core);
    uint32_t some = show(t, all, c->count, 0, lane->query_lsn);
    if (some == 0 || some == c->count)
        pawl_core_lookup_drop(core, lane);
}

static void key(struct pawl_take *t, const struct pawl_core_queue *q)
{
    const struct pawl_cmd_query *c = t->fixed;
    uint8_t bytes[PAWL_KEY_BYTES_MAX];
    struct pawl_query_item item;
    memcpy(bytes, t->variable, c->count);
    by_key(t->core, q, bytes, c->count, &item);
    if (item.result != PAWL_OK)
        refuse(t, item.result, 0);
    else
        (void)show(t, &item, 1, 0, pawl_core_appended(t->core));
}

/* --- one, wherever it is --------------------------------------------------------------------- */

static void fill_lease(const struct pawl_core *core, const struct pawl_core_message *m,
                       struct pawl_record_more *r)
{
    const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    uint64_t now = core->now.time;
    r->holder_uid = l->uid;
    if (m->state != PAWL_STATE_LEASED)
        return;
    r->lease_ns = l->lease_ns;
    r->lease_kind = l->kind;
    r->hold_left_ns = l->hold_end > now ? l->hold_end - now : 0;
    if (l->session == 0)
        return;
    const struct pawl_core_session *s = pawl_core_session_at(core, l->session);
    r->session = s->id;
    memcpy(r->label, s->peer.label, sizeof r->label);
}

static void fill_more(const struct pawl_core *core, const struct pawl_core_message *m,
                      struct pawl_record_more *r)
{
    *r = (struct pawl_record_more){ .size = sizeof *r, .grant = m->grant };
    memcpy(r->queue, pawl_core_queue_at(core, m->queue)->name, sizeof r->queue);
    r->ttl_left_ns = PAWL_UNLIMITED;
    if (pawl_core_terminal(m->state)) {
        r->holder_uid = m->timer;
        return;
    }
    uint64_t end = pawl_core_message_ttl_end(core, m), now = core->now.time;
    if (end != UINT64_MAX)
        r->ttl_left_ns = end > now ? end - now : 0;
    if (m->lease)
        fill_lease(core, m, r);
    r->key_bytes = m->key_bytes;
    r->ordering_key_bytes = m->ordering_key_bytes;
    if (m->payload == 0)
        return;
    const uint8_t *key = (const uint8_t *)pawl_payload_at(&core->payload, m->payload) +
                         pawl_core_message_own_bytes(m);
    memcpy(r->key, key, m->key_bytes);
    memcpy(r->ordering_key, key + m->key_bytes, m->ordering_key_bytes);
}

/* `bytes` of what there is, behind the head of all such answers. */
static void tell(struct pawl_take *t, const void *what, uint32_t bytes)
{
    uint8_t *data;
    const struct pawl_query_data d = { .lsn = pawl_core_appended(t->core), .count = 1 };
    uint32_t block = pawl_core_data_buffer(t->core, (uint32_t)sizeof d + bytes, &data);
    if (block == 0) {
        refuse(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY);
        return;
    }
    memcpy(data, &d, sizeof d);
    memcpy(data + sizeof d, what, bytes);
    pawl_core_lane_answer_data(t->core, t->lane, t->seq, block, (uint32_t)sizeof d + bytes, 1,
                               d.lsn);
}

static void message(struct pawl_take *t, uint64_t id)
{
    const struct pawl_core *core = t->core;
    const struct pawl_core_peer *peer = &t->session->peer;
    struct {
        struct pawl_query_item item;
        struct pawl_record_more more;
    } all = { .item.reserved = 0 };
    uint32_t n = id ? pawl_table_find(&core->messages_by_id, id) : 0;
    const struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
    const struct pawl_core_queue *q = m ? pawl_core_queue_at(core, m->queue) : NULL;
#ifndef PAWL_BUG_QUERY_WITHOUT_RIGHT
    if (q && (q->gone || !pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_QUERY)))
        m = NULL;
#endif
    if (!m) { /* one that is not his to see answers as one that there is not */
        refuse(t, pawl_core_id_given(core, id) ? PAWL_E_FORGOTTEN : PAWL_E_NOT_FOUND, 0);
        return;
    }
    by_id(core, q, id, &all.item);
    fill_more(core, m, &all.more);
    tell(t, &all, sizeof all);
}

static void session(struct pawl_take *t, uint64_t id)
{
    const struct pawl_core *core = t->core;
    uint32_t uid = t->session->peer.uid;
    uint32_t n = id ? pawl_table_find(&core->sessions_by_id, id) : 0;
    const struct pawl_core_session *s = n ? pawl_core_session_at(core, n) : NULL;
    if (!s || (s->peer.uid != uid && uid != 0 && uid != core->options.admin_uid)) {
        refuse(t, PAWL_E_NOT_FOUND, 0);
        return;
    }
    struct pawl_session_record r = {
        .size = sizeof r,
        .id = s->id,
        .epoch = s->epoch,
        .pid = s->peer.pid,
        .uid = s->peer.uid,
        .gid = s->peer.gid,
        .ending = s->state == PAWL_SESSION_ENDING,
        .lanes = s->lanes_count,
        .leases = s->leases_count,
        .idems = s->idems_count,
        .waits = s->waiters_count,
    };
    if (s->state == PAWL_SESSION_DETACHED)
        r.detached_ns = core->now.time - s->detached_at + 1;
    memcpy(r.label, s->peer.label, sizeof r.label);
    tell(t, &r, sizeof r);
}

void pawl_core_lookup_take(struct pawl_take *t)
{
    const struct pawl_cmd_query *c = t->fixed;
    int result;
    uint64_t id;
    if (c->kind == PAWL_QUERY_MESSAGE || c->kind == PAWL_QUERY_SESSION) {
        memcpy(&id, t->variable, sizeof id);
        if (c->kind == PAWL_QUERY_MESSAGE)
            message(t, id);
        else
            session(t, id);
        return;
    }
    const struct pawl_core_queue *q = pawl_core_queue_for(t, c->queue, PAWL_RIGHT_QUERY, &result);
    if (!q)
        refuse(t, result, 0);
    else if (c->kind == PAWL_QUERY_IDS)
        ids(t, q);
    else if (c->kind == PAWL_QUERY_KEY)
        key(t, q);
    else
        more(t, q);
}
