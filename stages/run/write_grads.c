// SPDX-License-Identifier: Apache-2.0
/* Sets gradients between the two parts of a step. */
#include <math.h>
#include <string.h>

#include "stages/layout/layout.h"

#include "stages/graph/low.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/device.h"

/* A rank's elements of a gradient, and the values that a caller gives them. */
struct piece {
    enum pst_dtype dtype;
    const unsigned char *src; /* first new value in the caller's array */
    unsigned char *to;        /* the host's copy of the sum of the gradient */
    int64_t n;                /* number of elements */
    bool add;                 /* the new values are added */
    /* the loss scale, by which gradients in the arena are multiplied */
    double scale;
};

/* Does the work of write_piece() for f32, in loops that the compiler can
 * vectorize. */
static bool write_f32(const struct piece *x, bool keeps)
{
    const float *src = (const float *)(const void *)x->src;
    float *to = (float *)(void *)x->to;
    const float scale = (float)x->scale;
    int64_t wrong = 0;

    for (int64_t i = 0; i < x->n; i++) {
        const float mine = scale * src[i];
        const float value = x->add ? to[i] + mine : mine;

        wrong += !isfinite(value);
        if (keeps)
            to[i] = value;
    }
    return wrong == 0;
}

/* Computes the new values, and writes them if `keeps`. Returns false if one of
 * them is not finite. */
static bool write_piece(const struct piece *x, bool keeps)
{
    bool good = true;

    if (x->dtype == PST_F32)
        return write_f32(x, keeps);
    for (int64_t i = 0; i < x->n; i++) {
        double one = 0, value = pst_load_f64(x->dtype, x->src, i) * x->scale;

        if (x->add)
            value += pst_load_f64(x->dtype, x->to, i);
        pst_store_f64(x->dtype, &one, 0, value);
        good = good && isfinite(pst_load_f64(x->dtype, &one, 0));
        if (keeps)
            pst_store_f64(x->dtype, x->to, i, value);
    }
    return good;
}

/* Finds the elements of a gradient that a local rank has; n is 0 if it has
 * none. *ret_at: their address in the arena. */
static struct piece find_piece(const struct pst_engine *engine, unsigned local,
                               unsigned param, const void *src, bool add,
                               unsigned char **ret_at)
{
    struct pst_rank *r = engine->ranks[local];
    const struct pst_plan_param *of = &pst_rank_role(r)->plan->params.at[param];
    const struct pst_rank_param *p =
        pst_layout_param(pst_rank_layout(r), param);
    struct pst_rank_device *d = pst_rank_device(r);
    const enum pst_dtype dtype = pst_dtype_of_grad(of->meta.dtype);
    const size_t size = pst_dtype_size(dtype);

    if (p == NULL || !p->trained || p->n == 0)
        return (struct piece){0};
    *ret_at = pst_rank_at(d, p->own_grad);
    (void)pst_rank_pull(d, p->own_grad, (size_t)p->n * size);
    return (struct piece){.dtype = dtype,
                          .src = (const unsigned char *)src +
                                 (size_t)p->begin * size,
                          .to = pst_device_host(&d->mem, *ret_at),
                          .n = p->n,
                          .add = add,
                          .scale = engine->step_scale};
}

/* Checks the new values on the ranks of this process. */
static enum pst_status check(struct pst_engine *engine, unsigned param,
                             const void *src, bool add, struct pst_diag *diag)
{
    const char *fqn = engine->grid->plan->params.at[param].fqn;

    if (pst_uses_total(pst_rank_role(engine->ranks[0])->uses, param) == 0)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "the loss does not depend on '%.300s', so it has "
                            "no gradient",
                            fqn);
    for (unsigned i = 0; i < engine->n_local; i++) {
        unsigned char *at;
        const struct piece x = find_piece(engine, i, param, src, add, &at);

        if (!write_piece(&x, false))
            return pst_diag_set(diag, PST_E_RUN_NOT_FINITE,
                                "the new gradient of '%.300s' has an element "
                                "that is not finite",
                                fqn);
    }
    return PST_OK;
}

enum pst_status pst_engine_write_grad(struct pst_engine *engine, unsigned param,
                                      const void *src, bool add,
                                      struct pst_diag *diag)
{
    const size_t size = pst_dtype_size(
        pst_dtype_of_grad(engine->grid->plan->params.at[param].meta.dtype));
    const enum pst_status status =
        pst_engine_agree(engine, check(engine, param, src, add, diag), diag);

    if (status != PST_OK)
        return status;
    for (unsigned i = 0; i < engine->n_local; i++) {
        unsigned char *at;
        const struct piece x = find_piece(engine, i, param, src, add, &at);

        (void)write_piece(&x, true);
        if (x.n > 0)
            pst_device_push(&pst_rank_device(engine->ranks[i])->mem, at,
                            (size_t)x.n * size);
    }
    engine->new_grads = true;
    return PST_OK;
}
