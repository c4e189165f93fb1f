/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_INNER_H
#define PAWL_BROKER_LOG_INNER_H

/* What the files of the log share: log.c (open block, seal, completions), segment.c (slot files
 * ahead of need, growth, reuse), meta.c (id and head), open.c (life), recovery.c.
 *
 * Invariants
 *   oldest_durable <= oldest <= segment of tail          (segment numbers)
 *   durable <= tail <= position of the open block        (positions)
 *   flights are a row without holes: each begins where the one before ends, or at the next segment
 *   the first block of a segment is in flight alone, and the head that names it is durable before
 *   another block starts or durable moves over it
 *   failed never goes back to false; then durable and oldest_durable never move again
 *
 * A slot file
 *
 *      (new) ──open, zeros, flush, directory──▶ BLANK ──ready page──▶ READY ──first block──▶ HOLDS
 *                                                ▲ a failed step                              │
 *                                                │ torn first page at start                   │
 *                                                └───────                                     │
 *      HOLDS with segment < oldest_durable is free: its next first block makes it HOLDS again ◀┘
 */

#include "log/block.h"
#include "log/log.h"

#define PAWL_LOG_IN_FLIGHT_MAX 8u
/* Kept back at the end of each segment from blocks with records, for markers. */
#define PAWL_LOG_SEGMENT_REST (4u * PAWL_LOG_PAGE)
#define PAWL_LOG_SEGMENT_BYTES_MIN (64u * 1024u)
#define PAWL_LOG_SEGMENT_BYTES_MAX (1ull << 30)
#define PAWL_LOG_EPOCH_MAX ((1ull << 24) - 1)
#define PAWL_LOG_ZERO_CHUNK (1u << 20)
#define PAWL_LOG_RETRY_NS 1000000000ull
#define PAWL_LOG_SLOTS_MAX 1000000u /* six digits in a name */
#define PAWL_LOG_NONE UINT64_MAX

enum pawl_slot_state { PAWL_SLOT_BLANK, PAWL_SLOT_READY, PAWL_SLOT_HOLDS };

struct pawl_slot {
    uint64_t segment; /* HOLDS */
    uint64_t zeroed;  /* so much of it, by this broker; 0 once it holds a block */
    uint32_t number;  /* in its name */
    int fd;           /* -1: not open */
    uint8_t state;
};

/* A block on its way to the disk. */
struct pawl_flight {
    struct pawl_io_op op;
    struct pawl_log *log;
    uint8_t *base;
    uint64_t position, total, oldest;
    bool done, needs_head, clean, large;
};

enum pawl_prep_step {
    PAWL_PREP_IDLE,
    PAWL_PREP_OPEN,
    PAWL_PREP_ZERO,
    PAWL_PREP_FLUSH,
    PAWL_PREP_DIR,
    PAWL_PREP_READY
};

struct pawl_log {
    /* The open block; what append touches is in the first line. cap 0: it has no buffer or no
     * place. */
    uint8_t *base;
    uint64_t position;
    uint32_t used, cap; /* header included; cap is 8 less than the bytes there are */
    uint32_t count;
    bool large, failed, marked, clean_marked;
    uint64_t room_empty; /* what one record or row of records may take while it is empty */
    uint64_t appended;   /* behind the last record that was sealed */

    struct pawl_io *io;
    struct pawl_log_options options; /* block_bytes after clamping */
    struct pawl_log_identity id;
    uint64_t epoch, boot_hash;
    uint64_t tail, durable, oldest, oldest_durable;
    uint64_t previous_low, previous_high;
    uint64_t time_ns, boot_ns, wall_ns; /* of the last block */

    struct pawl_flight flight[PAWL_LOG_IN_FLIGHT_MAX];
    uint32_t flight_first, flight_count;
    bool opening_segment; /* its first block or head is not durable yet */

    uint8_t *buffers, *large_buffer, *spare[PAWL_LOG_IN_FLIGHT_MAX + 1];
    uint64_t large_bytes;
    uint32_t spare_count;
    bool large_free;

    /* head file */
    struct pawl_io_op head_op;
    uint8_t *head_page;
    uint64_t head_generation;
    int head_fd;
    bool head_busy;

    /* slots */
    struct pawl_slot *slot;
    uint32_t slot_count, slot_max, existing; /* existing: READY and HOLDS */
    uint32_t current;                        /* slot of the segment of tail; NONE32 before any */
    uint32_t next;                           /* slot for the next segment; NONE32 */
    bool next_opening;
    struct pawl_io_op next_op;
    uint64_t next_retry_at;
    char next_name[16];

    struct pawl_io_op prep_op;
    enum pawl_prep_step prep_step;
    uint32_t prep_slot;
    uint64_t prep_retry_at;
    uint8_t *zeros, *ready_page;
    char prep_name[16];
    bool disk_full;
    bool rescue; /* one more than max_bytes allows is wanted */
    uint64_t want, now;

    struct pawl_log *abandoned; /* open.c */
    char failure[256];
};
#define PAWL_NONE32 UINT32_MAX

static inline bool pawl_log_segment_size_ok(uint64_t bytes)
{
    return (bytes & (bytes - 1)) == 0 && bytes >= PAWL_LOG_SEGMENT_BYTES_MIN &&
           bytes <= PAWL_LOG_SEGMENT_BYTES_MAX;
}
static inline uint64_t pawl_log_segment_of(const struct pawl_log *log, uint64_t position)
{
    return position / log->id.segment_bytes;
}
/* Bytes left in the segment of the tail; 0 too when there is none yet. */
static inline uint64_t pawl_log_rest(const struct pawl_log *log)
{
    uint64_t in = log->tail % log->id.segment_bytes;
    return in == 0 ? 0 : log->id.segment_bytes - in;
}
static inline uint64_t pawl_log_next_start(const struct pawl_log *log)
{
    uint64_t s = log->id.segment_bytes;
    return (log->tail + s - 1) / s * s;
}

/* open.c: id and head, with a text if they cannot be had. An absent log is made unless read_only.
 */
int pawl_log_load(struct pawl_io *io, const struct pawl_log_options *options,
                  struct pawl_log_identity *id, struct pawl_head_rec *head,
                  char text[PAWL_LOG_TEXT_BYTES]);

/* log.c */
void pawl_log_fail(struct pawl_log *log, const char *what, uint64_t offset, int error);
/* Gives the open block a place if it is empty: after a seal, a completion, a new next segment. */
void pawl_log_place(struct pawl_log *log);
/* A block without records, where the tail is or at the start of the next segment. False: no place.
 * Requires an empty open block and nothing in flight. */
bool pawl_log_note(struct pawl_log *log, uint32_t flags, uint64_t time_ns, uint64_t boot_ns,
                   uint64_t wall_ns);
/* Runs the io until nothing of the log is in flight. 0, or the error of the io. */
int pawl_log_drain(struct pawl_log *log);
bool pawl_log_busy(const struct pawl_log *log);
void pawl_log_head_done(struct pawl_log *log);

/* segment.c */
void pawl_slot_name(char name[16], uint32_t number);
uint32_t pawl_slot_add(struct pawl_log *log, uint32_t number);
/* The next slot becomes that of the segment that begins at the tail's next start. */
bool pawl_slot_advance(struct pawl_log *log, uint64_t segment);

/* meta.c */
void pawl_head_start(struct pawl_log *log, uint64_t position, bool clean);

#endif
