/* SPDX-License-Identifier: MIT */
/* Queues: create, alter, drop, pause, resume, purge, stat, list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/options.h"
#include "base/clock.h"
#include "client/data.h"
#include "client/lane.h"

/* One command of struct pawl_cmd_queue, waited for. o: NULL for none. */
static int run(struct pawl *lane, uint16_t type, const char *name,
               const struct pawl_queue_options *o, uint32_t max)
{
    int rc;
    uint64_t until = pawl_add_sat(pawl_now(lane), lane->timeout_ns);
    pawl_op_single(lane);
    struct pawl_cmd_queue *c = pawl_op_claim(lane, type, sizeof *c, PAWL_OP_PLAIN, until, &rc);
    if (!c)
        return rc;
    memset((uint8_t *)c + sizeof c->head, 0, sizeof *c - sizeof c->head);
    c->max = max;
    if (name)
        memcpy(c->name, name, strlen(name));
    if (o) {
        c->has_options = 1;
        c->options = *o;
        c->options.size = sizeof c->options;
    }
    rc = pawl_op_finish(lane, until);
    if (rc != PAWL_OK)
        return rc;
    if (lane->one.result == PAWL_E_INVALID && o && lane->one.value == PAWL_INVALID_CIRCLE)
        (void)snprintf(
            lane->text, sizeof lane->text,
            "dead messages would go in a circle: \"%s\" forwards its own, perhaps by way "
            "of others, to \"%s\": let one of them keep them",
            o->dead_forward, name);
    return pawl_call_answered(lane, lane->one.result, lane->one.value, name && *name ? name : NULL);
}

static int simple(struct pawl *lane, uint16_t type, const char *name,
                  const struct pawl_queue_options *o)
{
    int rc = pawl_call_enter_change(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!pawl_name_valid(name))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, PAWL_NAME_TEXT);
    else
        rc = run(lane, type, name, o, 0);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

static int with_options(struct pawl *lane, uint16_t type, const char *name,
                        const struct pawl_queue_options *options)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    if (!pawl_options_copy(&o, options, sizeof o))
        return pawl_call_invalid(lane, "size of the options is none");
    if (!pawl_name_valid(name))
        return pawl_call_invalid(lane, PAWL_NAME_TEXT);
    const char *wrong = pawl_queue_options_wrong(&o, name);
    if (wrong)
        return pawl_call_invalid(lane, wrong);
    const char *unsupported =
        type == PAWL_CMD_QUEUE_CREATE ? pawl_queue_options_unsupported(&o) : NULL;
    if (unsupported) {
        int rc = pawl_call_enter_change(lane);
        return rc != PAWL_OK ? rc
                             : pawl_call_leave(lane, pawl_call_refuse(lane, PAWL_E_NOT_SUPPORTED,
                                                                      "%s", unsupported));
    }
    /* What is not used is zero: the broker compares options byte by byte. */
    memset(o.retry_ns + o.retry_count, 0, sizeof o.retry_ns - o.retry_count * sizeof o.retry_ns[0]);
    size_t used = strlen(o.dead_forward);
    memset(o.dead_forward + used, 0, sizeof o.dead_forward - used);
    return simple(lane, type, name, &o);
}

int pawl_queue_create(struct pawl *lane, const char *name, const struct pawl_queue_options *options)
{
    return with_options(lane, PAWL_CMD_QUEUE_CREATE, name, options);
}
int pawl_queue_alter(struct pawl *lane, const char *name, const struct pawl_queue_options *options)
{
    if (!options)
        return pawl_call_invalid(lane, "options is NULL");
    return with_options(lane, PAWL_CMD_QUEUE_ALTER, name, options);
}
int pawl_queue_drop(struct pawl *lane, const char *name)
{
    return simple(lane, PAWL_CMD_QUEUE_DROP, name, NULL);
}
int pawl_queue_pause(struct pawl *lane, const char *name)
{
    return simple(lane, PAWL_CMD_QUEUE_PAUSE, name, NULL);
}
int pawl_queue_resume(struct pawl *lane, const char *name)
{
    return simple(lane, PAWL_CMD_QUEUE_RESUME, name, NULL);
}

int pawl_queue_purge(struct pawl *lane, const char *name, uint64_t *count)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!pawl_name_valid(name))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, PAWL_NAME_TEXT);
    else
        rc = run(lane, PAWL_CMD_QUEUE_PURGE, name, NULL, 0);
    if (rc >= 0 && count)
        *count = lane->one.value;
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

/* --- inspect --------------------------------------------------------------------------------- */

/* A stat out of the broker's bytes, into the caller's struct of `size` bytes. */
static void give_stat(const uint8_t *data, void *out, size_t size)
{
    struct pawl_queue_stat s;
    memcpy(&s, data, sizeof s);
    s.name[sizeof s.name - 1] = '\0';
    s.options.dead_forward[sizeof s.options.dead_forward - 1] = '\0';
    s.options.size = sizeof s.options;
    s.size = size;
    pawl_data_give(&s, sizeof s, out, size);
}

int pawl_queue_stat(struct pawl *lane, const char *name, struct pawl_queue_stat *out)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!pawl_name_valid(name))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, PAWL_NAME_TEXT);
    else if (!out || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "size is not set");
    else
        rc = pawl_data_prepare(lane);
    if (rc == PAWL_OK)
        rc = run(lane, PAWL_CMD_QUEUE_STAT, name, NULL, 0);
    if (rc == PAWL_OK && lane->data_bytes != sizeof *out)
        rc = pawl_lane_breach(lane, "a stat of another size");
    if (rc == PAWL_OK)
        give_stat(lane->data, out, out->size);
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc);
}

int pawl_queue_list(struct pawl *lane, const char *after, struct pawl_queue_stat *out, uint32_t max)
{
    int rc = pawl_call_enter(lane);
    if (rc != PAWL_OK)
        return rc;
    if (!out || max == 0 || max > INT32_MAX || !pawl_data_size_valid(out->size))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "out, its size and max are needed");
    else if (after && *after && !pawl_name_valid(after))
        rc = pawl_call_refuse(lane, PAWL_E_INVALID, "after is not the name of a queue");
    else
        rc = pawl_data_prepare(lane);
    if (rc != PAWL_OK)
        return pawl_call_leave(lane, rc);
    size_t size = out->size;
    char last[PAWL_NAME_BYTES_MAX + 1] = "";
    if (after)
        memcpy(last, after, strlen(after));
    uint32_t n = 0;
    while (n < max) {
        rc = run(lane, PAWL_CMD_QUEUE_LIST, last, NULL, max - n);
        if (rc < 0)
            break;
        uint32_t got = lane->data_bytes / (uint32_t)sizeof *out;
        if (lane->data_bytes % sizeof *out != 0 || got > max - n) {
            rc = pawl_lane_breach(lane, "a list of another size");
            break;
        }
        if (got == 0)
            break;
        for (uint32_t i = 0; i < got; i++, n++)
            give_stat(lane->data + (size_t)i * sizeof *out, (uint8_t *)out + n * size, size);
        memcpy(last,
               lane->data + (size_t)(got - 1) * sizeof *out +
                   offsetof(struct pawl_queue_stat, name),
               sizeof last);
        last[sizeof last - 1] = '\0';
    }
    pawl_fd_renew(lane);
    return pawl_call_leave(lane, rc < 0 ? rc : (int)n);
}
