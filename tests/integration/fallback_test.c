/* SPDX-License-Identifier: MIT */
/* Where io_uring is forbidden pawld starts all the same, says so in one line, and promises the same
 * (hazards U7; B-P05). A seccomp filter refuses the system call as containers do; the sysctl
 * kernel.io_uring_disabled gives the same error, but to the whole machine. */
#include <string.h>

#include "lib/load.h"

static void io_is(const struct harness_broker *b, const char *io)
{
    struct pawl *lane = harness_open(b);
    struct pawl_broker_info info = { .size = sizeof info };
    harness_check_rc(pawl_info(lane, &info), PAWL_OK);
    if (strcmp(info.io, io) != 0)
        harness_fail("io is %s, not %s", info.io, io);
    pawl_close(lane);
}

static void load(struct harness_broker *b, const char *queue, uint32_t mode, uint32_t kills)
{
    struct load_report r;
    struct load_options o = { .queue = queue,
                              .mode = mode,
                              .producers = 2,
                              .consumers = 2,
                              .broker_kills = kills,
                              .client_kills = 4,
                              .freezes = 1,
                              .step = 300,
                              .body_max = 3000,
                              .lease_ns = 500 * PAWL_NS_MS,
                              .number = kills + mode };
    load_run(b, &o, &r);
    load_print(queue, &r);
}

int main(void)
{
    struct harness_broker b;
    harness_begin("fallback_test", 120);
    harness_step("denied");
    harness_broker_init(&b, NULL);
    b.before_exec = harness_deny_uring;
    harness_broker_start(&b);
    io_is(&b, "posix");
    harness_check(harness_broker_said(&b, "io_uring"));
    load(&b, "durable", PAWL_DURABLE, 5);
    load(&b, "relaxed", PAWL_RELAXED, 0);
    load(&b, "memory", PAWL_MEMORY, 0);
    harness_broker_stop(&b);

    harness_step("demanded");
    harness_broker_arg(&b, "--io");
    harness_broker_arg(&b, "uring");
    harness_check(harness_broker_try(&b) == 1);
    harness_check(harness_broker_said(&b, "io_uring"));

    /* The same directory by io_uring, then by choice without. */
    harness_step("allowed");
    struct harness_broker c;
    harness_broker_init(&c, b.dir);
    harness_broker_start(&c);
    struct pawl *lane = harness_open(&c);
    struct pawl_broker_info info = { .size = sizeof info };
    harness_check_rc(pawl_info(lane, &info), PAWL_OK);
    printf("left alone it takes %s\n", info.io);
    harness_check(harness_stat(lane, "durable").done > 0);
    (void)harness_send(lane, "durable", "over");
    pawl_close(lane);
    harness_broker_kill(&c);
    harness_broker_arg(&c, "--io");
    harness_broker_arg(&c, "posix");
    harness_broker_start(&c);
    io_is(&c, "posix");
    lane = harness_open(&c);
    struct pawl_token t = harness_receive(lane, "durable", PAWL_NS_S, "over");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
    harness_broker_stop(&c);
    return 0;
}
