/* SPDX-License-Identifier: MIT */
/* NATS JetStream: a work-queue stream with one pull consumer, by the text protocol. Each publish is
 * answered with its place in the stream, each acknowledgement is confirmed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define STREAM_WAIT "1000000000" /* ns that a pull waits for its first message */

struct client {
    struct peer_stream s;
    char replies[PEER_BATCH_MAX][128];
    uint32_t count;
    uint32_t wanted; /* of the pull that stands open */
};

struct message {
    char subject[128], reply[128];
    int sid;
    size_t bytes;
    bool status;    /* the server's word, without a message */
    char body[512]; /* its beginning */
};

static int server, port;

static void version(char *out, size_t bytes)
{
    peer_command_line("nats-server --version | sed 's/.*v//'", out, bytes);
}

/* The next line that is not for the connection itself. */
static char *line_of(struct client *c)
{
    for (;;) {
        char *line = peer_line(&c->s);
        if (strncmp(line, "PING", 4) == 0) {
            peer_print(&c->s, "PONG\r\n");
            peer_flush(&c->s);
        } else if (strncmp(line, "-ERR", 4) == 0) {
            bench_fail("NATS: %s", line);
        } else if (strncmp(line, "INFO", 4) != 0 && strncmp(line, "+OK", 3) != 0) {
            return line;
        }
    }
}

static void body_of(struct client *c, struct message *m)
{
    size_t keep = m->bytes < sizeof(m->body) - 1 ? m->bytes : sizeof(m->body) - 1;
    peer_copy(&c->s, m->body, keep);
    m->body[keep] = 0;
    peer_skip(&c->s, m->bytes - keep + 2);
}

static void next_message(struct client *c, struct message *m)
{
    char *line = line_of(c);
    char b[128], d[32], e[32];
    int n = sscanf(line, "%*s %127s %d %127s %31s %31s", m->subject, &m->sid, b, d, e);
    m->status = line[0] == 'H';
    m->reply[0] = 0;
    if (line[0] == 'M' && n == 3)
        m->bytes = strtoul(b, NULL, 10);
    else if (line[0] == 'M' && n == 4)
        m->bytes = strtoul(d, NULL, 10);
    else if (m->status && n >= 4)
        m->bytes = strtoul(n == 5 ? e : d, NULL, 10);
    else
        bench_fail("NATS: %s", line);
    if (n == 4 && !m->status)
        snprintf(m->reply, sizeof(m->reply), "%s", b);
    body_of(c, m);
}

static void *open_client(const char *dir, bool durable)
{
    (void)dir, (void)durable;
    struct client *c = calloc(1, sizeof(*c));
    if (c == NULL)
        bench_fail("no memory");
    c->s.fd = peer_connect_port(port, 20);
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,"
                                "\"no_responders\":true,\"protocol\":1}\r\n";
    peer_put(&c->s, hello, sizeof(hello) - 1);
    peer_print(&c->s, "SUB in.%d.* 1\r\nPING\r\n", (int)c->s.fd * 100000 + peer_pid());
    peer_flush(&c->s);
    for (;;) {
        const char *line = peer_line(&c->s);
        if (strncmp(line, "PONG", 4) == 0)
            return c;
        if (strncmp(line, "-ERR", 4) == 0)
            bench_fail("NATS: %s", line);
    }
}

/* kind: a for answers, m for messages */
static void inbox(const struct client *c, char kind, char out[64])
{
    snprintf(out, 64, "in.%d.%c", c->s.fd * 100000 + peer_pid(), kind);
}

static void close_client(void *h)
{
    struct client *c = h;
    peer_stream_close(&c->s);
    free(c);
}

static void ask(struct client *c, const char *subject, const char *json)
{
    struct message m;
    char to[64];
    inbox(c, 'a', to);
    peer_print(&c->s, "PUB %s %s %zu\r\n%s\r\n", subject, to, strlen(json), json);
    peer_flush(&c->s);
    next_message(c, &m);
    if (m.status || strstr(m.body, "\"error\"") != NULL)
        bench_fail("NATS: %s: %s", subject, m.body);
}

static void start(const char *dir, bool durable, int core)
{
    char log[512], number[16], json[512];
    snprintf(log, sizeof(log), "%s/log", dir);
    port = peer_port();
    snprintf(number, sizeof(number), "%d", port);
    const char *argv[] = {
        "nats-server", "-js", "-sd", dir, "-a", "127.0.0.1", "-p", number, NULL
    };
    server = peer_spawn(core, NULL, log, argv);
    struct client *c = open_client(dir, durable);
    snprintf(json, sizeof(json),
             "{\"name\":\"q\",\"subjects\":[\"q\"],\"retention\":\"workqueue\",\"storage\":\"%s\","
             "\"num_replicas\":1}",
             durable ? "file" : "memory");
    ask(c, "$JS.API.STREAM.CREATE.q", json);
    ask(c, "$JS.API.CONSUMER.DURABLE.CREATE.q.c",
        "{\"stream_name\":\"q\",\"config\":{\"durable_name\":\"c\",\"deliver_policy\":\"all\","
        "\"ack_policy\":\"explicit\",\"ack_wait\":600000000000,\"max_ack_pending\":65536}}");
    close_client(c);
}

static void answers(struct client *c, uint32_t n, bool json)
{
    struct message m;
    for (uint32_t i = 0; i < n; i++) {
        next_message(c, &m);
        /* The end of an earlier pull may lie between. */
        if (m.status && m.subject[strlen(m.subject) - 1] == 'm')
            i--;
        else if (m.status || (json && strstr(m.body, "\"seq\"") == NULL))
            bench_fail("NATS: not taken: %s", m.body);
    }
}

static void send_some(void *h, const void *body, size_t bytes, uint32_t n)
{
    struct client *c = h;
    char to[64];
    inbox(c, 'a', to);
    for (uint32_t i = 0; i < n; i++) {
        peer_print(&c->s, "PUB q %s %zu\r\n", to, bytes);
        peer_put(&c->s, body, bytes);
        peer_put(&c->s, "\r\n", 2);
    }
    peer_flush(&c->s);
    answers(c, n, true);
}

static uint32_t take(void *h, uint32_t max)
{
    struct client *c = h;
    struct message m;
    char to[64], json[96];
    inbox(c, 'm', to);
    /* What is there at once; if nothing is, wait for one. */
    for (int wait = 0; wait < 2; wait++) {
        c->count = 0;
        int n = wait == 0
                    ? snprintf(json, sizeof(json), "{\"batch\":%u,\"no_wait\":true}", max)
                    : snprintf(json, sizeof(json), "{\"batch\":1,\"expires\":%s}", STREAM_WAIT);
        peer_print(&c->s, "PUB $JS.API.CONSUMER.MSG.NEXT.q.c %s %d\r\n%s\r\n", to, n, json);
        peer_flush(&c->s);
        uint32_t most = wait == 0 ? max : 1;
        while (c->count < most) {
            next_message(c, &m);
            if (m.status)
                break; /* no more: 404 or 408 */
            snprintf(c->replies[c->count++], sizeof(c->replies[0]), "%s", m.reply);
        }
        if (c->count > 0)
            return c->count;
    }
    return 0;
}

static void ack(void *h)
{
    struct client *c = h;
    char to[64];
    inbox(c, 'a', to);
    for (uint32_t i = 0; i < c->count; i++)
        peer_print(&c->s, "PUB %s %s 4\r\n+ACK\r\n", c->replies[i], to);
    peer_flush(&c->s);
    answers(c, c->count, false);
}

static void stop(void) { peer_end(server, SIGKILL); }

const struct peer_queue queue_nats = {
    .name = "NATS JetStream",
    .has_volatile = true,
    .has_durable = true,
    .real = "none before the answer: written, not flushed (every 2 minutes)",
    .settings = "memory store; file store, which has no stricter setting in this version. TCP on "
                "127.0.0.1, its text protocol, publishes pipelined, pull with no_wait, "
                "acknowledgements confirmed",
    .version = version,
    .start = start,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};
