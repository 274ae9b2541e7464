// SPDX-License-Identifier: Apache-2.0
/*
 * Attention of 16 bits in tiles, with scores that exist only in a block.
 * Gradients are computed by two kernels, without atomics: one goes through the
 * keys of a tile of query rows, first for their statistics, then for dq; the
 * other through the query rows of a tile of keys, for dk and dv.
 */
#include "stages/ops/cuda/code/layers/attention.cuh"

/* Keys of a tile for a tile of query rows; two columns of scores a thread. */
#define SDPA_KEYS 32
#define SDPA_COLS (SDPA_KEYS / SDPA_SIDE)

/* Turns the dot products of row r with a tile of keys into e^(s - base), and
 * returns the factor by which sums with the previous base must be scaled. */
template <class E, int R>
PST_DEVICE float sdpa_next(const struct pst_cuda_sdpa &p,
                           struct sdpa_rows<R> &rows, int r, int64_t mask,
                           int row, int first, float (&s)[R][SDPA_COLS])
{
    float max = rows.max[r], sum = 0.0f, base, by;

    PST_UNROLL
    for (int c = 0; c < SDPA_COLS; c++) {
        s[r][c] = sdpa_score<E>(p, mask, row, first + sdpa_x() + c * SDPA_SIDE,
                                s[r][c]);
        max = fmaxf(max, s[r][c]);
    }
    max = sdpa_row_max(max);
    base = sdpa_base(max);
    by = expf(rows.max[r] - base);
    PST_UNROLL
    for (int c = 0; c < SDPA_COLS; c++) {
        s[r][c] = expf(s[r][c] - base);
        sum += s[r][c];
    }
    rows.sum[r] = rows.sum[r] * by + sdpa_row_sum(sum);
    rows.max[r] = max;
    return by;
}

/* --- forward ----------------------------------------------------------------
 */

template <class E, int D, int R>
PST_DEVICE void sdpa_forward(const struct pst_cuda_sdpa &p)
{
    PST_SHARED float4 q4[SDPA_TILE(SDPA_SIDE * R, D)];
    PST_SHARED float4 kv4[SDPA_TILE(SDPA_KEYS, D)];
    PST_SHARED float4 prob4[SDPA_TILE(SDPA_SIDE * R, SDPA_KEYS)];
    float *const q = (float *)q4, *const kv = (float *)kv4;
    float *const prob = (float *)prob4;
    const int64_t i = blockIdx.x / p.tiles;
    const int top = (int)(blockIdx.x % p.tiles) * SDPA_SIDE * R;
    const int row = top + sdpa_y() * R;
    const int64_t mask = sdpa_offset(p, p.mask, i, false);
    const int end = sdpa_keys(p, top + SDPA_SIDE * R);
    const int64_t k = sdpa_offset(p, p.k, i, true);
    const int64_t v = sdpa_offset(p, p.v, i, true);
    float s[R][SDPA_COLS], to[R][D / SDPA_SIDE] = {};
    struct sdpa_rows<R> rows;

    sdpa_begin(rows);
    sdpa_load<D, SDPA_SIDE * R, E>(q, p.q, sdpa_offset(p, p.q, i, false), top,
                                   p.l, p.e, p.type);
    for (int first = 0; first < end; first += SDPA_KEYS) {
        __syncthreads();
        sdpa_load<D, SDPA_KEYS, E>(kv, p.k, k, first, p.s, p.e, p.type);
        __syncthreads();
        sdpa_dots<D, R, SDPA_COLS>(q, kv, s);
        PST_UNROLL
        for (int r = 0; r < R; r++) {
            const float by =
                sdpa_next<E, R>(p, rows, r, mask, row + r, first, s);

            PST_UNROLL
            for (int j = 0; j < D / SDPA_SIDE; j++)
                to[r][j] *= by;
            PST_UNROLL
            for (int c = 0; c < SDPA_COLS; c++) {
                const int x = sdpa_x() + c * SDPA_SIDE;

                prob[(sdpa_y() * R + r) * (SDPA_KEYS + SDPA_PAD) + x] =
                    s[r][c] * sdpa_keep(p, i, row + r, first + x);
            }
        }
        __syncthreads();
        sdpa_load<D, SDPA_KEYS, E>(kv, p.v, v, first, p.s, p.ev, p.type);
        __syncthreads();
        sdpa_add<D, R, SDPA_KEYS>(prob, kv, to);
    }
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        PST_UNROLL
        for (int j = 0; j < D / SDPA_SIDE; j++)
            to[r][j] = rows.sum[r] == 0.0f ? 0.0f : to[r][j] / rows.sum[r];
    }
    sdpa_store<D, R, E>(p.out, top, p.l, p.ev, 1.0f, to, i * p.l * p.ev,
                        p.type);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_64_16, struct pst_cuda_sdpa)
{
    sdpa_forward<pst_reals_16, PST_CUDA_SDPA_NARROW, 4>(p);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_128_16, struct pst_cuda_sdpa)
{
    sdpa_forward<pst_reals_16, PST_CUDA_SDPA_WIDE, 2>(p);
}

/* --- gradient of the query --------------------------------------------------
 */

/* A tile of query rows and their gradients. */
template <int D, int R> struct sdpa_queries {
    const float *q, *g;
    float *kv; /* for a tile of keys, then of values */
    int64_t i, mask, k, v;
    int row, end;
};

/* s = q k^T and t = g v^T; the keys are left in the tile. */
template <class E, int D, int R>
PST_DEVICE void sdpa_both(const struct pst_cuda_sdpa &p,
                          const struct sdpa_queries<D, R> &a, int first,
                          float (&s)[R][SDPA_COLS], float (&t)[R][SDPA_COLS])
{
    __syncthreads();
    sdpa_load<D, SDPA_KEYS, E>(a.kv, p.v, a.v, first, p.s, p.ev, p.type);
    __syncthreads();
    sdpa_dots<D, R, SDPA_COLS>(a.g, a.kv, t);
    __syncthreads();
    sdpa_load<D, SDPA_KEYS, E>(a.kv, p.k, a.k, first, p.s, p.e, p.type);
    __syncthreads();
    sdpa_dots<D, R, SDPA_COLS>(a.q, a.kv, s);
}

/* Statistics of each row, stored by its first thread: base, 1 / sum, and
 * sum(p dp). */
template <class E, int D, int R>
PST_DEVICE void sdpa_stats(const struct pst_cuda_sdpa &p,
                           const struct sdpa_queries<D, R> &a, float (&base)[R],
                           float (&inverse)[R], float (&sum)[R])
{
    float s[R][SDPA_COLS], t[R][SDPA_COLS];
    struct sdpa_rows<R> rows;

    sdpa_begin(rows);
    PST_UNROLL
    for (int r = 0; r < R; r++)
        sum[r] = 0.0f;
    for (int first = 0; first < a.end; first += SDPA_KEYS) {
        sdpa_both<E, D, R>(p, a, first, s, t);
        PST_UNROLL
        for (int r = 0; r < R; r++) {
            const int row = a.row + r;

            sum[r] *= sdpa_next<E, R>(p, rows, r, a.mask, row, first, s);
            PST_UNROLL
            for (int c = 0; c < SDPA_COLS; c++)
                if (s[r][c] != 0.0f)
                    sum[r] += s[r][c] * t[r][c] *
                              sdpa_keep(p, a.i, row,
                                        first + sdpa_x() + c * SDPA_SIDE);
        }
    }
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        float *to = p.stats + PST_CUDA_SDPA_STATS * (a.i * p.l + a.row + r);

        base[r] = sdpa_base(rows.max[r]);
        inverse[r] = rows.sum[r] == 0.0f ? 0.0f : 1.0f / rows.sum[r];
        sum[r] = sdpa_row_sum(sum[r]) * inverse[r];
        if (sdpa_x() == 0 && a.row + r < p.l) {
            to[0] = base[r];
            to[1] = inverse[r];
            to[2] = sum[r];
        }
    }
}

/* Stores a tile of the gradients of scores. */
template <class E, int R>
PST_DEVICE void sdpa_store_scores(const struct pst_cuda_sdpa &p,
                                  const float *tile, int64_t i, int top,
                                  int first)
{
    const int x = first + (int)threadIdx.x % SDPA_KEYS;

    for (int r = (int)threadIdx.x / SDPA_KEYS; r < SDPA_SIDE * R;
         r += PST_CUDA_BLOCK / SDPA_KEYS)
        if (top + r < p.l && x < p.s)
            E::store(p.type, p.ds, (i * p.l + top + r) * p.s + x,
                     tile[r * (SDPA_KEYS + SDPA_PAD) + x - first]);
}

template <class E, int D, int R>
PST_DEVICE void sdpa_query_grad(const struct pst_cuda_sdpa &p)
{
    PST_SHARED float4 q4[SDPA_TILE(SDPA_SIDE * R, D)];
    PST_SHARED float4 g4[SDPA_TILE(SDPA_SIDE * R, D)];
    PST_SHARED float4 kv4[SDPA_TILE(SDPA_KEYS, D)];
    PST_SHARED float4 ds4[SDPA_TILE(SDPA_SIDE * R, SDPA_KEYS)];
    const int64_t i = blockIdx.x / p.tiles;
    const int top = (int)(blockIdx.x % p.tiles) * SDPA_SIDE * R;
    const struct sdpa_queries<D, R> a = {
        (float *)q4, (float *)g4, (float *)kv4, i,
            sdpa_offset(p, p.mask, i, false), sdpa_offset(p, p.k, i, true),
            sdpa_offset(p, p.v, i, true), top + sdpa_y() * R,
            sdpa_keys(p, top + SDPA_SIDE * R)
    };
    float *const ds = (float *)ds4;
    float base[R], inverse[R], sum[R], to[R][D / SDPA_SIDE] = {};
    float s[R][SDPA_COLS], t[R][SDPA_COLS];

    sdpa_load<D, SDPA_SIDE * R, E>(
        (float *)q4, p.q, sdpa_offset(p, p.q, i, false), top, p.l, p.e, p.type);
    sdpa_load<D, SDPA_SIDE * R, E>((float *)g4, p.g,
                                   sdpa_offset(p, p.g, i, false), top, p.l,
                                   p.ev, p.type);
    if (p.ds != nullptr)
        sdpa_clear_scores<E, R>(
            p, i, top, (a.end + SDPA_KEYS - 1) / SDPA_KEYS * SDPA_KEYS);
    sdpa_stats<E, D, R>(p, a, base, inverse, sum);
    for (int first = 0; first < a.end; first += SDPA_KEYS) {
        sdpa_both<E, D, R>(p, a, first, s, t);
        PST_UNROLL
        for (int r = 0; r < R; r++) {
            PST_UNROLL
            for (int c = 0; c < SDPA_COLS; c++) {
                const int x = sdpa_x() + c * SDPA_SIDE;
                const float prob =
                    inverse[r] * expf(sdpa_score<E>(p, a.mask, a.row + r,
                                                    first + x, s[r][c]) -
                                      base[r]);
                const float dp =
                    t[r][c] * sdpa_keep(p, i, a.row + r, first + x);

                ds[(sdpa_y() * R + r) * (SDPA_KEYS + SDPA_PAD) + x] =
                    prob == 0.0f ? 0.0f : prob * (dp - sum[r]);
            }
        }
        __syncthreads();
        sdpa_add<D, R, SDPA_KEYS>(ds, a.kv, to);
        if (p.ds != nullptr)
            sdpa_store_scores<E, R>(p, ds, i, top, first);
    }
    sdpa_store<D, R, E>(p.dq, top, p.l, p.e, p.scale, to, i * p.l * p.e,
                        p.type);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_query_grad_64_16, struct pst_cuda_sdpa)
{
    sdpa_query_grad<pst_reals_16, PST_CUDA_SDPA_NARROW, 2>(p);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_query_grad_128_16, struct pst_cuda_sdpa)
{
    sdpa_query_grad<pst_reals_16, PST_CUDA_SDPA_WIDE, 1>(p);
}

/* --- gradients of keys and values -------------------------------------------
 */

/* A tile of n = 16 K keys with their values, and the tile of n query rows that
 * it is multiplied with (q, with gradients g): prob and ds are (keys, queries).
 */
template <int D, int K> struct sdpa_keys_tile {
    const float *k, *v;
    float *q, *g, *prob, *ds;
    int top; /* first key of the tile */
};

/* Writes the probabilities of the tile's keys (rows) and of the queries from
 * `first` on (columns), and the gradients of their scores. */
template <class E, int D, int K>
PST_DEVICE void sdpa_transposed(const struct pst_cuda_sdpa &p,
                                const struct sdpa_keys_tile<D, K> &a, int64_t i,
                                int first)
{
    const int64_t mask = sdpa_offset(p, p.mask, i, false);
    float s[K][K], t[K][K];

    sdpa_dots<D, K, K>(a.k, a.q, s);
    sdpa_dots<D, K, K>(a.v, a.g, t);
    PST_UNROLL
    for (int c = 0; c < K; c++) {
        const int x = sdpa_x() + c * SDPA_SIDE;
        const int row = first + x;
        const float *stats = p.stats + PST_CUDA_SDPA_STATS * (i * p.l + row);
        const float base = row < p.l ? stats[0] : 0.0f;
        const float inverse = row < p.l ? stats[1] : 0.0f;
        const float sum = row < p.l ? stats[2] : 0.0f;

        PST_UNROLL
        for (int r = 0; r < K; r++) {
            const int y = sdpa_y() * K + r;
            const int at = y * (SDPA_SIDE * K + SDPA_PAD) + x;
            const float prob =
                inverse *
                expf(sdpa_score<E>(p, mask, row, a.top + y, s[r][c]) - base);
            const float keep = sdpa_keep(p, i, row, a.top + y);

            a.prob[at] = prob * keep;
            a.ds[at] = prob == 0.0f ? 0.0f : prob * (t[r][c] * keep - sum);
        }
    }
}

template <class E, int D, int K>
PST_DEVICE void sdpa_key_grad(const struct pst_cuda_sdpa &p)
{
    PST_SHARED float4 k4[SDPA_TILE(SDPA_SIDE * K, D)];
    PST_SHARED float4 v4[SDPA_TILE(SDPA_SIDE * K, D)];
    PST_SHARED float4 q4[SDPA_TILE(SDPA_SIDE * K, D)];
    PST_SHARED float4 g4[SDPA_TILE(SDPA_SIDE * K, D)];
    PST_SHARED float4 prob4[SDPA_TILE(SDPA_SIDE * K, SDPA_SIDE * K)];
    PST_SHARED float4 ds4[SDPA_TILE(SDPA_SIDE * K, SDPA_SIDE * K)];
    const int64_t b = blockIdx.x / p.tiles; /* batch of the keys */
    /* first of the query batches that share these keys */
    const int64_t i = b * p.group;
    const int n = SDPA_SIDE * K;
    const struct sdpa_keys_tile<D, K> a = {
        (float *)k4, (float *)v4, (float *)q4, (float *)g4, (float *)prob4,
            (float *)ds4, (int)(blockIdx.x % p.tiles) * n
    };
    float dk[K][D / SDPA_SIDE] = {}, dv[K][D / SDPA_SIDE] = {};

    sdpa_load<D, SDPA_SIDE * K, E>((float *)k4, p.k,
                                   sdpa_offset(p, p.k, i, true), a.top, p.s,
                                   p.e, p.type);
    sdpa_load<D, SDPA_SIDE * K, E>((float *)v4, p.v,
                                   sdpa_offset(p, p.v, i, true), a.top, p.s,
                                   p.ev, p.type);
    for (int64_t j = i; j < i + p.group; j++)
        for (int first = p.causal ? a.top : 0; first < p.l; first += n) {
            __syncthreads();
            sdpa_load<D, SDPA_SIDE * K, E>(a.q, p.q,
                                           sdpa_offset(p, p.q, j, false), first,
                                           p.l, p.e, p.type);
            sdpa_load<D, SDPA_SIDE * K, E>(a.g, p.g,
                                           sdpa_offset(p, p.g, j, false), first,
                                           p.l, p.ev, p.type);
            __syncthreads();
            sdpa_transposed<E, D, K>(p, a, j, first);
            __syncthreads();
            sdpa_add<D, K, SDPA_SIDE * K>(a.prob, a.g, dv);
            sdpa_add<D, K, SDPA_SIDE * K>(a.ds, a.q, dk);
        }
    sdpa_store<D, K, E>(p.dk, a.top, p.s, p.e, p.scale, dk, b * p.s * p.e,
                        p.type);
    sdpa_store<D, K, E>(p.dv, a.top, p.s, p.ev, 1.0f, dv, b * p.s * p.ev,
                        p.type);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_key_grad_64_16, struct pst_cuda_sdpa)
{
    sdpa_key_grad<pst_reals_16, PST_CUDA_SDPA_NARROW, 2>(p);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_key_grad_128_16, struct pst_cuda_sdpa)
{
    sdpa_key_grad<pst_reals_16, PST_CUDA_SDPA_WIDE, 1>(p);
}
