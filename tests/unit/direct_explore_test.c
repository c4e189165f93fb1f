/* SPDX-License-Identifier: MIT */
/* The source of the direct queue under every interleaving of its steps, with deaths, stops, expiry,
 * nacks, renewals and deaths of the broker, in a ring of two slots. A watcher sees every change of
 * a shared word, knows the arrows of the table of states with their guards, who reserved, holds and
 * sent what, and the order rules of the contract (D1 to D6). Where nothing moves any more the rest
 * is received, everybody dies, and the ring must turn twice more.
 *
 * `make check` runs the short cut. PAWL_EXPLORE=long runs each case to its end or to 60 million
 * states (hours in all; 2 GiB of memory). */
#define PAWL_ATOMIC_STEP
#define PAWL_DIRECT_CAPACITY_MIN 2u
#define PAWL_DIRECT_BATCH_MAX 4u

#include "lib/interleave.h"

#include "abi/direct.c"
#include "abi/direct_broker.c"
#include "abi/direct_gate.c"
#include "abi/direct_mark.c"
#include "abi/direct_receive.c"
#include "abi/direct_send.c"
#include "abi/direct_settle.c"
#include "lib/unit.h"

/* --- the world ------------------------------------------------------------------------------- */

#define PLACES 28u /* positions that a case may use, the last laps of at_end included */
#define LANES 6u
#define OPS_MAX 8u
#define CLIENTS_MAX 5u

enum op {
    OP_END,
    OP_SEND,  /* one message */
    OP_SEND2, /* a row of two */
    OP_SEND3,
    OP_PLACE,      /* reserve, publish; one */
    OP_ABANDON,    /* reserve two, give up the first, publish the second */
    OP_RECV,       /* one, copy first; then settle as the choices allow */
    OP_RECV2,      /* up to two, then settle */
    OP_RECV_FIRST, /* one, claimed before the copy; then settle */
    OP_RECV_KEEP,  /* one, not settled */
    OP_SETTLE,     /* what is held */
    OP_REAP,       /* broker: lanes that are dead, and a full turn */
    OP_SWEEP,      /* broker: a full turn */
    OP_LATE,       /* broker: a full turn, when every lease timed so far is over */
    OP_START,      /* a new broker, when the old one is dead; then as OP_REAP */
};

struct private
{
    struct pawl_direct_lane lane;
    struct pawl_direct_broker broker;
    uint64_t tables[(LANES + 1) * 2 + 4];
    uint64_t time;
    struct pawl_direct_delivery got[2];
    uint64_t bodies[2];
    uint32_t pc, held, sent;
    int result;
    uint8_t ops[OPS_MAX];
};

enum message { M_NONE, M_RESERVED, M_READY, M_HELD, M_DONE, M_DEAD, M_GONE };

struct place {
    uint8_t state;     /* enum message */
    uint8_t lane;      /* who reserved it */
    uint8_t holder;    /* lane, while M_HELD; 255: the queue */
    uint8_t delivery;  /* of the newest grant */
    uint8_t flags;     /* below */
    uint8_t completer; /* actor whose operation must return before it counts as complete */
    uint16_t tag;      /* lane << 8 | number of its message */
    uint32_t before;   /* places whose sends had returned before this one was called */
};
#define LATE 1u
#define GRANTED 2u  /* at least once */
#define COMPLETE 4u /* sent, given back or marked: the operation that did it has returned */
#define RETURNED 8u /* its send returned */
#define BACK 16u    /* was given back */

struct watch {
    struct place places[PLACES];
    uint32_t waiting[IL_ACTORS_MAX]; /* READY and complete since the operation began */
    uint32_t marked[IL_ACTORS_MAX];  /* of these, late or given back */
    uint32_t ready[IL_ACTORS_MAX];   /* READY and below head since the operation began */
    uint32_t called[IL_ACTORS_MAX];  /* sends that had returned when the operation began */
    uint32_t grants[IL_ACTORS_MAX];
    uint8_t dead[IL_ACTORS_MAX], reaped[IL_ACTORS_MAX];
    uint8_t nacks, renewals, delays, newest, any_newest, troubled, late_sweeps, ended;
};

static uint8_t arena[IL_SHARED_MAX] __attribute__((aligned(128)));
static struct watch watch;
static struct private mem[IL_ACTORS_MAX];
static struct pawl_direct queue;
static struct pawl_direct_shape shape;
static unsigned clients, broker_actor, broker2_actor;
static bool by_steps; /* payload words are steps of their own */

static uint64_t clock_of(void *context) { return *(uint64_t *)context; }

static struct pawl_direct_slot_shm *slot_of(uint64_t p) { return pawl_direct_slot(&queue, p); }
static struct place *place_of(uint64_t p)
{
    uint64_t n = p - shape.first;
    if (n >= PLACES) {
        il_fail("a position out of range");
        n = 0;
    }
    return &watch.places[n];
}
static uint32_t bit_of(const struct place *m) { return UINT32_C(1) << (m - watch.places); }
static uint64_t full_position(uint64_t lap39, uint64_t i)
{
    uint64_t lap = pawl_direct_lap(&queue, shape.first);
    return (lap + ((lap39 - lap) & PAWL_DIRECT_LAP_MASK)) << queue.shift | i;
}

/* --- the watcher ----------------------------------------------------------------------------- */

static void check_grant(unsigned actor, struct place *m, uint64_t p)
{
    uint64_t later = p - shape.first;
    for (uint64_t n = 0; n < PLACES; n++) {
        const struct place *o = &watch.places[n];
        uint32_t bit = UINT32_C(1) << n;
        if (o->state != M_READY || o == m)
            continue;
        if ((watch.marked[actor] & bit) && n < later)
            il_fail("D5.2: a marked message was passed over");
        if (!(m->flags & GRANTED) && (m->before & bit) && !(o->flags & GRANTED))
            il_fail("D5.3: first grants out of the order sent");
    }
    if (!(m->flags & (GRANTED | LATE))) {
        if (watch.any_newest && later < watch.newest)
            il_fail("D5.1: first grants out of the order of positions");
        watch.any_newest = 1;
        watch.newest = (uint8_t)later;
    }
}

static void leaves_ready(const struct place *m)
{
    for (unsigned a = 0; a < IL_ACTORS_MAX; a++) {
        watch.waiting[a] &= ~bit_of(m);
        watch.marked[a] &= ~bit_of(m);
        watch.ready[a] &= ~bit_of(m);
    }
}

static void becomes_ready(unsigned actor, struct place *m)
{
    m->state = M_READY;
    m->flags &= (uint8_t)~COMPLETE;
    m->completer = (uint8_t)actor;
}

/* READY(d=1) by the producer. */
static void on_publish(unsigned actor, uint64_t p, uint64_t i, bool late)
{
    struct place *m = place_of(p);
    uint64_t tag;
    memcpy(&tag, slot_of(i)->body, sizeof tag);
    if (m->state != M_RESERVED || m->lane != actor + 1)
        il_fail("published by who did not reserve it");
    if (slot_of(i)->position != p || tag >> 8 != actor + 1)
        il_fail("published with the words of another");
    for (unsigned n = 0; n < PLACES; n++)
        if (watch.places[n].tag == tag)
            il_fail("a message sent twice");
    m->tag = (uint16_t)tag;
    m->before = watch.called[actor];
    for (unsigned n = 0; n < PLACES; n++)
        if (watch.places[n].lane == actor + 1 && watch.places[n].tag && &watch.places[n] != m)
            m->before |= UINT32_C(1) << n;
    if (late)
        m->flags |= LATE;
    becomes_ready(actor, m);
}

static void on_give_back(unsigned actor, struct place *m, uint64_t from, uint64_t to)
{
    bool broker = actor >= broker_actor;
    if (broker && m->holder != 255 && !watch.dead[m->holder - 1] &&
        pawl_direct_word_status(from) != PAWL_DIRECT_TIMED)
        il_fail("a lease ended that was not timed since it began or was renewed");
    if (!broker && m->holder != actor + 1)
        il_fail("given back by who does not hold it");
    m->flags |= BACK;
    if (pawl_direct_word_status(to) == PAWL_DIRECT_DEAD)
        m->state = M_DEAD;
    else
        becomes_ready(actor, m);
}

/* LEASED or TIMED is what was there. */
static void on_held(unsigned actor, uint64_t i, uint64_t from, uint64_t to)
{
    uint64_t p = slot_of(i)->position;
    struct place *m = place_of(p);
    unsigned status = pawl_direct_word_status(to);
    uint32_t d = pawl_direct_word_delivery(from), d2 = pawl_direct_word_delivery(to);
    if (m->state != M_HELD)
        il_fail("a lease of nothing");
    if (status == PAWL_DIRECT_EMPTY && d2 == 0) {
        if (m->holder != actor + 1 || m->delivery != d)
            il_fail("acknowledged by who does not hold it");
        m->state = M_DONE;
    } else if (status == PAWL_DIRECT_READY) {
        if (d2 != d + (m->holder != 255))
            il_fail("a delivery number out of its row");
        on_give_back(actor, m, from, to);
    } else if (status == PAWL_DIRECT_DEAD) {
        on_give_back(actor, m, from, to);
    } else if (status == PAWL_DIRECT_TIMED) {
        if (actor < broker_actor || d2 != d ||
            pawl_direct_word_owner(from) != pawl_direct_word_owner(to))
            il_fail("TIMED by another than the broker");
    } else if (pawl_direct_word_owner(to) == PAWL_DIRECT_OWNER_QUEUE) {
        if (m->holder != actor + 1 || d2 != d + 1)
            il_fail("delayed by who does not hold it");
        m->holder = 255;
        m->delivery++;
    } else if (m->holder != actor + 1 || d2 != d || pawl_direct_word_owner(to) != actor + 1) {
        il_fail("renewed by who does not hold it");
    }
}

static void on_claim(unsigned actor, uint64_t i, uint64_t from, uint64_t to)
{
    uint64_t p = slot_of(i)->position;
    struct place *m = place_of(p);
    if (m->state != M_READY || pawl_direct_word_owner(to) != actor + 1 ||
        pawl_direct_word_delivery(from) != pawl_direct_word_delivery(to))
        il_fail("a claim of what is not ready");
    check_grant(actor, m, p);
    leaves_ready(m);
    if (m->holder != 255 && (m->flags & GRANTED) && pawl_direct_word_delivery(to) <= m->delivery)
        il_fail("D4: a delivery number that was there before");
    m->delivery = (uint8_t)pawl_direct_word_delivery(to);
    m->flags |= GRANTED;
    m->state = M_HELD;
    m->holder = (uint8_t)(actor + 1);
    watch.grants[actor]++;
}

static void on_repair(unsigned actor, uint64_t p)
{
    struct place *m = place_of(p);
    bool own = m->lane == actor + 1;
    if (m->state != M_RESERVED || (!own && actor < broker_actor))
        il_fail("a place repaired that nobody reserved");
    else if (!own && !watch.dead[m->lane - 1])
        il_fail("the reservation of a living lane was repaired");
    m->state = M_GONE;
}

static void on_skip(uint64_t i, uint64_t from, uint64_t to)
{
    uint64_t held = PAWL_DIRECT_LAP_ONE + (UINT64_C(1) << 3);
    bool is_held = pawl_direct_word_status(from) == PAWL_DIRECT_HELD;
    if (to != from + (is_held ? held : PAWL_DIRECT_LAP_ONE))
        il_fail("a skip that changes more than N");
    struct place *m = place_of(full_position(pawl_direct_word_lap(from), i));
    if (m->state != M_NONE)
        il_fail("a place skipped that somebody has");
    m->state = M_GONE;
}

static void on_word(unsigned actor, uint64_t i, uint64_t from, uint64_t to)
{
    unsigned a = pawl_direct_word_status(from), b = pawl_direct_word_status(to);
    uint64_t n = pawl_direct_word_lap(from), n2 = pawl_direct_word_lap(to);
    uint64_t p = full_position(n, i);
    if (from == to)
        return;
    if (a == PAWL_DIRECT_EMPTY && b == PAWL_DIRECT_READY &&
        to == pawl_direct_word(PAWL_DIRECT_READY, 0, 1, n + 1))
        on_publish(actor, p, i, false);
    else if (a == PAWL_DIRECT_EMPTY && b == PAWL_DIRECT_HELD &&
             to == pawl_direct_word(PAWL_DIRECT_HELD, 0, 0, n + 1)) {
        if (place_of(p)->state != M_RESERVED)
            il_fail("a place passed that nobody reserved");
    } else if (a == PAWL_DIRECT_HELD && b == PAWL_DIRECT_READY &&
               to == pawl_direct_word(PAWL_DIRECT_READY, 0, 1, n))
        on_publish(actor, full_position(n - 1 - pawl_direct_word_skips(from), i), i, true);
    else if (a == PAWL_DIRECT_READY && b == PAWL_DIRECT_LEASED && n == n2)
        on_claim(actor, i, from, to);
    else if ((a == PAWL_DIRECT_LEASED || a == PAWL_DIRECT_TIMED) && n == n2)
        on_held(actor, i, from, to);
    else if (a == PAWL_DIRECT_EMPTY && b == PAWL_DIRECT_EMPTY)
        on_repair(actor, p);
    else if (a == PAWL_DIRECT_HELD && b == PAWL_DIRECT_EMPTY && n == n2)
        on_repair(actor, full_position(n - 1 - pawl_direct_word_skips(from), i));
    else if (a == b && a != PAWL_DIRECT_EMPTY)
        on_skip(i, from, to);
    else
        il_fail("an arrow that is not in the table");
}

static bool is_decided(uint64_t p)
{
    return pawl_direct_lap_past(slot_of(p)->word, pawl_direct_lap(&queue, p)) > 0;
}

static void on_tail(unsigned actor, uint64_t from, uint64_t to)
{
    if ((int64_t)(to - from) < 0)
        il_fail("tail was lowered");
    if ((int64_t)(to - queue.shm->head) > (int64_t)shape.capacity)
        il_fail("I2: tail is further than the ring from head");
    for (uint64_t p = from; p != to && !il_result.failure; p++) {
        if (is_decided(p))
            continue;
        if (slot_of(p)->word !=
            pawl_direct_word(PAWL_DIRECT_EMPTY, 0, 0, pawl_direct_lap(&queue, p)))
            il_fail("tail passed a slot in use that was not skipped");
        place_of(p)->state = M_RESERVED;
        place_of(p)->lane = (uint8_t)(actor + 1);
    }
}

static void on_head(uint64_t from, uint64_t to)
{
    if ((int64_t)(to - from) < 0)
        il_fail("head was lowered");
    for (uint64_t p = from; p != to; p++)
        if (!is_decided(p))
            il_fail("I3: head passed what is not decided");
}

static uint64_t slots_at(void) { return (uint64_t)(queue.slots - arena); }

static void stepped(unsigned actor, const struct il_step *s, uint64_t found)
{
    uint64_t now = 0;
    if (s->kind == IL_CHOOSE) {
        if (s->expected == 0 && s->value == 1)
            watch.nacks--;
        if (s->expected == 0 && s->value == 2)
            watch.renewals--;
        if (s->expected == 0 && s->value == 3)
            watch.delays--;
        return;
    }
    if (s->kind == IL_LOAD)
        return;
    memcpy(&now, arena + s->offset, s->bytes);
    if (s->offset == offsetof(struct pawl_direct_shm, tail))
        on_tail(actor, found, now);
    else if (s->offset == offsetof(struct pawl_direct_shm, head))
        on_head(found, now);
    else if (s->offset >= slots_at()) {
        uint64_t i = (s->offset - slots_at()) / queue.stride;
        uint64_t at = (s->offset - slots_at()) % queue.stride;
        if (at == 0) {
            on_word(actor, i, found, now);
        } else if (at != 8) {
            /* position, meta or body: only of a place that is one's own */
            bool own = false;
            for (uint64_t n = 0; n < PLACES; n++)
                own |= watch.places[n].state == M_RESERVED && watch.places[n].lane == actor + 1 &&
                       ((shape.first + n) & queue.mask) == i;
            if (!own)
                il_fail("a write into a slot of another");
        }
    }
}

static uint64_t digest(void)
{
    uint64_t words[4 + LANES * 2 + 4 * 5], n = 0;
    const struct pawl_direct_shm *q = queue.shm;
    words[n++] = q->tail;
    words[n++] = q->head;
    words[n++] = q->look;
    words[n++] = queue.marks[0];
    for (unsigned l = 1; l <= LANES; l++) {
        words[n++] = queue.lanes[l].announcement;
        words[n++] = queue.lanes[l].status;
    }
    for (uint64_t i = 0; i <= queue.mask; i++)
        n += (memcpy(&words[n], slot_of(i), 40), 5);
    uint64_t h = pawl_hash64(words, n * 8, 1);
    return pawl_hash64(&watch, sizeof watch, h);
}

static unsigned group(uint32_t offset)
{
    if (offset >= offsetof(struct pawl_direct_shm, readers) &&
        offset < offsetof(struct pawl_direct_shm, pad6))
        return 1; /* gates that nobody sleeps at, and the broker's own words */
    if (offset >= slots_at()) {
        uint64_t at = (offset - slots_at()) % queue.stride;
        if (at >= 16 && !by_steps)
            return 2 + (unsigned)((offset - slots_at()) / queue.stride);
    }
    return 0;
}

/* --- operations ------------------------------------------------------------------------------ */

static unsigned choices(unsigned actor, unsigned kind)
{
    (void)actor;
    (void)kind;
    /* 0 ack, 1 nack, 2 renew first, 3 nack with a delay: the budgets are spent in this order */
    return watch.nacks ? 2 : watch.renewals ? 3 : watch.delays ? 4 : 1;
}

static void op_settle(struct private *m)
{
    for (uint32_t k = 0; k < m->held; k++) {
        unsigned c = il_choose(0);
        int rc;
        if (c == 2) {
            rc = pawl_direct_renew(&m->lane, &m->got[k].token, 50);
            if (rc != PAWL_OK && rc != PAWL_E_LEASE_LOST)
                m->result = rc;
            c = 0;
        }
        rc = c == 0   ? pawl_direct_ack(&m->lane, &m->got[k].token)
             : c == 1 ? pawl_direct_nack(&m->lane, &m->got[k].token, 0, NULL)
                      : pawl_direct_nack(&m->lane, &m->got[k].token, 10, NULL);
        if (rc != PAWL_OK && rc != PAWL_E_LEASE_LOST)
            m->result = rc;
    }
    m->held = 0;
}

static void op_send(struct private *m, uint32_t count)
{
    struct pawl_direct_body b[3];
    uint64_t tags[3];
    for (uint32_t k = 0; k < count; k++) {
        tags[k] = (uint64_t)m->lane.owner << 8 | (m->sent + k + 1);
        b[k] = (struct pawl_direct_body){ .data = &tags[k], .length = 8 };
    }
    m->result = pawl_direct_send(&m->lane, b, count, NULL);
    m->sent += count;
}

static void op_place(struct private *m, bool abandon)
{
    m->result = pawl_direct_reserve(&m->lane, abandon ? 2 : 1);
    if (m->result <= 0)
        return;
    int places = m->result;
    for (int k = 0; k < places; k++) {
        uint64_t tag = (uint64_t)m->lane.owner << 8 | (m->sent + 1);
        int rc;
        if (abandon && k == 0) {
            rc = pawl_direct_abandon(&m->lane);
        } else {
            pawl_store_rlx_u64(pawl_direct_place(&m->lane), tag);
            rc = pawl_direct_publish(&m->lane, 8, 0, NULL);
            m->sent++;
        }
        if (rc != PAWL_OK)
            m->result = rc;
    }
}

static void op_receive(struct private *m, uint32_t count, uint32_t copy_first_max)
{
    m->lane.copy_first_max = copy_first_max;
    for (uint32_t k = 0; k < count; k++)
        m->got[k].body = &m->bodies[k];
    m->result = pawl_direct_receive(&m->lane, m->got, count, PAWL_DIRECT_COPY);
    m->held = m->result > 0 ? (uint32_t)m->result : 0;
}

static void op_reap(struct private *m)
{
    for (unsigned c = 0; c < clients; c++)
        if (watch.reaped[c])
            pawl_direct_lane_dead(&m->broker, c + 1);
    (void)pawl_direct_sweep(&m->broker, shape.capacity);
}

static void op_start(struct private *m)
{
    pawl_direct_broker_init(&m->broker, &queue, m->tables, 2, clock_of, &m->time);
    op_reap(m);
}

static void run(unsigned actor)
{
    struct private *m = &mem[actor];
    switch ((enum op)m->ops[m->pc]) {
    case OP_SEND:
    case OP_SEND2:
    case OP_SEND3:
        op_send(m, 1 + m->ops[m->pc] - OP_SEND);
        break;
    case OP_PLACE:
        op_place(m, false);
        break;
    case OP_ABANDON:
        op_place(m, true);
        break;
    case OP_RECV:
    case OP_RECV_KEEP:
        op_receive(m, 1, 64);
        break;
    case OP_RECV2:
        op_receive(m, 2, 64);
        break;
    case OP_RECV_FIRST:
        op_receive(m, 1, 0);
        break;
    case OP_SETTLE:
        op_settle(m);
        break;
    case OP_REAP:
        op_reap(m);
        break;
    case OP_SWEEP:
        (void)pawl_direct_sweep(&m->broker, shape.capacity);
        break;
    case OP_LATE:
        m->time += UINT64_C(1000000000000);
        (void)pawl_direct_sweep(&m->broker, shape.capacity);
        break;
    case OP_START:
        op_start(m);
        break;
    default:
        abort();
    }
}

static bool may_begin(unsigned actor, bool *done)
{
    const struct private *m = &mem[actor];
    bool deaths = false;
    for (unsigned c = 0; c < clients; c++)
        deaths |= watch.dead[c] && !(watch.reaped[c] & (actor == broker2_actor ? 2 : 1));
    switch ((enum op)m->ops[m->pc]) {
    case OP_END:
        *done = true;
        return false;
    case OP_REAP:
        return deaths;
    case OP_START:
        return watch.dead[broker_actor];
    default:
        return true;
    }
}

static void begins(unsigned actor)
{
    const struct private *m = &mem[actor];
    watch.waiting[actor] = watch.marked[actor] = watch.ready[actor] = watch.called[actor] = 0;
    watch.grants[actor] = 0;
    for (unsigned n = 0; n < PLACES; n++) {
        const struct place *p = &watch.places[n];
        uint32_t bit = UINT32_C(1) << n;
        if (p->flags & RETURNED)
            watch.called[actor] |= bit;
        if (p->state != M_READY)
            continue;
        /* A sweep marks what lies below head; what the walk will meet it leaves alone, and a walker
         * that has passed it already moves head over it later: then the next sweep marks it. */
        if ((int64_t)(shape.first + n - queue.shm->head) < 0)
            watch.ready[actor] |= bit;
        if (!(p->flags & COMPLETE))
            continue;
        watch.waiting[actor] |= bit;
        if (p->flags & (LATE | BACK))
            watch.marked[actor] |= bit;
    }
    if (m->ops[m->pc] == OP_REAP || m->ops[m->pc] == OP_START)
        for (unsigned c = 0; c < clients; c++)
            if (watch.dead[c])
                watch.reaped[c] |= actor == broker2_actor ? 2 : 1;
}

static void check_received(struct private *m, unsigned actor)
{
    if (m->result == 0 && watch.waiting[actor])
        il_fail("D6: EMPTY, and a message was there all the time");
    for (uint32_t k = 0; k < m->held; k++) {
        const struct pawl_direct_delivery *d = &m->got[k];
        const struct place *p = place_of(d->token.position);
        if (m->bodies[k] != p->tag || d->length != 8)
            il_fail("a message received torn");
        if (d->token.owner != actor + 1)
            il_fail("a token of another");
    }
}

static void ended(unsigned actor)
{
    struct private *m = &mem[actor];
    uint8_t op = m->ops[m->pc];
    bool sends = op >= OP_SEND && op <= OP_ABANDON;
    bool receives = op >= OP_RECV && op <= OP_RECV_KEEP;
    bool sweeps = op >= OP_REAP;
    if (m->result == PAWL_E_QUEUE_DAMAGED)
        il_fail("damage where nobody was hostile");
    if (receives)
        check_received(m, actor);
    for (unsigned n = 0; n < PLACES; n++) {
        struct place *p = &watch.places[n];
        if (p->tag && p->lane == actor + 1 && sends)
            p->flags |= RETURNED;
        if (p->state == M_READY &&
            (p->completer == actor || (sweeps && (watch.ready[actor] >> n & 1))))
            p->flags |= COMPLETE;
    }
    watch.waiting[actor] = watch.marked[actor] = watch.ready[actor] = watch.called[actor] = 0;
    watch.grants[actor] = 0;
    /* Everything that does not bear on what follows is made alike. */
    memset(&m->lane.counts, 0, sizeof m->lane.counts);
    m->lane.resume = m->lane.ready = m->lane.from = 0;
    memset(m->lane.notes, 0, sizeof m->lane.notes);
    memset(&m->broker.counts, 0, sizeof m->broker.counts);
    memset(&m->broker.turn, 0, sizeof m->broker.turn);
    if (op != OP_RECV_KEEP)
        for (uint32_t k = m->held; k < 2; k++)
            memset(&m->got[k], 0, sizeof m->got[k]);
    memset(m->bodies, 0, sizeof m->bodies);
    m->result = 0;
    /* A receive is followed by the settling of what it brought. */
    if ((op == OP_RECV || op == OP_RECV2 || op == OP_RECV_FIRST) && m->held)
        m->ops[m->pc] = OP_SETTLE;
    else
        m->pc++;
    if (m->ops[m->pc] == OP_END)
        m->lane.head = 0;
}

static void died(unsigned actor) { watch.dead[actor] = 1; }

/* --- the end --------------------------------------------------------------------------------- */

/* As actor `clients`' lane, which nobody of the case has: receives and acknowledges all. */
static void drain(struct private *m)
{
    unsigned me = m->lane.owner - 1;
    for (unsigned n = 0; n < 4 * PLACES; n++) {
        il.current = me;
        begins(me);
        op_receive(m, 1, 64);
        check_received(m, me);
        if (m->held == 0)
            return;
        if (pawl_direct_ack(&m->lane, &m->got[0].token) != PAWL_OK)
            il_fail("the last reader lost a lease");
    }
    il_fail("receives never come to an end");
}

static void reap_all(struct private *m, bool everybody)
{
    il.current = broker_actor;
    pawl_direct_broker_init(&m->broker, &queue, m->tables, 3, clock_of, &m->time);
    for (unsigned c = 0; c < clients; c++)
        if (everybody || watch.dead[c]) {
            watch.dead[c] = 1;
            pawl_direct_lane_dead(&m->broker, c + 1);
        }
    m->time += UINT64_C(1000000000000);
    for (unsigned n = 0; n < 4; n++) {
        (void)pawl_direct_sweep(&m->broker, shape.capacity);
        m->time += UINT64_C(1000000000000);
    }
}

static void two_laps(struct private *m)
{
    for (unsigned n = 0; n < 2 * shape.capacity; n++) {
        il.current = m->lane.owner - 1;
        begins(il.current);
        op_send(m, 1);
        if (m->result != 1)
            il_fail("the ring does not turn any more");
        drain(m);
    }
}

static void at_end(void)
{
    static struct private last;
    bool faults = false;
    memset(&last, 0, sizeof last);
    watch.ended = 1;
    for (unsigned i = 0; i < il.w.actors; i++)
        faults |= il_status_of(i) == IL_DEAD || il_status_of(i) == IL_STOPPED;
    (void)pawl_direct_lane_init(&last.lane, &queue, clients + 1);
    last.lane.patience = 0;
    queue.lanes[clients + 1].status = PAWL_DIRECT_LANE_LIVE;
    if (!faults)
        drain(&last); /* no sweep was needed */
    reap_all(&last, false);
    drain(&last);
    for (unsigned n = 0; n < PLACES; n++)
        if (watch.places[n].state == M_READY)
            il_fail("D1, D8: a message that nobody finds");
    reap_all(&last, true);
    drain(&last);
    for (unsigned n = 0; n < PLACES; n++) {
        const struct place *p = &watch.places[n];
        if (p->state != M_NONE && p->state != M_DONE && p->state != M_GONE && p->state != M_DEAD)
            il_fail("a message or a place left behind");
    }
    for (uint64_t i = 0; i <= queue.mask; i++)
        if (pawl_direct_word_status(slot_of(i)->word) != PAWL_DIRECT_EMPTY &&
            pawl_direct_word_status(slot_of(i)->word) != PAWL_DIRECT_DEAD)
            il_fail("a slot that is not free at the end");
    if (shape.attempts_max == 0)
        two_laps(&last);
}

/* --- cases ----------------------------------------------------------------------------------- */

struct explored {
    const char *name;
    uint32_t capacity;
    uint8_t clients[CLIENTS_MAX][OPS_MAX];
    uint8_t broker[OPS_MAX], broker2[OPS_MAX];
    uint8_t nacks, renewals, delays, attempts;
    int kills, stops;
    int preemptions; /* of the short cut; IL_BOUNDLESS: all interleavings */
    int longer;      /* of the long cut */
    bool by_steps;
    uint64_t first;
};

static void prepare(const struct explored *c)
{
    il.direct = true;
    il.w.shared = arena;
    il.w.shared_bytes = sizeof arena;
    il.w.stepped = NULL;
    memset(arena, 0, sizeof arena);
    memset(&watch, 0, sizeof watch);
    memset(mem, 0, sizeof mem);
    shape = (struct pawl_direct_shape){ .capacity = c->capacity,
                                        .body_bytes = 8,
                                        .lanes = LANES,
                                        .attempts_max = c->attempts,
                                        .lease_ms = 1000,
                                        .lease_ms_max = 10000,
                                        .first = c->first };
    assert_int_equal(pawl_direct_shape_check(&shape), PAWL_OK);
    assert_true(pawl_direct_bytes(&shape) <= sizeof arena);
    pawl_direct_init(arena, &shape);
    assert_int_equal(pawl_direct_open(&queue, arena, pawl_direct_bytes(&shape), &shape), PAWL_OK);
    by_steps = c->by_steps;
    watch.nacks = c->nacks;
    watch.renewals = c->renewals;
    watch.delays = c->delays;
    clients = 0;
    while (clients < CLIENTS_MAX && c->clients[clients][0])
        clients++;
    broker_actor = clients + 1; /* the lane after the clients' belongs to at_end */
    broker2_actor = clients + 2;
    assert_true(broker2_actor < IL_ACTORS_MAX);
    for (unsigned i = 0; i < clients; i++) {
        memcpy(mem[i].ops, c->clients[i], OPS_MAX);
        assert_int_equal(pawl_direct_lane_init(&mem[i].lane, &queue, i + 1), PAWL_OK);
        mem[i].lane.patience = 0;
        queue.lanes[i + 1].status = PAWL_DIRECT_LANE_LIVE;
    }
    memcpy(mem[broker_actor].ops, c->broker, OPS_MAX);
    memcpy(mem[broker2_actor].ops, c->broker2, OPS_MAX);
    struct private *b = &mem[broker_actor];
    b->time = 1000000000;
    mem[broker2_actor].time = 1000000000;
    pawl_direct_broker_init(&b->broker, &queue, b->tables, 1, clock_of, &b->time);
}

/* The address sanitizer looks for another kind of fault, and takes ten times as long. */
static int short_cut(const struct explored *c)
{
#ifdef __SANITIZE_ADDRESS__
    return c->preemptions < 0 ? 2 : c->preemptions > 1 ? c->preemptions - 1 : c->preemptions;
#else
    return c->preemptions;
#endif
}

static void explore_case(const struct explored *c)
{
    bool longer = getenv("PAWL_EXPLORE") && strcmp(getenv("PAWL_EXPLORE"), "long") == 0;
    prepare(c);
    struct il_world w = { .shared = arena,
                          .watch = &watch,
                          .shared_bytes = (uint32_t)pawl_direct_bytes(&shape) < sizeof arena
                                              ? (uint32_t)pawl_direct_bytes(&shape)
                                              : (uint32_t)sizeof arena,
                          .watch_bytes = sizeof watch,
                          .private_bytes = sizeof(struct private),
                          .actors = clients + 3,
                          .kills = c->kills,
                          .stops = c->stops,
                          .preemptions = longer ? c->longer : short_cut(c),
                          .states_max = longer ? 60000000 : 20000000,
                          .run = run,
                          .may_begin = may_begin,
                          .begins = begins,
                          .ended = ended,
                          .died = died,
                          .stepped = stepped,
                          .choices = choices,
                          .group = group,
                          .digest = digest,
                          .at_end = at_end };
    for (unsigned i = 0; i < w.actors; i++)
        w.private[i] = &mem[i];
    /* only what is used of the arena is copied from state to state */
    w.shared_bytes = (uint32_t)(queue.slots - arena) + (uint32_t)(queue.mask + 1) * queue.stride;
    interleave(&w);
    char bound[24];
    snprintf(bound, sizeof bound, w.preemptions < 0 ? "all" : "<= %d switches", w.preemptions);
    print_message("%-58s %11s: %8llu states %9llu steps %7llu ends depth %3u deaths %llu%s\n",
                  c->name, bound, (unsigned long long)il_result.states,
                  (unsigned long long)il_result.steps, (unsigned long long)il_result.ends,
                  il_result.depth, (unsigned long long)il_result.deaths,
                  il_result.complete ? "" : " (cut)");
    assert_null(il_result.failure);
    assert_true(il_result.ends > 0);
    assert_true(longer || il_result.complete);
    assert_true(c->kills == 0 || il_result.deaths > 0);
}

#define S OP_SEND
#define S2 OP_SEND2
#define R OP_RECV
#define R2 OP_RECV2
#define RF OP_RECV_FIRST

static void cases_without_faults(void **state)
{
    (void)state;
    const struct explored cases[] = {
        { "1x2, 1x2", 2, { { S, S }, { R, R } }, .preemptions = -1, .longer = -1 },
        { "1x2, 1x2, payload by words",
          2,
          { { S, S }, { R, R } },
          .preemptions = -1,
          .longer = -1,
          .by_steps = true },
        { "2x1, 1x2", 2, { { S }, { S }, { R, R } }, .preemptions = -1, .longer = -1 },
        { "2x2, 1x3", 2, { { S, S }, { S, S }, { R, R, R } }, .preemptions = 3, .longer = -1 },
        { "2x2, 2x2",
          2,
          { { S, S }, { S, S }, { R, R }, { R, R } },
          .preemptions = 1,
          .longer = 4 },
        { "2x1, 2x1, claim before copy",
          2,
          { { S }, { S }, { RF }, { RF } },
          .preemptions = 2,
          .longer = -1,
          .nacks = 1 },
        { "C=4, 2x3 in rows of 3, 2x1",
          4,
          { { OP_SEND3 }, { OP_SEND3 }, { R }, { R2 } },
          .preemptions = 2,
          .longer = 5 },
        { "place and abandon",
          2,
          { { OP_PLACE, OP_ABANDON }, { S }, { R, R } },
          .preemptions = 3,
          .longer = -1 },
    };
    for (unsigned i = 0; i < PAWL_COUNT(cases); i++)
        explore_case(&cases[i]);
}

static void cases_with_deaths(void **state)
{
    (void)state;
    const struct explored cases[] = {
        { "2x1, 1x2, one death",
          2,
          { { S }, { S }, { R, R } },
          { OP_REAP },
          .kills = 1,
          .preemptions = 2,
          .longer = -1 },
        { "2x1, 2x2, one death",
          2,
          { { S }, { S }, { R, R }, { R, R } },
          { OP_REAP },
          .kills = 1,
          .preemptions = 1,
          .longer = 4 },
        { "2x2 in rows of 2, 1x3, one death",
          2,
          { { S2 }, { S2 }, { R2, R } },
          { OP_REAP },
          .kills = 1,
          .preemptions = 1,
          .longer = 4 },
        { "1x2, 1x2, two deaths, the broker's among them",
          2,
          { { S, S }, { R, R } },
          { OP_REAP },
          { OP_START },
          .kills = 2,
          .preemptions = 2,
          .longer = -1 },
        { "2x1, 1x2, two deaths, the broker's among them",
          2,
          { { S }, { S }, { R, R } },
          { OP_REAP },
          { OP_START },
          .kills = 2,
          .preemptions = 1,
          .longer = 3 },
        { "a sweep beside 2x1, 1x2",
          2,
          { { S }, { S }, { R, R } },
          { OP_SWEEP },
          .preemptions = 2,
          .longer = -1 },
        { "place and abandon, one death",
          2,
          { { OP_PLACE, OP_ABANDON }, { S }, { R, R } },
          { OP_REAP },
          .kills = 1,
          .preemptions = 1,
          .longer = 4 },
    };
    for (unsigned i = 0; i < PAWL_COUNT(cases); i++)
        explore_case(&cases[i]);
}

static void cases_with_leases(void **state)
{
    (void)state;
    const struct explored cases[] = {
        { "1x2, 2x1, one nack",
          2,
          { { S, S }, { R, R }, { R, R } },
          .nacks = 1,
          .preemptions = 3,
          .longer = -1 },
        { "2x1, 2x2, one nack",
          2,
          { { S }, { S }, { R, R }, { R, R } },
          .nacks = 1,
          .preemptions = 2,
          .longer = 4 },
        { "1x2, 2x1, expiry",
          2,
          { { S, S }, { R, R }, { R } },
          { OP_SWEEP, OP_LATE },
          .preemptions = 2,
          .longer = 4 },
        { "1x1, 2x1, expiry, renewal",
          2,
          { { S }, { R, R }, { R } },
          { OP_SWEEP, OP_LATE, OP_LATE },
          .renewals = 1,
          .preemptions = 2,
          .longer = -1 },
        { "1x1, 2x1, expiry, claim before copy",
          2,
          { { S, S, S }, { RF }, { R } },
          { OP_SWEEP, OP_LATE },
          .preemptions = 2,
          .longer = -1 },
        { "1x2, 1x3, nack with a delay, expiry",
          2,
          { { S, S }, { R, R, R } },
          { OP_SWEEP, OP_LATE },
          .delays = 1,
          .preemptions = 2,
          .longer = -1 },
        { "2x1, 1x2, nack, death",
          2,
          { { S }, { S }, { R, R } },
          { OP_REAP },
          .nacks = 1,
          .kills = 1,
          .preemptions = 2,
          .longer = 4 },
        { "1x2, 2x2, expiry, nack, death of the broker",
          2,
          { { S, S }, { R, R }, { R } },
          { OP_SWEEP, OP_LATE },
          { OP_START, OP_LATE },
          .nacks = 1,
          .kills = 1,
          .preemptions = 1,
          .longer = 3 },
        { "1x1, 1x2, two attempts, nack, expiry",
          2,
          { { S, S }, { R, R, R } },
          { OP_SWEEP, OP_LATE },
          .nacks = 2,
          .attempts = 2,
          .preemptions = 2,
          .longer = -1 },
    };
    for (unsigned i = 0; i < PAWL_COUNT(cases); i++)
        explore_case(&cases[i]);
}

static void cases_with_stops(void **state)
{
    (void)state;
    const struct explored cases[] = {
        { "2x1, 1x2, one stopped for good",
          2,
          { { S }, { S }, { R, R } },
          .stops = 1,
          .preemptions = 3,
          .longer = -1 },
        { "2x2, 1x2, one stopped and another dead",
          2,
          { { S, S }, { S }, { R, R } },
          { OP_REAP },
          .kills = 1,
          .stops = 1,
          .preemptions = 1,
          .longer = 3 },
        { "1x2, 2x2, one stopped, one nack",
          2,
          { { S, S }, { R, R }, { R, R } },
          .nacks = 1,
          .stops = 1,
          .preemptions = 2,
          .longer = 4 },
    };
    for (unsigned i = 0; i < PAWL_COUNT(cases); i++)
        explore_case(&cases[i]);
}

/* Laps of 39 bits, positions of 64. */
static void cases_that_wrap(void **state)
{
    (void)state;
    const struct explored cases[] = {
        { "2x1, 1x2, one death, N near its wrap",
          2,
          { { S }, { S }, { R, R } },
          { OP_REAP },
          .kills = 1,
          .preemptions = 1,
          .longer = 3,
          .first = (UINT64_C(1) << 40) - 2 },
        { "2x1, 1x2, one death, position near 2^64",
          2,
          { { S }, { S }, { R, R } },
          { OP_REAP },
          .kills = 1,
          .preemptions = 1,
          .longer = 3,
          .first = UINT64_MAX - 1 },
        { "2x1, 1x2, one death, position near 2^63",
          2,
          { { S }, { S }, { R, R } },
          { OP_REAP },
          .kills = 1,
          .preemptions = 1,
          .longer = 3,
          .first = (UINT64_C(1) << 63) - 1 },
    };
    for (unsigned i = 0; i < PAWL_COUNT(cases); i++)
        explore_case(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_without_faults), cmocka_unit_test(cases_with_deaths),
        cmocka_unit_test(cases_with_leases),    cmocka_unit_test(cases_with_stops),
        cmocka_unit_test(cases_that_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
