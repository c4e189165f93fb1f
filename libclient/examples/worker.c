/* SPDX-License-Identifier: MIT */
/* A worker as it should be: takes messages with a lease, does the work, acknowledges, gives back
 * what failed, survives a restart of its broker, ends cleanly on SIGTERM.    worker QUEUE */
#include <pawl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t stop;
static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* The work: true if it is done. m->token.grant grows with every delivery: outside systems that
 * remember the highest one they have seen can refuse a worker whose lease is over. */
static int work(const struct pawl_message *m)
{
    printf("%llu (attempt %u): %.*s\n", (unsigned long long)m->id, m->acquired, (int)m->bytes,
           (const char *)m->body);
    return m->bytes != 4 || memcmp(m->body, "fail", 4) != 0;
}

static int settle(struct pawl *lane, const struct pawl_message *m, int done)
{
    int rc = done ? pawl_ack(lane, &m->token, 0)
                  : pawl_nack(lane, &m->token, PAWL_DELAY_LADDER, "the work failed");
    switch (rc) {
    case PAWL_OK:
        return 1;
    case PAWL_E_LEASE_LOST: /* we were too slow: another has it, drop ours */
    case PAWL_E_ALREADY_ACKED:
    case PAWL_E_STATE:
        fprintf(stderr, "%llu: %s\n", (unsigned long long)m->id, pawl_last_text(lane));
        return 1;
    default:
        fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
        /* Nobody knows whether it was acknowledged; its lease will tell. Go on where that helps. */
        return pawl_advice(rc) != PAWL_ADVICE_FATAL;
    }
}

int main(int argc, char **argv)
{
    struct pawl_options options = PAWL_OPTIONS_INIT;
    struct pawl_receive_options receive = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl *lane;
    if (argc != 2) {
        fprintf(stderr, "usage: worker QUEUE\n");
        return 2;
    }
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    options.label = "example worker";
    options.prefetch = 4;              /* the next ones lie ready while one is worked on */
    receive.wait_ns = PAWL_NS_S;       /* then look whether we should stop */
    receive.lease_ns = 30 * PAWL_NS_S; /* longer than the work takes; or pawl_renew() */
    int rc = pawl_open(&options, &lane);
    if (rc != PAWL_OK) {
        fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(NULL));
        return 1;
    }
    while (!stop) {
        struct pawl_message m;
        rc = pawl_receive(lane, argv[1], &receive, &m);
        if (rc == PAWL_OK && !settle(lane, &m, work(&m)))
            break;
        if (rc == PAWL_E_BROKER_DOWN) {
            fprintf(stderr, "%s\n", pawl_last_text(lane)); /* for 10 s; try again */
        } else if (rc < 0) {
            fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
            break;
        }
    }
    pawl_close(lane); /* what was prefetched and not taken goes back at once, uncounted */
    return rc < 0;
}
