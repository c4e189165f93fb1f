/* SPDX-License-Identifier: MIT */
/* create, alter, drop, pause, resume, purge. */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "output.h"
#include "stat.h"
#include "units.h"

/* Options of a queue as typed. In struct pawl_queue_options a zero often means "the default"; what
 * a user writes as 0 is another thing, so each is kept with a flag. */
struct typed {
    const char *mode, *retry, *dead_forward, *owner, *group;
    uint64_t lease, max_hold, retain, dedup_window, ttl, max_messages, max_bytes, max_message;
    uint32_t max_failed, max_crashed, max_inflight, perm;
    struct {
        bool lease, max_hold, retain, dedup_window, ttl, max_messages, max_bytes, max_message;
        bool max_failed, max_crashed, max_inflight, perm;
    } given;
};

#define QUEUE_OPTIONS(t)                                                                        \
    { "lease",                                                                                  \
      CLI_DURATION,                                                                             \
      &(t).lease,                                                                               \
      "D",                                                                                      \
      "how long a receiver has a message (10s; 1ms to 12h)",                                    \
      &(t).given.lease },                                                                       \
        { "max-hold",                                                                           \
          CLI_DURATION,                                                                         \
          &(t).max_hold,                                                                        \
          "D",                                                                                  \
          "how long renewals may stretch it (12h; not 0)",                                      \
          &(t).given.max_hold },                                                                \
        { "max-failed",                                                                         \
          CLI_NUMBER32,                                                                         \
          &(t).max_failed,                                                                      \
          "N",                                                                                  \
          "nacks and expiries until DEAD (16; 0: no limit)",                                    \
          &(t).given.max_failed },                                                              \
        { "max-crashed",                                                                        \
          CLI_NUMBER32,                                                                         \
          &(t).max_crashed,                                                                     \
          "N",                                                                                  \
          "deaths of its receiver until DEAD (5; 0: no limit)",                                 \
          &(t).given.max_crashed },                                                             \
        { "retry",                                                                              \
          CLI_TEXT,                                                                             \
          &(t).retry,                                                                           \
          "D,D,...",                                                                            \
          "delay after each failure (0,1s,5s,30s,2m,10m;\n0: at once)",                         \
          NULL },                                                                               \
        { "ttl",                                                                                \
          CLI_DURATION,                                                                         \
          &(t).ttl,                                                                             \
          "D",                                                                                  \
          "a message expires this long after its send\n(0, the default: never)",                \
          &(t).given.ttl },                                                                     \
        { "retain",                                                                             \
          CLI_DURATION,                                                                         \
          &(t).retain,                                                                          \
          "D",                                                                                  \
          "how long one is remembered after its end (10m;\nat most 90d; 0: not at all)",        \
          &(t).given.retain },                                                                  \
        { "dedup-window",                                                                       \
          CLI_DURATION,                                                                         \
          &(t).dedup_window,                                                                    \
          "D",                                                                                  \
          "how long a dedup key is remembered, and while its\nmessage lives (10m; at most 7d)", \
          &(t).given.dedup_window },                                                            \
        { "dead-forward",                                                                       \
          CLI_TEXT,                                                                             \
          &(t).dead_forward,                                                                    \
          "Q",                                                                                  \
          "dead messages go to that queue (\"\": they stay)",                                   \
          NULL },                                                                               \
        { "max-messages",                                                                       \
          CLI_NUMBER,                                                                           \
          &(t).max_messages,                                                                    \
          "N",                                                                                  \
          "limit of messages (0, the default: none)",                                           \
          &(t).given.max_messages },                                                            \
        { "max-bytes",                                                                          \
          CLI_SIZE,                                                                             \
          &(t).max_bytes,                                                                       \
          "SIZE",                                                                               \
          "limit of their bytes (0, the default: none)",                                        \
          &(t).given.max_bytes },                                                               \
        { "max-message",                                                                        \
          CLI_SIZE,                                                                             \
          &(t).max_message,                                                                     \
          "SIZE",                                                                               \
          "largest message (1M; at most 16M; not 0)",                                           \
          &(t).given.max_message },                                                             \
        { "max-inflight",                                                                       \
          CLI_NUMBER32,                                                                         \
          &(t).max_inflight,                                                                    \
          "N",                                                                                  \
          "limit of leased ones (65536; not 0)",                                                \
          &(t).given.max_inflight },                                                            \
        { "owner", CLI_TEXT, &(t).owner, "USER", "who administers it (you)", NULL },            \
        { "group", CLI_TEXT, &(t).group, "GROUP", "(your group)", NULL },                       \
    {                                                                                           \
        "perm", CLI_PERM, &(t).perm, "OCTAL",                                                   \
            "owner, group, other: receive 4, send 2, query 1\n(0770)", &(t).given.perm          \
    }

/* What a user wrote as 0 where the struct's 0 is "the default": the least there is, so that the
 * broker judges it by its range. */
static uint64_t explicit(uint64_t value) { return value ? value : 1; }

/* A 0 that would shut the queue for good, and that who types it means as "no limit". */
static int check_zeros(const struct cli *cli, const struct typed *t)
{
    if (t->given.max_hold && t->max_hold == 0)
        return cli_misused(cli, "--max-hold: 0 would end every lease at once; the most is 3653d");
    if (t->given.max_message && t->max_message == 0)
        return cli_misused(cli,
                           "--max-message: 0 would refuse all that is not empty; the most is 16M");
    if (t->given.max_inflight && t->max_inflight == 0)
        return cli_misused(cli,
                           "--max-inflight: 0 would let nothing be received; without a limit: "
                           "%u",
                           UINT32_MAX);
    return CLI_GO;
}

static int take_retry(const struct cli *cli, const char *text, struct pawl_queue_options *o)
{
    char *copy = strdup(text), *rest = copy;
    uint32_t count = 0;
    int rc = CLI_GO;
    if (!copy)
        return cli_failed(cli, "out of memory");
    for (char *step; rc == CLI_GO && (step = strsep(&rest, ",")) != NULL;) {
        if (count == PAWL_RETRY_STEPS_MAX)
            rc = cli_misused(cli, "--retry: at most %u steps", PAWL_RETRY_STEPS_MAX);
        else if (!cli_duration_parse(step, &o->retry_ns[count++]))
            rc = cli_misused(cli, "--retry: \"%s\" is no duration; such are 0, 250ms, 10s, 5m",
                             step);
    }
    o->retry_count = count;
    free(copy);
    return rc;
}

static int take_mode(const struct cli *cli, const char *text, struct pawl_queue_options *o)
{
    static const char *const modes[] = { "durable", "relaxed", "memory", "direct" };
    for (uint32_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(text, modes[i]) == 0) {
            o->mode = i;
            return CLI_GO;
        }
    return cli_misused(cli, "--mode: \"%s\" is none of durable, relaxed, memory, direct", text);
}

static int take_who(const struct cli *cli, const struct typed *t, struct pawl_queue_options *o)
{
    uint64_t number;
    if (t->owner) {
        const struct passwd *user = getpwnam(t->owner);
        if (user)
            o->owner = user->pw_uid;
        else if (cli_number_parse(t->owner, &number) && number < PAWL_KEEP)
            o->owner = (uint32_t)number;
        else
            return cli_misused(cli, "--owner: no user \"%s\"", t->owner);
    }
    if (t->group) {
        const struct group *group = getgrnam(t->group);
        if (group)
            o->group = group->gr_gid;
        else if (cli_number_parse(t->group, &number) && number < PAWL_KEEP)
            o->group = (uint32_t)number;
        else
            return cli_misused(cli, "--group: no group \"%s\"", t->group);
    }
    if (t->given.perm)
        o->perm = t->perm;
    return CLI_GO;
}

static int take_all(const struct cli *cli, const struct typed *t, struct pawl_queue_options *o)
{
    int rc = check_zeros(cli, t);
    if (rc == CLI_GO && t->mode)
        rc = take_mode(cli, t->mode, o);
    if (rc == CLI_GO && t->retry)
        rc = take_retry(cli, t->retry, o);
    if (rc == CLI_GO)
        rc = take_who(cli, t, o);
    if (rc != CLI_GO)
        return rc;
    if (t->given.lease)
        o->lease_ns = explicit(t->lease);
    if (t->given.max_hold)
        o->max_hold_ns = t->max_hold;
    if (t->given.retain)
        o->done_retention_ns = explicit(t->retain);
    if (t->given.dedup_window)
        o->dedup_window_ns = explicit(t->dedup_window);
    if (t->given.ttl)
        o->ttl_ns = t->ttl;
    if (t->given.max_messages)
        o->max_messages = t->max_messages;
    if (t->given.max_bytes)
        o->max_bytes = t->max_bytes;
    if (t->given.max_failed)
        o->max_failed = t->max_failed;
    if (t->given.max_crashed)
        o->max_crashed = t->max_crashed;
    if (t->given.max_inflight)
        o->max_inflight = t->max_inflight;
    if (t->given.max_message)
        o->max_message_bytes = t->max_message > UINT32_MAX ? UINT32_MAX : (uint32_t)t->max_message;
    if (t->dead_forward) {
        if (strlen(t->dead_forward) > PAWL_NAME_BYTES_MAX)
            return cli_misused(cli, "--dead-forward: a name has at most %u bytes",
                               PAWL_NAME_BYTES_MAX);
        snprintf(o->dead_forward, sizeof o->dead_forward, "%s", t->dead_forward);
    }
    return CLI_GO;
}

static int done(struct cli *cli, int result, const char *queue, const char *what)
{
    if (result < 0)
        return cli_refused(cli, result, CLI_ABOUT_QUEUE, queue);
    if (cli->json)
        cli_json_print(json_pack("{s:s,s:s}", "queue", queue, "result", pawl_strname(result)));
    else if (result == PAWL_OK_DUPLICATE)
        cli_say(cli, "\"%s\" is there already, with these options", queue);
    else
        cli_say(cli, "%s \"%s\"", what, queue);
    return CLI_DONE;
}

/* The same for create and alter; options: those that are in force now. */
static int done_with(struct cli *cli, int result, const struct pawl_queue_options *options,
                     const char *what)
{
    int rc = done(cli, result, cli->argv[0], what);
    const char *trouble = result >= 0 ? cli_forward_trouble(cli, options) : NULL;
    if (trouble)
        fprintf(stderr,
                "pawl: warning: --dead-forward \"%s\": %s; until then the dead stay in "
                "\"%s\"\n",
                options->dead_forward, trouble, cli->argv[0]);
    return rc;
}

int cli_create(struct cli *cli)
{
    struct typed t = { 0 };
    bool ordered = false, table = false;
    const struct cli_option options[] = {
        { "mode", CLI_TEXT, &t.mode, "M",
          "durable (default): on disk before a send returns\n"
          "relaxed: a crash may take the last 10ms\n"
          "memory: empty after the broker stops\n"
          "direct: from process to process, past the broker;\n"
          "--max-messages is its slots, a power of two (1024)",
          NULL },
        { "table", CLI_FLAG, &table, NULL,
          "keys and values (pawl state), not messages;\n--max-messages is then its keys", NULL },
        { "ordered", CLI_FLAG, &ordered, NULL,
          "one message at a time, in order, of those without\nan ordering key", NULL },
        QUEUE_OPTIONS(t),
    };
    int rc = cli_args(cli, options, sizeof options / sizeof options[0], 1, 1);
    if (rc != CLI_GO)
        return rc;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.flags = ordered ? PAWL_QUEUE_ORDERED : 0;
    rc = take_all(cli, &t, &o);
    if (rc == CLI_GO && table && (t.mode || ordered))
        rc = cli_misused(cli, "--table: a table has no mode and no order");
    if (table)
        o.mode = PAWL_TABLE;
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    return done_with(cli, pawl_queue_create(cli->lane, cli->argv[0], &o), &o, "created");
}

int cli_alter(struct cli *cli)
{
    struct typed t = { 0 };
    const struct cli_option options[] = { QUEUE_OPTIONS(t) };
    int rc = cli_args(cli, options, sizeof options / sizeof options[0], 1, 1);
    if (rc != CLI_GO)
        return rc;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    rc = take_all(cli, &t, &o); /* what is mistyped needs no broker to be told so */
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    /* the call replaces all of them, the command only what was given */
    struct pawl_queue_stat stat = { .size = sizeof stat };
    rc = pawl_queue_stat(cli->lane, cli->argv[0], &stat);
    if (rc < 0)
        return cli_refused(cli, rc, CLI_ABOUT_QUEUE, cli->argv[0]);
    stat.options.size = sizeof stat.options;
    rc = take_all(cli, &t, &stat.options);
    if (rc != CLI_GO)
        return rc;
    return done_with(cli, pawl_queue_alter(cli->lane, cli->argv[0], &stat.options), &stat.options,
                     "altered");
}

static int simple(struct cli *cli, int (*call)(struct pawl *, const char *), const char *what)
{
    int rc = cli_args(cli, NULL, 0, 1, 1);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    return done(cli, call(cli->lane, cli->argv[0]), cli->argv[0], what);
}

int cli_drop(struct cli *cli) { return simple(cli, pawl_queue_drop, "dropped"); }
int cli_pause(struct cli *cli) { return simple(cli, pawl_queue_pause, "paused"); }
int cli_resume(struct cli *cli) { return simple(cli, pawl_queue_resume, "resumed"); }

int cli_purge(struct cli *cli)
{
    uint64_t count = 0;
    int rc = cli_args(cli, NULL, 0, 1, 1);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    rc = pawl_queue_purge(cli->lane, cli->argv[0], &count);
    if (rc < 0)
        return cli_refused(cli, rc, CLI_ABOUT_QUEUE, cli->argv[0]);
    if (cli->json) {
        json_t *j = json_pack("{s:s,s:s}", "queue", cli->argv[0], "result", pawl_strname(rc));
        cli_json_number(j, "purged", count);
        cli_json_print(j);
    }
    cli_say(cli, "purged %llu message%s of \"%s\"", (unsigned long long)count,
            count == 1 ? "" : "s", cli->argv[0]);
    return CLI_DONE;
}
