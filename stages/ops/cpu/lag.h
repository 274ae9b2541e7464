// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_LAG_H
#define PENSTOCK_STAGES_OPS_CPU_LAG_H
/*
 * Queues of a device that lags, for tests: work is kept in lists and done late,
 * in a seeded random order among those that events allow. Code that misses an
 * event reads stale bytes. Optionally fails from the n-th piece of work on.
 *
 * Threads: one at a time per queue set.
 */
#include "stages/device/device.h"

struct pst_lag;

/* Creates the queues. shift: offset from device addresses, which the work
 * contains, to host memory. fail: number, from 1, of the piece of work that
 * fails together with all later ones; 0: none. Returns NULL if memory runs
 * out. */
struct pst_lag *pst_lag_new(ptrdiff_t shift, uint64_t seed, uint64_t fail);
ptrdiff_t pst_lag_shift(const struct pst_lag *lag);
/* Drops unfinished work. NULL is accepted. */
void pst_lag_free(struct pst_lag *lag);

/* Implementations of the members of struct pst_device. */
void pst_lag_copy(struct pst_lag *lag, enum pst_queue queue, void *to,
                  const void *from, size_t size);
void pst_lag_zero(struct pst_lag *lag, void *to, size_t size);
void pst_lag_launch(struct pst_lag *lag, const struct pst_kernel *kernel,
                    const struct pst_call *frame);
void pst_lag_run(struct pst_lag *lag, pst_task_fn fn,
                 const struct pst_task *task);
void pst_lag_record(struct pst_lag *lag, enum pst_queue queue,
                    struct pst_event *event);
void pst_lag_wait(struct pst_lag *lag, enum pst_queue queue,
                  const struct pst_event *event);
/* Returns the state of the event as `poll` does, after doing some of the
 * work. */
enum pst_status pst_lag_poll(struct pst_lag *lag,
                             const struct pst_event *event);
double pst_lag_time(const struct pst_lag *lag, const struct pst_event *event);

#endif
