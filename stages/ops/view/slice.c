// SPDX-License-Identifier: Apache-2.0
/* Windows of a tensor: select, slice, narrow. Their gradients write a window
 * into zeros. */
#include "stages/base/checked.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/view/view.h"

#include <string.h>

/* --- select, slice, narrow ------------------------------------------------ */

int64_t pst_view_step(int64_t n, int64_t stride)
{
    int64_t ret;

    return PST_MUL(n, stride, &ret) ? 0 : ret;
}

struct pst_slice pst_view_slice(int64_t size, const struct pst_arg *start,
                                const struct pst_arg *end, int64_t step)
{
    int64_t from = start->kind == PST_ARG_INT ? start->i : 0;
    int64_t to = end->kind == PST_ARG_INT ? end->i : size;

    if (from < 0)
        from = from < -size ? 0 : from + size;
    if (to < 0)
        to = to < -size ? 0 : to + size;
    from = PST_MIN(from, size);
    to = PST_MIN(to, size);
    to = PST_MAX(to, from);
    return (struct pst_slice){
        from, (to - from) / step + ((to - from) % step != 0), step};
}

/* Reads argument arg as an index into dimension dim of x. */
static enum pst_status read_index(struct pst_infer *c, unsigned arg,
                                  const struct pst_meta *x, unsigned dim,
                                  int64_t *ret)
{
    const int64_t index = c->args[arg].i, size = x->size[dim];

    if (x->rank == 0)
        return pst_infer_fail(c, "a tensor without dimensions");
    if (index < -size || index >= size)
        return pst_infer_fail(c,
                              "index %lld is outside of dimension %u of "
                              "size %lld",
                              (long long)index, dim, (long long)size);
    *ret = index < 0 ? index + size : index;
    return PST_OK;
}

static enum pst_status infer_select(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta view;
    unsigned dim;
    int64_t index = 0;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status == PST_OK)
        status = read_index(c, 2, x, dim, &index);
    if (status != PST_OK)
        return status;
    view = pst_view_drop(x, dim);
    return pst_infer_view(c, 0, 0, &view, index * x->stride[dim]);
}

/* Sets result 0 to the window of slice s in dimension dim. */
static enum pst_status set_window(struct pst_infer *c, const struct pst_meta *x,
                                  unsigned dim, struct pst_slice s)
{
    struct pst_meta view = *x;

    view.size[dim] = s.length;
    view.stride[dim] *= s.step;
    return pst_infer_view(c, 0, 0, &view,
                          pst_view_step(s.start, x->stride[dim]));
}

static enum pst_status infer_slice(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status != PST_OK)
        return status;
    if (x->rank == 0 || c->args[4].i < 1)
        return pst_infer_fail(c, "needs a dimension and a positive step");
    return set_window(
        c, x, dim,
        pst_view_slice(x->size[dim], &c->args[2], &c->args[3], c->args[4].i));
}

static enum pst_status read_narrow(struct pst_infer *c,
                                   const struct pst_meta *x, unsigned dim,
                                   struct pst_slice *ret)
{
    const int64_t size = x->rank > 0 ? x->size[dim] : 0;
    const int64_t length = c->args[3].i;
    int64_t start = c->args[2].i;

    if (start < 0)
        start += size;
    if (x->rank == 0 || start < 0 || start > size || length < 0 ||
        length > size - start)
        return pst_infer_fail(c,
                              "%lld elements from %lld on are not in "
                              "dimension %u of size %lld",
                              (long long)length, (long long)c->args[2].i, dim,
                              (long long)size);
    *ret = (struct pst_slice){start, length, 1};
    return PST_OK;
}

static enum pst_status infer_narrow(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_slice s = {0, 0, 1};
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status == PST_OK)
        status = read_narrow(c, x, dim, &s);
    return status != PST_OK ? status : set_window(c, x, dim, s);
}

static enum pst_status select_vjp(struct pst_vjp *v)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    struct pst_value *g = pst_vjp_emit(
        v, &pst_op_select_backward,
        PST_ARGS(pst_v(pst_vjp_grad(v, 0)), pst_ints(x->size, x->rank),
                 v->node->args[1], v->node->args[2]));

    return pst_vjp_set(v, 0, g);
}

static enum pst_status sliced_vjp(struct pst_vjp *v, int64_t start, int64_t end,
                                  int64_t step)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (!pst_meta_same_shape(&g->meta, x))
        g = pst_vjp_emit(v, &pst_op_slice_backward,
                         PST_ARGS(pst_v(g), pst_ints(x->size, x->rank),
                                  v->node->args[1], pst_i(start), pst_i(end),
                                  pst_i(step)));
    return pst_vjp_set(v, 0, g);
}

static enum pst_status slice_vjp(struct pst_vjp *v)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *args = v->node->args;
    const int64_t size = x->size[pst_meta_dim(x, args[1].i)];
    const struct pst_slice s =
        pst_view_slice(size, &args[2], &args[3], args[4].i);

    return sliced_vjp(v, s.start, PST_MIN(size, s.start + s.length * s.step),
                      s.step);
}

static enum pst_status narrow_vjp(struct pst_vjp *v)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *args = v->node->args;
    int64_t start = args[2].i;

    if (start < 0)
        start += x->size[pst_meta_dim(x, args[1].i)];
    return sliced_vjp(v, start, start + args[3].i, 1);
}

PST_VIEW_ROW(select_int, "select.int(Tensor(a) self, int dim, SymInt index)",
             infer_select, select_vjp);
PST_VIEW_ROW(slice_Tensor,
             "slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, "
             "SymInt? end=None, SymInt step=1)",
             infer_slice, slice_vjp);
PST_VIEW_ROW(narrow,
             "narrow(Tensor(a) self, int dim, SymInt start, SymInt length)",
             infer_narrow, narrow_vjp);

/* --- gradients ------------------------------------------------------------ */

/* Sets result 0 to the sizes in argument 1, with the dtype of the gradient. */
static enum pst_status infer_into_zeros(struct pst_infer *c)
{
    const struct pst_meta *g;
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    return status != PST_OK
               ? status
               : pst_infer_set(c, 0, g->dtype, c->args[1].n, c->args[1].ints);
}

static enum pst_status check_window(struct pst_infer *c,
                                    const struct pst_meta *want)
{
    const struct pst_meta *g = pst_infer_in(c, 0);
    char text[2][PST_META_TEXT];

    if (!pst_meta_same_shape(g, want))
        return pst_infer_fail(c, "gradient %s, window %s",
                              pst_meta_text(g, text[0]),
                              pst_meta_text(want, text[1]));
    return PST_OK;
}

static enum pst_status infer_select_backward(struct pst_infer *c)
{
    enum pst_status status = infer_into_zeros(c);
    struct pst_meta want;
    unsigned dim;
    int64_t index;

    if (status == PST_OK)
        status = pst_infer_dim(c, 2, &c->out[0], &dim);
    if (status == PST_OK)
        status = read_index(c, 3, &c->out[0], dim, &index);
    if (status != PST_OK)
        return status;
    want = pst_view_drop(&c->out[0], dim);
    return check_window(c, &want);
}

static enum pst_status infer_slice_backward(struct pst_infer *c)
{
    enum pst_status status = infer_into_zeros(c);
    struct pst_meta want;
    unsigned dim;

    if (status == PST_OK)
        status = pst_infer_dim(c, 2, &c->out[0], &dim);
    if (status != PST_OK)
        return status;
    if (c->out[0].rank == 0 || c->args[5].i < 1)
        return pst_infer_fail(c, "needs a dimension and a positive step");
    want = c->out[0];
    want.size[dim] =
        pst_view_slice(want.size[dim], &c->args[3], &c->args[4], c->args[5].i)
            .length;
    return check_window(c, &want);
}

static void select_backward(const struct pst_call *c, bool reference)
{
    const struct pst_meta *out = c->out[0].meta;
    const unsigned dim = (unsigned)pst_meta_dim(out, c->args[2].i);
    const int64_t at = c->args[3].i;
    const struct pst_meta to = pst_view_drop(out, dim);

    pst_view_fill_window(c, reference, &c->in[0], &to,
                         (at < 0 ? at + out->size[dim] : at) *
                             out->stride[dim]);
}

static void slice_backward(const struct pst_call *c, bool reference)
{
    const struct pst_meta *out = c->out[0].meta;
    const unsigned dim = (unsigned)pst_meta_dim(out, c->args[2].i);
    const struct pst_slice s =
        pst_view_slice(out->size[dim], &c->args[3], &c->args[4], c->args[5].i);
    struct pst_meta to = *out;

    to.size[dim] = s.length;
    to.stride[dim] *= s.step;
    pst_view_fill_window(c, reference, &c->in[0], &to,
                         s.length > 0 ? s.start * out->stride[dim] : 0);
}

static void select_backward_run(const struct pst_call *c)
{
    select_backward(c, false);
}

static void select_backward_ref(const struct pst_call *c)
{
    select_backward(c, true);
}

static void slice_backward_run(const struct pst_call *c)
{
    slice_backward(c, false);
}

static void slice_backward_ref(const struct pst_call *c)
{
    slice_backward(c, true);
}

#define FLAGS (PST_K_STRIDED | PST_K_ACCUMULATE)

static const struct pst_kernel select_backward_kernels[] = {
    {"select_backward", PST_ISA_ANY, PST_D_ANY, FLAGS | PST_VIEW_IS_COPIES,
     NULL, NULL, select_backward_run, 0.0},
    {"select_backward_ref", PST_ISA_ANY, PST_D_ANY, FLAGS, NULL, NULL,
     select_backward_ref, 0.0},
};
static const struct pst_kernel slice_backward_kernels[] = {
    {"slice_backward", PST_ISA_ANY, PST_D_ANY, FLAGS | PST_VIEW_IS_COPIES, NULL,
     NULL, slice_backward_run, 0.0},
    {"slice_backward_ref", PST_ISA_ANY, PST_D_ANY, FLAGS, NULL, NULL,
     slice_backward_ref, 0.0},
};

static enum pst_status select_backward_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_select_int,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[2],
                              v->node->args[3])));
}

static enum pst_status slice_backward_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_slice_Tensor,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[2],
                              v->node->args[3], v->node->args[4],
                              v->node->args[5])));
}

const struct pst_op pst_op_select_backward = {
    .schema = "aten::select_backward(Tensor grad_output, SymInt[] input_sizes, "
              "int dim, SymInt index) -> Tensor",
    .infer = infer_select_backward,
    .vjp = select_backward_vjp,
};
PST_CPU_KERNELS(select_backward, select_backward_kernels);

const struct pst_op pst_op_slice_backward = {
    .schema = "aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, "
              "int dim, SymInt start, SymInt end, SymInt step) -> Tensor",
    .infer = infer_slice_backward,
    .vjp = slice_backward_vjp,
};
PST_CPU_KERNELS(slice_backward, slice_backward_kernels);
