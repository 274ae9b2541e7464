// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/simd/simd.h"

#include "stages/ops/simd/optim.h"

const struct pst_simd_ops *pst_simd_best(enum pst_isa isa)
{
#if PST_HAVE_AVX512
    if (isa == PST_ISA_AVX512)
        return &pst_simd_ops_avx512;
#endif
#if PST_HAVE_AVX2
    if (isa >= PST_ISA_AVX2)
        return &pst_simd_ops_avx2;
#endif
    (void)isa;
    return &pst_simd_ops_any;
}
