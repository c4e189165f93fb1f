/* SPDX-License-Identifier: MIT */
/* list, stat, metrics. */
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "base/bits.h"
#include "output.h"
#include "stat.h"
#include "units.h"

#define PAGE 64u

const char *cli_mode_name(uint32_t mode)
{
    static const char *const names[] = { "durable", "relaxed", "memory", "direct", "table" };
    return mode < PAWL_COUNT(names) ? names[mode] : "unknown";
}

const char *cli_forward_trouble(struct cli *cli, const struct pawl_queue_options *options)
{
    struct pawl_queue_stat to = { .size = sizeof to };
    if (!*options->dead_forward)
        return NULL;
    int rc = pawl_queue_stat(cli->lane, options->dead_forward, &to);
    if (rc == PAWL_E_NOT_FOUND)
        return "no such queue, or not yours to see";
    /* the broker's rule: what was promised for a message must not shrink on the way */
    if (rc == PAWL_OK && to.options.mode > options->mode)
        return "its mode promises less than this queue's";
    if (rc == PAWL_OK && options->mode == PAWL_MEMORY && to.options.mode != PAWL_MEMORY)
        return "a memory queue forwards to memory queues only";
    return NULL;
}

int cli_queues_each(struct cli *cli, cli_queue_each *each, void *ctx)
{
    struct pawl_queue_stat *page = calloc(PAGE, sizeof *page);
    char after[PAWL_NAME_BYTES_MAX + 1] = "";
    int rc = CLI_GO;
    if (!page)
        return cli_failed(cli, "out of memory");
    while (rc == CLI_GO) {
        for (size_t i = 0; i < PAGE; i++)
            page[i].size = sizeof page[i];
        int n = pawl_queue_list(cli->lane, after, page, PAGE);
        if (n < 0)
            rc = cli_refused(cli, n, CLI_ABOUT_NONE, NULL);
        if (n <= 0)
            break;
        for (int i = 0; i < n && rc == CLI_GO; i++)
            rc = each(ctx, &page[i]);
        memcpy(after, page[n - 1].name, sizeof after);
    }
    free(page);
    return rc;
}

/* --- JSON of a queue ------------------------------------------------------------------------- */

/* A limit of which 0 says that there is none. */
static void json_limit(json_t *object, const char *name, uint64_t limit)
{
    cli_json_number(object, name, limit ? limit : PAWL_UNLIMITED);
}

static json_t *options_json(const struct pawl_queue_options *o)
{
    char perm[8];
    json_t *j = json_object(), *retry = json_array();
    snprintf(perm, sizeof perm, "%04o", o->perm);
    for (uint32_t i = 0; i < o->retry_count && i < PAWL_RETRY_STEPS_MAX; i++)
        json_array_append_new(retry, json_integer((json_int_t)o->retry_ns[i]));
    json_object_set_new(j, "mode", json_string(cli_mode_name(o->mode)));
    json_object_set_new(j, "ordered", json_boolean(o->flags & PAWL_QUEUE_ORDERED));
    cli_json_number(j, "lease_ns", o->lease_ns);
    cli_json_number(j, "max_hold_ns", o->max_hold_ns);
    json_limit(j, "ttl_ns", o->ttl_ns);
    cli_json_number(j, "retain_ns", o->done_retention_ns);
    cli_json_number(j, "dedup_window_ns", o->dedup_window_ns);
    json_limit(j, "max_failed", o->max_failed);
    json_limit(j, "max_crashed", o->max_crashed);
    cli_json_number(j, "max_inflight", o->max_inflight);
    json_limit(j, "max_messages", o->max_messages);
    json_limit(j, "max_bytes", o->max_bytes);
    cli_json_number(j, "max_message_bytes", o->max_message_bytes);
    json_object_set_new(j, "retry_ns", retry);
    json_object_set_new(j, "dead_forward", json_string(o->dead_forward));
    cli_json_number(j, "owner", o->owner);
    cli_json_number(j, "group", o->group);
    json_object_set_new(j, "perm", json_string(perm));
    return j;
}

static json_t *stat_json(const struct pawl_queue_stat *s)
{
    json_t *j = json_object();
    json_object_set_new(j, "queue", json_string(s->name));
    cli_json_number(j, "number", s->id);
    json_object_set_new(j, "mode", json_string(cli_mode_name(s->options.mode)));
    json_object_set_new(j, "paused", json_boolean(s->paused));
    if (s->options.mode == PAWL_DIRECT) {
        cli_json_number(j, "incarnation", s->incarnation);
        cli_json_number(j, "attached", s->attached);
        cli_json_number(j, "damaged", s->damaged);
    }
    cli_json_number(j, "ready", s->ready);
    cli_json_number(j, "scheduled", s->scheduled);
    cli_json_number(j, "leased", s->leased);
    cli_json_number(j, "dead", s->dead);
    cli_json_number(j, "done", s->done);
    cli_json_number(j, "bytes", s->bytes);
    cli_json_number(j, "oldest_ready_ns", s->oldest_ready_ns);
    cli_json_number(j, "waiting", s->waiting);
    cli_json_number(j, "sent", s->sent);
    cli_json_number(j, "delivered", s->delivered);
    cli_json_number(j, "acked", s->acked);
    cli_json_number(j, "nacked", s->nacked);
    cli_json_number(j, "expired_leases", s->expired_leases);
    cli_json_number(j, "crashed", s->crashed);
    cli_json_number(j, "released", s->released);
    cli_json_number(j, "expired", s->expired);
    cli_json_number(j, "cancelled", s->cancelled);
    cli_json_number(j, "purged", s->purged);
    json_object_set_new(j, "options", options_json(&s->options));
    return j;
}

/* --- list ------------------------------------------------------------------------------------ */

struct list {
    struct cli *cli;
    struct cli_table table;
    bool names, tables;
    uint64_t count;
};

static int list_one(void *ctx, const struct pawl_queue_stat *s)
{
    struct list *l = ctx;
    if (l->tables && s->options.mode != PAWL_TABLE)
        return CLI_GO;
    l->count++;
    if (l->names) {
        puts(s->name);
        return CLI_GO;
    }
    if (l->cli->json) {
        cli_json_print(stat_json(s));
        return CLI_GO;
    }
    struct cli_table *t = &l->table;
    cli_table_add(t, "%s", s->name);
    cli_table_add(t, "%s%s", cli_mode_name(s->options.mode), s->paused ? ",paused" : "");
    cli_table_number(t, l->cli, s->ready);
    cli_table_number(t, l->cli, s->scheduled);
    cli_table_number(t, l->cli, s->leased);
    cli_table_number(t, l->cli, s->dead);
    cli_table_number(t, l->cli, s->done);
    cli_table_size(t, l->cli, s->bytes);
    cli_table_age(t, l->cli, s->oldest_ready_ns);
    cli_table_number(t, l->cli, s->waiting);
    return CLI_GO;
}

int cli_list(struct cli *cli)
{
    static const char *const heads[] = { "QUEUE", "MODE",  ">READY", ">SCHEDULED", ">LEASED",
                                         ">DEAD", ">DONE", ">BYTES", ">OLDEST",    ">WAITING" };
    struct list l = { .cli = cli };
    const struct cli_option options[] = {
        { "names", CLI_FLAG, &l.names, NULL, "the names alone", NULL },
        { "tables", CLI_FLAG, &l.tables, NULL, "tables alone", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 0, 0);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    cli_table_init(&l.table, cli, heads, PAWL_COUNT(heads));
    rc = cli_queues_each(cli, list_one, &l);
    if (!cli->json && !l.names && (l.count || !cli->out_terminal))
        cli_table_flush(&l.table);
    else if (!cli->json && !l.names)
        cli_say(cli, "no queues yet; make one with: pawl create QUEUE");
    cli_table_fini(&l.table);
    return rc == CLI_GO ? CLI_DONE : rc;
}

/* --- stat ------------------------------------------------------------------------------------ */

static void line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(const char *name, const char *format, ...)
{
    va_list args;
    printf("%-16s ", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static const char *limit(uint64_t n, char text[CLI_UNIT_TEXT_BYTES])
{
    if (n == 0 || n == PAWL_UNLIMITED)
        return "no limit";
    snprintf(text, CLI_UNIT_TEXT_BYTES, "%llu", (unsigned long long)n);
    return text;
}

static void print_rights(const struct pawl_queue_options *o)
{
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES];
    const struct passwd *user = getpwuid(o->owner);
    const struct group *group = getgrgid(o->group);
    snprintf(a, sizeof a, "%u", o->owner);
    snprintf(b, sizeof b, "%u", o->group);
    line("rights", "%s:%s %04o", user ? user->pw_name : a, group ? group->gr_name : b, o->perm);
}

static void print_options(struct cli *cli, const struct pawl_queue_options *o)
{
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES];
    bool direct = o->mode == PAWL_DIRECT;
    line("lease", "%s, held at most %s", cli_duration_format(o->lease_ns, a),
         cli_duration_format(o->max_hold_ns, b));
    line("max-failed", "%s", limit(o->max_failed, a));
    if (!direct)
        line("max-crashed", "%s", limit(o->max_crashed, a));
    printf("%-16s ", "retry");
    for (uint32_t i = 0; i < o->retry_count && i < PAWL_RETRY_STEPS_MAX; i++)
        printf("%s%s", i ? "," : "", cli_duration_format(o->retry_ns[i], a));
    puts(o->retry_count ? "" : direct ? "0" : "0,1s,5s,30s,2m,10m");
    if (direct) {
        line("max-messages", "%s", limit(o->max_messages, a));
        line("max-message", "%u", o->max_message_bytes);
        print_rights(o);
        return;
    }
    line("ttl", "%s", o->ttl_ns ? cli_duration_format(o->ttl_ns, a) : "none");
    line("retain", "%s", cli_duration_format(o->done_retention_ns, a));
    line("dedup-window", "%s", cli_duration_format(o->dedup_window_ns, a));
    const char *trouble = cli_forward_trouble(cli, o);
    if (trouble)
        line("dead-forward", "%s: %s: they stay", o->dead_forward, trouble);
    else
        line("dead-forward", "%s", *o->dead_forward ? o->dead_forward : "none: they stay");
    line("max-messages", "%s", limit(o->max_messages, a));
    line("max-bytes", "%s", limit(o->max_bytes, a));
    line("max-message", "%u", o->max_message_bytes);
    line("max-inflight", "%s", limit(o->max_inflight, a));
    print_rights(o);
}

/* Nobody counts what goes past the broker: only what it sees or did itself. */
static void print_direct(struct cli *cli, const struct pawl_queue_stat *s)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        { "ready", s->ready },
        { "scheduled", s->scheduled },
        { "leased", s->leased },
        { "dead", s->dead },
        { "expired-leases", s->expired_leases },
        { "crashed", s->crashed },
        { "attached", s->attached },
        { "damaged", s->damaged },
    };
    for (size_t i = 0; i < PAWL_COUNT(counts); i++)
        line(counts[i].name, "%llu", (unsigned long long)counts[i].value);
    if (s->incarnation)
        line("incarnation", "%llx", (unsigned long long)s->incarnation);
    else
        line("incarnation", "none: empty since the last of its holders is gone");
    print_options(cli, &s->options);
}

static void print_table(struct cli *cli, const struct pawl_queue_stat *s)
{
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES];
    const struct passwd *user = getpwuid(s->options.owner);
    const struct group *group = getgrgid(s->options.group);
    line("table", "%s", s->name);
    line("keys", "%llu", (unsigned long long)s->ready);
    if (cli->out_terminal)
        line("bytes", "%s", cli_size_human(s->bytes, a));
    else
        line("bytes", "%llu", (unsigned long long)s->bytes);
    line("max-messages", "%s", limit(s->options.max_messages, a));
    line("max-bytes", "%s", limit(s->options.max_bytes, a));
    line("max-message", "%u", s->options.max_message_bytes);
    snprintf(a, sizeof a, "%u", s->options.owner);
    snprintf(b, sizeof b, "%u", s->options.group);
    line("rights", "%s:%s %04o", user ? user->pw_name : a, group ? group->gr_name : b,
         s->options.perm);
}

static void print_stat(struct cli *cli, const struct pawl_queue_stat *s)
{
    char a[CLI_UNIT_TEXT_BYTES];
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        { "ready", s->ready },
        { "scheduled", s->scheduled },
        { "leased", s->leased },
        { "dead", s->dead },
        { "done", s->done },
        { "waiting", s->waiting },
        { "sent", s->sent },
        { "delivered", s->delivered },
        { "acked", s->acked },
        { "nacked", s->nacked },
        { "expired-leases", s->expired_leases },
        { "crashed", s->crashed },
        { "released", s->released },
        { "expired", s->expired },
        { "cancelled", s->cancelled },
        { "purged", s->purged },
    };
    if (s->options.mode == PAWL_TABLE) {
        print_table(cli, s);
        return;
    }
    line("queue", "%s", s->name);
    line("mode", "%s", cli_mode_name(s->options.mode));
    if (s->options.mode == PAWL_DIRECT) {
        print_direct(cli, s);
        return;
    }
    line("ordered", "%s", s->options.flags & PAWL_QUEUE_ORDERED ? "yes" : "no");
    line("paused", "%s", s->paused ? "yes" : "no");
    for (size_t i = 0; i < PAWL_COUNT(counts); i++)
        if (cli->out_terminal)
            line(counts[i].name, "%s", cli_number_human(counts[i].value, a));
        else
            line(counts[i].name, "%llu", (unsigned long long)counts[i].value);
    if (cli->out_terminal)
        line("bytes", "%s", cli_size_human(s->bytes, a));
    else
        line("bytes", "%llu", (unsigned long long)s->bytes);
    if (s->oldest_ready_ns == 0)
        line("oldest-ready", "-");
    else if (cli->out_terminal)
        line("oldest-ready", "%s", cli_duration_human(s->oldest_ready_ns, a));
    else
        line("oldest-ready", "%llu", (unsigned long long)(s->oldest_ready_ns / PAWL_NS_MS));
    print_options(cli, &s->options);
}

int cli_stat(struct cli *cli)
{
    int rc = cli_args(cli, NULL, 0, 1, -1);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    rc = CLI_DONE;
    for (int i = 0; i < cli->argc; i++) {
        struct pawl_queue_stat s = { .size = sizeof s };
        int result = pawl_queue_stat(cli->lane, cli->argv[i], &s);
        if (result < 0) {
            rc = cli_refused(cli, result, CLI_ABOUT_QUEUE, cli->argv[i]);
            continue;
        }
        if (cli->json) {
            json_t *j = stat_json(&s);
            const char *trouble = cli_forward_trouble(cli, &s.options);
            if (trouble)
                json_object_set_new(j, "dead_forward_trouble", json_string(trouble));
            cli_json_print(j);
            continue;
        }
        if (i > 0)
            putchar('\n');
        print_stat(cli, &s);
    }
    return rc;
}

/* --- metrics --------------------------------------------------------------------------------- */

char *cli_metrics_text(struct cli *cli)
{
    size_t space = 16384;
    for (;;) {
        char *text = malloc(space);
        if (!text) {
            cli_failed(cli, "out of memory");
            return NULL;
        }
        int have = pawl_metrics(cli->lane, text, space);
        if (have >= 0 && (size_t)have < space)
            return text;
        free(text);
        if (have < 0) {
            cli_refused(cli, have, CLI_ABOUT_NONE, NULL);
            return NULL;
        }
        space = (size_t)have + 4096; /* it may have grown meanwhile */
    }
}

int cli_metrics(struct cli *cli)
{
    int rc = cli_args(cli, NULL, 0, 0, 0);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    char *text = cli_metrics_text(cli);
    if (!text)
        return CLI_REFUSED;
    if (!cli->json) {
        fputs(text, stdout);
        free(text);
        return CLI_DONE;
    }
    json_t *j = json_object();
    char *rest = text;
    for (char *row; (row = strsep(&rest, "\n")) != NULL;) {
        char *value = strrchr(row, ' ');
        uint64_t n;
        if (!value)
            continue;
        *value++ = '\0';
        if (cli_number_parse(value, &n))
            cli_json_number(j, row, n);
        else
            json_object_set_new(j, row, json_string(value));
    }
    cli_json_print(j);
    free(text);
    return CLI_DONE;
}
