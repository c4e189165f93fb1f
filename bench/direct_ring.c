/* SPDX-License-Identifier: MIT */
#include "direct_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

static uint64_t no_clock(void *context)
{
    (void)context;
    return bench_now();
}

/* This process plays the broker once: nobody sweeps afterwards. */
static void lanes_open(const struct bench_ring *r, const struct pawl_direct_shape *shape)
{
    static const uint8_t session[16] = { 1 };
    struct pawl_direct_broker broker;
    void *half = calloc(1, pawl_direct_broker_bytes(shape));
    if (half == NULL)
        bench_fail("no memory for a direct queue");
    pawl_direct_broker_init(&broker, &r->q, half, 1, no_clock, NULL);
    for (uint32_t i = 0; i < BENCH_RING_LANES; i++) {
        int number = pawl_direct_lane_take(&broker, session);
        if (number < 0)
            bench_fail("no lane: %s", pawl_strname(number));
        pawl_direct_lane_live(&broker, (uint32_t)number);
    }
    free(half);
}

void bench_ring_make(struct bench_ring *r, uint32_t capacity, uint32_t body_bytes)
{
    const struct pawl_direct_shape shape = { .capacity = capacity,
                                             .body_bytes = body_bytes,
                                             .lanes = BENCH_RING_LANES,
                                             .lease_ms = 600000,
                                             .lease_ms_max = 600000,
                                             .id = 1 };
    if (pawl_direct_shape_check(&shape) != PAWL_OK)
        bench_fail("a direct queue of %u slots of %u bytes is refused", capacity, body_bytes);
    r->bytes = pawl_direct_bytes(&shape);
    int fd = memfd_create("pawl-bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)r->bytes) != 0)
        bench_fail("no memory for a direct queue: %s", strerror(errno));
    r->memory = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    if (r->memory == MAP_FAILED)
        bench_fail("no memory for a direct queue");
    pawl_direct_init(r->memory, &shape);
    if (pawl_direct_open(&r->q, r->memory, r->bytes, &shape) != PAWL_OK)
        bench_fail("a new direct queue does not open");
    lanes_open(r, &shape);
}

void bench_ring_free(struct bench_ring *r) { munmap(r->memory, r->bytes); }

struct pawl_direct_lane *bench_ring_lane(const struct bench_ring *r, uint32_t number)
{
    struct pawl_direct_lane *lane = calloc(1, sizeof(*lane));
    if (lane == NULL || pawl_direct_lane_init(lane, &r->q, number) != PAWL_OK)
        bench_fail("no lane %u", number);
    return lane;
}
