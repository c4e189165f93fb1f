/* SPDX-License-Identifier: MIT */
/* Redis streams with a consumer group, pipelined: XADD; XREADGROUP; XACK and XDEL. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "peer.h"

struct client {
    redisContext *c;
    char ids[PEER_BATCH_MAX][32];
    uint32_t count;
};

static int server;

static void version(char *out, size_t bytes)
{
    peer_command_line("redis-server --version | sed 's/.* v=\\([^ ]*\\).*/\\1/'", out, bytes);
}

static redisReply *reply_of(redisContext *c)
{
    redisReply *r = NULL;
    if (redisGetReply(c, (void **)&r) != REDIS_OK || r == NULL || r->type == REDIS_REPLY_ERROR)
        bench_fail("Redis: %s", r != NULL && r->str != NULL ? r->str : c->errstr);
    return r;
}

static void *open_client(const char *dir, bool durable)
{
    (void)durable;
    char path[512];
    struct client *k = calloc(1, sizeof(*k));
    if (k == NULL)
        bench_fail("no memory");
    snprintf(path, sizeof(path), "%s/s", dir);
    close(peer_connect_unix(path, 20)); /* it is there */
    k->c = redisConnectUnix(path);
    if (k->c == NULL || k->c->err != 0)
        bench_fail("Redis: no connection");
    return k;
}

static void close_client(void *h)
{
    struct client *k = h;
    redisFree(k->c);
    free(k);
}

static void start(const char *dir, bool durable, int core)
{
    char path[512], log[512];
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(log, sizeof(log), "%s/log", dir);
    const char *argv[] = { "redis-server",
                           "--port",
                           "0",
                           "--unixsocket",
                           path,
                           "--dir",
                           dir,
                           "--save",
                           "",
                           "--appendonly",
                           durable ? "yes" : "no",
                           "--appendfsync",
                           "always",
                           "--daemonize",
                           "no",
                           NULL };
    server = peer_spawn(core, NULL, log, argv);
    struct client *k = open_client(dir, durable);
    redisAppendCommand(k->c, "XGROUP CREATE q g $ MKSTREAM");
    freeReplyObject(reply_of(k->c));
    close_client(k);
}

static void send_some(void *h, const void *body, size_t bytes, uint32_t n)
{
    struct client *k = h;
    for (uint32_t i = 0; i < n; i++)
        redisAppendCommand(k->c, "XADD q * b %b", body, bytes);
    for (uint32_t i = 0; i < n; i++)
        freeReplyObject(reply_of(k->c));
}

static uint32_t take(void *h, uint32_t max)
{
    struct client *k = h;
    redisAppendCommand(k->c, "XREADGROUP GROUP g c COUNT %u BLOCK 1000 STREAMS q >", max);
    redisReply *r = reply_of(k->c);
    k->count = 0;
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 1) {
        const redisReply *list = r->element[0]->element[1];
        for (size_t i = 0; i < list->elements; i++)
            snprintf(k->ids[k->count++], sizeof(k->ids[0]), "%s",
                     list->element[i]->element[0]->str);
    }
    freeReplyObject(r);
    return k->count;
}

static void ack(void *h)
{
    struct client *k = h;
    const char *argv[PEER_BATCH_MAX + 3];
    for (uint32_t i = 0; i < k->count; i++)
        argv[i + 3] = k->ids[i];
    argv[0] = "XACK";
    argv[1] = "q";
    argv[2] = "g";
    redisAppendCommandArgv(k->c, (int)k->count + 3, argv, NULL);
    argv[1] = "XDEL";
    argv[2] = "q";
    redisAppendCommandArgv(k->c, (int)k->count + 2, argv + 1, NULL);
    redisReply *r = reply_of(k->c);
    if (r->integer != (long long)k->count)
        bench_fail("Redis: %lld of %u acknowledged", r->integer, k->count);
    freeReplyObject(r);
    freeReplyObject(reply_of(k->c));
}

static void stop(void) { peer_end(server, SIGKILL); }

const struct peer_queue queue_redis = {
    .name = "Redis streams",
    .has_volatile = true,
    .has_durable = true,
    .real = "fdatasync of the append-only file before each reply, shared by a turn of its loop",
    .settings =
        "`--save '' --appendonly no`; `--appendonly yes --appendfsync always`. Unix socket, "
        "hiredis, XADD pipelined, XREADGROUP COUNT, XACK and XDEL of a batch each",
    .version = version,
    .start = start,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};
