/* SPDX-License-Identifier: MIT */
#include "session/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRIES 20
#define LOCK_PAUSE_NS 50000000L

/* The bytes of the i-th part of the path and all before it, from 1; 0: it has no more. */
static size_t prefix(const char *path, size_t i)
{
    size_t n = 0;
    while (i-- > 0) {
        n += strspn(path + n, "/");
        if (path[n] == '\0')
            return 0;
        n += strcspn(path + n, "/");
    }
    return n;
}

int pawl_directory_make_parents(const char *path, char *why, size_t bytes)
{
    char part[PATH_MAX];
    if (strlen(path) >= sizeof part) {
        snprintf(why, bytes, "%s: %s", path, strerror(ENAMETOOLONG));
        return -1;
    }
    for (size_t i = 1; prefix(path, i + 1) != 0; i++) {
        snprintf(part, sizeof part, "%.*s", (int)prefix(path, i), path);
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            snprintf(why, bytes, "%s: cannot be made: %s", part, strerror(errno));
            return -1;
        }
    }
    return 0;
}

/* The last part alone: a mistyped path is to be seen, not to become a new, empty instance
 * somewhere. */
static int make_last(const char *path, char *why, size_t bytes)
{
    struct stat st;
    char part[PATH_MAX];
    if (mkdir(path, 0750) == 0 || errno == EEXIST)
        return 0;
    int error = errno;
    for (size_t i = 1; error == ENOENT && prefix(path, i) != 0 && prefix(path, i) < PATH_MAX; i++) {
        snprintf(part, sizeof part, "%.*s", (int)prefix(path, i), path);
        if (stat(part, &st) == 0 || errno != ENOENT)
            continue;
        snprintf(why, bytes, "%s: cannot be made, as there is no %s: make it, or correct --dir",
                 path, part);
        return -1;
    }
    snprintf(why, bytes, "%s: cannot be made: %s", path, strerror(error));
    return -1;
}

/* Ours, and nobody else may write in it. */
static int check_owner(int fd, const char *path, char *why, size_t bytes)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        snprintf(why, bytes, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (st.st_uid != geteuid()) {
        snprintf(why, bytes, "%s belongs to uid %u and not to uid %u, who starts the broker", path,
                 (unsigned)st.st_uid, (unsigned)geteuid());
        return -1;
    }
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        snprintf(why, bytes, "%s may be written by others (mode %03o): chmod go-w %s", path,
                 (unsigned)(st.st_mode & 0777), path);
        return -1;
    }
    return 0;
}

static void say_holder(int fd, const char *path, char *why, size_t bytes)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    snprintf(why, bytes, "%s is in use by another broker, pid %s", path,
             text[0] ? text : "unknown");
}

static int lock_directory(int dir, const char *path, char *why, size_t bytes)
{
    /* O_NONBLOCK: a planted fifo must not stop us; it fails the test below. */
    int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, bytes, "%s/lock: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1) {
        snprintf(why, bytes, "%s/lock is not a plain file of its own: remove it", path);
        goto fail;
    }
    for (int tries = 1; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            snprintf(why, bytes, "%s/lock: flock: %s", path, strerror(errno));
            goto fail;
        }
        if (tries >= LOCK_TRIES) {
            say_holder(fd, path, why, bytes);
            goto fail;
        }
        (void)nanosleep(&(struct timespec){ .tv_nsec = LOCK_PAUSE_NS }, NULL);
    }
    char text[32];
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        /* Only words for people, and a full disk must not keep the broker from starting (L3). */
        (void)ftruncate(fd, 0);
    }
    return fd;

fail:
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static int open_log_directory(int dir, const char *path, char *why, size_t bytes)
{
    if (mkdirat(dir, "log", 0700) != 0 && errno != EEXIST) {
        snprintf(why, bytes, "%s/log: %s", path, strerror(errno));
        return -1;
    }
    int fd = openat(dir, "log", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        snprintf(why, bytes, "%s/log: %s", path, strerror(errno));
        return -1;
    }
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s/log", path);
    if (check_owner(fd, full, why, bytes) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int pawl_directory_open(const char *path, struct pawl_directory *out, char *why, size_t bytes)
{
    *out = (struct pawl_directory){ .fd = -1, .lock_fd = -1, .log_fd = -1 };
    if (make_last(path, why, bytes) != 0)
        return -1;
    out->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->fd < 0) {
        snprintf(why, bytes, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (check_owner(out->fd, path, why, bytes) != 0)
        goto fail;
    out->lock_fd = lock_directory(out->fd, path, why, bytes);
    if (out->lock_fd < 0)
        goto fail;
    out->log_fd = open_log_directory(out->fd, path, why, bytes);
    if (out->log_fd < 0)
        goto fail;
    return 0;

fail:
    pawl_directory_close(out);
    return -1;
}

void pawl_directory_close(struct pawl_directory *directory)
{
    if (directory->log_fd >= 0)
        (void)close(directory->log_fd);
    if (directory->lock_fd >= 0)
        (void)close(directory->lock_fd);
    if (directory->fd >= 0)
        (void)close(directory->fd);
    *directory = (struct pawl_directory){ .fd = -1, .lock_fd = -1, .log_fd = -1 };
}
