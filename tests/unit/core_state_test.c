/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core_inner.h"
#include "lib/core_state.h"

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t t;
};

static struct world *begin(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    w->t = core_create(&w->a, "stock", PAWL_TABLE);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static void expect(struct core_answer a, int result, uint64_t value)
{
    assert_int_equal(a.result, result);
    assert_int_equal(a.value, value);
}

static void has_value(struct world *w, const char *key, const char *value)
{
    struct core_value v = core_get(&w->a, w->t, key);
    assert_int_equal(v.result, PAWL_OK);
    assert_int_equal(v.head.kind, PAWL_VALUE_BYTES);
    assert_int_equal(v.head.value_bytes, strlen(value));
    assert_string_equal(v.bytes, value);
}

static void has_number(struct world *w, const char *key, int64_t number)
{
    struct core_value v = core_get(&w->a, w->t, key);
    assert_int_equal(v.result, PAWL_OK);
    assert_int_equal(v.head.kind, PAWL_VALUE_NUMBER);
    assert_true(v.head.number == number);
}

static void restart(struct world *w)
{
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
}

static void what_is_put_can_be_got(void **state)
{
    (void)state;
    struct world *w = begin();
    assert_int_equal(core_get(&w->a, w->t, "k").result, PAWL_OK_MISSING);
    uint64_t first = core_put(&w->a, w->t, "k", "one").value;
    assert_int_not_equal(first, 0);
    has_value(w, "k", "one");
    assert_int_equal(core_get(&w->a, w->t, "k").head.version, first);
    uint64_t second = core_put(&w->a, w->t, "k", "another one").value;
    assert_true(second > first);
    has_value(w, "k", "another one");
    (void)core_put(&w->a, w->t, "k", "");
    has_value(w, "k", "");
    (void)core_put(&w->a, w->t, "", "x");
    assert_int_equal(core_put(&w->a, w->t, "", "x").result, PAWL_E_INVALID);
    restart(w);
    has_value(w, "k", "");
    end(w);
}

static void a_version_that_is_expected_must_be_there(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t v = core_put_if(&w->a, w->t, "k", "one", 0).value;
    expect(core_put_if(&w->a, w->t, "k", "two", 0), PAWL_E_PRECONDITION, v);
    expect(core_put_if(&w->a, w->t, "k", "two", v + 1), PAWL_E_PRECONDITION, v);
    has_value(w, "k", "one");
    uint64_t v2 = core_put_if(&w->a, w->t, "k", "two", v).value;
    assert_true(v2 > v);
    expect(core_delete_if(&w->a, w->t, "k", v), PAWL_E_PRECONDITION, v2);
    expect(core_delete_if(&w->a, w->t, "k", v2), PAWL_OK, 0);
    expect(core_delete_if(&w->a, w->t, "k", v2), PAWL_E_PRECONDITION, 0);
    expect(core_delete_if(&w->a, w->t, "k", UINT64_MAX), PAWL_OK_MISSING, 0);
    end(w);
}

static void no_version_is_given_twice(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t last = 0;
    for (uint32_t i = 0; i < 30; i++) {
        uint64_t v = core_put(&w->a, w->t, "k", "x").value;
        assert_true(v > last);
        last = v;
        assert_int_equal(core_delete(&w->a, w->t, "k").result, PAWL_OK);
        if (i % 10 == 3)
            core_copy_all(&w->s); /* nothing of the key is left in the log */
        if (i % 10 == 5)
            restart(w);
    }
    end(w);
}

static void an_add_stays_within_its_bounds(void **state)
{
    (void)state;
    struct world *w = begin();
    expect(core_add(&w->a, w->t, "n", 5, 0, 10), PAWL_OK, 5);
    expect(core_add(&w->a, w->t, "n", 5, 0, 10), PAWL_OK, 10);
    expect(core_add(&w->a, w->t, "n", 1, 0, 10), PAWL_E_PRECONDITION, 10);
    expect(core_add(&w->a, w->t, "n", -10, 0, 10), PAWL_OK, 0);
    expect(core_add(&w->a, w->t, "n", -1, 0, 10), PAWL_E_PRECONDITION, 0);
    expect(core_add(&w->a, w->t, "n", -1, INT64_MIN, INT64_MAX), PAWL_OK, UINT64_MAX);
    expect(core_add(&w->a, w->t, "n", INT64_MIN, INT64_MIN, INT64_MAX), PAWL_E_PRECONDITION,
           UINT64_MAX);
    expect(core_add(&w->a, w->t, "m", INT64_MAX, INT64_MIN, INT64_MAX), PAWL_OK, INT64_MAX);
    expect(core_add(&w->a, w->t, "m", 1, INT64_MIN, INT64_MAX), PAWL_E_PRECONDITION, INT64_MAX);
    expect(core_add(&w->a, w->t, "z", -1, 0, 10), PAWL_E_PRECONDITION, 0);
    assert_int_equal(core_get(&w->a, w->t, "z").result, PAWL_OK_MISSING);
    (void)core_put(&w->a, w->t, "text", "12345678");
    assert_int_equal(core_add(&w->a, w->t, "text", 1, 0, 10).result, PAWL_E_STATE);
    restart(w);
    has_number(w, "n", -1);
    has_number(w, "m", INT64_MAX);
    end(w);
}

static void a_number_can_be_put(void **state)
{
    (void)state;
    struct world *w = begin();
    assert_int_equal(core_put_number(&w->a, w->t, "n", -7).result, PAWL_OK);
    has_number(w, "n", -7);
    expect(core_add(&w->a, w->t, "n", 8, INT64_MIN, INT64_MAX), PAWL_OK, 1);
    (void)core_put(&w->a, w->t, "n", "no number");
    has_value(w, "n", "no number");
    (void)core_put_number(&w->a, w->t, "n", 3);
    restart(w);
    has_number(w, "n", 3);
    end(w);
}

static void assertions_tell_what_they_found(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t v = core_put(&w->a, w->t, "k", "x").value;
    (void)core_add(&w->a, w->t, "n", 5, 0, 10);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_EXISTS, "k", 0, 0), PAWL_OK, v);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_EXISTS, "l", 0, 0), PAWL_E_PRECONDITION, 0);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_ABSENT, "l", 0, 0), PAWL_OK, 0);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_ABSENT, "k", 0, 0), PAWL_E_PRECONDITION, v);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_IS_VERSION, "k", v, 0), PAWL_OK, v);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_IS_VERSION, "k", v + 1, 0), PAWL_E_PRECONDITION, v);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_GE, "n", 0, 5), PAWL_OK, 5);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_GE, "n", 0, 6), PAWL_E_PRECONDITION, 5);
    expect(core_assert(&w->a, w->t, PAWL_TABLE_GE, "k", 0, 0), PAWL_E_PRECONDITION, 0);
    end(w);
}

static void limits_of_the_table_are_inclusive(void **state)
{
    (void)state;
    struct world *w = begin();
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_TABLE;
    o.max_messages = 2;
    o.max_bytes = 10;
    o.max_message_bytes = 8;
    uint64_t t = core_create_with(&w->a, "small", &o);
    expect(core_put(&w->a, t, "a", "123456789"), PAWL_E_TOO_BIG, 8);
    assert_int_equal(core_put(&w->a, t, "a", "12345678").result, PAWL_OK);
    expect(core_put(&w->a, t, "b", "1"), PAWL_E_FULL, PAWL_LIMIT_QUEUE_BYTES);
    assert_int_equal(core_put(&w->a, t, "b", "").result, PAWL_OK);
    expect(core_put(&w->a, t, "c", ""), PAWL_E_FULL, PAWL_LIMIT_QUEUE_MESSAGES);
    expect(core_put(&w->a, t, "b", "1"), PAWL_E_FULL, PAWL_LIMIT_QUEUE_BYTES);
    assert_int_equal(core_delete(&w->a, t, "a").result, PAWL_OK);
    assert_int_equal(core_put(&w->a, t, "c", "1").result, PAWL_OK);
    pawl_core_refuse_sends(w->s.core, PAWL_LIMIT_DISK);
    expect(core_put(&w->a, t, "c", "2"), PAWL_E_FULL, PAWL_LIMIT_DISK);
    assert_int_equal(core_delete(&w->a, t, "c").result, PAWL_OK); /* G10 */
    end(w);
}

static void tables_and_queues_are_told_apart(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "orders", PAWL_DURABLE);
    assert_int_equal(core_put(&w->a, q, "k", "x").result, PAWL_E_NOT_SUPPORTED);
    assert_int_equal(core_get(&w->a, q, "k").result, PAWL_E_NOT_SUPPORTED);
    assert_int_equal(core_send(&w->a, w->t, "x").result, PAWL_E_NOT_SUPPORTED);
    struct core_answer a = core_queue_command(&w->a, PAWL_CMD_QUEUE_PURGE, "stock", NULL);
    assert_int_equal(a.result, PAWL_E_NOT_SUPPORTED);
    (void)core_put(&w->a, w->t, "k", "x");
    assert_int_equal(core_stat(&w->a, "stock").ready, 1);
    assert_int_equal(core_stat(&w->a, "stock").bytes, 2);
    end(w);
}

static void read_and_write_are_two_rights(void **state)
{
    (void)state;
    struct world *w = begin();
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_TABLE;
    o.perm = 0702;
    uint64_t t = core_create_with(&w->a, "drop", &o);
    assert_int_equal(core_put(&w->b, t, "k", "x").result, PAWL_OK);
    assert_int_equal(core_get(&w->b, t, "k").result, PAWL_E_PERM);
    assert_int_equal(core_assert(&w->b, t, PAWL_TABLE_EXISTS, "k", 0, 0).result, PAWL_E_PERM);
    o.perm = 0700;
    t = core_create_with(&w->a, "mine", &o);
    assert_int_equal(core_put(&w->b, t, "k", "x").result, PAWL_E_NOT_FOUND);
    assert_int_equal(core_get(&w->b, t, "k").result, PAWL_E_NOT_FOUND);
    o.perm = 0704;
    t = core_create_with(&w->a, "board", &o);
    assert_int_equal(core_put(&w->b, t, "k", "x").result, PAWL_E_PERM);
    assert_int_equal(core_get(&w->b, t, "k").result, PAWL_OK_MISSING);
    end(w);
}

static void pages_go_through_all_keys_in_order(void **state)
{
    (void)state;
    struct world *w = begin();
    char key[32], last[256] = "";
    for (uint32_t i = 0; i < 2000; i++) {
        (void)snprintf(key, sizeof key, "%s/%05u", i % 2 ? "odd" : "even", i * 7919 % 2000);
        assert_int_equal(core_put(&w->a, w->t, key, "v").result, PAWL_OK);
    }
    pawl_core_verify(w->s.core);
    uint32_t seen = 0;
    for (;;) {
        struct core_answer a = core_page(&w->a, w->t, "odd/", last, 1024);
        assert_int_equal(a.result, PAWL_OK);
        if (a.value == 0)
            break;
        const uint8_t *at = a.data;
        for (uint64_t i = 0; i < a.value; i++) {
            struct pawl_state_data d;
            memcpy(&d, at, sizeof d);
            memcpy(key, at + sizeof d, d.key_bytes);
            key[d.key_bytes] = 0;
            assert_true(strcmp(key, last) > 0);
            assert_memory_equal(key, "odd/", 4);
            memcpy(last, key, sizeof key);
            at += pawl_align_up(sizeof d + d.key_bytes, 8);
            seen++;
        }
        assert_int_equal(at - a.data, a.bytes);
    }
    assert_int_equal(seen, 1000);
    for (uint32_t i = 0; i < 2000; i += 3) {
        (void)snprintf(key, sizeof key, "%s/%05u", i % 2 ? "odd" : "even", i * 7919 % 2000);
        assert_int_equal(core_delete(&w->a, w->t, key).result, PAWL_OK);
    }
    pawl_core_verify(w->s.core);
    end(w);
}

static void a_large_value_is_read_in_parts_of_one_version(void **state)
{
    (void)state;
    struct world *w = begin();
    char *big = malloc(PAWL_STATE_BYTES_MAX + 2);
    assert_non_null(big);
    for (uint32_t i = 0; i < PAWL_STATE_BYTES_MAX + 1; i++)
        big[i] = (char)('a' + i % 23);
    big[PAWL_STATE_BYTES_MAX + 1] = 0;
    expect(core_put(&w->a, w->t, "k", big), PAWL_E_TOO_BIG, PAWL_STATE_BYTES_MAX);
    big[PAWL_STATE_BYTES_MAX] = 0;
    uint64_t version = core_put(&w->a, w->t, "k", big).value;
    uint32_t offset = 0;
    while (offset < PAWL_STATE_BYTES_MAX) {
        struct core_answer a = core_get_part(&w->a, w->t, "k", version, offset);
        assert_int_equal(a.result, PAWL_OK);
        uint32_t bytes = a.bytes - (uint32_t)sizeof(struct pawl_state_data);
        assert_memory_equal(a.data + sizeof(struct pawl_state_data), big + offset, bytes);
        offset += bytes;
    }
    assert_int_equal(offset, PAWL_STATE_BYTES_MAX);
    uint64_t newer = core_put(&w->a, w->t, "k", "x").value;
    expect(core_get_part(&w->a, w->t, "k", version, 0), PAWL_E_CONFLICT, newer);
    free(big);
    end(w);
}

/* Written, and even deleted, between any two parts: the reader has the version that it began with.
 * What is kept for that is given back with the last part, the next such value, or the rings. */
static void a_large_value_is_read_while_it_is_written(void **state)
{
    (void)state;
    struct world *w = begin();
    char *big = malloc(PAWL_STATE_BYTES_MAX + 1), *read = malloc(PAWL_STATE_BYTES_MAX + 1);
    assert_true(big && read);
    uint64_t versions[3];
    memset(big, 'a', PAWL_STATE_BYTES_MAX);
    big[PAWL_STATE_BYTES_MAX] = 0;
    versions[0] = core_put(&w->a, w->t, "k", big).value;
    for (int round = 0; round < 3; round++) {
        uint64_t version = 0;
        uint32_t offset = 0;
        while (offset < PAWL_STATE_BYTES_MAX) {
            struct core_answer a = core_get_part(&w->a, w->t, "k", version, offset);
            assert_int_equal(a.result, PAWL_OK);
            uint32_t bytes = a.bytes - (uint32_t)sizeof(struct pawl_state_data);
            memcpy(read + offset, a.data + sizeof(struct pawl_state_data), bytes);
            version = a.value;
            offset += bytes;
            memset(big, 'b' + (int)(offset / 10000), PAWL_STATE_BYTES_MAX);
            versions[1] = core_put(&w->a, w->t, "k", big).value;
            if (round == 1)
                (void)core_delete(&w->a, w->t, "k");
        }
        if (round == 1)
            versions[1] = core_put(&w->a, w->t, "k", big).value;
        assert_int_equal(version, versions[0]);
        for (uint32_t i = 1; i < PAWL_STATE_BYTES_MAX; i++)
            assert_true(read[i] == read[0]);
        assert_int_equal(w->a.lane->value_block, 0);
        versions[0] = versions[1];
    }
    /* Begun and left: another one, and the end of the rings. */
    versions[2] = core_get_part(&w->a, w->t, "k", 0, 0).value;
    (void)core_put(&w->a, w->t, "k", big);
    (void)core_get_part(&w->a, w->t, "k", 0, 0);
    assert_int_equal(core_get_part(&w->a, w->t, "k", versions[2], 20000).result, PAWL_E_CONFLICT);
    assert_int_not_equal(w->a.lane->value_block, 0);
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    assert_int_equal(w->a.lane->value_block, 0);
    free(big);
    free(read);
    end(w);
}

static void a_read_waits_for_what_it_shows(void **state)
{
    (void)state;
    struct world *w = begin();
    struct pawl_cmd_state_scan c = { .head.type = PAWL_CMD_STATE_SCAN, .table = w->t };
    c.op = PAWL_TABLE_GET;
    c.key_bytes = 1;
    (void)core_put(&w->a, w->t, "k", "x");
    uint64_t shown = w->s.appended;
    core_forget_events(&w->s);
    w->a.hold = true;
    assert_int_equal(core_take(&w->a, &c, sizeof c, "k\0\0\0\0\0\0", 8), PAWL_OK);
    assert_int_equal(w->s.effect_count, 1);
    assert_true(w->s.effects[0].wait_lsn >= shown);
    core_turn(&w->s);
    end(w);
}

static void a_dropped_table_leaves_nothing_behind(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t live = pawl_core_live(w->s.core), memory = 0;
    for (uint32_t i = 0; i < 6; i++) {
        char key[32];
        uint64_t t = core_create(&w->a, "many", PAWL_TABLE);
        for (uint32_t k = 0; k < 6000; k++) {
            (void)snprintf(key, sizeof key, "%u", k);
            (void)core_put(&w->a, t, key, "0123456789");
        }
        assert_int_equal(core_add(&w->a, t, "n", 100, 0, 100).result, PAWL_OK);
        assert_int_equal(core_reserve(&w->a, t, i, "n", 10, PAWL_NS_S).result, PAWL_OK);
        assert_int_equal(core_reserve(&w->a, t, i + 100, "n", 10, 0).result, PAWL_OK);
        assert_int_equal(core_post(&w->a, t, i + 100, 0).result, PAWL_OK);
        assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_DROP, "many", NULL).result,
                         PAWL_OK);
        assert_int_equal(core_put(&w->a, t, "k", "x").result, PAWL_E_QUEUE_GONE);
        if (i == 2)
            core_copy_all(&w->s);
        if (i == 4)
            restart(w);
        core_pass(&w->s, 2 * PAWL_NS_S);
        for (uint32_t k = 0; k < 10; k++)
            core_turn(&w->s);
        assert_int_equal(w->s.core->cells.used, 0);
        assert_int_equal(w->s.core->reservations.used, 0);
        assert_int_equal(pawl_core_live(w->s.core), live);
        if (i == 0)
            memory = w->s.core->payload.bytes;
        assert_true(i == 4 || i == 5 || w->s.core->payload.bytes == memory);
        pawl_core_verify(w->s.core);
    }
    end(w);
}

static void copies_change_nothing_and_are_not_larger_than_live(void **state)
{
    (void)state;
    struct world *w = begin();
    char key[32];
    for (uint32_t i = 0; i < 200; i++) {
        (void)snprintf(key, sizeof key, "key %u", i);
        (void)core_put(&w->a, w->t, key, "some value");
        (void)core_add(&w->a, w->t, "n", 7, 0, 10000);
        if (i % 3 == 0)
            (void)core_delete(&w->a, w->t, key);
    }
    uint64_t digest = pawl_core_digest(w->s.core), live = pawl_core_live(w->s.core);
    for (uint32_t i = 0; i < 3; i++) {
        core_copy_all(&w->s);
        pawl_core_verify(w->s.core);
        assert_int_equal(pawl_core_digest(w->s.core), digest);
        assert_int_equal(pawl_core_live(w->s.core), live);
        uint64_t start = w->s.appended & ~(w->s.options.segment_bytes - 1);
        assert_true(w->s.appended - start <= live);
        core_check(&w->s);
    }
    restart(w);
    has_number(w, "n", 1400);
    assert_int_equal(core_get(&w->a, w->t, "key 3").result, PAWL_OK_MISSING);
    has_value(w, "key 4", "some value");
    end(w);
}

/* Memory runs out at every place in turn: what is refused has left nothing, and what must go on
 * does. */
static void a_full_memory_refuses_by_name_and_leaves_nothing(void **state)
{
    (void)state;
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    const struct pawl_core_options o = { .memory_bytes = 24u << 20,
                                         .segment_bytes = 16u << 20,
                                         .epoch = 1,
                                         .hash_seed = 5,
                                         .session_grace_ns = PAWL_NS_S,
                                         .sessions_max = 16,
                                         .queues_max = 16 };
    core_init_options(&w->s, &o);
    core_client_open(&w->s, &w->a, 7);
    w->t = core_create(&w->a, "stock", PAWL_TABLE);
    char key[32], value[3001];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = 0;
    assert_int_equal(core_add(&w->a, w->t, "n", 1000, 0, 1000).result, PAWL_OK);
    assert_int_equal(core_reserve(&w->a, w->t, 1, "n", 10, 0).result, PAWL_OK);
    uint32_t kept = 0;
    for (struct core_answer a; kept < 100000; kept++) {
        (void)snprintf(key, sizeof key, "key %u", kept);
        value[kept % 3000] = 0; /* all sizes, so that all kinds of blocks run out */
        a = core_put(&w->a, w->t, key, value);
        value[kept % 3000] = 'v';
        core_forget_events(&w->s);
        if (a.result != PAWL_OK) {
            expect(a, PAWL_E_FULL, PAWL_LIMIT_MEMORY);
            break;
        }
    }
    assert_in_range(kept, 100, 99999);
    uint64_t digest = pawl_core_digest(w->s.core), bytes = w->s.core->payload.bytes;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 400; i++) {
        (void)snprintf(key, sizeof key, "more %u", i);
        struct core_answer a = i % 2 ? core_put(&w->a, w->t, key, value)
                                     : core_reserve(&w->a, w->t, 100 + i, "n", 1, PAWL_NS_S);
        if (a.result == PAWL_OK && i % 2)
            (void)core_delete(&w->a, w->t, key);
        else if (a.result == PAWL_OK)
            (void)core_void(&w->a, w->t, 100 + i);
        else
            refused++;
    }
    assert_in_range(refused, 1, 400);
    assert_true(w->s.core->payload.bytes <= bytes);
    assert_int_equal(core_get(&w->a, w->t, "key 7").result, PAWL_OK);
    assert_int_equal(core_post(&w->a, w->t, 1, 0).result, PAWL_OK); /* G10 */
    assert_int_equal(core_delete(&w->a, w->t, "key 7").result, PAWL_OK);
    assert_int_not_equal(pawl_core_digest(w->s.core), digest);
    pawl_core_verify(w->s.core);
    end(w);
}

/* --- check, commit, undo --------------------------------------------------------------------- */

struct steps {
    struct pawl_state_plan plans[16];
    uint32_t count;
};

static int step(struct world *w, struct steps *s, uint8_t op, const char *key, int64_t number,
                const char *value)
{
    uint8_t words[512];
    struct pawl_cmd_state c = { .table = w->t, .expect = UINT64_MAX, .op = op, .number = number };
    c.min = INT64_MIN;
    c.max = INT64_MAX;
    c.key_bytes = (uint8_t)strlen(key);
    c.value_bytes = value ? (uint32_t)strlen(value) : 0;
    memcpy(words, key, c.key_bytes);
    if (value)
        memcpy(words + c.key_bytes, value, c.value_bytes);
    return pawl_core_state_check(w->s.core, pawl_core_session_peer(w->a.session), &c, words,
                                 &s->plans[s->count++]);
}

static int reserve_step(struct world *w, struct steps *s, uint8_t op, uint8_t id, const char *key,
                        uint64_t amount)
{
    struct pawl_cmd_reserve c = { .table = w->t, .op = op, .amount = amount };
    c.id[0] = id;
    c.key_bytes = (uint8_t)strlen(key);
    c.ttl_ns = op == PAWL_RESERVE_TAKE ? PAWL_NS_S : 0;
    return pawl_core_reserve_check(w->s.core, pawl_core_session_peer(w->a.session), &c,
                                   (const uint8_t *)key, &s->plans[s->count++]);
}

static void finish(struct world *w, struct steps *s, bool commit)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (commit)
            (void)pawl_core_state_commit(w->s.core, &s->plans[i], NULL);
        else
            pawl_core_state_undo(w->s.core, &s->plans[s->count - 1 - i]);
    core_turn(&w->s);
}

/* Every kind of step, each key more than once. */
static void all_steps(struct world *w, struct steps *s)
{
    assert_int_equal(step(w, s, PAWL_TABLE_PUT, "a", 0, "first"), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_PUT, "a", 0, "second"), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_EXISTS, "a", 0, NULL), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_DELETE, "old", 0, NULL), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_ABSENT, "old", 0, NULL), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_PUT, "old", 0, "again"), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_ADD, "n", 5, NULL), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_ADD, "n", 5, NULL), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_GE, "n", 20, NULL), PAWL_OK);
    assert_int_equal(reserve_step(w, s, PAWL_RESERVE_TAKE, 1, "n", 7), PAWL_OK);
    assert_int_equal(reserve_step(w, s, PAWL_RESERVE_POST, 1, "", 3), PAWL_OK);
    assert_int_equal(reserve_step(w, s, PAWL_RESERVE_VOID, 9, "", 0), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_PUT, "gone", 0, "x"), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_DELETE, "gone", 0, NULL), PAWL_OK);
    assert_int_equal(step(w, s, PAWL_TABLE_DELETE, "gone", 0, NULL), PAWL_OK_MISSING);
}

static void before_steps(struct world *w)
{
    (void)core_put(&w->a, w->t, "old", "old value");
    (void)core_add(&w->a, w->t, "n", 12, 0, 100);
    assert_int_equal(core_reserve(&w->a, w->t, 9, "n", 2, 0).result, PAWL_OK);
}

static void steps_that_are_undone_leave_no_trace(void **state)
{
    (void)state;
    struct world *w = begin();
    before_steps(w);
    uint64_t digest = pawl_core_digest(w->s.core), live = pawl_core_live(w->s.core);
    uint64_t bytes = w->s.core->payload.bytes, armed = w->s.core->wheel.armed;
    struct steps s = { .count = 0 };
    all_steps(w, &s);
    uint32_t records = w->s.record_count;
    finish(w, &s, false);
    assert_int_equal(w->s.record_count, records);
    assert_int_equal(pawl_core_digest(w->s.core), digest);
    assert_int_equal(pawl_core_live(w->s.core), live);
    assert_int_equal(w->s.core->payload.bytes, bytes);
    assert_int_equal(w->s.core->wheel.armed, armed);
    pawl_core_verify(w->s.core);
    has_value(w, "old", "old value");
    has_number(w, "n", 10);
    end(w);
}

static void steps_that_are_committed_see_each_other_and_last(void **state)
{
    (void)state;
    struct world *w = begin();
    before_steps(w);
    struct steps s = { .count = 0 };
    all_steps(w, &s);
    finish(w, &s, true);
    pawl_core_verify(w->s.core);
    for (uint32_t i = 0; i < 2; i++) {
        has_value(w, "a", "second");
        has_value(w, "old", "again");
        assert_int_equal(core_get(&w->a, w->t, "gone").result, PAWL_OK_MISSING);
        struct core_value v = core_get(&w->a, w->t, "n");
        assert_true(v.head.number == 19 && v.head.reserved == 0 && v.head.posted == 3);
        restart(w);
    }
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_can_be_got),
        cmocka_unit_test(a_version_that_is_expected_must_be_there),
        cmocka_unit_test(no_version_is_given_twice),
        cmocka_unit_test(an_add_stays_within_its_bounds),
        cmocka_unit_test(a_number_can_be_put),
        cmocka_unit_test(assertions_tell_what_they_found),
        cmocka_unit_test(limits_of_the_table_are_inclusive),
        cmocka_unit_test(tables_and_queues_are_told_apart),
        cmocka_unit_test(read_and_write_are_two_rights),
        cmocka_unit_test(pages_go_through_all_keys_in_order),
        cmocka_unit_test(a_large_value_is_read_in_parts_of_one_version),
        cmocka_unit_test(a_large_value_is_read_while_it_is_written),
        cmocka_unit_test(a_read_waits_for_what_it_shows),
        cmocka_unit_test(a_dropped_table_leaves_nothing_behind),
        cmocka_unit_test(copies_change_nothing_and_are_not_larger_than_live),
        cmocka_unit_test(a_full_memory_refuses_by_name_and_leaves_nothing),
        cmocka_unit_test(steps_that_are_undone_leave_no_trace),
        cmocka_unit_test(steps_that_are_committed_see_each_other_and_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
