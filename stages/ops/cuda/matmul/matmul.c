// SPDX-License-Identifier: Apache-2.0
/* Matmuls and column sums: code/matmul/matmul.cu. */
#include "stages/ops/cuda/code/matmul/matmul.h"
#include "stages/base/macros.h"
#include "stages/ops/cuda/elements/fold.h"
#include "stages/ops/cuda/kernels.h"
#include "stages/ops/cuda/matmul/product.h"

#include <limits.h>
#include <string.h>

/* Blocks that fill a GPU: about two for each multiprocessor. A constant, since
 * bits must not depend on the GPU. */
#define BLOCKS 256
/* Minimum k dimension of a split, and maximum number of splits. */
#define SPLIT_K     256
#define MOST_SPLITS 32

/* True if a and b have 16 bits. */
static bool is_16bit(const struct pst_product *p)
{
    return p->operand_dtype == PST_BF16 || p->operand_dtype == PST_F16;
}

/* How a matmul is divided; a function of its sizes. */
struct division {
    int64_t size, k; /* size and depth (k) of a tile */
    int64_t row_tiles, col_tiles, splits, per_split;
};

static int64_t tiles_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Divides the k dimension into splits if there are too few tiles to fill a GPU.
 */
static void set_splits(struct division *d, int64_t k, int64_t tiles)
{
    const int64_t wanted = tiles > 0 ? BLOCKS / tiles : 1;
    const int64_t most = PST_MIN(k / SPLIT_K, (int64_t)MOST_SPLITS);
    const int64_t splits = PST_MAX(PST_MIN(wanted, most), (int64_t)1);

    d->per_split = tiles_of(tiles_of(k, splits), d->k) * d->k;
    d->splits = k > 0 ? tiles_of(k, d->per_split) : 1;
}

static struct division divide_in_tiles(const struct pst_product *p,
                                       int64_t size, int64_t k)
{
    struct division d = {.size = size,
                         .k = k,
                         .row_tiles = tiles_of(p->m, size),
                         .col_tiles = tiles_of(p->n, size)};

    set_splits(&d, p->k, d.row_tiles * d.col_tiles * pst_product_batches(p));
    return d;
}

static struct division divide_product(const struct pst_product *p)
{
    const int64_t least = PST_MIN(p->m, p->n);
    struct division d;

    if (p->dtype == PST_F64)
        return divide_in_tiles(p, PST_CUDA_TILE_F64, PST_CUDA_TILE_F64_K);
    if (is_16bit(p))
        return divide_in_tiles(p, PST_CUDA_TILE_SMALL, PST_CUDA_TILE_SMALL_K);
    d = divide_in_tiles(p, PST_CUDA_TILE_LARGE, PST_CUDA_TILE_LARGE_K);
    /* Small tiles read twice as much from shared and global memory per
     * operation. They are used if large tiles would leave most multiprocessors,
     * or most of a tile, without work. */
    if (least <= PST_CUDA_TILE_SMALL ||
        d.row_tiles * d.col_tiles * d.splits * pst_product_batches(p) <
            BLOCKS / 4)
        d = divide_in_tiles(p, PST_CUDA_TILE_SMALL, PST_CUDA_TILE_SMALL_K);
    return d;
}

/* True for f32 and f64 operands, and for 16-bit operands with a result of their
 * dtype or, as the compiler rounds them for --dtype bf16, of f32. */
static bool has_types(const struct pst_call *c, const struct pst_product *p)
{
    if (is_16bit(p))
        return p->dtype == p->operand_dtype || p->dtype == PST_F32;
    return pst_product_is_plain(p) && !(c->bf16 && p->dtype == PST_F32);
}

static bool fits(const struct pst_call *c, const struct pst_product *p)
{
    const int64_t batches = pst_product_batches(p);
    struct division d;

    if (!has_types(c, p) || p->b_tiled || p->m > INT_MAX / 2 ||
        p->n > INT_MAX / 2 || p->k > INT_MAX / 2 || batches > INT_MAX)
        return false;
    d = divide_product(p);
    return (double)d.row_tiles * (double)d.col_tiles * (double)d.splits *
               (double)batches <=
           INT_MAX;
}

static size_t scratch_of(const struct pst_product *p)
{
    const struct division d = divide_product(p);
    const size_t sum = p->dtype == PST_F64 ? sizeof(double) : sizeof(float);
    const size_t own =
        d.splits == 1
            ? 0
            : (size_t)(d.splits * pst_product_batches(p) * p->m * p->n) * sum;

    return PST_MAX(own, pst_cuda_library_scratch(p));
}

/* True if elements that follow each other along k are nearer in memory than
 * those along the lines. */
static bool reads_along_k(const struct pst_cuda_factor *f, int64_t lines,
                          int64_t k)
{
    return lines == 1 || (k != 1 && f->k <= f->line);
}

/* True if data and batches begin at multiples of 16 bytes, which are `elements`
 * elements. */
static bool is_vector(const struct pst_product *p, const void *data,
                      const int64_t *batch, int64_t elements)
{
    for (unsigned i = 0; i < p->n_batch; i++)
        if (p->batch[i] > 1 && batch[i] % elements != 0)
            return false;
    return (uintptr_t)data % 16 == 0;
}

static void fill_operand(const struct pst_product *p,
                         const struct pst_product_operand *f, int64_t line,
                         int64_t k, struct pst_cuda_factor *ret)
{
    const int64_t elements = 16 / (int64_t)pst_dtype_size(p->operand_dtype);

    *ret = (struct pst_cuda_factor){.data = f->data, .line = line, .k = k};
    memcpy(ret->batch, f->batch, sizeof(ret->batch));
    ret->vector = !is_16bit(p) && line == 1 && k % elements == 0 &&
                  is_vector(p, f->data, f->batch, elements);
}

static enum pst_cuda_fn function_of(const struct pst_product *p,
                                    const struct division *d, bool a_k,
                                    bool b_k)
{
#define FORMS(name)                                                            \
    {                                                                          \
        {PST_FN_##name##_ll, PST_FN_##name##_lk},                              \
        {                                                                      \
            PST_FN_##name##_kl, PST_FN_##name##_kk                             \
        }                                                                      \
    }
    static const enum pst_cuda_fn functions[4][2][2] = {
        FORMS(pst_product_large), FORMS(pst_product_small),
        FORMS(pst_product_f64), FORMS(pst_product_16bit)};
#undef FORMS

    return functions[is_16bit(p)                      ? 3
                     : p->dtype == PST_F64            ? 2
                     : d->size == PST_CUDA_TILE_LARGE ? 0
                                                      : 1][a_k][b_k];
}

/* Enqueues our own kernels. */
static void multiply_here(const struct pst_call *c, const struct pst_product *p)
{
    const struct division d = divide_product(p);
    const int64_t batches = pst_product_batches(p);
    const enum pst_dtype sums = p->dtype == PST_F64 ? PST_F64 : PST_F32;
    const int64_t elements = 16 / (int64_t)pst_dtype_size(sums);
    const enum pst_cuda_fn end = is_16bit(p) ? PST_FN_pst_product_end_16bit
                                 : p->dtype == PST_F64
                                     ? PST_FN_pst_product_end_f64
                                     : PST_FN_pst_product_end_f32;
    struct pst_cuda_product q = {.out = p->out,
                                 .partial = c->scratch,
                                 .m = (int32_t)p->m,
                                 .n = (int32_t)p->n,
                                 .k = (int32_t)p->k,
                                 .per_split = (int32_t)d.per_split,
                                 .row_tiles = (uint32_t)d.row_tiles,
                                 .col_tiles = (uint32_t)d.col_tiles,
                                 .splits = (uint32_t)d.splits,
                                 .batches = (uint32_t)batches,
                                 .n_batch = p->n_batch,
                                 .alpha = p->alpha,
                                 .beta = p->beta,
                                 .accumulate = p->accumulate};

    (void)pst_cuda_type_of(p->operand_dtype, &q.in);
    (void)pst_cuda_type_of(p->dtype, &q.to);
    for (unsigned i = 0; i < p->n_batch; i++)
        q.batch[i] = (uint32_t)p->batch[i];
    fill_operand(p, &p->a, p->a.row, p->a.col, &q.a);
    fill_operand(p, &p->b, p->b.col, p->b.row, &q.b);
    if (p->beta != 0.0) { /* else c is ignored, even where it is NaN */
        q.c.data = p->c.data;
        q.c.row = p->c.row;
        q.c.col = p->c.col;
        memcpy(q.c.batch, p->c.batch, sizeof(q.c.batch));
    }
    q.vector = p->n % elements == 0 && (d.splits > 1 || p->dtype == sums) &&
               (uintptr_t)(d.splits == 1 ? p->out : c->scratch) % 16 == 0;
    pst_cuda_launch(c->stream,
                    function_of(p, &d, reads_along_k(&q.a, p->m, p->k),
                                reads_along_k(&q.b, p->n, p->k)),
                    d.row_tiles * d.col_tiles * d.splits * batches, 1, &q);
    if (d.splits > 1)
        pst_cuda_launch_n(c->stream, end, p->m * p->n * batches, &q);
}

static void multiply(const struct pst_call *c, const struct pst_product *p)
{
    if (!pst_cuda_library_multiply(c, p))
        multiply_here(c, p);
}

#define PRODUCT(id, describe)                                                  \
    static bool id##_fits(const struct pst_call *c)                            \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return !is_16bit(&p) && fits(c, &p);                                   \
    }                                                                          \
    static bool id##_fits_16bit(const struct pst_call *c)                      \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return is_16bit(&p) && fits(c, &p);                                    \
    }                                                                          \
    static size_t id##_scratch(const struct pst_call *c, unsigned threads)     \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        (void)threads;                                                         \
        describe(c, &p);                                                       \
        return scratch_of(&p);                                                 \
    }                                                                          \
    static void id##_run(const struct pst_call *c)                             \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        multiply(c, &p);                                                       \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {.name = #id "_cuda",                                                  \
         .dtypes = PST_D(F32) | PST_D(F64),                                    \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED | PST_K_QUEUED,             \
         .supports = id##_fits,                                                \
         .scratch = id##_scratch,                                              \
         .run = id##_run,                                                      \
         .tolerance = 1e-5},                                                   \
        {.name = #id "_cuda_16bit",                                            \
         .dtypes = PST_D(F32) | PST_D(BF16) | PST_D(F16),                      \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED | PST_K_QUEUED,             \
         .supports = id##_fits_16bit,                                          \
         .scratch = id##_scratch,                                              \
         .run = id##_run,                                                      \
         .tolerance = 1e-2},                                                   \
    };                                                                         \
    PST_CUDA_KERNELS(id, id##_kernels)

PRODUCT(linear, pst_linear_describe);
PRODUCT(mm, pst_mm_describe);
PRODUCT(addmm, pst_addmm_describe);
PRODUCT(bmm, pst_bmm_describe);
PRODUCT(baddbmm, pst_baddbmm_describe);
PRODUCT(matmul, pst_matmul_describe);
PRODUCT(mv, pst_matmul_describe);
PRODUCT(dot, pst_matmul_describe);

/* --- column sums ---------------------------------------------------------- */

/* Minimum number of rows of a column sum that a block adds. */
#define SPLIT_ROWS 64

static struct pst_cuda_column_sum column_sum_of(const struct pst_call *c)
{
    struct pst_cuda_column_sum p = {
        .x = c->in[0].data,
        .out = c->out[0].data,
        .partial = c->scratch,
        .cols = pst_meta_numel(c->out[0].meta),
        .splits = 1,
        .accumulate = c->accumulate,
    };
    int64_t splits;

    if (p.cols == 0)
        return p;
    p.rows = pst_meta_numel(c->in[0].meta) / p.cols;
    splits = PST_MIN(p.rows / SPLIT_ROWS,
                     4 * BLOCKS / tiles_of(p.cols, PST_CUDA_SUM_COLUMNS));
    splits = PST_MAX(splits, (int64_t)1);
    p.per_split = PST_MAX(tiles_of(p.rows, splits), (int64_t)1);
    p.splits = (uint32_t)PST_MAX(tiles_of(p.rows, p.per_split), (int64_t)1);
    return p;
}

static bool column_sum_fits(const struct pst_call *c)
{
    return pst_meta_numel(c->out[0].meta) <= INT_MAX;
}

static size_t column_sum_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_cuda_column_sum p = column_sum_of(c);

    (void)threads;
    return p.splits == 1 ? 0
                         : (size_t)(p.splits * p.cols) *
                               pst_dtype_size(c->out[0].meta->dtype);
}

static void column_sum_run(const struct pst_call *c)
{
    const struct pst_cuda_column_sum p = column_sum_of(c);
    const bool wide = c->out[0].meta->dtype == PST_F64;

    pst_cuda_launch(
        c->stream, wide ? PST_FN_pst_column_sum_f64 : PST_FN_pst_column_sum_f32,
        tiles_of(p.cols, PST_CUDA_SUM_COLUMNS), p.splits, &p);
    if (p.splits > 1)
        pst_cuda_launch_n(c->stream,
                          wide ? PST_FN_pst_column_sum_end_f64
                               : PST_FN_pst_column_sum_end_f32,
                          p.cols, &p);
}

static const struct pst_kernel column_sum_kernels[] = {
    {.name = "column_sum_cuda",
     .dtypes = PST_D(F32) | PST_D(F64),
     .flags = PST_K_ACCUMULATE | PST_K_QUEUED,
     .supports = column_sum_fits,
     .scratch = column_sum_scratch,
     .run = column_sum_run,
     .tolerance = 1e-5},
    {.name = "column_sum_cuda_16",
     .dtypes = PST_D_16,
     .flags = PST_K_ACCUMULATE | PST_K_QUEUED,
     .supports = column_sum_fits,
     .scratch = pst_cuda_columns_scratch,
     .run = pst_cuda_columns_run,
     .tolerance = 1e-5},
};
PST_CUDA_KERNELS(column_sum, column_sum_kernels);
