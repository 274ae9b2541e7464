// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_OUT_QUEUE_H
#define PENSTOCK_DAEMON_CTL_OUT_QUEUE_H
/*
 * Writes output in a thread of its own, so that a terminal or a pipe that takes
 * none (Ctrl-S, a pager) does not stop the supervision of a job. out.h uses it;
 * one thread at a time calls these functions.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Begins: from now on pstctl_queue_put() takes the output. If there can be no
 * thread, output stays as it is. */
void pstctl_queue_begin(void);
bool pstctl_queue_is_on(void);
/* Appends to the output; false: there is no thread, so the caller writes.
 * keep: the text is not left out if more than 4 MiB wait to be written. */
bool pstctl_queue_put(FILE *out, const char *text, size_t n, bool keep);
/* After this, pstctl_queue_end() waits 2 seconds only: the user wants the
 * command to end. */
void pstctl_queue_hurry(void);
/* Writes all that waits, and ends the thread. Returns false if the output has
 * taken nothing for too long: then the thread still has it, and the process
 * must end without stdio. */
bool pstctl_queue_end(void);

#endif
