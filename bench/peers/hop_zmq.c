/* SPDX-License-Identifier: MIT */
/* ZeroMQ, PAIR over ipc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "peer.h"

struct zmq {
    void *context, *socket;
};

static void version(char *out, size_t bytes)
{
    int a, b, c;
    zmq_version(&a, &b, &c);
    snprintf(out, bytes, "%d.%d.%d", a, b, c);
}

static void *open_end(const char *dir, int end)
{
    struct zmq *z = malloc(sizeof(*z));
    char where[512];
    int forever = -1;
    if (z == NULL)
        bench_fail("no memory");
    snprintf(where, sizeof(where), "ipc://%s/zmq", dir);
    z->context = zmq_ctx_new();
    z->socket = zmq_socket(z->context, ZMQ_PAIR);
    zmq_setsockopt(z->socket, ZMQ_LINGER, &forever, sizeof(forever));
    if ((end == 0 ? zmq_bind(z->socket, where) : zmq_connect(z->socket, where)) != 0)
        bench_fail("ZeroMQ: %s", zmq_strerror(zmq_errno()));
    return z;
}

static void send_one(void *h, const void *body, size_t n)
{
    struct zmq *z = h;
    if (zmq_send(z->socket, body, n, 0) != (int)n)
        bench_fail("zmq_send: %s", zmq_strerror(zmq_errno()));
}

static void receive_one(void *h, void *body, size_t n)
{
    struct zmq *z = h;
    if (zmq_recv(z->socket, body, n, 0) != (int)n)
        bench_fail("zmq_recv: %s", zmq_strerror(zmq_errno()));
}

static void close_end(void *h)
{
    struct zmq *z = h;
    zmq_close(z->socket);
    zmq_ctx_term(z->context);
    free(z);
}

const struct peer_hop hop_zmq = { "ZeroMQ PAIR ipc", "asleep",    version,   NULL, open_end,
                                  send_one,          receive_one, close_end, NULL };
