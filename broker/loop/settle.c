/* SPDX-License-Identifier: MIT */
/* The end of a turn: hands out what is ready, copies what still lives in the oldest segment, keeps
 * the promise about room, and decides when a block is written.
 *
 * When the open block is sealed
 *   somebody waits for it   in flight   bytes          then
 *   yes                     none        any            at once: waiting would only add time
 *   yes                     some        >= 64 KiB      at once, if a slot is free
 *   yes                     some        less           when the one in flight is done (16 producers
 *                                                      with one send each: 63,000 against 59,000)
 *   no (relaxed)            none        >= half block  at once, so that the next does not stall
 *   no (relaxed)            any         less           relaxed_window after its first record
 *   something found no room any         any            at once, if a slot is free
 *
 * Copy-forward. Begins when the log is longer than twice its live bytes plus a segment (earlier
 * where it cannot grow), takes the oldest segment, and releases it when all copies are durable. The
 * last two segments that are free are for copies alone: commands and timers wait that moment. Each
 * turn it may append as much as twice what the turn itself appended, at least COPY_BYTES_MIN: the
 * released segment then always comes before the log has grown by another one. While it is at it, a
 * quarter of the open block is out of reach for commands, else a full load would leave it nothing.
 *
 * Room. `live` is what all facts would take. Sends are taken while the segments on disk hold twice
 * that and two segments: one for acks and decisions, one for copies (G10, L3). Growth is asked for
 * two segments ahead; where it cannot be had, sends are refused by name; where it is under way and
 * late, they are held back for that moment. */
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "loop/engine_inner.h"

#define SECOND_BLOCK_BYTES 65536u
#define COPY_BYTES_MIN 65536u
#define COPY_PACE 2u       /* bytes copied for one appended */
#define COPY_PACE_EARLY 8u /* where the log cannot grow */
#define OUTCOMES_SHARE 8u  /* of the log */
#define MARK_AFTER_NS 100000000ull
#define RETRY_DISK_NS 1000000000ull

/* Does anybody wait for a record of the open block? */
static bool open_block_wanted(const struct pawl_engine *e) { return e->want_lsn > e->sealed; }

static bool seal_due(const struct pawl_engine *e)
{
    uint32_t in_flight = pawl_log_in_flight(e->log);
    uint64_t bytes = pawl_log_appended(e->log) - e->sealed;
    if (in_flight >= e->in_flight_max)
        return false;
    if (e->starved)
        return true;
    if (open_block_wanted(e))
        return in_flight == 0 || bytes >= SECOND_BLOCK_BYTES;
    return e->boot >= pawl_add_sat(e->open_since, e->relaxed_window_ns) ||
           (in_flight == 0 && bytes >= e->block_bytes / 2);
}

void pawl_engine_seal(struct pawl_engine *engine, bool at_once)
{
    struct pawl_engine *e = engine;
    if (!pawl_log_pending(e->log) || pawl_log_failed(e->log) || !(at_once || seal_due(e)))
        return;
    pawl_log_seal(e->log, e->now.time, e->boot, e->now.wall);
    /* The log must wait: the first block of a segment does, for all before it; any does while the
     * next segment is not there. */
    e->seal_blocked = pawl_log_pending(e->log);
    if (e->seal_blocked)
        return;
    e->sealed = pawl_log_appended(e->log);
    e->starved = false;
    e->blocks++;
    e->progress++;
}

/* --- copy-forward ---------------------------------------------------------------------------- */

static uint64_t used_bytes(const struct pawl_engine *e)
{
    return pawl_log_appended(e->log) - pawl_log_oldest_segment(e->log) * e->segment_bytes;
}

/* Room that decisions count on: one segment beyond the limit (pawl_log_rescue) is for copies. */
static uint64_t usable_bytes(const struct pawl_engine *e)
{
    uint64_t existing = pawl_log_existing(e->log);
    return existing > pawl_log_max(e->log) ? existing - e->segment_bytes : existing;
}

static uint64_t others(const struct pawl_engine *e)
{
    return pawl_log_appended(e->log) - e->copied;
}

/* A round over all segments leaves what lives and the gaps between blocks. Another one wins nothing
 * before something has ended or been written since: without this a full log would copy itself for
 * ever. Where little is left, that is the smaller evil. */
static bool round_pays(const struct pawl_engine *e)
{
    uint64_t oldest = pawl_log_oldest_segment(e->log), live = pawl_core_live(e->core);
    uint64_t in_use = pawl_log_newest_segment(e->log) - oldest + 1;
    uint64_t ended = e->early_live > live ? e->early_live - live : 0;
#ifdef PAWL_BUG_COPY_IN_A_CIRCLE
    return true;
#endif
    return oldest <= e->early_until || /* it goes on */
           others(e) - e->early_others + ended >= e->segment_bytes / 2 ||
           usable_bytes(e) < (in_use + 3) * e->segment_bytes;
}

/* The log cannot grow, and there is little left beside what a whole round of copies may take: a
 * fact of a message takes up to twice what its send took, so copying a stretch of sends that are
 * all alive needs more room than it frees. Then it must begin before twice the live bytes are
 * there, and the garbage that a round frees must be worth it. */
static bool copy_early(const struct pawl_engine *e)
{
    uint64_t used = used_bytes(e), live = pawl_core_live(e->core), segment = e->segment_bytes;
    return !pawl_log_may_grow(e->log) && used > live + segment + segment / 2 &&
           used + live / 4 * 3 + 3 * segment > usable_bytes(e) && round_pays(e);
}

static bool copy_needed(const struct pawl_engine *e)
{
    if (pawl_log_oldest_segment(e->log) == pawl_log_newest_segment(e->log))
        return false;
    return used_bytes(e) > 2 * pawl_core_live(e->core) + e->segment_bytes || copy_early(e);
}

/* Copy-forward must go on before anything else may take of the last free segments: else a log that
 * cannot grow comes to a stand with nothing left to copy into. */
static bool squeezed(const struct pawl_engine *e)
{
    uint64_t in_use = pawl_log_newest_segment(e->log) - pawl_log_oldest_segment(e->log) + 1;
    return usable_bytes(e) < (in_use + 2) * e->segment_bytes && copy_needed(e);
}

/* True: there is more to copy and room for it now. */
static bool copy_forward(struct pawl_engine *e)
{
    if (e->release_at != 0) {
        if (pawl_log_durable(e->log) <= e->release_at)
            return false;
        pawl_log_release_oldest(e->log);
        e->release_at = 0;
        e->progress++;
    }
    if (!copy_needed(e)) {
        e->reserve = 0;
        return false;
    }
    e->reserve = e->block_bytes / 4;
    if (pawl_log_oldest_segment(e->log) > e->early_until && copy_early(e)) {
        e->early_until = pawl_log_newest_segment(e->log);
        e->early_others = others(e);
        e->early_live = pawl_core_live(e->core);
    }
    uint64_t before = pawl_log_appended(e->log);
    uint64_t pace = copy_early(e) ? COPY_PACE_EARLY : COPY_PACE;
    uint64_t budget = pawl_max_u64(COPY_BYTES_MIN, pace * (before - e->settled));
    e->copying = true;
    bool done = pawl_core_copy(e->core, pawl_log_oldest_segment(e->log), budget, e->now);
    e->copying = false;
    e->copied += pawl_log_appended(e->log) - before;
    if (done) {
        e->release_at = pawl_log_appended(e->log);
        e->reserve = 0;
        /* Nobody waits for the copies, but the segment does. */
        e->want_lsn = pawl_max_u64(e->want_lsn, e->release_at);
        return false;
    }
    uint64_t copied = pawl_log_appended(e->log) - before;
    if (copied + COPY_BYTES_MIN / 2 >= budget)
        return true;
    e->starved = true;
    if (copied != 0 || pawl_log_pending(e->log))
        return false;
    /* Not even an empty block was enough: a large message at the end of a segment. */
    if (pawl_log_admit(e->log, e->record_bytes_max))
        return true;
        /* Or there is no block. Before the last segments are taken there is room for a round of
         * copies (squeezed()), but a crash in the middle of one costs some of it, and then another
         * crash. */
#ifndef PAWL_BUG_NO_RESCUE
    if (pawl_log_room(e->log) == 0 && pawl_log_in_flight(e->log) == 0)
        pawl_log_rescue(e->log);
#endif
    return false;
}

/* --- room for sends -------------------------------------------------------------------------- */

/* Outcomes of op-ids have an eighth of the log. They come whether sends are refused or not, so what
 * is not yet taken of it counts as taken where the log cannot grow. */
static uint64_t outcomes_to_come(struct pawl_engine *e, uint64_t log_bytes)
{
    uint64_t bytes = log_bytes / OUTCOMES_SHARE, have = pawl_core_outcome_bytes(e->core);
    pawl_core_limit_outcomes(e->core, bytes);
    return have < bytes ? bytes - have : 0;
}

static void space(struct pawl_engine *e)
{
    uint64_t existing = usable_bytes(e);
    uint64_t promised = 2 * pawl_core_live(e->core) + 2 * e->segment_bytes;
    uint64_t want = promised + 2 * e->segment_bytes;
    if (e->reserve != 0) /* copies of sends may take more than they free: see copy_early() */
        want = pawl_max_u64(want, used_bytes(e) + 4 * e->segment_bytes);
    if (existing < want)
        pawl_log_want(e->log, want);

    bool grows = pawl_log_may_grow(e->log);
    /* Once refusing, an eighth of a segment must be won back: no flutter at the edge. */
    uint64_t enough = promised + (e->refusing ? e->segment_bytes / 8 : 0) +
                      outcomes_to_come(e, grows ? pawl_log_max(e->log) : existing);
    uint32_t refuse = PAWL_LIMIT_NONE;
    if (existing < enough && !grows)
        refuse = pawl_log_disk_full(e->log) ? PAWL_LIMIT_DISK : PAWL_LIMIT_LOG;
    if (refuse != e->refusing) {
        e->refusing = refuse;
        pawl_core_refuse_sends(e->core, refuse);
        e->progress++;
    }
    bool squeeze = squeezed(e);
    if (squeeze != e->squeezed) {
        e->squeezed = squeeze;
        e->progress++;
    }
    bool hold = grows && existing < promised - e->segment_bytes;
    if (hold != e->hold_sends) {
        e->hold_sends = hold;
        e->progress++;
    }
}

/* --- marker ---------------------------------------------------------------------------------- */

static bool mark_wanted(const struct pawl_engine *e)
{
    return !pawl_log_pending(e->log) && pawl_log_in_flight(e->log) == 0 && !pawl_log_marked(e->log);
}

static void mark_when_idle(struct pawl_engine *e)
{
    if (mark_wanted(e) && e->boot >= pawl_add_sat(e->active_at, MARK_AFTER_NS))
        pawl_log_mark(e->log, false, e->now.time, e->boot, e->now.wall);
}

bool pawl_engine_settle(struct pawl_engine *engine)
{
    struct pawl_engine *e = engine;
    if (pawl_log_failed(e->log))
        return false;
    uint64_t progress = e->progress;
    bool more = pawl_core_pump(e->core, e->now);
    if (more)
        e->starved = true;
    space(e);
    pawl_engine_seal(e, false);
    /* Behind the seal, since a block that is still empty takes any record. */
    bool copy_more = copy_forward(e);
    /* It may have given a segment back. What waits for room must not be left to the next turn,
     * which may be far: timers would be late (G12). */
#ifndef PAWL_BUG_SQUEEZED_TOO_LONG
    if (e->squeezed && !squeezed(e)) {
        e->squeezed = false;
        e->progress++;
    }
#endif
    pawl_engine_seal(e, false);
    e->settled = pawl_log_appended(e->log);
    pawl_log_tend(e->log, e->boot);
    mark_when_idle(e);
    if (pawl_log_failed(e->log))
        return false; /* the io may answer at once */
    (void)pawl_engine_flush(e);
    /* The log has room again without a block or a seal: the next segment has come. */
    uint64_t room = pawl_engine_room(e);
    if (room > e->room_was) {
        e->progress++;
        if (!pawl_log_pending(e->log))
            e->starved = false; /* else the open block is still to be sealed for it */
    }
    e->room_was = room;
    /* What waits for room has it only if something moved; else the disk will wake us. */
    return copy_more || (more && e->progress != progress);
}

uint64_t pawl_engine_next(const struct pawl_engine *engine)
{
    const struct pawl_engine *e = engine;
    uint64_t next = UINT64_MAX;
    uint64_t due = pawl_core_next(e->core);
    if (due > e->now.time && due != UINT64_MAX)
        next = e->boot + (due - e->now.time);
    else if (due <= e->now.time && !e->starved)
        next = e->boot;
    /* A block that somebody waits for is not sealed for one reason only: another is in flight, and
     * its end wakes us. So is one that the log would not take. */
    if (pawl_log_pending(e->log) && !open_block_wanted(e) && !e->seal_blocked &&
        pawl_log_in_flight(e->log) < e->in_flight_max)
        next = pawl_min_u64(next, pawl_add_sat(e->open_since, e->relaxed_window_ns));
    if (mark_wanted(e))
        next = pawl_min_u64(next, pawl_add_sat(e->active_at, MARK_AFTER_NS));
    if (pawl_log_disk_full(e->log))
        next = pawl_min_u64(next, pawl_add_sat(e->boot, RETRY_DISK_NS));
    return next;
}
