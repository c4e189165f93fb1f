/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_SCHEDULE_H
#define PAWL_BENCH_SCHEDULE_H

/* Moments at which messages are to leave, fixed beforehand. Whoever is late hands over all that is
 * due at once, each with the moment it was due at: latency counts from there, so that a time in
 * which nothing could be sent is in the figures and not left out. Tests: unit/bench_report_test. */

#include <stdbool.h>
#include <stdint.h>

struct bench_schedule {
    uint64_t due, interval; /* the next one; ns */
    uint64_t warm, end;     /* what is due from `warm` on counts, before `end` */
};

static inline void bench_schedule_init(struct bench_schedule *s, uint64_t start, uint64_t interval,
                                       double seconds)
{
    s->due = start;
    s->interval = interval;
    s->warm = start + (uint64_t)(seconds * 0.2e9);
    s->end = s->warm + (uint64_t)(seconds * 1e9);
}

static inline bool bench_schedule_over(const struct bench_schedule *s) { return s->due >= s->end; }

/* If one is due by now: true, and the moment it was due at. */
static inline bool bench_schedule_take(struct bench_schedule *s, uint64_t now, uint64_t *due)
{
    if (s->due > now || bench_schedule_over(s))
        return false;
#ifndef PAWL_BUG_BENCH_OMISSION
    *due = s->due;
#else
    *due = now;
#endif
    s->due += s->interval;
    return true;
}

#endif
