/* SPDX-License-Identifier: MIT */
/* doctor: versions and the broker; machine and disk are next door. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "args.h"
#include "base/clock.h"
#include "doctor.h"
#include "output.h"
#include "stat.h"
#include "units.h"

#define BROKER_TIMEOUT_NS (2 * PAWL_NS_S)

void doctor_say(struct doctor *doctor, enum doctor_level level, const char *subject,
                const char *cure, const char *format, ...)
{
    static const char *const names[] = { "ok", "warn", "bad" };
    static const char *const colours[] = { "\033[32m", "\033[33m", "\033[31m" };
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    doctor->count[level]++;
    if (doctor->cli->json) {
        json_t *j =
            json_pack("{s:s,s:s,s:s}", "level", names[level], "subject", subject, "text", text);
        if (cure)
            json_object_set_new(j, "do", json_string(cure));
        cli_json_print(j);
        return;
    }
    bool colour = doctor->cli->out_terminal;
    printf("%s%-4s%s  %-10s  %s\n", colour ? colours[level] : "", names[level],
           colour ? "\033[0m" : "", subject, text);
    if (cure)
        printf("%-4s  %-10s  -> %s\n", "", "", cure);
}

/* When the process started, as wall time; 0: not to be found out. */
static uint64_t started_wall_ns(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    /* the name in parentheses may hold anything: count from the last one */
    const char *p = strrchr(text, ')');
    unsigned long long ticks = 0;
    if (!p || sscanf(p + 1,
                     " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                     "%*d %*d %llu",
                     &ticks) != 1)
        return 0;
    uint64_t since_boot = ticks * (PAWL_NS_S / (uint64_t)sysconf(_SC_CLK_TCK));
    uint64_t boot = pawl_clock_boot();
    return since_boot > boot ? 0 : pawl_clock_wall() - (boot - since_boot);
}

static void check_answering(struct doctor *d, struct pawl *lane)
{
    struct pawl_broker_info info = { .size = sizeof info };
    struct pawl_queue_stat first = { .size = sizeof first };
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES] = "", since[128] = "";
    /* one call, to see that it answers; with the answer comes how far the log is */
    int rc = pawl_queue_list(lane, NULL, &first, 1);
    if (rc < 0) {
        doctor_say(d, DOCTOR_BAD, "broker", "see what it said on its stderr", "%s: %s",
                   pawl_strname(rc), pawl_last_text(lane));
        return;
    }
    if (pawl_info(lane, &info) != PAWL_OK)
        return;
    d->broker = (pid_t)info.pid;
    uint64_t wall = started_wall_ns(d->broker);
    if (wall)
        snprintf(since, sizeof since, ", since %s (%s)", cli_time_format(wall, a),
                 cli_duration_human(pawl_clock_wall() - wall, b));
    doctor_say(d, DOCTOR_OK, "broker", NULL, "pid %u%s, start number %llu, log at %s", info.pid,
               since, (unsigned long long)info.broker_epoch, cli_size_human(info.durable_lsn, a));
    if (strcmp(info.version, PAWL_VERSION) != 0)
        doctor_say(d, DOCTOR_WARN, "versions", "install the same version of both",
                   "this program is %s, the broker %s", PAWL_VERSION, info.version);
    else
        doctor_say(d, DOCTOR_OK, "versions", NULL, "this program and the broker are %s",
                   info.version);
    if (strcmp(info.io, "uring") == 0)
        doctor_say(d, DOCTOR_OK, "io in use", NULL, "io_uring");
    else
        doctor_say(d, DOCTOR_WARN, "io in use",
                   "see the line io below; a broker decides it at its start",
                   "%s: the same promises, slower", info.io);
}

static void check_broker(struct doctor *d)
{
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl *lane = NULL;
    char cure[4400];
    o.dir = d->dir;
    o.socket = cli_socket(d->cli);
    o.label = "pawl doctor";
    o.timeout_ns =
        d->cli->timeout_given && d->cli->timeout_ns ? d->cli->timeout_ns : BROKER_TIMEOUT_NS;
    o.flags = PAWL_OPEN_NO_WAIT;
    int rc = pawl_open(&o, &lane);
    if (rc == PAWL_OK) {
        check_answering(d, lane);
        pawl_close(lane);
        return;
    }
    doctor_say(d, DOCTOR_OK, "versions", NULL, "this program is %s", PAWL_VERSION);
    pid_t holder = cli_lock_holder(d->dir);
    snprintf(cure, sizeof cure, "start one with: pawld --dir %s", d->dir);
    if (rc != PAWL_E_BROKER_DOWN)
        doctor_say(d, DOCTOR_BAD, "broker", "see the name of the error in pawl(1)", "%s: %s",
                   pawl_strname(rc), pawl_last_text(NULL));
    else if (holder > 0)
        doctor_say(d, DOCTOR_WARN, "broker",
                   "it may be starting: try again; else is --socket the one that it was given?",
                   "pid %d holds %s and does not answer at %s", (int)holder, d->dir, o.socket);
    else
        doctor_say(d, DOCTOR_WARN, "broker", cure, "none answers at %s", o.socket);
}

static void check_socket(struct doctor *d)
{
    size_t max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    const char *path = cli_socket(d->cli);
    if (strlen(path) > max)
        doctor_say(d, DOCTOR_BAD, "socket", "give both sides a shorter one with --socket",
                   "its path has %zu bytes, at most %zu are possible", strlen(path), max);
    else
        doctor_say(d, DOCTOR_OK, "socket", NULL, "%s", path);
}

int cli_doctor(struct cli *cli)
{
    int rc = cli_args(cli, NULL, 0, 0, 1);
    if (rc != CLI_GO)
        return rc;
    if (cli->argc == 1 && !*cli->argv[0])
        return cli_misused(cli, "DIR is empty: name the broker's directory, or leave it out");
    if (cli->argc == 1)
        cli->dir = cli->argv[0];
    rc = cli_place_check(cli);
    if (rc != CLI_GO)
        return rc;
    struct doctor d = { .cli = cli, .dir = cli_dir(cli) };
    check_broker(&d);
    check_socket(&d);
    doctor_machine(&d);
    doctor_disk(&d);
    cli_say(cli, "%u ok, %u warn, %u bad", d.count[DOCTOR_OK], d.count[DOCTOR_WARN],
            d.count[DOCTOR_BAD]);
    return d.count[DOCTOR_BAD] ? CLI_REFUSED : CLI_DONE;
}
