/* SPDX-License-Identifier: MIT */
/* nng, pair over ipc. */
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/supplemental/util/platform.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

static void version(char *out, size_t bytes) { snprintf(out, bytes, "%s", nng_version()); }

static void must(int rc, const char *what)
{
    if (rc != 0)
        bench_fail("nng: %s: %s", what, nng_strerror(rc));
}

static void *open_end(const char *dir, int end)
{
    nng_socket *s = malloc(sizeof(*s));
    char where[512];
    if (s == NULL)
        bench_fail("no memory");
    snprintf(where, sizeof(where), "ipc://%s/nng", dir);
    must(nng_pair0_open(s), "open");
    must(nng_socket_set_int(*s, NNG_OPT_SENDBUF, 128), "buffer");
    must(nng_socket_set_int(*s, NNG_OPT_RECVBUF, 128), "buffer");
    if (end == 0)
        must(nng_listen(*s, where, NULL, 0), "listen");
    else
        must(nng_dial(*s, where, NULL, NNG_FLAG_NONBLOCK), "dial");
    return s;
}

static void send_one(void *h, const void *body, size_t n)
{
    must(nng_send(*(nng_socket *)h, (void *)(uintptr_t)body, n, 0), "send");
}

static void receive_one(void *h, void *body, size_t n)
{
    size_t got = n;
    must(nng_recv(*(nng_socket *)h, body, &got, 0), "receive");
    if (got != n)
        bench_fail("nng: a message of %zu bytes", got);
}

static void close_end(void *h)
{
    nng_msleep(50); /* what is still on its way */
    nng_close(*(nng_socket *)h);
    free(h);
}

const struct peer_hop hop_nng = { "nng pair ipc", "asleep",    version,   NULL, open_end,
                                  send_one,       receive_one, close_end, NULL };
