/* SPDX-License-Identifier: MIT */
/* beanstalkd by its own protocol, pipelined. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

struct client {
    struct peer_stream s;
    unsigned long long ids[PEER_BATCH_MAX];
    uint32_t count;
};

static int server;

static void version(char *out, size_t bytes)
{
    peer_command_line("beanstalkd -v | sed 's/[^0-9]*//'", out, bytes);
}

static void path_of(const char *dir, char path[512]) { snprintf(path, 512, "%s/s", dir); }

static void start(const char *dir, bool durable, int core)
{
    char where[512], path[490], log[512];
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(where, sizeof(where), "unix:%s", path);
    snprintf(log, sizeof(log), "%s/log", dir);
    const char *argv[] = { "beanstalkd", "-l", where, durable ? "-b" : NULL, dir, "-f0", NULL };
    server = peer_spawn(core, NULL, log, argv);
}

static void *open_client(const char *dir, bool durable)
{
    (void)durable;
    char path[512];
    struct client *c = calloc(1, sizeof(*c));
    if (c == NULL)
        bench_fail("no memory");
    path_of(dir, path);
    c->s.fd = peer_connect_unix(path, 10);
    return c;
}

static void close_client(void *h)
{
    struct client *c = h;
    peer_stream_close(&c->s);
    free(c);
}

static void send_some(void *h, const void *body, size_t bytes, uint32_t n)
{
    struct client *c = h;
    for (uint32_t i = 0; i < n; i++) {
        peer_print(&c->s, "put 1024 0 600 %zu\r\n", bytes);
        peer_put(&c->s, body, bytes);
        peer_put(&c->s, "\r\n", 2);
    }
    peer_flush(&c->s);
    for (uint32_t i = 0; i < n; i++) {
        const char *line = peer_line(&c->s);
        if (strncmp(line, "INSERTED", 8) != 0)
            bench_fail("beanstalkd: %s", line);
    }
}

static bool reserved(struct client *c)
{
    size_t bytes;
    const char *line = peer_line(&c->s);
    if (sscanf(line, "RESERVED %llu %zu", &c->ids[c->count], &bytes) != 2) {
        if (strcmp(line, "TIMED_OUT") != 0)
            bench_fail("beanstalkd: %s", line);
        return false;
    }
    peer_skip(&c->s, bytes + 2);
    c->count++;
    return true;
}

static uint32_t take(void *h, uint32_t max)
{
    struct client *c = h;
    c->count = 0;
    peer_print(&c->s, "reserve-with-timeout 1\r\n");
    peer_flush(&c->s);
    if (!reserved(c))
        return 0;
    for (uint32_t i = 1; i < max; i++)
        peer_print(&c->s, "reserve-with-timeout 0\r\n");
    peer_flush(&c->s);
    for (uint32_t i = 1; i < max; i++)
        reserved(c);
    return c->count;
}

static void ack(void *h)
{
    struct client *c = h;
    for (uint32_t i = 0; i < c->count; i++)
        peer_print(&c->s, "delete %llu\r\n", c->ids[i]);
    peer_flush(&c->s);
    for (uint32_t i = 0; i < c->count; i++) {
        const char *line = peer_line(&c->s);
        if (strcmp(line, "DELETED") != 0)
            bench_fail("beanstalkd: %s", line);
    }
}

static void stop(void) { peer_end(server, SIGKILL); }

const struct peer_queue queue_beanstalkd = {
    .name = "beanstalkd",
    .has_volatile = true,
    .has_durable = true,
    .real = "fsync for each operation that changes something, none shared",
    .settings = "without binlog; `-b DIR -f0`. Unix socket, its own protocol, put, reserve and "
                "delete pipelined",
    .version = version,
    .start = start,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};
