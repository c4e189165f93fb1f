/* SPDX-License-Identifier: MIT */
#ifndef PAWLD_H
#define PAWLD_H

/* libpawld: the broker as a library. One broker owns one directory and runs in one thread, the one
 * that calls pawld_run(): name it and pin it as you like. It starts no other thread where io_uring
 * works; the posix fallback has one for the disk, named "pawld-io".
 *
 *     struct pawld_options o = PAWLD_OPTIONS_INIT;
 *     o.dir = "/var/lib/app/pawl";
 *     struct pawld *b;
 *     char why[PAWLD_TEXT_BYTES];
 *     int rc = pawld_create(&o, &b, why);        // recovers, binds; clients may connect from here
 *     if (rc == 0) { rc = pawld_run(b); pawld_destroy(b); }
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAWLD_API __attribute__((visibility("default")))
#define PAWLD_TEXT_BYTES 512

/* Also the exit codes of pawld(8). */
enum pawld_result {
    PAWLD_OK = 0,
    PAWLD_CANNOT_START = 1, /* directory, lock, socket, memory, descriptors: the text says which */
    PAWLD_USAGE = 2,        /* an option out of its range */
    PAWLD_DAMAGE = 3,       /* damage in the acknowledged part of the log; nothing was changed */
    PAWLD_LOG_FAILED = 4 /* a write or flush failed; what was not acknowledged has no outcome yet */
};

enum pawld_io { PAWLD_IO_AUTO, PAWLD_IO_URING, PAWLD_IO_POSIX };

struct pawld_options {
    size_t size;
    const char *dir;    /* made with 0750 if missing, where it shall be must be there; required */
    const char *socket; /* NULL: dir/pawl.sock; at most 107 bytes */
    uint32_t io;        /* enum pawld_io */
    uint32_t blocks_in_flight; /* 1..8; 0: 2 */
    uint64_t spin_ns;          /* look this long, yielding, before sleeping; default 0 */
    uint64_t memory_bytes;     /* 0: a quarter of the RAM or cgroup limit; at least 64 MiB */
    uint64_t max_log_bytes;    /* 0: 8 GiB; at least 4 segments. Crashes in the middle of
                                * copying may make one segment more of it, once */
    uint64_t segment_bytes; /* when the directory is made; power of two, 1 MiB..1 GiB; 0: 64 MiB */
    uint64_t block_bytes;   /* 64 KiB..1 MiB, power of two; 0: 256 KiB */
    uint64_t relaxed_window_ns;               /* 0: 10 ms */
    uint64_t session_grace_ns;                /* 0: 60 s */
    uint32_t sessions_max;                    /* 0: 4,096 */
    uint32_t queues_max;                      /* 0: 4,096; at most 65,536 */
    void (*say)(void *ctx, const char *line); /* one line of news, no newline; NULL: stderr */
    void *say_ctx;
};
#define PAWLD_OPTIONS_INIT                   \
    {                                        \
        .size = sizeof(struct pawld_options) \
    }

struct pawld;

/* Takes the directory, recovers the log, makes the new epoch durable, binds the socket. On error
 * *out is NULL, the directory as it was and `why` (PAWLD_TEXT_BYTES, may be NULL) says what to do.
 */
PAWLD_API int pawld_create(const struct pawld_options *options, struct pawld **out, char *why);
/* Serves until pawld_stop() or a failure of the log. After PAWLD_OK the log ends with a marker. */
PAWLD_API int pawld_run(struct pawld *broker);
/* From any thread or a signal handler. */
PAWLD_API void pawld_stop(struct pawld *broker);
PAWLD_API void pawld_destroy(struct pawld *broker);

struct pawld_stats {
    size_t size;
    uint64_t epoch, durable_lsn, log_bytes, live_bytes, memory_bytes;
    uint64_t sessions, lanes, messages;
    uint64_t turns, blocks, records, wakes, bells;
    uint64_t recovered_records, recovered_bytes, recovery_ns, tail_cut_bytes;
    char io[16];
    char io_reason[160]; /* why this kind of io */
};
/* From the thread of pawld_run(), or while it is not running. */
PAWLD_API void pawld_stats(const struct pawld *broker, struct pawld_stats *out);

#ifdef __cplusplus
}
#endif
#endif
