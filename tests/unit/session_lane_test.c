/* SPDX-License-Identifier: MIT */
/* The broker's end of a lane, with a client in the same process and an engine and core that are
 * played: promises of room, merged answers, publishing and waking, the bell, and what a hostile
 * client may write. Traps 1 and 4 of the measured path, M7, M8, N1. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/wake.h"
#include "base/prng.h"
#include "lib/unit.h"
#include "loop/intake.h"
#include "loop/outbox.h"

#define RING PAWL_RING_BYTES_MIN

/* --- engine, core and sessions that are played ----------------------------------------------- */

static struct {
    bool admits;
    uint64_t progress, durable;
    uint32_t taken, dropped, written, rooms, doomed;
    uint32_t answer_bytes, fixed_bytes, asked, free_asked;
    uint64_t free;
    uint32_t *changes; /* a word that the client changes while the broker looks at the log */
    uint32_t variable_bytes;
    uint64_t last_seq, last_deadline, shift;
    int take_result;
    const char *why;
} play;

bool pawl_engine_admits(struct pawl_engine *e, const struct pawl_cmd *head)
{
    (void)e, (void)head;
    play.asked++;
    return play.admits;
}
uint64_t pawl_engine_free(const struct pawl_engine *e)
{
    (void)e;
    play.free_asked++;
    if (play.changes)
        pawl_store_rlx_u32(play.changes, 128);
    return play.free;
}
uint64_t pawl_core_need(const struct pawl_cmd *head)
{
    return head->type == PAWL_CMD_SEND ? 100 + head->bytes : 100;
}
uint64_t pawl_engine_progress(const struct pawl_engine *e)
{
    (void)e;
    return play.progress;
}
struct pawl_core *pawl_engine_core(struct pawl_engine *e) { return (struct pawl_core *)e; }
struct pawl_log *pawl_engine_log(struct pawl_engine *e) { return (struct pawl_log *)e; }
uint64_t pawl_engine_shift(const struct pawl_engine *e)
{
    (void)e;
    return play.shift;
}
uint64_t pawl_log_durable(const struct pawl_log *log)
{
    (void)log;
    return play.durable;
}
uint32_t pawl_core_answer_bytes(uint16_t type)
{
    return type == PAWL_CMD_PEEK ? 40 + PAWL_DATA_BYTES_MAX : play.answer_bytes;
}
uint32_t pawl_core_fixed_bytes(uint16_t type)
{
    return type == PAWL_CMD_NONE || type >= PAWL_CMD_TYPES ? 0 : play.fixed_bytes;
}
int pawl_core_take(struct pawl_core *core, struct pawl_core_lane *lane, const void *fixed,
                   const void *variable, uint32_t variable_bytes, struct pawl_now now)
{
    (void)core, (void)lane, (void)variable, (void)now;
    const struct pawl_cmd *head = fixed;
    play.taken++;
    play.variable_bytes = variable_bytes;
    play.last_seq = head->seq;
    play.last_deadline = head->deadline;
    return play.take_result;
}
void pawl_core_ahead(struct pawl_core *core, const void *record, uint32_t bytes)
{
    (void)core, (void)record, (void)bytes;
}
void pawl_core_lane_room(struct pawl_core *core, struct pawl_core_lane *lane)
{
    (void)core, (void)lane;
    play.rooms++;
}
void pawl_core_effect_write(struct pawl_core *core, const struct pawl_effect *e, void *out,
                            uint64_t shift)
{
    (void)core, (void)shift;
    memset(out, 0, e->bytes);
    struct pawl_comp_delivery *d = out;
    d->bytes = e->bytes;
    d->type = e->type == PAWL_EFFECT_DATA ? PAWL_COMP_DATA : PAWL_COMP_DELIVERY;
    d->seq = e->seq;
}
void pawl_core_effect_done(struct pawl_core *core, const struct pawl_effect *e, bool published,
                           uint64_t position)
{
    (void)core, (void)e;
    if (published)
        assert_true(position > 0);
    play.written += published;
    play.dropped += !published;
}
void pawl_session_doom(struct pawl_session *session, int32_t result, const char *why)
{
    (void)session;
    assert_int_equal(result, PAWL_E_PROTOCOL);
    play.doomed++;
    play.why = why;
}

/* --- an io that only watches ----------------------------------------------------------------- */

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
static const struct pawl_io_ops io_ops = { .watch_add = watch_add, .watch_remove = watch_remove };
static struct pawl_io io = { .ops = &io_ops };

/* --- one lane and its client ----------------------------------------------------------------- */

static struct pawl_lanes lanes;
static struct pawl_lane *lane;
static struct pawl_outbox outbox;
static struct pawl_intake intake;
static struct {
    struct pawl_region sub_region, comp_region;
    struct pawl_sub_shm *sub;
    const struct pawl_comp_shm *comp;
    struct pawl_ring_producer out;
    struct pawl_ring_consumer in;
    uint64_t seq;
} client;

static int setup(void **state)
{
    (void)state;
    int fds[2];
    memset(&play, 0, sizeof play);
    play.admits = true;
    play.answer_bytes = 40;
    play.fixed_bytes = sizeof(struct pawl_cmd_one);
    play.durable = 1000000;
    if (pawl_lanes_init(&lanes, &io, 64ull << 20) != 0 ||
        pawl_lane_create(&lanes, RING, RING, &lane, fds) != 0)
        return -1;
    static int a_session;
    lane->session = (struct pawl_session *)&a_session; /* only passed on */
    outbox = (struct pawl_outbox){ .lanes = &lanes, .engine = (struct pawl_engine *)&play };
    pawl_intake_init(&intake, &lanes, (struct pawl_engine *)&play);
    memset(&client, 0, sizeof client);
    if (pawl_region_map(fds[0], RING, PAWL_REGION_WRITE, &client.sub_region) != 0 ||
        pawl_region_map(fds[1], RING, 0, &client.comp_region) != 0)
        return -1;
    (void)close(fds[0]);
    (void)close(fds[1]);
    client.sub = client.sub_region.header;
    client.comp = client.comp_region.header;
    client.out = (struct pawl_ring_producer){ .data = client.sub_region.data,
                                              .size = RING,
                                              .tail_shm = &client.sub->tail,
                                              .head_shm = &client.comp->sub_head };
    client.in = (struct pawl_ring_consumer){ .data = client.comp_region.data,
                                             .size = RING,
                                             .tail_shm = &client.comp->tail,
                                             .head_shm = &client.sub->comp_head };
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pawl_region_unmap(&client.sub_region);
    pawl_region_unmap(&client.comp_region);
    if (lane->comp)
        pawl_lane_close(lane, 0);
    pawl_lanes_fini(&lanes);
    return lanes.bytes == 0 ? 0 : -1;
}

static struct pawl_cmd *claim(uint16_t type, uint32_t bytes)
{
    if (!pawl_ring_refresh(&client.out))
        return NULL;
    struct pawl_cmd *head = pawl_ring_claim(&client.out, bytes);
    if (head)
        *head = (struct pawl_cmd){ .bytes = bytes, .type = type, .seq = ++client.seq };
    return head;
}

static void submit(uint16_t type, uint32_t bytes)
{
    assert_non_null(claim(type, bytes));
    (void)pawl_ring_publish(&client.out);
}

static uint32_t drain(void)
{
    bool more;
    return pawl_intake_drain(&intake, (struct pawl_now){ 1, 1 }, &more);
}

static void answer(uint64_t seq, uint64_t value, uint64_t lsn, uint8_t flags)
{
    struct pawl_effect e = { .lane = lane->handle,
                             .type = PAWL_EFFECT_ANSWER,
                             .seq = seq,
                             .value = value,
                             .lsn = lsn,
                             .flags = flags,
                             .bytes = 40 };
    pawl_outbox_write(&outbox, &e);
}

static void deliver(uint64_t seq, uint32_t bytes)
{
    struct pawl_effect e = {
        .lane = lane->handle, .type = PAWL_EFFECT_DELIVERY, .seq = seq, .bytes = bytes
    };
    pawl_outbox_write(&outbox, &e);
}

static const void *next(void)
{
    const void *record;
    uint32_t bytes;
    return pawl_ring_next(&client.in, &record, &bytes) == PAWL_RING_RECORD ? record : NULL;
}

/* --- answers --------------------------------------------------------------------------------- */

static void answers_that_run_on_share_a_record(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 5; s++)
        assert_true(pawl_outbox_promise(lane, s, 40));
    answer(1, 100, 7, PAWL_ANSWER_VALUES_RUN);
    answer(2, 101, 7, PAWL_ANSWER_VALUES_RUN);
    answer(3, 102, 7, PAWL_ANSWER_VALUES_RUN);
    answer(4, 103, 8, PAWL_ANSWER_VALUES_RUN); /* another lsn */
    answer(5, 105, 8, PAWL_ANSWER_VALUES_RUN); /* a gap in the values */
    assert_int_equal(pawl_outbox_publish(&outbox), 1);
    const struct pawl_comp_answer *a = next();
    assert_int_equal(a->count_minus_1, 2);
    assert_int_equal(a->seq, 1);
    assert_int_equal(a->value, 100);
    a = next();
    assert_int_equal(a->seq, 4);
    assert_int_equal(a->count_minus_1, 0);
    a = next();
    assert_int_equal(a->seq, 5);
    assert_null(next());
    assert_int_equal(pawl_load_acq_u64(&client.comp->events), 5);
    assert_int_equal(lane->promised_answers, 0);
}

static void what_is_published_does_not_change_any_more(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 2; s++)
        assert_true(pawl_outbox_promise(lane, s, 40));
    answer(1, 0, 7, 0);
    (void)pawl_outbox_publish(&outbox);
    const struct pawl_comp_answer *first = next();
    answer(2, 0, 7, 0);
    (void)pawl_outbox_publish(&outbox);
    assert_int_equal(first->count_minus_1, 0);
    const struct pawl_comp_answer *second = next();
    assert_non_null(second);
    assert_int_equal(second->seq, 2);
}

static void a_delivery_ends_a_run(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 2; s++)
        assert_true(pawl_outbox_promise(lane, s, 40));
    assert_true(pawl_outbox_reserve(&outbox, lane->handle, 160));
    answer(1, 0, 7, 0);
    deliver(9, 160);
    answer(2, 0, 7, 0);
    (void)pawl_outbox_publish(&outbox);
    assert_int_equal(((const struct pawl_comp_answer *)next())->seq, 1);
    assert_int_equal(((const struct pawl_comp_delivery *)next())->seq, 9);
    assert_int_equal(((const struct pawl_comp_answer *)next())->seq, 2);
}

static void nothing_is_seen_before_publish(void **state)
{
    (void)state;
    assert_true(pawl_outbox_promise(lane, 1, 40));
    answer(1, 0, 7, 0);
    assert_null(next());
    (void)pawl_outbox_publish(&outbox);
    assert_non_null(next());
}

/* --- promises -------------------------------------------------------------------------------- */

static void deliveries_leave_half_of_the_ring_to_answers(void **state)
{
    (void)state;
    uint32_t n = 0;
    while (pawl_outbox_reserve(&outbox, lane->handle, 1024))
        n++;
    assert_int_equal(n, RING / 2 / 1024);
    assert_int_equal(lane->room_wanted, 1024);
    uint32_t answers = 0;
    while (pawl_outbox_promise(lane, answers + 1, 40))
        answers++;
    assert_int_equal(answers, RING / 2 / 40);
}

static void one_delivery_of_half_the_ring_fits_beside_its_receive(void **state)
{
    (void)state;
    assert_true(pawl_outbox_promise(lane, 1, 40));
    assert_true(pawl_outbox_reserve(&outbox, lane->handle, RING / 2));
    deliver(1, RING / 2);
    answer(1, 1, 7, 0);
    (void)pawl_outbox_publish(&outbox);
    assert_non_null(next());
    assert_non_null(next());
}

static void a_large_answer_gives_back_what_it_did_not_use(void **state)
{
    (void)state;
    uint32_t large = pawl_core_answer_bytes(PAWL_CMD_PEEK);
    assert_true(pawl_outbox_promise(lane, 1, large));
    assert_true(pawl_outbox_promise(lane, 2, 40));
    assert_false(pawl_outbox_promise(lane, 3, large)); /* more than half */
    struct pawl_effect e = {
        .lane = lane->handle, .type = PAWL_EFFECT_DATA, .seq = 1, .bytes = 64
    };
    pawl_outbox_write(&outbox, &e);
    assert_int_equal(lane->promised_answers, 40);
    assert_true(pawl_outbox_promise(lane, 3, large));
    answer(3, 0, 0, 0); /* a refusal: short after all */
    answer(2, 0, 0, 0);
    assert_int_equal(lane->promised_answers, 0);
    assert_int_equal(lane->data_count, 0);
}

/* Any order of takes, grants, answers, reads: a promise always fits, whatever the client does. */
static void promises_always_fit(void **state)
{
    (void)state;
    uint64_t seed = getenv("PAWL_SEED") ? strtoull(getenv("PAWL_SEED"), NULL, 0) : 4711;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct pawl_prng p = { seed };
    uint64_t open[8192], promised = 0, deliveries[1024];
    uint32_t open_count = 0, delivery_count = 0;
    uint64_t answered = 0, read = 0;
    for (int i = 0; i < 300000; i++) {
        switch (pawl_prng_below(&p, 6)) {
        case 0:
        case 1:
            if (open_count < 8192 && pawl_outbox_promise(lane, promised + 1, 40))
                open[open_count++] = ++promised;
            break;
        case 2: {
            uint32_t bytes = 96 + 8 * (uint32_t)pawl_prng_below(&p, 600);
            if (delivery_count < 1024 && pawl_outbox_reserve(&outbox, lane->handle, bytes))
                deliveries[delivery_count++] = bytes;
            break;
        }
        case 3:
            if (open_count > 0) {
                uint32_t k = (uint32_t)pawl_prng_below(&p, open_count);
                answer(open[k], pawl_prng_below(&p, 2) * 5, 7, 0);
                open[k] = open[--open_count];
                answered++;
            }
            break;
        case 4:
            if (delivery_count > 0) {
                deliver(1, (uint32_t)deliveries[--delivery_count]);
                answered++;
            }
            break;
        default:
            (void)pawl_outbox_publish(&outbox);
            for (uint64_t n = pawl_prng_below(&p, 20); n > 0; n--) {
                const struct pawl_comp_answer *a = next();
                if (!a)
                    break;
                read += a->type == PAWL_COMP_ANSWER ? a->count_minus_1 + 1u : 1u;
            }
            pawl_ring_release(&client.in, client.in.next);
        }
    }
    (void)pawl_outbox_publish(&outbox);
    for (const struct pawl_comp_answer *a; (a = next());)
        read += a->type == PAWL_COMP_ANSWER ? a->count_minus_1 + 1u : 1u;
    assert_int_equal(read, answered);
    assert_int_equal(pawl_load_acq_u64(&client.comp->events), answered);
    assert_true(answered > 10000);
}

/* --- waking ---------------------------------------------------------------------------------- */

static int watch_socket(void)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    lane->watch_fd = ends[0];
    return ends[1];
}

static ssize_t bytes_in(int fd)
{
    char bytes[64];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 ? n : 0;
}

static void answer_and_publish(uint64_t seq)
{
    assert_true(pawl_outbox_promise(lane, seq, 40));
    answer(seq, 0, 0, 0);
    (void)pawl_outbox_publish(&outbox);
}

static void a_waiter_is_woken_once_when_he_has_what_he_waits_for(void **state)
{
    (void)state;
    int fd = watch_socket();
    answer_and_publish(1);
    assert_int_equal(bytes_in(fd), 0); /* nobody has announced */
    pawl_wait_announce(client.sub, 3, 1, PAWL_WAIT_FD);
    answer_and_publish(2);
    assert_int_equal(bytes_in(fd), 0); /* two of three */
    answer_and_publish(3);
    assert_int_equal(bytes_in(fd), 1);
    answer_and_publish(4);
    assert_int_equal(bytes_in(fd), 0); /* the same announcement */
    pawl_wait_announce(client.sub, 5, 2, PAWL_WAIT_FD);
    answer_and_publish(5);
    assert_int_equal(bytes_in(fd), 1);
    pawl_wait_withdraw(client.sub);
    answer_and_publish(6);
    assert_int_equal(bytes_in(fd), 0);
    (void)close(fd);
}

static void a_futex_waiter_sees_the_word_move(void **state)
{
    (void)state;
    uint32_t before = pawl_load_acq_u32(&client.comp->wake);
    pawl_wait_announce(client.sub, 1, 1, PAWL_WAIT_FUTEX);
    answer_and_publish(1);
    assert_int_equal(pawl_load_acq_u32(&client.comp->wake), before + 1);
    answer_and_publish(2);
    assert_int_equal(pawl_load_acq_u32(&client.comp->wake), before + 1);
}

static void a_watcher_that_never_reads_does_not_block_the_broker(void **state)
{
    (void)state;
    int fd = watch_socket();
    for (uint32_t i = 1; i < 100000; i++)
        pawl_lane_wake(lane, PAWL_WAIT_FD);
    assert_true(bytes_in(fd) > 0);
    (void)close(fd);
    pawl_lane_wake(lane, PAWL_WAIT_FD); /* nobody there: no signal, no error */
    pawl_lane_wake(lane, 3);            /* a kind that does not exist */
}

static void durable_lsn_follows_a_relaxed_answer(void **state)
{
    (void)state;
    play.durable = 100;
    assert_true(pawl_outbox_promise(lane, 1, 40));
    answer(1, 0, 150, 0);
    (void)pawl_outbox_publish(&outbox);
    assert_int_equal(pawl_load_acq_u64(&client.comp->durable_lsn), 100);
    play.durable = 140;
    (void)pawl_outbox_publish(&outbox); /* nothing to publish, but the word moves */
    assert_int_equal(pawl_load_acq_u64(&client.comp->durable_lsn), 140);
    play.durable = 200;
    (void)pawl_outbox_publish(&outbox);
    assert_int_equal(pawl_load_acq_u64(&client.comp->durable_lsn), 200);
    play.durable = 300; /* its answers are durable: no more work for an idle lane */
    (void)pawl_outbox_publish(&outbox);
    assert_int_equal(pawl_load_acq_u64(&client.comp->durable_lsn), 200);
}

/* --- bell ------------------------------------------------------------------------------------ */

static void an_idle_lane_leaves_the_active_set_and_a_bell_brings_it_back(void **state)
{
    (void)state;
    uint32_t rung = 0;
    pawl_lane_activate(lane);
    for (uint32_t i = 0; i + 1 < PAWL_LANE_EMPTY_TURNS; i++)
        (void)drain();
    assert_true(lane->active);
    assert_false(pawl_bell_pending(client.comp, PAWL_BELL_SUBMIT, &rung));
    (void)drain();
    assert_false(lane->active);
    assert_int_equal(lanes.active_count, 0);
    submit(PAWL_CMD_STOP, sizeof(struct pawl_cmd_one));
    assert_int_equal(drain(), 0); /* not looked at: it costs nothing */
    assert_true(pawl_bell_pending(client.comp, PAWL_BELL_SUBMIT, &rung));
    assert_false(pawl_bell_pending(client.comp, PAWL_BELL_SUBMIT, &rung));
    lane->bell.ready(&lane->bell, 1);
    assert_int_equal(drain(), 1);
}

static void the_second_look_finds_what_came_before_the_announcement(void **state)
{
    (void)state;
    uint32_t rung = 0;
    pawl_lane_activate(lane);
    submit(PAWL_CMD_STOP, sizeof(struct pawl_cmd_one));
    assert_false(pawl_lane_rest(lane));
    assert_true(lane->active);
    assert_false(pawl_bell_pending(client.comp, PAWL_BELL_SUBMIT, &rung));
}

static void each_announcement_has_a_number_of_its_own(void **state)
{
    (void)state;
    uint32_t rung = 0;
    for (int i = 0; i < 5; i++) {
        pawl_lane_activate(lane);
        assert_true(pawl_lane_rest(lane));
        assert_true(pawl_bell_pending(client.comp, PAWL_BELL_SUBMIT, &rung));
    }
}

/* --- blocked --------------------------------------------------------------------------------- */

static void a_lane_without_answer_room_rests_until_its_client_reads(void **state)
{
    (void)state;
    uint32_t rung = 0;
    pawl_lane_activate(lane);
    /* the ring full of unread answers */
    for (uint64_t s = 1; pawl_outbox_promise(lane, s, 40); s++)
        answer(s, s * 7, 0, 0);
    (void)pawl_outbox_publish(&outbox);
    submit(PAWL_CMD_STOP, sizeof(struct pawl_cmd_one));
    assert_int_equal(drain(), 0);
    assert_false(lane->active); /* not looked at in vain */
    assert_false(pawl_bell_pending(client.comp, PAWL_BELL_SUBMIT, &rung));
    assert_true(pawl_bell_pending(client.comp, PAWL_BELL_ROOM, &rung));
    while (next())
        ;
    pawl_ring_release_seq(&client.in, client.in.next);
    lane->bell.ready(&lane->bell, 1);
    assert_int_equal(drain(), 1);
}

static void a_lane_whose_own_answers_are_on_the_way_goes_on_when_they_leave(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    uint64_t s = 1;
    for (; pawl_outbox_promise(lane, s, 40); s++)
        ;
    submit(PAWL_CMD_STOP, sizeof(struct pawl_cmd_one));
    assert_int_equal(drain(), 0);
    assert_false(lane->active);
    answer(1, 0, 0, 0);
    assert_true(lane->active);
    assert_int_equal(drain(), 1);
}

static void a_delivery_without_room_is_offered_again(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    while (pawl_outbox_reserve(&outbox, lane->handle, 4096))
        deliver(1, 4096);
    (void)pawl_outbox_publish(&outbox);
    (void)drain();
    assert_int_equal(play.rooms, 0);
    (void)next();
    (void)next();
    pawl_ring_release_seq(&client.in, client.in.next);
    (void)drain();
    assert_int_equal(play.rooms, 1);
    assert_int_equal(lane->room_wanted, 0);
    assert_true(pawl_outbox_reserve(&outbox, lane->handle, 4096));
}

static void a_full_log_is_not_asked_again_until_it_moves(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    submit(PAWL_CMD_STOP, sizeof(struct pawl_cmd_one));
    play.admits = false;
    assert_int_equal(drain(), 0);
    play.admits = true;
    assert_int_equal(drain(), 0);
    assert_true(pawl_intake_rest(&intake)); /* nothing to do but wait for the disk */
    assert_true(lane->active);
    play.progress++;
    assert_false(pawl_intake_rest(&intake));
    assert_int_equal(drain(), 1);
}

static void room_that_was_found_free_is_used_up_before_it_is_asked_for_again(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    play.free = 450; /* a send of 60 bytes needs 164, an ack 100 */
    submit(PAWL_CMD_SEND, 64);
    submit(PAWL_CMD_ACK, 64);
    submit(PAWL_CMD_ACK, 64);
    assert_int_equal(drain(), 3);
    assert_int_equal(play.free_asked, 1);
    assert_int_equal(play.asked, 0);
    submit(PAWL_CMD_ACK, 64); /* a new drain knows nothing of the last one */
    assert_int_equal(drain(), 1);
    assert_int_equal(play.free_asked, 2);
    play.free = 99;
    submit(PAWL_CMD_ACK, 64); /* too little: asked by name */
    assert_int_equal(drain(), 1);
    assert_int_equal(play.asked, 1);
    play.free = 1000;
    submit(PAWL_CMD_RECEIVE, 64); /* may take all that there is */
    submit(PAWL_CMD_ACK, 64);
    play.free_asked = 0;
    assert_int_equal(drain(), 2);
    assert_int_equal(play.free_asked, 2);
}

/* --- hostile --------------------------------------------------------------------------------- */

static void doomed_by(const char *part)
{
    assert_int_equal(play.doomed, 1);
    assert_non_null(strstr(play.why, part));
}

static void a_tail_out_of_range_ends_the_session(void **state)
{
    (void)state;
    static const uint64_t tails[] = { RING + 8, 1ull << 32, UINT64_MAX, UINT64_MAX - 7, 4 };
    for (unsigned i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        play.doomed = 0;
        pawl_lane_activate(lane);
        pawl_store_seq_u64(&client.sub->tail, tails[i]);
        (void)drain();
        doomed_by("submission ring");
        lane->in.tail = 0;
    }
}

static void a_tail_that_goes_back_ends_the_session(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    submit(PAWL_CMD_STOP, 64);
    assert_int_equal(drain(), 1);
    pawl_store_seq_u64(&client.sub->tail, 32);
    (void)drain();
    doomed_by("submission ring");
}

static void a_record_size_out_of_range_ends_the_session(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 0, 4, 7, 12, 72, 80, RING, UINT32_MAX, 0x80000000u };
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        play.doomed = 0;
        pawl_lane_activate(lane);
        struct pawl_cmd *head = claim(PAWL_CMD_STOP, 64);
        head->bytes = sizes[i];
        (void)pawl_ring_publish(&client.out);
        (void)drain();
        doomed_by("submission ring");
        lane->in.next = lane->in.tail = client.out.tail; /* for the next one */
        (void)pawl_outbox_publish(&outbox);
    }
    assert_int_equal(play.taken, 0);
}

static void a_malformed_command_ends_the_session(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    submit(PAWL_CMD_STOP, 24); /* shorter than a head */
    (void)drain();
    doomed_by("malformed");
    play.doomed = 0;
    submit(PAWL_CMD_TYPES, 64); /* no such type */
    (void)drain();
    doomed_by("malformed");
    play.doomed = 0;
    play.fixed_bytes = 72; /* shorter than its fixed part */
    pawl_intake_init(&intake, &lanes, (struct pawl_engine *)&play);
    submit(PAWL_CMD_ACK, 64);
    (void)drain();
    doomed_by("malformed");
    assert_int_equal(play.taken, 0);
    play.doomed = 0;
    play.take_result = PAWL_E_PROTOCOL;
    submit(PAWL_CMD_ACK, 128);
    (void)drain();
    doomed_by("malformed");
}

static void a_head_beyond_what_was_written_ends_the_session(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    pawl_store_seq_u64(&client.sub->comp_head, 4096);
    (void)drain();
    doomed_by("never written");
}

static void a_size_that_changes_while_it_is_judged_counts_for_nothing(void **state)
{
    (void)state;
    pawl_lane_activate(lane);
    struct pawl_cmd *head = claim(PAWL_CMD_STOP, 64);
    play.changes = &head->bytes;
    (void)pawl_ring_publish(&client.out);
    assert_int_equal(drain(), 1);
    assert_int_equal(play.free_asked, 1);
    assert_int_equal(head->bytes, 128);
    assert_int_equal(play.variable_bytes, 64 - play.fixed_bytes);
}

/* A client that changes the size of a record all the time: whichever of the two we read, we use
 * that one alone. */
static uint32_t flip_stop;
static uint32_t *flip_word;

static void *flip(void *arg)
{
    (void)arg;
    while (pawl_load_rlx_u32(&flip_stop) == 0) {
        pawl_store_rlx_u32(flip_word, 64);
        pawl_store_rlx_u32(flip_word, 128);
    }
    return NULL;
}

static void a_size_that_changes_is_read_once(void **state)
{
    (void)state;
    pthread_t thread;
    struct pawl_cmd *head = claim(PAWL_CMD_STOP, 64);
    flip_word = &head->bytes;
    flip_stop = 0;
    (void)pawl_ring_publish(&client.out);
    assert_int_equal(pthread_create(&thread, NULL, flip, NULL), 0);
    uint64_t taken = 0;
    /* Until both values were read often: on a busy machine the other thread may not run for long.
     */
    for (int i = 0; i < 100000000 && !(taken > 300000 && play.doomed > 30000); i++) {
        (void)pawl_intake_lane(&intake, lane, (struct pawl_now){ 1, 1 }, 1);
        if (play.taken > 0) {
            /* the record is 64 bytes: 128 would reach beyond what was published */
            if (play.variable_bytes != 64 - play.fixed_bytes)
                break;
            taken++;
            play.taken = 0;
            lane->promised_answers = 0;
        }
        lane->in.next = 0; /* the same again */
    }
    pawl_store_rlx_u32(&flip_stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (play.taken != 0)
        assert_int_equal(play.variable_bytes, 64 - play.fixed_bytes);
    assert_true(taken > 1000);
    assert_true(play.doomed > 0); /* the other value was seen too */
    lane->in.next = lane->in.tail;
}

static void a_deadline_is_put_on_pawl_time_without_overflow(void **state)
{
    (void)state;
    static const struct {
        uint64_t deadline, shift, want;
    } rows[] = { { 0, 50, 0 },
                 { 7, 50, 57 },
                 { UINT64_MAX - 3, 50, UINT64_MAX },
                 { 70, (uint64_t)-50, 20 },
                 { 30, (uint64_t)-50, 1 } };
    pawl_lane_activate(lane);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        play.shift = rows[i].shift;
        struct pawl_cmd *head = claim(PAWL_CMD_STOP, 40);
        head->deadline = rows[i].deadline;
        (void)pawl_ring_publish(&client.out);
        assert_int_equal(drain(), 1);
        assert_true(play.last_deadline == rows[i].want);
    }
}

/* --- lanes ----------------------------------------------------------------------------------- */

static void a_closed_lane_drops_what_comes_for_it(void **state)
{
    (void)state;
    assert_true(pawl_outbox_reserve(&outbox, lane->handle, 160));
    uint32_t handle = lane->handle;
    uint64_t bytes = lanes.bytes;
    pawl_lane_close(lane, PAWL_E_EPOCH);
    assert_int_equal(pawl_load_acq_u32(&client.comp->state), PAWL_LANE_CLOSED);
    assert_int_equal((int32_t)client.comp->reason, PAWL_E_EPOCH);
    assert_int_equal(lanes.bytes, bytes); /* still counted: its effects wait */
    deliver(1, 160);
    answer(1, 0, 0, 0);
    assert_int_equal(play.dropped, 1);
    assert_false(pawl_outbox_reserve(&outbox, handle, 160));
    assert_int_equal(pawl_outbox_publish(&outbox), 0);
}

static void lane_memory_has_a_limit(void **state)
{
    (void)state;
    struct pawl_lane *others[8];
    int fds[2], n = 0, rc = 0;
    lanes.bytes_max = 4 * pawl_lane_cost(RING, RING);
    for (; n < 8; n++) {
        rc = pawl_lane_create(&lanes, RING, RING, &others[n], fds);
        if (rc != 0)
            break;
        (void)close(fds[0]);
        (void)close(fds[1]);
    }
    assert_int_equal(n, 3);
    assert_int_equal(rc, -EDQUOT);
    while (n-- > 0) {
        pawl_lane_close(others[n], 0);
        pawl_lane_free(others[n]);
    }
    assert_int_equal(lanes.bytes, pawl_lane_cost(RING, RING));
}

static void a_share_bounds_what_one_lane_takes_in_a_turn(void **state)
{
    (void)state;
    bool more;
    pawl_lane_activate(lane);
    for (uint32_t i = 0; i < PAWL_INTAKE_LANE_SHARE + 3; i++)
        assert_non_null(claim(PAWL_CMD_STOP, 40));
    (void)pawl_ring_publish(&client.out);
    assert_int_equal(pawl_intake_drain(&intake, (struct pawl_now){ 1, 1 }, &more),
                     PAWL_INTAKE_LANE_SHARE);
    assert_true(more);
    assert_int_equal(pawl_intake_drain(&intake, (struct pawl_now){ 1, 1 }, &more), 3);
    assert_false(more);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_that_run_on_share_a_record),
        TEST(what_is_published_does_not_change_any_more),
        TEST(a_delivery_ends_a_run),
        TEST(nothing_is_seen_before_publish),
        TEST(deliveries_leave_half_of_the_ring_to_answers),
        TEST(one_delivery_of_half_the_ring_fits_beside_its_receive),
        TEST(a_large_answer_gives_back_what_it_did_not_use),
        TEST(promises_always_fit),
        TEST(a_waiter_is_woken_once_when_he_has_what_he_waits_for),
        TEST(a_futex_waiter_sees_the_word_move),
        TEST(a_watcher_that_never_reads_does_not_block_the_broker),
        TEST(durable_lsn_follows_a_relaxed_answer),
        TEST(an_idle_lane_leaves_the_active_set_and_a_bell_brings_it_back),
        TEST(the_second_look_finds_what_came_before_the_announcement),
        TEST(each_announcement_has_a_number_of_its_own),
        TEST(a_lane_without_answer_room_rests_until_its_client_reads),
        TEST(a_lane_whose_own_answers_are_on_the_way_goes_on_when_they_leave),
        TEST(a_delivery_without_room_is_offered_again),
        TEST(a_full_log_is_not_asked_again_until_it_moves),
        TEST(room_that_was_found_free_is_used_up_before_it_is_asked_for_again),
        TEST(a_tail_out_of_range_ends_the_session),
        TEST(a_tail_that_goes_back_ends_the_session),
        TEST(a_record_size_out_of_range_ends_the_session),
        TEST(a_malformed_command_ends_the_session),
        TEST(a_head_beyond_what_was_written_ends_the_session),
        TEST(a_size_that_changes_while_it_is_judged_counts_for_nothing),
        TEST(a_size_that_changes_is_read_once),
        TEST(a_deadline_is_put_on_pawl_time_without_overflow),
        TEST(a_closed_lane_drops_what_comes_for_it),
        TEST(lane_memory_has_a_limit),
        TEST(a_share_bounds_what_one_lane_takes_in_a_turn),
    };
    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
