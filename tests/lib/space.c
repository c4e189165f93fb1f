/* SPDX-License-Identifier: MIT */
#include "lib/space.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"

int space_run(const char *const argv[])
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        harness_fail("fork: %s", strerror(errno));
    if (pid == 0) {
        setenv("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", 1);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            harness_fail("waitpid: %s", strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static struct {
    pid_t owner;
    char *dirs[16];
    unsigned count;
} mounted;

/* Before the harness removes its directories. */
static void unmount_all(void)
{
    if (getpid() != mounted.owner)
        return;
    while (mounted.count > 0)
        (void)umount2(mounted.dirs[--mounted.count], MNT_DETACH); /* gone already: fine */
}

static void remember(const char *dir)
{
    if (mounted.count == sizeof mounted.dirs / sizeof mounted.dirs[0])
        harness_fail("too many mounts");
    mounted.dirs[mounted.count++] = harness_text("%s", dir);
}

void space_private(void)
{
    mounted.owner = getpid();
    atexit(unmount_all);
    if (unshare(CLONE_NEWNS) != 0)
        harness_skip("no mount namespace of its own (%s): run it as root", strerror(errno));
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        harness_skip("mounts cannot be made private: %s", strerror(errno));
}

void space_tmpfs(const char *dir, uint64_t bytes)
{
    char options[64];
    snprintf(options, sizeof options, "size=%llu", (unsigned long long)bytes);
    if (mount("none", dir, "tmpfs", 0, options) != 0)
        harness_skip("mount tmpfs on %s: %s", dir, strerror(errno));
    remember(dir);
}

void space_tmpfs_resize(const char *dir, uint64_t bytes)
{
    char options[64];
    snprintf(options, sizeof options, "size=%llu", (unsigned long long)bytes);
    if (mount("none", dir, "tmpfs", MS_REMOUNT, options) != 0)
        harness_fail("remount %s: %s", dir, strerror(errno));
}

void space_ext4(const char *dir, const char *image, uint64_t bytes)
{
    struct stat st;
    if (stat(image, &st) != 0) {
        int fd = open(image, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
            harness_fail("%s: %s", image, strerror(errno));
        /* Without a journal, which a failing disk would stop for good. In blocks of a page: of a
         * write that succeeds in part the loop driver says that it succeeded, so what fails must
         * fail from its first page. */
        const char *mkfs[] = { "mkfs.ext4",    "-b", "4096",
                               "-q",           "-F", "-O",
                               "^has_journal", "-E", "nodiscard,lazy_itable_init=0",
                               image,          NULL };
        int rc = space_run(mkfs);
        if (rc != 0)
            harness_skip("mkfs.ext4 ended with %d (package e2fsprogs)", rc);
        /* With all its blocks, so that only what space_break() takes from it can be missing. */
        if (fallocate(fd, 0, 0, (off_t)bytes) != 0)
            harness_fail("%s: %s", image, strerror(errno));
        close(fd);
    }
    const char *argv[] = { "mount", "-o", "loop,nodiscard", image, dir, NULL };
    int rc = space_run(argv);
    if (rc != 0)
        harness_skip("mount -o loop ended with %d: no loop device here", rc);
    remember(dir);
}

void space_unmount(const char *dir)
{
    if (umount(dir) != 0)
        harness_fail("umount %s: %s", dir, strerror(errno));
}

void space_fsck(const char *image)
{
    const char *argv[] = { "e2fsck", "-f", "-y", image, NULL };
    int rc = space_run(argv);
    if (rc > 2)
        harness_fail("e2fsck ended with %d", rc);
}

static void ballast(const char *dir, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/ballast", dir);
}

void space_fill(const char *dir)
{
    static char block[65536];
    char path[400];
    ballast(dir, path, sizeof path);
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        harness_fail("%s: %s", path, strerror(errno));
    for (size_t step = sizeof block; step >= 512;) {
        ssize_t n = write(fd, block, step);
        if (n <= 0 && errno == ENOSPC)
            step /= 2;
        else if (n <= 0)
            harness_fail("%s: %s", path, strerror(errno));
    }
    fsync(fd);
    close(fd);
}

void space_free(const char *dir)
{
    char path[400];
    ballast(dir, path, sizeof path);
    if (unlink(path) != 0)
        harness_fail("%s: %s", path, strerror(errno));
}

void space_break(const char *file, const char *image)
{
    enum { EXTENTS = 64 };
    char top[400];
    struct fiemap *m = calloc(1, sizeof *m + EXTENTS * sizeof(struct fiemap_extent));
    if (m == NULL)
        harness_fail("no memory");
    m->fm_length = FIEMAP_MAX_OFFSET;
    m->fm_flags = FIEMAP_FLAG_SYNC;
    m->fm_extent_count = EXTENTS;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, FS_IOC_FIEMAP, m) != 0)
        harness_fail("extents of %s: %s", file, strerror(errno));
    close(fd);
    int img = open(image, O_RDWR | O_CLOEXEC);
    if (img < 0 || m->fm_mapped_extents == 0)
        harness_fail("%s: %s", image, strerror(errno));
    for (unsigned i = 0; i < m->fm_mapped_extents; i++) {
        const struct fiemap_extent *e = &m->fm_extents[i];
        if (fallocate(img, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)e->fe_physical,
                      (off_t)e->fe_length) != 0)
            harness_fail("punch %s: %s", image, strerror(errno));
    }
    close(img);
    free(m);
    snprintf(top, sizeof top, "%s", image);
    *strrchr(top, '/') = '\0';
    space_fill(top);
}
