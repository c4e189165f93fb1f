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
    bool real_time; /* waiting costs */
    /* appended, and where */
    uint64_t *lsn;
    uint32_t *size;
    uint64_t max; /* entries of both */
    /* of the last replay: numbers seen, in order */
    uint64_t replayed_first, replayed_count;
    uint64_t replay_hash;
    bool wrong; /* a record had other bytes, or was out of order */
};

void rig_init(struct log_rig *rig, struct pawl_io *io, int dir);
void rig_fini(struct log_rig *rig); /* closes the log, not the io */
/* The same history on another disk; not open. */
void rig_copy(struct log_rig *to, const struct log_rig *from, struct pawl_io *io, int dir);
int rig_open(struct log_rig *rig);
void rig_close(struct log_rig *rig);
/* One record of this body size; false: no room. */
bool rig_append(struct log_rig *rig, uint32_t bytes);
void rig_seal(struct log_rig *rig);
/* Called after each turn, so that a recording can note what is acknowledged by then. */
typedef void rig_noter(struct log_rig *rig);
extern rig_noter *rig_note;
/* One turn: wait (up to a second of the io's time, or a real millisecond), tend, and note what is
 * durable. */
int rig_turn(struct log_rig *rig);
/* Seals and turns until all that was appended is durable. False: the log failed, or it takes too
 * many turns. */
bool rig_flush(struct log_rig *rig);
/* `count` records of `bytes`, flushed every `each` records. */
bool rig_fill(struct log_rig *rig, unsigned count, uint32_t bytes, unsigned each);
/* Turns until a next segment is ready or nothing is going on any more. */
void rig_settle(struct log_rig *rig);
/* A life: records of many sizes, one at a time and in rows, a large one, segment changes, releases
 * of the oldest segment, markers; ends cleanly. Stops early, false, if the log fails or stands
 * still; what was acknowledged until then counts. */
bool rig_script(struct log_rig *rig);
/* After an open: nothing wrong, and all acknowledged records are there up to where the log begins.
 * 0, or a text of what is missing. */
const char *rig_missing(const struct log_rig *rig, uint64_t acked);
/* Body of record `number`. */
void rig_body(uint64_t number, uint8_t *body, uint32_t bytes);
pawl_log_replay rig_replay;

/* A fresh directory under $TMPDIR or /tmp; removed with all files by rig_dir_remove(). */
int rig_dir_make(char path[64]);
void rig_dir_remove(const char *path);

#endif
