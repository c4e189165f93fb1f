/* SPDX-License-Identifier: MIT */
/* Queues: names, options, rights; create, alter, pause, resume, drop. One QUEUE record with the
 * full state says each of them, whatever the mode of the queue. A dropped queue keeps its entry
 * until its last tombstone goes, so that old tokens learn what happened (purge.c). */
#include "core/core_inner.h"

#define FAILED_MAX_DEFAULT 16u
#define CRASHED_MAX_DEFAULT 5u
#define INFLIGHT_DEFAULT 65536u
#define FORWARDS_MAX 1024u /* of dead messages in a row */
#define PERM_DEFAULT 0770u

/* --- names ----------------------------------------------------------------------------------- */

/* Where the name is, or would be. */
static uint32_t name_position(const struct pawl_core *core, const char *name, bool *found)
{
    uint32_t low = 0, high = core->names_count;
    *found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(pawl_core_queue_at(core, core->names[middle])->name, name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t pawl_core_queue_after(const struct pawl_core *core, const char *name)
{
    bool found;
    uint32_t at = name_position(core, name, &found);
    return found ? at + 1 : at;
}

uint32_t pawl_core_queue_find_name(const struct pawl_core *core, const char *name)
{
    bool found;
    uint32_t at = name_position(core, name, &found);
    return found ? core->names[at] : 0;
}

static bool name_insert(struct pawl_core *core, struct pawl_core_queue *q)
{
    bool found;
    uint32_t at = name_position(core, q->name, &found);
    if (found || core->names_count == PAWL_QUEUES_MAX)
        return false;
    memmove(core->names + at + 1, core->names + at,
            (core->names_count - at) * sizeof core->names[0]);
    core->names[at] = q->number;
    core->names_count++;
    q->in_names = true;
    return true;
}

void pawl_core_queue_name_remove(struct pawl_core *core, struct pawl_core_queue *q)
{
    if (!q->in_names)
        return;
    bool found;
    uint32_t at = name_position(core, q->name, &found);
    PAWL_ASSERT(found);
    core->names_count--;
    memmove(core->names + at, core->names + at + 1,
            (core->names_count - at) * sizeof core->names[0]);
    q->in_names = false;
}

/* --- entries --------------------------------------------------------------------------------- */

uint32_t pawl_core_queue_make(struct pawl_core *core, uint64_t id)
{
    pawl_core_memory_open(core);
    bool ready = pawl_pool_ready(&core->queues, 1) && pawl_core_timers_ready(core, 1);
    pawl_core_memory_close(core);
    if (!ready)
        return 0;
    uint32_t n = pawl_pool_take(&core->queues);
    struct pawl_core_queue *q = pawl_core_queue_at(core, n);
    q->id = id;
    q->number = n;
    q->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_QUEUE, n);
    pawl_table_insert(&core->queues_by_id, id, n);
    return n;
}

struct pawl_core_queue *pawl_core_queue_known(struct pawl_core *core, uint64_t id)
{
    uint32_t n = id ? pawl_table_find(&core->queues_by_id, id) : 0;
    if (n == 0 && id != 0 && !core->started)
        n = pawl_core_queue_make(core, id);
    return n ? pawl_core_queue_at(core, n) : NULL;
}

void pawl_core_queue_set_options(struct pawl_core_queue *q, const struct pawl_queue_options *o)
{
    q->options = *o;
    q->lease_ns = o->lease_ns ? o->lease_ns : PAWL_LEASE_NS_DEFAULT;
    q->hold_ns = o->max_hold_ns ? o->max_hold_ns : PAWL_LEASE_NS_MAX;
    uint64_t retention = o->mode == PAWL_TABLE ? PAWL_IDEM_RETAIN_NS : PAWL_RETENTION_NS_DEFAULT;
    q->retention_ns = o->done_retention_ns ? o->done_retention_ns : retention;
    q->dedup_window_ns = o->dedup_window_ns ? o->dedup_window_ns : PAWL_DEDUP_WINDOW_NS_DEFAULT;
    q->messages_max = o->max_messages ? o->max_messages : UINT64_MAX;
    q->bytes_max = o->max_bytes ? o->max_bytes : UINT64_MAX;
    uint32_t most = o->mode == PAWL_TABLE ? PAWL_STATE_BYTES_MAX : PAWL_MESSAGE_BYTES_DEFAULT;
    q->message_bytes_max = o->max_message_bytes ? o->max_message_bytes : most;
    q->inflight_max = o->max_inflight ? o->max_inflight : INFLIGHT_DEFAULT;
    q->failed_max = o->max_failed == PAWL_KEEP ? FAILED_MAX_DEFAULT : o->max_failed;
    q->crashed_max = o->max_crashed == PAWL_KEEP ? CRASHED_MAX_DEFAULT : o->max_crashed;
}

/* --- rights ---------------------------------------------------------------------------------- */

bool pawl_core_queue_admin(const struct pawl_core *core, const struct pawl_core_queue *q,
                           uint32_t uid)
{
    return uid == 0 || uid == core->options.admin_uid || uid == q->options.owner;
}

/* As with a file: the first class that fits decides. */
bool pawl_core_queue_allows(const struct pawl_core *core, const struct pawl_core_queue *q,
                            uint32_t uid, uint32_t gid, uint32_t right)
{
    if (uid == 0 || uid == core->options.admin_uid)
        return true;
    uint32_t bits = q->options.perm;
    if (uid == q->options.owner)
        bits >>= 6;
    else if (gid == q->options.group)
        bits >>= 3;
    return (bits & right) == right;
}

struct pawl_core_queue *pawl_core_queue_for(struct pawl_take *t, uint64_t id, uint32_t right,
                                            int *result)
{
    struct pawl_core_queue *q = pawl_core_queue_of(t->core, &t->session->peer, id, right, result);
    if (!q || (q->options.mode != PAWL_TABLE && q->options.mode != PAWL_DIRECT))
        return q;
    *result = PAWL_E_NOT_SUPPORTED;
    return NULL;
}

struct pawl_core_queue *pawl_core_queue_of(const struct pawl_core *core,
                                           const struct pawl_core_peer *peer, uint64_t id,
                                           uint32_t right, int *result)
{
    uint32_t n = id ? pawl_table_find(&core->queues_by_id, id) : 0;
    if (n == 0) {
        *result = pawl_core_id_given(core, id) ? PAWL_E_QUEUE_GONE : PAWL_E_NOT_FOUND;
        return NULL;
    }
    struct pawl_core_queue *q = pawl_core_queue_at(core, n);
    if (pawl_core_queue_allows(core, q, peer->uid, peer->gid, right)) {
        *result = q->gone ? PAWL_E_QUEUE_GONE : PAWL_OK;
        return q->gone ? NULL : q;
    }
    bool any = pawl_core_queue_sees(core, q, peer);
    *result = any ? PAWL_E_PERM : PAWL_E_NOT_FOUND;
    return NULL;
}

bool pawl_core_queue_sees(const struct pawl_core *core, const struct pawl_core_queue *q,
                          const struct pawl_core_peer *peer)
{
    return pawl_core_queue_admin(core, q, peer->uid) ||
           pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_RECEIVE) ||
           pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_SEND) ||
           pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_QUERY);
}

/* --- options of a command -------------------------------------------------------------------- */

/* The options as they are kept: owner, group and rights filled in from `old` or the creator, what
 * nobody reads zeroed, so that two of the same meaning are the same bytes. */
static void canonical(struct pawl_queue_options *o, const struct pawl_core_queue *old,
                      const struct pawl_core_peer *peer)
{
    o->size = sizeof *o;
    if (o->owner == PAWL_KEEP)
        o->owner = old ? old->options.owner : peer->uid;
    if (o->group == PAWL_KEEP)
        o->group = old ? old->options.group : peer->gid;
    if (o->perm == PAWL_KEEP)
        o->perm = old ? old->options.perm : PERM_DEFAULT;
    for (uint32_t i = o->retry_count; i < PAWL_RETRY_STEPS_MAX; i++)
        o->retry_ns[i] = 0;
    size_t n = strlen(o->dead_forward);
    memset(o->dead_forward + n, 0, sizeof o->dead_forward - n);
    if (o->mode == PAWL_DIRECT) {
        pawl_core_direct_canonical(o);
        return;
    }
    struct pawl_core_queue filled;
    pawl_core_queue_set_options(&filled, o);
    o->lease_ns = filled.lease_ns;
    o->max_hold_ns = filled.hold_ns;
    o->done_retention_ns = filled.retention_ns;
    o->dedup_window_ns = filled.dedup_window_ns;
    o->max_message_bytes = filled.message_bytes_max;
    o->max_inflight = filled.inflight_max;
    o->max_failed = filled.failed_max;
    o->max_crashed = filled.crashed_max;
}

/* --- record ---------------------------------------------------------------------------------- */

void pawl_core_queue_fact(struct pawl_core *core, const struct pawl_core_queue *q,
                          struct pawl_queue_rec *out)
{
    memset(out, 0, sizeof *out);
    out->op.extra = (q->paused ? PAWL_QUEUE_PAUSED : 0) | (q->gone ? PAWL_QUEUE_GONE : 0);
    out->id = q->id;
    out->time = q->gone ? q->gone_time : core->now.time;
    out->place = q->place;
    out->counters = q->counters;
    memcpy(out->name, q->name, sizeof out->name);
    out->options = q->options;
}

static void become_gone(struct pawl_core *core, struct pawl_core_queue *q, uint64_t time)
{
    q->gone = true;
    q->gone_time = time;
    pawl_core_queue_name_remove(core, q);
    q->sweeping = true;
    core->sweeping++;
    pawl_core_waiters_gone(core, q);
    pawl_core_watches_gone(core, q);
}

void pawl_core_queue_apply(struct pawl_core *core, const struct pawl_queue_rec *r, uint64_t lsn)
{
    struct pawl_core_queue *q = pawl_core_queue_known(core, r->id);
    if (!q) {
        core->damaged = true;
        return;
    }
    bool was_paused = q->paused;
    if (!q->known) {
        q->known = true;
        memcpy(q->name, r->name, sizeof q->name);
        pawl_core_queue_set_options(q, &r->options);
        if (!(r->op.extra & PAWL_QUEUE_GONE) && !name_insert(core, q))
            core->damaged = true;
        core->live += PAWL_QUEUE_LIVE;
    }
    pawl_core_queue_set_options(q, &r->options);
    q->paused = r->op.extra & PAWL_QUEUE_PAUSED;
    q->place = r->place;
    q->counters = r->counters;
    pawl_core_home_set(core, PAWL_KIND_QUEUE, q->number, lsn);
    if ((r->op.extra & PAWL_QUEUE_GONE) && !q->gone)
        become_gone(core, q, r->time);
    if (was_paused && !q->paused)
        pawl_core_queue_wake(core, q);
}

static void write_and_answer(struct pawl_take *t, struct pawl_queue_rec *r)
{
    struct pawl_core *core = t->core;
    uint32_t flags = r->op.extra;
    pawl_core_lane_log(core, t->lane);
    pawl_core_lane_op(core, t->lane, t->seq, &r->op);
    r->op.extra = flags;
    r->result = PAWL_OK;
    uint64_t lsn;
    memcpy(pawl_core_append(core, PAWL_RECORD_QUEUE, sizeof *r, &lsn), r, sizeof *r);
    pawl_core_queue_apply(core, r, lsn);
    uint64_t wait = pawl_core_appended(core);
    struct pawl_core_queue *q = pawl_core_queue_known(core, r->id);
    q->wait_lsn = wait;
    pawl_core_direct_changed(core, q, wait);
    pawl_core_lane_answer(core, t->lane, t->seq, PAWL_OK, r->id, lsn, wait, 0);
}

/* --- commands -------------------------------------------------------------------------------- */

static void refuse(struct pawl_take *t, int result, uint64_t value)
{
    pawl_core_take_answer(t, result, value, pawl_core_appended(t->core));
}

static uint32_t owned_by(const struct pawl_core *core, uint32_t uid)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < core->names_count; i++)
        n += pawl_core_queue_at(core, core->names[i])->options.owner == uid;
    return n;
}

/* Do dead messages of a queue of this name, which forwards so, come back to it, or never to rest?
 * Every edge of a circle is made by a create or an alter, whichever comes last is asked: targets
 * may be named before they are there, and names outlive a drop. */
static bool goes_in_circle(const struct pawl_core *core, const char *name, const char *forward)
{
#ifdef PAWL_BUG_FORWARD_CIRCLE
    return false;
#endif
    for (uint32_t i = 0; i < FORWARDS_MAX; i++) {
        if (*forward == 0)
            return false;
        if (strcmp(forward, name) == 0)
            return true;
        uint32_t n = pawl_core_queue_find_name(core, forward);
        if (n == 0)
            return false;
        forward = pawl_core_queue_at(core, n)->options.dead_forward;
    }
    return true;
}

static void create(struct pawl_take *t, const struct pawl_cmd_queue *c)
{
    struct pawl_core *core = t->core;
    const struct pawl_core_peer *peer = &t->session->peer;
    bool admin = peer->uid == 0 || peer->uid == core->options.admin_uid;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    if (c->has_options)
        o = c->options;
    if (pawl_queue_options_wrong(&o, c->name)) {
        refuse(t, PAWL_E_INVALID, 0);
        return;
    }
    if (pawl_queue_options_unsupported(&o)) {
        refuse(t, PAWL_E_NOT_SUPPORTED, 0);
        return;
    }
    uint32_t n = pawl_core_queue_find_name(core, c->name);
    if (n != 0) {
        struct pawl_core_queue *old = pawl_core_queue_at(core, n);
        canonical(&o, old, peer);
        bool same = memcmp(&o, &old->options, sizeof o) == 0;
        if (same && pawl_core_queue_sees(core, old, peer))
            refuse(t, PAWL_OK_DUPLICATE, old->id);
        else
            refuse(t, PAWL_E_EXISTS, 0);
        return;
    }
    if (goes_in_circle(core, c->name, o.dead_forward)) {
        refuse(t, PAWL_E_INVALID, PAWL_INVALID_CIRCLE);
        return;
    }
    canonical(&o, NULL, peer);
    if (o.owner != peer->uid && !admin) {
        refuse(t, PAWL_E_PERM, 0);
        return;
    }
    if (core->names_count >= core->options.queues_max) {
        refuse(t, PAWL_E_QUOTA, PAWL_LIMIT_QUEUES);
        return;
    }
    if (!admin && owned_by(core, peer->uid) >= pawl_max_u64(16, core->options.queues_max / 4)) {
        refuse(t, PAWL_E_QUOTA, PAWL_LIMIT_UID);
        return;
    }
    uint64_t id = pawl_core_new_id(core);
    if (o.mode == PAWL_DIRECT) {
        int result = pawl_core_direct_create(core, id, c->name, &o);
        if (result != PAWL_OK) {
            refuse(t, result, result == PAWL_E_FULL ? PAWL_LIMIT_MEMORY : 0);
            return;
        }
    }
    if (pawl_core_queue_make(core, id) == 0) {
        if (o.mode == PAWL_DIRECT)
            core->direct.changed(core->direct.ctx, id, true, 0);
        refuse(t, PAWL_E_FULL, PAWL_LIMIT_MEMORY);
        return;
    }
    struct pawl_queue_rec r = { .id = id, .time = core->now.time, .options = o };
    memcpy(r.name, c->name, strlen(c->name));
    write_and_answer(t, &r);
}

static struct pawl_core_queue *by_name(struct pawl_take *t, const char *name)
{
    struct pawl_core *core = t->core;
    uint32_t n = pawl_core_queue_find_name(core, name);
    struct pawl_core_queue *q = n ? pawl_core_queue_at(core, n) : NULL;
    return q && pawl_core_queue_sees(core, q, &t->session->peer) ? q : NULL;
}

/* What the library of a client reads in the memory of a direct queue stays as it is. */
static bool only_rights_differ(const struct pawl_queue_options *a,
                               const struct pawl_queue_options *b)
{
    struct pawl_queue_options same = *a;
    same.owner = b->owner;
    same.group = b->group;
    same.perm = b->perm;
    return memcmp(&same, b, sizeof same) == 0;
}

static void alter(struct pawl_take *t, const struct pawl_cmd_queue *c, struct pawl_core_queue *q)
{
    struct pawl_core *core = t->core;
    const struct pawl_core_peer *peer = &t->session->peer;
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = q->options.mode;
    o.flags = q->options.flags;
    if (c->has_options)
        o = c->options;
    if (pawl_queue_options_wrong(&o, c->name) || o.mode != q->options.mode ||
        o.flags != q->options.flags) {
        refuse(t, PAWL_E_INVALID, 0);
        return;
    }
    if (goes_in_circle(core, c->name, o.dead_forward)) {
        refuse(t, PAWL_E_INVALID, PAWL_INVALID_CIRCLE);
        return;
    }
    canonical(&o, q, peer);
    if (o.mode == PAWL_DIRECT && !only_rights_differ(&o, &q->options)) {
        refuse(t, PAWL_E_NOT_SUPPORTED, 0);
        return;
    }
    bool admin = peer->uid == 0 || peer->uid == core->options.admin_uid;
    if (o.owner != q->options.owner && !admin) {
        refuse(t, PAWL_E_PERM, 0);
        return;
    }
    struct pawl_queue_rec r;
    pawl_core_queue_fact(core, q, &r);
    r.options = o;
    write_and_answer(t, &r);
    pawl_core_queue_wake(core, q); /* the limit of what is in flight may be higher */
}

void pawl_core_queue_take(struct pawl_take *t)
{
    struct pawl_core *core = t->core;
    struct pawl_cmd_queue c;
    memcpy(&c, t->fixed, sizeof c);
    c.options.dead_forward[PAWL_NAME_BYTES_MAX] = 0;
    if (!pawl_name_valid(c.name)) {
        refuse(t, PAWL_E_INVALID, 0);
        return;
    }
    if (t->type == PAWL_CMD_QUEUE_CREATE) {
        create(t, &c);
        return;
    }
    struct pawl_core_queue *q = by_name(t, c.name);
    if (!q) {
        refuse(t, PAWL_E_NOT_FOUND, 0);
        return;
    }
    if (t->type == PAWL_CMD_QUEUE_FIND) {
        /* The mode with it: messages of a direct queue go another way. */
        pawl_core_lane_answer(core, t->lane, t->seq, PAWL_OK, q->id, 0, pawl_core_appended(core),
                              q->options.mode << PAWL_ANSWER_STATE_SHIFT);
        return;
    }
    if (!pawl_core_queue_admin(core, q, t->session->peer.uid)) {
        refuse(t, PAWL_E_PERM, 0);
        return;
    }
    if ((q->options.mode == PAWL_TABLE || q->options.mode == PAWL_DIRECT) &&
        (t->type == PAWL_CMD_QUEUE_PURGE || t->type == PAWL_CMD_QUEUE_PAUSE)) {
        refuse(t, PAWL_E_NOT_SUPPORTED, 0);
        return;
    }
    struct pawl_queue_rec r;
    pawl_core_queue_fact(core, q, &r);
    switch (t->type) {
    case PAWL_CMD_QUEUE_ALTER:
        alter(t, &c, q);
        return;
    case PAWL_CMD_QUEUE_PURGE:
        pawl_core_purge_begin(t, q);
        return;
    case PAWL_CMD_QUEUE_DROP:
        r.op.extra |= PAWL_QUEUE_GONE;
        r.time = core->now.time;
        break;
    case PAWL_CMD_QUEUE_PAUSE:
        r.op.extra |= PAWL_QUEUE_PAUSED;
        break;
    default:
        r.op.extra &= ~PAWL_QUEUE_PAUSED;
        break;
    }
    write_and_answer(t, &r);
}
