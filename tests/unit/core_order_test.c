/* SPDX-License-Identifier: MIT */
/* Ordering keys: one message of a key at a time, in order of place. */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "lib/budget.h"
#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t q;
};

static struct world *begin_with(uint32_t mode, uint32_t flags)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = mode;
    o.flags = flags;
    o.max_failed = 0;
    o.perm = 0777;
    w->q = core_create_with(&w->a, "orders", &o);
    return w;
}

static struct world *begin(void) { return begin_with(PAWL_DURABLE, 0); }

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static uint64_t send(struct world *w, const char *key, const char *body)
{
    const struct core_send_options o = { .priority = PAWL_PRIORITY_DEFAULT, .ordering_key = key };
    struct core_answer a = core_send_with(&w->a, w->q, body, &o);
    assert_int_equal(a.result, PAWL_OK);
    return a.value;
}

static struct core_delivery expect(struct world *w, const char *body)
{
    struct core_delivery d = core_receive(&w->a, w->q);
    assert_true(d.there);
    assert_string_equal(d.body, body);
    return d;
}

static void expect_none(struct world *w)
{
    assert_false(core_receive(&w->a, w->q).there);
    core_check(&w->s);
}

static void the_next_of_a_key_waits_for_the_acknowledgement(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)send(w, "k", "1");
    (void)send(w, "k", "2");
    (void)send(w, "other", "3");
    (void)send(w, NULL, "4");
    struct core_delivery d = expect(w, "1");
    (void)expect(w, "3");
    (void)expect(w, "4");
    expect_none(w);
    struct pawl_queue_stat t = core_stat(&w->a, "orders");
    assert_int_equal(t.ready, 1);
    assert_true(t.oldest_ready_ns > 0 || w->s.now.time == CORE_TIME);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    d = expect(w, "2");
    assert_int_equal(d.d.ordering_key_bytes, 1);
    end(w);
}

static void the_age_of_one_that_waits_for_its_key_is_shown(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)send(w, "k", "1");
    (void)send(w, "k", "2");
    (void)expect(w, "1");
    core_pass(&w->s, 5 * PAWL_NS_S);
    (void)send(w, NULL, "3");
    assert_true(core_stat(&w->a, "orders").oldest_ready_ns >= 4 * PAWL_NS_S);
    end(w);
}

static void a_key_is_held_through_the_back_off(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)send(w, "k", "1");
    (void)send(w, "k", "2");
    struct core_delivery d = expect(w, "1");
    (void)core_settle(&w->a, PAWL_CMD_NACK, &d, PAWL_NS_S, 0, NULL);
    expect_none(w);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, UINT64_MAX, UINT64_MAX), PAWL_OK);
    expect_none(w);
    core_pass(&w->s, PAWL_NS_S + 2 * PAWL_NS_MS);
    core_turn(&w->s);
    d = expect(w, "1"); /* its place is the older one */
    expect_none(w);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT + 2 * PAWL_NS_MS); /* it expires, and waits a second */
    core_turn(&w->s);
    expect_none(w);
    end(w);
}

static void dead_cancelled_released_and_expired_let_the_next_one_go(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t one = send(w, "k", "1");
    uint64_t two = send(w, "k", "2");
    (void)send(w, "k", "3");
    struct core_delivery d = expect(w, "1");
    assert_int_equal(core_settle(&w->a, PAWL_CMD_REJECT, &d, 0, 0, NULL).result, PAWL_OK);
    d = expect(w, "2");
    assert_int_equal(core_by_id(&w->a, PAWL_CMD_RESTORE, w->q, one, 0).result, PAWL_OK);
    expect_none(w);
    (void)core_settle(&w->a, PAWL_CMD_RELEASE, &d, 0, 0, NULL);
    /* In order of place again: the restored one, then the released one. */
    d = expect(w, "1");
    assert_int_equal(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, two, 0).result, PAWL_OK);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    (void)expect(w, "3");
    const struct core_send_options o = { .ordering_key = "t", .ttl_ns = PAWL_NS_S };
    (void)core_send_with(&w->a, w->q, "short", &o);
    (void)send(w, "t", "behind");
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    (void)expect(w, "behind");
    end(w);
}

static void a_delayed_one_holds_nothing_and_gets_its_place_when_due(void **state)
{
    (void)state;
    struct world *w = begin();
    const struct core_send_options o = { .ordering_key = "k", .delay_ns = PAWL_NS_S };
    (void)core_send_with(&w->a, w->q, "late", &o);
    (void)send(w, "k", "now");
    struct core_delivery d = expect(w, "now");
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    (void)send(w, "k", "last");
    expect_none(w);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    d = expect(w, "late");
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    (void)expect(w, "last");
    end(w);
}

static void without_a_key_an_ordered_queue_is_one_row(void **state)
{
    (void)state;
    struct world *w = begin_with(PAWL_DURABLE, PAWL_QUEUE_ORDERED);
    (void)send(w, NULL, "1");
    (void)send(w, NULL, "2");
    (void)send(w, "k", "3");
    struct core_delivery d = expect(w, "1");
    (void)expect(w, "3");
    expect_none(w);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "orders", &o).result,
                     PAWL_E_INVALID);
    o.flags = PAWL_QUEUE_ORDERED << 1;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_CREATE, "more", &o).result,
                     PAWL_E_INVALID);
    core_copy_all(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, UINT64_MAX, UINT64_MAX), PAWL_OK);
    expect_none(w);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    (void)expect(w, "2");
    end(w);
}

static void a_deferred_one_holds_its_key_unless_it_lets_go(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)send(w, "k", "1");
    (void)send(w, "k", "2");
    struct core_delivery d = expect(w, "1");
    assert_int_equal(core_settle(&w->a, PAWL_CMD_DEFER, &d, PAWL_NS_S, 2, NULL).result,
                     PAWL_E_INVALID);
    assert_int_equal(core_settle(&w->a, PAWL_CMD_DEFER, &d, PAWL_NS_S, 0, "half").result, PAWL_OK);
    expect_none(w);
    core_pass(&w->s, PAWL_NS_S + 2 * PAWL_NS_MS);
    core_turn(&w->s);
    d = expect(w, "1");
    assert_string_equal(d.progress, "half");
    assert_int_equal(
        core_settle(&w->a, PAWL_CMD_DEFER, &d, 5 * PAWL_NS_S, PAWL_DEFER_FREE_KEY, NULL).result,
        PAWL_OK);
    core_copy_all(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, UINT64_MAX, UINT64_MAX), PAWL_OK);
    d = expect(w, "2");
    core_pass(&w->s, 5 * PAWL_NS_S + 2 * PAWL_NS_MS);
    core_turn(&w->s); /* the first is due and waits for the second */
    expect_none(w);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    d = expect(w, "1");
    assert_string_equal(d.progress, "half");
    end(w);
}

static void a_waiter_gets_the_next_one_as_soon_as_the_key_is_free(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)send(w, "k", "1");
    (void)send(w, "k", "2");
    struct core_delivery d = expect(w, "1");
    (void)core_receive_submit(&w->b, PAWL_CMD_RECEIVE, w->q, 10, PAWL_NS_S, 0);
    core_turn(&w->s);
    assert_false(core_delivered(&w->b).there);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    assert_string_equal(core_delivered(&w->b).body, "2");
    end(w);
}

static void at_most_once_takes_one_after_the_other(void **state)
{
    (void)state;
    struct world *w = begin();
    char body[8];
    for (uint32_t i = 0; i < 5; i++) {
        snprintf(body, sizeof body, "%u", i);
        (void)send(w, "k", body);
    }
    for (uint32_t i = 0; i < 5; i++) {
        struct core_delivery d = core_receive_kind(&w->a, w->q, 0, 0, PAWL_RECEIVE_AT_MOST_ONCE);
        snprintf(body, sizeof body, "%u", i);
        assert_true(d.there);
        assert_string_equal(d.body, body);
    }
    end(w);
}

static void a_purge_takes_those_that_wait_for_their_key(void **state)
{
    (void)state;
    for (uint32_t held = 0; held < 2; held++) {
        struct world *w = begin();
        for (uint32_t i = 0; i < 700; i++)
            (void)send(w, i % 3 ? "k" : "l", "x");
        if (held) {
            (void)core_receive(&w->a, w->q);
            (void)core_receive(&w->a, w->q);
        }
        struct core_answer a = core_queue_command(&w->a, PAWL_CMD_QUEUE_PURGE, "orders", NULL);
        assert_int_equal(a.result, PAWL_OK);
        assert_int_equal(a.value, 700);
        assert_int_equal(core_stat(&w->a, "orders").ready, 0);
        end(w);
    }
}

static void a_dropped_queue_frees_its_keys(void **state)
{
    (void)state;
    struct world *w = begin();
    for (uint32_t i = 0; i < 100; i++)
        (void)send(w, i % 3 ? "k" : "l", "x");
    (void)core_receive(&w->a, w->q);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_DROP, "orders", NULL).result,
                     PAWL_OK);
    core_turn(&w->s);
    core_turn(&w->s);
    char text[8192];
    (void)pawl_core_metrics(w->s.core, text, sizeof text);
    assert_non_null(strstr(text, "pawl_ordering_keys 0\n"));
    end(w);
}

static void the_dead_are_in_order_with_others_where_they_go(void **state)
{
    (void)state;
    struct world *w = begin();
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.flags = PAWL_QUEUE_ORDERED;
    uint64_t dead = core_create_with(&w->a, "dead", &o);
    memset(&o, 0, sizeof o);
    o = (struct pawl_queue_options)PAWL_QUEUE_OPTIONS_INIT;
    strcpy(o.dead_forward, "dead");
    w->q = core_create_with(&w->a, "from", &o);
    for (uint32_t i = 0; i < 3; i++)
        (void)send(w, i == 1 ? "k" : NULL, "x");
    for (uint32_t i = 0; i < 3; i++) {
        struct core_delivery d = core_receive(&w->a, w->q);
        assert_int_equal(core_settle(&w->a, PAWL_CMD_REJECT, &d, 0, 0, "no").result, PAWL_OK);
    }
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, UINT64_MAX, UINT64_MAX), PAWL_OK);
    core_copy_all(&w->s);
    struct core_delivery d = core_receive(&w->a, dead);
    assert_true(d.there);
    assert_true(core_receive(&w->a, dead).there); /* of the key */
    assert_false(core_receive(&w->a, dead).there);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    assert_true(core_receive(&w->a, dead).there);
    end(w);
}

/* --- random ---------------------------------------------------------------------------------- */

#define KEYS 4u
#define MESSAGES 400u

struct row {
    uint64_t id[MESSAGES];
    uint32_t key[MESSAGES];
    struct core_delivery held[MESSAGES];
    uint32_t count;
};

/* Of what the queue shows, is it right that `got` (an index; count: nothing) was given out? */
static void judge(struct world *w, const struct row *r, uint32_t got)
{
    bool held[KEYS] = { false };
    uint32_t first[KEYS];
    for (uint32_t k = 0; k < KEYS; k++)
        first[k] = MESSAGES;
    for (uint32_t i = 0; i < r->count; i++) {
        struct pawl_record m = core_query(&w->a, w->q, r->id[i]);
        uint32_t k = r->key[i];
        if (i == got)
            continue;
        held[k] = held[k] || m.state == PAWL_STATE_LEASED ||
                  (m.state == PAWL_STATE_SCHEDULED && m.acquired > 0);
        if (m.state == PAWL_STATE_READY && first[k] == MESSAGES)
            first[k] = i;
    }
    if (got < r->count) {
        assert_false(held[r->key[got]]);
        assert_true(got < first[r->key[got]]);
    }
    for (uint32_t k = 0; k < KEYS && got == r->count; k++)
        assert_true(held[k] || first[k] == MESSAGES);
}

static void step(struct world *w, struct row *r, struct pawl_prng *prng)
{
    static const char *const names[KEYS] = { "a", "bb", "ccc", "d" };
    uint32_t i = r->count ? (uint32_t)pawl_prng_below(prng, r->count) : 0;
    struct core_delivery *d = &r->held[i];
    switch (pawl_prng_below(prng, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        if (r->count == MESSAGES)
            break;
        r->key[r->count] = (uint32_t)pawl_prng_below(prng, KEYS);
        r->id[r->count] = send(w, names[r->key[r->count]], "x");
        r->count++;
        break;
    case 4:
    case 5:
    case 6:
    case 7: {
        struct core_delivery got = core_receive(&w->a, w->q);
        uint32_t at = 0;
        while (at < r->count && !(got.there && r->id[at] == got.d.message))
            at++;
        if (got.there)
            r->held[at] = got;
        judge(w, r, at);
        break;
    }
    case 8:
        if (d->there)
            (void)core_ack(&w->a, d);
        break;
    case 9:
        if (d->there)
            (void)core_settle(&w->a, PAWL_CMD_NACK, d, PAWL_NS_S * pawl_prng_below(prng, 3), 0,
                              NULL);
        break;
    case 10:
        if (d->there && pawl_prng_below(prng, 2))
            (void)core_settle(&w->a, PAWL_CMD_RELEASE, d, 0, 0, NULL);
        else if (d->there)
            (void)core_settle(&w->a, PAWL_CMD_DEFER, d, PAWL_NS_S * pawl_prng_below(prng, 3), 0,
                              "so far");
        break;
    case 11:
        if (d->there)
            (void)core_settle(&w->a, PAWL_CMD_REJECT, d, 0, 0, NULL);
        break;
    case 12:
        if (r->count)
            (void)core_by_id(&w->a, PAWL_CMD_RESTORE, w->q, r->id[i], 0);
        break;
    case 13:
        if (r->count && pawl_prng_below(prng, 4) == 0)
            (void)core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, r->id[i], 0);
        break;
    case 14:
        core_pass(&w->s, PAWL_NS_MS * pawl_prng_below(prng, 4000));
        core_turn(&w->s);
        break;
    default:
        if (pawl_prng_below(prng, 8) == 0) {
            core_copy_all(&w->s);
            core_restart(&w->s, true);
            assert_int_equal(core_client_resume(&w->a, UINT64_MAX, UINT64_MAX), PAWL_OK);
            core_turn(&w->s);
        }
        core_check(&w->s);
        break;
    }
}

static void whatever_comes_each_key_is_one_row(void **state)
{
    (void)state;
    struct pawl_prng prng = { test_seed("keys") };
    for (uint32_t round = 0; round < 4; round++) {
        struct world *w = begin();
        struct row *r = calloc(1, sizeof *r);
        assert_non_null(r);
        for (uint32_t i = 0; i < 2500; i++)
            step(w, r, &prng);
        free(r);
        end(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_of_a_key_waits_for_the_acknowledgement),
        cmocka_unit_test(the_age_of_one_that_waits_for_its_key_is_shown),
        cmocka_unit_test(a_key_is_held_through_the_back_off),
        cmocka_unit_test(dead_cancelled_released_and_expired_let_the_next_one_go),
        cmocka_unit_test(a_delayed_one_holds_nothing_and_gets_its_place_when_due),
        cmocka_unit_test(without_a_key_an_ordered_queue_is_one_row),
        cmocka_unit_test(a_deferred_one_holds_its_key_unless_it_lets_go),
        cmocka_unit_test(a_waiter_gets_the_next_one_as_soon_as_the_key_is_free),
        cmocka_unit_test(at_most_once_takes_one_after_the_other),
        cmocka_unit_test(a_purge_takes_those_that_wait_for_their_key),
        cmocka_unit_test(a_dropped_queue_frees_its_keys),
        cmocka_unit_test(the_dead_are_in_order_with_others_where_they_go),
        cmocka_unit_test(whatever_comes_each_key_is_one_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
