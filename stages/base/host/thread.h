// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_THREAD_H
#define PENSTOCK_STAGES_BASE_HOST_THREAD_H
/*
 * Starts threads with asynchronous signals blocked, so that only the initial
 * thread receives them. A signal that a thread raises by its own fault (SIGSEGV
 * and the like) is still delivered to it.
 */
#include "stages/base/diag.h"

#include <pthread.h>

/* Returns 0 or an errno. Any thread. */
int pst_thread_start(pthread_t *ret, void *(*fn)(void *), void *ctx);

#define PST_MAX_PROCESSORS 8192 /* per host; Linux supports no more */

/* Binds a thread to a processor. Threads that are started later with
 * pst_thread_start may use all processors of this process, whether the thread
 * that starts them is bound or not. Any thread. */
enum pst_status pst_thread_bind(pthread_t thread, unsigned processor,
                                struct pst_diag *diag) PST_MUST_CHECK;

struct pst_node;

/* Address of the pointer to the node that the calling thread computes, for
 * crash reports; NULL: none. The pointer is read only in a report, since
 * reading it would cost each kernel a cache line. Threads of a pool take over
 * the value of the thread that calls pst_pool_run. */
extern _Thread_local const struct pst_node *const *pst_thread_node;

#endif
