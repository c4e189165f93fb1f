/* SPDX-License-Identifier: MIT */
#include "log/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "log/recovery.h"

struct pawl_inspect {
    struct pawl_io *io;
    struct pawl_log_options options;
    struct pawl_log_identity id;
    struct pawl_head_rec head;
    struct pawl_inspect_state state;
    struct pawl_inspect_file *file;
    uint32_t *number; /* of each file's slot */
    uint32_t count;
};

/* --- files ----------------------------------------------------------------------------------- */

static struct pawl_recovery new_recovery(const struct pawl_inspect *in)
{
    return (struct pawl_recovery){
        .io = in->io, .dir = in->options.dir, .read_only = true, .id = in->id, .head = in->head
    };
}

static enum pawl_inspect_use use_of(const struct pawl_recovery *r, uint32_t i)
{
    const struct pawl_survey_slot *slot = &r->slot[i];
    if (slot->first == PAWL_VERDICT_READY)
        return PAWL_INSPECT_READY;
    if (slot->first != PAWL_VERDICT_VALID)
        return PAWL_INSPECT_BLANK;
    if (slot->segment < r->oldest / r->id.segment_bytes)
        return PAWL_INSPECT_FREE;
    for (uint32_t j = 0; j < i; j++)
        if (r->slot[j].first == PAWL_VERDICT_VALID && r->slot[j].segment == slot->segment)
            return PAWL_INSPECT_TWICE;
    return PAWL_INSPECT_LIVE;
}

struct ordered {
    struct pawl_inspect_file file;
    uint32_t number;
};

static int by_segment(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    bool xs = x->file.position != PAWL_LOG_NONE, ys = y->file.position != PAWL_LOG_NONE;
    if (xs != ys)
        return xs ? -1 : 1;
    if (xs && x->file.segment != y->file.segment)
        return x->file.segment < y->file.segment ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int take_files(struct pawl_inspect *in, const struct pawl_recovery *r)
{
    struct ordered *list = calloc(r->slot_count + 1, sizeof *list);
    free(in->file);
    free(in->number);
    in->count = 0;
    in->file = calloc(r->slot_count + 1, sizeof *in->file);
    in->number = calloc(r->slot_count + 1, sizeof *in->number);
    if (!list || !in->file || !in->number) {
        free(list);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < r->slot_count; i++) {
        struct pawl_inspect_file *f = &list[i].file;
        pawl_slot_name(f->name, r->slot[i].number);
        f->bytes = r->slot[i].file_bytes;
        f->use = use_of(r, i);
        f->begins_with = pawl_verdict_name(r->slot[i].first);
        bool holds = r->slot[i].first == PAWL_VERDICT_VALID;
        f->segment = holds ? r->slot[i].segment : 0;
        f->position = holds ? f->segment * r->id.segment_bytes : PAWL_LOG_NONE;
        list[i].number = r->slot[i].number;
    }
    qsort(list, r->slot_count, sizeof *list, by_segment);
    for (uint32_t i = 0; i < r->slot_count; i++) {
        in->file[i] = list[i].file;
        in->number[i] = list[i].number;
    }
    in->count = r->slot_count;
    free(list);
    return 0;
}

static void take_state(struct pawl_inspect *in, const struct pawl_recovery *r)
{
    in->state.oldest = r->oldest;
    in->state.newest_segment = r->newest;
    in->state.tail = r->tail;
    in->state.epoch = r->epoch;
    in->state.time_ns = r->time_ns;
    in->state.wall_ns = r->wall_ns;
    in->state.clean = (r->last_flags & PAWL_BLOCK_CLEAN) != 0 && r->decision == PAWL_DECIDE_END;
    in->state.cut_bytes = r->decision == PAWL_DECIDE_CUT ? r->cut_bytes : 0;
    in->state.records = r->records;
    in->state.blocks = r->blocks;
    in->state.bytes = r->bytes;
    in->state.next_valid = r->next_valid;
    in->state.damage_file[0] = '\0';
    in->state.damage_why = NULL;
    if (r->decision == PAWL_DECIDE_DAMAGE) {
        if (r->damage_file)
            pawl_slot_name(in->state.damage_file, r->damage_file);
        in->state.damage_offset = r->damage_offset;
        in->state.damage_position = r->damage_position;
        in->state.damage_why = r->why;
    }
}

/* --- opening --------------------------------------------------------------------------------- */

void pawl_inspect_close(struct pawl_inspect *in)
{
    if (!in)
        return;
    free(in->file);
    free(in->number);
    free(in);
}

static int list(struct pawl_inspect *in, char *text)
{
    struct pawl_recovery r = new_recovery(in);
    int rc = pawl_recovery_survey(&r);
    if (rc == PAWL_LOG_OK)
        rc = pawl_recovery_look(&r);
    if (rc == PAWL_LOG_OK) {
        take_state(in, &r);
        if (take_files(in, &r) != 0) {
            snprintf(r.text, sizeof r.text, "no memory");
            rc = PAWL_LOG_CANNOT;
        }
    }
    snprintf(text, PAWL_LOG_TEXT_BYTES, "%s", r.text);
    pawl_recovery_fini(&r);
    return rc;
}

int pawl_inspect_open(struct pawl_io *io, int dir, struct pawl_inspect **out,
                      char text[PAWL_LOG_TEXT_BYTES])
{
    *out = NULL;
    struct pawl_inspect *in = calloc(1, sizeof *in);
    if (!in) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "no memory");
        return PAWL_LOG_CANNOT;
    }
    in->io = io;
    in->options = (struct pawl_log_options){ .dir = dir, .read_only = true };
    int rc = pawl_log_load(io, &in->options, &in->id, &in->head, text);
    if (rc == PAWL_LOG_OK)
        rc = list(in, text);
    if (rc) {
        pawl_inspect_close(in);
        return rc;
    }
    memcpy(in->state.log_id, in->id.log_id, sizeof in->state.log_id);
    in->state.segment_bytes = in->id.segment_bytes;
    in->state.version = PAWL_LOG_VERSION;
    in->state.head_position = in->head.position;
    in->state.head_epoch = in->head.epoch;
    in->state.head_segment = in->head.segment;
    *out = in;
    return PAWL_LOG_OK;
}

const struct pawl_inspect_state *pawl_inspect_state(const struct pawl_inspect *in)
{
    return &in->state;
}

const struct pawl_inspect_file *pawl_inspect_file(const struct pawl_inspect *in, uint32_t i)
{
    return i < in->count ? &in->file[i] : NULL;
}

/* --- verifying ------------------------------------------------------------------------------- */

struct count {
    uint32_t number;
    uint64_t blocks, records, end, epoch_first, epoch_last;
};
struct counts {
    struct count *count;
    uint32_t used, capacity;
    bool no_memory;
};

static int count_block(void *ctx, uint32_t number, uint64_t offset,
                       const struct pawl_block_rec *block)
{
    struct counts *c = ctx;
    if (c->used == 0 || c->count[c->used - 1].number != number) {
        if (c->used == c->capacity) {
            c->capacity = c->capacity ? c->capacity * 2 : 64;
            struct count *more = realloc(c->count, c->capacity * sizeof *more);
            if (!more) {
                c->no_memory = true;
                return 1;
            }
            c->count = more;
        }
        c->count[c->used++] = (struct count){ .number = number, .epoch_first = block->epoch };
    }
    struct count *now = &c->count[c->used - 1];
    now->blocks++;
    now->records += block->count;
    now->end = offset + pawl_block_total(block->used_bytes);
    now->epoch_last = block->epoch;
    return 0;
}

#define TRIES_MAX 10

int pawl_inspect_verify(struct pawl_inspect *in, char text[PAWL_LOG_TEXT_BYTES])
{
    struct counts counts = { 0 };
    struct pawl_recovery r = { .moved = true };
    int rc = PAWL_LOG_CANNOT;
    for (unsigned i = 0; i < TRIES_MAX && r.moved; i++) {
        pawl_recovery_fini(&r);
        counts.used = 0;
        r = new_recovery(in);
        r.block = count_block;
        r.ctx = &counts;
        rc = pawl_recovery_run(&r);
    }
    snprintf(text, PAWL_LOG_TEXT_BYTES, "%s", r.text);
    take_state(in, &r);
    if (take_files(in, &r) != 0 || counts.no_memory) {
        snprintf(text, PAWL_LOG_TEXT_BYTES, "no memory");
        rc = PAWL_LOG_CANNOT;
    }
    for (uint32_t i = 0; i < in->count; i++) {
        for (uint32_t j = 0; j < counts.used; j++) {
            const struct count *c = &counts.count[j];
            if (c->number != in->number[i])
                continue;
            in->file[i].blocks = c->blocks;
            in->file[i].records = c->records;
            in->file[i].used_bytes = c->end;
            in->file[i].epoch_first = c->epoch_first;
            in->file[i].epoch_last = c->epoch_last;
        }
    }
    free(counts.count);
    pawl_recovery_fini(&r);
    return rc;
}

/* --- walking --------------------------------------------------------------------------------- */

struct walk {
    struct pawl_inspect *in;
    const struct pawl_inspect_visitor *visitor;
    uint64_t from, low, high;          /* hash of the last valid block */
    struct pawl_inspect_block stretch; /* of what is no block; bytes 0: none */
};

static int end_stretch(struct walk *w)
{
    if (w->stretch.bytes == 0)
        return 0;
    int rc = w->visitor->block ? w->visitor->block(w->visitor->ctx, &w->stretch) : 0;
    w->stretch.bytes = 0;
    return rc;
}

static int no_block(struct walk *w, const char *file, uint64_t offset, const char *verdict)
{
    if (w->stretch.bytes > 0 && w->stretch.verdict == verdict) {
        w->stretch.bytes += PAWL_LOG_PAGE;
        return 0;
    }
    int rc = end_stretch(w);
    w->stretch = (struct pawl_inspect_block){
        .file = file, .offset = offset, .bytes = PAWL_LOG_PAGE, .verdict = verdict
    };
    return rc;
}

static int one_block(struct walk *w, const char *file, uint64_t offset,
                     const struct pawl_block_rec *b)
{
    int rc = end_stretch(w);
    struct pawl_inspect_block out = {
        .file = file,
        .offset = offset,
        .bytes = pawl_block_total(b->used_bytes),
        .verdict = pawl_verdict_name(PAWL_VERDICT_VALID),
        .position = b->position,
        .epoch = b->epoch,
        .durable = b->durable,
        .oldest = b->oldest,
        .time_ns = b->time_ns,
        .boot_ns = b->boot_ns,
        .wall_ns = b->wall_ns,
        .used_bytes = b->used_bytes,
        .count = b->count,
        .marker = (b->top.flags & PAWL_BLOCK_MARKER) != 0,
        .clean = (b->top.flags & PAWL_BLOCK_CLEAN) != 0,
        .opening = (b->top.flags & PAWL_BLOCK_EPOCH) != 0,
        .chained = b->previous_low == w->low && b->previous_high == w->high,
    };
    w->low = b->top.hash_low;
    w->high = b->top.hash_high;
    if (b->position + out.bytes <= w->from)
        return rc;
    if (rc == 0 && w->visitor->block)
        rc = w->visitor->block(w->visitor->ctx, &out);
    struct pawl_record record;
    uint32_t at = PAWL_BLOCK_HEADER;
    while (rc == 0 && w->visitor->record && pawl_block_next(b, &at, &record) > 0)
        if (record.lsn >= w->from)
            rc = w->visitor->record(w->visitor->ctx, record.lsn, record.type, record.body,
                                    record.bytes);
    return rc;
}

static int walk_file(struct walk *w, struct pawl_reader *reader, const struct pawl_inspect_file *f)
{
    uint64_t step;
    for (uint64_t at = 0; at < w->in->id.segment_bytes; at += step) {
        const struct pawl_block_rec *block;
        enum pawl_verdict verdict;
        step = PAWL_LOG_PAGE;
        int rc = pawl_reader_block(reader, &w->in->id, at, &verdict, &block);
        if (rc)
            return rc;
        if (verdict == PAWL_VERDICT_VALID && block->position == f->position + at) {
            step = pawl_block_total(block->used_bytes);
            rc = one_block(w, f->name, at, block);
        } else if (verdict == PAWL_VERDICT_VALID) {
            rc = no_block(w, f->name, at, "an older block");
        } else {
            rc = no_block(w, f->name, at, pawl_verdict_name(verdict));
        }
        if (rc)
            return rc;
    }
    return end_stretch(w);
}

int pawl_inspect_walk(struct pawl_inspect *in, uint64_t from,
                      const struct pawl_inspect_visitor *visitor)
{
    struct walk w = { .in = in, .visitor = visitor, .from = from };
    struct pawl_reader reader;
    int rc = pawl_reader_init(&reader, in->io);
    for (uint32_t i = 0; i < in->count && rc == 0; i++) {
        const struct pawl_inspect_file *f = &in->file[i];
        if (f->use != PAWL_INSPECT_LIVE || f->position + in->id.segment_bytes <= from)
            continue;
        bool direct;
        int fd =
            in->io->ops->file_open(in->io, in->options.dir, f->name, O_RDONLY, 0, true, &direct);
        if (fd < 0) {
            rc = fd;
            break;
        }
        pawl_reader_turn(&reader, fd, f->bytes);
        rc = walk_file(&w, &reader, f);
        in->io->ops->file_close(in->io, fd);
    }
    pawl_reader_fini(&reader);
    return rc;
}
