/* SPDX-License-Identifier: MIT */
#include "loop/intake.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"

#define FIXED_BYTES_MAX 1024u

_Static_assert(sizeof(struct pawl_cmd_queue) <= FIXED_BYTES_MAX, "the largest fixed part");

/* A deadline of the client is on our boot clock; the core knows pawl time only. `shift` is their
 * difference and may be negative; what does not fit is for ever, or long over. */
static uint64_t to_pawl_time(uint64_t deadline, uint64_t shift)
{
    if (deadline == 0)
        return 0;
    if ((int64_t)shift >= 0)
        return pawl_add_sat(deadline, shift);
    uint64_t back = 0 - shift;
    return deadline > back ? deadline - back : 1;
}

enum taken { TAKEN, LATER, BREACH };

/* One record of a ring, `bytes` long by the only reading of its size. */
static enum taken take(struct pawl_intake *in, struct pawl_lane *lane, const uint8_t *record,
                       uint32_t bytes, struct pawl_now now)
{
    uint64_t fixed[FIXED_BYTES_MAX / 8];
    struct pawl_cmd *head = (struct pawl_cmd *)fixed;
    if (bytes < sizeof *head || bytes > PAWL_CMD_BYTES_MAX)
        return BREACH;
    memcpy(head, record, sizeof *head);
    /* From here on nobody can change it: tell the compiler that the ring is not to be read again.
     */
    __asm__ __volatile__("" ::: "memory");
#ifdef PAWL_BUG_DOUBLE_FETCH
    bytes = head->bytes;
#else
    head->bytes = bytes;
#endif
    uint32_t fixed_bytes = pawl_core_fixed_bytes(head->type);
    if (fixed_bytes == 0 || fixed_bytes > bytes)
        return BREACH;
    PAWL_ASSERT(fixed_bytes >= sizeof *head && fixed_bytes <= FIXED_BYTES_MAX);
    if (!pawl_engine_admits(in->engine, head)) {
        in->log_blocked = true;
        in->blocked_when = pawl_engine_progress(in->engine);
        return LATER;
    }
    if (!pawl_outbox_promise(lane, head->seq, pawl_core_answer_bytes(head->type))) {
        lane->blocked = true;
        return LATER;
    }
    memcpy((uint8_t *)fixed + sizeof *head, record + sizeof *head, fixed_bytes - sizeof *head);
    head->deadline = to_pawl_time(head->deadline, pawl_engine_shift(in->engine));
    int rc = pawl_core_take(pawl_engine_core(in->engine), lane->core, fixed, record + fixed_bytes,
                            bytes - fixed_bytes, now);
    return rc == PAWL_OK ? TAKEN : BREACH;
}

uint32_t pawl_intake_lane(struct pawl_intake *in, struct pawl_lane *lane, struct pawl_now now,
                          uint32_t share)
{
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
        enum taken taken = take(in, lane, record, bytes, now);
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
