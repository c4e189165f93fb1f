/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CLIENT_LANE_H
#define PAWL_CLIENT_LANE_H

/* The inside of a lane: its open commands, its buffered deliveries, its way to the broker. One
 * thread at a time is in here, the one that holds `busy`; what lanes share is in client/session.h.
 *
 * Who calls whom, from the top:
 *   send, receive, settle, queue, query, async   the calls of pawl.h
 *   op        claim a record, wait for its answer, give up on it
 *   wait      publish, look, spin, sleep, notice the end of the broker
 *   drain     read the completion ring: answers into ops, deliveries into the buffer
 *   bind      get rings from the broker, submit open commands again
 *   session   the socket
 *
 * Numbers. Every command of the lane has a ticket, 1, 2, ...; what goes over the wire is
 * seq = ticket - base, where base moves when the broker does not know the session any more and a
 * new one begins at seq 1. The window of ops is indexed by ticket.
 *
 * An op: FREE -> OPEN (claimed) -> FREE (answered). Invariants:
 *   oldest <= every open ticket < next <= oldest + window
 *   bytes of the submission ring from the record of `oldest` on are never reused: a broker that
 *   dies leaves every open command in our memory, and bind copies them into the next ring
 *   published <= next: tickets from `published` on no broker can have seen
 *
 * Tests: unit/client_*_test, with a peer in the same process (tests/lib/peer.h). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/atomic.h"
#include "abi/attach.h"
#include "abi/command.h"
#include "abi/layout.h"
#include "abi/region.h"
#include "abi/ring.h"
#include "abi/wake.h"
#include "base/bits.h"
#include "pawl.h"

#define PAWL_NO_QUEUE 0u
#define PAWL_NO_ENTRY UINT64_MAX
#define PAWL_LANE_TEXT_BYTES 512
#define PAWL_RETIRED_MAX 8u /* old mappings kept for deliveries that still lie in them */
#define PAWL_REF_BUCKETS 1024u
#define PAWL_REFS_MAX 4096u /* remembered queues; beyond, those not in use are forgotten */

enum pawl_op_state {
    PAWL_OP_FREE,
    PAWL_OP_OPEN,
    PAWL_OP_KEEP, /* answered after its caller was told "unknown": to be kept by the broker (KEEP)
                   */
    PAWL_OP_KEPT  /* that is under way; till then the window must not forget it */
};
enum pawl_op_kind {
    PAWL_OP_PLAIN,  /* a call waits for it: its answer goes into lane->row */
    PAWL_OP_TICKET, /* its answer goes into the row of answers to be collected */
    PAWL_OP_ORPHAN, /* nobody waits any more, or ever did: its answer is dropped */
    PAWL_OP_UNKNOWN /* the same of what changes something: its caller was told "unknown" */
};

struct pawl_op {
    uint64_t ticket;
    uint64_t position; /* of its record in the submission ring */
    uint32_t bytes;    /* of its record */
    uint32_t answer;   /* TICKET, answered: index in `answers` */
    uint16_t type;
    uint8_t state, kind;
    uint32_t keeps; /* KEEP: how far behind it is what it keeps */
};

/* The answer of a plain command. */
struct pawl_row {
    uint64_t value, lsn;
    int32_t result;
    uint32_t state; /* of the first message of a key */
};

/* A pair of rings. Stays mapped while deliveries in it are in the program's hands. */
struct pawl_mapping {
    struct pawl_region sub, comp;
    uint32_t pins; /* deliveries in it that are not yet released */
    struct pawl_mapping *next;
};

enum pawl_entry_state { PAWL_ENTRY_FREE, PAWL_ENTRY_WAITING, PAWL_ENTRY_HANDED };

/* A delivery that was read from the ring. */
struct pawl_entry {
    const uint8_t *record;
    struct pawl_mapping *mapping;
    struct pawl_queue_ref *queue;
    uint64_t position; /* of the record */
    uint64_t next;     /* the next one of the same queue, PAWL_NO_ENTRY */
    uint32_t bytes;
    uint8_t state;
};

/* Deliveries of a queue that wait to be handed out, in order. */
struct pawl_line {
    uint64_t first, last; /* entries; PAWL_NO_ENTRY */
    uint32_t waiting;
};

/* A queue that the lane knows. By name for the calls, by number for the deliveries. */
struct pawl_queue_ref {
    struct pawl_queue_ref *by_name, *by_id; /* chains of the two tables */
    uint64_t id;                            /* 0: not known (any more) */
    uint64_t hash;                          /* of the name */
    struct pawl_line lines[2];              /* under lease; at most once (acknowledged) */
    uint64_t handed;                        /* number of the receive that last handed one out */
    uint64_t lease_ns;                      /* of the subscription */
    uint64_t subscription;                  /* ticket of the SUBSCRIBE; 0: none */
    uint32_t subscribed_binding;            /* lane->binding when it was made */
    uint32_t generation;                    /* lane->names when the number was learned */
    uint32_t lease_kind;                    /* of the subscription */
    uint32_t mode;                          /* enum pawl_mode, as the broker said */
    struct pawl_use *use;                   /* of a direct queue; NULL: not yet: direct.h */
    bool news;                              /* deliveries came since it was last received from */
    char name[PAWL_NAME_BYTES_MAX + 1];     /* "": came by a delivery, name not asked yet */
};

struct pawl_session;
struct pawl_use;

struct pawl {
    /* --- touched by every call --- */
    const uint64_t *process; /* the page that a fork wipes */
    uint64_t process_mark;
    uint32_t busy;    /* the thread check: 1 while a call runs */
    int32_t fatal;    /* E_EPOCH, E_PROTOCOL: every call answers it */
    uint32_t outcome; /* of the last call; enum pawl_outcome */
    bool outcome_set; /* the call knows better than the class of its result */
    bool attached;
    struct pawl_sub_shm *sub_shm;
    const struct pawl_comp_shm *comp_shm;
    struct pawl_ring_producer sub;
    struct pawl_ring_consumer comp;
    uint64_t sub_head; /* highest sub_head seen */
    uint32_t rung;     /* last value of the bell that was answered */
    int bell;

    /* --- commands --- */
    struct pawl_op *ops;
    uint64_t op_mask;
    uint64_t next, oldest, published, base;
    uint32_t window;
    uint32_t plain_open;   /* open ops of kind PLAIN */
    uint32_t tickets_open; /* open ops of kind TICKET */
    struct pawl_row *rows; /* of the running call */
    uint64_t row_first;
    uint32_t row_count;
    struct pawl_row one;
    uint32_t keeps;       /* ops in state KEEP */
    uint64_t last_ticket; /* of the running call's last command that changes something; 0: none */
    uint64_t last_given;  /* if it has this ticket its id is `last_id` */
    struct pawl_op_id last_id;
    uint64_t session_id;    /* of the present base */
    struct pawl_op_id id;   /* of the next command that changes something */
    bool identified;        /* there is one */
    bool id_used;           /* by the running call, which may have to try twice */
    struct pawl_txn *txn;   /* the open transaction; NULL */
    struct pawl_row *batch; /* PAWL_BATCH_MAX rows, made when first needed */
    uint64_t receive_until; /* end of the wait of the open RECEIVE, own boot clock */

    /* --- answers to be collected --- */
    struct pawl_answer *answers;
    uint64_t answer_mask, answer_head, answer_tail;
    uint32_t answers_there;
    uint64_t own_tickets; /* of answers without a command */

    /* --- deliveries --- */
    struct pawl_entry *entries;
    uint64_t entry_mask, entry_head, entry_tail;
    uint64_t entry_release; /* first entry of the present mapping that is not free */
    uint64_t released;      /* what comp_head holds */
    uint64_t receives;      /* number of receive calls */
    uint64_t taken;
    uint64_t events; /* read from the present completion ring */
    uint64_t grant_durable, grant_relaxed;
    uint32_t handed;        /* entries in the program's hands */
    struct pawl_held *held; /* leases of the program, if it asked for help with them: held.c */
    bool prefetch_short; /* the program holds more than the credit: standing requests bring nothing
                          */

    /* --- queues --- */
    struct pawl_use *uses;                /* of direct queues: direct.h */
    bool uses_over;                       /* some are over and not yet ended */
    struct pawl_queue_ref *last_ref;      /* of the last call by name */
    struct pawl_queue_ref *last_delivery; /* of the last delivery read */
    struct pawl_queue_ref **names_table, **ids_table;
    uint32_t ref_count;
    uint32_t names; /* generation: grows when a number may have changed */

    /* --- data of the answer that the running call waits for --- */
    uint8_t *data; /* PAWL_DATA_BYTES_MAX, made when first needed */
    uint32_t data_bytes;

    /* --- waiting --- */
    uint64_t coarse, now; /* a cached clock: submits read it once a tick */
    uint32_t wait_number;
    bool for_delivery; /* the running wait is for one */
    bool slow;         /* the last wait was long: sleep on the descriptors at once */
    int watch, control;
    int events_fd, timer_fd; /* of pawl_fd(); -1 */
    bool armed;              /* the program waits on events_fd, so far as we know */
    uint32_t armed_number;   /* of the announcement that stands for it; 0: withdrawn */
    /* What was read and not asked for since: a poll reads deliveries, a receive answers. The
     * descriptor fires once for each addition to it. */
    uint32_t news_queues;
    uint64_t deliveries_read, deliveries_told, answers_read, answers_told;

    /* --- the way to the broker --- */
    struct pawl_session *session;
    struct pawl_mapping *mapping, *retired;
    uint32_t retired_count;
    uint32_t number; /* of the lane; PAWL_LANE_NEW: none yet */
    uint32_t attachment, incarnation;
    uint32_t resumes; /* of the session, when these rings were got */
    uint32_t binding; /* how often rings were got */
    uint32_t reattached;
    int64_t clock_shift; /* broker's boot clock - ours */
    uint32_t sub_bytes, comp_bytes;
    uint64_t timeout_ns, spin_ns;
    uint32_t prefetch;
    int32_t down_reason; /* why the last broker went: E_WAL_FAILED or 0 */
    char text[PAWL_LANE_TEXT_BYTES];
};

/* --- enter and leave (call.c) ---------------------------------------------------------------- */

/* Every call of pawl.h begins with enter and, if that answered OK, ends with `return leave(...)`.
 * enter: E_FORKED, E_MISUSE, E_INVALID (NULL), or the fatal code. What follows is inline since it
 * is a good part of a call on a direct queue. */
int pawl_call_foreign(struct pawl *lane); /* NULL, or of a parent */
int pawl_call_misused(struct pawl *lane); /* another thread is in it */
int pawl_call_fatal(struct pawl *lane);
int pawl_call_left(struct pawl *lane, int result); /* all that leave may have to do */
static inline int pawl_call_enter(struct pawl *lane)
{
    if (PAWL_UNLIKELY(!lane || pawl_load_rlx_u64(lane->process) != lane->process_mark))
        return pawl_call_foreign(lane);
    if (PAWL_UNLIKELY(pawl_swap_u32(&lane->busy, 1) != 0))
        return pawl_call_misused(lane);
    lane->text[0] = '\0';
    lane->outcome_set = false;
    return PAWL_LIKELY(lane->fatal == 0) ? PAWL_OK : pawl_call_fatal(lane);
}
/* The same of a call that changes something: the id given for it ends with it, also if it fails
 * before there is a command. Else the id would go to another operation, and who asks for the
 * outcome of his own would be told that one's. */
static inline int pawl_call_enter_change(struct pawl *lane)
{
    int rc = pawl_call_enter(lane);
    if (PAWL_UNLIKELY(rc != PAWL_OK))
        return rc;
#ifndef PAWL_BUG_ID_LEFT_OVER
    lane->id_used = lane->identified;
#endif
    lane->last_ticket = 0;
    return PAWL_OK;
}
static inline int pawl_call_leave(struct pawl *lane, int result)
{
    if (PAWL_UNLIKELY(result < 0 || lane->outcome_set || lane->id_used))
        return pawl_call_left(lane, result);
    lane->outcome = PAWL_OUTCOME_APPLIED;
    pawl_store_rel_u32(&lane->busy, 0);
    return result;
}
/* The outcome of the running call where its code says less. */
static inline void pawl_call_outcome(struct pawl *lane, enum pawl_outcome outcome)
{
    lane->outcome = (uint32_t)outcome;
    lane->outcome_set = true;
}
/* An E_INVALID (or other `result`) that names what was wrong. */
int pawl_call_refuse(struct pawl *lane, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The whole of a call that is refused for its arguments alone. */
int pawl_call_invalid(struct pawl *lane, const char *what);
/* The text for a refusal of the broker: which limit, whose lease, what to do. Returns result. */
int pawl_call_answered(struct pawl *lane, int result, uint64_t value, const char *subject);
/* Copies an options struct of a caller who may be older: the part he knows over `defaults`.
 * False: its size makes no sense. */
bool pawl_options_copy(void *out, const void *in, size_t bytes);

/* --- commands (op.c) ------------------------------------------------------------------------- */

/* A record of `bytes` (rounded up here) for one command, its head filled in. Waits for room until
 * `until` (own boot clock) and re-attaches for it. NULL: *result is E_DEADLINE, E_BROKER_DOWN,
 * E_TOO_BIG, E_RESOURCE or fatal, and nothing was submitted. The record must be filled before any
 * other function of this header is called. */
void *pawl_op_claim(struct pawl *lane, uint16_t type, uint32_t bytes, enum pawl_op_kind kind,
                    uint64_t until, int *result);
/* Makes the next `count` plain commands answer into rows. */
void pawl_op_rows(struct pawl *lane, struct pawl_row *rows, uint32_t count);
/* Publishes and waits for all plain commands. Those without an answer by then become orphans.
 * Returns OK (see the rows), or E_DEADLINE, E_BROKER_DOWN, fatal. */
int pawl_op_finish(struct pawl *lane, uint64_t until);
/* The usual case: finish the one command claimed after pawl_op_single(). Returns its result. */
void pawl_op_single(struct pawl *lane);
int pawl_op_result(struct pawl *lane, uint64_t until, const char *subject);
/* A command whose answer nobody awaits, if there is room for it at once; else NULL. */
void *pawl_op_claim_orphan(struct pawl *lane, uint16_t type, uint32_t bytes);
/* The id of a command of this lane (abi/lane_id.h). */
void pawl_op_id_of(const struct pawl *lane, uint64_t ticket, struct pawl_op_id *out);
/* The oldest open command is behind those that are done with. */
void pawl_op_oldest(struct pawl *lane);
/* Something changes, or has perhaps, and its caller does not know. */
bool pawl_op_left(struct pawl *lane);
/* All open plain commands become orphans. */
void pawl_op_forsake(struct pawl *lane);
/* Marks a command answered; called by drain and by bind. False: no such command is open. */
bool pawl_op_answer(struct pawl *lane, uint64_t ticket, int32_t result, uint64_t value,
                    uint64_t lsn, uint32_t state);
/* The answer of what was submitted and needed no command, and its ticket: of other numbers than
 * those of commands. E_RESOURCE: too many answers wait to be collected. */
int pawl_op_answered(struct pawl *lane, int32_t result, uint64_t value, uint32_t state,
                     pawl_ticket *ticket);
/* Frees ring space up to the oldest open command. False: the broker's word is a breach. */
bool pawl_op_reclaim(struct pawl *lane);
/* Own boot clock; pawl_now_coarse may be up to a tick (4 ms) old. */
uint64_t pawl_now(struct pawl *lane);
uint64_t pawl_now_coarse(struct pawl *lane);

/* --- parts of commands, for alone and for transactions --------------------------------------- */

/* send.c */
struct pawl_send_plan {
    struct pawl_send_options o;
    uint32_t bytes; /* of the record */
    uint32_t body_bytes, headers_bytes;
    bool times;
};
/* Checks the arguments of one message and sizes its record. */
int pawl_send_plan(struct pawl *lane, struct pawl_send_plan *plan, const void *body, size_t bytes,
                   const struct pawl_send_options *options);
/* All behind the head; room for plan->bytes, rounded up to 8. */
void pawl_send_fill(struct pawl_cmd_send *c, const struct pawl_send_plan *plan, uint64_t queue,
                    const void *body);
/* held.c: only where lane->held. A delivery is handed out; a token was settled or renewed with this
 * result. */
void pawl_held_add(struct pawl *lane, const struct pawl_message *m, uint64_t lease_ns,
                   uint64_t now);
void pawl_held_settled(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                       uint64_t lease_ns, int result);
void pawl_held_free(struct pawl *lane, bool forked);
/* settle.c */
/* pawl_renew_batch(), and 0 as the queue's lease. */
int pawl_held_renew(struct pawl *lane, const struct pawl_token *tokens, uint32_t n,
                    uint64_t lease_ns, int32_t *results);
int pawl_settle_arguments(struct pawl *lane, uint16_t type, const struct pawl_token *token,
                          uint32_t flags, const void *text, size_t text_bytes);
uint32_t pawl_settle_bytes(size_t text_bytes);
void pawl_settle_fill(struct pawl_cmd_settle *c, const struct pawl_token *token, uint64_t time_ns,
                      uint32_t flags, const char *text, size_t text_bytes);
/* identity.c: a row of operations cannot share one id. */
int pawl_identity_refuse(struct pawl *lane);
/* txn.c: the lane is closed. */
void pawl_txn_forget(struct pawl_txn *txn);
/* A step, from another file. enter as pawl_call_enter(), and E_TXN_POISONED; leave as
 * pawl_call_leave(), and what failed poisons. claim: room for a step, its head filled in; `read`:
 * it is judged before all that are no reads. NULL: *result. */
int pawl_txn_enter(struct pawl_txn *txn);
int pawl_txn_leave(struct pawl_txn *txn, int result);
void *pawl_txn_claim(struct pawl_txn *txn, uint16_t type, uint32_t bytes, bool read, int *result);
struct pawl *pawl_txn_lane(const struct pawl_txn *txn);

/* --- reading (drain.c) ----------------------------------------------------------------------- */

/* Reads all that is published. Returns OK, E_RESOURCE or E_PROTOCOL (fatal is set). */
int pawl_drain(struct pawl *lane);
/* Tells the broker what of the completion ring is free; `always` also for little. */
void pawl_drain_release(struct pawl *lane, bool always);
/* Entries handed out before become free. */
void pawl_entries_reclaim(struct pawl *lane);
void pawl_entry_free(struct pawl *lane, struct pawl_entry *entry);
static inline struct pawl_entry *pawl_entry_at(struct pawl *lane, uint64_t index)
{
    return &lane->entries[index & lane->entry_mask];
}
/* Forgets all deliveries that wait (the broker does not know their session any more). */
void pawl_entries_drop(struct pawl *lane);
int pawl_lane_breach(struct pawl *lane, const char *what);

/* --- waiting (wait.c) ------------------------------------------------------------------------ */

/* How many events are missing until the wait may end; 0: none. */
typedef uint32_t (*pawl_goal)(struct pawl *lane, uint64_t argument);

/* Publishes, then reads and sleeps until nothing is missing. Woken when half of what is missing is
 * there: the rest then mostly comes while that is read.
 * Returns OK; E_DEADLINE at `until`; E_BROKER_DOWN: no broker until then; E_RESOURCE; fatal. */
int pawl_lane_wait(struct pawl *lane, pawl_goal missing, uint64_t argument, uint64_t until);
/* Makes claimed commands visible and rings if the broker sleeps. */
void pawl_lane_publish(struct pawl *lane);
/* The two descriptors of a long wait: news of the lane, end of the socket. */
int pawl_lane_watch(struct pawl *lane, uint64_t until);
void pawl_lane_unwatch(struct pawl *lane);

/* --- pawl_fd (fd.c) -------------------------------------------------------------------------- */

/* The program is about to wait on the descriptor: it found nothing. False: now there is something,
 * look again. */
bool pawl_fd_arm(struct pawl *lane);
/* The program is back: what fired is taken down, the end of the broker noticed. */
void pawl_fd_disarm(struct pawl *lane);
/* The same at the end of a call that found nothing: if something came, the descriptor fires. */
void pawl_fd_arm_late(struct pawl *lane);
/* Another call ran meanwhile: the announcement is renewed, or the descriptor made to fire. */
void pawl_fd_renew(struct pawl *lane);
void pawl_fd_close(struct pawl *lane);
/* Registers the descriptors of a new attachment. */
void pawl_fd_rewatch(struct pawl *lane);

/* --- rings (bind.c) -------------------------------------------------------------------------- */

/* Makes an attached lane of at least these sizes out of a detached or a smaller one; open commands
 * are submitted again. One attempt. OK, E_BROKER_DOWN, E_RESOURCE, E_QUOTA, E_ABI, ... */
int pawl_lane_bind(struct pawl *lane, uint32_t sub_bytes, uint32_t comp_bytes, uint64_t until);
/* Attempts until `until`, with growing pauses. */
int pawl_lane_recover(struct pawl *lane, uint64_t until);
/* The lane's rings at least this large. Returns OK or why not; the lane then stays as it is. */
int pawl_lane_enlarge(struct pawl *lane, uint64_t sub_bytes, uint64_t comp_bytes, uint64_t until);
/* Does the broker still serve it? False: detached now. */
bool pawl_lane_alive(struct pawl *lane);
void pawl_lane_detach(struct pawl *lane);
void pawl_mapping_sweep(struct pawl *lane);
/* lane.c */
struct pawl *pawl_client_lane_create(struct pawl_session *session);
void pawl_lane_destroy(struct pawl *lane, bool unmap);

/* --- queues (names.c) ------------------------------------------------------------------------ */

/* The queue of this name, asked from the broker if it must be. */
int pawl_queue_find(struct pawl *lane, const char *name, uint64_t until,
                    struct pawl_queue_ref **out);
/* The same for a send or a receive, whose refusal says how to make the queue: to one who wants to
 * look at it or to drop it that would be no help. */
int pawl_queue_find_to_use(struct pawl *lane, const char *name, uint64_t until,
                           struct pawl_queue_ref **out);
/* The queue of this number, made nameless if it is new; NULL: no memory. */
struct pawl_queue_ref *pawl_queue_by_id(struct pawl *lane, uint64_t id);
/* Numbers may have changed: ask again before the next use. */
void pawl_queue_doubt(struct pawl *lane);
/* That of the queue which was found last. */
void pawl_queue_doubt_last(struct pawl *lane);
void pawl_queues_free(struct pawl *lane);

/* --- receive (receive.c) --------------------------------------------------------------------- */

/* Ends standing requests and gives back what was not handed out, without waiting. True: there was
 * something of the kind. */
bool pawl_receive_abandon(struct pawl *lane);

#endif
