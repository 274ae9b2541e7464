// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/rows.h"
#include "stages/ops/matmul/matmul.h"

#include <string.h>

/* Matmuls of groups of rows: group g is rows offs[g-1] (0 for the first) to
 * offs[g] of R rows. The size of a group is known only at run time, so each
 * matmul chooses its library by its actual shape.
 *
 * penstock.grouped_product: x (R, K), weight (G, K, N) -> (R, N); rows after
 * the last group are 0.
 * penstock.grouped_outer: a (M, R), b (R, N) -> (G, M, N), one matmul per group
 * that sums over its rows.
 *
 * The gradients of both consist of these two operators. */

static enum pst_status check_operands(struct pst_infer *c,
                                      const struct pst_meta **t)
{
    enum pst_status status = pst_matmul_operands(c, 0, 2, t);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &t[2]);
    if (status != PST_OK)
        return status;
    if (t[2]->rank != 1 || pst_dtype_kind(t[2]->dtype) != PST_KIND_INT)
        return pst_infer_fail(c,
                              "the ends of groups are %s, not one dimension "
                              "of integers",
                              pst_meta_text(t[2], (char[PST_META_TEXT]){0}));
    return PST_OK;
}

static enum pst_status product_infer(struct pst_infer *c)
{
    const struct pst_meta *t[3];
    enum pst_status status = check_operands(c, t);
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if (t[0]->rank != 2 || t[1]->rank != 3 || t[0]->size[1] != t[1]->size[1] ||
        t[1]->size[0] != t[2]->size[0])
        return pst_infer_fail(c,
                              "%s and %s are not rows and matrices of %lld "
                              "groups",
                              pst_meta_text(t[0], a), pst_meta_text(t[1], b),
                              (long long)t[2]->size[0]);
    return pst_infer_set(c, 0, t[0]->dtype, 2,
                         (int64_t[]){t[0]->size[0], t[1]->size[2]});
}

static enum pst_status outer_infer(struct pst_infer *c)
{
    const struct pst_meta *t[3];
    enum pst_status status = check_operands(c, t);
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if (t[0]->rank != 2 || t[1]->rank != 2 || t[0]->size[1] != t[1]->size[0])
        return pst_infer_fail(c, "%s and %s are not matrices that fit",
                              pst_meta_text(t[0], a), pst_meta_text(t[1], b));
    return pst_infer_set(
        c, 0, t[0]->dtype, 3,
        (int64_t[]){t[2]->size[0], t[0]->size[0], t[1]->size[1]});
}

static struct pst_value *emit_grouped(struct pst_vjp *v,
                                      const struct pst_op *op,
                                      struct pst_value *a, struct pst_value *b)
{
    if (a == NULL || b == NULL)
        return NULL;
    return pst_vjp_emit(v, op,
                        PST_ARGS(pst_v(a), pst_v(b), pst_v(pst_vjp_in(v, 2))));
}

static struct pst_value *emit_product(struct pst_vjp *v, struct pst_value *x,
                                      struct pst_value *weight)
{
    return emit_grouped(v, &pst_op_grouped_product, x, weight);
}

static struct pst_value *emit_outer(struct pst_vjp *v, struct pst_value *a,
                                    struct pst_value *b)
{
    return emit_grouped(v, &pst_op_grouped_outer, a, b);
}

/* dx = g w^T; dw = x^T g, computed in the memory order of w, so that a
 * parameter that is read transposed gets its gradient without a copy. */
static enum pst_status product_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *x = pst_vjp_in(v, 0);
    struct pst_value *w = pst_vjp_in(v, 1), *d;

    if (g == NULL)
        return v->build.status;
    if (pst_vjp_needs(v, 0))
        pst_vjp_set(v, 0, emit_product(v, g, pst_matmul_t(v, w)));
    if (!pst_vjp_needs(v, 1))
        return v->build.status;
    if (w->meta.stride[1] < w->meta.stride[2])
        d = pst_matmul_t(v, emit_outer(v, pst_matmul_t(v, g), x));
    else
        d = emit_outer(v, pst_matmul_t(v, x), g);
    return pst_vjp_set(v, 1, d);
}

/* da = (b g^T)^T, db = a^T g. */
static enum pst_status outer_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *a = pst_vjp_in(v, 0);
    struct pst_value *b = pst_vjp_in(v, 1), *d;

    if (g == NULL)
        return v->build.status;
    if (pst_vjp_needs(v, 0)) {
        d = emit_product(v, b, pst_matmul_t(v, g));
        pst_vjp_set(v, 0, pst_matmul_t(v, d));
    }
    if (pst_vjp_needs(v, 1))
        pst_vjp_set(v, 1, emit_product(v, pst_matmul_t(v, a), g));
    return v->build.status;
}

/* Describes one matmul of all R rows with the matrix of the first group. */
static void describe(const struct pst_call *c, struct pst_product *p)
{
    const struct pst_meta *a = c->in[0].meta, *b = c->in[1].meta;

    *p = (struct pst_product){
        .dtype = a->dtype,
        .operand_dtype = a->dtype,
        .m = a->size[0],
        .k = a->size[1],
        .n = b->size[b->rank - 1],
        .a = {c->in[0].data, .row = a->stride[0], .col = a->stride[1]},
        .b = {c->in[1].data, .row = b->stride[b->rank - 2],
              .col = b->stride[b->rank - 1]},
        .alpha = 1.0,
        .out = c->out[0].data,
        .accumulate = c->accumulate};
}

static bool fits_blas(const struct pst_call *c)
{
    struct pst_product p;

    describe(c, &p);
    return pst_product_fits_blas(&p);
}

static const char *address_at(const struct pst_operand *x, int64_t offset)
{
    return (const char *)x->data +
           offset * (int64_t)pst_dtype_size(x->meta->dtype);
}

typedef void (*multiply_fn)(const struct pst_product *p, struct pst_pool *pool);

static void multiply_ref(const struct pst_product *p, struct pst_pool *pool)
{
    (void)pool;
    pst_product_ref(p);
}

/* Reads the end of group g. If it is outside of [begin, rows], reports a fault
 * and returns false. */
static bool group_end(const struct pst_call *c, int64_t g, int64_t begin,
                      int64_t rows, int64_t *ret)
{
    const struct pst_meta *offs = c->in[2].meta;

    *ret = pst_load_i64(offs->dtype, c->in[2].data, g * offs->stride[0]);
    if (*ret >= begin && *ret <= rows)
        return true;
    pst_call_fault(c, PST_FAULT_GROUP_END, {.i = g}, {.i = *ret}, {.i = begin},
                   {.i = rows});
    return false;
}

static void product(const struct pst_call *c, multiply_fn multiply)
{
    const int64_t groups = c->in[2].meta->size[0];
    const int64_t rows = c->in[0].meta->size[0];
    struct pst_product p;
    int64_t begin = 0, end;

    describe(c, &p);
    for (int64_t g = 0; g < groups; g++, begin = end) {
        if (!group_end(c, g, begin, rows, &end))
            return;
        p.m = end - begin;
        p.a.data = address_at(&c->in[0], begin * p.a.row);
        p.b.data = address_at(&c->in[1], g * c->in[1].meta->stride[0]);
        p.out = (void *)address_at(&c->out[0], begin * p.n);
        multiply(&p, c->pool);
    }
    if (begin < rows && !c->accumulate)
        memset((void *)address_at(&c->out[0], begin * p.n), 0,
               (size_t)((rows - begin) * p.n) * pst_dtype_size(p.dtype));
}

static void outer(const struct pst_call *c, multiply_fn multiply)
{
    const int64_t groups = c->in[2].meta->size[0];
    const int64_t rows = c->in[1].meta->size[0];
    struct pst_product p;
    int64_t begin = 0, end;

    describe(c, &p);
    for (int64_t g = 0; g < groups; g++, begin = end) {
        if (!group_end(c, g, begin, rows, &end))
            return;
        p.k = end - begin;
        p.a.data = address_at(&c->in[0], begin * p.a.col);
        p.b.data = address_at(&c->in[1], begin * p.b.row);
        p.out = (void *)address_at(&c->out[0], g * p.m * p.n);
        multiply(&p, c->pool);
    }
}

/* Returns 2 M N operations for each of the R rows. */
static double outer_flops(const struct pst_node *node)
{
    return 2.0 * (double)pst_meta_numel(&node->args[0].value->meta) *
           (double)node->args[1].value->meta.size[1];
}

static double product_flops(const struct pst_node *node)
{
    return pst_matmul_flops(node, 0);
}

#define GROUPED(id)                                                            \
    static void id##_blas(const struct pst_call *c)                            \
    {                                                                          \
        id(c, pst_product_best);                                               \
    }                                                                          \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        id(c, multiply_ref);                                                   \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {.name = "grouped_" #id "_blas",                                       \
         .dtypes = PST_D(F32) | PST_D(F64),                                    \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .supports = fits_blas,                                                \
         .run = id##_blas,                                                     \
         .tolerance = 1e-5},                                                   \
        {.name = "grouped_" #id "_blas_copy",                                  \
         .dtypes = PST_D(F32) | PST_D(F64),                                    \
         .flags = PST_K_ACCUMULATE,                                            \
         .run = id##_blas,                                                     \
         .tolerance = 1e-5},                                                   \
        {.name = "grouped_" #id "_ref",                                        \
         .dtypes = PST_D_ANY,                                                  \
         .flags = PST_K_ACCUMULATE | PST_K_STRIDED,                            \
         .run = id##_ref},                                                     \
    };                                                                         \
                                                                               \
    const struct pst_op pst_op_grouped_##id = {                                \
        .schema = "penstock::grouped_" #id                                     \
                  "(Tensor self, Tensor other, Tensor offs) -> Tensor",        \
        .infer = id##_infer,                                                   \
        .vjp = id##_vjp,                                                       \
        .flops = id##_flops,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(grouped_##id, id##_kernels)

GROUPED(product);
GROUPED(outer);
