// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_DEVICE_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_DEVICE_H
/*
 * A rank's arena and the tasks that access it. The engine opens it before the
 * rank starts. Exec thread, or the rank's own thread in a step.
 */
#include "stages/device/device.h"
#include "stages/optim/optim.h"

#include <stdatomic.h>

struct pst_layout;
struct pst_rank_role;

struct pst_rank_device {
    struct pst_device_memory mem;
    /* seed: sets the gradient of a loss; sumsq: adds up squares */
    pst_task_fn seed, copy, sum, sumsq;
    pst_task_fn updates[PST_OPTIM_MAX_ROWS]; /* by pst_optim_index */
    pst_task_fn ema;                         /* NULL: there are no averages */
    pst_task_fn pack, unpack;                /* NULL: all states are f32 */
    pst_task_fn downcast, upcast; /* NULL: nothing is gathered in bf16 */
    struct pst_pool *pool;
    size_t high_water; /* end of the part of the arena that steps used */
    /* True while another thread reads parameters and optimizer states: steps
     * run up to the update. */
    atomic_bool is_read;
    /* held_since: time at which the waiting update began to wait; 0: none
     * waits. held_s: seconds that updates waited since is_read was set. */
    double held_since, held_s;
};

/* Maps an arena of `size` bytes, finds the kernels, loads the parameters.
 * ordinal: number of the device. Borrows the pool. */
enum pst_status pst_rank_device_open(struct pst_rank_device *d,
                                     const struct pst_rank_role *role,
                                     const struct pst_layout *layout,
                                     unsigned ordinal, size_t size,
                                     struct pst_pool *pool,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Accepts {0}. */
void pst_rank_device_close(struct pst_rank_device *d);

/* PST_ERR_DEVICE if the device of that rank has failed, in work that it has
 * finished: bytes that were copied from it before may be wrong. The message
 * ends with `when`, such as " before ...", and the driver's reason. */
enum pst_status pst_rank_device_check(struct pst_rank_device *d, unsigned rank,
                                      const char *when,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* Called before each update; returns true if it has to wait for a thread that
 * reads the arena. */
bool pst_rank_is_held(struct pst_rank_device *d);

/* Records that a step used the arena up to `end`, rounded up to the alignment
 * of regions. */
void pst_rank_record_used(struct pst_rank_device *d, const unsigned char *end);

static inline unsigned char *pst_rank_at(const struct pst_rank_device *d,
                                         size_t offset)
{
    return d->mem.base + offset;
}

/* Copies from device to host; returns the host address. */
static inline const void *pst_rank_pull(struct pst_rank_device *d,
                                        size_t offset, size_t bytes)
{
    return pst_device_pull(&d->mem, pst_rank_at(d, offset), bytes);
}

#endif
