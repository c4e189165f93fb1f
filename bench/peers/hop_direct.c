/* SPDX-License-Identifier: MIT */
/* pawl's direct queues as a hop: one each way, by the public calls, each message leased and
 * acknowledged; a waiting side spins, or sleeps. The broker has no part in a message's way. */
#include <stdlib.h>
#include <string.h>

#include "../bench.h"
#include "abi/atomic.h"
#include "peer.h"
#include "peers.h"

struct end {
    struct pawl *lane;
    const char *out, *in;
};

static struct bench_broker broker;
static uint64_t spin_ns; /* of the two ends, which are forked after prepare */

static void version(char *out, size_t bytes) { snprintf(out, bytes, "%s", PAWL_VERSION); }

static void prepare(uint64_t spin, int core)
{
    spin_ns = spin;
    struct bench_broker_options o = { .core = core };
    bench_broker_start(peer_bench, &broker, &o);
    struct pawl *lane = bench_client(&broker, NULL);
    struct pawl_queue_options q = PAWL_QUEUE_OPTIONS_INIT;
    q.mode = PAWL_DIRECT;
    q.max_messages = 1024;
    q.max_message_bytes = PEER_BODY_MAX;
    q.lease_ns = 600 * PAWL_NS_S;
    bench_must(lane, pawl_queue_create(lane, "way0", &q), "create a direct queue");
    bench_must(lane, pawl_queue_create(lane, "way1", &q), "create a direct queue");
    pawl_close(lane);
}

static void prepare_spinning(const char *dir, int core)
{
    (void)dir;
    prepare(10 * PAWL_NS_S, core);
}

static void prepare_asleep(const char *dir, int core)
{
    (void)dir;
    prepare(0, core);
}

static void *open_end(const char *dir, int end)
{
    (void)dir;
    struct end *e = malloc(sizeof(*e));
    struct bench_client_options o = { .spin_ns = spin_ns };
    if (e == NULL)
        bench_fail("no memory");
    e->lane = bench_client(&broker, &o);
    e->out = end == 0 ? "way0" : "way1";
    e->in = end == 0 ? "way1" : "way0";
    return e;
}

static void send_one(void *h, const void *body, size_t n)
{
    struct end *e = h;
    struct pawl_send_options wait = PAWL_SEND_OPTIONS_INIT;
    wait.wait_room_ns = 30 * PAWL_NS_S;
    int rc;
    while ((rc = pawl_send(e->lane, e->out, body, n, spin_ns ? NULL : &wait, NULL)) == PAWL_E_FULL)
        pawl_cpu_relax();
    bench_must(e->lane, rc, "direct send");
}

static void receive_one(void *h, void *body, size_t n)
{
    struct end *e = h;
    struct pawl_message m;
    struct pawl_receive_options wait = PAWL_RECEIVE_OPTIONS_INIT;
    wait.wait_ns = 30 * PAWL_NS_S;
    int rc = bench_must(e->lane, pawl_receive(e->lane, e->in, &wait, &m), "direct receive");
    if (rc != PAWL_OK || m.bytes != n)
        bench_fail("direct receive: no message, or another one");
    memcpy(body, m.body, n);
    bench_must(e->lane, pawl_ack(e->lane, &m.token, 0), "direct ack");
}

static void close_end(void *h)
{
    struct end *e = h;
    pawl_close(e->lane);
    free(e);
}

static void done(const char *dir)
{
    (void)dir;
    bench_broker_stop(&broker);
    bench_broker_remove(&broker);
}

const struct peer_hop hop_direct = { "pawl, direct queue", "spins",   version,
                                     prepare_spinning,     open_end,  send_one,
                                     receive_one,          close_end, done };
const struct peer_hop hop_direct_asleep = { "pawl, direct queue", "asleep",  version,
                                            prepare_asleep,       open_end,  send_one,
                                            receive_one,          close_end, done };
