/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_LIB_LOG_RIG_H
#define PAWL_TESTS_LIB_LOG_RIG_H

/* A log under test, on any io: opens, appends numbered records whose bytes follow from their
 * number, waits, and reopens to see what was kept. Failures are counted and printed, never
 * asserted, so that it also serves forked children, fuzzing and loops of images. */

#include "log/log.h"

#define RIG_RECORD 7u /* type of a numbered record */
#define RIG_RECORDS_MAX 65536u

struct log_rig {
    struct pawl_io *io;
    struct pawl_log_options options;
    struct pawl_log *log;
    struct pawl_log_info info;
    char text[PAWL_LOG_TEXT_BYTES];
    int result;     /* of the last open */
    uint64_t next;  /* number of the next record */
    uint64_t acked; /* numbers below were durable when last looked at */
    uint64_t boot_ns;
    /* appended, and where */
    uint64_t *lsn;
    uint32_t *size;
    /* of the last replay: numbers seen, in order */
    uint64_t replayed_first, replayed_count;
    uint64_t replay_hash;
    bool wrong; /* a record had other bytes, or was out of order */
};

void rig_init(struct log_rig *rig, struct pawl_io *io, int dir);
void rig_fini(struct log_rig *rig); /* closes the log, not the io */
int rig_open(struct log_rig *rig);
void rig_close(struct log_rig *rig);
/* One record of this body size; false: no room. */
bool rig_append(struct log_rig *rig, uint32_t bytes);
void rig_seal(struct log_rig *rig);
/* One turn: wait (up to a second of the io's time), tend, and note what is durable. */
int rig_turn(struct log_rig *rig);
/* Seals and turns until all that was appended is durable. False: the log failed, or it takes too
 * many turns. */
bool rig_flush(struct log_rig *rig);
/* `count` records of `bytes`, flushed every `each` records. */
bool rig_fill(struct log_rig *rig, unsigned count, uint32_t bytes, unsigned each);
/* Turns until a next segment is ready or nothing is going on any more. */
void rig_settle(struct log_rig *rig);
/* Body of record `number`. */
void rig_body(uint64_t number, uint8_t *body, uint32_t bytes);
pawl_log_replay rig_replay;

/* A fresh directory under $TMPDIR or /tmp; removed with all files by rig_dir_remove(). */
int rig_dir_make(char path[64]);
void rig_dir_remove(const char *path);

#endif
