/* SPDX-License-Identifier: MIT */
/* Slot files: made ahead of need, reused only when a durable block says so, given room and refused
 * it. White box: looks at the table of slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "io/sim.h"
#include "lib/log_rig.h"
#include "log/log_inner.h"

struct bench {
    struct pawl_io *io;
    struct log_rig rig;
};

static void begin(struct bench *b, uint64_t max_bytes)
{
    b->io = pawl_io_sim_create(9);
    rig_init(&b->rig, b->io, PAWL_IO_SIM_DIR);
    b->rig.options.max_bytes = max_bytes;
    assert_int_equal(rig_open(&b->rig), PAWL_LOG_OK);
}

static void end(struct bench *b)
{
    rig_fini(&b->rig);
    b->io->ops->destroy(b->io);
}

static void the_next_segment_is_there_before_it_is_needed(void **state)
{
    struct bench b;
    begin(&b, 1 << 20);
    assert_int_equal(pawl_log_existing(b.rig.log), 65536);
    rig_settle(&b.rig);
    assert_int_equal(pawl_log_existing(b.rig.log), 2 * 65536);
    assert_true(b.rig.log->next != PAWL_NONE32);
    uint64_t bytes;
    const uint8_t *p = pawl_io_sim_file(b.io, "000002.seg", &bytes);
    assert_int_equal(bytes, 65536);
    enum pawl_verdict v;
    assert_int_equal(pawl_block_claim(&b.rig.log->id, p, 65536, &v), 0);
    assert_int_equal(v, PAWL_VERDICT_READY);
    for (uint64_t i = 4096; i < bytes; i++)
        assert_int_equal(p[i], 0);
    end(&b);
}

static void growth_is_by_want_and_stops_at_the_limit(void **state)
{
    struct bench b;
    begin(&b, 6 * 65536);
    pawl_log_want(b.rig.log, 4 * 65536);
    rig_settle(&b.rig);
    assert_int_equal(pawl_log_existing(b.rig.log), 4 * 65536);
    assert_true(pawl_log_may_grow(b.rig.log));
    pawl_log_want(b.rig.log, 100 * 65536);
    rig_settle(&b.rig);
    assert_int_equal(pawl_log_existing(b.rig.log), 6 * 65536);
    assert_false(pawl_log_may_grow(b.rig.log));
    assert_false(pawl_log_disk_full(b.rig.log));
    rig_close(&b.rig);
    /* A smaller limit later gives nothing up. */
    b.rig.options.max_bytes = 3 * 65536;
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_int_equal(pawl_log_existing(b.rig.log), 6 * 65536);
    assert_false(pawl_log_may_grow(b.rig.log));
    assert_true(rig_fill(&b.rig, 40, 3000, 4));
    assert_int_equal(pawl_log_existing(b.rig.log), 6 * 65536);
    end(&b);
}

static void only_what_is_written_stays_open(void **state)
{
    struct bench b;
    begin(&b, 1 << 20);
    pawl_log_want(b.rig.log, 1 << 20);
    rig_settle(&b.rig);
    assert_true(rig_fill(&b.rig, 40, 3000, 4));
    rig_settle(&b.rig);
    unsigned open = 0;
    for (uint32_t i = 0; i < b.rig.log->slot_count; i++)
        open += b.rig.log->slot[i].fd >= 0;
    assert_true(b.rig.log->slot_count == 16);
    assert_true(open <= 2);
    end(&b);
}

/* Between a release and the durable block that says so, the slot holds what recovery needs. */
static void released_slot_waits_for_a_durable_block(void **state)
{
    struct bench b;
    begin(&b, 4 * 65536);
    assert_true(rig_fill(&b.rig, 30, 3000, 1));
    rig_settle(&b.rig);
    struct pawl_log *log = b.rig.log;
    assert_true(pawl_log_newest_segment(log) >= 2);
    uint64_t oldest = pawl_log_oldest_segment(log);
    pawl_log_release_oldest(log);
    assert_int_equal(pawl_log_oldest_segment(log), oldest + 1);
    assert_int_equal(log->oldest_durable, oldest);
    /* The block that says so is written, but never completes. */
    pawl_io_sim_fail_at(b.io, PAWL_IO_SIM_WRITE, 1, PAWL_IO_SIM_STUCK, false);
    assert_true(rig_append(&b.rig, 100));
    rig_seal(&b.rig);
    for (unsigned i = 0; i < 20; i++)
        (void)rig_turn(&b.rig);
    assert_int_equal(log->oldest_durable, oldest);
    for (uint32_t i = 0; i < log->slot_count; i++)
        if (log->slot[i].state == PAWL_SLOT_HOLDS && log->slot[i].segment == oldest)
            assert_true(i != log->next);
    pawl_io_sim_crash(b.io, 1);
    rig_close(&b.rig);
    pawl_io_sim_restart(b.io);
    assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
    assert_null(rig_missing(&b.rig, 30));
    end(&b);
}

/* A half-made slot is gone on with, or made again; never taken as it is. */
static void half_made_slot_is_filled_again(void **state)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct bench b;
        begin(&b, 1 << 20);
        struct pawl_io_sim_faults faults = { .latency_ns_min = 1000000,
                                             .latency_ns_max = 1000000,
                                             .garbage_ppm = 300000 };
        pawl_io_sim_set_faults(b.io, &faults);
        pawl_log_want(b.rig.log, 3 * 65536);
        pawl_log_tend(b.rig.log, 1);
        for (uint64_t i = 0; i < seed % 14; i++)
            (void)b.io->ops->wait(b.io, 700000);
        pawl_io_sim_crash(b.io, seed);
        rig_close(&b.rig);
        pawl_io_sim_restart(b.io);
        assert_int_equal(rig_open(&b.rig), PAWL_LOG_OK);
        pawl_log_want(b.rig.log, 3 * 65536);
        for (unsigned i = 0; i < 100; i++)
            (void)rig_turn(&b.rig);
        assert_int_equal(pawl_log_existing(b.rig.log), 3 * 65536);
        for (unsigned f = 2; f <= 3; f++) {
            char name[16];
            uint64_t bytes;
            pawl_slot_name(name, f);
            const uint8_t *p = pawl_io_sim_file(b.io, name, &bytes);
            assert_non_null(p);
            assert_int_equal(bytes, 65536);
            for (uint64_t i = 4096; i < bytes; i++)
                assert_int_equal(p[i], 0);
        }
        end(&b);
    }
}

/* A file of ours that fails for another reason than room fails the log. */
static void broken_disk_under_a_new_slot_fails_the_log(void **state)
{
    for (uint64_t n = 1; n <= 3; n++) {
        struct bench b;
        begin(&b, 1 << 20);
        pawl_io_sim_fail_at(b.io, PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, n, -EIO, false);
        for (unsigned i = 0; i < 30; i++)
            (void)rig_turn(&b.rig);
        assert_true(pawl_log_failed(b.rig.log));
        assert_non_null(strstr(pawl_log_failure(b.rig.log), "000002.seg"));
        end(&b);
    }
}

/* L2: no descriptors left is a matter of time, not of damage. */
static void no_descriptor_is_tried_again(void **state)
{
    struct bench b;
    begin(&b, 4 * 65536);
    assert_true(rig_fill(&b.rig, 30, 3000, 1));
    while (pawl_log_oldest_segment(b.rig.log) < pawl_log_newest_segment(b.rig.log))
        pawl_log_release_oldest(b.rig.log);
    pawl_io_sim_fail_at(b.io, PAWL_IO_SIM_OPEN, 1, -EMFILE, true);
    for (unsigned i = 0; i < 200; i++) {
        if (rig_append(&b.rig, 3000))
            rig_seal(&b.rig);
        (void)rig_turn(&b.rig);
    }
    assert_false(pawl_log_failed(b.rig.log));
    assert_int_equal(pawl_log_room(b.rig.log), 0);
    pawl_io_sim_fail_at(b.io, 0, 0, 0, false);
    for (unsigned i = 0; i < 3000 && pawl_log_room(b.rig.log) == 0; i++)
        (void)rig_turn(&b.rig);
    assert_true(pawl_log_room(b.rig.log) > 0);
    assert_true(rig_fill(&b.rig, 10, 3000, 1));
    end(&b);
}

/* The first block of a segment goes alone, and the head names it before anything counts. */
static void segment_begins_alone_and_with_its_head(void **state)
{
    struct bench b;
    begin(&b, 1 << 20);
    rig_settle(&b.rig);
    struct pawl_log *log = b.rig.log;
    unsigned changes = 0;
    for (unsigned i = 0; i < 200; i++) {
        uint64_t newest = pawl_log_newest_segment(log);
        bool room = rig_append(&b.rig, 5000);
        rig_seal(&b.rig);
        if (pawl_log_newest_segment(log) != newest) {
            changes++;
            assert_int_equal(pawl_log_in_flight(log), 1);
            uint64_t first = log->tail, durable = pawl_log_durable(log);
            assert_true(durable <= newest * 65536 + 65536);
            if (rig_append(&b.rig, 100))
                rig_seal(&b.rig);
            assert_int_equal(log->tail, first); /* nothing else is sent */
            while (pawl_log_durable(log) == durable) {
                assert_true(log->opening_segment);
                (void)b.io->ops->wait(b.io, 1000000);
            }
            /* Now it counts, and the head knows. */
            uint64_t bytes, position = 0;
            const uint8_t *p = pawl_io_sim_file(b.io, "head", &bytes);
            for (unsigned page = 0; page < 2; page++) {
                const struct pawl_head_rec *head = (const void *)(p + page * 4096);
                position = head->position > position ? head->position : position;
            }
            assert_int_equal(position, first);
        }
        if (!room)
            (void)rig_turn(&b.rig);
        while (pawl_log_oldest_segment(log) + 2 < pawl_log_newest_segment(log))
            pawl_log_release_oldest(log);
    }
    assert_true(changes > 5);
    end(&b);
}

int main(void)
{
    alarm(120);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_segment_is_there_before_it_is_needed),
        cmocka_unit_test(growth_is_by_want_and_stops_at_the_limit),
        cmocka_unit_test(only_what_is_written_stays_open),
        cmocka_unit_test(released_slot_waits_for_a_durable_block),
        cmocka_unit_test(half_made_slot_is_filled_again),
        cmocka_unit_test(broken_disk_under_a_new_slot_fails_the_log),
        cmocka_unit_test(no_descriptor_is_tried_again),
        cmocka_unit_test(segment_begins_alone_and_with_its_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
