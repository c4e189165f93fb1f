/* SPDX-License-Identifier: MIT */
/* TXN: several commands that happen together or not at all.
 *
 *   - the row of commands is copied whole out of the client's memory, then cut apart
 *   - every step is checked, in order, against the state before the transaction; what a step
 *     reserves (payload, room in its queue) the next ones see. One that is refused refuses all, and
 *     everything reserved is given back: nobody has seen a thing
 *   - the sizes of all records are known then: one GROUP is appended, every step commits into it
 *   - an answer: the id of the first message sent, or which step was refused and what it met
 *
 * Nothing is kept between the two halves but what stands here, so there is no such thing as an open
 * transaction in the broker. A message may stand in one step only: the second would be judged by a
 * state that the first is about to end. */
#include "core/core_inner.h"

#define STEPS_MAX PAWL_TXN_STEPS_MAX

struct step {
    struct pawl_take take; /* of this command, as if it stood alone */
    union {
        struct pawl_core_send send;
        struct pawl_core_settle settle;
        struct pawl_core_repair repair;
        struct pawl_state_plan state;
        struct pawl_idem_plan idem;
    };
};

struct txn {
    struct pawl_take *take;
    uint8_t *row;
    struct step *steps;
    uint32_t *seen; /* messages, by their hash */
    uint32_t seen_mask;
    uint32_t row_block, steps_block, seen_block;
    uint32_t count, checked; /* steps */
    uint32_t sends;
    uint32_t bytes; /* of the group */
    uint64_t found; /* of a refusal */
    uint64_t wait;  /* of the steps that found nothing to do: for what told them so */
};

/* --- the row --------------------------------------------------------------------------------- */

static bool allowed(uint16_t type)
{
    return type == PAWL_CMD_SEND || (type >= PAWL_CMD_ACK && type <= PAWL_CMD_DEFER) ||
           type == PAWL_CMD_ACK_ID || type == PAWL_CMD_CANCEL || type == PAWL_CMD_STATE ||
           type == PAWL_CMD_RESERVE || type == PAWL_CMD_IDEM;
}

static bool of_table(const struct step *s)
{
    return s->take.type == PAWL_CMD_STATE || s->take.type == PAWL_CMD_RESERVE;
}

/* Cuts the copied row into steps. False: not what a client of ours writes. */
static bool cut(struct txn *x, uint32_t bytes)
{
    uint8_t *at = x->row;
    for (uint32_t i = 0; i < x->count; i++) {
        const struct pawl_cmd *head = (const struct pawl_cmd *)(void *)at;
        if (bytes < sizeof *head || head->bytes > bytes || head->bytes % 8 != 0 ||
            !allowed(head->type))
            return false;
        uint32_t fixed = pawl_core_fixed_bytes(head->type);
        if (head->bytes < fixed)
            return false;
        struct pawl_take *t = &x->steps[i].take;
        *t = *x->take;
        t->type = head->type;
        t->flags = 0;
        t->fixed = at;
        t->variable = at + fixed;
        t->variable_bytes = head->bytes - fixed;
        if (!pawl_core_variable_fits(t))
            return false;
        at += head->bytes;
        bytes -= head->bytes;
    }
    return bytes == 0;
}

static uint32_t seen_bytes(const struct txn *x)
{
    return (x->seen_mask + 1) * (uint32_t)sizeof x->seen[0];
}

/* OK, E_PROTOCOL (close the session) or no memory. */
static int open(struct txn *x, struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    const struct pawl_cmd_txn *c = t->fixed;
    *x = (struct txn){ .take = t, .count = c->count };
    if (c->count == 0 || c->count > STEPS_MAX || t->variable_bytes == 0)
        return PAWL_E_PROTOCOL;
    x->row_block = pawl_payload_take(&core->payload, t->variable_bytes);
    x->steps_block = pawl_payload_take(&core->payload, c->count * (uint32_t)sizeof(struct step));
    x->seen_mask = 15;
    while (x->seen_mask < 2 * c->count)
        x->seen_mask = 2 * x->seen_mask + 1;
    x->seen_block = pawl_payload_take(&core->payload, seen_bytes(x));
    if (x->row_block == 0 || x->steps_block == 0 || x->seen_block == 0)
        return PAWL_E_FULL;
    x->seen = pawl_payload_at(&core->payload, x->seen_block);
    memset(x->seen, 0, seen_bytes(x));
    x->row = pawl_payload_at(&core->payload, x->row_block);
    x->steps = pawl_payload_at(&core->payload, x->steps_block);
    memcpy(x->row, t->variable, t->variable_bytes);
    return cut(x, t->variable_bytes) ? PAWL_OK : PAWL_E_PROTOCOL;
}

static void close(struct txn *x)
{
    struct pawl_payload *payload = &x->take->core->payload;
    if (x->row_block)
        pawl_payload_give(payload, x->row_block, x->take->variable_bytes);
    if (x->steps_block)
        pawl_payload_give(payload, x->steps_block, x->count * (uint32_t)sizeof(struct step));
    if (x->seen_block)
        pawl_payload_give(payload, x->seen_block, seen_bytes(x));
}

/* --- check ----------------------------------------------------------------------------------- */

/* No two steps name the same message. */
static int claim(struct txn *x, uint32_t n)
{
    uint32_t at = (uint32_t)pawl_hash_u64(n) & x->seen_mask;
    for (; x->seen[at] != 0; at = (at + 1) & x->seen_mask)
        if (x->seen[at] == n)
            return PAWL_E_INVALID;
    x->seen[at] = n;
    return PAWL_OK;
}

static int check_send(struct txn *x, struct step *s, uint32_t *bytes)
{
    int result = pawl_core_send_check(&s->take, x->sends, &s->send);
    x->found = s->send.value;
    if (result != PAWL_OK)
        return result;
    s->send.queue->checked++;
    s->send.queue->checked_bytes += s->send.bytes;
    x->sends++;
    *bytes = pawl_core_send_bytes(&s->send);
    return PAWL_OK;
}

static int check_settle(struct txn *x, struct step *s, uint32_t *bytes)
{
    int result = pawl_core_settle_check(&s->take, &s->settle);
    x->found = s->settle.value;
    if (result != PAWL_OK)
        return result;
    result = claim(x, s->settle.n);
    if (result == PAWL_OK)
        *bytes = pawl_core_settle_bytes(&s->settle);
    else
        pawl_core_settle_undo(&s->settle);
    return result;
}

static int check_repair(struct txn *x, struct step *s, uint32_t *bytes)
{
    int result = pawl_core_repair_check(&s->take, &s->repair);
    x->found = s->repair.value;
    if (result == PAWL_OK)
        result = claim(x, s->repair.n);
    if (result == PAWL_OK)
        *bytes = pawl_core_repair_bytes(&s->repair);
    return result;
}

static int check_state(struct txn *x, struct step *s, uint32_t *bytes)
{
    struct pawl_take *t = &s->take;
    const struct pawl_core_peer *peer = &t->session->peer;
    int result = t->type == PAWL_CMD_STATE
                     ? pawl_core_state_check(t->core, peer, t->fixed, t->variable, &s->state)
                     : pawl_core_reserve_check(t->core, peer, t->fixed, t->variable, &s->state);
    x->found = s->state.value;
    if (result >= 0)
        *bytes = pawl_core_state_bytes(t->core, &s->state);
    return result;
}

static int check_idem(struct txn *x, struct step *s, uint32_t *bytes)
{
    const struct pawl_cmd_idem *c = s->take.fixed;
    if (c->op != PAWL_IDEM_OP_COMPLETE)
        return PAWL_E_INVALID;
    int result = pawl_core_idem_check(&s->take, &s->idem);
    x->found = s->idem.value;
    *bytes = pawl_core_idem_bytes(&s->idem);
    return result;
}

static int check(struct txn *x, struct step *s)
{
    uint32_t bytes = 0;
    int result;
    if (s->take.type == PAWL_CMD_SEND)
        result = check_send(x, s, &bytes);
    else if (of_table(s))
        result = check_state(x, s, &bytes);
    else if (s->take.type == PAWL_CMD_IDEM)
        result = check_idem(x, s, &bytes);
    else if (s->take.type == PAWL_CMD_ACK_ID || s->take.type == PAWL_CMD_CANCEL)
        result = check_repair(x, s, &bytes);
    else
        result = check_settle(x, s, &bytes);
    if (bytes)
        x->bytes += pawl_core_group_part(bytes);
    if (result <= 0)
        return result;
    if (s->take.type == PAWL_CMD_SEND) /* a repeat: the first one must be on disk */
        x->wait = pawl_max_u64(x->wait, pawl_core_queue_wait(x->take->core, s->send.queue));
    /* There is nothing to do, and that is well: no part of the rest. */
    if (!of_table(s))
        s->take.type = PAWL_CMD_NONE;
    return PAWL_OK;
}

static int check_all(struct txn *x)
{
    const struct pawl_core *core = x->take->core;
    for (; x->checked < x->count; x->checked++) {
        int result = check(x, &x->steps[x->checked]);
#ifdef PAWL_BUG_TXN_SKIPS_REFUSED
        if (result != PAWL_OK)
            x->steps[x->checked].take.type = PAWL_CMD_NONE;
        result = PAWL_OK;
#endif
        if (result != PAWL_OK)
            return result;
    }
    /* One block holds it, and what a lane's first record needs in front. */
    uint64_t most = core->options.record_bytes_max;
    if (most && x->bytes + PAWL_OUTCOME_PART + PAWL_RECORD_HEAD + PAWL_FIRST_RECORDS > most) {
        x->found = most;
        return PAWL_E_TOO_BIG;
    }
    return PAWL_OK;
}

/* --- settle ---------------------------------------------------------------------------------- */

static struct pawl_core_queue *queue_of(const struct step *s)
{
    switch (s->take.type) {
    case PAWL_CMD_NONE:
    case PAWL_CMD_STATE: /* tables are durable: see wait_for() */
    case PAWL_CMD_RESERVE:
    case PAWL_CMD_IDEM:
        return NULL;
    case PAWL_CMD_SEND:
        return s->send.queue;
    case PAWL_CMD_ACK_ID:
    case PAWL_CMD_CANCEL:
        return s->repair.queue;
    default:
        return s->settle.queue;
    }
}

/* What the checks left on the queues goes before the commits do it for good. */
static void unmark(struct txn *x)
{
    for (uint32_t i = 0; i < x->checked; i++) {
        struct pawl_core_queue *q = queue_of(&x->steps[i]);
        if (q)
            q->checked = 0, q->checked_bytes = 0;
    }
}

/* Newest first: what a step of a table undoes is what it found. */
static void undo(struct txn *x)
{
    for (uint32_t i = x->checked; i-- > 0;) {
        struct step *s = &x->steps[i];
        if (s->take.type == PAWL_CMD_SEND)
            pawl_core_send_undo(&s->send);
        else if (of_table(s))
            pawl_core_state_undo(x->take->core, &s->state);
        else if (s->take.type >= PAWL_CMD_ACK && s->take.type <= PAWL_CMD_DEFER)
            pawl_core_settle_undo(&s->settle);
        else if (s->take.type == PAWL_CMD_IDEM)
            pawl_core_idem_undo(&s->idem);
    }
}

static uint64_t commit_one(struct step *s)
{
    uint64_t lsn;
    switch (s->take.type) {
    case PAWL_CMD_NONE:
        return 0;
    case PAWL_CMD_STATE:
    case PAWL_CMD_RESERVE:
        (void)pawl_core_state_commit(s->take.core, &s->state, NULL);
        return 0;
    case PAWL_CMD_IDEM:
        (void)pawl_core_idem_commit(&s->idem, NULL);
        return 0;
    case PAWL_CMD_SEND:
        return pawl_core_send_commit(&s->send, &lsn);
    case PAWL_CMD_ACK_ID:
    case PAWL_CMD_CANCEL:
        (void)pawl_core_repair_commit(&s->repair);
        return 0;
    default:
        (void)pawl_core_settle_commit(&s->settle);
        return 0;
    }
}

/* All of it, into one record; returns the id of the first message sent. Its outcome is the last
 * part: what the parts before say of the window it says better. */
static uint64_t commit(struct txn *x)
{
    struct pawl_core *core = x->take->core;
    if (x->bytes) {
        pawl_core_lane_log(core, x->take->lane);
        pawl_core_group_open(core, x->bytes);
    }
    uint64_t first = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        uint64_t id = commit_one(&x->steps[i]);
        first = first ? first : id;
    }
    return first;
}

/* What everybody waits for who is told of it: all of it, if any part is durable; and then also the
 * later answers of the other queues that it touched. */
static uint64_t wait_for(struct txn *x)
{
    struct pawl_core *core = x->take->core;
    uint64_t wait = x->wait;
    bool durable = core->operation.lane != NULL;
    for (uint32_t i = 0; i < x->count; i++) {
        const struct pawl_core_queue *q = queue_of(&x->steps[i]);
        durable = durable || of_table(&x->steps[i]) || x->steps[i].take.type == PAWL_CMD_IDEM;
        if (!q)
            continue;
        durable = durable || q->options.mode == PAWL_DURABLE;
        wait = pawl_max_u64(wait, pawl_core_queue_wait(core, q));
    }
#ifdef PAWL_BUG_TXN_SHOWN_EARLY
    return wait;
#endif
    if (!durable)
        return wait;
    wait = pawl_core_appended(core);
    for (uint32_t i = 0; i < x->count; i++) {
        struct pawl_core_queue *q = queue_of(&x->steps[i]);
        if (q)
            q->wait_lsn = wait;
    }
    return wait;
}

int pawl_core_txn_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct txn x;
    int result = open(&x, t);
    if (result == PAWL_E_PROTOCOL) {
        close(&x);
        return result;
    }
    if (result == PAWL_OK) {
        result = check_all(&x);
        unmark(&x);
    } else {
        x.found = PAWL_LIMIT_MEMORY;
    }
    uint64_t value, lsn = 0, wait;
    if (result == PAWL_OK) {
        value = commit(&x);
        lsn = core->group.lsn;
        wait = wait_for(&x);
        if (core->group.open && !core->operation.lane)
            pawl_core_outcome_group(t, NULL, 0, PAWL_OK, value, 0);
    } else {
        undo(&x);
        value = x.steps && x.checked < x.count ? x.checked + 1 : 0;
        lsn = x.found;
        wait = pawl_core_appended(core);
    }
    close(&x);
    pawl_core_lane_answer(core, t->lane, t->seq, result, value, lsn, wait, 0);
    return PAWL_OK;
}
