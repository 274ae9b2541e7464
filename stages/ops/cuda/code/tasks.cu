// SPDX-License-Identifier: Apache-2.0
/* Tasks of a step besides operators (stages/device/device.h). */
#include "stages/ops/cuda/code/random.cuh"

PST_CUDA_KERNEL(pst_task_stream, struct pst_cuda_stream)
{
    PST_GRID_LOOP(i, 1)
    {
        const pst_random_block b = pst_random_philox(
            (uint32_t)*p.step, (uint32_t)(*p.step >> 32), p.microbatch, p.node,
            (uint32_t)p.seed, (uint32_t)(p.seed >> 32));

        for (int k = 0; k < 4; k++)
            p.to[k] = b.words[k];
    }
}

PST_CUDA_KERNEL(pst_task_fill, struct pst_cuda_fill)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const int64_t at = pst_nd_at(p.nd, 0, i);

        switch (p.bytes) {
        case 1:
            ((uint8_t *)p.to)[at] = (uint8_t)p.wide;
            break;
        case 2:
            ((uint16_t *)p.to)[at] = (uint16_t)p.wide;
            break;
        case 4:
            ((uint32_t *)p.to)[at] = (uint32_t)p.wide;
            break;
        default:
            ((uint64_t *)p.to)[at] = p.wide;
        }
    }
}

template <typename T> PST_DEVICE void copy(const struct pst_cuda_copy &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        ((T *)p.to)[pst_nd_at(p.nd, 0, i)] =
            ((const T *)p.from)[pst_nd_at(p.nd, 1, i)];
    }
}

struct pst_cuda_wide {
    uint64_t a, b;
};

PST_CUDA_KERNEL(pst_task_copy, struct pst_cuda_copy)
{
    switch (p.bytes) {
    case 1:
        copy<uint8_t>(p);
        break;
    case 2:
        copy<uint16_t>(p);
        break;
    case 4:
        copy<uint32_t>(p);
        break;
    case 8:
        copy<uint64_t>(p);
        break;
    default:
        copy<struct pst_cuda_wide>(p);
    }
}

template <typename T> PST_DEVICE void sum(const struct pst_cuda_sum &p)
{
    T *const to = (T *)p.to;

    PST_GRID_LOOP(i, p.n)
    {
        T acc = ((const T *)p.from[0])[i];

        for (unsigned k = 1; k < p.n_from; k++)
            acc += ((const T *)p.from[k])[i];
        to[i] = acc;
    }
}

PST_CUDA_KERNEL(pst_task_sum_f32, struct pst_cuda_sum)
{
    sum<float>(p);
}

PST_CUDA_KERNEL(pst_task_sum_f64, struct pst_cuda_sum)
{
    sum<double>(p);
}

/* Writes partial sums, one per block. */
PST_CUDA_KERNEL(pst_task_sumsq, struct pst_cuda_sumsq)
{
    double acc = 0.0;

    for (int64_t i = (int64_t)blockIdx.x * PST_CUDA_BLOCK + threadIdx.x;
         i < p.n; i += (int64_t)p.blocks * PST_CUDA_BLOCK)
        acc += (double)p.from[i] * (double)p.from[i];
    acc = pst_block_sum(acc);
    if (threadIdx.x == 0)
        p.partial[blockIdx.x] = acc;
}

/* Adds the partial sums; one block. */
PST_CUDA_KERNEL(pst_task_sumsq_end, struct pst_cuda_sumsq)
{
    double acc = 0.0;

    for (unsigned i = threadIdx.x; i < p.blocks; i += PST_CUDA_BLOCK)
        acc += p.partial[i];
    acc = pst_block_sum(acc);
    if (threadIdx.x == 0)
        *p.to = acc;
}

PST_CUDA_KERNEL(pst_task_narrow, struct pst_cuda_convert)
{
    PST_GRID_LOOP(i, p.n)
    {
        ((uint16_t *)p.to)[i] = pst_to_bf16(((const float *)p.from)[i]);
    }
}

PST_CUDA_KERNEL(pst_task_upcast, struct pst_cuda_convert)
{
    PST_GRID_LOOP(i, p.n)
    {
        ((float *)p.to)[i] = pst_from_bf16(((const uint16_t *)p.from)[i]);
    }
}

/* Converts the last elements; one block, which reads all of them before it
 * writes. */
PST_CUDA_KERNEL(pst_task_upcast_last, struct pst_cuda_convert)
{
    const unsigned i = threadIdx.x;
    const float x = i < p.n ? pst_from_bf16(((const uint16_t *)p.from)[i]) : 0;

    __syncthreads();
    if (i < p.n)
        ((float *)p.to)[i] = x;
}

/* --- optimizers ----------------------------------------------------------- */

PST_DEVICE bool is_any_non_finite(float a, float b, float c)
{
    return 0.0f * a + 0.0f * b + 0.0f * c != 0.0f;
}

/* Adds n to the number of elements that stayed; sums of integers do not depend
 * on the order. */
PST_DEVICE void count_stayed(const struct pst_cuda_update &p, uint32_t n)
{
    if (n == 0 || p.stayed == nullptr)
        return;
    atomicCAS(&p.stayed[0], 0ull, p.number);
    atomicAdd(&p.stayed[1], (unsigned long long)n);
}

PST_DEVICE struct pst_cuda_numbers numbers_of(const struct pst_cuda_update &p)
{
    return p.at != nullptr ? *p.at : p.numbers;
}

PST_CUDA_KERNEL(pst_task_numbers, struct pst_cuda_set_numbers)
{
    PST_GRID_LOOP(i, 1)
    {
        *p.to = p.numbers;
    }
}

PST_CUDA_KERNEL(pst_task_adamw, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float g = p.g[i] * q.gscale;
        const float was = p.p[i], m0 = p.m[i], v0 = p.v[i];
        const float m = m0 + q.b1 * (g - m0);
        const float v = q.b2 * v0 + q.c2 * g * g;
        const float to =
            was * q.keep - q.step * (m / (sqrtf(v) * q.root + q.eps));

        if (is_any_non_finite(to, m, v) && !is_any_non_finite(was, m0, v0)) {
            stayed++;
            continue;
        }
        p.p[i] = to;
        p.m[i] = m;
        p.v[i] = v;
    }
    count_stayed(p, stayed);
}

PST_CUDA_KERNEL(pst_task_sgd, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float was = p.p[i], m0 = p.m != nullptr ? p.m[i] : 0.0f;
        const float g = p.g[i] * q.gscale + q.decay * was;
        const float m = p.m == nullptr || q.first ? g : q.mu * m0 + q.damp * g;
        const float by = p.m != nullptr && q.nesterov ? g + q.mu * m : m;
        const float to = was - q.lr * by;

        if (is_any_non_finite(to, p.m != nullptr ? m : 0.0f, 0.0f) &&
            !is_any_non_finite(was, m0, 0.0f)) {
            stayed++;
            continue;
        }
        p.p[i] = to;
        if (p.m != nullptr)
            p.m[i] = m;
    }
    count_stayed(p, stayed);
}

/* The gradient of element i, scaled, with the weight decay. */
PST_DEVICE float decayed(const struct pst_cuda_update &p,
                         const struct pst_cuda_numbers &q, int64_t i)
{
    return p.g[i] * q.gscale + q.decay * p.p[i];
}

/* Writes the parameter and its states m and v (NULL: none) and returns 0. If
 * the old values are finite but a new one is not, returns 1 without writing. */
PST_DEVICE unsigned write_finite(const struct pst_cuda_update &p, int64_t i,
                                 float to, float m, float v)
{
    const float m0 = p.m != nullptr ? p.m[i] : 0.0f;
    const float v0 = p.v != nullptr ? p.v[i] : 0.0f;

    if (is_any_non_finite(to, m, v) && !is_any_non_finite(p.p[i], m0, v0))
        return 1;
    p.p[i] = to;
    if (p.m != nullptr)
        p.m[i] = m;
    if (p.v != nullptr)
        p.v[i] = v;
    return 0;
}

PST_CUDA_KERNEL(pst_task_adam, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float g = decayed(p, q, i);
        const float m = p.m[i] + q.b1 * (g - p.m[i]);
        const float v = q.b2 * p.v[i] + q.c2 * g * g;
        const float by = q.step * (m / (sqrtf(v) * q.root + q.eps));

        stayed += write_finite(p, i, p.p[i] - by, m, v);
    }
    count_stayed(p, stayed);
}

PST_CUDA_KERNEL(pst_task_adamax, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float g = decayed(p, q, i);
        const float m = p.m[i] + q.b1 * (g - p.m[i]);
        const float was = q.b2 * p.v[i], is = fabsf(g) + q.eps;
        const float v = was > is ? was : is;

        stayed += write_finite(p, i, p.p[i] - q.step * (m / v), m, v);
    }
    count_stayed(p, stayed);
}

PST_CUDA_KERNEL(pst_task_lion, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float g = p.g[i] * q.gscale;
        const float to = q.b1 * p.m[i] + q.c1 * g;
        const float m = q.b2 * p.m[i] + q.c2 * g;
        const float by = to > 0.0f ? q.lr : to < 0.0f ? -q.lr : 0.0f;

        stayed += write_finite(p, i, p.p[i] * q.keep - by, m, 0.0f);
    }
    count_stayed(p, stayed);
}

/* m: the momentum (NULL: none); v: the mean square; mean NULL: not centered. */
PST_CUDA_KERNEL(pst_task_rmsprop, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float g = decayed(p, q, i);
        const float v = q.b2 * p.v[i] + q.c2 * g * g;
        float var = v, mean = 0.0f, by, to;

        if (p.mean != nullptr) { /* rounding must not make var negative */
            mean = p.mean[i] + q.c2 * (g - p.mean[i]);
            var = v - mean * mean;
            var = var > 0.0f ? var : 0.0f;
        }
        by = g / (sqrtf(var) + q.eps);
        if (p.m != nullptr)
            by = q.mu * p.m[i] + by;
        to = p.p[i] - q.lr * by;
        /* The mean needs no check of its own: if it is not finite, v is not
         * either. */
        if (write_finite(p, i, to, by, v) != 0)
            stayed++;
        else if (p.mean != nullptr)
            p.mean[i] = mean;
    }
    count_stayed(p, stayed);
}

PST_CUDA_KERNEL(pst_task_adagrad, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float g = decayed(p, q, i);
        const float sum = p.m[i] + g * g;
        const float by = q.step * (g / (sqrtf(sum) + q.eps));

        stayed += write_finite(p, i, p.p[i] - by, sum, 0.0f);
    }
    count_stayed(p, stayed);
}

/* m: the mean square of gradients; v: that of steps. */
PST_CUDA_KERNEL(pst_task_adadelta, struct pst_cuda_update)
{
    const struct pst_cuda_numbers q = numbers_of(p);
    uint32_t stayed = 0;

    PST_GRID_LOOP(i, p.n)
    {
        const float g = decayed(p, q, i);
        const float m = q.b2 * p.m[i] + q.c2 * g * g;
        const float by = sqrtf(p.v[i] + q.eps) / sqrtf(m + q.eps) * g;
        const float v = q.b2 * p.v[i] + q.c2 * by * by;

        stayed += write_finite(p, i, p.p[i] - q.lr * by, m, v);
    }
    count_stayed(p, stayed);
}
