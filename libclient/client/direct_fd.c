/* SPDX-License-Identifier: MIT */
/* pawl_fd() of a lane that receives from a direct queue: nobody who sends to it can make a
 * descriptor readable, so a thread of ours sleeps at the gate of its readers.
 *
 *   - a receive that does not wait and found nothing prepares the gate, looks once more, and hands
 *     the value of the gate to the thread: the steps of every sleeper (direct-queue.md 5.7)
 *   - the thread sleeps on it; woken, or if after the back-stop of a second there may be something,
 *     it makes the eventfd readable, which is in the epoll of the lane, and waits for the next
 *     receive
 *   - a receive empties the eventfd before it looks
 * The thread reads the queue's words and the use's end, and touches nothing else of the lane. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/direct.h"

struct pawl_use_watch {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    const struct pawl_direct *q;
    const uint32_t *over; /* of the use */
    uint32_t *gate;
    uint32_t kept; /* value of the gate to sleep on */
    bool armed, stop;
    int fd; /* eventfd */
};

/* Has anything come, or may it have: a sender who died before he woke us leaves the gate as it was.
 * Of an empty queue head has met tail, and nothing is marked. */
static bool is_news(const struct pawl_use_watch *w, uint32_t kept)
{
    const struct pawl_direct_shm *shm = w->q->shm;
    return pawl_load_seq_u32(w->gate) != kept || pawl_load_rlx_u32(w->over) != 0 ||
           pawl_direct_state(w->q) != PAWL_OK || (uint32_t)pawl_load_acq_u64(&shm->look) != 0 ||
           (int64_t)(pawl_load_acq_u64(&shm->tail) - pawl_load_acq_u64(&shm->head)) > 0;
}

static void *watch(void *context)
{
    struct pawl_use_watch *w = context;
    const uint64_t one = 1;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (!w->armed) {
            (void)pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        uint32_t kept = w->kept;
        pthread_mutex_unlock(&w->lock);
        pawl_direct_gate_wait(w->gate, kept, PAWL_DIRECT_SLEEP_NS_MAX);
        pthread_mutex_lock(&w->lock);
        if (!w->stop && !is_news(w, kept))
            continue;
        w->armed = false;
        ssize_t n = write(w->fd, &one, sizeof one); /* a full counter is readable, too */
        (void)n;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int start(struct pawl *lane, struct pawl_use *use)
{
    struct pawl_use_watch *w = calloc(1, sizeof *w);
    sigset_t all, before;
    if (!w)
        return PAWL_E_RESOURCE;
    w->q = &use->memory->view;
    w->over = &use->over;
    w->gate = &use->memory->view.shm->readers;
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event e = { .events = EPOLLIN, .data = { .fd = w->fd } };
    bool made = w->fd >= 0 && epoll_ctl(lane->events_fd, EPOLL_CTL_ADD, w->fd, &e) == 0 &&
                pthread_mutex_init(&w->lock, NULL) == 0 && pthread_cond_init(&w->wake, NULL) == 0;
    if (made) {
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        made = pthread_create(&w->thread, NULL, watch, w) == 0;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!made) {
        if (w->fd >= 0)
            (void)close(w->fd);
        free(w);
        return PAWL_E_RESOURCE;
    }
    use->watch = w;
    return PAWL_OK;
}

void pawl_use_watch_clear(struct pawl_use *use)
{
    uint64_t count;
    if (use->watch) {
        ssize_t n = read(use->watch->fd, &count, sizeof count);
        (void)n;
    }
}

int pawl_use_watch_arm(struct pawl *lane, struct pawl_use *use, uint32_t kept)
{
    if (!use->watch && start(lane, use) != PAWL_OK)
        return pawl_call_refuse(lane, PAWL_E_RESOURCE,
                                "no thread or descriptor to watch a direct queue for pawl_fd()");
    struct pawl_use_watch *w = use->watch;
    pthread_mutex_lock(&w->lock);
    w->kept = kept;
    w->armed = true;
    (void)pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    return PAWL_OK;
}

void pawl_use_watch_stop(struct pawl_use *use)
{
    struct pawl_use_watch *w = use->watch;
    if (!w)
        return;
    use->watch = NULL;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    /* Others who sleep there look once for nothing. */
    pawl_direct_gate_wake_all(w->gate);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->wake);
    (void)pthread_mutex_destroy(&w->lock);
    (void)close(w->fd);
    free(w);
}
