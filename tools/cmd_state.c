/* SPDX-License-Identifier: MIT */
/* state get, put, add, delete, list; state reserve, post, void, reservation. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "base/bits.h"
#include "output.h"
#include "units.h"

#define PAGE 256u

/* --- arguments ------------------------------------------------------------------------------- */

/* A decimal number with a sign or without. */
static bool signed_parse(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    *out = n;
    return *text != ' ' && end != text && *end == '\0' && errno == 0;
}

static int take_signed(const struct cli *cli, const char *what, const char *text, int64_t *out)
{
    if (!text || signed_parse(text, out))
        return CLI_GO;
    return cli_misused(cli, "%s: \"%s\" is no number of 64 bits", what, text);
}

/* Up to 32 hexadecimal digits, hyphens between them as in a UUID; fewer fill from the right. */
static int take_id(const struct cli *cli, const char *text, uint8_t id[16])
{
    char digits[33];
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        if (*p == '-')
            continue;
        if (n == 32 || !strchr("0123456789abcdefABCDEF", *p))
            return cli_misused(cli, "\"%s\": an id has up to 32 hexadecimal digits", text);
        digits[n++] = *p;
    }
    if (n == 0)
        return cli_misused(cli, "\"%s\": an id has up to 32 hexadecimal digits", text);
    memset(id, 0, 16);
    for (size_t i = 0; i < n; i++) {
        char c = digits[n - 1 - i];
        uint32_t v = c <= '9' ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a' + 10);
        id[15 - i / 2] |= (uint8_t)(v << (i % 2 * 4));
    }
    return CLI_GO;
}

/* Parses, checks the key in argv[1] if there is one, attaches. */
static int begin(struct cli *cli, const struct cli_option *options, size_t count, int min, int max)
{
    int rc = cli_args(cli, options, count, min, max);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    return rc;
}

static int refused(struct cli *cli, int result)
{
    if (result == PAWL_E_NOT_FOUND)
        return cli_failed(cli,
                          "PAWL_E_NOT_FOUND: no table \"%s\"; create it with: pawl create %s "
                          "--table",
                          cli->argv[0], cli->argv[0]);
    return cli_refused(cli, result, CLI_ABOUT_NONE, NULL);
}

/* The JSON of a call on one key. */
static json_t *key_json(const struct cli *cli, int result)
{
    json_t *j = json_pack("{s:s,s:s}", "table", cli->argv[0], "result", pawl_strname(result));
    cli_json_bytes(j, "key", cli->argv[1], strlen(cli->argv[1]));
    return j;
}

static void json_signed(json_t *j, const char *name, int64_t n)
{
    json_object_set_new(j, name, json_integer((json_int_t)n));
}

/* --- get ------------------------------------------------------------------------------------- */

static void value_json(json_t *j, const struct pawl_value *v)
{
    cli_json_number(j, "version", v->version);
    if (v->kind == PAWL_VALUE_NUMBER) {
        json_signed(j, "number", v->number);
        json_signed(j, "reserved", v->reserved);
        json_signed(j, "posted", v->posted);
    } else {
        cli_json_number(j, "bytes", v->bytes);
    }
}

int cli_state_get(struct cli *cli)
{
    int rc = begin(cli, NULL, 0, 2, 2);
    if (rc != CLI_GO)
        return rc;
    struct pawl_value v = PAWL_VALUE_INIT;
    char *bytes = malloc(PAWL_STATE_BYTES_MAX);
    const char *key = cli->argv[1];
    if (!bytes)
        return cli_failed(cli, "out of memory");
    rc = pawl_state_get(cli->lane, cli->argv[0], key, strlen(key), bytes, PAWL_STATE_BYTES_MAX, &v);
    if (rc == PAWL_OK && cli->json) {
        json_t *j = key_json(cli, rc);
        value_json(j, &v);
        if (v.kind == PAWL_VALUE_BYTES)
            cli_json_bytes(j, "value", bytes, v.bytes);
        cli_json_print(j);
    } else if (rc == PAWL_OK && v.kind == PAWL_VALUE_NUMBER) {
        printf("%" PRId64 "\n", v.number);
    } else if (rc == PAWL_OK) {
        fwrite(bytes, 1, v.bytes, stdout);
        putchar('\n');
    }
    free(bytes);
    if (rc < 0)
        return refused(cli, rc);
    if (rc == PAWL_OK)
        return CLI_DONE;
    fprintf(stderr, "pawl: no key \"%s\" in table \"%s\"\n", key, cli->argv[0]);
    return CLI_NOTHING;
}

/* --- put, add, delete ------------------------------------------------------------------------ */

struct write {
    const char *file;
    bool absent, number;
    uint64_t version;
    bool given;
    const char *min, *max;
};

static int take_expect(const struct cli *cli, const struct write *w, uint64_t *expect)
{
    *expect = PAWL_ANY;
    if (w->absent && w->given)
        return cli_misused(cli, "--if-absent or --if-version: one of them");
    if (w->given)
        *expect = w->version;
    if (w->absent)
        *expect = 0;
    return CLI_GO;
}

/* What stdin or a file holds, one byte more than may be. */
static int read_value(const struct cli *cli, const char *path, char *to, size_t space,
                      size_t *bytes)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!f)
        return cli_failed(cli, "%s: %s", path, strerror(errno));
    *bytes = fread(to, 1, space, f);
    int rc = ferror(f) ? cli_failed(cli, "%s: %s", path, strerror(errno)) : CLI_GO;
    if (f != stdin)
        (void)fclose(f);
    return rc;
}

static int written(struct cli *cli, int rc, uint64_t version, const char *what)
{
    if (rc < 0)
        return refused(cli, rc);
    if (cli->json) {
        json_t *j = key_json(cli, rc);
        if (version)
            cli_json_number(j, "version", version);
        cli_json_print(j);
    } else if (rc == PAWL_OK_MISSING) {
        cli_say(cli, "there was no key \"%s\" in \"%s\"", cli->argv[1], cli->argv[0]);
    } else {
        cli_say(cli, "%s \"%s\" in \"%s\"", what, cli->argv[1], cli->argv[0]);
    }
    return CLI_DONE;
}

static int put_bytes(struct cli *cli, const struct write *w, uint64_t expect)
{
    const char *key = cli->argv[1], *text = cli->argc > 2 ? cli->argv[2] : NULL;
    size_t bytes = text ? strlen(text) : 0;
    uint64_t version = 0;
    char *read = NULL;
    if (!text && !w->file && isatty(STDIN_FILENO))
        return cli_misused(cli, "what? give a value, --file F, or a value on stdin");
    if (!text) {
        read = malloc(PAWL_STATE_BYTES_MAX + 1);
        if (!read)
            return cli_failed(cli, "out of memory");
        int rc = read_value(cli, w->file ? w->file : "-", read, PAWL_STATE_BYTES_MAX + 1, &bytes);
        if (rc != CLI_GO) {
            free(read);
            return rc;
        }
    }
    int rc = pawl_state_put(cli->lane, cli->argv[0], key, strlen(key), text ? text : read, bytes,
                            expect, &version);
    free(read);
    return written(cli, rc, version, "put");
}

int cli_state_put(struct cli *cli)
{
    struct write w = { 0 };
    uint64_t expect, version = 0;
    int64_t number = 0;
    const struct cli_option options[] = {
        { "file", CLI_TEXT, &w.file, "F", "the value is what F holds (-: stdin)", NULL },
        { "number", CLI_FLAG, &w.number, NULL, "VALUE is a number, to be added to", NULL },
        { "if-absent", CLI_FLAG, &w.absent, NULL, "only if there is no such key", NULL },
        { "if-version", CLI_NUMBER, &w.version, "V", "only if it has this version", &w.given },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 2, 3);
    if (rc == CLI_GO)
        rc = take_expect(cli, &w, &expect);
    if (rc == CLI_GO && (w.file != NULL) + (cli->argc > 2) > 1)
        rc = cli_misused(cli, "VALUE or --file: one of them");
    if (rc == CLI_GO && w.number && cli->argc != 3)
        rc = cli_misused(cli, "--number: which? give it as VALUE");
    if (rc == CLI_GO && w.number)
        rc = take_signed(cli, "VALUE", cli->argv[2], &number);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    if (!w.number)
        return put_bytes(cli, &w, expect);
    rc = pawl_state_put_number(cli->lane, cli->argv[0], cli->argv[1], strlen(cli->argv[1]), number,
                               expect, &version);
    return written(cli, rc, version, "put");
}

int cli_state_delete(struct cli *cli)
{
    struct write w = { 0 };
    uint64_t expect = PAWL_ANY;
    const struct cli_option options[] = {
        { "if-version", CLI_NUMBER, &w.version, "V", "only if it has this version", &w.given },
    };
    int rc = begin(cli, options, PAWL_COUNT(options), 2, 2);
    if (rc == CLI_GO)
        rc = take_expect(cli, &w, &expect);
    if (rc != CLI_GO)
        return rc;
    rc = pawl_state_delete(cli->lane, cli->argv[0], cli->argv[1], strlen(cli->argv[1]), expect);
    return written(cli, rc, 0, "deleted");
}

int cli_state_add(struct cli *cli)
{
    struct write w = { 0 };
    int64_t number = 0, min = INT64_MIN, max = INT64_MAX, now = 0;
    const struct cli_option options[] = {
        { "min", CLI_TEXT, &w.min, "N", "refused if the sum would be below", NULL },
        { "max", CLI_TEXT, &w.max, "N", "refused if the sum would be above", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 3, 3);
    if (rc == CLI_GO)
        rc = take_signed(cli, "N", cli->argv[2], &number);
    if (rc == CLI_GO)
        rc = take_signed(cli, "--min", w.min, &min);
    if (rc == CLI_GO)
        rc = take_signed(cli, "--max", w.max, &max);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    rc = pawl_state_add(cli->lane, cli->argv[0], cli->argv[1], strlen(cli->argv[1]), number, min,
                        max, &now);
    if (rc < 0)
        return refused(cli, rc);
    if (cli->json) {
        json_t *j = key_json(cli, rc);
        json_signed(j, "number", now);
        cli_json_print(j);
    } else {
        printf("%" PRId64 "\n", now);
    }
    return CLI_DONE;
}

/* --- list ------------------------------------------------------------------------------------ */

/* A key for people: what is no plain letter is \xNN. */
static void key_text(const struct pawl_state_item *item, char *text)
{
    for (uint32_t i = 0; i < item->key_bytes; i++) {
        uint8_t c = item->key[i];
        if (c > ' ' && c < 127 && c != '\\')
            *text++ = (char)c;
        else
            text += sprintf(text, "\\x%02x", c);
    }
    *text = '\0';
}

static void list_one(const struct cli *cli, struct cli_table *t, const struct pawl_state_item *item)
{
    char key[4 * PAWL_KEY_BYTES_MAX + 1];
    const struct pawl_value *v = &item->value;
    if (cli->json) {
        json_t *j = json_pack("{s:s}", "table", cli->argv[0]);
        cli_json_bytes(j, "key", item->key, item->key_bytes);
        value_json(j, v);
        cli_json_print(j);
        return;
    }
    key_text(item, key);
    cli_table_add(t, "%s", key);
    cli_table_add(t, "%" PRIu64, v->version);
    if (v->kind != PAWL_VALUE_NUMBER) {
        cli_table_number(t, cli, v->bytes);
        for (int i = 0; i < 3; i++)
            cli_table_add(t, "-");
        return;
    }
    cli_table_add(t, "-");
    cli_table_add(t, "%" PRId64, v->number);
    cli_table_add(t, "%" PRId64, v->reserved);
    cli_table_add(t, "%" PRId64, v->posted);
}

int cli_state_list(struct cli *cli)
{
    static const char *const heads[] = { "KEY",     ">VERSION",  ">BYTES",
                                         ">NUMBER", ">RESERVED", ">POSTED" };
    const char *prefix = "", *after_text = "";
    uint64_t limit = PAWL_UNLIMITED, count = 0;
    const struct cli_option options[] = {
        { "prefix", CLI_TEXT, &prefix, "P", "keys that begin with P", NULL },
        { "after", CLI_TEXT, &after_text, "K", "keys that come after K", NULL },
        { "limit", CLI_NUMBER, &limit, "N", "at most so many (all)", NULL },
    };
    int rc = begin(cli, options, PAWL_COUNT(options), 1, 1);
    if (rc != CLI_GO)
        return rc;
    struct pawl_state_item *items = calloc(PAGE, sizeof *items);
    uint8_t after[PAWL_KEY_BYTES_MAX];
    size_t after_bytes = strlen(after_text);
    if (!items)
        return cli_failed(cli, "out of memory");
    if (after_bytes > sizeof after || strlen(prefix) > sizeof after)
        after_bytes = 0, rc = cli_misused(cli, "a key has at most %u bytes", PAWL_KEY_BYTES_MAX);
    memcpy(after, after_text, after_bytes);
    struct cli_table table;
    cli_table_init(&table, cli, heads, PAWL_COUNT(heads));
    while (rc == CLI_GO && count < limit) {
        items[0].size = sizeof items[0];
        int n = pawl_state_scan(cli->lane, cli->argv[0], prefix, strlen(prefix), after, after_bytes,
                                items, (uint32_t)pawl_min_u64(PAGE, limit - count));
        if (n < 0)
            rc = refused(cli, n);
        for (int i = 0; i < n; i++, count++)
            list_one(cli, &table, &items[i]);
        if (n <= 0)
            break;
        after_bytes = items[n - 1].key_bytes;
        memcpy(after, items[n - 1].key, after_bytes);
    }
    if (!cli->json && rc == CLI_GO)
        cli_table_flush(&table);
    cli_table_fini(&table);
    free(items);
    return rc == CLI_GO ? CLI_DONE : rc;
}

/* --- reservations ---------------------------------------------------------------------------- */

static int moved(struct cli *cli, int rc, const char *id, const char *what)
{
    if (rc < 0)
        return refused(cli, rc);
    if (cli->json)
        cli_json_print(json_pack("{s:s,s:s,s:s}", "table", cli->argv[0], "id", id, "result",
                                 pawl_strname(rc)));
    else
        cli_say(cli, "%s %s", what, id);
    return CLI_DONE;
}

int cli_state_reserve(struct cli *cli)
{
    uint64_t ttl = 0, amount, left = 0;
    uint8_t id[16];
    const struct cli_option options[] = {
        { "ttl", CLI_DURATION, &ttl, "D", "it expires after D (0, the default: never)", NULL },
    };
    int rc = cli_args(cli, options, PAWL_COUNT(options), 4, 4);
    if (rc == CLI_GO)
        rc = take_id(cli, cli->argv[2], id);
    if (rc == CLI_GO && !cli_number_parse(cli->argv[3], &amount))
        rc = cli_misused(cli, "AMOUNT: \"%s\" is no number", cli->argv[3]);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    rc = pawl_reserve(cli->lane, cli->argv[0], id, cli->argv[1], strlen(cli->argv[1]), amount, ttl,
                      &left);
    if (rc < 0)
        return refused(cli, rc);
    if (cli->json) {
        json_t *j = key_json(cli, rc);
        cli_json_number(j, "left", left);
        cli_json_print(j);
    } else {
        printf("%" PRIu64 "\n", left);
    }
    return CLI_DONE;
}

int cli_state_post(struct cli *cli)
{
    uint64_t amount = 0;
    uint8_t id[16];
    int rc = cli_args(cli, NULL, 0, 2, 3);
    if (rc == CLI_GO)
        rc = take_id(cli, cli->argv[1], id);
    if (rc == CLI_GO && cli->argc > 2 && (!cli_number_parse(cli->argv[2], &amount) || amount == 0))
        rc = cli_misused(cli, "AMOUNT: \"%s\" is no number above 0", cli->argv[2]);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    return moved(cli, pawl_post(cli->lane, cli->argv[0], id, amount), cli->argv[1], "posted");
}

int cli_state_void(struct cli *cli)
{
    uint8_t id[16];
    int rc = cli_args(cli, NULL, 0, 2, 2);
    if (rc == CLI_GO)
        rc = take_id(cli, cli->argv[1], id);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    return moved(cli, pawl_void(cli->lane, cli->argv[0], id), cli->argv[1], "voided");
}

int cli_state_reservation(struct cli *cli)
{
    static const char *const states[] = { "none", "open", "posted", "voided", "expired" };
    char left[CLI_UNIT_TEXT_BYTES];
    uint8_t id[16];
    int rc = cli_args(cli, NULL, 0, 2, 2);
    if (rc == CLI_GO)
        rc = take_id(cli, cli->argv[1], id);
    if (rc == CLI_GO)
        rc = cli_attach(cli, NULL);
    if (rc != CLI_GO)
        return rc;
    struct pawl_reservation r = { .size = sizeof r };
    rc = pawl_reservation_get(cli->lane, cli->argv[0], id, &r);
    if (rc < 0)
        return refused(cli, rc);
    const char *state = r.state < PAWL_COUNT(states) ? states[r.state] : "unknown";
    bool open = r.state == PAWL_RESERVATION_OPEN;
    if (cli->json) {
        json_t *j =
            json_pack("{s:s,s:s,s:s}", "table", cli->argv[0], "id", cli->argv[1], "state", state);
        if (open)
            cli_json_bytes(j, "key", r.key, r.key_bytes);
        cli_json_number(j, "amount", r.amount);
        cli_json_number(j, "posted", r.posted);
        cli_json_number(j, "left_ns", open && r.left_ns == 0 ? PAWL_UNLIMITED : r.left_ns);
        cli_json_print(j);
        return CLI_DONE;
    }
    printf("%s: amount %" PRIu64 ", posted %" PRIu64, state, r.amount, r.posted);
    if (open && r.left_ns)
        printf(", expires in %s", cli_duration_human(r.left_ns, left));
    putchar('\n');
    return CLI_DONE;
}
