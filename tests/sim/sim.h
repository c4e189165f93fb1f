/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_SIM_H
#define PAWL_TESTS_SIM_H

/* The simulator: one broker engine on a simulated disk, a simulated clock, simulated clients with
 * lanes, faults from a seed, and a model that was written from the contract and checks every word
 * that becomes visible. One thread; everything follows from the seed.
 *
 *   sim_test.c    seeds, totals, the verdict
 *   sim_world.c   the broker's life: open, turns, crash, restart, reboot; safety, then liveness
 *   sim_faults.c  which fault happens when; the clock
 *   sim_client.c  what clients do: sends, receives, settlements, deaths
 *   sim_lane.c    what a lane is: rings, rooms, windows, submission again after a crash
 *   sim_model.c   what the world knows about each message and checks at each answer and delivery
 *   sim_rules.c   the contract: what one decision may make of one message
 *   sim_order.c   order, limits and counts over many messages
 *   sim_key.c     dedup keys
 *   sim_state.c   tables and reservations   sim_state_ask.c what clients ask of them
 *   sim_idem.c    idempotent operations
 *   sim_unit.c    operations under an id of their caller, transactions, RESOLVE
 *   sim_note.c    the trace, its hash, the end at a violation
 *
 * README.md: how to read a failing seed. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/attach.h"
#include "abi/command.h"
#include "abi/layout.h"
#include "base/bits.h"
#include "base/hash.h"
#include "base/prng.h"
#include "core/core.h"
#include "io/sim.h"
#include "loop/engine.h"
#include "pawl.h"

#define SIM_MS PAWL_NS_MS
#define SIM_S PAWL_NS_S
#define SIM_HOUR (3600 * SIM_S)
/* Timers fire with a precision of milliseconds (semantics 14): never early, so much late. Commands
 * are judged by the exact time. */
#define SIM_TICK (2 * SIM_MS)

enum sim_fault {
    SIM_KILL,        /* SIGKILL of the broker between any two of its calls */
    SIM_POWER,       /* power loss: unflushed sectors, clients die, another boot */
    SIM_STOP,        /* clean stop and start */
    SIM_EIO,         /* a write or flush fails: fail stop, restart */
    SIM_OPEN_FAILED, /* the disk fails while the log is opened */
    SIM_FULL,        /* disk full for a while */
    SIM_SLOW,        /* disk slow for a while: completions reordered, seconds late */
    SIM_SHORT,       /* short writes */
    SIM_DEATH,       /* a client dies */
    SIM_CLOSE,       /* a client ends its session */
    SIM_LANE_CLOSE,  /* a client closes one lane */
    SIM_RESIZE,      /* a client asks for larger rings of a lane that it has */
    SIM_DETACH,      /* the socket is lost, the client comes back */
    SIM_GRACE,       /* ... and does not come back in time */
    SIM_LAZY,        /* a client does not read its completions for a while */
    SIM_FROZEN,      /* a client is stopped (SIGSTOP) for a while */
    SIM_BREACH,      /* a client writes nonsense */
    SIM_SUSPEND,     /* the machine sleeps for hours */
    SIM_WALL_BACK,   /* the wall clock is set back */
    SIM_WALL_AHEAD,  /* ... or ahead */
    SIM_FAULTS
};
extern const char *const sim_fault_names[SIM_FAULTS];

struct sim;
struct sim_client;
struct sim_lane;
struct sim_message;
struct sim_queue;
struct sim_state;
struct sim_thing;
struct sim_unit;

/* --- operations ------------------------------------------------------------------------------ */

enum sim_op_state {
    SIM_OP_QUEUED, /* in the submission ring */
    SIM_OP_TAKEN,  /* decided, no answer seen */
    SIM_OP_SHOWN,  /* its answer is in the completion ring */
    SIM_OP_CLOSED  /* its answer was read, or nobody will ever read it */
};

struct sim_range {
    uint64_t min, max;
};
/* What the counts of a queue may be at one moment, by enum pawl_state; live: those that count
 * against its limits. */
struct sim_counts {
    struct sim_range by_state[PAWL_STATE_PURGED + 1];
    struct sim_range live, bytes;
    uint64_t sent, delivered, acked; /* so many have shown */
};

struct sim_op {
    uint32_t number;
    uint16_t type;
    uint8_t state;
    bool resubmit;
    struct sim_lane *lane;
    uint64_t seq;
    uint8_t *command;
    uint32_t bytes;
    uint32_t takes;
    bool sure;    /* SEND: its first decision was no refusal */
    bool counted; /* in its queue's counters below */
    bool stale;   /* a queue that it names has been dropped since */
    struct sim_queue *queue;
    struct sim_message *message; /* SEND: the one it makes; else the one it names */
    uint64_t index, time;        /* of the last take */
    uint64_t time_min, time_max; /* of all takes: a crash may set pawl time back to what it kept */
    uint64_t fired_min;          /* all timers of before this had fired at each take */
    uint64_t first_index, first_crashes, first_epoch, first_time; /* of the first take */
    uint64_t limits; /* 1 << enum pawl_limit that may be met at the last take */
    /* the answer as it was last shown */
    int32_t result;
    uint64_t value, lsn;
    /* RECEIVE and SUBSCRIBE */
    struct sim_queue *queues[PAWL_QUEUES_A_RECEIVE_MAX];
    uint32_t queue_count, delivered, delivered_now, max; /* now: in this attachment */
    uint64_t wait_ns, lease_ns;
    uint8_t lease_kind;
    bool amo, stopped, interrupted; /* interrupted: the lane was re-attached meanwhile */
    /* STOP: the operation it ends. STAT, PURGE: what the counts may be. */
    struct sim_op *target;
    struct sim_counts *counts; /* of a read of the stock: live reserved, bytes posted */
    struct sim_thing *thing;   /* key or reservation that it names */
    uint64_t version;          /* of a write of a key, once it has shown */
    uint32_t expect_write;     /* of a compare and set: the write that must stand */
    uint64_t after;            /* SCAN */
    bool inspects;
    uint32_t mask;
    /* Of a unit (sim_unit.c): what carries it to the broker; a step: by whom it is decided now. */
    struct sim_unit *unit;
    struct sim_op *carrier;
    bool fences;
};

/* --- clients --------------------------------------------------------------------------------- */

/* A delivery that a client has read and not yet settled, or a token that somebody remembers. */
struct sim_held {
    struct sim_message *message;
    struct pawl_token token;
    uint64_t deadline; /* pawl time; UINT64_MAX held */
    uint32_t uid;
    uint8_t kind;
    bool settling, forgotten;
};

struct sim_record {
    uint8_t *data;
    uint32_t bytes;
    uint64_t end;
};

struct sim_reserve {
    uint64_t index;
    uint32_t bytes;
};

struct sim_lane {
    struct sim_client *client;
    struct pawl_core_lane *core; /* NULL: not open at the broker */
    uint32_t uid;                /* unique in the run */
    uint32_t number, handle, window, comp_bytes;
    uint64_t next_seq;
    struct sim_op **open; /* in order of seq; QUEUED ones are a suffix unless re-attached */
    uint32_t open_count, open_capacity;
    uint32_t submit; /* index in open[] of the next to be taken */
    struct sim_op *receive;
    struct sim_record *ring; /* published, not yet read */
    uint32_t ring_count, ring_capacity;
    uint64_t tail, head, answers_reserved, deliveries_reserved;
    struct sim_reserve *reserves;
    uint32_t reserve_count, reserve_capacity;
    uint64_t grant_durable, grant_relaxed;
    struct sim_held *held;
    uint32_t held_count, held_capacity;
    bool closed, starved; /* starved: a delivery found no room */
};

#define SIM_LANES_MAX 3u
struct sim_client {
    uint32_t number; /* unique in the run; pid = 1000 + number */
    uint32_t uid, pid;
    uint64_t session, epoch, epoch_logged, detached_at;
    uint8_t secret[16];
    struct pawl_core_session *core; /* NULL: not attached */
    struct sim_lane *lanes[SIM_LANES_MAX];
    uint32_t lane_count;
    uint64_t lazy_until, frozen_until; /* true time */
    bool alive, admin, known, graced;  /* known: a durable answer of its session was seen */
    bool detached;                     /* lost its socket, the broker lives */
    uint64_t back_at;                  /* when it attaches again; true time */
};

/* --- queues and messages --------------------------------------------------------------------- */

struct sim_queue {
    char name[32];
    uint32_t number; /* 0.. in the world */
    uint64_t id;     /* 0: not created yet as far as anybody knows */
    struct pawl_queue_options options;
    uint64_t paused_index; /* certainly paused since; 0: not certain */
    bool maybe_paused, ever_paused;
    bool inspected; /* ... and scanned to its end since the last start */
    uint64_t inspect_after;
    struct sim_op *pausing, *creating; /* open PAUSE or RESUME; CREATE */
    struct sim_op *dropping;           /* DROP; its answer ends a life of the queue */
    const struct sim_op *dropped_by;   /* answered last */
    uint64_t dropped_index, id_max;    /* the last such answer; largest id of all its lives */
    uint64_t deliveries, exceptions;
    struct sim_grant *grants; /* history, newest last */
    uint32_t grant_count, grant_capacity;
    struct sim_message **messages;
    uint32_t message_count, message_capacity;
    /* of this life: operations that were taken, and those that were told to have been done */
    uint64_t sends_taken, acks_taken, sends_shown, acks_shown, deliveries_shown;
};

struct sim_grant {
    uint64_t index; /* of the reservation = of the decision */
    uint64_t place_time, place_index;
    struct sim_message *message;
    uint8_t priority;
    bool counted;
};

/* --- the world ------------------------------------------------------------------------------- */

struct sim_options {
    uint32_t clients, queues, turns, lanes;
    uint64_t segment_bytes, max_log_bytes, memory_bytes;
    uint32_t block_bytes, in_flight;
    uint64_t relaxed_window_ns, grace_ns;
    uint32_t body_max, load; /* operations a turn, in sixteenths */
    uint64_t faults;         /* 1 << enum sim_fault that may happen */
    uint32_t fault_rate;     /* one in so many turns, each kind */
    uint32_t crash_rate;     /* one in so many turns */
    uint32_t timers_budget;
    uint32_t deaths; /* so many times as often as other faults */
    bool drops;      /* queues are dropped and made again */
    bool units;      /* ids of callers, transactions */
};

struct sim_totals {
    uint64_t seeds, operations, answers, deliveries, crashes, recoveries, turns, messages, scans,
        ordered, keys_again, keys_repeated, keys_other, units, units_repeated, units_resolved,
        units_fenced, units_known;
    uint64_t idem_told[PAWL_IDEM_FAILED + 1]; /* by enum pawl_idem_state */
    uint64_t time_ns, checks;
    uint64_t faults[SIM_FAULTS];
    uint64_t results[128]; /* by 100 + result */
    struct pawl_io_sim_counts io;
};

struct sim {
    uint64_t seed;
    struct pawl_prng rng;
    struct sim_options options;
    struct sim_totals *totals;
    /* clock: boot = io time - boot_base; wall = io time + wall_base (may jump) */
    uint64_t boot_base, wall_base;
    uint8_t boot_id[16];
    uint32_t boots;
    struct pawl_now now; /* of this turn, from the engine */
    uint64_t now_boot;
    uint64_t open_wall;
    uint64_t void_below; /* leases of earlier epochs are of an earlier boot */
    uint64_t open_boot;  /* boot time when it was last opened */
    uint64_t shift;      /* pawl time - boot time of this broker */
    int64_t lead_max;    /* largest pawl - wall of this broker, to bound time over a reboot */
    uint64_t fired;      /* all timers due then have fired */
    uint64_t pawl_seen;  /* latest pawl time of a decision that was seen and is in the log */
    /* broker */
    struct pawl_io *io;
    struct pawl_engine *engine;
    uint64_t epoch, epoch_tail, crashes, index;
    uint64_t unsealed_since;
    bool liveness, disk_faulty, disk_was_full, rebooted, closing, stopped_clean, tried,
        ends_pending;
    bool moved;      /* some message has since the last sim_model_wrote() */
    bool look;       /* the model has many possibilities: the operator should look soon */
    bool inspecting; /* after a start: the operator looks at everything before others come back */
    uint32_t full_clear, safety_ops;
    uint64_t crash_in; /* engine calls until the next crash */
    uint64_t slow_until, full_until;
    /* everybody */
    struct sim_client **clients;
    uint32_t client_count, client_capacity;
    struct sim_lane **lanes; /* by handle */
    uint32_t lane_count, lane_capacity;
    struct sim_queue *queues;
    struct sim_message **messages;
    uint32_t message_count, message_capacity;
    struct sim_message **active; /* those of which something can still happen by itself */
    uint32_t active_count, active_capacity;
    uint64_t used_index, used_memory, used_log; /* when and what the last sum was */
    struct sim_op **ops;                        /* by number - 1 */
    uint32_t op_count, op_capacity;
    struct sim_held remembered[64]; /* tokens for stale settlements */
    uint32_t remembered_count;
    struct sim_unit **units; /* that may still be repeated, or asked for */
    uint32_t unit_count, unit_capacity;
    struct sim_used { /* all ids that came to a decision: their time, and when that was */
        uint64_t ms, time_min;
    } * used;
    uint32_t used_count, used_capacity;
    struct sim_map *ids, *grants;
    struct sim_state *state; /* NULL: no table in this seed */
    /* prefix of what a crash kept */
    uint64_t kept_max, lost_min;
    /* trace */
    uint64_t hash;
    char **notes;
    uint64_t note_count;
};

/* --- sim_note.c ------------------------------------------------------------------------------ */

/* One line of the trace: hashed always, kept in a ring, printed if PAWL_TRACE is set. */
__attribute__((format(printf, 2, 3))) void sim_note(struct sim *w, const char *format, ...);
/* A violation: prints what, the trace's end, how to run the seed again; does not return. */
__attribute__((format(printf, 2, 3))) _Noreturn void sim_fail(struct sim *w, const char *format,
                                                              ...);
#define SIM_CHECK(w, e, ...)          \
    do {                              \
        (w)->totals->checks++;        \
        if (!(e))                     \
            sim_fail(w, __VA_ARGS__); \
    } while (0)
void sim_note_init(struct sim *w);
void sim_note_fini(struct sim *w);
void sim_note_dump(struct sim *w);
const char *sim_type_name(uint16_t type);
/* realloc that ends the program when memory is out; *capacity in elements of `size`. */
void *sim_grow(void *array, uint32_t *capacity, uint32_t count, size_t size);
/* a small map u64 -> pointer */
struct sim_map *sim_map_create(void);
/* destroy: of each value, or NULL where they are not its own */
void sim_map_destroy(struct sim_map *map, void (*destroy)(void *));
void sim_map_put(struct sim_map *map, uint64_t key, void *value);
void *sim_map_get(const struct sim_map *map, uint64_t key);

static inline uint64_t sim_below(struct sim *w, uint64_t n) { return pawl_prng_below(&w->rng, n); }
static inline bool sim_one_in(struct sim *w, uint64_t n) { return sim_below(w, n) == 0; }

/* --- sim_world.c ----------------------------------------------------------------------------- */

/* Runs one seed to its end. Returns the hash of the trace. */
uint64_t sim_run(uint64_t seed, struct sim_totals *totals);
/* A place where the broker may be killed; false: it was, and the turn is over. */
bool sim_alive_point(struct sim *w);

/* --- sim_faults.c ---------------------------------------------------------------------------- */

void sim_options_from_seed(struct sim *w);
void sim_options_print(const struct sim *w);
uint64_t sim_boot(const struct sim *w);
uint64_t sim_wall(const struct sim *w);
void sim_time_pass(struct sim *w, uint64_t ns);
/* Before a turn: starts and ends disk faults, jumps the clocks, harms clients. */
void sim_faults_turn(struct sim *w);
void sim_faults_start(struct sim *w);
void sim_faults_end(struct sim *w); /* no more from here on */
void sim_fault_happened(struct sim *w, enum sim_fault fault);
static inline bool sim_fault_allowed(const struct sim *w, enum sim_fault fault)
{
    return !w->liveness && (w->options.faults >> fault & 1);
}

/* --- sim_client.c ---------------------------------------------------------------------------- */

struct sim_client *sim_client_create(struct sim *w, uint32_t uid, bool admin);
void sim_client_attach(struct sim *w, struct sim_client *client);
/* Ends by `why`; the program is gone. */
void sim_client_end(struct sim *w, struct sim_client *client, enum pawl_core_end why);
/* The socket is gone (broker lives), or the broker is. */
void sim_client_detach(struct sim *w, struct sim_client *client, bool for_long);
void sim_client_resize_lane(struct sim *w, struct sim_client *client, struct sim_lane *lane);
void sim_client_close_lane(struct sim *w, struct sim_client *client, struct sim_lane *lane);
void sim_client_broker_gone(struct sim *w, struct sim_client *client);
void sim_client_destroy(struct sim *w, struct sim_client *client);
/* One client's share of a turn: reads its completions, submits something new. */
void sim_client_act(struct sim *w, struct sim_client *client);
void sim_client_read(struct sim *w, struct sim_client *client, bool all);
void sim_admin_act(struct sim *w, struct sim_client *client);
void sim_client_breach(struct sim *w, struct sim_client *client);

/* Commands that are made and not submitted: steps of a unit. */
struct sim_op *sim_make_send(struct sim *w, struct sim_lane *lane);
struct sim_op *sim_make_settle(struct sim *w, struct sim_lane *lane, const struct sim_held *held,
                               uint16_t type);
struct sim_op *sim_make_message(struct sim *w, struct sim_lane *lane, struct sim_message *m,
                                uint16_t type);

/* --- sim_lane.c ------------------------------------------------------------------------------ */

struct sim_lane *sim_lane_create(struct sim *w, struct sim_client *client);
void sim_lane_destroy(struct sim_lane *lane);
void sim_lane_open(struct sim *w, struct sim_lane *lane);  /* new or resumed */
void sim_lane_close(struct sim *w, struct sim_lane *lane); /* the shell's end */
struct sim_op *sim_op_create(struct sim *w, struct sim_lane *lane, uint16_t type, uint32_t fixed,
                             uint32_t variable);
void sim_lane_submit(struct sim *w, struct sim_lane *lane, struct sim_op *op);
/* Takes one command if it may be; true: it did. */
bool sim_lane_take(struct sim *w, struct sim_lane *lane);
bool sim_lane_reserve(struct sim *w, uint32_t handle, uint32_t bytes);
void sim_lane_write(struct sim *w, const struct pawl_effect *effect);
/* The client reads one record; false: none. */
bool sim_lane_read(struct sim *w, struct sim_lane *lane);
void sim_lane_lose_ring(struct sim_lane *lane);
/* The operation is over for its client. */
void sim_op_close(struct sim *w, struct sim_op *op);

/* --- sim_state.c ----------------------------------------------------------------------------- */

void sim_state_begin(struct sim *w);
void sim_state_free(struct sim *w);
void sim_state_act(struct sim *w, struct sim_lane *lane);
struct sim_queue *sim_state_wants_table(struct sim *w);
void sim_state_look(struct sim *w, struct sim_lane *lane);
/* The same moments as those of sim_model.c. */
bool sim_state_names(const struct sim_op *op);
void sim_state_take(struct sim *w, struct sim_op *op);
void sim_state_wrote(struct sim *w);
void sim_state_durable(struct sim *w, uint64_t durable);
void sim_state_answer(struct sim *w, struct sim_op *op, int32_t result, uint64_t value,
                      uint64_t lsn, const void *data, uint32_t bytes);
void sim_state_close(struct sim *w, struct sim_op *op);
void sim_state_lost(struct sim *w, struct sim_op *op);
void sim_state_time(struct sim *w);
void sim_state_timers(struct sim *w);
void sim_state_crash(struct sim *w);
void sim_state_stopped(struct sim *w);

/* --- sim_model.c ----------------------------------------------------------------------------- */

struct sim_message *sim_model_send(struct sim *w, struct sim_op *op, uint8_t priority,
                                   uint32_t delivery_bytes);
/* Before pawl_core_take(); after it, and after every other call that may write: sim_model_wrote. */
void sim_model_take(struct sim *w, struct sim_op *op);
void sim_model_wrote(struct sim *w);
void sim_model_durable(struct sim *w);
void sim_model_reserve(struct sim *w, struct sim_lane *lane, uint32_t bytes);
void sim_model_answer(struct sim *w, struct sim_op *op, int32_t result, uint64_t value,
                      uint64_t lsn, uint32_t state, const void *data, uint32_t bytes);
void sim_model_delivery(struct sim *w, struct sim_lane *lane, const struct pawl_comp_delivery *d);
void sim_model_close(struct sim *w, struct sim_op *op);
/* A DROP of this queue is submitted: nothing of what is in it is expected any more. */
void sim_model_drop(struct sim *w, struct sim_queue *q);
/* The broker says it never heard of the session of this open operation: then it did nothing. */
void sim_model_lost(struct sim *w, struct sim_op *op);
void sim_model_time(struct sim *w);   /* the clock was read */
void sim_model_timers(struct sim *w); /* all due timers have fired */
void sim_model_pumped(struct sim *w);
void sim_model_session_end(struct sim *w, struct sim_client *client, enum pawl_core_end why,
                           bool attached);
void sim_model_session_back(struct sim *w, const struct sim_client *client);
void sim_model_lane_gone(struct sim *w, struct sim_lane *lane);
/* This lane is resumed: what its client has not read of it may be shown again. */
void sim_model_lane_back(struct sim *w, const struct sim_lane *lane);
void sim_model_crash(struct sim *w);
void sim_model_stopped(struct sim *w); /* cleanly: all that was decided is on disk */
void sim_model_restart(struct sim *w, bool same_boot);
/* Liveness: nothing is left; returns a description of what is, or NULL. */
const char *sim_model_left(struct sim *w, char text[256]);
bool sim_model_settled(const struct sim_message *message);
bool sim_model_surely(const struct sim_message *message, uint8_t state);
void sim_model_dump(struct sim *w, const struct sim_message *message);
void sim_model_watch(struct sim *w);  /* PAWL_WATCH=n: dumps m<n> whenever it has changed */
void sim_model_unseen(struct sim *w); /* every lease that stands is in its client's hands */
void sim_model_free(struct sim *w);
/* --- sim_unit.c ------------------------------------------------------------------------------ */

/* A client begins a unit, repeats one of anybody's, or asks for one. */
void sim_unit_act(struct sim *w, struct sim_lane *lane);
void sim_unit_take(struct sim *w, struct sim_op *op);
void sim_unit_answer(struct sim *w, struct sim_op *op, int32_t result, uint64_t value, uint64_t lsn,
                     const void *data, uint32_t bytes);
void sim_unit_close(struct sim *w, struct sim_op *op);
/* The broker never heard of the session that carried it. */
void sim_unit_lost(struct sim *w, struct sim_op *op);
/* What is possible of this message has become less: does that tell of others? */
void sim_unit_notice(struct sim *w, struct sim_message *m);
/* Ends those that nobody will repeat. */
void sim_unit_turn(struct sim *w);
void sim_unit_free(struct sim *w);

/* pawl time at which something must happen at the latest, and to what */
uint64_t sim_model_next(struct sim *w, const struct sim_message **which);

#endif
