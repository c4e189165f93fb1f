/* SPDX-License-Identifier: MIT */
#include "session/direct_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define HOLDERS_AT 4096
#define NAME_BYTES 17

int pawl_direct_memory_make(uint64_t bytes)
{
    int fd = memfd_create("pawl-direct", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    /* Kernels before 6.3 do not know the last flag. */
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("pawl-direct", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int have;
    if (ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        int error = errno;
        (void)close(fd);
        return -error;
    }
    have = fcntl(fd, F_GET_SEALS);
    if (have < 0 || (have & SEALS) != SEALS) {
        (void)close(fd);
        return -EPERM;
    }
    return fd;
}

int pawl_direct_memory_identify(int fd, struct pawl_direct_facts *facts)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    facts->device = st.st_dev;
    facts->inode = st.st_ino;
    return 0;
}

int pawl_direct_memory_prove(int fd, const struct pawl_direct_facts *facts)
{
    struct stat st;
    int have = fcntl(fd, F_GET_SEALS);
    if (have < 0)
        return -EBADF;
#ifndef PAWL_BUG_DIRECT_TAKES_ANY
    if ((have & SEALS) != SEALS)
        return -EPERM;
#endif
    if (fstat(fd, &st) != 0)
        return -EBADF;
    int how = fcntl(fd, F_GETFL);
    if (how < 0 || (how & O_ACCMODE) != O_RDWR)
        return -EPERM;
#ifndef PAWL_BUG_DIRECT_TAKES_ANY
    if (st.st_dev != facts->device || st.st_ino != facts->inode)
        return -EBADMSG;
#endif
    return (uint64_t)st.st_size == facts->bytes ? 0 : -EBADMSG;
}

void *pawl_direct_memory_map(int fd, uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (madvise(p, bytes, MADV_DONTFORK) != 0 || madvise(p, bytes, MADV_DONTDUMP) != 0) {
        (void)munmap(p, bytes);
        return NULL;
    }
    return p;
}

bool pawl_direct_memory_whole(int fd, uint64_t bytes)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (uint64_t)st.st_blocks * 512 >= bytes;
}

/* --- facts ----------------------------------------------------------------------------------- */

static void name_of(uint64_t id, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016llx", (unsigned long long)id);
}

int pawl_direct_facts_open(int dir, uint64_t id, bool create, int *fd)
{
    char name[NAME_BYTES];
    name_of(id, name);
    *fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
    return *fd < 0 ? -errno : 0;
}

static uint64_t check_of(const struct pawl_direct_facts *f)
{
    return pawl_hash64(f, offsetof(struct pawl_direct_facts, check), PAWL_DIRECT_FACTS_MAGIC);
}

int pawl_direct_facts_write(int fd, struct pawl_direct_facts *facts)
{
    facts->magic = PAWL_DIRECT_FACTS_MAGIC;
    facts->check = check_of(facts);
    /* The holders of what was before go first: none of them is one of the new memory. */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, facts, sizeof *facts, 0) != (ssize_t)sizeof *facts)
        return errno ? -errno : -EIO;
    return 0;
}

bool pawl_direct_facts_read(int fd, uint64_t id, const uint8_t boot_id[16],
                            struct pawl_direct_facts *out)
{
    static const uint8_t none[16];
    return pread(fd, out, sizeof *out, 0) == (ssize_t)sizeof *out &&
           out->magic == PAWL_DIRECT_FACTS_MAGIC && out->check == check_of(out) && out->id == id &&
           memcmp(boot_id, none, sizeof none) != 0 &&
           memcmp(out->boot_id, boot_id, sizeof none) == 0;
}

static uint32_t holder_check(const struct pawl_direct_holder *h)
{
    return (uint32_t)pawl_hash64(h, offsetof(struct pawl_direct_holder, check), 1);
}

int pawl_direct_holder_write(int fd, uint32_t lane, uint32_t pid, uint64_t start_time)
{
    struct pawl_direct_holder h = { .pid = pid, .start_time = start_time };
    h.check = holder_check(&h);
    off_t at = HOLDERS_AT + (off_t)(lane - 1) * (off_t)sizeof h;
    return pwrite(fd, &h, sizeof h, at) == (ssize_t)sizeof h ? 0 : errno ? -errno : -EIO;
}

int pawl_direct_holders_read(int fd, struct pawl_direct_holder *out, uint32_t count)
{
    memset(out, 0, count * sizeof *out);
    if (pread(fd, out, count * sizeof *out, HOLDERS_AT) < 0)
        return -errno;
    for (uint32_t i = 0; i < count; i++)
        if (out[i].check != holder_check(&out[i]))
            out[i] = (struct pawl_direct_holder){ 0 };
    return 0;
}

void pawl_direct_facts_remove(int dir, uint64_t id)
{
    char name[NAME_BYTES];
    name_of(id, name);
    (void)unlinkat(dir, name, 0);
}

void pawl_direct_facts_sweep(int dir, bool (*keep)(void *ctx, uint64_t id), void *ctx)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char name[NAME_BYTES], *end;
        uint64_t id = strtoull(e->d_name, &end, 16);
        name_of(id, name);
        if (*end == '\0' && strcmp(name, e->d_name) == 0 && !keep(ctx, id))
            (void)unlinkat(dir, e->d_name, 0);
    }
    (void)closedir(d);
}
