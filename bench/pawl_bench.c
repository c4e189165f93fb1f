/* SPDX-License-Identifier: MIT */
/* pawl-bench: options and the list of scenarios. README.md says what each
 * asks and how to read it. */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

struct scenario {
    const char *name, *what;
    void (*run)(const struct bench *b);
};

static const struct scenario scenarios[] = {
    { "limits", "what the machine can do: cache line, bare ring, bare device, futex, copy",
      bench_limits },
    { "path", "the broker's own code, without clients, wake-ups and shared lines", bench_path },
    { "durable", "one durable send at a time beside the bare device; 16 producers", bench_durable },
    { "latency", "one message at a time, and on a schedule: how long to the other's hand",
      bench_latency },
    { "throughput", "full lives (send, receive, ack) a second", bench_throughput },
    { "txn", "ack + 3 sends + 2 writes of a table, as one", bench_txn },
    { "recover", "seconds and MB/s to open a log after a crash", bench_recover },
    { "memory", "bytes of memory a waiting message", bench_memory },
    { "timers", "delayed messages: insertion, memory, lateness of a storm", bench_timers },
    { "death", "SIGKILL of a consumer until another one has its message", bench_death },
    { "ledger",
      "dedup keys: memory, look-ups, the longest insertion; lives with keys beside without",
      bench_ledger },
    { "idle", "processor time of the broker and of idle clients", bench_idle },
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

static void usage(FILE *to)
{
    fprintf(
        to,
        "usage: pawl-bench [options] all|SCENARIO...\n\n"
        "  --small           a set of seconds, which proves that all of it works\n"
        "  --repeats N       kept repeats of each case (default 5; small 1)\n"
        "  --seconds S       length of one measurement of a rate (default 3; small 0.2)\n"
        "  --pin B,C|none    core of the broker and of the clients (default: the core that\n"
        "                    takes the disk's interrupts, and the other one)\n"
        "  --dir DIR         where the logs go (default: here; take a real disk)\n"
        "  --json            one line of JSON a result on stdout, the table on stderr\n"
        "  --only TEXT       only cases whose name holds TEXT\n"
        "  --plot FILE       percentile curves and bars, by suffix .svg or .png (gnuplot)\n"
        "  --log MIB         log to recover from (default 1024)\n"
        "  --mode MODE       of latency: durable, memory or direct; may be repeated\n"
        "  --size BYTES      of latency: of a body, 16..60000 (default 64)\n"
        "  --rate N          of latency: messages a second on a schedule (default: several)\n"
        "  --processes N     of latency: producers, and as many consumers (default 1; not direct)\n"
        "  --delayed N       messages of timers (default 10000000)\n"
        "  --window N        open operations of a producer (default 1024)\n"
        "  --credit N        messages a consumer may hold (default 1024)\n"
        "  --pawld FILE      the broker (default: beside this program)\n"
        "  --pass OPTION     handed on to every broker; may be repeated\n\n");
    for (size_t i = 0; i < SCENARIOS; i++)
        fprintf(to, "  %-11s %s\n", scenarios[i].name, scenarios[i].what);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || v < least || v > most) {
        fprintf(stderr, "pawl-bench: %s: not a number from %llu to %llu\n", text,
                (unsigned long long)least, (unsigned long long)most);
        exit(2);
    }
    return v;
}

static uint32_t mode_bit(const char *text)
{
    static const struct {
        const char *name;
        enum pawl_mode mode;
    } modes[] = { { "durable", PAWL_DURABLE },
                  { "memory", PAWL_MEMORY },
                  { "relaxed", PAWL_RELAXED },
                  { "direct", PAWL_DIRECT } };
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(text, modes[i].name) == 0)
            return 1u << modes[i].mode;
    fprintf(stderr, "pawl-bench: --mode takes durable, memory, relaxed or direct\n");
    exit(2);
}

static void parse_pin(struct bench *b, const char *text)
{
    int broker, client;
    char rest;
    if (strcmp(text, "none") == 0) {
        b->broker_core = b->client_core = -1;
    } else if (sscanf(text, "%d,%d%c", &broker, &client, &rest) == 2 &&
               bench_core_allowed(broker) && bench_core_allowed(client)) {
        b->broker_core = broker;
        b->client_core = client;
    } else {
        fprintf(stderr, "pawl-bench: --pin takes two cores, as 1,0, or none\n");
        exit(2);
    }
}

struct choice {
    struct bench b;
    bool chosen[SCENARIOS];
    bool pinned;
    const char *parent_dir;
};

static void parse(struct choice *c, int argc, char **argv)
{
    static const struct option options[] = {
        { "small", no_argument, NULL, 's' },         { "repeats", required_argument, NULL, 'r' },
        { "seconds", required_argument, NULL, 't' }, { "pin", required_argument, NULL, 'p' },
        { "dir", required_argument, NULL, 'd' },     { "json", no_argument, NULL, 'j' },
        { "only", required_argument, NULL, 'o' },    { "log", required_argument, NULL, 'z' },
        { "size", required_argument, NULL, 'B' },    { "mode", required_argument, NULL, 'm' },
        { "rate", required_argument, NULL, 'R' },    { "processes", required_argument, NULL, 'P' },
        { "plot", required_argument, NULL, 'g' },    { "delayed", required_argument, NULL, 'n' },
        { "window", required_argument, NULL, 'w' },  { "credit", required_argument, NULL, 'c' },
        { "pawld", required_argument, NULL, 'b' },   { "pass", required_argument, NULL, 'x' },
        { "help", no_argument, NULL, 'h' },          { NULL, 0, NULL, 0 }
    };
    struct bench *b = &c->b;
    double seconds = 0;
    int o;
    while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (o) {
        case 's':
            b->small = true;
            break;
        case 'r':
            b->repeats = (uint32_t)number(optarg, 1, BENCH_REPEATS_MAX);
            break;
        case 't':
            seconds = strtod(optarg, NULL);
            break;
        case 'p':
            parse_pin(b, optarg);
            c->pinned = true;
            break;
        case 'd':
            c->parent_dir = optarg;
            break;
        case 'j':
            b->json = true;
            break;
        case 'o':
            b->only = optarg;
            break;
        case 'z':
            b->recover_bytes = number(optarg, 1, 1 << 20) << 20;
            break;
        case 'B':
            b->body_bytes = (uint32_t)number(optarg, 16, 60000);
            break;
        case 'm':
            b->modes |= mode_bit(optarg);
            break;
        case 'R':
            b->rate = number(optarg, 1, 100000000);
            break;
        case 'P':
            b->processes = (uint32_t)number(optarg, 1, BENCH_PROCESSES_MAX);
            break;
        case 'g':
            b->plot = optarg;
            break;
        case 'n':
            b->delayed = number(optarg, 1000, 1000000000);
            break;
        case 'w':
            b->window = (uint32_t)number(optarg, 64, 65536);
            break;
        case 'c':
            b->credit = (uint32_t)number(optarg, 1, 65536);
            break;
        case 'b':
            snprintf(b->pawld, sizeof(b->pawld), "%s", optarg);
            break;
        case 'x':
            if (b->extra_count >= BENCH_EXTRA_MAX)
                exit(2);
            b->extra[b->extra_count++] = optarg;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }
    bool any = false;
    for (; optind < argc; optind++) {
        bool known = false;
        for (size_t i = 0; i < SCENARIOS; i++) {
            if (strcmp(argv[optind], "all") == 0 || strcmp(argv[optind], scenarios[i].name) == 0)
                c->chosen[i] = known = any = true;
        }
        if (!known) {
            fprintf(stderr, "pawl-bench: %s: no such scenario\n", argv[optind]);
            exit(2);
        }
    }
    if (!any) {
        usage(stderr);
        exit(2);
    }
    if (b->repeats == 0)
        b->repeats = b->small ? 1 : 5;
    if (b->modes == 0)
        b->modes = 1u << PAWL_DURABLE | 1u << PAWL_MEMORY | 1u << PAWL_DIRECT;
    const char *wrong = b->plot == NULL ? NULL : bench_plot_check(b->plot);
    if (wrong != NULL) {
        fprintf(stderr, "pawl-bench: %s\n", wrong);
        exit(2);
    }
    if (b->recover_bytes == 0)
        b->recover_bytes = (b->small ? 24ull : 1024ull) << 20;
    if (b->delayed == 0)
        b->delayed = b->small ? 20000 : 10000000;
    b->seconds = seconds > 0 ? seconds : b->small ? 0.2 : 3;
}

static void work(void *arg)
{
    struct choice *c = arg;
    struct bench *b = &c->b;
    b->disk_core = bench_disk_core(b->dir);
    if (!c->pinned) {
        bool usable = b->disk_core >= 0 && bench_core_allowed(b->disk_core);
        b->broker_core = usable ? b->disk_core : bench_core(0);
        b->client_core = bench_core(b->cores > 1 && b->broker_core == bench_core(0));
    }
    bench_header(b);
    for (size_t i = 0; i < SCENARIOS; i++)
        if (c->chosen[i])
            scenarios[i].run(b);
    bench_plot_finish(b);
}

int main(int argc, char **argv)
{
    static struct choice c;
    c.b.cores = bench_cores();
    c.b.body_bytes = 64;
    c.b.processes = 1;
    c.b.window = c.b.credit = 1024;
    c.parent_dir = ".";
    bench_find_pawld(&c.b);
    parse(&c, argc, argv);
    return bench_run(&c.b, c.parent_dir, work, &c);
}
