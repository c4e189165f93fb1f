/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_CORE_SHELL_H
#define PAWL_TESTS_CORE_SHELL_H

/* A shell around one core for unit tests: a log in memory, lanes without rings, a clock that the
 * test moves. What the core appends is kept, so that a second core can be made of it and compared;
 * what it emits is kept as events. Nothing is published before core_turn(), so that a test can look
 * at what would be lost. */

#include "core/core.h"
#include "pawl.h"

#define CORE_LANES 32u
#define CORE_ROOT 0u
#define CORE_TIME 1000000000000ull /* pawl time at the start of a test */
#define CORE_WALL 1700000000000000000ull

struct core_record {
    uint64_t lsn;
    uint16_t type;
    uint32_t bytes;
    uint8_t *body; /* NULL: its segment was released */
};

/* An effect as it was published. */
struct core_event {
    struct pawl_effect effect;
    bool seen; /* by core_answer() and the like */
    uint8_t *bytes;
};

struct core_shell {
    struct pawl_core *core;
    struct pawl_core_options options;
    struct pawl_now now;
    uint64_t seed, random;
    struct core_record *records;
    uint32_t record_count, record_capacity;
    uint64_t appended;
    uint64_t room; /* what port.room answers; lowered by what is appended if `metered` */
    bool metered;
    struct pawl_effect *effects; /* not yet published */
    uint32_t effect_count, effect_capacity;
    struct core_event *events;
    uint32_t event_count, event_capacity;
    uint64_t position[CORE_LANES];   /* of the completion ring */
    uint64_t free_bytes[CORE_LANES]; /* for reserve */
    uint64_t reserved[CORE_LANES];
    uint64_t memory, memory_max; /* mapped; more than max fails */
};

/* What core_init() takes, for a test that wants one of them otherwise. */
struct pawl_core_options core_options(void);
void core_init(struct core_shell *s);
/* With these options (epoch 1 unless given). */
void core_init_options(struct core_shell *s, const struct pawl_core_options *options);
/* Replays what the log holds into a second core, compares digests, verifies both, frees all. The
 * last line of each test. */
void core_end(struct core_shell *s);
/* The same check without the end. */
void core_check(struct core_shell *s);
void core_fini(struct core_shell *s);
/* A new core that has not started, for a test that feeds it itself. */
void core_shell_core(struct core_shell *s);
/* The broker dies and comes back with this log: a new core, epoch + 1. Lanes are gone. */
void core_restart(struct core_shell *s, bool same_boot);
/* Forgets records from this one on, as a crash that the disk had not seen them. */
void core_cut(struct core_shell *s, uint32_t records);
/* Drops the records of this segment and all before, as copy-forward allows. */
void core_release(struct core_shell *s, uint64_t segment);
/* Copies and releases segments until only the newest is left; false: something lived on there. */
void core_copy_all(struct core_shell *s);

void core_pass(struct core_shell *s, uint64_t ns); /* moves the clock */
void core_turn(struct core_shell *s);              /* timers, pump, publishes everything */
void core_forget_events(struct core_shell *s);     /* all so far */
/* The same without timers. */
void core_publish(struct core_shell *s);

/* --- clients --------------------------------------------------------------------------------- */

struct core_client {
    struct core_shell *shell;
    struct pawl_core_session *session;
    struct pawl_core_lane *lane;
    uint64_t session_id;
    uint8_t secret[16];
    uint32_t handle, number, uid, window, comp_bytes;
    uint64_t next_seq;
    uint64_t oldest; /* open seq; moves with each answered core_call() unless `hold` */
    bool hold;       /* set by core_receive_submit() and whoever submits without an answer */
};

void core_client_open(struct core_shell *s, struct core_client *c, uint32_t uid);
/* Comes back with its secret and resumes its lane. */
int core_client_resume(struct core_client *c, uint64_t grant_durable, uint64_t grant_relaxed);

/* Fills head and seq; answers PAWL_OK if the core took it. The answer comes with core_turn(). */
int core_take(struct core_client *c, void *command, uint32_t fixed, const void *variable,
              uint32_t variable_bytes);
/* Takes, turns and finds the answer of it. */
struct core_answer {
    int result;
    uint64_t value, lsn, seq;
    uint32_t flags;      /* PAWL_ANSWER_... */
    const uint8_t *data; /* of DATA */
    uint32_t bytes;
};
struct core_answer core_call(struct core_client *c, void *command, uint32_t fixed,
                             const void *variable, uint32_t variable_bytes);
/* The answer of this seq among the events not seen yet; result INT32_MIN: none. */
struct core_answer core_answer(struct core_client *c, uint64_t seq);
#define CORE_NONE INT32_MIN

/* --- commands -------------------------------------------------------------------------------- */

uint64_t core_create(struct core_client *c, const char *name, uint32_t mode);
uint64_t core_create_with(struct core_client *c, const char *name,
                          const struct pawl_queue_options *options);
struct core_answer core_queue_command(struct core_client *c, uint16_t type, const char *name,
                                      const struct pawl_queue_options *options);
struct core_answer core_send(struct core_client *c, uint64_t queue, const char *body);
struct core_send_options {
    uint8_t priority;
    uint64_t delay_ns, at_wall_ns, ttl_ns;
    const char *headers;
    uint16_t headers_bytes;
    const char *ordering_key;
    const char *key;
};
struct core_answer core_send_with(struct core_client *c, uint64_t queue, const char *body,
                                  const struct core_send_options *options);

/* One delivery of this client's lane that was not seen yet. */
struct core_delivery {
    bool there;
    struct pawl_comp_delivery d;
    char body[256];
    char progress[64]; /* its beginning */
};
struct core_delivery core_delivered(struct core_client *c);
/* A RECEIVE of one message that does not wait. */
struct core_delivery core_receive(struct core_client *c, uint64_t queue);
struct core_delivery core_receive_kind(struct core_client *c, uint64_t queue, uint8_t kind,
                                       uint64_t lease_ns, uint8_t flags);
/* Submits; seq is returned. */
uint64_t core_receive_submit(struct core_client *c, uint16_t type, uint64_t queue, uint32_t max,
                             uint64_t wait_ns, uint8_t kind);
struct core_answer core_settle(struct core_client *c, uint16_t type, const struct core_delivery *d,
                               uint64_t time_ns, uint32_t flags, const char *reason);
struct core_answer core_ack(struct core_client *c, const struct core_delivery *d);
struct core_answer core_by_id(struct core_client *c, uint16_t type, uint64_t queue, uint64_t id,
                              uint32_t flags);
struct pawl_queue_stat core_stat(struct core_client *c, const char *name);
struct pawl_record core_query(struct core_client *c, uint64_t queue, uint64_t id);

#endif
