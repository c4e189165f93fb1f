/* SPDX-License-Identifier: MIT */
/* Ordering keys with real consumers: messages of a key are worked on one after the other and in
 * order, by whichever process, while the broker is killed (G9; semantics 2). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/prng.h"
#include "lib/harness.h"

static struct harness_broker broker;

enum { CONSUMERS = 4, KEYS = 5, EACH = 120 };

struct key {
    uint32_t busy; /* a consumer works on a message of it */
    uint32_t done; /* so many are acknowledged, or about to be */
};
struct shared {
    uint64_t acked, back;
    struct key keys[KEYS];
};
static struct shared *shared;

static void work(struct pawl *lane, struct pawl_prng *prng, const struct pawl_message *m)
{
    unsigned k, number;
    char text[32];
    harness_check(m->bytes < sizeof text && m->ordering_key_bytes == 1);
    memcpy(text, m->body, m->bytes);
    text[m->bytes] = '\0';
    harness_check(sscanf(text, "%u-%u", &k, &number) == 2 && k < KEYS);
    struct key *key = &shared->keys[k];
    harness_check(__atomic_exchange_n(&key->busy, 1, __ATOMIC_ACQ_REL) == 0);
    harness_check(number == key->done);
    if (pawl_prng_below(prng, 4) == 0)
        harness_pause();
    /* From here on the next one may come, should the call take effect at once. */
    uint64_t act = pawl_prng_below(prng, 8);
    if (act >= 2)
        key->done = number + 1;
    __atomic_store_n(&key->busy, 0, __ATOMIC_RELEASE);
    int rc = act == 0
                 ? pawl_nack(lane, &m->token, pawl_prng_below(prng, 2) * 20 * PAWL_NS_MS, "later")
             : act == 1 ? pawl_release(lane, &m->token)
                        : pawl_ack(lane, &m->token, 0);
    harness_check_rc(rc < 0 ? rc : PAWL_OK, PAWL_OK);
    __atomic_fetch_add(act >= 2 ? &shared->acked : &shared->back, 1, __ATOMIC_RELAXED);
}

static int consume(void *arg)
{
    struct pawl_prng prng = harness_prng((uint64_t)(uintptr_t)arg);
    struct pawl *lane = harness_open(&broker);
    struct pawl_receive_options o = PAWL_RECEIVE_OPTIONS_INIT;
    o.wait_ns = 50 * PAWL_NS_MS;
    o.lease_ns = 600 * PAWL_NS_S;
    while (__atomic_load_n(&shared->acked, __ATOMIC_RELAXED) < KEYS * EACH) {
        struct pawl_message m;
        int rc = pawl_receive(lane, "orders", &o, &m);
        if (rc == PAWL_OK)
            work(lane, &prng, &m);
        else
            harness_check(rc == PAWL_OK_EMPTY);
    }
    pawl_close(lane);
    return 0;
}

static void send_all(struct pawl *lane)
{
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    for (unsigned i = 0; i < KEYS * EACH; i++) {
        unsigned k = i % KEYS;
        char text[32], key = (char)('a' + k);
        snprintf(text, sizeof text, "%u-%u", k, i / KEYS);
        o.ordering_key = &key;
        o.ordering_key_bytes = 1;
        o.priority = i % 8; /* does not change the order in a key */
        harness_check_rc(pawl_send(lane, "orders", text, strlen(text), &o, NULL), PAWL_OK);
    }
}

static void consumers_keep_the_order_of_each_key(void)
{
    pid_t pids[CONSUMERS];
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_failed = 0;
    harness_check_rc(pawl_queue_create(lane, "orders", &o), PAWL_OK);
    send_all(lane);
    shared = harness_shared(sizeof *shared);
    for (uintptr_t i = 0; i < CONSUMERS; i++)
        pids[i] = harness_fork(consume, (void *)(i + 1));
    for (uint64_t round = 1; round <= 4; round++) {
        harness_step("consumers, round %llu", (unsigned long long)round);
        harness_until(__atomic_load_n(&shared->acked, __ATOMIC_RELAXED) >= round * KEYS * EACH / 6);
        harness_broker_kill(&broker);
        harness_broker_start(&broker);
    }
    for (int i = 0; i < CONSUMERS; i++)
        harness_check(harness_wait(pids[i]) == 0);
    struct pawl_queue_stat s = harness_stat(lane, "orders");
    harness_check(s.ready + s.scheduled + s.leased + s.dead == 0);
    for (int k = 0; k < KEYS; k++)
        harness_check(shared->keys[k].done == EACH);
    printf("order: %u acknowledged, %llu given back, four kills\n", KEYS * EACH,
           (unsigned long long)shared->back);
    pawl_close(lane);
}

static void an_ordered_queue_is_one_row(void)
{
    harness_step("an ordered queue");
    struct pawl *lane = harness_open(&broker);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.flags = PAWL_QUEUE_ORDERED;
    harness_check_rc(pawl_queue_create(lane, "row", &o), PAWL_OK);
    (void)harness_send(lane, "row", "one");
    (void)harness_send(lane, "row", "two");
    struct pawl_token t = harness_receive(lane, "row", 0, "one");
    struct pawl_message m;
    harness_check_rc(pawl_receive(lane, "row", NULL, &m), PAWL_OK_EMPTY);
    harness_broker_restart(&broker);
    harness_check_rc(pawl_receive(lane, "row", NULL, &m), PAWL_OK_EMPTY);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    (void)harness_receive(lane, "row", 0, "two");
    harness_check_rc(pawl_queue_create(lane, "row", NULL), PAWL_E_EXISTS);
    harness_check_rc(pawl_queue_alter(lane, "row", NULL), PAWL_E_INVALID);
    pawl_close(lane);
}

static void what_workers_leave_outlives_the_broker(void)
{
    harness_step("progress and results");
    char result[32];
    size_t have = 0;
    struct pawl_message m;
    struct pawl *lane = harness_open(&broker);
    struct pawl_defer_options o = PAWL_DEFER_OPTIONS_INIT;
    harness_queue(lane, "work", PAWL_DURABLE, 600 * PAWL_NS_S);
    uint64_t id = harness_send(lane, "work", "job");
    struct pawl_token t = harness_receive(lane, "work", 0, "job");
    o.progress = "page 7";
    o.progress_bytes = 6;
    harness_check_rc(pawl_defer(lane, &t, 0, &o), PAWL_OK);
    harness_broker_restart(&broker);
    harness_check_rc(pawl_receive(lane, "work", NULL, &m), PAWL_OK);
    harness_check(m.progress_bytes == 6 && memcmp(m.progress, "page 7", 6) == 0);
    t = m.token;
    harness_check_rc(pawl_query_result(lane, "work", id, result, sizeof result, &have),
                     PAWL_E_STATE);
    harness_check_rc(pawl_ack_result(lane, &t, 0, result, PAWL_RESULT_BYTES_MAX + 1),
                     PAWL_E_INVALID);
    harness_check_rc(pawl_ack_result(lane, &t, 0, "42 pages", 8), PAWL_OK);
    harness_broker_restart(&broker);
    harness_check_rc(pawl_query_result(lane, "work", id, result, sizeof result, &have), PAWL_OK);
    harness_check(have == 8 && memcmp(result, "42 pages", 8) == 0);
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_E_ALREADY_ACKED);
    harness_check(strstr(pawl_last_text(lane), "this process acknowledged it") != NULL);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("order_test", 240);
    harness_broker_init(&broker, harness_text("%s/broker", harness_dir()));
    harness_broker_start(&broker);
    consumers_keep_the_order_of_each_key();
    an_ordered_queue_is_one_row();
    what_workers_leave_outlives_the_broker();
    harness_broker_stop(&broker);
    return 0;
}
