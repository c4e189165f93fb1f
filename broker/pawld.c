/* SPDX-License-Identifier: MIT */
/* pawld(8): the broker as a program. Options, signals, the word to the service manager, exit code;
 * the broker itself is libpawld. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop/config.h"
#include "pawl.h"
#include "pawld.h"
#include "session/directory.h"

static const char help[] =
    "usage: pawld [OPTION]...\n"
    "The message broker of pawl. Serves until SIGTERM or SIGINT.\n"
    "\n"
    "  --dir DIR            directory of the instance (default $PAWL_DIR, else /var/lib/pawl as\n"
    "                       root, else $XDG_STATE_HOME/pawl, else ~/.local/state/pawl)\n"
    "  --socket PATH        where clients connect, at most 107 bytes (default DIR/pawl.sock)\n"
    "  --config FILE        options of the same names, one `name = value` a line; those of the\n"
    "                       command line win\n"
    "  --memory SIZE        for messages, indexes and lanes; at least 64MiB (default a quarter of\n"
    "                       the RAM or of the control group's limit)\n"
    "  --max-log SIZE       of all segments; at least four (default 8GiB)\n"
    "  --spin D             look this long, yielding, before sleeping (default 0)\n"
    "  --io KIND            auto, uring or posix (default auto)\n"
    "  --segment-size SIZE  of a new directory's log, power of two, 1MiB to 1GiB (default 64MiB)\n"
    "  --block-size SIZE    at most one write, power of two, 64KiB to 1MiB (default 256KiB)\n"
    "  --blocks-in-flight N 1 to 8 (default 2)\n"
    "  --relaxed-window D   relaxed queues are flushed within it (default 10ms)\n"
    "  --session-grace D    a lost session is kept so long, at most 1h (default 60s)\n"
    "  --max-sessions N     (default 4096)\n"
    "  --max-queues N       at most 65536 (default 4096)\n"
    "  --version, --help\n"
    "\n"
    "Sizes: 65536, 256KiB, 2GiB. Durations: 50us, 10ms, 5s, 2m, 1h.\n"
    "Exit: 0 clean stop, 1 cannot start, 2 usage, 3 damage in the log, 4 a write or flush "
    "failed.\n";

static struct pawld *running;

static void on_signal(int number)
{
    (void)number;
    int kept = errno;
    pawld_stop(running);
    errno = kept;
}

static int refuse(const char *why)
{
    fprintf(stderr, "pawld: %s\npawld: see pawld --help\n", why);
    return PAWLD_USAGE;
}

/* READY=1, STOPPING=1: one datagram to the socket that the service manager named. */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof a.sun_path)
        return;
    size_t n = strlen(path);
    memcpy(a.sun_path, path, n);
    if (a.sun_path[0] == '@')
        a.sun_path[0] = '\0'; /* an abstract name has no closing zero and counts exactly */
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&a, bytes) < 0)
        fprintf(stderr, "pawld: NOTIFY_SOCKET: %s\n", strerror(errno));
    (void)close(fd);
}

/* Clients take two descriptors and their lanes one or two each: what we may have, we take. */
static void raise_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    /* Past a file size limit a write shall fail with EFBIG, which stops us with a reason. */
    (void)sigaction(SIGXFSZ, &action, NULL);
}

enum { OPTION_HELP = 1, OPTION_VERSION, OPTION_CONFIG, OPTION_NAMED };

static const struct option options[] = {
    { "help", no_argument, NULL, OPTION_HELP },
    { "version", no_argument, NULL, OPTION_VERSION },
    { "config", required_argument, NULL, OPTION_CONFIG },
    { "dir", required_argument, NULL, OPTION_NAMED },
    { "socket", required_argument, NULL, OPTION_NAMED },
    { "memory", required_argument, NULL, OPTION_NAMED },
    { "max-log", required_argument, NULL, OPTION_NAMED },
    { "spin", required_argument, NULL, OPTION_NAMED },
    { "io", required_argument, NULL, OPTION_NAMED },
    { "segment-size", required_argument, NULL, OPTION_NAMED },
    { "block-size", required_argument, NULL, OPTION_NAMED },
    { "blocks-in-flight", required_argument, NULL, OPTION_NAMED },
    { "relaxed-window", required_argument, NULL, OPTION_NAMED },
    { "session-grace", required_argument, NULL, OPTION_NAMED },
    { "max-sessions", required_argument, NULL, OPTION_NAMED },
    { "max-queues", required_argument, NULL, OPTION_NAMED },
    { NULL, 0, NULL, 0 },
};

/* The command line once; `apply` false: only --config, --help, --version. -1: go on. */
static int read_arguments(int argc, char **argv, struct pawl_config *config, bool apply)
{
    char why[PAWLD_TEXT_BYTES];
    int row, option;
    optind = 0;
    while ((option = getopt_long(argc, argv, "", options, &row)) != -1) {
        switch (option) {
        case OPTION_HELP:
            fputs(help, stdout);
            return PAWLD_OK;
        case OPTION_VERSION:
            puts("pawld " PAWL_VERSION);
            return PAWLD_OK;
        case OPTION_CONFIG:
            if (!apply && pawl_config_file(config, optarg, why, sizeof why) != 0)
                return refuse(why);
            break;
        case OPTION_NAMED:
            if (apply && pawl_config_set(config, options[row].name, optarg, why, sizeof why) != 0)
                return refuse(why);
            break;
        default:
            fputs("pawld: see pawld --help\n", stderr); /* getopt has said what */
            return PAWLD_USAGE;
        }
    }
    if (optind < argc) {
        snprintf(why, sizeof why, "unexpected argument \"%s\"", argv[optind]);
        return refuse(why);
    }
    return -1;
}

int main(int argc, char **argv)
{
    static struct pawl_config config;
    char why[PAWLD_TEXT_BYTES];
    pawl_config_init(&config);
    /* Files first, so that the command line wins wherever it stands. */
    int rc = read_arguments(argc, argv, &config, false);
    if (rc < 0)
        rc = read_arguments(argc, argv, &config, true);
    if (rc >= 0)
        return rc;
    if (pawl_config_finish(&config, why, sizeof why) != 0)
        return refuse(why);

    if (config.dir_of_home && pawl_directory_make_parents(config.dir, why, sizeof why) != 0) {
        fprintf(stderr, "pawld: %s\n", why);
        return PAWLD_CANNOT_START;
    }
    raise_files();
    struct pawld *broker;
    rc = pawld_create(&config.options, &broker, why);
    if (rc != PAWLD_OK) {
        fprintf(stderr, "pawld: %s\n", why);
        return rc;
    }
    running = broker;
    catch_signals();
    if (config.options.socket)
        fprintf(stderr, "pawld: ready on %s\n", config.options.socket);
    else
        fprintf(stderr, "pawld: ready on %s/pawl.sock\n", config.options.dir);
    notify("READY=1");
    rc = pawld_run(broker);
    /* What is stopping already need not be told, and will soon not be there to be told. */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    notify("STOPPING=1");
    pawld_destroy(broker);
    return rc;
}
