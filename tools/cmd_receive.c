/* SPDX-License-Identifier: MIT */
/* receive: messages to stdout.
 *
 * - Messages come in batches; each is written, the batch flushed to the kernel, and only then are
 * its acks submitted, in the same order. So what is acknowledged has been written.
 * - Acks are answered while the next batch is on its way; at the end all of them are waited for,
 * and the exit code is 0 only if all have been.
 * - stdout fails (full disk, closed pipe): the messages of that batch are given back, nothing of it
 *   is acknowledged, exit 1.
 * - A signal: the batch at hand is finished as above, then the end.
 * - Broker gone: the library comes back to the next one; leases and acks go with it.
 *
 * Leases. With --ack a message is held until it is written, so a reader that stops behind the pipe
 * costs nothing but time. Without, the lease is detached: another process settles it by its token.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "base/bits.h"
#include "base/clock.h"
#include "output.h"
#include "signals.h"
#include "units.h"

#define BATCH 256u
#define ANSWERS 256u
#define OUT_BYTES 1048576u
#define PREFETCH_DEFAULT 256u
#define ACKS_OPEN_MAX 1024u
#define RING_BYTES (1u << 20)
#define STREAM_TIMEOUT_NS (60 * PAWL_NS_S)

struct typed {
    uint64_t count, wait, lease;
    uint32_t prefetch;
    bool ack, at_most_once, follow;
    bool count_given, wait_given, lease_given, prefetch_given;
};

struct run {
    struct cli *cli;
    const struct typed *typed;
    const char *queue;
    struct pawl_receive_options options;
    struct pawl_message messages[BATCH];
    struct cli_progress progress;
    uint64_t printed, acks_open, acked, ack_failed;
    uint64_t started_ns;
    bool hint_shown;
};

/* --- one message ----------------------------------------------------------------------------- */

static json_t *headers_json(const struct pawl_message *m)
{
    struct pawl_header h;
    json_t *j = json_object();
    for (uint32_t i = 0; pawl_message_header(m, i, &h) == PAWL_OK; i++) {
        json_t *old = json_object_get(j, h.name);
        json_t *value = json_string(h.value);
        if (!value) { /* not UTF-8 */
            char *base64 = cli_base64(h.value, strlen(h.value));
            value = json_pack("{s:s}", "base64", base64);
            free(base64);
        }
        /* a name that comes again makes a list */
        if (json_is_array(old))
            json_array_append_new(old, value);
        else if (old)
            json_object_set_new(j, h.name, json_pack("[O,o]", old, value));
        else
            json_object_set_new(j, h.name, value);
    }
    return j;
}

static const char *lease_kind_name(uint32_t kind)
{
    static const char *const names[] = { "process", "held", "detached" };
    return kind < PAWL_COUNT(names) ? names[kind] : "unknown";
}

static void print_json(const struct pawl_message *m, bool leased)
{
    char token[PAWL_TOKEN_TEXT_BYTES];
    json_t *j = json_object();
    cli_json_number(j, "id", m->id);
    json_object_set_new(j, "queue", json_string(m->queue));
    if (leased) {
        pawl_token_format(&m->token, token);
        json_object_set_new(j, "token", json_string(token));
        cli_json_number(j, "grant", m->token.grant);
        json_object_set_new(j, "lease", json_string(lease_kind_name(m->lease_kind)));
        cli_json_number(j, "lease_left_ns", m->lease_left_ns);
    }
    if (m->key_bytes)
        cli_json_bytes(j, "key", m->key, m->key_bytes);
    if (m->ordering_key_bytes)
        cli_json_bytes(j, "ordering_key", m->ordering_key, m->ordering_key_bytes);
    cli_json_number(j, "priority", m->priority);
    cli_json_time(j, "sent", m->sent_wall_ns);
    cli_json_number(j, "acquired", m->acquired);
    cli_json_number(j, "failed", m->failed);
    cli_json_number(j, "crashed", m->crashed);
    cli_json_number(j, "expired", m->expired);
    cli_json_number(j, "nacked", m->nacked);
    if (m->headers_bytes)
        json_object_set_new(j, "headers", headers_json(m));
    if (m->progress_bytes)
        cli_json_bytes(j, "progress", m->progress, m->progress_bytes);
    cli_json_number(j, "bytes", m->bytes);
    cli_json_bytes(j, "body", m->body, m->bytes);
    cli_json_print(j);
}

static void print_body(const struct pawl_message *m)
{
    if (m->bytes)
        fwrite(m->body, 1, m->bytes, stdout);
    putchar('\n');
}

/* Somebody at a terminal who leases by hand wants to know how to go on. */
static void hint(struct run *r, const struct pawl_message *m)
{
    char token[PAWL_TOKEN_TEXT_BYTES], left[CLI_UNIT_TEXT_BYTES];
    if (!r->cli->err_terminal || r->cli->json)
        return;
    pawl_token_format(&m->token, token);
    fflush(stdout);
    if (r->hint_shown)
        fprintf(stderr, "  %s\n", token);
    else
        fprintf(stderr, "  yours for %s; then: pawl ack %s\n",
                cli_duration_human(m->lease_left_ns, left), token);
    r->hint_shown = true;
}

/* --- acks ------------------------------------------------------------------------------------ */

/* Takes answers until at most `open` acks are without one. CLI_GO or an exit code. */
static int harvest(struct run *r, uint64_t open)
{
    struct pawl_answer answers[ANSWERS];
    for (;;) {
        bool wait = r->acks_open > open;
        int n =
            pawl_poll(r->cli->lane, answers, ANSWERS, wait ? 1 : 0, wait ? STREAM_TIMEOUT_NS : 0);
        if (n < 0) {
            r->ack_failed += r->acks_open;
            r->acks_open = 0;
            return cli_refused(r->cli, n, CLI_ABOUT_QUEUE, r->queue);
        }
        for (int i = 0; i < n; i++) {
            r->acks_open--;
            if (answers[i].result >= 0) {
                r->acked++;
                continue;
            }
            if (r->ack_failed++ == 0)
                cli_refused_item(r->cli, answers[i].result, CLI_ABOUT_NONE, NULL,
                                 "a message was written but its ack was refused");
        }
        if (n == 0 || r->acks_open == 0)
            return r->ack_failed ? CLI_REFUSED : CLI_GO;
    }
}

static int ack_all(struct run *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pawl_ticket ticket;
        if (r->acks_open >= ACKS_OPEN_MAX) {
            int rc = harvest(r, ACKS_OPEN_MAX / 2);
            if (rc != CLI_GO)
                return rc;
        }
        int result = pawl_submit_ack(r->cli->lane, &r->messages[i].token, 0, &ticket);
        if (result < 0) {
            r->ack_failed++;
            return cli_refused(r->cli, result, CLI_ABOUT_QUEUE, r->queue);
        }
        r->acks_open++;
    }
    int result = pawl_flush(r->cli->lane);
    if (result < 0)
        return cli_refused(r->cli, result, CLI_ABOUT_QUEUE, r->queue);
    return harvest(r, r->acks_open);
}

/* --- the loop -------------------------------------------------------------------------------- */

static int write_failed(struct run *r, uint32_t count)
{
    int error = errno;
    uint32_t given_back = 0;
    for (uint32_t i = 0; r->typed->ack && i < count; i++)
        given_back += pawl_release(r->cli->lane, &r->messages[i].token) == PAWL_OK;
    cli_progress_end(&r->progress);
    /* it is said here, and what could not be written must not be written later */
    __fpurge(stdout);
    clearerr(stdout);
    if (r->typed->at_most_once)
        return cli_failed(r->cli,
                          "standard output: %s; up to %u messages are lost, as at-most-once "
                          "has it",
                          strerror(error), count);
    return cli_failed(r->cli,
                      "standard output: %s; %u messages were not acknowledged, %u of them "
                      "given back",
                      strerror(error), count, given_back);
}

static int handle(struct run *r, uint32_t count)
{
    bool leased = !r->typed->at_most_once;
    errno = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (r->cli->json)
            print_json(&r->messages[i], leased);
        else
            print_body(&r->messages[i]);
        if (leased && !r->typed->ack)
            hint(r, &r->messages[i]);
    }
#ifdef PAWL_BUG_CLI_ACK_BEFORE_WRITE
    if (r->typed->ack && ack_all(r, count) != CLI_GO)
        return CLI_REFUSED;
#endif
    if (!cli_flush())
        return write_failed(r, count);
    r->printed += count;
    return r->typed->ack ? ack_all(r, count) : CLI_GO;
}

static void show(struct run *r)
{
    char n[CLI_UNIT_TEXT_BYTES], rate[CLI_UNIT_TEXT_BYTES];
    if (!cli_progress_due(&r->progress))
        return;
    uint64_t ns = pawl_clock_boot() - r->started_ns;
    cli_progress_show(&r->progress, "%s messages, %s/s", cli_number_human(r->printed, n),
                      cli_number_human(r->printed * PAWL_NS_S / (ns ? ns : 1), rate));
}

/* Messages until the count is reached, none came for the wait, or a signal asks for the end. */
static int receive(struct run *r)
{
    const struct typed *t = r->typed;
    uint64_t quiet_ns = 0; /* waited in vain so far */
    int rc = CLI_GO;
    while (rc == CLI_GO && !cli_stopped() && (t->count == 0 || r->printed < t->count)) {
        uint64_t max = t->count ? pawl_min_u64(t->count - r->printed, BATCH) : BATCH;
        uint32_t n = 0;
        r->options.wait_ns = pawl_min_u64(t->wait - quiet_ns, CLI_SLICE_NS);
        int result = pawl_receive_batch(r->cli->lane, &r->queue, 1, &r->options, r->messages,
                                        (uint32_t)max, &n);
        if (result < 0)
            return cli_refused(r->cli, result, CLI_ABOUT_QUEUE, r->queue);
        if (n > 0) {
            quiet_ns = 0;
            rc = handle(r, n);
            show(r);
            continue;
        }
        if (t->ack)
            rc = harvest(r, r->acks_open);
        if (t->wait == PAWL_UNLIMITED)
            continue;
        quiet_ns += r->options.wait_ns;
        if (quiet_ns >= t->wait)
            break;
    }
    return rc;
}

/* A wait on a paused queue ends as any other without a message; why is to be said. */
static void say_paused(const struct run *r)
{
    struct pawl_queue_stat stat = { .size = sizeof stat };
    if (pawl_queue_stat(r->cli->lane, r->queue, &stat) == PAWL_OK && stat.paused)
        fprintf(stderr, "pawl: nothing came: \"%s\" is paused; let it go on with: pawl resume %s\n",
                r->queue, r->queue);
}

static int finish(struct run *r, int rc)
{
    if (r->acks_open) {
        int more = harvest(r, 0);
        rc = rc == CLI_GO ? more : rc;
    }
    cli_progress_end(&r->progress);
    if (r->ack_failed)
        return cli_failed(r->cli,
                          "%" PRIu64 " of %" PRIu64 " messages were written and not acknowledged: "
                          "they come again",
                          r->ack_failed, r->printed);
    if (rc != CLI_GO)
        return rc;
    if (r->printed == 0 && r->typed->count == 0 && cli_stopped())
        return CLI_DONE; /* who follows and stops it has waited for nothing else */
    if (r->printed == 0)
        say_paused(r);
    return r->printed ? CLI_DONE : CLI_NOTHING;
}

static int check(struct cli *cli, struct typed *t)
{
    if (t->ack && t->at_most_once)
        return cli_misused(cli, "--ack or --at-most-once, not both");
    if (t->at_most_once && t->lease_given)
        return cli_misused(cli, "--at-most-once leaves no lease: --lease has no use");
    if (t->follow && t->wait_given)
        return cli_misused(cli, "--follow has no end: --wait has no use");
    if (t->follow)
        t->wait = PAWL_UNLIMITED;
    if (t->follow && !t->count_given)
        t->count = 0;
    return CLI_GO;
}

/* A loop over many gets a lane to match. What is prefetched and not taken goes back when the
 * process ends; a detached lease would not, so prefetch goes with --ack only. */
static void lane_options(struct pawl_options *o, const struct typed *t)
{
    bool many = t->count == 0 || t->count > BATCH;
    if (many) {
        o->timeout_ns = STREAM_TIMEOUT_NS;
        o->ring_bytes = RING_BYTES;
    }
    if (t->ack)
        o->prefetch = t->prefetch_given ? t->prefetch : many ? PREFETCH_DEFAULT : 0;
}

int cli_receive(struct cli *cli)
{
    struct typed t = { .count = 1 };
    const struct cli_option options[] = {
        { "count", CLI_NUMBER, &t.count, "N", "so many messages (1; 0: no limit)", &t.count_given },
        { "wait", CLI_WAIT, &t.wait, "D", "end when none came for D (0: what is there)",
          &t.wait_given },
        { "lease", CLI_DURATION, &t.lease, "D",
          "time to settle it (the queue's;\nwith --ack: until it is written)", &t.lease_given },
        { "ack", CLI_FLAG, &t.ack, NULL, "acknowledge each when it is written", NULL },
        { "at-most-once", CLI_FLAG, &t.at_most_once, NULL,
          "acknowledged before it is shown; a crash loses it", NULL },
        { "follow", CLI_FLAG, &t.follow, NULL, "wait for more, without an end", NULL },
        { "prefetch", CLI_NUMBER32, &t.prefetch, "N",
          "with --ack: held ready ahead (256 for a stream)", &t.prefetch_given },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, 1);
    if (rc == CLI_GO)
        rc = check(cli, &t);
    if (rc != CLI_GO)
        return rc;
    struct pawl_options lane = PAWL_OPTIONS_INIT;
    lane_options(&lane, &t);
    rc = cli_attach(cli, &lane);
    if (rc != CLI_GO)
        return rc;
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return cli_failed(cli, "out of memory");
    r->cli = cli;
    r->typed = &t;
    r->queue = cli->argv[0];
    r->options = (struct pawl_receive_options)PAWL_RECEIVE_OPTIONS_INIT;
    r->options.lease_ns = t.lease_given && t.lease == 0 ? 1 : t.lease;
    r->options.lease_kind = !t.ack           ? PAWL_LEASE_DETACHED
                            : !t.lease_given ? PAWL_LEASE_HELD
                                             : PAWL_LEASE_PROCESS;
    if (t.at_most_once) {
        r->options.lease_kind = PAWL_LEASE_PROCESS;
        r->options.flags = PAWL_RECEIVE_AT_MOST_ONCE;
    }
    r->started_ns = pawl_clock_boot();
    if (!cli->out_terminal)
        cli_progress_init(&r->progress, cli);
    setvbuf(stdout, NULL, _IOFBF, OUT_BYTES);
    cli_stop_on_signals();
    rc = finish(r, receive(r));
    free(r);
    return rc;
}
