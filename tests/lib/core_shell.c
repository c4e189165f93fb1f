/* SPDX-License-Identifier: MIT */
#include "lib/core_shell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/prng.h"
#include "lib/budget.h"

#define CHECK(e) \
    ((e) ? (void)0 : (fprintf(stderr, "core_shell: %s:%d: %s\n", __FILE__, __LINE__, #e), abort()))

static void *grown(void *p, uint32_t *capacity, uint32_t count, size_t entry)
{
    if (count < *capacity)
        return p;
    *capacity = *capacity ? 2 * *capacity : 64;
    p = realloc(p, *capacity * entry);
    CHECK(p != NULL);
    return p;
}

/* --- port ------------------------------------------------------------------------------------ */

static uint64_t port_room(void *ctx) { return ((struct core_shell *)ctx)->room; }
static uint64_t port_appended(void *ctx) { return ((struct core_shell *)ctx)->appended; }

static void *port_append(void *ctx, uint16_t type, uint32_t bytes, uint64_t *lsn)
{
    struct core_shell *s = ctx;
    uint64_t all = pawl_align_up(bytes, 8) + 8;
    CHECK(s->room >= bytes + 16);
    if (s->metered)
        s->room -= all;
    s->records = grown(s->records, &s->record_capacity, s->record_count, sizeof *s->records);
    struct core_record *r = &s->records[s->record_count++];
    *r = (struct core_record){ .lsn = s->appended, .type = type, .bytes = bytes };
    r->body = malloc(bytes);
    CHECK(r->body != NULL);
    memset(r->body, 0xa5, bytes);
    *lsn = s->appended;
    s->appended += all;
    return r->body;
}

static uint64_t port_random(void *ctx)
{
    struct core_shell *s = ctx;
    struct pawl_prng p = { s->random };
    uint64_t n = pawl_prng_next(&p);
    s->random = p.state;
    return n;
}

static bool port_reserve(void *ctx, uint32_t lane, uint32_t bytes)
{
    struct core_shell *s = ctx;
    CHECK(lane < CORE_LANES);
    if (s->free_bytes[lane] < bytes)
        return false;
    s->free_bytes[lane] -= bytes;
    s->reserved[lane] += bytes;
    return true;
}

static struct pawl_effect *port_effect(void *ctx, uint32_t lane, uint64_t wait_lsn)
{
    struct core_shell *s = ctx;
    CHECK(lane < CORE_LANES);
    s->effects = grown(s->effects, &s->effect_capacity, s->effect_count, sizeof *s->effects);
    struct pawl_effect *e = &s->effects[s->effect_count++];
    memset(e, 0xee, sizeof *e); /* what the core leaves out shall show */
    e->wait_lsn = wait_lsn;
    e->lane = lane;
    return e;
}

static void *port_map(void *ctx, size_t bytes)
{
    struct core_shell *s = ctx;
    if (s->memory + bytes > s->memory_max)
        return NULL;
    /* Pages and no heap: a pool asks for far more than it will touch. */
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    s->memory += bytes;
    return p;
}

static void port_unmap(void *ctx, void *p, size_t bytes)
{
    ((struct core_shell *)ctx)->memory -= bytes;
    CHECK(munmap(p, bytes) == 0);
}

static struct pawl_core *make(struct core_shell *s)
{
    const struct pawl_core_port port = {
        .ctx = s,
        .room = port_room,
        .append = port_append,
        .appended = port_appended,
        .random = port_random,
        .reserve = port_reserve,
        .effect = port_effect,
        .memory_map = port_map,
        .memory_unmap = port_unmap,
    };
    struct pawl_core *core = pawl_core_create(&s->options, &port);
    CHECK(core != NULL);
    return core;
}

void core_shell_core(struct core_shell *s) { s->core = make(s); }

/* --- lives ----------------------------------------------------------------------------------- */

void core_init_options(struct core_shell *s, const struct pawl_core_options *options)
{
    memset(s, 0, sizeof *s);
    s->options = *options;
    s->random = 42;
    s->now = (struct pawl_now){ CORE_TIME, CORE_WALL };
    s->appended = 4096;
    s->room = 1ull << 40;
    s->memory_max = UINT64_MAX;
    for (uint32_t i = 0; i < CORE_LANES; i++)
        s->free_bytes[i] = 1u << 30;
    s->core = make(s);
    CHECK(pawl_core_start(s->core, s->now, s->options.epoch, true) == 0);
}

struct pawl_core_options core_options(void)
{
    return (struct pawl_core_options){
        .memory_bytes = 256u << 20,
        .segment_bytes = 1u << 16,
        .epoch = 1,
        .hash_seed = 7,
        .session_grace_ns = 60 * PAWL_NS_S,
        .sessions_max = 64,
        .queues_max = 64,
        .admin_uid = 500,
    };
}

void core_init(struct core_shell *s)
{
    const struct pawl_core_options o = core_options();
    core_init_options(s, &o);
}

static void drop_effects(struct core_shell *s)
{
    for (uint32_t i = 0; i < s->effect_count; i++)
        if (s->effects[i].type != PAWL_EFFECT_ANSWER)
            pawl_core_effect_done(s->core, &s->effects[i], false, 0);
    s->effect_count = 0;
}

void core_forget_events(struct core_shell *s)
{
    for (uint32_t i = 0; i < s->event_count; i++)
        free(s->events[i].bytes);
    s->event_count = 0;
}

void core_fini(struct core_shell *s)
{
    drop_effects(s);
    core_forget_events(s);
    pawl_core_destroy(s->core);
    CHECK(s->memory == 0);
    for (uint32_t i = 0; i < s->record_count; i++)
        free(s->records[i].body);
    free(s->records);
    free(s->effects);
    free(s->events);
}

static struct pawl_core *recover(struct core_shell *s, uint64_t epoch, bool same_boot)
{
    struct pawl_core *core = make(s);
    for (uint32_t i = 0; i < s->record_count; i++) {
        const struct core_record *r = &s->records[i];
        if (r->body == NULL)
            continue;
        int rc = pawl_core_replay(core, r->lsn, r->type, r->body, r->bytes);
        if (rc != 0)
            fprintf(stderr, "core_shell: record %u of type %u makes no sense\n", i, r->type);
        CHECK(rc == 0);
    }
    CHECK(pawl_core_start(core, s->now, epoch, same_boot) == 0);
    return core;
}

void core_check(struct core_shell *s)
{
    pawl_core_verify(s->core);
    struct pawl_core *other = recover(s, s->options.epoch + 1, true);
    pawl_core_verify(other);
    uint64_t a = pawl_core_digest(s->core), b = pawl_core_digest(other);
    pawl_core_destroy(other);
    if (a != b)
        fprintf(stderr, "core_shell: what is recovered differs from what was there\n");
    CHECK(a == b);
}

void core_end(struct core_shell *s)
{
    core_turn(s);
    core_check(s);
    core_fini(s);
}

void core_restart(struct core_shell *s, bool same_boot)
{
    drop_effects(s);
    core_forget_events(s);
    pawl_core_destroy(s->core);
    s->options.epoch++;
    s->core = recover(s, s->options.epoch, same_boot);
    for (uint32_t i = 0; i < CORE_LANES; i++)
        s->position[i] = 0, s->free_bytes[i] += s->reserved[i], s->reserved[i] = 0;
}

void core_cut(struct core_shell *s, uint32_t records)
{
    CHECK(records <= s->record_count);
    for (uint32_t i = records; i < s->record_count; i++)
        free(s->records[i].body);
    s->record_count = records;
}

void core_release(struct core_shell *s, uint64_t segment)
{
    for (uint32_t i = 0; i < s->record_count; i++) {
        struct core_record *r = &s->records[i];
        if (r->lsn / s->options.segment_bytes > segment)
            continue;
        free(r->body);
        r->body = NULL;
    }
}

void core_copy_all(struct core_shell *s)
{
    uint64_t newest = s->appended / s->options.segment_bytes;
    s->appended = (newest + 1) * s->options.segment_bytes; /* the tail is in another one */
    for (uint64_t segment = 0; segment <= newest; segment++) {
        while (!pawl_core_copy(s->core, segment, 512, s->now))
            ;
        core_release(s, segment);
    }
}

void core_pass(struct core_shell *s, uint64_t ns)
{
    s->now.time += ns;
    s->now.wall += ns;
}

void core_publish(struct core_shell *s)
{
    while (pawl_core_pump(s->core, s->now) && s->room > 4096)
        ;
    /* Written by copy: done() may emit again. */
    for (uint32_t i = 0; i < s->effect_count; i++) {
        struct pawl_effect e = s->effects[i];
        s->events = grown(s->events, &s->event_capacity, s->event_count, sizeof *s->events);
        struct core_event *event = &s->events[s->event_count++];
        *event = (struct core_event){ .effect = e, .bytes = malloc(e.bytes) };
        CHECK(event->bytes != NULL);
        memset(event->bytes, 0xa5, e.bytes);
        pawl_core_effect_write(s->core, &e, event->bytes, 0);
        s->position[e.lane] += e.bytes;
        if (e.type == PAWL_EFFECT_DELIVERY) {
            CHECK(s->reserved[e.lane] >= e.bytes);
            s->reserved[e.lane] -= e.bytes;
            s->free_bytes[e.lane] += e.bytes;
        }
        if (e.type != PAWL_EFFECT_ANSWER)
            pawl_core_effect_done(s->core, &e, true, s->position[e.lane]);
    }
    s->effect_count = 0;
}

void core_turn(struct core_shell *s)
{
    while (pawl_core_tick(s->core, s->now, 1000) && s->room > 4096)
        ;
    core_publish(s);
}

/* --- clients --------------------------------------------------------------------------------- */

static uint32_t handles;

static int open_lane(struct core_client *c, uint32_t number, uint64_t durable, uint64_t relaxed)
{
    const struct pawl_attach_lane given = {
        .lane = number,
        .comp_bytes = c->comp_bytes,
        .window = c->window,
        .grant_durable = durable,
        .grant_relaxed = relaxed,
        .open_seq = c->oldest,
        .next_seq = c->next_seq,
    };
    c->handle = handles++ % CORE_LANES;
    int rc = pawl_core_lane_open(c->shell->core, c->session, number, c->window, &given, c->handle,
                                 c->shell->now, &c->lane);
    if (rc == PAWL_OK)
        c->number = pawl_core_lane_number(c->lane);
    return rc;
}

void core_client_open(struct core_shell *s, struct core_client *c, uint32_t uid)
{
    *c = (struct core_client){ .shell = s, .uid = uid, .window = 1024, .comp_bytes = 1u << 20 };
    c->next_seq = c->oldest = 1;
    const struct pawl_core_peer peer = { .uid = uid, .gid = uid, .pid = 1000 + uid };
    CHECK(pawl_core_session_open(s->core, &peer, s->now, &c->session) == PAWL_OK);
    c->session_id = pawl_core_session_id(c->session);
    memcpy(c->secret, pawl_core_session_secret(c->session), sizeof c->secret);
    CHECK(open_lane(c, PAWL_LANE_NEW, 0, 0) == PAWL_OK);
}

int core_client_resume(struct core_client *c, uint64_t grant_durable, uint64_t grant_relaxed)
{
    const struct pawl_core_peer peer = { .uid = c->uid, .gid = c->uid, .pid = 1000 + c->uid };
    int rc = pawl_core_session_resume(c->shell->core, c->session_id, c->secret, &peer,
                                      c->shell->now, &c->session);
    return rc == PAWL_OK ? open_lane(c, c->number, grant_durable, grant_relaxed) : rc;
}

int core_take(struct core_client *c, void *command, uint32_t fixed, const void *variable,
              uint32_t variable_bytes)
{
    struct pawl_cmd *head = command;
    head->bytes = fixed + variable_bytes;
    if (head->seq == 0)
        head->seq = c->next_seq++;
    head->open = (uint32_t)(head->seq > c->oldest ? head->seq - c->oldest : 0);
    struct core_shell *s = c->shell;
    CHECK(s->room >= pawl_core_need(head));
    uint64_t before = s->appended;
    int rc = pawl_core_take(s->core, c->lane, command, variable, variable_bytes, s->now);
    if (head->type != PAWL_CMD_QUEUE_PURGE && head->type != PAWL_CMD_RECEIVE)
        CHECK(s->appended - before <= pawl_core_need(head));
    return rc;
}

struct core_answer core_answer(struct core_client *c, uint64_t seq)
{
    struct core_answer a = { .result = CORE_NONE, .seq = seq };
    for (uint32_t i = 0; i < c->shell->event_count; i++) {
        struct core_event *e = &c->shell->events[i];
        if (e->seen || e->effect.lane != c->handle || e->effect.seq != seq ||
            e->effect.type == PAWL_EFFECT_DELIVERY)
            continue;
        e->seen = true;
        a.result = e->effect.result;
        a.value = e->effect.value;
        a.lsn = e->effect.lsn;
        if (e->effect.type == PAWL_EFFECT_DATA) {
            struct pawl_comp_data d;
            memcpy(&d, e->bytes, sizeof d);
            CHECK(d.type == PAWL_COMP_DATA && d.seq == seq);
            a.data = e->bytes + sizeof d;
            a.bytes = d.data_bytes;
        } else {
            struct pawl_comp_answer w;
            memcpy(&w, e->bytes, sizeof w);
            CHECK(w.type == PAWL_COMP_ANSWER && w.seq == seq && w.result == a.result);
            a.flags = w.flags;
        }
        break;
    }
    return a;
}

struct core_answer core_call(struct core_client *c, void *command, uint32_t fixed,
                             const void *variable, uint32_t variable_bytes)
{
    CHECK(core_take(c, command, fixed, variable, variable_bytes) == PAWL_OK);
    core_turn(c->shell);
    struct core_answer a = core_answer(c, ((struct pawl_cmd *)command)->seq);
    if (a.result != CORE_NONE && !c->hold && a.seq >= c->oldest)
        c->oldest = a.seq + 1;
    return a;
}

/* --- commands -------------------------------------------------------------------------------- */

struct core_answer core_queue_command(struct core_client *c, uint16_t type, const char *name,
                                      const struct pawl_queue_options *options)
{
    struct pawl_cmd_queue q = { .head.type = type, .max = 100 };
    (void)snprintf(q.name, sizeof q.name, "%s", name);
    if (options) {
        q.has_options = 1;
        q.options = *options;
    }
    return core_call(c, &q, sizeof q, NULL, 0);
}

uint64_t core_create_with(struct core_client *c, const char *name,
                          const struct pawl_queue_options *options)
{
    struct core_answer a = core_queue_command(c, PAWL_CMD_QUEUE_CREATE, name, options);
    CHECK(a.result == PAWL_OK);
    return a.value;
}

uint64_t core_create(struct core_client *c, const char *name, uint32_t mode)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.mode = mode;
    o.perm = 0777;
    return core_create_with(c, name, &o);
}

struct core_answer core_send_with(struct core_client *c, uint64_t queue, const char *body,
                                  const struct core_send_options *o)
{
    uint8_t variable[8192];
    uint32_t bytes = 0;
    struct pawl_cmd_send m = { .head.type = PAWL_CMD_SEND, .queue = queue };
    m.body_bytes = (uint32_t)strlen(body);
    m.priority = o->priority;
    m.headers_bytes = o->headers_bytes;
    if (o->delay_ns || o->at_wall_ns || o->ttl_ns) {
        m.flags = PAWL_SEND_TIMES;
        const struct pawl_cmd_send_times t = { o->delay_ns, o->at_wall_ns, o->ttl_ns };
        memcpy(variable, &t, sizeof t);
        bytes = sizeof t;
    }
    m.key_bytes = o->key ? (uint8_t)strlen(o->key) : 0;
    m.ordering_key_bytes = o->ordering_key ? (uint8_t)strlen(o->ordering_key) : 0;
    CHECK(bytes + 255 + m.ordering_key_bytes + m.headers_bytes + m.body_bytes + 8 <
          sizeof variable);
    if (m.key_bytes)
        memcpy(variable + bytes, o->key, m.key_bytes);
    bytes += m.key_bytes;
    if (m.ordering_key_bytes)
        memcpy(variable + bytes, o->ordering_key, m.ordering_key_bytes);
    bytes += m.ordering_key_bytes;
    if (m.headers_bytes)
        memcpy(variable + bytes, o->headers, m.headers_bytes);
    bytes += m.headers_bytes;
    memcpy(variable + bytes, body, m.body_bytes);
    bytes += m.body_bytes;
    while (bytes % 8)
        variable[bytes++] = 0;
    return core_call(c, &m, sizeof m, variable, bytes);
}

struct core_answer core_send(struct core_client *c, uint64_t queue, const char *body)
{
    const struct core_send_options o = { .priority = PAWL_PRIORITY_DEFAULT };
    return core_send_with(c, queue, body, &o);
}

struct core_delivery core_delivered(struct core_client *c)
{
    struct core_delivery r = { 0 };
    for (uint32_t i = 0; i < c->shell->event_count && !r.there; i++) {
        struct core_event *e = &c->shell->events[i];
        if (e->seen || e->effect.lane != c->handle || e->effect.type != PAWL_EFFECT_DELIVERY)
            continue;
        e->seen = r.there = true;
        memcpy(&r.d, e->bytes, sizeof r.d);
        CHECK(r.d.type == PAWL_COMP_DELIVERY && r.d.bytes == e->effect.bytes);
        uint32_t before =
            (uint32_t)sizeof r.d + r.d.key_bytes + r.d.ordering_key_bytes + r.d.headers_bytes;
        uint32_t bytes = r.d.body_bytes < 255 ? r.d.body_bytes : 255;
        CHECK(before + bytes <= r.d.bytes);
        memcpy(r.body, e->bytes + before, bytes);
        CHECK(before + r.d.body_bytes + r.d.progress_bytes <= r.d.bytes);
        memcpy(r.progress, e->bytes + before + r.d.body_bytes,
               r.d.progress_bytes < 63 ? r.d.progress_bytes : 63);
    }
    return r;
}

static struct pawl_cmd_receive receive_command(uint16_t type, uint32_t max, uint64_t wait_ns,
                                               uint8_t kind)
{
    struct pawl_cmd_receive r = { .head.type = type, .max = max, .wait_ns = wait_ns };
    r.lease_kind = kind;
    r.queue_count = 1;
    return r;
}

uint64_t core_receive_submit(struct core_client *c, uint16_t type, uint64_t queue, uint32_t max,
                             uint64_t wait_ns, uint8_t kind)
{
    struct pawl_cmd_receive r = receive_command(type, max, wait_ns, kind);
    c->hold = true;
    CHECK(core_take(c, &r, sizeof r, &queue, sizeof queue) == PAWL_OK);
    return r.head.seq;
}

struct core_delivery core_receive_kind(struct core_client *c, uint64_t queue, uint8_t kind,
                                       uint64_t lease_ns, uint8_t flags)
{
    struct pawl_cmd_receive r = receive_command(PAWL_CMD_RECEIVE, 1, 0, kind);
    r.lease_ns = lease_ns;
    r.flags = flags;
    struct core_answer a = core_call(c, &r, sizeof r, &queue, sizeof queue);
    struct core_delivery d = core_delivered(c);
    CHECK(d.there == (a.result == PAWL_OK));
    return d;
}

struct core_delivery core_receive(struct core_client *c, uint64_t queue)
{
    return core_receive_kind(c, queue, PAWL_LEASE_PROCESS, 0, 0);
}

struct core_answer core_settle(struct core_client *c, uint16_t type, const struct core_delivery *d,
                               uint64_t time_ns, uint32_t flags, const char *reason)
{
    struct pawl_cmd_settle m = {
        .head.type = type,
        .message = d->d.message,
        .grant = d->d.grant,
        .random = d->d.random,
        .time_ns = time_ns,
        .flags = flags,
    };
    char text[PAWL_PROGRESS_BYTES_MAX + 64] = { 0 };
    if (reason) {
        m.text_bytes = (uint32_t)strlen(reason);
        CHECK(m.text_bytes + 8 < sizeof text);
        memcpy(text, reason, m.text_bytes);
    }
    return core_call(c, &m, sizeof m, text, (uint32_t)pawl_align_up(m.text_bytes, 8));
}

struct core_answer core_ack(struct core_client *c, const struct core_delivery *d)
{
    return core_settle(c, PAWL_CMD_ACK, d, 0, 0, NULL);
}

struct core_answer core_by_id(struct core_client *c, uint16_t type, uint64_t queue, uint64_t id,
                              uint32_t flags)
{
    struct pawl_cmd_message m = { .head.type = type, .queue = queue, .id = id, .flags = flags };
    return core_call(c, &m, sizeof m, NULL, 0);
}

struct pawl_queue_stat core_stat(struct core_client *c, const char *name)
{
    struct pawl_queue_stat s;
    struct core_answer a = core_queue_command(c, PAWL_CMD_QUEUE_STAT, name, NULL);
    CHECK(a.bytes == sizeof s);
    memcpy(&s, a.data, sizeof s);
    return s;
}

struct pawl_record core_query(struct core_client *c, uint64_t queue, uint64_t id)
{
    struct pawl_record r = { 0 };
    struct pawl_cmd_scan m = { .head.type = PAWL_CMD_SCAN, .queue = queue, .after_id = id - 1 };
    m.state_mask = UINT32_MAX;
    m.max = 1;
    struct core_answer a = core_call(c, &m, sizeof m, NULL, 0);
    if (a.bytes != 0) {
        CHECK(a.bytes == sizeof r);
        memcpy(&r, a.data, sizeof r);
    }
    if (r.id != id)
        r.state = PAWL_STATE_NONE;
    return r;
}
