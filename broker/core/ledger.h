/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_LEDGER_H
#define PAWL_CORE_LEDGER_H

/* The ledger: what is remembered of what has happened, found by 128 bits. One pool and one index
 * for all kinds; 72 bytes an entry and 4 of the index. Nothing ever stops to grow: the pool takes
 * a chunk, the index a bucket at a time.
 *
 *   kind  id, id_high               a           b          c         d          result
 *   KEY   hash of queue and key     message id  body hash  its end   queue      last state; NONE:
 *                                                                    (pool)     the message lives
 *   OP    the op-id                 value       its hash*  lsn       seconds    result
 *                                                                    accepted
 *
 *   * its lowest 16 bits are those of pawl_outcome_rec.detail
 *
 * When an entry goes:
 *   KEY  at its end (pawl time), which the clock alone decides: whoever finds one compares c. What
 *        is over is given back from a calendar of seconds, a timer at its first day. While its
 *        message lives it stays, in no list, and the end of the message decides (key.c).
 *   OP   `op_retention_ns` after it was accepted, from such a calendar of its own; or before, the
 *        oldest first, where count, log or memory want room: `horizon` is then the newest time (of
 *        ids, ms) that was forgotten.
 *        Ids of lanes (left.c) have no time in them: `left_horizon`.
 *
 * Names are compared in all 128 bits; the index hashes the low ones under a secret, so that ids
 * that a client makes up cannot be made to meet in one bucket. */

#include <stdbool.h>
#include <stdint.h>

#include "core/message.h"
#include "core/pool.h"
#include "core/table.h"

struct pawl_core;

enum pawl_ledger_kind {
    PAWL_LEDGER_NONE, /* the entry is not in use */
    PAWL_LEDGER_KEY,
    PAWL_LEDGER_OP,
    PAWL_LEDGER_KINDS
};

struct pawl_ledger_entry {
    uint64_t id; /* as the index wants it: pawl_core_ledger_name() gives it back */
    uint64_t id_high;
    uint32_t chain;
    uint32_t next, prev; /* ring of its day */
    struct pawl_home home;
    uint64_t a, b, c;
    uint32_t d;
    int16_t result;
    uint8_t kind;
    uint8_t flags; /* PAWL_LEDGER_LISTED, and from 2 on the kind's own */
};
#define PAWL_LEDGER_LISTED 1u
#define PAWL_LEDGER_STEP 4u /* OP: a transaction refused */
#define PAWL_LEDGER_KEPT 2u /* OP: beyond its day, for a wall clock that was set back */

_Static_assert(sizeof(struct pawl_ledger_entry) == 72, "ten million of them are normal");

#define PAWL_LEDGER_SHIFT 13u             /* entries a chunk of the pool */
#define PAWL_LEDGER_MAX_DEFAULT 10000000u /* of each kind */
/* A day of the calendars: 1.07 s and 8.6 s, so that they reach 13 and 104 days ahead: more than any
 * window and any retention. */
#define PAWL_LEDGER_KEY_DAY 30u
#define PAWL_LEDGER_OP_DAY 33u
#define PAWL_LEDGER_DAYS (1u << 20)
#define PAWL_OP_RETENTION_NS_DEFAULT (86400 * 1000000000ull)

/* When the entries of a kind are over: a ring of them a day, in order of insertion. */
struct pawl_ledger_calendar {
    uint32_t *days; /* first of each ring */
    uint64_t *map;  /* a bit a day that has one */
    uint64_t today; /* days before are done with */
    uint32_t shift; /* of a day in ns */
    uint32_t timer;
};

struct pawl_ledger {
    struct pawl_pool pool;
    struct pawl_table table;
    uint64_t max;    /* of each kind */
    uint64_t op_max; /* of OP: what the log has room for */
    uint64_t count[PAWL_LEDGER_KINDS];
    uint64_t op_retention_ns;
    uint64_t horizon;      /* ms, as in ids; 0: nothing was forgotten early */
    uint64_t left_horizon; /* s of pawl time: behind the newest d of an id of a lane so forgotten */
    uint64_t secret;
    struct pawl_ledger_calendar calendars[PAWL_LEDGER_KINDS];
    bool started;
    uint32_t sweep; /* where looking for keys of gone queues goes on */
    uint64_t ahead; /* name that is looked up soon; 0: none */
    uint64_t duplicates, mismatches, evicted;
};

int pawl_core_ledger_init(struct pawl_core *core);
void pawl_core_ledger_fini(struct pawl_core *core);
/* Recovery is over: makes the timers, lists all entries. 0, or -1: no memory. */
int pawl_core_ledger_start(struct pawl_core *core);

static inline struct pawl_ledger_entry *pawl_ledger_at(const struct pawl_ledger *ledger, uint32_t n)
{
    return pawl_pool_entry(&ledger->pool, n, sizeof(struct pawl_ledger_entry));
}

/* An OP under the id of a lane: abi/lane_id.h. */
static inline bool pawl_ledger_of_lane(const struct pawl_ledger_entry *e)
{
    return e->kind == PAWL_LEDGER_OP && (e->id_high >> 12 & 15) == 8;
}

/* 0: none. An entry that is over may still be found: compare c. */
uint32_t pawl_core_ledger_find(const struct pawl_core *core, enum pawl_ledger_kind kind,
                               uint64_t id, uint64_t id_high);
/* Starts fetching what a find will need. */
void pawl_core_ledger_prefetch(const struct pawl_core *core, enum pawl_ledger_kind kind,
                               uint64_t id, uint64_t id_high);
/* The name that it was inserted with. */
void pawl_core_ledger_name(const struct pawl_core *core, const struct pawl_ledger_entry *entry,
                           uint64_t *id, uint64_t *id_high);

/* May `count` more (at most 4,096) of this kind be inserted? 0, or what is short: LIMIT_LEDGER or
 * LIMIT_MEMORY. A room made by it lasts until the next insert of anybody. For OP the oldest ones
 * make room, so that it fails only where there is no memory and no OP entry at all. */
uint32_t pawl_core_ledger_ready(struct pawl_core *core, enum pawl_ledger_kind kind, uint32_t count);
/* name and words of `from` (kind, id, id_high, a, b, c, d, result, flags); its links are set here,
 * its home is the caller's. Requires that there is none of this name. Returns its number, after a
 * ready() always; 0: no memory. */
uint32_t pawl_core_ledger_insert(struct pawl_core *core, const struct pawl_ledger_entry *from);
/* Out of everything, home and core->live too. */
void pawl_core_ledger_remove(struct pawl_core *core, uint32_t n);
/* Its newest needed record is at this lsn; 0: none is needed. Counts core->live. */
void pawl_core_ledger_home(struct pawl_core *core, uint32_t n, uint64_t lsn);
/* Bytes of log that the fact of such an entry takes, head included. */
uint64_t pawl_core_ledger_fact_bytes(const struct pawl_core *core,
                                     const struct pawl_ledger_entry *entry);
/* Looks at `budget` entries for keys of queues that are gone, and drops them; what is left of the
 * budget, not 0 where a pass has ended. */
uint32_t pawl_core_ledger_sweep(struct pawl_core *core, uint32_t budget);
/* When it is over: pawl time. */
uint64_t pawl_core_ledger_end(const struct pawl_core *core, const struct pawl_ledger_entry *entry);
void pawl_core_ledger_timer(struct pawl_core *core, enum pawl_ledger_kind kind);

#endif
