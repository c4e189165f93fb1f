/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/prng.h"
#include "core/record.h"
#include "lib/budget.h"
#include "lib/core_shell.h"

/* Random lives: whatever happened, a second core made of the log must be the same; and after
 * copy-forward has dropped every segment but the newest, too. */

#define CLIENTS 3u
#define QUEUES 4u
#define TOKENS 64u

struct life {
    struct core_shell s;
    struct pawl_prng p;
    struct core_client clients[CLIENTS];
    bool attached[CLIENTS];
    uint64_t highest[CLIENTS]; /* grant seen */
    uint64_t queues[QUEUES];
    char names[QUEUES][16];
    struct core_delivery tokens[TOKENS];
    uint64_t ids[TOKENS];
    uint32_t generation;
};

static uint64_t below(struct life *l, uint64_t n) { return pawl_prng_below(&l->p, n); }

static struct core_client *somebody(struct life *l)
{
    uint32_t i = (uint32_t)below(l, CLIENTS);
    if (!l->attached[i]) {
        core_client_open(&l->s, &l->clients[i], 7 + i);
        l->attached[i] = true;
        l->highest[i] = 0;
    }
    return &l->clients[i];
}

static void make_queue(struct life *l, uint32_t i)
{
    static const uint32_t modes[QUEUES] = { PAWL_DURABLE, PAWL_RELAXED, PAWL_MEMORY, PAWL_DURABLE };
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = modes[i];
    o.perm = 0777;
    o.max_failed = 3;
    o.max_crashed = 2;
    o.lease_ns = 2 * PAWL_NS_S;
    o.max_hold_ns = 20 * PAWL_NS_S;
    o.done_retention_ns = 30 * PAWL_NS_S;
    if (i == 0)
        strcpy(o.dead_forward, "q3");
    if (i == 3)
        o.max_messages = 20;
    (void)snprintf(l->names[i], sizeof l->names[i], "q%u", i);
    struct core_answer a = core_queue_command(somebody(l), PAWL_CMD_QUEUE_CREATE, l->names[i], &o);
    if (a.result == PAWL_OK)
        l->queues[i] = a.value;
}

static void send_one(struct life *l)
{
    struct core_send_options o = { .priority = (uint8_t)below(l, 8) };
    if (below(l, 4) == 0)
        o.delay_ns = below(l, 5 * PAWL_NS_S);
    if (below(l, 4) == 0)
        o.ttl_ns = 1 + below(l, 10 * PAWL_NS_S);
    char body[64];
    (void)snprintf(body, sizeof body, "%*s", (int)below(l, 60), "b");
    struct core_answer a = core_send_with(somebody(l), l->queues[below(l, QUEUES)], body, &o);
    if (a.result == PAWL_OK)
        l->ids[below(l, TOKENS)] = a.value;
}

static void receive_some(struct life *l)
{
    struct core_client *c = somebody(l);
    struct pawl_cmd_receive r = { .head.type = PAWL_CMD_RECEIVE, .queue_count = 1 };
    r.max = 1 + (uint32_t)below(l, 5);
    r.lease_kind = (uint8_t)below(l, 3);
    r.flags = below(l, 8) == 0 ? PAWL_RECEIVE_AT_MOST_ONCE : 0;
    r.lease_ns = below(l, 2) ? PAWL_NS_S : 0;
    if (below(l, 8) == 0) {
        r.wait_ns = below(l, PAWL_NS_S);
        r.head.type = below(l, 2) ? PAWL_CMD_SUBSCRIBE : PAWL_CMD_RECEIVE;
    }
    (void)core_call(c, &r, sizeof r, &l->queues[below(l, QUEUES)], 8);
}

/* Reads what was delivered to anybody. */
static void collect(struct life *l)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct core_delivery d;
        while (l->attached[i] && (d = core_delivered(&l->clients[i])).there) {
            if (d.d.grant > l->highest[i])
                l->highest[i] = d.d.grant;
            l->tokens[below(l, TOKENS)] = d;
        }
    }
}

static void settle_one(struct life *l)
{
    static const uint16_t types[] = { PAWL_CMD_ACK,   PAWL_CMD_ACK,    PAWL_CMD_NACK,
                                      PAWL_CMD_NACK,  PAWL_CMD_REJECT, PAWL_CMD_RELEASE,
                                      PAWL_CMD_DEFER, PAWL_CMD_RENEW };
    uint16_t type = types[below(l, 8)];
    uint64_t time_ns = type == PAWL_CMD_NACK && below(l, 2) ? UINT64_MAX : below(l, 3 * PAWL_NS_S);
    const char *reason = type == PAWL_CMD_NACK || type == PAWL_CMD_REJECT ? "because" : NULL;
    (void)core_settle(somebody(l), type, &l->tokens[below(l, TOKENS)], time_ns,
                      (uint32_t)below(l, 2), reason);
}

static void repair_one(struct life *l)
{
    static const uint16_t types[] = { PAWL_CMD_CANCEL, PAWL_CMD_RESTORE, PAWL_CMD_ACK_ID };
    (void)core_by_id(somebody(l), types[below(l, 3)], l->queues[below(l, QUEUES)],
                     l->ids[below(l, TOKENS)], 0);
}

static void administer(struct life *l)
{
    struct core_client *c = somebody(l);
    uint32_t i = (uint32_t)below(l, QUEUES);
    switch (below(l, 5)) {
    case 0:
        (void)core_queue_command(c, PAWL_CMD_QUEUE_PAUSE, l->names[i], NULL);
        break;
    case 1:
        (void)core_queue_command(c, PAWL_CMD_QUEUE_PURGE, l->names[i], NULL);
        break;
    case 2:
        (void)core_queue_command(c, PAWL_CMD_QUEUE_DROP, l->names[i], NULL);
        make_queue(l, i);
        break;
    default:
        for (i = 0; i < QUEUES; i++) /* owned by whoever made it */
            for (uint32_t k = 0; k < CLIENTS; k++)
                if (l->attached[k])
                    (void)core_queue_command(&l->clients[k], PAWL_CMD_QUEUE_RESUME, l->names[i],
                                             NULL);
        break;
    }
}

static void come_and_go(struct life *l)
{
    uint32_t i = (uint32_t)below(l, CLIENTS);
    struct core_client *c = &l->clients[i];
    if (!l->attached[i])
        return;
    switch (below(l, 4)) {
    case 0:
        pawl_core_session_detach(l->s.core, c->session, l->s.now);
        if (core_client_resume(c, l->highest[i], l->highest[i]) != PAWL_OK)
            abort();
        break;
    case 1:
        pawl_core_session_end(l->s.core, c->session, PAWL_END_CLOSED, l->s.now);
        l->attached[i] = false;
        break;
    default:
        pawl_core_lane_taken(l->s.core, c->lane, below(l, l->s.position[c->handle] + 1));
        pawl_core_session_end(l->s.core, c->session, PAWL_END_DEAD, l->s.now);
        l->attached[i] = false;
        break;
    }
}

static void restart(struct life *l)
{
    bool same_boot = below(l, 4) != 0;
    core_restart(&l->s, same_boot);
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (l->attached[i])
            l->attached[i] =
                core_client_resume(&l->clients[i], l->highest[i], l->highest[i]) == PAWL_OK;
    core_turn(&l->s);
    for (uint32_t i = 0; i < QUEUES; i++)
        make_queue(l, i);
}

static void step(struct life *l)
{
    uint64_t what = below(l, 1000);
    if (what < 350)
        send_one(l);
    else if (what < 600)
        receive_some(l);
    else if (what < 850)
        settle_one(l);
    else if (what < 900)
        repair_one(l);
    else if (what < 910)
        administer(l);
    else if (what < 930)
        come_and_go(l);
    else if (what < 990)
        core_pass(&l->s, below(l, PAWL_NS_S));
    else if (what < 995)
        core_copy_all(&l->s);
    else
        restart(l);
    core_turn(&l->s);
    collect(l);
}

static void live(uint64_t seed, uint32_t steps, uint32_t every)
{
    struct life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->p.state = seed;
    core_init(&l->s);
    for (uint32_t i = 0; i < QUEUES; i++)
        make_queue(l, i);
    for (uint32_t i = 0; i < steps; i++) {
        step(l);
        if (i % every == 0)
            core_check(&l->s);
    }
    core_copy_all(&l->s);
    core_end(&l->s);
    free(l);
}

static void random_lives_come_back_as_they_were(void **state)
{
    (void)state;
    uint64_t seed = test_seed("core_replay_test");
    const char *text = getenv("PAWL_LIVES");
    uint32_t lives = text ? (uint32_t)strtoul(text, NULL, 10) : 20;
    for (uint32_t i = 0; i < lives; i++) {
        (void)alarm(120);
        live(seed + i, 1000, 20);
    }
}

static void a_dropped_suffix_is_as_if_it_had_never_been(void **state)
{
    (void)state;
    struct core_shell s;
    struct core_client c;
    core_init(&s);
    core_client_open(&s, &c, 7);
    uint64_t q = core_create(&c, "orders", PAWL_DURABLE);
    (void)core_send(&c, q, "a");
    uint64_t digest = pawl_core_digest(s.core);
    uint32_t records = s.record_count;
    struct core_delivery d = core_receive(&c, q);
    (void)core_ack(&c, &d);
    (void)core_send(&c, q, "b");
    assert_int_not_equal(pawl_core_digest(s.core), digest);
    core_cut(&s, records);
    core_restart(&s, true);
    assert_int_equal(pawl_core_digest(s.core), digest);
    core_end(&s);
}

static void what_was_never_defined_is_damage(void **state)
{
    (void)state;
    struct core_shell s;
    struct core_client c;
    core_init(&s);
    core_client_open(&s, &c, 7);
    uint64_t q = core_create(&c, "orders", PAWL_DURABLE);
    (void)core_send(&c, q, "a");
    core_turn(&s);
    /* each of the first three records in turn: session, lane, queue */
    for (uint32_t missing = 0; missing < 3; missing++) {
        struct core_shell other;
        core_init(&other);
        pawl_core_destroy(other.core);
        core_shell_core(&other);
        int rc = 0;
        for (uint32_t i = 0; i < s.record_count && rc == 0; i++)
            if (i != missing)
                rc = pawl_core_replay(other.core, s.records[i].lsn, s.records[i].type,
                                      s.records[i].body, s.records[i].bytes);
        if (rc == 0)
            rc = pawl_core_start(other.core, s.now, 2, true);
        assert_int_not_equal(rc, 0);
        core_fini(&other);
    }
    core_end(&s);
}

static void nonsense_is_refused_and_harms_nothing(void **state)
{
    (void)state;
    struct core_shell s;
    core_init(&s);
    pawl_core_destroy(s.core);
    core_shell_core(&s);
    struct pawl_prng p = { test_seed("core_replay_test nonsense") };
    uint8_t bytes[2048];
    for (uint32_t i = 0; i < 20000; i++) {
        for (uint32_t k = 0; k < sizeof bytes; k += 8) {
            uint64_t n = i % 3 ? pawl_prng_below(&p, 3) : pawl_prng_next(&p);
            memcpy(bytes + k, &n, 8);
        }
        uint32_t length = (uint32_t)pawl_prng_below(&p, sizeof bytes);
        (void)pawl_core_replay(s.core, 4096 + i * 8, (uint16_t)pawl_prng_below(&p, 14), bytes,
                               length);
    }
    core_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lives_come_back_as_they_were),
        cmocka_unit_test(a_dropped_suffix_is_as_if_it_had_never_been),
        cmocka_unit_test(what_was_never_defined_is_damage),
        cmocka_unit_test(nonsense_is_refused_and_harms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
