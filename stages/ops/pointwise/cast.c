// SPDX-License-Identifier: Apache-2.0
/* Casts, copies, and operators that return their input. */
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/pointwise.h"
#include "stages/ops/view/view.h"

/* --- aliases -------------------------------------------------------------- */

static enum pst_status infer_alias(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    return status != PST_OK ? status : pst_infer_view(c, 0, 0, x, 0);
}

static enum pst_status alias_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(v, 0, pst_vjp_grad(v, 0));
}

const struct pst_op pst_op_alias = {
    .schema = "aten::alias(Tensor(a) self) -> Tensor(a)",
    .flags = PST_OP_VIEW | PST_OP_PASSES_ON,
    .infer = infer_alias,
    .vjp = alias_vjp,
};

const struct pst_op pst_op_detach = {
    .schema = "aten::detach(Tensor(a) self) -> Tensor(a)",
    .flags = PST_OP_VIEW,
    .infer = infer_alias,
    .vjp = pst_vjp_none,
};

/* The gradient is g where pred (one bool) equals `value`, and zero
 * elsewhere, even if g is NaN or infinite. */
static enum pst_status pass_if_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *closed = pst_vjp_in(v, 1);

    if (v->node->args[2].b)
        closed = pst_vjp_emit(v, &pst_op_logical_not, PST_ARGS(pst_v(closed)));
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_masked_fill_Scalar,
                     PST_ARGS(pst_v(g), pst_v(closed), pst_f(0.0))));
}

/* Wraps each input of a branch of a condition. Both branches are computed, and
 * a branch that is not taken (say, log of a negative number) must not
 * contribute to the gradient. */
const struct pst_op pst_op_pass_if = {
    .schema = "penstock::pass_if(Tensor(a) self, Tensor pred, bool value) -> "
              "Tensor(a)",
    .flags = PST_OP_VIEW,
    .infer = infer_alias,
    .vjp = pass_if_vjp,
};

static enum pst_status infer_contiguous(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pst_meta_is_contiguous(x))
        return pst_infer_view(c, 0, 0, x, 0);
    return pst_infer_set_like(c, 0, x->dtype, x);
}

const struct pst_op pst_op_contiguous = {
    .schema = "aten::contiguous(Tensor(a) self, *, "
              "MemoryFormat memory_format=0) -> Tensor(a)",
    .flags = PST_OP_MAYBE_VIEW | PST_OP_PASSES_ON,
    .infer = infer_contiguous,
    .vjp = alias_vjp,
};
PST_CPU_KERNELS(contiguous, pst_view_copy_kernels);

/* --- casts ---------------------------------------------------------------- */

static enum pst_status cast_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_cast(v, pst_vjp_grad(v, 0), pst_vjp_in(v, 0)->meta.dtype));
}

/* Infers a view of the tensor if its dtype is unchanged and no copy is
 * requested; else a copy. */
static enum pst_status cast_to(struct pst_infer *c, enum pst_dtype dtype,
                               bool copy)
{
    const struct pst_meta *x = pst_infer_in(c, 0);

    if (x->dtype == dtype && !copy)
        return pst_infer_view(c, 0, 0, x, 0);
    return pst_infer_set_like(c, 0, dtype, x);
}

static bool wants_copy(const struct pst_infer *c)
{
    const int arg = pst_schema_arg(c->schema, "copy");

    return arg >= 0 && c->args[arg].kind == PST_ARG_BOOL && c->args[arg].b;
}

/* Casts to the argument "dtype"; without it, keeps the dtype of the tensor. */
static enum pst_status infer_to(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    return cast_to(c,
                   pst_infer_dtype(c,
                                   (unsigned)pst_schema_arg(c->schema, "dtype"),
                                   x->dtype),
                   wants_copy(c));
}

static enum pst_status infer_to_other(struct pst_infer *c)
{
    const struct pst_meta *x, *other;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_tensor(c, 1, &other);
    return status != PST_OK ? status : cast_to(c, other->dtype, wants_copy(c));
}

static enum pst_status infer_to_copy(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    return pst_infer_set_like(c, 0, pst_infer_dtype(c, 1, x->dtype), x);
}

#define CAST(id, text, bits, how)                                              \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .flags = bits,                                                         \
        .infer = how,                                                          \
        .vjp = cast_vjp,                                                       \
    };                                                                         \
    PST_CPU_KERNELS(id, pst_view_copy_kernels)

CAST(to_dtype,
     "to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, "
     "bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
     PST_OP_MAYBE_VIEW | PST_OP_PASSES_ON, infer_to);
CAST(to_dtype_layout,
     "to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, "
     "Layout? layout=None, Device? device=None, bool? pin_memory=None, "
     "bool non_blocking=False, bool copy=False, "
     "MemoryFormat? memory_format=None) -> Tensor(a)",
     PST_OP_MAYBE_VIEW, infer_to);
CAST(to_device,
     "to.device(Tensor(a) self, Device device, ScalarType dtype, "
     "bool non_blocking=False, bool copy=False, "
     "MemoryFormat? memory_format=None) -> Tensor(a)",
     PST_OP_MAYBE_VIEW, infer_to);
CAST(to_other,
     "to.other(Tensor(a) self, Tensor other, bool non_blocking=False, "
     "bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
     PST_OP_MAYBE_VIEW, infer_to_other);
CAST(type_as, "type_as(Tensor self, Tensor other) -> Tensor", PST_OP_MAYBE_VIEW,
     infer_to_other);
CAST(_to_copy,
     "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, "
     "Device? device=None, bool? pin_memory=None, bool non_blocking=False, "
     "MemoryFormat? memory_format=None) -> Tensor",
     PST_OP_PASSES_ON, infer_to_copy);
CAST(clone, "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
     PST_OP_PASSES_ON, pst_infer_same_as_0);
CAST(lift_fresh_copy, "lift_fresh_copy(Tensor self) -> Tensor", 0,
     pst_infer_same_as_0);

/* --- functional variants of writes ---------------------------------------- */

/* Writes in[1], or the number that the call has in its place, with the shape
 * and dtype of in[0]. */
static void write_into(const struct pst_call *c, bool reference)
{
    struct pst_meta from = {.dtype = PST_I64}; /* without dimensions */
    const int64_t whole = pst_pw_integer(&c->args[1]);
    const double number = pst_pw_number(&c->args[1]);
    const void *src = &whole;

    if (c->args[1].kind == PST_ARG_FLOAT) {
        from.dtype = PST_F64;
        src = &number;
    } else if (c->args[1].kind == PST_ARG_VALUE) {
        from = *c->in[1].meta;
        src = c->in[1].data;
    }
    if (reference)
        pst_view_copy_ref(&from, src, c->out[0].meta, c->out[0].data,
                          c->accumulate);
    else
        pst_view_copy(c->pool, &from, src, c->out[0].meta, c->out[0].data,
                      c->accumulate);
}

static void write_run(const struct pst_call *c)
{
    write_into(c, false);
}

static void write_ref(const struct pst_call *c)
{
    write_into(c, true);
}

static enum pst_status infer_copy(struct pst_infer *c)
{
    const struct pst_meta *x, *src = pst_infer_in(c, 1);
    struct pst_meta to;
    char text[2][PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (src != NULL &&
        (!pst_meta_broadcast(x, src, &to) || !pst_meta_same_shape(&to, x)))
        return pst_infer_fail(c, "%s does not broadcast to %s",
                              pst_meta_text(src, text[0]),
                              pst_meta_text(x, text[1]));
    return pst_infer_set_like(c, 0, x->dtype, x);
}

/* Only src gets the gradient, since the old content of self is overwritten. */
static enum pst_status copy_vjp(struct pst_vjp *v)
{
    if (!pst_pw_wants(v, 1))
        return v->build.status;
    return pst_pw_set(v, 1, pst_vjp_grad(v, 0));
}

static const struct pst_kernel write_kernels[] = {
    {"write", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED | PST_K_ACCUMULATE, NULL,
     NULL, write_run, 0.0},
    {"write_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED | PST_K_ACCUMULATE,
     NULL, NULL, write_ref, 0.0},
};

const struct pst_op pst_op_copy = {
    .schema = "aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> "
              "Tensor",
    .infer = infer_copy,
    .vjp = copy_vjp,
};
PST_CPU_KERNELS(copy, write_kernels);

const struct pst_op pst_op_fill_Scalar = {
    .schema = "aten::fill.Scalar(Tensor self, Scalar value) -> Tensor",
    .infer = pst_infer_same_as_0,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(fill_Scalar, write_kernels);

const struct pst_op pst_op_fill_Tensor = {
    .schema = "aten::fill.Tensor(Tensor self, Tensor value) -> Tensor",
    .infer = infer_copy,
    .vjp = copy_vjp,
};
PST_CPU_KERNELS(fill_Tensor, write_kernels);
