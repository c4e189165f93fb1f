/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CLIENT_DATA_H
#define PAWL_CLIENT_DATA_H

/* Answers with a body, and structs of callers who may be older or newer than this library. */

#include <stdbool.h>
#include <stddef.h>

struct pawl;

/* Makes room for the data of the next answer. OK or E_RESOURCE. */
int pawl_data_prepare(struct pawl *lane);
/* A size that a struct of a caller may have. */
bool pawl_data_size_valid(size_t size);
/* Copies what fits, zeroes what the library does not know. */
void pawl_data_give(const void *from, size_t bytes, void *to, size_t size);

#endif
