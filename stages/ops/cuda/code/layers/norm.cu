// SPDX-License-Identifier: Apache-2.0
/* Layer norm and RMS norm. The variance is computed from the deviations from
 * the mean, which takes one more pass over a row in the cache. */
#include "stages/ops/cuda/code/layers/norm.h"
#include "stages/ops/cuda/code/reals.cuh"
#include "stages/ops/cuda/code/team.cuh"

template <class E, bool WARP>
PST_DEVICE float norm_mean(const struct pst_cuda_norm &p, int64_t first,
                           unsigned lane)
{
    float sum = 0.0f;

    if (!p.centre)
        return 0.0f;
    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size)
        sum += E::load(p.type, p.x, first + j);
    return pst_team<WARP>::sum(sum) / (float)p.n;
}

template <class E, bool WARP>
PST_DEVICE float norm_rstd(const struct pst_cuda_norm &p, int64_t first,
                           float mean, unsigned lane)
{
    float sum = 0.0f;

    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size) {
        const float d = E::load(p.type, p.x, first + j) - mean;

        sum += d * d;
    }
    return 1.0f / sqrtf(pst_team<WARP>::sum(sum) / (float)p.n + p.eps);
}

/* Computes a row. y may be x: a thread writes only elements that it was the
 * last to read. */
template <class E, bool WARP>
PST_DEVICE void norm_forward(const struct pst_cuda_norm &p, int64_t r,
                             unsigned lane)
{
    const int64_t first = r * p.n;
    const float mean = norm_mean<E, WARP>(p, first, lane);
    const float rstd = norm_rstd<E, WARP>(p, first, mean, lane);

    if (lane == 0 && p.mean != nullptr)
        E::store(p.stats_type, p.mean, r * p.step, mean);
    if (lane == 0 && p.rstd != nullptr)
        E::store(p.stats_type, p.rstd, r * p.step, rstd);
    if (p.y == nullptr)
        return;
    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size) {
        const float w = p.w != nullptr ? E::load(p.type, p.w, j) : 1.0f;
        const float b = p.b != nullptr ? E::load(p.type, p.b, j) : 0.0f;
        const float x = E::load(p.type, p.x, first + j);

        E::store(p.type, p.y, first + j, (x - mean) * rstd * w + b);
    }
}

/* Returns g w of element j of the row that begins at `first`. */
template <class E>
PST_DEVICE float norm_weighted(const struct pst_cuda_norm &p, int64_t first,
                               int64_t j)
{
    const float g = E::load(p.type, p.g, first + j);

    return p.w != nullptr ? g * E::load(p.type, p.w, j) : g;
}

/* dx = rstd (gw - mean(gw) - xhat mean(gw xhat)), gw = g w; RMS norm lacks the
 * middle term. dx may be g. */
template <class E, bool WARP>
PST_DEVICE void norm_input(const struct pst_cuda_norm &p, int64_t r,
                           unsigned lane)
{
    const int64_t first = r * p.n;
    const float mean = norm_mean<E, WARP>(p, first, lane);
    const float rstd = norm_rstd<E, WARP>(p, first, mean, lane);
    float sum = 0.0f, dot = 0.0f;

    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size) {
        const float gw = norm_weighted<E>(p, first, j);

        sum += gw;
        dot += gw * ((E::load(p.type, p.x, first + j) - mean) * rstd);
    }
    sum = p.centre ? pst_team<WARP>::sum(sum) / (float)p.n : 0.0f;
    dot = pst_team<WARP>::sum(dot) / (float)p.n;
    for (int64_t j = lane; j < p.n; j += pst_team<WARP>::size) {
        const float gw = norm_weighted<E>(p, first, j);
        const float xhat = (E::load(p.type, p.x, first + j) - mean) * rstd;

        E::store(p.type, p.y, first + j, rstd * (gw - sum - xhat * dot));
    }
}

template <class E, bool WARP>
PST_DEVICE void norm_rows(const struct pst_cuda_norm &p)
{
    const unsigned lane = pst_team_lane<WARP>();
    const int64_t r = pst_team_row<WARP>();

    if (r >= p.rows)
        return;
    if (p.g != nullptr)
        norm_input<E, WARP>(p, r, lane);
    else
        norm_forward<E, WARP>(p, r, lane);
}

PST_CUDA_KERNEL(pst_norm_warp_f32, struct pst_cuda_norm)
{
    norm_rows<pst_reals_f32, true>(p);
}

PST_CUDA_KERNEL(pst_norm_block_f32, struct pst_cuda_norm)
{
    norm_rows<pst_reals_f32, false>(p);
}

PST_CUDA_KERNEL(pst_norm_warp_16, struct pst_cuda_norm)
{
    norm_rows<pst_reals_16, true>(p);
}

PST_CUDA_KERNEL(pst_norm_block_16, struct pst_cuda_norm)
{
    norm_rows<pst_reals_16, false>(p);
}

/* --- sums over rows ------------------------------------------------------- */

/* A block for 32 columns of a chunk of rows: warp w adds rows w, w + 8, ... of
 * it, then the sums of the warps are added in their order. */
template <class E>
PST_DEVICE void norm_affine(const struct pst_cuda_norm_affine &p)
{
    PST_SHARED float sums[2][PST_CUDA_NORM_ROWS][PST_CUDA_NORM_COLS];
    const unsigned col = threadIdx.x % PST_CUDA_NORM_COLS;
    const unsigned row = threadIdx.x / PST_CUDA_NORM_COLS;
    const int64_t j = (int64_t)blockIdx.x * PST_CUDA_NORM_COLS + col;
    const int64_t first = (int64_t)blockIdx.y * p.chunk;
    const int64_t end = first + p.chunk < p.rows ? first + p.chunk : p.rows;
    float dw = 0.0f, db = 0.0f;

    for (int64_t r = first + row; j < p.n && r < end; r += PST_CUDA_NORM_ROWS) {
        const float g = E::load(p.type, p.g, r * p.n + j);
        const float x = E::load(p.type, p.x, r * p.n + j);

        dw += g * ((x - p.stats[2 * r]) * p.stats[2 * r + 1]);
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

template <class E>
PST_DEVICE void norm_affine_end(const struct pst_cuda_norm_affine &p)
{
    PST_GRID_LOOP(j, p.n)
    {
        float dw = 0.0f, db = 0.0f;

        for (uint32_t k = 0; k < p.chunks; k++) {
            dw += p.partial[2 * (int64_t)k * p.n + j];
            db += p.partial[(2 * (int64_t)k + 1) * p.n + j];
        }
        pst_real_put<E>(p.type, p.dw, j, dw, p.accumulate);
        if (p.db != nullptr)
            E::store(p.type, p.db, j, db);
    }
}

PST_CUDA_KERNEL(pst_norm_affine_f32, struct pst_cuda_norm_affine)
{
    norm_affine<pst_reals_f32>(p);
}

PST_CUDA_KERNEL(pst_norm_affine_end_f32, struct pst_cuda_norm_affine)
{
    norm_affine_end<pst_reals_f32>(p);
}

PST_CUDA_KERNEL(pst_norm_affine_16, struct pst_cuda_norm_affine)
{
    norm_affine<pst_reals_16>(p);
}

PST_CUDA_KERNEL(pst_norm_affine_end_16, struct pst_cuda_norm_affine)
{
    norm_affine_end<pst_reals_16>(p);
}
