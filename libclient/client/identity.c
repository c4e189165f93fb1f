/* SPDX-License-Identifier: MIT */
/* Ids that a caller gives to his operations, and the question what became of one. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "client/data.h"
#include "client/lane.h"
#include "client/text.h"

void pawl_op_id_new(struct pawl_op_id *out)
{
    uint64_t ms = pawl_clock_wall() / PAWL_NS_MS;
    uint8_t *p = out->bytes;
    /* 16 bytes come whole or, before the pool is ready, after a wait (getrandom(2)). */
    while (getrandom(p, sizeof out->bytes, 0) != (ssize_t)sizeof out->bytes)
        ;
    for (int i = 0; i < 6; i++)
        p[i] = (uint8_t)(ms >> (40 - 8 * i));
    p[6] = (uint8_t)(0x70 | (p[6] & 0x0f)); /* version 7 */
    p[8] = (uint8_t)(0x80 | (p[8] & 0x3f)); /* variant of RFC 9562 */
}

void pawl_op_id_format(const struct pawl_op_id *id, char text[PAWL_OP_ID_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    char *at = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[id->bytes[i] >> 4];
        *at++ = digits[id->bytes[i] & 15];
    }
    *at = '\0';
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int pawl_op_id_parse(const char *text, struct pawl_op_id *out)
{
    struct pawl_op_id id;
    const char *at = text;
    bool valid = text && out;
    for (int i = 0; valid && i < 16; i++) {
        if ((i == 4 || i == 6 || i == 8 || i == 10) && *at++ != '-')
            valid = false;
        int high = valid ? digit(*at) : -1;
        int low = high >= 0 ? digit(at[1]) : -1;
        valid = low >= 0;
        id.bytes[i] = (uint8_t)(high * 16 + low);
        at += 2;
    }
    if (!valid || *at != '\0') {
        (void)pawl_thread_text("an operation's id has the form of a UUID, 8-4-4-4-12 hexadecimal "
                               "digits");
        return PAWL_E_INVALID;
    }
    *out = id;
    return PAWL_OK;
}

int pawl_op_id_next(struct pawl *lane, const struct pawl_op_id *id)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!id || id->bytes[6] >> 4 != 7 || id->bytes[8] >> 6 != 2)
        return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_INVALID,
                                                      "an operation's id is a UUID of version 7: "
                                                      "pawl_op_id_new() makes them"));
    lane->id = *id;
    lane->identified = true;
    return pawl_call_leave(lane, PAWL_OK);
}

int pawl_last_id(const struct pawl *lane, struct pawl_op_id *out)
{
    if (!lane || !out)
        return PAWL_E_INVALID;
    if (lane->last_ticket == 0)
        return PAWL_OK_MISSING;
    pawl_op_id_of(lane, lane->last_ticket, out);
    return PAWL_OK;
}

int pawl_ticket_id(struct pawl *lane, pawl_ticket ticket, struct pawl_op_id *out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    bool there = ticket < lane->next && ticket - lane->base <= lane->next - lane->base;
    if (!out)
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "out is NULL: it gets the id");
    else if (ticket == 0 || !there || ticket == lane->base)
        rc = PAWL_OK_MISSING;
    else
        pawl_op_id_of(lane, ticket, out);
    return pawl_call_leave(lane, rc);
}

int pawl_identity_refuse(struct pawl *lane)
{
    lane->id_used = true; /* it is not kept for another call */
    return pawl_call_refuse(lane, PAWL_E_INVALID,
                            "an operation's id names one operation: a batch has several");
}

/* --- resolve --------------------------------------------------------------------------------- */

static int resolve(struct pawl *lane, const struct pawl_op_id *id, uint32_t flags,
                   struct pawl_resolved *out)
{
    struct pawl_comp_resolved r;
    int rc = pawl_data_prepare(lane);
    if (rc != PAWL_OK)
        return rc;
    uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
    lane->data_bytes = 0;
    pawl_op_single(lane);
    struct pawl_cmd_resolve *c =
        pawl_op_claim(lane, PAWL_CMD_RESOLVE, sizeof *c, PAWL_OP_PLAIN, until, &rc);
    if (!c)
        return rc;
    c->id = *id;
    c->flags = flags;
    c->reserved = 0;
    rc = pawl_op_finish(lane, until);
    if (rc == PAWL_OK && lane->one.result == PAWL_E_STATE)
        return pawl_call_refuse(lane, PAWL_E_STATE,
                                "not seen so far, and its process may still submit it: only when "
                                "that has ended is there an end to it");
    if (rc == PAWL_OK)
        rc = pawl_call_answered(lane, lane->one.result, lane->one.value, NULL);
    if (rc < 0)
        return rc;
    if (lane->data_bytes != sizeof r)
        return pawl_lane_breach(lane, "an outcome of another size");
    memcpy(&r, lane->data, sizeof r);
    const struct pawl_resolved found = {
        .size = out->size,
        .state = r.state,
        .result = r.result,
        .value = r.value,
        .lsn = r.lsn,
        .horizon_wall_ns = r.horizon_wall_ms * PAWL_NS_MS,
        .decided_wall_ns = r.decided_wall_ms * PAWL_NS_MS,
    };
    pawl_data_give(&found, sizeof found, out, out->size);
    return PAWL_OK;
}

int pawl_resolve(struct pawl *lane, const struct pawl_op_id *id, uint32_t flags,
                 struct pawl_resolved *out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!id || !out || !pawl_data_size_valid(out->size) || (flags & ~PAWL_RESOLVE_FENCE))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID,
                              "an id, out with its size, and flags that are known are needed");
    else
        rc = resolve(lane, id, flags, out);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}
