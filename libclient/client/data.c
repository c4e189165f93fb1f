/* SPDX-License-Identifier: MIT */
#include "client/data.h"

#include <stdlib.h>
#include <string.h>

#include "client/lane.h"

int pawl_data_prepare(struct pawl *lane)
{
    lane->data_bytes = 0;
    if (!lane->data)
        lane->data = malloc(PAWL_DATA_BYTES_MAX);
    return lane->data ? PAWL_OK : pawl_call_refuse(lane, PAWL_E_RESOURCE, "no memory");
}

bool pawl_data_size_valid(size_t size) { return size >= sizeof(size_t) && size <= 65536; }

void pawl_data_give(const void *from, size_t bytes, void *to, size_t size)
{
    size_t n = size < bytes ? size : bytes;
    memcpy(to, from, n);
    if (size > n)
        memset((char *)to + n, 0, size - n);
}
