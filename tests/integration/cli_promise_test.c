/* SPDX-License-Identifier: MIT */
/* What the two stream commands promise, each with the seeded bug that breaks it: nothing is
 * acknowledged that was not written, and a line that was refused for want of room is not done with.
 * The rest of the command line is tested by the shell tests beside this one. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/harness.h"

enum { LINES = 500, ROOM = 20 };

static struct harness_broker broker;

struct command {
    const char *args[12]; /* behind `pawl --dir DIR` */
    const char *in, *out; /* files */
};

static int redirect(int to, const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    return fd >= 0 && dup2(fd, to) >= 0 ? 0 : -1;
}

/* In a worker: becomes the program. */
static int become(void *arg)
{
    const struct command *c = arg;
    const char *argv[16] = { "pawl", "--dir", broker.dir };
    size_t n = 3;
    for (size_t i = 0; c->args[i]; i++)
        argv[n++] = c->args[i];
    argv[n] = NULL;
    if (redirect(STDIN_FILENO, c->in ? c->in : "/dev/null", O_RDONLY) != 0 ||
        redirect(STDOUT_FILENO, c->out ? c->out : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC) != 0)
        return 126;
    execv(harness_program("pawl"), (char *const *)(uintptr_t)argv);
    return 127;
}

static void an_ack_follows_the_write(struct pawl *lane)
{
    struct command receive = { .args = { "receive", "out", "--ack", "--count", "0", NULL },
                               .out = "/dev/full" };
    harness_step("an ack follows the write");
    harness_queue(lane, "out", PAWL_DURABLE, 0);
    for (int i = 0; i < 3; i++)
        (void)harness_send(lane, "out", "body");
    int code = harness_wait(harness_fork(become, &receive));
    if (code != 1)
        harness_fail("receive --ack into a full disk gave %d", code);
    /* What was given back may have come to the ending program once more: its end gives it back. */
    struct pawl_queue_stat s = harness_stat(lane, "out");
    for (int i = 0; i < 1000 && s.leased != 0; i++) {
        harness_pause();
        s = harness_stat(lane, "out");
    }
    if (s.ready != 3 || s.acked != 0)
        harness_fail("%llu ready and %llu acked of 3 that were not written",
                     (unsigned long long)s.ready, (unsigned long long)s.acked);
}

/* Its lines have a number each; the consumer here ticks them off. */
static const char *lines_file(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/lines", broker.dir);
    FILE *f = fopen(path, "w");
    harness_check(f != NULL);
    for (int i = 0; i < LINES; i++)
        fprintf(f, "%d\n", i);
    harness_check(fclose(f) == 0);
    return path;
}

static void a_refused_line_is_sent_again(struct pawl *lane)
{
    struct command send = { .args = { "send", "narrow", "--lines", NULL }, .in = lines_file() };
    struct pawl_queue_options options = PAWL_QUEUE_OPTIONS_INIT;
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    bool seen[LINES] = { false };
    harness_step("a refused line is sent again");
    options.max_messages = ROOM;
    wait.wait_ns = 5 * PAWL_NS_S;
    harness_check_rc(pawl_queue_create(lane, "narrow", &options), PAWL_OK);
    pid_t sender = harness_fork(become, &send);
    /* nobody receives before the queue has been full, so there are refusals */
    harness_until(harness_stat(lane, "narrow").ready == ROOM);
    for (int i = 0; i < LINES; i++) {
        struct pawl_message m;
        char text[16] = "";
        int rc = pawl_receive(lane, "narrow", &wait, &m);
        if (rc != PAWL_OK)
            harness_fail("after %d of %d lines: %s", i, LINES, pawl_strname(rc));
        harness_check(m.bytes < sizeof text);
        memcpy(text, m.body, m.bytes);
        int n = atoi(text);
        harness_check(n >= 0 && n < LINES && !seen[n]);
        seen[n] = true;
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    int code = harness_wait(sender);
    if (code != 0)
        harness_fail("send --lines gave %d", code);
    harness_check(harness_stat(lane, "narrow").ready == 0);
}

int main(void)
{
    harness_begin("cli_promise", 60);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    struct pawl *lane = harness_open(&broker);
    an_ack_follows_the_write(lane);
    a_refused_line_is_sent_again(lane);
    pawl_close(lane);
    harness_broker_stop(&broker);
    return 0;
}
