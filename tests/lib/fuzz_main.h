/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_LIB_FUZZ_MAIN_H
#define PAWL_TESTS_LIB_FUZZ_MAIN_H

/* The main program of a fuzz target that is built without libFuzzer: replays the files and folders
 * that it is given, else its corpus (tests/fuzz/corpus/NAME), then `count` random inputs from
 * PAWL_SEED. */

#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"

#define FUZZ_INPUT_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* 0; 1: the corpus cannot be read or is empty. */
int fuzz_main(int argc, char **argv, const char *name, unsigned count,
              void (*random_input)(struct pawl_prng *prng, uint8_t *data, size_t *size));

#endif
