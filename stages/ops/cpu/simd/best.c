// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/simd.h"

#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/cpu/simd/optim/optim.h"
#include "stages/ops/cpu/simd/optim/states.h"
#include "stages/ops/cpu/simd/whole.h"

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

#define PICK(name, isa)                                                        \
    PST_SIMD_IF_AVX512(if ((isa) == PST_ISA_AVX512) return name##_avx512;)     \
    PST_SIMD_IF_AVX2(if ((isa) >= PST_ISA_AVX2) return name##_avx2;)           \
    (void)(isa);                                                               \
    return name##_any

const struct pst_simd_updates *pst_simd_updates_best(enum pst_isa isa)
{
    PICK(&pst_simd_updates, isa);
}

const struct pst_simd_whole_updates *pst_simd_whole_updates_best(
    enum pst_isa isa)
{
    PICK(&pst_simd_whole_updates, isa);
}

const struct pst_simd_states *pst_simd_states_best(enum pst_isa isa)
{
    PICK(&pst_simd_states, isa);
}

const struct pst_simd_whole *pst_simd_whole_best(enum pst_isa isa)
{
    PICK(&pst_simd_whole, isa);
}

static pst_to_16_fn to_bf16(enum pst_isa isa)
{
    PICK(pst_simd_to_bf16, isa);
}

static pst_to_16_fn to_f16(enum pst_isa isa)
{
    PICK(pst_simd_to_f16, isa);
}

pst_to_16_fn pst_simd_to_16_best(enum pst_dtype dtype, enum pst_isa isa)
{
    return dtype == PST_F16 ? to_f16(isa) : to_bf16(isa);
}

static pst_from_16_fn from_bf16(enum pst_isa isa)
{
    PICK(pst_simd_from_bf16, isa);
}

static pst_from_16_fn from_f16(enum pst_isa isa)
{
    PICK(pst_simd_from_f16, isa);
}

pst_from_16_fn pst_simd_from_16_best(enum pst_dtype dtype, enum pst_isa isa)
{
    return dtype == PST_F16 ? from_f16(isa) : from_bf16(isa);
}

pst_round_bf16_fn pst_simd_round_bf16_best(enum pst_isa isa)
{
    PICK(pst_simd_round_bf16, isa);
}
