// SPDX-License-Identifier: Apache-2.0
/* Addition, subtraction, multiplication, division, and simple unary
 * operators. */
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>

/* --- add, sub, rsub: a + s b, a - s b, b - s a --------------------------- */

PST_PW_F64(add_f64, 2, a + p->s[0] * b)
PST_PW_I64(add_i64, 2, (int64_t)((uint64_t)a + (uint64_t)p->k[0] * (uint64_t)b))
PST_PW_F64(sub_f64, 2, a - p->s[0] * b)
PST_PW_I64(sub_i64, 2, (int64_t)((uint64_t)a - (uint64_t)p->k[0] * (uint64_t)b))
PST_PW_F64(rsub_f64, 2, b - p->s[0] * a)
PST_PW_I64(rsub_i64, 2,
           (int64_t)((uint64_t)b - (uint64_t)p->k[0] * (uint64_t)a))

static void with_alpha(const struct pst_call *call, pst_pw_f64_fn f,
                       pst_pw_i64_fn i)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 2);
    p.round = true;
    p.s[0] = pst_pw_number(&call->args[2]);
    p.k[0] = pst_pw_integer(&call->args[2]);
    pst_pw_run(&p, f, i);
}

static void add_ref(const struct pst_call *call)
{
    with_alpha(call, add_f64, add_i64);
}

static void sub_ref(const struct pst_call *call)
{
    with_alpha(call, sub_f64, sub_i64);
}

static void rsub_ref(const struct pst_call *call)
{
    with_alpha(call, rsub_f64, rsub_i64);
}

/* alpha does not promote the dtype, so it must be an integer for integers. */
static enum pst_status infer_alpha(struct pst_infer *c)
{
    enum pst_status status = pst_infer_binary(c);

    if (status == PST_OK && c->args[2].kind == PST_ARG_FLOAT &&
        pst_dtype_kind(c->out[0].dtype) != PST_KIND_FLOAT)
        return pst_infer_fail(c, "a floating alpha for %s",
                              pst_dtype_name(c->out[0].dtype));
    return status;
}

static enum pst_status infer_sub(struct pst_infer *c)
{
    enum pst_status status = infer_alpha(c);

    if (status == PST_OK && c->out[0].dtype == PST_BOOL)
        return pst_infer_fail(c, "bool tensors cannot be subtracted");
    return status;
}

static struct pst_value *scaled(struct pst_vjp *v, struct pst_value *g,
                                double s)
{
    if (s == 1.0)
        return g;
    if (s == -1.0)
        return pst_vjp_neg(v, g);
    return pst_vjp_mul_scalar(v, g, s);
}

/* Sets the gradients s0 g of argument 0 and s1 g of argument 1. */
static enum pst_status linear_vjp(struct pst_vjp *v, double s0, double s1)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (pst_pw_wants(v, 0))
        (void)pst_pw_set(v, 0, scaled(v, g, s0));
    if (pst_pw_wants(v, 1))
        (void)pst_pw_set(v, 1, scaled(v, g, s1));
    return v->build.status;
}

static enum pst_status add_vjp(struct pst_vjp *v)
{
    return linear_vjp(v, 1.0, pst_pw_number(&v->node->args[2]));
}

static enum pst_status sub_vjp(struct pst_vjp *v)
{
    return linear_vjp(v, 1.0, -pst_pw_number(&v->node->args[2]));
}

static enum pst_status rsub_vjp(struct pst_vjp *v)
{
    return linear_vjp(v, -pst_pw_number(&v->node->args[2]), 1.0);
}

/* True if alpha is 1, so that the call computes a + b or a - b. */
static bool is_plain(const struct pst_call *call)
{
    return pst_pw_is_f32(call) && pst_pw_number(&call->args[2]) == 1.0;
}

PST_PW_LOOP_ROUNDED(add, 2, 0)
PST_PW_LOOP_ROUNDED(sub, 2, 0)
PST_PW_LOOP_ROUNDED(rsub, 2, 0)
PST_PW_LOOP_ROUNDED(add_scaled, 2, 1)
PST_PW_LOOP_ROUNDED(sub_scaled, 2, 1)
PST_PW_LOOP_ROUNDED(rsub_scaled, 2, 1)

/* True for an i64 add or sub with alpha = 1. Its kernel cannot accumulate, as
 * it need not: i64 has no gradients. */
static bool is_plain_i64(const struct pst_call *call)
{
    return pst_pw_is_i64(call) && call->out[0].meta->dtype == PST_I64 &&
           call->args[2].kind != PST_ARG_FLOAT &&
           pst_pw_number(&call->args[2]) == 1.0;
}

static bool is_product_i64(const struct pst_call *call)
{
    return pst_pw_is_i64(call) && call->out[0].meta->dtype == PST_I64;
}

PST_PW_THUNKS(add_i64, add_i64, pst_pw_loop_i64, 2)
PST_PW_THUNKS(sub_i64, sub_i64, pst_pw_loop_i64, 2)
PST_PW_THUNKS(mul_i64, mul_i64, pst_pw_loop_i64, 2)

#define SUM(name, ...)                                                         \
    static const struct pst_kernel name##_kernels[] = {                        \
        __VA_ARGS__ PST_PW_ROWS(name, is_plain, 0.0),                          \
        PST_PW_ROWS(name##_scaled, pst_pw_is_f32, 2e-7),                       \
        PST_PW_REF_KERNEL(name),                                               \
    }
SUM(add, PST_PW_ROWS_I64(add, is_plain_i64), );
SUM(sub, PST_PW_ROWS_I64(sub, is_plain_i64), );
SUM(rsub, );

const struct pst_op pst_op_add_Tensor = {
    .schema = "aten::add.Tensor(Tensor self, Tensor other, *, "
              "Scalar alpha=1) -> Tensor",
    .flags = PST_OP_PASSES_ON | PST_OP_CHEAP,
    .infer = infer_alpha,
    .vjp = add_vjp,
};
PST_CPU_KERNELS(add_Tensor, add_kernels);

const struct pst_op pst_op_add_Scalar = {
    .schema = "aten::add.Scalar(Tensor self, Scalar other, "
              "Scalar alpha=1) -> Tensor",
    .flags = PST_OP_PASSES_ON | PST_OP_CHEAP,
    .infer = infer_alpha,
    .vjp = add_vjp,
};
PST_CPU_KERNELS(add_Scalar, add_kernels);

const struct pst_op pst_op_sub_Tensor = {
    .schema = "aten::sub.Tensor(Tensor self, Tensor other, *, "
              "Scalar alpha=1) -> Tensor",
    .flags = PST_OP_PASSES_ON | PST_OP_CHEAP,
    .infer = infer_sub,
    .vjp = sub_vjp,
};
PST_CPU_KERNELS(sub_Tensor, sub_kernels);

const struct pst_op pst_op_sub_Scalar = {
    .schema = "aten::sub.Scalar(Tensor self, Scalar other, "
              "Scalar alpha=1) -> Tensor",
    .flags = PST_OP_CHEAP,
    .infer = infer_sub,
    .vjp = sub_vjp,
};
PST_CPU_KERNELS(sub_Scalar, sub_kernels);

const struct pst_op pst_op_rsub_Tensor = {
    .schema = "aten::rsub.Tensor(Tensor self, Tensor other, *, "
              "Scalar alpha=1) -> Tensor",
    .flags = PST_OP_CHEAP,
    .infer = infer_sub,
    .vjp = rsub_vjp,
};
PST_CPU_KERNELS(rsub_Tensor, rsub_kernels);

const struct pst_op pst_op_rsub_Scalar = {
    .schema = "aten::rsub.Scalar(Tensor self, Scalar other, "
              "Scalar alpha=1) -> Tensor",
    .flags = PST_OP_CHEAP,
    .infer = infer_sub,
    .vjp = rsub_vjp,
};
PST_CPU_KERNELS(rsub_Scalar, rsub_kernels);

/* --- mul, div ------------------------------------------------------------ */

PST_PW_F64(mul_f64, 2, a *b)
PST_PW_I64(mul_i64, 2, (int64_t)((uint64_t)a *(uint64_t)b))
PST_PW_F64(div_f64, 2, a / b)
PST_PW_REF(mul, 0, 2, mul_f64, mul_i64)
PST_PW_REF(div, 0, 2, div_f64, NULL)

/* Returns g times argument arg, which is a tensor or a number. */
static struct pst_value *times(struct pst_vjp *v, struct pst_value *g,
                               unsigned arg)
{
    struct pst_value *x = pst_vjp_in(v, arg);

    if (x != NULL)
        return pst_vjp_mul(v, g, x);
    return scaled(v, g, pst_pw_number(&v->node->args[arg]));
}

static enum pst_status mul_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0);

    if (pst_pw_wants(v, 0))
        (void)pst_pw_set(v, 0, times(v, g, 1));
    if (pst_pw_wants(v, 1))
        (void)pst_pw_set(v, 1, times(v, g, 0));
    return v->build.status;
}

/* d(a/b) = da/b - (a/b)/b db; the result is a/b. */
static enum pst_status div_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *b = pst_vjp_in(v, 1);

    if (b != NULL)
        g = pst_vjp_div(v, g, b);
    else
        g = pst_vjp_div_scalar(v, g, pst_pw_number(&v->node->args[1]));
    if (pst_pw_wants(v, 0))
        (void)pst_pw_set(v, 0, g);
    if (pst_pw_wants(v, 1))
        (void)pst_pw_set(v, 1,
                         pst_vjp_neg(v, pst_vjp_mul(v, g, pst_vjp_out(v, 0))));
    return v->build.status;
}

PST_PW_LOOP(mul, 2, 0)
PST_PW_LOOP(div, 2, 0)

static const struct pst_kernel mul_kernels[] = {
    PST_PW_ROWS_I64(mul, is_product_i64),
    PST_PW_ROWS(mul, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(mul),
};
static const struct pst_kernel div_kernels[] = {
    PST_PW_ROWS(div, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(div),
};

const struct pst_op pst_op_mul_Tensor = {
    .schema = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
    .flags = PST_OP_PASSES_ON | PST_OP_CHEAP,
    .infer = pst_infer_binary,
    .vjp = mul_vjp,
};
PST_CPU_KERNELS(mul_Tensor, mul_kernels);

const struct pst_op pst_op_mul_Scalar = {
    .schema = "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor",
    .flags = PST_OP_PASSES_ON | PST_OP_CHEAP,
    .infer = pst_infer_binary,
    .vjp = mul_vjp,
};
PST_CPU_KERNELS(mul_Scalar, mul_kernels);

const struct pst_op pst_op_div_Tensor = {
    .schema = "aten::div.Tensor(Tensor self, Tensor other) -> Tensor",
    .infer = pst_infer_binary_float,
    .vjp = div_vjp,
};
PST_CPU_KERNELS(div_Tensor, div_kernels);

const struct pst_op pst_op_div_Scalar = {
    .schema = "aten::div.Scalar(Tensor self, Scalar other) -> Tensor",
    .flags = PST_OP_PASSES_ON | PST_OP_CHEAP,
    .infer = pst_infer_binary_float,
    .vjp = div_vjp,
};
PST_CPU_KERNELS(div_Scalar, div_kernels);

/* --- one operand --------------------------------------------------------- */

PST_PW_F64(neg_f64, 1, -a)
PST_PW_I64(neg_i64, 1, (int64_t)(0 - (uint64_t)a))
PST_PW_F64(abs_f64, 1, fabs(a))
PST_PW_I64(abs_i64, 1, a < 0 ? (int64_t)(0 - (uint64_t)a) : a)
PST_PW_F64(sign_f64, 1, (double)((a > 0) - (a < 0)))
PST_PW_I64(sign_i64, 1, (a > 0) - (a < 0))
PST_PW_F64(reciprocal_f64, 1, 1.0 / a)
PST_PW_REF(neg, 0, 1, neg_f64, neg_i64)
PST_PW_REF(abs, 0, 1, abs_f64, abs_i64)
PST_PW_REF(sign, 0, 1, sign_f64, sign_i64)
PST_PW_REF(reciprocal, 0, 1, reciprocal_f64, NULL)

static enum pst_status infer_neg(struct pst_infer *c)
{
    enum pst_status status = pst_infer_same_as_0(c);

    if (status == PST_OK && c->out[0].dtype == PST_BOOL)
        return pst_infer_fail(c, "a bool tensor cannot be negated");
    return status;
}

static enum pst_status neg_vjp(struct pst_vjp *v)
{
    return pst_pw_set(v, 0, pst_vjp_neg(v, pst_vjp_grad(v, 0)));
}

static enum pst_status abs_vjp(struct pst_vjp *v)
{
    struct pst_value *sign =
        pst_vjp_emit(v, &pst_op_sign, PST_ARGS(pst_v(pst_vjp_in(v, 0))));

    return pst_pw_set(v, 0, pst_vjp_mul(v, pst_vjp_grad(v, 0), sign));
}

static enum pst_status sign_vjp(struct pst_vjp *v)
{
    return pst_pw_set(v, 0, pst_vjp_zeros_like(v, pst_vjp_in(v, 0)));
}

/* d(1/a) = -(1/a)^2 da */
static enum pst_status reciprocal_vjp(struct pst_vjp *v)
{
    struct pst_value *y = pst_vjp_out(v, 0);
    struct pst_value *g = pst_vjp_mul(v, pst_vjp_grad(v, 0), y);

    return pst_pw_set(v, 0, pst_vjp_neg(v, pst_vjp_mul(v, g, y)));
}

PST_PW_LOOP(neg, 1, 0)
PST_PW_LOOP(abs, 1, 0)
PST_PW_LOOP(sign, 1, 0)
PST_PW_LOOP(reciprocal, 1, 0)

static const struct pst_kernel neg_kernels[] = {
    PST_PW_ROWS(neg, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(neg),
};
static const struct pst_kernel abs_kernels[] = {
    PST_PW_ROWS(abs, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(abs),
};
static const struct pst_kernel sign_kernels[] = {
    PST_PW_ROWS(sign, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(sign),
};
static const struct pst_kernel reciprocal_kernels[] = {
    PST_PW_ROWS(reciprocal, pst_pw_is_f32, 0.0),
    PST_PW_REF_KERNEL(reciprocal),
};

const struct pst_op pst_op_neg = {
    .schema = "aten::neg(Tensor self) -> Tensor",
    .flags = PST_OP_PASSES_ON | PST_OP_CHEAP,
    .infer = infer_neg,
    .vjp = neg_vjp,
};
PST_CPU_KERNELS(neg, neg_kernels);

const struct pst_op pst_op_abs = {
    .schema = "aten::abs(Tensor self) -> Tensor",
    .flags = PST_OP_CHEAP,
    .infer = pst_infer_same_as_0,
    .vjp = abs_vjp,
};
PST_CPU_KERNELS(abs, abs_kernels);

const struct pst_op pst_op_sign = {
    .schema = "aten::sign(Tensor self) -> Tensor",
    .infer = pst_infer_same_as_0,
    .vjp = sign_vjp,
};
PST_CPU_KERNELS(sign, sign_kernels);

const struct pst_op pst_op_reciprocal = {
    .schema = "aten::reciprocal(Tensor self) -> Tensor",
    .infer = pst_infer_unary_float,
    .vjp = reciprocal_vjp,
};
PST_CPU_KERNELS(reciprocal, reciprocal_kernels);
