// SPDX-License-Identifier: Apache-2.0
/*
 * Matmuls and sums over rows. A block computes a square tile of the result;
 * the sum over k is made in ascending order by one thread, or in pieces that
 * the sizes determine. So an element has the same bits in every kernel here.
 */
#include "stages/ops/cuda/code/device.cuh"
#include "stages/ops/cuda/code/matmul/matmul.h"

/* A vector of 16 bytes, which a thread reads or writes at once. */
template <typename T> struct alignas(16) product_vector {
    T at[16 / sizeof(T)];
};

PST_DEVICE int64_t product_offset(const struct pst_cuda_product &p,
                                  const int64_t *stride, uint32_t i)
{
    int64_t offset = 0;

    for (int d = (int)p.n_batch - 1; d >= 0; d--) {
        offset += (int64_t)(i % p.batch[d]) * stride[d];
        i /= p.batch[d];
    }
    return offset;
}

/* --- tiles of operands ---------------------------------------------------- */

/* 16-bit elements in memory, of bf16 or f16. T: the type of sums; S: of
 * elements in memory. */
template <typename S> struct product_is_16bit {
    static constexpr bool value = false;
};
template <> struct product_is_16bit<uint16_t> {
    static constexpr bool value = true;
};

PST_DEVICE float product_from_16bit(uint32_t type, uint16_t x)
{
    return type == PST_CUDA_BF16 ? pst_from_bf16(x) : pst_from_f16(x);
}

/* Return and store element i of c or out, which are of T or, if a and b have 16
 * bits, of their type or f32. */
template <typename T, typename S>
PST_DEVICE T product_load(const struct pst_cuda_product &p, const void *x,
                          int64_t i)
{
    if (product_is_16bit<S>::value && p.to != PST_CUDA_F32)
        return (T)product_from_16bit(p.to, ((const uint16_t *)x)[i]);
    return ((const T *)x)[i];
}

template <typename T, typename S>
PST_DEVICE void product_store(const struct pst_cuda_product &p, void *y,
                              int64_t i, T x)
{
    if (product_is_16bit<S>::value && p.to != PST_CUDA_F32)
        ((uint16_t *)y)[i] = p.to == PST_CUDA_BF16 ? pst_to_bf16((float)x)
                                                   : pst_to_f16((float)x);
    else
        ((T *)y)[i] = x;
}

/*
 * Tiles have LINES rows of a, or columns of b, and K of the k dimension. The
 * threads copy them to shared memory, to [k][line], while they compute with the
 * previous tiles. ALONG_K: adjacent threads read along k, otherwise along the
 * lines.
 */
template <typename S> struct product_reader {
    const S *at; /* next element that the thread copies */
    int lines;   /* lines of the operand from that element's line on */
};

/* Sets line and k to the position, in a tile, of the first element that the
 * thread copies. vector: it copies 16 bytes at a time. */
template <typename T, int LINES, int K, bool ALONG_K>
PST_DEVICE void product_place(bool vector, int &line, int &k)
{
    constexpr int V = 16 / sizeof(T);
    const int t = (int)threadIdx.x;

    line = ALONG_K ? t / K : vector ? t % (LINES / V) * V : t % LINES;
    k = ALONG_K ? t % K : vector ? t / (LINES / V) : t / LINES;
}

/* Returns the thread's reader, at the tile that begins at line `first` (of
 * `lines`) of the operand and at index `from` along k. offset: of the batch. */
template <typename T, typename S, int LINES, int K, bool ALONG_K>
PST_DEVICE struct product_reader<S> product_start(
    const struct pst_cuda_factor &f, int64_t offset, int first, int lines,
    int from) {
    int line, k;

    product_place<T, LINES, K, ALONG_K>(f.vector != 0, line, k);
    return {(const S *)f.data + offset + (first + line) * f.line +
                (from + k) * f.k,
            lines - first - line};
}

/* Begins to copy the tile, with zeros outside of the operand, and moves on to
 * the next; left: elements of the k dimension from the tile on. */
template <typename T, int LINES, int K, bool ALONG_K>
PST_DEVICE void product_fetch(struct product_reader<T> &r,
                              const struct pst_cuda_factor &f, int left,
                              T (*to)[LINES + 16 / sizeof(T)])
{
    constexpr int V = 16 / sizeof(T), N = PST_CUDA_BLOCK;
    int line, k;

    static_assert(LINES * K == N * V, "V elements by thread");
    product_place<T, LINES, K, ALONG_K>(f.vector != 0, line, k);
    left -= k;
    if (ALONG_K) {
        PST_UNROLL
        for (int i = 0; i < V; i++)
            pst_copy_async<sizeof(T)>(
                &to[k][line + i * (N / K)], r.at + i * (N / K) * f.line,
                left > 0 && r.lines > i * (N / K) ? sizeof(T) : 0);
    } else if (f.vector != 0) {
        const int n = r.lines < 0 || left <= 0 ? 0 : r.lines < V ? r.lines : V;

        pst_copy_async<16>(&to[k][line], r.at, n * (int)sizeof(T));
    } else {
        PST_UNROLL
        for (int i = 0; i < V; i++)
            pst_copy_async<sizeof(T)>(
                &to[k + i * (N / LINES)][line], r.at + i * (N / LINES) * f.k,
                left > i * (N / LINES) && r.lines > 0 ? sizeof(T) : 0);
    }
    r.at += K * f.k;
}

/* Copies a tile of 16-bit elements, converted to f32, as product_fetch does. */
template <int LINES, int K, bool ALONG_K>
PST_DEVICE void product_fetch_16bit(struct product_reader<uint16_t> &r,
                                    const struct pst_cuda_factor &f,
                                    uint32_t type, int left,
                                    float (*to)[LINES + 4])
{
    constexpr int N = PST_CUDA_BLOCK, STEP = ALONG_K ? N / K : N / LINES;
    int line, k;

    product_place<float, LINES, K, ALONG_K>(false, line, k);
    left -= k;
    PST_UNROLL
    for (int i = 0; i < LINES * K / N; i++) {
        const bool is_inside = ALONG_K ? left > 0 && r.lines > i * STEP
                                       : left > i * STEP && r.lines > 0;
        float *at = ALONG_K ? &to[k][line + i * STEP] : &to[k + i * STEP][line];

        *at = is_inside ? product_from_16bit(
                              type, r.at[i * STEP * (ALONG_K ? f.line : f.k)])
                        : 0.0f;
    }
    r.at += K * f.k;
}

template <typename T, typename S, int LINES, int K, bool ALONG_K>
PST_DEVICE void product_copy(const struct pst_cuda_product &p,
                             struct product_reader<S> &r,
                             const struct pst_cuda_factor &f, int left,
                             T (*to)[LINES + 16 / sizeof(T)])
{
    if constexpr (product_is_16bit<S>::value)
        product_fetch_16bit<LINES, K, ALONG_K>(r, f, p.in, left, to);
    else
        product_fetch<T, LINES, K, ALONG_K>(r, f, left, to);
}

/* --- results -------------------------------------------------------------- */

/* Returns the element of the result for a sum; c: offset in c; was: the old
 * value of out. */
template <typename T, typename S>
PST_DEVICE T product_finish(const struct pst_cuda_product &p, T sum, int64_t c,
                            T was)
{
    T y = (T)p.alpha * sum;

    if (p.c.data != nullptr) /* NULL for beta 0 */
        y += (T)p.beta * product_load<T, S>(p, p.c.data, c);
    return p.accumulate != 0 ? y + was : y;
}

/* Writes a vector of sums, except those of columns from p.n on. to: out or
 * partial; row: the offset in `to`, and c: in c, of column 0 of the row. */
template <typename T, typename S>
PST_DEVICE void product_write(const struct pst_cuda_product &p, void *to,
                              int64_t row, int64_t c, int col,
                              struct product_vector<T> v)
{
    constexpr int V = 16 / sizeof(T);
    const int n = p.n - col;
    const bool last = p.splits == 1;
    struct product_vector<T> was = {
    };

    if (last && p.accumulate != 0) {
        PST_UNROLL
        for (int i = 0; i < V; i++)
            if (i < n)
                was.at[i] = product_load<T, S>(p, to, row + col + i);
    }
    if (last) {
        PST_UNROLL
        for (int i = 0; i < V; i++)
            if (i < n)
                v.at[i] = product_finish<T, S>(
                    p, v.at[i], c + (col + i) * p.c.col, was.at[i]);
    }
    if (p.vector != 0 && n >= V) {
        *(struct product_vector<T> *)((T *)to + row + col) = v;
        return;
    }
    PST_UNROLL
    for (int i = 0; i < V; i++)
        if (i < n && last)
            product_store<T, S>(p, to, row + col + i, v.at[i]);
        else if (i < n)
            ((T *)to)[row + col + i] = v.at[i];
}

/* --- matmul --------------------------------------------------------------- */

/* Adds the products of one index along k to the R x R sums of a thread, in
 * groups of a vector. */
template <typename T, int R, int WIDTH>
PST_DEVICE void product_step(const T (&a)[WIDTH], const T (&b)[WIDTH], int line,
                             int col, T (&sum)[R][R])
{
    constexpr int V = 16 / sizeof(T);
    struct product_vector<T> x[R / V], y[R / V];

    PST_UNROLL
    for (int g = 0; g < R / V; g++) {
        x[g] = *(const struct product_vector<T> *)&a[g * 16 * V + line];
        y[g] = *(const struct product_vector<T> *)&b[g * 16 * V + col];
    }
    PST_UNROLL
    for (int i = 0; i < R; i++) {
        PST_UNROLL
        for (int j = 0; j < R; j++)
            sum[i][j] += x[i / V].at[i % V] * y[j / V].at[j % V];
    }
}

/* A block computes a tile of 16 R x 16 R, each thread R x R sums. A warp has 4
 * x 8 threads of it, so that it reads few different vectors. A_K, B_K: threads
 * read the operand along k. */
template <typename T, typename S, int R, int K, bool A_K, bool B_K>
PST_DEVICE void product_tile(const struct pst_cuda_product &p)
{
    constexpr int V = 16 / sizeof(T), SIZE = 16 * R;
    alignas(16) PST_SHARED T as[2][K][SIZE + V];
    alignas(16) PST_SHARED T bs[2][K][SIZE + V];
    const uint32_t tile = blockIdx.x % (p.row_tiles * p.col_tiles);
    const uint32_t part = blockIdx.x / (p.row_tiles * p.col_tiles);
    const uint32_t batch = part / p.splits, split = part % p.splits;
    const int row0 = (int)(tile % p.row_tiles) * SIZE;
    const int col0 = (int)(tile / p.row_tiles) * SIZE;
    const int k0 = (int)split * p.per_split;
    const int warp = (int)threadIdx.x / PST_WARP;
    const int lane = (int)threadIdx.x % PST_WARP;
    const int line = (warp / 2 * 4 + lane / 8) * V;
    const int col = (warp % 2 * 8 + lane % 8) * V;
    int left = p.k - k0 < p.per_split ? p.k - k0 : p.per_split;
    int now = 0;
    T sum[R][R] = {};
    struct product_reader<S> a = product_start<T, S, SIZE, K, A_K>(
        p.a, product_offset(p, p.a.batch, batch), row0, p.m, k0);
    struct product_reader<S> b = product_start<T, S, SIZE, K, B_K>(
        p.b, product_offset(p, p.b.batch, batch), col0, p.n, k0);

    product_copy<T, S, SIZE, K, A_K>(p, a, p.a, left, as[0]);
    product_copy<T, S, SIZE, K, B_K>(p, b, p.b, left, bs[0]);
    for (; left > 0; left -= K, now ^= 1) {
        pst_copies_wait();
        __syncthreads(); /* all threads have also read the other tiles */
        if (left > K) {
            product_copy<T, S, SIZE, K, B_K>(p, b, p.b, left - K, bs[now ^ 1]);
            product_copy<T, S, SIZE, K, A_K>(p, a, p.a, left - K, as[now ^ 1]);
        }
        PST_UNROLL
        for (int i = 0; i < K; i++)
            product_step<T, R>(as[now][i], bs[now][i], line, col, sum);
    }

    void *const to = p.splits == 1 ? p.out : p.partial;
    const int64_t first = ((int64_t)split * p.batches + batch) * p.m * p.n;
    const int64_t c = product_offset(p, p.c.batch, batch);

    PST_UNROLL
    for (int i = 0; i < R; i++) {
        const int row = row0 + i / V * 16 * V + line + i % V;

        PST_UNROLL
        for (int g = 0; g < R / V; g++) {
            struct product_vector<T> v;

            PST_UNROLL
            for (int j = 0; j < V; j++)
                v.at[j] = sum[i][g * V + j];
            if (row < p.m)
                product_write<T, S>(p, to, first + (int64_t)row * p.n,
                                    c + row * p.c.row, col0 + g * 16 * V + col,
                                    v);
        }
    }
}

/* Adds the splits' sums, in their order. */
template <typename T, typename S>
PST_DEVICE void product_end(const struct pst_cuda_product &p)
{
    const int64_t size = (int64_t)p.m * p.n, total = size * p.batches;

    PST_GRID_LOOP(i, total)
    {
        const T *from = (const T *)p.partial + i;
        const int row = (int)(i % size / p.n), col = (int)(i % size % p.n);
        T sum = *from;

        for (uint32_t s = 1; s < p.splits; s++)
            sum += *(from += total);
        const int64_t c = product_offset(p, p.c.batch, (uint32_t)(i / size)) +
                          row * p.c.row + col * p.c.col;
        const T was =
            p.accumulate != 0 ? product_load<T, S>(p, p.out, i) : T(0);

        product_store<T, S>(p, p.out, i, product_finish<T, S>(p, sum, c, was));
    }
}

#define PRODUCT(name, T, S, size, k, a_k, b_k)                                 \
    PST_CUDA_KERNEL_TWO(name, struct pst_cuda_product)                         \
    {                                                                          \
        product_tile<T, S, (size) / 16, k, a_k, b_k>(p);                       \
    }
/* Variants by the direction in which threads read a and b: along k ("k") or
 * along the lines ("l"). */
#define PRODUCTS(name, T, S, size, k)                                          \
    PRODUCT(name##_kk, T, S, size, k, true, true)                              \
    PRODUCT(name##_kl, T, S, size, k, true, false)                             \
    PRODUCT(name##_lk, T, S, size, k, false, true)                             \
    PRODUCT(name##_ll, T, S, size, k, false, false)

PRODUCTS(pst_product_large, float, float, PST_CUDA_TILE_LARGE,
         PST_CUDA_TILE_LARGE_K)
PRODUCTS(pst_product_small, float, float, PST_CUDA_TILE_SMALL,
         PST_CUDA_TILE_SMALL_K)
PRODUCTS(pst_product_f64, double, double, PST_CUDA_TILE_F64,
         PST_CUDA_TILE_F64_K)
PRODUCTS(pst_product_16bit, float, uint16_t, PST_CUDA_TILE_SMALL,
         PST_CUDA_TILE_SMALL_K)

PST_CUDA_KERNEL(pst_product_end_f32, struct pst_cuda_product)
{
    product_end<float, float>(p);
}

PST_CUDA_KERNEL(pst_product_end_f64, struct pst_cuda_product)
{
    product_end<double, double>(p);
}

PST_CUDA_KERNEL(pst_product_end_16bit, struct pst_cuda_product)
{
    product_end<float, uint16_t>(p);
}

/* --- column sums ---------------------------------------------------------- */

/* A warp reads PST_CUDA_SUM_COLUMNS adjacent elements of a row. */
template <typename T>
PST_DEVICE void column_sum(const struct pst_cuda_column_sum &p)
{
    PST_SHARED T sums[PST_CUDA_SUM_ROWS][PST_CUDA_SUM_COLUMNS];
    const unsigned lane = threadIdx.x % PST_CUDA_SUM_COLUMNS;
    const unsigned first = threadIdx.x / PST_CUDA_SUM_COLUMNS;
    const int64_t col = (int64_t)blockIdx.x * PST_CUDA_SUM_COLUMNS + lane;
    const int64_t begin = blockIdx.y * p.per_split;
    const int64_t end =
        p.rows < begin + p.per_split ? p.rows : begin + p.per_split;
    T sum = 0;

    if (col < p.cols) {
        for (int64_t r = begin + first; r < end; r += PST_CUDA_SUM_ROWS)
            sum += ((const T *)p.x)[r * p.cols + col];
    }
    sums[first][lane] = sum;
    __syncthreads();
    if (first != 0 || col >= p.cols)
        return;
    for (unsigned i = 1; i < PST_CUDA_SUM_ROWS; i++)
        sum += sums[i][lane];
    if (p.splits > 1)
        ((T *)p.partial)[blockIdx.y * p.cols + col] = sum;
    else
        ((T *)p.out)[col] = p.accumulate != 0 ? ((T *)p.out)[col] + sum : sum;
}

template <typename T>
PST_DEVICE void column_sum_end(const struct pst_cuda_column_sum &p)
{
    T *const out = (T *)p.out;

    PST_GRID_LOOP(i, p.cols)
    {
        T sum = ((const T *)p.partial)[i];

        for (uint32_t s = 1; s < p.splits; s++)
            sum += ((const T *)p.partial)[s * p.cols + i];
        out[i] = p.accumulate != 0 ? out[i] + sum : sum;
    }
}

PST_CUDA_KERNEL(pst_column_sum_f32, struct pst_cuda_column_sum)
{
    column_sum<float>(p);
}

PST_CUDA_KERNEL(pst_column_sum_f64, struct pst_cuda_column_sum)
{
    column_sum<double>(p);
}

PST_CUDA_KERNEL(pst_column_sum_end_f32, struct pst_cuda_column_sum)
{
    column_sum_end<float>(p);
}

PST_CUDA_KERNEL(pst_column_sum_end_f64, struct pst_cuda_column_sum)
{
    column_sum_end<double>(p);
}
