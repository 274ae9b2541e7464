// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_THREAD_H
#define PENSTOCK_STAGES_BASE_HOST_THREAD_H
/*
 * Threads beside the one that the process began with, which alone is sent
 * signals. A signal that a thread's own fault raises (SIGSEGV and its like) is
 * that thread's.
 */
#include <pthread.h>

/* Returns 0 or an errno. Any thread. */
int pst_thread_start(pthread_t *ret, void *(*fn)(void *), void *ctx);

struct pst_node;

/* Where it stands what the calling thread computes, for who is told of its
 * crash: to look at the node itself would cost each kernel a cache line. NULL:
 * nothing. A pool's threads compute what its caller does. */
extern _Thread_local const struct pst_node *const *pst_thread_node;

#endif
