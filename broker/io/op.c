/* SPDX-License-Identifier: MIT */
#include "io/op.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/assert.h"

/* Short direct writes go on at the last whole page, since O_DIRECT takes no other offset. */
#define PAGE 4096u

static void begin(struct pawl_io_op *op, int fd, uint8_t kind)
{
    PAWL_ASSERT(!op->busy);
    PAWL_ASSERT(op->done != NULL);
    op->fd = fd;
    op->kind = kind;
    op->retries = 0;
    op->finished = 0;
    op->busy = true;
    op->next = NULL;
}

void pawl_op_init_write(struct pawl_io_op *op, int fd, const void *data, size_t bytes,
                        uint64_t offset, bool durable, bool has_dsync)
{
    PAWL_ASSERT(bytes > 0 && bytes % PAGE == 0);
    PAWL_ASSERT_REL(offset % PAGE, ==, 0);
    begin(op, fd,
          !durable    ? PAWL_OP_WRITE
          : has_dsync ? PAWL_OP_WRITE_DURABLE
                      : PAWL_OP_WRITE_FLUSH);
    op->data = data;
    op->bytes = bytes;
    op->offset = offset;
}

void pawl_op_init_flush(struct pawl_io_op *op, int fd) { begin(op, fd, PAWL_OP_FLUSH); }

void pawl_op_init_read(struct pawl_io_op *op, int fd, void *buffer, size_t bytes, uint64_t offset)
{
    PAWL_ASSERT(bytes > 0 && bytes % PAGE == 0);
    PAWL_ASSERT_REL(offset % PAGE, ==, 0);
    begin(op, fd, PAWL_OP_READ);
    op->data = buffer;
    op->bytes = bytes;
    op->offset = offset;
}

void pawl_op_init_open(struct pawl_io_op *op, int dir, const char *name, int flags, unsigned mode,
                       bool direct)
{
    begin(op, dir, PAWL_OP_OPEN);
    op->data = (const uint8_t *)name;
    op->offset = (uint64_t)(unsigned)flags | O_CLOEXEC | O_NOFOLLOW;
    op->bytes = mode;
    op->is_direct = direct;
}

/* Nothing came of this call; try it again unless that has been done too often. */
static bool again(struct pawl_io_op *op, int error, int *result)
{
#ifdef PAWL_BUG_ENDLESS_RETRY
    return false;
#endif
    if (++op->retries <= PAWL_OP_RETRIES_MAX)
        return false;
    *result = error;
    return true;
}

static bool wrote(struct pawl_io_op *op, int count, int *result)
{
    size_t left = op->bytes - op->finished;
    if (count == 0) {
        *result = -EIO; /* a disk that takes nothing and names no error */
        return true;
    }
    if ((size_t)count > left) {
        *result = -EOVERFLOW;
        return true;
    }
#ifdef PAWL_BUG_SHORT_WRITE_WHOLE
    count = (int)left;
#endif
    size_t was = op->finished;
    op->finished += (size_t)count;
    if (op->finished < op->bytes) {
        op->finished &= ~(size_t)(PAGE - 1);
        if (op->finished == was)
            return again(op, -EIO, result);
        op->retries = 0;
        return false;
    }
    op->retries = 0;
    if (op->kind == PAWL_OP_WRITE_FLUSH) {
        op->kind = PAWL_OP_FLUSH_AFTER;
        return false;
    }
    *result = 0;
    return true;
}

static bool opened(struct pawl_io_op *op, int fd, int *result)
{
    int rc = pawl_file_check(fd, &op->is_direct);
    if (rc) {
        pawl_file_close(NULL, fd);
        *result = rc;
    } else {
        *result = fd;
    }
    return true;
}

bool pawl_op_step(struct pawl_io_op *op, int called, int *result, bool *no_dsync)
{
    PAWL_ASSERT(op->busy);
    if (called >= 0) {
        switch (op->kind) {
        case PAWL_OP_WRITE:
        case PAWL_OP_WRITE_DURABLE:
        case PAWL_OP_WRITE_FLUSH:
            return wrote(op, called, result);
        case PAWL_OP_OPEN:
            return opened(op, called, result);
        case PAWL_OP_READ:
            *result = called; /* where it ends the caller can see for himself */
            return true;
        default:
            *result = 0;
            return true;
        }
    }
    switch (called) {
    case -EAGAIN:
    case -EINTR:
        return again(op, called, result);
    case -EOPNOTSUPP:
        if (op->kind == PAWL_OP_WRITE_DURABLE) {
            *no_dsync = true;
            op->kind = PAWL_OP_WRITE_FLUSH;
            return again(op, called, result);
        }
        break;
    case -EINVAL:
        if (op->kind == PAWL_OP_OPEN && op->is_direct) {
            op->is_direct = false;
            return again(op, called, result);
        }
        break;
    default:
        break;
    }
    *result = called;
    return true;
}

/* --- watches --------------------------------------------------------------------------------- */

void pawl_watch_table_init(struct pawl_watch_table *table)
{
    *table = (struct pawl_watch_table){ .free = PAWL_WATCH_NONE };
}

void pawl_watch_table_fini(struct pawl_watch_table *table) { free(table->slots); }

static int grow(struct pawl_watch_table *table)
{
    uint32_t count = table->count ? table->count * 2 : 64;
    if (count > PAWL_WATCH_SLOTS_MAX)
        return -ENOMEM;
    struct pawl_watch_slot *slots = realloc(table->slots, count * sizeof *slots);
    if (!slots)
        return -ENOMEM;
    table->slots = slots;
    for (uint32_t i = count; i-- > table->count;) {
        slots[i] = (struct pawl_watch_slot){ .next_free = table->free };
        table->free = i;
    }
    table->count = count;
    return 0;
}

int pawl_watch_table_add(struct pawl_watch_table *table, struct pawl_io_watch *watch)
{
    if (watch->armed)
        return -EALREADY;
    if (table->free == PAWL_WATCH_NONE) {
        int rc = grow(table);
        if (rc)
            return rc;
    }
    uint32_t i = table->free;
    struct pawl_watch_slot *slot = &table->slots[i];
    table->free = slot->next_free;
    slot->watch = watch;
    watch->slot = i;
    watch->armed = true;
    return 0;
}

void pawl_watch_table_remove(struct pawl_watch_table *table, struct pawl_io_watch *watch)
{
    PAWL_ASSERT(watch->armed && watch->slot < table->count);
    struct pawl_watch_slot *slot = &table->slots[watch->slot];
    PAWL_ASSERT(slot->watch == watch);
    slot->watch = NULL;
    slot->generation++;
    slot->next_free = table->free;
    table->free = watch->slot;
    watch->armed = false;
}

uint64_t pawl_watch_table_key(const struct pawl_watch_table *table, uint32_t slot)
{
    PAWL_ASSERT(slot < table->count);
    return (uint64_t)table->slots[slot].generation << 20 | slot;
}

struct pawl_io_watch *pawl_watch_table_find(const struct pawl_watch_table *table, uint64_t key)
{
    uint32_t i = (uint32_t)(key & (PAWL_WATCH_SLOTS_MAX - 1));
    if (i >= table->count)
        return NULL;
#ifndef PAWL_BUG_WATCH_GENERATION
    if (table->slots[i].generation != (uint32_t)(key >> 20))
        return NULL;
#endif
    return table->slots[i].watch;
}
