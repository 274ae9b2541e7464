// SPDX-License-Identifier: Apache-2.0
/* any, all, var, logsumexp. */
#include "stages/ops/reduce/reduce.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/pointwise.h"
#include "stages/ops/reduce/ends.h"
#include "stages/ops/reduce/fold.h"
#include "stages/ops/reduce/whole.h"

#include <math.h>

#define KERNEL(name, statement, ...)                                           \
    static void name##_ref(const struct pst_call *c)                           \
    {                                                                          \
        statement;                                                             \
    }                                                                          \
    static const struct pst_kernel name##_kernels[] = {                        \
        __VA_ARGS__{#name "_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, \
                    NULL, name##_ref, 0.0},                                    \
    }

/* --- any, all: NaN is true ------------------------------------------------ */

static void any_add(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0.0)
            acc->a = 1.0;
}

/* Sets a to 1 if an element is false. */
static void all_add(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] == 0.0)
            acc->a = 1.0;
}

static double all_end(const struct pst_acc *acc,
                      const struct pst_call *call PST_UNUSED)
{
    return 1.0 - acc->a;
}

static const struct pst_reduction any_how = {any_add, NULL, NULL};
static const struct pst_reduction all_how = {all_add, all_end, NULL};

/* The result of u8 is u8 as in PyTorch, where u8 was the boolean type before
 * bool. */
static enum pst_dtype logic_dtype(const struct pst_infer *c)
{
    const struct pst_meta *x = pst_infer_in(c, 0);

    return x != NULL && x->dtype == PST_U8 ? PST_U8 : PST_BOOL;
}

static enum pst_status infer_any(struct pst_infer *c)
{
    return pst_reduce_infer(c, 0, logic_dtype(c), PST_REDUCE_ALL, -1);
}

static enum pst_status infer_any_dim(struct pst_infer *c)
{
    return pst_reduce_infer(c, 0, logic_dtype(c), 1, 2);
}

bool pst_reduce_none(const struct pst_arg *dim)
{
    return dim->kind == PST_ARG_INTS && dim->n == 0;
}

static enum pst_status infer_any_dims(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK && pst_reduce_none(&c->args[1]))
        return pst_infer_set_like(c, 0, logic_dtype(c), x);
    return status != PST_OK ? status
                            : pst_reduce_infer(c, 0, logic_dtype(c), 1, 2);
}

static void logic_dims(const struct pst_call *c,
                       const struct pst_reduction *how)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];

    if (!pst_reduce_none(&c->args[1])) {
        pst_reduce_run(c, 1, how);
        return;
    }
    for (int64_t i = 0; i < pst_meta_numel(out->meta); i++)
        pst_store_i64(out->meta->dtype, out->data, i,
                      pst_load_f64(x->meta->dtype, x->data,
                                   pst_meta_offset(x->meta, i)) != 0.0);
}

static bool logic_fits(const struct pst_call *c)
{
    return pst_whole_fits_logic(c, PST_REDUCE_ALL);
}

static bool logic_dims_fit(const struct pst_call *c)
{
    return !pst_reduce_none(&c->args[1]) && pst_whole_fits_logic(c, 1);
}

static void any_whole(const struct pst_call *c)
{
    pst_whole_run(c, PST_REDUCE_ALL, PST_WHOLE_ANY);
}

static void all_whole(const struct pst_call *c)
{
    pst_whole_run(c, PST_REDUCE_ALL, PST_WHOLE_ALL);
}

static void any_dim_whole(const struct pst_call *c)
{
    pst_whole_run(c, 1, PST_WHOLE_ANY);
}

static void all_dim_whole(const struct pst_call *c)
{
    pst_whole_run(c, 1, PST_WHOLE_ALL);
}

#define WHOLE(name, fits)                                                      \
    {#name, PST_ISA_ANY, PST_D(BOOL), 0, fits, NULL, name, 0.0},

KERNEL(any, pst_reduce_run(c, PST_REDUCE_ALL, &any_how),
       WHOLE(any_whole, logic_fits));
KERNEL(all, pst_reduce_run(c, PST_REDUCE_ALL, &all_how),
       WHOLE(all_whole, logic_fits));
KERNEL(any_dim, logic_dims(c, &any_how), WHOLE(any_dim_whole, logic_dims_fit));
KERNEL(all_dim, logic_dims(c, &all_how), WHOLE(all_dim_whole, logic_dims_fit));

#define LOGIC(id, text, how, table)                                            \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text " -> Tensor",                                  \
        .infer = how,                                                          \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, table)

LOGIC(any, "any(Tensor self)", infer_any, any_kernels);
LOGIC(all, "all(Tensor self)", infer_any, all_kernels);
LOGIC(any_dim, "any.dim(Tensor self, int dim, bool keepdim=False)",
      infer_any_dim, any_dim_kernels);
LOGIC(all_dim, "all.dim(Tensor self, int dim, bool keepdim=False)",
      infer_any_dim, all_dim_kernels);
LOGIC(any_dims, "any.dims(Tensor self, int[]? dim=None, bool keepdim=False)",
      infer_any_dims, any_dim_kernels);
LOGIC(all_dims, "all.dims(Tensor self, int[]? dim=None, bool keepdim=False)",
      infer_any_dims, all_dim_kernels);

/* --- var ------------------------------------------------------------------ */

/* Updates acc by Welford's method: a is the mean so far, b the sum of the
 * squared distances from it. */
static void var_add(struct pst_acc *acc, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++) {
        const double d = x[i] - acc->a;

        acc->a += d / (double)(acc->n + i + 1);
        acc->b += d * (x[i] - acc->a);
    }
}

double pst_reduce_correction(const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_NONE ? 1.0 : pst_pw_number(arg);
}

static double var_end(const struct pst_acc *acc, const struct pst_call *call)
{
    const double by = (double)acc->n - pst_reduce_correction(&call->args[2]);

    return acc->b / (by > 0.0 ? by : 0.0);
}

static const struct pst_reduction var_how = {var_add, var_end, NULL};

static enum pst_status infer_var(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pst_dtype_kind(x->dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants a floating tensor, got %s",
                              pst_dtype_name(x->dtype));
    return pst_reduce_infer(c, 0, x->dtype, 1, 3);
}

/* The gradient is 2 (x - mean) / (n - correction), as in PyTorch: with given
 * dimensions also if n <= correction. Without given dimensions it is then
 * infinite, or NaN where x is the mean. */
static enum pst_status var_vjp(struct pst_vjp *v)
{
    struct pst_value *x = pst_vjp_in(v, 0);
    const double by = (double)pst_reduce_count(v, 1) -
                      pst_reduce_correction(&v->node->args[2]);
    const bool whole =
        x->meta.rank == 0 || v->node->args[1].kind == PST_ARG_NONE;
    struct pst_value *g = pst_reduce_spread(v, pst_vjp_grad(v, 0), 1, 3);
    struct pst_value *mean = pst_vjp_emit(
        v, &pst_op_mean_dim, PST_ARGS(pst_v(x), v->node->args[1], pst_b(true)));

    if (whole && by <= 0.0) {
        struct pst_value *at =
            pst_vjp_emit(v, &pst_op_eq_Tensor, PST_ARGS(pst_v(x), pst_v(mean)));
        struct pst_value *slope =
            pst_vjp_where(v, at, pst_vjp_full(v, &x->meta, NAN),
                          pst_vjp_full(v, &x->meta, INFINITY));

        return pst_vjp_set(v, 0, pst_vjp_mul(v, g, slope));
    }
    g = pst_vjp_mul_scalar(v, g, 2.0 / by);
    return pst_vjp_set(v, 0, pst_vjp_mul(v, g, pst_vjp_sub(v, x, mean)));
}

static double var_of(const struct pst_call *call, double sum, double m,
                     double squares, int64_t n)
{
    return pst_end_var(sum, m, squares, n,
                       pst_reduce_correction(&call->args[2]));
}

PST_FOLD_TWO(var, 1, sum, squares, pst_end_mean, var_of)
KERNEL(var, pst_reduce_run(c, 1, &var_how),
       PST_FOLD_ROWS(var, var_fits, 0, 1e-6), );

const struct pst_op pst_op_var_correction = {
    .schema = "aten::var.correction(Tensor self, int[1]? dim=None, *, "
              "Scalar? correction=None, bool keepdim=False) -> Tensor",
    .infer = infer_var,
    .vjp = var_vjp,
};
PST_CPU_KERNELS(var_correction, var_kernels);

const struct pst_op pst_op_var_dim = {
    .schema = "aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, "
              "bool keepdim=False) -> Tensor",
    .infer = infer_var,
    .vjp = var_vjp,
};
PST_CPU_KERNELS(var_dim, var_kernels);

/* --- logsumexp ------------------------------------------------------------ */

/* Updates acc: a is the maximum so far, b the sum of exp(x - a); an x of -inf
 * adds nothing. */
static void logsumexp_add(struct pst_acc *acc, int64_t n, const double *x)
{
    if (acc->n == 0)
        acc->a = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > acc->a) {
            acc->b = acc->b * exp(acc->a - x[i]) + 1.0;
            acc->a = x[i];
        } else if (isnan(x[i])) {
            acc->b = x[i];
        } else if (x[i] != -INFINITY) {
            acc->b += x[i] == acc->a ? 1.0 : exp(x[i] - acc->a);
        }
    }
}

static double logsumexp_end(const struct pst_acc *acc,
                            const struct pst_call *call PST_UNUSED)
{
    return acc->n == 0 || acc->b == 0.0 ? -INFINITY : acc->a + log(acc->b);
}

static const struct pst_reduction logsumexp_how = {logsumexp_add, logsumexp_end,
                                                   NULL};

static enum pst_status infer_logsumexp(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    return status != PST_OK
               ? status
               : pst_reduce_infer(c, 0, pst_float_type(x->dtype), 1, 2);
}

static enum pst_status logsumexp_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_reduce_spread(v, pst_vjp_grad(v, 0), 1, 2);
    struct pst_value *y = pst_reduce_spread(v, pst_vjp_out(v, 0), 1, 2);
    struct pst_value *d = pst_vjp_sub(v, pst_vjp_in(v, 0), y);

    if (d == NULL)
        return v->build.status;
    d = pst_vjp_emit(v, &pst_op_exp, PST_ARGS(pst_v(d)));
    return pst_vjp_set(v, 0, pst_vjp_mul(v, g, d));
}

static double largest_of(double max, int64_t n PST_UNUSED)
{
    return pst_between_logsumexp(max);
}

static double logsumexp_of(const struct pst_call *call PST_UNUSED, double max,
                           double m, double sum, int64_t n PST_UNUSED)
{
    return pst_end_logsumexp(max, m, sum);
}

PST_FOLD_TWO(logsumexp, 1, max, exps, largest_of, logsumexp_of)
KERNEL(logsumexp, pst_reduce_run(c, 1, &logsumexp_how),
       PST_FOLD_ROWS(logsumexp, logsumexp_fits, 0, 1e-6), );

const struct pst_op pst_op_logsumexp = {
    .schema = "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) "
              "-> Tensor",
    .infer = infer_logsumexp,
    .vjp = logsumexp_vjp,
};
PST_CPU_KERNELS(logsumexp, logsumexp_kernels);
