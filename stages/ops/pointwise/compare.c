// SPDX-License-Identifier: Apache-2.0
/* Comparisons, logical and bitwise operators, which have no gradients. */
#include "stages/ops/pointwise/pointwise.h"

/* --- comparisons --------------------------------------------------------- */

/* Compares after type promotion: i64 against f32 is compared in f32. */
static void compare(const struct pst_call *call, pst_pw_f64_fn f,
                    pst_pw_i64_fn i)
{
    struct pst_pw p;

    pst_pw_init(&p, call, 0, 2);
    p.compute = pst_result_type(call->args, 2);
    p.round = true;
    pst_pw_run(&p, f, i);
}

#define COMPARISON(name, op)                                                   \
    PST_PW_F64(name##_f64, 2, (double)(a op b))                                \
    PST_PW_I64(name##_i64, 2, a op b)                                          \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        compare(call, name##_f64, name##_i64);                                 \
    }                                                                          \
    PST_PW_LOOP_ROUNDED(name, 2, 0)                                            \
    PST_PW_THUNKS(name##_i64, name##_i64, pst_pw_loop_i64, 2)                  \
    static const struct pst_kernel name##_kernels[] = {                        \
        PST_PW_ROWS_I64(name, pst_pw_is_i64),                                  \
        PST_PW_ROWS_BOOL(name, pst_pw_is_question),                            \
        PST_PW_REF_KERNEL(name),                                               \
    };                                                                         \
    const struct pst_op pst_op_##name##_Tensor = {                             \
        .schema = "aten::" #name ".Tensor(Tensor self, Tensor other) -> "      \
                  "Tensor",                                                    \
        .infer = pst_infer_compare,                                            \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(name##_Tensor, name##_kernels);                            \
    const struct pst_op pst_op_##name##_Scalar = {                             \
        .schema = "aten::" #name ".Scalar(Tensor self, Scalar other) -> "      \
                  "Tensor",                                                    \
        .infer = pst_infer_compare,                                            \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(name##_Scalar, name##_kernels)

COMPARISON(eq, ==);
COMPARISON(ne, !=);
COMPARISON(lt, <);
COMPARISON(le, <=);
COMPARISON(gt, >);
COMPARISON(ge, >=);

/* --- logic: NaN is true --------------------------------------------------- */

static void logical(const struct pst_call *call, unsigned n, pst_pw_f64_fn f,
                    pst_pw_i64_fn i)
{
    const enum pst_dtype type = pst_result_type(call->args, n);
    struct pst_pw p;

    pst_pw_init(&p, call, 0, n);
    p.compute = pst_dtype_kind(type) == PST_KIND_INT ? type : PST_F64;
    pst_pw_run(&p, f, i);
}

#define LOGICAL(name, loop, expr)                                              \
    PST_PW_F64(name##_f64, 2, (double)(expr))                                  \
    PST_PW_I64(name##_i64, 2, expr)                                            \
    static void name##_ref(const struct pst_call *call)                        \
    {                                                                          \
        logical(call, 2, name##_f64, name##_i64);                              \
    }                                                                          \
    PST_PW_THUNKS(name, loop, pst_pw_loop_logic, 2)                            \
    static const struct pst_kernel name##_kernels[] = {                        \
        PST_PW_ROWS_BOOL(name, pst_pw_is_logic),                               \
        PST_PW_REF_KERNEL(name),                                               \
    };                                                                         \
    const struct pst_op pst_op_##name = {                                      \
        .schema = "aten::" #name "(Tensor self, Tensor other) -> Tensor",      \
        .infer = pst_infer_compare,                                            \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(name, name##_kernels)

LOGICAL(logical_and, and, a != 0 && b != 0);
LOGICAL(logical_or, or, a != 0 || b != 0);
LOGICAL(logical_xor, xor, (a != 0) != (b != 0));

PST_PW_F64(logical_not_f64, 1, (double)(a == 0.0))

static void logical_not_ref(const struct pst_call *call)
{
    logical(call, 1, logical_not_f64, NULL);
}

PST_PW_THUNKS(logical_not, not, pst_pw_loop_logic, 1)
static const struct pst_kernel logical_not_kernels[] = {
    PST_PW_ROWS_BOOL(logical_not, pst_pw_is_logic),
    PST_PW_REF_KERNEL(logical_not),
};

const struct pst_op pst_op_logical_not = {
    .schema = "aten::logical_not(Tensor self) -> Tensor",
    .infer = pst_infer_unary_bool,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(logical_not, logical_not_kernels);

/* --- bits: integers and bool ---------------------------------------------- */

static enum pst_status no_floats(struct pst_infer *c)
{
    if (pst_dtype_kind(c->out[0].dtype) == PST_KIND_FLOAT)
        return pst_infer_fail(c, "wants integers or bool, got %s",
                              pst_dtype_name(c->out[0].dtype));
    return PST_OK;
}

static enum pst_status infer_bits(struct pst_infer *c)
{
    enum pst_status status = pst_infer_binary(c);

    return status != PST_OK ? status : no_floats(c);
}

static enum pst_status infer_bitwise_not(struct pst_infer *c)
{
    enum pst_status status = pst_infer_same_as_0(c);

    return status != PST_OK ? status : no_floats(c);
}

static void never_f64(const struct pst_pw *p PST_UNUSED, int64_t n,
                      const double *const *x PST_UNUSED, double *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = 0.0;
}

#define BITS(name, id, loop, op)                                               \
    PST_PW_I64(id##_i64, 2, a op b)                                            \
    PST_PW_REF(id, 0, 2, never_f64, id##_i64)                                  \
    PST_PW_THUNKS(id, loop, pst_pw_loop_logic, 2)                              \
    static const struct pst_kernel id##_kernels[] = {                          \
        PST_PW_ROWS_BOOL(id, pst_pw_is_logic),                                 \
        PST_PW_REF_KERNEL(id),                                                 \
    };                                                                         \
    const struct pst_op pst_op_##id##_Tensor = {                               \
        .schema =                                                              \
            "aten::" name ".Tensor(Tensor self, Tensor other) -> Tensor",      \
        .infer = infer_bits,                                                   \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id##_Tensor, id##_kernels);                                \
    const struct pst_op pst_op_##id##_Scalar = {                               \
        .schema =                                                              \
            "aten::" name ".Scalar(Tensor self, Scalar other) -> Tensor",      \
        .infer = infer_bits,                                                   \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id##_Scalar, id##_kernels)

BITS("bitwise_and", bitwise_and, and, &);
BITS("bitwise_or", bitwise_or, or, |);
BITS("bitwise_xor", bitwise_xor, xor, ^);
BITS("__and__", __and__, and, &);
BITS("__or__", __or__, or, |);
BITS("__xor__", __xor__, xor, ^);

PST_PW_I64(bitwise_not_i64, 1, p->compute == PST_BOOL ? a == 0 : ~a)
PST_PW_REF(bitwise_not, 0, 1, never_f64, bitwise_not_i64)

PST_PW_THUNKS(bitwise_not, not, pst_pw_loop_logic, 1)
static const struct pst_kernel bitwise_not_kernels[] = {
    PST_PW_ROWS_BOOL(bitwise_not, pst_pw_is_logic),
    PST_PW_REF_KERNEL(bitwise_not),
};

const struct pst_op pst_op_bitwise_not = {
    .schema = "aten::bitwise_not(Tensor self) -> Tensor",
    .infer = infer_bitwise_not,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(bitwise_not, bitwise_not_kernels);
