/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_LISTENER_H
#define PAWL_BROKER_LISTENER_H

/* The socket that clients find (P1-P3): AF_UNIX, SOCK_SEQPACKET, mode 0660 from its first moment.
 *
 * Taking the path over: under a lock of the directory that it is in, what is there decides.
 *
 *   nothing                          → bind
 *   a socket, and nobody answers     → left over by a crash: unlink, bind
 *   a socket, and somebody answers   → another broker: refuse, with his pid (after a second of
 *                                      tries: he may be dying)
 *   anything else                    → refuse: it is not ours to remove */

#include <stddef.h>
#include <sys/types.h>

#define PAWL_SOCKET_PATH_BYTES_MAX 107u

struct pawl_listener {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode; /* of the name that we bound */
    char path[PAWL_SOCKET_PATH_BYTES_MAX + 1];
};

/* 0, or -1 with the reason in why[bytes]. May take a second. */
int pawl_listener_open(const char *path, struct pawl_listener *out, char *why, size_t bytes)
    __attribute__((warn_unused_result));
/* unlink: also takes the name away, if it is still the one that we bound. */
void pawl_listener_close(struct pawl_listener *listener, int unlink_name);

#endif
