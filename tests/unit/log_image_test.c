/* SPDX-License-Identifier: MIT */
/* A log of every released format version is kept in tests/unit/images/ and must open with all its
 * records, whatever the current version is. PAWL_MAKE_IMAGE=FILE writes one of the version that is
 * compiled in, when a new one is made. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/sim.h"
#include "lib/log_rig.h"
#include "log/block.h"

/* A file of these: every page that is not zero. */
struct page {
    char name[16];
    uint64_t file_bytes, offset;
    uint8_t bytes[4096];
};

static const char *const names[] = { "id",         "head",       "000001.seg",
                                     "000002.seg", "000003.seg", "000004.seg" };
#define NAMES (sizeof names / sizeof names[0])

/* Two lives, a reused slot, a large record, a marker, and a torn tail. */
static int make(const char *path)
{
    struct pawl_io *io = pawl_io_sim_create(1);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.max_bytes = 4 * 65536;
    rig.options.block_bytes = 8192;
    bool good = rig_open(&rig) == PAWL_LOG_OK && rig_fill(&rig, 12, 3000, 2);
    while (good && pawl_log_oldest_segment(rig.log) < pawl_log_newest_segment(rig.log))
        pawl_log_release_oldest(rig.log);
    good = good && rig_fill(&rig, 1, 20000, 1) && rig_fill(&rig, 3, 10, 1);
    pawl_io_sim_kill(io, 5);
    rig_close(&rig);
    pawl_io_sim_restart(io);
    good = good && rig_open(&rig) == PAWL_LOG_OK && rig_fill(&rig, 2, 100, 1);
    FILE *f = good ? fopen(path, "wb") : NULL;
    for (unsigned i = 0; f && i < NAMES; i++) {
        struct page page = { 0 };
        const uint8_t *p = pawl_io_sim_file(io, names[i], &page.file_bytes);
        snprintf(page.name, sizeof page.name, "%s", names[i]);
        for (page.offset = 0; p && page.offset < page.file_bytes; page.offset += 4096) {
            memcpy(page.bytes, p + page.offset, 4096);
            if (!pawl_page_zero(page.bytes))
                good &= fwrite(&page, sizeof page, 1, f) == 1;
        }
    }
    good = f && fclose(f) == 0 && good;
    printf("records %" PRIu64 " to %" PRIu64 "\n", rig.replayed_first, rig.next - 1);
    rig_fini(&rig);
    io->ops->destroy(io);
    return good ? 0 : 1;
}

static bool load(struct pawl_io *io, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    struct page page;
    bool good = true;
    uint64_t bytes;
    while (good && fread(&page, sizeof page, 1, f) == 1) {
        page.name[15] = '\0';
        uint8_t *p = pawl_io_sim_file(io, page.name, &bytes);
        if (!p) {
            p = calloc(1, page.file_bytes);
            pawl_io_sim_put(io, page.name, p, page.file_bytes);
            free(p);
            p = pawl_io_sim_file(io, page.name, &bytes);
        }
        good = p && page.offset + 4096 <= bytes;
        if (good)
            memcpy(p + page.offset, page.bytes, 4096);
    }
    (void)fclose(f);
    return good;
}

static bool opens(const char *path, uint64_t first, uint64_t last)
{
    struct pawl_io *io = pawl_io_sim_create(1);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.max_bytes = 8 * 65536;
    bool good = load(io, path) && rig_open(&rig) == PAWL_LOG_OK && !rig.wrong &&
                rig.replayed_first == first && rig.next == last + 1 && rig.info.epoch == 3;
    if (good)
        good = rig_fill(&rig, 30, 2000, 3);
    uint64_t acked = rig.acked;
    rig_close(&rig);
    good = good && rig_open(&rig) == PAWL_LOG_OK && !rig_missing(&rig, acked);
    if (!good)
        fprintf(stderr, "%s: records %" PRIu64 " to %" PRIu64 ", epoch %" PRIu64 ": %s\n", path,
                rig.replayed_first, rig.next - 1, rig.info.epoch, rig.text);
    rig_fini(&rig);
    io->ops->destroy(io);
    return good;
}

int main(void)
{
    alarm(60);
    const char *to = getenv("PAWL_MAKE_IMAGE");
    if (to)
        return make(to);
    return opens("tests/unit/images/log-v1.img", 10, 17) ? 0 : 1;
}
