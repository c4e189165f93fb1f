/* SPDX-License-Identifier: MIT */
/* The engine against a log and a core that are played by this file: so each rule is asked alone.
 * (unit/engine_log_test and the simulator run it with the real ones.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/unit.h"
#include "loop/effects.h"
#include "loop/engine.h"

#define SEGMENT (1ull << 20)
#define LOG_MAX (64u * SEGMENT)
#define BLOCK 262144u
#define MS 1000000ull

/* --- the log that is played ------------------------------------------------------------------ */

static struct {
    uint64_t room, appended, durable, existing, oldest, newest, wanted;
    uint32_t in_flight, seals, marks, releases, tends;
    uint32_t rescues;
    bool pending, failed, marked, grows, full, refuse_seal, admits_large;
    uint8_t bytes[1 << 16];
} wal;

int pawl_log_open(struct pawl_io *io, const struct pawl_log_options *options,
                  pawl_log_replay *replay, void *ctx, struct pawl_log **out,
                  struct pawl_log_info *info, char text[PAWL_LOG_TEXT_BYTES])
{
    (void)io, (void)replay, (void)ctx, (void)text;
    memset(info, 0, sizeof *info);
    info->segment_bytes = SEGMENT;
    info->record_bytes_max = SEGMENT / 2;
    info->time_ns = 5000 * MS;
    info->epoch = 1;
    (void)options;
    *out = (struct pawl_log *)&wal;
    return PAWL_LOG_OK;
}
void pawl_log_close(struct pawl_log *log) { (void)log; }
uint64_t pawl_log_room(const struct pawl_log *log)
{
    (void)log;
    return wal.room;
}
bool pawl_log_admit(struct pawl_log *log, uint64_t bytes)
{
    (void)log, (void)bytes;
    return wal.admits_large;
}
void *pawl_log_append(struct pawl_log *log, uint16_t type, uint32_t bytes, uint64_t *lsn)
{
    (void)log, (void)type;
    *lsn = wal.appended + 64;
    wal.appended = *lsn + bytes;
    wal.pending = true;
    wal.marked = false;
    return wal.bytes;
}
bool pawl_log_pending(const struct pawl_log *log)
{
    (void)log;
    return wal.pending;
}
uint32_t pawl_log_in_flight(const struct pawl_log *log)
{
    (void)log;
    return wal.in_flight;
}
uint64_t pawl_log_appended(const struct pawl_log *log)
{
    (void)log;
    return wal.appended;
}
uint64_t pawl_log_durable(const struct pawl_log *log)
{
    (void)log;
    return wal.durable;
}
bool pawl_log_failed(const struct pawl_log *log)
{
    (void)log;
    return wal.failed;
}
void pawl_log_seal(struct pawl_log *log, uint64_t t, uint64_t b, uint64_t w)
{
    (void)log, (void)t, (void)b, (void)w;
    if (wal.refuse_seal)
        return;
    wal.pending = false;
    wal.in_flight++;
    wal.seals++;
}
void pawl_log_mark(struct pawl_log *log, bool clean, uint64_t t, uint64_t b, uint64_t w)
{
    (void)log, (void)clean, (void)t, (void)b, (void)w;
    assert_false(wal.pending);
    assert_int_equal(wal.in_flight, 0);
    wal.marks++;
    wal.marked = true;
}
bool pawl_log_marked(const struct pawl_log *log)
{
    (void)log;
    return wal.marked;
}
void pawl_log_tend(struct pawl_log *log, uint64_t boot)
{
    (void)log, (void)boot;
    wal.tends++;
}
uint64_t pawl_log_existing(const struct pawl_log *log)
{
    (void)log;
    return wal.existing;
}
bool pawl_log_may_grow(const struct pawl_log *log)
{
    (void)log;
    return wal.grows;
}
void pawl_log_rescue(struct pawl_log *log)
{
    (void)log;
    wal.rescues++;
}
uint64_t pawl_log_max(const struct pawl_log *log)
{
    (void)log;
    return LOG_MAX;
}
bool pawl_log_disk_full(const struct pawl_log *log)
{
    (void)log;
    return wal.full;
}
void pawl_log_want(struct pawl_log *log, uint64_t bytes)
{
    (void)log;
    wal.wanted = bytes;
}
uint64_t pawl_log_oldest_segment(const struct pawl_log *log)
{
    (void)log;
    return wal.oldest;
}
uint64_t pawl_log_newest_segment(const struct pawl_log *log)
{
    (void)log;
    return wal.newest;
}
void pawl_log_release_oldest(struct pawl_log *log)
{
    (void)log;
    wal.oldest++;
    wal.releases++;
}

/* --- the core that is played ----------------------------------------------------------------- */

static struct {
    struct pawl_core_port port;
    uint64_t live, next, need, copy_left, copy_whole, copy_segment, copy_budget;
    uint64_t outcomes, outcomes_max;
    uint32_t refused, done, dropped;
    bool pump_more, tick_more;
} heart;

struct pawl_core *pawl_core_create(const struct pawl_core_options *o,
                                   const struct pawl_core_port *p)
{
    assert_int_equal(o->segment_bytes, SEGMENT);
    heart.port = *p;
    return (struct pawl_core *)&heart;
}
void pawl_core_destroy(struct pawl_core *core) { (void)core; }
int pawl_core_replay(struct pawl_core *core, uint64_t lsn, uint16_t type, const void *body,
                     uint32_t bytes)
{
    (void)core, (void)lsn, (void)type, (void)body, (void)bytes;
    return 0;
}
void pawl_core_booted(struct pawl_core *core, uint64_t epoch) { (void)core, (void)epoch; }
void pawl_core_clock(struct pawl_core *core, struct pawl_now now) { (void)core, (void)now; }
int pawl_core_start(struct pawl_core *core, struct pawl_now now, uint64_t epoch, bool same_boot)
{
    (void)core, (void)now, (void)epoch, (void)same_boot;
    return 0;
}
bool pawl_core_pump(struct pawl_core *core, struct pawl_now now)
{
    (void)core, (void)now;
    return heart.pump_more;
}
bool pawl_core_tick(struct pawl_core *core, struct pawl_now now, uint32_t budget)
{
    (void)core, (void)now, (void)budget;
    return heart.tick_more;
}
uint64_t pawl_core_next(const struct pawl_core *core)
{
    (void)core;
    return heart.next;
}
uint64_t pawl_core_need(const struct pawl_cmd *head)
{
    (void)head;
    return heart.need;
}
uint64_t pawl_core_live(const struct pawl_core *core)
{
    (void)core;
    return heart.live;
}
void pawl_core_refuse_sends(struct pawl_core *core, uint32_t limit)
{
    (void)core;
    heart.refused = limit;
}
void pawl_core_limit_outcomes(struct pawl_core *core, uint64_t bytes)
{
    (void)core;
    heart.outcomes_max = bytes;
}
uint64_t pawl_core_outcome_bytes(const struct pawl_core *core)
{
    (void)core;
    return heart.outcomes;
}
void pawl_core_effect_done(struct pawl_core *core, const struct pawl_effect *e, bool published,
                           uint64_t position)
{
    (void)core, (void)e, (void)position;
    heart.done++;
    heart.dropped += !published;
}
bool pawl_core_copy(struct pawl_core *core, uint64_t segment, uint64_t budget, struct pawl_now now)
{
    (void)core, (void)now;
    if (heart.copy_whole && segment != heart.copy_segment)
        heart.copy_left = heart.copy_whole;
    heart.copy_segment = segment;
    heart.copy_budget = budget;
    while (heart.copy_left > 0 && budget >= 1024 && heart.port.room(heart.port.ctx) >= 1024) {
        uint64_t lsn;
        (void)heart.port.append(heart.port.ctx, 1, 1024 - 64, &lsn);
        heart.copy_left = heart.copy_left > 1024 ? heart.copy_left - 1024 : 0;
        budget -= 1024;
    }
    return heart.copy_left == 0;
}

/* --- lanes that are played ------------------------------------------------------------------- */

static struct {
    struct pawl_effect seen[1 << 17];
    uint32_t count;
} out;

static bool lanes_reserve(void *ctx, uint32_t lane, uint32_t bytes)
{
    (void)ctx, (void)lane, (void)bytes;
    return true;
}
static void lanes_write(void *ctx, const struct pawl_effect *effect)
{
    (void)ctx;
    out.seen[out.count++] = *effect;
}
static void lanes_answer(void *ctx, uint32_t lane, uint64_t wait_lsn,
                         const struct pawl_core_answer *answer)
{
    (void)ctx;
    out.seen[out.count++] =
        (struct pawl_effect){ .lane = lane, .wait_lsn = wait_lsn, .seq = answer->seq };
}
static uint64_t lanes_random(void *ctx)
{
    (void)ctx;
    return 4; /* enough here */
}

static struct pawl_engine *engine;
static uint64_t clock_ns;

static void advance(uint64_t ns)
{
    clock_ns += ns;
    (void)pawl_engine_now(engine, clock_ns, 77);
}

static int setup(void **state)
{
    (void)state;
    memset(&wal, 0, sizeof wal);
    memset(&heart, 0, sizeof heart);
    heart.outcomes = LOG_MAX; /* none is still to come */
    out.count = 0;
    wal.room = BLOCK;
    wal.appended = wal.durable = 4096;
    wal.existing = 64 * SEGMENT;
    wal.grows = wal.marked = true;
    heart.next = UINT64_MAX;
    heart.need = 100;
    clock_ns = 1000 * MS;
    struct pawl_engine_options o = { .log = { .block_bytes = BLOCK,
                                              .in_flight_max = 2,
                                              .record_bytes_max = 1 << 24,
                                              .boot_ns = clock_ns },
                                     .core = { .memory_bytes = 64ull << 20 },
                                     .relaxed_window_ns = 10 * MS };
    struct pawl_engine_lanes lanes = { .reserve = lanes_reserve,
                                       .write = lanes_write,
                                       .answer = lanes_answer,
                                       .random = lanes_random };
    struct pawl_log_info info;
    char text[PAWL_LOG_TEXT_BYTES];
    return pawl_engine_open(NULL, &o, &lanes, &engine, &info, text);
}

static int teardown(void **state)
{
    (void)state;
    return pawl_engine_close(engine, false);
}

/* --- what the tests do ----------------------------------------------------------------------- */

static uint64_t append(uint32_t bytes)
{
    uint64_t lsn;
    (void)heart.port.append(heart.port.ctx, 1, bytes, &lsn);
    return lsn;
}

static void effect(uint32_t lane, uint64_t seq, uint64_t wait_lsn)
{
    struct pawl_effect e = { .lane = lane, .seq = seq, .wait_lsn = wait_lsn, .bytes = 40 };
    *heart.port.effect(heart.port.ctx, lane, wait_lsn) = e;
}

/* All that is in flight reaches the disk. */
static void disk_done(void)
{
    wal.in_flight = 0;
    wal.durable = (wal.appended + 4096) & ~4095ull;
}

static void an_effect_waits_until_its_record_is_durable(void **state)
{
    (void)state;
    uint64_t lsn = append(100);
    effect(1, 1, lsn);
    (void)pawl_engine_settle(engine);
    assert_int_equal(pawl_engine_publish(engine), 0);
    wal.durable = lsn; /* up to its beginning is not beyond it */
    assert_int_equal(pawl_engine_publish(engine), 0);
    assert_int_equal(out.count, 0);
    wal.durable = lsn + 1;
    assert_int_equal(pawl_engine_publish(engine), 1);
    assert_int_equal(out.seen[0].seq, 1);
}

static void what_wrote_nothing_waits_for_all_that_was_appended(void **state)
{
    (void)state;
    (void)append(100);
    effect(1, 1, heart.port.appended(heart.port.ctx));
    (void)pawl_engine_settle(engine);
    assert_int_equal(out.count, 0);
    disk_done();
    assert_int_equal(pawl_engine_publish(engine), 1);
    /* and when nothing was: at once */
    effect(1, 2, heart.port.appended(heart.port.ctx));
    (void)pawl_engine_settle(engine);
    assert_int_equal(out.count, 2);
}

static void an_effect_that_need_not_wait_goes_out_in_the_same_turn(void **state)
{
    (void)state;
    uint64_t lsn = append(100);
    effect(1, 1, lsn);
    effect(1, 2, 0);                /* relaxed: may overtake */
    assert_int_equal(out.count, 0); /* never from inside the core */
    (void)pawl_engine_settle(engine);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.seen[0].seq, 2);
}

static void effects_of_one_lane_that_wait_keep_their_order(void **state)
{
    (void)state;
    uint64_t lsn = append(100);
    effect(1, 1, lsn);
    effect(1, 2, 10); /* durable long ago, but behind the first */
    effect(2, 3, 10); /* another lane has nothing to wait for */
    (void)pawl_engine_settle(engine);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.seen[0].seq, 3);
    disk_done();
    assert_int_equal(pawl_engine_publish(engine), 2);
    assert_int_equal(out.seen[1].seq, 1);
    assert_int_equal(out.seen[2].seq, 2);
}

static bool answer(uint32_t lane, uint64_t seq, uint64_t wait_lsn)
{
    const struct pawl_core_answer a = { .seq = seq };
    return heart.port.answer(heart.port.ctx, lane, wait_lsn, &a);
}

static void an_answer_with_nothing_to_wait_for_goes_out_at_once(void **state)
{
    (void)state;
    uint64_t lsn = append(100);
    assert_false(answer(1, 1, lsn)); /* its record is not durable */
    assert_int_equal(out.count, 0);
    assert_true(answer(1, 2, 0));
    assert_true(answer(1, 3, 10)); /* durable long ago */
    assert_int_equal(out.count, 2);
    effect(1, 4, lsn);
    assert_false(answer(1, 5, 10)); /* behind the one that waits */
    assert_true(answer(2, 6, 10));  /* another lane's */
    effect(2, 7, 0);
    assert_false(answer(2, 8, 0)); /* behind one that has not gone out yet */
    assert_int_equal(out.count, 3);
    assert_int_equal(out.seen[2].seq, 6);
}

static void the_row_keeps_order_over_growth_and_wrap(void **state)
{
    (void)state;
    uint64_t seq = 0, seen = 0;
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < 300 * (round + 1); i++)
            effect(i % 7, ++seq, append(64));
        out.count = 0;
        /* two thirds become durable, so that the row begins anywhere */
        wal.durable = wal.durable + (wal.appended - wal.durable) * 2 / 3;
        (void)pawl_engine_publish(engine);
        for (uint32_t i = 0; i < out.count; i++)
            assert_int_equal(out.seen[i].seq, ++seen);
    }
    out.count = 0;
    disk_done();
    (void)pawl_engine_publish(engine);
    for (uint32_t i = 0; i < out.count; i++)
        assert_int_equal(out.seen[i].seq, ++seen);
    assert_int_equal(seen, seq);
    assert_int_equal(pawl_engine_waiting(engine), 0);
}

static void a_handle_is_free_when_nothing_names_it(void **state)
{
    (void)state;
    assert_true(pawl_engine_lane_idle(engine, 5));
    uint64_t lsn = append(100);
    effect(5, 1, lsn);
    assert_false(pawl_engine_lane_idle(engine, 5));
    assert_true(pawl_engine_lane_idle(engine, 6));
    effect(6, 2, 0);
    assert_false(pawl_engine_lane_idle(engine, 6));
    (void)pawl_engine_settle(engine);
    assert_true(pawl_engine_lane_idle(engine, 6));
    disk_done();
    (void)pawl_engine_publish(engine);
    assert_true(pawl_engine_lane_idle(engine, 5));
}

static void after_a_failed_write_nothing_goes_out(void **state)
{
    (void)state;
    uint64_t lsn = append(100);
    effect(1, 1, lsn);
    effect(1, 2, 0);
    wal.failed = true;
    wal.durable = lsn + 4096;
    assert_int_equal(pawl_engine_publish(engine), 0);
    assert_false(pawl_engine_settle(engine));
    assert_int_equal(out.count, 0);
    struct pawl_cmd head = { .type = PAWL_CMD_ACK };
    assert_false(pawl_engine_admits(engine, &head));
    assert_true(pawl_engine_failed(engine));
}

static void a_command_is_admitted_by_its_need(void **state)
{
    (void)state;
    struct pawl_cmd head = { .type = PAWL_CMD_ACK };
    heart.need = 200;
    wal.room = 200;
    assert_true(pawl_engine_admits(engine, &head));
    wal.room = 199;
    assert_false(pawl_engine_admits(engine, &head));
    heart.need = BLOCK + 1; /* only the log can tell for what is larger than a block */
    wal.admits_large = true;
    assert_true(pawl_engine_admits(engine, &head));
    wal.admits_large = false;
    assert_false(pawl_engine_admits(engine, &head));
    /* what no segment could ever hold is for the core to refuse: it waits for a block of its own
     * at most, not for ever */
    heart.need = 10 * SEGMENT;
    wal.room = SEGMENT / 2;
    assert_true(pawl_engine_admits(engine, &head));
}

static void a_send_that_is_refused_needs_no_room(void **state)
{
    (void)state;
    wal.grows = false;
    wal.existing = SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_LOG);
    wal.room = 0;
    struct pawl_cmd head = { .type = PAWL_CMD_SEND };
    assert_true(pawl_engine_admits(engine, &head));
    head.type = PAWL_CMD_ACK;
    assert_false(pawl_engine_admits(engine, &head));
}

/* --- seal ------------------------------------------------------------------------------------ */

static void a_block_that_somebody_waits_for_is_sealed_at_once(void **state)
{
    (void)state;
    effect(1, 1, append(100));
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 1);
    uint64_t records, blocks;
    pawl_engine_counts(engine, &records, &blocks);
    assert_int_equal(records, 1);
    assert_int_equal(blocks, 1);
}

static void a_second_block_waits_for_filling_or_for_the_first(void **state)
{
    (void)state;
    effect(1, 1, append(100));
    (void)pawl_engine_settle(engine);
    effect(1, 2, append(100));
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 1);
    /* nothing but the disk can change that: no early turn is asked for */
    assert_int_equal(pawl_engine_next(engine), UINT64_MAX);
    effect(1, 3, append(65000));
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 1);
    effect(1, 4, append(1000));
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 2);
    effect(1, 5, append(65536)); /* both slots are taken */
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 2);
    disk_done();
    (void)pawl_engine_publish(engine);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 3);
}

static void a_relaxed_block_waits_for_its_window(void **state)
{
    (void)state;
    (void)append(100);
    effect(1, 1, 0);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 0);
    assert_int_equal(pawl_engine_next(engine), clock_ns + 10 * MS);
    advance(10 * MS - 1);
    (void)append(100); /* the window runs from the first record */
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 0);
    advance(1);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 1);
}

static void a_relaxed_block_half_full_is_sealed_at_once(void **state)
{
    (void)state;
    (void)append(BLOCK / 2 - 100);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 0);
    (void)append(100);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 1);
}

static void an_answer_about_the_block_in_flight_does_not_make_the_next_one_wanted(void **state)
{
    (void)state;
    effect(1, 1, append(100));
    (void)pawl_engine_settle(engine);
    effect(1, 2, heart.port.appended(heart.port.ctx)); /* a read: waits for the same block */
    wal.in_flight = 0;
    (void)append(100); /* relaxed */
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 1);
}

static void a_command_that_found_no_room_has_the_block_sealed(void **state)
{
    (void)state;
    struct pawl_cmd head = { .type = PAWL_CMD_ACK };
    uint64_t progress = pawl_engine_progress(engine);
    (void)append(100);
    wal.room = 10;
    assert_false(pawl_engine_admits(engine, &head));
    assert_int_equal(pawl_engine_progress(engine), progress);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.seals, 1);
    assert_true(pawl_engine_progress(engine) != progress);
}

static void a_log_that_cannot_seal_is_not_asked_in_a_circle(void **state)
{
    (void)state;
    wal.refuse_seal = true; /* a full disk */
    (void)append(100);
    advance(20 * MS);
    assert_false(pawl_engine_settle(engine));
    assert_int_equal(pawl_engine_next(engine), UINT64_MAX);
    wal.full = true;
    assert_int_equal(pawl_engine_next(engine), clock_ns + 1000 * MS);
}

static void a_pump_without_room_waits_for_the_disk(void **state)
{
    (void)state;
    heart.pump_more = true;
    (void)append(100);
    wal.in_flight = 2;
    assert_false(pawl_engine_settle(engine)); /* nothing moved: no second look at once */
    wal.in_flight = 1;
    assert_true(pawl_engine_settle(engine)); /* sealed: there is room */
}

/* --- copy-forward ---------------------------------------------------------------------------- */

static void fill_segments(uint64_t n)
{
    wal.newest = n;
    wal.appended = wal.durable = n * SEGMENT + 4096;
    /* a turn before it matters, so that the jump is not taken for a turn's appends */
    uint64_t live = heart.live;
    heart.live = 100 * SEGMENT;
    (void)pawl_engine_settle(engine);
    heart.live = live;
}

static void copy_begins_beyond_twice_the_live_bytes_and_a_segment(void **state)
{
    (void)state;
    heart.live = SEGMENT;
    fill_segments(2);
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.copy_budget, 0);
    fill_segments(3);
    heart.copy_left = 1 << 20;
    (void)pawl_engine_settle(engine);
    assert_true(heart.copy_budget > 0);
    assert_int_equal(heart.copy_segment, 0);
}

static void the_only_segment_is_never_copied(void **state)
{
    (void)state;
    wal.oldest = wal.newest = 7;
    wal.appended = 8 * SEGMENT - 4096;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.copy_budget, 0);
    assert_int_equal(wal.releases, 0);
}

static void a_segment_is_released_when_its_copies_are_durable(void **state)
{
    (void)state;
    fill_segments(3);
    heart.copy_left = 10240;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.copy_left, 0);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.releases, 0);
    assert_int_equal(wal.seals, 1); /* the segment waits for them */
    wal.durable = wal.appended;     /* not beyond */
    wal.in_flight = 0;
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.releases, 0);
    disk_done();
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.releases, 1);
}

static void copies_keep_pace_with_what_is_appended(void **state)
{
    (void)state;
    fill_segments(4);
    heart.copy_left = SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.copy_budget, 65536);
    uint64_t lsn = append(100000);
    (void)lsn;
    (void)pawl_engine_settle(engine);
    assert_in_range(heart.copy_budget, 200000, 201000);
}

static void a_quarter_of_the_block_is_kept_for_copies(void **state)
{
    (void)state;
    struct pawl_cmd head = { .type = PAWL_CMD_ACK };
    fill_segments(4);
    heart.copy_left = SEGMENT;
    wal.in_flight = 2;
    (void)pawl_engine_settle(engine);
    assert_true(wal.pending);
    wal.room = BLOCK / 4 + 99;
    heart.need = 100;
    assert_false(pawl_engine_admits(engine, &head));
    wal.room = BLOCK / 4 + 100;
    assert_true(pawl_engine_admits(engine, &head));
}

static void a_log_that_cannot_grow_keeps_its_last_segments_for_copies(void **state)
{
    (void)state;
    struct pawl_cmd head = { .type = PAWL_CMD_ACK };
    wal.grows = false;
    heart.live = 4 * SEGMENT;
    wal.existing = 10 * SEGMENT; /* twice the live bytes and two */
    heart.need = 100;
    fill_segments(5);
    heart.copy_left = 0;
    heart.copy_budget = 0;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.copy_budget, 0); /* live and half a segment: nothing to win yet */
    assert_true(pawl_engine_admits(engine, &head));
    fill_segments(6);
    heart.copy_left = SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_true(heart.copy_budget > 0); /* before twice the live bytes */
    assert_true(pawl_engine_admits(engine, &head));
    fill_segments(8); /* one is left */
    heart.copy_left = SEGMENT;
    uint64_t progress = pawl_engine_progress(engine);
    (void)pawl_engine_settle(engine);
    assert_false(pawl_engine_admits(engine, &head));
    assert_true(pawl_engine_progress(engine) != progress);
    wal.oldest = 3; /* copied and released */
    progress = pawl_engine_progress(engine);
    (void)pawl_engine_settle(engine);
    assert_true(pawl_engine_admits(engine, &head));
    assert_true(pawl_engine_progress(engine) != progress);
}

/* Timers wait for that room, and nobody may come to settle again. */
static void a_released_segment_is_room_in_the_same_turn(void **state)
{
    (void)state;
    struct pawl_cmd head = { .type = PAWL_CMD_ACK };
    wal.grows = false;
    heart.live = 4 * SEGMENT;
    wal.existing = 10 * SEGMENT;
    heart.need = 100;
    fill_segments(8);
    heart.copy_left = 1024;
    (void)pawl_engine_settle(engine);
    assert_false(pawl_engine_admits(engine, &head));
    for (int i = 0; i < 4 && wal.releases == 0; i++) {
        disk_done();
        (void)pawl_engine_settle(engine);
    }
    assert_int_equal(wal.releases, 1);
    assert_true(pawl_engine_admits(engine, &head));
}

/* Crashes in the middle of copying have taken what was kept for it. */
static void a_log_without_room_to_copy_into_asks_for_one_segment_more(void **state)
{
    (void)state;
    wal.grows = false;
    heart.live = 4 * SEGMENT;
    wal.existing = 10 * SEGMENT;
    fill_segments(9);
    heart.copy_left = SEGMENT;
    wal.room = 0;
    wal.in_flight = 1;
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.rescues, 0); /* what is written may make room */
    wal.in_flight = 0;
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.rescues, 1);
    /* The one beyond the limit is for copies: sends do not count on it. */
    wal.existing = LOG_MAX + SEGMENT;
    heart.live = (LOG_MAX - 2 * SEGMENT) / 2 + 1;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_LOG);
}

/* Copies until nothing more is to do. Returns how many segments were released. */
static uint64_t copy_all(void)
{
    uint64_t before = wal.releases;
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t appended = wal.appended, releases = wal.releases;
        (void)pawl_engine_settle(engine);
        disk_done();
        wal.newest = (wal.appended - 1) / SEGMENT;
        if (wal.appended == appended && wal.releases == releases)
            break;
    }
    return wal.releases - before;
}

static void a_full_log_does_not_copy_itself_in_a_circle(void **state)
{
    (void)state;
    wal.grows = false;
    heart.live = 9 * SEGMENT;
    wal.existing = 20 * SEGMENT;
    fill_segments(11);
    heart.copy_whole = SEGMENT; /* what of it does not live is a gap again */
    heart.copy_segment = UINT64_MAX;
    assert_in_range(copy_all(), 10, 30); /* a round or two */
    assert_int_equal(copy_all(), 0);
    (void)append(SEGMENT / 2); /* something was written: it may have ended what lived */
    assert_in_range(copy_all(), 10, 30);
}

/* --- room ------------------------------------------------------------------------------------ */

static void sends_are_refused_by_the_rule_of_room(void **state)
{
    (void)state;
    wal.grows = false;
    heart.live = 3 * SEGMENT;
    wal.existing = 8 * SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_NONE);
    heart.live += 1;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_LOG);
    heart.live -= 1; /* at the edge it does not flutter */
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_LOG);
    heart.live = 2 * SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_NONE);
    heart.live = 4 * SEGMENT;
    wal.full = true;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_DISK);
}

static void outcomes_have_their_share_of_the_log(void **state)
{
    (void)state;
    wal.existing = 8 * SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.outcomes_max, LOG_MAX / 8);
    /* Where it cannot grow it is of what there is, and kept free of sends until it is taken. */
    wal.grows = false;
    heart.live = 5 * SEGMENT / 2;
    heart.outcomes = 0;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.outcomes_max, SEGMENT);
    assert_int_equal(heart.refused, PAWL_LIMIT_NONE);
    heart.live += 1;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_LOG);
    heart.outcomes = SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_NONE);
}

static void growth_is_asked_for_two_segments_ahead(void **state)
{
    (void)state;
    heart.live = SEGMENT;
    wal.existing = 6 * SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.wanted, 0);
    wal.existing = 6 * SEGMENT - 1;
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.wanted, 6 * SEGMENT);
    assert_int_equal(heart.refused, PAWL_LIMIT_NONE);
}

static void while_growth_is_late_sends_are_held_and_acks_are_not(void **state)
{
    (void)state;
    struct pawl_cmd send = { .type = PAWL_CMD_SEND }, ack = { .type = PAWL_CMD_ACK };
    heart.live = 4 * SEGMENT;
    wal.existing = 9 * SEGMENT - 1;
    (void)pawl_engine_settle(engine);
    assert_int_equal(heart.refused, PAWL_LIMIT_NONE);
    assert_false(pawl_engine_admits(engine, &send));
    assert_true(pawl_engine_admits(engine, &ack));
    uint64_t progress = pawl_engine_progress(engine);
    wal.existing = 10 * SEGMENT;
    (void)pawl_engine_settle(engine);
    assert_true(pawl_engine_admits(engine, &send));
    assert_true(pawl_engine_progress(engine) != progress);
}

/* --- idle ------------------------------------------------------------------------------------ */

static void an_idle_log_gets_one_marker(void **state)
{
    (void)state;
    effect(1, 1, append(100));
    (void)pawl_engine_settle(engine);
    disk_done();
    (void)pawl_engine_publish(engine);
    advance(99 * MS);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.marks, 0);
    assert_int_equal(pawl_engine_next(engine), clock_ns + 1 * MS);
    advance(1 * MS);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.marks, 1);
    advance(1000 * MS);
    (void)pawl_engine_settle(engine);
    assert_int_equal(wal.marks, 1);
    assert_int_equal(pawl_engine_next(engine), UINT64_MAX);
}

static void time_is_pawl_time_and_never_goes_back(void **state)
{
    (void)state;
    assert_int_equal(pawl_engine_shift(engine), 4000 * MS);
    assert_int_equal(pawl_engine_now(engine, clock_ns + 5, 1).time, 5000 * MS + 5);
    assert_int_equal(pawl_engine_now(engine, clock_ns, 2).time, 5000 * MS + 5);
    heart.next = 5000 * MS + 25;
    assert_int_equal(pawl_engine_next(engine), clock_ns + 25);
    heart.next = 1; /* due: now */
    assert_int_equal(pawl_engine_next(engine), clock_ns + 5);
}

static void timers_without_room_wait_for_the_disk(void **state)
{
    (void)state;
    heart.tick_more = true;
    heart.next = 1;
    assert_true(pawl_engine_timers(engine, 10));
    wal.room = 100;
    assert_false(pawl_engine_timers(engine, 10));
    assert_int_equal(pawl_engine_next(engine), UINT64_MAX);
}

static void what_still_waits_at_the_end_is_given_back(void **state)
{
    (void)state;
    struct pawl_effect e = {
        .lane = 1, .type = PAWL_EFFECT_DELIVERY, .wait_lsn = append(100), .bytes = 96
    };
    *heart.port.effect(heart.port.ctx, e.lane, e.wait_lsn) = e;
    assert_int_equal(pawl_engine_close(engine, false), PAWL_LOG_OK);
    assert_int_equal(heart.dropped, 1);
    assert_int_equal(setup(NULL), 0); /* for the teardown */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_effect_waits_until_its_record_is_durable),
        TEST(what_wrote_nothing_waits_for_all_that_was_appended),
        TEST(an_effect_that_need_not_wait_goes_out_in_the_same_turn),
        TEST(effects_of_one_lane_that_wait_keep_their_order),
        TEST(an_answer_with_nothing_to_wait_for_goes_out_at_once),
        TEST(the_row_keeps_order_over_growth_and_wrap),
        TEST(a_handle_is_free_when_nothing_names_it),
        TEST(after_a_failed_write_nothing_goes_out),
        TEST(a_command_is_admitted_by_its_need),
        TEST(a_send_that_is_refused_needs_no_room),
        TEST(a_block_that_somebody_waits_for_is_sealed_at_once),
        TEST(a_second_block_waits_for_filling_or_for_the_first),
        TEST(a_relaxed_block_waits_for_its_window),
        TEST(a_relaxed_block_half_full_is_sealed_at_once),
        TEST(an_answer_about_the_block_in_flight_does_not_make_the_next_one_wanted),
        TEST(a_command_that_found_no_room_has_the_block_sealed),
        TEST(a_log_that_cannot_seal_is_not_asked_in_a_circle),
        TEST(a_pump_without_room_waits_for_the_disk),
        TEST(copy_begins_beyond_twice_the_live_bytes_and_a_segment),
        TEST(the_only_segment_is_never_copied),
        TEST(a_segment_is_released_when_its_copies_are_durable),
        TEST(copies_keep_pace_with_what_is_appended),
        TEST(a_quarter_of_the_block_is_kept_for_copies),
        TEST(a_log_that_cannot_grow_keeps_its_last_segments_for_copies),
        TEST(a_released_segment_is_room_in_the_same_turn),
        TEST(a_log_without_room_to_copy_into_asks_for_one_segment_more),
        TEST(a_full_log_does_not_copy_itself_in_a_circle),
        TEST(sends_are_refused_by_the_rule_of_room),
        TEST(outcomes_have_their_share_of_the_log),
        TEST(growth_is_asked_for_two_segments_ahead),
        TEST(while_growth_is_late_sends_are_held_and_acks_are_not),
        TEST(an_idle_log_gets_one_marker),
        TEST(time_is_pawl_time_and_never_goes_back),
        TEST(timers_without_room_wait_for_the_disk),
        TEST(what_still_waits_at_the_end_is_given_back),
    };
    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
