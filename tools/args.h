/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_ARGS_H
#define PAWL_TOOLS_ARGS_H

/* Options of one command as a table: it is what getopt_long is fed from, what the values are
 * checked against and what --help prints, so that the three never differ. Options and arguments
 * may be mixed; "--" ends the options. */

#include "cli.h"

enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char * */
    CLI_DURATION, /* uint64_t, nanoseconds */
    CLI_WAIT,     /* uint64_t, nanoseconds; "inf" is PAWL_UNLIMITED */
    CLI_SIZE,     /* uint64_t, bytes */
    CLI_NUMBER,   /* uint64_t */
    CLI_NUMBER32, /* uint32_t */
    CLI_PERM,     /* uint32_t */
    CLI_LIST      /* struct cli_list: may be given again and again */
};

struct cli_list {
    const char **v;
    size_t n;
};

struct cli_option {
    const char *name;
    enum cli_kind kind;
    void *to;
    const char *value; /* how the help calls it; NULL for a flag */
    const char *help;
    bool *given; /* may be NULL */
};

/* Parses cli->argv; leaves the arguments that are not options in cli->argv[0..argc) and checks
 * their number (max -1: any). The table may be NULL if count is 0. CLI_GO; CLI_DONE after --help;
 * CLI_USAGE after a complaint. */
int cli_args(struct cli *cli, const struct cli_option *options, size_t count, int min, int max);

/* --dir, --socket, --json, --timeout, --help, --version before the command; *at gets the place of
 * the first word that is none. */
int cli_args_global(struct cli *cli, int argc, char **argv, int *at);

void cli_list_add(struct cli_list *list, const char *text);
void cli_list_fini(struct cli_list *list);
/* All are numbers, as message ids are. CLI_GO, or CLI_USAGE after a complaint. */
int cli_ids_check(const struct cli *cli, const struct cli_list *ids);
/* One that has been checked. */
uint64_t cli_id(const char *text);
/* The nearest of the names to what was typed, or NULL when nothing is near. */
const char *cli_nearest(const char *typed, const char *(*name)(size_t i));
void cli_help_of(const struct cli *cli, const struct cli_option *options, size_t count);

#endif
