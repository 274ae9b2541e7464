// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_COMPLEX_ROWS_H
#define PENSTOCK_STAGES_OPS_COMPLEX_ROWS_H
/* Shared parts of formulas on complex numbers, which are pairs (complex.c). */
#include "stages/ops/formula/formula.h"

#define COMPLEX(id, schema, formula)                                           \
    PST_REWRITE_FORMULA(complex_##id, "complex::" schema, formula)
#define FROM_REAL(id, schema, formula)                                         \
    PST_REWRITE_FORMULA(from_real_##id, "from_real::" schema, formula)

/* Define a + i b = self, and c + i d = other. */
#define ONE "a = select.int(self, -1, 0); b = select.int(self, -1, 1);"
#define TWO ONE "c = select.int(other, -1, 0); d = select.int(other, -1, 1);"
/* m: the power of two nearest to the larger of |x| and |y|. Dividing by it is
 * exact, and squares then neither overflow nor underflow. */
#define SCALE(x, y)                                                            \
    "top = detach(maximum(abs(" x "), abs(" y ")));"                           \
    "power = top / (frexp.Tensor(top)[0] * 2);"                                \
    "m = isfinite(power) ? power : 1.0;"

#endif
