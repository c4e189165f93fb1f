/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CLIENT_TEXT_H
#define PAWL_CLIENT_TEXT_H

/* Sentences for refusals: what was met and what to do. Pure, no allocation. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the refusal of a command under an id of its caller means; NULL: what it means without. */
const char *pawl_text_identity(int result);
/* subject: the queue's name, or NULL. Writes "" where the code says it all. */
void pawl_text_refusal(char *text, size_t bytes, int result, uint64_t value, const char *subject);

/* The text of this thread for calls without a lane. NULL only reads it. */
const char *pawl_thread_text(const char *set);

#define PAWL_FORKED_TEXT                                                                     \
    "this lane belongs to the process that opened it: a child of a fork opens its own with " \
    "pawl_open()"

/* A call of `lane` that this thread was refused before it got in: the lane and its text belong to
 * the thread that is in it, or to another process. The text is this thread's then, for
 * pawl_last_text(lane) too, until the next failure or text of this thread. */
struct pawl;
void pawl_thread_refused(const struct pawl *lane, const char *text);
/* Was the last failure of this thread such a one, in this lane? */
bool pawl_thread_was_refused(const struct pawl *lane);
void pawl_thread_failed_inside(void);

#endif
