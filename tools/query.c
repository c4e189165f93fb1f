/* SPDX-License-Identifier: MIT */
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "output.h"

#define PAGE 256u

bool cli_states_parse(const char *text, uint32_t *mask)
{
    uint32_t all = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        uint32_t found = 0;
        for (uint32_t s = PAWL_STATE_SCHEDULED; s <= PAWL_STATE_PURGED; s++) {
            const char *name = pawl_state_name(s);
            if (strlen(name) == length && strncasecmp(text, name, length) == 0)
                found = 1u << s;
        }
        if (length == 4 && strncasecmp(text, "live", 4) == 0)
            found = CLI_STATES_LIVE;
        if (length == 3 && strncasecmp(text, "all", 3) == 0)
            found = CLI_STATES_ALL;
        if (!found)
            return false;
        all |= found;
        text += length;
        if (*text == ',' && *++text == '\0')
            return false;
    }
    *mask = all;
    return all != 0;
}

const char *cli_dead_reason_name(uint32_t reason)
{
    static const char *const names[] = { "", "failed", "crashed", "rejected" };
    return reason < PAWL_COUNT(names) ? names[reason] : "unknown";
}

json_t *cli_record_json(const struct pawl_record *r)
{
    json_t *j = json_object();
    cli_json_number(j, "id", r->id);
    json_object_set_new(j, "state", json_string(pawl_state_name(r->state)));
    cli_json_number(j, "priority", r->priority);
    cli_json_time(j, "created", r->created_wall_ns);
    cli_json_number(j, "due_in_ns", r->due_in_ns);
    cli_json_number(j, "lease_left_ns", r->lease_left_ns);
    cli_json_number(j, "acquired", r->acquired);
    cli_json_number(j, "failed", r->failed);
    cli_json_number(j, "crashed", r->crashed);
    cli_json_number(j, "expired", r->expired);
    cli_json_number(j, "nacked", r->nacked);
    cli_json_number(j, "deferred", r->deferred);
    cli_json_number(j, "bytes", r->bytes);
    if (r->state == PAWL_STATE_DEAD)
        json_object_set_new(j, "dead_reason", json_string(cli_dead_reason_name(r->dead_reason)));
    if (r->holder_pid)
        cli_json_number(j, "holder_pid", r->holder_pid);
    if (*r->reason)
        cli_json_bytes(j, "reason", r->reason, strlen(r->reason));
    if (r->done_wall_ns)
        cli_json_time(j, "done", r->done_wall_ns);
    static const struct pawl_op_id none;
    if (memcmp(&r->done_by, &none, sizeof none) != 0) {
        char id[PAWL_OP_ID_TEXT_BYTES];
        pawl_op_id_format(&r->done_by, id);
        json_object_set_new(j, "done_by", json_string(id));
    }
    return j;
}

json_t *cli_record_json_full(struct cli *cli, const char *queue, const struct pawl_record *r)
{
    json_t *j = cli_record_json(r);
    uint8_t result[PAWL_RESULT_BYTES_MAX];
    size_t bytes = cli_result(cli, queue, r, result);
    if (bytes)
        cli_json_bytes(j, "result", result, bytes);
    return j;
}

size_t cli_result(struct cli *cli, const char *queue, const struct pawl_record *r, uint8_t *result)
{
    size_t have = 0;
    /* It may be forgotten since: then there is none. */
    if (r->result_bytes == 0 ||
        pawl_query_result(cli->lane, queue, r->id, result, PAWL_RESULT_BYTES_MAX, &have) != PAWL_OK)
        return 0;
    return have < PAWL_RESULT_BYTES_MAX ? have : PAWL_RESULT_BYTES_MAX;
}

int cli_records_each(struct cli *cli, const char *queue, uint32_t mask, cli_record_each *each,
                     void *ctx)
{
    struct pawl_record *page = calloc(PAGE, sizeof *page);
    uint64_t after = 0;
    int rc = CLI_GO;
    if (!page)
        return cli_failed(cli, "out of memory");
    while (rc == CLI_GO) {
        for (size_t i = 0; i < PAGE; i++)
            page[i].size = sizeof page[i];
        int n = pawl_query_scan(cli->lane, queue, after, mask, page, PAGE);
        if (n < 0)
            rc = cli_refused(cli, n, CLI_ABOUT_QUEUE, queue);
        if (n <= 0)
            break;
        for (int i = 0; i < n && rc == CLI_GO; i++)
            rc = each(ctx, &page[i]);
        after = page[n - 1].id;
    }
    free(page);
    return rc;
}

int cli_records_by_id(struct cli *cli, const char *queue, const struct cli_list *ids,
                      cli_record_each *each, void *ctx)
{
    int worst = CLI_GO;
    for (size_t i = 0; i < ids->n; i++) {
        struct pawl_record record = { .size = sizeof record };
        int rc = pawl_query_one(cli->lane, queue, cli_id(ids->v[i]), &record);
        if (rc < 0) {
            worst = cli_refused(cli, rc, CLI_ABOUT_MESSAGE, ids->v[i]);
            continue;
        }
        rc = each(ctx, &record);
        if (rc != CLI_GO)
            return rc;
    }
    return worst;
}

int cli_records_by_key(struct cli *cli, const char *queue, const struct cli_list *keys,
                       cli_record_each *each, void *ctx)
{
    int worst = CLI_GO;
    for (size_t i = 0; i < keys->n; i++) {
        struct pawl_record record = { .size = sizeof record };
        const char *key = keys->v[i];
        int rc = pawl_query_key(cli->lane, queue, key, strlen(key), &record);
        if (rc < 0) {
            worst = cli_refused(cli, rc, CLI_ABOUT_MESSAGE, key);
            continue;
        }
        rc = each(ctx, &record);
        if (rc != CLI_GO)
            return rc;
    }
    return worst;
}
