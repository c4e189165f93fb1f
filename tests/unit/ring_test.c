/* SPDX-License-Identifier: MIT */
/* abi/ring.h against a plain model, at every start position that wraps something, and against
 * hostile words. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/region.h"
#include "abi/ring.h"
#include "base/prng.h"
#include "lib/unit.h"

#define SIZE PAWL_RING_BYTES_MIN

struct rig {
    uint64_t tail, head; /* the shared words */
    struct pawl_region region;
    struct pawl_ring_producer p;
    struct pawl_ring_consumer c;
};

static void rig_open(struct rig *r, uint64_t start)
{
    memset(r, 0, sizeof *r);
    int fd = memfd_create("ring", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)pawl_region_file_bytes(SIZE)), 0);
    assert_int_equal(pawl_region_map(fd, SIZE, PAWL_REGION_WRITE, &r->region), 0);
    (void)close(fd);
    r->tail = r->head = start;
    r->p = (struct pawl_ring_producer){ .data = r->region.data,
                                        .size = SIZE,
                                        .tail = start,
                                        .published = start,
                                        .head = start,
                                        .tail_shm = &r->tail,
                                        .head_shm = &r->head };
    r->c = (struct pawl_ring_consumer){ .data = r->region.data,
                                        .size = SIZE,
                                        .next = start,
                                        .tail = start,
                                        .tail_shm = &r->tail,
                                        .head_shm = &r->head };
}

static void rig_close(struct rig *r) { pawl_region_unmap(&r->region); }

/* --- honest ---------------------------------------------------------------------------------- */

/* The model: what was claimed, published, read, as counts and a seed for the bytes. */
static void play(uint64_t start, uint64_t seed, unsigned rounds)
{
    struct rig r;
    struct pawl_prng prng = { seed };
    uint64_t claimed = 0, published = 0, read = 0, used = 0;
    static uint32_t sizes[1 << 16];
    rig_open(&r, start);
    for (unsigned i = 0; i < rounds; i++) {
        switch (pawl_prng_below(&prng, 4)) {
        case 0: { /* claim */
            uint32_t n =
                8u *
                (1u + (uint32_t)pawl_prng_below(&prng, pawl_prng_below(&prng, 20) ? 64 : 4096));
            uint32_t *w = pawl_ring_claim(&r.p, n);
            if (!w) {
                assert_true(pawl_ring_refresh(&r.p));
                w = pawl_ring_claim(&r.p, n);
            }
            /* Exactly when it does not fit. */
            assert_int_equal(w == NULL, used + n > SIZE);
            if (!w)
                break;
            w[0] = n;
            memset(w + 1, (int)(claimed & 0xff), n - 4);
            if (pawl_prng_below(&prng, 10) == 0) {
                pawl_ring_abandon(&r.p, n);
                break;
            }
            sizes[claimed++ & 0xffff] = n;
            used += n;
            break;
        }
        case 1: /* publish */
            assert_int_equal(pawl_ring_publish(&r.p), claimed != published);
            published = claimed;
            break;
        case 2: { /* read */
            const void *record;
            uint32_t n;
            enum pawl_ring_result got = pawl_ring_next(&r.c, &record, &n);
            assert_int_equal(got, read == published ? PAWL_RING_EMPTY : PAWL_RING_RECORD);
            if (got != PAWL_RING_RECORD)
                break;
            assert_int_equal(n, sizes[read & 0xffff]);
            for (uint32_t k = 4; k < n; k++)
                assert_int_equal(((const uint8_t *)record)[k], read & 0xff);
            read++;
            break;
        }
        default: /* release */
            pawl_ring_release(&r.c, r.c.next);
            used = 0;
            for (uint64_t k = read; k != claimed; k++)
                used += sizes[k & 0xffff];
            break;
        }
    }
    assert_true(read > rounds / 100);
    rig_close(&r);
}

static uint64_t seed_of_run(void)
{
    const char *s = getenv("PAWL_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 0) : (uint64_t)getpid() * 2654435761u;
    print_message("seed: PAWL_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void it_is_a_queue_of_records_from_every_start(void **state)
{
    (void)state;
    static const uint64_t starts[] = {
        0, 8, (1ull << 32) - 8, (1ull << 32) - SIZE, (1ull << 63) - 24, 0ull - 8, 0ull - SIZE - 8
    };
    uint64_t seed = seed_of_run();
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        play(starts[i], seed + i, 200000);
}

static void a_record_over_the_end_lies_in_one_piece(void **state)
{
    (void)state;
    struct rig r;
    const void *record;
    uint32_t n;
    rig_open(&r, SIZE - 16);
    uint8_t *w = pawl_ring_claim(&r.p, 64);
    assert_ptr_equal(w, r.region.data + SIZE - 16);
    memset(r.region.data + SIZE - 16, 0x5a, 64);
    pawl_store_rlx_u32((uint32_t *)(void *)w, 64);
    assert_true(pawl_ring_publish(&r.p));
    assert_int_equal(pawl_ring_next(&r.c, &record, &n), PAWL_RING_RECORD);
    assert_memory_equal(record, w, 64);
    /* The part behind the end is the beginning of the area. */
    assert_int_equal(r.region.data[47], 0x5a);
    assert_int_equal(r.region.data[48], 0);
    rig_close(&r);
}

static void it_takes_a_record_as_large_as_itself(void **state)
{
    (void)state;
    struct rig r;
    const void *record;
    uint32_t n;
    rig_open(&r, 40);
    assert_null(pawl_ring_claim(&r.p, SIZE + 8));
    uint32_t *w = pawl_ring_claim(&r.p, SIZE);
    assert_non_null(w);
    *w = SIZE;
    assert_null(pawl_ring_claim(&r.p, 8));
    assert_int_equal(pawl_ring_next(&r.c, &record, &n), PAWL_RING_EMPTY);
    assert_true(pawl_ring_publish(&r.p));
    assert_int_equal(pawl_ring_next(&r.c, &record, &n), PAWL_RING_RECORD);
    assert_int_equal(n, SIZE);
    rig_close(&r);
}

static void what_is_claimed_and_not_published_is_not_seen(void **state)
{
    (void)state;
    struct rig r;
    const void *record;
    uint32_t n;
    rig_open(&r, 0);
    uint32_t *w = pawl_ring_claim(&r.p, 16);
    *w = 16;
    assert_int_equal(pawl_ring_next(&r.c, &record, &n), PAWL_RING_EMPTY);
    pawl_ring_abandon(&r.p, 16);
    assert_false(pawl_ring_publish(&r.p));
    assert_int_equal(pawl_ring_next(&r.c, &record, &n), PAWL_RING_EMPTY);
    rig_close(&r);
}

/* --- hostile --------------------------------------------------------------------------------- */

static void a_tail_that_cannot_be_is_a_breach(void **state)
{
    (void)state;
    static const struct {
        int64_t tail;
        enum pawl_ring_result result;
    } rows[] = {
        { 0, PAWL_RING_EMPTY },          { SIZE, PAWL_RING_RECORD },
        { SIZE + 1, PAWL_RING_BREACH },  { SIZE + 8, PAWL_RING_BREACH },
        { -8, PAWL_RING_BREACH },        { -1, PAWL_RING_BREACH },
        { INT64_MAX, PAWL_RING_BREACH }, { INT64_MIN, PAWL_RING_BREACH },
        { 4, PAWL_RING_BREACH },         { 7, PAWL_RING_BREACH },
        { 8, PAWL_RING_RECORD },
    };
    static const uint64_t starts[] = { 0, (1ull << 32) - 8, (1ull << 63) - 8, 0ull - 8 };
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct rig r;
            const void *record;
            uint32_t n;
            rig_open(&r, starts[s]);
            *(uint32_t *)(void *)(r.region.data + (starts[s] & (SIZE - 1))) = 8;
            r.tail = starts[s] + (uint64_t)rows[i].tail;
            assert_int_equal(pawl_ring_next(&r.c, &record, &n), rows[i].result);
            rig_close(&r);
        }
}

static void a_size_word_that_cannot_be_is_a_breach(void **state)
{
    (void)state;
    static const struct {
        uint32_t size;
        enum pawl_ring_result result;
    } rows[] = {
        { 0, PAWL_RING_BREACH },           { 1, PAWL_RING_BREACH },
        { 4, PAWL_RING_BREACH },           { 7, PAWL_RING_BREACH },
        { 8, PAWL_RING_RECORD },           { 9, PAWL_RING_BREACH },
        { 16, PAWL_RING_RECORD },          { 64, PAWL_RING_RECORD },
        { 72, PAWL_RING_BREACH },          { 0x80000000u, PAWL_RING_BREACH },
        { 0xfffffff8u, PAWL_RING_BREACH }, { 0xffffffffu, PAWL_RING_BREACH },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r;
        const void *record;
        uint32_t n;
        rig_open(&r, SIZE - 32);
        *(uint32_t *)(void *)(r.region.data + SIZE - 32) = rows[i].size;
        r.tail = SIZE - 32 + 64;
        assert_int_equal(pawl_ring_next(&r.c, &record, &n), rows[i].result);
        rig_close(&r);
    }
}

static void a_head_that_cannot_be_is_a_breach_and_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        int64_t head;
        bool allowed;
    } rows[] = { { 0, true },          { 64, true },         { 128, true },
                 { 136, false },       { -8, false },        { -1, false },
                 { INT64_MIN, false }, { INT64_MAX, false }, { SIZE, false } };
    static const uint64_t starts[] = { 0, (1ull << 32) - 64, (1ull << 63) - 64, 0ull - 64 };
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct rig r;
            rig_open(&r, starts[s]);
            assert_non_null(pawl_ring_claim(&r.p, 128));
            r.head = starts[s] + (uint64_t)rows[i].head;
            assert_int_equal(pawl_ring_refresh(&r.p), rows[i].allowed);
            assert_int_equal(pawl_ring_room(&r.p),
                             SIZE - 128 + (rows[i].allowed ? (uint64_t)rows[i].head : 0));
            rig_close(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_queue_of_records_from_every_start),
        cmocka_unit_test(a_record_over_the_end_lies_in_one_piece),
        cmocka_unit_test(it_takes_a_record_as_large_as_itself),
        cmocka_unit_test(what_is_claimed_and_not_published_is_not_seen),
        cmocka_unit_test(a_tail_that_cannot_be_is_a_breach),
        cmocka_unit_test(a_size_word_that_cannot_be_is_a_breach),
        cmocka_unit_test(a_head_that_cannot_be_is_a_breach_and_changes_nothing),
    };
    (void)alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
