/* SPDX-License-Identifier: MIT */
/* top: the queues, how many messages and how fast, again and again. Rates are differences between
 * two looks; a queue that was dropped and made anew starts again at nothing. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "base/bits.h"
#include "base/clock.h"
#include "output.h"
#include "signals.h"
#include "stat.h"
#include "units.h"

struct look {
    struct pawl_queue_stat *v;
    size_t n, space;
    uint64_t at_ns;
};

struct top {
    struct cli *cli;
    struct look now, before;
    uint64_t interval_ns, frames, shown;
    bool live; /* a terminal: written over, keys are read */
    struct termios saved;
    bool raw;
};

static int look_one(void *ctx, const struct pawl_queue_stat *stat)
{
    struct look *l = ctx;
    if (l->n == l->space) {
        l->space = l->space ? l->space * 2 : 64;
        struct pawl_queue_stat *v = realloc(l->v, l->space * sizeof *v);
        if (!v)
            return CLI_REFUSED;
        l->v = v;
    }
    l->v[l->n++] = *stat;
    return CLI_GO;
}

static int take_look(struct top *t)
{
    struct look old = t->before;
    t->before = t->now;
    t->now = old;
    t->now.n = 0;
    int rc = cli_queues_each(t->cli, look_one, &t->now);
    t->now.at_ns = pawl_clock_boot();
    return rc;
}

static const struct pawl_queue_stat *earlier(const struct top *t, const struct pawl_queue_stat *s)
{
    for (size_t i = 0; i < t->before.n; i++)
        if (t->before.v[i].id == s->id && strcmp(t->before.v[i].name, s->name) == 0)
            return &t->before.v[i];
    return NULL;
}

/* Counters of a memory queue begin anew with the broker: no rate then, rather than a wild one. */
static uint64_t rate(const struct top *t, uint64_t now, uint64_t before)
{
    uint64_t ns = t->now.at_ns - t->before.at_ns;
    return now < before || ns == 0 ? 0
                                   : (uint64_t)((unsigned __int128)(now - before) * PAWL_NS_S / ns);
}

/* --- a frame --------------------------------------------------------------------------------- */

static void head(struct top *t)
{
    struct pawl_broker_info info = { .size = sizeof info };
    char lsn[CLI_UNIT_TEXT_BYTES], times[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    char clock[16];
    localtime_r(&now, &tm);
    strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    if (pawl_info(t->cli->lane, &info) != PAWL_OK)
        return;
    if (info.reattached)
        snprintf(times, sizeof times, ", restarted %u time%s", info.reattached,
                 info.reattached == 1 ? "" : "s");
    printf("pawl %s  broker %u %s, %s%s, log at %s  %zu queues%s\n\n", clock, info.pid,
           info.version, info.io, times, cli_size_human(info.durable_lsn, lsn), t->now.n,
           t->live ? "  q quits" : "");
}

static void table(struct top *t, size_t rows)
{
    static const char *const heads[] = { "QUEUE",    ">READY",  ">SCHED",  ">LEASED",
                                         ">DEAD",    ">OLDEST", ">BYTES",  ">SENT/s",
                                         ">DELIV/s", ">ACK/s",  ">NACK/s", ">WAITING" };
    struct cli_table table;
    cli_table_init(&table, t->cli, heads, PAWL_COUNT(heads));
    for (size_t i = 0; i < t->now.n && i < rows; i++) {
        const struct pawl_queue_stat *s = &t->now.v[i], *b = earlier(t, s);
        static const struct pawl_queue_stat none;
        bool known = b != NULL;
        b = known ? b : &none;
        cli_table_add(&table, "%s%s", s->name, s->paused ? " (paused)" : "");
        cli_table_number(&table, t->cli, s->ready);
        cli_table_number(&table, t->cli, s->scheduled);
        cli_table_number(&table, t->cli, s->leased);
        cli_table_number(&table, t->cli, s->dead);
        cli_table_age(&table, t->cli, s->oldest_ready_ns);
        cli_table_size(&table, t->cli, s->bytes);
        const uint64_t pairs[][2] = { { s->sent, b->sent },
                                      { s->delivered, b->delivered },
                                      { s->acked, b->acked },
                                      { s->nacked, b->nacked } };
        for (size_t k = 0; k < PAWL_COUNT(pairs); k++)
            cli_table_number(&table, t->cli, known ? rate(t, pairs[k][0], pairs[k][1]) : 0);
        cli_table_add(&table, "%u", s->waiting);
    }
    cli_table_flush(&table);
    cli_table_fini(&table);
    if (t->now.n > rows)
        printf("... and %zu more\n", t->now.n - rows);
}

static void frame_json(struct top *t)
{
    json_t *queues = json_array();
    for (size_t i = 0; i < t->now.n; i++) {
        const struct pawl_queue_stat *s = &t->now.v[i], *b = earlier(t, s);
        json_t *j = json_pack("{s:s}", "queue", s->name);
        cli_json_number(j, "ready", s->ready);
        cli_json_number(j, "scheduled", s->scheduled);
        cli_json_number(j, "leased", s->leased);
        cli_json_number(j, "dead", s->dead);
        cli_json_number(j, "bytes", s->bytes);
        cli_json_number(j, "sent_per_s", b ? rate(t, s->sent, b->sent) : 0);
        cli_json_number(j, "delivered_per_s", b ? rate(t, s->delivered, b->delivered) : 0);
        cli_json_number(j, "acked_per_s", b ? rate(t, s->acked, b->acked) : 0);
        cli_json_number(j, "nacked_per_s", b ? rate(t, s->nacked, b->nacked) : 0);
        json_array_append_new(queues, j);
    }
    json_t *j = json_pack("{s:o}", "queues", queues);
    cli_json_time(j, "time", pawl_clock_wall());
    cli_json_print(j);
}

static void frame(struct top *t)
{
    struct winsize size = { 0 };
    size_t rows = SIZE_MAX;
    t->shown++;
    if (t->cli->json) {
        frame_json(t);
        return;
    }
    if (t->live) {
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 6)
            rows = size.ws_row - 5u;
        fputs("\033[H\033[J", stdout); /* home, clear to the end */
    } else if (t->shown > 1) {
        putchar('\n');
    }
    head(t);
    table(t, rows);
}

/* --- the loop -------------------------------------------------------------------------------- */

static void terminal_begin(struct top *t)
{
    struct termios raw;
    if (!t->live || !isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &t->saved) != 0)
        return;
    raw = t->saved;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    t->raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static void terminal_end(struct top *t)
{
    if (t->raw)
        tcsetattr(STDIN_FILENO, TCSANOW, &t->saved);
    t->raw = false;
}

/* Waits for the interval. True: the user wants to leave. */
static bool pause_or_quit(struct top *t)
{
    uint64_t end = pawl_clock_boot() + t->interval_ns;
    for (uint64_t now; !cli_stopped() && (now = pawl_clock_boot()) < end;) {
        struct pollfd p = { .fd = t->raw ? STDIN_FILENO : -1, .events = POLLIN };
        uint64_t left_ms = pawl_min_u64((end - now + 999999) / 1000000, 250);
        char key;
        if (poll(&p, 1, (int)left_ms) > 0 && read(STDIN_FILENO, &key, 1) == 1 &&
            (key == 'q' || key == 'Q'))
            return true;
    }
    return cli_stopped();
}

static int run(struct top *t)
{
    int rc = take_look(t);
    if (rc != CLI_GO)
        return rc;
    if (t->live) { /* something to look at while the first difference comes about */
        frame(t);
        t->shown = 0;
        if (!cli_flush())
            return CLI_REFUSED;
    }
    while (t->frames == 0 || t->shown < t->frames) {
        if (pause_or_quit(t))
            return CLI_DONE;
        rc = take_look(t);
        if (rc != CLI_GO)
            return rc;
        frame(t);
        if (!cli_flush())
            return CLI_REFUSED;
    }
    return CLI_DONE;
}

int cli_top(struct cli *cli)
{
    struct top t = { .cli = cli, .interval_ns = PAWL_NS_S };
    bool given = false;
    const struct cli_option options[] = {
        { "interval", CLI_DURATION, &t.interval_ns, "D", "between two looks (1s)", NULL },
        { "count", CLI_NUMBER, &t.frames, "N",
          "end after so many (no end; 1 where stdout is\nno terminal)", &given },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 0, 0);
    if (rc == CLI_GO && t.interval_ns < 10 * PAWL_NS_MS)
        rc = cli_misused(cli, "--interval: at least 10ms");
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    t.live = cli->out_terminal && !cli->json;
    if (!given && !t.live)
        t.frames = 1;
    cli_stop_on_signals();
    terminal_begin(&t);
    rc = run(&t);
    terminal_end(&t);
    free(t.now.v);
    free(t.before.v);
    return rc;
}
