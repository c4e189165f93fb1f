/* SPDX-License-Identifier: MIT */
#include "log/block.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"

#define HASHED_FROM offsetof(struct pawl_log_top_rec, magic)

void pawl_identity_init(struct pawl_log_identity *id, const uint8_t log_id[16],
                        uint64_t segment_bytes)
{
    memcpy(id->log_id, log_id, sizeof id->log_id);
    id->seed = pawl_hash64(log_id, 16, 1);
    id->tag = pawl_hash64(log_id, 16, 2);
    id->segment_bytes = segment_bytes;
#ifdef PAWL_BUG_NO_LOG_ID
    id->seed = 0;
    id->tag = 0;
#endif
}

uint64_t pawl_block_total(uint64_t used_bytes)
{
    return pawl_align_up(PAWL_BLOCK_HEADER + used_bytes + 8, PAWL_LOG_PAGE);
}

/* --- tops: what blocks and pages have in common ---------------------------------------------- */

static struct pawl_hash128 hash_of(const struct pawl_log_top_rec *top, uint64_t bytes,
                                   uint64_t seed)
{
    return pawl_hash128((const uint8_t *)top + HASHED_FROM, bytes - HASHED_FROM, seed);
}

static void top_seal(struct pawl_log_top_rec *top, uint64_t bytes, uint64_t seed)
{
    top->version = PAWL_LOG_VERSION;
    top->features = PAWL_LOG_FEATURES_KNOWN;
    struct pawl_hash128 h = hash_of(top, bytes, seed);
    top->hash_low = h.low;
    top->hash_high = h.high;
}

static enum pawl_verdict top_verify(const struct pawl_log_top_rec *top, uint64_t bytes,
                                    uint64_t seed)
{
    struct pawl_hash128 h = hash_of(top, bytes, seed);
    if (top->hash_low != h.low || top->hash_high != h.high)
        return PAWL_VERDICT_TORN;
    if (top->version != PAWL_LOG_VERSION || (top->features & ~PAWL_LOG_FEATURES_KNOWN) != 0)
        return PAWL_VERDICT_VERSION;
    return PAWL_VERDICT_VALID;
}

/* --- blocks ---------------------------------------------------------------------------------- */

void pawl_block_seal(const struct pawl_log_identity *id, struct pawl_block_rec *block)
{
    PAWL_ASSERT_REL(block->position % PAWL_LOG_PAGE, ==, 0);
    PAWL_ASSERT_REL(block->durable, <=, block->position);
    PAWL_ASSERT_REL(block->oldest, <=, block->position);
    uint64_t end = PAWL_BLOCK_HEADER + block->used_bytes;
    memset((uint8_t *)block + end, 0, pawl_block_total(block->used_bytes) - end);
    block->top.magic = PAWL_LOG_MAGIC_BLOCK;
    block->top.header_bytes = PAWL_BLOCK_HEADER;
    block->top.tag = id->tag;
    top_seal(&block->top, end, id->seed);
    PAWL_VERIFY_ASSERT(pawl_block_verify(id, block, pawl_block_total(block->used_bytes)) ==
                       PAWL_VERDICT_VALID);
}

bool pawl_page_zero(const void *page)
{
    /* The first word is zero, and every byte is as the one 8 before it. */
    uint64_t word;
    memcpy(&word, page, sizeof word);
    return word == 0 && memcmp(page, (const uint8_t *)page + 8, PAWL_LOG_PAGE - 8) == 0;
}

uint64_t pawl_block_claim(const struct pawl_log_identity *id, const void *page, uint64_t left,
                          enum pawl_verdict *verdict)
{
    const struct pawl_block_rec *block = page;
    PAWL_ASSERT(left >= PAWL_LOG_PAGE);
    if (block->top.magic != PAWL_LOG_MAGIC_BLOCK) {
        *verdict = PAWL_VERDICT_FOREIGN;
        if (block->top.magic == PAWL_LOG_MAGIC_READY)
            *verdict = pawl_page_check(page, sizeof(struct pawl_ready_rec), PAWL_LOG_MAGIC_READY,
                                       id->seed, id->tag);
        else if (block->top.magic == 0 && pawl_page_zero(page))
            *verdict = PAWL_VERDICT_ZERO;
        if (*verdict == PAWL_VERDICT_VALID)
            *verdict = PAWL_VERDICT_READY;
        return 0;
    }
    uint64_t total = pawl_block_total(block->used_bytes);
#ifdef PAWL_BUG_USED_UNBOUNDED
    left = UINT64_MAX;
#endif
    if (block->top.tag != id->tag || total > left) {
        *verdict = PAWL_VERDICT_FOREIGN;
        return 0;
    }
    return total;
}

/* Whole and of this version, but senseless: only a defect of ours makes that. */
static bool sensible(const struct pawl_log_identity *id, const struct pawl_block_rec *block)
{
    uint64_t in_segment = block->position % id->segment_bytes;
    return block->top.header_bytes == PAWL_BLOCK_HEADER && block->position % PAWL_LOG_PAGE == 0 &&
           in_segment + pawl_block_total(block->used_bytes) <= id->segment_bytes &&
           block->durable <= block->position && block->oldest <= block->position &&
           block->oldest % id->segment_bytes == 0 && block->used_bytes % 8 == 0 && block->epoch > 0;
}

enum pawl_verdict pawl_block_verify(const struct pawl_log_identity *id, const void *at,
                                    uint64_t bytes)
{
    const struct pawl_block_rec *block = at;
    uint64_t end = PAWL_BLOCK_HEADER + (uint64_t)block->used_bytes;
    PAWL_ASSERT_REL(end, <=, bytes);
    enum pawl_verdict verdict = top_verify(&block->top, end, id->seed);
    if (verdict == PAWL_VERDICT_VALID && !sensible(id, block))
        verdict = PAWL_VERDICT_TORN;
    return verdict;
}

int pawl_block_next(const struct pawl_block_rec *block, uint32_t *offset, struct pawl_record *out)
{
    uint64_t end = PAWL_BLOCK_HEADER + (uint64_t)block->used_bytes;
    uint64_t at = *offset;
    if (at == end)
        return 0;
    if (end - at < sizeof(struct pawl_record_rec))
        return -1;
    const struct pawl_record_rec *head =
        (const struct pawl_record_rec *)(const void *)((const uint8_t *)block + at);
    uint64_t total = pawl_align_up(sizeof *head + (uint64_t)head->bytes, 8);
    if (total > end - at || head->reserved != 0)
        return -1;
    out->body = head + 1;
    out->lsn = block->position + at;
    out->bytes = head->bytes;
    out->type = head->type;
    *offset = (uint32_t)(at + total);
    return 1;
}

/* --- pages of the small files ---------------------------------------------------------------- */

void pawl_page_seal(void *page, uint64_t bytes, uint32_t magic, uint64_t seed, uint64_t tag)
{
    struct pawl_log_top_rec *top = page;
    PAWL_ASSERT_REL(bytes, <=, PAWL_LOG_PAGE);
    top->magic = magic;
    top->header_bytes = (uint16_t)bytes;
    top->flags = 0;
    top->tag = tag;
    top_seal(top, bytes, seed);
}

enum pawl_verdict pawl_page_check(const void *page, uint64_t bytes, uint32_t magic, uint64_t seed,
                                  uint64_t tag)
{
    const struct pawl_log_top_rec *top = page;
    if (top->magic != magic || top->tag != tag)
        return PAWL_VERDICT_FOREIGN;
    /* A newer version may have a longer page: it says so, and its hash covers all of it. */
    if (top->header_bytes < bytes || top->header_bytes > PAWL_LOG_PAGE)
        return PAWL_VERDICT_TORN;
    return top_verify(top, top->header_bytes, seed);
}

const char *pawl_verdict_name(enum pawl_verdict verdict)
{
    static const char *const names[] = { "valid", "zeros",         "unused slot", "not a block",
                                         "torn",  "newer version", "unreadable" };
    return (size_t)verdict < PAWL_COUNT(names) ? names[verdict] : "?";
}
