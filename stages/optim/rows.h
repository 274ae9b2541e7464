// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPTIM_ROWS_H
#define PENSTOCK_STAGES_OPTIM_ROWS_H
/* Declares the rows of optims.def. */
#include "stages/optim/optim.h"

#define PST_OPTIM(id) extern const struct pst_optim pst_optim_##id;
#include "stages/optim/optims.def"
#undef PST_OPTIM

/* Sets the numbers of optimizers with two moving averages: betas, eps and the
 * corrections 1 - beta^t of update t = 1, 2, ... */
void pst_optim_set_moments(const struct pst_optim_options *options,
                           uint64_t update, struct pst_update *ret);

#endif
