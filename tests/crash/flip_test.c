/* SPDX-License-Identifier: MIT */
/* S9: a 64 KiB log and the files around it, with every single bit flipped: it opens with all that
 * was acknowledged, or it refuses. Never a loss without a word, never other bytes, never a crash.
 * A stride by default; PAWL_FLIPS=all (or PAWL_CRASH_FULL=1) for each of the 524,288 bits and those
 * of all other files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/sim.h"
#include "lib/log_rig.h"

static const char *const file_names[] = { "id", "head", "000001.seg", "000002.seg" };

int main(void)
{
    const char *how = getenv("PAWL_FLIPS");
    bool all = (how && strcmp(how, "all") == 0) || getenv("PAWL_CRASH_FULL");
    alarm(all ? 7000 : 1200); /* all take twelve minutes on a quick machine */
    uint64_t stride = all ? 1 : 101;
    struct pawl_io *io = pawl_io_sim_create(1);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.block_bytes = 8192;
    /* Fills most of one segment of 64 KiB, with small and large blocks, and stops
     * cleanly, so that every block of it is vouched for. */
    bool made = rig_open(&rig) == PAWL_LOG_OK && rig_fill(&rig, 3, 700, 1) &&
                rig_fill(&rig, 8, 900, 4) && rig_fill(&rig, 1, 9000, 1) && rig_fill(&rig, 2, 60, 2);
    if (made) {
        pawl_log_mark(rig.log, true, 1, 1, 1);
        made = rig_flush(&rig);
    }
    rig_settle(&rig);
    if (!made || pawl_log_newest_segment(rig.log) != 0) {
        fprintf(stderr, "the log to flip could not be made\n");
        return 1;
    }
    rig_close(&rig);
    rig.options.read_only = true;
    uint64_t acked = rig.acked, flips = 0, kept = 0, refused = 0, digest = pawl_io_sim_digest(io);

    for (unsigned f = 0; f < sizeof file_names / sizeof file_names[0]; f++) {
        uint64_t bytes;
        uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes);
        if (!p)
            return 1;
        for (uint64_t bit = 0; bit < bytes * 8; bit += stride) {
            p[bit / 8] ^= (uint8_t)(1u << bit % 8);
            int rc = rig_open(&rig);
            const char *missing = rc == PAWL_LOG_OK ? rig_missing(&rig, acked) : NULL;
            bool wrong = missing || rig.wrong || (rc != PAWL_LOG_OK && rig.text[0] == '\0') ||
                         (rc != PAWL_LOG_OK && rc != PAWL_LOG_DAMAGE);
            if (wrong) {
                fprintf(stderr, "bit %" PRIu64 " of %s: result %d, %s%s\n", bit, file_names[f], rc,
                        missing ? missing : "", rig.text);
                return 1;
            }
            kept += rc == PAWL_LOG_OK;
            refused += rc != PAWL_LOG_OK;
            flips++;
            rig_close(&rig);
            p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    if (pawl_io_sim_digest(io) != digest) {
        fprintf(stderr, "a read-only opening changed a file\n");
        return 1;
    }
    printf("%" PRIu64 " flips: %" PRIu64 " refused, %" PRIu64 " kept all\n", flips, refused, kept);
    rig_fini(&rig);
    io->ops->destroy(io);
    return refused > flips / 10 && kept > 0 ? 0 : 1;
}
