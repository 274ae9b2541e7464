// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/loops.h"

#include "stages/ops/cpu/simd/special.h"
#include "stages/ops/cpu/simd/vecmath.h"
#include "stages/ops/pointwise/special_math.h"

static PST_ALWAYS_INLINE float gelu(float x)
{
    return 0.5f * x * (1.0f + pst_vm_erf(x * 0.707106781f));
}

/* Phi(x) + x phi(x) */
static PST_ALWAYS_INLINE float gelu_slope(float x)
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
static PST_ALWAYS_INLINE float gelu_tanh_arg(float x)
{
    return 2.0f * GELU_A * (x + GELU_B * x * x * x);
}

static PST_ALWAYS_INLINE float gelu_tanh(float x)
{
    return x * pst_vm_sigmoid(gelu_tanh_arg(x));
}

/* s + x s (1 - s) d(2u)/dx with 1 - s = e s, which does not cancel. */
static PST_ALWAYS_INLINE float gelu_tanh_slope(float x)
{
    const float z = gelu_tanh_arg(x);
    const float e = pst_vm_exp_small(z < -87.0f ? 87.0f : -z);
    const float s = 1.0f / (1.0f + e);
    const float inner = 2.0f * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
    const float slope = s + x * inner * (e * s) * s;

    /* Infinities give NaN, as in PyTorch. */
    return pst_vm_select(z < -87.0f, 0.0f,
                         pst_vm_select(z > 87.0f, 1.0f, slope)) +
           0.0f * x;
}

static PST_ALWAYS_INLINE float silu_slope(float x)
{
    const float s = pst_vm_sigmoid(x);

    return s * (1.0f + x * (1.0f - s));
}

/* x tanh(log(1 + e)) = x (e^2 + 2 e) / (e^2 + 2 e + 2) */
static PST_ALWAYS_INLINE float mish(float x)
{
    const float e = pst_vm_exp(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);

    return pst_vm_select(x > 20.0f, x, x * (n / (n + 2.0f)));
}

/* NaN passes, a NaN bound wins, and so does max where min > max. */
static PST_ALWAYS_INLINE float vm_clamp(float x, float lo, float hi)
{
    const float y = x < lo || lo != lo ? lo : x;
    const float z = y > hi || hi != hi ? hi : y;

    return x != x ? x : z;
}

/* Of the distance d >= 0. */
static PST_ALWAYS_INLINE float huber(float d, float delta)
{
    return pst_vm_select(d < delta, 0.5f * d * d, delta * (d - 0.5f * delta));
}

static PST_ALWAYS_INLINE float smooth_l1(float d, float beta)
{
    return pst_vm_select(d < beta, 0.5f * d * d / beta, d - 0.5f * beta);
}

static PST_ALWAYS_INLINE float smooth_l1_slope(float d, float beta)
{
    const float sign = pst_vm_select(d != 0.0f, pst_vm_copysign(1.0f, d), d);

    return pst_vm_select(fabsf(d) >= beta, sign, d / beta) + 0.0f * d;
}

/* c is the weight of what is true. */
static PST_ALWAYS_INLINE float bce_logits(float a, float b, float c)
{
    const float minus =
        pst_vm_log1p(pst_vm_exp(-fabsf(a))) + pst_vm_select(a < 0.0f, -a, 0.0f);

    return (1.0f - b) * a + (1.0f + (c - 1.0f) * b) * minus;
}

/* Of a probability a; logarithms at least -100. */
static PST_ALWAYS_INLINE float bce(float a, float b)
{
    const float yes = pst_vm_log(a), no = pst_vm_log1p(-a);

    return (b - 1.0f) * pst_vm_select(no > -100.0f, no, -100.0f) -
           b * pst_vm_select(yes > -100.0f, yes, -100.0f);
}

static PST_ALWAYS_INLINE float bce_slope(float a, float b)
{
    const float both = (1.0f - a) * a;

    return (a - b) / pst_vm_select(both > 1e-12f, both, 1e-12f);
}

/* --- remainders ----------------------------------------------------------- */

/* Quotients below 2^24 are exact enough in double: a whole number that does
 * not divide a is farther from a / b than the rounding. */
static PST_ALWAYS_INLINE int vm_divides(float a, float b)
{
    return (fabsf(a) < 16777216.0f * fabsf(b)) & (fabsf(b) < INFINITY) &
           (fabsf(b) > 1e-30f);
}

static PST_ALWAYS_INLINE float vm_fmod(float a, float b)
{
    const double q = trunc((double)a / (double)b);

    return pst_vm_copysign((float)((double)a - q * (double)b), a);
}

/* From the remainder of C: the sign is b's. */
static PST_ALWAYS_INLINE float vm_remainder(float a, float b, float rest)
{
    (void)a;
    return pst_vm_select((rest != 0.0f) & ((b < 0.0f) != (rest < 0.0f)),
                         rest + b, rest);
}

/* As PyTorch's, each step rounded. */
static PST_ALWAYS_INLINE float vm_floor_divide(float a, float b, float rest)
{
    const int under = (rest != 0.0f) & ((b < 0.0f) != (rest < 0.0f));
    const float q = (a - rest) / b - pst_vm_select(under, 1.0f, 0.0f);
    const float whole = floorf(q);
    const float y = whole + pst_vm_select(q - whole > 0.5f, 1.0f, 0.0f);
    const float z = pst_vm_select(q == 0.0f, pst_vm_copysign(0.0f, a / b), y);

    return pst_vm_select(b == 0.0f, a / b, z);
}

/* PyTorch takes roots for these exponents, which differ at -0. */
static PST_ALWAYS_INLINE float vm_power(float a, float b)
{
    if (b == 0.5f)
        return sqrtf(a);
    if (b == -0.5f)
        return 1.0f / sqrtf(a);
    return (float)pow((double)a, (double)b);
}

/* g c x^(c-1), 0 for c = 0. */
static PST_ALWAYS_INLINE float vm_pow_slope(float g, float x, float c)
{
    const double b = (double)c - 1.0, a = (double)x;
    const double y = b == 0.5 ? sqrt(a) : b == -0.5 ? 1.0 / sqrt(a) : pow(a, b);

    return c == 0.0f ? 0.0f : (float)((double)g * (double)c * y);
}

static PST_ALWAYS_INLINE float vm_sinc(float t)
{
    return t == 0.0f ? 1.0f : (float)(sin((double)t) / (double)t);
}

/* No bounds are NaN. */
static PST_ALWAYS_INLINE float vm_clamp_inside(float x, float lo, float hi)
{
    const float y = x < lo ? lo : x;

    return y > hi ? hi : y;
}

/* --- loops ---------------------------------------------------------------- */

/* The operands that `fix` names do not move. */
#define FORM(n_args, fix, T0, T, R, from, to, expr)                            \
    do {                                                                       \
        PST_INDEPENDENT for (int64_t i = (from); i < (to); i++)                \
        {                                                                      \
            const T0 a PST_UNUSED = (fix)&1 ? a0 : pa[i];                      \
            const T b PST_UNUSED =                                             \
                (n_args) > 1 ? ((fix)&2 ? b0 : pb[i]) : (T)0;                  \
            const T c PST_UNUSED =                                             \
                (n_args) > 2 ? ((fix)&4 ? c0 : pc[i]) : (T)0;                  \
                                                                               \
            py[i] = (R)(expr);                                                 \
        }                                                                      \
    } while (0)

#define FORMS(n_args, T0, T, R, from, to, expr)                                \
    do {                                                                       \
        if ((n_args) == 2 && fixed == 1)                                       \
            FORM(n_args, 1, T0, T, R, from, to, expr);                         \
        else if ((n_args) == 2 && fixed == 2)                                  \
            FORM(n_args, 2, T0, T, R, from, to, expr);                         \
        else if ((n_args) == 3 && fixed == 4)                                  \
            FORM(n_args, 4, T0, T, R, from, to, expr);                         \
        else                                                                   \
            FORM(n_args, 0, T0, T, R, from, to, expr);                         \
    } while (0)

#define DEFINE(name, n_args, T0, T, R, body)                                   \
    void PST_SIMD(pst_loop_##name)(int64_t n, const void *const *x,            \
                                   unsigned fixed, const float *s, void *y)    \
    {                                                                          \
        const T0 *pa = x[0];                                                   \
        const T *pb = (n_args) > 1 ? x[1] : NULL;                              \
        const T *pc = (n_args) > 2 ? x[2] : NULL;                              \
        const T0 a0 PST_UNUSED = pa[0];                                        \
        const T b0 PST_UNUSED = (n_args) > 1 ? pb[0] : (T)0;                   \
        const T c0 PST_UNUSED = (n_args) > 2 ? pc[0] : (T)0;                   \
        const float s0 PST_UNUSED = s[0], s1 PST_UNUSED = s[1];                \
        const float s2 PST_UNUSED = s[2];                                      \
        R *py = y;                                                             \
                                                                               \
        (void)fixed;                                                           \
        body;                                                                  \
    }

/* Elements that are looked at before they are computed. */
#define CHUNK 1024

#define COUNT_BAD(n_args, to, ok)                                              \
    for (int64_t i = at; i < (to); i++) {                                      \
        const float a PST_UNUSED = fixed & 1 ? a0 : pa[i];                     \
        const float b PST_UNUSED =                                             \
            (n_args) > 1 ? (fixed & 2 ? b0 : pb[i]) : 0.0f;                    \
                                                                               \
        bad += !(ok);                                                          \
    }

#define CHUNKS(n_args, expr, ok, other)                                        \
    for (int64_t at = 0; at < n; at += CHUNK) {                                \
        const int64_t to = n - at < CHUNK ? n : at + CHUNK;                    \
        int bad = 0;                                                           \
                                                                               \
        COUNT_BAD(n_args, to, ok)                                              \
        if (bad == 0)                                                          \
            FORMS(n_args, float, float, float, at, to, expr);                  \
        else                                                                   \
            FORMS(n_args, float, float, float, at, to, other);                 \
    }

#define LOOP(name, n_args, expr)                                               \
    DEFINE(name, n_args, float, float, float,                                  \
           FORMS(n_args, float, float, float, 0, n, expr))
#define GUARDED(name, n_args, expr, ok, slow)                                  \
    DEFINE(name, n_args, float, float, float,                                  \
           CHUNKS(n_args, expr, ok, (ok) ? (expr) : (slow)))
#define RANGED(name, n_args, expr, ok, slow)                                   \
    DEFINE(name, n_args, float, float, float, CHUNKS(n_args, expr, ok, slow))
#define QUESTION(name, n_args, expr)                                           \
    DEFINE(name, n_args, float, float, uint8_t,                                \
           FORMS(n_args, float, float, uint8_t, 0, n, expr))
#define LOGIC(name, n_args, expr)                                              \
    DEFINE(name, n_args, uint8_t, uint8_t, uint8_t,                            \
           FORMS(n_args, uint8_t, uint8_t, uint8_t, 0, n, expr))
#define INTEGER(name, n_args, expr)                                            \
    DEFINE(name, n_args, int64_t, int64_t, int64_t,                            \
           FORMS(n_args, int64_t, int64_t, int64_t, 0, n, expr))
#define COMPARE(name, n_args, expr)                                            \
    DEFINE(name, n_args, int64_t, int64_t, uint8_t,                            \
           FORMS(n_args, int64_t, int64_t, uint8_t, 0, n, expr))
#define CHOICE(name, expr)                                                     \
    DEFINE(name, 3, uint8_t, float, float,                                     \
           FORMS(3, uint8_t, float, float, 0, n, expr))
#include "stages/ops/cpu/simd/loops.def"
