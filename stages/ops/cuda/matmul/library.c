// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/matmul/product.h"

#include <limits.h>

#include "stages/base/macros.h"
#include "stages/device/cuda/multiply.h"

/* The library may divide k into at most this many parts, with partial sums of
 * at most this many bytes. */
#define PARTS ((size_t)16)
#define MOST  ((size_t)32 << 20)
#define LEAST ((size_t)64 << 10)
/* Maximum number of calls for a matmul whose batches have no common stride. */
#define MOST_CALLS 64

size_t pst_cuda_library_scratch(const struct pst_product *p)
{
    const double all = (double)pst_product_batches(p) * (double)p->m *
                       (double)p->n * sizeof(float) * (double)PARTS;

    if (p->dtype == PST_F64 || all <= 0.0)
        return 0;
    return all >= (double)MOST ? MOST : PST_MAX((size_t)all, LEAST);
}

/* --- batches -------------------------------------------------------------- */

/* The batch dimensions from `first` on are computed in one call, of n matrices
 * that have these strides; the others by a loop. */
struct batch {
    unsigned first;
    int64_t n, a, b, c;
};

static bool continues(int64_t stride, int64_t inner, int64_t n)
{
    return stride == inner * n;
}

/* Merges as many of the last batch dimensions as have common strides. */
static struct batch merge_batches(const struct pst_product *p, bool with_c)
{
    struct batch to = {.first = p->n_batch, .n = 1};

    while (to.first > 0) {
        const unsigned d = to.first - 1;

        if (p->batch[d] != 1 && to.n == 1) {
            to.a = p->a.batch[d];
            to.b = p->b.batch[d];
            to.c = with_c ? p->c.batch[d] : 0;
        } else if (p->batch[d] != 1 &&
                   (!continues(p->a.batch[d], to.a, to.n) ||
                    !continues(p->b.batch[d], to.b, to.n) ||
                    (with_c && !continues(p->c.batch[d], to.c, to.n)))) {
            break;
        }
        to.n *= p->batch[d];
        to.first = d;
    }
    return to;
}

/* --- operands ------------------------------------------------------------- */

/* Fills the members that describe the batches of a matrix. */
static void set_batches(const struct pst_product *p,
                        const struct pst_product_operand *f,
                        enum pst_dtype dtype, struct pst_cuda_matrix *ret)
{
    ret->data = f->data;
    ret->bits = (uintptr_t)f->data;
    ret->shared = true;
    for (unsigned d = 0; d < p->n_batch; d++)
        if (p->batch[d] > 1) {
            ret->bits |= (uintptr_t)f->batch[d] * pst_dtype_size(dtype);
            ret->shared = ret->shared && f->batch[d] == 0;
        }
}

/* Describes the operand, of rows x cols elements, as a column-major matrix:
 * as the transpose of what it is in row-major order. */
static bool set_operand(const struct pst_product *p,
                        const struct pst_product_operand *f, int64_t rows,
                        int64_t cols, int64_t stride, bool *ret_trans,
                        struct pst_cuda_matrix *ret)
{
    int64_t ld;

    if (!pst_product_operand_layout(f, rows, cols, ret_trans, &ld))
        return false;
    ret->ld = PST_MAX(ld, *ret_trans ? rows : cols);
    ret->stride = stride;
    set_batches(p, f, p->operand_dtype, ret);
    return true;
}

/* Adds c: as a bias of each row of the result, or as a matrix. */
static bool set_addend(const struct pst_product *p, const struct batch *batch,
                       struct pst_cuda_multiply *m)
{
    const struct pst_product_operand *c = &p->c;
    struct pst_cuda_matrix to = {.ld = p->m == 1 ? p->n : c->row,
                                 .stride = batch->c};

    set_batches(p, c, p->dtype, &to);
    if (c->col != 1 && p->n != 1)
        return false;
    if (c->row == 0 && p->beta == 1.0 && to.shared) {
        m->bias = c->data;
        return true;
    }
    if (p->accumulate || to.ld < p->n || (to.shared && m->batch_all > 1))
        return false;
    m->c = to;
    m->beta = (float)p->beta;
    return true;
}

static bool type_of(enum pst_dtype dtype, enum pst_cublaslt_type *ret)
{
    *ret = dtype == PST_BF16  ? PST_CUBLASLT_BF16
           : dtype == PST_F16 ? PST_CUBLASLT_F16
                              : PST_CUBLASLT_F32;
    return dtype == PST_BF16 || dtype == PST_F16 || dtype == PST_F32;
}

/* Describes the matmul of the batches that are computed in one call. The
 * library has column-major matrices, so it computes out^T = b^T a^T. */
static bool describe(const struct pst_call *c, const struct pst_product *p,
                     const struct batch *batch, bool with_c,
                     struct pst_cuda_multiply *m)
{
    const int64_t size = p->m * p->n;

    *m = (struct pst_cuda_multiply){
        .rows = p->n,
        .cols = p->m,
        .depth = p->k,
        .d = {.data = p->out,
              .ld = p->n,
              .stride = size,
              .bits = (uintptr_t)p->out},
        .batch = batch->n,
        .batch_all = pst_product_batches(p),
        .tf32 = c->tf32,
        .alpha = (float)p->alpha,
        .workspace = c->scratch,
        .workspace_size = pst_cuda_library_scratch(p),
    };
    if (m->batch_all > 1)
        m->d.bits |= (uintptr_t)size * pst_dtype_size(p->dtype);
    if (!type_of(p->operand_dtype, &m->in) || !type_of(p->dtype, &m->out) ||
        !set_operand(p, &p->b, p->k, p->n, batch->b, &m->trans_a, &m->a) ||
        !set_operand(p, &p->a, p->m, p->k, batch->a, &m->trans_b, &m->b))
        return false;
    if (p->accumulate) {
        m->c = m->d;
        m->beta = 1.0F;
    }
    return !with_c || set_addend(p, batch, m);
}

static const void *address(const void *data, int64_t elements,
                           enum pst_dtype dtype)
{
    return (const char *)data + elements * (int64_t)pst_dtype_size(dtype);
}

bool pst_cuda_library_multiply(const struct pst_call *c,
                               const struct pst_product *p)
{
    const bool with_c = p->c.data != NULL && p->beta != 0.0;
    const struct batch batch = merge_batches(p, with_c);
    const int64_t all = pst_product_batches(p);
    struct pst_cuda_multiply m;

    if (all <= 0 || p->m <= 0 || p->n <= 0 || p->k <= 0 ||
        batch.n > INT32_MAX || all / batch.n > MOST_CALLS ||
        !describe(c, p, &batch, with_c, &m))
        return false;
    for (int64_t i = 0; i < all; i += batch.n) {
        struct pst_cuda_multiply one = m;

        one.a.data = address(m.a.data, pst_product_offset(p, &p->b, i),
                             p->operand_dtype);
        one.b.data = address(m.b.data, pst_product_offset(p, &p->a, i),
                             p->operand_dtype);
        one.d.data = address(m.d.data, i * p->m * p->n, p->dtype);
        if (p->accumulate)
            one.c.data = one.d.data;
        else if (m.beta != 0.0F)
            one.c.data =
                address(m.c.data, pst_product_offset(p, &p->c, i), p->dtype);
        /* All calls have one plan: they differ only in their addresses. */
        if (!pst_cuda_multiply(c->stream, &one))
            return false;
    }
    return true;
}
