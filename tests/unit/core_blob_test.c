/* SPDX-License-Identifier: MIT */
/* What a worker leaves with a message: progress when it is deferred, a result when it is done. */
/* clang-format off */
#include "lib/unit.h"
/* clang-format on */

#include <stdlib.h>
#include <string.h>

#include "lib/core_shell.h"

struct world {
    struct core_shell s;
    struct core_client a, b;
    uint64_t q;
};

static struct world *begin(uint32_t mode)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    core_init(&w->s);
    core_client_open(&w->s, &w->a, 7);
    core_client_open(&w->s, &w->b, 8);
    w->q = core_create(&w->a, "orders", mode);
    (void)core_send(&w->a, w->q, "body");
    return w;
}

static void end(struct world *w)
{
    core_end(&w->s);
    free(w);
}

static struct core_delivery receive(struct world *w)
{
    core_pass(&w->s, 3 * PAWL_NS_S);
    core_turn(&w->s);
    struct core_delivery d = core_receive(&w->a, w->q);
    assert_true(d.there);
    assert_string_equal(d.body, "body");
    return d;
}

static int defer(struct world *w, const struct core_delivery *d, const char *progress)
{
    return core_settle(&w->a, PAWL_CMD_DEFER, d, PAWL_NS_S, 0, progress).result;
}

static void restart(struct world *w)
{
    core_restart(&w->s, true);
    assert_int_equal(core_client_resume(&w->a, UINT64_MAX, UINT64_MAX), PAWL_OK);
}

static void progress_is_handed_to_the_next_receiver(void **state)
{
    (void)state;
    for (uint32_t mode = PAWL_DURABLE; mode <= PAWL_MEMORY; mode++) {
        struct world *w = begin(mode);
        struct core_delivery d = receive(w);
        assert_int_equal(d.d.progress_bytes, 0);
        assert_int_equal(defer(w, &d, "page 7"), PAWL_OK);
        core_check(&w->s);
        d = receive(w);
        assert_int_equal(d.d.progress_bytes, 6);
        assert_string_equal(d.progress, "page 7");
        assert_int_equal(d.d.failed, 0);
        end(w);
    }
}

static void progress_stays_until_another_takes_its_place(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = receive(w);
    assert_int_equal(defer(w, &d, "page 7"), PAWL_OK);
    d = receive(w);
    (void)core_settle(&w->a, PAWL_CMD_NACK, &d, 0, 0, "a reason");
    restart(w);
    d = receive(w);
    assert_string_equal(d.progress, "page 7");
    assert_int_equal(defer(w, &d, NULL), PAWL_OK);
    core_copy_all(&w->s);
    restart(w);
    d = receive(w);
    assert_string_equal(d.progress, "page 7");
    assert_int_equal(defer(w, &d, "page 12, and more"), PAWL_OK);
    core_copy_all(&w->s);
    core_check(&w->s);
    d = receive(w);
    assert_string_equal(d.progress, "page 12, and more");
    core_copy_all(&w->s); /* while it is leased */
    restart(w);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    end(w);
}

static void progress_ends_with_at_most_once_and_with_dead(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    strcpy(o.dead_forward, "dead");
    uint64_t dead = core_create(&w->a, "dead", PAWL_DURABLE);
    uint64_t from = core_create_with(&w->a, "from", &o);
    struct core_delivery d = receive(w);
    assert_int_equal(defer(w, &d, "page 7"), PAWL_OK);
    core_pass(&w->s, 3 * PAWL_NS_S);
    core_turn(&w->s);
    d = core_receive_kind(&w->a, w->q, 0, 0, PAWL_RECEIVE_AT_MOST_ONCE);
    assert_true(d.there);
    assert_int_equal(d.d.progress_bytes, 0);
    (void)core_send(&w->a, from, "body");
    d = core_receive(&w->a, from);
    assert_int_equal(defer(w, &d, "page 7"), PAWL_OK);
    core_pass(&w->s, 3 * PAWL_NS_S);
    core_turn(&w->s);
    d = core_receive(&w->a, from);
    (void)core_settle(&w->a, PAWL_CMD_REJECT, &d, 0, 0, NULL);
    d = core_receive(&w->a, dead);
    assert_true(d.there);
    assert_int_equal(d.d.progress_bytes, 0);
    end(w);
}

static void progress_has_its_largest_size(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    char text[PAWL_PROGRESS_BYTES_MAX + 2];
    memset(text, 'p', sizeof text);
    text[PAWL_PROGRESS_BYTES_MAX] = '\0';
    struct core_delivery d = receive(w);
    struct pawl_cmd_settle m = { .head.type = PAWL_CMD_DEFER, .text_bytes = 4097 };
    static const char zeros[4104];
    assert_int_equal(core_take(&w->a, &m, sizeof m, zeros, sizeof zeros), PAWL_E_PROTOCOL);
    w->a.next_seq = m.head.seq;
    assert_int_equal(defer(w, &d, text), PAWL_OK);
    core_copy_all(&w->s);
    d = receive(w);
    assert_int_equal(d.d.progress_bytes, PAWL_PROGRESS_BYTES_MAX);
    end(w);
}

/* An old delivery that is still on its way says nothing of a newer lease. */
static void a_delivery_that_is_over_has_no_progress(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = receive(w);
    assert_int_equal(defer(w, &d, "page 7"), PAWL_OK);
    core_pass(&w->s, 3 * PAWL_NS_S);
    core_turn(&w->s);
    (void)core_receive_submit(&w->a, PAWL_CMD_RECEIVE, w->q, 1, 0, 0);
    assert_int_equal(core_settle(&w->a, PAWL_CMD_ACK, &d, 0, PAWL_ACK_IF_UNCLAIMED, NULL).result,
                     PAWL_E_LEASE_LOST);
    d = core_delivered(&w->a);
    assert_string_equal(d.progress, "page 7");
    end(w);
}

/* --- results --------------------------------------------------------------------------------- */

static int ack_with(struct world *w, const struct core_delivery *d, const char *result)
{
    return core_settle(&w->a, PAWL_CMD_ACK, d, 0, 0, result).result;
}

/* What the queue says of it, as text; NULL: refused. */
static const char *result_of(struct world *w, uint64_t id)
{
    static char text[PAWL_RESULT_BYTES_MAX + 1];
    struct pawl_cmd_message m = {
        .head.type = PAWL_CMD_PEEK, .queue = w->q, .id = id, .flags = PAWL_PEEK_RESULT
    };
    struct core_answer a = core_call(&w->a, &m, sizeof m, NULL, 0);
    if (a.result != PAWL_OK)
        return NULL;
    assert_true(a.bytes <= PAWL_RESULT_BYTES_MAX);
    assert_int_equal(a.value, a.bytes);
    memcpy(text, a.data, a.bytes);
    text[a.bytes] = '\0';
    return text;
}

static void a_result_stays_with_the_finished_message(void **state)
{
    (void)state;
    for (uint32_t mode = PAWL_DURABLE; mode <= PAWL_MEMORY; mode++) {
        struct world *w = begin(mode);
        struct core_delivery d = receive(w);
        assert_null(result_of(w, d.d.message)); /* it lives */
        assert_int_equal(ack_with(w, &d, "42 pages"), PAWL_OK);
        assert_string_equal(result_of(w, d.d.message), "42 pages");
        struct pawl_record r = core_query(&w->a, w->q, d.d.message);
        assert_int_equal(r.state, PAWL_STATE_ACKED);
        assert_int_equal(r.result_bytes, 8);
        assert_true(r.done_wall_ns >= CORE_WALL);
        core_check(&w->s);
        if (mode != PAWL_MEMORY) {
            core_copy_all(&w->s);
            restart(w);
            assert_string_equal(result_of(w, d.d.message), "42 pages");
            assert_int_equal(core_query(&w->a, w->q, d.d.message).done_wall_ns, r.done_wall_ns);
            core_copy_all(&w->s); /* the same fact again */
            assert_string_equal(result_of(w, d.d.message), "42 pages");
        }
        end(w);
    }
}

static void without_a_result_there_is_none(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = receive(w);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    assert_string_equal(result_of(w, d.d.message), "");
    assert_int_equal(core_query(&w->a, w->q, d.d.message).result_bytes, 0);
    end(w);
}

static void a_result_goes_with_its_tombstone(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = receive(w);
    char text[PAWL_RESULT_BYTES_MAX + 1];
    memset(text, 'r', sizeof text);
    text[PAWL_RESULT_BYTES_MAX] = '\0';
    uint64_t live = pawl_core_live(w->s.core);
    assert_int_equal(ack_with(w, &d, text), PAWL_OK);
    assert_string_equal(result_of(w, d.d.message), text);
    assert_true(pawl_core_live(w->s.core) > live + PAWL_RESULT_BYTES_MAX / 2);
    core_pass(&w->s, 700 * PAWL_NS_S);
    core_turn(&w->s);
    assert_null(result_of(w, d.d.message));
    assert_true(pawl_core_live(w->s.core) < live);
    end(w);
}

static void a_late_ack_and_one_of_a_duplicate_keep_the_first_result(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = receive(w);
    core_pass(&w->s, PAWL_LEASE_NS_DEFAULT + 2 * PAWL_NS_MS);
    core_turn(&w->s);
    assert_int_equal(ack_with(w, &d, "late"), PAWL_E_LEASE_LOST);
    assert_int_equal(core_settle(&w->a, PAWL_CMD_ACK, &d, 0, PAWL_ACK_IF_UNCLAIMED, "late").result,
                     PAWL_OK);
    assert_int_equal(ack_with(w, &d, "again"), PAWL_E_ALREADY_ACKED);
    assert_string_equal(result_of(w, d.d.message), "late");
    core_check(&w->s);
    end(w);
}

/* A full log must take each acknowledgement: what it need not take is refused. */
static void a_full_log_takes_acks_without_results_only(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_DURABLE);
    struct core_delivery d = receive(w);
    pawl_core_refuse_sends(w->s.core, PAWL_LIMIT_LOG);
    struct core_answer a = core_settle(&w->a, PAWL_CMD_ACK, &d, 0, 0, "a result");
    assert_int_equal(a.result, PAWL_E_FULL);
    assert_int_equal(a.value, PAWL_LIMIT_LOG);
    assert_int_equal(defer(w, &d, "progress"), PAWL_E_FULL);
    assert_int_equal(core_ack(&w->a, &d).result, PAWL_OK);
    pawl_core_refuse_sends(w->s.core, 0);
    end(w);
}

static void results_take_a_share_of_the_memory(void **state)
{
    (void)state;
    struct world *w = begin(PAWL_MEMORY);
    char text[PAWL_RESULT_BYTES_MAX + 1];
    memset(text, 'r', sizeof text);
    text[PAWL_RESULT_BYTES_MAX] = '\0';
    uint64_t first = 0, last = 0, kept = w->s.options.memory_bytes / 4;
    for (uint64_t bytes = 0; bytes < kept + kept / 2; bytes += PAWL_RESULT_BYTES_MAX) {
        if (first)
            (void)core_send(&w->a, w->q, "body");
        struct core_delivery d = core_receive(&w->a, w->q);
        assert_int_equal(ack_with(w, &d, text), PAWL_OK);
        last = d.d.message;
        first = first ? first : last;
        core_forget_events(&w->s);
    }
    assert_null(result_of(w, first));
    assert_string_equal(result_of(w, last), text);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_is_handed_to_the_next_receiver),
        cmocka_unit_test(progress_stays_until_another_takes_its_place),
        cmocka_unit_test(progress_ends_with_at_most_once_and_with_dead),
        cmocka_unit_test(progress_has_its_largest_size),
        cmocka_unit_test(a_delivery_that_is_over_has_no_progress),
        cmocka_unit_test(a_result_stays_with_the_finished_message),
        cmocka_unit_test(without_a_result_there_is_none),
        cmocka_unit_test(a_result_goes_with_its_tombstone),
        cmocka_unit_test(a_late_ack_and_one_of_a_duplicate_keep_the_first_result),
        cmocka_unit_test(a_full_log_takes_acks_without_results_only),
        cmocka_unit_test(results_take_a_share_of_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
