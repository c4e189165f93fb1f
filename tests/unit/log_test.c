/* SPDX-License-Identifier: MIT */
/* The contract of log.h, on the real kinds of io and on the simulated disk. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "base/bits.h"
#include "base/prng.h"
#include "io/sim.h"
#include "lib/log_rig.h"
#include "log/log_inner.h"

static struct pawl_io *make_io(bool uring)
{
    char why[256];
    struct pawl_io *io = uring ? pawl_io_uring_create(why) : pawl_io_posix_create(why);
    if (!io)
        print_message("skip: %s\n", why);
    return io;
}

static void keeps_what_was_durable(bool uring)
{
    struct pawl_io *io = make_io(uring);
    if (!io)
        skip();
    char path[64];
    int dir = rig_dir_make(path);
    assert_true(dir >= 0);
    struct log_rig rig;
    rig_init(&rig, io, dir);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_int_equal(rig.info.epoch, 1);
    assert_true(rig_fill(&rig, 300, 500, 3));
    assert_int_equal(rig.acked, 300);
    assert_true(pawl_log_newest_segment(rig.log) > 1);
    assert_true(pawl_log_appended(rig.log) < pawl_log_durable(rig.log));
    rig_close(&rig);
    for (unsigned round = 2; round < 5; round++) {
        assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
        assert_int_equal(rig.info.epoch, round);
        assert_int_equal(rig.info.cut_bytes, 0);
        assert_true(rig.info.same_boot);
        assert_int_equal(rig.replayed_count, 300 + (round - 2) * 10);
        assert_false(rig.wrong);
        assert_true(rig_fill(&rig, 10, 1000, 10));
        rig_close(&rig);
    }
    rig_fini(&rig);
    io->ops->destroy(io);
    close(dir);
    rig_dir_remove(path);
}

static void keeps_what_was_durable_on_uring(void **state) { keeps_what_was_durable(true); }
static void keeps_what_was_durable_on_posix(void **state) { keeps_what_was_durable(false); }

/* --- on the simulated disk ------------------------------------------------------------------- */

struct bench {
    struct pawl_io *io;
    struct log_rig rig;
};

static void begin(struct bench *b)
{
    b->io = pawl_io_sim_create(9);
    rig_init(&b->rig, b->io, PAWL_IO_SIM_DIR);
    assert_int_equal(rig_open(&b->rig), PAWL_LOG_OK);
}

static void end(struct bench *b)
{
    rig_fini(&b->rig);
    b->io->ops->destroy(b->io);
}

static void power_cut(struct bench *b, uint64_t seed)
{
    pawl_io_sim_crash(b->io, seed);
    rig_close(&b->rig);
    pawl_io_sim_restart(b->io);
}

struct megabytes {
    struct log_rig *rig;
    unsigned large;
};
static int see_megabytes(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    struct megabytes *m = ctx;
    if (type != 9)
        return rig_replay(m->rig, lsn, type, body, bytes);
    const uint8_t *p = body;
    m->large++;
    if (bytes != (9u << 20) - (m->large - 1) * 4097)
        return 1;
    for (uint32_t i = 0; i < bytes; i++)
        if (p[i] != m->large)
            return 1;
    return 0;
}

static void records_of_every_size_come_back(void **state)
{
    struct bench b = { .io = pawl_io_sim_create(9) };
    rig_init(&b.rig, b.io, PAWL_IO_SIM_DIR);
    b.rig.options.max_bytes = 16 << 20;
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    for (uint32_t bytes = 8; bytes <= b.rig.options.record_bytes_max; bytes += bytes < 64 ? 1 : 331)
        assert_true(rig_fill(&b.rig, 1, bytes, 1));
    assert_true(rig_fill(&b.rig, 1, b.rig.options.record_bytes_max, 1));
    uint64_t count = b.rig.next;
    rig_close(&b.rig);
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_int_equal(b.rig.replayed_count, count);
    assert_false(b.rig.wrong);
    end(&b);
}

/* Larger than the window that recovery reads with. */
static void records_of_megabytes_come_back(void **state)
{
    struct bench b = { .io = pawl_io_sim_create(9) };
    rig_init(&b.rig, b.io, PAWL_IO_SIM_DIR);
    b.rig.options.segment_bytes = 16 << 20;
    b.rig.options.max_bytes = 128 << 20;
    b.rig.options.record_bytes_max = 9 << 20;
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    static const uint32_t sizes[] = { 100, 900 << 10, 30, 1 << 20, 5000, 77, 999999 };
    for (unsigned round = 0; round < 6; round++)
        for (unsigned i = 0; i < PAWL_COUNT(sizes); i++)
            assert_true(rig_fill(&b.rig, 1, sizes[i], 1));
    /* The replay of the rig knows bodies up to 1 MiB: the larger ones are counted by hand. */
    uint64_t lsn[3], count = b.rig.next;
    for (unsigned i = 0; i < 3; i++) {
        uint32_t bytes = (9 << 20) - i * 4097;
        for (unsigned turns = 0; !pawl_log_admit(b.rig.log, bytes + PAWL_LOG_RECORD_HEAD); turns++)
            assert_true(turns < 1000 && rig_turn(&b.rig) >= 0);
        memset(pawl_log_append(b.rig.log, 9, bytes, &lsn[i]), (int)i + 1, bytes);
        rig_seal(&b.rig);
    }
    assert_true(rig_flush(&b.rig));
    rig_close(&b.rig);
    struct megabytes seen = { .rig = &b.rig };
    struct pawl_log_info info;
    char text[PAWL_LOG_TEXT_BYTES];
    b.rig.replayed_count = b.rig.replayed_first = 0;
    assert_int_equal(
        pawl_log_open(b.io, &b.rig.options, see_megabytes, &seen, &b.rig.log, &info, text),
        PAWL_LOG_OK);
    assert_int_equal(b.rig.replayed_count, count);
    assert_false(b.rig.wrong);
    assert_int_equal(seen.large, 3);
    end(&b);
}

struct seen_record {
    uint64_t lsn;
    uint32_t bytes;
    uint16_t type;
};
struct seen_records {
    struct seen_record record[16];
    unsigned count;
};
static int see(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    struct seen_records *s = ctx;
    s->record[s->count++] = (struct seen_record){ lsn, bytes, type };
    return 0;
}

static void empty_records_and_all_types_come_back(void **state)
{
    struct bench b;
    begin(&b);
    static const uint16_t types[] = { 0, 1, 0x7fff, 0xffff };
    uint64_t lsn[4];
    for (unsigned i = 0; i < 4; i++) {
        void *body = pawl_log_append(b.rig.log, types[i], i, &lsn[i]);
        assert_int_equal((uintptr_t)body % 8, 0);
        memset(body, (int)i, i);
    }
    assert_true(rig_flush(&b.rig));
    rig_close(&b.rig);
    struct seen_records s = { .count = 0 };
    struct pawl_log_info info;
    char text[PAWL_LOG_TEXT_BYTES];
    assert_int_equal(pawl_log_open(b.io, &b.rig.options, see, &s, &b.rig.log, &info, text),
                     PAWL_LOG_OK);
    assert_int_equal(s.count, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(s.record[i].lsn, lsn[i]);
        assert_int_equal(s.record[i].type, types[i]);
        assert_int_equal(s.record[i].bytes, i);
    }
    end(&b);
}

/* What room() promises can be appended in any pieces, and stays in one block. */
static void rows_within_room_stay_in_one_block(void **state)
{
    struct bench b;
    begin(&b);
    struct pawl_prng prng = { 4 };
    for (unsigned round = 0; round < 400; round++) {
        uint64_t room = pawl_log_room(b.rig.log);
        for (unsigned turns = 0; room == 0 && turns < 100; turns++) {
            (void)rig_turn(&b.rig);
            room = pawl_log_room(b.rig.log);
        }
        assert_true(room > 0);
        bool fresh = !pawl_log_pending(b.rig.log);
        uint64_t first = 0, lsn = 0;
        while (room >= 8 + PAWL_LOG_RECORD_HEAD) {
            uint64_t most =
                pawl_min_u64(room - PAWL_LOG_RECORD_HEAD, b.rig.options.record_bytes_max);
            uint32_t bytes = 8 + (uint32_t)pawl_prng_below(&prng, most - 7);
            assert_true(b.rig.next < b.rig.max);
            void *body = pawl_log_append(b.rig.log, RIG_RECORD, bytes, &lsn);
            rig_body(b.rig.next, body, bytes);
            b.rig.lsn[b.rig.next] = lsn;
            b.rig.size[b.rig.next++] = bytes;
            first = first ? first : lsn;
            room -= bytes + PAWL_LOG_RECORD_HEAD;
        }
        if (fresh && first)
            assert_int_equal(first % 4096, PAWL_BLOCK_HEADER);
        assert_int_equal(first / 65536, lsn / 65536);
        assert_true(pawl_log_pending(b.rig.log));
        rig_seal(&b.rig);
        if (pawl_prng_below(&prng, 3) == 0)
            assert_true(rig_flush(&b.rig));
        while (pawl_log_oldest_segment(b.rig.log) + 3 < pawl_log_newest_segment(b.rig.log))
            pawl_log_release_oldest(b.rig.log);
    }
    assert_true(rig_flush(&b.rig));
    uint64_t acked = b.rig.acked;
    rig_close(&b.rig);
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_null(rig_missing(&b.rig, acked));
    end(&b);
}

static void admit_moves_a_large_record_to_the_next_segment(void **state)
{
    struct bench b;
    begin(&b);
    rig_settle(&b.rig);
    /* 32 KiB are used: less is left than the large record takes, more than a block. */
    assert_true(rig_fill(&b.rig, 7, 3000, 1));
    rig_settle(&b.rig);
    assert_int_equal(pawl_log_newest_segment(b.rig.log), 0);
    uint64_t need = b.rig.options.record_bytes_max + PAWL_LOG_RECORD_HEAD;
    assert_true(pawl_log_room(b.rig.log) < need);
    assert_true(pawl_log_room(b.rig.log) > 8000);
    assert_true(pawl_log_admit(b.rig.log, 8000));
    assert_true(pawl_log_admit(b.rig.log, need));
    assert_true(pawl_log_room(b.rig.log) >= need);
    assert_true(rig_fill(&b.rig, 1, b.rig.options.record_bytes_max, 1));
    assert_int_equal(b.rig.lsn[7] / 65536, 1);
    /* With records in it the block stays where it is. */
    assert_true(rig_append(&b.rig, 100));
    assert_false(pawl_log_admit(b.rig.log, need));
    assert_true(rig_flush(&b.rig));
    end(&b);
}

static void appended_is_below_durable_when_all_is_durable(void **state)
{
    struct bench b;
    begin(&b);
    assert_true(pawl_log_appended(b.rig.log) < pawl_log_durable(b.rig.log));
    for (uint32_t bytes = 8; bytes < 9000; bytes += 56) {
        uint64_t durable = pawl_log_durable(b.rig.log);
        assert_true(rig_append(&b.rig, bytes) || rig_turn(&b.rig) >= 0);
        if (!pawl_log_pending(b.rig.log))
            continue;
        uint64_t appended = pawl_log_appended(b.rig.log);
        assert_true(appended > durable);
        assert_int_equal(appended, b.rig.lsn[b.rig.next - 1] + pawl_align_up(8 + bytes, 8));
        rig_seal(&b.rig);
        assert_int_equal(pawl_log_appended(b.rig.log), appended);
        assert_true(rig_flush(&b.rig));
        assert_true(pawl_log_appended(b.rig.log) < pawl_log_durable(b.rig.log));
    }
    end(&b);
}

/* With completions in any order, durable covers only what a crash then keeps. */
static void durable_never_passes_a_hole(void **state)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct bench b;
        begin(&b);
        struct pawl_io_sim_faults faults = { .latency_ns_min = 1, .latency_ns_max = 1000000 };
        pawl_io_sim_set_faults(b.io, &faults);
        uint64_t last = 0;
        for (unsigned i = 0; i < 40; i++) {
            if (!rig_append(&b.rig, 500) && rig_turn(&b.rig) < 0)
                fail();
            rig_seal(&b.rig);
            assert_true(pawl_log_in_flight(b.rig.log) <= b.rig.options.in_flight_max);
            /* A little time only, so that some are done and others not. */
            (void)b.io->ops->wait(b.io, seed * 7919 % 200000);
            assert_true(pawl_log_durable(b.rig.log) >= last);
            last = pawl_log_durable(b.rig.log);
            (void)b.io->ops->wait(b.io, 0);
            pawl_log_tend(b.rig.log, b.rig.boot_ns += 1000);
        }
        struct pawl_io_sim_counts counts;
        pawl_io_sim_counts(b.io, &counts);
        assert_true(counts.reordered > 0);
        last = pawl_log_durable(b.rig.log);
        uint64_t acked = 0;
        while (acked < b.rig.next && b.rig.lsn[acked] < last)
            acked++;
        power_cut(&b, seed);
        assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
        assert_null(rig_missing(&b.rig, acked));
        end(&b);
    }
}

static void marker_is_written_once_a_tail(void **state)
{
    struct bench b;
    begin(&b);
    assert_true(pawl_log_marked(b.rig.log)); /* the block of the epoch vouches too */
    assert_true(rig_fill(&b.rig, 1, 100, 1));
    assert_false(pawl_log_marked(b.rig.log));
    uint64_t before = pawl_log_durable(b.rig.log);
    for (unsigned i = 0; i < 3; i++) {
        pawl_log_mark(b.rig.log, false, 1, 1, 1);
        assert_true(rig_flush(&b.rig));
        assert_true(pawl_log_marked(b.rig.log));
        assert_int_equal(pawl_log_durable(b.rig.log), before + 4096);
    }
    for (unsigned i = 0; i < 3; i++) {
        pawl_log_mark(b.rig.log, true, 1, 1, 1);
        assert_true(rig_flush(&b.rig));
        assert_int_equal(pawl_log_durable(b.rig.log), before + 8192);
    }
    rig_close(&b.rig);
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_true(b.rig.info.clean);
    rig_close(&b.rig);
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_false(b.rig.info.clean); /* the last one did not stop cleanly */
    end(&b);
}

/* What was returned as this opening's epoch can never be given again, though all that may be lost
 * is lost at once. */
static void epoch_is_never_given_twice(void **state)
{
    struct bench b;
    begin(&b);
    uint64_t epoch = b.rig.info.epoch;
    struct pawl_io_sim_faults none = { .latency_ns_min = 50000, .latency_ns_max = 50000 };
    pawl_io_sim_set_faults(b.io, &none);
    for (uint64_t seed = 0; seed < 60; seed++) {
        power_cut(&b, seed);
        assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
        assert_true(b.rig.info.epoch > epoch);
        epoch = b.rig.info.epoch;
    }
    end(&b);
}

/* S13: restarts without work change nothing that lasts and take no room. */
static void a_thousand_restarts_take_no_room(void **state)
{
    struct bench b = { .io = pawl_io_sim_create(9) };
    rig_init(&b.rig, b.io, PAWL_IO_SIM_DIR);
    b.rig.options.segment_bytes = 8 << 20;
    b.rig.options.max_bytes = 64 << 20;
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_true(rig_fill(&b.rig, 20, 300, 5));
    for (unsigned i = 0; i < 200; i++)
        (void)rig_turn(&b.rig);
    uint64_t hash = 0, existing = pawl_log_existing(b.rig.log);
    for (unsigned i = 0; i < 1000; i++) {
        rig_settle(&b.rig);
        bool clean = i % 8 == 0;
        if (clean) {
            pawl_log_mark(b.rig.log, true, 1, 1, 1);
            assert_true(rig_flush(&b.rig));
        }
        rig_close(&b.rig);
        assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
        assert_int_equal(b.rig.info.clean, clean);
        assert_int_equal(b.rig.replayed_count, 20);
        assert_false(b.rig.wrong);
        hash = i ? hash : b.rig.replay_hash;
        assert_int_equal(b.rig.replay_hash, hash);
        assert_int_equal(pawl_log_existing(b.rig.log), existing);
    }
    assert_true(b.rig.info.epoch > 1000);
    end(&b);
}

/* --- pawl time (C3) -------------------------------------------------------------------------- */

static void time_goes_on_over_restarts_and_reboots(void **state)
{
    const uint64_t s = 1000000000ull, year = 365ull * 86400 * s;
    struct bench b;
    begin(&b);
    uint64_t wall = b.rig.options.wall_ns;
    struct {
        bool reboot;
        int64_t boot, wall; /* since the last block */
        uint64_t goes_on;
    } row[] = {
        { false, 5 * 1000000000ll, 5 * 1000000000ll, 5 * s },
        { false, 5 * 1000000000ll, -500 * 1000000000ll, 5 * s }, /* the wall clock does not count */
        { false, 0, 0, 0 },
        { true, -1, 60 * 1000000000ll, 60 * s },
        { true, 100 * 1000000000ll, 60 * 1000000000ll, 60 * s }, /* nor does this boot clock */
        { true, -1, -60 * 1000000000ll, 0 },                     /* never back */
        { true, -1, 0, 0 },
        { true, -1, (int64_t)(20 * year), 3653 * 86400 * s }, /* absurd: at most ten years */
    };
    uint64_t time = b.rig.info.time_ns;
    for (unsigned i = 0; i < PAWL_COUNT(row); i++) {
        time += 7 * s;
        uint64_t boot = 1000 * s + i;
        uint64_t lsn;
        rig_settle(&b.rig);
        memset(pawl_log_append(b.rig.log, RIG_RECORD, 8, &lsn), 0, 8);
        pawl_log_seal(b.rig.log, time, boot, wall);
        assert_true(rig_flush(&b.rig));
        rig_close(&b.rig);
        b.rig.options.boot_ns = row[i].boot < 0 ? 5 : boot + (uint64_t)row[i].boot;
        b.rig.options.wall_ns = wall + (uint64_t)row[i].wall;
        if (row[i].reboot)
            b.rig.options.boot_id[0]++;
        struct pawl_log_info info;
        char text[PAWL_LOG_TEXT_BYTES];
        assert_int_equal(pawl_log_open(b.io, &b.rig.options, NULL, NULL, &b.rig.log, &info, text),
                         PAWL_LOG_OK);
        assert_int_equal(info.same_boot, !row[i].reboot);
        assert_int_equal(info.time_ns, time + row[i].goes_on);
        time = info.time_ns;
        wall = b.rig.options.wall_ns;
    }
    end(&b);
}

static void blocks_never_take_time_back(void **state)
{
    struct bench b;
    begin(&b);
    uint64_t lsn;
    memset(pawl_log_append(b.rig.log, RIG_RECORD, 8, &lsn), 0, 8);
    pawl_log_seal(b.rig.log, 5000000000000ull, 1, 1);
    assert_true(rig_flush(&b.rig));
    memset(pawl_log_append(b.rig.log, RIG_RECORD, 8, &lsn), 0, 8);
    pawl_log_seal(b.rig.log, 4000000000000ull, 2, 2);
    assert_true(rig_flush(&b.rig));
    rig_close(&b.rig);
    struct pawl_log_info info;
    char text[PAWL_LOG_TEXT_BYTES];
    assert_int_equal(pawl_log_open(b.io, &b.rig.options, NULL, NULL, &b.rig.log, &info, text),
                     PAWL_LOG_OK);
    assert_true(info.time_ns >= 5000000000000ull);
    end(&b);
}

/* --- opening --------------------------------------------------------------------------------- */

static void read_only_changes_nothing(void **state)
{
    struct bench b;
    begin(&b);
    assert_true(rig_fill(&b.rig, 30, 700, 3));
    uint64_t acked = b.rig.acked;
    power_cut(&b, 4);
    uint64_t digest = pawl_io_sim_digest(b.io);
    b.rig.options.read_only = true;
    uint64_t writes = pawl_io_sim_operations(b.io, PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
        assert_null(rig_missing(&b.rig, acked));
        assert_int_equal(b.rig.info.epoch, 1);
        assert_int_equal(pawl_log_room(b.rig.log), 0);
        rig_close(&b.rig);
    }
    assert_int_equal(pawl_io_sim_digest(b.io), digest);
    assert_int_equal(pawl_io_sim_operations(b.io, PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH), writes);
    b.rig.options.read_only = false;
    end(&b);

    struct pawl_io *io = pawl_io_sim_create(1);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.read_only = true;
    assert_int_equal(rig_open(&rig), PAWL_LOG_CANNOT);
    assert_non_null(strstr(rig.text, "no log"));
    rig_fini(&rig);
    io->ops->destroy(io);
}

static void options_out_of_range_are_refused(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(1);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    const struct pawl_log_options good = rig.options;
    struct pawl_log_options bad[] = { good, good, good, good, good, good, good };
    bad[0].segment_bytes = 65536 + 4096;
    bad[1].segment_bytes = 32768;
    bad[2].segment_bytes = 2ull << 30;
    bad[3].block_bytes = 4096;
    bad[4].block_bytes = 12288;
    bad[5].in_flight_max = 0;
    bad[6].in_flight_max = 9;
    uint64_t digest = pawl_io_sim_digest(io);
    for (unsigned i = 0; i < PAWL_COUNT(bad); i++) {
        rig.options = bad[i];
        assert_int_equal(rig_open(&rig), PAWL_LOG_CANNOT);
        assert_true(rig.text[0] != '\0');
        assert_int_equal(pawl_io_sim_digest(io), digest);
    }
    rig.options = good;
    rig.options.record_bytes_max = 60000; /* more than a segment takes: said, not refused */
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_in_range(rig.info.record_bytes_max, 40000, 59999);
    assert_true(rig_fill(&rig, 1, rig.info.record_bytes_max, 1));
    rig_close(&rig);
    rig.options = good;
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    rig_close(&rig);
    /* The size of segments is what the log says, not what is asked for. */
    rig.options.segment_bytes = 1 << 20;
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_int_equal(rig.info.segment_bytes, 65536);
    rig_fini(&rig);
    io->ops->destroy(io);
}

/* U10: a buffer is not touched while its write is in flight; the simulated disk looks at it only at
 * the end. */
static void buffers_are_left_alone_in_flight(void **state)
{
    struct bench b;
    begin(&b);
    struct pawl_io_sim_faults faults = {
        .latency_ns_min = 1, .latency_ns_max = 40000000, .slow_ns = 300000000, .slow_ppm = 100000
    };
    pawl_io_sim_set_faults(b.io, &faults);
    for (unsigned i = 0; i < 300; i++) {
        for (unsigned turns = 0; !rig_append(&b.rig, 8 + i * 53 % 9000); turns++) {
            rig_seal(&b.rig);
            assert_true(turns < 1000 && rig_turn(&b.rig) >= 0);
        }
        rig_seal(&b.rig);
        while (pawl_log_oldest_segment(b.rig.log) + 3 < pawl_log_newest_segment(b.rig.log))
            pawl_log_release_oldest(b.rig.log);
    }
    assert_true(rig_flush(&b.rig));
    uint64_t acked = b.rig.acked;
    rig_close(&b.rig);
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_null(rig_missing(&b.rig, acked));
    end(&b);
}

/* L1: with ever more address space, until it is enough; in children, since a limit stays. */
static int open_within(int dir, uint64_t more)
{
    alarm(20);
    struct rlimit limit;
    unsigned long pages = 0;
    char why[256];
    struct log_rig rig;
    struct pawl_io *io = pawl_io_posix_create(why);
    FILE *f = fopen("/proc/self/statm", "r");
    if (!io || !f || fscanf(f, "%lu", &pages) != 1)
        return 3;
    (void)fclose(f);
    rig_init(&rig, io, dir);
    limit.rlim_cur = limit.rlim_max = pages * 4096 + more;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 3;
    int rc = rig_open(&rig);
    if (rc == PAWL_LOG_OK)
        return rig_missing(&rig, 12) || !rig_fill(&rig, 2, 2000, 1) ? 4 : 0;
    return rc == PAWL_LOG_CANNOT && rig.text[0] ? 1 : 5;
}

static void memory_that_runs_out_is_said(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skip: a sanitizer needs all of the address space\n");
    skip();
#endif
    char path[64], why[256];
    int dir = rig_dir_make(path);
    struct pawl_io *io = pawl_io_posix_create(why);
    struct log_rig rig;
    rig_init(&rig, io, dir);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_true(rig_fill(&rig, 12, 2000, 3));
    rig_fini(&rig);
    io->ops->destroy(io);
    unsigned refused = 0, opened = 0;
    for (uint64_t more = 0; more <= 12u << 20; more += 256u << 10) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(open_within(dir, more));
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) > 1)
            fail_msg("with %" PRIu64 " bytes: exit %d", more, WEXITSTATUS(status));
        refused += WEXITSTATUS(status) == 1;
        opened += WEXITSTATUS(status) == 0;
    }
    assert_true(refused > 0 && opened > 0);
    close(dir);
    rig_dir_remove(path);
}

int main(void)
{
    alarm(300);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_was_durable_on_uring),
        cmocka_unit_test(keeps_what_was_durable_on_posix),
        cmocka_unit_test(records_of_every_size_come_back),
        cmocka_unit_test(records_of_megabytes_come_back),
        cmocka_unit_test(memory_that_runs_out_is_said),
        cmocka_unit_test(empty_records_and_all_types_come_back),
        cmocka_unit_test(rows_within_room_stay_in_one_block),
        cmocka_unit_test(admit_moves_a_large_record_to_the_next_segment),
        cmocka_unit_test(appended_is_below_durable_when_all_is_durable),
        cmocka_unit_test(durable_never_passes_a_hole),
        cmocka_unit_test(marker_is_written_once_a_tail),
        cmocka_unit_test(epoch_is_never_given_twice),
        cmocka_unit_test(a_thousand_restarts_take_no_room),
        cmocka_unit_test(time_goes_on_over_restarts_and_reboots),
        cmocka_unit_test(blocks_never_take_time_back),
        cmocka_unit_test(read_only_changes_nothing),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(buffers_are_left_alone_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
