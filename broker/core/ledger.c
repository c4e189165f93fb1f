/* SPDX-License-Identifier: MIT */
/* The ledger: entries of all kinds, when they go, and what room there is for more. */
#include "core/ledger.h"

#include "core/core_inner.h"

#define DAYS_MASK (PAWL_LEDGER_DAYS - 1)
#define FORGET_A_TURN 256u
#define OP_EVICT_BATCH 64u

/* --- names ----------------------------------------------------------------------------------- */

/* Op-ids are made up by clients. The index sees their low half hashed with the high one: who does
 * not know the secret cannot choose many that meet. KEY names are such hashes already. */
static uint64_t index_word(const struct pawl_ledger *l, uint8_t kind, uint64_t id, uint64_t id_high)
{
    if (kind == PAWL_LEDGER_KEY)
        return id;
    return id ^ pawl_hash64(&id_high, sizeof id_high, l->secret);
}

void pawl_core_ledger_name(const struct pawl_core *core, const struct pawl_ledger_entry *e,
                           uint64_t *id, uint64_t *id_high)
{
    *id = index_word(&core->ledger, e->kind, e->id, e->id_high); /* its own inverse */
    *id_high = e->id_high;
}

uint32_t pawl_core_ledger_find(const struct pawl_core *core, enum pawl_ledger_kind kind,
                               uint64_t id, uint64_t id_high)
{
    const struct pawl_ledger *l = &core->ledger;
    uint32_t n = pawl_table_find(&l->table, index_word(l, (uint8_t)kind, id, id_high));
    for (; n != 0; n = pawl_table_find_next(&l->table, n)) {
        const struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
#ifdef PAWL_BUG_LEDGER_HALF_COMPARED
        if (e->kind == kind)
#else
        if (e->id_high == id_high && e->kind == kind)
#endif
            return n;
    }
    return 0;
}

void pawl_core_ledger_prefetch(const struct pawl_core *core, enum pawl_ledger_kind kind,
                               uint64_t id, uint64_t id_high)
{
    const struct pawl_ledger *l = &core->ledger;
    pawl_table_prefetch(&l->table, index_word(l, (uint8_t)kind, id, id_high));
}

/* --- calendars ------------------------------------------------------------------------------- */

uint64_t pawl_core_ledger_end(const struct pawl_core *core, const struct pawl_ledger_entry *e)
{
    if (e->kind == PAWL_LEDGER_KEY)
        return e->c;
    return pawl_add_sat(e->d * PAWL_NS_S, core->ledger.op_retention_ns);
}

static uint32_t *day_of(const struct pawl_core *core, const struct pawl_ledger_entry *e,
                        uint32_t *day)
{
    const struct pawl_ledger_calendar *c = &core->ledger.calendars[e->kind];
    *day = (uint32_t)(pawl_core_ledger_end(core, e) >> c->shift) & DAYS_MASK;
    return &c->days[*day];
}

/* Fires when the day is over, so that all of it is. */
static void arm(struct pawl_core *core, const struct pawl_ledger_calendar *c, uint64_t day)
{
    uint64_t due = (day + 1) << c->shift;
    if (!pawl_timer_armed(&core->wheel, c->timer) || pawl_timer_due(&core->wheel, c->timer) > due)
        pawl_timer_arm(&core->wheel, c->timer, due);
}

static void enter(struct pawl_core *core, uint32_t n)
{
    struct pawl_ledger *l = &core->ledger;
    struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
    struct pawl_ledger_calendar *c = &l->calendars[e->kind];
    uint32_t day, *first = day_of(core, e, &day);
    if (*first == 0) {
        *first = e->next = e->prev = n;
        c->map[day / 64] |= 1ull << day % 64;
    } else {
        e->next = *first;
        e->prev = pawl_ledger_at(l, *first)->prev;
        pawl_ledger_at(l, e->prev)->next = n;
        pawl_ledger_at(l, e->next)->prev = n;
    }
    e->flags |= PAWL_LEDGER_LISTED;
    arm(core, c, pawl_core_ledger_end(core, e) >> c->shift);
}

static void leave(struct pawl_core *core, uint32_t n)
{
    struct pawl_ledger *l = &core->ledger;
    struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
    if (!(e->flags & PAWL_LEDGER_LISTED))
        return;
    uint32_t day, *first = day_of(core, e, &day);
    if (e->next == n) {
        *first = 0;
        l->calendars[e->kind].map[day / 64] &= ~(1ull << day % 64);
    } else {
        pawl_ledger_at(l, e->prev)->next = e->next;
        pawl_ledger_at(l, e->next)->prev = e->prev;
        if (*first == n)
            *first = e->next;
    }
    e->next = e->prev = 0;
    e->flags &= (uint8_t)~PAWL_LEDGER_LISTED;
}

/* The first day from today on that has an entry; UINT64_MAX: none. */
static uint64_t next_day(const struct pawl_ledger_calendar *c)
{
    uint32_t from = (uint32_t)c->today & DAYS_MASK;
    for (uint32_t i = 0; i <= PAWL_LEDGER_DAYS / 64; i++) {
        uint32_t word = (from / 64 + i) % (PAWL_LEDGER_DAYS / 64);
        uint64_t bits = c->map[word];
        if (i == 0)
            bits &= UINT64_MAX << from % 64;
        if (bits == 0)
            continue;
        uint32_t day = word * 64 + (uint32_t)__builtin_ctzll(bits);
        return c->today + ((day - from) & DAYS_MASK);
    }
    return UINT64_MAX;
}

static uint32_t oldest(const struct pawl_ledger *l, enum pawl_ledger_kind kind)
{
    const struct pawl_ledger_calendar *c = &l->calendars[kind];
    uint64_t day = next_day(c);
    return day == UINT64_MAX ? 0 : c->days[day & DAYS_MASK];
}

void pawl_core_limit_outcomes(struct pawl_core *core, uint64_t bytes)
{
    core->ledger.op_max = bytes / PAWL_OUTCOME_LIVE;
}

uint64_t pawl_core_outcome_bytes(const struct pawl_core *core)
{
    return core->ledger.count[PAWL_LEDGER_OP] * PAWL_OUTCOME_LIVE;
}

uint64_t pawl_core_forgotten_early_ms(const struct pawl_core *core) { return core->ledger.horizon; }

/* Room wanted: the oldest operation is forgotten before its time, and the horizon says so. */
static bool evict(struct pawl_core *core, enum pawl_ledger_kind kind)
{
    struct pawl_ledger *l = &core->ledger;
    uint32_t n = kind == PAWL_LEDGER_OP ? oldest(l, kind) : 0;
    if (n == 0)
        return false; /* a key has no time in it: it is never forgotten early */
    const struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
    if (pawl_ledger_of_lane(e))
        l->left_horizon = pawl_max_u64(l->left_horizon, e->d + 1ull);
#ifndef PAWL_BUG_HORIZON_STANDS
    else
        l->horizon = pawl_max_u64(l->horizon, e->id_high >> 16); /* ms of a version 7 UUID */
#endif
    l->evicted++;
    pawl_core_ledger_remove(core, n);
    return true;
}

/* --- entries --------------------------------------------------------------------------------- */

/* The log may have stopped growing with many in it: they go faster than they come, and never all in
 * one turn. Not where there is no room to say so now: then with the next one. */
static void keep_to_share(struct pawl_core *core, uint32_t more)
{
#ifdef PAWL_BUG_OUTCOMES_UNLIMITED
    return;
#endif
    struct pawl_ledger *l = &core->ledger;
    for (uint32_t i = 0; i < OP_EVICT_BATCH && l->count[PAWL_LEDGER_OP] + more > l->op_max; i++)
        if (!pawl_core_has_room(core, PAWL_OUTCOME_LIVE) || !evict(core, PAWL_LEDGER_OP))
            return;
}

uint32_t pawl_core_ledger_ready(struct pawl_core *core, enum pawl_ledger_kind kind, uint32_t count)
{
    struct pawl_ledger *l = &core->ledger;
    while (l->count[kind] + count > l->max)
        if (!evict(core, kind))
            return PAWL_LIMIT_LEDGER;
    if (kind == PAWL_LEDGER_OP)
        keep_to_share(core, count);
    while (!pawl_pool_ready(&l->pool, count))
        if (!evict(core, kind))
            return PAWL_LIMIT_MEMORY;
    return PAWL_LIMIT_NONE;
}

uint32_t pawl_core_ledger_insert(struct pawl_core *core, const struct pawl_ledger_entry *from)
{
    struct pawl_ledger *l = &core->ledger;
    PAWL_VERIFY_ASSERT(pawl_core_ledger_find(core, from->kind, from->id, from->id_high) == 0);
    uint32_t n = pawl_pool_take(&l->pool);
    if (n == 0)
        return 0;
    struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
    *e = *from;
    e->chain = e->next = e->prev = 0;
    e->home = (struct pawl_home){ 0 };
    e->flags &= (uint8_t)~PAWL_LEDGER_LISTED;
    e->id = index_word(l, e->kind, from->id, from->id_high);
    pawl_table_insert(&l->table, e->id, n);
    l->count[e->kind]++;
    if (e->kind == PAWL_LEDGER_KEY && e->d)
        pawl_core_queue_at(core, e->d)->dedup_keys++;
    /* A replay has no clock to compare with: pawl_core_ledger_start() lists them. */
    if (l->started)
        enter(core, n);
    return n;
}

void pawl_core_ledger_remove(struct pawl_core *core, uint32_t n)
{
    struct pawl_ledger *l = &core->ledger;
    struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
    pawl_core_ledger_home(core, n, 0);
    leave(core, n);
    pawl_table_remove(&l->table, e->id, n);
    l->count[e->kind]--;
    if (e->kind == PAWL_LEDGER_KEY && e->d)
        pawl_core_queue_at(core, e->d)->dedup_keys--;
    e->kind = PAWL_LEDGER_NONE;
    pawl_pool_give(&l->pool, n);
}

uint64_t pawl_core_ledger_fact_bytes(const struct pawl_core *core,
                                     const struct pawl_ledger_entry *e)
{
    (void)core;
    return e->kind == PAWL_LEDGER_OP ? PAWL_OUTCOME_LIVE : PAWL_KEY_LIVE;
}

void pawl_core_ledger_home(struct pawl_core *core, uint32_t n, uint64_t lsn)
{
    const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
    if (e->home.segment)
        core->live -= pawl_core_ledger_fact_bytes(core, e);
    pawl_core_home_set(core, PAWL_KIND_LEDGER, n, lsn);
    if (e->home.segment)
        core->live += pawl_core_ledger_fact_bytes(core, e);
}

/* --- time ------------------------------------------------------------------------------------ */

/* An outcome is a day old by pawl time. If the wall clock was set back since, its id is not, and
 * nothing but the entry keeps that from being taken for new: it stays until both clocks agree. */
static bool keep_for_wall(struct pawl_core *core, uint32_t n)
{
    struct pawl_ledger *l = &core->ledger;
    struct pawl_ledger_entry *e = pawl_ledger_at(l, n);
    uint64_t made = e->id_high >> 16, horizon = pawl_core_horizon_ms(core);
#ifdef PAWL_BUG_FORGETS_BY_ONE_CLOCK
    made = 0;
#endif
    if (made <= horizon)
        return false;
    leave(core, n);
    uint64_t more = pawl_min_u64((made - horizon) * PAWL_NS_MS, l->op_retention_ns);
    e->d = (uint32_t)((core->now.time + more - l->op_retention_ns) / PAWL_NS_S + 1);
    e->flags |= PAWL_LEDGER_KEPT;
    enter(core, n);
    return true;
}

/* The key of a message that lives stays, in no list. */
static void over(struct pawl_core *core, uint32_t n)
{
    const struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
    bool dated = e->kind == PAWL_LEDGER_OP && !pawl_ledger_of_lane(e);
    if (dated && keep_for_wall(core, n))
        return;
#ifndef PAWL_BUG_FORGETS_BY_ONE_CLOCK
    /* It may be set back yet: the log says that this one is past, with the next turn. */
    if (dated)
        core->ledger.horizon = pawl_max_u64(core->ledger.horizon, e->id_high >> 16);
#endif
#ifndef PAWL_BUG_WINDOW_ENDS_LIVE_KEY
    if (e->kind == PAWL_LEDGER_KEY && e->result == PAWL_STATE_NONE) {
        leave(core, n);
        return;
    }
#endif
    pawl_core_ledger_remove(core, n);
}

/* Those that follow in the ring of this day: the bucket of the next, the next but one itself. */
static void prefetch_after(const struct pawl_ledger *l, uint32_t n)
{
    const struct pawl_ledger_entry *next = pawl_ledger_at(l, pawl_ledger_at(l, n)->next);
    pawl_table_prefetch(&l->table, next->id);
    __builtin_prefetch(pawl_ledger_at(l, next->next));
}

void pawl_core_ledger_timer(struct pawl_core *core, enum pawl_ledger_kind kind)
{
    struct pawl_ledger_calendar *c = &core->ledger.calendars[kind];
    uint64_t today = core->now.time >> c->shift, day;
    for (uint32_t i = 0; (day = next_day(c)) < today; i++) {
        c->today = day;
        if (i == FORGET_A_TURN)
            break; /* the rest in the next turn: that day is over */
        uint32_t n = c->days[day & DAYS_MASK];
        prefetch_after(&core->ledger, n);
        over(core, n);
    }
    if (day != UINT64_MAX)
        arm(core, c, day);
    if (day >= today)
        c->today = pawl_max_u64(c->today, today);
}

uint32_t pawl_core_ledger_sweep(struct pawl_core *core, uint32_t budget)
{
    struct pawl_ledger *l = &core->ledger;
    for (; budget > 0 && l->sweep < l->pool.never_used; l->sweep++, budget--) {
        const struct pawl_ledger_entry *e = pawl_ledger_at(l, l->sweep);
        if (e->kind == PAWL_LEDGER_KEY && e->d && pawl_core_queue_at(core, e->d)->gone)
            pawl_core_ledger_remove(core, l->sweep);
    }
    if (l->sweep >= l->pool.never_used)
        l->sweep = 1; /* the next pass: another queue may be gone since this one began */
    return budget;
}

/* --- lives ----------------------------------------------------------------------------------- */

static int calendar_init(struct pawl_core *core, enum pawl_ledger_kind kind, uint32_t shift)
{
    struct pawl_ledger_calendar *c = &core->ledger.calendars[kind];
    const struct pawl_core_port *port = &core->port;
    c->shift = shift;
    c->days = port->memory_map(port->ctx, PAWL_LEDGER_DAYS * sizeof *c->days);
    c->map = port->memory_map(port->ctx, PAWL_LEDGER_DAYS / 8);
    return c->days && c->map ? 0 : -1;
}

int pawl_core_ledger_init(struct pawl_core *core)
{
    struct pawl_ledger *l = &core->ledger;
    l->max = core->options.ledger_max ? core->options.ledger_max : PAWL_LEDGER_MAX_DEFAULT;
    l->op_max = UINT64_MAX; /* until the shell says */
    l->op_retention_ns = PAWL_OP_RETENTION_NS_DEFAULT;
    l->secret = core->options.hash_seed;
    l->sweep = 1;
    if (pawl_pool_init(&l->pool, &core->budget, sizeof(struct pawl_ledger_entry),
                       PAWL_LEDGER_SHIFT) != 0 ||
        pawl_table_init(&l->table, &core->budget, &l->pool, offsetof(struct pawl_ledger_entry, id),
                        offsetof(struct pawl_ledger_entry, chain)) != 0)
        return -1;
    l->table.secret = pawl_hash64("index", 5, l->secret) | 1;
    if (calendar_init(core, PAWL_LEDGER_KEY, PAWL_LEDGER_KEY_DAY) != 0)
        return -1;
    return calendar_init(core, PAWL_LEDGER_OP, PAWL_LEDGER_OP_DAY);
}

void pawl_core_ledger_fini(struct pawl_core *core)
{
    struct pawl_ledger *l = &core->ledger;
    const struct pawl_core_port *port = &core->port;
    pawl_table_fini(&l->table);
    pawl_pool_fini(&l->pool);
    for (enum pawl_ledger_kind kind = 0; kind < PAWL_LEDGER_KINDS; kind++) {
        struct pawl_ledger_calendar *c = &l->calendars[kind];
        if (c->days)
            port->memory_unmap(port->ctx, c->days, PAWL_LEDGER_DAYS * sizeof *c->days);
        if (c->map)
            port->memory_unmap(port->ctx, c->map, PAWL_LEDGER_DAYS / 8);
    }
}

static void start_one(struct pawl_core *core, uint32_t n)
{
    struct pawl_ledger_entry *e = pawl_ledger_at(&core->ledger, n);
    uint64_t now = core->now.time;
    /* None is further ahead than the calendar, whatever a record says. */
    uint64_t ahead = (uint64_t)(PAWL_LEDGER_DAYS - 2) << PAWL_LEDGER_KEY_DAY;
    if (e->kind == PAWL_LEDGER_KEY)
        e->c = pawl_min_u64(e->c, pawl_add_sat(now, ahead));
    else
        e->d = (uint32_t)pawl_min_u64(e->d, now / PAWL_NS_S);
    if (pawl_core_ledger_end(core, e) <= now)
        over(core, n);
    else
        enter(core, n);
}

int pawl_core_ledger_start(struct pawl_core *core)
{
    struct pawl_ledger *l = &core->ledger;
    for (enum pawl_ledger_kind kind = PAWL_LEDGER_KEY; kind < PAWL_LEDGER_KINDS; kind++) {
        struct pawl_ledger_calendar *c = &l->calendars[kind];
        c->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_LEDGER, kind);
        if (c->timer == 0)
            return -1;
        c->today = core->now.time >> c->shift;
    }
    l->started = true;
    for (uint32_t n = 1; n < l->pool.never_used; n++)
        if (pawl_ledger_at(l, n)->kind != PAWL_LEDGER_NONE)
            start_one(core, n);
    return 0;
}
