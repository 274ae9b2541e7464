// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_AVERAGE_H
#define PENSTOCK_STAGES_RUN_STATE_AVERAGE_H
/*
 * Averages that an optimizer keeps itself (struct pst_optim.average). Outside
 * of training they stand for their parameters: in evaluations, in whatever
 * reads a checkpoint without training, and where a parameter leaves its
 * optimizer. Exec thread, or a client that has opened a checkpoint.
 */
#include "stages/files/checkpoint/checkpoint.h"

struct pst_engine;
struct pst_rank;
struct pst_rank_param;

/* Returns 1 + index of the optimizer state that stands for a parameter of the
 * engine; 0 if there is none, or if no update has set it. */
unsigned pst_engine_average(const struct pst_engine *engine, unsigned param);
/* True if the engine trains the parameter with an optimizer that has such an
 * average, set or not. */
bool pst_engine_keeps_average(const struct pst_engine *engine, unsigned param);

/* Sets the states of the rank's elements that hold a value of the parameter
 * ('p' in struct pst_optim.signs) to the parameter, which has been set. */
void pst_engine_restart_average(const struct pst_engine *engine,
                                struct pst_rank *r,
                                const struct pst_rank_param *p);

/* Returns the saved average that stands for the parameter with that name in a
 * checkpoint; NULL if there is none, or if no update had set it. */
const struct pst_safetensors_entry *pst_checkpoint_average(
    const struct pst_checkpoint *ckpt, const char *fqn);
/* True if the checkpoint has any such average. */
bool pst_checkpoint_has_average(const struct pst_checkpoint *ckpt);

#endif
