/* SPDX-License-Identifier: MIT */
/* Start and stop of pawld: who may have a directory and a socket, what is made with which rights,
 * what is refused and how it says so (hazards P1-P4, U12; cases B-P02..B-P04, B-W19, B-S06). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/raw.h"

static void refused(struct harness_broker *b, int code, const char *says)
{
    int rc = harness_broker_try(b);
    if (rc != code || !harness_broker_said(b, says)) {
        harness_broker_show(b);
        harness_fail("wanted exit %d and the words '%s', got exit %d", code, says, rc);
    }
}

static void rights(const char *path, mode_t type, mode_t want)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        harness_fail("%s: %s", path, strerror(errno));
    if ((st.st_mode & S_IFMT) != type || (st.st_mode & 07777) != want)
        harness_fail("%s has mode %o, not %o", path, (unsigned)st.st_mode, (unsigned)want);
}

static const char *path_of(const char *dir, const char *name)
{
    static char path[2][400];
    static unsigned turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

/* P1, sd_notify, clean stop. */
static void fresh_start_makes_private_things(void)
{
    struct harness_broker b;
    harness_step("fresh");
    harness_broker_init(&b, NULL);
    mode_t old = umask(0); /* the broker's modes do not lean on the umask of whoever starts it */
    harness_broker_start(&b);
    umask(old);
    rights(b.dir, S_IFDIR, 0750);
    rights(path_of(b.dir, "pawl.sock"), S_IFSOCK, 0660);
    rights(path_of(b.dir, "log"), S_IFDIR, 0700);
    rights(path_of(b.dir, "log/000001.seg"), S_IFREG, 0600);
    harness_check(harness_broker_said(&b, "pawld: ready on "));
    harness_check(harness_broker_said(&b, b.dir));
    harness_check(b.notified);
    harness_broker_stop(&b);
    harness_check(access(path_of(b.dir, "pawl.sock"), F_OK) != 0);
    harness_broker_start(&b);
    harness_broker_kill(&b);
    /* B-P02: what a killed one left behind is in nobody's way. */
    harness_check(access(path_of(b.dir, "pawl.sock"), F_OK) == 0);
    harness_broker_start(&b);
    harness_broker_stop(&b);
}

static void second_broker_is_told_who_holds_it(void)
{
    struct harness_broker first, dir, sock;
    char pid[24];
    harness_step("second");
    harness_broker_init(&first, NULL);
    harness_broker_start(&first);
    snprintf(pid, sizeof pid, "%d", (int)first.pid);
    harness_broker_init(&dir, first.dir);
    snprintf(dir.socket, sizeof dir.socket, "%s/other.sock", first.dir);
    refused(&dir, 1, pid);
    harness_broker_init(&sock, NULL);
    snprintf(sock.socket, sizeof sock.socket, "%s/pawl.sock", first.dir);
    refused(&sock, 1, sock.socket);
    /* The first one has not noticed. */
    struct pawl *lane = harness_open(&first);
    harness_queue(lane, "q", PAWL_DURABLE, 0);
    (void)harness_send(lane, "q", "still here");
    pawl_close(lane);
    harness_broker_stop(&first);
}

/* Reads to the end and closes. */
static int count_lines(int fd, const char *begin)
{
    int count = 0;
    char line[600];
    FILE *f = fdopen(fd, "r");
    harness_check(f != NULL);
    while (fgets(line, sizeof line, f) != NULL)
        count += strncmp(line, begin, strlen(begin)) == 0;
    fclose(f);
    return count;
}

/* B-P04: of many that start at one instant exactly one serves. */
static void race_has_one_winner(void)
{
    enum { RACERS = 4 };
    char dir[200];
    harness_step("race");
    for (int round = 0; round < 8; round++) {
        pid_t pids[RACERS];
        int gate[2], said[2];
        snprintf(dir, sizeof dir, "%s/d", harness_dir());
        harness_check(pipe(gate) == 0 && pipe(said) == 0);
        for (int i = 0; i < RACERS; i++) {
            fflush(stdout);
            pids[i] = fork();
            if (pids[i] == 0) {
                char byte;
                close(gate[1]);
                dup2(said[1], 2);
                close(said[1]);
                close(said[0]);
                alarm(60);
                if (read(gate[0], &byte, 1) < 0)
                    _exit(125);
                execl(harness_program("pawld"), "pawld", "--dir", dir, (char *)NULL);
                _exit(127);
            }
        }
        close(gate[0]);
        close(gate[1]); /* off they go */
        close(said[1]);
        /* All but one end by themselves, with 1. */
        int lost = 0;
        pid_t winner = 0;
        for (int ended = 0; ended < RACERS - 1; ended++) {
            int status;
            pid_t pid = wait(&status);
            harness_check(pid > 0);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 1)
                harness_fail("a loser of the race ended with status %x", (unsigned)status);
            for (int i = 0; i < RACERS; i++)
                if (pids[i] == pid)
                    pids[i] = 0;
            lost++;
        }
        for (int i = 0; i < RACERS; i++)
            winner = pids[i] != 0 ? pids[i] : winner;
        harness_check(lost == RACERS - 1 && winner != 0);
        struct pawl_options options = PAWL_OPTIONS_INIT;
        struct pawl *lane = NULL;
        options.dir = dir;
        harness_check_rc(pawl_open(&options, &lane), PAWL_OK);
        pawl_close(lane);
        harness_signal(winner, SIGTERM);
        harness_check(harness_wait(winner) == 0);
        int ready = count_lines(said[0], "pawld: ready on ");
        harness_check(ready == 1);
    }
}

/* P2: a path that is not a dead broker's socket is nothing to unlink. */
static void path_that_is_taken_is_left_alone(void)
{
    struct harness_broker b;
    struct stat st;
    harness_step("taken");
    harness_broker_init(&b, NULL);
    harness_check(mkdir(b.dir, 0750) == 0);
    const char *sock = path_of(b.dir, "pawl.sock");
    int fd = open(sock, O_CREAT | O_WRONLY, 0600);
    harness_check(fd >= 0 && write(fd, "precious", 8) == 8);
    close(fd);
    refused(&b, 1, "pawl.sock");
    harness_check(stat(sock, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 8);
    harness_check(unlink(sock) == 0 && symlink("/dev/null", sock) == 0);
    refused(&b, 1, "pawl.sock");
    harness_check(lstat(sock, &st) == 0 && S_ISLNK(st.st_mode));
    harness_check(unlink(sock) == 0 && mkdir(sock, 0700) == 0);
    refused(&b, 1, "pawl.sock");
    harness_check(rmdir(sock) == 0);
    harness_broker_start(&b);
    harness_broker_stop(&b);
}

/* P3, B-P03: 107 bytes work; longer ones are refused with the limit in the text, never cut. */
static void socket_path_has_a_limit_that_is_named(void)
{
    const size_t lengths[] = { 107, 108, 300 };
    for (unsigned i = 0; i < 3; i++) {
        struct harness_broker b;
        char path[512];
        harness_step("path of %zu", lengths[i]);
        harness_broker_init(&b, NULL);
        const char *dir = harness_dir();
        int n = snprintf(path, sizeof path, "%s/", dir);
        while ((size_t)n < lengths[i])
            path[n++] = 's';
        path[n] = '\0';
        harness_broker_arg(&b, "--socket");
        harness_broker_arg(&b, path);
        if (lengths[i] == 107) {
            struct pawl_options options = PAWL_OPTIONS_INIT;
            struct pawl *lane = NULL;
            harness_broker_start(&b);
            options.socket = path;
            harness_check_rc(pawl_open(&options, &lane), PAWL_OK);
            pawl_close(lane);
            harness_broker_stop(&b);
        } else {
            struct pawl_options options = PAWL_OPTIONS_INIT;
            struct pawl *lane = NULL;
            int rc = harness_broker_try(&b);
            harness_check((rc == 1 || rc == 2) && harness_broker_said(&b, "107"));
            options.socket = path;
            harness_check_rc(pawl_open(&options, &lane), PAWL_E_INVALID);
            harness_check(lane == NULL);
        }
    }
}

/* P4, B-S06: things planted under the names that pawld uses are refused, not followed. */
static void planted_names_are_not_followed(void)
{
    const char *names[] = { "log", "lock", "head", "log/000001.seg" };
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct harness_broker b;
        struct stat st;
        harness_step("planted %s", names[i]);
        harness_broker_init(&b, NULL);
        char target[300];
        snprintf(target, sizeof target, "%s/target", harness_dir());
        int fd = open(target, O_CREAT | O_WRONLY, 0600);
        harness_check(fd >= 0 && write(fd, "precious", 8) == 8);
        close(fd);
        harness_check(mkdir(b.dir, 0750) == 0);
        if (strncmp(names[i], "log/", 4) == 0)
            harness_check(mkdir(path_of(b.dir, "log"), 0700) == 0);
        harness_check(symlink(target, path_of(b.dir, names[i])) == 0);
        int rc = harness_broker_try(&b);
        /* It may not need the name; then it runs, without having touched what stood behind. */
        if (rc == 0)
            harness_broker_stop(&b);
        harness_check(rc == 0 || rc == 1 || rc == 3);
        harness_check(stat(target, &st) == 0 && st.st_size == 8);
    }
    struct harness_broker open_dir;
    harness_step("open directory");
    harness_broker_init(&open_dir, NULL);
    harness_check(mkdir(open_dir.dir, 0777) == 0 && chmod(open_dir.dir, 0777) == 0);
    refused(&open_dir, 1, open_dir.dir);
}

/* U12, B-W19: killed under load and started at once, again and again. */
static void quick_restarts(void)
{
    struct harness_broker b;
    uint64_t worst = 0;
    harness_step("restarts");
    harness_broker_init(&b, NULL);
    harness_broker_start(&b);
    struct pawl *lane = harness_open(&b);
    harness_queue(lane, "q", PAWL_DURABLE, 0);
    for (int i = 0; i < 20; i++) {
        pawl_ticket t;
        for (int k = 0; k < 50; k++)
            harness_check_rc(pawl_submit_send(lane, "q", "load", 4, NULL, &t), PAWL_OK);
        harness_check_rc(pawl_flush(lane), PAWL_OK);
        harness_broker_restart(&b);
        worst = b.up_ns > worst ? b.up_ns : worst;
        struct pawl_answer a[50];
        for (int got = 0; got < 50;) {
            int n = pawl_poll(lane, a, 50, 1, 30 * PAWL_NS_S);
            harness_check(n > 0);
            for (int k = 0; k < n; k++)
                harness_check_rc(a[k].result, PAWL_OK);
            got += n;
        }
    }
    harness_check(harness_stat(lane, "q").ready == 20 * 50);
    pawl_close(lane);
    harness_broker_stop(&b);
    printf("start after SIGKILL: %.1f ms at worst of 20\n", worst / 1e6);
}

static void wrong_options_are_refused(void)
{
    const char *wrong[][2] = { { "--no-such-option", NULL },  { "--io", "carrier-pigeon" },
                               { "--memory", "lots" },        { "--memory", "1K" },
                               { "--spin", "soon" },          { "--max-log", "-1" },
                               { "--config", "/nonexistent" } };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct harness_broker b;
        harness_step("option %s %s", wrong[i][0], wrong[i][1] != NULL ? wrong[i][1] : "");
        harness_broker_init(&b, NULL);
        harness_broker_arg(&b, wrong[i][0]);
        if (wrong[i][1] != NULL)
            harness_broker_arg(&b, wrong[i][1]);
        /* It names the option, or the file that it was to read. */
        refused(&b, 2, strcmp(wrong[i][0], "--config") == 0 ? wrong[i][1] : wrong[i][0] + 2);
        harness_check(access(b.dir, F_OK) != 0);
    }
}

int main(void)
{
    harness_begin("start_test", 120);
    fresh_start_makes_private_things();
    second_broker_is_told_who_holds_it();
    race_has_one_winner();
    path_that_is_taken_is_left_alone();
    socket_path_has_a_limit_that_is_named();
    planted_names_are_not_followed();
    quick_restarts();
    wrong_options_are_refused();
    return 0;
}
