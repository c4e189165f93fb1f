/* SPDX-License-Identifier: MIT */
#include "lib/raw.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int raw_connect(const struct harness_broker *b)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    if (b->socket[0] != '\0')
        snprintf(a.sun_path, sizeof a.sun_path, "%.107s", b->socket);
    else
        snprintf(a.sun_path, sizeof a.sun_path, "%.97s/pawl.sock", b->dir);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        harness_fail("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

struct pawl_attach_hello raw_hello(void)
{
    struct pawl_attach_hello h = { .magic = PAWL_ABI_MAGIC,
                                   .version = PAWL_ABI_VERSION,
                                   .type = PAWL_ATTACH_HELLO,
                                   .fingerprint = pawl_layout_fingerprint(),
                                   .label = "raw" };
    return h;
}

bool raw_welcome(int socket, const void *hello, size_t bytes, struct pawl_attach_welcome *out)
{
    memset(out, 0, sizeof *out);
    /* A broker that has closed already makes this fail: then there is no answer. */
    if (send(socket, hello, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        return false;
    ssize_t n = recv(socket, out, sizeof *out, 0);
    return n == (ssize_t)sizeof *out && out->type == PAWL_ATTACH_WELCOME;
}

struct pawl_attach_lane raw_lane_request(void)
{
    struct pawl_attach_lane r = { .type = PAWL_ATTACH_LANE,
                                  .lane = PAWL_LANE_NEW,
                                  .sub_bytes = PAWL_RING_BYTES_MIN,
                                  .comp_bytes = PAWL_RING_BYTES_MIN,
                                  .window = PAWL_WINDOW_DEFAULT,
                                  .open_seq = 1,
                                  .next_seq = 1 };
    return r;
}

int raw_lane_open(int socket, struct pawl_attach_lane request, struct raw_lane *out)
{
    struct pawl_attach_lane_ok ok;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec iov = { .iov_base = &ok, .iov_len = sizeof ok };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    memset(out, 0, sizeof *out);
    if (send(socket, &request, sizeof request, MSG_NOSIGNAL) != (ssize_t)sizeof request)
        return PAWL_E_BROKER_DOWN;
    ssize_t n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return PAWL_E_BROKER_DOWN;
    if (n != (ssize_t)sizeof ok || ok.type != PAWL_ATTACH_LANE_OK)
        harness_fail("LANE_OK of %zd bytes", n);
    if (ok.result != PAWL_OK)
        return ok.result;
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (c == NULL || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(3 * sizeof(int)))
        harness_fail("LANE_OK without three descriptors");
    int fds[3];
    memcpy(fds, CMSG_DATA(c), sizeof fds);
    out->sub_fd = fds[0];
    out->comp_fd = fds[1];
    out->bell = fds[2];
    out->number = ok.lane;
    if (pawl_region_verify(out->sub_fd, PAWL_REGION_SUB, ok.sub_bytes) != 0 ||
        pawl_region_verify(out->comp_fd, PAWL_REGION_COMP, ok.comp_bytes) != 0 ||
        pawl_region_map(out->sub_fd, ok.sub_bytes, PAWL_REGION_WRITE, &out->sub) != 0 ||
        pawl_region_map(out->comp_fd, ok.comp_bytes, 0, &out->comp) != 0)
        harness_fail("the regions of the lane are not what they should be");
    struct pawl_sub_shm *sub = out->sub.header;
    struct pawl_comp_shm *comp = out->comp.header;
    out->out = (struct pawl_ring_producer){ .data = out->sub.data,
                                            .size = ok.sub_bytes,
                                            .tail_shm = &sub->tail,
                                            .head_shm = &comp->sub_head };
    out->in = (struct pawl_ring_consumer){ .data = out->comp.data,
                                           .size = ok.comp_bytes,
                                           .tail_shm = &comp->tail,
                                           .head_shm = &sub->comp_head };
    return PAWL_OK;
}

int raw_attach(const struct harness_broker *b, struct raw_lane *out)
{
    struct pawl_attach_hello hello = raw_hello();
    struct pawl_attach_welcome welcome;
    int fd = raw_connect(b);
    if (fd < 0)
        harness_fail("connect: %s", strerror(errno));
    if (!raw_welcome(fd, &hello, sizeof hello, &welcome) || welcome.result != PAWL_OK)
        harness_fail("attach: %s: %s", pawl_strname(welcome.result), welcome.text);
    harness_check_rc(raw_lane_open(fd, raw_lane_request(), out), PAWL_OK);
    return fd;
}

void raw_lane_close(struct raw_lane *lane)
{
    pawl_region_unmap(&lane->sub);
    pawl_region_unmap(&lane->comp);
    close(lane->sub_fd);
    close(lane->comp_fd);
    close(lane->bell);
}

void raw_ring_bell(struct raw_lane *lane)
{
    uint64_t one = 1;
    /* Full is fine: it rings already. */
    if (write(lane->bell, &one, sizeof one) < 0 && errno != EAGAIN)
        harness_fail("bell: %s", strerror(errno));
}

bool raw_submit(struct raw_lane *lane, void *command, uint32_t bytes)
{
    struct pawl_cmd *head = command;
    uint32_t size = (bytes + 7u) & ~7u;
    pawl_ring_refresh(&lane->out);
    uint8_t *p = pawl_ring_claim(&lane->out, size);
    if (p == NULL)
        return false;
    head->bytes = size;
    head->seq = ++lane->seq;
    memset(p, 0, size);
    memcpy(p, command, bytes);
    pawl_ring_publish(&lane->out);
    raw_ring_bell(lane);
    return true;
}

uint8_t *raw_place(struct raw_lane *lane)
{
    return lane->out.data + (lane->out.tail & (lane->out.size - 1));
}

void raw_publish(struct raw_lane *lane, uint64_t tail)
{
    lane->out.tail = lane->out.published = tail;
    pawl_store_seq_u64(lane->out.tail_shm, tail);
    raw_ring_bell(lane);
}

static int lane_reason(struct raw_lane *lane, bool *closed)
{
    const struct pawl_comp_shm *comp = lane->comp.header;
    *closed = pawl_load_acq_u32(&comp->state) == PAWL_LANE_CLOSED;
    return *closed ? (int)pawl_load_acq_u32((const uint32_t *)(const void *)&comp->reason) : 0;
}

int raw_answer_or_close(struct raw_lane *lane, uint64_t seq, uint64_t *value,
                        struct pawl_comp_delivery *d, bool *closed)
{
    const void *record;
    uint32_t bytes;
    for (;;) {
        enum pawl_ring_result r = pawl_ring_next(&lane->in, &record, &bytes);
        if (r == PAWL_RING_BREACH)
            harness_fail("the broker wrote a broken completion ring");
        if (r == PAWL_RING_EMPTY) {
            int reason = lane_reason(lane, closed);
            if (*closed)
                return reason;
            raw_ring_bell(lane);
            harness_pause();
            continue;
        }
        struct pawl_comp_answer a = { 0 };
        memcpy(&a, record, sizeof a);
        if (a.type == PAWL_COMP_DELIVERY && d != NULL)
            memcpy(d, record, sizeof *d);
        pawl_ring_release_seq(&lane->in, lane->in.next);
        if (a.type == PAWL_COMP_ANSWER && seq >= a.seq && seq - a.seq <= a.count_minus_1) {
            if (value != NULL)
                *value = a.value + (a.flags & PAWL_ANSWER_VALUES_RUN ? seq - a.seq : 0);
            *closed = false;
            return a.result;
        }
        if (a.type == PAWL_COMP_DATA && a.seq == seq) {
            struct pawl_comp_data data;
            memcpy(&data, record, sizeof data);
            *closed = false;
            return data.result;
        }
    }
}

int raw_answer(struct raw_lane *lane, uint64_t seq, uint64_t *value, struct pawl_comp_delivery *d)
{
    bool closed;
    int rc = raw_answer_or_close(lane, seq, value, d, &closed);
    if (closed)
        harness_fail("the broker closed the lane: %s", pawl_strname(rc));
    return rc;
}

int raw_closed(struct raw_lane *lane)
{
    bool closed;
    int reason;
    while (reason = lane_reason(lane, &closed), !closed) {
        raw_ring_bell(lane);
        harness_pause();
    }
    return reason;
}

uint64_t raw_find(struct raw_lane *lane, const char *queue)
{
    struct pawl_cmd_queue c = { .head = { .type = PAWL_CMD_QUEUE_FIND } };
    snprintf(c.name, sizeof c.name, "%s", queue);
    harness_check(raw_submit(lane, &c, sizeof c));
    return lane->seq;
}

uint64_t raw_queue(struct raw_lane *lane, const char *queue)
{
    uint64_t number = 0;
    harness_check_rc(raw_answer(lane, raw_find(lane, queue), &number, NULL), PAWL_OK);
    return number;
}

uint64_t raw_send(struct raw_lane *lane, uint64_t queue, const void *body, uint32_t bytes)
{
    uint8_t record[4096];
    struct pawl_cmd_send c = { .head = { .type = PAWL_CMD_SEND },
                               .queue = queue,
                               .body_bytes = bytes,
                               .priority = PAWL_PRIORITY_DEFAULT };
    harness_check(sizeof c + bytes <= sizeof record);
    memcpy(record, &c, sizeof c);
    memcpy(record + sizeof c, body, bytes);
    harness_check(raw_submit(lane, record, (uint32_t)sizeof c + bytes));
    return lane->seq;
}

uint64_t raw_receive(struct raw_lane *lane, uint64_t queue, uint32_t max)
{
    struct {
        struct pawl_cmd_receive c;
        uint64_t queue;
    } r = { .c = { .head = { .type = PAWL_CMD_RECEIVE }, .max = max, .queue_count = 1 },
            .queue = queue };
    harness_check(raw_submit(lane, &r, sizeof r));
    return lane->seq;
}
