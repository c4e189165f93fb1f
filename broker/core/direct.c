/* SPDX-License-Identifier: MIT */
/* Direct queues as the core sees them: a name, options and rights, durable as those of any queue.
 * Their messages are in shared memory that the shell keeps (session/direct.h), so whatever is about
 * messages is asked from it, or is E_NOT_SUPPORTED. */
#include "core/core_inner.h"

#define DIRECT_ATTEMPTS_DEFAULT 16u

void pawl_core_set_direct(struct pawl_core *core, const struct pawl_core_direct *direct)
{
    core->direct = *direct;
}

/* What nobody reads is zero, so that two of the same meaning are the same bytes. */
void pawl_core_direct_canonical(struct pawl_queue_options *o)
{
    if (o->max_messages == 0)
        o->max_messages = PAWL_DIRECT_MESSAGES_DEFAULT;
    if (o->max_message_bytes == 0)
        o->max_message_bytes = PAWL_DIRECT_MESSAGE_BYTES_DEFAULT;
    if (o->lease_ns == 0)
        o->lease_ns = PAWL_LEASE_NS_DEFAULT;
    if (o->max_hold_ns == 0)
        o->max_hold_ns = PAWL_LEASE_NS_MAX;
    if (o->max_failed == PAWL_KEEP)
        o->max_failed = DIRECT_ATTEMPTS_DEFAULT;
    else if (o->max_failed == 0)
        o->max_failed = PAWL_DIRECT_FAILED_MAX;
    o->max_crashed = 0;
    o->ttl_ns = o->done_retention_ns = o->dedup_window_ns = o->max_bytes = 0;
    o->max_inflight = 0;
    if (o->retry_count == 1 && o->retry_ns[0] == 0)
        o->retry_count = 0;
}

int pawl_core_direct_create(struct pawl_core *core, uint64_t id, const char *name,
                            const struct pawl_queue_options *options)
{
    if (!core->direct.create)
        return PAWL_E_NOT_SUPPORTED;
    return core->direct.create(core->direct.ctx, id, name, options);
}

void pawl_core_direct_changed(struct pawl_core *core, const struct pawl_core_queue *q,
                              uint64_t wait_lsn)
{
    if (q->options.mode == PAWL_DIRECT && core->direct.changed)
        core->direct.changed(core->direct.ctx, q->id, q->gone, wait_lsn);
}

void pawl_core_direct_stat(const struct pawl_core *core, const struct pawl_core_queue *q,
                           struct pawl_queue_stat *s)
{
    if (core->direct.stat)
        core->direct.stat(core->direct.ctx, q->id, s);
}

/* --- SCAN and RESTORE ------------------------------------------------------------------------ */

/* The direct queue of a command; NULL: it is another kind, or *result says why not. */
static const struct pawl_core_queue *direct_of(struct pawl_take *t, uint64_t id, uint32_t right,
                                               int *result)
{
    const struct pawl_core_queue *q =
        pawl_core_queue_of(t->core, &t->session->peer, id, right, result);
    return q && q->options.mode == PAWL_DIRECT ? q : NULL;
}

bool pawl_core_direct_scan(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_scan *c = t->fixed;
    int result;
    const struct pawl_core_queue *q = direct_of(t, c->queue, PAWL_RIGHT_QUERY, &result);
    if (!q)
        return false;
    uint64_t wait = pawl_core_appended(core);
    uint32_t max = PAWL_DATA_BYTES_MAX / (uint32_t)sizeof(struct pawl_record);
    max = (uint32_t)pawl_min_u64(c->max ? c->max : 1, max);
    uint8_t *data;
    uint32_t block = pawl_core_data_buffer(core, max * (uint32_t)sizeof(struct pawl_record), &data);
    if (block == 0) {
        pawl_core_take_answer(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY, wait);
        return true;
    }
    uint32_t n = core->direct.scan ? core->direct.scan(core->direct.ctx, q->id, c->after_id,
                                                       c->state_mask, (void *)data, max)
                                   : 0;
    pawl_core_data_shrink(core, block, n * (uint32_t)sizeof(struct pawl_record));
    pawl_core_lane_answer_data(core, t->lane, t->seq, block,
                               n * (uint32_t)sizeof(struct pawl_record), n, wait);
    return true;
}

bool pawl_core_direct_restore(struct pawl_take *t)
{
    const struct pawl_cmd_message *c = t->fixed;
    int result;
    if (t->type != PAWL_CMD_RESTORE)
        return false;
    const struct pawl_core_queue *q = direct_of(t, c->queue, PAWL_RIGHT_RECEIVE, &result);
    if (!q)
        return false;
    const struct pawl_core_direct *direct = &t->core->direct;
    result = direct->restore ? direct->restore(direct->ctx, q->id, c->id) : PAWL_E_NOT_SUPPORTED;
    pawl_core_take_answer(t, result, 0, pawl_core_appended(t->core));
    return true;
}

/* --- for the shell --------------------------------------------------------------------------- */

void pawl_core_direct_each(const struct pawl_core *core,
                           void (*each)(void *ctx, uint64_t id, const char *name,
                                        const struct pawl_queue_options *options),
                           void *ctx)
{
    for (uint32_t i = 0; i < core->names_count; i++) {
        const struct pawl_core_queue *q = pawl_core_queue_at(core, core->names[i]);
        if (q->options.mode == PAWL_DIRECT)
            each(ctx, q->id, q->name, &q->options);
    }
}

int pawl_core_direct_allows(const struct pawl_core *core, const struct pawl_core_peer *peer,
                            uint64_t id, uint32_t rights)
{
    int result;
    const struct pawl_core_queue *q = pawl_core_queue_of(core, peer, id, rights, &result);
    if (!q)
        return result;
    return q->options.mode == PAWL_DIRECT ? PAWL_OK : PAWL_E_NOT_SUPPORTED;
}
