/* SPDX-License-Identifier: MIT */
/* Many at a time: the lines of standard input go into a queue with up to a thousand sends in
 * flight, and out of it again in batches.    batch QUEUE < FILE */
#include <pawl.h>
#include <stdio.h>
#include <string.h>

static int fail(struct pawl *lane, int rc)
{
    fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
    return 1;
}

/* Collects answers; with `all`, every open one. Counts what was refused. */
static int collect(struct pawl *lane, unsigned *open, unsigned *refused, int all)
{
    struct pawl_answer answers[256];
    do {
        int n = pawl_poll(lane, answers, 256, all && *open ? 1 : 0, 10 * PAWL_NS_S);
        if (n < 0)
            return n;
        if (n == 0 && all && *open)
            return PAWL_E_DEADLINE;
        for (int i = 0; i < n; i++)
            *refused += answers[i].result < 0;
        *open -= (unsigned)n;
    } while (all && *open);
    return PAWL_OK;
}

static int send_lines(struct pawl *lane, const char *queue)
{
    char line[4096];
    unsigned open = 0, refused = 0, sent = 0;
    while (fgets(line, sizeof line, stdin)) {
        /* Nothing leaves before the poll: so a row of submits shares one publish. */
        int rc = pawl_submit_send(lane, queue, line, strcspn(line, "\n"), NULL, NULL);
        if (rc != PAWL_OK)
            return fail(lane, rc);
        open++;
        if (++sent % 64 == 0 && (rc = collect(lane, &open, &refused, 0)) != PAWL_OK)
            return fail(lane, rc);
    }
    int rc = collect(lane, &open, &refused, 1);
    if (rc != PAWL_OK)
        return fail(lane, rc);
    printf("%u lines sent, %u refused\n", sent, refused);
    return refused != 0;
}

static int receive_all(struct pawl *lane, const char *queue)
{
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message messages[64];
    struct pawl_token tokens[64];
    uint32_t count;
    unsigned received = 0;
    int rc;
    options.wait_ns = 100 * PAWL_NS_MS;
    while ((rc = pawl_receive_batch(lane, &queue, 1, &options, messages, 64, &count)) == PAWL_OK) {
        for (uint32_t i = 0; i < count; i++)
            tokens[i] = messages[i].token;
        rc = pawl_ack_batch(lane, tokens, count, 0, NULL);
        if (rc != PAWL_OK)
            return fail(lane, rc);
        received += count;
    }
    if (rc != PAWL_OK_EMPTY)
        return fail(lane, rc);
    printf("%u messages received\n", received);
    return 0;
}

int main(int argc, char **argv)
{
    struct pawl *lane;
    if (argc != 2) {
        fprintf(stderr, "usage: batch QUEUE < FILE\n");
        return 2;
    }
    int rc = pawl_open(NULL, &lane);
    if (rc != PAWL_OK)
        return fail(NULL, rc);
    rc = pawl_queue_create(lane, argv[1], NULL);
    int code = rc < 0 ? fail(lane, rc) : send_lines(lane, argv[1]);
    if (code == 0)
        code = receive_all(lane, argv[1]);
    pawl_close(lane);
    return code;
}
