/* SPDX-License-Identifier: MIT */
/* query, dead, peek. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "output.h"
#include "query.h"
#include "stat.h"
#include "units.h"

#define LIMIT_DEFAULT 100u
#define ROWS_A_FLUSH 512u
#define CODE_LIMIT 100 /* from each(): enough; no exit code */

struct show {
    struct cli *cli;
    struct cli_table table;
    uint64_t limit, shown, since_wall_ns;
    bool dead;
};

static const char *const query_heads[] = { ">ID",    "STATE",   ">PRIO",    "CREATED", ">BYTES",
                                           ">TRIES", ">FAILED", ">CRASHED", "NOTE" };
static const char *const dead_heads[] = { ">ID",     "CREATED",  ">BYTES",  ">TRIES",
                                          ">FAILED", ">CRASHED", "BECAUSE", "REASON" };

/* A reason is anybody's text: what could move the cursor of a terminal is not printed. */
static const char *tame(const char *text, char out[PAWL_REASON_BYTES_MAX + 1])
{
    size_t i = 0;
    for (; text[i] && i < PAWL_REASON_BYTES_MAX; i++)
        out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    out[i] = '\0';
    return out;
}

/* How long still, in a note: with its unit everywhere, exact to the millisecond off a terminal. */
static const char *left(const struct cli *cli, uint64_t ns, char text[CLI_UNIT_TEXT_BYTES])
{
    if (cli->out_terminal)
        return cli_duration_human(ns, text);
    snprintf(text, CLI_UNIT_TEXT_BYTES, "%llums", (unsigned long long)(ns / 1000000));
    return text;
}

static void note(const struct show *s, const struct pawl_record *r, char *text, size_t bytes)
{
    char time[CLI_UNIT_TEXT_BYTES], reason[PAWL_REASON_BYTES_MAX + 1];
    text[0] = '\0';
    if (r->state == PAWL_STATE_SCHEDULED)
        snprintf(text, bytes, "due in %s", left(s->cli, r->due_in_ns, time));
    else if (r->state == PAWL_STATE_LEASED && r->lease_left_ns == PAWL_UNLIMITED)
        snprintf(text, bytes, "with pid %u as long as it lives", r->holder_pid);
    else if (r->state == PAWL_STATE_LEASED && r->holder_pid)
        snprintf(text, bytes, "with pid %u for %s", r->holder_pid,
                 left(s->cli, r->lease_left_ns, time));
    else if (r->state == PAWL_STATE_LEASED)
        snprintf(text, bytes, "leased for %s", left(s->cli, r->lease_left_ns, time));
    else if (r->state == PAWL_STATE_DEAD)
        snprintf(text, bytes, "%s", cli_dead_reason_name(r->dead_reason));
    size_t n = strlen(text);
    if (*r->reason)
        snprintf(text + n, bytes - n, "%s%s", n ? ": " : "", tame(r->reason, reason));
}

static void row(struct show *s, const struct pawl_record *r)
{
    char text[PAWL_REASON_BYTES_MAX + 64], time[CLI_UNIT_TEXT_BYTES];
    struct cli_table *t = &s->table;
    cli_table_add(t, "%llu", (unsigned long long)r->id);
    if (!s->dead) {
        cli_table_add(t, "%s", pawl_state_name(r->state));
        cli_table_add(t, "%u", r->priority);
    }
    cli_table_add(t, "%s", cli_time_format(r->created_wall_ns, time));
    cli_table_size(t, s->cli, r->bytes);
    cli_table_add(t, "%u", r->acquired);
    cli_table_add(t, "%u", r->failed);
    cli_table_add(t, "%u", r->crashed);
    if (s->dead) {
        cli_table_add(t, "%s", cli_dead_reason_name(r->dead_reason));
        cli_table_add(t, "%s", tame(r->reason, text));
        return;
    }
    note(s, r, text, sizeof text);
    cli_table_add(t, "%s", text);
}

static int show_one(void *ctx, const struct pawl_record *r)
{
    struct show *s = ctx;
    if (r->created_wall_ns < s->since_wall_ns)
        return CLI_GO;
    if (s->limit && s->shown == s->limit)
        return CODE_LIMIT;
    s->shown++;
    if (s->cli->json)
        cli_json_print(cli_record_json_full(s->cli, s->cli->argv[0], r));
    else
        row(s, r);
    if (s->shown % ROWS_A_FLUSH == 0 && !s->cli->json)
        cli_table_flush(&s->table);
    return CLI_GO;
}

static int show_end(struct show *s, int rc)
{
    bool done = rc == CLI_GO || rc == CODE_LIMIT;
    if (!s->cli->json && (s->shown || (done && !s->cli->out_terminal)))
        cli_table_flush(&s->table);
    cli_table_fini(&s->table);
    if (rc == CODE_LIMIT) {
        fprintf(stderr, "pawl: there are more than %llu; see them with --limit 0\n",
                (unsigned long long)s->limit);
        return CLI_DONE;
    }
    return rc == CLI_GO ? CLI_DONE : rc;
}

int cli_query(struct cli *cli)
{
    struct show s = { .cli = cli, .limit = LIMIT_DEFAULT };
    struct cli_list ids = { 0 }, keys = { 0 };
    const char *states = NULL, *since = NULL;
    uint32_t mask = CLI_STATES_ALL;
    uint64_t delay = 0;
    const struct cli_option options[] = {
        { "id", CLI_LIST, &ids, "ID", "these messages; more ids may follow", NULL },
        { "key", CLI_LIST, &keys, "K", "sent with these dedup keys; more keys may follow", NULL },
        { "state", CLI_TEXT, &states, "S,S",
          "scheduled ready leased dead acked expired cancelled\npurged; live; all (default)",
          NULL },
        { "since", CLI_TEXT, &since, "TIME", "sent at TIME or later", NULL },
        { "limit", CLI_NUMBER, &s.limit, "N", "at most so many (100; 0: all)", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    if (rc == CLI_GO && ids.n && keys.n)
        rc = cli_misused(cli, "--id and --key do not go together");
    for (int i = 1; rc == CLI_GO && (ids.n || keys.n) && i < cli->argc; i++)
        cli_list_add(ids.n ? &ids : &keys, cli->argv[i]);
    if (rc == CLI_GO && !ids.n && !keys.n && cli->argc > 1)
        rc = cli_misused(cli, "\"%s\" is too much; an id goes behind --id", cli->argv[1]);
    if (rc == CLI_GO)
        rc = cli_ids_check(cli, &ids);
    if (rc == CLI_GO && states && !cli_states_parse(states, &mask))
        rc = cli_misused(cli,
                         "--state: \"%s\" is none of scheduled, ready, leased, dead, acked, "
                         "expired, cancelled, purged, live, all",
                         states);
    if (rc == CLI_GO && since && (!cli_time_parse(since, &s.since_wall_ns, &delay) || delay))
        rc = cli_misused(cli, "--since: \"%s\" is no time; such are 2027-01-31T08:00:00Z", since);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc == CLI_GO) {
        cli_table_init(&s.table, cli, query_heads, PAWL_COUNT(query_heads));
        const char *queue = cli->argv[0];
        if (keys.n)
            rc = cli_records_by_key(cli, queue, &keys, show_one, &s);
        else if (ids.n)
            rc = cli_records_by_id(cli, queue, &ids, show_one, &s);
        else
            rc = cli_records_each(cli, queue, mask, show_one, &s);
        rc = show_end(&s, rc);
    }
    cli_list_fini(&ids);
    cli_list_fini(&keys);
    return rc;
}

/* Dead messages that should have gone on to another queue. */
static void say_why_here(struct cli *cli, const char *queue)
{
    struct pawl_queue_stat stat = { .size = sizeof stat };
    if (pawl_queue_stat(cli->lane, queue, &stat) != PAWL_OK)
        return;
    const char *trouble = cli_forward_trouble(cli, &stat.options);
    if (trouble)
        fprintf(stderr, "pawl: dead messages of \"%s\" are not forwarded to \"%s\": %s\n", queue,
                stat.options.dead_forward, trouble);
}

int cli_dead(struct cli *cli)
{
    struct show s = { .cli = cli, .limit = LIMIT_DEFAULT, .dead = true };
    const struct cli_option options[] = {
        { "limit", CLI_NUMBER, &s.limit, "N", "at most so many (100; 0: all)", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, 1);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    cli_table_init(&s.table, cli, dead_heads, PAWL_COUNT(dead_heads));
    rc = show_end(&s, cli_records_each(cli, cli->argv[0], 1u << PAWL_STATE_DEAD, show_one, &s));
    if (rc == CLI_DONE && s.shown == 0 && cli->out_terminal)
        cli_say(cli, "no dead messages in \"%s\"", cli->argv[0]);
    if (rc == CLI_DONE)
        say_why_here(cli, cli->argv[0]);
    return rc;
}

/* --- peek ------------------------------------------------------------------------------------ */

struct peek {
    struct cli *cli;
    const char *queue;
    uint64_t left, shown;
    char *body;
    size_t space;
};

static int peek_one(void *ctx, const struct pawl_record *r)
{
    struct peek *p = ctx;
    size_t have = 0;
    int rc;
    if (p->left == 0)
        return CODE_LIMIT;
    for (;;) {
        rc = pawl_peek(p->cli->lane, p->queue, r->id, p->body, p->space, &have);
        if (rc < 0 || have <= p->space)
            break;
        char *body = realloc(p->body, have);
        if (!body)
            return cli_failed(p->cli, "out of memory");
        p->body = body;
        p->space = have;
    }
    if (rc < 0) {
        char id[CLI_UNIT_TEXT_BYTES];
        snprintf(id, sizeof id, "%llu", (unsigned long long)r->id);
        return cli_refused(p->cli, rc, CLI_ABOUT_MESSAGE, id);
    }
    p->left--;
    p->shown++;
    if (p->cli->json) {
        json_t *j = cli_record_json(r);
        cli_json_bytes(j, "body", p->body, have);
        cli_json_print(j);
        return CLI_GO;
    }
    if (have)
        fwrite(p->body, 1, have, stdout);
    putchar('\n');
    return CLI_GO;
}

int cli_peek(struct cli *cli)
{
    struct peek p = { .cli = cli, .left = 1 };
    struct cli_list ids = { 0 };
    const char *states = NULL;
    uint32_t mask = CLI_STATES_LIVE;
    const struct cli_option options[] = {
        { "id", CLI_LIST, &ids, "ID", "these messages; more ids may follow", NULL },
        { "state", CLI_TEXT, &states, "S,S", "scheduled, ready, leased, dead; live (default)",
          NULL },
        { "count", CLI_NUMBER, &p.left, "N", "at most so many (1; 0: all)", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    for (int i = 1; rc == CLI_GO && ids.n && i < cli->argc; i++)
        cli_list_add(&ids, cli->argv[i]);
    if (rc == CLI_GO && !ids.n && cli->argc > 1)
        rc = cli_misused(cli, "\"%s\" is too much; an id goes behind --id", cli->argv[1]);
    if (rc == CLI_GO)
        rc = cli_ids_check(cli, &ids);
    if (rc == CLI_GO && states &&
        (!cli_states_parse(states, &mask) || (mask & ~CLI_STATES_LIVE) != 0))
        rc = cli_misused(cli, "--state: \"%s\" is none of scheduled, ready, leased, dead, live",
                         states);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc == CLI_GO) {
        p.queue = cli->argv[0];
        p.left = p.left == 0 || ids.n ? UINT64_MAX : p.left;
        p.space = PAWL_MESSAGE_BYTES_DEFAULT;
        p.body = malloc(p.space);
        rc = !p.body ? cli_failed(cli, "out of memory")
             : ids.n ? cli_records_by_id(cli, p.queue, &ids, peek_one, &p)
                     : cli_records_each(cli, p.queue, mask, peek_one, &p);
        free(p.body);
    }
    cli_list_fini(&ids);
    if (rc == CLI_GO || rc == CODE_LIMIT)
        return p.shown ? CLI_DONE : CLI_NOTHING;
    return rc;
}
