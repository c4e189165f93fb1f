/* SPDX-License-Identifier: MIT */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/atomic.h"

void bench_fail(const char *format, ...)
{
    va_list args;
    char text[1024];
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "pawl-bench: %s\n", text);
    fflush(NULL);
    _exit(1);
}

void *bench_share(size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        bench_fail("no memory: %s", strerror(errno));
    return p;
}

void bench_unshare(void *p, size_t bytes) { munmap(p, bytes); }

pid_t bench_spawn(int core, void (*run)(void *arg), void *arg)
{
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        bench_fail("cannot fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    bench_pin(core);
    run(arg);
    fflush(NULL);
    _exit(0);
}

void bench_join(pid_t pid, const char *what)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            bench_fail("%s: lost sight of it: %s", what, strerror(errno));
    if (WIFSIGNALED(status))
        bench_fail("%s ended by signal %d", what, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        bench_fail("%s ended with %d", what, WEXITSTATUS(status));
}

void bench_await(const uint32_t *word, uint32_t value, const char *what)
{
    uint64_t end = bench_now() + 60 * PAWL_NS_S;
    while (pawl_load_acq_u32(word) < value) {
        siginfo_t info = { .si_pid = 0 };
        /* Left to be reaped by whoever joins it; here only bad ends matter. */
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
            (info.si_code != CLD_EXITED || info.si_status != 0))
            bench_fail("%s: process %d ended badly", what, (int)info.si_pid);
        if (bench_now() > end)
            bench_fail("%s: a minute has passed (%u of %u)", what, pawl_load_acq_u32(word), value);
        bench_pause(200000);
    }
}

/* --- brokers --------------------------------------------------------------------------------- */

static void broker_exec(const struct bench *b, const struct bench_broker *br,
                        const struct bench_broker_options *o, int err)
{
    const char *argv[16 + BENCH_EXTRA_MAX];
    char spin[32];
    uint32_t n = 0;
    argv[n++] = b->pawld;
    argv[n++] = "--dir";
    argv[n++] = br->dir;
    if (o->spin_ns > 0) {
        snprintf(spin, sizeof(spin), "%lluus", (unsigned long long)(o->spin_ns / 1000));
        argv[n++] = "--spin";
        argv[n++] = spin;
    }
    if (o->memory != NULL) {
        argv[n++] = "--memory";
        argv[n++] = o->memory;
    }
    if (o->max_log != NULL) {
        argv[n++] = "--max-log";
        argv[n++] = o->max_log;
    }
    for (uint32_t i = 0; i < b->extra_count; i++)
        argv[n++] = b->extra[i];
    argv[n] = NULL;
    bench_pin(o->core);
    dup2(err, STDERR_FILENO);
    dup2(err, STDOUT_FILENO);
    execv(b->pawld, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Looks for the line that says it is ready; on failure shows what it said instead. */
static void broker_wait(const struct bench *b, struct bench_broker *br, int err)
{
    char text[4096];
    uint64_t end = bench_now() + 600 * PAWL_NS_S;
    for (;;) {
        ssize_t n = pread(err, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = 0;
        if (strstr(text, "ready on") != NULL)
            return;
        int status;
        if (waitpid(br->pid, &status, WNOHANG) == br->pid)
            bench_fail("%s did not start (status 0x%x): %s", b->pawld, (unsigned)status, text);
        if (bench_now() > end)
            bench_fail("%s is not ready after ten minutes: %s", b->pawld, text);
        bench_pause(500000);
    }
}

void bench_broker_restart(const struct bench *b, struct bench_broker *br,
                          const struct bench_broker_options *options)
{
    char path[sizeof(br->dir) + 16];
    snprintf(path, sizeof(path), "%s.said", br->dir);
    int err = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (err < 0)
        bench_fail("%s: %s", path, strerror(errno));
    fflush(NULL);
    pid_t parent = getpid();
    /* Not straight into br: it may lie in memory that the child shares. */
    pid_t pid = fork();
    if (pid < 0)
        bench_fail("cannot fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        broker_exec(b, br, options, err);
    }
    br->pid = pid;
    broker_wait(b, br, err);
    close(err);
}

void bench_broker_start(const struct bench *b, struct bench_broker *br,
                        const struct bench_broker_options *options)
{
    static uint32_t number;
    snprintf(br->dir, sizeof(br->dir), "%s/b%u", b->dir, ++number);
    bench_broker_restart(b, br, options);
}

void bench_broker_kill(struct bench_broker *br)
{
    kill(br->pid, SIGKILL);
    while (waitpid(br->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

void bench_broker_stop(struct bench_broker *br)
{
    kill(br->pid, SIGTERM);
    bench_join(br->pid, "pawld");
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *ftw)
{
    (void)s, (void)type, (void)ftw;
    remove(path);
    return 0;
}

void bench_tree_remove(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

void bench_broker_remove(struct bench_broker *br)
{
    char path[sizeof(br->dir) + 16];
    bench_tree_remove(br->dir);
    snprintf(path, sizeof(path), "%s.said", br->dir);
    remove(path);
}

/* --- clients --------------------------------------------------------------------------------- */

int bench_must(struct pawl *lane, int result, const char *what)
{
    if (result < 0)
        bench_fail("%s: %s (%s) %s", what, pawl_strname(result), pawl_strerror(result),
                   pawl_last_text(lane));
    return result;
}

struct pawl *bench_client(const struct bench_broker *br, const struct bench_client_options *o)
{
    struct pawl_options options = PAWL_OPTIONS_INIT;
    struct pawl *lane;
    options.dir = br->dir;
    options.label = "pawl-bench";
    options.timeout_ns = 30 * PAWL_NS_S;
    if (o != NULL) {
        options.spin_ns = o->spin_ns;
        options.window = o->window;
        options.ring_bytes = o->ring_bytes;
        options.prefetch = o->prefetch;
    }
    bench_must(NULL, pawl_open(&options, &lane), "open");
    return lane;
}

void bench_queue(struct pawl *lane, const char *name, enum pawl_mode mode)
{
    bench_queue_window(lane, name, mode, 0);
}

void bench_queue_window(struct pawl *lane, const char *name, enum pawl_mode mode,
                        uint64_t dedup_window_ns)
{
    struct pawl_queue_options o = PAWL_QUEUE_OPTIONS_INIT;
    o.dedup_window_ns = dedup_window_ns;
    o.mode = mode;
    o.max_crashed = 0;
    o.lease_ns = 600 * PAWL_NS_S;
    bench_must(lane, pawl_queue_create(lane, name, &o), "create a queue");
}

double bench_metric(struct pawl *lane, const char *name)
{
    static char text[65536];
    int n = pawl_metrics(lane, text, sizeof(text));
    if (n < 0)
        return -1;
    size_t length = strlen(name);
    for (char *p = text; p != NULL && *p != 0;) {
        if (strncmp(p, name, length) == 0 && p[length] == ' ')
            return strtod(p + length, NULL);
        p = strchr(p, '\n');
        p = p == NULL ? NULL : p + 1;
    }
    return -1;
}
