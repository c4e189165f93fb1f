/* SPDX-License-Identifier: MIT */
/* Every limit at its value and one past it (L5), and every refusal by its name (semantics 1-3, 14;
 * G10), through the library against a real broker. */
#include <stdlib.h>
#include <string.h>

#include "lib/harness.h"

static struct harness_broker broker;
static struct pawl *lane;

static const char *long_name(size_t bytes)
{
    static char name[400];
    memset(name, 'n', bytes);
    name[bytes] = '\0';
    return name;
}

static int create(const char *name, const struct pawl_queue_options *q)
{
    return pawl_queue_create(lane, name, q);
}

static void names(void)
{
    struct pawl_queue_stat s = { .size = sizeof s };
    harness_step("names");
    harness_check_rc(create(long_name(127), NULL), PAWL_OK);
    harness_check_rc(create(long_name(128), NULL), PAWL_E_INVALID);
    harness_check_rc(create("", NULL), PAWL_E_INVALID);
    harness_check_rc(create("with space", NULL), PAWL_E_INVALID);
    harness_check_rc(create("\xc3\xa4", NULL), PAWL_E_INVALID);
    harness_check_rc(create("AZaz09._:/-", NULL), PAWL_OK);
    harness_check_rc(create("AZaz09._:/-", NULL), PAWL_OK_DUPLICATE);
    harness_check_rc(pawl_queue_stat(lane, "nobody", &s), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_send(lane, "nobody", "x", 1, NULL, NULL), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_queue_drop(lane, "nobody"), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_queue_drop(lane, long_name(127)), PAWL_OK);
}

static void queue_options(void)
{
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    harness_step("queue options");
    q.lease_ns = PAWL_LEASE_NS_MIN;
    harness_check_rc(create("lease.min", &q), PAWL_OK);
    q.lease_ns = PAWL_LEASE_NS_MIN - 1;
    harness_check_rc(create("x", &q), PAWL_E_INVALID);
    q.lease_ns = PAWL_LEASE_NS_MAX;
    harness_check_rc(create("lease.max", &q), PAWL_OK);
    q.lease_ns = PAWL_LEASE_NS_MAX + 1;
    harness_check_rc(create("x", &q), PAWL_E_INVALID);
    q.lease_ns = 0;
    q.max_message_bytes = PAWL_MESSAGE_BYTES_MAX;
    harness_check_rc(create("message.max", &q), PAWL_OK);
    q.max_message_bytes = PAWL_MESSAGE_BYTES_MAX + 1;
    harness_check_rc(create("x", &q), PAWL_E_INVALID);
    q.max_message_bytes = 0;
    q.retry_count = PAWL_RETRY_STEPS_MAX;
    harness_check_rc(create("retry.max", &q), PAWL_OK);
    q.retry_count = PAWL_RETRY_STEPS_MAX + 1;
    harness_check_rc(create("x", &q), PAWL_E_INVALID);
    q.retry_count = 0;
    q.mode = 7;
    harness_check_rc(create("x", &q), PAWL_E_INVALID);
    q.mode = PAWL_DIRECT;
    harness_check_rc(create("direct", &q), PAWL_OK);
    q.dedup_window_ns = PAWL_NS_S; /* keys are for the broker, which is not on its way */
    harness_check_rc(create("x", &q), PAWL_E_NOT_SUPPORTED);
    q.dedup_window_ns = 0;
    q.mode = PAWL_MEMORY;
    harness_check_rc(create("lease.min", &q), PAWL_E_EXISTS);
    q.mode = PAWL_DURABLE;
    q.perm = 01000;
    harness_check_rc(create("x", &q), PAWL_E_INVALID);
    q.perm = PAWL_KEEP;
    /* Altering replaces all but the mode. */
    q.max_messages = 5;
    harness_check_rc(pawl_queue_alter(lane, "lease.min", &q), PAWL_OK);
    harness_check(harness_stat(lane, "lease.min").options.max_messages == 5);
    q.mode = PAWL_MEMORY;
    harness_check(pawl_queue_alter(lane, "lease.min", &q) < 0);
}

static void sizes_of_messages(void)
{
    uint8_t *body = calloc(1, PAWL_MESSAGE_BYTES_MAX + 1);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    const size_t sizes[] = {
        0, 1, 7, 8, 9, 4096, 65535, 65536, 1048575, PAWL_MESSAGE_BYTES_DEFAULT
    };
    harness_step("sizes");
    harness_check(body != NULL);
    for (size_t i = 0; i < PAWL_MESSAGE_BYTES_MAX; i++)
        body[i] = (uint8_t)(i * 31 + (i >> 8));
    harness_check_rc(create("sizes", NULL), PAWL_OK);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        harness_check_rc(pawl_send(lane, "sizes", body, sizes[i], NULL, NULL), PAWL_OK);
        /* Larger than the lane's rings: the library makes them larger. */
        harness_check_rc(pawl_receive(lane, "sizes", &o, &m), PAWL_OK);
        harness_check(m.bytes == sizes[i] && memcmp(m.body, body, m.bytes) == 0);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    harness_check_rc(pawl_send(lane, "sizes", body, PAWL_MESSAGE_BYTES_DEFAULT + 1, NULL, NULL),
                     PAWL_E_TOO_BIG);
    harness_check(strstr(pawl_last_text(lane), "1048576") != NULL);
    harness_step("the largest");
    harness_check_rc(pawl_send(lane, "message.max", body, PAWL_MESSAGE_BYTES_MAX, NULL, NULL),
                     PAWL_OK);
    harness_check_rc(pawl_send(lane, "message.max", body, PAWL_MESSAGE_BYTES_MAX + 1, NULL, NULL),
                     PAWL_E_TOO_BIG);
    harness_check_rc(pawl_send(lane, "message.max", body, SIZE_MAX, NULL, NULL), PAWL_E_TOO_BIG);
    harness_check_rc(pawl_receive(lane, "message.max", &o, &m), PAWL_OK);
    harness_check(m.bytes == PAWL_MESSAGE_BYTES_MAX && memcmp(m.body, body, m.bytes) == 0);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    free(body);
}

static void options_of_sends(void)
{
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    harness_step("send options");
    harness_check_rc(create("options", NULL), PAWL_OK);
    o.priority = 7;
    harness_check_rc(pawl_send(lane, "options", "x", 1, &o, NULL), PAWL_OK);
    o.priority = 8;
    harness_check_rc(pawl_send(lane, "options", "x", 1, &o, NULL), PAWL_E_INVALID);
    o.priority = 4;
    o.delay_ns = PAWL_DELAY_NS_MAX;
    harness_check_rc(pawl_send(lane, "options", "x", 1, &o, NULL), PAWL_OK);
    const uint64_t delays[] = { PAWL_DELAY_NS_MAX + 1, (uint64_t)INT64_MAX, UINT64_MAX };
    for (unsigned i = 0; i < 3; i++) { /* C5: never by overflow at once */
        o.delay_ns = delays[i];
        harness_check_rc(pawl_send(lane, "options", "x", 1, &o, NULL), PAWL_E_INVALID);
    }
    struct pawl_queue_stat s = harness_stat(lane, "options");
    harness_check(s.ready == 1 && s.scheduled == 1);

    /* Headers up to 16 KiB, encoded. */
    static char value[20000];
    struct pawl_header h = { .name = "h", .value = value };
    o = (struct pawl_send_options)PAWL_SEND_OPTIONS_INIT;
    o.headers = &h;
    o.header_count = 1;
    size_t most = PAWL_HEADERS_BYTES_MAX - 3 - 2 - 1; /* two sizes, the name, the value's NUL */
    memset(value, 'v', most);
    harness_check_rc(pawl_send(lane, "options", "x", 1, &o, NULL), PAWL_OK);
    value[most] = 'v';
    int rc = pawl_send(lane, "options", "x", 1, &o, NULL);
    harness_check(rc == PAWL_E_TOO_BIG || rc == PAWL_E_INVALID);
    value[3] = '\0';
    h.name = "";
    harness_check_rc(pawl_send(lane, "options", "x", 1, &o, NULL), PAWL_E_INVALID);
    harness_check_rc(pawl_queue_purge(lane, "options", NULL), PAWL_OK);
    h.name = "name";
    harness_check_rc(pawl_send(lane, "options", "x", 1, &o, NULL), PAWL_OK);
    struct pawl_message m;
    struct pawl_header got;
    harness_check_rc(pawl_receive(lane, "options", NULL, &m), PAWL_OK);
    harness_check_rc(pawl_message_header(&m, 0, &got), PAWL_OK);
    harness_check(strcmp(got.name, "name") == 0 && strcmp(got.value, "vvv") == 0);
    harness_check_rc(pawl_message_header(&m, 1, &got), PAWL_OK_EMPTY);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
}

static void batches(void)
{
    static struct pawl_item items[PAWL_BATCH_MAX + 1];
    static struct pawl_sent out[PAWL_BATCH_MAX + 1];
    static struct pawl_message m[PAWL_BATCH_MAX + 1];
    static struct pawl_token tokens[PAWL_BATCH_MAX + 1];
    const char *queues[17];
    uint32_t count;
    harness_step("batches");
    harness_check_rc(create("batches", NULL), PAWL_OK);
    for (unsigned i = 0; i <= PAWL_BATCH_MAX; i++)
        items[i] = (struct pawl_item){ .body = "item", .bytes = 4 };
    harness_check_rc(pawl_send_batch(lane, "batches", items, 0, out), PAWL_E_INVALID);
    harness_check_rc(pawl_send_batch(lane, "batches", items, PAWL_BATCH_MAX + 1, out),
                     PAWL_E_INVALID);
    harness_check_rc(pawl_send_batch(lane, "batches", items, PAWL_BATCH_MAX, out), PAWL_OK);
    for (unsigned i = 1; i < PAWL_BATCH_MAX; i++)
        harness_check(out[i].result == PAWL_OK && out[i].id > out[i - 1].id);
    for (unsigned i = 0; i < 17; i++)
        queues[i] = "batches";
    harness_check_rc(pawl_receive_batch(lane, queues, 1, NULL, m, PAWL_BATCH_MAX + 1, &count),
                     PAWL_E_INVALID);
    harness_check_rc(pawl_receive_batch(lane, queues, 0, NULL, m, 1, &count), PAWL_E_INVALID);
    harness_check_rc(pawl_receive_batch(lane, queues, 17, NULL, m, 1, &count), PAWL_E_INVALID);
    uint32_t have = 0;
    while (have < PAWL_BATCH_MAX) {
        harness_check_rc(
            pawl_receive_batch(lane, queues, 1, NULL, m, PAWL_BATCH_MAX - have, &count), PAWL_OK);
        for (uint32_t i = 0; i < count; i++)
            tokens[have++] = m[i].token;
    }
    harness_check_rc(pawl_ack_batch(lane, tokens, 0, 0, NULL), PAWL_E_INVALID);
    harness_check_rc(pawl_ack_batch(lane, tokens, PAWL_BATCH_MAX + 1, 0, NULL), PAWL_E_INVALID);
    harness_check_rc(pawl_ack_batch(lane, tokens, PAWL_BATCH_MAX, 0, NULL), PAWL_OK);
    /* One bad item does not spoil the others. */
    static uint8_t big[PAWL_MESSAGE_BYTES_DEFAULT + 1];
    items[1] = (struct pawl_item){ .body = big, .bytes = sizeof big };
    harness_check_rc(pawl_send_batch(lane, "batches", items, 3, out), PAWL_E_TOO_BIG);
    harness_check(out[0].result == PAWL_OK && out[1].result == PAWL_E_TOO_BIG &&
                  out[2].result == PAWL_OK);
    harness_check(harness_stat(lane, "batches").ready == 2);
}

static void full_queues(void)
{
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    struct pawl_message m;
    harness_step("full");
    q.max_messages = 3;
    harness_check_rc(create("full.messages", &q), PAWL_OK);
    for (int i = 0; i < 3; i++)
        (void)harness_send(lane, "full.messages", "x");
    harness_check_rc(pawl_send(lane, "full.messages", "x", 1, NULL, NULL), PAWL_E_FULL);
    harness_check(pawl_last_outcome(lane) == PAWL_OUTCOME_NOT_APPLIED);
    harness_check(strstr(pawl_last_text(lane), "message") != NULL);
    harness_check_rc(pawl_receive(lane, "full.messages", NULL, &m), PAWL_OK);
    /* A leased message is still there. */
    harness_check_rc(pawl_send(lane, "full.messages", "x", 1, NULL, NULL), PAWL_E_FULL);
    o.wait_room_ns = 20 * PAWL_NS_MS;
    harness_check_rc(pawl_send(lane, "full.messages", "x", 1, &o, NULL), PAWL_E_FULL);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_send(lane, "full.messages", "x", 1, NULL, NULL), PAWL_OK);
    q.max_messages = 0;
    q.max_bytes = 1000;
    harness_check_rc(create("full.bytes", &q), PAWL_OK);
    static char body[1001];
    harness_check_rc(pawl_send(lane, "full.bytes", body, 1000, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_send(lane, "full.bytes", body, 1, NULL, NULL), PAWL_E_FULL);
    harness_check(strstr(pawl_last_text(lane), "byte") != NULL);
    harness_check_rc(pawl_queue_purge(lane, "full.bytes", NULL), PAWL_OK);
    harness_check_rc(pawl_send(lane, "full.bytes", body, 999, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_send(lane, "full.bytes", body, 1, NULL, NULL), PAWL_OK);
    q.max_bytes = 0;
    q.max_inflight = 2;
    harness_check_rc(create("full.inflight", &q), PAWL_OK);
    for (int i = 0; i < 3; i++)
        (void)harness_send(lane, "full.inflight", "x");
    harness_check_rc(pawl_receive(lane, "full.inflight", NULL, &m), PAWL_OK);
    harness_check_rc(pawl_receive(lane, "full.inflight", NULL, &m), PAWL_OK);
    struct pawl_message none;
    harness_check_rc(pawl_receive(lane, "full.inflight", NULL, &none), PAWL_E_INFLIGHT_LIMIT);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_receive(lane, "full.inflight", NULL, &none), PAWL_OK);
}

static void states_of_a_message(void)
{
    struct pawl_record r = { .size = sizeof r };
    struct pawl_message m;
    struct pawl_send_options later = PAWL_SEND_OPTIONS_INIT;
    struct pawl_sent s;
    char body[8];
    size_t have;
    harness_step("states");
    later.delay_ns = 3600 * PAWL_NS_S;
    harness_check_rc(create("states", NULL), PAWL_OK);
    harness_check_rc(pawl_send(lane, "states", "later", 5, &later, &s), PAWL_OK);
    harness_check_rc(pawl_query_one(lane, "states", s.id, &r), PAWL_OK);
    harness_check(r.state == PAWL_STATE_SCHEDULED && r.due_in_ns > 3590 * PAWL_NS_S);
    harness_check_rc(pawl_peek(lane, "states", s.id, body, sizeof body, &have), PAWL_OK);
    harness_check(have == 5 && memcmp(body, "later", 5) == 0);
    harness_check_rc(pawl_ack_id(lane, "states", s.id, 0), PAWL_OK);
    harness_check_rc(pawl_ack_id(lane, "states", s.id, 0), PAWL_E_ALREADY_ACKED);
    harness_check_rc(pawl_cancel(lane, "states", s.id), PAWL_E_STATE);
    harness_check(pawl_cancel(lane, "states", s.id + 1000) < 0);

    uint64_t id = harness_send(lane, "states", "one");
    harness_check_rc(pawl_receive(lane, "states", NULL, &m), PAWL_OK);
    harness_check_rc(pawl_cancel(lane, "states", id), PAWL_E_STATE); /* leased */
    harness_check_rc(pawl_ack_id(lane, "states", id, 0), PAWL_E_STATE);
    harness_check_rc(pawl_renew(lane, &m.token, PAWL_LEASE_NS_MAX + 1), PAWL_E_INVALID);
    harness_check_rc(pawl_reject(lane, &m.token, "broken"), PAWL_OK);
    harness_check_rc(pawl_query_one(lane, "states", id, &r), PAWL_OK);
    harness_check(r.state == PAWL_STATE_DEAD && r.dead_reason == PAWL_DEAD_REJECTED);
    harness_check(strcmp(r.reason, "broken") == 0);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_E_STATE);
    harness_check_rc(pawl_ack(lane, &m.token, PAWL_ACK_IGNORE_MISSING), PAWL_OK_MISSING);
    harness_check_rc(pawl_restore(lane, "states", id), PAWL_OK);
    harness_check_rc(pawl_restore(lane, "states", id), PAWL_E_STATE);

    /* Deferred: the old token still acks while nobody else has had it, and only when it says so. */
    harness_check_rc(pawl_receive(lane, "states", NULL, &m), PAWL_OK);
    harness_check_rc(pawl_defer(lane, &m.token, 3600 * PAWL_NS_S, NULL), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_E_LEASE_LOST);
    harness_check_rc(pawl_ack(lane, &m.token, PAWL_ACK_IF_UNCLAIMED), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &m.token, PAWL_ACK_IF_UNCLAIMED), PAWL_E_ALREADY_ACKED);

    /* Paused: sends and acks go on. */
    (void)harness_send(lane, "states", "two");
    harness_check_rc(pawl_receive(lane, "states", NULL, &m), PAWL_OK);
    harness_check_rc(pawl_queue_pause(lane, "states"), PAWL_OK);
    (void)harness_send(lane, "states", "three");
    struct pawl_message none;
    harness_check_rc(pawl_receive(lane, "states", NULL, &none), PAWL_E_PAUSED);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    harness_check_rc(pawl_queue_resume(lane, "states"), PAWL_OK);
    struct pawl_token t = harness_receive(lane, "states", 0, "three");

    /* Purged and dropped under a lease. */
    uint64_t count = 99;
    harness_check_rc(pawl_queue_purge(lane, "states", &count), PAWL_OK);
    harness_check(count == 1);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_E_STATE);
    (void)harness_send(lane, "states", "four");
    t = harness_receive(lane, "states", 0, "four");
    harness_check_rc(pawl_queue_drop(lane, "states"), PAWL_OK);
    harness_check_rc(create("states", NULL), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_E_QUEUE_GONE);
    harness_check(harness_stat(lane, "states").ready == 0);

    struct pawl_token nonsense = { 5, 6, 7 };
    int rc = pawl_ack(lane, &nonsense, 0);
    harness_check(rc == PAWL_E_NOT_FOUND || rc == PAWL_E_FORGOTTEN);
    char text[PAWL_TOKEN_TEXT_BYTES];
    struct pawl_token parsed;
    pawl_token_format(&nonsense, text);
    harness_check(strlen(text) == 48);
    harness_check_rc(pawl_token_parse(text, &parsed), PAWL_OK);
    harness_check(memcmp(&parsed, &nonsense, sizeof parsed) == 0);
    text[3] = 'x';
    harness_check_rc(pawl_token_parse(text, &parsed), PAWL_E_INVALID);
    harness_check_rc(pawl_token_parse("12", &parsed), PAWL_E_INVALID);
}

static void at_most_once(void)
{
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    harness_step("at most once");
    harness_check_rc(create("amo", NULL), PAWL_OK);
    uint64_t id = harness_send(lane, "amo", "once");
    o.flags = PAWL_RECEIVE_AT_MOST_ONCE;
    harness_check_rc(pawl_receive(lane, "amo", &o, &m), PAWL_OK);
    harness_check(m.id == id && m.lease_left_ns == 0);
    harness_broker_restart(&broker);
    harness_check(harness_stat(lane, "amo").ready == 0);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_E_ALREADY_ACKED);
}

/* B-A11: the last allowed failure is death, at once and visibly; before it the ladder is climbed.
 */
static void failures_end_in_death(void)
{
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    struct pawl_record r = { .size = sizeof r };
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    harness_step("failures");
    q.max_failed = 3;
    q.retry_count = 1; /* at once */
    harness_check_rc(create("failures", &q), PAWL_OK);
    uint64_t id = harness_send(lane, "failures", "x");
    o.wait_ns = 10 * PAWL_NS_S;
    for (uint32_t i = 0; i < 3; i++) {
        harness_check_rc(pawl_receive(lane, "failures", &o, &m), PAWL_OK);
        harness_check(m.failed == i && m.nacked == i && m.acquired == i + 1);
        harness_check_rc(pawl_nack(lane, &m.token, PAWL_DELAY_LADDER, "again"), PAWL_OK);
    }
    harness_check_rc(pawl_query_one(lane, "failures", id, &r), PAWL_OK);
    harness_check(r.state == PAWL_STATE_DEAD && r.dead_reason == PAWL_DEAD_FAILED && r.nacked == 3);
    harness_check(harness_stat(lane, "failures").dead == 1);
    /* Listed by state. */
    harness_check(pawl_query_scan(lane, "failures", 0, 1u << PAWL_STATE_DEAD, &r, 1) == 1 &&
                  r.id == id);
    harness_check(pawl_query_scan(lane, "failures", 0, 1u << PAWL_STATE_READY, &r, 1) == 0);
}

static void open_options(void)
{
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl *other = NULL;
    harness_step("open options");
    o.dir = broker.dir;
    o.window = 63;
    harness_check_rc(pawl_open(&o, &other), PAWL_E_INVALID);
    o.window = 65537;
    harness_check_rc(pawl_open(&o, &other), PAWL_E_INVALID);
    o.window = 64;
    o.ring_bytes = 65536;
    harness_check_rc(pawl_open(&o, &other), PAWL_OK);
    pawl_close(other);
    o.ring_bytes = 65535;
    harness_check_rc(pawl_open(&o, &other), PAWL_E_INVALID);
    o.ring_bytes = 1u << 27;
    harness_check_rc(pawl_open(&o, &other), PAWL_E_INVALID);
    o.ring_bytes = 0;
    o.prefetch = 65;
    harness_check_rc(pawl_open(&o, &other), PAWL_E_INVALID);
    o.prefetch = 0;
    o.label = "123456789012345678901234567890123456789012345678901234567890123";
    harness_check_rc(pawl_open(&o, &other), PAWL_OK);
    pawl_close(other);
    o.label = "1234567890123456789012345678901234567890123456789012345678901234";
    harness_check_rc(pawl_open(&o, &other), PAWL_E_INVALID);
    o.label = NULL;
    o.size = 3;
    harness_check_rc(pawl_open(&o, &other), PAWL_E_INVALID);
    harness_check(other == NULL);
}

/* Each result has a name, a sentence, a class and an advice. */
static void results_explain_themselves(void)
{
    harness_step("results");
    const int all[] = {
#define PAWL_X(name, value, outcome, advice, text) PAWL_##name,
        PAWL_RESULTS(PAWL_X)
#undef PAWL_X
    };
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        harness_check(strncmp(pawl_strname(all[i]), "PAWL_", 5) == 0);
        harness_check(pawl_strerror(all[i])[0] != '\0');
        harness_check((all[i] >= 0) == (pawl_outcome_class(all[i]) == PAWL_OUTCOME_APPLIED));
    }
    harness_check(pawl_strname(-999) != NULL && pawl_strerror(-999) != NULL);
    int n = pawl_metrics(lane, NULL, 0);
    harness_check(n > 0);
    char *text = calloc(1, (size_t)n + 4096);
    harness_check(text != NULL && pawl_metrics(lane, text, (size_t)n + 4096) > 0);
    harness_check(strchr(text, '\n') != NULL);
    free(text);
}

int main(void)
{
    harness_begin("limits_test", 120);
    harness_broker_init(&broker, NULL);
    broker.args[0] =
        NULL; /* with segments of the usual size: no record of 16 MiB fits the small ones */
    harness_broker_start(&broker);
    lane = harness_open(&broker);
    names();
    queue_options();
    sizes_of_messages();
    options_of_sends();
    batches();
    full_queues();
    states_of_a_message();
    at_most_once();
    failures_end_in_death();
    open_options();
    results_explain_themselves();
    pawl_close(lane);
    harness_broker_stop(&broker);
    return 0;
}
