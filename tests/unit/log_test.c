/* SPDX-License-Identifier: MIT */
/* The log on the real kinds of io: what was durable is there after a reopen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "lib/log_rig.h"

static struct pawl_io *make_io(bool uring)
{
    char why[256];
    struct pawl_io *io = uring ? pawl_io_uring_create(why) : pawl_io_posix_create(why);
    if (!io)
        print_message("skipped: %s\n", why);
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

int main(void)
{
    alarm(120);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_was_durable_on_uring),
        cmocka_unit_test(keeps_what_was_durable_on_posix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
