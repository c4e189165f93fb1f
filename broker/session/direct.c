/* SPDX-License-Identifier: MIT */
#include "session/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "session/direct_inner.h"
#include "session/peer.h"
#include "session/session.h"

#define MS 1000000ull
#define LIFE_LOOK_NS (250 * MS)
#define LIFE_LOOKS_A_TURN 1024u
#define AWAITED_LOOK_NS (100 * MS)
#define SLOTS_A_STEP_MIN 1024u
#define SLOTS_A_STEP_MAX 8192u
#define LANES_MIN 256u

struct pawl_direct_queue *pawl_directs_find(const struct pawl_directs *set, uint64_t id)
{
    for (struct pawl_list *l = set->queues.next; l != &set->queues; l = l->next) {
        struct pawl_direct_queue *q = PAWL_CONTAINER(l, struct pawl_direct_queue, place);
        if (q->id == id)
            return q;
    }
    return NULL;
}

static uint64_t boot_clock(void *context)
{
    (void)context;
    return pawl_clock_boot();
}

/* --- shape ----------------------------------------------------------------------------------- */

static uint32_t to_ms(uint64_t ns)
{
    uint64_t ms = ns / MS + (ns % MS != 0);
    return (uint32_t)pawl_min_u64(pawl_max_u64(ms, 1), PAWL_DIRECT_LEASE_MS_MAX);
}

static struct pawl_direct_shape shape_of(const struct pawl_queue_options *o, uint64_t secret)
{
    uint64_t slots = o->max_messages;
    struct pawl_direct_shape s = {
        .capacity = (uint32_t)slots,
        .body_bytes = o->max_message_bytes,
        .lanes = (uint32_t)pawl_min_u64(pawl_max_u64(slots, LANES_MIN), PAWL_DIRECT_LANES_MAX),
        .attempts_max = o->max_failed,
        .lease_ms = to_ms(o->lease_ns),
        .lease_ms_max = to_ms(pawl_max_u64(o->max_hold_ns, o->lease_ns)),
        .id = secret,
    };
    return s;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* What a queue takes: its memory, and the broker's own notes of it. */
static uint64_t cost_of(const struct pawl_direct_shape *s)
{
    return pawl_direct_bytes(s) + pawl_direct_broker_bytes(s) +
           (uint64_t)(s->lanes + 1) * sizeof(struct pawl_direct_owner);
}

static void let_go(struct pawl_directs *set, struct pawl_direct_queue *q)
{
    if (q->where == PAWL_DIRECT_PLACE_AWAITED)
        set->awaited--;
    if (q->where == PAWL_DIRECT_PLACE_HERE) {
        (void)munmap(q->memory, q->facts.bytes);
        if (!q->shared)
            (void)close(q->fd);
        free(q->broker);
        free(q->private);
        free(q->owners);
        set->sessions->lanes->bytes -= cost_of(&q->shape);
        set->sessions->files--;
    }
    q->where = PAWL_DIRECT_PLACE_EMPTY;
    q->fd = -1;
    q->memory = q->private = NULL;
    q->broker = NULL;
    q->owners = NULL;
    q->held = 0;
    q->sweep_at = q->life_at = UINT64_MAX;
}

/* Begins to serve the memory behind fd, which is this queue's: owned from here on. PAWL_OK, or why
 * not, and then fd is as before. */
static int take_memory(struct pawl_directs *set, struct pawl_direct_queue *q, int fd, bool fresh)
{
    struct pawl_lanes *lanes = set->sessions->lanes;
    uint64_t cost = cost_of(&q->shape), bytes = q->facts.bytes;
    struct pawl_direct view;
    if (cost > lanes->bytes_max || lanes->bytes > lanes->bytes_max - cost)
        return PAWL_E_FULL;
    if (!pawl_sessions_files_left(set->sessions, 1))
        return PAWL_E_QUOTA;
    struct pawl_direct_broker *broker = calloc(1, sizeof *broker);
    struct pawl_direct_owner *owners = calloc(q->shape.lanes + 1, sizeof *owners);
    void *private = broker ? calloc(1, pawl_direct_broker_bytes(&q->shape)) : NULL;
    void *memory = private && owners ? pawl_direct_memory_map(fd, bytes) : NULL;
    int rc = memory ? PAWL_OK : PAWL_E_RESOURCE;
    if (rc == PAWL_OK && fresh)
        pawl_direct_init(memory, &q->shape);
    if (rc == PAWL_OK)
        rc = pawl_direct_open(&view, memory, bytes, &q->shape);
    if (rc != PAWL_OK) {
        if (memory)
            (void)munmap(memory, bytes);
        free(private);
        free(broker);
        free(owners);
        return rc;
    }
    pawl_direct_broker_init(broker, &view, private, set->broker_epoch, boot_clock, NULL);
    if (q->where == PAWL_DIRECT_PLACE_AWAITED)
        set->awaited--;
    q->where = PAWL_DIRECT_PLACE_HERE;
    q->fd = fd;
    q->memory = memory;
    q->broker = broker;
    q->private = private;
    q->owners = owners;
    q->held = 0;
    q->life_next = 1;
    q->sweep_at = q->life_at = set->boot;
    set->due = 0;
    lanes->bytes += cost;
    set->sessions->files++;
    return PAWL_OK;
}

/* Facts of a new memory, in DIR/direct before anybody has it. Without the file the queue works, and
 * does not survive the broker: said once. */
static void keep_facts(struct pawl_directs *set, struct pawl_direct_queue *q)
{
    int fd = -1, rc = -ENOENT;
    if (set->dir >= 0)
        rc = pawl_direct_facts_open(set->dir, q->id, true, &fd);
    if (rc == 0)
        rc = pawl_direct_facts_write(fd, &q->facts);
    if (fd >= 0)
        (void)close(fd);
    if (rc != 0)
        pawl_sessions_say(set->sessions,
                          "direct queue %s: what is known of its memory cannot be written to "
                          "DIR/direct (%s): it will not survive this broker",
                          q->name, strerror(-rc));
}

int pawl_direct_queue_make(struct pawl_directs *set, struct pawl_direct_queue *q)
{
    uint64_t secret = set->random(set->random_ctx) | 1;
    q->shape = shape_of(&q->options, secret);
    if (pawl_direct_shape_check(&q->shape) != PAWL_OK)
        return PAWL_E_INVALID;
    uint64_t bytes = pawl_direct_bytes(&q->shape), cost = cost_of(&q->shape);
    struct pawl_lanes *lanes = set->sessions->lanes;
    if (cost > lanes->bytes_max || lanes->bytes > lanes->bytes_max - cost)
        return PAWL_E_FULL;
    int fd = pawl_direct_memory_make(bytes);
    if (fd < 0)
        return fd == -ENOMEM || fd == -ENOSPC ? PAWL_E_FULL : PAWL_E_RESOURCE;
    /* The epoch on top: a number never comes again, though the file of the last one be lost. */
    q->facts =
        (struct pawl_direct_facts){ .id = q->id,
                                    .incarnation = set->broker_epoch << 24 | ++set->incarnations,
                                    .bytes = bytes,
                                    .secret = { secret } };
    memcpy(q->facts.boot_id, set->boot_id, sizeof q->facts.boot_id);
    int rc = pawl_direct_memory_identify(fd, &q->facts) == 0 ? PAWL_OK : PAWL_E_RESOURCE;
    if (rc == PAWL_OK)
        rc = take_memory(set, q, fd, true);
    if (rc != PAWL_OK) {
        (void)close(fd);
        return rc;
    }
    keep_facts(set, q);
    return PAWL_OK;
}

/* The memory as a client gave it. */
int pawl_direct_queue_take_back(struct pawl_directs *set, struct pawl_direct_queue *q, int fd)
{
    int rc = take_memory(set, q, fd, false);
    if (rc != PAWL_OK)
        return rc;
    for (uint32_t n = 1; n <= q->shape.lanes; n++) {
        bool live = pawl_direct_lane_status(q->broker, n) == PAWL_DIRECT_LANE_LIVE;
        int held = live ? pawl_direct_life_held(fd, n) : 0;
        if (live && held != 0) {
            q->owners[n].held = true;
            q->held++;
        } else if (live) {
            pawl_direct_lane_dead(q->broker, n);
        }
    }
    pawl_sessions_say(set->sessions, "direct queue %s is back: %u lanes in it live", q->name,
                      q->held);
    return PAWL_OK;
}

/* --- holders --------------------------------------------------------------------------------- */

void pawl_direct_queue_note(struct pawl_directs *set, struct pawl_direct_queue *q, uint32_t lane)
{
    const struct pawl_direct_owner *o = &q->owners[lane];
    uint32_t pid = !o->held ? 0 : o->pid && o->start_time ? o->pid : PAWL_DIRECT_HOLDER_UNKNOWN;
    int fd;
    if (set->dir < 0 || pawl_direct_facts_open(set->dir, q->id, false, &fd) != 0)
        return;
    if (pawl_direct_holder_write(fd, lane, pid, o->start_time) != 0)
        pawl_sessions_say(set->sessions, "direct queue %s: DIR/direct cannot be written: %s",
                          q->name, strerror(errno));
    (void)close(fd);
}

/* Does any process that had a lane live, or may it? */
static bool holder_lives(struct pawl_directs *set, const struct pawl_direct_queue *q)
{
    int fd;
    if (set->dir < 0 || pawl_direct_facts_open(set->dir, q->id, false, &fd) != 0)
        return false;
    struct pawl_direct_holder *holders = calloc(q->shape.lanes, sizeof *holders);
    bool lives = false;
    if (holders && pawl_direct_holders_read(fd, holders, q->shape.lanes) == 0)
        for (uint32_t i = 0; i < q->shape.lanes && !lives; i++) {
            int pidfd;
            if (holders[i].pid == 0)
                continue;
            enum pawl_peer_fate fate =
                holders[i].pid == PAWL_DIRECT_HOLDER_UNKNOWN
                    ? PAWL_PEER_UNKNOWN
                    : pawl_peer_find(holders[i].pid, holders[i].start_time, &pidfd);
            if (fate == PAWL_PEER_ALIVE)
                (void)close(pidfd);
            lives =
                fate == PAWL_PEER_ALIVE || (fate == PAWL_PEER_UNKNOWN && set->boot < q->given_up);
        }
    else
        lives = holders == NULL; /* no memory to know: ask again */
    free(holders);
    (void)close(fd);
    return lives;
}

void pawl_direct_queue_disown(struct pawl_directs *set, struct pawl_direct_queue *q, uint32_t pid,
                              uint64_t start_time)
{
    int fd;
    if (pid == 0 || start_time == 0 || set->dir < 0 ||
        pawl_direct_facts_open(set->dir, q->id, false, &fd) != 0)
        return;
    struct pawl_direct_holder *holders = calloc(q->shape.lanes, sizeof *holders);
    if (holders && pawl_direct_holders_read(fd, holders, q->shape.lanes) == 0)
        for (uint32_t i = 0; i < q->shape.lanes; i++)
            if (holders[i].pid == pid && holders[i].start_time == start_time &&
                pawl_direct_holder_write(fd, i + 1, 0, 0) == 0)
                q->sweep_at = set->boot;
    set->due = 0;
    free(holders);
    (void)close(fd);
}

void pawl_direct_lane_over(struct pawl_directs *set, struct pawl_direct_queue *q, uint32_t lane)
{
    struct pawl_direct_owner *o = &q->owners[lane];
    if (!o->held)
        return;
    *o = (struct pawl_direct_owner){ 0 };
    q->held--;
    pawl_direct_lane_dead(q->broker, lane);
    pawl_direct_queue_note(set, q, lane);
    q->sweep_at = set->boot;
    set->due = 0;
}

void pawl_directs_session_dead(struct pawl_directs *set, uint64_t session)
{
    for (struct pawl_list *l = set->queues.next; l != &set->queues; l = l->next) {
        struct pawl_direct_queue *q = PAWL_CONTAINER(l, struct pawl_direct_queue, place);
        for (uint32_t n = 1; q->held > 0 && n <= q->shape.lanes; n++)
            if (q->owners[n].session == session)
                pawl_direct_lane_over(set, q, n);
    }
}

/* --- turn ------------------------------------------------------------------------------------ */

/* Where nobody holds the byte of a lane that is LIVE, nobody lives in it. One that was only offered
 * is over with its session. */
static uint32_t look_at_lives(struct pawl_directs *set, struct pawl_direct_queue *q)
{
    uint32_t n = 0;
    for (; n < LIFE_LOOKS_A_TURN && q->life_next <= q->shape.lanes && q->held > 0;
         n++, q->life_next++) {
        struct pawl_direct_owner *o = &q->owners[q->life_next];
        if (!o->held)
            continue;
        bool live = pawl_direct_lane_status(q->broker, q->life_next) == PAWL_DIRECT_LANE_LIVE;
        if (live ? pawl_direct_life_held(q->fd, q->life_next) == 0
                 : !pawl_sessions_by_id(set->sessions, o->session))
            pawl_direct_lane_over(set, q, q->life_next);
    }
    if (q->life_next > q->shape.lanes || q->held == 0) {
        q->life_next = 1;
        q->life_at = q->held > 0 ? set->boot + LIFE_LOOK_NS : UINT64_MAX;
    } else {
        q->life_at = set->boot;
    }
    return n;
}

static void sweep(struct pawl_directs *set, struct pawl_direct_queue *q)
{
    uint64_t capacity = q->shape.capacity;
    uint64_t step = pawl_min_u64(pawl_max_u64(capacity / 8, SLOTS_A_STEP_MIN), SLOTS_A_STEP_MAX);
    step = pawl_min_u64(step, capacity);
    (void)pawl_direct_sweep(q->broker, step);
    const struct pawl_direct_counts *c = &q->broker->counts;
    if (pawl_direct_sweep_pending(q->broker) > 0) {
        q->sweep_at = set->boot;
    } else if (q->held == 0 && q->idle_turns > capacity && c->leased == 0 && c->delayed == 0) {
        q->sweep_at = UINT64_MAX; /* nobody is there, and nothing to be ended */
    } else {
        q->idle_turns = q->held == 0 ? q->idle_turns + step : 0;
        q->sweep_at = set->boot + pawl_direct_sweep_ms(q->broker) * MS * step / capacity;
    }
}

static uint32_t turn_of(struct pawl_directs *set, struct pawl_direct_queue *q)
{
    uint32_t n = 0;
    if (q->where == PAWL_DIRECT_PLACE_AWAITED && q->sweep_at <= set->boot) {
        q->sweep_at = set->boot + AWAITED_LOOK_NS;
        if (!holder_lives(set, q)) {
            pawl_sessions_say(set->sessions,
                              "direct queue %s: the last of those who held it is gone, and with "
                              "them what was in it: it is empty",
                              q->name);
            let_go(set, q);
        }
        return 1;
    }
    if (q->where != PAWL_DIRECT_PLACE_HERE)
        return 0;
    if (q->life_at <= set->boot)
        n += look_at_lives(set, q);
    if (q->sweep_at <= set->boot) {
        sweep(set, q);
        n++;
    }
    return n;
}

static void drop(struct pawl_directs *set, struct pawl_direct_queue *q)
{
    if (q->where == PAWL_DIRECT_PLACE_HERE)
        pawl_direct_close(&q->broker->q, PAWL_E_QUEUE_GONE);
    let_go(set, q);
    if (set->dir >= 0)
        pawl_direct_facts_remove(set->dir, q->id);
    pawl_list_remove(&q->place);
    free(q);
}

static uint64_t earliest(const struct pawl_directs *set)
{
    uint64_t next = UINT64_MAX;
    for (struct pawl_list *l = set->queues.next; l != &set->queues; l = l->next) {
        const struct pawl_direct_queue *q = PAWL_CONTAINER(l, struct pawl_direct_queue, place);
        next = pawl_min_u64(next, pawl_min_u64(q->sweep_at, q->life_at));
    }
    return next;
}

/* The list is walked only where something is due, or changed since: turns are many. */
uint32_t pawl_directs_turn(struct pawl_directs *set, uint64_t boot, uint64_t durable)
{
    uint32_t n = 0;
    bool waits = false; /* a dropped queue for the log */
    set->boot = boot;
    set->durable = durable;
    if (boot < set->due)
        return 0;
    struct pawl_list *next;
    for (struct pawl_list *l = set->queues.next; l != &set->queues; l = next) {
        struct pawl_direct_queue *q = PAWL_CONTAINER(l, struct pawl_direct_queue, place);
        next = l->next;
        if (q->dropped && q->visible < durable) {
            drop(set, q);
            n++;
        } else {
            waits = waits || q->dropped;
            n += turn_of(set, q);
        }
    }
    set->due = waits ? 0 : earliest(set);
    return n;
}

uint64_t pawl_directs_next(const struct pawl_directs *set)
{
    return set->due ? set->due : earliest(set);
}

/* --- what the core says ---------------------------------------------------------------------- */

struct pawl_direct_queue *pawl_direct_queue_add(struct pawl_directs *set, uint64_t id,
                                                const char *name,
                                                const struct pawl_queue_options *options)
{
    struct pawl_direct_queue *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->id = id;
    q->fd = -1;
    q->options = *options;
    q->sweep_at = q->life_at = UINT64_MAX;
    memcpy(q->name, name, strlen(name) + 1);
    pawl_list_push_back(&set->queues, &q->place);
    return q;
}

static int create(void *ctx, uint64_t id, const char *name,
                  const struct pawl_queue_options *options)
{
    struct pawl_directs *set = ctx;
    struct pawl_direct_queue *q = pawl_direct_queue_add(set, id, name, options);
    if (!q)
        return PAWL_E_FULL;
    q->visible = UINT64_MAX;
    int rc = pawl_direct_queue_make(set, q);
    if (rc != PAWL_OK) {
        pawl_list_remove(&q->place);
        free(q);
    }
    return rc;
}

static void changed(void *ctx, uint64_t id, bool gone, uint64_t wait_lsn)
{
    struct pawl_directs *set = ctx;
    struct pawl_direct_queue *q = pawl_directs_find(set, id);
    if (!q)
        return;
    q->visible = wait_lsn;
    q->dropped = gone;
    set->due = 0;
}

/* --- start and stop -------------------------------------------------------------------------- */

/* What an earlier broker has left of it. */
static void recover(void *ctx, uint64_t id, const char *name,
                    const struct pawl_queue_options *options)
{
    struct pawl_directs *set = ctx;
    struct pawl_direct_queue *q = pawl_direct_queue_add(set, id, name, options);
    int fd = -1;
    if (!q) {
        pawl_sessions_say(set->sessions, "direct queue %s: no memory for it", name);
        return;
    }
    if (set->dir < 0 || pawl_direct_facts_open(set->dir, id, false, &fd) != 0)
        return;
    struct pawl_direct_facts facts;
    bool valid = pawl_direct_facts_read(fd, id, set->boot_id, &facts);
    (void)close(fd);
    if (!valid)
        return;
    q->shape = shape_of(options, facts.secret[0]);
    if (pawl_direct_shape_check(&q->shape) != PAWL_OK ||
        pawl_direct_bytes(&q->shape) != facts.bytes)
        return;
    q->facts = facts;
    q->given_up = set->boot + set->sessions->limits.grace_ns;
    if (!holder_lives(set, q))
        return;
    q->where = PAWL_DIRECT_PLACE_AWAITED;
    q->sweep_at = set->boot;
    set->awaited++;
}

static bool is_known(void *ctx, uint64_t id) { return pawl_directs_find(ctx, id) != NULL; }

void pawl_directs_start(struct pawl_directs *set, struct pawl_core *core, int directory,
                        uint64_t boot)
{
    pawl_list_init(&set->queues);
    set->core = core;
    set->boot = boot;
    if (mkdirat(directory, "direct", 0700) != 0 && errno != EEXIST)
        pawl_sessions_say(set->sessions, "DIR/direct cannot be made: %s", strerror(errno));
    set->dir = openat(directory, "direct", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    pawl_core_direct_each(core, recover, set);
    if (set->dir >= 0)
        pawl_direct_facts_sweep(set->dir, is_known, set);
    const struct pawl_core_direct direct = {
        .ctx = set,
        .create = create,
        .changed = changed,
        .stat = pawl_directs_stat,
        .scan = pawl_directs_scan,
        .restore = pawl_directs_restore,
    };
    pawl_core_set_direct(core, &direct);
}

void pawl_directs_stop(struct pawl_directs *set)
{
    if (!set->core)
        return;
    while (!pawl_list_empty(&set->queues)) {
        struct pawl_direct_queue *q =
            PAWL_CONTAINER(set->queues.next, struct pawl_direct_queue, place);
        let_go(set, q);
        pawl_list_remove(&q->place);
        free(q);
    }
    if (set->dir >= 0)
        (void)close(set->dir);
    set->core = NULL;
}
