/* SPDX-License-Identifier: MIT */
/* The simulated disk keeps what sim.h says: who trusts its crashes must be able to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "io/sim.h"

struct call {
    struct pawl_io_op op;
    int result;
    unsigned times;
};
static void called(struct pawl_io_op *op, int result)
{
    struct call *c = PAWL_CONTAINER(op, struct call, op);
    c->result = result;
    c->times++;
}

static const _Alignas(4096) uint8_t ones[16384] = { 1 };
static _Alignas(4096) uint8_t page[4096];

static int open_file(struct pawl_io *io, const char *name)
{
    bool direct;
    return io->ops->file_open(io, PAWL_IO_SIM_DIR, name, O_RDWR | O_CREAT, 0600, true, &direct);
}

static int write_now(struct pawl_io *io, int fd, const void *data, size_t bytes, uint64_t offset,
                     bool durable)
{
    struct call c = { .op.done = called };
    io->ops->write(io, &c.op, fd, data, bytes, offset, durable);
    assert_int_equal(c.times, 0);
    while (c.times == 0)
        if (io->ops->wait(io, UINT64_MAX) < 0)
            return -1;
    return c.result;
}

static void down(struct pawl_io *io, uint64_t seed)
{
    pawl_io_sim_crash(io, seed);
    (void)io->ops->wait(io, 0);
    pawl_io_sim_restart(io);
}

static enum pawl_io_sim_fate all_old(void *ctx, uint64_t index) { return PAWL_IO_SIM_OLD; }
static bool no_name(void *ctx, uint64_t index) { return false; }
static void worst(struct pawl_io *io)
{
    struct pawl_io_sim_choice choice = { .sector = all_old, .name = no_name };
    pawl_io_sim_crash_by(io, &choice);
    (void)io->ops->wait(io, 0);
    pawl_io_sim_restart(io);
}

static void only_flushed_bytes_and_names_survive_the_worst(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(1);
    int a = open_file(io, "a"), b = open_file(io, "b");
    assert_int_equal(write_now(io, a, ones, 4096, 0, true), 0);
    assert_int_equal(write_now(io, a, ones, 4096, 4096, false), 0);
    assert_int_equal(write_now(io, b, ones, 4096, 0, true), 0);
    assert_int_equal(io->ops->file_flush(io, PAWL_IO_SIM_DIR), 0);
    (void)open_file(io, "c");
    assert_int_equal(io->ops->file_rename(io, PAWL_IO_SIM_DIR, "b", "d"), 0);
    assert_int_equal(pawl_io_sim_unflushed(io), 8);
    worst(io);
    uint64_t bytes;
    uint8_t *p = pawl_io_sim_file(io, "a", &bytes);
    assert_true(bytes == 4096 || bytes == 8192); /* it may have grown; then with zeros */
    assert_memory_equal(p, ones, 4096);
    for (uint64_t i = 4096; i < bytes; i++)
        assert_int_equal(p[i], 0);
    assert_non_null(pawl_io_sim_file(io, "b", &bytes));
    assert_null(pawl_io_sim_file(io, "c", &bytes));
    assert_null(pawl_io_sim_file(io, "d", &bytes));
    io->ops->destroy(io);
}

static void a_flush_covers_its_file_alone(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(1);
    int a = open_file(io, "a"), b = open_file(io, "b");
    (void)io->ops->file_flush(io, PAWL_IO_SIM_DIR);
    (void)write_now(io, a, ones, 8192, 0, false);
    (void)write_now(io, b, ones, 4096, 0, false);
    struct call f = { .op.done = called };
    io->ops->flush(io, &f.op, a);
    assert_int_equal(io->ops->wait(io, UINT64_MAX), 1);
    assert_int_equal(f.result, 0);
    assert_int_equal(pawl_io_sim_unflushed(io), 8);
    worst(io);
    uint64_t bytes;
    assert_memory_equal(pawl_io_sim_file(io, "a", &bytes), ones, 8192);
    assert_int_equal(bytes, 8192);
    uint8_t *p = pawl_io_sim_file(io, "b", &bytes);
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(p[i], 0);
    io->ops->destroy(io);
}

static void crash_by_seed_meets_every_fate(void **state)
{
    struct pawl_io_sim_counts sum = { 0 }, c;
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct pawl_io *io = pawl_io_sim_create(seed);
        struct pawl_io_sim_faults faults = { .zero_ppm = 100000, .garbage_ppm = 100000 };
        pawl_io_sim_set_faults(io, &faults);
        int a = open_file(io, "a");
        (void)open_file(io, "b");
        (void)write_now(io, a, ones, 16384, 0, false);
        down(io, seed);
        pawl_io_sim_counts(io, &c);
        assert_int_equal(c.sectors_kept + c.sectors_lost + c.sectors_zeroed + c.sectors_garbage,
                         32);
        assert_int_equal(c.names_kept + c.names_lost, 2);
        sum.sectors_kept += c.sectors_kept;
        sum.sectors_lost += c.sectors_lost;
        sum.sectors_zeroed += c.sectors_zeroed;
        sum.sectors_garbage += c.sectors_garbage;
        sum.names_kept += c.names_kept;
        sum.names_lost += c.names_lost;
        io->ops->destroy(io);
    }
    assert_true(sum.sectors_kept > 100 && sum.sectors_lost > 100);
    assert_true(sum.sectors_zeroed > 50 && sum.sectors_garbage > 50);
    assert_true(sum.names_kept > 10 && sum.names_lost > 10);
}

static void a_kill_keeps_what_was_completed(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(2);
    int a = open_file(io, "a");
    (void)write_now(io, a, ones, 4096, 0, false);
    struct call c = { .op.done = called };
    io->ops->write(io, &c.op, a, ones, 4096, 4096, true);
    pawl_io_sim_kill(io, 3);
    assert_int_equal(io->ops->wait(io, 0), 1);
    assert_int_equal(c.result, -EIO);
    bool direct;
    assert_int_equal(io->ops->file_open(io, PAWL_IO_SIM_DIR, "a", O_RDWR, 0, true, &direct), -EIO);
    pawl_io_sim_restart(io);
    a = open_file(io, "a");
    assert_int_equal(io->ops->file_read(io, a, page, 4096, 0), 4096);
    assert_memory_equal(page, ones, 4096);
    assert_true(pawl_io_sim_unflushed(io) >= 8);
    io->ops->destroy(io);
}

static void time_jumps_to_what_is_due(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(2);
    struct pawl_io_sim_faults faults = { .latency_ns_min = 1000, .latency_ns_max = 1000 };
    pawl_io_sim_set_faults(io, &faults);
    int a = open_file(io, "a");
    struct call c = { .op.done = called };
    assert_int_equal(pawl_io_sim_next(io), UINT64_MAX);
    io->ops->write(io, &c.op, a, ones, 4096, 0, true);
    assert_int_equal(pawl_io_sim_next(io), 1000);
    assert_int_equal(io->ops->wait(io, 0), 0);
    assert_int_equal(io->ops->wait(io, 400), 0);
    assert_int_equal(pawl_io_sim_now(io), 400);
    assert_int_equal(io->ops->wait(io, UINT64_MAX), 1);
    assert_int_equal(pawl_io_sim_now(io), 1000);
    pawl_io_sim_set_now(io, 5000);
    assert_int_equal(io->ops->wait(io, 0), 0);
    assert_int_equal(io->ops->wait(io, UINT64_MAX), -EDEADLK);
    io->ops->destroy(io);
}

static void a_full_disk_takes_a_part(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(2);
    int a = open_file(io, "a");
    pawl_io_sim_set_capacity(io, 6000);
    assert_int_equal(write_now(io, a, ones, 4096, 0, true), 0);
    assert_int_equal(write_now(io, a, ones, 4096, 4096, true), -ENOSPC);
    assert_true(io->ops->file_size(io, a) < 8192);
    assert_int_equal(write_now(io, a, ones, 4096, 0, true), 0); /* what is there can be rewritten */
    pawl_io_sim_set_capacity(io, UINT64_MAX);
    assert_int_equal(write_now(io, a, ones, 4096, 4096, true), 0);
    io->ops->destroy(io);
}

static void the_nth_operation_fails_once_or_for_ever(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(2);
    int a = open_file(io, "a");
    pawl_io_sim_fail_at(io, PAWL_IO_SIM_WRITE, 2, -EDQUOT, false);
    assert_int_equal(write_now(io, a, ones, 4096, 0, true), 0);
    assert_int_equal(write_now(io, a, ones, 4096, 0, true), -EDQUOT);
    assert_int_equal(write_now(io, a, ones, 4096, 0, true), 0);
    pawl_io_sim_fail_at(io, PAWL_IO_SIM_WRITE, 1, -EIO, true);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(write_now(io, a, ones, 4096, 0, true), -EIO);
    assert_int_equal(io->ops->file_flush(io, a), 0);
    assert_int_equal(pawl_io_sim_operations(io, PAWL_IO_SIM_WRITE), 6);
    io->ops->destroy(io);
}

static uint64_t run_of(uint64_t seed)
{
    struct pawl_io *io = pawl_io_sim_create(seed);
    struct pawl_io_sim_faults faults = { .latency_ns_min = 1,
                                         .latency_ns_max = 100000,
                                         .split_ppm = 300000,
                                         .error_ppm = 50000,
                                         .error = -EIO,
                                         .garbage_ppm = 100000 };
    pawl_io_sim_set_faults(io, &faults);
    int a = open_file(io, "a");
    struct call c[20] = { 0 };
    for (unsigned i = 0; i < 20; i++) {
        c[i].op.done = called;
        io->ops->write(io, &c[i].op, a, ones, 8192, i * 4096, i % 3 == 0);
        (void)io->ops->wait(io, 10000);
    }
    down(io, seed);
    uint64_t digest = pawl_io_sim_digest(io) ^ pawl_io_sim_now(io);
    io->ops->destroy(io);
    return digest;
}

static void the_same_seed_gives_the_same_disk(void **state)
{
    for (uint64_t seed = 1; seed < 20; seed++)
        assert_true(run_of(seed) == run_of(seed));
    assert_true(run_of(1) != run_of(2));
}

int main(void)
{
    alarm(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_flushed_bytes_and_names_survive_the_worst),
        cmocka_unit_test(a_flush_covers_its_file_alone),
        cmocka_unit_test(crash_by_seed_meets_every_fate),
        cmocka_unit_test(a_kill_keeps_what_was_completed),
        cmocka_unit_test(time_jumps_to_what_is_due),
        cmocka_unit_test(a_full_disk_takes_a_part),
        cmocka_unit_test(the_nth_operation_fails_once_or_for_ever),
        cmocka_unit_test(the_same_seed_gives_the_same_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
