/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_H
#define PAWL_BROKER_LOG_H

/* The write-ahead log: a row of records, grouped into blocks, laid into segments. It knows nothing
 * of what a record means. FORMAT.md has the bytes, recovery.c the decision table.
 *
 * A position (lsn) is a byte count from the start of the log that only grows; segment = lsn /
 * segment_bytes. A record is durable when pawl_log_durable() is beyond its lsn.
 *
 * Turn of the owner: append records into the open block (memory only) → seal: the block gets its
 * header and hash and its write starts; others may still be in flight → pawl_io_wait() completes
 * writes → durable moves over the unbroken row of finished blocks.
 *
 * First failure of a write or flush: the log is failed for ever (G8); durable never moves again. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"

#define PAWL_LOG_BLOCK_ALIGN 4096u
#define PAWL_LOG_TEXT_BYTES 512

enum pawl_log_result {
    PAWL_LOG_OK = 0,
    PAWL_LOG_CANNOT = 1, /* cannot be opened: rights, lock, space, version */
    PAWL_LOG_DAMAGE = 3, /* the acknowledged part is damaged; nothing was changed */
    PAWL_LOG_FAILED = 4  /* a write or flush failed */
};

struct pawl_log_options {
    int dir;                /* descriptor of DIR/log, locked by the caller */
    uint64_t segment_bytes; /* used when the log is made; else what the log says */
    uint64_t max_bytes;     /* of all segments */
    uint32_t
        block_bytes; /* a block is sealed at this size at the latest, but for one large record */
    uint32_t in_flight_max;    /* 1..8 */
    uint32_t record_bytes_max; /* largest record ever appended; see info.record_bytes_max */
    bool read_only;            /* replay and verify; writes nothing, raises no epoch */
    uint8_t boot_id[16];
    uint64_t boot_ns, wall_ns; /* now */
    uint8_t log_id[16];        /* of a log that is made; all zero (the rule): random */
};

struct pawl_log_info {
    uint64_t epoch; /* of this opening, durable on return (read_only: the last one) */
    /* These three are set before the first record is replayed. record_bytes_max: what was asked
     * for, or less where the segments of this log take no more. */
    uint8_t log_id[16];
    uint64_t segment_bytes;
    uint32_t record_bytes_max;
    uint64_t oldest, tail; /* positions */
    uint64_t time_ns;      /* pawl time to go on with: see below */
    bool same_boot;        /* the last block was written in this boot */
    uint64_t boot_epoch;   /* the first epoch of this boot; 0: the log holds none of another */
    bool clean;            /* it ended with the marker of a clean stop */
    uint64_t records, blocks, bytes;
    uint64_t cut_bytes; /* of a torn tail that was dropped */
};

/* Pawl time: nanoseconds that only grow over the life of the log, crash or reboot; all deadlines in
 * records are in it. Each block carries pawl, boot and wall time. On opening: in the same boot,
 * last pawl time + elapsed boot time; after a reboot, + elapsed wall time, never negative (C3). */

/* Called for each record in order. Non-zero: the record makes no sense = damage. */
typedef int pawl_log_replay(void *ctx, uint64_t lsn, uint16_t type, const void *body,
                            uint32_t bytes);

struct pawl_log;

/* Makes the log if the directory is empty or half-made (a transaction, S4/3.2.7), else recovers it:
 * calls replay for every record that counts, cuts a torn tail, writes a block of the new epoch.
 * text says what was found when something was, and on failure what to do. */
int pawl_log_open(struct pawl_io *io, const struct pawl_log_options *options,
                  pawl_log_replay *replay, void *ctx, struct pawl_log **out,
                  struct pawl_log_info *info, char text[PAWL_LOG_TEXT_BYTES]);
/* Writes still in flight are waited for. */
void pawl_log_close(struct pawl_log *log);

/* Bytes of records (with their heads, PAWL_LOG_RECORD_HEAD each) that fit now without waiting for
 * the disk; 0 while all buffers are in flight or the next segment is not there yet. What is
 * appended within it, before the next seal, stays in one block. */
uint64_t pawl_log_room(const struct pawl_log *log);
/* room >= bytes, and where the open block is still empty and its segment too full for that, moves
 * it to the next segment first. Ask this, not room, before records of more than block_bytes. False:
 * seal what is pending and wait for the disk; for ever, where bytes > info.record_bytes_max + one
 * head. */
bool pawl_log_admit(struct pawl_log *log, uint64_t bytes);
/* Room for one record in the open block, aligned to 8; write `bytes` of body there before the next
 * call. Requires room >= bytes + PAWL_LOG_RECORD_HEAD. *lsn: its position, never 0. */
void *pawl_log_append(struct pawl_log *log, uint16_t type, uint32_t bytes, uint64_t *lsn);
#define PAWL_LOG_RECORD_HEAD 16u /* at most: length and type, and padding to 8 */

bool pawl_log_pending(const struct pawl_log *log); /* the open block holds records */
uint32_t pawl_log_in_flight(const struct pawl_log *log);
/* Position behind the last record; once that is durable, pawl_log_durable() is greater. */
uint64_t pawl_log_appended(const struct pawl_log *log);
uint64_t pawl_log_durable(const struct pawl_log *log);
bool pawl_log_failed(const struct pawl_log *log);
const char *pawl_log_failure(const struct pawl_log *log); /* file, offset, errno text; "" if none */

/* Seals and starts the write of the open block if it holds anything and may be written now. */
void pawl_log_seal(struct pawl_log *log, uint64_t time_ns, uint64_t boot_ns, uint64_t wall_ns);
/* An empty block that vouches for the last data; clean: at a clean stop. Requires nothing pending
 * and nothing in flight. At most once for the same tail. */
void pawl_log_mark(struct pawl_log *log, bool clean, uint64_t time_ns, uint64_t boot_ns,
                   uint64_t wall_ns);
bool pawl_log_marked(const struct pawl_log *log);

/* Work beside the turn, in bounded pieces: fills the next segment with zeros ahead of need, retries
 * after a full disk (at most once a second). Call each turn. */
void pawl_log_tend(struct pawl_log *log, uint64_t boot_ns);

/* Space. existing: bytes of all segments on disk, used or free. may_grow: another one fits in
 * max_bytes and the disk was not full at the last try. */
uint64_t pawl_log_existing(const struct pawl_log *log);
bool pawl_log_may_grow(const struct pawl_log *log);
bool pawl_log_disk_full(const struct pawl_log *log);
uint64_t pawl_log_max(const struct pawl_log *log);        /* bytes that all segments may have */
void pawl_log_want(struct pawl_log *log, uint64_t bytes); /* grow to hold this much, if allowed */
/* All room is used, and what is left does not hold the copies that would free some: one segment
 * beyond max_bytes may be made to copy into. A directory gets one such segment at most. */
void pawl_log_rescue(struct pawl_log *log);
uint64_t pawl_log_oldest_segment(const struct pawl_log *log); /* number of the oldest one in use */
uint64_t pawl_log_newest_segment(const struct pawl_log *log);
/* All in the oldest segment has been copied and the copies are durable: it may be reused, once a
 * block that says so is durable too. */
void pawl_log_release_oldest(struct pawl_log *log);

#endif
