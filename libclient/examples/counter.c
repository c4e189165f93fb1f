/* SPDX-License-Identifier: MIT */
/* Exactly once within pawl: each message is a word, and a number in a table counts it. The
 * acknowledgement and the count are one transaction, so however often this program or its broker
 * is killed, and however many run at once, the numbers are exact.    counter QUEUE TABLE */
#include <pawl.h>
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t stop;
static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

struct job {
    const char *table;
    struct pawl_message m;
};

/* Fills the transaction; may be called again if another changed what it read (here: nothing). */
static int count(struct pawl_txn *txn, void *ctx)
{
    const struct job *job = ctx;
    int rc = pawl_txn_ack(txn, &job->m.token, 0);
    if (rc == PAWL_OK)
        rc = pawl_txn_add(txn, job->table, job->m.body, job->m.bytes, 1, 0, INT64_MAX);
    return rc;
}

/* 0: the program cannot go on. */
static int handle(struct pawl *lane, struct job *job)
{
    int word = job->m.bytes > 0 && job->m.bytes <= PAWL_KEY_BYTES_MAX;
    int rc = word ? pawl_txn_run(lane, count, job, 0, NULL)
                  : pawl_reject(lane, &job->m.token, "not a word: 1 to 255 bytes");
    if (rc >= 0)
        return 1;
    fprintf(stderr, "%llu: %s: %s\n", (unsigned long long)job->m.id, pawl_strname(rc),
            pawl_last_text(lane));
    if (rc == PAWL_E_LEASE_LOST || rc == PAWL_E_ALREADY_ACKED)
        return 1; /* another has it, and counts it */
    /* Unknown: there was no broker for too long. Nothing to repair and nothing to repeat: if it
     * happened, the message is gone and counted; if not, it comes again when its lease ends. */
    return pawl_advice(rc) == PAWL_ADVICE_RESOLVE;
}

int main(int argc, char **argv)
{
    struct pawl_receive_options receive = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl *lane;
    if (argc != 3) {
        fprintf(stderr, "usage: counter QUEUE TABLE\n");
        return 2;
    }
    struct job job = { .table = argv[2] };
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    receive.wait_ns = PAWL_NS_S; /* then look whether we should stop */
    int rc = pawl_open(NULL, &lane);
    while (rc == PAWL_OK && !stop) {
        rc = pawl_receive(lane, argv[1], &receive, &job.m);
        if (rc == PAWL_OK && !handle(lane, &job))
            break;
        if (rc == PAWL_OK_EMPTY || pawl_advice(rc) == PAWL_ADVICE_RESOLVE)
            rc = PAWL_OK; /* nothing yet, or no broker for 10 s: look again */
    }
    if (rc != PAWL_OK)
        fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
    pawl_close(lane);
    return !stop;
}
