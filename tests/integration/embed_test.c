/* SPDX-License-Identifier: MIT */
/* libpawld inside a program: one thread of ours runs the broker, others are its clients; it says
 * why it does not start, counts what it does, and comes back on the same directory. */
#include "lib/embed.h"

#include <dirent.h>
#include <stdatomic.h>
#include <string.h>

#include "lib/harness.h"

/* The thread sanitizer begins a thread of its own when it likes: there the count says nothing. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZER_HAS_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_HAS_THREAD 1
#endif
#endif
#ifndef SANITIZER_HAS_THREAD
#define SANITIZER_HAS_THREAD 0
#endif

static atomic_uint lines;

static void listen(void *ctx, const char *line)
{
    harness_check(ctx == &lines && strchr(line, '\n') == NULL);
    atomic_fetch_add(&lines, 1);
}

static struct pawl *client_of(const char *dir)
{
    struct pawl_options o = PAWL_OPTIONS_INIT;
    struct pawl *lane = NULL;
    o.dir = dir;
    int rc = pawl_open(&o, &lane);
    if (rc != PAWL_OK)
        harness_fail("pawl_open: %s: %s", pawl_strname(rc), pawl_last_text(NULL));
    return lane;
}

/* Of ours: the kernel shows its io_uring workers there, too. */
static unsigned threads(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    harness_check(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char name[32] = "";
        FILE *f = fopen(harness_text("/proc/self/task/%s/comm", e->d_name), "r");
        if (f == NULL)
            continue;
        if (fgets(name, sizeof name, f) != NULL)
            n += strncmp(name, "iou-", 4) != 0;
        fclose(f);
    }
    closedir(d);
    return n;
}

static void lives(struct pawl *lane, const char *queue, int n)
{
    for (int i = 0; i < n; i++) {
        (void)harness_send(lane, queue, "inside");
        struct pawl_token t = harness_receive(lane, queue, 10 * PAWL_NS_S, "inside");
        harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    }
}

static void *nothing(void *arg) { return arg; }

static void one_broker_one_thread(const char *dir)
{
    struct embed e;
    struct pawld_options o = PAWLD_OPTIONS_INIT;
    struct pawld_stats s = { .size = sizeof s };
    harness_step("one thread");
    o.dir = dir;
    o.say = listen;
    o.say_ctx = &lines;
    /* A sanitizer may have one of its own from the first on. */
    pthread_t first;
    harness_check(pthread_create(&first, NULL, nothing, NULL) == 0);
    pthread_join(first, NULL);
    unsigned before = threads();
    embed_start(&e, o);
    struct pawl *lane = client_of(dir);
    harness_queue(lane, "q", PAWL_DURABLE, 0);
    lives(lane, "q", 100);
    struct pawl_broker_info info = { .size = sizeof info };
    harness_check_rc(pawl_info(lane, &info), PAWL_OK);
    /* The fallback has one more, for the disk. */
    unsigned want = before + (strcmp(info.io, "posix") == 0 ? 2 : 1);
    if (!SANITIZER_HAS_THREAD && threads() != want)
        harness_fail("%u threads, not %u (io %s)", threads(), want, info.io);
    (void)harness_send(lane, "q", "stays");
    pawl_close(lane);
    embed_stop(&e);
    harness_check(atomic_load(&lines) > 0);

    harness_step("again");
    int rc = pawld_create(&o, &e.broker, e.why);
    harness_check(rc == PAWLD_OK);
    pawld_stats(e.broker, &s); /* not running yet: ours to ask */
    harness_check(s.messages >= 1 && s.epoch > info.broker_epoch && s.recovered_records > 0);
    harness_check(strcmp(s.io, info.io) == 0);
    pawld_destroy(e.broker); /* without ever having run */
    embed_start(&e, o);
    lane = client_of(dir);
    struct pawl_token t = harness_receive(lane, "q", 0, "stays");
    harness_check_rc(pawl_ack(lane, &t, 0), PAWL_OK);
    pawl_close(lane);
    embed_stop(&e);
}

static void two_brokers_in_one_program(const char *dir, const char *other)
{
    struct embed a, b;
    struct pawld_options o = PAWLD_OPTIONS_INIT;
    harness_step("two");
    o.dir = dir;
    embed_start(&a, o);
    struct pawld *second = (struct pawld *)1;
    char why[PAWLD_TEXT_BYTES] = "";
    harness_check(pawld_create(&o, &second, why) == PAWLD_CANNOT_START);
    harness_check(second == NULL && strstr(why, dir) != NULL);
    harness_check(pawld_create(&o, &second, NULL) == PAWLD_CANNOT_START);
    o.dir = other;
    embed_start(&b, o);
    struct pawl *la = client_of(dir), *lb = client_of(other);
    harness_queue(la, "q", PAWL_DURABLE, 0);
    harness_queue(lb, "q", PAWL_MEMORY, 0);
    (void)harness_send(la, "q", "of a");
    lives(lb, "q", 50); /* sees nothing of a's */
    struct pawl_token t = harness_receive(la, "q", 0, "of a");
    harness_check_rc(pawl_ack(lb, &t, 0), PAWL_E_NOT_FOUND);
    harness_check_rc(pawl_ack(la, &t, 0), PAWL_OK);
    pawl_close(la);
    pawl_close(lb);
    embed_stop(&b);
    embed_stop(&a);
}

static void wrong_options_are_named(const char *dir)
{
    char why[PAWLD_TEXT_BYTES];
    struct pawld *b;
    struct pawld_options o = PAWLD_OPTIONS_INIT;
    harness_step("options");
    harness_check(pawld_create(&o, &b, why) == PAWLD_USAGE); /* no directory */
    o.dir = dir;
    o.segment_bytes = 3 << 20;
    harness_check(pawld_create(&o, &b, why) == PAWLD_USAGE && strstr(why, "segment") != NULL);
    o.segment_bytes = 0;
    o.memory_bytes = 1 << 20;
    harness_check(pawld_create(&o, &b, why) == PAWLD_USAGE && strstr(why, "memory") != NULL);
    o.memory_bytes = 0;
    o.blocks_in_flight = 9;
    harness_check(pawld_create(&o, &b, why) == PAWLD_USAGE);
    o.blocks_in_flight = 0;
    o.io = 99;
    harness_check(pawld_create(&o, &b, why) == PAWLD_USAGE);
    o.io = 0;
    o.dir = "/proc/no-such-place/d";
    harness_check(pawld_create(&o, &b, why) == PAWLD_CANNOT_START && strstr(why, o.dir) != NULL);
}

int main(void)
{
    char dir[200], other[200], third[200];
    harness_begin("embed_test", 60);
    snprintf(dir, sizeof dir, "%s/d", harness_dir());
    snprintf(other, sizeof other, "%s/d", harness_dir());
    snprintf(third, sizeof third, "%s/d", harness_dir());
    one_broker_one_thread(dir);
    two_brokers_in_one_program(dir, other);
    wrong_options_are_named(third);
    return 0;
}
