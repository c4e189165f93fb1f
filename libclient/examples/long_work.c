/* SPDX-License-Identifier: MIT */
/* Long work: each message is a number N, and adding up 1 + 2 + ... + N takes a millisecond a step.
 *
 *   - while it works, it renews its lease: nobody else takes the message, and a death is noticed
 *   - every two seconds, and on SIGTERM, it defers the message with its progress: who receives it
 *     next, here or elsewhere, after whatever crash, goes on from there
 *   - the result and the acknowledgement are one transaction: one result a message
 *
 *                                                              long_work QUEUE RESULTS */
#include <inttypes.h>
#include <pawl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t stop;
static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

enum { LEASE_MS = 3000, RENEW_MS = 1000, SLICE_MS = 2000 }; /* renew well before it ends */

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct work {
    struct pawl_token token;
    const char *results;
    uint64_t wanted;
    struct {
        uint64_t step, sum;
    } progress;
};

static int begin(struct work *w, const struct pawl_message *m)
{
    char text[24];
    w->token = m->token;
    (void)snprintf(text, sizeof text, "%.*s", (int)m->bytes, (const char *)m->body);
    memset(&w->progress, 0, sizeof w->progress);
    if (m->progress_bytes == sizeof w->progress)
        memcpy(&w->progress, m->progress, sizeof w->progress);
    return sscanf(text, "%" SCNu64, &w->wanted) == 1;
}

/* OK: done, or to be deferred. E_LEASE_LOST: drop it, another has the message. */
static int work(struct pawl *lane, struct work *w)
{
    uint64_t begun = now_ms(), renewed = begun;
    while (w->progress.step < w->wanted && !stop && now_ms() - begun < SLICE_MS) {
        struct timespec step = { .tv_nsec = 1000000 };
        (void)nanosleep(&step, NULL);
        w->progress.sum += ++w->progress.step;
        if (now_ms() - renewed < RENEW_MS)
            continue;
        int rc = pawl_renew(lane, &w->token, LEASE_MS * PAWL_NS_MS);
        if (rc < 0)
            return rc;
        renewed = now_ms();
    }
    return PAWL_OK;
}

static int finish(struct pawl_txn *txn, void *ctx)
{
    const struct work *w = ctx;
    char text[64];
    int n = snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, w->wanted, w->progress.sum);
    int rc = pawl_txn_ack(txn, &w->token, 0);
    return rc != PAWL_OK ? rc : pawl_txn_send(txn, w->results, text, (size_t)n, NULL, NULL);
}

static int settle(struct pawl *lane, struct work *w)
{
    struct pawl_defer_options options = PAWL_DEFER_OPTIONS_INIT;
    if (w->progress.step == w->wanted)
        return pawl_txn_run(lane, finish, w, 0, NULL);
    options.progress = &w->progress;
    options.progress_bytes = sizeof w->progress;
    return pawl_defer(lane, &w->token, 0, &options);
}

/* 0: the program cannot go on. */
static int handle(struct pawl *lane, struct work *w, const struct pawl_message *m)
{
    int number = begin(w, m);
    int rc = number ? work(lane, w) : pawl_reject(lane, &m->token, "not a number");
    if (rc == PAWL_OK && number)
        rc = settle(lane, w);
    if (rc >= 0)
        return 1;
    fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
    /* Lost, or unknown: either way what we have worked since the last defer is not to be used. If
     * the result was sent, the message is gone; if not, it comes again with the progress that it
     * has. */
    return rc == PAWL_E_LEASE_LOST || rc == PAWL_E_ALREADY_ACKED || rc == PAWL_E_STATE ||
           pawl_advice(rc) == PAWL_ADVICE_RESOLVE;
}

int main(int argc, char **argv)
{
    struct pawl_receive_options receive = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl *lane;
    if (argc != 3) {
        fprintf(stderr, "usage: long_work QUEUE RESULTS\n");
        return 2;
    }
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    receive.lease_ns = LEASE_MS * PAWL_NS_MS;
    receive.wait_ns = PAWL_NS_S; /* then look whether we should stop */
    int rc = pawl_open(NULL, &lane);
    while (rc == PAWL_OK && !stop) {
        struct work w = { .results = argv[2] };
        struct pawl_message m;
        rc = pawl_receive(lane, argv[1], &receive, &m);
        if (rc == PAWL_OK && !handle(lane, &w, &m))
            break;
        if (rc == PAWL_OK_EMPTY || pawl_advice(rc) == PAWL_ADVICE_RESOLVE)
            rc = PAWL_OK; /* nothing yet, or no broker for 10 s: look again */
    }
    if (rc != PAWL_OK)
        fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
    pawl_close(lane);
    return !stop;
}
