/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_READY_H
#define PAWL_CORE_READY_H

/* The ready messages of one queue and priority, smallest (place, id) first. Most come with growing
 * places: a list takes these at O(1). The others, given back or due late, go into a pairing heap
 * (Fredman, Sedgewick, Sleator and Tarjan 1986): O(1) in, O(log n) amortised out, removal of any.
 * The next one is the smaller of the list's head and the heap's root. No recursion: merging walks
 * sibling lists. Uses the message's links and PAWL_MESSAGE_RETURNED. */

#include "core/message.h"
#include "core/pool.h"

struct pawl_ready {
    uint32_t first, last; /* list */
    uint32_t root;        /* heap */
    uint32_t count;
};

static inline bool pawl_ready_before(const struct pawl_core_message *a,
                                     const struct pawl_core_message *b)
{
    return a->place < b->place || (a->place == b->place && a->id < b->id);
}
void pawl_ready_insert(struct pawl_ready *ready, struct pawl_pool *messages, uint32_t message);
void pawl_ready_remove(struct pawl_ready *ready, struct pawl_pool *messages, uint32_t message);
uint32_t pawl_ready_first(const struct pawl_ready *ready, const struct pawl_pool *messages);
/* Each of them once, in no order that counts, while none goes or comes. message 0: begin. 0: all
 * were there. */
uint32_t pawl_ready_walk(const struct pawl_ready *ready, const struct pawl_pool *messages,
                         uint32_t message);

#endif
