/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_DIRECT_INNER_H
#define PAWL_BROKER_DIRECT_INNER_H

/* Between direct.c (queues, sweep), direct_attach.c (lanes) and direct_look.c (stat, dead). */

#include "session/direct.h"

struct pawl_direct_queue *pawl_directs_find(const struct pawl_directs *set, uint64_t id);
struct pawl_direct_queue *pawl_direct_queue_add(struct pawl_directs *set, uint64_t id,
                                                const char *name,
                                                const struct pawl_queue_options *options);
/* EMPTY -> HERE with a new memory. PAWL_OK, E_FULL, E_RESOURCE, E_QUOTA, E_INVALID. */
int pawl_direct_queue_make(struct pawl_directs *set, struct pawl_direct_queue *q);
/* AWAITED -> HERE; fd was proven and is ours then. PAWL_OK, or why not. */
int pawl_direct_queue_take_back(struct pawl_directs *set, struct pawl_direct_queue *q, int fd);
/* Writes down whose the lane is now. */
void pawl_direct_queue_note(struct pawl_directs *set, struct pawl_direct_queue *q, uint32_t lane);
/* AWAITED: this process says itself that it has not that memory. */
void pawl_direct_queue_disown(struct pawl_directs *set, struct pawl_direct_queue *q, uint32_t pid,
                              uint64_t start_time);
/* Proven dead, or detached. */
void pawl_direct_lane_over(struct pawl_directs *set, struct pawl_direct_queue *q, uint32_t lane);

/* struct pawl_core_direct */
void pawl_directs_stat(void *ctx, uint64_t id, struct pawl_queue_stat *out);
uint32_t pawl_directs_scan(void *ctx, uint64_t id, uint64_t after, uint32_t state_mask,
                           struct pawl_record *out, uint32_t max);
int pawl_directs_restore(void *ctx, uint64_t id, uint64_t message);

#endif
