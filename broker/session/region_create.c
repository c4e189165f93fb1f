/* SPDX-License-Identifier: MIT */
#include "session/region_create.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int memory_file(enum pawl_region_kind kind)
{
    const char *name = kind == PAWL_REGION_SUB ? "pawl-submission" : "pawl-completion";
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    /* Kernels before 6.3 do not know the last flag; the retry must not lose the one before. */
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

int pawl_region_create(enum pawl_region_kind kind, uint64_t data_bytes, int *out,
                       struct pawl_region *region)
{
    uint64_t bytes = pawl_region_file_bytes(data_bytes);
    *out = -1;
    int fd = memory_file(kind);
    if (fd < 0)
        return fd;
    int rc = 0;
    if (ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0) {
        rc = -errno;
        goto fail;
    }
    /* Our writable mapping comes before the seal that forbids any new one (M5). */
    unsigned flags = PAWL_REGION_POPULATE | (kind == PAWL_REGION_COMP ? PAWL_REGION_WRITE : 0);
    rc = pawl_region_map(fd, data_bytes, flags, region);
    if (rc != 0)
        goto fail;
#ifdef PAWL_BUG_SEAL_OMITTED
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#else
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
                (kind == PAWL_REGION_COMP ? F_SEAL_FUTURE_WRITE : 0);
#endif
    if (fcntl(fd, F_ADD_SEALS, seals) != 0) {
        rc = -errno;
        goto unmap;
    }
    rc = pawl_region_verify(fd, kind, data_bytes);
    if (rc != 0)
        goto unmap;
    *out = fd;
    return 0;

unmap:
    pawl_region_unmap(region);
fail:
    (void)close(fd);
    return rc;
}
