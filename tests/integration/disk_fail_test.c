/* SPDX-License-Identifier: MIT */
/* A disk that fails for real: the broker's directory lies on an ext4 on a loop device whose backing
 * memory runs out under a segment of the log that was made, zeroed and flushed before, so that
 * writes to it fail and, once there is memory again, succeed (hazards S1, S2, 0). From the first
 * failure on nothing is acknowledged, the broker ends with 4, and what had been acknowledged is
 * there after it, read as the disk has it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/space.h"
#include "log/format.h"

#define MIB (1u << 20)
#define MESSAGES 60000

enum outcome { NOT_SENT, OPEN, ACKNOWLEDGED, REFUSED };
static uint8_t outcome[MESSAGES];
static pawl_ticket tickets[MESSAGES];

/* Made and never used: its first page says so. */
static bool is_unused(const char *path)
{
    struct pawl_log_top_rec top;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    harness_check(fd >= 0);
    ssize_t n = pread(fd, &top, sizeof top, 0);
    close(fd);
    return n == sizeof top && top.magic == PAWL_LOG_MAGIC_READY;
}

/* Breaks the segments that are made but not yet used. Returns how many. */
static unsigned break_what_comes_next(const char *dir, const char *image)
{
    char *names[256];
    unsigned count = 0, broken = 0;
    DIR *d = opendir(harness_text("%s/log", dir));
    harness_check(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL && count < 256;)
        if (strstr(e->d_name, ".seg") != NULL)
            names[count++] = harness_text("%s/log/%s", dir, e->d_name);
    closedir(d);
    for (unsigned i = 0; i < count; i++)
        if (is_unused(names[i])) {
            space_break(names[i], image);
            broken++;
        }
    return broken;
}

static uint32_t submit(struct pawl *lane, uint32_t next, uint32_t n)
{
    static uint8_t body[2000];
    for (uint32_t i = 0; i < n && next < MESSAGES; i++, next++) {
        memcpy(body, &next, sizeof next);
        if (pawl_submit_send(lane, "q", body, sizeof body, NULL, &tickets[next]) != PAWL_OK)
            return next;
        outcome[next] = OPEN;
    }
    return next;
}

/* Takes the answers that come; false once the broker is gone. */
static bool take(struct pawl *lane, uint32_t next, uint32_t least)
{
    struct pawl_answer a[256];
    int n = pawl_poll(lane, a, 256, least, 2 * PAWL_NS_S);
    for (int i = 0; i < n; i++) {
        uint32_t k = next;
        while (k-- > 0 && tickets[k] != a[i].ticket)
            ;
        harness_check(k < next && outcome[k] == OPEN);
        if (a[i].result == PAWL_OK)
            outcome[k] = ACKNOWLEDGED;
        else if (pawl_outcome_class(a[i].result) == PAWL_OUTCOME_NOT_APPLIED)
            outcome[k] = REFUSED; /* the disk cannot grow: said before the failure */
        else
            return false;
    }
    return n > 0;
}

static void everything_acknowledged_is_there(struct harness_broker *b, uint32_t next)
{
    static uint8_t seen[MESSAGES];
    struct pawl *lane = harness_open(b);
    uint32_t present = 0, extra = 0;
    for (;;) {
        struct pawl_message m;
        uint32_t k;
        int rc = pawl_receive(lane, "q", NULL, &m);
        if (rc == PAWL_OK_EMPTY)
            break;
        harness_check_rc(rc, PAWL_OK);
        memcpy(&k, m.body, sizeof k);
        harness_check(m.bytes == 2000 && k < next && seen[k]++ == 0);
        harness_check(outcome[k] == ACKNOWLEDGED || outcome[k] == OPEN);
        present += outcome[k] == ACKNOWLEDGED;
        extra += outcome[k] == OPEN;
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    uint32_t acknowledged = 0, open = 0;
    for (uint32_t k = 0; k < next; k++) {
        acknowledged += outcome[k] == ACKNOWLEDGED;
        open += outcome[k] == OPEN;
    }
    printf("%u acknowledged, %u of them there; %u without outcome, %u of them there\n",
           acknowledged, present, open, extra);
    harness_check(present == acknowledged && acknowledged > 0);
    pawl_close(lane);
}

int main(void)
{
    struct harness_broker b;
    harness_begin("disk_fail_test", 120);
    space_private();
    const char *backing = harness_dir(), *top = harness_dir();
    space_tmpfs(backing, 96 * MIB);
    const char *image = harness_text("%s/image", backing);
    space_ext4(top, image, 64 * MIB);
    const char *instance = harness_text("%s/d", top);
    harness_broker_init(&b, instance);
    harness_broker_start(&b);
    struct pawl_options o = PAWL_OPTIONS_INIT;
    o.timeout_ns = 2 * PAWL_NS_S;
    struct pawl *lane = harness_open_with(&b, &o);
    harness_queue(lane, "q", PAWL_DURABLE, 0);

    harness_step("a healthy disk");
    uint32_t next = submit(lane, 0, 1000);
    for (uint32_t k = 0; k < next; k++)
        while (outcome[k] == OPEN)
            harness_check(take(lane, next, 1));
    harness_step("its next segments break");
    unsigned broken = 0;
    while (broken == 0) {
        /* Stopped, so that it does not begin the very segment that is about to break; what it had
         * under way ends by itself. */
        harness_freeze(b.pid);
        uint64_t until = harness_clock() + 100 * PAWL_NS_MS;
        harness_until(harness_clock() > until);
        broken = break_what_comes_next(instance, image);
        harness_signal(b.pid, SIGCONT);
        if (broken > 0)
            break;
        next = submit(lane, next, 100);
        harness_check(take(lane, next, 100));
    }

    harness_step("sends until the end");
    pid_t pid = b.pid;
    while (next < MESSAGES) {
        next = submit(lane, next, 100);
        if (!take(lane, next, 1))
            break;
    }
    int rc = harness_wait(pid);
    b.pid = 0;
    if (rc != 4) {
        harness_broker_show(&b);
        harness_fail("after a failed write pawld ended with %d, not 4", rc);
    }
    harness_check(harness_broker_said(&b, "Input/output") || harness_broker_said(&b, "No space") ||
                  harness_broker_said(&b, "EIO") || harness_broker_said(&b, "ENOSPC"));
    /* Nothing more is acknowledged, whatever comes. */
    struct pawl_sent s;
    harness_check(pawl_outcome_class(pawl_send(lane, "q", "x", 1, NULL, &s)) !=
                  PAWL_OUTCOME_APPLIED);
    pawl_close(lane);

    harness_step("the disk is well again, caches and all");
    space_free(backing);
    int first = harness_broker_try(&b);
    if (first != 0) {
        /* ext4 itself may have given up; a repair as an operator would do it. */
        printf("the first start ended with %d; the file system is checked\n", first);
        harness_broker_show(&b);
        space_unmount(top);
        space_fsck(image);
        space_ext4(top, image, 64 * MIB);
        harness_broker_start(&b);
    }
    everything_acknowledged_is_there(&b, next);
    harness_broker_stop(&b);
    return 0;
}
