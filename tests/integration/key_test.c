/* SPDX-License-Identifier: MIT */
/* Dedup keys through the library (G4): answers of a batch one by one, and six processes that send
 * the same keys again and again under a broker that is killed make one message of each. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/prng.h"
#include "lib/harness.h"

enum { WRITERS = 6, KEYS = 40, ROUNDS = 60, KILLS = 8 };

static struct harness_broker broker;

static struct pawl_send_options with_key(const char *key)
{
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    o.key = key;
    o.key_bytes = (uint32_t)strlen(key);
    return o;
}

static void each_of_a_batch_has_its_own_answer(void)
{
    harness_step("a batch");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "batch", PAWL_DURABLE, 0);
    struct pawl_send_options a = with_key("a"), b = with_key("b");
    const struct pawl_item items[] = {
        { "one", 3, &a }, { "two", 3, &b }, { "one", 3, &a }, { "two!", 4, &b }, { "one", 3, NULL }
    };
    struct pawl_sent sent[5];
    harness_check_rc(pawl_send_batch(lane, "batch", items, 5, sent), PAWL_E_KEY_MISMATCH);
    for (int round = 0; round < 2; round++) {
        harness_check(sent[2].result == PAWL_OK_DUPLICATE && sent[2].id == sent[0].id);
        harness_check(sent[2].state == PAWL_STATE_READY);
        harness_check(sent[3].result == PAWL_E_KEY_MISMATCH && sent[3].id == sent[1].id);
        harness_check(sent[3].state == PAWL_STATE_READY);
        harness_check(sent[4].result == PAWL_OK && sent[4].id != sent[0].id);
        harness_broker_restart(&broker);
        harness_check_rc(pawl_send_batch(lane, "batch", items, 5, sent), PAWL_E_KEY_MISMATCH);
        harness_check(sent[0].result == PAWL_OK_DUPLICATE && sent[1].result == PAWL_OK_DUPLICATE);
    }
    harness_check(harness_stat(lane, "batch").ready == 5); /* one, two, and "one" thrice */
    pawl_close(lane);
}

struct shared {
    uint64_t ids[KEYS]; /* as each writer was told; 0: nobody yet */
    uint32_t made;      /* OK */
    uint32_t unknown;   /* sends whose outcome nobody could say; sent again */
};

/* Sends all keys again and again, each time in another order; what it is told never changes. */
static int writer(void *arg)
{
    struct shared *s = arg;
    struct pawl_prng prng = harness_prng((uint64_t)getpid());
    struct pawl *lane = harness_open(&broker);
    for (int i = 0; i < ROUNDS * KEYS; i++) {
        uint32_t k = (uint32_t)pawl_prng_below(&prng, KEYS);
        char text[16];
        struct pawl_sent sent;
        int n = snprintf(text, sizeof text, "key %u", k);
        struct pawl_send_options o = with_key(text);
        int rc = pawl_send(lane, "shared", text, (size_t)n, &o, &sent);
        /* The broker was away twice before it had heard of this session: what a key is for. */
        while (rc == PAWL_E_OUTCOME_UNKNOWN) {
            __atomic_fetch_add(&s->unknown, 1, __ATOMIC_SEQ_CST);
            rc = pawl_send(lane, "shared", text, (size_t)n, &o, &sent);
        }
        if (rc != PAWL_OK && rc != PAWL_OK_DUPLICATE)
            harness_fail("send answered %s: %s", pawl_strname(rc), pawl_last_text(lane));
        uint64_t none = 0;
        if (!__atomic_compare_exchange_n(&s->ids[k], &none, sent.id, false, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST) &&
            none != sent.id)
            harness_fail("key %u is %llx, was %llx", k, (unsigned long long)sent.id,
                         (unsigned long long)none);
        if (rc == PAWL_OK)
            __atomic_fetch_add(&s->made, 1, __ATOMIC_SEQ_CST);
    }
    pawl_close(lane);
    return 0;
}

static void one_message_a_key_under_kills(void)
{
    harness_step("kills");
    struct shared *s = harness_shared(sizeof *s);
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "shared", PAWL_DURABLE, 0);
    pid_t writers[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        writers[i] = harness_fork(writer, s);
    for (int i = 0; i < KILLS; i++) {
        for (int pause = 0; pause < 20; pause++)
            harness_pause();
        harness_broker_restart(&broker);
    }
    for (int i = 0; i < WRITERS; i++)
        if (harness_wait(writers[i]) != 0)
            harness_fail("a writer failed");
    struct pawl_queue_stat q = harness_stat(lane, "shared");
    harness_check(q.ready == KEYS && q.sent == KEYS);
    harness_check(s->made <= KEYS && s->made + s->unknown >= KEYS);
    printf("%u sends of %u keys by %u processes, %u of unknown outcome\n", WRITERS * ROUNDS * KEYS,
           KEYS, WRITERS, s->unknown);
    /* Consumed, they are remembered all the same. */
    for (int i = 0; i < KEYS; i++) {
        struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
        struct pawl_message m;
        wait.wait_ns = 10 * PAWL_NS_S;
        harness_check_rc(pawl_receive(lane, "shared", &wait, &m), PAWL_OK);
        harness_check(m.key_bytes == m.bytes && memcmp(m.key, m.body, m.bytes) == 0);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    harness_broker_restart(&broker);
    struct pawl_send_options o = with_key("key 7");
    struct pawl_sent sent;
    harness_check_rc(pawl_send(lane, "shared", "key 7", 5, &o, &sent), PAWL_OK_DUPLICATE);
    harness_check(sent.id == s->ids[7] && sent.state == PAWL_STATE_ACKED);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("key_test", 120);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    each_of_a_batch_has_its_own_answer();
    one_message_a_key_under_kills();
    harness_broker_stop(&broker);
    return 0;
}
