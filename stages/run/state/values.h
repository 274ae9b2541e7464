// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_VALUES_H
#define PENSTOCK_STAGES_RUN_STATE_VALUES_H
/*
 * Where an engine has values, for callers that read them in place. NULL: not
 * in memory of this process, or not whole and in one piece. Exec thread,
 * between steps.
 */
#include "stages/run/exec.h"

/* Returns plan->params[param], contiguous; later steps change it. */
const void *pst_engine_value(const struct pst_engine *engine, unsigned param);
/* Returns plan->outputs[i] of the last step, with the rows of all microbatches,
 * contiguous, until the next step; needs keep_outputs. */
const void *pst_engine_output_value(const struct pst_engine *engine,
                                    unsigned i);

#endif
