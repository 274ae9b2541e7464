// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_ATTENTION_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_ATTENTION_CUH
/*
 * Tiles in shared memory for attention. A block is 16 x 16 threads (y, x). A
 * tile has rows of D floats, padded by four so that neighbouring rows begin in
 * other banks; elements outside of the operand are 0.
 */
#include "stages/ops/cuda/code/layers/attention.h"
#include "stages/ops/cuda/code/random.cuh"
#include "stages/ops/cuda/code/reals.cuh"

#define SDPA_SIDE 16
#define SDPA_PAD  4
/* float4s of a tile of rows of D floats */
#define SDPA_TILE(rows, d) ((rows) * ((d) + SDPA_PAD) / 4)

PST_DEVICE int sdpa_x(void)
{
    return (int)(threadIdx.x % SDPA_SIDE);
}

PST_DEVICE int sdpa_y(void)
{
    return (int)(threadIdx.x / SDPA_SIDE);
}

PST_DEVICE float4 sdpa_load4(const float *at)
{
    return *(const float4 *)at;
}

/* Returns the offset of batch i in an operand; grouped: it is keys or
 * values. */
PST_DEVICE int64_t sdpa_offset(const struct pst_cuda_sdpa &p,
                               const struct pst_cuda_sdpa_operand &f, int64_t i,
                               bool grouped)
{
    int64_t offset = 0;

    for (int d = (int)p.n_batch - 1; d >= 0; d--) {
        int64_t at = i % p.batch[d];

        if (grouped && d + 1 == (int)p.n_batch)
            at /= p.group;
        offset += at * f.batch[d];
        i /= p.batch[d];
    }
    return offset;
}

/* Loads ROWS rows from `first` on, of an operand of `rows` rows and `cols`
 * columns, to the tile. type: of the operand, if E is of 16 bits. */
template <int D, int ROWS, class E = pst_reals_f32>
PST_DEVICE void sdpa_load(float *tile, const struct pst_cuda_sdpa_operand &f,
                          int64_t offset, int first, int rows, int cols,
                          uint32_t type = PST_CUDA_F32)
{

    for (int i = (int)threadIdx.x; i < ROWS * D; i += PST_CUDA_BLOCK) {
        const int r = i / D, c = i % D;

        tile[r * (D + SDPA_PAD) + c] =
            first + r < rows && c < cols
                ? E::load(type, f.x,
                          offset + (int64_t)(first + r) * f.row + c * f.col)
                : 0.0f;
    }
}

/* to[r][c] = dot product of row y R + r of a and row x + 16 c of b */
template <int D, int R, int C>
PST_DEVICE void sdpa_dots(const float *a, const float *b, float (&to)[R][C])
{
    a += sdpa_y() * R * (D + SDPA_PAD);
    b += sdpa_x() * (D + SDPA_PAD);
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        PST_UNROLL
        for (int c = 0; c < C; c++)
            to[r][c] = 0.0f;
    }
    for (int d = 0; d < D; d += 4) {
        float4 y[C];

        PST_UNROLL
        for (int c = 0; c < C; c++)
            y[c] = sdpa_load4(b + c * SDPA_SIDE * (D + SDPA_PAD) + d);
        PST_UNROLL
        for (int r = 0; r < R; r++) {
            const float4 x = sdpa_load4(a + r * (D + SDPA_PAD) + d);

            PST_UNROLL
            for (int c = 0; c < C; c++) {
                to[r][c] += x.x * y[c].x;
                to[r][c] += x.y * y[c].y;
                to[r][c] += x.z * y[c].z;
                to[r][c] += x.w * y[c].w;
            }
        }
    }
}

/* Returns the column of element j of a thread's share of a row. */
PST_DEVICE int sdpa_col(int j)
{
    return j / 4 * SDPA_SIDE * 4 + sdpa_x() * 4 + j % 4;
}

/* to[r][j] += row y R + r of a (rows of N) times column sdpa_col(j) of b (N
 * rows of D). */
template <int D, int R, int N>
PST_DEVICE void sdpa_add(const float *a, const float *b,
                         float (&to)[R][D / SDPA_SIDE])
{
    a += sdpa_y() * R * (N + SDPA_PAD);
    b += sdpa_x() * 4;
    for (int k = 0; k < N; k++) {
        float x[R];

        PST_UNROLL
        for (int r = 0; r < R; r++)
            x[r] = a[r * (N + SDPA_PAD) + k];
        PST_UNROLL
        for (int j = 0; j < D / SDPA_SIDE; j += 4) {
            const float4 y = sdpa_load4(b + k * (D + SDPA_PAD) + j * SDPA_SIDE);

            PST_UNROLL
            for (int r = 0; r < R; r++) {
                to[r][j] += x[r] * y.x;
                to[r][j + 1] += x[r] * y.y;
                to[r][j + 2] += x[r] * y.z;
                to[r][j + 3] += x[r] * y.w;
            }
        }
    }
}

/* Stores row y R + r as row first + y R + r of `to` (rows, cols), times `by`.
 * `to` has elements of `type`, and its batch begins at `offset`. */
template <int D, int R, class E = pst_reals_f32>
PST_DEVICE void sdpa_store(void *to, int first, int rows, int cols, float by,
                           const float (&x)[R][D / SDPA_SIDE],
                           int64_t offset = 0, uint32_t type = PST_CUDA_F32)
{
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        const int row = first + sdpa_y() * R + r;

        PST_UNROLL
        for (int j = 0; j < D / SDPA_SIDE; j++)
            if (row < rows && sdpa_col(j) < cols)
                E::store(type, to, offset + (int64_t)row * cols + sdpa_col(j),
                         by * x[r][j]);
    }
}

/* Return the maximum or sum over the 16 threads of a row to each of them. */
PST_DEVICE float sdpa_row_max(float x)
{
    for (int d = SDPA_SIDE / 2; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(PST_ALL_LANES, x, d));
    return x;
}

PST_DEVICE float sdpa_row_sum(float x)
{
    for (int d = SDPA_SIDE / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(PST_ALL_LANES, x, d);
    return x;
}

/* Returns the score of query `row` and key `col`; mask: offset of the batch. */
template <class E = pst_reals_f32>
PST_DEVICE float sdpa_score(const struct pst_cuda_sdpa &p, int64_t mask,
                            int row, int col, float dot)
{
    const float s = p.scale * dot;

    if (row >= p.l || col >= p.s || (p.causal && col > row))
        return -INFINITY;
    mask += row * p.mask.row + col * p.mask.col;
    if (p.mask_kind == PST_CUDA_MASK_BOOL)
        return ((const uint8_t *)p.mask.x)[mask] != 0 ? s : -INFINITY;
    return p.mask_kind == PST_CUDA_MASK_REAL
               ? s + E::load(p.type, p.mask.x, mask)
               : s;
}

PST_DEVICE float sdpa_keep(const struct pst_cuda_sdpa &p, int64_t i, int row,
                           int col)
{
    return pst_random_keep(p.drop, (uint64_t)((i * p.l + row) * p.s + col));
}

/* Returns how many keys the query rows before `end` attend to. */
PST_DEVICE int sdpa_keys(const struct pst_cuda_sdpa &p, int end)
{
    return p.causal && end < p.s ? end : p.s;
}

/* Clears the gradients of the scores of keys that no row of the tile attends
 * to. */
template <class E, int R>
PST_DEVICE void sdpa_clear_scores(const struct pst_cuda_sdpa &p, int64_t i,
                                  int top, int first)
{
    const int n = p.s - first;

    for (int64_t at = threadIdx.x; n > 0 && at < (int64_t)SDPA_SIDE * R * n;
         at += PST_CUDA_BLOCK) {
        const int r = (int)(at / n), x = (int)(at % n);

        if (top + r < p.l)
            E::store(p.type, p.ds, (i * p.l + top + r) * p.s + first + x, 0.0f);
    }
}

/* Maximum and sum of e^(s - base) of each of R rows over the tiles so far; base
 * = max, or 0 if that is -inf. */
template <int R> struct sdpa_rows {
    float max[R], sum[R];
};

template <int R> PST_DEVICE void sdpa_begin(struct sdpa_rows<R> &rows)
{
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        rows.max[r] = -INFINITY;
        rows.sum[r] = 0.0f;
    }
}

PST_DEVICE float sdpa_base(float max)
{
    return max == -INFINITY ? 0.0f : max;
}

#endif
