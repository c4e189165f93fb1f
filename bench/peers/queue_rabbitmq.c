/* SPDX-License-Identifier: MIT */
/* RabbitMQ: classic and quorum queues, publisher confirms, a consumer with prefetch. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <amqp.h>
#include <amqp_tcp_socket.h>

#include "peer.h"

struct client {
    amqp_connection_state_t c;    /* publishes */
    amqp_connection_state_t from; /* consumes: deliveries do not mix with confirms */
    bool durable;
    uint64_t published;
    uint64_t last; /* delivery tag */
};

static int server, names, port;

static void version(char *out, size_t bytes)
{
    peer_command_line("dpkg-query -W -f '${Version}' rabbitmq-server | sed 's/-.*//'", out, bytes);
}

static void must(amqp_rpc_reply_t r, const char *what)
{
    if (r.reply_type != AMQP_RESPONSE_NORMAL)
        bench_fail("RabbitMQ: %s: %s", what,
                   r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                       ? amqp_error_string2(r.library_error)
                       : "refused");
}

static bool try_open(amqp_connection_state_t *c)
{
    *c = amqp_new_connection();
    amqp_socket_t *s = amqp_tcp_socket_new(*c);
    if (amqp_socket_open(s, "127.0.0.1", port) == 0 &&
        amqp_login(*c, "/", 2047, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest").reply_type ==
            AMQP_RESPONSE_NORMAL)
        return true;
    amqp_destroy_connection(*c);
    return false;
}

static amqp_connection_state_t connect_one(void)
{
    amqp_connection_state_t c;
    for (int i = 0; !try_open(&c); i++) {
        if (i == 600)
            bench_fail("RabbitMQ: not there after a minute");
        usleep(100000);
    }
    amqp_channel_open(c, 1);
    must(amqp_get_rpc_reply(c), "channel");
    return c;
}

static void *open_client(const char *dir, bool durable)
{
    (void)dir;
    struct client *k = calloc(1, sizeof(*k));
    if (k == NULL)
        bench_fail("no memory");
    k->durable = durable;
    k->c = connect_one();
    amqp_confirm_select(k->c, 1);
    must(amqp_get_rpc_reply(k->c), "confirms");
    return k;
}

static void close_client(void *h)
{
    struct client *k = h;
    amqp_connection_close(k->c, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(k->c);
    if (k->from != NULL) {
        amqp_connection_close(k->from, AMQP_REPLY_SUCCESS);
        amqp_destroy_connection(k->from);
    }
    free(k);
}

static void set(const char *name, const char *format, const char *value)
{
    char text[600];
    snprintf(text, sizeof(text), format, value);
    setenv(name, text, 1);
}

/* A node of its own, with its own port mapper, all below `dir`. */
static void start_node(const char *dir, int core)
{
    char log[512], mapper[16], node[16];
    int mapper_port = peer_port();
    port = peer_port();
    snprintf(log, sizeof(log), "%s/log", dir);
    snprintf(mapper, sizeof(mapper), "%d", mapper_port);
    snprintf(node, sizeof(node), "%d", port);
    const char *epmd[] = { "epmd", "-port", mapper, "-address", "127.0.0.1", NULL };
    names = peer_spawn(core, "rabbitmq", log, epmd);
    set("HOME", "%s", dir);
    set("ERL_EPMD_PORT", "%s", mapper);
    set("ERL_EPMD_ADDRESS", "%s", "127.0.0.1");
    set("RABBITMQ_NODE_IP_ADDRESS", "%s", "127.0.0.1");
    set("RABBITMQ_NODE_PORT", "%s", node);
    snprintf(node, sizeof(node), "%d", peer_port());
    set("RABBITMQ_DIST_PORT", "%s", node);
    set("RABBITMQ_NODENAME", "pawlbench%s@localhost", mapper);
    set("RABBITMQ_BASE", "%s", dir);
    set("RABBITMQ_MNESIA_BASE", "%s/data", dir);
    set("RABBITMQ_LOG_BASE", "%s", dir);
    set("RABBITMQ_PID_FILE", "%s/pid", dir);
    set("RABBITMQ_CONFIG_FILE", "%s/none", dir);
    set("RABBITMQ_ADVANCED_CONFIG_FILE", "%s/none.config", dir);
    set("RABBITMQ_ENABLED_PLUGINS_FILE", "%s/plugins", dir);
    set("RABBITMQ_SERVER_START_ARGS", "%s", "-start_epmd false");
    /* So that the script becomes the server instead of watching it, and both end as one. */
    set("RUNNING_UNDER_SYSTEMD", "%s", "true");
    const char *argv[] = { "/usr/lib/rabbitmq/bin/rabbitmq-server", NULL };
    server = peer_spawn(core, "rabbitmq", log, argv);
}

static void start_with(const char *dir, bool durable, int core, bool quorum)
{
    start_node(dir, core);
    struct client *k = open_client(dir, durable);
    amqp_table_entry_t type = { .key = amqp_cstring_bytes("x-queue-type"),
                                .value = { .kind = AMQP_FIELD_KIND_UTF8 } };
    type.value.value.bytes = amqp_cstring_bytes("quorum");
    amqp_table_t with = { .num_entries = 1, .entries = &type };
    amqp_queue_declare(k->c, 1, amqp_cstring_bytes("q"), 0, durable, 0, 0,
                       quorum ? with : amqp_empty_table);
    must(amqp_get_rpc_reply(k->c), "queue");
    close_client(k);
}

static void start_classic(const char *dir, bool durable, int core)
{
    start_with(dir, durable, core, false);
}

static void start_quorum(const char *dir, bool durable, int core)
{
    start_with(dir, durable, core, true);
}

/* Of the last n, singly or many with one answer, in any order. */
static void confirms(struct client *k, uint32_t n)
{
    bool done[PEER_BATCH_MAX] = { false };
    uint64_t first = k->published - n + 1;
    for (uint32_t open = n; open > 0;) {
        amqp_frame_t f;
        if (amqp_simple_wait_frame(k->c, &f) != AMQP_STATUS_OK)
            bench_fail("RabbitMQ: no confirm");
        if (f.frame_type == AMQP_FRAME_METHOD && f.payload.method.id == AMQP_BASIC_ACK_METHOD) {
            const amqp_basic_ack_t *a = f.payload.method.decoded;
            for (uint64_t i = a->multiple ? first : a->delivery_tag; i <= a->delivery_tag; i++) {
                open -= !done[i - first];
                done[i - first] = true;
            }
        } else if (f.frame_type == AMQP_FRAME_METHOD &&
                   f.payload.method.id == AMQP_BASIC_NACK_METHOD) {
            bench_fail("RabbitMQ: not confirmed");
        }
        amqp_maybe_release_buffers(k->c);
    }
}

static void send_some(void *h, const void *body, size_t bytes, uint32_t n)
{
    struct client *k = h;
    amqp_basic_properties_t p = { ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                  .delivery_mode = k->durable ? 2 : 1 };
    amqp_bytes_t b = { .len = bytes, .bytes = (void *)(uintptr_t)body };
    for (uint32_t i = 0; i < n; i++)
        if (amqp_basic_publish(k->c, 1, amqp_empty_bytes, amqp_cstring_bytes("q"), 0, 0, &p, b) !=
            AMQP_STATUS_OK)
            bench_fail("RabbitMQ: publish");
    k->published += n;
    confirms(k, n);
}

static uint32_t take(void *h, uint32_t max)
{
    struct client *k = h;
    if (k->from == NULL) {
        k->from = connect_one();
        amqp_basic_qos(k->from, 1, 0, PEER_BATCH_MAX, 0);
        must(amqp_get_rpc_reply(k->from), "prefetch");
        amqp_basic_consume(k->from, 1, amqp_cstring_bytes("q"), amqp_empty_bytes, 0, 0, 0,
                           amqp_empty_table);
        must(amqp_get_rpc_reply(k->from), "consume");
    }
    uint32_t n = 0;
    for (; n < max; n++) {
        struct timeval wait = { .tv_sec = n == 0 };
        amqp_envelope_t e;
        amqp_maybe_release_buffers(k->from);
        amqp_rpc_reply_t r = amqp_consume_message(k->from, &e, &wait, 0);
        if (r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
            r.library_error == AMQP_STATUS_TIMEOUT)
            break;
        must(r, "consume");
        k->last = e.delivery_tag;
        amqp_destroy_envelope(&e);
    }
    return n;
}

static void ack(void *h)
{
    struct client *k = h;
    if (amqp_basic_ack(k->from, 1, k->last, 1) != AMQP_STATUS_OK)
        bench_fail("RabbitMQ: ack");
}

static void stop(void)
{
    peer_end(server, SIGKILL);
    peer_end(names, SIGKILL);
}

const struct peer_queue queue_rabbitmq = {
    .name = "RabbitMQ classic",
    .has_volatile = true,
    .has_durable = true,
    .real = "fsync before each confirm; acknowledgements are not answered",
    .settings =
        "transient queue and messages; durable queue, persistent messages. TCP on 127.0.0.1, "
        "rabbitmq-c, publisher confirms, prefetch 1,024, one ack for a batch, which is not "
        "answered",
    .start = start_classic,
    .version = version,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};

const struct peer_queue queue_rabbitmq_quorum = {
    .name = "RabbitMQ quorum",
    .has_durable = true,
    .real = "fsync before each confirm, shared; acknowledgements are not answered",
    .settings = "one member, else as classic",
    .start = start_quorum,
    .version = version,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};
