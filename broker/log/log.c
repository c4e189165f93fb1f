/* SPDX-License-Identifier: MIT */
/* The writer: open block, seal, completions, durable.
 *
 * - append: moves a cursor in the open block; nothing else.
 * - seal: the header is filled in, the hash made, a durable write started; the next buffer opens
 *   right behind.
 * - a write completes: its block is done; durable moves over the unbroken row of done blocks from
 *   the oldest on; their buffers are free.
 * - the segment is full: the next block begins the next segment. It waits until nothing is in
 *   flight, goes alone, and counts only when the head file that names the segment is durable.
 * - a write fails: pawl_log_fail(), and nothing counts any more. */
#include "log/log_inner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/kill.h"

/* --- failure --------------------------------------------------------------------------------- */

void pawl_log_fail(struct pawl_log *log, const char *what, uint64_t offset, int error)
{
    PAWL_ASSERT_REL(error, <, 0);
    if (!log->failed)
        snprintf(log->failure, sizeof log->failure, "%s at offset %llu: %s", what,
                 (unsigned long long)offset, strerror(-error));
    log->failed = true;
    log->cap = 0;
    log->room_empty = 0;
}

/* --- the open block -------------------------------------------------------------------------- */

static uint64_t block_room(uint64_t bytes) { return bytes - PAWL_BLOCK_HEADER - 8; }

static void place_at(struct pawl_log *log, uint64_t position)
{
    uint64_t in = position % log->id.segment_bytes;
    uint64_t bytes = log->id.segment_bytes - in - PAWL_LOG_SEGMENT_REST;
    log->position = position;
    log->cap = log->options.block_bytes - 8;
    if (log->large_free)
        bytes = pawl_min_u64(bytes, log->large_bytes);
    else
        bytes = log->options.block_bytes;
    log->room_empty = block_room(bytes);
}

void pawl_log_place(struct pawl_log *log)
{
    if (log->count > 0)
        return;
    log->cap = 0;
    log->room_empty = 0;
    if (log->failed)
        return;
    if (!log->base && log->spare_count > 0) {
        log->base = log->spare[--log->spare_count];
        log->large = false;
        log->used = PAWL_BLOCK_HEADER;
    }
    if (!log->base)
        return;
    PAWL_ASSERT_REL(log->used, ==, PAWL_BLOCK_HEADER);
    if (pawl_log_rest(log) >= log->options.block_bytes + PAWL_LOG_SEGMENT_REST)
        place_at(log, log->tail);
    else if (log->next != PAWL_NONE32 && !log->next_opening)
        place_at(log, pawl_log_next_start(log));
}

uint64_t pawl_log_room(const struct pawl_log *log)
{
    return log->count == 0 ? log->room_empty : log->cap > log->used ? log->cap - log->used : 0;
}

bool pawl_log_admit(struct pawl_log *log, uint64_t bytes)
{
    if (pawl_log_room(log) >= bytes)
        return true;
    if (log->count > 0 || log->cap == 0 || log->next == PAWL_NONE32 || log->next_opening)
        return false;
    place_at(log, pawl_log_next_start(log));
    if (log->room_empty >= bytes)
        return true;
    pawl_log_place(log);
    return false;
}

/* The records outgrow the plain buffer: go on in the large one. Rare: a copy of one block. */
static void grow(struct pawl_log *log, uint32_t need)
{
    PAWL_ASSERT(log->cap > 0 && !log->large && log->large_free);
    PAWL_ASSERT_REL((uint64_t)log->used + need, <=, log->room_empty + PAWL_BLOCK_HEADER);
    memcpy(log->large_buffer, log->base, log->used);
    log->spare[log->spare_count++] = log->base;
    log->base = log->large_buffer;
    log->large = true;
    log->large_free = false;
    log->cap = (uint32_t)(log->room_empty + PAWL_BLOCK_HEADER);
}

void *pawl_log_append(struct pawl_log *log, uint16_t type, uint32_t bytes, uint64_t *lsn)
{
    PAWL_ASSERT(bytes < UINT32_MAX - 64);
    uint32_t need = (uint32_t)pawl_align_up(sizeof(struct pawl_record_rec) + bytes, 8);
    if (PAWL_UNLIKELY((uint64_t)log->used + need > log->cap))
        grow(log, need);
    uint8_t *at = log->base + log->used;
    /* The last word first: padding is zero and the body overwrites the rest of it. */
    memset(at + need - 8, 0, 8);
    struct pawl_record_rec head = { .bytes = bytes, .type = type };
    memcpy(at, &head, sizeof head);
    *lsn = log->position + log->used;
    log->used += need;
    log->count++;
    return at + sizeof head;
}

bool pawl_log_pending(const struct pawl_log *log) { return log->count > 0; }

uint64_t pawl_log_appended(const struct pawl_log *log)
{
    return log->count > 0 ? log->position + log->used : log->appended;
}

/* --- blocks in flight ------------------------------------------------------------------------ */

static struct pawl_flight *flight_at(struct pawl_log *log, uint32_t i)
{
    return &log->flight[(log->flight_first + i) % PAWL_LOG_IN_FLIGHT_MAX];
}

static void flight_over(struct pawl_log *log, struct pawl_flight *f)
{
#ifdef PAWL_VERIFY
    /* Whoever still reads the buffer shall see it (U10). */
    memset(f->base, 0xee, (size_t)f->total);
#endif
    if (f->large)
        log->large_free = true;
    else
        log->spare[log->spare_count++] = f->base;
    f->base = NULL;
    log->flight_first = (log->flight_first + 1) % PAWL_LOG_IN_FLIGHT_MAX;
    log->flight_count--;
}

/* durable moves over what is done without a hole. */
static void advance(struct pawl_log *log)
{
#ifdef PAWL_BUG_DURABLE_PAST_HOLE
    for (uint32_t i = 0; i < log->flight_count; i++) {
        struct pawl_flight *any = flight_at(log, i);
        if (any->done && !any->needs_head && any->position + any->total > log->durable)
            log->durable = any->position + any->total;
    }
#endif
    while (log->flight_count > 0) {
        struct pawl_flight *f = flight_at(log, 0);
        if (!f->done || (f->needs_head && !log->failed))
            break;
        if (!log->failed) {
            PAWL_ASSERT_REL(f->position + f->total, >=, log->durable);
            log->durable = f->position + f->total;
            log->oldest_durable = pawl_max_u64(log->oldest_durable, f->oldest);
            log->opening_segment = false;
            PAWL_KILL_POINT("broker-after-sync");
        }
        flight_over(log, f);
    }
    pawl_log_place(log);
}

void pawl_log_head_done(struct pawl_log *log)
{
    if (log->flight_count > 0)
        flight_at(log, 0)->needs_head = false;
    advance(log);
}

static void block_done(struct pawl_io_op *op, int result)
{
    struct pawl_flight *f = PAWL_CONTAINER(op, struct pawl_flight, op);
    struct pawl_log *log = f->log;
    PAWL_ASSERT(!f->done && f->base != NULL);
    f->done = true;
    if (result < 0) {
        char what[64];
        snprintf(what, sizeof what, "writing a block to segment %llu",
                 (unsigned long long)pawl_log_segment_of(log, f->position));
        pawl_log_fail(log, what, f->position % log->id.segment_bytes, result);
    }
#ifdef PAWL_BUG_FAILED_CLEARED
    else
        log->failed = false;
#endif
#ifdef PAWL_BUG_HEAD_BEFORE_BLOCK
    advance(log);
    return;
#endif
    if (f->needs_head && !log->failed)
        pawl_head_start(log, f->position + f->total, f->clean);
    advance(log);
}

static bool may_write(const struct pawl_log *log, uint64_t position)
{
    if (log->failed || log->flight_count >= log->options.in_flight_max || log->opening_segment)
        return false;
#ifndef PAWL_BUG_FIRST_BLOCK_EARLY
    if (position % log->id.segment_bytes == 0 && log->flight_count > 0)
        return false;
#endif
    return !log->head_busy;
}

/* Sends the open buffer, with what is in it, to its place. */
static void launch(struct pawl_log *log, uint64_t position, uint32_t flags)
{
    PAWL_ASSERT(may_write(log, position) && log->base != NULL);
    PAWL_ASSERT_REL(position, >=, log->tail);
    bool first = position % log->id.segment_bytes == 0;
    if (first && pawl_slot_advance(log, position / log->id.segment_bytes))
        flags |= PAWL_BLOCK_REUSED;
    struct pawl_block_rec *block = (struct pawl_block_rec *)(void *)log->base;
    uint32_t used = log->used - (uint32_t)PAWL_BLOCK_HEADER;
    memset(block, 0, sizeof *block);
    block->top.flags = flags;
    block->used_bytes = used;
    block->count = log->count;
    block->position = position;
    block->epoch = log->epoch;
    block->previous_low = log->previous_low;
    block->previous_high = log->previous_high;
    block->durable = log->durable;
    block->oldest = log->oldest * log->id.segment_bytes;
    block->time_ns = log->time_ns;
    block->boot_ns = log->boot_ns;
    block->wall_ns = log->wall_ns;
    block->boot_hash = log->boot_hash;
    pawl_block_seal(&log->id, block);
    log->previous_low = block->top.hash_low;
    log->previous_high = block->top.hash_high;

    struct pawl_flight *f = flight_at(log, log->flight_count);
    PAWL_ASSERT(!f->op.busy);
    log->flight_count++;
    *f = (struct pawl_flight){ .op.done = block_done,
                               .log = log,
                               .base = log->base,
                               .position = position,
                               .total = pawl_block_total(used),
                               .oldest = log->oldest,
                               .needs_head =
                                   first || (flags & (PAWL_BLOCK_CLEAN | PAWL_BLOCK_EPOCH)) != 0,
                               .clean = (flags & PAWL_BLOCK_CLEAN) != 0,
                               .large = log->large };
    if (log->count > 0)
        log->appended = position + log->used;
    log->opening_segment = first;
    log->tail = position + f->total;
    log->base = NULL;
    log->count = 0;
    bool durable = true;
#ifdef PAWL_BUG_DROP_FLUSH
    durable = false;
#endif
    log->io->ops->write(log->io, &f->op, log->slot[log->current].fd, f->base, (size_t)f->total,
                        position % log->id.segment_bytes, durable);
    /* Written, and nobody was told: whoever comes next finds it or not, by the rules of recovery.
     */
    PAWL_KILL_POINT_WITH("broker-after-write",
                         (void)!pwrite(log->slot[log->current].fd, f->base, (size_t)f->total,
                                       (off_t)(position % log->id.segment_bytes)));
#ifdef PAWL_BUG_HEAD_BEFORE_BLOCK
    if (f->needs_head)
        pawl_head_start(log, log->tail, f->clean);
#endif
    pawl_log_place(log);
}

static void set_times(struct pawl_log *log, uint64_t time_ns, uint64_t boot_ns, uint64_t wall_ns)
{
    log->time_ns = pawl_max_u64(log->time_ns, time_ns);
    log->boot_ns = boot_ns;
    log->wall_ns = wall_ns;
}

void pawl_log_seal(struct pawl_log *log, uint64_t time_ns, uint64_t boot_ns, uint64_t wall_ns)
{
    if (log->count == 0 || !may_write(log, log->position))
        return;
    PAWL_ASSERT_REL(log->used, <=, log->cap);
    set_times(log, time_ns, boot_ns, wall_ns);
    log->marked = log->clean_marked = false;
    launch(log, log->position, 0);
}

bool pawl_log_note(struct pawl_log *log, uint32_t flags, uint64_t time_ns, uint64_t boot_ns,
                   uint64_t wall_ns)
{
    PAWL_ASSERT(log->count == 0 && log->flight_count == 0 && log->base != NULL);
    uint64_t position = log->tail;
    if (pawl_log_rest(log) < PAWL_LOG_PAGE) {
        if (log->next == PAWL_NONE32 || log->next_opening)
            return false;
        position = pawl_log_next_start(log);
    }
    if (!may_write(log, position))
        return false;
    set_times(log, time_ns, boot_ns, wall_ns);
    log->marked = true;
    log->clean_marked = (flags & PAWL_BLOCK_CLEAN) != 0;
    launch(log, position, flags | PAWL_BLOCK_MARKER);
    return true;
}

void pawl_log_mark(struct pawl_log *log, bool clean, uint64_t time_ns, uint64_t boot_ns,
                   uint64_t wall_ns)
{
    if (log->failed || (log->marked && (!clean || log->clean_marked)))
        return;
    PAWL_ASSERT(log->count == 0 && pawl_log_in_flight(log) == 0);
    /* The last pages are for what must be written: a new epoch, the news that a segment is free. */
    if (!clean && log->next == PAWL_NONE32 && pawl_log_rest(log) <= 2 * PAWL_LOG_PAGE)
        return;
    (void)pawl_log_note(log, clean ? PAWL_BLOCK_CLEAN : 0, time_ns, boot_ns, wall_ns);
}

bool pawl_log_marked(const struct pawl_log *log) { return log->marked; }

/* --- waiting --------------------------------------------------------------------------------- */

bool pawl_log_busy(const struct pawl_log *log)
{
    if (log->head_op.busy || log->next_op.busy || log->prep_op.busy)
        return true;
    for (uint32_t i = 0; i < PAWL_LOG_IN_FLIGHT_MAX; i++)
        if (log->flight[i].op.busy)
            return true;
    return false;
}

int pawl_log_drain(struct pawl_log *log)
{
    while (pawl_log_busy(log)) {
        int rc = log->io->ops->wait(log->io, UINT64_MAX);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* --- what is ---------------------------------------------------------------------------------- */

uint32_t pawl_log_in_flight(const struct pawl_log *log) { return log->flight_count; }
uint64_t pawl_log_durable(const struct pawl_log *log) { return log->durable; }
bool pawl_log_failed(const struct pawl_log *log) { return log->failed; }
const char *pawl_log_failure(const struct pawl_log *log) { return log->failure; }
