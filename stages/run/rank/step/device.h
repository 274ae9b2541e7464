// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_DEVICE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_DEVICE_H
/*
 * A rank's arena and the kernels that touch it. Opened when the rank starts;
 * of a rank that is only planned it is zeros. Exec thread, or the rank's own
 * in a step.
 */
#include "stages/device/device.h"

#include <stdatomic.h>

struct pst_layout;
struct pst_rank_role;

struct pst_rank_device {
    struct pst_device_memory mem;
    pst_task_fn seed, copy, sum, sumsq; /* besides those of operators */
    pst_task_fn update;                 /* NULL: no optimizer */
    pst_task_fn narrow, upcast;         /* NULL: nothing is gathered in bf16 */
    struct pst_pool *pool;
    size_t high_water; /* highest byte that steps have used + 1 */
    /* Another thread reads parameters and states of the optimizer: steps go on,
     * up to the update. */
    atomic_bool is_read;
    double held_since, held_s; /* the update waits, has waited for it */
};

/* Maps the arena, finds the kernels, loads the parameters. Borrows the pool. */
enum pst_status pst_rank_device_open(struct pst_rank_device *d,
                                     const struct pst_rank_role *role,
                                     const struct pst_layout *layout,
                                     struct pst_pool *pool,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Also of {0}. */
void pst_rank_device_close(struct pst_rank_device *d);

/* Asked before each update: is it to wait? */
bool pst_rank_is_held(struct pst_rank_device *d);

/* A step used the arena up to there; regions end at multiples of the
 * alignment. */
void pst_rank_reach(struct pst_rank_device *d, const unsigned char *end);

static inline unsigned char *pst_rank_at(const struct pst_rank_device *d,
                                         size_t offset)
{
    return d->mem.base + offset;
}

/* The host gets the bytes at that offset, and where it may read them. */
static inline const void *pst_rank_pull(struct pst_rank_device *d,
                                        size_t offset, size_t bytes)
{
    return pst_device_pull(&d->mem, pst_rank_at(d, offset), bytes);
}

#endif
