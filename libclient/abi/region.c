/* SPDX-License-Identifier: MIT */
#include "abi/region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/bits.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static size_t mapped_bytes(uint64_t data_bytes)
{
    return (size_t)(PAWL_REGION_HEADER_BYTES + 2 * data_bytes);
}

int pawl_region_verify(int fd, enum pawl_region_kind kind, uint64_t data_bytes)
{
    int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (kind == PAWL_REGION_COMP)
        want |= F_SEAL_FUTURE_WRITE;
    int have = fcntl(fd, F_GET_SEALS);
    if (have < 0)
        return -errno;
#ifndef PAWL_BUG_SEAL_UNCHECKED
    if ((have & want) != want)
        return -EPERM;
#endif
    /* After the seals: a size that can still change proves nothing. */
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    if ((uint64_t)st.st_size != pawl_region_file_bytes(data_bytes))
        return -EBADMSG;
    return 0;
}

int pawl_region_map(int fd, uint64_t data_bytes, unsigned flags, struct pawl_region *out)
{
    memset(out, 0, sizeof *out);
    if (!pawl_is_pow2(data_bytes) || data_bytes < PAWL_RING_BYTES_MIN ||
        data_bytes > PAWL_RING_BYTES_MAX)
        return -EINVAL;
    size_t bytes = mapped_bytes(data_bytes);
    size_t first = (size_t)pawl_region_file_bytes(data_bytes);
    int protection = PROT_READ | ((flags & PAWL_REGION_WRITE) ? PROT_WRITE : 0);
    int how = MAP_SHARED | MAP_FIXED | ((flags & PAWL_REGION_POPULATE) ? MAP_POPULATE : 0);

    /* One reservation, then both halves over it: nothing else can slip in between. */
    uint8_t *base =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    if (mmap(base, first, protection, how, fd, 0) == MAP_FAILED ||
        mmap(base + first, (size_t)data_bytes, protection, how, fd, PAWL_REGION_HEADER_BYTES) ==
            MAP_FAILED ||
        madvise(base, bytes, MADV_DONTFORK) != 0 || madvise(base, bytes, MADV_DONTDUMP) != 0) {
        int error = errno;
        (void)munmap(base, bytes);
        return -error;
    }
    out->header = base;
    out->data = base + PAWL_REGION_HEADER_BYTES;
    out->data_bytes = data_bytes;
    return 0;
}

void pawl_region_unmap(struct pawl_region *region)
{
    if (region->header)
        (void)munmap(region->header, mapped_bytes(region->data_bytes));
    memset(region, 0, sizeof *region);
}
