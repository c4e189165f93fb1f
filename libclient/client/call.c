/* SPDX-License-Identifier: MIT */
/* The frame of every call: fork and thread check, outcome, text. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/atomic.h"
#include "client/lane.h"
#include "client/session.h"
#include "client/text.h"

int pawl_call_foreign(struct pawl *lane)
{
    if (!lane) {
        pawl_thread_text("the lane is NULL");
        return PAWL_E_INVALID;
    }
    pawl_thread_refused(lane, PAWL_FORKED_TEXT);
    return PAWL_E_FORKED;
}

/* What the other thread is in the middle of, its text too, is not ours to touch. */
int pawl_call_misused(struct pawl *lane)
{
    pawl_thread_refused(lane, "another thread is in a call of this lane: give each thread its "
                              "own with pawl_lane_open()");
    return PAWL_E_MISUSE;
}

int pawl_call_fatal(struct pawl *lane)
{
    int32_t fatal = lane->fatal;
    (void)snprintf(lane->text, sizeof lane->text,
                   "this session is over: close its lanes and open again");
    pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
    return pawl_call_leave(lane, fatal);
}

int pawl_call_left(struct pawl *lane, int result)
{
    if (PAWL_UNLIKELY(result < 0))
        pawl_thread_failed_inside();
    if (!lane->outcome_set)
        lane->outcome = result >= 0 ? PAWL_OUTCOME_APPLIED : pawl_outcome_class(result);
    if (PAWL_UNLIKELY(lane->id_used))
        lane->identified = lane->id_used = false;
    pawl_store_rel_u32(&lane->busy, 0);
    return result;
}

int pawl_call_refuse(struct pawl *lane, int result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(lane->text, sizeof lane->text, format, args);
    va_end(args);
    pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
    return result;
}

int pawl_call_invalid(struct pawl *lane, const char *what)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    return pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_INVALID, "%s", what));
}

int pawl_call_answered(struct pawl *lane, int result, uint64_t value, const char *subject)
{
    if (result >= 0)
        return result;
    /* Decided by the broker as too late: so it was not done, whatever the class says. */
    if (result == PAWL_E_DEADLINE && !lane->outcome_set)
        pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
    const char *identity = lane->id_used ? pawl_text_identity(result) : NULL;
    if (lane->text[0] == '\0' && result == PAWL_E_ALREADY_ACKED && lane->rows == &lane->one &&
        lane->one.lsn == lane->session_id)
        (void)snprintf(lane->text, sizeof lane->text,
                       "this process acknowledged it by another call before");
    if (lane->text[0] == '\0' && identity)
        (void)snprintf(lane->text, sizeof lane->text, "%s", identity);
    if (lane->text[0] == '\0')
        pawl_text_refusal(lane->text, sizeof lane->text, result, value, subject);
    return result;
}

bool pawl_options_copy(void *out, const void *in, size_t bytes)
{
    size_t given;
    if (!in)
        return true;
    memcpy(&given, in, sizeof given);
    /* Larger than what we know: a newer program; it must not rely on what we cannot see, and the
     * new fields are zero for "default". Far larger: not a size at all. */
    if (given < sizeof given || given > 65536)
        return false;
    if (given > bytes) {
        for (size_t i = bytes; i < given; i++)
            if (((const unsigned char *)in)[i] != 0)
                return false;
        given = bytes;
    }
    memcpy(out, in, given);
    return true;
}

const char *pawl_last_text(const struct pawl *lane)
{
    return lane && !pawl_thread_was_refused(lane) ? lane->text : pawl_thread_text(NULL);
}

enum pawl_outcome pawl_last_outcome(const struct pawl *lane)
{
    return lane && !pawl_thread_was_refused(lane) ? (enum pawl_outcome)lane->outcome
                                                  : PAWL_OUTCOME_NOT_APPLIED;
}
