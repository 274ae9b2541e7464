// SPDX-License-Identifier: Apache-2.0
/* Tensors filled with one number. empty and similar operators return zeros, so
 * that nothing depends on old contents of memory. */
#include "stages/ops/pointwise/pointwise.h"
#include "stages/ops/view/view.h"

#include <string.h>

/* Returns the argument "dtype", else `otherwise`. */
static enum pst_dtype dtype_or(const struct pst_infer *c,
                               enum pst_dtype otherwise)
{
    const int arg = pst_schema_arg(c->schema, "dtype");

    return arg >= 0 && c->args[arg].kind == PST_ARG_DTYPE
               ? (enum pst_dtype)c->args[arg].i
               : otherwise;
}

/* Returns the argument "dtype", else the result's dtype in the model file, else
 * `otherwise`. */
static enum pst_dtype dtype_of(const struct pst_infer *c,
                               enum pst_dtype otherwise)
{
    return dtype_or(c, c->hint < PST_N_DTYPES ? c->hint : otherwise);
}

static enum pst_status set_sizes(struct pst_infer *c, enum pst_dtype dtype,
                                 const struct pst_arg *size)
{
    return pst_infer_set(c, 0, dtype, size->n, size->ints);
}

/* Without a dtype, the result has the dtype of the fill value. */
static enum pst_status infer_full(struct pst_infer *c)
{
    enum pst_dtype dtype = PST_F32;

    if (c->args[1].kind == PST_ARG_INT)
        dtype = PST_I64;
    else if (c->args[1].kind == PST_ARG_BOOL)
        dtype = PST_BOOL;
    return set_sizes(c, dtype_of(c, dtype), &c->args[0]);
}

static enum pst_status infer_zeros(struct pst_infer *c)
{
    return set_sizes(c, dtype_of(c, PST_F32), &c->args[0]);
}

/* Without an argument "dtype", uses the tensor's dtype, not the one in the
 * model file: --autocast may have changed the tensor's. */
static enum pst_status infer_like(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    return status != PST_OK
               ? status
               : pst_infer_set_like(c, 0, dtype_or(c, x->dtype), x);
}

static enum pst_status infer_new(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    return status != PST_OK ? status
                            : set_sizes(c, dtype_or(c, x->dtype), &c->args[1]);
}

static enum pst_status infer_scalar_tensor(struct pst_infer *c)
{
    return pst_infer_set(c, 0, dtype_of(c, PST_F32), 0, NULL);
}

/* --- kernels -------------------------------------------------------------- */

static void fill_output(const struct pst_call *c, const struct pst_arg *number)
{
    struct pst_meta one = {.dtype = PST_I64};
    const double f = pst_pw_number(number);
    const int64_t i = pst_pw_integer(number);

    if (number->kind == PST_ARG_FLOAT)
        one.dtype = PST_F64;
    pst_view_copy(c->pool, &one,
                  number->kind == PST_ARG_FLOAT ? (const void *)&f
                                                : (const void *)&i,
                  c->out[0].meta, c->out[0].data, false);
}

static void fill_first_ref(const struct pst_call *c)
{
    fill_output(c, &c->args[0]);
}

static void fill_second_ref(const struct pst_call *c)
{
    fill_output(c, &c->args[1]);
}

static void fill_third_ref(const struct pst_call *c)
{
    fill_output(c, &c->args[2]);
}

static void fill_ones_ref(const struct pst_call *c)
{
    const struct pst_arg one = {.kind = PST_ARG_INT, .i = 1};

    fill_output(c, &one);
}

/* Fills with zeros: all-zero bits mean 0 in every dtype. */
static void fill_zeros_ref(const struct pst_call *c)
{
    pst_view_zero(c->out[0].meta, c->out[0].data);
}

#define KERNELS(name)                                                          \
    static const struct pst_kernel name##_kernels[] = {                        \
        {#name "_ref", PST_ISA_ANY, PST_D_ANY,                                 \
         PST_K_STRIDED | PST_VIEW_IS_COPIES, NULL, NULL, name##_ref, 0.0},     \
    }

KERNELS(fill_first);
KERNELS(fill_second);
KERNELS(fill_third);
KERNELS(fill_ones);
KERNELS(fill_zeros);

#define OPTIONS                                                                \
    "*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "    \
    "bool? pin_memory=None"
#define FORMAT ", MemoryFormat? memory_format=None"

#define ROW(id, text, how, table)                                              \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text ") -> Tensor",                                 \
        .infer = how,                                                          \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, table)

ROW(full, "full(SymInt[] size, Scalar fill_value, " OPTIONS, infer_full,
    fill_second_kernels);
ROW(full_like, "full_like(Tensor self, Scalar fill_value, " OPTIONS FORMAT,
    infer_like, fill_second_kernels);
ROW(new_full,
    "new_full(Tensor self, SymInt[] size, Scalar fill_value, " OPTIONS,
    infer_new, fill_third_kernels);
ROW(scalar_tensor, "scalar_tensor(Scalar s, " OPTIONS, infer_scalar_tensor,
    fill_first_kernels);
ROW(ones, "ones(SymInt[] size, " OPTIONS, infer_zeros, fill_ones_kernels);
ROW(ones_like, "ones_like(Tensor self, " OPTIONS FORMAT, infer_like,
    fill_ones_kernels);
ROW(new_ones, "new_ones(Tensor self, SymInt[] size, " OPTIONS, infer_new,
    fill_ones_kernels);
ROW(zeros, "zeros(SymInt[] size, " OPTIONS, infer_zeros, fill_zeros_kernels);
ROW(zeros_like, "zeros_like(Tensor self, " OPTIONS FORMAT, infer_like,
    fill_zeros_kernels);
ROW(new_zeros, "new_zeros(Tensor self, SymInt[] size, " OPTIONS, infer_new,
    fill_zeros_kernels);
ROW(zero, "zero(Tensor self", pst_infer_same_as_0, fill_zeros_kernels);
ROW(empty_memory_format, "empty.memory_format(SymInt[] size, " OPTIONS FORMAT,
    infer_zeros, fill_zeros_kernels);
ROW(empty_like, "empty_like(Tensor self, " OPTIONS FORMAT, infer_like,
    fill_zeros_kernels);
ROW(new_empty, "new_empty(Tensor self, SymInt[] size, " OPTIONS, infer_new,
    fill_zeros_kernels);
