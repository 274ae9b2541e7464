// SPDX-License-Identifier: Apache-2.0
/* Largest and smallest elements and their indices. NaN wins over numbers, and
 * the first of equal elements wins. */
#include "stages/ops/core/rows.h"
#include "stages/ops/reduce/fold.h"

#include <math.h>

/* Updates acc by elements that win over it. A NaN wins over all but an earlier
 * NaN. */
static void update_extremum(struct pst_acc *acc, int64_t n, const double *x,
                            double sign)
{
    for (int64_t i = 0; i < n; i++) {
        const bool first = acc->n + i == 0;

        if (first ||
            (!isnan(acc->a) && (isnan(x[i]) || x[i] * sign > acc->a * sign))) {
            acc->a = x[i];
            acc->best = acc->n + i;
        }
    }
}

static void pick_i64(struct pst_acc *acc, int64_t n, const int64_t *x,
                     bool largest)
{
    for (int64_t i = 0; i < n; i++) {
        const bool first = acc->n + i == 0;

        if (first || (largest ? x[i] > acc->whole : x[i] < acc->whole)) {
            acc->whole = x[i];
            acc->best = acc->n + i;
        }
    }
}

static void max_add(struct pst_acc *acc, int64_t n, const double *x)
{
    update_extremum(acc, n, x, 1.0);
}

static void max_add_i64(struct pst_acc *acc, int64_t n, const int64_t *x)
{
    pick_i64(acc, n, x, true);
}

static void min_add(struct pst_acc *acc, int64_t n, const double *x)
{
    update_extremum(acc, n, x, -1.0);
}

static void min_add_i64(struct pst_acc *acc, int64_t n, const int64_t *x)
{
    pick_i64(acc, n, x, false);
}

static const struct pst_reduction max_how = {max_add, NULL, max_add_i64};
static const struct pst_reduction min_how = {min_add, NULL, min_add_i64};

#define KERNEL(name, arg, how, best, statement)                                \
    static void name##_ref(const struct pst_call *c)                           \
    {                                                                          \
        statement;                                                             \
    }                                                                          \
    best(name, arg, how) static const struct pst_kernel name##_kernels[] = {   \
        PST_FOLD_ROWS(name, name##_fits, 0, 0.0),                              \
        {#name "_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,      \
         name##_ref, 0.0},                                                     \
    }

#define VALUE(name, arg, how) PST_FOLD_ONE(name, arg, how, NULL)
#define BOTH(name, arg, how)  PST_FOLD_BEST(name, arg, true, how)
#define PLACE(name, arg, how) PST_FOLD_BEST(name, arg, false, how)

/* --- amax, amin, max, min ------------------------------------------------- */

static enum pst_status infer_amax(struct pst_infer *c)
{
    enum pst_status status = pst_reduce_not_empty(c, 1);

    return status != PST_OK
               ? status
               : pst_reduce_infer(c, 0, pst_infer_in(c, 0)->dtype, 1, 2);
}

static enum pst_status infer_max(struct pst_infer *c)
{
    enum pst_status status = pst_reduce_not_empty(c, PST_REDUCE_ALL);

    return status != PST_OK ? status
                            : pst_reduce_infer(c, 0, pst_infer_in(c, 0)->dtype,
                                               PST_REDUCE_ALL, -1);
}

/* Returns a mask of the elements where x and y are equal or both NaN. */
static struct pst_value *equal_mask(struct pst_vjp *v, struct pst_value *x,
                                    struct pst_value *y)
{
    struct pst_value *same, *nan_x, *nan_y;

    same = pst_vjp_emit(v, &pst_op_eq_Tensor, PST_ARGS(pst_v(x), pst_v(y)));
    nan_x = pst_vjp_emit(v, &pst_op_ne_Tensor, PST_ARGS(pst_v(x), pst_v(x)));
    nan_y = pst_vjp_emit(v, &pst_op_ne_Tensor, PST_ARGS(pst_v(y), pst_v(y)));
    nan_x = pst_vjp_emit(v, &pst_op_logical_and,
                         PST_ARGS(pst_v(nan_x), pst_v(nan_y)));
    return pst_vjp_emit(v, &pst_op_logical_or,
                        PST_ARGS(pst_v(same), pst_v(nan_x)));
}

/* Divides the gradient among the elements that equal the result. If the result
 * is NaN: for max and min all NaN elements count as equal; for amax and amin
 * none does, and the gradient is NaN. */
static enum pst_status divide_vjp(struct pst_vjp *v, int arg, int keepdim)
{
    struct pst_value *x = pst_vjp_in(v, 0), *g = pst_vjp_grad(v, 0);
    struct pst_value *y, *mask, *count;
    bool dims[PST_MAX_RANK];
    int64_t list[PST_MAX_RANK];
    unsigned n = 0;

    y = pst_reduce_spread(v, pst_vjp_out(v, 0), arg, keepdim);
    g = pst_reduce_spread(v, g, arg, keepdim);
    if (y == NULL || g == NULL)
        return v->build.status;
    if (arg == PST_REDUCE_ALL)
        mask = equal_mask(v, x, y);
    else
        mask = pst_vjp_emit(v, &pst_op_eq_Tensor, PST_ARGS(pst_v(x), pst_v(y)));
    if (mask == NULL)
        return v->build.status;
    mask = pst_vjp_cast(v, mask, x->meta.dtype);
    pst_reduce_dims(&x->meta, v->node->args, arg, dims);
    for (unsigned d = 0; d < x->meta.rank; d++)
        if (dims[d])
            list[n++] = d;
    count = pst_vjp_sum_dims(v, mask, list, n, true);
    return pst_vjp_set(v, 0, pst_vjp_div(v, pst_vjp_mul(v, g, mask), count));
}

static enum pst_status amax_vjp(struct pst_vjp *v)
{
    return divide_vjp(v, 1, 2);
}

static enum pst_status max_vjp(struct pst_vjp *v)
{
    return divide_vjp(v, PST_REDUCE_ALL, -1);
}

KERNEL(amax, 1, max, VALUE, pst_reduce_run(c, 1, &max_how));
KERNEL(amin, 1, min, VALUE, pst_reduce_run(c, 1, &min_how));
KERNEL(max, PST_REDUCE_ALL, max, VALUE,
       pst_reduce_run(c, PST_REDUCE_ALL, &max_how));
KERNEL(min, PST_REDUCE_ALL, min, VALUE,
       pst_reduce_run(c, PST_REDUCE_ALL, &min_how));

const struct pst_op pst_op_amax = {
    .schema = "aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> "
              "Tensor",
    .infer = infer_amax,
    .vjp = amax_vjp,
};
PST_CPU_KERNELS(amax, amax_kernels);

const struct pst_op pst_op_amin = {
    .schema = "aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> "
              "Tensor",
    .infer = infer_amax,
    .vjp = amax_vjp,
};
PST_CPU_KERNELS(amin, amin_kernels);

const struct pst_op pst_op_max = {
    .schema = "aten::max(Tensor self) -> Tensor",
    .infer = infer_max,
    .vjp = max_vjp,
};
PST_CPU_KERNELS(max, max_kernels);

const struct pst_op pst_op_min = {
    .schema = "aten::min(Tensor self) -> Tensor",
    .infer = infer_max,
    .vjp = max_vjp,
};
PST_CPU_KERNELS(min, min_kernels);

/* --- max.dim, argmax ------------------------------------------------------ */

static enum pst_status infer_max_dim(struct pst_infer *c)
{
    enum pst_status status = pst_reduce_not_empty(c, 1);

    if (status == PST_OK)
        status = pst_reduce_infer(c, 0, pst_infer_in(c, 0)->dtype, 1, 2);
    return status != PST_OK ? status : pst_reduce_infer(c, 1, PST_I64, 1, 2);
}

/* The gradient goes to the element whose index was returned. */
static enum pst_status max_dim_vjp(struct pst_vjp *v)
{
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    const struct pst_arg *args = v->node->args;
    struct pst_value *g = pst_vjp_grad(v, 0), *at = pst_vjp_out(v, 1);

    if (g == NULL)
        return v->build.status;
    if (!args[2].b && x->rank > 0) {
        g = pst_vjp_unsqueeze(v, g, args[1].i);
        at = pst_vjp_unsqueeze(v, at, args[1].i);
    }
    if (g == NULL || at == NULL)
        return v->build.status;
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_scatter_add,
                     PST_ARGS(pst_v(pst_vjp_zeros_like(v, pst_vjp_in(v, 0))),
                              args[1], pst_v(at), pst_v(g))));
}

static enum pst_status infer_argmax(struct pst_infer *c)
{
    enum pst_status status = pst_reduce_not_empty(c, 1);

    return status != PST_OK ? status : pst_reduce_infer(c, 0, PST_I64, 1, 2);
}

static void run_both(const struct pst_call *c, const struct pst_reduction *how)
{
    pst_reduce_run(c, 1, how);
    pst_reduce_run_best(c, 1, 1, how);
}

KERNEL(max_dim, 1, max, BOTH, run_both(c, &max_how));
KERNEL(min_dim, 1, min, BOTH, run_both(c, &min_how));
KERNEL(argmax, 1, max, PLACE, pst_reduce_run_best(c, 1, 0, &max_how));
KERNEL(argmin, 1, min, PLACE, pst_reduce_run_best(c, 1, 0, &min_how));

const struct pst_op pst_op_max_dim = {
    .schema = "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> "
              "(Tensor values, Tensor indices)",
    .infer = infer_max_dim,
    .vjp = max_dim_vjp,
};
PST_CPU_KERNELS(max_dim, max_dim_kernels);

const struct pst_op pst_op_min_dim = {
    .schema = "aten::min.dim(Tensor self, int dim, bool keepdim=False) -> "
              "(Tensor values, Tensor indices)",
    .infer = infer_max_dim,
    .vjp = max_dim_vjp,
};
PST_CPU_KERNELS(min_dim, min_dim_kernels);

const struct pst_op pst_op_argmax = {
    .schema = "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) "
              "-> Tensor",
    .infer = infer_argmax,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(argmax, argmax_kernels);

const struct pst_op pst_op_argmin = {
    .schema = "aten::argmin(Tensor self, int? dim=None, bool keepdim=False) "
              "-> Tensor",
    .infer = infer_argmax,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(argmin, argmin_kernels);
