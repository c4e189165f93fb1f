/* SPDX-License-Identifier: MIT */
/* explain: what became of one message, or of a session, in sentences, and what can be done. */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "output.h"
#include "query.h"
#include "stat.h"
#include "units.h"

struct explain {
    struct cli *cli;
    uint64_t id;
    bool found;
    struct pawl_queue_stat stat;
    struct pawl_record record;
    struct pawl_record_more more;
    uint64_t grant; /* of the token that was given; 0: an id was */
};

/* Which queue has it: an id is unique in the broker, but a query names a queue. */
static int look_in(void *ctx, const struct pawl_queue_stat *stat)
{
    struct explain *e = ctx;
    e->record = (struct pawl_record){ .size = sizeof e->record };
    int rc = pawl_query_one(e->cli->lane, stat->name, e->id, &e->record);
    if (rc == PAWL_E_NOT_FOUND || rc == PAWL_E_FORGOTTEN || rc == PAWL_E_PERM ||
        rc == PAWL_E_QUEUE_GONE || rc == PAWL_E_NOT_SUPPORTED) /* a direct queue */
        return CLI_GO;
    if (rc < 0)
        return cli_refused(e->cli, rc, CLI_ABOUT_QUEUE, stat->name);
    e->found = true;
    e->stat = *stat;
    return CLI_DONE;
}

/* Wherever it is, as the broker knows; the queue is looked up for what its options say of it. */
static int look_anywhere(struct explain *e)
{
    e->record = (struct pawl_record){ .size = sizeof e->record };
    e->more = (struct pawl_record_more){ .size = sizeof e->more };
    e->stat = (struct pawl_queue_stat){ .size = sizeof e->stat };
    int rc = pawl_query_message(e->cli->lane, e->id, &e->record, &e->more);
    if (rc == PAWL_OK)
        rc = pawl_queue_stat(e->cli->lane, e->more.queue, &e->stat);
    if (rc == PAWL_E_NOT_FOUND || rc == PAWL_E_FORGOTTEN)
        return CLI_GO;
    if (rc < 0)
        return cli_refused(e->cli, rc, CLI_ABOUT_NONE, NULL);
    e->found = true;
    return CLI_DONE;
}

static void say_dead(const struct explain *e)
{
    const struct pawl_record *r = &e->record;
    if (r->dead_reason == PAWL_DEAD_FAILED)
        printf("DEAD: it failed %u times; the queue gives up at %u (max-failed)\n", r->failed,
               e->stat.options.max_failed);
    else if (r->dead_reason == PAWL_DEAD_CRASHED)
        printf("DEAD: %u receivers died with it; the queue gives up at %u (max-crashed)\n",
               r->crashed, e->stat.options.max_crashed);
    else if (r->dead_reason == PAWL_DEAD_REJECTED)
        puts("DEAD: a receiver rejected it");
    else
        puts("DEAD");
}

static void say_state(const struct explain *e)
{
    const struct pawl_record *r = &e->record;
    char a[CLI_UNIT_TEXT_BYTES];
    printf("%-10s ", "state");
    switch (r->state) {
    case PAWL_STATE_SCHEDULED:
        printf("SCHEDULED: %s in %s\n", r->acquired ? "comes again" : "comes for the first time",
               cli_duration_human(r->due_in_ns, a));
        break;
    case PAWL_STATE_READY:
        if (e->stat.paused)
            puts("READY, but the queue is paused: nobody gets it");
        else if (e->stat.waiting == 0)
            puts("READY: the next receive may get it; nobody waits on the queue now");
        else
            puts("READY: the next receive may get it");
        break;
    case PAWL_STATE_LEASED:
        printf("LEASED: ");
        if (r->holder_pid)
            printf("process %u has it", r->holder_pid);
        else
            printf("a receiver has it");
        if (r->lease_left_ns == PAWL_UNLIMITED)
            puts(" as long as it lives");
        else
            printf(" for %s more\n", cli_duration_human(r->lease_left_ns, a));
        break;
    case PAWL_STATE_DEAD:
        say_dead(e);
        break;
    case PAWL_STATE_ACKED:
        puts("ACKED: done; remembered for a while, its body is gone");
        break;
    case PAWL_STATE_EXPIRED:
        puts("EXPIRED: nobody acknowledged it within its time to live");
        break;
    case PAWL_STATE_CANCELLED:
        puts("CANCELLED: it was taken back before anybody got it");
        break;
    case PAWL_STATE_PURGED:
        puts("PURGED: the queue was emptied");
        break;
    default:
        puts(pawl_state_name(r->state));
        break;
    }
}

static void say_next(const struct explain *e)
{
    const char *q = e->stat.name;
    unsigned long long id = e->id;
    bool live = (CLI_STATES_LIVE >> e->record.state & 1) != 0;
    if (live)
        printf("%-10s pawl peek %s --id %llu      its body\n", "next", q, id);
    if (e->record.state == PAWL_STATE_DEAD)
        printf("%-10s pawl restore %s --id %llu   back into the queue\n", "", q, id);
    if (e->record.state == PAWL_STATE_READY || e->record.state == PAWL_STATE_SCHEDULED)
        printf("%-10s pawl cancel %s --id %llu    takes it back\n", "", q, id);
    if (live && e->stat.paused)
        printf("%-10s pawl resume %s\n", "", q);
}

/* What cannot be shown in a line becomes question marks. */
static void say_bytes(const char *name, const char *p, size_t bytes)
{
    printf("%-10s ", name);
    for (size_t i = 0; i < bytes; i++)
        putchar((unsigned char)p[i] < 0x20 || p[i] == 0x7f ? '?' : p[i]);
    putchar('\n');
}

static const char *by(const struct pawl_record *r, char text[32])
{
    text[0] = '\0';
    if ((r->state == PAWL_STATE_ACKED || r->state == PAWL_STATE_CANCELLED) && r->holder_pid)
        snprintf(text, 32, " by process %u", r->holder_pid);
    return text;
}

static const char *lease_name(uint32_t kind)
{
    return kind == PAWL_LEASE_HELD       ? "held as long as its process lives"
           : kind == PAWL_LEASE_DETACHED ? "detached: it outlives its process"
                                         : "ends with its process, too";
}

/* Which delivery, whose lease, of what length. */
static void say_lease(const struct explain *e)
{
    const struct pawl_record_more *m = &e->more;
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES];
    if (m->grant)
        printf("%-10s number %llu%s\n", "delivery", (unsigned long long)m->grant,
               e->grant == 0          ? ""
               : e->grant == m->grant ? ": the token is of this one"
                                      : ": the token is of an older one");
    if (e->record.state != PAWL_STATE_LEASED)
        return;
    printf("%-10s of %s, %s; renewals may go on for %s\n", "lease",
           cli_duration_human(m->lease_ns, a), lease_name(m->lease_kind),
           cli_duration_human(m->hold_left_ns, b));
    if (m->session)
        printf("%-10s session %llu of user %u%s%s\n", "holder", (unsigned long long)m->session,
               m->holder_uid, *m->label ? ", label " : "", m->label);
    else
        printf("%-10s user %u\n", "holder", m->holder_uid);
}

/* What comes after the next failure. */
static void say_retry(const struct explain *e)
{
    static const uint64_t ladder[] = { 0, 1, 5, 30, 120, 600 }; /* the default, in seconds */
    const struct pawl_queue_options *o = &e->stat.options;
    const struct pawl_record *r = &e->record;
    char a[CLI_UNIT_TEXT_BYTES];
    if (!(CLI_STATES_LIVE >> r->state & 1) || r->state == PAWL_STATE_DEAD)
        return;
    uint32_t steps = o->retry_count ? o->retry_count : PAWL_COUNT(ladder);
    uint32_t step = r->failed < steps ? r->failed : steps - 1;
    uint64_t pause = o->retry_count ? o->retry_ns[step] : ladder[step] * PAWL_NS_S;
    printf("%-10s failure %u ", "retry", r->failed + 1);
    if (o->max_failed && r->failed + 1 >= o->max_failed)
        puts("is the last: DEAD then");
    else
        printf("of %u: comes again %s%s\n", o->max_failed, pause ? "after " : "at once",
               pause ? cli_duration_human(pause, a) : "");
}

static void say_keys(const struct explain *e)
{
    const struct pawl_record_more *m = &e->more;
    char a[CLI_UNIT_TEXT_BYTES];
    if (m->key_bytes)
        say_bytes("key", (const char *)m->key, m->key_bytes);
    if (m->ordering_key_bytes)
        say_bytes("ordered by", (const char *)m->ordering_key, m->ordering_key_bytes);
    if (m->ttl_left_ns != PAWL_UNLIMITED && (CLI_STATES_LIVE >> e->record.state & 1))
        printf("%-10s in %s, unless it is under lease then\n", "expires",
               cli_duration_human(m->ttl_left_ns, a));
}

static void say_all(const struct explain *e)
{
    const struct pawl_record *r = &e->record;
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES], c[32];
    uint64_t now = pawl_clock_wall();
    printf("%-10s %llu in queue \"%s\" (%s)\n", "message", (unsigned long long)e->id, e->stat.name,
           cli_mode_name(e->stat.options.mode));
    say_state(e);
    if (r->created_wall_ns) /* not kept once the message is over */
        printf("%-10s %s (%s ago)\n", "sent", cli_time_format(r->created_wall_ns, a),
               cli_duration_human(now > r->created_wall_ns ? now - r->created_wall_ns : 0, b));
    printf("%-10s %s, priority %u\n", "size", cli_size_human(r->bytes, a), r->priority);
    printf("%-10s given to a receiver %u time%s: %u failed (%u nacked, %u expired), %u crashed, "
           "%u deferred\n",
           "attempts", r->acquired, r->acquired == 1 ? "" : "s", r->failed, r->nacked, r->expired,
           r->crashed, r->deferred);
    if (e->more.size) {
        say_lease(e);
        say_keys(e);
    }
    say_retry(e);
    if (*r->reason)
        say_bytes("reason", r->reason, strlen(r->reason));
    if (r->done_wall_ns)
        printf("%-10s %s (%s ago)%s\n", "done", cli_time_format(r->done_wall_ns, a),
               cli_duration_human(now > r->done_wall_ns ? now - r->done_wall_ns : 0, b), by(r, c));
    static const struct pawl_op_id none;
    if (memcmp(&r->done_by, &none, sizeof none) != 0) {
        char id[PAWL_OP_ID_TEXT_BYTES];
        pawl_op_id_format(&r->done_by, id);
        printf("%-10s %s\n", "operation", id);
    }
    uint8_t result[PAWL_RESULT_BYTES_MAX];
    size_t bytes = cli_result(e->cli, e->stat.name, r, result);
    if (bytes)
        say_bytes("result", (const char *)result, bytes);
    say_next(e);
}

static void say_session(const struct pawl_session_record *s)
{
    char a[CLI_UNIT_TEXT_BYTES];
    printf("%-10s %llu of process %u, user %u, group %u%s%s\n", "session",
           (unsigned long long)s->id, s->pid, s->uid, s->gid, *s->label ? ", label " : "",
           s->label);
    if (s->ending)
        printf("%-10s over: its leases are being given back\n", "state");
    else if (s->detached_ns)
        printf("%-10s detached for %s: it may come back until its grace is over\n", "state",
               cli_duration_human(s->detached_ns, a));
    else
        printf("%-10s attached\n", "state");
    printf("%-10s %u lane%s, %u lease%s, %u idempotent operation%s, %u receive%s waiting\n", "has",
           s->lanes, s->lanes == 1 ? "" : "s", s->leases, s->leases == 1 ? "" : "s", s->idems,
           s->idems == 1 ? "" : "s", s->waits, s->waits == 1 ? "" : "s");
}

static void print_session(const struct pawl_session_record *s)
{
    json_t *j = json_object();
    cli_json_number(j, "session", s->id);
    cli_json_number(j, "epoch", s->epoch);
    cli_json_number(j, "detached_ns", s->detached_ns);
    cli_json_number(j, "pid", s->pid);
    cli_json_number(j, "uid", s->uid);
    cli_json_number(j, "gid", s->gid);
    json_object_set_new(j, "ending", json_boolean(s->ending));
    cli_json_number(j, "lanes", s->lanes);
    cli_json_number(j, "leases", s->leases);
    cli_json_number(j, "idems", s->idems);
    cli_json_number(j, "waits", s->waits);
    json_object_set_new(j, "label", json_string(s->label));
    cli_json_print(j);
}

static int explain_session(struct cli *cli)
{
    struct pawl_session_record s = PAWL_SESSION_RECORD_INIT;
    uint64_t id;
    if (!cli_number_parse(cli->argv[0], &id))
        return cli_misused(cli, "\"%s\" is no id of a session", cli->argv[0]);
    int rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    rc = pawl_query_session(cli->lane, id, &s);
    if (rc == PAWL_E_NOT_FOUND)
        return cli_refused_item(cli, rc, CLI_ABOUT_NONE, NULL,
                                "there is no such session that you may see: it has ended, or never "
                                "was; \"pawl explain ID\" of a message names its holder's");
    if (rc < 0)
        return cli_refused(cli, rc, CLI_ABOUT_NONE, NULL);
    if (cli->json)
        print_session(&s);
    else
        say_session(&s);
    return CLI_DONE;
}

int cli_explain(struct cli *cli)
{
    struct explain e = { .cli = cli };
    struct pawl_token token;
    const char *queue = NULL;
    bool session = false;
    const struct cli_option options[] = {
        { "queue", CLI_TEXT, &queue, "Q", "look there only (in all that you may query)", NULL },
        { "session", CLI_FLAG, &session, NULL, "ID is that of a session", NULL },
    };
    int rc = cli_args(cli, options, sizeof options / sizeof options[0], 1, 1);
    if (rc != CLI_GO)
        return rc;
    if (session && queue)
        return cli_misused(cli, "a session is of no queue: --queue does not go with --session");
    if (session)
        return explain_session(cli);
    if (pawl_token_parse(cli->argv[0], &token) == PAWL_OK)
        e.id = token.message, e.grant = token.grant;
    else if (!cli_number_parse(cli->argv[0], &e.id))
        return cli_misused(cli, "\"%s\" is no message id and no token", cli->argv[0]);
    rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    if (queue) {
        struct pawl_queue_stat stat = { .size = sizeof stat };
        rc = pawl_queue_stat(cli->lane, queue, &stat);
        if (rc < 0)
            return cli_refused(cli, rc, CLI_ABOUT_QUEUE, queue);
        rc = look_in(&e, &stat);
    } else {
        rc = look_anywhere(&e);
    }
    if (rc > CLI_DONE)
        return rc;
    if (!e.found)
        return cli_refused_item(cli, PAWL_E_NOT_FOUND, CLI_ABOUT_NONE, NULL,
                                "no queue that you may query knows this message: it is done and "
                                "forgotten, or never was");
    if (cli->json) {
        json_t *j = cli_record_json_full(cli, e.stat.name, &e.record);
        json_object_set_new(j, "queue", json_string(e.stat.name));
        if (e.more.grant)
            cli_json_number(j, "grant", e.more.grant);
        if (e.more.session)
            cli_json_number(j, "session", e.more.session);
        if (e.more.lease_ns)
            cli_json_number(j, "lease_ns", e.more.lease_ns);
        if (e.more.key_bytes)
            cli_json_bytes(j, "key", e.more.key, e.more.key_bytes);
        cli_json_print(j);
        return CLI_DONE;
    }
    say_all(&e);
    return CLI_DONE;
}
