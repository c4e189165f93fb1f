/* SPDX-License-Identifier: MIT */
/* doctor: the directory, the file system under it, and how fast that is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "doctor.h"
#include "units.h"

#define PAGE 4096u
#define FLUSHES 15u
#define SPACE_BAD (256ull << 20)
#define SPACE_WARN (1ull << 30)

struct kind {
    unsigned long magic;
    const char *name, *warning, *cure;
};

static const struct kind kinds[] = {
    { 0xef53, "ext4", NULL, NULL },
    { 0x58465342, "xfs", NULL, NULL },
    { 0xf2f52010, "f2fs", NULL, NULL },
    { 0x9123683e, "btrfs", "copy on write makes each flush slower",
      "chattr +C on the empty log directory" },
    { 0x2fc12fc1, "zfs", "flushes go through its intent log", "a separate log device" },
    { 0x01021994, "tmpfs", "what is durable there ends with the next reboot",
      "a directory on a disk, but for tests" },
    { 0x858458f6, "ramfs", "what is durable there ends with the next reboot",
      "a directory on a disk, but for tests" },
    { 0x794c7630, "overlayfs", "the top layer of a container ends with the container",
      "a volume for the directory" },
    { 0x6969, "nfs", "a lock and a flush there are what the server makes of them",
      "a directory on a local disk" },
    { 0xff534d42, "cifs", "a lock and a flush there are what the server makes of them",
      "a directory on a local disk" },
    { 0x65735546, "fuse", "flushes are what its program makes of them",
      "a directory on a local disk" },
    { 0x01021997, "9p", "flushes are what the host makes of them", "a directory on a local disk" },
};

/* The directory, or the nearest above it that is there. */
static bool nearest_existing(const char *dir, char *path, size_t bytes)
{
    struct stat st;
    snprintf(path, bytes, "%s", dir);
    while (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return snprintf(path, bytes, ".") > 0;
        if (slash == path)
            return snprintf(path, bytes, "/") > 0;
        *slash = '\0';
    }
    return strcmp(path, dir) == 0;
}

static void check_owner(struct doctor *d, const char *path)
{
    struct stat st;
    char cure[PATH_MAX + 64];
    if (stat(path, &st) != 0)
        return;
    const struct passwd *user = getpwuid(st.st_uid);
    const char *name = user ? user->pw_name : "unknown";
    if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        snprintf(cure, sizeof cure, "chmod go-w %s", path);
        doctor_say(d, DOCTOR_BAD, "directory", cure, "%s may be written by others (%04o)", path,
                   (unsigned)(st.st_mode & 07777));
    } else if (st.st_uid != geteuid() && d->broker == 0) {
        snprintf(cure, sizeof cure, "start the broker as %s", name);
        doctor_say(d, DOCTOR_WARN, "directory", cure, "%s belongs to %s (uid %u), you are uid %u",
                   path, name, (unsigned)st.st_uid, (unsigned)geteuid());
    } else {
        doctor_say(d, DOCTOR_OK, "directory", NULL, "%s, of %s, %04o", path, name,
                   (unsigned)(st.st_mode & 07777));
    }
}

static void check_kind(struct doctor *d, const struct statfs *fs)
{
    for (size_t i = 0; i < PAWL_COUNT(kinds); i++)
        if (kinds[i].magic == (unsigned long)fs->f_type) {
            doctor_say(d, kinds[i].warning ? DOCTOR_WARN : DOCTOR_OK, "filesystem", kinds[i].cure,
                       "%s%s%s", kinds[i].name, kinds[i].warning ? ": " : "",
                       kinds[i].warning ? kinds[i].warning : "");
            return;
        }
    doctor_say(d, DOCTOR_OK, "filesystem", NULL, "type %#lx", (unsigned long)fs->f_type);
}

static void check_space(struct doctor *d, const struct statfs *fs)
{
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES];
    uint64_t free_bytes = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;
    uint64_t all = (uint64_t)fs->f_blocks * (uint64_t)fs->f_bsize;
    enum doctor_level level = free_bytes < SPACE_BAD    ? DOCTOR_BAD
                              : free_bytes < SPACE_WARN ? DOCTOR_WARN
                                                        : DOCTOR_OK;
    doctor_say(d, level, "space", level ? "free space, or give the broker a --max-log" : NULL,
               "%s free of %s; the log may take 8 GiB by default (--max-log)",
               cli_size_human(free_bytes, a), cli_size_human(all, b));
    if (fs->f_files > 0 && fs->f_ffree < 1024)
        doctor_say(d, DOCTOR_WARN, "inodes", "remove files", "%llu left",
                   (unsigned long long)fs->f_ffree);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Median of writes with flush of one page; 0: not possible, errno says why. */
static uint64_t flush_ns(int fd)
{
    uint64_t took[FLUSHES];
    void *page = NULL;
    if (posix_memalign(&page, PAGE, PAGE) != 0) {
        errno = ENOMEM;
        return 0;
    }
    memset(page, 0x55, PAGE);
    struct iovec v = { .iov_base = page, .iov_len = PAGE };
    for (unsigned i = 0; i < FLUSHES; i++) {
        uint64_t begin = pawl_clock_boot();
        if (pwritev2(fd, &v, 1, 0, RWF_DSYNC) != PAGE) {
            free(page);
            return 0;
        }
        took[i] = pawl_clock_boot() - begin;
    }
    free(page);
    qsort(took, FLUSHES, sizeof took[0], by_size);
    return took[FLUSHES / 2] ? took[FLUSHES / 2] : 1;
}

/* In a file without a name, which is gone when it is closed. */
static void check_direct(struct doctor *d, const char *path)
{
    char text[CLI_UNIT_TEXT_BYTES];
    bool direct = true;
    if (access(path, W_OK) != 0) {
        doctor_say(d, DOCTOR_OK, "O_DIRECT", NULL, "not tried: you may not write in %s", path);
        return;
    }
    int fd = open(path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EINVAL) {
        direct = false;
        fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    if (fd < 0) {
        doctor_say(d, DOCTOR_OK, "O_DIRECT", NULL, "not tried: nameless files: %s",
                   strerror(errno));
        return;
    }
    uint64_t ns = flush_ns(fd);
    int error = errno;
    close(fd);
    if (ns == 0)
        doctor_say(d, DOCTOR_BAD, "flush", "see the kernel's messages: dmesg",
                   "a write with flush in %s: %s", path, strerror(error));
    else if (!direct)
        doctor_say(d, DOCTOR_WARN, "O_DIRECT", "ext4 or xfs on a disk",
                   "not on this file system: buffered writes, the same promises; a flush takes %s",
                   cli_duration_human(ns, text));
    else
        doctor_say(d, DOCTOR_OK, "O_DIRECT", NULL, "works; a write with flush takes %s",
                   cli_duration_human(ns, text));
}

static void check_log(struct doctor *d)
{
    char path[PATH_MAX], text[CLI_UNIT_TEXT_BYTES];
    uint64_t bytes = 0;
    unsigned files = 0;
    snprintf(path, sizeof path, "%s/log", d->dir);
    DIR *dir = opendir(path);
    if (!dir) {
        if (errno == ENOENT)
            doctor_say(d, DOCTOR_OK, "log", NULL, "none yet: the first start makes it");
        else
            doctor_say(d, DOCTOR_OK, "log", NULL, "not looked at: %s", strerror(errno));
        return;
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct stat st;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        files++;
        bytes += (uint64_t)st.st_blocks * 512;
    }
    closedir(dir);
    doctor_say(d, DOCTOR_OK, "log", NULL, "%u files, %s on disk; pawl log verify %s reads them",
               files, cli_size_human(bytes, text), d->dir);
}

void doctor_disk(struct doctor *doctor)
{
    char path[PATH_MAX];
    struct statfs fs;
    bool there = nearest_existing(doctor->dir, path, sizeof path);
    if (there)
        check_owner(doctor, path);
    else
        doctor_say(doctor, DOCTOR_OK, "directory", NULL, "%s is not there yet: pawld makes it",
                   doctor->dir);
    if (statfs(path, &fs) != 0) {
        doctor_say(doctor, DOCTOR_BAD, "filesystem", "look at it", "%s: %s", path, strerror(errno));
        return;
    }
    check_kind(doctor, &fs);
    check_space(doctor, &fs);
    check_direct(doctor, path);
    check_log(doctor);
}
