/* SPDX-License-Identifier: MIT */
/* Recovery: the decision table over all evidence, and every kind of damage and tear against it.
 * The rule of all damage tests: the log opens with all that was acknowledged, or it refuses and
 * changes nothing. PAWL_FLIPS=all takes every length instead of a stride. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/prng.h"
#include "io/sim.h"
#include "lib/log_rig.h"
#include "log/recovery.h"

/* --- the table ------------------------------------------------------------------------------- */

/* Written from hazards 3.3, not from the table. */
static enum pawl_decision expected(uint32_t ev)
{
    if (ev & PAWL_EV_VERSION)
        return PAWL_DECIDE_VERSION;
    if (ev & PAWL_EV_FOLLOWED)
        return ev & PAWL_EV_LINKS ? PAWL_DECIDE_NEXT : PAWL_DECIDE_DAMAGE;
    bool was_durable = ev & (PAWL_EV_LINKS | PAWL_EV_HEAD_BEYOND | PAWL_EV_LATER_VOUCHES |
                             PAWL_EV_LATER_EPOCH | PAWL_EV_MISPLACED | PAWL_EV_UNLINKED);
    if (was_durable || (ev & PAWL_EV_UNREADABLE))
        return PAWL_DECIDE_DAMAGE;
    return ev ? PAWL_DECIDE_CUT : PAWL_DECIDE_END;
}

static void every_evidence_has_its_decision(void **state)
{
    bool used[32] = { false };
    assert_true(pawl_decision_rows <= PAWL_COUNT(used));
    for (uint32_t ev = 0; ev <= PAWL_EVIDENCE_ALL; ev++) {
        const struct pawl_decision_row *row = pawl_decide(ev);
        if (row->decision != expected(ev))
            fail_msg("evidence %#x: decided %d, expected %d", ev, row->decision, expected(ev));
        used[row - pawl_decision_table] = true;
    }
    for (unsigned i = 0; i < pawl_decision_rows; i++)
        assert_true(used[i]); /* no row is dead */
}

/* --- a log to damage ------------------------------------------------------------------------- */

static bool all_lengths(void)
{
    const char *s = getenv("PAWL_FLIPS");
    return s && strcmp(s, "all") == 0;
}

struct golden {
    struct pawl_io *io;
    struct log_rig rig;
};

static void golden_make(struct golden *g, bool clean)
{
    g->io = pawl_io_sim_create(42);
    rig_init(&g->rig, g->io, PAWL_IO_SIM_DIR);
    g->rig.options.max_bytes = 7 * 65536;
    assert_int_equal(rig_open(&g->rig), PAWL_LOG_OK);
    assert_true(rig_script(&g->rig));
    if (!clean)
        assert_true(rig_fill(&g->rig, 3, 500, 1));
    rig_settle(&g->rig);
    rig_close(&g->rig);
}

static void golden_fini(struct golden *g)
{
    rig_fini(&g->rig);
    g->io->ops->destroy(g->io);
}

enum outcome { KEPT, REFUSED };

/* Opens a damaged copy: all acknowledged there, or refused with a text and nothing changed. */
static enum outcome judge(struct pawl_io *io, const struct log_rig *main, uint64_t acked,
                          const char *what, uint64_t at)
{
    struct log_rig rig;
    rig_copy(&rig, main, io, PAWL_IO_SIM_DIR);
    uint64_t before = pawl_io_sim_digest(io);
    enum outcome outcome = KEPT;
    if (rig_open(&rig) == PAWL_LOG_OK) {
        const char *missing = rig_missing(&rig, acked);
        if (missing)
            fail_msg("%s at %" PRIu64 ": opened, but %s", what, at, missing);
        if (!rig_fill(&rig, 2, 3000, 1))
            fail_msg("%s at %" PRIu64 ": opened, but cannot write", what, at);
        acked = rig.acked;
        rig_close(&rig);
        rig_open(&rig);
        missing = rig_missing(&rig, acked);
        if (missing)
            fail_msg("%s at %" PRIu64 ": after writing on, %s (%s)", what, at, missing, rig.text);
    } else {
        outcome = REFUSED;
        if (rig.text[0] == '\0' || rig.log)
            fail_msg("%s at %" PRIu64 ": refused without a word", what, at);
        if (pawl_io_sim_digest(io) != before)
            fail_msg("%s at %" PRIu64 ": refused, but changed something", what, at);
    }
    rig_fini(&rig);
    return outcome;
}

static const char *const file_names[] = { "id",         "head",       "000001.seg",
                                          "000002.seg", "000003.seg", "000004.seg",
                                          "000005.seg", "000006.seg", "000007.seg" };

static struct pawl_io *copy_of(struct golden *g) { return pawl_io_sim_clone(g->io, 1); }

/* --- S10: whole pages and files -------------------------------------------------------------- */

static void put_page(uint8_t *file, uint64_t at, const uint8_t *page)
{
    memcpy(file + at, page, 4096);
}

static void pages_zeroed_or_spoiled(void **state)
{
    for (unsigned clean = 0; clean < 2; clean++) {
        struct golden g;
        golden_make(&g, clean);
        unsigned refused = 0, kept = 0;
        for (unsigned f = 0; f < PAWL_COUNT(file_names); f++) {
            uint64_t bytes;
            if (!pawl_io_sim_file(g.io, file_names[f], &bytes))
                continue;
            for (uint64_t at = 0; at < bytes; at += 4096) {
                for (unsigned how = 0; how < 4; how++) {
                    struct pawl_io *io = copy_of(&g);
                    uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes), page[4096];
                    struct pawl_prng prng = { at + how };
                    memset(page, 0, sizeof page);
                    if (how == 1)
                        for (unsigned i = 0; i < sizeof page; i++)
                            page[i] = (uint8_t)pawl_prng_next(&prng);
                    if (how == 2) /* a copy of the page before; of the last one for the first */
                        memcpy(page, p + (at ? at - 4096 : bytes - 4096), sizeof page);
                    if (how == 3) { /* swapped with the next */
                        uint64_t next = at + 4096 < bytes ? at + 4096 : 0;
                        memcpy(page, p + next, sizeof page);
                        put_page(p, next, p + at);
                    }
                    put_page(p, at, page);
                    /* Without a clean stop the last block has nothing that vouches for it. */
                    uint64_t acked = g.rig.acked - (clean ? 0 : 1);
                    if (judge(io, &g.rig, acked, file_names[f], at) == REFUSED)
                        refused++;
                    else
                        kept++;
                    io->ops->destroy(io);
                }
            }
        }
        assert_true(refused > 20 && kept > 20);
        print_message("clean %u: %u refused, %u kept\n", clean, refused, kept);
        golden_fini(&g);
    }
}

static void files_removed_cut_copied_and_swapped(void **state)
{
    struct golden g;
    golden_make(&g, true);
    unsigned refused = 0;
    for (unsigned f = 0; f < PAWL_COUNT(file_names); f++) {
        uint64_t bytes, other_bytes;
        if (!pawl_io_sim_file(g.io, file_names[f], &bytes))
            continue;
        struct pawl_io *io = copy_of(&g);
        pawl_io_sim_put(io, file_names[f], NULL, 0);
        refused += judge(io, &g.rig, g.rig.acked, "removed", f) == REFUSED;
        io->ops->destroy(io);

        io = copy_of(&g);
        pawl_io_sim_put(io, file_names[f], "", 0);
        refused += judge(io, &g.rig, g.rig.acked, "emptied", f) == REFUSED;
        io->ops->destroy(io);

        for (uint64_t at = 512; at < bytes; at += at < 8192 ? 512 : 4096) {
            io = copy_of(&g);
            uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes);
            uint8_t *part = malloc(at);
            memcpy(part, p, at);
            pawl_io_sim_put(io, file_names[f], part, at);
            free(part);
            refused += judge(io, &g.rig, g.rig.acked, "cut short", f * 1000000 + at) == REFUSED;
            io->ops->destroy(io);
        }
        for (unsigned o = 0; o < PAWL_COUNT(file_names); o++) {
            if (o == f || !pawl_io_sim_file(g.io, file_names[o], &other_bytes))
                continue;
            io = copy_of(&g);
            uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes);
            uint8_t *mine = malloc(bytes);
            memcpy(mine, p, bytes);
            p = pawl_io_sim_file(io, file_names[o], &other_bytes);
            uint8_t *theirs = malloc(other_bytes);
            memcpy(theirs, p, other_bytes);
            pawl_io_sim_put(io, file_names[f], theirs, other_bytes);
            refused += judge(io, &g.rig, g.rig.acked, "copied over", f * 100 + o) == REFUSED;
            io->ops->destroy(io);
            io = copy_of(&g);
            pawl_io_sim_put(io, file_names[f], theirs, other_bytes);
            pawl_io_sim_put(io, file_names[o], mine, bytes);
            enum outcome swapped = judge(io, &g.rig, g.rig.acked, "swapped", f * 100 + o);
            if (f >= 2 && o >= 2) /* a segment is known by its blocks, not by its name */
                assert_int_equal(swapped, KEPT);
            free(mine);
            free(theirs);
            io->ops->destroy(io);
        }
    }
    assert_true(refused > 20);
    golden_fini(&g);
}

/* The nemesis of snapshots: one file is put back from an older copy. */
static void file_restored_from_an_older_copy(void **state)
{
    struct golden g;
    golden_make(&g, true);
    struct pawl_io *old = copy_of(&g);
    unsigned refused = 0;
    for (unsigned lives = 1; lives <= 2; lives++) {
        assert_int_equal(rig_open(&g.rig), PAWL_LOG_OK);
        assert_true(rig_script(&g.rig));
        rig_close(&g.rig);
        for (unsigned f = 0; f < PAWL_COUNT(file_names); f++) {
            uint64_t bytes;
            uint8_t *p = pawl_io_sim_file(old, file_names[f], &bytes);
            struct pawl_io *io = copy_of(&g);
            pawl_io_sim_put(io, file_names[f], p, bytes); /* or removed, if it was not there */
            refused += judge(io, &g.rig, g.rig.acked, file_names[f], lives) == REFUSED;
            io->ops->destroy(io);
        }
    }
    assert_true(refused > 5);
    old->ops->destroy(old);
    golden_fini(&g);
}

/* --- S7, S8, B-W11: the last block torn ------------------------------------------------------ */

/* A crash just after a block was written and before it was acknowledged. Gives the file and the
 * range of the block. */
static uint8_t *find_block(struct pawl_io *io, const struct log_rig *rig, uint64_t position,
                           uint64_t *offset, const char **name)
{
    for (unsigned f = 2; f < PAWL_COUNT(file_names); f++) {
        uint64_t bytes, at = position % rig->options.segment_bytes;
        uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes);
        if (!p || bytes < at + 4096)
            continue;
        const struct pawl_block_rec *b = (const void *)(p + at);
        if (b->top.magic == PAWL_LOG_MAGIC_BLOCK && b->position == position) {
            *offset = at;
            *name = file_names[f];
            return p;
        }
    }
    fail_msg("no block at %" PRIu64, position);
    return NULL;
}

static uint64_t position_of_last(const struct log_rig *rig)
{
    return rig->lsn[rig->next - 1] & ~(uint64_t)4095;
}

enum fill { ZEROS, OLD, GARBAGE, FILLS };

static void tear(uint8_t *block, const uint8_t *old, uint64_t from, uint64_t bytes, enum fill fill)
{
    struct pawl_prng prng = { from };
    for (uint64_t i = from; i < bytes; i++)
        block[i] = fill == ZEROS ? 0 : fill == OLD ? old[i] : (uint8_t)pawl_prng_next(&prng);
}

/* before: the disk without the last block; after: with it. Tears it at every length; vouched: what
 * was written behind it says that it was durable. */
static void tear_everywhere(struct pawl_io *before, struct pawl_io *after,
                            const struct log_rig *rig, uint64_t position, uint64_t acked,
                            bool vouched)
{
    uint64_t offset, bytes, stride = all_lengths() ? 1 : 37, old_bytes;
    const char *name;
    const uint8_t *whole = find_block(after, rig, position, &offset, &name) + offset;
    const struct pawl_block_rec *head = (const void *)whole;
    uint64_t used = PAWL_BLOCK_HEADER + head->used_bytes,
             total = pawl_block_total(head->used_bytes);
    const uint8_t *old_file = pawl_io_sim_file(before, name, &old_bytes);
    assert_non_null(old_file);
    for (uint64_t length = 0; length < total; length += length < 300 ? 1 : stride) {
        for (enum fill fill = 0; fill < FILLS; fill++) {
            struct pawl_io *io = pawl_io_sim_clone(after, 1);
            uint8_t *p = pawl_io_sim_file(io, name, &bytes);
            tear(p + offset, old_file + offset, length, total, fill);
            bool same = memcmp(p + offset, whole, used) == 0;
            enum outcome o = judge(io, rig, acked, "torn", length * 10 + fill);
            if (same || !vouched)
                assert_int_equal(o, KEPT);
            else
                assert_int_equal(o, REFUSED);
            io->ops->destroy(io);
        }
    }
}

static void torn_tail(bool reused, bool vouched)
{
    struct pawl_io *io = pawl_io_sim_create(reused * 2 + vouched);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.max_bytes = 4 * 65536;
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    for (unsigned i = 0; reused && i < 12; i++) {
        assert_true(rig_fill(&rig, 8, 3000, 1));
        while (pawl_log_oldest_segment(rig.log) < pawl_log_newest_segment(rig.log))
            pawl_log_release_oldest(rig.log);
    }
    assert_true(rig_fill(&rig, 4, 900, 1));
    rig_settle(&rig);
    struct pawl_io *before = pawl_io_sim_clone(io, 0);
    uint64_t acked = rig.acked;
    assert_true(rig_append(&rig, 5000));
    assert_true(rig_flush(&rig));
    uint64_t position = position_of_last(&rig);
    if (vouched) {
        pawl_log_mark(rig.log, false, 1, 1, 1);
        assert_true(rig_flush(&rig));
        acked = rig.acked;
    }
    struct pawl_io *after = pawl_io_sim_clone(io, 0);
    rig_close(&rig);
    tear_everywhere(before, after, &rig, position, acked, vouched);
    before->ops->destroy(before);
    after->ops->destroy(after);
    rig_fini(&rig);
    io->ops->destroy(io);
}

static void torn_tail_in_zeros_is_cut(void **state) { torn_tail(false, false); }
static void torn_tail_in_old_blocks_is_cut(void **state) { torn_tail(true, false); }
static void torn_block_with_a_marker_behind_is_damage(void **state) { torn_tail(false, true); }
static void torn_block_with_a_marker_in_old_blocks_is_damage(void **state)
{
    torn_tail(true, true);
}

/* S12 */
static void five_rounds_of_tears(void **state)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct pawl_io *io = pawl_io_sim_create(seed);
        struct pawl_io_sim_faults faults = { .latency_ns_min = 1000,
                                             .latency_ns_max = 90000,
                                             .split_ppm = 200000,
                                             .zero_ppm = 50000,
                                             .garbage_ppm = 50000 };
        pawl_io_sim_set_faults(io, &faults);
        struct log_rig rig;
        rig_init(&rig, io, PAWL_IO_SIM_DIR);
        rig.options.max_bytes = 5 * 65536;
        struct pawl_prng prng = { seed };
        uint64_t acked = 0, epoch = 0;
        for (unsigned round = 0; round < 6; round++) {
            if (rig_open(&rig) != PAWL_LOG_OK)
                fail_msg("seed %" PRIu64 " round %u: %s", seed, round, rig.text);
            const char *missing = rig_missing(&rig, acked);
            if (missing)
                fail_msg("seed %" PRIu64 " round %u: %s", seed, round, missing);
            assert_true(rig.info.epoch > epoch);
            epoch = rig.info.epoch;
            unsigned count = (unsigned)pawl_prng_below(&prng, 30);
            for (unsigned i = 0; i < count; i++) {
                if (!rig_append(&rig, 8 + (uint32_t)pawl_prng_below(&prng, 15000)))
                    (void)rig_turn(&rig);
                if (pawl_prng_below(&prng, 2))
                    rig_seal(&rig);
                if (pawl_prng_below(&prng, 3) == 0)
                    (void)rig_turn(&rig);
                if (pawl_log_oldest_segment(rig.log) + 2 < pawl_log_newest_segment(rig.log))
                    pawl_log_release_oldest(rig.log);
            }
            acked = rig.acked;
            pawl_io_sim_crash(io, seed * 100 + round);
            rig_close(&rig);
            pawl_io_sim_restart(io);
        }
        rig_fini(&rig);
        io->ops->destroy(io);
    }
}

/* S2: what a recovery has shown is on the disk, though it was in a cache only when the broker was
 * killed. */
static void what_recovery_shows_survives_a_power_cut(void **state)
{
    unsigned more = 0;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        struct pawl_io *io = pawl_io_sim_create(seed);
        struct log_rig rig;
        rig_init(&rig, io, PAWL_IO_SIM_DIR);
        assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
        assert_true(rig_fill(&rig, 2, 500, 1));
        for (unsigned i = 0; i < 3; i++) {
            assert_true(rig_append(&rig, 3000));
            rig_seal(&rig);
        }
        pawl_io_sim_kill(io, seed);
        rig_close(&rig);
        pawl_io_sim_restart(io);
        assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
        uint64_t shown = rig.replayed_count;
        more += shown > 2;
        pawl_io_sim_crash(io, seed);
        rig_close(&rig);
        pawl_io_sim_restart(io);
        if (rig_open(&rig) != PAWL_LOG_OK)
            fail_msg("seed %" PRIu64 ": %s", seed, rig.text);
        assert_int_equal(rig.replayed_count, shown);
        rig_fini(&rig);
        io->ops->destroy(io);
    }
    assert_true(more > 5);
}

/* --- other damage ---------------------------------------------------------------------------- */

/* S11: the last block went to another place. */
static void misdirected_block_is_seen(void **state)
{
    struct golden g;
    golden_make(&g, false);
    uint64_t position = position_of_last(&g.rig), offset, bytes;
    const char *name;
    const uint8_t *p = find_block(g.io, &g.rig, position, &offset, &name);
    uint8_t page[4096];
    memcpy(page, p + offset, sizeof page);
    for (uint64_t to = 0; to < g.rig.options.segment_bytes; to += 4096) {
        if (to == offset)
            continue;
        struct pawl_io *io = copy_of(&g);
        uint8_t *q = pawl_io_sim_file(io, name, &bytes);
        memset(q + offset, 0, 4096);
        memcpy(q + to, page, 4096);
        assert_int_equal(judge(io, &g.rig, g.rig.acked, "misdirected", to), REFUSED);
        io->ops->destroy(io);
    }
    golden_fini(&g);
}

/* A segment of another log, at the very same positions. */
static void segment_of_another_log_is_not_taken(void **state)
{
    struct pawl_io *io[2];
    struct log_rig rig[2];
    for (unsigned i = 0; i < 2; i++) {
        io[i] = pawl_io_sim_create(3);
        rig_init(&rig[i], io[i], PAWL_IO_SIM_DIR);
        rig[i].options.log_id[5] = (uint8_t)i;
        rig[i].next = rig[i].acked = i * 100; /* other records */
        assert_int_equal(rig_open(&rig[i]), PAWL_LOG_OK);
        assert_true(rig_fill(&rig[i], 6, 300, 1));
        rig_close(&rig[i]);
    }
    uint64_t bytes;
    uint8_t *p = pawl_io_sim_file(io[1], "000001.seg", &bytes);
    pawl_io_sim_put(io[0], "000001.seg", p, bytes);
    assert_int_equal(judge(io[0], &rig[0], 6, "another log's segment", 0), REFUSED);
    for (unsigned i = 0; i < 2; i++) {
        rig_fini(&rig[i]);
        io[i]->ops->destroy(io[i]);
    }
}

/* B-W12: bytes behind the end of the newest segment mean nothing. */
static void bytes_behind_a_segment_are_ignored(void **state)
{
    struct golden g;
    golden_make(&g, false);
    for (unsigned f = 2; f < PAWL_COUNT(file_names); f++) {
        for (unsigned random = 0; random < 2; random++) {
            uint64_t bytes;
            uint8_t *p = pawl_io_sim_file(g.io, file_names[f], &bytes);
            if (!p)
                continue;
            uint8_t *longer = calloc(1, bytes + 65536);
            memcpy(longer, p, bytes);
            struct pawl_prng prng = { f };
            for (unsigned i = 0; random && i < 65536; i++)
                longer[bytes + i] = (uint8_t)pawl_prng_next(&prng);
            struct pawl_io *io = copy_of(&g);
            pawl_io_sim_put(io, file_names[f], longer, bytes + 65536);
            assert_int_equal(judge(io, &g.rig, g.rig.acked, "longer", f), KEPT);
            free(longer);
            io->ops->destroy(io);
        }
    }
    golden_fini(&g);
}

/* Hashes as the format says, so that a newer version can be played. */
static void rehash(uint8_t *at, uint64_t bytes, uint64_t seed)
{
    struct pawl_hash128 h = pawl_hash128(at + 16, bytes - 16, seed);
    memcpy(at, &h.low, 8);
    memcpy(at + 8, &h.high, 8);
}

static void newer_version_is_refused_by_name(void **state)
{
    struct golden g;
    golden_make(&g, false);
    struct pawl_log_identity id;
    pawl_identity_init(&id, g.rig.info.log_id, g.rig.info.segment_bytes);
    uint64_t offset, bytes;
    const char *name;
    (void)find_block(g.io, &g.rig, position_of_last(&g.rig), &offset, &name);
    for (unsigned feature = 0; feature < 2; feature++) {
        for (unsigned what = 0; what < 4; what++) {
            struct pawl_io *io = copy_of(&g);
            uint8_t *p = pawl_io_sim_file(io, what == 0 ? "id" : what == 1 ? "head" : name, &bytes);
            uint64_t at[2] = { what == 2 ? offset : 0, what < 2 ? 4096 : 0 };
            for (unsigned i = 0; i < (what < 2 ? 2 : 1); i++) {
                struct pawl_log_top_rec *top = (void *)(p + at[i]);
                if (feature)
                    top->features |= 0x80;
                else
                    top->version = PAWL_LOG_VERSION + 1;
                uint64_t hashed = what < 2 ? top->header_bytes
                                           : PAWL_BLOCK_HEADER +
                                                 ((struct pawl_block_rec *)(void *)top)->used_bytes;
                rehash(p + at[i], hashed, what == 0 ? PAWL_LOG_ID_SEED : id.seed);
            }
            struct log_rig rig;
            rig_copy(&rig, &g.rig, io, PAWL_IO_SIM_DIR);
            uint64_t before = pawl_io_sim_digest(io);
            assert_int_equal(rig_open(&rig), PAWL_LOG_CANNOT);
            assert_non_null(strstr(rig.text, "newer"));
            assert_int_equal(pawl_io_sim_digest(io), before);
            rig_fini(&rig);
            io->ops->destroy(io);
        }
    }
    golden_fini(&g);
}

/* Blocks that no run of ours leaves, written behind the tail by hand. */
static void blocks_behind_the_tail_are_judged_by_what_they_say(void **state)
{
    struct golden g;
    golden_make(&g, false);
    struct pawl_log_identity id;
    pawl_identity_init(&id, g.rig.info.log_id, g.rig.info.segment_bytes);
    uint64_t offset, bytes, last = position_of_last(&g.rig);
    const char *name;
    const uint8_t *p = find_block(g.io, &g.rig, last, &offset, &name);
    struct pawl_block_rec end;
    memcpy(&end, p + offset, sizeof end);
    uint64_t x = last + pawl_block_total(end.used_bytes);
    struct {
        uint64_t behind, epoch, durable;
        bool elsewhere;
        enum outcome outcome;
        const char *why;
    } row[] = {
        { 4096, 1, x - 4096, false, KEPT, "in flight together" },
        { 4096, 1, x, false, KEPT, "in flight together" },
        { 4096, 1, x + 4096, false, REFUSED, "a later block says" },
        { 8192, 2, x, false, REFUSED, "a later opening" },
        { 0, 1, x, false, REFUSED, "follows another" }, /* at x, with another predecessor */
        { 8192, 1, x, true, REFUSED, "stands elsewhere" },
    };
    for (unsigned i = 0; i < PAWL_COUNT(row); i++) {
        struct pawl_io *io = copy_of(&g);
        uint8_t *q = pawl_io_sim_file(io, name, &bytes) + x % 65536 + row[i].behind;
        struct pawl_block_rec *b = (void *)q;
        memset(q, 0, 4096);
        b->position = x + row[i].behind + (row[i].elsewhere ? 4096 : 0);
        b->epoch = row[i].epoch;
        b->durable = row[i].durable;
        b->oldest = end.oldest;
        pawl_block_seal(&id, b);
        struct log_rig rig;
        rig_copy(&rig, &g.rig, io, PAWL_IO_SIM_DIR);
        assert_int_equal(rig_open(&rig), row[i].outcome == KEPT ? PAWL_LOG_OK : PAWL_LOG_DAMAGE);
        if (!strstr(rig.text, row[i].why))
            fail_msg("row %u: %s", i, rig.text);
        assert_int_equal(rig.info.cut_bytes > 0, row[i].outcome == KEPT);
        rig_fini(&rig);
        io->ops->destroy(io);
    }
    golden_fini(&g);
}

/* A first block in a filled slot, of which a crash kept any sectors but the first. The slot is
 * taken for a new one, and what is left in it for no sign of a write that was under way. */
static void remains_in_a_filled_slot_are_no_torn_tail(void **state)
{
    struct log_rig rig;
    struct pawl_io *io = pawl_io_sim_create(9);
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    rig_settle(&rig);
    rig_close(&rig);
    uint64_t bytes;
    uint8_t *p = pawl_io_sim_file(io, "000002.seg", &bytes);
    assert_non_null(p);
    memset(p + 16384, 'x', 8192);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    while (pawl_log_newest_segment(rig.log) == 0)
        assert_true(rig_fill(&rig, 1, 1000, 1));
    rig_settle(&rig);
    do {
        pawl_log_mark(rig.log, true, rig.info.time_ns, rig.boot_ns, rig.options.wall_ns);
        assert_true(rig_flush(&rig));
        uint64_t in_segment = pawl_log_durable(rig.log) % rig.options.segment_bytes;
        assert_true(in_segment <= 16384);
        if (in_segment == 16384)
            break;
        assert_true(rig_fill(&rig, 1, 1000, 1));
    } while (true);
    rig_close(&rig);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_true(rig.info.clean);
    assert_int_equal(rig.info.cut_bytes, 0);
    assert_null(rig_missing(&rig, rig.acked));
    rig_fini(&rig);
    io->ops->destroy(io);
}

static void the_last_epoch_is_the_last_opening(void **state)
{
    struct golden g;
    golden_make(&g, false);
    struct pawl_log_identity id;
    pawl_identity_init(&id, g.rig.info.log_id, g.rig.info.segment_bytes);
    uint64_t bytes;
    uint8_t *p = pawl_io_sim_file(g.io, "head", &bytes);
    for (unsigned i = 0; i < 2; i++) {
        struct pawl_head_rec values = *(struct pawl_head_rec *)(void *)(p + i * 4096);
        values.epoch = (1u << 24) - 1;
        pawl_head_fill(p + i * 4096, &id, &values);
    }
    assert_int_equal(rig_open(&g.rig), PAWL_LOG_CANNOT);
    assert_non_null(strstr(g.rig.text, "16777215 times"));
    golden_fini(&g);
}

static int refuse_third(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    return ++*(unsigned *)ctx == 3;
}

static void record_without_sense_is_damage(void **state)
{
    struct golden g;
    golden_make(&g, true);
    unsigned count = 0;
    struct pawl_log *log;
    struct pawl_log_info info;
    char text[PAWL_LOG_TEXT_BYTES];
    assert_int_equal(pawl_log_open(g.io, &g.rig.options, refuse_third, &count, &log, &info, text),
                     PAWL_LOG_DAMAGE);
    assert_non_null(strstr(text, "makes no sense"));
    assert_int_equal(count, 3);
    golden_fini(&g);
}

/* The file and place of damage are named, and the way on. */
static void damage_names_file_offset_and_cure(void **state)
{
    struct golden g;
    golden_make(&g, true);
    uint64_t offset, bytes;
    const char *name;
    uint64_t n = g.rig.next - 1;
    while (g.rig.lsn[n] % 65536 < 16384)
        n--; /* not in the first block of a segment */
    uint64_t position = g.rig.lsn[n] & ~(uint64_t)4095;
    const struct pawl_block_rec *b;
    while (position % 65536) { /* back to where its block begins */
        uint8_t *p = NULL;
        for (unsigned f = 2; f < PAWL_COUNT(file_names) && !p; f++) {
            p = pawl_io_sim_file(g.io, file_names[f], &bytes);
            b = p ? (const void *)(p + position % 65536) : NULL;
            if (!b || b->top.magic != PAWL_LOG_MAGIC_BLOCK || b->position != position)
                p = NULL;
        }
        if (p)
            break;
        position -= 4096;
    }
    uint8_t *p = find_block(g.io, &g.rig, position, &offset, &name);
    p[offset + 200] ^= 1;
    assert_int_equal(rig_open(&g.rig), PAWL_LOG_DAMAGE);
    char want[64];
    snprintf(want, sizeof want, "%s at offset %" PRIu64 " (position %" PRIu64 ")", name, offset,
             position);
    if (!strstr(g.rig.text, want) || !strstr(g.rig.text, "--accept-loss"))
        fail_msg("%s does not name %s", g.rig.text, want);
    golden_fini(&g);
}

int main(void)
{
    alarm(1200);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_evidence_has_its_decision),
        cmocka_unit_test(pages_zeroed_or_spoiled),
        cmocka_unit_test(files_removed_cut_copied_and_swapped),
        cmocka_unit_test(file_restored_from_an_older_copy),
        cmocka_unit_test(torn_tail_in_zeros_is_cut),
        cmocka_unit_test(torn_tail_in_old_blocks_is_cut),
        cmocka_unit_test(torn_block_with_a_marker_behind_is_damage),
        cmocka_unit_test(torn_block_with_a_marker_in_old_blocks_is_damage),
        cmocka_unit_test(what_recovery_shows_survives_a_power_cut),
        cmocka_unit_test(five_rounds_of_tears),
        cmocka_unit_test(misdirected_block_is_seen),
        cmocka_unit_test(segment_of_another_log_is_not_taken),
        cmocka_unit_test(bytes_behind_a_segment_are_ignored),
        cmocka_unit_test(newer_version_is_refused_by_name),
        cmocka_unit_test(blocks_behind_the_tail_are_judged_by_what_they_say),
        cmocka_unit_test(remains_in_a_filled_slot_are_no_torn_tail),
        cmocka_unit_test(the_last_epoch_is_the_last_opening),
        cmocka_unit_test(record_without_sense_is_damage),
        cmocka_unit_test(damage_names_file_offset_and_cure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
