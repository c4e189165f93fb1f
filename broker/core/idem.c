/* SPDX-License-Identifier: MIT */
/* IDEM: entries, their record, its apply and replay; ends, digest. */
#include "core/idem.h"

#include "core/core_inner.h"

struct pawl_core_idem *pawl_core_idem_at(const struct pawl_core *core, uint32_t n)
{
    return pawl_pool_entry(&core->idems, n, sizeof(struct pawl_core_idem));
}

static struct pawl_core_idem *at(const struct pawl_core *core, uint32_t n)
{
    return pawl_core_idem_at(core, n);
}

/* --- entries --------------------------------------------------------------------------------- */

uint32_t pawl_core_idem_find(const struct pawl_core *core, uint64_t id, uint64_t id_high)
{
    uint32_t n = pawl_table_find(&core->idems_by_id, id);
    while (n && at(core, n)->id_high != id_high)
        n = pawl_table_find_next(&core->idems_by_id, n);
    return n;
}

/* 0: no memory. */
uint32_t pawl_core_idem_make(struct pawl_core *core, struct pawl_core_queue *table, uint64_t id,
                             uint64_t id_high)
{
    uint32_t n = pawl_pool_take(&core->idems);
    if (n == 0)
        return 0;
    struct pawl_core_idem *e = at(core, n);
    e->id = id;
    e->id_high = id_high;
    e->table = table->number;
    pawl_table_insert(&core->idems_by_id, id, n);
    table->idems++;
    return n;
}

static void leave_session(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_idem *e = at(core, n);
    if (e->session == 0)
        return;
    struct pawl_core_session *s = pawl_core_session_at(core, e->session);
    if (e->prev)
        at(core, e->prev)->next = e->next;
    else
        s->idems_first = e->next;
    if (e->next)
        at(core, e->next)->prev = e->prev;
    s->idems_count--;
    e->session = e->next = e->prev = 0;
}

static void enter_session(struct pawl_core *core, uint32_t n, uint64_t id)
{
    struct pawl_core_session *s = pawl_core_session_make(core, id);
    if (!s) {
        core->damaged = true; /* no memory: only a replay meets one that is not there */
        return;
    }
    struct pawl_core_idem *e = at(core, n);
    e->session = s->number;
    e->prev = 0;
    e->next = s->idems_first;
    if (e->next)
        at(core, e->next)->prev = n;
    s->idems_first = n;
    s->idems_count++;
}

uint32_t pawl_core_idem_fact_bytes(const struct pawl_core *core, uint32_t n)
{
    return (uint32_t)sizeof(struct pawl_idem_rec) + at(core, n)->bytes;
}

static uint64_t live_bytes(const struct pawl_core *core, uint32_t n)
{
    return at(core, n)->state == PAWL_IDEM_NONE
               ? 0
               : pawl_core_idem_fact_bytes(core, n) + PAWL_RECORD_HEAD;
}

void pawl_core_idem_give(struct pawl_core *core, uint32_t block, uint32_t bytes)
{
    if (block)
        pawl_payload_give(&core->payload, block, bytes);
}

void pawl_core_idem_free(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_idem *e = at(core, n);
    core->live -= live_bytes(core, n);
    e->pending = 0; /* of who had it before; his token, that he settles with, he has */
    leave_session(core, n);
    pawl_timer_destroy(&core->wheel, e->timer);
    pawl_core_home_set(core, PAWL_KIND_IDEM, n, 0);
    pawl_table_remove(&core->idems_by_id, e->id, n);
    pawl_core_queue_at(core, e->table)->idems--;
    pawl_core_idem_give(core, e->block, e->bytes);
    e->table = 0;
    e->state = PAWL_IDEM_NONE;
    pawl_pool_give(&core->idems, n);
}

bool pawl_core_idem_over(const struct pawl_core *core, const struct pawl_core_idem *e)
{
    return e->pending == 0 && e->end <= core->now.time;
}

void pawl_core_idem_pending(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_idem *e = at(core, n);
#ifdef PAWL_BUG_IDEM_LEASE_FROM_DECISION
    return;
#endif
    e->pending++;
    pawl_timer_cancel(&core->wheel, e->timer);
}

/* Its time begins. False: it is another's by now, or has been told already. */
static bool lease_begins(struct pawl_core *core, uint32_t n, uint64_t grant)
{
    struct pawl_core_idem *e = at(core, n);
    if (e->state != PAWL_IDEM_IN_PROGRESS || e->grant != grant || e->pending == 0)
        return false;
    e->end = pawl_add_sat(core->now.time, e->lease_ns);
    pawl_timer_arm(&core->wheel, e->timer, e->end);
    return true;
}

void pawl_core_idem_published(struct pawl_core *core, uint32_t n, uint64_t grant,
                              struct pawl_idem_data *data)
{
    if (!lease_begins(core, n, grant))
        return;
    at(core, n)->pending = 0;
    data->left_ns = at(core, n)->lease_ns;
}

void pawl_core_idem_dropped(struct pawl_core *core, uint32_t n, uint64_t grant)
{
    struct pawl_core_idem *e = at(core, n);
    if (lease_begins(core, n, grant) && --e->pending != 0)
        pawl_timer_cancel(&core->wheel, e->timer); /* another one is on its way */
}

bool pawl_core_idem_worked_on(const struct pawl_core *core, const struct pawl_core_idem *e)
{
    return e->state == PAWL_IDEM_IN_PROGRESS && !pawl_core_idem_over(core, e);
}

/* --- record and apply ------------------------------------------------------------------------ */

/* As it is: what changes is written over it. */
struct pawl_idem_rec pawl_core_idem_record(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    struct pawl_idem_rec r = {
        .op.extra = e->bytes,
        .table = pawl_core_queue_at(core, e->table)->id,
        .id = e->id,
        .id_high = e->id_high,
        .hash = e->hash,
        .grant = e->grant,
        .random = e->random,
        .since = e->since,
        .end = e->end,
        .lease_ns = e->lease_ns,
        .retain_ns = e->retain_ns,
        .lsn = e->lsn,
        .seq = e->seq,
        .code = e->code,
        .attempts = e->attempts,
        .pid = e->pid,
        .uid = e->uid,
        .lane = e->lane,
        .state = e->state,
    };
    if (e->session)
        r.session = pawl_core_session_at(core, e->session)->id;
    return r;
}

/* The entry becomes what the record says; block holds the bytes behind it. */
static void apply(struct pawl_core *core, uint32_t n, const struct pawl_idem_rec *r, uint32_t block,
                  uint64_t lsn)
{
    struct pawl_core_idem *e = at(core, n);
    core->live -= live_bytes(core, n);
    leave_session(core, n);
    if (e->block != block)
        pawl_core_idem_give(core, e->block, e->bytes);
    e->hash = r->hash;
    e->grant = r->grant;
    e->random = r->random;
    e->since = r->since;
    e->end = r->end;
    e->lease_ns = r->lease_ns;
    e->retain_ns = r->retain_ns;
    e->seq = r->seq;
    e->block = block;
    e->bytes = r->op.extra;
    e->attempts = r->attempts;
    e->pid = r->pid;
    e->uid = r->uid;
    e->code = r->code;
    e->lane = r->lane;
    e->state = r->state;
    e->lsn = 0;
    if (e->state != PAWL_IDEM_IN_PROGRESS)
        e->pending = 0; /* an answer may be on its way still: there is no lease that it begins */
    if (e->state == PAWL_IDEM_DONE || e->state == PAWL_IDEM_FAILED)
        e->lsn = r->lsn ? r->lsn : lsn;
    if (e->state == PAWL_IDEM_IN_PROGRESS && r->session)
        enter_session(core, n, r->session);
    core->live += live_bytes(core, n);
    pawl_core_home_set(core, PAWL_KIND_IDEM, n, lsn);
    if (core->started)
        pawl_timer_arm(&core->wheel, e->timer, e->end);
}

static uint64_t append(struct pawl_core *core, const struct pawl_idem_rec *r, uint32_t block)
{
    uint64_t lsn;
    uint8_t *out =
        pawl_core_append(core, PAWL_RECORD_IDEM, (uint32_t)sizeof *r + r->op.extra, &lsn);
    memcpy(out, r, sizeof *r);
    if (r->op.extra)
        memcpy(out + sizeof *r, pawl_payload_at(&core->payload, block), r->op.extra);
    return lsn;
}

uint64_t pawl_core_idem_write(struct pawl_core *core, uint32_t n, struct pawl_idem_rec *r,
                              uint32_t block, const struct pawl_op_rec *op)
{
    uint32_t extra = r->op.extra;
    if (op)
        r->op = *op;
    r->op.extra = extra;
    uint64_t lsn = append(core, r, block);
    apply(core, n, r, block, lsn);
    return lsn;
}

/* What was kept of the work stays: the next one is told. */
static void abandon_rec(const struct pawl_core *core, struct pawl_idem_rec *r)
{
    r->state = PAWL_IDEM_ABANDONED;
    r->session = 0;
    r->since = core->now.time;
    r->end = pawl_add_sat(core->now.time, r->retain_ns);
}

uint64_t pawl_core_idem_abandon(struct pawl_core *core, uint32_t n, const struct pawl_op_rec *op)
{
    struct pawl_idem_rec r = pawl_core_idem_record(core, n);
    abandon_rec(core, &r);
    return pawl_core_idem_write(core, n, &r, at(core, n)->block, op);
}

/* --- log ------------------------------------------------------------------------------------- */

int pawl_core_idem_replay(struct pawl_core *core, const struct pawl_record_view *v, uint64_t lsn)
{
    const struct pawl_idem_rec *r = &v->idem;
    struct pawl_core_queue *table = pawl_core_queue_known(core, r->table);
    if (!table)
        return -1;
    pawl_core_window_apply(core, &v->op, PAWL_OK, 0, lsn,
                           r->flags & PAWL_RECORD_BEGUN ? PAWL_WINDOW_ASKED : PAWL_WINDOW_SET);
    uint32_t n = pawl_core_idem_find(core, r->id, r->id_high);
    if (n && at(core, n)->table != table->number)
        return -1; /* the table is part of the name */
    if (n == 0)
        n = pawl_core_idem_make(core, table, r->id, r->id_high);
    uint32_t bytes = r->op.extra, block = bytes ? pawl_payload_take(&core->payload, bytes) : 0;
    if (n == 0 || (bytes && block == 0))
        return -1;
    if (bytes)
        memcpy(pawl_payload_at(&core->payload, block), v->rest, bytes);
    apply(core, n, r, block, lsn);
    return 0;
}

void pawl_core_idem_fact(struct pawl_core *core, uint32_t n)
{
    struct pawl_idem_rec r = pawl_core_idem_record(core, n);
    pawl_core_home_set(core, PAWL_KIND_IDEM, n, append(core, &r, at(core, n)->block));
}

/* --- time, ends ------------------------------------------------------------------------------ */

int pawl_core_idem_start(struct pawl_core *core)
{
    for (uint32_t n = 1; n < core->idems.never_used; n++) {
        struct pawl_core_idem *e = at(core, n);
        if (e->state == PAWL_IDEM_NONE)
            continue;
        if (pawl_core_queue_at(core, e->table)->options.mode != PAWL_TABLE)
            return -1;
        if (e->state == PAWL_IDEM_IN_PROGRESS) {
            e->end = pawl_add_sat(core->now.time, e->lease_ns);
        } else if (pawl_core_idem_over(core, e)) {
            pawl_core_idem_free(core, n);
            continue;
        }
        e->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_IDEM, n);
        if (e->timer == 0)
            return -1;
        pawl_timer_arm(&core->wheel, e->timer, e->end);
    }
    return 0;
}

void pawl_core_idem_timer(struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    if (pawl_core_queue_at(core, e->table)->gone)
        return;
    if (e->state != PAWL_IDEM_IN_PROGRESS)
        pawl_core_idem_free(core, n);
    else if (pawl_core_has_room(core, PAWL_IDEM_ROOM))
        (void)pawl_core_idem_abandon(core, n, NULL);
    else /* until then the deadline itself refuses its owner */
        pawl_timer_arm(&core->wheel, e->timer, core->now.time + 100 * PAWL_NS_MS);
}

void pawl_core_idem_session_end(struct pawl_core *core, struct pawl_core_session *s, uint64_t time)
{
#ifdef PAWL_BUG_IDEM_DEAD_OWNER
    for (uint32_t n = s->idems_first; n; n = s->idems_first)
        leave_session(core, n);
#endif
    while (s->idems_first) {
        uint32_t n = s->idems_first;
        struct pawl_core_idem *e = at(core, n);
        leave_session(core, n);
        e->pending = 0;
        e->state = PAWL_IDEM_ABANDONED;
        e->since = time;
        e->end = pawl_add_sat(time, e->retain_ns);
        if (core->started)
            pawl_timer_arm(&core->wheel, e->timer, e->end);
    }
}

void pawl_core_idem_lane_gone(struct pawl_core *core, const struct pawl_core_session *s,
                              uint32_t lane)
{
    for (uint32_t n = s->idems_first; n; n = at(core, n)->next)
        if (at(core, n)->lane == lane)
            at(core, n)->seq = 0;
}

bool pawl_core_idem_sweep(struct pawl_core *core, struct pawl_core_queue *table, uint32_t *budget)
{
    while (table->idems && *budget > 0) {
        if (++table->sweep_at >= core->idems.never_used)
            table->sweep_at = 1;
        --*budget;
        if (at(core, table->sweep_at)->table == table->number)
            pawl_core_idem_free(core, table->sweep_at);
    }
    return table->idems == 0;
}

/* --- digest and invariants ------------------------------------------------------------------- */

static uint64_t digest_one(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    const struct pawl_core_queue *table = pawl_core_queue_at(core, e->table);
    bool open = e->state == PAWL_IDEM_IN_PROGRESS;
    if (table->gone || (!open && pawl_core_idem_over(core, e)))
        return 0;
    const uint64_t words[] = {
        e->id,
        e->id_high,
        table->id,
        e->hash,
        e->grant,
        e->random,
        e->since,
        open ? 0 : e->end,
        e->lease_ns,
        e->retain_ns,
        e->lsn,
        e->session ? pawl_core_session_at(core, e->session)->id : 0,
        (uint64_t)e->pid << 32 | e->uid,
        (uint64_t)(uint32_t)e->code << 32 | e->attempts,
        e->state,
        e->bytes ? pawl_hash64(pawl_payload_at(&core->payload, e->block), e->bytes, 1) : 0,
    };
    return pawl_hash64(words, sizeof words, core->options.hash_seed);
}

uint64_t pawl_core_idem_digest(const struct pawl_core *core)
{
    uint64_t sum = 0;
    for (uint32_t n = 1; n < core->idems.never_used; n++)
        if (at(core, n)->state != PAWL_IDEM_NONE)
            sum += digest_one(core, n);
    return sum;
}

static void verify_one(const struct pawl_core *core, uint32_t n)
{
    const struct pawl_core_idem *e = at(core, n);
    PAWL_ASSERT_REL(pawl_core_idem_find(core, e->id, e->id_high), ==, n);
    PAWL_ASSERT_REL((e->block != 0), ==, (e->bytes != 0));
    PAWL_ASSERT_REL(e->attempts, >, 0);
    PAWL_ASSERT(!e->planned);
    PAWL_ASSERT(e->session == 0 || e->state == PAWL_IDEM_IN_PROGRESS);
    PAWL_ASSERT(e->home.segment != 0 || pawl_core_queue_at(core, e->table)->gone);
    /* None while the answer is on its way: the lease has not begun. */
    PAWL_ASSERT(!core->started || pawl_core_queue_at(core, e->table)->gone || e->pending ||
                pawl_timer_armed(&core->wheel, e->timer));
}

uint64_t pawl_core_idem_verify(const struct pawl_core *core)
{
    uint64_t live = 0, count = 0, owned = 0, in_tables = 0, in_sessions = 0;
    for (uint32_t n = 1; n < core->idems.never_used; n++) {
        if (at(core, n)->state == PAWL_IDEM_NONE)
            continue;
        verify_one(core, n);
        live += live_bytes(core, n);
        owned += at(core, n)->session != 0;
        count++;
    }
    for (uint32_t n = 1; n < core->queues.never_used; n++)
        if (pawl_core_queue_at(core, n)->number == n)
            in_tables += pawl_core_queue_at(core, n)->idems;
    for (uint32_t i = 1; i < core->sessions.never_used; i++) {
        const struct pawl_core_session *s = pawl_core_session_at(core, i);
        uint32_t in_list = 0;
        if (s->number != i)
            continue;
        for (uint32_t n = s->idems_first; n; n = at(core, n)->next, in_list++)
            PAWL_ASSERT_REL(at(core, n)->session, ==, i);
        PAWL_ASSERT_REL(in_list, ==, s->idems_count);
        in_sessions += in_list;
    }
    PAWL_ASSERT_REL(count, ==, core->idems.used);
    PAWL_ASSERT_REL(count, ==, core->idems_by_id.entries);
    PAWL_ASSERT_REL(count, ==, in_tables);
    PAWL_ASSERT_REL(owned, ==, in_sessions);
    return live;
}
