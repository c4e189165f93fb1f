/* SPDX-License-Identifier: MIT */
/* The calls of pawl.h on a direct queue. No broker, no system call and no lock on the way of a
 * message, but for the clock of a receive that got something, and the futex of who waits.
 *
 * What a direct queue has not is refused by name: keys, ordering keys, headers, delays, priorities,
 * a time to live, ids of operations, reasons, results, defer, reject, leases that outlive their
 * process. */
#include "client/direct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define BODIES_BYTES_MAX (4u << 20) /* kept for one receive, unless one body is larger */
#define ROW 64u                     /* messages or bodies of one call of abi/direct.h */
#define SPIN_LOOKS 64u              /* between two readings of the clock */
#define FULL_PAUSES 128u            /* a few us */

static int unsupported(struct pawl *lane, const char *what)
{
    return pawl_call_refuse(lane, PAWL_E_NOT_SUPPORTED, "a direct queue has no %s", what);
}

/* The use of the queue; one whose queue is over is asked for once more, by the name's number. */
static int use_of(struct pawl *lane, struct pawl_queue_ref *q, uint32_t right,
                  struct pawl_use **out)
{
    struct pawl_use *use = q->use;
    if (PAWL_LIKELY(use && (use->rights & right) && pawl_use_served(use))) {
        *out = use;
        return PAWL_OK;
    }
    return pawl_use_get(lane, q, right, pawl_add_sat(pawl_now(lane), lane->timeout_ns), out);
}

static int gone(struct pawl *lane)
{
    return pawl_call_refuse(lane, PAWL_E_QUEUE_GONE,
                            "the direct queue was dropped, or its memory is gone");
}

/* The queue is not served any more, as the broker has left it in the memory. */
static int state_of(struct pawl *lane, struct pawl_use *use)
{
    if (PAWL_LIKELY(pawl_use_served(use)))
        return PAWL_OK;
    pawl_use_over(lane, use);
    return gone(lane);
}

static int damaged(struct pawl *lane)
{
    return pawl_call_refuse(lane, PAWL_E_QUEUE_DAMAGED,
                            "the memory of the queue holds what no correct client wrote: drop it "
                            "and make it anew");
}

/* --- waiting --------------------------------------------------------------------------------- */

/* Sleeps until somebody wakes this gate, or for a while. OK, or why it is no use to wait. */
static int wait_gate(struct pawl *lane, struct pawl_use *use, uint32_t *gate, uint32_t kept,
                     uint64_t until)
{
    uint64_t now = pawl_now(lane);
    if (now < until)
        pawl_direct_gate_wait(gate, kept, pawl_min_u64(until - now, PAWL_DIRECT_SLEEP_NS_MAX));
    return state_of(lane, use);
}

static bool spin_for_message(struct pawl *lane, struct pawl_use *use, uint64_t until)
{
    do {
        for (uint32_t i = 0; i < SPIN_LOOKS; i++) {
            if (pawl_direct_poll(&use->lane))
                return true;
            pawl_cpu_relax();
        }
    } while (pawl_now(lane) < until);
    return false;
}

/* --- send ------------------------------------------------------------------------------------ */

static const char *send_unsupported(const struct pawl_send_options *o)
{
    return o->key_bytes                           ? "dedup keys"
           : o->ordering_key_bytes                ? "ordering keys"
           : o->delay_ns || o->at_wall_ns         ? "delays"
           : o->ttl_ns                            ? "time to live (ttl_ns)"
           : o->header_count                      ? "headers"
           : o->priority != PAWL_PRIORITY_DEFAULT ? "priorities"
                                                  : NULL;
}

/* Sends `count` bodies, all or as many as there is room for until `until`. *done: how many. */
static int send_row(struct pawl *lane, struct pawl_use *use, const struct pawl_direct_body *bodies,
                    uint32_t count, uint64_t wait_ns, uint64_t *positions, uint32_t *done)
{
    uint64_t until = 0;
    uint32_t *gate = &use->memory->view.shm->writers;
    *done = 0;
    for (bool prepared = false;;) {
        uint32_t kept = 0;
        if (prepared)
            kept = pawl_direct_gate_prepare(gate);
        int n = pawl_direct_send(&use->lane, bodies + *done, count - *done, positions + *done);
        if (n > 0) {
            use->full = false;
            *done += (uint32_t)n;
            if (*done == count)
                return PAWL_OK;
            continue;
        }
        if (n != PAWL_E_FULL)
            return n == PAWL_E_QUEUE_DAMAGED ? damaged(lane) : n;
        int rc = state_of(lane, use);
        if (rc != PAWL_OK)
            return rc;
        if (wait_ns == 0 || (until != 0 && pawl_now(lane) >= until))
            return PAWL_E_FULL;
        if (until == 0)
            until = pawl_add_sat(pawl_now(lane), wait_ns);
        if (prepared && (rc = wait_gate(lane, use, gate, kept, until)) != PAWL_OK)
            return rc;
        prepared = true;
    }
}

/* Who asks again and again takes the lines of the oldest message from those who are about to
 * receive it: it would be several times slower for both. So all but the first are answered a little
 * later.
 */
static void slow_down(struct pawl_use *use)
{
    for (uint32_t i = 0; use->full && i < FULL_PAUSES; i++)
        pawl_cpu_relax();
    use->full = true;
}

static int refuse_send(struct pawl *lane, struct pawl_use *use, int rc)
{
    if (rc == PAWL_E_FULL)
        slow_down(use);
    if (rc == PAWL_E_FULL)
        return pawl_call_refuse(lane, rc, "all %u slots of the direct queue are in use",
                                use->memory->view.shape.capacity);
    if (rc == PAWL_E_TOO_BIG)
        return pawl_call_refuse(lane, rc, "a message of this direct queue has at most %u bytes",
                                use->memory->view.shape.body_bytes);
    if (rc == PAWL_E_MISUSE)
        return pawl_call_refuse(lane, rc, "places are reserved: publish or abandon them first");
    return rc;
}

static void told(struct pawl_sent *out, int result, uint64_t position)
{
    *out = (struct pawl_sent){ .result = result };
    if (result == PAWL_OK) {
        out->id = PAWL_DIRECT_ID | position;
        out->state = PAWL_STATE_READY;
    }
}

int pawl_direct_call_send(struct pawl *lane, struct pawl_queue_ref *q,
                          const struct pawl_send_plan *plan, const void *body,
                          struct pawl_sent *out)
{
    struct pawl_use *use;
    const char *what = send_unsupported(&plan->o);
    if (PAWL_UNLIKELY(what || lane->identified))
        return unsupported(lane, what ? what : "ids of operations");
    int rc = use_of(lane, q, PAWL_USE_SEND, &use);
    if (PAWL_UNLIKELY(rc != PAWL_OK))
        return rc;
    const struct pawl_direct_body b = { .data = body, .length = plan->body_bytes };
    uint64_t position;
    uint32_t done;
    rc = send_row(lane, use, &b, 1, plan->o.wait_room_ns, &position, &done);
    if (PAWL_UNLIKELY(rc < 0))
        return rc == PAWL_E_QUEUE_GONE ? rc : refuse_send(lane, use, rc);
    if (out)
        told(out, rc, position);
    return rc;
}

int pawl_direct_call_send_plain(struct pawl *lane, struct pawl_queue_ref *q, const void *body,
                                size_t bytes, struct pawl_sent *out)
{
    struct pawl_use *use;
    uint64_t position;
    if (PAWL_UNLIKELY(lane->identified))
        return unsupported(lane, "ids of operations");
    int rc = use_of(lane, q, PAWL_USE_SEND, &use);
    if (PAWL_UNLIKELY(rc != PAWL_OK))
        return rc;
    if (PAWL_UNLIKELY(bytes > use->lane.q.shape.body_bytes))
        return refuse_send(lane, use, PAWL_E_TOO_BIG);
    if (PAWL_UNLIKELY(!body && bytes))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "body is NULL");
    const struct pawl_direct_body b = { .data = body, .length = (uint32_t)bytes };
    rc = pawl_direct_send(&use->lane, &b, 1, &position);
    if (PAWL_UNLIKELY(rc < 0)) {
        int state = rc == PAWL_E_FULL ? state_of(lane, use) : PAWL_OK;
        return state != PAWL_OK             ? state
               : rc == PAWL_E_QUEUE_DAMAGED ? damaged(lane)
                                            : refuse_send(lane, use, rc);
    }
    use->full = false;
    if (out)
        told(out, PAWL_OK, position);
    return PAWL_OK;
}

int pawl_direct_call_send_batch(struct pawl *lane, struct pawl_queue_ref *q,
                                const struct pawl_item *items, uint32_t n, struct pawl_sent *out)
{
    struct pawl_use *use;
    struct pawl_send_plan p;
    struct pawl_direct_body bodies[ROW];
    uint64_t positions[ROW];
    int rc = use_of(lane, q, PAWL_USE_SEND, &use);
    for (uint32_t i = 0; rc == PAWL_OK && i < n; i++) {
        const char *what = NULL;
        if (PAWL_UNLIKELY(items[i].options)) {
            (void)pawl_send_plan(lane, &p, items[i].body, items[i].bytes, items[i].options);
            what = send_unsupported(&p.o);
        }
        if (what)
            rc = unsupported(lane, what);
        else if (items[i].bytes > use->memory->view.shape.body_bytes)
            rc = refuse_send(lane, use, PAWL_E_TOO_BIG);
    }
    uint32_t sent = 0;
    while (rc == PAWL_OK && sent < n) {
        uint32_t count = (uint32_t)pawl_min_u64(ROW, n - sent), done;
        uint64_t wait_ns = 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct pawl_item *item = &items[sent + i];
            bodies[i] =
                (struct pawl_direct_body){ .data = item->body, .length = (uint32_t)item->bytes };
            if (item->options) {
                (void)pawl_send_plan(lane, &p, item->body, item->bytes, item->options);
                wait_ns = pawl_max_u64(wait_ns, p.o.wait_room_ns);
            }
        }
        rc = send_row(lane, use, bodies, count, wait_ns, positions, &done);
        for (uint32_t i = 0; i < done; i++)
            told(&out[sent + i], PAWL_OK, positions[i]);
        sent += done;
        if (rc < 0 && rc != PAWL_E_QUEUE_GONE)
            rc = refuse_send(lane, use, rc);
    }
    for (uint32_t i = sent; i < n; i++)
        told(&out[i], rc, 0);
    return rc;
}

/* --- receive --------------------------------------------------------------------------------- */

static int bodies_for(struct pawl *lane, struct pawl_use *use, uint32_t *count)
{
    uint64_t each = pawl_align_up(use->memory->view.shape.body_bytes, 64);
    if (each == 0)
        return PAWL_OK;
    *count = (uint32_t)pawl_min_u64(*count, pawl_max_u64(BODIES_BYTES_MAX / each, 1));
    uint64_t bytes = each * *count;
    if (bytes <= use->bodies_bytes)
        return PAWL_OK;
    uint8_t *bodies = aligned_alloc(64, bytes);
    if (!bodies)
        return pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory for %llu bytes of messages",
                                (unsigned long long)bytes);
    free(use->bodies);
    use->bodies = bodies;
    use->bodies_bytes = bytes;
    return PAWL_OK;
}

static uint32_t lease_ms(uint64_t ns)
{
    uint64_t ms = ns / PAWL_NS_MS + (ns % PAWL_NS_MS != 0);
    return (uint32_t)pawl_min_u64(ms, PAWL_DIRECT_LEASE_MS_MAX);
}

static void token_of(const struct pawl_use *use, const struct pawl_direct_token *t,
                     struct pawl_token *out)
{
    out->message = PAWL_DIRECT_ID | t->position;
    out->grant = PAWL_DIRECT_ID | t->position << 10 | t->delivery;
    out->random = (uint64_t)t->owner << 52 | use->memory->tag;
}

static struct pawl_direct_token token_in(const struct pawl_token *t)
{
    return (struct pawl_direct_token){ .position = t->message & ~PAWL_DIRECT_ID,
                                       .owner = (uint16_t)(t->random >> 52),
                                       .delivery = (uint16_t)(t->grant & 1023) };
}

static void message_of(const struct pawl_use *use, const char *queue,
                       const struct pawl_direct_delivery *d, struct pawl_message *m)
{
    /* In pieces: the compiler makes a slow loop of one that is so long. */
    memset(m, 0, 64);
    memset((char *)m + 64, 0, 64);
    memset((char *)m + 128, 0, sizeof *m - 128);
    token_of(use, &d->token, &m->token);
    m->id = m->token.message;
    m->body = d->body;
    m->bytes = d->length;
    m->queue = queue;
    m->priority = PAWL_PRIORITY_DEFAULT;
    m->acquired = d->attempt;
    m->failed = d->attempt > 0 ? d->attempt - 1u : 0;
}

/* The lease as the caller wants it. False: it is over already, and somebody else's. */
static bool set_lease(struct pawl *lane, struct pawl_use *use, const struct pawl_receive_options *o,
                      const struct pawl_direct_delivery *d, uint64_t now, struct pawl_message *m)
{
    uint64_t ns = o->lease_ns ? o->lease_ns : use->memory->lease_ns;
    if (o->flags & PAWL_RECEIVE_AT_MOST_ONCE)
        return pawl_direct_ack(&use->lane, &d->token) == PAWL_OK;
    if (o->lease_kind == PAWL_LEASE_HELD) {
        m->lease_left_ns = m->deadline_ns = PAWL_UNLIMITED;
        m->lease_kind = PAWL_LEASE_HELD;
        return pawl_direct_renew(&use->lane, &d->token, PAWL_DIRECT_LEASE_ALIVE) == PAWL_OK;
    }
    ns = pawl_min_u64(ns, use->memory->hold_ns);
    m->lease_left_ns = ns;
    m->deadline_ns = now + ns;
    if (PAWL_UNLIKELY(lane->held))
        pawl_held_add(lane, m, o->lease_ns, now);
    return o->lease_ns == 0 || pawl_direct_renew(&use->lane, &d->token, lease_ms(ns)) == PAWL_OK;
}

/* What is there now, without waiting. */
static int receive_now(struct pawl *lane, struct pawl_use *use, const char *queue,
                       const struct pawl_receive_options *o, struct pawl_message *out, uint32_t max)
{
    struct pawl_direct_delivery d[ROW];
    bool in_place = (o->flags & PAWL_RECEIVE_IN_PLACE) != 0;
    uint64_t each = pawl_align_up(use->memory->view.shape.body_bytes, 64);
    uint32_t n = 0;
    use->in_place |= in_place;
    while (n < max) {
        uint32_t count = (uint32_t)pawl_min_u64(ROW, max - n);
        for (uint32_t i = 0; i < count; i++)
            d[i].body = in_place || each == 0 ? NULL : use->bodies + (n + i) * each;
        int got = pawl_direct_receive(&use->lane, d, count,
                                      in_place ? PAWL_DIRECT_IN_PLACE : PAWL_DIRECT_COPY);
        if (got < 0)
            return n > 0 ? (int)n : got == PAWL_E_QUEUE_DAMAGED ? damaged(lane) : got;
        if (got == 0)
            break;
        /* A few milliseconds old, so a deadline is told early rather than late, at a tenth of the
         * cost of a clock that is exact. */
        uint64_t now = pawl_now_coarse(lane);
        uint32_t first = n;
        for (int i = 0; i < got; i++) {
            message_of(use, queue, &d[i], &out[n]);
            if (set_lease(lane, use, o, &d[i], now, &out[n]))
                n++;
        }
        /* Bodies stand by the number of their message: where one fell out, the row ends. */
        if (got < (int)count || n - first != (uint32_t)got)
            break;
    }
    return (int)n;
}

/* The program waits on its descriptor: the steps of a sleeper, the sleep left to a thread. */
static int leave_to_fd(struct pawl *lane, struct pawl_use *use, const char *queue,
                       const struct pawl_receive_options *o, struct pawl_message *out, uint32_t max)
{
    uint32_t kept = pawl_direct_gate_prepare(&use->memory->view.shm->readers);
    int rc = receive_now(lane, use, queue, o, out, max);
    if (rc == 0)
        rc = state_of(lane, use);
    return rc != 0 ? rc : pawl_use_watch_arm(lane, use, kept);
}

int pawl_direct_call_receive(struct pawl *lane, struct pawl_queue_ref *q,
                             const struct pawl_receive_options *o, struct pawl_message *out,
                             uint32_t max)
{
    struct pawl_use *use;
    pawl_uses_sweep(lane, true);
    if (PAWL_UNLIKELY(o->lease_kind == PAWL_LEASE_DETACHED))
        return unsupported(lane, "leases that outlive their process (PAWL_LEASE_DETACHED)");
    if (PAWL_UNLIKELY((o->flags & PAWL_RECEIVE_IN_PLACE) && (o->flags & PAWL_RECEIVE_AT_MOST_ONCE)))
        return pawl_call_refuse(lane, PAWL_E_INVALID,
                                "what is read in place is acknowledged after that");
    int rc = use_of(lane, q, PAWL_USE_RECEIVE, &use);
    if (PAWL_LIKELY(rc == PAWL_OK) && !(o->flags & PAWL_RECEIVE_IN_PLACE))
        rc = bodies_for(lane, use, &max);
    if (PAWL_UNLIKELY(rc != PAWL_OK))
        return rc;
    bool on_fd = PAWL_UNLIKELY(lane->events_fd >= 0) && o->wait_ns == 0;
    if (on_fd)
        pawl_use_watch_clear(use);
    rc = receive_now(lane, use, q->name, o, out, max);
    if (rc == 0 && on_fd)
        return leave_to_fd(lane, use, q->name, o, out, max);
    if (rc != 0 || o->wait_ns == 0)
        return rc != 0 ? rc : state_of(lane, use);
    uint64_t start = pawl_now(lane), until = pawl_add_sat(start, o->wait_ns);
    uint32_t *gate = &use->memory->view.shm->readers;
    for (;;) {
        if (lane->spin_ns &&
            spin_for_message(lane, use,
                             pawl_min_u64(until, pawl_add_sat(pawl_now(lane), lane->spin_ns)))) {
            rc = receive_now(lane, use, q->name, o, out, max);
            if (rc != 0)
                return rc;
        }
        uint32_t kept = pawl_direct_gate_prepare(gate);
        rc = receive_now(lane, use, q->name, o, out, max);
        if (rc != 0)
            return rc;
        if (pawl_now(lane) >= until)
            return state_of(lane, use);
        rc = wait_gate(lane, use, gate, kept, until);
        if (rc != PAWL_OK)
            return rc;
        rc = receive_now(lane, use, q->name, o, out, max);
        if (rc != 0)
            return rc;
    }
}

/* --- settle ---------------------------------------------------------------------------------- */

static int nack(struct pawl *lane, struct pawl_use *use, const struct pawl_direct_token *t,
                uint64_t delay_ns)
{
    if (delay_ns == PAWL_DELAY_LADDER)
        delay_ns = use->memory->retry_ns;
    if (delay_ns > (uint64_t)PAWL_DIRECT_LEASE_MS_MAX * PAWL_NS_MS)
        return pawl_call_refuse(lane, PAWL_E_INVALID,
                                "a delay of a direct queue is at most 18 hours");
    uint32_t ms = delay_ns ? lease_ms(delay_ns) : 0;
    return pawl_direct_nack(&use->lane, t, ms, NULL);
}

static int lease_lost(struct pawl *lane)
{
    return pawl_call_refuse(lane, PAWL_E_LEASE_LOST,
                            "the lease is over: it expired, or the message was settled");
}

int pawl_direct_call_ack(struct pawl *lane, const struct pawl_token *token)
{
    const struct pawl_use *use = lane->uses;
    if (PAWL_UNLIKELY(lane->identified || !use || use->memory->tag != pawl_token_tag(token) ||
                      !pawl_use_served(use)))
        return pawl_direct_call_settle(lane, PAWL_CMD_ACK, token, 0, 0, 0);
    const struct pawl_direct_token t = token_in(token);
    int rc = pawl_direct_ack(&lane->uses->lane, &t);
    return PAWL_LIKELY(rc != PAWL_E_LEASE_LOST) ? rc : lease_lost(lane);
}

int pawl_direct_call_settle(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                            uint64_t time_ns, uint32_t flags, size_t text_bytes)
{
    struct pawl_use *use = lane->uses;
    if (PAWL_UNLIKELY(lane->identified))
        return unsupported(lane, "ids of operations");
    if (PAWL_UNLIKELY(type == PAWL_CMD_REJECT || type == PAWL_CMD_DEFER))
        return unsupported(lane, type == PAWL_CMD_DEFER ? "defer" : "reject");
    if (PAWL_UNLIKELY(text_bytes > 0))
        return unsupported(lane, type == PAWL_CMD_ACK ? "results" : "reasons");
    if (PAWL_UNLIKELY(flags & PAWL_ACK_IF_UNCLAIMED))
        return unsupported(lane, "ack after the lease (PAWL_ACK_IF_UNCLAIMED)");
    if (PAWL_UNLIKELY(!use || use->memory->tag != pawl_token_tag(token))) {
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        int rc = pawl_use_of_token(lane, token, until, &use);
        if (rc != PAWL_OK)
            return rc;
    }
    /* Not its end: what was received before may still be read. */
    if (PAWL_UNLIKELY(!pawl_use_served(use)))
        return gone(lane);
    const struct pawl_direct_token t = token_in(token);
    int rc;
    if (type == PAWL_CMD_ACK)
        rc = pawl_direct_ack(&use->lane, &t);
    else if (type == PAWL_CMD_RENEW)
        rc = pawl_direct_renew(&use->lane, &t, lease_ms(time_ns ? time_ns : use->memory->lease_ns));
    else
        rc = nack(lane, use, &t, type == PAWL_CMD_RELEASE ? 0 : time_ns);
    return rc == PAWL_E_LEASE_LOST ? lease_lost(lane) : rc;
}

/* --- in place -------------------------------------------------------------------------------- */

/* The lane's use of the queue with an open reservation. */
static struct pawl_use *reserved(struct pawl *lane, const char *queue)
{
    for (struct pawl_use *use = lane->uses; use; use = use->next)
        if (use->places > 0 && queue && strcmp(use->name, queue) == 0)
            return use;
    return NULL;
}

static int place_use(struct pawl *lane, const char *queue, struct pawl_use **use)
{
    struct pawl_queue_ref *q;
    int rc =
        pawl_queue_find_to_use(lane, queue, pawl_add_sat(pawl_now(lane), lane->timeout_ns), &q);
    if (rc == PAWL_OK && q->mode != PAWL_DIRECT)
        rc = pawl_call_refuse(lane, PAWL_E_NOT_SUPPORTED, "queue %s is not a direct one", queue);
    return rc == PAWL_OK ? use_of(lane, q, PAWL_USE_SEND, use) : rc;
}

int pawl_place_reserve(struct pawl *lane, const char *queue, uint32_t n, void **places,
                       size_t *bytes)
{
    struct pawl_use *use;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!places || n == 0 || n > PAWL_PLACES_MAX)
        return pawl_call_leave(lane,
                               pawl_call_refuse(lane, PAWL_E_INVALID, "1..256 places and room"));
    use = reserved(lane, queue);
    if (use)
        return pawl_call_leave(lane, refuse_send(lane, use, PAWL_E_MISUSE));
    rc = place_use(lane, queue, &use);
    if (rc == PAWL_E_QUEUE_GONE) { /* the name may be another queue's by now */
        pawl_queue_doubt_last(lane);
        rc = place_use(lane, queue, &use);
    }
    if (rc != PAWL_OK)
        return pawl_call_leave(lane, rc);
    rc = pawl_direct_reserve(&use->lane, n);
    if (rc <= 0) {
        rc = rc == PAWL_E_QUEUE_DAMAGED ? damaged(lane) : refuse_send(lane, use, rc);
        return pawl_call_leave(lane, rc);
    }
    use->places = (uint32_t)rc;
    (void)snprintf(use->name, sizeof use->name, "%s", queue);
    for (uint32_t i = 0; i < use->places; i++)
        places[i] = pawl_direct_place_at(&use->lane, i);
    if (bytes)
        *bytes = use->memory->view.shape.body_bytes;
    return pawl_call_leave(lane, rc);
}

int pawl_place_publish(struct pawl *lane, const char *queue, size_t bytes, struct pawl_sent *out)
{
    uint64_t position = 0;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    struct pawl_use *use = reserved(lane, queue);
    if (!use)
        rc = pawl_call_refuse(lane, PAWL_E_MISUSE, "no place of the queue is reserved");
    else if (bytes > use->memory->view.shape.body_bytes)
        rc = refuse_send(lane, use, PAWL_E_TOO_BIG);
    else if (!pawl_use_served(use))
        rc = pawl_direct_abandon(&use->lane) == PAWL_OK ? gone(lane) : PAWL_E_QUEUE_DAMAGED;
    else
        rc = pawl_direct_publish(&use->lane, (uint32_t)bytes, 0, &position);
    if (use && rc != PAWL_E_TOO_BIG)
        use->places--;
    if (rc == PAWL_E_QUEUE_DAMAGED)
        rc = damaged(lane);
    if (out)
        told(out, rc, position);
    return pawl_call_leave(lane, rc);
}

int pawl_place_abandon(struct pawl *lane, const char *queue)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    struct pawl_use *use = reserved(lane, queue);
    if (!use)
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_MISUSE, "no place of the queue is reserved"));
    rc = pawl_direct_abandon(&use->lane);
    use->places--;
    if (rc == PAWL_E_QUEUE_DAMAGED)
        rc = damaged(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_lease_holds(struct pawl *lane, const struct pawl_token *token)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    struct pawl_use *use = lane->uses;
    if (!token || !pawl_token_is_direct(token))
        return pawl_call_leave(
            lane, pawl_call_refuse(lane, PAWL_E_NOT_SUPPORTED, "the token is of no direct queue"));
    if (!use || use->memory->tag != pawl_token_tag(token))
        rc = pawl_use_of_token(lane, token, pawl_add_sat(pawl_now(lane), lane->timeout_ns), &use);
    if (rc == PAWL_OK && !pawl_use_served(use))
        rc = gone(lane);
    if (rc == PAWL_OK) {
        const struct pawl_direct_token t = token_in(token);
        if (!pawl_direct_holds(&use->lane, &t))
            rc = PAWL_E_LEASE_LOST;
    }
    return pawl_call_leave(lane, rc);
}
