/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LOG_FORMAT_H
#define PAWL_BROKER_LOG_FORMAT_H

/* The bytes on disk; FORMAT.md draws them and gives the rules. Little endian. */

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the log is little endian");

#define PAWL_LOG_VERSION 1u
#define PAWL_LOG_FEATURES_KNOWN 0u
#define PAWL_LOG_PAGE 4096u

#define PAWL_LOG_MAGIC_BLOCK 0x6b6c4270u /* "pBlk" */
#define PAWL_LOG_MAGIC_ID 0x64496770u    /* "pgId" */
#define PAWL_LOG_MAGIC_HEAD 0x64486770u  /* "pgHd" */
#define PAWL_LOG_MAGIC_READY 0x79526770u /* "pgRy" */

/* What stands before the hashed rest of every page or block: the same place in all versions, so
 * that a newer version can be told from damage. */
struct pawl_log_top_rec {
    uint64_t hash_low, hash_high; /* XXH3-128 of all that follows, seeded with the log id */
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes; /* of a block: where its records begin */
    uint32_t features;     /* bits that a reader must know */
    uint32_t flags;
    uint64_t tag; /* of the log id; 0 in the id file itself */
};
_Static_assert(sizeof(struct pawl_log_top_rec) == 40, "FORMAT.md");

enum pawl_block_flag {
    PAWL_BLOCK_MARKER = 1, /* holds no records, vouches for what is before */
    PAWL_BLOCK_CLEAN = 2,  /* a marker, at a clean stop */
    PAWL_BLOCK_EPOCH = 4,  /* a marker, the first block of an opening */
    PAWL_BLOCK_REUSED = 8  /* first of a segment whose slot may hold older bytes */
};

struct pawl_block_rec {
    struct pawl_log_top_rec top;
    uint32_t used_bytes; /* of records, behind the header */
    uint32_t count;      /* of records */
    uint64_t position;
    uint64_t epoch;
    uint64_t previous_low, previous_high; /* hash of the block before */
    uint64_t durable; /* all below was durable when this was sealed; <= position */
    uint64_t oldest;  /* where the log begins; start of a segment, <= position */
    uint64_t time_ns; /* pawl time */
    uint64_t boot_ns;
    uint64_t wall_ns;
    uint64_t boot_hash; /* of the boot id */
};
#define PAWL_BLOCK_HEADER sizeof(struct pawl_block_rec)
_Static_assert(sizeof(struct pawl_block_rec) == 128, "FORMAT.md");
_Static_assert(offsetof(struct pawl_block_rec, used_bytes) == 40, "FORMAT.md");
_Static_assert(offsetof(struct pawl_block_rec, position) == 48, "FORMAT.md");
_Static_assert(offsetof(struct pawl_block_rec, previous_low) == 64, "FORMAT.md");
_Static_assert(offsetof(struct pawl_block_rec, durable) == 80, "FORMAT.md");
_Static_assert(offsetof(struct pawl_block_rec, time_ns) == 96, "FORMAT.md");
_Static_assert(offsetof(struct pawl_block_rec, boot_hash) == 120, "FORMAT.md");

/* Before each record; both begin at multiples of 8. */
struct pawl_record_rec {
    uint32_t bytes; /* of the body, without padding */
    uint16_t type;
    uint16_t reserved; /* 0 */
};
_Static_assert(sizeof(struct pawl_record_rec) == 8, "FORMAT.md");

/* The id file: this page twice. */
struct pawl_id_rec {
    struct pawl_log_top_rec top;
    uint8_t log_id[16];
    uint64_t segment_bytes;
    uint64_t made_wall_ns;
};
_Static_assert(sizeof(struct pawl_id_rec) == 72, "FORMAT.md");

/* The head file: two pages, the one with the higher valid generation counts. */
struct pawl_head_rec {
    struct pawl_log_top_rec top;
    uint64_t generation;
    uint64_t position; /* all below it is durable and acknowledged */
    uint64_t epoch;    /* the highest one that has written */
    uint64_t segment;  /* of the last block below position; UINT64_MAX: none yet */
    uint64_t wall_ns;
    uint8_t log_id[16]; /* so that a lost id file can be made anew */
    uint64_t segment_bytes;
};
_Static_assert(sizeof(struct pawl_head_rec) == 104, "FORMAT.md");

/* First page of a slot that is filled with zeros, flushed, and never used since. */
struct pawl_ready_rec {
    struct pawl_log_top_rec top;
    uint64_t segment_bytes;
};
_Static_assert(sizeof(struct pawl_ready_rec) == 48, "FORMAT.md");

#endif
