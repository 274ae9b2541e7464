// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_FUNCTIONS_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_FUNCTIONS_CUH
/*
 * The functions of loops.def, a struct pst_fn_NAME each. n: number of operands;
 * at(): the result of one element.
 */
#include "stages/ops/cuda/code/math.cuh"

#define PST_LOOP_UNUSED(...) (void)sizeof(__VA_ARGS__)

#define LOOP(name, n_args, expr)                                               \
    struct pst_fn_##name {                                                     \
        static const int n = n_args;                                           \
        PST_DEVICE float at(float a, float b, float c, float s0, float s1,     \
                            float s2)                                          \
        {                                                                      \
            PST_LOOP_UNUSED(a + b + c + s0 + s1 + s2);                         \
            return (float)(expr);                                              \
        }                                                                      \
    };
/* `slow` is valid everywhere, and is not slow on a GPU. */
#define GUARDED(name, n_args, expr, ok, slow) LOOP(name, n_args, slow)
#define RANGED(name, n_args, expr, ok, slow)  LOOP(name, n_args, slow)
#define PST_FUNCTION_OF(name, n_args, T, R, expr)                              \
    struct pst_fn_##name {                                                     \
        static const int n = n_args;                                           \
        PST_DEVICE R at(T a, T b)                                              \
        {                                                                      \
            PST_LOOP_UNUSED(a + b);                                            \
            return (R)(expr);                                                  \
        }                                                                      \
    };
#define QUESTION(name, n_args, expr)                                           \
    PST_FUNCTION_OF(name, n_args, float, uint8_t, expr)
#define LOGIC(name, n_args, expr)                                              \
    PST_FUNCTION_OF(name, n_args, int64_t, uint8_t, expr)
#define INTEGER(name, n_args, expr)                                            \
    PST_FUNCTION_OF(name, n_args, int64_t, int64_t, expr)
#define COMPARE(name, n_args, expr)                                            \
    PST_FUNCTION_OF(name, n_args, int64_t, uint8_t, expr)
#define CHOICE(name, expr)                                                     \
    struct pst_fn_##name {                                                     \
        static const int n = 3;                                                \
        PST_DEVICE float at(bool a, float b, float c)                          \
        {                                                                      \
            return (expr);                                                     \
        }                                                                      \
    };
#include "stages/ops/cpu/simd/loops.def"
#undef PST_FUNCTION_OF

#endif
