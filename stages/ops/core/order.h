// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_ORDER_H
#define PENSTOCK_STAGES_OPS_CORE_ORDER_H
/*
 * Where an operator that runs kernels stands in a device's table of them:
 * `[PST_AT_relu] = &...`. The numbers are those of one build. Nothing else may
 * tell operators apart by them: elsewhere an operator is its row's address.
 */

enum pst_op_order {
#define PST_OP(id) PST_AT_##id,
#define PST_OP_NO_KERNEL(id)
#include "stages/ops/core/ops.def"
    PST_N_KERNEL_OPS
};

#endif
