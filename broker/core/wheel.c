/* SPDX-License-Identifier: MIT */
/* Where a timer stands. With t = wheel->tick and dt = due time in ticks, rounded up:
 *   dt < t                       in `due` (its tick is over)
 *   else, delta = dt - t         in level l, the smallest with delta < 64^(l+1), slot (dt >> 6l) &
 * 63 A slot of level l is spread when t reaches the first tick it covers. While level l is being
 * spread at t (its low 6l bits are zero) nothing new enters that slot: it would have to be 64^(l+1)
 * away. */
#include "core/wheel.h"

#include <string.h>

#include "base/bits.h"

#define TIMER_DUE 0xffffu
#define SPREAD_NOT_BEGUN 0u

static uint64_t tick_of(uint64_t due)
{
#ifdef PAWL_BUG_TIMER_EARLY
    return due >> PAWL_TICK_SHIFT;
#endif
    return pawl_add_sat(due, (1u << PAWL_TICK_SHIFT) - 1) >> PAWL_TICK_SHIFT;
}

static unsigned level_shift(unsigned level) { return 6 * level; }

int pawl_wheel_init(struct pawl_wheel *wheel, struct pawl_budget *budget, uint64_t now)
{
    memset(wheel, 0, sizeof *wheel);
    wheel->tick = (now >> PAWL_TICK_SHIFT) + 1;
    return pawl_pool_init(&wheel->timers, budget, sizeof(struct pawl_timer), PAWL_TIMERS_SHIFT);
}

void pawl_wheel_fini(struct pawl_wheel *wheel) { pawl_pool_fini(&wheel->timers); }

/* --- ring lists ------------------------------------------------------------------------------ */

static void list_push(struct pawl_wheel *wheel, uint32_t *first, uint32_t timer)
{
    struct pawl_timer *t = pawl_timer_at(wheel, timer);
    if (*first == 0) {
        t->next = t->prev = timer;
        *first = timer;
        return;
    }
    struct pawl_timer *head = pawl_timer_at(wheel, *first);
    t->next = *first;
    t->prev = head->prev;
    pawl_timer_at(wheel, head->prev)->next = timer;
    head->prev = timer;
}

static void list_remove(struct pawl_wheel *wheel, uint32_t *first, uint32_t timer)
{
    struct pawl_timer *t = pawl_timer_at(wheel, timer);
    if (t->next == timer) {
        *first = 0;
    } else {
        pawl_timer_at(wheel, t->next)->prev = t->prev;
        pawl_timer_at(wheel, t->prev)->next = t->next;
        if (*first == timer)
            *first = t->next;
    }
    t->next = t->prev = 0;
}

/* --- placing --------------------------------------------------------------------------------- */

static void place_due(struct pawl_wheel *wheel, uint32_t timer)
{
    pawl_timer_at(wheel, timer)->slot = TIMER_DUE;
    list_push(wheel, &wheel->due, timer);
}

static void place(struct pawl_wheel *wheel, uint32_t timer, uint64_t dt)
{
    if (dt < wheel->tick) {
        place_due(wheel, timer);
        return;
    }
    uint64_t delta = dt - wheel->tick;
    unsigned level = delta < PAWL_WHEEL_SLOTS ? 0 : (63 - (unsigned)__builtin_clzll(delta)) / 6;
    if (level >= PAWL_WHEEL_LEVELS) { /* beyond 146 years: the farthest slot, placed again there */
        level = PAWL_WHEEL_LEVELS - 1;
        dt = wheel->tick + ((uint64_t)(PAWL_WHEEL_SLOTS - 1) << level_shift(level));
    }
    unsigned slot = (unsigned)(dt >> level_shift(level)) & (PAWL_WHEEL_SLOTS - 1);
    pawl_timer_at(wheel, timer)->slot = (uint16_t)(level * PAWL_WHEEL_SLOTS + slot + 1);
    list_push(wheel, &wheel->slots[level][slot], timer);
    wheel->map[level] |= 1ull << slot;
}

/* Takes a timer off whatever list it stands on. A slot of level 0 whose tick is over was moved to
 * `due` as a whole, without a touch of its timers: their due time tells. */
static void displace(struct pawl_wheel *wheel, uint32_t timer)
{
    struct pawl_timer *t = pawl_timer_at(wheel, timer);
    if (t->slot == TIMER_DUE || (t->slot <= PAWL_WHEEL_SLOTS && tick_of(t->due) < wheel->tick)) {
        list_remove(wheel, &wheel->due, timer);
    } else {
        unsigned level = (t->slot - 1u) / PAWL_WHEEL_SLOTS;
        unsigned slot = (t->slot - 1u) % PAWL_WHEEL_SLOTS;
        list_remove(wheel, &wheel->slots[level][slot], timer);
        if (wheel->slots[level][slot] == 0)
            wheel->map[level] &= ~(1ull << slot);
    }
    t->slot = 0;
}

/* --- timers ---------------------------------------------------------------------------------- */

uint32_t pawl_timer_create(struct pawl_wheel *wheel, uint16_t kind, uint32_t owner)
{
    uint32_t timer = pawl_pool_take(&wheel->timers);
    if (timer) {
        struct pawl_timer *t = pawl_timer_at(wheel, timer);
        t->kind = kind;
        t->owner = owner;
    }
    return timer;
}

void pawl_timer_destroy(struct pawl_wheel *wheel, uint32_t timer)
{
    if (timer == 0)
        return;
    pawl_timer_cancel(wheel, timer);
    pawl_pool_give(&wheel->timers, timer);
}

void pawl_timer_arm(struct pawl_wheel *wheel, uint32_t timer, uint64_t due)
{
    pawl_timer_cancel(wheel, timer);
    pawl_timer_at(wheel, timer)->due = due;
    wheel->armed++;
    place(wheel, timer, tick_of(due));
}

void pawl_timer_cancel(struct pawl_wheel *wheel, uint32_t timer)
{
    if (!pawl_timer_armed(wheel, timer))
        return;
    displace(wheel, timer);
    wheel->armed--;
}

bool pawl_timer_armed(const struct pawl_wheel *wheel, uint32_t timer)
{
    return pawl_timer_at(wheel, timer)->slot != 0;
}

uint64_t pawl_timer_due(const struct pawl_wheel *wheel, uint32_t timer)
{
    return pawl_timer_at(wheel, timer)->due;
}

/* --- turning --------------------------------------------------------------------------------- */

/* The first tick at which a slot must be spread or fired; UINT64_MAX: all slots are empty. */
static uint64_t next_tick(const struct pawl_wheel *wheel)
{
    uint64_t next = UINT64_MAX;
    for (unsigned level = 0; level < PAWL_WHEEL_LEVELS; level++) {
        uint64_t map = wheel->map[level];
        if (map == 0)
            continue;
        unsigned shift = level_shift(level);
        /* The first slot of this level that begins at or after tick. */
        uint64_t base = (wheel->tick + (1ull << shift) - 1) >> shift;
        unsigned turn = (unsigned)base & (PAWL_WHEEL_SLOTS - 1);
        uint64_t turned = turn == 0 ? map : (map >> turn) | (map << (64 - turn));
        next = pawl_min_u64(next, (base + (unsigned)__builtin_ctzll(turned)) << shift);
    }
    return next;
}

/* Spreads the slots of the upper levels that begin at this tick. False: the budget is spent. */
static bool spread(struct pawl_wheel *wheel, uint32_t *budget)
{
    while (wheel->spread < PAWL_WHEEL_LEVELS) {
        unsigned level = wheel->spread, shift = level_shift(level);
        if ((wheel->tick & ((1ull << shift) - 1)) != 0)
            break;
        unsigned slot = (unsigned)(wheel->tick >> shift) & (PAWL_WHEEL_SLOTS - 1);
        uint32_t *first = &wheel->slots[level][slot];
        for (; *first != 0; (*budget)--) {
            if (*budget == 0)
                return false;
            uint32_t timer = *first;
            displace(wheel, timer);
            uint64_t dt = tick_of(pawl_timer_due(wheel, timer));
            if (dt <= wheel->tick)
                place_due(wheel, timer);
            else
                place(wheel, timer, dt);
        }
        wheel->spread++;
    }
    return true;
}

/* Appends the level-0 slot of this tick to `due`, in one piece. */
static void due_slot(struct pawl_wheel *wheel)
{
    unsigned slot = (unsigned)wheel->tick & (PAWL_WHEEL_SLOTS - 1);
    uint32_t first = wheel->slots[0][slot];
    if (first == 0)
        return;
    wheel->slots[0][slot] = 0;
    wheel->map[0] &= ~(1ull << slot);
    if (wheel->due == 0) {
        wheel->due = first;
        return;
    }
    struct pawl_timer *a = pawl_timer_at(wheel, wheel->due);
    struct pawl_timer *b = pawl_timer_at(wheel, first);
    uint32_t a_last = a->prev, b_last = b->prev;
    pawl_timer_at(wheel, a_last)->next = first;
    pawl_timer_at(wheel, b_last)->next = wheel->due;
    b->prev = a_last;
    a->prev = b_last;
}

uint32_t pawl_wheel_fire(struct pawl_wheel *wheel, uint64_t now, uint32_t *budget)
{
    uint64_t now_tick = now >> PAWL_TICK_SHIFT;
    while (*budget > 0) {
        if (wheel->due) {
            uint32_t timer = wheel->due;
            pawl_timer_cancel(wheel, timer);
            (*budget)--;
            return timer;
        }
        if (wheel->spread == SPREAD_NOT_BEGUN) {
            uint64_t next = next_tick(wheel);
            if (next > now_tick) {
                /* Nothing until now: the ticks between are empty and are jumped over, so a suspend
                 * of a night costs as much as a millisecond. */
                if (wheel->tick <= now_tick)
                    wheel->tick = now_tick + 1;
                return 0;
            }
            wheel->tick = next;
            wheel->spread = 1;
        }
        if (!spread(wheel, budget)) {
            if (wheel->due == 0 || *budget == 0)
                return 0;
            continue;
        }
        due_slot(wheel);
        wheel->tick++;
        wheel->spread = SPREAD_NOT_BEGUN;
    }
    return 0;
}

bool pawl_wheel_behind(const struct pawl_wheel *wheel, uint64_t now)
{
    return wheel->due != 0 || wheel->spread != SPREAD_NOT_BEGUN ||
           next_tick(wheel) <= now >> PAWL_TICK_SHIFT;
}

uint64_t pawl_wheel_next(const struct pawl_wheel *wheel)
{
    if (wheel->due != 0 || wheel->spread != SPREAD_NOT_BEGUN)
        return (wheel->tick - 1) << PAWL_TICK_SHIFT;
    uint64_t next = next_tick(wheel);
    return next == UINT64_MAX ? UINT64_MAX : next << PAWL_TICK_SHIFT;
}
