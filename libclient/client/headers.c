/* SPDX-License-Identifier: MIT */
#include "client/headers.h"

#include <string.h>

#define HEAD 3u

int pawl_headers_bytes(const struct pawl_header *headers, uint32_t count)
{
    uint64_t all = 0;
    if (count && !headers)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        if (!headers[i].name || !headers[i].value)
            return -1;
        size_t name = strlen(headers[i].name) + 1, value = strlen(headers[i].value) + 1;
        if (name < 2 || name > UINT8_MAX || value > UINT16_MAX)
            return -1;
        all += HEAD + name + value;
        if (all > PAWL_HEADERS_BYTES_MAX)
            return -1;
    }
    return (int)all;
}

void pawl_headers_encode(const struct pawl_header *headers, uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t name = strlen(headers[i].name) + 1, value = strlen(headers[i].value) + 1;
        out[0] = (uint8_t)name;
        out[1] = (uint8_t)value;
        out[2] = (uint8_t)(value >> 8);
        memcpy(out + HEAD, headers[i].name, name);
        memcpy(out + HEAD + name, headers[i].value, value);
        out += HEAD + name + value;
    }
}

int pawl_headers_at(const uint8_t *headers, size_t bytes, uint32_t i, struct pawl_header *out)
{
    while (bytes) {
        if (bytes < HEAD)
            return -1;
        size_t name = headers[0], value = headers[1] | (size_t)headers[2] << 8;
        if (name < 2 || value < 1 || name + value > bytes - HEAD || headers[HEAD + name - 1] != 0 ||
            headers[HEAD + name + value - 1] != 0)
            return -1;
        if (i-- == 0) {
            out->name = (const char *)headers + HEAD;
            out->value = (const char *)headers + HEAD + name;
            return 1;
        }
        headers += HEAD + name + value;
        bytes -= HEAD + name + value;
    }
    return 0;
}

int pawl_message_header(const struct pawl_message *message, uint32_t i, struct pawl_header *out)
{
    if (!message || !out)
        return PAWL_E_INVALID;
    int found = pawl_headers_at(message->headers, message->headers_bytes, i, out);
    if (found < 0)
        return PAWL_E_INVALID;
    return found ? PAWL_OK : PAWL_OK_EMPTY;
}
