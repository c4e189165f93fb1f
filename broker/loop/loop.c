/* SPDX-License-Identifier: MIT */
#include "loop/loop.h"

#include <errno.h>
#include <sched.h>

#include "abi/atomic.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/clock.h"
#include "pawld.h"

#define TIMERS_A_TURN 1024u
#define SPIN_WRITE_NS 300000ull /* about four writes of 4 KiB: a longer one is not worth a core */
#define SLEEP_NS_MAX 60000000000ull
#define IO_ERRORS_MAX 100u /* one after the other */

/* Zombies whose effects have all gone out. */
static void free_zombies(struct pawl_loop *loop)
{
    struct pawl_list *list = &loop->lanes.zombies;
    struct pawl_list *next;
    for (struct pawl_list *l = list->next; l != list; l = next) {
        struct pawl_lane *lane = PAWL_CONTAINER(l, struct pawl_lane, place);
        next = l->next;
        if (pawl_engine_lane_idle(loop->engine, lane->handle))
            pawl_lane_free(lane);
    }
}

bool pawl_loop_turn(struct pawl_loop *loop, uint64_t timeout_ns)
{
    int ready = loop->io->ops->wait(loop->io, timeout_ns);
    loop->boot = pawl_clock_boot();
    struct pawl_now now = pawl_engine_now(loop->engine, loop->boot, pawl_clock_wall());
    loop->turns++;
    uint32_t done = ready > 0 ? (uint32_t)ready : 0;
    /* Nobody can wait on an io that cannot wait: better to stop than to spin. */
    loop->io_errors = ready >= 0 || ready == -EINTR ? 0 : loop->io_errors + 1;
    if (ready < 0)
        loop->io_error = ready;
    done += pawl_engine_publish(loop->engine);
    done += pawl_sessions_serve(&loop->sessions, now, loop->boot);
    done += pawl_directs_turn(&loop->directs, loop->boot,
                              pawl_log_durable(pawl_engine_log(loop->engine)));
    /* Before the commands: after a stop of the broker what is over ends first (C7). */
    bool more_timers = pawl_engine_timers(loop->engine, TIMERS_A_TURN);
    bool more_commands = false;
    done += pawl_intake_drain(&loop->intake, now, &more_commands);
    bool more_settle = pawl_engine_settle(loop->engine);
    /* Not what was written in the turn that found out (G8). */
    if (!pawl_engine_failed(loop->engine))
        done += pawl_outbox_publish(&loop->outbox);
    if (!pawl_list_empty(&loop->lanes.zombies))
        free_zombies(loop);
    loop->more = more_timers || more_commands || more_settle;
    return done > 0 || loop->more;
}

static uint64_t sleep_until(const struct pawl_loop *loop)
{
    uint64_t next = pawl_min_u64(pawl_engine_next(loop->engine), pawl_directs_next(&loop->directs));
    return pawl_min_u64(next, pawl_sessions_next(&loop->sessions));
}

/* While a write is in flight its end is what we wait for, and that may need this very core: a yield
 * helps (trap 1), unless the machine is busy. So there is an end to it, and then a real sleep. */
static bool may_spin(const struct pawl_loop *loop)
{
    uint64_t quiet = loop->boot - loop->busy_at;
    if (loop->spin_ns == 0)
        return false;
    if (pawl_log_in_flight(pawl_engine_log(loop->engine)) > 0)
        return quiet < SPIN_WRITE_NS;
    return quiet < loop->spin_ns;
}

/* How long the next turn may wait in the io; gives the processor away where that is better. */
static uint64_t pause_after(struct pawl_loop *loop, bool busy)
{
    if (busy) {
        loop->busy_at = loop->boot;
        loop->yielded = false;
        return 0;
    }
    if (may_spin(loop) || !loop->yielded) {
        loop->yielded = true;
        (void)sched_yield();
        return 0;
    }
    if (!pawl_intake_rest(&loop->intake))
        return 0;
    loop->yielded = false;
    uint64_t until = sleep_until(loop);
    uint64_t now = pawl_clock_boot();
    return until <= now ? 0 : pawl_min_u64(until - now, SLEEP_NS_MAX);
}

int pawl_loop_run(struct pawl_loop *loop, const uint32_t *stop)
{
    uint64_t timeout = 0;
    while (pawl_load_acq_u32(stop) == 0) {
        bool busy = pawl_loop_turn(loop, timeout);
        if (pawl_engine_failed(loop->engine) || loop->io_errors >= IO_ERRORS_MAX)
            return PAWLD_LOG_FAILED;
        timeout = pause_after(loop, busy);
    }
    return PAWLD_OK;
}
