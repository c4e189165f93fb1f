/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_CRASH_IMAGE_H
#define PAWL_TESTS_CRASH_IMAGE_H

/* From a recording: every disk that a power cut could have left (S6). For each point of the
 * recording: what was durable by then is there; of what was completed but not flushed, or in
 * flight, any subset of 512-byte sectors is there, the others have their old content, zeros or
 * garbage; of the unflushed changes of names any. All subsets where there are at most 12
 * such sectors, else a sample with the shapes that have hurt: none, all, all but one, one, a
 * beginning, an end, random. */

#include "io/record.h"
#include "io/sim.h"

struct crash_images {
    const struct pawl_io_event *event;
    uint32_t event_count;
    uint64_t seed;
    uint32_t sample; /* images at a point with more than 12 sectors */
    bool all_subsets;
    /* Gets one image; `note`: the last NOTE before the point. False stops. */
    bool (*each)(void *ctx, struct pawl_io *image, uint32_t point, uint64_t note, uint64_t number);
    void *ctx;
    /* counted: */
    uint64_t images, points, sectors_max;
};

/* False if `each` stopped it. */
bool crash_images_run(struct crash_images *images);

#endif
