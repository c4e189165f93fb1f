/* SPDX-License-Identifier: MIT */
#include "lib/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DIRS_MAX 64

static struct {
    const char *name;
    char step[200];
    uint64_t seed;
    pid_t owner; /* the test program: only it removes directories */
    char *dirs[DIRS_MAX];
    unsigned dir_count;
    unsigned seconds;
} harness;

/* --- the test program ------------------------------------------------------------------------ */

static void watchdog(int signal)
{
    /* Only what is safe in a handler. */
    static const char text[] = "\nwatchdog: the time is over in step: ";
    (void)signal;
    if (write(2, text, sizeof text - 1) < 0 || write(2, harness.step, strlen(harness.step)) < 0 ||
        write(2, "\n", 1) < 0)
        _exit(124);
    _exit(124); /* children go with us: PR_SET_PDEATHSIG */
}

static void remove_tree(const char *dir)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--one-file-system", dir, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
}

static void find_build(void);

static void clean_up(void)
{
    if (getpid() != harness.owner || getenv("PAWL_TEST_KEEP") != NULL)
        return;
    alarm(0);
    for (unsigned i = 0; i < harness.dir_count; i++)
        remove_tree(harness.dirs[i]);
}

void harness_begin(const char *name, unsigned seconds)
{
    harness.name = name;
    harness.owner = getpid();
    harness.seconds = seconds;
    harness_step("start");
    find_build();
    const char *seed = getenv("PAWL_SEED");
    if (seed != NULL)
        harness.seed = strtoull(seed, NULL, 0);
    else if (getrandom(&harness.seed, sizeof harness.seed, 0) != sizeof harness.seed)
        harness_fail("getrandom: %s", strerror(errno));
    printf("%s: PAWL_SEED=0x%llx\n", name, (unsigned long long)harness.seed);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, watchdog);
    atexit(clean_up);
    /* Sanitizers are several times slower: the watchdog is there for what hangs. */
    alarm((unsigned)(seconds * harness_number("PAWL_TEST_SLOW", 1)));
}

void harness_step(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(harness.step, sizeof harness.step, format, list);
    va_end(list);
}

struct pawl_prng harness_prng(uint64_t number)
{
    struct pawl_prng p = { .state = harness.seed ^ (number * 0x9e3779b97f4a7c15ull) };
    return p;
}

void harness_skip(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("skip: ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    fflush(stdout);
    if (getpid() == harness.owner)
        exit(77);
    _exit(77);
}

void harness_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "%s[%d]: failed in step '%s': ", harness.name, (int)getpid(), harness.step);
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    fflush(stdout);
    if (getpid() == harness.owner)
        exit(1);
    _exit(1);
}

uint64_t harness_number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

uint64_t harness_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * PAWL_NS_S + (uint64_t)t.tv_nsec;
}

const char *harness_dir(void)
{
    const char *top = getenv("TMPDIR");
    char path[160];
    snprintf(path, sizeof path, "%s/pawl-XXXXXX", top != NULL && *top != '\0' ? top : "/tmp");
    if (mkdtemp(path) == NULL)
        harness_fail("mkdtemp %s: %s", path, strerror(errno));
    char *copy = strdup(path);
    if (copy == NULL || harness.dir_count == DIRS_MAX)
        harness_fail("too many directories");
    harness.dirs[harness.dir_count++] = copy;
    return copy;
}

/* Kept in a row, so that the leak checker sees them reachable. */
struct text {
    struct text *next;
    char text[];
};
static struct text *texts;

char *harness_text(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    struct text *t = n < 0 ? NULL : malloc(sizeof *t + (size_t)n + 1);
    if (t == NULL)
        harness_fail("no memory");
    va_start(list, format);
    vsnprintf(t->text, (size_t)n + 1, format, list);
    va_end(list);
    t->next = texts;
    texts = t;
    return t->text;
}

void *harness_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        harness_fail("mmap %zu: %s", bytes, strerror(errno));
    return p;
}

void harness_pause(void)
{
    struct timespec t = { .tv_nsec = 500000 };
    nanosleep(&t, NULL);
}

/* --- brokers --------------------------------------------------------------------------------- */

/* Asked at the start: in a mount namespace made later the answer may name a place outside. */
static char build[400];

static void find_build(void)
{
    ssize_t n = readlink("/proc/self/exe", build, sizeof build - 1);
    if (n <= 0)
        harness_fail("/proc/self/exe: %s", strerror(errno));
    build[n] = '\0';
    /* BUILD/tests/FOLDER/program */
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(build, '/');
        if (slash == NULL)
            harness_fail("%s lies in no build directory", build);
        *slash = '\0';
    }
}

const char *harness_program(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", build, name);
    if (access(path, X_OK) != 0)
        harness_fail("%s: %s", path, strerror(errno));
    return path;
}

void harness_broker_init(struct harness_broker *b, const char *dir)
{
    memset(b, 0, sizeof *b);
    const char *top = harness_dir();
    if (dir != NULL)
        snprintf(b->dir, sizeof b->dir, "%s", dir);
    else
        snprintf(b->dir, sizeof b->dir, "%s/d", top);
    snprintf(b->log, sizeof b->log, "%s/pawld.log", top);
    harness_broker_arg(b, "--segment-size");
    harness_broker_arg(b, "1M");
}

void harness_broker_arg(struct harness_broker *b, const char *arg)
{
    unsigned i = 0;
    while (i < HARNESS_ARGS_MAX && b->args[i] != NULL)
        i++;
    if (i == HARNESS_ARGS_MAX)
        harness_fail("too many options");
    b->args[i] = arg;
}

/* A socket at `path` as systemd would give it in NOTIFY_SOCKET. */
static int notify_open(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (strlen(path) >= sizeof a.sun_path)
        harness_fail("TMPDIR is too long for a socket: %s", path);
    memcpy(a.sun_path, path, strlen(path));
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0)
        harness_fail("notify socket %s: %s", path, strerror(errno));
    return fd;
}

/* The parent went before PR_SET_PDEATHSIG was set. (0: it lives outside our pid namespace.) */
static bool orphaned(pid_t parent) { return getppid() != parent && getppid() != 0; }

static _Noreturn void broker_exec(const struct harness_broker *b, const char *program,
                                  const char *notify, pid_t parent)
{
    const char *argv[HARNESS_ARGS_MAX + 8];
    unsigned n = 0;
    argv[n++] = "pawld";
    argv[n++] = "--dir";
    argv[n++] = b->dir;
    if (b->socket[0] != '\0') {
        argv[n++] = "--socket";
        argv[n++] = b->socket;
    }
    for (unsigned i = 0; b->args[i] != NULL; i++)
        argv[n++] = b->args[i];
    argv[n] = NULL;
    int fd = open(b->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        _exit(125);
    close(fd);
    setenv("NOTIFY_SOCKET", notify, 1);
    signal(SIGALRM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    if (b->before_exec != NULL && b->before_exec(b->before_ctx) != 0)
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (orphaned(parent))
        _exit(125);
    execv(program, (char *const *)argv);
    _exit(127);
}

static long file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

int harness_broker_try(struct harness_broker *b)
{
    char notify[420];
    const char *program = harness_program("pawld");
    snprintf(notify, sizeof notify, "%.*s.notify", (int)(strlen(b->log) - 4), b->log);
    int fd = notify_open(notify);
    b->life = file_size(b->log);
    b->notified = false;
    fflush(stdout);
    uint64_t begin = harness_clock();
    pid_t self = getpid();
    b->pid = fork();
    if (b->pid < 0)
        harness_fail("fork: %s", strerror(errno));
    if (b->pid == 0)
        broker_exec(b, program, notify, self);
    int pidfd = (int)syscall(SYS_pidfd_open, b->pid, 0);
    if (pidfd < 0)
        harness_fail("pidfd_open: %s", strerror(errno));
    struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = pidfd, .events = POLLIN } };
    int result = -1;
    while (result < 0) {
        int events = poll(p, 2, 100);
        if (events < 0 && errno != EINTR)
            harness_fail("poll: %s", strerror(errno));
        char text[512];
        ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
        if (n > 0) {
            text[n] = '\0';
            if (strstr(text, "READY=1") != NULL)
                b->notified = true;
        }
        if (b->notified || (events == 0 && harness_broker_said(b, "pawld: ready on ")))
            result = 0;
        else if (p[1].revents != 0) {
            result = harness_wait(b->pid);
            b->pid = 0;
            if (result == 0)
                harness_fail("pawld ended with 0 before it was ready");
        }
    }
    b->up_ns = harness_clock() - begin;
    close(fd);
    close(pidfd);
    unlink(notify);
    return result;
}

void harness_broker_start(struct harness_broker *b)
{
    int rc = harness_broker_try(b);
    if (rc != 0) {
        harness_broker_show(b);
        harness_fail("pawld did not start: exit %d", rc);
    }
}

int harness_broker_end(struct harness_broker *b, int signal)
{
    if (b->pid == 0)
        harness_fail("no broker runs");
    harness_signal(b->pid, signal);
    int rc = harness_wait(b->pid);
    b->pid = 0;
    return rc;
}

void harness_broker_kill(struct harness_broker *b)
{
    int rc = harness_broker_end(b, SIGKILL);
    if (rc != 128 + SIGKILL) {
        harness_broker_show(b);
        harness_fail("pawld had ended before it was killed: %d", rc);
    }
}

void harness_broker_stop(struct harness_broker *b)
{
    int rc = harness_broker_end(b, SIGTERM);
    if (rc != 0) {
        harness_broker_show(b);
        harness_fail("pawld, asked to stop, ended with %d", rc);
    }
}

void harness_broker_restart(struct harness_broker *b)
{
    harness_broker_kill(b);
    harness_broker_start(b);
}

static char *log_text(const struct harness_broker *b)
{
    long size = file_size(b->log);
    long bytes = size > b->life ? size - b->life : 0;
    char *text = calloc(1, (size_t)bytes + 1);
    int fd = open(b->log, O_RDONLY | O_CLOEXEC);
    if (text != NULL && fd >= 0 && pread(fd, text, (size_t)bytes, b->life) < 0)
        text[0] = '\0';
    if (fd >= 0)
        close(fd);
    return text;
}

bool harness_broker_said(const struct harness_broker *b, const char *what)
{
    char *text = log_text(b);
    bool said = text != NULL && strstr(text, what) != NULL;
    free(text);
    return said;
}

void harness_broker_show(const struct harness_broker *b)
{
    char *text = log_text(b);
    fprintf(stderr, "--- pawld on %s said:\n%s---\n", b->dir, text != NULL ? text : "");
    free(text);
}

/* The number behind `name` in a file of /proc. */
static uint64_t proc_number(pid_t pid, const char *file, const char *name)
{
    char path[64], line[256];
    uint64_t value = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtoull(line + strlen(name), NULL, 10);
    fclose(f);
    return value;
}

uint64_t harness_rss(pid_t pid) { return proc_number(pid, "status", "VmRSS:") * 1024; }

uint64_t harness_fds(pid_t pid)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    /* Since Linux 6.2 the size of that directory is the number of descriptors. */
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

uint64_t harness_cpu_ns(pid_t pid)
{
    char path[64];
    unsigned long long ns = 0;
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%llu", &ns) != 1)
        ns = 0;
    fclose(f);
    return ns;
}

int harness_deny_uring(void *ctx)
{
    (void)ctx;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = sizeof code / sizeof code[0], .filter = code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* --- workers --------------------------------------------------------------------------------- */

pid_t harness_fork(int (*body)(void *arg), void *arg)
{
    fflush(stdout);
    fflush(stderr);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        harness_fail("fork: %s", strerror(errno));
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (orphaned(parent))
        _exit(125);
    signal(SIGALRM, SIG_DFL);
    int rc = body(arg);
    fflush(stdout);
    _exit(rc);
}

int harness_wait(pid_t pid)
{
    int status;
    pid_t got;
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (got != pid)
        harness_fail("waitpid %d: %s", (int)pid, strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void harness_signal(pid_t pid, int signal)
{
    if (pid <= 1 || kill(pid, signal) != 0)
        harness_fail("kill %d, signal %d: %s", (int)pid, signal, strerror(errno));
}

void harness_workers(void)
{
    siginfo_t info = { 0 };
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
        info.si_code == CLD_EXITED && info.si_status != 0)
        harness_fail("process %d ended with %d", (int)info.si_pid, info.si_status);
}

void harness_freeze(pid_t pid)
{
    int status;
    pid_t got;
    harness_signal(pid, SIGSTOP);
    do
        got = waitpid(pid, &status, WUNTRACED);
    while (got < 0 && errno == EINTR);
    if (got != pid || !WIFSTOPPED(status))
        harness_fail("process %d did not stop", (int)pid);
}

/* --- clients --------------------------------------------------------------------------------- */

struct pawl *harness_open_with(const struct harness_broker *b, struct pawl_options *options)
{
    struct pawl *lane = NULL;
    options->dir = b->dir;
    if (b->socket[0] != '\0')
        options->socket = b->socket;
    int rc;
    /* It may have been killed a moment ago, by this test, and be on its way back. */
    for (int i = 0; (rc = pawl_open(options, &lane)) == PAWL_E_BROKER_DOWN && i < 3000; i++)
        usleep(10000);
    if (rc != PAWL_OK)
        harness_fail("pawl_open: %s: %s", pawl_strname(rc), pawl_last_text(NULL));
    return lane;
}

struct pawl *harness_open(const struct harness_broker *b)
{
    struct pawl_options options = PAWL_OPTIONS_INIT;
    options.timeout_ns = 30 * PAWL_NS_S;
    return harness_open_with(b, &options);
}

void harness_queue(struct pawl *lane, const char *name, uint32_t mode, uint64_t lease_ns)
{
    struct pawl_queue_options options = PAWL_QUEUE_OPTIONS_INIT;
    options.mode = mode;
    options.lease_ns = lease_ns;
    int rc = pawl_queue_create(lane, name, &options);
    if (rc != PAWL_OK && rc != PAWL_OK_DUPLICATE)
        harness_fail("create %s: %s: %s", name, pawl_strname(rc), pawl_last_text(lane));
}

struct pawl_queue_stat harness_stat(struct pawl *lane, const char *name)
{
    struct pawl_queue_stat stat = { .size = sizeof stat };
    int rc = pawl_queue_stat(lane, name, &stat);
    if (rc != PAWL_OK)
        harness_fail("stat %s: %s: %s", name, pawl_strname(rc), pawl_last_text(lane));
    return stat;
}

uint64_t harness_send(struct pawl *lane, const char *queue, const char *text)
{
    struct pawl_sent sent;
    int rc = pawl_send(lane, queue, text, strlen(text), NULL, &sent);
    if (rc != PAWL_OK)
        harness_fail("send to %s: %s: %s", queue, pawl_strname(rc), pawl_last_text(lane));
    return sent.id;
}

struct pawl_token harness_receive(struct pawl *lane, const char *queue, uint64_t wait_ns,
                                  const char *text)
{
    struct pawl_receive_options options = PAWL_RECEIVE_OPTIONS_INIT;
    struct pawl_message m;
    options.wait_ns = wait_ns;
    int rc = pawl_receive(lane, queue, &options, &m);
    if (rc != PAWL_OK)
        harness_fail("receive from %s, want '%s': %s: %s", queue, text, pawl_strname(rc),
                     pawl_last_text(lane));
    if (m.bytes != strlen(text) || memcmp(m.body, text, m.bytes) != 0)
        harness_fail("received '%.*s' instead of '%s'", (int)m.bytes, (const char *)m.body, text);
    return m.token;
}
