// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_ORDER_H
#define PENSTOCK_STAGES_OPS_CORE_ORDER_H
/*
 * Index of an operator with kernels in a device's table: `[PST_AT_relu] =
 * &...`. The numbers are only valid within one build. No other code may
 * identify operators by them: elsewhere an operator is identified by its row's
 * address.
 */

enum pst_op_order {
#define PST_OP(id) PST_AT_##id,
#define PST_OP_NO_KERNEL(id)
#include "stages/ops/core/ops.def"
    PST_N_KERNEL_OPS
};

#endif
