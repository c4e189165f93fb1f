/* SPDX-License-Identifier: MIT */
/* send: options and the single message. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "base/bits.h"
#include "base/hash.h"
#include "output.h"
#include "send.h"
#include "units.h"

#define WINDOW_DEFAULT 1024u
#define WINDOW_MAX 65536u

struct typed {
    const char *file, *key, *ordering_key, *at, *key_from, *separator;
    uint64_t delay, ttl, wait_room, from;
    uint32_t priority, window;
    bool lines, delay_given, wait_room_given, from_given, window_given, priority_given;
    struct cli_list headers;
    struct pawl_header *pairs; /* header_count of them, names copied */
};

/* "K=V": the value may hold '=' and may be empty. */
static int take_headers(const struct cli *cli, struct typed *t)
{
    t->pairs = calloc(t->headers.n + 1, sizeof *t->pairs);
    if (!t->pairs)
        return cli_failed(cli, "out of memory");
    for (size_t i = 0; i < t->headers.n; i++) {
        const char *text = t->headers.v[i], *sign = strchr(text, '=');
        if (!sign || sign == text)
            return cli_misused(cli, "--header: \"%s\" is not NAME=VALUE", text);
        t->pairs[i].name = strndup(text, (size_t)(sign - text));
        t->pairs[i].value = sign + 1;
        if (!t->pairs[i].name)
            return cli_failed(cli, "out of memory");
    }
    return CLI_GO;
}

static void typed_fini(struct typed *t)
{
    for (size_t i = 0; t->pairs && i < t->headers.n; i++)
        free((void *)(uintptr_t)t->pairs[i].name);
    free(t->pairs);
    cli_list_fini(&t->headers);
}

static int take_options(const struct cli *cli, struct typed *t, struct pawl_send_options *o)
{
    int rc = take_headers(cli, t);
    if (rc != CLI_GO)
        return rc;
    o->headers = t->pairs;
    o->header_count = (uint32_t)t->headers.n;
    o->delay_ns = t->delay;
    o->ttl_ns = t->ttl;
    if (t->priority_given)
        o->priority = t->priority;
    if (t->at && t->delay_given)
        return cli_misused(cli, "--delay or --at, not both");
    if (t->at && !cli_time_parse(t->at, &o->at_wall_ns, &o->delay_ns))
        return cli_misused(cli,
                           "--at: \"%s\" is no time; such are 2027-01-31T08:00:00Z, "
                           "2027-01-31T08:00:00+02:00, +5m",
                           t->at);
    if (t->key && !t->lines) {
        o->key = t->key;
        o->key_bytes = (uint32_t)strlen(t->key);
    }
    if (t->ordering_key) {
        o->ordering_key = t->ordering_key;
        o->ordering_key_bytes = (uint32_t)strlen(t->ordering_key);
    }
    return CLI_GO;
}

/* All of a file, up to what the largest message takes and one byte more, so that the broker can
 * refuse it by name. */
static int read_body(const struct cli *cli, const char *path, char **body, size_t *bytes)
{
    const size_t space = (size_t)PAWL_MESSAGE_BYTES_MAX + 1;
    bool std = strcmp(path, "-") == 0;
    int fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cli_failed(cli, "%s: %s", path, strerror(errno));
    *bytes = 0;
    *body = malloc(space); /* touched only as far as it is read */
    ssize_t n = *body ? 1 : 0;
    while (n > 0 && *bytes < space) {
        n = read(fd, *body + *bytes, space - *bytes);
        if (n < 0 && errno == EINTR) {
            n = 1;
            continue;
        }
        *bytes += n > 0 ? (size_t)n : 0;
    }
    int error = errno;
    if (!std)
        close(fd);
    if (!*body)
        return cli_failed(cli, "out of memory");
    if (n < 0)
        return cli_failed(cli, "%s: %s", std ? "standard input" : path, strerror(error));
    return CLI_GO;
}

static void print_sent(const struct cli *cli, const char *queue, const struct pawl_sent *sent,
                       int result)
{
    if (!cli->json) {
        printf("%llu\n", (unsigned long long)sent->id);
        return;
    }
    json_t *j = json_pack("{s:s,s:s}", "queue", queue, "result", pawl_strname(result));
    cli_json_number(j, "id", sent->id);
    cli_json_number(j, "lsn", sent->lsn);
    if (result == PAWL_OK_DUPLICATE)
        json_object_set_new(j, "state", json_string(pawl_state_name(sent->state)));
    cli_json_print(j);
}

static int send_one(struct cli *cli, const struct typed *t, const struct pawl_send_options *o)
{
    const char *queue = cli->argv[0];
    const char *text = cli->argc > 1 ? cli->argv[1] : NULL;
    char *file = NULL;
    size_t bytes = text ? strlen(text) : 0;
    struct pawl_sent sent = { 0 };
    if (!text && !t->file && isatty(STDIN_FILENO))
        return cli_misused(cli, "what? give a text, --file F, --lines, or a message on stdin");
    int rc = CLI_GO;
    if (!text)
        rc = read_body(cli, t->file ? t->file : "-", &file, &bytes);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc == CLI_GO) {
        int result = pawl_send(cli->lane, queue, text ? text : file, bytes, o, &sent);
        if (result < 0)
            rc = cli_refused(cli, result, CLI_ABOUT_QUEUE, queue);
        else
            print_sent(cli, queue, &sent, result);
    }
    free(file);
    return rc == CLI_GO ? CLI_DONE : rc;
}

/* NULL: the line has not so many. */
static const char *field_of(const struct cli_lines *lines, const char *text, size_t bytes,
                            size_t *count)
{
    const char *end = text + bytes;
    for (uint32_t i = 1;; i++) {
        const char *stop = memchr(text, lines->separator, (size_t)(end - text));
        if (i == lines->field) {
            *count = (size_t)((stop ? stop : end) - text);
            return text;
        }
        if (!stop)
            return NULL;
        text = stop + 1;
    }
}

size_t cli_line_key(const struct cli_lines *lines, uint64_t number, const char *text, size_t bytes,
                    char key[PAWL_KEY_BYTES_MAX + 1], const char **why)
{
    char own[40];
    const char *part = own;
    size_t part_bytes = 0, prefix = lines->key_prefix ? strlen(lines->key_prefix) : 0;
    if (lines->key_from == CLI_KEY_NONE)
        return 0;
    if (lines->key_from == CLI_KEY_HASH) {
        struct pawl_hash128 h = pawl_hash128(text, bytes, 0);
        part_bytes = (size_t)snprintf(own, sizeof own, "%016llx%016llx", (unsigned long long)h.high,
                                      (unsigned long long)h.low);
    } else if (lines->key_from == CLI_KEY_NUMBER) {
        part_bytes = (size_t)snprintf(own, sizeof own, "%llu", (unsigned long long)number);
    } else {
        part = field_of(lines, text, bytes, &part_bytes);
        if (part_bytes == 0) {
            *why = "the line has no such field, or it is empty: no key (--key-from)";
            return 0;
        }
    }
    size_t all = prefix + (prefix ? 1 : 0) + part_bytes;
    if (all > PAWL_KEY_BYTES_MAX) {
        *why = "its key is longer than 255 bytes; --key-from hash takes any line";
        return 0;
    }
    if (prefix) {
        memcpy(key, lines->key_prefix, prefix);
        key[prefix++] = ':';
    }
    memcpy(key + prefix, part, part_bytes);
    return all;
}

/* "hash", "number", or the number of a field. */
static int take_key_from(const struct cli *cli, const struct typed *t, struct cli_lines *lines)
{
    uint64_t field = 0;
    lines->key_prefix = t->key;
    lines->separator = t->separator ? t->separator[0] : '\t';
    if (!t->key_from)
        return CLI_GO;
    if (strcmp(t->key_from, "hash") == 0)
        lines->key_from = CLI_KEY_HASH;
    else if (strcmp(t->key_from, "number") == 0)
        lines->key_from = CLI_KEY_NUMBER;
    else if (cli_number_parse(t->key_from, &field) && field >= 1 && field <= UINT16_MAX)
        lines->key_from = CLI_KEY_FIELD;
    else
        return cli_misused(cli, "--key-from: \"%s\" is none of hash, number, 1 to 65535 (a field)",
                           t->key_from);
    lines->field = (uint32_t)field;
    if (lines->key_from == CLI_KEY_NUMBER && !t->key)
        return cli_misused(cli, "--key-from number wants --key K as well, which names the input: "
                                "else the lines of any other would be taken for repeats");
    if (t->separator && (lines->key_from != CLI_KEY_FIELD || strlen(t->separator) != 1))
        return cli_misused(cli, "--separator is one byte, and goes with --key-from N");
    return CLI_GO;
}

static int send_lines(struct cli *cli, const struct typed *t, const struct pawl_send_options *o)
{
    struct cli_lines lines = {
        .queue = cli->argv[0],
        .send = *o,
        .from = t->from_given ? t->from : 1,
        .wait_room_ns = t->wait_room_given ? t->wait_room : PAWL_UNLIMITED,
        .window = t->window_given ? t->window : WINDOW_DEFAULT,
    };
    if (lines.window < 1 || lines.window > WINDOW_MAX)
        return cli_misused(cli, "--window: 1 to %u", WINDOW_MAX);
    if (lines.from < 1)
        return cli_misused(cli, "--from: lines are counted from 1");
    int rc = take_key_from(cli, t, &lines);
    return rc == CLI_GO ? cli_send_lines(cli, &lines) : rc;
}

int cli_send(struct cli *cli)
{
    struct typed t = { 0 };
    const struct cli_option options[] = {
        { "file", CLI_TEXT, &t.file, "F", "the body is what F holds (-: stdin)", NULL },
        { "lines", CLI_FLAG, &t.lines, NULL, "a message for each line of stdin, many in flight",
          NULL },
        { "delay", CLI_DURATION, &t.delay, "D", "not before D has passed", &t.delay_given },
        { "at", CLI_TEXT, &t.at, "TIME", "not before TIME: RFC 3339, or +5m", NULL },
        { "priority", CLI_NUMBER32, &t.priority, "N", "0 lowest to 7 highest (4)",
          &t.priority_given },
        { "ttl", CLI_DURATION, &t.ttl, "D", "expires D after the send (the queue's)", NULL },
        { "header", CLI_LIST, &t.headers, "K=V", "a header; may be given again", NULL },
        { "key", CLI_TEXT, &t.key, "K", "dedup key: a repeat is answered with the first one",
          NULL },
        { "key-from", CLI_TEXT, &t.key_from, "WHAT",
          "with --lines: the key of a line is its hash, its\nnumber (behind --key K:), or its "
          "field "
          "N",
          NULL },
        { "separator", CLI_TEXT, &t.separator, "C", "of fields (a tab)", NULL },
        { "ordering-key", CLI_TEXT, &t.ordering_key, "K",
          "one message of a key at a time, in the order sent", NULL },
        { "wait-room", CLI_WAIT, &t.wait_room, "D",
          "wait so long for room in a full queue\n(0; with --lines: inf)", &t.wait_room_given },
        { "from", CLI_NUMBER, &t.from, "N", "with --lines: begin with line N (1)", &t.from_given },
        { "window", CLI_NUMBER32, &t.window, "N",
          "with --lines: so many in flight (1024); 1 keeps\nthe order even where the queue fills "
          "up",
          &t.window_given },
    };
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    int rc = cli_args(cli, options, PAWL_COUNT(options), 1, 2);
    if (rc == CLI_GO && t.lines + (t.file != NULL) + (cli->argc > 1) > 1)
        rc = cli_misused(cli, "TEXT, --file or --lines: one of them");
    if (rc == CLI_GO && !t.lines && (t.from_given || t.window_given))
        rc = cli_misused(cli, "--from and --window go with --lines");
    if (rc == CLI_GO && t.lines && t.key && !t.key_from)
        rc = cli_misused(cli, "--key names one message; with --lines it needs --key-from hash, "
                              "number or N");
    if (rc == CLI_GO && !t.lines && (t.key_from || t.separator))
        rc = cli_misused(cli, "--key-from and --separator go with --lines");
    if (rc == CLI_GO && t.separator && !t.key_from)
        rc = cli_misused(cli, "--separator goes with --key-from N");
    if (rc == CLI_GO)
        rc = take_options(cli, &t, &o);
    if (rc == CLI_GO && t.lines) {
        rc = send_lines(cli, &t, &o);
    } else if (rc == CLI_GO) {
        o.wait_room_ns = t.wait_room;
        rc = send_one(cli, &t, &o);
    }
    typed_fini(&t);
    return rc;
}
