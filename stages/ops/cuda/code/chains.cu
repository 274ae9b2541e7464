// SPDX-License-Identifier: Apache-2.0
/*
 * Device code module (modules.def): chains of elementwise nodes.
 *
 * A thread executes all parts for four adjacent elements, then for the next
 * four. Results that later parts read are in shared memory, where a thread
 * reads only what it has written itself, so no barrier is needed. Elements are
 * f32 in between, rounded where the nodes would round; a bool is 0 or 1.
 */
#include "stages/ops/cuda/code/elements/chain.h"
#include "stages/ops/cuda/code/elements/elements.cuh"
#include "stages/ops/cuda/code/elements/functions.cuh"
#include "stages/ops/cuda/code/reals.cuh"

#define EACH PST_CUDA_CHAIN_EACH

#ifdef __CUDACC__
/* Shared memory whose size the launch gives. */
#define PST_CHAIN_MEMORY(name)                                                 \
    extern __shared__ float4 chain_memory[];                                   \
    struct pst_four *const name = (struct pst_four *)chain_memory
#else
#define PST_CHAIN_MEMORY(name)                                                 \
    struct pst_four *const name = (struct pst_four *)emu_memory()
#endif

struct alignas(16) pst_four {
    float v[EACH];
};

PST_DEVICE struct pst_four pst_four_of(float x)
{
    return {{x, x, x, x}};
}

/* --- elements ------------------------------------------------------------- */

PST_DEVICE float pst_chain_load(uint32_t type, const void *x, int64_t at)
{
    return type == PST_CUDA_F32    ? ((const float *)x)[at]
           : type == PST_CUDA_BOOL ? (float)(((const uint8_t *)x)[at] != 0)
                                   : pst_reals_16::load(type, x, at);
}

/* Loads four elements from an aligned address. */
PST_DEVICE struct pst_four pst_chain_load_wide(uint32_t type, const void *x,
                                               int64_t at)
{
    struct pst_four y;

    if (type == PST_CUDA_F32) {
        y = *(const struct pst_four *)((const float *)x + at);
    } else if (type == PST_CUDA_BOOL) {
        const uint32_t bits = *(const uint32_t *)((const uint8_t *)x + at);

        PST_UNROLL
        for (int e = 0; e < EACH; e++)
            y.v[e] = (float)((bits >> 8 * e & 0xff) != 0);
    } else {
        const uint64_t bits = *(const uint64_t *)((const uint16_t *)x + at);

        PST_UNROLL
        for (int e = 0; e < EACH; e++)
            y.v[e] = pst_reals_16::of(type, (uint16_t)(bits >> 16 * e));
    }
    return y;
}

/* Computes the row and the column of element i. */
PST_DEVICE void pst_chain_row(const struct pst_cuda_chain &p, int64_t i,
                              int64_t *row, int64_t *col)
{
    if (p.numel <= UINT32_MAX)
        *row = (uint32_t)i / (uint32_t)p.cols;
    else
        *row = i / p.cols;
    *col = i - *row * p.cols;
}

/* Loads a thread's elements of a tensor, from element i on, for any `how`. */
PST_DEVICE struct pst_four pst_chain_load_any(const struct pst_cuda_chain &p,
                                              uint32_t index, int64_t i)
{
    const struct pst_cuda_chain_tensor &t = p.tensors[index];
    struct pst_four y = pst_four_of(0.0f);
    int64_t row = 0, col = 0;

    if (t.how == PST_CUDA_CHAIN_ONE)
        return pst_four_of(pst_chain_load(t.type, t.x, 0));
    if (t.how == PST_CUDA_CHAIN_WIDE && i + EACH <= p.numel)
        return pst_chain_load_wide(t.type, t.x, i);
    if (t.how >= PST_CUDA_CHAIN_ROWS)
        pst_chain_row(p, i, &row, &col);
    if (t.how == PST_CUDA_CHAIN_ROWS_ONE)
        return pst_four_of(pst_chain_load(t.type, t.x, row * t.row));
    if (t.how == PST_CUDA_CHAIN_ROWS_WIDE)
        return pst_chain_load_wide(t.type, t.x, row * t.row + col);
    PST_UNROLL
    for (int e = 0; e < EACH; e++) {
        if (i + e < p.numel)
            y.v[e] = pst_chain_load(t.type, t.x,
                                    t.how < PST_CUDA_CHAIN_ROWS
                                        ? (i + e) * t.col
                                        : row * t.row + col * t.col);
        if (++col == p.cols) {
            col = 0;
            row++;
        }
    }
    return y;
}

/* True if four elements of the tensor from i on are one load or store of f32.
 */
PST_DEVICE bool pst_chain_is_wide(const struct pst_cuda_chain &p,
                                  const struct pst_cuda_chain_tensor &t,
                                  int64_t i)
{
    return t.how == PST_CUDA_CHAIN_WIDE && t.type == PST_CUDA_F32 &&
           i + EACH <= p.numel;
}

PST_DEVICE struct pst_four pst_chain_operand(const struct pst_cuda_chain &p,
                                             uint32_t index, int64_t i)
{
    const struct pst_cuda_chain_tensor &t = p.tensors[index];

    return pst_chain_is_wide(p, t, i)
               ? pst_chain_load_wide(PST_CUDA_F32, t.x, i)
               : pst_chain_load_any(p, index, i);
}

PST_DEVICE struct pst_four pst_chain_round(uint32_t type, struct pst_four x)
{
    PST_UNROLL
    for (int e = 0; e < EACH; e++)
        x.v[e] = type == PST_CUDA_BOOL ? (float)(x.v[e] != 0.0f)
                                       : pst_reals_16::round(type, x.v[e]);
    return x;
}

/* Stores elements, which are already rounded. */
PST_DEVICE void pst_chain_store_any(const struct pst_cuda_chain &p,
                                    uint32_t index, int64_t i,
                                    struct pst_four y)
{
    const struct pst_cuda_chain_tensor &t = p.tensors[index];
    uint64_t bits = 0;

    if (t.how == PST_CUDA_CHAIN_WIDE && i + EACH <= p.numel &&
        t.type != PST_CUDA_F32 && t.type != PST_CUDA_BOOL) {
        PST_UNROLL
        for (int e = 0; e < EACH; e++)
            bits |= (uint64_t)pst_reals_16::bits(t.type, y.v[e]) << 16 * e;
        *(uint64_t *)((uint16_t *)t.x + i) = bits;
        return;
    }
    PST_UNROLL
    for (int e = 0; e < EACH; e++) {
        if (i + e >= p.numel)
            break;
        if (t.type == PST_CUDA_BOOL)
            ((uint8_t *)t.x)[i + e] = y.v[e] != 0.0f;
        else
            pst_reals_16::store(t.type, t.x, i + e, y.v[e]);
    }
}

PST_DEVICE void pst_chain_store(const struct pst_cuda_chain &p, uint32_t index,
                                int64_t i, struct pst_four y)
{
    const struct pst_cuda_chain_tensor &t = p.tensors[index];

    if (pst_chain_is_wide(p, t, i))
        *(struct pst_four *)((float *)t.x + i) = y;
    else
        pst_chain_store_any(p, index, i, y);
}

/* --- functions ------------------------------------------------------------ */

/* Kinds of functions of loops.def. at() returns the result of one element. */
template <class F> struct pst_chain_real {
    PST_DEVICE float at(float a, float b, float c, const float *s)
    {
        return F::at(a, b, c, s[0], s[1], s[2]);
    }
};
template <class F> struct pst_chain_question {
    PST_DEVICE float at(float a, float b, float, const float *)
    {
        return (float)F::at(a, b);
    }
};
template <class F> struct pst_chain_logic {
    PST_DEVICE float at(float a, float b, float, const float *)
    {
        return (float)F::at(a != 0.0f, b != 0.0f);
    }
};
template <class F> struct pst_chain_choice {
    PST_DEVICE float at(float a, float b, float c, const float *)
    {
        return F::at(a != 0.0f, b, c);
    }
};

/* Computes function F for four elements. nvcc contracts a * b + c to one
 * operation within a function, as in the loops, so the bits are the same. It
 * cannot do so across two functions, since each writes its result to `last`. */
template <class F>
PST_DEVICE struct pst_four pst_chain_call(
    const struct pst_cuda_chain_part &part, const struct pst_four &a,
    const struct pst_four &b, const struct pst_four &c)
{
    struct pst_four y;

    PST_UNROLL
    for (int e = 0; e < EACH; e++)
        y.v[e] = F::at(a.v[e], b.v[e], c.v[e], part.s);
    return y;
}

/* Returns the result of a part. */
PST_DEVICE struct pst_four pst_chain_apply(
    const struct pst_cuda_chain_part &part, struct pst_four a,
    struct pst_four b, struct pst_four c)
{
    switch (part.fn) {
#define PST_CHAIN_CASE(name, kind)                                             \
    case PST_CUDA_CHAIN_##name:                                                \
        return pst_chain_call<kind<struct pst_fn_##name>>(part, a, b, c);
#define LOOP(name, n, expr)              PST_CHAIN_CASE(name, pst_chain_real)
#define GUARDED(name, n, expr, ok, slow) LOOP(name, n, slow)
#define RANGED(name, n, expr, ok, slow)  LOOP(name, n, slow)
#define QUESTION(name, n, expr)          PST_CHAIN_CASE(name, pst_chain_question)
#define LOGIC(name, n, expr)             PST_CHAIN_CASE(name, pst_chain_logic)
#define INTEGER(name, n, expr)
#define COMPARE(name, n, expr)
#define CHOICE(name, expr) PST_CHAIN_CASE(name, pst_chain_choice)
#include "stages/ops/cpu/simd/loops.def"
    }
    return a; /* copy */
}

/* --- the kernel ----------------------------------------------------------- */

/* Returns operand k of a part; last: the result of the part before. */
PST_DEVICE struct pst_four pst_chain_read(
    const struct pst_cuda_chain &p, const struct pst_cuda_chain_part &part,
    int k, int64_t i, const struct pst_four *slots, const struct pst_four &last)
{
    struct pst_four x;

    if (part.from[k] == PST_CUDA_CHAIN_NUMBER)
        return pst_four_of(part.number[k]);
    if (part.from[k] == PST_CUDA_CHAIN_LAST)
        x = last;
    else if (part.from[k] == PST_CUDA_CHAIN_IN_SLOT)
        x = slots[part.index[k] * PST_CUDA_BLOCK + threadIdx.x];
    else
        x = pst_chain_operand(p, part.index[k], i);
    return (part.rounded >> k & 1) != 0 ? pst_chain_round(part.rounds, x) : x;
}

PST_CUDA_KERNEL(pst_chain, struct pst_cuda_chain)
{
    PST_CHAIN_MEMORY(slots);

    PST_GRID_LOOP(g, (p.numel + EACH - 1) / EACH)
    {
        struct pst_four last = pst_four_of(0.0f);

        PST_NO_UNROLL
        for (uint32_t n = 0; n < p.n_parts; n++) {
            const struct pst_cuda_chain_part &part = p.parts[n];
            const struct pst_four a =
                pst_chain_read(p, part, 0, g * EACH, slots, last);
            const struct pst_four b =
                pst_chain_read(p, part, 1, g * EACH, slots, last);
            const struct pst_four c =
                pst_chain_read(p, part, 2, g * EACH, slots, last);

            last = pst_chain_apply(part, a, b, c);
            if (part.type != PST_CUDA_F32)
                last = pst_chain_round(part.type, last);
            if (part.slot != PST_CUDA_CHAIN_NOT)
                slots[part.slot * PST_CUDA_BLOCK + threadIdx.x] = last;
            if (part.tensor != PST_CUDA_CHAIN_NOT)
                pst_chain_store(p, part.tensor, g * EACH, last);
        }
    }
}
