/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_IO_RECORD_H
#define PAWL_BROKER_IO_RECORD_H

/* The recording kind of io: hands everything on to another and writes down each operation that
 * changes the disk, with its bytes, when it was begun and when it was over. From that list every
 * disk that a crash could have left can be built (tests/crash). Starts on an empty directory. */

#include "io/io.h"

enum pawl_io_event_kind {
    PAWL_IO_EVENT_WRITE, /* begun; over at a later DONE that names it */
    PAWL_IO_EVENT_FLUSH,
    PAWL_IO_EVENT_FLUSH_DIR,
    PAWL_IO_EVENT_DONE,
    PAWL_IO_EVENT_CREATE,
    PAWL_IO_EVENT_RENAME,
    PAWL_IO_EVENT_UNLINK,
    PAWL_IO_EVENT_NOTE
};

struct pawl_io_event {
    enum pawl_io_event_kind kind;
    uint32_t file;  /* number, by order of creation */
    uint32_t begun; /* DONE: the event that is over */
    int result;     /* DONE */
    bool durable;
    uint64_t offset, bytes;
    uint64_t value; /* NOTE */
    uint8_t *data;  /* WRITE */
    char name[32], to[32];
};

/* Wraps inner, which it does not own. dir: the descriptor of the directory. */
struct pawl_io *pawl_io_record_create(struct pawl_io *inner, int dir);
const struct pawl_io_event *pawl_io_record_events(const struct pawl_io *io, uint32_t *count);
/* A mark of the caller's, such as what is acknowledged by now. */
void pawl_io_record_note(struct pawl_io *io, uint64_t value);

#endif
