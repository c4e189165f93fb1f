/* SPDX-License-Identifier: MIT */
/* doctor: kernel, io, limits, memory. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "doctor.h"
#include "io/io.h"
#include "units.h"

#define IO_TEXT_BYTES 256
/* What a client costs the broker: its socket, its pidfd, the bell of its lane. */
#define FDS_A_CLIENT 3u
#define FDS_OF_ITS_OWN 64u
#define MEMLOCK_ENOUGH (8ull << 20)

static void check_kernel(struct doctor *d)
{
    struct utsname u;
    cpu_set_t cpus;
    int count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    if (uname(&u) != 0)
        return;
    doctor_say(d, DOCTOR_OK, "kernel", NULL, "%s %s %s, %d processor%s", u.sysname, u.release,
               u.machine, count, count == 1 ? "" : "s");
}

static bool read_number(const char *path, unsigned long long *out)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool got = fscanf(f, "%llu", out) == 1;
    fclose(f);
    return got;
}

/* What a broker started here and now by this user would take. */
static void check_io(struct doctor *d)
{
    char text[IO_TEXT_BYTES] = "", cure[256];
    unsigned long long disabled = 0;
    read_number("/proc/sys/kernel/io_uring_disabled", &disabled);
    struct pawl_io *io = pawl_io_uring_create(text);
    if (io) {
        doctor_say(d, DOCTOR_OK, "io", NULL, "a broker started here takes %s", text);
        io->ops->destroy(io);
        return;
    }
    if (disabled)
        snprintf(cure, sizeof cure, "sysctl kernel.io_uring_disabled=0 (it is %llu)", disabled);
    else
        snprintf(
            cure, sizeof cure,
            "in a container: a seccomp profile that allows io_uring; else a kernel from 5.6 on");
    doctor_say(d, DOCTOR_WARN, "io", cure, "%s: the posix kind is used instead", text);
    io = pawl_io_posix_create(text);
    if (!io) {
        doctor_say(d, DOCTOR_BAD, "io", "raise the limits of descriptors and threads", "%s", text);
        return;
    }
    io->ops->destroy(io);
}

/* Of the broker if one runs and may be asked, else of this shell, from which one would be started.
 */
static const char *limit_of(const struct doctor *d, int what, struct rlimit *out)
{
    if (d->broker > 0 && prlimit(d->broker, what, NULL, out) == 0)
        return "of the broker";
    if (getrlimit(what, out) != 0)
        out->rlim_cur = RLIM_INFINITY;
    return "here";
}

static void check_memlock(struct doctor *d)
{
    struct rlimit limit;
    char text[CLI_UNIT_TEXT_BYTES];
    const char *whose = limit_of(d, RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_say(d, DOCTOR_OK, "memlock", NULL, "no limit %s", whose);
    else if (limit.rlim_cur >= MEMLOCK_ENOUGH)
        doctor_say(d, DOCTOR_OK, "memlock", NULL, "%s %s", cli_size_human(limit.rlim_cur, text),
                   whose);
    else
        doctor_say(d, DOCTOR_WARN, "memlock", "ulimit -l 8192, or LimitMEMLOCK=8M in the unit",
                   "%s %s: buffers of the log may not be registered, writes cost a little more",
                   cli_size_human(limit.rlim_cur, text), whose);
}

static void check_nofile(struct doctor *d)
{
    struct rlimit limit;
    const char *whose = limit_of(d, RLIMIT_NOFILE, &limit);
    unsigned long long clients =
        limit.rlim_cur > FDS_OF_ITS_OWN ? (limit.rlim_cur - FDS_OF_ITS_OWN) / FDS_A_CLIENT : 0;
    if (limit.rlim_cur == RLIM_INFINITY || clients >= 4096)
        doctor_say(d, DOCTOR_OK, "nofile", NULL, "enough %s for more than 4,096 clients", whose);
    else
        doctor_say(d, clients < 8 ? DOCTOR_BAD : DOCTOR_WARN, "nofile",
                   "ulimit -n 16384, or LimitNOFILE=16384 in the unit",
                   "%llu descriptors %s: room for some %llu clients with one lane each",
                   (unsigned long long)limit.rlim_cur, whose, clients);
}

static void check_fsize(struct doctor *d)
{
    struct rlimit limit;
    char text[CLI_UNIT_TEXT_BYTES];
    const char *whose = limit_of(d, RLIMIT_FSIZE, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 64ull << 20)
        doctor_say(d, DOCTOR_BAD, "fsize", "ulimit -f unlimited",
                   "files may have %s %s; a segment of the log has 64 MiB by default",
                   cli_size_human(limit.rlim_cur, text), whose);
}

static void check_shared_memory(struct doctor *d)
{
    struct statvfs shm;
    char text[CLI_UNIT_TEXT_BYTES];
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    int fd = memfd_create("pawl doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool sealed = fd >= 0 && ftruncate(fd, 65536) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0 &&
                  fcntl(fd, F_GET_SEALS) == seals;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (sealed)
        doctor_say(d, DOCTOR_OK, "memfd", NULL, "sealed shared memory works");
    else
        doctor_say(d, DOCTOR_BAD, "memfd", "a kernel from 5.1 on; a seccomp profile that allows it",
                   "sealed shared memory does not work: %s", strerror(error));
    if (statvfs("/dev/shm", &shm) == 0)
        doctor_say(d, DOCTOR_OK, "/dev/shm", NULL, "%s; pawl does not use it",
                   cli_size_human((uint64_t)shm.f_blocks * shm.f_frsize, text));
    else
        doctor_say(d, DOCTOR_OK, "/dev/shm", NULL, "not there; pawl does not use it");
}

static void check_pidfd(struct doctor *d)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0)
        doctor_say(d, DOCTOR_OK, "pidfd", NULL, "a client's death is known at once");
    else
        doctor_say(d, DOCTOR_WARN, "pidfd",
                   "a kernel from 5.3 on; a seccomp profile that allows it",
                   "%s: a client's death is known by its socket, late if a child keeps it open",
                   strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void check_memory(struct doctor *d)
{
    static const char *const files[] = { "/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    unsigned long long ram =
        (unsigned long long)sysconf(_SC_PHYS_PAGES) * (unsigned long long)sysconf(_SC_PAGE_SIZE);
    unsigned long long limit = ram, n;
    char a[CLI_UNIT_TEXT_BYTES], b[CLI_UNIT_TEXT_BYTES];
    for (size_t i = 0; i < 2; i++)
        if (read_number(files[i], &n) && n < limit)
            limit = n;
    enum doctor_level level = limit < 256ull << 20 ? DOCTOR_WARN : DOCTOR_OK;
    doctor_say(d, level, "memory", level ? "give the broker more, or fewer messages" : NULL,
               "%s%s; a broker takes up to %s of it by default (--memory)",
               cli_size_human(limit, a), limit < ram ? " (control group)" : "",
               cli_size_human(limit / 4 > 64ull << 20 ? limit / 4 : 64ull << 20, b));
}

void doctor_machine(struct doctor *doctor)
{
    check_kernel(doctor);
    check_io(doctor);
    check_memlock(doctor);
    check_nofile(doctor);
    check_fsize(doctor);
    check_shared_memory(doctor);
    check_pidfd(doctor);
    check_memory(doctor);
}
