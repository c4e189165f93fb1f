/* SPDX-License-Identifier: MIT */
/* Opening and closing.
 *
 * - the directory is flushed, then id and head are read; an empty or half-made directory is made.
 * - recovery.c surveys and walks; it changes nothing, so a refusal changes nothing.
 * - a torn tail is overwritten with zeros and flushed: only then may a new block stand there.
 * - a block of the new epoch is made durable, then the head that says so: from here on the epoch
 *   can never be given again, and all that was recovered is vouched for.
 * - read_only: none of the last two. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "base/bits.h"
#include "log/log_inner.h"
#include "log/meta.h"
#include "log/recovery.h"

#define TIME_GAP_NS_MAX \
    (3653ull * 86400u * 1000000000u) /* ten years: more is a broken clock (C3) */

/* --- small files ----------------------------------------------------------------------------- */

struct names {
    bool id, any_segment, head;
};

static int note(void *ctx, const char *name)
{
    struct names *n = ctx;
    size_t length = strlen(name);
    n->id |= strcmp(name, PAWL_LOG_FILE_ID) == 0;
    n->head |= strcmp(name, PAWL_LOG_FILE_HEAD) == 0;
    n->any_segment |= length > 4 && strcmp(name + length - 4, ".seg") == 0;
    return 0;
}

static int say(char *text, int result, const char *what, int error)
{
    snprintf(text, PAWL_LOG_TEXT_BYTES, "%s: %s", what, strerror(-error));
    return result;
}

static int make(struct pawl_io *io, const struct pawl_log_options *o, char *text)
{
    static const uint8_t none[16];
    struct pawl_log_identity id;
    uint8_t log_id[16];
    memcpy(log_id, o->log_id, sizeof log_id);
    if (memcmp(log_id, none, sizeof none) == 0 &&
        getrandom(log_id, sizeof log_id, 0) != (ssize_t)sizeof log_id)
        return say(text, PAWL_LOG_CANNOT, "getrandom", -errno);
    pawl_identity_init(&id, log_id, o->segment_bytes);
    int rc = pawl_meta_create(io, o->dir, &id, o->wall_ns);
    return rc ? say(text, PAWL_LOG_CANNOT, "making the log", rc) : PAWL_LOG_OK;
}

static int load_id(struct pawl_io *io, const struct pawl_log_options *o,
                   struct pawl_log_identity *id, char *text)
{
    struct names names = { 0 };
    int error = o->read_only ? 0 : io->ops->file_flush(io, o->dir);
    if (error)
        return say(text, PAWL_LOG_FAILED, "flushing the log directory", error);
    error = io->ops->dir_list(io, o->dir, note, &names);
    if (error)
        return say(text, PAWL_LOG_CANNOT, "listing the log directory", error);
    if (!names.id && names.any_segment) {
        snprintf(text, PAWL_LOG_TEXT_BYTES,
                 "damage: the file '" PAWL_LOG_FILE_ID "' of the log is missing but its segments "
                 "are there. Nothing was changed. Put it back from a copy, or 'pawl log repair "
                 "--accept-loss' makes it anew from what the head file says");
        return PAWL_LOG_DAMAGE;
    }
    if (!names.id) {
        if (o->read_only) {
            snprintf(text, PAWL_LOG_TEXT_BYTES, "there is no log in this directory");
            return PAWL_LOG_CANNOT;
        }
        int rc = make(io, o, text);
        if (rc)
            return rc;
    }
    switch (pawl_id_read(io, o->dir, id, &error)) {
    case PAWL_META_OK:
        return PAWL_LOG_OK;
    case PAWL_META_VERSION:
        snprintf(text, PAWL_LOG_TEXT_BYTES,
                 "the log was made by a newer pawl: use that one (this one knows log version %u)",
                 PAWL_LOG_VERSION);
        return PAWL_LOG_CANNOT;
    case PAWL_META_ERROR:
        return say(text, PAWL_LOG_CANNOT, "reading '" PAWL_LOG_FILE_ID "'", error);
    default:
        snprintf(text, PAWL_LOG_TEXT_BYTES,
                 "damage: both copies in the file '" PAWL_LOG_FILE_ID "' of the log are damaged. "
                 "Nothing was changed. Put it back from a copy, or 'pawl log repair "
                 "--accept-loss' makes it anew from what the head file says");
        return PAWL_LOG_DAMAGE;
    }
}

static int load_head(struct pawl_io *io, int dir, const struct pawl_log_identity *id,
                     struct pawl_head_rec *head, char *text)
{
    int error = 0;
    bool both;
    switch (pawl_head_read(io, dir, id, head, &both, &error)) {
    case PAWL_META_OK:
        return PAWL_LOG_OK;
    case PAWL_META_VERSION:
        snprintf(text, PAWL_LOG_TEXT_BYTES, "'" PAWL_LOG_FILE_HEAD "' was written by a newer pawl");
        return PAWL_LOG_CANNOT;
    case PAWL_META_ERROR:
        return say(text, PAWL_LOG_CANNOT, "reading '" PAWL_LOG_FILE_HEAD "'", error);
    case PAWL_META_ABSENT:
        snprintf(text, PAWL_LOG_TEXT_BYTES,
                 "damage: the file '" PAWL_LOG_FILE_HEAD "' of the log is missing, so nobody can "
                 "tell how far the log reached. Nothing was changed. Put it back from a copy, or "
                 "'pawl log repair --accept-loss' takes what the segments hold");
        return PAWL_LOG_DAMAGE;
    default:
        snprintf(text, PAWL_LOG_TEXT_BYTES,
                 "damage: both pages of the file '" PAWL_LOG_FILE_HEAD "' are damaged, so nobody "
                 "can tell how far the log reached. Nothing was changed. Put it back from a copy, "
                 "or 'pawl log repair --accept-loss' takes what the segments hold");
        return PAWL_LOG_DAMAGE;
    }
}

int pawl_log_load(struct pawl_io *io, const struct pawl_log_options *options,
                  struct pawl_log_identity *id, struct pawl_head_rec *head,
                  char text[PAWL_LOG_TEXT_BYTES])
{
    int rc = load_id(io, options, id, text);
    return rc ? rc : load_head(io, options->dir, id, head, text);
}

/* --- memory ---------------------------------------------------------------------------------- */

static void prefault(uint8_t *p, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += PAWL_LOG_PAGE)
        *(volatile uint8_t *)(p + i) = 0;
}

static bool allocate(struct pawl_log *log)
{
    const struct pawl_log_options *o = &log->options;
    uint32_t count = o->in_flight_max + 1;
    log->buffers = pawl_pages_map((uint64_t)count * o->block_bytes);
    log->large_buffer = pawl_pages_map(log->large_bytes);
    log->head_page = pawl_pages_map(PAWL_LOG_PAGE);
    log->ready_page = pawl_pages_map(PAWL_LOG_PAGE);
    log->zeros = pawl_pages_map(PAWL_LOG_ZERO_CHUNK);
    log->slot = calloc(log->slot_max, sizeof *log->slot);
    if (!log->buffers || !log->large_buffer || !log->head_page || !log->ready_page || !log->zeros ||
        !log->slot)
        return false;
    prefault(log->buffers, (uint64_t)count * o->block_bytes);
    for (uint32_t i = 0; i < count; i++)
        log->spare[log->spare_count++] = log->buffers + (uint64_t)i * o->block_bytes;
    log->large_free = true;
    struct pawl_ready_rec *ready = (void *)log->ready_page;
    ready->segment_bytes = log->id.segment_bytes;
    pawl_page_seal(ready, sizeof *ready, PAWL_LOG_MAGIC_READY, log->id.seed, log->id.tag);
    return true;
}

static void release(struct pawl_log *log)
{
    const struct pawl_log_options *o = &log->options;
    for (uint32_t i = 0; i < log->slot_count; i++)
        if (log->slot[i].fd >= 0)
            log->io->ops->file_close(log->io, log->slot[i].fd);
    if (log->head_fd >= 0)
        log->io->ops->file_close(log->io, log->head_fd);
    pawl_pages_unmap(log->buffers, (uint64_t)(o->in_flight_max + 1) * o->block_bytes);
    pawl_pages_unmap(log->large_buffer, log->large_bytes);
    pawl_pages_unmap(log->head_page, PAWL_LOG_PAGE);
    pawl_pages_unmap(log->ready_page, PAWL_LOG_PAGE);
    pawl_pages_unmap(log->zeros, PAWL_LOG_ZERO_CHUNK);
    free(log->slot);
    free(log);
}

void pawl_log_close(struct pawl_log *log)
{
    if (!log)
        return;
    if (pawl_log_drain(log) == 0) {
        release(log);
        return;
    }
    /* The io cannot wait any more, and its operations may still point into our memory: that is
     * left as it is, in sight of leak checkers. */
    static struct pawl_log *abandoned;
    log->abandoned = abandoned;
    abandoned = log;
}

/* --- beginning to write ---------------------------------------------------------------------- */

/* In the same boot its clock went on; over a reboot the wall clock says how long, if sensible. */
static uint64_t resume_time(const struct pawl_recovery *r, const struct pawl_log_options *o,
                            uint64_t boot_hash, bool *same_boot)
{
    if (r->newest == PAWL_LOG_NONE) {
        *same_boot = false;
        /* Begins high enough that subtracting a duration from an instant never goes below 0. */
        return 1000000000ull;
    }
    *same_boot = r->boot_hash == boot_hash && o->boot_ns >= r->boot_ns;
    uint64_t gap = *same_boot                ? o->boot_ns - r->boot_ns
                   : o->wall_ns > r->wall_ns ? o->wall_ns - r->wall_ns
                                             : 0;
    return r->time_ns + (*same_boot ? gap : pawl_min_u64(gap, TIME_GAP_NS_MAX));
}

static int clear_tail(struct pawl_log *log, const struct pawl_recovery *r, char *text)
{
    uint64_t at = r->tail % log->id.segment_bytes;
    int fd = log->slot[log->current].fd, rc = 0;
#ifndef PAWL_BUG_TAIL_NOT_ZEROED
    for (; at < r->clear_end && rc == 0; at += PAWL_LOG_ZERO_CHUNK)
        rc = pawl_write_now(log->io, fd, log->zeros,
                            pawl_min_u64(PAWL_LOG_ZERO_CHUNK, r->clear_end - at), at, false);
    if (rc == 0)
        rc = log->io->ops->file_flush(log->io, fd);
#endif
    return rc ? say(text, PAWL_LOG_FAILED, "clearing the torn tail", rc) : PAWL_LOG_OK;
}

static int open_rw(struct pawl_log *log, const char *name, int *fd, char *text)
{
    bool direct;
    *fd = log->io->ops->file_open(log->io, log->options.dir, name, O_RDWR, 0, true, &direct);
    if (*fd >= 0)
        return PAWL_LOG_OK;
    char what[48];
    snprintf(what, sizeof what, "opening '%s'", name);
    return say(text, PAWL_LOG_CANNOT, what, *fd);
}

/* What the survey found becomes the table of slots. */
static int take_slots(struct pawl_log *log, const struct pawl_recovery *r, char *text)
{
    for (uint32_t i = 0; i < r->slot_count; i++) {
        const struct pawl_survey_slot *from = &r->slot[i];
        uint32_t n = pawl_slot_add(log, from->number);
        struct pawl_slot *slot = &log->slot[n];
        bool whole = from->file_bytes >= log->id.segment_bytes;
        if (from->first == PAWL_VERDICT_VALID && (whole || from->segment >= log->oldest)) {
            slot->state = PAWL_SLOT_HOLDS;
            slot->segment = from->segment;
            if (from->segment == r->newest)
                log->current = n;
        } else if (from->first == PAWL_VERDICT_READY && whole) {
            slot->state = PAWL_SLOT_READY;
        } else {
            continue; /* half-made, or its first block was torn: to be filled again */
        }
        log->existing++;
    }
    if (log->current == PAWL_NONE32)
        return PAWL_LOG_OK;
    char name[16];
    pawl_slot_name(name, log->slot[log->current].number);
    return open_rw(log, name, &log->slot[log->current].fd, text);
}

/* Runs the log until its open block has a place for a note. */
static int get_place(struct pawl_log *log, char *text)
{
    uint64_t boot_ns = log->options.boot_ns;
    while (pawl_log_rest(log) < PAWL_LOG_PAGE && (log->next == PAWL_NONE32 || log->next_opening)) {
        pawl_log_tend(log, boot_ns);
        if (!pawl_log_busy(log))
            break;
        int rc = log->io->ops->wait(log->io, UINT64_MAX);
        if (rc < 0)
            return say(text, PAWL_LOG_FAILED, "waiting for the disk", rc);
    }
    if (log->failed) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "%s", log->failure);
        return PAWL_LOG_FAILED;
    }
    if (pawl_log_rest(log) < PAWL_LOG_PAGE && log->next == PAWL_NONE32) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "no room for the log: %s",
                 log->disk_full ? "the disk is full" : "--max-log is reached");
        return PAWL_LOG_CANNOT;
    }
    return PAWL_LOG_OK;
}

static int begin_epoch(struct pawl_log *log, uint64_t time_ns, char *text)
{
    const struct pawl_log_options *o = &log->options;
    int rc = get_place(log, text);
    if (rc)
        return rc;
    pawl_log_place(log);
    bool noted = pawl_log_note(log, PAWL_BLOCK_EPOCH, time_ns, o->boot_ns, o->wall_ns);
    PAWL_ASSERT(noted);
#ifndef PAWL_BUG_EPOCH_NOT_DURABLE
    while (log->flight_count > 0 || log->head_busy) {
        int error = log->io->ops->wait(log->io, UINT64_MAX);
        if (error < 0)
            return say(text, PAWL_LOG_FAILED, "waiting for the disk", error);
    }
    if (log->failed) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "%s", log->failure);
        return PAWL_LOG_FAILED;
    }
#endif
    log->appended = log->tail - 8;
    return PAWL_LOG_OK;
}

/* --- opening --------------------------------------------------------------------------------- */

static int check_options(const struct pawl_log_options *o, char *text)
{
    const char *wrong = NULL;
    if (!pawl_log_segment_size_ok(o->segment_bytes))
        wrong = "segment size: a power of two, 64 KiB to 1 GiB";
    else if (!pawl_is_pow2(o->block_bytes) || o->block_bytes < 2 * PAWL_LOG_PAGE ||
             o->block_bytes > (16u << 20))
        wrong = "block size: a power of two, 8 KiB to 16 MiB";
    else if (o->in_flight_max < 1 || o->in_flight_max > PAWL_LOG_IN_FLIGHT_MAX)
        wrong = "blocks in flight: 1 to 8";
    if (!wrong)
        return PAWL_LOG_OK;
    snprintf(text, PAWL_LOG_TEXT_BYTES, "%s", wrong);
    return PAWL_LOG_CANNOT;
}

/* Bytes of the largest block: that of the largest record, or all that a segment takes. */
static uint64_t large_block(const struct pawl_log_options *o, uint64_t segment_bytes)
{
    uint64_t most = segment_bytes - PAWL_LOG_SEGMENT_REST;
    uint64_t want = pawl_block_total((uint64_t)o->record_bytes_max + PAWL_LOG_RECORD_HEAD);
    return pawl_max_u64(pawl_min_u64(o->block_bytes, segment_bytes / 4), pawl_min_u64(want, most));
}

static struct pawl_log *new_log(struct pawl_io *io, const struct pawl_log_options *o,
                                const struct pawl_recovery *r)
{
    struct pawl_log *log = calloc(1, sizeof *log);
    if (!log)
        return NULL;
    log->io = io;
    log->options = *o;
    log->id = r->id;
    log->options.block_bytes = (uint32_t)pawl_min_u64(o->block_bytes, r->id.segment_bytes / 4);
    log->large_bytes = large_block(o, r->id.segment_bytes);
    log->current = log->next = PAWL_NONE32;
    log->head_fd = -1;
    uint64_t fit = pawl_min_u64(o->max_bytes / r->id.segment_bytes, PAWL_LOG_SLOTS_MAX);
    /* A limit below what is there grows nothing, and gives nothing up. */
    log->slot_max = (uint32_t)pawl_max_u64(fit, r->slot_count) + 1;
    log->boot_hash = pawl_hash64(o->boot_id, sizeof o->boot_id, 0);
    if (!o->read_only && !allocate(log)) {
        release(log);
        return NULL;
    }
    log->tail = log->durable = r->tail;
    log->oldest = log->oldest_durable = r->oldest / r->id.segment_bytes;
    log->previous_low = r->previous_low;
    log->previous_high = r->previous_high;
    log->head_generation = r->head.generation;
    log->epoch = r->epoch + 1;
    return log;
}

static int start_writing(struct pawl_log *log, struct pawl_recovery *r, struct pawl_log_info *info,
                         char *text)
{
    if (log->epoch > PAWL_LOG_EPOCH_MAX) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "this log was opened %u times, the most there can be",
                 (unsigned)PAWL_LOG_EPOCH_MAX);
        return PAWL_LOG_CANNOT;
    }
    int rc = take_slots(log, r, text);
    if (rc == PAWL_LOG_OK)
        rc = open_rw(log, PAWL_LOG_FILE_HEAD, &log->head_fd, text);
    if (rc == PAWL_LOG_OK && r->decision == PAWL_DECIDE_CUT)
        rc = clear_tail(log, r, text);
    if (rc == PAWL_LOG_OK)
        rc = begin_epoch(log, info->time_ns, text);
    return rc;
}

static void fill_info(struct pawl_log_info *info, const struct pawl_recovery *r,
                      const struct pawl_log_options *o)
{
    info->epoch = r->epoch;
    info->oldest = r->oldest;
    info->tail = r->tail;
    info->time_ns =
        resume_time(r, o, pawl_hash64(o->boot_id, sizeof o->boot_id, 0), &info->same_boot);
    info->boot_epoch = info->same_boot ? r->boot_epoch : r->epoch;
    info->clean = (r->last_flags & PAWL_BLOCK_CLEAN) != 0 && r->decision == PAWL_DECIDE_END;
    info->records = r->records;
    info->blocks = r->blocks;
    info->bytes = r->bytes;
    info->cut_bytes = r->decision == PAWL_DECIDE_CUT ? r->cut_bytes : 0;
}

int pawl_log_open(struct pawl_io *io, const struct pawl_log_options *options,
                  pawl_log_replay *replay, void *ctx, struct pawl_log **out,
                  struct pawl_log_info *info, char text[PAWL_LOG_TEXT_BYTES])
{
    *out = NULL;
    text[0] = '\0';
    struct pawl_recovery r = {
        .io = io, .dir = options->dir, .read_only = options->read_only, .replay = replay, .ctx = ctx
    };
    int rc = check_options(options, text);
    if (rc == PAWL_LOG_OK)
        rc = pawl_log_load(io, options, &r.id, &r.head, text);
    if (rc)
        return rc;
    memset(info, 0, sizeof *info);
    memcpy(info->log_id, r.id.log_id, sizeof info->log_id);
    info->segment_bytes = r.id.segment_bytes;
    info->record_bytes_max = (uint32_t)(large_block(options, r.id.segment_bytes) -
                                        PAWL_BLOCK_HEADER - 8 - PAWL_LOG_RECORD_HEAD);
    rc = pawl_recovery_run(&r);
    if (rc) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "%s", r.text);
        pawl_recovery_fini(&r);
        return rc;
    }
    fill_info(info, &r, options);
    if (info->cut_bytes)
        snprintf(text, PAWL_LOG_TEXT_BYTES,
                 "a torn tail of %" PRIu64 " bytes at position %" PRIu64
                 " was dropped (%s): never acknowledged",
                 info->cut_bytes, r.tail, r.why);
    struct pawl_log *log = new_log(io, options, &r);
    if (!log) {
        pawl_recovery_fini(&r);
        return say(text, PAWL_LOG_CANNOT, "buffers of the log", -ENOMEM);
    }
    if (!options->read_only) {
        char why[PAWL_LOG_TEXT_BYTES];
        rc = start_writing(log, &r, info, why);
        if (rc)
            memcpy(text, why, sizeof why);
        info->epoch = log->epoch;
        info->tail = log->tail;
    } else {
        log->failed = true; /* nothing can be written */
    }
    pawl_recovery_fini(&r);
    if (rc) {
        pawl_log_close(log);
        return rc;
    }
    *out = log;
    return PAWL_LOG_OK;
}
