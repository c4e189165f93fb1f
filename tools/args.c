/* SPDX-License-Identifier: MIT */
#include "args.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "units.h"

#define OPTIONS_MAX 40u
#define NAME_BYTES_MAX 64u
#define HELP_WIDTH 26

static const char *global_dir, *global_socket;
static uint64_t global_timeout;
static bool global_json, global_timeout_given;

static const struct cli_option globals[] = {
    { "dir", CLI_TEXT, &global_dir, "DIR", "the broker's directory", NULL },
    { "socket", CLI_TEXT, &global_socket, "PATH", "its socket, if not DIR/pawl.sock", NULL },
    { "json", CLI_FLAG, &global_json, NULL, "JSON, one object a line", NULL },
    { "timeout", CLI_DURATION, &global_timeout, "D", "how long to wait for the broker (10s)",
      &global_timeout_given },
};

void cli_list_add(struct cli_list *list, const char *text)
{
    const char **v = realloc(list->v, (list->n + 1) * sizeof *v);
    if (!v) {
        fputs("pawl: out of memory\n", stderr);
        exit(CLI_REFUSED);
    }
    list->v = v;
    list->v[list->n++] = text;
}

void cli_list_fini(struct cli_list *list)
{
    free(list->v);
    list->v = NULL;
    list->n = 0;
}

int cli_ids_check(const struct cli *cli, const struct cli_list *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        uint64_t id;
        if (!cli_number_parse(ids->v[i], &id))
            return cli_misused(cli, "\"%s\" is no message id", ids->v[i]);
    }
    return CLI_GO;
}

uint64_t cli_id(const char *text)
{
    uint64_t id = 0;
    return cli_number_parse(text, &id) ? id : 0;
}

/* --- nearest --------------------------------------------------------------------------------- */

/* Insertions, deletions, changes and swaps of neighbours that lead from a to b. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][NAME_BYTES_MAX + 1];
    size_t na = strlen(a), nb = strlen(b);
    if (na > NAME_BYTES_MAX || nb > NAME_BYTES_MAX)
        return UINT32_MAX;
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[na % 3][nb];
}

const char *cli_nearest(const char *typed, const char *(*name)(size_t i))
{
    const char *best = NULL;
    unsigned best_distance = UINT32_MAX;
    for (size_t i = 0; name(i); i++) {
        const char *n = name(i);
        unsigned d = distance(typed, n);
        /* the beginning of a name is meant to be that name */
        if (strlen(typed) >= 2 && strncmp(typed, n, strlen(typed)) == 0)
            d = 1;
        if (d < best_distance) {
            best = n;
            best_distance = d;
        }
    }
    return best_distance <= 1 + strlen(typed) / 3 ? best : NULL;
}

/* --- help ------------------------------------------------------------------------------------ */

static void print_option(const struct cli_option *o)
{
    char left[NAME_BYTES_MAX];
    snprintf(left, sizeof left, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    printf("  %-*s", HELP_WIDTH, left);
    if (strlen(left) >= HELP_WIDTH)
        printf("\n  %-*s", HELP_WIDTH, "");
    for (const char *line = o->help;;) {
        const char *end = strchrnul(line, '\n');
        printf("%.*s\n", (int)(end - line), line);
        if (*end == '\0')
            break;
        printf("  %-*s", HELP_WIDTH, "");
        line = end + 1;
    }
}

void cli_help_of(const struct cli *cli, const struct cli_option *options, size_t count)
{
    const struct cli_command *c = cli->command;
    printf("Usage: pawl %s%s%s\n\n%c%s\n", c->name, *c->args ? " " : "", c->args,
           toupper((unsigned char)c->summary[0]), c->summary + 1);
    if (c->more)
        printf("\n%s\n", c->more);
    if (count)
        puts("\nOptions:");
    for (size_t i = 0; i < count; i++)
        print_option(&options[i]);
    puts("\nFor every command:");
    for (size_t i = 0; i < PAWL_COUNT(globals); i++)
        print_option(&globals[i]);
    puts("\nExample:");
    for (const char *line = c->example; *line;) {
        const char *end = strchrnul(line, '\n');
        printf("  %.*s\n", (int)(end - line), line);
        line = *end ? end + 1 : end;
    }
}

/* --- parse ----------------------------------------------------------------------------------- */

static int take_number32(const struct cli *cli, const struct cli_option *o, const char *text)
{
    uint64_t n;
    if (!cli_number_parse(text, &n))
        return cli_misused(cli, "--%s: \"%s\" is no number", o->name, text);
    if (n > UINT32_MAX)
        return cli_misused(cli, "--%s: %s is too large", o->name, text);
    *(uint32_t *)o->to = (uint32_t)n;
    return CLI_GO;
}

static int take(const struct cli *cli, const struct cli_option *o, const char *text)
{
    if (o->given)
        *o->given = true;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->to = true;
        break;
    case CLI_TEXT:
        *(const char **)o->to = text;
        break;
    case CLI_WAIT:
        if (strcmp(text, "inf") == 0) {
            *(uint64_t *)o->to = PAWL_UNLIMITED;
            break;
        }
        /* fall through */
    case CLI_DURATION:
        if (!cli_duration_parse(text, o->to))
            return cli_misused(cli,
                               "--%s: \"%s\" is no duration; such are 250ms, 10s, 5m, 2h, 7d%s",
                               o->name, text, o->kind == CLI_WAIT ? ", inf" : "");
        break;
    case CLI_SIZE:
        if (!cli_size_parse(text, o->to))
            return cli_misused(cli, "--%s: \"%s\" is no size; such are 4096, 64k, 8M, 1G", o->name,
                               text);
        break;
    case CLI_NUMBER:
        if (!cli_number_parse(text, o->to))
            return cli_misused(cli, "--%s: \"%s\" is no number", o->name, text);
        break;
    case CLI_NUMBER32:
        return take_number32(cli, o, text);
    case CLI_PERM:
        if (!cli_perm_parse(text, o->to))
            return cli_misused(cli, "--%s: \"%s\" is not 0 to 0777 in octal", o->name, text);
        break;
    case CLI_LIST:
        cli_list_add(o->to, text);
        break;
    }
    return CLI_GO;
}

static const struct cli_option *known[OPTIONS_MAX];
static size_t known_count;

static const char *known_name(size_t i) { return i < known_count ? known[i]->name : NULL; }

static int complain(const struct cli *cli, char **argv, int code)
{
    const char *word = argv[optind - 1];
    char name[NAME_BYTES_MAX];
    if (code == ':')
        return cli_misused(cli, "%s needs a value", word);
    if (optopt && strncmp(word, "--", 2) != 0)
        return cli_misused(cli, "unknown option -%c (a text that begins with - goes behind --)",
                           optopt);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    /* getopt says the same of a flag with a value and of a beginning that fits several options */
    size_t fits = 0;
    for (size_t i = 0; i < known_count; i++) {
        if (strcmp(known[i]->name, name) == 0)
            return cli_misused(cli, "--%s takes no value", name);
        fits += strncmp(known[i]->name, name, strlen(name)) == 0;
    }
    if (fits > 1)
        return cli_misused(cli, "--%s may be several options: write it out", name);
    const char *near = cli_nearest(name, known_name);
    if (near)
        return cli_misused(cli, "unknown option --%s; did you mean --%s?", name, near);
    return cli_misused(cli, "unknown option --%s", name);
}

enum { CODE_HELP = 'h', CODE_VERSION = 'V', CODE_FIRST = 1000 };

/* Runs getopt over argv with the options given and the global ones. */
static int parse(struct cli *cli, const struct cli_option *options, size_t count, int argc,
                 char **argv, const char *letters)
{
    struct option rows[OPTIONS_MAX + 3] = { 0 };
    known_count = 0;
    /* What an earlier parse found stands in *cli. */
    global_dir = global_socket = NULL;
    global_json = global_timeout_given = false;
    for (size_t i = 0; i < count; i++)
        known[known_count++] = &options[i];
    for (size_t i = 0; i < PAWL_COUNT(globals); i++)
        known[known_count++] = &globals[i];
    for (size_t i = 0; i < known_count; i++)
        rows[i] = (struct option){ known[i]->name,
                                   known[i]->kind == CLI_FLAG ? no_argument : required_argument,
                                   NULL, CODE_FIRST + (int)i };
    rows[known_count] = (struct option){ "help", no_argument, NULL, CODE_HELP };
    rows[known_count + 1] = (struct option){ "version", no_argument, NULL, CODE_VERSION };
    opterr = 0;
    optind = 0;
    bool version = false; /* answered when all is read: --json may stand behind it */
    for (int code; (code = getopt_long(argc, argv, letters, rows, NULL)) != -1;) {
        int rc = CLI_GO;
        if (code == CODE_HELP)
            return code;
        version |= code == CODE_VERSION;
        if (code == CODE_VERSION)
            continue;
        if (code == '?' || code == ':')
            return complain(cli, argv, code);
        rc = take(cli, known[code - CODE_FIRST], optarg);
        if (rc != CLI_GO)
            return rc;
    }
    if (global_dir && !*global_dir)
        return cli_misused(cli, "--dir is empty: name the broker's directory, or leave it out");
    if (global_socket && !*global_socket)
        return cli_misused(cli, "--socket is empty: name the broker's socket, or leave it out");
    if (global_dir)
        cli->dir = global_dir;
    if (global_socket)
        cli->socket = global_socket;
    cli->json |= global_json;
    cli->timeout_given |= global_timeout_given;
    if (global_timeout_given)
        cli->timeout_ns = global_timeout;
    return version ? CODE_VERSION : CLI_GO;
}

int cli_args(struct cli *cli, const struct cli_option *options, size_t count, int min, int max)
{
    int rc = parse(cli, options, count, cli->argc, cli->argv, ":h");
    if (rc == CODE_HELP) {
        cli_help_of(cli, options, count);
        return CLI_DONE;
    }
    if (rc == CODE_VERSION) {
        cli->argc = 0; /* it is asked for already */
        return cli_version(cli);
    }
    if (rc != CLI_GO)
        return rc;
    cli->argc -= optind;
    cli->argv += optind;
    if (cli->argc < min)
        return cli_misused(cli, "something is missing; usage: pawl %s %s", cli->command->name,
                           cli->command->args);
    if (max >= 0 && cli->argc > max)
        return cli_misused(cli, "\"%s\" is too much; usage: pawl %s %s", cli->argv[max],
                           cli->command->name, cli->command->args);
    return CLI_GO;
}

int cli_args_global(struct cli *cli, int argc, char **argv, int *at)
{
    int rc = parse(cli, NULL, 0, argc, argv, "+:hV");
    *at = optind;
    if (rc == CODE_HELP || rc == CODE_VERSION) {
        cli->argc = 0;
        return rc == CODE_HELP ? cli_help(cli) : cli_version(cli);
    }
    return rc;
}
