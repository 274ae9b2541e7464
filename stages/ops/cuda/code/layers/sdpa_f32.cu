// SPDX-License-Identifier: Apache-2.0
/*
 * Attention in f32, in tiles, with scores that exist only in a block. While a
 * tile of keys is used, that of the values is copied, and the other way around.
 * Gradients are computed by two kernels, without atomics: one goes through the
 * keys of a tile of query rows, for dq; the other through the query rows of a
 * tile of keys, for dk and dv. The first computes statistics of its rows for
 * both, from what forward has saved. The first blocks have the tiles with most
 * work, so that no long one begins last.
 */
#include "stages/ops/cuda/code/layers/sdpa_f32.cuh"

/* Turns the scores of row r into e^(s - base), and returns the factor by which
 * sums with the previous base must be scaled. The sum is that of this thread's
 * columns. */
template <int R, int C>
PST_DEVICE float sdpa_advance(struct sdpa_rows<R> &rows, int r,
                              float (&s)[R][C])
{
    float max = rows.max[r], sum = 0.0f, base, by;

    PST_UNROLL
    for (int c = 0; c < C; c++)
        max = fmaxf(max, s[r][c]);
    max = sdpa_row_max(max);
    base = sdpa_base(max);
    by = expf(rows.max[r] - base);
    PST_UNROLL
    for (int c = 0; c < C; c++) {
        s[r][c] = expf(s[r][c] - base);
        sum += s[r][c];
    }
    rows.sum[r] = rows.sum[r] * by + sum;
    rows.max[r] = max;
    return by;
}

/* --- forward ----------------------------------------------------------------
 */

template <int D, int R, int N>
PST_DEVICE void sdpa_attend(const struct pst_cuda_sdpa &p)
{
    constexpr int ROWS = SDPA_SIDE * R, W = D + SDPA_PAD;
    SDPA_MEMORY(float, q);
    float *const key = q + ROWS * W, *const value = key + N * W;
    float *const prob = value + N * W;
    const struct sdpa_place at = sdpa_place_of(p, ROWS, true);
    const int64_t i = at.i;
    const int row = at.top + sdpa_y() * R;
    const int64_t mask = sdpa_offset(p, p.mask, i, false);
    const int end = sdpa_keys(p, at.top + ROWS);
    const struct sdpa_source k =
        sdpa_source_of(p.k, sdpa_offset(p, p.k, i, true), p.e);
    const struct sdpa_source v =
        sdpa_source_of(p.v, sdpa_offset(p, p.v, i, true), p.ev);
    float s[R][N / SDPA_SIDE], to[R][D / SDPA_SIDE] = {};
    struct sdpa_rows<R> rows;

    sdpa_begin(rows);
    sdpa_copy<D, ROWS>(q, p.q,
                       sdpa_source_of(p.q, sdpa_offset(p, p.q, i, false), p.e),
                       at.top, p.l, p.e);
    sdpa_copy<D, N>(key, p.k, k, 0, p.s, p.e);
    sdpa_arrive();
    sdpa_copy<D, N>(value, p.v, v, 0, p.s, p.ev);
    for (int first = 0; first < end; first += N) {
        sdpa_inner<D>(q, key, s);
        sdpa_arrive(); /* the values are copied; the keys are no longer read */
        if (first + N < end)
            sdpa_copy<D, N>(key, p.k, k, first + N, p.s, p.e);
        sdpa_scores<R, N / SDPA_SIDE, false>(p, mask, at.top, first, s);
        PST_UNROLL
        for (int r = 0; r < R; r++) {
            const float by = sdpa_advance(rows, r, s);

            PST_UNROLL
            for (int j = 0; j < D / SDPA_SIDE; j++)
                to[r][j] *= by;
            if (p.drop.limit != 0) {
                PST_UNROLL
                for (int c = 0; c < N / SDPA_SIDE; c++)
                    s[r][c] *= sdpa_keep(p, i, row + r,
                                         first + sdpa_x() + c * SDPA_SIDE);
            }
        }
        sdpa_keep_tile<N>(prob, s);
        __syncwarp();
        sdpa_outer<D, R, N>(prob, value, to);
        sdpa_arrive(); /* the keys are copied; the values are no longer read */
        if (first + N < end)
            sdpa_copy<D, N>(value, p.v, v, first + N, p.s, p.ev);
    }
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        const float sum = sdpa_row_sum(rows.sum[r]);

        if (p.sums != nullptr && sdpa_x() == 0 && row + r < p.l) {
            p.sums[2 * (i * p.l + row + r)] = rows.max[r];
            p.sums[2 * (i * p.l + row + r) + 1] = sum;
        }
        PST_UNROLL
        for (int j = 0; j < D / SDPA_SIDE; j++)
            to[r][j] = sum == 0.0f ? 0.0f : to[r][j] / sum;
    }
    sdpa_store<D, R>((float *)p.out + i * p.l * p.ev, at.top, p.l, p.ev, 1.0f,
                     to);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_f32_64, struct pst_cuda_sdpa)
{
    sdpa_attend<PST_CUDA_SDPA_NARROW, 4, 64>(p);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_f32_128, struct pst_cuda_sdpa)
{
    sdpa_attend<PST_CUDA_SDPA_WIDE, 4, 32>(p);
}

/* --- gradient of the query --------------------------------------------------
 */

/* The tiles of a block, in shared memory, and where keys and values are read
 * from. */
template <int D, int R, int N> struct sdpa_query_block {
    float *q, *g, *key, *value, *ds;
    struct sdpa_source k, v;
    int64_t i;
    int top, end;
};

/* Computes the scores s = q k^T and t = g v^T of the keys from `first` on.
 * Begins to copy the next values; the keys stay until sdpa_next_keys. */
template <int D, int R, int N>
PST_DEVICE void sdpa_pair(const struct pst_cuda_sdpa &p,
                          const struct sdpa_query_block<D, R, N> &a, int first,
                          float (&s)[R][N / SDPA_SIDE],
                          float (&t)[R][N / SDPA_SIDE])
{
    sdpa_inner<D>(a.g, a.value, t);
    sdpa_arrive(); /* the keys are copied; the values are no longer read */
    if (first + N < a.end)
        sdpa_copy<D, N>(a.value, p.v, a.v, first + N, p.s, p.ev);
    sdpa_inner<D>(a.q, a.key, s);
    /* The offset is computed for each tile: no register is left to keep it. */
    sdpa_scores<R, N / SDPA_SIDE, false>(
        p,
        p.mask_kind == PST_CUDA_MASK_NONE ? 0
                                          : sdpa_offset(p, p.mask, a.i, false),
        a.top, first, s);
}

template <int D, int R, int N>
PST_DEVICE void sdpa_next_keys(const struct pst_cuda_sdpa &p,
                               const struct sdpa_query_block<D, R, N> &a,
                               int first)
{
    sdpa_arrive(); /* the values are copied; the keys are no longer read */
    if (first + N < a.end)
        sdpa_copy<D, N>(a.key, p.k, a.k, first + N, p.s, p.e);
}

/* Statistics of each row, stored by its first thread: base, 1 / sum, and
 * sum(p dp) = sum(g out), with the gradients g in shared memory. */
template <int D, int R>
PST_DEVICE void sdpa_gather(const struct pst_cuda_sdpa &p, int64_t i, int top,
                            const float *g, float (&base)[R],
                            float (&inverse)[R], float (&sum)[R])
{
    const float *const out =
        (const float *)p.o.x + sdpa_offset(p, p.o, i, false);

    PST_UNROLL
    for (int r = 0; r < R; r++) {
        const int y = sdpa_y() * R + r, row = top + y;
        const float *sums = p.sums + 2 * (i * p.l + row);
        float *to = p.stats + PST_CUDA_SDPA_STATS * (i * p.l + row);
        float total = 0.0f;

        sum[r] = 0.0f;
        PST_UNROLL
        for (int j = 0; j < D / SDPA_SIDE; j++)
            if (row < p.l && sdpa_col(j) < p.ev)
                sum[r] += g[y * (D + SDPA_PAD) + sdpa_col(j)] *
                          out[row * p.o.row + sdpa_col(j) * p.o.col];
        sum[r] = sdpa_row_sum(sum[r]);
        base[r] = 0.0f;
        if (row < p.l) {
            base[r] = sdpa_base(sums[0]);
            total = sums[1];
        }
        inverse[r] = total == 0.0f ? 0.0f : 1.0f / total;
        if (sdpa_x() == 0 && row < p.l) {
            to[0] = base[r];
            to[1] = inverse[r];
            to[2] = sum[r];
        }
    }
}

/* Stores a tile of the gradients of scores. */
template <int R, int N>
PST_DEVICE void sdpa_put_scores(const struct pst_cuda_sdpa &p, int64_t i,
                                int top, int first,
                                const float (&s)[R][N / SDPA_SIDE])
{
    PST_UNROLL
    for (int r = 0; r < R; r++) {
        const int row = top + sdpa_y() * R + r;
        float *const to = (float *)p.ds + (i * p.l + row) * p.s;

        PST_UNROLL
        for (int c = 0; c < N / SDPA_SIDE; c++) {
            const int col = first + sdpa_x() + c * SDPA_SIDE;

            if (row < p.l && col < p.s)
                to[col] = s[r][c];
        }
    }
}

template <int D, int R, int N>
PST_DEVICE void sdpa_grad_query(const struct pst_cuda_sdpa &p)
{
    constexpr int ROWS = SDPA_SIDE * R, W = D + SDPA_PAD;
    SDPA_MEMORY(float, q);
    const struct sdpa_place at = sdpa_place_of(p, ROWS, true);
    const int64_t i = at.i;
    const struct sdpa_query_block<D, R, N> a = {
        q, q + ROWS *W, q + 2 * ROWS *W,
            q + (2 * ROWS + N) * W, q + (2 * ROWS + 2 * N) * W,
            sdpa_source_of(p.k, sdpa_offset(p, p.k, i, true), p.e),
            sdpa_source_of(p.v, sdpa_offset(p, p.v, i, true), p.ev), i, at.top,
            sdpa_keys(p, at.top + ROWS)
    };
    float base[R], inverse[R], sum[R], to[R][D / SDPA_SIDE] = {};
    float s[R][N / SDPA_SIDE], t[R][N / SDPA_SIDE];

    sdpa_copy<D, ROWS>(a.q, p.q,
                       sdpa_source_of(p.q, sdpa_offset(p, p.q, i, false), p.e),
                       at.top, p.l, p.e);
    sdpa_copy<D, ROWS>(a.g, p.g,
                       sdpa_source_of(p.g, sdpa_offset(p, p.g, i, false), p.ev),
                       at.top, p.l, p.ev);
    sdpa_copy<D, N>(a.value, p.v, a.v, 0, p.s, p.ev);
    sdpa_arrive();
    sdpa_copy<D, N>(a.key, p.k, a.k, 0, p.s, p.e);
    if (p.ds != nullptr)
        sdpa_clear_scores<float>(p, i, at.top, ROWS, (a.end + N - 1) / N * N);
    sdpa_gather<D>(p, i, at.top, a.g, base, inverse, sum);
    for (int first = 0; first < a.end; first += N) {
        sdpa_pair(p, a, first, s, t);
        PST_UNROLL
        for (int r = 0; r < R; r++) {
            PST_UNROLL
            for (int c = 0; c < N / SDPA_SIDE; c++) {
                const float prob = inverse[r] * expf(s[r][c] - base[r]);

                if (p.drop.limit != 0)
                    t[r][c] *= sdpa_keep(p, i, at.top + sdpa_y() * R + r,
                                         first + sdpa_x() + c * SDPA_SIDE);
                s[r][c] = prob == 0.0f ? 0.0f : prob * (t[r][c] - sum[r]);
            }
        }
        sdpa_keep_tile<N>(a.ds, s);
        if (p.ds != nullptr)
            sdpa_put_scores<R, N>(p, i, at.top, first, s);
        __syncwarp();
        sdpa_outer<D, R, N>(a.ds, a.key, to);
        sdpa_next_keys(p, a, first);
    }
    pst_copies_wait(); /* no copy may be pending when the block ends */
    sdpa_store<D, R>((float *)p.dq + i * p.l * p.e, at.top, p.l, p.e, p.scale,
                     to);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_query_grad_f32_64, struct pst_cuda_sdpa)
{
    sdpa_grad_query<PST_CUDA_SDPA_NARROW, 4, 64>(p);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_query_grad_f32_128, struct pst_cuda_sdpa)
{
    sdpa_grad_query<PST_CUDA_SDPA_WIDE, 2, 32>(p);
}

/* --- gradients of keys and values -------------------------------------------
 */

/* The query rows that a block of keys goes through: those of the batches [i, i
 * + group), n tiles in each. */
struct sdpa_query_walk {
    int64_t i;
    int begin, tiles, all; /* first row; tiles of a batch; of all batches */
};

template <int D, int N>
PST_DEVICE void sdpa_copy_queries(const struct pst_cuda_sdpa &p,
                                  const struct pst_cuda_sdpa_operand &f,
                                  const struct sdpa_query_walk &walk, int n,
                                  int cols, float *to)
{
    int64_t j;

    if (n >= walk.all)
        return;
    j = walk.i + n / walk.tiles;
    sdpa_copy<D, N>(to, f, sdpa_source_of(f, sdpa_offset(p, f, j, false), cols),
                    walk.begin + n % walk.tiles * N, p.l, cols);
}

/* Sets s to the probabilities, with dropout, of the keys from `top` on (rows)
 * and the queries from `first` on (columns), and turns t = v g^T into the
 * gradient of the scores. */
template <int R>
PST_DEVICE void sdpa_transpose(const struct pst_cuda_sdpa &p, int64_t j,
                               int top, int first, float (&s)[R][R],
                               float (&t)[R][R])
{
    sdpa_scores<R, R, true>(p, sdpa_offset(p, p.mask, j, false), top, first, s);
    PST_UNROLL
    for (int c = 0; c < R; c++) {
        const int row = first + sdpa_x() + c * SDPA_SIDE;
        const float *stats = p.stats + PST_CUDA_SDPA_STATS * (j * p.l + row);
        const float base = row < p.l ? stats[0] : 0.0f;
        const float inverse = row < p.l ? stats[1] : 0.0f;
        const float sum = row < p.l ? stats[2] : 0.0f;

        PST_UNROLL
        for (int r = 0; r < R; r++) {
            const float prob = inverse * expf(s[r][c] - base);
            const float keep =
                p.drop.limit == 0
                    ? 1.0f
                    : sdpa_keep(p, j, row, top + sdpa_y() * R + r);

            s[r][c] = prob * keep;
            t[r][c] = prob == 0.0f ? 0.0f : prob * (t[r][c] * keep - sum);
        }
    }
}

template <int D, int R>
PST_DEVICE void sdpa_grad_key(const struct pst_cuda_sdpa &p)
{
    constexpr int N = SDPA_SIDE * R, W = D + SDPA_PAD;
    SDPA_MEMORY(float, key);
    float *const value = key + N * W, *const q = value + N * W;
    float *const g = q + N * W, *const prob = g + N * W;
    const struct sdpa_place at = sdpa_place_of(p, N, false);
    const int begin = p.causal ? at.top : 0;
    const int tiles = begin < p.l ? (p.l - begin + N - 1) / N : 0;
    const struct sdpa_query_walk walk = {at.i * p.group, begin, tiles,
                                         tiles * (int)p.group};
    float dk[R][D / SDPA_SIDE] = {}, dv[R][D / SDPA_SIDE] = {};
    float s[R][R], t[R][R];

    sdpa_copy<D, N>(key, p.k,
                    sdpa_source_of(p.k, sdpa_offset(p, p.k, walk.i, true), p.e),
                    at.top, p.s, p.e);
    sdpa_copy<D, N>(
        value, p.v,
        sdpa_source_of(p.v, sdpa_offset(p, p.v, walk.i, true), p.ev), at.top,
        p.s, p.ev);
    sdpa_copy_queries<D, N>(p, p.g, walk, 0, p.ev, g);
    sdpa_arrive();
    sdpa_copy_queries<D, N>(p, p.q, walk, 0, p.e, q);
    for (int n = 0; n < walk.all; n++) {
        sdpa_inner<D>(value, g, t);
        sdpa_arrive(); /* the queries are there */
        sdpa_inner<D>(key, q, s);
        sdpa_transpose(p, walk.i + n / tiles, at.top, begin + n % tiles * N, s,
                       t);
        sdpa_keep_tile<N>(prob, s);
        __syncwarp();
        sdpa_outer<D, R, N>(prob, g, dv);
        __syncthreads(); /* the gradients are read */
        sdpa_copy_queries<D, N>(p, p.g, walk, n + 1, p.ev, g);
        sdpa_keep_tile<N>(prob, t);
        __syncwarp();
        sdpa_outer<D, R, N>(prob, q, dk);
        sdpa_arrive(); /* the gradients are copied; the queries are no longer
                        * read */
        sdpa_copy_queries<D, N>(p, p.q, walk, n + 1, p.e, q);
    }
    sdpa_store<D, R>((float *)p.dk + at.i * p.s * p.e, at.top, p.s, p.e,
                     p.scale, dk);
    sdpa_store<D, R>((float *)p.dv + at.i * p.s * p.ev, at.top, p.s, p.ev, 1.0f,
                     dv);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_key_grad_f32_64, struct pst_cuda_sdpa)
{
    sdpa_grad_key<PST_CUDA_SDPA_NARROW, 4>(p);
}

PST_CUDA_KERNEL_TWO(pst_sdpa_key_grad_f32_128, struct pst_cuda_sdpa)
{
    sdpa_grad_key<PST_CUDA_SDPA_WIDE, 2>(p);
}
