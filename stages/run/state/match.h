// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_MATCH_H
#define PENSTOCK_STAGES_RUN_STATE_MATCH_H
/* Is a checkpoint one of the model that an engine runs? Exec thread. */
#include "stages/files/checkpoint.h"

struct pst_engine;

/*
 * PST_ERR_MISMATCH if it is not. One that trains goes on with its own
 * checkpoints alone, by the digest of the model and by seed and optimizer. One
 * that does not takes those of every model that computes the same, whatever is
 * trained in it and however it is cut; any_model: of all whose tensors have the
 * same names and shapes. Adapters have to be the same in each case.
 */
enum pst_status pst_match_check(const struct pst_engine *engine,
                                const struct pst_checkpoint *ckpt,
                                bool any_model,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
