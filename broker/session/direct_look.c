/* SPDX-License-Identifier: MIT */
/* What can be told of the messages of a direct queue, and the dead among them. A ring of up to
 * LOOK_SLOTS slots is looked at when somebody asks; a larger one is told of as the last turn of the
 * sweep has seen it, so that no question makes others wait. */
#include <string.h>

#include "base/bits.h"
#include "session/direct_inner.h"

#define LOOK_SLOTS 16384u

static bool look(const struct pawl_direct_queue *q)
{
    if (q->shape.capacity > LOOK_SLOTS)
        return false;
    /* To the end of the turn that goes on, then all of one. */
    uint64_t at = q->broker->visited & (q->shape.capacity - 1);
    if (at != 0)
        (void)pawl_direct_sweep(q->broker, q->shape.capacity - at);
    (void)pawl_direct_sweep(q->broker, q->shape.capacity);
    return true;
}

void pawl_directs_stat(void *ctx, uint64_t id, struct pawl_queue_stat *out)
{
    const struct pawl_direct_queue *q = pawl_directs_find(ctx, id);
    if (!q || q->where == PAWL_DIRECT_PLACE_EMPTY)
        return;
    out->incarnation = q->facts.incarnation;
    if (q->where == PAWL_DIRECT_PLACE_AWAITED)
        return;
    (void)look(q);
    const struct pawl_direct_counts *c = &q->broker->counts;
    out->ready = c->ready;
    out->leased = c->leased;
    out->scheduled = c->delayed;
    out->dead = c->dead;
    out->expired_leases = c->expired;
    out->crashed = c->released;
    out->attached = q->held;
    bool holes = !pawl_direct_memory_whole(q->fd, q->facts.bytes);
    out->damaged = (uint32_t)pawl_min_u64(c->strange + holes, UINT32_MAX);
}

static void fill(const struct pawl_direct_delivery *d, struct pawl_record *r)
{
    memset(r, 0, sizeof *r);
    r->size = sizeof *r;
    r->id = PAWL_DIRECT_ID | d->token.position;
    r->state = PAWL_STATE_DEAD;
    r->priority = PAWL_PRIORITY_DEFAULT;
    r->acquired = r->failed = d->attempt;
    r->dead_reason = PAWL_DEAD_FAILED;
    r->bytes = d->length;
}

/* Rows in order of id, the smallest `max` of all; *n are there. */
static void insert(struct pawl_record *rows, uint32_t *n, uint32_t max,
                   const struct pawl_direct_delivery *d)
{
    uint64_t id = PAWL_DIRECT_ID | d->token.position;
    uint32_t at = *n;
    while (at > 0 && rows[at - 1].id > id)
        at--;
    if (at == max)
        return;
    uint32_t kept = *n < max ? *n : max - 1;
    memmove(rows + at + 1, rows + at, (kept - at) * sizeof *rows);
    fill(d, &rows[at]);
    *n = kept + 1;
}

uint32_t pawl_directs_scan(void *ctx, uint64_t id, uint64_t after, uint32_t state_mask,
                           struct pawl_record *out, uint32_t max)
{
    struct pawl_direct_queue *q = pawl_directs_find(ctx, id);
    uint32_t n = 0;
    if (!q || q->where != PAWL_DIRECT_PLACE_HERE || max == 0 ||
        !(state_mask >> PAWL_STATE_DEAD & 1))
        return 0;
    if (!look(q) && q->broker->counts.dead == 0)
        return 0;
    struct pawl_direct_delivery d = { .body = NULL };
    for (uint64_t slot = 0; pawl_direct_dead_next(q->broker, &slot, 0, &d) == 1; slot++) {
        /* Whoever writes there chooses it: two of one id, or one of no direct queue, is none. */
#ifdef PAWL_BUG_DIRECT_IDS_UNCHECKED
        bool possible = true;
#else
        bool possible = d.token.position < PAWL_DIRECT_ID &&
                        (d.token.position & (q->shape.capacity - 1)) == slot;
#endif
        if (possible && (PAWL_DIRECT_ID | d.token.position) > after)
            insert(out, &n, max, &d);
        d.body = NULL;
    }
    return n;
}

int pawl_directs_restore(void *ctx, uint64_t id, uint64_t message)
{
    struct pawl_direct_queue *q = pawl_directs_find(ctx, id);
    if (!(message & PAWL_DIRECT_ID))
        return PAWL_E_NOT_FOUND;
    if (!q || q->where != PAWL_DIRECT_PLACE_HERE)
        return PAWL_E_FORGOTTEN;
    return pawl_direct_dead_restore(q->broker, message & ~PAWL_DIRECT_ID);
}
