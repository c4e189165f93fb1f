/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_IDEM_H
#define PAWL_CORE_IDEM_H

/* Idempotent operations (semantics 9): who does the work of a key, and what came of it.
 *
 *                 begin: FIRST              complete
 *   NONE ─────────────────────> IN_PROGRESS ────────> DONE | FAILED ── retention ──> NONE
 *                                │        ▲
 *      abandon, end of the lease │        │ begin: FIRST, told how many tried before
 *      or of the owner's session ▼        │
 *                                ABANDONED ── retention ──> NONE
 *
 * A key lives in a scope, which is a table (state.h): so rights, limits and the end of a scope are
 * those of a table. It is told apart by the XXH3-128 of all of it under the directory's secret.
 *
 * One record a change says the whole entry after it, what was kept of the work included, so an
 * entry's home is its newest record. The end of a session needs none: its SESSION_END abandons what
 * it had in its hands, by the same apply in recovery.
 *
 * A grant is a number of the one counter of all leases, the epoch on top: it grows with every owner
 * and over crashes, so that an outside system can refuse the lower one. A command is judged by the
 * deadline itself, whether the timer has fired or not. After a restart who works has his full time
 * again. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/command.h"
#include "core/message.h"
#include "core/record.h"

struct pawl_core;
struct pawl_core_queue;
struct pawl_core_session;
struct pawl_take;

struct pawl_core_idem {
    uint64_t id, id_high; /* hash of table and key */
    uint32_t chain;
    struct pawl_home home;
    uint64_t hash; /* of the parameters */
    uint64_t grant, random;
    uint64_t since; /* pawl time of the last change of its state */
    uint64_t end;   /* IN_PROGRESS: of the lease; else when it is forgotten */
    uint64_t lease_ns, retain_ns;
    uint64_t lsn; /* DONE, FAILED: of the completion */
    uint64_t seq; /* of the BEGIN; 0: its lane is another by now */
    uint32_t table;
    uint32_t block, bytes; /* result, or progress */
    uint32_t attempts;     /* owners so far */
    uint32_t session;      /* IN_PROGRESS: pool number */
    uint32_t next, prev;   /* of the session */
    uint32_t timer;
    uint32_t pid, uid; /* of the owner */
    int32_t code;
    uint16_t lane;
    uint8_t state;    /* enum pawl_idem_state; NONE: the entry is not used */
    bool planned;     /* a step of the transaction that is being checked ends it */
    uint32_t pending; /* FIRSTs of its owner that are on their way: till one is there its lease has
                         no end (G12) */
};

struct pawl_core_idem *pawl_core_idem_at(const struct pawl_core *core, uint32_t n);

#define PAWL_IDEMS_SHIFT 10u
#define PAWL_IDEMS_MAX 4000000u
#define PAWL_IDEMS_A_SESSION_MAX 65536u /* in progress */
#define PAWL_IDEM_RETAIN_NS (24ull * 3600 * PAWL_NS_S)
#define PAWL_IDEM_SMALL_BYTES 256u /* a result that is taken when sends are refused */
/* Log room of an end that nobody asked for. */
#define PAWL_IDEM_ROOM \
    (sizeof(struct pawl_idem_rec) + PAWL_IDEM_PROGRESS_BYTES_MAX + PAWL_RECORD_HEAD + 8)

/* A COMPLETE, ABANDON or PROGRESS, judged. check copies the bytes and changes nothing that is seen;
 * then commit, which cannot fail and returns the lsn of its record, or undo. OK_DUPLICATE: this
 * very completion was taken before, there is nothing to do. value: of a refusal. */
struct pawl_idem_plan {
    struct pawl_take *take;
    uint64_t value;
    uint64_t lease_ns;
    uint32_t n; /* entry; 0: nothing to commit or undo */
    uint32_t block, bytes;
    int32_t code;
    uint8_t state; /* it will have */
};
int pawl_core_idem_check(struct pawl_take *t, struct pawl_idem_plan *plan);
uint32_t pawl_core_idem_bytes(const struct pawl_idem_plan *plan);
/* op: whose answer it is, NULL for a part of something larger. */
uint64_t pawl_core_idem_commit(struct pawl_idem_plan *plan, const struct pawl_op_rec *op);
void pawl_core_idem_undo(struct pawl_idem_plan *plan);

void pawl_core_idem_take(struct pawl_take *t);
/* Sizes of the variable part fit the fixed one; else it is a breach of the protocol. */
bool pawl_core_idem_fits(const struct pawl_cmd_idem *c, uint32_t variable_bytes);

int pawl_core_idem_replay(struct pawl_core *core, const struct pawl_record_view *view,
                          uint64_t lsn);
int pawl_core_idem_start(struct pawl_core *core); /* -1: no memory, or no such table */
uint32_t pawl_core_idem_fact_bytes(const struct pawl_core *core, uint32_t n);
void pawl_core_idem_fact(struct pawl_core *core, uint32_t n);
void pawl_core_idem_timer(struct pawl_core *core, uint32_t n);
/* The session has ended at this pawl time: what it worked on is ABANDONED. */
void pawl_core_idem_session_end(struct pawl_core *core, struct pawl_core_session *s, uint64_t time);
/* Another lane has this number of the session: a begin of the old one is not one of its own. */
void pawl_core_idem_lane_gone(struct pawl_core *core, const struct pawl_core_session *s,
                              uint32_t lane);
/* A FIRST goes out; it is published (its data is told the time that is left), or was dropped. */
void pawl_core_idem_pending(struct pawl_core *core, uint32_t n);
void pawl_core_idem_published(struct pawl_core *core, uint32_t n, uint64_t grant,
                              struct pawl_idem_data *data);
void pawl_core_idem_dropped(struct pawl_core *core, uint32_t n, uint64_t grant);
void pawl_core_idem_free(struct pawl_core *core, uint32_t n);
/* Of a table that is gone; true: none is left. */
bool pawl_core_idem_sweep(struct pawl_core *core, struct pawl_core_queue *table, uint32_t *budget);

/* --- between idem.c and idem_take.c ---------------------------------------------------------- */

uint32_t pawl_core_idem_find(const struct pawl_core *core, uint64_t id, uint64_t id_high);
/* An entry without state, timer and home; 0: no memory. */
uint32_t pawl_core_idem_make(struct pawl_core *core, struct pawl_core_queue *table, uint64_t id,
                             uint64_t id_high);
bool pawl_core_idem_over(const struct pawl_core *core, const struct pawl_core_idem *e);
bool pawl_core_idem_worked_on(const struct pawl_core *core, const struct pawl_core_idem *e);
/* As it is: what changes is written over it. */
struct pawl_idem_rec pawl_core_idem_record(const struct pawl_core *core, uint32_t n);
/* Appends and applies it; op.extra bytes in block follow. Returns its lsn. */
uint64_t pawl_core_idem_write(struct pawl_core *core, uint32_t n, struct pawl_idem_rec *r,
                              uint32_t block, const struct pawl_op_rec *op);
uint64_t pawl_core_idem_abandon(struct pawl_core *core, uint32_t n, const struct pawl_op_rec *op);
void pawl_core_idem_give(struct pawl_core *core, uint32_t block, uint32_t bytes);

uint64_t pawl_core_idem_digest(const struct pawl_core *core);
uint64_t pawl_core_idem_verify(const struct pawl_core *core); /* returns the live bytes */

#endif
