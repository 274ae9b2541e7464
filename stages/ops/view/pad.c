// SPDX-License-Identifier: Apache-2.0
/* Constants around a tensor, and triangles of matrices. */
#include "stages/ops/view/view.h"

#include "stages/ops/pointwise/pointwise.h"

#include <string.h>

/* --- constant_pad_nd, pad ---------------------------------------------------
 */

/* Pairs (before, after) from the last dimension on; negative ones crop. */
static enum pst_status infer_pad(struct pst_infer *c)
{
    const struct pst_arg *pad = &c->args[1];
    const struct pst_meta *x;
    struct pst_meta to;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pad->n % 2 != 0 || pad->n / 2 > x->rank)
        return pst_infer_fail(c, "%u paddings for %u dimensions", pad->n,
                              x->rank);
    to = *x;
    for (unsigned k = 0; k < pad->n / 2; k++) {
        const unsigned d = x->rank - 1 - k;
        int64_t size;

        if (__builtin_add_overflow(x->size[d], pad->ints[2 * k], &size) ||
            __builtin_add_overflow(size, pad->ints[2 * k + 1], &size) ||
            size < 0)
            return pst_infer_fail(c,
                                  "dimension %u of size %lld is padded by "
                                  "%lld and %lld",
                                  d, (long long)x->size[d],
                                  (long long)pad->ints[2 * k],
                                  (long long)pad->ints[2 * k + 1]);
        to.size[d] = size;
    }
    return pst_infer_set_like(c, 0, x->dtype, &to);
}

/* Every element is the value. */
static void fill(const struct pst_operand *out, double value)
{
    const int64_t n = pst_meta_numel(&out->meta);

    for (int64_t i = 0; i < n; i++)
        pst_store_f64(out->meta.dtype, out->data, i, value);
}

/* The common window of both tensors: `from` in in[0], `to` in out[0]. */
static void pad_into(const struct pst_call *c, const struct pst_arg *value,
                     bool reference)
{
    const struct pst_arg *pad = &c->args[1];
    const size_t size = pst_dtype_size(c->out[0].meta.dtype);
    struct pst_meta from = c->in[0].meta, to = c->out[0].meta;
    int64_t src = 0, dst = 0;

    for (unsigned k = 0; k < pad->n / 2; k++) {
        const unsigned d = from.rank - 1 - k;
        const int64_t before = pad->ints[2 * k];
        const int64_t skip = before < 0 ? -before : 0;
        const int64_t lead = before > 0 ? before : 0;
        const int64_t n = PST_MIN(from.size[d] - PST_MIN(skip, from.size[d]),
                                  to.size[d] - PST_MIN(lead, to.size[d]));

        src += skip * from.stride[d];
        dst += lead * to.stride[d];
        from.size[d] = to.size[d] = n;
    }
    fill(&c->out[0], value->kind == PST_ARG_NONE ? 0.0 : pst_pw_number(value));
    if (pst_meta_numel(&to) == 0)
        return;
    if (reference)
        pst_view_copy_ref(
            &from, (const char *)c->in[0].data + src * (int64_t)size, &to,
            (char *)c->out[0].data + dst * (int64_t)size, false);
    else
        pst_view_copy(c->pool, &from,
                      (const char *)c->in[0].data + src * (int64_t)size, &to,
                      (char *)c->out[0].data + dst * (int64_t)size, false);
}

static void constant_pad_nd_run(const struct pst_call *c)
{
    pad_into(c, &c->args[2], false);
}

static void constant_pad_nd_ref(const struct pst_call *c)
{
    pad_into(c, &c->args[2], true);
}

/* Padding by the opposite crops what was added and restores what was cut. */
static enum pst_status pad_vjp(struct pst_vjp *v)
{
    const struct pst_arg *pad = &v->node->args[1];
    int64_t back[2 * PST_MAX_RANK];

    for (unsigned k = 0; k < pad->n; k++)
        back[k] = -pad->ints[k];
    return pst_vjp_set(v, 0,
                       pst_vjp_emit(v, "aten.constant_pad_nd.default",
                                    PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                                             pst_ints(back, pad->n))));
}

static const struct pst_kernel constant_pad_nd_kernels[] = {
    {"constant_pad_nd", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     constant_pad_nd_run, 0.0},
    {"constant_pad_nd_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     constant_pad_nd_ref, 0.0},
};
const struct pst_op pst_op_constant_pad_nd = {
    .schema = "aten::constant_pad_nd(Tensor self, SymInt[] pad, "
              "Scalar value=0) -> Tensor",
    .infer = infer_pad,
    .vjp = pad_vjp,
    PST_KERNELS(constant_pad_nd_kernels),
};

/* --- tril, triu
 * ---------------------------------------------------------------- */

/* Copies element (r, c) where side (c - r - diagonal) >= 0; zeros elsewhere,
 * so that an infinity there leaves nothing behind. */
static void triangle(const struct pst_call *c, int side)
{
    const struct pst_meta *x = &c->in[0].meta;
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

static void triu_ref(const struct pst_call *c)
{
    triangle(c, 1);
}

static void tril_ref(const struct pst_call *c)
{
    triangle(c, -1);
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
        pst_vjp_emit(v, "aten.triu.default",
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[1])));
}

static enum pst_status tril_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, "aten.tril.default",
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[1])));
}

static const struct pst_kernel triu_kernels[] = {
    {"triu_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL, triu_ref,
     0.0},
};
static const struct pst_kernel tril_kernels[] = {
    {"tril_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL, tril_ref,
     0.0},
};

const struct pst_op pst_op_triu = {
    .schema = "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor",
    .infer = infer_triangle,
    .vjp = triu_vjp,
    PST_KERNELS(triu_kernels),
};

const struct pst_op pst_op_tril = {
    .schema = "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor",
    .infer = infer_triangle,
    .vjp = tril_vjp,
    PST_KERNELS(tril_kernels),
};
