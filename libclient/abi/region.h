/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_REGION_H
#define PAWL_ABI_REGION_H

/* Mapping of one shared region of a lane (abi/layout.h): a header page, then a data area that is
 * mapped twice in a row, so that a record is contiguous wherever it begins.
 *
 *   address    header              header + 4096          + data_bytes           + data_bytes
 *              ├─ header page ─────┼─ data ───────────────┼─ the same data again ┤
 *   file       0                   4096                   4096
 *
 * Both processes use it. The broker makes the memfd (session/region_create.h) and maps before it
 * sends; the client verifies what it got before it maps. Neither mapping is inherited by a forked
 * child (MADV_DONTFORK: a child that touches a lane faults instead of corrupting it; the library
 * answers E_FORKED before it comes to that) nor written into a core dump (P9).
 *
 * Needs pages of 4 KiB, since the data area begins at offset 4096 of the file; elsewhere map
 * answers -EINVAL. Tests: unit/region_test. */

#include <stddef.h>
#include <stdint.h>

#include "abi/layout.h"

struct pawl_region {
    void *header;        /* struct pawl_sub_shm or pawl_comp_shm; NULL: not mapped */
    uint8_t *data;       /* header + PAWL_REGION_HEADER_BYTES */
    uint64_t data_bytes; /* of the area once; 2 * data_bytes are readable */
};

#define PAWL_REGION_WRITE 1u    /* else read-only */
#define PAWL_REGION_POPULATE 2u /* fault all pages in now: a page fault costs 1.4 us later */

/* Bytes of the file behind a region. */
static inline uint64_t pawl_region_file_bytes(uint64_t data_bytes)
{
    return PAWL_REGION_HEADER_BYTES + data_bytes;
}

/* Seals that a client must find. SUB: it writes itself, but the size is fixed. COMP: besides nobody
 * but the broker can ever write it (M5). */
enum pawl_region_kind { PAWL_REGION_SUB, PAWL_REGION_COMP };

/* Checks a memfd that came from the other side: its size is that of data_bytes exactly and all the
 * seals of its kind are on it. Returns 0; -EPERM: a seal is missing; -EBADMSG: another size;
 * -errno: not a memfd, .... Does not block. */
int pawl_region_verify(int fd, enum pawl_region_kind kind, uint64_t data_bytes)
    __attribute__((warn_unused_result));

/* Maps the region behind fd. Requires data_bytes a power of two within PAWL_RING_BYTES_MIN..MAX;
 * -EINVAL otherwise. Returns 0, or -errno with *out zeroed and nothing mapped. The descriptor may
 * be closed afterwards. */
int pawl_region_map(int fd, uint64_t data_bytes, unsigned flags, struct pawl_region *out)
    __attribute__((warn_unused_result));

/* Undoes map; allowed on a region that is not mapped. */
void pawl_region_unmap(struct pawl_region *region);

#endif
