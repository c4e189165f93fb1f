/* SPDX-License-Identifier: MIT */
#include "loop/outbox.h"

#include <string.h>

#include "abi/wake.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/kill.h"

#define ANSWER_BYTES ((uint32_t)sizeof(struct pawl_comp_answer))
#define RUN_MAX 65536u

static uint64_t used(const struct pawl_lane *lane) { return lane->out.tail - lane->out.head; }

/* --- promises -------------------------------------------------------------------------------- */

static bool delivery_fits(const struct pawl_lane *lane, uint64_t bytes)
{
    return used(lane) + lane->promised_deliveries + bytes <= lane->out.size / 2;
}

bool pawl_outbox_reserve(void *ctx, uint32_t handle, uint32_t bytes)
{
    struct pawl_outbox *o = ctx;
    struct pawl_lane *lane = pawl_lanes_find(o->lanes, handle);
    if (!lane || !lane->comp)
        return false;
    /* A head that makes no sense is left to the drain, which ends the session. */
    if (!delivery_fits(lane, bytes) &&
        !(pawl_ring_refresh(&lane->out) && delivery_fits(lane, bytes))) {
        lane->room_wanted = bytes;
        /* An idle lane has announced only what it waited for then: it must come round once more. */
        pawl_lane_activate(lane);
        return false;
    }
    lane->promised_deliveries += bytes;
    return true;
}

bool pawl_outbox_has_room(struct pawl_lane *lane)
{
    return delivery_fits(lane, lane->room_wanted) ||
           (pawl_ring_refresh(&lane->out) && delivery_fits(lane, lane->room_wanted));
}

static bool answer_fits(const struct pawl_lane *lane, uint64_t bytes)
{
    return lane->promised_answers + bytes <= lane->out.size / 2 &&
           used(lane) + lane->promised_answers + lane->promised_deliveries + bytes <=
               lane->out.size;
}

bool pawl_outbox_promise(struct pawl_lane *lane, uint64_t seq, uint32_t bytes)
{
    if (!answer_fits(lane, bytes) && !(pawl_ring_refresh(&lane->out) && answer_fits(lane, bytes)))
        return false;
    if (bytes != ANSWER_BYTES) {
        if (lane->data_count == PAWL_LANE_DATA_MAX)
            return false;
        lane->data[lane->data_count++] = (struct pawl_lane_data){ .seq = seq, .bytes = bytes };
    }
    lane->promised_answers += bytes;
    return true;
}

/* What was promised for the answer of this command. */
static uint32_t take_back(struct pawl_lane *lane, uint64_t seq)
{
    for (uint32_t i = 0; i < lane->data_count; i++) {
        if (lane->data[i].seq == seq) {
            uint32_t bytes = lane->data[i].bytes;
            lane->data[i] = lane->data[--lane->data_count];
            return bytes;
        }
    }
    return ANSWER_BYTES;
}

/* --- writing --------------------------------------------------------------------------------- */

/* Does this answer continue the run? Equal in all but seq, which goes up by one, and value, which
 * goes up with it or stands at 0. */
static bool continues(const struct pawl_comp_answer *run, const struct pawl_core_answer *e)
{
    uint64_t count = (uint64_t)run->count_minus_1 + 1;
    bool values_run = (run->flags & PAWL_ANSWER_VALUES_RUN) != 0;
    return e->seq == run->seq + count && e->result == run->result && e->lsn == run->lsn &&
           e->flags == run->flags && count < RUN_MAX &&
           (values_run ? e->value == run->value + count : e->value == 0 && run->value == 0);
}

static void write_answer(struct pawl_lane *lane, const struct pawl_core_answer *e)
{
    uint32_t promised = lane->data_count ? take_back(lane, e->seq) : ANSWER_BYTES;
    PAWL_ASSERT_REL(lane->promised_answers, >=, promised);
    lane->promised_answers -= promised;
    if (lane->run && continues(lane->run, e)) {
        lane->run->count_minus_1++;
        return;
    }
    struct pawl_comp_answer *a = pawl_ring_claim(&lane->out, ANSWER_BYTES);
    PAWL_ASSERT(a != NULL);
    *a = (struct pawl_comp_answer){ .bytes = ANSWER_BYTES,
                                    .type = PAWL_COMP_ANSWER,
                                    .seq = e->seq,
                                    .value = e->value,
                                    .lsn = e->lsn,
                                    .result = e->result,
                                    .flags = e->flags };
    lane->run = a;
}

static void write_record(struct pawl_outbox *o, struct pawl_lane *lane, const struct pawl_effect *e)
{
    struct pawl_core *core = pawl_engine_core(o->engine);
    uint64_t *from = &lane->promised_deliveries;
    uint32_t promised = e->bytes;
    if (e->type == PAWL_EFFECT_DATA) {
        from = &lane->promised_answers;
        promised = take_back(lane, e->seq);
        PAWL_ASSERT_REL(e->bytes, <=, promised);
    }
    PAWL_ASSERT_REL(*from, >=, promised);
    *from -= promised;
    void *p = pawl_ring_claim(&lane->out, e->bytes);
    PAWL_ASSERT(p != NULL);
    lane->run = NULL;
    pawl_core_effect_write(core, e, p, pawl_engine_shift(o->engine));
    pawl_core_effect_done(core, e, true, lane->out.tail);
}

static inline void written(struct pawl_lane *lane, uint64_t lsn)
{
    lane->events++;
    if (lsn > lane->lsn)
        lane->lsn = lsn;
    /* The promise is smaller now: a command that waited for that may fit. */
    if (lane->blocked) {
        lane->blocked = false;
        pawl_lane_activate(lane);
    }
    pawl_lane_mark_dirty(lane);
}

void pawl_outbox_answer(void *ctx, uint32_t handle, uint64_t wait_lsn,
                        const struct pawl_core_answer *answer)
{
    (void)wait_lsn;
    const struct pawl_outbox *o = ctx;
    struct pawl_lane *lane = pawl_lanes_find(o->lanes, handle);
    PAWL_ASSERT(lane != NULL); /* a handle is not given back while an effect names it */
    if (!lane->comp)
        return;
    write_answer(lane, answer);
    written(lane, answer->lsn);
}

void pawl_outbox_write(void *ctx, const struct pawl_effect *effect)
{
    struct pawl_outbox *o = ctx;
    if (effect->type == PAWL_EFFECT_ANSWER) {
        const struct pawl_core_answer a = { effect->seq, effect->value, effect->lsn, effect->result,
                                            effect->flags };
        pawl_outbox_answer(o, effect->lane, effect->wait_lsn, &a);
        return;
    }
    struct pawl_lane *lane = pawl_lanes_find(o->lanes, effect->lane);
    PAWL_ASSERT(lane != NULL);
    if (!lane->comp) {
        pawl_core_effect_done(pawl_engine_core(o->engine), effect, false, 0);
        return;
    }
    write_record(o, lane, effect);
    written(lane, effect->lsn);
}

/* --- publishing ------------------------------------------------------------------------------ */

static void publish_lane(struct pawl_lane *lane, uint64_t durable)
{
    struct pawl_comp_shm *comp = lane->comp;
    pawl_store_rlx_u64(&comp->durable_lsn, durable);
    if (lane->lsn >= durable && pawl_list_empty(&lane->stale))
        pawl_list_push_back(&lane->set->stale, &lane->stale);
    if (lane->released != lane->in.next) {
        lane->released = lane->in.next;
        pawl_ring_release_seq(&lane->in, lane->released);
    }
    if (lane->out.published != lane->out.tail)
        PAWL_KILL_POINT("broker-before-publish");
    if (lane->out.published != lane->out.tail)
        pawl_store_rel_u64(&comp->events, lane->events);
    (void)pawl_ring_publish(&lane->out);
    lane->run = NULL; /* what is visible must not change any more */
}

/* Relaxed answers name positions that become durable later: their readers look at durable_lsn
 * without a call, so it moves for those lanes too. */
static void refresh_stale(struct pawl_outbox *o, uint64_t durable)
{
    struct pawl_list *list = &o->lanes->stale;
    struct pawl_list *next;
    for (struct pawl_list *l = list->next; l != list; l = next) {
        struct pawl_lane *lane = PAWL_CONTAINER(l, struct pawl_lane, stale);
        next = l->next;
        pawl_store_rel_u64(&lane->comp->durable_lsn, durable);
        if (lane->lsn < durable)
            pawl_list_remove(l);
    }
}

uint32_t pawl_outbox_publish(struct pawl_outbox *o)
{
    struct pawl_list *dirty = &o->lanes->dirty;
    uint64_t durable = pawl_log_durable(pawl_engine_log(o->engine));
    uint32_t n = 0;
    for (struct pawl_list *l = dirty->next; l != dirty; l = l->next, n++)
        publish_lane(PAWL_CONTAINER(l, struct pawl_lane, dirty), durable);
    /* All stores of the turn are made: now who waits for them? */
    while (!pawl_list_empty(dirty)) {
        struct pawl_lane *lane = PAWL_CONTAINER(dirty->next, struct pawl_lane, dirty);
        pawl_list_remove(&lane->dirty);
        uint32_t wait = pawl_wait_pending(lane->sub, lane->events, lane->served);
        if (wait == 0)
            continue;
        lane->served = wait;
#ifndef PAWL_BUG_WAKE_OMITTED
        pawl_lane_wake(lane, wait & PAWL_WAIT_KIND_MASK);
#endif
    }
    if (durable != o->durable) {
        o->durable = durable;
        refresh_stale(o, durable);
    }
    return n;
}
