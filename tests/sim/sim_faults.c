/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/sim.h"

/* What a seed is like, the clock, and the faults that need no hand of the world: disk and clocks.
 * Faults happen only where a promise covers them: never damage of flushed sectors, which the log
 * must refuse (tests of the log do that). */

const char *const sim_fault_names[SIM_FAULTS] = {
    [SIM_KILL] = "kill",
    [SIM_POWER] = "power",
    [SIM_STOP] = "stop",
    [SIM_EIO] = "eio",
    [SIM_OPEN_FAILED] = "open-fail",
    [SIM_FULL] = "full",
    [SIM_SLOW] = "slow",
    [SIM_SHORT] = "short",
    [SIM_DEATH] = "death",
    [SIM_CLOSE] = "close",
    [SIM_LANE_CLOSE] = "lane-close",
    [SIM_RESIZE] = "resize",
    [SIM_DETACH] = "detach",
    [SIM_GRACE] = "grace",
    [SIM_LAZY] = "lazy",
    [SIM_FROZEN] = "frozen",
    [SIM_BREACH] = "breach",
    [SIM_SUSPEND] = "suspend",
    [SIM_WALL_BACK] = "wall-back",
    [SIM_WALL_AHEAD] = "wall-ahead",
};

static uint64_t pick(struct sim *w, const uint64_t *choices, size_t count)
{
    return choices[sim_below(w, count)];
}
#define PICK(w, ...)                             \
    pick((w), (const uint64_t[]){ __VA_ARGS__ }, \
         sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

void sim_options_from_seed(struct sim *w)
{
    struct sim_options *o = &w->options;
    o->clients = 1 + (uint32_t)sim_below(w, 5);
    o->queues = 1 + (uint32_t)sim_below(w, 4);
    o->lanes = 1 + (uint32_t)sim_below(w, SIM_LANES_MAX);
    o->turns = (uint32_t)PICK(w, 100, 200, 300, 500);
    o->segment_bytes = PICK(w, 65536, 131072, 262144, 1048576);
    o->max_log_bytes = o->segment_bytes * PICK(w, 6, 8, 16, 64);
    o->memory_bytes = PICK(w, 64, 64, 96) << 20;
    o->block_bytes = (uint32_t)PICK(w, 16384, 65536, 262144);
    o->in_flight = 1 + (uint32_t)sim_below(w, 4);
    o->relaxed_window_ns = PICK(w, 0, 1 * SIM_MS, 10 * SIM_MS, 100 * SIM_MS);
    o->grace_ns = PICK(w, 1 * SIM_S, 60 * SIM_S, 60 * SIM_S);
    o->body_max = (uint32_t)PICK(w, 500, 500, 2000, 8000);
    if (o->body_max > o->segment_bytes / 16)
        o->body_max = (uint32_t)o->segment_bytes / 16;
    o->load = (uint32_t)PICK(w, 4, 16, 48, 96);
    o->fault_rate = (uint32_t)PICK(w, 15, 40, 100, 400);
    o->crash_rate = (uint32_t)PICK(w, 20, 40, 80, 200);
    o->timers_budget = (uint32_t)PICK(w, 1, 8, 64, 1000);
    o->deaths = sim_one_in(w, 6) ? 8 : 1;
    o->drops = sim_one_in(w, 3);
    o->units = !o->drops && !sim_one_in(w, 4);
    /* each kind in two seeds of three, so that all sorts of company are seen */
    for (uint32_t f = 0; f < SIM_FAULTS; f++)
        if (sim_below(w, 3) != 0)
            o->faults |= 1ull << f;
}

void sim_options_print(const struct sim *w)
{
    const struct sim_options *o = &w->options;
    fprintf(stderr,
            "seed %" PRIu64 ": clients %u lanes %u queues %u turns %u load %u/16 body %u, log "
            "%" PRIu64 " of %" PRIu64 " block %u in flight %u, memory %" PRIu64 ", window %" PRIu64
            " grace %" PRIu64 " timers %u, crash 1/%u fault 1/%u of",
            w->seed, o->clients, o->lanes, o->queues, o->turns, o->load, o->body_max,
            o->segment_bytes, o->max_log_bytes, o->block_bytes, o->in_flight, o->memory_bytes,
            o->relaxed_window_ns, o->grace_ns, o->timers_budget, o->crash_rate, o->fault_rate);
    for (uint32_t f = 0; f < SIM_FAULTS; f++)
        if (o->faults >> f & 1)
            fprintf(stderr, " %s", sim_fault_names[f]);
    fprintf(stderr, "\n");
    for (uint32_t i = 0; w->queues != NULL && i < o->queues; i++) {
        const struct pawl_queue_options *q = &w->queues[i].options;
        fprintf(stderr,
                "  %s: mode %u lease %" PRIu64 " hold %" PRIu64 " ttl %" PRIu64
                " retention %" PRIu64 " messages %" PRIu64 " bytes %" PRIu64
                " inflight %u failed %d crashed %d steps %u\n",
                w->queues[i].name, q->mode, q->lease_ns, q->max_hold_ns, q->ttl_ns,
                q->done_retention_ns, q->max_messages, q->max_bytes, q->max_inflight,
                (int)q->max_failed, (int)q->max_crashed, q->retry_count);
    }
}

/* --- clock ----------------------------------------------------------------------------------- */

uint64_t sim_boot(const struct sim *w) { return pawl_io_sim_now(w->io) - w->boot_base; }
uint64_t sim_wall(const struct sim *w) { return pawl_io_sim_now(w->io) + w->wall_base; }

void sim_time_pass(struct sim *w, uint64_t ns)
{
    pawl_io_sim_set_now(w->io, pawl_io_sim_now(w->io) + ns);
}

void sim_fault_happened(struct sim *w, enum sim_fault fault)
{
    w->totals->faults[fault]++;
    sim_note(w, "fault %s", sim_fault_names[fault]);
}

/* --- disk ------------------------------------------------------------------------------------ */

static void disk_normal(struct sim *w)
{
    struct pawl_io_sim_faults f = { .latency_ns_min = 20000, .latency_ns_max = 200000 };
    if (w->options.faults >> SIM_SHORT & 1 && !w->liveness)
        f.split_ppm = 100000;
    if (w->options.faults >> SIM_POWER & 1) {
        f.zero_ppm = 50000;
        f.garbage_ppm = 50000;
    }
    pawl_io_sim_set_faults(w->io, &f);
}

static void disk_slow(struct sim *w)
{
    struct pawl_io_sim_faults f = { .latency_ns_min = 100000,
                                    .latency_ns_max = PICK(w, 5 * SIM_MS, 200 * SIM_MS, 3 * SIM_S),
                                    .slow_ns = 10 * SIM_S,
                                    .slow_ppm = 20000,
                                    .zero_ppm = 50000,
                                    .garbage_ppm = 50000 };
    if (w->options.faults >> SIM_SHORT & 1)
        f.split_ppm = 200000;
    pawl_io_sim_set_faults(w->io, &f);
    w->slow_until = pawl_io_sim_now(w->io) + PICK(w, SIM_S, 10 * SIM_S, 60 * SIM_S);
    sim_fault_happened(w, SIM_SLOW);
}

static void disk_full(struct sim *w)
{
    uint64_t existing = pawl_log_existing(pawl_engine_log(w->engine));
    pawl_io_sim_set_capacity(w->io, existing + PICK(w, 0, 16384, w->options.segment_bytes));
    w->full_until = pawl_io_sim_now(w->io) + PICK(w, SIM_S, 30 * SIM_S, 3600 * SIM_S);
    w->disk_was_full = true;
    sim_fault_happened(w, SIM_FULL);
}

static void disk_back(struct sim *w)
{
    pawl_io_sim_set_capacity(w->io, UINT64_MAX);
    w->full_until = 0;
}

/* --- turn ------------------------------------------------------------------------------------ */

static bool strikes(struct sim *w, enum sim_fault fault)
{
    uint32_t rate = w->options.fault_rate;
    if (fault == SIM_DEATH)
        rate = rate / w->options.deaths + 1;
    return sim_fault_allowed(w, fault) && sim_one_in(w, rate);
}

static struct sim_client *victim(struct sim *w)
{
    if (w->client_count == 0)
        return NULL;
    struct sim_client *c = w->clients[sim_below(w, w->client_count)];
    return c->alive && !c->admin && c->core != NULL ? c : NULL;
}

/* One that has something in its hands, mostly: of others nothing is learned. */
static struct sim_client *victim_at_work(struct sim *w)
{
    struct sim_client *c = victim(w);
    for (uint32_t tries = 0; tries < 8; tries++) {
        uint32_t held = 0;
        for (uint32_t i = 0; c != NULL && i < c->lane_count; i++)
            held += c->lanes[i]->held_count;
        if (held != 0)
            break;
        c = victim(w);
    }
    return c;
}

static uint32_t lanes_left(const struct sim_client *c)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < c->lane_count; i++)
        left += c->lanes[i]->closed ? 0 : 1;
    return left;
}

static void harm_clients(struct sim *w)
{
    uint64_t now = pawl_io_sim_now(w->io);
    struct sim_client *c;
    if (strikes(w, SIM_LAZY) && (c = victim(w)) != NULL) {
        c->lazy_until = now + PICK(w, 10 * SIM_MS, SIM_S, 60 * SIM_S);
        sim_fault_happened(w, SIM_LAZY);
    }
    if (strikes(w, SIM_FROZEN) && (c = victim(w)) != NULL) {
        c->frozen_until = now + PICK(w, 100 * SIM_MS, 30 * SIM_S, 600 * SIM_S);
        sim_fault_happened(w, SIM_FROZEN);
    }
    if (strikes(w, SIM_DEATH) && (c = victim_at_work(w)) != NULL) {
        sim_fault_happened(w, SIM_DEATH);
        sim_client_end(w, c, PAWL_END_DEAD);
    }
    if (strikes(w, SIM_CLOSE) && (c = victim(w)) != NULL) {
        sim_fault_happened(w, SIM_CLOSE);
        sim_client_end(w, c, PAWL_END_CLOSED);
    }
    if (strikes(w, SIM_BREACH) && (c = victim(w)) != NULL) {
        sim_fault_happened(w, SIM_BREACH);
        sim_client_breach(w, c);
    }
    if (strikes(w, SIM_LANE_CLOSE) && (c = victim(w)) != NULL && lanes_left(c) > 1) {
        struct sim_lane *lane = c->lanes[sim_below(w, c->lane_count)];
        if (!lane->closed) {
            sim_fault_happened(w, SIM_LANE_CLOSE);
            sim_client_close_lane(w, c, lane);
        }
    }
    if (strikes(w, SIM_RESIZE) && (c = victim(w)) != NULL) {
        struct sim_lane *lane = c->lanes[sim_below(w, c->lane_count)];
        if (!lane->closed) {
            sim_fault_happened(w, SIM_RESIZE);
            sim_client_resize_lane(w, c, lane);
        }
    }
    if (strikes(w, SIM_DETACH) && (c = victim(w)) != NULL) {
        sim_fault_happened(w, SIM_DETACH);
        sim_client_detach(w, c, false);
    }
    if (strikes(w, SIM_GRACE) && (c = victim(w)) != NULL) {
        /* counted when it comes back too late */
        sim_client_detach(w, c, true);
    }
}

void sim_faults_turn(struct sim *w)
{
    uint64_t now = pawl_io_sim_now(w->io);
    if (w->slow_until != 0 && now >= w->slow_until) {
        w->slow_until = 0;
        disk_normal(w);
    }
    if (w->full_until != 0 && now >= w->full_until)
        disk_back(w);
    /* The log tries again once a second. */
    bool clear = w->full_until == 0 && !pawl_log_disk_full(pawl_engine_log(w->engine));
    w->full_clear = clear ? w->full_clear + 1 : 0;
    if (w->full_clear > 4)
        w->disk_was_full = false;
    if (strikes(w, SIM_SLOW))
        disk_slow(w);
    if (strikes(w, SIM_FULL))
        disk_full(w);
    if (strikes(w, SIM_EIO)) {
        pawl_io_sim_fail_at(w->io, PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH, 1 + sim_below(w, 4), -EIO,
                            sim_one_in(w, 2));
        w->disk_faulty = true;
    }
    if (strikes(w, SIM_SUSPEND)) {
        sim_time_pass(w, (1 + sim_below(w, 9)) * SIM_HOUR);
        sim_fault_happened(w, SIM_SUSPEND);
    }
    if (strikes(w, SIM_WALL_BACK)) {
        w->wall_base -= PICK(w, SIM_S, SIM_HOUR, 24 * SIM_HOUR);
        sim_fault_happened(w, SIM_WALL_BACK);
    }
    if (strikes(w, SIM_WALL_AHEAD)) {
        w->wall_base += PICK(w, SIM_S, SIM_HOUR, 24 * SIM_HOUR);
        sim_fault_happened(w, SIM_WALL_AHEAD);
    }
    harm_clients(w);
}

void sim_faults_start(struct sim *w) { disk_normal(w); }

void sim_faults_end(struct sim *w)
{
    w->liveness = true;
    w->safety_ops = w->op_count;
    w->slow_until = 0;
    pawl_io_sim_fail_at(w->io, PAWL_IO_SIM_ALL, 0, 0, false);
    disk_normal(w); /* what is in flight may still fail */
    disk_back(w);
    for (uint32_t i = 0; i < w->client_count; i++)
        w->clients[i]->lazy_until = w->clients[i]->frozen_until = 0;
}
