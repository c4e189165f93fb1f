/* SPDX-License-Identifier: MIT */
/* Slot files: found free or made ahead of need, so that a segment change never waits for more than
 * its own first block and head.
 *
 * - a slot whose segment is below oldest_durable is opened and becomes the next one.
 * - else a new file is filled with zeros, a bounded piece at a time, and flushed, and its
 * directory; then its first page says READY. A crash before that leaves it BLANK, to be filled
 * again.
 * - the disk is full: the file stays as it is and is gone on with at most once a second.
 * - another error: the log fails, since whether the disk keeps what it promised is no longer
 *   known. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "log/log_inner.h"

void pawl_slot_name(char name[16], uint32_t number) { snprintf(name, 16, "%06u.seg", number); }

static bool is_space(int error)
{
    return error == -ENOSPC || error == -EDQUOT || error == -EMFILE || error == -ENFILE ||
           error == -ENOMEM;
}

uint32_t pawl_slot_add(struct pawl_log *log, uint32_t number)
{
    PAWL_ASSERT_REL(log->slot_count, <, log->slot_max);
    log->slot[log->slot_count] =
        (struct pawl_slot){ .number = number, .fd = -1, .state = PAWL_SLOT_BLANK };
    return log->slot_count++;
}

static void close_slot(struct pawl_log *log, struct pawl_slot *slot)
{
    if (slot->fd >= 0)
        log->io->ops->file_close(log->io, slot->fd);
    slot->fd = -1;
}

bool pawl_slot_advance(struct pawl_log *log, uint64_t segment)
{
    PAWL_ASSERT(log->next != PAWL_NONE32 && !log->next_opening);
    if (log->current != PAWL_NONE32)
        close_slot(log, &log->slot[log->current]);
    struct pawl_slot *slot = &log->slot[log->next];
    PAWL_ASSERT(slot->fd >= 0 && slot->state != PAWL_SLOT_BLANK);
    /* Only what this broker filled is surely zeros: an earlier one may have begun a segment in a
     * READY slot, and of its first block a crash may have kept any sectors but the first. */
    bool reused = slot->zeroed != log->id.segment_bytes;
#ifdef PAWL_BUG_FILL_TRUSTED
    reused = slot->state == PAWL_SLOT_HOLDS;
#endif
    slot->zeroed = 0;
    slot->state = PAWL_SLOT_HOLDS;
    slot->segment = segment;
    log->current = log->next;
    log->next = PAWL_NONE32;
    return reused;
}

/* --- the next one ---------------------------------------------------------------------------- */

static uint32_t find_candidate(const struct pawl_log *log)
{
    uint64_t free_below = log->oldest_durable;
#ifdef PAWL_BUG_REUSE_EARLY
    free_below = log->oldest;
#endif
    uint32_t ready = PAWL_NONE32;
    for (uint32_t i = 0; i < log->slot_count; i++) {
        const struct pawl_slot *s = &log->slot[i];
        if (i == log->next || i == log->current)
            continue;
        if (s->state == PAWL_SLOT_HOLDS && s->segment < free_below)
            return i;
        if (s->state == PAWL_SLOT_READY && ready == PAWL_NONE32)
            ready = i;
    }
    return ready;
}

static void next_opened(struct pawl_io_op *op, int result)
{
    struct pawl_log *log = PAWL_CONTAINER(op, struct pawl_log, next_op);
    log->next_opening = false;
    if (result >= 0) {
        log->slot[log->next].fd = result;
        pawl_log_place(log);
        return;
    }
    log->next = PAWL_NONE32;
    if (is_space(result))
        log->next_retry_at = log->now + PAWL_LOG_RETRY_NS;
    else
        pawl_log_fail(log, log->next_name, 0, result);
}

static void tend_next(struct pawl_log *log)
{
    if (log->next != PAWL_NONE32 || log->now < log->next_retry_at)
        return;
    uint32_t i = find_candidate(log);
    if (i == PAWL_NONE32)
        return;
    log->next = i;
    if (log->slot[i].fd >= 0) {
        pawl_log_place(log);
        return;
    }
    log->next_opening = true;
    pawl_slot_name(log->next_name, log->slot[i].number);
    log->io->ops->open(log->io, &log->next_op, log->options.dir, log->next_name, O_RDWR, 0, true);
}

/* --- making one ------------------------------------------------------------------------------ */

static void prep_step_done(struct pawl_io_op *op, int result);

static void prep_fail(struct pawl_log *log, int error)
{
    struct pawl_slot *slot = &log->slot[log->prep_slot];
    /* What a failed flush was to flush may be gone from the cache as clean: all is to be written
     * again. */
    if (log->prep_step != PAWL_PREP_ZERO)
        slot->zeroed = 0;
    log->prep_step = PAWL_PREP_IDLE;
    if (!is_space(error)) {
        pawl_log_fail(log, log->prep_name, slot->zeroed, error);
        return;
    }
    log->disk_full = true;
    log->prep_retry_at = log->now + PAWL_LOG_RETRY_NS;
}

static void prep_go(struct pawl_log *log)
{
    const struct pawl_io_ops *ops = log->io->ops;
    struct pawl_slot *slot = &log->slot[log->prep_slot];
    switch (log->prep_step) {
    case PAWL_PREP_OPEN:
        ops->open(log->io, &log->prep_op, log->options.dir, log->prep_name, O_RDWR | O_CREAT, 0600,
                  true);
        break;
    case PAWL_PREP_ZERO:
        ops->write(log->io, &log->prep_op, slot->fd, log->zeros,
                   (size_t)pawl_min_u64(PAWL_LOG_ZERO_CHUNK, log->id.segment_bytes - slot->zeroed),
                   slot->zeroed, false);
        break;
    case PAWL_PREP_FLUSH:
        ops->flush(log->io, &log->prep_op, slot->fd);
        break;
    case PAWL_PREP_DIR:
        ops->flush(log->io, &log->prep_op, log->options.dir);
        break;
    case PAWL_PREP_READY:
        ops->write(log->io, &log->prep_op, slot->fd, log->ready_page, PAWL_LOG_PAGE, 0, true);
        break;
    case PAWL_PREP_IDLE:
        break;
    }
}

static void prep_step_done(struct pawl_io_op *op, int result)
{
    struct pawl_log *log = PAWL_CONTAINER(op, struct pawl_log, prep_op);
    struct pawl_slot *slot = &log->slot[log->prep_slot];
    if (log->failed) {
        if (log->prep_step == PAWL_PREP_OPEN && result >= 0)
            slot->fd = result;
        log->prep_step = PAWL_PREP_IDLE;
        return;
    }
    if (result < 0) {
        prep_fail(log, result);
        return;
    }
    switch (log->prep_step) {
    case PAWL_PREP_OPEN:
        slot->fd = result;
        log->prep_step = PAWL_PREP_ZERO;
        break;
    case PAWL_PREP_ZERO:
        slot->zeroed += pawl_min_u64(PAWL_LOG_ZERO_CHUNK, log->id.segment_bytes - slot->zeroed);
        if (slot->zeroed == log->id.segment_bytes)
            log->prep_step = PAWL_PREP_FLUSH;
        break;
    case PAWL_PREP_FLUSH:
        log->prep_step = PAWL_PREP_DIR;
        break;
    case PAWL_PREP_DIR:
        log->prep_step = PAWL_PREP_READY;
        break;
    default:
        PAWL_ASSERT(log->prep_step == PAWL_PREP_READY);
        slot->state = PAWL_SLOT_READY;
        log->existing++;
        log->disk_full = false;
        log->prep_step = PAWL_PREP_IDLE;
        /* Only the next one stays open: descriptors are few (L2). */
        if (log->next != PAWL_NONE32)
            close_slot(log, slot);
        tend_next(log);
        return;
    }
    prep_go(log);
}

static uint32_t unused_number(const struct pawl_log *log)
{
    uint32_t highest = 0;
    for (uint32_t i = 0; i < log->slot_count; i++)
        highest = log->slot[i].number > highest ? log->slot[i].number : highest;
    return highest + 1;
}

static bool may_add(const struct pawl_log *log)
{
    return log->slot_count < log->slot_max &&
           ((uint64_t)log->slot_count + 1) * log->id.segment_bytes <= log->options.max_bytes;
}

/* Beyond max_bytes, once in the life of a directory. */
static bool may_rescue(const struct pawl_log *log)
{
    return log->rescue && log->slot_count < log->slot_max &&
           (uint64_t)log->slot_count * log->id.segment_bytes <= log->options.max_bytes;
}

static void tend_prep(struct pawl_log *log)
{
    if (log->prep_step != PAWL_PREP_IDLE || log->now < log->prep_retry_at)
        return;
    uint32_t blank = PAWL_NONE32;
    bool any = log->existing < log->slot_count; /* else this is a look at every slot each turn */
    for (uint32_t i = 0; any && i < log->slot_count && blank == PAWL_NONE32; i++)
        if (log->slot[i].state == PAWL_SLOT_BLANK)
            blank = i;
    if (blank == PAWL_NONE32) {
        bool spare = log->next != PAWL_NONE32 || find_candidate(log) != PAWL_NONE32;
        if ((spare && pawl_log_existing(log) >= log->want) ||
            (!may_add(log) && (spare || !may_rescue(log))))
            return;
        uint32_t number = unused_number(log);
        if (number >= PAWL_LOG_SLOTS_MAX)
            return;
        blank = pawl_slot_add(log, number);
    }
    log->prep_slot = blank;
    pawl_slot_name(log->prep_name, log->slot[blank].number);
    log->prep_step = log->slot[blank].fd >= 0 ? PAWL_PREP_ZERO : PAWL_PREP_OPEN;
    prep_go(log);
}

/* All room is used, and what was released counts only once a block says so: write one. */
static void tend_release(struct pawl_log *log)
{
    if (log->oldest_durable == log->oldest || log->next != PAWL_NONE32 || log->cap > 0 ||
        log->count > 0 || log->flight_count > 0 || log->head_busy || !log->base)
        return;
    (void)pawl_log_note(log, 0, log->time_ns, log->boot_ns, log->wall_ns);
}

void pawl_log_tend(struct pawl_log *log, uint64_t boot_ns)
{
    log->now = boot_ns;
    log->next_op.done = next_opened;
    log->prep_op.done = prep_step_done;
    if (log->failed)
        return;
    tend_next(log);
    tend_prep(log);
    tend_release(log);
}

/* --- space ----------------------------------------------------------------------------------- */

uint64_t pawl_log_existing(const struct pawl_log *log)
{
    return log->existing * log->id.segment_bytes;
}

bool pawl_log_may_grow(const struct pawl_log *log)
{
    if (log->disk_full || log->failed)
        return false;
    bool within = (uint64_t)log->slot_count * log->id.segment_bytes <= log->options.max_bytes;
    return (within && log->existing < log->slot_count) || may_add(log);
}

void pawl_log_rescue(struct pawl_log *log) { log->rescue = true; }

uint64_t pawl_log_max(const struct pawl_log *log) { return log->options.max_bytes; }
bool pawl_log_disk_full(const struct pawl_log *log) { return log->disk_full; }
void pawl_log_want(struct pawl_log *log, uint64_t bytes) { log->want = bytes; }
uint64_t pawl_log_oldest_segment(const struct pawl_log *log) { return log->oldest; }

uint64_t pawl_log_newest_segment(const struct pawl_log *log)
{
    return log->tail == 0 ? 0 : pawl_log_segment_of(log, log->tail - 1);
}

void pawl_log_release_oldest(struct pawl_log *log)
{
    PAWL_ASSERT_REL(log->oldest, <, pawl_log_newest_segment(log));
    log->oldest++;
}
