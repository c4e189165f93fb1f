/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_model.h"

/* The broker's life. A seed:
 *
 *   - safety: turns as the loop makes them, with faults; the broker is killed between any two of
 *     its calls, loses power, stops, fails, and is opened again on what the disk kept
 *   - liveness: no more faults; everything that was sent must be acknowledged or end otherwise, no
 *     timer may be late, nothing may be left in queues, rooms or windows
 *   - at the end one more stop and start: still nothing there
 *
 * Checks of the engine alone, without the model: epochs grow, pawl time neither falls nor runs
 * ahead, recovering twice gives the same state, a failed log publishes nothing. */

#define LIVENESS_TURNS 30000u
#define LIVENESS_WAITS 300000u
#define OPEN_TRIES 6u

static void open_broker(struct sim *w);

/* --- what the engine asks for ---------------------------------------------------------------- */

static bool port_reserve(void *ctx, uint32_t lane, uint32_t bytes)
{
    return sim_lane_reserve(ctx, lane, bytes);
}

static void port_write(void *ctx, const struct pawl_effect *effect)
{
    struct sim *w = ctx;
    SIM_CHECK(w, !w->closing, "something is published by a broker that has died");
    SIM_CHECK(w, !pawl_engine_failed(w->engine), "G8: something is published after a failure");
    sim_lane_write(w, effect);
}

static void port_answer(void *ctx, uint32_t lane, uint64_t wait_lsn,
                        const struct pawl_core_answer *answer)
{
    const struct pawl_effect effect = { .type = PAWL_EFFECT_ANSWER,
                                        .lane = lane,
                                        .wait_lsn = wait_lsn,
                                        .bytes = sizeof(struct pawl_comp_answer),
                                        .seq = answer->seq,
                                        .value = answer->value,
                                        .lsn = answer->lsn,
                                        .result = answer->result,
                                        .flags = answer->flags };
    port_write(ctx, &effect);
}

static uint64_t port_random(void *ctx)
{
    struct sim *w = ctx;
    return pawl_prng_next(&w->rng) | 1;
}

/* --- clock ----------------------------------------------------------------------------------- */

static void read_clock(struct sim *w)
{
    w->now_boot = sim_boot(w);
    w->now = pawl_engine_now(w->engine, w->now_boot, sim_wall(w));
    SIM_CHECK(w, w->now.time == w->now_boot + w->shift, "pawl time %" PRIu64 ", boot %" PRIu64,
              w->now.time, w->now_boot);
    int64_t lead = (int64_t)(w->now.time - w->now.wall);
    if (lead > w->lead_max)
        w->lead_max = lead;
    sim_model_time(w);
    for (uint32_t i = 0; i < w->client_count; i++) {
        struct sim_client *c = w->clients[i];
        if (!c->alive || c->core != NULL || c->session == 0 || c->graced ||
            w->now.time < c->detached_at + w->options.grace_ns)
            continue;
        c->graced = true;
        sim_model_session_end(w, c, PAWL_END_GRACE, false);
    }
}

/* Time between turns: mostly until the disk is done, now and then much more. */
static void pass_time(struct sim *w)
{
    uint64_t now = pawl_io_sim_now(w->io), disk = pawl_io_sim_next(w->io);
    uint64_t next = pawl_engine_next(w->engine);
    uint64_t boot = sim_boot(w), step;
    switch (sim_below(w, 16)) {
    case 0:
        step = sim_below(w, 10 * SIM_MS);
        break;
    case 1:
        step = sim_below(w, 2 * SIM_S);
        break;
    case 2:
        step = sim_one_in(w, 4) ? sim_below(w, 300 * SIM_S) : 1;
        break;
    case 3:
    case 4:
    case 5:
        step = next != UINT64_MAX && next > boot ? next - boot : 0;
        if (step > 3600 * SIM_S)
            step = SIM_S;
        break;
    case 6:
        step = 0;
        break;
    default:
        step = disk != UINT64_MAX && disk > now ? disk - now : sim_below(w, SIM_MS);
        break;
    }
    sim_time_pass(w, step);
}

/* --- crash and restart ----------------------------------------------------------------------- */

static void clients_lose_broker(struct sim *w, bool they_die)
{
    for (uint32_t i = 0; i < w->client_count; i++) {
        struct sim_client *c = w->clients[i];
        if (!c->alive)
            continue;
        if (they_die) {
            c->alive = false;
            c->core = NULL;
            for (uint32_t l = 0; l < c->lane_count; l++) {
                struct sim_lane *lane = c->lanes[l];
                lane->core = NULL;
                lane->receive = NULL;
                while (lane->open_count > 0)
                    sim_op_close(w, lane->open[lane->open_count - 1]);
                sim_lane_lose_ring(lane);
                lane->held_count = 0;
            }
        } else if (c->core != NULL) {
            sim_client_broker_gone(w, c);
        }
    }
}

static void reboot(struct sim *w)
{
    sim_time_pass(w, SIM_S + sim_below(w, 600 * SIM_S));
    w->boot_base = pawl_io_sim_now(w->io) - (SIM_S + sim_below(w, 20 * SIM_S));
    w->boots++;
    memset(w->boot_id, 0, sizeof w->boot_id);
    memcpy(w->boot_id, &w->boots, sizeof w->boots);
    w->rebooted = true;
}

static void kill_broker(struct sim *w, bool power)
{
    w->crashes++;
    w->totals->crashes++;
    w->kept_max = 0;
    w->lost_min = UINT64_MAX;
    sim_note(w, "CRASH %s, %u in flight, %u wait", power ? "power" : "kill",
             pawl_log_in_flight(pawl_engine_log(w->engine)), pawl_engine_waiting(w->engine));
    if (power)
        pawl_io_sim_crash(w->io, pawl_prng_next(&w->rng));
    else
        pawl_io_sim_kill(w->io, pawl_prng_next(&w->rng));
    w->closing = true;
    (void)pawl_engine_close(w->engine, false);
    w->closing = false;
    w->engine = NULL;
    pawl_io_sim_fail_at(w->io, PAWL_IO_SIM_ALL, 0, 0, false);
    w->disk_faulty = false;
    sim_model_crash(w);
    clients_lose_broker(w, power);
    if (power)
        reboot(w);
    else
        sim_time_pass(w, sim_below(w, sim_one_in(w, 8) ? 100 * SIM_S : 20 * SIM_MS));
    pawl_io_sim_restart(w->io);
}

static void crash(struct sim *w)
{
    bool power =
        sim_fault_allowed(w, SIM_POWER) && (!sim_fault_allowed(w, SIM_KILL) || sim_one_in(w, 3));
    sim_fault_happened(w, power ? SIM_POWER : SIM_KILL);
    kill_broker(w, power);
    open_broker(w);
}

static void next_crash(struct sim *w)
{
    /* about ten points a turn */
    w->crash_in = 1 + sim_below(w, 20ull * w->options.crash_rate);
    if ((w->options.faults & (1ull << SIM_KILL | 1ull << SIM_POWER)) == 0)
        w->crash_in = UINT64_MAX;
}

bool sim_alive_point(struct sim *w)
{
    if (w->liveness || --w->crash_in > 0)
        return true;
    crash(w);
    return false;
}

static void failed(struct sim *w)
{
    SIM_CHECK(w, w->disk_faulty, "the log failed on a disk without a fault: %s",
              pawl_log_failure(pawl_engine_log(w->engine)));
    sim_fault_happened(w, SIM_EIO);
    SIM_CHECK(w, pawl_engine_publish(w->engine) == 0, "G8: published after a failure");
    kill_broker(w, sim_fault_allowed(w, SIM_POWER) && sim_one_in(w, 4));
    open_broker(w);
}

static void clean_stop(struct sim *w)
{
    sim_fault_happened(w, SIM_STOP);
    bool faulty = w->disk_faulty;
    int rc = pawl_engine_close(w->engine, true);
    SIM_CHECK(w, rc == PAWL_LOG_OK || faulty || w->disk_was_full || w->slow_until != 0,
              "clean stop: %d", rc);
    w->stopped_clean = rc == PAWL_LOG_OK;
    w->engine = NULL;
    w->crashes++;
    w->kept_max = 0;
    w->lost_min = UINT64_MAX;
    pawl_io_sim_fail_at(w->io, PAWL_IO_SIM_ALL, 0, 0, false);
    w->disk_faulty = false;
    if (w->stopped_clean)
        sim_model_stopped(w);
    sim_model_crash(w);
    bool power = sim_fault_allowed(w, SIM_POWER) && sim_one_in(w, 3);
    clients_lose_broker(w, power);
    if (power) {
        pawl_io_sim_crash(w->io, pawl_prng_next(&w->rng));
        reboot(w);
    } else {
        pawl_io_sim_kill(w->io, pawl_prng_next(&w->rng));
        sim_time_pass(w, sim_below(w, SIM_S));
    }
    pawl_io_sim_restart(w->io);
    open_broker(w);
}

/* --- open ------------------------------------------------------------------------------------ */

static int open_once(struct sim *w, struct pawl_log_info *info)
{
    char text[PAWL_LOG_TEXT_BYTES] = "";
    const struct sim_options *o = &w->options;
    struct pawl_engine_options options = {
        .log = { .dir = PAWL_IO_SIM_DIR,
                 .segment_bytes = o->segment_bytes,
                 .max_bytes = o->max_log_bytes,
                 .block_bytes = o->block_bytes,
                 .in_flight_max = o->in_flight,
                 .record_bytes_max = o->body_max + 10240,
                 .boot_ns = sim_boot(w),
                 .wall_ns = sim_wall(w) },
        .core = { .memory_bytes = o->memory_bytes,
                  .segment_bytes = o->segment_bytes,
                  .hash_seed = w->seed,
                  .session_grace_ns = o->grace_ns,
                  .sessions_max = 4096,
                  .queues_max = 4096,
                  .admin_uid = 0 },
        .relaxed_window_ns = o->relaxed_window_ns,
        .effects_max = 65536,
    };
    memcpy(options.log.boot_id, w->boot_id, sizeof w->boot_id);
    memcpy(options.log.log_id, &w->seed, sizeof w->seed);
    options.log.log_id[15] = 1;
    const struct pawl_engine_lanes lanes = {
        .ctx = w,
        .reserve = port_reserve,
        .write = port_write,
        .answer = port_answer,
        .random = port_random,
    };
    memset(info, 0, sizeof *info);
    w->open_boot = sim_boot(w);
    w->open_wall = sim_wall(w);
    int rc = pawl_engine_open(w->io, &options, &lanes, &w->engine, info, text);
    sim_note(w,
             "open: %d epoch %" PRIu64 " records %" PRIu64 " cut %" PRIu64
             " clean %d same boot %d %s",
             rc, info->epoch, info->records, info->cut_bytes, info->clean, info->same_boot, text);
    if (rc != PAWL_LOG_OK) {
        w->engine = NULL;
        SIM_CHECK(w, w->disk_faulty || (w->disk_was_full && rc == PAWL_LOG_CANNOT),
                  "the broker does not start: %d %s", rc, text);
    }
    return rc;
}

/* Recovering what was just recovered gives the same. */
static void recover_twice(struct sim *w, struct pawl_log_info *info)
{
    /* Both at one moment, since what is due by then counts as having happened. */
    uint64_t then = sim_boot(w) + SIM_S;
    (void)pawl_engine_now(w->engine, then, sim_wall(w));
    uint64_t digest = pawl_core_digest(pawl_engine_core(w->engine));
    uint64_t epoch = info->epoch;
    bool power = sim_one_in(w, 2);
    if (power)
        pawl_io_sim_crash(w->io, pawl_prng_next(&w->rng));
    else
        pawl_io_sim_kill(w->io, pawl_prng_next(&w->rng));
    (void)pawl_engine_close(w->engine, false);
    pawl_io_sim_restart(w->io);
    int rc = open_once(w, info);
    if (rc == PAWL_LOG_CANNOT && w->full_until != 0) {
        /* no room for one more epoch: the operator makes some */
        pawl_io_sim_set_capacity(w->io, UINT64_MAX);
        w->full_until = 0;
        pawl_io_sim_kill(w->io, pawl_prng_next(&w->rng));
        pawl_io_sim_restart(w->io);
        rc = open_once(w, info);
    }
    SIM_CHECK(w, rc == PAWL_LOG_OK, "what was just recovered cannot be recovered again: %d", rc);
    SIM_CHECK(w, info->epoch > epoch, "epoch %" PRIu64 " after %" PRIu64, info->epoch, epoch);
    if (sim_boot(w) > then)
        return; /* the disk was slow */
    sim_time_pass(w, then - sim_boot(w));
    (void)pawl_engine_now(w->engine, then, sim_wall(w));
    SIM_CHECK(w, pawl_core_digest(pawl_engine_core(w->engine)) == digest,
              "recovering twice gives two states");
    w->totals->recoveries++;
}

static void check_info(struct sim *w, const struct pawl_log_info *info)
{
    SIM_CHECK(w, info->epoch > w->epoch, "epoch %" PRIu64 " after %" PRIu64, info->epoch, w->epoch);
    bool first = w->epoch == 0;
    SIM_CHECK(w, first || w->tried || info->same_boot == !w->rebooted,
              "same boot: %d, rebooted: %d", info->same_boot, w->rebooted);
    uint64_t shift = info->time_ns - w->open_boot;
    if (!first && !w->rebooted)
        SIM_CHECK(w, shift == w->shift, "C3: pawl time moved against the boot clock by %" PRId64,
                  (int64_t)(shift - w->shift));
    if (!first && w->rebooted && !w->tried) {
        SIM_CHECK(w, info->time_ns >= w->pawl_seen, "pawl time fell from %" PRIu64 " to %" PRIu64,
                  w->pawl_seen, info->time_ns);
        int64_t most = w->lead_max + (int64_t)w->open_wall;
        SIM_CHECK(w, (int64_t)info->time_ns <= most || info->time_ns <= w->now.time,
                  "C3: pawl time ran ahead over a reboot by %" PRId64,
                  (int64_t)info->time_ns - most);
    }
    SIM_CHECK(w, !w->stopped_clean || info->clean, "the mark of the clean stop is gone");
    SIM_CHECK(w, !w->stopped_clean || info->cut_bytes == 0, "a clean log was cut");
    w->shift = shift;
    w->lead_max = (int64_t)(info->time_ns - w->open_wall);
}

struct dead {
    struct sim *w;
    uint64_t ids[4096];
    uint32_t count;
};

static struct sim_client *by_session(struct sim *w, uint64_t id)
{
    for (uint32_t i = 0; i < w->client_count; i++)
        if (w->clients[i]->session == id)
            return w->clients[i];
    return NULL;
}

static void judge(void *ctx, struct pawl_core_session *session)
{
    struct dead *d = ctx;
    uint64_t id = pawl_core_session_id(session);
    struct sim_client *c = by_session(d->w, id);
    if (c == NULL)
        sim_fail(d->w, "the log holds a session %" PRIu64 " that nobody opened", id);
    const struct pawl_core_peer *peer = pawl_core_session_peer(session);
    SIM_CHECK(d->w, peer->pid == c->pid && peer->uid == c->uid && peer->start_time == 7 + c->number,
              "session %" PRIu64 " came back as another process's", id);
    if (!c->alive)
        d->ids[d->count++] = id;
}

static void end_the_dead(struct sim *w)
{
    struct dead dead = { .w = w };
    pawl_core_session_each(pawl_engine_core(w->engine), judge, &dead);
    for (uint32_t i = 0; i < dead.count; i++)
        sim_client_end(w, by_session(w, dead.ids[i]), PAWL_END_DEAD);
}

static void open_broker(struct sim *w)
{
    struct pawl_log_info info;
    for (uint32_t i = 0;; i++) {
        if (sim_fault_allowed(w, SIM_OPEN_FAILED) && i < OPEN_TRIES && sim_one_in(w, 4)) {
            pawl_io_sim_fail_at(w->io, PAWL_IO_SIM_ALL, 1 + sim_below(w, 12), -EIO, true);
            w->disk_faulty = true;
        }
        if (i >= OPEN_TRIES && w->full_until != 0) {
            /* a new epoch may need room that is not there: the operator makes some */
            pawl_io_sim_set_capacity(w->io, UINT64_MAX);
            w->full_until = 0;
        }
        SIM_CHECK(w, i < OPEN_TRIES + 2, "the broker does not start");
        int rc = open_once(w, &info);
        bool faulty = w->disk_faulty;
        if (rc != PAWL_LOG_OK && faulty)
            sim_fault_happened(w, SIM_OPEN_FAILED);
        if (rc != PAWL_LOG_OK || faulty) {
            /* a process that fails while it starts is one more crash */
            if (sim_one_in(w, 2))
                pawl_io_sim_kill(w->io, pawl_prng_next(&w->rng));
            else
                pawl_io_sim_crash(w->io, pawl_prng_next(&w->rng));
            if (rc == PAWL_LOG_OK)
                (void)pawl_engine_close(w->engine, false);
            pawl_io_sim_fail_at(w->io, PAWL_IO_SIM_ALL, 0, 0, false);
            w->disk_faulty = false;
            w->stopped_clean = w->stopped_clean && rc != PAWL_LOG_OK;
            w->tried = true;
            pawl_io_sim_restart(w->io);
            continue;
        }
        break;
    }
    check_info(w, &info);
    bool same_boot = !w->rebooted && w->epoch != 0;
    if (w->epoch != 0 && sim_one_in(w, 4))
        recover_twice(w, &info);
    w->epoch = info.epoch;
    w->stopped_clean = false;
    w->rebooted = w->tried = false;
    w->totals->recoveries++;
    w->unsealed_since = 0;
    pawl_core_verify(pawl_engine_core(w->engine));
    /* Leases and graces run from the moment of the start. */
    w->now.time = info.time_ns;
    sim_model_restart(w, same_boot);
    for (uint32_t i = 0; i < w->client_count; i++) {
        struct sim_client *c = w->clients[i];
        c->detached_at = w->now.time;
        if (c->alive ? c->graced : c->session != 0) /* its end may have begun before the crash */
            sim_model_session_end(w, c, c->alive ? PAWL_END_GRACE : PAWL_END_DEAD, false);
    }
    w->now_boot = sim_boot(w);
    w->now = pawl_engine_now(w->engine, w->now_boot, sim_wall(w));
    end_the_dead(w);
    sim_model_wrote(w);
    w->inspecting = !sim_one_in(w, 4);
    for (uint32_t i = 0; i < w->options.queues; i++) {
        w->queues[i].inspected = false;
        w->queues[i].inspect_after = 0;
    }
}

/* --- turns ----------------------------------------------------------------------------------- */

static void populate(struct sim *w)
{
    uint32_t alive = 0, admins = 0;
    for (uint32_t i = 0; i < w->client_count; i++) {
        alive += w->clients[i]->alive && !w->clients[i]->admin ? 1 : 0;
        admins += w->clients[i]->alive && w->clients[i]->admin ? 1 : 0;
    }
    if (admins == 0)
        sim_client_attach(w, sim_client_create(w, 0, true));
    while (alive++ < w->options.clients && !w->inspecting)
        sim_client_attach(w, sim_client_create(w, sim_one_in(w, 5) ? 0 : 1001, false));
    sim_model_wrote(w);
}

/* A bounded number of commands of each lane, lanes in an order of chance. */
static bool take_commands(struct sim *w)
{
    for (uint32_t round = w->liveness ? 64 : 1 + (uint32_t)sim_below(w, 8); round > 0; round--) {
        uint32_t first = (uint32_t)sim_below(w, w->client_count);
        bool some = false;
        for (uint32_t i = 0; i < w->client_count; i++) {
            struct sim_client *c = w->clients[(first + i) % w->client_count];
            for (uint32_t l = 0; c->alive && l < c->lane_count; l++)
                if (sim_lane_take(w, c->lanes[l])) {
                    some = true;
                    if (!sim_alive_point(w))
                        return false;
                }
        }
        if (!some)
            break;
    }
    return true;
}

/* A relaxed record may wait for the window, not longer while the disk is idle. */
static void check_flush(struct sim *w)
{
    struct pawl_log *log = pawl_engine_log(w->engine);
    if (!pawl_log_pending(log) || pawl_log_in_flight(log) > 0 || w->disk_was_full) {
        w->unsealed_since = 0;
        return;
    }
    if (w->unsealed_since == 0)
        w->unsealed_since = w->now_boot + 1;
    SIM_CHECK(w, w->now_boot < w->unsealed_since + w->options.relaxed_window_ns + 60 * SIM_S,
              "records wait for %" PRIu64 " ns and the disk is idle",
              w->now_boot - w->unsealed_since);
}

/* True: the engine has nothing more to do now. */
static bool turn(struct sim *w)
{
    w->totals->turns++;
    if (!w->liveness)
        sim_faults_turn(w);
    int n = w->io->ops->wait(w->io, 0);
    SIM_CHECK(w, n >= 0, "io wait: %d", n);
    sim_model_durable(w);
    if (pawl_engine_failed(w->engine)) {
        failed(w);
        return false;
    }
    if (!sim_alive_point(w))
        return false;
    read_clock(w);
    uint32_t published = pawl_engine_publish(w->engine);
    if (!sim_alive_point(w))
        return false;
    bool more = pawl_engine_timers(w->engine, w->options.timers_budget);
    if (!more && pawl_core_next(pawl_engine_core(w->engine)) > w->now.time)
        sim_model_timers(w);
    sim_model_wrote(w);
    if (!sim_alive_point(w))
        return false;
    populate(w);
    for (uint32_t i = 0; i < w->client_count; i++)
        sim_client_act(w, w->clients[i]);
    sim_model_wrote(w);
    if (!sim_alive_point(w) || !take_commands(w) || !sim_alive_point(w))
        return false;
    more |= pawl_engine_settle(w->engine);
    sim_model_wrote(w);
    if (w->ends_pending && !pawl_engine_failed(w->engine)) {
        if (!pawl_core_pump(pawl_engine_core(w->engine), w->now))
            sim_model_pumped(w);
        sim_model_wrote(w);
    }
    if (pawl_engine_failed(w->engine)) {
        failed(w);
        return false;
    }
    check_flush(w);
    if (w->totals->turns % 16 == 0)
        pawl_core_verify(pawl_engine_core(w->engine));
    if (!sim_alive_point(w))
        return false;
    if (sim_fault_allowed(w, SIM_STOP) && sim_one_in(w, 4ull * w->options.crash_rate)) {
        clean_stop(w);
        return false;
    }
    return !more && published == 0;
}

static bool idle(struct sim *w)
{
    for (uint32_t i = 0; i < w->client_count; i++)
        for (uint32_t l = 0; w->clients[i]->alive && l < w->clients[i]->lane_count; l++) {
            struct sim_lane *lane = w->clients[i]->lanes[l];
            if (lane->ring_count > 0 || lane->submit < lane->open_count)
                return false;
        }
    return pawl_log_in_flight(pawl_engine_log(w->engine)) == 0 &&
           pawl_engine_waiting(w->engine) == 0;
}

/* Jumps to the next thing that anybody waits for; no timer may be later than the model's. */
static uint64_t jump(struct sim *w, bool quiet)
{
    uint64_t now = pawl_io_sim_now(w->io), boot = sim_boot(w);
    uint64_t next = pawl_engine_next(w->engine), disk = pawl_io_sim_next(w->io);
    if (quiet && disk == UINT64_MAX && idle(w)) {
        const struct sim_message *which = NULL;
        uint64_t due = sim_model_next(w, &which);
        if (due != UINT64_MAX && next > pawl_max_u64(due - w->shift, boot) + SIM_TICK) {
            sim_model_dump(w, which);
            sim_fail(w, "G12: m%u is due at %" PRIu64 ", the broker sleeps until %" PRIu64,
                     which->number, due - w->shift, next);
        }
        sim_model_unseen(w);
    }
    uint64_t step = UINT64_MAX;
    if (next != UINT64_MAX)
        step = next > boot ? next - boot : 0;
    if (disk != UINT64_MAX)
        step = pawl_min_u64(step, disk > now ? disk - now : 0);
    if (step == UINT64_MAX || (step == 0 && quiet && disk == UINT64_MAX))
        step = SIM_MS;
    sim_time_pass(w, quiet ? step : 0);
    return quiet ? step : 0;
}

static void drain(struct sim *w)
{
    char text[256];
    sim_note(w, "LIVENESS");
    sim_faults_end(w);
    uint32_t calm = 0, waits = 0;
    for (uint32_t i = 0; calm < 24;) {
        /* Waiting for the time of a message costs few turns a day, but wall clocks that were set
         * back make it many days. */
        if (i == LIVENESS_TURNS || waits == LIVENESS_WAITS) {
            for (uint32_t m = 0; m < w->message_count; m++)
                if (!w->messages[m]->gone && !sim_model_settled(w->messages[m])) {
                    sim_model_dump(w, w->messages[m]);
                    break;
                }
            sim_fail(w, "G2: it does not drain: %s", sim_model_left(w, text));
        }
        bool quiet = turn(w);
        calm = sim_model_left(w, text) == NULL ? calm + 1 : 0;
        if (jump(w, quiet) > SIM_S)
            waits++;
        else
            i++;
    }
}

/* When the time of remembering is over, nothing may be left of all that was (G10). */
static void forget_all(struct sim *w)
{
    sim_time_pass(w, 3600 * SIM_S);
    for (uint32_t i = 0; i < LIVENESS_TURNS; i++) {
        bool quiet = turn(w);
        struct pawl_core_stats stats;
        pawl_core_stats(pawl_engine_core(w->engine), &stats);
        if (quiet && stats.messages == 0 && stats.leases == 0)
            return;
        jump(w, quiet);
    }
    sim_fail(w, "G10: what ended an hour ago is still remembered");
}

/* --- a seed ---------------------------------------------------------------------------------- */

static void queues_from_seed(struct sim *w)
{
    w->queues = calloc(w->options.queues, sizeof *w->queues);
    if (w->queues == NULL)
        abort();
    for (uint32_t i = 0; i < w->options.queues; i++) {
        struct sim_queue *q = &w->queues[i];
        struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
        q->number = i;
        snprintf(q->name, sizeof q->name, "q%u", i);
        uint64_t mode = i == 0 ? 0 : sim_below(w, 5);
        o.mode = mode < 3 ? PAWL_DURABLE : mode == 3 ? PAWL_RELAXED : PAWL_MEMORY;
        o.perm = 0777;
        static const uint64_t leases[] = { 0, 50 * SIM_MS, SIM_S, 60 * SIM_S };
        static const uint64_t retentions[] = { 0, 0, SIM_S, 60 * SIM_S };
        static const uint64_t holds[] = { 0, 0, 30 * SIM_S };
        o.lease_ns = leases[sim_below(w, 4)];
        o.done_retention_ns = retentions[sim_below(w, 4)];
        static const uint64_t windows[] = { 0, SIM_S, 60 * SIM_S, 3600 * SIM_S };
        o.dedup_window_ns = windows[sim_below(w, 4)];
        o.max_hold_ns = holds[sim_below(w, 3)];
        static const uint32_t most[] = { PAWL_KEEP, PAWL_KEEP, 0, 2, 3 };
        o.max_failed = most[sim_below(w, 5)];
        static const uint32_t crashes[] = { PAWL_KEEP, PAWL_KEEP, 0, 1, 2, 3 };
        o.max_crashed = crashes[sim_below(w, 6)];
        if (sim_one_in(w, 3)) {
            o.retry_count = 3;
            o.retry_ns[0] = 10 * SIM_MS;
            o.retry_ns[1] = 100 * SIM_MS;
            o.retry_ns[2] = 2 * SIM_S;
        }
        if (sim_one_in(w, 5))
            o.ttl_ns = 20 * SIM_S;
        if (sim_one_in(w, 4))
            o.max_messages = 5 + sim_below(w, 40);
        if (sim_one_in(w, 6))
            o.max_bytes = 2000 + sim_below(w, 20000);
        if (sim_one_in(w, 5))
            o.max_inflight = 1 + (uint32_t)sim_below(w, 6);
        q->options = o;
    }
}

static void world_free(struct sim *w)
{
    sim_model_free(w);
    sim_state_free(w);
    for (uint32_t i = 0; i < w->client_count; i++)
        sim_client_destroy(w, w->clients[i]);
    for (uint32_t i = 0; i < w->op_count; i++) {
        free(w->ops[i]->command);
        free(w->ops[i]->counts);
        free(w->ops[i]);
    }
    for (uint32_t i = 0; i < w->options.queues; i++)
        free(w->queues[i].messages), free(w->queues[i].grants);
    free(w->queues);
    free(w->clients);
    free(w->lanes);
    free(w->ops);
    sim_map_destroy(w->ids, NULL);
    sim_map_destroy(w->grants, free);
    sim_note_fini(w);
}

static void add_counts(struct sim *w)
{
    struct pawl_io_sim_counts c;
    pawl_io_sim_counts(w->io, &c);
    uint64_t *sum = (uint64_t *)&w->totals->io;
    const uint64_t *one = (const uint64_t *)&c;
    for (size_t i = 0; i < sizeof c / sizeof *sum; i++)
        sum[i] += one[i];
    w->totals->faults[SIM_SHORT] += c.split;
    w->totals->time_ns += pawl_io_sim_now(w->io);
    w->totals->seeds++;
}

struct sim *sim_now_running; /* for the report of a signal */

uint64_t sim_run(uint64_t seed, struct sim_totals *totals)
{
    struct sim world = { .seed = seed, .totals = totals }, *w = &world;
    w->rng.state = pawl_hash_u64(seed + 1);
    w->ids = sim_map_create();
    w->grants = sim_map_create();
    sim_note_init(w);
    sim_now_running = w;
    sim_options_from_seed(w);
    queues_from_seed(w);
    sim_state_begin(w);
    w->io = pawl_io_sim_create(pawl_prng_next(&w->rng));
    w->wall_base = 1700000000ull * SIM_S;
    sim_time_pass(w, 5 * SIM_S);
    w->lost_min = UINT64_MAX;
    w->boots = 1;
    memcpy(w->boot_id, &w->boots, sizeof w->boots);
    sim_faults_start(w);
    next_crash(w);
    open_broker(w);
    for (uint32_t i = 0; i < w->options.turns; i++) {
        uint64_t before = w->crashes;
        (void)turn(w);
        if (w->crashes != before)
            next_crash(w);
        pass_time(w);
    }
    drain(w);
    forget_all(w);
    w->options.faults &= ~(1ull << SIM_POWER);
    clean_stop(w);
    drain(w);
    kill_broker(w, false);
    add_counts(w);
    w->io->ops->destroy(w->io);
    uint64_t hash = w->hash;
    world_free(w);
    sim_now_running = NULL;
    return hash;
}
