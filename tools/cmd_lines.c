/* SPDX-License-Identifier: MIT */
/* send --lines: a message for each line of stdin.
 *
 * - Lines are read, submitted and answered in a window; a slot keeps its line until it is in the
 *   queue. The library carries what is open over a restart of the broker.
 * - Answered OK: the slot is free once all before it are (`head` moves).
 * - Refused for want of room: nothing new is read, what flies comes in, then the refused ones go
 *   again, the oldest first and one at a time, with a pause while there is no room. The window
 * grows again with each that is taken. A line that was refused may so stand behind a later one that
 * was not: it is counted and said; a window of one never does it.
 * - Any other answer, a line that is too long, a failed read, a signal: nothing more is read, what
 *   flies comes in, and the number of the first line that is not in the queue is said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "client/text.h"
#include "lines.h"
#include "output.h"
#include "send.h"
#include "signals.h"
#include "units.h"

#define ANSWERS 256u
#define TIMEOUT_NS (60 * PAWL_NS_S) /* a stream may wait longer for a broker than a single call */
#define PAUSE_NS (20 * PAWL_NS_MS)
#define RING_BYTES (1u << 20)
#define WINDOW_LEAST 64u
#define WHY_BYTES 512

enum slot_state { FREE, FLYING, REFUSED, SENT };

struct slot {
    char *body;
    size_t bytes, space;
    char key[PAWL_KEY_BYTES_MAX + 1];
    size_t key_bytes;
    pawl_ticket ticket;
    uint64_t refused_ns; /* since when */
    enum slot_state state;
};

struct run {
    struct cli *cli;
    const struct cli_lines *lines;
    struct cli_reader reader;
    struct cli_progress progress;
    struct slot *slots;  /* line n in slots[n % window] */
    uint64_t head, next; /* oldest line that is not in the queue; the next one to read */
    uint64_t look;       /* where the next answer is expected */
    uint32_t flying, refused, limit;
    bool ended;  /* no more lines */
    bool failed; /* and a complaint is out */
    uint64_t sent, duplicates, bytes, behind, unknown;
    uint64_t started_ns, heard_ns, shown_sent, shown_ns, rate;
    uint64_t away_ns;     /* since when there is no broker; 0: there is one */
    uint64_t full_ns;     /* since when there is no room; 0: there is */
    uint64_t say_full_ns; /* not before */
    char why[WHY_BYTES];  /* of the last refusal */
    uint64_t timeout_ns;
};

static struct slot *slot_of(struct run *r, uint64_t line)
{
    return &r->slots[line % r->lines->window];
}

/* --- progress -------------------------------------------------------------------------------- */

static void show(struct run *r)
{
    char sent[CLI_UNIT_TEXT_BYTES], rate[CLI_UNIT_TEXT_BYTES], age[CLI_UNIT_TEXT_BYTES];
    struct pawl_broker_info info = { .size = sizeof info };
    char state[160] = "";
    if (!cli_progress_due(&r->progress))
        return;
    uint64_t now = pawl_clock_boot();
    if (r->shown_ns == r->started_ns && now > r->started_ns)
        r->rate = r->sent * PAWL_NS_S / (now - r->started_ns); /* the first second */
    if (now - r->shown_ns >= PAWL_NS_S) {
        r->rate = (r->sent - r->shown_sent) * PAWL_NS_S / (now - r->shown_ns);
        r->shown_sent = r->sent;
        r->shown_ns = now;
    }
    if (r->full_ns)
        snprintf(state, sizeof state, ", waiting for room since %s",
                 cli_duration_human(now - r->full_ns, age));
    else if (r->away_ns)
        snprintf(state, sizeof state, ", the broker is away since %s: start it again",
                 cli_duration_human(now - r->away_ns, age));
    else if (r->flying && now - r->heard_ns > PAWL_NS_S)
        snprintf(state, sizeof state, ", no answer from the broker since %s",
                 cli_duration_human(now - r->heard_ns, age));
    else if (pawl_info(r->cli->lane, &info) == PAWL_OK && info.reattached)
        snprintf(state, sizeof state, ", broker %u (came back %u time%s)", info.pid,
                 info.reattached, info.reattached == 1 ? "" : "s");
    cli_progress_show(&r->progress, "%s lines in the queue, %s/s, %u in flight%s",
                      cli_number_human(r->sent, sent), cli_number_human(r->rate, rate), r->flying,
                      state);
}

/* --- answers --------------------------------------------------------------------------------- */

static void complain(struct run *r, uint64_t line, int result, const char *why)
{
    if (!r->failed) {
        cli_progress_end(&r->progress);
        cli_refused_item(r->cli, result, CLI_ABOUT_QUEUE, r->lines->queue, why);
        fprintf(stderr, "pawl: that was line %llu\n", (unsigned long long)line);
    }
    r->failed = r->ended = true;
}

/* The line with this ticket: answers come nearly always in the order of the lines. */
static uint64_t line_of(struct run *r, pawl_ticket ticket)
{
    uint64_t count = r->next - r->head;
    for (uint64_t i = 0, line = r->look; i < count; i++, line++) {
        if (line < r->head || line >= r->next)
            line = r->head;
        if (slot_of(r, line)->state == FLYING && slot_of(r, line)->ticket == ticket) {
            r->look = line + 1;
            return line;
        }
    }
    return 0;
}

/* Who waits without a terminal wants to know it, too: when nothing has gone in for a second, and
 * not again within a minute. */
static void say_full(struct run *r)
{
    uint64_t now = pawl_clock_boot();
    if (r->full_ns == 0 || now - r->full_ns < PAWL_NS_S || now < r->say_full_ns)
        return;
    r->say_full_ns = now + 60 * PAWL_NS_S;
    cli_progress_end(&r->progress);
    fprintf(stderr, "pawl: %s: %s; waiting for room\n", pawl_strname(PAWL_E_FULL), r->why);
}

static void taken(struct run *r, struct slot *slot, uint64_t line, int result)
{
    slot->state = SENT;
    r->full_ns = 0;
    r->sent++;
    r->duplicates += result == PAWL_OK_DUPLICATE;
    r->bytes += slot->bytes;
    if (r->refused && slot_of(r, r->head)->state == REFUSED && line > r->head)
        r->behind++;
    if (r->limit < r->lines->window)
        r->limit++;
    while (r->head < r->next && slot_of(r, r->head)->state == SENT)
        slot_of(r, r->head++)->state = FREE;
}

static void answered(struct run *r, const struct pawl_answer *answer)
{
    uint64_t line = line_of(r, answer->ticket);
    if (line == 0) /* cannot be: no other calls are open in this lane */
        return;
    struct slot *slot = slot_of(r, line);
    r->flying--;
    bool done = answer->result >= 0;
#ifdef PAWL_BUG_CLI_REFUSED_IS_SENT
    done = done || answer->result == PAWL_E_FULL;
#endif
    if (done) {
        taken(r, slot, line, answer->result);
        return;
    }
    pawl_text_refusal(r->why, sizeof r->why, answer->result, answer->value, r->lines->queue);
    if (answer->result == PAWL_E_FULL || answer->result == PAWL_E_QUOTA) {
        uint64_t now = pawl_clock_boot();
        if (slot->refused_ns == 0)
            slot->refused_ns = now;
        if (r->full_ns == 0)
            r->full_ns = now;
        slot->state = REFUSED;
        r->refused++;
        r->limit = 1;
        if (r->lines->wait_room_ns == PAWL_UNLIMITED ||
            now - slot->refused_ns < r->lines->wait_room_ns)
            return;
    } else {
        slot->state = REFUSED;
        r->refused++;
        r->unknown += pawl_outcome_class(answer->result) == PAWL_OUTCOME_UNKNOWN;
    }
    complain(r, line, answer->result, r->why);
}

/* Takes what is there, or waits a slice for the first. */
static void harvest(struct run *r, bool wait, uint64_t wait_ns)
{
    struct pawl_answer answers[ANSWERS];
    int n = pawl_poll(r->cli->lane, answers, ANSWERS, wait ? 1 : 0, wait ? wait_ns : 0);
    for (int i = 0; i < n; i++)
        answered(r, &answers[i]);
    uint64_t now = pawl_clock_boot();
    if (n > 0)
        r->heard_ns = now;
    if (n != PAWL_E_BROKER_DOWN)
        r->away_ns = 0;
    else if (r->away_ns == 0)
        r->away_ns = now;
    /* a slice is soon over; what is open stays so, and the broker has its whole time to come back
     */
    bool wait_on =
        n == PAWL_E_DEADLINE || (n == PAWL_E_BROKER_DOWN && now - r->away_ns < r->timeout_ns);
    if (n < 0 && !wait_on) {
        complain(r, r->head, n, pawl_last_text(r->cli->lane));
        r->unknown += r->flying;
        r->flying = 0;
    }
    show(r);
}

/* --- sending --------------------------------------------------------------------------------- */

static void submit(struct run *r, uint64_t line)
{
    struct slot *slot = slot_of(r, line);
    struct pawl_send_options options = r->lines->send;
    options.key = slot->key_bytes ? slot->key : NULL;
    options.key_bytes = (uint32_t)slot->key_bytes;
    int rc = pawl_submit_send(r->cli->lane, r->lines->queue, slot->body, slot->bytes, &options,
                              &slot->ticket);
    if (rc == PAWL_OK) {
        slot->state = FLYING;
        r->flying++;
        return;
    }
    slot->state = REFUSED;
    r->refused++;
    if (pawl_last_outcome(r->cli->lane) == PAWL_OUTCOME_UNKNOWN)
        r->unknown++;
    complain(r, line, rc, pawl_last_text(r->cli->lane));
}

/* The refused ones once more, oldest first, as many as the window of now allows. */
static void submit_again(struct run *r)
{
    if (r->limit == 1)
        usleep(PAUSE_NS / 1000);
    for (uint64_t line = r->head; line < r->next && r->refused && r->flying < r->limit; line++) {
        if (slot_of(r, line)->state != REFUSED)
            continue;
        r->refused--;
        submit(r, line);
        if (r->failed)
            return;
    }
}

static void keep(struct run *r, const char *text, size_t bytes)
{
    struct slot *slot = slot_of(r, r->next);
    if (slot->space < bytes || !slot->body) {
        char *body = realloc(slot->body, bytes + 64);
        if (!body) {
            complain(r, r->next, PAWL_E_RESOURCE, "out of memory");
            return;
        }
        slot->body = body;
        slot->space = bytes + 64;
    }
    memcpy(slot->body, text, bytes);
    slot->bytes = bytes;
    slot->refused_ns = 0;
    const char *why = NULL;
    slot->key_bytes = cli_line_key(r->lines, r->next, text, bytes, slot->key, &why);
    if (why) {
        complain(r, r->next, PAWL_E_INVALID, why);
        return;
    }
    submit(r, r->next++);
}

/* The next line into the window. False: there is none yet. */
static bool read_one(struct run *r, uint64_t *skip)
{
    const char *text;
    size_t bytes;
    int wait_ms = r->flying ? 0 : -1;
    switch (cli_reader_next(&r->reader, wait_ms, &text, &bytes)) {
    case CLI_LINE_HERE:
        if (*skip > 0)
            (*skip)--;
        else
            keep(r, text, bytes);
        return true;
    case CLI_LINE_NOT_YET:
        return false;
    case CLI_LINE_END:
        r->ended = true;
        return false;
    case CLI_LINE_TOO_LONG:
        complain(r, r->next, PAWL_E_TOO_BIG, "the line is longer than any message may be");
        return false;
    case CLI_LINE_FAILED:
        cli_progress_end(&r->progress);
        cli_failed(r->cli, "standard input: %s", strerror(r->reader.error));
        r->failed = r->ended = true;
        return false;
    }
    return false;
}

static void turn(struct run *r, uint64_t *skip)
{
    bool more = true;
    if (cli_stopped() && !r->failed) {
        cli_progress_end(&r->progress);
        cli_failed(r->cli, "stopped by a signal");
        r->failed = r->ended = true;
    }
    say_full(r);
    if (r->refused && r->flying == 0 && !r->failed)
        submit_again(r);
    while (more && !r->ended && !r->refused && r->flying < r->limit &&
           r->next - r->head < r->lines->window)
        more = read_one(r, skip);
    if (r->flying == 0)
        return;
    /* The poll makes visible what was submitted. A quiet pipe is looked at again soon, a full
     * window only when an answer came */
    harvest(r, true, more ? CLI_SLICE_NS : PAUSE_NS);
}

/* --- the end --------------------------------------------------------------------------------- */

static int report(struct run *r)
{
    uint64_t seconds_ns = pawl_clock_boot() - r->started_ns;
    char n[CLI_UNIT_TEXT_BYTES], t[CLI_UNIT_TEXT_BYTES], rate[CLI_UNIT_TEXT_BYTES];
    cli_progress_end(&r->progress);
    if (r->cli->json) {
        json_t *j = json_pack("{s:s,s:b}", "queue", r->lines->queue, "complete", !r->failed);
        cli_json_number(j, "lines", r->head - 1);
        cli_json_number(j, "sent", r->sent);
        cli_json_number(j, "duplicates", r->duplicates);
        cli_json_number(j, "out_of_order", r->behind);
        cli_json_number(j, "unknown", r->unknown);
        cli_json_number(j, "bytes", r->bytes);
        cli_json_number(j, "elapsed_ns", seconds_ns);
        cli_json_print(j);
    }
    if (r->failed) {
        uint64_t after = r->sent - (r->head - r->lines->from);
        fprintf(stderr, "pawl: the lines before %llu are in the queue; go on with --from %llu\n",
                (unsigned long long)r->head, (unsigned long long)r->head);
        if (after + r->unknown)
            fprintf(stderr,
                    "pawl: behind them %llu more are in the queue and of %llu it is not known: "
                    "%s\n",
                    (unsigned long long)after, (unsigned long long)r->unknown,
                    r->lines->key_from ? "with their keys they do not come twice"
                                       : "they would come twice");
    } else if (r->cli->err_terminal) {
        fprintf(stderr, "%s lines in the queue in %s, %s/s\n", cli_number_human(r->sent, n),
                cli_duration_human(seconds_ns, t),
                cli_number_human(r->sent * PAWL_NS_S / (seconds_ns ? seconds_ns : 1), rate));
    }
    if (r->behind)
        fprintf(stderr,
                "pawl: the queue was full: %llu lines stand before earlier ones; --window 1 keeps "
                "the order\n",
                (unsigned long long)r->behind);
    return r->failed ? CLI_REFUSED : CLI_DONE;
}

int cli_send_lines(struct cli *cli, const struct cli_lines *lines)
{
    struct pawl_options options = PAWL_OPTIONS_INIT;
    options.window = lines->window < WINDOW_LEAST ? WINDOW_LEAST : lines->window;
    options.ring_bytes = RING_BYTES;
    options.timeout_ns = TIMEOUT_NS;
    int rc = cli_attach(cli, &options);
    if (rc != CLI_GO)
        return rc;
    struct run r = { .cli = cli,
                     .lines = lines,
                     .head = lines->from,
                     .next = lines->from,
                     .look = lines->from,
                     .limit = lines->window,
                     .started_ns = pawl_clock_boot() };
    r.heard_ns = r.shown_ns = r.started_ns;
    r.timeout_ns = options.timeout_ns;
    r.slots = calloc(lines->window, sizeof *r.slots);
    if (!r.slots)
        return cli_failed(cli, "out of memory");
    cli_reader_init(&r.reader, STDIN_FILENO, PAWL_MESSAGE_BYTES_MAX);
    cli_progress_init(&r.progress, cli);
    cli_stop_on_signals();
    uint64_t skip = lines->from - 1;
    while (!r.ended || r.flying || (r.refused && !r.failed))
        turn(&r, &skip);
    rc = report(&r);
    cli_reader_fini(&r.reader);
    for (uint32_t i = 0; i < lines->window; i++)
        free(r.slots[i].body);
    free(r.slots);
    return rc;
}
