/* SPDX-License-Identifier: MIT */
/* The registry: memories, uses, attach, the guard.
 *
 * Attach
 *   - DIRECT with the incarnation that the process has of this queue, or none
 *   - DIRECT_OK: a lane, and the memfd if it is another one -> seals and size checked, mapped
 *   - the life byte of the lane is locked, LOCKED -> DIRECT_OK: it may be used
 * Failures: LATER -> again until the time of the call is over; E_QUEUE_GONE for an older
 * incarnation -> again without it; whatever fails after the lock -> the lock goes, and the broker
 * finds nobody in the lane.
 *
 * The guard, when a socket has ended: the session attaches again, then DIRECT with incarnation and
 * lane for each of its uses; GIVE -> once more with the memory. E_QUEUE_GONE -> the use is over,
 * its calls answer that. Everything else -> later again: the queue works on meanwhile. */
#include "client/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "abi/attach.h"
#include "base/clock.h"
#include "base/hash.h"
#include "client/session.h"

#define LOOK_NS (250 * PAWL_NS_MS)
#define PAUSE_NS_MIN PAWL_NS_MS
#define PAUSE_NS_MAX (50 * PAWL_NS_MS)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct registry {
    uint64_t process_mark;
    pthread_mutex_t lock;
    struct pawl_memory *memories;
    struct pawl_use *uses;
    bool guarded;
};

static struct registry *registry;
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

static void nap(uint64_t ns) { (void)nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL); }

/* That of this process. After a fork the parent's is left alone: a thread that is not here may have
 * been in the middle of it. NULL: no memory. */
static struct registry *registry_of(const struct pawl *lane)
{
    struct registry *r = NULL;
    for (int i = 0; pthread_mutex_trylock(&registry_lock) != 0; i++) {
        if (i == 5000) /* held for a few instructions, or in a child of a fork at that moment */
            return NULL;
        nap(200000);
    }
    if (!registry || registry->process_mark != lane->process_mark) {
        r = calloc(1, sizeof *r);
        if (r && pthread_mutex_init(&r->lock, NULL) != 0) {
            free(r);
            r = NULL;
        }
        if (r) {
            r->process_mark = lane->process_mark;
            registry = r;
        }
    } else {
        r = registry;
    }
    pthread_mutex_unlock(&registry_lock);
    return r;
}

/* --- memories -------------------------------------------------------------------------------- */

static struct pawl_memory *memory_find(const struct registry *r, const uint8_t log_id[16],
                                       uint64_t queue)
{
    struct pawl_memory *m = r->memories;
    while (m && (pawl_load_rlx_u64(&m->queue) != queue ||
                 memcmp(m->log_id, log_id, sizeof m->log_id) != 0))
        m = m->next;
    return m;
}

static int verify(int fd, uint64_t bytes)
{
    struct stat st;
    int have = fcntl(fd, F_GET_SEALS);
    if (have < 0 || (have & SEALS) != SEALS || fstat(fd, &st) != 0 || (uint64_t)st.st_size != bytes)
        return PAWL_E_PROTOCOL;
    return PAWL_OK;
}

static void memory_free(struct registry *r, struct pawl_memory *m)
{
    for (struct pawl_memory **at = &r->memories; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    if (m->map)
        (void)munmap(m->map, m->bytes);
    for (uint32_t i = 0; i < m->spare_count; i++)
        (void)close(m->spare_fds[i]);
    if (m->fd >= 0)
        (void)close(m->fd);
    free(m);
}

static int memory_map(struct pawl_memory *m)
{
    m->map = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, m->fd, 0);
    if (m->map == MAP_FAILED) {
        m->map = NULL;
        return PAWL_E_RESOURCE;
    }
    if (madvise(m->map, m->bytes, MADV_DONTFORK) != 0 ||
        madvise(m->map, m->bytes, MADV_DONTDUMP) != 0)
        return PAWL_E_RESOURCE;
    return pawl_direct_open(&m->view, m->map, m->bytes, NULL);
}

/* The memory behind the answer: the one that the process has, or the one that came. *fd is -1 once
 * it is kept. */
static int memory_take(struct registry *r, const struct pawl_session *s,
                       const struct pawl_attach_direct_ok *ok, int *fd, struct pawl_memory **out)
{
    struct pawl_memory *m = memory_find(r, s->log_id, ok->queue);
    if (m && m->incarnation == ok->incarnation) {
        *out = m;
        if (*fd < 0)
            return PAWL_OK;
        /* Not asked for; to close it would drop our locks. */
        if (m->spare_count == PAWL_COUNT(m->spare_fds))
            return PAWL_E_PROTOCOL;
        m->spare_fds[m->spare_count++] = *fd;
        *fd = -1;
        return PAWL_OK;
    }
    if (*fd < 0 || verify(*fd, ok->bytes) != PAWL_OK)
        return PAWL_E_PROTOCOL;
    m = calloc(1, sizeof *m);
    if (!m)
        return PAWL_E_RESOURCE;
    m->fd = *fd;
    *fd = -1;
    m->queue = ok->queue;
    m->incarnation = ok->incarnation;
    m->bytes = ok->bytes;
    m->lease_ns = ok->lease_ns;
    m->hold_ns = ok->hold_ns;
    m->retry_ns = ok->retry_ns;
    memcpy(m->log_id, s->log_id, sizeof m->log_id);
    int rc = memory_map(m);
    if (rc == PAWL_OK) {
        uint64_t named[4] = { m->queue, m->incarnation, m->view.shape.id };
        memcpy(&named[3], m->log_id, 8);
        m->tag = pawl_hash64(named, sizeof named, 3) & ((UINT64_C(1) << 52) - 1);
        for (const struct pawl_memory *o = r->memories; o; o = o->next)
            if (o->tag == m->tag)
                rc = PAWL_E_RESOURCE; /* two of one tag: once in 2^52 */
    }
    m->next = r->memories;
    r->memories = m;
    if (rc != PAWL_OK) {
        memory_free(r, m);
        return rc;
    }
    *out = m;
    return PAWL_OK;
}

static void life_unlock(const struct pawl_memory *m, uint32_t number)
{
    struct flock l = { .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = number, .l_len = 1 };
    (void)fcntl(m->fd, F_SETLK, &l);
}

/* --- attach ---------------------------------------------------------------------------------- */

static int exchange(struct pawl_session *s, const struct pawl_attach_direct *ask, int give,
                    struct pawl_attach_direct_ok *ok, int *fd, uint64_t until)
{
    memset(ok, 0, sizeof *ok);
    *fd = -1;
    int rc = pawl_session_exchange_with(s, ask, sizeof *ask, give, ok, sizeof *ok, fd, 1, until);
    if (rc != PAWL_OK)
        return rc;
    ok->text[sizeof ok->text - 1] = '\0';
    if (ok->type != PAWL_ATTACH_DIRECT_OK || ok->result > 0 || ok->queue != ask->queue) {
        (void)snprintf(s->text, sizeof s->text, "the broker's answer to DIRECT is none");
        return PAWL_E_PROTOCOL;
    }
    (void)snprintf(s->text, sizeof s->text, "%s", ok->text);
    return ok->result;
}

/* A lane of the queue for *use; registry and session are locked. */
static int attach_once(struct registry *r, struct pawl_session *s, uint64_t queue,
                       struct pawl_use *use, uint64_t until, bool *later)
{
    struct pawl_attach_direct ask = { .type = PAWL_ATTACH_DIRECT,
                                      .queue = queue,
                                      .rights = use->rights };
    struct pawl_attach_direct_ok ok;
    struct pawl_memory *m = memory_find(r, s->log_id, queue);
    int fd;
    *later = false;
    if (m)
        ask.incarnation = m->incarnation;
    int rc = exchange(s, &ask, -1, &ok, &fd, until);
    if (rc == PAWL_E_PAUSED && (ok.flags & PAWL_DIRECT_GIVE) && m) {
        ask.flags = PAWL_DIRECT_GIVEN;
        rc = exchange(s, &ask, m->fd, &ok, &fd, until);
    }
    if (rc == PAWL_E_QUEUE_GONE && m) {
        /* An older one: its uses are over, and it goes with the last of them. */
        for (struct pawl_use *u = r->uses; u; u = u->by_list)
            if (u->memory == m)
                pawl_store_rel_u32(&u->over, 1);
        pawl_store_rlx_u64(&m->queue, 0);
        *later = true;
    }
    *later = *later || (rc == PAWL_E_PAUSED && (ok.flags & PAWL_DIRECT_LATER));
    if (rc == PAWL_OK)
        rc = memory_take(r, s, &ok, &fd, &use->memory);
    if (fd >= 0)
        (void)close(fd);
    if (rc != PAWL_OK)
        return rc;
    m = use->memory;
    use->number = ok.lane;
    rc = pawl_direct_life_lock(m->fd, use->number);
    if (rc == PAWL_OK) {
        ask.type = PAWL_ATTACH_LOCKED;
        ask.flags = 0;
        ask.lane = use->number;
        rc = exchange(s, &ask, -1, &ok, &fd, until);
        if (fd >= 0) { /* a breach; and closing it may drop our locks */
            m->spare_fds[m->spare_count < 8 ? m->spare_count++ : 7] = fd;
            rc = PAWL_E_PROTOCOL;
        }
        if (rc == PAWL_OK)
            rc = pawl_direct_lane_init(&use->lane, &m->view, use->number);
        if (rc != PAWL_OK)
            life_unlock(m, use->number);
    }
    if (rc != PAWL_OK) {
        if (m->uses == 0)
            memory_free(r, m);
        use->memory = NULL;
        return rc;
    }
    m->uses++;
    use->attachment = s->attachment;
    return PAWL_OK;
}

static int attach_locked(struct registry *r, struct pawl *lane, uint64_t queue,
                         struct pawl_use *use, uint64_t until, bool *later)
{
    struct pawl_session *s = lane->session;
    *later = false;
    if (!pawl_session_lock(s, until))
        return pawl_call_refuse(lane, PAWL_E_BROKER_DOWN, "another lane is attaching");
    bool alive = pawl_session_alive(s);
    int rc = pawl_session_attach(s, until);
    if (rc == PAWL_OK)
        rc = attach_once(r, s, queue, use, until, later);
    /* The socket had ended unseen: the next one may be another broker's. */
    if (rc == PAWL_E_BROKER_DOWN || !alive)
        *later = rc != PAWL_OK;
    if (rc != PAWL_OK)
        (void)snprintf(lane->text, sizeof lane->text, "%s",
                       s->text[0] ? s->text : pawl_strerror(rc));
    pawl_session_unlock(s);
    return rc;
}

/* --- guard ----------------------------------------------------------------------------------- */

/* One use is made known to the broker that its session is attached to now. */
static void attach_again(struct pawl_session *s, struct pawl_use *use)
{
    uint64_t until = pawl_clock_boot() + PAWL_NS_S;
    struct pawl_attach_direct ask = { .type = PAWL_ATTACH_DIRECT,
                                      .queue = pawl_load_rlx_u64(&use->memory->queue),
                                      .incarnation = use->memory->incarnation,
                                      .lane = use->number,
                                      .rights = use->rights };
    struct pawl_attach_direct_ok ok;
    int fd;
    int rc = exchange(s, &ask, -1, &ok, &fd, until);
    if (rc == PAWL_E_PAUSED && (ok.flags & PAWL_DIRECT_GIVE)) {
        ask.flags = PAWL_DIRECT_GIVEN;
        rc = exchange(s, &ask, use->memory->fd, &ok, &fd, until);
    }
    if (fd >= 0)
        (void)close(fd); /* only a breach brings one here: the lane is told below that it is over */
    if (rc == PAWL_OK && fd < 0)
        use->attachment = s->attachment;
    else if (fd >= 0 || rc == PAWL_E_QUEUE_GONE || rc == PAWL_E_NOT_FOUND || rc == PAWL_E_PERM)
        pawl_store_rel_u32(&use->over, 1);
}

/* True: there is something to do soon. */
static bool guard_look(struct registry *r)
{
    bool soon = false;
    for (struct pawl_use *u = r->uses; u; u = u->by_list) {
        struct pawl_session *s = u->session;
        if (pawl_load_rlx_u32(&u->over) || !pawl_session_lock(s, 0))
            continue;
        if (!pawl_session_alive(s))
            (void)pawl_session_attach(s, pawl_clock_boot() + PAWL_NS_S);
        if (s->socket >= 0 && u->attachment != s->attachment)
            attach_again(s, u);
        soon = soon || s->socket < 0 || u->attachment != s->attachment;
        pawl_session_unlock(s);
    }
    return soon;
}

static void *guard(void *context)
{
    struct registry *r = context;
    uint64_t pause = LOOK_NS;
    for (;;) {
        nap(pause);
        pthread_mutex_lock(&r->lock);
        if (!r->uses) {
            r->guarded = false;
            pthread_mutex_unlock(&r->lock);
            return NULL;
        }
        pause = guard_look(r) ? 20 * PAWL_NS_MS : LOOK_NS;
        pthread_mutex_unlock(&r->lock);
    }
}

static int guard_start(struct registry *r)
{
    pthread_t thread;
    pthread_attr_t a;
    sigset_t all, before;
    if (r->guarded)
        return PAWL_OK;
    if (pthread_attr_init(&a) != 0)
        return PAWL_E_RESOURCE;
    (void)pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r->guarded = pthread_create(&thread, &a, guard, r) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&a);
    return r->guarded ? PAWL_OK : PAWL_E_RESOURCE;
}

/* --- uses ------------------------------------------------------------------------------------ */

static int use_make(struct pawl *lane, uint64_t queue, uint32_t rights, uint64_t until,
                    struct pawl_use **out)
{
    pawl_uses_sweep(lane, false);
    struct registry *r = registry_of(lane);
    struct pawl_use *use = r ? calloc(1, sizeof *use) : NULL;
    if (!use)
        return pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory for a direct queue");
    use->session = lane->session;
    use->rights = PAWL_USE_RECEIVE | PAWL_USE_SEND;
    uint64_t pause = PAUSE_NS_MIN;
    bool later;
    int rc;
    for (;;) {
        pthread_mutex_lock(&r->lock);
        rc = guard_start(r);
        later = false;
        if (rc == PAWL_OK)
            rc = attach_locked(r, lane, queue, use, until, &later);
        /* Who may do both has one lane of the queue for both. */
        if (rc == PAWL_E_PERM && use->rights != rights) {
            use->rights = rights;
            rc = attach_locked(r, lane, queue, use, until, &later);
        }
        if (rc == PAWL_OK) {
            use->by_list = r->uses;
            r->uses = use;
        }
        pthread_mutex_unlock(&r->lock);
        if (rc == PAWL_OK || !later || pawl_clock_boot() + pause >= until)
            break;
        nap(pause);
        pause = pawl_min_u64(pause * 2, PAUSE_NS_MAX);
    }
    pawl_call_outcome(lane, PAWL_OUTCOME_NOT_APPLIED);
    if (rc != PAWL_OK) {
        free(use);
        return rc;
    }
    lane->outcome_set = false;
    lane->text[0] = '\0';
    use->next = lane->uses;
    lane->uses = use;
    *out = use;
    return PAWL_OK;
}

int pawl_use_get(struct pawl *lane, struct pawl_queue_ref *q, uint32_t rights, uint64_t until,
                 struct pawl_use **out)
{
    struct pawl_use *use = q->use;
    if (!use)
        for (use = lane->uses; use; use = use->next)
            if (pawl_load_rlx_u64(&use->memory->queue) == q->id && !pawl_load_rlx_u32(&use->over))
                break;
    if (use && !pawl_use_served(use)) {
        pawl_use_over(lane, use);
        return pawl_call_refuse(lane, PAWL_E_QUEUE_GONE,
                                "what direct queue %s held is gone with those who held it",
                                q->name);
    }
    if (use && (use->rights & rights) != rights) {
        /* The broker says whether this user may do that too. */
        struct pawl_use *more;
        int rc = use_make(lane, q->id, use->rights | rights, until, &more);
        if (rc != PAWL_OK)
            return rc;
        use = more;
    } else if (!use) {
        int rc = use_make(lane, q->id, rights, until, &use);
        if (rc != PAWL_OK)
            return rc;
    }
    q->use = use;
    *out = use;
    return PAWL_OK;
}

int pawl_use_of_token(struct pawl *lane, const struct pawl_token *token, uint64_t until,
                      struct pawl_use **out)
{
    uint64_t tag = pawl_token_tag(token), queue = 0;
    struct pawl_use *use = lane->uses;
    while (use && use->memory->tag != tag)
        use = use->next;
    if (use) {
        *out = use;
        return PAWL_OK;
    }
    struct registry *r = registry_of(lane);
    if (r) {
        pthread_mutex_lock(&r->lock);
        for (const struct pawl_memory *m = r->memories; m; m = m->next)
            if (m->tag == tag)
                queue = pawl_load_rlx_u64(&m->queue);
        pthread_mutex_unlock(&r->lock);
    }
    if (queue == 0)
        return pawl_call_refuse(lane, PAWL_E_NOT_FOUND,
                                "the token is of a direct queue that this process does not use: "
                                "only the process that received a message can settle it");
    return use_make(lane, queue, PAWL_USE_RECEIVE, until, out);
}

static void unname(struct pawl *lane, const struct pawl_use *use)
{
    for (uint32_t b = 0; b < PAWL_REF_BUCKETS; b++)
        for (struct pawl_queue_ref *q = lane->ids_table[b]; q; q = q->by_id)
            if (q->use == use)
                q->use = NULL;
}

static void use_end(struct pawl *lane, struct pawl_use *use)
{
    struct registry *r = registry_of(lane);
    for (struct pawl_use **at = &lane->uses; *at; at = &(*at)->next)
        if (*at == use) {
            *at = use->next;
            break;
        }
    unname(lane, use);
    pawl_use_watch_stop(use);
    while (use->places > 0 && pawl_direct_abandon(&use->lane) == PAWL_OK)
        use->places--;
    if (r) {
        struct pawl_memory *m = use->memory;
        struct pawl_attach_direct bye = { .type = PAWL_ATTACH_DETACH,
                                          .queue = pawl_load_rlx_u64(&m->queue),
                                          .lane = use->number };
        pthread_mutex_lock(&r->lock);
        for (struct pawl_use **at = &r->uses; *at; at = &(*at)->by_list)
            if (*at == use) {
                *at = use->by_list;
                break;
            }
        life_unlock(m, use->number);
        /* Best effort: else the broker finds the life byte free. */
        if (pawl_session_lock(use->session, pawl_clock_boot() + 50 * PAWL_NS_MS)) {
            pawl_session_tell(use->session, &bye, sizeof bye);
            pawl_session_unlock(use->session);
        }
        if (--m->uses == 0)
            memory_free(r, m);
        pthread_mutex_unlock(&r->lock);
    }
    free(use->bodies);
    free(use);
}

void pawl_use_over(struct pawl *lane, struct pawl_use *use)
{
    pawl_store_rel_u32(&use->over, 1); /* the guard leaves it alone */
    unname(lane, use);
    lane->uses_over = true;
    pawl_uses_sweep(lane, false);
}

void pawl_uses_sweep_over(struct pawl *lane, bool received)
{
    bool left = false;
    for (struct pawl_use *use = lane->uses, *next; use; use = next) {
        next = use->next;
        if (pawl_load_rlx_u32(&use->over) == 0)
            continue;
        bool read = use->in_place || use->places > 0 || (use->bodies && !received);
        if (read)
            left = true;
        else
            use_end(lane, use);
    }
    lane->uses_over = left;
}

void pawl_uses_end(struct pawl *lane, bool forked)
{
    while (lane->uses) {
        struct pawl_use *use = lane->uses;
        if (!forked) {
            use_end(lane, use);
            continue;
        }
        lane->uses = use->next;
        free(use->bodies);
        free(use);
    }
}
