// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_PRODUCT_H
#define PENSTOCK_STAGES_OPS_MATMUL_PRODUCT_H
/*
 * What linear, addmm, bmm, matmul ... have in common: for every index of the
 * batch dimensions
 *     out (m, n) = alpha * a (m, k) b (k, n) + beta * c (m, n)
 * where a, b, c have any strides and out is contiguous. An operator describes
 * its call as such a product; reference and libraries run the description.
 */
#include "stages/ops/op.h"

struct pst_factor {
    const void *data;                      /* c only: NULL if there is none */
    int64_t batch[PST_MAX_RANK], row, col; /* strides, elements */
};

struct pst_product {
    enum pst_dtype dtype;
    unsigned n_batch; /* batch dimensions */
    int64_t batch[PST_MAX_RANK];
    int64_t m, n, k;
    struct pst_factor a, b, c;
    double alpha, beta;
    void *out;
    bool accumulate; /* out += */
};

/* Metas alone decide all but the data pointers, which may be NULL. */
typedef void (*pst_product_fn)(const struct pst_call *c,
                               struct pst_product *ret);

int64_t pst_product_batches(const struct pst_product *p);
double pst_product_flops(const struct pst_product *p);
/* Offset of batch number i in a factor, elements. */
int64_t pst_product_offset(const struct pst_product *p,
                           const struct pst_factor *f, int64_t i);
/* Row-major (*trans false) or column-major matrix of rows x cols whose stored
 * rows stand *ld apart? */
bool pst_factor_layout(const struct pst_factor *f, int64_t rows, int64_t cols,
                       bool *trans, int64_t *ld);

/* a and b are row- or column-major matrices that a BLAS can read in place. */
bool pst_product_fits_blas(const struct pst_product *p);
/* oneDNN is the faster library for it (a function of shapes alone). */
bool pst_product_likes_dnnl(const struct pst_product *p);

enum pst_product_lib { PST_PRODUCT_BLAS, PST_PRODUCT_DNNL, PST_PRODUCT_BF16 };

/* Sums in double, rounds once; integers wrap around. Any strides. */
void pst_product_ref(const struct pst_product *p);
/* f32 and f64. Rows, columns or batches are divided over the pool. */
void pst_product_blas(const struct pst_product *p, struct pst_pool *pool);
void pst_product_dnnl(const struct pst_product *p, struct pst_pool *pool);
/* bf16 factors, f32 for c and out, if pst_gemm_has_bf16. The library's scratch
 * for each thread, 64-byte aligned; false: it ran out of memory. */
size_t pst_product_bf16_each(const struct pst_product *p, unsigned threads);
bool pst_product_bf16(const struct pst_product *p, struct pst_pool *pool,
                      void *scratch);

/*
 * Narrow products (narrow.c): factors of f32 that are rounded to bf16 (when
 * the call says so), of bf16 or f16; summed in f32, the result rounded once.
 * On processors without bf16 products f32 ones of the rounded factors run.
 */
bool pst_product_is_narrow(const struct pst_call *c,
                           const struct pst_product *p);
size_t pst_product_narrow_scratch(const struct pst_product *p,
                                  unsigned threads);
void pst_product_narrow(const struct pst_call *c, const struct pst_product *p);

/* Describes (..., m, k) x (k, n) with the leading dimensions of x merged into
 * m as far as its strides allow, the others as batch dimensions. b and c are
 * left to the caller, their batch strides are 0. */
void pst_product_rows(struct pst_product *p, const struct pst_meta *x);

/*
 * Kernel table NAME_kernels and its functions from a description. Operands
 * that a BLAS cannot read are made contiguous by the caller of the last rows.
 */
#define PST_PRODUCT_KERNELS(id, describe)                                      \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        pst_product_ref(&p);                                                   \
    }                                                                          \
    static void id##_blas(const struct pst_call *c)                            \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        pst_product_blas(&p, c->pool);                                         \
    }                                                                          \
    static void id##_dnnl(const struct pst_call *c)                            \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        pst_product_dnnl(&p, c->pool);                                         \
    }                                                                          \
    static void id##_narrow(const struct pst_call *c)                          \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        pst_product_narrow(c, &p);                                             \
    }                                                                          \
    static size_t id##_narrow_scratch(const struct pst_call *c,                \
                                      unsigned threads)                        \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return pst_product_narrow_scratch(&p, threads);                        \
    }                                                                          \
    static bool id##_fits_narrow(const struct pst_call *c)                     \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return pst_product_is_narrow(c, &p) && pst_product_fits_blas(&p);      \
    }                                                                          \
    static bool id##_is_narrow(const struct pst_call *c)                       \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return pst_product_is_narrow(c, &p);                                   \
    }                                                                          \
    static bool id##_fits_blas(const struct pst_call *c)                       \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return pst_product_fits_blas(&p);                                      \
    }                                                                          \
    static bool id##_fits_dnnl(const struct pst_call *c)                       \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return pst_product_fits_blas(&p) && pst_product_likes_dnnl(&p);        \
    }                                                                          \
    static bool id##_likes_dnnl(const struct pst_call *c)                      \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return pst_product_likes_dnnl(&p);                                     \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {.name = #id "_narrow",                                                \
         .dtypes = PST_D(F32) | PST_D(BF16) | PST_D(F16),                      \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .supports = id##_fits_narrow,                                         \
         .scratch = id##_narrow_scratch,                                       \
         .run = id##_narrow,                                                   \
         .tolerance = 1e-2},                                                   \
        {.name = #id "_narrow_copy",                                           \
         .dtypes = PST_D(F32) | PST_D(BF16) | PST_D(F16),                      \
         .flags = PST_K_ACCUMULATE,                                            \
         .supports = id##_is_narrow,                                           \
         .scratch = id##_narrow_scratch,                                       \
         .run = id##_narrow,                                                   \
         .tolerance = 1e-2},                                                   \
        {.name = #id "_f32_dnnl",                                              \
         .dtypes = PST_D(F32),                                                 \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .supports = id##_fits_dnnl,                                           \
         .run = id##_dnnl,                                                     \
         .tolerance = 1e-5},                                                   \
        {.name = #id "_blas",                                                  \
         .dtypes = PST_D(F32) | PST_D(F64),                                    \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .supports = id##_fits_blas,                                           \
         .run = id##_blas,                                                     \
         .tolerance = 1e-5},                                                   \
        {.name = #id "_f32_dnnl_copy",                                         \
         .dtypes = PST_D(F32),                                                 \
         .flags = PST_K_ACCUMULATE,                                            \
         .supports = id##_likes_dnnl,                                          \
         .run = id##_dnnl,                                                     \
         .tolerance = 1e-5},                                                   \
        {.name = #id "_blas_copy",                                             \
         .dtypes = PST_D(F32) | PST_D(F64),                                    \
         .flags = PST_K_ACCUMULATE,                                            \
         .run = id##_blas,                                                     \
         .tolerance = 1e-5},                                                   \
        {.name = #id "_ref",                                                   \
         .dtypes = PST_D_ANY,                                                  \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .run = id##_ref},                                                     \
    }

#endif
