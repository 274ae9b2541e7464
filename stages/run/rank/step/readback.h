// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_READBACK_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_READBACK_H
/*
 * What the host learns of a step: the first fault of a kernel, losses, squares
 * of gradients, what the update before left as it was. Kernels leave it at the
 * begin of the arena (struct pst_readback of the layout), and the host reads
 * all of it in one copy at the end of the step. The rank's own thread.
 */
#include "stages/layout/layout.h"
#include "stages/ops/core/fault.h"
#include "stages/run/rank/step/device.h"

/* The host's copy, until the next one is made. */
struct pst_readback_copy {
    const struct pst_fault *fault;
    const uint64_t *stayed;      /* the parameter and 1, how many elements */
    const unsigned char *losses; /* by microbatch of the rank, each of the
                                    loss's dtype in PST_READBACK_LOSS bytes */
    const double *squares;       /* by layout->params; where counted */
};

/* Before the first kernel of a step: no fault. */
void pst_readback_begin(const struct pst_layout *layout,
                        struct pst_rank_device *d);
/* Sums the squares of all gradients that this rank counts. */
void pst_readback_measure(const struct pst_layout *layout,
                          struct pst_rank_device *d);
/* Waits for the device. */
struct pst_readback_copy pst_readback_take(const struct pst_layout *layout,
                                           struct pst_rank_device *d);

static inline struct pst_fault *pst_readback_fault(
    const struct pst_layout *layout, const struct pst_rank_device *d)
{
    return (struct pst_fault *)pst_rank_at(d, layout->readback.fault);
}

#endif
