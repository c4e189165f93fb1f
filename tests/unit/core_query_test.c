/* SPDX-License-Identifier: MIT */
/* Records of messages by id and key, and waiting for the state of one. */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "core/core_inner.h"
#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t q, other;
};

static struct world *begin(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 7);
    w->q = core_create(&w->a, "q", PAWL_DURABLE);
    w->other = core_create(&w->a, "other", PAWL_DURABLE);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

/* --- by id ----------------------------------------------------------------------------------- */

static struct core_answer ask(struct core_client *c, uint64_t queue, const uint64_t *ids,
                              uint32_t n)
{
    struct pawl_cmd_query m = { .head.type = PAWL_CMD_QUERY, .queue = queue, .count = n };
    m.kind = PAWL_QUERY_IDS;
    return core_call(c, &m, sizeof m, ids, n * 8);
}

static struct core_answer ask_more(struct core_client *c, uint64_t queue, uint64_t lsn,
                                   uint32_t from)
{
    struct pawl_cmd_query m = { .head.type = PAWL_CMD_QUERY, .queue = queue, .lsn = lsn };
    m.kind = PAWL_QUERY_MORE;
    m.from = from;
    return core_call(c, &m, sizeof m, NULL, 0);
}

static struct pawl_query_data head_of(const struct core_answer *a)
{
    struct pawl_query_data d;
    assert_int_equal(a->result, PAWL_OK);
    assert_true(a->bytes >= sizeof d);
    memcpy(&d, a->data, sizeof d);
    return d;
}

static struct pawl_query_item item_of(const struct core_answer *a, uint32_t i)
{
    struct pawl_query_item item;
    assert_true(a->bytes >= sizeof(struct pawl_query_data) + (i + 1) * sizeof item);
    memcpy(&item, a->data + sizeof(struct pawl_query_data) + i * sizeof item, sizeof item);
    return item;
}

static uint32_t items_of(const struct core_answer *a)
{
    return (a->bytes - (uint32_t)sizeof(struct pawl_query_data)) /
           (uint32_t)sizeof(struct pawl_query_item);
}

static void each_is_answered_in_order(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t ready = core_send(&w->a, w->q, "one").value;
    uint64_t acked = core_send(&w->a, w->q, "two").value;
    uint64_t there = core_send(&w->a, w->other, "three").value;
    struct pawl_cmd_message c = { .head.type = PAWL_CMD_ACK_ID, .queue = w->q, .id = acked };
    assert_int_equal(core_call(&w->a, &c, sizeof c, NULL, 0).result, PAWL_OK);
    uint64_t gone = core_send(&w->a, w->other, "four").value;
    const uint64_t ids[] = { acked, 12345678901234567ull, ready, there, gone, 0, ready };
    struct core_answer a = ask(&w->b, w->q, ids, 7);
    struct pawl_query_data d = head_of(&a);
    assert_int_equal(d.count, 7);
    assert_int_equal(d.from, 0);
    assert_true(d.lsn == w->s.appended);
    static const int results[] = { PAWL_OK,          PAWL_E_NOT_FOUND, PAWL_OK, PAWL_E_FORGOTTEN,
                                   PAWL_E_FORGOTTEN, PAWL_E_NOT_FOUND, PAWL_OK };
    for (uint32_t i = 0; i < 7; i++) {
        struct pawl_query_item item = item_of(&a, i);
        assert_int_equal(item.result, results[i]);
        assert_true(item.record.id == ids[i]);
    }
    assert_int_equal(item_of(&a, 0).record.state, PAWL_STATE_ACKED);
    assert_int_equal(item_of(&a, 2).record.state, PAWL_STATE_READY);
    assert_int_equal(item_of(&a, 2).record.bytes, 3);
    assert_int_equal(item_of(&a, 3).record.state, PAWL_STATE_NONE);
    end(w);
}

static void a_large_batch_is_true_at_one_moment(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t *ids = malloc(PAWL_BATCH_MAX * sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < PAWL_BATCH_MAX; i++)
        ids[i] = core_send(&w->a, w->q, "x").value;
    core_forget_events(&w->s);
    struct core_answer a = ask(&w->b, w->q, ids, PAWL_BATCH_MAX);
    uint64_t lsn = head_of(&a).lsn;
    uint32_t have = items_of(&a);
    assert_true(have < PAWL_BATCH_MAX);
    struct pawl_cmd_message c = { .head.type = PAWL_CMD_ACK_ID, .queue = w->q };
    c.id = ids[PAWL_BATCH_MAX - 1]; /* meanwhile: not in this answer */
    assert_int_equal(core_call(&w->a, &c, sizeof c, NULL, 0).result, PAWL_OK);
    assert_int_equal(ask_more(&w->a, w->q, lsn, have).result, PAWL_E_CONFLICT); /* not its own */
    assert_int_equal(ask_more(&w->b, w->q, lsn + 8, have).result, PAWL_E_CONFLICT);
    assert_int_equal(ask_more(&w->b, w->other, lsn, have).result, PAWL_E_CONFLICT);
    while (have < PAWL_BATCH_MAX) {
        a = ask_more(&w->b, w->q, lsn, have);
        assert_true(head_of(&a).lsn == lsn);
        assert_int_equal(head_of(&a).from, have);
        for (uint32_t i = 0; i < items_of(&a); i++, have++) {
            assert_true(item_of(&a, i).record.id == ids[have]);
            assert_int_equal(item_of(&a, i).record.state, PAWL_STATE_READY);
        }
    }
    assert_int_equal(ask_more(&w->b, w->q, lsn, 40).result, PAWL_E_CONFLICT); /* given back */
    a = ask(&w->b, w->q, ids, PAWL_BATCH_MAX);
    core_restart(&w->s, true);
    core_client_open(&w->s, &w->b, 7);
    assert_int_equal(ask_more(&w->b, w->q, lsn, 40).result, PAWL_E_CONFLICT);
    free(ids);
    end(w);
}

static void a_key_is_known_longer_than_its_message(void **state)
{
    (void)state;
    struct world *w = begin();
    const struct core_send_options o = { .key = "order-1" };
    uint64_t id = core_send_with(&w->a, w->q, "one", &o).value;
    struct pawl_cmd_query m = { .head.type = PAWL_CMD_QUERY, .queue = w->q, .count = 7 };
    m.kind = PAWL_QUERY_KEY;
    struct core_answer a = core_call(&w->b, &m, sizeof m, "order-1\0", 8);
    assert_int_equal(head_of(&a).count, 1);
    assert_true(item_of(&a, 0).record.id == id);
    assert_int_equal(item_of(&a, 0).record.state, PAWL_STATE_READY);
    m.head.seq = 0;
    assert_int_equal(core_call(&w->b, &m, sizeof m, "order-2\0", 8).result, PAWL_E_NOT_FOUND);
    m.head.seq = 0;
    m.queue = w->other;
    assert_int_equal(core_call(&w->b, &m, sizeof m, "order-1\0", 8).result, PAWL_E_NOT_FOUND);
    end(w);
}

static void unknown_and_forbidden_are_the_same(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_client stranger;
    core_client_open(&w->s, &stranger, 9);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0770;
    uint64_t secret = core_create_with(&w->a, "secret", &o);
    uint64_t id = core_send(&w->a, secret, "x").value;
    struct core_answer a = ask(&stranger, secret, &id, 1);
    struct core_answer none = ask(&stranger, 12345678901234567ull, &id, 1);
    assert_int_equal(a.result, PAWL_E_NOT_FOUND);
    assert_int_equal(none.result, a.result);
    a = ask(&stranger, w->q, &id, 1); /* through a queue that it may ask */
    uint64_t unused = core_create(&w->a, "unused", PAWL_DURABLE);
    none = ask(&stranger, w->q, &unused, 1); /* given, and no message at all */
    assert_int_equal(item_of(&a, 0).result, item_of(&none, 0).result);
    struct pawl_cmd_query m = { .head.type = PAWL_CMD_QUERY, .queue = w->q, .count = 1025 };
    m.kind = PAWL_QUERY_IDS;
    assert_int_equal(core_take(&stranger, &m, sizeof m, &id, 8), PAWL_E_PROTOCOL);
    end(w);
}

static struct core_answer ask_one(struct core_client *c, uint32_t kind, uint64_t id)
{
    struct pawl_cmd_query m = { .head.type = PAWL_CMD_QUERY, .kind = kind, .count = 1 };
    return core_call(c, &m, sizeof m, &id, sizeof id);
}

/* Wherever it is, with whose lease it has, and its keys; for those who may query its queue. */
static void one_message_is_found_without_its_queue(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_client other;
    core_client_open(&w->s, &other, 9);
    struct pawl_queue_options secret = PAWL_QUEUE_OPTIONS_INIT;
    secret.perm = 0770;
    uint64_t q = core_create_with(&w->a, "secret", &secret);
    const struct core_send_options o = {
        .priority = 4, .key = "k", .ordering_key = "ordered", .ttl_ns = 100 * PAWL_NS_S
    };
    uint64_t id = core_send_with(&w->a, q, "body", &o).value;
    struct core_delivery d = core_receive_kind(&w->b, q, PAWL_LEASE_PROCESS, 5 * PAWL_NS_S, 0);
    assert_true(d.there);
    struct core_answer a = ask_one(&w->a, PAWL_QUERY_MESSAGE, id);
    struct pawl_query_item item;
    struct pawl_record_more more;
    assert_int_equal(a.result, PAWL_OK);
    assert_int_equal(a.bytes, sizeof(struct pawl_query_data) + sizeof item + sizeof more);
    memcpy(&item, a.data + sizeof(struct pawl_query_data), sizeof item);
    memcpy(&more, a.data + sizeof(struct pawl_query_data) + sizeof item, sizeof more);
    assert_int_equal(item.record.id, id);
    assert_int_equal(item.record.state, PAWL_STATE_LEASED);
    assert_string_equal(more.queue, "secret");
    assert_int_equal(more.grant, d.d.grant);
    assert_int_equal(more.lease_ns, 5 * PAWL_NS_S);
    assert_int_equal(more.session, w->b.session_id);
    assert_int_equal(more.holder_uid, 7);
    assert_int_equal(more.ttl_left_ns, 100 * PAWL_NS_S);
    assert_int_equal(more.key_bytes, 1);
    assert_memory_equal(more.key, "k", 1);
    assert_memory_equal(more.ordering_key, "ordered", more.ordering_key_bytes);
    assert_int_equal(ask_one(&other, PAWL_QUERY_MESSAGE, id).result, PAWL_E_FORGOTTEN);
    assert_int_equal(ask_one(&w->a, PAWL_QUERY_MESSAGE, id + 1000000).result, PAWL_E_NOT_FOUND);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    assert_int_equal(ask_one(&w->a, PAWL_QUERY_MESSAGE, id).result, PAWL_OK);
    core_pass(&w->s, 3600 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(ask_one(&w->a, PAWL_QUERY_MESSAGE, id).result, PAWL_E_FORGOTTEN);
    end(w);
}

static void a_session_is_told_to_its_user(void **state)
{
    (void)state;
    struct world *w = begin();
    struct core_client other;
    core_client_open(&w->s, &other, 9);
    (void)core_send(&w->a, w->q, "x");
    assert_true(core_receive(&w->b, w->q).there);
    for (int detached = 0; detached < 2; detached++) {
        struct core_answer a = ask_one(&w->a, PAWL_QUERY_SESSION, w->b.session_id);
        struct pawl_session_record r;
        assert_int_equal(a.result, PAWL_OK);
        memcpy(&r, a.data + sizeof(struct pawl_query_data), sizeof r);
        assert_int_equal(r.id, w->b.session_id);
        assert_int_equal(r.pid, 1007);
        assert_int_equal(r.leases, 1);
        assert_int_equal(r.lanes, 1);
        assert_int_equal(r.detached_ns != 0, detached);
        assert_int_equal(ask_one(&other, PAWL_QUERY_SESSION, w->b.session_id).result,
                         PAWL_E_NOT_FOUND);
        pawl_core_session_detach(w->s.core, w->b.session, w->s.now);
        core_turn(&w->s);
    }
    assert_int_equal(ask_one(&w->a, PAWL_QUERY_SESSION, 77).result, PAWL_E_NOT_FOUND);
    end(w);
}

static void a_read_waits_for_what_it_shows(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = core_send(&w->a, w->q, "x").value;
    struct pawl_cmd_message c = { .head.type = PAWL_CMD_ACK_ID, .queue = w->q, .id = id };
    assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_OK);
    struct pawl_cmd_query m = { .head.type = PAWL_CMD_QUERY, .queue = w->q, .count = 1 };
    m.kind = PAWL_QUERY_IDS;
    assert_int_equal(core_take(&w->b, &m, sizeof m, &id, 8), PAWL_OK);
    assert_true(w->s.effects[w->s.effect_count - 1].wait_lsn == w->s.appended);
    core_turn(&w->s);
    end(w);
}

/* --- waiting --------------------------------------------------------------------------------- */

static uint64_t wait_for(struct core_client *c, uint64_t queue, uint64_t id, uint32_t mask,
                         uint64_t ns)
{
    struct pawl_cmd_wait m = { .head.type = PAWL_CMD_WAIT, .queue = queue, .id = id };
    m.wait_ns = ns;
    m.state_mask = mask;
    c->hold = true;
    assert_int_equal(core_take(c, &m, sizeof m, NULL, 0), PAWL_OK);
    return m.head.seq;
}

static int told(struct core_client *c, uint64_t seq, uint32_t *state)
{
    struct core_answer a = core_answer(c, seq);
    struct pawl_record r = { 0 };
    if (a.result == PAWL_OK) {
        assert_int_equal(a.bytes, sizeof r);
        memcpy(&r, a.data, sizeof r);
        assert_true(a.value == r.state);
    }
    *state = r.state;
    return a.result;
}

#define MASK(s) (1u << PAWL_STATE_##s)

static void it_is_answered_when_the_message_gets_there(void **state)
{
    (void)state;
    struct world *w = begin();
    uint32_t seen;
    uint64_t id = core_send(&w->a, w->q, "x").value;
    uint64_t now = wait_for(&w->b, w->q, id, MASK(READY) | MASK(DEAD), PAWL_NS_S);
    uint64_t leased = wait_for(&w->b, w->q, id, MASK(LEASED), PAWL_NS_S);
    uint64_t acked = wait_for(&w->b, w->q, id, MASK(ACKED), UINT64_MAX);
    uint64_t dead = wait_for(&w->b, w->q, id, MASK(DEAD), UINT64_MAX);
    uint64_t once = wait_for(&w->b, w->q, id, MASK(DEAD), 0);
    core_turn(&w->s);
    pawl_core_verify(w->s.core);
    assert_int_equal(told(&w->b, now, &seen), PAWL_OK);
    assert_int_equal(seen, PAWL_STATE_READY);
    assert_int_equal(told(&w->b, once, &seen), PAWL_OK_EMPTY);
    assert_int_equal(told(&w->b, leased, &seen), CORE_NONE);
    struct core_delivery d = core_receive(&w->a, w->q);
    assert_true(d.there);
    assert_int_equal(told(&w->b, leased, &seen), PAWL_OK);
    assert_int_equal(seen, PAWL_STATE_LEASED);
    assert_int_equal(told(&w->b, acked, &seen), CORE_NONE);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    assert_int_equal(told(&w->b, acked, &seen), PAWL_OK);
    assert_int_equal(seen, PAWL_STATE_ACKED);
    struct core_answer a = core_answer(&w->b, dead); /* it never will be */
    assert_int_equal(a.result, PAWL_E_STATE);
    assert_int_equal(a.value, PAWL_STATE_ACKED);
    assert_int_equal(w->s.core->watches.used, 0);
    end(w);
}

/* Leased and acknowledged in one turn: who waited for the lease is told of it. */
static void what_passes_quickly_is_not_missed(void **state)
{
    (void)state;
    struct world *w = begin();
    uint32_t seen;
    uint64_t id = core_send(&w->a, w->q, "x").value;
    uint64_t leased = wait_for(&w->b, w->q, id, MASK(LEASED), PAWL_NS_S);
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .max = 1, .queue_count = 1 };
    assert_int_equal(core_take(&w->a, &r, sizeof r, &w->q, 8), PAWL_OK);
    const struct pawl_core_message *m =
        pawl_core_message_at(w->s.core, pawl_table_find(&w->s.core->messages_by_id, id));
    struct pawl_cmd_settle c = { .head.type = PAWL_CMD_ACK, .message = id, .grant = m->grant };
    c.random = pawl_core_lease_at(w->s.core, m->lease)->random;
    assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_OK);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->a, c.head.seq).result, PAWL_OK);
    assert_int_equal(told(&w->b, leased, &seen), PAWL_OK);
    assert_int_equal(seen, PAWL_STATE_LEASED);
    end(w);
}

static void it_ends_with_its_time_its_queue_and_its_rings(void **state)
{
    (void)state;
    struct world *w = begin();
    uint32_t seen;
    uint64_t id = core_send(&w->a, w->q, "x").value, far = core_send(&w->a, w->other, "x").value;
    uint64_t late = wait_for(&w->b, w->q, id, MASK(DEAD), PAWL_NS_S);
    uint64_t gone = wait_for(&w->b, w->q, id, MASK(DEAD), UINT64_MAX);
    uint64_t lost = wait_for(&w->b, w->other, far, MASK(DEAD), UINT64_MAX);
    assert_int_equal(core_answer(&w->b, wait_for(&w->b, w->q, far, MASK(DEAD), 0)).result,
                     CORE_NONE);
    core_pass(&w->s, PAWL_NS_S + 5 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(told(&w->b, late, &seen), PAWL_OK_EMPTY);
    assert_int_equal(told(&w->b, gone, &seen), CORE_NONE);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_DROP, "q", NULL).result, PAWL_OK);
    assert_int_equal(told(&w->b, gone, &seen), PAWL_E_QUEUE_GONE);
    pawl_core_lane_close(w->s.core, w->b.lane, w->s.now);
    pawl_core_verify(w->s.core);
    assert_int_equal(w->s.core->watches.used, 0);
    assert_int_equal(told(&w->b, lost, &seen), CORE_NONE);
    end(w);
}

static void many_wait_for_one_message(void **state)
{
    (void)state;
    struct world *w = begin();
    uint32_t seen;
    uint64_t id = core_send(&w->a, w->q, "x").value, first = w->b.next_seq;
    for (uint32_t i = 0; i < 32; i++)
        (void)wait_for(&w->b, w->q, id, MASK(CANCELLED), UINT64_MAX);
    struct pawl_cmd_message c = { .head.type = PAWL_CMD_CANCEL, .queue = w->q, .id = id };
    assert_int_equal(core_call(&w->a, &c, sizeof c, NULL, 0).result, PAWL_OK);
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(told(&w->b, first + i, &seen), PAWL_OK);
        assert_int_equal(seen, PAWL_STATE_CANCELLED);
    }
    assert_int_equal(w->s.core->watches.used, 0);
    w->b.session->watches_count = PAWL_WATCHES_A_SESSION_MAX;
    id = core_send(&w->a, w->q, "y").value;
    first = wait_for(&w->b, w->q, id, MASK(CANCELLED), UINT64_MAX);
    core_turn(&w->s);
    assert_int_equal(told(&w->b, first, &seen), PAWL_E_QUOTA);
    w->b.session->watches_count = 0;
    end(w);
}

static void submitted_again_it_goes_on(void **state)
{
    (void)state;
    struct world *w = begin();
    uint32_t seen;
    uint64_t id = core_send(&w->a, w->q, "x").value;
    (void)core_send(&w->b, w->q, "y"); /* so that its session is in the log */
    w->b.oldest = w->b.next_seq;
    uint64_t seq = wait_for(&w->b, w->q, id, MASK(CANCELLED), UINT64_MAX);
    core_turn(&w->s);
    core_restart(&w->s, true);
    core_client_open(&w->s, &w->a, 7);
    assert_int_equal(core_client_resume(&w->b, 0, 0), PAWL_OK);
    struct pawl_cmd_wait m = { .head.type = PAWL_CMD_WAIT, .queue = w->q, .id = id };
    m.head.seq = seq;
    m.head.flags = PAWL_CMD_RESUBMIT;
    m.wait_ns = UINT64_MAX;
    m.state_mask = MASK(CANCELLED);
    assert_int_equal(core_take(&w->b, &m, sizeof m, NULL, 0), PAWL_OK);
    core_turn(&w->s);
    assert_int_equal(told(&w->b, seq, &seen), CORE_NONE);
    struct pawl_cmd_message c = { .head.type = PAWL_CMD_CANCEL, .queue = w->q, .id = id };
    assert_int_equal(core_take(&w->a, &c, sizeof c, NULL, 0), PAWL_OK);
    assert_true(pawl_core_pump(w->s.core, w->s.now) == false);
    assert_true(w->s.effects[w->s.effect_count - 1].wait_lsn == w->s.appended);
    core_turn(&w->s);
    assert_int_equal(told(&w->b, seq, &seen), PAWL_OK);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_answered_in_order),
        cmocka_unit_test(a_large_batch_is_true_at_one_moment),
        cmocka_unit_test(a_key_is_known_longer_than_its_message),
        cmocka_unit_test(unknown_and_forbidden_are_the_same),
        cmocka_unit_test(one_message_is_found_without_its_queue),
        cmocka_unit_test(a_session_is_told_to_its_user),
        cmocka_unit_test(a_read_waits_for_what_it_shows),
        cmocka_unit_test(it_is_answered_when_the_message_gets_there),
        cmocka_unit_test(what_passes_quickly_is_not_missed),
        cmocka_unit_test(it_ends_with_its_time_its_queue_and_its_rings),
        cmocka_unit_test(many_wait_for_one_message),
        cmocka_unit_test(submitted_again_it_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
