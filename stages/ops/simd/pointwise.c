// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/simd/simd.h"

#include "stages/ops/simd/vecmath.h"

#define UNARY(name, formula)                                                   \
    void PST_SIMD(name)(int64_t n, const float *px, float *py)                 \
    {                                                                          \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                   \
        {                                                                      \
            const float x = px[i];                                             \
                                                                               \
            py[i] = (formula);                                                 \
        }                                                                      \
    }

/* dy is the gradient that arrives, x what the declaration says. */
#define BINARY(name, formula)                                                  \
    void PST_SIMD(name)(int64_t n, const float *pa, const float *pb,           \
                        float *py)                                             \
    {                                                                          \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                   \
        {                                                                      \
            const float dy = pa[i], x = pb[i];                                 \
                                                                               \
            py[i] = (formula);                                                 \
        }                                                                      \
    }

static inline float gelu(float x)
{
    return 0.5f * x * (1.0f + pst_vm_erf(x * 0.707106781f));
}

/* Phi(x) + x phi(x) */
static inline float gelu_slope(float x)
{
    /* Below e^-80 the product would be subnormal, which is slow. */
    const float q = x * x < 160.0f ? -0.5f * x * x : -80.0f;
    const float e = pst_vm_exp_small(q);
    const float density = q > -80.0f ? 0.398942280f * e : 0.0f;

    return 0.5f * (1.0f + pst_vm_erf(x * 0.707106781f)) + x * density;
}

#define GELU_A 0.797884561f /* sqrt(2 / pi) */
#define GELU_B 0.044715f

/* 2u, with (1 + tanh(u)) / 2 = sigmoid(2u) */
static inline float gelu_tanh_arg(float x)
{
    return 2.0f * GELU_A * (x + GELU_B * x * x * x);
}

static inline float gelu_tanh(float x)
{
    return x * pst_vm_sigmoid(gelu_tanh_arg(x));
}

/* s + x s (1 - s) d(2u)/dx with 1 - s = e s, which does not cancel. */
static inline float gelu_tanh_slope(float x)
{
    const float z = gelu_tanh_arg(x);
    const float e = pst_vm_exp_small(z < -87.0f ? 87.0f : -z);
    const float s = 1.0f / (1.0f + e);
    const float inner = 2.0f * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
    const float slope = s + x * inner * (e * s) * s;

    /* Infinities give NaN, as in PyTorch. */
    return (z < -87.0f ? 0.0f : z > 87.0f ? 1.0f : slope) + 0.0f * x;
}

static inline float silu_slope(float x)
{
    const float s = pst_vm_sigmoid(x);

    return s * (1.0f + x * (1.0f - s));
}

UNARY(pst_simd_exp, pst_vm_exp(x))
UNARY(pst_simd_log, pst_vm_log(x))
UNARY(pst_simd_tanh, pst_vm_tanh(x))
UNARY(pst_simd_sigmoid, pst_vm_sigmoid(x))
UNARY(pst_simd_silu, x *pst_vm_sigmoid(x))
UNARY(pst_simd_erf, pst_vm_erf(x))
UNARY(pst_simd_gelu, gelu(x))
UNARY(pst_simd_gelu_tanh, gelu_tanh(x))
UNARY(pst_simd_relu, x < 0.0f ? 0.0f : x)
BINARY(pst_simd_tanh_grad, dy *(1.0f - x * x))
BINARY(pst_simd_sigmoid_grad, dy *(1.0f - x) * x)
BINARY(pst_simd_silu_grad, dy *silu_slope(x))
BINARY(pst_simd_gelu_grad, dy *gelu_slope(x))
BINARY(pst_simd_gelu_tanh_grad, dy *gelu_tanh_slope(x))
/* Comparisons with NaN are false: NaN goes through, as in PyTorch. */
BINARY(pst_simd_relu_grad, x <= 0.0f ? 0.0f : dy)
BINARY(pst_simd_add, dy + x)
BINARY(pst_simd_sub, dy - x)
BINARY(pst_simd_mul, dy *x)
BINARY(pst_simd_div, dy / x)
