/* SPDX-License-Identifier: MIT */
/* The shared regions of a lane, as made by the broker and as mapped by both: M1 M3-M6 M20 M21 P9.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/region.h"
#include "lib/unit.h"
#include "session/region_create.h"

#define DATA PAWL_RING_BYTES_MIN
#define NOEXEC_SEAL 0x0008u
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Stands before the one of libc: kernels that do not know a flag, or lose one. */
static unsigned refuse_flags, drop_flags;

int memfd_create(const char *name, unsigned flags)
{
    if (flags & refuse_flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_memfd_create, name, flags & ~drop_flags);
}

static int make(enum pawl_region_kind kind, struct pawl_region *region)
{
    int fd = -1;
    assert_int_equal(pawl_region_create(kind, DATA, &fd, region), 0);
    assert_true(fd >= 0);
    return fd;
}

static void the_data_area_is_there_twice_in_a_row(void **state)
{
    (void)state;
    struct pawl_region r;
    int fd = make(PAWL_REGION_COMP, &r);
    memcpy(r.data + DATA - 4, "12345678", 8); /* over the end */
    assert_memory_equal(r.data, "5678", 4);
    r.data[17] = 'x';
    assert_int_equal(r.data[DATA + 17], 'x');
    assert_ptr_equal(r.data, (uint8_t *)r.header + PAWL_REGION_HEADER_BYTES);
    pawl_region_unmap(&r);
    assert_null(r.header);
    pawl_region_unmap(&r); /* allowed */
    (void)close(fd);
}

static void fresh_memory_is_all_zero(void **state)
{
    (void)state;
    static const uint8_t zero[DATA];
    struct pawl_region r;
    int fd = make(PAWL_REGION_SUB, &r);
    assert_memory_equal(r.header, zero, PAWL_REGION_HEADER_BYTES);
    assert_memory_equal(r.data, zero, DATA);
    pawl_region_unmap(&r);
    (void)close(fd);
}

static void both_sides_see_one_memory(void **state)
{
    (void)state;
    struct pawl_region broker, client;
    int fd = make(PAWL_REGION_SUB, &broker);
    assert_int_equal(pawl_region_verify(fd, PAWL_REGION_SUB, DATA), 0);
    assert_int_equal(pawl_region_map(fd, DATA, PAWL_REGION_WRITE, &client), 0);
    memcpy(client.data + DATA - 3, "wrapped", 7);
    assert_memory_equal(broker.data + DATA - 3, "wrapped", 7);
    pawl_region_unmap(&broker);
    pawl_region_unmap(&client);
    (void)close(fd);
}

static void a_client_can_neither_write_nor_resize_nor_punch_what_the_broker_writes(void **state)
{
    (void)state;
    struct pawl_region broker, client;
    int fd = make(PAWL_REGION_COMP, &broker);
    assert_int_equal(pawl_region_verify(fd, PAWL_REGION_COMP, DATA), 0);
    assert_int_equal(pawl_region_map(fd, DATA, PAWL_REGION_WRITE, &client), -EPERM);
    assert_null(client.header);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    /* by another name, as M6 saw it */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        assert_int_equal(pawl_region_map(again, DATA, PAWL_REGION_WRITE, &client), -EPERM);
        assert_int_equal(pwrite(again, "x", 1, 0), -1);
        (void)close(again);
    }
    assert_int_equal(pawl_region_map(fd, DATA, 0, &client), 0);
    assert_int_equal(mprotect(client.header, 4096, PROT_READ | PROT_WRITE), -1);
    /* and the broker still can */
    memcpy(broker.data, "still", 5);
    assert_memory_equal(client.data, "still", 5);
    pawl_region_unmap(&client);
    pawl_region_unmap(&broker);
    (void)close(fd);
}

static void a_missing_seal_is_seen(void **state)
{
    (void)state;
    static const int all[] = { F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL };
    for (unsigned missing = 0; missing < 4; missing++) {
        int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(fd, (off_t)pawl_region_file_bytes(DATA)), 0);
        for (unsigned i = 0; i < 4; i++)
            if (i != missing)
                assert_int_equal(fcntl(fd, F_ADD_SEALS, all[i]), 0);
        assert_int_equal(pawl_region_verify(fd, PAWL_REGION_COMP, DATA), -EPERM);
        assert_int_equal(pawl_region_verify(fd, PAWL_REGION_SUB, DATA),
                         all[missing] == F_SEAL_FUTURE_WRITE ? 0 : -EPERM);
        (void)close(fd);
    }
}

static void another_size_and_another_kind_of_file_are_seen(void **state)
{
    (void)state;
    struct pawl_region r;
    int fd = make(PAWL_REGION_SUB, &r);
    assert_int_equal(pawl_region_verify(fd, PAWL_REGION_SUB, DATA * 2), -EBADMSG);
    assert_int_equal(pawl_region_verify(fd, PAWL_REGION_SUB, DATA / 2), -EBADMSG);
    pawl_region_unmap(&r);
    (void)close(fd);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_true(pawl_region_verify(pipes[0], PAWL_REGION_SUB, DATA) < 0);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    static const uint64_t wrong[] = { 0,         1,
                                      4096,      PAWL_RING_BYTES_MIN - 1,
                                      DATA + 1,  PAWL_RING_BYTES_MIN / 2,
                                      DATA * 3,  PAWL_RING_BYTES_MAX * 2ull,
                                      1ull << 63 };
    struct pawl_region r;
    int fd = make(PAWL_REGION_SUB, &r);
    pawl_region_unmap(&r);
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(pawl_region_map(fd, wrong[i], 0, &r), -EINVAL);
    (void)close(fd);
}

static void an_old_kernel_still_gives_sealed_memory(void **state)
{
    (void)state;
    struct pawl_region r;
    refuse_flags = NOEXEC_SEAL;
    int fd = make(PAWL_REGION_COMP, &r);
    refuse_flags = 0;
    assert_int_equal(pawl_region_verify(fd, PAWL_REGION_COMP, DATA), 0);
    pawl_region_unmap(&r);
    (void)close(fd);
}

static void memory_that_does_not_take_seals_is_not_served(void **state)
{
    (void)state;
    struct pawl_region r;
    int fd = -1;
    drop_flags = MFD_ALLOW_SEALING | NOEXEC_SEAL;
    assert_int_equal(pawl_region_create(PAWL_REGION_COMP, DATA, &fd, &r), -EPERM);
    assert_int_equal(fd, -1);
    assert_null(r.header);
    drop_flags = 0;
}

/* The child must not be able to touch the lane: exit code 128 + signal by the shell's rule. */
static void a_forked_child_has_no_mapping(void **state)
{
    (void)state;
    struct pawl_region r;
    int fd = make(PAWL_REGION_SUB, &r);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        int p[2];
        /* The kernel reads the address for us: EFAULT, without a signal that a sanitizer takes. */
        if (pipe(p) != 0)
            _exit(2);
        byte = write(p[1], r.data, 1) == -1 && errno == EFAULT ? 0 : 1;
        _exit(byte);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    pawl_region_unmap(&r);
    (void)close(fd);
}

static void the_layout_has_one_fingerprint(void **state)
{
    (void)state;
    assert_true(pawl_layout_fingerprint() != 0);
    assert_true(pawl_layout_fingerprint() == pawl_layout_fingerprint());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_data_area_is_there_twice_in_a_row),
        cmocka_unit_test(fresh_memory_is_all_zero),
        cmocka_unit_test(both_sides_see_one_memory),
        cmocka_unit_test(a_client_can_neither_write_nor_resize_nor_punch_what_the_broker_writes),
        cmocka_unit_test(a_missing_seal_is_seen),
        cmocka_unit_test(another_size_and_another_kind_of_file_are_seen),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(an_old_kernel_still_gives_sealed_memory),
        cmocka_unit_test(memory_that_does_not_take_seals_is_not_served),
        cmocka_unit_test(a_forked_child_has_no_mapping),
        cmocka_unit_test(the_layout_has_one_fingerprint),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
