/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_BLOCK_H
#define PAWL_BROKER_LOG_BLOCK_H

/* Making and checking of what is on disk: blocks, records, and the pages of the small files. No
 * I/O. What is read is the other side's word: checked, never asserted. */

#include <stdbool.h>

#include "log/format.h"

/* Who we are: without it nothing can be checked. */
struct pawl_log_identity {
    uint8_t log_id[16];
    uint64_t seed, tag; /* both from log_id */
    uint64_t segment_bytes;
};
void pawl_identity_init(struct pawl_log_identity *id, const uint8_t log_id[16],
                        uint64_t segment_bytes);

/* Bytes that a block with so many bytes of records takes: header, records, at least 8 of padding
 * (so that its end is beyond its last record), whole pages. */
uint64_t pawl_block_total(uint64_t used_bytes);

/* Fills in hash, magic, version and tag of a block whose other fields and records are there, and
 * zeros behind them. */
void pawl_block_seal(const struct pawl_log_identity *id, struct pawl_block_rec *block);

enum pawl_verdict {
    PAWL_VERDICT_VALID,
    PAWL_VERDICT_ZERO,    /* the first page is all zeros */
    PAWL_VERDICT_READY,   /* a slot that waits for its first block */
    PAWL_VERDICT_FOREIGN, /* not one of ours: no magic, other log, senseless lengths */
    PAWL_VERDICT_TORN,    /* looks like ours, the hash says no */
    PAWL_VERDICT_VERSION, /* ours and whole, but made by a newer version */
    PAWL_VERDICT_UNREADABLE
};

/* From the first page alone: how many bytes the block that it claims to begin would take; 0: it
 * claims nothing (*verdict says what it is then). left: bytes to the end of the segment. */
uint64_t pawl_block_claim(const struct pawl_log_identity *id, const void *page, uint64_t left,
                          enum pawl_verdict *verdict);
/* The whole block, as many bytes as were claimed. */
enum pawl_verdict pawl_block_verify(const struct pawl_log_identity *id, const void *block,
                                    uint64_t bytes);

struct pawl_record {
    const void *body;
    uint64_t lsn;
    uint32_t bytes;
    uint16_t type;
};
/* Walks the records of a valid block: *offset starts at PAWL_BLOCK_HEADER. 1: one more, 0: the end,
 * -1: the lengths make no sense. */
int pawl_block_next(const struct pawl_block_rec *block, uint32_t *offset, struct pawl_record *out);

/* Pages of the small files. seal fills in the top; check returns VALID, FOREIGN, TORN or VERSION.
 * bytes: of the struct; the rest of the page is zero and not checked. */
void pawl_page_seal(void *page, uint64_t bytes, uint32_t magic, uint64_t seed, uint64_t tag);
enum pawl_verdict pawl_page_check(const void *page, uint64_t bytes, uint32_t magic, uint64_t seed,
                                  uint64_t tag);
bool pawl_page_zero(const void *page);
/* The id file stands for itself: this seed, tag 0. */
#define PAWL_LOG_ID_SEED 0x7061776c6c6f6769ull
const char *pawl_verdict_name(enum pawl_verdict verdict);

#endif
