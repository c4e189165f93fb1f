/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_REGION_CREATE_H
#define PAWL_BROKER_REGION_CREATE_H

/* Makes the shared regions of a lane (abi/region.h maps them): memfds that are allocated whole
 * before anybody touches them (M1: memory that is not there is an error here, not a SIGBUS later),
 * mapped, sealed, and checked for their seals (M4). The submission region is mapped read-only: the
 * broker never writes what a client writes. */

#include "abi/region.h"

/* 0, or -errno with *fd = -1 and nothing left: -ENOMEM, -ENOSPC: memory ran out; -EMFILE; -EPERM:
 * the kernel did not keep a seal. The caller closes *fd once it has been sent, and unmaps. */
int pawl_region_create(enum pawl_region_kind kind, uint64_t data_bytes, int *fd,
                       struct pawl_region *region) __attribute__((warn_unused_result));

#endif
