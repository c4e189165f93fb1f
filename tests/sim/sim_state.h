/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_SIM_STATE_H
#define PAWL_TESTS_SIM_STATE_H

/* Tables, reservations and idempotent operations: what clients ask of them, and what the contract
 * allows as an answer.
 *
 * A key, a reservation or the key of an idempotent operation (sim_idem.c) is a *thing*. As a
 * message has (sim_model.h), it has a row of stands, each a set of ways in which it may stand; a
 * decision turns each way into those that are allowed, with the answer that goes with it; what
 * shows throws out the ways that it contradicts, in older stands too, since it proves its decision
 * durable. A crash makes one set of all stands.
 *
 * A key's way is the write that it shows: the number of the operation, 0 for no key. Versions are
 * not predicted: the first that shows of a write is that write's for ever, no other write's, and of
 * one key they grow in the order of the decisions. The stock, which reservations are taken from, is
 * checked by sums: available + reserved + posted is constant, and each is what the reservations may
 * stand for. Every third seed has a table: the others run as without. */

#include "sim/sim_model.h"

#define KEYS 5u
#define IDEMS 3u
#define STOCK 1000000
#define PREDS 6u
#define OPEN_MAX 3u
#define AMBIGUOUS UINT32_MAX /* two ways are left that found different writes */
#define KEEP_NS (24 * SIM_HOUR)
#define SIM_IDEM_RETAIN_NS (100 * SIM_S)

enum sim_check { CHECK_ZERO, CHECK_VERSION, CHECK_NUMBER, CHECK_DATA, CHECK_ANY };

/* What an operation must answer if this way is true. */
struct sim_state_pred {
    uint32_t op; /* 0: free */
    int32_t result;
    uint8_t check;           /* enum sim_check: of the value */
    bool record;             /* it is in the log */
    uint16_t hash;           /* idempotent operation: of its parameters */
    uint32_t found;          /* VERSION, DATA: of this write; the owner's deed */
    int64_t number;          /* NUMBER, DATA of a number; the state that is told */
    uint32_t said, attempts; /* idempotent operation: deed whose bytes are told; owners */
};

struct sim_state_way {
    uint32_t write; /* key: operation whose value it has; reservation: its RESERVE; idempotent
                       operation: deed of its owner */
    uint8_t state;  /* key: enum pawl_value_kind; reservation: enum pawl_reservation_state;
                       idempotent operation: enum pawl_idem_state */
    uint8_t hash;   /* idempotent operation */
    uint8_t pad[2];
    int64_t number; /* key; reservation: what was posted, under lives that are forgotten too;
                       idempotent operation: owners */
    int64_t posted; /* reservation: what was posted since the RESERVE; idempotent operation: deed
                       whose bytes it has */
    uint64_t end;   /* reservation OPEN: of its time, SIM_NEVER; over: since, at the earliest.
                       Idempotent operation: of its lease or of its memory, at the earliest */
    uint64_t late;  /* ... and at the latest */
    uint64_t since; /* ... and when it was begun */
    struct sim_state_pred preds[PREDS];
};

struct sim_state_set {
    struct sim_state_way *ways;
    uint32_t count, capacity;
};
struct sim_state_stand {
    struct sim_state_set set;
    uint64_t pos; /* of the log behind the decision; SIM_NEVER: not known yet */
};
/* Of a write: between which moments it was decided (submitted again after a crash, it may have been
 * done the first time), and the version that was shown. */
struct sim_state_known {
    uint64_t first, last, version;
};

/* A decision about an idempotent operation that makes a record. */
struct sim_deed {
    uint32_t op, client, uid, pid;
    uint64_t epoch, session;
    uint64_t grant, random; /* once they have shown */
    uint64_t lsn;           /* of a completion, once it has shown */
};

struct sim_thing {
    char name[8];
    bool idem;
    uint64_t id;    /* of a reservation; 0: a key */
    int64_t amount; /* of a reservation */
    struct sim_state_stand *stands;
    uint32_t stand_count, stand_capacity, open_ops;
    uint32_t last; /* key: a write whose version has shown, for compare and set; idempotent
                      operation: deed of an owner whose token has shown */
    struct sim_state_known *known;
    uint32_t known_count, known_capacity;
};

struct sim_state {
    struct pawl_prng rng;
    struct sim_queue table;
    struct sim_thing keys[KEYS], idems[IDEMS];
    struct sim_thing **reservations;
    uint32_t count, capacity;
    struct sim_deed *deeds;
    uint32_t deed_count, deed_capacity;
    struct sim_map *versions; /* version -> sim_op */
    bool stocked;             /* the stock has shown */
    bool moved;               /* a stand was made that does not know its place yet */
    struct sim_op *stocking;
};

static inline struct sim_state_set *current(struct sim_thing *t)
{
    return &t->stands[t->stand_count - 1].set;
}

/* A decision follows: what stands now may come back by a crash. */
void sim_thing_push(struct sim_state *s, struct sim_thing *t);
void sim_thing_add(struct sim_state_set *set, const struct sim_state_way *way);
void sim_thing_drop(struct sim_thing *t, uint32_t stand);
void sim_thing_replace(struct sim_state_set *set, struct sim_state_set *by);
struct sim_state_pred *sim_thing_find_pred(struct sim_state_way *way, uint32_t op);
void sim_thing_set_pred(struct sim *w, struct sim_state_way *way, const struct sim_state_pred *p);
void sim_thing_clear_pred(struct sim_state_way *way, struct sim_state_pred *p);

/* sim_state_ask.c */
struct sim_op *sim_state_submit(struct sim *w, struct sim_lane *lane, struct sim_thing *t,
                                uint16_t type, const void *fixed, uint32_t fixed_bytes,
                                const void *variable, uint32_t bytes);

/* sim_idem.c */
void sim_idem_act(struct sim *w, struct sim_lane *lane, struct sim_thing *t);
void sim_idem_take(struct sim *w, struct sim_thing *t, struct sim_op *op);
bool sim_idem_fits(const struct sim *w, const struct sim_thing *t, const struct sim_state_pred *p,
                   const uint8_t *data, uint32_t bytes);
void sim_idem_learn(struct sim *w, struct sim_thing *t, uint32_t owner, uint32_t said,
                    const uint8_t *data);
void sim_idem_crash(struct sim_state_way *way);

#endif
