/* SPDX-License-Identifier: MIT */
/* Blocks, records and pages: what is sealed verifies, and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/prng.h"
#include "log/block.h"

#define BYTES 65536u
static _Alignas(4096) uint8_t buffer[BYTES];
static struct pawl_log_identity id;

static struct pawl_block_rec *block_of(uint8_t *at) { return (struct pawl_block_rec *)(void *)at; }

/* A block with `count` records of `bytes` each. */
static struct pawl_block_rec *make(uint32_t count, uint32_t bytes)
{
    static const uint8_t log_id[16] = { 1, 2, 3 };
    pawl_identity_init(&id, log_id, 65536);
    memset(buffer, 0xaa, sizeof buffer);
    struct pawl_block_rec *b = block_of(buffer);
    memset(b, 0, sizeof *b);
    b->position = 65536 + 8192;
    b->epoch = 3;
    b->durable = 65536 + 4096;
    b->oldest = 65536;
    uint32_t at = PAWL_BLOCK_HEADER;
    for (uint32_t i = 0; i < count; i++) {
        struct pawl_record_rec head = { .bytes = bytes, .type = (uint16_t)i };
        memcpy(buffer + at, &head, sizeof head);
        memset(buffer + at + 8, (int)i, bytes);
        at += (uint32_t)pawl_align_up(8 + bytes, 8);
    }
    b->used_bytes = at - (uint32_t)PAWL_BLOCK_HEADER;
    b->count = count;
    pawl_block_seal(&id, b);
    return b;
}

static enum pawl_verdict look(uint64_t left)
{
    enum pawl_verdict verdict;
    uint64_t total = pawl_block_claim(&id, buffer, left, &verdict);
    return total ? pawl_block_verify(&id, buffer, total) : verdict;
}

static void total_covers_header_records_and_padding(void **state)
{
    assert_int_equal(pawl_block_total(0), 4096);
    for (uint64_t used = 0; used < 20000; used += 8) {
        uint64_t total = pawl_block_total(used);
        assert_int_equal(total % 4096, 0);
        assert_true(total >= PAWL_BLOCK_HEADER + used + 8); /* the end is beyond the last record */
        assert_true(total < PAWL_BLOCK_HEADER + used + 8 + 4096);
    }
    assert_true(pawl_block_total(UINT32_MAX) > UINT32_MAX); /* no wrap */
}

static void sealed_block_verifies_and_gives_its_records(void **state)
{
    for (uint32_t count = 0; count < 20; count++) {
        for (uint32_t bytes = 0; bytes < 200; bytes += 13) {
            struct pawl_block_rec *b = make(count, bytes);
            assert_int_equal(look(65536 - 8192), PAWL_VERDICT_VALID);
            struct pawl_record r;
            uint32_t at = PAWL_BLOCK_HEADER, n = 0;
            while (pawl_block_next(b, &at, &r) > 0) {
                assert_int_equal(r.type, n);
                assert_int_equal(r.bytes, bytes);
                assert_true(r.lsn >= b->position + PAWL_BLOCK_HEADER);
                for (uint32_t i = 0; i < bytes; i++)
                    assert_int_equal(((const uint8_t *)r.body)[i], (uint8_t)n);
                n++;
            }
            assert_int_equal(n, count);
            for (uint64_t i = PAWL_BLOCK_HEADER + b->used_bytes;
                 i < pawl_block_total(b->used_bytes); i++)
                assert_int_equal(buffer[i], 0); /* zeros behind */
        }
    }
}

static void every_flipped_bit_is_seen(void **state)
{
    struct pawl_block_rec *b = make(5, 100);
    uint64_t end = PAWL_BLOCK_HEADER + b->used_bytes;
    for (uint64_t bit = 0; bit < end * 8; bit++) {
        buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(look(65536 - 8192), PAWL_VERDICT_VALID);
        assert_int_not_equal(look(65536 - 8192), PAWL_VERDICT_VERSION);
        buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(look(65536 - 8192), PAWL_VERDICT_VALID);
}

static void another_logs_block_is_foreign(void **state)
{
    make(3, 50);
    static const uint8_t other[16] = { 1, 2, 4 };
    pawl_identity_init(&id, other, 65536);
    assert_int_equal(look(65536), PAWL_VERDICT_FOREIGN);
    /* Nor with the right tag: the hash is seeded. */
    block_of(buffer)->top.tag = id.tag;
    assert_int_equal(look(65536), PAWL_VERDICT_TORN);
}

static void lengths_are_bounded_before_they_are_used(void **state)
{
    struct pawl_block_rec *b = make(1, 100);
    enum pawl_verdict verdict;
    static const uint32_t used[] = { 65536 - 8192, 65536, 0x7fffffff, UINT32_MAX, UINT32_MAX - 7 };
    for (unsigned i = 0; i < PAWL_COUNT(used); i++) {
        b->used_bytes = used[i];
        assert_int_equal(pawl_block_claim(&id, buffer, 65536 - 8192, &verdict), 0);
        assert_int_equal(verdict, PAWL_VERDICT_FOREIGN);
    }
    /* Exactly to the end of the segment is right; a page more is not. */
    b->used_bytes = 8192 - PAWL_BLOCK_HEADER - 8;
    assert_int_equal(pawl_block_claim(&id, buffer, 8192, &verdict), 8192);
    assert_int_equal(pawl_block_claim(&id, buffer, 4096, &verdict), 0);
}

static void senseless_records_end_the_walk(void **state)
{
    struct pawl_prng prng = { 5 };
    for (unsigned round = 0; round < 200000; round++) {
        struct pawl_block_rec *b = block_of(buffer);
        if (round % 1000 == 0)
            b = make(6, 40);
        /* Lengths as an enemy would write them, in a block whose own length is right. */
        uint32_t at = (uint32_t)PAWL_BLOCK_HEADER + 8 * (uint32_t)pawl_prng_below(&prng, 30);
        uint64_t word = pawl_prng_next(&prng) >> pawl_prng_below(&prng, 64);
        memcpy(buffer + at, &word, 8);
        struct pawl_record r;
        uint32_t offset = PAWL_BLOCK_HEADER;
        uint64_t end = PAWL_BLOCK_HEADER + b->used_bytes;
        int more;
        while ((more = pawl_block_next(b, &offset, &r)) > 0) {
            assert_true((const uint8_t *)r.body + r.bytes <= buffer + end);
            assert_true(offset <= end);
        }
        assert_true(more <= 0);
    }
}

static void pages_say_what_they_are(void **state)
{
    struct pawl_head_rec *head = (void *)buffer;
    memset(buffer, 0, 4096);
    assert_true(pawl_page_zero(buffer));
    head->generation = 5;
    pawl_page_seal(head, sizeof *head, PAWL_LOG_MAGIC_HEAD, 9, 8);
    assert_false(pawl_page_zero(buffer));
    assert_int_equal(pawl_page_check(head, sizeof *head, PAWL_LOG_MAGIC_HEAD, 9, 8),
                     PAWL_VERDICT_VALID);
    assert_int_equal(pawl_page_check(head, sizeof *head, PAWL_LOG_MAGIC_ID, 9, 8),
                     PAWL_VERDICT_FOREIGN);
    assert_int_equal(pawl_page_check(head, sizeof *head, PAWL_LOG_MAGIC_HEAD, 9, 7),
                     PAWL_VERDICT_FOREIGN);
    assert_int_equal(pawl_page_check(head, sizeof *head, PAWL_LOG_MAGIC_HEAD, 10, 8),
                     PAWL_VERDICT_TORN);
    head->top.header_bytes = 8;
    assert_int_equal(pawl_page_check(head, sizeof *head, PAWL_LOG_MAGIC_HEAD, 9, 8),
                     PAWL_VERDICT_TORN);
    head->top.header_bytes = 5000;
    assert_int_equal(pawl_page_check(head, sizeof *head, PAWL_LOG_MAGIC_HEAD, 9, 8),
                     PAWL_VERDICT_TORN);
}

static void random_pages_are_never_valid(void **state)
{
    struct pawl_prng prng = { 77 };
    make(1, 1);
    for (unsigned round = 0; round < 20000; round++) {
        for (unsigned i = 0; i < 256; i += 8) {
            uint64_t word = pawl_prng_next(&prng);
            memcpy(buffer + i, &word, 8);
        }
        struct pawl_block_rec *b = block_of(buffer);
        b->top.magic = round % 2 ? PAWL_LOG_MAGIC_BLOCK : PAWL_LOG_MAGIC_READY;
        b->top.tag = id.tag;
        b->used_bytes &= 0xfff8 >> round % 8;
        enum pawl_verdict v = look(BYTES);
        assert_true(v == PAWL_VERDICT_TORN || v == PAWL_VERDICT_FOREIGN);
    }
}

int main(void)
{
    alarm(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(total_covers_header_records_and_padding),
        cmocka_unit_test(sealed_block_verifies_and_gives_its_records),
        cmocka_unit_test(every_flipped_bit_is_seen),
        cmocka_unit_test(another_logs_block_is_foreign),
        cmocka_unit_test(lengths_are_bounded_before_they_are_used),
        cmocka_unit_test(senseless_records_end_the_walk),
        cmocka_unit_test(pages_say_what_they_are),
        cmocka_unit_test(random_pages_are_never_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
