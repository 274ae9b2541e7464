// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_AVERAGE_H
#define PENSTOCK_STAGES_RUN_STATE_AVERAGE_H
/*
 * Averages that an optimizer keeps itself (struct pst_optim.average). Outside
 * of training they replace the values of their parameters: in evaluations, for
 * all that reads a checkpoint without training, and where a parameter gets
 * another optimizer. Exec thread, or a client that has opened a checkpoint.
 */
#include "stages/files/checkpoint/checkpoint.h"

struct pst_engine;
struct pst_rank;
struct pst_rank_param;

/* Returns 1 + index of the optimizer state that replaces a parameter of the
 * engine (see above); 0 if there is none, or if no update has set it. */
unsigned pst_engine_average(const struct pst_engine *engine, unsigned param);
/* True if the engine trains the parameter with an optimizer that has such an
 * average, set or not. */
bool pst_engine_keeps_average(const struct pst_engine *engine, unsigned param);

/* Copies the new value of a parameter to those of its optimizer states that
 * hold a value of the parameter ('p' in struct pst_optim.signs), for the
 * elements of this rank. */
void pst_engine_restart_average(const struct pst_engine *engine,
                                struct pst_rank *r,
                                const struct pst_rank_param *p);

/* Returns the saved average that replaces the parameter with that name in a
 * checkpoint; NULL if there is none, or if no update had set it. */
const struct pst_safetensors_entry *pst_checkpoint_average(
    const struct pst_checkpoint *ckpt, const char *fqn);
/* True if the checkpoint has any such average. */
bool pst_checkpoint_has_average(const struct pst_checkpoint *ckpt);

#endif
