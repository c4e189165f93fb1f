/* SPDX-License-Identifier: MIT */
/* restore and cancel: many messages by id or by state, one call each. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "output.h"
#include "query.h"
#include "signals.h"
#include "units.h"

typedef int many_call(struct pawl *lane, const char *queue, uint64_t id);

struct many {
    struct cli *cli;
    const char *queue, *done; /* "restored" */
    many_call *call;
    struct cli_progress progress;
    uint64_t rate;     /* a second, 0: as fast as it goes */
    uint64_t count;    /* done so far */
    uint64_t began_ns; /* of the first */
    int worst;
};

/* On a schedule from the first one, so that a slow call is made up for. */
static void pace(const struct many *m)
{
    if (m->rate == 0)
        return;
    uint64_t due = m->began_ns + (uint64_t)((unsigned __int128)m->count * PAWL_NS_S / m->rate);
    while (!cli_stopped() && pawl_clock_boot() < due) {
        uint64_t left = pawl_min_u64(due - pawl_min_u64(due, pawl_clock_boot()), CLI_SLICE_NS);
        struct timespec t = { .tv_sec = 0, .tv_nsec = (long)left };
        nanosleep(&t, NULL);
    }
}

static void one(struct many *m, uint64_t id, bool tolerant)
{
    char text[CLI_UNIT_TEXT_BYTES];
    snprintf(text, sizeof text, "%llu", (unsigned long long)id);
    int rc = m->call(m->cli->lane, m->queue, id);
    /* from a scan: another one was quicker, and that is as good */
    if (tolerant && (rc == PAWL_E_STATE || rc == PAWL_E_FORGOTTEN))
        return;
    if (m->cli->json) {
        json_t *j = json_pack("{s:s,s:s}", "queue", m->queue, "result", pawl_strname(rc));
        cli_json_number(j, "id", id);
        cli_json_print(j);
    }
    if (rc < 0) {
        cli_progress_end(&m->progress);
        m->worst = cli_refused(m->cli, rc, CLI_ABOUT_MESSAGE, text);
        return;
    }
    m->count++;
    if (cli_progress_due(&m->progress))
        cli_progress_show(&m->progress, "%llu %s", (unsigned long long)m->count, m->done);
}

static int many_scanned(void *ctx, const struct pawl_record *record)
{
    struct many *m = ctx;
    pace(m);
    if (cli_stopped())
        return cli_failed(m->cli, "stopped by a signal");
    one(m, record->id, true);
    return CLI_GO;
}

static int many_end(struct many *m, int rc)
{
    cli_progress_end(&m->progress);
    cli_say(m->cli, "%s %llu message%s of \"%s\"", m->done, (unsigned long long)m->count,
            m->count == 1 ? "" : "s", m->queue);
    if (rc != CLI_GO)
        return rc;
    return m->worst;
}

/* The ids behind --id and the arguments that follow the queue. */
static int take_ids(struct cli *cli, struct cli_list *ids)
{
    for (int i = 1; ids->n && i < cli->argc; i++)
        cli_list_add(ids, cli->argv[i]);
    if (!ids->n && cli->argc > 1)
        return cli_misused(cli, "\"%s\" is too much; an id goes behind --id", cli->argv[1]);
    return cli_ids_check(cli, ids);
}

static int many_run(struct many *m, const struct cli_list *ids, uint32_t mask)
{
    int rc = cli_attach(m->cli, NULL);
    if (rc != CLI_GO)
        return rc;
    m->queue = m->cli->argv[0];
    m->began_ns = pawl_clock_boot();
    cli_progress_init(&m->progress, m->cli);
    cli_stop_on_signals();
    if (!ids->n)
        return many_end(m, cli_records_each(m->cli, m->queue, mask, many_scanned, m));
    for (size_t i = 0; i < ids->n && !cli_stopped(); i++) {
        pace(m);
        one(m, cli_id(ids->v[i]), false);
    }
    return many_end(m, cli_stopped() ? cli_failed(m->cli, "stopped by a signal") : CLI_GO);
}

int cli_restore(struct cli *cli)
{
    struct many m = { .cli = cli, .done = "restored", .call = pawl_restore };
    struct cli_list ids = { 0 };
    const struct cli_option options[] = {
        { "id", CLI_LIST, &ids, "ID", "these alone (all that are dead)", NULL },
        { "rate", CLI_NUMBER, &m.rate, "N", "so many a second (no limit)", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    if (rc == CLI_GO)
        rc = take_ids(cli, &ids);
    if (rc == CLI_GO)
        rc = many_run(&m, &ids, 1u << PAWL_STATE_DEAD);
    cli_list_fini(&ids);
    return rc;
}

/* Each key on its line; the worst outcome. */
static int cancel_keys(struct cli *cli, const struct cli_list *keys)
{
    int worst = CLI_DONE;
    int rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    for (size_t i = 0; i < keys->n; i++) {
        const char *key = keys->v[i];
        rc = pawl_cancel_key(cli->lane, cli->argv[0], key, strlen(key));
        if (cli->json) {
            json_t *j = json_pack("{s:s}", "result", pawl_strname(rc));
            cli_json_bytes(j, "key", key, strlen(key));
            cli_json_print(j);
        }
        if (rc < 0)
            worst = cli_refused(cli, rc, CLI_ABOUT_QUEUE, cli->argv[0]);
        else
            cli_say(cli, "cancelled %s", key);
    }
    return worst;
}

int cli_cancel(struct cli *cli)
{
    struct many m = { .cli = cli, .done = "cancelled", .call = pawl_cancel };
    struct cli_list ids = { 0 }, keys = { 0 };
    const struct cli_option options[] = {
        { "id", CLI_LIST, &ids, "ID", "these messages; more ids may follow", NULL },
        { "key", CLI_LIST, &keys, "K", "sent with these dedup keys; more keys may follow", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, -1);
    if (rc == CLI_GO && ids.n && keys.n)
        rc = cli_misused(cli, "--id and --key do not go together");
    for (int i = 1; rc == CLI_GO && keys.n && i < cli->argc; i++)
        cli_list_add(&keys, cli->argv[i]);
    if (rc == CLI_GO && !keys.n)
        rc = take_ids(cli, &ids);
    if (rc == CLI_GO && !ids.n && !keys.n)
        rc = cli_misused(
            cli, "which? give --id ID or --key K; pawl query %s --state ready,scheduled lists them",
            cli->argv[0]);
    if (rc == CLI_GO)
        rc = keys.n ? cancel_keys(cli, &keys) : many_run(&m, &ids, 0);
    cli_list_fini(&ids);
    cli_list_fini(&keys);
    return rc;
}
