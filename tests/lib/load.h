/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_LOAD_H
#define PAWL_TESTS_LOAD_H

/* Load with exact accounting: producer and consumer processes on one queue while the broker and
 * they themselves are killed, stopped and continued. What each did is noted in shared memory, which
 * outlives a SIGKILL: the intent before a call, the outcome after it. So of everything but what was
 * between these two notes at a kill the outcome is known, and of that the broker is asked at the
 * end.
 *
 * Verdict, for every message number (written in its body):
 *   sent (the call said OK)        acknowledged by exactly one call that said OK; or by none, if a
 *                                  consumer was killed between its ack and its note of it, and then
 *                                  the broker says ACKED
 *   outcome of the send not noted  at most one, and at most one message of that number; the same
 * for a call that said E_OUTCOME_UNKNOWN, as one may whose client had just attached when brokers
 * died faster than it could attach again never sent                     never seen and each body is
 * what was sent, the queue is empty at the end, nothing is dead, and no call had an outcome that
 * the fault model does not allow. A breach ends the test (harness_fail). */

#include "lib/harness.h"

struct load_options {
    const char *queue;
    uint32_t mode;                       /* enum pawl_mode */
    uint32_t producers, consumers;       /* 1..16 each */
    uint32_t broker_kills, client_kills; /* SIGKILL and start again */
    uint32_t freezes;                    /* SIGSTOP of a client beyond its lease, SIGCONT */
    uint32_t step;     /* most acknowledgements between two faults; also the load without faults */
    uint32_t body_max; /* bytes; at least 24 */
    uint32_t backlog_max; /* max_messages of the queue: sends meet E_FULL; 0: 2,000 */
    uint64_t lease_ns;
    uint64_t number; /* of this run, for its generator */
};

struct load_report {
    uint64_t sent, acked;
    uint64_t sends_open, acks_open; /* outcome not noted because of a kill */
    uint64_t unknown;               /* calls that said E_OUTCOME_UNKNOWN */
    uint64_t lost_leases, full, redelivered;
    uint64_t broker_kills, client_kills, freezes;
    uint64_t ns;
};

/* The broker must run and does so afterwards. Creates the queue. */
void load_run(struct harness_broker *b, const struct load_options *options,
              struct load_report *report);
void load_print(const char *title, const struct load_report *report);

#endif
