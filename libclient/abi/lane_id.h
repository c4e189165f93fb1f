/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_LANE_ID_H
#define PAWL_ABI_LANE_ID_H

/* The id of an operation to which its caller gave none: {session, lane, seq}, in the form of a UUID
 * version 8 (RFC 9562), so that it is written, read and asked for as the others are.
 *
 *   bytes 0-5    session, its upper 48 bits       byte 8   variant (2 bits), then 62 bits:
 *   bytes 6-7    version (4 bits), session (12)            session (4), lane (8), seq (50)
 *
 * 2^50 operations of one lane take 35 years at a million a second. */

#include <stdbool.h>
#include <stdint.h>

#include "pawl.h"

#define PAWL_LANE_SEQ_BITS 50
#define PAWL_LANE_SEQ_MAX ((1ull << PAWL_LANE_SEQ_BITS) - 1)

struct pawl_lane_id {
    uint64_t session, seq;
    uint32_t lane;
};

static inline bool pawl_op_id_of_lane(const struct pawl_op_id *id)
{
    return id->bytes[6] >> 4 == 8 && id->bytes[8] >> 6 == 2;
}

static inline void pawl_lane_id_pack(const struct pawl_lane_id *from, struct pawl_op_id *out)
{
    uint64_t high = from->session >> 16 << 16 | 8ull << 12 | (from->session >> 4 & 0xfff);
    uint64_t low = 2ull << 62 | (from->session & 15) << 58 | (uint64_t)(from->lane & 255) << 50 |
                   (from->seq & PAWL_LANE_SEQ_MAX);
    for (uint32_t i = 8; i-- > 0; high >>= 8, low >>= 8) {
        out->bytes[i] = (uint8_t)high;
        out->bytes[8 + i] = (uint8_t)low;
    }
}

static inline struct pawl_lane_id pawl_lane_id_unpack(const struct pawl_op_id *id)
{
    uint64_t high = 0, low = 0;
    for (uint32_t i = 0; i < 8; i++) {
        high = high << 8 | id->bytes[i];
        low = low << 8 | id->bytes[8 + i];
    }
    return (struct pawl_lane_id){
        .session = high >> 16 << 16 | (high & 0xfff) << 4 | (low >> 58 & 15),
        .seq = low & PAWL_LANE_SEQ_MAX,
        .lane = (uint32_t)(low >> 50 & 255),
    };
}

#endif
