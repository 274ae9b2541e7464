// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_READBACK_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_READBACK_H
/*
 * Results of a step for the host: the first fault of a kernel, losses, squares
 * of gradients, elements that the previous update skipped. Kernels write them
 * to the start of the arena (struct pst_readback of the layout), and the host
 * reads all in one copy at the end of the step. The rank's own thread.
 */
#include "stages/layout/layout.h"
#include "stages/ops/core/fault.h"
#include "stages/run/rank/step/device.h"

/* The host's copy of the results, valid until the next pst_readback_to_host. */
struct pst_readback_copy {
    const struct pst_fault *fault;
    /* [0]: the first parameter with skipped elements, + 1; [1]: their number */
    const uint64_t *stayed;
    /* by microbatch of the replica, each in the loss's dtype, PST_READBACK_LOSS
     * bytes apart */
    const unsigned char *losses;
    /* sum of squares of each of layout->params that is `counted` */
    const double *squares;
};

/* Clears the fault, before the first kernel of a step. */
void pst_readback_begin(const struct pst_layout *layout,
                        struct pst_rank_device *d);
/* Sums the squares of all gradients that this rank counts. */
void pst_readback_measure(const struct pst_layout *layout,
                          struct pst_rank_device *d);
/* Copies the results to the host; waits for the device. */
struct pst_readback_copy pst_readback_to_host(const struct pst_layout *layout,
                                              struct pst_rank_device *d);

static inline struct pst_fault *pst_readback_fault(
    const struct pst_layout *layout, const struct pst_rank_device *d)
{
    return (struct pst_fault *)pst_rank_at(d, layout->readback.fault);
}

#endif
