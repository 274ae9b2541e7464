// SPDX-License-Identifier: Apache-2.0
/* Cross entropy: a warp or block for each position. */
#include "stages/ops/cuda/code/fault.cuh"
#include "stages/ops/cuda/code/layers/loss.h"
#include "stages/ops/cuda/code/layers/softmax.cuh"
#include "stages/ops/cuda/code/reals.cuh"

/* Returns the class of position i; -1 if it is ignored or out of range. */
PST_DEVICE int64_t loss_target(const struct pst_cuda_loss &p, int64_t i,
                               bool report)
{
    const int64_t k = pst_index_at(p.target, p.wide, i);

    if (k == p.ignore)
        return -1;
    if (k >= 0 && k < p.classes)
        return k;
    if (report)
        pst_fault_set(p.fault, k, p.classes);
    return -1;
}

template <class E>
PST_DEVICE float loss_weight(const struct pst_cuda_loss &p, int64_t y)
{
    return y < 0 ? 0.0f : p.w != nullptr ? E::load(p.type, p.w, y) : 1.0f;
}

PST_DEVICE int64_t loss_first(const struct pst_cuda_loss &p, int64_t i)
{
    return i / p.d * p.classes * p.d + i % p.d;
}

/* Computes the loss, reading the logits once. With smoothing e it is (1 - e)
 * (lse - x_y) + e / C sum_k (lse - x_k). */
template <class E, bool WARP>
PST_DEVICE void loss_forward(const struct pst_cuda_loss &p)
{
    const unsigned lane = pst_team_lane<WARP>();
    const int64_t i = pst_team_row<WARP>();
    struct pst_exp_sum s = {-INFINITY, 0.0f};
    float plain = 0.0f, loss;
    int64_t y;

    if (i >= p.n)
        return;
    y = loss_target(p, i, lane == 0);
    for (int64_t k = lane; y >= 0 && k < p.classes; k += pst_team<WARP>::size) {
        const float x = E::load(p.type, p.x, loss_first(p, i) + k * p.d);

        pst_exp_sum_add(s, x);
        plain += x;
    }
    s = pst_exp_sum_join<WARP>(s);
    if (p.smoothing != 0.0f)
        plain = pst_team<WARP>::sum(plain);
    if (lane != 0)
        return;
    loss = 0.0f;
    if (y >= 0) {
        loss = s.max - E::load(p.type, p.x, loss_first(p, i) + y * p.d) +
               logf(s.sum);
        if (p.smoothing != 0.0f)
            loss =
                (1.0f - p.smoothing) * loss +
                p.smoothing * (s.max - plain / (float)p.classes + logf(s.sum));
        loss *= loss_weight<E>(p, y);
    }
    E::store(p.losses_type, p.losses, i, loss);
    if (p.weights != nullptr)
        p.weights[i] = loss_weight<E>(p, y);
}

PST_CUDA_KERNEL(pst_loss_warp_f32, struct pst_cuda_loss)
{
    loss_forward<pst_reals_f32, true>(p);
}

PST_CUDA_KERNEL(pst_loss_warp_16, struct pst_cuda_loss)
{
    loss_forward<pst_reals_16, true>(p);
}

PST_CUDA_KERNEL(pst_loss_block_f32, struct pst_cuda_loss)
{
    loss_forward<pst_reals_f32, false>(p);
}

PST_CUDA_KERNEL(pst_loss_block_16, struct pst_cuda_loss)
{
    loss_forward<pst_reals_16, false>(p);
}

/* Writes the sum or mean of the losses; one block. */
template <class E> PST_DEVICE void loss_sum(const struct pst_cuda_loss &p)
{
    double sum = 0.0, weights = 0.0;

    for (int64_t i = threadIdx.x; i < p.n; i += PST_CUDA_BLOCK) {
        sum += (double)E::load(p.losses_type, p.losses, i);
        weights += p.mean ? (double)p.weights[i] : 0.0;
    }
    sum = pst_block_sum(sum);
    weights = pst_block_sum(weights);
    if (threadIdx.x == 0)
        E::store(p.type, p.sum, 0, (float)(p.mean ? sum / weights : sum));
}

PST_CUDA_KERNEL(pst_loss_sum_f32, struct pst_cuda_loss)
{
    loss_sum<pst_reals_f32>(p);
}

PST_CUDA_KERNEL(pst_loss_sum_16, struct pst_cuda_loss)
{
    loss_sum<pst_reals_16>(p);
}

/* Writes the mean's divisor; one block. */
template <class E> PST_DEVICE void loss_divisor(const struct pst_cuda_loss &p)
{
    double sum = 0.0;

    for (int64_t i = threadIdx.x; i < p.n; i += PST_CUDA_BLOCK)
        sum += (double)loss_weight<E>(p, loss_target(p, i, true));
    sum = pst_block_sum(sum);
    if (threadIdx.x == 0)
        *p.divisor = sum;
}

PST_CUDA_KERNEL(pst_loss_divisor_f32, struct pst_cuda_loss)
{
    loss_divisor<pst_reals_f32>(p);
}

PST_CUDA_KERNEL(pst_loss_divisor_16, struct pst_cuda_loss)
{
    loss_divisor<pst_reals_16>(p);
}

/* Returns the gradient of the loss of position i. */
template <class E>
PST_DEVICE float loss_arriving(const struct pst_cuda_loss &p, int64_t i)
{
    const double g = (double)E::load(p.type, p.g, p.each ? i : 0);

    return (float)(p.divisor != nullptr ? g / *p.divisor : g);
}

/* dx = g (softmax(x) - t). A block keeps the first logits of its row in shared
 * memory, where each thread reads only what it has written itself; dx may be x.
 */
template <class E, bool WARP, int KEPT>
PST_DEVICE void loss_backward(const struct pst_cuda_loss &p, float *kept)
{
    const unsigned lane = pst_team_lane<WARP>();
    const int64_t i = pst_team_row<WARP>();
    const int64_t step = pst_team<WARP>::size;
    struct pst_exp_sum s = {-INFINITY, 0.0f};
    int64_t y, first;
    float g, other;

    if (i >= p.n)
        return;
    y = loss_target(p, i, lane == 0);
    first = loss_first(p, i);
    for (int64_t k = lane; y >= 0 && k < p.classes; k += step) {
        const float x = E::load(p.type, p.x, first + k * p.d);

        if (k < KEPT)
            kept[k] = x;
        pst_exp_sum_add(s, x);
    }
    s = pst_exp_sum_join<WARP>(s);
    g = loss_arriving<E>(p, i) * loss_weight<E>(p, y);
    other = p.smoothing / (float)p.classes;
    for (int64_t k = lane; k < p.classes; k += step) {
        const float t = k == y ? 1.0f - p.smoothing + other : other;
        const float x =
            k < KEPT ? kept[k] : E::load(p.type, p.x, first + k * p.d);

        E::store(p.losses_type, p.losses, first + k * p.d,
                 y < 0 ? 0.0f : g * (expf(x - s.max) / s.sum - t));
    }
}

PST_CUDA_KERNEL(pst_loss_grad_warp_f32, struct pst_cuda_loss)
{
    loss_backward<pst_reals_f32, true, 0>(p, nullptr);
}

PST_CUDA_KERNEL(pst_loss_grad_block_f32, struct pst_cuda_loss)
{
    PST_SHARED float kept[PST_CUDA_LOSS_KEPT];

    loss_backward<pst_reals_f32, false, PST_CUDA_LOSS_KEPT>(p, kept);
}

PST_CUDA_KERNEL(pst_loss_grad_warp_16, struct pst_cuda_loss)
{
    loss_backward<pst_reals_16, true, 0>(p, nullptr);
}

PST_CUDA_KERNEL(pst_loss_grad_block_16, struct pst_cuda_loss)
{
    PST_SHARED float kept[PST_CUDA_LOSS_KEPT];

    loss_backward<pst_reals_16, false, PST_CUDA_LOSS_KEPT>(p, kept);
}
