/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CLIENT_SESSION_H
#define PAWL_CLIENT_SESSION_H

/* What the lanes of one pawl_open() share: the socket to the broker, the identity that survives
 * it, and the knowledge who has already attached again. Any thread; everything but `attachment` and
 * `references` is under `lock`. No thread of its own: the lane that first notices the end of the
 * socket attaches again, the others find that done.
 *
 *   ATTACHED --end of socket, handshake failed--> DETACHED --HELLO with the secret--> ATTACHED
 *
 * attachment counts the sockets, incarnation the sessions: it grows when the broker did not know
 * the session, and every lane then gives up its submitted calls as E_OUTCOME_UNKNOWN. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/attach.h"
#include "pawl.h"

#define PAWL_SOCKET_PATH_BYTES 108

struct pawl;

struct pawl_session {
    uint32_t references; /* lanes that are open */
    uint32_t attachment;
    pthread_mutex_t lock;
    int socket; /* -1: detached */
    uint32_t incarnation;
    uint32_t
        resumes;  /* HELLOs that named the session, answered or not: each fences what was before */
    bool resumed; /* some broker has known it after another one: so it was in a log */
    bool unrecorded;    /* the one before the present incarnation never was, nor anything of it */
    bool same_log;      /* the one before was with this very log */
    uint32_t left;      /* 1: a lane was closed with calls whose outcome its program never had */
    uint64_t seq_floor; /* highest seq of lanes that were closed */
    uint8_t log_id[16];
    uint64_t id, epoch, broker_epoch;
    uint8_t secret[16];
    int64_t clock_shift;
    int32_t fatal;
    uint32_t broker_pid;
    char broker_version[32], io[16];
    struct pawl_options options; /* strings cleared */
    char label[PAWL_ATTACH_LABEL_BYTES];
    char path[PAWL_SOCKET_PATH_BYTES];
    char dir[PAWL_SOCKET_PATH_BYTES]; /* for texts; "": socket named alone */
    char text[PAWL_ATTACH_TEXT_BYTES * 2];
    const uint64_t *process;
    uint64_t process_mark;
};

/* The page that a fork wipes, and this process's mark in it. NULL: no memory. */
const uint64_t *pawl_process_page(uint64_t *mark);

/* options: complete and checked. OK, or E_INVALID, E_RESOURCE with the reason in text. */
int pawl_session_create(const struct pawl_options *options, struct pawl_session **out,
                        char text[PAWL_ATTACH_TEXT_BYTES * 2]);
void pawl_session_destroy(struct pawl_session *session, bool say_bye);

/* False: not within `until` (own boot clock). */
bool pawl_session_lock(struct pawl_session *session, uint64_t until);
void pawl_session_unlock(struct pawl_session *session);

/* --- all below: under the lock --- */

/* One attempt to be attached; OK at once if we are. E_BROKER_DOWN, E_ABI, E_PERM, E_QUOTA, E_EPOCH
 * (fatal), E_PROTOCOL; text says why. */
int pawl_session_attach(struct pawl_session *session, uint64_t until);
/* Is the socket still open at the other end? Closes it if not. */
bool pawl_session_alive(struct pawl_session *session);
/* One exchange; fds gets want_fds descriptors or none. A socket that fails here is closed. */
int pawl_session_exchange(struct pawl_session *session, const void *ask, size_t ask_bytes,
                          void *answer, size_t answer_bytes, int *fds, unsigned want_fds,
                          uint64_t until);
/* The same with a descriptor to the broker, or -1. */
int pawl_session_exchange_with(struct pawl_session *session, const void *ask, size_t ask_bytes,
                               int give, void *answer, size_t answer_bytes, int *fds,
                               unsigned want_fds, uint64_t until);
/* A message without an answer. A socket that does not take it is closed: its end says the same. */
void pawl_session_tell(struct pawl_session *session, const void *packet, size_t bytes);
void pawl_session_drop(struct pawl_session *session);
/* Why there is no broker, and what to start. */
void pawl_session_down_text(const struct pawl_session *session, char *text, size_t bytes);

#endif
