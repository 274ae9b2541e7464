// SPDX-License-Identifier: Apache-2.0
/* embedding and its gradient. */
#include "stages/ops/cuda/code/elements/embed.h"
#include "stages/ops/cuda/code/fault.cuh"
#include "stages/ops/cuda/code/reals.cuh"

template <typename T> PST_DEVICE void embed_rows(const struct pst_cuda_embed &p)
{
    PST_GRID_LOOP(i, p.n * p.width)
    {
        const int64_t at = i / p.width, col = i % p.width;
        const int64_t row = pst_index_at(p.index, p.wide, at);
        T x = {};

        if (row >= 0 && row < p.rows)
            x = ((const T *)p.from)[row * p.width + col];
        else if (col == 0)
            pst_fault_set(p.fault, row, p.rows);
        ((T *)p.to)[i] = x;
    }
}

PST_CUDA_KERNEL(pst_embed, struct pst_cuda_embed)
{
    switch (p.unit) {
    case 1:
        embed_rows<uint8_t>(p);
        break;
    case 2:
        embed_rows<uint16_t>(p);
        break;
    case 4:
        embed_rows<uint32_t>(p);
        break;
    case 8:
        embed_rows<uint64_t>(p);
        break;
    default:
        embed_rows<float4>(p);
    }
}

/* --- gradient ---------------------------------------------------------------
 */

/* Returns the row to which position i adds its gradient; -1: none. */
PST_DEVICE int64_t embed_row(const struct pst_cuda_embed_grad &p, int64_t i)
{
    const int64_t row = pst_index_at(p.index, p.wide, i);

    return row < 0 || row >= p.rows || row == p.padding ? -1 : row;
}

/* 1. Counts the positions of each row in start[row + 1], which is 0 before. */
PST_CUDA_KERNEL(pst_embed_count, struct pst_cuda_embed_grad)
{
    PST_GRID_LOOP(i, p.n)
    {
        const int64_t row = pst_index_at(p.index, p.wide, i);

        if (row < 0 || row >= p.rows)
            pst_fault_set(p.fault, row, p.rows);
        else if (row != p.padding)
            atomicAdd(&p.start[row + 1], 1);
    }
}

/* 2. One block: start[row] = sum of the counts of all rows before it; next =
 * start. Each thread has a share of the rows. */
PST_CUDA_KERNEL(pst_embed_starts, struct pst_cuda_embed_grad)
{
    PST_SHARED int32_t sums[PST_CUDA_BLOCK];
    const int64_t share = (p.rows + PST_CUDA_BLOCK - 1) / PST_CUDA_BLOCK;
    const int64_t begin = threadIdx.x * share;
    const int64_t end = begin + share < p.rows ? begin + share : p.rows;
    int32_t sum = 0;

    for (int64_t r = begin; r < end; r++)
        sum += p.start[r + 1];
    sums[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned t = 0; t < threadIdx.x; t++)
        sum += sums[t];
    for (int64_t r = begin; r < end; r++) {
        p.next[r] = sum;
        sum += p.start[r + 1];
        p.start[r + 1] = sum;
    }
}

/* 3. Lists the positions of each row in found, in any order. */
PST_CUDA_KERNEL(pst_embed_find, struct pst_cuda_embed_grad)
{
    PST_GRID_LOOP(i, p.n)
    {
        const int64_t row = embed_row(p, i);

        if (row >= 0)
            p.found[atomicAdd(&p.next[row], 1)] = (int32_t)i;
    }
}

/* 4. Sorts the positions of each row: the index of a position is the number of
 * smaller positions of the row. */
PST_CUDA_KERNEL(pst_embed_order, struct pst_cuda_embed_grad)
{
    PST_GRID_LOOP(k, p.start[p.rows])
    {
        const int32_t i = p.found[k];
        const int64_t row = embed_row(p, i);
        int32_t at = p.start[row];

        for (int32_t j = p.start[row]; j < p.start[row + 1]; j++)
            at += p.found[j] < i;
        p.order[at] = i;
    }
}

/* 5. A thread for each element adds its gradients in the order of the
 * positions. */
template <class E>
PST_DEVICE void embed_sum(const struct pst_cuda_embed_grad &p)
{
    PST_GRID_LOOP(e, p.rows * p.width)
    {
        const int64_t row = e / p.width, col = e % p.width;
        const int32_t begin = p.start[row], end = p.start[row + 1];
        const float scale = p.by_count ? 1.0f / (float)(end - begin) : 1.0f;
        float sum = p.accumulate ? E::load(p.type, p.to, e) : 0.0f;

        if (begin == end && p.accumulate)
            continue;
        for (int32_t k = begin; k < end; k++)
            sum += scale * E::load(p.type, p.g, p.order[k] * p.width + col);
        E::store(p.type, p.to, e, sum);
    }
}

PST_CUDA_KERNEL(pst_embed_sum_f32, struct pst_cuda_embed_grad)
{
    embed_sum<pst_reals_f32>(p);
}

PST_CUDA_KERNEL(pst_embed_sum_16, struct pst_cuda_embed_grad)
{
    embed_sum<pst_reals_16>(p);
}
