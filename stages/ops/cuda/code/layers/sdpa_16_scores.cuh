// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SDPA_16_SCORES_CUH
#define PENSTOCK_STAGES_OPS_CUDA_CODE_LAYERS_SDPA_16_SCORES_CUH
/* Scores of attention of 16 bits, in registers: masks, dropout, softmax. */
#include "stages/ops/cuda/code/layers/sdpa_16.cuh"

/* --- scores -----------------------------------------------------------------
 */

/* Unit of the numbers that sdpa16_scores computes: `by` times a number is the
 * score times log2(e), for exponents of 2. by > 0, so that the largest number
 * is the largest score. */
struct sdpa16_unit {
    float by;
    bool apart; /* sdpa16_scores multiplies by the scale, so by = 1 */
};

PST_DEVICE struct sdpa16_unit sdpa16_unit_of(const struct pst_cuda_sdpa &p)
{
    const float by = p.scale * SDPA16_LOG2E;
    const bool apart = p.mask_kind == PST_CUDA_MASK_REAL || !(by > 0.0f);

    return {apart ? 1.0f : by, apart};
}

/* The rows of a warp, and the columns that it multiplies them with: queries and
 * keys, or keys and queries if TRANSPOSED. */
template <bool TRANSPOSED> struct sdpa16_area {
    int64_t i; /* batch of the queries */
    int rows, cols;

    PST_INLINE_DEVICE int query(int m, int n, int e) const
    {
        return TRANSPOSED ? cols + n * 8 + sdpa16_col(e)
                          : rows + m * 16 + sdpa16_row(e);
    }

    PST_INLINE_DEVICE int key(int m, int n, int e) const
    {
        return TRANSPOSED ? rows + m * 16 + sdpa16_row(e)
                          : cols + n * 8 + sdpa16_col(e);
    }
};

template <bool TRANSPOSED>
PST_DEVICE struct sdpa16_area<TRANSPOSED> sdpa16_area_of(int64_t i, int rows,
                                                         int cols) {
    return {i, rows, cols};
}

/* True if the warp has nothing to do with a tile: its rows do not exist, or
 * causal masks hide all keys from all queries. */
template <int T, int N, bool TRANSPOSED>
PST_DEVICE bool sdpa16_is_idle(const struct pst_cuda_sdpa &p,
                               const struct sdpa16_area<TRANSPOSED> &a)
{
    const int last_query = TRANSPOSED ? a.cols + 8 * N : a.rows + 16 * T;

    return a.rows >= (TRANSPOSED ? p.s : p.l) ||
           (p.causal && (TRANSPOSED ? a.rows : a.cols) >= last_query);
}

/* Returns bit 4 n + e for each score of fragment row m: 1 if the mask lets the
 * query attend to the key. */
template <int N, bool TRANSPOSED>
PST_DEVICE uint32_t sdpa16_allowed(const struct pst_cuda_sdpa &p,
                                   const struct sdpa16_area<TRANSPOSED> &a,
                                   int64_t mask, int m)
{
    uint32_t ret = 0;

    PST_NO_UNROLL
    for (int n = 0; n < N; n++) {
        PST_UNROLL
        for (int e = 0; e < 4; e++) {
            const int row = a.query(m, n, e), col = a.key(m, n, e);
            const int64_t at = mask + row * p.mask.row + col * p.mask.col;

            if (row < p.l && col < p.s && ((const uint8_t *)p.mask.x)[at] != 0)
                ret |= 1u << (n * 4 + e);
        }
    }
    return ret;
}

/* Masks scores by a bool mask; mask: offset of the batch. */
template <int T, int N, bool TRANSPOSED>
PST_DEVICE void sdpa16_mask(const struct pst_cuda_sdpa &p,
                            const struct sdpa16_area<TRANSPOSED> &a,
                            int64_t mask, float (&s)[T][N][4])
{
    PST_UNROLL
    for (int m = 0; m < T; m++) {
        const uint32_t allowed = sdpa16_allowed<N>(p, a, mask, m);

        PST_UNROLL
        for (int n = 0; n < N; n++) {
            PST_UNROLL
            for (int e = 0; e < 4; e++)
                if ((allowed >> (n * 4 + e) & 1) == 0)
                    s[m][n][e] = -INFINITY;
        }
    }
}

/* Adds a mask of numbers, column by column in a loop that is not unrolled:
 * unrolled, it would need too many registers. */
template <class H, int T, int N, bool TRANSPOSED>
PST_DEVICE void sdpa16_add_mask(const struct pst_cuda_sdpa &p,
                                const struct sdpa16_area<TRANSPOSED> &a,
                                int64_t mask, float (&s)[T][N][4])
{
    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_NO_UNROLL
        for (int j = 0; j < N; j++) {
            float x[4];

            PST_UNROLL
            for (int e = 0; e < 4; e++) {
                const int row = a.query(m, j, e), col = a.key(m, j, e);

                x[e] = row < p.l && col < p.s
                           ? H::number(((const uint16_t *)
                                            p.mask.x)[mask + row * p.mask.row +
                                                      col * p.mask.col])
                           : 0.0f;
            }
            PST_UNROLL
            for (int n = 0; n < N; n++) {
                PST_UNROLL
                for (int e = 0; e < 4; e++)
                    if (n == j)
                        s[m][n][e] += SDPA16_LOG2E * x[e];
            }
        }
    }
}

/* Turns dot products into scores, in units of `by`. Scores that are masked are
 * -inf, and so are those of keys that do not exist; those of rows, or of
 * transposed columns, that do not exist are never used. */
template <class H, int T, int N, bool TRANSPOSED>
PST_DEVICE void sdpa16_scores(const struct pst_cuda_sdpa &p,
                              const struct sdpa16_area<TRANSPOSED> &a,
                              bool apart, float (&s)[T][N][4])
{
    const int query = TRANSPOSED ? a.cols : a.rows;
    const int last = TRANSPOSED ? a.rows + 16 * T : a.cols + 8 * N;

    if (apart) {
        PST_UNROLL
        for (int m = 0; m < T; m++) {
            PST_UNROLL
            for (int n = 0; n < N; n++) {
                PST_UNROLL
                for (int e = 0; e < 4; e++)
                    s[m][n][e] *= p.scale * SDPA16_LOG2E;
            }
        }
    }
    if ((!TRANSPOSED && last > p.s) || (p.causal && last > query + 1)) {
        PST_UNROLL
        for (int m = 0; m < T; m++) {
            PST_UNROLL
            for (int n = 0; n < N; n++) {
                PST_UNROLL
                for (int e = 0; e < 4; e++) {
                    const int key = a.key(m, n, e);

                    if (key >= p.s || (p.causal && key > a.query(m, n, e)))
                        s[m][n][e] = -INFINITY;
                }
            }
        }
    }
    if (p.mask_kind != PST_CUDA_MASK_NONE) {
        const int64_t mask = sdpa_offset(p, p.mask, a.i, false);

        if (p.mask_kind == PST_CUDA_MASK_BOOL)
            sdpa16_mask(p, a, mask, s);
        else
            sdpa16_add_mask<H>(p, a, mask, s);
    }
}

/* Returns bit 4 n + e for each element of fragment row m: 1 if dropout keeps
 * it. Unrolled, the random numbers would need too many registers. */
template <int N, bool TRANSPOSED>
PST_DEVICE uint32_t sdpa16_kept(const struct pst_cuda_sdpa &p,
                                const struct sdpa16_area<TRANSPOSED> &a, int m)
{
    uint32_t ret = 0;

    PST_NO_UNROLL
    for (int i = 0; i < N * 4; i++)
        if (sdpa_keep(p, a.i, a.query(m, i / 4, i % 4),
                      a.key(m, i / 4, i % 4)) != 0.0f)
            ret |= 1u << i;
    return ret;
}

template <int T, int N, bool TRANSPOSED>
PST_DEVICE void sdpa16_keep(const struct pst_cuda_sdpa &p,
                            const struct sdpa16_area<TRANSPOSED> &a,
                            uint32_t (&kept)[T])
{
    PST_UNROLL
    for (int m = 0; m < T; m++)
        kept[m] = sdpa16_kept<N>(p, a, m);
}

/* Multiplies x by the factors of dropout. */
template <int T, int N>
PST_DEVICE void sdpa16_drop(const struct pst_cuda_sdpa &p,
                            const uint32_t (&kept)[T], float (&x)[T][N][4])
{
    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int n = 0; n < N; n++) {
            PST_UNROLL
            for (int e = 0; e < 4; e++)
                x[m][n][e] *= kept[m] >> (n * 4 + e) & 1 ? p.drop.kept : 0.0f;
        }
    }
}

/* --- rows -------------------------------------------------------------------
 */

/* Return the maximum or sum over the four lanes of a row to each of them. */
PST_DEVICE float sdpa16_row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(PST_ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(PST_ALL_LANES, x, 2));
}

PST_DEVICE float sdpa16_row_sum(float x)
{
    x += __shfl_xor_sync(PST_ALL_LANES, x, 1);
    return x + __shfl_xor_sync(PST_ALL_LANES, x, 2);
}

/* Maximum of each row, in the unit of the scores, and this lane's part of the
 * sum of 2^(by s - base), over the tiles so far. */
template <int T> struct sdpa16_rows {
    float max[T][2], sum[T][2];
};

template <int T> PST_DEVICE void sdpa16_begin(struct sdpa16_rows<T> &rows)
{
    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int h = 0; h < 2; h++) {
            rows.max[m][h] = -INFINITY;
            rows.sum[m][h] = 0.0f;
        }
    }
}

/* Turns the scores of half h of the rows of fragment row m into 2^(by s -
 * base), and returns the factor by which sums with the previous base must be
 * scaled. */
template <int T, int N>
PST_DEVICE float sdpa16_advance(struct sdpa16_rows<T> &rows, float by, int m,
                                int h, float (&s)[T][N][4])
{
    float max = rows.max[m][h], sum = 0.0f, base, was;

    PST_UNROLL
    for (int n = 0; n < N; n++)
        max = fmaxf(max, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
    max = sdpa16_row_max(max);
    base = sdpa_base(max * by);
    was = pst_exp2(rows.max[m][h] * by - base);
    PST_UNROLL
    for (int n = 0; n < N; n++) {
        PST_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; e++) {
            s[m][n][e] = pst_exp2(s[m][n][e] * by - base);
            sum += s[m][n][e];
        }
    }
    rows.sum[m][h] = rows.sum[m][h] * was + sum;
    rows.max[m][h] = max;
    return was;
}

#endif
