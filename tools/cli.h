/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TOOLS_CLI_H
#define PAWL_TOOLS_CLI_H

/* The program `pawl`: what all its commands share. One command is one function: it declares its
 * options, parses them with cli_args(), attaches with cli_attach() if it needs a broker, and
 * returns an exit code. main.c has the table of commands.
 *
 * Names of the program's own functions begin with cli_, so that they never meet those of the two
 * libraries that are linked in.
 *
 * stdout carries results only, stderr everything else; a command that cannot write its results
 * does not say that it is done. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "pawl.h"

enum cli_exit {
    CLI_DONE = 0,
    CLI_REFUSED = 1, /* the error's name is on stderr */
    CLI_USAGE = 2,
    CLI_NOTHING = 3 /* nothing received in time */
};
#define CLI_GO (-1) /* no exit code yet: go on */

struct cli {
    const struct cli_command *command;
    int argc; /* of the command: its name is argv[0], or the second word of it */
    char **argv;
    const char *dir, *socket; /* as given; NULL: the library's choice */
    uint64_t timeout_ns;
    bool timeout_given;
    bool json;
    bool out_terminal, err_terminal;
    struct pawl *lane; /* after cli_attach() */
};

struct cli_command {
    const char *name; /* one word, or two: "log list" */
    const char *args; /* for the usage line */
    const char *summary;
    const char *more;    /* what a user must know, lines of at most 78; may be NULL */
    const char *example; /* lines without the leading blanks */
    int (*run)(struct cli *cli);
    const char *group; /* heading of the overview that begins here; else NULL */
};

extern const struct cli_command cli_commands[]; /* the last one has no name */

int cli_create(struct cli *cli);
int cli_alter(struct cli *cli);
int cli_drop(struct cli *cli);
int cli_pause(struct cli *cli);
int cli_resume(struct cli *cli);
int cli_purge(struct cli *cli);
int cli_list(struct cli *cli);
int cli_stat(struct cli *cli);
int cli_metrics(struct cli *cli);
int cli_top(struct cli *cli);
int cli_send(struct cli *cli);
int cli_receive(struct cli *cli);
int cli_ack(struct cli *cli);
int cli_nack(struct cli *cli);
int cli_release(struct cli *cli);
int cli_renew(struct cli *cli);
int cli_reject(struct cli *cli);
int cli_defer(struct cli *cli);
int cli_cancel(struct cli *cli);
int cli_query(struct cli *cli);
int cli_peek(struct cli *cli);
int cli_dead(struct cli *cli);
int cli_restore(struct cli *cli);
int cli_explain(struct cli *cli);
int cli_resolve(struct cli *cli);
int cli_log_list(struct cli *cli);
int cli_log_verify(struct cli *cli);
int cli_log_dump(struct cli *cli);
int cli_log_repair(struct cli *cli);
int cli_state_get(struct cli *cli);
int cli_state_put(struct cli *cli);
int cli_state_add(struct cli *cli);
int cli_state_delete(struct cli *cli);
int cli_state_list(struct cli *cli);
int cli_state_reserve(struct cli *cli);
int cli_state_post(struct cli *cli);
int cli_state_void(struct cli *cli);
int cli_state_reservation(struct cli *cli);
int cli_doctor(struct cli *cli);
int cli_help(struct cli *cli);
int cli_version(struct cli *cli);

/* --- attach.c -------------------------------------------------------------------------------- */

/* The directory and the socket in force, by the rules of pawl(1). Valid for the whole run. */
const char *cli_dir(const struct cli *cli);
const char *cli_socket(const struct cli *cli);

/* CLI_GO, or the exit code after a complaint about a variable that is set and names nothing: the
 * default in its place would be another broker than the one that was meant. */
int cli_place_check(const struct cli *cli);
/* The pid in DIR/lock if somebody holds it; 0 nobody, -1 not to be seen. */
pid_t cli_lock_holder(const char *dir);

/* Attaches, as `pawl COMMAND`. options: NULL, or with window, prefetch or a time-out of its own
 * (the user's --timeout wins); the rest of it is filled in. A socket that is not there is refused
 * at once unless the user gave a time; else it waits and says so. CLI_GO, or the exit code. */
int cli_attach(struct cli *cli, struct pawl_options *options);

/* --- errors.c -------------------------------------------------------------------------------- */

enum cli_subject { CLI_ABOUT_QUEUE, CLI_ABOUT_MESSAGE, CLI_ABOUT_TOKEN, CLI_ABOUT_NONE };

/* "pawl: PAWL_E_...: why; what to do" on stderr. name: of the subject, may be NULL. Returns
 * CLI_REFUSED. Call it before the next call of the lane: the why is of the last one. */
int cli_refused(const struct cli *cli, int result, enum cli_subject about, const char *name);
/* The same, with a text known already (of one item of a batch). */
int cli_refused_item(const struct cli *cli, int result, enum cli_subject about, const char *name,
                     const char *why);
/* "pawl: TEXT"; returns CLI_REFUSED. */
int cli_failed(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "pawl COMMAND: TEXT" and where the help is; returns CLI_USAGE. */
int cli_misused(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
