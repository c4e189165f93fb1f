/* SPDX-License-Identifier: MIT */
#include "io/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "io/op.h"

struct open_file {
    int fd;
    uint32_t file;
};
struct known {
    char name[32];
    uint32_t file;
};

struct record {
    struct pawl_io io, *inner;
    int dir;
    struct pawl_io_event *event;
    uint32_t event_count, event_capacity;
    struct open_file *handle;
    uint32_t handle_count, handle_capacity;
    struct known *known;
    uint32_t known_count, known_capacity, file_count;
};

/* The caller's operation stays with us; the inner io gets one of its own. */
struct shadow {
    struct pawl_io_op op;
    struct pawl_io_op *outer;
    struct record *record;
    uint32_t begun;
    char name[32];
    bool creates;
};

static struct record *of(const struct pawl_io *io)
{
    return PAWL_CONTAINER((struct pawl_io *)(uintptr_t)io, struct record, io);
}

/* A test without memory has nothing to say. */
static void *grown(void *p, uint64_t bytes)
{
    p = realloc(p, bytes);
    PAWL_ASSERT(p != NULL);
    return p;
}

#define PUSH(list, count, capacity)                              \
    do {                                                         \
        if ((count) == (capacity)) {                             \
            (capacity) = (capacity) ? (capacity)*2 : 64;         \
            (list) = grown((list), (capacity) * sizeof *(list)); \
        }                                                        \
        (count)++;                                               \
    } while (0)

static struct pawl_io_event *add(struct record *r, enum pawl_io_event_kind kind)
{
    PUSH(r->event, r->event_count, r->event_capacity);
    struct pawl_io_event *e = &r->event[r->event_count - 1];
    *e = (struct pawl_io_event){ .kind = kind };
    return e;
}

static void add_done(struct record *r, uint32_t begun, int result)
{
    struct pawl_io_event *e = add(r, PAWL_IO_EVENT_DONE);
    e->begun = begun;
    e->result = result;
}

static struct known *find_name(struct record *r, const char *name)
{
    for (uint32_t i = 0; i < r->known_count; i++)
        if (strcmp(r->known[i].name, name) == 0)
            return &r->known[i];
    return NULL;
}

static uint32_t file_of(struct record *r, int fd)
{
    for (uint32_t i = 0; i < r->handle_count; i++)
        if (r->handle[i].fd == fd)
            return r->handle[i].file;
    PAWL_ASSERT(!"a descriptor that was never opened here");
    return 0;
}

static void opened(struct record *r, const char *name, int fd)
{
    struct known *k = find_name(r, name);
    if (!k) {
        PUSH(r->known, r->known_count, r->known_capacity);
        k = &r->known[r->known_count - 1];
        snprintf(k->name, sizeof k->name, "%s", name);
        k->file = r->file_count++;
        struct pawl_io_event *e = add(r, PAWL_IO_EVENT_CREATE);
        e->file = k->file;
        snprintf(e->name, sizeof e->name, "%s", name);
    }
    PUSH(r->handle, r->handle_count, r->handle_capacity);
    r->handle[r->handle_count - 1] = (struct open_file){ fd, k->file };
}

/* --- handed on ------------------------------------------------------------------------------- */

static int rec_open(struct pawl_io *io, int dir, const char *name, int flags, unsigned mode,
                    bool direct, bool *is_direct)
{
    struct record *r = of(io);
    int fd = r->inner->ops->file_open(r->inner, dir, name, flags, mode, direct, is_direct);
    if (fd >= 0)
        opened(r, name, fd);
    return fd;
}

static void rec_close(struct pawl_io *io, int fd)
{
    struct record *r = of(io);
    for (uint32_t i = 0; i < r->handle_count; i++) {
        if (r->handle[i].fd == fd) {
            r->handle[i] = r->handle[--r->handle_count];
            break;
        }
    }
    r->inner->ops->file_close(r->inner, fd);
}

static int64_t rec_read(struct pawl_io *io, int fd, void *buffer, size_t bytes, uint64_t offset)
{
    return of(io)->inner->ops->file_read(of(io)->inner, fd, buffer, bytes, offset);
}

static int64_t rec_size(struct pawl_io *io, int fd)
{
    return of(io)->inner->ops->file_size(of(io)->inner, fd);
}

static uint32_t begin_flush(struct record *r, int fd)
{
    bool dir = fd == r->dir;
    struct pawl_io_event *e = add(r, dir ? PAWL_IO_EVENT_FLUSH_DIR : PAWL_IO_EVENT_FLUSH);
    e->file = dir ? 0 : file_of(r, fd);
    return r->event_count - 1;
}

static int rec_flush_now(struct pawl_io *io, int fd)
{
    struct record *r = of(io);
    uint32_t begun = begin_flush(r, fd);
    int rc = r->inner->ops->file_flush(r->inner, fd);
    add_done(r, begun, rc);
    return rc;
}

static int rec_rename(struct pawl_io *io, int dir, const char *from, const char *to)
{
    struct record *r = of(io);
    int rc = r->inner->ops->file_rename(r->inner, dir, from, to);
    if (rc)
        return rc;
    struct known *over = find_name(r, to);
    if (over)
        *over = r->known[--r->known_count];
    struct known *k = find_name(r, from);
    PAWL_ASSERT(k != NULL);
    snprintf(k->name, sizeof k->name, "%s", to);
    struct pawl_io_event *e = add(r, PAWL_IO_EVENT_RENAME);
    snprintf(e->name, sizeof e->name, "%s", from);
    snprintf(e->to, sizeof e->to, "%s", to);
    return 0;
}

static int rec_unlink(struct pawl_io *io, int dir, const char *name)
{
    struct record *r = of(io);
    int rc = r->inner->ops->file_unlink(r->inner, dir, name);
    if (rc)
        return rc;
    struct known *k = find_name(r, name);
    if (k)
        *k = r->known[--r->known_count];
    snprintf(add(r, PAWL_IO_EVENT_UNLINK)->name, 32, "%s", name);
    return 0;
}

static int rec_list(struct pawl_io *io, int dir, int (*each)(void *ctx, const char *name),
                    void *ctx)
{
    return of(io)->inner->ops->dir_list(of(io)->inner, dir, each, ctx);
}

/* --- operations ------------------------------------------------------------------------------ */

static void shadow_done(struct pawl_io_op *op, int result)
{
    struct shadow *s = PAWL_CONTAINER(op, struct shadow, op);
    struct record *r = s->record;
    struct pawl_io_op *outer = s->outer;
    if (s->creates) {
        if (result >= 0)
            opened(r, s->name, result);
        outer->is_direct = op->is_direct;
    } else {
        add_done(r, s->begun, result);
    }
    free(s);
    outer->busy = false;
    outer->done(outer, result);
}

static struct shadow *shadow(struct record *r, struct pawl_io_op *outer)
{
    PAWL_ASSERT(!outer->busy);
    struct shadow *s = grown(NULL, sizeof *s);
    *s = (struct shadow){ .op.done = shadow_done, .outer = outer, .record = r };
    outer->busy = true;
    return s;
}

static void rec_write(struct pawl_io *io, struct pawl_io_op *op, int fd, const void *data,
                      size_t bytes, uint64_t offset, bool durable)
{
    struct record *r = of(io);
    struct shadow *s = shadow(r, op);
    struct pawl_io_event *e = add(r, PAWL_IO_EVENT_WRITE);
    s->begun = r->event_count - 1;
    e->file = file_of(r, fd);
    e->durable = durable;
    e->offset = offset;
    e->bytes = bytes;
    e->data = grown(NULL, bytes);
    memcpy(e->data, data, bytes);
    r->inner->ops->write(r->inner, &s->op, fd, data, bytes, offset, durable);
}

static void rec_flush(struct pawl_io *io, struct pawl_io_op *op, int fd)
{
    struct record *r = of(io);
    struct shadow *s = shadow(r, op);
    s->begun = begin_flush(r, fd);
    r->inner->ops->flush(r->inner, &s->op, fd);
}

static void rec_open_later(struct pawl_io *io, struct pawl_io_op *op, int dir, const char *name,
                           int flags, unsigned mode, bool direct)
{
    struct record *r = of(io);
    struct shadow *s = shadow(r, op);
    s->creates = true;
    snprintf(s->name, sizeof s->name, "%s", name);
    r->inner->ops->open(r->inner, &s->op, dir, s->name, flags, mode, direct);
}

static int rec_watch_add(struct pawl_io *io, struct pawl_io_watch *watch)
{
    return of(io)->inner->ops->watch_add(of(io)->inner, watch);
}
static void rec_watch_remove(struct pawl_io *io, struct pawl_io_watch *watch)
{
    of(io)->inner->ops->watch_remove(of(io)->inner, watch);
}
static int rec_wait(struct pawl_io *io, uint64_t timeout_ns)
{
    return of(io)->inner->ops->wait(of(io)->inner, timeout_ns);
}

static void rec_destroy(struct pawl_io *io)
{
    struct record *r = of(io);
    for (uint32_t i = 0; i < r->event_count; i++)
        free(r->event[i].data);
    free(r->event);
    free(r->handle);
    free(r->known);
    free(r);
}

static const struct pawl_io_ops record_ops = {
    .name = "recording",
    .destroy = rec_destroy,
    .file_open = rec_open,
    .file_close = rec_close,
    .file_read = rec_read,
    .file_size = rec_size,
    .file_flush = rec_flush_now,
    .file_rename = rec_rename,
    .file_unlink = rec_unlink,
    .dir_list = rec_list,
    .write = rec_write,
    .flush = rec_flush,
    .open = rec_open_later,
    .watch_add = rec_watch_add,
    .watch_remove = rec_watch_remove,
    .wait = rec_wait,
};

struct pawl_io *pawl_io_record_create(struct pawl_io *inner, int dir)
{
    struct record *r = grown(NULL, sizeof *r);
    *r = (struct record){ .io.ops = &record_ops, .inner = inner, .dir = dir };
    return &r->io;
}

const struct pawl_io_event *pawl_io_record_events(const struct pawl_io *io, uint32_t *count)
{
    *count = of(io)->event_count;
    return of(io)->event;
}

void pawl_io_record_note(struct pawl_io *io, uint64_t value)
{
    add(of(io), PAWL_IO_EVENT_NOTE)->value = value;
}
