/* SPDX-License-Identifier: MIT */
/* The pure parts of the library: token text, headers, names, options of other sizes, texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/command.h"
#include "abi/options.h"
#include "base/prng.h"
#include "client/headers.h"
#include "client/lane.h"
#include "client/text.h"
#include "lib/unit.h"
#include "pawl.h"

static void a_token_survives_its_text(void **state)
{
    (void)state;
    struct pawl_prng prng = { 7 };
    for (int i = 0; i < 1000; i++) {
        struct pawl_token t = { pawl_prng_next(&prng), i % 2 ? pawl_prng_next(&prng) : 0,
                                i % 3 ? pawl_prng_next(&prng) : UINT64_MAX },
                          back;
        char text[PAWL_TOKEN_TEXT_BYTES];
        pawl_token_format(&t, text);
        assert_int_equal(strlen(text), 48);
        assert_int_equal(strspn(text, "0123456789abcdef"), 48);
        assert_int_equal(pawl_token_parse(text, &back), PAWL_OK);
        assert_memory_equal(&t, &back, sizeof t);
    }
}

static void what_is_no_token_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "0",
        "00000000000000010000000000000002000000000000000",   /* 47 */
        "0000000000000001000000000000000200000000000000030", /* 49 */
        "00000000000000010000000000000002000000000000000g",
        " 0000000000000010000000000000002000000000000000a",
        "0x000000000000010000000000000002000000000000000a",
        "-000000000000001000000000000000200000000000000a",
    };
    struct pawl_token t;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(pawl_token_parse(wrong[i], &t), PAWL_E_INVALID);
    assert_int_equal(pawl_token_parse(NULL, &t), PAWL_E_INVALID);
    assert_int_equal(pawl_token_parse("00000000000000AB00000000000000Cd0000000000000003", &t),
                     PAWL_OK);
    assert_int_equal(t.message, 0xab);
    assert_int_equal(t.grant, 0xcd);
}

static void headers_come_back_as_strings(void **state)
{
    (void)state;
    const struct pawl_header in[3] = { { "content-type", "text/plain" },
                                       { "x", "" },
                                       { "y", "2" } };
    uint8_t bytes[128];
    int n = pawl_headers_bytes(in, 3);
    assert_true(n > 0 && (size_t)n < sizeof bytes);
    pawl_headers_encode(in, 3, bytes);
    struct pawl_message m = { .headers = bytes, .headers_bytes = (uint32_t)n };
    for (uint32_t i = 0; i < 3; i++) {
        struct pawl_header h;
        assert_int_equal(pawl_message_header(&m, i, &h), PAWL_OK);
        assert_string_equal(h.name, in[i].name);
        assert_string_equal(h.value, in[i].value);
    }
    struct pawl_header h;
    assert_int_equal(pawl_message_header(&m, 3, &h), PAWL_OK_EMPTY);
    assert_int_equal(pawl_headers_bytes(NULL, 0), 0);
}

static void headers_keep_their_limits(void **state)
{
    (void)state;
    char name[300], *value = malloc(70000);
    assert_non_null(value);
    memset(name, 'n', sizeof name);
    memset(value, 'v', 70000);
    struct pawl_header h = { name, "v" };
    name[254] = '\0';
    assert_true(pawl_headers_bytes(&h, 1) > 0);
    name[254] = 'n';
    name[255] = '\0';
    assert_int_equal(pawl_headers_bytes(&h, 1), -1);
    h.name = "";
    assert_int_equal(pawl_headers_bytes(&h, 1), -1);
    h.name = NULL;
    assert_int_equal(pawl_headers_bytes(&h, 1), -1);
    /* All together: 16,384 bytes fit, one more does not. */
    h = (struct pawl_header){ "n", value };
    value[PAWL_HEADERS_BYTES_MAX - 3 - 2 - 1] = '\0';
    assert_int_equal(pawl_headers_bytes(&h, 1), PAWL_HEADERS_BYTES_MAX);
    value[PAWL_HEADERS_BYTES_MAX - 3 - 2 - 1] = 'v';
    value[PAWL_HEADERS_BYTES_MAX - 3 - 2] = '\0';
    assert_int_equal(pawl_headers_bytes(&h, 1), -1);
    assert_int_equal(pawl_headers_bytes(NULL, 1), -1);
    free(value);
}

/* Whatever bytes a broker hands out as headers: no read outside them (run under asan, too). */
static void any_bytes_are_read_as_headers_without_harm(void **state)
{
    (void)state;
    struct pawl_prng prng = { 11 };
    const struct pawl_header in[2] = { { "name", "value" }, { "other", "more" } };
    for (int i = 0; i < 200000; i++) {
        size_t n = pawl_prng_below(&prng, 40);
        uint8_t *bytes = malloc(n ? n : 1), good[64];
        assert_non_null(bytes);
        pawl_headers_encode(in, 2, good);
        for (size_t k = 0; k < n; k++)
            bytes[k] = i % 2 ? (uint8_t)pawl_prng_next(&prng) : good[k % 28];
        if (n && i % 4 == 0)
            bytes[pawl_prng_below(&prng, n)] = (uint8_t)pawl_prng_below(&prng, 8);
        struct pawl_message m = { .headers = bytes, .headers_bytes = (uint32_t)n };
        struct pawl_header h;
        for (uint32_t at = 0; at < 5; at++)
            if (pawl_message_header(&m, at, &h) == PAWL_OK) {
                assert_true((const uint8_t *)h.name >= bytes && h.name < h.value);
                assert_true((const uint8_t *)h.value + strlen(h.value) < bytes + n);
            }
        free(bytes);
    }
}

static void names_are_checked(void **state)
{
    (void)state;
    char name[PAWL_NAME_BYTES_MAX + 2];
    memset(name, 'a', sizeof name);
    name[PAWL_NAME_BYTES_MAX] = '\0';
    assert_true(pawl_name_valid(name));
    name[PAWL_NAME_BYTES_MAX] = 'a';
    name[PAWL_NAME_BYTES_MAX + 1] = '\0';
    assert_false(pawl_name_valid(name));
    assert_true(pawl_name_valid("orders/eu:1_a.b-C"));
    for (const char *const *bad =
             (const char *const[]){ "", " ", "a b", "a\n", "\xc3\xa4", "a*", NULL };
         *bad; bad++)
        assert_false(pawl_name_valid(*bad));
    assert_false(pawl_name_valid(NULL));
}

static void options_of_other_sizes_are_understood(void **state)
{
    (void)state;
    struct {
        struct pawl_receive_options o;
        uint64_t newer;
    } in = { .o = PAWL_RECEIVE_OPTIONS_INIT };
    struct pawl_receive_options out = { .lease_kind = 9 };
    in.o.wait_ns = 5;
    in.o.lease_kind = 1;
    /* older: without the fields behind wait_ns */
    in.o.size = offsetof(struct pawl_receive_options, lease_ns);
    assert_true(pawl_options_copy(&out, &in, sizeof out));
    assert_int_equal(out.wait_ns, 5);
    assert_int_equal(out.lease_kind, 9);
    /* newer, not using what we do not know */
    in.o.size = sizeof in;
    assert_true(pawl_options_copy(&out, &in, sizeof out));
    assert_int_equal(out.lease_kind, 1);
    in.newer = 1;
    assert_false(pawl_options_copy(&out, &in, sizeof out));
    in.o.size = 0;
    assert_false(pawl_options_copy(&out, &in, sizeof out));
    in.o.size = SIZE_MAX;
    assert_false(pawl_options_copy(&out, &in, sizeof out));
    assert_true(pawl_options_copy(&out, NULL, sizeof out));
}

static void refusals_say_what_and_what_to_do(void **state)
{
    (void)state;
    char text[512];
    for (uint64_t limit = PAWL_LIMIT_QUEUE_MESSAGES; limit <= PAWL_LIMIT_LEDGER; limit++) {
        char other[512];
        pawl_text_refusal(text, sizeof text, PAWL_E_FULL, limit, "orders");
        assert_non_null(strstr(text, "orders"));
        pawl_text_refusal(other, sizeof other, PAWL_E_FULL, limit - 1, "orders");
        assert_string_not_equal(text, other);
    }
    pawl_text_refusal(text, sizeof text, PAWL_E_LEASE_LOST, 4711, NULL);
    assert_non_null(strstr(text, "4711"));
    pawl_text_refusal(text, sizeof text, PAWL_E_STATE, PAWL_STATE_PURGED, NULL);
    assert_non_null(strstr(text, "PURGED"));
    pawl_text_refusal(text, sizeof text, PAWL_E_NOT_FOUND, 0, "orders");
    assert_non_null(strstr(text, "no queue or table orders, or not yours to see: `pawl list`"));
    pawl_text_refusal(text, sizeof text, PAWL_E_FULL, 99999, NULL);
    assert_true(text[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_survives_its_text),
        cmocka_unit_test(what_is_no_token_is_refused),
        cmocka_unit_test(headers_come_back_as_strings),
        cmocka_unit_test(headers_keep_their_limits),
        cmocka_unit_test(any_bytes_are_read_as_headers_without_harm),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(options_of_other_sizes_are_understood),
        cmocka_unit_test(refusals_say_what_and_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
