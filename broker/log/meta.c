/* SPDX-License-Identifier: MIT */
#include "log/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/bits.h"
#include "log/log_inner.h"

void *pawl_pages_map(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* A fork of the embedding program must not race the disk for these pages (U11), and a core dump
     * must not carry what clients sent (P9). Both are advice. */
    (void)madvise(p, bytes, MADV_DONTFORK);
    (void)madvise(p, bytes, MADV_DONTDUMP);
    return p;
}

void pawl_pages_unmap(void *pages, uint64_t bytes)
{
    if (pages)
        munmap(pages, bytes);
}

struct now {
    struct pawl_io_op op;
    int result;
};
static void now_done(struct pawl_io_op *op, int result)
{
    PAWL_CONTAINER(op, struct now, op)->result = result;
}

int pawl_write_now(struct pawl_io *io, int fd, const void *data, uint64_t bytes, uint64_t offset,
                   bool durable)
{
    struct now w = { .op.done = now_done };
    io->ops->write(io, &w.op, fd, data, bytes, offset, durable);
    while (w.op.busy) {
        int rc = io->ops->wait(io, UINT64_MAX);
        /* The operation lives here, so it must be over before we leave. An io that cannot wait is
         * beyond use: it forgets its operations when destroyed, and runs none until then. */
        if (rc < 0)
            return rc;
    }
    return w.result;
}

/* --- reading --------------------------------------------------------------------------------- */

struct pages {
    uint8_t *page; /* two of them */
    uint64_t there;
};

static enum pawl_meta_result read_pages(struct pawl_io *io, int dir, const char *name,
                                        uint8_t **pages, int *error)
{
    bool direct;
    int fd = io->ops->file_open(io, dir, name, O_RDONLY, 0, true, &direct);
    if (fd == -ENOENT)
        return PAWL_META_ABSENT;
    *error = fd;
    if (fd < 0)
        return PAWL_META_ERROR;
    enum pawl_meta_result result = PAWL_META_OK;
    *pages = pawl_pages_map(2 * PAWL_LOG_PAGE);
    if (!*pages) {
        *error = -ENOMEM;
        result = PAWL_META_ERROR;
    } else {
        int64_t n = 0;
        /* Each alone: one that cannot be read leaves the other. What is short stays zero. */
        for (unsigned i = 0; i < 2 && n >= 0; i++) {
            n = io->ops->file_read(io, fd, *pages + i * PAWL_LOG_PAGE, PAWL_LOG_PAGE,
                                   (uint64_t)i * PAWL_LOG_PAGE);
            if (n == -EIO) {
                memset(*pages + i * PAWL_LOG_PAGE, 0, PAWL_LOG_PAGE);
                n = 0;
            }
        }
        if (n < 0) {
            *error = (int)n;
            result = PAWL_META_ERROR;
            pawl_pages_unmap(*pages, 2 * PAWL_LOG_PAGE);
        }
    }
    io->ops->file_close(io, fd);
    return result;
}

enum pawl_meta_result pawl_id_read(struct pawl_io *io, int dir, struct pawl_log_identity *id,
                                   int *error)
{
    uint8_t *pages;
    enum pawl_meta_result result = read_pages(io, dir, PAWL_LOG_FILE_ID, &pages, error);
    if (result != PAWL_META_OK)
        return result;
    result = PAWL_META_DAMAGED;
    for (unsigned i = 0; i < 2; i++) {
        const struct pawl_id_rec *rec = (void *)(pages + i * PAWL_LOG_PAGE);
        enum pawl_verdict v =
            pawl_page_check(rec, sizeof *rec, PAWL_LOG_MAGIC_ID, PAWL_LOG_ID_SEED, 0);
        if (v == PAWL_VERDICT_VALID && pawl_log_segment_size_ok(rec->segment_bytes)) {
            pawl_identity_init(id, rec->log_id, rec->segment_bytes);
            result = PAWL_META_OK;
            break;
        }
        if (v == PAWL_VERDICT_VERSION)
            result = PAWL_META_VERSION;
    }
    pawl_pages_unmap(pages, 2 * PAWL_LOG_PAGE);
    return result;
}

enum pawl_meta_result pawl_head_read(struct pawl_io *io, int dir,
                                     const struct pawl_log_identity *id, struct pawl_head_rec *head,
                                     bool *both, int *error)
{
    uint8_t *pages;
    enum pawl_meta_result result = read_pages(io, dir, PAWL_LOG_FILE_HEAD, &pages, error);
    if (result != PAWL_META_OK)
        return result;
    result = PAWL_META_DAMAGED;
    unsigned valid = 0;
    for (unsigned i = 0; i < 2; i++) {
        const struct pawl_head_rec *rec = (void *)(pages + i * PAWL_LOG_PAGE);
        enum pawl_verdict v =
            pawl_page_check(rec, sizeof *rec, PAWL_LOG_MAGIC_HEAD, id->seed, id->tag);
        if (v == PAWL_VERDICT_VERSION) {
            result = PAWL_META_VERSION;
            break;
        }
        /* A page at the other's place was misdirected. */
        if (v != PAWL_VERDICT_VALID || rec->generation % 2 != i)
            continue;
        if (valid++ == 0 || rec->generation > head->generation)
            *head = *rec;
        result = PAWL_META_OK;
    }
    *both = valid == 2;
    pawl_pages_unmap(pages, 2 * PAWL_LOG_PAGE);
    return result;
}

enum pawl_meta_result pawl_head_identity(struct pawl_io *io, int dir, struct pawl_log_identity *id,
                                         int *error)
{
    uint8_t *pages;
    enum pawl_meta_result result = read_pages(io, dir, PAWL_LOG_FILE_HEAD, &pages, error);
    if (result != PAWL_META_OK)
        return result;
    result = PAWL_META_DAMAGED;
    for (unsigned i = 0; i < 2 && result != PAWL_META_OK; i++) {
        const struct pawl_head_rec *rec = (void *)(pages + i * PAWL_LOG_PAGE);
        if (!pawl_log_segment_size_ok(rec->segment_bytes))
            continue;
        pawl_identity_init(id, rec->log_id, rec->segment_bytes);
        if (pawl_page_check(rec, sizeof *rec, PAWL_LOG_MAGIC_HEAD, id->seed, id->tag) ==
            PAWL_VERDICT_VALID)
            result = PAWL_META_OK;
    }
    pawl_pages_unmap(pages, 2 * PAWL_LOG_PAGE);
    return result;
}

/* --- making ---------------------------------------------------------------------------------- */

void pawl_head_fill(void *page, const struct pawl_log_identity *id,
                    const struct pawl_head_rec *values)
{
    struct pawl_head_rec *rec = page;
    memset(page, 0, PAWL_LOG_PAGE);
    *rec = *values;
    memset(&rec->top, 0, sizeof rec->top);
    memcpy(rec->log_id, id->log_id, sizeof rec->log_id);
    rec->segment_bytes = id->segment_bytes;
    pawl_page_seal(page, sizeof *rec, PAWL_LOG_MAGIC_HEAD, id->seed, id->tag);
}

int pawl_make_pages(struct pawl_io *io, int dir, const char *name, const void *pages)
{
    bool direct;
    int fd = io->ops->file_open(io, dir, name, O_RDWR | O_CREAT, 0600, true, &direct);
    if (fd < 0)
        return fd;
    int rc = pawl_write_now(io, fd, pages, 2 * PAWL_LOG_PAGE, 0, true);
    if (rc == 0)
        rc = io->ops->file_flush(io, fd);
    io->ops->file_close(io, fd);
    return rc;
}

int pawl_meta_create(struct pawl_io *io, int dir, const struct pawl_log_identity *id,
                     uint64_t wall_ns)
{
    uint8_t *pages = pawl_pages_map(2 * PAWL_LOG_PAGE);
    if (!pages)
        return -ENOMEM;
    for (unsigned i = 0; i < 2; i++)
        pawl_head_fill(pages + i * PAWL_LOG_PAGE, id,
                       &(struct pawl_head_rec){
                           .generation = i, .segment = PAWL_LOG_NONE, .wall_ns = wall_ns });
    int rc = pawl_make_pages(io, dir, PAWL_LOG_FILE_HEAD, pages);
    if (rc == 0)
        rc = io->ops->file_flush(io, dir);
    if (rc == 0)
        rc = pawl_id_create(io, dir, id, wall_ns);
    pawl_pages_unmap(pages, 2 * PAWL_LOG_PAGE);
    return rc;
}

int pawl_id_create(struct pawl_io *io, int dir, const struct pawl_log_identity *id,
                   uint64_t wall_ns)
{
    uint8_t *pages = pawl_pages_map(2 * PAWL_LOG_PAGE);
    if (!pages)
        return -ENOMEM;
    for (unsigned i = 0; i < 2; i++) {
        struct pawl_id_rec *rec = (void *)(pages + i * PAWL_LOG_PAGE);
        memcpy(rec->log_id, id->log_id, sizeof rec->log_id);
        rec->segment_bytes = id->segment_bytes;
        rec->made_wall_ns = wall_ns;
        pawl_page_seal(rec, sizeof *rec, PAWL_LOG_MAGIC_ID, PAWL_LOG_ID_SEED, 0);
    }
    int rc = pawl_make_pages(io, dir, PAWL_LOG_FILE_ID_TMP, pages);
    if (rc == 0)
        rc = io->ops->file_rename(io, dir, PAWL_LOG_FILE_ID_TMP, PAWL_LOG_FILE_ID);
#ifndef PAWL_BUG_NO_DIR_FLUSH
    if (rc == 0)
        rc = io->ops->file_flush(io, dir);
#endif
    pawl_pages_unmap(pages, 2 * PAWL_LOG_PAGE);
    return rc;
}

/* --- moving the head ------------------------------------------------------------------------- */

static void head_written(struct pawl_io_op *op, int result)
{
    struct pawl_log *log = PAWL_CONTAINER(op, struct pawl_log, head_op);
    log->head_busy = false;
    if (result < 0)
        pawl_log_fail(log, "writing " PAWL_LOG_FILE_HEAD, log->head_generation % 2 * PAWL_LOG_PAGE,
                      result);
    pawl_log_head_done(log);
}

void pawl_head_start(struct pawl_log *log, uint64_t position, bool clean)
{
    PAWL_ASSERT(!log->head_busy);
    struct pawl_head_rec values = { .generation = ++log->head_generation,
                                    .position = position,
                                    .epoch = log->epoch,
                                    .segment = pawl_log_segment_of(log, position - 1),
                                    .wall_ns = log->wall_ns };
    pawl_head_fill(log->head_page, &log->id, &values);
    log->head_busy = true;
    log->head_op.done = head_written;
    log->io->ops->write(log->io, &log->head_op, log->head_fd, log->head_page, PAWL_LOG_PAGE,
                        log->head_generation % 2 * PAWL_LOG_PAGE, true);
}
