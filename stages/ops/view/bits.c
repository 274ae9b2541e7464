// SPDX-License-Identifier: Apache-2.0
/* The bits of a tensor as elements of another dtype. */
#include "stages/ops/view/view.h"

#include <string.h>

/* The last dimension grows or shrinks where the sizes differ. */
static enum pst_status infer_view_dtype(struct pst_infer *c)
{
    const enum pst_dtype to = (enum pst_dtype)c->args[1].i;
    const struct pst_meta *x;
    struct pst_meta view;
    int64_t from, into;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    view = *x;
    view.dtype = to;
    from = (int64_t)pst_dtype_size(x->dtype);
    into = (int64_t)pst_dtype_size(to);
    if (from == into)
        return pst_infer_view(c, 0, 0, &view, 0);
    if (x->rank == 0 || !pst_meta_is_contiguous(x) ||
        x->size[x->rank - 1] * from % into != 0)
        return pst_infer_fail(c, "the last dimension cannot be cut into %s",
                              pst_dtype_name(to));
    view.size[x->rank - 1] = x->size[x->rank - 1] * from / into;
    return pst_infer_set_like(c, 0, to, &view);
}

static void view_dtype_ref(const struct pst_call *c)
{
    memcpy(c->out[0].data, c->in[0].data, pst_meta_bytes(c->out[0].meta));
}

static const struct pst_kernel view_dtype_kernels[] = {
    {"view_dtype_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, view_dtype_ref,
     0.0},
};

/* A copy where the sizes of elements differ: no storage has two of them. */
const struct pst_op pst_op_view_dtype = {
    .schema = "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
    .flags = PST_OP_MAYBE_VIEW,
    .infer = infer_view_dtype,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(view_dtype, view_dtype_kernels);
