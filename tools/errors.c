/* SPDX-License-Identifier: MIT */
/* Refusals in words: the error's name, what met it, what to do. The library knows the why of a
 * result; what to type next is for the command line to say. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

#define HINT_BYTES 512

static bool runs(const struct cli *cli, const char *command)
{
    return cli->command && strcmp(cli->command->name, command) == 0;
}

static void hint_not_found(const struct cli *cli, char *hint, size_t bytes, enum cli_subject about,
                           const char *name)
{
    /* to make a queue helps who wants to use it, not who wants to see or to drop it */
    if (about == CLI_ABOUT_QUEUE && name && (runs(cli, "send") || runs(cli, "receive")))
        snprintf(hint, bytes, "no queue \"%s\"; create it with: pawl create %s", name, name);
    else if (about == CLI_ABOUT_QUEUE && name)
        snprintf(hint, bytes,
                 "no queue \"%s\", or not yours to see; those that there are: pawl list", name);
    else if (about == CLI_ABOUT_MESSAGE && name)
        snprintf(hint, bytes, "no message %s in that queue, or no right to see it", name);
    else if (about == CLI_ABOUT_TOKEN && name)
        snprintf(hint, bytes, "no delivery %s, or it was another user's", name);
}

/* What to do, where the result and its subject say it. "" if nothing is to be added. */
static void hint_of(const struct cli *cli, char *hint, size_t bytes, int result,
                    enum cli_subject about, const char *name, const char *why)
{
    const char *queue = about == CLI_ABOUT_QUEUE && name ? name : "QUEUE";
    hint[0] = '\0';
    switch (result) {
    case PAWL_E_FULL:
        snprintf(hint, bytes, "wait for room with --wait-room 10s; see pawl stat %s", queue);
        break;
    case PAWL_E_PAUSED:
        snprintf(hint, bytes, "let it go on with: pawl resume %s", queue);
        break;
    case PAWL_E_INFLIGHT_LIMIT:
        snprintf(hint, bytes,
                 "ack what is leased, or raise it with: pawl alter %s --max-inflight N", queue);
        break;
    case PAWL_E_EXISTS:
        snprintf(hint, bytes, "see them with: pawl stat %s; change them with: pawl alter %s", queue,
                 queue);
        break;
    case PAWL_E_PERM:
        snprintf(hint, bytes, "pawl stat %s shows owner, group and perm to those who may query",
                 queue);
        break;
    case PAWL_E_QUEUE_GONE:
        snprintf(hint, bytes, "pawl list shows the queues that there are");
        break;
    case PAWL_E_LEASE_LOST:
        if (strstr(why, "nobody") && runs(cli, "ack")) {
            snprintf(hint, bytes, "pawl ack --if-unclaimed does it if none has had it since");
            break;
        }
        snprintf(hint, bytes, "pawl explain %s tells where the message is now",
                 about == CLI_ABOUT_TOKEN && name ? name : "ID");
        break;
    case PAWL_E_STATE:
        snprintf(hint, bytes, "pawl explain %s tells what became of it",
                 about != CLI_ABOUT_QUEUE && name ? name : "ID");
        break;
    default:
        break;
    }
}

/* Of what may have been done: by this its outcome can be asked for. */
static void say_id(const struct cli *cli)
{
    struct pawl_op_id id;
    char text[PAWL_OP_ID_TEXT_BYTES];
    if (!cli->lane || pawl_last_outcome(cli->lane) != PAWL_OUTCOME_UNKNOWN ||
        pawl_last_id(cli->lane, &id) != PAWL_OK)
        return;
    pawl_op_id_format(&id, text);
    fprintf(stderr, "pawl: it may have been done: pawl resolve %s tells\n", text);
}

int cli_refused_item(const struct cli *cli, int result, enum cli_subject about, const char *name,
                     const char *why)
{
    char hint[HINT_BYTES];
    if (result == PAWL_E_NOT_FOUND) {
        hint[0] = '\0';
        hint_not_found(cli, hint, sizeof hint, about, name);
        /* of a message in a queue that is not there the library says just that */
        if (*hint && (about == CLI_ABOUT_QUEUE || strncmp(why, "no queue", 8) != 0))
            why = hint;
        fprintf(stderr, "pawl: %s: %s\n", pawl_strname(result), *why ? why : pawl_strerror(result));
        return CLI_REFUSED;
    }
    if (!*why)
        why = pawl_strerror(result);
    fprintf(stderr, "pawl: %s: ", pawl_strname(result));
    if (name && about != CLI_ABOUT_NONE && !strstr(why, name))
        fprintf(stderr, about == CLI_ABOUT_QUEUE ? "queue \"%s\": " : "%s: ", name);
    /* the library's text often says already what to do */
    hint[0] = '\0';
    if (!strstr(why, "pawl ") && !strstr(why, "raise it"))
        hint_of(cli, hint, sizeof hint, result, about, name, why);
    fprintf(stderr, "%s%s%s\n", why, *hint ? "; " : "", hint);
    say_id(cli);
    return CLI_REFUSED;
}

int cli_refused(const struct cli *cli, int result, enum cli_subject about, const char *name)
{
    char why[HINT_BYTES];
    snprintf(why, sizeof why, "%s", pawl_last_text(cli->lane));
    return cli_refused_item(cli, result, about, name, why);
}

int cli_failed(const struct cli *cli, const char *format, ...)
{
    va_list args;
    (void)cli;
    fputs("pawl: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return CLI_REFUSED;
}

int cli_misused(const struct cli *cli, const char *format, ...)
{
    const char *name = cli->command ? cli->command->name : "";
    va_list args;
    fprintf(stderr, "pawl%s%s: ", *name ? " " : "", name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nsee: pawl%s%s --help\n", *name ? " " : "", name);
    return CLI_USAGE;
}
