/* SPDX-License-Identifier: MIT */
#include "log/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"

/* --- the decision ---------------------------------------------------------------------------- */

/* Read from the top; hazards 3.3. A bad checksum alone is no torn tail: cutting there is how
 * acknowledged data is lost. A zero page alone is no end either. What tells them apart is whether
 * anything else on the disk knows that x was durable. */
const struct pawl_decision_row pawl_decision_table[] = {
    { PAWL_EV_VERSION, 0, PAWL_DECIDE_VERSION, "a block of a newer version of pawl" },
    { PAWL_EV_FOLLOWED | PAWL_EV_LINKS, 0, PAWL_DECIDE_NEXT, "the next segment continues here" },
    { PAWL_EV_FOLLOWED, 0, PAWL_DECIDE_DAMAGE,
      "a later segment exists, and it was begun only when all before it was durable" },
    { PAWL_EV_LINKS, 0, PAWL_DECIDE_DAMAGE, "the segment that continues here is damaged" },
#ifndef PAWL_BUG_HEAD_IGNORED
    { PAWL_EV_HEAD_BEYOND, 0, PAWL_DECIDE_DAMAGE, "the head file says that this was durable" },
#endif
    { PAWL_EV_UNREADABLE, 0, PAWL_DECIDE_DAMAGE, "the disk cannot read what stands here" },
    { PAWL_EV_UNLINKED, 0, PAWL_DECIDE_DAMAGE, "a whole block stands here that follows another" },
#ifdef PAWL_BUG_CUT_ACKED
    { PAWL_EV_LATER_VOUCHES, 0, PAWL_DECIDE_CUT, "" },
#endif
    { PAWL_EV_LATER_VOUCHES, 0, PAWL_DECIDE_DAMAGE, "a later block says that this was durable" },
    { PAWL_EV_LATER_EPOCH, 0, PAWL_DECIDE_DAMAGE, "a later opening wrote behind this" },
    { PAWL_EV_MISPLACED, 0, PAWL_DECIDE_DAMAGE, "a block that belongs here stands elsewhere" },
    { PAWL_EV_LATER_MUTE, 0, PAWL_DECIDE_CUT, "blocks that were in flight together" },
    { PAWL_EV_REMAINS, 0, PAWL_DECIDE_CUT, "a block that was being written" },
    { 0, PAWL_EVIDENCE_ALL, PAWL_DECIDE_END, "the end" },
#ifdef PAWL_BUG_HEAD_IGNORED
    { 0, 0, PAWL_DECIDE_END, "" },
#endif
};
const unsigned pawl_decision_rows = PAWL_COUNT(pawl_decision_table);

const struct pawl_decision_row *pawl_decide(uint32_t evidence)
{
    PAWL_ASSERT((evidence & ~PAWL_EVIDENCE_ALL) == 0);
    for (unsigned i = 0; i < pawl_decision_rows; i++) {
        const struct pawl_decision_row *row = &pawl_decision_table[i];
        if ((evidence & row->all) == row->all && (evidence & row->none) == 0)
            return row;
    }
    PAWL_ASSERT(!"every evidence fits a row");
    return NULL;
}

/* --- saying what was found ------------------------------------------------------------------- */

static int cannot(struct pawl_recovery *r, const char *what, int error)
{
    snprintf(r->text, sizeof r->text, "%s: %s", what, strerror(-error));
    return PAWL_LOG_CANNOT;
}

static int damage_at(struct pawl_recovery *r, const struct pawl_survey_slot *slot, uint64_t offset,
                     const char *what, const char *why)
{
    r->decision = PAWL_DECIDE_DAMAGE;
    r->why = why;
    r->damage_file = slot->number;
    r->damage_offset = offset;
    r->damage_position = slot->segment * r->id.segment_bytes + offset;
    char name[16];
    pawl_slot_name(name, slot->number);
    snprintf(r->text, sizeof r->text,
             "damage in %s at offset %" PRIu64 " (position %" PRIu64 "): %s; %s. Nothing was "
             "changed. 'pawl log verify' shows more; 'pawl log repair --accept-loss' cuts here",
             name, offset, r->damage_position, what, why);
    return PAWL_LOG_DAMAGE;
}

static int missing(struct pawl_recovery *r, uint64_t segment)
{
    r->decision = PAWL_DECIDE_DAMAGE;
    r->why = "a segment is missing";
    r->damage_file = 0;
    r->damage_offset = 0;
    r->damage_position = segment * r->id.segment_bytes;
    for (uint32_t i = 0; i < r->slot_count; i++) {
        const struct pawl_survey_slot *slot = &r->slot[i];
        if (slot->first == PAWL_VERDICT_VALID && slot->segment > segment)
            r->next_valid = pawl_min_u64(r->next_valid, slot->segment * r->id.segment_bytes);
    }
    /* It may be there, with a first block that nobody can know it by. */
    char suspect[64] = "";
    for (uint32_t i = 0; i < r->slot_count && !suspect[0]; i++) {
        enum pawl_verdict v = r->slot[i].first;
        char name[16];
        pawl_slot_name(name, r->slot[i].number);
        if (v != PAWL_VERDICT_VALID && v != PAWL_VERDICT_READY)
            snprintf(suspect, sizeof suspect, " (%s begins with: %s)", name, pawl_verdict_name(v));
    }
    snprintf(r->text, sizeof r->text,
             "damage: no file holds segment %" PRIu64 " (positions %" PRIu64 " to %" PRIu64
             "), which was durable%s. Nothing was changed. Put the file back, or 'pawl log repair "
             "--accept-loss' cuts here",
             segment, segment * r->id.segment_bytes, (segment + 1) * r->id.segment_bytes, suspect);
    return PAWL_LOG_DAMAGE;
}

/* block: NULL where a page that is none says it. */
static int newer_version(struct pawl_recovery *r, const struct pawl_block_rec *block)
{
    char what[80] = "";
    r->decision = PAWL_DECIDE_VERSION;
    if (block)
        snprintf(what, sizeof what, "log version %u, features %#x; ", block->top.version,
                 block->top.features);
    snprintf(r->text, sizeof r->text,
             "the log was written by a newer pawl (%sthis one knows version %u, features %#x): use "
             "that one",
             what, PAWL_LOG_VERSION, PAWL_LOG_FEATURES_KNOWN);
    return PAWL_LOG_CANNOT;
}

/* --- the survey ------------------------------------------------------------------------------ */

static int note_name(void *ctx, const char *name)
{
    struct pawl_recovery *r = ctx;
    unsigned number;
    char canonical[16];
    if (sscanf(name, "%6u.seg", &number) != 1)
        return 0;
    pawl_slot_name(canonical, number);
    if (strcmp(name, canonical) != 0)
        return 0; /* not ours */
    if (r->slot_count == r->slot_capacity) {
        uint32_t capacity = r->slot_capacity ? r->slot_capacity * 2 : 64;
        struct pawl_survey_slot *slot = realloc(r->slot, capacity * sizeof *slot);
        if (!slot)
            return -ENOMEM;
        r->slot = slot;
        r->slot_capacity = capacity;
    }
    r->slot[r->slot_count++] = (struct pawl_survey_slot){ .number = number, .fd = -1 };
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct pawl_survey_slot *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int slot_open(struct pawl_recovery *r, struct pawl_survey_slot *slot)
{
    char name[16];
    bool direct;
    pawl_slot_name(name, slot->number);
    int fd = r->io->ops->file_open(r->io, r->dir, name, O_RDONLY, 0, true, &direct);
    if (fd < 0)
        return cannot(r, name, fd);
    int64_t bytes = r->io->ops->file_size(r->io, fd);
    if (bytes < 0) {
        r->io->ops->file_close(r->io, fd);
        return cannot(r, name, (int)bytes);
    }
    slot->fd = fd;
    slot->file_bytes = (uint64_t)bytes;
    pawl_reader_turn(&r->reader, fd, slot->file_bytes);
    return PAWL_LOG_OK;
}

static void slot_close(struct pawl_recovery *r, struct pawl_survey_slot *slot)
{
    if (slot->fd >= 0)
        r->io->ops->file_close(r->io, slot->fd);
    slot->fd = -1;
}

static int survey_slot(struct pawl_recovery *r, struct pawl_survey_slot *slot)
{
    int rc = slot_open(r, slot);
    if (rc)
        return rc;
#ifndef PAWL_BUG_NO_FLUSH_BEFORE_READ
    if (!r->read_only) {
        /* What is read from here on is on the disk, not only in a cache (S2). */
        int error = r->io->ops->file_flush(r->io, slot->fd);
        if (error) {
            slot_close(r, slot);
            cannot(r, "flushing a segment before it is read", error);
            return PAWL_LOG_FAILED;
        }
    }
#endif
    const struct pawl_block_rec *block;
    int error = pawl_reader_block(&r->reader, &r->id, 0, &slot->first, &block);
    slot_close(r, slot);
    if (error)
        return cannot(r, "reading a segment", error);
    if (slot->first == PAWL_VERDICT_VERSION)
        return newer_version(r, block);
    if (slot->first == PAWL_VERDICT_VALID) {
        slot->segment = block->position / r->id.segment_bytes;
        r->epoch = pawl_max_u64(r->epoch, block->epoch);
        /* A block from the middle of a segment at the front of a file is misdirected. */
        if (block->position % r->id.segment_bytes != 0)
            slot->first = PAWL_VERDICT_TORN;
    }
    if (slot->first == PAWL_VERDICT_VALID &&
        (r->newest == PAWL_LOG_NONE || slot->segment > r->newest))
        r->newest = slot->segment;
    return PAWL_LOG_OK;
}

int pawl_recovery_survey(struct pawl_recovery *r)
{
    r->newest = r->next_valid = PAWL_LOG_NONE;
    r->epoch = r->head.epoch;
    int rc = pawl_reader_init(&r->reader, r->io);
    if (rc)
        return cannot(r, "reading the log", rc);
    rc = r->io->ops->dir_list(r->io, r->dir, note_name, r);
    if (rc)
        return cannot(r, "listing the log", rc);
    if (r->slot_count > 0)
        qsort(r->slot, r->slot_count, sizeof *r->slot, by_number);
    for (uint32_t i = 0; i < r->slot_count; i++) {
        rc = survey_slot(r, &r->slot[i]);
        if (rc)
            return rc;
    }
    return PAWL_LOG_OK;
}

struct pawl_survey_slot *pawl_recovery_slot(struct pawl_recovery *r, uint64_t segment)
{
    for (uint32_t i = 0; i < r->slot_count; i++)
        if (r->slot[i].first == PAWL_VERDICT_VALID && r->slot[i].segment == segment)
            return &r->slot[i];
    return NULL;
}

void pawl_recovery_fini(struct pawl_recovery *r)
{
    for (uint32_t i = 0; i < r->slot_count; i++)
        slot_close(r, &r->slot[i]);
    free(r->slot);
    r->slot = NULL;
    r->slot_count = r->slot_capacity = 0;
    pawl_reader_fini(&r->reader);
}

/* --- the walk -------------------------------------------------------------------------------- */

/* Where a walk over one segment stopped: the first place that does not continue the chain. */
struct stop {
    uint64_t offset;
    enum pawl_verdict verdict; /* VALID: a block that does not continue it */
};

struct chain {
    bool linked; /* the block before is known */
    uint64_t low, high, epoch;
};

static bool continues(const struct chain *chain, const struct pawl_block_rec *block,
                      uint64_t position)
{
#ifndef PAWL_BUG_STALE_BLOCK
    if (block->position != position)
        return false;
#endif
    if (!chain->linked)
        return true;
#ifdef PAWL_BUG_STALE_BLOCK
    return true;
#endif
    return block->previous_low == chain->low && block->previous_high == chain->high &&
           block->epoch >= chain->epoch;
}

static int hand_out(struct pawl_recovery *r, const struct pawl_survey_slot *slot, uint64_t offset,
                    const struct pawl_block_rec *block)
{
    struct pawl_record record;
    uint32_t at = PAWL_BLOCK_HEADER, count = 0;
    int more;
    while ((more = pawl_block_next(block, &at, &record)) > 0) {
        count++;
        if (r->replay &&
            r->replay(r->ctx, record.lsn, record.type, record.body, record.bytes) != 0) {
            char what[80];
            r->senseless = true;
            snprintf(what, sizeof what, "the record at position %" PRIu64 " of type %u", record.lsn,
                     record.type);
            return damage_at(r, slot, offset, what, "it makes no sense after those before it");
        }
    }
    if (more < 0 || count != block->count)
        return damage_at(r, slot, offset, "its records do not fill it", "its hash is right");
    if (r->blocks > 0 && block->boot_hash != r->walked_boot)
        r->boot_epoch = block->epoch;
    r->walked_boot = block->boot_hash;
    r->records += count;
    r->blocks++;
    r->bytes += block->used_bytes;
    if (r->block && r->block(r->ctx, slot->number, offset, block) != 0)
        return damage_at(r, slot, offset, "the walker refused it", "");
    return PAWL_LOG_OK;
}

/* Walks one segment as far as the chain goes. out: records are handed out and counted. */
static int walk_segment(struct pawl_recovery *r, struct pawl_survey_slot *slot, bool out,
                        struct chain *chain, struct stop *stop)
{
    uint64_t start = slot->segment * r->id.segment_bytes, offset = 0;
    while (offset < r->id.segment_bytes) {
        const struct pawl_block_rec *block;
        if (r->limited && start + offset >= r->limit) {
            stop->verdict = PAWL_VERDICT_ZERO;
            break;
        }
        int error = pawl_reader_block(&r->reader, &r->id, offset, &stop->verdict, &block);
        if (error)
            return cannot(r, "reading a segment", error);
        if (stop->verdict != PAWL_VERDICT_VALID || !continues(chain, block, start + offset))
            break;
        *chain = (struct chain){ true, block->top.hash_low, block->top.hash_high, block->epoch };
        if (out) {
            int rc = hand_out(r, slot, offset, block);
            if (rc)
                return rc;
        }
        if (offset == 0)
            r->reused = (block->top.flags & PAWL_BLOCK_REUSED) != 0;
        r->oldest = block->oldest;
        r->time_ns = block->time_ns;
        r->boot_ns = block->boot_ns;
        r->wall_ns = block->wall_ns;
        r->boot_hash = block->boot_hash;
        r->last_flags = block->top.flags;
        offset += pawl_block_total(block->used_bytes);
        r->tail = start + offset;
    }
    if (offset >= r->id.segment_bytes)
        stop->verdict = PAWL_VERDICT_ZERO;
    stop->offset = offset;
    return PAWL_LOG_OK;
}

/* --- evidence at the end of the chain -------------------------------------------------------- */

struct remains {
    uint64_t nonzero_end;          /* of any byte behind x */
    uint64_t claim_end, valid_end; /* of what a torn page in place claims to be; of valid blocks */
};

/* One valid block found behind (or at) x, which is `offset` x of the newest segment. */
static uint32_t judge(struct pawl_recovery *r, const struct pawl_block_rec *block,
                      const struct chain *chain, uint64_t x, uint64_t position,
                      struct remains *remains)
{
    if (block->position != position)
        return block->position >= x ? PAWL_EV_MISPLACED : 0; /* older: left in a reused slot */
    r->epoch = pawl_max_u64(r->epoch, block->epoch);
    if (position > x)
        r->next_valid = pawl_min_u64(r->next_valid, position);
    uint64_t end = (position + pawl_block_total(block->used_bytes)) % r->id.segment_bytes;
    remains->valid_end = end ? end : r->id.segment_bytes;
    if (position == x)
        return PAWL_EV_UNLINKED;
    if (block->durable > x)
        return PAWL_EV_LATER_VOUCHES;
    if (block->epoch > chain->epoch)
        return PAWL_EV_LATER_EPOCH;
    return PAWL_EV_LATER_MUTE;
}

/* Looks at every page from x to the end of the newest segment. */
static int look_behind(struct pawl_recovery *r, struct pawl_survey_slot *slot,
                       const struct chain *chain, uint64_t x_offset, uint32_t *evidence,
                       struct remains *remains)
{
    uint64_t start = slot->segment * r->id.segment_bytes, x = start + x_offset;
    uint64_t step;
    for (uint64_t at = x_offset; at < r->id.segment_bytes; at += step) {
        const struct pawl_block_rec *block;
        enum pawl_verdict verdict;
        step = PAWL_LOG_PAGE;
        int error = pawl_reader_block(&r->reader, &r->id, at, &verdict, &block);
        if (error)
            return cannot(r, "reading a segment", error);
        if (verdict == PAWL_VERDICT_UNREADABLE)
            *evidence |= PAWL_EV_UNREADABLE;
        if (verdict == PAWL_VERDICT_VERSION)
            *evidence |= PAWL_EV_VERSION;
        if (verdict == PAWL_VERDICT_VALID) {
            *evidence |= judge(r, block, chain, x, start + at, remains);
            step = pawl_block_total(block->used_bytes);
        }
        if (verdict != PAWL_VERDICT_ZERO)
            remains->nonzero_end = at + step;
        if (verdict == PAWL_VERDICT_TORN) {
            const uint8_t *page;
            error = pawl_reader_get(&r->reader, at, PAWL_LOG_PAGE, &page);
            if (error)
                return cannot(r, "reading a segment", error);
            const struct pawl_block_rec *torn = (const void *)page;
            if (torn->position == start + at)
                remains->claim_end =
                    pawl_min_u64(at + pawl_block_total(torn->used_bytes), r->id.segment_bytes);
        }
    }
    return PAWL_LOG_OK;
}

static int decide_tail(struct pawl_recovery *r, struct pawl_survey_slot *slot,
                       const struct chain *chain, const struct stop *stop)
{
    if (r->limited) {
        r->decision = PAWL_DECIDE_END;
        return PAWL_LOG_OK;
    }
    uint32_t evidence = r->head.position > r->tail ? PAWL_EV_HEAD_BEYOND : 0;
    struct remains remains = { 0 };
    if (slot) {
        int rc = look_behind(r, slot, chain, stop->offset, &evidence, &remains);
        if (rc)
            return rc;
        /* In a slot filled with zeros any byte is of a block that was being written; in a reused
         * one only what names the place where it stands, be it behind x: of two that were under
         * way together nothing may be left of the first. */
        if (r->reused ? remains.claim_end > 0 : remains.nonzero_end > 0)
            evidence |= PAWL_EV_REMAINS;
    }
    const struct pawl_decision_row *row = pawl_decide(evidence);
    r->decision = row->decision;
    r->why = row->why;
    static const struct pawl_survey_slot none = { .number = 1 };
    switch (row->decision) {
    case PAWL_DECIDE_END:
        return PAWL_LOG_OK;
    case PAWL_DECIDE_CUT:
        r->clear_end = remains.nonzero_end;
        r->cut_bytes =
            (r->reused ? pawl_max_u64(remains.claim_end, remains.valid_end) : remains.nonzero_end) -
            stop->offset;
        return PAWL_LOG_OK;
    case PAWL_DECIDE_VERSION:
        snprintf(r->text, sizeof r->text,
                 "a block at or behind position %" PRIu64 " was written by a newer pawl: use that "
                 "one (this one knows log version %u)",
                 r->tail, PAWL_LOG_VERSION);
        return PAWL_LOG_CANNOT;
    default:
        if ((evidence & PAWL_EV_HEAD_BEYOND) &&
            (r->newest == PAWL_LOG_NONE || r->head.segment > r->newest))
            return missing(r, r->newest == PAWL_LOG_NONE ? 0 : r->newest + 1);
        return damage_at(r, slot ? slot : &none, slot ? stop->offset : 0,
                         pawl_verdict_name(stop->verdict), row->why);
    }
}

/* --- all of it ------------------------------------------------------------------------------- */

/* Every segment from the oldest to the newest is there once. */
static int check_segments(struct pawl_recovery *r)
{
    uint64_t first = r->oldest / r->id.segment_bytes;
    for (uint64_t s = first; s <= r->newest; s++) {
        unsigned holders = 0;
        struct pawl_survey_slot *slot = NULL;
        for (uint32_t i = 0; i < r->slot_count; i++) {
            if (r->slot[i].first == PAWL_VERDICT_VALID && r->slot[i].segment == s) {
                slot = &r->slot[i];
                holders++;
            }
        }
        if (holders == 0)
            return missing(r, s);
        if (holders > 1)
            return damage_at(r, slot, 0, "two files hold this segment", "one is a copy");
    }
    return PAWL_LOG_OK;
}

/* Does the first block of `slot` continue the chain? */
static int links(struct pawl_recovery *r, struct pawl_survey_slot *slot, const struct chain *chain,
                 bool *yes)
{
    const struct pawl_block_rec *block;
    enum pawl_verdict verdict;
    int rc = slot_open(r, slot);
    if (rc)
        return rc;
    int error = pawl_reader_block(&r->reader, &r->id, 0, &verdict, &block);
    *yes = error == 0 && verdict == PAWL_VERDICT_VALID &&
           continues(chain, block, slot->segment * r->id.segment_bytes);
    slot_close(r, slot);
    return error ? cannot(r, "reading a segment", error) : PAWL_LOG_OK;
}

/* From one segment to the next: the chain must go on there. */
static int cross(struct pawl_recovery *r, struct pawl_survey_slot *slot, const struct chain *chain,
                 const struct stop *stop)
{
    bool yes;
    struct pawl_survey_slot *next = pawl_recovery_slot(r, slot->segment + 1);
    PAWL_ASSERT(next != NULL);
    int rc = links(r, next, chain, &yes);
    if (rc)
        return rc;
    uint32_t evidence = PAWL_EV_FOLLOWED | (yes ? PAWL_EV_LINKS : 0);
    if (stop->verdict == PAWL_VERDICT_VERSION)
        evidence |= PAWL_EV_VERSION;
    const struct pawl_decision_row *row = pawl_decide(evidence);
    if (row->decision == PAWL_DECIDE_NEXT)
        return PAWL_LOG_OK;
    r->next_valid = next->segment * r->id.segment_bytes;
    return damage_at(r, slot, stop->offset, pawl_verdict_name(stop->verdict), row->why);
}

int pawl_recovery_look(struct pawl_recovery *r)
{
    struct chain chain = { 0 };
    struct stop stop;
    if (r->limited && r->newest != PAWL_LOG_NONE)
        r->newest = r->limit ? pawl_min_u64(r->newest, (r->limit - 1) / r->id.segment_bytes)
                             : PAWL_LOG_NONE;
    if (r->newest == PAWL_LOG_NONE)
        return PAWL_LOG_OK;
    /* The last block of the newest segment says where the log begins. */
    struct pawl_survey_slot *slot = pawl_recovery_slot(r, r->newest);
    if (!slot)
        return missing(r, r->newest);
    int rc = slot_open(r, slot);
    if (rc == PAWL_LOG_OK)
        rc = walk_segment(r, slot, false, &chain, &stop);
    slot_close(r, slot);
    return rc;
}

int pawl_recovery_walk(struct pawl_recovery *r)
{
    struct chain chain = { 0 };
    struct stop stop = { 0 };
    struct pawl_survey_slot *slot;
    int rc = pawl_recovery_look(r);
    if (rc == PAWL_LOG_OK && r->newest == PAWL_LOG_NONE)
        return decide_tail(r, NULL, &chain, &stop);
    if (rc == PAWL_LOG_OK)
        rc = check_segments(r);
    if (rc)
        return rc;

    for (uint64_t s = r->oldest / r->id.segment_bytes; s <= r->newest; s++) {
        uint64_t oldest = r->oldest;
        slot = pawl_recovery_slot(r, s);
        rc = slot_open(r, slot);
        if (rc == PAWL_LOG_OK)
            rc = walk_segment(r, slot, true, &chain, &stop);
        if (rc == PAWL_LOG_OK && s == r->newest)
            rc = decide_tail(r, slot, &chain, &stop);
        slot_close(r, slot);
        if (rc == PAWL_LOG_OK && s < r->newest)
            rc = cross(r, slot, &chain, &stop);
        if (rc)
            return rc;
        r->oldest = pawl_max_u64(oldest, r->oldest);
    }
    r->previous_low = chain.low;
    r->previous_high = chain.high;
    r->chain_epoch = chain.epoch;
    r->epoch = pawl_max_u64(r->epoch, chain.epoch);
    return PAWL_LOG_OK;
}

/* --- beside a broker that writes ------------------------------------------------------------- */

/* Forgets what was found, to look again. */
static void reset(struct pawl_recovery *r)
{
    struct pawl_recovery fresh = { .io = r->io,
                                   .dir = r->dir,
                                   .read_only = r->read_only,
                                   .id = r->id,
                                   .head = r->head,
                                   .replay = r->replay,
                                   .block = r->block,
                                   .ctx = r->ctx,
                                   .limited = r->limited,
                                   .limit = r->limit };
    pawl_recovery_fini(r);
    *r = fresh;
}

static int survey_and_walk(struct pawl_recovery *r)
{
    int rc = pawl_recovery_survey(r);
    return rc ? rc : pawl_recovery_walk(r);
}

#define LOOKS_MAX 20

static int look_again_and_again(struct pawl_recovery *r)
{
    uint64_t damaged_before = PAWL_LOG_NONE;
    int rc = PAWL_LOG_DAMAGE;
    for (unsigned i = 0; i < LOOKS_MAX && rc == PAWL_LOG_DAMAGE; i++) {
        if (i > 0)
            reset(r);
        rc = survey_and_walk(r);
        if (rc == PAWL_LOG_DAMAGE) {
            if (damaged_before == r->damage_position)
                break; /* it stays where it is, so it is no tail that moves */
            damaged_before = r->damage_position;
        }
    }
    return rc;
}

int pawl_recovery_run(struct pawl_recovery *r)
{
    if (!r->read_only || r->limited)
        return survey_and_walk(r);
    pawl_log_replay *replay = r->replay;
    pawl_walk_block *block = r->block;
    r->replay = NULL;
    r->block = NULL;
    int rc = look_again_and_again(r);
    r->replay = replay;
    r->block = block;
    if (rc != PAWL_LOG_OK || (!replay && !block))
        return rc;
    enum pawl_decision decision = r->decision;
    uint64_t cut_bytes = r->cut_bytes;
    const char *why = r->why;
    r->limit = r->tail;
    r->limited = true;
    reset(r);
    rc = survey_and_walk(r);
    r->limited = false;
    if (rc == PAWL_LOG_DAMAGE && !r->senseless) {
        /* What was whole a moment ago: the beginning was given back and written over? */
        r->replay = NULL;
        r->block = NULL;
        reset(r);
        rc = look_again_and_again(r);
        if (rc == PAWL_LOG_OK) {
            snprintf(r->text, sizeof r->text,
                     "the broker reused a segment while it was being read: try again");
            r->moved = true;
            rc = PAWL_LOG_CANNOT;
        }
        return rc;
    }
    r->decision = decision;
    r->cut_bytes = cut_bytes;
    r->why = why;
    return rc;
}
