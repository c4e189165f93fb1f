/* SPDX-License-Identifier: MIT */
/* Cutting a damaged log.
 *
 * - id and head are read; one of them may be lost: the id is in the head too, and a lost head is
 *   made from what the segments hold.
 * - recovery says where the chain ends: x.
 * - every file with anything to lose is copied to lost-N-NAME; then the report says what is given
 *   up. Both are flushed before the first change.
 * - later segments are emptied, newest first, so that a crash leaves the damage where it was; then
 *   the rest of the segment of x is cleared; last the head is set back to x. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "log/inspect.h"
#include "log/recovery.h"

/* Where the highest epoch may be lost with the head: so many are left out. */
#define EPOCH_GAP 1000u
#define REPORT_BYTES (64u * 1024u)
#define COPY_CHUNK (1u << 20)

struct repair {
    struct pawl_io *io;
    int dir;
    uint64_t wall_ns;
    struct pawl_repair_result *result;
    char *text;
    struct pawl_log_identity id;
    struct pawl_head_rec head;
    bool id_lost, head_lost;
    struct pawl_recovery whole; /* up to x, and the survey of all files */
    uint64_t x;
    char damage[PAWL_LOG_TEXT_BYTES];
    uint8_t *chunk;
    char *report;
    size_t report_bytes;
};

static int failed(struct repair *p, int result, const char *what, int error)
{
    snprintf(p->text, PAWL_LOG_TEXT_BYTES, "%s: %s", what, strerror(-error));
    return result;
}

__attribute__((format(printf, 2, 3))) static void say(struct repair *p, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(p->report + p->report_bytes, REPORT_BYTES - p->report_bytes, format, list);
    va_end(list);
    p->report_bytes = pawl_min_u64(p->report_bytes + (n > 0 ? (size_t)n : 0), REPORT_BYTES - 1);
}

/* --- finding out ----------------------------------------------------------------------------- */

static int load(struct repair *p)
{
    int error = 0;
    bool both;
    enum pawl_meta_result id = pawl_id_read(p->io, p->dir, &p->id, &error);
    if (id == PAWL_META_DAMAGED || id == PAWL_META_ABSENT) {
        p->id_lost = true;
        id = pawl_head_identity(p->io, p->dir, &p->id, &error);
    }
    if (id == PAWL_META_VERSION || id == PAWL_META_ERROR)
        return failed(p, PAWL_LOG_CANNOT, "reading the id of the log",
                      id == PAWL_META_VERSION ? -EOPNOTSUPP : error);
    if (id != PAWL_META_OK) {
        snprintf(
            p->text, PAWL_LOG_TEXT_BYTES,
            "both 'id' and 'head' are lost or damaged, or there is no log here: without one of "
            "them nothing can be told from damage. Put one back from a copy");
        return PAWL_LOG_CANNOT;
    }
    switch (pawl_head_read(p->io, p->dir, &p->id, &p->head, &both, &error)) {
    case PAWL_META_OK:
        return PAWL_LOG_OK;
    case PAWL_META_VERSION:
        return failed(p, PAWL_LOG_CANNOT, "reading 'head'", -EOPNOTSUPP);
    case PAWL_META_ERROR:
        return failed(p, PAWL_LOG_CANNOT, "reading 'head'", error);
    default:
        p->head_lost = true;
        memset(&p->head, 0, sizeof p->head);
        p->head.segment = PAWL_LOG_NONE;
        return PAWL_LOG_OK;
    }
}

static void prepare(struct repair *p, struct pawl_recovery *r)
{
    *r = (struct pawl_recovery){ .io = p->io, .dir = p->dir, .id = p->id, .head = p->head };
}

/* Sets x to where the chain ends and `whole` to what is before it. */
static int find_cut(struct repair *p)
{
    prepare(p, &p->whole);
    int rc = pawl_recovery_run(&p->whole);
    snprintf(p->damage, sizeof p->damage, "%s", p->whole.text);
    if (rc == PAWL_LOG_CANNOT || rc == PAWL_LOG_FAILED) {
        snprintf(p->text, PAWL_LOG_TEXT_BYTES, "%s", p->damage);
        return rc;
    }
    uint64_t epoch = p->whole.epoch;
    p->x = p->whole.tail;
    /* Each look up to a damaged place may find an earlier one. */
    while (rc == PAWL_LOG_DAMAGE) {
        uint64_t limit = p->whole.damage_position;
        pawl_recovery_fini(&p->whole);
        prepare(p, &p->whole);
        p->whole.limited = true;
        p->whole.limit = limit;
        rc = pawl_recovery_run(&p->whole);
        if (rc == PAWL_LOG_DAMAGE && p->whole.damage_position >= limit) {
            snprintf(p->text, PAWL_LOG_TEXT_BYTES, "cannot find a place to cut: %.400s",
                     p->whole.text);
            return PAWL_LOG_CANNOT;
        }
        if (rc != PAWL_LOG_OK && rc != PAWL_LOG_DAMAGE) {
            snprintf(p->text, PAWL_LOG_TEXT_BYTES, "%s", p->whole.text);
            return rc;
        }
        p->x = p->whole.newest == PAWL_LOG_NONE ? 0 : p->whole.tail;
        epoch = pawl_max_u64(epoch, p->whole.epoch);
    }
    p->whole.epoch = epoch;
    return PAWL_LOG_OK;
}

/* Segment of the last byte that is kept; NONE: nothing is. */
static uint64_t last_kept(const struct repair *p)
{
    return p->x == 0 ? PAWL_LOG_NONE : (p->x - 1) / p->id.segment_bytes;
}

/* Does this file hold anything at or behind x, or anything that cannot be told? */
static bool to_be_changed(const struct repair *p, const struct pawl_survey_slot *slot)
{
    uint64_t kept = last_kept(p);
    if (slot->first == PAWL_VERDICT_VALID)
        return kept == PAWL_LOG_NONE || slot->segment >= kept;
    /* The next start fills these with zeros. */
    return slot->first != PAWL_VERDICT_READY && slot->first != PAWL_VERDICT_ZERO;
}

/* --- keeping copies -------------------------------------------------------------------------- */

static int open_slot(struct repair *p, const struct pawl_survey_slot *slot, int flags, int *fd)
{
    char name[16];
    bool direct;
    pawl_slot_name(name, slot->number);
    *fd = p->io->ops->file_open(p->io, p->dir, name, flags, 0, true, &direct);
    return *fd < 0 ? failed(p, PAWL_LOG_CANNOT, name, *fd) : PAWL_LOG_OK;
}

static int copy_file(struct repair *p, const struct pawl_survey_slot *slot)
{
    char to[64];
    bool direct;
    int from_fd, error = 0;
    int rc = open_slot(p, slot, O_RDONLY, &from_fd);
    if (rc)
        return rc;
    snprintf(to, sizeof to, "lost-%" PRIu64 "-%06u.seg", p->wall_ns / 1000000000u, slot->number);
    int to_fd = p->io->ops->file_open(p->io, p->dir, to, O_RDWR | O_CREAT, 0600, true, &direct);
    if (to_fd < 0)
        error = to_fd;
    struct pawl_reader reader;
    if (error == 0)
        error = pawl_reader_init(&reader, p->io);
    bool reading = error == 0;
    if (reading)
        pawl_reader_turn(&reader, from_fd, slot->file_bytes);
    uint64_t end = pawl_align_up(slot->file_bytes, PAWL_LOG_PAGE);
    for (uint64_t at = 0; at < end && error == 0; at += PAWL_LOG_PAGE) {
        const uint8_t *page;
        /* What cannot be read is zero in the copy. */
        memset(p->chunk, 0, PAWL_LOG_PAGE);
        error = pawl_reader_get(&reader, at, PAWL_LOG_PAGE, &page);
        if (error == 0)
            memcpy(p->chunk, page, PAWL_LOG_PAGE);
        if (error == -EIO)
            error = 0;
        if (error == 0 && !pawl_page_zero(p->chunk))
            error = pawl_write_now(p->io, to_fd, p->chunk, PAWL_LOG_PAGE, at, false);
    }
    if (reading)
        pawl_reader_fini(&reader);
    if (error == 0)
        error = p->io->ops->file_flush(p->io, to_fd);
    if (to_fd >= 0)
        p->io->ops->file_close(p->io, to_fd);
    p->io->ops->file_close(p->io, from_fd);
    if (error)
        return failed(p, PAWL_LOG_CANNOT, "copying what will be cut", error);
    p->result->files++;
    say(p, "copied %s (%s) to %s\n", strchr(to + 5, '-') + 1, pawl_verdict_name(slot->first), to);
    return PAWL_LOG_OK;
}

/* Counts and names the valid blocks from x on. */
static int count_lost(struct repair *p, const struct pawl_survey_slot *slot)
{
    int fd, rc = open_slot(p, slot, O_RDONLY, &fd);
    if (rc)
        return rc;
    struct pawl_reader reader;
    int error = pawl_reader_init(&reader, p->io);
    if (error == 0)
        pawl_reader_turn(&reader, fd, slot->file_bytes);
    uint64_t step;
    for (uint64_t at = 0; at < p->id.segment_bytes && error == 0; at += step) {
        const struct pawl_block_rec *b;
        enum pawl_verdict verdict;
        step = PAWL_LOG_PAGE;
        error = pawl_reader_block(&reader, &p->id, at, &verdict, &b);
        if (error || verdict != PAWL_VERDICT_VALID)
            continue;
        step = pawl_block_total(b->used_bytes);
        if (b->position < p->x || b->position % p->id.segment_bytes != at)
            continue;
        p->result->blocks++;
        p->result->records += b->count;
        p->result->bytes += b->used_bytes;
        p->whole.epoch = pawl_max_u64(p->whole.epoch, b->epoch);
        say(p, "given up: block at position %" PRIu64 ", epoch %" PRIu64 ", %u records, %u bytes\n",
            b->position, b->epoch, b->count, b->used_bytes);
    }
    pawl_reader_fini(&reader);
    p->io->ops->file_close(p->io, fd);
    return error ? failed(p, PAWL_LOG_CANNOT, "reading what will be cut", error) : PAWL_LOG_OK;
}

static int write_report(struct repair *p)
{
    bool direct;
    snprintf(p->result->report, sizeof p->result->report, "repair-%" PRIu64 ".txt",
             p->wall_ns / 1000000000u);
    say(p, "in all: %" PRIu64 " valid blocks with %" PRIu64 " records of %" PRIu64 " bytes\n",
        p->result->blocks, p->result->records, p->result->bytes);
    /* Whole pages, as all writes: the rest is empty lines. */
    uint64_t bytes = pawl_align_up(p->report_bytes + 1, PAWL_LOG_PAGE);
    memset(p->report + p->report_bytes, '\n', bytes - p->report_bytes);
    int fd = p->io->ops->file_open(p->io, p->dir, p->result->report, O_RDWR | O_CREAT, 0600, true,
                                   &direct);
    int error = fd < 0 ? fd : pawl_write_now(p->io, fd, p->report, bytes, 0, true);
    if (error == 0)
        error = p->io->ops->file_flush(p->io, fd);
    if (fd >= 0)
        p->io->ops->file_close(p->io, fd);
    if (error == 0)
        error = p->io->ops->file_flush(p->io, p->dir);
    return error ? failed(p, PAWL_LOG_CANNOT, "writing the report", error) : PAWL_LOG_OK;
}

static int keep_copies(struct repair *p)
{
    say(p, "pawl log repair\nfound: %s\n",
        p->damage[0]   ? p->damage
        : p->head_lost ? "the head file is lost; the segments are whole"
                       : "the id file is lost; the segments are whole");
    say(p, "the log is cut at position %" PRIu64 "\n", p->x);
    int rc = PAWL_LOG_OK;
    for (uint32_t i = 0; i < p->whole.slot_count && rc == PAWL_LOG_OK; i++) {
        const struct pawl_survey_slot *slot = &p->whole.slot[i];
        if (!to_be_changed(p, slot))
            continue;
        rc = copy_file(p, slot);
        if (rc == PAWL_LOG_OK)
            rc = count_lost(p, slot);
    }
    return rc ? rc : write_report(p);
}

/* --- cutting --------------------------------------------------------------------------------- */

static int clear(struct repair *p, const struct pawl_survey_slot *slot, uint64_t from, uint64_t to)
{
    int fd, rc = open_slot(p, slot, O_RDWR, &fd), error = 0;
    if (rc)
        return rc;
    memset(p->chunk, 0, COPY_CHUNK);
    for (uint64_t at = from; at < to && error == 0; at += COPY_CHUNK)
        error = pawl_write_now(p->io, fd, p->chunk, pawl_min_u64(COPY_CHUNK, to - at), at, false);
    if (error == 0)
        error = p->io->ops->file_flush(p->io, fd);
    p->io->ops->file_close(p->io, fd);
    return error ? failed(p, PAWL_LOG_FAILED, "clearing what is cut", error) : PAWL_LOG_OK;
}

/* The file of the highest segment below `below` and above the kept one. */
static const struct pawl_survey_slot *next_to_empty(const struct repair *p, uint64_t below)
{
    const struct pawl_survey_slot *best = NULL;
    uint64_t kept = last_kept(p);
    for (uint32_t i = 0; i < p->whole.slot_count; i++) {
        const struct pawl_survey_slot *s = &p->whole.slot[i];
        if (s->first == PAWL_VERDICT_VALID && s->segment < below &&
            (kept == PAWL_LOG_NONE || s->segment > kept) && (!best || s->segment > best->segment))
            best = s;
    }
    return best;
}

static int cut(struct repair *p)
{
    uint64_t below = PAWL_LOG_NONE, segment_bytes = p->id.segment_bytes;
    const struct pawl_survey_slot *slot;
    while ((slot = next_to_empty(p, below)) != NULL) {
        below = slot->segment;
        /* All files of that segment, should there be two. */
        for (uint32_t i = 0; i < p->whole.slot_count; i++) {
            const struct pawl_survey_slot *s = &p->whole.slot[i];
            if (s->first != PAWL_VERDICT_VALID || s->segment != below)
                continue;
            int rc = clear(p, s, 0, PAWL_LOG_PAGE);
            if (rc)
                return rc;
        }
    }
    uint64_t in = p->x % segment_bytes;
    if (in == 0)
        return PAWL_LOG_OK;
    slot = pawl_recovery_slot(&p->whole, last_kept(p));
    PAWL_ASSERT(slot != NULL);
    return clear(p, slot, in, segment_bytes);
}

static int set_head(struct repair *p)
{
    struct pawl_head_rec values = { .generation = (p->head.generation + 2) & ~1ull,
                                    .position = p->x,
                                    .epoch = p->whole.epoch + (p->head_lost ? EPOCH_GAP : 0),
                                    .segment = last_kept(p),
                                    .wall_ns = p->wall_ns };
    for (unsigned i = 0; i < 2; i++) {
        pawl_head_fill(p->chunk + i * PAWL_LOG_PAGE, &p->id, &values);
        values.generation++;
    }
    int error = pawl_make_pages(p->io, p->dir, PAWL_LOG_FILE_HEAD, p->chunk);
    if (error == 0)
        error = p->io->ops->file_flush(p->io, p->dir);
    if (error == 0 && p->id_lost)
        error = pawl_id_create(p->io, p->dir, &p->id, p->wall_ns);
    return error ? failed(p, PAWL_LOG_FAILED, "setting the head back", error) : PAWL_LOG_OK;
}

static int run(struct repair *p)
{
    int error = p->io->ops->file_flush(p->io, p->dir);
    if (error)
        return failed(p, PAWL_LOG_FAILED, "flushing the log directory", error);
    int rc = load(p);
    if (rc == PAWL_LOG_OK)
        rc = find_cut(p);
    if (rc)
        return rc;
    p->result->tail = p->x;
    if (p->damage[0] == '\0' && !p->id_lost && !p->head_lost) {
        snprintf(p->text, PAWL_LOG_TEXT_BYTES, "there is no damage; nothing was changed");
        return PAWL_LOG_OK;
    }
    rc = keep_copies(p);
    if (rc)
        return rc;
    p->result->changed = true;
    rc = cut(p);
    if (rc == PAWL_LOG_OK)
        rc = set_head(p);
    if (rc == PAWL_LOG_OK)
        snprintf(p->text, PAWL_LOG_TEXT_BYTES,
                 "cut at position %" PRIu64 ": %" PRIu64 " blocks with %" PRIu64
                 " records are given up; %" PRIu64 " files were copied to lost-*; see %s",
                 p->x, p->result->blocks, p->result->records, p->result->files, p->result->report);
    return rc;
}

int pawl_log_repair(struct pawl_io *io, int dir, uint64_t wall_ns,
                    struct pawl_repair_result *result, char text[PAWL_LOG_TEXT_BYTES])
{
    memset(result, 0, sizeof *result);
    text[0] = '\0';
    struct repair p = { .io = io, .dir = dir, .wall_ns = wall_ns, .result = result, .text = text };
    p.chunk = pawl_pages_map(COPY_CHUNK);
    p.report = pawl_pages_map(REPORT_BYTES);
    int rc = PAWL_LOG_CANNOT;
    if (p.chunk && p.report)
        rc = run(&p);
    else
        snprintf(text, PAWL_LOG_TEXT_BYTES, "no memory");
    pawl_recovery_fini(&p.whole);
    pawl_pages_unmap(p.chunk, COPY_CHUNK);
    pawl_pages_unmap(p.report, REPORT_BYTES);
    return rc;
}
