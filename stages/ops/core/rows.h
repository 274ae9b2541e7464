// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_ROWS_H
#define PENSTOCK_STAGES_OPS_CORE_ROWS_H
/*
 * Declares the rows of ops.def, for code that names one: `&pst_op_clone`.
 * Include it in sources only, not in headers: adding a row rebuilds all its
 * users.
 */
#include "stages/ops/core/op.h"

#define PST_OP(id) extern const struct pst_op pst_op_##id;
#include "stages/ops/core/ops.def"

#endif
