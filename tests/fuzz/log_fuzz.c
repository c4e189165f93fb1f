/* SPDX-License-Identifier: MIT */
/* S15: the reader of the log against any bytes. The input is a list of patches to the files of a
 * small whole log; its first byte says whether the hashes are made right again afterwards (so that
 * senseless contents get past them), whether blocks are moved, and whether the log is opened for
 * writing. Whatever comes: no crash, no assertion, no read out of bounds; and as long as the hashes
 * are left alone, never a record with other bytes. Without libFuzzer it replays its corpus and a
 * number of random inputs: log_fuzz [FILE|DIR …]. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prng.h"
#include "io/sim.h"
#include "lib/log_rig.h"
#include "log/block.h"
#include "log/inspect.h"

#define INPUT_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const file_names[] = { "id", "head", "000001.seg", "000002.seg", "000003.seg" };
#define FILES (sizeof file_names / sizeof file_names[0])

static struct pawl_io *whole;
static struct log_rig maker;

static void make_whole(void)
{
    whole = pawl_io_sim_create(1);
    rig_init(&maker, whole, PAWL_IO_SIM_DIR);
    maker.options.max_bytes = 4 * 65536;
    if (rig_open(&maker) != PAWL_LOG_OK || !rig_fill(&maker, 4, 100, 1) ||
        !rig_fill(&maker, 6, 3000, 2) || !rig_fill(&maker, 1, 20000, 1) ||
        !rig_fill(&maker, 6, 30, 3))
        abort();
    rig_settle(&maker);
    rig_close(&maker);
}

enum { FIX = 1, WRITE = 2, MOVE = 4 };

static const uint8_t *take(const uint8_t **data, size_t *size, size_t bytes)
{
    if (*size < bytes)
        return NULL;
    const uint8_t *at = *data;
    *data += bytes;
    *size -= bytes;
    return at;
}

/* file, place / 4 (two bytes), length, bytes; MOVE: from file, from page, to file, to page. */
static void patch(struct pawl_io *io, uint8_t how, const uint8_t *data, size_t size)
{
    const uint8_t *head;
    while ((head = take(&data, &size, 4)) != NULL) {
        uint64_t bytes, other;
        uint8_t *to = pawl_io_sim_file(io, file_names[head[0] % FILES], &bytes);
        if (how & MOVE) {
            uint8_t *from = pawl_io_sim_file(io, file_names[head[2] % FILES], &other);
            if (to && from)
                memcpy(to + head[1] * 4096u % bytes, from + head[3] * 4096u % other, 4096);
            continue;
        }
        uint64_t at = (head[1] | (uint64_t)head[2] << 8) * 4;
        const uint8_t *with = take(&data, &size, head[3] < size ? head[3] : size);
        for (unsigned i = 0; to && with && i < head[3] && with + i < data; i++)
            to[(at + i) % bytes] = with[i];
    }
}

static void rehash(uint8_t *at, uint64_t bytes, uint64_t seed)
{
    struct pawl_hash128 h = pawl_hash128(at + 16, bytes - 16, seed);
    memcpy(at, &h.low, 8);
    memcpy(at + 8, &h.high, 8);
}

/* Every page that says it is ours gets the hash that it should have. */
static void fix(struct pawl_io *io)
{
    struct pawl_log_identity id;
    pawl_identity_init(&id, maker.info.log_id, 65536);
    for (unsigned f = 0; f < FILES; f++) {
        uint64_t bytes;
        uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes);
        for (uint64_t at = 0; p && at + 4096 <= bytes; at += 4096) {
            struct pawl_log_top_rec *top = (void *)(p + at);
            struct pawl_block_rec *block = (void *)(p + at);
            uint64_t hashed = top->header_bytes;
            if (top->magic == PAWL_LOG_MAGIC_BLOCK)
                hashed = PAWL_BLOCK_HEADER + (uint64_t)block->used_bytes;
            if (hashed > 16 && hashed <= bytes - at)
                rehash(p + at, hashed,
                       top->magic == PAWL_LOG_MAGIC_ID ? PAWL_LOG_ID_SEED : id.seed);
        }
    }
}

static int any_record(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    uint8_t sum = 0;
    for (uint32_t i = 0; i < bytes; i++)
        sum ^= ((const uint8_t *)body)[i];
    *(uint8_t *)ctx ^= sum;
    return 0;
}

static void look(struct pawl_io *io)
{
    struct pawl_inspect *in;
    char text[PAWL_LOG_TEXT_BYTES];
    uint8_t sum = 0;
    if (pawl_inspect_open(io, PAWL_IO_SIM_DIR, &in, text) != PAWL_LOG_OK)
        return;
    (void)pawl_inspect_verify(in, text);
    struct pawl_inspect_visitor v = { .ctx = &sum, .record = any_record };
    (void)pawl_inspect_walk(in, 0, &v);
    pawl_inspect_close(in);
}

/* Opened without a word about its records: they may be anything. */
static void open_fixed(struct pawl_io *io)
{
    struct pawl_log_options o = maker.options;
    struct pawl_log_info info;
    struct pawl_log *log;
    char text[PAWL_LOG_TEXT_BYTES];
    uint8_t sum = 0;
    for (unsigned i = 0; i < 2; i++) {
        if (pawl_log_open(io, &o, any_record, &sum, &log, &info, text) != PAWL_LOG_OK)
            return;
        uint64_t lsn;
        if (pawl_log_room(log) >= 100 + PAWL_LOG_RECORD_HEAD)
            memset(pawl_log_append(log, 1, 100, &lsn), 1, 100);
        for (unsigned turn = 0; turn < 4; turn++) {
            pawl_log_seal(log, info.time_ns, 1, 1);
            (void)io->ops->wait(io, 1000000);
            pawl_log_tend(log, turn);
        }
        pawl_log_close(log);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!whole)
        make_whole();
    const uint8_t *how = take(&data, &size, 1);
    if (!how || size > INPUT_MAX)
        return 0;
    struct pawl_io *io = pawl_io_sim_clone(whole, 1);
    patch(io, *how, data, size);
    if (*how & FIX)
        fix(io);
    look(io);
    if (*how & FIX) {
        open_fixed(io);
    } else {
        struct log_rig rig;
        rig_copy(&rig, &maker, io, PAWL_IO_SIM_DIR);
        rig.options.read_only = (*how & WRITE) == 0;
        if (rig_open(&rig) == PAWL_LOG_OK && rig.wrong)
            abort(); /* a record with other bytes */
        rig_fini(&rig);
    }
    io->ops->destroy(io);
    return 0;
}

#ifndef PAWL_FUZZ
static unsigned inputs;

static int run_file(const char *path)
{
    static uint8_t data[INPUT_MAX + 1];
    FILE *f = fopen(path, "rb");
    if (!f)
        return 1;
    size_t size = fread(data, 1, sizeof data, f);
    (void)fclose(f);
    inputs++;
    return LLVMFuzzerTestOneInput(data, size);
}

static int run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 1;
    if (!S_ISDIR(st.st_mode))
        return run_file(path);
    DIR *d = opendir(path);
    struct dirent *e;
    int rc = d ? 0 : 1;
    while (d && (e = readdir(d)) != NULL) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            rc |= run_file(name);
    }
    if (d)
        closedir(d);
    return rc;
}

int main(int argc, char **argv)
{
    alarm(300);
    int rc = 0;
    for (int i = 1; i < argc; i++)
        rc |= run_path(argv[i]);
    if (argc == 1)
        rc = run_path("tests/fuzz/corpus/log_fuzz");
    if (rc) {
        fprintf(stderr, "the corpus cannot be read\n");
        return 1;
    }
    const char *s = getenv("PAWL_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 0) : 1;
    struct pawl_prng prng = { seed };
    for (unsigned i = 0; i < 2000; i++) {
        uint8_t data[64];
        size_t size = 1 + pawl_prng_below(&prng, sizeof data);
        for (size_t j = 0; j < size; j++)
            data[j] = (uint8_t)pawl_prng_next(&prng);
        for (size_t j = 1; j + 3 < size; j += 12) { /* mostly at the pages' tops */
            data[j + 1] = (uint8_t)pawl_prng_below(&prng, 34);
            data[j + 2] = (uint8_t)(pawl_prng_below(&prng, 16) * 4);
            data[j + 3] = 8;
        }
        (void)LLVMFuzzerTestOneInput(data, size);
    }
    printf("%u inputs of the corpus, 2000 random ones, seed %" PRIu64 "\n", inputs, seed);
    rig_fini(&maker);
    whole->ops->destroy(whole);
    return inputs > 0 ? 0 : 1;
}
#endif
