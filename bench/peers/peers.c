/* SPDX-License-Identifier: MIT */
/* pawl-bench-peers: what people could use instead of pawl, on the same work in the same run, each
 * in turn with pawl. `make bench-peers` installs what is missing, builds and runs it. Servers run
 * in directories of their own below --dir, on sockets there or on free ports of 127.0.0.1, and end
 * with the run. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <mqueue.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers.h"

const struct bench *peer_bench;

void peers_dir(const struct bench *b, char *out, size_t bytes)
{
    static uint32_t number;
    snprintf(out, bytes, "%s/p%u", b->dir, ++number);
    if (mkdir(out, 0777) != 0 || chmod(out, 0777) != 0 || chmod(b->dir, 0711) != 0)
        bench_fail("%s: %s", out, strerror(errno));
}

void peers_slug(const char *name, char *out, size_t bytes)
{
    size_t n = 0;
    for (; *name != 0 && n + 1 < bytes; name++) {
        if (isalnum((unsigned char)*name))
            out[n++] = (char)tolower((unsigned char)*name);
        else if (n > 0 && out[n - 1] != '_')
            out[n++] = '_';
    }
    out[n] = 0;
}

const char *peers_figure(double v, char out[16])
{
    if (v >= 1e6)
        snprintf(out, 16, "%.2f M", v / 1e6);
    else if (v >= 1e3)
        snprintf(out, 16, "%.*f k", v < 1e5 ? 1 : 0, v / 1e3);
    else
        snprintf(out, 16, "%.0f", v);
    return out;
}

void peer_name(int way, char *out, size_t bytes)
{
    const char *last = strrchr(peer_bench->dir, '/');
    snprintf(out, bytes, "/%.40s-%d", last == NULL ? peer_bench->dir : last + 1, way);
}

/* Also after a run that was killed. What a RouDi leaves is ours if it was not there before. */
static void names_remove(bool roudi_was_there)
{
    char name[64];
    const struct passwd *me = getpwuid(geteuid());
    if (!roudi_was_there) {
        shm_unlink("/iceoryx_mgmt");
        if (me != NULL && snprintf(name, sizeof(name), "/%s", me->pw_name) > 0)
            shm_unlink(name);
        unlink("/tmp/roudi");
        unlink("/tmp/roudi.lock");
    }
    for (int way = 0; way < 2; way++) {
        peer_name(way, name, sizeof(name));
        mq_unlink(name);
        shm_unlink(name);
    }
}

struct options {
    struct bench b;
    const char *dir, *markdown;
    bool hops, queues;
};

static void usage(FILE *to)
{
    fprintf(to,
            "usage: pawl-bench-peers [options] [hops] [queues]\n\n"
            "  --repeats N      rounds over all peers, 1..4 (default 3)\n"
            "  --seconds S      length of one measurement (default 0.7)\n"
            "  --only TEXT      only cases whose name holds TEXT, as hop_zeromq or queue_redis\n"
            "  --dir DIR        where servers have their data: a real disk (default /tmp)\n"
            "  --markdown FILE  the tables, as in PEERS.md\n"
            "  --plot FILE      .svg or .png\n"
            "  --json           one line of JSON a result on stdout, the table on stderr\n"
            "  --pawld FILE     the broker (default: beside this program)\n");
}

static void parse(struct options *o, int argc, char **argv)
{
    static const struct option options[] = {
        { "repeats", required_argument, NULL, 'r' },  { "seconds", required_argument, NULL, 't' },
        { "only", required_argument, NULL, 'o' },     { "dir", required_argument, NULL, 'd' },
        { "markdown", required_argument, NULL, 'm' }, { "plot", required_argument, NULL, 'g' },
        { "json", no_argument, NULL, 'j' },           { "pawld", required_argument, NULL, 'b' },
        { "help", no_argument, NULL, 'h' },           { NULL, 0, NULL, 0 }
    };
    struct bench *b = &o->b;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'r':
            b->repeats = (uint32_t)atoi(optarg);
            break;
        case 't':
            b->seconds = strtod(optarg, NULL);
            break;
        case 'o':
            b->only = optarg;
            break;
        case 'd':
            o->dir = optarg;
            break;
        case 'm':
            o->markdown = optarg;
            break;
        case 'g':
            b->plot = optarg;
            break;
        case 'j':
            b->json = true;
            break;
        case 'b':
            snprintf(b->pawld, sizeof(b->pawld), "%s", optarg);
            break;
        default:
            usage(c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
    }
    for (; optind < argc; optind++) {
        o->hops |= strcmp(argv[optind], "hops") == 0;
        o->queues |= strcmp(argv[optind], "queues") == 0;
    }
    if (!o->hops && !o->queues)
        o->hops = o->queues = true;
    if (b->repeats < 1 || b->repeats > 4 || b->seconds <= 0) {
        usage(stderr);
        exit(2);
    }
    const char *wrong = b->plot == NULL ? NULL : bench_plot_check(b->plot);
    if (wrong != NULL) {
        fprintf(stderr, "pawl-bench-peers: %s\n", wrong);
        exit(2);
    }
}

static void head(const struct bench *b, FILE *to)
{
    char cpu[128], kernel[64], system[64];
    struct bench_phase phase;
    bench_phase_probe(b, &phase);
    peer_command_line("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo", cpu, sizeof(cpu));
    peer_command_line("uname -sr", kernel, sizeof(kernel));
    peer_command_line("sed -n 's/^PRETTY_NAME=\"\\(.*\\)\"/\\1/p' /etc/os-release", system,
                      sizeof(system));
    fprintf(to,
            "%u x %s, %s, %s; the cores %.0f ns apart. `make bench-peers`: %u rounds over all, "
            "each measurement %.2g s; medians of the rounds. Servers and pawl's broker on core %d, "
            "clients on core %d, asleep when there is nothing to do unless the table says spins.\n",
            b->cores, cpu, kernel, system, phase.hop_ns, b->repeats, b->seconds, b->broker_core,
            b->client_core);
    if (b->cores < 2)
        fprintf(to, "\nNEEDS_CORES: 2, has 1: no conclusion.\n");
}

static void work(void *arg)
{
    struct options *o = arg;
    struct bench *b = &o->b;
    FILE *to = fopen(o->markdown == NULL ? "/dev/null" : o->markdown, "we");
    if (to == NULL)
        bench_fail("%s: %s", o->markdown, strerror(errno));
    b->disk_core = bench_disk_core(b->dir);
    b->broker_core = bench_core_allowed(b->disk_core) ? b->disk_core : bench_core(0);
    b->client_core = bench_core(b->cores > 1 && b->broker_core == bench_core(0));
    bench_header(b);
    head(b, to);
    if (o->hops)
        peers_hops(b, to);
    if (o->queues)
        peers_queues(b, to);
    fclose(to);
    bench_plot_finish(b);
}

int main(int argc, char **argv)
{
    static struct options o;
    struct bench *b = &o.b;
    b->cores = bench_cores();
    b->repeats = 3;
    b->seconds = 0.7;
    b->window = b->credit = 1024;
    o.dir = "/tmp";
    bench_find_pawld(b);
    parse(&o, argc, argv);
    peer_bench = b;
    bool roudi = access("/tmp/roudi.lock", F_OK) == 0;
    int rc = bench_run(b, o.dir, work, &o);
    names_remove(roudi);
    return rc;
}
