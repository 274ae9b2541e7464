// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_PRODUCT_H
#define PENSTOCK_STAGES_OPS_MATMUL_PRODUCT_H
/*
 * The common description of linear, addmm, bmm, matmul ...: for every index of
 * the batch dimensions
 *     out (m, n) = alpha * a (m, k) b (k, n) + beta * c (m, n)
 * where a, b, c have any strides and out is contiguous. An operator describes
 * its call as such a matmul; reference and libraries execute the description.
 */
#include "stages/ops/core/op.h"

struct pst_product_operand {
    const void *data;                      /* c only: NULL if absent */
    int64_t batch[PST_MAX_RANK], row, col; /* strides in elements */
};

struct pst_product {
    enum pst_dtype dtype;         /* dtype of c and out */
    enum pst_dtype operand_dtype; /* dtype of a and b, or bf16 to which f32
                                   * operands are rounded */
    unsigned n_batch;             /* batch dimensions */
    int64_t batch[PST_MAX_RANK];
    int64_t m, n, k;
    struct pst_product_operand a, b, c;
    double alpha, beta;
    /* alpha and beta for integers, for which double is too imprecise; 0: use
     * alpha and beta. */
    int64_t whole_alpha, whole_beta;
    void *out;
    bool accumulate;      /* true: the result is added to `out` */
    enum pst_form b_form; /* preferred layout of b, OWN if none */
    bool b_tiled;         /* b has that layout */
};

/* Describes a call. Everything except the data pointers, which may be NULL,
 * depends on metas only. */
typedef void (*pst_product_fn)(const struct pst_call *c,
                               struct pst_product *ret);

/* Descriptions for each operator; pst_matmul_describe also serves mv and
 * dot. */
void pst_linear_describe(const struct pst_call *c, struct pst_product *p);
void pst_mm_describe(const struct pst_call *c, struct pst_product *p);
void pst_addmm_describe(const struct pst_call *c, struct pst_product *p);
void pst_bmm_describe(const struct pst_call *c, struct pst_product *p);
void pst_baddbmm_describe(const struct pst_call *c, struct pst_product *p);
void pst_matmul_describe(const struct pst_call *c, struct pst_product *p);

int64_t pst_product_batches(const struct pst_product *p);
/* Returns the offset of batch number i in an operand, in elements. */
int64_t pst_product_offset(const struct pst_product *p,
                           const struct pst_product_operand *f, int64_t i);
/* True if the operand is a row-major (*trans false) or column-major matrix of
 * rows x cols with leading dimension *ld. */
bool pst_product_operand_layout(const struct pst_product_operand *f,
                                int64_t rows, int64_t cols, bool *trans,
                                int64_t *ld);

/* True if a and b have the dtype of the result. */
bool pst_product_is_plain(const struct pst_product *p);
/* Sets p->b to the matrix b: k x n, or n x k in a layout with suffix _T; b may
 * also be packed as tiles. */
void pst_product_matrix(struct pst_product *p, const struct pst_operand *b,
                        enum pst_form form, int64_t n);
/* True if a and b are row- or column-major matrices that a BLAS can read in
 * place. */
bool pst_product_fits_blas(const struct pst_product *p);
/* True if oneDNN is faster than OpenBLAS; depends on shapes only. */
bool pst_product_prefers_dnnl(const struct pst_product *p);
/* True if our GEMM (packed.h) is faster than OpenBLAS; depends on shapes and
 * the instruction set only. */
bool pst_product_prefers_packed(const struct pst_product *p);

/* True if tiles.h is the fastest for bf16 operands; depends on shapes only. */
bool pst_product_prefers_tiles(const struct pst_product *p);

enum pst_product_lib {
    PST_PRODUCT_BLAS,
    PST_PRODUCT_DNNL,
    PST_PRODUCT_PACKED,
    PST_PRODUCT_BF16,
    PST_PRODUCT_TILES
};

/* Reference: sums in double and rounds once; for integers, wraps around.
 * Accepts any strides. */
void pst_product_ref(const struct pst_product *p);
/* Run the matmul in f32 or f64, each by one library. Rows, columns or batches
 * are divided among the pool. */
void pst_product_blas(const struct pst_product *p, struct pst_pool *pool);
void pst_product_dnnl(const struct pst_product *p, struct pst_pool *pool);
void pst_product_packed(const struct pst_product *p, struct pst_pool *pool);
/* Uses the fastest of these three libraries for f32, and OpenBLAS for f64. */
void pst_product_best(const struct pst_product *p, struct pst_pool *pool);
/* Runs a matmul of bf16 operands with f32 c and out; requires
 * pst_rates_use_bf16. The scratch must be 64-byte aligned. Returns false if the
 * library runs out of memory. */
size_t pst_product_bf16_scratch(const struct pst_product *p, unsigned threads);
bool pst_product_bf16(const struct pst_product *p, struct pst_pool *pool,
                      void *scratch);

/*
 * 16-bit matmuls (narrow.c): bf16 or f16 operands, or f32 operands that are
 * rounded to bf16 (if call->bf16 allows it). Sums are in f32, and the result is
 * rounded once. If pst_rates_use_bf16 is false, the rounded operands are
 * multiplied as f32.
 */
bool pst_product_is_16bit(const struct pst_call *c,
                          const struct pst_product *p);
size_t pst_product_16bit_scratch(const struct pst_product *p, unsigned threads);
void pst_product_16bit(const struct pst_call *c, const struct pst_product *p);

/*
 * Matmuls of prepared operands (narrow.c): operands were rounded to bf16
 * before, once for all matmuls that read them; the result is that of the 16-bit
 * matmul. Operands in layout PST_FORM_ROUNDED are f32, and the plain matmuls
 * read them.
 */
enum pst_form pst_product_form(const struct pst_call *c,
                               const struct pst_product *p, bool is_b);
bool pst_product_is_prepared(const struct pst_product *p);
size_t pst_product_prepared_scratch(const struct pst_product *p,
                                    unsigned threads);
void pst_product_prepared(const struct pst_call *c,
                          const struct pst_product *p);

/* Describes (..., m, k) x (k, n): merges the leading dimensions of x into m as
 * far as its strides allow; the others are batch dimensions. The caller sets b
 * and c, whose batch strides are 0. */
void pst_product_rows(struct pst_product *p, const struct pst_meta *x);

/*
 * Defines the kernel table NAME_kernels and its functions from a description,
 * whose operands are inputs `first` and the next. Kernels named _copy get
 * operands that a BLAS cannot read as contiguous copies.
 */
#define PST_PRODUCT_RUN(id, describe, what, call)                              \
    static void id##_##what(const struct pst_call *c)                          \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        call;                                                                  \
    }
#define PST_PRODUCT_ASK(id, describe, what, condition)                         \
    static bool id##_##what(const struct pst_call *c)                          \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return condition;                                                      \
    }
#define PST_PRODUCT_SCRATCH(id, describe, what)                                \
    static size_t id##_##what##_scratch(const struct pst_call *c,              \
                                        unsigned threads)                      \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        describe(c, &p);                                                       \
        return pst_product_##what##_scratch(&p, threads);                      \
    }
#define PST_PRODUCT_KERNEL(id, text, types, bits, fits, precision, what, ...)  \
    {                                                                          \
        .name = #id text, .dtypes = types, .flags = PST_K_ACCUMULATE | (bits), \
        .supports = id##_##fits, .run = id##_##what, .tolerance = precision,   \
        __VA_ARGS__                                                            \
    }
#define PST_D_16BIT (PST_D(F32) | PST_D(BF16) | PST_D(F16))

#define PST_PRODUCT_KERNELS(id, describe, first)                               \
    PST_PRODUCT_RUN(id, describe, ref, pst_product_ref(&p))                    \
    PST_PRODUCT_RUN(id, describe, blas, pst_product_blas(&p, c->pool))         \
    PST_PRODUCT_RUN(id, describe, dnnl, pst_product_dnnl(&p, c->pool))         \
    PST_PRODUCT_RUN(id, describe, packed, pst_product_packed(&p, c->pool))     \
    PST_PRODUCT_RUN(id, describe, 16bit, pst_product_16bit(c, &p))             \
    PST_PRODUCT_RUN(id, describe, bf16, pst_product_prepared(c, &p))           \
    PST_PRODUCT_SCRATCH(id, describe, 16bit)                                   \
    PST_PRODUCT_SCRATCH(id, describe, prepared)                                \
    PST_PRODUCT_ASK(id, describe, is_prepared, pst_product_is_prepared(&p))    \
    PST_PRODUCT_ASK(id, describe, fits_prepared,                               \
                    pst_product_is_prepared(&p) && pst_product_fits_blas(&p))  \
    PST_PRODUCT_ASK(id, describe, is_16bit, pst_product_is_16bit(c, &p))       \
    PST_PRODUCT_ASK(id, describe, fits_16bit,                                  \
                    pst_product_is_16bit(c, &p) && pst_product_fits_blas(&p))  \
    PST_PRODUCT_ASK(id, describe, is_plain, pst_product_is_plain(&p))          \
    PST_PRODUCT_ASK(id, describe, fits_plain,                                  \
                    pst_product_is_plain(&p) && pst_product_fits_blas(&p))     \
    PST_PRODUCT_ASK(id, describe, likes_dnnl, pst_product_prefers_dnnl(&p))    \
    PST_PRODUCT_ASK(id, describe, fits_dnnl,                                   \
                    pst_product_fits_blas(&p) && pst_product_prefers_dnnl(&p)) \
    PST_PRODUCT_ASK(id, describe, likes_packed,                                \
                    pst_product_prefers_packed(&p))                            \
    PST_PRODUCT_ASK(id, describe, fits_packed,                                 \
                    pst_product_fits_blas(&p) &&                               \
                        pst_product_prefers_packed(&p))                        \
    static enum pst_form id##_form(const struct pst_call *c, unsigned i)       \
    {                                                                          \
        struct pst_product p;                                                  \
                                                                               \
        if (i != (first) && i != (first) + 1)                                  \
            return PST_FORM_OWN;                                               \
        describe(c, &p);                                                       \
        return pst_product_form(c, &p, i != (first));                          \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_PRODUCT_KERNEL(id, "_bf16", PST_D(F32) | PST_D(BF16),              \
                           PST_K_STRIDED, fits_prepared, 1e-2, bf16,           \
                           .scratch = id##_prepared_scratch),                  \
        PST_PRODUCT_KERNEL(id, "_bf16_copy", PST_D(F32) | PST_D(BF16), 0,      \
                           is_prepared, 1e-2, bf16,                            \
                           .scratch = id##_prepared_scratch),                  \
        PST_PRODUCT_KERNEL(id, "_narrow", PST_D_16BIT, PST_K_STRIDED,          \
                           fits_16bit, 1e-2, 16bit,                            \
                           .scratch = id##_16bit_scratch, .form = id##_form),  \
        PST_PRODUCT_KERNEL(id, "_narrow_copy", PST_D_16BIT, 0, is_16bit, 1e-2, \
                           16bit, .scratch = id##_16bit_scratch,               \
                           .form = id##_form),                                 \
        PST_PRODUCT_KERNEL(id, "_f32_dnnl", PST_D(F32),                        \
                           PST_K_STRIDED | PST_K_COMPILES, fits_dnnl, 1e-5,    \
                           dnnl),                                              \
        PST_PRODUCT_KERNEL(id, "_f32_packed", PST_D(F32), PST_K_STRIDED,       \
                           fits_packed, 1e-5, packed),                         \
        PST_PRODUCT_KERNEL(id, "_blas", PST_D(F32) | PST_D(F64),               \
                           PST_K_STRIDED, fits_plain, 1e-5, blas),             \
        PST_PRODUCT_KERNEL(id, "_f32_dnnl_copy", PST_D(F32), PST_K_COMPILES,   \
                           likes_dnnl, 1e-5, dnnl),                            \
        PST_PRODUCT_KERNEL(id, "_f32_packed_copy", PST_D(F32), 0,              \
                           likes_packed, 1e-5, packed),                        \
        PST_PRODUCT_KERNEL(id, "_blas_copy", PST_D(F32) | PST_D(F64), 0,       \
                           is_plain, 1e-5, blas),                              \
        {.name = #id "_ref",                                                   \
         .dtypes = PST_D_ANY,                                                  \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .run = id##_ref},                                                     \
    }

#endif
