/* SPDX-License-Identifier: MIT */
/* Create, destroy, the dispatcher of commands, the turn. */
#include "core/core_inner.h"

#define SEND_RESERVE_MIN (8ull << 20)
#define SWEEP_A_TURN 4096u
#define PURGE_ROOM 8192u

/* --- create, destroy ------------------------------------------------------------------------- */

static int init(struct pawl_core *c)
{
    struct pawl_budget *b = &c->budget;
    if (pawl_pool_init(&c->messages, b, sizeof(struct pawl_core_message), PAWL_MESSAGES_SHIFT) !=
            0 ||
        pawl_pool_init(&c->queues, b, sizeof(struct pawl_core_queue), PAWL_QUEUES_SHIFT) != 0 ||
        pawl_pool_init(&c->leases, b, sizeof(struct pawl_core_lease), PAWL_LEASES_SHIFT) != 0 ||
        pawl_pool_init(&c->sessions, b, sizeof(struct pawl_core_session), PAWL_SESSIONS_SHIFT) !=
            0 ||
        pawl_pool_init(&c->lanes, b, sizeof(struct pawl_core_lane), PAWL_LANES_SHIFT) != 0 ||
        pawl_pool_init(&c->waiters, b, sizeof(struct pawl_core_waiter), PAWL_WAITERS_SHIFT) != 0 ||
        pawl_pool_init(&c->purges, b, sizeof(struct pawl_core_purge), 7) != 0 ||
        pawl_pool_init(&c->scans, b, sizeof(struct pawl_core_scan), 7) != 0 ||
        pawl_pool_init(&c->orders, b, sizeof(struct pawl_core_order), PAWL_ORDERS_SHIFT) != 0 ||
        pawl_pool_init(&c->cells, b, sizeof(struct pawl_cell), PAWL_CELLS_SHIFT) != 0 ||
        pawl_pool_init(&c->reservations, b, sizeof(struct pawl_core_reservation),
                       PAWL_RESERVATIONS_SHIFT) != 0 ||
        pawl_pool_init(&c->idems, b, sizeof(struct pawl_core_idem), PAWL_IDEMS_SHIFT) != 0 ||
        pawl_pool_init(&c->watches, b, sizeof(struct pawl_core_watch), PAWL_WATCHES_SHIFT) != 0)
        return -1;
    if (pawl_table_init(&c->messages_by_id, b, &c->messages, offsetof(struct pawl_core_message, id),
                        offsetof(struct pawl_core_message, chain)) != 0 ||
        pawl_table_init(&c->queues_by_id, b, &c->queues, offsetof(struct pawl_core_queue, id),
                        offsetof(struct pawl_core_queue, chain)) != 0 ||
        pawl_table_init(&c->sessions_by_id, b, &c->sessions, offsetof(struct pawl_core_session, id),
                        offsetof(struct pawl_core_session, chain)) != 0 ||
        pawl_table_init(&c->orders_by_id, b, &c->orders, offsetof(struct pawl_core_order, id),
                        offsetof(struct pawl_core_order, chain)) != 0 ||
        pawl_table_init(&c->reservations_by_id, b, &c->reservations,
                        offsetof(struct pawl_core_reservation, hash),
                        offsetof(struct pawl_core_reservation, chain)) != 0 ||
        pawl_table_init(&c->idems_by_id, b, &c->idems, offsetof(struct pawl_core_idem, id),
                        offsetof(struct pawl_core_idem, chain)) != 0 ||
        pawl_table_init(&c->watches_by_message, b, &c->watches,
                        offsetof(struct pawl_core_watch, id),
                        offsetof(struct pawl_core_watch, chain)) != 0)
        return -1;
    if (pawl_core_ledger_init(c) != 0)
        return -1;
    if (pawl_payload_init(&c->payload, b) != 0 || pawl_wheel_init(&c->wheel, b, 0) != 0)
        return -1;
    c->homes = c->port.memory_map(c->port.ctx, PAWL_HOME_SLOTS * sizeof *c->homes);
    c->names = c->port.memory_map(c->port.ctx, PAWL_QUEUES_MAX * sizeof *c->names);
    c->scan_ids = c->port.memory_map(c->port.ctx, PAWL_CORE_SCAN_BYTES);
    return c->homes && c->names && c->scan_ids ? 0 : -1;
}

struct pawl_core *pawl_core_create(const struct pawl_core_options *options,
                                   const struct pawl_core_port *port)
{
    PAWL_ASSERT(pawl_is_pow2(options->segment_bytes));
    struct pawl_core *c = port->memory_map(port->ctx, sizeof *c);
    if (!c)
        return NULL;
    c->options = *options;
    c->port = *port;
    c->budget = (struct pawl_budget){ port->memory_map, port->memory_unmap, port->ctx, 0,
                                      UINT64_MAX,       port->memory_touch };
    c->tombstones_max = options->memory_bytes / 4 / sizeof(struct pawl_core_message);
    c->segment_shift = (uint32_t)__builtin_ctzll(options->segment_bytes);
    uint64_t reserve = pawl_max_u64(options->memory_bytes / 16, SEND_RESERVE_MIN);
    c->memory_sends = options->memory_bytes > 2 * reserve ? options->memory_bytes - reserve
                                                          : options->memory_bytes / 2;
    if (init(c) == 0)
        return c;
    pawl_core_destroy(c);
    return NULL;
}

void pawl_core_destroy(struct pawl_core *core)
{
    if (!core)
        return;
    const struct pawl_core_port port = core->port;
    pawl_wheel_fini(&core->wheel);
    pawl_payload_fini(&core->payload);
    pawl_core_ledger_fini(core);
    pawl_table_fini(&core->messages_by_id);
    pawl_table_fini(&core->queues_by_id);
    pawl_table_fini(&core->sessions_by_id);
    pawl_table_fini(&core->orders_by_id);
    pawl_table_fini(&core->reservations_by_id);
    pawl_table_fini(&core->idems_by_id);
    pawl_table_fini(&core->watches_by_message);
    pawl_pool_fini(&core->messages);
    pawl_pool_fini(&core->queues);
    pawl_pool_fini(&core->leases);
    pawl_pool_fini(&core->sessions);
    pawl_pool_fini(&core->lanes);
    pawl_pool_fini(&core->waiters);
    pawl_pool_fini(&core->purges);
    pawl_pool_fini(&core->scans);
    pawl_pool_fini(&core->orders);
    pawl_pool_fini(&core->cells);
    pawl_pool_fini(&core->reservations);
    pawl_pool_fini(&core->idems);
    pawl_pool_fini(&core->watches);
    if (core->homes)
        port.memory_unmap(port.ctx, core->homes, PAWL_HOME_SLOTS * sizeof *core->homes);
    if (core->names)
        port.memory_unmap(port.ctx, core->names, PAWL_QUEUES_MAX * sizeof *core->names);
    if (core->scan_ids)
        port.memory_unmap(port.ctx, core->scan_ids, PAWL_CORE_SCAN_BYTES);
    port.memory_unmap(port.ctx, core, sizeof *core);
}

/* Of an older epoch nobody knows how far it counted: then it may have been given, and is taken for
 * forgotten rather than for never given. */
bool pawl_core_id_given(const struct pawl_core *core, uint64_t id)
{
    uint64_t epoch = id >> PAWL_EPOCH_SHIFT;
    uint64_t counter = id & ((1ull << PAWL_EPOCH_SHIFT) - 1);
    if (counter == 0 || epoch == 0 || epoch > core->options.epoch)
        return false;
#ifdef PAWL_BUG_FORGOTTEN_NOT_FOUND
    return epoch == core->options.epoch && counter <= core->next_id;
#endif
    return epoch < core->options.epoch || counter <= core->next_id;
}

/* --- commands: sizes ------------------------------------------------------------------------- */

static const uint16_t fixed_bytes[PAWL_CMD_TYPES] = {
    [PAWL_CMD_SEND] = sizeof(struct pawl_cmd_send),
    [PAWL_CMD_RECEIVE] = sizeof(struct pawl_cmd_receive),
    [PAWL_CMD_SUBSCRIBE] = sizeof(struct pawl_cmd_receive),
    [PAWL_CMD_STOP] = sizeof(struct pawl_cmd_one),
    [PAWL_CMD_ACK] = sizeof(struct pawl_cmd_settle),
    [PAWL_CMD_NACK] = sizeof(struct pawl_cmd_settle),
    [PAWL_CMD_RELEASE] = sizeof(struct pawl_cmd_settle),
    [PAWL_CMD_REJECT] = sizeof(struct pawl_cmd_settle),
    [PAWL_CMD_DEFER] = sizeof(struct pawl_cmd_settle),
    [PAWL_CMD_RENEW] = sizeof(struct pawl_cmd_settle),
    [PAWL_CMD_ACK_ID] = sizeof(struct pawl_cmd_message),
    [PAWL_CMD_CANCEL] = sizeof(struct pawl_cmd_message),
    [PAWL_CMD_RESTORE] = sizeof(struct pawl_cmd_message),
    [PAWL_CMD_QUEUE_FIND] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_CREATE] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_ALTER] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_DROP] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_PAUSE] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_RESUME] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_PURGE] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_STAT] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_QUEUE_LIST] = sizeof(struct pawl_cmd_queue),
    [PAWL_CMD_SCAN] = sizeof(struct pawl_cmd_scan),
    [PAWL_CMD_PEEK] = sizeof(struct pawl_cmd_message),
    [PAWL_CMD_METRICS] = sizeof(struct pawl_cmd_one),
    [PAWL_CMD_STATE] = sizeof(struct pawl_cmd_state),
    [PAWL_CMD_STATE_SCAN] = sizeof(struct pawl_cmd_state_scan),
    [PAWL_CMD_RESERVE] = sizeof(struct pawl_cmd_reserve),
    [PAWL_CMD_TXN] = sizeof(struct pawl_cmd_txn),
    [PAWL_CMD_RESOLVE] = sizeof(struct pawl_cmd_resolve),
    [PAWL_CMD_IDEM] = sizeof(struct pawl_cmd_idem),
    [PAWL_CMD_QUERY] = sizeof(struct pawl_cmd_query),
    [PAWL_CMD_WAIT] = sizeof(struct pawl_cmd_wait),
    [PAWL_CMD_KEEP] = sizeof(struct pawl_cmd_one),
};

uint32_t pawl_core_fixed_bytes(uint16_t type)
{
    return type < PAWL_CMD_TYPES ? fixed_bytes[type] : 0;
}

static bool answers_with_data(uint16_t type)
{
    return type == PAWL_CMD_QUEUE_STAT || type == PAWL_CMD_QUEUE_LIST || type == PAWL_CMD_SCAN ||
           type == PAWL_CMD_PEEK || type == PAWL_CMD_METRICS || type == PAWL_CMD_RESOLVE ||
           type == PAWL_CMD_STATE_SCAN || type == PAWL_CMD_IDEM || type == PAWL_CMD_QUERY;
}

uint32_t pawl_core_answer_bytes(uint16_t type)
{
    if (type == PAWL_CMD_WAIT) /* for as long as it waits */
        return sizeof(struct pawl_comp_data) + sizeof(struct pawl_record);
    return answers_with_data(type) ? sizeof(struct pawl_comp_data) + PAWL_DATA_BYTES_MAX
                                   : sizeof(struct pawl_comp_answer);
}

uint64_t pawl_core_need(const struct pawl_cmd *head)
{
    uint64_t first = PAWL_FIRST_RECORDS;
    /* The outcome beside the effect, and what was forgotten to make room for it. */
    if (head->flags & PAWL_CMD_IDENTIFIED)
        first += 2 * PAWL_OUTCOME_LIVE + PAWL_RECORD_HEAD;
    switch (head->type) {
    case PAWL_CMD_SEND:
        return first + sizeof(struct pawl_send_rec) + PAWL_RECORD_HEAD + 16 + head->bytes;
    case PAWL_CMD_RECEIVE: /* one batch; more if there is room */
        return first + sizeof(struct pawl_grant_rec) + PAWL_RECORD_HEAD +
               PAWL_GRANT_BATCH * PAWL_END_ROOM;
    case PAWL_CMD_ACK:
        return first + PAWL_END_ROOM + pawl_min_u64(head->bytes, 2 * PAWL_RESULT_BYTES_MAX);
    case PAWL_CMD_ACK_ID:
    case PAWL_CMD_CANCEL:
        return first + PAWL_END_ROOM;
    case PAWL_CMD_NACK:
    case PAWL_CMD_RELEASE:
    case PAWL_CMD_REJECT:
        return first + PAWL_BACK_ROOM;
    case PAWL_CMD_DEFER:
        return first + PAWL_BACK_ROOM + PAWL_PROGRESS_BYTES_MAX;
    case PAWL_CMD_RENEW:
        return first + sizeof(struct pawl_renew_rec) + PAWL_RECORD_HEAD;
    case PAWL_CMD_RESTORE:
        return first + sizeof(struct pawl_restore_rec) + PAWL_RECORD_HEAD;
    case PAWL_CMD_QUEUE_CREATE:
    case PAWL_CMD_QUEUE_ALTER:
    case PAWL_CMD_QUEUE_DROP:
    case PAWL_CMD_QUEUE_PAUSE:
    case PAWL_CMD_QUEUE_RESUME:
        return first + sizeof(struct pawl_queue_rec) + PAWL_RECORD_HEAD;
    case PAWL_CMD_QUEUE_PURGE: /* a small queue in one go */
        return first + PURGE_ROOM;
    case PAWL_CMD_STATE:
    case PAWL_CMD_RESERVE:
        return first + pawl_core_state_need(head);
    case PAWL_CMD_TXN: /* no command makes a record of more than twice its size and 32 bytes */
        return first + PAWL_OUTCOME_LIVE + PAWL_RECORD_HEAD + 3 * (uint64_t)head->bytes;
    case PAWL_CMD_IDEM: /* who begins takes over what was kept */
        return first + PAWL_IDEM_ROOM + head->bytes;
    case PAWL_CMD_RESOLVE:
    case PAWL_CMD_KEEP:
        return first + 2 * PAWL_OUTCOME_LIVE;
    default:
        return 0;
    }
}

/* --- commands: dispatch ---------------------------------------------------------------------- */

bool pawl_core_variable_fits(const struct pawl_take *t)
{
    if (t->type == PAWL_CMD_SEND) {
        const struct pawl_cmd_send *c = t->fixed;
        uint64_t bytes =
            (uint64_t)c->key_bytes + c->ordering_key_bytes + c->headers_bytes + c->body_bytes;
        if (c->flags & PAWL_SEND_TIMES)
            bytes += sizeof(struct pawl_cmd_send_times);
        return bytes <= t->variable_bytes && t->variable_bytes - bytes < 8;
    }
    if (t->type == PAWL_CMD_RECEIVE || t->type == PAWL_CMD_SUBSCRIBE) {
        const struct pawl_cmd_receive *c = t->fixed;
        return c->queue_count >= 1 && c->queue_count <= PAWL_QUEUES_A_RECEIVE_MAX &&
               (t->type == PAWL_CMD_RECEIVE || c->queue_count == 1) &&
               t->variable_bytes == c->queue_count * sizeof(uint64_t);
    }
    if (t->type >= PAWL_CMD_ACK && t->type <= PAWL_CMD_RENEW) {
        const struct pawl_cmd_settle *c = t->fixed;
        uint32_t most = t->type == PAWL_CMD_ACK     ? PAWL_RESULT_BYTES_MAX
                        : t->type == PAWL_CMD_DEFER ? PAWL_PROGRESS_BYTES_MAX
                                                    : PAWL_REASON_BYTES_MAX;
        return c->text_bytes <= most && c->text_bytes <= t->variable_bytes &&
               t->variable_bytes - c->text_bytes < 8;
    }
    if (t->type == PAWL_CMD_STATE || t->type == PAWL_CMD_STATE_SCAN || t->type == PAWL_CMD_RESERVE)
        return pawl_core_state_fits(t->type, t->fixed, t->variable_bytes);
    if (t->type == PAWL_CMD_QUERY)
        return pawl_core_lookup_fits(t->fixed, t->variable_bytes);
    if (t->type == PAWL_CMD_IDEM)
        return pawl_core_idem_fits(t->fixed, t->variable_bytes);
    if (t->type == PAWL_CMD_TXN)
        return t->variable_bytes > 0;
    if (t->type == PAWL_CMD_ACK_ID || t->type == PAWL_CMD_CANCEL) {
        const struct pawl_cmd_message *c = t->fixed;
        uint64_t key = c->flags & PAWL_BY_KEY ? c->offset : 0;
        return key <= PAWL_KEY_BYTES_MAX && key <= t->variable_bytes &&
               t->variable_bytes - key < 8 && (key > 0 || t->variable_bytes == 0) &&
               (key > 0 || !(c->flags & PAWL_BY_KEY));
    }
    return t->variable_bytes == 0;
}

int pawl_core_dispatch(struct pawl_take *t)
{
    switch (t->type) {
    case PAWL_CMD_SEND:
        pawl_core_send_take(t);
        break;
    case PAWL_CMD_RECEIVE:
    case PAWL_CMD_SUBSCRIBE:
        pawl_core_receive_take(t);
        break;
    case PAWL_CMD_STOP:
        pawl_core_receive_stop(t);
        break;
    case PAWL_CMD_ACK:
    case PAWL_CMD_NACK:
    case PAWL_CMD_RELEASE:
    case PAWL_CMD_REJECT:
    case PAWL_CMD_DEFER:
    case PAWL_CMD_RENEW:
        pawl_core_settle_take(t);
        break;
    case PAWL_CMD_ACK_ID:
    case PAWL_CMD_CANCEL:
    case PAWL_CMD_RESTORE:
        pawl_core_repair_take(t);
        break;
    case PAWL_CMD_QUEUE_STAT:
    case PAWL_CMD_QUEUE_LIST:
    case PAWL_CMD_SCAN:
    case PAWL_CMD_PEEK:
    case PAWL_CMD_METRICS:
        pawl_core_query_take(t);
        break;
    case PAWL_CMD_STATE:
    case PAWL_CMD_RESERVE:
        pawl_core_state_take(t);
        break;
    case PAWL_CMD_STATE_SCAN:
        pawl_core_state_scan_take(t);
        break;
    case PAWL_CMD_TXN:
        return pawl_core_txn_take(t);
    case PAWL_CMD_RESOLVE:
        pawl_core_resolve_take(t);
        break;
    case PAWL_CMD_IDEM:
        pawl_core_idem_take(t);
        break;
    case PAWL_CMD_QUERY:
        pawl_core_lookup_take(t);
        break;
    case PAWL_CMD_WAIT:
        pawl_core_watch_take(t);
        break;
    case PAWL_CMD_KEEP:
        pawl_core_keep_take(t);
        break;
    default:
        pawl_core_queue_take(t);
        break;
    }
    return PAWL_OK;
}

/* The id stands at the end, so that what is before it is as without one. False: it may have none.
 */
static bool take_id(struct pawl_take *t)
{
    if (!pawl_cmd_identifiable(t->type) || t->variable_bytes < sizeof t->id)
        return false;
    t->variable_bytes -= (uint32_t)sizeof t->id;
    memcpy(&t->id, t->variable + t->variable_bytes, sizeof t->id);
    return true;
}

/* The answer is known, or will come, or nobody waits for it any more. */
static bool answered_before(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_core_lane *lane = t->lane;
    if (t->seq < lane->oldest)
        return true;
    const struct pawl_window_entry *e = pawl_core_lane_entry(core, lane, t->seq);
    if (e->seq != t->seq)
        return false;
    if (e->state == PAWL_WINDOW_DONE)
        pawl_core_lane_answer(core, lane, t->seq, e->result, e->value, e->lsn,
                              pawl_core_appended(core), e->flags);
    if (e->state == PAWL_WINDOW_PENDING && t->type == PAWL_CMD_QUEUE_PURGE)
        pawl_core_purge_asked(core, lane, t->seq);
    return e->state == PAWL_WINDOW_DONE || e->state == PAWL_WINDOW_PENDING;
}

int pawl_core_take(struct pawl_core *core, struct pawl_core_lane *lane, const void *fixed,
                   const void *variable, uint32_t variable_bytes, struct pawl_now now)
{
    /* A private copy, aligned: read in place, since copying what was just written word by word
     * waits for the stores. */
    const struct pawl_cmd *head = fixed;
    uint32_t fixed_size = head->type < PAWL_CMD_TYPES ? fixed_bytes[head->type] : 0;
    if (fixed_size == 0 || head->bytes != fixed_size + variable_bytes || head->seq == 0 ||
        head->open >= head->seq || head->open >= lane->window)
        return PAWL_E_PROTOCOL;
    struct pawl_take t; /* its id is only there if one was given */
    t.core = core;
    t.lane = lane;
    t.session = pawl_core_session_at(core, lane->session);
    t.seq = head->seq;
    t.type = head->type;
    t.flags = head->flags;
    t.open = head->open;
    t.deadline = head->deadline;
    t.fixed = fixed;
    t.variable = variable;
    t.variable_bytes = variable_bytes;
    bool identified = t.flags & PAWL_CMD_IDENTIFIED;
    if ((identified && !take_id(&t)) || !pawl_core_variable_fits(&t))
        return PAWL_E_PROTOCOL;
    pawl_core_set_now(core, now);
    bool known = t.seq <= lane->seq_max;
    if (known && !(t.flags & PAWL_CMD_RESUBMIT))
        return PAWL_E_PROTOCOL;
    lane->oldest = pawl_max_u64(lane->oldest, t.seq - t.open);
    if (known && answered_before(&t))
        return PAWL_OK;
    lane->seq_max = pawl_max_u64(lane->seq_max, t.seq);
#ifdef PAWL_BUG_DEADLINE_IGNORED
    t.deadline = 0;
#endif
    if (t.deadline && core->now.time >= t.deadline)
        pawl_core_take_answer(&t, PAWL_E_DEADLINE, 0, pawl_core_appended(core));
    else if (PAWL_UNLIKELY(identified))
        return pawl_core_identity_take(&t);
    else
        return pawl_core_dispatch(&t);
    return PAWL_OK;
}

void pawl_core_refuse_sends(struct pawl_core *core, uint32_t limit) { core->refuse = limit; }

/* --- turn ------------------------------------------------------------------------------------ */

/* Leases that a new start of the machine made void, and those whose session ended while the lease
 * stood in a fact alone. */
static bool release_void(struct pawl_core *core)
{
    for (; core->void_queue != 0 && core->void_queue < core->queues.never_used;
         core->void_queue++) {
        struct pawl_core_queue *q = pawl_core_queue_at(core, core->void_queue);
        if (q->number != core->void_queue || q->gone)
            continue;
        for (uint32_t n = q->leased.first; n != 0;) {
            const struct pawl_core_message *m = pawl_core_message_at(core, n);
            const struct pawl_core_lease *l = pawl_core_lease_at(core, m->lease);
            uint32_t next = m->next;
            bool orphan = l->session == 0 && l->kind != PAWL_LEASE_DETACHED;
            bool old = m->grant >> PAWL_EPOCH_SHIFT < core->void_below;
            if (orphan || old) {
                if (!pawl_core_has_room(core, PAWL_BACK_ROOM))
                    return true;
                (void)pawl_core_lease_back(core, n, PAWL_BACK_RELEASED, NULL, 0, NULL, 0);
            }
            n = next;
        }
    }
    core->void_queue = 0;
    return false;
}

void pawl_core_again(struct pawl_core *core)
{
    pawl_timer_arm(&core->wheel, core->again, core->now.time);
}

bool pawl_core_pump(struct pawl_core *core, struct pawl_now now)
{
    pawl_core_set_now(core, now);
    bool more = !pawl_core_horizon_say(core);
    more = release_void(core) || more;
    more = pawl_core_session_pump(core) || more;
    more = pawl_core_purge_pump(core) || more;
    more = pawl_core_receive_pump(core) || more;
    pawl_core_scan_pump(core);
    pawl_core_watch_pump(core); /* what this turn has done */
    if (core->sweeping && pawl_core_sweep(core, SWEEP_A_TURN))
        pawl_core_again(core);
    return more;
}

static void message_timer(struct pawl_core *core, uint32_t n)
{
    struct pawl_core_message *m = pawl_core_message_at(core, n);
    if (pawl_core_queue_at(core, m->queue)->gone)
        return;
#ifdef PAWL_BUG_TTL_ENDS_LEASE
    if (m->state == PAWL_STATE_LEASED && pawl_core_message_ttl_end(core, m) > core->now.time) {
#else
    if (m->state == PAWL_STATE_LEASED) {
#endif
        pawl_core_lease_timer(core, n);
        return;
    }
    if (pawl_core_message_ttl_end(core, m) <= core->now.time)
        (void)pawl_core_end_message(core, n, PAWL_STATE_EXPIRED, NULL, 0);
    else if (m->state == PAWL_STATE_SCHEDULED && pawl_core_message_due(core, m) <= core->now.time)
        pawl_core_message_move(core, n, PAWL_STATE_READY); /* no record: its due time says it */
    else
        pawl_core_message_timer(core, n);
}

static void lease_ends(struct pawl_core *core, uint32_t row)
{
    uint32_t n = pawl_core_ends_timer(core, row);
    if (n)
        message_timer(core, n);
}

void pawl_core_clock(struct pawl_core *core, struct pawl_now now)
{
#ifndef PAWL_BUG_LEASE_FROM_LAST_TURN
    pawl_core_set_now(core, now);
#endif
}

bool pawl_core_tick(struct pawl_core *core, struct pawl_now now, uint32_t budget)
{
    pawl_core_set_now(core, now);
    while (pawl_core_has_room(core, pawl_max_u64(PAWL_BACK_ROOM, PAWL_EXPIRE_ROOM))) {
        uint32_t timer = pawl_wheel_fire(&core->wheel, core->now.time, &budget);
        if (timer == 0)
            return pawl_wheel_behind(&core->wheel, core->now.time);
        const struct pawl_timer *t = pawl_timer_at(&core->wheel, timer);
        switch (t->kind) {
        case PAWL_TIMER_MESSAGE:
            message_timer(core, t->owner);
            break;
        case PAWL_TIMER_WAITER:
            pawl_core_waiter_timer(core, t->owner);
            break;
        case PAWL_TIMER_SESSION:
            pawl_core_session_timer(core, t->owner);
            break;
        case PAWL_TIMER_AGAIN:
            break; /* pump comes next */
        case PAWL_TIMER_ENDS:
            lease_ends(core, t->owner);
            break;
        case PAWL_TIMER_LEDGER:
            pawl_core_ledger_timer(core, t->owner);
            break;
        case PAWL_TIMER_RESERVATION:
            pawl_core_reservation_timer(core, t->owner);
            break;
        case PAWL_TIMER_RESERVATIONS:
            pawl_core_reservations_timer(core);
            break;
        case PAWL_TIMER_IDEM:
            pawl_core_idem_timer(core, t->owner);
            break;
        case PAWL_TIMER_WATCH:
            pawl_core_watch_timer(core, t->owner);
            break;
        default:
            pawl_core_queue_timer(core, t->owner);
            break;
        }
    }
    return pawl_wheel_next(&core->wheel) <= core->now.time;
}

uint64_t pawl_core_next(const struct pawl_core *core) { return pawl_wheel_next(&core->wheel); }
