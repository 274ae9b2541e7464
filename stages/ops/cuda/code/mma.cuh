// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_MMA_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_MMA_CUH
/*
 * Matrix instructions of a warp: m16n8k16 on bf16 or f16, with sums in f32. All
 * lanes of the warp take part. Lane l holds, with g = l / 4 and t = 2 (l % 4),
 *     a (16 x 16): rows g, g + 8, g, g + 8 at the columns t, t, t + 8, t + 8,
 *     b (16 x 8): column g at the rows t, t + 8,
 *     d (16 x 8): row g, then row g + 8, at the columns t and t + 1,
 * where each word of a and b has two adjacent elements, the first one in its
 * low half (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
 * type").
 */
#include "stages/ops/cuda/code/device.cuh"

/* Elements of a row of the matrices that pst_load_matrices loads, which are
 * 8 x 8. */
#define PST_MATRIX 8

#ifdef __CUDACC__
/* Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l gives
 * the address of row l % 8 of matrix l / 8, a multiple of 16 bytes. Word i has
 * the elements t and t + 1 of row g of matrix i. */
PST_DEVICE void pst_load_matrices(uint32_t (&to)[4], const uint16_t *row)
{
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"((unsigned)__cvta_generic_to_shared(row))
        : "memory");
}

/* Loads the transposed matrices: word i has the elements g of the rows t and t
 * + 1 of matrix i. */
PST_DEVICE void pst_load_transposed(uint32_t (&to)[4], const uint16_t *row)
{
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"((unsigned)__cvta_generic_to_shared(row))
        : "memory");
}

/* Returns 2^x with a relative error of about 2^-22; subnormal results are 0. */
PST_DEVICE float pst_exp2(float x)
{
    float ret;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(ret) : "f"(x));
    return ret;
}

#define PST_MMA(type)                                                          \
    asm volatile(                                                              \
        "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "         \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"      \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#define PST_PACK(type)                                                         \
    asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(ret) : "f"(high), "f"(low))
#else
PST_DEVICE void pst_load_matrices(uint32_t (&to)[4], const uint16_t *row)
{
    emu_load_matrices(to, row, false);
}

PST_DEVICE void pst_load_transposed(uint32_t (&to)[4], const uint16_t *row)
{
    emu_load_matrices(to, row, true);
}

PST_DEVICE float pst_exp2(float x)
{
    return exp2f(x);
}

#define PST_MMA(type)  emu_mma(d, a, b0, b1, number)
#define PST_PACK(type) ret = (uint32_t)bits(low) | (uint32_t)bits(high) << 16
#endif

/* Elements of 16 bits, pst_mma_bf16 and pst_mma_f16. mma: d += a b. pack:
 * rounds two numbers to one word. */
#define PST_MMA_TYPE(name)                                                     \
    struct pst_mma_##name {                                                    \
        PST_DEVICE float number(uint16_t x)                                    \
        {                                                                      \
            return pst_from_##name(x);                                         \
        }                                                                      \
                                                                               \
        PST_DEVICE uint16_t bits(float x)                                      \
        {                                                                      \
            return pst_to_##name(x);                                           \
        }                                                                      \
                                                                               \
        PST_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4],             \
                            uint32_t b0, uint32_t b1)                          \
        {                                                                      \
            PST_MMA(#name);                                                    \
        }                                                                      \
                                                                               \
        PST_DEVICE uint32_t pack(float low, float high)                        \
        {                                                                      \
            uint32_t ret;                                                      \
                                                                               \
            PST_PACK(#name);                                                   \
            return ret;                                                        \
        }                                                                      \
    };

PST_MMA_TYPE(bf16)
PST_MMA_TYPE(f16)

#endif
