// SPDX-License-Identifier: Apache-2.0
/* view(dtype): reinterprets the storage, even if the elements of the two dtypes
 * have different sizes. */
#include "stages/base/checked.h"
#include "stages/ops/view/view.h"

/* Splits or joins elements of the last dimension; strides of the other
 * dimensions are converted to the new element size. */
static enum pst_status resize_elements(struct pst_infer *c,
                                       const struct pst_meta *x,
                                       enum pst_dtype to)
{
    const int64_t from = (int64_t)pst_dtype_size(x->dtype);
    const int64_t into = (int64_t)pst_dtype_size(to);
    struct pst_meta view = *x;
    int64_t bytes;

    if (x->rank == 0 || x->stride[x->rank - 1] != 1 ||
        x->size[x->rank - 1] * from % into != 0)
        return pst_infer_fail(c, "the last dimension cannot be cut into %s",
                              pst_dtype_name(to));
    for (unsigned d = 0; d + 1 < x->rank; d++) {
        if (PST_MUL(x->stride[d], from, &bytes) || bytes % into != 0)
            return pst_infer_fail(c,
                                  "stride %lld of dimension %u is not "
                                  "a multiple of an %s",
                                  (long long)x->stride[d], d,
                                  pst_dtype_name(to));
        view.stride[d] = bytes / into;
    }
    view.size[x->rank - 1] = x->size[x->rank - 1] * from / into;
    view.dtype = to;
    return pst_infer_view(c, 0, 0, &view, 0);
}

static enum pst_status infer_view_dtype(struct pst_infer *c)
{
    const enum pst_dtype to = (enum pst_dtype)c->args[1].i;
    const struct pst_meta *x;
    struct pst_meta view;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pst_dtype_size(x->dtype) != pst_dtype_size(to))
        return resize_elements(c, x, to);
    view = *x;
    view.dtype = to;
    return pst_infer_view(c, 0, 0, &view, 0);
}

const struct pst_op pst_op_view_dtype = {
    .schema = "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
    .flags = PST_OP_VIEW,
    .infer = infer_view_dtype,
    .vjp = pst_vjp_none,
};
