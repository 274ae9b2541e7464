// SPDX-License-Identifier: Apache-2.0
/* Elementwise loops: a kernel for each line of loops.def. */
#include "stages/ops/cuda/code/elements/elements.cuh"
#include "stages/ops/cuda/code/elements/functions.cuh"

/* --- elements of any type ------------------------------------------------- */

PST_OUTLINE float pst_loop_round(uint32_t type, float x)
{
    return type == PST_CUDA_BF16  ? pst_from_bf16(pst_to_bf16(x))
           : type == PST_CUDA_F16 ? pst_from_f16(pst_to_f16(x))
                                  : x;
}

PST_OUTLINE float pst_loop_load(uint32_t type, const void *x, int64_t i)
{
    return type == PST_CUDA_F32  ? ((const float *)x)[i]
           : type > PST_CUDA_F16 ? (float)pst_load_whole(type, x, i)
                                 : (float)pst_load_double(type, x, i);
}

/* Stores x as element i of y, rounded to the type of y. If accumulate, x is
 * rounded, added to the old value, and the sum is rounded. */
PST_OUTLINE void pst_loop_store(const struct pst_cuda_loop &p, int64_t i,
                                float x)
{
    const int64_t at = pst_nd_at(p.nd, 0, i);
    uint16_t *const y = (uint16_t *)p.y;

    if (p.y_type == PST_CUDA_F32) {
        ((float *)p.y)[at] = p.accumulate ? ((float *)p.y)[at] + x : x;
        return;
    }
    if (p.accumulate)
        x = pst_loop_round(p.y_type, x) + pst_loop_load(p.y_type, p.y, at);
    y[at] = p.y_type == PST_CUDA_BF16 ? pst_to_bf16(x) : pst_to_f16(x);
}

/* Conversions of f16 take many instructions: loops share them. */
PST_OUTLINE float pst_loop_from_f16(const void *x, int64_t i)
{
    return pst_from_f16(((const uint16_t *)x)[i]);
}

PST_OUTLINE void pst_loop_to_f16(void *y, int64_t i, float x)
{
    ((uint16_t *)y)[i] = pst_to_f16(x);
}

/* Returns operand k of element i of a loop of kind PST_CUDA_PLAIN_16. */
PST_DEVICE float pst_loop_operand_16(const struct pst_cuda_loop &p, int k,
                                     int64_t i)
{
    float x;

    if (p.x[k] == nullptr)
        return p.number[k];
    if (p.type[k] == PST_CUDA_F32) {
        x = ((const float *)p.x[k])[i];
        return p.rounds == PST_CUDA_F32 ? x : pst_loop_round(p.rounds, x);
    }
    x = p.type[k] == PST_CUDA_BF16
            ? pst_from_bf16(((const uint16_t *)p.x[k])[i])
            : pst_loop_from_f16(p.x[k], i);
    return p.rounds == PST_CUDA_F32 || p.rounds == p.type[k]
               ? x
               : pst_loop_round(p.rounds, x);
}

PST_DEVICE void pst_loop_store_16(const struct pst_cuda_loop &p, int64_t i,
                                  float x)
{
    if (p.y_type == PST_CUDA_F32)
        ((float *)p.y)[i] = x;
    else if (p.y_type == PST_CUDA_BF16)
        ((uint16_t *)p.y)[i] = pst_to_bf16(x);
    else
        pst_loop_to_f16(p.y, i, x);
}

/* Returns operand k of element i. */
PST_OUTLINE float pst_loop_operand(const struct pst_cuda_loop &p, int k,
                                   int64_t i)
{
    float x;

    if (p.x[k] == nullptr)
        return p.number[k]; /* rounded by the host */
    x = pst_loop_load(p.type[k], p.x[k], pst_nd_at(p.nd, k + 1, i));
    return p.rounds != PST_CUDA_F32 && p.type[k] != p.rounds
               ? pst_loop_round(p.rounds, x)
               : x;
}

PST_OUTLINE int64_t pst_loop_whole(const struct pst_cuda_loop &p, int k,
                                   int64_t i)
{
    return p.x[k] == nullptr
               ? p.whole[k]
               : pst_load_whole(p.type[k], p.x[k], pst_nd_at(p.nd, k + 1, i));
}

/* --- loops ---------------------------------------------------------------- */

/* The loop for PST_CUDA_PLAIN_F32. F::n: number of operands; F::at(a, b, c, s0,
 * s1, s2): the result of one element. */
template <class F> PST_DEVICE void pst_loop_plain(const struct pst_cuda_loop &p)
{
    const float *const x0 = (const float *)p.x[0];
    const float *const x1 = (const float *)p.x[1];
    const float *const x2 = (const float *)p.x[2];

    PST_GRID_LOOP(i, p.nd.numel)
    {
        const float a = x0 != nullptr ? x0[i] : p.number[0];
        const float b = F::n > 1 ? x1 != nullptr ? x1[i] : p.number[1] : 0;
        const float c = F::n > 2 ? x2 != nullptr ? x2[i] : p.number[2] : 0;

        ((float *)p.y)[i] = F::at(a, b, c, p.s[0], p.s[1], p.s[2]);
    }
}

template <class F>
PST_DEVICE void pst_loop_plain_16(const struct pst_cuda_loop &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const float a = pst_loop_operand_16(p, 0, i);
        const float b = F::n > 1 ? pst_loop_operand_16(p, 1, i) : 0;
        const float c = F::n > 2 ? pst_loop_operand_16(p, 2, i) : 0;

        pst_loop_store_16(p, i, F::at(a, b, c, p.s[0], p.s[1], p.s[2]));
    }
}

template <class F> PST_DEVICE void pst_loop_f32(const struct pst_cuda_loop &p)
{
    if (p.plain == PST_CUDA_PLAIN_F32) {
        pst_loop_plain<F>(p);
        return;
    }
    if (p.plain == PST_CUDA_PLAIN_16) {
        pst_loop_plain_16<F>(p);
        return;
    }
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const float a = pst_loop_operand(p, 0, i);
        const float b = F::n > 1 ? pst_loop_operand(p, 1, i) : 0;
        const float c = F::n > 2 ? pst_loop_operand(p, 2, i) : 0;

        pst_loop_store(p, i, F::at(a, b, c, p.s[0], p.s[1], p.s[2]));
    }
}

template <class F>
PST_DEVICE void pst_loop_question(const struct pst_cuda_loop &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const float a = pst_loop_operand(p, 0, i);
        const float b = F::n > 1 ? pst_loop_operand(p, 1, i) : 0;

        ((uint8_t *)p.y)[pst_nd_at(p.nd, 0, i)] = F::at(a, b);
    }
}

/* Loop over integers; R is the type of the result. */
template <class F, typename R>
PST_DEVICE void pst_loop_integer(const struct pst_cuda_loop &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const int64_t a = pst_loop_whole(p, 0, i);
        const int64_t b = F::n > 1 ? pst_loop_whole(p, 1, i) : 0;

        ((R *)p.y)[pst_nd_at(p.nd, 0, i)] = (R)F::at(a, b);
    }
}

template <class F>
PST_DEVICE void pst_loop_choice(const struct pst_cuda_loop &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const bool a = pst_loop_whole(p, 0, i) != 0;
        const float b = pst_loop_operand(p, 1, i);
        const float c = pst_loop_operand(p, 2, i);

        pst_loop_store(p, i, F::at(a, b, c));
    }
}

#define PST_LOOP_OF(name, run)                                                 \
    PST_CUDA_KERNEL(pst_loop_##name, struct pst_cuda_loop)                     \
    {                                                                          \
        run(p);                                                                \
    }
#define LOOP(name, n_args, expr)                                               \
    PST_LOOP_OF(name, pst_loop_f32<struct pst_fn_##name>)
#define GUARDED(name, n_args, expr, ok, slow) LOOP(name, n_args, slow)
#define RANGED(name, n_args, expr, ok, slow)  LOOP(name, n_args, slow)
#define QUESTION(name, n_args, expr)                                           \
    PST_LOOP_OF(name, pst_loop_question<struct pst_fn_##name>)
#define LOGIC(name, n_args, expr)                                              \
    PST_LOOP_OF(name, (pst_loop_integer<struct pst_fn_##name, uint8_t>))
#define INTEGER(name, n_args, expr)                                            \
    PST_LOOP_OF(name, (pst_loop_integer<struct pst_fn_##name, int64_t>))
#define COMPARE(name, n_args, expr) LOGIC(name, n_args, expr)
#define CHOICE(name, expr)                                                     \
    PST_LOOP_OF(name, pst_loop_choice<struct pst_fn_##name>)
#include "stages/ops/cpu/simd/loops.def"
