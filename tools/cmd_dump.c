/* SPDX-License-Identifier: MIT */
/* log dump: the records of a log, a line each; blocks and damaged stretches between them if asked
 * for. It goes on behind damage, as far as there is something to read. */
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "logdir.h"
#include "output.h"
#include "record.h"
#include "units.h"

#define STOP_WRITE_FAILED 1

struct dump {
    struct cli *cli;
    uint64_t id, from;
    bool by_id, bodies, blocks;
};

static int show_block(void *ctx, const struct pawl_inspect_block *b)
{
    const struct dump *d = ctx;
    bool valid = strcmp(b->verdict, "valid") == 0;
    char time[CLI_UNIT_TEXT_BYTES];
    if (!d->blocks)
        return 0;
    if (d->cli->json) {
        json_t *j =
            json_pack("{s:s,s:s,s:s}", "type", "BLOCK", "file", b->file, "verdict", b->verdict);
        cli_json_number(j, "offset", b->offset);
        cli_json_number(j, "bytes", b->bytes);
        if (valid) {
            cli_json_number(j, "position", b->position);
            cli_json_number(j, "epoch", b->epoch);
            cli_json_number(j, "durable", b->durable);
            cli_json_number(j, "records", b->count);
            json_object_set_new(j, "marker", json_boolean(b->marker));
            json_object_set_new(j, "clean", json_boolean(b->clean));
            json_object_set_new(j, "chained", json_boolean(b->chained));
            cli_json_time(j, "written", b->wall_ns);
        }
        cli_json_print(j);
    } else if (valid) {
        printf("-- %s+%llu: block of %llu bytes at %llu, epoch %llu, %u records, durable %llu, "
               "%s%s%s%s\n",
               b->file, (unsigned long long)b->offset, (unsigned long long)b->bytes,
               (unsigned long long)b->position, (unsigned long long)b->epoch, b->count,
               (unsigned long long)b->durable, cli_time_format(b->wall_ns, time),
               b->marker ? ", marker" : "", b->clean ? ", clean stop" : "",
               b->chained ? "" : ", NOT CHAINED");
    } else {
        printf("-- %s+%llu: %llu bytes: %s\n", b->file, (unsigned long long)b->offset,
               (unsigned long long)b->bytes, b->verdict);
    }
    return ferror(stdout) ? STOP_WRITE_FAILED : 0;
}

/* "name=value" for each member: numbers and words as they are, the rest as JSON has them. */
static void print_members(json_t *j)
{
    const char *name;
    json_t *value;
    json_object_foreach(j, name, value)
    {
        printf("  %s=", name);
        json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    }
    putchar('\n');
}

static int show_record(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    const struct dump *d = ctx;
    struct pawl_record_view view;
    const char *name = cli_record_type(type);
    char number[16];
    bool good = pawl_record_decode(&view, type, body, bytes) == 0;
    if (lsn < d->from || (d->by_id && !(good && cli_record_names(&view, d->id))))
        return 0;
    if (!name) {
        snprintf(number, sizeof number, "TYPE_%u", type);
        name = number;
    }
    json_t *members = good ? cli_record_members(&view, d->bodies) : json_object();
    if (!good) {
        json_object_set_new(members, "undecodable", json_true());
        cli_json_number(members, "bytes", bytes);
    }
    if (d->cli->json) {
        json_t *j = json_pack("{s:s}", "type", name);
        cli_json_number(j, "lsn", lsn);
        json_object_update(j, members);
        cli_json_print(j);
    } else {
        printf("%-12llu %-11s", (unsigned long long)lsn, name);
        print_members(members);
    }
    json_decref(members);
    return ferror(stdout) ? STOP_WRITE_FAILED : 0;
}

int cli_log_dump(struct cli *cli)
{
    struct dump d = { .cli = cli };
    struct cli_logdir l;
    const struct cli_option options[] = {
        { "id", CLI_NUMBER, &d.id, "ID", "only records about this message", &d.by_id },
        { "from", CLI_NUMBER, &d.from, "LSN", "begin at this position", NULL },
        { "bodies", CLI_FLAG, &d.bodies, NULL, "bodies of messages, too", NULL },
        { "blocks", CLI_FLAG, &d.blocks, NULL, "blocks and what is none, too", NULL },
    };
    int rc = cli_args(cli, options, sizeof options / sizeof options[0], 0, 1);
    if (rc != CLI_GO)
        return rc;
    rc = cli_logdir_open(&l, cli);
    if (rc == CLI_GO) {
        const struct pawl_inspect_visitor visitor = { &d, show_block, show_record };
        rc = cli_logdir_verify(&l, cli);
        int walked = pawl_inspect_walk(l.inspect, d.from, &visitor);
        if (walked < 0)
            rc = cli_failed(cli, "%s: %s", l.path, strerror(-walked));
    }
    cli_logdir_close(&l);
    return rc == CLI_GO ? CLI_DONE : rc;
}
