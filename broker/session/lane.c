/* SPDX-License-Identifier: MIT */
#include "session/lane.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/wake.h"
#include "base/assert.h"
#include "base/bits.h"
#include "session/region_create.h"

#define TABLE_FIRST 64u
#define TABLE_MAX (1u << 20) /* PAWL_ENGINE_LANES_MAX */

int pawl_lanes_init(struct pawl_lanes *set, struct pawl_io *io, uint64_t bytes_max)
{
    memset(set, 0, sizeof *set);
    set->io = io;
    set->bytes_max = bytes_max;
    pawl_list_init(&set->active);
    pawl_list_init(&set->dirty);
    pawl_list_init(&set->stale);
    pawl_list_init(&set->zombies);
    return 0;
}

void pawl_lanes_fini(struct pawl_lanes *set)
{
    while (!pawl_list_empty(&set->zombies))
        pawl_lane_free(PAWL_CONTAINER(set->zombies.next, struct pawl_lane, place));
    PAWL_ASSERT_REL(set->open_count, ==, 0);
    free(set->table);
    free(set->free_handles);
    set->table = NULL;
    set->free_handles = NULL;
}

uint64_t pawl_lane_cost(uint64_t sub_bytes, uint64_t comp_bytes)
{
    return pawl_region_file_bytes(sub_bytes) + pawl_region_file_bytes(comp_bytes);
}

/* Low handles first, so that tables indexed by them stay short. */
static int take_handle(struct pawl_lanes *set, uint32_t *out)
{
    if (set->free_count == 0) {
        uint32_t more = set->capacity ? set->capacity * 2 : TABLE_FIRST;
        if (more > TABLE_MAX)
            return -ENFILE;
        struct pawl_lane **table = realloc(set->table, more * sizeof(struct pawl_lane *));
        if (!table)
            return -ENOMEM;
        set->table = table;
        uint32_t *handles = realloc(set->free_handles, more * sizeof *handles);
        if (!handles)
            return -ENOMEM;
        set->free_handles = handles;
        for (uint32_t h = more; h-- > set->capacity;) {
            set->table[h] = NULL;
            set->free_handles[set->free_count++] = h;
        }
        set->capacity = more;
    }
    *out = set->free_handles[--set->free_count];
    return 0;
}

/* --- bell ------------------------------------------------------------------------------------ */

static void bell_rang(struct pawl_io_watch *watch, uint32_t events)
{
    struct pawl_lane *lane = PAWL_CONTAINER(watch, struct pawl_lane, bell);
    (void)events; /* never read: edge-triggered, each write to it is a new edge */
    if (!lane->comp)
        return;
    lane->set->bells++;
    pawl_lane_activate(lane);
}

/* --- create ---------------------------------------------------------------------------------- */

static void init_rings(struct pawl_lane *lane, uint64_t sub_bytes, uint64_t comp_bytes)
{
    lane->sub = lane->sub_region.header;
    lane->comp = lane->comp_region.header;
    lane->in = (struct pawl_ring_consumer){ .data = lane->sub_region.data,
                                            .size = sub_bytes,
                                            .tail_shm = &lane->sub->tail,
                                            .head_shm = &lane->comp->sub_head };
    lane->out = (struct pawl_ring_producer){ .data = lane->comp_region.data,
                                             .size = comp_bytes,
                                             .tail_shm = &lane->comp->tail,
                                             .head_shm = &lane->sub->comp_head };
}

int pawl_lane_create(struct pawl_lanes *set, uint32_t sub_bytes, uint32_t comp_bytes,
                     struct pawl_lane **out, int fds[2])
{
    uint64_t cost = pawl_lane_cost(sub_bytes, comp_bytes);
    *out = NULL;
    fds[0] = fds[1] = -1;
    if (cost > set->bytes_max || set->bytes > set->bytes_max - cost)
        return -EDQUOT;
    struct pawl_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return -ENOMEM;
    lane->set = set;
    lane->watch_fd = -1;
    lane->bell_fd = -1;
    pawl_list_init(&lane->place);
    pawl_list_init(&lane->dirty);
    pawl_list_init(&lane->stale);
    pawl_list_init(&lane->of_session);
    int rc = pawl_region_create(PAWL_REGION_SUB, sub_bytes, &fds[0], &lane->sub_region);
    if (rc == 0)
        rc = pawl_region_create(PAWL_REGION_COMP, comp_bytes, &fds[1], &lane->comp_region);
    if (rc == 0) {
        lane->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        rc = lane->bell_fd < 0 ? -errno : 0;
    }
    if (rc == 0) {
        lane->bell =
            (struct pawl_io_watch){ .ready = bell_rang, .fd = lane->bell_fd, .events = EPOLLIN };
        rc = set->io->ops->watch_add(set->io, &lane->bell);
    }
    if (rc == 0) {
        rc = take_handle(set, &lane->handle);
        if (rc != 0)
            set->io->ops->watch_remove(set->io, &lane->bell);
    }
    if (rc != 0)
        goto fail;
    init_rings(lane, sub_bytes, comp_bytes);
    lane->bytes = cost;
    set->bytes += cost;
    set->open_count++;
    set->table[lane->handle] = lane;
    *out = lane;
    return 0;

fail:
    if (lane->bell_fd >= 0)
        (void)close(lane->bell_fd);
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
        fds[i] = -1;
    }
    pawl_region_unmap(&lane->sub_region);
    pawl_region_unmap(&lane->comp_region);
    free(lane);
    return rc;
}

/* --- close ----------------------------------------------------------------------------------- */

void pawl_lane_close(struct pawl_lane *lane, int32_t reason)
{
    struct pawl_lanes *set = lane->set;
    pawl_lane_deactivate(lane);
    pawl_list_remove(&lane->dirty);
    pawl_list_remove(&lane->stale);
    pawl_list_remove(&lane->of_session);
    pawl_store_rlx_u32((uint32_t *)&lane->comp->reason, (uint32_t)reason);
    pawl_store_seq_u32(&lane->comp->state, PAWL_LANE_CLOSED);
    uint32_t waiting = pawl_load_seq_u32(&lane->sub->waiting);
    if (waiting != 0)
        pawl_lane_wake(lane, waiting & PAWL_WAIT_KIND_MASK);
    set->io->ops->watch_remove(set->io, &lane->bell);
    (void)close(lane->bell_fd);
    if (lane->watch_fd >= 0)
        (void)close(lane->watch_fd);
    lane->bell_fd = lane->watch_fd = -1;
    lane->sub = NULL;
    lane->comp = NULL;
    lane->run = NULL;
    lane->session = NULL;
    lane->core = NULL;
    pawl_region_unmap(&lane->sub_region);
    pawl_region_unmap(&lane->comp_region);
    pawl_list_push_back(&set->zombies, &lane->place);
}

void pawl_lane_free(struct pawl_lane *lane)
{
    struct pawl_lanes *set = lane->set;
    PAWL_ASSERT(lane->comp == NULL);
    pawl_list_remove(&lane->place);
    set->table[lane->handle] = NULL;
    set->free_handles[set->free_count++] = lane->handle;
    set->bytes -= lane->bytes;
    set->open_count--;
    free(lane);
}

/* --- active set ------------------------------------------------------------------------------ */

void pawl_lane_activate(struct pawl_lane *lane)
{
    if (lane->active || !lane->comp)
        return;
    /* From here we look by ourselves: a client need not ring. */
    pawl_store_rlx_u32(&lane->comp->bell, 0);
    lane->active = true;
    lane->empty_turns = 0;
    lane->set->active_count++;
    pawl_list_push_back(&lane->set->active, &lane->place);
}

void pawl_lane_deactivate(struct pawl_lane *lane)
{
    if (!lane->active)
        return;
    lane->active = false;
    lane->set->active_count--;
    pawl_list_remove(&lane->place);
}

/* Is there anything to do for this lane? Also for a broken one: the drain then says how. */
static bool has_work(struct pawl_lane *lane)
{
    if (lane->room_wanted != 0 || lane->blocked) {
        uint64_t head = lane->out.head;
        if (!pawl_ring_refresh(&lane->out) || lane->out.head != head)
            return true;
    }
    if (lane->blocked)
        return false; /* what it holds cannot be taken yet */
    return lane->in.next != pawl_load_seq_u64(lane->in.tail_shm);
}

bool pawl_lane_rest(struct pawl_lane *lane)
{
    uint32_t bits = lane->blocked ? PAWL_BELL_ROOM : PAWL_BELL_SUBMIT;
    if (lane->room_wanted != 0)
        bits |= PAWL_BELL_ROOM;
    lane->announcements += PAWL_BELL_STEP;
#ifndef PAWL_BUG_SLEEP_UNANNOUNCED
    pawl_store_seq_u32(&lane->comp->bell, lane->announcements | bits);
#endif
    if (has_work(lane)) {
        pawl_store_rlx_u32(&lane->comp->bell, 0);
        lane->empty_turns = 0;
        return false;
    }
    pawl_lane_deactivate(lane);
    return true;
}

void pawl_lane_wake(struct pawl_lane *lane, uint32_t kind)
{
    lane->set->wakes++;
    if (kind == PAWL_WAIT_FUTEX) {
        (void)pawl_add_seq_u32(&lane->comp->wake, 1);
        /* On our own mapping of the word; shared, since the sleeper has another. */
        (void)syscall(SYS_futex, &lane->comp->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    } else if (kind == PAWL_WAIT_FD && lane->watch_fd >= 0) {
        /* A full socket is readable already, a closed one has nobody behind it. */
        (void)send(lane->watch_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}
