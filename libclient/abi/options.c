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
    return NULL;
}
