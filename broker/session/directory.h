/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_DIRECTORY_H
#define PAWL_BROKER_DIRECTORY_H

/* The directory of an instance and the lock that keeps a second broker out of it.
 *
 *   DIR        0750, ours, writable by nobody else (P4)
 *   DIR/lock   0600, flock: whoever holds it is the broker; the text in it is his pid, for display
 *   DIR/log    0700, what broker/log keeps
 *
 * The lock goes with the process, however it ends. After kill -9 the kernel may hold the file a
 * little longer for what is in flight (U12): so the lock is tried for a second. */

#include <stddef.h>

struct pawl_directory {
    int fd, lock_fd, log_fd; /* -1: none */
};

/* Makes the directory if it alone is missing (where it shall be must be there), checks and locks.
 * 0, or -1 with the reason and the cure in why[bytes] and nothing held. May take a second. */
int pawl_directory_open(const char *path, struct pawl_directory *out, char *why, size_t bytes)
    __attribute__((warn_unused_result));
/* Makes all that is missing above the last part, 0700, as the XDG rules ask for a directory that
 * the user did not name. 0, or -1 with the reason. */
int pawl_directory_make_parents(const char *path, char *why, size_t bytes)
    __attribute__((warn_unused_result));
void pawl_directory_close(struct pawl_directory *directory);

#endif
