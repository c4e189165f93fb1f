/* SPDX-License-Identifier: MIT */
/* Every operation of the log fails once and for ever, in every way (U15), S1, S3, S4: whatever was
 * acknowledged is there after the next start, and nothing is acknowledged after a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "io/sim.h"
#include "lib/log_rig.h"

static void bring_down(struct log_rig *rig, uint64_t seed, bool power)
{
    if (power)
        pawl_io_sim_crash(rig->io, seed);
    else
        pawl_io_sim_kill(rig->io, seed);
    rig_close(rig);
    pawl_io_sim_restart(rig->io);
}

struct way {
    const char *name;
    uint32_t kinds;
    int error;
    bool for_ever;
};

/* One run: the script with the nth operation failing, a crash, two recoveries and a short life.
 * Returns false when the fault was never reached: the loop over n is over. */
static bool one_run(const struct way *way, uint64_t n, bool power)
{
    struct pawl_io *io = pawl_io_sim_create(n * 977 + way->kinds);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    uint64_t from = pawl_io_sim_operations(io, way->kinds);
    pawl_io_sim_fail_at(io, way->kinds, n, way->error, way->for_ever);
    bool whole = false;
    if (rig_open(&rig) == PAWL_LOG_OK) {
        whole = rig_script(&rig);
        if (rig.log && pawl_log_failed(rig.log)) {
            /* Sticky: later successes change nothing (S1, B-W10). */
            pawl_io_sim_fail_at(io, 0, 0, 0, false);
            uint64_t durable = pawl_log_durable(rig.log);
            for (unsigned i = 0; i < 20; i++) {
                rig_seal(&rig);
                (void)rig_turn(&rig);
            }
            assert_true(pawl_log_failed(rig.log));
            assert_true(pawl_log_failure(rig.log)[0] != '\0');
            assert_int_equal(pawl_log_durable(rig.log), durable);
            assert_int_equal(pawl_log_room(rig.log), 0);
        }
    }
    bool reached = pawl_io_sim_operations(io, way->kinds) - from >= n;
    uint64_t acked = rig.acked;
    assert_true(!reached || whole || rig.result != PAWL_LOG_OK || rig.log != NULL);
    bring_down(&rig, n * 31 + power, power);

    for (unsigned round = 0; round < 2; round++) {
        if (rig_open(&rig) != PAWL_LOG_OK)
            fail_msg("%s n=%" PRIu64 " power=%d round %u: not opened: %s", way->name, n, power,
                     round, rig.text);
        const char *missing = rig_missing(&rig, acked);
        if (missing)
            fail_msg("%s n=%" PRIu64 " power=%d round %u: %s", way->name, n, power, round, missing);
        assert_true(rig_fill(&rig, 3, 200, 1));
        acked = rig.acked;
        bring_down(&rig, n * 37 + power, power);
    }
    rig_fini(&rig);
    io->ops->destroy(io);
    return reached;
}

static void every_operation_fails(void **state)
{
    static const struct way ways[] = {
        { "EIO once", PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, -EIO, false },
        { "EIO for ever", PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, -EIO, true },
        { "ENOSPC once", PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, -ENOSPC, false },
        { "ENOSPC for ever", PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, -ENOSPC, true },
        { "ECANCELED once", PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, -ECANCELED, false },
        { "EAGAIN for ever", PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, -EAGAIN, true },
        { "never completes", PAWL_IO_SIM_WRITE, PAWL_IO_SIM_STUCK, false },
        { "flush fails once", PAWL_IO_SIM_FLUSH, -EIO, false },
        { "open EMFILE once", PAWL_IO_SIM_OPEN, -EMFILE, false },
        { "open EIO once", PAWL_IO_SIM_OPEN, -EIO, false },
        { "rename EIO", PAWL_IO_SIM_RENAME, -EIO, false },
    };
    unsigned runs = 0;
    for (unsigned w = 0; w < PAWL_COUNT(ways); w++) {
        uint64_t n = 1;
        for (; n < 10000; n++) {
            bool reached = one_run(&ways[w], n, true);
            (void)one_run(&ways[w], n, false);
            runs += 2;
            if (!reached)
                break;
        }
        assert_true(n > 1 && n < 10000); /* the fault was real, and the loop ended */
    }
    print_message("%u runs\n", runs);
}

/* A read that fails at start refuses or is read around; it never loses anything. */
static void every_read_fails(void **state)
{
    for (unsigned for_ever = 0; for_ever < 2; for_ever++) {
        for (uint64_t n = 1; n < 1000; n++) {
            struct pawl_io *io = pawl_io_sim_create(n);
            struct log_rig rig;
            rig_init(&rig, io, PAWL_IO_SIM_DIR);
            assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
            assert_true(rig_script(&rig));
            uint64_t acked = rig.acked;
            rig_close(&rig);
            uint64_t from = pawl_io_sim_operations(io, PAWL_IO_SIM_READ);
            pawl_io_sim_fail_at(io, PAWL_IO_SIM_READ, n, -EIO, for_ever);
            int rc = rig_open(&rig);
            bool reached = pawl_io_sim_operations(io, PAWL_IO_SIM_READ) - from >= n;
            if (rc == PAWL_LOG_OK)
                assert_null(rig_missing(&rig, acked));
            else
                assert_true(rc == PAWL_LOG_DAMAGE || rc == PAWL_LOG_CANNOT);
            rig_close(&rig);
            pawl_io_sim_fail_at(io, 0, 0, 0, false);
            assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
            assert_null(rig_missing(&rig, acked));
            rig_fini(&rig);
            io->ops->destroy(io);
            if (!reached)
                break;
            assert_true(n < 999);
        }
    }
}

/* S4, etcd#16596: power is cut at every operation of the first opening. */
static void making_a_log_is_all_or_nothing(void **state)
{
    uint32_t kinds = PAWL_IO_SIM_ALL;
    unsigned runs = 0;
    for (uint64_t n = 1;; n++) {
        bool reached = false;
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct pawl_io *io = pawl_io_sim_create(seed);
            struct pawl_io_sim_faults faults = {
                .latency_ns_min = 1, .latency_ns_max = 9, .zero_ppm = 100000, .garbage_ppm = 100000
            };
            pawl_io_sim_set_faults(io, &faults);
            struct log_rig rig;
            rig_init(&rig, io, PAWL_IO_SIM_DIR);
            pawl_io_sim_fail_at(io, kinds, n, -EIO, true); /* the power is gone from here on */
            int rc = rig_open(&rig);
            reached = pawl_io_sim_operations(io, kinds) >= n;
            bring_down(&rig, seed * 7919 + n, true);
            assert_true(reached ? true : rc == PAWL_LOG_OK);
            if (rig_open(&rig) != PAWL_LOG_OK)
                fail_msg("n=%" PRIu64 " seed=%" PRIu64 ": %s", n, seed, rig.text);
            assert_true(rig_fill(&rig, 3, 100, 1));
            bring_down(&rig, seed, true);
            assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
            assert_int_equal(rig.replayed_count, 3);
            rig_fini(&rig);
            io->ops->destroy(io);
            runs++;
        }
        if (!reached)
            break;
    }
    print_message("%u runs\n", runs);
}

/* A write that never completes holds durable where it is; the others go on being taken. */
static void stuck_write_is_never_passed(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(5);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_true(rig_fill(&rig, 2, 100, 1));
    rig_settle(&rig);
    uint64_t durable = pawl_log_durable(rig.log);
    pawl_io_sim_fail_at(io, PAWL_IO_SIM_WRITE, 1, PAWL_IO_SIM_STUCK, false);
    for (unsigned i = 0; i < rig.options.in_flight_max; i++) {
        assert_true(rig_append(&rig, 100));
        rig_seal(&rig);
    }
    assert_int_equal(pawl_log_in_flight(rig.log), rig.options.in_flight_max);
    for (unsigned i = 0; i < 30; i++)
        (void)rig_turn(&rig);
    assert_int_equal(pawl_log_durable(rig.log), durable);
    assert_false(pawl_log_failed(rig.log));
    assert_int_equal(rig.acked, 2);
    bring_down(&rig, 1, true);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_null(rig_missing(&rig, 2));
    rig_fini(&rig);
    io->ops->destroy(io);
}

/* L3, B-W10: nothing is lost or stuck for ever by a full disk; growing resumes by itself. */
static void full_disk_stops_growth_only(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(6);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    pawl_io_sim_set_capacity(io, 16384 + 3 * 65536 + 30000);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    pawl_log_want(rig.log, 1 << 20);
    for (unsigned i = 0; i < 200; i++)
        (void)rig_turn(&rig);
    assert_true(pawl_log_disk_full(rig.log));
    assert_false(pawl_log_may_grow(rig.log));
    assert_false(pawl_log_failed(rig.log));
    assert_int_equal(pawl_log_existing(rig.log), 3 * 65536);

    /* At most one try a second. */
    uint64_t tries = pawl_io_sim_operations(io, PAWL_IO_SIM_WRITE);
    uint64_t from = rig.boot_ns;
    while (rig.boot_ns - from < 5000000000ull)
        (void)rig_turn(&rig);
    assert_in_range(pawl_io_sim_operations(io, PAWL_IO_SIM_WRITE) - tries, 4, 6);

    /* What exists is used round and round. */
    for (unsigned i = 0; i < 100; i++) {
        assert_true(rig_fill(&rig, 5, 3000, 5));
        while (pawl_log_oldest_segment(rig.log) < pawl_log_newest_segment(rig.log))
            pawl_log_release_oldest(rig.log);
    }
    assert_int_equal(pawl_log_existing(rig.log), 3 * 65536);
    assert_true(pawl_log_newest_segment(rig.log) > 10);

    /* A start on a full disk works too. */
    uint64_t acked = rig.acked;
    bring_down(&rig, 3, true);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_null(rig_missing(&rig, acked));
    pawl_log_want(rig.log, 6 * 65536);
    for (unsigned i = 0; i < 50; i++)
        (void)rig_turn(&rig);
    assert_true(pawl_log_disk_full(rig.log));
    assert_true(rig_fill(&rig, 5, 3000, 5));

    pawl_io_sim_set_capacity(io, UINT64_MAX);
    for (unsigned i = 0; i < 3000; i++)
        (void)rig_turn(&rig);
    assert_false(pawl_log_disk_full(rig.log));
    assert_int_equal(pawl_log_existing(rig.log), 6 * 65536);
    assert_true(pawl_log_may_grow(rig.log));
    rig_fini(&rig);
    io->ops->destroy(io);
}

/* Until all segments are used and no block can be begun. */
static void fill_up(struct log_rig *rig)
{
    bool stuck = false;
    for (unsigned i = 0; i < 1000 && !stuck; i++) {
        unsigned turns = 0;
        while (pawl_log_room(rig->log) < 3000 && turns++ < 50) {
            rig_seal(rig);
            (void)rig_turn(rig);
        }
        stuck = pawl_log_room(rig->log) < 3000;
        if (!stuck)
            assert_true(rig_append(rig, 2900));
    }
    assert_true(stuck);
    assert_true(rig_flush(rig));
    assert_int_equal(pawl_log_room(rig->log), 0);
}

/* All segments are used and max_bytes is reached: a release alone, with nothing to write, must
 * bring room again. */
static void release_brings_room_at_the_limit(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(7);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.max_bytes = 4 * 65536;
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    fill_up(&rig);
    assert_false(pawl_log_may_grow(rig.log));
    assert_false(pawl_log_disk_full(rig.log));
    pawl_log_release_oldest(rig.log);
    for (unsigned i = 0; i < 20; i++)
        (void)rig_turn(&rig);
    assert_true(pawl_log_room(rig.log) > 3000);
    assert_int_equal(pawl_log_existing(rig.log), 4 * 65536);
    assert_true(rig_fill(&rig, 2, 2900, 1));
    rig_fini(&rig);
    io->ops->destroy(io);
}

/* Nothing can be released for want of room to copy into: one segment beyond the limit, once. */
static void one_segment_beyond_the_limit_is_for_copies(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(8);
    struct log_rig rig;
    rig_init(&rig, io, PAWL_IO_SIM_DIR);
    rig.options.max_bytes = 4 * 65536;
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    fill_up(&rig);
    pawl_log_rescue(rig.log);
    for (unsigned i = 0; i < 1000; i++) {
        (void)rig_turn(&rig);
        assert_false(pawl_log_may_grow(rig.log)); /* sends do not see it come */
    }
    assert_true(pawl_log_room(rig.log) > 3000);
    assert_int_equal(pawl_log_existing(rig.log), 5 * 65536);
    uint64_t acked = rig.acked;
    bring_down(&rig, 9, true);
    assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
    assert_null(rig_missing(&rig, acked));
    fill_up(&rig);
    pawl_log_rescue(rig.log);
    for (unsigned i = 0; i < 1000; i++)
        (void)rig_turn(&rig);
    assert_int_equal(pawl_log_existing(rig.log), 5 * 65536);
    assert_int_equal(pawl_log_room(rig.log), 0);
    rig_fini(&rig);
    io->ops->destroy(io);
}

int main(void)
{
    alarm(600);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_fails),
        cmocka_unit_test(every_read_fails),
        cmocka_unit_test(making_a_log_is_all_or_nothing),
        cmocka_unit_test(stuck_write_is_never_passed),
        cmocka_unit_test(full_disk_stops_growth_only),
        cmocka_unit_test(release_brings_room_at_the_limit),
        cmocka_unit_test(one_segment_beyond_the_limit_is_for_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
