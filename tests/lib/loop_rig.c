/* SPDX-License-Identifier: MIT */
#include "lib/loop_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/prng.h"
#include "io/sim.h"

#define MIB (1u << 20)

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "loop_rig: %s\n", what);
    abort();
}

static int watch_add(struct pawl_io *io, struct pawl_io_watch *watch)
{
    (void)io;
    watch->armed = true;
    return 0;
}

static void watch_remove(struct pawl_io *io, struct pawl_io_watch *watch)
{
    (void)io;
    watch->armed = false;
}

static const struct pawl_io_ops bell_ops = { .watch_add = watch_add, .watch_remove = watch_remove };

static bool reserve(void *ctx, uint32_t lane, uint32_t bytes)
{
    struct loop_rig *rig = ctx;
    return pawl_outbox_reserve(&rig->outbox, lane, bytes);
}

static void write_effect(void *ctx, const struct pawl_effect *effect)
{
    struct loop_rig *rig = ctx;
    pawl_outbox_write(&rig->outbox, effect);
}

static void write_one_answer(void *ctx, uint32_t lane, uint64_t wait_lsn,
                             const struct pawl_core_answer *answer)
{
    struct loop_rig *rig = ctx;
    pawl_outbox_answer(&rig->outbox, lane, wait_lsn, answer);
}

static uint64_t give_random(void *ctx)
{
    struct loop_rig *rig = ctx;
    struct pawl_prng p = { rig->random };
    uint64_t r = pawl_prng_next(&p);
    rig->random = p.state;
    return r;
}

void loop_rig_init(struct loop_rig *rig, uint64_t seed)
{
    memset(rig, 0, sizeof *rig);
    rig->random = seed;
    rig->boot = 1000000000;
    rig->bell.ops = &bell_ops;
    rig->io = pawl_io_sim_create(seed);
    if (!rig->io || pawl_lanes_init(&rig->lanes, &rig->bell, 256ull * MIB) != 0)
        fail("no memory");
    rig->outbox.lanes = &rig->lanes;
    pawl_list_init(&rig->sessions.all);
    pawl_list_init(&rig->sessions.doomed);
    const struct pawl_engine_options o = {
        .log = { .dir = PAWL_IO_SIM_DIR,
                 .segment_bytes = MIB,
                 .max_bytes = 64ull * MIB,
                 .block_bytes = MIB / 4,
                 .in_flight_max = 2,
                 .record_bytes_max = PAWL_CMD_BYTES_MAX + 8192,
                 .boot_ns = rig->boot,
                 .wall_ns = 1 },
        .core = { .memory_bytes = 256ull * MIB,
                  .hash_seed = seed,
                  .session_grace_ns = 60000000000ull,
                  .sessions_max = 64,
                  .queues_max = 64 },
        .relaxed_window_ns = 10000000,
        .effects_max = 256ull * MIB / 40,
    };
    const struct pawl_engine_lanes lanes = {
        .ctx = rig,
        .reserve = reserve,
        .write = write_effect,
        .answer = write_one_answer,
        .random = give_random,
    };
    struct pawl_log_info info;
    char text[PAWL_LOG_TEXT_BYTES];
    if (pawl_engine_open(rig->io, &o, &lanes, &rig->engine, &info, text) != PAWL_LOG_OK)
        fail(text);
    rig->lanes.core = pawl_engine_core(rig->engine);
    rig->outbox.engine = rig->engine;
    pawl_intake_init(&rig->intake, &rig->lanes, rig->engine);
}

void loop_rig_fini(struct loop_rig *rig)
{
    (void)pawl_engine_close(rig->engine, false);
    pawl_lanes_fini(&rig->lanes);
    rig->io->ops->destroy(rig->io);
}

void loop_rig_turn(struct loop_rig *rig, uint64_t step_ns)
{
    bool more;
    rig->boot += step_ns;
    pawl_io_sim_set_now(rig->io, rig->boot);
    (void)rig->io->ops->wait(rig->io, 0);
    struct pawl_now now = pawl_engine_now(rig->engine, rig->boot, rig->boot);
    (void)pawl_engine_publish(rig->engine);
    (void)pawl_engine_timers(rig->engine, 1024);
    (void)pawl_intake_drain(&rig->intake, now, &more);
    (void)pawl_engine_settle(rig->engine);
    (void)pawl_outbox_publish(&rig->outbox);
    struct pawl_list *next;
    for (struct pawl_list *l = rig->lanes.zombies.next; l != &rig->lanes.zombies; l = next) {
        struct pawl_lane *lane = PAWL_CONTAINER(l, struct pawl_lane, place);
        next = l->next;
        if (pawl_engine_lane_idle(rig->engine, lane->handle))
            pawl_lane_free(lane);
    }
}

void loop_client_open(struct loop_rig *rig, struct loop_client *c, uint32_t ring_bytes,
                      uint32_t window, uint32_t uid)
{
    int fds[2];
    struct pawl_now now = pawl_engine_now(rig->engine, rig->boot, rig->boot);
    struct pawl_core *core = pawl_engine_core(rig->engine);
    memset(c, 0, sizeof *c);
    c->rig = rig;
    c->session.set = &rig->sessions;
    c->session.fd = c->session.pidfd = -1;
    pawl_list_init(&c->session.lanes);
    pawl_list_init(&c->session.doomed);
    const struct pawl_core_peer peer = { .uid = uid, .gid = uid, .label = "rig" };
    const struct pawl_attach_lane ask = { .sub_bytes = ring_bytes,
                                          .comp_bytes = ring_bytes,
                                          .window = window,
                                          .open_seq = 1,
                                          .next_seq = 1 };
    if (pawl_core_session_open(core, &peer, now, &c->session.core) != PAWL_OK ||
        pawl_lane_create(&rig->lanes, ring_bytes, ring_bytes, &c->lane, fds) != 0 ||
        pawl_core_lane_open(core, c->session.core, PAWL_LANE_NEW, window, &ask, c->lane->handle,
                            now, &c->lane->core) != PAWL_OK ||
        pawl_region_map(fds[0], ring_bytes, PAWL_REGION_WRITE, &c->sub_region) != 0 ||
        pawl_region_map(fds[1], ring_bytes, 0, &c->comp_region) != 0)
        fail("no lane");
    (void)close(fds[0]);
    (void)close(fds[1]);
    c->lane->session = &c->session;
    pawl_list_push_back(&c->session.lanes, &c->lane->of_session);
    c->sub = c->sub_region.header;
    c->comp = c->comp_region.header;
    c->out = (struct pawl_ring_producer){ .data = c->sub_region.data,
                                          .size = ring_bytes,
                                          .tail_shm = &c->sub->tail,
                                          .head_shm = &c->comp->sub_head };
    c->in = (struct pawl_ring_consumer){ .data = c->comp_region.data,
                                         .size = ring_bytes,
                                         .tail_shm = &c->comp->tail,
                                         .head_shm = &c->sub->comp_head };
    pawl_lane_activate(c->lane);
}

bool loop_client_doomed(const struct loop_client *c) { return c->session.doom != 0; }

void loop_client_close(struct loop_client *c)
{
    struct pawl_core *core = pawl_engine_core(c->rig->engine);
    struct pawl_now now = pawl_engine_now(c->rig->engine, c->rig->boot, c->rig->boot);
    pawl_core_lane_taken(core, c->lane->core, pawl_load_acq_u64(&c->lane->sub->taken));
    pawl_core_session_end(core, c->session.core,
                          loop_client_doomed(c) ? PAWL_END_BREACH : PAWL_END_DEAD, now);
    pawl_list_remove(&c->session.doomed);
    pawl_lane_close(c->lane, c->session.doom);
    pawl_region_unmap(&c->sub_region);
    pawl_region_unmap(&c->comp_region);
}

void *loop_client_claim(struct loop_client *c, uint16_t type, uint32_t bytes)
{
    bytes = (uint32_t)pawl_align_up(bytes, PAWL_RECORD_ALIGN);
    if (pawl_ring_room(&c->out) < bytes)
        (void)pawl_ring_refresh(&c->out);
    struct pawl_cmd *head = pawl_ring_claim(&c->out, bytes);
    if (head)
        *head = (struct pawl_cmd){ .bytes = bytes, .type = type, .seq = ++c->seq };
    return head;
}

void loop_client_publish(struct loop_client *c)
{
    if (pawl_ring_publish(&c->out))
        pawl_lane_activate(c->lane);
}

const void *loop_client_next(struct loop_client *c)
{
    const void *record;
    uint32_t bytes;
    uint64_t read = c->in.next;
    enum pawl_ring_result r = pawl_ring_next(&c->in, &record, &bytes);
    if (r == PAWL_RING_BREACH)
        fail("the broker's ring makes no sense");
    pawl_ring_release(&c->in, read);
    return r == PAWL_RING_RECORD ? record : NULL;
}

int loop_client_answer(struct loop_client *c, uint64_t seq, uint64_t *value)
{
    for (int i = 0; i < 100000; i++) {
        for (const struct pawl_comp_answer *a; (a = loop_client_next(c));) {
            if (a->type == PAWL_COMP_DELIVERY || seq < a->seq ||
                seq > a->seq + (a->type == PAWL_COMP_ANSWER ? a->count_minus_1 : 0))
                continue;
            if (value)
                *value = a->value;
            return a->result;
        }
        loop_rig_turn(c->rig, 100000);
    }
    fail("no answer");
}

uint64_t loop_client_queue(struct loop_client *c, const char *name, uint32_t mode, uint32_t perm)
{
    struct pawl_cmd_queue *q = loop_client_claim(c, PAWL_CMD_QUEUE_CREATE, sizeof *q);
    uint64_t value = 0;
    if (!q)
        fail("no room for a queue");
    memset((char *)q + sizeof q->head, 0, sizeof *q - sizeof q->head);
    q->has_options = 1;
    snprintf(q->name, sizeof q->name, "%s", name);
    q->options = (struct pawl_queue_options)PAWL_QUEUE_OPTIONS_INIT;
    q->options.mode = mode;
    q->options.perm = perm;
    uint64_t seq = c->seq;
    loop_client_publish(c);
    int rc = loop_client_answer(c, seq, &value);
    if (rc != PAWL_OK)
        fail(pawl_strname(rc));
    return value;
}
