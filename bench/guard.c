/* SPDX-License-Identifier: MIT */
/* The guardian process: whatever happens to the worker, nothing is left behind. */
#include "bench.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The broker beside this program. */
void bench_find_pawld(struct bench *b)
{
    char self[BENCH_PATH_BYTES - 16];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        bench_fail("cannot find out where this program is");
    self[n] = 0;
    snprintf(b->pawld, sizeof(b->pawld), "%s/pawld", dirname(self));
}

/* Waits for the worker, a time-out or a signal; in every case nothing is left behind. */
static int guard(const struct bench *b, pid_t worker)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    int status = 1 << 8;
    /* The tests' word for a sanitizer's slowness. */
    const char *slow = getenv("PAWL_TEST_SLOW");
    const struct timespec limit = { .tv_sec = b->small ? 250 * (slow ? atoi(slow) : 1) : 6 * 3600 };
    for (;;) {
        int s = sigtimedwait(&set, NULL, &limit);
        if (s == SIGCHLD && waitpid(worker, &status, WNOHANG) == worker)
            break;
        if (s == SIGCHLD || (s < 0 && errno == EINTR))
            continue;
        fprintf(stderr, "pawl-bench: %s\n", s < 0 ? "hangs: killed after its time" : "stopped");
        kill(-worker, SIGKILL);
        kill(worker, SIGKILL);
        waitpid(worker, NULL, 0);
        break;
    }
    kill(-worker, SIGKILL);
    if (!WIFEXITED(status)) {
        fprintf(stderr, "pawl-bench: the worker ended by signal %d\n", WTERMSIG(status));
        return 1;
    }
    return WEXITSTATUS(status);
}

int bench_run(struct bench *b, const char *parent_dir, void (*work)(void *arg), void *arg)
{
    snprintf(b->dir, sizeof(b->dir), "%s/pawl-bench.XXXXXX", parent_dir);
    if (mkdtemp(b->dir) == NULL)
        bench_fail("cannot make a directory in %s: %s", parent_dir, strerror(errno));
    sigset_t set, was;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &was);
    pid_t worker = fork();
    if (worker < 0)
        bench_fail("cannot fork: %s", strerror(errno));
    if (worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, &was, NULL);
        setpgid(0, 0);
        work(arg);
        fflush(NULL);
        _exit(0);
    }
    int rc = guard(b, worker);
    bench_tree_remove(b->dir);
    return rc;
}
