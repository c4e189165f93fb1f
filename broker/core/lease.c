/* SPDX-License-Identifier: MIT */
/* Ends of leases.
 *
 *   - a lease ends by nack, release, reject, defer (commands), expiry (timer), or with its session
 *   - what becomes of the message is decided here in one place: counters, limits, ladder, DEAD,
 *     forward; one BACK record; apply
 *   - nothing here allocates what it cannot do without: a timer for the message is kept since the
 *     grant, and the text of a reason is dropped where memory is short
 */
#include "core/core_inner.h"
#include "core/hot.h"

/* --- links ----------------------------------------------------------------------------------- */

void pawl_core_lease_link(struct pawl_core *core, uint32_t n, uint32_t session)
{
    pawl_hot_lease_link(core, n, session);
}

void pawl_core_lease_unlink(struct pawl_core *core, uint32_t n) { pawl_hot_lease_unlink(core, n); }

void pawl_core_lease_over(struct pawl_core *core, struct pawl_core_lease *lease)
{
    pawl_hot_credit_back(core, lease);
    pawl_hot_lease_unlink(core, pawl_core_message_at(core, lease->message)->lease);
}

void pawl_core_lease_free(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_lease *l = pawl_core_lease_at(core, n);
    if (l->row)
        pawl_core_ends_leave(core, l);
    if (l->reason)
        pawl_payload_give(&core->payload, l->reason, l->reason_bytes);
    if (l->progress)
        pawl_payload_give(&core->payload, l->progress, l->progress_bytes);
    l->message = 0;
    pawl_pool_give(&core->leases, n);
}

bool pawl_core_lease_current(const struct pawl_core *core, const struct pawl_core_message *m)
{
    return pawl_hot_lease_current(core, m);
}

/* --- what becomes of the message ------------------------------------------------------------- */

static const uint64_t ladder_ns[] = {
    0, 1 * PAWL_NS_S, 5 * PAWL_NS_S, 30 * PAWL_NS_S, 120 * PAWL_NS_S, 600 * PAWL_NS_S
};

/* The step for the n-th failure (from 1), up to 10 % later: by a hash, so that a herd spreads and
 * the same failure always gets the same time. */
static uint64_t ladder(const struct pawl_core *core, const struct pawl_core_queue *q, uint64_t id,
                       uint32_t failed)
{
    uint32_t count = q->options.retry_count;
    const uint64_t *steps = q->options.retry_ns;
    if (count == 0) {
        steps = ladder_ns;
        count = PAWL_COUNT(ladder_ns);
    }
    uint64_t step = steps[failed - 1 < count ? failed - 1 : count - 1];
    uint64_t hash = pawl_hash_u64(id ^ core->options.hash_seed ^ (uint64_t)failed << 32);
    return step + (uint64_t)(((unsigned __int128)(step / 10) * hash) >> 64);
}

/* 1 s, 2 s, 4 s, ... from the second crash on. */
static uint64_t crash_backoff(uint32_t crashed)
{
    if (crashed < 2)
        return 0;
    uint32_t n = crashed - 2;
    return PAWL_NS_S << (n < 16 ? n : 16);
}

static uint16_t up_u16(uint16_t n) { return n == UINT16_MAX ? n : (uint16_t)(n + 1); }
static uint8_t up_u8(uint8_t n) { return n == UINT8_MAX ? n : (uint8_t)(n + 1); }

/* Where a dead message of q goes: a queue that would take it as a send of q's owner. */
static struct pawl_core_queue *forward_target(struct pawl_core *core,
                                              const struct pawl_core_queue *q,
                                              const struct pawl_core_message *m)
{
    if (q->options.dead_forward[0] == 0)
        return NULL;
    uint32_t n = pawl_core_queue_find_name(core, q->options.dead_forward);
    struct pawl_core_queue *to = n ? pawl_core_queue_at(core, n) : NULL;
    if (!to || to == q || to->gone ||
        !pawl_core_queue_allows(core, to, q->options.owner, q->options.group, PAWL_RIGHT_SEND))
        return NULL;
    /* What was promised for the message must not shrink on the way. */
    if (to->options.mode > q->options.mode ||
        (pawl_core_queue_logged(to) && !pawl_core_queue_logged(q)))
        return NULL;
    if (m->body_bytes > to->message_bytes_max || pawl_core_queue_live(to) >= to->messages_max ||
        to->bytes + pawl_core_message_content_bytes(m) > to->bytes_max)
        return NULL;
    if (pawl_core_order_applies(to, m->ordering_key_bytes) && !pawl_core_order_ready(core))
        return NULL;
    return to;
}

static void decide(struct pawl_core *core, const struct pawl_core_message *m, uint64_t delay,
                   struct pawl_back_rec *r)
{
    const struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    r->acquired = m->acquired;
    r->expired = m->expired;
    r->nacked = m->nacked;
    r->crashed = m->crashed;
    r->deferred = m->deferred;
    r->state = PAWL_STATE_READY;
    r->dead_reason = m->dead_reason;
    uint64_t wait = 0;
    switch (r->cause) {
    case PAWL_BACK_NACK:
    case PAWL_BACK_EXPIRED:
        if (r->cause == PAWL_BACK_NACK)
            r->nacked = up_u16(r->nacked);
        else
            r->expired = up_u16(r->expired);
        uint32_t failed = (uint32_t)r->nacked + r->expired;
        wait = delay == UINT64_MAX ? ladder(core, q, m->id, failed) : delay;
        if (q->failed_max != 0 && failed >= q->failed_max)
            r->dead_reason = PAWL_DEAD_FAILED, r->state = PAWL_STATE_DEAD;
        break;
    case PAWL_BACK_CRASHED:
        r->crashed = up_u8(r->crashed);
        wait = crash_backoff(r->crashed);
        if (q->crashed_max != 0 && r->crashed >= q->crashed_max)
            r->dead_reason = PAWL_DEAD_CRASHED, r->state = PAWL_STATE_DEAD;
        break;
    case PAWL_BACK_REJECTED:
        r->dead_reason = PAWL_DEAD_REJECTED;
        r->state = PAWL_STATE_DEAD;
        break;
    case PAWL_BACK_DEFERRED:
        r->deferred = up_u8(r->deferred);
        wait = delay;
        break;
    default:
        break;
    }
    if (r->state == PAWL_STATE_READY && wait > 0) {
        r->state = PAWL_STATE_SCHEDULED;
        r->due = pawl_add_sat(core->now.time, wait);
    }
    if (r->state != PAWL_STATE_DEAD)
        return;
    struct pawl_core_queue *to = forward_target(core, q, m);
    if (to) {
        r->forward = to->id;
        r->place = pawl_max_u64(core->now.time, to->place + 1);
        r->state = PAWL_STATE_READY;
        if (pawl_core_order_applies(to, m->ordering_key_bytes))
            r->flags |= PAWL_RECORD_ORDERED;
    }
}

/* --- apply ----------------------------------------------------------------------------------- */

static void count(struct pawl_core_queue *q, uint8_t cause)
{
    switch (cause) {
    case PAWL_BACK_NACK:
    case PAWL_BACK_REJECTED:
        q->counters.nacked++;
        break;
    case PAWL_BACK_EXPIRED:
        q->counters.expired_leases++;
        break;
    case PAWL_BACK_CRASHED:
        q->counters.crashed++;
        break;
    default:
        q->counters.released++;
        break;
    }
}

static void keep_reason(struct pawl_core *core, struct pawl_core_lease *l, const uint8_t *reason,
                        uint32_t bytes)
{
    if (bytes == 0)
        return;
    if (l->reason)
        pawl_payload_give(&core->payload, l->reason, l->reason_bytes);
    pawl_core_memory_open(core);
    l->reason = pawl_payload_take(&core->payload, bytes);
    pawl_core_memory_close(core);
    l->reason_bytes = l->reason ? (uint8_t)bytes : 0;
    if (l->reason)
        memcpy(pawl_payload_at(&core->payload, l->reason), reason, bytes);
}

static void keep_progress(struct pawl_core *core, struct pawl_core_lease *l, uint32_t block,
                          uint32_t bytes)
{
#ifdef PAWL_BUG_PROGRESS_LOST
    pawl_payload_give(&core->payload, block, bytes);
    return;
#endif
    if (l->progress)
        pawl_payload_give(&core->payload, l->progress, l->progress_bytes);
    l->progress = block;
    l->progress_bytes = (uint16_t)bytes;
}

/* The dead message starts anew in its other queue: attempts from zero, at the end, unclaimed. */
static void forward(struct pawl_core *core, uint32_t n, struct pawl_core_queue *to,
                    const struct pawl_back_rec *r)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    uint32_t bytes = pawl_core_message_content_bytes(m);
    pawl_core_message_detach(core, n);
    if (m->lease) {
        pawl_core_lease_free(core, m->lease);
        m->lease = 0;
    }
    pawl_core_queue_at(core, m->queue)->bytes -= bytes;
    m->queue = to->number;
    to->bytes += bytes;
    to->place = pawl_max_u64(to->place, r->place);
    to->counters.sent++;
    m->place = r->place;
    if (r->flags & PAWL_RECORD_ORDERED)
        m->flags |= PAWL_MESSAGE_ORDERED;
    m->acquired = m->expired = m->nacked = 0;
    m->crashed = m->deferred = 0;
    pawl_core_message_move(core, n, PAWL_STATE_READY);
}

void pawl_core_back_apply(struct pawl_core *core, const struct pawl_back_rec *r,
                          const uint8_t *reason, uint32_t progress, struct pawl_core_queue *q,
                          uint32_t n)
{
    count(q, r->cause);
    struct pawl_core_message *m = n ? pawl_core_message_at(core, n) : NULL;
    struct pawl_core_lease *l =
        m && !pawl_core_terminal(m->state) && m->lease ? pawl_core_lease_at(core, m->lease) : NULL;
    if (!l && progress)
        pawl_payload_give(&core->payload, progress, r->progress_bytes);
    if (!m || pawl_core_terminal(m->state))
        return;
    uint64_t before = pawl_core_message_live_bytes(core, m);
    if (l) {
        if (progress)
            keep_progress(core, l, progress, r->progress_bytes);
        l->flags &= (uint8_t)~PAWL_LEASE_KEY_FREE;
        if (r->flags & PAWL_RECORD_KEY_FREE)
            l->flags |= PAWL_LEASE_KEY_FREE;
        pawl_core_lease_over(core, l);
        l->deadline = r->due;
        keep_reason(core, l, reason, r->reason_bytes);
    }
    m->acquired = r->acquired;
    m->expired = r->expired;
    m->nacked = r->nacked;
    m->crashed = r->crashed;
    m->deferred = r->deferred;
    m->dead_reason = r->dead_reason;
    struct pawl_core_queue *to = NULL;
    if (r->forward)
        to = pawl_core_queue_known(core, r->forward);
    if (to) {
        forward(core, n, to, r);
    } else {
#ifdef PAWL_BUG_PLACE_LOST
        m->place = pawl_core_queue_at(core, m->queue)->place + 1;
#endif
        pawl_core_message_move(core, n, r->state);
    }
    core->live += pawl_core_message_live_bytes(core, m) - before;
}

/* Decides what r has not yet, records and applies. */
static uint64_t give_back(struct pawl_core *core, uint32_t n, struct pawl_back_rec *r,
                          uint64_t delay, const uint8_t *reason, uint32_t progress)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    PAWL_ASSERT_REL(m->state, ==, PAWL_STATE_LEASED);
    r->queue = q->id;
    r->message = m->id;
    decide(core, m, delay, r);
    uint64_t lsn = 0;
    if (pawl_core_queue_logged(q)) {
        uint32_t bytes = (uint32_t)sizeof *r + r->reason_bytes + r->progress_bytes;
        uint8_t *out = pawl_core_append(core, PAWL_RECORD_BACK, bytes, &lsn);
        memcpy(out, r, sizeof *r);
        out += sizeof *r;
        if (r->reason_bytes)
            memcpy(out, reason, r->reason_bytes);
        if (r->progress_bytes)
            memcpy(out + r->reason_bytes, pawl_payload_at(&core->payload, progress),
                   r->progress_bytes);
    }
    pawl_core_back_apply(core, r, reason, progress, q, n);
    return lsn;
}

void pawl_core_lease_void(struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_queue *q = pawl_core_queue_at(core, m->queue);
    struct pawl_back_rec r = { .cause = PAWL_BACK_RELEASED, .queue = q->id, .message = m->id };
    decide(core, m, 0, &r);
    pawl_core_back_apply(core, &r, NULL, 0, q, n);
}

uint64_t pawl_core_lease_back(struct pawl_core *core, uint32_t n, enum pawl_back_cause cause,
                              const struct pawl_op_rec *op, uint64_t delay, const uint8_t *reason,
                              uint32_t reason_bytes)
{
    struct pawl_back_rec r = { .cause = (uint8_t)cause, .reason_bytes = (uint8_t)reason_bytes };
    if (op)
        r.op = *op;
    return give_back(core, n, &r, delay, reason, 0);
}

uint64_t pawl_core_lease_defer(struct pawl_core *core, uint32_t n, const struct pawl_op_rec *op,
                               uint64_t delay, bool key_free, uint32_t progress,
                               uint32_t progress_bytes)
{
    struct pawl_back_rec r = { .op = *op,
                               .cause = PAWL_BACK_DEFERRED,
                               .flags = key_free ? PAWL_RECORD_KEY_FREE : 0,
                               .progress_bytes = (uint16_t)progress_bytes };
    return give_back(core, n, &r, delay, NULL, progress);
}

void pawl_core_lease_timer(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
    if (m->grant >> PAWL_EPOCH_SHIFT < core->void_below) {
        /* Its machine is gone: no failure of anybody, however late this is said. */
        (void)pawl_core_lease_back(core, n, PAWL_BACK_RELEASED, NULL, 0, NULL, 0);
        return;
    }
    if (l->position == PAWL_POSITION_BACK) {
        (void)pawl_core_lease_back(core, n, PAWL_BACK_RELEASED, NULL, 0, NULL, 0);
        return;
    }
    if (l->position == PAWL_POSITION_PENDING) {
        /* Not shown yet: time runs from publication, which arms it again. */
        l->deadline = pawl_add_sat(core->now.time, l->lease_ns);
        return;
    }
    if (core->now.time < l->deadline) {
        pawl_core_message_timer(core, n);
        return;
    }
    (void)pawl_core_lease_back(core, n, PAWL_BACK_EXPIRED, NULL, UINT64_MAX, NULL, 0);
}
