// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/rows.h"
#include "stages/ops/norm/norm.h"

/* rms_norm(input, shape, weight, eps): x / sqrt(mean(x^2) + eps) * w. Floating
 * dtypes may be mixed; the result has the dtype of the input. */

static enum pst_status rms_norm_infer(struct pst_infer *c)
{
    const struct pst_meta *x, *w = pst_infer_in(c, 2);
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_norm_check(c, 1, x, w, NULL);
    if (status != PST_OK)
        return status;
    return pst_infer_set_like(c, 0, x->dtype, x);
}

static enum pst_status rms_norm_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *w = pst_vjp_in(v, 2), *d;
    const struct pst_arg *args = v->node->args;

    if (g == NULL)
        return v->build.status;
    if (pst_vjp_needs(v, 0)) {
        d = pst_vjp_emit(
            v, &pst_op_rms_norm_backward_input,
            PST_ARGS(pst_v(g), args[0], args[1], args[2], args[3]));
        pst_vjp_set(v, 0, d);
    }
    if (w != NULL && pst_vjp_needs(v, 2)) {
        d = pst_vjp_emit(v, &pst_op_rms_norm_backward_weight,
                         PST_ARGS(pst_v(g), args[0], args[1], args[3]));
        pst_vjp_set(v, 1, pst_vjp_cast(v, d, w->meta.dtype));
    }
    return v->build.status;
}

struct pst_norm pst_norm_of_rms(const struct pst_call *c)
{
    struct pst_norm p = {.eps = pst_norm_eps(&c->args[3], c->in[0].meta->dtype),
                         .x = &c->in[0],
                         .w = &c->in[1]};

    pst_norm_rows(&p, p.x->meta, c->args[1].n);
    return p;
}

static void rms_norm_ref(const struct pst_call *c)
{
    const struct pst_norm p = pst_norm_of_rms(c);

    pst_norm_ref(&p, &c->out[0], NULL, NULL);
}

static bool weight_is_alike(const struct pst_call *c)
{
    return c->args[2].kind != PST_ARG_VALUE ||
           c->in[1].meta->dtype == c->in[0].meta->dtype;
}

#define RUN(suffix, set)                                                       \
    static void rms_norm_##suffix(const struct pst_call *c)                    \
    {                                                                          \
        const struct pst_norm p = pst_norm_of_rms(c);                          \
                                                                               \
        pst_norm_run(c, &p, PST_NORM_LOOPS(suffix));                           \
    }
PST_SIMD_EACH(RUN)

static const struct pst_kernel rms_norm_kernels[] = {
    PST_SIMD_ROWS("rms_norm_f32", rms_norm, PST_D(F32), PST_K_INPLACE_0,
                  weight_is_alike, NULL, 1e-5),
    PST_SIMD_ROWS("rms_norm_f64", rms_norm, PST_D(F64), PST_K_INPLACE_0,
                  weight_is_alike, NULL, 1e-12),
    {.name = "rms_norm_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = rms_norm_ref},
};

const struct pst_op pst_op_rms_norm = {
    .schema = "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? "
              "weight=None, float? eps=None) -> Tensor",
    .infer = rms_norm_infer,
    .vjp = rms_norm_vjp,
};
PST_CPU_KERNELS(rms_norm, rms_norm_kernels);
