/* SPDX-License-Identifier: MIT */
#include "lib/fuzz_main.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned inputs;

static int run_file(const char *path)
{
    static uint8_t data[FUZZ_INPUT_MAX];
    FILE *f = fopen(path, "rb");
    if (!f)
        return 1;
    size_t size = fread(data, 1, sizeof data, f);
    (void)fclose(f);
    inputs++;
    return LLVMFuzzerTestOneInput(data, size);
}

static int run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 1;
    if (!S_ISDIR(st.st_mode))
        return run_file(path);
    DIR *d = opendir(path);
    struct dirent *e;
    int rc = d ? 0 : 1;
    while (d && (e = readdir(d)) != NULL) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            rc |= run_file(name);
    }
    if (d)
        (void)closedir(d);
    return rc;
}

int fuzz_main(int argc, char **argv, const char *name, unsigned count,
              void (*random_input)(struct pawl_prng *prng, uint8_t *data, size_t *size))
{
    static uint8_t data[FUZZ_INPUT_MAX];
    char corpus[256];
    int rc = 0;
    alarm(300);
    for (int i = 1; i < argc; i++)
        rc |= run_path(argv[i]);
    snprintf(corpus, sizeof corpus, "tests/fuzz/corpus/%s", name);
    if (argc == 1)
        rc = run_path(corpus);
    if (rc != 0 || inputs == 0) {
        fprintf(stderr, "the corpus cannot be read\n");
        return 1;
    }
    const char *s = getenv("PAWL_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 0) : 1;
    struct pawl_prng prng = { seed };
    for (unsigned i = 0; i < count; i++) {
        size_t size;
        random_input(&prng, data, &size);
        (void)LLVMFuzzerTestOneInput(data, size);
    }
    printf("%u inputs of the corpus, %u random ones, seed %" PRIu64 "\n", inputs, count, seed);
    return 0;
}
