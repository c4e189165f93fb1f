/* SPDX-License-Identifier: MIT */
/* Receive.
 *
 * Deliveries lie in the completion ring, in order; drain notes where, by queue. A receive
 *   - releases what the last one handed out
 *   - hands out what waits for its queues, but never a delivery whose lease is over
 *   - else asks: with a RECEIVE that waits at the broker, or, where the lane holds deliveries
 *     ready, with a standing SUBSCRIBE a queue, whose deliveries it finds in the ring
 * A standing request is quiet about three things that a RECEIVE answers: a queue that was dropped,
 * a message too large for the ring, and a credit that the program's own unsettled messages use up.
 * So after a short wait in vain a RECEIVE goes out beside it, and is stopped again if the standing
 * one brings something first.
 * Failures: the wait of the call is over by our clock and no answer -> E_DEADLINE; what is granted
 * to it later waits in the ring for the next receive. No broker for the time of the lane ->
 * E_BROKER_DOWN, however long the receive would wait for a message. E_TOO_BIG -> a larger lane,
 * asked again. */
#include <stdio.h>
#include <string.h>

#include "client/direct.h"
#include "client/lane.h"

#define STANDING_NS (20 * PAWL_NS_MS)
#define FD_CREDIT 16u /* of a lane with pawl_fd() and no prefetch: something must stand there */

struct request {
    struct pawl_receive_options o;
    struct pawl_queue_ref *queues[PAWL_QUEUES_A_RECEIVE_MAX];
    uint32_t queue_count, max;
    uint64_t start, until; /* until: the latest an answer may come */
    uint32_t credit;       /* 0: no standing requests */
    struct pawl_message *out;
};

/* --- hand out -------------------------------------------------------------------------------- */

/* Gives a delivery back unseen: its lease is ours until it ends, and somebody may wait for it. */
static void give_back(struct pawl *lane, const struct pawl_comp_delivery *d)
{
    struct pawl_cmd_settle *c = pawl_op_claim_orphan(lane, PAWL_CMD_RELEASE, sizeof *c);
    if (!c)
        return;
    memset((uint8_t *)c + sizeof c->head, 0, sizeof *c - sizeof c->head);
    c->message = d->message;
    c->grant = d->grant;
    c->random = d->random;
}

static void fill(struct pawl *lane, const struct pawl_entry *e, const struct pawl_comp_delivery *d,
                 uint64_t now, struct pawl_message *m)
{
    const uint8_t *p = e->record + sizeof *d;
    m->token = (struct pawl_token){ .message = d->message, .grant = d->grant, .random = d->random };
    m->id = d->message;
    m->queue = e->queue->name;
    m->key = d->key_bytes ? p : NULL;
    m->key_bytes = d->key_bytes;
    p += d->key_bytes;
    m->ordering_key = d->ordering_key_bytes ? p : NULL;
    m->ordering_key_bytes = d->ordering_key_bytes;
    p += d->ordering_key_bytes;
    m->headers = p;
    m->headers_bytes = d->headers_bytes;
    m->body = p + d->headers_bytes;
    m->bytes = d->body_bytes;
    m->priority = d->priority;
    if (d->deadline == 0 || d->deadline == UINT64_MAX) {
        m->deadline_ns = d->deadline;
        m->lease_left_ns = d->deadline; /* 0: at most once; UNLIMITED: held */
    } else {
        m->deadline_ns = d->deadline - (uint64_t)lane->clock_shift;
        m->lease_left_ns = m->deadline_ns - now;
    }
    m->sent_wall_ns = d->sent_wall_ns;
    m->acquired = d->acquired;
    m->failed = d->failed;
    m->crashed = d->crashed;
    m->expired = d->expired;
    m->nacked = d->nacked;
    m->lease_kind = d->lease_kind;
    m->progress = d->progress_bytes ? p + d->headers_bytes + d->body_bytes : NULL;
    m->progress_bytes = d->progress_bytes;
}

static struct pawl_entry *unlink_first(struct pawl *lane, struct pawl_line *line)
{
    struct pawl_entry *e = pawl_entry_at(lane, line->first);
    line->first = e->next;
    if (line->first == PAWL_NO_ENTRY)
        line->last = PAWL_NO_ENTRY;
    line->waiting--;
    return e;
}

/* Up to max messages of the line. Returns how many, or E_PROTOCOL. */
static int hand_out(struct pawl *lane, struct pawl_line *line, uint64_t now,
                    struct pawl_message *out, uint32_t max)
{
    struct pawl_comp_delivery d;
    uint32_t n = 0;
    while (n < max && line->first != PAWL_NO_ENTRY) {
        struct pawl_entry *e = unlink_first(lane, line);
        memcpy(&d, e->record, sizeof d);
        uint64_t need = (uint64_t)sizeof d + d.key_bytes + d.ordering_key_bytes + d.headers_bytes +
                        d.body_bytes + d.progress_bytes;
        if (need > e->bytes)
            return pawl_lane_breach(lane, "the parts of a delivery are longer than its record");
#ifndef PAWL_BUG_HANDS_OUT_ENDED
        if (d.deadline != 0 && d.deadline != UINT64_MAX &&
            d.deadline - (uint64_t)lane->clock_shift <= now) {
            pawl_entry_free(lane, e);
            give_back(lane, &d);
            continue;
        }
#endif
        e->state = PAWL_ENTRY_HANDED;
        lane->handed++;
        e->queue->handed = lane->receives;
        if (e->mapping == lane->mapping && e->position + e->bytes > lane->taken)
            lane->taken = e->position + e->bytes;
        fill(lane, e, &d, now, &out[n++]);
    }
    return (int)n;
}

/* The line of queue i that the request may have. */
static struct pawl_line *line_of(const struct request *r, uint32_t i)
{
    return &r->queues[i]->lines[(r->o.flags & PAWL_RECEIVE_AT_MOST_ONCE) ? 1 : 0];
}

static uint32_t waiting_of(const struct request *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->queue_count; i++)
        n += line_of(r, i)->waiting;
    return n;
}

static int hand_out_all(struct pawl *lane, struct request *r, uint64_t now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->queue_count; i++) {
        lane->news_queues -= r->queues[i]->news;
        r->queues[i]->news = false;
    }
    if (waiting_of(r) == 0)
        return 0;
    uint64_t taken = lane->taken;
    for (uint32_t i = 0; i < r->queue_count && n < r->max; i++) {
        int rc = hand_out(lane, line_of(r, i), now, r->out + n, r->max - n);
        if (rc < 0)
            return rc;
        n += (uint32_t)rc;
    }
    /* Before the program sees them: from here on a death counts against these messages. Of several
     * queues an earlier one may not be handed out yet and is counted, too: that errs on the side
     * of ending a poison message. */
    for (uint32_t i = 0; PAWL_UNLIKELY(lane->held) && i < n; i++)
        pawl_held_add(lane, &r->out[i], r->o.lease_ns, now);
    if (lane->taken != taken)
        pawl_store_rel_u64(&lane->sub_shm->taken, lane->taken);
    return (int)n;
}

/* --- standing requests ----------------------------------------------------------------------- */

static bool standing(const struct pawl *lane, const struct pawl_queue_ref *q,
                     const struct request *r)
{
    return q->subscription && q->subscribed_binding == lane->binding &&
           q->lease_ns == r->o.lease_ns && q->lease_kind == r->o.lease_kind;
}

static void stop(struct pawl *lane, uint64_t ticket)
{
    struct pawl_cmd_one *c = pawl_op_claim_orphan(lane, PAWL_CMD_STOP, sizeof *c);
    if (c)
        c->value = ticket - lane->base;
}

/* Ends the standing request and gives back what it brought. */
static void unsubscribe(struct pawl *lane, struct pawl_queue_ref *q)
{
    struct pawl_comp_delivery d;
    if (q->subscription && q->subscribed_binding == lane->binding)
        stop(lane, q->subscription);
    q->subscription = 0;
    while (q->lines[0].first != PAWL_NO_ENTRY) {
        struct pawl_entry *e = unlink_first(lane, &q->lines[0]);
        memcpy(&d, e->record, sizeof d);
        pawl_entry_free(lane, e);
        give_back(lane, &d);
    }
}

static void fill_command(struct pawl_cmd_receive *c, const struct request *r, uint64_t wait_ns,
                         uint32_t max)
{
    c->wait_ns = wait_ns;
    c->lease_ns = r->o.lease_ns;
    c->max = max;
    c->lease_kind = (uint8_t)r->o.lease_kind;
    c->flags = (uint8_t)r->o.flags;
    c->reserved = 0;
}

/* A standing request for each queue of r. */
static int subscribe(struct pawl *lane, struct request *r)
{
    for (uint32_t i = 0; i < r->queue_count; i++) {
        struct pawl_queue_ref *q = r->queues[i];
        if (standing(lane, q, r))
            continue;
        unsubscribe(lane, q);
        int rc;
        uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
        pawl_op_single(lane);
        struct pawl_cmd_receive *c =
            pawl_op_claim(lane, PAWL_CMD_SUBSCRIBE, sizeof *c + 8, PAWL_OP_PLAIN, until, &rc);
        if (!c)
            return rc;
        uint64_t ticket = lane->next - 1;
        fill_command(c, r, UINT64_MAX, r->credit);
        c->queue_count = 1;
        memcpy(c + 1, &q->id, 8);
        rc = pawl_op_result(lane, until, q->name);
        if (rc < 0)
            return rc;
        q->subscription = ticket;
        q->subscribed_binding = lane->binding;
        q->lease_ns = r->o.lease_ns;
        q->lease_kind = r->o.lease_kind;
    }
    return PAWL_OK;
}

bool pawl_receive_abandon(struct pawl *lane)
{
    uint64_t before = lane->next;
    (void)pawl_drain(lane);
    pawl_entries_reclaim(lane);
    for (uint64_t i = lane->entry_head; i != lane->entry_tail; i++) {
        struct pawl_entry *e = pawl_entry_at(lane, i);
        if (e->state == PAWL_ENTRY_WAITING)
            unsubscribe(lane, e->queue);
    }
    for (uint32_t b = 0; b < PAWL_REF_BUCKETS; b++)
        for (struct pawl_queue_ref *q = lane->ids_table[b]; q; q = q->by_id)
            if (q->subscription)
                unsubscribe(lane, q);
    pawl_drain_release(lane, true);
    return lane->next != before;
}

/* --- wait ------------------------------------------------------------------------------------ */

static int wait_for_delivery(struct pawl *lane, pawl_goal missing, const struct request *r,
                             uint64_t until)
{
    lane->for_delivery = true;
    int rc = pawl_lane_wait(lane, missing, (uint64_t)(uintptr_t)r, until);
    lane->for_delivery = false;
    return rc;
}

static uint32_t delivery_left(struct pawl *lane, uint64_t request)
{
    (void)lane;
    return waiting_of((const struct request *)(uintptr_t)request) == 0;
}

static uint32_t receive_left(struct pawl *lane, uint64_t request)
{
    const struct request *r = (const struct request *)(uintptr_t)request;
    /* Without standing requests the deliveries are those of the RECEIVE, and its answer follows. */
    return lane->plain_open != 0 && (r->credit == 0 || waiting_of(r) == 0);
}

/* One RECEIVE, waited for. OK: look into the ring; OK_EMPTY; or what it was refused with. */
static int ask(struct pawl *lane, struct request *r, uint64_t wait_ns)
{
    int rc;
    pawl_op_single(lane);
    struct pawl_cmd_receive *c =
        pawl_op_claim(lane, PAWL_CMD_RECEIVE, (uint32_t)sizeof *c + 8 * r->queue_count,
                      PAWL_OP_PLAIN, r->until, &rc);
    if (!c)
        return rc;
    uint64_t ticket = lane->next - 1;
    fill_command(c, r, wait_ns, r->max);
    c->queue_count = (uint8_t)r->queue_count;
    for (uint32_t i = 0; i < r->queue_count; i++)
        memcpy((uint8_t *)(c + 1) + (size_t)8 * i, &r->queues[i]->id, 8);
    lane->receive_until = pawl_add_sat(pawl_now(lane), wait_ns);
    rc = wait_for_delivery(lane, receive_left, r, r->until);
    if (lane->plain_open) {
        if (rc != PAWL_OK)
            pawl_call_outcome(lane, PAWL_OUTCOME_UNKNOWN);
        pawl_op_forsake(lane);
        stop(lane, ticket);
        pawl_lane_publish(lane);
        return rc;
    }
    if (rc != PAWL_OK)
        return rc;
    return lane->one.result;
}

/* What an E_TOO_BIG asks for. */
static int enlarge(struct pawl *lane, const struct request *r)
{
    uint64_t need = lane->one.value;
    if (need <= lane->comp.size || need > PAWL_RING_BYTES_MAX)
        return pawl_call_answered(lane, PAWL_E_TOO_BIG, 0, r->queues[0]->name);
    return pawl_lane_enlarge(lane, 0, need, r->until);
}

static int receive(struct pawl *lane, struct request *r)
{
    bool looked = false, stood = lane->prefetch_short;
    uint64_t wait_end = pawl_add_sat(r->start, r->o.wait_ns), now = r->start;
    for (;; now = pawl_now(lane)) {
        int rc = hand_out_all(lane, r, now);
        if (rc != 0) {
            if (!looked && rc > 0)
                lane->prefetch_short = false;
            return rc;
        }
        if (looked && now >= wait_end)
            return 0;
        if (r->credit) {
            bool on_fd = r->o.wait_ns == 0 && lane->events_fd >= 0;
            /* In an event loop a broker that is away is no news: the descriptor brings us back. */
            if (on_fd && !lane->attached && pawl_lane_recover(lane, 0) == PAWL_E_BROKER_DOWN &&
                pawl_fd_arm(lane))
                return 0;
            rc = subscribe(lane, r);
            if (rc < 0)
                return rc;
            if (on_fd) {
                rc = pawl_drain(lane);
                if (rc != PAWL_OK)
                    return rc;
                if (waiting_of(r) == 0 && pawl_fd_arm(lane))
                    return 0;
                continue;
            }
            if (!stood && r->o.wait_ns != 0) {
                rc = wait_for_delivery(lane, delivery_left, r,
                                       pawl_min_u64(wait_end, now + STANDING_NS));
                stood = rc != PAWL_OK;
                looked = true;
                if (rc != PAWL_OK && rc != PAWL_E_DEADLINE && rc != PAWL_E_BROKER_DOWN)
                    return rc;
                continue;
            }
        }
        rc = ask(lane, r,
                 wait_end == UINT64_MAX ? UINT64_MAX
                 : wait_end > now       ? wait_end - now
                                        : 0);
        looked = rc != PAWL_E_TOO_BIG; /* what is too large has been seen and not brought */
        if (rc == PAWL_E_TOO_BIG)
            rc = enlarge(lane, r);
        if (rc < 0)
            return rc;
        if (rc == PAWL_OK && r->credit && r->o.wait_ns && pawl_now(lane) - now < STANDING_NS / 10)
            lane->prefetch_short = true;
    }
}

/* --- calls ----------------------------------------------------------------------------------- */

static int prepare(struct pawl *lane, struct request *r, const char *const *queues, uint32_t count,
                   const struct pawl_receive_options *options)
{
    if (options && !pawl_options_copy(&r->o, options, sizeof r->o))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "size of the options is none");
    if (r->o.lease_kind > PAWL_LEASE_DETACHED)
        return pawl_call_refuse(lane, PAWL_E_INVALID, "lease_kind is none");
    if (r->o.flags & ~(PAWL_RECEIVE_AT_MOST_ONCE | PAWL_RECEIVE_IN_PLACE))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "flags holds an unknown bit");
    if (r->o.lease_ns && (r->o.lease_ns < PAWL_LEASE_NS_MIN || r->o.lease_ns > PAWL_LEASE_NS_MAX))
        return pawl_call_refuse(lane, PAWL_E_INVALID, "a lease is 1 ms to 12 h");
    r->start = pawl_now(lane);
    r->until = pawl_add_sat(pawl_add_sat(r->start, r->o.wait_ns), lane->timeout_ns);
    uint64_t find_until = pawl_add_sat(r->start, lane->timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        int rc = pawl_queue_find_to_use(lane, queues[i], find_until, &r->queues[i]);
        if (rc != PAWL_OK)
            return rc;
        for (uint32_t k = 0; k < i; k++)
            if (r->queues[k] == r->queues[i])
                return pawl_call_refuse(lane, PAWL_E_INVALID, "queue %s is named twice", queues[i]);
    }
    r->queue_count = count;
    for (uint32_t i = 0; i < count; i++)
        if (r->queues[i]->mode == PAWL_DIRECT && count > 1)
            return pawl_call_refuse(lane, PAWL_E_NOT_SUPPORTED,
                                    "direct queue %s is received from alone", queues[i]);
    if (r->queues[0]->mode == PAWL_DIRECT)
        return PAWL_OK;
    if (r->o.flags & PAWL_RECEIVE_IN_PLACE)
        return pawl_call_refuse(lane, PAWL_E_NOT_SUPPORTED,
                                "only what is in a direct queue is received in place");
    if (!(r->o.flags & PAWL_RECEIVE_AT_MOST_ONCE))
        r->credit = lane->prefetch ? lane->prefetch : lane->events_fd >= 0 ? FD_CREDIT : 0;
    else
        for (uint32_t i = 0; i < count; i++)
            if (r->queues[i]->subscription)
                unsubscribe(lane, r->queues[i]);
    return PAWL_OK;
}

static const struct pawl_receive_options plain_options = PAWL_RECEIVE_OPTIONS_INIT;

/* Options of this version with nothing wrong in them, read where they are; NULL: prepare() copies
 * them, or says what is wrong. */
static const struct pawl_receive_options *usual_options(const struct pawl_receive_options *o)
{
    if (o->size != sizeof *o || o->lease_kind > PAWL_LEASE_DETACHED ||
        (o->flags & ~(PAWL_RECEIVE_AT_MOST_ONCE | PAWL_RECEIVE_IN_PLACE)) ||
        (o->lease_ns && (o->lease_ns < PAWL_LEASE_NS_MIN || o->lease_ns > PAWL_LEASE_NS_MAX)))
        return NULL;
    return o;
}

int pawl_receive_batch(struct pawl *lane, const char *const *queues, uint32_t queue_count,
                       const struct pawl_receive_options *options, struct pawl_message *out,
                       uint32_t max, uint32_t *count)
{
    struct request r;
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (count)
        *count = 0;
    if (!queues || !out || !count || queue_count == 0 || queue_count > PAWL_QUEUES_A_RECEIVE_MAX ||
        max == 0 || max > PAWL_BATCH_MAX)
        return pawl_call_leave(lane,
                               pawl_call_refuse(lane, PAWL_E_INVALID,
                                                "1..16 queues, 1..1024 messages, out and count"));
    const struct pawl_receive_options *o = options ? usual_options(options) : &plain_options;
    struct pawl_queue_ref *q = lane->last_ref;
    if (PAWL_LIKELY(queue_count == 1 && o && q && queues[0]) && q->use && lane->events_fd < 0 &&
        lane->handed == 0 && q->generation == lane->names && strcmp(q->name, queues[0]) == 0) {
        rc = pawl_direct_call_receive(lane, q, o, out, max);
        if (PAWL_LIKELY(rc >= 0)) {
            *count = (uint32_t)rc;
            return pawl_call_leave(lane, rc > 0 ? PAWL_OK : PAWL_OK_EMPTY);
        }
        if (rc == PAWL_E_QUEUE_GONE)
            pawl_queue_doubt(lane);
        if (rc != PAWL_E_QUEUE_GONE || o->wait_ns != 0)
            return pawl_call_leave(lane, pawl_call_answered(lane, rc, 0, queues[0]));
        lane->text[0] = '\0';
        lane->outcome_set = false;
    }
    memset(&r, 0, offsetof(struct request, queues));
    r.credit = 0;
    r.max = max;
    r.out = out;
    pawl_fd_disarm(lane);
    lane->receives++;
    pawl_entries_reclaim(lane);
    for (int again = 0;; again = 1) {
        rc = pawl_drain(lane);
        if (rc == PAWL_OK)
            rc = prepare(lane, &r, queues, queue_count, options);
        if (rc == PAWL_OK)
            rc = r.queues[0]->mode == PAWL_DIRECT
                     ? pawl_direct_call_receive(lane, r.queues[0], &r.o, out, max)
                     : receive(lane, &r);
        if (rc != PAWL_E_QUEUE_GONE)
            break;
        pawl_queue_doubt(lane);
        /* A number remembered from before the drop. One that waited saw it happen and is told. */
        if (again || r.o.wait_ns != 0)
            break;
        lane->text[0] = '\0';
    }
    if (rc > 0) {
        *count = (uint32_t)rc;
        rc = PAWL_OK;
    } else if (rc == 0) {
        rc = PAWL_OK_EMPTY;
        pawl_fd_arm_late(lane);
    } else {
        (void)pawl_call_answered(lane, rc, lane->one.value, queue_count == 1 ? queues[0] : NULL);
    }
    return pawl_call_leave(lane, rc);
}

int pawl_receive(struct pawl *lane, const char *queue, const struct pawl_receive_options *options,
                 struct pawl_message *out)
{
    uint32_t count;
    return pawl_receive_batch(lane, &queue, 1, options, out, 1, &count);
}
