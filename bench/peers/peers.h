/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_PEERS_H
#define PAWL_BENCH_PEERS_H

/* What the drivers share. Each measures every peer in turn with pawl, `repeats` times. */

#include <stdio.h>

#include "../bench.h"
#include "peer.h"

extern const struct bench *peer_bench; /* of this run */

/* hop.c, queue.c: measure all whose name holds b->only; the table as Markdown to `to`. */
void peers_hops(const struct bench *b, FILE *to);
void peers_queues(const struct bench *b, FILE *to);

/* A directory of its own below the run's, which other users may enter. */
void peers_dir(const struct bench *b, char *out, size_t bytes);
void peers_slug(const char *name, char *out, size_t bytes); /* for names of cases */
/* A figure of a table: three digits, and k or M. */
const char *peers_figure(double v, char out[16]);

#endif
