// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_OUT_QUEUE_H
#define PENSTOCK_DAEMON_CTL_OUT_QUEUE_H
/*
 * Writes output in a thread of its own, so that a blocked terminal or pipe
 * (Ctrl-S, a pager) does not block the supervision of a job. Used by out.h; one
 * thread at a time calls these functions.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Starts the thread; from now on it writes what pstctl_queue_put() gets. If the
 * thread cannot be started, callers keep writing output themselves. */
void pstctl_queue_begin(void);
bool pstctl_queue_is_on(void);
/* Appends to the output. False: there is no thread, so the caller must write.
 * keep: the text is not dropped even if more than 4 MiB wait to be written. */
bool pstctl_queue_put(FILE *out, const char *text, size_t n, bool keep);
/* Limits the wait of pstctl_queue_end() to 2 seconds, since the user wants the
 * command to end. */
void pstctl_queue_shorten_wait(void);
/* Writes all queued output, and ends the thread. Returns false if the terminal
 * or pipe has accepted nothing for too long: the thread still uses stdio then,
 * and the process must end without it (_exit). */
bool pstctl_queue_end(void);

#endif
