/* SPDX-License-Identifier: MIT */
/* path: what the broker's own code costs a life, with nobody else on the way: intake, core, engine
 * and outbox are driven in one thread that also plays both clients, so no line moves between cores,
 * nobody sleeps and nobody is woken. The clock runs only while the broker's code does. Slices of
 * some milliseconds, of which a tenth is shown: another program that uses the machine now and then
 * does not change it. The figure for judging a change of that code; what is missing from
 * `throughput` then is shared lines, wake-ups and the disk. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/intake.h"
#include "loop/outbox.h"

#define RING_BYTES (256u << 10)
#define WINDOW 1024u
#define TURN 128u         /* sends a turn */
#define SLICE_LIVES 8192u /* many windows: what is in flight at both ends hardly counts */
#define BODY_BYTES_MAX 1024u

struct client {
    struct pawl_lane *lane;
    struct pawl_region sub_region, comp_region;
    struct pawl_ring_producer out;
    struct pawl_ring_consumer in;
    uint64_t seq, oldest; /* last one given; first without an answer */
};

struct path {
    struct pawl_io *io;
    struct pawl_engine *engine;
    struct pawl_lanes lanes;
    struct pawl_outbox outbox;
    struct pawl_intake intake;
    struct pawl_core_session *session;
    struct client producer, consumer;
    uint64_t queue;
    bool keys;      /* a dedup key each */
    uint64_t spent; /* in the broker's code */
    uint64_t sent, acked;
    uint64_t state; /* of the stand-in for random bits: the kernel's share is not the question */
};

static bool reserve(void *ctx, uint32_t lane, uint32_t bytes)
{
    struct path *p = ctx;
    return pawl_outbox_reserve(&p->outbox, lane, bytes);
}

static void write_effect(void *ctx, const struct pawl_effect *effect)
{
    struct path *p = ctx;
    pawl_outbox_write(&p->outbox, effect);
}

static void write_one_answer(void *ctx, uint32_t lane, uint64_t wait_lsn,
                             const struct pawl_core_answer *answer)
{
    struct path *p = ctx;
    pawl_outbox_answer(&p->outbox, lane, wait_lsn, answer);
}

static uint64_t give_random(void *ctx)
{
    struct path *p = ctx;
    return p->state = p->state * 6364136223846793005ull + 1442695040888963407ull;
}

/* --- the broker ------------------------------------------------------------------------------ */

/* Processor time of this thread: others may have the core in between. */
static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void turn(struct path *p, uint64_t wait_ns)
{
    uint64_t start = thread_ns();
    bool more;
    p->io->ops->wait(p->io, wait_ns);
    struct pawl_now now = pawl_engine_now(p->engine, pawl_clock_boot(), pawl_clock_wall());
    pawl_engine_publish(p->engine);
    pawl_engine_timers(p->engine, 1024);
    pawl_intake_drain(&p->intake, now, &more);
    pawl_engine_settle(p->engine);
    pawl_outbox_publish(&p->outbox);
    p->spent += thread_ns() - start;
    if (pawl_engine_failed(p->engine))
        bench_fail("the log failed");
}

static void open_engine(struct path *p, const char *dir)
{
    char text[PAWL_LOG_TEXT_BYTES + 256];
    p->io = pawl_io_auto_create(text);
    if (p->io == NULL)
        bench_fail("%s", text);
    int fd = mkdir(dir, 0700) == 0 ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0)
        bench_fail("%s: %s", dir, strerror(errno));
    struct pawl_engine_options o = {
        .log = { .dir = fd,
                 .segment_bytes = 64 << 20,
                 .max_bytes = 4ull << 30,
                 .block_bytes = 256 << 10,
                 .in_flight_max = 2,
                 .record_bytes_max = PAWL_CMD_BYTES_MAX + 4096,
                 .boot_ns = pawl_clock_boot(),
                 .wall_ns = pawl_clock_wall() },
        .core = { .memory_bytes = 4ull << 30,
                  .session_grace_ns = PAWL_NS_S,
                  .sessions_max = 16,
                  .queues_max = 16,
                  .admin_uid = geteuid() },
        .relaxed_window_ns = 10000000,
    };
    const struct pawl_engine_lanes lanes = {
        .ctx = p,
        .reserve = reserve,
        .write = write_effect,
        .answer = write_one_answer,
        .random = give_random,
    };
    struct pawl_log_info info;
    if (pawl_engine_open(p->io, &o, &lanes, &p->engine, &info, text) != PAWL_LOG_OK)
        bench_fail("%s", text);
    if (pawl_lanes_init(&p->lanes, p->io, 64 << 20) != 0)
        bench_fail("no memory");
    p->outbox = (struct pawl_outbox){ .lanes = &p->lanes, .engine = p->engine };
    pawl_intake_init(&p->intake, &p->lanes, p->engine);
}

static void open_lane(struct path *p, struct client *c)
{
    int fds[2];
    struct pawl_now now = pawl_engine_now(p->engine, pawl_clock_boot(), pawl_clock_wall());
    const struct pawl_attach_lane fresh = { .type = PAWL_ATTACH_LANE,
                                            .lane = PAWL_LANE_NEW,
                                            .sub_bytes = RING_BYTES,
                                            .comp_bytes = RING_BYTES,
                                            .window = WINDOW,
                                            .open_seq = 1,
                                            .next_seq = 1 };
    if (pawl_lane_create(&p->lanes, RING_BYTES, RING_BYTES, &c->lane, fds) != 0 ||
        pawl_core_lane_open(pawl_engine_core(p->engine), p->session, PAWL_LANE_NEW, WINDOW, &fresh,
                            c->lane->handle, now, &c->lane->core) != PAWL_OK ||
        pawl_region_map(fds[0], RING_BYTES, PAWL_REGION_WRITE, &c->sub_region) != 0 ||
        pawl_region_map(fds[1], RING_BYTES, 0, &c->comp_region) != 0)
        bench_fail("cannot open a lane");
    close(fds[0]);
    close(fds[1]);
    struct pawl_sub_shm *sub = c->sub_region.header;
    struct pawl_comp_shm *comp = c->comp_region.header;
    c->out = (struct pawl_ring_producer){ .data = c->sub_region.data,
                                          .size = RING_BYTES,
                                          .tail_shm = &sub->tail,
                                          .head_shm = &comp->sub_head };
    c->in = (struct pawl_ring_consumer){ .data = c->comp_region.data,
                                         .size = RING_BYTES,
                                         .tail_shm = &comp->tail,
                                         .head_shm = &sub->comp_head };
    c->oldest = 1;
    pawl_lane_activate(c->lane);
}

/* --- its clients ----------------------------------------------------------------------------- */

static void *claim(struct client *c, uint16_t type, uint32_t bytes)
{
    struct pawl_cmd *head = pawl_ring_claim(&c->out, bytes);
    if (head == NULL && pawl_ring_refresh(&c->out))
        head = pawl_ring_claim(&c->out, bytes);
    if (head == NULL)
        return NULL;
    c->seq++;
    *head = (struct pawl_cmd){
        .bytes = bytes, .type = type, .seq = c->seq, .open = (uint32_t)(c->seq - c->oldest)
    };
    return head;
}

/* Reads all; deliveries are acknowledged at once. Returns the value of the last answer. */
static uint64_t read_all(struct path *p, struct client *c)
{
    const void *record;
    uint32_t bytes;
    uint64_t value = 0;
    while (pawl_ring_next(&c->in, &record, &bytes) == PAWL_RING_RECORD) {
        const struct pawl_comp_answer *a = record;
        if (a->type == PAWL_COMP_ANSWER) {
            if (a->result < 0 || a->seq != c->oldest)
                bench_fail("answer %s to %llu where %llu was due", pawl_strname(a->result),
                           (unsigned long long)a->seq, (unsigned long long)c->oldest);
            c->oldest += a->count_minus_1 + 1u;
            value = a->value;
        } else if (a->type == PAWL_COMP_DELIVERY) {
            const struct pawl_comp_delivery *d = record;
            struct pawl_cmd_settle *s = claim(c, PAWL_CMD_ACK, sizeof(*s));
            if (s == NULL)
                bench_fail("no room for an ack");
            s->message = d->message;
            s->grant = d->grant;
            s->random = d->random;
            s->time_ns = 0;
            s->flags = s->text_bytes = 0;
            p->acked++;
        }
    }
    pawl_ring_release(&c->in, c->in.next);
    pawl_ring_publish(&c->out);
    return value;
}

static void send_some(struct path *p, uint32_t count, uint32_t body_bytes)
{
    static const uint8_t body[BODY_BYTES_MAX];
    struct client *c = &p->producer;
    for (uint32_t i = 0; i < count && c->seq + 1 - c->oldest < WINDOW; i++) {
        const uint64_t key[2] = { p->sent, 0x79656b };
        uint32_t key_bytes = p->keys ? sizeof(key) : 0;
        struct pawl_cmd_send *s =
            claim(c, PAWL_CMD_SEND, (uint32_t)sizeof(*s) + key_bytes + (body_bytes + 7) / 8 * 8);
        if (s == NULL)
            break;
        memset(&s->queue, 0, sizeof(*s) - sizeof(s->head));
        s->queue = p->queue;
        s->body_bytes = body_bytes;
        s->priority = PAWL_PRIORITY_DEFAULT;
        s->key_bytes = (uint8_t)key_bytes;
        memcpy(s + 1, key, key_bytes);
        memcpy((uint8_t *)(s + 1) + key_bytes, body, body_bytes);
        p->sent++;
    }
    pawl_ring_publish(&c->out);
}

static void set_up(struct path *p, enum pawl_mode mode, uint64_t retention_ns)
{
    const struct pawl_core_peer peer = { .uid = geteuid(), .gid = getegid(), .pid = getpid() };
    struct pawl_now now = pawl_engine_now(p->engine, pawl_clock_boot(), pawl_clock_wall());
    if (pawl_core_session_open(pawl_engine_core(p->engine), &peer, now, &p->session) != PAWL_OK)
        bench_fail("cannot open a session");
    open_lane(p, &p->producer);
    open_lane(p, &p->consumer);
    struct pawl_cmd_queue *q = claim(&p->producer, PAWL_CMD_QUEUE_CREATE, sizeof(*q));
    memset((uint8_t *)q + sizeof(q->head), 0, sizeof(*q) - sizeof(q->head));
    q->has_options = 1;
    snprintf(q->name, sizeof(q->name), "path");
    q->options = (struct pawl_queue_options)PAWL_QUEUE_OPTIONS_INIT;
    q->options.mode = mode;
    q->options.done_retention_ns = retention_ns;
    q->options.dedup_window_ns = PAWL_NS_S; /* entries come and go */
    pawl_ring_publish(&p->producer.out);
    for (int i = 0; i < 1000 && p->queue == 0; i++) {
        turn(p, 10000000);
        p->queue = read_all(p, &p->producer);
    }
    struct pawl_cmd_receive *r = claim(&p->consumer, PAWL_CMD_SUBSCRIBE, sizeof(*r) + 8);
    memset((uint8_t *)r + sizeof(r->head), 0, sizeof(*r) - sizeof(r->head));
    r->max = WINDOW;
    r->queue_count = 1;
    memcpy(r + 1, &p->queue, sizeof(p->queue));
    pawl_ring_publish(&p->consumer.out);
    turn(p, 0);
    read_all(p, &p->consumer);
}

/* --- measuring ------------------------------------------------------------------------------- */

struct path_run {
    const struct bench *b;
    enum pawl_mode mode;
    uint32_t body_bytes;
    bool keys;
    uint64_t retention_ns;
    double ns;
};

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void path_child(void *arg)
{
    struct path_run *run = arg;
    char dir[BENCH_PATH_BYTES + 16];
    static struct path p;
    static double slices[65536];
    uint32_t n = 0;
    snprintf(dir, sizeof(dir), "%s/path", run->b->dir);
    p.keys = run->keys;
    open_engine(&p, dir);
    set_up(&p, run->mode, run->retention_ns);
    uint64_t end = bench_now() + (uint64_t)(run->b->seconds * 1e9);
    /* One slice at least: on a crowded machine a second may hold little. */
    while ((bench_now() < end || n == 0) && n < sizeof(slices) / sizeof(slices[0])) {
        uint64_t acked = p.acked;
        p.spent = 0;
        while (p.acked < acked + SLICE_LIVES) {
            uint64_t before = p.sent + p.acked;
            send_some(&p, TURN, run->body_bytes);
            read_all(&p, &p.producer);
            read_all(&p, &p.consumer);
            /* Nothing for the broker: it waits for the disk, as it would in its loop. */
            turn(&p, before == p.sent + p.acked ? 10000000 : 0);
        }
        slices[n++] = (double)p.spent / (double)(p.acked - acked);
    }
    qsort(slices, n, sizeof(slices[0]), compare_double);
    run->ns = slices[n / 10];
    pawl_engine_close(p.engine, false);
    bench_tree_remove(dir);
}

double bench_path_life(const struct bench *b, enum pawl_mode mode, uint32_t body_bytes,
                       uint64_t retention_ns, bool keys)
{
    struct path_run *run = bench_share(sizeof(*run));
    run->b = b;
    run->mode = mode;
    run->body_bytes = body_bytes;
    run->keys = keys;
    run->retention_ns = retention_ns;
    bench_join(bench_spawn(b->broker_core, path_child, run), "path");
    double ns = run->ns;
    bench_unshare(run, sizeof(*run));
    return ns;
}

static void path_case(const struct bench *b, const char *name, enum pawl_mode mode,
                      uint32_t body_bytes, uint64_t retention_ns, bool keys)
{
    struct bench_result cost;
    bench_result_init(&cost, "path", "ns", "%s", name);
    bench_result_cores(&cost, 1);
    struct bench_repeats r = { 0 };
    while (bench_wanted(b, "path", name) && bench_repeat_next(b, &r)) {
        double ns = bench_path_life(b, mode, body_bytes, retention_ns, keys);
        if (bench_repeat_keep(b, &r))
            bench_result_value(&cost, ns);
    }
    cost.far = r.far;
    bench_result_print(b, &cost);
}

void bench_path(const struct bench *b)
{
    path_case(b, "path_memory_64", PAWL_MEMORY, 64, 0, false);
    path_case(b, "path_memory_64_forgotten", PAWL_MEMORY, 64, 1000000, false);
    path_case(b, "path_memory_64_keyed", PAWL_MEMORY, 64, 0, true);
    path_case(b, "path_memory_1024", PAWL_MEMORY, 1024, 0, false);
    path_case(b, "path_durable_64", PAWL_DURABLE, 64, 0, false);
}
