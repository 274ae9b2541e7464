// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_ADAFACTOR_H
#define PENSTOCK_STAGES_OPS_CPU_ADAFACTOR_H
/* The step of Adafactor (stages/optim/adafactor.c). Any thread. */
#include "stages/graph/tensor.h"

/* Returns the bytes of scratch of an update. */
size_t pst_adafactor_work(const struct pst_meta *param);

#endif
