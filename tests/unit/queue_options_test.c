/* SPDX-License-Identifier: MIT */
/* The ranges of a queue's options, each at its limit and one past it, and that the sentence names
 * the member. */
#include <stddef.h>
#include <string.h>

#include "abi/options.h"
#include "base/bits.h"
#include "lib/unit.h"

static const uint64_t year10 = PAWL_DELAY_NS_MAX, day = 86400 * PAWL_NS_S;

static void wrong(const struct pawl_queue_options *o, const char *member)
{
    const char *text = pawl_queue_options_wrong(o, "q");
    assert_non_null(text);
    assert_non_null(strstr(text, member));
}
static void right(const struct pawl_queue_options *o)
{
    assert_null(pawl_queue_options_wrong(o, "q"));
}

static void numbers_have_their_ranges(void **state)
{
    (void)state;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    right(&o);
    const struct {
        const char *name;
        uint64_t *member, limit;
    } wide[] = {
        { "lease_ns", &o.lease_ns, PAWL_LEASE_NS_MAX },
        { "max_hold_ns", &o.max_hold_ns, year10 },
        { "ttl_ns", &o.ttl_ns, year10 },
        { "done_retention_ns", &o.done_retention_ns, 90 * day },
    };
    for (size_t i = 0; i < PAWL_COUNT(wide); i++) {
        *wide[i].member = wide[i].limit;
        right(&o);
        ++*wide[i].member;
        wrong(&o, wide[i].name);
        *wide[i].member = 0;
    }
    const struct {
        const char *name;
        uint32_t *member, limit;
    } narrow[] = {
        { "max_message_bytes", &o.max_message_bytes, PAWL_MESSAGE_BYTES_MAX },
        { "max_failed", &o.max_failed, UINT16_MAX },
        { "max_crashed", &o.max_crashed, UINT8_MAX },
        { "perm", &o.perm, 0777 },
        { "mode", &o.mode, PAWL_TABLE },
        { "retry_count", &o.retry_count, PAWL_RETRY_STEPS_MAX },
    };
    for (size_t i = 0; i < PAWL_COUNT(narrow); i++) {
        *narrow[i].member = narrow[i].limit;
        right(&o);
        ++*narrow[i].member;
        wrong(&o, narrow[i].name);
        *narrow[i].member = 0;
    }
    o.lease_ns = PAWL_LEASE_NS_MIN;
    right(&o);
    o.lease_ns--;
    wrong(&o, "lease_ns");
}

static void steps_are_looked_at_as_far_as_they_count(void **state)
{
    (void)state;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.retry_count = 2;
    o.retry_ns[1] = year10;
    o.retry_ns[2] = year10 + 1;
    right(&o);
    o.retry_count = 3;
    wrong(&o, "retry_ns");
}

static void the_dead_go_elsewhere_or_stay(void **state)
{
    (void)state;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    strcpy(o.dead_forward, "q2");
    right(&o);
    strcpy(o.dead_forward, "q");
    wrong(&o, "dead_forward names the queue itself");
    strcpy(o.dead_forward, "a b");
    wrong(&o, "dead_forward is no name");
    memset(o.dead_forward, 'n', sizeof o.dead_forward);
    wrong(&o, "dead_forward does not end");
    o.dead_forward[PAWL_NAME_BYTES_MAX] = '\0';
    right(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_their_ranges),
        cmocka_unit_test(steps_are_looked_at_as_far_as_they_count),
        cmocka_unit_test(the_dead_go_elsewhere_or_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
