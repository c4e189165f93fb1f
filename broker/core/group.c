/* SPDX-License-Identifier: MIT */
/* Several records as one.
 *
 * While a group is open, what pawl_core_append() hands out lies inside one GROUP record, so that
 * the log holds all of it or nothing. Whoever decides need not know: the same code writes a record
 * alone and as a part.
 *
 *   open     the size of all parts is known before the first is written: the record is appended
 *            whole, in one block, and filled in then
 *   append   the next part; its lsn is that of the group
 *   close    the outcome is the last part; all of the size must have been used
 *
 * A crash in between meets no half group: the block that holds it is sealed only after the command
 * has been taken whole. */
#include "core/core_inner.h"

void pawl_core_group_open(struct pawl_core *core, uint32_t bytes)
{
    struct pawl_core_group *g = &core->group;
    bytes += PAWL_OUTCOME_PART;
    PAWL_ASSERT(!g->open && bytes % 8 == 0);
    g->at = core->port.append(core->port.ctx, PAWL_RECORD_GROUP, bytes, &g->lsn);
    g->left = bytes;
    g->open = g->wanted = true;
}

static void *place(struct pawl_core_group *g, uint16_t type, uint32_t bytes)
{
    const struct pawl_sub_rec head = { .type = type, .bytes = bytes };
    uint32_t whole = pawl_core_group_part(bytes);
    PAWL_ASSERT_REL(whole, <=, g->left);
    uint8_t *out = g->at;
    memset(out + whole - 8, 0, 8); /* the zeros behind the body */
    memcpy(out, &head, sizeof head);
    g->at += whole;
    g->left -= whole;
    return out + sizeof head;
}

void *pawl_core_group_append(struct pawl_core *core, uint16_t type, uint32_t bytes, uint64_t *lsn)
{
    struct pawl_core_group *g = &core->group;
    if (!g->open) /* one effect under an id of the caller */
        pawl_core_group_open(core, pawl_core_group_part(bytes));
    *lsn = g->lsn;
    return place(g, type, bytes);
}

void pawl_core_group_close(struct pawl_core *core, const struct pawl_outcome_rec *outcome)
{
    struct pawl_core_group *g = &core->group;
    memcpy(place(g, PAWL_RECORD_OUTCOME, sizeof *outcome), outcome, sizeof *outcome);
    PAWL_ASSERT_REL(g->left, ==, 0u);
    *g = (struct pawl_core_group){ 0 };
}
