// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_LOOPS_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_LOOPS_H
/*
 * Elementwise loops: pst_loop_NAME_any, _avx2 and _avx512 for each line of
 * loops.def. Operand k is at x[k]; bit k in `fixed` means that it is one number
 * for all elements. Loops of two operands accept fixed 0, 1, 2, those of three
 * 0 and 4. s are three further numbers. y may equal an x that is not fixed. n
 * >= 1.
 */
#include "stages/ops/cpu/simd/simd.h"

typedef void (*pst_loop_fn)(int64_t n, const void *const *x, unsigned fixed,
                            const float *s, void *y);

#define PST_LOOP_DECL(name)                                                    \
    PST_SIMD_DECL(void, pst_loop_##name,                                       \
                  (int64_t n, const void *const *x, unsigned fixed,            \
                   const float *s, void *y));
#define LOOP(name, n, expr)              PST_LOOP_DECL(name)
#define GUARDED(name, n, expr, ok, slow) PST_LOOP_DECL(name)
#define RANGED(name, n, expr, ok, slow)  PST_LOOP_DECL(name)
#define QUESTION(name, n, expr)          PST_LOOP_DECL(name)
#define LOGIC(name, n, expr)             PST_LOOP_DECL(name)
#define INTEGER(name, n, expr)           PST_LOOP_DECL(name)
#define COMPARE(name, n, expr)           PST_LOOP_DECL(name)
#define CHOICE(name, expr)               PST_LOOP_DECL(name)
#include "stages/ops/cpu/simd/loops.def"

/* Defines a loop of one operand as static pst_loop_simple_NAME_SUFFIX(n, x,
 * y). */
#define PST_LOOP_SIMPLE(name, suffix)                                          \
    static void pst_loop_simple_##name##_##suffix(int64_t n, const float *x,   \
                                                  float *y)                    \
    {                                                                          \
        static const float s[3] = {0.0f, 0.0f, 0.0f};                          \
        const void *const operand[1] = {x};                                    \
                                                                               \
        if (n > 0)                                                             \
            pst_loop_##name##_##suffix(n, operand, 0, s, y);                   \
    }

#endif
