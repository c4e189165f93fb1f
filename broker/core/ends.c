/* SPDX-License-Identifier: MIT */
/* When leases end, for less than a timer each.
 *
 * Leases of one length end in the order in which they were published, and nearly all are gone long
 * before. So they stand in rows, one a length, and only the row has a timer. It is armed no later
 * than its first lease ends, left where it is when that one goes, and looks again when it fires: a
 * lease costs a place in a list, whatever becomes of it.
 *
 * A lease that would end before the last one of its row, or whose length finds no row, has a timer
 * of its own, as a message with a delay has. Where that comes from: pawl_core_timers_ready(). */
#include "core/core_inner.h"
#include "core/hot.h"

int pawl_core_ends_start(struct pawl_core *core)
{
    for (uint32_t i = 0; i < PAWL_ENDS_ROWS; i++) {
        core->ends[i].timer = pawl_timer_create(&core->wheel, PAWL_TIMER_ENDS, i);
        if (core->ends[i].timer == 0)
            return -1;
    }
    return 0;
}

/* The row of this length; an empty one takes any. PAWL_ENDS_ROWS: none. */
static uint32_t row_of(struct pawl_core *core, uint64_t length)
{
    uint32_t row = core->ends_used;
    if (core->ends[row].length == length)
        return row;
    uint32_t empty = PAWL_ENDS_ROWS;
    for (row = 0; row < PAWL_ENDS_ROWS && core->ends[row].length != length; row++)
        if (core->ends[row].first == 0)
            empty = row;
    if (row == PAWL_ENDS_ROWS) {
        if (empty == PAWL_ENDS_ROWS)
            return PAWL_ENDS_ROWS;
        row = empty;
        core->ends[row].length = length;
    }
    return core->ends_used = row;
}

bool pawl_core_ends_enter(struct pawl_core *core, uint32_t n, uint64_t end)
{
    struct pawl_core_lease *l = pawl_core_lease_at(core, n);
    PAWL_ASSERT_REL(l->row, ==, 0);
    /* A held one has the rest of its queue's hold time, which is another for each. */
    uint64_t length = l->kind == PAWL_LEASE_HELD ? l->lease_ns : end - core->now.time;
    uint32_t i = row_of(core, length);
    if (i == PAWL_ENDS_ROWS)
        return false;
    struct pawl_core_ends *row = &core->ends[i];
    if (row->last) {
        struct pawl_core_lease *last = pawl_core_lease_at(core, row->last);
        if (last->end > end)
            return false;
        last->row_next = n;
    } else {
        row->first = n;
#ifndef PAWL_BUG_ROW_NOT_ARMED
        if (!pawl_timer_armed(&core->wheel, row->timer) ||
            pawl_timer_due(&core->wheel, row->timer) > end)
            pawl_timer_arm(&core->wheel, row->timer, end);
#endif
    }
    l->row_prev = row->last;
    l->row_next = 0;
    l->row = (uint8_t)(i + 1);
    l->end = end;
    row->last = n;
    return true;
}

void pawl_core_ends_leave(struct pawl_core *core, struct pawl_core_lease *l)
{
    pawl_hot_ends_leave(core, l);
}

uint32_t pawl_core_ends_timer(struct pawl_core *core, uint32_t i)
{
    struct pawl_core_ends *row = &core->ends[i];
    if (row->first == 0)
        return 0;
    struct pawl_core_lease *l = pawl_core_lease_at(core, row->first);
    bool over = l->end <= core->now.time;
    if (over)
        pawl_core_ends_leave(core, l);
    if (row->first)
        pawl_timer_arm(&core->wheel, row->timer, pawl_core_lease_at(core, row->first)->end);
    return over ? l->message : 0;
}
