/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_RECOVERY_H
#define PAWL_BROKER_LOG_RECOVERY_H

/* Finding out what the log holds, without changing a byte. Used at every start, by read-only
 * openings and by the log tools.
 *
 * - every slot file is opened, flushed, and its first page read: that says which segment it holds.
 * - the newest segment is walked: its last block says where the log begins.
 * - from there every block is checked (hash, place, chain, epoch) and its records handed out.
 * - where the chain ends, evidence is gathered and one table decides: the end, a torn tail, the
 *   next segment, or damage. */

#include "log/log_inner.h"
#include "log/meta.h"
#include "log/reader.h"

/* --- the decision ---------------------------------------------------------------------------- */

/* What is known about the first place x where no block continues the chain. */
enum pawl_evidence {
    PAWL_EV_VERSION = 1,        /* a whole block of a newer version stands at x */
    PAWL_EV_FOLLOWED = 2,       /* a later segment has a valid first block */
    PAWL_EV_LINKS = 4,          /* ... and that of the very next one continues the chain */
    PAWL_EV_HEAD_BEYOND = 8,    /* the head file says that x was durable */
    PAWL_EV_UNREADABLE = 16,    /* the disk refuses to read at or behind x in this segment */
    PAWL_EV_UNLINKED = 32,      /* a valid block stands at x, but does not continue the chain */
    PAWL_EV_LATER_VOUCHES = 64, /* behind x, a valid block in its place says that x was durable */
    PAWL_EV_LATER_EPOCH = 128,  /* behind x, a valid block in its place of a later epoch */
    PAWL_EV_MISPLACED = 256,    /* behind x, a block that belongs at x or later stands elsewhere */
    PAWL_EV_LATER_MUTE = 512,   /* behind x, a valid block in its place that says nothing of x */
    PAWL_EV_REMAINS = 1024      /* bytes of a block that was being written at x */
};
#define PAWL_EVIDENCE_ALL 2047u

enum pawl_decision {
    PAWL_DECIDE_END,    /* nothing was written here */
    PAWL_DECIDE_CUT,    /* a torn tail that was never acknowledged */
    PAWL_DECIDE_NEXT,   /* go on in the next segment */
    PAWL_DECIDE_DAMAGE, /* refuse */
    PAWL_DECIDE_VERSION /* refuse, and say that a newer version is needed */
};

struct pawl_decision_row {
    uint32_t all;  /* evidence that must be there */
    uint32_t none; /* ... that must not */
    enum pawl_decision decision;
    const char *why;
};
extern const struct pawl_decision_row pawl_decision_table[];
extern const unsigned pawl_decision_rows;
/* The first row that fits. Every evidence fits one. */
const struct pawl_decision_row *pawl_decide(uint32_t evidence);

/* --- the survey and the walk ----------------------------------------------------------------- */

struct pawl_survey_slot {
    uint64_t segment; /* VALID */
    uint64_t file_bytes;
    uint32_t number;
    int fd;
    enum pawl_verdict first; /* what its first page is */
};

/* A walker also sees the blocks themselves (tools). Non-zero stops with damage. */
typedef int pawl_walk_block(void *ctx, uint32_t slot_number, uint64_t offset,
                            const struct pawl_block_rec *block);

struct pawl_recovery {
    struct pawl_io *io;
    int dir;
    bool read_only; /* flush nothing */
    struct pawl_log_identity id;
    struct pawl_head_rec head;
    struct pawl_reader reader;
    struct pawl_survey_slot *slot;
    uint32_t slot_count, slot_capacity;
    pawl_log_replay *replay;
    pawl_walk_block *block;
    void *ctx;
    bool limited; /* look at nothing from `limit` on, and call that the end */
    uint64_t limit;

    /* found: */
    uint64_t oldest; /* position */
    uint64_t newest; /* segment number; NONE: there is none */
    uint64_t tail;   /* where the chain ends */
    uint64_t previous_low, previous_high;
    uint64_t epoch;                                /* the highest one seen anywhere */
    uint64_t chain_epoch;                          /* of the last block of the chain */
    uint64_t time_ns, boot_ns, wall_ns, boot_hash; /* of the last block */
    uint64_t walked_boot;                          /* boot_hash of the last block handed out */
    uint64_t boot_epoch; /* of the first block of the last block's boot; 0: none of another boot */
    uint32_t last_flags;
    uint64_t records, blocks, bytes;
    enum pawl_decision decision; /* at the tail, or where it was refused */
    const char *why;
    uint64_t cut_bytes; /* CUT: of torn blocks */
    uint64_t clear_end; /* CUT: clear [tail, clear_end) of the newest segment */
    bool reused;        /* the newest segment's slot held older blocks */
    /* DAMAGE: */
    uint32_t damage_file; /* slot number; 0: a whole segment is missing */
    uint64_t damage_offset, damage_position;
    bool moved;          /* CANNOT: the log was overtaken while it was being read */
    bool senseless;      /* whole, but its reader refused a record of it */
    uint64_t next_valid; /* position of a valid block behind it; NONE */
    char text[PAWL_LOG_TEXT_BYTES];
};

/* Survey and walk. With read_only a broker may be writing meanwhile: damage counts only when a
 * second look finds it at the same place, and records are handed out up to where the first look
 * found the end. */
int pawl_recovery_run(struct pawl_recovery *r);

/* Opens and reads the slots. pawl_log_result. */
int pawl_recovery_survey(struct pawl_recovery *r);
/* Where the log begins and ends, by its newest segment alone: oldest and tail. */
int pawl_recovery_look(struct pawl_recovery *r);
/* Walks and decides. PAWL_LOG_OK, _DAMAGE (text says what and where), _CANNOT (version, errors). */
int pawl_recovery_walk(struct pawl_recovery *r);
/* Closes what survey opened, but for descriptors taken over (fd set to -1). */
void pawl_recovery_fini(struct pawl_recovery *r);
/* The slot that holds a segment of the log, or NULL. */
struct pawl_survey_slot *pawl_recovery_slot(struct pawl_recovery *r, uint64_t segment);

#endif
