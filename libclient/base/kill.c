/* SPDX-License-Identifier: MIT */
#include "base/kill.h"

#ifdef PAWL_KILL_POINTS
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "name" or "name:n": is it this point, and which passage? 0: another point. */
static unsigned long wanted(const char *text, const char *name)
{
    size_t n = strcspn(text, ":\n");
    if (n != strlen(name) || strncmp(text, name, n) != 0)
        return 0;
    unsigned long passage = text[n] == ':' ? strtoul(text + n + 1, NULL, 10) : 1;
    return passage ? passage : 1;
}

static bool in_file(const char *path, const char *name)
{
    char text[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return wanted(text, name) != 0 && unlink(path) == 0;
}

bool pawl_kill_due(const char *name)
{
    static unsigned long passages; /* of the point that the environment names: one at a time */
    const char *at = getenv("PAWL_KILL_AT"), *file = getenv("PAWL_KILL_FILE");
    unsigned long passage = at ? wanted(at, name) : 0;
    if (passage != 0 && ++passages >= passage)
        return true;
    return file && in_file(file, name);
}

_Noreturn void pawl_kill_now(void)
{
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}
#else
typedef int pawl_kill_points_none;
#endif
