/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_META_H
#define PAWL_BROKER_LOG_META_H

/* The two small files. `id` says which log this is: written once, twice the same page. `head` says
 * how far the log is known to reach: two pages in turn. */

#include "io/io.h"
#include "log/block.h"

#define PAWL_LOG_FILE_ID "id"
#define PAWL_LOG_FILE_ID_TMP "id.tmp"
#define PAWL_LOG_FILE_HEAD "head"

enum pawl_meta_result {
    PAWL_META_OK,
    PAWL_META_ABSENT,
    PAWL_META_DAMAGED, /* no page of it is whole */
    PAWL_META_VERSION, /* made by a newer version */
    PAWL_META_ERROR    /* *error is a -errno */
};

enum pawl_meta_result pawl_id_read(struct pawl_io *io, int dir, struct pawl_log_identity *id,
                                   int *error);
enum pawl_meta_result pawl_head_read(struct pawl_io *io, int dir,
                                     const struct pawl_log_identity *id, struct pawl_head_rec *head,
                                     bool *both, int *error);
/* Makes both files in an empty directory. The rename of the id file is what makes the log: until
 * then the next start does all of it again. 0 or -errno. */
int pawl_meta_create(struct pawl_io *io, int dir, const struct pawl_log_identity *id,
                     uint64_t wall_ns);
/* The id file alone, over whatever is there. */
int pawl_id_create(struct pawl_io *io, int dir, const struct pawl_log_identity *id,
                   uint64_t wall_ns);
/* Who the log is by what its head says: for the repair of a lost id file. */
enum pawl_meta_result pawl_head_identity(struct pawl_io *io, int dir, struct pawl_log_identity *id,
                                         int *error);
/* A file of two pages, durable but for its name. 0 or -errno. */
int pawl_make_pages(struct pawl_io *io, int dir, const char *name, const void *pages);
/* Fills a page of the head file. */
void pawl_head_fill(void *page, const struct pawl_log_identity *id,
                    const struct pawl_head_rec *values);
/* Blocking helpers on top of the asynchronous write. 0 or -errno. */
int pawl_write_now(struct pawl_io *io, int fd, const void *data, uint64_t bytes, uint64_t offset,
                   bool durable);
void *pawl_pages_map(uint64_t bytes); /* zeroed, or NULL */
void pawl_pages_unmap(void *pages, uint64_t bytes);

#endif
