/* SPDX-License-Identifier: MIT */
/* Servers of peers, and connections to them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../bench.h"
#include "peer.h"

/* A user who is not root has to be set before the death signal: the change clears it. */
static void become(const char *user)
{
    const struct passwd *p = user == NULL || geteuid() != 0 ? NULL : getpwnam(user);
    if (p != NULL &&
        (initgroups(user, p->pw_gid) != 0 || setgid(p->pw_gid) != 0 || setuid(p->pw_uid) != 0))
        _exit(126);
}

int peer_spawn(int core, const char *user, const char *log, const char *const *argv)
{
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        bench_fail("cannot fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    bench_pin(core);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644), null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    become(user);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

int peer_pid(void) { return getpid(); }

int peer_wait(int pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void peer_end(int pid, int sig)
{
    kill(pid, sig);
    for (int i = 0; i < 1000; i++) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        bench_pause(10000000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int peer_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t n = sizeof(a);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        bench_fail("no port: %s", strerror(errno));
    close(fd);
    return ntohs(a.sin_port);
}

static int connect_for(const struct sockaddr *a, socklen_t n, double seconds, const char *what)
{
    uint64_t end = bench_now() + (uint64_t)(seconds * 1e9);
    for (;;) {
        int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a, n) == 0)
            return fd;
        if (bench_now() > end)
            bench_fail("no server on %s: %s", what, strerror(errno));
        close(fd);
        bench_pause(10000000);
    }
}

int peer_connect_unix(const char *path, double seconds)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    return connect_for((struct sockaddr *)&a, sizeof(a), seconds, path);
}

int peer_connect_port(int port, double seconds)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    char what[16];
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(what, sizeof(what), "port %d", port);
    return connect_for((struct sockaddr *)&a, sizeof(a), seconds, what);
}

bool peer_command_line(const char *command, char *out, size_t bytes)
{
    out[0] = 0;
    FILE *f = popen(command, "re");
    if (f == NULL)
        return false;
    if (fgets(out, (int)bytes, f) == NULL)
        out[0] = 0;
    out[strcspn(out, "\n")] = 0;
    return pclose(f) == 0 && out[0] != 0;
}

/* --- lines ----------------------------------------------------------------------------------- */

void peer_flush(struct peer_stream *s)
{
    for (size_t at = 0; at < s->out;) {
        ssize_t n = write(s->fd, s->output + at, s->out - at);
        if (n < 0 && errno != EINTR)
            bench_fail("a server went away: %s", strerror(errno));
        at += n > 0 ? (size_t)n : 0;
    }
    s->out = 0;
}

void peer_stream_close(struct peer_stream *s) { close(s->fd); }

void peer_put(struct peer_stream *s, const void *bytes, size_t n)
{
    if (s->out + n > sizeof(s->output))
        peer_flush(s);
    memcpy(s->output + s->out, bytes, n);
    s->out += n;
}

void peer_print(struct peer_stream *s, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    peer_put(s, text, (size_t)n);
}

static void fill(struct peer_stream *s)
{
    if (s->from == s->to)
        s->from = s->to = 0;
    if (s->to == sizeof(s->in)) {
        memmove(s->in, s->in + s->from, s->to - s->from);
        s->to -= s->from;
        s->from = 0;
    }
    if (s->to == sizeof(s->in))
        bench_fail("a server sent a line without end");
    ssize_t n = read(s->fd, s->in + s->to, sizeof(s->in) - s->to);
    if (n == 0 || (n < 0 && errno != EINTR))
        bench_fail("a server closed the connection: %s", n == 0 ? "end" : strerror(errno));
    s->to += n > 0 ? (size_t)n : 0;
}

char *peer_line(struct peer_stream *s)
{
    for (size_t looked = 0;;) {
        char *end = memchr(s->in + s->from + looked, '\n', s->to - s->from - looked);
        if (end != NULL) {
            char *line = s->in + s->from;
            s->from = (size_t)(end + 1 - s->in);
            *end = 0;
            if (end > line && end[-1] == '\r')
                end[-1] = 0;
            return line;
        }
        looked = s->to - s->from;
        fill(s);
    }
}

void peer_skip(struct peer_stream *s, size_t n)
{
    while (s->to - s->from < n) {
        n -= s->to - s->from;
        s->from = s->to;
        fill(s);
    }
    s->from += n;
}

void peer_copy(struct peer_stream *s, void *to, size_t n)
{
    while (s->to - s->from < n)
        fill(s);
    memcpy(to, s->in + s->from, n);
    s->from += n;
}
