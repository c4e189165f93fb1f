/* SPDX-License-Identifier: MIT */
/* The picture of a run: latency over percentiles (all repeats of a case together), and bars of
 * what happens a second (median, whiskers from the smallest to the largest repeat). gnuplot draws;
 * its program carries the data within itself, so nothing lies about afterwards. */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct shown {
    char label[96];
    /* a curve, if there is a histogram: */
    struct pawl_histogram *all;
    double to_us; /* one unit of the histogram in us */
    /* else a bar: */
    double value, low, high;
};

static struct shown *shown;
static uint32_t shown_count, shown_room;

/* --- what can be drawn ----------------------------------------------------------------------- */

static const char *suffix_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot == NULL || strchr(dot, '/') != NULL)
        return "";
    return dot + 1;
}

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[BENCH_PATH_BYTES];
    for (const char *p = path; p != NULL && *p != 0;) {
        size_t n = strcspn(p, ":");
        snprintf(file, sizeof(file), "%.*s/%s", (int)n, p, program);
        if (access(file, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

const char *bench_plot_check(const char *path)
{
    if (strcmp(suffix_of(path), "svg") != 0 && strcmp(suffix_of(path), "png") != 0)
        return "PLOT_SUFFIX: --plot takes a file that ends in .svg or .png";
    /* Looked for before anything is measured: minutes later would be late. */
    if (!in_path("gnuplot"))
        return "PLOT_NO_GNUPLOT: --plot needs gnuplot, and there is none in PATH (Debian: "
               "gnuplot-nox)";
    return NULL;
}

static double unit_in_us(const char *unit)
{
    static const struct {
        const char *unit;
        double us;
    } units[] = { { "ns", 1e-3 }, { "us", 1 }, { "ms", 1e3 }, { "s", 1e6 } };
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(unit, units[i].unit) == 0)
            return units[i].us;
    return 0;
}

/* Rates of events; those of bytes have another scale. */
static bool is_rate(const char *unit)
{
    size_t n = strlen(unit);
    return n > 2 && strcmp(unit + n - 2, "/s") == 0 && strstr(unit, "B/s") == NULL;
}

void bench_plot_add(const struct bench_result *r)
{
    bool curve = r->percentiles && r->all != NULL && unit_in_us(r->unit) > 0;
    if (!curve && (r->percentiles || !is_rate(r->unit))) {
        free(r->all);
        return;
    }
    if (shown_count == shown_room) {
        shown_room = shown_room == 0 ? 64 : shown_room * 2;
        shown = realloc(shown, shown_room * sizeof(*shown));
        if (shown == NULL)
            bench_fail("no memory");
    }
    struct shown *s = &shown[shown_count++];
    memset(s, 0, sizeof(*s));
    snprintf(s->label, sizeof(s->label), "%s %s", r->bench, r->name);
    if (curve) {
        s->all = r->all;
        s->to_us = unit_in_us(r->unit) / r->scale;
        return;
    }
    s->low = s->high = r->value[0];
    for (uint32_t i = 1; i < r->repeats; i++) {
        s->low = r->value[i] < s->low ? r->value[i] : s->low;
        s->high = r->value[i] > s->high ? r->value[i] : s->high;
    }
    s->value = bench_median(r->value, r->repeats);
}

/* --- gnuplot's program ----------------------------------------------------------------------- */

/* x is one over the share of samples that are slower: 2 for p50, 100 for p99. Up to where one
 * sample is left, which is the maximum. */
static void curve_data(FILE *to, uint32_t i, const struct shown *s)
{
    fprintf(to, "$d%u << EOD\n", i);
    for (double x = 1; x < (double)s->all->count; x *= 1.2)
        fprintf(to, "%.6g %.6g\n", x,
                (double)pawl_histogram_percentile(s->all, 1 - 1 / x) * s->to_us);
    fprintf(to, "%.6g %.6g\nEOD\n", (double)s->all->count, (double)s->all->max * s->to_us);
}

static void curves(FILE *to)
{
    fprintf(to, "set title 'latency by percentile'\n"
                "set logscale xy\nset grid\nset key outside right top font ',9'\n"
                "set xlabel 'percentile'\nset ylabel 'us'\n"
                "set xtics ('0' 1, 'p50' 2, 'p90' 10, 'p99' 100, 'p99.9' 1000, 'p99.99' 10000, "
                "'p99.999' 100000)\n");
    const char *before = "plot";
    for (uint32_t i = 0; i < shown_count; i++) {
        if (shown[i].all == NULL)
            continue;
        fprintf(to, "%s $d%u using 1:2 with lines linewidth 2 title '%s'", before, i,
                shown[i].label);
        before = ",";
    }
    fprintf(to, "\n");
}

static void bars(FILE *to)
{
    fprintf(to, "$bars << EOD\n");
    for (uint32_t i = 0; i < shown_count; i++)
        if (shown[i].all == NULL)
            fprintf(to, "\"%s\" %.8g %.8g %.8g\n", shown[i].label, shown[i].value, shown[i].low,
                    shown[i].high);
    fprintf(to, "EOD\n"
                "set title 'a second (median, smallest and largest repeat)'\n"
                "unset logscale x\nset logscale y\nset grid ytics\nset nokey\n"
                "set xlabel ''\nset ylabel '1/s'\n"
                "set style fill solid 0.6\nset boxwidth 0.7\n"
                "set xtics rotate by -40 autofreq\nset xrange [-0.6:*]\n"
                "plot $bars using 0:2:3:4:xtic(1) with boxerrorbars\n");
}

uint32_t bench_plot_script(FILE *to, const char *path)
{
    uint32_t n_curves = 0;
    for (uint32_t i = 0; i < shown_count; i++)
        n_curves += shown[i].all != NULL;
    uint32_t n_bars = shown_count - n_curves;
    if (shown_count == 0)
        return 0;
    uint32_t height = (n_curves > 0 ? 700 : 0) + (n_bars > 0 ? 600 : 0);
    fprintf(to, "set terminal %s size 1300,%u noenhanced background '#ffffff'\nset output '%s'\n",
            strcmp(suffix_of(path), "svg") == 0 ? "svg" : "pngcairo", height, path);
    for (uint32_t i = 0; i < shown_count; i++)
        if (shown[i].all != NULL)
            curve_data(to, i, &shown[i]);
    if (n_curves > 0 && n_bars > 0)
        fprintf(to, "set multiplot layout 2,1\n");
    if (n_curves > 0)
        curves(to);
    if (n_bars > 0)
        bars(to);
    return shown_count;
}

void bench_plot_finish(const struct bench *b)
{
    if (b->plot == NULL)
        return;
    if (shown_count == 0) {
        bench_say(b, "PLOT_EMPTY: nothing of what ran has a curve or a rate; no picture");
        return;
    }
    void (*was)(int) = signal(SIGPIPE, SIG_IGN);
    FILE *f = popen("gnuplot", "we");
    if (f == NULL)
        bench_fail("PLOT_NO_GNUPLOT: cannot start gnuplot: %s", strerror(errno));
    bench_plot_script(f, b->plot);
    int status = pclose(f);
    signal(SIGPIPE, was);
    if (status != 0 || access(b->plot, R_OK) != 0)
        bench_fail("PLOT_FAILED: gnuplot ended with status 0x%x, %s is not there", (unsigned)status,
                   b->plot);
    bench_say(b, "picture: %s", b->plot);
}
