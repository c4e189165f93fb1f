/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_READER_H
#define PAWL_BROKER_LOG_READER_H

/* A window over one slot file, read in large pieces, grown for large blocks. Where a large piece
 * gives EIO, what is wanted is read page by page, so that one bad sector does not take its
 * neighbours along.
 *
 * Where the io can read without blocking, the piece behind the window is on its way while the one
 * in it is looked at: the walk of a recovery then takes the longer of disk and processor, not both.
 * A piece that did not come whole is read again in the blocking way, which knows what to do. */

#include "io/io.h"
#include "log/block.h"

struct pawl_reader {
    struct pawl_io *io;
    int fd;
    uint64_t file_bytes;
    uint64_t start, have; /* the window: [start, start + have) of the file */
    uint8_t *buffer;
    uint64_t capacity;
    struct pawl_io_op ahead_op; /* busy: the next piece is on its way */
    uint8_t *ahead;             /* one piece; NULL: read in the blocking way alone */
    uint64_t ahead_at;          /* where it is from; NONE: nothing is there */
    int ahead_result;
};

#define PAWL_READER_CHUNK (2u << 20)

/* 0 or -ENOMEM. */
int pawl_reader_init(struct pawl_reader *reader, struct pawl_io *io);
void pawl_reader_fini(struct pawl_reader *reader);
/* Turns to another file; what is beyond file_bytes reads as zeros. */
void pawl_reader_turn(struct pawl_reader *reader, int fd, uint64_t file_bytes);
/* [offset, offset + bytes), both multiples of a page, at *data until the next call. 0, -EIO
 * (unreadable), or another -errno. */
int pawl_reader_get(struct pawl_reader *reader, uint64_t offset, uint64_t bytes,
                    const uint8_t **data);
/* What is at this offset of a segment: the verdict, and the block if it is VALID or VERSION. A
 * negative result: -errno other than EIO. */
int pawl_reader_block(struct pawl_reader *reader, const struct pawl_log_identity *id,
                      uint64_t offset, enum pawl_verdict *verdict,
                      const struct pawl_block_rec **block);

#endif
