/* SPDX-License-Identifier: MIT */
/* Tables and reservations through a real broker that is killed again and again while many clients
 * write: each write has one definite outcome, and what the table says in the end is exactly the sum
 * of what was answered (G1, G3, G6, B41). */
#include <stdlib.h>
#include <string.h>

#include "lib/harness.h"

static struct harness_broker broker;

/* --- adds, compare and set, reservations through kills ---------------------------------------- */

enum { CLIENTS = 6, KILLS = 8, STOCK = 1000000 };

struct client {
    uint32_t index;
    uint64_t lives;
    int64_t added, posted, refilled;
};
static struct shared {
    uint32_t stop;
    struct client clients[CLIENTS];
} * shared;

static void id_of(uint8_t id[16], uint32_t index, uint64_t n)
{
    memset(id, 0, 16);
    memcpy(id, &n, sizeof n);
    memcpy(id + 8, &index, sizeof index);
}

/* Takes some of the stock and posts a part of it, gives it back, or leaves it to its end. */
static void reserve(struct pawl *lane, struct client *c)
{
    uint8_t id[16];
    uint64_t amount = 1 + c->lives % 7, left;
    id_of(id, c->index, c->lives);
    harness_check_rc(pawl_reserve(lane, "stock", id, "cups", 4, amount,
                                  c->lives % 3 == 2 ? 20 * PAWL_NS_MS : 0, &left),
                     PAWL_OK);
    if (c->lives % 3 == 0) {
        uint64_t part = 1 + c->lives % amount;
        harness_check_rc(pawl_post(lane, "stock", id, part), PAWL_OK);
        harness_check_rc(pawl_post(lane, "stock", id, part), PAWL_E_RES_ALREADY_POSTED);
        c->posted += (int64_t)part;
    } else if (c->lives % 3 == 1) {
        harness_check_rc(pawl_void(lane, "stock", id), PAWL_OK);
    }
}

static int live(void *arg)
{
    struct client *c = arg;
    struct pawl *lane = harness_open(&broker);
    char key[16];
    size_t key_bytes = (size_t)snprintf(key, sizeof key, "client-%u", c->index);
    uint64_t version = 0;
    while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
        int64_t now;
        harness_check_rc(pawl_state_add(lane, "stock", "all", 3, 3, 0, INT64_MAX, &now), PAWL_OK);
        c->added += 3;
        harness_check(now >= c->added);
        uint64_t before = version;
        /* Nobody else writes this key: a version that does not fit would be a write done twice. */
        harness_check_rc(pawl_state_put(lane, "stock", key, key_bytes, &c->lives, sizeof c->lives,
                                        version, &version),
                         PAWL_OK);
        harness_check(version > before);
        reserve(lane, c);
        __atomic_fetch_add(&c->lives, 1, __ATOMIC_RELAXED);
    }
    uint64_t last;
    struct pawl_value v = PAWL_VALUE_INIT;
    harness_check_rc(pawl_state_get(lane, "stock", key, key_bytes, &last, sizeof last, &v),
                     PAWL_OK);
    harness_check(v.version == version && v.bytes == sizeof last && last == c->lives - 1);
    pawl_close(lane);
    return 0;
}

static struct pawl_value get(struct pawl *lane, const char *key)
{
    struct pawl_value v = PAWL_VALUE_INIT;
    harness_check_rc(pawl_state_get(lane, "stock", key, strlen(key), NULL, 0, &v), PAWL_OK);
    return v;
}

static void many_writers(void)
{
    pid_t pids[CLIENTS];
    struct pawl *lane = harness_open(&broker);
    shared = harness_shared(sizeof *shared);
    harness_check_rc(pawl_table_create(lane, "stock", NULL), PAWL_OK);
    harness_check_rc(pawl_state_add(lane, "stock", "cups", 4, STOCK, 0, STOCK, NULL), PAWL_OK);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        shared->clients[i].index = i;
        pids[i] = harness_fork(live, &shared->clients[i]);
    }
    for (int round = 0; round < KILLS; round++) {
        harness_step("writers, kill %d", round);
        for (int i = 0; i < CLIENTS; i++) {
            uint64_t *lives = &shared->clients[i].lives, before = __atomic_load_n(lives, 0);
            harness_until(__atomic_load_n(lives, __ATOMIC_RELAXED) >= before + 10);
        }
        harness_broker_kill(&broker);
        harness_broker_start(&broker);
    }
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
    int64_t added = 0, posted = 0;
    uint64_t lives = 0;
    for (int i = 0; i < CLIENTS; i++) {
        harness_check(harness_wait(pids[i]) == 0);
        added += shared->clients[i].added;
        posted += shared->clients[i].posted;
        lives += shared->clients[i].lives;
    }
    harness_step("sums");
    harness_check(get(lane, "all").number == added);
    harness_until(get(lane, "cups").reserved == 0); /* the last ones expire */
    struct pawl_value cups = get(lane, "cups");
    harness_check(cups.posted == posted && cups.number == STOCK - posted);
    harness_broker_restart(&broker);
    harness_check(get(lane, "all").number == added);
    harness_check(get(lane, "cups").posted == posted);
    pawl_close(lane);
    printf("writers: %llu rounds of add, put, reserve over %d kills\n", (unsigned long long)lives,
           KILLS);
}

/* --- large values, scans, copy-forward -------------------------------------------------------- */

static void values_outlive_their_segments(void)
{
    harness_step("large values");
    struct pawl *lane = harness_open(&broker);
    char *value = malloc(PAWL_STATE_BYTES_MAX), *back = malloc(PAWL_STATE_BYTES_MAX);
    harness_check(value && back);
    harness_check_rc(pawl_table_create(lane, "large", NULL), PAWL_OK);
    /* Four keys of 64 KiB written 200 times: 50 MiB through a log of segments of 1 MiB. */
    for (uint32_t i = 0; i < 800; i++) {
        uint8_t key = (uint8_t)(i % 4);
        memset(value, (int)(i % 251), PAWL_STATE_BYTES_MAX);
        harness_check_rc(
            pawl_state_put(lane, "large", &key, 1, value, PAWL_STATE_BYTES_MAX, PAWL_ANY, NULL),
            PAWL_OK);
        if (i == 500)
            harness_broker_restart(&broker);
    }
    harness_broker_restart(&broker);
    for (uint32_t i = 796; i < 800; i++) {
        uint8_t key = (uint8_t)(i % 4);
        struct pawl_value v = PAWL_VALUE_INIT;
        memset(value, (int)(i % 251), PAWL_STATE_BYTES_MAX);
        harness_check_rc(pawl_state_get(lane, "large", &key, 1, back, PAWL_STATE_BYTES_MAX, &v),
                         PAWL_OK);
        harness_check(v.bytes == PAWL_STATE_BYTES_MAX);
        harness_check(memcmp(value, back, PAWL_STATE_BYTES_MAX) == 0);
    }
    harness_check_rc(pawl_table_drop(lane, "large"), PAWL_OK);
    harness_check_rc(pawl_state_get(lane, "large", "k", 1, NULL, 0, NULL), PAWL_E_NOT_FOUND);
    pawl_close(lane);
    free(value);
    free(back);
}

/* A value that takes several answers is read while another process writes it: each read shows one
 * version whole. */
static int rewrite(void *arg)
{
    uint32_t *stop = arg;
    struct pawl *lane = harness_open(&broker);
    uint8_t *value = malloc(PAWL_STATE_BYTES_MAX);
    harness_check(value != NULL);
    for (uint32_t i = 0; !__atomic_load_n(stop, __ATOMIC_RELAXED); i++) {
        memset(value, (int)(i % 256), PAWL_STATE_BYTES_MAX);
        harness_check_rc(pawl_state_put(lane, "torn", "k", 1, value, 20000 + i % 7, PAWL_ANY, NULL),
                         PAWL_OK);
    }
    pawl_close(lane);
    free(value);
    return 0;
}

static void a_long_read_is_of_one_version(void)
{
    harness_step("long reads");
    struct pawl *lane = harness_open(&broker);
    uint32_t *stop = harness_shared(sizeof *stop), conflicts = 0, reads = 0;
    uint8_t *value = malloc(PAWL_STATE_BYTES_MAX);
    harness_check(value != NULL);
    harness_check_rc(pawl_table_create(lane, "torn", NULL), PAWL_OK);
    harness_check_rc(pawl_state_put(lane, "torn", "k", 1, "", 0, 0, NULL), PAWL_OK);
    pid_t pid = harness_fork(rewrite, stop);
    uint64_t last = 0;
    while (reads < 40) {
        struct pawl_value v = PAWL_VALUE_INIT;
        int rc = pawl_state_get(lane, "torn", "k", 1, value, PAWL_STATE_BYTES_MAX, &v);
        if (rc == PAWL_E_CONFLICT) {
            conflicts++;
            continue;
        }
        harness_check_rc(rc, PAWL_OK);
        harness_check(v.version >= last && v.bytes <= PAWL_STATE_BYTES_MAX);
        for (uint32_t i = 1; i < v.bytes; i++)
            harness_check(value[i] == value[0]);
        last = v.version;
        reads++;
    }
    __atomic_store_n(stop, 1, __ATOMIC_RELAXED);
    harness_check(harness_wait(pid) == 0);
    pawl_close(lane);
    free(value);
    printf("long reads: %u whole, %u given up\n", reads, conflicts);
}

static void a_scan_sees_each_key_once(void)
{
    harness_step("scan");
    enum { KEYS = 3000 };
    struct pawl *lane = harness_open(&broker);
    struct pawl_state_item *items = calloc(PAWL_STATE_PAGE_MAX, sizeof *items);
    harness_check(items != NULL);
    harness_check_rc(pawl_table_create(lane, "scanned", NULL), PAWL_OK);
    char key[32];
    for (int i = 0; i < KEYS; i++) {
        int n = snprintf(key, sizeof key, "a/%05d", i * 1237 % KEYS);
        harness_check_rc(
            pawl_state_add(lane, "scanned", key, (size_t)n, i, INT64_MIN, INT64_MAX, NULL),
            PAWL_OK);
    }
    harness_check_rc(pawl_state_put(lane, "scanned", "b", 1, "x", 1, 0, NULL), PAWL_OK);
    harness_broker_restart(&broker);
    uint8_t after[PAWL_KEY_BYTES_MAX];
    size_t after_bytes = 0;
    int seen = 0;
    for (int n;;) {
        items[0].size = sizeof items[0];
        n = pawl_state_scan(lane, "scanned", "a/", 2, after, after_bytes, items, 1000);
        harness_check(n >= 0);
        if (n == 0)
            break;
        for (int i = 0; i < n; i++, seen++) {
            (void)snprintf(key, sizeof key, "a/%05d", seen);
            harness_check(items[i].key_bytes == 7 && memcmp(items[i].key, key, 8) == 0);
            harness_check(items[i].value.number * 1237 % KEYS == seen);
        }
        after_bytes = items[n - 1].key_bytes;
        memcpy(after, items[n - 1].key, after_bytes);
    }
    harness_check(seen == KEYS);
    harness_check(harness_stat(lane, "scanned").ready == KEYS + 1);
    pawl_close(lane);
    free(items);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void refusals_have_names_and_words(void)
{
    harness_step("refusals");
    struct pawl *lane = harness_open(&broker);
    struct pawl_sent sent;
    uint64_t version = 0, left = 0;
    int64_t now = 0;
    uint8_t id[16];
    id_of(id, 99, 1);
    harness_queue(lane, "queue", PAWL_DURABLE, 0);
    harness_check_rc(pawl_table_create(lane, "table", NULL), PAWL_OK);
    harness_check_rc(pawl_table_create(lane, "table", NULL), PAWL_OK_DUPLICATE);
    harness_check_rc(pawl_send(lane, "table", "x", 1, NULL, &sent), PAWL_E_NOT_SUPPORTED);
    harness_check_rc(pawl_state_put(lane, "queue", "k", 1, "x", 1, PAWL_ANY, NULL),
                     PAWL_E_NOT_SUPPORTED);
    harness_check(strstr(pawl_last_text(lane), "queues") != NULL);
    harness_check_rc(pawl_state_put(lane, "table", "k", 1, "x", 1, 0, &version), PAWL_OK);
    uint64_t first = version;
    harness_check_rc(pawl_state_put(lane, "table", "k", 1, "y", 1, 0, &version),
                     PAWL_E_PRECONDITION);
    harness_check(version == first);
    harness_check_rc(pawl_state_add(lane, "table", "k", 1, 1, 0, 9, &now), PAWL_E_STATE);
    harness_check_rc(pawl_state_add(lane, "table", "n", 1, 5, 0, 9, &now), PAWL_OK);
    harness_check_rc(pawl_state_add(lane, "table", "n", 1, 5, 0, 9, &now), PAWL_E_PRECONDITION);
    harness_check(now == 5 && strstr(pawl_last_text(lane), "5") != NULL);
    harness_check_rc(pawl_reserve(lane, "table", id, "n", 1, 6, 0, &left), PAWL_E_RES_SHORT);
    harness_check(left == 5);
    harness_check_rc(pawl_reserve(lane, "table", id, "n", 1, 4, 0, &left), PAWL_OK);
    harness_check_rc(pawl_reserve(lane, "table", id, "n", 1, 4, 0, &left), PAWL_OK_DUPLICATE);
    harness_check(left == 1);
    harness_check_rc(pawl_state_delete(lane, "table", "n", 1, PAWL_ANY), PAWL_E_STATE);
    struct pawl_reservation r = { .size = sizeof r };
    harness_check_rc(pawl_reservation_get(lane, "table", id, &r), PAWL_OK);
    harness_check(r.state == PAWL_RESERVATION_OPEN && r.amount == 4 && r.key[0] == 'n');
    harness_check_rc(pawl_void(lane, "table", id), PAWL_OK);
    harness_check_rc(pawl_void(lane, "table", id), PAWL_E_RES_ALREADY_VOIDED);
    harness_check_rc(pawl_state_delete(lane, "table", "n", 1, PAWL_ANY), PAWL_OK);
    harness_check_rc(pawl_state_delete(lane, "table", "n", 1, PAWL_ANY), PAWL_OK_MISSING);
    struct pawl_value v = PAWL_VALUE_INIT;
    harness_check_rc(pawl_state_get(lane, "table", "n", 1, NULL, 0, &v), PAWL_OK_MISSING);
    harness_check(v.version == 0 && v.kind == PAWL_VALUE_NONE);
    harness_check_rc(pawl_state_get(lane, "table", "", 0, NULL, 0, &v), PAWL_E_INVALID);
    /* limits: each at it and one past it */
    char key[PAWL_KEY_BYTES_MAX + 1];
    memset(key, 'k', sizeof key);
    harness_check_rc(pawl_state_put(lane, "table", key, PAWL_KEY_BYTES_MAX, "x", 1, 0, NULL),
                     PAWL_OK);
    harness_check_rc(pawl_state_put(lane, "table", key, PAWL_KEY_BYTES_MAX + 1, "x", 1, 0, NULL),
                     PAWL_E_INVALID);
    harness_check_rc(pawl_state_get(lane, "table", key, PAWL_KEY_BYTES_MAX, NULL, 0, &v), PAWL_OK);
    char *large = calloc(1, PAWL_STATE_BYTES_MAX + 1);
    harness_check(large != NULL);
    harness_check_rc(pawl_state_put(lane, "table", "l", 1, large, PAWL_STATE_BYTES_MAX, 0, NULL),
                     PAWL_OK);
    harness_check_rc(
        pawl_state_put(lane, "table", "m", 1, large, PAWL_STATE_BYTES_MAX + 1, 0, NULL),
        PAWL_E_TOO_BIG);
    free(large);
    struct pawl_state_item item = { .size = sizeof item };
    harness_check_rc(
        pawl_state_scan(lane, "table", NULL, 0, NULL, 0, &item, PAWL_STATE_PAGE_MAX + 1),
        PAWL_E_INVALID);
    harness_check_rc(pawl_reserve(lane, "table", id, "n", 1, 0, 0, NULL), PAWL_E_INVALID);
    harness_check_rc(pawl_reserve(lane, "table", id, "n", 1, 1, PAWL_DELAY_NS_MAX + 1, NULL),
                     PAWL_E_INVALID);
    pawl_close(lane);
}

int main(void)
{
    harness_begin("state", 280);
    harness_broker_init(&broker, NULL);
    harness_broker_start(&broker);
    many_writers();
    values_outlive_their_segments();
    a_long_read_is_of_one_version();
    a_scan_sees_each_key_once();
    refusals_have_names_and_words();
    harness_broker_stop(&broker);
    return 0;
}
