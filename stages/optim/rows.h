// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPTIM_ROWS_H
#define PENSTOCK_STAGES_OPTIM_ROWS_H
/* Declares the rows of optims.def. */
#include "stages/optim/optim.h"

#define PST_OPTIM(id) extern const struct pst_optim pst_optim_##id;
#include "stages/optim/optims.def"
#undef PST_OPTIM

#endif
