/* SPDX-License-Identifier: MIT */
/* As in containers: a /dev/shm of 64 KiB, and broker or client in a pid namespace of its own, where
 * process ids mean nothing to the other side (hazards M2, M14, M15; B-M06). */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/load.h"
#include "lib/space.h"

static struct harness_broker broker;

static void tiny_shm(void)
{
    struct load_report r;
    struct stat st;
    struct load_options o = { .queue = "shm",
                              .producers = 2,
                              .consumers = 2,
                              .broker_kills = 2,
                              .client_kills = 4,
                              .step = 400,
                              .body_max = 60000,
                              .lease_ns = PAWL_NS_S,
                              .number = 1 };
    harness_step("tiny /dev/shm");
    if (stat("/dev/shm", &st) == 0)
        space_tmpfs("/dev/shm", 65536);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    load_run(&broker, &o, &r);
    load_print("64 KiB of /dev/shm", &r);
    harness_broker_stop(&broker);
}

/* --- pid namespaces ----------------------------------------------------------------------------
 */

static uint32_t *flag;

static int hold(void *arg)
{
    (void)arg;
    struct pawl *lane = harness_open(&broker);
    (void)harness_receive(lane, "pids", 30 * PAWL_NS_S, "x");
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    while (getpid() != 0)
        pause();
    return 0;
}

/* The same, as the first process of a new pid namespace; it dies with this one. */
static int hold_as_pid_1(void *arg)
{
    if (unshare(CLONE_NEWPID) != 0)
        return 78;
    pid_t pid = harness_fork(hold, arg);
    return harness_wait(pid) == 128 + SIGKILL ? 0 : 1;
}

static int new_pid_namespace(void *ctx)
{
    (void)ctx;
    /* pawld itself must be in it: a process enters with its children only, so one stands between.
     */
    if (unshare(CLONE_NEWPID | CLONE_NEWIPC) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return -1;
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0)
        return 0; /* goes on to exec */
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* A lease of twelve hours is free again soon after its holder is killed. */
static void lease_is_free_after_death(int (*body)(void *))
{
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "pids", PAWL_DURABLE, PAWL_LEASE_NS_MAX);
    (void)harness_send(lane, "pids", "x");
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    pid_t pid = harness_fork(body, NULL);
    harness_until(__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 1);
    harness_check(harness_stat(lane, "pids").leased == 1);
    uint64_t begin = harness_clock();
    harness_signal(pid, SIGKILL);
    (void)harness_wait(pid);
    struct pawl_token t = harness_receive(lane, "pids", 60 * PAWL_NS_S, "x");
    printf("free %.1f ms after the death\n", (double)(harness_clock() - begin) / 1e6);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
}

static void client_in_its_own_namespace(void)
{
    harness_step("client in a pid namespace");
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    lease_is_free_after_death(hold_as_pid_1);
    harness_broker_stop(&broker);
}

static void broker_in_its_own_namespace(void)
{
    harness_step("broker in a pid namespace");
    harness_broker_init(&broker, NULL);
    broker.before_exec = new_pid_namespace;
    harness_broker_start(&broker);
    lease_is_free_after_death(hold);
    /* The process that we know stands between; its end takes the broker along. */
    (void)harness_broker_end(&broker, SIGKILL);
}

int main(void)
{
    harness_begin("namespace_test", 120);
    space_private();
    flag = harness_shared(4096);
    tiny_shm();
    client_in_its_own_namespace();
    broker_in_its_own_namespace();
    return 0;
}
