/* SPDX-License-Identifier: MIT */
/* pawl's direct queues as a hop: one each way, each message leased and acknowledged; both spin. */
#include <stdlib.h>
#include <string.h>

#include "../bench.h"
#include "../direct_ring.h"
#include "peer.h"
#include "peers.h"

struct end {
    struct pawl_direct_lane *out, *in;
};

static struct bench_ring ring[2];

static void version(char *out, size_t bytes) { snprintf(out, bytes, "%s", PAWL_VERSION); }

static void prepare(const char *dir, int core)
{
    (void)dir, (void)core;
    for (int way = 0; way < 2; way++)
        bench_ring_make(&ring[way], 1024, PEER_BODY_MAX);
}

static void *open_end(const char *dir, int end)
{
    (void)dir;
    struct end *e = malloc(sizeof(*e));
    if (e == NULL)
        bench_fail("no memory");
    e->out = bench_ring_lane(&ring[end], 1);
    e->in = bench_ring_lane(&ring[1 - end], 2);
    return e;
}

static void send_one(void *h, const void *body, size_t n)
{
    struct end *e = h;
    const struct pawl_direct_body b = { .data = body, .length = (uint32_t)n };
    int rc;
    while ((rc = pawl_direct_send(e->out, &b, 1, NULL)) == PAWL_E_FULL)
        pawl_cpu_relax();
    if (rc != 1)
        bench_fail("direct send: %s", pawl_strname(rc));
}

static void receive_one(void *h, void *body, size_t n)
{
    struct end *e = h;
    char all[PEER_BODY_MAX];
    struct pawl_direct_delivery d = { .body = all };
    int rc;
    while ((rc = pawl_direct_receive(e->in, &d, 1, PAWL_DIRECT_COPY)) == 0)
        while (!pawl_direct_poll(e->in))
            pawl_cpu_relax();
    if (rc != 1 || d.length != n)
        bench_fail("direct receive: %s", pawl_strname(rc));
    memcpy(body, all, n);
    rc = pawl_direct_ack(e->in, &d.token);
    if (rc != PAWL_OK)
        bench_fail("direct ack: %s", pawl_strname(rc));
}

static void close_end(void *h)
{
    struct end *e = h;
    free(e->out);
    free(e->in);
    free(e);
}

static void done(const char *dir)
{
    (void)dir;
    bench_ring_free(&ring[0]);
    bench_ring_free(&ring[1]);
}

const struct peer_hop hop_direct = {
    "pawl, direct queue", "spins",   version, prepare, open_end, send_one,
    receive_one,          close_end, done
};
