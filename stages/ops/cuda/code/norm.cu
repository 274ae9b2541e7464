// SPDX-License-Identifier: Apache-2.0
/* Layer norm and RMS norm. The variance is that of the deviations from the
 * mean, which takes one more pass over a row in the cache. */
#include "stages/ops/cuda/code/norm.h"
#include "stages/ops/cuda/code/team.cuh"

template <bool WARP>
PST_DEVICE float norm_mean(const struct pst_cuda_norm &p, const float *x,
                           unsigned lane)
{
    float sum = 0.0f;

    if (!p.centre)
        return 0.0f;
    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size)
        sum += x[j];
    return pst_team<WARP>::sum(sum) / (float)p.n;
}

template <bool WARP>
PST_DEVICE float norm_rstd(const struct pst_cuda_norm &p, const float *x,
                           float mean, unsigned lane)
{
    float sum = 0.0f;

    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size)
        sum += (x[j] - mean) * (x[j] - mean);
    return 1.0f / sqrtf(pst_team<WARP>::sum(sum) / (float)p.n + p.eps);
}

/* Computes a row. y may be x: a thread writes only elements that it was the
 * last to read. */
template <bool WARP>
PST_DEVICE void norm_forward(const struct pst_cuda_norm &p, int64_t r,
                             unsigned lane)
{
    const float *x = p.x + r * p.n;
    const float mean = norm_mean<WARP>(p, x, lane);
    const float rstd = norm_rstd<WARP>(p, x, mean, lane);

    if (lane == 0 && p.mean != nullptr)
        p.mean[r * p.step] = mean;
    if (lane == 0 && p.rstd != nullptr)
        p.rstd[r * p.step] = rstd;
    if (p.y == nullptr)
        return;
    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size) {
        const float w = p.w != nullptr ? p.w[j] : 1.0f;
        const float b = p.b != nullptr ? p.b[j] : 0.0f;

        p.y[r * p.n + j] = (x[j] - mean) * rstd * w + b;
    }
}

/* dx = rstd (gw - mean(gw) - xhat mean(gw xhat)), gw = g w; RMS norm lacks the
 * middle term. dx may be g. */
template <bool WARP>
PST_DEVICE void norm_input(const struct pst_cuda_norm &p, int64_t r,
                           unsigned lane)
{
    const float *x = p.x + r * p.n, *g = p.g + r * p.n;
    const float mean = norm_mean<WARP>(p, x, lane);
    const float rstd = norm_rstd<WARP>(p, x, mean, lane);
    float sum = 0.0f, dot = 0.0f;

    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size) {
        const float gw = p.w != nullptr ? g[j] * p.w[j] : g[j];

        sum += gw;
        dot += gw * ((x[j] - mean) * rstd);
    }
    sum = p.centre ? pst_team<WARP>::sum(sum) / (float)p.n : 0.0f;
    dot = pst_team<WARP>::sum(dot) / (float)p.n;
    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size) {
        const float gw = p.w != nullptr ? g[j] * p.w[j] : g[j];
        const float xhat = (x[j] - mean) * rstd;

        p.y[r * p.n + j] = rstd * (gw - sum - xhat * dot);
    }
}

template <bool WARP> PST_DEVICE void norm_rows(const struct pst_cuda_norm &p)
{
    const unsigned lane = pst_team_lane<WARP>();
    const int64_t r = pst_team_row<WARP>();

    if (r >= p.rows)
        return;
    if (p.g != nullptr)
        norm_input<WARP>(p, r, lane);
    else
        norm_forward<WARP>(p, r, lane);
}

PST_CUDA_KERNEL(pst_norm_warp_f32, struct pst_cuda_norm)
{
    norm_rows<true>(p);
}

PST_CUDA_KERNEL(pst_norm_block_f32, struct pst_cuda_norm)
{
    norm_rows<false>(p);
}

/* --- sums over rows ------------------------------------------------------- */

/* A block for 32 columns of a chunk of rows: warp w adds rows w, w + 8, ... of
 * it, then the sums of the warps are added in their order. */
PST_CUDA_KERNEL(pst_norm_affine_f32, struct pst_cuda_norm_affine)
{
    PST_SHARED float sums[2][PST_CUDA_NORM_ROWS][PST_CUDA_NORM_COLS];
    const unsigned col = threadIdx.x % PST_CUDA_NORM_COLS;
    const unsigned row = threadIdx.x / PST_CUDA_NORM_COLS;
    const int64_t j = (int64_t)blockIdx.x * PST_CUDA_NORM_COLS + col;
    const int64_t first = (int64_t)blockIdx.y * p.chunk;
    const int64_t end = first + p.chunk < p.rows ? first + p.chunk : p.rows;
    float dw = 0.0f, db = 0.0f;

    for (int64_t r = first + row; j < p.n && r < end; r += PST_CUDA_NORM_ROWS) {
        const float g = p.g[r * p.n + j];

        dw += g * ((p.x[r * p.n + j] - p.stats[2 * r]) * p.stats[2 * r + 1]);
        db += g;
    }
    sums[0][row][col] = dw;
    sums[1][row][col] = db;
    __syncthreads();
    if (row > 1 || j >= p.n)
        return;
    dw = sums[row][0][col];
    for (unsigned k = 1; k < PST_CUDA_NORM_ROWS; k++)
        dw += sums[row][k][col];
    p.partial[(2 * (int64_t)blockIdx.y + row) * p.n + j] = dw;
}

PST_CUDA_KERNEL(pst_norm_affine_end_f32, struct pst_cuda_norm_affine)
{
    PST_GRID_LOOP(j, p.n)
    {
        float dw = 0.0f, db = 0.0f;

        for (uint32_t k = 0; k < p.chunks; k++) {
            dw += p.partial[2 * (int64_t)k * p.n + j];
            db += p.partial[(2 * (int64_t)k + 1) * p.n + j];
        }
        p.dw[j] = p.accumulate ? p.dw[j] + dw : dw;
        if (p.db != nullptr)
            p.db[j] = db;
    }
}
