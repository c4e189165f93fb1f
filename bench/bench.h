/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_BENCH_H
#define PAWL_BENCH_BENCH_H

/* The harness of pawl-bench: processes, brokers of its own, phases of the machine, results.
 *
 * A run is one guardian process and one worker. The worker runs the scenarios one after the other;
 * whatever it starts dies with it (PR_SET_PDEATHSIG, and its process group), and the guardian then
 * removes the directory. A scenario that fails calls bench_fail(): a benchmark has no use for half
 * a result. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "histogram.h"
#include "pawl.h"

#define BENCH_REPEATS_MAX 31u
#define BENCH_PATH_BYTES 512u
#define BENCH_EXTRA_MAX 16u
#define BENCH_PROCESSES_MAX 32u

/* What the user asked for; constant once the scenarios run. */
struct bench {
    bool small;                   /* seconds in all, for `make check`: figures mean little */
    bool json;                    /* one line of JSON a result on stdout, the table on stderr */
    uint32_t repeats;             /* kept ones, 1..BENCH_REPEATS_MAX */
    uint32_t cores;               /* that this process may use: the affinity it was started with */
    int broker_core, client_core; /* -1: wherever the kernel puts it */
    int disk_core;                /* takes the disk's interrupts; -1: not found out */
    const char *only;             /* run cases whose name holds this; NULL: all */
    uint64_t recover_bytes;       /* log size of `recover` */
    uint32_t modes;               /* of `latency`: 1u << enum pawl_mode */
    uint32_t body_bytes;          /* of `latency` */
    uint32_t processes;           /* of `latency`: pairs of clients */
    uint64_t rate;                /* of `latency`, messages a second; 0: several */
    const char *plot;             /* file for the picture; NULL: none */
    uint64_t delayed;             /* messages of `timers` */
    uint32_t window, credit;      /* of `throughput` */
    double seconds;               /* one measurement of a rate */
    char dir[BENCH_PATH_BYTES];   /* of this run, on the disk to be measured */
    char pawld[BENCH_PATH_BYTES]; /* the program */
    const char *extra[BENCH_EXTRA_MAX]; /* options handed on to every broker */
    uint32_t extra_count;
};

/* --- host.c: the machine --------------------------------------------------------------------- */

uint64_t bench_now(void);  /* CLOCK_MONOTONIC, ns; comparable between the processes of the host */
uint64_t bench_wall(void); /* CLOCK_REALTIME, ns */
void bench_pause(uint64_t ns);
/* Cores that this process was started with, and the i-th of them. */
uint32_t bench_cores(void);
int bench_core(uint32_t i);
bool bench_core_allowed(int core);
/* -1: on any core that the process was started with. Pins the calling thread. */
void bench_pin(int core);
/* The core whose interrupt count grew most while `dir` was written to, or -1. */
int bench_disk_core(const char *dir);
uint64_t bench_cpu_ns(pid_t pid);    /* processor time used so far, all its threads */
uint64_t bench_rss_bytes(pid_t pid); /* resident memory */
/* Machine, kernel, commit, placement: the head of the table, or a JSON line of bench "host". */
void bench_header(const struct bench *b);

/* One phase of the machine (limits.md of the measurements): how far apart the two cores are just
 * now, and how fast they copy. */
struct bench_phase {
    double hop_ns;   /* 0 with one core */
    double copy_gbs; /* a 4 MiB copy */
};
void bench_phase_probe(const struct bench *b, struct bench_phase *out);

/* Repeats. A repeat between whose probes the cores were far apart is thrown away and run again, up
 * to twice the wanted number in all; then it is kept and counted as far.
 *     struct bench_repeats r = { 0 };
 *     while (bench_repeat_next(b, &r)) { measure(); if (bench_repeat_keep(b, &r)) add(); } */
struct bench_repeats {
    uint32_t kept, tried, far;
    struct bench_phase before, after;
};
bool bench_repeat_next(const struct bench *b, struct bench_repeats *r);
bool bench_repeat_keep(const struct bench *b, struct bench_repeats *r);

/* --- guard.c: the whole run ------------------------------------------------------------------- */

/* The broker beside this program. */
void bench_find_pawld(struct bench *b);
/* Makes b->dir, runs work(arg) in a process of its own, and removes what is left of both. Returns
 * the exit code. */
int bench_run(struct bench *b, const char *parent_dir, void (*work)(void *arg), void *arg);

/* --- process.c: children, brokers, clients --------------------------------------------------- */

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Zeroed memory that all children share. */
void *bench_share(size_t bytes);
void bench_unshare(void *p, size_t bytes);

/* Runs run(arg) in a child pinned to `core`; it exits with 0 when run returns. */
pid_t bench_spawn(int core, void (*run)(void *arg), void *arg);
/* Waits for it; anything but exit 0 fails the benchmark. */
void bench_join(pid_t pid, const char *what);
/* Waits (looking, with short pauses) until the shared word is at least `value`; fails the benchmark
 * after a minute or when one of the children has failed. */
void bench_await(const uint32_t *word, uint32_t value, const char *what);

struct bench_broker {
    pid_t pid;
    char dir[BENCH_PATH_BYTES + 32];
};
struct bench_broker_options {
    int core;
    uint64_t spin_ns;
    const char *memory, *max_log; /* as on the command line; NULL: the default */
};
/* Starts one in a directory of its own below the run's, and returns when it is ready. */
void bench_broker_start(const struct bench *b, struct bench_broker *br,
                        const struct bench_broker_options *options);
/* Again on the directory that it has. */
void bench_broker_restart(const struct bench *b, struct bench_broker *br,
                          const struct bench_broker_options *options);
void bench_broker_kill(struct bench_broker *br); /* SIGKILL */
void bench_broker_stop(struct bench_broker *br); /* SIGTERM, exit 0 */
void bench_broker_remove(struct bench_broker *br);
void bench_tree_remove(const char *path);

struct bench_client_options {
    uint64_t spin_ns;
    uint32_t window, ring_bytes, prefetch; /* 0: the default */
};
struct pawl *bench_client(const struct bench_broker *br, const struct bench_client_options *o);
/* Fails the benchmark for a negative result. Returns it otherwise. */
int bench_must(struct pawl *lane, int result, const char *what);
void bench_queue(struct pawl *lane, const char *name, enum pawl_mode mode);
void bench_queue_window(struct pawl *lane, const char *name, enum pawl_mode mode,
                        uint64_t dedup_window_ns);
/* A counter or gauge of the broker by name; -1: the broker does not say. */
double bench_metric(struct pawl *lane, const char *name);

/* --- report.c -------------------------------------------------------------------------------- */

enum bench_aim { BENCH_NO_AIM, BENCH_AT_MOST, BENCH_AT_LEAST };

/* One case over its repeats: either percentiles of each, or one value of each. */
struct bench_result {
    const char *bench, *unit;
    char name[64];
    bool percentiles;
    uint32_t repeats, far;
    uint32_t cores; /* that the case needs; on fewer no conclusion is drawn. 2 unless set */
    uint64_t samples_min;
    struct pawl_histogram *all; /* all repeats together, for the picture */
    double scale;
    double p50[BENCH_REPEATS_MAX], p99[BENCH_REPEATS_MAX], p999[BENCH_REPEATS_MAX];
    double p9999[BENCH_REPEATS_MAX], max[BENCH_REPEATS_MAX], value[BENCH_REPEATS_MAX];
    enum bench_aim aim_kind;
    char aim_of[8]; /* "p50", "p99", "max" or "value" */
    double aim;
    char note[160];
};
void bench_result_init(struct bench_result *r, const char *bench, const char *unit,
                       const char *name_format, ...) __attribute__((format(printf, 4, 5)));
/* Values of the histogram are divided by `scale` (1000: ns to us). */
void bench_result_histogram(struct bench_result *r, const struct pawl_histogram *h, double scale);
void bench_result_value(struct bench_result *r, double value);
void bench_result_aim(struct bench_result *r, const char *of, enum bench_aim kind, double figure);
void bench_result_note(struct bench_result *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void bench_result_cores(struct bench_result *r, uint32_t cores);
/* Prints it, if it holds a repeat, and frees what it holds. */
void bench_result_print(const struct bench *b, const struct bench_result *r);
double bench_median(const double *values, uint32_t n);
bool bench_wanted(const struct bench *b, const char *bench, const char *name);
/* A line for people: on stdout, or on stderr where stdout carries JSON. */
void bench_say(const struct bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- plot.c ---------------------------------------------------------------------------------- */

/* NULL if a picture can be made there; else what is wrong, beginning with a name: PLOT_SUFFIX,
 * PLOT_NO_GNUPLOT. */
const char *bench_plot_check(const char *path);
/* Keeps a copy of a result for the picture, and its histogram for good. */
void bench_plot_add(const struct bench_result *r);
/* Writes gnuplot's program; returns how many results it shows. */
uint32_t bench_plot_script(FILE *to, const char *path);
/* Makes the picture of what was added; fails the benchmark if gnuplot does. */
void bench_plot_finish(const struct bench *b);

/* --- the scenarios --------------------------------------------------------------------------- */

void bench_limits(const struct bench *b);
void bench_path(const struct bench *b);
void bench_durable(const struct bench *b);
void bench_throughput(const struct bench *b);
void bench_recover(const struct bench *b);
void bench_memory(const struct bench *b);
void bench_timers(const struct bench *b);
void bench_death(const struct bench *b);
void bench_idle(const struct bench *b);
void bench_txn(const struct bench *b);
void bench_ledger(const struct bench *b);
void bench_latency(const struct bench *b);

/* One repeat of those of path.c and throughput.c: ns of the broker's code a life; lives a second.
 */
double bench_path_life(const struct bench *b, enum pawl_mode mode, uint32_t body_bytes,
                       uint64_t retention_ns, bool keys);
double bench_lives_rate(const struct bench *b, enum pawl_mode mode, bool keys);

/* limits.c: the way of one cache line, both sides spinning on the first two cores; messages a
 * second of a ring between two processes, `batch` a publish. */
void bench_line_way(const struct bench *b, struct pawl_histogram *h);
double bench_bare_ring(const struct bench *b, uint32_t body_bytes, uint32_t batch,
                       uint64_t ring_bytes);

/* direct.c: its parts of `latency` and `throughput`. */
void bench_direct_latency(const struct bench *b);
void bench_direct_throughput(const struct bench *b);

/* device.c: the disk without a broker. Appends 4 KiB blocks to a zero-filled file with O_DIRECT and
 * O_DSYNC through io_uring, one in flight. */
struct bench_device;
struct bench_device *bench_device_open(const char *dir, uint32_t block_bytes);
void bench_device_close(struct bench_device *d);
/* n writes into h, after `warm` that are not counted. spin: look with yields, else sleep. */
void bench_device_run(struct bench_device *d, bool spin, uint32_t warm, uint32_t n,
                      struct pawl_histogram *h);

#endif
