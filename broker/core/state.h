/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_STATE_H
#define PAWL_CORE_STATE_H

/* State tables: keys with a value and a version, and reservations of numbers.
 *
 * A table is an entry of the queues pool with mode PAWL_TABLE, always durable. Its keys are
 * *cells*, kept in order in a treap (cell.c). A cell holds bytes or a number; a number is a counter
 * that can be reserved from:
 *
 *                 add                    RESERVE n             POST m <= n
 *   granted ────────────────> available ──────────> reserved ─────────────> posted
 *                                 ▲                     │ VOID, EXPIRE: n; POST: n - m
 *                                 └─────────────────────┘
 *
 * available + reserved + posted = granted, reserved >= 0, posted >= 0, and available >= 0 as long
 * as reserved + posted > 0: asserted at each apply, recovery too. The value of a number is
 * `available`.
 *
 * A version is a number of the core's one sequence (pawl_core_new_id), so it grows with each write,
 * over restarts too, and is never given again after a delete.
 *
 * One record a write says the whole state of the cell after it, so no record needs an older one and
 * a cell's home is its newest record. A RESERVATION record says the whole of the reservation and of
 * its cell. A delete needs no tombstone: whatever it deletes stands before it in the log and goes
 * before it.
 *
 * Check, commit, undo. A write is three calls, so that a transaction can be all or nothing:
 *
 *   result = pawl_core_state_check(core, peer, cmd, variable, &plan);   for each step, in order
 *   pawl_core_state_commit(core, &plan, op);                            then each, in order; or
 *   pawl_core_state_undo(core, &plan);                    those that answered OK, newest first
 *
 * check changes the cell in memory at once, which is how a later step sees what an earlier one
 * wrote; nothing else may run between the first check and the last commit or undo. It takes all the
 * memory that the step needs: commit cannot fail. commit appends the record (op: whose answer it
 * is, NULL for a part of something larger) and gives free what the write replaced. A plan that was
 * refused or needs nothing (PAWL_OK_MISSING, PAWL_OK_DUPLICATE, an assertion that holds:
 * plan->writes is false) may be committed or undone all the same: nothing happens. The caller has
 * made sure of the log's room (pawl_core_state_need). */

#include <stdbool.h>
#include <stdint.h>

#include "abi/command.h"
#include "core/message.h"
#include "core/record.h"

struct pawl_core;
struct pawl_core_peer;
struct pawl_core_queue;
struct pawl_take;

/* One key of a table. */
struct pawl_cell {
    uint32_t left, right; /* treap */
    uint32_t priority; /* of the heap: a hash of the key under a secret seed; 0: entry not used */
    uint32_t table;    /* pool number */
    struct pawl_home home;
    uint32_t key;         /* payload block */
    uint32_t value;       /* payload block of BYTES; 0 for none */
    uint32_t value_bytes; /* of BYTES */
    uint32_t open;        /* reservations that are OPEN */
    uint8_t key_bytes;
    uint8_t kind; /* enum pawl_value_kind; NONE: named by a reservation, not yet defined */
    uint16_t zero;
    uint64_t version;
    struct pawl_counts counts; /* of NUMBER */
};

/* One reservation. OPEN: counted in its cell, a timer if it has an end. Finished: remembered until
 * `end`, in the row of the finished, oldest first. */
struct pawl_core_reservation {
    uint64_t hash; /* of table and id under a secret seed: its place in the index */
    uint32_t chain;
    struct pawl_home home;
    uint8_t id[16];
    uint64_t amount, posted;
    uint64_t end; /* pawl time: OPEN: of expiry, 0 none; else of forgetting */
    uint64_t key_hash;
    uint32_t table;      /* pool number; 0: entry not used */
    uint32_t cell;       /* OPEN */
    uint32_t timer;      /* OPEN with an end */
    uint32_t next, prev; /* finished: row of all; OPEN: 0 */
    uint8_t state;       /* enum pawl_reservation_state */
    bool in_row;
    uint8_t reserved[2];
};

#define PAWL_CELLS_SHIFT 10u
#define PAWL_RESERVATIONS_SHIFT 10u
#define PAWL_RESERVATIONS_MAX 1000000u /* open and remembered */
#define PAWL_RESERVATION_KEEP_NS (24ull * 3600 * PAWL_NS_S)

/* What check has done, for commit and undo. No field is the caller's but value and writes. */
struct pawl_state_plan {
    uint64_t value; /* of the answer, or of the refusal: what was found */
    bool writes;    /* there is something to commit */
    bool created, deleted;
    uint8_t kind, old_kind;
    uint8_t reservation_state;
    uint32_t cell;
    uint32_t block, old_block; /* of the value */
    uint32_t bytes, old_bytes;
    uint64_t version, old_version;
    struct pawl_counts counts, old_counts;
    uint32_t reservation; /* 0: none */
    uint64_t posted;
    uint64_t end, old_end;
};

/* cmd: private copy of the fixed part. variable: key and value, read once, maybe changing.
 * PAWL_OK, PAWL_OK_MISSING (delete of an absent key), E_PRECONDITION (value: version or number
 * found), E_STATE (not a number; open reservations on the key), E_FULL (value: enum pawl_limit),
 * E_TOO_BIG (value: the limit), E_INVALID, E_PERM, E_NOT_FOUND, E_QUEUE_GONE, E_NOT_SUPPORTED. */
int pawl_core_state_check(struct pawl_core *core, const struct pawl_core_peer *peer,
                          const struct pawl_cmd_state *cmd, const uint8_t *variable,
                          struct pawl_state_plan *plan);
/* The same for reservations: OK (value: what is left available), PAWL_OK_DUPLICATE (RESERVE of an
 * open one with this key and amount), E_RES_... (E_RES_NOT_FOUND: no such key, or reservation) and
 * as above. */
int pawl_core_reserve_check(struct pawl_core *core, const struct pawl_core_peer *peer,
                            const struct pawl_cmd_reserve *cmd, const uint8_t *variable,
                            struct pawl_state_plan *plan);
/* For both. Returns the lsn of the record, 0 if it wrote none. */
uint64_t pawl_core_state_commit(struct pawl_core *core, struct pawl_state_plan *plan,
                                const struct pawl_op_rec *op);
void pawl_core_state_undo(struct pawl_core *core, struct pawl_state_plan *plan);
/* Bytes of the record that commit will write, without the head; 0: none. */
uint32_t pawl_core_state_bytes(const struct pawl_core *core, const struct pawl_state_plan *plan);
/* Upper bound of the log room of one STATE or RESERVE, its head included, without SESSION and LANE.
 * head->bytes: of the command, its variable part included. */
uint64_t pawl_core_state_need(const struct pawl_cmd *head);
/* Sizes of the variable part fit the fixed one; else it is a breach of the protocol. */
bool pawl_core_state_fits(uint16_t type, const void *fixed, uint32_t variable_bytes);

/* Commands alone (STATE, RESERVE; STATE_SCAN). */
void pawl_core_state_take(struct pawl_take *t);
void pawl_core_state_scan_take(struct pawl_take *t);
struct pawl_core_lane;
void pawl_core_value_drop(struct pawl_core *core, struct pawl_core_lane *lane);

/* --- replay, copy, timers, tables that go ---------------------------------------------------- */

/* 0, or -1: no memory, or it makes no sense. */
int pawl_core_state_replay(struct pawl_core *core, const struct pawl_record_view *view,
                           uint64_t lsn);
int pawl_core_reservation_replay(struct pawl_core *core, const struct pawl_record_view *view,
                                 uint64_t lsn);
/* Something was named and never defined: -1. Arms the timers. */
int pawl_core_state_start(struct pawl_core *core);
/* Bytes of the fact's record, without the head; the second writes it. */
uint32_t pawl_core_cell_fact_bytes(const struct pawl_core *core, uint32_t cell);
void pawl_core_cell_fact(struct pawl_core *core, uint32_t cell);
uint32_t pawl_core_reservation_fact_bytes(const struct pawl_core *core, uint32_t reservation);
void pawl_core_reservation_fact(struct pawl_core *core, uint32_t reservation);
/* PAWL_TIMER_RESERVATION: an open one expires. Needs PAWL_EXPIRE_ROOM in the log. */
#define PAWL_EXPIRE_ROOM (sizeof(struct pawl_reservation_rec) + PAWL_KEY_BYTES_MAX + 16u + 8u)
void pawl_core_reservation_timer(struct pawl_core *core, uint32_t reservation);
/* PAWL_TIMER_RESERVATIONS: the oldest finished ones are forgotten. */
void pawl_core_reservations_timer(struct pawl_core *core);
/* Frees up to *budget cells and reservations of a table that is gone; true: none is left. */
bool pawl_core_state_sweep(struct pawl_core *core, struct pawl_core_queue *table, uint32_t *budget);
/* Out of table and memory, without a record. */
void pawl_core_cell_free(struct pawl_core *core, uint32_t cell);
void pawl_core_reservation_free(struct pawl_core *core, uint32_t reservation);

/* --- digest and invariants ------------------------------------------------------------------- */

uint64_t pawl_core_state_digest(const struct pawl_core *core);
/* Recounts; returns the live bytes of all cells and reservations. */
uint64_t pawl_core_state_verify(const struct pawl_core *core);

/* --- between state.c, reserve.c and state_scan.c --------------------------------------------- */

/* The entry is used, by a table that is not gone. */
bool pawl_cell_stands(const struct pawl_core *core, uint32_t cell);
bool pawl_core_counts_hold(const struct pawl_counts *counts);
/* Everything of a cell but its key. Counts must hold. What it had as value is the caller's. */
void pawl_core_cell_set(struct pawl_core *core, uint32_t cell, uint8_t kind, uint32_t block,
                        uint32_t bytes, const struct pawl_counts *counts, uint64_t version);
/* The table with this id, if the peer has the right; or *result. */
struct pawl_core_queue *pawl_core_table_for(struct pawl_core *core,
                                            const struct pawl_core_peer *peer, uint64_t id,
                                            uint32_t right, int *result);
uint64_t pawl_core_reserve_commit(struct pawl_core *core, struct pawl_state_plan *plan,
                                  const struct pawl_op_rec *op);
void pawl_core_reserve_undo(struct pawl_core *core, struct pawl_state_plan *plan);
struct pawl_core_reservation *pawl_core_reservation_at(const struct pawl_core *core, uint32_t n);
/* The same without those whose time of being remembered is over: what has been forgotten once is
 * not known again after a crash, whose log still has it. */
uint32_t pawl_core_reservation_current(struct pawl_core *core, const struct pawl_core_queue *table,
                                       const uint8_t id[16]);
uint32_t pawl_core_reservation_find(const struct pawl_core *core,
                                    const struct pawl_core_queue *table, const uint8_t id[16]);

/* --- cell.c ---------------------------------------------------------------------------------- */

struct pawl_key {
    const uint8_t *bytes;
    uint32_t count;
};
struct pawl_cell *pawl_cell_at(const struct pawl_core *core, uint32_t n);
struct pawl_key pawl_cell_key(const struct pawl_core *core, const struct pawl_cell *cell);
/* 0: none. */
uint32_t pawl_cell_find(const struct pawl_core *core, const struct pawl_core_queue *table,
                        struct pawl_key key);
/* The first one whose key is greater (or equal, if `equal`); 0: none. */
uint32_t pawl_cell_after(const struct pawl_core *core, const struct pawl_core_queue *table,
                         struct pawl_key key, bool equal);
/* A new cell with this key, in its table; 0: no memory. Its key must not be there. */
uint32_t pawl_cell_make(struct pawl_core *core, struct pawl_core_queue *table, struct pawl_key key);
/* In and out of the treap; the entry stays. */
void pawl_cell_link(struct pawl_core *core, uint32_t n);
void pawl_cell_unlink(struct pawl_core *core, uint32_t n);
/* Of an unlinked cell: gives back entry, key and value. */
void pawl_cell_give(struct pawl_core *core, uint32_t n);
/* Bytes that count against the table's limit. */
static inline uint64_t pawl_cell_content(const struct pawl_cell *cell)
{
    return cell->key_bytes + (cell->kind == PAWL_VALUE_NUMBER ? 8u : (uint64_t)cell->value_bytes);
}

#endif
