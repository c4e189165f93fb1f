/* SPDX-License-Identifier: MIT */
/* Where the broker is, and the attach. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli.h"
#include "units.h"

/* Never NULL: a directory that is too long is caught by whoever opens it. */
static const char *default_dir(char *text, size_t bytes)
{
    const char *env = getenv("PAWL_DIR");
    if (env)
        return env;
    if (geteuid() == 0)
        return "/var/lib/pawl";
    env = getenv("XDG_STATE_HOME");
    if (env && *env == '/') {
        snprintf(text, bytes, "%s/pawl", env);
        return text;
    }
    env = getenv("HOME");
    if (!env || !*env) {
        const struct passwd *user = getpwuid(geteuid());
        env = user ? user->pw_dir : "";
    }
    snprintf(text, bytes, "%s/.local/state/pawl", env);
    return text;
}

const char *cli_dir(const struct cli *cli)
{
    static char text[PATH_MAX];
    return cli->dir ? cli->dir : default_dir(text, sizeof text);
}

const char *cli_socket(const struct cli *cli)
{
    static char text[PATH_MAX + 16];
    const char *env = getenv("PAWL_SOCKET");
    if (cli->socket)
        return cli->socket;
    if (!cli->dir && env)
        return env;
    snprintf(text, sizeof text, "%s/pawl.sock", cli_dir(cli));
    return text;
}

int cli_place_check(const struct cli *cli)
{
    const char *socket = getenv("PAWL_SOCKET"), *dir = getenv("PAWL_DIR");
    if (cli->dir)
        return CLI_GO;
    if (!cli->socket && socket && !*socket)
        return cli_misused(cli, "$PAWL_SOCKET is set and empty: unset it, or let it name the "
                                "broker's socket");
    if (dir && !*dir)
        return cli_misused(cli, "$PAWL_DIR is set and empty: unset it, or let it name the "
                                "broker's directory");
    return CLI_GO;
}

static bool socket_is_there(const struct cli *cli)
{
    struct stat st;
    return stat(cli_socket(cli), &st) == 0 && S_ISSOCK(st.st_mode);
}

pid_t cli_lock_holder(const char *dir)
{
    char path[4200], text[32] = "";
    snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    /* shared, and at once given back: a broker that starts in this moment tries again */
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    ssize_t n = held ? pread(fd, text, sizeof text - 1, 0) : 0;
    close(fd);
    return held ? (n > 0 ? (pid_t)atoi(text) : -1) : 0;
}

/* Not a matter of starting one: it is there. */
static bool hangs(const struct cli *cli)
{
    pid_t holder = socket_is_there(cli) ? cli_lock_holder(cli_dir(cli)) : 0;
    if (holder <= 0)
        return false;
    fprintf(stderr,
            "pawl: %s: pid %d holds %s and does not answer at %s: it is starting, stopped or "
            "overloaded, or --socket is not the one that it was given; `pawl doctor` says more\n",
            pawl_strname(PAWL_E_BROKER_DOWN), (int)holder, cli_dir(cli), cli_socket(cli));
    return true;
}

static int no_broker(const struct cli *cli)
{
    if (hangs(cli))
        return CLI_REFUSED;
    fprintf(stderr, "pawl: %s: no broker at %s; start one with: pawld --dir %s",
            pawl_strname(PAWL_E_BROKER_DOWN), cli_socket(cli), cli_dir(cli));
    if (cli->socket || strncmp(cli_socket(cli), cli_dir(cli), strlen(cli_dir(cli))) != 0)
        fprintf(stderr, " --socket %s", cli_socket(cli));
    fputc('\n', stderr);
    return CLI_REFUSED;
}

int cli_attach(struct cli *cli, struct pawl_options *options)
{
    struct pawl_options own = PAWL_OPTIONS_INIT;
    char label[64], text[CLI_UNIT_TEXT_BYTES];
    struct pawl_options *o = options ? options : &own;
    int rc = cli_place_check(cli);
    if (rc != CLI_GO)
        return rc;
    snprintf(label, sizeof label, "pawl %s", cli->command->name);
    o->size = sizeof *o;
    o->dir = cli_dir(cli);
    o->socket = cli_socket(cli);
    o->label = label;
    if (cli->timeout_given || o->timeout_ns == 0)
        o->timeout_ns = cli->timeout_ns ? cli->timeout_ns : 1; /* 0 is "the default" there */

    uint32_t flags = o->flags;
    o->flags |= PAWL_OPEN_NO_WAIT;
    uint64_t begun = pawl_clock_boot();
    rc = pawl_open(o, &cli->lane);
    o->flags = flags;
    /* One that is there and hangs has taken all of the time. */
    bool again = pawl_clock_boot() - begun < o->timeout_ns;
    /* A socket without a broker behind it is what a killed broker leaves: one may be coming back.
     * No socket at all: nobody ever was here, or he left for good. */
    if (rc == PAWL_E_BROKER_DOWN && again && (cli->timeout_given || socket_is_there(cli))) {
        if (cli->err_terminal)
            fprintf(stderr, "pawl: no broker at %s; waiting up to %s\n", o->socket,
                    cli_duration_human(o->timeout_ns, text));
        rc = pawl_open(o, &cli->lane);
    }
    if (rc == PAWL_OK)
        return CLI_GO;
    /* also down: one that may not be reached, and the library says why */
    if (rc == PAWL_E_BROKER_DOWN && strncmp(pawl_last_text(NULL), "cannot ", 7) != 0)
        return no_broker(cli);
    return cli_refused(cli, rc, CLI_ABOUT_NONE, NULL);
}
