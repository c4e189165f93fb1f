/* SPDX-License-Identifier: MIT */
/* Sessions.
 *
 *   LIVE --socket lost--> DETACHED --secret--> LIVE     (epoch + 1)
 *   LIVE, DETACHED --closed, dead, breach, grace over--> ENDING --leases given back--> freed
 *
 * It enters the log with its first record. A SESSION_END and one BACK a lease follow in pieces, as
 * the log has room; a crash between leaves it ENDING, and the new broker goes on. A detached lease
 * outlives its session: it just loses it.
 */
#include "core/core_inner.h"

struct pawl_core_session *pawl_core_session_make(struct pawl_core *core, uint64_t id)
{
    uint32_t n = pawl_table_find(&core->sessions_by_id, id);
    if (n)
        return pawl_core_session_at(core, n);
    pawl_core_memory_open(core);
    n = pawl_pool_take(&core->sessions);
    pawl_core_memory_close(core);
    if (n == 0)
        return NULL;
    struct pawl_core_session *s = pawl_core_session_at(core, n);
    s->id = id;
    s->number = n;
    s->state = PAWL_SESSION_DETACHED;
    pawl_table_insert(&core->sessions_by_id, id, n);
    return s;
}

void pawl_core_session_fact(const struct pawl_core_session *s, struct pawl_session_rec *out)
{
    memset(out, 0, sizeof *out);
    out->id = s->id;
    out->epoch = s->epoch;
    memcpy(out->secret, s->secret, sizeof out->secret);
    out->uid = s->peer.uid;
    out->gid = s->peer.gid;
    out->pid = s->peer.pid;
    out->start_time = s->peer.start_time;
    out->state = s->state == PAWL_SESSION_ENDING;
    memcpy(out->label, s->peer.label, sizeof out->label);
    out->label[sizeof out->label - 1] = 0;
}

void pawl_core_session_free(struct pawl_core *core, struct pawl_core_session *s)
{
    PAWL_ASSERT_REL(s->leases_count, ==, 0);
    PAWL_ASSERT_REL(s->idems_count, ==, 0);
    for (uint32_t i = 0; i < PAWL_LANES_MAX; i++)
        if (s->lanes[i])
            pawl_core_lane_free(core, pawl_core_lane_at(core, s->lanes[i]));
    pawl_timer_destroy(&core->wheel, s->timer);
    if (s->home.segment) {
        core->live -= sizeof(struct pawl_session_rec) + PAWL_RECORD_HEAD;
        pawl_core_home_set(core, PAWL_KIND_SESSION, s->number, 0);
    }
    uint32_t n = s->number;
    pawl_table_remove(&core->sessions_by_id, s->id, n);
    memset(s->secret, 0, sizeof s->secret);
    s->number = 0;
    pawl_pool_give(&core->sessions, n);
}

/* --- interface ------------------------------------------------------------------------------- */

static void set_secret(struct pawl_core *core, struct pawl_core_session *s)
{
    uint64_t words[2] = { core->port.random(core->port.ctx), core->port.random(core->port.ctx) };
    memcpy(s->secret, words, sizeof words);
}

int pawl_core_session_open(struct pawl_core *core, const struct pawl_core_peer *peer,
                           struct pawl_now now, struct pawl_core_session **out)
{
    *out = NULL;
    pawl_core_set_now(core, now);
    /* Those that still give leases back count too: each holds its place in the table. */
    if (core->sessions.used >= core->options.sessions_max)
        return PAWL_E_QUOTA;
    pawl_core_memory_open(core);
    bool ready = pawl_pool_ready(&core->sessions, 1) && pawl_core_timers_ready(core, 1);
    pawl_core_memory_close(core);
    if (!ready)
        return PAWL_E_RESOURCE;
    struct pawl_core_session *s = pawl_core_session_make(core, pawl_core_new_id(core));
    s->timer = pawl_timer_create(&core->wheel, PAWL_TIMER_SESSION, s->number);
    PAWL_ASSERT_REL(s->timer, !=, 0);
    s->known = true;
    s->state = PAWL_SESSION_LIVE;
    s->epoch = 1;
    s->peer = *peer;
    s->peer.label[sizeof s->peer.label - 1] = 0;
    set_secret(core, s);
    *out = s;
    return PAWL_OK;
}

int pawl_core_session_resume(struct pawl_core *core, uint64_t id, const uint8_t secret[16],
                             const struct pawl_core_peer *peer, struct pawl_now now,
                             struct pawl_core_session **out)
{
    *out = NULL;
    pawl_core_set_now(core, now);
    uint32_t n = id ? pawl_table_find(&core->sessions_by_id, id) : 0;
    struct pawl_core_session *s = n ? pawl_core_session_at(core, n) : NULL;
    if (!s || s->state == PAWL_SESSION_ENDING)
        return PAWL_E_OUTCOME_UNKNOWN;
    /* No early end: the time must not tell how much was right. */
    uint8_t differs = 0;
    for (uint32_t i = 0; i < sizeof s->secret; i++)
        differs |= (uint8_t)(s->secret[i] ^ secret[i]);
    if (differs || s->peer.uid != peer->uid)
        return PAWL_E_PERM;
    if (s->state == PAWL_SESSION_LIVE)
        pawl_core_session_detach(core, s, now);
    s->epoch++;
    s->peer = *peer;
    s->peer.label[sizeof s->peer.label - 1] = 0;
    s->logged = false; /* its next record says the new epoch and process first */
    s->state = PAWL_SESSION_LIVE;
    pawl_timer_cancel(&core->wheel, s->timer);
    *out = s;
    return PAWL_OK;
}

void pawl_core_session_detach(struct pawl_core *core, struct pawl_core_session *session,
                              struct pawl_now now)
{
    pawl_core_set_now(core, now);
    PAWL_ASSERT_REL(session->state, !=, PAWL_SESSION_ENDING);
    session->state = PAWL_SESSION_DETACHED;
    session->detached_at = core->now.time;
    for (uint32_t i = 0; i < PAWL_LANES_MAX; i++) {
        struct pawl_core_lane *lane =
            session->lanes[i] ? pawl_core_lane_at(core, session->lanes[i]) : NULL;
        if (lane)
            pawl_core_lane_hold(core, lane);
    }
    pawl_timer_arm(&core->wheel, session->timer,
                   pawl_add_sat(core->now.time, core->options.session_grace_ns));
}

static void begin_end(struct pawl_core *core, struct pawl_core_session *s, uint8_t why)
{
    s->state = PAWL_SESSION_ENDING;
    s->why = why;
    s->end_logged = s->leaves = false;
    for (uint32_t i = 0; i < PAWL_LANES_MAX; i++) {
        struct pawl_core_lane *lane = s->lanes[i] ? pawl_core_lane_at(core, s->lanes[i]) : NULL;
        if (lane)
            pawl_core_lane_close(core, lane, core->now);
    }
    pawl_timer_cancel(&core->wheel, s->timer);
    s->ending_next = core->ending_first;
    core->ending_first = s->number;
}

void pawl_core_session_end(struct pawl_core *core, struct pawl_core_session *session,
                           enum pawl_core_end why, struct pawl_now now)
{
    pawl_core_set_now(core, now);
    PAWL_ASSERT_REL(session->state, !=, PAWL_SESSION_ENDING);
    begin_end(core, session, (uint8_t)why);
}

void pawl_core_session_timer(struct pawl_core *core, uint32_t number)
{
    struct pawl_core_session *s = pawl_core_session_at(core, number);
    if (s->state == PAWL_SESSION_DETACHED)
        begin_end(core, s, PAWL_END_GRACE);
}

uint64_t pawl_core_session_id(const struct pawl_core_session *session) { return session->id; }
uint64_t pawl_core_session_epoch(const struct pawl_core_session *session) { return session->epoch; }
const uint8_t *pawl_core_session_secret(const struct pawl_core_session *session)
{
    return session->secret;
}
const struct pawl_core_peer *pawl_core_session_peer(const struct pawl_core_session *session)
{
    return &session->peer;
}

void pawl_core_session_each(struct pawl_core *core,
                            void (*each)(void *ctx, struct pawl_core_session *s), void *ctx)
{
    for (uint32_t n = 1; n < core->sessions.never_used; n++) {
        struct pawl_core_session *s = pawl_core_session_at(core, n);
        if (s->number == n && s->state != PAWL_SESSION_ENDING)
            each(ctx, s);
    }
}

/* --- the end in pieces ----------------------------------------------------------------------- */

/* What the log must be told before the first lease goes. */
void pawl_core_session_end_apply(struct pawl_core *core, struct pawl_core_session *s, uint64_t time)
{
    s->state = PAWL_SESSION_ENDING;
    s->end_logged = true;
    /* Nobody asks for its answers any more; a fact of a lane behind the END would bring it back. */
    for (uint32_t i = 0; i < PAWL_LANES_MAX; i++)
        if (s->lanes[i])
            pawl_core_lane_unlog(core, pawl_core_lane_at(core, s->lanes[i]));
    for (uint32_t n = s->leases_first; n != 0;) {
        struct pawl_core_lease *l = pawl_core_lease_at(core, n);
        uint32_t next = l->next;
        if (l->kind == PAWL_LEASE_DETACHED)
            pawl_core_lease_over(core, l); /* of the session; the lease goes on */
        n = next;
    }
    pawl_core_idem_session_end(core, s, time);
}

/* The program had this one in its hands. */
static bool was_taken(const struct pawl_core *core, const struct pawl_core_session *s,
                      const struct pawl_core_lease *l)
{
    if (s->why != PAWL_END_DEAD || l->position == PAWL_POSITION_PENDING ||
        l->position >= PAWL_POSITION_BACK || s->lanes[l->lane] == 0)
        return false;
    return l->position <= pawl_core_lane_at(core, s->lanes[l->lane])->taken;
}

/* Outcomes that are open, then the END. False: no room, or more in another turn. */
static bool say_end(struct pawl_core *core, struct pawl_core_session *s)
{
    const struct pawl_session_end_rec r = { s->id, core->now.time, s->why };
    bool logged = s->home.segment != 0;
    if (!pawl_core_left_write(core, s))
        return false;
    uint64_t room = pawl_core_left_room(s);
    if (!pawl_core_has_room(core, room + (logged ? sizeof r + PAWL_RECORD_HEAD : 0)))
        return false;
    pawl_core_left_begin(core, s, logged ? sizeof r : 0);
    uint64_t lsn;
    if (logged)
        memcpy(pawl_core_append(core, PAWL_RECORD_SESSION_END, sizeof r, &lsn), &r, sizeof r);
    pawl_core_left_end(core, s);
    pawl_core_session_end_apply(core, s, r.time);
    return true;
}

/* False: no room. */
static bool give_back(struct pawl_core *core, struct pawl_core_session *s)
{
    if (!s->end_logged && !say_end(core, s))
        return false;
    while (s->leases_first) {
        if (!pawl_core_has_room(core, PAWL_BACK_ROOM))
            return false;
        struct pawl_core_lease *l = pawl_core_lease_at(core, s->leases_first);
        struct pawl_core_message *m = pawl_core_message_at(core, l->message);
        if (pawl_core_queue_at(core, m->queue)->gone) {
            pawl_core_lease_over(core, l); /* the sweep ends it */
            continue;
        }
        enum pawl_back_cause cause = was_taken(core, s, l) ? PAWL_BACK_CRASHED : PAWL_BACK_RELEASED;
        (void)pawl_core_lease_back(core, l->message, cause, NULL, 0, NULL, 0);
    }
    return true;
}

bool pawl_core_session_pump(struct pawl_core *core)
{
    while (core->ending_first) {
        struct pawl_core_session *s = pawl_core_session_at(core, core->ending_first);
        if (!give_back(core, s))
            return true;
        core->ending_first = s->ending_next;
        pawl_core_session_free(core, s);
    }
    return false;
}
