/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_HARNESS_H
#define PAWL_TESTS_HARNESS_H

/* What whole-system tests share: temporary directories, real pawld programs that are started,
 * killed and awaited, forked workers that report by exit code, shared counters, a watchdog.
 *
 * Everything that is started dies with the test program (PR_SET_PDEATHSIG), and every temporary
 * directory goes when it ends, unless PAWL_TEST_KEEP is set. All functions of this file that can
 * fail end the test program with a message: a harness that fails has no result to report. They are
 * for the main thread. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/prng.h"
#include "pawl.h"

/* --- the test program ------------------------------------------------------------------------ */

/* Call first. Starts the watchdog: after `seconds` the program says where it was and exits 124.
 * Prints the seed: PAWL_SEED, else a new one. */
void harness_begin(const char *name, unsigned seconds);
/* Where the program is, for the watchdog and for messages of harness_fail. */
void harness_step(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The seed of this run; each caller makes a generator of his own from it and a number. */
struct pawl_prng harness_prng(uint64_t number);
/* Ends the program: exit 77 with a reason, or exit 1 with a message. In a worker: its exit code is
 * the same. */
_Noreturn void harness_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void harness_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* In the test program and in workers (where cmocka's asserts must not be used). */
#define harness_check(e) ((void)((e) || (harness_fail("%s:%d: %s", __FILE__, __LINE__, #e), 0)))
#define harness_check_rc(call, want)                                               \
    do {                                                                           \
        int rc_ = (call), want_ = (want);                                          \
        if (rc_ != want_)                                                          \
            harness_fail("%s:%d: %s: %s instead of %s", __FILE__, __LINE__, #call, \
                         pawl_strname(rc_), pawl_strname(want_));                  \
    } while (0)

/* A number from the environment, for long and short cuts of a test. */
uint64_t harness_number(const char *variable, uint64_t otherwise);
uint64_t harness_clock(void); /* CLOCK_MONOTONIC, ns */
/* A new empty directory, removed at the end. The text lives as long as the program. */
const char *harness_dir(void);
/* A text that lives as long as the program: for paths. */
char *harness_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Zeroed memory that forked workers share with the test. */
void *harness_shared(size_t bytes);
/* Gives other processes a moment between two looks at a predicate that has no event of its own; the
 * watchdog bounds the whole. Never the only thing a test relies on. */
void harness_pause(void);
#define harness_until(predicate) \
    do {                         \
        while (!(predicate)) {   \
            harness_workers();   \
            harness_pause();     \
        }                        \
    } while (0)
/* Fails if a child that nobody has waited for ended with a code other than 0: a worker that failed
 * has said why, and nothing that it was to do will happen any more. */
void harness_workers(void);

/* --- brokers --------------------------------------------------------------------------------- */

#define HARNESS_ARGS_MAX 16

struct harness_broker {
    char dir[160];
    char socket[400];                       /* "": dir/pawl.sock */
    const char *args[HARNESS_ARGS_MAX + 1]; /* further options of pawld */
    int (*before_exec)(void *ctx);          /* in the child; non-zero: exit 126 */
    void *before_ctx;
    pid_t pid;      /* 0: not running */
    char log[400];  /* file with what it said on stderr in all its lives */
    long life;      /* offset in it where this life begins */
    bool notified;  /* it said READY=1 to systemd */
    uint64_t up_ns; /* from fork to ready */
};

/* Fills *b for a fresh directory (or `dir`, if not NULL) with small segments, so that tests turn
 * many of them. */
void harness_broker_init(struct harness_broker *b, const char *dir);
void harness_broker_arg(struct harness_broker *b, const char *arg);
/* Starts it and waits until it says that it is ready: 0. If it ends before that: its exit code (128
 * + signal), pid 0. */
int harness_broker_try(struct harness_broker *b);
void harness_broker_start(struct harness_broker *b); /* must get ready */
/* Sends a signal, waits for the end; returns as harness_wait. */
int harness_broker_end(struct harness_broker *b, int signal);
void harness_broker_kill(struct harness_broker *b); /* SIGKILL */
void harness_broker_stop(struct harness_broker *b); /* SIGTERM, must exit 0 */
/* SIGKILL and start again. */
void harness_broker_restart(struct harness_broker *b);
/* Did it say this on stderr since its last start? */
bool harness_broker_said(const struct harness_broker *b, const char *text);
/* Prints what it said, for a failing test. */
void harness_broker_show(const struct harness_broker *b);
/* The path of a program of this build: "pawld", "pawl". */
const char *harness_program(const char *name);
/* What its process has: 0 if it cannot be told. */
uint64_t harness_rss(pid_t pid);
uint64_t harness_fds(pid_t pid);
uint64_t harness_cpu_ns(pid_t pid);

/* For before_exec: io_uring_setup is refused with EPERM, as containers do it. */
int harness_deny_uring(void *ctx);

/* --- workers --------------------------------------------------------------------------------- */

/* A child that runs body(arg) and exits with what that returns. */
pid_t harness_fork(int (*body)(void *arg), void *arg);
int harness_wait(pid_t pid); /* its exit code, or 128 + signal */
void harness_signal(pid_t pid, int signal);
/* SIGSTOP, and returns when it has stopped. */
void harness_freeze(pid_t pid);

/* --- clients --------------------------------------------------------------------------------- */

/* Opens a lane to this broker with a time-out of 30 s. */
struct pawl *harness_open(const struct harness_broker *b);
struct pawl *harness_open_with(const struct harness_broker *b, struct pawl_options *options);
/* Makes a queue with small differences from the defaults. mode: enum pawl_mode. */
void harness_queue(struct pawl *lane, const char *name, uint32_t mode, uint64_t lease_ns);
struct pawl_queue_stat harness_stat(struct pawl *lane, const char *name);
uint64_t harness_send(struct pawl *lane, const char *queue, const char *text); /* id */
/* Receives one message within `wait_ns` and compares its text. */
struct pawl_token harness_receive(struct pawl *lane, const char *queue, uint64_t wait_ns,
                                  const char *text);

#endif
