// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_LEND_H
#define PENSTOCK_STAGES_RUN_RANK_LEND_H
/*
 * Inputs of the model that the caller lends in its own memory for a step
 * (pst_engine_lend). Each input of a stage that nothing writes, sends or keeps,
 * and that no kernel on the host reads for a device, has a region of its own,
 * without slots: number `n_regions` + its index in the stage's graph. Its
 * address is that of the input in its slot, or of the caller's memory. Exec
 * thread, when a rank starts.
 */
#include "stages/layout/actions.h"

/* True if input number i of the program's graph can be read anywhere. */
bool pst_input_is_free(const struct pst_program *program, unsigned i);

/* Lets all kernels read free inputs by their own regions. Does nothing in a
 * program for which it was called before. */
void pst_inputs_redirect(struct pst_program *program, unsigned n_regions);

/* Sets instr->cells of all FILL of free inputs: the addresses in the bases of
 * the actions that read the input. NULL memory: false. heap: owns the arrays.
 */
bool pst_inputs_link(const struct pst_actions *actions, unsigned x,
                     unsigned n_regions, struct pst_arena *heap);

#endif
