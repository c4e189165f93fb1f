/* SPDX-License-Identifier: MIT */
/* The library on the real broker, where a peer in the test says too little: answers in several
 * parts, rings full of what the program holds, large messages, tickets, prefetch and pawl_fd over
 * real kills. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/harness.h"

static struct harness_broker broker;

/* --- answers in parts ------------------------------------------------------------------------ */

/* 1,000 messages make a scan of some 370 KiB, of which one answer holds 16. */
static void scans_lists_and_bodies_are_put_together(void)
{
    enum { N = 1000, BIG = 100000 };
    static struct pawl_item items[N];
    static struct pawl_sent sent[N];
    static struct pawl_record records[PAWL_BATCH_MAX];
    static struct pawl_queue_stat stats[64];
    static uint8_t body[BIG], back[BIG];
    harness_step("parts");
    struct pawl *lane = harness_open(&broker);
    harness_queue(lane, "parts", PAWL_DURABLE, 0);
    static int numbers[N];
    for (int i = 0; i < N; i++) {
        numbers[i] = i;
        items[i] = (struct pawl_item){ .body = &numbers[i], .bytes = sizeof numbers[i] };
    }
    harness_check_rc(pawl_send_batch(lane, "parts", items, N, sent), PAWL_OK);
    records[0].size = sizeof records[0];
    harness_check(
        pawl_query_scan(lane, "parts", 0, 1u << PAWL_STATE_READY, records, PAWL_BATCH_MAX) == N);
    for (int i = 0; i < N; i++)
        harness_check(records[i].id == sent[i].id && records[i].bytes == sizeof(int));
    harness_check(
        pawl_query_scan(lane, "parts", sent[499].id, 1u << PAWL_STATE_READY, records, 7) == 7);
    harness_check(records[0].id == sent[500].id);
    harness_check(pawl_query_scan(lane, "parts", 0, 1u << PAWL_STATE_DEAD, records, 7) == 0);
    /* An element of an older program is smaller. */
    struct {
        size_t size;
        uint64_t id;
    } old[3] = { { sizeof old[0], 0 } };
    harness_check(pawl_query_scan(lane, "parts", 0, 1u << PAWL_STATE_READY, (void *)old, 3) == 3);
    harness_check(old[2].id == sent[2].id);

    char name[24];
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "list-%02d", i);
        harness_queue(lane, name, PAWL_MEMORY, 0);
    }
    stats[0].size = sizeof stats[0];
    harness_check(pawl_queue_list(lane, "list-", stats, 64) >= 50);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "list-%02d", i);
        harness_check(strcmp(stats[i].name, name) == 0 && stats[i].options.mode == PAWL_MEMORY);
    }
    harness_check(pawl_queue_list(lane, "zzz", stats, 64) == 0);

    for (int i = 0; i < BIG; i++)
        body[i] = (uint8_t)(i * 11 + i / 251);
    struct pawl_sent one;
    size_t have;
    harness_check_rc(pawl_send(lane, "parts", body, BIG, NULL, &one), PAWL_OK);
    harness_check_rc(pawl_peek(lane, "parts", one.id, back, BIG, &have), PAWL_OK);
    harness_check(have == BIG && memcmp(back, body, BIG) == 0);
    memset(back, 0, BIG);
    harness_check_rc(pawl_peek(lane, "parts", one.id, back, 20000, &have), PAWL_OK);
    harness_check(have == BIG && memcmp(back, body, 20000) == 0 && back[20000] == 0);
    harness_check_rc(pawl_peek(lane, "parts", one.id + 1, back, BIG, &have), PAWL_E_NOT_FOUND);

    struct pawl_record r = { .size = sizeof r };
    harness_check_rc(pawl_query_one(lane, "parts", sent[7].id, &r), PAWL_OK);
    harness_check(r.id == sent[7].id && r.state == PAWL_STATE_READY);
    harness_check_rc(pawl_query_one(lane, "parts", one.id + 1, &r), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_cancel(lane, "parts", sent[7].id), PAWL_OK);
    harness_check_rc(pawl_cancel(lane, "parts", sent[7].id), PAWL_E_STATE);
    harness_check(strstr(pawl_last_text(lane), "CANCELLED") != NULL);

    static char text[65536];
    int all = pawl_metrics(lane, text, sizeof text);
    harness_check(all > 0 && strlen(text) <= (size_t)all && strchr(text, '\n') != NULL);
    uint64_t count = 0;
    harness_check_rc(pawl_queue_purge(lane, "parts", &count), PAWL_OK);
    harness_check(count == N); /* the large one too, without the one that was cancelled */
    pawl_close(lane);
}

/* --- a ring full of what the program holds --------------------------------------------------- */

static void answers_find_room_beside_what_is_held(uint32_t mode)
{
    harness_step("pinned, mode %u", mode);
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.ring_bytes = 65536;
    struct pawl *lane = harness_open_with(&broker, &o);
    static char body[25000];
    struct pawl_message m;
    memset(body, 'b', sizeof body);
    const char *queue = mode == PAWL_DURABLE ? "pinned" : "pinned-memory";
    harness_queue(lane, queue, mode, 0);
    harness_check_rc(pawl_send(lane, queue, body, sizeof body, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_receive(lane, queue, NULL, &m), PAWL_OK);
    /* The answers of these are more than the ring, and none of it can be freed behind m. */
    enum { N = 4000 };
    uint32_t answered = 0;
    for (uint32_t i = 0; i < N; i++) {
        struct pawl_answer a[64];
        harness_check_rc(pawl_submit_send(lane, queue, &i, sizeof i, NULL, NULL), PAWL_OK);
        if (i % 16 != 15)
            continue;
        int n = pawl_poll(lane, a, 64, 16, 30 * PAWL_NS_S);
        harness_check(n == 16);
        for (int k = 0; k < n; k++, answered++)
            harness_check(a[k].result == PAWL_OK);
    }
    harness_check(answered == N);
    harness_check(m.bytes == sizeof body && memcmp(m.body, body, sizeof body) == 0);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    uint64_t count;
    harness_check_rc(pawl_queue_purge(lane, queue, &count), PAWL_OK);
    harness_check(count == N);
    pawl_close(lane);
}

/* Deliveries of a queue that is not asked for lie in the ring; the other queue goes on. */
static void a_queue_left_alone_blocks_no_other(void)
{
    harness_step("left alone");
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.ring_bytes = 65536;
    o.prefetch = 64;
    struct pawl *lane = harness_open_with(&broker, &o), *sender = harness_open(&broker);
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    static char body[2000];
    r.wait_ns = 30 * PAWL_NS_S;
    harness_queue(lane, "alone", PAWL_MEMORY, PAWL_LEASE_NS_MAX);
    harness_queue(lane, "busy", PAWL_MEMORY, PAWL_LEASE_NS_MAX);
    for (int i = 0; i < 64; i++)
        harness_check_rc(pawl_send(sender, "alone", body, sizeof body, NULL, NULL), PAWL_OK);
    harness_check_rc(pawl_receive(lane, "alone", &r, &m), PAWL_OK);
    harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    for (uint32_t i = 0; i < 300; i++) {
        memcpy(body, &i, sizeof i);
        harness_check_rc(pawl_send(sender, "busy", body, sizeof body, NULL, NULL), PAWL_OK);
        harness_check_rc(pawl_receive(lane, "busy", &r, &m), PAWL_OK);
        harness_check(m.bytes == sizeof body && memcmp(m.body, &i, sizeof i) == 0);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    for (int i = 0; i < 63; i++) {
        harness_check_rc(pawl_receive(lane, "alone", &r, &m), PAWL_OK);
        harness_check(m.acquired == 1);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    pawl_close(sender);
    pawl_close(lane);
}

/* --- over real kills ------------------------------------------------------------------------- */

/* Sends with many in flight, killing the broker under them. */
static void tickets_over_kills(struct pawl *lane, uint32_t n, uint64_t *ids)
{
    pawl_ticket first = 0, t;
    uint32_t answered = 0, submitted = 0, kills = 0;
    while (answered < n) {
        struct pawl_answer a[128];
        for (int k = 0; k < 64 && submitted < n; k++, submitted++) {
            harness_check_rc(pawl_submit_send(lane, "kills", &submitted, 4, NULL, &t), PAWL_OK);
            if (submitted == 0)
                first = t;
        }
        harness_check_rc(pawl_flush(lane), PAWL_OK);
        if (submitted / (n / 4) > kills && kills < 3) {
            kills++;
            harness_broker_restart(&broker);
        }
        int got = pawl_poll(lane, a, 128, 1, 30 * PAWL_NS_S);
        harness_check(got > 0);
        for (int k = 0; k < got; k++, answered++) {
            harness_check(a[k].result == PAWL_OK && a[k].ticket - first < n);
            harness_check(ids[a[k].ticket - first] == 0);
            ids[a[k].ticket - first] = a[k].value;
        }
    }
    harness_check(kills == 3);
}

static void prefetch_over_kills(struct pawl *lane, uint32_t n, const uint64_t *ids)
{
    struct pawl_receive_options r = PAWL_RECEIVE_OPTIONS_INIT;
    r.wait_ns = 30 * PAWL_NS_S;
    for (uint32_t i = 0; i < n; i++) {
        struct pawl_message m;
        uint32_t body;
        harness_check_rc(pawl_receive(lane, "kills", &r, &m), PAWL_OK);
        memcpy(&body, m.body, sizeof body);
        /* In order, once, at the first attempt: neither lost in a ring that died nor given twice.
         */
        harness_check(body == i && m.id == ids[i] && m.acquired == 1);
        if (i % (n / 4) == n / 8)
            harness_broker_restart(&broker);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    r.wait_ns = 0;
    struct pawl_message m;
    harness_check_rc(pawl_receive(lane, "kills", &r, &m), PAWL_OK_EMPTY);
}

static void everything_goes_on_over_kills(void)
{
    enum { N = 2000 };
    static uint64_t ids[N];
    harness_step("kills");
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.prefetch = 32;
    o.window = 256;
    struct pawl *lane = harness_open_with(&broker, &o);
    harness_queue(lane, "kills", PAWL_DURABLE, PAWL_LEASE_NS_MAX);
    tickets_over_kills(lane, N, ids);
    harness_check(harness_stat(lane, "kills").ready == N);
    harness_step("kills, prefetch");
    prefetch_over_kills(lane, N, ids);
    struct pawl_broker_info info = { .size = sizeof info };
    harness_check_rc(pawl_info(lane, &info), PAWL_OK);
    harness_check(info.reattached == 7);
    pawl_close(lane);
}

/* The very first thing that a session does is cut off: it was never in the log. */
static void a_first_call_survives_a_kill(void)
{
    harness_step("first call");
    struct pawl *other = harness_open(&broker);
    harness_queue(other, "first", PAWL_DURABLE, 0);
    pawl_close(other);
    for (int i = 0; i < 5; i++) {
        struct pawl *lane = harness_open(&broker);
        harness_broker_restart(&broker);
        /* Submitted to the dead one. */
        harness_check_rc(pawl_send(lane, "first", &i, sizeof i, NULL, NULL), PAWL_OK);
        harness_broker_restart(&broker);
        harness_check_rc(pawl_send(lane, "first", &i, sizeof i, NULL, NULL), PAWL_OK);
        harness_check(harness_stat(lane, "first").ready == 2 * (uint64_t)(i + 1));
        pawl_close(lane);
    }
}

static void an_event_loop_goes_on_over_kills(void)
{
    harness_step("event loop");
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.prefetch = 8;
    struct pawl *lane = harness_open_with(&broker, &o), *sender = harness_open(&broker);
    harness_queue(lane, "loop", PAWL_DURABLE, 0);
    const char *const queue = "loop";
    int fd = pawl_fd(lane);
    harness_check(fd >= 0);
    for (uint32_t i = 0; i < 40; i++) {
        if (i % 10 == 9)
            harness_broker_restart(&broker);
        harness_check_rc(pawl_send(sender, "loop", &i, sizeof i, NULL, NULL), PAWL_OK);
        for (bool got = false; !got;) {
            struct pollfd p = { .fd = fd, .events = POLLIN };
            struct pawl_message m[4];
            uint32_t count;
            int rc;
            harness_check(poll(&p, 1, -1) == 1); /* the watchdog ends a lost wake-up */
            while ((rc = pawl_receive_batch(lane, &queue, 1, NULL, m, 4, &count)) == PAWL_OK) {
                harness_check(count == 1 && memcmp(m[0].body, &i, sizeof i) == 0);
                harness_check_rc(pawl_submit_ack(lane, &m[0].token, 0, NULL), PAWL_OK);
                got = true;
            }
            harness_check_rc(rc, PAWL_OK_EMPTY);
            struct pawl_answer a[8];
            while ((rc = pawl_poll(lane, a, 8, 0, 0)) > 0)
                harness_check(a[0].result == PAWL_OK);
            harness_check(rc == 0);
        }
        harness_check(pawl_fd(lane) == fd);
    }
    pawl_close(sender);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("client_test", 240);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    scans_lists_and_bodies_are_put_together();
    answers_find_room_beside_what_is_held(PAWL_DURABLE);
    answers_find_room_beside_what_is_held(PAWL_MEMORY);
    a_queue_left_alone_blocks_no_other();
    everything_goes_on_over_kills();
    a_first_call_survives_a_kill();
    an_event_loop_goes_on_over_kills();
    harness_broker_stop(&broker);
    return 0;
}
