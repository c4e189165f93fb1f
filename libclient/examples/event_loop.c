/* SPDX-License-Identifier: MIT */
/* pawl in a program with an event loop of its own: one epoll waits for the lane and for standard
 * input. Each line typed is sent; each message that comes is shown and acknowledged. No call in the
 * loop waits.    event_loop QUEUE */
#include <pawl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static const char *queue;

static int say(struct pawl *lane, int rc)
{
    fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
    return rc;
}

/* Everything there is, until OK_EMPTY: that arms the descriptor for the next time. */
static int take_messages(struct pawl *lane)
{
    struct pawl_message m[16];
    uint32_t count;
    int rc;
    while ((rc = pawl_receive_batch(lane, &queue, 1, NULL, m, 16, &count)) == PAWL_OK)
        for (uint32_t i = 0; i < count; i++) {
            printf("%.*s\n", (int)m[i].bytes, (const char *)m[i].body);
            int ack = pawl_submit_ack(lane, &m[i].token, 0, NULL);
            if (ack != PAWL_OK)
                return say(lane, ack);
        }
    return rc == PAWL_OK_EMPTY ? PAWL_OK : say(lane, rc);
}

/* The same for answers. */
static int take_answers(struct pawl *lane)
{
    struct pawl_answer answers[64];
    int n;
    while ((n = pawl_poll(lane, answers, 64, 0, 0)) > 0)
        for (int i = 0; i < n; i++)
            if (answers[i].result < 0)
                fprintf(stderr, "refused: %s\n", pawl_strname(answers[i].result));
    return n < 0 ? say(lane, n) : PAWL_OK;
}

/* One line of standard input. 0 at its end. */
static int take_line(struct pawl *lane)
{
    char line[1024];
    ssize_t n = read(STDIN_FILENO, line, sizeof line);
    if (n <= 0)
        return 0;
    if (line[n - 1] == '\n')
        n--;
    int rc = pawl_submit_send(lane, queue, line, (size_t)n, NULL, NULL);
    return rc == PAWL_OK ? 1 : say(lane, rc);
}

int main(int argc, char **argv)
{
    struct pawl_options options = PAWL_OPTIONS_INIT;
    struct pawl *lane;
    if (argc != 2) {
        fprintf(stderr, "usage: event_loop QUEUE\n");
        return 2;
    }
    queue = argv[1];
    options.prefetch = 32; /* what may lie ready or be under work at once */
    int rc = pawl_open(&options, &lane);
    if (rc != PAWL_OK)
        return say(NULL, rc) != 0;
    rc = pawl_queue_create(lane, queue, NULL);
    if (rc < 0) {
        (void)say(lane, rc);
        pawl_close(lane);
        return 1;
    }
    int epoll = epoll_create1(EPOLL_CLOEXEC), fd = pawl_fd(lane), go = 1;
    struct epoll_event on_lane = { .events = EPOLLIN, .data = { .fd = fd } };
    struct epoll_event on_input = { .events = EPOLLIN, .data = { .fd = STDIN_FILENO } };
    if (epoll < 0 || fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &on_lane) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &on_input) != 0)
        go = 0;
    while (go > 0) {
        struct epoll_event e;
        if (epoll_wait(epoll, &e, 1, -1) == 1 && e.data.fd == STDIN_FILENO)
            go = take_line(lane);
        /* Whatever woke us: both, each to its end. It also sends what was submitted. */
        if (take_messages(lane) != PAWL_OK || take_answers(lane) != PAWL_OK)
            go = -1;
    }
    pawl_close(lane);
    (void)close(epoll);
    return go < 0;
}
