// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_INFER_OUTPUTS_H
#define PENSTOCK_DAEMON_CTL_INFER_OUTPUTS_H
/* `infer --data FILE --output FILE`: the model's outputs for given rows. */
#include "daemon/common/setup.h"
#include "stages/run/exec.h"

/*
 * Runs all samples of --data once, in order, and writes the outputs as
 * safetensors, named by their place in the model's own structure. Rows of the
 * microbatches are joined where they are, scalars stacked; what the last step
 * takes again from the file's beginning is cut off. *ret_samples: how many
 * there were. The engine keeps its outputs.
 */
enum pst_status pstctl_write_outputs(const struct pstd_config *config,
                                     const struct pst_batch *batch,
                                     struct pst_engine *engine,
                                     uint64_t *ret_samples,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
