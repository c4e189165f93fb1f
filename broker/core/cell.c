/* SPDX-License-Identifier: MIT */
/* The keys of a table in order: a treap (Seidel and Aragon, "Randomized search trees", 1989/1996),
 * without parent words and without recursion: insertion splits the subtree that the new key heads,
 * deletion merges the two that it leaves. The priority is a hash of the key under the core's secret
 * seed, so the tree is the same whatever the order of the writes, its depth is O(log n) with
 * overwhelming probability, and who chooses keys cannot make it deep. */
#include "core/core_inner.h"

struct pawl_key pawl_cell_key(const struct pawl_core *core, const struct pawl_cell *cell)
{
    return (struct pawl_key){ pawl_payload_at(&core->payload, cell->key), cell->key_bytes };
}

static int order(struct pawl_key a, struct pawl_key b)
{
    int d = memcmp(a.bytes, b.bytes, pawl_min_u64(a.count, b.count));
    return d ? d : (int)a.count - (int)b.count;
}

static int order_cell(const struct pawl_core *core, struct pawl_key key, uint32_t n)
{
    return order(key, pawl_cell_key(core, pawl_cell_at(core, n)));
}

uint32_t pawl_cell_find(const struct pawl_core *core, const struct pawl_core_queue *table,
                        struct pawl_key key)
{
    uint32_t n = table->root;
    while (n) {
        int d = order_cell(core, key, n);
        if (d == 0)
            return n;
        n = d < 0 ? pawl_cell_at(core, n)->left : pawl_cell_at(core, n)->right;
    }
    return 0;
}

uint32_t pawl_cell_after(const struct pawl_core *core, const struct pawl_core_queue *table,
                         struct pawl_key key, bool equal)
{
    uint32_t n = table->root, best = 0;
    while (n) {
        int d = key.count ? order_cell(core, key, n) : -1;
        if (d < 0 || (d == 0 && equal)) {
            best = n;
            n = pawl_cell_at(core, n)->left;
        } else {
            n = pawl_cell_at(core, n)->right;
        }
    }
    return best;
}

void pawl_cell_link(struct pawl_core *core, uint32_t n)
{
    struct pawl_cell *cell = pawl_cell_at(core, n);
    struct pawl_core_queue *table = pawl_core_queue_at(core, cell->table);
    struct pawl_key key = pawl_cell_key(core, cell);
    uint32_t *at = &table->root;
    while (*at) {
        struct pawl_cell *c = pawl_cell_at(core, *at);
        if (c->priority < cell->priority)
            break;
        at = order_cell(core, key, *at) < 0 ? &c->left : &c->right;
    }
    uint32_t tree = *at, *left = &cell->left, *right = &cell->right;
    *at = n;
    while (tree) {
        struct pawl_cell *c = pawl_cell_at(core, tree);
        if (order_cell(core, key, tree) > 0) {
            *left = tree;
            left = &c->right;
            tree = c->right;
        } else {
            *right = tree;
            right = &c->left;
            tree = c->left;
        }
    }
    *left = *right = 0;
    table->keys++;
    table->state_bytes += pawl_cell_content(cell);
}

void pawl_cell_unlink(struct pawl_core *core, uint32_t n)
{
    struct pawl_cell *cell = pawl_cell_at(core, n);
    struct pawl_core_queue *table = pawl_core_queue_at(core, cell->table);
    struct pawl_key key = pawl_cell_key(core, cell);
    uint32_t *at = &table->root;
    while (*at != n) {
        PAWL_ASSERT(*at != 0);
        struct pawl_cell *c = pawl_cell_at(core, *at);
        at = order_cell(core, key, *at) < 0 ? &c->left : &c->right;
    }
    uint32_t left = cell->left, right = cell->right;
    while (left && right) {
        struct pawl_cell *a = pawl_cell_at(core, left), *b = pawl_cell_at(core, right);
        if (a->priority > b->priority) {
            *at = left;
            at = &a->right;
            left = a->right;
        } else {
            *at = right;
            at = &b->left;
            right = b->left;
        }
    }
    *at = left ? left : right;
    cell->left = cell->right = 0;
    table->keys--;
    table->state_bytes -= pawl_cell_content(cell);
}

uint32_t pawl_cell_make(struct pawl_core *core, struct pawl_core_queue *table, struct pawl_key key)
{
    if (!pawl_pool_ready(&core->cells, 1))
        return 0;
    uint32_t block = pawl_payload_take(&core->payload, key.count);
    if (block == 0)
        return 0;
    memcpy(pawl_payload_at(&core->payload, block), key.bytes, key.count);
    uint32_t n = pawl_pool_take(&core->cells);
    struct pawl_cell *cell = pawl_cell_at(core, n);
    uint64_t hash = pawl_hash64(key.bytes, key.count, core->options.hash_seed ^ table->id);
    cell->priority = (uint32_t)hash | 1;
    cell->table = table->number;
    cell->key = block;
    cell->key_bytes = (uint8_t)key.count;
    pawl_cell_link(core, n);
    return n;
}

void pawl_cell_give(struct pawl_core *core, uint32_t n)
{
    struct pawl_cell *cell = pawl_cell_at(core, n);
    PAWL_ASSERT_REL(cell->open, ==, 0);
    pawl_payload_give(&core->payload, cell->key, cell->key_bytes);
    if (cell->value)
        pawl_payload_give(&core->payload, cell->value, cell->value_bytes);
    pawl_core_home_set(core, PAWL_KIND_STATE, n, 0);
    cell->priority = 0;
    pawl_pool_give(&core->cells, n);
}
