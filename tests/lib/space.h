/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_SPACE_H
#define PAWL_TESTS_SPACE_H

/* File systems of a known size for tests, in a mount namespace of the test's own: nothing of them
 * is seen outside, and all goes when the test program ends, however it ends (loop devices too: they
 * are detached with their last mount). Needs root; without it, or where mounting is forbidden, the
 * test is skipped with that reason. Call before any broker or worker is started. */

#include <stdbool.h>
#include <stdint.h>

/* From here on this process and its children have their own mounts. Skips. */
void space_private(void);
/* A tmpfs of so many bytes on `dir`. */
void space_tmpfs(const char *dir, uint64_t bytes);
void space_tmpfs_resize(const char *dir, uint64_t bytes);
/* An ext4 of so many bytes on `dir` in the file `image` (made with all its blocks) on a loop
 * device. Skips where there is none. */
void space_ext4(const char *dir, const char *image, uint64_t bytes);
void space_unmount(const char *dir);
/* Runs the checker over an unmounted image. */
void space_fsck(const char *image);
/* Fills the file system of dir to the last byte, with a file `ballast`. */
void space_fill(const char *dir);
void space_free(const char *dir); /* removes it */
/* Makes the image unable to take writes to where this file lies: punches holes into the image
 * there, then fills the file system under the image. Later direct writes to the file fail (on a
 * tmpfs with ENOSPC, though its blocks were allocated long ago), until space_free() of the image's
 * directory. */
void space_break(const char *file, const char *image);
/* Runs a program quietly; its exit code. */
int space_run(const char *const argv[]);

#endif
