/* SPDX-License-Identifier: MIT */
/* pawl: the command line of the broker. Finds the command, runs it, and sees to it that what it
 * printed has arrived. */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "output.h"

#define TIMEOUT_DEFAULT_NS (10 * PAWL_NS_S)

static const char *command_name(size_t i) { return cli_commands[i].name; }

static const struct cli_command *find(const char *name)
{
    for (const struct cli_command *c = cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

/* What others call our commands; the distance of letters would lead to another one, or to none. */
static const char *synonym_of(const char *word)
{
    static const struct {
        const char *name, *words; /* each between blanks */
    } synonyms[] = {
        { "create", " new make mk add declare " },
        { "alter", " set modify change update config configure " },
        { "drop", " delete del remove rm destroy " },
        { "pause", " stop suspend hold disable " },
        { "resume", " start unpause continue enable " },
        { "purge", " empty clear flush truncate wipe " },
        { "send", " put push publish pub enqueue produce write " },
        { "receive", " get take pop pull fetch consume sub subscribe dequeue reserve read recv " },
        { "ack", " acknowledge done complete finish commit settle " },
        { "nack", " fail failed retry " },
        { "release", " return requeue unlock giveback " },
        { "renew", " extend touch keepalive heartbeat " },
        { "reject", " bury kill " },
        { "defer", " snooze delay postpone later " },
        { "cancel", " unsend abort undo revoke " },
        { "list", " ls queues dir " },
        { "stat", " show info status describe depth count " },
        { "query", " find search messages inspect " },
        { "peek", " view browse cat " },
        { "dead", " dlq deadletter dead-letter failures " },
        { "restore", " redrive revive replay kick " },
        { "explain", " why trace history " },
        { "top", " monitor watch " },
        { "metrics", " stats counters " },
        { "doctor", " check health diagnose " },
        { "log verify", " fsck verify scrub " },
        { "log repair", " repair recover " },
        { "log dump", " dump " },
    };
    char wanted[64];
    int n = snprintf(wanted, sizeof wanted, " %s ", word);
    if (n < 3 || (size_t)n >= sizeof wanted || strchr(word, ' '))
        return NULL;
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
        if (strstr(synonyms[i].words, wanted))
            return synonyms[i].name;
    return NULL;
}

/* One word, or the two words of a family ("log list"). *words: how many it took. NULL after a
 * complaint that is the exit code in *rc. */
static const struct cli_command *choose(struct cli *cli, int argc, char **argv, int *words, int *rc)
{
    char two[64];
    const struct cli_command *c = find(argv[0]);
    *words = 1;
    if (c)
        return c;
    size_t family = strlen(argv[0]);
    const char *members[16];
    size_t count = 0;
    for (c = cli_commands; c->name; c++)
        if (strncmp(c->name, argv[0], family) == 0 && c->name[family] == ' ' && count < 16)
            members[count++] = c->name + family + 1;
    *rc = CLI_USAGE;
    if (count > 0 && argc > 1 && argv[1][0] != '-') {
        snprintf(two, sizeof two, "%s %s", argv[0], argv[1]);
        c = find(two);
        *words = 2;
        if (c)
            return c;
        fprintf(stderr, "pawl %s: no command \"%s\"; there are:", argv[0], argv[1]);
    } else if (count > 0 && argc > 1 && strcmp(argv[1], "--help") == 0) {
        *rc = CLI_DONE;
    } else if (count > 0) {
        fprintf(stderr, "pawl %s: one of these is missing:", argv[0]);
    }
    if (count > 0 && *rc == CLI_DONE) {
        for (size_t i = 0; i < count; i++) {
            snprintf(two, sizeof two, "%s %s", argv[0], members[i]);
            printf("  pawl %-17s %s\n", two, find(two)->summary);
        }
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "%s %s", i ? "," : "", members[i]);
    if (count > 0) {
        fputc('\n', stderr);
        return NULL;
    }
    const char *near = synonym_of(argv[0]);
    if (!near)
        near = cli_nearest(argv[0], command_name);
    fprintf(stderr, "pawl: no command \"%s\"", argv[0]);
    if (near)
        fprintf(stderr, "; did you mean: pawl %s", near);
    fputs("\nsee: pawl help\n", stderr);
    (void)cli;
    return NULL;
}

int cli_version(struct cli *cli)
{
    if (cli->argc > 0 && cli->command) {
        int rc = cli_args(cli, NULL, 0, 0, 0);
        if (rc != CLI_GO)
            return rc;
    }
    if (cli->json)
        cli_json_print(json_pack("{s:s}", "version", PAWL_VERSION));
    else
        puts("pawl " PAWL_VERSION);
    return CLI_DONE;
}

static int help_of(struct cli *cli, int argc, char **argv)
{
    static char help[] = "--help";
    static char name[] = "pawl";
    char *args[] = { name, help, NULL };
    int words, rc;
    const struct cli_command *c = choose(cli, argc, argv, &words, &rc);
    if (!c)
        return rc;
    cli->command = c;
    cli->argc = 2;
    cli->argv = args;
    return c->run(cli);
}

int cli_help(struct cli *cli)
{
    bool names = false;
    const struct cli_option options[] = {
        { "names", CLI_FLAG, &names, NULL, "the names of the commands alone", NULL },
    };
    if (cli->argc > 0 && cli->command) {
        int rc = cli_args(cli, options, 1, 0, 2);
        if (rc != CLI_GO)
            return rc;
        if (cli->argc > 0)
            return help_of(cli, cli->argc, cli->argv);
    }
    if (names) {
        for (const struct cli_command *c = cli_commands; c->name; c++)
            puts(c->name);
        return CLI_DONE;
    }
    puts("pawl: a message broker for the processes of one host\n\n"
         "Usage: pawl [--dir DIR] [--socket PATH] [--json] [--timeout D] COMMAND ...");
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        if (c->group)
            printf("\n%s\n", c->group);
        printf("  %-17s %s\n", c->name, c->summary);
    }
    puts("\npawl COMMAND --help has the options and an example of each.\n\n"
         "Durations: 250ms 10s 5m 2h 7d.  Sizes: 64k 8M 1G.  Times: 2027-01-31T08:00:00Z or +5m.\n"
         "The broker: --dir, or $PAWL_DIR, else /var/lib/pawl (root), $XDG_STATE_HOME/pawl or\n"
         "~/.local/state/pawl; start it with: pawld --dir DIR.\n"
         "Exit codes: 0 done, 1 refused (its name is on stderr), 2 usage, 3 nothing received.");
    return CLI_DONE;
}

/* A command is not done before its output is where it should go. */
static int finish(int rc)
{
    if (cli_flush())
        return rc;
    if (errno != EPIPE) /* who closes the pipe has seen enough */
        fprintf(stderr, "pawl: standard output: %s\n", strerror(errno));
    return rc == CLI_DONE ? CLI_REFUSED : rc;
}

int main(int argc, char **argv)
{
    struct cli cli = { .timeout_ns = TIMEOUT_DEFAULT_NS,
                       .out_terminal = isatty(STDOUT_FILENO) == 1,
                       .err_terminal = isatty(STDERR_FILENO) == 1 };
    int at, words, rc;
    /* a closed pipe is an error of a write, told to the command that writes */
    signal(SIGPIPE, SIG_IGN);
    rc = cli_args_global(&cli, argc, argv, &at);
    if (rc != CLI_GO)
        return finish(rc);
    if (at >= argc) {
        fputs("pawl: which command? the most common: create, send, receive, list, doctor\n"
              "see: pawl help\n",
              stderr);
        return CLI_USAGE;
    }
    cli.command = choose(&cli, argc - at, argv + at, &words, &rc);
    if (!cli.command)
        return finish(rc);
    cli.argc = argc - at - (words - 1);
    cli.argv = argv + at + (words - 1);
    rc = cli.command->run(&cli);
    pawl_close(cli.lane);
    return finish(rc);
}
