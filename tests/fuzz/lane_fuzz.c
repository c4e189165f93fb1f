/* SPDX-License-Identifier: MIT */
/* The broker's reading of a submission ring against any bytes (M7, M8, P10, G7). The input is a
 * little program for a hostile client: raw records, commands with patched fields, positions and
 * announcements of any value, bytes changed after they were published, turns of the broker.
 * Whatever comes: no crash, no assertion, no read out of bounds; the core's invariants hold; and an
 * honest client of the same broker sends, receives and acknowledges afterwards as before.
 *
 * Without libFuzzer it replays its corpus and a number of random inputs: lane_fuzz [FILE|DIR …]. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/wake.h"
#include "base/bits.h"
#include "base/prng.h"
#include "lib/fuzz_main.h"
#include "lib/loop_rig.h"

#define RING PAWL_RING_BYTES_MIN
#define LIVES_A_RIG 200u /* inputs that one broker lives through */
#define OPS_MAX 200u

static struct loop_rig rig;
static struct loop_client honest, hostile;
static uint64_t queue, other_queue, table, used;
static bool standing;
/* What was reached: a corpus that reaches none of it proves nothing. */
static struct {
    uint64_t taken, breaches, deliveries, answers;
} reached;

static void need(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "lane_fuzz: %s\n", what);
    abort();
}

static void begin(void)
{
    if (standing && used++ < LIVES_A_RIG)
        return;
    if (standing) {
        loop_client_close(&honest);
        loop_rig_fini(&rig);
    }
    loop_rig_init(&rig, 7);
    loop_client_open(&rig, &honest, RING, PAWL_WINDOW_MIN, 1001);
    /* The other one may do to the first what it likes, and nothing to the second, whose number it
     * may guess. */
    queue = loop_client_queue(&honest, "shared", PAWL_DURABLE, 0777);
    other_queue = loop_client_queue(&honest, "own", PAWL_MEMORY, 0770);
    table = loop_client_queue(&honest, "table", PAWL_TABLE, 0777);
    standing = true;
    used = 0;
}

/* --- the input ------------------------------------------------------------------------------- */

static const uint8_t *at, *end;

static uint64_t number(unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes && at < end; i++)
        v |= (uint64_t)*at++ << (8 * i);
    return v;
}

/* Numbers that are near something, more often than not. */
static uint64_t position(uint64_t near)
{
    static const uint64_t far[] = { 0, 8, RING, 1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX };
    uint64_t kind = number(1);
    if (kind < 128)
        return near + (int8_t)number(1) * 8;
    if (kind < 192)
        return near + far[kind % 7];
    return kind < 224 ? far[kind % 7] : number(8);
}

static struct pawl_comp_delivery last;

static void read_completions(void)
{
    for (const struct pawl_comp_answer *a; (a = loop_client_next(&hostile));) {
        if (a->type == PAWL_COMP_DELIVERY) {
            memcpy(&last, a, sizeof last);
            reached.deliveries++;
        } else {
            reached.answers++;
        }
    }
}

/* A record that makes sense, for the input to spoil. */
static void fill(struct pawl_cmd *head, uint32_t bytes)
{
    memset(head + 1, 0, bytes - sizeof *head);
    head->open = (uint32_t)pawl_min_u64(number(1) % 8, head->seq - 1);
    switch (head->type) {
    case PAWL_CMD_SEND: {
        struct pawl_cmd_send *s = (void *)head;
        s->queue = number(1) % 16 ? queue : number(8);
        s->priority = (uint8_t)(number(1) % 9);
        s->flags = (uint8_t)(number(1) % 16 ? 0 : number(1) % 4);
        uint32_t rest = bytes - (uint32_t)sizeof *s;
        s->body_bytes = rest - (uint32_t)(number(1) % 8);
        break;
    }
    case PAWL_CMD_RECEIVE:
    case PAWL_CMD_SUBSCRIBE: {
        struct pawl_cmd_receive *r = (void *)head;
        r->wait_ns = number(1) % 2 ? UINT64_MAX : number(4);
        r->max = (uint32_t)(number(1) % 32);
        r->lease_kind = (uint8_t)(number(1) % 16 ? 0 : number(1) % 4);
        r->flags = (uint8_t)(number(1) % 16 ? 0 : number(1) % 3);
        r->queue_count = (uint8_t)((bytes - sizeof *r) / 8);
        for (uint32_t i = 0; i < (bytes - sizeof *r) / 8; i++)
            ((uint64_t *)(r + 1))[i] = number(1) % 16 ? queue : number(8);
        break;
    }
    case PAWL_CMD_ACK:
    case PAWL_CMD_NACK:
    case PAWL_CMD_RELEASE:
    case PAWL_CMD_REJECT:
    case PAWL_CMD_DEFER:
    case PAWL_CMD_RENEW: {
        struct pawl_cmd_settle *s = (void *)head;
        s->message = last.message;
        s->grant = last.grant;
        s->random = last.random;
        s->time_ns = number(1) % 2 ? UINT64_MAX : number(4);
        s->flags = (uint32_t)(number(1) % 4);
        s->text_bytes = bytes - (uint32_t)sizeof *s;
        break;
    }
    case PAWL_CMD_ACK_ID:
    case PAWL_CMD_CANCEL:
    case PAWL_CMD_RESTORE:
    case PAWL_CMD_PEEK:
    case PAWL_CMD_SCAN: {
        struct pawl_cmd_message *m = (void *)head;
        m->queue = queue;
        m->id = number(1) % 2 ? last.message : number(8);
        m->offset = number(2);
        break;
    }
    case PAWL_CMD_STATE: {
        struct pawl_cmd_state *s = (void *)head;
        s->table = number(1) % 16 ? table : queue;
        s->op = (uint8_t)(number(1) % 9);
        s->expect = number(1) % 4 ? UINT64_MAX : number(1);
        s->number = (int64_t)number(8);
        s->min = INT64_MIN;
        s->max = INT64_MAX;
        s->key_bytes = 1;
        s->flags = (uint16_t)(number(1) % 4 == 0);
        s->value_bytes = s->op == PAWL_TABLE_PUT ? (uint32_t)(number(1) % 8) : 0;
        if (s->flags && s->op == PAWL_TABLE_PUT) {
            s->key_bytes = 8; /* and 8 bytes of a number */
            s->value_bytes = 8;
        }
        *(uint8_t *)(s + 1) = (uint8_t)('a' + number(1) % 4);
        break;
    }
    case PAWL_CMD_STATE_SCAN: {
        struct pawl_cmd_state_scan *s = (void *)head;
        s->table = number(1) % 16 ? table : queue;
        s->op = (uint8_t)(number(1) % 5);
        s->key_bytes = (uint8_t)(number(1) % 17);
        s->after_bytes = (uint8_t)(bytes - sizeof *s - pawl_min_u64(s->key_bytes, 16));
        s->max = (uint32_t)number(1);
        s->offset = (uint32_t)number(2);
        break;
    }
    case PAWL_CMD_RESERVE: {
        struct pawl_cmd_reserve *s = (void *)head;
        s->table = table;
        s->op = (uint8_t)(number(1) % 5);
        s->id[0] = (uint8_t)(number(1) % 8);
        s->amount = number(1);
        s->ttl_ns = number(4);
        s->key_bytes = 1;
        *(uint8_t *)(s + 1) = (uint8_t)('a' + number(1) % 4);
        break;
    }
    case PAWL_CMD_IDEM: {
        struct pawl_cmd_idem *s = (void *)head;
        s->table = number(1) % 16 ? table : queue;
        s->op = (uint8_t)(number(1) % 7);
        s->hash = number(1) % 2;
        s->key_bytes = 1;
        s->bytes = s->op == PAWL_IDEM_OP_COMPLETE || s->op == PAWL_IDEM_OP_PROGRESS ? 7 : 0;
        s->offset = (uint32_t)number(1);
        *(uint8_t *)(s + 1) = (uint8_t)('a' + number(1) % 4);
        break;
    }
    case PAWL_CMD_QUERY: {
        struct pawl_cmd_query *q = (void *)head;
        q->queue = queue;
        q->kind = (uint32_t)(number(1) % 5);
        q->count = q->kind == PAWL_QUERY_IDS ? 1 : 8;
        *(uint64_t *)(void *)(q + 1) = last.message - number(1) % 4;
        break;
    }
    case PAWL_CMD_WAIT: {
        struct pawl_cmd_wait *w = (void *)head;
        w->queue = queue;
        w->id = last.message + number(1) % 4;
        w->state_mask = (uint32_t)number(2);
        w->wait_ns = number(1) % 2 ? UINT64_MAX : number(4);
        break;
    }
    case PAWL_CMD_STOP:
    case PAWL_CMD_KEEP:
        ((struct pawl_cmd_one *)head)->value = hostile.seq - number(1) % 16;
        break;
    default:
        if (bytes >= sizeof(struct pawl_cmd_queue)) {
            struct pawl_cmd_queue *q = (void *)head;
            snprintf(q->name, sizeof q->name, "q%u", (unsigned)(number(1) % 4));
            q->has_options = (uint32_t)(number(1) % 2);
            q->options = (struct pawl_queue_options)PAWL_QUEUE_OPTIONS_INIT;
            q->options.mode = (uint32_t)(number(1) % 4);
            q->max = (uint32_t)number(1);
        }
    }
}

static void command(bool spoiled)
{
    static const uint16_t sizes[PAWL_CMD_TYPES] = {
        [PAWL_CMD_SEND] = sizeof(struct pawl_cmd_send) + 40,
        [PAWL_CMD_RECEIVE] = sizeof(struct pawl_cmd_receive) + 8,
        [PAWL_CMD_SUBSCRIBE] = sizeof(struct pawl_cmd_receive) + 8,
        [PAWL_CMD_STOP] = sizeof(struct pawl_cmd_one),
        [PAWL_CMD_ACK] = sizeof(struct pawl_cmd_settle),
        [PAWL_CMD_NACK] = sizeof(struct pawl_cmd_settle) + 8,
        [PAWL_CMD_RELEASE] = sizeof(struct pawl_cmd_settle),
        [PAWL_CMD_REJECT] = sizeof(struct pawl_cmd_settle) + 8,
        [PAWL_CMD_DEFER] = sizeof(struct pawl_cmd_settle),
        [PAWL_CMD_RENEW] = sizeof(struct pawl_cmd_settle),
        [PAWL_CMD_ACK_ID] = sizeof(struct pawl_cmd_message),
        [PAWL_CMD_CANCEL] = sizeof(struct pawl_cmd_message),
        [PAWL_CMD_RESTORE] = sizeof(struct pawl_cmd_message),
        [PAWL_CMD_PEEK] = sizeof(struct pawl_cmd_message),
        [PAWL_CMD_METRICS] = sizeof(struct pawl_cmd_one),
        [PAWL_CMD_SCAN] = sizeof(struct pawl_cmd_scan),
        [PAWL_CMD_STATE] = sizeof(struct pawl_cmd_state) + 8,
        [PAWL_CMD_STATE_SCAN] = sizeof(struct pawl_cmd_state_scan) + 16,
        [PAWL_CMD_RESERVE] = sizeof(struct pawl_cmd_reserve) + 8,
        [PAWL_CMD_IDEM] = sizeof(struct pawl_cmd_idem) + 8,
        [PAWL_CMD_QUERY] = sizeof(struct pawl_cmd_query) + 8,
        [PAWL_CMD_WAIT] = sizeof(struct pawl_cmd_wait),
        [PAWL_CMD_KEEP] = sizeof(struct pawl_cmd_one),
    };
    static const uint8_t often[] = { PAWL_CMD_SEND,      PAWL_CMD_SEND,    PAWL_CMD_RECEIVE,
                                     PAWL_CMD_SUBSCRIBE, PAWL_CMD_ACK,     PAWL_CMD_NACK,
                                     PAWL_CMD_STATE,     PAWL_CMD_RESERVE, PAWL_CMD_IDEM,
                                     PAWL_CMD_QUERY,     PAWL_CMD_WAIT,    PAWL_CMD_KEEP };
    uint64_t choice = number(1);
    uint16_t type =
        choice < 192 ? often[choice % sizeof often] : (uint16_t)(choice % PAWL_CMD_TYPES);
    uint32_t bytes = sizes[type] ? sizes[type] : (uint32_t)sizeof(struct pawl_cmd_queue);
    if (type == PAWL_CMD_STATE)
        bytes += (uint32_t)(number(1) % 2) * 8;
    if (type == PAWL_CMD_SEND || type == PAWL_CMD_RECEIVE)
        bytes += (uint32_t)(number(1) % 64) * 8;
    struct pawl_cmd *head = loop_client_claim(&hostile, type, bytes);
    if (!head)
        return;
    fill(head, bytes);
    for (uint64_t n = spoiled ? 1 + number(1) % 4 : 0; n > 0; n--)
        ((uint8_t *)head)[number(2) % bytes] = (uint8_t)number(1);
}

static void raw(void)
{
    uint32_t bytes = (uint32_t)(1 + number(1) % 64) * 8;
    uint8_t *p = pawl_ring_claim(&hostile.out, bytes);
    if (!p)
        return;
    for (uint32_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)number(1);
    if (number(1) % 2) /* so that it gets past the first look */
        memcpy(p, &bytes, sizeof bytes);
}

static void step(void)
{
    uint64_t op = number(1);
    if (op < 120) {
        command(false);
    } else if (op < 190) {
        loop_client_publish(&hostile);
        loop_rig_turn(&rig, 100000);
        read_completions();
    } else if (op < 200) {
        loop_client_publish(&hostile);
        loop_rig_turn(&rig, number(1) % 4 ? 1000 : number(5));
    } else if (op < 214) {
        command(true);
    } else if (op < 224) {
        raw();
    } else if (op < 230) {
        pawl_store_seq_u64(&hostile.sub->tail, position(hostile.out.tail));
        pawl_lane_activate(hostile.lane);
    } else if (op < 236) {
        pawl_store_seq_u64(&hostile.sub->comp_head, position(hostile.in.next));
        pawl_lane_activate(hostile.lane);
    } else if (op < 244) {
        pawl_store_seq_u64(&hostile.sub->taken, position(hostile.in.next));
        pawl_wait_announce(hostile.sub, position(hostile.lane->events), (uint32_t)number(4),
                           (uint32_t)number(1) & 3);
    } else { /* what was published changes */
        hostile.sub_region.data[number(2) % RING] = (uint8_t)number(1);
    }
}

/* --- afterwards ------------------------------------------------------------------------------ */

static uint64_t honest_submit(void)
{
    uint64_t seq = honest.seq;
    loop_client_publish(&honest);
    return seq;
}

/* One life of a message through a queue of the honest client's own. */
static void honest_life(void)
{
    uint64_t id = 0, value = 0;
    struct pawl_cmd_send *s = loop_client_claim(&honest, PAWL_CMD_SEND, sizeof *s + 8);
    need(s != NULL, "the honest client has no room");
    memset(&s->queue, 0, sizeof *s - sizeof s->head);
    s->queue = other_queue;
    s->body_bytes = 8;
    memcpy(s + 1, "untouched", 8);
    need(loop_client_answer(&honest, honest_submit(), &id) == PAWL_OK, "an honest send failed");
    struct pawl_cmd_receive *r = loop_client_claim(&honest, PAWL_CMD_RECEIVE, sizeof *r + 8);
    need(r != NULL, "the honest client has no room");
    memset(&r->wait_ns, 0, sizeof *r - sizeof r->head);
    r->max = 1;
    r->queue_count = 1;
    memcpy(r + 1, &other_queue, sizeof other_queue);
    uint64_t seq = honest_submit();
    struct pawl_comp_delivery d = { .message = 0 };
    for (int i = 0; i < 1000 && d.message == 0; i++) {
        loop_rig_turn(&rig, 1000);
        const struct pawl_comp_delivery *c = loop_client_next(&honest);
        if (!c || c->type != PAWL_COMP_DELIVERY)
            continue;
        need(c->body_bytes == 8 && memcmp(c + 1, "untouched", 8) == 0, "an honest body changed");
        memcpy(&d, c, sizeof d);
    }
    need(d.message == id, "an honest message did not come");
    need(loop_client_answer(&honest, seq, &value) == PAWL_OK && value == 1, "a receive has no end");
    struct pawl_cmd_settle *a = loop_client_claim(&honest, PAWL_CMD_ACK, sizeof *a);
    need(a != NULL, "the honest client has no room");
    memset(&a->message, 0, sizeof *a - sizeof a->head);
    a->message = d.message;
    a->grant = d.grant;
    a->random = d.random;
    need(loop_client_answer(&honest, honest_submit(), NULL) == PAWL_OK, "an honest ack failed");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    loop_client_open(&rig, &hostile, RING, PAWL_WINDOW_MIN, 1002);
    memset(&last, 0, sizeof last);
    at = data;
    end = data + size;
    uint64_t taken = rig.intake.taken;
    for (unsigned i = 0; i < OPS_MAX && at < end && !loop_client_doomed(&hostile); i++)
        step();
    loop_client_publish(&hostile);
    for (int i = 0; i < 3; i++)
        loop_rig_turn(&rig, 100000);
    reached.taken += rig.intake.taken - taken;
    reached.breaches += loop_client_doomed(&hostile);
    loop_client_close(&hostile);
    honest_life();
    need(!pawl_engine_failed(rig.engine), "the log failed");
    if (used % 16 == 0)
        pawl_core_verify(pawl_engine_core(rig.engine));
    return 0;
}

#ifndef PAWL_FUZZ
static void random_input(struct pawl_prng *prng, uint8_t *data, size_t *size)
{
    *size = 1 + pawl_prng_below(prng, 600);
    for (size_t i = 0; i < *size; i++)
        data[i] = (uint8_t)pawl_prng_next(prng);
}

int main(int argc, char **argv)
{
    int rc = fuzz_main(argc, argv, "lane_fuzz", 3000, random_input);
    printf("%" PRIu64 " commands taken, %" PRIu64 " breaches, %" PRIu64 " deliveries, %" PRIu64
           " answers\n",
           reached.taken, reached.breaches, reached.deliveries, reached.answers);
    need(reached.taken && reached.breaches && reached.deliveries && reached.answers,
         "the inputs reach nothing");
    loop_client_close(&honest);
    loop_rig_fini(&rig);
    return rc;
}
#endif
