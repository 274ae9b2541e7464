// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SDPA_16_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SDPA_16_CUH
/*
 * Products of tiles for attention of 16 bits, by the matrix instructions of
 * mma.cuh. A block has SDPA16_WARPS warps. Each has 16 T rows of the block's
 * tile, and the results of a product are in its registers: x[m][n] is the
 * fragment of the rows from 16 m and the columns from 8 n on. Rows of a tile in
 * shared memory have D elements and SDPA16_PAD more, so that eight rows of a
 * matrix are in different banks. Elements outside of the operand are 0.
 */
#include "stages/ops/cuda/code/layers/attention.cuh"
#include "stages/ops/cuda/code/mma.cuh"

#define SDPA16_WARPS (PST_CUDA_SDPA16_THREADS / PST_WARP)
#define SDPA16_PAD   PST_MATRIX
#define SDPA16_LOG2E 1.4426950408889634f

PST_DEVICE int sdpa16_lane(void)
{
    return (int)(threadIdx.x % PST_WARP);
}

PST_DEVICE int sdpa16_warp(void)
{
    return (int)(threadIdx.x / PST_WARP);
}

/* Return the row and column of element e of a fragment of results. */
PST_DEVICE int sdpa16_row(int e)
{
    return sdpa16_lane() / 4 + e / 2 * 8;
}

PST_DEVICE int sdpa16_col(int e)
{
    return sdpa16_lane() % 4 * 2 + e % 2;
}

/* --- tiles ------------------------------------------------------------------
 */

/* An operand of one batch. */
struct sdpa16_source {
    const uint16_t *x;
    bool vector; /* eight columns may be read at once */
};

PST_DEVICE struct sdpa16_source sdpa16_source_of(
    const struct pst_cuda_sdpa_operand &f, int64_t offset, int cols)
{
    const uint16_t *x = (const uint16_t *)f.x + offset;

    return {x, f.col == 1 && f.row % 8 == 0 && cols % 8 == 0 &&
                   (uintptr_t)x % 16 == 0};
}

/* Begins to copy ROWS rows from `first` on, of `rows` rows and `cols` columns,
 * to the tile. */
template <int D, int ROWS>
PST_DEVICE void sdpa16_copy(uint16_t *tile,
                            const struct pst_cuda_sdpa_operand &f,
                            const struct sdpa16_source &from, int first,
                            int rows, int cols)
{
    constexpr int STEP = PST_CUDA_SDPA16_THREADS / (D / 8);
    const int t = (int)threadIdx.x;

    static_assert(ROWS % STEP == 0, "whole rounds");
    if (from.vector) {
        const int c = t % (D / 8) * 8;
        int r = t / (D / 8);

        PST_NO_UNROLL
        for (; r < ROWS; r += STEP) {
            const bool inside = first + r < rows && c < cols;

            pst_copy_async<16>(tile + r * (D + SDPA16_PAD) + c,
                               inside ? from.x + (first + r) * f.row + c
                                      : from.x,
                               inside ? 16 : 0);
        }
        return;
    }
    PST_NO_UNROLL
    for (int i = t; i < ROWS * D; i += PST_CUDA_SDPA16_THREADS) {
        const int r = i / D, c = i % D;

        tile[r * (D + SDPA16_PAD) + c] =
            first + r < rows && c < cols
                ? from.x[(first + r) * f.row + c * f.col]
                : (uint16_t)0;
    }
}

/* Reads eight elements, two per word. */
PST_DEVICE void sdpa16_load8(const uint16_t *at, uint32_t (&to)[4])
{
    const float4 x = sdpa_load4((const float *)at);

    to[0] = __float_as_uint(x.x);
    to[1] = __float_as_uint(x.y);
    to[2] = __float_as_uint(x.z);
    to[3] = __float_as_uint(x.w);
}

/* Reads eight columns of a row, from column `col` on. Elements outside of the
 * operand are 0. */
PST_DEVICE void sdpa16_load_row(const struct pst_cuda_sdpa_operand &f,
                                const struct sdpa16_source &from, int row,
                                int rows, int col, int cols, uint32_t (&to)[4])
{
    const uint16_t *const at = from.x + row * f.row;

    if (from.vector && row < rows && col < cols) {
        sdpa16_load8(at + col, to);
        return;
    }
    PST_UNROLL
    for (int k = 0; k < 4; k++) {
        const int c = col + 2 * k;

        to[k] = row < rows && c < cols ? at[c * f.col] : 0u;
        if (row < rows && c + 1 < cols)
            to[k] |= (uint32_t)at[(c + 1) * f.col] << 16;
    }
}

/* sum += the products of eight elements each. */
template <class H>
PST_DEVICE void sdpa16_add_dot(const uint32_t (&a)[4], const uint32_t (&b)[4],
                               float &sum)
{
    PST_UNROLL
    for (int k = 0; k < 4; k++) {
        sum += H::number((uint16_t)a[k]) * H::number((uint16_t)b[k]);
        sum += H::number((uint16_t)(a[k] >> 16)) *
               H::number((uint16_t)(b[k] >> 16));
    }
}

/* Tiles of keys and values that a block of query rows goes through: two of each
 * in shared memory, of n rows. */
template <int D, int N> struct sdpa16_key_tiles {
    uint16_t *tiles;
    struct sdpa16_source k, v;

    PST_INLINE_DEVICE const uint16_t *keys(int n) const
    {
        return tiles + n % 2 * (2 * N * (D + SDPA16_PAD));
    }

    PST_INLINE_DEVICE const uint16_t *values(int n) const
    {
        return keys(n) + N * (D + SDPA16_PAD);
    }

    /* Begins to copy the n-th tiles, those of the keys from `first` on. */
    PST_INLINE_DEVICE void copy(const struct pst_cuda_sdpa &p, int n,
                                int first) const
    {
        sdpa16_copy<D, N>((uint16_t *)keys(n), p.k, k, first, p.s, p.e);
        sdpa16_copy<D, N>((uint16_t *)values(n), p.v, v, first, p.s, p.ev);
    }
};

template <int D, int N>
PST_DEVICE struct sdpa16_key_tiles<D, N> sdpa16_key_tiles_of(
    const struct pst_cuda_sdpa &p, int64_t i, uint16_t *tiles) {
    return {tiles, sdpa16_source_of(p.k, sdpa_offset(p, p.k, i, true), p.e),
            sdpa16_source_of(p.v, sdpa_offset(p, p.v, i, true), p.ev)};
}

/* --- products ---------------------------------------------------------------
 */

template <int T, int N>
PST_DEVICE void sdpa16_clear(float (&x)[T][N][4])
{
    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int n = 0; n < N; n++) {
            PST_UNROLL
            for (int e = 0; e < 4; e++)
                x[m][n][e] = 0.0f;
        }
    }
}

/* to = a b^T. a: the warp's rows of a tile; b: a tile of 8 N rows. */
template <class H, int D, int T, int N>
PST_DEVICE void sdpa16_inner(const uint16_t *a, const uint16_t *b,
                             float (&to)[T][N][4])
{
    constexpr int W = D + SDPA16_PAD;
    const int l = sdpa16_lane();

    a += l % 16 * W + l / 16 * 8;
    b += (l % 8 + l / 16 * 8) * W + l / 8 % 2 * 8;
    sdpa16_clear(to);
    PST_UNROLL
    for (int d = 0; d < D; d += 16) {
        uint32_t x[T][4], y[4];

        PST_UNROLL
        for (int m = 0; m < T; m++)
            pst_load_matrices(x[m], a + m * 16 * W + d);
        PST_UNROLL
        for (int n = 0; n < N; n += 2) {
            pst_load_matrices(y, b + n * 8 * W + d);
            PST_UNROLL
            for (int m = 0; m < T; m++) {
                H::mma(to[m][n], x[m], y[0], y[1]);
                H::mma(to[m][n + 1], x[m], y[2], y[3]);
            }
        }
    }
}

/* to += a b. a: results, rounded to 16 bits; b: a tile of 8 N rows. */
template <class H, int D, int T, int N>
PST_DEVICE void sdpa16_outer(const float (&a)[T][N][4], const uint16_t *b,
                             float (&to)[T][D / 8][4])
{
    constexpr int W = D + SDPA16_PAD;
    const int l = sdpa16_lane();

    b += l % 16 * W + l / 16 * 8;
    PST_UNROLL
    for (int n = 0; n < N; n += 2) {
        uint32_t x[T][4], y[4];

        PST_UNROLL
        for (int m = 0; m < T; m++) {
            PST_UNROLL
            for (int i = 0; i < 4; i++)
                x[m][i] = H::pack(a[m][n + i / 2][i % 2 * 2],
                                  a[m][n + i / 2][i % 2 * 2 + 1]);
        }
        PST_UNROLL
        for (int d = 0; d < D / 8; d += 2) {
            pst_load_transposed(y, b + n * 8 * W + d * 8);
            PST_UNROLL
            for (int m = 0; m < T; m++) {
                H::mma(to[m][d], x[m], y[0], y[1]);
                H::mma(to[m][d + 1], x[m], y[2], y[3]);
            }
        }
    }
}

/* Stores two adjacent elements of a row of `cols`. pairs: as one word. */
template <class H>
PST_DEVICE void sdpa16_put(uint16_t *to, bool pairs, int col, int cols, float x,
                           float y)
{
    const uint32_t word = H::pack(x, y);

    if (pairs && col < cols) {
        *(uint32_t *)to = word;
        return;
    }
    if (col < cols)
        to[0] = (uint16_t)word;
    if (col + 1 < cols)
        to[1] = (uint16_t)(word >> 16);
}

/* True if rows of `cols` elements at `to` may be stored word by word. */
PST_DEVICE bool sdpa16_has_pairs(const uint16_t *to, int cols)
{
    return cols % 2 == 0 && (uintptr_t)to % 4 == 0;
}

/* Stores the warp's rows, from `first` on, of `to` (rows, cols), times `by`. */
template <class H, int T, int N>
PST_DEVICE void sdpa16_store(uint16_t *to, int first, int rows, int cols,
                             float by, const float (&x)[T][N][4])
{
    const bool pairs = sdpa16_has_pairs(to, cols);

    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int h = 0; h < 4; h += 2) {
            const int row = first + m * 16 + sdpa16_row(h);

            if (row >= rows)
                continue;
            PST_UNROLL
            for (int n = 0; n < N; n++) {
                const int col = n * 8 + sdpa16_col(0);

                sdpa16_put<H>(to + (int64_t)row * cols + col, pairs, col, cols,
                              by * x[m][n][h], by * x[m][n][h + 1]);
            }
        }
    }
}

#endif
