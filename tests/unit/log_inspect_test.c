/* SPDX-License-Identifier: MIT */
/* Looking into logs, live, dead and damaged; and repair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/prng.h"
#include "io/sim.h"
#include "lib/log_rig.h"
#include "log/inspect.h"
#include "log/log_inner.h"

struct golden {
    struct pawl_io *io;
    struct log_rig rig;
};

static void golden_make(struct golden *g)
{
    g->io = pawl_io_sim_create(42);
    rig_init(&g->rig, g->io, PAWL_IO_SIM_DIR);
    g->rig.options.max_bytes = 7 * 65536;
    assert_int_equal(rig_open(&g->rig), PAWL_LOG_OK);
    assert_true(rig_script(&g->rig));
    rig_settle(&g->rig);
    rig_close(&g->rig);
}

static void golden_fini(struct golden *g)
{
    rig_fini(&g->rig);
    g->io->ops->destroy(g->io);
}

struct counted {
    uint64_t blocks, markers, records, bad, unchained, stretches;
    uint64_t last_lsn;
    uint64_t inside; /* offset of a block that is not the first of its file */
    char inside_file[16];
    int stop_after;
};
static int count_block(void *ctx, const struct pawl_inspect_block *b)
{
    struct counted *c = ctx;
    if (strcmp(b->verdict, "valid") != 0) {
        c->stretches++;
        c->bad += strcmp(b->verdict, "torn") == 0;
        return 0;
    }
    if (b->offset > 0 && !c->inside) {
        c->inside = b->offset;
        snprintf(c->inside_file, sizeof c->inside_file, "%s", b->file);
    }
    c->blocks++;
    c->markers += b->marker;
    c->unchained += !b->chained;
    return c->stop_after && c->blocks >= (uint64_t)c->stop_after ? 7 : 0;
}
static int count_record(void *ctx, uint64_t lsn, uint16_t type, const void *body, uint32_t bytes)
{
    struct counted *c = ctx;
    assert_true(lsn > c->last_lsn);
    c->last_lsn = lsn;
    c->records++;
    return 0;
}

static void lists_verifies_and_walks_a_whole_log(void **state)
{
    struct golden g;
    golden_make(&g);
    uint64_t digest = pawl_io_sim_digest(g.io);
    uint64_t writes = pawl_io_sim_operations(g.io, PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH);
    struct pawl_inspect *in;
    char text[PAWL_LOG_TEXT_BYTES];
    assert_int_equal(pawl_inspect_open(g.io, PAWL_IO_SIM_DIR, &in, text), PAWL_LOG_OK);
    assert_int_equal(pawl_inspect_verify(in, text), PAWL_LOG_OK);
    const struct pawl_inspect_state *s = pawl_inspect_state(in);
    assert_memory_equal(s->log_id, g.rig.info.log_id, 16);
    assert_true(s->clean);
    assert_int_equal(s->head_position, s->tail);
    assert_string_equal(s->damage_file, "");
    uint64_t records = 0, blocks = 0, live = 0, free_files = 0, ready = 0;
    uint64_t last = 0;
    const struct pawl_inspect_file *f;
    for (uint32_t i = 0; (f = pawl_inspect_file(in, i)) != NULL; i++) {
        records += f->records;
        blocks += f->blocks;
        live += f->use == PAWL_INSPECT_LIVE;
        free_files += f->use == PAWL_INSPECT_FREE;
        ready += f->use == PAWL_INSPECT_READY;
        if (f->use == PAWL_INSPECT_LIVE) {
            assert_true(last == 0 || f->segment == last + 1);
            last = f->segment;
            assert_true(f->used_bytes > 0 && f->blocks > 0);
            assert_int_equal(f->epoch_first, 1);
        }
    }
    assert_true(live > 1 && free_files + ready > 0);
    assert_int_equal(records, s->records);
    assert_int_equal(blocks, s->blocks);
    struct counted c = { .stop_after = 0 };
    struct pawl_inspect_visitor v = { &c, count_block, count_record };
    assert_int_equal(pawl_inspect_walk(in, 0, &v), 0);
    assert_int_equal(c.blocks, blocks);
    assert_int_equal(c.records, records);
    assert_int_equal(c.bad, 0);
    assert_int_equal(c.unchained, 1); /* the first: nobody knows what was before it */
    assert_true(c.markers >= 1);
    /* From a place on, and a visitor that has seen enough. */
    struct counted some = { .stop_after = 0 };
    v.ctx = &some;
    assert_int_equal(pawl_inspect_walk(in, c.last_lsn, &v), 0);
    assert_int_equal(some.records, 1);
    struct counted stop = { .stop_after = 2 };
    v.ctx = &stop;
    assert_int_equal(pawl_inspect_walk(in, 0, &v), 7);
    assert_int_equal(stop.blocks, 2);
    pawl_inspect_close(in);
    assert_int_equal(pawl_io_sim_digest(g.io), digest);
    assert_int_equal(pawl_io_sim_operations(g.io, PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH), writes);
    golden_fini(&g);
}

static void shows_what_is_behind_damage(void **state)
{
    struct golden g;
    golden_make(&g);
    struct pawl_inspect *in;
    char text[PAWL_LOG_TEXT_BYTES];
    assert_int_equal(pawl_inspect_open(g.io, PAWL_IO_SIM_DIR, &in, text), PAWL_LOG_OK);
    assert_int_equal(pawl_inspect_verify(in, text), PAWL_LOG_OK);
    struct counted whole = { .stop_after = 0 }, c = { .stop_after = 0 };
    struct pawl_inspect_visitor v = { &whole, count_block, count_record };
    assert_int_equal(pawl_inspect_walk(in, 0, &v), 0);
    uint64_t bytes;
    assert_true(whole.inside > 0);
    pawl_io_sim_file(g.io, whole.inside_file, &bytes)[whole.inside + 130] ^= 4;
    assert_int_equal(pawl_inspect_verify(in, text), PAWL_LOG_DAMAGE);
    const struct pawl_inspect_state *s = pawl_inspect_state(in);
    assert_string_equal(s->damage_file, whole.inside_file);
    assert_int_equal(s->damage_offset, whole.inside);
    assert_int_equal(s->damage_position % s->segment_bytes, whole.inside);
    assert_true(s->next_valid != UINT64_MAX && s->next_valid > s->damage_position);
    assert_non_null(strstr(text, whole.inside_file));
    v.ctx = &c;
    assert_int_equal(pawl_inspect_walk(in, 0, &v), 0);
    assert_int_equal(c.blocks, whole.blocks - 1);
    assert_int_equal(c.bad, 1);
    assert_int_equal(c.unchained, 2);
    assert_true(c.records < whole.records && c.records > 0);
    pawl_inspect_close(in);
    golden_fini(&g);
}

static void says_when_there_is_no_log(void **state)
{
    struct pawl_io *io = pawl_io_sim_create(1);
    struct pawl_inspect *in;
    char text[PAWL_LOG_TEXT_BYTES];
    assert_int_equal(pawl_inspect_open(io, PAWL_IO_SIM_DIR, &in, text), PAWL_LOG_CANNOT);
    assert_null(in);
    assert_non_null(strstr(text, "no log"));
    io->ops->destroy(io);
}

/* --- beside a broker that writes ------------------------------------------------------------- */

struct writer {
    int dir;
    bool stop, failed;
    uint64_t acked;
};

static void *write_main(void *arg)
{
    struct writer *w = arg;
    char why[256];
    struct pawl_io *io = pawl_io_posix_create(why);
    struct log_rig rig;
    rig_init(&rig, io, w->dir);
    rig.options.max_bytes = 5 * 65536;
    w->failed = rig_open(&rig) != PAWL_LOG_OK;
    while (!w->failed && !__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
        if (rig.next + 10 >= rig.max)
            break;
        if (!rig_append(&rig, 8 + rig.next * 37 % 3000))
            w->failed = rig_turn(&rig) < 0;
        rig_seal(&rig);
        if (rig.next % 3 == 0)
            w->failed |= rig_turn(&rig) < 0;
        if (pawl_log_oldest_segment(rig.log) + 2 < pawl_log_newest_segment(rig.log))
            pawl_log_release_oldest(rig.log);
    }
    w->failed |= !rig_flush(&rig);
    w->acked = rig.acked;
    rig_fini(&rig);
    io->ops->destroy(io);
    return NULL;
}

static void a_live_log_is_never_called_damaged(void **state)
{
    char path[64], why[256], text[PAWL_LOG_TEXT_BYTES];
    struct writer w = { .dir = rig_dir_make(path) };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_main, &w), 0);
    struct pawl_io *io = pawl_io_posix_create(why);
    struct pawl_inspect *in;
    unsigned looks = 0, opened = 0, again = 0;
    uint64_t tail = 0;
    while (looks < 150) {
        int rc = pawl_inspect_open(io, w.dir, &in, text);
        if (rc == PAWL_LOG_OK) {
            rc = pawl_inspect_verify(in, text);
            uint64_t now = pawl_inspect_state(in)->tail;
            if (rc == PAWL_LOG_OK) {
                assert_true(now >= tail);
                tail = now;
            }
            pawl_inspect_close(in);
            looks++;
            opened += rc == PAWL_LOG_OK;
        }
        if (rc == PAWL_LOG_DAMAGE && !strstr(text, "missing")) /* while it is being made */
            fail_msg("look %u: %s", looks, text);
        again += rc == PAWL_LOG_CANNOT;
    }
    __atomic_store_n(&w.stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_false(w.failed);
    assert_true(opened > 75);
    print_message("%u looks, %u whole, %u to be tried again, tail %" PRIu64 ", %" PRIu64
                  " records\n",
                  looks, opened, again, tail, w.acked);
    io->ops->destroy(io);
    close(w.dir);
    rig_dir_remove(path);
}

/* --- repair ---------------------------------------------------------------------------------- */

static const char *const file_names[] = { "id",         "head",       "000001.seg",
                                          "000002.seg", "000003.seg", "000004.seg",
                                          "000005.seg", "000006.seg", "000007.seg" };

/* Records that the cut log must still have: those below its tail, from where it begins. */
static const char *wrong_after_repair(const struct log_rig *rig, uint64_t tail)
{
    if (rig->result != PAWL_LOG_OK)
        return rig->text;
    if (rig->wrong)
        return "a record is wrong";
    uint64_t count = 0, max = 0;
    while (rig->lsn[max + 1] > rig->lsn[max])
        max++;
    for (uint64_t i = 0; i <= max; i++)
        count += rig->lsn[i] >= rig->info.oldest && rig->lsn[i] < tail && rig->size[i] != 0;
    if (tail > 0 && rig->replayed_count != count)
        return "not all below the cut is there";
    return NULL;
}

static void repair_and_check(struct golden *g, struct pawl_io *io, const char *what, uint64_t at,
                             unsigned *cuts)
{
    struct log_rig rig;
    rig_copy(&rig, &g->rig, io, PAWL_IO_SIM_DIR);
    int found = rig_open(&rig);
    rig_close(&rig);
    struct pawl_repair_result result;
    char text[PAWL_LOG_TEXT_BYTES];
    uint64_t before = pawl_io_sim_digest(io);
    int rc = pawl_log_repair(io, PAWL_IO_SIM_DIR, 1700000000ull * 1000000000u, &result, text);
    if (rc != PAWL_LOG_OK)
        fail_msg("%s %" PRIu64 ": not repaired: %s", what, at, text);
    if (found == PAWL_LOG_OK) {
        assert_false(result.changed);
        assert_int_equal(pawl_io_sim_digest(io), before);
    } else {
        uint64_t bytes;
        ++*cuts;
        assert_true(result.changed);
        const uint8_t *report = pawl_io_sim_file(io, result.report, &bytes);
        assert_non_null(report);
        assert_true(bytes > 0 && memcmp(report, "pawl log repair\n", 16) == 0);
        rig_open(&rig);
        const char *wrong = wrong_after_repair(&rig, result.tail);
        if (wrong)
            fail_msg("%s %" PRIu64 ": repaired to %" PRIu64 ": %s", what, at, result.tail, wrong);
        uint64_t epoch = rig.info.epoch;
        assert_true(epoch > 1);
        rig.next = rig.acked = rig.replayed_first + rig.replayed_count;
        assert_true(rig_fill(&rig, 3, 2000, 1));
        rig_close(&rig);
        assert_int_equal(rig_open(&rig), PAWL_LOG_OK);
        assert_false(rig.wrong);
        rig_close(&rig);
        assert_int_equal(pawl_log_repair(io, PAWL_IO_SIM_DIR, 1, &result, text), PAWL_LOG_OK);
        assert_false(result.changed);
    }
    rig_fini(&rig);
}

static void repair_cuts_where_the_chain_ends(void **state)
{
    struct golden g;
    golden_make(&g);
    unsigned cuts = 0;
    for (unsigned f = 0; f < PAWL_COUNT(file_names); f++) {
        uint64_t bytes;
        if (!pawl_io_sim_file(g.io, file_names[f], &bytes))
            continue;
        for (uint64_t at = 0; at < bytes; at += 4096) {
            struct pawl_io *io = pawl_io_sim_clone(g.io, 1);
            uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes);
            memset(p + at, 0x11, 4096);
            repair_and_check(&g, io, file_names[f], at, &cuts);
            io->ops->destroy(io);
        }
        struct pawl_io *io = pawl_io_sim_clone(g.io, 1);
        pawl_io_sim_put(io, file_names[f], NULL, 0);
        repair_and_check(&g, io, "removed", f, &cuts);
        io->ops->destroy(io);
        io = pawl_io_sim_clone(g.io, 1);
        uint8_t *p = pawl_io_sim_file(io, file_names[f], &bytes);
        if (f < 2)
            memset(p, 0, bytes); /* both pages: the file is lost, and made anew */
        repair_and_check(&g, io, "lost", f, &cuts);
        io->ops->destroy(io);
    }
    assert_true(cuts > 10);
    golden_fini(&g);
}

/* The power is cut at every operation of a repair; it is done again. */
static void repair_can_be_cut_and_repeated(void **state)
{
    struct golden g;
    golden_make(&g);
    for (unsigned f = 0; f < PAWL_COUNT(file_names); f++) {
        uint64_t bytes;
        if (!pawl_io_sim_file(g.io, file_names[f], &bytes))
            continue;
        for (uint64_t n = 1; n < 2000; n += 1 + n / 16) {
            struct pawl_io *io = pawl_io_sim_clone(g.io, n);
            pawl_io_sim_put(io, file_names[f], NULL, 0);
            uint32_t kinds = PAWL_IO_SIM_WRITE | PAWL_IO_SIM_FLUSH | PAWL_IO_SIM_RENAME;
            uint64_t from = pawl_io_sim_operations(io, kinds);
            pawl_io_sim_fail_at(io, kinds, n, -EIO, true);
            struct pawl_repair_result result;
            char text[PAWL_LOG_TEXT_BYTES];
            int rc =
                pawl_log_repair(io, PAWL_IO_SIM_DIR, 1700000000ull * 1000000000u, &result, text);
            bool reached = pawl_io_sim_operations(io, kinds) - from >= n;
            assert_true(reached ? rc != PAWL_LOG_OK && text[0] : rc == PAWL_LOG_OK);
            pawl_io_sim_crash(io, n * 7 + f);
            (void)io->ops->wait(io, 0);
            pawl_io_sim_restart(io);
            rc = pawl_log_repair(io, PAWL_IO_SIM_DIR, 1700000001ull * 1000000000u, &result, text);
            if (rc != PAWL_LOG_OK)
                fail_msg("%s n=%" PRIu64 ": %s", file_names[f], n, text);
            struct log_rig rig;
            rig_copy(&rig, &g.rig, io, PAWL_IO_SIM_DIR);
            rig_open(&rig);
            const char *wrong = wrong_after_repair(&rig, result.tail);
            if (wrong)
                fail_msg("%s n=%" PRIu64 ": %s", file_names[f], n, wrong);
            rig_fini(&rig);
            io->ops->destroy(io);
            if (!reached)
                break;
        }
    }
    golden_fini(&g);
}

int main(void)
{
    alarm(300);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_verifies_and_walks_a_whole_log),
        cmocka_unit_test(shows_what_is_behind_damage),
        cmocka_unit_test(says_when_there_is_no_log),
        cmocka_unit_test(a_live_log_is_never_called_damaged),
        cmocka_unit_test(repair_cuts_where_the_chain_ends),
        cmocka_unit_test(repair_can_be_cut_and_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
