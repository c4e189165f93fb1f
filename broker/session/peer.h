/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_PEER_H
#define PAWL_BROKER_PEER_H

/* Who is at the other end of a socket, and whether he lives.
 *
 * Identity is uid and gid as the kernel gave them at connect, read once and frozen (P5). The pid is
 * for display, and together with the start time proves over a restart of the broker that a process
 * is still the same. Death is told by a pidfd alone: the end of a socket proves nothing, since a
 * forked child may hold it (M12). */

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"

/* Fills uid, gid, pid and start_time of *peer (label is left alone), and gives a pidfd, or -1 where
 * none can be had: then the end of the socket is death. 0, or -errno. */
int pawl_peer_identify(int socket, struct pawl_core_peer *peer, int *pidfd)
    __attribute__((warn_unused_result));

/* Start of a process in clock ticks since boot, from /proc. 0: no such process, or it is not to be
 * seen. */
uint64_t pawl_peer_start_time(uint32_t pid);

/* What is known of a process of which only pid and start time were kept. */
enum pawl_peer_fate { PAWL_PEER_ALIVE, PAWL_PEER_DEAD, PAWL_PEER_UNKNOWN };
/* ALIVE: *pidfd watches that very process. DEAD: another one, or none, has this pid now. UNKNOWN:
 * nothing can be proven (start time never known, or /proc is hidden). *pidfd is -1 but for ALIVE.
 */
enum pawl_peer_fate pawl_peer_find(uint32_t pid, uint64_t start_time, int *pidfd);

/* The process behind this pidfd has exited. */
bool pawl_peer_exited(int pidfd);

#endif
