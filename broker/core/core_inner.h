/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CORE_INNER_H
#define PAWL_CORE_INNER_H

/* What the files of the core ask of each other; the objects are in objects.h. Nobody outside core/
 * includes it.
 *
 *   core.c     create, destroy, the dispatcher, timers, room
 *   queue.c    queues: options, rights, names, states of messages as lists
 *   ledger.[ch]  what is remembered   key.c  dedup keys of messages
 *   order.c    ordering keys
 *   send.c     send_simple.c (most of them)   receive.c   settle.c (by token)   ack.c (most of
 * them)   repair.c (by id)   lease.c (ends of leases) ends.c     rows of leases by when they end
 *   group.c    several records as one   identity.c  op-ids and outcomes   txn.c  transactions
 *   left.c     outcomes of those without an op-id, when their session has ended
 *   session.c  sessions and their ends   lane.c  lanes, windows, answers
 *   replay.c   records in, start         copy.c  copy-forward
 *   idem.[ch]  idempotent operations
 *   state.h    tables: cell.c (keys in order), state.c, reserve.c, state_scan.c
 *   lookup.c   records by id and key   watch.c  waiting for the state of a message
 *   effect.c   bytes of completions   query.c, scan.c  stat, list, scan, peek   metrics.c
 *   verify.c   digest and invariants
 *
 * States of a message and who moves it (message.c, pawl_core_message_move alone):
 *
 *   SCHEDULED --due--> READY --grant--> LEASED --nack, expiry, release, death--> READY | SCHEDULED
 *   LEASED --limit, reject--> DEAD --restore--> READY
 *   LEASED, READY, SCHEDULED --ack, ttl, cancel, purge--> tombstone --retention--> nothing */

#include "core/objects.h"

/* --- core.c ---------------------------------------------------------------------------------- */

/* Room for what must go on when sends are refused: brackets every allocation that is not a send's.
 */
static inline void pawl_core_memory_open(struct pawl_core *core)
{
    if (core->started)
        core->budget.limit = core->options.memory_bytes;
}
static inline void pawl_core_memory_close(struct pawl_core *core)
{
    if (core->started)
        core->budget.limit = core->memory_sends;
}
void *pawl_core_group_append(struct pawl_core *core, uint16_t type, uint32_t bytes, uint64_t *lsn);
static inline void *pawl_core_append(struct pawl_core *core, uint16_t type, uint32_t bytes,
                                     uint64_t *lsn)
{
    if (PAWL_UNLIKELY(core->group.wanted))
        return pawl_core_group_append(core, type, bytes, lsn);
    return core->port.append(core->port.ctx, type, bytes, lsn);
}
static inline uint64_t pawl_core_appended(const struct pawl_core *core)
{
    return core->port.appended(core->port.ctx);
}
static inline bool pawl_core_has_room(const struct pawl_core *core, uint64_t bytes)
{
    return core->port.room(core->port.ctx) >= bytes;
}
static inline void pawl_core_set_now(struct pawl_core *core, struct pawl_now now)
{
    if (now.time > core->now.time)
        core->now.time = now.time;
    core->now.wall = now.wall;
}
/* Log room for SESSION and LANE in front of a lane's first record. */
#define PAWL_FIRST_RECORDS \
    (sizeof(struct pawl_session_rec) + sizeof(struct pawl_lane_rec) + 2 * PAWL_RECORD_HEAD)

int pawl_core_dispatch(struct pawl_take *t);
/* Is the variable part as long as the fixed part says? */
bool pawl_core_variable_fits(const struct pawl_take *t);

/* --- group.c, identity.c, txn.c -------------------------------------------------------------- */

/* What a record of this size takes in a group. */
static inline uint32_t pawl_core_group_part(uint32_t bytes)
{
    return (uint32_t)(sizeof(struct pawl_sub_rec) + pawl_align_up(bytes, 8));
}
#define PAWL_OUTCOME_PART \
    ((uint32_t)(sizeof(struct pawl_sub_rec) + sizeof(struct pawl_outcome_rec)))
#define PAWL_OUTCOME_LIVE (sizeof(struct pawl_outcome_rec) + PAWL_RECORD_HEAD)
/* bytes: of all parts but the outcome. */
void pawl_core_group_open(struct pawl_core *core, uint32_t bytes);
void pawl_core_group_close(struct pawl_core *core, const struct pawl_outcome_rec *outcome);
int pawl_core_identity_take(struct pawl_take *t);
void pawl_core_resolve_take(struct pawl_take *t);
/* Writes an outcome, as the end of the open group if there is one, and applies it. id NULL: it only
 * tells the window what the whole was answered. Returns its lsn. */
uint64_t pawl_core_outcome_group(struct pawl_take *t, const struct pawl_op_id *id, uint64_t hash,
                                 int result, uint64_t value, uint32_t detail);
void pawl_core_outcome_apply(struct pawl_core *core, const struct pawl_outcome_rec *rec,
                             uint64_t lsn);
void pawl_core_outcome_fact(const struct pawl_core *core, uint32_t n, struct pawl_outcome_rec *out);
uint64_t pawl_core_outcome_wall_ms(const struct pawl_core *core, const struct pawl_ledger_entry *e);
/* Entry of the ledger; 0: none. */
uint32_t pawl_core_outcome_find(const struct pawl_core *core, const struct pawl_op_id *id);
/* Ids up to this time are never taken for new. */
uint64_t pawl_core_horizon_ms(const struct pawl_core *core);
/* The horizon moved when entries made room: says so in the log. False: no room there; until it is
 * said nothing may be copied forward. */
bool pawl_core_horizon_say(struct pawl_core *core);
bool pawl_core_horizon_copy(struct pawl_core *core);
int pawl_core_txn_take(struct pawl_take *t);

/* --- left.c: outcomes under ids of lanes ----------------------------------------------------- */

void pawl_core_keep_take(struct pawl_take *t);
/* Before the SESSION_END: write until it answers true; false: more in another turn, with room. Then
 * begin, the END of `bytes` (0: the log does not know the session), end; the room that these take
 * beside the END's. */
bool pawl_core_left_write(struct pawl_core *core, struct pawl_core_session *s);
uint64_t pawl_core_left_room(const struct pawl_core_session *s);
void pawl_core_left_begin(struct pawl_core *core, struct pawl_core_session *s, uint32_t bytes);
void pawl_core_left_end(struct pawl_core *core, struct pawl_core_session *s);
/* RESOLVE of such an id: OK, E_INVALID (is none), E_STATE (its session lives, so there can be no
 * fence). */
int pawl_core_left_resolve(struct pawl_take *t, const struct pawl_op_id *id, bool fence,
                           struct pawl_comp_resolved *r);

/* --- home.c: segments ------------------------------------------------------------------------ */

void pawl_core_home_move(struct pawl_core *core, enum pawl_core_kind kind, struct pawl_home *home,
                         uint32_t number, uint64_t lsn);
struct pawl_home *pawl_core_home_of(const struct pawl_core *core, enum pawl_core_kind kind,
                                    uint32_t number);
/* lsn 0: none, as all of a memory queue. */
static inline void pawl_core_home_set(struct pawl_core *core, enum pawl_core_kind kind,
                                      uint32_t number, uint64_t lsn)
{
    struct pawl_home *home = kind == PAWL_KIND_MESSAGE ? &pawl_core_message_at(core, number)->home
                                                       : pawl_core_home_of(core, kind, number);
    if (lsn != 0 || home->segment != 0)
        pawl_core_home_move(core, kind, home, number, lsn);
}
/* NULL: nothing lives there. */
struct pawl_core_home_slot *pawl_core_home_slot(const struct pawl_core *core, uint64_t segment);

/* --- message.c ------------------------------------------------------------------------------- */

uint32_t pawl_core_message_payload_bytes(const struct pawl_core_message *m); /* of the block */
static inline uint32_t pawl_core_message_own_bytes(const struct pawl_core_message *m)
{
    return (m->flags & PAWL_MESSAGE_TTL ? 8u : 0u) + (m->key_bytes ? 8u : 0u);
}
/* What the client sent of it, which is what counts against the queue's limit. */
static inline uint32_t pawl_core_message_content_bytes(const struct pawl_core_message *m)
{
    return (uint32_t)m->key_bytes + m->ordering_key_bytes + m->headers_bytes + m->body_bytes;
}
uint64_t pawl_core_message_ttl_end(const struct pawl_core *core, const struct pawl_core_message *m);
/* Its time to live is over and nobody holds it, though its timer may not have said so: to all who
 * ask it has ended, so that nobody is told twice what became of it. */
bool pawl_core_message_expired(const struct pawl_core *core, const struct pawl_core_message *m);
uint64_t pawl_core_message_due(const struct pawl_core *core, const struct pawl_core_message *m);
bool pawl_core_message_logged(const struct pawl_core *core, const struct pawl_core_message *m);
/* Those of its record that stay with it. */
static inline uint8_t pawl_core_message_flags(uint8_t record_flags)
{
    return (uint8_t)((record_flags & PAWL_RECORD_TTL ? PAWL_MESSAGE_TTL : 0) |
                     (record_flags & PAWL_RECORD_ORDERED ? PAWL_MESSAGE_ORDERED : 0));
}
/* From its state to another one: lists, counts, timer. The caller has set place, lease and the
 * like before. NONE as the old state: it is new. */
void pawl_core_message_move(struct pawl_core *core, uint32_t number, uint8_t state);
/* Out of the list of its state, which the next move must not look for: state is NONE after. */
void pawl_core_message_detach(struct pawl_core *core, uint32_t number);
/* (Re)arms or gives back its timer as the state asks; a lease stands in a row instead. */
void pawl_core_message_timer(struct pawl_core *core, uint32_t number);
/* Fires at the next turn, whatever the state says. */
void pawl_core_message_timer_now(struct pawl_core *core, uint32_t number);
/* Payload and lease are given back, state is terminal. */
void pawl_core_message_end(struct pawl_core *core, uint32_t number, uint8_t state, uint64_t forget,
                           uint32_t pid, uint32_t uid);
/* Out of every list and table. */
void pawl_core_message_forget(struct pawl_core *core, uint32_t number);
/* Into READY and out of it, as for a grant that is being decided: CHOSEN is the caller's. Counts
 * levels, not ready_count, and wakes who waits. */
void pawl_core_ready_insert(struct pawl_core *core, struct pawl_core_queue *q, uint32_t number);
void pawl_core_ready_remove(struct pawl_core *core, struct pawl_core_queue *q, uint32_t number);
void pawl_core_message_unpin(struct pawl_core *core, uint32_t number);
/* Bytes of log that its fact takes. */
uint64_t pawl_core_message_live_bytes(const struct pawl_core *core,
                                      const struct pawl_core_message *m);

/* --- order.c -----------------------------------------------------------------------------------
 */

/* The entry of a message that is ORDERED; 0: none, and for make: no memory, which only a replay may
 * meet. */
uint32_t pawl_core_order_find(const struct pawl_core *core, const struct pawl_core_message *m);
uint32_t pawl_core_order_make(struct pawl_core *core, struct pawl_core_message *m);
bool pawl_core_order_ready(struct pawl_core *core); /* the next make cannot fail */
/* Message n out of what its state says, and into it. Then settle, once it has left and entered: the
 * entry of a key without messages is gone after it. */
void pawl_core_order_leave(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                           uint32_t k);
void pawl_core_order_enter(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n,
                           uint32_t k);
void pawl_core_order_settle(struct pawl_core *core, struct pawl_core_queue *q, uint32_t k);
/* Is a message with such a key, sent to q, in order with others? */
static inline bool pawl_core_order_applies(const struct pawl_core_queue *q,
                                           uint8_t ordering_key_bytes)
{
    return ordering_key_bytes != 0 || (q->options.flags & PAWL_QUEUE_ORDERED) != 0;
}

/* --- ends.c ---------------------------------------------------------------------------------- */

int pawl_core_ends_start(struct pawl_core *core); /* non-zero: no memory */
/* False: no row takes it, it needs a timer of its own. */
bool pawl_core_ends_enter(struct pawl_core *core, uint32_t lease, uint64_t end);
void pawl_core_ends_leave(struct pawl_core *core, struct pawl_core_lease *lease); /* row != 0 */
/* A row's timer fired: the message whose lease may be over, out of the row; 0: none yet. */
uint32_t pawl_core_ends_timer(struct pawl_core *core, uint32_t row);
/* The next `count` timers can be had, and still one for each message that is leased: it may need
 * one when it is given back with a delay, where nothing may fail. */
static inline bool pawl_core_timers_ready(struct pawl_core *core, uint32_t count)
{
    return pawl_pool_ready(&core->wheel.timers, count + (uint32_t)core->leases_current);
}

/* --- lease.c --------------------------------------------------------------------------------- */

/* The lease is over for its session and waiter (credit); the entry stays with the message. */
void pawl_core_lease_over(struct pawl_core *core, struct pawl_core_lease *lease);
void pawl_core_lease_free(struct pawl_core *core, uint32_t number);
void pawl_core_lease_link(struct pawl_core *core, uint32_t number, uint32_t session);
void pawl_core_lease_unlink(struct pawl_core *core, uint32_t number);
/* Is it in force at core->now? */
bool pawl_core_lease_current(const struct pawl_core *core, const struct pawl_core_message *m);
/* Ends it, message lives on. op NULL: not by a command. delay: UINT64_MAX ladder. Returns the lsn
 * of the record, 0 for none. Needs PAWL_BACK_ROOM. */
#define PAWL_BACK_ROOM (sizeof(struct pawl_back_rec) + PAWL_REASON_BYTES_MAX + PAWL_RECORD_HEAD + 8)
/* Given back without a record: the fact of the message, which must follow at once, tells it. */
void pawl_core_lease_void(struct pawl_core *core, uint32_t message);
uint64_t pawl_core_lease_back(struct pawl_core *core, uint32_t message, enum pawl_back_cause cause,
                              const struct pawl_op_rec *op, uint64_t delay, const uint8_t *reason,
                              uint32_t reason_bytes);
/* The same for a defer. progress: a block with this many bytes, which becomes the message's; 0:
 * none. Needs PAWL_PROGRESS_BYTES_MAX more. */
uint64_t pawl_core_lease_defer(struct pawl_core *core, uint32_t message,
                               const struct pawl_op_rec *op, uint64_t delay, bool key_free,
                               uint32_t progress, uint32_t progress_bytes);
/* n 0: the message is not known (any more). progress is given back if nobody is to have it. */
void pawl_core_back_apply(struct pawl_core *core, const struct pawl_back_rec *rec,
                          const uint8_t *reason, uint32_t progress, struct pawl_core_queue *q,
                          uint32_t n);
/* The lease is over by time: as above, as an expiry. */
void pawl_core_lease_timer(struct pawl_core *core, uint32_t message);
/* A result in a block of its own; 0: no memory. Bytes of it, and where it lies (may be NULL). */
uint32_t pawl_core_result_block(struct pawl_core *core, const void *result, uint32_t bytes);
uint32_t pawl_core_result_of(const struct pawl_core *core, uint32_t block, const uint8_t **result);
void pawl_core_result_give(struct pawl_core *core, uint32_t block);
/* The tombstone m has this one from now on; has none any more. */
void pawl_core_result_keep(struct pawl_core *core, struct pawl_core_message *m, uint32_t block);
void pawl_core_result_drop(struct pawl_core *core, struct pawl_core_message *m);
static inline uint32_t pawl_core_result_bytes(const struct pawl_core *core,
                                              const struct pawl_core_message *m)
{
    return PAWL_LIKELY(m->child == 0) ? 0 : pawl_core_result_of(core, m->child, NULL);
}
/* The process and the operation that ended a tombstone. False: not known, or too large to be kept.
 */
static inline uint32_t pawl_core_ended_pid(const struct pawl_core_message *m)
{
    return m->flags & PAWL_MESSAGE_BY ? m->lease & PAWL_PID_MASK : m->lease;
}
void pawl_core_ended_by(struct pawl_core_message *m, const struct pawl_op_rec *op);
bool pawl_core_ended_op(const struct pawl_core_message *m, struct pawl_op_rec *out);
/* Who acknowledged it and when: value of an E_ALREADY_ACKED. */
static inline uint64_t pawl_core_acked_value(const struct pawl_core_message *m)
{
    return m->place / PAWL_NS_S << 32 | pawl_core_ended_pid(m);
}
/* And in which session: its lsn; 0: not known. */
uint64_t pawl_core_acked_session(const struct pawl_core_message *m);
/* Writes and applies an END. result: a block that becomes the message's; 0: none. */
#define PAWL_END_ROOM (sizeof(struct pawl_end_rec) + PAWL_RECORD_HEAD)
uint64_t pawl_core_end_message(struct pawl_core *core, uint32_t message, uint8_t state,
                               const struct pawl_op_rec *op, uint8_t flags);
uint64_t pawl_core_end_with(struct pawl_core *core, uint32_t message, uint8_t state,
                            const struct pawl_op_rec *op, uint8_t flags, uint32_t result);

/* --- queue.c --------------------------------------------------------------------------------- */

uint32_t pawl_core_queue_find_name(const struct pawl_core *core, const char *name); /* 0: none */
uint32_t pawl_core_queue_make(struct pawl_core *core, uint64_t id); /* 0: no memory */
/* The queue with this id, made as a placeholder if a replay has not seen it yet. NULL: no memory.
 */
struct pawl_core_queue *pawl_core_queue_known(struct pawl_core *core, uint64_t id);
void pawl_core_queue_set_options(struct pawl_core_queue *q, const struct pawl_queue_options *o);
/* May this peer do it? right: 4 receive, 2 send, 1 query. */
#define PAWL_RIGHT_RECEIVE 4u
#define PAWL_RIGHT_SEND 2u
#define PAWL_RIGHT_QUERY 1u
bool pawl_core_queue_allows(const struct pawl_core *core, const struct pawl_core_queue *q,
                            uint32_t uid, uint32_t gid, uint32_t right);
bool pawl_core_queue_admin(const struct pawl_core *core, const struct pawl_core_queue *q,
                           uint32_t uid);
/* The queue or table with this id, checked for the right; or *result. */
struct pawl_core_queue *pawl_core_queue_of(const struct pawl_core *core,
                                           const struct pawl_core_peer *peer, uint64_t id,
                                           uint32_t right, int *result);
/* The queue of a command; a table is E_NOT_SUPPORTED. */
struct pawl_core_queue *pawl_core_queue_for(struct pawl_take *t, uint64_t id, uint32_t right,
                                            int *result);
static inline bool pawl_core_queue_logged(const struct pawl_core_queue *q)
{
    return q->options.mode != PAWL_MEMORY;
}
static inline uint64_t pawl_core_queue_live(const struct pawl_core_queue *q)
{
    return (uint64_t)q->ready_count + q->scheduled.count + q->leased.count + q->dead.count;
}
/* What an effect of this queue waits for, now that its record (if any) is appended. */
static inline uint64_t pawl_core_queue_wait(const struct pawl_core *core,
                                            const struct pawl_core_queue *q)
{
    return q->options.mode == PAWL_DURABLE ? pawl_core_appended(core) : q->wait_lsn;
}
bool pawl_core_queue_sees(const struct pawl_core *core, const struct pawl_core_queue *q,
                          const struct pawl_core_peer *peer);
/* Position in names of the first one after this name. */
uint32_t pawl_core_queue_after(const struct pawl_core *core, const char *name);
void pawl_core_queue_name_remove(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_queue_take(struct pawl_take *t);
void pawl_core_queue_fact(struct pawl_core *core, const struct pawl_core_queue *q,
                          struct pawl_queue_rec *out);
void pawl_core_queue_apply(struct pawl_core *core, const struct pawl_queue_rec *rec, uint64_t lsn);

/* --- direct.c -------------------------------------------------------------------------------- */

void pawl_core_direct_canonical(struct pawl_queue_options *options);
int pawl_core_direct_create(struct pawl_core *core, uint64_t id, const char *name,
                            const struct pawl_queue_options *options);
void pawl_core_direct_changed(struct pawl_core *core, const struct pawl_core_queue *q,
                              uint64_t wait_lsn);
void pawl_core_direct_stat(const struct pawl_core *core, const struct pawl_core_queue *q,
                           struct pawl_queue_stat *stat);
/* Answered here, if it is about a direct queue; else false. */
bool pawl_core_direct_scan(struct pawl_take *t);
bool pawl_core_direct_restore(struct pawl_take *t);

/* --- purge.c --------------------------------------------------------------------------------- */

/* Frees what gone queues hold; true: there is more. */
void pawl_core_sweep_message(struct pawl_core *core, struct pawl_core_queue *q, uint32_t n);
bool pawl_core_sweep(struct pawl_core *core, uint32_t budget);
void pawl_core_purge_begin(struct pawl_take *t, struct pawl_core_queue *q);
/* True: it waits for room in the log. */
bool pawl_core_purge_pump(struct pawl_core *core);
/* The rings of this lane are gone. Its client has submitted this one again from new ones. */
void pawl_core_purge_away(struct pawl_core *core, uint32_t lane);
void pawl_core_purge_asked(struct pawl_core *core, const struct pawl_core_lane *lane, uint64_t seq);
void pawl_core_again(struct pawl_core *core);
/* ids: u64 each, wherever they lie in a record. */
void pawl_core_purge_apply(struct pawl_core *core, struct pawl_core_queue *q, const void *ids,
                           uint32_t count, uint64_t forget);
/* Nothing but tombstones names a queue that is long gone. */
void pawl_core_queue_drop_placeholder(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_queue_timer(struct pawl_core *core, uint32_t number);
/* Gives up the oldest tombstone of the queue; false: none, or a delivery needs it still. */
bool pawl_core_forget_oldest(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_queue_done_timer(struct pawl_core *core, struct pawl_core_queue *q);

/* --- receive.c ------------------------------------------------------------------------------- */

void pawl_core_receive_take(struct pawl_take *t);
void pawl_core_receive_stop(struct pawl_take *t);
/* Serves it in the next pump if it can be served. */
void pawl_core_queue_wake(struct pawl_core *core, struct pawl_core_queue *q);
void pawl_core_waiter_link(struct pawl_core *core, struct pawl_core_waiter *w);
void pawl_core_waiter_unlink(struct pawl_core *core, struct pawl_core_waiter *w);
/* The queue is gone: E_QUEUE_GONE to all that name it. */
void pawl_core_waiters_gone(struct pawl_core *core, const struct pawl_core_queue *q);
/* Ends a waiting receive with this result; a RECEIVE is answered. */
void pawl_core_waiter_end(struct pawl_core *core, struct pawl_core_waiter *w, int result);
void pawl_core_waiter_drop(struct pawl_core *core, struct pawl_core_waiter *w);
void pawl_core_waiter_timer(struct pawl_core *core, uint32_t number);
bool pawl_core_receive_pump(struct pawl_core *core);

/* --- grant.c --------------------------------------------------------------------------------- */

enum pawl_served {
    PAWL_SERVED,        /* as far as there was something, and it may have more */
    PAWL_SERVE_NOTHING, /* this queue can give nothing now */
    PAWL_SERVE_NO_ROOM, /* in the log */
    PAWL_SERVE_BLOCKED, /* its ring is full */
    PAWL_SERVE_TOO_BIG  /* its ring is too small */
};
static inline bool pawl_core_queue_serves(const struct pawl_core_queue *q)
{
    return q->levels != 0 && !q->paused && !q->gone && q->purging == 0 &&
           q->leased.count < q->inflight_max;
}
enum pawl_served pawl_core_serve(struct pawl_core *core, struct pawl_core_waiter *w,
                                 struct pawl_core_queue *q);
/* False: no room in the ring. */
bool pawl_core_deliver_again(struct pawl_core *core, struct pawl_core_lane *lane,
                             struct pawl_core_lease *lease);
void pawl_core_grant_apply(struct pawl_core *core, uint32_t message,
                           const struct pawl_grant_rec *rec, uint64_t grant, uint64_t random,
                           uint32_t session, uint32_t waiter);

/* --- key.c ----------------------------------------------------------------------------------- */

#define PAWL_KEY_LIVE (sizeof(struct pawl_key_rec) + PAWL_RECORD_HEAD)
void pawl_core_key_name(const struct pawl_core *core, uint64_t queue, const void *key,
                        uint32_t bytes, uint64_t *id, uint64_t *id_high);
uint64_t pawl_core_key_body(const struct pawl_core *core, const void *body, uint32_t bytes);
/* The entry of a message; 0: it has no key, or its queue is gone. */
uint32_t pawl_core_key_of(const struct pawl_core *core, const struct pawl_core_message *m);
void pawl_core_key_word(const struct pawl_core *core, uint32_t block, bool ttl, uint64_t word);
uint8_t pawl_core_key_state(const struct pawl_core *core, const struct pawl_ledger_entry *e);
/* Of a message that becomes terminal or vanishes; while it still has payload and home. */
void pawl_core_key_end(struct pawl_core *core, struct pawl_core_message *m, uint8_t state);
/* Is there such a key, now? */
bool pawl_core_key_valid(const struct pawl_core *core, const struct pawl_ledger_entry *e);
/* OK: free, with *entry that of one that is over, or 0. OK_DUPLICATE, E_KEY_MISMATCH: used. */
int pawl_core_key_look(struct pawl_core *core, uint64_t id, uint64_t id_high, uint64_t body,
                       uint32_t *entry);
/* Takes it, after a pawl_core_ledger_ready(). over: what look left. */
uint32_t pawl_core_key_hold(struct pawl_core *core, const struct pawl_core_queue *q, uint64_t id,
                            uint64_t id_high, uint64_t body, uint32_t over);
/* Replay: makes the entry of a message in this block, as its record has it. 0, or -1: no memory. */
int pawl_core_key_restore(struct pawl_core *core, uint64_t queue, uint64_t id, uint32_t block,
                          bool ttl, uint32_t key_bytes, uint32_t body_offset, uint32_t body_bytes);
int pawl_core_key_fact(struct pawl_core *core, const struct pawl_key_rec *rec, uint64_t lsn);
bool pawl_core_key_needed(const struct pawl_core *core, const struct pawl_ledger_entry *e);
void pawl_core_key_rec(const struct pawl_core *core, const struct pawl_ledger_entry *e,
                       struct pawl_key_rec *out);

/* --- send.c, settle.c, repair.c, query.c ----------------------------------------------------- */

/* A send, judged. check reserves and copies, changes nothing that anybody sees; then either commit,
 * which cannot fail and returns the id, or undo. OK_DUPLICATE: the key was used, nothing is to be
 * done, neither commit nor undo is needed; value is the first one's id, or 0 where that is a send
 * of the same row that is not committed yet (pawl_core_send_first() tells after it is), state its
 * state. E_KEY_MISMATCH: the same, as a refusal. beside: sends that are checked and not yet
 * committed; what they will add to the queue stands in its `checked` and `checked_bytes`, which the
 * caller keeps. value: of a refusal. */
struct pawl_core_send {
    struct pawl_take *take;
    const struct pawl_cmd_send *cmd;
    struct pawl_core_queue *queue;
    struct pawl_cmd_send_times times;
    uint64_t due; /* 0: now */
    uint64_t ttl_end;
    uint64_t value;
    uint32_t skip;  /* bytes of times in front of the variable part */
    uint32_t bytes; /* of the client's part of the payload */
    uint32_t own;   /* bytes of ours in front of it, in the block */
    uint32_t block;
    uint32_t key;  /* ledger entry: held by this send, or that of the first one */
    uint8_t state; /* of the first one */
    bool ordered;  /* with others of its key */
};
int pawl_core_send_check(struct pawl_take *t, uint32_t beside, struct pawl_core_send *out);
uint32_t pawl_core_send_bytes(const struct pawl_core_send *send);
uint64_t pawl_core_send_commit(struct pawl_core_send *send, uint64_t *lsn);
void pawl_core_send_undo(struct pawl_core_send *send);
/* After all commits of the row: the id that an OK_DUPLICATE of it answers. */
uint64_t pawl_core_send_first(const struct pawl_core_send *send);
/* PAWL_ANSWER_... of an answer to it. */
uint8_t pawl_core_send_flags(const struct pawl_core_send *send, int result);
void pawl_core_send_take(struct pawl_take *t);
/* send_simple.c: does what a SEND asks, if it is one as most are. False: nothing was done. */
bool pawl_core_send_simple(struct pawl_take *t);
uint32_t pawl_core_send_apply(struct pawl_core *core, const struct pawl_send_rec *rec,
                              struct pawl_core_queue *q, uint32_t block, uint64_t lsn);
/* Makes or overwrites the tombstone of message n, which exists. */
void pawl_core_end_apply(struct pawl_core *core, const struct pawl_end_rec *rec, uint32_t result,
                         struct pawl_core_queue *q, uint32_t n, uint64_t lsn);
void pawl_core_end_fact(const struct pawl_core *core, const struct pawl_core_message *m,
                        struct pawl_end_rec *out);
void pawl_core_renew_apply(struct pawl_core *core, const struct pawl_renew_rec *rec, uint32_t n);
/* A settling by token, judged. check looks and changes nothing; commit does it and returns the lsn
 * of its record, 0 for none; bytes: what that record takes. Only after an OK of check, with nothing
 * else between them that names the same message. value: of a refusal. */
struct pawl_core_settle {
    struct pawl_take *take;
    const struct pawl_cmd_settle *cmd;
    struct pawl_core_message *message;
    struct pawl_core_queue *queue;
    uint64_t value;
    uint64_t acked_by; /* E_ALREADY_ACKED: session; 0: not known */
    uint32_t n;        /* message */
    uint32_t reason_bytes;
    uint32_t blob, blob_bytes; /* DEFER: progress, ACK: result, in a payload block; 0: none */
    uint8_t reason[PAWL_REASON_BYTES_MAX + 1];
};
/* Gives back what check took; for one that is not to be committed. */
void pawl_core_settle_undo(struct pawl_core_settle *settle);
int pawl_core_settle_check(struct pawl_take *t, struct pawl_core_settle *out);
uint32_t pawl_core_settle_bytes(const struct pawl_core_settle *settle);
uint64_t pawl_core_settle_commit(struct pawl_core_settle *settle);
void pawl_core_settle_take(struct pawl_take *t);
/* ack.c: does what an ACK asks, if it is one as most are. False: nothing was done. */
bool pawl_core_ack_simple(struct pawl_take *t);
void pawl_core_restore_apply(struct pawl_core *core, uint32_t n);
/* By id: the same three. */
struct pawl_core_repair {
    struct pawl_take *take;
    struct pawl_cmd_message cmd;
    struct pawl_core_queue *queue;
    uint64_t value;
    uint32_t n;
};
int pawl_core_repair_check(struct pawl_take *t, struct pawl_core_repair *out);
uint32_t pawl_core_repair_bytes(const struct pawl_core_repair *repair);
uint64_t pawl_core_repair_commit(struct pawl_core_repair *repair);
void pawl_core_repair_take(struct pawl_take *t);
void pawl_core_query_take(struct pawl_take *t);

/* --- lookup.c, watch.c ----------------------------------------------------------------------- */

void pawl_core_lookup_take(struct pawl_take *t);
bool pawl_core_lookup_fits(const struct pawl_cmd_query *c, uint32_t variable_bytes);
/* What is kept of an answer is given back. */
void pawl_core_lookup_drop(struct pawl_core *core, struct pawl_core_lane *lane);
void pawl_core_record_fill(const struct pawl_core *core, const struct pawl_core_message *m,
                           struct pawl_record *r);
struct pawl_core_watch *pawl_core_watch_at(const struct pawl_core *core, uint32_t n);
void pawl_core_watch_take(struct pawl_take *t);
/* The message has got into this state; NONE: it is forgotten. */
void pawl_core_watch_seen(struct pawl_core *core, const struct pawl_core_message *m, uint8_t state);
static inline void pawl_core_watched(struct pawl_core *core, const struct pawl_core_message *m,
                                     uint8_t state)
{
    if (PAWL_UNLIKELY(core->watches.used != 0))
        pawl_core_watch_seen(core, m, state);
}
void pawl_core_watches_gone(struct pawl_core *core, const struct pawl_core_queue *q);
void pawl_core_watches_drop(struct pawl_core *core, struct pawl_core_lane *lane);
void pawl_core_watch_timer(struct pawl_core *core, uint32_t n);
void pawl_core_watch_pump(struct pawl_core *core);
void pawl_core_watch_verify(const struct pawl_core *core);

/* --- scan.c ---------------------------------------------------------------------------------- */

void pawl_core_scan_take(struct pawl_take *t);
void pawl_core_scan_pump(struct pawl_core *core);
void pawl_core_scan_lane_gone(struct pawl_core *core, uint32_t lane);

/* --- session.c, lane.c ----------------------------------------------------------------------- */

struct pawl_core_session *pawl_core_session_make(struct pawl_core *core, uint64_t id);
bool pawl_core_session_pump(struct pawl_core *core);
void pawl_core_session_timer(struct pawl_core *core, uint32_t number);
void pawl_core_session_end_apply(struct pawl_core *core, struct pawl_core_session *s,
                                 uint64_t time);
void pawl_core_session_free(struct pawl_core *core, struct pawl_core_session *s);
void pawl_core_session_fact(const struct pawl_core_session *s, struct pawl_session_rec *out);
struct pawl_core_lane *pawl_core_lane_make(struct pawl_core *core, struct pawl_core_session *s,
                                           uint32_t number);
/* Its rings are gone. Those who wait end without an answer: the client submits them again. */
void pawl_core_lane_hold(struct pawl_core *core, struct pawl_core_lane *lane);
/* The log need not keep its window any more. */
void pawl_core_lane_unlog(struct pawl_core *core, struct pawl_core_lane *lane);
void pawl_core_lane_free(struct pawl_core *core, struct pawl_core_lane *lane);
int pawl_core_lane_window(struct pawl_core *core, struct pawl_core_lane *lane, uint32_t window);
struct pawl_window_entry *pawl_core_lane_entry(struct pawl_core *core, struct pawl_core_lane *lane,
                                               uint64_t seq);
/* Writes SESSION and LANE if the log has not seen them. Before each record of a lane's command. */
void pawl_core_lane_log(struct pawl_core *core, struct pawl_core_lane *lane);
uint64_t pawl_core_lane_live_bytes(const struct pawl_core_lane *lane);
void pawl_core_lane_op(const struct pawl_core *core, const struct pawl_core_lane *lane,
                       uint64_t seq, struct pawl_op_rec *out);
/* The one way an answer goes out: into the window and to the lane's handle. */
void pawl_core_lane_answer(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                           int result, uint64_t value, uint64_t lsn, uint64_t wait_lsn,
                           uint8_t flags);
/* Only into the window, for the command to find when it comes again. */
void pawl_core_lane_remember(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                             int result, uint64_t value, uint64_t lsn, uint8_t flags);
/* A refusal or an answer that wrote nothing. */
void pawl_core_take_answer(struct pawl_take *t, int result, uint64_t value, uint64_t wait_lsn);
/* An answer with data: block as pawl_core_data_buffer() gave it. */
void pawl_core_lane_answer_data(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                                uint32_t block, uint32_t bytes, uint64_t value, uint64_t wait_lsn);
/* The same of a BEGIN that is FIRST: the time of its lease runs from the publication. */
void pawl_core_lane_answer_first(struct pawl_core *core, struct pawl_core_lane *lane, uint64_t seq,
                                 uint32_t block, uint32_t bytes, uint64_t value, uint64_t wait_lsn,
                                 uint32_t idem);
void pawl_core_lane_clear(struct pawl_core *core, struct pawl_core_lane *lane);
/* What a record in the log says of a window: the answer, a part of it, or only that the command was
 * taken. */
/* GOES_ON: a piece of a purge, with more to follow; lsn is then its last id. */
enum pawl_window_use {
    PAWL_WINDOW_SET,
    PAWL_WINDOW_ADD,
    PAWL_WINDOW_TOUCH,
    PAWL_WINDOW_GOES_ON,
    PAWL_WINDOW_ASKED /* was answered with data: asked anew, but that it was done is known */
};
void pawl_core_window_apply(struct pawl_core *core, const struct pawl_op_rec *op, int result,
                            uint64_t value, uint64_t lsn, enum pawl_window_use use);
/* 0: no memory. bytes <= PAWL_DATA_BYTES_MAX; shrink says how many it became. */
void pawl_core_data_shrink(struct pawl_core *core, uint32_t block, uint32_t bytes);
uint32_t pawl_core_data_buffer(struct pawl_core *core, uint32_t bytes, uint8_t **data);

/* --- metrics.c ------------------------------------------------------------------------------- */

/* Writes the part of a text from `skip` on, as much as there is room for, and counts all of it. */
struct pawl_core_text {
    char *out;
    uint64_t bytes, skip, length;
};
/* peer NULL: all queues; else those it may query. */
void pawl_core_metrics_text(const struct pawl_core *core, struct pawl_core_text *text,
                            const struct pawl_core_peer *peer);

#endif
