/* SPDX-License-Identifier: MIT */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "abi/atomic.h"

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t bench_now(void) { return read_clock(CLOCK_MONOTONIC); }
uint64_t bench_wall(void) { return read_clock(CLOCK_REALTIME); }

void bench_pause(uint64_t ns)
{
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000ull),
                          .tv_nsec = (long)(ns % 1000000000ull) };
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        ;
}

/* As taskset or a cpuset gave them to us; asked once, before anything is pinned. */
static const cpu_set_t *cores_given(void)
{
    static cpu_set_t given;
    static bool known;
    if (!known && sched_getaffinity(0, sizeof(given), &given) != 0)
        bench_fail("cannot find out which cores there are: %s", strerror(errno));
    known = true;
    return &given;
}

uint32_t bench_cores(void) { return (uint32_t)CPU_COUNT(cores_given()); }

bool bench_core_allowed(int core)
{
    return core >= 0 && core < CPU_SETSIZE && CPU_ISSET((size_t)core, cores_given());
}

int bench_core(uint32_t i)
{
    int core = 0;
    while (!bench_core_allowed(core) || i-- > 0)
        if (++core >= CPU_SETSIZE)
            bench_fail("there is no such core");
    return core;
}

void bench_pin(int core)
{
    cpu_set_t set = *cores_given();
    if (core >= 0) {
        CPU_ZERO(&set);
        CPU_SET((size_t)core, &set);
    }
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        bench_fail("cannot pin to core %d", core);
}

/* Interrupts of block devices by core. The lines of /proc/interrupts name the driver; those of
 * network, console and balloon devices do not grow with writes, so the largest growth decides. */
static uint32_t interrupts_read(uint64_t *lines, uint32_t lines_max, uint32_t cores)
{
    FILE *f = fopen("/proc/interrupts", "re");
    if (f == NULL)
        return 0;
    char text[4096];
    uint32_t n = 0;
    while (fgets(text, sizeof(text), f) != NULL && n < lines_max) {
        char *p = text, *end;
        strtoul(p, &end, 10);
        if (end == p || *end != ':')
            continue; /* the head line, and the kernel's own kinds (LOC, RES, ...) */
        p = end + 1;
        for (uint32_t c = 0; c < cores; c++) {
            lines[n * cores + c] = strtoull(p, &end, 10);
            p = end;
        }
        n++;
    }
    fclose(f);
    return n;
}

int bench_disk_core(const char *dir)
{
    enum { LINES = 512 };
    uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_CONF);
    uint64_t *before = calloc((size_t)LINES * cores, sizeof(*before));
    uint64_t *after = calloc((size_t)LINES * cores, sizeof(*after));
    struct bench_device *d = bench_device_open(dir, 4096);
    struct pawl_histogram *h = malloc(sizeof(*h));
    int best = -1;
    if (before != NULL && after != NULL && h != NULL) {
        uint32_t n = interrupts_read(before, LINES, cores);
        pawl_histogram_init(h);
        bench_device_run(d, false, 0, 500, h);
        uint64_t most = 100; /* fewer than that and it was not our writes */
        if (interrupts_read(after, LINES, cores) == n) {
            for (uint32_t i = 0; i < n * cores; i++) {
                if (after[i] - before[i] > most) {
                    most = after[i] - before[i];
                    best = (int)(i % cores);
                }
            }
        }
    }
    bench_device_close(d);
    free(h);
    free(before);
    free(after);
    return best;
}

uint64_t bench_cpu_ns(pid_t pid)
{
    clockid_t id;
    struct timespec t;
    if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) != 0)
        bench_fail("cannot read the processor time of process %d", (int)pid);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t bench_rss_bytes(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "re");
    unsigned long long all = 0, resident = 0;
    if (f == NULL || fscanf(f, "%llu %llu", &all, &resident) != 2)
        bench_fail("cannot read %s", path);
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void first_line(const char *command, char *out, size_t bytes)
{
    out[0] = 0;
    FILE *f = popen(command, "re");
    if (f != NULL) {
        if (fgets(out, (int)bytes, f) == NULL)
            out[0] = 0;
        pclose(f);
    }
    out[strcspn(out, "\n\"\\")] = 0;
    if (out[0] == 0)
        snprintf(out, bytes, "unknown");
}

void bench_header(const struct bench *b)
{
    struct utsname u;
    uname(&u);
    char cpu[128], commit[64], disk[128], command[BENCH_PATH_BYTES + 128];
    first_line("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo", cpu, sizeof(cpu));
    snprintf(command, sizeof(command),
             "git -C \"$(dirname '%s')\" describe --always --dirty --exclude '*' 2>/dev/null",
             b->pawld);
    first_line(command, commit, sizeof(commit));
    snprintf(command, sizeof(command), "df --output=source,fstype '%s' | tail -1 | tr -s ' '",
             b->dir);
    first_line(command, disk, sizeof(disk));
    double gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    struct bench_phase phase;
    bench_phase_probe(b, &phase);
    if (b->json)
        printf("{\"bench\":\"host\",\"case\":\"host\",\"unit\":\"none\",\"cpu\":\"%s\","
               "\"cores\":%u,\"memory_gib\":%.1f,\"kernel\":\"%s\",\"commit\":\"%s\","
               "\"disk\":\"%s\",\"broker_core\":%d,\"client_core\":%d,\"disk_core\":%d,"
               "\"idle\":\"asleep, where the case does not say spin\","
               "\"hop_ns\":%.0f,\"copy_gbs\":%.1f,\"set\":\"%s\"}\n",
               cpu, b->cores, gib, u.release, commit, disk, b->broker_core, b->client_core,
               b->disk_core, phase.hop_ns, phase.copy_gbs, b->small ? "small" : "full");
    bench_say(b, "pawl-bench %s, commit %s, %s set, %u repeats", PAWL_VERSION, commit,
              b->small ? "small" : "full", b->repeats);
    bench_say(b, "machine: %u x %s, %.1f GiB, Linux %s, disk %s", b->cores, cpu, gib, u.release,
              disk);
    bench_say(b,
              "placement: broker on core %d, clients on core %d (-1: unpinned); disk interrupts on "
              "core %d",
              b->broker_core, b->client_core, b->disk_core);
    bench_say(b,
              "phase now: hop %.0f ns, 4 MiB copy %.1f GB/s; idle strategy: asleep, where the case "
              "does not say spin",
              phase.hop_ns, phase.copy_gbs);
    if (b->cores < 2)
        bench_say(
            b, "NEEDS_CORES: 1 core here; cases that need more are left out or draw no conclusion");
}

/* --- phases ---------------------------------------------------------------------------------- */

struct hop {
    uint64_t ping __attribute__((aligned(PAWL_LINE)));
    uint64_t pong __attribute__((aligned(PAWL_LINE)));
    uint64_t rounds;
    int core;
};

static void *hop_answer(void *arg)
{
    struct hop *h = arg;
    bench_pin(h->core);
    for (uint64_t i = 1; i <= h->rounds; i++) {
        while (pawl_load_acq_u64(&h->ping) < i)
            pawl_cpu_relax();
        pawl_store_rel_u64(&h->pong, i);
    }
    return NULL;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median of many short batches, so that a batch in which somebody else had the core does not
 * count. */
static double hop_measure(void)
{
    enum { BATCHES = 21, ROUNDS = 500 };
    double batch[BATCHES];
    struct hop h = { .rounds = (uint64_t)BATCHES * ROUNDS, .core = bench_core(1) };
    cpu_set_t was;
    sched_getaffinity(0, sizeof(was), &was);
    bench_pin(bench_core(0));
    pthread_t thread;
    if (pthread_create(&thread, NULL, hop_answer, &h) != 0)
        bench_fail("no thread");
    uint64_t i = 0;
    for (uint32_t k = 0; k < BATCHES; k++) {
        uint64_t start = bench_now();
        for (uint32_t j = 0; j < ROUNDS; j++) {
            pawl_store_rel_u64(&h.ping, ++i);
            while (pawl_load_acq_u64(&h.pong) < i)
                pawl_cpu_relax();
        }
        batch[k] = (double)(bench_now() - start) / (2.0 * ROUNDS);
    }
    pthread_join(thread, NULL);
    sched_setaffinity(0, sizeof(was), &was);
    qsort(batch, BATCHES, sizeof(batch[0]), compare_double);
    return batch[BATCHES / 2];
}

static double copy_measure(void)
{
    enum { BYTES = 4 << 20, ROUNDS = 9 };
    uint8_t *from = aligned_alloc(4096, BYTES), *to = aligned_alloc(4096, BYTES);
    if (from == NULL || to == NULL)
        bench_fail("no memory");
    memset(from, 1, BYTES);
    memset(to, 2, BYTES);
    double batch[ROUNDS];
    for (uint32_t k = 0; k < ROUNDS; k++) {
        uint64_t start = bench_now();
        memcpy(to, from, BYTES);
        __asm__ __volatile__("" : : "r"(to) : "memory");
        batch[k] = (double)BYTES / (double)(bench_now() - start);
    }
    free(from);
    free(to);
    qsort(batch, ROUNDS, sizeof(batch[0]), compare_double);
    return batch[ROUNDS / 2];
}

void bench_phase_probe(const struct bench *b, struct bench_phase *out)
{
    out->hop_ns = b->cores < 2 ? 0 : hop_measure();
    out->copy_gbs = copy_measure();
}

#define BENCH_HOP_FAR_NS 100.0

bool bench_repeat_next(const struct bench *b, struct bench_repeats *r)
{
    if (r->kept >= b->repeats)
        return false;
    r->tried++;
    if (!b->small)
        bench_phase_probe(b, &r->before);
    return true;
}

bool bench_repeat_keep(const struct bench *b, struct bench_repeats *r)
{
    if (!b->small)
        bench_phase_probe(b, &r->after);
    bool far = r->before.hop_ns > BENCH_HOP_FAR_NS || r->after.hop_ns > BENCH_HOP_FAR_NS;
    if (far && r->tried - r->kept <= b->repeats)
        return false;
    r->far += far;
    r->kept++;
    return true;
}
