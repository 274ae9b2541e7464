// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_SIMD_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_SIMD_H
/*
 * One source, three instruction sets. Every NAME.c below simd/ is compiled once
 * per set with PST_SIMD_SUFFIX = any, avx2, avx512 and defines its functions as
 * PST_SIMD(name), so that they become name_any, name_avx2, name_avx512.
 *
 * They are plain loops over restrict pointers that the compiler vectorises
 * without -ffast-math; sums have explicit lanes in a fixed order. The bits of a
 * result depend on the instruction set, never on timing.
 *
 * Nothing here may run before the CPU's features are known: kernels are chosen
 * by their rows' isa, other functions by pst_simd_best.
 *
 * Arrays x, y ... never overlap unless a comment says so.
 */
#include "stages/ops/core/op.h"

/* 0 or 1, set by the build: 1 if the compiler supports the instruction set. */
#ifndef PST_HAVE_AVX2
#define PST_HAVE_AVX2 0
#endif
#ifndef PST_HAVE_AVX512
#define PST_HAVE_AVX512 0
#endif

#define PST_SIMD_PASTE_(a, b) a##_##b
#define PST_SIMD_PASTE(a, b)  PST_SIMD_PASTE_(a, b)
#ifdef PST_SIMD_SUFFIX
#define PST_SIMD(name) PST_SIMD_PASTE(name, PST_SIMD_SUFFIX)
#endif

/* PST_SIMD_DECL(void, pst_simd_exp, (int64_t n, ...)); declares all three. */
#define PST_SIMD_DECL(ret, name, params)                                       \
    ret name##_any params;                                                     \
    ret name##_avx2 params;                                                    \
    ret name##_avx512 params

/* X(suffix, ISA) for each compiled set, best first. */
#if PST_HAVE_AVX512
#define PST_SIMD_EACH_AVX512(X) X(avx512, AVX512)
#else
#define PST_SIMD_EACH_AVX512(X)
#endif
#if PST_HAVE_AVX2
#define PST_SIMD_EACH_AVX2(X) X(avx2, AVX2)
#else
#define PST_SIMD_EACH_AVX2(X)
#endif
#define PST_SIMD_EACH(X)                                                       \
    PST_SIMD_EACH_AVX512(X) PST_SIMD_EACH_AVX2(X) X(any, ANY)

/*
 * Rows of a kernel table, best first, for run functions FN_avx512, FN_avx2,
 * FN_any; the row's name is TEXT with the same endings:
 *     PST_SIMD_ROWS("gelu_f32", gelu_f32, PST_D(F32), flags, NULL, NULL, 1e-6)
 */
#if PST_HAVE_AVX512
#define PST_SIMD_ROW_AVX512(text, fn, ...)                                     \
    PST_SIMD_ROW(text "_avx512", PST_ISA_AVX512, fn##_avx512, __VA_ARGS__),
#else
#define PST_SIMD_ROW_AVX512(text, fn, ...)
#endif
#if PST_HAVE_AVX2
#define PST_SIMD_ROW_AVX2(text, fn, ...)                                       \
    PST_SIMD_ROW(text "_avx2", PST_ISA_AVX2, fn##_avx2, __VA_ARGS__),
#else
#define PST_SIMD_ROW_AVX2(text, fn, ...)
#endif
#define PST_SIMD_ROW(text, set, fn, mask, bits, can, bytes, tol)               \
    {                                                                          \
        .name = (text), .isa = (set), .dtypes = (mask), .flags = (bits),       \
        .supports = (can), .scratch = (bytes), .run = (fn),                    \
        .tolerance = (tol),                                                    \
    }
#define PST_SIMD_ROWS(text, fn, ...)                                           \
    PST_SIMD_ROW_AVX512(text, fn, __VA_ARGS__)                                 \
    PST_SIMD_ROW_AVX2(text, fn, __VA_ARGS__)                                   \
    PST_SIMD_ROW(text "_simd", PST_ISA_ANY, fn##_any, __VA_ARGS__)

/* Expand to their arguments if the set is compiled, else to nothing. */
#if PST_HAVE_AVX2
#define PST_SIMD_IF_AVX2(...) __VA_ARGS__
#else
#define PST_SIMD_IF_AVX2(...)
#endif
#if PST_HAVE_AVX512
#define PST_SIMD_IF_AVX512(...) __VA_ARGS__
#else
#define PST_SIMD_IF_AVX512(...)
#endif

/* --- loops on gradients (optim/optim.c; optimizers: optim.h) ------------- */

struct pst_simd_ops {
    /* Returns the sum of x^2 in double. */
    double (*sumsq)(int64_t n, const float *x);
    void (*scale)(int64_t n, float *x, float a);      /* x *= a */
    void (*add)(int64_t n, float *y, const float *x); /* y += x */
};

/* Returns the loops for that instruction set. */
const struct pst_simd_ops *pst_simd_best(enum pst_isa isa);

#endif
