/* SPDX-License-Identifier: MIT */
#include "client/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "abi/command.h"
#include "pawl.h"

static _Thread_local char thread_text[512];

static _Thread_local const struct pawl *refused_lane; /* compared only */

const char *pawl_thread_text(const char *set)
{
    if (set) {
        (void)snprintf(thread_text, sizeof thread_text, "%s", set);
        refused_lane = NULL;
    }
    return thread_text;
}

void pawl_thread_refused(const struct pawl *lane, const char *text)
{
    (void)pawl_thread_text(text);
    refused_lane = lane;
}

bool pawl_thread_was_refused(const struct pawl *lane) { return lane && lane == refused_lane; }

void pawl_thread_failed_inside(void) { refused_lane = NULL; }

static const char *limit_text(uint64_t limit)
{
    switch (limit) {
    case PAWL_LIMIT_QUEUE_MESSAGES:
        return "its max_messages is met: receive and acknowledge, purge, or raise it with `pawl "
               "alter`";
    case PAWL_LIMIT_QUEUE_BYTES:
        return "its max_bytes is met: receive and acknowledge, purge, or raise it with `pawl "
               "alter`";
    case PAWL_LIMIT_QUEUE_INFLIGHT:
        return "its max_inflight is met: acknowledge what is under lease, or raise it";
    case PAWL_LIMIT_MEMORY:
        return "the broker's --memory is used up: consume, or start it with more";
    case PAWL_LIMIT_LOG:
        return "the broker's --max-log is used up: consume, or start it with more";
    case PAWL_LIMIT_DISK:
        return "the disk of the broker's directory is full: free space there; acknowledging still "
               "works";
    case PAWL_LIMIT_QUEUES:
        return "the broker has as many queues as it may have";
    case PAWL_LIMIT_SESSIONS:
        return "the broker has as many sessions as it may have: close some";
    case PAWL_LIMIT_LANES:
        return "this session has as many lanes as it may have (256): close some";
    case PAWL_LIMIT_UID:
        return "this user has as much as one user may have";
    case PAWL_LIMIT_LEDGER:
        return "the broker remembers as many keys as it may: wait for their windows to end, or "
               "shorten dedup_window_ns";
    case PAWL_LIMIT_RESERVATIONS:
        return "as many reservations are open as there may be (1000000): post or void some";
    default:
        return "a limit is met";
    }
}

static void limited(char *text, size_t bytes, uint64_t value, const char *subject)
{
    if (subject)
        (void)snprintf(text, bytes, "queue %s: %s", subject, limit_text(value));
    else
        (void)snprintf(text, bytes, "%s", limit_text(value));
}

/* Those that name nothing but themselves. */
static const char *sentence_for(int result)
{
    switch (result) {
    case PAWL_E_FORGOTTEN:
        return "it ended longer ago than its queue remembers: `pawl alter --retain` makes that "
               "longer";
    case PAWL_E_HOLD_CAP:
        return "settle it, or let the queue hold longer with `pawl alter --max-hold`";
    case PAWL_E_PERM:
        return "it needs another right on the queue: `pawl stat` shows owner, group and perm";
    case PAWL_E_DEADLINE:
        return "the broker got it too late and did not do it";
    case PAWL_E_WAL_FAILED:
        return "a write of the broker's log failed: see its last line, start it again";
    case PAWL_E_OUTCOME_UNKNOWN:
        return "the broker that answers now does not know this session: its directory was wiped or "
               "replaced";
    default:
        return "";
    }
}

const char *pawl_text_identity(int result)
{
    switch (result) {
    case PAWL_E_OPID_MISMATCH:
        return "this id was used for another operation, or with other arguments: take a new one "
               "from pawl_op_id_new()";
    case PAWL_E_OP_FENCED:
        return "somebody resolved this id with a fence before it arrived: it will never be done";
    case PAWL_E_FORGOTTEN:
        return "the id, or the message, is older than what is kept: it may have been done, and is "
               "not done now";
    case PAWL_E_INVALID:
        return "the time in the id is more than a minute ahead of this machine's clock, or an "
               "argument is out of its range";
    default:
        return NULL;
    }
}

/* Who, and when, in one number: abi/command.h. */
static void acked(char *text, size_t bytes, uint64_t value)
{
    const time_t seconds = (time_t)(value >> 32);
    char when[32] = "";
    struct tm t;
    if (seconds && gmtime_r(&seconds, &t))
        (void)strftime(when, sizeof when, " at %Y-%m-%dT%H:%M:%SZ", &t);
    (void)snprintf(text, bytes, "process %" PRIu32 " acknowledged it%s", (uint32_t)value, when);
}

void pawl_text_refusal(char *text, size_t bytes, int result, uint64_t value, const char *subject)
{
    const char *queue = subject ? subject : "of this message";
    text[0] = '\0';
    switch (result) {
    case PAWL_E_FULL:
    case PAWL_E_QUOTA:
    case PAWL_E_INFLIGHT_LIMIT:
        limited(text, bytes, value, subject);
        break;
    case PAWL_E_KEY_MISMATCH:
        (void)snprintf(text, bytes, "message %" PRIu64 " was sent with this key and another body",
                       value);
        break;
    case PAWL_E_PAUSED:
        (void)snprintf(text, bytes, "queue %s is paused: `pawl resume` lets it go on", queue);
        break;
    case PAWL_E_STATE:
        (void)snprintf(text, bytes, "the message is %s", pawl_state_name((uint32_t)value));
        break;
    case PAWL_E_NOT_SUPPORTED:
        if (subject)
            (void)snprintf(text, bytes,
                           "%s is of another kind: messages go to queues, state to tables, and a "
                           "direct queue has no keys, ids, times or records of its messages",
                           subject);
        break;
    case PAWL_E_LEASE_LOST:
        if (value)
            (void)snprintf(text, bytes, "process %" PRIu64 " has it under lease now", value);
        else
            (void)snprintf(text, bytes, "nobody has it now: it will be delivered again");
        break;
    case PAWL_E_ALREADY_ACKED:
        if (value)
            acked(text, bytes, value);
        break;
    case PAWL_E_TOO_BIG:
        if (value)
            (void)snprintf(text, bytes, "at most %" PRIu64 " bytes are allowed here", value);
        break;
    case PAWL_E_NOT_FOUND:
        if (subject)
            (void)snprintf(
                text, bytes,
                "no queue or table %s, or not yours to see: `pawl list` shows those that "
                "there are",
                subject);
        else
            (void)snprintf(text, bytes,
                           "no delivery has this token, or it was another user's: tokens come from "
                           "a receive");
        break;
    case PAWL_E_QUEUE_GONE:
        (void)snprintf(text, bytes, "queue %s was dropped", queue);
        break;
    case PAWL_E_EXISTS:
        (void)snprintf(text, bytes, "queue %s exists with other options: `pawl stat` shows them",
                       queue);
        break;
    default:
        (void)snprintf(text, bytes, "%s", sentence_for(result));
        break;
    }
}
