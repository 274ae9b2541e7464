// SPDX-License-Identifier: Apache-2.0
/* masked_scatter: elements of a source, one after the other, to where a mask
 * is true; and the way back. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/index/index.h"

#include <string.h>

/* in[0] broadcast to result 0, element by element, in row-major order. */
static int64_t broadcast_offset(const struct pst_meta *out, int64_t i,
                                const struct pst_meta *in)
{
    int64_t offset = 0;

    for (unsigned d = out->rank; d-- > 0;) {
        const unsigned missing = out->rank - in->rank;
        const int64_t k = i % out->size[d];

        i /= out->size[d];
        if (d >= missing && in->size[d - missing] != 1)
            offset += k * in->stride[d - missing];
    }
    return offset;
}

static void copy(const struct pst_operand *to, int64_t at,
                 const struct pst_operand *from, int64_t of)
{
    const size_t size = pst_dtype_size(to->meta.dtype);

    memcpy((char *)to->data + (size_t)at * size,
           (const char *)from->data + (size_t)of * size, size);
}

static void masked_scatter_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *mask = &c->in[1];
    const struct pst_operand *source = &c->in[2], *out = &c->out[0];
    const int64_t n = pst_meta_numel(&source->meta);
    int64_t used = 0;

    for (int64_t i = 0; i < pst_meta_numel(&out->meta); i++) {
        const bool take =
            ((const bool *)
                 mask->data)[broadcast_offset(&out->meta, i, &mask->meta)];

        if (take && used < n)
            copy(out, i, source, used);
        else
            copy(out, i, x, broadcast_offset(&out->meta, i, &x->meta));
        used += take;
    }
    if (used > n)
        pst_call_fault(c, "the mask has %lld true elements, the source %lld",
                       (long long)used, (long long)n);
}

/* Zeros behind what the mask takes. */
static void masked_gather_ref(const struct pst_call *c)
{
    const struct pst_operand *g = &c->in[0], *mask = &c->in[1];
    const struct pst_operand *out = &c->out[0];
    const int64_t n = pst_meta_numel(&out->meta);
    int64_t used = 0;

    memset(out->data, 0, pst_meta_bytes(&out->meta));
    for (int64_t i = 0; i < pst_meta_numel(&g->meta) && used < n; i++)
        if (((const bool *)
                 mask->data)[broadcast_offset(&g->meta, i, &mask->meta)])
            copy(out, used++, g, i);
}

static enum pst_status infer_masked_scatter(struct pst_infer *c)
{
    const struct pst_meta *x, *mask;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &mask);
    if (status == PST_OK)
        status = pst_infer_same_dtype(c, 0, 2);
    if (status == PST_OK && mask->dtype != PST_BOOL)
        return pst_infer_fail(c, "the mask is %s, not bool",
                              pst_dtype_name(mask->dtype));
    return status != PST_OK ? status
                            : pst_infer_broadcast(c, 0, 0, 2, x->dtype);
}

static enum pst_status infer_masked_gather(struct pst_infer *c)
{
    const struct pst_meta *like;
    enum pst_status status = pst_infer_tensor(c, 2, &like);

    return status != PST_OK ? status
                            : pst_infer_set_like(c, 0, like->dtype, like);
}

static const struct pst_kernel masked_scatter_kernels[] = {
    {"masked_scatter_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL,
     masked_scatter_ref, 0.0},
};
static const struct pst_kernel masked_gather_kernels[] = {
    {"masked_gather_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL,
     masked_gather_ref, 0.0},
};

const struct pst_op pst_op_masked_scatter = {
    .schema = "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) "
              "-> Tensor",
    .infer = infer_masked_scatter,
    .vjp = pst_vjp_formula,
    .formula = "self: mask ? 0 : grad;"
               "source: masked_gather(grad, mask, source)",
    PST_KERNELS(masked_scatter_kernels),
};

const struct pst_op pst_op_masked_gather = {
    .schema = "penstock::masked_gather(Tensor grad, Tensor mask, Tensor like) "
              "-> Tensor",
    .infer = infer_masked_gather,
    .vjp = pst_vjp_none,
    PST_KERNELS(masked_gather_kernels),
};
