// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of 16 bits on tensor cores, in tiles, with scores that exist only
 * in registers: f32 sums of 16-bit products, softmax in f32, and probabilities
 * and gradients of scores that are rounded to 16 bits for the next product.
 * While tiles of keys and values, or of queries and gradients, are used, the
 * next ones are copied. Gradients are computed by two kernels, without atomics:
 * one goes through the keys of a tile of query rows, for dq; the other through
 * the query rows of a tile of keys, for dk and dv. The first computes
 * statistics of its rows for both, from what forward has saved. The first
 * blocks have the tiles with most work, so that no long one begins last.
 */
#include "stages/ops/cuda/code/layers/sdpa_16_scores.cuh"

/* --- forward ----------------------------------------------------------------
 */

template <class H, int D, int T, int N>
PST_DEVICE void sdpa16_attend(const struct pst_cuda_sdpa &p)
{
    constexpr int ROWS = 16 * T * SDPA16_WARPS, W = D + SDPA16_PAD;
    SDPA_MEMORY(uint16_t, q);
    const struct sdpa_place at = sdpa_place_of(p, ROWS, true);
    const int warp = sdpa16_warp() * 16 * T;
    const struct sdpa16_unit unit = sdpa16_unit_of(p);
    const int tiles = (sdpa_keys(p, at.top + ROWS) + N - 1) / N;
    const struct sdpa16_key_tiles<D, N> keys =
        sdpa16_key_tiles_of<D, N>(p, at.i, q + ROWS * W);
    float s[T][N / 8][4], to[T][D / 8][4];
    struct sdpa16_rows<T> rows;

    sdpa16_begin(rows);
    sdpa16_clear(to);
    sdpa16_copy<D, ROWS>(
        q, p.q, sdpa16_source_of(p.q, sdpa_offset(p, p.q, at.i, false), p.e),
        at.top, p.l, p.e);
    keys.copy(p, 0, 0);
    for (int n = 0; n < tiles; n++) {
        const struct sdpa16_area<false> area =
            sdpa16_area_of<false>(at.i, at.top + warp, n * N);

        sdpa_arrive();
        if (n + 1 < tiles)
            keys.copy(p, n + 1, (n + 1) * N);
        if (sdpa16_is_idle<T, N / 8>(p, area))
            continue;
        sdpa16_inner<H, D>(q + warp * W, keys.keys(n), s);
        sdpa16_scores<H>(p, area, unit.apart, s);
        PST_UNROLL
        for (int m = 0; m < T; m++) {
            PST_UNROLL
            for (int h = 0; h < 2; h++) {
                const float was = sdpa16_advance(rows, unit.by, m, h, s);

                PST_UNROLL
                for (int d = 0; d < D / 8; d++) {
                    to[m][d][2 * h] *= was;
                    to[m][d][2 * h + 1] *= was;
                }
            }
        }
        if (p.drop.limit != 0) {
            uint32_t kept[T];

            sdpa16_keep<T, N / 8>(p, area, kept);
            sdpa16_drop(p, kept, s);
        }
        sdpa16_outer<H, D>(s, keys.values(n), to);
    }
    pst_copies_wait(); /* no copy may be pending when the block ends */
    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int h = 0; h < 2; h++) {
            const int row = at.top + warp + m * 16 + sdpa16_row(2 * h);
            const float sum = sdpa16_row_sum(rows.sum[m][h]);
            const float by = sum == 0.0f ? 0.0f : 1.0f / sum;

            if (p.sums != nullptr && sdpa16_lane() % 4 == 0 && row < p.l) {
                float *const sums = p.sums + 2 * (at.i * p.l + row);

                sums[0] = rows.max[m][h] * unit.by * (1.0f / SDPA16_LOG2E);
                sums[1] = sum;
            }
            PST_UNROLL
            for (int d = 0; d < D / 8; d++) {
                to[m][d][2 * h] *= by;
                to[m][d][2 * h + 1] *= by;
            }
        }
    }
    sdpa16_store<H>((uint16_t *)p.out + at.i * p.l * p.ev, at.top + warp, p.l,
                    p.ev, 1.0f, to);
}

/* --- gradient of the query --------------------------------------------------
 */

/* Statistics of a lane's rows: log2 of the sum of 2^score, infinity if there is
 * no key, and sum(p dp). */
template <int T> struct sdpa16_stats {
    float log[T][2], sum[T][2];
};

/* A lane's part of each of its rows of the result: the eight columns from 8
 * (lane % 4) + 32 c on. */
template <int D, int T> struct sdpa16_outs {
    uint32_t x[T][2][D / 32][4];
};

template <int D, int T>
PST_DEVICE void sdpa16_load_outs(const struct pst_cuda_sdpa &p, int64_t i,
                                 int first, struct sdpa16_outs<D, T> &out)
{
    const struct sdpa16_source from =
        sdpa16_source_of(p.o, sdpa_offset(p, p.o, i, false), p.ev);

    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int h = 0; h < 2; h++) {
            const int row = first + m * 16 + sdpa16_row(2 * h);

            PST_UNROLL
            for (int c = 0; c < D / 32; c++) {
                const int col = sdpa16_lane() % 4 * 8 + c * 32;

                sdpa16_load_row(p.o, from, row, p.l, col, p.ev, out.x[m][h][c]);
            }
        }
    }
}

/* Computes the statistics of a lane's rows, and stores those of the rows from
 * `first` on. g: the warp's rows of the gradient. */
template <class H, int D, int T>
PST_DEVICE void sdpa16_gather(const struct pst_cuda_sdpa &p, int64_t i,
                              int first, const uint16_t *g,
                              const struct sdpa16_outs<D, T> &out,
                              struct sdpa16_stats<T> &stats)
{
    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int h = 0; h < 2; h++) {
            const int y = m * 16 + sdpa16_row(2 * h), row = first + y;
            float max = 0.0f, total = 0.0f, sum = 0.0f;

            PST_UNROLL
            for (int c = 0; c < D / 32; c++) {
                uint32_t x[4];

                sdpa16_load8(g + y * (D + SDPA16_PAD) + sdpa16_lane() % 4 * 8 +
                                 c * 32,
                             x);
                sdpa16_add_dot<H>(x, out.x[m][h][c], sum);
            }
            if (row < p.l) {
                max = p.sums[2 * (i * p.l + row)];
                total = p.sums[2 * (i * p.l + row) + 1];
            }
            stats.log[m][h] =
                total == 0.0f ? INFINITY : max * SDPA16_LOG2E + log2f(total);
            stats.sum[m][h] = sdpa16_row_sum(sum);
            if (sdpa16_lane() % 4 == 0 && row < p.l) {
                float *const to =
                    p.stats + PST_CUDA_SDPA16_STATS * (i * p.l + row);

                to[0] = stats.log[m][h];
                to[1] = stats.sum[m][h];
            }
        }
    }
}

/* Stores the gradients of a tile of scores. */
template <class H, int T, int N>
PST_DEVICE void sdpa16_put_scores(const struct pst_cuda_sdpa &p,
                                  const struct sdpa16_area<false> &a,
                                  const float (&x)[T][N][4])
{
    const bool pairs = sdpa16_has_pairs((const uint16_t *)p.ds, p.s);

    PST_UNROLL
    for (int m = 0; m < T; m++) {
        PST_UNROLL
        for (int h = 0; h < 4; h += 2) {
            const int row = a.query(m, 0, h);

            if (row >= p.l)
                continue;
            PST_UNROLL
            for (int n = 0; n < N; n++) {
                const int col = a.key(m, n, 0);

                sdpa16_put<H>((uint16_t *)p.ds + (a.i * p.l + row) * p.s + col,
                              pairs, col, p.s, x[m][n][h], x[m][n][h + 1]);
            }
        }
    }
}

/* Returns the gradient of a score: 0 for a probability of 0, where the product
 * could be NaN (0 times infinity). */
PST_DEVICE float sdpa16_score_grad(float prob, float grad, float sum)
{
    return prob == 0.0f ? 0.0f : prob * (grad - sum);
}

/* The query rows of a warp and their gradients, in shared memory, and the keys
 * of the block. */
template <int D, int N> struct sdpa16_queries {
    const uint16_t *q, *g;
    struct sdpa16_key_tiles<D, N> keys;
};

template <int D, int N>
PST_DEVICE struct sdpa16_queries<D, N> sdpa16_queries_of(
    const uint16_t *q, const uint16_t *g,
    const struct sdpa16_key_tiles<D, N> &keys) {
    return {q, g, keys};
}

/* Computes for tile n of the keys the scores s = q k^T and, with dropout, the
 * gradients of the probabilities t = g v^T. */
template <class H, int D, int T, int N>
PST_DEVICE void sdpa16_pair(const struct pst_cuda_sdpa &p,
                            const struct sdpa16_queries<D, N> &q,
                            const struct sdpa16_area<false> &a, int n,
                            bool apart, float (&s)[T][N / 8][4],
                            float (&t)[T][N / 8][4])
{
    sdpa16_inner<H, D>(q.g, q.keys.values(n), t);
    if (p.drop.limit != 0) {
        uint32_t kept[T];

        sdpa16_keep<T, N / 8>(p, a, kept);
        sdpa16_drop(p, kept, t);
    }
    sdpa16_inner<H, D>(q.q, q.keys.keys(n), s);
    sdpa16_scores<H>(p, a, apart, s);
}

template <class H, int D, int T, int N>
PST_DEVICE void sdpa16_grad_query(const struct pst_cuda_sdpa &p)
{
    constexpr int ROWS = 16 * T * SDPA16_WARPS, W = D + SDPA16_PAD;
    SDPA_MEMORY(uint16_t, q);
    const struct sdpa_place at = sdpa_place_of(p, ROWS, true);
    const int64_t i = at.i;
    const int warp = sdpa16_warp() * 16 * T;
    const struct sdpa16_unit unit = sdpa16_unit_of(p);
    const int tiles = (sdpa_keys(p, at.top + ROWS) + N - 1) / N;
    const struct sdpa16_queries<D, N> a =
        sdpa16_queries_of(q + warp * W, q + (ROWS + warp) * W,
                          sdpa16_key_tiles_of<D, N>(p, i, q + 2 * ROWS * W));
    float s[T][N / 8][4], t[T][N / 8][4], to[T][D / 8][4];
    struct sdpa16_outs<D, T> out;
    struct sdpa16_stats<T> stats;

    sdpa16_copy<D, ROWS>(
        q, p.q, sdpa16_source_of(p.q, sdpa_offset(p, p.q, i, false), p.e),
        at.top, p.l, p.e);
    sdpa16_copy<D, ROWS>(
        q + ROWS * W, p.g,
        sdpa16_source_of(p.g, sdpa_offset(p, p.g, i, false), p.ev), at.top, p.l,
        p.ev);
    a.keys.copy(p, 0, 0);
    if (p.ds != nullptr)
        sdpa_clear_scores<uint16_t>(p, i, at.top, ROWS, tiles * N);
    sdpa16_load_outs(p, i, at.top + warp, out);
    sdpa_arrive();
    sdpa16_gather<H>(p, i, at.top + warp, a.g, out, stats);
    sdpa16_clear(to);
    for (int n = 0; n < tiles; n++) {
        const struct sdpa16_area<false> area =
            sdpa16_area_of<false>(i, at.top + warp, n * N);

        sdpa_arrive();
        if (n + 1 < tiles)
            a.keys.copy(p, n + 1, (n + 1) * N);
        if (p.ds == nullptr && sdpa16_is_idle<T, N / 8>(p, area))
            continue;
        sdpa16_pair<H, D>(p, a, area, n, unit.apart, s, t);
        PST_UNROLL
        for (int m = 0; m < T; m++) {
            PST_UNROLL
            for (int j = 0; j < N / 8; j++) {
                PST_UNROLL
                for (int e = 0; e < 4; e++)
                    s[m][j][e] = sdpa16_score_grad(
                        pst_exp2(s[m][j][e] * unit.by - stats.log[m][e / 2]),
                        t[m][j][e], stats.sum[m][e / 2]);
            }
        }
        if (p.ds != nullptr)
            sdpa16_put_scores<H>(p, area, s);
        sdpa16_outer<H, D>(s, a.keys.keys(n), to);
    }
    pst_copies_wait(); /* no copy may be pending when the block ends */
    sdpa16_store<H>((uint16_t *)p.dq + i * p.l * p.e, at.top + warp, p.l, p.e,
                    p.scale, to);
}

/* --- gradients of keys and values -------------------------------------------
 */

/* Tiles that a block of keys goes through: queries and their gradients, N rows
 * each, then their statistics; shared memory has two of each. A batch has
 * `tiles` tiles, from row `begin` on; the first batch is i. */
template <int D, int N> struct sdpa16_query_tiles {
    uint16_t *memory;
    int64_t i;
    int begin, tiles;

    PST_INLINE_DEVICE const uint16_t *queries(int n) const
    {
        return memory + n % 2 * (PST_CUDA_SDPA16_QUERIES(N, D) / 2);
    }

    PST_INLINE_DEVICE const uint16_t *grads(int n) const
    {
        return queries(n) + N * (D + SDPA16_PAD);
    }

    PST_INLINE_DEVICE const float *stats(int n) const
    {
        return (const float *)(queries(n) + 2 * N * (D + SDPA16_PAD));
    }

    /* Begins to copy the n-th tiles. */
    PST_INLINE_DEVICE void copy(const struct pst_cuda_sdpa &p, int n) const
    {
        const int64_t j = i + n / tiles;
        const int first = begin + n % tiles * N, t = (int)threadIdx.x;

        sdpa16_copy<D, N>(
            (uint16_t *)queries(n), p.q,
            sdpa16_source_of(p.q, sdpa_offset(p, p.q, j, false), p.e), first,
            p.l, p.e);
        sdpa16_copy<D, N>(
            (uint16_t *)grads(n), p.g,
            sdpa16_source_of(p.g, sdpa_offset(p, p.g, j, false), p.ev), first,
            p.l, p.ev);
        if (t < N)
            pst_copy_async<8>((float *)stats(n) + PST_CUDA_SDPA16_STATS * t,
                              first + t < p.l
                                  ? p.stats + PST_CUDA_SDPA16_STATS *
                                                  (j * p.l + first + t)
                                  : p.stats,
                              first + t < p.l ? 8 : 0);
    }
};

/* Returns the tiles of the batches that share the keys of batch i. */
template <int D, int N>
PST_DEVICE struct sdpa16_query_tiles<D, N> sdpa16_query_tiles_of(
    const struct pst_cuda_sdpa &p, int64_t i, int begin, uint16_t *memory) {
    return {memory, i *p.group, begin,
            begin < p.l ? (p.l - begin + N - 1) / N : 0};
}

/* Turns s, the transposed scores of a tile, into probabilities with dropout,
 * and t = v g^T into the gradient of the scores. stats: statistics of the
 * queries. */
template <int T, int N>
PST_DEVICE void sdpa16_transpose(const struct pst_cuda_sdpa &p,
                                 const struct sdpa16_area<true> &a, float by,
                                 const float *stats, float (&s)[T][N][4],
                                 float (&t)[T][N][4])
{
    uint32_t kept[T] = {};

    if (p.drop.limit != 0) {
        sdpa16_keep<T, N>(p, a, kept);
        sdpa16_drop(p, kept, t);
    }
    PST_UNROLL
    for (int n = 0; n < N; n++) {
        /* Statistics of two queries. */
        const float4 x =
            sdpa_load4(stats + PST_CUDA_SDPA16_STATS * (n * 8 + sdpa16_col(0)));

        PST_UNROLL
        for (int m = 0; m < T; m++) {
            PST_UNROLL
            for (int e = 0; e < 4; e++) {
                s[m][n][e] =
                    pst_exp2(s[m][n][e] * by - (e % 2 == 0 ? x.x : x.z));
                t[m][n][e] = sdpa16_score_grad(s[m][n][e], t[m][n][e],
                                               e % 2 == 0 ? x.y : x.w);
            }
        }
    }
    if (p.drop.limit != 0)
        sdpa16_drop(p, kept, s);
}

template <class H, int D, int T, int N>
PST_DEVICE void sdpa16_grad_key(const struct pst_cuda_sdpa &p)
{
    constexpr int ROWS = 16 * T * SDPA16_WARPS, W = D + SDPA16_PAD;
    SDPA_MEMORY(uint16_t, k);
    uint16_t *const v = k + ROWS * W;
    const struct sdpa_place at = sdpa_place_of(p, ROWS, false);
    const int warp = sdpa16_warp() * 16 * T;
    const struct sdpa16_unit unit = sdpa16_unit_of(p);
    const int begin = p.causal ? at.top : 0;
    const struct sdpa16_query_tiles<D, N> queries =
        sdpa16_query_tiles_of<D, N>(p, at.i, begin, v + ROWS * W);
    const int tiles = queries.tiles, all = tiles * (int)p.group;
    float s[T][N / 8][4], t[T][N / 8][4];
    float dk[T][D / 8][4], dv[T][D / 8][4];

    sdpa16_clear(dk);
    sdpa16_clear(dv);
    sdpa16_copy<D, ROWS>(
        k, p.k,
        sdpa16_source_of(p.k, sdpa_offset(p, p.k, queries.i, true), p.e),
        at.top, p.s, p.e);
    sdpa16_copy<D, ROWS>(
        v, p.v,
        sdpa16_source_of(p.v, sdpa_offset(p, p.v, queries.i, true), p.ev),
        at.top, p.s, p.ev);
    if (all > 0)
        queries.copy(p, 0);
    for (int n = 0; n < all; n++) {
        const struct sdpa16_area<true> area = sdpa16_area_of<true>(
            queries.i + n / tiles, at.top + warp, begin + n % tiles * N);

        sdpa_arrive();
        if (n + 1 < all)
            queries.copy(p, n + 1);
        if (sdpa16_is_idle<T, N / 8>(p, area))
            continue;
        sdpa16_inner<H, D>(v + warp * W, queries.grads(n), t);
        sdpa16_inner<H, D>(k + warp * W, queries.queries(n), s);
        sdpa16_scores<H>(p, area, unit.apart, s);
        sdpa16_transpose(p, area, unit.by, queries.stats(n), s, t);
        sdpa16_outer<H, D>(s, queries.grads(n), dv);
        sdpa16_outer<H, D>(t, queries.queries(n), dk);
    }
    pst_copies_wait(); /* no copy may be pending when the block ends */
    sdpa16_store<H>((uint16_t *)p.dk + at.i * p.s * p.e, at.top + warp, p.s,
                    p.e, p.scale, dk);
    sdpa16_store<H>((uint16_t *)p.dv + at.i * p.s * p.ev, at.top + warp, p.s,
                    p.ev, 1.0f, dv);
}

/* --- kernels ----------------------------------------------------------------
 */

#define SDPA16_KERNELS(dtype)                                                  \
    PST_CUDA_KERNEL_OF(pst_sdpa_##dtype##_64, struct pst_cuda_sdpa,            \
                       PST_CUDA_SDPA16_THREADS, 2)                             \
    {                                                                          \
        sdpa16_attend<pst_mma_##dtype, 64, 2, 64>(p);                          \
    }                                                                          \
    PST_CUDA_KERNEL_OF(pst_sdpa_##dtype##_128, struct pst_cuda_sdpa,           \
                       PST_CUDA_SDPA16_THREADS, 2)                             \
    {                                                                          \
        sdpa16_attend<pst_mma_##dtype, 128, 2, 32>(p);                         \
    }                                                                          \
    PST_CUDA_KERNEL_OF(pst_sdpa_query_grad_##dtype##_64, struct pst_cuda_sdpa, \
                       PST_CUDA_SDPA16_THREADS, 2)                             \
    {                                                                          \
        sdpa16_grad_query<pst_mma_##dtype, 64, 2, 32>(p);                      \
    }                                                                          \
    PST_CUDA_KERNEL_OF(pst_sdpa_query_grad_##dtype##_128,                      \
                       struct pst_cuda_sdpa, PST_CUDA_SDPA16_THREADS, 2)       \
    {                                                                          \
        sdpa16_grad_query<pst_mma_##dtype, 128, 1, 32>(p);                     \
    }                                                                          \
    PST_CUDA_KERNEL_OF(pst_sdpa_key_grad_##dtype##_64, struct pst_cuda_sdpa,   \
                       PST_CUDA_SDPA16_THREADS, 2)                             \
    {                                                                          \
        sdpa16_grad_key<pst_mma_##dtype, 64, 2, 32>(p);                        \
    }                                                                          \
    PST_CUDA_KERNEL_OF(pst_sdpa_key_grad_##dtype##_128, struct pst_cuda_sdpa,  \
                       PST_CUDA_SDPA16_THREADS, 2)                             \
    {                                                                          \
        sdpa16_grad_key<pst_mma_##dtype, 128, 1, 32>(p);                       \
    }

SDPA16_KERNELS(bf16)
SDPA16_KERNELS(f16)
