/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_INSPECT_H
#define PAWL_BROKER_LOG_INSPECT_H

/* Looking into a log without changing it, for `pawl log list|verify|dump`; and the one deliberate
 * way to change a damaged one, `pawl log repair --accept-loss`.
 *
 * Inspection takes no lock and works while a broker writes: it opens files read-only, flushes
 * nothing, and tells a tail that moves from damage by looking again. */

#include "log/log.h"

struct pawl_inspect;

enum pawl_inspect_use {
    PAWL_INSPECT_LIVE,  /* part of the log */
    PAWL_INSPECT_FREE,  /* holds a segment before the beginning of the log; to be reused */
    PAWL_INSPECT_READY, /* filled with zeros, not used yet */
    PAWL_INSPECT_BLANK, /* half-made, or begins with no valid block */
    PAWL_INSPECT_TWICE  /* a second file of a segment that is there */
};

struct pawl_inspect_file {
    char name[16];
    uint64_t bytes; /* size of the file */
    enum pawl_inspect_use use;
    const char *begins_with; /* "valid", "zeros", "torn", ... */
    uint64_t segment;        /* LIVE, FREE, TWICE: its number */
    uint64_t position;       /* ... and its first position */
    /* LIVE, after pawl_inspect_verify(): */
    uint64_t blocks, records, used_bytes; /* used_bytes: up to the end of its last block */
    uint64_t epoch_first, epoch_last;
};

struct pawl_inspect_state {
    uint8_t log_id[16];
    uint64_t segment_bytes;
    uint32_t version;
    uint64_t head_position, head_epoch, head_segment; /* what the head file says */
    uint64_t oldest, newest_segment;                  /* UINT64_MAX: no segment yet */
    /* After pawl_inspect_verify(): */
    uint64_t tail, epoch, time_ns, wall_ns, records, blocks, bytes;
    bool clean;         /* ends with the marker of a clean stop */
    uint64_t cut_bytes; /* of a torn tail that the next start will drop, or is being written */
    /* Damage: */
    char damage_file[16]; /* "": none, or a whole file is missing */
    uint64_t damage_offset, damage_position;
    uint64_t next_valid; /* position of the first valid block behind it; UINT64_MAX: none */
    const char *damage_why;
};

/* PAWL_LOG_OK, _CANNOT (no log, rights, version) or _DAMAGE (id or head): then *out is NULL and
 * text says what. */
int pawl_inspect_open(struct pawl_io *io, int dir, struct pawl_inspect **out,
                      char text[PAWL_LOG_TEXT_BYTES]);
void pawl_inspect_close(struct pawl_inspect *inspect);
/* Walks the whole log and checks every block. PAWL_LOG_OK, _DAMAGE or _CANNOT, and the text. */
int pawl_inspect_verify(struct pawl_inspect *inspect, char text[PAWL_LOG_TEXT_BYTES]);
const struct pawl_inspect_state *pawl_inspect_state(const struct pawl_inspect *inspect);
/* Ordered by segment, then those that hold none. NULL from `count` on. */
const struct pawl_inspect_file *pawl_inspect_file(const struct pawl_inspect *inspect, uint32_t i);

struct pawl_inspect_block {
    const char *file;
    uint64_t offset, bytes; /* in the file; bytes of the block, or of the stretch that is none */
    const char *verdict;    /* "valid", "zeros", "torn", "not a block", "unreadable", ... */
    /* valid: */
    uint64_t position, epoch, durable, oldest, time_ns, boot_ns, wall_ns;
    uint32_t used_bytes, count;
    bool marker, clean, opening;
    bool chained; /* continues the block before it */
};
struct pawl_inspect_visitor {
    void *ctx;
    /* Non-zero stops and is returned. Both may be NULL. */
    int (*block)(void *ctx, const struct pawl_inspect_block *block);
    int (*record)(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes);
};
/* Shows every block of the live files from position `from` on, damaged stretches too, and the
 * records of valid ones. Works behind damage. 0, what a visitor returned, or -errno. */
int pawl_inspect_walk(struct pawl_inspect *inspect, uint64_t from,
                      const struct pawl_inspect_visitor *visitor);

/* --- repair ---------------------------------------------------------------------------------- */

struct pawl_repair_result {
    bool changed;
    uint64_t tail;                   /* all from here on is given up */
    uint64_t blocks, records, bytes; /* valid ones among that, which were acknowledged or may be */
    uint64_t files;                  /* kept as copies, named lost-*.seg */
    char report[64];                 /* name of the report file in the directory */
};

/* Cuts a damaged log where the chain ends, so that the next start takes what is before it. The
 * caller holds the lock of the directory and has the operator's word that what is behind may be
 * lost. First every file that will change is copied (lost-N-NAME) and a report written; then the
 * rest of the damaged segment is cleared, later segments are emptied, newest first, and the head is
 * set back: a crash in between leaves a log that is still damaged, to be repaired again. wall_ns
 * names the report. Nothing is changed when there is no damage. */
int pawl_log_repair(struct pawl_io *io, int dir, uint64_t wall_ns,
                    struct pawl_repair_result *result, char text[PAWL_LOG_TEXT_BYTES]);

#endif
