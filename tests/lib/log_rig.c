/* SPDX-License-Identifier: MIT */
#include "lib/log_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/prng.h"

#define TURNS_MAX 100000

void rig_init(struct log_rig *rig, struct pawl_io *io, int dir)
{
    *rig = (struct log_rig){ .io = io,
                             .options = { .dir = dir,
                                          .segment_bytes = 64 * 1024,
                                          .max_bytes = 1 << 20,
                                          .block_bytes = 16 * 1024,
                                          .in_flight_max = 4,
                                          .record_bytes_max = 20000,
                                          .boot_id = { 1, 2, 3 },
                                          .boot_ns = 5000000000ull,
                                          .wall_ns = 1700000000000000000ull,
                                          .log_id = { 0x10, 0x32 } },
                             .boot_ns = 5000000000ull };
    rig->real_time = strcmp(io->ops->name, "uring") == 0 || strcmp(io->ops->name, "posix") == 0;
    rig->lsn = calloc(RIG_RECORDS_MAX, sizeof *rig->lsn);
    rig->size = calloc(RIG_RECORDS_MAX, sizeof *rig->size);
    rig->max = RIG_RECORDS_MAX;
    if (!rig->lsn || !rig->size)
        abort();
}

void rig_copy(struct log_rig *to, const struct log_rig *from, struct pawl_io *io, int dir)
{
    *to = *from;
    to->io = io;
    to->options.dir = dir;
    to->log = NULL;
    to->max = from->next + 64;
    to->lsn = calloc(to->max, sizeof *to->lsn);
    to->size = calloc(to->max, sizeof *to->size);
    if (!to->lsn || !to->size)
        abort();
    memcpy(to->lsn, from->lsn, from->next * sizeof *to->lsn);
    memcpy(to->size, from->size, from->next * sizeof *to->size);
}

void rig_fini(struct log_rig *rig)
{
    rig_close(rig);
    free(rig->lsn);
    free(rig->size);
}

/* Number and size stand first, so that a body proves itself; then bytes that follow from them. */
void rig_body(uint64_t number, uint8_t *body, uint32_t bytes)
{
    struct pawl_prng prng = { number * 0x100000001b3ull + bytes };
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t word = i == 0 ? number : pawl_prng_next(&prng);
        memcpy(body + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

int rig_replay(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    struct log_rig *rig = ctx;
    static uint8_t want[1 << 20];
    uint64_t number;
    if (type != RIG_RECORD || bytes < 8 || bytes > sizeof want) {
        rig->wrong = true;
        return 1;
    }
    memcpy(&number, body, sizeof number);
    rig_body(number, want, bytes);
    if (memcmp(want, body, bytes) != 0)
        rig->wrong = true;
    if (rig->replayed_count == 0)
        rig->replayed_first = number;
    else if (number != rig->replayed_first + rig->replayed_count)
        rig->wrong = true;
    if (number < rig->max && rig->size[number] != 0 &&
        (rig->size[number] != bytes || rig->lsn[number] != lsn))
        rig->wrong = true;
    rig->replayed_count++;
    rig->replay_hash = pawl_hash64(body, bytes, rig->replay_hash ^ lsn);
    return 0;
}

int rig_open(struct log_rig *rig)
{
    rig->replayed_count = rig->replayed_first = 0;
    rig->replay_hash = 0;
    rig->options.boot_ns = rig->boot_ns;
    rig->result =
        pawl_log_open(rig->io, &rig->options, rig_replay, rig, &rig->log, &rig->info, rig->text);
    if (rig->result == PAWL_LOG_OK && rig->replayed_count > 0)
        rig->acked = rig->replayed_first + rig->replayed_count;
    if (rig->result == PAWL_LOG_OK)
        rig->next = rig->acked; /* those after are lost, and their numbers are given again */
    return rig->result;
}

void rig_close(struct log_rig *rig)
{
    pawl_log_close(rig->log);
    rig->log = NULL;
}

bool rig_append(struct log_rig *rig, uint32_t bytes)
{
    if (rig->next >= rig->max || !pawl_log_admit(rig->log, bytes + PAWL_LOG_RECORD_HEAD))
        return false;
    uint64_t lsn;
    void *body = pawl_log_append(rig->log, RIG_RECORD, bytes, &lsn);
    rig_body(rig->next, body, bytes);
    rig->lsn[rig->next] = lsn;
    rig->size[rig->next] = bytes;
    rig->next++;
    return true;
}

void rig_seal(struct log_rig *rig)
{
    rig->boot_ns += 1000;
    pawl_log_seal(rig->log, rig->info.time_ns + (rig->boot_ns - rig->options.boot_ns), rig->boot_ns,
                  rig->options.wall_ns);
}

rig_noter *rig_note;

int rig_turn(struct log_rig *rig)
{
    int rc = rig->io->ops->wait(rig->io, rig->real_time ? 1000000 : 1000000000);
    rig->boot_ns += 1000000;
    pawl_log_tend(rig->log, rig->boot_ns);
    uint64_t durable = pawl_log_durable(rig->log);
    while (rig->acked < rig->next && rig->lsn[rig->acked] < durable)
        rig->acked++;
    if (rig_note)
        rig_note(rig);
    return rc;
}

bool rig_flush(struct log_rig *rig)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        if (pawl_log_failed(rig->log))
            return false;
        rig_seal(rig);
        if (!pawl_log_pending(rig->log) && pawl_log_in_flight(rig->log) == 0)
            return true;
        if (rig_turn(rig) < 0)
            return false;
    }
    return false;
}

bool rig_fill(struct log_rig *rig, unsigned count, uint32_t bytes, unsigned each)
{
    for (unsigned i = 1; i <= count; i++) {
        for (int turns = 0; !rig_append(rig, bytes); turns++) {
            rig_seal(rig);
            if (pawl_log_failed(rig->log) || turns > TURNS_MAX || rig_turn(rig) < 0)
                return false;
        }
        if (i % each == 0 && !rig_flush(rig))
            return false;
    }
    return rig_flush(rig) && rig_turn(rig) >= 0;
}

/* Seals without waiting, so that several are in flight; turns only where there is no room. */
static bool row(struct log_rig *rig, unsigned count, uint32_t bytes)
{
    for (unsigned i = 0; i < count; i++) {
        for (int turns = 0; !rig_append(rig, bytes); turns++) {
            rig_seal(rig);
            if (pawl_log_failed(rig->log) || turns > 100 || rig_turn(rig) < 0)
                return false;
        }
        rig_seal(rig);
    }
    return true;
}

static void mark(struct log_rig *rig, bool clean)
{
    rig->boot_ns += 1000;
    pawl_log_mark(rig->log, clean, rig->info.time_ns + (rig->boot_ns - rig->options.boot_ns),
                  rig->boot_ns, rig->options.wall_ns);
}

static void release(struct log_rig *rig)
{
    while (pawl_log_oldest_segment(rig->log) + 1 < pawl_log_newest_segment(rig->log))
        pawl_log_release_oldest(rig->log);
}

bool rig_script(struct log_rig *rig)
{
    release(rig);
    if (!rig_fill(rig, 5, 100, 1) || !row(rig, 6, 3000) || !rig_flush(rig))
        return false;
    mark(rig, false);
    if (!rig_flush(rig) || !rig_fill(rig, 1, rig->options.record_bytes_max, 1))
        return false;
    if (!row(rig, 10, 7000) || !rig_flush(rig))
        return false;
    release(rig);
    if (!rig_fill(rig, 7, 50, 2) || !row(rig, 8, 9000) || !rig_flush(rig))
        return false;
    mark(rig, true);
    return rig_flush(rig);
}

const char *rig_missing(const struct log_rig *rig, uint64_t acked)
{
    if (rig->result != PAWL_LOG_OK)
        return "not opened";
    if (rig->wrong)
        return "a record has other bytes, another place or is out of order";
    uint64_t first = rig->replayed_first, end = first + rig->replayed_count;
    if (rig->replayed_count == 0) {
        /* Only where every record was in segments that were given back. */
        if (acked > 0 && rig->lsn[acked - 1] >= rig->info.oldest)
            return "nothing was recovered";
        return NULL;
    }
    if (end < acked)
        return "an acknowledged record is missing";
    if (first > 0 && rig->lsn[first - 1] >= rig->info.oldest)
        return "a record at the beginning is missing";
    return NULL;
}

void rig_settle(struct log_rig *rig)
{
    for (int i = 0; i < 1000; i++) {
        pawl_log_tend(rig->log, rig->boot_ns);
        if (rig->io->ops->wait(rig->io, 1000000) <= 0)
            return;
    }
}

int rig_dir_make(char path[64])
{
    const char *base = getenv("TMPDIR");
    snprintf(path, 64, "%.40s/pawl-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(path))
        return -1;
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void rig_dir_remove(const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return;
    struct dirent *e;
    while ((e = readdir(d)))
        if (e->d_name[0] != '.')
            (void)unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    (void)rmdir(path);
}
