// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_VALUES_H
#define PENSTOCK_STAGES_RUN_STATE_VALUES_H
/*
 * Addresses of an engine's values, for callers that read them in place. NULL:
 * the value is not in memory of this process, or not whole and in one piece.
 * *ret: the memory that has the value; its device may still have work enqueued
 * that changes it. Exec thread, between steps.
 */
#include "stages/run/exec.h"

/* Returns the memory of a local rank; NULL: there are fewer local ranks. */
struct pst_device_memory *pst_engine_device(const struct pst_engine *engine,
                                            unsigned local);

/* Returns plan->params[param], contiguous; later steps change it. */
const void *pst_engine_value(const struct pst_engine *engine, unsigned param,
                             struct pst_device_memory **ret);
/* Returns the gradient of a parameter in the last step, contiguous, with the
 * dtype that pst_engine_fetch_grad gives; also NULL if it is scaled
 * (--loss-scale), or if the loss does not depend on the parameter. */
const void *pst_engine_grad_value(const struct pst_engine *engine,
                                  unsigned param,
                                  struct pst_device_memory **ret);
/* Returns plan->outputs[i] of the last step, with the rows of all microbatches,
 * contiguous, until the next step; needs keep_outputs. */
const void *pst_engine_output_value(const struct pst_engine *engine, unsigned i,
                                    struct pst_device_memory **ret);

#endif
