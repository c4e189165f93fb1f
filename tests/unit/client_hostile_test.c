/* SPDX-License-Identifier: MIT */
/* The library lives in somebody else's program: whatever a broker writes, it answers with a code.
 * Every case also runs under the sanitizers, where a read outside a record would show. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/atomic.h"
#include "base/clock.h"
#include "base/prng.h"
#include "lib/peer.h"
#include "lib/unit.h"
#include "pawl.h"

static struct pawl *open_with(struct pawl_options o)
{
    struct pawl *l = NULL;
    o.size = sizeof o;
    o.dir = peer_dir();
    int rc;
    /* Some cases give little time; on a busy machine that is too little for an attach. */
    do
        rc = pawl_open(&o, &l);
    while (rc == PAWL_E_BROKER_DOWN);
    if (rc != PAWL_OK)
        fail_msg("pawl_open: %s: %s", pawl_strname(rc), pawl_last_text(NULL));
    return l;
}

/* --- one lie at a time ----------------------------------------------------------------------- */

enum lie {
    ANSWER_UNASKED,
    ANSWER_TWICE,
    ANSWER_RUN_TOO_LONG,
    ANSWER_SHORT,
    TYPE_UNKNOWN,
    DELIVERY_SHORT,
    DELIVERY_LONG_BODY,
    DELIVERY_LONG_PARTS,
    DELIVERY_NO_QUEUE,
    DATA_SHORT,
    DATA_LONG,
    SIZE_ZERO,
    SIZE_ODD,
    SIZE_HUGE,
    TAIL_BACK,
    TAIL_FAR,
    HEAD_BACK,
    HEAD_FAR,
    LIES
};

static void store_tail(struct peer_lane *l, uint64_t tail)
{
    pawl_store_seq_u64(&((struct pawl_comp_shm *)l->comp.header)->tail, tail);
    (void)pawl_add_seq_u32(&((struct pawl_comp_shm *)l->comp.header)->wake, 1);
}

static void tell(struct peer *p, struct peer_lane *l, uint64_t seq, enum lie lie)
{
    struct pawl_comp_answer a = { .bytes = sizeof a, .type = PAWL_COMP_ANSWER, .seq = seq };
    struct pawl_comp_delivery d = { .bytes = sizeof d + 8,
                                    .type = PAWL_COMP_DELIVERY,
                                    .seq = seq,
                                    .queue = 1,
                                    .message = 1,
                                    .grant = 1,
                                    .random = 1,
                                    .deadline = UINT64_MAX };
    struct pawl_comp_data t = { .bytes = sizeof t, .type = PAWL_COMP_DATA, .seq = seq };
    uint8_t record[256] = { 0 };
    uint32_t bytes = 0;
    switch (lie) {
    case ANSWER_UNASKED:
        a.seq = seq + 1000;
        break;
    case ANSWER_TWICE:
        peer_raw(p, l, &a, sizeof a);
        break;
    case ANSWER_RUN_TOO_LONG:
        a.count_minus_1 = 65535;
        break;
    case ANSWER_SHORT:
        a.bytes = bytes = 16;
        break;
    case TYPE_UNKNOWN:
        a.type = 77;
        break;
    case DELIVERY_SHORT:
        d.bytes = bytes = 64;
        break;
    case DELIVERY_LONG_BODY:
        d.body_bytes = UINT32_MAX;
        bytes = d.bytes;
        break;
    case DELIVERY_LONG_PARTS:
        d.key_bytes = 255;
        d.headers_bytes = UINT16_MAX;
        bytes = d.bytes;
        break;
    case DELIVERY_NO_QUEUE:
        d.queue = 0;
        bytes = d.bytes;
        break;
    case DATA_SHORT:
        t.bytes = bytes = 24;
        break;
    case DATA_LONG:
        t.data_bytes = 4096;
        bytes = t.bytes;
        break;
    case SIZE_ZERO:
        a.bytes = 0;
        break;
    case SIZE_ODD:
        a.bytes = 41;
        break;
    case SIZE_HUGE:
        a.bytes = 0xfffffff8u;
        break;
    case TAIL_BACK:
        store_tail(l, l->out.tail - 8);
        return;
    case TAIL_FAR:
        store_tail(l, l->out.tail + l->out.size + 8);
        return;
    case HEAD_BACK:
    case HEAD_FAR:
        pawl_store_seq_u64(&((struct pawl_comp_shm *)l->comp.header)->sub_head,
                           lie == HEAD_FAR ? l->in.next + (1u << 20) : 0ull - 8);
        l->keep_head = true;
        peer_raw(p, l, &a, sizeof a);
        return;
    case LIES:
        return;
    }
    if (bytes && lie >= DATA_SHORT)
        memcpy(record, &t, sizeof t);
    else if (bytes && lie != ANSWER_SHORT)
        memcpy(record, &d, sizeof d);
    else
        memcpy(record, &a, sizeof a);
    peer_raw(p, l, record, bytes ? bytes : sizeof a);
    if (lie >= DELIVERY_SHORT && lie <= DELIVERY_NO_QUEUE) {
        a.value = 1;
        peer_raw(p, l, &a, sizeof a);
    }
}

struct script {
    enum lie lie;
    uint16_t type; /* of the command that is answered with it */
};

static bool lie_once(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, void *ctx)
{
    const struct script *s = ctx;
    if (c->type != s->type)
        return false;
    tell(p, l, c->seq, s->lie);
    return true;
}

static void every_lie_ends_the_lane_and_nothing_else(void **state)
{
    (void)state;
    for (enum lie lie = 0; lie < LIES; lie++) {
        bool delivers = lie >= DELIVERY_SHORT && lie <= DELIVERY_NO_QUEUE;
        bool data = lie == DATA_SHORT || lie == DATA_LONG;
        struct script s = { lie, delivers ? PAWL_CMD_RECEIVE
                                 : data   ? PAWL_CMD_METRICS
                                          : PAWL_CMD_SEND };
        struct peer_options o = { .hook = lie_once, .ctx = &s };
        struct peer_log *log = peer_log_create();
        struct peer *peer = peer_start(peer_dir(), log, &o);
        struct pawl *l = open_with((struct pawl_options){ .timeout_ns = 2 * PAWL_NS_S });
        struct pawl_message m;
        char text[64];
        int rc = PAWL_OK;
        assert_int_equal(pawl_queue_create(l, "q", NULL), PAWL_OK);
        if (delivers)
            rc = pawl_receive(l, "q", NULL, &m);
        else if (data)
            rc = pawl_metrics(l, text, sizeof text);
        else if (lie == HEAD_BACK || lie == HEAD_FAR) {
            /* Seen when the library needs to know how far the broker is. */
            static uint8_t body[30000];
            for (int i = 0; i < 40 && rc == PAWL_OK; i++)
                rc = pawl_send(l, "q", body, sizeof body, NULL, NULL);
        } else
            rc = pawl_send(l, "q", "x", 1, NULL, NULL);
        /* A second answer is not seen before the next look. */
        if (lie == ANSWER_TWICE && rc == PAWL_OK)
            rc = pawl_send(l, "q", "x", 1, NULL, NULL);
        if (rc != PAWL_E_PROTOCOL)
            fail_msg("lie %d: %s %s", lie, pawl_strname(rc), pawl_last_text(l));
        assert_int_equal(pawl_send(l, "q", "x", 1, NULL, NULL), PAWL_E_PROTOCOL);
        pawl_close(l);
        (void)peer_kill(peer);
        peer_log_destroy(log);
    }
}

/* --- noise ----------------------------------------------------------------------------------- */

struct noise {
    struct pawl_prng prng;
};

/* A record with right beginnings and random ends. */
static void random_record(struct peer *p, struct peer_lane *l, struct pawl_prng *r, uint64_t seq)
{
    uint64_t words[64];
    if (pawl_prng_below(r, 3) == 0) {
        /* A delivery that holds together, but for what one random byte does to it. */
        struct pawl_comp_delivery d = { .type = PAWL_COMP_DELIVERY,
                                        .seq = seq,
                                        .queue = 1,
                                        .message = pawl_prng_next(r),
                                        .grant = pawl_prng_next(r),
                                        .deadline = UINT64_MAX,
                                        .key_bytes = 3,
                                        .headers_bytes = 8,
                                        .body_bytes = 21,
                                        .bytes = sizeof d + 32 };
        memset(words, 2, sizeof words);
        memcpy(words, &d, sizeof d);
        ((uint8_t *)words)[pawl_prng_below(r, sizeof d)] = (uint8_t)pawl_prng_next(r);
        peer_raw(p, l, words, sizeof d + 32);
        return;
    }
    uint32_t bytes = 8u * (uint32_t)(1 + pawl_prng_below(r, 40));
    for (size_t i = 0; i < 64; i++)
        words[i] = pawl_prng_below(r, 3) ? pawl_prng_next(r) >> pawl_prng_below(r, 64) : 0;
    uint32_t head[2] = { pawl_prng_below(r, 20) ? bytes : (uint32_t)pawl_prng_next(r),
                         (uint32_t)pawl_prng_below(r, 5) };
    if (pawl_prng_below(r, 2))
        head[1] |= (uint32_t)pawl_prng_below(r, 3) << 16;
    memcpy(words, head, sizeof head);
    if (pawl_prng_below(r, 4))
        words[1] = seq + pawl_prng_below(r, 3) - 1;
    if (pawl_prng_below(r, 4))
        words[2] = 1 + pawl_prng_below(r, 2); /* queue */
    peer_raw(p, l, words, bytes);
}

static bool answer_with_noise(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c,
                              void *ctx)
{
    struct noise *n = ctx;
    if (c->type == PAWL_CMD_QUEUE_CREATE || c->type == PAWL_CMD_QUEUE_FIND)
        return false;
    if (pawl_prng_below(&n->prng, 3) == 0)
        return false;
    uint64_t count = pawl_prng_below(&n->prng, 3);
    for (uint64_t i = 0; i <= count; i++)
        random_record(p, l, &n->prng, c->seq);
    return true;
}

/* Reads every byte that was handed out; a sanitizer sees one that is not there. */
static uint64_t touch(const struct pawl_message *m)
{
    uint64_t sink = 0;
    struct pawl_header h;
    for (size_t i = 0; i < m->bytes; i++)
        sink += ((const uint8_t *)m->body)[i];
    for (uint32_t i = 0; i < m->key_bytes; i++)
        sink += ((const uint8_t *)m->key)[i];
    for (uint32_t i = 0; pawl_message_header(m, i, &h) == PAWL_OK; i++)
        sink += strlen(h.value);
    return sink;
}

static void noise_is_answered_with_codes(void **state)
{
    (void)state;
    const char *s = getenv("PAWL_SEED"), *r = getenv("PAWL_ROUNDS");
    uint64_t seed = s ? strtoull(s, NULL, 0) : (uint64_t)getpid() * 7919u;
    unsigned rounds = r ? (unsigned)strtoul(r, NULL, 0) : 300, breaches = 0, received = 0;
    uint64_t sum = 0;
    print_message("seed: PAWL_SEED=%llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < rounds; i++) {
        struct noise n = { { seed + i } };
        struct peer_options o = { .hook = answer_with_noise, .ctx = &n };
        struct peer_log *log = peer_log_create();
        struct peer *peer = peer_start(peer_dir(), log, &o);
        struct pawl *l = open_with((struct pawl_options){ .timeout_ns = 5 * PAWL_NS_MS,
                                                          .window = 64,
                                                          .prefetch = i % 2 ? 4 : 0,
                                                          .ring_bytes = PAWL_RING_BYTES_MIN });
        struct pawl_message m[8];
        struct pawl_answer a[8];
        struct pawl_record record = { .size = sizeof record };
        struct pawl_queue_stat stat = { .size = sizeof stat };
        char body[64];
        size_t have;
        uint32_t count;
        const char *const q = "q";
        int rc = pawl_queue_create(l, "q", NULL);
        for (int k = 0; k < 12 && rc != PAWL_E_PROTOCOL; k++) {
            (void)!pawl_submit_send(l, "q", "x", 1, NULL, NULL);
            rc = pawl_send(l, "q", "y", 1, NULL, NULL);
            if (rc == PAWL_E_PROTOCOL)
                break;
            rc = pawl_receive_batch(l, &q, 1, NULL, m, 8, &count);
            for (uint32_t c = 0; rc == PAWL_OK && c < count; c++, received++) {
                sum += touch(&m[c]);
                (void)!pawl_ack(l, &m[c].token, 0);
            }
            (void)!pawl_query_scan(l, "q", 0, 0xff, &record, 1);
            (void)!pawl_peek(l, "q", 1, body, sizeof body, &have);
            (void)!pawl_queue_stat(l, "q", &stat);
            rc = pawl_metrics(l, body, sizeof body);
            (void)!pawl_poll(l, a, 8, 0, 0);
        }
        breaches += pawl_send(l, "q", "y", 1, NULL, NULL) == PAWL_E_PROTOCOL;
        pawl_close(l);
        (void)peer_kill(peer);
        peer_log_destroy(log);
    }
    print_message("%u rounds, %u ended by a breach, %u deliveries came through (%llu)\n", rounds,
                  breaches, received, (unsigned long long)sum);
    assert_true(breaches > rounds / 4);
}

/* --- the handshake --------------------------------------------------------------------------- */

static void a_lane_without_seals_is_refused(void **state)
{
    (void)state;
    struct peer_options o = { .unsealed = true };
    struct peer_log *log = peer_log_create();
    struct peer *peer = peer_start(peer_dir(), log, &o);
    struct pawl_options p = PAWL_OPTIONS_INIT;
    struct pawl *l;
    p.dir = peer_dir();
    assert_int_equal(pawl_open(&p, &l), PAWL_E_PROTOCOL);
    assert_non_null(strstr(pawl_last_text(NULL), "seals"));
    (void)peer_kill(peer);
    peer_log_destroy(log);
}

static void a_refused_lane_says_why(void **state)
{
    (void)state;
    struct peer_options o = { .lane_result = PAWL_E_QUOTA };
    struct peer_log *log = peer_log_create();
    struct peer *peer = peer_start(peer_dir(), log, &o);
    struct pawl_options p = PAWL_OPTIONS_INIT;
    struct pawl *l;
    p.dir = peer_dir();
    assert_int_equal(pawl_open(&p, &l), PAWL_E_QUOTA);
    assert_string_equal(pawl_last_text(NULL), "the peer has no lane for you");
    assert_null(peer_kill(peer));
    peer_log_destroy(log);
}

static void a_silent_peer_does_not_hold_us_for_ever(void **state)
{
    (void)state;
    struct peer_options o = { .silent = true };
    struct peer_log *log = peer_log_create();
    struct peer *peer = peer_start(peer_dir(), log, &o);
    struct pawl_options p = PAWL_OPTIONS_INIT;
    struct pawl *l;
    p.dir = peer_dir();
    p.timeout_ns = 100 * PAWL_NS_MS;
    assert_int_equal(pawl_open(&p, &l), PAWL_E_BROKER_DOWN);
    (void)peer_kill(peer);
    peer_log_destroy(log);
}

/* A listener that answers a HELLO with the given bytes. */
static int answer_hello_with(const void *bytes, size_t n, char *text, size_t text_bytes)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct pawl_options p = PAWL_OPTIONS_INIT;
    struct pawl *l;
    snprintf(a.sun_path, sizeof a.sun_path, "%s/pawl.sock", peer_dir());
    assert_true(fd >= 0);
    (void)unlink(a.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    pid_t child = fork();
    if (child == 0) {
        for (;;) {
            char hello[512];
            int c = accept(fd, NULL, NULL);
            if (c < 0 || recv(c, hello, sizeof hello, 0) <= 0)
                _exit(1);
            (void)!send(c, bytes, n, MSG_NOSIGNAL);
            (void)close(c);
        }
    }
    (void)close(fd);
    p.dir = peer_dir();
    p.timeout_ns = 50 * PAWL_NS_MS;
    int rc = pawl_open(&p, &l);
    snprintf(text, text_bytes, "%s", pawl_last_text(NULL));
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)unlink(a.sun_path);
    return rc;
}

static void any_welcome_is_survived(void **state)
{
    (void)state;
    char text[600];
    struct pawl_attach_welcome w;
    struct pawl_prng prng = { 3 };
    memset(&w, 'x', sizeof w);
    assert_int_equal(answer_hello_with(&w, sizeof w, text, sizeof text), PAWL_E_ABI);
    assert_int_equal(answer_hello_with(&w, 7, text, sizeof text), PAWL_E_BROKER_DOWN);
    w.magic = PAWL_ABI_MAGIC;
    w.type = PAWL_ATTACH_WELCOME;
    /* Every text of it without an end. */
    assert_int_equal(answer_hello_with(&w, sizeof w, text, sizeof text), PAWL_E_ABI);
    assert_non_null(strstr(text, "xxxx"));
    w.version = PAWL_ABI_VERSION;
    w.fingerprint = pawl_layout_fingerprint();
    w.result = 5;
    assert_int_equal(answer_hello_with(&w, sizeof w, text, sizeof text), PAWL_E_PROTOCOL);
    w.result = PAWL_OK;
    w.session = 0;
    assert_int_equal(answer_hello_with(&w, sizeof w, text, sizeof text), PAWL_E_PROTOCOL);
    for (int i = 0; i < 20; i++) {
        for (size_t k = 0; k < sizeof w; k++)
            ((uint8_t *)&w)[k] = (uint8_t)pawl_prng_next(&prng);
        assert_true(answer_hello_with(&w, pawl_prng_below(&prng, sizeof w) + 1, text, sizeof text) <
                    0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_lie_ends_the_lane_and_nothing_else),
        cmocka_unit_test(noise_is_answered_with_codes),
        cmocka_unit_test(a_lane_without_seals_is_refused),
        cmocka_unit_test(a_refused_lane_says_why),
        cmocka_unit_test(a_silent_peer_does_not_hold_us_for_ever),
        cmocka_unit_test(any_welcome_is_survived),
    };
    (void)alarm(200);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
