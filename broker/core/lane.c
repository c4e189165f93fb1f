/* SPDX-License-Identifier: MIT */
/* Lanes: the window of answers, and the way answers take.
 *
 *   window   a ring of entries, found by seq & mask. Kept: what the client may still submit again,
 *            so from its oldest open seq on. Each command tells that seq by its `open`.
 *   open     a lane is opened, resumed after a restart or a lost socket, or given larger rings: the
 *            window stays, those who wait and scans end without an answer (the client submits again
 *            what it still wants), deliveries not yet read are emitted again in order of grant
 *   answer   goes to a ring only if its command came from that ring, where room was promised: a
 *            purge that goes on is answered when its command has come again
 *   close    the window stays, since the client may come back; the number is given to another lane
 *            only if the client closed this one itself, that is while it was attached as it still
 *            is
 */
#include "core/core_inner.h"

/* --- windows --------------------------------------------------------------------------------- */

static uint32_t entries_for(uint32_t window)
{
    uint32_t n = 1;
    while (n < window)
        n <<= 1;
    return n;
}

static uint32_t entries_bytes(uint32_t mask)
{
    return (mask + 1) * (uint32_t)sizeof(struct pawl_window_entry);
}

struct pawl_window_entry *pawl_core_lane_entry(struct pawl_core *core, struct pawl_core_lane *lane,
                                               uint64_t seq)
{
    struct pawl_window_entry *e = pawl_payload_at(&core->payload, lane->entries);
    return &e[seq & lane->window_mask];
}

/* Grows to this many entries at least. 0, or -1: no memory. */
int pawl_core_lane_window(struct pawl_core *core, struct pawl_core_lane *lane, uint32_t window)
{
    if (lane->entries && window <= lane->window)
        return 0;
    uint32_t mask = entries_for(window) - 1;
    if (lane->entries && mask == lane->window_mask) {
        lane->window = window;
        return 0;
    }
    /* A usual one is had even when sends are refused: somebody must come and drain the queues. */
    if (window <= PAWL_WINDOW_DEFAULT)
        pawl_core_memory_open(core);
    uint32_t block = pawl_payload_take(&core->payload, entries_bytes(mask));
    pawl_core_memory_close(core);
    if (block == 0)
        return -1;
    struct pawl_window_entry *to = pawl_payload_at(&core->payload, block);
    memset(to, 0, entries_bytes(mask));
    if (lane->entries) {
        const struct pawl_window_entry *from = pawl_payload_at(&core->payload, lane->entries);
        for (uint32_t i = 0; i <= lane->window_mask; i++)
            to[from[i].seq & mask] = from[i];
        pawl_payload_give(&core->payload, lane->entries, entries_bytes(lane->window_mask));
    }
    if (lane->home.segment)
        core->live -= pawl_core_lane_live_bytes(lane);
    lane->entries = block;
    lane->window_mask = mask;
    lane->window = window;
    if (lane->home.segment)
        core->live += pawl_core_lane_live_bytes(lane);
    return 0;
}

uint64_t pawl_core_lane_live_bytes(const struct pawl_core_lane *lane)
{
    uint64_t pieces = lane->window / PAWL_WINDOW_PIECE + 1;
    return pieces * (sizeof(struct pawl_lane_rec) + PAWL_RECORD_HEAD) +
           (uint64_t)lane->window * sizeof(struct pawl_window_rec);
}

void pawl_core_lane_clear(struct pawl_core *core, struct pawl_core_lane *lane)
{
    memset(pawl_payload_at(&core->payload, lane->entries), 0, entries_bytes(lane->window_mask));
}

/* --- lives of lanes -------------------------------------------------------------------------- */

struct pawl_core_lane *pawl_core_lane_make(struct pawl_core *core, struct pawl_core_session *s,
                                           uint32_t number)
{
    pawl_core_memory_open(core);
    uint32_t n = pawl_pool_take(&core->lanes);
    pawl_core_memory_close(core);
    if (n == 0)
        return NULL;
    struct pawl_core_lane *lane = pawl_core_lane_at(core, n);
    lane->id = (uint64_t)s->number << 8 | number;
    lane->number = n;
    lane->lane = number;
    lane->session = s->number;
    lane->handle = PAWL_NO_HANDLE;
    lane->oldest = 1;
    s->lanes[number] = n;
    s->lanes_count++;
    return lane;
}

static void drop_waiters(struct pawl_core *core, struct pawl_core_lane *lane)
{
    for (uint32_t n = lane->waiters; n != 0;) {
        struct pawl_core_waiter *w = pawl_core_waiter_at(core, n);
        n = w->next;
        pawl_core_waiter_drop(core, w);
    }
    pawl_core_watches_drop(core, lane);
    pawl_core_lookup_drop(core, lane);
    pawl_core_value_drop(core, lane);
}

void pawl_core_lane_hold(struct pawl_core *core, struct pawl_core_lane *lane)
{
    lane->handle = PAWL_NO_HANDLE;
    drop_waiters(core, lane);
    pawl_core_scan_lane_gone(core, lane->number);
    pawl_core_purge_away(core, lane->number);
}

/* What runs on in pieces has nobody to answer any more. */
static void forget_jobs(struct pawl_core *core, uint32_t number)
{
    for (uint32_t n = core->purges_first; n != 0;) {
        struct pawl_core_purge *p = pawl_pool_at(&core->purges, n);
        if (p->lane == number)
            p->lane = 0;
        n = p->next;
    }
    pawl_core_scan_lane_gone(core, number);
}

void pawl_core_lane_unlog(struct pawl_core *core, struct pawl_core_lane *lane)
{
    if (lane->home.segment)
        core->live -= pawl_core_lane_live_bytes(lane);
    pawl_core_home_set(core, PAWL_KIND_LANE, lane->number, 0);
}

void pawl_core_lane_free(struct pawl_core *core, struct pawl_core_lane *lane)
{
    struct pawl_core_session *s = pawl_core_session_at(core, lane->session);
    drop_waiters(core, lane);
    forget_jobs(core, lane->number);
    pawl_core_lane_unlog(core, lane);
    if (lane->entries)
        pawl_payload_give(&core->payload, lane->entries, entries_bytes(lane->window_mask));
    s->lanes[lane->lane] = 0;
    s->lanes_count--;
    uint32_t n = lane->number;
    lane->number = 0;
    pawl_pool_give(&core->lanes, n);
}

/* The lowest number that no lane has, or whose lane the client has closed itself. */
static uint32_t number_for_new(struct pawl_core *core, struct pawl_core_session *s)
{
    for (uint32_t i = 0; i < PAWL_LANES_MAX; i++) {
        if (s->lanes[i] == 0)
            return i;
        struct pawl_core_lane *lane = pawl_core_lane_at(core, s->lanes[i]);
        if (lane->handle == PAWL_NO_HANDLE && lane->opened_epoch == s->epoch)
            return i;
    }
    return PAWL_LANE_NEW;
}

/* Another lane takes the number: what the old one left is let go. Its leases stay with the session;
 * so that no delivery of theirs is taken for one of the new lane they lose their lane. */
static void forget_lane(struct pawl_core *core, struct pawl_core_lane *lane)
{
    struct pawl_core_session *s = pawl_core_session_at(core, lane->session);
    for (uint32_t n = s->leases_first; n != 0;) {
        struct pawl_core_lease *l = pawl_core_lease_at(core, n);
        if (l->lane == lane->lane)
            l->position = PAWL_POSITION_NONE, l->seq = 0;
        n = l->next;
    }
    pawl_core_idem_lane_gone(core, s, lane->lane);
    forget_jobs(core, lane->number);
    lane->seq_max = 0;
    lane->oldest = 1;
    lane->logged = false;
    lane->taken = lane->copied = 0;
    pawl_core_lane_clear(core, lane);
}

/* --- deliveries again ------------------------------------------------------------------------ */

static bool resend(struct pawl_core *core, struct pawl_core_lane *lane)
{
    if (!lane->resends)
        return true; /* nearly always: asked each time a full ring has room again */
    struct pawl_core_session *s = pawl_core_session_at(core, lane->session);
    for (uint32_t n = s->leases_first; n != 0; n = pawl_core_lease_at(core, n)->next) {
        struct pawl_core_lease *l = pawl_core_lease_at(core, n);
        if (l->lane == lane->lane && l->position == PAWL_POSITION_AGAIN &&
            !pawl_core_deliver_again(core, lane, l))
            return false;
    }
    lane->resends = false;
    return true;
}

static void resume(struct pawl_core *core, struct pawl_core_lane *lane,
                   const struct pawl_attach_lane *given)
{
    struct pawl_core_session *s = pawl_core_session_at(core, lane->session);
    for (uint32_t n = s->leases_first; n != 0; n = pawl_core_lease_at(core, n)->next) {
        struct pawl_core_lease *l = pawl_core_lease_at(core, n);
        const struct pawl_core_message *m = pawl_core_message_at(core, l->message);
        if (l->lane != lane->lane)
            continue;
#ifdef PAWL_BUG_RESUME_OUT_OF_ORDER
        if (l->position == PAWL_POSITION_PENDING)
            continue;
#endif
        /* What is on its way to the old rings will be dropped there. It goes to the new ones now,
         * in the order of grants, or the client would take it for one that it has seen. */
        bool unpublished = l->position == PAWL_POSITION_PENDING;
        if (unpublished && l->kind != PAWL_LEASE_HELD)
            l->deadline = pawl_add_sat(core->now.time, l->lease_ns);
        bool durable = pawl_core_queue_at(core, m->queue)->options.mode == PAWL_DURABLE;
        bool unseen = m->grant > (durable ? given->grant_durable : given->grant_relaxed);
        l->position = unseen && l->seq != 0 ? PAWL_POSITION_AGAIN : PAWL_POSITION_NONE;
        /* Publication would have armed it; whether it is emitted again is open. */
#ifndef PAWL_BUG_UNSEEN_NO_TIMER
        if (unpublished)
            pawl_core_message_timer(core, l->message);
#endif
    }
    lane->resends = true;
    lane->blocked = !resend(core, lane);
}

/* --- interface ------------------------------------------------------------------------------- */

int pawl_core_lane_open(struct pawl_core *core, struct pawl_core_session *session, uint32_t number,
                        uint32_t window, const struct pawl_attach_lane *given, uint32_t handle,
                        struct pawl_now now, struct pawl_core_lane **out)
{
    *out = NULL;
    pawl_core_set_now(core, now);
    if (window < 1 || window > PAWL_WINDOW_MAX || given->open_seq > given->next_seq ||
        (number != PAWL_LANE_NEW && number >= PAWL_LANES_MAX))
        return PAWL_E_INVALID;
    if (session->state != PAWL_SESSION_LIVE)
        return PAWL_E_EPOCH;
    bool fresh = number == PAWL_LANE_NEW;
    if (fresh)
        number = number_for_new(core, session);
    if (number == PAWL_LANE_NEW)
        return PAWL_E_QUOTA;
    struct pawl_core_lane *lane = session->lanes[number]
                                      ? pawl_core_lane_at(core, session->lanes[number])
                                      : pawl_core_lane_make(core, session, number);
    if (!lane)
        return PAWL_E_RESOURCE;
    if (pawl_core_lane_window(core, lane, window) != 0) {
        if (!lane->entries)
            pawl_core_lane_free(core, lane);
        return PAWL_E_RESOURCE;
    }
    pawl_core_lane_hold(core, lane);
    if (fresh)
        forget_lane(core, lane);
    lane->known = true;
    lane->handle = handle;
    lane->comp_bytes = given->comp_bytes;
    lane->opened_epoch = session->epoch;
    lane->taken = 0;
    lane->oldest = pawl_max_u64(lane->oldest, given->open_seq);
    if (!fresh)
        resume(core, lane, given);
    pawl_core_lane_room(core, lane);
    *out = lane;
    return PAWL_OK;
}

uint32_t pawl_core_lane_number(const struct pawl_core_lane *lane) { return lane->lane; }

void pawl_core_lane_close(struct pawl_core *core, struct pawl_core_lane *lane, struct pawl_now now)
{
    pawl_core_set_now(core, now);
    pawl_core_lane_hold(core, lane);
}

void pawl_core_lane_room(struct pawl_core *core, struct pawl_core_lane *lane)
{
    if (lane->handle == PAWL_NO_HANDLE)
        return;
    lane->blocked = !resend(core, lane);
    if (lane->blocked)
        return;
    for (uint32_t n = lane->waiters; n != 0;) {
        struct pawl_core_waiter *w = pawl_core_waiter_at(core, n);
        n = w->next;
        if (!w->linked)
            pawl_core_waiter_link(core, w);
    }
}

void pawl_core_lane_taken(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t position)
{
    (void)core;
    lane->taken = position;
}

/* --- answers --------------------------------------------------------------------------------- */

static inline void remember(struct pawl_core *core, struct pawl_core_lane *lane,
                            const struct pawl_core_answer *a)
{
    struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, a->seq);
    if (a->seq >= lane->oldest) {
        e->seq = a->seq;
        e->value = a->value;
        e->lsn = a->lsn;
        e->result = a->result;
        e->state = PAWL_WINDOW_DONE;
        e->flags = a->flags;
    }
#ifdef PAWL_BUG_WINDOW_FORGOTTEN
    if ((a->seq & 7) == 3)
        e->state = PAWL_WINDOW_NONE;
#endif
}

void pawl_core_lane_remember(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                             int result, uint64_t value, uint64_t lsn, uint8_t flags)
{
    const struct pawl_core_answer a = { seq, value, lsn, result, flags };
    remember(core, lane, &a);
}

static void answer_effect(struct pawl_core *core, const struct pawl_core_lane *lane,
                          uint64_t wait_lsn, const struct pawl_core_answer *a)
{
    struct pawl_effect *out = core->port.effect(core->port.ctx, lane->handle, wait_lsn);
    out->message = 0;
    out->seq = a->seq;
    out->value = a->value;
    out->lsn = a->lsn;
    out->result = a->result;
    out->type = PAWL_EFFECT_ANSWER;
    out->flags = a->flags;
    out->reserved = 0;
    out->bytes = sizeof(struct pawl_comp_answer);
    out->data = 0;
}

void pawl_core_lane_answer(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                           int result, uint64_t value, uint64_t lsn, uint64_t wait_lsn,
                           uint8_t flags)
{
    struct pawl_core_operation *op = &core->operation;
    if (PAWL_UNLIKELY(op->lane == lane) && op->seq == seq) {
        op->result = result;
        op->value = value;
        op->lsn = lsn;
        op->wait_lsn = wait_lsn;
        op->flags = flags;
        op->answered = true;
        return;
    }
    const struct pawl_core_answer a = { seq, value, lsn, result, flags };
    remember(core, lane, &a);
    if (lane->handle == PAWL_NO_HANDLE)
        return;
    /* What waits for its own record need not be tried. */
    bool at_once = core->port.answer && (lsn == 0 || wait_lsn == 0);
    if (!at_once || !core->port.answer(core->port.ctx, lane->handle, wait_lsn, &a))
        answer_effect(core, lane, wait_lsn, &a);
}

void pawl_core_take_answer(struct pawl_take *t, int result, uint64_t value, uint64_t wait_lsn)
{
    if (result < 0)
        t->core->refused++;
    pawl_core_lane_answer(t->core, t->lane, t->seq, result, value, 0, wait_lsn, 0);
}

void pawl_core_lane_answer_data(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                                uint32_t block, uint32_t bytes, uint64_t value, uint64_t wait_lsn)
{
    pawl_core_lane_answer_first(core, lane, seq, block, bytes, value, wait_lsn, 0);
}

void pawl_core_lane_answer_first(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                                 uint32_t block, uint32_t bytes, uint64_t value, uint64_t wait_lsn,
                                 uint32_t idem)
{
    struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, seq);
    *e = (struct pawl_window_entry){ .seq = seq, .state = PAWL_WINDOW_QUERY };
    const struct pawl_effect effect = {
        .type = PAWL_EFFECT_DATA,
        .wait_lsn = wait_lsn,
        .lane = lane->handle,
        .seq = seq,
        .value = value,
        .message = idem,
        .data = block,
        .bytes = (uint32_t)pawl_align_up(sizeof(struct pawl_comp_data) + bytes, 8),
    };
    if (lane->handle == PAWL_NO_HANDLE)
        pawl_core_effect_done(core, &effect, false, 0);
    else
        *core->port.effect(core->port.ctx, lane->handle, wait_lsn) = effect;
}

/* --- the log --------------------------------------------------------------------------------- */

void pawl_core_lane_op(const struct pawl_core *core, const struct pawl_core_lane *lane,
                       uint64_t seq, struct pawl_op_rec *out)
{
    uint64_t open = seq > lane->oldest ? seq - lane->oldest : 0;
    *out = (struct pawl_op_rec){
        .session = pawl_core_session_at(core, lane->session)->id,
        .seq = seq,
        .lane = (uint16_t)lane->lane,
        .open = (uint16_t)pawl_min_u64(open, UINT16_MAX),
    };
}

/* Never a part of a group: what they say holds whatever becomes of the command. */
void pawl_core_lane_log(struct pawl_core *core, struct pawl_core_lane *lane)
{
    struct pawl_core_session *s = pawl_core_session_at(core, lane->session);
    uint64_t lsn;
    if (!s->logged) {
        struct pawl_session_rec r;
        pawl_core_session_fact(s, &r);
        memcpy(core->port.append(core->port.ctx, PAWL_RECORD_SESSION, sizeof r, &lsn), &r,
               sizeof r);
        if (s->home.segment == 0)
            core->live += sizeof r + PAWL_RECORD_HEAD;
        pawl_core_home_set(core, PAWL_KIND_SESSION, s->number, lsn);
        s->logged = true;
    }
    if (!lane->logged) {
        const struct pawl_lane_rec r = {
            .session = s->id,
            .lane = lane->lane,
            .window = lane->window,
            .seq_max = lane->oldest - 1,
            .oldest = lane->oldest,
            .flags = PAWL_LANE_RESET,
        };
        memcpy(core->port.append(core->port.ctx, PAWL_RECORD_LANE, sizeof r, &lsn), &r, sizeof r);
        if (lane->home.segment == 0)
            core->live += pawl_core_lane_live_bytes(lane);
        pawl_core_home_set(core, PAWL_KIND_LANE, lane->number, lsn);
        lane->logged = true;
    }
}

void pawl_core_window_apply(struct pawl_core *core, const struct pawl_op_rec *op, int result,
                            uint64_t value, uint64_t lsn, enum pawl_window_use use)
{
    if (op->session == 0)
        return;
    struct pawl_core_session *s = pawl_core_session_make(core, op->session);
    struct pawl_core_lane *lane = NULL;
    if (s)
        lane = s->lanes[op->lane] ? pawl_core_lane_at(core, s->lanes[op->lane])
                                  : pawl_core_lane_make(core, s, op->lane);
    if (!lane) {
        core->damaged = true; /* no memory */
        return;
    }
    if (!lane->entries)
        return; /* a later fact has all of this */
    lane->oldest = pawl_max_u64(lane->oldest, op->seq - op->open);
    lane->seq_max = pawl_max_u64(lane->seq_max, op->seq);
    if (op->seq < lane->oldest || use == PAWL_WINDOW_TOUCH)
        return;
    /* The client came back with a larger window. */
    uint64_t span = lane->seq_max - lane->oldest + 1;
    if (span > lane->window &&
        (span > PAWL_WINDOW_MAX || pawl_core_lane_window(core, lane, (uint32_t)span) != 0)) {
        core->damaged = true;
        return;
    }
    struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, op->seq);
    uint64_t sum =
        use == PAWL_WINDOW_ADD && e->seq == op->seq && e->state == PAWL_WINDOW_DONE ? e->value : 0;
    *e = (struct pawl_window_entry){
        .seq = op->seq,
        .value = value + sum,
        .lsn = lsn,
        .result = result,
        .state = use == PAWL_WINDOW_GOES_ON ? PAWL_WINDOW_NONE
                 : use == PAWL_WINDOW_ASKED ? PAWL_WINDOW_QUERY
                                            : PAWL_WINDOW_DONE,
        .flags = use == PAWL_WINDOW_GOES_ON ? PAWL_WINDOW_HALF : 0,
    };
}
