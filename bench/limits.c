/* SPDX-License-Identifier: MIT */
/* limits: what this machine can do at best, the yardstick of all other figures. Nothing of the
 * broker runs here. Questions and expected figures: README.md. */
#include "bench.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "abi/ring.h"

/* Two processes, as the real users of shared memory are. */
struct pair {
    uint64_t ping __attribute__((aligned(PAWL_LINE)));
    uint64_t pong __attribute__((aligned(PAWL_LINE)));
    uint64_t rounds __attribute__((aligned(PAWL_LINE)));
    uint64_t elapsed_ns;
    uint32_t word_a __attribute__((aligned(PAWL_LINE)));
    uint32_t word_b __attribute__((aligned(PAWL_LINE)));
    uint64_t head __attribute__((aligned(PAWL_LINE)));
    uint64_t tail __attribute__((aligned(PAWL_LINE)));
    uint32_t record_bytes __attribute__((aligned(PAWL_LINE)));
    uint32_t batch;
    uint64_t ring_bytes;
    uint8_t *ring;
    uint64_t bad;
    uint64_t warm, span_ns; /* of a ring; 0: as many rounds as there are */
    uint64_t end __attribute__((aligned(PAWL_LINE))); /* rounds made, once that is known */
    struct pawl_histogram h;
};

static void run_pair(int core_a, void (*a)(void *), int core_b, void (*b)(void *), struct pair *p,
                     const char *what)
{
    pid_t first = bench_spawn(core_a, a, p);
    pid_t second = bench_spawn(core_b, b, p);
    bench_join(first, what);
    bench_join(second, what);
}

/* --- cache line ------------------------------------------------------------------------------ */

static void line_ping(void *arg)
{
    struct pair *p = arg;
    uint64_t warm = p->rounds / 10, start = 0;
    for (uint64_t i = 1; i <= p->rounds; i++) {
        if (i == warm)
            start = bench_now();
        pawl_store_rel_u64(&p->ping, i);
        while (pawl_load_acq_u64(&p->pong) < i)
            pawl_cpu_relax();
    }
    p->elapsed_ns = bench_now() - start;
}

static void line_pong(void *arg)
{
    struct pair *p = arg;
    for (uint64_t i = 1; i <= p->rounds; i++) {
        while (pawl_load_acq_u64(&p->ping) < i)
            pawl_cpu_relax();
        pawl_store_rel_u64(&p->pong, i);
    }
}

/* The sender writes the time into the line, the receiver reads the clock when it sees it: one way,
 * with the cost of one reading of the clock in it. */
static void stamp_send(void *arg)
{
    struct pair *p = arg;
    for (uint64_t i = 1; i <= p->rounds; i++) {
        pawl_store_rel_u64(&p->ping, bench_now());
        while (pawl_load_acq_u64(&p->pong) < i)
            pawl_cpu_relax();
    }
}

static void stamp_receive(void *arg)
{
    struct pair *p = arg;
    uint64_t last = 0, warm = p->rounds / 10;
    for (uint64_t i = 1; i <= p->rounds; i++) {
        uint64_t sent;
        while ((sent = pawl_load_acq_u64(&p->ping)) == last)
            pawl_cpu_relax();
        uint64_t now = bench_now();
        last = sent;
        if (i > warm)
            pawl_histogram_add(&p->h, now > sent ? now - sent : 0);
        pawl_store_rel_u64(&p->pong, i);
    }
}

void bench_line_way(const struct bench *b, struct pawl_histogram *h)
{
    struct pair *p = bench_share(sizeof(*p));
    p->rounds = b->small ? 20000 : 200000;
    pawl_histogram_init(&p->h);
    run_pair(bench_core(0), stamp_send, bench_core(1), stamp_receive, p, "cache line");
    *h = p->h;
    bench_unshare(p, sizeof(*p));
}

static void cacheline(const struct bench *b)
{
    struct bench_result mean, way;
    bench_result_init(&mean, "limits", "ns", "cacheline_mean");
    bench_result_init(&way, "limits", "ns", "cacheline_one_way");
    bench_result_note(&way, "with one reading of the clock");
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "limits", "cacheline") && bench_repeat_next(b, &r)) {
        struct pair *p = bench_share(sizeof(*p)), *q = bench_share(sizeof(*q));
        p->rounds = q->rounds = b->small ? 20000 : 2000000;
        pawl_histogram_init(&q->h);
        run_pair(bench_core(0), line_ping, bench_core(1), line_pong, p, "cache line");
        run_pair(bench_core(0), stamp_send, bench_core(1), stamp_receive, q, "cache line");
        if (bench_repeat_keep(b, &r)) {
            double rounds = (double)(p->rounds - p->rounds / 10);
            bench_result_value(&mean, (double)p->elapsed_ns / rounds / 2);
            bench_result_histogram(&way, &q->h, 1);
        }
        bench_unshare(p, sizeof(*p));
        bench_unshare(q, sizeof(*q));
    }
    mean.far = way.far = r.far;
    bench_result_print(b, &mean);
    bench_result_print(b, &way);
}

/* --- the bare ring --------------------------------------------------------------------------- */

/* A data area mapped twice in a row, as the lanes have it. */
static uint8_t *ring_map(uint64_t bytes)
{
    int fd = memfd_create("pawl-bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        bench_fail("no memory for a ring: %s", strerror(errno));
    uint8_t *p = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; p != MAP_FAILED && i < 2; i++)
        if (mmap(p + (uint64_t)i * bytes, bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED)
            p = MAP_FAILED;
    if (p == MAP_FAILED)
        bench_fail("no memory for a ring: %s", strerror(errno));
    close(fd);
    return p;
}

static void ring_produce(void *arg)
{
    struct pair *p = arg;
    struct pawl_ring_producer r = {
        .data = p->ring, .size = p->ring_bytes, .tail_shm = &p->tail, .head_shm = &p->head
    };
    uint64_t body[136];
    memset(body, 0x5a, sizeof(body));
    uint32_t bytes = p->record_bytes;
    uint64_t i = 0, until = 0;
    for (; i < p->rounds; i++) {
        uint8_t *at;
        if (i == p->warm && p->span_ns != 0)
            until = bench_now() + p->span_ns;
        if (i % 1024 == 0 && until != 0 && bench_now() >= until)
            break;
        while ((at = pawl_ring_claim(&r, bytes)) == NULL) {
            pawl_ring_publish(&r);
            pawl_ring_refresh(&r);
            pawl_cpu_relax();
        }
        memcpy(at, &bytes, sizeof(bytes));
        body[0] = i;
        memcpy(at + 8, body, bytes - 8);
        if ((i + 1) % p->batch == 0)
            pawl_ring_publish(&r);
    }
    pawl_ring_publish(&r);
    pawl_store_rel_u64(&p->end, i);
}

static void ring_consume(void *arg)
{
    struct pair *p = arg;
    struct pawl_ring_consumer r = {
        .data = p->ring, .size = p->ring_bytes, .tail_shm = &p->tail, .head_shm = &p->head
    };
    uint64_t start = 0, body[136];
    for (uint64_t i = 0; i < p->rounds;) {
        const void *record;
        uint32_t bytes;
        if (pawl_ring_next(&r, &record, &bytes) != PAWL_RING_RECORD) {
            pawl_ring_release(&r, r.next);
            pawl_cpu_relax();
            if (i == pawl_load_acq_u64(&p->end))
                break;
            continue;
        }
        memcpy(body, (const uint8_t *)record + 8, p->record_bytes - 8);
        __asm__ __volatile__("" : : "r"(body) : "memory");
        p->bad += body[0] != i;
        /* Give back by quarters of the ring: one store for many records. */
        if (r.next - p->head >= p->ring_bytes / 4)
            pawl_ring_release(&r, r.next);
        if (++i == p->warm)
            start = bench_now();
    }
    p->elapsed_ns = bench_now() - start;
}

double bench_bare_ring(const struct bench *b, uint32_t body_bytes, uint32_t batch,
                       uint64_t ring_bytes)
{
    struct pair *p = bench_share(sizeof(*p));
    p->record_bytes = body_bytes + 8;
    p->batch = batch;
    p->ring_bytes = ring_bytes;
    p->ring = ring_map(ring_bytes);
    p->rounds = p->end = UINT64_MAX;
    p->warm = b->small ? 10000 : 100000;
    p->span_ns = (uint64_t)(b->seconds * 0.5e9);
    run_pair(bench_core(1), ring_consume, bench_core(0), ring_produce, p, "bare ring");
    if (p->bad > 0)
        bench_fail("the bare ring delivered %llu wrong records", (unsigned long long)p->bad);
    double rate = (double)(p->end - p->warm) * 1e9 / (double)p->elapsed_ns;
    munmap(p->ring, 2 * ring_bytes);
    bench_unshare(p, sizeof(*p));
    return rate;
}

static void ring_case(const struct bench *b, uint32_t body_bytes, uint32_t batch, uint64_t ring)
{
    struct bench_result rate;
    bench_result_init(&rate, "limits", "messages/s", "ring_%u_%uk_publish_%u", body_bytes,
                      (uint32_t)(ring >> 10), batch);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "limits", rate.name) && bench_repeat_next(b, &r)) {
        struct pair *p = bench_share(sizeof(*p));
        p->record_bytes = body_bytes;
        p->batch = batch;
        p->ring_bytes = ring;
        p->ring = ring_map(ring);
        p->rounds = (b->small ? 200000ull : 100000000ull) * 64 / body_bytes;
        p->warm = p->rounds / 10;
        p->end = UINT64_MAX;
        run_pair(bench_core(1), ring_consume, bench_core(0), ring_produce, p, "bare ring");
        if (p->bad > 0)
            bench_fail("the bare ring delivered %llu wrong records", (unsigned long long)p->bad);
        if (bench_repeat_keep(b, &r))
            bench_result_value(&rate,
                               (double)(p->rounds - p->rounds / 10) * 1e9 / (double)p->elapsed_ns);
        munmap(p->ring, 2 * ring);
        bench_unshare(p, sizeof(*p));
    }
    rate.far = r.far;
    bench_result_print(b, &rate);
}

/* --- futex ----------------------------------------------------------------------------------- */

static void futex_wait(const uint32_t *word, uint32_t value)
{
    while (pawl_load_acq_u32(word) == value)
        syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void futex_wake(uint32_t *word, uint32_t value)
{
    pawl_store_rel_u32(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void futex_ping(void *arg)
{
    struct pair *p = arg;
    uint64_t warm = p->rounds / 10;
    for (uint32_t i = 1; i <= p->rounds; i++) {
        uint64_t start = bench_now();
        futex_wake(&p->word_a, i);
        futex_wait(&p->word_b, i - 1);
        if (i > warm)
            pawl_histogram_add(&p->h, bench_now() - start);
    }
}

static void futex_pong(void *arg)
{
    struct pair *p = arg;
    for (uint32_t i = 1; i <= p->rounds; i++) {
        futex_wait(&p->word_a, i - 1);
        futex_wake(&p->word_b, i);
    }
}

static void futex_case(const struct bench *b, const char *name, int core_a, int core_b)
{
    struct bench_result trip;
    bench_result_init(&trip, "limits", "us", "%s", name);
    bench_result_cores(&trip, core_a == core_b ? 1 : 2);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "limits", name) && bench_repeat_next(b, &r)) {
        struct pair *p = bench_share(sizeof(*p));
        p->rounds = b->small ? 500 : 20000;
        pawl_histogram_init(&p->h);
        run_pair(core_a, futex_ping, core_b, futex_pong, p, "futex");
        if (bench_repeat_keep(b, &r))
            bench_result_histogram(&trip, &p->h, 1000);
        bench_unshare(p, sizeof(*p));
    }
    trip.far = r.far;
    bench_result_print(b, &trip);
}

/* --- memcpy and small costs ------------------------------------------------------------------ */

static double copy_rate(uint64_t bytes, uint64_t total)
{
    uint8_t *from = aligned_alloc(4096, bytes), *to = aligned_alloc(4096, bytes);
    if (from == NULL || to == NULL)
        bench_fail("no memory");
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    uint64_t rounds = total / bytes + 1, start = bench_now();
    for (uint64_t i = 0; i < rounds; i++) {
        memcpy(to, from, bytes);
        __asm__ __volatile__("" : : "r"(to) : "memory");
    }
    double rate = (double)(rounds * bytes) / (double)(bench_now() - start);
    free(from);
    free(to);
    return rate;
}

static void copies(const struct bench *b)
{
    static const uint64_t sizes[] = { 16 << 10, 256 << 10, 4 << 20, 256 << 20 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct bench_result rate;
        bench_result_init(&rate, "limits", "GB/s", "memcpy_%lluk",
                          (unsigned long long)(sizes[i] >> 10));
        bench_result_cores(&rate, 1);
        struct bench_repeats r = { 0 };
        if (b->small && sizes[i] > (4 << 20))
            continue;
        while (bench_wanted(b, "limits", rate.name) && bench_repeat_next(b, &r)) {
            double value = copy_rate(sizes[i], b->small ? 16 << 20 : 1ull << 31);
            if (bench_repeat_keep(b, &r))
                bench_result_value(&rate, value);
        }
        rate.far = r.far;
        bench_result_print(b, &rate);
    }
}

static double clock_cost(uint32_t n)
{
    uint64_t start = bench_now(), last = 0;
    for (uint32_t i = 0; i < n; i++)
        last += bench_now();
    __asm__ __volatile__("" : : "r"(last));
    return (double)(bench_now() - start) / n;
}

static double syscall_cost(uint32_t n)
{
    uint64_t start = bench_now();
    for (uint32_t i = 0; i < n; i++)
        syscall(SYS_getppid);
    return (double)(bench_now() - start) / n;
}

static void small_costs(const struct bench *b)
{
    struct bench_result clock, call;
    bench_result_init(&clock, "limits", "ns", "clock_gettime");
    bench_result_init(&call, "limits", "ns", "syscall");
    bench_result_cores(&clock, 1);
    bench_result_cores(&call, 1);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "limits", "clock_gettime syscall") && bench_repeat_next(b, &r)) {
        double c = clock_cost(b->small ? 10000 : 1000000);
        double s = syscall_cost(b->small ? 10000 : 1000000);
        if (bench_repeat_keep(b, &r)) {
            bench_result_value(&clock, c);
            bench_result_value(&call, s);
        }
    }
    bench_result_print(b, &clock);
    bench_result_print(b, &call);
}

/* --- the bare device ------------------------------------------------------------------------- */

struct device_run {
    const struct bench *b;
    uint32_t block_bytes, n;
    bool spin;
    struct pawl_histogram h;
};

static void device_child(void *arg)
{
    struct device_run *run = arg;
    struct bench_device *d = bench_device_open(run->b->dir, run->block_bytes);
    bench_device_run(d, run->spin, run->n / 10, run->n, &run->h);
    bench_device_close(d);
}

static void device_case(const struct bench *b, uint32_t block_bytes, bool spin)
{
    struct bench_result result;
    bench_result_init(&result, "limits", "us", "device_%uk_%s", block_bytes >> 10,
                      spin ? "spin" : "asleep");
    bench_result_cores(&result, 1);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "limits", result.name) && bench_repeat_next(b, &r)) {
        struct device_run *run = bench_share(sizeof(*run));
        run->b = b;
        run->block_bytes = block_bytes;
        run->spin = spin;
        run->n = b->small ? 200 : 10000;
        pawl_histogram_init(&run->h);
        bench_join(bench_spawn(b->broker_core, device_child, run), "bare device");
        if (bench_repeat_keep(b, &r))
            bench_result_histogram(&result, &run->h, 1000);
        bench_unshare(run, sizeof(*run));
    }
    result.far = r.far;
    bench_result_print(b, &result);
}

void bench_limits(const struct bench *b)
{
    small_costs(b);
    copies(b);
    if (b->cores >= 2) {
        cacheline(b);
        ring_case(b, 64, 1, 256 << 10);
        ring_case(b, 64, 64, 256 << 10);
        ring_case(b, 1024, 1, 256 << 10);
        ring_case(b, 1024, 1, 4 << 20);
        futex_case(b, "futex_round_trip_two_cores", bench_core(0), bench_core(1));
    }
    futex_case(b, "futex_round_trip_one_core", bench_core(0), bench_core(0));
    device_case(b, 4096, true);
    device_case(b, 4096, false);
    device_case(b, 256 << 10, false);
}
