/* SPDX-License-Identifier: MIT */
/* What only reads, but for SCAN: STAT, LIST, PEEK, METRICS. Each answers with data, or with a plain
 * refusal. */
#include "core/core_inner.h"

static void refuse(struct pawl_take *t, int result, uint64_t value, uint64_t wait)
{
    pawl_core_take_answer(t, result, value, wait);
}

static uint8_t *buffer(struct pawl_take *t, uint32_t bytes, uint32_t *block)
{
    uint8_t *data = NULL;
    *block = pawl_core_data_buffer(t->core, bytes, &data);
    if (*block == 0)
        refuse(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY, 0);
    return data;
}

static void answer(struct pawl_take *t, uint32_t block, uint32_t bytes, uint64_t value,
                   uint64_t wait)
{
    pawl_core_data_shrink(t->core, block, bytes);
    pawl_core_lane_answer_data(t->core, t->lane, t->seq, block, bytes, value, wait);
}

/* --- stat, list ------------------------------------------------------------------------------ */

static uint64_t oldest_ready(const struct pawl_core *core, const struct pawl_core_queue *q)
{
    uint64_t oldest = core->now.time;
    for (uint32_t i = 0; i < PAWL_PRIORITIES; i++) {
        uint32_t n = q->ready[i].count ? pawl_ready_first(&q->ready[i], &core->messages) : 0;
        if (n)
            oldest = pawl_min_u64(oldest, pawl_core_message_at(core, n)->place);
    }
    uint32_t n = pawl_ready_first(&q->blocked, &core->messages);
    if (n)
        oldest = pawl_min_u64(oldest, pawl_core_message_at(core, n)->place);
    return core->now.time - oldest;
}

static void fill_stat(const struct pawl_core *core, const struct pawl_core_queue *q,
                      struct pawl_queue_stat *s)
{
    memset(s, 0, sizeof *s);
    s->size = sizeof *s;
    memcpy(s->name, q->name, sizeof s->name);
    s->id = q->id;
    s->options = q->options;
    s->paused = q->paused;
    s->waiting = q->waiting_count;
    s->ready = q->ready_count;
    s->scheduled = q->scheduled.count;
    s->leased = q->leased.count;
    s->dead = q->dead.count;
    s->done = q->done.count;
    s->bytes = q->bytes;
    if (q->options.mode == PAWL_TABLE) {
        s->ready = q->keys;
        s->bytes = q->state_bytes;
        s->done = q->idems;
    }
    s->sent = q->counters.sent;
    s->delivered = q->counters.delivered;
    s->acked = q->counters.acked;
    s->nacked = q->counters.nacked;
    s->expired_leases = q->counters.expired_leases;
    s->crashed = q->counters.crashed;
    s->released = q->counters.released;
    s->expired = q->counters.expired;
    s->cancelled = q->counters.cancelled;
    s->purged = q->counters.purged;
    s->oldest_ready_ns = oldest_ready(core, q);
    if (q->options.mode == PAWL_DIRECT)
        pawl_core_direct_stat(core, q, s);
}

static void stat(struct pawl_take *t, const struct pawl_cmd_queue *c)
{
    struct pawl_core *core = t->core;
    uint32_t n = pawl_core_queue_find_name(core, c->name);
    const struct pawl_core_queue *q = n ? pawl_core_queue_at(core, n) : NULL;
    const struct pawl_core_peer *peer = &t->session->peer;
    if (!q || !pawl_core_queue_sees(core, q, peer)) {
        refuse(t, PAWL_E_NOT_FOUND, 0, pawl_core_appended(core));
        return;
    }
    if (!pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_QUERY)) {
        refuse(t, PAWL_E_PERM, 0, pawl_core_appended(core));
        return;
    }
    uint32_t block;
    struct pawl_queue_stat *s = (void *)buffer(t, sizeof *s, &block);
    if (!s)
        return;
    fill_stat(core, q, s);
    answer(t, block, sizeof *s, 1, pawl_core_appended(core));
}

static void list(struct pawl_take *t, const struct pawl_cmd_queue *c)
{
    struct pawl_core *core = t->core;
    const struct pawl_core_peer *peer = &t->session->peer;
    uint32_t max = PAWL_DATA_BYTES_MAX / sizeof(struct pawl_queue_stat);
    max = (uint32_t)pawl_min_u64(max, c->max ? c->max : 1);
    uint32_t block;
    uint8_t *data = buffer(t, max * (uint32_t)sizeof(struct pawl_queue_stat), &block);
    if (!data)
        return;
    uint32_t count = 0;
    for (uint32_t i = pawl_core_queue_after(core, c->name); i < core->names_count && count < max;
         i++) {
        const struct pawl_core_queue *q = pawl_core_queue_at(core, core->names[i]);
        if (!pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_QUERY))
            continue;
        fill_stat(core, q, (struct pawl_queue_stat *)(void *)data + count);
        count++;
    }
    answer(t, block, count * (uint32_t)sizeof(struct pawl_queue_stat), count,
           pawl_core_appended(core));
}

/* --- peek ------------------------------------------------------------------------------------ */

static void peek_result(struct pawl_take *t, const struct pawl_core_message *m, uint64_t wait)
{
    const uint8_t *result = NULL;
    uint32_t bytes = pawl_core_result_of(t->core, m->child, &result), block;
    uint8_t *data = buffer(t, bytes, &block);
    if (!data)
        return;
    if (bytes)
        memcpy(data, result, bytes);
    answer(t, block, bytes, bytes, wait);
}

static void peek(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_cmd_message c;
    memcpy(&c, t->fixed, sizeof c);
    int result;
    const struct pawl_core_queue *q = pawl_core_queue_for(t, c.queue, PAWL_RIGHT_QUERY, &result);
    if (!q) {
        refuse(t, result, 0, pawl_core_appended(core));
        return;
    }
    uint32_t n = c.id ? pawl_table_find(&core->messages_by_id, c.id) : 0;
    const struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
    uint64_t wait = pawl_core_queue_wait(core, q);
    if (!m || m->queue != q->number) {
        bool given = !m && pawl_core_id_given(core, c.id);
        refuse(t, given ? PAWL_E_FORGOTTEN : PAWL_E_NOT_FOUND, 0, wait);
        return;
    }
    bool of_result = c.flags & PAWL_PEEK_RESULT;
    if (pawl_core_terminal(m->state) != of_result) {
        refuse(t, PAWL_E_STATE, m->state, wait);
        return;
    }
    if (of_result) {
        peek_result(t, m, wait);
        return;
    }
    uint64_t left = c.offset < m->body_bytes ? m->body_bytes - c.offset : 0;
    uint32_t bytes = (uint32_t)pawl_min_u64(left, PAWL_DATA_BYTES_MAX), block;
    uint8_t *data = buffer(t, bytes, &block);
    if (!data)
        return;
    if (bytes) {
        uint32_t before = pawl_core_message_payload_bytes(m) - m->body_bytes;
        memcpy(data, (uint8_t *)pawl_payload_at(&core->payload, m->payload) + before + c.offset,
               bytes);
    }
    answer(t, block, bytes, m->body_bytes, wait);
}

/* --- metrics --------------------------------------------------------------------------------- */

static void metrics(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_cmd_one c;
    memcpy(&c, t->fixed, sizeof c);
    uint32_t block;
    uint8_t *data = buffer(t, PAWL_DATA_BYTES_MAX, &block);
    if (!data)
        return;
    struct pawl_core_text text = { .out = (char *)data,
                                   .bytes = PAWL_DATA_BYTES_MAX,
                                   .skip = c.value };
    pawl_core_metrics_text(core, &text, &t->session->peer);
    uint64_t have = text.length > c.value ? text.length - c.value : 0;
    answer(t, block, (uint32_t)pawl_min_u64(have, PAWL_DATA_BYTES_MAX), text.length, 0);
}

void pawl_core_query_take(struct pawl_take *t)
{
    struct pawl_cmd_queue c;
    switch (t->type) {
    case PAWL_CMD_SCAN:
        pawl_core_scan_take(t);
        return;
    case PAWL_CMD_PEEK:
        peek(t);
        return;
    case PAWL_CMD_METRICS:
        metrics(t);
        return;
    default:
        break;
    }
    memcpy(&c, t->fixed, sizeof c);
    bool all = t->type == PAWL_CMD_QUEUE_LIST && c.name[0] == 0;
    if (!all && !pawl_name_valid(c.name))
        refuse(t, PAWL_E_INVALID, 0, 0);
    else if (t->type == PAWL_CMD_QUEUE_STAT)
        stat(t, &c);
    else
        list(t, &c);
}
