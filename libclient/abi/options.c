/* SPDX-License-Identifier: MIT */
#include "abi/options.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bits.h"

#define DEDUP_NS_MAX (7ull * 86400 * PAWL_NS_S)
#define RETENTION_NS_MAX (90ull * 86400 * PAWL_NS_S)

bool pawl_name_valid(const char *name)
{
    size_t n = 0;
    while (name && n <= PAWL_NAME_BYTES_MAX && name[n]) {
        char c = name[n];
        bool allowed = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == ':' || c == '/' || c == '-';
        if (!allowed)
            return false;
        n++;
    }
    return n >= 1 && n <= PAWL_NAME_BYTES_MAX;
}

#define AT(member) offsetof(struct pawl_queue_options, member)

static const struct range {
    size_t at;
    bool wide;     /* uint64_t, else uint32_t */
    uint64_t free; /* a value that stands for the default, whatever the range */
    uint64_t min, max;
    const char *text;
} ranges[] = {
    { AT(mode), false, 0, 0, PAWL_TABLE, "mode is none of enum pawl_mode" },
    { AT(flags), false, 0, 0, PAWL_QUEUE_ORDERED, "flags holds an unknown bit" },
    { AT(retry_count), false, 0, 0, PAWL_RETRY_STEPS_MAX, "retry_count is at most 64" },
    { AT(lease_ns), true, 0, PAWL_LEASE_NS_MIN, PAWL_LEASE_NS_MAX,
      "lease_ns is 1 ms to 12 h, or 0 for 10 s" },
    { AT(max_hold_ns), true, 0, 0, PAWL_DELAY_NS_MAX, "max_hold_ns is at most 10 years" },
    { AT(ttl_ns), true, 0, 0, PAWL_DELAY_NS_MAX, "ttl_ns is at most 10 years" },
    { AT(done_retention_ns), true, 0, 0, RETENTION_NS_MAX, "done_retention_ns is at most 90 days" },
    { AT(dedup_window_ns), true, 0, 0, DEDUP_NS_MAX, "dedup_window_ns is at most 7 days" },
    { AT(max_message_bytes), false, 0, 0, PAWL_MESSAGE_BYTES_MAX,
      "max_message_bytes is at most 16777216" },
    { AT(max_failed), false, PAWL_KEEP, 0, UINT16_MAX, "max_failed is at most 65535" },
    { AT(max_crashed), false, PAWL_KEEP, 0, UINT8_MAX, "max_crashed is at most 255" },
    { AT(perm), false, PAWL_KEEP, 0, 0777, "perm is nine bits, 0 to 0777" },
};

static uint64_t value_of(const struct pawl_queue_options *options, const struct range *r)
{
    const char *at = (const char *)options + r->at;
    uint64_t wide;
    uint32_t narrow;
    memcpy(&narrow, at, sizeof narrow);
    if (!r->wide)
        return narrow;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static const char *direct_wrong(const struct pawl_queue_options *o)
{
    if (o->max_messages != 0 &&
        (!pawl_is_pow2(o->max_messages) || o->max_messages < PAWL_DIRECT_MESSAGES_MIN ||
         o->max_messages > PAWL_DIRECT_MESSAGES_MAX))
        return "max_messages of a direct queue is a power of two, 64 to 1048576, or 0 for 1024";
    if (o->max_message_bytes > PAWL_DIRECT_MESSAGE_BYTES_MAX)
        return "max_message_bytes of a direct queue is at most 1048576, or 0 for 1024";
    if (o->max_failed != PAWL_KEEP && o->max_failed > PAWL_DIRECT_FAILED_MAX)
        return "max_failed of a direct queue is at most 1023";
    if (o->retry_count > 1)
        return "a direct queue has one delay of retry_ns, not a ladder";
    return NULL;
}

const char *pawl_queue_options_unsupported(const struct pawl_queue_options *o)
{
    if (o->mode != PAWL_DIRECT)
        return NULL;
    if (o->flags)
        return "a direct queue has no ordering keys (flags)";
    if (o->ttl_ns)
        return "a direct queue has no time to live (ttl_ns)";
    if (o->dedup_window_ns)
        return "a direct queue has no dedup keys (dedup_window_ns)";
    if (o->done_retention_ns)
        return "a direct queue remembers no message after its end (done_retention_ns)";
    if (o->max_bytes)
        return "a direct queue is made whole, for max_messages of max_message_bytes: it has no "
               "max_bytes";
    if (o->max_inflight)
        return "a direct queue has no limit of leases (max_inflight) but its max_messages";
    if (o->max_crashed && o->max_crashed != PAWL_KEEP)
        return "a direct queue counts all attempts together: max_failed, no max_crashed";
    if (o->dead_forward[0])
        return "the dead of a direct queue stay in it (dead_forward)";
    return NULL;
}

const char *pawl_queue_options_wrong(const struct pawl_queue_options *options, const char *name)
{
    for (size_t i = 0; i < PAWL_COUNT(ranges); i++) {
        uint64_t value = value_of(options, &ranges[i]);
        if (value != ranges[i].free && (value < ranges[i].min || value > ranges[i].max))
            return ranges[i].text;
    }
    for (uint32_t i = 0; i < options->retry_count; i++)
        if (options->retry_ns[i] > PAWL_DELAY_NS_MAX)
            return "a step of retry_ns is at most 10 years";
    if (!memchr(options->dead_forward, '\0', sizeof options->dead_forward))
        return "dead_forward does not end";
    if (options->dead_forward[0] && !pawl_name_valid(options->dead_forward))
        return "dead_forward is no name of a queue";
    /* A message would be dead and ready at once. */
    if (options->dead_forward[0] && strcmp(options->dead_forward, name) == 0)
        return "dead_forward names the queue itself: name another one, or \"\" to let the dead "
               "stay";
    if (options->mode == PAWL_DIRECT)
        return direct_wrong(options);
    return NULL;
}
