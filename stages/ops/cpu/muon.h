// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_MUON_H
#define PENSTOCK_STAGES_OPS_CPU_MUON_H
/* The step of Muon (stages/optim/muon.c). Any thread. */
#include "stages/graph/tensor.h"

/* Returns the bytes of scratch of the update of a matrix. */
size_t pst_muon_work(const struct pst_meta *param);

#endif
