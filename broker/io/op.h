/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_IO_OP_H
#define PAWL_BROKER_IO_OP_H

/* Inner to the kinds of io: what the result of a system call means for its operation. The only
 * place that reads results of writes and flushes (U1, U3, U6), so that both kinds keep the same
 * promises and the rules can be tested with every errno and every count.
 *
 * An operation is a row of calls:
 *     WRITE_DURABLE                 pieces with RWF_DSYNC, each durable when it returns
 *     WRITE                         pieces, in the cache of the file or device
 *     WRITE_FLUSH → FLUSH_AFTER     where RWF_DSYNC is not supported: all pieces, then fdatasync
 *     FLUSH, OPEN, READ             one call
 * Also here: the table of watches, whose slots carry a generation, so that a completion that was on
 * its way when its watch was removed finds nobody. */

#include "io/io.h"

enum pawl_op_kind {
    PAWL_OP_NONE,
    PAWL_OP_WRITE,
    PAWL_OP_WRITE_DURABLE,
    PAWL_OP_WRITE_FLUSH,
    PAWL_OP_FLUSH_AFTER,
    PAWL_OP_FLUSH,
    PAWL_OP_OPEN,
    PAWL_OP_READ
};

#define PAWL_OP_RETRIES_MAX 32u /* calls in a row that brought nothing */

void pawl_op_init_write(struct pawl_io_op *op, int fd, const void *data, size_t bytes,
                        uint64_t offset, bool durable, bool has_dsync);
void pawl_op_init_flush(struct pawl_io_op *op, int fd);
void pawl_op_init_read(struct pawl_io_op *op, int fd, void *buffer, size_t bytes, uint64_t offset);
/* Flags and mode are kept in offset and bytes; fd is the directory. */
void pawl_op_init_open(struct pawl_io_op *op, int dir, const char *name, int flags, unsigned mode,
                       bool direct);

/* Takes the result of the call that op asked for. True: the operation is over, *result says how
 * (0, a descriptor, or -errno). False: make the call that op asks for now. *no_dsync is set when
 * the file system turns out not to know RWF_DSYNC. */
bool pawl_op_step(struct pawl_io_op *op, int called, int *result, bool *no_dsync);

/* --- blocking calls on files, for all kinds that use the real system ------------------------- */

int pawl_file_open(struct pawl_io *io, int dir, const char *name, int flags, unsigned mode,
                   bool direct, bool *is_direct);
/* 0, or -errno for what is not a regular file. Takes O_DIRECT off again, and says so, where it
 * would need more than whole aligned pages (U9). */
int pawl_file_check(int fd, bool *is_direct);
void pawl_file_close(struct pawl_io *io, int fd);
int64_t pawl_file_read(struct pawl_io *io, int fd, void *buffer, size_t bytes, uint64_t offset);
int64_t pawl_file_size(struct pawl_io *io, int fd);
int pawl_file_flush(struct pawl_io *io, int fd);
int pawl_file_rename(struct pawl_io *io, int dir, const char *from, const char *to);
int pawl_file_unlink(struct pawl_io *io, int dir, const char *name);
int pawl_file_list(struct pawl_io *io, int dir, int (*each)(void *ctx, const char *name),
                   void *ctx);

/* --- watches --------------------------------------------------------------------------------- */

struct pawl_watch_slot {
    struct pawl_io_watch *watch; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};
struct pawl_watch_table {
    struct pawl_watch_slot *slots;
    uint32_t count, free;
};
#define PAWL_WATCH_NONE UINT32_MAX
#define PAWL_WATCH_SLOTS_MAX (1u << 20)

void pawl_watch_table_init(struct pawl_watch_table *table);
void pawl_watch_table_fini(struct pawl_watch_table *table);
/* 0, -ENOMEM, or -EALREADY for one that is armed. */
int pawl_watch_table_add(struct pawl_watch_table *table, struct pawl_io_watch *watch);
void pawl_watch_table_remove(struct pawl_watch_table *table, struct pawl_io_watch *watch);
bool pawl_io_uring_kernel_ok(const char *release);
/* A key of the slot and its generation, below 2^62; and back: NULL if it was removed since. */
uint64_t pawl_watch_table_key(const struct pawl_watch_table *table, uint32_t slot);
struct pawl_io_watch *pawl_watch_table_find(const struct pawl_watch_table *table, uint64_t key);

#endif
