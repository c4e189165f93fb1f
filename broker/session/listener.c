/* SPDX-License-Identifier: MIT */
#include "session/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 4096 /* the kernel takes the smaller of this and somaxconn */
#define LOCK_TRIES 20
#define LOCK_PAUSE_NS 50000000L

static void address_of(const char *path, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    memcpy(out->sun_path, path, strlen(path));
}

/* The directory of the path, locked while we look, unlink and bind: else two brokers that start
 * together both find the stale name, and the second removes what the first has just bound. */
static int lock_parent(const char *path, char *why, size_t bytes)
{
    char parent[PAWL_SOCKET_PATH_BYTES_MAX + 1];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, n);
    parent[n] = '\0';
    const char *name = slash ? (n ? parent : "/") : ".";
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        snprintf(why, bytes, "%s: %s", name, strerror(errno));
        return -1;
    }
    for (int tries = 1; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || tries >= LOCK_TRIES) {
            snprintf(why, bytes, "%s: cannot be locked: %s", name, strerror(errno));
            (void)close(fd);
            return -1;
        }
        (void)nanosleep(&(struct timespec){ .tv_nsec = LOCK_PAUSE_NS }, NULL);
    }
    return fd;
}

/* Does anybody answer there? *pid: who. */
static bool answers(const char *path, int *pid)
{
    struct sockaddr_un address;
    struct ucred holder = { .pid = 0 };
    socklen_t size = sizeof holder;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true; /* nothing is proven */
    address_of(path, &address);
    bool refused = connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 &&
                   errno == ECONNREFUSED;
    if (!refused)
        (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &size);
    (void)close(fd);
    *pid = (int)holder.pid;
    return !refused;
}

/* True: the path is free now. */
static bool clear_path(const char *path, char *why, size_t bytes)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        if (errno == ENOENT)
            return true;
        snprintf(why, bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(why, bytes, "%s is there and is not a socket: remove it, or name another path",
                 path);
        return false;
    }
    int pid = 0;
    /* A broker that is dying may have let go of its lock and not yet of its socket. */
    for (int tries = 1; answers(path, &pid); tries++) {
        if (tries >= LOCK_TRIES) {
            snprintf(why, bytes, "%s is in use by another broker, pid %d", path, pid);
            return false;
        }
        (void)nanosleep(&(struct timespec){ .tv_nsec = LOCK_PAUSE_NS }, NULL);
    }
    if (unlink(path) != 0 && errno != ENOENT) {
        snprintf(why, bytes, "%s: a stale socket that cannot be removed: %s", path,
                 strerror(errno));
        return false;
    }
    return true;
}

static int bind_and_listen(struct pawl_listener *out, char *why, size_t bytes)
{
    struct sockaddr_un address;
    address_of(out->path, &address);
    struct stat st;
    /* The new name gets the mode of the socket's own inode less the umask: so it is never wider
     * than 0660, whatever the umask of the program that embeds us; and then as wide. */
    if (fchmod(out->fd, 0660) != 0 ||
        bind(out->fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        fchmodat(AT_FDCWD, out->path, 0660, AT_SYMLINK_NOFOLLOW) != 0 ||
        lstat(out->path, &st) != 0) {
        snprintf(why, bytes, "%s: cannot be bound: %s", out->path, strerror(errno));
        return -1;
    }
    out->device = st.st_dev;
    out->inode = st.st_ino;
    if (listen(out->fd, BACKLOG) != 0) {
        snprintf(why, bytes, "%s: listen: %s", out->path, strerror(errno));
        (void)unlink(out->path);
        return -1;
    }
    return 0;
}

int pawl_listener_open(const char *path, struct pawl_listener *out, char *why, size_t bytes)
{
    memset(out, 0, sizeof *out);
    out->fd = -1;
    size_t n = strlen(path);
    if (n == 0 || n > PAWL_SOCKET_PATH_BYTES_MAX) {
        snprintf(why, bytes,
                 "the socket path has %zu bytes, at most %u are possible: use --socket with a "
                 "shorter one",
                 n, PAWL_SOCKET_PATH_BYTES_MAX);
        return -1;
    }
    memcpy(out->path, path, n);
    int lock = lock_parent(path, why, bytes);
    if (lock < 0)
        return -1;
    int rc = -1;
    if (clear_path(path, why, bytes)) {
        out->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (out->fd < 0)
            snprintf(why, bytes, "socket: %s", strerror(errno));
        else
            rc = bind_and_listen(out, why, bytes);
    }
    if (rc != 0 && out->fd >= 0) {
        (void)close(out->fd);
        out->fd = -1;
    }
    (void)close(lock);
    return rc;
}

void pawl_listener_close(struct pawl_listener *listener, int unlink_name)
{
    if (listener->fd < 0)
        return;
    struct stat st;
    /* Before the close, while nobody can find the name stale and take it over. */
    if (unlink_name && lstat(listener->path, &st) == 0 && st.st_dev == listener->device &&
        st.st_ino == listener->inode)
        (void)unlink(listener->path);
    (void)close(listener->fd);
    listener->fd = -1;
}
