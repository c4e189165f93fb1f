/* SPDX-License-Identifier: MIT */
/* The blocking calls on files, shared by the kinds that use the real system. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/op.h"

#define RETRIES 32
#define PAGE 4096u

/* What O_DIRECT asks of this file is more than a page, or it cannot be had after all. */
static bool direct_is_too_strict(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 && (st.stx_mask & STATX_DIOALIGN))
        return st.stx_dio_offset_align == 0 || st.stx_dio_offset_align > PAGE ||
               st.stx_dio_mem_align > PAGE;
#endif
    return false; /* not told: 4,096 fits all but the oddest */
}

int pawl_file_check(int fd, bool *is_direct)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (!*is_direct || !direct_is_too_strict(fd))
        return 0;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_DIRECT) < 0)
        return -errno;
    *is_direct = false;
    return 0;
}

int pawl_file_open(struct pawl_io *io, int dir, const char *name, int flags, unsigned mode,
                   bool direct, bool *is_direct)
{
    /* A pipe or device planted under our name must not block the start (P4). */
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
        return S_ISLNK(st.st_mode) ? -ELOOP : -EINVAL;
    flags |= O_CLOEXEC | O_NOFOLLOW;
    int fd = -1;
    *is_direct = false;
    if (direct) {
        fd = openat(dir, name, flags | O_DIRECT, mode);
        if (fd < 0 && errno != EINVAL)
            return -errno;
        *is_direct = fd >= 0;
    }
    if (fd < 0)
        fd = openat(dir, name, flags, mode);
    if (fd < 0)
        return -errno;
    int rc = pawl_file_check(fd, is_direct);
    if (rc) {
        close(fd);
        return rc;
    }
    return fd;
}

void pawl_file_close(struct pawl_io *io, int fd)
{
    /* What close could report concerns unflushed writes, and whatever counts was flushed. */
    (void)close(fd);
}

int64_t pawl_file_read(struct pawl_io *io, int fd, void *buffer, size_t bytes, uint64_t offset)
{
    size_t have = 0;
    int tries = 0;
    while (have < bytes) {
        ssize_t n = pread(fd, (uint8_t *)buffer + have, bytes - have, (off_t)(offset + have));
        if (n < 0) {
            if ((errno == EINTR || errno == EAGAIN) && ++tries <= RETRIES)
                continue;
            return -errno;
        }
        have += (size_t)n;
        /* The end of the file; a direct read could not go on from an odd place. */
        if (n == 0 || n % 512 != 0)
            break;
    }
    return (int64_t)have;
}

int64_t pawl_file_size(struct pawl_io *io, int fd)
{
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : (int64_t)st.st_size;
}

int pawl_file_flush(struct pawl_io *io, int fd)
{
    int rc, tries = 0;
    do
        rc = fsync(fd);
    while (rc < 0 && errno == EINTR && ++tries <= RETRIES);
    if (rc < 0)
        return -errno;
    /* So that what is read next comes from the disk, where the file is not open directly (S2). Only
     * advice: a directory or a file system without it refuses, and nothing is lost by that. */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

int pawl_file_rename(struct pawl_io *io, int dir, const char *from, const char *to)
{
    return renameat(dir, from, dir, to) < 0 ? -errno : 0;
}

int pawl_file_unlink(struct pawl_io *io, int dir, const char *name)
{
    return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}

int pawl_file_list(struct pawl_io *io, int dir, int (*each)(void *ctx, const char *name), void *ctx)
{
    /* Not a dup: that would share the read position with the caller's descriptor. */
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *d = fdopendir(fd);
    if (!d) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    int rc = 0;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            rc = -errno;
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        rc = each(ctx, e->d_name);
        if (rc)
            break;
    }
    closedir(d);
    return rc;
}
