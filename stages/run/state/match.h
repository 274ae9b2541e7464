// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_MATCH_H
#define PENSTOCK_STAGES_RUN_STATE_MATCH_H
/* Checks that a checkpoint belongs to the model of an engine. Exec thread. */
#include "stages/files/checkpoint/checkpoint.h"

struct pst_engine;

/*
 * Returns PST_ERR_MISMATCH if the engine does not accept the checkpoint. It
 * accepts checkpoints of every model that computes the same; it does not matter
 * which parameters are trained and how the model is cut. any_model: it accepts
 * checkpoints of every model whose tensors have the same names and shapes. An
 * engine that trains also requires the same seed and optimizer. Adapters must
 * always be the same.
 */
enum pst_status pst_match_check(const struct pst_engine *engine,
                                const struct pst_checkpoint *ckpt,
                                bool any_model,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* True if another export of the model wrote the checkpoint. */
bool pst_match_is_other(const struct pst_engine *engine,
                        const struct pst_checkpoint *ckpt);

#endif
