/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CLIENT_HEADERS_H
#define PAWL_CLIENT_HEADERS_H

/* Headers of a message: u8 bytes of the name (1..255), u16 little endian bytes of the value, name,
 * value, one after the other (abi/command.h). Each is followed by a NUL inside its count, so that a
 * receiver can hand out C strings where they lie. Tests: unit/client_codec_test. */

#include <stddef.h>
#include <stdint.h>

#include "pawl.h"

/* Bytes of all headers, encoded; -1: a name or value is NULL, empty, or too long, or all are. */
int pawl_headers_bytes(const struct pawl_header *headers, uint32_t count);
/* Writes exactly that many. Requires that pawl_headers_bytes() accepted them. */
void pawl_headers_encode(const struct pawl_header *headers, uint32_t count, uint8_t *out);
/* The i-th of an encoded row: 1 found, 0 past the last, -1 the row makes no sense. */
int pawl_headers_at(const uint8_t *headers, size_t bytes, uint32_t i, struct pawl_header *out);

#endif
