/* SPDX-License-Identifier: MIT */
/* iceoryx by its C binding: a publisher that waits for a full subscriber, a subscriber that polls.
 * RouDi, its daemon, runs while the case does. */
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <iceoryx_binding_c/log.h>
#include <iceoryx_binding_c/publisher.h>
#include <iceoryx_binding_c/runtime.h>
#include <iceoryx_binding_c/subscriber.h>

#include "peer.h"

struct iox {
    iox_pub_storage_t out_storage;
    iox_sub_storage_t in_storage;
    iox_pub_t out;
    iox_sub_t in;
};

static int roudi;

static void version(char *out, size_t bytes)
{
    if (!peer_command_line("iox-roudi --version 2>/dev/null | sed -n 's/.*: *//p'", out, bytes))
        snprintf(out, bytes, "unknown");
}

static void prepare(const char *dir, int core)
{
    char log[512], line[8];
    const char *argv[] = { "iox-roudi", "-m", "off", "-l", "error", NULL };
    snprintf(log, sizeof(log), "%s/roudi.log", dir);
    roudi = peer_spawn(core, NULL, log, argv);
    for (int i = 0; i < 100; i++) {
        char command[640];
        usleep(100000);
        snprintf(command, sizeof(command), "grep -o 'ready' '%s'", log);
        if (peer_command_line(command, line, sizeof(line)))
            return;
    }
    bench_fail("iox-roudi is not ready after ten seconds: see %s", log);
}

static void *open_end(const char *dir, int end)
{
    static const char *const ways[] = { "0", "1" };
    struct iox *x = calloc(1, sizeof(*x));
    char name[32];
    iox_pub_options_t po;
    iox_sub_options_t so;
    (void)dir;
    if (x == NULL)
        bench_fail("no memory");
    snprintf(name, sizeof(name), "pawl-bench-%d", (int)getpid());
    iox_set_loglevel(Iceoryx_LogLevel_Error);
    iox_runtime_init(name);
    iox_pub_options_init(&po);
    po.subscriberTooSlowPolicy = ConsumerTooSlowPolicy_WAIT_FOR_CONSUMER;
    x->out = iox_pub_init(&x->out_storage, "pawl", "bench", ways[end], &po);
    iox_sub_options_init(&so);
    so.queueCapacity = 256;
    so.queueFullPolicy = QueueFullPolicy_BLOCK_PRODUCER;
    x->in = iox_sub_init(&x->in_storage, "pawl", "bench", ways[1 - end], &so);
    while (iox_sub_get_subscription_state(x->in) != SubscribeState_SUBSCRIBED ||
           !iox_pub_has_subscribers(x->out))
        usleep(1000);
    return x;
}

static void send_one(void *h, const void *body, size_t n)
{
    struct iox *x = h;
    void *at;
    if (iox_pub_loan_chunk(x->out, &at, (uint32_t)n) != AllocationResult_SUCCESS)
        bench_fail("iceoryx: no chunk");
    memcpy(at, body, n);
    iox_pub_publish_chunk(x->out, at);
}

static void receive_one(void *h, void *body, size_t n)
{
    struct iox *x = h;
    const void *at;
    while (iox_sub_take_chunk(x->in, &at) != ChunkReceiveResult_SUCCESS)
        ;
    memcpy(body, at, n);
    iox_sub_release_chunk(x->in, at);
}

static void close_end(void *h)
{
    struct iox *x = h;
    iox_sub_deinit(x->in);
    iox_pub_deinit(x->out);
    free(x);
    iox_runtime_shutdown();
}

static void done(const char *dir)
{
    (void)dir;
    peer_end(roudi, SIGTERM);
}

const struct peer_hop hop_iceoryx = { "iceoryx", "spins",     version,   prepare, open_end,
                                      send_one,  receive_one, close_end, done };
