// SPDX-License-Identifier: Apache-2.0
/* Reductions over any dimensions: the folds of the CPU's kernels
 * (reduce/fold.h), for any strides, integers and bool. */
#include "stages/ops/reduce/reduce.h"

#include <float.h>
#include <limits.h>

#include "stages/ops/cuda/elements/fold.h"
#include "stages/ops/cuda/kernels.h"
#include "stages/ops/pointwise/pointwise.h"

/* An operator that is a reduction. */
struct reduction {
    int arg; /* argument with the dimensions, as in pst_reduce_dims */
    enum pst_cuda_folds fold, second;
    enum pst_cuda_fold_end end;
    bool truth; /* the operator is any or all */
    bool best;  /* the last output gets the indices of extrema */
};

/* Kernels without and with indices of extrema; for f32, f64, integers and,
 * without indices, for 16 bits. */
static const struct pst_cuda_folding foldings[2][4] = {
    {PST_CUDA_FOLDING(pst_fold, f32), PST_CUDA_FOLDING(pst_fold, f64),
     PST_CUDA_FOLDING(pst_fold, whole), PST_CUDA_FOLDING(pst_fold, 16)},
    {PST_CUDA_FOLDING(pst_best, f32), PST_CUDA_FOLDING(pst_best, f64),
     PST_CUDA_FOLDING(pst_best, whole)},
};

static const struct pst_cuda_folding *folding_of(const struct pst_call *c,
                                                 const struct reduction *r)
{
    const enum pst_dtype dtype = c->in[0].meta->dtype;

    return &foldings[r->best][r->truth                ? 2
                              : dtype == PST_F32      ? 0
                              : dtype == PST_F64      ? 1
                              : pst_cuda_is_16(dtype) ? 3
                                                      : 2];
}

/* --- how the work is divided ---------------------------------------------- */

/* The threads that compute a result: a warp; a block, for longer rows; or a
 * block computes PST_CUDA_FOLD_COLUMNS results at once, for rows shorter than
 * SHORT_ROW and where only elements of adjacent results are adjacent in memory.
 */
enum shape { WARP, BLOCK, COLUMNS };
#define SHORT_ROW   32
#define LEAST_SPLIT 4096 /* fewest elements of a row per split */
#define LEAST_ROWS  64   /* fewest elements of a column per split */
#define BLOCKS      1024 /* blocks that keep a large GPU busy */

static int64_t tiles_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

static enum shape divide(struct pst_cuda_fold *p)
{
    const struct pst_cuda_nd *kept = &p->kept, *gone = &p->gone;
    const bool along = gone->stride[0][gone->rank - 1] == 1;
    const bool across = kept->stride[0][kept->rank - 1] == 1;
    const int64_t n = PST_MAX(gone->numel, (int64_t)1);
    int64_t splits, blocks = PST_MAX(kept->numel, (int64_t)1);
    enum shape shape;

    if (n < SHORT_ROW || (across && !along)) {
        blocks = tiles_of(blocks, PST_CUDA_FOLD_COLUMNS);
        splits = n / LEAST_ROWS;
        shape = COLUMNS;
    } else {
        splits = n / LEAST_SPLIT;
        shape = n <= PST_CUDA_TEAM_WARP ? WARP : BLOCK;
    }
    splits = PST_MIN(splits, BLOCKS / blocks);
    p->per_split = tiles_of(n, PST_MAX(splits, (int64_t)1));
    p->splits = (uint32_t)tiles_of(n, p->per_split);
    return shape;
}

/* Returns the bytes of scratch: partial results, then first[] and m[]. */
size_t pst_cuda_fold_scratch(struct pst_cuda_fold *p)
{
    (void)divide(p);
    return p->splits == 1
               ? 0
               : (size_t)p->kept.numel *
                     (p->splits * PST_CUDA_FOLD_PARTIAL + 2 * sizeof(double));
}

static void describe(const struct pst_call *c, const struct reduction *how,
                     struct pst_cuda_fold *p)
{
    const struct pst_meta *kept, *gone;
    struct pst_reduce r;

    pst_reduce_init(&r, c, how->arg);
    kept = &r.kept;
    gone = &r.gone;
    *p = (struct pst_cuda_fold){.x = c->in[0].data,
                                .y = c->out[0].data,
                                .fold = how->fold,
                                .second = how->second,
                                .end = how->end,
                                .truth = how->truth,
                                .accumulate = c->accumulate};
    (void)pst_cuda_nd_make(1, &kept, &p->kept);
    (void)pst_cuda_nd_make(1, &gone, &p->gone);
    (void)pst_cuda_type_of(c->in[0].meta->dtype, &p->x_type);
    (void)pst_cuda_type_of(c->out[0].meta->dtype, &p->y_type);
    if (how->end == PST_CUDA_END_VAR)
        p->correction = pst_reduce_correction(&c->args[2]);
    if (how->best) {
        p->places = c->out[c->n_out - 1].data;
        p->y = c->n_out > 1 ? c->out[0].data : NULL;
    }
}

static size_t scratch(const struct pst_call *c, const struct reduction *how)
{
    struct pst_cuda_fold p;

    describe(c, how, &p);
    return pst_cuda_fold_scratch(&p);
}

/* --- launches ------------------------------------------------------------- */

static void launch(const struct pst_call *c, enum pst_cuda_fn fn,
                   enum shape shape, const struct pst_cuda_fold *p)
{
    const int64_t results = shape == WARP      ? PST_CUDA_BLOCK / 32
                            : shape == COLUMNS ? PST_CUDA_FOLD_COLUMNS
                                               : 1;

    pst_cuda_launch(c->stream, fn, tiles_of(p->kept.numel, results), p->splits,
                    p);
}

void pst_cuda_fold_run(const struct pst_call *c,
                       const struct pst_cuda_folding *f,
                       struct pst_cuda_fold *p)
{
    const enum shape shape = divide(p);

    if (p->splits == 1) {
        launch(c, f->fn[shape], shape, p);
        return;
    }
    p->partial = c->scratch;
    p->first = (double *)((char *)c->scratch +
                          p->kept.numel * p->splits * PST_CUDA_FOLD_PARTIAL);
    p->m = p->first + p->kept.numel;
    p->step = PST_CUDA_FOLD_FIRST;
    launch(c, f->fn[shape], shape, p);
    pst_cuda_launch_n(c->stream, f->splits, p->kept.numel, p);
    if (p->second == PST_CUDA_FOLD_NONE)
        return;
    p->step = PST_CUDA_FOLD_SECOND;
    launch(c, f->fn[shape], shape, p);
    pst_cuda_launch_n(c->stream, f->splits, p->kept.numel, p);
}

static void run(const struct pst_call *c, const struct reduction *how)
{
    struct pst_cuda_fold p;

    describe(c, how, &p);
    pst_cuda_fold_run(c, folding_of(c, how), &p);
}

/* --- supported calls ------------------------------------------------------ */

static bool is_whole(enum pst_dtype dtype)
{
    return pst_dtype_kind(dtype) != PST_KIND_FLOAT;
}

static bool fits(const struct pst_call *c, const struct reduction *how)
{
    const enum pst_dtype from = c->in[0].meta->dtype,
                         to = c->out[0].meta->dtype;
    const bool values = !how->best || c->n_out > 1;
    uint32_t type;

    if (!pst_cuda_type_of(from, &type) || !pst_cuda_type_of(to, &type) ||
        pst_meta_numel(c->out[0].meta) > INT_MAX)
        return false;
    if (how->truth)
        return !pst_reduce_none(&c->args[1]);
    if (from == PST_F32 || from == PST_F64)
        return !values || to == from;
    if (pst_cuda_is_16(from))
        return !how->best && (to == from || to == PST_F32);
    /* Sums with a bool result would convert the elements first: not
     * supported. */
    return is_whole(from) && is_whole(to) &&
           (!values || to != PST_BOOL || how->fold == PST_CUDA_FOLD_max ||
            how->fold == PST_CUDA_FOLD_min);
}

/* --- rows ----------------------------------------------------------------- */

#define D_WHOLE                                                                \
    (PST_D(BOOL) | PST_D(U8) | PST_D(I8) | PST_D(I16) | PST_D(I32) | PST_D(I64))
#define ROW(text, what, mask, bits, tol)                                       \
    {                                                                          \
        .name = (text), .dtypes = (mask),                                      \
        .flags = PST_K_QUEUED | PST_K_STRIDED | (bits),                        \
        .supports = what##_fits, .scratch = what##_scratch, .run = what##_run, \
        .tolerance = (tol)                                                     \
    }
#define FUNCTIONS(id, ...)                                                     \
    static const struct reduction id##_how = {__VA_ARGS__};                    \
    static bool id##_fits(const struct pst_call *c)                            \
    {                                                                          \
        return fits(c, &id##_how);                                             \
    }                                                                          \
    static size_t id##_scratch(const struct pst_call *c,                       \
                               unsigned threads PST_UNUSED)                    \
    {                                                                          \
        return scratch(c, &id##_how);                                          \
    }                                                                          \
    static void id##_run(const struct pst_call *c)                             \
    {                                                                          \
        run(c, &id##_how);                                                     \
    }
/* Define kernels for floats alone, for extrema with their indices, for floats
 * and integers, for all dtypes. */
#define REALS(id, tol, ...)                                                    \
    FUNCTIONS(id, __VA_ARGS__)                                                 \
    static const struct pst_kernel id##_kernels[] = {                          \
        ROW(#id "_cuda_f32", id, PST_D(F32), PST_K_ACCUMULATE, tol),           \
        ROW(#id "_cuda_f64", id, PST_D(F64), PST_K_ACCUMULATE,                 \
            (tol) > 0.0 ? 1e-12 : 0.0),                                        \
        ROW(#id "_cuda_16", id, PST_D_16, PST_K_ACCUMULATE, tol),              \
    };                                                                         \
    PST_CUDA_KERNELS(id, id##_kernels)
#define PLACES(id, ...)                                                        \
    FUNCTIONS(id, __VA_ARGS__, .best = true)                                   \
    static const struct pst_kernel id##_kernels[] = {                          \
        ROW(#id "_cuda_f32", id, PST_D(F32), 0, 0.0),                          \
        ROW(#id "_cuda_f64", id, PST_D(F64), 0, 0.0),                          \
        ROW(#id "_cuda_whole", id, D_WHOLE, 0, 0.0),                           \
    };                                                                         \
    PST_CUDA_KERNELS(id, id##_kernels)
#define NUMBERS(id, bits, tol, ...)                                            \
    FUNCTIONS(id, __VA_ARGS__)                                                 \
    static const struct pst_kernel id##_kernels[] = {                          \
        ROW(#id "_cuda_f32", id, PST_D(F32), bits, tol),                       \
        ROW(#id "_cuda_f64", id, PST_D(F64), bits, (tol) > 0.0 ? 1e-12 : 0.0), \
        ROW(#id "_cuda_16", id, PST_D_16, bits, tol),                          \
        ROW(#id "_cuda_whole", id, D_WHOLE, 0, 0.0),                           \
    };                                                                         \
    PST_CUDA_KERNELS(id, id##_kernels)
#define LOGIC(id, ...)                                                         \
    FUNCTIONS(id, __VA_ARGS__, .truth = true)                                  \
    static const struct pst_kernel id##_kernels[] = {                          \
        ROW(#id "_cuda", id, D_WHOLE | PST_D_FLOAT, 0, 0.0),                   \
    };                                                                         \
    PST_CUDA_KERNELS(id, id##_kernels)

#define ONE(fold)         PST_CUDA_FOLD_##fold, PST_CUDA_FOLD_NONE
#define TWO(fold, second) PST_CUDA_FOLD_##fold, PST_CUDA_FOLD_##second
#define ALL               PST_REDUCE_ALL

NUMBERS(sum, PST_K_ACCUMULATE, 1e-5, ALL, ONE(sum));
NUMBERS(sum_dim_IntList, PST_K_ACCUMULATE, 1e-5, 1, ONE(sum));
NUMBERS(prod, PST_K_ACCUMULATE, 1e-5, ALL, ONE(prod));
NUMBERS(prod_dim_int, PST_K_ACCUMULATE, 1e-5, 1, ONE(prod));
NUMBERS(amax, 0, 0.0, 1, ONE(max));
NUMBERS(amin, 0, 0.0, 1, ONE(min));
NUMBERS(max, 0, 0.0, ALL, ONE(max));
NUMBERS(min, 0, 0.0, ALL, ONE(min));
PLACES(max_dim, 1, ONE(max));
PLACES(min_dim, 1, ONE(min));
PLACES(argmax, 1, ONE(max));
PLACES(argmin, 1, ONE(min));
REALS(mean, 1e-5, ALL, ONE(sum), PST_CUDA_END_MEAN);
REALS(mean_dim, 1e-5, 1, ONE(sum), PST_CUDA_END_MEAN);
REALS(var_correction, 1e-5, 1, TWO(sum, squares), PST_CUDA_END_VAR);
REALS(var_dim, 1e-5, 1, TWO(sum, squares), PST_CUDA_END_VAR);
REALS(logsumexp, 1e-5, 1, TWO(max, exps), PST_CUDA_END_LOGSUMEXP);
LOGIC(any, ALL, ONE(max));
LOGIC(all, ALL, ONE(min));
LOGIC(any_dim, 1, ONE(max));
LOGIC(all_dim, 1, ONE(min));
LOGIC(any_dims, 1, ONE(max));
LOGIC(all_dims, 1, ONE(min));

/* --- norms: a fold for each power ------------------------------------------
 */

static struct reduction norm_of(const struct pst_call *c)
{
    const double p = pst_pw_number(&c->args[1]);
    struct reduction r = {2, ONE(squares), PST_CUDA_END_ROOT};

    if (p == 0.0)
        r = (struct reduction){2, ONE(nonzero)};
    else if (p == 1.0)
        r = (struct reduction){2, ONE(abs)};
    else if (p > 2.0)
        r = (struct reduction){2, ONE(max_abs)};
    return r;
}

static bool norm_fits(const struct pst_call *c)
{
    const double p = pst_pw_number(&c->args[1]);
    const struct reduction r = norm_of(c);

    return (p == 0.0 || p == 1.0 || p == 2.0 || p > DBL_MAX) && fits(c, &r);
}

static size_t norm_scratch(const struct pst_call *c,
                           unsigned threads PST_UNUSED)
{
    const struct reduction r = norm_of(c);

    return scratch(c, &r);
}

static void norm_run(const struct pst_call *c)
{
    const struct reduction r = norm_of(c);

    run(c, &r);
}

static const struct pst_kernel norm_kernels[] = {
    ROW("vector_norm_cuda_f32", norm, PST_D(F32), PST_K_ACCUMULATE, 1e-5),
    ROW("vector_norm_cuda_f64", norm, PST_D(F64), PST_K_ACCUMULATE, 1e-12),
    ROW("vector_norm_cuda_16", norm, PST_D_16, PST_K_ACCUMULATE, 1e-5),
};
PST_CUDA_KERNELS(linalg_vector_norm, norm_kernels);

/* --- column sums of 16 bits -------------------------------------------------
 */

static void describe_columns(const struct pst_call *c, struct pst_cuda_fold *p)
{
    const int64_t cols = pst_meta_numel(c->out[0].meta);
    const int64_t rows = pst_meta_numel(c->in[0].meta) / PST_MAX(cols, 1);
    const struct pst_meta kept = {.rank = 1, .size = {cols}, .stride = {1}};
    const struct pst_meta gone = {.rank = 1, .size = {rows}, .stride = {cols}};
    const struct pst_meta *const metas[] = {&kept, &gone};

    *p = (struct pst_cuda_fold){.x = c->in[0].data,
                                .y = c->out[0].data,
                                .fold = PST_CUDA_FOLD_sum,
                                .second = PST_CUDA_FOLD_NONE,
                                .accumulate = c->accumulate};
    (void)pst_cuda_nd_make(1, &metas[0], &p->kept);
    (void)pst_cuda_nd_make(1, &metas[1], &p->gone);
    (void)pst_cuda_type_of(c->in[0].meta->dtype, &p->x_type);
    (void)pst_cuda_type_of(c->out[0].meta->dtype, &p->y_type);
}

size_t pst_cuda_columns_scratch(const struct pst_call *c,
                                unsigned threads PST_UNUSED)
{
    struct pst_cuda_fold p;

    describe_columns(c, &p);
    return pst_cuda_fold_scratch(&p);
}

void pst_cuda_columns_run(const struct pst_call *c)
{
    static const struct pst_cuda_folding folding =
        PST_CUDA_FOLDING(pst_fold, 16);
    struct pst_cuda_fold p;

    describe_columns(c, &p);
    pst_cuda_fold_run(c, &folding, &p);
}
