// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_LEND_H
#define PENSTOCK_STAGES_RUN_RANK_LEND_H
/*
 * Inputs of the model that the caller lends in its own memory for a step
 * (pst_engine_lend). An input of a stage is free if nothing writes, sends or
 * keeps it, and no kernel on the host reads it for a device. A free input has a
 * region of its own, without slots: number `n_regions` + its index in the
 * stage's graph. The address of that region is that of the input's slot, or of
 * the caller's memory. Exec thread, when a rank starts.
 */
#include "stages/layout/actions.h"

/* True if input number i of the program's graph is free. */
bool pst_input_is_free(const struct pst_program *program, unsigned i);

/* Lets all kernels read free inputs in their own regions. A second call for the
 * same program does nothing. */
void pst_inputs_redirect(struct pst_program *program, unsigned n_regions);

/* For each FILL of a free input in action number x, sets instr->cells to the
 * elements of `base` by which this and later actions read the input. Returns
 * false if memory runs out. heap: owns the arrays. */
bool pst_inputs_link(const struct pst_actions *actions, unsigned x,
                     unsigned n_regions, struct pst_arena *heap);

#endif
