/* SPDX-License-Identifier: MIT */
/* ack, nack, release, renew, reject, defer: what becomes of a delivery, by its token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "base/bits.h"
#include "output.h"

struct settle {
    const char *done; /* "acked" */
    const char *reason, *progress, *result;
    uint64_t time_ns;
    uint32_t flags;
};
typedef int settle_call(struct cli *cli, const struct pawl_token *token, const struct settle *s);

/* One outcome on its line. */
static int outcome(const struct cli *cli, const struct settle *s, const char *what,
                   enum cli_subject about, int result)
{
    if (cli->json) {
        const char *name = about == CLI_ABOUT_TOKEN   ? "token"
                           : about == CLI_ABOUT_QUEUE ? "key"
                                                      : "id";
        json_t *j = json_object();
        cli_json_bytes(j, name, what, strlen(what));
        json_object_set_new(j, "result", json_string(pawl_strname(result)));
        if (result < 0)
            json_object_set_new(j, "text", json_string(pawl_last_text(cli->lane)));
        cli_json_print(j);
    }
    if (result < 0)
        return cli_refused(cli, result, about, what);
    if (result == PAWL_OK_MISSING)
        cli_say(cli, "nothing there to settle: %s", what);
    else if (result == PAWL_OK_DUPLICATE)
        cli_say(cli, "%s before: %s", s->done, what);
    else
        cli_say(cli, "%s %s", s->done, what);
    return CLI_GO;
}

static int settle_one(struct cli *cli, const char *text, settle_call *call, const struct settle *s)
{
    struct pawl_token token;
    if (pawl_token_parse(text, &token) < 0)
        return cli_misused(cli, "\"%s\" is no token: 48 hexadecimal digits, from receive --json",
                           text);
    return outcome(cli, s, text, CLI_ABOUT_TOKEN, call(cli, &token, s));
}

/* Tokens from stdin, one a line, blanks around them allowed. */
static int settle_stdin(struct cli *cli, settle_call *call, const struct settle *s)
{
    char *line = NULL;
    size_t space = 0;
    int worst = CLI_GO;
    while (getline(&line, &space, stdin) > 0) {
        char *text = line + strspn(line, " \t\"");
        text[strcspn(text, " \t\r\n\"")] = '\0';
        if (!*text)
            continue;
        int rc = settle_one(cli, text, call, s);
        worst = rc > worst ? rc : worst;
    }
    free(line);
    return worst;
}

static int settle_all(struct cli *cli, settle_call *call, const struct settle *s)
{
    int worst = CLI_GO;
    /* what is mistyped is said before anything is done */
    for (int i = 0; i < cli->argc; i++) {
        struct pawl_token token;
        if (strcmp(cli->argv[i], "-") != 0 && pawl_token_parse(cli->argv[i], &token) < 0)
            return cli_misused(cli,
                               "\"%s\" is no token: 48 hexadecimal digits, from receive --json",
                               cli->argv[i]);
    }
    int rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    for (int i = 0; i < cli->argc; i++) {
        rc = strcmp(cli->argv[i], "-") == 0 ? settle_stdin(cli, call, s)
                                            : settle_one(cli, cli->argv[i], call, s);
        worst = rc > worst ? rc : worst;
    }
    return worst == CLI_GO ? CLI_DONE : worst;
}

/* --- ack ------------------------------------------------------------------------------------- */

static int call_ack(struct cli *cli, const struct pawl_token *token, const struct settle *s)
{
    return pawl_ack_result(cli->lane, token, s->flags, s->result,
                           s->result ? strlen(s->result) : 0);
}

static int ack_keys(struct cli *cli, const char *queue, const struct cli_list *keys,
                    const struct settle *s)
{
    int worst = CLI_GO;
    int rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    for (size_t i = 0; i < keys->n; i++) {
        const char *key = keys->v[i];
        rc = outcome(cli, s, key, CLI_ABOUT_QUEUE,
                     pawl_ack_key(cli->lane, queue, key, strlen(key), s->flags));
        worst = rc > worst ? rc : worst;
    }
    return worst == CLI_GO ? CLI_DONE : worst;
}

static int ack_ids(struct cli *cli, const char *queue, const struct cli_list *ids,
                   const struct settle *s)
{
    int worst = CLI_GO;
    int rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    for (size_t i = 0; i < ids->n; i++) {
        uint64_t id = cli_id(ids->v[i]);
        rc = outcome(cli, s, ids->v[i], CLI_ABOUT_MESSAGE,
                     pawl_ack_id(cli->lane, queue, id, s->flags));
        worst = rc > worst ? rc : worst;
    }
    return worst == CLI_GO ? CLI_DONE : worst;
}

int cli_ack(struct cli *cli)
{
    struct settle s = { .done = "acked" };
    bool unclaimed = false, ignore = false;
    const char *queue = NULL;
    struct cli_list ids = { 0 }, keys = { 0 };
    const struct cli_option options[] = {
        { "if-unclaimed", CLI_FLAG, &unclaimed, NULL,
          "also after the lease ended, while nobody else has\nhad the message", NULL },
        { "result", CLI_TEXT, &s.result, "TEXT", "kept with the finished message", NULL },
        { "ignore-missing", CLI_FLAG, &ignore, NULL, "what is gone or unknown is no error", NULL },
        { "queue", CLI_TEXT, &queue, "Q", "of --id or --key: messages that nobody holds", NULL },
        { "id", CLI_LIST, &ids, "ID", "ack by id; may be given again", NULL },
        { "key", CLI_LIST, &keys, "K", "ack by dedup key; may be given again", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 0, -1);
    if (rc == CLI_GO && ids.n && keys.n)
        rc = cli_misused(cli, "--id and --key do not go together");
    if (rc == CLI_GO && !queue != !(ids.n + keys.n))
        rc = cli_misused(cli, "--queue and --id, or --key, go together");
    if (rc == CLI_GO && queue && s.result)
        rc = cli_misused(cli, "--result goes with tokens");
    if (rc == CLI_GO && !queue && cli->argc == 0)
        rc = cli_misused(cli, "which? give tokens, or - to read them from stdin");
    for (int i = 0; rc == CLI_GO && queue && i < cli->argc; i++)
        cli_list_add(keys.n ? &keys : &ids, cli->argv[i]);
    if (rc == CLI_GO)
        rc = cli_ids_check(cli, &ids);
    s.flags = (unclaimed ? PAWL_ACK_IF_UNCLAIMED : 0) | (ignore ? PAWL_ACK_IGNORE_MISSING : 0);
    if (rc == CLI_GO)
        rc = keys.n  ? ack_keys(cli, queue, &keys, &s)
             : queue ? ack_ids(cli, queue, &ids, &s)
                     : settle_all(cli, call_ack, &s);
    cli_list_fini(&ids);
    cli_list_fini(&keys);
    return rc;
}

/* --- the others ------------------------------------------------------------------------------ */

static int call_nack(struct cli *cli, const struct pawl_token *token, const struct settle *s)
{
    return pawl_nack(cli->lane, token, s->time_ns, s->reason);
}
static int call_release(struct cli *cli, const struct pawl_token *token, const struct settle *s)
{
    return pawl_release(cli->lane, token);
}
static int call_reject(struct cli *cli, const struct pawl_token *token, const struct settle *s)
{
    return pawl_reject(cli->lane, token, s->reason);
}
static int call_defer(struct cli *cli, const struct pawl_token *token, const struct settle *s)
{
    struct pawl_defer_options o = PAWL_DEFER_OPTIONS_INIT;
    o.progress = s->progress;
    o.progress_bytes = s->progress ? (uint32_t)strlen(s->progress) : 0;
    o.flags = s->flags;
    return pawl_defer(cli->lane, token, s->time_ns, &o);
}
static int call_renew(struct cli *cli, const struct pawl_token *token, const struct settle *s)
{
    return pawl_renew(cli->lane, token, s->time_ns);
}

int cli_nack(struct cli *cli)
{
    struct settle s = { .done = "nacked", .time_ns = PAWL_DELAY_LADDER };
    const struct cli_option options[] = {
        { "delay", CLI_DURATION, &s.time_ns, "D", "back after D (the queue's retry ladder)", NULL },
        { "reason", CLI_TEXT, &s.reason, "TEXT", "kept with the message", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    return rc == CLI_GO ? settle_all(cli, call_nack, &s) : rc;
}

int cli_release(struct cli *cli)
{
    struct settle s = { .done = "released" };
    int rc = cli_args(cli, NULL, 0, 1, -1);
    return rc == CLI_GO ? settle_all(cli, call_release, &s) : rc;
}

int cli_reject(struct cli *cli)
{
    struct settle s = { .done = "rejected" };
    const struct cli_option options[] = {
        { "reason", CLI_TEXT, &s.reason, "TEXT", "kept with the message", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    return rc == CLI_GO ? settle_all(cli, call_reject, &s) : rc;
}

int cli_defer(struct cli *cli)
{
    struct settle s = { .done = "deferred" };
    bool given = false, free_key = false;
    const struct cli_option options[] = {
        { "delay", CLI_DURATION, &s.time_ns, "D", "how long (required)", &given },
        { "progress", CLI_TEXT, &s.progress, "TEXT", "for whoever receives it next", NULL },
        { "free-key", CLI_FLAG, &free_key, NULL, "others of its ordering key need not wait", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    s.flags = free_key ? PAWL_DEFER_FREE_KEY : 0;
    if (rc == CLI_GO && !given)
        rc = cli_misused(cli, "--delay is missing: how long?");
    return rc == CLI_GO ? settle_all(cli, call_defer, &s) : rc;
}

int cli_renew(struct cli *cli)
{
    struct settle s = { .done = "renewed", .time_ns = PAWL_LEASE_NS_DEFAULT };
    const struct cli_option options[] = {
        { "lease", CLI_DURATION, &s.time_ns, "D", "from now on (10s); may shorten", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    return rc == CLI_GO ? settle_all(cli, call_renew, &s) : rc;
}
