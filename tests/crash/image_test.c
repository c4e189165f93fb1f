/* SPDX-License-Identifier: MIT */
/* S6: the log lives through a script on a recorded disk; then every disk that a power cut could
 * have left is recovered twice, written to, cut again and recovered. PAWL_IMAGES=20000 (or
 * PAWL_CRASH_IMAGES) for the long run, PAWL_SEED for another sample. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "crash/crash_image.h"
#include "lib/log_rig.h"

static void note_acked(struct log_rig *rig) { pawl_io_record_note(rig->io, rig->acked); }

struct check {
    const struct log_rig *main;
    uint64_t cuts, recovery_cuts, empty;
    uint64_t only; /* image to look at alone, or UINT64_MAX */
};

static bool complain(const struct log_rig *rig, uint32_t point, uint64_t number, uint64_t acked,
                     const char *when, const char *what)
{
    fprintf(stderr,
            "image %" PRIu64 " at point %u, %" PRIu64 " acknowledged: %s: %s (result %d: %s)\n",
            number, point, acked, when, what, rig->result, rig->text);
    return false;
}

/* Half of the images are cut once more while they are recovered. */
static void cut_in_recovery(struct log_rig *rig, struct check *check, uint64_t number)
{
    struct pawl_io *io = rig->io;
    pawl_io_sim_fail_at(io, PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, 1 + number / 2 % 8, -EIO, true);
    int rc = rig_open(rig);
    check->recovery_cuts += rc != PAWL_LOG_OK;
    pawl_io_sim_crash(io, number);
    rig_close(rig);
    pawl_io_sim_restart(io);
}

static bool each(void *ctx, struct pawl_io *image, uint32_t point, uint64_t acked, uint64_t number)
{
    struct check *check = ctx;
    if (check->only != UINT64_MAX && check->only != number)
        return true;
    struct log_rig rig;
    rig_copy(&rig, check->main, image, PAWL_IO_SIM_DIR);
    rig.acked = acked;
    bool good = true;
    const char *missing;
    if (number % 2)
        cut_in_recovery(&rig, check, number);

    rig.acked = acked;
    rig_open(&rig);
    missing = rig_missing(&rig, acked);
    if (missing)
        good = complain(&rig, point, number, acked, "first recovery", missing);
    check->cuts += rig.info.cut_bytes > 0;
    check->empty += rig.replayed_count == 0;
    uint64_t count = rig.replayed_count, hash = rig.replay_hash, epoch = rig.info.epoch;
    rig_close(&rig);

    if (good) {
        rig_open(&rig);
        missing = rig_missing(&rig, acked);
        if (missing || rig.replayed_count != count || rig.replay_hash != hash)
            good = complain(&rig, point, number, acked, "second recovery",
                            missing ? missing : "it gave another state");
        else if (rig.info.epoch <= epoch)
            good = complain(&rig, point, number, acked, "second recovery", "the epoch is not new");
        else if (rig.info.cut_bytes)
            good = complain(&rig, point, number, acked, "second recovery", "it cut again");
        else if (!rig_fill(&rig, 3, 1500, 1))
            good = complain(&rig, point, number, acked, "writing on", "it failed");
    }
    uint64_t now_acked = rig.acked;
    if (good) {
        pawl_io_sim_crash(image, number);
        rig_close(&rig);
        pawl_io_sim_restart(image);
        rig_open(&rig);
        missing = rig_missing(&rig, now_acked);
        if (missing)
            good = complain(&rig, point, number, now_acked, "after writing on", missing);
    }
    rig_fini(&rig);
    return good;
}

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 0) : otherwise;
}

int main(void)
{
    alarm(3000);
    uint64_t wanted = from_env("PAWL_CRASH_IMAGES", from_env("PAWL_IMAGES", 3000)),
             seed = from_env("PAWL_SEED", 1);
    struct pawl_io *disk = pawl_io_sim_create(seed);
    struct pawl_io *io = pawl_io_record_create(disk, PAWL_IO_SIM_DIR);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.max_bytes = 7 * 65536;
    rig_note = note_acked;
    for (unsigned life = 0; life < 2; life++) {
        if (rig_open(&rig) != PAWL_LOG_OK || !rig_script(&rig)) {
            fprintf(stderr, "the recorded run failed: %s\n", rig.text);
            return 1;
        }
        rig_close(&rig);
    }
    rig_note = NULL;

    struct check check = { .main = &rig, .only = from_env("PAWL_ONLY", UINT64_MAX) };
    struct crash_images images = { .seed = seed, .each = each, .ctx = &check };
    images.event = pawl_io_record_events(io, &images.event_count);
    images.sample = (uint32_t)(wanted / images.event_count + 7);
    images.all_subsets = wanted >= 20000;
    bool good = crash_images_run(&images);
    printf("seed %" PRIu64 ": %" PRIu64 " images at %" PRIu64 " points of %u events, up to %" PRIu64
           " unflushed sectors; %" PRIu64 " torn tails cut, %" PRIu64 " recoveries cut, %" PRIu64
           " empty: %s\n",
           seed, images.images, images.points, images.event_count, images.sectors_max, check.cuts,
           check.recovery_cuts, check.empty, good ? "ok" : "FAILED");
    rig_fini(&rig);
    io->ops->destroy(io);
    disk->ops->destroy(disk);
    /* Faults that never happened prove nothing. */
    if (check.only == UINT64_MAX && good && (check.cuts == 0 || check.recovery_cuts == 0)) {
        fprintf(stderr, "no torn tail or no cut recovery was met\n");
        return 1;
    }
    return good ? 0 : 1;
}
