/* SPDX-License-Identifier: MIT */
/* Idempotent operations: who does the work of a key, and what everybody else is told. */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core_inner.h"
#include "lib/core_shell.h"

#define LEASE (10 * PAWL_NS_S)
#define DAY (24ull * 3600 * PAWL_NS_S)
#define LARGE 20000u

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t t;
};

/* What a begin or get was told, and the token of a FIRST. */
struct told {
    int result;
    uint64_t value, seq;
    struct pawl_idem_data d;
    uint8_t bytes[PAWL_DATA_BYTES_MAX];
    uint32_t count;
    char key[32];
};

static struct world *begin_world(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 7);
    w->t = core_create(&w->a, "once", PAWL_TABLE);
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static struct core_answer call(struct core_client *c, struct pawl_cmd_idem *m, const char *key,
                               const void *bytes)
{
    static uint8_t row[PAWL_IDEM_RESULT_BYTES_MAX + 512];
    uint32_t all = (uint32_t)(strlen(key) + m->bytes);
    memset(row, 0, (size_t)all + 8);
    memcpy(row, key, strlen(key));
    if (m->bytes)
        memcpy(row + strlen(key), bytes, m->bytes);
    m->head.type = PAWL_CMD_IDEM;
    m->key_bytes = (uint8_t)strlen(key);
    return core_call(c, m, sizeof *m, row, (uint32_t)pawl_align_up(all, 8));
}

static struct told told_of(const struct core_answer *a, const char *key)
{
    struct told t = { .result = a->result, .value = a->value, .seq = a->seq };
    snprintf(t.key, sizeof t.key, "%s", key);
    if (a->result != PAWL_OK)
        return t;
    assert_non_null(a->data);
    assert_true(a->bytes >= sizeof t.d);
    memcpy(&t.d, a->data, sizeof t.d);
    t.count = a->bytes - (uint32_t)sizeof t.d;
    memcpy(t.bytes, a->data + sizeof t.d, t.count);
    return t;
}

static struct told begin_hash(struct core_client *c, uint64_t table, const char *key, uint64_t hash)
{
    struct pawl_cmd_idem m = { .table = table, .hash = hash, .op = PAWL_IDEM_OP_BEGIN };
    m.lease_ns = LEASE;
    struct core_answer a = call(c, &m, key, NULL);
    return told_of(&a, key);
}

static struct told begin(struct world *w, struct core_client *c, const char *key)
{
    return begin_hash(c, w->t, key, 1);
}

static struct told look(struct world *w, struct core_client *c, const char *key, uint64_t grant,
                        uint32_t offset)
{
    struct pawl_cmd_idem m = { .table = w->t, .grant = grant, .op = PAWL_IDEM_OP_READ };
    m.offset = offset;
    struct core_answer a = call(c, &m, key, NULL);
    return told_of(&a, key);
}

static struct pawl_cmd_idem by_token(struct world *w, const struct told *t, uint8_t op)
{
    struct pawl_cmd_idem m = { .table = w->t, .grant = t->d.grant, .op = op };
    m.random = t->d.random;
    return m;
}

static struct core_answer complete(struct world *w, struct core_client *c, const struct told *t,
                                   int32_t code, const char *result, uint16_t flags)
{
    struct pawl_cmd_idem m = by_token(w, t, PAWL_IDEM_OP_COMPLETE);
    m.code = code;
    m.bytes = (uint32_t)strlen(result);
    m.flags = flags;
    return call(c, &m, t->key, result);
}

static struct core_answer progress(struct world *w, struct core_client *c, const struct told *t,
                                   const char *bytes)
{
    struct pawl_cmd_idem m = by_token(w, t, PAWL_IDEM_OP_PROGRESS);
    m.bytes = (uint32_t)strlen(bytes);
    return call(c, &m, t->key, bytes);
}

static struct core_answer abandon(struct world *w, struct core_client *c, const struct told *t)
{
    struct pawl_cmd_idem m = by_token(w, t, PAWL_IDEM_OP_ABANDON);
    return call(c, &m, t->key, NULL);
}

/* A session that wrote nothing is not known after a restart. */
static void come_back(struct world *w, struct core_client *c)
{
    if (core_client_resume(c, 0, 0) != PAWL_OK)
        core_client_open(&w->s, c, 7);
}

static void restart(struct world *w)
{
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, 0, 0), PAWL_OK);
    come_back(w, &w->b);
}

static void expect(const struct told *t, uint32_t state, uint32_t attempts)
{
    assert_int_equal(t->result, PAWL_OK);
    assert_int_equal(t->d.state, state);
    assert_int_equal(t->d.attempts, attempts);
}

static void expect_bytes(const struct told *t, const char *bytes)
{
    assert_int_equal(t->count, strlen(bytes));
    assert_memory_equal(t->bytes, bytes, t->count);
}

/* --- the table of states and requests -------------------------------------------------------- */

/* Brings the key into a state; *t is the token of its newest owner. */
static void bring(struct world *w, const char *key, uint32_t state, struct told *t)
{
    *t = begin(w, &w->a, key);
    expect(t, PAWL_IDEM_FIRST, 0);
    if (state == PAWL_IDEM_ABANDONED)
        assert_int_equal(abandon(w, &w->a, t).result, PAWL_OK);
    else if (state == PAWL_IDEM_DONE)
        assert_int_equal(complete(w, &w->a, t, 0, "result", 0).result, PAWL_OK);
    else if (state == PAWL_IDEM_FAILED)
        assert_int_equal(complete(w, &w->a, t, 7, "why", PAWL_IDEM_FINAL_FAIL).result, PAWL_OK);
}

static void each_state_answers_each_request(void **state)
{
    (void)state;
    static const struct row {
        uint32_t state, begun;                  /* what another begin is told */
        int same, other, abandoned, progressed; /* complete: as done, otherwise */
    } rows[] = {
        { PAWL_IDEM_IN_PROGRESS, PAWL_IDEM_IN_PROGRESS, PAWL_OK, PAWL_OK, PAWL_OK, PAWL_OK },
        { PAWL_IDEM_ABANDONED, PAWL_IDEM_FIRST, PAWL_E_LEASE_LOST, PAWL_E_LEASE_LOST,
          PAWL_E_LEASE_LOST, PAWL_E_LEASE_LOST },
        { PAWL_IDEM_DONE, PAWL_IDEM_DONE, PAWL_OK_DUPLICATE, PAWL_E_STATE, PAWL_E_STATE,
          PAWL_E_STATE },
        { PAWL_IDEM_FAILED, PAWL_IDEM_FAILED, PAWL_E_STATE, PAWL_E_STATE, PAWL_E_STATE,
          PAWL_E_STATE },
    };
    struct world *w = begin_world();
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        char key[32];
        for (uint32_t request = 0; request < 6; request++) {
            struct told t, u;
            snprintf(key, sizeof key, "%u.%u", i, request);
            bring(w, key, r->state, &t);
            if (request & 1)
                restart(w);
            switch (request) {
            case 0:
                assert_int_equal(complete(w, &w->a, &t, 0, "result", 0).result, r->same);
                break;
            case 1:
                assert_int_equal(complete(w, &w->a, &t, 0, "other", 0).result, r->other);
                break;
            case 2:
                assert_int_equal(abandon(w, &w->a, &t).result, r->abandoned);
                break;
            case 3:
                assert_int_equal(progress(w, &w->a, &t, "half").result, r->progressed);
                break;
            case 4:
                u = begin_hash(&w->b, w->t, key, 2);
                assert_int_equal(u.result, PAWL_E_IDEM_MISMATCH);
                assert_int_equal(u.value, 1);
                break;
            default:
                u = begin(w, &w->b, key);
                expect(&u, r->begun, 1);
                assert_int_equal(u.d.random != 0, u.d.state == PAWL_IDEM_FIRST);
                break;
            }
            pawl_core_verify(w->s.core);
        }
    }
    struct told t = { .d = { .grant = 1, .random = 1 }, .key = "nobody" };
    assert_int_equal(complete(w, &w->a, &t, 0, "", 0).result, PAWL_E_NOT_FOUND);
    assert_int_equal(abandon(w, &w->a, &t).result, PAWL_E_NOT_FOUND);
    assert_int_equal(look(w, &w->a, "nobody", 0, 0).result, PAWL_OK_MISSING);
    core_copy_all(&w->s);
    end(w);
}

static void the_result_is_told_byte_for_byte(void **state)
{
    (void)state;
    struct world *w = begin_world();
    uint8_t *result = malloc(LARGE);
    assert_non_null(result);
    for (uint32_t i = 0; i < LARGE; i++)
        result[i] = (uint8_t)(i * 7 + i / 256);
    struct told t = begin(w, &w->a, "pay");
    struct pawl_cmd_idem m = by_token(w, &t, PAWL_IDEM_OP_COMPLETE);
    m.code = -5;
    m.bytes = LARGE;
    struct core_answer a = call(&w->a, &m, "pay", result);
    assert_int_equal(a.result, PAWL_OK);
    uint64_t lsn = a.lsn;
    for (int round = 0; round < 3; round++) {
        struct told u = begin(w, &w->b, "pay");
        expect(&u, PAWL_IDEM_DONE, 1);
        assert_int_equal(u.d.code, -5);
        assert_int_equal(u.d.bytes, LARGE);
        assert_int_equal(u.d.lsn, lsn);
        uint32_t have = u.count;
        assert_memory_equal(u.bytes, result, have);
        assert_true(have < LARGE);
        struct told v = look(w, &w->b, "pay", u.d.grant, have);
        expect(&v, PAWL_IDEM_DONE, 1);
        assert_int_equal(have + v.count, LARGE);
        assert_memory_equal(v.bytes, result + have, v.count);
        assert_int_equal(look(w, &w->b, "pay", u.d.grant + 1, have).result, PAWL_E_CONFLICT);
        if (round == 0)
            core_copy_all(&w->s);
        else
            restart(w);
    }
    free(result);
    end(w);
}

/* --- ends ------------------------------------------------------------------------------------ */

static void an_owner_that_dies_leaves_its_progress(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct told t = begin(w, &w->a, "pay");
    struct told other = begin(w, &w->a, "other");
    assert_int_equal(complete(w, &w->a, &other, 0, "", 0).result, PAWL_OK);
    assert_int_equal(progress(w, &w->a, &t, "card was charged").result, PAWL_OK);
    struct told u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_IN_PROGRESS, 1);
    assert_int_equal(u.d.pid, 1007);
    assert_in_range(u.d.left_ns, 1, LEASE);
    pawl_core_session_end(w->s.core, w->a.session, PAWL_END_DEAD, w->s.now);
    core_turn(&w->s);
    core_check(&w->s);
    u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_FIRST, 1);
    expect_bytes(&u, "card was charged");
    assert_true(u.d.grant > t.d.grant);
    struct core_answer a = complete(w, &w->b, &t, 0, "late", 0);
    assert_int_equal(a.result, PAWL_E_LEASE_LOST);
    assert_int_equal(a.value, 1007);
    assert_int_equal(complete(w, &w->b, &u, 0, "mine", 0).result, PAWL_OK);
    assert_int_equal(complete(w, &w->b, &t, 0, "late", 0).result, PAWL_E_LEASE_LOST);
    u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_DONE, 2);
    expect_bytes(&u, "mine");
    u = begin(w, &w->b, "other");
    expect(&u, PAWL_IDEM_DONE, 1);
    end(w);
}

/* The end of the session and what it had in its hands are one record, before and after copies. */
static void the_end_of_a_session_is_replayed(void **state)
{
    (void)state;
    for (uint32_t copied = 0; copied < 3; copied++) {
        struct world *w = begin_world();
        struct told t = begin(w, &w->a, "pay");
        expect(&t, PAWL_IDEM_FIRST, 0);
        if (copied == 1)
            core_copy_all(&w->s);
        pawl_core_session_end(w->s.core, w->a.session, PAWL_END_CLOSED, w->s.now);
        core_turn(&w->s);
        if (copied == 2)
            core_copy_all(&w->s);
        core_check(&w->s);
        core_restart(&w->s, true);
        come_back(w, &w->b);
        struct told u = look(w, &w->b, "pay", 0, 0);
        expect(&u, PAWL_IDEM_ABANDONED, 1);
        u = begin(w, &w->b, "pay");
        expect(&u, PAWL_IDEM_FIRST, 1);
        end(w);
    }
}

/* However long the disk takes: the time runs from when its owner can know of it (G12). */
static void a_lease_runs_from_its_publication(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct pawl_cmd_idem m = { .table = w->t, .hash = 1, .op = PAWL_IDEM_OP_BEGIN };
    m.lease_ns = LEASE;
    m.head.type = PAWL_CMD_IDEM;
    m.key_bytes = 3;
    assert_int_equal(core_take(&w->a, &m, sizeof m, "pay\0\0\0\0\0", 8), PAWL_OK);
    core_pass(&w->s, 3 * LEASE);
    core_turn(&w->s); /* timers, then publication */
    struct core_answer a = core_answer(&w->a, m.head.seq);
    struct told t = told_of(&a, "pay");
    expect(&t, PAWL_IDEM_FIRST, 0);
    assert_int_equal(t.d.left_ns, LEASE);
    core_pass(&w->s, LEASE - 1);
    core_turn(&w->s);
    struct told other = begin(w, &w->b, "pay");
    expect(&other, PAWL_IDEM_IN_PROGRESS, 1);
    assert_int_equal(complete(w, &w->a, &t, 0, "done", 0).result, PAWL_OK);
    /* Dropped with its rings it begins then, and ends. */
    m.head.seq = 0;
    assert_int_equal(core_take(&w->a, &m, sizeof m, "due\0\0\0\0\0", 8), PAWL_OK);
    pawl_core_session_detach(w->s.core, w->a.session, w->s.now);
    core_turn(&w->s);
    core_pass(&w->s, LEASE);
    core_turn(&w->s);
    other = begin(w, &w->b, "due");
    expect(&other, PAWL_IDEM_FIRST, 1);
    end(w);
}

static void a_lease_ends_and_its_token_with_it(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct told t = begin(w, &w->a, "pay"), late = begin(w, &w->a, "late");
    core_pass(&w->s, LEASE - 5 * PAWL_NS_MS);
    assert_int_equal(progress(w, &w->a, &t, "").result, PAWL_OK); /* renews it */
    core_pass(&w->s, 10 * PAWL_NS_MS);
    /* The deadline decides, though no timer has fired. */
    struct pawl_cmd_idem m = by_token(w, &late, PAWL_IDEM_OP_COMPLETE);
    m.head.type = PAWL_CMD_IDEM;
    m.key_bytes = 4;
    assert_int_equal(core_take(&w->a, &m, sizeof m, "late\0\0\0\0", 8), PAWL_OK);
    core_turn(&w->s);
    assert_int_equal(core_answer(&w->a, m.head.seq).result, PAWL_E_LEASE_LOST);
    struct told u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_IN_PROGRESS, 1);
    core_pass(&w->s, LEASE);
    core_turn(&w->s);
    core_check(&w->s);
    u = look(w, &w->b, "pay", 0, 0);
    expect(&u, PAWL_IDEM_ABANDONED, 1);
    assert_int_equal(complete(w, &w->a, &t, 0, "", 0).result, PAWL_E_LEASE_LOST);
    u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_FIRST, 1);
    end(w);
}

/* Its owner was told that it is over: that stays so, though a new broker gives full time. */
static void what_was_refused_stays_so_over_a_crash(void **state)
{
    (void)state;
    struct world *w = begin_world();
    for (int i = 0; i < 2; i++) {
        struct told t = begin(w, &w->a, i ? "one" : "two");
        uint8_t row[8 + 16] = { 0 };
        struct pawl_cmd_idem m = by_token(w, &t, PAWL_IDEM_OP_COMPLETE);
        uint64_t ms = w->s.now.wall / PAWL_NS_MS;
        memcpy(row, t.key, 3);
        for (int k = 0; k < 6; k++)
            row[8 + k] = (uint8_t)(ms >> (40 - 8 * k));
        row[14] = 0x70;
        row[16] = 0x80;
        m.head.type = PAWL_CMD_IDEM;
        m.head.flags = i ? PAWL_CMD_IDENTIFIED : 0;
        m.key_bytes = 3;
        core_pass(&w->s, LEASE);
        assert_int_equal(core_take(&w->a, &m, sizeof m, row, i ? sizeof row : 8), PAWL_OK);
        core_publish(&w->s); /* no timer has fired */
        assert_int_equal(core_answer(&w->a, m.head.seq).result, PAWL_E_LEASE_LOST);
        core_check(&w->s);
        restart(w);
        assert_int_equal(complete(w, &w->a, &t, 0, "", 0).result, PAWL_E_LEASE_LOST);
        t = begin(w, &w->b, t.key);
        expect(&t, PAWL_IDEM_FIRST, 1);
    }
    end(w);
}

static void after_a_restart_the_lease_has_its_full_time(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct told t = begin(w, &w->a, "pay");
    core_pass(&w->s, 100 * PAWL_NS_S); /* nobody ran */
    restart(w);
    struct told u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_IN_PROGRESS, 1);
    assert_int_equal(complete(w, &w->a, &t, 3, "x", 0).result, PAWL_OK);
    u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_DONE, 1);
    end(w);
}

static void what_is_over_is_forgotten_after_a_day(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct told t;
    bring(w, "done", PAWL_IDEM_DONE, &t);
    bring(w, "abandoned", PAWL_IDEM_ABANDONED, &t);
    struct told p = begin(w, &w->a, "open");
    for (int i = 0; i < 26; i++) { /* no end while it is worked on */
        core_pass(&w->s, LEASE - PAWL_NS_S);
        core_turn(&w->s);
        assert_int_equal(progress(w, &w->a, &p, "").result, PAWL_OK);
    }
    core_pass(&w->s, DAY - 27 * LEASE);
    core_turn(&w->s);
    struct told u = begin(w, &w->b, "done");
    expect(&u, PAWL_IDEM_DONE, 1);
    core_pass(&w->s, 27 * LEASE);
    core_turn(&w->s);
    core_check(&w->s);
    assert_int_equal(look(w, &w->b, "done", 0, 0).result, PAWL_OK_MISSING);
    assert_int_equal(look(w, &w->b, "abandoned", 0, 0).result, PAWL_OK_MISSING);
    u = begin_hash(&w->b, w->t, "done", 9);
    expect(&u, PAWL_IDEM_FIRST, 0);
    end(w);
}

/* --- identity -------------------------------------------------------------------------------- */

static void a_begin_submitted_again_is_the_same_one(void **state)
{
    (void)state;
    struct world *w = begin_world();
    w->a.oldest = w->a.next_seq;
    w->a.hold = true;
    struct told t = begin(w, &w->a, "pay");
    restart(w);
    struct pawl_cmd_idem m = { .table = w->t, .hash = 1, .op = PAWL_IDEM_OP_BEGIN };
    m.lease_ns = LEASE;
    m.head.seq = t.seq;
    m.head.flags = PAWL_CMD_RESUBMIT;
    struct core_answer a = call(&w->a, &m, "pay", NULL);
    struct told u = told_of(&a, "pay");
    expect(&u, PAWL_IDEM_FIRST, 0);
    assert_true(u.d.grant == t.d.grant && u.d.random == t.d.random);
    assert_int_equal(complete(w, &w->a, &u, 0, "", 0).result, PAWL_OK);
    end(w);
}

static void grants_grow_over_crashes(void **state)
{
    (void)state;
    struct world *w = begin_world();
    uint64_t last = 0;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t records = w->s.record_count;
        struct told t = begin(w, &w->a, "pay");
        assert_int_equal(t.d.state, PAWL_IDEM_FIRST);
        assert_true(t.d.grant > last);
        last = t.d.grant;
        if (i & 1) {
            assert_int_equal(abandon(w, &w->a, &t).result, PAWL_OK);
            continue;
        }
        core_cut(&w->s, records); /* nobody was told: the number is not given again */
        restart(w);
    }
    end(w);
}

static void nothing_is_told_before_it_is_on_disk(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct pawl_cmd_idem m = { .table = w->t, .hash = 1, .op = PAWL_IDEM_OP_BEGIN };
    m.head.type = PAWL_CMD_IDEM;
    m.key_bytes = 3;
    for (int i = 0; i < 2; i++) {
        m.head.seq = 0;
        assert_int_equal(core_take(i ? &w->b : &w->a, &m, sizeof m, "pay\0\0\0\0\0", 8), PAWL_OK);
        assert_true(w->s.effect_count > 0);
        assert_true(w->s.effects[w->s.effect_count - 1].wait_lsn == w->s.appended);
    }
    core_turn(&w->s);
    end(w);
}

static void rights_limits_and_scopes(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct core_client stranger;
    core_client_open(&w->s, &stranger, 9);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = PAWL_TABLE;
    o.perm = 0774;
    o.max_messages = 2;
    o.lease_ns = 3 * PAWL_NS_S;
    uint64_t narrow = core_create_with(&w->a, "narrow", &o);
    struct told t = begin_hash(&w->a, narrow, "one", 1);
    expect(&t, PAWL_IDEM_FIRST, 0);
    t = begin_hash(&w->a, w->t, "one", 2); /* another scope, another key */
    expect(&t, PAWL_IDEM_FIRST, 0);
    t = begin_hash(&w->a, narrow, "two", 1);
    expect(&t, PAWL_IDEM_FIRST, 0);
    t = begin_hash(&w->a, narrow, "three", 1);
    assert_int_equal(t.result, PAWL_E_QUOTA);
    assert_int_equal(t.value, PAWL_LIMIT_QUEUE_MESSAGES);
    struct pawl_cmd_idem m = { .table = narrow, .op = PAWL_IDEM_OP_READ };
    assert_int_equal(call(&stranger, &m, "one", NULL).result, PAWL_OK);
    m.head.seq = 0;
    m.op = PAWL_IDEM_OP_BEGIN;
    m.hash = 1;
    assert_int_not_equal(call(&stranger, &m, "one", NULL).result, PAWL_OK);
    m.head.seq = 0;
    m.lease_ns = 5;
    assert_int_equal(call(&w->a, &m, "one", NULL).result, PAWL_E_INVALID);
    uint64_t q = core_create(&w->a, "queue", PAWL_DURABLE);
    assert_int_equal(begin_hash(&w->a, q, "one", 1).result, PAWL_E_NOT_SUPPORTED);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_DROP, "narrow", NULL).result,
                     PAWL_OK);
    for (int i = 0; i < 3; i++)
        core_turn(&w->s);
    assert_int_equal(begin_hash(&w->a, narrow, "one", 1).result, PAWL_E_QUEUE_GONE);
    core_copy_all(&w->s);
    assert_int_equal(w->s.core->idems.used, 1);
    end(w);
}

/* --- transactions ---------------------------------------------------------------------------- */

static struct core_answer commit(struct world *w, struct core_client *c, const struct told *t,
                                 uint32_t completes, uint64_t queue)
{
    uint8_t row[512] = { 0 };
    uint32_t bytes = 0;
    struct pawl_cmd_txn x = { .head.type = PAWL_CMD_TXN, .count = completes + 1 };
    for (uint32_t i = 0; i < completes; i++) {
        struct pawl_cmd_idem m = by_token(w, t, PAWL_IDEM_OP_COMPLETE);
        m.head.type = PAWL_CMD_IDEM;
        m.head.bytes = sizeof m + 8;
        m.key_bytes = (uint8_t)strlen(t->key);
        m.bytes = 4;
        memcpy(row + bytes, &m, sizeof m);
        memcpy(row + bytes + sizeof m, t->key, m.key_bytes);
        memcpy(row + bytes + sizeof m + m.key_bytes, "done", 4);
        bytes += m.head.bytes;
    }
    struct pawl_cmd_send s = { .head.type = PAWL_CMD_SEND, .queue = queue };
    s.head.bytes = sizeof s;
    memcpy(row + bytes, &s, sizeof s);
    return core_call(c, &x, sizeof x, row, bytes + (uint32_t)sizeof s);
}

static void completed_with_the_rest_or_not_at_all(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.max_messages = 1;
    uint64_t q = core_create_with(&w->a, "out", &o);
    struct told t = begin(w, &w->a, "pay");
    uint64_t digest = pawl_core_digest(w->s.core);
    struct core_answer a = commit(w, &w->a, &t, 2, q); /* twice in one */
    assert_int_equal(a.result, PAWL_E_INVALID);
    assert_int_equal(a.value, 2);
    assert_int_equal(core_send(&w->a, q, "full").result, PAWL_OK);
    a = commit(w, &w->a, &t, 1, q);
    assert_int_equal(a.result, PAWL_E_FULL);
    assert_int_equal(a.value, 2);
    pawl_core_verify(w->s.core);
    assert_int_equal(core_queue_command(&w->a, PAWL_CMD_QUEUE_PURGE, "out", NULL).result, PAWL_OK);
    assert_true(digest != 0);
    struct told u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_IN_PROGRESS, 1);
    uint32_t before = w->s.record_count;
    assert_int_equal(commit(w, &w->a, &t, 1, q).result, PAWL_OK);
    assert_int_equal(w->s.record_count, before + 1);
    assert_int_equal(core_stat(&w->a, "out").ready, 1);
    restart(w);
    u = begin(w, &w->b, "pay");
    expect(&u, PAWL_IDEM_DONE, 1);
    expect_bytes(&u, "done");
    a = commit(w, &w->a, &t, 1, q); /* again: the completion is a repeat, the send is not */
    assert_int_equal(a.result, PAWL_E_FULL);
    end(w);
}

static void completed_under_an_id_of_the_caller(void **state)
{
    (void)state;
    struct world *w = begin_world();
    struct told t = begin(w, &w->a, "pay");
    uint8_t row[8 + 16] = "pay";
    uint64_t ms = w->s.now.wall / PAWL_NS_MS;
    for (int i = 0; i < 6; i++)
        row[8 + i] = (uint8_t)(ms >> (40 - 8 * i));
    row[14] = 0x70;
    row[16] = 0x80;
    for (int i = 0; i < 2; i++) {
        struct pawl_cmd_idem m = by_token(w, &t, PAWL_IDEM_OP_COMPLETE);
        m.head.type = PAWL_CMD_IDEM;
        m.head.flags = PAWL_CMD_IDENTIFIED;
        m.key_bytes = 3;
        assert_int_equal(core_call(&w->a, &m, sizeof m, row, sizeof row).result,
                         i ? PAWL_OK_DUPLICATE : PAWL_OK);
        restart(w);
    }
    /* A begin has none. */
    struct pawl_cmd_idem m = { .table = w->t, .op = PAWL_IDEM_OP_BEGIN, .key_bytes = 3 };
    m.head.type = PAWL_CMD_IDEM;
    m.head.flags = PAWL_CMD_IDENTIFIED;
    row[23] = 1;
    assert_int_equal(core_call(&w->a, &m, sizeof m, row, sizeof row).result, PAWL_E_INVALID);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_state_answers_each_request),
        cmocka_unit_test(the_result_is_told_byte_for_byte),
        cmocka_unit_test(an_owner_that_dies_leaves_its_progress),
        cmocka_unit_test(the_end_of_a_session_is_replayed),
        cmocka_unit_test(a_lease_runs_from_its_publication),
        cmocka_unit_test(a_lease_ends_and_its_token_with_it),
        cmocka_unit_test(what_was_refused_stays_so_over_a_crash),
        cmocka_unit_test(after_a_restart_the_lease_has_its_full_time),
        cmocka_unit_test(what_is_over_is_forgotten_after_a_day),
        cmocka_unit_test(a_begin_submitted_again_is_the_same_one),
        cmocka_unit_test(grants_grow_over_crashes),
        cmocka_unit_test(nothing_is_told_before_it_is_on_disk),
        cmocka_unit_test(rights_limits_and_scopes),
        cmocka_unit_test(completed_with_the_rest_or_not_at_all),
        cmocka_unit_test(completed_under_an_id_of_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
