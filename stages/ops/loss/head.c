// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/loss/head.h"
#include "stages/ops/core/rows.h"

#include <math.h>

/* Offsets of the arguments after index `first`: 0 or, if the gradients of loss
 * and z come before them, N_GRADS. */
enum {
    INPUT,
    WEIGHT,
    BIAS,
    TARGET,
    MASK,
    SCALE,
    CAP,
    REDUCTION,
    IGNORE,
    SMOOTHING,
    Z_REDUCTION,
    LOW,
    N_ARGS
};
#define N_GRADS 2
#define N_IN    5 /* tensors among the arguments after `first` */

/* --- inference ------------------------------------------------------------ */

static enum pst_status check_shapes(const struct pst_infer *c, unsigned first)
{
    const struct pst_meta *x, *w, *t, *b = pst_infer_in(c, first + BIAS);
    const struct pst_meta *m = pst_infer_in(c, first + MASK);
    char one[PST_META_TEXT], two[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, first + INPUT, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, first + WEIGHT, &w);
    if (status == PST_OK)
        status = pst_infer_tensor(c, first + TARGET, &t);
    if (status == PST_OK && !(c->args[first + LOW].kind == PST_ARG_DTYPE &&
                              (int64_t)w->dtype == c->args[first + LOW].i))
        status = pst_infer_same_dtype(c, first + INPUT, first + WEIGHT);
    if (status == PST_OK && b != NULL)
        status = pst_infer_same_dtype(c, first + INPUT, first + BIAS);
    if (status != PST_OK)
        return status;
    if (x->rank < 1 || w->rank != 2 || x->size[x->rank - 1] != w->size[1] ||
        pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "input %s does not fit weight %s",
                              pst_meta_text(x, one), pst_meta_text(w, two));
    if (b != NULL && (b->rank != 1 || b->size[0] != w->size[0]))
        return pst_infer_fail(c, "bias %s does not fit weight %s",
                              pst_meta_text(b, one), pst_meta_text(w, two));
    if (pst_dtype_kind(t->dtype) != PST_KIND_INT ||
        pst_meta_numel(t) * w->size[1] != pst_meta_numel(x))
        return pst_infer_fail(c, "target %s does not fit input %s",
                              pst_meta_text(t, one), pst_meta_text(x, two));
    if (m != NULL && pst_meta_numel(m) != pst_meta_numel(t))
        return pst_infer_fail(c, "mask %s does not fit target %s",
                              pst_meta_text(m, one), pst_meta_text(t, two));
    return PST_OK;
}

static enum pst_status check_arguments(const struct pst_infer *c,
                                       unsigned first)
{
    const struct pst_arg *a = c->args + first;
    const struct pst_meta *g = NULL, *gz = NULL;
    enum pst_status status = check_shapes(c, first);

    if (status == PST_OK && first > 0) {
        gz = pst_infer_in(c, 1);
        status = pst_infer_tensor(c, 0, &g);
    }
    if (status != PST_OK)
        return status;
    if ((g != NULL && pst_meta_numel(g) != 1) ||
        (gz != NULL && pst_meta_numel(gz) != 1))
        return pst_infer_fail(c, "a gradient is not a scalar");
    if (a[Z_REDUCTION].i < 0 || a[Z_REDUCTION].i > PST_REDUCE_SUM)
        return pst_infer_fail(c, "z is not reduced to a mean or a sum");
    if (a[REDUCTION].i != PST_REDUCE_MEAN && a[REDUCTION].i != PST_REDUCE_SUM)
        return pst_infer_fail(c, "the loss is not reduced to a mean or a sum");
    if (!(a[SMOOTHING].f >= 0.0 && a[SMOOTHING].f <= 1.0))
        return pst_infer_fail(c, "label_smoothing is not between 0 and 1");
    if (!(a[CAP].f >= 0.0))
        return pst_infer_fail(c, "the cap is negative");
    if (a[LOW].kind == PST_ARG_DTYPE && a[LOW].i != PST_BF16 &&
        a[LOW].i != PST_F16)
        return pst_infer_fail(c, "low is not bf16 or f16");
    return PST_OK;
}

/* Sets results k and k + 1: the loss and z. */
static enum pst_status set_loss(struct pst_infer *c, unsigned k, unsigned first)
{
    const enum pst_dtype dtype = pst_infer_in(c, first)->dtype;
    const enum pst_status status = pst_infer_set(c, k, dtype, 0, NULL);

    return status != PST_OK ? status : pst_infer_set(c, k + 1, dtype, 0, NULL);
}

static enum pst_status set_like(struct pst_infer *c, unsigned k, unsigned i)
{
    return pst_infer_set_like(c, k, pst_infer_in(c, N_GRADS + INPUT)->dtype,
                              pst_infer_in(c, i));
}

/* Sets the gradients of weight and bias; if there is no bias, its gradient is
 * empty. */
static enum pst_status set_weights(struct pst_infer *c)
{
    const struct pst_meta *bias = pst_infer_in(c, N_GRADS + BIAS);
    const int64_t size = bias != NULL ? bias->size[0] : 0;
    enum pst_status status = set_like(c, 0, N_GRADS + WEIGHT);

    return status != PST_OK
               ? status
               : pst_infer_set(c, 1, pst_infer_in(c, N_GRADS)->dtype, 1, &size);
}

static enum pst_status loss_infer(struct pst_infer *c)
{
    enum pst_status status = check_arguments(c, 0);

    return status != PST_OK ? status : set_loss(c, 0, 0);
}

static enum pst_status input_infer(struct pst_infer *c)
{
    enum pst_status status = check_arguments(c, N_GRADS);

    if (status == PST_OK)
        status = set_like(c, 0, N_GRADS + INPUT);
    return status != PST_OK ? status : set_loss(c, 1, N_GRADS);
}

static enum pst_status weight_infer(struct pst_infer *c)
{
    enum pst_status status = check_arguments(c, N_GRADS);

    return status != PST_OK ? status : set_weights(c);
}

static enum pst_status backward_infer(struct pst_infer *c)
{
    enum pst_status status = check_arguments(c, N_GRADS);

    if (status == PST_OK)
        status = set_weights(c);
    if (status == PST_OK)
        status = set_like(c, 2, N_GRADS + INPUT);
    return status != PST_OK ? status : set_loss(c, 3, N_GRADS);
}

/* --- description ---------------------------------------------------------- */

/* Assigns the results in their order: gradients of weight and bias, gradient of
 * the input, loss and z. An operator has one or more of these three groups. */
static void set_results(const struct pst_call *c, struct pst_head *h)
{
    struct pst_operand *out = c->out;

    if (out[1].meta->rank == 1) {
        h->dweight = &out[0];
        h->dbias = h->bias != NULL ? &out[1] : NULL;
        out += 2;
    }
    if (out + 2 < c->out + c->n_out)
        h->dx = out++;
    if (out + 2 == c->out + c->n_out) {
        h->loss = &out[0];
        h->z = &out[1];
    }
}

struct pst_head pst_head_describe(const struct pst_call *c)
{
    const unsigned first = c->n_in > N_IN ? N_GRADS : 0;
    const struct pst_arg *a = c->args + first;
    const struct pst_operand *in = c->in + first;
    struct pst_head h = {
        .x = &in[INPUT],
        .weight = &in[WEIGHT],
        .bias = a[BIAS].kind == PST_ARG_VALUE ? &in[BIAS] : NULL,
        .targets = {.target = &in[TARGET],
                    .d = 1,
                    .reduction = a[REDUCTION].i,
                    .ignore = a[IGNORE].i,
                    .smoothing = a[SMOOTHING].f,
                    .is_dense = pst_meta_is_contiguous(in[TARGET].meta)},
        .rows = pst_meta_numel(in[TARGET].meta),
        .depth = in[WEIGHT].meta->size[1],
        .classes = in[WEIGHT].meta->size[0],
        .scale = a[SCALE].f,
        .cap = a[CAP].f,
        .mask = a[MASK].kind == PST_ARG_VALUE ? &in[MASK] : NULL,
        .z_reduction = a[Z_REDUCTION].i,
        .low = a[LOW].kind == PST_ARG_DTYPE ? (enum pst_dtype)a[LOW].i
                                            : in[INPUT].meta->dtype,
        .loss_grad = first > 0 ? &c->in[0] : NULL,
        .z_grad =
            first > 0 && c->args[1].kind == PST_ARG_VALUE ? &c->in[1] : NULL};

    h.targets.n = h.rows;
    h.targets.classes = h.classes;
    set_results(c, &h);
    return h;
}

enum pst_dtype pst_head_matmul_dtype(const struct pst_node *node)
{
    const struct pst_arg *low;

    if (node->op == &pst_op_linear_cross_entropy)
        low = &node->args[LOW];
    else if (node->op == &pst_op_linear_cross_entropy_input ||
             node->op == &pst_op_linear_cross_entropy_weight ||
             node->op == &pst_op_linear_cross_entropy_backward)
        low = &node->args[N_GRADS + LOW];
    else
        return node->n_outs > 0 ? node->outs[0]->meta.dtype : PST_F32;
    return low->kind == PST_ARG_DTYPE ? (enum pst_dtype)low->i
                                      : node->outs[0]->meta.dtype;
}

static double element_at(const struct pst_operand *o, int64_t i)
{
    return pst_load_f64(o->meta->dtype, o->data, pst_meta_offset(o->meta, i));
}

double pst_head_mask(const struct pst_head *h, int64_t row)
{
    if (h->z_reduction == 0)
        return 0.0;
    return h->mask != NULL ? element_at(h->mask, row) : 1.0;
}

double pst_head_z_divisor(const struct pst_head *h)
{
    return h->z_reduction == PST_REDUCE_MEAN ? (double)h->rows : 1.0;
}

/* --- reference ------------------------------------------------------------ */

static double round_low(const struct pst_head *h, double x)
{
    double rounded;

    if (h->low == h->x->meta->dtype)
        return x;
    pst_store_f64(h->low, &rounded, 0, x);
    return pst_load_f64(h->low, &rounded, 0);
}

/* Returns an element of an operand of the linear layer. */
static double operand_at(const struct pst_head *h, const struct pst_operand *o,
                         int64_t i)
{
    return round_low(h, element_at(o, i));
}

/* State of one row. y: the logits, later replaced by the gradients of x W^T +
 * b. */
struct row {
    double *y;
    double max, log_sum, mask;
    int64_t target; /* -1: ignored */
};

static void compute_logits(const struct pst_head *h, int64_t i, struct row *r)
{
    double sum = 0.0;

    r->max = -INFINITY;
    for (int64_t k = 0; k < h->classes; k++) {
        double z = h->bias != NULL ? operand_at(h, h->bias, k) : 0.0;

        for (int64_t d = 0; d < h->depth; d++)
            z += operand_at(h, h->x, i * h->depth + d) *
                 operand_at(h, h->weight, k * h->depth + d);
        z = h->scale * round_low(h, z);
        r->y[k] = h->cap > 0.0 ? h->cap * tanh(z / h->cap) : z;
        r->max = r->y[k] > r->max || isnan(r->y[k]) ? r->y[k] : r->max;
    }
    for (int64_t k = 0; k < h->classes; k++)
        sum += exp(r->y[k] - r->max);
    r->log_sum = log(sum);
}

/* Returns the coefficient of class k in the loss of a row. */
static double coefficient(const struct pst_head *h, const struct row *r,
                          int64_t k)
{
    const double e = h->targets.smoothing;

    return (k == r->target ? 1.0 - e : 0.0) + e / (double)h->classes;
}

static double row_loss(const struct pst_head *h, const struct row *r)
{
    double loss = 0.0;

    for (int64_t k = 0; k < h->classes; k++) {
        const double t = coefficient(h, r, k);

        /* A term with t = 0 is 0, even if its logarithm is infinite. */
        if (t != 0.0)
            loss -= t * (r->y[k] - r->max - r->log_sum);
    }
    return loss;
}

/* Replaces the logits of a row by their gradients. g, gz: gradients of the
 * row's cross entropy and of its z-loss. */
static void row_gradient(const struct pst_head *h, double g, double gz,
                         struct row *r)
{
    for (int64_t k = 0; k < h->classes; k++) {
        const double y = r->y[k], p = exp(y - r->max - r->log_sum);
        const double t = h->cap > 0.0 ? y / h->cap : 0.0;
        double dy = 0.0;

        if (r->target >= 0)
            dy += g * (p - coefficient(h, r, k));
        if (r->mask != 0.0)
            dy += gz * 2.0 * r->mask * (r->max + r->log_sum) * p;
        r->y[k] = round_low(h, dy * h->scale * (1.0 - t * t));
    }
}

static void store_dx(const struct pst_head *h, int64_t i, const double *dy)
{
    for (int64_t d = 0; d < h->depth; d++) {
        double sum = 0.0;

        for (int64_t k = 0; k < h->classes; k++)
            sum += dy[k] * operand_at(h, h->weight, k * h->depth + d);
        pst_store_f64(h->dx->meta->dtype, h->dx->data, i * h->depth + d, sum);
    }
}

/* Computes the gradients of weight and bias. dy: gradients of the logits of all
 * rows. */
static void store_dweight(const struct pst_call *c, const struct pst_head *h,
                          const double *dy)
{
    const enum pst_dtype dtype = h->dweight->meta->dtype;

    for (int64_t k = 0; k < h->classes; k++) {
        double bias = 0.0;

        for (int64_t d = 0; d < h->depth; d++) {
            const int64_t to = k * h->depth + d;
            double sum =
                c->accumulate ? pst_load_f64(dtype, h->dweight->data, to) : 0.0;

            for (int64_t i = 0; i < h->rows; i++)
                sum += dy[i * h->classes + k] *
                       operand_at(h, h->x, i * h->depth + d);
            pst_store_f64(dtype, h->dweight->data, to, sum);
        }
        for (int64_t i = 0; i < h->rows; i++)
            bias += dy[i * h->classes + k];
        if (h->dbias != NULL)
            pst_store_f64(h->dbias->meta->dtype, h->dbias->data, k, bias);
    }
}

/* Returns the bytes of scratch: the logits of all rows if gradients of weights
 * are computed, else of one row. */
static size_t head_ref_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_head h = pst_head_describe(c);

    (void)threads;
    return (size_t)((h.dweight != NULL ? h.rows : 1) * h.classes) *
           sizeof(double);
}

static void head_ref(const struct pst_call *c)
{
    const struct pst_head h = pst_head_describe(c);
    const bool mean = h.targets.reduction == PST_REDUCE_MEAN;
    const double divisor = mean ? pst_classes_divisor(c, &h.targets) : 1.0;
    const double g =
        h.loss_grad != NULL ? element_at(h.loss_grad, 0) / divisor : 0.0;
    const double gz = h.z_grad != NULL
                          ? element_at(h.z_grad, 0) / pst_head_z_divisor(&h)
                          : 0.0;
    double sum = 0.0, z = 0.0;

    for (int64_t i = 0; i < h.rows; i++) {
        struct row r = {.y = (double *)c->scratch +
                             (h.dweight != NULL ? i * h.classes : 0),
                        .mask = pst_head_mask(&h, i),
                        .target = pst_classes_target(c, &h.targets, i)};

        compute_logits(&h, i, &r);
        if (r.target >= 0)
            sum += row_loss(&h, &r);
        if (r.mask != 0.0)
            z += r.mask * (r.max + r.log_sum) * (r.max + r.log_sum);
        if (h.loss_grad != NULL)
            row_gradient(&h, g, gz, &r);
        if (h.dx != NULL)
            store_dx(&h, i, r.y);
    }
    if (h.dweight != NULL)
        store_dweight(c, &h, c->scratch);
    if (h.loss != NULL)
        pst_store_f64(h.loss->meta->dtype, h.loss->data, 0, sum / divisor);
    if (h.z != NULL)
        pst_store_f64(h.z->meta->dtype, h.z->data, 0,
                      z / pst_head_z_divisor(&h));
}

/* --- rows ----------------------------------------------------------------- */

#define HEAD_KERNELS(id, bits)                                                 \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_SIMD_ROWS(#id "_f32", pst_head_run, PST_D(F32), bits,              \
                      pst_head_fits, pst_head_scratch, 1e-5),                  \
        PST_SIMD_ROWS(#id "_low", pst_head_run, PST_D(F32), bits,              \
                      pst_head_fits_low, pst_head_scratch, 1e-2),              \
        {.name = #id "_ref",                                                   \
         .dtypes = PST_D_FLOAT,                                                \
         .flags = PST_K_STRIDED | (bits),                                      \
         .scratch = head_ref_scratch,                                          \
         .run = head_ref},                                                     \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

static double flops(const struct pst_node *node, unsigned first, double matmuls)
{
    const struct pst_meta *w = &node->args[first + WEIGHT].value->meta;

    return 2.0 * matmuls * (double)pst_meta_numel(w) *
           (double)pst_meta_numel(&node->args[first + TARGET].value->meta);
}

static double loss_flops(const struct pst_node *node)
{
    return flops(node, 0, 1.0);
}

static double part_flops(const struct pst_node *node)
{
    return flops(node, N_GRADS, 2.0);
}

static double backward_flops(const struct pst_node *node)
{
    return flops(node, N_GRADS, 3.0);
}

/* Emits one of the other operators with the arguments of this node. g: gradient
 * of the loss; gz: gradient of z, or NULL. */
static struct pst_node *emit_part(struct pst_vjp *v, const struct pst_op *op,
                                  struct pst_value *g, struct pst_value *gz)
{
    struct pst_arg args[N_GRADS + N_ARGS];

    args[0] = pst_v(g);
    args[1] = pst_v(gz);
    for (unsigned i = 0; i < N_ARGS; i++)
        args[N_GRADS + i] = v->node->args[i];
    return pst_emit_node(&v->build, op, args, N_GRADS + N_ARGS);
}

static enum pst_status head_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *gz = pst_vjp_grad(v, 1);
    const struct pst_node *part;

    if (g == NULL && gz == NULL)
        return v->build.status;
    if (g == NULL)
        g = pst_vjp_zeros_like(v, gz);
    if (pst_vjp_needs(v, INPUT)) {
        part = emit_part(v, &pst_op_linear_cross_entropy_input, g, gz);
        if (part != NULL)
            pst_vjp_set(v, INPUT, part->outs[0]);
    }
    if (pst_vjp_needs(v, WEIGHT) || pst_vjp_needs(v, BIAS)) {
        part = emit_part(v, &pst_op_linear_cross_entropy_weight, g, gz);
        if (part != NULL)
            pst_vjp_set(v, WEIGHT, part->outs[0]);
        if (part != NULL && pst_vjp_needs(v, BIAS))
            pst_vjp_set(v, BIAS, part->outs[1]);
    }
    return v->build.status;
}

#define HEAD_ARGS                                                              \
    "Tensor input, Tensor weight, Tensor? bias, Tensor target, Tensor? "       \
    "z_mask, float scale, float cap, int reduction, int ignore_index, float "  \
    "label_smoothing, int z_reduction, ScalarType? low=None) -> "
#define GRADS "Tensor grad_output, Tensor? grad_z, "

const struct pst_op pst_op_linear_cross_entropy = {
    .schema =
        "penstock::linear_cross_entropy(" HEAD_ARGS "(Tensor loss, Tensor z)",
    .flags = PST_OP_PRODUCT,
    .infer = loss_infer,
    .vjp = head_vjp,
    .flops = loss_flops,
};
HEAD_KERNELS(linear_cross_entropy, 0);

const struct pst_op pst_op_linear_cross_entropy_input = {
    .schema = "penstock::linear_cross_entropy_input(" GRADS HEAD_ARGS
              "(Tensor grad_input, Tensor loss, Tensor z)",
    .flags = PST_OP_PRODUCT,
    .infer = input_infer,
    .vjp = pst_vjp_none,
    .flops = part_flops,
};
HEAD_KERNELS(linear_cross_entropy_input, 0);

const struct pst_op pst_op_linear_cross_entropy_weight = {
    .schema = "penstock::linear_cross_entropy_weight(" GRADS HEAD_ARGS
              "(Tensor grad_weight, Tensor grad_bias)",
    .flags = PST_OP_PRODUCT,
    .infer = weight_infer,
    .vjp = pst_vjp_none,
    .flops = part_flops,
};
HEAD_KERNELS(linear_cross_entropy_weight, PST_K_ACCUMULATE);

const struct pst_op pst_op_linear_cross_entropy_backward = {
    .schema = "penstock::linear_cross_entropy_backward(" GRADS HEAD_ARGS
              "(Tensor grad_weight, Tensor grad_bias, Tensor "
              "grad_input, Tensor loss, Tensor z)",
    .flags = PST_OP_PRODUCT,
    .infer = backward_infer,
    .vjp = pst_vjp_none,
    .flops = backward_flops,
};
HEAD_KERNELS(linear_cross_entropy_backward, PST_K_ACCUMULATE);
