// SPDX-License-Identifier: Apache-2.0
/* Selection between elements: where, masked_fill, clamp, maximum, minimum. */
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

/* --- where ---------------------------------------------------------------- */

/* The side that is not selected has no effect, even if it is NaN. */
PST_PW_F64(where_f64, 3, a != 0.0 ? b : c)
PST_PW_I64(where_i64, 3, a != 0 ? b : c)
PST_PW_REF(where, 0, 3, where_f64, where_i64)

static const unsigned where_order[3] = {0, 1, 2};

static bool is_where_f32(const struct pst_call *call)
{
    return pst_pw_is_choice(call, 0);
}

PST_PW_THUNKS(where, where, pst_pw_loop_choice, where_order)
static const struct pst_kernel where_kernels[] = {
    PST_PW_ROWS(where, is_where_f32, 0.0),
    PST_PW_REF_KERNEL(where),
};

static enum pst_status infer_where(struct pst_infer *c)
{
    const struct pst_meta *cond;
    enum pst_status status = pst_infer_tensor(c, 0, &cond);

    if (status != PST_OK)
        return status;
    if (cond->dtype != PST_BOOL && cond->dtype != PST_U8)
        return pst_infer_fail(c, "the condition is %s, not bool",
                              pst_dtype_name(cond->dtype));
    return pst_infer_broadcast(c, 0, 0, 3, pst_result_type(c->args + 1, 2));
}

static enum pst_status where_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *cond = pst_vjp_in(v, 0);

    if (pst_pw_wants(v, 1))
        (void)pst_pw_set(v, 1, pst_vjp_where(v, cond, g, NULL));
    if (pst_pw_wants(v, 2))
        (void)pst_pw_set(v, 2, pst_vjp_where(v, cond, NULL, g));
    return v->build.status;
}

#define WHERE(id, text)                                                        \
    const struct pst_op pst_op_where_##id = {                                  \
        .schema = "aten::where." text " -> Tensor",                            \
        .infer = infer_where,                                                  \
        .vjp = where_vjp,                                                      \
    };                                                                         \
    PST_CPU_KERNELS(where_##id, where_kernels)

WHERE(self, "self(Tensor condition, Tensor self, Tensor other)");
WHERE(ScalarOther, "ScalarOther(Tensor condition, Tensor self, Scalar other)");
WHERE(ScalarSelf, "ScalarSelf(Tensor condition, Scalar self, Tensor other)");
WHERE(Scalar, "Scalar(Tensor condition, Scalar self, Scalar other)");

/* --- masked_fill ---------------------------------------------------------- */

PST_PW_F64(masked_fill_f64, 3, b != 0.0 ? c : a)
PST_PW_I64(masked_fill_i64, 3, b != 0 ? c : a)
PST_PW_REF(masked_fill, 0, 3, masked_fill_f64, masked_fill_i64)

static const unsigned masked_fill_order[3] = {1, 0, 2};

static bool is_masked_fill_f32(const struct pst_call *call)
{
    return pst_pw_is_choice(call, 1);
}

PST_PW_THUNKS(masked_fill, masked_fill, pst_pw_loop_choice, masked_fill_order)
static const struct pst_kernel masked_fill_kernels[] = {
    PST_PW_ROWS(masked_fill, is_masked_fill_f32, 0.0),
    PST_PW_REF_KERNEL(masked_fill),
};

static enum pst_status infer_masked_fill(struct pst_infer *c)
{
    const struct pst_meta *x, *mask;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &mask);
    if (status != PST_OK)
        return status;
    if (mask->dtype != PST_BOOL)
        return pst_infer_fail(c, "the mask is %s, not bool",
                              pst_dtype_name(mask->dtype));
    if (c->args[2].kind == PST_ARG_VALUE && c->args[2].value->meta.rank != 0)
        return pst_infer_fail(c, "the value must be a number or a tensor "
                                 "without dimensions");
    return pst_infer_broadcast(c, 0, 0, 2, x->dtype);
}

static enum pst_status masked_fill_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *mask = pst_vjp_in(v, 1);

    if (pst_pw_wants(v, 0))
        (void)pst_pw_set(v, 0, pst_vjp_where(v, mask, NULL, g));
    if (pst_pw_wants(v, 2))
        (void)pst_pw_set(v, 2, pst_vjp_where(v, mask, g, NULL));
    return v->build.status;
}

const struct pst_op pst_op_masked_fill_Scalar = {
    .schema = "aten::masked_fill.Scalar(Tensor self, Tensor mask, "
              "Scalar value) -> Tensor",
    .infer = infer_masked_fill,
    .vjp = masked_fill_vjp,
};
PST_CPU_KERNELS(masked_fill_Scalar, masked_fill_kernels);

const struct pst_op pst_op_masked_fill_Tensor = {
    .schema = "aten::masked_fill.Tensor(Tensor self, Tensor mask, "
              "Tensor value) -> Tensor",
    .infer = infer_masked_fill,
    .vjp = masked_fill_vjp,
};
PST_CPU_KERNELS(masked_fill_Tensor, masked_fill_kernels);

/* --- clamp ---------------------------------------------------------------- */

/* A NaN element stays NaN, a NaN bound gives NaN, and if min > max the result
 * is max. */
static double clamp_at(double x, double lo, double hi)
{
    if (isnan(x))
        return x;
    if (x < lo || isnan(lo))
        x = lo;
    if (x > hi || isnan(hi))
        x = hi;
    return x;
}

PST_PW_F64(clamp_f64, 1, clamp_at(a, p->s[0], p->s[1]))

static void clamp_i64(const struct pst_pw *p, int64_t n,
                      const int64_t *const *x, int64_t *y)
{
    const struct pst_arg *lo = &p->call->args[1], *hi = &p->call->args[2];
    const int64_t least = pst_pw_wrap(p->compute, pst_pw_integer(lo));
    const int64_t most = pst_pw_wrap(p->compute, pst_pw_integer(hi));

    for (int64_t i = 0; i < n; i++) {
        y[i] = x[0][i];
        if (lo->kind != PST_ARG_NONE)
            y[i] = PST_MAX(y[i], least);
        if (hi->kind != PST_ARG_NONE)
            y[i] = PST_MIN(y[i], most);
    }
}

/* Returns g where min <= x <= max, else 0. Operands: grad, self. */
PST_PW_F64(clamp_backward_f64, 2, b >= p->s[0] && b <= p->s[1] ? a : 0.0)

/* Sets the bounds s[0] and s[1], rounded to f32 unless computed in f64. */
static void bounds(struct pst_pw *p, const struct pst_arg *lo,
                   const struct pst_arg *hi)
{
    const bool f64 = p->compute == PST_F64;

    p->s[0] = lo->kind == PST_ARG_NONE ? -INFINITY : pst_pw_number(lo);
    p->s[1] = hi->kind == PST_ARG_NONE ? INFINITY : pst_pw_number(hi);
    for (unsigned k = 0; k < 2 && !f64; k++)
        p->s[k] = (double)(float)p->s[k];
}

static void clamp_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 1);
    bounds(&p, &call->args[1], &call->args[2]);
    pst_pw_run(&p, clamp_f64, clamp_i64);
}

static void clamp_backward_ref(const struct pst_call *call)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 2);
    bounds(&p, &call->args[2], &call->args[3]);
    pst_pw_run(&p, clamp_backward_f64, NULL);
}

static void clamp_loop(const struct pst_call *call, unsigned n, unsigned first,
                       pst_loop_fn f)
{
    const struct pst_arg *lo = &call->args[first], *hi = lo + 1;
    const float s[3] = {
        lo->kind == PST_ARG_NONE ? -INFINITY : (float)pst_pw_number(lo),
        hi->kind == PST_ARG_NONE ? INFINITY : (float)pst_pw_number(hi), 0.0f};

    pst_pw_loop_with(call, n, s, f);
}

PST_PW_THUNKS(clamp, clamp, clamp_loop, 1, 1)
PST_PW_THUNKS(clamp_backward, clamp_backward, clamp_loop, 2, 2)

static const struct pst_kernel clamp_kernels[] = {
    PST_PW_ROWS(clamp, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(clamp),
};
static const struct pst_kernel clamp_backward_kernels[] = {
    PST_PW_ROWS(clamp_backward, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(clamp_backward),
};

static enum pst_status infer_clamp(struct pst_infer *c)
{
    if (c->args[1].kind == PST_ARG_NONE && c->args[2].kind == PST_ARG_NONE)
        return pst_infer_fail(c, "min or max must be given");
    return pst_pw_infer_scalar(c);
}

static enum pst_status clamp_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_emit(
        v, &pst_op_clamp_backward,
        PST_ARGS(pst_v(pst_vjp_grad(v, 0)), pst_v(pst_vjp_in(v, 0)),
                 v->node->args[1], v->node->args[2]));

    return pst_pw_set(v, 0, g);
}

const struct pst_op pst_op_clamp = {
    .schema = "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) "
              "-> Tensor",
    .infer = infer_clamp,
    .vjp = clamp_vjp,
};
PST_CPU_KERNELS(clamp, clamp_kernels);

const struct pst_op pst_op_clamp_backward = {
    .schema = "penstock::clamp_backward(Tensor grad_output, Tensor self, "
              "Scalar? min=None, Scalar? max=None) -> Tensor",
    .infer = pst_pw_infer_backward,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(clamp_backward, clamp_backward_kernels);

/* --- maximum, minimum ----------------------------------------------------- */

PST_PW_F64(maximum_f64, 2, isnan(a) || a > b ? a : b)
PST_PW_I64(maximum_i64, 2, PST_MAX(a, b))
PST_PW_F64(minimum_f64, 2, isnan(a) || a < b ? a : b)
PST_PW_I64(minimum_i64, 2, PST_MIN(a, b))
PST_PW_REF(maximum, 0, 2, maximum_f64, maximum_i64)
PST_PW_REF(minimum, 0, 2, minimum_f64, minimum_i64)

/* If elements are equal, each gets half of the gradient. */
static enum pst_status extremum_vjp(struct pst_vjp *v,
                                    const struct pst_op *less)
{
    struct pst_value *g = pst_vjp_grad(v, 0);
    struct pst_value *a = pst_vjp_in(v, 0), *b = pst_vjp_in(v, 1);
    struct pst_value *equal, *loses;

    equal = pst_vjp_emit(v, &pst_op_eq_Tensor, PST_ARGS(pst_v(a), pst_v(b)));
    g = pst_vjp_where(v, equal, pst_vjp_mul_scalar(v, g, 0.5), g);
    if (pst_pw_wants(v, 0)) {
        loses = pst_vjp_emit(v, less, PST_ARGS(pst_v(a), pst_v(b)));
        (void)pst_pw_set(v, 0, pst_vjp_where(v, loses, NULL, g));
    }
    if (pst_pw_wants(v, 1)) {
        loses = pst_vjp_emit(v, less, PST_ARGS(pst_v(b), pst_v(a)));
        (void)pst_pw_set(v, 1, pst_vjp_where(v, loses, NULL, g));
    }
    return v->build.status;
}

static enum pst_status maximum_vjp(struct pst_vjp *v)
{
    return extremum_vjp(v, &pst_op_lt_Tensor);
}

static enum pst_status minimum_vjp(struct pst_vjp *v)
{
    return extremum_vjp(v, &pst_op_gt_Tensor);
}

PST_PW_LOOP(maximum, 2, 0)
static const struct pst_kernel maximum_kernels[] = {
    PST_PW_ROWS(maximum, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(maximum),
};
PST_PW_LOOP(minimum, 2, 0)
static const struct pst_kernel minimum_kernels[] = {
    PST_PW_ROWS(minimum, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(minimum),
};

const struct pst_op pst_op_maximum = {
    .schema = "aten::maximum(Tensor self, Tensor other) -> Tensor",
    .infer = pst_infer_binary,
    .vjp = maximum_vjp,
};
PST_CPU_KERNELS(maximum, maximum_kernels);

const struct pst_op pst_op_minimum = {
    .schema = "aten::minimum(Tensor self, Tensor other) -> Tensor",
    .infer = pst_infer_binary,
    .vjp = minimum_vjp,
};
PST_CPU_KERNELS(minimum, minimum_kernels);

/* NaN on either side gives NaN. Where the bound is the result, it gets the
 * gradient. */
PST_PW_FAST_ROW(clamp_min_Tensor,
                "clamp_min.Tensor(Tensor self, Tensor min) -> Tensor",
                pst_infer_binary, maximum, 0.0,
                "self: self >= min ? grad : 0; min: self < min ? grad : 0");
PST_PW_FAST_ROW(clamp_max_Tensor,
                "clamp_max.Tensor(Tensor self, Tensor max) -> Tensor",
                pst_infer_binary, minimum, 0.0,
                "self: self <= max ? grad : 0; max: self > max ? grad : 0");
