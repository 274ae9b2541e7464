// SPDX-License-Identifier: Apache-2.0
/* Tensors computed from the index alone: arange, eye. */
#include "stages/ops/create/arange.h"

#include "stages/base/checked.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>
#include <string.h>

/* --- arange: ceil((end - start) / step) elements start + i step ----------- */

struct range {
    struct pst_arg start, end, step;
};

/* Returns the range of the arguments; for an integer dtype they are truncated
 * first. */
static struct range range_of(const struct pst_arg *args, unsigned n)
{
    struct range r = {.start = pst_i(0), .step = pst_i(1)};

    if (n == 1) {
        r.end = args[0];
    } else {
        r.start = args[0];
        r.end = args[1];
        if (n > 2)
            r.step = args[2];
    }
    return r;
}

static void truncate_arg(struct pst_arg *arg)
{
    *arg = pst_i(pst_pw_integer(arg));
}

/* Sets *ret to the number of elements; false if the range is impossible.
 * Integers are counted exactly, because a double is too coarse beyond 2^53. */
static bool count_of(const struct range *r, int64_t *ret)
{
    double count;

    if (r->start.kind == PST_ARG_INT && r->end.kind == PST_ARG_INT &&
        r->step.kind == PST_ARG_INT) {
        int64_t span, step = r->step.i;

        if (step == 0 || step == INT64_MIN ||
            PST_SUB(r->end.i, r->start.i, &span) || span == INT64_MIN)
            return false;
        if (step < 0) {
            step = -step;
            span = -span;
        }
        if (span <= -step)
            return false;
        *ret = span / step + (span % step > 0);
        return true;
    }
    count = ceil((pst_pw_number(&r->end) - pst_pw_number(&r->start)) /
                 pst_pw_number(&r->step));
    if (!(count > -1.0 && count < 9e15))
        return false;
    *ret = (int64_t)count;
    return true;
}

static enum pst_status infer_range(struct pst_infer *c, unsigned n)
{
    const bool real = c->args[0].kind == PST_ARG_FLOAT ||
                      (n > 1 && c->args[1].kind == PST_ARG_FLOAT) ||
                      (n > 2 && c->args[2].kind == PST_ARG_FLOAT);
    struct range r = range_of(c->args, n);
    enum pst_dtype dtype = real ? PST_F32 : PST_I64;
    int64_t size;

    if (c->hint < PST_N_DTYPES)
        dtype = c->hint;
    dtype = pst_infer_dtype(c, n, dtype);
    if (pst_dtype_kind(dtype) != PST_KIND_FLOAT) {
        truncate_arg(&r.start);
        truncate_arg(&r.end);
        truncate_arg(&r.step);
    }
    if (!count_of(&r, &size))
        return pst_infer_fail(c, "from %g to %g in steps of %g",
                              pst_pw_number(&r.start), pst_pw_number(&r.end),
                              pst_pw_number(&r.step));
    return pst_infer_set(c, 0, dtype, 1, &size);
}

struct pst_arange pst_arange_of(const struct pst_call *c, unsigned n)
{
    const struct range r = range_of(c->args, n);

    return (struct pst_arange){
        .start = pst_pw_number(&r.start),
        .step = pst_pw_number(&r.step),
        .first = pst_pw_integer(&r.start),
        .by = pst_pw_integer(&r.step),
    };
}

static void range_run(const struct pst_call *c, unsigned n)
{
    const struct pst_operand *out = &c->out[0];
    const struct pst_arange r = pst_arange_of(c, n);
    const bool real = pst_dtype_kind(out->meta->dtype) == PST_KIND_FLOAT;

    for (int64_t i = 0; i < out->meta->size[0]; i++) {
        if (real)
            pst_store_f64(out->meta->dtype, out->data, i,
                          r.start + (double)i * r.step);
        else
            pst_store_i64(out->meta->dtype, out->data, i, r.first + i * r.by);
    }
}

#define RANGE(id, n, text)                                                     \
    static enum pst_status infer_##id(struct pst_infer *c)                     \
    {                                                                          \
        return infer_range(c, n);                                              \
    }                                                                          \
    static void id##_ref(const struct pst_call *c)                             \
    {                                                                          \
        range_run(c, n);                                                       \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#id "_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,        \
         id##_ref, 0.0},                                                       \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema =                                                              \
            "aten::" text ", *, ScalarType? dtype=None, Layout? layout=None, " \
            "Device? device=None, bool? pin_memory=None) -> Tensor",           \
        .infer = infer_##id,                                                   \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

RANGE(arange, 1, "arange(Scalar end");
RANGE(arange_start, 2, "arange.start(Scalar start, Scalar end");
RANGE(arange_start_step, 3,
      "arange.start_step(Scalar start, Scalar end, Scalar step=1");

/* --- eye ------------------------------------------------------------------ */

static enum pst_status infer_eye_of(struct pst_infer *c, int64_t rows,
                                    int64_t columns, unsigned dtype)
{
    const int64_t sizes[2] = {rows, columns};

    return pst_infer_set(
        c, 0,
        pst_infer_dtype(c, dtype, c->hint < PST_N_DTYPES ? c->hint : PST_F32),
        2, sizes);
}

static enum pst_status infer_eye(struct pst_infer *c)
{
    return infer_eye_of(c, c->args[0].i, c->args[0].i, 1);
}

static enum pst_status infer_eye_m(struct pst_infer *c)
{
    return infer_eye_of(c, c->args[0].i, c->args[1].i, 2);
}

static void eye_ref(const struct pst_call *c)
{
    const struct pst_meta *out = c->out[0].meta;

    memset(c->out[0].data, 0, pst_meta_bytes(out));
    for (int64_t i = 0; i < PST_MIN(out->size[0], out->size[1]); i++)
        pst_store_f64(out->dtype, c->out[0].data, i * out->size[1] + i, 1.0);
}

static const struct pst_kernel eye_kernels[] = {
    {"eye_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL, eye_ref,
     0.0},
};

const struct pst_op pst_op_eye = {
    .schema = "aten::eye(SymInt n, *, ScalarType? dtype=None, "
              "Layout? layout=None, Device? device=None, "
              "bool? pin_memory=None) -> Tensor",
    .infer = infer_eye,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(eye, eye_kernels);

const struct pst_op pst_op_eye_m = {
    .schema = "aten::eye.m(SymInt n, SymInt m, *, ScalarType? dtype=None, "
              "Layout? layout=None, Device? device=None, "
              "bool? pin_memory=None) -> Tensor",
    .infer = infer_eye_m,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(eye_m, eye_kernels);
