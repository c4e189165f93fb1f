/* SPDX-License-Identifier: MIT */
/* STATE_SCAN: what only reads of tables: get, page, reservation. Answered at the newest state,
 * shown when all of that is durable (G11). One page is bounded by its bytes and by
 * PAWL_STATE_PAGE_MAX keys, each found in O(log n): no cursor is kept here. Of a value that needs
 * several answers the lane keeps a copy, as it was, until it has been asked for or another such
 * value is: so it is read whole however often it is written. Then digest and invariants. */
#include "core/core_inner.h"

static void refuse(struct pawl_take *t, int result, uint64_t value)
{
    pawl_core_take_answer(t, result, value, pawl_core_appended(t->core));
}

static uint8_t *buffer(struct pawl_take *t, uint32_t bytes, uint32_t *block)
{
    uint8_t *data = NULL;
    *block = pawl_core_data_buffer(t->core, bytes, &data);
    if (*block == 0)
        refuse(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY);
    return data;
}

static void answer(struct pawl_take *t, uint32_t block, uint32_t bytes, uint64_t value)
{
    pawl_core_data_shrink(t->core, block, bytes);
    pawl_core_lane_answer_data(t->core, t->lane, t->seq, block, bytes, value,
#ifdef PAWL_BUG_STATE_READ_EARLY
                               0);
#else
                               pawl_core_appended(t->core));
#endif
}

static struct pawl_state_data head_of(const struct pawl_cell *cell)
{
    return (struct pawl_state_data){
        .version = cell->version,
        .number = cell->counts.available,
        .reserved = cell->counts.reserved,
        .posted = cell->counts.posted,
        .value_bytes = cell->kind == PAWL_VALUE_NUMBER ? 8 : cell->value_bytes,
        .kind = cell->kind,
        .key_bytes = cell->key_bytes,
    };
}

void pawl_core_value_drop(struct pawl_core *core, struct pawl_core_lane *lane)
{
    if (lane->value_block)
        pawl_payload_give(&core->payload, lane->value_block, lane->value_bytes);
    lane->value_block = 0;
}

/* Where there is no memory for it a later part of a value that was written meanwhile is refused,
 * and its reader begins anew. */
static void keep_value(struct pawl_core *core, struct pawl_core_lane *lane,
                       const struct pawl_cell *cell)
{
    pawl_core_value_drop(core, lane);
#ifdef PAWL_BUG_VALUE_NOT_KEPT
    return;
#endif
    uint32_t bytes = (uint32_t)sizeof(struct pawl_state_data) + cell->value_bytes;
    lane->value_block = pawl_payload_take(&core->payload, bytes);
    if (lane->value_block == 0)
        return;
    struct pawl_state_data head = head_of(cell);
    uint8_t *to = pawl_payload_at(&core->payload, lane->value_block);
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, pawl_payload_at(&core->payload, cell->value), cell->value_bytes);
    lane->value_bytes = bytes;
    lane->value_version = cell->version;
}

/* A part of a value; false: it was not the last one. */
static bool show(struct pawl_take *t, const struct pawl_state_data *head, const uint8_t *value,
                 uint32_t value_bytes)
{
    const struct pawl_cmd_state_scan *c = t->fixed;
    uint64_t left = c->offset < value_bytes ? value_bytes - c->offset : 0;
    uint32_t bytes = (uint32_t)pawl_min_u64(left, PAWL_DATA_BYTES_MAX - sizeof *head), block;
    uint8_t *data = buffer(t, (uint32_t)sizeof *head + bytes, &block);
    if (!data)
        return true;
    memcpy(data, head, sizeof *head);
    if (bytes)
        memcpy(data + sizeof *head, value + c->offset, bytes);
    answer(t, block, (uint32_t)sizeof *head + bytes, head->version);
    return bytes == left;
}

/* A version is of one value of one key, for ever. */
static void show_kept(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_state_data head;
    const uint8_t *kept = pawl_payload_at(&core->payload, t->lane->value_block);
    memcpy(&head, kept, sizeof head);
    if (show(t, &head, kept + sizeof head, t->lane->value_bytes - (uint32_t)sizeof head))
        pawl_core_value_drop(core, t->lane);
}

static void get(struct pawl_take *t, const struct pawl_cmd_state_scan *c,
                const struct pawl_core_queue *table, struct pawl_key key)
{
    struct pawl_core *core = t->core;
    uint32_t n = pawl_cell_find(core, table, key);
    const struct pawl_cell *cell = n ? pawl_cell_at(core, n) : NULL;
    if (c->version && t->lane->value_block && t->lane->value_version == c->version) {
        show_kept(t);
        return;
    }
    if (c->version && (!cell || cell->version != c->version)) {
        refuse(t, PAWL_E_CONFLICT, cell ? cell->version : 0);
        return;
    }
    if (!cell) {
        refuse(t, PAWL_OK_MISSING, 0);
        return;
    }
    struct pawl_state_data head = head_of(cell);
    const uint8_t *value = cell->value_bytes ? pawl_payload_at(&core->payload, cell->value) : NULL;
    if (!show(t, &head, value, cell->value_bytes) && c->version == 0)
        keep_value(core, t->lane, cell);
}

static bool begins_with(struct pawl_key key, struct pawl_key prefix)
{
    return key.count >= prefix.count &&
           (prefix.count == 0 || memcmp(key.bytes, prefix.bytes, prefix.count) == 0);
}

static void page(struct pawl_take *t, const struct pawl_cmd_state_scan *c,
                 const struct pawl_core_queue *table, struct pawl_key prefix, struct pawl_key after)
{
    struct pawl_core *core = t->core;
    if (c->max == 0 || c->max > PAWL_STATE_PAGE_MAX) {
        refuse(t, PAWL_E_INVALID, 0);
        return;
    }
    uint32_t block, used = 0, count = 0;
    uint8_t *data = buffer(t, PAWL_DATA_BYTES_MAX, &block);
    if (!data)
        return;
    uint32_t n = after.count ? pawl_cell_after(core, table, after, false)
                             : pawl_cell_after(core, table, prefix, true);
    for (; n && count < c->max; count++) {
        const struct pawl_cell *cell = pawl_cell_at(core, n);
        struct pawl_key key = pawl_cell_key(core, cell);
        struct pawl_state_data head = head_of(cell);
        uint32_t bytes = (uint32_t)pawl_align_up(sizeof head + key.count, 8);
        if (!begins_with(key, prefix) || used + bytes > PAWL_DATA_BYTES_MAX)
            break;
        memset(data + used + bytes - 8, 0, 8);
        memcpy(data + used, &head, sizeof head);
        memcpy(data + used + sizeof head, key.bytes, key.count);
        used += bytes;
        n = pawl_cell_after(core, table, key, false);
    }
    answer(t, block, used, count);
}

static void reservation(struct pawl_take *t, const struct pawl_core_queue *table,
                        const uint8_t id[16])
{
    struct pawl_core *core = t->core;
    uint32_t n = pawl_core_reservation_current(core, table, id);
    if (n == 0) {
        refuse(t, PAWL_E_RES_NOT_FOUND, 0);
        return;
    }
    const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
    struct pawl_reservation_data d = {
        .amount = r->amount,
        .posted = r->posted,
        .left_ns = r->end > core->now.time ? r->end - core->now.time : 0,
        .state = r->state,
    };
    if (r->cell) {
        struct pawl_key key = pawl_cell_key(core, pawl_cell_at(core, r->cell));
        d.key_bytes = key.count;
        memcpy(d.key, key.bytes, key.count);
    }
    uint32_t block;
    uint8_t *data = buffer(t, sizeof d, &block);
    if (!data)
        return;
    memcpy(data, &d, sizeof d);
    answer(t, block, sizeof d, r->state);
}

void pawl_core_state_scan_take(struct pawl_take *t)
{
    const struct pawl_cmd_state_scan *c = t->fixed;
    uint8_t words[2 * PAWL_KEY_BYTES_MAX];
    int result;
    const struct pawl_core_queue *table =
        pawl_core_table_for(t->core, &t->session->peer, c->table, PAWL_RIGHT_RECEIVE, &result);
    if (!table) {
        refuse(t, result, 0);
        return;
    }
    /* Out of memory that the client may be changing: read once. */
    memcpy(words, t->variable, (size_t)c->key_bytes + c->after_bytes);
    struct pawl_key key = { words, c->key_bytes };
    struct pawl_key after = { words + c->key_bytes, c->after_bytes };
    if (c->op == PAWL_TABLE_GET && key.count)
        get(t, c, table, key);
    else if (c->op == PAWL_TABLE_PAGE)
        page(t, c, table, key, after);
    else if (c->op == PAWL_TABLE_RESERVATION && key.count == 16)
        reservation(t, table, key.bytes);
    else
        refuse(t, PAWL_E_INVALID, 0);
}

/* --- digest ---------------------------------------------------------------------------------- */

static uint64_t digest_cell(const struct pawl_core *core, const struct pawl_cell *cell)
{
    struct pawl_key key = pawl_cell_key(core, cell);
    const void *value = cell->value ? pawl_payload_at(&core->payload, cell->value) : NULL;
    const uint64_t words[] = {
        pawl_core_queue_at(core, cell->table)->id,
        cell->kind,
        cell->version,
        (uint64_t)cell->counts.available,
        (uint64_t)cell->counts.reserved,
        (uint64_t)cell->counts.posted,
        (uint64_t)cell->counts.granted,
        cell->open,
        pawl_hash64(key.bytes, key.count, 1),
        pawl_hash64(value, cell->value_bytes, 1),
    };
    return pawl_hash64(words, sizeof words, core->options.hash_seed);
}

static uint64_t digest_reservation(const struct pawl_core *core,
                                   const struct pawl_core_reservation *r)
{
    bool open = r->state == PAWL_RESERVATION_OPEN;
    if (!open && r->end <= core->now.time)
        return 0; /* may be forgotten at any time */
    uint64_t words[9] = {
        pawl_core_queue_at(core, r->table)->id, r->state, r->amount, r->posted, r->end, r->key_hash
    };
    memcpy(words + 6, r->id, sizeof r->id);
    if (open) {
        struct pawl_key key = pawl_cell_key(core, pawl_cell_at(core, r->cell));
        words[8] = pawl_hash64(key.bytes, key.count, 1);
    }
    return pawl_hash64(words, sizeof words, core->options.hash_seed);
}

uint64_t pawl_core_state_digest(const struct pawl_core *core)
{
    uint64_t sum = 0;
    for (uint32_t n = 1; n < core->cells.never_used; n++) {
        const struct pawl_cell *cell = pawl_cell_at(core, n);
        if (cell->priority && !pawl_core_queue_at(core, cell->table)->gone)
            sum += digest_cell(core, cell);
    }
    for (uint32_t n = 1; n < core->reservations.never_used; n++) {
        const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
        if (r->table && !pawl_core_queue_at(core, r->table)->gone)
            sum += digest_reservation(core, r);
    }
    return sum;
}

/* --- invariants ------------------------------------------------------------------------------ */

static uint64_t verify_table(const struct pawl_core *core, const struct pawl_core_queue *table)
{
    uint64_t live = 0, bytes = 0;
    uint32_t count = 0;
    uint8_t last[PAWL_KEY_BYTES_MAX];
    struct pawl_key key = { last, 0 };
    for (uint32_t n; (n = pawl_cell_after(core, table, key, false)) != 0; count++) {
        const struct pawl_cell *cell = pawl_cell_at(core, n);
        PAWL_ASSERT_REL(cell->table, ==, table->number);
        PAWL_ASSERT_REL(cell->priority, !=, 0);
        PAWL_ASSERT(pawl_core_counts_hold(&cell->counts));
        PAWL_ASSERT(cell->home.segment != 0 || table->gone || cell->kind == PAWL_VALUE_NONE);
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t child = i ? cell->right : cell->left;
            PAWL_ASSERT(child == 0 || pawl_cell_at(core, child)->priority <= cell->priority);
        }
        key = pawl_cell_key(core, cell);
        memcpy(last, key.bytes, key.count);
        key.bytes = last;
        bytes += pawl_cell_content(cell);
        if (cell->kind != PAWL_VALUE_NONE)
            live += pawl_core_cell_fact_bytes(core, n) + PAWL_RECORD_HEAD;
    }
    PAWL_ASSERT_REL(count, ==, table->keys);
    PAWL_ASSERT_REL(bytes, ==, table->state_bytes);
    return live;
}

uint64_t pawl_core_state_verify(const struct pawl_core *core)
{
    uint64_t live = 0, keys = 0, cells = 0, open = 0, opened = 0, reserved = 0, in_cells = 0;
    for (uint32_t n = 1; n < core->queues.never_used; n++)
        if (pawl_core_queue_at(core, n)->number == n) {
            live += verify_table(core, pawl_core_queue_at(core, n));
            keys += pawl_core_queue_at(core, n)->keys;
        }
    for (uint32_t n = 1; n < core->cells.never_used; n++) {
        const struct pawl_cell *cell = pawl_cell_at(core, n);
        if (cell->priority == 0)
            continue;
        cells++;
        open += cell->open;
        if (pawl_cell_stands(core, n))
            in_cells += (uint64_t)cell->counts.reserved;
    }
    for (uint32_t n = 1; n < core->reservations.never_used; n++) {
        const struct pawl_core_reservation *r = pawl_core_reservation_at(core, n);
        if (r->table == 0)
            continue;
        bool is_open = r->state == PAWL_RESERVATION_OPEN;
        PAWL_ASSERT_REL((r->cell != 0), ==, is_open);
        PAWL_ASSERT_REL(r->in_row, ==, !is_open);
        PAWL_ASSERT(!core->started || !is_open || r->end == 0 ||
                    pawl_core_queue_at(core, r->table)->gone ||
                    pawl_timer_armed(&core->wheel, r->timer));
        opened += is_open;
        reserved += is_open && pawl_cell_stands(core, r->cell) ? r->amount : 0;
        live += pawl_core_reservation_fact_bytes(core, n) + PAWL_RECORD_HEAD;
    }
    PAWL_ASSERT_REL(keys, ==, cells);
    PAWL_ASSERT_REL(open, ==, opened);
    /* While records are read, a fact of an open one may stand before that of its number. */
    PAWL_ASSERT(!core->started || reserved == in_cells);
    PAWL_ASSERT_REL(core->cells.used, ==, cells);
    return live;
}
