/* SPDX-License-Identifier: MIT */
#include "lib/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define LEASE_NS (10 * PAWL_NS_S)

static void need(bool true_of_it, const char *what)
{
    if (true_of_it)
        return;
    fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void wrong(struct peer *p, const char *what)
{
    if (!p->failure)
        p->failure = what;
}

static struct pawl_comp_shm *comp_of(struct peer_lane *l) { return l->comp.header; }
static struct pawl_sub_shm *sub_of(struct peer_lane *l) { return l->sub.header; }

/* --- completions ----------------------------------------------------------------------------- */

static uint8_t *claim(struct peer *p, struct peer_lane *l, uint32_t bytes)
{
    void *r = pawl_ring_claim(&l->out, (uint32_t)pawl_align_up(bytes, 8));
    if (!r && pawl_ring_refresh(&l->out))
        r = pawl_ring_claim(&l->out, (uint32_t)pawl_align_up(bytes, 8));
    if (!r)
        wrong(p, "the completion ring is full");
    return r;
}

void peer_raw(struct peer *p, struct peer_lane *l, const void *record, uint32_t bytes)
{
    uint8_t *r = claim(p, l, bytes);
    if (r)
        memcpy(r, record, bytes);
    l->events++;
}

void peer_answer_run(struct peer *p, struct peer_lane *l, uint64_t seq, uint32_t count,
                     int32_t result, uint64_t value)
{
    struct pawl_comp_answer a = { .bytes = sizeof a,
                                  .type = PAWL_COMP_ANSWER,
                                  .count_minus_1 = (uint16_t)(count - 1),
                                  .seq = seq,
                                  .value = value,
                                  .result = result,
                                  .flags = count > 1 ? PAWL_ANSWER_VALUES_RUN : 0 };
    peer_raw(p, l, &a, sizeof a);
    l->events += count - 1;
}

void peer_answer(struct peer *p, struct peer_lane *l, uint64_t seq, int32_t result, uint64_t value,
                 uint64_t lsn)
{
    struct pawl_comp_answer a = { .bytes = sizeof a,
                                  .type = PAWL_COMP_ANSWER,
                                  .seq = seq,
                                  .value = value,
                                  .lsn = lsn,
                                  .result = result };
    peer_raw(p, l, &a, sizeof a);
}

void peer_data(struct peer *p, struct peer_lane *l, uint64_t seq, int32_t result, uint64_t value,
               const void *data, uint32_t bytes)
{
    struct pawl_comp_data d = { .bytes = (uint32_t)pawl_align_up(sizeof d + bytes, 8),
                                .type = PAWL_COMP_DATA,
                                .seq = seq,
                                .value = value,
                                .result = result,
                                .data_bytes = bytes };
    uint8_t *r = claim(p, l, d.bytes);
    if (!r)
        return;
    memcpy(r, &d, sizeof d);
    memcpy(r + sizeof d, data, bytes);
    l->events++;
}

void peer_publish(struct peer *p, struct peer_lane *l)
{
    if (!l->open)
        return;
    pawl_store_rlx_u64(&comp_of(l)->events, l->events);
    (void)pawl_ring_publish(&l->out);
    uint32_t w = pawl_wait_pending(sub_of(l), l->events, l->served);
    if (!w || p->o.no_wake)
        return;
    l->served = w;
    p->wakes++;
    if ((w & PAWL_WAIT_KIND_MASK) == PAWL_WAIT_FD) {
        if (l->watch >= 0)
            (void)send(l->watch, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    (void)pawl_add_seq_u32(&comp_of(l)->wake, 1);
    (void)syscall(SYS_futex, &comp_of(l)->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* --- messages -------------------------------------------------------------------------------- */

static struct peer_message *find_message(struct peer *p, uint64_t id)
{
    return id >= 1 && id <= p->log->message_count ? &p->log->messages[id - 1] : NULL;
}

static void deliver(struct peer *p, struct peer_lane *l, const struct peer_message *m)
{
    struct pawl_comp_delivery d = { .bytes =
                                        (uint32_t)pawl_align_up(sizeof d + m->variable_bytes, 8),
                                    .type = PAWL_COMP_DELIVERY,
                                    .lease_kind = m->lease_kind,
                                    .priority = m->priority,
                                    .seq = m->seq,
                                    .queue = m->queue,
                                    .message = m->id,
                                    .grant = m->grant,
                                    .random = m->grant * 77,
                                    .deadline = m->deadline,
                                    .acquired = m->acquired,
                                    .body_bytes = m->body_bytes,
                                    .headers_bytes = m->headers_bytes,
                                    .key_bytes = m->key_bytes,
                                    .ordering_key_bytes = m->ordering_key_bytes };
    uint8_t *r = claim(p, l, d.bytes);
    if (!r)
        return;
    memcpy(r, &d, sizeof d);
    if (m->variable_bytes)
        memcpy(r + sizeof d, m->body, m->variable_bytes);
    l->events++;
}

static bool grant(struct peer *p, struct peer_lane *l, uint64_t seq, uint64_t queue,
                  uint64_t lease_ns, uint8_t kind, uint8_t flags)
{
    uint64_t now = pawl_clock_boot();
    for (uint32_t i = 0; i < p->log->message_count; i++) {
        struct peer_message *m = &p->log->messages[i];
        if (m->state == PAWL_STATE_LEASED && m->deadline <= now && m->lease_kind != PAWL_LEASE_HELD)
            m->state = PAWL_STATE_READY;
        if (m->queue != queue || m->state != PAWL_STATE_READY)
            continue;
        m->state = flags & PAWL_RECEIVE_AT_MOST_ONCE ? PAWL_STATE_ACKED : PAWL_STATE_LEASED;
        m->grant = ++p->log->grants;
        m->deadline = m->state == PAWL_STATE_ACKED ? 0
                      : kind == PAWL_LEASE_HELD    ? UINT64_MAX
                                                   : now + (lease_ns ? lease_ns : LEASE_NS);
        m->acquired++;
        m->lane = (uint8_t)l->number;
        m->lease_kind = kind;
        m->seq = seq;
        deliver(p, l, m);
        return true;
    }
    return false;
}

bool peer_deliver(struct peer *p, struct peer_lane *l, uint64_t seq, uint64_t queue,
                  uint64_t lease_ns)
{
    return grant(p, l, seq, queue, lease_ns, PAWL_LEASE_PROCESS, 0);
}

/* --- commands -------------------------------------------------------------------------------- */

static struct peer_answer *window_slot(struct peer *p, struct peer_lane *l, uint64_t seq)
{
    return &p->log->windows[l->number].answers[seq % PEER_WINDOW];
}

/* Decided: into the window and to the client. */
static void decided(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c, int32_t result,
                    uint64_t value)
{
    *window_slot(p, l, c->seq) = (struct peer_answer){
        .seq = c->seq, .value = value, .lsn = ++p->log->lsn, .result = result, .type = c->type
    };
    peer_answer(p, l, c->seq, result, value, p->log->lsn);
}

static void take_send(struct peer *p, struct peer_lane *l, const struct pawl_cmd_send *s)
{
    const uint8_t *at = (const uint8_t *)(s + 1);
    if (s->flags & PAWL_SEND_TIMES)
        at += sizeof(struct pawl_cmd_send_times);
    uint32_t variable = s->key_bytes + s->ordering_key_bytes + s->headers_bytes + s->body_bytes;
    if (at + variable > (const uint8_t *)s + s->head.bytes) {
        wrong(p, "a send is shorter than its parts");
        return;
    }
    if (p->log->message_count == PEER_MESSAGES) {
        decided(p, l, &s->head, PAWL_E_FULL, PAWL_LIMIT_QUEUE_MESSAGES);
        return;
    }
    struct peer_message *m = &p->log->messages[p->log->message_count++];
    *m = (struct peer_message){ .id = p->log->message_count,
                                .queue = s->queue,
                                .variable_bytes = variable,
                                .body_bytes = s->body_bytes,
                                .headers_bytes = s->headers_bytes,
                                .key_bytes = s->key_bytes,
                                .ordering_key_bytes = s->ordering_key_bytes,
                                .priority = s->priority,
                                .state = PAWL_STATE_READY };
    m->body = malloc(variable ? variable : 1);
    need(m->body != NULL, "malloc");
    memcpy(m->body, at, variable);
    decided(p, l, &s->head, PAWL_OK, m->id);
}

static void take_settle(struct peer *p, struct peer_lane *l, const struct pawl_cmd_settle *s)
{
    struct peer_message *m = find_message(p, s->message);
    int32_t result = PAWL_OK;
    if (!m || s->random != s->grant * 77)
        result = PAWL_E_NOT_FOUND;
    else if (m->state == PAWL_STATE_ACKED)
        result = PAWL_E_ALREADY_ACKED;
    else if (m->state != PAWL_STATE_LEASED || m->grant != s->grant)
        result = PAWL_E_LEASE_LOST;
    else if (s->head.type == PAWL_CMD_ACK)
        m->state = PAWL_STATE_ACKED;
    else if (s->head.type == PAWL_CMD_REJECT)
        m->state = PAWL_STATE_DEAD;
    else if (s->head.type == PAWL_CMD_RENEW)
        m->deadline = pawl_clock_boot() + s->time_ns;
    else
        m->state = PAWL_STATE_READY;
    for (uint32_t i = 0; m && i < 8; i++)
        if (l->standing[i].used && l->standing[i].seq == m->seq && l->standing[i].held)
            l->standing[i].held--;
    decided(p, l, &s->head, result, 0);
}

static void take_receive(struct peer *p, struct peer_lane *l, const struct pawl_cmd_receive *c)
{
    bool receive = c->head.type == PAWL_CMD_RECEIVE;
    uint64_t queue;
    memcpy(&queue, c + 1, 8);
    struct peer_standing *s = NULL;
    for (uint32_t i = 0; i < 8; i++)
        if (!l->standing[i].used)
            s = &l->standing[i];
    if (!s) {
        wrong(p, "more standing requests than the peer can keep");
        return;
    }
    uint64_t now = pawl_clock_boot();
    *s = (struct peer_standing){ .seq = c->head.seq,
                                 .queue = queue,
                                 .lease_ns = c->lease_ns,
                                 .until = pawl_add_sat(now, c->wait_ns),
                                 .max = c->max,
                                 .kind = c->lease_kind,
                                 .flags = c->flags,
                                 .used = true,
                                 .receive = receive };
    if (!receive)
        peer_answer(p, l, c->head.seq, PAWL_OK, 0, 0);
}

static void take_stop(struct peer *p, struct peer_lane *l, const struct pawl_cmd_one *c)
{
    for (uint32_t i = 0; i < 8; i++) {
        struct peer_standing *s = &l->standing[i];
        if (!s->used || s->seq != c->value)
            continue;
        s->used = false;
        if (s->receive)
            peer_answer(p, l, s->seq, PAWL_OK_EMPTY, 0, 0);
    }
    peer_answer(p, l, c->head.seq, PAWL_OK, 0, 0);
}

static void take_queue(struct peer *p, struct peer_lane *l, const struct pawl_cmd_queue *c)
{
    struct peer_log *log = p->log;
    uint32_t at = PEER_QUEUES, free_at = PEER_QUEUES;
    for (uint32_t i = 0; i < PEER_QUEUES; i++) {
        if (strcmp(log->queues[i], c->name) == 0)
            at = i;
        if (!log->queues[i][0] && free_at == PEER_QUEUES)
            free_at = i;
    }
    switch (c->head.type) {
    case PAWL_CMD_QUEUE_CREATE:
        if (at < PEER_QUEUES) {
            decided(p, l, &c->head, PAWL_OK_DUPLICATE, log->queue_ids[at]);
        } else if (free_at < PEER_QUEUES) {
            snprintf(log->queues[free_at], sizeof log->queues[0], "%s", c->name);
            log->queue_ids[free_at] = ++log->next_queue;
            decided(p, l, &c->head, PAWL_OK, log->queue_ids[free_at]);
        } else {
            decided(p, l, &c->head, PAWL_E_QUOTA, PAWL_LIMIT_QUEUES);
        }
        return;
    case PAWL_CMD_QUEUE_FIND:
        decided(p, l, &c->head, at < PEER_QUEUES ? PAWL_OK : PAWL_E_NOT_FOUND,
                at < PEER_QUEUES ? log->queue_ids[at] : 0);
        return;
    case PAWL_CMD_QUEUE_DROP:
        if (at < PEER_QUEUES)
            log->queues[at][0] = '\0';
        decided(p, l, &c->head, at < PEER_QUEUES ? PAWL_OK : PAWL_E_NOT_FOUND, 0);
        return;
    default:
        decided(p, l, &c->head, PAWL_E_NOT_SUPPORTED, 0);
    }
}

static bool queue_exists(const struct peer *p, uint64_t id)
{
    for (uint32_t i = 0; i < PEER_QUEUES; i++)
        if (p->log->queues[i][0] && p->log->queue_ids[i] == id)
            return true;
    return false;
}

static void decide(struct peer *p, struct peer_lane *l, const struct pawl_cmd *c)
{
    const struct peer_answer *known = window_slot(p, l, c->seq);
    if (c->flags & PAWL_CMD_RESUBMIT)
        p->log->resubmitted++;
    if (known->seq == c->seq) {
        /* By a first submission, never: seqs are not used twice. */
        if (!(c->flags & PAWL_CMD_RESUBMIT))
            wrong(p, "a seq was used again");
        if (known->type != c->type)
            wrong(p, "a command came back as another one");
        p->log->repeated++;
        peer_answer(p, l, c->seq, known->result, known->value, known->lsn);
        return;
    }
    if (c->deadline && c->deadline <= pawl_clock_boot()) {
        decided(p, l, c, PAWL_E_DEADLINE, 0);
        return;
    }
    p->log->applied++;
    switch (c->type) {
    case PAWL_CMD_SEND:
        if (!queue_exists(p, ((const struct pawl_cmd_send *)c)->queue))
            decided(p, l, c, PAWL_E_QUEUE_GONE, 0);
        else
            take_send(p, l, (const void *)c);
        return;
    case PAWL_CMD_RECEIVE:
    case PAWL_CMD_SUBSCRIBE:
        take_receive(p, l, (const void *)c);
        return;
    case PAWL_CMD_STOP:
        take_stop(p, l, (const void *)c);
        return;
    case PAWL_CMD_ACK:
    case PAWL_CMD_NACK:
    case PAWL_CMD_RELEASE:
    case PAWL_CMD_REJECT:
    case PAWL_CMD_DEFER:
    case PAWL_CMD_RENEW:
        take_settle(p, l, (const void *)c);
        return;
    case PAWL_CMD_QUEUE_CREATE:
    case PAWL_CMD_QUEUE_FIND:
    case PAWL_CMD_QUEUE_DROP:
        take_queue(p, l, (const void *)c);
        return;
    case PAWL_CMD_METRICS:
        peer_data(p, l, c->seq, PAWL_OK, 6, "abc 1\n", 6);
        return;
    default:
        decided(p, l, c, PAWL_E_NOT_SUPPORTED, 0);
    }
}

static bool room_for_answer(struct peer_lane *l)
{
    if (pawl_ring_room(&l->out) >= 64)
        return true;
    return pawl_ring_refresh(&l->out) && pawl_ring_room(&l->out) >= 64;
}

static bool serve_commands(struct peer *p, struct peer_lane *l)
{
    const void *record;
    uint32_t bytes;
    bool any = false;
    while (l->open && !p->dead && room_for_answer(l)) {
        enum pawl_ring_result r = pawl_ring_next(&l->in, &record, &bytes);
        if (r == PAWL_RING_BREACH)
            wrong(p, "the submission ring is broken");
        if (r != PAWL_RING_RECORD)
            break;
        const struct pawl_cmd *c = record;
        any = true;
        p->commands++;
        if (bytes < sizeof *c) {
            wrong(p, "a command is too short");
            break;
        }
        if (c->open >= l->window)
            wrong(p, "more open commands than the window");
        bool last = p->o.die_at && p->commands == p->o.die_at;
        if (last && !p->o.die_decided) {
            p->dead = true;
            return true;
        }
        if (!p->o.hook || !p->o.hook(p, l, c, p->o.ctx))
            decide(p, l, c);
        if (last) {
            p->dead = true;
            return true;
        }
    }
    if (any && l->open && !l->keep_head)
        pawl_ring_release(&l->in, l->in.next);
    return any;
}

static void serve_standing(struct peer *p, struct peer_lane *l)
{
    for (uint32_t i = 0; l->open && i < 8; i++) {
        struct peer_standing *s = &l->standing[i];
        uint32_t n = 0;
        if (!s->used)
            continue;
        /* Deliveries never take the half that answers need. */
        (void)pawl_ring_refresh(&l->out);
        while ((s->receive ? n : s->held) < s->max && pawl_ring_room(&l->out) > l->out.size / 2 &&
               grant(p, l, s->seq, s->queue, s->lease_ns, s->kind, s->flags)) {
            n++;
            s->held++;
        }
        if (s->receive && (n || pawl_clock_boot() >= s->until)) {
            s->used = false;
            *window_slot(p, l, s->seq) =
                (struct peer_answer){ .seq = s->seq,
                                      .value = n,
                                      .result = n ? PAWL_OK : PAWL_OK_EMPTY,
                                      .type = PAWL_CMD_RECEIVE };
            peer_answer(p, l, s->seq, n ? PAWL_OK : PAWL_OK_EMPTY, n, 0);
        }
    }
}

/* --- attach ---------------------------------------------------------------------------------- */

static void give(int fd, const void *packet, size_t bytes, const int *fds, unsigned count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec v = { .iov_base = (void *)(uintptr_t)packet, .iov_len = bytes };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    memset(&control, 0, sizeof control);
    if (count) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    (void)sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void take_hello(struct peer *p, int fd, const struct pawl_attach_hello *h)
{
    struct peer_log *log = p->log;
    struct pawl_attach_welcome w = { .magic = PAWL_ABI_MAGIC,
                                     .version = p->o.version ? p->o.version : PAWL_ABI_VERSION,
                                     .type = PAWL_ATTACH_WELCOME,
                                     .fingerprint = pawl_layout_fingerprint(),
                                     .pid = (uint32_t)getpid(),
                                     .broker_epoch = log->broker_epoch,
                                     .clock = pawl_clock_boot() };
    w.flags = p->o.young ? PAWL_WELCOME_YOUNG : 0;
    memset(w.log_id, p->o.log_id, sizeof w.log_id);
    memcpy(w.broker_version, "peer", 5);
    memcpy(w.io, "none", 5);
    if (h->session && (!log->session_known || h->session != log->session)) {
        w.result = PAWL_E_OUTCOME_UNKNOWN;
        give(fd, &w, sizeof w, NULL, 0);
        return;
    }
    if (h->session && memcmp(h->secret, log->secret, sizeof log->secret) != 0) {
        wrong(p, "a session was resumed without its secret");
        w.result = PAWL_E_PERM;
        give(fd, &w, sizeof w, NULL, 0);
        return;
    }
    w.resumed = h->session != 0;
    if (!h->session) {
        log->session++;
        log->session_known = true;
        log->epoch = 0;
        memset(log->windows, 0, sizeof log->windows);
        memset(log->secret, (int)log->session, sizeof log->secret);
    }
    w.session = log->session;
    w.epoch = ++log->epoch;
    memcpy(w.secret, log->secret, sizeof w.secret);
    give(fd, &w, sizeof w, NULL, 0);
}

static int make_region(struct peer *p, bool comp, uint64_t bytes, struct pawl_region *out)
{
    int fd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    need(fd >= 0, "memfd_create");
    need(ftruncate(fd, (off_t)pawl_region_file_bytes(bytes)) == 0, "ftruncate");
    need(pawl_region_map(fd, bytes, PAWL_REGION_WRITE, out) == 0, "map");
    if (!p->o.unsealed)
        need(fcntl(fd, F_ADD_SEALS,
                   (comp ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ==
                 0,
             "seals");
    return fd;
}

static void unmap_lane(struct peer_lane *l)
{
    if (!l->open)
        return;
    pawl_region_unmap(&l->sub);
    pawl_region_unmap(&l->comp);
    (void)close(l->bell);
    if (l->watch >= 0)
        (void)close(l->watch);
    l->open = false;
}

void peer_close_lane(struct peer *p, struct peer_lane *l, int32_t reason)
{
    if (!l->open)
        return;
    peer_publish(p, l);
    pawl_store_rlx_u32((uint32_t *)&comp_of(l)->reason, (uint32_t)reason);
    pawl_store_rel_u32(&comp_of(l)->state, PAWL_LANE_CLOSED);
    (void)pawl_add_seq_u32(&comp_of(l)->wake, 1);
    (void)syscall(SYS_futex, &comp_of(l)->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
    unmap_lane(l);
}

static void take_lane(struct peer *p, int connection, const struct pawl_attach_lane *ask)
{
    struct pawl_attach_lane_ok ok = { .type = PAWL_ATTACH_LANE_OK,
                                      .lane = ask->lane,
                                      .sub_bytes = ask->sub_bytes,
                                      .comp_bytes = ask->comp_bytes,
                                      .window = ask->window };
    struct peer_lane *l = NULL;
    for (uint32_t i = 0; i < PEER_LANES; i++)
        if (ask->lane == PAWL_LANE_NEW ? !p->lanes[i].open && !p->log->windows[i].used
                                       : i == ask->lane) {
            l = &p->lanes[i];
            ok.lane = i;
            break;
        }
    if (!l)
        ok.result = PAWL_E_QUOTA;
    if (p->o.lane_result)
        ok.result = p->o.lane_result;
    if (ok.result != PAWL_OK) {
        snprintf(ok.text, sizeof ok.text, "the peer has no lane for you");
        give(p->connections[connection], &ok, sizeof ok, NULL, 0);
        return;
    }
    if (ask->lane == PAWL_LANE_NEW) {
        memset(&p->log->windows[ok.lane], 0, sizeof p->log->windows[0]);
        p->log->windows[ok.lane].used = true;
        if (ask->open_seq > ask->next_seq || ask->next_seq == 0)
            wrong(p, "the seqs of a new lane make no sense");
    }
    unmap_lane(l);
    memset(l, 0, sizeof *l);
    int fds[3];
    fds[0] = make_region(p, false, ask->sub_bytes, &l->sub);
    fds[1] = make_region(p, true, ask->comp_bytes, &l->comp);
    l->bell = fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    need(l->bell >= 0, "eventfd");
    l->open = true;
    l->number = ok.lane;
    l->window = ask->window;
    l->connection = connection;
    l->watch = -1;
    struct pawl_comp_shm *c = comp_of(l);
    c->magic = PAWL_ABI_MAGIC;
    c->version = PAWL_ABI_VERSION;
    c->lane = ok.lane;
    c->fingerprint = pawl_layout_fingerprint();
    c->session = p->log->session;
    c->sub_bytes = ask->sub_bytes;
    c->comp_bytes = ask->comp_bytes;
    c->window = ask->window;
    pawl_store_rel_u32(&c->state, PAWL_LANE_OPEN);
    l->in = (struct pawl_ring_consumer){ .data = l->sub.data,
                                         .size = ask->sub_bytes,
                                         .tail_shm = &sub_of(l)->tail,
                                         .head_shm = &c->sub_head };
    l->out = (struct pawl_ring_producer){ .data = l->comp.data,
                                          .size = ask->comp_bytes,
                                          .tail_shm = &c->tail,
                                          .head_shm = &sub_of(l)->comp_head };
    give(p->connections[connection], &ok, sizeof ok, fds, 3);
    (void)close(fds[0]);
    (void)close(fds[1]);
    /* What the client has not read of its leases is delivered again. */
    for (uint32_t i = 0; i < p->log->message_count; i++) {
        const struct peer_message *m = &p->log->messages[i];
        if (m->state == PAWL_STATE_LEASED && m->lane == l->number && m->grant > ask->grant_durable)
            deliver(p, l, m);
    }
    peer_publish(p, l);
}

static void take_watch(struct peer *p, int fd, const struct pawl_attach_watch *ask)
{
    struct pawl_attach_watch_ok ok = { .type = PAWL_ATTACH_WATCH_OK, .lane = ask->lane };
    int ends[2];
    if (ask->lane >= PEER_LANES || !p->lanes[ask->lane].open) {
        ok.result = PAWL_E_NOT_FOUND;
        give(fd, &ok, sizeof ok, NULL, 0);
        return;
    }
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
         "socketpair");
    if (p->lanes[ask->lane].watch >= 0)
        (void)close(p->lanes[ask->lane].watch);
    p->lanes[ask->lane].watch = ends[0];
    give(fd, &ok, sizeof ok, &ends[1], 1);
    (void)close(ends[1]);
}

static void end_connection(struct peer *p, int i)
{
    for (uint32_t k = 0; k < PEER_LANES; k++)
        if (p->lanes[k].open && p->lanes[k].connection == i)
            unmap_lane(&p->lanes[k]);
    (void)close(p->connections[i]);
    p->connections[i] = -1;
}

/* A packet of no size that the protocol has. */
static const uint8_t retire_packet[3] = { 'e', 'n', 'd' };

static void serve_connection(struct peer *p, int i)
{
    union {
        uint32_t type;
        struct pawl_attach_hello hello;
        struct pawl_attach_lane lane;
        struct pawl_attach_watch watch;
    } u;
    ssize_t n = recv(p->connections[i], &u, sizeof u, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        end_connection(p, i);
        return;
    }
    if (p->o.silent)
        return;
    if (n == (ssize_t)sizeof retire_packet &&
        memcmp(&u, &retire_packet, sizeof retire_packet) == 0) {
        p->dead = p->retired = true;
        return;
    }
    if (n == (ssize_t)sizeof u.hello && u.hello.magic == PAWL_ABI_MAGIC)
        take_hello(p, p->connections[i], &u.hello);
    else if (n == (ssize_t)sizeof u.lane && u.type == PAWL_ATTACH_LANE)
        take_lane(p, i, &u.lane);
    else if (n == (ssize_t)sizeof u.watch && u.type == PAWL_ATTACH_WATCH)
        take_watch(p, p->connections[i], &u.watch);
    else if (n == (ssize_t)sizeof u.watch && u.type == PAWL_ATTACH_CLOSE &&
             u.watch.lane < PEER_LANES) {
        unmap_lane(&p->lanes[u.watch.lane]);
        p->log->windows[u.watch.lane].used = false;
    } else if (n == (ssize_t)sizeof(struct pawl_attach_bye) && u.type == PAWL_ATTACH_BYE) {
        end_connection(p, i);
    } else {
        wrong(p, "a packet that is none");
    }
}

/* --- the thread ------------------------------------------------------------------------------ */

/* S1 and S2 for every lane. True: nobody has anything. */
static bool announce_sleep(struct peer *p)
{
    bool quiet = true;
    for (uint32_t i = 0; i < PEER_LANES; i++) {
        struct peer_lane *l = &p->lanes[i];
        if (!l->open)
            continue;
        l->announcements += PAWL_BELL_STEP;
        pawl_store_seq_u32(&comp_of(l)->bell,
                           l->announcements |
                               (room_for_answer(l) ? PAWL_BELL_SUBMIT : PAWL_BELL_ROOM));
        if (pawl_load_seq_u64(&sub_of(l)->tail) != l->in.next && room_for_answer(l))
            quiet = false;
    }
    return quiet;
}

static void sleep_once(struct peer *p, int timeout_ms)
{
    struct pollfd f[2 + PEER_CONNECTIONS + PEER_LANES];
    nfds_t n = 0;
    f[n++] = (struct pollfd){ .fd = p->stop, .events = POLLIN };
    f[n++] = (struct pollfd){ .fd = p->listener, .events = POLLIN };
    for (uint32_t i = 0; i < PEER_CONNECTIONS; i++)
        f[n++] = (struct pollfd){ .fd = p->connections[i], .events = POLLIN };
    for (uint32_t i = 0; i < PEER_LANES; i++)
        f[n++] =
            (struct pollfd){ .fd = p->lanes[i].open ? p->lanes[i].bell : -1, .events = POLLIN };
    int r = poll(f, n, timeout_ms);
    for (uint32_t i = 0; i < PEER_LANES; i++)
        if (p->lanes[i].open) {
            eventfd_t count;
            (void)eventfd_read(p->lanes[i].bell, &count);
            if (r == 0 && timeout_ms == 2000 &&
                pawl_load_acq_u64(&sub_of(&p->lanes[i])->tail) != p->lanes[i].in.next)
                p->missed_bells++;
            pawl_store_rlx_u32(&comp_of(&p->lanes[i])->bell, 0);
        }
    if (f[0].revents)
        p->dead = true;
    if (f[1].revents && !p->dead) {
        int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        for (uint32_t i = 0; fd >= 0 && i < PEER_CONNECTIONS; i++)
            if (p->connections[i] < 0) {
                p->connections[i] = fd;
                fd = -1;
            }
        if (fd >= 0)
            (void)close(fd);
    }
    for (uint32_t i = 0; i < PEER_CONNECTIONS && !p->dead; i++)
        if (p->connections[i] >= 0)
            serve_connection(p, (int)i);
}

/* Does somebody wait whose time comes to an end? Then look again soon. */
static int next_look(const struct peer *p)
{
    for (uint32_t i = 0; i < PEER_LANES; i++)
        for (uint32_t k = 0; p->lanes[i].open && k < 8; k++)
            if (p->lanes[i].standing[k].used)
                return 1;
    return 2000;
}

static void *run(void *arg)
{
    struct peer *p = arg;
    while (!p->dead) {
        bool any = false;
        for (uint32_t i = 0; i < PEER_LANES && !p->dead; i++)
            any |= p->lanes[i].open && serve_commands(p, &p->lanes[i]);
        if (p->dead)
            break;
        for (uint32_t i = 0; i < PEER_LANES; i++) {
            serve_standing(p, &p->lanes[i]);
            peer_publish(p, &p->lanes[i]);
        }
        sleep_once(p, any || !announce_sleep(p) ? 0 : next_look(p));
    }
    for (uint32_t i = 0; i < PEER_LANES; i++)
        unmap_lane(&p->lanes[i]);
    for (uint32_t i = 0; i < PEER_CONNECTIONS; i++)
        if (p->connections[i] >= 0)
            (void)close(p->connections[i]);
    (void)close(p->listener);
    (void)unlink(p->path);
    return NULL;
}

struct peer *peer_start(const char *dir, struct peer_log *log, const struct peer_options *options)
{
    struct peer *p = calloc(1, sizeof *p);
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    need(p != NULL, "calloc");
    if (options)
        p->o = *options;
    p->log = log;
    log->broker_epoch++;
    for (uint32_t i = 0; i < PEER_CONNECTIONS; i++)
        p->connections[i] = -1;
    snprintf(p->path, sizeof p->path, "%s/pawl.sock", dir);
    memcpy(a.sun_path, p->path, sizeof p->path);
    (void)unlink(p->path);
    p->stop = eventfd(0, EFD_CLOEXEC);
    p->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    need(p->stop >= 0 && p->listener >= 0, "descriptors");
    need(bind(p->listener, (struct sockaddr *)&a, sizeof a) == 0, "bind");
    need(listen(p->listener, 8) == 0, "listen");
    need(pthread_create(&p->thread, NULL, run, p) == 0, "thread");
    return p;
}

bool peer_wait(struct peer *p)
{
    need(pthread_join(p->thread, NULL) == 0, "join");
    p->joined = true;
    return !p->retired;
}

void peer_retire(const char *dir)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    need(fd >= 0, "socket");
    snprintf(a.sun_path, sizeof a.sun_path, "%s/pawl.sock", dir);
    /* One that has just died is about to be started again. */
    while (connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        (void)usleep(1000);
    need(send(fd, retire_packet, sizeof retire_packet, MSG_NOSIGNAL) == sizeof retire_packet,
         "retire");
    char byte;
    (void)recv(fd, &byte, 1, 0); /* its end */
    (void)close(fd);
}

const char *peer_kill(struct peer *p)
{
    (void)eventfd_write(p->stop, 1);
    if (!p->joined)
        (void)peer_wait(p);
    const char *failure = p->failure;
    if (!failure && p->missed_bells)
        failure = "a bell was lost";
    (void)close(p->stop);
    free(p);
    return failure;
}

struct peer_log *peer_log_create(void)
{
    struct peer_log *log = calloc(1, sizeof *log);
    need(log != NULL, "calloc");
    return log;
}

void peer_log_destroy(struct peer_log *log)
{
    for (uint32_t i = 0; i < log->message_count; i++)
        free(log->messages[i].body);
    free(log);
}

static char dir_text[64];
static void remove_dir(void)
{
    char path[sizeof dir_text + 16];
    snprintf(path, sizeof path, "%s/pawl.sock", dir_text);
    (void)unlink(path);
    (void)rmdir(dir_text);
}

const char *peer_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    if (!dir_text[0]) {
        snprintf(dir_text, sizeof dir_text, "%s/pawl-peer-XXXXXX",
                 tmp && strlen(tmp) < 40 ? tmp : "/tmp");
        need(mkdtemp(dir_text) != NULL, "mkdtemp");
        (void)atexit(remove_dir);
    }
    return dir_text;
}
