// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIMD_ARITH_H
#define PENSTOCK_STAGES_OPS_SIMD_ARITH_H
#include "stages/ops/simd/simd.h"

PST_SIMD_UNARY_DECL(pst_simd_neg);
PST_SIMD_UNARY_DECL(pst_simd_abs);
PST_SIMD_UNARY_DECL(pst_simd_reciprocal);
PST_SIMD_UNARY_DECL(pst_simd_sqrt);
PST_SIMD_UNARY_DECL(pst_simd_rsqrt);
PST_SIMD_UNARY_DECL(pst_simd_square);
PST_SIMD_UNARY_DECL(pst_simd_cube);
PST_SIMD_BINARY_DECL(pst_simd_square_grad); /* dy, x of x^2 */
PST_SIMD_BINARY_DECL(pst_simd_cube_grad);   /* dy, x of x^3 */

#endif
