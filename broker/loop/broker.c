/* SPDX-License-Identifier: MIT */
/* pawld.h: the parts are put together, started in the order in which they need each other, and
 * taken apart in the other order.
 *
 * Start
 *   - options checked, directory made, checked and locked
 *   - io chosen
 *   - engine opened: the log recovers, the core replays, the new epoch is durable
 *   - socket bound: from here clients may connect, who wait until the loop runs
 *   - recovered sessions whose process is dead are ended
 * Failure of any: what was had is given back, the text says what to do. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/hash.h"
#include "loop/loop.h"
#include "loop/machine.h"
#include "pawld.h"
#include "session/directory.h"

#define MIB (1ull << 20)
#define MEMORY_MIN (64 * MIB)
#define LINES_A_SECOND 20u
#define FILES_RESERVE 16u /* descriptors for the log's next segments and the like (L2) */

struct pawld {
    struct pawld_options options; /* all defaults filled in */
    struct pawl_directory directory;
    struct pawl_listener listener;
    struct pawl_io *io;
    struct pawl_loop loop;
    struct pawl_log_info info;
    char socket[PAWL_SOCKET_PATH_BYTES_MAX + 1];
    char io_reason[256];
    uint32_t stop;
    int stop_fd;
    struct pawl_io_watch stop_watch;
    bool sessions_started, over;
    uint64_t recovery_ns;
    struct pawld_stats last; /* of the engine, once it is closed */
    uint64_t random[64];
    uint32_t random_left;
    uint64_t lines_second; /* of the boot clock, with the lines said in it */
    uint32_t lines;
};

/* --- saying ---------------------------------------------------------------------------------- */

static void say_line(struct pawld *b, const char *line)
{
    if (b->options.say)
        b->options.say(b->options.say_ctx, line);
    else
        fprintf(stderr, "pawld: %s\n", line);
}

/* What clients can provoke is bounded: so many lines a second, then one that counts the rest. */
static void say_of_clients(void *ctx, const char *line)
{
    struct pawld *b = ctx;
    uint64_t second = b->loop.boot / 1000000000ull;
    if (second != b->lines_second) {
        if (b->lines > LINES_A_SECOND) {
            char text[64];
            snprintf(text, sizeof text, "and %u more such lines", b->lines - LINES_A_SECOND);
            say_line(b, text);
        }
        b->lines_second = second;
        b->lines = 0;
    }
    if (b->lines++ < LINES_A_SECOND)
        say_line(b, line);
}

static void sayf(struct pawld *b, const char *format, ...)
{
    char line[768];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    say_line(b, line);
}

/* --- options --------------------------------------------------------------------------------- */

static int usage(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, PAWLD_TEXT_BYTES, format, args);
    va_end(args);
    return PAWLD_USAGE;
}

static void fill_defaults(struct pawld_options *o)
{
    if (o->blocks_in_flight == 0)
        o->blocks_in_flight = 2;
    if (o->memory_bytes == 0)
        o->memory_bytes = pawl_max_u64(pawl_machine_memory() / 4, MEMORY_MIN);
    if (o->max_log_bytes == 0)
        o->max_log_bytes = 8192 * MIB;
    if (o->segment_bytes == 0)
        o->segment_bytes = 64 * MIB;
    if (o->block_bytes == 0)
        o->block_bytes = MIB / 4;
    if (o->relaxed_window_ns == 0)
        o->relaxed_window_ns = 10000000;
    if (o->session_grace_ns == 0)
        o->session_grace_ns = 60000000000ull;
    if (o->sessions_max == 0)
        o->sessions_max = 4096;
    if (o->queues_max == 0)
        o->queues_max = 4096;
}

static int check_options(struct pawld *b, const struct pawld_options *given, char *why)
{
    struct pawld_options *o = &b->options;
    if (given->size < offsetof(struct pawld_options, io) || given->size > 65536)
        return usage(why, "the options have an impossible size of %zu bytes", given->size);
    memcpy(o, given, pawl_min_u64(given->size, sizeof *o));
    o->size = sizeof *o;
    if (!o->dir || !*o->dir)
        return usage(why, "no directory was given");
    fill_defaults(o);
    if (o->io > PAWLD_IO_POSIX)
        return usage(why, "io: there is no kind %u", o->io);
    if (o->blocks_in_flight > 8)
        return usage(why, "blocks in flight: 1 to 8, not %u", o->blocks_in_flight);
    if (o->memory_bytes < MEMORY_MIN)
        return usage(why, "memory: at least 64 MiB");
    if (!pawl_is_pow2(o->segment_bytes) || o->segment_bytes < MIB || o->segment_bytes > 1024 * MIB)
        return usage(why, "segment size: a power of two of 1 MiB to 1 GiB");
    if (!pawl_is_pow2(o->block_bytes) || o->block_bytes < 65536 || o->block_bytes > MIB)
        return usage(why, "block size: a power of two of 64 KiB to 1 MiB");
    if (o->max_log_bytes < 4 * o->segment_bytes)
        return usage(why, "max log: at least four segments, %llu MiB",
                     (unsigned long long)(4 * o->segment_bytes / MIB));
    if (o->queues_max > 65536)
        return usage(why, "queues: at most 65,536");
    int n = o->socket ? snprintf(b->socket, sizeof b->socket, "%s", o->socket)
                      : snprintf(b->socket, sizeof b->socket, "%s/pawl.sock", o->dir);
    if (n < 1 || (size_t)n >= sizeof b->socket)
        return usage(why,
                     "the path of the socket has %d bytes, of which at most %u are possible: name "
                     "a shorter one with --socket",
                     n, PAWL_SOCKET_PATH_BYTES_MAX);
    return PAWLD_OK;
}

/* --- start ----------------------------------------------------------------------------------- */

static uint64_t give_random(void *ctx)
{
    struct pawld *b = ctx;
    if (b->random_left == 0) {
        size_t have = 0;
        while (have < sizeof b->random) {
            ssize_t n = getrandom((char *)b->random + have, sizeof b->random - have, 0);
            if (n > 0)
                have += (size_t)n;
            else
                PAWL_ASSERT(n < 0 && errno == EINTR); /* tokens must not be guessed, ever */
        }
        b->random_left = PAWL_COUNT(b->random);
    }
    uint64_t r = b->random[--b->random_left];
    b->random[b->random_left] = 0;
    return r;
}

static bool reserve(void *ctx, uint32_t lane, uint32_t bytes)
{
    struct pawld *b = ctx;
    return pawl_outbox_reserve(&b->loop.outbox, lane, bytes);
}

static void write_effect(void *ctx, const struct pawl_effect *effect)
{
    struct pawld *b = ctx;
    pawl_outbox_write(&b->loop.outbox, effect);
}

static void write_one_answer(void *ctx, uint32_t lane, uint64_t wait_lsn,
                             const struct pawl_core_answer *answer)
{
    struct pawld *b = ctx;
    pawl_outbox_answer(&b->loop.outbox, lane, wait_lsn, answer);
}

static void stop_rang(struct pawl_io_watch *watch, uint32_t events)
{
    (void)watch; /* the loop looks at the word */
    (void)events;
}

static int open_io(struct pawld *b, char *why)
{
    switch (b->options.io) {
    case PAWLD_IO_URING:
        b->io = pawl_io_uring_create(b->io_reason);
        break;
    case PAWLD_IO_POSIX:
        b->io = pawl_io_posix_create(b->io_reason);
        break;
    default:
        b->io = pawl_io_auto_create(b->io_reason);
        break;
    }
    if (!b->io) {
        snprintf(why, PAWLD_TEXT_BYTES, "io: %s", b->io_reason);
        return PAWLD_CANNOT_START;
    }
    b->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->stop_watch =
        (struct pawl_io_watch){ .ready = stop_rang, .fd = b->stop_fd, .events = EPOLLIN };
    if (b->stop_fd < 0 || b->io->ops->watch_add(b->io, &b->stop_watch) != 0) {
        snprintf(why, PAWLD_TEXT_BYTES, "no descriptor for the way to stop: %s", strerror(errno));
        return PAWLD_CANNOT_START;
    }
    return PAWLD_OK;
}

/* A quarter of the memory is for lanes, the rest for messages and their indexes. */
static uint64_t lanes_memory(const struct pawld *b) { return b->options.memory_bytes / 4; }

static int open_engine(struct pawld *b, char *why)
{
    const struct pawld_options *o = &b->options;
    struct pawl_engine_options eo = {
        .log = { .dir = b->directory.log_fd,
                 .segment_bytes = o->segment_bytes,
                 .max_bytes = o->max_log_bytes,
                 .block_bytes = (uint32_t)o->block_bytes,
                 .in_flight_max = o->blocks_in_flight,
                 .record_bytes_max = PAWL_CMD_BYTES_MAX + 16384,
                 .boot_ns = pawl_clock_boot(),
                 .wall_ns = pawl_clock_wall() },
        .core = { .memory_bytes = o->memory_bytes - lanes_memory(b),
                  .session_grace_ns = o->session_grace_ns,
                  .sessions_max = o->sessions_max,
                  .queues_max = o->queues_max,
                  .admin_uid = geteuid() },
        .relaxed_window_ns = o->relaxed_window_ns,
        /* Each effect that waits has forty bytes of a completion ring promised, at least. */
        .effects_max = lanes_memory(b) / sizeof(struct pawl_comp_answer),
    };
    pawl_machine_boot_id(eo.log.boot_id);
    const struct pawl_engine_lanes lanes = {
        .ctx = b,
        .reserve = reserve,
        .write = write_effect,
        .answer = write_one_answer,
        .random = give_random,
    };
    char text[PAWL_LOG_TEXT_BYTES] = "";
    int rc = pawl_engine_open(b->io, &eo, &lanes, &b->loop.engine, &b->info, text);
    b->recovery_ns = pawl_clock_boot() - eo.log.boot_ns;
    if (rc != PAWL_LOG_OK) {
        snprintf(why, PAWLD_TEXT_BYTES, "%s", text);
        return rc == PAWL_LOG_DAMAGE   ? PAWLD_DAMAGE
               : rc == PAWL_LOG_FAILED ? PAWLD_LOG_FAILED
                                       : PAWLD_CANNOT_START;
    }
    if (text[0] != '\0')
        say_line(b, text);
    return PAWLD_OK;
}

static int start_sessions(struct pawld *b, char *why)
{
    struct pawl_loop *loop = &b->loop;
    struct pawl_sessions *s = &loop->sessions;
    s->io = b->io;
    s->core = pawl_engine_core(loop->engine);
    s->lanes = &loop->lanes;
    s->listener = &b->listener;
    uint32_t files = pawl_machine_files_left();
    s->limits = (struct pawl_session_limits){
        .sessions_max = b->options.sessions_max,
        .sessions_uid_max = (b->options.sessions_max + 1) / 2,
        .files_max = files > FILES_RESERVE ? files - FILES_RESERVE : 0,
        .grace_ns = b->options.session_grace_ns,
        .admin_uid = geteuid(),
    };
    s->broker_epoch = b->info.epoch;
    /* The id itself stays here: what is hashed under it must not be chosen by those outside. */
    uint64_t shown = pawl_hash64(b->info.log_id, sizeof b->info.log_id, 2);
    memcpy(s->log_id, &shown, sizeof shown);
    snprintf(s->io_name, sizeof s->io_name, "%s", b->io->ops->name);
    s->say = say_of_clients;
    s->say_ctx = b;
    loop->boot = pawl_clock_boot();
    struct pawl_now now = pawl_engine_now(loop->engine, loop->boot, pawl_clock_wall());
    loop->directs = (struct pawl_directs){
        .sessions = s, .broker_epoch = b->info.epoch, .random = give_random, .random_ctx = b
    };
    pawl_machine_boot_id(loop->directs.boot_id);
    pawl_directs_start(&loop->directs, s->core, b->directory.fd, loop->boot);
    s->directs = &loop->directs;
    int rc = pawl_sessions_start(s, now, loop->boot, b->info.same_boot);
    b->sessions_started = true;
    if (rc != 0) {
        snprintf(why, PAWLD_TEXT_BYTES, "sessions: %s", strerror(-rc));
        return PAWLD_CANNOT_START;
    }
    return PAWLD_OK;
}

static int start(struct pawld *b, char *why)
{
    int rc = open_io(b, why);
    if (rc != PAWLD_OK)
        return rc;
    struct pawl_loop *loop = &b->loop;
    rc = pawl_lanes_init(&loop->lanes, b->io, lanes_memory(b));
    if (rc != 0) {
        snprintf(why, PAWLD_TEXT_BYTES, "no memory");
        return PAWLD_CANNOT_START;
    }
    loop->io = b->io;
    loop->spin_ns = b->options.spin_ns;
    loop->outbox.lanes = &loop->lanes;
    rc = open_engine(b, why);
    if (rc != PAWLD_OK)
        return rc;
    loop->lanes.core = pawl_engine_core(loop->engine);
    loop->outbox.engine = loop->engine;
    pawl_intake_init(&loop->intake, &loop->lanes, loop->engine);
    if (pawl_listener_open(b->socket, &b->listener, why, PAWLD_TEXT_BYTES) != 0)
        return PAWLD_CANNOT_START;
    return start_sessions(b, why);
}

static void say_started(struct pawld *b)
{
    sayf(b, "io: %s", b->io_reason);
    if (b->info.records > 0 || b->info.cut_bytes > 0)
        sayf(b, "recovered %llu records, %llu MiB, in %llu ms (%s)",
             (unsigned long long)b->info.records, (unsigned long long)(b->info.bytes / MIB),
             (unsigned long long)(b->recovery_ns / 1000000),
             b->info.clean ? "after a clean stop" : "after a crash");
    sayf(b, "memory %llu MiB, of which %llu for lanes; log at most %llu MiB",
         (unsigned long long)(b->options.memory_bytes / MIB),
         (unsigned long long)(lanes_memory(b) / MIB),
         (unsigned long long)(b->options.max_log_bytes / MIB));
}

int pawld_create(const struct pawld_options *options, struct pawld **out, char *why)
{
    char unwanted[PAWLD_TEXT_BYTES];
    if (!why)
        why = unwanted;
    why[0] = '\0';
    *out = NULL;
    struct pawld *b = calloc(1, sizeof *b);
    if (!b) {
        snprintf(why, PAWLD_TEXT_BYTES, "no memory");
        return PAWLD_CANNOT_START;
    }
    b->directory = (struct pawl_directory){ .fd = -1, .lock_fd = -1, .log_fd = -1 };
    b->listener.fd = -1;
    b->stop_fd = -1;
    int rc = check_options(b, options, why);
    if (rc == PAWLD_OK &&
        pawl_directory_open(b->options.dir, &b->directory, why, PAWLD_TEXT_BYTES) != 0)
        rc = PAWLD_CANNOT_START;
    if (rc == PAWLD_OK)
        rc = start(b, why);
    if (rc != PAWLD_OK) {
        pawld_destroy(b);
        return rc;
    }
    say_started(b);
    *out = b;
    return PAWLD_OK;
}

/* --- run and stop ---------------------------------------------------------------------------- */

static void keep_stats(struct pawld *b)
{
    b->last.size = sizeof b->last;
    pawld_stats(b, &b->last);
}

/* Closes the way in and the engine; the order matters: what the drain publishes must still reach
 * the rings. */
static int wind_up(struct pawld *b, bool clean)
{
    struct pawl_loop *loop = &b->loop;
    int rc = PAWLD_OK;
    b->over = true;
    if (clean && pawl_engine_quiesce(loop->engine))
        (void)pawl_outbox_publish(&loop->outbox);
    if (b->sessions_started) {
        loop->sessions.directs = NULL;
        pawl_directs_stop(&loop->directs);
        pawl_sessions_stop(&loop->sessions, clean && !pawl_engine_failed(loop->engine)
                                                ? PAWL_E_BROKER_DOWN
                                                : PAWL_E_WAL_FAILED);
    }
    pawl_listener_close(&b->listener, 1);
    keep_stats(b);
    if (pawl_engine_close(loop->engine, clean) != PAWL_LOG_OK)
        rc = PAWLD_LOG_FAILED;
    loop->engine = NULL;
    return rc;
}

int pawld_run(struct pawld *broker)
{
    struct pawld *b = broker;
    if (b->over)
        return PAWLD_USAGE;
    int rc = pawl_loop_run(&b->loop, &b->stop);
    if (rc != PAWLD_OK) {
        const char *why = pawl_log_failure(pawl_engine_log(b->loop.engine));
        sayf(b, "the log has failed, nothing is acknowledged any more: %s",
             *why ? why : strerror(-b->loop.io_error));
        (void)wind_up(b, false);
        return rc;
    }
    uint64_t before = pawl_log_durable(pawl_engine_log(b->loop.engine)), began = pawl_clock_boot();
    rc = wind_up(b, true);
    uint64_t ms = (pawl_clock_boot() - began) / 1000000;
    if (rc == PAWLD_OK)
        sayf(b, "stopped cleanly: the last %llu bytes flushed in %llu ms, the log ends at %llu",
             (unsigned long long)(b->last.durable_lsn - before), (unsigned long long)ms,
             (unsigned long long)b->last.durable_lsn);
    else
        sayf(b, "stopped: the last write or flush of the log failed, after %llu ms",
             (unsigned long long)ms);
    return rc;
}

void pawld_stop(struct pawld *broker)
{
    pawl_store_seq_u32(&broker->stop, 1);
    uint64_t one = 1;
    /* A full counter is as good: the descriptor is readable. */
    ssize_t n = write(broker->stop_fd, &one, sizeof one);
    (void)n;
}

void pawld_destroy(struct pawld *broker)
{
    struct pawld *b = broker;
    if (!b)
        return;
    if (b->loop.engine)
        (void)wind_up(b, true);
    pawl_listener_close(&b->listener, 1);
    if (b->io) {
        pawl_lanes_fini(&b->loop.lanes);
        if (b->stop_watch.armed)
            b->io->ops->watch_remove(b->io, &b->stop_watch);
        b->io->ops->destroy(b->io);
    }
    if (b->stop_fd >= 0)
        (void)close(b->stop_fd);
    pawl_directory_close(&b->directory);
    free(b);
}

void pawld_stats(const struct pawld *broker, struct pawld_stats *out)
{
    const struct pawld *b = broker;
    struct pawld_stats s = b->last;
    if (b->loop.engine) {
        struct pawl_core_stats core;
        struct pawl_log *log = pawl_engine_log(b->loop.engine);
        pawl_core_stats(pawl_engine_core(b->loop.engine), &core);
        s.epoch = b->info.epoch;
        s.durable_lsn = pawl_log_durable(log);
        s.log_bytes = pawl_log_existing(log);
        s.live_bytes = pawl_core_live(pawl_engine_core(b->loop.engine));
        s.memory_bytes = core.memory_bytes + b->loop.lanes.bytes;
        s.sessions = core.sessions;
        s.lanes = b->loop.lanes.open_count;
        s.messages = core.messages;
        s.turns = b->loop.turns;
        pawl_engine_counts(b->loop.engine, &s.records, &s.blocks);
        s.wakes = b->loop.lanes.wakes;
        s.bells = b->loop.lanes.bells;
        s.recovered_records = b->info.records;
        s.recovered_bytes = b->info.bytes;
        s.recovery_ns = b->recovery_ns;
        s.tail_cut_bytes = b->info.cut_bytes;
        snprintf(s.io, sizeof s.io, "%s", b->io->ops->name);
        snprintf(s.io_reason, sizeof s.io_reason, "%.*s", (int)sizeof s.io_reason - 1,
                 b->io_reason);
    }
    size_t bytes = out->size;
    if (bytes < sizeof bytes || bytes > sizeof s)
        bytes = sizeof s;
    s.size = bytes;
    memcpy(out, &s, bytes);
}
