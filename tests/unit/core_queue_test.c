/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client a, b;
};

static struct world *begin(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static int command(struct core_client *c, uint16_t type, const char *name)
{
    return core_queue_command(c, type, name, NULL).result;
}

static void create_again_is_a_duplicate_or_another(void **state)
{
    (void)state;
    struct world *w = begin();
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    struct core_answer a = core_queue_command(&w->a, PAWL_CMD_QUEUE_CREATE, "q", &o);
    assert_int_equal(a.result, PAWL_OK);
    struct core_answer b = core_queue_command(&w->a, PAWL_CMD_QUEUE_CREATE, "q", NULL);
    assert_int_equal(b.result, PAWL_OK_DUPLICATE);
    assert_int_equal(b.value, a.value);
    o.lease_ns = PAWL_LEASE_NS_DEFAULT; /* said or not */
    o.max_failed = 16;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_CREATE, "q", &o).result,
                     PAWL_OK_DUPLICATE);
    o.ttl_ns = 5;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_CREATE, "q", &o).result,
                     PAWL_E_EXISTS);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_FIND, "q", NULL).value, a.value);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_FIND, "p"), PAWL_E_NOT_FOUND);
    end(w);
}

static void creation_is_durable_in_every_mode(void **state)
{
    (void)state;
    for (uint32_t mode = PAWL_DURABLE; mode <= PAWL_MEMORY; mode++) {
        struct world *w = begin();
        uint64_t id = core_create(&w->a, "q", mode);
        const struct core_event *e = &w->s.events[w->s.event_count - 1];
        assert_int_equal(e->effect.wait_lsn, w->s.appended);
        (void)core_send(&w->a, id, "x");
        core_restart(&w->s, true);
        assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
        struct pawl_queue_stat st = core_stat(&w->a, "q");
        assert_int_equal(st.id, id);
        assert_int_equal(st.options.mode, mode);
        assert_int_equal(st.ready, mode == PAWL_MEMORY ? 0 : 1);
        end(w);
    }
}

static void names_and_options_are_checked(void **state)
{
    (void)state;
    struct world *w = begin();
    char name[PAWL_NAME_BYTES_MAX + 1];
    memset(name, 'n', sizeof name);
    name[PAWL_NAME_BYTES_MAX] = 0;
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_CREATE, name), PAWL_OK);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_CREATE, ""), PAWL_E_INVALID);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_CREATE, "a b"), PAWL_E_INVALID);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_CREATE, "a/b.c:d_e-9"), PAWL_OK);
    struct pawl_cmd_queue c = { .head.type = PAWL_CMD_QUEUE_CREATE };
    memset(c.name, 'x', sizeof c.name); /* no end */
    assert_int_equal(core_call(&w->a, &c, sizeof c, NULL, 0).result, PAWL_E_INVALID);
    for (uint32_t i = 0; i < 14; i++) {
        struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
        int expected = PAWL_E_INVALID;
        switch (i) {
        case 0:
            o.mode = PAWL_DIRECT;
            expected = PAWL_E_NOT_SUPPORTED;
            break;
        case 1:
            o.mode = 5;
            break;
        case 2:
            o.retry_count = 65;
            break;
        case 3:
            o.retry_count = 1;
            o.retry_ns[0] = PAWL_DELAY_NS_MAX + 1;
            break;
        case 4:
            o.lease_ns = PAWL_LEASE_NS_MIN - 1;
            break;
        case 5:
            o.lease_ns = PAWL_LEASE_NS_MAX + 1;
            break;
        case 6:
            o.max_message_bytes = PAWL_MESSAGE_BYTES_MAX + 1;
            break;
        case 7:
            strcpy(o.dead_forward, "no such name!");
            break;
        case 8:
            o.perm = 01000;
            break;
        case 9:
            o.done_retention_ns = 91ull * 86400 * PAWL_NS_S;
            break;
        case 10:
            o.max_crashed = 256;
            break;
        case 11:
            o.owner = 8;
            expected = PAWL_E_PERM;
            break;
        case 12:
            strcpy(o.dead_forward, "bad"); /* itself */
            break;
        default:
            o.max_failed = 65536;
            break;
        }
        assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_CREATE, "bad", &o).result,
                         expected);
    }
    end(w);
}

static void alter_keeps_what_it_must(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "q", PAWL_DURABLE);
    (void)core_send(&w->a, q, "x");
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_messages = 1;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "q", &o).result, PAWL_OK);
    struct pawl_queue_stat st = core_stat(&w->a, "q");
    assert_int_equal(st.options.perm, 0777);
    assert_int_equal(st.options.owner, 7);
    assert_int_equal(st.ready, 1);
    assert_int_equal(core_send(&w->a, q, "x").result, PAWL_E_FULL);
    o.mode = PAWL_RELAXED;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "q", &o).result,
                     PAWL_E_INVALID);
    o.mode = PAWL_DURABLE;
    strcpy(o.dead_forward, "q");
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "q", &o).result,
                     PAWL_E_INVALID);
    strcpy(o.dead_forward, "not-there-yet");
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "q", &o).result, PAWL_OK);
    o.dead_forward[0] = 0;
    o.owner = 8;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "q", &o).result, PAWL_E_PERM);
    struct core_client admin;
    core_client_open(&w->s, &admin, 500);
    assert_int_equal(core_queue_command(&admin, PAWL_CMD_QUEUE_ALTER, "q", &o).result, PAWL_OK);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_PAUSE, "q"), PAWL_E_PERM);
    assert_int_equal(command(&w->b, PAWL_CMD_QUEUE_PAUSE, "q"), PAWL_OK);
    assert_int_equal(core_stat(&w->a, "q").paused, 1);
    core_check(&w->s);
    end(w);
}

static void quotas_name_themselves(void **state)
{
    (void)state;
    struct world *w = begin();
    char name[16];
    struct core_answer a;
    for (uint32_t i = 0; i < 16; i++) {
        (void)snprintf(name, sizeof name, "a%u", i);
        assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_CREATE, name), PAWL_OK);
    }
    a = core_queue_command(&w->a, PAWL_CMD_QUEUE_CREATE, "one-more", NULL);
    assert_int_equal(a.result, PAWL_E_QUOTA);
    assert_int_equal(a.value, PAWL_LIMIT_UID);
    struct core_client admin;
    core_client_open(&w->s, &admin, 500);
    for (uint32_t i = 16; i < 64; i++) {
        (void)snprintf(name, sizeof name, "a%u", i);
        assert_int_equal(command(&admin, PAWL_CMD_QUEUE_CREATE, name), PAWL_OK);
    }
    a = core_queue_command(&admin, PAWL_CMD_QUEUE_CREATE, "one-more", NULL);
    assert_int_equal(a.result, PAWL_E_QUOTA);
    assert_int_equal(a.value, PAWL_LIMIT_QUEUES);
    end(w);
}

static void purge_takes_all_in_every_state(void **state)
{
    (void)state;
    static const uint32_t modes[] = { PAWL_DURABLE, PAWL_MEMORY };
    for (uint32_t i = 0; i < 2; i++) {
        struct world *w = begin();
        uint64_t q = core_create(&w->a, "q", modes[i]);
        for (uint32_t k = 0; k < 1000; k++) {
            const struct core_send_options o = { .priority = k % 8, .delay_ns = k % 5 ? 0 : 9999 };
            (void)core_send_with(&w->a, q, "x", &o);
        }
        struct core_delivery d = core_receive(&w->a, q), e = core_receive(&w->a, q);
        (void)core_settle(&w->a, PAWL_CMD_REJECT, &e, 0, 0, NULL);
        struct core_answer a = core_queue_command(&w->a, PAWL_CMD_QUEUE_PURGE, "q", NULL);
        assert_int_equal(a.result, PAWL_OK);
        assert_int_equal(a.value, 1000);
        struct pawl_queue_stat st = core_stat(&w->a, "q");
        assert_int_equal(st.ready + st.scheduled + st.leased + st.dead, 0);
        assert_int_equal(st.purged, 1000);
        assert_int_equal(st.bytes, 0);
        a = core_ack(&w->a, &d);
        assert_int_equal(a.result, PAWL_E_STATE);
        assert_int_equal(a.value, PAWL_STATE_PURGED);
        core_check(&w->s);
        core_copy_all(&w->s);
        assert_int_equal(core_send(&w->a, q, "after").result, PAWL_OK);
        assert_string_equal(core_receive(&w->a, q).body, "after");
        end(w);
    }
}

/* Who looks sees EXPIRED from that moment on, and never PURGED after. */
static void what_has_expired_by_the_clock_is_not_purged(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "q", PAWL_DURABLE);
    const struct core_send_options ttl = { .priority = 3, .ttl_ns = PAWL_NS_S };
    for (uint32_t i = 0; i < 10000; i++) /* more than a piece passes over */
        (void)core_send_with(&w->a, q, "short", &ttl);
    (void)core_send(&w->a, q, "long");
    core_pass(&w->s, 2 * PAWL_NS_S); /* the clock alone */
    struct core_answer a = core_queue_command(&w->a, PAWL_CMD_QUEUE_PURGE, "q", NULL);
    assert_int_equal(a.result, PAWL_OK);
    assert_int_equal(a.value, 1);
    core_turn(&w->s);
    struct pawl_queue_stat st = core_stat(&w->a, "q");
    assert_int_equal(st.purged, 1);
    assert_int_equal(st.expired, 10000);
    assert_int_equal(st.ready, 0);
    core_check(&w->s);
    end(w);
}

static void a_long_purge_goes_in_pieces(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "q", PAWL_DURABLE);
    for (uint32_t k = 0; k < 3000; k++)
        (void)core_send(&w->a, q, "x");
    w->s.metered = true;
    w->s.room = 9000;
    w->a.hold = true;
    struct pawl_cmd_queue c = { .head.type = PAWL_CMD_QUEUE_PURGE, .name = "q" };
    assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_OK);
    core_publish(&w->s);
    assert_int_equal(core_answer(&w->a, c.head.seq).result, CORE_NONE);
    w->s.room = 3000;
    uint64_t late = core_send(&w->b, q, "later than the purge").value;
    w->s.room = 1500;
    (void)core_receive_submit(&w->b, PAWL_CMD_SUBSCRIBE, q, 1, 0, 0);
    uint32_t rounds = 0;
    while (pawl_core_pump(w->s.core, w->s.now)) {
        pawl_core_verify(w->s.core);
        w->s.room = 3000;
        assert_false(core_delivered(&w->b).there); /* nothing is delivered meanwhile */
        assert_true(++rounds < 100);
    }
    assert_true(rounds > 5);
    w->s.metered = false;
    w->s.room = 1u << 30;
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->a, c.head.seq).value, 3000);
    assert_int_equal(core_delivered(&w->b).d.message, late);
    end(w);
}

static void a_dropped_queue_is_gone_for_all(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "q", PAWL_DURABLE);
    uint64_t seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, q, 1, PAWL_UNLIMITED, 0);
    core_turn(&w->s);
    struct core_client c;
    core_client_open(&w->s, &c, 7);
    for (uint32_t i = 0; i < 10; i++)
        (void)core_send(&c, q, "x");
    assert_int_equal(core_answer(&w->b, seq).value, 1);
    struct core_delivery d = core_delivered(&w->b), e = core_receive(&c, q);
    assert_int_equal(core_settle(&c, PAWL_CMD_RELEASE, &e, 0, 0, NULL).result, PAWL_OK);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_PAUSE, "q"), PAWL_OK);
    seq = core_receive_submit(&w->b, PAWL_CMD_RECEIVE, q, 1, PAWL_UNLIMITED, 0);
    core_turn(&w->s);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_DROP, "q"), PAWL_OK);
    assert_int_equal(core_answer(&w->b, seq).result, PAWL_E_QUEUE_GONE);
    assert_int_equal(core_send(&c, q, "x").result, PAWL_E_QUEUE_GONE);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_E_QUEUE_GONE);
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_FIND, "q"), PAWL_E_NOT_FOUND);
    uint64_t again = core_create(&w->a, "q", PAWL_DURABLE);
    assert_int_not_equal(again, q);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_E_QUEUE_GONE);
    core_check(&w->s);
    core_copy_all(&w->s);
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->b, d.d.grant, 0), PAWL_OK);
    core_turn(&w->s);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_E_QUEUE_GONE);
    core_pass(&w->s, 601 * PAWL_NS_S);
    core_turn(&w->s);
    struct pawl_core_stats st;
    pawl_core_stats(w->s.core, &st);
    assert_int_equal(st.messages, 0);
    assert_int_equal(pawl_core_live(w->s.core) > 0, 1);
    end(w);
}

static void what_a_dropped_queue_held_costs_nothing_later(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t live = 0;
    for (uint32_t round = 0; round < 5; round++) {
        uint64_t q = core_create(&w->a, "q", PAWL_DURABLE);
        for (uint32_t i = 0; i < 100; i++)
            (void)core_send(&w->a, q, "x");
        (void)core_receive(&w->a, q);
        assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_DROP, "q"), PAWL_OK);
        core_pass(&w->s, 700 * PAWL_NS_S);
        core_turn(&w->s);
        core_turn(&w->s);
        if (round == 0)
            live = pawl_core_live(w->s.core);
        assert_int_equal(pawl_core_live(w->s.core), live);
        core_copy_all(&w->s);
    }
    end(w);
}

static void list_shows_what_one_may_query(void **state)
{
    (void)state;
    struct world *w = begin();
    static const char *names[] = { "delta", "alpha", "charlie", "bravo" };
    for (uint32_t i = 0; i < 4; i++)
        (void)core_create(&w->a, names[i], PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0700;
    (void)core_create_with(&w->a, "beta", &o);
    struct core_answer a = core_queue_command(&w->b, PAWL_CMD_QUEUE_LIST, "", NULL);
    assert_int_equal(a.value, 4);
    static const char *expected[] = { "alpha", "bravo", "charlie", "delta" };
    struct pawl_queue_stat st;
    for (uint32_t i = 0; i < 4; i++) {
        memcpy(&st, a.data + i * sizeof st, sizeof st);
        assert_string_equal(st.name, expected[i]);
    }
    a = core_queue_command(&w->b, PAWL_CMD_QUEUE_LIST, "bravo", NULL);
    assert_int_equal(a.value, 2);
    assert_int_equal(core_queue_command(&w->b, PAWL_CMD_QUEUE_LIST, "delta", NULL).value, 0);
    end(w);
}

static struct core_answer scan(struct core_client *c, uint64_t q, uint64_t after, uint32_t mask,
                               uint32_t max)
{
    struct pawl_cmd_scan m = { .head.type = PAWL_CMD_SCAN, .queue = q, .after_id = after };
    m.state_mask = mask;
    m.max = max;
    return core_call(c, &m, sizeof m, NULL, 0);
}

static void scan_goes_in_order_of_id_over_all_distances(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "q", PAWL_DURABLE);
    uint64_t other = core_create(&w->a, "other", PAWL_DURABLE);
    uint64_t ids[200];
    for (uint32_t i = 0; i < 200; i++) {
        const struct core_send_options o = { .priority = i % 8 };
        ids[i] = core_send_with(&w->a, q, "x", &o).value;
        for (uint32_t k = 0; k < (i % 50 == 0 ? 1000u : 1u); k++)
            (void)core_send(&w->a, other, "y");
        if (i == 100) { /* ids of two epochs */
            core_restart(&w->s, true);
            assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
        }
    }
    uint64_t after = 0;
    uint32_t seen = 0;
    for (;;) {
        struct core_answer a = scan(&w->a, q, after, 1u << PAWL_STATE_READY, 30);
        uint64_t count = a.value;
        assert_true(count <= 30);
        if (count == 0)
            break;
        for (uint64_t i = 0; i < count; i++) {
            struct pawl_record r;
            memcpy(&r, a.data + i * sizeof r, sizeof r);
            assert_int_equal(r.id, ids[seen]);
            after = ids[seen++];
        }
    }
    assert_int_equal(seen, 200);
    assert_int_equal(scan(&w->a, q, 0, 1u << PAWL_STATE_DEAD, 30).value, 0);
    end(w);
}

static void a_scan_over_a_long_backlog_takes_several_turns(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "q", PAWL_MEMORY);
    uint64_t other = core_create(&w->a, "other", PAWL_MEMORY);
    uint64_t ids[3];
    for (uint32_t i = 0; i < 3; i++) {
        ids[i] = core_send(&w->a, q, "x").value;
        for (uint32_t k = 0; k < 15000; k++)
            (void)core_send(&w->a, other, "y");
    }
    w->a.hold = w->b.hold = true;
    struct pawl_cmd_scan m = { .head.type = PAWL_CMD_SCAN, .queue = q, .max = 10 };
    m.after_id = 1; /* far from the first one */
    m.state_mask = UINT32_MAX;
    assert_int_equal(core_take(&w->a, &m, sizeof m, NULL, 0), PAWL_OK);
    struct pawl_cmd_scan gone = m;
    gone.head.seq = 0;
    assert_int_equal(core_take(&w->b, &gone, sizeof gone, NULL, 0), PAWL_OK); /* waits its turn */
    core_publish(&w->s);
    assert_int_equal(core_answer(&w->a, m.head.seq).result, CORE_NONE);
    pawl_core_session_end(w->s.core, w->b.session, PAWL_END_DEAD, w->s.now);
    for (uint32_t i = 0; i < 10; i++) {
        core_pass(&w->s, 2 * PAWL_NS_MS);
        core_turn(&w->s); /* its timer goes on with it */
    }
    struct core_answer a = core_answer(&w->a, m.head.seq);
    assert_int_equal(a.value, 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct pawl_record r;
        memcpy(&r, a.data + i * sizeof r, sizeof r);
        assert_int_equal(r.id, ids[i]);
    }
    m.head.seq = 0;
    m.max = 1;
    m.after_id = ids[0]; /* a pass of its own, */
    assert_int_equal(core_take(&w->a, &m, sizeof m, NULL, 0), PAWL_OK);
    for (uint32_t i = 0; i < 10; i++) {
        core_pass(&w->s, 2 * PAWL_NS_MS);
        core_turn(&w->s);
    }
    assert_int_equal(core_answer(&w->a, m.head.seq).value, 1);
    assert_int_equal(scan(&w->a, q, ids[1], UINT32_MAX, 1).value, 1); /* of which this was kept */
    end(w);
}

static void peek_shows_a_body_in_parts(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t q = core_create(&w->a, "q", PAWL_DURABLE);
    static const char header[] = "\x01\x01\x00hv";
    const struct core_send_options o = { .headers = header,
                                         .headers_bytes = 5,
                                         .ttl_ns = PAWL_NS_S };
    uint64_t id = core_send_with(&w->a, q, "0123456789", &o).value;
    struct pawl_cmd_message m = { .head.type = PAWL_CMD_PEEK, .queue = q, .id = id, .offset = 4 };
    struct core_answer a = core_call(&w->a, &m, sizeof m, NULL, 0);
    assert_int_equal(a.value, 10);
    assert_int_equal(a.bytes, 6);
    assert_memory_equal(a.data, "456789", 6);
    m.head.seq = 0;
    m.offset = 11;
    a = core_call(&w->a, &m, sizeof m, NULL, 0);
    assert_int_equal(a.value, 10);
    assert_int_equal(a.bytes, 0);
    m.head.seq = 0;
    m.id++;
    assert_int_equal(core_call(&w->a, &m, sizeof m, NULL, 0).result, PAWL_E_NOT_FOUND);
    end(w);
}

static void metrics_come_in_pages(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_client admin;
    core_client_open(&w->s, &admin, 500);
    char name[16], all[65536];
    for (uint32_t i = 0; i < 60; i++) {
        (void)snprintf(name, sizeof name, "queue-%u", i);
        (void)core_create(&admin, name, PAWL_DURABLE);
    }
    size_t length = pawl_core_metrics(w->s.core, all, sizeof all);
    assert_true(length > PAWL_DATA_BYTES_MAX && length < sizeof all);
    assert_non_null(strstr(all, "pawl_queues 60\n"));
    assert_non_null(strstr(all, "pawl_queue_ready{queue=\"queue-59\"} 0\n"));
    uint64_t offset = 0;
    while (offset < length) {
        struct pawl_cmd_one m = { .head.type = PAWL_CMD_METRICS, .value = offset };
        struct core_answer a = core_call(&admin, &m, sizeof m, NULL, 0);
        assert_true(a.bytes > 0);
        if (offset == 0) /* later pages may see another count of this or that */
            assert_memory_equal(a.data, all, 20);
        offset += a.bytes;
        assert_true(a.value <= length + 100);
    }
    assert_int_equal(pawl_core_metrics(w->s.core, all, 10), length);
    assert_int_equal(strlen(all), 9);
    end(w);
}

static struct core_answer forward(struct core_client *c, uint16_t type, const char *name,
                                  const char *to)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    strcpy(o.dead_forward, to);
    return core_queue_command(c, type, name, &o);
}

/* Whichever of its edges comes last, and whatever was dropped, restarted or not there meanwhile. */
static void dead_messages_never_go_in_a_circle(void **state)
{
    (void)state;
    struct world *w = begin();
    const uint16_t create = PAWL_CMD_QUEUE_CREATE, alter = PAWL_CMD_QUEUE_ALTER;
    assert_int_equal(forward(&w->a, create, "a", "b").result, PAWL_OK); /* b is not there yet */
    struct core_answer refused = forward(&w->a, create, "b", "a");
    assert_int_equal(refused.result, PAWL_E_INVALID);
    assert_int_equal(refused.value, PAWL_INVALID_CIRCLE);
    assert_int_equal(forward(&w->a, create, "b", "c").result, PAWL_OK);
    assert_int_equal(forward(&w->b, create, "c", "a").result, PAWL_E_INVALID);
    assert_int_equal(forward(&w->b, create, "c", "").result, PAWL_OK);
    for (int life = 0; life < 2; life++) {
        assert_int_equal(forward(&w->b, alter, "c", "a").value, PAWL_INVALID_CIRCLE);
        assert_int_equal(forward(&w->b, alter, "c", "b").result, PAWL_E_INVALID);
        assert_int_equal(forward(&w->b, alter, "c", "d").result, PAWL_OK);
        core_restart(&w->s, true);
        core_client_open(&w->s, &w->a, 7);
        core_client_open(&w->s, &w->b, 8);
    }
    assert_int_equal(forward(&w->a, create, "d", "a").result, PAWL_E_INVALID);
    /* Dropped it forwards nothing; made again it is asked again. */
    assert_int_equal(command(&w->a, PAWL_CMD_QUEUE_DROP, "b"), PAWL_OK);
    assert_int_equal(forward(&w->a, create, "d", "a").result, PAWL_OK);
    assert_int_equal(forward(&w->a, create, "b", "c").result, PAWL_E_INVALID);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_again_is_a_duplicate_or_another),
        cmocka_unit_test(creation_is_durable_in_every_mode),
        cmocka_unit_test(names_and_options_are_checked),
        cmocka_unit_test(alter_keeps_what_it_must),
        cmocka_unit_test(quotas_name_themselves),
        cmocka_unit_test(purge_takes_all_in_every_state),
        cmocka_unit_test(what_has_expired_by_the_clock_is_not_purged),
        cmocka_unit_test(a_long_purge_goes_in_pieces),
        cmocka_unit_test(a_dropped_queue_is_gone_for_all),
        cmocka_unit_test(what_a_dropped_queue_held_costs_nothing_later),
        cmocka_unit_test(list_shows_what_one_may_query),
        cmocka_unit_test(scan_goes_in_order_of_id_over_all_distances),
        cmocka_unit_test(a_scan_over_a_long_backlog_takes_several_turns),
        cmocka_unit_test(peek_shows_a_body_in_parts),
        cmocka_unit_test(metrics_come_in_pages),
        cmocka_unit_test(dead_messages_never_go_in_a_circle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
