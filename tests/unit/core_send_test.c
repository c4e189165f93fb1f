/* SPDX-License-Identifier: MIT */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <string.h>

#include "lib/core_shell.h"

static void a_message_goes_through_and_is_gone(void **state)
{
    (void)state;
    struct core_shell s;
    struct core_client c;
    core_init(&s);
    core_client_open(&s, &c, 7);
    uint64_t q = core_create(&c, "orders", PAWL_DURABLE);
    struct core_answer a = core_send(&c, q, "hello");
    assert_int_equal(a.result, PAWL_OK);
    assert_int_not_equal(a.lsn, 0);
    struct core_delivery d = core_receive(&c, q);
    assert_true(d.there);
    assert_string_equal(d.body, "hello");
    assert_int_equal(d.d.message, a.value);
    assert_int_equal(d.d.acquired, 1);
    core_check(&s);
    assert_int_equal(core_ack(&c, &d).result, PAWL_OK);
    assert_false(core_receive(&c, q).there);
    assert_int_equal(core_stat(&c, "orders").done, 1);
    core_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_goes_through_and_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
