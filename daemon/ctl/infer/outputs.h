// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_INFER_OUTPUTS_H
#define PENSTOCK_DAEMON_CTL_INFER_OUTPUTS_H
/* `infer --data FILE --output FILE`: writes the model's outputs for the rows of
 * a file. */
#include "daemon/common/setup.h"
#include "stages/run/exec.h"

/*
 * Runs all samples of --data once, in order, and writes the outputs as
 * safetensors, named by their path in the model's output structure. Outputs
 * with rows are concatenated over the microbatches, scalars are stacked. The
 * last step is filled up with rows from the beginning of the file; their
 * outputs are dropped. *ret_samples: number of samples. The engine must have
 * been made with keep_outputs.
 */
enum pst_status pstctl_write_outputs(const struct pstd_config *config,
                                     const struct pst_batch *batch,
                                     struct pst_engine *engine,
                                     uint64_t *ret_samples,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
