/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_CORE_STATE_H
#define PAWL_TESTS_CORE_STATE_H

/* Commands of tables and reservations for the shell of core_shell.h. Keys and values are text. */

#include "lib/core_shell.h"

struct core_answer core_put(struct core_client *c, uint64_t table, const char *key,
                            const char *value);
struct core_answer core_put_if(struct core_client *c, uint64_t table, const char *key,
                               const char *value, uint64_t version);
struct core_answer core_put_number(struct core_client *c, uint64_t table, const char *key,
                                   int64_t number);
struct core_answer core_delete(struct core_client *c, uint64_t table, const char *key);
struct core_answer core_delete_if(struct core_client *c, uint64_t table, const char *key,
                                  uint64_t version);
struct core_answer core_add(struct core_client *c, uint64_t table, const char *key, int64_t number,
                            int64_t min, int64_t max);
struct core_answer core_assert(struct core_client *c, uint64_t table, uint8_t op, const char *key,
                               uint64_t version, int64_t number);

struct core_value {
    int result;
    struct pawl_state_data head;
    char bytes[256]; /* of a short value, with a NUL */
};
struct core_value core_get(struct core_client *c, uint64_t table, const char *key);
struct core_answer core_get_part(struct core_client *c, uint64_t table, const char *key,
                                 uint64_t version, uint32_t offset);
struct core_answer core_page(struct core_client *c, uint64_t table, const char *prefix,
                             const char *after, uint32_t max);

/* id: the first bytes of the 128-bit one. */
struct core_answer core_reserve(struct core_client *c, uint64_t table, uint64_t id, const char *key,
                                uint64_t amount, uint64_t ttl_ns);
struct core_answer core_post(struct core_client *c, uint64_t table, uint64_t id, uint64_t amount);
struct core_answer core_void(struct core_client *c, uint64_t table, uint64_t id);
struct core_answer core_reservation(struct core_client *c, uint64_t table, uint64_t id,
                                    struct pawl_reservation_data *out);

#endif
