// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/pairs.h"

#include <string.h>

/* --- inference ------------------------------------------------------------ */

enum pst_status pst_pairs_infer(struct pst_infer *c, const struct pst_pairs *f)
{
    const enum pst_dtype dtype = pst_result_type(c->args, 2);
    const int64_t reduction = c->args[f->reduction].i;
    enum pst_status status = pst_infer_broadcast(c, 0, 0, f->n, dtype);
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (status != PST_OK)
        return status;
    if (pst_dtype_kind(dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "not defined for %s", pst_dtype_name(dtype));
    if (reduction < PST_REDUCE_NONE || reduction > PST_REDUCE_SUM)
        return pst_infer_fail(c, "reduction %d is none of 0, 1, 2",
                              (int)reduction);
    if (f->equal &&
        !pst_meta_same_shape(pst_infer_in(c, 0), pst_infer_in(c, 1)))
        return pst_infer_fail(c, "target %s does not fit input %s",
                              pst_meta_text(pst_infer_in(c, 1), b),
                              pst_meta_text(pst_infer_in(c, 0), a));
    return reduction == PST_REDUCE_NONE ? PST_OK
                                        : pst_infer_set(c, 0, dtype, 0, NULL);
}

enum pst_status pst_pairs_backward_infer(struct pst_infer *c,
                                         const struct pst_pairs *f)
{
    const struct pst_meta *g;
    enum pst_status status = pst_infer_tensor(c, 0, &g);

    return status != PST_OK ? status
                            : pst_infer_broadcast(c, 0, 1, f->n, g->dtype);
}

/* --- numbers -------------------------------------------------------------- */

/* Operands broadcast to one shape, read in row-major order. */
struct walk {
    const struct pst_operand *x[PST_PAIRS_MAX];
    bool straight[PST_PAIRS_MAX]; /* element i of the shape is element i of x */
    unsigned n;
    struct pst_meta shape;
    double s;
};

/* Sets the operands from the arguments from `shift` on; false if they do not
 * broadcast. */
static bool walk_init(struct walk *w, const struct pst_call *c,
                      const struct pst_pairs *f, unsigned shift)
{
    w->n = f->n;
    w->s = f->number > 0 ? c->args[f->number + shift].f : 0.0;
    w->shape = *c->in[shift].meta;
    for (unsigned k = 0; k < f->n; k++) {
        const struct pst_meta shape = w->shape;

        w->x[k] = &c->in[k + shift];
        if (w->x[k]->data == NULL)
            w->x[k] = NULL;
        else if (!pst_meta_broadcast(&shape, w->x[k]->meta, &w->shape))
            return false;
    }
    for (unsigned k = 0; k < f->n; k++)
        w->straight[k] = w->x[k] != NULL &&
                         pst_meta_same_shape(w->x[k]->meta, &w->shape) &&
                         pst_meta_is_contiguous(w->x[k]->meta);
    return true;
}

/* Returns the offset of element i of the shape in x, which broadcasts to it. */
static int64_t broadcast_offset(const struct pst_meta *x,
                                const struct pst_meta *shape, int64_t i)
{
    const unsigned lead = shape->rank - x->rank;
    int64_t at = 0;

    for (unsigned d = shape->rank; d-- > lead;) {
        if (x->size[d - lead] != 1)
            at += i % shape->size[d] * x->stride[d - lead];
        i /= shape->size[d];
    }
    return at;
}

static void load(const struct walk *w, int64_t i, double *x)
{
    for (unsigned k = 0; k < w->n; k++) {
        const struct pst_operand *from = w->x[k];

        x[k] = 1.0;
        if (from != NULL)
            x[k] = pst_load_f64(
                from->meta->dtype, from->data,
                w->straight[k] ? i
                               : broadcast_offset(from->meta, &w->shape, i));
    }
}

void pst_pairs_forward(const struct pst_call *c, const struct pst_pairs *f)
{
    const int64_t reduction = c->args[f->reduction].i;
    struct pst_operand *y = &c->out[0];
    double x[PST_PAIRS_MAX], sum = 0.0;
    struct walk w;
    int64_t n;

    if (!walk_init(&w, c, f, 0))
        return;
    n = pst_meta_numel(&w.shape);
    for (int64_t i = 0; i < n; i++) {
        double v;

        load(&w, i, x);
        if (f->unit && !(x[0] >= 0.0 && x[0] <= 1.0))
            pst_call_fault(c, PST_FAULT_NOT_UNIT, {.g = x[0]});
        v = f->value(x, w.s);
        if (reduction == PST_REDUCE_NONE)
            pst_store_f64(y->meta->dtype, y->data, i, v);
        sum += v;
    }
    if (reduction == PST_REDUCE_MEAN)
        sum /= (double)n;
    if (reduction != PST_REDUCE_NONE)
        pst_store_f64(y->meta->dtype, y->data, 0, sum);
}

void pst_pairs_backward(const struct pst_call *c, const struct pst_pairs *f)
{
    const int64_t reduction = c->args[f->reduction + 1].i;
    const unsigned k = (unsigned)c->args[f->n_args + 1].i;
    const struct pst_operand *g = &c->in[0];
    struct pst_operand *dx = &c->out[0];
    double x[PST_PAIRS_MAX], divisor = 1.0;
    struct walk w;
    int64_t n;

    if (!walk_init(&w, c, f, 1))
        return;
    n = pst_meta_numel(&w.shape);
    if (reduction == PST_REDUCE_MEAN)
        divisor = (double)n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at =
            reduction == PST_REDUCE_NONE ? pst_meta_offset(g->meta, i) : 0;

        load(&w, i, x);
        pst_store_f64(dx->meta->dtype, dx->data, i,
                      pst_load_f64(g->meta->dtype, g->data, at) / divisor *
                          f->slope(x, w.s, k));
    }
}

/* --- gradient ------------------------------------------------------------- */

enum pst_status pst_pairs_vjp(struct pst_vjp *v, const struct pst_pairs *f,
                              const struct pst_op *backward)
{
    const unsigned n = v->node->schema->n_args;
    struct pst_value *g = pst_vjp_grad(v, 0);
    struct pst_arg args[PST_PAIRS_MAX + 6];

    if (g == NULL || n + 2 > PST_COUNT(args))
        return v->build.status;
    args[0] = pst_v(g);
    memcpy(args + 1, v->node->args, n * sizeof(args[0]));
    for (unsigned k = 0; k < f->n_slopes; k++) {
        if (!pst_vjp_needs(v, k))
            continue;
        args[n + 1] = pst_i(k);
        g = pst_vjp_emit(v, backward, args, n + 2);
        pst_vjp_set(v, k, pst_vjp_sum_to(v, g, &pst_vjp_in(v, k)->meta));
    }
    return v->build.status;
}
