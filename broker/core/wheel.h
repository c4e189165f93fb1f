/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_WHEEL_H
#define PAWL_CORE_WHEEL_H

/* All timers of the core: one hierarchical timing wheel (Varghese and Lauck 1987), 7 levels of 64
 * slots. A tick is 2^20 ns (1.05 ms). Due times are rounded up to a tick, so nothing ever fires
 * early (G12, C4) and up to one tick late. Arm and cancel are O(1); finding the next deadline reads
 * a bit map a level.
 *
 *   level 0: the next 64 ticks, a slot each   level 1: a slot for 64 ticks   ...   level 6: 73
 * years
 *
 * When level 0 has gone round, the next slot of level 1 is spread over it, and so on. Spreading and
 * firing are done in pieces (`budget`): ten million timers in one slot do not stall a turn, and
 * what is due while a large slot is being spread fires meanwhile. The clock of the wheel stands
 * until a tick is done with.
 *
 * A timer is a pool entry of its own (24 bytes) and remembers its owner: kind and number. */

#include "core/pool.h"

#define PAWL_TICK_SHIFT 20
#define PAWL_TIMERS_SHIFT 14u /* entries a chunk of their pool, as power of two */
#define PAWL_WHEEL_LEVELS 7
#define PAWL_WHEEL_SLOTS 64

struct pawl_timer {
    uint32_t next, prev;
    uint64_t due;   /* pawl time, exact */
    uint32_t owner; /* number in the pool that kind names */
    uint16_t slot; /* level * 64 + slot + 1; PAWL_TIMER_DUE: in the list of the due; 0: not armed */
    uint16_t kind;
};
_Static_assert(sizeof(struct pawl_timer) == 24, "ten million of them are normal");

struct pawl_wheel {
    struct pawl_pool timers;
    uint64_t tick; /* all timers of earlier ticks are fired or in `due` */
    uint64_t map[PAWL_WHEEL_LEVELS];
    uint32_t slots[PAWL_WHEEL_LEVELS][PAWL_WHEEL_SLOTS]; /* first of a ring list; 0: empty */
    uint32_t due;                                        /* ring list of those to fire now */
    uint32_t spread; /* level that is being spread for this tick; 0: none */
    uint64_t armed;
};

int pawl_wheel_init(struct pawl_wheel *wheel, struct pawl_budget *budget, uint64_t now);
void pawl_wheel_fini(struct pawl_wheel *wheel);

/* A timer that is not armed; 0: no memory. */
uint32_t pawl_timer_create(struct pawl_wheel *wheel, uint16_t kind, uint32_t owner);
void pawl_timer_destroy(struct pawl_wheel *wheel, uint32_t timer); /* armed or not; 0 is allowed */
/* (Re)arms it; due may be in the past: then it fires at the next turn. Cannot fail. */
void pawl_timer_arm(struct pawl_wheel *wheel, uint32_t timer, uint64_t due);
void pawl_timer_cancel(struct pawl_wheel *wheel, uint32_t timer);
bool pawl_timer_armed(const struct pawl_wheel *wheel, uint32_t timer);
uint64_t pawl_timer_due(const struct pawl_wheel *wheel, uint32_t timer);
static inline struct pawl_timer *pawl_timer_at(const struct pawl_wheel *wheel, uint32_t timer)
{
    return pawl_pool_entry(&wheel->timers, timer, sizeof(struct pawl_timer));
}

/* The next timer with due <= now, disarmed, or 0. Spends *budget, one for each timer that is moved
 * or fired; answers 0 also when it is used up (pawl_wheel_behind() tells). */
uint32_t pawl_wheel_fire(struct pawl_wheel *wheel, uint64_t now, uint32_t *budget);
/* There is work for this `now` that a spent budget left. */
bool pawl_wheel_behind(const struct pawl_wheel *wheel, uint64_t now);
/* Not later than the next due time rounded up to its tick; UINT64_MAX: no timer is armed. */
uint64_t pawl_wheel_next(const struct pawl_wheel *wheel);

#endif
