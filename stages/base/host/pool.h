// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_POOL_H
#define PENSTOCK_STAGES_BASE_HOST_POOL_H
/*
 * Kernel thread pool of a rank: T - 1 helpers plus the exec thread, which calls
 * pst_pool_run and takes part. Work is divided statically, so results depend on
 * T but never on timing. Helpers spin briefly, then sleep.
 */
#include "stages/base/diag.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pst_pool;

/* Computes part `part` of `parts`; divide work with pst_pool_share. */
typedef void (*pst_pool_fn)(void *ctx, unsigned part, unsigned parts);

/* Starts a pool. threads >= 1; 1 creates no thread. Returns owned. */
enum pst_status pst_pool_new(unsigned threads, struct pst_pool **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_pool_free(struct pst_pool *pool);
/* Binds the thread that calls pst_pool_run to processors[0], helper i
 * to processors[i]. */
enum pst_status pst_pool_bind(const struct pst_pool *pool, pthread_t caller,
                              const unsigned *processors,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the number of threads; 1 if pool is NULL. */
unsigned pst_pool_threads(const struct pst_pool *pool);
/* Returns pool, or NULL if the work is too small to wake it: other threads
 * start after some microseconds, and much later on a busy machine. */
static inline struct pst_pool *pst_pool_if(struct pst_pool *pool, bool worth)
{
    return worth ? pool : NULL;
}
/* Calls fn on every part and waits for all. */
void pst_pool_run(struct pst_pool *pool, pst_pool_fn fn, void *ctx);
/* Computes the items [*begin, *end) of n for this part; boundaries are
 * multiples of `grain`. */
void pst_pool_share(int64_t n, int64_t grain, unsigned part, unsigned parts,
                    int64_t *begin, int64_t *end);

#endif
