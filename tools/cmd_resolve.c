/* SPDX-License-Identifier: MIT */
/* resolve: what became of an operation whose answer was lost. */
#include <stdio.h>

#include "args.h"
#include "base/bits.h"
#include "output.h"

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {
        [PAWL_RESOLVED_NEVER_SEEN] = "NEVER_SEEN",
        [PAWL_RESOLVED_COMMITTED] = "COMMITTED",
        [PAWL_RESOLVED_ABORTED] = "ABORTED",
        [PAWL_RESOLVED_FORGOTTEN] = "FORGOTTEN",
    };
    return state < PAWL_COUNT(names) ? names[state] : "?";
}

static void print_json(const char *op, const struct pawl_resolved *r)
{
    json_t *j = json_pack("{s:s,s:s}", "op", op, "state", state_name(r->state));
    bool known = r->state == PAWL_RESOLVED_COMMITTED || r->state == PAWL_RESOLVED_ABORTED;
    if (known || r->result != PAWL_OK)
        json_object_set_new(j, "result", json_string(pawl_strname(r->result)));
    if (known) {
        cli_json_number(j, "value", r->value);
        cli_json_number(j, "lsn", r->lsn);
    }
    cli_json_number(j, "horizon_ns", r->horizon_wall_ns);
    cli_json_print(j);
}

static void print_plain(const struct pawl_resolved *r)
{
    switch (r->state) {
    case PAWL_RESOLVED_COMMITTED:
        printf("COMMITTED %s %llu\n", pawl_strname(r->result), (unsigned long long)r->value);
        break;
    case PAWL_RESOLVED_ABORTED:
        printf("ABORTED %s\n", pawl_strname(r->result));
        break;
    default:
        puts(state_name(r->state));
        break;
    }
}

int cli_resolve(struct cli *cli)
{
    bool fence = false;
    const struct cli_option options[] = {
        { "fence", CLI_FLAG, &fence, NULL, "if it was never seen, refuse it from now on", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, 1);
    if (rc != CLI_GO)
        return rc;
    struct pawl_op_id id;
    if (pawl_op_id_parse(cli->argv[0], &id) != PAWL_OK)
        return cli_misused(cli, "\"%s\": %s", cli->argv[0], pawl_last_text(NULL));
    rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    struct pawl_resolved r = { .size = sizeof r };
    rc = pawl_resolve(cli->lane, &id, fence ? PAWL_RESOLVE_FENCE : 0, &r);
    if (rc < 0)
        return cli_refused(cli, rc, CLI_ABOUT_MESSAGE, cli->argv[0]);
    if (cli->json)
        print_json(cli->argv[0], &r);
    else
        print_plain(&r);
    return CLI_DONE;
}
