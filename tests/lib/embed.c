/* SPDX-License-Identifier: MIT */
#include "lib/embed.h"

#include <string.h>

#include "lib/harness.h"

static void quiet(void *ctx, const char *line)
{
    (void)ctx;
    printf("pawld: %s\n", line);
}

static void *run(void *arg)
{
    struct embed *e = arg;
    pthread_setname_np(pthread_self(), "test-broker");
    e->result = pawld_run(e->broker);
    return NULL;
}

void embed_start(struct embed *e, struct pawld_options options)
{
    memset(e, 0, sizeof *e);
    if (options.segment_bytes == 0)
        options.segment_bytes = 1 << 20;
    if (options.say == NULL)
        options.say = quiet;
    int rc = pawld_create(&options, &e->broker, e->why);
    if (rc != PAWLD_OK)
        harness_fail("pawld_create: %d: %s", rc, e->why);
    rc = pthread_create(&e->thread, NULL, run, e);
    if (rc != 0)
        harness_fail("pthread_create: %s", strerror(rc));
}

void embed_stop(struct embed *e)
{
    pawld_stop(e->broker);
    pthread_join(e->thread, NULL);
    if (e->result != PAWLD_OK)
        harness_fail("the embedded broker ended with %d", e->result);
    pawld_destroy(e->broker);
}
