/* SPDX-License-Identifier: MIT */
/* The words of a direct queue, one by one: layout and limits, every arrow of DIRECT.md 4 that one
 * thread can make, time by a clock that the test moves, DEAD, the end of the delivery numbers,
 * rings of many mark words, and words that lie. */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "abi/direct.h"
#include "pawl.h"

struct world {
    struct pawl_direct q;
    struct pawl_direct_broker b;
    struct pawl_direct_lane a, c;
    void *memory, *private;
    uint64_t now;
};

static uint64_t clock_of(void *context) { return ((struct world *)context)->now; }

static struct pawl_direct_shape shape_of(uint32_t capacity, uint32_t attempts)
{
    return (struct pawl_direct_shape){ .capacity = capacity,
                                       .body_bytes = 64,
                                       .lanes = 4,
                                       .attempts_max = attempts,
                                       .lease_ms = 1000,
                                       .lease_ms_max = 10000,
                                       .id = 7 };
}

static struct world *begin(uint32_t capacity, uint32_t attempts)
{
    struct pawl_direct_shape shape = shape_of(capacity, attempts);
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_int_equal(pawl_direct_shape_check(&shape), PAWL_OK);
    uint64_t bytes = pawl_direct_bytes(&shape);
    w->memory = aligned_alloc(4096, bytes);
    w->private = calloc(1, pawl_direct_broker_bytes(&shape));
    assert_true(w->memory && w->private);
    memset(w->memory, 0, bytes);
    pawl_direct_init(w->memory, &shape);
    assert_int_equal(pawl_direct_open(&w->q, w->memory, bytes, &shape), PAWL_OK);
    w->now = 1000000000;
    pawl_direct_broker_init(&w->b, &w->q, w->private, 1, clock_of, w);
    const uint8_t session[16] = { 1 };
    for (int n = 1; n <= 2; n++) {
        assert_int_equal(pawl_direct_lane_take(&w->b, session), n);
        pawl_direct_lane_live(&w->b, (uint32_t)n);
    }
    assert_int_equal(pawl_direct_lane_init(&w->a, &w->q, 1), PAWL_OK);
    assert_int_equal(pawl_direct_lane_init(&w->c, &w->q, 2), PAWL_OK);
    return w;
}

static void end(struct world *w)
{
    free(w->memory);
    free(w->private);
    free(w);
}

static uint64_t send(struct world *w, const char *text)
{
    struct pawl_direct_body body = { text, (uint32_t)strlen(text), 5 };
    uint64_t position;
    assert_int_equal(pawl_direct_send(&w->a, &body, 1, &position), 1);
    return position;
}

static struct pawl_direct_delivery receive(struct world *w, char text[65])
{
    struct pawl_direct_delivery d = { .body = text };
    assert_int_equal(pawl_direct_receive(&w->c, &d, 1, PAWL_DIRECT_COPY), 1);
    text[d.length] = '\0';
    return d;
}

static bool is_empty(struct world *w)
{
    char text[65];
    struct pawl_direct_delivery d = { .body = text };
    return pawl_direct_receive(&w->c, &d, 1, PAWL_DIRECT_COPY) == PAWL_OK;
}

static uint64_t word(const struct world *w, uint64_t position)
{
    return pawl_direct_slot(&w->q, position)->word;
}

static void sweep(struct world *w) { (void)pawl_direct_sweep(&w->b, w->q.mask + 1); }

/* --- layout ---------------------------------------------------------------------------------- */

static void a_shape_has_limits(void **state)
{
    (void)state;
    const struct pawl_direct_shape good = shape_of(64, 3);
    struct pawl_direct_shape s = good;
    assert_int_equal(pawl_direct_bytes(&s) % 4096, 0);
    s.capacity = 32;
    assert_int_equal(pawl_direct_shape_check(&s), PAWL_E_INVALID);
    s.capacity = 96; /* no power of two */
    assert_int_equal(pawl_direct_shape_check(&s), PAWL_E_INVALID);
    s.capacity = 2 * PAWL_DIRECT_CAPACITY_MAX;
    assert_int_equal(pawl_direct_shape_check(&s), PAWL_E_INVALID);
    s = good;
    s.body_bytes = PAWL_DIRECT_BODY_MAX + 1;
    assert_int_equal(pawl_direct_shape_check(&s), PAWL_E_INVALID);
    s = good;
    s.lanes = PAWL_DIRECT_LANES_MAX + 1;
    assert_int_equal(pawl_direct_shape_check(&s), PAWL_E_INVALID);
    s = good;
    s.lease_ms_max = s.lease_ms - 1;
    assert_int_equal(pawl_direct_shape_check(&s), PAWL_E_INVALID);
    s = good;
    s.capacity = PAWL_DIRECT_CAPACITY_MAX;
    s.body_bytes = PAWL_DIRECT_BODY_MAX;
    assert_int_equal(pawl_direct_shape_check(&s), PAWL_E_TOO_BIG);
}

static void another_memory_is_not_opened(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    struct pawl_direct q;
    struct pawl_direct_shape other = shape_of(64, 4);
    uint64_t bytes = pawl_direct_bytes(&other);
    assert_int_equal(pawl_direct_open(&q, w->memory, bytes, &other), PAWL_E_QUEUE_DAMAGED);
    assert_int_equal(pawl_direct_open(&q, w->memory, bytes, NULL), PAWL_OK);
    w->q.shm->version++;
    assert_int_equal(pawl_direct_open(&q, w->memory, bytes, NULL), PAWL_E_ABI);
    end(w);
}

static void a_word_holds_its_parts(void **state)
{
    (void)state;
    uint64_t most = PAWL_DIRECT_LAP_MASK;
    uint64_t w = pawl_direct_word(PAWL_DIRECT_DEAD, 4095, 1023, most);
    assert_int_equal(pawl_direct_word_status(w), PAWL_DIRECT_DEAD);
    assert_int_equal(pawl_direct_word_owner(w), 4095);
    assert_int_equal(pawl_direct_word_delivery(w), 1023);
    assert_int_equal(pawl_direct_word_lap(w), most);
    assert_int_equal(pawl_direct_lap_past(w, most - 2), 2);
    assert_int_equal(pawl_direct_lap_past(pawl_direct_word(0, 0, 0, 1), most),
                     2); /* over the wrap */
    assert_int_equal(pawl_direct_lap_past(pawl_direct_word(0, 0, 0, most), 1), -2);
}

/* --- arrows ---------------------------------------------------------------------------------- */

static void a_life_goes_through_its_words(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    char text[65];
    assert_int_equal(word(w, 0), pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, 0));
    assert_int_equal(send(w, "one"), 0);
    assert_int_equal(word(w, 0), pawl_direct_word(PAWL_DIRECT_READY, 0, 1, 1));
    struct pawl_direct_delivery d = receive(w, text);
    assert_string_equal(text, "one");
    assert_int_equal(d.flags, 5);
    assert_int_equal(d.attempt, 1);
    assert_int_equal(word(w, 0), pawl_direct_word(PAWL_DIRECT_LEASED, 2, 1, 1));
    assert_true(is_empty(w));
    assert_int_equal(pawl_direct_nack(&w->c, &d.token, 0, NULL), PAWL_OK);
    assert_int_equal(word(w, 0), pawl_direct_word(PAWL_DIRECT_READY, 0, 2, 1));
    assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_E_LEASE_LOST);
    d = receive(w, text);
    assert_int_equal(d.attempt, 2);
    sweep(w);
    assert_int_equal(word(w, 0), pawl_direct_word(PAWL_DIRECT_TIMED, 2, 2, 1));
    assert_int_equal(pawl_direct_renew(&w->c, &d.token, 5000), PAWL_OK);
    assert_int_equal(word(w, 0), pawl_direct_word(PAWL_DIRECT_LEASED, 2, 2, 1));
    assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_OK);
    assert_int_equal(word(w, 0), pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, 1));
    assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_E_LEASE_LOST);
    end(w);
}

/* The ring goes round beside a lease: its slot is skipped, a lap a round. */
static void a_slot_in_use_is_skipped(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    char text[65];
    (void)send(w, "slow");
    struct pawl_direct_delivery slow = receive(w, text);
    for (int i = 0; i < 3 * 64; i++) {
        (void)send(w, "x");
        struct pawl_direct_delivery d = receive(w, text);
        assert_string_equal(text, "x");
        assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_OK);
    }
    assert_true(pawl_direct_word_lap(word(w, 0)) >= 3);
    assert_int_equal(pawl_direct_word_owner(word(w, 0)), 2);
    assert_int_equal(pawl_direct_ack(&w->c, &slow.token), PAWL_OK);
    end(w);
}

static void a_full_ring_says_so(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    char text[65];
    struct pawl_direct_body body = { "x", 1, 0 };
    for (int i = 0; i < 64; i++)
        (void)send(w, "x");
    assert_int_equal(pawl_direct_send(&w->a, &body, 1, NULL), PAWL_E_FULL);
    struct pawl_direct_delivery d = receive(w, text);
    assert_int_equal(pawl_direct_send(&w->a, &body, 1, NULL), PAWL_E_FULL); /* leased */
    assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_OK);
    assert_int_equal(pawl_direct_send(&w->a, &body, 1, NULL), 1);
    end(w);
}

/* --- time and death -------------------------------------------------------------------------- */

static void a_lease_ends_by_the_clock_and_not_before(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    char text[65];
    (void)send(w, "x");
    struct pawl_direct_delivery d = receive(w, text);
    sweep(w); /* the time runs from here */
    w->now += 1000000000;
    sweep(w);
    assert_true(is_empty(w));
    assert_int_equal(pawl_direct_renew(&w->c, &d.token, 2000), PAWL_OK);
    sweep(w);
    w->now += 2000000000;
    sweep(w);
    assert_true(is_empty(w));
    w->now += 1;
    sweep(w);
    assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_E_LEASE_LOST);
    assert_int_equal(receive(w, text).attempt, 2);
    assert_int_equal(w->b.counts.expired, 1);
    end(w);
}

static void a_delay_is_timed_by_the_broker(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    char text[65];
    (void)send(w, "x");
    struct pawl_direct_delivery d = receive(w, text);
    assert_int_equal(pawl_direct_nack(&w->c, &d.token, 300, NULL), PAWL_OK);
    assert_int_equal(pawl_direct_word_owner(word(w, 0)), PAWL_DIRECT_OWNER_QUEUE);
    sweep(w);
    assert_true(is_empty(w));
    assert_int_equal(w->b.counts.delayed, 1);
    w->now += 300000001;
    sweep(w);
    assert_int_equal(receive(w, text).attempt, 2); /* the delay is no attempt */
    end(w);
}

static void what_the_dead_held_comes_back(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    char text[65];
    (void)send(w, "held");
    struct pawl_direct_delivery d = receive(w, text);
    assert_int_equal(pawl_direct_reserve(&w->c, 2), 2); /* and it dies in the middle of a send */
    (void)send(w, "behind");
    pawl_direct_lane_dead(&w->b, 2);
    sweep(w);
    assert_int_equal(pawl_direct_lane_status(&w->b, 2), PAWL_DIRECT_LANE_VACANT);
    assert_int_equal(w->b.counts.released, 1);
    assert_int_equal(w->b.counts.repaired, 2);
    assert_int_equal(pawl_direct_ack(&w->a, &d.token), PAWL_E_LEASE_LOST);
    struct pawl_direct_delivery e = { .body = text };
    assert_int_equal(pawl_direct_receive(&w->a, &e, 1, PAWL_DIRECT_COPY), 1);
    assert_memory_equal(text, "held", 4); /* before what is behind it */
    assert_int_equal(e.attempt, 2);
    assert_int_equal(pawl_direct_receive(&w->a, &e, 1, PAWL_DIRECT_COPY), 1);
    assert_memory_equal(text, "behind", 6);
    end(w);
}

/* --- DEAD ------------------------------------------------------------------------------------ */

static void the_last_attempt_makes_it_dead(void **state)
{
    (void)state;
    struct world *w = begin(64, 2);
    char text[65];
    bool dead = true;
    uint64_t slot = 0, position = send(w, "poison");
    struct pawl_direct_delivery d = receive(w, text), found = { .body = text };
    assert_int_equal(pawl_direct_nack(&w->c, &d.token, 0, &dead), PAWL_OK);
    assert_false(dead);
    d = receive(w, text);
    assert_int_equal(pawl_direct_nack(&w->c, &d.token, 0, &dead), PAWL_OK);
    assert_true(dead);
    assert_true(is_empty(w));
    memset(text, 0, sizeof text);
    assert_int_equal(pawl_direct_dead_next(&w->b, &slot, 64, &found), 1);
    assert_string_equal(text, "poison");
    assert_int_equal(found.token.position, position);
    assert_int_equal(found.attempt, 2);
    assert_int_equal(pawl_direct_dead_restore(&w->b, position + 64), PAWL_E_STATE);
    assert_int_equal(pawl_direct_dead_restore(&w->b, position), PAWL_OK);
    assert_int_equal(pawl_direct_dead_restore(&w->b, position), PAWL_E_STATE);
    assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_E_LEASE_LOST);
    d = receive(w, text);
    assert_int_equal(d.attempt, 1); /* anew */
    assert_int_equal(pawl_direct_nack(&w->c, &d.token, 0, &dead), PAWL_OK);
    d = receive(w, text);
    assert_int_equal(pawl_direct_nack(&w->c, &d.token, 0, &dead), PAWL_OK);
    assert_true(dead);
    assert_int_equal(pawl_direct_dead_purge(&w->b, position), PAWL_OK);
    assert_int_equal(pawl_direct_dead_purge(&w->b, position), PAWL_E_STATE);
    slot = 0;
    assert_int_equal(pawl_direct_dead_next(&w->b, &slot, 64, &found), 0);
    end(w);
}

static void delivery_numbers_end(void **state)
{
    (void)state;
    struct world *w = begin(64, 0);
    char text[65];
    bool dead = false;
    uint64_t position = send(w, "x");
    for (uint32_t i = 1; i <= PAWL_DIRECT_DELIVERY_MAX; i++) {
        struct pawl_direct_delivery d = receive(w, text);
        assert_int_equal(d.attempt, i);
        assert_int_equal(pawl_direct_nack(&w->c, &d.token, 0, &dead), PAWL_OK);
        assert_int_equal(dead, i == PAWL_DIRECT_DELIVERY_MAX);
    }
    assert_int_equal(pawl_direct_dead_restore(&w->b, position), PAWL_E_NOT_SUPPORTED);
    end(w);
}

/* --- many mark words ------------------------------------------------------------------------- */

static void all_that_is_given_back_is_found(void **state)
{
    (void)state;
    enum { C = 8192 };
    struct world *w = begin(C, 0);
    struct pawl_direct_delivery *d = calloc(C, sizeof *d);
    char text[65];
    uint64_t last = 0;
    assert_non_null(d);
    for (int i = 0; i < C; i++)
        (void)send(w, "x");
    for (int i = 0; i < C; i++)
        d[i] = receive(w, text);
    for (int i = 0; i < C; i++) /* in no order */
        assert_int_equal(pawl_direct_nack(&w->c, &d[i * 4099 % C].token, 0, NULL), PAWL_OK);
    uint32_t *seen = calloc(C, sizeof *seen);
    assert_non_null(seen);
    for (int i = 0; i < C; i++) {
        struct pawl_direct_delivery e = receive(w, text);
        assert_int_equal(e.attempt, 2);
        seen[e.token.position]++;
        if (i >= C - (int)PAWL_DIRECT_MARKED_MAX) { /* so few are in order */
            assert_true(i == C - (int)PAWL_DIRECT_MARKED_MAX || e.token.position > last);
            last = e.token.position;
        }
    }
    for (int i = 0; i < C; i++)
        assert_int_equal(seen[i], 1);
    assert_true(is_empty(w));
    free(seen);
    free(d);
    end(w);
}

/* --- words that lie -------------------------------------------------------------------------- */

static void a_lie_costs_its_slot_and_no_more(void **state)
{
    (void)state;
    struct world *w = begin(64, 3);
    char text[65];
    (void)send(w, "long");
    pawl_direct_slot(&w->q, 0)->meta = UINT32_MAX;
    struct pawl_direct_delivery d = { .body = text };
    assert_int_equal(pawl_direct_receive(&w->c, &d, 1, PAWL_DIRECT_COPY), 1);
    assert_int_equal(d.length, 64); /* cut */
    assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_OK);
    /* a status that is none, and an owner that nobody is */
    pawl_direct_slot(&w->q, 1)->word = pawl_direct_word(6, 0, 0, 1);
    pawl_direct_slot(&w->q, 2)->word = pawl_direct_word(PAWL_DIRECT_LEASED, 99, 1, 1);
    for (int i = 0; i < 200; i++) {
        (void)send(w, "x");
        d = receive(w, text);
        assert_int_equal(pawl_direct_ack(&w->c, &d.token), PAWL_OK);
    }
    sweep(w);
    assert_int_equal(w->b.counts.strange, 2);
    w->q.shm->tail += UINT64_C(1) << 40;
    struct pawl_direct_body body = { "x", 1, 0 };
    assert_int_equal(pawl_direct_send(&w->a, &body, 1, NULL), PAWL_E_QUEUE_DAMAGED);
    d = (struct pawl_direct_delivery){ .body = text };
    assert_true(pawl_direct_receive(&w->c, &d, 1, PAWL_DIRECT_COPY) <= 0);
    sweep(w);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_has_limits),
        cmocka_unit_test(another_memory_is_not_opened),
        cmocka_unit_test(a_word_holds_its_parts),
        cmocka_unit_test(a_life_goes_through_its_words),
        cmocka_unit_test(a_slot_in_use_is_skipped),
        cmocka_unit_test(a_full_ring_says_so),
        cmocka_unit_test(a_lease_ends_by_the_clock_and_not_before),
        cmocka_unit_test(a_delay_is_timed_by_the_broker),
        cmocka_unit_test(what_the_dead_held_comes_back),
        cmocka_unit_test(the_last_attempt_makes_it_dead),
        cmocka_unit_test(delivery_numbers_end),
        cmocka_unit_test(all_that_is_given_back_is_found),
        cmocka_unit_test(a_lie_costs_its_slot_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
