/* SPDX-License-Identifier: MIT */
#include "loop/machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/bits.h"

static bool read_text(const char *path, char *out, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, bytes - 1);
    (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The smallest memory.max from our control group up to the root. "max" reads as none. */
static uint64_t group_limit(void)
{
    char text[512], path[768];
    uint64_t limit = UINT64_MAX;
    if (!read_text("/proc/self/cgroup", text, sizeof text) || strncmp(text, "0::/", 4) != 0)
        return limit;
    char *group = text + 3;
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        char value[32];
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
        if (read_text(path, value, sizeof value) && value[0] >= '0' && value[0] <= '9')
            limit = pawl_min_u64(limit, strtoull(value, NULL, 10));
        char *slash = strrchr(group, '/');
        if (!slash)
            return limit;
        *slash = '\0';
    }
}

uint64_t pawl_machine_memory(void)
{
    struct sysinfo info;
    uint64_t ram = 1ull << 30; /* a guess where the kernel does not say */
    if (sysinfo(&info) == 0)
        ram = (uint64_t)info.totalram * info.mem_unit;
    return pawl_min_u64(ram, group_limit());
}

void pawl_machine_boot_id(uint8_t out[16])
{
    char text[64];
    memset(out, 0, 16);
    if (!read_text("/proc/sys/kernel/random/boot_id", text, sizeof text))
        return;
    unsigned n = 0;
    for (const char *p = text; *p && n < 32; p++) {
        const char *hex = "0123456789abcdef";
        const char *digit = strchr(hex, *p);
        if (!digit)
            continue; /* the dashes */
        out[n / 2] = (uint8_t)(out[n / 2] << 4 | (digit - hex));
        n++;
    }
}

uint32_t pawl_machine_files_left(void)
{
    struct rlimit limit;
    uint64_t most = 1024, used = 64; /* guesses where the kernel does not say */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        most = pawl_min_u64(limit.rlim_cur, UINT32_MAX / 2);
    DIR *d = opendir("/proc/self/fd");
    if (d) {
        for (used = 0; readdir(d); used++)
            ;
        (void)closedir(d);
    }
    return most > used ? (uint32_t)(most - used) : 0;
}
