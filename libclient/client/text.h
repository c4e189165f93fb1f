/* SPDX-License-Identifier: MIT */
#ifndef PAWL_CLIENT_TEXT_H
#define PAWL_CLIENT_TEXT_H

/* Sentences for refusals: what was met and what to do. Pure, no allocation. */

#include <stddef.h>
#include <stdint.h>

/* subject: the queue's name, or NULL. Writes "" where the code says it all. */
void pawl_text_refusal(char *text, size_t bytes, int result, uint64_t value, const char *subject);

/* The text of this thread for calls without a lane. NULL only reads it. */
const char *pawl_thread_text(const char *set);

#endif
