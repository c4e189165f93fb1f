/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_SIM_MODEL_H
#define PAWL_TESTS_SIM_MODEL_H

/* What the model keeps of one message.
 *
 * Nobody outside the broker knows at once what it has decided: a grant shows when it is published,
 * a lease's end when somebody asks. So a message has a set of ways in which it may stand. A command
 * turns each way into those that the contract allows, each with the answer that goes with it; an
 * answer or a delivery that shows throws out the ways that it contradicts. No way left: the broker
 * has broken the contract.
 *
 * What a crash can take back: before each decision the set is copied, so a message has a row of
 * stands, oldest first, each good until the next decision. Something that shows proves its decision
 * durable and with it those before (durable queues), so older stands go; so they do when the log
 * says that it is on disk. A crash makes of all stands that are left one set.
 *
 * State READY stands for SCHEDULED too: ready from a moment between `from` and `to` on. */

#include "sim/sim.h"

#define SIM_NEVER UINT64_MAX
#define SIM_BIT(result) (1ull << ((result) + 60))
#define SIM_PREDS 8u
/* Of a step of a unit, in `op` of a pred: what is in the log under the unit's id. */
#define SIM_UNIT 0x80000000u
/* Another step of it is refused; for good, or in passing. */
#define SIM_OTHER_FINAL 1ull
#define SIM_OTHER 2ull
#define SIM_GRANT_LOST 1u /* `reserve` of a grant that a crash or closed lane has hidden */

struct sim_pred {
    uint32_t op;        /* number; 0: free */
    bool record;        /* it is in the log: a resubmission gets the same */
    bool any;           /* any value */
    bool coming;        /* PURGE: at any moment from its decision to its answer */
    uint32_t epoch, by; /* by: whose decision, where others may repeat it */
    uint64_t mask;      /* of results, SIM_BIT() */
    uint64_t value;
};

struct sim_way {
    uint64_t id; /* 0: not told yet */
    uint8_t state, kind, reason;
    bool over;     /* the lease ended with its session or at its time: what follows is a way too */
    bool unread;   /* LEASED: shown, but its client came back and said that it had not read it */
    bool fresh;    /* `to` becomes certain when all due timers have fired */
    bool lapsed;   /* LEASED: that it ran out has been made a way of its own */
    bool ended;    /* LEASED: ... with its session or machine; gone when the broker has pumped */
    bool released; /* ... so has that it was given back */
    uint8_t end_why, end_taken; /* enum pawl_core_end + 1; 0: its session lives */
    uint8_t pad[3];
    uint64_t end_at;
    uint64_t fresh_at; /* fresh: when the lease before it ended at the latest */
    uint32_t epoch;    /* of the send's decision */
    uint32_t client, lane;
    uint32_t pid; /* holder, or who acknowledged */
    uint32_t pad2;
    uint64_t grant, reserve;
    uint64_t seq;         /* of the receive */
    uint64_t grant_epoch; /* of the grant's decision */
    uint64_t from, to;    /* READY: due; LEASED: end; terminal: since */
    uint64_t lease_ns, renew_ns, step_ns;
    uint64_t cap_min, cap_max; /* LEASED: max_hold is met between */
    uint64_t hold_ns;
    uint64_t place_time, place_index, ready_index;
    uint64_t ttl_end, wall;
    uint32_t acquired, failed, crashed, expired, nacked, deferred;
    struct sim_pred preds[SIM_PREDS];
};

struct sim_set {
    struct sim_way *ways;
    uint32_t count, capacity;
};

struct sim_stand {
    struct sim_set set;
    uint64_t index; /* of the decision that made it */
    uint64_t pos;   /* log position behind that decision */
};

struct sim_message {
    uint32_t number;
    struct sim_queue *queue;
    struct sim_op *send;
    struct sim_unit *unit; /* that it is a step of, while that may be repeated */
    uint64_t id;
    uint8_t priority;
    uint8_t key_bytes, ordering_key_bytes;
    uint8_t ordering_key; /* 0: none */
    uint8_t key;          /* 0: none */
    uint32_t body_of;     /* number of the send whose body it has: its own, or that of its key */
    uint16_t headers_bytes;
    uint32_t body_bytes, bytes; /* bytes: of its delivery record */
    uint64_t delay_ns, at_wall_ns, ttl_ns;
    struct sim_stand *stands;
    uint32_t stand_count, stand_capacity;
    uint64_t changed; /* index of the last change of what is possible, additions aside */
    uint32_t open_ops;
    bool active;  /* in w->active */
    bool moved;   /* since the last sim_model_wrote() */
    bool dropped; /* gone, with its queue */
    bool gone;    /* it never came to be, or a crash took it, and nobody asks any more */
    /* of the last delivery that was shown */
    uint32_t shown_handle;
    uint64_t shown_end, shown_seq, shown_grant;
};

static inline struct sim_set *sim_current(struct sim_message *m)
{
    return &m->stands[m->stand_count - 1].set;
}

/* --- sim_rules.c: the contract --------------------------------------------------------------- */

void sim_way_print(const struct sim_way *ways, uint32_t count);
void sim_set_add(struct sim *w, struct sim_set *set, const struct sim_way *way);
/* All that may become of a message that stands so when op is decided now. */
void sim_rules_decide(struct sim *w, struct sim_message *m, const struct sim_way *way,
                      struct sim_op *op, struct sim_set *out);
/* What follows when the lease of this way runs out. */
void sim_rules_expire(struct sim *w, struct sim_message *m, const struct sim_way *way,
                      struct sim_set *out);
enum sim_taken { SIM_NOT_TAKEN, SIM_TAKEN, SIM_PERHAPS_TAKEN };
/* What follows when the session that holds it ends. */
void sim_rules_release(struct sim *w, struct sim_message *m, const struct sim_way *way,
                       enum pawl_core_end why, enum sim_taken taken, struct sim_set *out);
/* The way after a grant by this reservation. False: it may not be granted. */
bool sim_rules_grant(struct sim *w, struct sim_message *m, const struct sim_way *way,
                     const struct sim_op *receive, struct sim_way *out);
uint64_t sim_rules_lease(const struct sim_queue *q, uint64_t lease_ns);
uint64_t sim_rules_retention(const struct sim_queue *q);
/* Adds the way with this answer to the operation of that number. value: exact unless any. */
void sim_rules_yield(struct sim *w, struct sim_set *out, struct sim_way way,
                     const struct sim_pred *pred);
bool sim_rules_terminal(uint8_t state);
bool sim_rules_live(uint8_t state);
/* since: it was purged between then and now. */
void sim_rules_purge(struct sim *w, struct sim_way *way, uint64_t since);
struct sim_pred *sim_pred_find(struct sim_way *way, uint32_t op);

/* --- sim_order.c: many messages -------------------------------------------------------------- */

void sim_order_grant(struct sim *w, struct sim_message *m, const struct sim_way *early,
                     const struct sim_way *late, uint64_t index);
void sim_counts_take(struct sim *w, const struct sim_queue *q, struct sim_counts *out);
/* Bits of the limits that a send of this size may meet now; *must: it certainly meets one. */
uint64_t sim_limits(struct sim *w, const struct sim_queue *q, uint32_t body, uint32_t payload,
                    bool *must);
void sim_order_stat(struct sim *w, struct sim_op *op, const void *data, uint32_t bytes);
void sim_order_scan(struct sim *w, struct sim_op *op, const void *data, uint32_t bytes,
                    uint64_t count);

/* --- sim_key.c ------------------------------------------------------------------------------- */

/* A send of this key to repeat; NULL: none. */
struct sim_message *sim_key_first(struct sim *w, const struct sim_queue *q, uint8_t key);
/* It has shown that m was made. */
void sim_key_made(struct sim *w, struct sim_message *m);
/* A send was answered OK_DUPLICATE or E_KEY_MISMATCH with the id and state of the first one. */
void sim_key_repeated(struct sim *w, struct sim_op *op, int32_t result, uint64_t id,
                      uint32_t state);
/* A send with a key says its number in a header: its body may be another's. */
#define SIM_KEY_HEADER_BYTES 11u

/* --- sim_unit.c ------------------------------------------------------------------------------ */

/* As the rules do it for any operation, of a step of a unit: what is final is under its id. */
void sim_unit_yield(struct sim *w, struct sim_set *out, const struct sim_way *way,
                    const struct sim_op *step, uint64_t mask, bool any, uint64_t value,
                    bool record);
/* True: what is known of its id, or the id itself, answers; nothing is decided. */
bool sim_unit_known(struct sim *w, const struct sim_way *way, const struct sim_op *step,
                    struct sim_set *out);
/* What else may be of a step that is not refused: another one was. */
void sim_unit_others(struct sim *w, const struct sim_way *way, const struct sim_op *step,
                     struct sim_set *out);

/* --- sim_model.c ----------------------------------------------------------------------------- */

/* Keeps only the ways of `keep` in the newest stand; in older ones too if the queue is durable. */
typedef bool sim_keep(void *ctx, const struct sim_way *way);
void sim_model_filter(struct sim *w, struct sim_message *m, sim_keep *keep, void *ctx,
                      const char *what);
void sim_model_learn(struct sim *w, struct sim_message *m, uint64_t id);
void sim_model_push(struct sim *w, struct sim_message *m);
/* A decision on one message: each way becomes those that the rules allow. */
void sim_model_decide(struct sim *w, struct sim_message *m, struct sim_op *op);
/* No answer to this operation is awaited any more. */
void sim_model_forget(struct sim *w, struct sim_message *m, uint32_t op);
/* body of a message, by the number of its send */
void sim_body_fill(uint8_t *body, uint32_t bytes, uint32_t number);

#endif
