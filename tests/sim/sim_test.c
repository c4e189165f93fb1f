/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/sim.h"

/* Runs seeds and sums up. PAWL_SEED=n: that seed alone, with its options. PAWL_SEEDS=n (or
 * PAWL_SIM_SEEDS): so many from PAWL_FIRST (1) on. Exit 0: no violation, one seed run twice gave
 * the same trace, and, if there were enough seeds for it, every kind of fault has happened.
 * PAWL_GO_ON=1: a seed that violates does not end the run; the end lists all of them. */

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(SLOW)
#define SEEDS_SHORT 100u /* half a second each */
#else
#define SEEDS_SHORT 300u
#endif
#define SEEDS_ENOUGH 100u /* for every kind of fault to have happened */
#define SECONDS_A_SEED 60u

extern struct sim *sim_now_running;

static void on_signal(int signal)
{
    struct sim *w = sim_now_running;
    if (w != NULL) {
        sim_now_running = NULL;
        sim_note_dump(w);
        sim_options_print(w);
        fprintf(stderr, "SIGNAL %d in seed %" PRIu64 "\nagain: PAWL_SEED=%" PRIu64 " sim_test\n",
                signal, w->seed, w->seed);
    }
    _exit(signal == SIGVTALRM ? 3 : 2);
}

/* Of our own time, since a loaded machine gives little of its. */
static void limit(uint32_t seconds)
{
    const struct itimerval timer = { .it_value.tv_sec = seconds };
    (void)setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != 0 ? strtoull(text, NULL, 0) : otherwise;
}

static const char *const idem_names[PAWL_IDEM_FAILED + 1] = { "none",      "first", "in progress",
                                                              "abandoned", "done",  "failed" };

static int summary(const struct sim_totals *t)
{
    printf("sim: %" PRIu64 " seeds, %" PRIu64 " operations, %" PRIu64 " answers, %" PRIu64
           " deliveries, %" PRIu64 " messages, %" PRIu64 " crashes, %" PRIu64
           " recoveries, %" PRIu64 " scans, %" PRIu64 " in order of a key, %" PRIu64
           " repeats of a dedup key (%" PRIu64 " of another body), %" PRIu64
           " uses again, %.1f simulated days, %" PRIu64 " checks;",
           t->seeds, t->operations, t->answers, t->deliveries, t->messages, t->crashes,
           t->recoveries, t->scans, t->ordered, t->keys_repeated, t->keys_other, t->keys_again,
           (double)t->time_ns / 1e9 / 86400, t->checks);
    int missing = 0;
    for (uint32_t f = 0; f < SIM_FAULTS; f++) {
        printf(" %s %" PRIu64, sim_fault_names[f], t->faults[f]);
        if (t->faults[f] == 0)
            missing++;
    }
    printf("; sectors kept %" PRIu64 " lost %" PRIu64 " zeroed %" PRIu64 " garbage %" PRIu64
           ", reordered %" PRIu64 "\n",
           t->io.sectors_kept, t->io.sectors_lost, t->io.sectors_zeroed, t->io.sectors_garbage,
           t->io.reordered);
    printf("units %" PRIu64 ": %" PRIu64 " repeated, %" PRIu64 " asked for (%" PRIu64
           " done, %" PRIu64 " fenced)\n",
           t->units, t->units_repeated, t->units_resolved, t->units_known, t->units_fenced);
    printf("idempotent operations told:");
    for (uint32_t i = PAWL_IDEM_FIRST; i < PAWL_COUNT(t->idem_told); i++)
        printf(" %s %" PRIu64, idem_names[i], t->idem_told[i]);
    printf("\nresults:");
    for (int r = 0; r < 128; r++)
        if (t->results[r] != 0)
            printf(" %s %" PRIu64, pawl_strname(r - 100) + 5, t->results[r]);
    printf("\n");
    if (t->seeds < SEEDS_ENOUGH)
        return 0;
    if (missing > 0)
        printf("%d kinds of faults never happened: the run proves too little\n", missing);
    if (t->io.sectors_lost == 0 || t->io.reordered == 0 || t->io.full == 0) {
        printf("the disk was too kind: the run proves too little\n");
        missing++;
    }
    if (t->keys_repeated == 0 || t->keys_other == 0 || t->keys_again == 0) {
        printf("dedup keys did not meet: the run proves too little\n");
        missing++;
    }
    for (uint32_t i = PAWL_IDEM_FIRST; i < PAWL_COUNT(t->idem_told); i++)
        if (t->idem_told[i] == 0) {
            printf("no idempotent operation was told to be %s: the run proves too little\n",
                   idem_names[i]);
            missing++;
        }
    if (t->units_repeated == 0 || t->units_fenced == 0 || t->units_known == 0) {
        printf("ids were not repeated, fenced and found: the run proves too little\n");
        missing++;
    }
    return missing;
}

/* What outlives a seed that ends its process. */
struct progress {
    struct sim_totals totals, again;
    uint64_t seed; /* that runs now */
};

/* Exit code of the run: 0, or 1 at a seed that gave two traces. Violations do not return. */
static int run_seeds(struct progress *p, uint64_t from, uint64_t first, uint64_t end)
{
    for (uint64_t seed = from; seed < end; seed++) {
        p->seed = seed;
        limit(SECONDS_A_SEED);
        uint64_t hash = sim_run(seed, &p->totals);
        if (seed % 1000 == 0)
            printf("up to seed %" PRIu64 "\n", seed);
        if (seed == first || seed % 1000 == 0) {
            uint64_t second = sim_run(seed, &p->again);
            if (hash != second) {
                printf("seed %" PRIu64 " run twice: trace %016" PRIx64 " and %016" PRIx64 "\n",
                       seed, hash, second);
                return 1;
            }
        }
    }
    limit(0);
    return 0;
}

/* Runs the seeds in a process of their own and, as often as one of them ends it, the rest in
 * another. Returns how many did. */
static uint64_t run_past_violations(struct progress *p, uint64_t first, uint64_t end)
{
    uint64_t bad = 0, capacity = 64;
    uint64_t *seeds = calloc(capacity, sizeof *seeds);
    for (uint64_t from = first; seeds != NULL && from < end; from = p->seed + 1) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            exit(run_seeds(p, from, first, end));
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            abort();
        if (status == 0)
            break;
        printf("seed %" PRIu64 " violates\n", p->seed);
        if (bad == capacity)
            seeds = realloc(seeds, (capacity *= 2) * sizeof *seeds);
        if (seeds == NULL)
            abort();
        seeds[bad++] = p->seed;
    }
    printf("%" PRIu64 " seeds of %" PRIu64 " to %" PRIu64 " with a violation:", bad, first,
           end - 1);
    for (uint64_t i = 0; i < bad; i++)
        printf(" %" PRIu64, seeds[i]);
    printf("\n");
    free(seeds);
    return bad;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGFPE, on_signal);
    signal(SIGVTALRM, on_signal);
    struct progress *p =
        mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    if (getenv("PAWL_SEED") != NULL) {
        uint64_t hash = sim_run(number_of("PAWL_SEED", 1), &p->totals);
        printf("trace %016" PRIx64 "\n", hash);
        return summary(&p->totals) != 0;
    }
    uint64_t first = number_of("PAWL_FIRST", 1);
    uint64_t end = first + number_of("PAWL_SEEDS", number_of("PAWL_SIM_SEEDS", SEEDS_SHORT));
    bool bad;
    if (number_of("PAWL_GO_ON", 0) != 0)
        bad = run_past_violations(p, first, end) != 0;
    else
        bad = run_seeds(p, first, first, end) != 0;
    return summary(&p->totals) != 0 || bad;
}
