/* SPDX-License-Identifier: MIT */
/* SCAN: messages of a queue by state, in order of id, for which no index is kept.
 *
 *   - ids are given in a row, so most pages are found by looking up the next few hundred
 *   - else one pass over all messages, a slice a turn, finds the smallest ROWS ids beyond the last
 *     one asked for; they are kept, so that the next pages cost nothing
 *   - a kept id is looked up again when it is shown: a page is true at the moment it is answered
 *
 * One pass at a time; others wait in a row.
 */
#include "abi/lane_id.h"
#include "core/core_inner.h"

#define PROBES 512u
#define SLICE 16384u
#define PAGE_ROWS (PAWL_DATA_BYTES_MAX / sizeof(struct pawl_record))
#define ROWS (PAWL_CORE_SCAN_BYTES / sizeof(uint64_t))

static bool wanted(const struct pawl_core_message *m, const struct pawl_core_scan *job)
{
    return m->state != PAWL_STATE_NONE && m->queue == job->queue && (job->mask >> m->state & 1) &&
           m->id > job->after;
}

/* --- answer ---------------------------------------------------------------------------------- */

void pawl_core_record_fill(const struct pawl_core *core, const struct pawl_core_message *m,
                           struct pawl_record *r)
{
    memset(r, 0, sizeof *r);
    r->size = sizeof *r;
    r->id = m->id;
    r->state = m->state;
    r->priority = m->priority;
    r->acquired = m->acquired;
    r->failed = (uint32_t)m->expired + m->nacked;
    r->crashed = m->crashed;
    r->expired = m->expired;
    r->nacked = m->nacked;
    r->deferred = m->deferred;
    r->dead_reason = m->dead_reason;
    r->bytes = m->body_bytes;
    if (pawl_core_terminal(m->state)) {
        struct pawl_op_rec op;
        r->holder_pid = pawl_core_ended_pid(m);
        if (pawl_core_ended_op(m, &op)) {
            const struct pawl_lane_id id = { op.session, op.seq, op.lane };
            pawl_lane_id_pack(&id, &r->done_by);
            r->bytes = 0;
        }
        r->done_wall_ns = m->place;
        r->result_bytes = pawl_core_result_bytes(core, m);
        return;
    }
    r->created_wall_ns = m->sent_wall;
    uint64_t now = core->now.time;
    if (m->state == PAWL_STATE_SCHEDULED) {
        uint64_t due = pawl_core_message_due(core, m);
        r->due_in_ns = due > now ? due - now : 0;
    }
    if (m->lease == 0)
        return;
    const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    if (l->reason)
        memcpy(r->reason, pawl_payload_at(&core->payload, l->reason), l->reason_bytes);
    if (m->state == PAWL_STATE_LEASED) {
        r->holder_pid = l->pid;
        r->lease_left_ns = l->deadline > now ? l->deadline - now : 0;
    }
}

static void answer(struct pawl_core *core, const struct pawl_core_scan *job, const uint32_t *rows,
                   uint32_t count)
{
    struct pawl_core_lane *lane = pawl_core_lane_at(core, job->lane);
    const struct pawl_core_queue *q = pawl_core_queue_at(core, job->queue);
    uint64_t wait = pawl_core_queue_wait(core, q);
    uint32_t bytes = count * (uint32_t)sizeof(struct pawl_record);
    uint8_t *data;
    uint32_t block = pawl_core_data_buffer(core, bytes, &data);
    if (block == 0) {
        pawl_core_lane_answer(core, lane, job->seq, PAWL_E_FULL, PAWL_LIMIT_MEMORY, 0, wait, 0);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        pawl_core_record_fill(core, pawl_core_message_at(core, rows[i]),
                              (struct pawl_record *)(void *)data + i);
    pawl_core_lane_answer_data(core, lane, job->seq, block, bytes, count, wait);
}

/* --- the next ids ---------------------------------------------------------------------------- */

/* Answered if the page is full or there are no more ids. */
static bool probe(struct pawl_core *core, const struct pawl_core_scan *job)
{
    uint64_t newest = core->options.epoch << PAWL_EPOCH_SHIFT | core->next_id;
    uint32_t rows[PAGE_ROWS], count = 0;
    uint64_t id = job->after;
    for (uint32_t i = 0; i < PROBES && count < job->max && id < newest; i++) {
        uint32_t n = pawl_table_find(&core->messages_by_id, ++id);
        if (n != 0 && wanted(pawl_core_message_at(core, n), job))
            rows[count++] = n;
    }
    if (count < job->max && id < newest)
        return false;
    answer(core, job, rows, count);
    return true;
}

/* --- kept ids -------------------------------------------------------------------------------- */

/* Answered if this goes on where the last page of a pass ended, with a full page. A new scan must
 * not see old ids, nor the end of one: what came to its states meanwhile would be missing. */
static bool from_kept(struct pawl_core *core, struct pawl_core_scan *job, bool fresh)
{
    struct pawl_core_kept *k = &core->kept;
    if (k->queue != job->queue_id || k->mask != job->mask || k->lane != job->lane ||
        k->after != job->after)
        return false;
    uint32_t rows[PAGE_ROWS], count = 0, low = 0, high = k->count;
    while (low < high) { /* the first one beyond `after` */
        uint32_t middle = low + (high - low) / 2;
        if (core->scan_ids[middle] <= job->after)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < k->count && count < job->max; low++) {
        uint32_t n = pawl_table_find(&core->messages_by_id, core->scan_ids[low]);
        if (n != 0 && wanted(pawl_core_message_at(core, n), job))
            rows[count++] = n;
    }
    bool all = fresh && k->count < ROWS;
    if (count < job->max && !all)
        return false;
    if (count < job->max)
        k->queue = 0;
    else
        k->after = pawl_core_message_at(core, rows[count - 1])->id;
    answer(core, job, rows, count);
    return true;
}

/* --- pass ------------------------------------------------------------------------------------ */

/* A heap of the smallest ids found, the largest of them on top. */
static void sift_down(uint64_t *ids, uint32_t count, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && ids[child + 1] > ids[child])
            child++;
        if (ids[at] >= ids[child])
            return;
        uint64_t swap = ids[at];
        ids[at] = ids[child];
        ids[child] = swap;
        at = child;
    }
}

static void heap_add(uint64_t *ids, uint32_t *count, uint64_t id)
{
    if (*count == ROWS) {
        if (id < ids[0]) {
            ids[0] = id;
            sift_down(ids, *count, 0);
        }
        return;
    }
    uint32_t at = (*count)++;
    for (; at > 0 && ids[(at - 1) / 2] < id; at = (at - 1) / 2)
        ids[at] = ids[(at - 1) / 2];
    ids[at] = id;
}

static void heap_sort(uint64_t *ids, uint32_t count)
{
    while (count > 1) {
        uint64_t largest = ids[0];
        ids[0] = ids[--count];
        ids[count] = largest;
        sift_down(ids, count, 0);
    }
}

/* True: the pass is over. */
static bool slice(struct pawl_core *core, struct pawl_core_scan *job)
{
    uint32_t end =
        (uint32_t)pawl_min_u64((uint64_t)job->position + SLICE, core->messages.never_used);
    for (; job->position < end; job->position++) {
        const struct pawl_core_message *m = pawl_core_message_at(core, job->position);
        if (wanted(m, job))
            heap_add(core->scan_ids, &job->found, m->id);
    }
    return end == core->messages.never_used;
}

static void begin_pass(struct pawl_core *core, struct pawl_core_scan *job)
{
    core->kept.queue = 0; /* its ids are overwritten */
    job->position = 1;
    job->found = 0;
}

/* What the pass found is kept and shown. True: answered; else too much of it has changed. */
static bool end_pass(struct pawl_core *core, struct pawl_core_scan *job)
{
    heap_sort(core->scan_ids, job->found);
    core->kept = (struct pawl_core_kept){
        .queue = job->queue_id,
        .after = job->after,
        .lane = job->lane,
        .mask = job->mask,
        .count = job->found,
    };
    return from_kept(core, job, true);
}

/* True: the job is over. */
static bool run(struct pawl_core *core, struct pawl_core_scan *job)
{
    const struct pawl_core_queue *q = pawl_core_queue_at(core, job->queue);
    if (job->lane == 0)
        return true;
    if (q->number != job->queue || q->id != job->queue_id || q->gone) {
        pawl_core_lane_answer(core, pawl_core_lane_at(core, job->lane), job->seq, PAWL_E_QUEUE_GONE,
                              0, 0, pawl_core_appended(core), 0);
        return true;
    }
    if (job->position == 0) {
        if (from_kept(core, job, false))
            return true;
        begin_pass(core, job);
    }
    if (!slice(core, job))
        return false;
    if (end_pass(core, job))
        return true;
    begin_pass(core, job);
    return false;
}

void pawl_core_scan_pump(struct pawl_core *core)
{
    uint32_t n = core->scans_first;
    if (n == 0)
        return;
    struct pawl_core_scan *job = pawl_pool_at(&core->scans, n);
    if (run(core, job)) {
        core->scans_first = job->next;
        if (core->scans_first == 0)
            core->scans_last = 0;
        pawl_pool_give(&core->scans, n);
    }
    if (core->scans_first)
        pawl_core_again(core);
}

void pawl_core_scan_lane_gone(struct pawl_core *core, uint32_t lane)
{
    for (uint32_t n = core->scans_first; n != 0;) {
        struct pawl_core_scan *job = pawl_pool_at(&core->scans, n);
        if (job->lane == lane) {
            struct pawl_window_entry *e =
                pawl_core_lane_entry(core, pawl_core_lane_at(core, lane), job->seq);
            if (e->seq == job->seq)
                e->state = PAWL_WINDOW_NONE; /* submitted again, it is a new one */
            job->lane = 0;
        }
        n = job->next;
    }
}

/* --- command --------------------------------------------------------------------------------- */

void pawl_core_scan_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_scan *c = t->fixed;
    int result;
    if (pawl_core_direct_scan(t))
        return;
    const struct pawl_core_queue *q = pawl_core_queue_for(t, c->queue, PAWL_RIGHT_QUERY, &result);
    if (!q) {
        pawl_core_take_answer(t, result, 0, pawl_core_appended(core));
        return;
    }
    struct pawl_core_scan job = {
        .seq = t->seq,
        .after = c->after_id,
        .queue_id = q->id,
        .queue = q->number,
        .lane = t->lane->number,
        .mask = c->state_mask,
        .max = (uint32_t)pawl_min_u64(c->max ? c->max : 1, PAGE_ROWS),
    };
    if (probe(core, &job))
        return;
    pawl_core_memory_open(core);
    uint32_t n = pawl_pool_take(&core->scans);
    pawl_core_memory_close(core);
    if (n == 0) {
        pawl_core_take_answer(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY, 0);
        return;
    }
    *(struct pawl_core_scan *)pawl_pool_at(&core->scans, n) = job;
    if (core->scans_last)
        ((struct pawl_core_scan *)pawl_pool_at(&core->scans, core->scans_last))->next = n;
    else
        core->scans_first = n;
    core->scans_last = n;
    *pawl_core_lane_entry(core, t->lane, t->seq) =
        (struct pawl_window_entry){ .seq = t->seq, .state = PAWL_WINDOW_PENDING };
    if (core->scans_first == n)
        pawl_core_scan_pump(core);
}
