/* SPDX-License-Identifier: MIT */
#include "lib/core_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#define ANY UINT64_MAX

/* Key, value and zeros up to a multiple of 8, in memory of their own. */
static uint8_t *words(const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                      uint32_t *bytes)
{
    *bytes = (uint32_t)pawl_align_up(key_bytes + value_bytes, 8);
    uint8_t *w = calloc(1, *bytes + 8);
    if (!w)
        abort();
    memcpy(w, key, key_bytes);
    if (value_bytes)
        memcpy(w + key_bytes, value, value_bytes);
    return w;
}

static struct core_answer state(struct core_client *c, struct pawl_cmd_state *m, const char *key,
                                const void *value, size_t value_bytes)
{
    uint32_t bytes;
    uint8_t *w = words(key, strlen(key), value, value_bytes, &bytes);
    m->head.type = PAWL_CMD_STATE;
    m->key_bytes = (uint8_t)strlen(key);
    m->value_bytes = (uint32_t)value_bytes;
    struct core_answer a = core_call(c, m, sizeof *m, w, bytes);
    free(w);
    return a;
}

struct core_answer core_put_if(struct core_client *c, uint64_t table, const char *key,
                               const char *value, uint64_t version)
{
    struct pawl_cmd_state m = { .table = table, .expect = version, .op = PAWL_TABLE_PUT };
    return state(c, &m, key, value, strlen(value));
}

struct core_answer core_put(struct core_client *c, uint64_t table, const char *key,
                            const char *value)
{
    return core_put_if(c, table, key, value, ANY);
}

struct core_answer core_put_number(struct core_client *c, uint64_t table, const char *key,
                                   int64_t number)
{
    struct pawl_cmd_state m = { .table = table, .expect = ANY, .op = PAWL_TABLE_PUT };
    m.flags = PAWL_TABLE_AS_NUMBER;
    return state(c, &m, key, &number, sizeof number);
}

struct core_answer core_delete_if(struct core_client *c, uint64_t table, const char *key,
                                  uint64_t version)
{
    struct pawl_cmd_state m = { .table = table, .expect = version, .op = PAWL_TABLE_DELETE };
    return state(c, &m, key, NULL, 0);
}

struct core_answer core_delete(struct core_client *c, uint64_t table, const char *key)
{
    return core_delete_if(c, table, key, ANY);
}

struct core_answer core_add(struct core_client *c, uint64_t table, const char *key, int64_t number,
                            int64_t min, int64_t max)
{
    struct pawl_cmd_state m = { .table = table, .expect = ANY, .op = PAWL_TABLE_ADD };
    m.number = number;
    m.min = min;
    m.max = max;
    return state(c, &m, key, NULL, 0);
}

struct core_answer core_assert(struct core_client *c, uint64_t table, uint8_t op, const char *key,
                               uint64_t version, int64_t number)
{
    struct pawl_cmd_state m = { .table = table, .expect = version, .op = op, .number = number };
    return state(c, &m, key, NULL, 0);
}

/* --- reads ----------------------------------------------------------------------------------- */

static struct core_answer scan(struct core_client *c, struct pawl_cmd_state_scan *m,
                               const char *key, const char *after)
{
    uint32_t bytes;
    uint8_t *w = words(key, strlen(key), after, strlen(after), &bytes);
    m->head.type = PAWL_CMD_STATE_SCAN;
    m->key_bytes = (uint8_t)strlen(key);
    m->after_bytes = (uint8_t)strlen(after);
    struct core_answer a = core_call(c, m, sizeof *m, w, bytes);
    free(w);
    return a;
}

struct core_answer core_get_part(struct core_client *c, uint64_t table, const char *key,
                                 uint64_t version, uint32_t offset)
{
    struct pawl_cmd_state_scan m = { .table = table, .version = version, .offset = offset };
    m.op = PAWL_TABLE_GET;
    return scan(c, &m, key, "");
}

struct core_value core_get(struct core_client *c, uint64_t table, const char *key)
{
    struct core_answer a = core_get_part(c, table, key, 0, 0);
    struct core_value v = { .result = a.result };
    if (a.result != PAWL_OK || !a.data)
        return v;
    memcpy(&v.head, a.data, sizeof v.head);
    size_t bytes = a.bytes - sizeof v.head;
    memcpy(v.bytes, a.data + sizeof v.head, bytes < 255 ? bytes : 255);
    return v;
}

struct core_answer core_page(struct core_client *c, uint64_t table, const char *prefix,
                             const char *after, uint32_t max)
{
    struct pawl_cmd_state_scan m = { .table = table, .max = max, .op = PAWL_TABLE_PAGE };
    return scan(c, &m, prefix, after);
}

/* --- reservations ---------------------------------------------------------------------------- */

static struct core_answer reserve(struct core_client *c, struct pawl_cmd_reserve *m, uint64_t id,
                                  const char *key)
{
    uint32_t bytes;
    uint8_t *w = words(key, strlen(key), NULL, 0, &bytes);
    m->head.type = PAWL_CMD_RESERVE;
    m->key_bytes = (uint8_t)strlen(key);
    memcpy(m->id, &id, sizeof id);
    struct core_answer a = core_call(c, m, sizeof *m, w, bytes);
    free(w);
    return a;
}

struct core_answer core_reserve(struct core_client *c, uint64_t table, uint64_t id, const char *key,
                                uint64_t amount, uint64_t ttl_ns)
{
    struct pawl_cmd_reserve m = { .table = table, .amount = amount, .ttl_ns = ttl_ns };
    m.op = PAWL_RESERVE_TAKE;
    return reserve(c, &m, id, key);
}

struct core_answer core_post(struct core_client *c, uint64_t table, uint64_t id, uint64_t amount)
{
    struct pawl_cmd_reserve m = { .table = table, .amount = amount, .op = PAWL_RESERVE_POST };
    return reserve(c, &m, id, "");
}

struct core_answer core_void(struct core_client *c, uint64_t table, uint64_t id)
{
    struct pawl_cmd_reserve m = { .table = table, .op = PAWL_RESERVE_VOID };
    return reserve(c, &m, id, "");
}

struct core_answer core_reservation(struct core_client *c, uint64_t table, uint64_t id,
                                    struct pawl_reservation_data *out)
{
    struct pawl_cmd_state_scan m = { .table = table, .op = PAWL_TABLE_RESERVATION };
    uint8_t w[16] = { 0 };
    memcpy(w, &id, sizeof id);
    m.head.type = PAWL_CMD_STATE_SCAN;
    m.key_bytes = sizeof w;
    struct core_answer a = core_call(c, &m, sizeof m, w, sizeof w);
    memset(out, 0, sizeof *out);
    if (a.result == PAWL_OK && a.bytes == sizeof *out)
        memcpy(out, a.data, sizeof *out);
    return a;
}
