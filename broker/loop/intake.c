/* SPDX-License-Identifier: MIT */
#include "loop/intake.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/kill.h"

#define FIXED_BYTES_MAX 1024u

_Static_assert(sizeof(struct pawl_cmd_queue) <= FIXED_BYTES_MAX, "the largest fixed part");

/* A deadline of the client is on our boot clock; the core knows pawl time only. `shift` is their
 * difference and may be negative; what does not fit is for ever, or long over. */
static uint64_t to_pawl_time(uint64_t deadline, uint64_t shift)
{
    if ((int64_t)shift >= 0)
        return pawl_add_sat(deadline, shift);
    uint64_t back = 0 - shift;
    return deadline > back ? deadline - back : 1;
}

void pawl_intake_init(struct pawl_intake *in, struct pawl_lanes *lanes, struct pawl_engine *engine)
{
    memset(in, 0, sizeof *in);
    in->lanes = lanes;
    in->engine = engine;
    in->core = pawl_engine_core(engine);
    for (uint16_t type = 0; type < PAWL_CMD_TYPES; type++) {
        struct pawl_cmd head = { .type = type };
        struct pawl_intake_type *t = &in->types[type];
        t->fixed_bytes = pawl_core_fixed_bytes(type);
        PAWL_ASSERT(t->fixed_bytes == 0 ||
                    (t->fixed_bytes >= sizeof head && t->fixed_bytes <= FIXED_BYTES_MAX));
        t->answer_bytes = pawl_core_answer_bytes(type);
        t->need = (uint32_t)pawl_core_need(&head);
        head.bytes = FIXED_BYTES_MAX;
        t->grows = pawl_core_need(&head) != t->need;
        t->exact = type == PAWL_CMD_SEND || (type >= PAWL_CMD_ACK && type <= PAWL_CMD_RENEW);
    }
}

/* Is there room in the log? Mostly answered by what the drain has found free before. */
static bool admits(struct pawl_intake *in, const struct pawl_intake_type *type,
                   const struct pawl_cmd *head)
{
    uint64_t need = type->need + (type->grows ? head->bytes : 0);
    if (PAWL_UNLIKELY(!type->exact))
        need = pawl_core_need(head);
    else if (PAWL_UNLIKELY(head->flags & PAWL_CMD_IDENTIFIED))
        need = UINT64_MAX; /* the engine knows */
    if (need > in->free)
        in->free = pawl_engine_free(in->engine);
    if (need <= in->free) {
        in->free = type->exact ? in->free - need : 0;
        return true;
    }
    in->free = 0;
    return pawl_engine_admits(in->engine, head);
}

/* The fixed part behind the head. Nearly all are of a few sizes up to this one: so one copy of a
 * known size, which may read beyond the record but not beyond the mapping. */
static void copy_rest(uint64_t *fixed, const uint8_t *record, uint32_t fixed_bytes)
{
    enum { HEAD = sizeof(struct pawl_cmd), USUAL = sizeof(struct pawl_cmd_settle) };
    if (PAWL_LIKELY(fixed_bytes <= USUAL))
        memcpy((uint8_t *)fixed + HEAD, record + HEAD, USUAL - HEAD);
    else
        memcpy((uint8_t *)fixed + HEAD, record + HEAD, fixed_bytes - HEAD);
}

enum taken { TAKEN, LATER, BREACH };

/* One record of a ring, `bytes` long by the only reading of its size. */
static inline enum taken take(struct pawl_intake *in, struct pawl_lane *lane, const uint8_t *record,
                              uint32_t bytes, struct pawl_now now,
                              uint64_t fixed[FIXED_BYTES_MAX / 8])
{
    struct pawl_cmd *head = (struct pawl_cmd *)fixed;
    if (bytes < sizeof *head || bytes > PAWL_CMD_BYTES_MAX)
        return BREACH;
    memcpy(head, record, sizeof *head);
    /* From here on nobody can change it: tell the compiler that the ring is not to be read again.
     */
    __asm__ __volatile__("" ::: "memory");
    head->bytes = bytes;
    if (head->type >= PAWL_CMD_TYPES)
        return BREACH;
    const struct pawl_intake_type *type = &in->types[head->type];
    if (type->fixed_bytes == 0 || type->fixed_bytes > bytes)
        return BREACH;
    if (!admits(in, type, head)) {
        in->log_blocked = true;
        in->blocked_when = pawl_engine_progress(in->engine);
        return LATER;
    }
    bool answer = type->answer_bytes == sizeof(struct pawl_comp_answer);
    if (!(answer && pawl_outbox_promise_answer(lane)) &&
        !pawl_outbox_promise(lane, head->seq, type->answer_bytes)) {
        lane->blocked = true;
        return LATER;
    }
    copy_rest(fixed, record, type->fixed_bytes);
    in->ahead = head->type == PAWL_CMD_SEND && ((struct pawl_cmd_send *)fixed)->key_bytes != 0;
#ifdef PAWL_BUG_DOUBLE_FETCH
    bytes = pawl_load_rlx_u32((const uint32_t *)(const void *)record);
#endif
    if (head->deadline)
        head->deadline = to_pawl_time(head->deadline, pawl_engine_shift(in->engine));
    PAWL_KILL_POINT("broker-before-dequeue");
    int rc = pawl_core_take(in->core, lane->core, fixed, record + type->fixed_bytes,
                            bytes - type->fixed_bytes, now);
    PAWL_KILL_POINT("broker-after-apply");
    return rc == PAWL_OK ? TAKEN : BREACH;
}

/* What is in the ring behind the record that is about to be taken, as far as is known without
 * asking. Its size is read for this alone. */
static void look_ahead(struct pawl_intake *in, const struct pawl_lane *lane)
{
    const struct pawl_ring_consumer *r = &lane->in;
    if (r->next == r->tail)
        return;
    const uint8_t *record = r->data + (r->next & (r->size - 1));
    uint32_t bytes = pawl_load_rlx_u32((const uint32_t *)(const void *)record);
    if (bytes <= r->tail - r->next)
        pawl_core_ahead(pawl_engine_core(in->engine), record, bytes);
}

uint32_t pawl_intake_lane(struct pawl_intake *in, struct pawl_lane *lane, struct pawl_now now,
                          uint32_t share)
{
    uint64_t fixed[FIXED_BYTES_MAX / 8]; /* the private copy of one command after the other */
    const char *why = NULL;
    uint32_t n = 0;
    while (n < share && !why) {
        const void *record;
        uint32_t bytes;
        enum pawl_ring_result r = pawl_ring_next(&lane->in, &record, &bytes);
        if (r == PAWL_RING_EMPTY)
            break;
        if (r == PAWL_RING_BREACH) {
            why = "a word of a submission ring is out of its range";
            break;
        }
        if (PAWL_UNLIKELY(in->ahead))
            look_ahead(in, lane);
        enum taken taken = take(in, lane, record, bytes, now, fixed);
        if (taken == LATER) {
            lane->in.next -= bytes;
            break;
        }
        if (taken == BREACH)
            why = "a malformed command";
        else
            n++;
    }
    if (!why && !pawl_ring_refresh(&lane->out))
        why = "it has read what was never written";
    if (why)
        pawl_session_doom(lane->session, PAWL_E_PROTOCOL, why);
    if (n > 0)
        pawl_lane_mark_dirty(lane);
    in->taken += n;
    return n;
}

static void offer_room(struct pawl_intake *in, struct pawl_lane *lane)
{
    if (lane->room_wanted != 0 && pawl_outbox_has_room(lane)) {
        lane->room_wanted = 0;
        pawl_core_lane_room(pawl_engine_core(in->engine), lane->core);
    }
}

uint32_t pawl_intake_drain(struct pawl_intake *in, struct pawl_now now, bool *more)
{
    struct pawl_list *active = &in->lanes->active;
    uint32_t total = 0;
    *more = false;
    if (in->log_blocked && pawl_engine_progress(in->engine) == in->blocked_when)
        return 0; /* only the disk can help, and it wakes us (trap 4) */
    in->log_blocked = false;
    in->free = 0; /* settled since */
    for (uint32_t left = in->lanes->active_count; left > 0; left--) {
        if (pawl_list_empty(active))
            break; /* a session was doomed, and with it lanes that we counted */
        if (total >= PAWL_INTAKE_TURN_SHARE) {
            *more = true;
            break;
        }
        struct pawl_lane *lane = PAWL_CONTAINER(active->next, struct pawl_lane, place);
        lane->blocked = false;
        offer_room(in, lane);
        uint32_t n = pawl_intake_lane(in, lane, now, PAWL_INTAKE_LANE_SHARE);
        total += n;
        if (!lane->active)
            continue; /* doomed */
        if (in->log_blocked)
            break; /* it stays first: the next room is its own */
        pawl_list_remove(&lane->place);
        pawl_list_push_back(active, &lane->place);
        if (n == PAWL_INTAKE_LANE_SHARE)
            *more = true;
        if (n > 0)
            lane->empty_turns = 0;
        else
            lane->empty_turns++;
        if (lane->blocked || lane->empty_turns >= PAWL_LANE_EMPTY_TURNS)
            (void)pawl_lane_rest(lane);
    }
    return total;
}

bool pawl_intake_rest(struct pawl_intake *in)
{
    bool all = true;
    if (in->log_blocked) {
        if (pawl_engine_progress(in->engine) != in->blocked_when)
            return false;
        return true; /* what they hold cannot be taken: they stay, and the disk wakes us */
    }
    struct pawl_list *next;
    for (struct pawl_list *l = in->lanes->active.next; l != &in->lanes->active; l = next) {
        next = l->next;
        all = pawl_lane_rest(PAWL_CONTAINER(l, struct pawl_lane, place)) && all;
    }
    return all;
}
