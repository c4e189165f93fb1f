/* SPDX-License-Identifier: MIT */
/* Which objects need which segment: a list a segment and kind, through struct pawl_home of the
 * objects. Segments are found by their low bits: the log never holds so many at once. */
#include "core/core_inner.h"

_Static_assert(sizeof(struct pawl_core_home_slot) <= 44, "eleven megabytes of address space");

struct pawl_home *pawl_core_home_of(const struct pawl_core *core, enum pawl_core_kind kind,
                                    uint32_t n)
{
    switch (kind) {
    case PAWL_KIND_MESSAGE:
        return &pawl_core_message_at(core, n)->home;
    case PAWL_KIND_QUEUE:
        return &pawl_core_queue_at(core, n)->home;
    case PAWL_KIND_SESSION:
        return &pawl_core_session_at(core, n)->home;
    case PAWL_KIND_LEDGER:
        return &pawl_ledger_at(&core->ledger, n)->home;
    case PAWL_KIND_STATE:
        return &pawl_cell_at(core, n)->home;
    case PAWL_KIND_RESERVATION:
        return &pawl_core_reservation_at(core, n)->home;
    case PAWL_KIND_IDEM:
        return &pawl_core_idem_at(core, n)->home;
    case PAWL_KIND_HORIZON:
        return (struct pawl_home *)(uintptr_t)&core->horizon_home;
    default:
        return &pawl_core_lane_at(core, n)->home;
    }
}

struct pawl_core_home_slot *pawl_core_home_slot(const struct pawl_core *core, uint64_t segment)
{
    struct pawl_core_home_slot *slot = &core->homes[segment & (PAWL_HOME_SLOTS - 1)];
    return slot->segment == (uint32_t)segment + 1 ? slot : NULL;
}

static void leave(struct pawl_core *core, enum pawl_core_kind kind, struct pawl_home *h)
{
    struct pawl_core_home_slot *slot = &core->homes[(h->segment - 1) & (PAWL_HOME_SLOTS - 1)];
    PAWL_ASSERT_REL(slot->segment, ==, h->segment);
    if (h->prev)
        pawl_core_home_of(core, kind, h->prev)->next = h->next;
    else
        slot->first[kind] = h->next;
    if (h->next)
        pawl_core_home_of(core, kind, h->next)->prev = h->prev;
    if (--slot->count == 0)
        slot->segment = 0;
}

void pawl_core_home_move(struct pawl_core *core, enum pawl_core_kind kind, struct pawl_home *h,
                         uint32_t n, uint64_t lsn)
{
    uint64_t segment = lsn >> core->segment_shift;
    uint32_t name = lsn == 0 ? 0 : (uint32_t)segment + 1;
    if (h->segment == name)
        return;
    if (h->segment)
        leave(core, kind, h);
    *h = (struct pawl_home){ 0, 0, name };
    if (name == 0)
        return;
    struct pawl_core_home_slot *slot = &core->homes[segment & (PAWL_HOME_SLOTS - 1)];
    if (slot->count == 0)
        slot->segment = name;
    /* 262,144 segments at once: the log's limit is far below. */
    PAWL_ASSERT_REL(slot->segment, ==, name);
    h->next = slot->first[kind];
    if (h->next)
        pawl_core_home_of(core, kind, h->next)->prev = n;
    slot->first[kind] = n;
    slot->count++;
}
