// SPDX-License-Identifier: Apache-2.0
/* triu and tril. */
#include "stages/ops/view/view.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"

#include <string.h>

/* Copies element (r, c) where side * (c - r - diagonal) >= 0 and sets all
 * others to 0, even if they are infinite. */
static void copy_triangle(const struct pst_call *c, int side)
{
    const struct pst_meta *x = c->in[0].meta;
    const int64_t rows = x->size[x->rank - 2], columns = x->size[x->rank - 1];
    const int64_t n = pst_meta_numel(x), diagonal = c->args[1].i;
    const size_t size = pst_dtype_size(x->dtype);
    char *out = c->out[0].data;

    memset(out, 0, pst_meta_bytes(x));
    for (int64_t i = 0; i < n; i++) {
        const int64_t column = i % columns, row = i / columns % rows;
        const int64_t over = column - row;

        if (side > 0 ? over >= diagonal : over <= diagonal)
            memcpy(out + i * (int64_t)size,
                   (const char *)c->in[0].data +
                       pst_meta_offset(x, i) * (int64_t)size,
                   size);
    }
}

/* Copies by rows of matrices: the part of a row that is kept is contiguous. */
struct rows {
    const struct pst_call *c;
    int side;
};

static void rows_part(void *ctx, unsigned part, unsigned parts)
{
    const struct rows *r = ctx;
    const struct pst_meta *x = r->c->in[0].meta;
    const int64_t rows = x->size[x->rank - 2], columns = x->size[x->rank - 1];
    const int64_t diagonal = r->c->args[1].i;
    const size_t size = pst_dtype_size(x->dtype);
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(x) / columns, 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const size_t at = (size_t)(i * columns) * size;
        const char *src = (const char *)r->c->in[0].data + at;
        char *dst = (char *)r->c->out[0].data + at;
        const int64_t row = i % rows;
        /* first column that is kept (triu), or last one that is kept (tril) */
        int64_t edge = row + diagonal;
        size_t left;

        edge = PST_MIN(PST_MAX(edge + (r->side < 0), 0), columns);
        left = (size_t)edge * size;
        if (r->side < 0)
            memcpy(dst, src, left);
        else
            memset(dst, 0, left);
        if (r->side < 0)
            memset(dst + left, 0, (size_t)(columns - edge) * size);
        else
            memcpy(dst + left, src + left, (size_t)(columns - edge) * size);
    }
}

static void rows_run(const struct pst_call *c, int side)
{
    struct rows r = {c, side};

    if (pst_meta_numel(c->in[0].meta) == 0)
        return;
    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->in[0].meta) >= PST_ND_SERIAL),
        rows_part, &r);
}

/* False for diagonals far outside of any matrix; the reference handles them. */
static bool rows_support(const struct pst_call *c)
{
    return c->args[1].i > -(1ll << 40) && c->args[1].i < 1ll << 40;
}

static void triu_rows(const struct pst_call *c)
{
    rows_run(c, 1);
}

static void tril_rows(const struct pst_call *c)
{
    rows_run(c, -1);
}

static void triu_ref(const struct pst_call *c)
{
    copy_triangle(c, 1);
}

static void tril_ref(const struct pst_call *c)
{
    copy_triangle(c, -1);
}

static enum pst_status infer_triangle(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (x->rank < 2)
        return pst_infer_fail(c, "needs at least 2 dimensions");
    return pst_infer_set_like(c, 0, x->dtype, x);
}

static enum pst_status triu_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_triu,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[1])));
}

static enum pst_status tril_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_tril,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[1])));
}

static const struct pst_kernel triu_kernels[] = {
    {"triu_rows", PST_ISA_ANY, PST_D_ANY, 0, rows_support, NULL, triu_rows,
     0.0},
    {"triu_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL, triu_ref,
     0.0},
};
static const struct pst_kernel tril_kernels[] = {
    {"tril_rows", PST_ISA_ANY, PST_D_ANY, 0, rows_support, NULL, tril_rows,
     0.0},
    {"tril_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL, tril_ref,
     0.0},
};

const struct pst_op pst_op_triu = {
    .schema = "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor",
    .infer = infer_triangle,
    .vjp = triu_vjp,
};
PST_CPU_KERNELS(triu, triu_kernels);

const struct pst_op pst_op_tril = {
    .schema = "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor",
    .infer = infer_triangle,
    .vjp = tril_vjp,
};
PST_CPU_KERNELS(tril, tril_kernels);
