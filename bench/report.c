/* SPDX-License-Identifier: MIT */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void bench_say(const struct bench *b, const char *format, ...)
{
    FILE *to = b->json ? stderr : stdout;
    va_list args;
    va_start(args, format);
    vfprintf(to, format, args);
    va_end(args);
    fputc('\n', to);
    fflush(to);
}

bool bench_wanted(const struct bench *b, const char *bench, const char *name)
{
    (void)bench;
    return b->only == NULL || strstr(name, b->only) != NULL;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts a copy; the lower of the two middle ones for an even number. */
static double at_share(const double *values, uint32_t n, uint32_t numerator, uint32_t denominator)
{
    double copy[BENCH_REPEATS_MAX];
    if (n == 0)
        return 0;
    memcpy(copy, values, n * sizeof(copy[0]));
    qsort(copy, n, sizeof(copy[0]), compare_double);
    return copy[(n - 1) * numerator / denominator];
}

double bench_median(const double *values, uint32_t n) { return at_share(values, n, 1, 2); }
static double lowest(const double *values, uint32_t n) { return at_share(values, n, 0, 1); }
static double highest(const double *values, uint32_t n) { return at_share(values, n, 1, 1); }

void bench_result_init(struct bench_result *r, const char *bench, const char *unit,
                       const char *name_format, ...)
{
    memset(r, 0, sizeof(*r));
    r->bench = bench;
    r->unit = unit;
    r->samples_min = UINT64_MAX;
    r->cores = 2;
    va_list args;
    va_start(args, name_format);
    vsnprintf(r->name, sizeof(r->name), name_format, args);
    va_end(args);
}

void bench_result_histogram(struct bench_result *r, const struct pawl_histogram *h, double scale)
{
    if (r->repeats >= BENCH_REPEATS_MAX)
        bench_fail("%s: too many repeats", r->name);
    uint32_t i = r->repeats++;
    r->percentiles = true;
    r->p50[i] = (double)pawl_histogram_percentile(h, 0.5) / scale;
    r->p99[i] = (double)pawl_histogram_percentile(h, 0.99) / scale;
    r->p999[i] = (double)pawl_histogram_percentile(h, 0.999) / scale;
    r->p9999[i] = (double)pawl_histogram_percentile(h, 0.9999) / scale;
    r->max[i] = (double)h->max / scale;
    if (h->count < r->samples_min)
        r->samples_min = h->count;
    if (r->all == NULL) {
        r->all = malloc(sizeof(*r->all));
        if (r->all == NULL)
            bench_fail("no memory");
        pawl_histogram_init(r->all);
    }
    pawl_histogram_merge(r->all, h);
    r->scale = scale;
}

void bench_result_cores(struct bench_result *r, uint32_t cores) { r->cores = cores; }

void bench_result_value(struct bench_result *r, double value)
{
    if (r->repeats >= BENCH_REPEATS_MAX)
        bench_fail("%s: too many repeats", r->name);
    if (!isfinite(value))
        bench_fail("%s: nothing was measured", r->name);
    r->value[r->repeats++] = value;
}

void bench_result_aim(struct bench_result *r, const char *of, enum bench_aim kind, double figure)
{
    snprintf(r->aim_of, sizeof(r->aim_of), "%s", of);
    r->aim_kind = kind;
    r->aim = figure;
}

void bench_result_note(struct bench_result *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->note, sizeof(r->note), format, args);
    va_end(args);
}

static double aim_figure(const struct bench_result *r)
{
    if (strcmp(r->aim_of, "p50") == 0)
        return bench_median(r->p50, r->repeats);
    if (strcmp(r->aim_of, "p99") == 0)
        return bench_median(r->p99, r->repeats);
    if (strcmp(r->aim_of, "max") == 0)
        return highest(r->max, r->repeats);
    return bench_median(r->value, r->repeats);
}

/* Four significant digits, with thousands separated by commas where that helps the eye. */
static const char *figure(double v, char out[32])
{
    if (v < 0.001 && v > 0)
        snprintf(out, 32, "%.2e", v);
    else if (v < 10)
        snprintf(out, 32, "%.3f", v);
    else if (v < 100)
        snprintf(out, 32, "%.1f", v);
    else if (v < 10000)
        snprintf(out, 32, "%.0f", v);
    else {
        uint64_t n = (uint64_t)(v + 0.5);
        char digits[24];
        int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n), at = 0;
        for (int i = 0; i < length; i++) {
            if (i > 0 && (length - i) % 3 == 0)
                out[at++] = ',';
            out[at++] = digits[i];
        }
        out[at] = 0;
    }
    return out;
}

static void print_json(const struct bench *b, const struct bench_result *r)
{
    uint32_t n = r->repeats;
    printf("{\"bench\":\"%s\",\"case\":\"%s\",\"unit\":\"%s\",", r->bench, r->name, r->unit);
    if (r->percentiles)
        printf("\"p50\":%.6g,\"p99\":%.6g,\"p999\":%.6g,\"p9999\":%.6g,\"max\":%.6g,"
               "\"p50_min\":%.6g,\"p50_max\":%.6g,\"samples\":%llu,",
               bench_median(r->p50, n), bench_median(r->p99, n), bench_median(r->p999, n),
               bench_median(r->p9999, n), highest(r->max, n), lowest(r->p50, n), highest(r->p50, n),
               (unsigned long long)r->samples_min);
    else
        printf("\"value\":%.8g,\"min\":%.8g,\"max\":%.8g,", bench_median(r->value, n),
               lowest(r->value, n), highest(r->value, n));
    printf("\"repeats\":%u,\"far\":%u", n, r->far);
    if (r->aim_kind != BENCH_NO_AIM)
        printf(",\"aim_of\":\"%s\",\"aim\":%.8g,\"aim_is\":\"%s\"", r->aim_of, r->aim,
               r->aim_kind == BENCH_AT_MOST ? "at_most" : "at_least");
    if (b->cores < r->cores)
        printf(",\"refused\":\"NEEDS_CORES\",\"needs_cores\":%u,\"has_cores\":%u", r->cores,
               b->cores);
    if (r->note[0] != 0)
        printf(",\"note\":\"%s\"", r->note);
    printf("}\n");
    fflush(stdout);
}

static void print_text(const struct bench *bench, const struct bench_result *r)
{
    uint32_t n = r->repeats;
    char a[32], b[32], c[32], d[32], e[32], line[512];
    int at = snprintf(line, sizeof(line), "%-10s %-34s ", r->bench, r->name);
    if (r->percentiles) {
        at += snprintf(line + at, sizeof(line) - (size_t)at, "p50 %s [%s..%s]  p99 %s",
                       figure(bench_median(r->p50, n), a), figure(lowest(r->p50, n), b),
                       figure(highest(r->p50, n), c), figure(bench_median(r->p99, n), d));
        /* A percentile of fewer samples than it needs is only the maximum under another name. */
        if (r->samples_min >= 1000)
            at += snprintf(line + at, sizeof(line) - (size_t)at, "  p99.9 %s",
                           figure(bench_median(r->p999, n), a));
        if (r->samples_min >= 10000)
            at += snprintf(line + at, sizeof(line) - (size_t)at, "  p99.99 %s",
                           figure(bench_median(r->p9999, n), a));
        at += snprintf(line + at, sizeof(line) - (size_t)at, "  max %s %s",
                       figure(highest(r->max, n), a), r->unit);
    } else {
        at += snprintf(line + at, sizeof(line) - (size_t)at, "%s [%s..%s] %s",
                       figure(bench_median(r->value, n), a), figure(lowest(r->value, n), b),
                       figure(highest(r->value, n), c), r->unit);
    }
#ifndef PAWL_BUG_BENCH_CORES
    bool refused = bench->cores < r->cores;
#else
    bool refused = false;
#endif
    if (refused) {
        at += snprintf(line + at, sizeof(line) - (size_t)at,
                       "  NEEDS_CORES: %u, has %u: no conclusion", r->cores, bench->cores);
    } else if (r->aim_kind != BENCH_NO_AIM) {
        double have = aim_figure(r);
        bool met = r->aim_kind == BENCH_AT_MOST ? have <= r->aim : have >= r->aim;
        at += snprintf(line + at, sizeof(line) - (size_t)at, "  aim %s %s %s: %s", r->aim_of,
                       r->aim_kind == BENCH_AT_MOST ? "<=" : ">=", figure(r->aim, e),
                       met ? "met" : "missed");
    }
    if (r->far > 0)
        at += snprintf(line + at, sizeof(line) - (size_t)at, "  (%u of %u in a far phase)", r->far,
                       n);
    if (r->note[0] != 0)
        snprintf(line + at, sizeof(line) - (size_t)at, "  (%s)", r->note);
    bench_say(bench, "%s", line);
}

void bench_result_print(const struct bench *b, const struct bench_result *r)
{
    if (r->repeats == 0)
        return;
    print_text(b, r);
    if (b->json)
        print_json(b, r);
    if (b->plot != NULL)
        bench_plot_add(r); /* has the histogram now */
    else
        free(r->all);
}
