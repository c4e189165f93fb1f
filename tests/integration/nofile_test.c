/* SPDX-License-Identifier: MIT */
/* A broker with few descriptors and many clients turns the surplus away by name, keeps what its log
 * needs, and serves newcomers as soon as others have gone (hazards L2, M17, M23). */
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/raw.h"

enum { CLIENTS = 200 };

static int few_descriptors(void *ctx)
{
    struct rlimit r = { .rlim_cur = 64, .rlim_max = 64 };
    (void)ctx;
    return setrlimit(RLIMIT_NOFILE, &r);
}

int main(void)
{
    struct harness_broker b;
    int fds[CLIENTS];
    harness_begin("nofile_test", 120);
    harness_broker_init(&b, NULL);
    b.before_exec = few_descriptors;
    harness_broker_start(&b);
    struct pawl *lane = harness_open(&b);
    harness_queue(lane, "q", PAWL_DURABLE, 0);

    harness_step("flood");
    int let_in = 0, refused = 0, closed = 0;
    for (int i = 0; i < CLIENTS; i++) {
        struct pawl_attach_hello hello = raw_hello();
        struct pawl_attach_welcome w;
        fds[i] = raw_connect(&b);
        harness_check(fds[i] >= 0);
        /* Each is either served, or told why not, or closed: nobody is left hanging. */
        if (!raw_welcome(fds[i], &hello, sizeof hello, &w)) {
            closed++;
        } else if (w.result == PAWL_OK) {
            let_in++;
        } else {
            harness_check(w.result == PAWL_E_QUOTA || w.result == PAWL_E_RESOURCE);
            harness_check(w.text[0] != '\0');
            refused++;
        }
    }
    printf("64 descriptors, %d clients: %d let in, %d refused, %d closed\n", CLIENTS, let_in,
           refused, closed);
    harness_check(let_in > 0 && refused + closed > 0);

    harness_step("the log turns over meanwhile");
    static char body[50000];
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    for (int i = 0; i < 400; i++) { /* 20 MB: many segments of a test's size */
        struct pawl_message m;
        struct pawl_sent s;
        harness_check_rc(pawl_send(lane, "q", body, sizeof body, NULL, &s), PAWL_OK);
        harness_check_rc(pawl_receive(lane, "q", &options, &m), PAWL_OK);
        harness_check_rc(pawl_ack(lane, &m.token, 0), PAWL_OK);
    }
    harness_step("it does not spin");
    uint64_t cpu = harness_cpu_ns(b.pid), begin = harness_clock();
    harness_until(harness_clock() - begin > 500 * PAWL_NS_MS);
    cpu = harness_cpu_ns(b.pid) - cpu;
    printf("half a second at the limit cost %.1f ms of processor\n", (double)cpu / 1e6);
    harness_check(cpu < 250 * PAWL_NS_MS);

    harness_step("the next one");
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    struct pawl *other = harness_open(&b); /* waits, if need be, until those are gone */
    (void)harness_send(other, "q", "let in");
    pawl_close(other);
    pawl_close(lane);
    harness_broker_stop(&b);
    return 0;
}
