/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sim/sim.h"

/* The last lines of the trace are kept for the report of a violation; all of them go into the hash
 * that two runs of one seed must agree on. */

#define NOTES 400u
#define NOTE_BYTES 256u

static void note(struct sim *w, const char *format, va_list args)
{
    static int loud = -1;
    if (loud < 0)
        loud = getenv("PAWL_TRACE") != NULL;
    char *line = w->notes[w->note_count++ % NOTES];
    int n = snprintf(line, NOTE_BYTES, "%" PRIu64 " %" PRIu64 ".%06" PRIu64 " ", w->index,
                     (uint64_t)(w->now.time / SIM_S), (uint64_t)(w->now.time % SIM_S / 1000));
    n += vsnprintf(line + n, NOTE_BYTES - (size_t)n, format, args);
    if (n >= (int)NOTE_BYTES)
        n = NOTE_BYTES - 1;
    w->hash = pawl_hash64(line, (size_t)n, w->hash);
    if (loud)
        fprintf(stderr, "%s\n", line);
    sim_model_watch(w);
}

void sim_note(struct sim *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note(w, format, args);
    va_end(args);
}

void sim_note_dump(struct sim *w)
{
    uint64_t first = w->note_count > NOTES ? w->note_count - NOTES : 0;
    fprintf(stderr, "--- trace (index, pawl time, event), from line %" PRIu64 "\n", first);
    for (uint64_t i = first; i < w->note_count; i++)
        fprintf(stderr, "%s\n", w->notes[i % NOTES]);
}

void sim_fail(struct sim *w, const char *format, ...)
{
    sim_note_dump(w);
    sim_options_print(w);
    fprintf(stderr, "VIOLATION seed %" PRIu64 " at %" PRIu64 ": ", w->seed, w->index);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nagain: PAWL_SEED=%" PRIu64 " PAWL_TRACE=1 sim_test\n", w->seed);
    exit(1);
}

void sim_note_init(struct sim *w)
{
    w->notes = calloc(NOTES, sizeof *w->notes);
    char *all = calloc(NOTES, NOTE_BYTES);
    if (w->notes == NULL || all == NULL)
        abort();
    for (uint32_t i = 0; i < NOTES; i++)
        w->notes[i] = all + (size_t)i * NOTE_BYTES;
}

void sim_note_fini(struct sim *w)
{
    free(w->notes[0]);
    free(w->notes);
}

const char *sim_type_name(uint16_t type)
{
    static const char *const names[PAWL_CMD_TYPES] = {
        [PAWL_CMD_SEND] = "send",
        [PAWL_CMD_RECEIVE] = "receive",
        [PAWL_CMD_SUBSCRIBE] = "sub",
        [PAWL_CMD_STOP] = "stop",
        [PAWL_CMD_ACK] = "ack",
        [PAWL_CMD_NACK] = "nack",
        [PAWL_CMD_RELEASE] = "release",
        [PAWL_CMD_REJECT] = "reject",
        [PAWL_CMD_DEFER] = "defer",
        [PAWL_CMD_RENEW] = "renew",
        [PAWL_CMD_ACK_ID] = "ack_id",
        [PAWL_CMD_CANCEL] = "cancel",
        [PAWL_CMD_RESTORE] = "restore",
        [PAWL_CMD_QUEUE_FIND] = "find",
        [PAWL_CMD_QUEUE_CREATE] = "create",
        [PAWL_CMD_QUEUE_ALTER] = "alter",
        [PAWL_CMD_QUEUE_DROP] = "drop",
        [PAWL_CMD_QUEUE_PAUSE] = "pause",
        [PAWL_CMD_QUEUE_RESUME] = "resume",
        [PAWL_CMD_QUEUE_PURGE] = "purge",
        [PAWL_CMD_QUEUE_STAT] = "stat",
        [PAWL_CMD_QUEUE_LIST] = "list",
        [PAWL_CMD_SCAN] = "scan",
        [PAWL_CMD_PEEK] = "peek",
        [PAWL_CMD_METRICS] = "metrics",
        [PAWL_CMD_STATE] = "state",
        [PAWL_CMD_STATE_SCAN] = "state_scan",
        [PAWL_CMD_RESERVE] = "reserve",
        [PAWL_CMD_IDEM] = "idem",
    };
    return type < PAWL_CMD_TYPES && names[type] ? names[type] : "?";
}

void *sim_grow(void *array, uint32_t *capacity, uint32_t count, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 16;
    void *bigger = realloc(array, *capacity * size);
    if (bigger == NULL)
        abort();
    return bigger;
}

/* --- map: open addressing, grows by doubling, never removes --- */

struct slot {
    uint64_t key;
    void *value;
};
struct sim_map {
    struct slot *slots;
    uint32_t capacity, count;
};

struct sim_map *sim_map_create(void)
{
    struct sim_map *map = calloc(1, sizeof *map);
    if (map == NULL)
        abort();
    map->capacity = 256;
    map->slots = calloc(map->capacity, sizeof *map->slots);
    if (map->slots == NULL)
        abort();
    return map;
}

void sim_map_destroy(struct sim_map *map, void (*destroy)(void *))
{
    for (uint32_t i = 0; destroy != NULL && i < map->capacity; i++)
        if (map->slots[i].value != NULL)
            destroy(map->slots[i].value);
    free(map->slots);
    free(map);
}

static struct slot *find(const struct sim_map *map, uint64_t key)
{
    uint32_t i = (uint32_t)pawl_hash_u64(key) & (map->capacity - 1);
    while (map->slots[i].value != NULL && map->slots[i].key != key)
        i = (i + 1) & (map->capacity - 1);
    return &map->slots[i];
}

void sim_map_put(struct sim_map *map, uint64_t key, void *value)
{
    struct slot *s = find(map, key);
    if (s->value == NULL && ++map->count * 2 > map->capacity) {
        struct sim_map old = *map;
        map->capacity *= 2;
        map->slots = calloc(map->capacity, sizeof *map->slots);
        if (map->slots == NULL)
            abort();
        for (uint32_t i = 0; i < old.capacity; i++)
            if (old.slots[i].value != NULL)
                *find(map, old.slots[i].key) = old.slots[i];
        free(old.slots);
        s = find(map, key);
    }
    s->key = key;
    s->value = value;
}

void *sim_map_get(const struct sim_map *map, uint64_t key) { return find(map, key)->value; }
