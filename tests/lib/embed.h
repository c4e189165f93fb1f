/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_EMBED_H
#define PAWL_TESTS_EMBED_H

/* A broker in a thread of the test program, for tests whose both sides the thread sanitizer should
 * see. Ends the program on failure. */

#include <pthread.h>

#include "pawld.h"

struct embed {
    struct pawld *broker;
    pthread_t thread;
    int result;
    char why[PAWLD_TEXT_BYTES];
};

/* dir must be set; small segments unless options says otherwise. */
void embed_start(struct embed *e, struct pawld_options options);
void embed_stop(struct embed *e); /* it must end with PAWLD_OK */

#endif
