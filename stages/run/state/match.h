// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_MATCH_H
#define PENSTOCK_STAGES_RUN_STATE_MATCH_H
/* Is a checkpoint one of the model that an engine runs? Exec thread. */
#include "stages/files/checkpoint.h"

struct pst_engine;

/*
 * PST_ERR_MISMATCH if it is not. An engine takes the checkpoints of every model
 * that computes the same, whatever is trained in it and however it is cut;
 * any_model: of all whose tensors have the same names and shapes. One that
 * trains wants its seed and optimizer, too. Adapters have to be the same in
 * each case.
 */
enum pst_status pst_match_check(const struct pst_engine *engine,
                                const struct pst_checkpoint *ckpt,
                                bool any_model,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* True of a checkpoint that another export of the model wrote. */
bool pst_match_is_other(const struct pst_engine *engine,
                        const struct pst_checkpoint *ckpt);

#endif
