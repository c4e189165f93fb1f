/* SPDX-License-Identifier: MIT */
#include "crash/crash_image.h"

#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"

#define ALL_SUBSETS_MAX 12u

struct shape {
    struct pawl_prng prng;
    uint64_t sectors, names;
    unsigned kind;
    uint64_t mask, at; /* all subsets: the mask; else the sector that is different */
    uint32_t keep_ppm;
    unsigned other; /* what becomes of those not kept: old, zero, garbage, or mixed */
};

enum { SUBSET, NONE, ALL, ALL_BUT_ONE, ONE, BEGINNING, END, RANDOM, SHAPES };

static enum pawl_io_sim_fate lost(struct shape *s)
{
    switch (s->other < 3 ? s->other : pawl_prng_below(&s->prng, 3)) {
    case 0:
        return PAWL_IO_SIM_OLD;
    case 1:
        return PAWL_IO_SIM_ZERO;
    default:
        return PAWL_IO_SIM_GARBAGE;
    }
}

static enum pawl_io_sim_fate sector_fate(void *ctx, uint64_t index)
{
    struct shape *s = ctx;
    bool keep = false;
    switch (s->kind) {
    case SUBSET:
        keep = s->mask >> index & 1;
        break;
    case NONE:
        break;
    case ALL:
        keep = true;
        break;
    case ALL_BUT_ONE:
        keep = index != s->at;
        break;
    case ONE:
        keep = index == s->at;
        break;
    case BEGINNING:
        keep = index < s->at;
        break;
    case END:
        keep = index >= s->at;
        break;
    default:
        keep = pawl_prng_below(&s->prng, 1000000) < s->keep_ppm;
        break;
    }
    return keep ? PAWL_IO_SIM_KEEP : lost(s);
}

static bool name_fate(void *ctx, uint64_t index)
{
    struct shape *s = ctx;
    return s->names >> index % 64 & 1;
}

/* --- the disk at a point --------------------------------------------------------------------- */

/* What a finished operation did. */
static void apply_done(struct pawl_io *disk, const struct pawl_io_event *e, int result)
{
    switch (e->kind) {
    case PAWL_IO_EVENT_WRITE:
        pawl_io_sim_do_write(disk, e->file, e->data, e->bytes, e->offset);
        if (e->durable && result == 0)
            pawl_io_sim_do_flush(disk, e->file, e->offset, e->bytes);
        break;
    case PAWL_IO_EVENT_FLUSH:
        if (result == 0)
            pawl_io_sim_do_flush(disk, e->file, 0, UINT64_MAX / 2);
        break;
    case PAWL_IO_EVENT_FLUSH_DIR:
        if (result == 0)
            pawl_io_sim_do_flush_names(disk);
        break;
    default:
        PAWL_ASSERT(!"nothing that has an end");
    }
}

static void apply(struct crash_images *c, struct pawl_io *disk, const struct pawl_io_event *e)
{
    int rc = 0;
    switch (e->kind) {
    case PAWL_IO_EVENT_DONE:
        apply_done(disk, &c->event[e->begun], e->result);
        break;
    case PAWL_IO_EVENT_CREATE:
        pawl_io_sim_do_create(disk, e->name);
        break;
    case PAWL_IO_EVENT_RENAME:
        rc = disk->ops->file_rename(disk, PAWL_IO_SIM_DIR, e->name, e->to);
        break;
    case PAWL_IO_EVENT_UNLINK:
        rc = disk->ops->file_unlink(disk, PAWL_IO_SIM_DIR, e->name);
        break;
    default:
        break; /* begun, or a note */
    }
    PAWL_ASSERT_REL(rc, ==, 0);
}

/* Writes begun before `point` and not over by then may have happened in part. */
static void apply_in_flight(struct crash_images *c, struct pawl_io *disk, uint32_t point)
{
    uint32_t from = point > 256 ? point - 256 : 0;
    for (uint32_t i = from; i < point; i++) {
        const struct pawl_io_event *e = &c->event[i];
        if (e->kind != PAWL_IO_EVENT_WRITE)
            continue;
        bool over = false;
        for (uint32_t j = i + 1; j < point && !over; j++)
            over = c->event[j].kind == PAWL_IO_EVENT_DONE && c->event[j].begun == i;
        if (!over)
            pawl_io_sim_do_write(disk, e->file, e->data, e->bytes, e->offset);
    }
}

static bool one_image(struct crash_images *c, const struct pawl_io *at_point, struct shape *shape,
                      uint32_t point, uint64_t note)
{
    struct pawl_io *image = pawl_io_sim_clone(at_point, c->seed + c->images);
    struct pawl_io_sim_choice choice = { .ctx = shape, .sector = sector_fate, .name = name_fate };
    pawl_io_sim_crash_by(image, &choice);
    pawl_io_sim_restart(image);
    bool on = c->each(c->ctx, image, point, note, c->images++);
    image->ops->destroy(image);
    return on;
}

static bool images_at(struct crash_images *c, const struct pawl_io *disk, uint32_t point,
                      uint64_t note)
{
    struct pawl_io *at_point = pawl_io_sim_clone(disk, 0);
    apply_in_flight(c, at_point, point);
    uint64_t sectors = pawl_io_sim_unflushed(at_point);
    c->sectors_max = pawl_max_u64(c->sectors_max, sectors);
    c->points++;
    struct pawl_prng prng = { c->seed * 1000003u + point };
    bool subsets = c->all_subsets && sectors <= ALL_SUBSETS_MAX;
    uint64_t count = subsets ? 1ull << sectors : c->sample;
    bool on = true;
    for (uint64_t i = 0; i < count && on; i++) {
        struct shape s = { .prng = { pawl_prng_next(&prng) },
                           .sectors = sectors,
                           .names = pawl_prng_next(&prng),
                           .kind = subsets ? SUBSET : (unsigned)(1 + i % (SHAPES - 1)),
                           .mask = i,
                           .other = (unsigned)pawl_prng_below(&prng, 4) };
        s.at = sectors ? pawl_prng_below(&prng, sectors) : 0;
        s.keep_ppm = (uint32_t)pawl_prng_below(&prng, 1000001);
        on = one_image(c, at_point, &s, point, note);
    }
    at_point->ops->destroy(at_point);
    return on;
}

bool crash_images_run(struct crash_images *c)
{
    struct pawl_io *disk = pawl_io_sim_create(c->seed);
    uint64_t note = 0;
    bool on = true;
    for (uint32_t point = 0; point <= c->event_count && on; point++) {
        if (point > 0) {
            const struct pawl_io_event *e = &c->event[point - 1];
            if (e->kind == PAWL_IO_EVENT_NOTE) {
                note = e->value;
                continue; /* the disk is the same; the next point promises more */
            }
            apply(c, disk, e);
        }
        /* Notes that follow at once belong to this disk: the caller knew by then. */
        uint64_t promised = note;
        for (uint32_t i = point; i < c->event_count && c->event[i].kind == PAWL_IO_EVENT_NOTE; i++)
            promised = c->event[i].value;
        on = images_at(c, disk, point, promised);
    }
    disk->ops->destroy(disk);
    return on;
}
