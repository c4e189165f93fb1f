/* SPDX-License-Identifier: MIT */
/* The core's reading of its own records. The log hands out only what verified, but whoever can
 * write the directory can make anything verify. The input is a row of
 *
 *   u8 n     n < 64: a record of a real log, changed at n & 3 places
 *            else: a record of n - 64 bytes of type
 *   u16 which, or u8 type; then {u16 offset, u8 value} or the bytes
 *
 * Whatever comes is refused or makes a core that stands its invariants, can start, be copied
 * forward and be recovered to the same again.
 *
 * Without libFuzzer it replays its corpus and a number of random inputs: record_fuzz [FILE|DIR …].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/record.h"
#include "lib/core_state.h"
#include "lib/fuzz_main.h"

#define LENGTH_MAX 4096u

static struct core_shell base;
/* What was reached: a corpus that reaches none of it proves nothing. */
static struct {
    uint64_t taken, refused, started, types;
} reached;

static uint64_t make_table(struct core_client *a)
{
    uint64_t t = core_create(a, "stock", PAWL_TABLE);
    (void)core_put(a, t, "name", "some value");
    (void)core_add(a, t, "n", 100, 0, 1000);
    for (uint64_t id = 1; id <= 4; id++)
        (void)core_reserve(a, t, id, "n", 5, id == 4 ? PAWL_NS_S : 0);
    (void)core_post(a, t, 1, 3);
    (void)core_void(a, t, 2);
    return t;
}

static void use_table(struct core_client *a, uint64_t t)
{
    (void)core_put(a, t, "gone", "x");
    (void)core_delete(a, t, "gone");
    (void)core_post(a, t, 3, 0);
    (void)core_reserve(a, t, 5, "n", 7, 0);
    (void)core_add(a, t, "n", 7, 0, 1000);
    core_pass(&base, 2 * PAWL_NS_S);
    core_turn(&base);
}

/* Begins the work of a key and says what came of it, with op; 0: neither. */
static void work(struct core_client *c, uint64_t scope, const char key[8], uint8_t op)
{
    struct pawl_cmd_idem m = { .head.type = PAWL_CMD_IDEM, .table = scope, .hash = 1 };
    struct pawl_idem_data d = { 0 };
    m.op = PAWL_IDEM_OP_BEGIN;
    m.key_bytes = 4;
    const struct core_answer a = core_call(c, &m, sizeof m, key, 8);
    if (op == 0 || a.result != PAWL_OK || a.bytes < sizeof d)
        return;
    memcpy(&d, a.data, sizeof d);
    m.head.seq = 0;
    m.op = op;
    m.grant = d.grant;
    m.random = d.random;
    m.bytes = 4;
    (void)core_call(c, &m, sizeof m, key, 8);
}

static void work_on_keys(struct core_client *a, struct core_client *b, uint64_t scope)
{
    work(a, scope, "donexxxx", PAWL_IDEM_OP_COMPLETE);
    work(a, scope, "leftyyyy", PAWL_IDEM_OP_PROGRESS);
    work(b, scope, "openzzzz", 0);
}

/* A short life in which each type of record occurs. */
static void make_base(void)
{
    struct core_client a, b;
    core_init(&base);
    core_client_open(&base, &a, 7);
    core_client_open(&base, &b, 8);
    uint64_t q = core_create(&a, "orders", PAWL_DURABLE);
    (void)core_create(&a, "other", PAWL_RELAXED);
    const struct core_send_options o = { .ttl_ns = PAWL_NS_S, .delay_ns = 1000 };
    (void)core_send_with(&a, q, "with times", &o);
    struct core_send_options keyed = { .priority = 7, .key = "done" };
    (void)core_send_with(&a, q, "of a key", &keyed);
    struct core_delivery d = core_receive(&b, q);
    (void)core_ack(&b, &d);
    keyed.key = "lives";
    keyed.ttl_ns = PAWL_NS_S;
    (void)core_send_with(&a, q, "of a key", &keyed);
    for (uint32_t i = 0; i < 6; i++)
        (void)core_send(&a, q, "plain");
    uint64_t t = make_table(&a);
    work_on_keys(&a, &b, t);
    core_copy_all(&base); /* facts of these; the rest is what happened to them */
    keyed.key = "ends";
    (void)core_send_with(&a, q, "of a key", &keyed);
    d = core_receive(&b, q);
    (void)core_ack(&b, &d);
    d = core_receive(&b, q);
    (void)core_settle(&b, PAWL_CMD_RENEW, &d, PAWL_NS_S, 0, NULL);
    (void)core_settle(&b, PAWL_CMD_REJECT, &d, 0, 0, "no");
    (void)core_by_id(&b, PAWL_CMD_RESTORE, q, d.d.message, 0);
    d = core_receive(&b, q);
    (void)core_ack(&b, &d);
    d = core_receive(&b, q);
    (void)core_settle(&b, PAWL_CMD_NACK, &d, PAWL_NS_S, 0, "later");
    (void)core_receive(&b, q);
    (void)core_send(&a, q, "plain");
    (void)core_receive_kind(&b, q, PAWL_LEASE_PROCESS, 0, PAWL_RECEIVE_AT_MOST_ONCE);
    (void)core_receive(&b, q);
    (void)core_queue_command(&a, PAWL_CMD_QUEUE_PURGE, "orders", NULL);
    (void)core_send(&a, q, "plain");
    pawl_core_session_end(base.core, b.session, PAWL_END_CLOSED, base.now);
    core_turn(&base);
    (void)core_queue_command(&a, PAWL_CMD_QUEUE_DROP, "other", NULL);
    use_table(&a, t);
    work(&a, t, "openzzzz", PAWL_IDEM_OP_COMPLETE);
}

struct input {
    const uint8_t *at, *end;
};

static uint32_t take(struct input *in, uint32_t bytes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < bytes && in->at < in->end; i++)
        n |= (uint32_t)*in->at++ << (8 * i);
    return n;
}

/* The next record of the input; 0: none. */
static uint32_t next(struct input *in, uint8_t *record, uint16_t *type)
{
    if (in->at >= in->end)
        return 0;
    uint32_t n = take(in, 1);
    if (n >= 64) {
        *type = (uint16_t)take(in, 1);
        for (uint32_t i = 0; i < n - 64; i++)
            record[i] = (uint8_t)take(in, 1);
        return n - 64 ? n - 64 : 1;
    }
    const struct core_record *r = &base.records[take(in, 2) % base.record_count];
    if (r->body == NULL || r->bytes > LENGTH_MAX)
        return 0;
    *type = r->type;
    memcpy(record, r->body, r->bytes);
    for (uint32_t i = 0; i < (n & 3); i++) {
        uint32_t offset = take(in, 2);
        record[offset % r->bytes] = (uint8_t)take(in, 1);
    }
    return r->bytes;
}

static void go_on(struct core_shell *s)
{
    if (pawl_core_start(s->core, s->now, 9, true) != 0)
        return;
    reached.started++;
    pawl_core_verify(s->core);
    for (uint32_t i = 0; i < 3; i++) {
        core_pass(s, 700 * PAWL_NS_S);
        core_turn(s);
        pawl_core_verify(s->core);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (base.core == NULL)
        make_base();
    struct core_shell s;
    uint8_t record[LENGTH_MAX];
    struct input in = { data, data + size };
    core_init(&s);
    pawl_core_destroy(s.core);
    core_shell_core(&s);
    uint64_t lsn = 4096;
    uint16_t type = 0;
    for (uint32_t bytes; (bytes = next(&in, record, &type)) != 0; lsn += 4096) {
        if (pawl_core_replay(s.core, lsn, type, record, bytes) != 0) {
            reached.refused++;
            core_fini(&s);
            return 0;
        }
        reached.taken++;
        reached.types |= 1ull << type;
    }
    s.appended = lsn;
    go_on(&s);
    core_fini(&s);
    return 0;
}

#ifndef PAWL_FUZZ
static void random_input(struct pawl_prng *prng, uint8_t *data, size_t *size)
{
    uint8_t *at = data;
    if (base.core == NULL)
        make_base();
    /* the log itself, some of it left out, a few bytes changed */
    uint64_t harm = pawl_prng_below(prng, 30), gaps = pawl_prng_below(prng, 3);
    for (uint32_t i = 0; i < base.record_count && at < data + 2000; i++) {
        if (base.records[i].body == NULL || (gaps && pawl_prng_below(prng, 12) == 0))
            continue;
        uint8_t n = harm && pawl_prng_below(prng, harm) == 0 ? 1 : 0;
        *at++ = n;
        *at++ = (uint8_t)i;
        *at++ = (uint8_t)(i >> 8);
        if (n) {
            *at++ = (uint8_t)pawl_prng_below(prng, 160);
            *at++ = 0;
            *at++ = (uint8_t)pawl_prng_next(prng);
        }
    }
    *size = (size_t)(at - data);
}

int main(int argc, char **argv)
{
    int rc = fuzz_main(argc, argv, "record_fuzz", 3000, random_input);
    printf("%llu records taken, of types %llx, %llu inputs refused, %llu started\n",
           (unsigned long long)reached.taken, (unsigned long long)reached.types,
           (unsigned long long)reached.refused, (unsigned long long)reached.started);
    if (argc == 1 &&
        ((reached.types & 0x79ffe) != 0x79ffe || reached.refused == 0 || reached.started == 0))
        rc = 1;
    return rc;
}
#endif
