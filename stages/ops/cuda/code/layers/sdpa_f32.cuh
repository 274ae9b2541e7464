// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SDPA_F32_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SDPA_F32_CUH
/*
 * Tiles in shared memory for attention in f32, and their products. A block is
 * 16 x 16 threads (y, x). A tile has rows of D floats, padded by four so that
 * neighbouring rows begin in other banks; elements outside of the operand are
 * 0. A thread has R x C results of a product: rows y R + r, and columns x + 16
 * c. It reads 16 bytes at a time, along the sum.
 */
#include "stages/ops/cuda/code/layers/attention.cuh"

#define SDPA_SIDE 16
#define SDPA_PAD  4

#ifdef __CUDACC__
#define SDPA_ROLLED _Pragma("unroll 1")
#else
#define SDPA_ROLLED
#endif

PST_DEVICE int sdpa_x(void)
{
    return (int)(threadIdx.x % SDPA_SIDE);
}

PST_DEVICE int sdpa_y(void)
{
    return (int)(threadIdx.x / SDPA_SIDE);
}

/* Returns the column of element j of a thread's share of a row. */
PST_DEVICE int sdpa_col(int j)
{
    return j / 4 * SDPA_SIDE * 4 + sdpa_x() * 4 + j % 4;
}

/* Stores row y R + r as row first + y R + r of `to` (rows, cols), times `by`.
 */
template <int D, int R>
PST_DEVICE void sdpa_store(float *to, int first, int rows, int cols, float by,
                           const float (&x)[R][D / SDPA_SIDE])
{
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        const int row = first + sdpa_y() * R + r;

        PST_UNROLL
        for (int j = 0; j < D / SDPA_SIDE; j++)
            if (row < rows && sdpa_col(j) < cols)
                to[(int64_t)row * cols + sdpa_col(j)] = by * x[r][j];
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
               ? s + ((const float *)p.mask.x)[mask]
               : s;
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

/* An operand of one batch. It is small, since a block keeps two of them in
 * registers throughout; the other parameters are in constant memory. */
struct sdpa_source {
    const float *x;
    bool vector; /* four columns may be read at once */
};

PST_DEVICE struct sdpa_source sdpa_source_of(
    const struct pst_cuda_sdpa_operand &f, int64_t offset, int cols)
{
    const float *x = (const float *)f.x + offset;

    return {x, f.col == 1 && f.row % 4 == 0 && cols % 4 == 0 &&
                   (uintptr_t)x % 16 == 0};
}

/* Begins to copy ROWS rows from `first` on, of `rows` rows and `cols` columns,
 * to the tile. */
template <int D, int ROWS>
PST_DEVICE void sdpa_copy(float *tile, const struct pst_cuda_sdpa_operand &f,
                          const struct sdpa_source &from, int first, int rows,
                          int cols)
{
    constexpr int STEP = PST_CUDA_BLOCK / (D / 4); /* rows of a round */
    const int t = (int)threadIdx.x;

    static_assert(ROWS % STEP == 0, "whole rounds");
    if (from.vector) {
        const int c = t % (D / 4) * 4;
        int r = t / (D / 4);

        PST_NO_UNROLL
        for (; r < ROWS; r += STEP) {
            const bool inside = first + r < rows && c < cols;

            pst_copy_async<16>(
                tile + r * (D + SDPA_PAD) + c,
                inside ? from.x + (int64_t)(first + r) * f.row + c : from.x,
                inside ? 16 : 0);
        }
        return;
    }
    PST_NO_UNROLL
    for (int i = t; i < ROWS * D; i += PST_CUDA_BLOCK) {
        const int r = i / D, c = i % D;
        const bool inside = first + r < rows && c < cols;

        pst_copy_async<4>(
            tile + r * (D + SDPA_PAD) + c,
            inside ? from.x + (int64_t)(first + r) * f.row + c * f.col : from.x,
            inside ? 4 : 0);
    }
}

PST_DEVICE float sdpa_part(const float4 &x, int i)
{
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* to[r][c] = dot product of row y R + r of a and row x + 16 c of b, each of D
 * floats. */
template <int D, int R, int C>
PST_DEVICE void sdpa_inner(const float *a, const float *b, float (&to)[R][C])
{
    a += sdpa_y() * R * (D + SDPA_PAD);
    b += sdpa_x() * (D + SDPA_PAD);
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        PST_UNROLL
        for (int c = 0; c < C; c++)
            to[r][c] = 0.0f;
    }
    SDPA_ROLLED
    for (int d = 0; d < D; d += 4) {
        float4 y[C];

        PST_UNROLL
        for (int c = 0; c < C; c++)
            y[c] = sdpa_load4(b + c * SDPA_SIDE * (D + SDPA_PAD) + d);
        PST_UNROLL
        for (int r = 0; r < R; r++) {
            const float4 x = sdpa_load4(a + r * (D + SDPA_PAD) + d);

            PST_UNROLL
            for (int i = 0; i < 4; i++) {
                PST_UNROLL
                for (int c = 0; c < C; c++)
                    to[r][c] += sdpa_part(x, i) * sdpa_part(y[c], i);
            }
        }
    }
}

/* to[r][j] += row y R + r of a, N floats, times column sdpa_col(j) of b, N rows
 * of D. */
template <int D, int R, int N>
PST_DEVICE void sdpa_outer(const float *a, const float *b,
                           float (&to)[R][D / SDPA_SIDE])
{
    a += sdpa_y() * R * (N + SDPA_PAD);
    b += sdpa_x() * 4;
    SDPA_ROLLED
    for (int k = 0; k < N; k += 4) {
        float4 x[R];

        PST_UNROLL
        for (int r = 0; r < R; r++)
            x[r] = sdpa_load4(a + r * (N + SDPA_PAD) + k);
        PST_UNROLL
        for (int i = 0; i < 4; i++) {
            PST_UNROLL
            for (int j = 0; j < D / SDPA_SIDE; j += 4) {
                const float4 y =
                    sdpa_load4(b + (k + i) * (D + SDPA_PAD) + j * SDPA_SIDE);

                PST_UNROLL
                for (int r = 0; r < R; r++) {
                    to[r][j] += sdpa_part(x[r], i) * y.x;
                    to[r][j + 1] += sdpa_part(x[r], i) * y.y;
                    to[r][j + 2] += sdpa_part(x[r], i) * y.z;
                    to[r][j + 3] += sdpa_part(x[r], i) * y.w;
                }
            }
        }
    }
}

/* Turns the dot products s of a tile into scores. rows, cols: the tile's first
 * query and first key, or first key and first query if TRANSPOSED. Scores that
 * are masked, or of queries or keys that do not exist, are -inf. */
template <int R, int C, bool TRANSPOSED>
PST_DEVICE void sdpa_scores(const struct pst_cuda_sdpa &p, int64_t mask,
                            int rows, int cols, float (&s)[R][C])
{
    const int query = TRANSPOSED ? cols : rows, key = TRANSPOSED ? rows : cols;
    const int queries = SDPA_SIDE * (TRANSPOSED ? C : R);
    const int keys = SDPA_SIDE * (TRANSPOSED ? R : C);
    /* Nothing is masked, and all queries and keys exist. */
    const bool whole = p.mask_kind == PST_CUDA_MASK_NONE &&
                       query + queries <= p.l && key + keys <= p.s &&
                       (p.causal == 0 || key + keys <= query + 1);

    PST_UNROLL
    for (int r = 0; r < R; r++) {
        PST_UNROLL
        for (int c = 0; c < C; c++) {
            const int row = rows + sdpa_y() * R + r;
            const int col = cols + sdpa_x() + c * SDPA_SIDE;

            s[r][c] = whole ? p.scale * s[r][c]
                            : sdpa_score(p, mask, TRANSPOSED ? col : row,
                                         TRANSPOSED ? row : col, s[r][c]);
        }
    }
}

/* Stores a thread's share of a tile of rows of N floats. Only threads of the
 * same warp read it, so that __syncwarp suffices as the barrier. */
template <int N, int R>
PST_DEVICE void sdpa_keep_tile(float *tile, const float (&x)[R][N / SDPA_SIDE])
{
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        PST_UNROLL
        for (int c = 0; c < N / SDPA_SIDE; c++)
            tile[(sdpa_y() * R + r) * (N + SDPA_PAD) + sdpa_x() +
                 c * SDPA_SIDE] = x[r][c];
    }
}

#endif
