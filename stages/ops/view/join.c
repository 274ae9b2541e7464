// SPDX-License-Identifier: Apache-2.0
/* cat, stack and repeat. */
#include "stages/base/checked.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/view/view.h"

#include <string.h>

#define FLAGS (PST_K_STRIDED | PST_K_ACCUMULATE)

/* Defines kernels ID and ID_ref, which call ID_into(call, reference). */
#define KERNELS(id)                                                            \
    static void id##_run(const struct pst_call *c)                             \
    {                                                                          \
        id##_into(c, false);                                                   \
    }                                                                          \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        id##_into(c, true);                                                    \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#id, PST_ISA_ANY, PST_D_ANY, FLAGS | PST_VIEW_IS_COPIES, NULL, NULL,  \
         id##_run, 0.0},                                                       \
        {#id "_ref", PST_ISA_ANY, PST_D_ANY, FLAGS, NULL, NULL, id##_ref,      \
         0.0},                                                                 \
    }

static void copy_to(const struct pst_call *c, bool reference,
                    const struct pst_operand *src, const struct pst_meta *to,
                    int64_t offset)
{
    char *dst =
        (char *)c->out[0].data + offset * (int64_t)pst_dtype_size(to->dtype);

    if (reference)
        pst_view_copy_ref(src->meta, src->data, to, dst, c->accumulate);
    else
        pst_view_copy(c->pool, src->meta, src->data, to, dst, c->accumulate);
}

/* --- cat, stack ----------------------------------------------------------- */

/* True for an empty vector, which cat accepts together with tensors of any
 * shape. */
static bool is_nothing(const struct pst_meta *x)
{
    return x->rank == 1 && x->size[0] == 0;
}

static enum pst_status infer_cat(struct pst_infer *c)
{
    const struct pst_arg *list = &c->args[0];
    const enum pst_dtype dtype = pst_result_type(c->args, 1);
    struct pst_meta to = {.rank = 0};
    bool found = false;
    unsigned dim = 0;

    if (list->n == 0)
        return pst_infer_fail(c, "an empty list");
    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_meta *x = &list->values[k]->meta;
        char text[2][PST_META_TEXT];

        if (is_nothing(x))
            continue;
        if (!found) {
            enum pst_status status = pst_infer_dim(c, 1, x, &dim);

            if (status != PST_OK || x->rank == 0)
                return status != PST_OK
                           ? status
                           : pst_infer_fail(c, "tensors without dimensions");
            to = *x;
            found = true;
            continue;
        }
        for (unsigned d = 0; d < to.rank; d++)
            if (x->rank != to.rank || (d != dim && x->size[d] != to.size[d]))
                return pst_infer_fail(c, "%s does not fit to %s",
                                      pst_meta_text(x, text[0]),
                                      pst_meta_text(&to, text[1]));
        if (PST_ADD(to.size[dim], x->size[dim], &to.size[dim]))
            return pst_infer_fail(c, "the result is too large");
    }
    if (!found)
        to = list->values[0]->meta;
    return pst_infer_set_like(c, 0, dtype, &to);
}

static void cat_into(const struct pst_call *c, bool reference)
{
    const struct pst_meta *out = c->out[0].meta;
    const unsigned dim = (unsigned)pst_meta_dim(out, c->args[1].i);
    int64_t at = 0;

    for (unsigned k = 0; k < c->n_in; k++) {
        const struct pst_meta *x = c->in[k].meta;
        struct pst_meta to = *out;

        if (is_nothing(x))
            continue;
        to.size[dim] = x->size[dim];
        copy_to(c, reference, &c->in[k], &to, at * out->stride[dim]);
        at += x->size[dim];
    }
}

static enum pst_status cat_vjp(struct pst_vjp *v)
{
    const struct pst_arg *list = &v->node->args[0];
    struct pst_value *g = pst_vjp_grad(v, 0);
    const int dim = pst_meta_dim(&g->meta, v->node->args[1].i);
    int64_t at = 0;

    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_meta *x = &list->values[k]->meta;
        struct pst_value *part;

        if (is_nothing(x)) {
            (void)pst_vjp_set(v, k, pst_vjp_zeros_like(v, list->values[k]));
            continue;
        }
        if (v->needs[k]) {
            part = pst_vjp_emit(
                v, &pst_op_narrow,
                PST_ARGS(pst_v(g), pst_i(dim), pst_i(at), pst_i(x->size[dim])));
            (void)pst_vjp_set(
                v, k, part == NULL ? NULL : pst_vjp_cast(v, part, x->dtype));
        }
        at += x->size[dim];
    }
    return v->build.status;
}

static enum pst_status infer_stack(struct pst_infer *c)
{
    const struct pst_arg *list = &c->args[0];
    struct pst_meta to;
    unsigned dim;
    enum pst_status status;

    if (list->n == 0)
        return pst_infer_fail(c, "an empty list");
    to = list->values[0]->meta;
    for (unsigned k = 1; k < list->n; k++) {
        char text[2][PST_META_TEXT];

        if (!pst_meta_same_shape(&list->values[k]->meta, &to))
            return pst_infer_fail(
                c, "%s does not fit to %s",
                pst_meta_text(&list->values[k]->meta, text[0]),
                pst_meta_text(&to, text[1]));
    }
    if (to.rank == PST_MAX_RANK)
        return pst_infer_fail(c, "more than %d dimensions", PST_MAX_RANK);
    to.rank++;
    to.size[to.rank - 1] = 1;
    status = pst_infer_dim(c, 1, &to, &dim);
    if (status != PST_OK)
        return status;
    for (unsigned d = to.rank - 1; d > dim; d--)
        to.size[d] = to.size[d - 1];
    to.size[dim] = list->n;
    return pst_infer_set_like(c, 0, pst_result_type(c->args, 1), &to);
}

static void stack_into(const struct pst_call *c, bool reference)
{
    const struct pst_meta *out = c->out[0].meta;
    const unsigned dim = (unsigned)pst_meta_dim(out, c->args[1].i);
    const struct pst_meta to = pst_view_drop(out, dim);

    for (unsigned k = 0; k < c->n_in; k++)
        copy_to(c, reference, &c->in[k], &to, k * out->stride[dim]);
}

static enum pst_status stack_vjp(struct pst_vjp *v)
{
    const struct pst_arg *list = &v->node->args[0];

    for (unsigned k = 0; k < list->n; k++) {
        struct pst_value *part;

        if (!v->needs[k])
            continue;
        part = pst_vjp_emit(
            v, &pst_op_select_int,
            PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[1], pst_i(k)));
        (void)pst_vjp_set(v, k,
                          pst_vjp_cast(v, part, list->values[k]->meta.dtype));
    }
    return v->build.status;
}

KERNELS(cat);
KERNELS(stack);

const struct pst_op pst_op_cat = {
    .schema = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
    .infer = infer_cat,
    .vjp = cat_vjp,
};
PST_CPU_KERNELS(cat, cat_kernels);

const struct pst_op pst_op_stack = {
    .schema = "aten::stack(Tensor[] tensors, int dim=0) -> Tensor",
    .infer = infer_stack,
    .vjp = stack_vjp,
};
PST_CPU_KERNELS(stack, stack_kernels);

/* --- repeat --------------------------------------------------------------- */

static enum pst_status infer_repeat(struct pst_infer *c)
{
    const struct pst_arg *times = &c->args[1];
    const struct pst_meta *x;
    int64_t sizes[PST_MAX_RANK];
    unsigned added;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (times->n < x->rank || times->n > PST_MAX_RANK)
        return pst_infer_fail(c, "%u repeats for %u dimensions", times->n,
                              x->rank);
    added = times->n - x->rank;
    for (unsigned d = 0; d < times->n; d++)
        if (times->ints[d] < 0 ||
            PST_MUL(times->ints[d], d < added ? 1 : x->size[d - added],
                    &sizes[d]))
            return pst_infer_fail(c, "%lld repeats", (long long)times->ints[d]);
    return pst_infer_set(c, 0, x->dtype, times->n, sizes);
}

/* Copies in[0] once to every position of the grid of repetitions. */
static void repeat_into(const struct pst_call *c, bool reference)
{
    const struct pst_meta *out = c->out[0].meta, *x = c->in[0].meta;
    const unsigned added = out->rank - x->rank;
    const int64_t *times = c->args[1].ints;
    struct pst_meta to = *x;
    int64_t n = 1;

    if (pst_meta_numel(out) == 0)
        return;
    for (unsigned d = 0; d < x->rank; d++)
        to.stride[d] = out->stride[d + added];
    for (unsigned d = 0; d < out->rank; d++)
        n *= times[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, offset = 0;

        for (unsigned d = out->rank; d-- > 0;) {
            const int64_t step = d < added ? 1 : x->size[d - added];

            offset += rest % times[d] * step * out->stride[d];
            rest /= times[d];
        }
        copy_to(c, reference, &c->in[0], &to, offset);
    }
}

/* Sums the gradient over the repetitions, one dimension at a time: (..., times,
 * size, ...) over times. */
static enum pst_status repeat_vjp(struct pst_vjp *v)
{
    const struct pst_arg *times = &v->node->args[1];
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const unsigned added = times->n - x->rank;
    struct pst_value *g = pst_vjp_grad(v, 0);
    const int64_t middle = 1;

    if (pst_meta_numel(&g->meta) == 0)
        return pst_vjp_set(v, 0, pst_vjp_zeros_like(v, pst_vjp_in(v, 0)));
    for (unsigned d = 0; d < times->n && g != NULL; d++) {
        int64_t size[4] = {1, times->ints[d], 1, 1};
        struct pst_meta meta = g->meta;

        if (times->ints[d] == 1)
            continue;
        for (unsigned k = 0; k < d; k++)
            size[0] *= meta.size[k];
        for (unsigned k = d + 1; k < meta.rank; k++)
            size[3] *= meta.size[k];
        size[2] = d < added ? 1 : x->size[d - added];
        meta.size[d] = size[2];
        g = pst_vjp_reshape(v, g, 4, size);
        g = pst_vjp_sum_dims(v, g, &middle, 1, false);
        g = pst_vjp_reshape(v, g, meta.rank, meta.size);
    }
    return pst_vjp_set(v, 0, g == NULL ? NULL : pst_vjp_reshape_as(v, g, x));
}

KERNELS(repeat);

const struct pst_op pst_op_repeat = {
    .schema = "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor",
    .infer = infer_repeat,
    .vjp = repeat_vjp,
};
PST_CPU_KERNELS(repeat, repeat_kernels);
