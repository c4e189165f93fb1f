/* SPDX-License-Identifier: MIT */
#include "log/reader.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "log/meta.h"

#define NOTHING_AHEAD UINT64_MAX
#define WAIT_FAILURES_MAX 1000

/* --- the piece ahead ------------------------------------------------------------------------- */

static void ahead_done(struct pawl_io_op *op, int result)
{
    PAWL_CONTAINER(op, struct pawl_reader, ahead_op)->ahead_result = result;
}

static void ahead_start(struct pawl_reader *reader, uint64_t at)
{
    struct pawl_io *io = reader->io;
    reader->ahead_at = at;
    reader->ahead_op.done = ahead_done;
    io->ops->read(io, &reader->ahead_op, reader->fd, reader->ahead, PAWL_READER_CHUNK, at);
    (void)io->ops->wait(io, 0); /* hands it over; an error shows when it is waited for */
}

/* The kernel writes into our memory until then: there is no way on without. */
static void ahead_wait(struct pawl_reader *reader)
{
    for (int failures = 0; reader->ahead_op.busy;)
        if (reader->io->ops->wait(reader->io, UINT64_MAX) < 0)
            PAWL_ASSERT_REL(++failures, <, WAIT_FAILURES_MAX);
}

static void ahead_drop(struct pawl_reader *reader)
{
    ahead_wait(reader);
    reader->ahead_at = NOTHING_AHEAD;
}

/* True: [at, at + bytes) had been asked for and is in `to` now. */
static bool ahead_take(struct pawl_reader *reader, uint64_t at, uint64_t bytes, uint8_t *to)
{
    if (reader->ahead_at == NOTHING_AHEAD)
        return false;
    bool wanted = reader->ahead_at == at && bytes == PAWL_READER_CHUNK;
    ahead_drop(reader);
    if (!wanted || reader->ahead_result != (int)PAWL_READER_CHUNK)
        return false;
    memcpy(to, reader->ahead, PAWL_READER_CHUNK);
    return true;
}

/* --- the window ------------------------------------------------------------------------------ */

int pawl_reader_init(struct pawl_reader *reader, struct pawl_io *io)
{
    *reader = (struct pawl_reader){
        .io = io, .fd = -1, .capacity = 2 * PAWL_READER_CHUNK, .ahead_at = NOTHING_AHEAD
    };
    reader->buffer = pawl_pages_map(reader->capacity);
    if (io->ops->read)
        reader->ahead = pawl_pages_map(PAWL_READER_CHUNK); /* without it all goes slower */
    return reader->buffer ? 0 : -ENOMEM;
}

void pawl_reader_fini(struct pawl_reader *reader)
{
    if (reader->ahead) {
        ahead_drop(reader);
        pawl_pages_unmap(reader->ahead, PAWL_READER_CHUNK);
    }
    pawl_pages_unmap(reader->buffer, reader->capacity);
    reader->buffer = reader->ahead = NULL;
}

void pawl_reader_turn(struct pawl_reader *reader, int fd, uint64_t file_bytes)
{
    if (reader->ahead)
        ahead_drop(reader); /* of another file, which may be closed */
    reader->fd = fd;
    reader->file_bytes = file_bytes;
    reader->start = reader->have = 0;
}

/* Reads into the window at `at`; zeros behind the end of the file. */
static int fill(struct pawl_reader *reader, uint64_t at, uint64_t bytes)
{
    uint8_t *to = reader->buffer + (at - reader->start);
    uint64_t in_file = at < reader->file_bytes ? reader->file_bytes - at : 0;
    int64_t n = 0;
    if (reader->ahead && ahead_take(reader, at, bytes, to)) {
        n = (int64_t)bytes;
    } else if (in_file > 0) {
        n = reader->io->ops->file_read(reader->io, reader->fd, to, bytes, at);
        if (n < 0)
            return (int)n;
        n = (int64_t)pawl_min_u64((uint64_t)n, in_file);
    }
    memset(to + n, 0, bytes - (uint64_t)n);
    /* From the second piece of a file on somebody walks through it. */
    uint64_t next = at + bytes;
    if (reader->ahead && at > 0 && bytes == PAWL_READER_CHUNK && next < reader->file_bytes &&
        reader->file_bytes - next >= PAWL_READER_CHUNK)
        ahead_start(reader, next);
    return 0;
}

static int grow(struct pawl_reader *reader, uint64_t bytes)
{
    uint64_t capacity = pawl_align_up(bytes + PAWL_READER_CHUNK, PAWL_READER_CHUNK);
    uint8_t *buffer = pawl_pages_map(capacity);
    if (!buffer)
        return -ENOMEM;
    memcpy(buffer, reader->buffer, reader->have);
    pawl_pages_unmap(reader->buffer, reader->capacity);
    reader->buffer = buffer;
    reader->capacity = capacity;
    return 0;
}

int pawl_reader_get(struct pawl_reader *reader, uint64_t offset, uint64_t bytes,
                    const uint8_t **data)
{
    PAWL_ASSERT(offset % PAWL_LOG_PAGE == 0 && bytes % PAWL_LOG_PAGE == 0 && bytes > 0);
    uint64_t end = offset + bytes;
    if (bytes > reader->capacity) {
        int rc = grow(reader, bytes);
        if (rc)
            return rc;
    }
    if (offset < reader->start || offset > reader->start + reader->have) {
        reader->start = offset;
        reader->have = 0;
    }
    if (end > reader->start + reader->have) {
        /* Slide what is still wanted to the front, then read on behind it. */
        uint64_t keep = reader->start + reader->have - offset;
        memmove(reader->buffer, reader->buffer + (offset - reader->start), keep);
        reader->start = offset;
        reader->have = keep;
        uint64_t at = offset + keep;
        uint64_t ahead = pawl_min_u64(PAWL_READER_CHUNK, reader->capacity - keep);
        uint64_t file_end = pawl_align_up(reader->file_bytes, PAWL_LOG_PAGE);
        ahead = pawl_min_u64(ahead, file_end > at ? file_end - at : 0);
        uint64_t want = pawl_max_u64(end - at, ahead);
        int rc = fill(reader, at, want);
        if (rc == 0) {
            reader->have += want;
        } else if (rc == -EIO) {
            for (; at < end; at += PAWL_LOG_PAGE) {
                rc = fill(reader, at, PAWL_LOG_PAGE);
                if (rc)
                    return rc;
                reader->have += PAWL_LOG_PAGE;
            }
        } else {
            return rc;
        }
    }
    *data = reader->buffer + (offset - reader->start);
    return 0;
}

int pawl_reader_block(struct pawl_reader *reader, const struct pawl_log_identity *id,
                      uint64_t offset, enum pawl_verdict *verdict,
                      const struct pawl_block_rec **block)
{
    const uint8_t *data;
    PAWL_ASSERT_REL(offset, <, id->segment_bytes);
    *verdict = PAWL_VERDICT_UNREADABLE;
    *block = NULL;
    int rc = pawl_reader_get(reader, offset, PAWL_LOG_PAGE, &data);
    if (rc)
        return rc == -EIO ? 0 : rc;
    uint64_t total = pawl_block_claim(id, data, id->segment_bytes - offset, verdict);
    if (total == 0)
        return 0;
    *verdict = PAWL_VERDICT_UNREADABLE;
    rc = pawl_reader_get(reader, offset, total, &data);
    if (rc)
        return rc == -EIO ? 0 : rc;
    *verdict = pawl_block_verify(id, data, total);
    if (*verdict == PAWL_VERDICT_VALID || *verdict == PAWL_VERDICT_VERSION)
        *block = (const struct pawl_block_rec *)(const void *)data;
    return 0;
}
