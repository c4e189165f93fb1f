/* SPDX-License-Identifier: MIT */
#include "session/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define START_TIME_FIELD 22 /* of /proc/PID/stat, counted from 1 */

static int open_pidfd(uint32_t pid)
{
    /* O_CLOEXEC is always set on a pidfd. */
    long fd = syscall(SYS_pidfd_open, (pid_t)pid, 0u);
    return fd < 0 ? -errno : (int)fd;
}

uint64_t pawl_peer_start_time(uint32_t pid)
{
    char path[32], text[1024];
    if (pid == 0)
        return 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    /* The second field is the program's name, which may hold anything, brackets and blanks too: the
     * last bracket ends it. */
    const char *p = strrchr(text, ')');
    for (int field = 2; p && field < START_TIME_FIELD; field++) {
        p = strchr(p, ' ');
        if (p)
            p++;
    }
    return p ? strtoull(p, NULL, 10) : 0;
}

bool pawl_peer_exited(int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

/* For kernels before 6.5: a pidfd by number. The number may have gone to another process since the
 * connect. It has not if the socket is still held at the other end and the process behind the pidfd
 * began no later than we looked first; what remains (died, number reused and socket inherited by a
 * child, all between two lines here) ends as a lease that lasts its full time. */
static int pidfd_by_number(int socket, uint32_t pid, uint64_t start_time)
{
    if (pid == 0 || start_time == 0)
        return -1;
    int fd = open_pidfd(pid);
    if (fd < 0)
        return -1;
    struct pollfd p = { .fd = socket, .events = 0 };
    bool gone = poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR)) != 0;
    if (gone || pawl_peer_start_time(pid) != start_time) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int pawl_peer_identify(int socket, struct pawl_core_peer *peer, int *pidfd)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    *pidfd = -1;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
        return -errno;
    peer->uid = cred.uid;
    peer->gid = cred.gid;
    peer->pid = cred.pid > 0 ? (uint32_t)cred.pid : 0; /* 0: a pid namespace that we cannot see */
    peer->start_time = pawl_peer_start_time(peer->pid);
    int fd = -1;
    bytes = sizeof fd;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0 && fd >= 0)
        *pidfd = fd;
    else
        *pidfd = pidfd_by_number(socket, peer->pid, peer->start_time);
    return 0;
}

enum pawl_peer_fate pawl_peer_find(uint32_t pid, uint64_t start_time, int *pidfd)
{
    *pidfd = -1;
    if (pid == 0 || start_time == 0)
        return PAWL_PEER_UNKNOWN;
    int fd = open_pidfd(pid);
    if (fd == -ESRCH || fd == -EINVAL)
        return PAWL_PEER_DEAD;
    if (fd < 0)
        return PAWL_PEER_UNKNOWN;
    /* The pidfd first: what it names cannot become another process between the two. */
    uint64_t found = pawl_peer_start_time(pid);
    if (found == start_time && !pawl_peer_exited(fd)) {
        *pidfd = fd;
        return PAWL_PEER_ALIVE;
    }
    (void)close(fd);
    /* 0: gone just now, or /proc does not show it: the pidfd has told us only that it was there. */
    return found == 0 ? PAWL_PEER_UNKNOWN : PAWL_PEER_DEAD;
}
