/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_DIRECT_H
#define PAWL_ABI_DIRECT_H

/* The direct queue: one ring of fixed-size slots in a memory that producers, consumers and broker
 * share; no broker on the path of a message. DIRECT.md is the algorithm in ten headings, with its
 * proof obligations; the numbers in brackets below are its sections. Here: limits, layout, words,
 * and the contract of each function.
 *
 *  0      constants, 256 B                  struct pawl_direct_shm
 *  256    tail    512  head    768  look    each alone in 256 B
 *  1024   gate of readers   1280  gate of writers   1536  words of the broker
 *  1792   lanes, 128 B each, number 0 unused
 *  ..     mark words, 8 B a 32 slots, up to a multiple of 128 B
 *  ..     slots, stride a multiple of 64 B
 *
 * The functions hold no lock, call no clock and make no system call, but for the gate's two and the
 * life byte's. None of them allocates. Shared words are touched through abi/atomic.h alone. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/atomic.h"

/* --- limits ---------------------------------------------------------------------------------- */

/* The explorer makes rings of two slots and rows of two; nobody else changes these two. */
#ifndef PAWL_DIRECT_CAPACITY_MIN
#define PAWL_DIRECT_CAPACITY_MIN 64u
#endif
#ifndef PAWL_DIRECT_BATCH_MAX
#define PAWL_DIRECT_BATCH_MAX 256u /* messages of one reservation */
#endif
#define PAWL_DIRECT_CAPACITY_MAX 1048576u
#define PAWL_DIRECT_LANES_MAX 4094u    /* lanes are numbered from 1 */
#define PAWL_DIRECT_OWNER_QUEUE 4095u  /* holds what was given back with a delay */
#define PAWL_DIRECT_RANGE_MAX 4095u    /* positions of one reservation, noted and skipped ones */
#define PAWL_DIRECT_BODY_MAX 16777216u /* bytes of one body */
#define PAWL_DIRECT_BYTES_MAX (UINT64_C(1) << 36)
#define PAWL_DIRECT_DELIVERY_MAX 1023u
#define PAWL_DIRECT_LEASE_MS_MAX 67108862u /* and of a delay: 18.6 h */
#define PAWL_DIRECT_LEASE_ALIVE 67108863u  /* while the holder lives, up to the queue's cap */
#define PAWL_DIRECT_RETRIES_MAX 65536u     /* of one call, then the words are taken for hostile */
#define PAWL_DIRECT_MARKED_MAX 64u         /* marked messages kept in order among themselves */
#define PAWL_DIRECT_COPY_FIRST_MAX 4096u   /* longer bodies are claimed before they are copied */
#define PAWL_DIRECT_PATIENCE 16u           /* looks; about 1 us */
#define PAWL_DIRECT_AHEAD 8u               /* slots whose lines are asked for before their turn */
#define PAWL_DIRECT_APART 32u              /* places to keep off from what others write or read */
#define PAWL_DIRECT_SLEEP_NS_MAX UINT64_C(1000000000)

#define PAWL_DIRECT_MAGIC 0x3154435249445750ull /* "PWDIRCT1" */
#define PAWL_DIRECT_VERSION 1u

/* --- layout ---------------------------------------------------------------------------------- */

/* What is fixed when the memory is made. The broker keeps it in its log, too. */
struct pawl_direct_shape {
    uint32_t capacity;     /* slots, a power of two */
    uint32_t body_bytes;   /* largest body; 0 is allowed */
    uint32_t lanes;        /* 1..LANES_MAX */
    uint32_t attempts_max; /* 1..1023; 0: 1023. After so many failed deliveries DEAD */
    uint32_t lease_ms;     /* default, 1..LEASE_MS_MAX */
    uint32_t lease_ms_max; /* cap of every lease, lease_ms..LEASE_MS_MAX */
    uint64_t id;           /* of the queue; random, part of the proof that it is the same memory */
    uint64_t first;        /* first position; 0 but in tests */
};

struct pawl_direct_shm {
    /* constants: broker, complete before the descriptor is sent (M21); read once at open */
    uint64_t magic;
    uint32_t version;
    uint32_t reserved;
    uint64_t fingerprint; /* pawl_direct_fingerprint() */
    struct pawl_direct_shape shape;
    uint8_t pad0[256 - 24 - 40];
    uint64_t tail; /* next position; any lane, CAS upwards */
    uint8_t pad1[256 - 8];
    uint64_t head; /* all below is decided; a hint; any lane, CAS upwards */
    uint8_t pad2[256 - 8];
    uint64_t look; /* version 63-32; bit g: something is marked in the g-th 32nd of the marks */
    uint8_t pad3[256 - 8];
    uint32_t readers; /* gate: bit 0 somebody may sleep, 31-1 event count; a futex word */
    uint8_t pad4[256 - 4];
    uint32_t writers; /* the same for who waits for room */
    uint8_t pad5[256 - 4];
    /* broker; 0 each in a queue that is served. The line is written once a sweep, so that every
     * call may look whether the queue was dropped. */
    uint32_t state; /* enum pawl_direct_state */
    int32_t reason; /* with CLOSED: the PAWL_E_ code of every call from now on */
    uint64_t broker_epoch;
    uint64_t sweeps; /* full turns; stands still while no broker serves */
    uint8_t pad6[256 - 24];
};

enum pawl_direct_state { PAWL_DIRECT_OPEN = 0, PAWL_DIRECT_CLOSED = 1 };

struct pawl_direct_lane_shm {
    uint32_t status;       /* enum pawl_direct_lane_status; broker */
    uint32_t generation;   /* broker; one more each time the number becomes free */
    uint64_t announcement; /* position 63-12, count 11-0; the lane alone. 0: nothing reserved */
    uint8_t session[16];   /* broker; whose it is */
    uint8_t pad[96];
};

enum pawl_direct_lane_status {
    PAWL_DIRECT_LANE_VACANT = 0,
    PAWL_DIRECT_LANE_LIVE = 1,
    PAWL_DIRECT_LANE_DEAD = 2
};

struct pawl_direct_slot_shm {
    uint64_t word;     /* state word, below */
    uint64_t lease;    /* owner 63-52, delivery 51-42, lap of the message 41-26, ms 25-0; holder */
    uint64_t position; /* producer, between reserve and publish, as the next two */
    uint64_t meta;     /* length 31-0, flags 47-32, base 63-48; base also the broker while DEAD */
    uint8_t body[];
};

_Static_assert(sizeof(struct pawl_direct_shape) == 40, "layout");
_Static_assert(offsetof(struct pawl_direct_shm, shape) == 24, "layout");
_Static_assert(offsetof(struct pawl_direct_shm, tail) == 256, "layout");
_Static_assert(offsetof(struct pawl_direct_shm, head) == 512, "layout");
_Static_assert(offsetof(struct pawl_direct_shm, look) == 768, "layout");
_Static_assert(offsetof(struct pawl_direct_shm, readers) == 1024, "layout");
_Static_assert(offsetof(struct pawl_direct_shm, writers) == 1280, "layout");
_Static_assert(offsetof(struct pawl_direct_shm, state) == 1536, "layout");
_Static_assert(sizeof(struct pawl_direct_shm) == 1792, "layout");
_Static_assert(offsetof(struct pawl_direct_lane_shm, announcement) == 8, "layout");
_Static_assert(offsetof(struct pawl_direct_lane_shm, session) == 16, "layout");
_Static_assert(sizeof(struct pawl_direct_lane_shm) == 128, "layout");
_Static_assert(offsetof(struct pawl_direct_slot_shm, lease) == 8, "layout");
_Static_assert(offsetof(struct pawl_direct_slot_shm, position) == 16, "layout");
_Static_assert(offsetof(struct pawl_direct_slot_shm, meta) == 24, "layout");
_Static_assert(offsetof(struct pawl_direct_slot_shm, body) == 32, "layout");

/* --- words [4] ------------------------------------------------------------------------------- */

/* State word: bits 0-2 status, 3-14 owner, 15-24 delivery, 25-63 next lap N, the first lap whose
 * position in this slot is not decided yet. In HELD bits 3-24 are k, the laps skipped since the
 * reserved one; k stops at its largest value. */
enum pawl_direct_status {
    PAWL_DIRECT_EMPTY = 0,
    PAWL_DIRECT_HELD = 1,
    PAWL_DIRECT_READY = 2,
    PAWL_DIRECT_LEASED = 3,
    PAWL_DIRECT_TIMED = 4,
    PAWL_DIRECT_DEAD = 5
};
#define PAWL_DIRECT_LAP_SHIFT 25
#define PAWL_DIRECT_LAP_ONE (UINT64_C(1) << PAWL_DIRECT_LAP_SHIFT)
#define PAWL_DIRECT_LAP_MASK ((UINT64_C(1) << 39) - 1)
#define PAWL_DIRECT_SKIPS_MAX ((UINT64_C(1) << 22) - 1)

static inline uint64_t pawl_direct_word(unsigned status, uint64_t owner, uint64_t delivery,
                                        uint64_t lap)
{
    return status | owner << 3 | delivery << 15 | lap << PAWL_DIRECT_LAP_SHIFT;
}
static inline unsigned pawl_direct_word_status(uint64_t w) { return (unsigned)(w & 7); }
static inline uint32_t pawl_direct_word_owner(uint64_t w) { return (uint32_t)(w >> 3 & 0xfff); }
static inline uint32_t pawl_direct_word_delivery(uint64_t w) { return (uint32_t)(w >> 15 & 0x3ff); }
static inline uint64_t pawl_direct_word_skips(uint64_t w) { return w >> 3 & PAWL_DIRECT_SKIPS_MAX; }
static inline uint64_t pawl_direct_word_lap(uint64_t w) { return w >> PAWL_DIRECT_LAP_SHIFT; }
/* N of the word minus a lap, as the signed difference of 39 bits. */
static inline int64_t pawl_direct_lap_past(uint64_t w, uint64_t lap)
{
    return (int64_t)((w & ~(PAWL_DIRECT_LAP_ONE - 1)) - (lap << PAWL_DIRECT_LAP_SHIFT)) >>
           PAWL_DIRECT_LAP_SHIFT;
}

static inline uint64_t pawl_direct_announce(uint64_t position, uint64_t count)
{
    return position << 12 | count;
}

/* --- views ----------------------------------------------------------------------------------- */

/* One mapping of one queue, with a private copy of its constants. Read only once it is open; shared
 * by all lanes of the process. */
struct pawl_direct {
    struct pawl_direct_shm *shm;
    struct pawl_direct_lane_shm *lanes;
    uint64_t *marks;
    uint8_t *slots;
    uint64_t mask;       /* capacity - 1 */
    uint32_t shift;      /* log2 of capacity */
    uint32_t stride;     /* bytes of a slot */
    uint32_t mark_words; /* at least 1 */
    uint32_t look_shift; /* mark word >> look_shift = its bit in look */
    struct pawl_direct_shape shape;
};

struct pawl_direct_token {
    uint64_t position;
    uint16_t owner;    /* lane that was granted the message */
    uint16_t delivery; /* number of this grant; grows with every grant of the message */
};

/* A body to send. */
struct pawl_direct_body {
    const void *data;
    uint32_t length; /* at most the queue's body_bytes */
    uint16_t flags;  /* the caller's, delivered as they are */
};

/* A message received. */
struct pawl_direct_delivery {
    /* COPY: set by the caller, memory of at least body_bytes (NULL if that is 0). IN_PLACE: set by
     * receive, memory of the queue. */
    void *body;
    struct pawl_direct_token token;
    uint32_t length;
    uint16_t flags;
    uint16_t attempt; /* 1 for the first delivery (or the first after a restore) */
};

/* A lane's private half: one thread at a time. The fields are the functions' own; `counts` may be
 * read. */
struct pawl_direct_lane {
    struct pawl_direct q;
    uint64_t *announcement;
    uint64_t head; /* as last seen: an old one only makes the walk shorter */
    uint32_t owner;
    uint32_t copy_first_max; /* longer bodies are claimed first; COPY_FIRST_MAX but in tests */
    uint32_t patience;  /* looks at a place being written before it is passed; 0 is right, too */
    uint32_t noted, at; /* of the reservation: slots, and the next to publish */
    uint32_t published; /* of the reservation */
    uint64_t from;      /* position where it begins */
    uint64_t resume, ready; /* receive: used inside one call */
    uint64_t known, ask;    /* receive: tail as last read, and where to read it again */
    struct {
        uint64_t passes, skips, lates, lost, retries;
    } counts;
    uint16_t notes[PAWL_DIRECT_BATCH_MAX]; /* noted positions minus `from` */
};

/* --- memory ---------------------------------------------------------------------------------- */

/* PAWL_OK or PAWL_E_INVALID (a member out of its range), PAWL_E_TOO_BIG (more than BYTES_MAX). */
int pawl_direct_shape_check(const struct pawl_direct_shape *shape);
/* Bytes of the memory, a multiple of 4,096. Requires a shape that passed the check. */
uint64_t pawl_direct_bytes(const struct pawl_direct_shape *shape);
/* Over the layout of all that both sides touch. */
uint64_t pawl_direct_fingerprint(void);
/* Makes a queue in zeroed memory of pawl_direct_bytes(). Broker, before anybody else has it. */
void pawl_direct_init(void *memory, const struct pawl_direct_shape *shape);
/* Opens a view of `memory` (aligned to 128) of `bytes`. `expected`: the shape that the memory must
 * have (the broker's own copy, never the memory's word); NULL takes what the memory says, checked
 * against `bytes`. Returns PAWL_OK; PAWL_E_ABI: made by another version or layout;
 * PAWL_E_QUEUE_DAMAGED: the constants do not fit. */
int pawl_direct_open(struct pawl_direct *q, void *memory, uint64_t bytes,
                     const struct pawl_direct_shape *expected);
/* PAWL_OK while the queue is served, else the code that the broker left (state, reason). For who
 * found nothing to do: before it sleeps, and after. */
int pawl_direct_state(const struct pawl_direct *q);
/* Broker: from now on pawl_direct_state() answers `reason` (a PAWL_E_ code); wakes all. */
void pawl_direct_close(struct pawl_direct *q, int reason);

/* Makes the private half of lane `number`, which the broker has set LIVE (or, in a test, who plays
 * the broker). Requires 1 <= number <= lanes, else PAWL_E_INVALID. */
int pawl_direct_lane_init(struct pawl_direct_lane *lane, const struct pawl_direct *q,
                          uint32_t number);

/* --- send [5.1] ------------------------------------------------------------------------------ */

/* Sends up to `count` bodies, as many as there is room for, in array order. Never waits. Wakes
 * readers. Copies the bodies.
 * Returns how many were sent, 1..count: each is in the queue once and survives everybody's death.
 * PAWL_E_FULL: none, no room now. PAWL_E_QUEUE_DAMAGED: see DIRECT.md 10; some may have been sent.
 * PAWL_E_TOO_BIG: a length is beyond body_bytes, nothing was sent. PAWL_E_INVALID: count is 0.
 * PAWL_E_MISUSE: a reservation of this lane is open. positions, if not NULL: room for `count`, gets
 * that of each that was sent; those of a row need not follow each other. */
int pawl_direct_send(struct pawl_direct_lane *lane, const struct pawl_direct_body *bodies,
                     uint32_t count, uint64_t *positions);

/* The same in steps, for bodies written in place. reserve takes up to `count` (at most BATCH_MAX)
 * places and returns how many, or PAWL_E_FULL, _QUEUE_DAMAGED, _INVALID, _MISUSE. The places are to
 * be published or abandoned one by one, from the first to the last; the last ends the reservation
 * and wakes readers. While it is open the lane sends nothing else, but may receive and settle; it
 * pins its slots as long as the process lives, and readers pass them. */
int pawl_direct_reserve(struct pawl_direct_lane *lane, uint32_t count);
/* Memory of the next place to be published, body_bytes long, aligned to 32. NULL: none open. */
void *pawl_direct_place(struct pawl_direct_lane *lane);
/* Memory of place `index` (0..count-1 of the reservation), or NULL. */
void *pawl_direct_place_at(struct pawl_direct_lane *lane, uint32_t index);
/* Publishes the next place; the message takes effect here. *position if not NULL. PAWL_OK,
 * PAWL_E_QUEUE_DAMAGED (this message is lost, the others are not), PAWL_E_TOO_BIG (nothing done),
 * PAWL_E_MISUSE (no place open). */
int pawl_direct_publish(struct pawl_direct_lane *lane, uint32_t length, uint16_t flags,
                        uint64_t *position);
/* Gives the next place up: nobody will see it. PAWL_OK, PAWL_E_MISUSE, PAWL_E_QUEUE_DAMAGED. */
int pawl_direct_abandon(struct pawl_direct_lane *lane);

/* --- receive [5.3] --------------------------------------------------------------------------- */

enum pawl_direct_how { PAWL_DIRECT_COPY, PAWL_DIRECT_IN_PLACE };

/* Takes up to `count` messages, each under a lease of the queue's default time that begins now.
 * Never waits but for the patience. Given-back messages come first (D5.2).
 * COPY: out[k].body is the caller's memory and is filled. IN_PLACE: out[k].body points into the
 * queue; the bytes are the message's as long as the lease is held. Whoever outlived his lease may
 * have read another message: pawl_direct_holds() after the reading tells, and so does ack.
 * Returns how many, 1..count; PAWL_OK (0) for EMPTY (D6); PAWL_E_QUEUE_DAMAGED if none was taken
 * and the words make no sense; PAWL_E_INVALID: count is 0. */
int pawl_direct_receive(struct pawl_direct_lane *lane, struct pawl_direct_delivery *out,
                        uint32_t count, enum pawl_direct_how how);
/* Is there anything that receive would take? A hint for spinning: one load where nothing is marked
 * and nothing is held. */
bool pawl_direct_poll(struct pawl_direct_lane *lane);

/* --- settle [5.5] ---------------------------------------------------------------------------- */

/* The caller may be any lane of the process that was granted the token; what counts is the token.
 * All of them: PAWL_E_LEASE_LOST if the lease is over (expired, settled, given back by the broker).
 */

/* Done: the message is gone. Takes effect at most once. Wakes writers. PAWL_OK, _E_LEASE_LOST. */
int pawl_direct_ack(struct pawl_direct_lane *lane, const struct pawl_direct_token *token);
/* Gives the message back, after delay_ms (0: at once; at most LEASE_MS_MAX, else PAWL_E_INVALID),
 * timed by the broker. PAWL_OK; PAWL_E_LEASE_LOST. *dead, if not NULL: it was the last attempt, the
 * message is DEAD now. */
int pawl_direct_nack(struct pawl_direct_lane *lane, const struct pawl_direct_token *token,
                     uint32_t delay_ms, bool *dead);
/* The lease lasts lease_ms from now (at most the queue's lease_ms_max; LEASE_ALIVE: while the
 * holder lives, up to that). Also sets a time other than the default right after a receive.
 * PAWL_OK, PAWL_E_LEASE_LOST, PAWL_E_INVALID (0 or above ALIVE). */
int pawl_direct_renew(struct pawl_direct_lane *lane, const struct pawl_direct_token *token,
                      uint32_t lease_ms);
/* Was the lease held at this moment, hence all that was read in place before it the message's? */
bool pawl_direct_holds(const struct pawl_direct_lane *lane, const struct pawl_direct_token *token);

/* --- sleep and wake [5.7] -------------------------------------------------------------------- */

/* The sleeper: (1) kept = prepare(gate); (2) the operation once more, all of it; (3) if it still
 * found nothing, wait(gate, kept, ns); (4) start over. gate: &q.shm->readers to receive,
 * &q.shm->writers to send. send, ack and the broker wake. */
uint32_t pawl_direct_gate_prepare(uint32_t *gate);
/* Sleeps on the futex until woken, or ns (at most SLEEP_NS_MAX), or a signal. */
void pawl_direct_gate_wait(uint32_t *gate, uint32_t kept, uint64_t ns);
/* Wakes up to `count` sleepers. One load where nobody sleeps. */
void pawl_direct_gate_wake(uint32_t *gate, uint32_t count);
/* Adds an event and wakes everybody: after a death, at a close. */
void pawl_direct_gate_wake_all(uint32_t *gate);

/* --- the life byte [2] ----------------------------------------------------------------------- */

/* Client: takes the record lock of byte `number`. `fd` is the memory's descriptor, open for writing
 * and close-on-exec; the process keeps it, and closes no other descriptor of the memory, as long as
 * the lane lives: closing any of them drops the lock. PAWL_OK, PAWL_E_CONFLICT (another has it),
 * PAWL_E_RESOURCE. */
int pawl_direct_life_lock(int fd, uint32_t number);
/* Broker: does anybody hold the byte? 1 yes, 0 no: nobody lives in this lane;
 * PAWL_E_RESOURCE if the kernel would not say (that proves nothing). */
int pawl_direct_life_held(int fd, uint32_t number);

/* --- broker [5.6] ---------------------------------------------------------------------------- */

struct pawl_direct_counts {
    uint64_t timed, expired, released, repaired, remarked, died, sweeps;
    /* as of the last full turn of the sweep */
    uint64_t ready, leased, delayed, dead, pinned, strange;
};

struct pawl_direct_broker_lane {
    uint32_t generation;
    uint8_t status; /* enum pawl_direct_lane_status, or TAKEN */
    uint8_t reserved[3];
    uint64_t until; /* DEAD: done when the sweep has visited so many slots in all */
};
#define PAWL_DIRECT_LANE_TAKEN 3u

/* The broker's private half. One thread at a time. */
struct pawl_direct_broker {
    struct pawl_direct q;                  /* opened with the broker's own shape */
    struct pawl_direct_broker_lane *lanes; /* [shape.lanes + 1] */
    uint64_t *deadlines;                   /* [capacity]; boot clock, ns; 0: not timed by us */
    uint64_t (*clock)(void *context);      /* boot clock, ns */
    void *context;
    uint64_t visited;      /* slots, ever */
    uint64_t lease_ms_min; /* shortest lease or delay seen in the last turn, for the pace */
    uint64_t turn_ms_min;  /* of the turn that goes on */
    uint32_t live_top;     /* no lane above it is in use */
    uint32_t dead_lanes;   /* not finished yet */
    struct pawl_direct_counts counts, turn;
};

/* Bytes of private memory for the broker's half (zeroed, aligned to 8). */
uint64_t pawl_direct_broker_bytes(const struct pawl_direct_shape *shape);
/* Begins to serve a queue: a new one, or one that an earlier broker served. Takes the status of the
 * lanes from the memory: DEAD ones are finished by the sweep, of LIVE ones the caller must ask the
 * life byte and call lane_dead for those that nobody holds. Requires q opened with the broker's own
 * shape. May be repeated after any crash. */
void pawl_direct_broker_init(struct pawl_direct_broker *b, const struct pawl_direct *q,
                             void *memory, uint64_t epoch, uint64_t (*clock)(void *),
                             void *context);
/* Attach, first half: picks a vacant lane for `session` (16 bytes) and returns its number, which
 * the client must lock the life byte of; PAWL_E_QUOTA: no lane is vacant. */
int pawl_direct_lane_take(struct pawl_direct_broker *b, const uint8_t session[16]);
/* Attach, second half, after the life byte was seen held: the lane may be used. Requires a number
 * from lane_take. */
void pawl_direct_lane_live(struct pawl_direct_broker *b, uint32_t number);
/* The lane is proven dead, or has detached and is out of all calls: the next `capacity` visits of
 * the sweep give back what it held and repair what it reserved, then its number is vacant again. Of
 * a lane that is not in use: nothing. */
void pawl_direct_lane_dead(struct pawl_direct_broker *b, uint32_t number);
uint8_t pawl_direct_lane_status(const struct pawl_direct_broker *b, uint32_t number);
/* Slots that the sweep must still visit until all dead lanes are finished; 0: there are none. */
uint64_t pawl_direct_sweep_pending(const struct pawl_direct_broker *b);
/* Visits the next `slots` slots (at most capacity): times leases, ends those whose time is over and
 * those of the dead, repairs reservations of the dead, marks what should be marked, counts. To be
 * called so that a full turn takes at most pawl_direct_sweep_ms(). Returns how many messages became
 * ready or dead. */
uint64_t pawl_direct_sweep(struct pawl_direct_broker *b, uint64_t slots);
/* A full turn in this time keeps leases late by at most 1/8 of the shortest in use, 1,000 at most.
 */
uint64_t pawl_direct_sweep_ms(const struct pawl_direct_broker *b);

/* DEAD messages: finds the first at or behind slot *slot, sets *slot to it, and copies
 * up to `bytes` of the body. Returns 1 and *out (body as set by the caller, or NULL), or 0. */
int pawl_direct_dead_next(struct pawl_direct_broker *b, uint64_t *slot, uint32_t bytes,
                          struct pawl_direct_delivery *out);
/* READY again, its attempts counted anew. PAWL_OK; PAWL_E_STATE: no such message is dead here;
 * PAWL_E_NOT_SUPPORTED: its delivery numbers are used up, it can only be sent anew. */
int pawl_direct_dead_restore(struct pawl_direct_broker *b, uint64_t position);
/* Frees the slot: purged, or moved out to the broker's own memory. PAWL_OK, PAWL_E_STATE. */
int pawl_direct_dead_purge(struct pawl_direct_broker *b, uint64_t position);

/* --- inside ---------------------------------------------------------------------------------- */

static inline struct pawl_direct_slot_shm *pawl_direct_slot(const struct pawl_direct *q,
                                                            uint64_t position)
{
    return (struct pawl_direct_slot_shm *)(void *)(q->slots + (position & q->mask) * q->stride);
}
static inline uint64_t pawl_direct_lap(const struct pawl_direct *q, uint64_t position)
{
    return position >> q->shift;
}
/* Asks for the lines of the slot that a short message needs. A hint, no access. */
static inline void pawl_direct_ahead(const struct pawl_direct *q, uint64_t position)
{
    const struct pawl_direct_slot_shm *slot = pawl_direct_slot(q, position);
    pawl_will_write(slot);
    if (q->stride > 64)
        pawl_will_write((const char *)slot + 64);
}
/* [5.4] Shared by both sides; the caller wakes readers. */
void pawl_direct_mark(const struct pawl_direct *q, uint64_t position);
/* The lowest marked READY message below p, among the first MARKED_MAX: true, its position and the
 * word that it was seen under. Clears stale marks on its way. */
bool pawl_direct_find(const struct pawl_direct *q, uint64_t p, uint64_t *position, uint64_t *word);
/* The claimer of the slot takes its mark away. */
void pawl_direct_unmark(const struct pawl_direct *q, uint64_t position);

#endif
