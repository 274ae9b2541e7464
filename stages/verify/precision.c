// SPDX-License-Identifier: Apache-2.0
/*
 * Compares f32 gradients with f64 gradients. Where they differ, the error that
 * rounding explains is measured: the f32 step runs again with parameters and
 * inputs moved by one ulp, so that all roundings change. A gradient is accepted
 * if its distance from f64 is comparable to that movement. Such gradients occur
 * where terms cancel (a norm over few elements, a bias before it) or where
 * parts of the model are rounded to 16 bits.
 */
#include "stages/verify/verifier.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/plural.h"
#include "stages/verify/signs.h"

/* Accepted error of a gradient, relative, in the 2-norm. */
#define WIDE_TOLERANCE 1e-3
/* Accepted error if matmuls have bf16 operands, which have eight bits of
 * mantissa and are rounded at every layer. */
#define BF16_TOLERANCE 0.1
/* A gradient that is zero except for rounding has no scale of its own: its
 * scale is at least this share of the root mean square of all gradients. */
#define WIDE_FLOOR 1e-3
/* MOVES: number of steps with parameters and inputs moved by one ulp. WORTH:
 * accepted error, as a multiple of the largest change in these steps. */
#define MOVES 2
#define WORTH 4

/* --- numbers moved by an ulp ---------------------------------------------- */

struct perturbation {
    struct verifier *v;
    struct pst_plan *root; /* plan that the parameters are read from */
    enum pst_status (*read)(void *ctx, unsigned i, void *dst,
                            struct pst_diag *diag);
    void *read_ctx;
    pst_fill_fn fill;
    void *fill_ctx;
    float ulp; /* relative size of one ulp */
    uint64_t number;
};

static void move_by_ulp(const struct perturbation *m, uint32_t what,
                        unsigned microbatch, const struct pst_meta *meta,
                        void *data)
{
    const struct pst_rng_key key = {m->v->options.seed + 3, m->number,
                                    microbatch, what};
    const uint64_t signs = pst_signs_of(&key);
    float *x = data;

    for (int64_t i = 0; meta->dtype == PST_F32 && i < pst_meta_numel(meta); i++)
        x[i] *= 1 + m->ulp * (float)pst_sign_at(signs, (uint64_t)i);
}

static enum pst_status read_moved(void *ctx, unsigned i, void *dst,
                                  struct pst_diag *diag)
{
    struct perturbation *m = ctx;
    const struct pst_plan_param *p = &m->root->params.at[i];
    enum pst_status status;

    m->root->read = m->read;
    m->root->read_ctx = m->read_ctx;
    status = pst_plan_read_param(m->root, i, dst, diag);
    m->root->read = read_moved;
    m->root->read_ctx = m;
    if (status == PST_OK && p->kind == PST_VALUE_PARAM)
        move_by_ulp(m, i, 0, &p->meta, dst);
    return status;
}

static enum pst_status fill_moved(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    struct perturbation *m = ctx;
    enum pst_status status =
        m->fill(m->fill_ctx, step, microbatch, input, dst, diag);

    if (status == PST_OK)
        move_by_ulp(m, UINT32_MAX - input, microbatch + 1,
                    &m->v->joined->inputs.at[input].meta, dst);
    return status;
}

static struct pst_exec_options single_microbatch(const struct verifier *v)
{
    struct pst_exec_options ret = v->options;

    ret.microbatches = 1;
    ret.schedule = "gpipe";
    ret.place = NULL;
    return ret;
}

/* Runs the uncut step on one microbatch with moved numbers. */
static enum pst_status step_moved(struct perturbation *m, struct pst_dump **ret)
{
    struct verifier *v = m->v;
    struct pst_exec_options one = single_microbatch(v);
    enum pst_status status;

    one.ranks = 1;
    m->root->read = read_moved;
    m->root->read_ctx = m;
    v->fill = fill_moved;
    v->ctx = m;
    status = pst_verifier_step(v, v->joined, &one, ret);
    v->fill = m->fill;
    v->ctx = m->fill_ctx;
    m->root->read = m->read;
    m->root->read_ctx = m->read_ctx;
    return status;
}

/* Returns one ulp of the coarsest floating dtype in the model, relative. */
static float ulp_of(const struct verifier *v)
{
    const struct pst_graph *graph = v->joined->stages.at[0].graph;
    float ret = v->options.bf16 ? 0x1p-8f : FLT_EPSILON;

    for (size_t i = 0; i < graph->values.n; i++) {
        const enum pst_dtype dtype = graph->values.at[i]->meta.dtype;

        if (dtype == PST_BF16)
            return 0x1p-8f;
        if (dtype == PST_F16)
            ret = PST_MAX(ret, 0x1p-11f);
    }
    return ret;
}

/* --- comparison ----------------------------------------------------------- */

static double grad_rms(const struct pst_plan *plan, const struct pst_wide *wide,
                       const unsigned *list, unsigned n)
{
    double sum = 0, count = 0;

    for (unsigned k = 0; k < n; k++) {
        const double *grad = pst_wide_grad(wide, list[k]);
        int64_t numel = pst_meta_numel(&plan->params.at[list[k]].meta);

        for (int64_t i = 0; grad != NULL && i < numel; i++)
            sum += grad[i] * grad[i];
        count += (double)numel;
    }
    return count > 0 ? sqrt(sum / count) : 0;
}

/* An f32 gradient and its error against f64. */
struct compared {
    const struct pst_dump_item *item; /* NULL: the parameter has no gradient */
    double off, scale;
    double moves; /* largest change if numbers move by one ulp */
};

static void compare(struct verifier *v, struct compared *c, const double *grad,
                    double rms)
{
    const struct pst_dump_item *item = c->item;
    const int64_t n = pst_meta_numel(&item->meta);
    double off = 0, all = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = pst_load_f64(item->meta.dtype, item->data, i);
        double y = grad != NULL ? grad[i] : 0;

        off += (x - y) * (x - y);
        all += y * y;
    }
    c->off = sqrt(off);
    c->scale = PST_MAX(sqrt(all), WIDE_FLOOR * rms * sqrt((double)n));
    v->no_number |= !isfinite(off) && isfinite(all);
    v->report.compared++;
}

static double tolerance_of(const struct verifier *v)
{
    return v->options.bf16 ? BF16_TOLERANCE : WIDE_TOLERANCE;
}

static bool is_right(const struct verifier *v, const struct compared *c)
{
    return c->item == NULL || c->off <= tolerance_of(v) * c->scale ||
           (isfinite(c->off) && c->off <= WORTH * c->moves);
}

static double item_distance(const struct pst_dump_item *a,
                            const struct pst_dump_item *b)
{
    double off = 0;

    for (int64_t i = 0; i < pst_meta_numel(&a->meta); i++) {
        const double x = pst_load_f64(a->meta.dtype, a->data, i);
        const double y = pst_load_f64(b->meta.dtype, b->data, i);

        off += (x - y) * (x - y);
    }
    return isfinite(off) ? sqrt(off) : 0;
}

/* Measures how far steps with parameters and inputs moved by one ulp change the
 * gradients that differ. */
static enum pst_status measure_movement(struct verifier *v, struct compared *at,
                                        unsigned n)
{
    struct perturbation m = {.v = v,
                             .root = v->joined,
                             .fill = v->fill,
                             .fill_ctx = v->ctx,
                             .ulp = ulp_of(v)};
    enum pst_status status = PST_OK;
    bool right = true;

    while (m.root->parent != NULL)
        m.root = m.root->parent;
    m.read = m.root->read;
    m.read_ctx = m.root->read_ctx;
    for (unsigned k = 0; k < n; k++)
        right = right && is_right(v, &at[k]);
    for (; m.number < MOVES && !right && status == PST_OK; m.number++) {
        struct pst_dump *dump = NULL;

        status = step_moved(&m, &dump);
        right = true;
        for (unsigned k = 0; k < n && status == PST_OK; k++) {
            const struct pst_dump_item *moved =
                at[k].item != NULL ? pst_dump_find(dump, at[k].item->name)
                                   : NULL;

            if (moved != NULL)
                at[k].moves =
                    PST_MAX(at[k].moves, item_distance(at[k].item, moved));
            right = right && is_right(v, &at[k]);
        }
        pst_dump_free(dump);
    }
    return status;
}

enum pst_status pst_verifier_precision(struct verifier *v,
                                       const struct pst_wide *wide,
                                       const unsigned *list, unsigned n)
{
    const struct pst_exec_options one = single_microbatch(v);
    const double rms = grad_rms(v->plan, wide, list, n);
    const unsigned before = v->report.different;
    struct compared *at = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*at));
    struct pst_dump *dump = NULL;
    enum pst_status status = at != NULL
                                 ? pst_verifier_step(v, v->plan, &one, &dump)
                                 : pst_diag_nomem(v->diag, n * sizeof(*at));

    for (unsigned k = 0; k < n && status == PST_OK; k++) {
        char name[1200];

        (void)snprintf(name, sizeof(name), "grad.%s",
                       v->plan->params.at[list[k]].fqn);
        at[k].item = pst_dump_find(dump, name);
        if (at[k].item != NULL)
            compare(v, &at[k], pst_wide_grad(wide, list[k]), rms);
    }
    if (status == PST_OK)
        status = measure_movement(v, at, n);
    for (unsigned k = 0; k < n && status == PST_OK; k++)
        if (!is_right(v, &at[k]))
            pst_verifier_differs(
                v, at[k].item->name,
                "differs from its value in f64 by %.3g of %.3g, more than "
                "rounding can move it (%.3g)",
                at[k].off, at[k].scale, at[k].moves);
    if (status == PST_OK)
        pst_str_addf(&v->report.text,
                     "gradients of %u parameter%s on 1 microbatch compared "
                     "with f64, %u differ\n",
                     n, pst_plural(n), v->report.different - before);
    pst_dump_free(dump);
    pst_free(at);
    return status;
}
