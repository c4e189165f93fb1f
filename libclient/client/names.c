/* SPDX-License-Identifier: MIT */
/* Queues by name and by number. A lane remembers what it has asked, so that a send by name costs a
 * string comparison; a queue that was dropped and made again has another number, and the first call
 * that is told E_QUEUE_GONE asks anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/options.h"
#include "base/hash.h"
#include "client/lane.h"

void pawl_queue_doubt(struct pawl *lane) { lane->names++; }

void pawl_queue_doubt_last(struct pawl *lane)
{
    if (lane->last_ref)
        lane->last_ref->generation = lane->names - 1;
}

static struct pawl_queue_ref **id_bucket(struct pawl *lane, uint64_t id)
{
    return &lane->ids_table[pawl_hash_u64(id) & (PAWL_REF_BUCKETS - 1)];
}
static struct pawl_queue_ref **name_bucket(struct pawl *lane, uint64_t hash)
{
    return &lane->names_table[hash & (PAWL_REF_BUCKETS - 1)];
}

static void unlink_name(struct pawl *lane, struct pawl_queue_ref *q)
{
    for (struct pawl_queue_ref **at = name_bucket(lane, q->hash); *at; at = &(*at)->by_name)
        if (*at == q) {
            *at = q->by_name;
            return;
        }
}
/* Forgets the queues that nothing refers to. */
static void forget_some(struct pawl *lane)
{
    for (uint32_t b = 0; b < PAWL_REF_BUCKETS; b++) {
        struct pawl_queue_ref **at = &lane->ids_table[b];
        while (*at) {
            struct pawl_queue_ref *q = *at;
            /* The program may still look at the name of a message of the last receive. */
            bool shown = q->handed == lane->receives && lane->handed;
            bool waited_for = false;
            for (uint64_t i = lane->entry_head; i != lane->entry_tail && !waited_for; i++)
                waited_for = pawl_entry_at(lane, i)->state != PAWL_ENTRY_FREE &&
                             pawl_entry_at(lane, i)->queue == q;
            if (q->subscription || shown || waited_for) {
                at = &q->by_id;
                continue;
            }
            *at = q->by_id;
            if (q->name[0])
                unlink_name(lane, q);
            lane->ref_count--;
            lane->news_queues -= q->news;
            free(q);
        }
    }
    lane->last_ref = NULL;
    lane->last_delivery = NULL;
}

static struct pawl_queue_ref *find_id(struct pawl *lane, uint64_t id)
{
    struct pawl_queue_ref *q = *id_bucket(lane, id);
    while (q && q->id != id)
        q = q->by_id;
    return q;
}

struct pawl_queue_ref *pawl_queue_by_id(struct pawl *lane, uint64_t id)
{
    struct pawl_queue_ref *q = find_id(lane, id);
    if (q)
        return q;
    if (lane->ref_count >= PAWL_REFS_MAX)
        forget_some(lane);
    q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->id = id;
    for (int i = 0; i < 2; i++)
        q->lines[i].first = q->lines[i].last = PAWL_NO_ENTRY;
    q->by_id = *id_bucket(lane, id);
    *id_bucket(lane, id) = q;
    lane->ref_count++;
    return q;
}

/* The broker says that `name` has number `id`. */
static struct pawl_queue_ref *learn(struct pawl *lane, const char *name, uint64_t hash,
                                    struct pawl_queue_ref *known, uint64_t id, uint32_t mode)
{
    if (known && known->id == id) {
        known->mode = mode;
        known->generation = lane->names;
        return known;
    }
    struct pawl_queue_ref *q = pawl_queue_by_id(lane, id);
    if (!q)
        return NULL;
    /* Another queue under this name: what came from the old one keeps showing its name, but the
     * name no longer leads there. by_id may have made room, so `known` is looked for again. */
    for (struct pawl_queue_ref **at = name_bucket(lane, hash); *at; at = &(*at)->by_name)
        if ((*at)->hash == hash && strcmp((*at)->name, name) == 0 && *at != q) {
            *at = (*at)->by_name;
            break;
        }
    if (q->name[0])
        unlink_name(lane, q);
    q->hash = hash;
    q->mode = mode;
    (void)strncpy(q->name, name, PAWL_NAME_BYTES_MAX);
    q->by_name = *name_bucket(lane, hash);
    *name_bucket(lane, hash) = q;
    q->generation = lane->names;
    return q;
}

static int ask(struct pawl *lane, const char *name, uint64_t until, uint64_t *id, uint32_t *mode)
{
    int rc;
    pawl_op_single(lane);
    struct pawl_cmd_queue *c =
        pawl_op_claim(lane, PAWL_CMD_QUEUE_FIND, sizeof *c, PAWL_OP_PLAIN, until, &rc);
    if (!c)
        return rc;
    memset((uint8_t *)c + sizeof c->head, 0, sizeof *c - sizeof c->head);
    (void)strncpy(c->name, name, PAWL_NAME_BYTES_MAX);
    rc = pawl_op_result(lane, until, name);
    *id = lane->one.value;
    *mode = lane->one.state;
    /* Whatever became of the question, the call that asked it was not submitted. */
#ifndef PAWL_BUG_LOOKUP_UNKNOWN
    if (rc != PAWL_OK)
        pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
#endif
    if (rc == PAWL_OK && *id == PAWL_NO_QUEUE)
        return pawl_lane_breach(lane, "a queue without number");
    return rc;
}

int pawl_queue_find(struct pawl *lane, const char *name, uint64_t until,
                    struct pawl_queue_ref **out)
{
    struct pawl_queue_ref *q = lane->last_ref;
    uint64_t id;
    uint32_t mode = 0;
    if (PAWL_LIKELY(q && name && strcmp(q->name, name) == 0 && q->generation == lane->names)) {
        *out = q;
        return PAWL_OK;
    }
    if (!pawl_name_valid(name))
        return pawl_call_refuse(lane, PAWL_E_INVALID, PAWL_NAME_TEXT);
    uint64_t hash = pawl_hash64(name, strlen(name), 0);
    for (q = *name_bucket(lane, hash); q; q = q->by_name)
        if (q->hash == hash && strcmp(q->name, name) == 0)
            break;
    if (!q || q->generation != lane->names) {
        int rc = ask(lane, name, until, &id, &mode);
        if (rc != PAWL_OK)
            return rc;
        /* Deliveries read meanwhile may have made the lane forget queues. */
        for (q = *name_bucket(lane, hash); q; q = q->by_name)
            if (q->hash == hash && strcmp(q->name, name) == 0)
                break;
        q = learn(lane, name, hash, q, id, mode);
        if (!q)
            return pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory for another queue");
    }
    lane->last_ref = q;
    *out = q;
    return PAWL_OK;
}

int pawl_queue_find_to_use(struct pawl *lane, const char *name, uint64_t until,
                           struct pawl_queue_ref **out)
{
    int rc = pawl_queue_find(lane, name, until, out);
    if (PAWL_UNLIKELY(rc == PAWL_E_NOT_FOUND)) {
        size_t n = strlen(lane->text);
        (void)snprintf(lane->text + n, sizeof lane->text - n, "; `pawl create %s` makes it", name);
    }
    return rc;
}

void pawl_queues_free(struct pawl *lane)
{
    for (uint32_t b = 0; lane->ids_table && b < PAWL_REF_BUCKETS; b++)
        for (struct pawl_queue_ref *q = lane->ids_table[b], *next; q; q = next) {
            next = q->by_id;
            free(q);
        }
    free(lane->ids_table);
    free(lane->names_table);
    lane->ids_table = lane->names_table = NULL;
}
