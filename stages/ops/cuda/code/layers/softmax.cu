// SPDX-License-Identifier: Apache-2.0
/* Softmax, log softmax and their gradients, of rows (inner = 1) and columns. A
 * thread writes only elements that it was the last to read: y may be x or g. */
#include "stages/ops/cuda/code/layers/softmax.cuh"
#include "stages/ops/cuda/code/layers/softmax.h"
#include "stages/ops/cuda/code/reals.cuh"

PST_DEVICE float softmax_of(const struct pst_cuda_softmax &p, float x,
                            const struct pst_exp_sum &s, float log_sum)
{
    if (p.kind == PST_CUDA_LOG_SOFTMAX)
        return x - s.max - log_sum;
    if (p.kind == PST_CUDA_SAFE_SOFTMAX && s.max == -INFINITY && s.sum == 0.0f)
        return 0.0f;
    return expf(x - s.max) / s.sum;
}

template <class E>
PST_DEVICE float softmax_x(const struct pst_cuda_softmax &p, int64_t i)
{
    return E::load(p.x_type, p.x, i);
}

/* Contribution of an element to the sum of a row's gradient. */
template <class E>
PST_DEVICE float softmax_term(const struct pst_cuda_softmax &p, int64_t i)
{
    const float g = E::load(p.g_type, p.g, i);

    return p.kind == PST_CUDA_LOG_SOFTMAX ? g : g * softmax_x<E>(p, i);
}

/* softmax: y (g - sum(g y)); log softmax: g - e^y sum(g) */
template <class E>
PST_DEVICE void softmax_grad(const struct pst_cuda_softmax &p, int64_t i,
                             float sum)
{
    const float g = E::load(p.g_type, p.g, i), x = softmax_x<E>(p, i);

    E::store(p.y_type, p.y, i,
             p.kind == PST_CUDA_LOG_SOFTMAX ? g - expf(x) * sum
                                            : x * (g - sum));
}

template <class E, bool WARP>
PST_DEVICE void softmax_rows(const struct pst_cuda_softmax &p)
{
    const unsigned lane = pst_team_lane<WARP>();
    const int64_t first = pst_team_row<WARP>() * p.n;
    const int64_t step = pst_team<WARP>::size;
    struct pst_exp_sum s = {-INFINITY, 0.0f};
    float sum = 0.0f;

    if (pst_team_row<WARP>() >= p.outer)
        return;
    if (p.g != nullptr) {
        for (int64_t j = lane; j < p.n; j += step)
            sum += softmax_term<E>(p, first + j);
        sum = pst_team<WARP>::sum(sum);
        for (int64_t j = lane; j < p.n; j += step)
            softmax_grad<E>(p, first + j, sum);
        return;
    }
    for (int64_t j = lane; j < p.n; j += step)
        pst_exp_sum_add(s, softmax_x<E>(p, first + j));
    s = pst_exp_sum_join<WARP>(s);
    sum = logf(s.sum);
    for (int64_t j = lane; j < p.n; j += step)
        E::store(p.y_type, p.y, first + j,
                 softmax_of(p, softmax_x<E>(p, first + j), s, sum));
}

/* A thread for each column: adjacent threads read adjacent elements. */
template <class E>
PST_DEVICE void softmax_columns(const struct pst_cuda_softmax &p)
{
    PST_GRID_LOOP(i, p.outer * p.inner)
    {
        const int64_t first = i / p.inner * p.n * p.inner + i % p.inner;
        const int64_t end = first + p.n * p.inner;
        struct pst_exp_sum s = {-INFINITY, 0.0f};
        float sum = 0.0f;

        if (p.g != nullptr) {
            for (int64_t j = first; j < end; j += p.inner)
                sum += softmax_term<E>(p, j);
            for (int64_t j = first; j < end; j += p.inner)
                softmax_grad<E>(p, j, sum);
            continue;
        }
        for (int64_t j = first; j < end; j += p.inner)
            pst_exp_sum_add(s, softmax_x<E>(p, j));
        s.sum = pst_exp_sum_for(s, s.max);
        sum = logf(s.sum);
        for (int64_t j = first; j < end; j += p.inner)
            E::store(p.y_type, p.y, j,
                     softmax_of(p, softmax_x<E>(p, j), s, sum));
    }
}

PST_CUDA_KERNEL(pst_softmax_warp_f32, struct pst_cuda_softmax)
{
    softmax_rows<pst_reals_f32, true>(p);
}

PST_CUDA_KERNEL(pst_softmax_block_f32, struct pst_cuda_softmax)
{
    softmax_rows<pst_reals_f32, false>(p);
}

PST_CUDA_KERNEL(pst_softmax_columns_f32, struct pst_cuda_softmax)
{
    softmax_columns<pst_reals_f32>(p);
}

PST_CUDA_KERNEL(pst_softmax_warp_16, struct pst_cuda_softmax)
{
    softmax_rows<pst_reals_16, true>(p);
}

PST_CUDA_KERNEL(pst_softmax_block_16, struct pst_cuda_softmax)
{
    softmax_rows<pst_reals_16, false>(p);
}

PST_CUDA_KERNEL(pst_softmax_columns_16, struct pst_cuda_softmax)
{
    softmax_columns<pst_reals_16>(p);
}
