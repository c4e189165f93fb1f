/* SPDX-License-Identifier: MIT */
/* Dedup keys (G4): what a repeat is answered, how long, and that nothing that happens to the
 * message, the broker or the log changes it. */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core_inner.h"
#include "lib/core_shell.h"

#define WINDOW (600 * PAWL_NS_S)

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t q;
};

static struct world *begin_with(const struct pawl_queue_options *o)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    w->q = core_create_with(&w->a, "orders", o);
    return w;
}

static struct world *begin(void)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0777;
    return begin_with(&o);
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static struct core_answer send(struct world *w, const char *key, const char *body)
{
    const struct core_send_options o = { .priority = 3, .key = key };
    return core_send_with(&w->a, w->q, body, &o);
}

static uint64_t sent(struct world *w, const char *key, const char *body)
{
    struct core_answer a = send(w, key, body);
    assert_int_equal(a.result, PAWL_OK);
    return a.value;
}

static void repeats(struct world *w, const char *key, const char *body, uint64_t id, uint32_t state)
{
    struct core_answer a = send(w, key, body);
    assert_int_equal(a.result, PAWL_OK_DUPLICATE);
    assert_true(a.value == id);
    assert_int_equal(a.flags >> PAWL_ANSWER_STATE_SHIFT, state);
    a = send(w, key, "another body");
    assert_int_equal(a.result, PAWL_E_KEY_MISMATCH);
    assert_true(a.value == id);
    assert_int_equal(a.flags >> PAWL_ANSWER_STATE_SHIFT, state);
}

static void reopen(struct world *w, bool same_boot)
{
    core_restart(&w->s, same_boot);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
}

static struct core_delivery taken(struct world *w)
{
    struct core_delivery d = core_receive(&w->b, w->q);
    assert_true(d.there);
    return d;
}

static uint64_t keys(const struct world *w) { return w->s.core->ledger.count[PAWL_LEDGER_KEY]; }

/* --- what a repeat is told ------------------------------------------------------------------- */

static void a_repeat_makes_no_second_message_and_is_told_the_first(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = sent(w, "k1", "body");
    repeats(w, "k1", "body", id, PAWL_STATE_READY);
    assert_int_equal(core_stat(&w->a, "orders").ready, 1);
    assert_int_equal(core_stat(&w->a, "orders").sent, 1);
    assert_int_equal(w->s.core->ledger.duplicates, 1);
    assert_int_equal(w->s.core->ledger.mismatches, 1);
    assert_true(sent(w, "k2", "body") != id);
    assert_true(sent(w, NULL, "body") != sent(w, NULL, "body"));
    struct core_delivery d = taken(w);
    assert_int_equal(d.d.key_bytes, 2);
    assert_string_equal(d.body, "body");
    repeats(w, "k1", "body", id, PAWL_STATE_LEASED);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    repeats(w, "k1", "body", id, PAWL_STATE_ACKED);
    end(w);
}

static void headers_and_times_are_not_compared(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = sent(w, "k", "body");
    const struct core_send_options other = { .priority = 1,
                                             .key = "k",
                                             .ttl_ns = PAWL_NS_S,
                                             .delay_ns = PAWL_NS_S,
                                             .headers = "\x01\x01\x00hv",
                                             .headers_bytes = 5 };
    struct core_answer a = core_send_with(&w->a, w->q, "body", &other);
    assert_int_equal(a.result, PAWL_OK_DUPLICATE);
    assert_true(a.value == id);
    end(w);
}

static void a_key_is_of_its_queue(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t other = core_create(&w->a, "other", PAWL_DURABLE);
    uint64_t id = sent(w, "k", "body");
    const struct core_send_options o = { .priority = 3, .key = "k" };
    struct core_answer a = core_send_with(&w->a, other, "elsewhere", &o);
    assert_int_equal(a.result, PAWL_OK);
    assert_true(a.value != id);
    end(w);
}

static void empty_bodies_and_long_keys(void **state)
{
    (void)state;
    struct world *w = begin();
    char key[256];
    memset(key, 'x', 255);
    key[255] = 0;
    uint64_t id = sent(w, key, "");
    assert_int_equal(send(w, key, "").result, PAWL_OK_DUPLICATE);
    key[254] = 'y';
    assert_true(sent(w, key, "") != id);
    struct core_delivery d = taken(w);
    assert_int_equal(d.d.key_bytes, 255);
    end(w);
}

static void a_refused_send_leaves_no_key(void **state)
{
    (void)state;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0777;
    o.max_messages = 1;
    struct world *w = begin_with(&o);
    uint64_t id = sent(w, "first", "body");
    assert_int_equal(send(w, "second", "body").result, PAWL_E_FULL);
    assert_int_equal(keys(w), 1);
    /* A repeat needs no room. */
    repeats(w, "first", "body", id, PAWL_STATE_READY);
    const struct core_send_options bad = {
        .priority = 3, .key = "third", .headers = "\x09", .headers_bytes = 1
    };
    struct core_delivery d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    assert_int_equal(core_send_with(&w->a, w->q, "body", &bad).result, PAWL_E_INVALID);
    assert_int_equal(keys(w), 1);
    (void)sent(w, "second", "other body");
    end(w);
}

static void a_full_ledger_refuses_new_keys_alone(void **state)
{
    (void)state;
    struct world *w = begin();
    w->s.core->ledger.max = 2;
    uint64_t id = sent(w, "a", "body");
    (void)sent(w, "b", "body");
    struct core_answer a = send(w, "c", "body");
    assert_int_equal(a.result, PAWL_E_QUOTA);
    assert_int_equal(a.value, PAWL_LIMIT_LEDGER);
    repeats(w, "a", "body", id, PAWL_STATE_READY);
    (void)sent(w, NULL, "body");
    struct core_delivery d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    core_pass(&w->s, WINDOW - 1);
    assert_int_equal(send(w, "c", "body").result, PAWL_E_QUOTA);
    core_pass(&w->s, 1);
    /* The one that is over gives its place to its own name at once, to others as it is swept. */
    assert_true(sent(w, "a", "body") != id);
    end(w);
}

/* --- how long -------------------------------------------------------------------------------- */

static void the_window_ends_at_its_nanosecond(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = sent(w, "k", "body");
    struct core_delivery d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    core_pass(&w->s, WINDOW / 2);
    repeats(w, "k", "body", id, PAWL_STATE_ACKED); /* prolongs nothing */
    core_pass(&w->s, WINDOW - WINDOW / 2 - 1);
    repeats(w, "k", "body", id, PAWL_STATE_ACKED);
    core_pass(&w->s, 1);
    uint64_t next = sent(w, "k", "body");
    assert_true(next != id);
    repeats(w, "k", "body", next, PAWL_STATE_READY);
    end(w);
}

static void the_queue_says_how_long(void **state)
{
    (void)state;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0777;
    o.dedup_window_ns = PAWL_NS_S;
    struct world *w = begin_with(&o);
    uint64_t id = sent(w, "k", "body");
    struct core_delivery d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    /* What was accepted keeps its window. */
    o.dedup_window_ns = 10 * PAWL_NS_S;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "orders", &o).result, PAWL_OK);
    core_pass(&w->s, PAWL_NS_S - 1);
    repeats(w, "k", "body", id, PAWL_STATE_ACKED);
    core_pass(&w->s, 1);
    uint64_t next = sent(w, "k", "body");
    d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    core_pass(&w->s, 10 * PAWL_NS_S - 1);
    repeats(w, "k", "body", next, PAWL_STATE_ACKED);
    o.dedup_window_ns = 7ull * 86400 * PAWL_NS_S + 1;
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_ALTER, "orders", &o).result,
                     PAWL_E_INVALID);
    end(w);
}

static void while_its_message_lives_a_key_has_no_end(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = sent(w, "k", "body");
    core_pass(&w->s, 100 * WINDOW);
    core_turn(&w->s);
    repeats(w, "k", "body", id, PAWL_STATE_READY);
    core_check(&w->s);
    reopen(w, true);
    core_pass(&w->s, 100 * WINDOW);
    core_turn(&w->s);
    repeats(w, "k", "body", id, PAWL_STATE_READY);
    /* Then it goes with its message. */
    struct core_delivery d = taken(w);
    repeats(w, "k", "body", id, PAWL_STATE_LEASED);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    assert_int_equal(keys(w), 0);
    assert_true(sent(w, "k", "other") != id);
    end(w);
}

static void what_is_over_is_given_back(void **state)
{
    (void)state;
    struct world *w = begin();
    char key[16];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        (void)sent(w, key, "body");
        struct core_delivery d = taken(w);
        assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    }
    assert_int_equal(keys(w), 1000);
    core_check(&w->s);
    core_pass(&w->s, WINDOW + 3 * PAWL_NS_S);
    core_turn(&w->s);
    core_turn(&w->s);
    assert_int_equal(keys(w), 0);
    end(w);
}

/* --- whatever becomes of the message --------------------------------------------------------- */

static const char *const names[] = { "acked",  "cancelled", "purged", "expired", "dead",
                                     "leased", "ready",     "late",   "amo" };
static const uint32_t states[] = { PAWL_STATE_ACKED,   PAWL_STATE_CANCELLED, PAWL_STATE_PURGED,
                                   PAWL_STATE_EXPIRED, PAWL_STATE_DEAD,      PAWL_STATE_LEASED,
                                   PAWL_STATE_READY,   PAWL_STATE_SCHEDULED, PAWL_STATE_ACKED };
enum { ENDS = 9 };

/* One message of each end. Those that live stand in the queue "orders", in this order. */
static void one_of_each(struct world *w, uint64_t ids[ENDS])
{
    struct core_delivery d;
    ids[2] = sent(w, names[2], names[2]);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_PURGE, "orders", NULL).value, 1);
    ids[0] = sent(w, names[0], names[0]);
    d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    ids[1] = sent(w, names[1], names[1]);
    assert_int_equal(core_by_id(&w->a, PAWL_CMD_CANCEL, w->q, ids[1], 0).result, PAWL_OK);
    ids[8] = sent(w, names[8], names[8]);
    d = core_receive_kind(&w->b, w->q, PAWL_LEASE_PROCESS, 0, PAWL_RECEIVE_AT_MOST_ONCE);
    assert_true(d.there);
    const struct core_send_options ttl = { .priority = 3, .key = names[3], .ttl_ns = PAWL_NS_S };
    ids[3] = core_send_with(&w->a, w->q, names[3], &ttl).value;
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    ids[4] = sent(w, names[4], names[4]);
    d = taken(w);
    assert_int_equal(core_settle(&w->b, PAWL_CMD_REJECT, &d, 0, 0, "no").result, PAWL_OK);
    ids[5] = sent(w, names[5], names[5]);
    d = core_receive_kind(&w->b, w->q, PAWL_LEASE_DETACHED, 3600 * PAWL_NS_S, 0);
    assert_true(d.there);
    ids[6] = sent(w, names[6], names[6]);
    const struct core_send_options late = {
        .priority = 3, .key = names[7], .ttl_ns = 7200 * PAWL_NS_S, .delay_ns = 3600 * PAWL_NS_S
    };
    ids[7] = core_send_with(&w->a, w->q, names[7], &late).value;
}

static void all_repeat(struct world *w, const uint64_t ids[ENDS])
{
    for (int i = 0; i < ENDS; i++)
        repeats(w, names[i], names[i], ids[i], states[i]);
}

static void every_end_is_remembered(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t ids[ENDS];
    one_of_each(w, ids);
    all_repeat(w, ids);
    core_check(&w->s);
    reopen(w, true);
    all_repeat(w, ids);
    core_copy_all(&w->s);
    all_repeat(w, ids);
    core_check(&w->s);
    reopen(w, true);
    all_repeat(w, ids);
    core_copy_all(&w->s);
    core_copy_all(&w->s);
    reopen(w, true);
    all_repeat(w, ids);
    end(w);
}

static void tombstones_are_forgotten_before_keys(void **state)
{
    (void)state;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0777;
    o.done_retention_ns = PAWL_NS_S;
    struct world *w = begin_with(&o);
    uint64_t id = sent(w, "k", "body");
    struct core_delivery d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    core_pass(&w->s, 2 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(core_stat(&w->a, "orders").done, 0);
    repeats(w, "k", "body", id, PAWL_STATE_ACKED);
    core_copy_all(&w->s);
    reopen(w, true);
    repeats(w, "k", "body", id, PAWL_STATE_ACKED);
    end(w);
}

static void a_copy_before_the_end_and_a_crash_behind_it(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = sent(w, "k", "body");
    core_copy_all(&w->s);
    struct core_delivery d = taken(w);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    core_check(&w->s);
    reopen(w, false);
    repeats(w, "k", "body", id, PAWL_STATE_ACKED);
    core_copy_all(&w->s);
    reopen(w, true);
    repeats(w, "k", "body", id, PAWL_STATE_ACKED);
    end(w);
}

static void a_name_used_again_after_its_window_is_replayed_as_it_was(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id[3];
    for (int i = 0; i < 3; i++) {
        id[i] = sent(w, "k", i ? "second" : "first");
        if (i == 2)
            break;
        struct core_delivery d = taken(w);
        assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
        core_pass(&w->s, WINDOW);
    }
    core_check(&w->s);
    reopen(w, true);
    repeats(w, "k", "second", id[2], PAWL_STATE_READY);
    assert_int_equal(keys(w), 1);
    end(w);
}

static void a_restored_message_has_its_key(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t id = sent(w, "k", "body");
    struct core_delivery d = taken(w);
    assert_int_equal(core_settle(&w->b, PAWL_CMD_REJECT, &d, 0, 0, "no").result, PAWL_OK);
    core_pass(&w->s, 2 * WINDOW);
    core_turn(&w->s);
    repeats(w, "k", "body", id, PAWL_STATE_DEAD);
    assert_int_equal(core_by_id(&w->a, PAWL_CMD_RESTORE, w->q, id, 0).result, PAWL_OK);
    repeats(w, "k", "body", id, PAWL_STATE_READY);
    end(w);
}

/* --- other queues ---------------------------------------------------------------------------- */

static struct core_answer by_key(struct core_client *c, uint16_t type, uint64_t queue,
                                 const char *key)
{
    struct pawl_cmd_message m = { .head.type = type, .queue = queue, .flags = PAWL_BY_KEY };
    char padded[256] = "";
    m.offset = strlen(key);
    memcpy(padded, key, m.offset);
    return core_call(c, &m, sizeof m, padded, (uint32_t)pawl_align_up(m.offset, 8));
}

static void a_message_is_cancelled_or_acknowledged_by_its_key(void **state)
{
    (void)state;
    struct world *w = begin();
    uint64_t one = sent(w, "one", "1"), two = sent(w, "two", "2");
    for (int life = 0; life < 2; life++) {
        assert_int_equal(by_key(&w->a, PAWL_CMD_CANCEL, w->q, "three").result, PAWL_E_NOT_FOUND);
        core_restart(&w->s, true);
        core_client_open(&w->s, &w->a, 7);
    }
    assert_int_equal(by_key(&w->a, PAWL_CMD_CANCEL, w->q, "one").result, PAWL_OK);
    assert_int_equal(core_query(&w->a, w->q, one).state, PAWL_STATE_CANCELLED);
    struct core_answer a = by_key(&w->a, PAWL_CMD_CANCEL, w->q, "one");
    assert_int_equal(a.result, PAWL_E_STATE);
    assert_int_equal(a.value, PAWL_STATE_CANCELLED);
    struct core_delivery d = core_receive(&w->a, w->q);
    assert_int_equal(by_key(&w->a, PAWL_CMD_ACK_ID, w->q, "two").result, PAWL_E_STATE); /* held */
    assert_int_equal(core_settle(&w->a, PAWL_CMD_RELEASE, &d, 0, 0, NULL).result, PAWL_OK);
    assert_int_equal(by_key(&w->a, PAWL_CMD_ACK_ID, w->q, "two").result, PAWL_OK);
    assert_int_equal(core_query(&w->a, w->q, two).state, PAWL_STATE_ACKED);
    /* Its window is over: the key names nothing any more. */
    core_pass(&w->s, 700 * PAWL_NS_S);
    core_turn(&w->s);
    assert_int_equal(by_key(&w->a, PAWL_CMD_CANCEL, w->q, "one").result, PAWL_E_NOT_FOUND);
    struct pawl_cmd_message m = { .head.type = PAWL_CMD_CANCEL, .flags = PAWL_BY_KEY };
    assert_int_equal(core_take(&w->a, &m, sizeof m, "", 0), PAWL_E_PROTOCOL);
    end(w);
}

static struct world *begin_forwarding(uint64_t *dead)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.perm = 0777;
    strcpy(o.dead_forward, "dead");
    struct world *w = begin_with(&o);
    *dead = core_create(&w->a, "dead", PAWL_DURABLE);
    return w;
}

static void a_forwarded_message_leaves_its_key_where_it_was_sent(void **state)
{
    (void)state;
    uint64_t dead;
    struct world *w = begin_forwarding(&dead);
    uint64_t id = sent(w, "k", "body");
    struct core_delivery d = taken(w);
    assert_int_equal(core_settle(&w->b, PAWL_CMD_REJECT, &d, 0, 0, "no").result, PAWL_OK);
    assert_int_equal(core_stat(&w->a, "dead").ready, 1);
    core_pass(&w->s, 2 * WINDOW);
    core_turn(&w->s);
    repeats(w, "k", "body", id, PAWL_STATE_READY);
    const struct core_send_options o = { .priority = 3, .key = "k" };
    assert_int_equal(core_send_with(&w->a, dead, "body", &o).result, PAWL_OK);
    core_check(&w->s);
    reopen(w, true);
    repeats(w, "k", "body", id, PAWL_STATE_READY);
    core_copy_all(&w->s);
    core_check(&w->s);
    reopen(w, true);
    repeats(w, "k", "body", id, PAWL_STATE_READY);
    d = core_receive(&w->b, dead);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    assert_true(sent(w, "k", "body") != id);
    end(w);
}

static void a_forwarded_message_whose_queue_is_dropped_ends_its_key(void **state)
{
    (void)state;
    uint64_t dead;
    struct world *w = begin_forwarding(&dead);
    uint64_t id = sent(w, "k", "body");
    struct core_delivery d = taken(w);
    assert_int_equal(core_settle(&w->b, PAWL_CMD_REJECT, &d, 0, 0, "no").result, PAWL_OK);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_DROP, "dead", NULL).result, PAWL_OK);
    core_turn(&w->s);
    repeats(w, "k", "body", id, PAWL_STATE_PURGED);
    core_check(&w->s);
    core_copy_all(&w->s);
    core_check(&w->s);
    reopen(w, true);
    core_turn(&w->s);
    repeats(w, "k", "body", id, PAWL_STATE_PURGED);
    end(w);
}

static void a_dropped_queue_takes_its_keys_along(void **state)
{
    (void)state;
    uint64_t dead;
    struct world *w = begin_forwarding(&dead);
    (void)sent(w, "k", "body");
    uint64_t gone = sent(w, "forwarded", "body");
    for (int i = 0; i < 2; i++) {
        struct core_delivery d = taken(w);
        uint16_t how = d.d.message == gone ? PAWL_CMD_REJECT : PAWL_CMD_ACK;
        assert_int_equal(core_settle(&w->b, how, &d, 0, 0, NULL).result, PAWL_OK);
    }
    (void)sent(w, "lives", "body");
    assert_int_equal(keys(w), 3);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_DROP, "orders", NULL).result,
                     PAWL_OK);
    core_turn(&w->s);
    core_turn(&w->s);
    assert_int_equal(keys(w), 0);
    core_check(&w->s);
    /* The one that was forwarded lives on without a key. */
    core_copy_all(&w->s);
    core_check(&w->s);
    w->q = core_create(&w->a, "orders", PAWL_DURABLE);
    (void)sent(w, "k", "another");
    reopen(w, true);
    struct core_delivery d = core_receive(&w->b, dead);
    assert_true(d.there && d.d.message == gone);
    assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
    end(w);
}

static void relaxed_and_memory_queues_have_keys(void **state)
{
    (void)state;
    for (uint32_t mode = PAWL_RELAXED; mode <= PAWL_MEMORY; mode++) {
        struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
        o.perm = 0777;
        o.mode = mode;
        struct world *w = begin_with(&o);
        uint64_t id = sent(w, "k", "body");
        repeats(w, "k", "body", id, PAWL_STATE_READY);
        struct core_delivery d = taken(w);
        assert_int_equal(core_ack(&w->b, &d).result, PAWL_OK);
        repeats(w, "k", "body", id, PAWL_STATE_ACKED);
        core_check(&w->s);
        reopen(w, true);
        if (mode == PAWL_MEMORY)
            assert_true(sent(w, "k", "other") != id); /* empty after a stop, keys and all */
        else
            repeats(w, "k", "body", id, PAWL_STATE_ACKED);
        end(w);
    }
}

/* --- publication ----------------------------------------------------------------------------- */

static void a_duplicate_waits_for_what_it_was_decided_on(void **state)
{
    (void)state;
    struct world *w = begin();
    for (uint32_t mismatch = 0; mismatch < 2; mismatch++) {
        char variable[8] = "kbody";
        struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = w->q, .priority = 3 };
        m.key_bytes = 1;
        m.body_bytes = 4;
        variable[0] = (char)('k' + mismatch);
        assert_int_equal(core_take(&w->a, &m, sizeof m, variable, sizeof variable), PAWL_OK);
        uint64_t appended = w->s.appended;
        if (mismatch)
            variable[4] = 'x';
        m.head.seq = 0;
        assert_int_equal(core_take(&w->a, &m, sizeof m, variable, sizeof variable), PAWL_OK);
        const struct pawl_effect *e = &w->s.effects[w->s.effect_count - 1];
        assert_int_equal(e->result, mismatch ? PAWL_E_KEY_MISMATCH : PAWL_OK_DUPLICATE);
        assert_true(e->wait_lsn >= appended);
        core_turn(&w->s);
        w->a.oldest = w->a.next_seq;
    }
    end(w);
}

static void a_crash_that_takes_the_message_takes_its_key(void **state)
{
    (void)state;
    struct world *w = begin();
    (void)sent(w, "a", "body");
    uint32_t before = w->s.record_count;
    (void)sent(w, "b", "body");
    core_cut(&w->s, before);
    reopen(w, false);
    assert_int_equal(send(w, "a", "body").result, PAWL_OK_DUPLICATE);
    assert_int_equal(send(w, "b", "another").result, PAWL_OK);
    end(w);
}

/* --- sends that are checked in a row --------------------------------------------------------- */

static void sends_of_one_row_meet_before_they_are_committed(void **state)
{
    (void)state;
    struct world *w = begin();
    struct pawl_core *core = w->s.core;
    const struct pawl_cmd_send m = {
        .head.type = PAWL_CMD_SEND, .queue = w->q, .key_bytes = 1, .body_bytes = 4, .priority = 3
    };
    struct pawl_take t = {
        .core = core,
        .lane = w->a.lane,
        .session = w->a.session,
        .seq = w->a.next_seq,
        .type = PAWL_CMD_SEND,
        .fixed = &m,
        .variable = (const uint8_t *)"kbody\0\0",
        .variable_bytes = 8,
    };
    struct pawl_core_send one, two, other;
    assert_int_equal(pawl_core_send_check(&t, 0, &one), PAWL_OK);
    assert_int_equal(pawl_core_send_check(&t, 1, &two), PAWL_OK_DUPLICATE);
    t.variable = (const uint8_t *)"kelse\0\0";
    assert_int_equal(pawl_core_send_check(&t, 1, &other), PAWL_E_KEY_MISMATCH);
    /* A repeat holds nothing that an undo could give back. */
    pawl_core_send_undo(&two);
    assert_int_equal(keys(w), 1);
    /* Not done: as if it had never been asked. */
    pawl_core_send_undo(&one);
    assert_int_equal(keys(w), 0);
    pawl_core_verify(core);
    t.variable = (const uint8_t *)"kbody\0\0";
    assert_int_equal(pawl_core_send_check(&t, 0, &one), PAWL_OK);
    assert_int_equal(pawl_core_send_check(&t, 1, &two), PAWL_OK_DUPLICATE);
    uint64_t lsn, id = pawl_core_send_commit(&one, &lsn);
    assert_true(pawl_core_send_first(&two) == id);
    w->a.next_seq++;
    repeats(w, "k", "body", id, PAWL_STATE_READY);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeat_makes_no_second_message_and_is_told_the_first),
        cmocka_unit_test(headers_and_times_are_not_compared),
        cmocka_unit_test(a_key_is_of_its_queue),
        cmocka_unit_test(empty_bodies_and_long_keys),
        cmocka_unit_test(a_refused_send_leaves_no_key),
        cmocka_unit_test(a_full_ledger_refuses_new_keys_alone),
        cmocka_unit_test(the_window_ends_at_its_nanosecond),
        cmocka_unit_test(the_queue_says_how_long),
        cmocka_unit_test(while_its_message_lives_a_key_has_no_end),
        cmocka_unit_test(what_is_over_is_given_back),
        cmocka_unit_test(every_end_is_remembered),
        cmocka_unit_test(tombstones_are_forgotten_before_keys),
        cmocka_unit_test(a_copy_before_the_end_and_a_crash_behind_it),
        cmocka_unit_test(a_name_used_again_after_its_window_is_replayed_as_it_was),
        cmocka_unit_test(a_restored_message_has_its_key),
        cmocka_unit_test(a_forwarded_message_leaves_its_key_where_it_was_sent),
        cmocka_unit_test(a_forwarded_message_whose_queue_is_dropped_ends_its_key),
        cmocka_unit_test(a_dropped_queue_takes_its_keys_along),
        cmocka_unit_test(relaxed_and_memory_queues_have_keys),
        cmocka_unit_test(a_duplicate_waits_for_what_it_was_decided_on),
        cmocka_unit_test(a_crash_that_takes_the_message_takes_its_key),
        cmocka_unit_test(sends_of_one_row_meet_before_they_are_committed),
        cmocka_unit_test(a_message_is_cancelled_or_acknowledged_by_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
