// SPDX-License-Identifier: Apache-2.0
/* Margin losses between classes: multi_margin_loss, multilabel_margin_loss. */
#include <inttypes.h>
#include <math.h>

#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/loss/loss.h"
#include "stages/ops/pointwise/pointwise.h"

/* Samples (N, C), or one sample (C). */
struct rows {
    const struct pst_operand *x, *target;
    int64_t n, classes, reduction;
};

static struct rows rows_of(const struct pst_call *c, unsigned first,
                           int64_t reduction)
{
    const struct pst_operand *x = &c->in[first];

    return (struct rows){
        .x = x,
        .target = &c->in[first + 1],
        .n = x->meta->rank > 1 ? x->meta->size[0] : 1,
        .classes = x->meta->rank > 0 ? x->meta->size[x->meta->rank - 1] : 1,
        .reduction = reduction};
}

static double x_at(const struct rows *r, int64_t i, int64_t k)
{
    return pst_load_f64(r->x->meta->dtype, r->x->data,
                        pst_meta_offset(r->x->meta, i * r->classes + k));
}

/* Returns integer `at` of the target. If it is not in `lowest`..classes-1,
 * reports a fault and returns -1. */
static int64_t class_at(const struct pst_call *c, const struct rows *r,
                        int64_t at, int64_t lowest)
{
    const struct pst_meta *t = r->target->meta;
    const int64_t k =
        pst_load_i64(t->dtype, r->target->data, pst_meta_offset(t, at));

    if (k >= lowest && k < r->classes)
        return k;
    pst_call_fault(c, PST_FAULT_TARGET_BETWEEN, {.i = k}, {.i = lowest},
                   {.i = r->classes});
    return -1;
}

/* Returns the incoming gradient of the loss of sample i; for a mean, divided by
 * the number of samples. */
static double incoming_gradient(const struct pst_call *c, const struct rows *r,
                                int64_t i)
{
    const struct pst_operand *g = &c->in[0];
    const int64_t at = r->reduction == PST_REDUCE_NONE ? i : 0;
    const double v =
        pst_load_f64(g->meta->dtype, g->data, pst_meta_offset(g->meta, at));

    return r->reduction == PST_REDUCE_MEAN ? v / (double)r->n : v;
}

static void store_loss(const struct pst_call *c, const struct rows *r,
                       int64_t i, double loss, double *sum)
{
    if (r->reduction == PST_REDUCE_NONE)
        pst_store_f64(c->out[0].meta->dtype, c->out[0].data, i, loss);
    *sum += loss;
}

static void store_sum(const struct pst_call *c, const struct rows *r,
                      double sum)
{
    if (r->reduction != PST_REDUCE_NONE)
        pst_store_f64(c->out[0].meta->dtype, c->out[0].data, 0,
                      r->reduction == PST_REDUCE_MEAN ? sum / (double)r->n
                                                      : sum);
}

/* Checks that argument 0 is x of rank 1 or 2 and argument 1 a target with
 * `rank_less` fewer dimensions. Result 0 is one loss, or one for each
 * sample. */
static enum pst_status check_shapes(struct pst_infer *c, unsigned rank_less,
                                    int64_t reduction)
{
    const struct pst_meta *x, *t;
    char a[PST_META_TEXT], b[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);
    bool fits;

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &t);
    if (status != PST_OK)
        return status;
    fits = x->rank >= 1 && x->rank <= 2 && t->rank + rank_less == x->rank &&
           pst_dtype_kind(x->dtype) == PST_KIND_FLOAT &&
           pst_dtype_kind(t->dtype) != PST_KIND_FLOAT;
    for (unsigned d = 0; fits && d < t->rank; d++)
        fits = t->size[d] == x->size[d];
    if (!fits)
        return pst_infer_fail(c, "target %s does not fit input %s",
                              pst_meta_text(t, b), pst_meta_text(x, a));
    if (reduction < PST_REDUCE_NONE || reduction > PST_REDUCE_SUM)
        return pst_infer_fail(c, "reduction %" PRId64 " is none of 0, 1, 2",
                              reduction);
    return pst_infer_set(c, 0, x->dtype,
                         reduction == PST_REDUCE_NONE ? x->rank - 1 : 0,
                         x->size);
}

/* --- multi_margin_loss ---------------------------------------------------- */

/* The loss of a sample: w_y / C sum over k != y of max(0, margin - x_y +
 * x_k)^p, p = 1 or 2. */
struct multi {
    struct rows rows;
    const struct pst_operand *weight;
    double p, margin;
};

static struct multi multi_of(const struct pst_call *c, unsigned first)
{
    struct multi m = {.rows = rows_of(c, first, c->args[first + 5].i),
                      .weight = &c->in[first + 2],
                      .p = pst_pw_number(&c->args[first + 2]),
                      .margin = pst_pw_number(&c->args[first + 3])};

    if (m.weight->data == NULL)
        m.weight = NULL;
    return m;
}

static double weight_of(const struct multi *m, int64_t y)
{
    const double share = 1.0 / (double)m->rows.classes;

    if (m->weight == NULL)
        return share;
    return share * pst_load_f64(m->weight->meta->dtype, m->weight->data,
                                pst_meta_offset(m->weight->meta, y));
}

static enum pst_status multi_infer(struct pst_infer *c)
{
    const struct pst_meta *w = pst_infer_in(c, 4);
    const double p = pst_pw_number(&c->args[2]);
    enum pst_status status = check_shapes(c, 1, c->args[5].i);

    if (status != PST_OK)
        return status;
    if (p != 1.0 && p != 2.0)
        return pst_infer_fail(c, "p is 1 or 2, not %g", p);
    if (w != NULL &&
        (w->rank != 1 ||
         w->size[0] !=
             c->args[0].value->meta.size[c->args[0].value->meta.rank - 1]))
        return pst_infer_fail(c, "the weight does not fit the classes");
    return PST_OK;
}

static void multi_ref(const struct pst_call *c)
{
    const struct multi m = multi_of(c, 0);
    const struct rows *r = &m.rows;
    double sum = 0.0;

    for (int64_t i = 0; i < r->n; i++) {
        const int64_t y = class_at(c, r, i, 0);
        double loss = 0.0;

        for (int64_t k = 0; y >= 0 && k < r->classes; k++) {
            const double z = m.margin - x_at(r, i, y) + x_at(r, i, k);

            if (k != y && z > 0.0)
                loss += (m.p == 1.0 ? z : z * z) * weight_of(&m, y);
        }
        store_loss(c, r, i, loss, &sum);
    }
    store_sum(c, r, sum);
}

static void multi_backward_ref(const struct pst_call *c)
{
    const struct multi m = multi_of(c, 1);
    const struct rows *r = &m.rows;
    struct pst_operand *dx = &c->out[0];

    for (int64_t i = 0; i < r->n; i++) {
        const int64_t y = class_at(c, r, i, 0);
        const double g = incoming_gradient(c, r, i);
        double all = 0.0;

        for (int64_t k = 0; k < r->classes; k++) {
            const double z =
                y < 0 ? 0.0 : m.margin - x_at(r, i, y) + x_at(r, i, k);
            double d = 0.0;

            if (k != y && z > 0.0)
                d = g * weight_of(&m, y) * (m.p == 1.0 ? 1.0 : 2.0 * z);
            pst_store_f64(dx->meta->dtype, dx->data, i * r->classes + k, d);
            all += d;
        }
        if (y >= 0)
            pst_store_f64(dx->meta->dtype, dx->data, i * r->classes + y, -all);
    }
}

static enum pst_status multi_vjp(struct pst_vjp *v)
{
    const struct pst_arg *a = v->node->args;
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (g == NULL)
        return v->build.status;
    g = pst_vjp_emit(v, &pst_op_multi_margin_loss_backward,
                     PST_ARGS(pst_v(g), a[0], a[1], a[2], a[3], a[4], a[5]));
    return pst_vjp_set(v, 0, g);
}

/* --- multilabel_margin_loss ----------------------------------------------- */

/* The classes of a sample are its targets before the first -1. The loss is 1 /
 * C times the sum of max(0, 1 - x_y + x_k) over its classes y and all other
 * classes k. */
static int64_t target_at(const struct pst_call *c, const struct rows *r,
                         int64_t i, int64_t j)
{
    return j < r->classes ? class_at(c, r, i * r->classes + j, -1) : -1;
}

static enum pst_status labels_infer(struct pst_infer *c)
{
    enum pst_status status = check_shapes(c, 0, c->args[2].i);

    return status != PST_OK
               ? status
               : pst_infer_set_like(c, 1, c->args[0].value->meta.dtype,
                                    pst_infer_in(c, 1));
}

static void labels_ref(const struct pst_call *c)
{
    const struct rows r = rows_of(c, 0, c->args[2].i);
    const struct pst_operand *flags = &c->out[1];
    double sum = 0.0;

    for (int64_t i = 0; i < r.n; i++) {
        double loss = 0.0;

        for (int64_t k = 0; k < r.classes; k++)
            pst_store_f64(flags->meta->dtype, flags->data, i * r.classes + k,
                          0.0);
        for (int64_t j = 0, y; (y = target_at(c, &r, i, j)) >= 0; j++)
            pst_store_f64(flags->meta->dtype, flags->data, i * r.classes + y,
                          1.0);
        for (int64_t j = 0, y; (y = target_at(c, &r, i, j)) >= 0; j++) {
            for (int64_t k = 0; k < r.classes; k++) {
                const double z = 1.0 - x_at(&r, i, y) + x_at(&r, i, k);

                if (z > 0.0 && pst_load_f64(flags->meta->dtype, flags->data,
                                            i * r.classes + k) == 0.0)
                    loss += z / (double)r.classes;
            }
        }
        store_loss(c, &r, i, loss, &sum);
    }
    store_sum(c, &r, sum);
}

static void add_at(struct pst_operand *x, int64_t at, double by)
{
    const enum pst_dtype dtype = x->meta->dtype;

    pst_store_f64(dtype, x->data, at, pst_load_f64(dtype, x->data, at) + by);
}

static size_t labels_scratch(const struct pst_call *c, unsigned threads)
{
    (void)threads;
    return (size_t)rows_of(c, 1, c->args[3].i).classes;
}

static void labels_backward_ref(const struct pst_call *c)
{
    const struct rows r = rows_of(c, 1, c->args[3].i);
    struct pst_operand *dx = &c->out[0];
    unsigned char *is_target = c->scratch;

    for (int64_t i = 0; i < r.n; i++) {
        const double g = incoming_gradient(c, &r, i) / (double)r.classes;
        const int64_t row = i * r.classes;

        for (int64_t k = 0; k < r.classes; k++) {
            pst_store_f64(dx->meta->dtype, dx->data, row + k, 0.0);
            is_target[k] = 0;
        }
        for (int64_t j = 0, y; (y = target_at(c, &r, i, j)) >= 0; j++)
            is_target[y] = 1;
        for (int64_t j = 0, y; (y = target_at(c, &r, i, j)) >= 0; j++) {
            for (int64_t k = 0; k < r.classes; k++) {
                const double z = 1.0 - x_at(&r, i, y) + x_at(&r, i, k);

                if (!(z > 0.0) || is_target[k])
                    continue;
                add_at(dx, row + k, g);
                add_at(dx, row + y, -g);
            }
        }
    }
}

static enum pst_status labels_vjp(struct pst_vjp *v)
{
    const struct pst_arg *a = v->node->args;
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (g == NULL)
        return v->build.status;
    g = pst_vjp_emit(v, &pst_op_multilabel_margin_loss_backward,
                     PST_ARGS(pst_v(g), a[0], a[1], a[2]));
    return pst_vjp_set(v, 0, g);
}

static enum pst_status labels_rewrite(struct pst_rewrite *w)
{
    return pst_rewrite_out(
        w, 0, pst_rw(w, &pst_op_multilabel_margin_loss_forward, w->args, 3));
}

/* --- rows ----------------------------------------------------------------- */

static const struct pst_kernel multi_kernels[] = {
    {.name = "multi_margin_loss_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = multi_ref},
};
static const struct pst_kernel multi_backward_kernels[] = {
    {.name = "multi_margin_loss_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = multi_backward_ref},
};
static const struct pst_kernel labels_kernels[] = {
    {.name = "multilabel_margin_loss_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = labels_ref},
};
static const struct pst_kernel labels_backward_kernels[] = {
    {.name = "multilabel_margin_loss_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .scratch = labels_scratch,
     .run = labels_backward_ref},
};

const struct pst_op pst_op_multi_margin_loss = {
    .schema = "aten::multi_margin_loss(Tensor self, Tensor target, Scalar p=1, "
              "Scalar margin=1, Tensor? weight=None, int reduction=1) -> "
              "Tensor",
    .infer = multi_infer,
    .vjp = multi_vjp,
};
PST_CPU_KERNELS(multi_margin_loss, multi_kernels);

const struct pst_op pst_op_multi_margin_loss_backward = {
    .schema = "penstock::multi_margin_loss_backward(Tensor grad_output, Tensor "
              "self, Tensor target, Scalar p, Scalar margin, Tensor? weight, "
              "int reduction) -> Tensor",
    .infer = pst_infer_same_as_1,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(multi_margin_loss_backward, multi_backward_kernels);

const struct pst_op pst_op_multilabel_margin_loss_forward = {
    .schema = "aten::multilabel_margin_loss_forward(Tensor self, Tensor "
              "target, int reduction) -> (Tensor output, Tensor is_target)",
    .infer = labels_infer,
    .vjp = labels_vjp,
};
PST_CPU_KERNELS(multilabel_margin_loss_forward, labels_kernels);

const struct pst_op pst_op_multilabel_margin_loss_backward = {
    .schema = "penstock::multilabel_margin_loss_backward(Tensor grad_output, "
              "Tensor self, Tensor target, int reduction) -> Tensor",
    .infer = pst_infer_same_as_1,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(multilabel_margin_loss_backward, labels_backward_kernels);

PST_REWRITE(multilabel_margin_loss,
            "aten::multilabel_margin_loss(Tensor self, Tensor target, int "
            "reduction=1) -> Tensor",
            labels_rewrite);
